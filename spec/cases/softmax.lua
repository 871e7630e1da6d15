--- Cases of softmax and its logarithm along a dim, of their gradients, and of the loss of labels.
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

local IGNORE = -100

local function counted(labels)
    local n = 0
    for k = 1, array.count(labels.shape) do
        if labels[k] ~= IGNORE then n = n + 1 end
    end
    return n
end

-- Computes the mean with the sum that the op defines: up to 64 parts of 512 labels or more, each 16 lanes; then lanes
-- and parts in order.
local function nll_ref(logp, labels)
    local sum, classes, n = 0, logp.shape[#logp.shape], array.count(labels.shape)
    local parts = math.max(1, math.min(64, math.floor(n / 512)))
    for c = 0, parts - 1 do
        local first, stop = math.floor(n * c / parts), math.floor(n * (c + 1) / parts)
        local lane, part = {}, 0
        for j = 0, 15 do lane[j] = 0 end
        for i = first, stop - 1 do
            local label, j = labels[i + 1], (i - first) % 16
            lane[j] = lane[j] + (label == IGNORE and 0 or logp[i * classes + label + 1])
        end
        for j = 0, 15 do part = part + lane[j] end
        sum = sum + part
    end
    return { shape = {}, (0 - sum) / counted(labels) } -- 0/0, when none counts
end

local function nll(name, logp, labels)
    return { name = name, inputs = { logp, labels }, grad = { true, false }, ref = nll_ref, exact = true,
        call = function(_, a, b) return record('nll', { a, b }, { i = { IGNORE } }) end }
end

local function nll_grad(name, labels, classes)
    return { name = name, inputs = { {}, labels }, grad = { true, false },
        call = function(_, dy, b) return record('nll_grad', { dy, b }, { i = { IGNORE, classes } }) end,
        ref = function(dy, b)
            local shape, n = { unpack(b.shape) }, counted(b)
            shape[#shape + 1] = classes
            return array.build(shape, function(_, k)
                local row, class = math.floor((k - 1) / classes), (k - 1) % classes
                return b[row + 1] == class and -dy[1] / n or 0
            end)
        end }
end

local function labels(values, ...) return { dtype = 'i32', values = values, ... } end

-- Makes labels of n rows of three classes, every seventh ignored; `wrong`: k = the k-th label instead.
local function many_labels(n, wrong)
    local list = {}
    for k = 1, n do list[k] = k % 7 == 0 and IGNORE or k % 3 end
    for k, label in pairs(wrong or {}) do list[k] = label end
    return labels(list, n)
end

local SOME = {}
for k = 1, 19 do SOME[k] = k % 5 == 0 and IGNORE or k * 8 % 21 end

-- Forms of a loss beside the plain mean: { form, smoothing, has weights }.
local FORMS = { { 1, 0 }, { 2, 0 }, { 0, 0, true }, { 1, 0, true }, { 2, 0.25 }, { 0, 0.25, true }, { 2, 1, true } }

-- Makes cases of an op in each form, in f32 and f64. inputs_of(form) lists the inputs but the weights.
local function in_forms(name, dims, inputs_of, ref)
    local list = {}
    for k, form in ipairs(FORMS) do
        local weight = form[3] and { dims[2], gen = 'positive' } or nil
        local inputs, at = inputs_of(form), { n = 3, i = { IGNORE, name == 'nll_grad' and dims[2] or 0, form[1] },
            f = { form[2] } }
        inputs[#inputs + 1] = weight
        for _, float in ipairs { 'f32', 'f64' } do
            list[2 * k - (float == 'f32' and 1 or 0)] = { name = ('form %d, %s'):format(k, float), inputs = inputs,
                only = float, grad = { true, false, weight and false }, tol = { f32 = 2e-6 },
                call = function(_, ...) return record(name, { ... }, at) end,
                ref = function(a, b, w) return ref(form, a, b, w, dims) end }
        end
    end
    return list
end

-- Returns what each log-probability counts with in its row, and what the sum of rows is divided by.
local function shares(form, b, w, dims)
    local of, divisor = {}, 0
    for r = 1, dims[1] do
        local label = b[r]
        if label ~= IGNORE then divisor = divisor + (w and w[label + 1] or 1) end
        for c = 1, dims[2] do
            local v = form[2] / dims[2] + (label == c - 1 and 1 - form[2] or 0)
            of[(r - 1) * dims[2] + c] = label == IGNORE and 0 or v * (w and w[c] or 1)
        end
    end
    return of, form[1] == 0 and divisor or 1
end

local function nll_of_form(form, logp, b, w, dims)
    local of, divisor = shares(form, b, w, dims)
    local each, sum = { shape = { dims[1] } }, 0
    for r = 1, dims[1] do
        each[r] = 0
        for c = 1, dims[2] do
            local k = (r - 1) * dims[2] + c
            each[r] = each[r] - of[k] * logp[k]
        end
        sum = sum + each[r]
    end
    return form[1] == 2 and each or { shape = {}, sum / divisor }
end

local function nll_grad_of_form(form, dy, b, w, dims)
    local of, divisor = shares(form, b, w, dims)
    return array.build(dims, function(_, k)
        return -dy[form[1] == 2 and math.floor((k - 1) / dims[2]) + 1 or 1] * of[k] / divisor
    end)
end

-- Makes a case of n rows without a gradient. Some n give parts that 16 lanes do not divide, and more rows than 64 parts
-- of the least size (512).
local function many(name, n)
    local case = nll(name, { n, 3 }, many_labels(n))
    case.grad = nil
    return case
end

local none = nll('none counts', { 2, 3 }, labels({ IGNORE, IGNORE }, 2))
none.grad = nil
none.ref = nil
none.check = function(r) return #r.shape == 0 and r[1] ~= r[1], 'expected NaN, got ' .. tostring(r[1]) end

local nll_cases = in_forms('nll', { 19, 21 }, function() return { { 19, 21 }, labels(SOME, 19) } end, nll_of_form)
local grad_cases = in_forms('nll_grad', { 19, 21 }, function(form)
    return { form[1] == 2 and { 19 } or {}, labels(SOME, 19) }
end, nll_grad_of_form)
local function with(list, more)
    for _, case in ipairs(more) do list[#list + 1] = case end
    return list
end

return {
    softmax = rows('softmax', softmax),
    log_softmax = rows('log_softmax', log_softmax),
    softmax_grad = row_grads('softmax_grad', softmax_grad),
    log_softmax_grad = row_grads('log_softmax_grad', log_softmax_grad),
    nll = {
        cases = with({
            nll('rows', { 3, 5 }, labels({ 0, 4, 2 }, 3)),
            nll('some ignored', { 2, 3, 4 }, labels({ 3, IGNORE, 0, 1, IGNORE, 2 }, 2, 3)),
            nll('one row', { 4 }, labels { 2 }), many('some parts', 8205), many('all parts', 64 * 512 + 1111), none,
        }, nll_cases),
        bad = {
            { inputs = { { 2, 5 }, labels({ 0, 1, 2 }, 3) }, error = 'nll: .*expected labels %(2%)' },
            { inputs = { { 2, 5 }, { 2 } }, error = 'nll: input 2 .*i32' },
            { inputs = { { 2, 5 }, labels({ 0, 1 }, 2), { 4 } }, error = 'nll: the weights are %(4%).*%(5%)',
                call = function(_, ...) return record('nll', { ... }, { i = { IGNORE } }) end },
            { inputs = { { 2, 5 }, labels({ 0, 1 }, 2) }, error = 'nll: form 3 .*smoothing 0',
                call = function(_, ...) return record('nll', { ... }, { n = 3, i = { IGNORE, 0, 3 } }) end },
            { inputs = { { 3, 5 }, labels({ 0, -1, 5 }, 3) },
                error = 'cross_entropy: label %-1 at element 1 is outside 0..4 and is not ignore_index %(%-100%)' },
            { inputs = { { 8205, 3 }, many_labels(8205, { [4000] = 3, [6001] = -2 }) },
                error = 'cross_entropy: label 3 at element 3999 is' },
        },
    },
    nll_grad = {
        cases = with({
            nll_grad('rows', labels({ 0, 4, 2 }, 3), 5),
            nll_grad('some ignored', labels({ 3, IGNORE, 0, 1, IGNORE, 2 }, 2, 3), 4),
            nll_grad('one row', labels { 2 }, 4),
        }, grad_cases),
        bad = {
            { inputs = { { 1 }, labels({ 0 }, 1) }, error = 'nll_grad: dy is %(1%), expected %(%)' },
            { inputs = { { 2 }, labels({ 0 }, 1) }, error = 'nll_grad: dy is %(2%), expected %(1%)',
                call = function(_, ...) return record('nll_grad', { ... }, { n = 3, i = { IGNORE, 5, 2 } }) end },
            { inputs = { {}, labels({ 0, 4, 9, 5 }, 4) }, error = 'cross_entropy: label 9 at element 2 is' },
        },
    },
}
