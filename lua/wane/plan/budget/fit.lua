--- wane.fit(fn_of, opts): the largest n - a batch, a depth, a length - whose step fits a budget.
-- @module wane.plan.budget.fit
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local plan = require 'wane.plan'
local step = require 'wane.plan.step'

local raise = errors.raise

local options = { 'budget', 'from', 'most', 'policy', 'target', unpack(step.options) }

local fit = {}

--- Returns the largest n for which the step of fn_of(n) has a plan within a budget.
--
-- n doubles until no plan fits, then the interval is halved. Nothing runs. The search requires that the least bytes of
-- the step do not fall as n grows.
-- @param fn_of function(n) that returns a function(); that one returns the loss, or steps
-- @param opts { budget = bytes or text, from = 1, most = 2^20, policy =, target =, optimizer =, lines = }: from and
-- most bound n, the rest is as for wane.plan
-- @return n and its Plan; or nil and the error object of wane.plan when `from` does not fit
-- @raise 'value' for a missing budget, an fn_of that is not a function, or bounds out of [1, 2^52]
-- @usage
-- local n, plan = wane.fit(function(batch)
--     local rows = wane.zeros(batch, 8)
--     return function() return model(rows):sum() end
-- end, { budget = '16 KiB', most = 1024 })
-- print(n, plan.reserved <= 16 * wane.KiB)
function fit.fit(fn_of, opts)
    opts = plan.check_options(opts, options, 'wane.fit')
    if type(fn_of) ~= 'function' then
        raise(nil, 'value', 'wane.fit: expected a function(n) that returns a step, got %s', errors.describe(fn_of))
    end
    if opts.budget == nil then raise(nil, 'value', "wane.fit: say {budget = '8 GiB'}") end
    local budget = bytes.parse(opts.budget, 'wane.fit')
    local low = errors.count(opts.from or 1, 'wane.fit: from', 1, 2 ^ 52)
    local most = errors.count(opts.most or 2 ^ 20, 'wane.fit: most', 1, 2 ^ 52)
    local function try(n)
        return step.plan(fn_of(n), { budget = budget, policy = opts.policy, target = opts.target,
            optimizer = opts.optimizer, lines = opts.lines })
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
