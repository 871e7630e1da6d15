--- Elements in other places: triangles, flips, tiles, rows by a list, and sums at places.
--
-- Dims and positions that a script writes are 1-based, and negative ones count from the end; the contents of index
-- tensors are 0-based. Every function raises 'shape', 'dtype' or 'value' at the line of the call.
-- @module wane.tensor.arrange

local arith = require 'wane.tensor.arith'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'

local methods, need_self, typed = tensor.methods, tensor.need_self, tensor.typed
local id, raise, where = op.id, errors.raise, arith.where
local ipairs, type = ipairs, type

local arrange = {}

local function integer(v, what)
    if type(v) ~= 'number' or v % 1 ~= 0 or v < -2 ^ 31 or v >= 2 ^ 31 then
        raise(nil, 'value', '%s: expected an integer, got %s', what, errors.describe(v))
    end
    return v
end

-- Returns the whole numbers first, first + step, ... as i32 on the device of t.
local function counted(t, n, first, step)
    return create.make('arange', id.arange, { n }, { dtype = 'i32', device = tensor.fields.device(t) }, { first, step })
end

-- Returns t with zeros where keep(column, row + diagonal) is 0.
local function triangle(t, diagonal, what, keep)
    need_self(t, what)
    local n = #typed(t)._dims
    if n < 2 then
        raise(nil, 'shape', '%s: expected 2 dims or more, got %s', what, tensor.describe(t))
    end
    diagonal = diagonal == nil and 0 or integer(diagonal, what .. ': diagonal')
    local rows, columns = t._dims[n - 1], t._dims[n]
    return where(keep(counted(t, columns, 0, 1), shape.to(counted(t, rows, diagonal, 1), rows, 1)), t, 0)
end

--- Returns the lower triangle of a matrix, or of each matrix in the last two dims, with zeros above it.
-- @param t tensor (..., M, N)
-- @param diagonal the last one that is kept: 0 unless given, 1 is the one above it, -1 the one below
-- @return tensor of the shape and dtype of t
-- @usage print(wane.ones(3, 3):tril():sum(2)) --> tensor (3) f32 [1., 2., 3.]
function methods.tril(t, diagonal) return triangle(t, diagonal, 'tril', methods.le) end

--- Returns the upper triangle of a matrix, or of each matrix in the last two dims, with zeros below it.
-- @param t tensor (..., M, N)
-- @param diagonal the first one that is kept: 0 unless given, 1 is the one above it, -1 the one below
-- @return tensor of the shape and dtype of t
-- @usage print(wane.ones(3, 3):triu(1):sum(2)) --> tensor (3) f32 [2., 1., 0.]
function methods.triu(t, diagonal) return triangle(t, diagonal, 'triu', methods.ge) end

--- Returns the tensor with the order of elements along dims reversed.
-- @param t tensor
-- @param ... dims, as numbers or as one list; none: all dims
-- @return tensor of the shape and dtype of t
-- @usage print(wane.arange(3):flip(), wane.eye(2):flip(2)[1]) --> tensor (3) f32 [2., 1., 0.]	tensor (2) f32 [0., 1.]
function methods.flip(t, ...)
    need_self(t, 'flip')
    local dims, many = errors.listed('flip', 'dims', ...)
    local list = op.dims(t, dims, many, 'flip')
    for k = 1, #list == 0 and #typed(t)._dims or 0 do list[k] = k - 1 end
    local y = t
    for _, d in ipairs(list) do
        local n = t._dims[d + 1]
        if n > 1 then y = methods.index_select(y, d + 1, counted(t, n, n - 1, -1)) end
    end
    return y
end

-- Returns t with dim d repeated n times, as a whole. t: (outer, size, inner) seen from d.
local function tiled(t, d, n)
    local dims, outer, inner = {}, 1, 1
    for k, size in ipairs(typed(t)._dims) do
        dims[k] = size
        if k < d then outer = outer * size else inner = inner * size end
    end
    dims[d] = dims[d] * n
    return methods.reshape(methods.expand(shape.to(t, outer, 1, inner), outer, n, inner), dims)
end

--- Returns the tensor repeated along its dims, as whole tiles. PyTorch's `repeat`, which is a word of Lua, is this.
-- @param t tensor
-- @param ... times that each dim is repeated, as numbers or as one list, aligned at the last dim
-- @return tensor
-- @usage print(wane.arange(2):tile(2), wane.ones(3):tile(4, 2).shape) --> tensor (4) f32 [0., 1., 0., 1.]	(4, 6)
function methods.tile(t, ...)
    need_self(t, 'tile')
    local times, n = errors.listed('tile', 'times', ...)
    if n == 0 then raise(nil, 'value', 'tile: expected times for each dim, t:tile(2, 3), got none') end
    for k = 1, n do op.size(times[k], 'tile: times') end
    local y, have = t, #typed(t)._dims
    if n > have then
        local dims = {}
        for k = 1, n do dims[k] = k > n - have and t._dims[k - (n - have)] or 1 end
        y = methods.reshape(t, dims)
    end
    local before = #y._dims - n
    for k = n, 1, -1 do
        if times[k] ~= 1 then y = tiled(y, before + k, times[k]) end
    end
    return y
end

--- Returns t plus the elements of a source, each added at its place along a dim: of equal places, in their order.
-- @param t float tensor
-- @param dim number
-- @param ids i32 tensor of 0-based positions, with the dims of t but for `dim`
-- @param source tensor of the shape of ids and the dtype of t
-- @return tensor of the shape and dtype of t
-- @usage
-- local ids = wane.tensor({ 0, 2, 0 }, { dtype = 'i32' })
-- print(wane.zeros(3):scatter_add(1, ids, wane.tensor { 1, 2, 3 })) --> tensor (3) f32 [4., 0., 2.]
function methods.scatter_add(t, dim, ids, source)
    need_self(t, 'scatter_add')
    local d = op.dim(t, dim, 'scatter_add')
    ids = op.indices(ids)
    if not tensor.is(ids) then op.bad_operand(id.gather_grad, ids, 2) end
    if not tensor.is(source) then op.bad_operand(id.gather_grad, source, 3) end
    local fits = #typed(ids)._dims == #t._dims and #typed(source)._dims == #t._dims and source._dtype == t._dtype
    for k = 1, fits and #t._dims or 0 do
        fits = fits and (k == d + 1 or ids._dims[k] == t._dims[k]) and source._dims[k] == ids._dims[k]
    end
    if not fits then
        raise(nil, source._dtype ~= t._dtype and 'dtype' or 'shape', 'scatter_add: ids %s and source %s do not fit %s; '
            .. 'all have the same dims but for dim %d, and ids and source are alike', tensor.describe(ids),
            tensor.describe(source), tensor.describe(t), d + 1)
    end
    return t + op.binary(id.gather_grad, source, ids, op.attrs(d, t._dims[d + 1]))
end

return arrange
