--- optim.Adam(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, clip_norm =}) and optim.AdamW
-- (weight_decay = 0.01, applied to the parameter and not to the gradient).
--
-- Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019. Bias corrections
-- are computed here in double precision and read by the kernel with the rest of the numbers.
-- @module wane.optim.adam

local errors = require 'wane.errors'
local Optimizer = require 'wane.optim.optimizer'

local function make(name, decay, decoupled)
    local class = {
        name = name,
        op = 'adam',
        states = { 'm', 'v' },
        allowed = { 'lr', 'betas', 'beta1', 'beta2', 'eps', 'weight_decay', 'clip_norm' },
        defaults = { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = decay },
        limits = { lr = { 0 }, beta1 = { 0, 1 }, beta2 = { 0, 1 }, eps = { 0 }, weight_decay = { 0 } },
    }

    function class.options(opts)
        if opts.betas == nil then return opts end
        if type(opts.betas) ~= 'table' or #opts.betas ~= 2 then
            errors.raise(nil, 'value', '%s: betas must be two numbers, {0.9, 0.999}, got %s', name,
                errors.describe(opts.betas))
        end
        local copy = {}
        for key, value in pairs(opts) do copy[key] = value end
        copy.beta1, copy.beta2 = opts.betas[1], opts.betas[2]
        return copy
    end

    -- hyper: {lr, wd, b1, b2, eps, 1 - b1^t, 1 - b2^t, decoupled}
    function class.fill(s, set, t)
        set(0, s.lr)
        set(1, s.weight_decay)
        set(2, s.beta1)
        set(3, s.beta2)
        set(4, s.eps)
        set(5, 1 - s.beta1 ^ t)
        set(6, 1 - s.beta2 ^ t)
        set(7, decoupled and 1 or 0)
    end

    return Optimizer.class(class)
end

return { Adam = make('optim.Adam', 0, false), AdamW = make('optim.AdamW', 0.01, true) }
