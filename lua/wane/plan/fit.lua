--- wane.fit(fn_of, opts): the largest n - a batch, a depth, a length - whose step a budget holds.
-- @module wane.plan.fit
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local plan = require 'wane.plan'

local raise = errors.raise

local fit = {}

--- Finds the largest n for which the step of fn_of(n) has a plan within the budget: n doubles until none has, then
-- the interval is halved. Nothing runs. (Least bytes must not fall as n grows.)
-- @param fn_of function(n) -> function() that returns the loss or steps
-- @param opts { budget = bytes or text, from = 1, most = 2^20, policy =, target = }
-- @return n, its Plan; or nil and why, when even `from` does not fit
function fit.fit(fn_of, opts)
    opts = errors.check_options(opts, { 'budget', 'from', 'most', 'policy', 'target' }, 'wane.fit')
    if type(fn_of) ~= 'function' then
        raise(nil, 'value', 'wane.fit: expected a function(n) that returns a step, got %s', errors.describe(fn_of))
    end
    if opts.budget == nil then raise(nil, 'value', "wane.fit: say {budget = '8 GiB'}") end
    local budget = bytes.parse(opts.budget, 'wane.fit')
    local low = errors.count(opts.from or 1, 'wane.fit: from', 1, 2 ^ 52)
    local most = errors.count(opts.most or 2 ^ 20, 'wane.fit: most', 1, 2 ^ 52)
    local function try(n)
        return plan.plan(fn_of(n), { budget = budget, policy = opts.policy, target = opts.target })
    end
    local best, why = try(low)
    if not best then return nil, why end
    local high = low
    while high < most do
        high = math.min(2 * high, most)
        local p = try(high)
        if not p then break end
        low, best = high, p
    end
    while high - low > 1 do
        local middle = math.floor((low + high) / 2)
        local p = try(middle)
        if p then low, best = middle, p else high = middle end
    end
    return low, best
end

return fit
