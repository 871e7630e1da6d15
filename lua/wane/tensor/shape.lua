--- Shapes: reshape, permute, narrow, cat, the methods built from them, and lookups by index.
--
-- Only reshape is free (the same bytes under another shape); permute, narrow and cat make new values. Dims and
-- positions are 1-based, and negative ones count from the end; the contents of index tensors are 0-based. Every
-- function raises 'shape' or 'value' at the line of the call when dims, positions or sizes do not fit.
-- @module wane.tensor.shape

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local methods = tensor.methods
local unary, id, raise, fill_dims = op.unary, op.id, errors.raise, binding.fill_dims
local getmetatable, ipairs, tostring, type, unpack = getmetatable, ipairs, tostring, type, unpack

local shape = {}

local MOST_DIMS = binding.most_dims
local RESHAPE, PERMUTE, NARROW, CAT = id.reshape, id.permute, id.narrow, id.cat

-- Records op `o` of t with a list of dims as its integers.
local function record(o, t, dims, what)
    local at = op.attrs()
    at.n = fill_dims(at.i, dims, what)
    return (unary(o, t, at))
end

local function record_reshape(t, dims) return record(RESHAPE, t, dims, 'reshape') end

-- ---- for layers: no checks, no tables ----------------------------------------------------------------------

--- Reshapes to the sizes a, b, c, d and e, or the first of them, which are known to fit.
-- @within Internal
function shape.to(t, a, b, c, d, e)
    return (unary(RESHAPE, t, op.attrs(a, b, c, d, e)))
end

--- Exchanges the second and the third dim of a tensor of four dims: (a, b, c, d) -> (a, c, b, d).
-- @within Internal
function shape.swap_middle(t)
    return (unary(PERMUTE, t, op.attrs(0, 2, 1, 3)))
end

--- Returns positions start to start + length - 1 of a dim, all counted from 0.
-- @within Internal
function shape.cut(t, dim, start, length)
    return (unary(NARROW, t, op.attrs(dim, start, length)))
end

-- ---- methods --------------------------------------------------------------------------------------------------

--- Returns the same elements, in row-major order, under another shape. Nothing is copied.
-- @param t tensor
-- @param ... dims, as numbers or as one list; one of them may be -1, the size that is left
-- @return tensor of that shape
-- @raise 'shape' when the elements do not fit
-- @usage print(wane.arange(6):reshape(2, -1).shape) --> (2, 3)
function methods.reshape(t, ...)
    tensor.need_self(t, 'reshape')
    local given, many = errors.listed('reshape', 'dims', ...)
    local dims, hole, n = {}, nil, 1
    for k = 1, many do
        local d = given[k]
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

--- Reshapes, under PyTorch's name for it.
-- @function tensor:view
-- @param ... as in reshape
-- @usage print(wane.arange(6):view(3, 2).shape) --> (3, 2)
methods.view = methods.reshape

--- Returns a copy with the dims in another order.
-- @param t tensor
-- @param ... every dim once, as numbers or as one list
-- @return tensor whose dim k is dim order[k] of t
-- @usage print(wane.randn(2, 3, 4):permute(3, 1, 2).shape) --> (4, 2, 3)
function methods.permute(t, ...)
    tensor.need_self(t, 'permute')
    local order, many = errors.listed('permute', 'dims', ...)
    local n = #tensor.typed(t)._dims
    local list = op.dims(t, order, many, 'permute')
    if #list ~= n then
        raise(nil, 'shape', 'permute: %d dims given for %s, all %d are needed', #list, tensor.describe(t), n)
    end
    return record(PERMUTE, t, list, 'permute')
end

--- Returns a copy with two dims exchanged.
-- @param t tensor
-- @param a number of one dim
-- @param b number of the other
-- @usage print(wane.randn(2, 3, 4):transpose(1, -1).shape) --> (4, 3, 2)
function methods.transpose(t, a, b)
    tensor.need_self(t, 'transpose')
    local i, j = op.dim(t, a, 'transpose'), op.dim(t, b, 'transpose')
    local order = {}
    for k = 1, #t._dims do order[k] = k - 1 end
    order[i + 1], order[j + 1] = j, i
    return record(PERMUTE, t, order, 'transpose')
end

--- Returns the transpose of a matrix.
-- @param t tensor (M, N)
-- @return tensor (N, M)
-- @usage print(wane.randn(2, 3):t().shape) --> (3, 2)
function methods.t(t)
    tensor.need_self(t, 't')
    if #tensor.typed(t)._dims ~= 2 then
        raise(nil, 'shape', 't: expected 2 dims, got %s; use transpose(a, b)', tensor.describe(t))
    end
    return methods.transpose(t, 1, 2)
end

--- Returns the positions start to start + length - 1 of one dim.
-- @param t tensor
-- @param dim number
-- @param start position from 1, or from -1 for the last
-- @param length count of positions
-- @return tensor whose dim has size `length`
-- @usage print(wane.arange(6):narrow(1, 3, 2)) --> tensor (2) f32 [2., 3.]
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
    return shape.cut(t, d, first - 1, length)
end

--- Returns one position of a dim, without that dim; `t[i]` is `t:select(1, i)`.
-- @param t tensor
-- @param dim number
-- @param position from 1, or from -1 for the last
-- @usage
-- local t = wane.tensor { { 1, 2 }, { 3, 4 } }
-- print(t:select(2, 1), t[-1]) --> tensor (2) f32 [1., 3.]	tensor (2) f32 [3., 4.]
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
    if #tensor.typed(t)._dims == 0 then
        raise(nil, 'shape', 't[%s]: a 0-d tensor has no positions; use t:item()', tostring(i))
    end
    if type(i) == 'number' then return methods.select(t, 1, i) end
    if not tensor.is(i) then return methods.index_select(t, 1, i) end
    if tensor.dtype_name[tensor.typed(i)._dtype] == 'u8' then
        raise(nil, 'unsupported', 't[mask]: the size of the result would depend on data; write wane.where(mask, t, 0) '
            .. 'or t:masked_fill(mask, 0), or take positions, t[ids]')
    end
    local dims = { i:numel() }
    local rows = methods.index_select(t, 1, methods.reshape(i, dims))
    dims = {}
    for k, v in ipairs(i._dims) do dims[k] = v end
    for k = 2, #t._dims do dims[#dims + 1] = t._dims[k] end
    return record_reshape(rows, dims)
end)

--- Returns the tensor without its dims of size 1, or without one such dim.
-- @param t tensor
-- @param dim number, or nil for all dims of size 1
-- @raise 'shape' when the dim has another size
-- @usage print(wane.zeros(1, 3, 1):squeeze().shape, wane.zeros(1, 3, 1):squeeze(1).shape) --> (3)	(3, 1)
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

--- Returns the tensor with a new dim of size 1.
-- @param t tensor
-- @param dim number that the new dim gets: 1 to ndim + 1, or -1 for the last
-- @usage print(wane.zeros(2, 3):unsqueeze(1).shape, wane.zeros(2, 3):unsqueeze(-1).shape) --> (1, 2, 3)	(2, 3, 1)
function methods.unsqueeze(t, dim)
    tensor.need_self(t, 'unsqueeze')
    local d = op.dim(t, dim, 'unsqueeze', 1)
    local dims = {}
    for k, v in ipairs(t._dims) do dims[k] = v end
    table.insert(dims, d + 1, 1)
    return record_reshape(t, dims)
end

--- Merges neighbouring dims into one.
-- @param t tensor
-- @param from first dim, 1 unless given
-- @param to last dim, -1 unless given
-- @return tensor with one dim for them; nothing is copied
-- @usage print(wane.zeros(2, 3, 4):flatten(2).shape) --> (2, 12)
function methods.flatten(t, from, to)
    tensor.need_self(t, 'flatten')
    if #tensor.typed(t)._dims == 0 then return record_reshape(t, { 1 }) end
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

--- Broadcasts to a shape: repeats dims of size 1, and adds dims in front.
-- @param t tensor
-- @param ... dims, as numbers or as one list; -1 keeps the size of a dim
-- @return tensor of that shape, a value of its own
-- @usage print(wane.ones(3, 1):expand(2, -1, 4).shape) --> (2, 3, 4)
function methods.expand(t, ...)
    tensor.need_self(t, 'expand')
    local given, n = errors.listed('expand', 'dims', ...)
    local have = #tensor.typed(t)._dims
    if n < have or n > MOST_DIMS then
        raise(nil, 'shape', 'expand: %s does not broadcast to %s', tensor.describe(t), tensor.shape_text(given))
    end
    local dims = {}
    for k = 1, n do
        local d = given[k]
        local own = k > n - have and t._dims[k - (n - have)] or 1
        dims[k] = d == -1 and own or op.size(d, 'expand')
        if own ~= 1 and own ~= dims[k] then
            raise(nil, 'shape', 'expand: %s does not broadcast to %s', tensor.describe(t),
                tensor.shape_text(given))
        end
    end
    return record(id.expand, t, dims, 'expand')
end

--- Cuts a dim into n pieces of equal size, of which the last may be shorter.
-- @param t tensor
-- @param n count of pieces
-- @param dim number, 1 unless given
-- @return the pieces, as results of their own
-- @usage
-- local q, k, v = wane.randn(2, 12):chunk(3, -1)
-- print(q.shape, k.shape, v.shape) --> (2, 4)	(2, 4)	(2, 4)
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

--- Cuts a dim into pieces of given sizes.
-- @param t tensor
-- @param sizes list of sizes that add up to the dim's, or one size for all pieces
-- @param dim number, 1 unless given
-- @return the pieces, as results of their own
-- @usage
-- local a, b = wane.randn(8, 2):split({ 3, 5 }, 1)
-- print(a.shape, b.shape) --> (3, 2)	(5, 2)
function methods.split(t, sizes, dim)
    tensor.need_self(t, 'split')
    dim = dim or 1
    local size = tensor.typed(t)._dims[op.dim(t, dim, 'split') + 1]
    if type(sizes) == 'number' then
        return methods.chunk(t, math.max(1, math.ceil(size / op.size(sizes, 'split: size', 1))), dim)
    end
    local pieces, at = {}, 1
    for k = 1, errors.list(sizes, 'split', 'sizes (or one size)', 1) do
        local length = sizes[k]
        pieces[k] = methods.narrow(t, dim, at, length)
        at = at + length
    end
    if at - 1 ~= size then
        raise(nil, 'shape', 'split: sizes sum to %d, dim %d of %s has %d', at - 1, dim, tensor.describe(t), size)
    end
    return unpack(pieces)
end

local function check_list(list, what)
    for k = 1, errors.list(list, what, 'tensors, {a, b, ...}', 1) do
        if not tensor.is(list[k]) then
            raise(nil, 'value', '%s: entry %d must be a tensor, got %s', what, k, errors.describe(list[k]))
        end
    end
end

local MOST = 1000 -- tensors that one application joins

-- Records tensors along a dim, from 0, as one, in parts where they are many.
local function joined(list, dim)
    local at = { n = 1, i = { dim } }
    if #list <= MOST then return op.record(CAT, list, at) end
    local parts = {}
    for first = 1, #list, MOST do
        parts[#parts + 1] = op.record(CAT, { unpack(list, first, math.min(first + MOST - 1, #list)) }, at)
    end
    return joined(parts, dim)
end

--- Joins tensors along a dim; their other dims must be equal.
-- @param list list of tensors of one dtype
-- @param dim number, 1 unless given
-- @usage print(wane.cat({ wane.zeros(2, 3), wane.ones(1, 3) }).shape) --> (3, 3)
function shape.cat(list, dim)
    check_list(list, 'cat')
    return joined(list, op.dim(list[1], dim or 1, 'cat'))
end

--- Joins tensors of one shape along a new dim.
-- @param list list of tensors of one shape and dtype
-- @param dim number that the new dim gets, 1 unless given
-- @usage print(wane.stack({ wane.zeros(3), wane.ones(3) }).shape) --> (2, 3)
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
    return joined(pieces, op.dim(pieces[1], dim or 1, 'stack'))
end

--- Returns the elements along a dim at given positions, one for each element of the result.
-- @param t tensor
-- @param dim number
-- @param ids i32 tensor of 0-based positions; it has the shape of the result
-- @usage
-- local t = wane.tensor { { 1, 2 }, { 3, 4 } }
-- print(t:gather(2, wane.tensor({ { 1 }, { 0 } }, { dtype = 'i32' })):totable()[1][1]) --> 2
function methods.gather(t, dim, ids)
    tensor.need_self(t, 'gather')
    local d = op.dim(t, dim, 'gather')
    if not tensor.is(ids) then op.bad_operand(id.gather, ids, 2) end
    ids = op.indices(ids)
    return (op.binary(id.gather, t, ids, op.attrs(d)))
end

-- Makes the 0-based i32 positions of a list of positions of dim d, from 1, or from -1 for the last.
local function positions(t, d, list)
    local size, out = tensor.typed(t)._dims[d], {}
    for k = 1, errors.list(list, 't[{ ... }]', 'positions') do
        local p = list[k]
        if type(p) == 'number' and p < 0 then p = size + 1 + p end
        if type(p) == 'table' and not tensor.is(p) then
            local first, last = tonumber(p[1]) or 1, tonumber(p[2] or p[1]) or 1
            raise(nil, 'value', 't[{ ... }]: entry %d is a table; for a range write t:narrow(%d, %d, %d)', k, k, first,
                last - first + 1)
        end
        if type(p) ~= 'number' or p % 1 ~= 0 or p < 1 or p > size then
            raise(nil, type(p) == 'number' and 'shape' or 'value', 'index %s, entry %d of the list, is out of range '
                .. 'for dim %d of %s; expected 1 to %d, or -%d to -1', errors.describe(list[k]), k, d,
                tensor.describe(t), size, size)
        end
        out[k] = p - 1
    end
    return create.tensor(out, { dtype = 'i32', device = tensor.fields.device(t) })
end

-- Returns the slices of dim d of a tensor of integers, which have no embedding.
local function select_whole(t, d, ids)
    local once, dims = {}, {}
    for k, v in ipairs(t._dims) do once[k], dims[k] = 1, v end
    once[d], dims[d] = ids._dims[1], ids._dims[1]
    return methods.gather(t, d, methods.expand(methods.reshape(ids, once), dims))
end

--- Returns the slices of a dim at given positions, in their order.
-- @param t tensor
-- @param dim number
-- @param ids i32 tensor of one dim: 0-based positions; or a list of positions from 1, or from -1 for the last
-- @return tensor whose dim has the size of ids
-- @usage
-- local t = wane.tensor { { 1, 2 }, { 3, 4 } }
-- print(t:index_select(1, wane.tensor({ 1, 1, 0 }, { dtype = 'i32' })).shape) --> (3, 2)
-- print(t:index_select(2, { -1 }), t[{ 2, 1 }][1]) --> tensor (2, 1) f32
-- --> [[2.],
-- -->  [4.]]	tensor (2) f32 [3., 4.]
function methods.index_select(t, dim, ids)
    tensor.need_self(t, 'index_select')
    local d = op.dim(t, dim, 'index_select') + 1
    if type(ids) == 'table' and getmetatable(ids) == nil then ids = positions(t, d, ids) end
    ids = op.indices(ids)
    if not tensor.is(ids) or #tensor.typed(ids)._dims ~= 1 then
        raise(nil, 'shape', 'index_select: positions must be a tensor of one dim, got %s', errors.describe(ids))
    end
    if not tensor.is_float[tensor.typed(t)._dtype] then return select_whole(t, d, ids) end
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

--- Returns the number of dims.
-- @usage print(wane.zeros(2, 3):dim()) --> 2
function methods.dim(t)
    tensor.need_self(t, 'dim')
    return #tensor.typed(t)._dims
end

--- Returns the number of elements.
-- @usage print(wane.zeros(2, 3):numel()) --> 6
function methods.numel(t)
    tensor.need_self(t, 'numel')
    return tensor.count(tensor.typed(t)._dims)
end

--- Returns the size of one dim, or the shape.
-- @param t tensor
-- @param dim number, or nil for the whole shape
-- @usage print(wane.zeros(2, 3):size(-1)) --> 3
function methods.size(t, dim)
    tensor.need_self(t, 'size')
    if dim == nil then return tensor.fields.shape(t) end
    return t._dims[op.dim(t, dim, 'size') + 1]
end

return shape
