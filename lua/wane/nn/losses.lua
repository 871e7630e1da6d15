--- Losses of classes: labels against scores or logarithms of probabilities.
--
-- Labels are i32 and 0-based. The mean is over the labels that are not ignore_index, each with the weight of its class.
-- Every form of a loss is made of three nodes: the statistics of each row of logits, the loss of each row, and the
-- count of the labels, by which a mean divides the sum. No probability is written.
-- @module wane.nn.losses

local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local reduction = require 'wane.nn.reduction'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local id, raise = op.id, errors.raise
local ROW_STATS, ROW_NLL, ROW_COUNT = id.row_stats, id.row_nll, id.row_count
local I32 = tensor.dtype_id.i32

local losses = {}

local OPTIONS = { 'ignore_index', 'weight', 'reduction' }
local SMOOTH_OPTIONS = { 'ignore_index', 'weight', 'reduction', 'label_smoothing' }
local PLAIN = { index = -100, reduction = 'mean', smoothing = 0 }

local function ignore_index(v, what)
    if v == nil then return -100 end
    if type(v) ~= 'number' or v % 1 ~= 0 or v < -2 ^ 31 or v >= 2 ^ 31 then
        raise(nil, 'value', '%s: ignore_index must be an integer of 32 bits, got %s', what, errors.describe(v))
    end
    return v
end

-- Raises unless x: (..., C) and labels: (...) fit.
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

-- Raises unless weight is nil or a number for each of the classes of x.
local function check_weight(weight, x, what)
    if weight == nil then return end
    local classes = x._dims[#x._dims]
    if not tensor.is(weight) or not tensor.is_float[tensor.typed(weight)._dtype] or #weight._dims ~= 1
        or weight._dims[1] ~= classes then
        raise(nil, tensor.is(weight) and 'shape' or 'value',
            '%s: weight must be a float tensor with a number for each class, (%d), got %s', what, classes,
            errors.describe(weight))
    end
    if weight.requires_grad then
        raise(nil, 'unsupported', '%s: the weights of classes get no gradient; write weight:detach()', what)
    end
end

-- Returns how a loss is taken: { index =, weight =, reduction =, smoothing = }.
local function how(x, opts, allowed, what)
    if opts == nil then return PLAIN end
    opts = errors.check_options(opts, allowed, what)
    check_weight(opts.weight, x, what)
    return {
        index = ignore_index(opts.ignore_index, what), weight = opts.weight, reduction = reduction.of(opts, what),
        smoothing = reduction.number(opts, 'label_smoothing', 0, { 0, 1 }, what),
    }
end

-- Records the count of the labels, or the sum of their weights, as a number of a dtype.
local function count(labels, weight, index, dtype)
    local at = op.attrs()
    at.n, at.i[0], at.dtype = 1, index, tensor.dtype_id[dtype]
    return weight and op.binary(ROW_COUNT, labels, weight, at) or op.unary(ROW_COUNT, labels, at)
end

-- Returns the loss of rows of logits, or of logarithms of probabilities.
local function row_losses(given, labels, o, is_logits)
    local x = op.wide(given)
    local dtype = x.dtype == 'f64' and 'f64' or 'f32'
    if labels._dtype ~= I32 then labels = labels:to 'i32' end
    local weight = o.weight and o.weight:to(dtype)
    local inputs = { x, labels }
    if is_logits then inputs[3] = op.unary(ROW_STATS, x) end
    inputs[#inputs + 1] = weight
    local at = op.attrs()
    at.n, at.i[0], at.i[1], at.f[0] = 2, o.index, is_logits and 1 or 0, o.smoothing
    local loss = op.record(ROW_NLL, inputs, at)
    if o.reduction ~= 'none' then loss = loss:sum() end
    if o.reduction == 'mean' then loss = loss / count(labels, weight, o.index, dtype) end
    return loss.dtype == x.dtype and loss or loss:to(x.dtype) -- bf16 is rounded once
end

--- Returns the mean of -log softmax(logits)[label], each with the weight of its class.
-- @param logits tensor (..., C)
-- @param labels tensor (...) of integers, 0-based
-- @param opts {ignore_index = -100: the label of rows that do not count; weight = tensor (C) of the classes' weights,
-- over whose sum the mean is; label_smoothing = 0: the share of the target that all classes have in equal parts;
-- reduction = 'mean', 'sum' or 'none', where rows that do not count are 0}
-- @return 0-d tensor, or (...) with 'none'
-- @raise 'shape' or 'dtype' when logits, labels and weight do not fit
-- @usage
-- print(nn.cross_entropy(model(x), y).shape) --> ()
-- print(nn.cross_entropy(model(x), y, { label_smoothing = 0.1, reduction = 'none' }).shape) --> (2)
function losses.cross_entropy(logits, labels, opts)
    check(logits, labels, 'nn.cross_entropy')
    local o = how(logits, opts, SMOOTH_OPTIONS, 'nn.cross_entropy')
    return scoped('scope', module.function_scope 'cross_entropy', row_losses, logits, labels, o, true)
end

--- Returns the mean of -logp[label], each with the weight of its class.
-- @param logp tensor (..., C) of logarithms of probabilities
-- @param labels tensor (...) of integers, 0-based
-- @param opts {ignore_index = -100, weight =, reduction = 'mean'}, as those of nn.cross_entropy
-- @return 0-d tensor, or (...) with 'none'
-- @usage print(nn.nll_loss(model(x):log_softmax(-1), y):item() == loss:item()) --> true
function losses.nll_loss(logp, labels, opts)
    check(logp, labels, 'nn.nll_loss')
    local o = how(logp, opts, OPTIONS, 'nn.nll_loss')
    return scoped('scope', module.function_scope 'nll_loss', row_losses, logp, labels, o, false)
end

return errors.strict(losses, 'nn.%s(...)')
