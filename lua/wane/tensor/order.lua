--- Order: running sums, sorted values, the largest of them, and draws that are made of these.
--
-- A dim is 1-based, and -1, the last one, unless given. Positions are i32 and 0-based, because they are data. NaN is
-- larger than every number, and equal elements keep their order. The gradient of a sorted value goes to its position.
-- @module wane.tensor.order

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local kin = require 'wane.tensor.kin'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local methods, need_self, typed = tensor.methods, tensor.need_self, tensor.typed
local id, raise = op.id, errors.raise
local type = type

local order = {}

local KEPT = { keepdim = true }
local LARGEST = 0x1.fffffffffffffp1023 -- of f64

-- Records an op along a dim.
local function record(o, t, dim, turned, what)
    local d = op.dim(t, dim or -1, what)
    if t.dtype == 'u8' then t = t:to 'i32' end
    return (op.unary(o, t, op.attrs(d, turned and 1 or 0)))
end

-- Returns dim and options of the arguments (dim, opts) or (opts).
local function arguments(dim, opts, allowed, what)
    if type(dim) == 'table' and not tensor.is(dim) and opts == nil then dim, opts = nil, dim end
    opts = errors.check_options(opts, allowed, what, allowed)
    return dim, opts
end

--- Returns the running sum along a dim: element k is the sum of elements 1 to k. Floats are added in f64.
-- @param t tensor; one of u8, such as a comparison, is counted in i32
-- @param dim number, -1 unless given
-- @return tensor of the shape and dtype of t
-- @usage print(wane.tensor({ 1, 2, 3 }):cumsum()) --> tensor (3) f32 [1., 3., 6.]
function methods.cumsum(t, dim)
    need_self(t, 'cumsum')
    return record(id.cumsum, t, dim, false, 'cumsum')
end

--- Returns the positions along a dim in the order of their elements.
-- @param t tensor
-- @param dim number, -1 unless given
-- @param opts {descending = false}; may be the only argument
-- @return i32 tensor of the shape of t
-- @usage print(wane.tensor({ 30, 10, 20 }):argsort()) --> tensor (3) i32 [1, 2, 0]
function methods.argsort(t, dim, opts)
    need_self(t, 'argsort')
    dim, opts = arguments(dim, opts, { 'descending' }, 'argsort')
    return record(id.argsort, t, dim, opts.descending, 'argsort')
end

--- Returns the elements along a dim in their order, and the positions that they had.
-- @param t tensor
-- @param dim number, -1 unless given
-- @param opts {descending = false}; may be the only argument
-- @return tensor of the shape and dtype of t
-- @return i32 tensor of positions
-- @usage
-- local values, at = wane.tensor({ 30, 10, 20 }):sort { descending = true }
-- print(values, at) --> tensor (3) f32 [30., 20., 10.]	tensor (3) i32 [0, 2, 1]
function methods.sort(t, dim, opts)
    need_self(t, 'sort')
    dim, opts = arguments(dim, opts, { 'descending' }, 'sort')
    local ids = record(id.argsort, t, dim, opts.descending, 'sort')
    return methods.gather(t, dim or -1, ids), ids
end

--- Returns the k largest elements along a dim, the largest first, and their positions.
-- @param t tensor
-- @param k number of elements
-- @param dim number, -1 unless given
-- @param opts {largest = true; false: the smallest, in their order}
-- @return tensor whose dim has size k
-- @return i32 tensor of positions
-- @raise 'shape' for more elements than there are
-- @usage
-- local values, at = wane.tensor({ 30, 10, 20 }):topk(2)
-- print(values, at) --> tensor (2) f32 [30., 20.]	tensor (2) i32 [0, 2]
function methods.topk(t, k, dim, opts)
    need_self(t, 'topk')
    dim, opts = arguments(dim, opts, { 'largest' }, 'topk')
    op.size(k, 'topk: k')
    local size = typed(t)._dims[op.dim(t, dim or -1, 'topk') + 1]
    if k > size then
        raise(nil, 'shape', 'topk: %d elements asked for, dim %d of %s has %d', k, dim or -1, tensor.describe(t), size)
    end
    local ids = methods.narrow(record(id.argsort, t, dim, opts.largest ~= false, 'topk'), dim or -1, 1, k)
    return methods.gather(t, dim or -1, ids), ids
end

--- Draws positions along the last dim, each with a probability in proportion to its weight. No gradient passes.
-- @function wane.multinomial
-- @param weights float tensor (..., C), not negative; it need not sum to 1
-- @param count number of draws, 1 unless given
-- @param opts {replacement = false: no position twice; then at least `count` weights of a row must be above 0}
-- @return i32 tensor (..., count) of 0-based positions
-- @raise 'shape' for more draws without replacement than there are positions; 'value' when it runs, with its place, for
-- a weight below 0, an infinite one or a NaN, and for a row with too few weights above 0
-- @usage print(wane.multinomial(wane.tensor { 0, 1, 0 }, 2, { replacement = true })) --> tensor (2) i32 [1, 1]
function order.multinomial(weights, count, opts)
    local what = 'wane.multinomial'
    if not tensor.is(weights) or not tensor.is_float[typed(weights)._dtype] or #weights._dims == 0 then
        raise(nil, 'value', '%s: expected a float tensor (..., C) of weights, got %s', what, errors.describe(weights))
    end
    count = op.size(count == nil and 1 or count, what .. ': count', 1)
    opts = errors.check_options(opts, { 'replacement' }, what, { 'replacement' })
    local w = kin.within(methods.detach(weights):to 'f64', 0, 0, LARGEST)
    -- 0 in each row, once enough of its weights are above 0.
    local enough = kin.within(methods.sum(methods.gt(w, 0):to 'f64', -1, KEPT), 1,
        opts.replacement and 1 or count, math.huge)
    local zero = methods.lt(enough, 0):to 'i32'
    if opts.replacement and count > 1 then -- a position is the number of running sums up to the draw
        local size = w._dims[#w._dims]
        local sums = methods.unsqueeze(methods.cumsum(w), -2)
        local dims = w.shape
        dims[#dims] = count
        local drawn = create.rand(dims, { dtype = 'f64', device = w.device }) * methods.narrow(
            methods.squeeze(sums, -2), -1, size, 1)
        local ids = methods.sum(methods.le(sums, methods.unsqueeze(drawn, -1)):to 'i32', -1)
        return methods.minimum(ids, size - 1) + zero
    end
    if count > w._dims[#w._dims] then
        raise(nil, 'shape', '%s: %d positions asked for without replacement, %s has %d', what, count,
            tensor.describe(weights), w._dims[#w._dims])
    end
    -- The least of exponential numbers at rates w is at each position with the probability that is asked for.
    local keys = w / -methods.log(kin.rand_like(w))
    if count == 1 then return methods.unsqueeze(methods.argmax(keys, -1), -1) + zero end
    local _, ids = methods.topk(keys, count)
    return ids + zero
end

--- Creates the whole numbers 0 to n - 1 in random order.
-- @function wane.randperm
-- @param n number of elements
-- @param opts {device = the current one}
-- @return i32 tensor (n)
-- @usage print((wane.randperm(5):sort())) --> tensor (5) i32 [0, 1, 2, 3, 4]
function order.randperm(n, opts)
    op.size(n, 'wane.randperm')
    opts = errors.check_options(opts, { 'device' }, 'wane.randperm')
    return methods.argsort(create.randint(-2 ^ 31, 2 ^ 31 - 1, { n }, { device = opts.device }))
end

return order
