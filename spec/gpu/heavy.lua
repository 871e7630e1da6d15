-- Measures the network of heavy layers in both sizes, in f32 with SGD: seconds and bytes under three policies and in
-- both forms of a step, beside PyTorch where it is. Aims: every peak at or below PyTorch's, one program at its time or
-- less.
local gpu = require 'spec.gpu.gpu'
local networks = require 'spec.gpu.networks'
local torch = require 'spec.gpu.torch'
local wane = require 'wane'

local function measure(name, net, policy, is_joint, theirs)
    local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = policy, lines = not is_joint,
        steps = gpu.size(10, 1), warmup = gpu.size(2, 0) })
    local what = ('%s, %s, %s'):format(name, policy, is_joint and 'one program' or 'backward, then the step')
    gpu.fact(what .. ': predicted bytes are measured bytes', m.exact)
    gpu.number(what .. ': peak', m.peak, 'B', { predicted = m.predicted_peak, most = theirs and theirs.peak })
    gpu.number(what, m.seconds * 1e3, 'ms', {
        most = is_joint and policy == 'save_all' and theirs and theirs.ms or nil })
end

for _, size in ipairs(gpu.size({ { 20, 4096, 32 }, { 40, 4096, 64 } }, { { 4, 64, 8 }, { 6, 64, 16 } })) do
    local depth, width, batch = unpack(size)
    local name = ('heavy layers %d x %d, batch %d'):format(depth, width, batch)
    local rates, why = torch.rates(('heavy %d %d %d'):format(depth, width, batch))
    local theirs = torch.rows(name .. ', PyTorch', rates, '', why)
    local net = networks.heavy(depth, width, batch)
    for _, policy in ipairs { 'save_all', 'every(4)' } do
        for _, is_joint in ipairs { false, true } do measure(name, net, policy, is_joint, theirs) end
    end
    net = nil -- luacheck: ignore 311
    wane.memory.trim()
end
gpu.finish()
