--- wane.plan(fn, opts): the plan of a step before it runs, of one run point or of several: zero_grad, backward, update.
--
-- The function is called once while run points are captured: it records, nothing executes, and the random counter and
-- the gradients are put back. The numbers are those of class Plan (plan/init.lua).
--
-- Each run point is a program of its own and they run one after the other, so the step takes the maximum over them,
-- each with the bytes that the others hold beside it: states of optimizers while the backward runs, gradients while
-- they are clipped (plan/parts.lua). A budget holds for every one of them.
-- @module wane.plan.step
local binding = require 'wane.ffi'
local choose = require 'wane.plan.budget.choose'
local errors = require 'wane.errors'
local job = require 'wane.program.job'
local parts = require 'wane.plan.parts'
local placing = require 'wane.program.placing'
local plan = require 'wane.plan'
local policies = require 'wane.policy'
local program = require 'wane.program'
local scoped = require 'wane.scoped'
local sequence = require 'wane.program.sequence'
local target = require 'wane.plan.costs.target'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise

local step = {}

-- ---- the step of a loss --------------------------------------------------------------------------------------------

-- Options of whatever takes a step: the optimizer that the loss is trained with, and how.
step.options = { 'optimizer', 'lines' }
-- Options that say, too, of what job the step is.
step.all_options = { 'optimizer', 'lines', unpack(job.options) }

-- Tells whether x has the two methods of an optimizer. An x that raises for unknown names has none.
local function is_optimizer(x)
    local ok, found = pcall(function() return type(x.step) == 'function' and type(x.zero_grad) == 'function' end)
    return ok and found
end

--- Returns a function that runs the whole training step of a function.
-- @param fn function() that returns the loss, or runs the step itself
-- @param opts { optimizer = (trains the loss by opt:step(loss)), lines = (true: in the three lines zero_grad, backward
-- and step instead) }
-- @param what opens messages
-- @return fn itself without an optimizer
-- @raise 'value' for an optimizer that is none, lines without one, and a function that neither steps nor returns a loss
-- @within Internal
function step.of(fn, opts, what)
    local optimizer = opts.optimizer
    errors.check_flags(opts, { 'lines' }, what)
    if optimizer == nil then
        if opts.lines then raise(nil, 'value', '%s: lines = true is how an optimizer steps; give optimizer =', what) end
        return fn
    end
    if not is_optimizer(optimizer) then
        raise(nil, 'value', '%s: optimizer must be an optimizer, got %s', what, errors.describe(optimizer))
    end
    sequence.need_function(fn, what)
    return function()
        local before = program.stepped()
        local loss = fn()
        if program.stepped() > before then return loss end -- it ran the step itself
        if not tensor.is(loss) then
            raise(nil, 'value', '%s: the function must return the loss, or run the step; it ran nothing and returned '
                .. '%s', what, errors.describe(loss))
        end
        if not opts.lines then return optimizer:step(loss) end
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        return loss
    end
end

-- ---- bytes of parts ------------------------------------------------------------------------------------------------

-- Returns the bytes that a part needs when its plan reserves `reserved` bytes.
local function needed(part, reserved)
    return math.max(reserved + part.beside + part.first.beside, parts.first_reserved(part))
end

-- Returns whether plans of a part can be chosen: of a step of one part always.
local function is_open(list, part)
    return #list == 1 or sequence.chooses(part.request)
end

-- Returns the bytes that the parts need whatever is chosen: those of plans that no policy chooses, and of first values.
local function floor_of(list)
    local floor = 0
    for _, part in ipairs(list) do
        floor = math.max(floor, is_open(list, part) and parts.first_reserved(part)
            or needed(part, part.program:plan():reserved()))
    end
    return floor
end

-- Opens a program to the budget that is left for it of a limit of the whole step, where its policy has a budget. The
-- plan is then found by every run of the program under that policy. floor: of the step.
local function narrow(part, limit, floor)
    local p = part.program
    if not sequence.chooses(part.request) or policies.limit_of(p.policy) ~= limit then return end
    local left = math.max(limit - part.beside, 0)
    if left < limit then
        p.policy = policies.within(p.policy, left)
        check(C.wn_decide_by(p.handle, policies.key(p.policy, p.fallback)))
    end
    -- The floor counts what is made before the first run.
    p.first_run = { cells = part.first.cells, reserved = floor > limit and floor or 0, beside = part.first.beside }
end

--- Returns the least bytes in which a step can run, the first time too.
-- @param list parts of sequence.plan
-- @within Internal
function step.least(list)
    local least = floor_of(list)
    for _, part in ipairs(list) do
        if is_open(list, part) then least = math.max(least, needed(part, choose.least_of(part.program))) end
    end
    return least
end

-- Makes the error of a budget that the step cannot keep. why: that of a part, or nil. It is that of a part itself where
-- another rank cannot keep the budget, and this one can.
local function over(list, limit, why)
    local least, holders, first = step.least(list), why and why.holders or {}, nil
    if why and least <= limit then return why end
    for _, part in ipairs(list) do
        if parts.first_reserved(part) == least then first = part end
        if is_open(list, part) and #holders == 0 then holders = choose.holders(part.program) end
    end
    if first then return choose.refusal_of_first(limit, least, first.first.cells) end
    local modes, n = sequence.modes(list)
    return choose.refusal(limit, least, holders, n == 1 and '' or (', with what the %d programs of the step (%s) '
        .. 'hold beside each other'):format(n, modes))
end

-- Plans the programs of a step together. limit: bytes that none of them may exceed, or nil.
local function plan_all(list, limit)
    if limit then
        local floor, is_of_all = floor_of(list), false
        for _, part in ipairs(list) do is_of_all = is_of_all or part.program:is_planned_by_all() end
        if floor > limit and not is_of_all then error(over(list, limit), 0) end -- else ranks refuse it together
        for _, part in ipairs(list) do narrow(part, limit, floor) end
    end
    for _, part in ipairs(list) do
        local ok, why = errors.pcall(part.program.plan, part.program)
        if not ok then
            if limit and errors.is(why) and why.code == 'budget' then error(over(list, limit, why), 0) end
            errors.again(why)
        end
    end
    return plan.of(list)
end

--- Opens the parts of a step for planning.
-- @param fn function() that returns the loss, or runs a step
-- @param opts { policy =, budget =, target =, optimizer =, lines = } as of wane.plan
-- @param what opens messages
-- @return parts, policy or nil
-- @within Internal
function step.open(fn, opts, what)
    local chosen = require('wane.program.grad').policy { policy = policies.anew(opts.policy), budget = opts.budget }
    local number = target.of(opts.target, what)
    return sequence.plan(step.of(fn, opts, what), what, function(request)
        return sequence.with(request, chosen, number)
    end), chosen
end

--- Calls work() as a rank of the job that opts describe (program/job.lua).
-- @param fn function() that returns the loss, or runs a step
-- @param opts options of whatever plans fn
-- @param what opens messages
-- @param work function()
-- @within Internal
function step.as_job(fn, opts, what, work)
    return job.as(opts, what, function()
        local list = step.open(fn, opts, what)
        return scoped.always(function() sequence.close(list) end, placing.of, list)
    end, work)
end

local options = { 'policy', 'budget', 'target', unpack(step.all_options) }

-- Plans a step as whoever this process is.
local function planned(fn, opts)
    local list, chosen = step.open(fn, opts, 'wane.plan')
    local notes = program.notes()
    local ok, made = errors.pcall(plan_all, list, policies.limit_of(chosen))
    if ok then
        made.notes = notes
        return made
    end
    sequence.close(list)
    if errors.is(made) and made.code == 'budget' then return nil, made end
    errors.again(made)
end

--- Plans the step that fn records. Nothing runs, and gradients stay as they are.
-- @param fn function() that returns the loss, or runs a step: opt:step(loss), or zero_grad, backward and step() as
-- several run points
-- @param opts { policy =, budget = (bytes or text), target = (name of a machine, see wane.targets), optimizer = (plans
-- the training step of the loss, opt:step(loss)), lines = (true: zero_grad, backward and step instead), ranks =, link =
-- (as of wane.dist.ghost: as one rank of such a job, before the first step), rank = (else the one that needs most),
-- place = ('slice', 'keep' or 'shard') }
-- @return Plan, of the whole step. Its field `parts` is a printable list of { mode =, times = (how many run points are
-- this part), peak =, reserved =, beside =, live_beside =, seconds = (of one of them), policy = (under which it keeps
-- the budget by itself) }. When no plan fits the budget, returns nil and an error object with min_budget and holders.
-- @raise 'value' for wrong options, and errors of fn
-- @usage
-- local function loss() return model(x):sum() end
-- print(wane.plan(loss, { policy = 'every(1)' }))
-- print(wane.plan(loss, { optimizer = opt }).peak > wane.plan(loss).kinds.parameter)
-- local none, why = wane.plan(loss, { budget = '1 KiB' })
-- print(none, why.code, why.min_budget)
function step.plan(fn, opts)
    opts = plan.check_options(opts, options, 'wane.plan')
    return step.as_job(fn, opts, 'wane.plan', function() return planned(fn, opts) end)
end

return step
