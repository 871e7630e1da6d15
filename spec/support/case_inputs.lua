--- Makes the inputs of case records (spec/cases.lua) as arrays and as tensors, and runs the records, for the specs that
-- go through all of them: each processor and each class of kernels is compared with another.
local array = require 'spec.cases.array'
local binding, create, tensor = require 'wane.ffi', require 'wane.tensor.create', require 'wane.tensor'
local cases = require 'spec.cases'
local gradcheck = require 'spec.support.gradcheck'
local scoped = require 'wane.scoped'
local wane = require 'wane'

local C = binding.C

local inputs = {}

--- Returns a function that gives numbers in [0, 1); they depend on the name only.
function inputs.stream(name)
    local state = 1
    for k = 1, #name do state = (state * 31 + name:byte(k)) % 2147483647 end
    return function()
        state = (state * 16807 + 11) % 2147483647
        return state / 2147483647
    end
end

local generators = {
    normal = function(u)
        local r = math.sqrt(-2 * math.log(u() * 0.999 + 0.001))
        return r * math.cos(2 * math.pi * u())
    end,
    positive = function(u) return 0.5 + 1.5 * u() end,
    away = function(u)
        local v = 0.2 + 1.8 * u()
        return u() < 0.5 and -v or v
    end,
    mask = function(u) return u() < 0.5 and 0 or 1 end,
}

-- Returns a shuffled ladder of n numbers: no two closer than 0.1, none closer than 0.01 to -0.5 or 0.75 unless lifted.
local function ladder(n, u, lift)
    local out = {}
    for k = 1, n do out[k] = (k - math.floor(n / 2)) * 0.13 + 0.037 + lift end
    for k = n, 2, -1 do
        local j = 1 + math.floor(u() * k)
        out[k], out[j] = out[j], out[k]
    end
    return out
end

-- Returns a number as an element of a float type holds it.
local single = binding.array('f32', 1) -- one for good: see cases/pack.lua
local function held(v, dtype)
    if dtype == 'f64' then return v end
    single[0] = v
    return tonumber((dtype == 'bf16' and binding.widen(binding.round(single, 1), 1) or single)[0])
end

--- Makes the array of one input of a case; its values are those of the dtype.
function inputs.array(input, dtype, u)
    local shape = {}
    for d, size in ipairs(input) do shape[d] = size end
    local n, gen = array.count(shape), input.gen or 'normal'
    local list = input.values or gen == 'distinct' and ladder(n, u, 0) or gen == 'between' and ladder(n, u, 0.065)
    local limit = tonumber(gen:match('^int:(%d+)$'))
    local out = array.build(shape, function(_, k)
        local v = list and list[k] or limit and math.floor(u() * limit) or generators[gen](u)
        return tensor.is_float[tensor.dtype_id[dtype]] and held(v, dtype) or v
    end)
    out.dtype = dtype
    return out
end

--- Makes the arrays of all inputs of a case for a float type; `name` is the op's.
function inputs.arrays(case, float, name)
    local u, out = inputs.stream(name .. case.name), {}
    for i, input in ipairs(case.inputs) do out[i] = inputs.array(input, input.dtype or float, u) end
    return out
end

--- Makes a tensor of an array: plain data, or with `differentiable` a state that needs a gradient.
function inputs.tensor(a, device, differentiable)
    local n = array.count(a.shape)
    local buffer = binding.array(a.dtype == 'bf16' and 'f32' or a.dtype, math.max(n, 1))
    for k = 1, n do buffer[k - 1] = a[k] end
    if a.dtype == 'bf16' then buffer = binding.round(buffer, n) end
    local t = create.data(a.shape, a.dtype, device, buffer)
    if not differentiable then return t end
    local cell = create.cell(create.KIND_INPUT, t, 'x')
    binding.check(C.wn_cell_need_grad(cell.id, 1))
    return cell
end

--- Makes the tensors of a list of arrays; `which` says of each whether a gradient is taken of it, nil: of none.
function inputs.tensors(arrays, device, which)
    local out = {}
    for i, a in ipairs(arrays) do out[i] = inputs.tensor(a, device, which and which[i]) end
    return out
end

--- Returns for each input of a case whether the gradient is taken of it: a list of booleans, or nil.
function inputs.differentiable(case, arrays)
    if not case.grad then return nil end
    local out = {}
    for i, a in ipairs(arrays) do
        out[i] = tensor.is_float[tensor.dtype_id[a.dtype]] and (case.grad == true or case.grad[i] == true)
    end
    return out
end

-- ---- running --------------------------------------------------------------------------------------------------------

local FLOATS = { 'f32', 'f64', 'bf16' }
local NO_BF16 = { layernorm_dx_add = true }

--- Calls fn(case, float) for each case of an op in every float type that it is for. fn returns nil, or what is wrong;
-- that and its errors are raised with the names of op, case and float type.
-- @param floats list of float types to try, by default all three
-- @param most cases to try at most, by default all
function inputs.each(name, fn, floats, most)
    local ran = 0
    for k, case in ipairs(cases.records[name].cases) do
        if k > (most or k) and ran > 0 then break end
        for _, float in ipairs(floats or FLOATS) do
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

--- Fails unless a device refuses what the record of an op calls bad, in its words.
function inputs.check_refusal(name, bad, device)
    local fn = bad.call or cases.records[name].cases[1].call
    local arrays = inputs.arrays({ name = 'bad', inputs = bad.inputs }, 'f32', name)
    local fine, why = pcall(function() return gradcheck.bytes(fn(wane, unpack(inputs.tensors(arrays, device)))) end)
    assert(not fine, name .. ': accepted, expected ' .. bad.error)
    assert(tostring(why):find(bad.error), ('%s: raised "%s", expected %s'):format(name, tostring(why), bad.error))
end

--- Runs a case on a device; returns a list of { what =, bytes =, values = } of its result and its gradients.
function inputs.run(case, float, name, device)
    return scoped('device', device, function()
        local arrays = inputs.arrays(case, float, name)
        local which = inputs.differentiable(case, arrays)
        local function call(tensors)
            if case.seeded then wane.manual_seed(1) end
            return case.call(wane, unpack(tensors))
        end
        local function entry(what, t)
            return { what = what, bytes = gradcheck.bytes(t), values = gradcheck.values(t) }
        end
        local y = call(inputs.tensors(arrays, device))
        local out = { entry('result', y) }
        if not which then return out end
        local tensors = inputs.tensors(arrays, device, which)
        local weights = inputs.array(y.shape, y.dtype, inputs.stream(name .. ' weights'))
        local loss = (call(tensors) * inputs.tensor(weights, device)):sum()
        loss:backward()
        for i = 1, #tensors do
            if which[i] then out[#out + 1] = entry('gradient ' .. i, tensors[i].grad) end
        end
        return out
    end)
end

--- Returns the result of call(tensors) on a device, as { bytes =, values = }.
-- @param device number
-- @param call function of tensors
-- @param arrays of the tensors
function inputs.run_on(device, call, arrays)
    return scoped('device', device, function()
        local y = call(unpack(inputs.tensors(arrays, device)))
        return { bytes = gradcheck.bytes(y), values = gradcheck.values(y) }
    end)
end

--- Returns what differs between the bits of two results, or nil. NaN equals NaN alone, whatever its bits.
function inputs.other(have, want)
    if have.bytes == want.bytes then return end
    for i = 1, #want.values do
        local a, b = have.values[i], want.values[i]
        local is_same = a == b and 1 / a == 1 / b or (a ~= a and b ~= b)
        if not is_same then return ('element %d is %.17g, the CPU has %.17g'):format(i, a, b) end
    end
end

return inputs
