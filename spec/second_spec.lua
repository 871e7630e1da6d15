-- Derivatives of derivatives: an op that has no rule is refused, and second derivatives are right.
local helper = require 'spec.helper'
local wane = helper.wane
local binding, tensor = require 'wane.ffi', require 'wane.tensor'
local cases = require 'spec.cases'
local case_inputs = require 'spec.support.case_inputs'

local C = binding.C

local function is_float(t) return tensor.is_float[tensor.dtype_id[t.dtype]] end

-- The fields of struct wn_op_info of an op.
local function info_of(name)
    local info = binding.new('struct wn_op_info')
    binding.check(C.wn_op_get(C.wn_op_id(name), info))
    return info
end

local LEAF, EFFECT, INDEX = 1, 4, 32
local function has(flags, flag) return flags % (2 * flag) >= flag end

-- These read bytes, which are whole numbers: nothing flows through them.
local READS_BYTES = { unpack_int8 = true, unpack_sign = true }

-- The names of all ops that make a float of other values: those into which a gradient can flow.
local function float_ops()
    local info, names = binding.new('struct wn_op_info'), {}
    for id = 0, C.wn_op_count() - 1 do
        binding.check(C.wn_op_get(id, info))
        local never = has(info.flags, LEAF) or has(info.flags, EFFECT) or has(info.flags, INDEX) or info.most == 0
        local name = binding.string(info.name)
        if not never and not READS_BYTES[name] then names[#names + 1] = name end
    end
    return names
end

-- The case's float inputs as states that need a gradient.
local function states_of(case, float, name)
    local out = {}
    for i, a in ipairs(case_inputs.arrays(case, float, name)) do
        out[i] = case_inputs.tensor(a, 0, tensor.is_float[tensor.dtype_id[a.dtype]])
    end
    return out
end

describe('an op without a gradient rule', function()
    local before
    before_each(function() before = wane.lines(true) end)
    after_each(function() wane.lines(before) end)

    it('is refused by name and line where a gradient flows into it, and never counts as a constant', function()
        local refused, given = 0, 0
        for _, name in ipairs(float_ops()) do
            local case = cases.records[name].cases[1]
            local states = states_of(case, case.only or 'f32', name)
            local x
            for _, t in ipairs(states) do
                if x == nil and is_float(t) then x = t end
            end
            local y = case.call(wane, unpack(states))
            if x and is_float(y) then
                assert(y.requires_grad, name .. ': its result needs no gradient, though its input does')
                local loss = x:sum():to('f64') + y:sum():to('f64')
                local fine, why = pcall(loss.backward, loss)
                if info_of(name).differentiable ~= 0 then
                    assert(fine, ('%s: %s'):format(name, tostring(why)))
                    given = given + 1
                else
                    assert(not fine, name .. ' has no rule, and its result passed for a constant')
                    assert(why.code == 'unsupported', ('%s: %s'):format(name, tostring(why)))
                    assert(tostring(why):find(name .. ' (recorded at ', 1, true), tostring(why))
                    assert(tostring(why):find(':%d+%) has no gradient rule'), tostring(why))
                    refused = refused + 1
                end
            end
        end
        assert(refused >= 5 and given > 30, ('%d ops refused, %d differentiated'):format(refused, given))
    end)

    it('is refused again and again, and what does not flow through it is differentiated', function()
        local w = wane.nn.Parameter(wane.tensor { 0.5, -0.25 })
        local function chain()
            return require('wane.op').record('chain', { w }, { n = 1, i = { C.wn_op_id('exp') * 256 } })
        end
        for _ = 1, 2 do
            local fine, why = pcall(function() (w * chain()):sum():backward() end)
            assert(not fine and why.code == 'unsupported', tostring(why))
            assert.is_nil(w.grad)
        end
        (w * chain():detach() * 0 + w):sum():backward()
        assert.same({ 1, 1 }, w.grad:totable())
    end)
end)

describe('what has whole numbers as its result', function()
    it('is a constant, and needs no gradient', function()
        local w = wane.nn.Parameter(wane.tensor { 0.5, -0.25 })
        for _, y in ipairs { w:gt(0), w:eq(w), w:argmax(1), w:to 'i32', w:to 'u8' } do
            assert.is_false(y.requires_grad)
        end
        (w * w:gt(0):to 'f32' + w:to('i32'):to 'f32'):sum():backward()
        assert.same({ 1, 0 }, w.grad:totable())
    end)
end)
