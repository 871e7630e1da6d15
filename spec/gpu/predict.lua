--- Predicts the seconds of a step on a GPU that was measured, op by op, from its plan and the rates of classes
-- (lua/wane/plan/costs/rates.lua). Runs no kernel and needs no GPU.
local binding = require 'wane.ffi'
local networks = require 'spec.gpu.networks'
local rates = require 'wane.plan.costs.rates'
local wane = require 'wane'

local C = binding.C
local predict = {}

--- Returns the name of the target whose rates those of a GPU are.
-- @param text that says which GPU is here, or nil
-- @return 'h200' for an H200, else 'h100'
function predict.target(text)
    return text and text:find('H200', 1, true) and 'h200' or 'h100'
end

--- Lists the instructions of a step that run a kernel.
-- @param fn the step, as wane.plan takes it
-- @param target 'h100' or 'h200'
-- @return list of { op =, class =, key = (what was applied to what), flops =, bytes =, seconds = }
-- @return the plan
function predict.instructions(fn, target)
    local plan, list, step = wane.plan(fn, { target = target }), {}, binding.new 'struct wn_step'
    for _, part in ipairs(plan.parts) do
        local handle = part.program.handle
        for i = 0, C.wn_count(handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
            local class = binding.text(C.wn_rate_class_step(handle, i))
            if class ~= '' then
                binding.check(C.wn_step(handle, i, step))
                list[#list + 1] = { op = binding.text(step.op), class = class, flops = step.flops,
                    key = binding.text(C.wn_cost_key_step(handle, i)):gsub('^cuda[^:]*: ', ''), bytes = step.traffic,
                    seconds = step.seconds }
            end
        end
    end
    return list, plan
end

--- Adds up predicted seconds by op, as events around each instruction would show them.
-- @param fn the step, as wane.plan takes it
-- @param target 'h100' or 'h200'
-- @return { step = seconds without events, calls =, total = seconds by events, peak = bytes, by = { op = { calls =,
-- seconds = } } }
function predict.ops(fn, target)
    local list, plan = predict.instructions(fn, target)
    local found = { step = plan.seconds, calls = #list, total = 0, peak = plan.peak, by = {} }
    for _, one in ipairs(list) do
        local row = found.by[one.op] or { calls = 0, seconds = 0 }
        found.by[one.op] = row
        row.calls, row.seconds = row.calls + 1, row.seconds + one.seconds + rates.EVENT
        found.total = found.total + one.seconds + rates.EVENT
    end
    return found
end

-- Steps that were measured (spec/bench/results_gpu.lua) and are predicted: the check and the name of their rows there,
-- and the network.
local STEPS = {
    { 'gpt', 'GPT-2 124M, save_all', function() return networks.gpt('124M', 8) end },
    { 'gpt', 'GPT-2 774M, save_all', function() return networks.gpt('774M', 8) end },
    { 'heavy', 'heavy layers 20 x 4096, batch 32, save_all, one program',
        function() return networks.heavy(20, 4096, 32) end },
    { 'heavy', 'heavy layers 40 x 4096, batch 64, save_all, one program',
        function() return networks.heavy(40, 4096, 64) end },
}

-- Returns a measured number, by the name of its row.
local function measured(check, name)
    for _, row in ipairs(require('spec.bench.results_gpu').gpu.checks[check]) do
        if row.name == name then return row.value end
    end
end

--- Returns the rows of the steps that were measured on an H100 and are predicted as they are planned now: texts of the
-- name, measured ms, predicted ms, measured GB, predicted GB, launches. New tensors must be on meta.
function predict.steps()
    local rows = {}
    for i, row in ipairs(STEPS) do
        local net = row[3]()
        local now = predict.ops(function() net.optimizer:step(net.loss(), { policy = 'save_all' }) end, 'h100')
        rows[i] = { row[2], ('%.1f'):format(measured(row[1], row[2])), ('%.1f'):format(now.step * 1e3),
            ('%.2f'):format(measured(row[1], row[2] .. ': peak') / 1e9), ('%.2f'):format(now.peak / 1e9),
            ('%d'):format(now.calls) }
    end
    return rows
end

predict.HEAD = { 'a step', 'measured before, ms', 'predicted now, ms', 'peak before, GB', 'peak now, GB',
    'launches now' }

return predict
