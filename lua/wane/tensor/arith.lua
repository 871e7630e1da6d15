--- Arithmetic, comparison, elementwise functions, products, reductions and rows of tensors.
--
-- Each function records one node (or a short composition named in its comment) and computes nothing. A binary
-- operation takes a number on either side; shapes broadcast from the last dim. Dims are 1-based, negative
-- ones count from the end. Errors: shape, dtype or value, at the line of the call.
-- @module wane.tensor.arith

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local Tensor, methods = tensor.Tensor, tensor.methods
local unary, binary, id = op.unary, op.binary, op.id
local fill_dims, raise = binding.fill_dims, errors.raise
local getmetatable, ipairs, type = getmetatable, ipairs, type

local arith = {}

local ADD, SUB, MUL, DIV, POW, NEG = id.add, id.sub, id.mul, id.div, id.pow, id.neg

function Tensor.__add(a, b) return binary(ADD, a, b) end
function Tensor.__sub(a, b) return binary(SUB, a, b) end
function Tensor.__mul(a, b) return binary(MUL, a, b) end
function Tensor.__div(a, b) return binary(DIV, a, b) end
function Tensor.__pow(a, b) return binary(POW, a, b) end
function Tensor.__unm(a) return unary(NEG, a) end
function Tensor.__mod(a, b)
    raise(nil, 'unsupported', 'a %% b: there is no remainder of tensors in this version (got %s and %s)',
        errors.describe(a), errors.describe(b))
end

--- a + b, a - b, a * b, a / b, a ^ b as methods. b: tensor or number.
function methods.add(a, b) return binary(ADD, a, b) end
function methods.sub(a, b) return binary(SUB, a, b) end
function methods.mul(a, b) return binary(MUL, a, b) end
function methods.div(a, b) return binary(DIV, a, b) end
function methods.pow(a, b) return binary(POW, a, b) end

--- The larger, the smaller of two, element by element. b: tensor or number.
function methods.maximum(a, b) return binary(id.maximum, a, b) end
function methods.minimum(a, b) return binary(id.minimum, a, b) end

-- Comparisons: u8 tensors of 0 and 1. b: tensor or number.
local EQ, NE, LT, GT, LE, GE = id.eq, id.ne, id.lt, id.gt, id.le, id.ge
function methods.eq(a, b) return binary(EQ, a, b) end
function methods.ne(a, b) return binary(NE, a, b) end
function methods.lt(a, b) return binary(LT, a, b) end
function methods.gt(a, b) return binary(GT, a, b) end
function methods.le(a, b) return binary(LE, a, b) end
function methods.ge(a, b) return binary(GE, a, b) end

local ISNAN, ISFINITE = id.isnan, id.isfinite
--- Which elements are NaN; which are neither NaN nor infinite: u8 tensors of 0 and 1, of any float.
function methods.isnan(a) return unary(ISNAN, a) end
function methods.isfinite(a) return unary(ISFINITE, a) end

-- Elementwise functions, one node each. gelu is the exact form, with erf.
local ABS, EXP, LOG, SQRT, RSQRT = id.abs, id.exp, id.log, id.sqrt, id.rsqrt
local RELU, GELU, SILU, TANH, SIGMOID = id.relu, id.gelu, id.silu, id.tanh, id.sigmoid
function methods.neg(a) return unary(NEG, a) end
function methods.abs(a) return unary(ABS, a) end
function methods.exp(a) return unary(EXP, a) end
function methods.log(a) return unary(LOG, a) end
function methods.sqrt(a) return unary(SQRT, a) end
function methods.rsqrt(a) return unary(RSQRT, a) end
function methods.relu(a) return unary(RELU, a) end
function methods.gelu(a) return unary(GELU, a) end
function methods.silu(a) return unary(SILU, a) end
function methods.tanh(a) return unary(TANH, a) end
function methods.sigmoid(a) return unary(SIGMOID, a) end

--- Limits every element to lo..hi; either may be nil.
function methods.clamp(a, lo, hi)
    tensor.need_self(a, 'clamp')
    if lo == nil and hi == nil then
        raise(nil, 'value', 'clamp: expected a low or a high limit, got neither')
    end
    for _, v in ipairs { lo or 0, hi or 0 } do
        if type(v) ~= 'number' or v ~= v then
            raise(nil, 'value', 'clamp: limits must be numbers, got %s and %s', errors.describe(lo),
                errors.describe(hi))
        end
    end
    if lo and hi and lo > hi then
        raise(nil, 'value', 'clamp: the low limit %s is above the high limit %s', lo, hi)
    end
    local at = op.attrs()
    at.f[0], at.f[1] = lo or -1 / 0, hi or 1 / 0
    return unary(id.clamp, a, at)
end

--- where(cond, a, b): a where cond (u8) is not 0, else b; numbers allowed for one of a, b. Broadcasts.
function arith.where(cond, a, b)
    if getmetatable(a) ~= Tensor and getmetatable(b) ~= Tensor then
        raise(nil, 'value', 'where: one of the two choices must be a tensor, got %s and %s', errors.describe(a),
            errors.describe(b))
    end
    if not tensor.is(cond) then
        raise(nil, 'value', 'where: the condition must be a u8 tensor (a:lt(b), a:eq(b), ...), got %s',
            errors.describe(cond))
    end
    local like = getmetatable(a) == Tensor and a or b
    local made
    if getmetatable(a) ~= Tensor then
        made = arith.number(a, like, 'where')
        a = made
    elseif getmetatable(b) ~= Tensor then
        made = arith.number(b, like, 'where')
        b = made
    end
    return op.ternary(id.where, cond, a, b)
end

--- A 0-d constant of the dtype of `like`.
function arith.number(v, like, what)
    if type(v) ~= 'number' then
        raise(nil, 'value', '%s: expected a tensor or a number, got %s', what, errors.describe(v))
    end
    return tensor.wrap(op.constant(v, like, what))
end

local MATMUL_OPTIONS = { 'transpose_a', 'transpose_b' }

--- Matrix product of the last two dims, leading dims broadcast: (..., M, K) x (..., K, N) -> (..., M, N).
-- @param a tensor
-- @param b tensor of the same dtype
-- @param opts {transpose_a =, transpose_b =}: take the last two dims of a, of b, the other way round
function methods.matmul(a, b, opts)
    tensor.need_self(a, 'matmul')
    if getmetatable(b) ~= Tensor then op.bad_operand(id.matmul, b, 2) end
    local at = op.attrs()
    at.n = 2
    if opts ~= nil then
        errors.check_options(opts, MATMUL_OPTIONS, 'matmul')
        at.i[0] = opts.transpose_a and 1 or 0
        at.i[1] = opts.transpose_b and 1 or 0
    end
    return binary(id.matmul, a, b, at)
end

local MATMUL, LINEAR = id.matmul, id.linear

--- x W^T without bias: x (..., K), w (N, K) -> (..., N).
function arith.matmul_nt(x, w)
    local at = op.attrs()
    at.n = 2
    at.i[1] = 1
    return binary(MATMUL, x, w, at)
end

--- x W^T + b in one node and one rounding: x (..., K), w (N, K), b (N) -> (..., N).
function arith.linear(x, w, b)
    return op.ternary(LINEAR, x, w, b)
end

local KEEPDIM = 7 -- where op.def puts keepdim: the last of the integer attributes

local REDUCE_OPTIONS = { 'keepdim' }

-- Attributes of a reduction: dim nil (all), a number or a list.
local function reduce_attrs(t, name, dim, opts)
    tensor.need_self(t, name)
    if type(dim) == 'table' and opts == nil and dim[1] == nil and next(dim) ~= nil then dim, opts = nil, dim end
    local keepdim = opts ~= nil and errors.check_options(opts, REDUCE_OPTIONS, name).keepdim
    local list = {}
    if type(dim) == 'table' and getmetatable(dim) == nil then
        local seen = {}
        for k, d in ipairs(dim) do
            list[k] = op.dim(t, d, name)
            if seen[list[k]] then raise(nil, 'shape', '%s: dim %d is listed twice', name, d) end
            seen[list[k]] = true
        end
        table.sort(list)
    elseif dim ~= nil then
        list[1] = op.dim(t, dim, name)
    end
    local at = op.attrs()
    at.n = fill_dims(at.i, list, name)
    at.i[KEEPDIM] = keepdim and 1 or 0
    return at
end

--- Sum, mean over one dim, a list of dims, or all: a:sum(), a:sum(2), a:sum({1, 3}, {keepdim = true}).
function methods.sum(a, dim, opts) return unary(id.sum, a, reduce_attrs(a, 'sum', dim, opts)) end
function methods.mean(a, dim, opts) return unary(id.mean, a, reduce_attrs(a, 'mean', dim, opts)) end

--- Largest, smallest values over dims, as sum; with a tensor b: element by element (maximum, minimum).
function methods.max(a, dim, opts)
    if getmetatable(dim) == Tensor then return methods.maximum(a, dim) end
    return unary(id.max, a, reduce_attrs(a, 'max', dim, opts))
end
function methods.min(a, dim, opts)
    if getmetatable(dim) == Tensor then return methods.minimum(a, dim) end
    return unary(id.min, a, reduce_attrs(a, 'min', dim, opts))
end

--- Position of the largest element along dim (the first of equals): i32, 0-based, because it is data.
-- Without dim: of the tensor read row by row.
function methods.argmax(a, dim)
    tensor.need_self(a, 'argmax')
    if dim == nil then
        a = methods.reshape(a, -1)
        dim = 1
    end
    local d = op.dim(a, dim, 'argmax')
    local at = op.attrs()
    at.n = 1
    at.i[0] = d
    return unary(id.argmax, a, at)
end

local function rows(name)
    local o = id[name]
    return function(a, dim)
        tensor.need_self(a, name)
        if dim == nil then
            raise(nil, 'value', '%s: expected a dim, got none; write x:%s(-1)', name, name)
        end
        local d = op.dim(a, dim, name)
        local at = op.attrs()
        at.n = 1
        at.i[0] = d
        return unary(o, a, at)
    end
end

--- softmax and log_softmax along a dim.
methods.softmax = rows 'softmax'
methods.log_softmax = rows 'log_softmax'

local DROPOUT = id.dropout

--- Zeroes each element with probability p and scales the rest by 1/(1-p); draws numbers of its own.
function arith.dropout(x, p)
    tensor.need_self(x, 'dropout')
    local at = op.attrs()
    at.f[0] = p
    return unary(DROPOUT, x, at)
end

return arith
