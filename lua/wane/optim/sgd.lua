--- optim.SGD(params, {lr = 1e-3, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0, clip_norm =}):
-- stochastic gradient descent by PyTorch's rule.
--
-- With gradient g and the state buf:
--
--     g = g + weight_decay p;  buf = g at the first step, else momentum buf + (1 - dampening) g
--     p = p - lr (nesterov ? g + momentum buf : buf)
--
-- Without momentum there is no state, and p = p - lr g. Whether there is momentum is settled at construction.
-- @module wane.optim.sgd
-- @usage
-- local sgd = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
-- sgd:step(loss)
-- sgd.lr = 0.05

local errors = require 'wane.errors'
local Optimizer = require 'wane.optim.optimizer'

local class = {
    name = 'optim.SGD',
    allowed = { 'lr', 'momentum', 'dampening', 'nesterov', 'weight_decay', 'clip_norm' },
    defaults = { lr = 1e-3, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0 },
    limits = { lr = { 0 }, momentum = { 0 }, dampening = { -1 / 0 }, weight_decay = { 0 } },
}

local PLAIN = { op = 'sgd', states = {} }
local MOMENTUM = { op = 'momentum', states = { 'momentum' } }

--- Raises 'value' for nesterov without momentum or with dampening.
-- @within Internal
function class.check(opts)
    if opts.nesterov and (opts.momentum or 0) == 0 then
        errors.raise(nil, 'value', 'optim.SGD: nesterov needs a momentum above 0, got %s',
            errors.describe(opts.momentum))
    end
    if opts.nesterov and (opts.dampening or 0) ~= 0 then
        errors.raise(nil, 'value', 'optim.SGD: nesterov needs a dampening of 0, got %s',
            errors.describe(opts.dampening))
    end
end

--- Returns the op and the states of an update, by whether there is momentum.
-- @within Internal
function class.prepare(settings)
    return settings.momentum ~= 0 and MOMENTUM or PLAIN
end

--- Returns the numbers of step t: lr, weight decay, momentum, dampening, nesterov (0 or 1), whether t is 1.
-- @within Internal
function class.numbers(s, t)
    return { s.lr, s.weight_decay, s.momentum, s.dampening, s.nesterov and 1 or 0, t == 1 and 1 or 0 }
end

return Optimizer.class(class)
