--- Cases of softmax and its logarithm along a dim, and of their gradients.
local array = require 'spec.cases.array'
local record = array.record

local function log_softmax(list)
    local top, sum, out = math.max(unpack(list)), 0, {}
    for _, v in ipairs(list) do sum = sum + math.exp(v - top) end
    for k, v in ipairs(list) do out[k] = v - top - math.log(sum) end
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
    local sum, out = array.sum(dy), {}
    for k, v in ipairs(dy) do out[k] = v - math.exp(y[k]) * sum end
    return out
end

-- A few long rows of columns: several blocks of columns, the last of which ends within a vector.
local WIDE = { 5, 2130 }

local function rows(name, f)
    local function case(what, input, dim)
        return { name = what, inputs = { input }, grad = input ~= WIDE,
            call = function(_, x) return record(name, { x }, { i = { dim } }) end,
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
            call = function(_, dy, y) return record(name, { dy, y }, { i = { dim } }) end,
            ref = function(dy, y) return array.along(dim, f, dy, y) end }
    end
    return {
        cases = { case('the last dim', 1, 3, 5), case('the first dim', 0, 3, 5), case('past a vector', 1, 2, 67),
            case('wide columns', 0, unpack(WIDE)) },
        bad = { { inputs = { { 3, 5 }, { 5, 3 } }, error = name .. ': input 2 is %(5, 3%), expected %(3, 5%)' } },
    }
end

return {
    softmax = rows('softmax', softmax),
    log_softmax = rows('log_softmax', log_softmax),
    softmax_grad = row_grads('softmax_grad', softmax_grad),
    log_softmax_grad = row_grads('log_softmax_grad', log_softmax_grad),
}
