--- Elementwise functions beside those of tensor/arith.lua: the sine and its kin, steps, and activations with numbers.
--
-- Each function records one node, or the short composition that its comment names, and computes nothing. The gradient
-- is PyTorch's, at kinks too. Every function raises 'dtype' or 'value' at the line of the call for operands that do not
-- fit.
-- @module wane.tensor.math

local arith = require 'wane.tensor.arith'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local methods, need_self, typed, is_float = tensor.methods, tensor.need_self, tensor.typed, tensor.is_float
local unary, id, raise, where = op.unary, op.id, errors.raise, arith.where

local elementwise = {}

local SIN, COS, LOG1P, EXPM1 = id.sin, id.cos, id.log1p, id.expm1

--- Returns the sine of every element, an angle in radians. In f32 it is exact to one rounding, for large angles too.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 0, math.pi / 6 }):sin()) --> tensor (2) f32 [0.0000, 0.5000]
function methods.sin(a) return (unary(SIN, a)) end

--- Returns the cosine of every element, an angle in radians.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 0, math.pi / 3 }):cos()) --> tensor (2) f32 [1.0000, 0.5000]
function methods.cos(a) return (unary(COS, a)) end

--- Returns log(1 + a) of every element, accurate where a is near 0: -inf at -1, NaN below.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 1e-10 }):log1p():item() > 0) --> true
function methods.log1p(a) return (unary(LOG1P, a)) end

--- Returns e^a - 1 of every element, accurate where a is near 0.
-- @param a tensor; integers are taken in f32
-- @return tensor of the shape of a, in its dtype or f32
-- @usage print(wane.tensor({ 1e-10 }):expm1():item() > 0) --> true
function methods.expm1(a) return (unary(EXPM1, a)) end

-- Returns the method that records op `name` of floats. A whole number is its own floor.
local function steps(name)
    local o = id[name]
    return function(a)
        need_self(a, name)
        if not is_float[typed(a)._dtype] then return a end
        return (unary(o, a))
    end
end

--- Returns the largest whole number that is not above each element. Its gradient is 0.
-- @function tensor:floor
-- @param a tensor; one of integers is returned as it is
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ -1.5, 1.5 }):floor()) --> tensor (2) f32 [-2.,  1.]
methods.floor = steps 'floor'

--- Returns the whole number that is nearest to each element, the even one of two as near. Its gradient is 0.
-- @function tensor:round
-- @param a tensor; one of integers is returned as it is
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ 0.5, 1.5, 1.6 }):round()) --> tensor (3) f32 [0., 2., 2.]
methods.round = steps 'round'

--- Returns 1 for every element above 0, -1 for every one below, and 0 for 0 and NaN. Its gradient is 0.
-- @param a tensor of floats or i32
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ -3, 0, 2 }):sign()) --> tensor (3) f32 [-1.,  0.,  1.]
function methods.sign(a) return (unary(id.sign, a)) end

--- Returns log(1 + e^(beta a)) / beta of every element, a smooth relu; nothing in it overflows.
-- @param a float tensor
-- @param beta number above 0, 1 unless given
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ 0, 100 }):softplus()) --> tensor (2) f32 [  0.6931, 100.0000]
function methods.softplus(a, beta)
    tensor.need_float(a, 'softplus')
    if beta == nil or beta == 1 then return (unary(id.softplus, a)) end
    if op.finite(beta, 'softplus: beta') <= 0 then
        raise(nil, 'value', 'softplus: beta must be above 0, got %s', beta)
    end
    return unary(id.softplus, a * beta) / beta
end

--- Returns a where a is above 0, and slope * a elsewhere. At 0 the gradient is the slope.
-- @param a float tensor
-- @param slope number, 0.01 unless given
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ -2, 3 }):leaky_relu(0.5)) --> tensor (2) f32 [-1.,  3.]
function methods.leaky_relu(a, slope)
    tensor.need_float(a, 'leaky_relu')
    slope = slope == nil and 0.01 or op.finite(slope, 'leaky_relu: slope')
    return where(methods.gt(a, 0), a, a * slope)
end

--- Returns a where a is above 0, and alpha (e^a - 1) elsewhere. At 0 the gradient is alpha.
-- @param a float tensor
-- @param alpha number, 1 unless given
-- @return tensor of the shape and dtype of a
-- @usage print(wane.tensor({ -1, 3 }):elu()) --> tensor (2) f32 [-0.6321,  3.0000]
function methods.elu(a, alpha)
    tensor.need_float(a, 'elu')
    alpha = alpha == nil and 1 or op.finite(alpha, 'elu: alpha')
    local above = methods.gt(a, 0)
    local below = unary(EXPM1, where(above, 0, a)) -- 0 where a is above: no overflow reaches the gradient
    return where(above, a, alpha == 1 and below or below * alpha)
end

--- Returns t with `value` in the places where the mask is not 0.
-- @param t tensor
-- @param mask u8 tensor that broadcasts to the shape of t, usually a comparison
-- @param value number, or tensor of no dims
-- @return tensor of the shape and dtype of t
-- @raise 'shape' for a mask that is larger than t
-- @usage
-- local t = wane.tensor { 1, -2, 3 }
-- print(t:masked_fill(t:lt(0), 0)) --> tensor (3) f32 [1., 0., 3.]
function methods.masked_fill(t, mask, value)
    need_self(t, 'masked_fill')
    if not tensor.is(mask) then
        raise(nil, 'value', 'masked_fill: the mask must be a u8 tensor (t:lt(0), t:eq(1), ...), got %s',
            errors.describe(mask))
    end
    if type(value) ~= 'number' and not (tensor.is(value) and #typed(value)._dims == 0) then
        raise(nil, 'value', 'masked_fill: the value must be a number or a tensor of no dims, got %s; '
            .. 'write wane.where(mask, value, t) for other tensors', errors.describe(value))
    end
    local y = where(mask, value, t)
    if tensor.shape_text(typed(y)._dims) ~= tensor.shape_text(typed(t)._dims) then
        raise(nil, 'shape', 'masked_fill: the mask %s does not broadcast to %s', tensor.describe(mask),
            tensor.describe(t))
    end
    return y
end

return elementwise
