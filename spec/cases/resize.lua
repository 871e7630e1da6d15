--- Cases of resizing. The reference spreads each element of y over the elements of x that it is made of, by the
-- formulas of runtime/base/resample.h; its transpose is the derivative.
local array = require 'spec.cases.array'
local calls = array.calls

local NEAREST, BILINEAR = 0, 1

-- Returns the attributes of a case r = { from =, to =, mode =, align =, scale = }; sizes are { rows, columns }.
local function attrs(r)
    return { i = { array.pair(unpack(r.to)), r.mode or NEAREST, r.align and 1 or 0, array.pair(unpack(r.from)) },
        f = r.scale or { 0, 0 } }
end

-- Returns low, high and the weight of high for element `at` along dim k.
local function parts(r, k, at)
    local from, to, scale = r.from[k], r.to[k], r.scale and r.scale[k] or 0
    if scale == 0 then scale = from / to end
    if (r.mode or NEAREST) == NEAREST then
        local low = math.min(math.floor(at * scale), from - 1)
        return low, low, 0
    end
    if r.align then scale = to > 1 and (from - 1) / (to - 1) or 0 end
    local place = math.max(r.align and at * scale or (at + 0.5) * scale - 0.5, 0)
    local low = math.min(math.floor(place), from - 1)
    return low, math.min(low + 1, from - 1), math.min(place - low, 1)
end

-- Calls fn(k of y, k of x, weight) for all that y is made of; y has the images and channels of `like`.
local function each(r, like, fn)
    local planes, y = like.shape[1] * like.shape[2], 0
    for plane = 0, planes - 1 do
        for p = 0, r.to[1] - 1 do
            for q = 0, r.to[2] - 1 do
                local top, bottom, v = parts(r, 1, p)
                local left, right, u = parts(r, 2, q)
                local function add(row, column, weight)
                    fn(y + 1, (plane * r.from[1] + row) * r.from[2] + column + 1, weight)
                end
                add(top, left, (1 - v) * (1 - u))
                add(top, right, (1 - v) * u)
                add(bottom, left, v * (1 - u))
                add(bottom, right, v * u)
                y = y + 1
            end
        end
    end
end

local function zeros(like, size)
    return array.zeros { like.shape[1], like.shape[2], size[1], size[2] }
end

local function upsampled(r)
    return function(x)
        local out = zeros(x, r.to)
        each(r, x, function(y, from, weight) out[y] = out[y] + weight * x[from] end)
        return out
    end
end

local function returned(r)
    return function(dy)
        local out = zeros(dy, r.from)
        each(r, dy, function(y, from, weight) out[from] = out[from] + weight * dy[y] end)
        return out
    end
end

-- { name, images and channels, sizes, whether gradients are checked }.
local sizes = {
    { 'nearest, uneven', { 1, 3 }, { from = { 3, 4 }, to = { 7, 5 } }, true },
    { 'bilinear, twice', { 2, 3 }, { from = { 2, 3 }, to = { 4, 6 }, mode = BILINEAR }, true },
    { 'corners stay', { 1, 3 }, { from = { 3, 2 }, to = { 5, 4 }, mode = BILINEAR, align = true }, true },
    { 'nearest, smaller', { 2, 2 }, { from = { 7, 5 }, to = { 3, 2 } } },
    { 'nearest, a scale', { 1, 2 }, { from = { 3, 4 }, to = { 7, 7 }, scale = { 1 / 2.4, 1 / 1.8 } } },
    { 'bilinear, uneven', { 1, 17 }, { from = { 3, 4 }, to = { 7, 5 }, mode = BILINEAR } },
    { 'bilinear, smaller', { 2, 2 }, { from = { 7, 5 }, to = { 3, 2 }, mode = BILINEAR } },
    { 'bilinear, many places of one', { 1, 2 }, { from = { 2, 3 }, to = { 13, 11 }, mode = BILINEAR } },
    { 'bilinear, a scale', { 1, 2 }, { from = { 3, 4 }, to = { 7, 7 }, mode = BILINEAR,
        scale = { 1 / 2.4, 1 / 1.8 } }, true },
    { 'corners stay, smaller', { 1, 2 }, { from = { 5, 4 }, to = { 2, 1 }, mode = BILINEAR, align = true } },
    { 'one channel', { 2, 1 }, { from = { 3, 2 }, to = { 4, 5 }, mode = BILINEAR } },
    { 'one pixel', { 2, 9 }, { from = { 1, 1 }, to = { 5, 4 }, mode = BILINEAR } }, -- more than 16 in one
    { 'to one pixel', { 2, 3 }, { from = { 2, 3 }, to = { 1, 1 }, mode = BILINEAR } },
    { 'no images', { 0, 2 }, { from = { 2, 2 }, to = { 3, 3 } } },
}

-- Returns the cases of an op; of: the size that its input has, 'from' or 'to'.
local function over(name, of, ref)
    local out = {}
    for i, row in ipairs(sizes) do
        local lead, r = row[2], row[3]
        out[i] = { name = row[1], inputs = { { lead[1], lead[2], r[of][1], r[of][2] } }, grad = row[4],
            ref = ref(r), call = calls(name, attrs(r)) }
    end
    return out
end

-- Returns the refusals of an op of an input with 4 x 4 pixels.
local function refused(name, more)
    local out = {}
    local function add(shape, r, error)
        out[#out + 1] = { inputs = { shape }, error = name .. ': ' .. error, call = calls(name, attrs(r)) }
    end
    local same = { from = { 4, 4 }, to = { 4, 4 } }
    add({ 2, 4, 4 }, same, 'the input is %(2, 4, 4%), expected 4 dims.*unsqueeze%(1%)')
    add({ 4, 4 }, same, 'the input is %(4, 4%), expected 4 dims: [^;]*columns%)')
    add({ 1, 2, 4, 4, dtype = 'i32', gen = 'int:5' }, same, '.*i32')
    add({ 1, 2, 4, 0 }, same, '%(1, 2, 4, 0%) to 4 x 4 given, expected sizes from 1 to 1048575')
    add({ 1, 2, 4, 4 }, { from = { 0, 4 }, to = { 0, 4 } }, '.* to 0 x 4 given, expected sizes from 1')
    add({ 1, 2, 4, 4 }, { from = { 4, 4 }, to = { 4, 4 }, scale = { 0, -2 } },
        'scale %-2 given, expected 0 %(of the sizes%) or more')
    for _, scale in ipairs { math.huge, 1e300, 1048576 } do
        add({ 1, 2, 4, 4 }, { from = { 4, 4 }, to = { 4, 4 }, scale = { scale, 1 } },
            'scale [%w%.%+]+ given, .* at most 1048575')
    end
    add({ 1, 2, 4, 4 }, { from = { 4, 4 }, to = { 4, 4 }, mode = 7 }, 'mode 7 is unknown')
    for _, b in ipairs(more) do add(unpack(b)) end
    return out
end

return {
    upsample2d = { cases = over('upsample2d', 'from', upsampled), bad = refused('upsample2d', {}) },
    upsample2d_dx = {
        cases = over('upsample2d_dx', 'to', returned),
        bad = refused('upsample2d_dx', {
            { { 1, 2, 4, 4 }, { from = { 2, 2 }, to = { 4, 5 } },
                'dy is %(1, 2, 4, 4%), expected 4 rows and 5 columns' },
        }),
    },
}
