--- Gradients: running a backward pass, recording one, and turning recording for gradients off.
--
-- `backward` is a run point: forward and backward run as one program, and the gradients stay in their cells. `grad`
-- only records: it returns ordinary tensors.
-- @module wane.program.grad

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C = binding.C
local methods, raise = tensor.methods, errors.raise

local grad = {}

local OPTIONS = { 'again', 'policy', 'budget', 'scale' }

--- Returns the policy of a call's options {policy =, budget =}, or nil without either. The policy's decisions bind
-- those that the budget makes.
-- @within Internal
function grad.policy(opts)
    if opts.budget ~= nil then return require('wane.policy').within_budget(opts.policy, opts.budget) end
    if opts.policy ~= nil then return require('wane.policy').of(opts.policy) end
    return nil
end

--- Raises 'shape' unless t can be the root of a backward pass: a tensor of one element.
-- @within Internal
function grad.check_root(t, what)
    tensor.id(t, what)
    if tensor.count(tensor.typed(t)._dims) ~= 1 then
        raise(nil, 'shape', '%s: the root must have one element, got %s; write loss:mean() or loss:sum()%s', what,
            tensor.describe(t), what == 'backward' and ', or give loss:backward{gradient = g}' or '')
    end
end

local WITH_GRADIENT = { 'again', 'policy', 'budget', 'scale', 'gradient' }

-- Returns a root of one element whose gradient in t is `gradient`. t is kept, as a root is.
local function weighed(t, gradient)
    if not tensor.is(gradient) then
        raise(nil, 'value', 'backward: gradient must be a tensor %s, got %s', tensor.describe(t),
            errors.describe(gradient))
    end
    tensor.typed(gradient)
    local same = tensor.shape_text(gradient._dims) == tensor.shape_text(t._dims)
    if not same or gradient._dtype ~= t._dtype then
        raise(nil, same and 'dtype' or 'shape', 'backward: the gradient is %s, the root is %s; they must be alike',
            tensor.describe(gradient), tensor.describe(t))
    end
    return methods.sum(methods.retain(t) * methods.detach(gradient))
end

--- Computes the gradients of a loss and adds them to those of the leaves (`w.grad`). A run point.
-- @param t tensor of one element; with `gradient`, of any shape
-- @param opts {policy =, budget = bytes or text such as '2GiB', scale = factor of the gradients, again = true: keeps
-- the graph, so that a second backward of the same loss is possible, gradient = tensor like t: the gradient of t}
-- @raise 'shape' when the loss has more than one element; 'value' when it ran on the loss before without `again`
-- @usage
-- local w = wane.tensor({ 1, 2 }, { requires_grad = true })
-- local square = (w * w):sum()
-- square:backward()
-- print(w.grad) --> tensor (2) f32 [2., 4.]
-- loss:backward { policy = 'recompute_all' }
-- w.grad = nil
-- local squares = w * w
-- squares:backward { gradient = wane.tensor { 1, 10 } }
-- print(w.grad) --> tensor (2) f32 [ 2., 40.]
function methods.backward(t, opts)
    tensor.need_self(t, 'backward')
    opts = errors.check_options(opts, WITH_GRADIENT, 'backward')
    tensor.typed(t)
    if opts.gradient ~= nil then t = weighed(t, opts.gradient) end
    grad.check_root(t, 'backward')
    op.run {
        mode = 'backward', roots = { t }, again = opts.again, scale = opts.scale,
        policy = grad.policy(opts),
    }
end

--- Computes the gradients of several losses in one pass, with the parts that they share once. A run point.
-- @param list list of tensors of one element
-- @param opts {policy =, budget = bytes or text such as '2GiB', scale = factor of the gradients, again = true: keeps
-- the graph, so that a second backward of the same loss is possible}
-- @raise 'shape' when the loss has more than one element; 'value' when it ran on the loss before without `again`
-- @usage
-- local hidden = model[1](x)
-- wane.backward { hidden:mean(), (hidden * hidden):mean() }
-- print(model[1].weight.grad.shape) --> (16, 8)
function grad.backward(list, opts)
    if tensor.is(list) then list = { list } end
    local n = errors.list(list, 'wane.backward', 'losses', 1, OPTIONS)
    opts = errors.check_options(opts, OPTIONS, 'wane.backward')
    local roots = {}
    for k = 1, n do
        grad.check_root(list[k], 'wane.backward')
        roots[k] = list[k]
    end
    op.run {
        mode = 'backward', roots = roots, joint = true, again = opts.again, scale = opts.scale,
        policy = grad.policy(opts),
    }
end

--- Computes tensors in one program, and keeps their values. Returns them.
-- @param ... tensors
-- @usage
-- local mean, largest = wane.eval(x:mean(), x:max())
-- print(mean:item() < largest:item()) --> true
function grad.eval(...)
    local roots, given = {}, { ... }
    for k = 1, select('#', ...) do
        local t = given[k]
        if not tensor.is(t) then
            raise(nil, 'value', 'wane.eval: argument %d must be a tensor, got %s', k, errors.describe(t))
        end
        roots[k] = t
    end
    if #roots > 0 then op.eval(roots) end
    return ...
end

--- Records the gradients of a loss along every path to the entries of wrt; runs nothing.
-- @param loss tensor of one element
-- @param wrt list of tensors, or one: leaves, data, results, values that were recorded; they need no gradient else
-- @param opts {allow_unused = true}: zeros for what the loss does not depend on, instead of an error
-- @return list of tensors with the shapes of wrt; one tensor where wrt is one
-- @raise 'shape' when the loss has more elements; 'value' when it does not depend on an entry, or is built on a value
-- without gradient that was made of an entry and then read or evaluated, which let go of what it was made of
-- @usage
-- local w = wane.tensor({ 1, 2 }, { requires_grad = true })
-- print(wane.grad((w * w):sum(), w)) --> tensor (2) f32 [2., 4.]
-- local v = wane.tensor { 3, 5 }
-- print(wane.grad((v * v):sum() + v:sum(), v)) --> tensor (2) f32 [ 7., 11.]
function grad.grad(loss, wrt, opts)
    grad.check_root(loss, 'wane.grad')
    opts = errors.check_options(opts, { 'allow_unused' }, 'wane.grad')
    scoped.sync()
    local list = tensor.is(wrt) and { wrt } or wrt
    local ids, n = {}, errors.list(list, 'wane.grad', 'tensors', 1, { 'allow_unused' })
    for k = 1, n do ids[k] = tensor.id(list[k], 'wane.grad') end
    local out = binding.handles(n)
    binding.check(C.wn_grad(loss.id, n, binding.handles(n, ids), out))
    local grads, unused = {}, nil
    for k = 1, n do
        if out[k - 1] >= 0 then
            grads[k] = tensor.wrap(out[k - 1])
        elseif opts.allow_unused then
            grads[k] = require('wane.tensor.create').zeros(list[k]._dims, { dtype = list[k].dtype })
        else
            unused = unused or k
        end
    end
    if unused then
        raise(nil, 'value', 'wane.grad: the loss does not depend on entry %d, %s; pass {allow_unused = true} to '
            .. 'get zeros there', unused, tensor.describe(list[unused]))
    end
    if tensor.is(wrt) then return grads[1] end
    return grads
end

--- Calls fn(...) and returns its results; the nodes that fn records need no gradient.
-- @param fn function or module
-- @param ... its arguments
-- @usage
-- local y = wane.no_grad(model, x)
-- print(y.requires_grad) --> false
function grad.no_grad(fn, ...)
    if not errors.is_callable(fn) then
        raise(nil, 'value', 'wane.no_grad: expected a function, got %s', errors.describe(fn))
    end
    return scoped('grad', 0, fn, ...)
end

return grad
