--- Cases of poolings. The references go over every window as the formulas say: in the numbers of a window there are
-- places outside of the image, which take no part.
local array = require 'spec.cases.array'
local calls = array.calls

local CEIL, COUNTS_PAD, ADAPTIVE = 1, 2, 4

-- Returns the attributes of a window { kernel, stride, pad, flags =, size = }; each of the first three is a number or
-- { rows, columns }.
local function attrs(w)
    local i = {}
    for k = 1, 3 do
        local v = w[k] or (k == 2 and 1 or 0)
        i[k] = type(v) == 'table' and array.pair(unpack(v)) or array.pair(v)
    end
    i[4] = w.flags or 0
    i[5] = w.size and array.pair(unpack(w.size)) or 0
    return { i = i }
end

local function has(flags, flag) return (flags or 0) % (2 * flag) >= flag end

-- Returns a function that gives number k (1: rows, 2: columns) of part p of a window.
local function part(w, p, k)
    local v = w[p] or (p == 2 and 1 or 0)
    return type(v) == 'table' and v[k] or v
end

-- Returns how many windows there are along a dim of `size` elements.
local function count(w, k, size)
    local kernel, stride, pad = part(w, 1, k), part(w, 2, k), part(w, 3, k)
    if has(w.flags, ADAPTIVE) then return kernel end
    local room = size + 2 * pad - kernel
    local n = math.floor(room / stride) + 1
    if has(w.flags, CEIL) and room % stride ~= 0 and n * stride < size + pad then n = n + 1 end
    return n
end

-- Returns the first place of window `at`, and one behind its last, inside of the padded image.
local function span(w, k, size, at)
    if has(w.flags, ADAPTIVE) then
        local n = part(w, 1, k)
        return math.floor(at * size / n), math.ceil((at + 1) * size / n)
    end
    local first = at * part(w, 2, k) - part(w, 3, k)
    return first, math.min(first + part(w, 1, k), size + part(w, 3, k))
end

-- Calls fn(r, c, place) for every element of window (p, q) in the image x, in order. Returns the places of the mean.
local function each(w, x, p, q, fn)
    local height, width, counted = x.shape[3], x.shape[4], 0
    local top, bottom = span(w, 1, height, p)
    local left, right = span(w, 2, width, q)
    for r = top, bottom - 1 do
        for c = left, right - 1 do
            local inside = r >= 0 and r < height and c >= 0 and c < width
            if inside or has(w.flags, COUNTS_PAD) then counted = counted + 1 end
            if inside then fn(r, c, (r - top) * part(w, 1, 2) + c - left) end
        end
    end
    return counted
end

-- Returns the array with an element fn(window, list of numbers, list of places, places counted) for every window.
local function pooled(w, x, fn)
    local shape = { x.shape[1], x.shape[2], count(w, 1, x.shape[3]), count(w, 2, x.shape[4]) }
    return array.build(shape, function(i)
        local list, places = {}, {}
        local counted = each(w, x, i[3], i[4], function(r, c, place)
            list[#list + 1], places[#places + 1] = array.at(x, { i[1], i[2], r, c }), place
        end)
        return fn(i, list, places, counted)
    end)
end

local function largest_at(list)
    local best = 1
    for k = 2, #list do
        if list[best] == list[best] and not (list[k] <= list[best]) then best = k end
    end
    return best
end

-- Returns the array of shape (dy's images and channels, w.size) to which fn(window, add) adds for every window, where
-- add(r, c, v) adds v.
local function spread(w, dy, fn)
    local out = array.zeros { dy.shape[1], dy.shape[2], w.size[1], w.size[2] }
    array.build(dy.shape, function(i, k)
        local list = {}
        local counted = each(w, out, i[3], i[4], function(r, c, place) list[#list + 1] = { r, c, place } end)
        for _, at in ipairs(list) do
            local to = ((i[1] * dy.shape[2] + i[2]) * w.size[1] + at[1]) * w.size[2] + at[2] + 1
            out[to] = out[to] + fn(k, at[3], counted)
        end
        return 0
    end)
    return out
end

local function op(name, w)
    return calls(name, attrs(w))
end

local function of_index(w)
    return function(x) return pooled(w, x, function(_, list, places) return places[largest_at(list)] end) end
end
local function of_max(w)
    return function(x) return pooled(w, x, function(_, list) return list[largest_at(list)] end) end
end
local function of_mean(w)
    return function(x) return pooled(w, x, function(_, list, _, counted) return array.sum(list) / counted end) end
end
local function of_picks(w)
    return function(x, index)
        return pooled(w, x, function(i, list, places)
            for k, place in ipairs(places) do
                if place == array.at(index, i) then return list[k] end
            end
            return 0
        end)
    end
end
local function of_returns(w)
    return function(dy, index)
        return spread(w, dy, function(k, place) return index[k] == place and dy[k] or 0 end)
    end
end
local function of_shares(w)
    return function(dy) return spread(w, dy, function(k, _, counted) return dy[k] / counted end) end
end

-- The windows that poolings are tried with: { name, window, shape of x, whether gradients are checked }. 33 channels
-- are past two vectors; a pixel in more than 16 windows, or a window of more places, is summed another way.
local overlap = { 3, 2, 1 }
local windows = {
    { 'overlapping windows', overlap, { 2, 3, 7, 6 }, true },
    { 'rows unlike columns', { { 2, 3 }, { 1, 2 }, { 1, 0 } }, { 1, 2, 5, 8 }, true },
    { 'windows beyond the end', { 3, 2, 1, flags = CEIL }, { 1, 2, 6, 8 } },
    { 'gaps between windows', { 1, 3 }, { 1, 2, 5, 4 } },
    { 'one channel', overlap, { 2, 1, 5, 5 } },
    { 'one window', { { 2, 5 }, 2 }, { 1, 2, 4, 5 } },
}
local more = {
    { 'two by two', { 2, 2 }, { 2, 3, 4, 6 } },
    { 'many channels', overlap, { 1, 33, 5, 4 } },
    { 'no window beyond the padding', { 2, 2, 1, flags = CEIL }, { 1, 2, 5, 4 } },
    { 'one pixel', { 3, 1, 1 }, { 2, 4, 1, 1 } },
}
local means = {
    { 'many channels', { 2, 2 }, { 1, 19, 2, 2 } },
    { 'padding that counts, beyond the end', { 3, 2, 1, flags = CEIL + COUNTS_PAD }, { 1, 2, 6, 8 } },
    { 'beyond the end, without padding', { { 2, 3 }, 2, 0, flags = CEIL }, { 1, 2, 5, 6 } },
    { 'adaptive, uneven', { { 3, 5 }, flags = ADAPTIVE }, { 1, 3, 7, 8 }, true },
    { 'adaptive, all', { 1, flags = ADAPTIVE }, { 2, 9, 5, 4 } },
    { 'adaptive, more than there are', { { 5, 7 }, flags = ADAPTIVE }, { 1, 2, 3, 2 } },
    { 'a pixel in 25 windows', { 5, 1, 2, flags = COUNTS_PAD }, { 1, 3, 5, 6 } },
}

-- Returns the cases of an op over all of some lists of windows. make(window, shape) returns a case without a name,
-- whose grad holds where gradients are checked.
local function over(lists, make)
    local out = {}
    for _, list in ipairs(lists) do
        for _, row in ipairs(list) do
            local case = make(row[2], row[3])
            case.name, case.grad = row[1], row[4] and case.grad or nil
            out[#out + 1] = case
        end
    end
    return out
end

local function size_of(w, shape)
    return { shape[1], shape[2], count(w, 1, shape[3]), count(w, 2, shape[4]) }
end

-- Makes a case of a derivative to an image of `shape`, with an index where `bytes` says so.
local function derivative(name, ref, bytes)
    return function(w, shape)
        local sized = array.input(w, { size = { shape[3], shape[4] } })
        local inputs = { size_of(w, shape) }
        if bytes then
            local places = part(w, 1, 1) * part(w, 1, 2)
            inputs[2] = array.input(inputs[1], { dtype = 'u8', gen = 'int:' .. places })
        end
        return { inputs = inputs, call = op(name, sized), ref = ref(sized), grad = { true } }
    end
end

local NAN = 0 / 0
local ties = { 1, 1, 4, 4, 1, 2, 4, 4, 0, 0, -0.0, 0, 0, 0, 0, -0.0 }
local nans = { 1, NAN, 3, 4, NAN, 2, 8, NAN, -1 / 0, -1 / 0, 5, 5, -1 / 0, -1 / 0, 6, NAN }

-- Returns the case of an op over 4 x 4 numbers; one(y) returns what the bits are compared with.
local function numbers(name, values, call, ref, dtype)
    return { name = name, inputs = { { 1, 1, 4, 4, values = values } }, call = call, ref = ref, dtype = dtype,
        exact = dtype == 'u8' or nil }
end

-- Compares values of which some are NaN, which no reference can have.
local function with_nans(want)
    return function(have)
        for k, v in ipairs(want) do
            if v == v and have[k] ~= v or v ~= v and have[k] == have[k] then
                return false, ('element %d is %s'):format(k, tostring(have[k]))
            end
        end
        return true
    end
end

local two = { 2, 2 }
local function bad(shape, w, error, name)
    return { inputs = { shape }, error = error, call = op(name, w) }
end

-- Returns the refusals that all poolings share, and others.
local function refused(name, others)
    return array.joined({
        bad({ 3, 4, 4 }, two, name .. ': the input is %(3, 4, 4%), expected 4 dims.*unsqueeze%(1%)', name),
        bad({ 4, 4 }, two, name .. ': the input is %(4, 4%), expected 4 dims: [^;]*columns%)', name),
        { inputs = { { 1, 1, 4, 4, dtype = 'i32', gen = 'int:9' } }, call = op(name, two),
            error = name .. ': .*i32' },
        bad({ 1, 1, 4, 4 }, { 0, 1 }, name .. ': kernel size 0 given, expected 1 to 1048575', name),
        bad({ 1, 1, 4, 4 }, { 2, 0 }, name .. ': stride 0 given, expected 1 to 1048575', name),
        bad({ 1, 1, 4, 4 }, { 2, 2, 2 }, name .. ": padding 2 given, expected at most 1, half of the window's 2 rows",
            name),
        bad({ 1, 1, 4, 4 }, { { 2, 5 }, 2 }, name .. ': a window of 5 columns is larger than the padded image with 4',
            name),
        bad({ 1, 1, 0, 4 }, two, name .. ': image size 0 given, expected 1 to 1048575', name),
        bad({ 1, 1, 4, 4 }, { 2, 2, flags = 8 }, name .. ': flags 8 are unknown', name),
    }, others)
end

local is_large = { 1, 1, 20, 20 }
local wide = { { 16, 16 }, 1 }
local too_many = 'a window of 16 x 16 given, expected at most 255 places; pool twice'
local sized = { 2, 2, size = { 4, 4 } }
local bytes = { 1, 1, 2, 2, dtype = 'u8', gen = 'int:4' }

local index_cases = over({ windows, more }, function(w, shape)
    return { inputs = { array.input(shape, { gen = 'distinct' }) }, call = op('max_pool2d_index', w), ref = of_index(w),
        dtype = 'u8', exact = true }
end)
index_cases[#index_cases + 1] = numbers('the first of equal ones', ties, op('max_pool2d_index', two), of_index(two),
    'u8')
index_cases[#index_cases + 1] = numbers('the first NaN', nans, op('max_pool2d_index', two), of_index(two), 'u8')
index_cases[#index_cases + 1] = { name = 'the most places', inputs = { { 1, 17, 16, 17, gen = 'distinct' } },
    call = op('max_pool2d_index', { { 15, 17 }, 1 }), ref = of_index { { 15, 17 }, 1 }, dtype = 'u8', exact = true }

local max_cases = over({ windows, more }, function(w, shape)
    return { inputs = { array.input(shape, { gen = 'distinct' }) }, call = op('max_pool2d', w), ref = of_max(w),
        exact = true, grad = true }
end)
for _, case in ipairs(over({ windows }, function(w, shape)
    local places = part(w, 1, 1) * part(w, 1, 2)
    return { inputs = { array.input(shape), array.input(size_of(w, shape), { dtype = 'u8', gen = 'int:' .. places }) },
        call = op('max_pool2d', w), ref = of_picks(w), exact = true, grad = { true } }
end)) do
    case.name = case.name .. ', by an index'
    max_cases[#max_cases + 1] = case
end
max_cases[#max_cases + 1] = { name = 'NaN', inputs = { { 1, 1, 4, 4, values = nans } }, call = op('max_pool2d', two),
    check = with_nans { NAN, NAN, -1 / 0, NAN } }
max_cases[#max_cases + 1] = { name = 'an index outside of the window', only = 'f32', exact = true,
    inputs = { { 1, 2, 2, 2 }, { 1, 2, 1, 1, dtype = 'u8', values = { 4, 255 } } }, call = op('max_pool2d', two),
    ref = function() return { shape = { 1, 2, 1, 1 }, 0, 0 } end }
max_cases[#max_cases + 1] = { name = 'no images', inputs = { { 0, 2, 4, 4 } }, call = op('max_pool2d', two),
    ref = of_max(two), grad = true }

return {
    max_pool2d_index = {
        cases = index_cases,
        bad = refused('max_pool2d_index', {
            bad(is_large, wide, 'max_pool2d_index: ' .. too_many, 'max_pool2d_index'),
        }),
    },
    max_pool2d = {
        cases = max_cases,
        bad = refused('max_pool2d', {
            bad(is_large, wide, 'max_pool2d: ' .. too_many, 'max_pool2d'),
            bad({ 1, 1, 4, 4 }, { 2, 2, flags = COUNTS_PAD }, 'max_pool2d: flags 2 are unknown', 'max_pool2d'),
            { inputs = { { 1, 1, 4, 4 }, { 1, 1, 2, 2 } }, call = op('max_pool2d', two),
                error = 'max_pool2d: the index is .*, expected u8' },
            { inputs = { { 1, 1, 4, 4 }, { 1, 1, 2, 1, dtype = 'u8', gen = 'int:4' } }, call = op('max_pool2d', two),
                error = 'max_pool2d: the index is %(1, 1, 2, 1%), expected %(1, 1, 2, 2%)' },
        }),
    },
    max_pool2d_dx = {
        cases = over({ windows }, derivative('max_pool2d_dx', of_returns, true)),
        bad = {
            { inputs = { { 1, 1, 2, 3 }, bytes }, call = op('max_pool2d_dx', sized),
                error = 'max_pool2d_dx: dy is %(1, 1, 2, 3%), expected %(1, 1, 2, 2%): .* image of 4 x 4' },
            { inputs = { { 1, 1, 2, 2 }, { 1, 1, 2, 2 } }, call = op('max_pool2d_dx', sized),
                error = 'max_pool2d_dx: the index is .*, expected u8' },
            { inputs = { { 1, 1, 2, 2 }, { 1, 1, 2, 1, dtype = 'u8', gen = 'int:4' } },
                call = op('max_pool2d_dx', sized),
                error = 'max_pool2d_dx: the index is %(1, 1, 2, 1%), expected %(1, 1, 2, 2%)' },
        },
    },
    avg_pool2d = {
        cases = over({ windows, means }, function(w, shape)
            return { inputs = { array.input(shape) }, call = op('avg_pool2d', w), ref = of_mean(w), grad = true }
        end),
        bad = refused('avg_pool2d', {
            bad({ 1, 1, 4, 4 }, { 0, flags = ADAPTIVE }, 'avg_pool2d: output size 0 given, expected 1 to 1048575',
                'avg_pool2d'),
            bad({ 1, 1, 4, 4 }, { 2, 1, 1, flags = ADAPTIVE },
                'avg_pool2d: padding 1 given with the size of the result, expected 0', 'avg_pool2d'),
            bad({ 1, 1, 4, 4 }, { 2, 1, -1, flags = ADAPTIVE }, 'avg_pool2d: padding %-%d given', 'avg_pool2d'),
        }),
    },
    avg_pool2d_dx = {
        cases = over({ windows, means }, derivative('avg_pool2d_dx', of_shares, false)),
        bad = {
            { inputs = { { 1, 1, 3, 2 } }, call = op('avg_pool2d_dx', sized),
                error = 'avg_pool2d_dx: dy is %(1, 1, 3, 2%), expected %(1, 1, 2, 2%): .* image of 4 x 4' },
        },
    },
}
