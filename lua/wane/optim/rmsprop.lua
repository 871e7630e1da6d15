--- optim.RMSprop(params, {lr = 1e-2, alpha = 0.99, eps = 1e-8, momentum = 0, weight_decay = 0, clip_norm =}): steps
-- divided by a running root mean square of the gradients, by PyTorch's rule.
--
-- With gradient g and the states v and buf, both at first 0:
--
--     g = g + weight_decay p;  v = alpha v + (1 - alpha) g^2
--     p = p - lr g / (sqrt(v) + eps)
--     with momentum:  buf = momentum buf + g / (sqrt(v) + eps);  p = p - lr buf
--
-- Without momentum there is no buf. Whether there is momentum is settled at construction. `centered` is not supported.
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
    defaults = { lr = 1e-2, alpha = 0.99, eps = 1e-8, momentum = 0, weight_decay = 0 },
    limits = { lr = { 0 }, alpha = { 0, 1 }, eps = { 0 }, momentum = { 0 }, weight_decay = { 0 } },
}

local PLAIN = { op = 'rmsprop', states = { 'v' } }
local MOMENTUM = { op = 'rmsprop_momentum', states = { 'v', 'momentum' } }

--- Returns the options; raises 'unsupported' for centered.
-- @within Internal
function class.options(opts)
    if opts.centered then
        errors.raise(nil, 'unsupported', 'optim.RMSprop: centered is not supported; leave it out, or use optim.Adam')
    end
    return opts
end

--- Returns the op and the states of an update, by whether there is momentum.
-- @within Internal
function class.prepare(settings)
    return settings.momentum ~= 0 and MOMENTUM or PLAIN
end

--- Sets the numbers of a step: lr, weight decay, alpha, eps, momentum.
-- @within Internal
function class.fill(s, set)
    set(0, s.lr)
    set(1, s.weight_decay)
    set(2, s.alpha)
    set(3, s.eps)
    set(4, s.momentum)
end

return Optimizer.class(class)
