--- Shapes: reshape, permute, narrow, cat and what is built from them, and lookups by index.
--
-- Only reshape is free (the same bytes under another shape); permute, narrow and cat make new values. Dims
-- and positions are 1-based, negative ones count from the end; the contents of index tensors are 0-based.
-- @module wane.tensor.shape

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local Tensor, methods = tensor.Tensor, tensor.methods
local unary, id, raise, fill_dims = op.unary, op.id, errors.raise, binding.fill_dims
local getmetatable, ipairs, tostring, type, unpack = getmetatable, ipairs, tostring, type, unpack

local shape = {}

local MOST_DIMS = binding.most_dims
local RESHAPE, PERMUTE, NARROW, CAT = id.reshape, id.permute, id.narrow, id.cat

-- Arguments (2, 3) or ({2, 3}) as a list.
local function dims_of(...)
    local first = ...
    if type(first) == 'table' and getmetatable(first) ~= Tensor then return first end
    return { ... }
end

local function record_reshape(t, dims)
    local at = op.attrs()
    at.n = fill_dims(at.i, dims, 'reshape')
    return unary(RESHAPE, t, at)
end

-- ---- for layers: no checks, no tables ----------------------------------------------------------------------

--- Reshape to n dims a, b, ... known to fit.
function shape.to(t, n, a, b, c, d, e)
    local at = op.attrs()
    at.n = n
    local i = at.i
    i[0], i[1], i[2], i[3], i[4] = a or 0, b or 0, c or 0, d or 0, e or 0
    return unary(RESHAPE, t, at)
end

--- The second and third of four dims exchanged.
function shape.swap_middle(t)
    local at = op.attrs()
    at.n = 4
    local i = at.i
    i[0], i[1], i[2], i[3] = 0, 2, 1, 3
    return unary(PERMUTE, t, at)
end

--- Positions start + 1 .. start + length of 0-based dim.
function shape.cut(t, dim, start, length)
    local at = op.attrs()
    at.n = 3
    local i = at.i
    i[0], i[1], i[2] = dim, start, length
    return unary(NARROW, t, at)
end

-- ---- methods --------------------------------------------------------------------------------------------------

--- The same elements under another shape; one dim may be -1: what is left.
function methods.reshape(t, ...)
    tensor.need_self(t, 'reshape')
    local given = dims_of(...)
    local dims, hole, n = {}, nil, 1
    for k, d in ipairs(given) do
        if d == -1 then
            if hole then
                raise(nil, 'shape', 'reshape: only one dim may be -1, got %s', tensor.shape_text(given))
            end
            hole = k
            dims[k] = -1
        else
            dims[k] = op.size(d, 'reshape')
            n = n * d
        end
    end
    local count = tensor.count(tensor.typed(t)._dims)
    if hole and (n == 0 or count % n ~= 0) or not hole and n ~= count then
        raise(nil, 'shape', 'reshape: %s has %d elements, which do not fit %s', tensor.describe(t), count,
            tensor.shape_text(given))
    end
    if hole then dims[hole] = count / n end
    return record_reshape(t, dims)
end

--- PyTorch's name for reshape.
methods.view = methods.reshape

--- Dims in another order: t:permute(2, 1, 3).
function methods.permute(t, ...)
    tensor.need_self(t, 'permute')
    local order = dims_of(...)
    local n = tensor.typed(t)._ndim
    local list, seen = {}, {}
    for k, d in ipairs(order) do
        list[k] = op.dim(t, d, 'permute')
        if seen[list[k]] then raise(nil, 'shape', 'permute: dim %d is listed twice', d) end
        seen[list[k]] = true
    end
    if #list ~= n then
        raise(nil, 'shape', 'permute: %d dims given for %s, all %d are needed', #list, tensor.describe(t), n)
    end
    local at = op.attrs()
    at.n = fill_dims(at.i, list, 'permute')
    return unary(PERMUTE, t, at)
end

--- Two dims exchanged.
function methods.transpose(t, a, b)
    tensor.need_self(t, 'transpose')
    local i, j = op.dim(t, a, 'transpose'), op.dim(t, b, 'transpose')
    local at, order = op.attrs(), {}
    for k = 1, t._ndim do order[k] = k - 1 end
    order[i + 1], order[j + 1] = j, i
    at.n = fill_dims(at.i, order, 'transpose')
    return unary(PERMUTE, t, at)
end

--- The transpose of a matrix.
function methods.t(t)
    tensor.need_self(t, 't')
    if tensor.typed(t)._ndim ~= 2 then
        raise(nil, 'shape', 't: expected 2 dims, got %s; use transpose(a, b)', tensor.describe(t))
    end
    return methods.transpose(t, 1, 2)
end

--- A stretch of one dim: positions start .. start + length - 1.
function methods.narrow(t, dim, start, length)
    tensor.need_self(t, 'narrow')
    local d = op.dim(t, dim, 'narrow')
    local size = t._dims[d + 1]
    op.size(length, 'narrow: length')
    local first = start
    if type(start) == 'number' and start < 0 then first = size + 1 + start end
    if type(start) ~= 'number' or first % 1 ~= 0 or first < 1 or first + length - 1 > size then
        raise(nil, 'shape', 'narrow: start %s, length %s leave dim %d of %s, which has positions 1 to %d',
            errors.describe(start), length, d + 1, tensor.describe(t), size)
    end
    local at = op.attrs()
    at.n = 3
    at.i[0], at.i[1], at.i[2] = d, first - 1, length
    return unary(NARROW, t, at)
end

--- One position of a dim, which goes away; negative positions count from the end.
function methods.select(t, dim, position)
    tensor.need_self(t, 'select')
    local d = op.dim(t, dim, 'select')
    local size = t._dims[d + 1]
    local p = position
    if type(p) == 'number' and p < 0 then p = size + 1 + p end
    if type(p) ~= 'number' or p % 1 ~= 0 or p < 1 or p > size then
        raise(nil, 'shape', 'index %s is out of range for dim %d of %s; expected 1 to %d, or -%d to -1',
            errors.describe(position), d + 1, tensor.describe(t), size, size)
    end
    local piece = methods.narrow(t, dim, p, 1)
    local dims = {}
    for k, v in ipairs(t._dims) do
        if k ~= d + 1 then dims[#dims + 1] = v end
    end
    return record_reshape(piece, dims)
end

tensor.indexing(function(t, i)
    if tensor.typed(t)._ndim == 0 then
        raise(nil, 'shape', 't[%s]: a 0-d tensor has no positions; use t:item()', tostring(i))
    end
    return methods.select(t, 1, i)
end)

--- Without the dims of size 1, or without one such dim.
function methods.squeeze(t, dim)
    tensor.need_self(t, 'squeeze')
    local dims = {}
    local d = dim ~= nil and op.dim(t, dim, 'squeeze') + 1 or nil
    if d and t._dims[d] ~= 1 then
        raise(nil, 'shape', 'squeeze: dim %d of %s has size %d, only size 1 can go', d, tensor.describe(t),
            t._dims[d])
    end
    for k, v in ipairs(tensor.typed(t)._dims) do
        if d and k ~= d or not d and v ~= 1 then dims[#dims + 1] = v end
    end
    return record_reshape(t, dims)
end

--- With a dim of size 1 before dim (or at the end: ndim + 1, or -1).
function methods.unsqueeze(t, dim)
    tensor.need_self(t, 'unsqueeze')
    local d = op.dim(t, dim, 'unsqueeze', 1)
    local dims = {}
    for k, v in ipairs(t._dims) do dims[k] = v end
    table.insert(dims, d + 1, 1)
    return record_reshape(t, dims)
end

--- Dims from..to merged into one (all by default).
function methods.flatten(t, from, to)
    tensor.need_self(t, 'flatten')
    if tensor.typed(t)._ndim == 0 then return record_reshape(t, { 1 }) end
    local a, b = op.dim(t, from or 1, 'flatten') + 1, op.dim(t, to or -1, 'flatten') + 1
    if a > b then raise(nil, 'shape', 'flatten: dim %d comes after dim %d', a, b) end
    local dims, n = {}, 1
    for k, v in ipairs(t._dims) do
        if k >= a and k <= b then
            n = n * v
            if k == b then dims[#dims + 1] = n end
        else
            dims[#dims + 1] = v
        end
    end
    return record_reshape(t, dims)
end

--- Broadcast to a shape: dims of size 1, and dims in front, are repeated.
function methods.expand(t, ...)
    tensor.need_self(t, 'expand')
    local given = dims_of(...)
    local n, have = #given, tensor.typed(t)._ndim
    if n < have or n > MOST_DIMS then
        raise(nil, 'shape', 'expand: %s does not broadcast to %s', tensor.describe(t), tensor.shape_text(given))
    end
    local dims = {}
    for k, d in ipairs(given) do
        local own = k > n - have and t._dims[k - (n - have)] or 1
        dims[k] = d == -1 and own or op.size(d, 'expand')
        if own ~= 1 and own ~= dims[k] then
            raise(nil, 'shape', 'expand: %s does not broadcast to %s', tensor.describe(t),
                tensor.shape_text(given))
        end
    end
    local at = op.attrs()
    at.n = fill_dims(at.i, dims, 'expand')
    return unary(id.expand, t, at)
end

--- n pieces of a dim as n results (the last may be shorter): local q, k, v = x:chunk(3, -1).
function methods.chunk(t, n, dim)
    tensor.need_self(t, 'chunk')
    op.size(n, 'chunk: pieces', 1)
    dim = dim or 1
    local size = t._dims and t._dims[op.dim(t, dim, 'chunk') + 1]
    local step = math.max(1, math.ceil(size / n))
    local pieces, at = {}, 1
    while at <= size do
        local length = math.min(step, size - at + 1)
        pieces[#pieces + 1] = methods.narrow(t, dim, at, length)
        at = at + length
    end
    return unpack(pieces)
end

--- Pieces of the given sizes as results: local a, b = x:split({3, 5}, 1). A number: pieces of that size.
function methods.split(t, sizes, dim)
    tensor.need_self(t, 'split')
    dim = dim or 1
    local size = tensor.typed(t)._dims[op.dim(t, dim, 'split') + 1]
    if type(sizes) == 'number' then
        return methods.chunk(t, math.max(1, math.ceil(size / op.size(sizes, 'split: size', 1))), dim)
    end
    if type(sizes) ~= 'table' or getmetatable(sizes) ~= nil then
        raise(nil, 'value', 'split: expected a size or a list of sizes, got %s', errors.describe(sizes))
    end
    local pieces, at = {}, 1
    for k, length in ipairs(sizes) do
        pieces[k] = methods.narrow(t, dim, at, length)
        at = at + length
    end
    if at - 1 ~= size then
        raise(nil, 'shape', 'split: sizes sum to %d, dim %d of %s has %d', at - 1, dim, tensor.describe(t), size)
    end
    return unpack(pieces)
end

local function check_list(list, what)
    if type(list) ~= 'table' or tensor.is(list) or #list == 0 then
        raise(nil, 'value', '%s: expected a list of tensors, {a, b, ...}, got %s', what, errors.describe(list))
    end
    for k, t in ipairs(list) do
        if not tensor.is(t) then
            raise(nil, 'value', '%s: entry %d must be a tensor, got %s', what, k, errors.describe(t))
        end
    end
end

--- Tensors one after the other along a dim (default 1); the other dims must be equal.
function shape.cat(list, dim)
    check_list(list, 'cat')
    local at = { n = 1, i = { op.dim(list[1], dim or 1, 'cat') } }
    return op.record(CAT, list, at)
end

--- Tensors of one shape along a new dim (default 1).
function shape.stack(list, dim)
    check_list(list, 'stack')
    local pieces = {}
    for k, t in ipairs(list) do
        if tensor.shape_text(tensor.typed(t)._dims) ~= tensor.shape_text(tensor.typed(list[1])._dims) then
            raise(nil, 'shape', 'stack: entry %d is %s, entry 1 is %s; all must have one shape', k,
                tensor.describe(t), tensor.describe(list[1]))
        end
        pieces[k] = methods.unsqueeze(t, dim or 1)
    end
    return op.record(CAT, pieces, { n = 1, i = { op.dim(pieces[1], dim or 1, 'stack') } })
end

--- Elements of x along dim at the positions in ids (i32, 0-based, the shape of the result).
function methods.gather(t, dim, ids)
    tensor.need_self(t, 'gather')
    local d = op.dim(t, dim, 'gather')
    if not tensor.is(ids) then op.bad_operand(id.gather, ids, 2) end
    local at = op.attrs()
    at.n = 1
    at.i[0] = d
    return op.binary(id.gather, t, ids, at)
end

--- Slices of dim at the positions in ids (i32, 0-based, one dim), in that order.
function methods.index_select(t, dim, ids)
    tensor.need_self(t, 'index_select')
    local d = op.dim(t, dim, 'index_select') + 1
    if not tensor.is(ids) or tensor.typed(ids)._ndim ~= 1 then
        raise(nil, 'shape', 'index_select: positions must be a tensor of one dim, got %s', errors.describe(ids))
    end
    local x = d == 1 and t or methods.transpose(t, 1, d)
    local dims = {}
    for k, v in ipairs(tensor.typed(x)._dims) do dims[k] = v end
    local table_2d = methods.reshape(x, dims[1], -1)
    local picked = op.binary(id.embedding, table_2d, ids)
    dims[1] = ids._dims[1]
    local y = record_reshape(picked, dims)
    if d == 1 then return y end
    return methods.transpose(y, 1, d)
end

--- Number of dims; of elements; size of one dim.
function methods.dim(t)
    tensor.need_self(t, 'dim')
    return tensor.typed(t)._ndim
end
function methods.numel(t)
    tensor.need_self(t, 'numel')
    return tensor.count(tensor.typed(t)._dims)
end
function methods.size(t, dim)
    tensor.need_self(t, 'size')
    if dim == nil then return tensor.fields.shape(t) end
    return t._dims[op.dim(t, dim, 'size') + 1]
end

return shape
