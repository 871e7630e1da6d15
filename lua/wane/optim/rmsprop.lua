--- optim.RMSprop(params, {lr = 1e-2, alpha = 0.99, eps = 1e-8, momentum = 0, weight_decay = 0, centered = false,
-- clip_norm =}): steps divided by a running root mean square of the gradients, by PyTorch's rule.
--
-- With gradient g and the states v and buf, both at first 0:
--
--     g = g + weight_decay p;  v = alpha v + (1 - alpha) g^2
--     p = p - lr g / (sqrt(v) + eps)
--     with momentum:  buf = momentum buf + g / (sqrt(v) + eps);  p = p - lr buf
--     centered:       mean = alpha mean + (1 - alpha) g;  p = p - lr g / (sqrt(v - mean^2) + eps)
--
-- Without momentum there is no buf, and mean is kept where it is centered alone. Both are settled at construction;
-- centered with momentum is not supported. Gradients that hardly change make v - mean^2 less than what v is rounded by;
-- PyTorch's rule makes NaN then, and so does this one.
-- (Tieleman and Hinton, "Lecture 6.5: RMSProp", 2012.)
-- @module wane.optim.rmsprop
-- @usage
-- local rmsprop = optim.RMSprop(model:parameters(), { lr = 0.01, momentum = 0.9 })
-- rmsprop:step(loss)

local errors = require 'wane.errors'
local Optimizer = require 'wane.optim.optimizer'

local class = {
    name = 'optim.RMSprop',
    allowed = { 'lr', 'alpha', 'eps', 'momentum', 'weight_decay', 'centered', 'clip_norm' },
    defaults = { lr = 1e-2, alpha = 0.99, eps = 1e-8, momentum = 0, weight_decay = 0, centered = false },
    limits = { lr = { 0 }, alpha = { 0, 1 }, eps = { 0 }, momentum = { 0 }, weight_decay = { 0 } },
}

local PLAIN = { op = 'rmsprop', states = { 'v' } }
local MOMENTUM = { op = 'rmsprop_momentum', states = { 'v', 'momentum' } }
local CENTERED = { op = 'rmsprop_centered', states = { 'v', 'mean' } }

--- Returns the op and the states of an update, by whether there is momentum and whether it is centered; raises
-- 'unsupported' for both.
-- @within Internal
function class.prepare(settings)
    if settings.centered and settings.momentum ~= 0 then
        errors.raise(nil, 'unsupported', '%s: centered with momentum = %g is not supported; leave one of them out, or '
            .. 'use optim.Adam', class.name, settings.momentum)
    end
    return settings.centered and CENTERED or settings.momentum ~= 0 and MOMENTUM or PLAIN
end

--- Returns the numbers of a step: lr, weight decay, alpha, eps, momentum.
-- @within Internal
function class.numbers(s)
    return { s.lr, s.weight_decay, s.alpha, s.eps, s.momentum }
end

return Optimizer.class(class)
