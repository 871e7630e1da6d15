--- Reductions that are made of several ops: variance, norms, log-sum-exp, any and all, the position of the minimum.
--
-- Dims are given as in tensor:sum: a number, a list of numbers, or none for all, then {keepdim =}. bf16 is computed in
-- f32 and rounded once at the end. Gradients where a function has no slope are PyTorch's, or 0: a deviation or a norm
-- of 0 has the gradient 0. Every function raises 'shape', 'dtype' or 'value' at the line of the call.
-- @module wane.tensor.statistics

local arith = require 'wane.tensor.arith'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local methods, need_self, typed = tensor.methods, tensor.need_self, tensor.typed
local need_float = tensor.need_float
local raise, where = errors.raise, arith.where
local getmetatable, ipairs, math, next, type = getmetatable, ipairs, math, next, type

local statistics = {}

local KEPT = { keepdim = true }

-- Returns dims and options of the arguments (dim, opts) or (opts).
local function arguments(dim, opts, allowed, what)
    if type(dim) == 'table' and getmetatable(dim) == nil and opts == nil and dim[1] == nil and next(dim) ~= nil then
        dim, opts = nil, dim
    end
    return dim, errors.check_options(opts, allowed, what)
end

-- Returns a in a dtype that is precise enough for sums of it, and a function that rounds a result to that of a.
local function precise(a)
    local x = op.wide(a)
    if tensor.dtype_name[typed(x)._dtype] ~= 'bf16' then return x, function(y) return y end end
    return x:to 'f32', function(y) return y:to 'bf16' end
end

-- Returns the number of elements of a that one element of a reduction over `dim` is made of.
local function count_of(a, dim, what)
    local n = 1
    if dim == nil then return tensor.count(a._dims) end
    for _, d in ipairs(type(dim) == 'table' and dim or { dim }) do n = n * a._dims[op.dim(a, d, what) + 1] end
    return n
end

-- Returns f(x) where x is not 0, and 0 where it is; the gradient is 0 there too.
local function away_from_zero(x, f)
    local zero = methods.eq(x, 0)
    return where(zero, 0, f(where(zero, 1, x)))
end

-- Returns the variance of x, the result of `precise`, over dims.
local function variance(x, dim, opts, what)
    local correction = opts.correction == nil and 1 or op.finite(opts.correction, what .. ': correction')
    local count = count_of(x, dim, what)
    -- The mean is rounded; the deviations from it are exact or nearly so, and their own mean is what the rounding left.
    local near = x - methods.detach(methods.mean(x, dim, KEPT))
    local far = near - methods.mean(near, dim, KEPT)
    return methods.sum(far * far, dim, { keepdim = opts.keepdim }) / math.max(0, count - correction)
end

local SPREAD_OPTIONS = { 'keepdim', 'correction' }

--- Returns the variance over dims: the squared distances from the mean, summed, over n - correction.
-- @param a float tensor
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false, correction = 1: the unbiased estimate, 0: that of a whole population}; may be the only
-- argument
-- @return tensor without the reduced dims; NaN where n is not above the correction
-- @usage
-- local a = wane.tensor { { 1, 3 }, { 5, 5 } }
-- print(a:var(2), a:var({ correction = 0 })) --> tensor (2) f32 [2., 0.]	tensor () f32 2.7500
function methods.var(a, dim, opts)
    need_float(a, 'var')
    dim, opts = arguments(dim, opts, SPREAD_OPTIONS, 'var')
    local x, rounded = precise(a)
    return rounded(variance(x, dim, opts, 'var'))
end

--- Returns the standard deviation over dims, the root of tensor:var. Where it is 0 its gradient is 0.
-- @param a float tensor
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false, correction = 1}; may be the only argument
-- @return tensor without the reduced dims; NaN where n is not above the correction
-- @usage print(wane.tensor({ { 1, 3 }, { 5, 5 } }):std(2)) --> tensor (2) f32 [1.4142, 0.0000]
function methods.std(a, dim, opts)
    need_float(a, 'std')
    dim, opts = arguments(dim, opts, SPREAD_OPTIONS, 'std')
    local x, rounded = precise(a)
    return rounded(away_from_zero(variance(x, dim, opts, 'std'), methods.sqrt))
end

-- Returns the p-norm of |x| for a p that is neither 0, 1, 2 nor infinite.
local function power_norm(size, p, dim, opts)
    local zero = methods.eq(size, 0)
    local powers = where(zero, p < 0 and 1 / 0 or 0, methods.pow(where(zero, 1, size), p))
    return away_from_zero(methods.sum(powers, dim, opts), function(s) return methods.pow(s, 1 / p) end)
end

-- Names of norms whose p is no number of Lua's syntax.
local NORMS = { inf = math.huge, ['-inf'] = -math.huge }

--- Returns the p-norm over dims: the root of order p of the sum of |a|^p. The gradient of a norm of 0 is 0.
-- @param a float tensor
-- @param p number, 2 unless given; 1: the sum of |a|; math.huge or 'inf': the largest |a|; -math.huge: the smallest; 0:
-- the number of elements that are not 0
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false}
-- @return tensor without the reduced dims
-- @usage
-- local a = wane.tensor { { 3, -4 }, { 0, 0 } }
-- print(a:norm(), a:norm(1, 2), a:norm('inf', 2)) --> tensor () f32 5.	tensor (2) f32 [7., 0.]	tensor (2) f32 [4., 0.]
function methods.norm(a, p, dim, opts)
    need_float(a, 'norm')
    if p == nil then p = 2 end
    local order = NORMS[p] or p
    if type(order) ~= 'number' or order ~= order then
        raise(nil, 'value', "norm: p must be a number or 'inf', got %s; write t:norm(2, dim)", errors.describe(p))
    end
    dim, opts = arguments(dim, opts, { 'keepdim' }, 'norm')
    local x, rounded = precise(a)
    if order == 2 then return rounded(away_from_zero(methods.sum(x * x, dim, opts), methods.sqrt)) end
    if order == 0 then return rounded(methods.sum(methods.ne(x, 0):to(x.dtype), dim, opts)) end
    local size = methods.abs(x)
    if order == 1 then return rounded(methods.sum(size, dim, opts)) end
    if order == math.huge then return rounded(methods.max(size, dim, opts)) end
    if order == -math.huge then return rounded(methods.min(size, dim, opts)) end
    return rounded(power_norm(size, order, dim, opts))
end

--- Returns log(sum(exp(a))) over dims, without the overflow that taking them in turn has. Where every element is -inf,
-- or there is none, the result is -inf and the gradient 0.
-- @param a tensor; integers are taken in f32
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false}; may be the only argument
-- @return tensor without the reduced dims
-- @usage print(wane.tensor({ { 1000, 1000 }, { 0, 0 } }):logsumexp(2)) --> tensor (2) f32 [1000.6932,    0.6931]
function methods.logsumexp(a, dim, opts)
    a = op.real(a, 'logsumexp')
    dim, opts = arguments(dim, opts, { 'keepdim' }, 'logsumexp')
    local x, rounded = precise(a)
    if count_of(x, dim, 'logsumexp') == 0 then return rounded(methods.log(methods.sum(x, dim, opts))) end
    local top = methods.detach(methods.max(x, dim, KEPT))
    top = where(methods.lt(methods.abs(top), 1 / 0), top, 0)
    local sum = methods.sum(methods.exp(x - top), dim, KEPT)
    local none = methods.eq(sum, 0)
    local y = where(none, -1 / 0, methods.log(where(none, 1, sum))) + top
    if not opts.keepdim then y = methods.sum(y, dim) end -- of one element each
    return rounded(y)
end

-- Returns the number of elements of a u8 tensor that are 1, over dims, as i32.
local function ones_of(mask, dim, opts)
    return methods.sum(mask:to 'i32', dim, opts)
end

--- Returns whether any element over dims differs from 0. No element gives 0.
-- @param a tensor
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false}; may be the only argument
-- @return u8 tensor without the reduced dims: 1 or 0
-- @usage print(wane.tensor({ { 0, 2 }, { 0, 0 } }):any(2)) --> tensor (2) u8 [1, 0]
function methods.any(a, dim, opts)
    need_self(a, 'any')
    dim, opts = arguments(dim, opts, { 'keepdim' }, 'any')
    return methods.ne(ones_of(methods.ne(a, 0), dim, opts), 0)
end

--- Returns whether all elements over dims differ from 0. No element gives 1.
-- @param a tensor
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false}; may be the only argument
-- @return u8 tensor without the reduced dims: 1 or 0
-- @usage print(wane.tensor({ { 1, 2 }, { 0, 1 } }):all(2)) --> tensor (2) u8 [1, 0]
function methods.all(a, dim, opts)
    need_self(a, 'all')
    dim, opts = arguments(dim, opts, { 'keepdim' }, 'all')
    return methods.eq(ones_of(methods.eq(a, 0), dim, opts), 0)
end

--- Returns the position of the smallest element along a dim, the first of equals; a NaN is smaller than all.
-- Positions are 0-based, because they are data.
-- @param a tensor
-- @param dim number, or nil for the position in the tensor read row by row
-- @return i32 tensor without the dim
-- @usage print(wane.tensor({ { 1, 2 }, { 4, 3 } }):argmin(2)) --> tensor (2) i32 [0, 1]
function methods.argmin(a, dim)
    need_self(a, 'argmin')
    local is_float = tensor.is_float[typed(a)._dtype]
    return methods.argmax(is_float and -a or -1 - a, dim) -- -1 - a turns the order of i32 without overflow
end

return statistics
