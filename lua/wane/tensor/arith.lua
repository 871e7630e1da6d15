--- Arithmetic, comparison, elementwise functions, products, reductions and softmax of tensors.
--
-- Each function records one node (or a short composition that its comment names) and computes nothing. A binary
-- operation takes a number on either side; shapes broadcast from the last dim. Dims are 1-based, and negative dims
-- count from the end. Every function raises 'shape', 'dtype' or 'value' at the line of the call when its operands do
-- not fit.
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

function Tensor.__mod(a, b)
    raise(nil, 'unsupported', 'a %% b: there is no remainder of tensors in this version (got %s and %s)',
        errors.describe(a), errors.describe(b))
end

--- Returns the sum a + b, element by element; the operator `+` records the same node.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2 }):add(10)) --> tensor (2) f32 [11., 12.]
function methods.add(a, b) return (binary(ADD, a, b)) end

--- Returns the difference a - b, element by element; the operator `-` records the same node.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2 }):sub(1)) --> tensor (2) f32 [0., 1.]
function methods.sub(a, b) return (binary(SUB, a, b)) end

--- Returns the product a * b, element by element; the operator `*` records the same node.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2 }):mul(3)) --> tensor (2) f32 [3., 6.]
function methods.mul(a, b) return (binary(MUL, a, b)) end

--- Returns the quotient a / b, element by element; the operator `/` records the same node.
-- @param a float tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2 }):div(2)) --> tensor (2) f32 [0.5000, 1.0000]
function methods.div(a, b) return (binary(DIV, a, b)) end

--- Returns the power a ^ b, element by element; the operator `^` records the same node.
-- @param a float tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):pow(2)) --> tensor (3) f32 [1., 4., 9.]
function methods.pow(a, b) return (binary(POW, a, b)) end

for _, name in ipairs { 'add', 'sub', 'mul', 'div', 'pow' } do Tensor['__' .. name] = methods[name] end

--- Returns the larger of a and b, element by element; `wane.maximum(a, b)` is the same function.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 5 }):maximum(3)) --> tensor (2) f32 [3., 5.]
function methods.maximum(a, b) return (binary(id.maximum, a, b)) end

--- Returns the smaller of a and b, element by element; `wane.minimum(a, b)` is the same function.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 5 }):minimum(3)) --> tensor (2) f32 [1., 3.]
function methods.minimum(a, b) return (binary(id.minimum, a, b)) end

local EQ, NE, LT, GT, LE, GE = id.eq, id.ne, id.lt, id.gt, id.le, id.ge

--- Returns where a equals b: 1 where true, else 0.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return u8 tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):eq(2)) --> tensor (3) u8 [0, 1, 0]
function methods.eq(a, b) return (binary(EQ, a, b)) end

--- Returns where a differs from b: 1 where true, else 0.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return u8 tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):ne(2)) --> tensor (3) u8 [1, 0, 1]
function methods.ne(a, b) return (binary(NE, a, b)) end

--- Returns where a is less than b: 1 where true, else 0.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return u8 tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):lt(2)) --> tensor (3) u8 [1, 0, 0]
function methods.lt(a, b) return (binary(LT, a, b)) end

--- Returns where a is greater than b: 1 where true, else 0.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return u8 tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):gt(2)) --> tensor (3) u8 [0, 0, 1]
function methods.gt(a, b) return (binary(GT, a, b)) end

--- Returns where a is at most b: 1 where true, else 0.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return u8 tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):le(2)) --> tensor (3) u8 [1, 1, 0]
function methods.le(a, b) return (binary(LE, a, b)) end

--- Returns where a is at least b: 1 where true, else 0.
-- @param a tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @return u8 tensor of the broadcast shape
-- @usage print(wane.tensor({ 1, 2, 3 }):ge(2)) --> tensor (3) u8 [0, 1, 1]
function methods.ge(a, b) return (binary(GE, a, b)) end

local ISNAN, ISFINITE = id.isnan, id.isfinite

--- Returns which elements are NaN; `wane.isnan(a)` is the same function.
-- @param a tensor; integers are taken in f32
-- @return u8 tensor of the shape of a: 1 for NaN, else 0
-- @usage print(wane.tensor({ 1, 0 / 0 }):isnan()) --> tensor (2) u8 [0, 1]
function methods.isnan(a) return (unary(ISNAN, a)) end

--- Returns which elements are neither NaN nor infinite; `wane.isfinite(a)` is the same function.
-- @param a tensor; integers are taken in f32
-- @return u8 tensor of the shape of a: 1 for a finite number, else 0
-- @usage print(wane.tensor({ 1, 1 / 0 }):isfinite()) --> tensor (2) u8 [1, 0]
function methods.isfinite(a) return (unary(ISFINITE, a)) end

local ABS, EXP, LOG, SQRT, RSQRT = id.abs, id.exp, id.log, id.sqrt, id.rsqrt
local RELU, GELU, SILU, TANH, SIGMOID = id.relu, id.gelu, id.silu, id.tanh, id.sigmoid

--- Returns -a; the unary operator `-` records the same node.
-- @param a tensor
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ 1, -2 }):neg()) --> tensor (2) f32 [-1.,  2.]
function methods.neg(a) return (unary(NEG, a)) end
Tensor.__unm = methods.neg

--- Returns the absolute value of every element.
-- @param a tensor
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ 1, -2 }):abs()) --> tensor (2) f32 [1., 2.]
function methods.abs(a) return (unary(ABS, a)) end

--- Returns e to the power of every element.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 0, 1 }):exp()) --> tensor (2) f32 [1.0000, 2.7183]
function methods.exp(a) return (unary(EXP, a)) end

--- Returns the natural logarithm of every element: -inf at 0, NaN below.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 1, 2 }):log()) --> tensor (2) f32 [0.0000, 0.6931]
function methods.log(a) return (unary(LOG, a)) end

--- Returns the square root of every element: NaN below 0.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 4, 9 }):sqrt()) --> tensor (2) f32 [2., 3.]
function methods.sqrt(a) return (unary(SQRT, a)) end

--- Returns 1 / sqrt(a), element by element.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 1, 4 }):rsqrt()) --> tensor (2) f32 [1.0000, 0.5000]
function methods.rsqrt(a) return (unary(RSQRT, a)) end

--- Returns max(a, 0), element by element.
-- @param a float tensor
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ -1, 2 }):relu()) --> tensor (2) f32 [0., 2.]
function methods.relu(a) return (unary(RELU, a)) end

-- Returns x / (1 + exp(-2 u)), which is x (1 + tanh u) / 2, with u = sqrt(2 / pi) (x + 0.044715 x^3).
local function gelu_tanh(x)
    local wide = x.dtype == 'bf16' and x:to 'f32' or x
    local y = wide * (wide * (wide * wide * 0.044715 + 1) * (2 * math.sqrt(2 / math.pi))):sigmoid()
    return y:to(x.dtype)
end

--- Returns a Phi(a), element by element, with Phi the normal distribution function.
-- The exact form is one op. The form of GPT-2, with tanh in the place of erf, is composed of elementwise ops, in f32
-- for bf16.
-- @param a float tensor
-- @param approximate 'none', the exact form, unless given; or 'tanh'
-- @return tensor of the shape and dtype of a
-- @usage
-- print(wane.tensor({ 0, 1 }):gelu()) --> tensor (2) f32 [0.0000, 0.8413]
-- print(wane.tensor({ 0, 1 }):gelu 'tanh') --> tensor (2) f32 [0.0000, 0.8412]
function methods.gelu(a, approximate)
    if approximate == nil or approximate == 'none' then return (unary(GELU, a)) end
    if approximate ~= 'tanh' then
        raise(nil, 'value', "gelu: expected 'none' or 'tanh', got %s", errors.describe(approximate))
    end
    tensor.need_self(a, 'gelu')
    if not tensor.is_float[tensor.typed(a)._dtype] then return (unary(GELU, a)) end -- which refuses it
    return gelu_tanh(a)
end

--- Returns a sigmoid(a), element by element.
-- @param a float tensor
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ 0, 1 }):silu()) --> tensor (2) f32 [0.0000, 0.7311]
function methods.silu(a) return (unary(SILU, a)) end

--- Returns the hyperbolic tangent of every element.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 0, 1 }):tanh()) --> tensor (2) f32 [0.0000, 0.7616]
function methods.tanh(a) return (unary(TANH, a)) end

--- Returns 1 / (1 + exp(-a)), element by element.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 0, 1 }):sigmoid()) --> tensor (2) f32 [0.5000, 0.7311]
function methods.sigmoid(a) return (unary(SIGMOID, a)) end

--- Returns a with every element limited to lo <= v <= hi.
-- @param a float tensor
-- @param lo number, or nil for no low limit
-- @param hi number, or nil for no high limit
-- @return tensor of the shape and dtype of a
-- @raise 'value' when both limits are nil, one is no number, or lo is above hi
-- @usage print(wane.tensor({ -2, 0, 5 }):clamp(-1, 1)) --> tensor (3) f32 [-1.,  0.,  1.]
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
    return (unary(id.clamp, a, at))
end

--- Returns the elements of a where cond is not 0, and those of b elsewhere.
-- @param cond u8 tensor, usually a comparison
-- @param a tensor or number
-- @param b tensor of the same dtype, or number; one of a and b is a tensor
-- @return tensor of the shape that cond, a and b broadcast to
-- @usage
-- local a = wane.tensor { -1, 2 }
-- print(wane.where(a:lt(0), 0, a)) --> tensor (2) f32 [0., 2.]
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
    return (op.ternary(id.where, cond, a, b))
end

--- Returns a 0-d constant.
-- @within Internal
-- @param v number
-- @param like tensor whose dtype the constant has
-- @param what opens the message when v is no number
function arith.number(v, like, what)
    if type(v) ~= 'number' then
        raise(nil, 'value', '%s: expected a tensor or a number, got %s', what, errors.describe(v))
    end
    return tensor.wrap(op.constant(v, like, what))
end

local MATMUL_OPTIONS = { 'transpose_a', 'transpose_b' }

--- Returns the matrix product of the last two dims; leading dims broadcast.
-- @param a tensor (..., M, K)
-- @param b tensor (..., K, N) of the same dtype
-- @param opts {transpose_a = false, transpose_b = false}: a is (..., K, M), b is (..., N, K)
-- @return tensor (..., M, N)
-- @usage
-- local a, b = wane.randn(5, 2, 3), wane.randn(4, 3)
-- print(a:matmul(b, { transpose_b = true }).shape) --> (5, 2, 4)
function methods.matmul(a, b, opts)
    tensor.need_self(a, 'matmul')
    if getmetatable(b) ~= Tensor then op.bad_operand(id.matmul, b, 2) end
    if opts == nil then return (binary(id.matmul, a, b, op.attrs(0, 0))) end
    errors.check_options(opts, MATMUL_OPTIONS, 'matmul')
    return (binary(id.matmul, a, b, op.attrs(opts.transpose_a and 1 or 0, opts.transpose_b and 1 or 0)))
end

local MATMUL, LINEAR = id.matmul, id.linear

--- Returns x w^T + b, in one node and with one rounding, or x w^T.
-- @within Internal
-- @param x tensor (..., K)
-- @param w tensor (N, K)
-- @param b tensor (N) or nil
-- @return tensor (..., N)
function arith.linear(x, w, b)
    if b then return (op.ternary(LINEAR, x, w, b)) end
    return (binary(MATMUL, x, w, op.attrs(0, 1)))
end

local KEEPDIM = 7 -- where op.def puts keepdim: the last of the integer attributes

local REDUCE_OPTIONS = { 'keepdim' }

-- Returns the attributes of a reduction over `dim`: nil for all dims, a number, or a list of numbers.
local function reduce_attrs(t, name, dim, opts)
    tensor.need_self(t, name)
    if type(dim) == 'table' and opts == nil and dim[1] == nil and next(dim) ~= nil then dim, opts = nil, dim end
    local keepdim = opts ~= nil and errors.check_options(opts, REDUCE_OPTIONS, name).keepdim
    local list = {}
    if type(dim) == 'table' and getmetatable(dim) == nil then
        list = op.dims(t, dim, errors.list(dim, name, 'dims', 0, REDUCE_OPTIONS), name)
        table.sort(list)
    elseif dim ~= nil then
        list[1] = op.dim(t, dim, name)
    end
    local at = op.attrs()
    at.n = fill_dims(at.i, list, name)
    at.i[KEEPDIM] = keepdim and 1 or 0
    return at
end

--- Returns the sum over dims.
-- @param a tensor; one of u8, such as a comparison, is counted in i32
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false}: reduced dims stay, with size 1; may be the only argument
-- @return tensor without the reduced dims
-- @raise 'value' when it runs, with the sum, where one of i32 leaves 32 bits; so do cumsum and +, - and * of i32
-- @usage
-- local a = wane.tensor { { 1, 2 }, { 3, 4 } }
-- print(a:sum(), a:sum(2)) --> tensor () f32 10.	tensor (2) f32 [3., 7.]
-- print(a:sum({ 1, 2 }, { keepdim = true }).shape) --> (1, 1)
function methods.sum(a, dim, opts)
    if getmetatable(a) == Tensor and tensor.typed(a)._dtype == tensor.dtype_id.u8 then a = a:to 'i32' end
    return (unary(id.sum, a, reduce_attrs(a, 'sum', dim, opts)))
end

--- Returns the mean over dims.
-- @param a tensor; integers are taken in f32, so the mean of a comparison is the share that is true
-- @param dim number, list of numbers, or nil for all dims
-- @param opts {keepdim = false}: reduced dims stay, with size 1; may be the only argument
-- @return tensor without the reduced dims
-- @usage print(wane.tensor({ { 1, 2 }, { 3, 4 } }):mean(1)) --> tensor (2) f32 [2., 3.]
function methods.mean(a, dim, opts) return (unary(id.mean, op.real(a, 'mean'), reduce_attrs(a, 'mean', dim, opts))) end

-- Returns the extreme values along one dim and their positions. The whole gradient of a value goes to its position.
local function with_positions(a, name, dim, opts)
    tensor.need_self(a, name)
    errors.check_options(opts, { 'keepdim', 'indices' }, name)
    if type(dim) ~= 'number' then
        raise(nil, 'value', '%s: positions are those along one dim, got %s; write t:%s(dim, {indices = true})', name,
            errors.describe(dim), name)
    end
    local ids = methods.unsqueeze(methods[name == 'max' and 'argmax' or 'argmin'](a, dim), dim)
    local values = methods.gather(a, dim, ids)
    if opts.keepdim then return values, ids end
    return methods.squeeze(values, dim), methods.squeeze(ids, dim)
end

-- Returns the largest or the smallest elements: of two tensors, along dims, or with their positions.
local function extreme(a, name, of_two, dim, opts)
    if getmetatable(dim) == Tensor then return of_two(a, dim) end
    if type(dim) == 'table' and dim.indices then dim, opts = nil, dim end
    if type(opts) == 'table' and opts.indices then return with_positions(a, name, dim, opts) end
    return (unary(id[name], a, reduce_attrs(a, name, dim, opts)))
end

--- Returns the largest value over dims; of two tensors, `a:maximum(b)`.
-- @param a tensor
-- @param dim number, list of numbers, or nil for all dims; or a tensor b
-- @param opts {keepdim = false}: reduced dims stay, with size 1; may be the only argument; {indices = true}: along one
-- dim, with the 0-based positions of the first of equals as a second result. Equals share the gradient; with indices
-- the position has all of it
-- @return tensor without the reduced dims
-- @usage print(wane.tensor({ { 1, 2 }, { 3, 4 } }):max(2)) --> tensor (2) f32 [2., 4.]
function methods.max(a, dim, opts) return extreme(a, 'max', methods.maximum, dim, opts) end

--- Returns the smallest value over dims; of two tensors, `a:minimum(b)`.
-- @param a tensor
-- @param dim number, list of numbers, or nil for all dims; or a tensor b
-- @param opts {keepdim = false}: reduced dims stay, with size 1; may be the only argument; {indices = true}: along one
-- dim, with the 0-based positions of the first of equals as a second result. Equals share the gradient; with indices
-- the position has all of it
-- @return tensor without the reduced dims
-- @usage print(wane.tensor({ { 1, 2 }, { 3, 4 } }):min(1)) --> tensor (2) f32 [1., 2.]
function methods.min(a, dim, opts) return extreme(a, 'min', methods.minimum, dim, opts) end

--- Returns the position of the largest element along a dim, the first of equals.
-- Positions are 0-based, because they are data.
-- @param a tensor
-- @param dim number, or nil for the position in the tensor read row by row
-- @return i32 tensor without the dim
-- @usage print(wane.tensor({ { 1, 2 }, { 4, 3 } }):argmax(2)) --> tensor (2) i32 [1, 0]
function methods.argmax(a, dim)
    tensor.need_self(a, 'argmax')
    if dim == nil then
        a = methods.reshape(a, -1)
        dim = 1
    end
    return (unary(id.argmax, a, op.attrs(op.dim(a, dim, 'argmax'))))
end

-- Returns the method that records op `name` along one dim.
local function rows(name)
    local o = id[name]
    return function(a, dim)
        tensor.need_self(a, name)
        if dim == nil then
            raise(nil, 'value', '%s: expected a dim, got none; write x:%s(-1)', name, name)
        end
        return (unary(o, a, op.attrs(op.dim(a, dim, name))))
    end
end

--- Returns exp(a) / sum(exp(a)) along a dim.
-- @function tensor:softmax
-- @param dim number
-- @return tensor of the shape of a
-- @usage print(wane.tensor({ 0, 0 }):softmax(-1)) --> tensor (2) f32 [0.5000, 0.5000]
methods.softmax = rows 'softmax'

--- Returns the logarithm of softmax along a dim, without the overflow that taking both in turn has.
-- @function tensor:log_softmax
-- @param dim number
-- @return tensor of the shape of a
-- @usage print(wane.tensor({ 0, 0 }):log_softmax(-1)) --> tensor (2) f32 [-0.6931, -0.6931]
methods.log_softmax = rows 'log_softmax'

local DROPOUT = id.dropout

--- Zeroes each element with probability p and scales the others by 1 / (1 - p); draws numbers of its own.
-- @within Internal
-- @param x tensor
-- @param p number, 0 <= p < 1
function arith.dropout(x, p)
    tensor.need_self(x, 'dropout')
    local at = op.attrs()
    at.f[0] = p
    return (unary(DROPOUT, x, at))
end

return arith
