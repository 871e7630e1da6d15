--- Gradients: running a backward pass, recording one, and turning recording for gradients off.
--
-- `backward` is a run point: forward and backward run as one program and the gradients stay in their cells.
-- `grad` only records: what it returns are ordinary tensors.
-- @module wane.program.grad

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local upkeep = require 'wane.gc'
local within = require 'wane.scoped'

local C = binding.C
local methods, raise = tensor.methods, errors.raise
local ipairs, type = ipairs, type

local grad = {}

local OPTIONS = { 'again', 'policy', 'budget', 'scale' }

--- The policy of a call from its options {policy =, budget =}: the policy's words bind what the budget chooses; nil
-- without either.
function grad.policy(opts)
    if opts.budget ~= nil then return require('wane.policy').within_budget(opts.policy, opts.budget) end
    if opts.policy ~= nil then return require('wane.policy').of(opts.policy) end
    return nil
end

--- Refuses what cannot be the root of a backward pass.
function grad.check_root(t, what)
    tensor.need_self(t, what)
    if tensor.count(tensor.typed(t)._dims) ~= 1 then
        raise(nil, 'shape', '%s: the root must have one element, got %s; write loss:mean() or loss:sum()', what,
            tensor.describe(t))
    end
end

--- loss:backward{again =, policy =, budget =}: gradients of the loss added into the cells' gradients.
function methods.backward(t, opts)
    grad.check_root(t, 'backward')
    opts = errors.check_options(opts, OPTIONS, 'backward')
    require('wane.program').run {
        mode = 'backward', roots = { t }, again = opts.again, scale = opts.scale,
        policy = grad.policy(opts),
    }
    upkeep.warn()
end

--- wane.backward({l1, l2}, opts): one pass for several losses, shared parts once.
function grad.backward(list, opts)
    if tensor.is(list) then list = { list } end
    if type(list) ~= 'table' or #list == 0 then
        raise(nil, 'value', 'wane.backward: expected a list of losses, got %s', errors.describe(list))
    end
    opts = errors.check_options(opts, OPTIONS, 'wane.backward')
    local roots = {}
    for k, t in ipairs(list) do
        grad.check_root(t, 'wane.backward')
        roots[k] = t
    end
    require('wane.program').run {
        mode = 'backward', roots = roots, joint = true, again = opts.again, scale = opts.scale,
        policy = grad.policy(opts),
    }
    upkeep.warn()
end

--- wane.eval(a, b, ...): runs until all are there; returns them.
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

--- wane.grad(loss, {w, b}): records the gradients of loss; a list (or one tensor for one tensor).
-- @param loss a tensor of one element
-- @param wrt leaves or values
-- @param opts {allow_unused = true}: zeros for what loss does not depend on, instead of an error
function grad.grad(loss, wrt, opts)
    grad.check_root(loss, 'wane.grad')
    opts = errors.check_options(opts, { 'allow_unused' }, 'wane.grad')
    within.sync()
    local list = tensor.is(wrt) and { wrt } or wrt
    if type(list) ~= 'table' or #list == 0 then
        raise(nil, 'value', 'wane.grad: expected a list of tensors, got %s', errors.describe(wrt))
    end
    local ids = {}
    for k, t in ipairs(list) do ids[k] = tensor.id(t, 'wane.grad') end
    local n = #ids
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

--- wane.no_grad(fn, ...): calls fn; what it records needs no gradient.
function grad.no_grad(fn, ...)
    if type(fn) ~= 'function' then
        raise(nil, 'value', 'wane.no_grad: expected a function, got %s', errors.describe(fn))
    end
    return within('grad', 0, fn, ...)
end

return grad
