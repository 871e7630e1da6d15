--- Adam and AdamW.
--
-- With gradient g, step t and the states m and v, both at first 0:
--
--     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
--     p = p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
--
-- Adam adds weight_decay * p to g; AdamW scales p by 1 - lr * weight_decay instead. The bias corrections are computed
-- here in double precision, and the kernel reads them with the other numbers. (Kingma and Ba, "Adam", 2015; Loshchilov
-- and Hutter, "Decoupled Weight Decay Regularization", 2019.)
-- @module wane.optim.adam

local Optimizer = require 'wane.optim.optimizer'

-- Makes the constructor `name` with its default weight decay. decoupled: the decay acts on the parameter, not on the
-- gradient.
local function make(name, decay, decoupled)
    local class = {
        name = name,
        op = 'adam',
        states = { 'm', 'v' },
        allowed = { 'lr', 'betas', 'beta1', 'beta2', 'eps', 'weight_decay', 'clip_norm' },
        defaults = { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = decay },
        limits = { lr = { 0 }, beta1 = { 0, 1 }, beta2 = { 0, 1 }, eps = { 0 }, weight_decay = { 0 } },
    }

    --- Returns the numbers of step t: lr, weight decay, b1, b2, eps, 1 - b1^t, 1 - b2^t, decoupled (0 or 1).
    -- @within Internal
    function class.numbers(s, t)
        return { s.lr, s.weight_decay, s.beta1, s.beta2, s.eps, 1 - s.beta1 ^ t, 1 - s.beta2 ^ t, decoupled and 1 or 0 }
    end

    return Optimizer.class(class)
end

local adam = {}

--- Makes an optimizer by Adam's rule.
-- @function optim.Adam
-- @param params list of parameters
-- @param opts {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, clip_norm = false}
-- @usage
-- local adam = optim.Adam(model:parameters(), { lr = 0.01 })
-- adam:step(loss)
adam.Adam = make('optim.Adam', 0, false)

--- Makes an optimizer by Adam's rule with decoupled weight decay.
-- @function optim.AdamW
-- @param params list of parameters
-- @param opts {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0.01, clip_norm = false}
-- @usage
-- local adamw = optim.AdamW(model:parameters(), { lr = 3e-4, clip_norm = 1 })
-- adamw:step(loss)
adam.AdamW = make('optim.AdamW', 0.01, true)

return adam
