-- Checks training on a GPU against the CPU: the network of heavy layers, 64 wide, on the simulated device
-- (spec/cudasim/), which runs the very files that nvcc compiles. Parameters must have the CPU's bits under every policy
-- and optimizer, and predicted bytes must be measured bytes.
require 'spec.helper'
local wane = require 'wane'
local op = require 'wane.tensor.op'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'

local nn, optim = wane.nn, wane.optim
local WIDTH, DEPTH, BATCH, STEPS = 64, 20, 32, 3
local policies = { 'save_all', 'recompute_all', 'sqrt', 'segments(3)', 'every(4)', 'least' }
local optimizers = {
    SGD = { lr = 0.01 }, momentum = { lr = 0.01, momentum = 0.9, nesterov = true }, Adam = { lr = 0.01 },
    AdamW = { lr = 0.01, weight_decay = 0.1 },
}

local function is_here(name)
    for _, known in ipairs(op.device_names()) do
        if known == name then return true end
    end
    return false
end

local HeavyLayer = nn.module('HeavyLayer', function(self, width)
    self.linear = nn.Linear(width, width)
    self.relu = nn.ReLU()
end)
function HeavyLayer:forward(x) return self.relu(self.linear(x)) end

-- Trains on a device; returns the bytes of all parameters, and the peak of the last step.
local function train(device, optimizer, policy, joint)
    local before = wane.set_device(device)
    wane.manual_seed(1)
    local layers = {}
    for i = 1, DEPTH do layers[i] = HeavyLayer(WIDTH) end
    local model = nn.Sequential(layers)
    local x = wane.rand(BATCH, WIDTH):retain()
    local make = optimizer == 'momentum' and optim.SGD or optim[optimizer]
    local opt = make(model:parameters(), optimizers[optimizer])
    for _ = 1, STEPS do
        local loss = model(x):sum()
        scoped('listen', function(p)
            programs.same(programs.read(p), ('%s, %s, %s'):format(optimizer, policy, p.request.mode))
        end, function()
            if joint then
                opt:step(loss, { policy = policy })
            else
                opt:zero_grad()
                loss:backward { policy = policy }
                opt:step()
            end
        end)
    end
    wane.set_device(before)
    return table.concat(programs.bytes(model:parameters()))
end

describe('a GPU', function()
    if not is_here 'cuda' then
        pending('is simulated by what a C++ compiler makes of its kernels: make cudasim')
        return
    end

    it('is the simulated one, which auto never takes', function()
        assert.truthy(wane.devices()[3] == 'cuda')
        local before = wane.set_device 'auto'
        assert.equal('cpu', wane.set_device(before))
    end)

    for name in pairs(optimizers) do
        it('trains heavy layers to the bits of the CPU by ' .. name .. ', under every policy', function()
            local want = train('cpu', name, 'save_all', false)
            for _, policy in ipairs(policies) do
                for _, joint in ipairs { false, true } do
                    local what = ('%s%s'):format(policy, joint and ', one program' or '')
                    assert.is_true(want == train('cuda', name, policy, joint), what)
                end
            end
        end)
    end
end)
