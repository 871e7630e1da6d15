--- Cases of the losses of labels by row: statistics, losses, their gradient, and the count.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local IGNORE = -100

local function labels(values, ...) return { dtype = 'i32', values = values, ... } end

local SOME = {}
for k = 1, 19 do SOME[k] = k % 5 == 0 and IGNORE or k * 8 % 21 end

-- Makes labels of n rows of three classes, every seventh ignored; `wrong`: k = the k-th label instead.
local function many_labels(n, wrong)
    local list = {}
    for k = 1, n do list[k] = k % 7 == 0 and IGNORE or k % 3 end
    for k, label in pairs(wrong or {}) do list[k] = label end
    return labels(list, n)
end

-- Returns a tensor in the dtype that a loss over x is computed in, and that dtype.
local function wide(t, x)
    local dtype = (x or t).dtype == 'f64' and 'f64' or 'f32'
    return t and t:to(dtype), dtype
end

-- Returns the maximum and the logarithm of the sum of exp(x - maximum) of row r, from 0.
local function stats_of(x, r, classes)
    local top, sum = -math.huge, 0
    for c = 1, classes do top = math.max(top, x[r * classes + c]) end
    for c = 1, classes do sum = sum + math.exp(x[r * classes + c] - top) end
    return top, math.log(sum)
end

local function row_stats(name, ...)
    return { name = name, inputs = { { ... } }, call = calls('row_stats'),
        ref = function(x)
            local shape, classes = { unpack(x.shape) }, x.shape[#x.shape]
            shape[#shape] = 2
            return array.build(shape, function(_, k)
                return (select((k - 1) % 2 + 1, stats_of(x, math.floor((k - 1) / 2), classes)))
            end)
        end }
end

-- Forms of a loss: { smoothing, has weights, is of logits }.
local FORMS = {}
for k = 0, 11 do FORMS[k + 1] = { k % 3 / 2, k % 2 == 1, k % 4 < 2 } end

-- Returns what log-probability c of row r, from 0, counts with, and what all of the row do.
local function shares(form, label, w, classes)
    local of, all = {}, 0
    for c = 0, classes - 1 do
        local v = form[1] / classes + (label == c and 1 - form[1] or 0)
        of[c] = label == IGNORE and 0 or v * (w and w[c + 1] or 1)
        all = all + of[c]
    end
    return of, all
end

-- Returns the log-probabilities of row r, from 0.
local function logs_of(form, x, r, classes)
    local out, top, log_sum = {}, 0, 0
    if form[3] then top, log_sum = stats_of(x, r, classes) end
    for c = 0, classes - 1 do out[c] = x[r * classes + c + 1] - top - log_sum end
    return out
end

local function attributes(form, classes, dtype)
    return { n = 3, i = { IGNORE, form[3] and 1 or 0, classes or 0 }, f = { form[1] }, dtype = dtype }
end

local function row_nll(name, form, dims, ids)
    local classes = dims[#dims]
    local inputs = { dims, ids, form[2] and { classes, gen = 'positive' } or nil }
    return { name = name, inputs = inputs, grad = { true, false, form[2] and false or nil }, tol = { f32 = 2e-6 },
        call = function(_, x, t, w)
            local list = { x, t }
            if form[3] then list[3] = record('row_stats', { x }) end
            list[#list + 1] = w and wide(w, x)
            return record('row_nll', list, attributes(form))
        end,
        ref = function(x, t, w)
            return array.build(t.shape, function(_, k)
                local of, logs, sum = shares(form, t[k], w, classes), logs_of(form, x, k - 1, classes), 0
                for c = 0, classes - 1 do sum = sum - of[c] * (of[c] ~= 0 and logs[c] or 0) end
                return sum
            end)
        end }
end

local function row_nll_grad(name, form, dims, ids)
    local classes, lead = dims[#dims], { unpack(dims, 1, #dims - 1) }
    local inputs = { lead, ids, dims, form[2] and { classes, gen = 'positive' } or nil }
    return { name = name, inputs = inputs, grad = { true, false, form[3], form[2] and false or nil },
        tol = { f32 = 2e-6 },
        call = function(_, dy, t, x, w)
            local list = { wide(dy), t }
            if form[3] then list[3], list[4] = x, record('row_stats', { x }) end
            list[#list + 1] = w and wide(w, x)
            return record('row_nll_grad', list, attributes(form, classes, x.dtype))
        end,
        ref = function(dy, t, x, w)
            return array.build(dims, function(_, k)
                local r, c = math.floor((k - 1) / classes), (k - 1) % classes
                local of, all = shares(form, t[r + 1], w, classes)
                local p = form[3] and math.exp(logs_of(form, x, r, classes)[c]) or 0
                return dy[r + 1] * (p * all - of[c])
            end)
        end }
end

-- Makes cases of every form, and of some shapes in the plain one.
local function losses(make)
    local list, plain = {}, { 0, false, true }
    for k, form in ipairs(FORMS) do list[k] = make('form ' .. k, form, { 19, 21 }, labels(SOME, 19)) end
    local shapes = {
        make('some dims', plain, { 2, 3, 4 }, labels({ 3, IGNORE, 0, 1, IGNORE, 2 }, 2, 3)),
        make('one row', plain, { 4 }, labels { 2 }), make('one class', plain, { 2, 1 }, labels({ 0, 0 }, 2)),
        make('no rows', plain, { 0, 4 }, labels({}, 0)), make('none counts', plain, { 1, 3 }, labels({ IGNORE }, 1)),
        make('long rows', plain, { 2, 2130 }, labels({ 2129, IGNORE }, 2)),
        make('long rows in 16 bytes', plain, { 2, 4096 }, labels({ IGNORE, 7 }, 2)),
        make('long smoothed rows', { 0.5, true, true }, { 2, 2130 }, labels({ 2129, IGNORE }, 2)),
    }
    for _, case in ipairs(shapes) do
        if case.name:find 'long' then case.grad = nil end
        list[#list + 1] = case
    end
    return list
end

-- Makes a case of the count of n labels. Some n give parts that 16 lanes do not divide, and more labels than 64 parts
-- of the least size (512).
local function row_count(name, n, is_weighted)
    return { name = name, inputs = { many_labels(n), is_weighted and { 3, gen = 'positive' } or { 1 } },
        exact = not is_weighted, call = function(_, t, w)
            return record('row_count', { t, is_weighted and wide(w) or nil },
                { n = 1, i = { IGNORE }, dtype = select(2, wide(w)) })
        end,
        ref = function(t, w)
            local sum = 0
            for k = 1, n do
                if t[k] ~= IGNORE then sum = sum + (is_weighted and w[t[k] + 1] or 1) end
            end
            return { shape = {}, sum }
        end }
end

return {
    row_stats = {
        cases = { row_stats('rows', 3, 5), row_stats('past a vector', 3, 67), row_stats('one row', 6),
            row_stats('one class', 4, 1), row_stats('no rows', 0, 4), row_stats('some dims', 2, 3, 4),
            row_stats('some stretches', 2, 700), row_stats('long rows', 2, 4500) },
        bad = {
            { inputs = { { 3, 0 } }, error = 'row_stats: %(3, 0%) f32 has no classes' },
            { inputs = { { 3, dtype = 'i32', gen = 'int:4' } }, error = 'row_stats: .*f32' },
        },
    },
    row_nll = {
        cases = losses(row_nll),
        bad = {
            { inputs = { { 2, 5 }, labels({ 0, 1, 2 }, 3) }, call = calls('row_nll', attributes { 0, false, false }),
                error = 'row_nll: .*expected labels %(2%)' },
            { inputs = { { 2, 5 }, { 2 } }, call = calls('row_nll'), error = 'row_nll: input 2 .*i32' },
            { inputs = { { 2, 5 }, labels({ 0, 1 }, 2), { 4 } }, call = calls('row_nll'),
                error = 'row_nll: the weights are %(4%) f32, expected %(5%) f32' },
            { inputs = { { 2, 5 }, labels({ 0, 1 }, 2), { 2 } },
                call = calls('row_nll', attributes { 0, false, true }),
                error = 'row_nll: the statistics are %(2%) f32, expected %(2, 2%) f32' },
            { inputs = { { 2, 5 }, labels({ 0, 1 }, 2) }, call = calls('row_nll', attributes { 0, false, true }),
                error = 'row_nll: 2 inputs given, expected 3' },
            { inputs = { { 2, 5 }, labels({ 0, 1 }, 2) }, call = calls('row_nll', attributes { 1.5 }),
                error = 'row_nll: label smoothing 1.5 given, expected 0 to 1' },
            { inputs = { { 3, 5 }, labels({ 0, -1, 5 }, 3) }, call = calls('row_nll', attributes { 0 }),
                error = 'cross_entropy: label %-1 at element 1 is outside 0..4 and is not ignore_index %(%-100%)' },
            { inputs = { { 8205, 3 }, many_labels(8205, { [4000] = 3, [6001] = -2 }) },
                call = calls('row_nll', attributes { 0 }),
                error = 'cross_entropy: label 3 at element 3999 is' },
        },
    },
    row_nll_grad = {
        cases = losses(row_nll_grad),
        bad = {
            { inputs = { { 2 }, labels({ 0 }, 1) }, call = calls('row_nll_grad', attributes({ 0 }, 5, 'f32')),
                error = 'row_nll_grad: the gradients of rows are %(2%) f32, expected %(1%) f32' },
            { inputs = { { 1 }, labels({ 0 }, 1), { 1, 4 }, { 1, 2 } },
                call = calls('row_nll_grad', attributes({ 0, false, true }, 5, 'f32')),
                error = 'row_nll_grad: the logits are %(1, 4%) f32, expected %(1, 5%) f32' },
            { inputs = { { 4 }, labels({ 0, 4, 9, 5 }, 4) },
                call = calls('row_nll_grad', attributes({ 0 }, 5, 'f32')),
                error = 'cross_entropy: label 9 at element 2 is' },
        },
    },
    row_count = {
        cases = { row_count('weights', 19, true), row_count('labels', 19), row_count('some parts', 8205),
            row_count('all parts', 64 * 512 + 1111), row_count('some parts of weights', 8205, true),
            row_count('none', 0) },
        bad = {
            { inputs = { { 2 } }, call = calls('row_count', { dtype = 'f32' }), error = 'row_count: input 1 .*i32' },
            { inputs = { labels({ 0 }, 1) }, call = calls('row_count', { dtype = 'bf16' }),
                error = 'row_count: dtype bf16 given' },
            { inputs = { labels({ 0 }, 1), { 1, 4 } }, call = calls('row_count', { dtype = 'f32' }),
                error = 'row_count: the weights are' },
        },
    },
}
