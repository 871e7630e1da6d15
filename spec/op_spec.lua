-- Checks every op of the table through its record in spec/cases: values against the plain reference, gradients against
-- finite differences, the same bits twice, in checked runs over poisoned memory and on a second device, bf16 against
-- the f32 kernel, and refusals that leave everything usable. An op without a record fails here, by name.
local helper = require 'spec.helper'
local cases = require 'spec.cases'
local gradcheck = require 'spec.support.gradcheck'
local array = require 'spec.cases.array'
local case_inputs = require 'spec.support.case_inputs'
local programs = require 'spec.support.programs'
local wane = helper.wane
local binding, scoped = require 'wane.ffi', require 'wane.scoped'

local C = binding.C
local make_array, to_tensor, stream = case_inputs.array, case_inputs.tensor, case_inputs.stream
local CPU, MIRROR = 0, require('wane.tensor.op').device('mirror', 'spec')
local FLOATS = { 'f32', 'f64' }

-- Returns what `make` made for a case under a key, making it once an op: large arrays take longer to make than all that
-- is done with them.
local made = {}
local function once(case, key, make)
    local of_case = made[case] or {}
    made[case] = of_case
    of_case[key] = of_case[key] or make()
    return of_case[key]
end

-- Returns the arrays of a case. Lists share arrays, so nobody writes to one; a caller may change its list.
local function arrays_of(case, float, name)
    return { unpack(once(case, float, function() return case_inputs.arrays(case, float, name) end)) }
end

-- ---- running one case -----------------------------------------------------------------------------------------

local function seed(case)
    if case.seeded then wane.manual_seed(1) end
end

local function call(case, tensors)
    seed(case)
    return case.call(wane, unpack(tensors))
end

-- Returns the sum of the result, each element with a fixed weight of its own, so that no two of them can be mixed up.
local function loss_of(case, tensors, device, name)
    local y = call(case, tensors)
    local weights = once(case, 'weights ' .. y.dtype, function()
        return make_array(y.shape, y.dtype, stream(name .. ' weights'))
    end)
    return (y * to_tensor(weights, device)):sum()
end

-- Returns the bytes of the result, then of every gradient.
local function all_bytes(case, float, name, device)
    return scoped('device', device, function()
        local arrays = arrays_of(case, float, name)
        local y = call(case, case_inputs.tensors(arrays, device))
        assert(y.device == binding.string(C.wn_device_name(device)), name .. ': the result is on ' .. y.device)
        local out = { gradcheck.bytes(y) }
        local which = case_inputs.differentiable(case, arrays)
        if which then
            local tensors = case_inputs.tensors(arrays, device, which)
            loss_of(case, tensors, device, name):backward()
            for i = 1, #tensors do
                if which[i] then out[#out + 1] = gradcheck.bytes(tensors[i].grad) end
            end
        end
        return table.concat(out, '|')
    end)
end

-- ---- the checks -------------------------------------------------------------------------------------------------

-- Cases of an op that are tried. Under collector stress more cases are the same calls from Lua again.
local MOST = os.getenv 'WANE_SPEC_STRESS' and 4 or math.huge

local function each_case(name, fn, floats) return case_inputs.each(name, fn, floats or FLOATS, MOST) end

local function wrong_value(case, float, name)
    local arrays = arrays_of(case, float, name)
    local y = call(case, case_inputs.tensors(arrays))
    local have = gradcheck.values(y)
    if y.dtype ~= (case.dtype or float) then
        return ('dtype %s, expected %s'):format(y.dtype, case.dtype or float)
    end
    if case.check then
        local fine, why = case.check(have, unpack(arrays))
        return not fine and (why or 'refused by the case') or nil
    end
    local want = case.ref(unpack(arrays))
    if table.concat(y.shape, ',') ~= table.concat(want.shape, ',') then
        return ('shape (%s), expected (%s)'):format(table.concat(y.shape, ', '), table.concat(want.shape, ', '))
    end
    if case.exact then
        if gradcheck.bytes(y) == gradcheck.rounded(want, y.dtype) then return nil end
        return 'bits differ: ' .. (gradcheck.differ(have, want, 0) or 'the sign of a zero')
    end
    return gradcheck.differ(have, want, (case.tol or cases.tol)[float] or cases.tol[float])
end

-- NOT_ONE_NODE lists ops whose cases are not one node rounded once: composed calls, sums of products, several steps.
-- bf16_spec checks them.
local NOT_ONE_NODE = {
    matmul = true, linear = true, row_rstd = true, layernorm = true, sgd = true, momentum = true, adam = true,
    lion = true, rmsprop = true, rmsprop_momentum = true, rmsprop_centered = true,
    chain = true, matmul_map = true, linear_map = true, running_mean = true, running_var = true,
    batch_norm_map = true, conv2d_map = true, conv2d = true, conv2d_dx = true, conv2d_dw = true,
    layernorm_dx_add = true, partial_sum = true, squares = true,
}

-- The results of these are f32 where x is bf16, with the bits of x in f32.
local WIDE = { row_stats = true, row_nll = true, row_count = true }

local function wrong_bf16(case, name)
    local arrays = arrays_of(case, 'bf16', name)
    local have = call(case, case_inputs.tensors(arrays))
    for i, a in ipairs(arrays) do
        if a.dtype == 'bf16' then
            arrays[i] = array.build(a.shape, function(_, k) return a[k] end)
            arrays[i].dtype = 'f32'
        end
    end
    local want = call(case, case_inputs.tensors(arrays))
    local dtype = want.dtype == 'f32' and not WIDE[name] and 'bf16' or want.dtype
    if have.dtype ~= dtype then return 'dtype ' .. have.dtype .. ', expected ' .. dtype end
    if gradcheck.bytes(have) ~= gradcheck.bytes(want:to(have.dtype)) then return 'not the f32 value, rounded' end
end

local function wrong_gradient(case, float, name)
    if float ~= 'f64' or not case.grad then return nil end
    local arrays = arrays_of(case, float, name)
    local which, cells = case_inputs.differentiable(case, arrays), {}
    local tensors = case_inputs.tensors(arrays, CPU, which)
    for i, t in ipairs(tensors) do
        if which[i] then cells[#cells + 1] = t end
    end
    return (gradcheck.wrong(cells, function() return loss_of(case, tensors, CPU, name) end,
        { tol = cases.grad_tol }))
end

-- Returns the inputs of a case with 0 in the place of one size, wherever an input has it; nil where none has it.
local function without(inputs, size)
    local out, found = {}, false
    for i, input in ipairs(inputs) do
        out[i] = { gen = input.gen ~= 'distinct' and input.gen or nil, dtype = input.dtype }
        for d, n in ipairs(input) do
            out[i][d] = n == size and 0 or n
            found = found or n == size
        end
    end
    return found and out or nil
end

-- Runs a case, and its gradient, with each of its sizes 0 in turn: it gives a result or refuses the shapes in words.
-- (The sanitizers see what a kernel does with the address of no bytes.)
local function wrong_empty(case, float, name)
    local tried = { [0] = true }
    for _, input in ipairs(case.inputs) do
        for _, size in ipairs(input) do
            local inputs = not tried[size] and without(case.inputs, size)
            tried[size] = true
            if inputs then
                local small = setmetatable({ name = case.name .. ' of none', inputs = inputs }, { __index = case })
                local fine, why = pcall(all_bytes, small, float, name, CPU)
                made[small] = nil
                why = not fine and tostring(why) or ''
                if why:find 'internal' then return ('%d as 0: %s'):format(size, why) end
            end
        end
    end
end

-- ---- the specs --------------------------------------------------------------------------------------------------

-- Returns whether a case of the record checks a gradient.
local function has_gradient(name)
    for _, case in ipairs(cases.records[name] and cases.records[name].cases or {}) do
        if case.grad and case.only ~= 'f32' then return true end
    end
    return false
end

-- Returns whether a case of the record has an input of the type under test.
local function has_bf16(name)
    for _, case in ipairs(cases.records[name].cases) do
        if not case.only and #case.inputs > 0 then return true end
    end
    return false
end

local names = programs.ops()

describe('the records', function()
    it('cover every op of the table and nothing else', function()
        local missing, known = {}, {}
        for _, name in ipairs(names) do
            known[name] = true
            if not cases.records[name] then missing[#missing + 1] = name end
        end
        assert(#missing == 0, 'ops without a record in spec/cases: ' .. table.concat(missing, ', '))
        for name in pairs(cases.records) do
            assert(known[name], name .. ' has a record and is no op')
        end
    end)

    it('are of ops with as many inputs as a fused op gives them for a step', function()
        local info, steps = binding.new('struct wn_op_info'), 0
        for _, name in ipairs(names) do
            binding.check(C.wn_op_get(C.wn_op_id(name), info))
            if info.operands ~= 0 then
                steps = steps + 1
                assert(info.least == info.operands and info.most == info.operands, name)
            end
        end
        assert(steps > 20, 'only ' .. steps .. ' ops may be steps of a fused op')
    end)

    it('check the gradient of every op that has one', function()
        local info, missing, differentiable_ops = binding.new('struct wn_op_info'), {}, 0
        for _, name in ipairs(names) do
            binding.check(C.wn_op_get(C.wn_op_id(name), info))
            if info.differentiable ~= 0 then
                differentiable_ops = differentiable_ops + 1
                if not has_gradient(name) then missing[#missing + 1] = name end
            end
        end
        assert(differentiable_ops > 30, 'only ' .. differentiable_ops .. ' ops have a gradient')
        assert(#missing == 0, 'ops whose gradient no case checks: ' .. table.concat(missing, ', '))
    end)
end)

for _, name in ipairs(names) do
    if cases.records[name] then
        describe(name, function()
            teardown(function() made = {} end)

            it('computes what the reference does', function()
                each_case(name, function(case, float) return wrong_value(case, float, name) end)
            end)

            if has_gradient(name) then
                it('has the slope of its finite differences', function()
                    each_case(name, function(case, float) return wrong_gradient(case, float, name) end)
                end)
            end

            if not NOT_ONE_NODE[name] and has_bf16(name) then
                it('is in bf16 the f32 value, rounded', function()
                    each_case(name, function(case)
                        return not case.composed and wrong_bf16(case, name) or nil
                    end, { 'bf16' })
                end)
            end

            it('gives the same bits again, checked over poison, and on the mirror', function()
                each_case(name, function(case, float)
                    local first = all_bytes(case, float, name, CPU)
                    if first ~= all_bytes(case, float, name, CPU) then return 'other bits the second time' end
                    local poisoned = programs.debugged(all_bytes, case, float, name, CPU)
                    if first ~= poisoned then return 'other bits over poison' end
                    if first ~= all_bytes(case, float, name, MIRROR) then return 'other bits on the mirror' end
                end, { 'f32', 'f64', 'bf16' })
            end)

            it('takes values of no elements, or refuses them in words', function()
                each_case(name, function(case, float) return wrong_empty(case, float, name) end, { 'f32' })
            end)

            it('refuses what is wrong, and works after it', function()
                local record = cases.records[name]
                assert(#record.bad > 0, name .. ': the record has nothing bad')
                for _, bad in ipairs(record.bad) do
                    case_inputs.check_refusal(name, bad)
                    local case = record.cases[1]
                    local wrong = wrong_value(case, case.only or 'f32', name)
                    assert(not wrong, ('%s, after a refusal: %s'):format(name, tostring(wrong)))
                end
            end)
        end)
    end
end

describe('the comparison', function()
    it('fails on what is not a number and on a difference', function()
        local nan = 0 / 0
        assert.is_string(gradcheck.differ({ nan }, { shape = { 1 }, 1 }, 1e-5))
        assert.is_string(gradcheck.differ({ 1 }, { shape = { 1 }, nan }, 1e-5))
        assert.is_string(gradcheck.differ({ 1.1 }, { shape = { 1 }, 1 }, 1e-5))
        assert.is_nil((gradcheck.differ({ 1 + 1e-7 }, { shape = { 1 }, 1 }, 1e-5)))
    end)

    it('of gradients fails on a wrong one', function()
        local x = to_tensor({ shape = { 2 }, dtype = 'f64', 0.3, 0.7 }, CPU, true)
        assert.is_nil((gradcheck.wrong({ x }, function() return (x * x):sum() end)))
        -- The detached factor is a wrong gradient on purpose.
        assert.is_string((gradcheck.wrong({ x }, function() return (x * x:detach()):sum() end)))
    end)
end)
