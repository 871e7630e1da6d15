--- wane.custom(forward, backward): a function with a gradient of the script's own.
--
-- Both record. The backward is called once, when the function is, with a placeholder for dy; the library keeps the
-- nodes that it records and issues them again for the gradient that arrives, wherever that is (runtime/graph/custom.c).
-- So it records the same ops for every dy and cannot read values. Policies, regions and budgets treat its values like
-- any others.
-- @module wane.program.custom

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'
require 'wane.program' -- the kind 'capture'

local C, raise = binding.C, errors.raise

local what = 'wane.custom'

local function refuse_read()
    raise(nil, 'value', '%s: the backward reads or runs a value (item, totable, print, eval); it is recorded once, '
        .. 'before there is any dy, so write it in tensor operations', what)
end

local function pack(...)
    return { n = select('#', ...), ... }
end

-- Returns the gradients that the backward records, one for each argument, and the placeholder for dy.
local function record_backward(backward, ctx, y, args)
    local dy = create.zeros(y._dims, { dtype = y.dtype, device = y.device })
    local given = pack(scoped('capture', refuse_read, backward, ctx, dy, unpack(args, 1, args.n)))
    if given.n > args.n then
        raise(nil, 'value', '%s: the backward returned %d gradients for %d arguments', what, given.n, args.n)
    end
    for k = 1, args.n do
        if given[k] ~= nil and not (tensor.is(given[k]) and tensor.is(args[k])) then
            raise(nil, 'value', '%s: the backward must return a tensor or nil as the gradient of argument %d%s, got %s',
                what, k, tensor.is(args[k]) and '' or ', which is no tensor', errors.describe(given[k]))
        end
    end
    return given, dy
end

local function apply(forward, backward, args)
    local ctx = { saved = {} }
    local y = scoped('grad', 0, forward, ctx, unpack(args, 1, args.n))
    if not tensor.is(y) then
        raise(nil, 'value', '%s: the forward must return a tensor, got %s', what, errors.describe(y))
    end
    local x, r = {}, {}
    for k = 1, args.n do
        if tensor.is(args[k]) then x[#x + 1] = args[k].id end
    end
    if #x == 0 or not op.is_tracking() then return y end
    local given, dy = record_backward(backward, ctx, tensor.typed(y), args)
    for k = 1, args.n do
        if tensor.is(args[k]) then r[#r + 1] = given[k] and given[k].id or -1 end
    end
    return tensor.wrap(binding.id(C.wn_custom(y.id, #x, binding.handles(#x, x), dy.id, binding.handles(#r, r),
        op.lines() and op.line() or 0)))
end

--- Makes a function whose value `forward` records and whose gradients `backward` records.
-- The gradient that `backward` records can be differentiated again (wane.grad of wane.grad), unless it reads a value
-- that forward computed and put into ctx.saved: that raises 'unsupported'; the arguments and the result may be read.
-- Neither function is differentiated otherwise: tensors that forward takes from around it get no gradient.
-- @function wane.custom
-- @param forward function(ctx, ...) that returns a tensor; it may put tensors into the list ctx.saved, and anything
-- else into ctx
-- @param backward function(ctx, dy, ...), with the same arguments, that returns the gradient of each, nil for none;
-- called once at every call of the function, whatever is differentiated later
-- @return function(...)
-- @usage
-- local square = wane.custom(function(_, a) return a * a end, function(_, dy, a) return dy * a * 2 end)
-- local w = wane.tensor({ 1, 2 }, { requires_grad = true })
-- square(w):sum():backward()
-- print(w.grad) --> tensor (2) f32 [2., 4.]
return function(forward, backward)
    if type(forward) ~= 'function' or type(backward) ~= 'function' then
        raise(nil, 'value', '%s: expected two functions, forward and backward, got %s and %s', what,
            errors.describe(forward), errors.describe(backward))
    end
    return function(...)
        return apply(forward, backward, pack(...))
    end
end
