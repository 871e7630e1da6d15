--- optim.SGD(params, {lr =, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0, clip_norm =}).
--
-- PyTorch's rule: g = g + wd p; buf = first ? g : mu buf + (1 - dampening) g; p = p - lr (nesterov ? g + mu buf : buf).
-- Without momentum there is no state. Whether there is momentum is settled at construction.
-- @module wane.optim.sgd

local errors = require 'wane.errors'
local Optimizer = require 'wane.optim.optimizer'

local class = {
    name = 'optim.SGD',
    allowed = { 'lr', 'momentum', 'dampening', 'nesterov', 'weight_decay', 'clip_norm' },
    defaults = { lr = 1e-3, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0 },
    limits = { lr = { 0 }, momentum = { 0 }, dampening = { -1 / 0 }, nesterov = { 0 }, weight_decay = { 0 } },
}

local PLAIN = { op = 'sgd', states = {} }
local MOMENTUM = { op = 'momentum', states = { 'momentum' } }

function class.options(opts)
    if opts.nesterov and (opts.momentum or 0) == 0 then
        errors.raise(nil, 'value', 'optim.SGD: nesterov needs a momentum above 0, got %s',
            errors.describe(opts.momentum))
    end
    if opts.nesterov and (opts.dampening or 0) ~= 0 then
        errors.raise(nil, 'value', 'optim.SGD: nesterov needs a dampening of 0, got %s',
            errors.describe(opts.dampening))
    end
    return opts
end

function class.prepare(settings)
    return settings.momentum ~= 0 and MOMENTUM or PLAIN
end

-- hyper: {lr, wd, mu, dampening, nesterov, first}
function class.fill(s, set, t)
    set(0, s.lr)
    set(1, s.weight_decay)
    set(2, s.momentum)
    set(3, s.dampening)
    set(4, s.nesterov and 1 or 0)
    set(5, t == 1 and 1 or 0)
end

return Optimizer.class(class)
