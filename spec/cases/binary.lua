--- Cases of elementwise ops of two inputs, and of where, all over the same shapes.
local array = require 'spec.cases.array'
local calls = array.calls

local shapes = {
    { 'same shape', { 3, 4 }, { 3, 4 } },
    { 'a row', { 3, 4 }, { 4 } },
    { 'a number', {}, { 2, 3 } },
    { 'both stretch', { 2, 1, 4 }, { 3, 1 } },
    { '0-d', {}, {} },
    { 'no elements', { 0, 4 }, { 4 } },
    { 'past a vector', { 7, 67 }, { 7, 1 } },
}

local function over_shapes(f, call, options)
    local list = {}
    for k, s in ipairs(shapes) do
        list[k] = { name = s[1], call = call, grad = options.grad, dtype = options.dtype, exact = options.exact,
            inputs = { array.input(s[2], { gen = options.gen }),
                array.input(s[3], { gen = options.gen2 or options.gen }) },
            ref = function(a, b) return array.map(f, a, b) end }
    end
    return list
end

local function bad(name)
    return {
        { inputs = { { 32, 100 }, { 64 } }, error = name .. ': .*%(32, 100%) and %(64%) do not broadcast' },
        { inputs = { { 3, dtype = 'f32' }, { 3, dtype = 'f64' } }, error = name .. ': .*:to' },
    }
end

local function arithmetic(name, f, call, options)
    local r = { cases = over_shapes(f, call, options), bad = bad(name) }
    if options.ties then -- the winner's slope is 1, a tie's half: the central difference
        r.cases[#r.cases + 1] = { name = 'ties', grad = true, kink = true, exact = true, call = call,
            inputs = { { 4, values = { 1, 2, 3, 0 } }, { 4, values = { 1, 2, 5, -1 } } },
            ref = function(a, b) return array.map(f, a, b) end }
    end
    if options.whole then
        r.cases[#r.cases + 1] = { name = 'i32', only = 'f32', dtype = 'i32', exact = true, call = call,
            inputs = { { 5, dtype = 'i32', gen = 'int:9' }, { 5, dtype = 'i32', gen = 'int:7' } },
            ref = function(a, b) return array.map(f, a, b) end }
        local far = ({ add = { 2 ^ 31 - 1, 1 }, sub = { -2 ^ 31, 1 }, mul = { 2 ^ 30, -3 } })[name]
        r.bad[#r.bad + 1] = far and { inputs = { { 3, 2, dtype = 'i32', values = { 1, 0, 0, far[1], far[1], 0 } },
            { 2, dtype = 'i32', values = { 0, far[2] } } },
            error = ('%s: %s%%d at element 3 is outside the numbers of i32'):format(name,
                ('%.0f'):format(f(far[1], far[2])):sub(1, -2):gsub('%-', '%%-')),
            call = function(wane, a, b) return wane.eval(call(wane, a, b)) end }
    end
    return r
end

local function comparison(name, f)
    local call = calls(name)
    local r = { cases = over_shapes(function(a, b) return f(a, b) and 1 or 0 end, call,
        { dtype = 'u8', exact = true }), bad = bad(name) }
    r.cases[#r.cases + 1] = { name = 'equal ones', only = 'f32', dtype = 'u8', exact = true, call = call,
        inputs = { { 8, dtype = 'i32', gen = 'int:3' }, { 8, dtype = 'i32', gen = 'int:3' } },
        ref = function(a, b) return array.map(function(x, y) return f(x, y) and 1 or 0 end, a, b) end }
    return r
end

local function choose(c, a, b) if c ~= 0 then return a end return b end

local pow = arithmetic('pow', function(a, b) return a ^ b end, function(_, a, b) return a ^ b end,
    { grad = true, gen = 'positive', gen2 = 'normal' })
pow.cases[#pow.cases + 1] = { name = 'square of any number', inputs = { { 3, 5 } }, grad = true,
    call = function(_, a) return a ^ 2 end, ref = function(a) return array.map(function(x) return x * x end, a) end }

pow.cases[#pow.cases + 1] = { name = 'the number itself', inputs = { { 3, 5 } }, exact = true, grad = true,
    call = function(_, a) return a ^ 1 end, ref = function(a) return array.map(function(x) return x end, a) end }

local where = function(wane, c, a, b) return wane.where(c, a, b) end
local where_ref = function(c, a, b) return array.map(choose, c, a, b) end

return {
    add = arithmetic('add', function(a, b) return a + b end, function(_, a, b) return a + b end,
        { grad = true, exact = true, whole = true }),
    sub = arithmetic('sub', function(a, b) return a - b end, function(_, a, b) return a - b end,
        { grad = true, exact = true, whole = true }),
    mul = arithmetic('mul', function(a, b) return a * b end, function(_, a, b) return a * b end,
        { grad = true, exact = true, whole = true }),
    div = arithmetic('div', function(a, b) return a / b end, function(_, a, b) return a / b end,
        { grad = true, exact = true, gen2 = 'away' }),
    pow = pow,
    maximum = arithmetic('maximum', math.max, calls('maximum'),
        { grad = true, exact = true, whole = true, ties = true, gen = 'distinct', gen2 = 'between' }),
    minimum = arithmetic('minimum', math.min, calls('minimum'),
        { grad = true, exact = true, whole = true, ties = true, gen = 'distinct', gen2 = 'between' }),
    eq = comparison('eq', function(a, b) return a == b end),
    ne = comparison('ne', function(a, b) return a ~= b end),
    lt = comparison('lt', function(a, b) return a < b end),
    gt = comparison('gt', function(a, b) return a > b end),
    le = comparison('le', function(a, b) return a <= b end),
    ge = comparison('ge', function(a, b) return a >= b end),
    where = {
        cases = {
            { name = 'same shape', call = where, ref = where_ref, grad = true, exact = true,
                inputs = { { 3, 4, dtype = 'u8', gen = 'mask' }, { 3, 4 }, { 3, 4 } } },
            { name = 'all stretch', call = where, ref = where_ref, grad = true, exact = true,
                inputs = { { 3, 1, dtype = 'u8', gen = 'mask' }, { 4 }, { 2, 3, 4 } } },
            { name = 'long, a number for what is masked', call = where, ref = where_ref, exact = true,
                inputs = { { 3, 701, dtype = 'u8', gen = 'mask' }, {}, { 3, 701 } } },
            { name = 'long, a number for what is not', call = where, ref = where_ref, exact = true,
                inputs = { { 701, dtype = 'u8', gen = 'mask' }, { 701 }, {} } },
            { name = 'between numbers', call = where, ref = where_ref, grad = true, exact = true,
                inputs = { { 5, dtype = 'u8', gen = 'mask' }, {}, {} } },
        },
        bad = {
            { inputs = { { 3 }, { 3 }, { 3 } }, error = 'where: the condition is .*u8' },
            { inputs = { { 3, dtype = 'u8', gen = 'mask' }, { 3 }, { 4 } }, error = 'where: .*do not broadcast' },
        },
    },
}
