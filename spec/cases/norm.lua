--- Cases of layer norm and its pieces. The gradient of layer norm flows through mean and rstd, though only one node of
-- the backward says so; so the cases of layernorm compute both from x.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local EPS = 1e-5

local function mean(list) return array.sum(list) / #list end

local function rstd(list)
    local m, s = mean(list), 0
    for _, v in ipairs(list) do s = s + (v - m) ^ 2 end
    return 1 / math.sqrt(s / #list + EPS)
end

local function last(x) return { #x.shape - 1 } end
local function row_mean(x) return array.fold(x, last(x), false, mean) end
local function row_rstd(x) return array.fold(x, last(x), false, rstd) end
local function column(a) -- (...) as (..., 1)
    local shape = { unpack(a.shape) }
    shape[#shape + 1] = 1
    return array.reshape(a, shape)
end

local function normalised(x, m, r)
    return array.map(function(v, c, s) return (v - c) * s end, x, column(m), column(r))
end

-- Records the mean and the rstd of the rows of a tensor.
local function statistics(x)
    local m = record('row_mean', { x })
    return m, record('row_rstd', { x, m }, { f = { EPS } })
end

local function layernorm(_, x, w, b)
    local m, r = statistics(x)
    return record('layernorm', { x, m, r, w, b })
end

local function layernorm_ref(x, w, b)
    local y = normalised(x, row_mean(x), row_rstd(x))
    return array.map(function(v, s, c) return v * s + c end, y, w, b)
end

local function whole(name, ...)
    local width = select(-1, ...)
    return { name = name, inputs = { { ... }, { width }, { width } }, grad = true, call = layernorm,
        ref = layernorm_ref }
end

-- Computes dx = rstd (g - mean g - xhat mean(g xhat)), g = dy w.
local function dx_ref(dy, x, m, r, w)
    local hat = normalised(x, m, r)
    local g = array.map(function(a, b) return a * b end, dy, w)
    local mean_g = column(array.fold(g, last(g), false, mean))
    local dot = array.map(function(a, b) return a * b end, g, hat)
    local mean_dot = column(array.fold(dot, last(dot), false, mean))
    return array.map(function(a, h, p, q, s) return s * (a - p - h * q) end, g, hat, mean_g, mean_dot, column(r))
end

local function dw_ref(dy, x, m, r)
    local width = x.shape[#x.shape]
    local out = array.zeros({ width })
    for k, v in ipairs(array.map(function(a, h) return a * h end, dy, normalised(x, m, r))) do
        local c = (k - 1) % width + 1
        out[c] = out[c] + v
    end
    return out
end

-- Returns the gradient of the weight for 2048 to 4095 rows with the bits of the kernel, which adds two halves of the
-- rows.
local function dw_of_halves(dy, x, m, r)
    local width, terms = x.shape[2], array.map(function(a, h) return a * h end, dy, normalised(x, m, r))
    local half = math.floor(x.shape[1] / 2)
    return array.build({ width }, function(_, c)
        local sum = { 0, 0 }
        for row = 0, x.shape[1] - 1 do
            local k = row < half and 1 or 2
            sum[k] = sum[k] + terms[row * width + c]
        end
        return sum[1] + sum[2]
    end)
end

local positive = 'positive'

return {
    row_mean = {
        cases = {
            { name = 'rows', inputs = { { 3, 5 } }, grad = true, ref = row_mean, call = calls('row_mean') },
            { name = 'batches', inputs = { { 2, 3, 67 } }, grad = true, ref = row_mean, call = calls('row_mean') },
            { name = 'one row', inputs = { { 4 } }, grad = true, ref = row_mean, call = calls('row_mean') },
        },
        bad = { { inputs = { {} }, error = 'row_mean: input 1 is %(%), expected a last dim' } },
    },
    row_rstd = {
        cases = {
            { name = 'rows', inputs = { { 3, 5 } }, grad = true, ref = row_rstd, call = function(_, x)
                return record('row_rstd', { x, record('row_mean', { x }) }, { f = { EPS } })
            end },
            { name = 'batches', inputs = { { 2, 3, 67 } }, grad = true, ref = row_rstd, call = function(_, x)
                return record('row_rstd', { x, record('row_mean', { x }) }, { f = { EPS } })
            end },
            { name = 'equal elements', inputs = { { 1, 4, values = { 2, 2, 2, 2 } } }, ref = row_rstd,
                tol = { f32 = 1e-3, f64 = 1e-9 }, call = function(_, x)
                    return record('row_rstd', { x, record('row_mean', { x }) }, { f = { EPS } })
                end },
        },
        bad = {
            { inputs = { { 3, 5 }, { 5 } }, error = 'row_rstd: the mean is %(5%), expected %(3%)',
                call = calls('row_rstd', { f = { EPS } }) },
        },
    },
    layernorm = {
        cases = { whole('rows', 3, 5), whole('batches', 2, 3, 4), whole('one row', 6), whole('no rows', 0, 4),
            whole('past a vector', 3, 67) },
        bad = {
            { inputs = { { 3, 5 }, { 4 }, { 5 } }, error = 'layernorm: the weight is %(4%), expected %(5%)' },
            { inputs = { { 3, 5 }, { 5 }, { 3 } }, error = 'layernorm: the bias is %(3%), expected %(5%)' },
        },
    },
    layernorm_dx = {
        cases = {
            { name = 'rows', inputs = { { 3, 5 }, { 3, 5 }, { 3 }, { 3, gen = positive }, { 5 } }, ref = dx_ref,
                grad = { true, false, false, false, true }, call = calls('layernorm_dx') },
            { name = 'batches', inputs = { { 2, 3, 67 }, { 2, 3, 67 }, { 2, 3 }, { 2, 3, gen = positive }, { 67 } },
                ref = dx_ref, call = calls('layernorm_dx') },
            { name = 'of a norm', inputs = { { 3, 5 }, { 3, 5 }, { 5 } }, grad = true, composed = true,
                ref = function(dy, x, w) return dx_ref(dy, x, row_mean(x), row_rstd(x), w) end,
                call = function(_, dy, x, w)
                    local m, r = statistics(x)
                    return record('layernorm_dx', { dy, x, m, r, w })
                end },
        },
        bad = {
            { inputs = { { 3, 5 }, { 5, 3 }, { 5 }, { 5 }, { 3 } }, error = 'layernorm_dx: dy is %(3, 5%)' },
        },
    },
    layernorm_dw = {
        cases = {
            { name = 'rows', inputs = { { 3, 5 }, { 3, 5 }, { 3 }, { 3, gen = positive } }, ref = dw_ref,
                grad = { true, false, false, false }, call = calls('layernorm_dw') },
            { name = 'many rows', inputs = { { 2, 130, 7 }, { 2, 130, 7 }, { 2, 130 }, { 2, 130, gen = positive } },
                ref = dw_ref, tol = { f32 = 1e-4, f64 = 1e-12 }, call = calls('layernorm_dw') },
            { name = 'the order of parts', inputs = { { 2301, 19 }, { 2301, 19 }, { 2301 }, { 2301, gen = positive } },
                ref = dw_of_halves, exact = true, only = 'f64', call = calls('layernorm_dw') },
            { name = 'of a norm', inputs = { { 3, 5 }, { 3, 5 } }, grad = true, composed = true,
                ref = function(dy, x) return dw_ref(dy, x, row_mean(x), row_rstd(x)) end,
                call = function(_, dy, x) return record('layernorm_dw', { dy, x, statistics(x) }) end },
        },
        bad = {
            { inputs = { { 3, 5 }, { 3, 5 }, { 3 }, { 4 } },
                error = 'layernorm_dw: the rstd is %(4%), expected %(3%)' },
        },
    },
}
