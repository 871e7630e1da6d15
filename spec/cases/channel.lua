--- Cases of norms over channels: batch norm (groups = 0) and group norm. A statistic is of all pixels of a channel, or
-- of the channels of a group in one image; gradients are checked of mean and rstd as inputs, and through them.
local array = require 'spec.cases.array'
local calls = array.calls

local norms = array.norms
local EPS, stat_shape, mean_of, rstd_of = norms.EPS, norms.stat_shape, norms.mean_of, norms.rstd_of
local norm, sums_of, dx_of = norms.norm, norms.sums_of, norms.dx_of

local function record(name, groups, list)
    return array.record(name, list, { i = { groups }, f = { EPS } })
end

-- ---- cases -----------------------------------------------------------------------------------------------------

local function positive(dims) return array.input(dims, { gen = 'positive' }) end

-- The images that all ops are tried with: { name, groups, shape, whether gradients are checked }.
local images = {
    { 'batch', 0, { 2, 3, 2, 3 }, true },
    { 'groups', 2, { 2, 4, 1, 3 }, true },
    { 'batch, past a vector', 0, { 2, 19, 3, 1 } },
    { 'batch, one channel', 0, { 3, 1, 2, 2 } },
    { 'batch, one pixel', 0, { 5, 4, 1, 1 } },
    { 'a group a channel', 3, { 2, 3, 2, 2 } },
    { 'one group, past a vector', 1, { 2, 18, 2, 1 } },
}

-- Returns the cases of an op over all images: make(groups, shape, statistic's shape) returns { inputs, call, ref }.
local function over(make)
    local out = {}
    for i, row in ipairs(images) do
        local case = make(row[2], row[3], stat_shape(row[3], row[2]))
        case.name, case.grad = row[1], row[4]
        out[i] = case
    end
    return out
end

local function statistics(x, groups)
    local m = record('channel_mean', groups, { x })
    return m, record('channel_rstd', groups, { x, m })
end

local function given(name, groups)
    return function(_, ...) return record(name, groups, { ... }) end
end

-- Returns the sums over 2048 to 4095 pixels in the order of the kernel, which adds two halves of the pixels.
local function halves(x, term)
    local n, c, places = x.shape[1], x.shape[2], x.shape[3] * x.shape[4]
    local half = math.floor(n * places / 2)
    return array.build({ c }, function(_, channel)
        local sum = { 0, 0 }
        for pixel = 0, n * places - 1 do
            local part = pixel < half and 1 or 2
            local k = (math.floor(pixel / places) * c + channel - 1) * places + pixel % places + 1
            sum[part] = sum[part] + term(k, channel)
        end
        return sum[1] + sum[2]
    end)
end

local long = { 2, 2, 33, 32 } -- 2112 pixels
local PIXELS = 2112

local function order_of_mean(x)
    local sum = halves(x, function(k) return x[k] end)
    return array.build({ 2 }, function(_, k) return sum[k] / PIXELS end)
end

local function order_of_rstd(x, m)
    local sum = halves(x, function(k, channel) return (x[k] - m[channel]) * (x[k] - m[channel]) end)
    return array.build({ 2 }, function(_, k) return 1 / math.sqrt(sum[k] / PIXELS + EPS) end)
end

local function order_of_sums(dy, x, m, r)
    local s0 = halves(x, function(k, channel) return dy[k] * ((x[k] - m[channel]) * r[channel]) end)
    local s1 = halves(x, function(k) return dy[k] end)
    return { shape = { 2, 2 }, s0[1], s0[2], s1[1], s1[2] }
end

local function exact(name, inputs, ref)
    return { name = 'the order of parts', inputs = inputs, call = given(name, 0), ref = ref, exact = true,
        only = 'f64' }
end

-- A block of channels, and one of the passes of a norm, has fewer channels than these.
local wide, wide_stat = { 1, 2051, 1, 2 }, { 2051 }

local function own(name, groups, shape)
    return { name = name, inputs = { shape, { shape[2] }, { shape[2] } }, grad = true, composed = true,
        call = function(_, x, w, b)
            local m, r = statistics(x, groups)
            return record('batch_norm', groups, { x, m, r, w, b })
        end,
        ref = function(x, w, b)
            local m = mean_of(x, groups)
            return norm(x, m, rstd_of(x, m, groups), w, b, groups)
        end }
end

local function own_dx(name, groups, shape, grad)
    return { name = name, inputs = { shape, shape, { shape[2] } }, grad = grad, composed = true,
        call = function(_, dy, x, w)
            local m, r = statistics(x, groups)
            return record('batch_norm_dx', groups, { dy, x, m, r, w, record('batch_norm_sums', groups,
                { dy, x, m, r }) })
        end,
        ref = function(dy, x, w)
            local m = mean_of(x, groups)
            local r = rstd_of(x, m, groups)
            return dx_of({ dy, x, m, r, w, sums_of(dy, x, m, r, groups) }, groups)
        end }
end

local norm_cases = over(function(groups, shape, stat)
    return { inputs = { shape, stat, positive(stat), { shape[2] }, { shape[2] } },
        call = given('batch_norm', groups), ref = function(x, m, r, w, b) return norm(x, m, r, w, b, groups) end }
end)

local dx_cases = over(function(groups, shape, stat)
    local sums = groups == 0 and { 2, shape[2] } or { 2, shape[1], shape[2] }
    return { inputs = { shape, shape, stat, positive(stat), { shape[2] }, sums },
        call = given('batch_norm_dx', groups),
        ref = function(...) return dx_of({ ... }, groups) end }
end)

-- ---- refusals --------------------------------------------------------------------------------------------------

local x, c = { 2, 4, 2, 2 }, { 4 }

-- Returns the refusals of an op: of its image (input `at`), then of each of its other inputs as { place, error }.
local function refused(name, inputs, at, others)
    local out = {}
    local function add(place, shape, error, groups)
        local list = {}
        for i, input in ipairs(inputs) do list[i] = i == place and shape or input end
        out[#out + 1] = { inputs = list, call = given(name, groups or 0), error = name .. ': ' .. error }
    end
    add(at, { 4, 2, 2 }, 'the input is %(4, 2, 2%), expected 4 dims.*unsqueeze%(1%)')
    add(at, { 4, 2 }, 'the input is %(4, 2%), expected 4 dims: [^;]*columns%)')
    add(at, x, '4 channels do not divide into 3 groups; expected a multiple', 3)
    if name:find 'channel' then add(at, { 0, 4, 2, 2 }, 'the input %(0, 4, 2, 2%) has no elements') end
    add(at, { 2, 4, 2, 2, dtype = 'i32', gen = 'int:5' }, '.*i32')
    for _, other in ipairs(others) do add(other[1], { 3 }, other[2] .. ' is %(3%), expected ' .. other[3]) end
    return out
end

local stats = function(at) return { at, 'the mean', '%(4%)' }, { at + 1, 'the rstd', '%(4%)' } end
local mean_at, rstd_at = stats(2)
local mean_behind, rstd_behind = stats(3)

return {
    channel_mean = {
        cases = array.joined(over(function(groups, shape)
            return { inputs = { shape }, call = given('channel_mean', groups),
                ref = function(v) return mean_of(v, groups) end }
        end), { exact('channel_mean', { long }, order_of_mean) }),
        bad = refused('channel_mean', { x }, 1, {}),
    },
    channel_rstd = {
        cases = array.joined(over(function(groups, shape, stat)
            return { inputs = { shape, stat }, call = given('channel_rstd', groups),
                ref = function(v, m) return rstd_of(v, m, groups) end }
        end), { exact('channel_rstd', { long, { 2 } }, order_of_rstd) }),
        bad = array.joined(refused('channel_rstd', { x, c }, 1, { mean_at }), {
            { inputs = { x, c }, error = 'channel_rstd: eps %-1 given, expected 0 or more',
                call = calls('channel_rstd', { i = { 0 }, f = { -1 } }) },
        }),
    },
    batch_norm = {
        cases = array.joined(norm_cases, { own('of its own statistics', 0, { 2, 3, 2, 3 }),
            own('of its own groups', 2, { 2, 4, 1, 2 }),
            { name = 'over its input', inputs = { x, c, positive(c), c, c }, composed = true,
                call = function(_, v, m, r, w, b) return record('batch_norm', 0, { v * 2, m, r, w, b }) end,
                ref = function(v, m, r, w, b)
                    return norm(array.map(function(e) return e * 2 end, v), m, r, w, b, 0)
                end },
            { name = 'more channels than a pass has', call = given('batch_norm', 0),
                inputs = { wide, wide_stat, positive(wide_stat), wide_stat, wide_stat },
                ref = function(v, m, r, w, b) return norm(v, m, r, w, b, 0) end } }),
        bad = refused('batch_norm', { x, c, c, c, c }, 1, { mean_at, rstd_at, { 4, 'the weight', '%(4%)' },
            { 5, 'the bias', '%(4%)' } }),
    },
    batch_norm_sums = {
        cases = array.joined(over(function(groups, shape, stat)
            return { inputs = { shape, shape, stat, positive(stat) }, call = given('batch_norm_sums', groups),
                ref = function(dy, v, m, r) return sums_of(dy, v, m, r, groups) end }
        end), { exact('batch_norm_sums', { long, long, { 2 }, { 2, gen = 'positive' } }, order_of_sums),
            { name = 'more channels than a block has', call = given('batch_norm_sums', 0),
                inputs = { wide, wide, wide_stat, positive(wide_stat) },
                ref = function(dy, v, m, r) return sums_of(dy, v, m, r, 0) end } }),
        bad = refused('batch_norm_sums', { x, x, c, c }, 2, { { 1, 'dy', '%(2, 4, 2, 2%)' }, mean_behind,
            rstd_behind }),
    },
    batch_norm_dx = {
        cases = array.joined(dx_cases, { own_dx('of a norm', 0, { 2, 3, 2, 2 }, true),
            own_dx('of a norm of groups', 2, { 2, 4, 1, 2 }),
            { name = 'over dy', inputs = { x, x, c, positive(c), c, { 2, 4 } }, composed = true,
                call = function(_, dy, ...) return record('batch_norm_dx', 0, { dy * 2, ... }) end,
                ref = function(dy, ...)
                    return dx_of({ array.map(function(e) return e * 2 end, dy), ... }, 0)
                end } }),
        bad = refused('batch_norm_dx', { x, x, c, c, c, { 2, 4 } }, 2, { { 1, 'dy', '%(2, 4, 2, 2%)' }, mean_behind,
            rstd_behind, { 5, 'the weight', '%(4%)' }, { 6, 'the sums', '%(2, 4%)' } }),
    },
}
