--- Plain arrays of doubles for reference results: { shape = {...}, v1, v2, ... } in row-major order.
-- Slow, short and obvious; used by the case records only, never by the library. Dims are 0-based here, as in
-- the library's attributes.
local array = {}

--- Returns the number of elements of a shape.
function array.count(shape)
    local n = 1
    for _, d in ipairs(shape) do n = n * d end
    return n
end

--- Makes an array of a shape whose element at an index (0-based, one number a dim) is fn(index, k).
function array.build(shape, fn)
    local out, index = { shape = shape }, {}
    for d = 1, #shape do index[d] = 0 end
    for k = 1, array.count(shape) do
        out[k] = fn(index, k)
        for d = #shape, 1, -1 do
            index[d] = index[d] + 1
            if index[d] < shape[d] then break end
            index[d] = 0
        end
    end
    return out
end

--- Returns the element at an index; the index may have more dims (aligned at the last), and dims of 1 stretch.
function array.at(a, index)
    local k, skip = 0, #index - #a.shape
    for d, size in ipairs(a.shape) do
        k = k * size + (size == 1 and 0 or index[d + skip])
    end
    return a[k + 1]
end

--- Returns the shape that broadcasting gives.
function array.broadcast(...)
    local shape = {}
    for _, a in ipairs { ... } do
        local longer, shorter = a.shape, shape
        if #longer < #shorter then longer, shorter = shorter, longer end
        local out = {}
        for d, size in ipairs(longer) do
            local other = shorter[d - (#longer - #shorter)] or 1
            out[d] = size == 1 and other or size
        end
        shape = out
    end
    return shape
end

--- Returns the array of f of the elements of arrays that broadcast.
function array.map(f, ...)
    local list, at = { ... }, array.at
    return array.build(array.broadcast(...), function(index)
        local v = {}
        for i, a in ipairs(list) do v[i] = at(a, index) end
        return f(unpack(v))
    end)
end

--- Reduces `dims` (all when empty): each element that is left is f(list of the elements that become one). keep: reduced
-- dims stay as 1.
function array.fold(a, dims, keep, f)
    local gone, shape, groups = {}, {}, {}
    for d = 1, #a.shape do gone[d] = #dims == 0 end
    for _, d in ipairs(dims) do gone[d + 1] = true end
    for d, size in ipairs(a.shape) do
        if not gone[d] then shape[#shape + 1] = size elseif keep then shape[#shape + 1] = 1 end
    end
    for k = 1, array.count(shape) do groups[k] = {} end
    array.build(a.shape, function(index, k)
        local at = 0
        for d, size in ipairs(a.shape) do
            if not gone[d] then at = at * size + index[d] end
        end
        table.insert(groups[at + 1], a[k])
    end)
    local out = { shape = shape }
    for k, list in ipairs(groups) do out[k] = f(list) end
    return out
end

--- Calls f(list) -> list along one dim, all arrays alike: f gets one list an array. Returns an array of the first one's
-- shape.
function array.along(dim, f, ...)
    local arrays, out = { ... }, { shape = (...).shape }
    local size, inner = out.shape[dim + 1], 1
    for d = dim + 2, #out.shape do inner = inner * out.shape[d] end
    for first = 1, array.count(out.shape) do
        if math.floor((first - 1) / inner) % size == 0 then
            local lists = {}
            for i, a in ipairs(arrays) do
                lists[i] = {}
                for j = 1, size do lists[i][j] = a[first + (j - 1) * inner] end
            end
            for j, v in ipairs(f(unpack(lists))) do out[first + (j - 1) * inner] = v end
        end
    end
    return out
end

--- Returns the elements of an array under another shape.
function array.reshape(a, shape)
    return array.build(shape, function(_, k) return a[k] end)
end

local function last_two(a, flag)
    local n = #a.shape
    local r, c = a.shape[n - 1], a.shape[n]
    if flag then return c, r end
    return r, c
end

--- Returns the product of two arrays of 2 dims or more, each transposed first when its flag is set.
function array.matmul(a, b, ta, tb)
    local m, k = last_two(a, ta)
    local _, n = last_two(b, tb)
    local lead_a, lead_b = { shape = {} }, { shape = {} }
    for d = 1, #a.shape - 2 do lead_a.shape[d] = a.shape[d] end
    for d = 1, #b.shape - 2 do lead_b.shape[d] = b.shape[d] end
    local shape = array.broadcast(lead_a, lead_b)
    local lead = #shape
    shape[lead + 1], shape[lead + 2] = m, n
    return array.build(shape, function(index)
        local x, y, sum = {}, {}, 0
        for d = 1, lead do x[d], y[d] = index[d], index[d] end
        for j = 0, k - 1 do
            x[lead + (ta and 2 or 1)], x[lead + (ta and 1 or 2)] = index[lead + 1], j
            y[lead + (tb and 2 or 1)], y[lead + (tb and 1 or 2)] = j, index[lead + 2]
            sum = sum + array.at(a, x) * array.at(b, y)
        end
        return sum
    end)
end

--- Returns the sum of a list.
function array.sum(list)
    local s = 0
    for _, v in ipairs(list) do s = s + v end
    return s
end

--- Computes the error function: a series of positive terms, good to about 15 digits for |x| < 5.
function array.erf(x)
    local term, sum, n = x, x, 0
    repeat
        n = n + 1
        term = term * 2 * x * x / (2 * n + 1)
        sum = sum + term
    until math.abs(term) <= 1e-17 * math.abs(sum)
    return 2 / math.sqrt(math.pi) * math.exp(-x * x) * sum
end

--- Records an op by name, attributes as the library has them (dims 0-based): for ops no method records.
function array.record(name, list, attrs)
    return require('wane.tensor.op').record(name, list, attrs)
end

--- Returns the `call` of a case (spec/cases.lua): it records an op of all inputs, with these attributes.
function array.calls(name, attrs)
    return function(_, ...) return array.record(name, { ... }, attrs) end
end

--- Returns an input of a case (spec/cases.lua) with the dims and fields of `base` and those of `more`.
function array.input(base, more)
    local out = {}
    for key, value in pairs(base) do out[key] = value end
    for key, value in pairs(more or {}) do out[key] = value end
    return out
end

--- Returns an array of zeros.
function array.zeros(shape)
    return array.build(shape, function() return 0 end)
end

--- Returns one list of what several lists hold.
function array.joined(...)
    local all = {}
    for _, list in ipairs { ... } do for _, item in ipairs(list) do all[#all + 1] = item end end
    return all
end

--- Returns a pair of sizes, rows and columns (default: as many), as images' attributes have it.
function array.pair(rows, columns)
    return rows * 2 ^ 32 + (columns or rows)
end

-- ---- norms over channels of images (n, c, h, w) ---------------------------------------------------------------------
-- A statistic is of all pixels of a channel (groups = 0), or of the channels of a group in one image.
local norms = { EPS = 1e-5 }
array.norms = norms

--- Returns the shape of a statistic of images of a shape.
function norms.stat_shape(x, groups)
    return groups == 0 and { x[2] } or { x[1], groups }
end

-- Returns a function that gives the index, from 1, of the statistic of the element with index i (0-based) of an image.
local function place_of(x, groups)
    local each = groups > 0 and x.shape[2] / groups
    return function(i) return groups == 0 and i[2] + 1 or i[1] * groups + math.floor(i[2] / each) + 1 end
end

-- Returns the means of term(index, k) over all elements of the image x that share a statistic.
local function means(x, groups, term)
    local out = array.zeros(norms.stat_shape(x.shape, groups))
    local place, n = place_of(x, groups), array.count(x.shape) / #out
    array.build(x.shape, function(i, k)
        out[place(i)] = out[place(i)] + term(i, k) / n
        return 0
    end)
    return out
end

--- Returns the means.
function norms.mean_of(x, groups)
    return means(x, groups, function(_, k) return x[k] end)
end

--- Returns 1 / sqrt(variance + EPS).
function norms.rstd_of(x, mean, groups)
    local place = place_of(x, groups)
    local square = means(x, groups, function(i, k) return (x[k] - mean[place(i)]) ^ 2 end)
    return array.build(square.shape, function(_, k) return 1 / math.sqrt(square[k] + norms.EPS) end)
end

-- Returns x, normalised.
local function hat(x, mean, rstd, groups)
    local place = place_of(x, groups)
    return array.build(x.shape, function(i, k) return (x[k] - mean[place(i)]) * rstd[place(i)] end)
end

--- Returns x, normalised, times w plus b of its channel.
function norms.norm(x, mean, rstd, w, b, groups)
    local h = hat(x, mean, rstd, groups)
    return array.build(x.shape, function(i, k) return h[k] * w[i[2] + 1] + b[i[2] + 1] end)
end

--- Returns the sums over pixels of dy times x, normalised, and of dy.
function norms.sums_of(dy, x, mean, rstd, groups)
    local h, n, c = hat(x, mean, rstd, groups), x.shape[1], x.shape[2]
    local out = array.build(groups == 0 and { 2, c } or { 2, n, c }, function() return 0 end)
    array.build(x.shape, function(i, k)
        local at = groups == 0 and i[2] + 1 or i[1] * c + i[2] + 1
        out[at] = out[at] + dy[k] * h[k]
        out[#out / 2 + at] = out[#out / 2 + at] + dy[k]
        return 0
    end)
    return out
end

-- Returns B / n and A / n of each statistic; n elements share one.
local function weighted(x, w, s, groups, n)
    local sum, place, c = { {}, {} }, place_of(x, groups), x.shape[2]
    for row = 1, 2 do
        for k = 1, #s / 2 do
            local channel = (k - 1) % c
            local to = place { math.floor((k - 1) / c), channel }
            sum[row][to] = (sum[row][to] or 0) + s[(row - 1) * #s / 2 + k] * w[channel + 1] / n
        end
    end
    return sum
end

--- Returns dx of inputs { dy, x, mean, rstd, w, sums }.
function norms.dx_of(inputs, groups)
    local dy, x, mean, rstd, w, s = unpack(inputs)
    local h, place = hat(x, mean, rstd, groups), place_of(x, groups)
    local sum = weighted(x, w, s, groups, array.count(x.shape) / #mean)
    return array.build(x.shape, function(i, k)
        local p = place(i)
        return rstd[p] * (dy[k] * w[i[2] + 1] - sum[2][p] - h[k] * sum[1][p])
    end)
end

-- ---- convolutions ---------------------------------------------------------------------------------------------------
--- Returns the attribute of a size, or of { rows, columns }, and both as a list.
function array.pairs(v)
    if type(v) ~= 'table' then v = { v, v } end
    return array.pair(v[1], v[2]), v
end

--- Returns the numbers of a convolution, from { n, c, h, w }, { o, kh, kw } and options: stride, pad, dilation, groups.
function array.window(x, w, o)
    local s = { n = x[1], c = x[2], o = w[1], kernel = { w[2], w[3] }, size = { x[3], x[4] }, groups = o.groups or 1 }
    local attrs = { [4] = s.groups }
    attrs[1], s.stride = array.pairs(o.stride or 1)
    attrs[2], s.pad = array.pairs(o.pad or 0)
    attrs[3], s.dilation = array.pairs(o.dilation or 1)
    s.out = {}
    for k = 1, 2 do
        s.out[k] = math.floor((s.size[k] + 2 * s.pad[k] - (s.kernel[k] - 1) * s.dilation[k] - 1) / s.stride[k]) + 1
    end
    s.attrs = attrs
    s.x, s.y = x, { s.n, s.o, s.out[1], s.out[2] }
    s.w = { s.o, s.c / s.groups, s.kernel[1], s.kernel[2] }
    return s
end

--- Calls fn(at of x, at of w, at of y) for every product of the convolution, all 1-based places in row-major arrays.
function array.each_product(s, fn)
    local ci, co = s.c / s.groups, s.o / s.groups
    local H, W, oh, ow, kh, kw = s.size[1], s.size[2], s.out[1], s.out[2], s.kernel[1], s.kernel[2]
    for n = 0, s.n - 1 do
        for o = 0, s.o - 1 do
            local group = math.floor(o / co)
            for p = 0, oh - 1 do
                for q = 0, ow - 1 do
                    local y_at = ((n * s.o + o) * oh + p) * ow + q + 1
                    for r = 0, kh - 1 do
                        local y = p * s.stride[1] - s.pad[1] + r * s.dilation[1]
                        for c = 0, y >= 0 and y < H and kw - 1 or -1 do
                            local x = q * s.stride[2] - s.pad[2] + c * s.dilation[2]
                            for i = 0, x >= 0 and x < W and ci - 1 or -1 do
                                fn(((n * s.c + group * ci + i) * H + y) * W + x + 1,
                                    ((o * ci + i) * kh + r) * kw + c + 1, y_at)
                            end
                        end
                    end
                end
            end
        end
    end
end

--- Returns the convolution of array.window(...) of x and w, plus a bias where there is one.
function array.conv2d(s, x, w, bias)
    local y = array.zeros(s.y)
    array.each_product(s, function(i, j, k) y[k] = y[k] + x[i] * w[j] end)
    if not bias then return y end
    return array.build(s.y, function(index, k) return y[k] + bias[index[2] + 1] end)
end

return array
