-- Compares predicted with measured bytes at full size: peak, reserved, slack, and what the process really grew by.
-- usage: luajit spec/bench/exact.lua [width]        (4096; sizes follow free memory)
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local stacks = require 'spec.support.stacks'

local optim, policy = wane.optim, wane.policy
local MiB = 2 ^ 20

local function free_bytes()
    for line in io.lines '/proc/meminfo' do
        local kb = line:match '^MemAvailable:%s+(%d+)'
        if kb then return tonumber(kb) * 1024 end
    end
    return 4 * 2 ^ 30
end

local function heavy(width, depth, batch)
    local model = stacks.linear(stacks.equal(depth, width), function() return wane.nn.ReLU() end)
    local x = wane.randn(batch, width, { requires_grad = true })
    return model, function() return model(x):sum() end
end

local rows = {}

-- Runs an arm: two steps to make everything and five that are measured; adds its row. width, batch: of each layer's
-- input; depth: number of layers.
local function arm(name, width, depth, batch, chosen, fused)
    collectgarbage()
    collectgarbage()
    wane.memory.trim()
    local before = common.resident()
    local model, fn = heavy(width, depth, batch)
    local opt = optim.SGD(model:parameters(), { lr = 1e-4 })
    local last
    local seconds = {}
    scoped('listen', function(p)
        if p.request.mode ~= 'update' then last = programs.read(p) end
    end, function()
        for step = 1, 7 do
            if fused then
                opt:step(fn(), { policy = chosen })
            else
                opt:zero_grad()
                fn():backward { policy = chosen }
            end
            if step > 2 then seconds[#seconds + 1] = last.measured.seconds end
        end
    end)
    local p, m = last.predicted, last.measured
    rows[#rows + 1] = { name, ('%.3f'):format(p.peak / MiB), m.peak - p.peak, m.reserved - p.reserved,
        ('%.2f %%'):format(100 * (p.reserved - p.peak) / p.activations),
        ('%.1f'):format((common.resident() - before - p.reserved) / MiB), ('%.3f'):format(common.median(seconds)) }
end

local width = tonumber(arg[1]) or 4096
while width > 256 and 2.2 * 20 * width * width * 4 > 0.8 * free_bytes() do width = width / 2 end
arm(('%d x 20, batch 32, backward'):format(width), width, 20, 32)
arm('the same, regions of 4', width, 20, 32, policy.every(4))
arm('the same, opt:step(loss)', width, 20, 32, nil, true)
arm('the same, opt:step(loss), regions of 4', width, 20, 32, policy.every(4), true)
if 2.2 * 40 * width * width * 4 < 0.8 * free_bytes() then
    arm(('%d x 40, batch 64, backward'):format(width), width, 40, 64)
    arm('the same, regions of 4', width, 40, 64, policy.every(4))
end
common.table({ 'step', 'peak MiB, predicted', 'peak: measured - predicted', 'reserved: measured - predicted',
    'slack, share of activations', 'process growth beyond the plan, MiB', 's a step' }, rows)
