--- optim.Lion(params, {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0, clip_norm =}): steps of equal size, by the
-- sign of a mean of the gradients.
--
-- With gradient g and the state m, at first 0:
--
--     p = (1 - lr weight_decay) p - lr sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g
--
-- It has one state where Adam has two. Its lr is usually a third to a tenth of Adam's, its weight decay as much larger.
-- (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.)
-- @module wane.optim.lion
-- @usage
-- local lion = optim.Lion(model:parameters(), { lr = 1e-4, weight_decay = 0.1 })
-- lion:step(loss)

local Optimizer = require 'wane.optim.optimizer'

local class = {
    name = 'optim.Lion',
    op = 'lion',
    states = { 'm' },
    allowed = { 'lr', 'betas', 'beta1', 'beta2', 'weight_decay', 'clip_norm' },
    defaults = { lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0 },
    limits = { lr = { 0 }, beta1 = { 0, 1 }, beta2 = { 0, 1 }, weight_decay = { 0 } },
}

--- Returns the numbers of a step: lr, weight decay, b1, b2.
-- @within Internal
function class.numbers(s)
    return { s.lr, s.weight_decay, s.beta1, s.beta2 }
end

return Optimizer.class(class)
