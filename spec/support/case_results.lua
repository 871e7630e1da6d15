--- Runs the records of spec/cases for specs that compare what different processors make of them.
local cases = require 'spec.cases'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local scoped = require 'wane.scoped'
local wane = require 'wane'

local case_results = {}

local FLOATS = { 'f32', 'f64', 'bf16' }
local NO_BF16 = { layernorm_dx_add = true }

--- Calls fn(case, float) for each case of an op in every float type that it is for. fn returns nil, or what is wrong;
-- that and its errors are raised with the names of op, case and float type.
function case_results.each(name, fn)
    local ran = 0
    for _, case in ipairs(cases.records[name].cases) do
        for _, float in ipairs(FLOATS) do
            local is_for = case.only and case.only == float or not case.only and (#case.inputs > 0 or float ~= 'bf16')
            if is_for and not (float == 'bf16' and NO_BF16[name]) then
                local fine, wrong = xpcall(fn, function(e)
                    return type(e) == 'string' and debug.traceback(e) or tostring(e)
                end, case, float)
                assert(fine and not wrong, ('%s, %s, %s: %s'):format(name, case.name, float, tostring(wrong)))
                ran = ran + 1
            end
        end
    end
    assert(ran > 0, name .. ': no case ran')
end

--- Runs a case on a device; returns a list of { what =, bytes =, values = } of its result and its gradients.
function case_results.run(case, float, name, device)
    return scoped('device', device, function()
        local arrays = case_inputs.arrays(case, float, name)
        local which = case_inputs.differentiable(case, arrays)
        local function call(tensors)
            if case.seeded then wane.manual_seed(1) end
            return case.call(wane, unpack(tensors))
        end
        local function entry(what, t)
            return { what = what, bytes = gradcheck.bytes(t), values = gradcheck.values(t) }
        end
        local y = call(case_inputs.tensors(arrays, device))
        local out = { entry('result', y) }
        if not which then return out end
        local tensors = case_inputs.tensors(arrays, device, which)
        local weights = case_inputs.array(y.shape, y.dtype, case_inputs.stream(name .. ' weights'))
        local loss = (call(tensors) * case_inputs.tensor(weights, device)):sum()
        loss:backward()
        for i = 1, #tensors do
            if which[i] then out[#out + 1] = entry('gradient ' .. i, tensors[i].grad) end
        end
        return out
    end)
end

return case_results
