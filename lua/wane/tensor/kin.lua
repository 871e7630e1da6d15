--- Creation after the model of another tensor: zeros_like and its kin, evenly spaced numbers, and random choices.
--
-- Without options, the shape, dtype and device are those of the model. Values are nodes, as in tensor/create.lua.
-- @module wane.tensor.kin

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'

local methods, typed, is_float = tensor.methods, tensor.typed, tensor.is_float
local id, iterate, raise = op.id, errors.iterate, errors.raise
local type = type

local kin = {}

local OPTIONS = { 'dtype', 'device', 'requires_grad', 'name' }

-- Records a creation with the shape of t, and its dtype and device where opts has none.
local function like(t, what, o, opts, numbers)
    if not tensor.is(t) then
        raise(nil, 'value', '%s: expected a tensor whose shape to take, got %s', what, errors.describe(t))
    end
    local own = { dtype = tensor.dtype_name[typed(t)._dtype], device = tensor.fields.device(t) }
    for key, value in iterate(errors.check_options(opts, OPTIONS, what)) do own[key] = value end
    return create.make(what, o, t._dims, own, numbers)
end

--- Creates zeros in the shape, dtype and device of a tensor.
-- @param t tensor
-- @param opts {dtype =, device =, requires_grad = false, name =}
-- @usage print(wane.zeros_like(wane.ones(2))) --> tensor (2) f32 [0., 0.]
function kin.zeros_like(t, opts) return like(t, 'wane.zeros_like', id.full, opts, { 0, 0 }) end

--- Creates ones in the shape, dtype and device of a tensor.
-- @param t tensor
-- @param opts {dtype =, device =, requires_grad = false, name =}
-- @usage print(wane.ones_like(wane.zeros(2), { dtype = 'i32' })) --> tensor (2) i32 [1, 1]
function kin.ones_like(t, opts) return like(t, 'wane.ones_like', id.full, opts, { 1, 0 }) end

--- Creates a tensor of one number in the shape, dtype and device of a tensor.
-- @param t tensor
-- @param value number
-- @param opts {dtype =, device =, requires_grad = false, name =}
-- @usage print(wane.full_like(wane.zeros(2), 0.5)) --> tensor (2) f32 [0.5000, 0.5000]
function kin.full_like(t, value, opts)
    if type(value) ~= 'number' then
        raise(nil, 'value', 'wane.full_like: expected a number to fill with, got %s', errors.describe(value))
    end
    return like(t, 'wane.full_like', id.full, opts, { value, 0 })
end

--- Creates random numbers that are uniform in [0, 1), in the shape, dtype and device of a tensor.
-- @param t float tensor
-- @param opts {dtype =, device =, requires_grad = false, name =}
-- @usage print(wane.rand_like(wane.zeros(2, 3)).shape) --> (2, 3)
function kin.rand_like(t, opts) return like(t, 'wane.rand_like', id.uniform, opts, { 0, 1 }) end

--- Creates normal random numbers, of mean 0 and deviation 1, in the shape, dtype and device of a tensor.
-- @param t float tensor
-- @param opts {dtype =, device =, requires_grad = false, name =}
-- @usage print(wane.randn_like(wane.zeros(2, 3)).shape) --> (2, 3)
function kin.randn_like(t, opts) return like(t, 'wane.randn_like', id.normal, opts, { 0, 1 }) end

--- Creates `count` numbers from start to stop, both included, with equal steps.
-- @param start number
-- @param stop number
-- @param count number of elements
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @return tensor of one dim
-- @usage print(wane.linspace(0, 1, 5)) --> tensor (5) f32 [0.0000, 0.2500, 0.5000, 0.7500, 1.0000]
function kin.linspace(start, stop, count, opts)
    local what = 'wane.linspace'
    op.finite(start, what .. ': start')
    op.finite(stop, what .. ': stop')
    op.size(count, what .. ': count')
    opts = errors.check_options(opts, OPTIONS, what)
    if opts.dtype ~= nil and not is_float[op.dtype(opts.dtype, what)] then
        raise(nil, 'dtype', "%s: the numbers are floats, got the dtype %s; write :to '%s' behind it", what, opts.dtype,
            opts.dtype)
    end
    local step = count > 1 and (stop - start) / (count - 1) or 0
    if opts.requires_grad or count < 2 or start + (count - 1) * step == stop then
        return create.make(what, id.arange, { count }, opts, { start, step })
    end
    local own = { dtype = opts.dtype, device = opts.device }
    local y = shape.cat { create.make(what, id.arange, { count - 1 }, own, { start, step }),
        create.make(what, id.full, { 1 }, own, { stop, 0 }) }
    return opts.name and methods.named(y, opts.name) or y
end

--- Returns float x; the program that runs it raises where an element is not from `least` to `most`.
-- @param x float tensor
-- @param what kind of the element, for the message: 0 a weight, 1 a number of positions, 2 a probability
-- @param least the least number that passes
-- @param most the largest one
-- @within Internal
function kin.within(x, what, least, most)
    local at = op.attrs(what)
    at.f[0], at.f[1] = least, most
    return (op.unary(id.within, x, at))
end

--- Creates ones with the probabilities in a tensor, and zeros elsewhere. No gradient passes.
-- @param p float tensor of probabilities, 0 to 1
-- @return tensor of the shape and dtype of p
-- @raise 'value' when it runs, with the place of what is no probability
-- @usage print(wane.bernoulli(wane.tensor { 0, 1, 1 })) --> tensor (3) f32 [0., 1., 1.]
function kin.bernoulli(p)
    if not tensor.is(p) or not is_float[typed(p)._dtype] then
        raise(nil, 'value', 'wane.bernoulli: expected a float tensor of probabilities, got %s; '
            .. 'write wane.bernoulli(wane.full(dims, p)) for one probability', errors.describe(p))
    end
    local wide = methods.detach(p.dtype == 'bf16' and p:to 'f32' or p)
    return methods.lt(kin.rand_like(wide), kin.within(wide, 2, 0, 1)):to(p.dtype)
end

return kin
