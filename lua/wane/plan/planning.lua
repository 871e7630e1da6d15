--- wane.plan(fn, opts): the plan of a step before it runs, of one run point or of several: zero_grad, backward, update.
--
-- The function is called once while run points are captured: it records, nothing executes, and the random counter and
-- the gradients are put back. The numbers are those of class Plan (plan/init.lua).
--
-- Each run point is a program of its own and they run one after the other, so the step takes the maximum over them,
-- each with the bytes that the others hold beside it: states of optimizers while the backward runs, gradients while
-- they are clipped. A budget holds for every one of them.
-- @module wane.plan.planning
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local choose = require 'wane.plan.choose'
local errors = require 'wane.errors'
local plan = require 'wane.plan'
local program = require 'wane.program'
local rehearse = require 'wane.program.rehearse'
local table_ = require 'wane.report.table'
local target = require 'wane.plan.target'

local C, check = binding.C, binding.check

local planning = {}

-- Notes at each part of a step the bytes that the other programs hold beside it, so that a budget counts them. A budget
-- that the script itself gives to a run point holds for that program alone, as it does when the program runs.
local function ready(list)
    for _, part in ipairs(list) do
        if rehearse.chooses(part) then
            check(C.wn_keep_apart(part.program.handle))
            part.program.part = part
        end
    end
end

--- Returns the bytes that the parts need whose plan no policy chooses.
-- @param list parts of rehearse.open
-- @within Internal
function planning.floor(list)
    local floor = 0
    for _, part in ipairs(list) do
        if not rehearse.chooses(part) then
            floor = math.max(floor, rehearse.needed(part, plan.of(part.program:plan()).reserved))
        end
    end
    return floor
end

--- Returns the least bytes in which a step can run.
-- @param list parts of rehearse.open
-- @within Internal
function planning.least(list)
    local least = planning.floor(list)
    for _, part in ipairs(list) do
        if rehearse.chooses(part) then
            least = math.max(least, rehearse.needed(part, choose.least_of(part.program)))
        end
    end
    return least
end

-- Makes the error of a budget that the step cannot keep.
local function over(list, limit)
    local least, holders = planning.least(list), {}
    for _, part in ipairs(list) do
        if rehearse.chooses(part) and #holders == 0 then holders = choose.holders(part.program) end
    end
    return choose.refusal(limit, least, holders, (', with what the %d programs of the step (%s) hold beside each '
        .. 'other'):format(#list, rehearse.modes(list)))
end

-- ---- joining ------------------------------------------------------------------------------------------------------
local Parts = {} -- class of lists of the bytes and seconds of each program; prints as a table
function Parts.__tostring(list)
    local rows = {}
    for i, p in ipairs(list) do
        rows[i] = { i, p.mode, bytes.exact(p.peak), bytes.exact(p.reserved), bytes.exact(p.beside),
            bytes.exact(p.reserved + p.beside), ('%.6f'):format(p.seconds) }
    end
    return table_.text({ '#', 'program', 'peak', 'reserved', 'beside it', 'reserved in all', 'seconds' }, rows)
end

-- Returns the list of the bytes and seconds of each program.
local function listed(list, plans)
    local out = setmetatable({}, Parts)
    for i, part in ipairs(list) do
        out[i] = { mode = part.request.mode, peak = plans[i].peak, reserved = plans[i].reserved,
            beside = part.beside.reserved, live_beside = part.beside.live, seconds = plans[i].seconds }
    end
    return out
end

-- Returns the peak and the bytes of the whole first step, the one that makes the states.
local function first_of(list, plans)
    local all = { cells = 0, peak = 0, reserved = 0, beside = 0 }
    for i, part in ipairs(list) do
        local first, beside = part.first, part.beside
        all.cells, all.beside = all.cells + first.cells, math.max(all.beside, first.beside)
        all.peak = math.max(all.peak, first.peak + beside.first_live, plans[i].peak + first.beside + beside.first_live)
        all.reserved = math.max(all.reserved, rehearse.first_reserved(part),
            plans[i].reserved + first.beside + beside.first_reserved)
    end
    if all.cells == 0 then all.peak, all.reserved = 0, 0 end
    return all
end

-- Returns the index of the largest program, among those whose plan a policy chooses where there are any.
local function largest(list, plans)
    local best
    for i, part in ipairs(list) do
        local better = not best or rehearse.chooses(part) and not rehearse.chooses(list[best])
            or rehearse.chooses(part) == rehearse.chooses(list[best])
            and plans[i].reserved + part.beside.reserved > plans[best].reserved + list[best].beside.reserved
        if better then best = i end
    end
    return best
end

local states = { 'parameter', 'buffer', 'optimizer' }
local sums = { 'seconds', 'base_seconds', 'nodes', 'instructions', 'recomputed', 'packed', 'lossy', 'moved',
    'move_seconds', 'stall_seconds' }

-- Returns the numbers of the whole step: maxima of bytes over its programs, and sums of seconds and counts.
local function totals(list, plans)
    local all = { peak = -1, reserved = 0, arena = 0, host = 0, disk = 0 }
    for _, name in ipairs(sums) do all[name] = 0 end
    for i, p in ipairs(plans) do
        local beside = list[i].beside
        if p.peak + beside.live > all.peak then
            all.peak, all.kinds = p.peak + beside.live, {}
            for name, value in pairs(p.kinds) do all.kinds[name] = value + beside.kinds[name] end
        end
        all.reserved = math.max(all.reserved, p.reserved + beside.reserved)
        for _, name in ipairs { 'arena', 'host', 'disk' } do all[name] = math.max(all[name], p[name]) end
        for _, name in ipairs(sums) do all[name] = all[name] + (p[name] or 0) end
    end
    return all
end

-- Returns the Plan of the largest program with the numbers of the whole step.
local function join(list, plans)
    local main, all, rows, first = largest(list, plans), totals(list, plans), listed(list, plans), first_of(list, plans)
    local self, beside = plans[main], list[main].beside
    for name, value in pairs(all) do self[name] = value end
    for name, value in pairs(self.at) do self.at[name] = value + beside.live end
    for _, name in ipairs(states) do self.state = self.state + beside.kinds[name] end
    self.overhead = self.base_seconds > 0 and self.seconds / self.base_seconds - 1 or 0
    self.first, self.parts, self.main, self.others = first, rows, main, {}
    for i, part in ipairs(list) do
        if i ~= main then table.insert(self.others, part) end
    end
    return self
end

--- Plans the programs of a step together.
-- @param list parts of rehearse.open
-- @param limit bytes that none of them may exceed, or nil
-- @return Plan; for several programs the plan of the largest one, with the numbers of the whole step and `parts`
-- @raise 'budget', with the least bytes of the whole step, when no plan fits
-- @within Internal
function planning.join(list, limit)
    if #list == 1 then return plan.of(list[1].program:plan()) end
    if limit then
        ready(list)
        if planning.floor(list) > limit then error(over(list, limit), 0) end
    end
    local plans = {}
    for i, part in ipairs(list) do
        local ok, why = errors.pcall(part.program.plan, part.program)
        if not ok then
            if limit and errors.is(why) and why.code == 'budget' then error(over(list, limit), 0) end
            errors.again(why)
        end
        plans[i] = plan.of(part.program)
    end
    return join(list, plans)
end

local options = { 'policy', 'budget', 'target' }

--- Plans the step that fn records. Nothing runs, and gradients stay as they are.
-- @param fn function() that returns the loss, or runs a step: opt:step(loss), or zero_grad, backward and step() as
-- several run points
-- @param opts { policy =, budget = (bytes or text), target = (name of a machine, see wane.targets) }
-- @return Plan. For several run points it is the plan of the largest program, with the peak, bytes and seconds of the
-- whole step, and its field `parts` is a printable list of { mode =, peak =, reserved =, beside =, live_beside =,
-- seconds = }. When no plan fits the budget, returns nil and an error object with min_budget and holders.
-- @raise 'value' for wrong options, and errors of fn
-- @usage
-- local function loss() return model(x):sum() end
-- print(wane.plan(loss, { policy = 'every(1)' }))
-- local none, why = wane.plan(loss, { budget = '1 KiB' })
-- print(none, why.code, why.min_budget)
function planning.plan(fn, opts)
    opts = plan.check_options(opts, options, 'wane.plan')
    local chosen = require('wane.program.grad').policy { policy = require('wane.policy').anew(opts.policy),
        budget = opts.budget }
    local number = target.of(opts.target, 'wane.plan')
    local opened = rehearse.open(fn, 'wane.plan', function(request) return rehearse.with(request, chosen, number) end)
    local notes = program.notes()
    local limit = chosen and type(chosen.budget) == 'number' and chosen.budget or nil
    local ok, made = errors.pcall(planning.join, opened, limit)
    if ok then
        made.notes = notes
        return made
    end
    for _, part in ipairs(opened) do part.program:close() end
    if errors.is(made) and made.code == 'budget' then return nil, made end
    errors.again(made)
end

return planning
