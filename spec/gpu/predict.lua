--- Predicts the seconds of a step on a GPU that was measured, op by op, from its plan and the rates of classes
-- (lua/wane/plan/costs/rates.lua). Runs no kernel and needs no GPU.
local binding = require 'wane.ffi'
local rates = require 'wane.plan.costs.rates'
local wane = require 'wane'

local C = binding.C
local predict = {}

--- Returns the name of the target whose rates those of a GPU are.
-- @param text that says which GPU is here, or nil
-- @return 'h200' for an H200, else 'h100'
function predict.target(text)
    return text and text:find(rates.h200.gpu, 1, true) and 'h200' or 'h100'
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

return predict
