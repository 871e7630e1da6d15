--- Losses of elements: what a tensor differs from a target of the same shape.
--
-- A loss does not broadcast. The mean is over all elements. What is composed of several ops is computed in f32 where
-- the operands are bf16, and rounded once.
-- @module wane.nn.distances

local arith = require 'wane.tensor.arith'
local custom = require 'wane.program.custom'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local reduction = require 'wane.nn.reduction'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local raise, where = errors.raise, arith.where

local distances = {}

local ONLY_REDUCTION = { 'reduction' }

local function squares(a, b)
    local d = a - b
    return d * d
end

local function mean_of_squares(a, b) return tensor.methods.mean(squares(a, b)) end

-- Returns elements(a, b, ...) of the operands in the dtype that losses are computed in, reduced.
local function reduced(how, elements, a, b, ...)
    return reduction.like(how(elements(reduction.wide(a), reduction.wide(b), ...)), a)
end

-- Returns the options of the loss `what` of a and b, checked, and how it is reduced.
local function begin(a, b, opts, allowed, what)
    opts = errors.check_options(opts, allowed, what)
    reduction.check_pair(a, b, what)
    return opts, reduction.of(opts, what)
end

-- Records a loss of elements in the scope of its function.
local function record(name, way, elements, a, b, ...)
    local function how(x) return reduction.apply(x, way) end
    return scoped('scope', module.function_scope(name), reduced, how, elements, a, b, ...)
end

--- Returns the mean of (a - b)^2.
-- @param a float tensor
-- @param b tensor of the same shape
-- @param opts {reduction = 'mean', 'sum' or 'none'}
-- @return 0-d tensor, or one of the shape of a with 'none'
-- @raise 'shape' when the shapes differ: a loss does not broadcast
-- @usage print(nn.mse_loss(wane.tensor { 1, 2 }, wane.tensor { 1, 4 }):item()) --> 2
function distances.mse_loss(a, b, opts)
    local _, way = begin(a, b, opts, ONLY_REDUCTION, 'nn.mse_loss')
    if way ~= 'mean' then return record('mse_loss_' .. way, way, squares, a, b) end
    return scoped('scope', module.function_scope 'mse_loss', mean_of_squares, op.wide(a), op.wide(b))
end

local function absolute(a, b)
    return (a - b):abs()
end

--- Returns the mean of |a - b|.
-- @param a float tensor
-- @param b tensor of the same shape
-- @param opts {reduction = 'mean', 'sum' or 'none'}
-- @return 0-d tensor, or one of the shape of a with 'none'
-- @raise 'shape' when the shapes differ
-- @usage print(nn.l1_loss(wane.tensor { 1, 2 }, wane.tensor { 1, 4 }):item()) --> 1
function distances.l1_loss(a, b, opts)
    local _, way = begin(a, b, opts, ONLY_REDUCTION, 'nn.l1_loss')
    return record('l1_loss', way, absolute, a, b)
end

-- Returns d^2 / (2 beta) where d = |a - b| < beta, else d - beta / 2. With m = min(d, beta) both are
-- m (d - m / 2) / beta, which no large d makes infinite.
local function smooth(a, b, beta)
    local d = (a - b):abs()
    if beta == 0 then return d end
    local m = d:clamp(nil, beta)
    return m * (d - m * 0.5) / beta
end

--- Returns the mean of d^2 / (2 beta) where d = |a - b| is below beta, of d - beta / 2 elsewhere.
-- @param a float tensor
-- @param b tensor of the same shape
-- @param opts {beta = 1: 0 makes it nn.l1_loss; reduction = 'mean', 'sum' or 'none'}
-- @return 0-d tensor, or one of the shape of a with 'none'
-- @raise 'shape' when the shapes differ
-- @usage print(nn.smooth_l1_loss(wane.tensor { 1, 2 }, wane.tensor { 2, 5 }):item()) --> 1.5
function distances.smooth_l1_loss(a, b, opts)
    local what = 'nn.smooth_l1_loss'
    local given, way = begin(a, b, opts, { 'beta', 'reduction' }, what)
    local beta = reduction.number(given, 'beta', 1, { 0, math.huge }, what)
    return record('smooth_l1_loss', way, smooth, a, b, beta)
end

-- Returns the weights `name` of the options in the dtype that losses are computed in, or nil; raises unless they
-- broadcast to the shape of x.
local function weights(opts, name, x, what)
    local w = opts[name]
    if w == nil then return nil end
    if not tensor.is(w) or not tensor.is_float[tensor.typed(w)._dtype] then
        raise(nil, 'value', '%s: %s must be a float tensor, got %s', what, name, errors.describe(w))
    end
    local fits, shift = #w._dims <= #x._dims, #x._dims - #w._dims
    for k = 1, fits and #w._dims or 0 do
        fits = fits and (w._dims[k] == 1 or w._dims[k] == x._dims[k + shift])
    end
    if not fits then
        raise(nil, 'shape', '%s: %s %s does not broadcast to %s', what, name, tensor.describe(w), tensor.describe(x))
    end
    return w
end

-- Returns w in the dtype of x.
local function as(w, x)
    return w and w:to(x.dtype)
end

-- Returns (1 - y) x + (1 + (pos_weight - 1) y) softplus(-x), which no x makes infinite.
local function with_logits(x, y, weight, pos_weight)
    local softplus = (-x):softplus()
    if pos_weight then softplus = softplus * ((as(pos_weight, x) - 1) * y + 1) end
    local loss = (1 - y) * x + softplus
    return weight and loss * as(weight, x) or loss
end

--- Returns the mean of -(y log p + (1 - y) log(1 - p)) with p = sigmoid(x), without the overflow that taking both in
-- turn has.
-- @param x float tensor of logits
-- @param y float tensor of the same shape: targets from 0 to 1
-- @param opts {weight = tensor that broadcasts to x and multiplies every loss; pos_weight = tensor that broadcasts to x
-- and multiplies what y = 1 has; reduction = 'mean', 'sum' or 'none'}
-- @return 0-d tensor, or one of the shape of x with 'none'
-- @raise 'shape' when the shapes differ; 'dtype' for labels of integers
-- @usage print(nn.bce_with_logits(wane.tensor { 0, 200 }, wane.tensor { 1, 1 }, { reduction = 'none' }))
-- --> tensor (2) f32 [0.6931, 0.0000]
function distances.bce_with_logits(x, y, opts)
    local what = 'nn.bce_with_logits'
    local given, way = begin(x, y, opts, { 'weight', 'pos_weight', 'reduction' }, what)
    return record('bce_with_logits', way, with_logits, x, y, weights(given, 'weight', x, what),
        weights(given, 'pos_weight', x, what))
end

-- Returns log p and log(1 - p), none below -100.
local function logs(p)
    return p:log():clamp(-100, nil), (1 - p):log():clamp(-100, nil)
end

-- Cross entropy of probabilities, whose gradient is finite where p is 0 or 1: (p - y) / max(p (1 - p), 1e-12).
local entropy = custom(function(_, p, y)
    local yes, no = logs(p)
    return -(y * yes + (1 - y) * no)
end, function(_, dy, p, y)
    local yes, no = logs(p)
    return dy * (p - y) / (p * (1 - p)):clamp(1e-12, nil), dy * (no - yes)
end)

local function probabilities(p, y, weight)
    local loss = entropy(p, y)
    return weight and loss * as(weight, p) or loss
end

--- Returns the mean of -(y log p + (1 - y) log(1 - p)). A logarithm is at least -100, as in PyTorch.
-- nn.bce_with_logits(x, y) takes what would go into the sigmoid, and is exact for large ones.
-- @param p float tensor of probabilities
-- @param y float tensor of the same shape: targets from 0 to 1
-- @param opts {weight = tensor that broadcasts to p and multiplies every loss; reduction = 'mean', 'sum' or 'none'}
-- @return 0-d tensor, or one of the shape of p with 'none'
-- @raise 'shape' when the shapes differ; 'dtype' for labels of integers
-- @usage print(nn.bce(wane.tensor { 0.5, 0 }, wane.tensor { 0, 1 }, { reduction = 'none' }))
-- --> tensor (2) f32 [  0.6931, 100.0000]
function distances.bce(p, y, opts)
    local what = 'nn.bce'
    local given, way = begin(p, y, opts, { 'weight', 'reduction' }, what)
    return record('bce', way, probabilities, p, y, weights(given, 'weight', p, what))
end

-- Returns t (log t - x), 0 where t is 0; is_log: t is given by its logarithm.
local function divergence(x, t, is_log)
    if is_log then return t:exp() * (t - x) end
    return t * where(t:eq(0), 1, t):log() - t * x
end

local KL_WAYS = { mean = true, sum = true, none = true, batchmean = true }

--- Returns the mean over all elements of t (log t - x): the Kullback-Leibler divergence of the distribution t from the
-- one whose logarithms are x. With reduction = 'batchmean' it is the divergence itself, averaged over the first dim.
-- @param x float tensor of logarithms of probabilities
-- @param t float tensor of the same shape: probabilities
-- @param opts {log_target = false: t is given by its logarithm; reduction = 'mean', 'batchmean', 'sum' or 'none'}
-- @return 0-d tensor, or one of the shape of x with 'none'
-- @raise 'shape' when the shapes differ
-- @usage
-- local p = wane.tensor { { 0.5, 0.5 } }
-- print(nn.kl_div(wane.tensor({ { 0, 0 } }):log_softmax(-1), p, { reduction = 'batchmean' }):item()) --> 0
function distances.kl_div(x, t, opts)
    local what = 'nn.kl_div'
    opts = errors.check_options(opts, { 'log_target', 'reduction' }, what, { 'log_target' })
    local way = reduction.of(opts, what, KL_WAYS)
    reduction.check_pair(x, t, what)
    if way ~= 'batchmean' then return record('kl_div', way, divergence, x, t, opts.log_target) end
    local rows = x._dims[1] or raise(nil, 'shape', "%s: 'batchmean' needs a first dim, got %s", what,
        tensor.describe(x))
    local function batch_mean(y) return y:sum() / rows end
    return scoped('scope', module.function_scope 'kl_div', reduced, batch_mean, divergence, x, t, opts.log_target)
end

return errors.strict(distances, 'nn.%s(...)')
