--- Strides, as far as PyTorch's memory depends on them: which results are views, and which ops copy first.
--
-- A layout is a list of strides in elements, or nil for row-major. Wane's values are always row-major. PyTorch's
-- transposed views are not, and a batched product or a reshape of one copies it (with 4-d heads: q, k and v). The rules
-- are ATen's: computeStride for views, TensorIterator's order of dims for elementwise results. The functions are pure
-- functions of shapes and count no bytes.
-- @internal wane.pytorch.layout
local layout = {}

--- Returns the row-major strides of a shape.
-- @param shape list of dims
function layout.dense(shape)
    local strides, n = {}, 1
    for k = #shape, 1, -1 do
        strides[k] = n
        n = n * math.max(shape[k], 1)
    end
    return strides
end

--- Returns the strides, or nil when they are the row-major strides of the shape. Dims of size 1 do not count.
-- @param shape list of dims
-- @param strides list in elements, or nil
function layout.normal(shape, strides)
    if strides == nil then return nil end
    local dense = layout.dense(shape)
    for k = 1, #shape do
        if shape[k] ~= 1 and strides[k] ~= dense[k] then return strides end
    end
    return nil
end

-- Returns the strides of a layout, which may be nil for row-major.
local function strides_of(shape, strides)
    return strides or layout.dense(shape)
end

--- Returns the layout of a view under another shape with as many elements (ATen's computeStride).
-- @param shape of the tensor
-- @param strides its layout
-- @param new shape of the view
-- @return true and its layout; false when the bytes must be copied
function layout.view(shape, strides, new)
    local old, out = strides_of(shape, strides), {}
    local d, size, seen = #new, 1, 1 -- index into `new`; elements of a chunk of dims; of them covered by `new`
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

--- Returns the layout of a permutation.
-- @param shape of the tensor
-- @param strides its layout
-- @param order dims of the tensor, from 1
function layout.permuted(shape, strides, order)
    local old, new, out = strides_of(shape, strides), {}, {}
    for k, from in ipairs(order) do new[k], out[k] = shape[from], old[from] end
    return layout.normal(new, out)
end

--- Returns the layout of a tensor with its last two dims exchanged.
-- @param shape list of dims
-- @param strides its layout
function layout.transposed(shape, strides)
    local order = {}
    for k = 1, #shape do order[k] = k end
    order[#shape], order[#shape - 1] = #shape - 1, #shape
    return layout.permuted(shape, strides, order)
end

--- Returns the strides of a broadcast: 0 where a dim is repeated.
-- @param from shape of the tensor
-- @param strides its layout
-- @param shape of the result
function layout.expanded(from, strides, shape)
    local old, out, lead = strides_of(from, strides), {}, #shape - #from
    for k = 1, #shape do
        local own = k > lead and from[k - lead] or 1
        out[k] = (own == shape[k] and k > lead) and old[k - lead] or 0
    end
    return layout.normal(shape, out)
end

-- Compares two dims in the order of TensorIterator; the first operand that distinguishes them decides. Returns a
-- positive number when a is the outer dim, a negative one when b is, else 0.
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

--- Returns the layout of an elementwise result: dense, with dims in the order of the operands' dims.
-- @param shape of the result
-- @param operands list of { shape =, layout = }; operands with fewer elements are broadcast
function layout.elementwise(shape, operands)
    local lists, is_plain = {}, true
    for i, each in ipairs(operands) do
        lists[i] = strides_of(shape, layout.expanded(each.shape, each.layout, shape))
        is_plain = is_plain and each.layout == nil
    end
    if is_plain then return nil end
    local order = {} -- dims from the innermost to the outermost
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
