--- Cases of elementwise ops of one input, and of cast.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local function over_shapes(f, call, options)
    local list = {}
    for k, s in ipairs { { 'a matrix', 3, 4 }, { '0-d' }, { 'no elements', 0, 3 }, { 'past a vector', 7, 67 } } do
        list[k] = { name = s[1], inputs = { { s[2], s[3], gen = options.gen } }, grad = true, exact = options.exact,
            call = call, ref = function(x) return array.map(f, x) end }
    end
    return list
end

local function unary(name, f, options)
    options = options or {}
    local call = options.call or calls(name)
    return {
        cases = over_shapes(f, call, options),
        bad = { { inputs = { { 3, dtype = options.bad or 'i32', gen = 'int:2' } }, error = name .. ': .*f32',
            call = calls(name) } },
    }
end

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

local function tanh(x)
    local e = math.exp(-2 * math.abs(x))
    local y = (1 - e) / (1 + e)
    return x < 0 and -y or y
end

local odd = { 0, -0.0, 1, -1e-40, 3e38, -3e38, 1 / 0, -1 / 0, 0 / 0 }

-- Returns the nearest whole number, the even one of two as near.
local function round(x)
    local low = math.floor(x)
    local up = x - low > 0.5 or x - low == 0.5 and low % 2 == 1
    local y = up and low + 1 or low
    return y == 0 and x * 0 or y -- with the sign of x
end

local function sign(x) return x > 0 and 1 or x < 0 and -1 or 0 end

-- Adds a case of given numbers, whose results are exact, to a record.
local function at(record_, title, values, f)
    record_.cases[#record_.cases + 1] = { name = title, inputs = { { #values, values = values } }, exact = true,
        call = record_.cases[1].call, ref = function(x) return array.map(f, x) end }
    return record_
end

-- Marks a record whose op has the slope 0 wherever it has one.
local function flat(record_)
    record_.is_flat = true
    return record_
end

local halves = { -2.5, -1.5, -0.75, 0, 0.5, 1.5, 2.5, 3.5, 1 / 0, -1 / 0 }
local steps = { gen = 'distinct', exact = true }

local clamp = unary('clamp', function(x) return math.min(math.max(x, -0.5), 0.75) end,
    { exact = true, gen = 'distinct', call = function(_, x) return x:clamp(-0.5, 0.75) end })
clamp.bad[2] = { inputs = { { 3 } }, error = 'clamp: .*1 and %-1', call = calls('clamp', { f = { 1, -1 } }) }

-- Makes the cases of a test of elements (such as which are no numbers) among ordinary ones, ends of the range,
-- infinities and NaN; such ops have no gradient.
local function test(name, f)
    local call = calls(name)
    local function case(title, input)
        return { name = title, inputs = { input }, dtype = 'u8', exact = true, call = call,
            ref = function(x) return array.map(function(v) return f(v) and 1 or 0 end, x) end }
    end
    return {
        cases = { case('every kind', { #odd, values = odd }), case('a matrix', { 3, 4 }), case('0-d', {}),
            case('no elements', { 0, 3 }), case('past a vector', { 7, 67 }) },
        bad = { { inputs = { { 3, dtype = 'i32', gen = 'int:2' } }, error = name .. ': .*f32', call = call } },
    }
end

local function cast(from, to, f, gen, options)
    return { name = from .. ' to ' .. to, inputs = { { 3, 4, dtype = from, gen = gen } }, dtype = to, only = 'f32',
        grad = options and options.grad, tol = options and options.tol, exact = not (options and options.tol),
        call = function(_, x) return x:to(to) end, ref = function(x) return array.map(f, x) end }
end

local function same(x) return x end
local function toward_zero(x) return x < 0 and math.ceil(x) or math.floor(x) end

return {
    neg = unary('neg', function(x) return -x end, { exact = true, bad = 'u8', call = function(_, x) return -x end }),
    abs = unary('abs', math.abs, { exact = true, bad = 'u8', gen = 'away', call = function(_, x) return x:abs() end }),
    exp = unary('exp', math.exp, { call = function(_, x) return x:exp() end }),
    log = unary('log', math.log, { gen = 'positive', call = function(_, x) return x:log() end }),
    sqrt = unary('sqrt', math.sqrt, { gen = 'positive', exact = true, call = function(_, x) return x:sqrt() end }),
    rsqrt = unary('rsqrt', function(x) return 1 / math.sqrt(x) end, { gen = 'positive' }),
    relu = unary('relu', function(x) return math.max(x, 0) end,
        { exact = true, gen = 'away', call = function(_, x) return x:relu() end }),
    gelu = unary('gelu', function(x) return 0.5 * x * (1 + array.erf(x / math.sqrt(2))) end,
        { call = function(_, x) return x:gelu() end }),
    silu = unary('silu', function(x) return x * sigmoid(x) end, { call = function(_, x) return x:silu() end }),
    tanh = unary('tanh', tanh, { call = function(_, x) return x:tanh() end }),
    sigmoid = unary('sigmoid', sigmoid, { call = function(_, x) return x:sigmoid() end }),
    softplus = unary('softplus', function(x) return math.log(1 + math.exp(x)) end,
        { call = function(_, x) return x:softplus() end }),
    sin = unary('sin', math.sin, { call = function(_, x) return x:sin() end }),
    cos = unary('cos', math.cos, { call = function(_, x) return x:cos() end }),
    log1p = unary('log1p', function(x) return math.log(1 + x) end,
        { gen = 'positive', call = function(_, x) return x:log1p() end }),
    expm1 = unary('expm1', function(x) return math.exp(x) - 1 end, { call = function(_, x) return x:expm1() end }),
    floor = flat(at(unary('floor', math.floor, steps), 'at its steps', halves, math.floor)),
    round = flat(at(unary('round', round, steps), 'at its steps', halves, round)),
    sign = flat(at(unary('sign', sign, { gen = 'away', exact = true, bad = 'u8' }), 'every kind', odd, sign)),
    clamp = clamp,
    isnan = test('isnan', function(v) return v ~= v end),
    isfinite = test('isfinite', function(v) return v - v == 0 end),
    within = {
        cases = {
            { name = 'all of them', inputs = { { 2, 3, gen = 'positive' } }, exact = true, grad = true,
                call = calls('within', { n = 1, f = { 0, 1e9 } }),
                ref = function(x) return array.map(function(v) return v end, x) end },
            { name = 'all of many', inputs = { { 3, 700, gen = 'positive' } }, exact = true, only = 'f32',
                call = calls('within', { n = 1, f = { 0, 1e9 } }),
                ref = function(x) return array.map(function(v) return v end, x) end },
        },
        bad = {
            { inputs = { { 4, values = { 1, 2, 0 / 0, -1 } } }, error = 'the weight %-?nan at element 2 is no finite',
                call = function(wane, x) return wane.eval(record('within', { x }, { n = 1, f = { 0, 1e9 } })) end },
            { inputs = { { 2, 2, values = { 0, 1, 1, 2 } } }, error = 'bernoulli: the probability 2 at element 3',
                call = function(wane, x)
                    return wane.eval(record('within', { x }, { n = 1, i = { 2 }, f = { 0, 1 } }))
                end },
        },
    },
    cast = {
        cases = {
            cast('f64', 'f32', same, 'normal', { tol = { f32 = 1e-7 } }),
            cast('f32', 'f64', same, 'normal'),
            cast('f32', 'i32', toward_zero, 'normal'),
            cast('i32', 'f32', same, 'int:100'),
            cast('i32', 'u8', same, 'int:100'),
            cast('u8', 'i32', same, 'mask'),
            cast('u8', 'f64', same, 'mask'),
            { name = 'gradient through two', inputs = { { 5, dtype = 'f64' } }, only = 'f64', grad = true,
                call = function(_, x) return x:to('f64') * x end,
                ref = function(x) return array.map(function(v) return v * v end, x) end },
        },
        bad = {
            { inputs = { { 3 } }, error = 'cast: .*not in this version', call = calls('cast', { dtype = 'f16' }) },
        },
    },
}
