--- Cases of reductions, of the gradient of max and min, of argmax and of expand; and of softmax and its logarithm along
-- a dim, with their gradients. Dims in `record` are 0-based.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

-- Returns the attributes of a reduction: the dims, and in the last place whether they are kept.
local function attrs(dims, keep)
    local i = { 0, 0, 0, 0, 0, 0, 0, keep and 1 or 0 }
    for k, d in ipairs(dims) do i[k] = d end
    return { i = i, n = #dims }
end

local forms = {
    { 'all', { 3, 4 }, {} },
    { 'all, kept', { 3, 4 }, {}, true },
    { 'the last dim', { 3, 4 }, { 1 } },
    { 'the first dim', { 3, 4 }, { 0 } },
    { 'the middle dim, kept', { 2, 3, 4 }, { 1 }, true },
    { 'two dims apart', { 2, 3, 4 }, { 0, 2 } },
    { '0-d', {}, {} },
    { 'long rows', { 3, 1030 }, { 1 }, false, 'forward only' },
    { 'long columns', { 1030, 3 }, { 0 }, false, 'forward only' },
    { 'a long middle dim, few outputs', { 2, 6000, 3 }, { 1 }, false, 'forward only' },
    { 'wide columns', { 21, 2100 }, { 0 }, false, 'forward only' },
    { 'columns by four parts', { 5001, 37 }, { 0 }, false, 'forward only' },
    { 'slabs of columns by two parts', { 2, 2050, 40 }, { 1 }, true, 'forward only' },
    { 'many short rows', { 37, 21 }, { 1 }, false, 'forward only' },
    { 'many short rows of whole lines', { 18, 64 }, { 1 }, false, 'forward only' },
}

local function reduction(name, f, options)
    local cases = {}
    for k, s in ipairs(forms) do
        local input = array.input(s[2], { gen = not (s[5] and options.gen == 'distinct') and options.gen or nil })
        cases[k] = { name = s[1], inputs = { input }, grad = not s[5], exact = options.exact,
            call = calls(name, attrs(s[3], s[4])),
            ref = function(x) return array.fold(x, s[3], s[4], f) end }
    end
    cases[#cases + 1] = { name = 'as a method', inputs = { { 2, 3, gen = options.gen } }, grad = true,
        call = function(_, x) return x[name](x, -1, { keepdim = true }) end,
        ref = function(x) return array.fold(x, { 1 }, true, f) end }
    if options.whole then
        cases[#cases + 1] = { name = 'i32', only = 'f32', dtype = 'i32', exact = true,
            inputs = { { 4, 5, dtype = 'i32', gen = 'int:50' } }, call = calls(name, attrs({ 1 })),
            ref = function(x) return array.fold(x, { 1 }, false, f) end }
    end
    return { cases = cases, bad = {
        { inputs = { { 3, 4 } }, error = name .. ': dim 3 is out of range for %(3, 4%)',
            call = calls(name, attrs { 2 }) },
        { inputs = { { 3, 4 } }, error = name .. ': dim 2 is given twice', call = calls(name, attrs { 1, 1 }) },
        { inputs = { { 3, dtype = 'u8', gen = 'mask' } }, error = name .. ': .*u8', call = calls(name, attrs {}) },
        name == 'sum' and { inputs = { { 3, 40, dtype = 'i32', gen = 'int:1' } },
            error = 'sum: 3000000000 at element 0 is outside the numbers of i32', call = function(wane, x)
                return wane.eval(record('sum', { x + 1000000000 }, attrs { 0 }))
            end } or nil,
        name == 'sum' and { inputs = { { 130, 400, dtype = 'i32', gen = 'int:1' } },
            error = 'sum: 5200000000 at element 0 is outside the numbers of i32', call = function(wane, x)
                return wane.eval(record('sum', { x + 100000 }, attrs {}))
            end } or nil,
    } }
end

local function greatest(list) return math.max(unpack(list)) end
local function least(list) return math.min(unpack(list)) end

local sum = reduction('sum', array.sum, { whole = true })
sum.cases[#sum.cases + 1] = { name = 'of nothing', inputs = { { 0, 3 } }, exact = true, grad = true,
    call = function(_, x) return x:sum(1) end, ref = function() return { shape = { 3 }, 0, 0, 0 } end }
-- Sums a column of n rows with the bits of the kernel: rows are split into the greatest power of two of parts with 1024
-- parts <= n, 1 at least and 64 at most, which are added in order.
local function sum_of_parts(list)
    local parts, total = 1, 0
    while parts < 64 and parts * 2048 <= #list do parts = parts * 2 end
    for c = 0, parts - 1 do
        local part = 0
        for k = math.floor(#list * c / parts) + 1, math.floor(#list * (c + 1) / parts) do part = part + list[k] end
        total = total + part
    end
    return total
end
for _, s in ipairs {
    { { 5001, 37 }, { 0 } }, { { 2, 2050, 40 }, { 1 } }, { { 2047, 33 }, { 0 } }, { { 64, 2, 33, 17 }, { 0, 2 } },
} do
    sum.cases[#sum.cases + 1] = { name = 'the order of parts, ' .. s[1][1], inputs = { s[1] }, exact = true,
        call = calls('sum', attrs(s[2])),
        ref = function(x) return array.fold(x, s[2], false, sum_of_parts) end }
end

-- 700 numbers, two of them NaN, neither the first nor in the last stretch of a kernel's lanes.
local with_nan = { 700, values = {} }
for k = 1, 700 do with_nan.values[k] = (k == 600 or k == 650) and 0 / 0 or k % 37 end

local function extreme(name, f)
    local r = reduction(name, f, { gen = 'distinct', exact = true, whole = true })
    r.cases[#r.cases + 1] = { name = 'NaN goes through', inputs = { with_nan }, call = calls(name, attrs {}),
        check = function(v) return v[1] ~= v[1], 'expected NaN, got ' .. tostring(v[1]) end }
    r.cases[#r.cases + 1] = { name = 'long rows, none of them whole', inputs = { { 5, 777 } }, exact = true,
        call = calls(name, attrs { 1 }),
        ref = function(x) return array.fold(x, { 1 }, false, f) end }
    r.bad[#r.bad + 1] = { inputs = { { 3, 0 } }, error = name .. ': %(3, 0%) has no elements',
        call = calls(name, attrs { 1 }) }
    return r
end

-- Returns the reference of extreme_grad, in which ties share: each winner of a row gets dy / how many winners there
-- are.
local function extreme_grad_ref(dims)
    return function(dy, x, y)
        local kept = array.fold(x, dims, true, function(list) return #list end).shape
        local top, up = array.reshape(y, kept), array.reshape(dy, kept)
        local won = array.map(function(v, m) return v == m and 1 or 0 end, x, top)
        local ties = array.fold(won, dims, true, array.sum)
        return array.map(function(w, g, n) return w == 1 and g / n or 0 end, won, up, ties)
    end
end

-- Makes a case of extreme_grad; x, y: shapes, with their values.
local function extreme_grad(name, dims, keep, x, y)
    return { name = name, inputs = { { unpack(y) }, x, y },
        grad = { true, false, false }, call = calls('extreme_grad', attrs(dims, keep)),
        ref = extreme_grad_ref(dims) }
end

local function first_greatest(list)
    local at = 1
    for k, v in ipairs(list) do
        if v > list[at] then at = k end
    end
    return at - 1
end

local function argmax_case(name, input, dim, keep)
    return { name = name, inputs = { input }, dtype = 'i32', exact = true, call = calls('argmax', attrs({ dim }, keep)),
        ref = function(x) return array.fold(x, { dim }, keep, first_greatest) end }
end

local function expand_case(name, from, to)
    return { name = name, inputs = { from }, grad = true, exact = true, call = calls('expand', { i = to }),
        ref = function(x) return array.build(to, function(index) return array.at(x, index) end) end }
end

-- ---- softmax -------------------------------------------------------------------------------------------------------

local function log_softmax(list)
    local top, total, out = math.max(unpack(list)), 0, {}
    for _, v in ipairs(list) do total = total + math.exp(v - top) end
    for k, v in ipairs(list) do out[k] = v - top - math.log(total) end
    return out
end

local function softmax(list)
    local out = log_softmax(list)
    for k, v in ipairs(out) do out[k] = math.exp(v) end
    return out
end

local function softmax_grad(dy, y)
    local dot, out = 0, {}
    for k, v in ipairs(dy) do dot = dot + v * y[k] end
    for k, v in ipairs(dy) do out[k] = y[k] * (v - dot) end
    return out
end

local function log_softmax_grad(dy, y)
    local total, out = array.sum(dy), {}
    for k, v in ipairs(dy) do out[k] = v - math.exp(y[k]) * total end
    return out
end

-- A few long rows of columns: several blocks of columns, the last of which ends within a vector.
local WIDE = { 5, 2130 }

local function rows(name, f)
    local function case(what, input, dim)
        return { name = what, inputs = { input }, grad = input ~= WIDE, call = calls(name, { i = { dim } }),
            ref = function(x) return array.along(dim, f, x) end }
    end
    return {
        cases = {
            case('the last dim', { 3, 5 }, 1),
            case('the first dim', { 3, 5 }, 0),
            case('the middle dim', { 2, 3, 4 }, 1),
            case('a vector', { 6 }, 0),
            case('one element a row', { 4, 1 }, 1),
            case('no rows', { 0, 4 }, 1),
            case('no columns', { 3, 0 }, 1),
            case('past a vector', { 3, 67 }, 1),
            case('wide columns', WIDE, 0),
            { name = 'large numbers', inputs = { { 2, 3, values = { 1000, 1001, 999, -1000, -1000, -1002 } } },
                call = function(_, x) return x[name](x, -1) end, ref = function(x) return array.along(1, f, x) end },
        },
        bad = {
            { inputs = { { 3, dtype = 'i32', gen = 'int:4' } }, error = name .. ': .*f32' },
        },
    }
end

local function row_grads(name, f)
    local function case(what, dim, ...)
        return { name = what, inputs = { { ... }, { gen = 'positive', ... } }, grad = (...) ~= WIDE[1],
            call = calls(name, { i = { dim } }),
            ref = function(dy, y) return array.along(dim, f, dy, y) end }
    end
    return {
        cases = { case('the last dim', 1, 3, 5), case('the first dim', 0, 3, 5), case('past a vector', 1, 2, 67),
            case('wide columns', 0, unpack(WIDE)) },
        bad = { { inputs = { { 3, 5 }, { 5, 3 } }, error = name .. ': input 2 is %(5, 3%), expected %(3, 5%)' } },
    }
end

return {
    sum = sum,
    mean = reduction('mean', function(list) return array.sum(list) / #list end, {}),
    max = extreme('max', greatest),
    min = extreme('min', least),
    extreme_grad = {
        cases = {
            extreme_grad('one winner a row', { 1 }, false, { 2, 3, values = { 1, 3, 2, 6, 5, 4 } },
                { 2, values = { 3, 6 } }),
            extreme_grad('ties share', { 1 }, true, { 2, 3, values = { 3, 3, 1, 2, 2, 2 } },
                { 2, 1, values = { 3, 2 } }),
            extreme_grad('of all', {}, false, { 2, 2, values = { 5, 1, 5, 0 } }, { values = { 5 } }),
            extreme_grad('down columns', { 0 }, false, { 3, 2, values = { 1, 2, 3, 0, 3, 2 } },
                { 2, values = { 3, 2 } }),
            extreme_grad('ties in several runs', { 0, 2 }, false,
                { 2, 2, 3, values = { 3, 1, 3, 2, 2, 0, 0, 3, 1, 1, 2, 2 } }, { 2, values = { 3, 2 } }),
        },
        bad = {
            { inputs = { { 3 }, { 2, 3 }, { 2 } }, error = 'extreme_grad: input 1 is %(3%), expected %(2%)' },
        },
    },
    argmax = {
        cases = {
            argmax_case('the last dim', { 3, 5, gen = 'distinct' }, 1),
            argmax_case('the first dim', { 3, 5, gen = 'distinct' }, 0),
            argmax_case('the middle dim, kept', { 2, 3, 4, gen = 'distinct' }, 1, true),
            argmax_case('the first of equals', { 2, 4, values = { 1, 7, 7, 0, 2, 2, 2, 2 } }, 1),
            argmax_case('long rows', { 3, 1537, gen = 'distinct' }, 1),
            argmax_case('wide columns', { 9, 1100, gen = 'distinct' }, 0),
            argmax_case('columns by four parts', { 5001, 37 }, 0),
            argmax_case('equals in several parts', { 2, 4100, 33, dtype = 'i32', gen = 'int:30' }, 1),
            argmax_case('equals far apart', { 2, 1200, dtype = 'i32', gen = 'int:30' }, 1),
            { name = 'NaN counts as greatest', inputs = { with_nan }, dtype = 'i32', exact = true,
                call = calls('argmax', attrs { 0 }),
                ref = function() return { shape = {}, 599 } end },
            argmax_case('i32', { 6, dtype = 'i32', gen = 'int:40' }, 0),
            { name = 'as a method', inputs = { { 3, 5, gen = 'distinct' } }, dtype = 'i32', exact = true,
                call = function(_, x) return x:argmax(-1) end,
                ref = function(x) return array.fold(x, { 1 }, false, first_greatest) end },
        },
        bad = {
            { inputs = { { 3, 0 } }, error = 'argmax: dim 2 of %(3, 0%) is 0', call = calls('argmax', attrs { 1 }) },
        },
    },
    expand = {
        cases = {
            expand_case('a number', {}, { 2, 3 }),
            expand_case('a column', { 3, 1 }, { 3, 4 }),
            expand_case('new dims and old', { 3, 1 }, { 2, 3, 4 }),
            expand_case('nothing to do', { 2, 3 }, { 2, 3 }),
            expand_case('to no elements', { 1 }, { 0 }),
        },
        bad = {
            { inputs = { { 3 } }, error = 'expand: %(3%) does not stretch to %(4%)',
                call = calls('expand', { i = { 4 } }) },
            { inputs = { { 3, 1 } }, error = 'expand: .* does not stretch to %(4%)',
                call = calls('expand', { i = { 4 } }) },
        },
    },
    softmax = rows('softmax', softmax),
    log_softmax = rows('log_softmax', log_softmax),
    softmax_grad = row_grads('softmax_grad', softmax_grad),
    log_softmax_grad = row_grads('log_softmax_grad', log_softmax_grad),
}
