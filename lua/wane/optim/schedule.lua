--- optim.schedule: learning rates as functions of the step, of a number or of an optimizer with its groups.
--
-- `rate = optim.schedule.cosine(0.1, { steps = 100 })` returns the rate of a step, for `opt.lr = rate(step)`.
-- `schedule = optim.schedule.cosine(opt, { steps = 100 })` sets it: `schedule(step)`, called before the step, scales
-- the lr of every group from the base rate that the group itself had when the schedule was made, or when the group was
-- added later. The base rate is `initial_lr` beside `lr`, and is saved with the optimizer. An lr that a script assigns
-- is a new base rate.
--
-- Steps count from 1. With `warmup` the rate rises in equal parts and is whole at step `warmup`. The rates are those of
-- PyTorch's schedulers in a row (LinearLR from 1 / warmup, then CosineAnnealingLR or LinearLR), whose epoch is
-- step - 1. A schedule has no state but the base rates: a run that is resumed at a step goes on with that step's rate.
-- @module wane.optim.schedule

local errors = require 'wane.errors'
local groups = require 'wane.optim.groups'
local lazy = require 'wane.lazy'

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

-- ---- the groups of an optimizer -----------------------------------------------------------------------------------

-- Gives each group a rate of its own.
local function separate(opt)
    for _, group in ipairs(opt.param_groups) do
        local own = rawget(group, '_settings')
        if rawget(own, 'lr') == nil then rawset(own, 'lr', opt.lr); rawset(own, 'initial_lr', opt.initial_lr) end
    end
end

-- Returns what has an lr in an optimizer, with its base rate: { settings =, group =, base = }.
local function bases(opt, is_separate)
    if is_separate then separate(opt) end
    local list = groups.with_lr(opt)
    if is_separate then table.remove(list, 1) end
    for _, each in ipairs(list) do
        each.base = rawget(each.settings, 'initial_lr') or rawget(each.settings, 'lr')
    end
    return list
end

-- Class of the schedules of optimizers: what = 'optim.schedule.cosine', optimizer, set = function(step).
local Scheduled = {
    __call = function(self, step) return rawget(self, 'set')(step) end,
    __tostring = function(self)
        return ('%s of %s'):format(rawget(self, 'what'), tostring(rawget(self, 'optimizer')))
    end,
    __describe = function(self) return 'a schedule ' .. rawget(self, 'what') end,
    __index = function(self, name)
        errors.raise(nil, 'value', "%s: a schedule has no '%s'; call it with the number of the step, schedule(step)",
            rawget(self, 'what'), tostring(name))
    end,
}

-- Returns the schedule of an optimizer, which sets all rates or, when it fails, none.
-- at: function(step) -> function(base, group) -> rate. check: function(base, group), raises. is_separate: whether each
-- group gets a rate of its own.
local function of_optimizer(what, opt, at, check, is_separate)
    for _, each in ipairs(bases(opt, is_separate)) do
        check(each.base, each.group)
        rawset(each.settings, 'initial_lr', each.base)
    end
    local function set(step)
        local list, rate = bases(opt, is_separate), at(step)
        for _, each in ipairs(list) do
            check(each.base, each.group)
            each.rate = rate(each.base, each.group)
            groups.check_change(opt._class, each.settings, 'lr', each.rate)
        end
        for _, each in ipairs(list) do
            rawset(each.settings, 'lr', each.rate)
            rawset(each.settings, 'initial_lr', each.base)
        end
    end
    return setmetatable({ what = what, optimizer = opt, set = set }, Scheduled)
end

-- Returns the schedule of a number or of an optimizer; of_optimizer says what the others are.
local function make(what, target, at, check, is_separate)
    if groups.is_optimizer(target) then return of_optimizer(what, target, at, check, is_separate) end
    if type(target) ~= 'number' then
        errors.raise(nil, 'value', '%s: expected lr, a number, or an optimizer, got %s', what, errors.describe(target))
    end
    check(number(target, what, 'lr', 0), 0)
    return function(step) return at(step)(target, 0) end
end

-- ---- schedules ----------------------------------------------------------------------------------------------------

-- Makes the maker of a schedule: the rate rises to lr, then is least + (lr - least) shape(part), where part rises from
-- 0 to 1.
local function shaped(name, shape)
    local what = 'optim.schedule.' .. name
    return function(target, opts)
        opts = errors.check_options(opts, shape and { 'steps', 'warmup', 'least' } or { 'warmup' }, what)
        local warmup, least = count(opts.warmup or 0, what, 'warmup', 0), number(opts.least or 0, what, 'least', 0)
        local steps = shape and count(opts.steps, what, 'steps', 1)
        if shape and steps <= warmup then
            errors.raise(nil, 'value', '%s: %d steps are all warmup (%d); give more steps', what, steps, warmup)
        end
        local function at(step)
            local rise = number(step, what, 'the step', 1) / warmup
            local part = shape and math.max(0, math.min(1, (step - 1 - warmup) / (steps - warmup)))
            return function(lr)
                if step <= warmup then return lr * rise end
                return shape and least + (lr - least) * shape(part) or lr
            end
        end
        return make(what, target, at, function(lr, group)
            if least > lr then
                errors.raise(nil, 'value', '%s: least = %g lies above lr = %g%s', what, least, lr,
                    group > 0 and ' of group ' .. group or '')
            end
        end)
    end
end

--- Makes a schedule that is lr at every step.
-- @function optim.schedule.constant
-- @param lr rate after the warmup, or an optimizer
-- @param opts {warmup = 0: steps}
-- @return function(step) that returns the rate; of an optimizer a callable(step) that sets its rates
-- @usage
-- local rate = optim.schedule.constant(0.1, { warmup = 10 })
-- print(rate(5), rate(100)) --> 0.05	0.1
schedule.constant = shaped('constant')

--- Makes a schedule that falls along half a cosine from lr to `least`, which it reaches after step `steps` and keeps.
-- @function optim.schedule.cosine
-- @param lr rate after the warmup, or an optimizer
-- @param opts {steps =, warmup = 0, least = 0}: steps in all, steps of warmup, the last rate
-- @return function(step) that returns the rate; of an optimizer a callable(step) that sets its rates
-- @usage
-- local schedule = optim.schedule.cosine(opt, { steps = 100, warmup = 10 })
-- for step = 1, 3 do
--     schedule(step)
--     opt:step(nn.cross_entropy(model(x), y))
-- end
-- print(opt.lr, opt.initial_lr) --> 0.003	0.01
schedule.cosine = shaped('cosine', function(part) return 0.5 * (1 + math.cos(math.pi * part)) end)

--- Makes a schedule that falls in a straight line from lr to `least`, which it reaches after step `steps` and keeps.
-- @function optim.schedule.linear
-- @param lr rate after the warmup, or an optimizer
-- @param opts {steps =, warmup = 0, least = 0}: steps in all, steps of warmup, the last rate
-- @return function(step) that returns the rate; of an optimizer a callable(step) that sets its rates
-- @usage print(optim.schedule.linear(0.1, { steps = 100 })(51)) --> 0.05
schedule.linear = shaped('linear', function(part) return 1 - part end)

local function is_list(x)
    return type(x) == 'table' and not errors.is_callable(x)
end

-- Raises 'value' unless there is a function, or a list of a function or a number for each of n groups.
local function check_factors(what, fn, n)
    if not is_list(fn) and not errors.is_callable(fn) then
        errors.raise(nil, 'value', '%s: expected a function of the step, got %s', what, errors.describe(fn))
    elseif is_list(fn) and errors.list(fn, what, 'functions') ~= n then
        errors.raise(nil, 'value', '%s: the list has %d entries, the optimizer %d groups', what, #fn, n)
    end
    for g, f in ipairs(is_list(fn) and fn or {}) do
        if type(f) ~= 'number' and not errors.is_callable(f) then
            errors.raise(nil, 'value', '%s: entry %d must be a function of the step or a number, got %s', what, g,
                errors.describe(f))
        end
    end
end

--- Makes a schedule of factors: lr times what a function returns. Of an optimizer with groups it takes a list too, with
-- a function or a number for each group.
-- @function optim.schedule.lambda
-- @param lr rate at a factor of 1, or an optimizer
-- @param fn function(step) that returns a factor, such as another schedule; or a list, a function or a number a group
-- @return function(step) that returns the rate; of an optimizer a callable(step) that sets its rates
-- @raise 'value' for a factor that is no number from 0, at the step
-- @usage
-- local groups = { { params = { model[1].weight } }, { params = { model[3].weight }, lr = 0.5 } }
-- local sgd = optim.SGD(groups, { lr = 0.1 })
-- local schedule = optim.schedule.lambda(sgd, { 0.1, optim.schedule.linear(1, { steps = 10 }) })
-- schedule(6)
-- print(sgd.param_groups[1].lr, sgd.param_groups[2].lr) --> 0.01	0.25
function schedule.lambda(lr, fn)
    local what, has_groups = 'optim.schedule.lambda', groups.is_optimizer(lr)
    if is_list(fn) and not has_groups then
        errors.raise(nil, 'value', '%s: a list is for the groups of an optimizer; give a function of the step', what)
    end
    local function check() check_factors(what, fn, has_groups and #lr.param_groups or 1) end
    local function value(f, step, name)
        if errors.is_callable(f) then f = f(step) end
        return number(f, what, name, 0)
    end
    local function at(step)
        number(step, what, 'the step', 1)
        if is_list(fn) then
            return function(base, g) return base * value(fn[g], step, 'the factor of group ' .. g) end
        end
        local factor = value(fn, step, 'the factor')
        return function(base) return base * factor end
    end
    return make(what, lr, at, check, is_list(fn))
end

return lazy('optim.schedule', {}, schedule)
