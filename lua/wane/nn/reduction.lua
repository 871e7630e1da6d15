--- Helpers of losses: the option `reduction`, the check of two equal shapes, and the dtype that losses compute in.
--
-- reduction is 'mean' (of all elements, or of what counts), 'sum', or 'none': the loss of every element. bf16 is
-- computed in f32 and rounded once, at the end.
-- @internal wane.nn.reduction

local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local methods, raise = tensor.methods, errors.raise

local reduction = {}

local WAYS = { mean = methods.mean, sum = methods.sum, none = function(x) return x end }

--- Returns the way of reducing that the options name, 'mean' unless given.
-- @param opts checked options
-- @param what opens the message
-- @param ways table whose keys are the names (WAYS unless given)
-- @raise 'value' for another name
function reduction.of(opts, what, ways)
    ways = ways or WAYS
    local name = opts.reduction
    if name == nil then return 'mean' end
    if type(name) ~= 'string' or not ways[name] then
        raise(nil, 'value', "%s: unknown reduction %s; %s", what, errors.describe(name), errors.near(name, ways))
    end
    return name
end

--- Returns losses reduced in one of the three ways.
-- @param x tensor of the losses of all elements
-- @param name 'mean', 'sum' or 'none'
function reduction.apply(x, name)
    return WAYS[name](x)
end

--- Raises unless a and b are float tensors of one shape.
-- @param a value that was given
-- @param b value that was given
-- @param what opens the message: 'nn.l1_loss'
-- @raise 'value', 'shape' or 'dtype'
function reduction.check_pair(a, b, what)
    if not tensor.is(a) or not tensor.is(b) then
        raise(nil, 'value', '%s: expected two tensors, got %s and %s', what, errors.describe(a), errors.describe(b))
    end
    if tensor.shape_text(tensor.typed(a)._dims) ~= tensor.shape_text(tensor.typed(b)._dims) then
        raise(nil, 'shape', '%s: %s and %s differ in shape; a loss does not broadcast', what, tensor.describe(a),
            tensor.describe(b))
    end
    for _, t in ipairs { a, b } do
        if not tensor.is_float[t._dtype] then
            raise(nil, 'dtype', "%s: both must be floats, got %s; write t:to 'f32'", what, tensor.describe(t))
        end
    end
end

--- Returns a number from the options that lies within limits.
-- @param opts checked options
-- @param name of the option
-- @param default number where it is not given
-- @param limits {least, most}; most may be math.huge, which is not allowed itself
-- @param what opens the message
-- @raise 'value'
function reduction.number(opts, name, default, limits, what)
    local v = opts[name]
    if v == nil then return default end
    if type(v) ~= 'number' or not (v >= limits[1] and v <= limits[2]) or v == math.huge then
        raise(nil, 'value', '%s: %s must be a number from %g%s, got %s', what, name, limits[1],
            limits[2] < math.huge and (' to %g'):format(limits[2]) or '', errors.describe(v))
    end
    return v
end

--- Returns t in the dtype that losses of several ops are computed in: f32 for bf16 and inside wane.autocast.
-- @param t float tensor
function reduction.wide(t)
    return tensor.widened(op.wide(t))
end

--- Returns the loss y, computed with `wide`, in the dtype that the op of x alone would give it.
-- @param y tensor
-- @param x float tensor as it was given
function reduction.like(y, x)
    return y:to(op.wide(x).dtype)
end

return reduction
