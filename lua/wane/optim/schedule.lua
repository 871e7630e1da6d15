--- optim.schedule: learning rates as plain functions of the step, `opt.lr = schedule(step)`.
--
-- Steps count from 1. With `warmup` the rate rises in equal parts and is whole at step `warmup`. The rates are those of
-- PyTorch's schedulers in a row (LinearLR from 1 / warmup, then CosineAnnealingLR or LinearLR), whose epoch is
-- step - 1. There is no state: a run that is resumed at a step goes on with that step's rate.
-- @module wane.optim.schedule

local errors = require 'wane.errors'

local schedule = {}

local function number(v, what, name, least)
    if type(v) ~= 'number' or v ~= v or v < least or v == 1 / 0 then
        errors.raise(nil, 'value', '%s: %s must be a number from %g, got %s', what, name, least, errors.describe(v))
    end
    return v
end

local function count(v, what, name, least)
    if number(v, what, name, least) % 1 ~= 0 then
        errors.raise(nil, 'value', '%s: %s must be an integer, got %s', what, name, errors.describe(v))
    end
    return v
end

-- Makes the maker of a schedule: the rate rises to lr, then is least + (lr - least) shape(part), where part rises from
-- 0 to 1.
local function make(name, shape)
    local what = 'optim.schedule.' .. name
    return function(lr, opts)
        opts = errors.check_options(opts, shape and { 'steps', 'warmup', 'least' } or { 'warmup' }, what)
        number(lr, what, 'lr', 0)
        local warmup, least = count(opts.warmup or 0, what, 'warmup', 0), number(opts.least or 0, what, 'least', 0)
        local steps = shape and count(opts.steps, what, 'steps', 1)
        if shape and steps <= warmup then
            errors.raise(nil, 'value', '%s: %d steps are all warmup (%d); give more steps', what, steps, warmup)
        end
        if least > lr then
            errors.raise(nil, 'value', '%s: least = %g lies above lr = %g', what, least, lr)
        end
        return function(step)
            number(step, what, 'the step', 1)
            if step <= warmup then return lr * (step / warmup) end
            if not shape then return lr end
            local part = math.min(1, (step - 1 - warmup) / (steps - warmup))
            return least + (lr - least) * shape(part)
        end
    end
end

--- Makes a schedule that is lr at every step.
-- @function optim.schedule.constant
-- @param lr rate after the warmup
-- @param opts {warmup = 0: steps}
-- @return function(step) that returns a rate
-- @usage
-- local rate = optim.schedule.constant(0.1, { warmup = 10 })
-- print(rate(5), rate(100)) --> 0.05	0.1
schedule.constant = make('constant')

--- Makes a schedule that falls along half a cosine from lr to `least`, which it reaches after step `steps` and keeps.
-- @function optim.schedule.cosine
-- @param lr rate after the warmup
-- @param opts {steps =, warmup = 0, least = 0}: steps in all, steps of warmup, the last rate
-- @return function(step) that returns a rate
-- @usage
-- local rate = optim.schedule.cosine(0.1, { steps = 100, warmup = 10 })
-- for step = 1, 3 do
--     opt.lr = rate(step)
--     opt:step(nn.cross_entropy(model(x), y))
-- end
schedule.cosine = make('cosine', function(part) return 0.5 * (1 + math.cos(math.pi * part)) end)

--- Makes a schedule that falls in a straight line from lr to `least`, which it reaches after step `steps` and keeps.
-- @function optim.schedule.linear
-- @param lr rate after the warmup
-- @param opts {steps =, warmup = 0, least = 0}: steps in all, steps of warmup, the last rate
-- @return function(step) that returns a rate
-- @usage print(optim.schedule.linear(0.1, { steps = 100 })(51)) --> 0.05
schedule.linear = make('linear', function(part) return 1 - part end)

return setmetatable(schedule, {
    __index = function(_, name)
        errors.raise(nil, 'value', "optim.schedule has no '%s'; %s", tostring(name),
            errors.near(name, { 'constant', 'cosine', 'linear' }))
    end,
})
