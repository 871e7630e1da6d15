--- Losses: functions that record a 0-d tensor.
--
-- Labels are i32 and 0-based. The mean is over all elements, or over the labels that are not ignore_index.
-- @module wane.nn.losses

local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local id, raise = op.id, errors.raise
local methods = tensor.methods
local LOG_SOFTMAX, NLL = id.log_softmax, id.nll

local losses = {}

local OPTIONS = { 'ignore_index' }

local function ignore_index(opts, what)
    if opts == nil then return -100 end
    opts = errors.check_options(opts, OPTIONS, what)
    local v = opts.ignore_index
    if v == nil then return -100 end
    if type(v) ~= 'number' or v % 1 ~= 0 or v < -2 ^ 31 or v >= 2 ^ 31 then
        raise(nil, 'value', '%s: ignore_index must be an integer of 32 bits, got %s', what, errors.describe(v))
    end
    return v
end

local function check(x, labels, what)
    if not tensor.is(x) or not tensor.is(labels) then
        raise(nil, 'value', '%s: expected tensors (..., classes) and labels (...), got %s and %s', what,
            errors.describe(x), errors.describe(labels))
    end
    local a, b = tensor.typed(x)._dims, tensor.typed(labels)._dims
    local fits = #a == #b + 1
    for k = 1, #b do fits = fits and a[k] == b[k] end
    if not fits then
        raise(nil, 'shape', '%s: %s and labels %s do not fit; expected (..., classes) and labels (...)', what,
            tensor.describe(x), tensor.describe(labels))
    end
    if tensor.is_float[labels._dtype] then
        raise(nil, 'dtype', "%s: labels must be integers, got %s; write labels:to 'i32'", what,
            tensor.describe(labels))
    end
end

local function nll(logp, labels, index)
    local at = op.attrs()
    at.n = 1
    at.i[0] = index
    return op.binary(NLL, logp, labels, at)
end

local function log_softmax_nll(logits, labels, index)
    local at = op.attrs()
    at.n = 1
    at.i[0] = logits._ndim - 1
    return nll(op.unary(LOG_SOFTMAX, logits, at), labels, index)
end

--- Returns the mean of -log softmax(logits)[label].
-- @param logits tensor (..., C)
-- @param labels i32 tensor (...), 0-based
-- @param opts {ignore_index = -100}: the label of rows that the mean leaves out
-- @return 0-d tensor
-- @raise 'shape' or 'dtype' when logits and labels do not fit
-- @usage print(nn.cross_entropy(model(x), y).shape) --> ()
function losses.cross_entropy(logits, labels, opts)
    local index = ignore_index(opts, 'nn.cross_entropy')
    check(logits, labels, 'nn.cross_entropy')
    return scoped('scope', module.function_scope 'cross_entropy', log_softmax_nll, logits, labels, index)
end

--- Returns the mean of -logp[label].
-- @param logp tensor (..., C) of logarithms of probabilities
-- @param labels i32 tensor (...), 0-based
-- @param opts {ignore_index = -100}: the label of rows that the mean leaves out
-- @return 0-d tensor
-- @usage print(nn.nll_loss(model(x):log_softmax(-1), y):item() == loss:item()) --> true
function losses.nll_loss(logp, labels, opts)
    local index = ignore_index(opts, 'nn.nll_loss')
    check(logp, labels, 'nn.nll_loss')
    return nll(logp, labels, index)
end

local function mean_of_squares(a, b)
    local d = a - b
    return methods.mean(d * d)
end

--- Returns the mean of (a - b)^2.
-- @param a float tensor
-- @param b tensor of the same shape
-- @return 0-d tensor
-- @raise 'shape' when the shapes differ: a loss does not broadcast
-- @usage print(nn.mse_loss(wane.tensor { 1, 2 }, wane.tensor { 1, 4 }):item()) --> 2
function losses.mse_loss(a, b)
    if not tensor.is(a) or not tensor.is(b) then
        raise(nil, 'value', 'nn.mse_loss: expected two tensors, got %s and %s', errors.describe(a),
            errors.describe(b))
    end
    if tensor.shape_text(tensor.typed(a)._dims) ~= tensor.shape_text(tensor.typed(b)._dims) then
        raise(nil, 'shape', 'nn.mse_loss: %s and %s differ in shape; a loss does not broadcast',
            tensor.describe(a), tensor.describe(b))
    end
    return scoped('scope', module.function_scope 'mse_loss', mean_of_squares, op.wide(a), op.wide(b))
end

return losses
