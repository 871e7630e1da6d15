--- Strides, as far as PyTorch's memory depends on them: which results are views, and where an op copies first.
--
-- A layout is a list of strides in elements, or nil for row-major. Wane's own values are always row-major; PyTorch's
-- transposed views are not, and a product of batches or a reshape of one copies it (with 4-d heads: q, k and v). The
-- rules are those of ATen: computeStride for views, TensorIterator's order of dims for elementwise results.
-- Pure functions on shapes; nothing here counts bytes.
-- @internal wane.pytorch.layout
local layout = {}

--- Row-major strides of a shape.
function layout.dense(shape)
    local strides, n = {}, 1
    for k = #shape, 1, -1 do
        strides[k] = n
        n = n * math.max(shape[k], 1)
    end
    return strides
end

--- nil when the strides are the row-major ones of the shape, else the strides. Dims of size 1 do not count.
function layout.normal(shape, strides)
    if strides == nil then return nil end
    local dense = layout.dense(shape)
    for k = 1, #shape do
        if shape[k] ~= 1 and strides[k] ~= dense[k] then return strides end
    end
    return nil
end

local function strides_of(shape, strides)
    return strides or layout.dense(shape)
end

--- The layout of a view under another shape of as many elements.
-- @return is_view, layout: false when the bytes must be copied
function layout.view(shape, strides, new)
    local old, out = strides_of(shape, strides), {}
    local d, size, seen = #new, 1, 1 -- of the new dims: the one looked at; elements of the chunk, and of it so far
    local base = old[#shape] or 1
    for k = #shape, 1, -1 do
        size = size * shape[k]
        if k == 1 or shape[k - 1] ~= 1 and old[k - 1] ~= size * base then
            while d >= 1 and (seen < size or new[d] == 1) do
                out[d] = seen * base
                seen = seen * new[d]
                d = d - 1
            end
            if seen ~= size then return false end
            if k > 1 then base, size, seen = old[k - 1], 1, 1 end
        end
    end
    if d ~= 0 then return #shape == 0, nil end
    return true, layout.normal(new, out)
end

--- The layout behind a permutation. order: 1-based dims of the input.
function layout.permuted(shape, strides, order)
    local old, new, out = strides_of(shape, strides), {}, {}
    for k, from in ipairs(order) do new[k], out[k] = shape[from], old[from] end
    return layout.normal(new, out)
end

--- The layout of the same bytes with the last two dims exchanged.
function layout.transposed(shape, strides)
    local order = {}
    for k = 1, #shape do order[k] = k end
    order[#shape], order[#shape - 1] = #shape - 1, #shape
    return layout.permuted(shape, strides, order)
end

--- Strides for a broadcast to `shape`: 0 where a dim is repeated.
function layout.expanded(from, strides, shape)
    local old, out, lead = strides_of(from, strides), {}, #shape - #from
    for k = 1, #shape do
        local own = k > lead and from[k - lead] or 1
        out[k] = (own == shape[k] and k > lead) and old[k - lead] or 0
    end
    return layout.normal(shape, out)
end

-- Which of two dims lies further in: the first operand that tells decides. > 0: a is the outer one.
local function compare(shape, operands, a, b)
    for _, strides in ipairs(operands) do
        local x, y = strides[a], strides[b]
        if x ~= 0 and y ~= 0 then
            if x < y then return -1 end
            if x > y or shape[a] > shape[b] then return 1 end
        end
    end
    return 0
end

--- The layout of an elementwise result: dense, its dims ordered as those of the operands are.
-- @param shape of the result
-- @param operands list of { shape =, layout = }; those of fewer elements are broadcast
function layout.elementwise(shape, operands)
    local lists, is_plain = {}, true
    for i, each in ipairs(operands) do
        lists[i] = strides_of(shape, layout.expanded(each.shape, each.layout, shape))
        is_plain = is_plain and each.layout == nil
    end
    if is_plain then return nil end
    local order = {} -- innermost first
    for k = 1, #shape do order[k] = #shape + 1 - k end
    for i = 2, #shape do
        local at = i
        for before = i - 1, 1, -1 do
            local c = compare(shape, lists, order[before], order[at])
            if c > 0 then
                order[before], order[at] = order[at], order[before]
                at = before
            elseif c < 0 then
                break
            end
        end
    end
    local out, n = {}, 1
    for _, k in ipairs(order) do
        out[k] = n
        n = n * shape[k]
    end
    return layout.normal(shape, out)
end

return layout
