--- A plan of a step that takes several run points: zero_grad, backward, update.
--
-- Each run point is a program of its own and they run one after the other, so the step takes the maximum over them,
-- each with the bytes that the others hold beside it: states of optimizers while the backward runs, gradients while
-- they are clipped. A budget holds for every one of them.
-- @internal wane.program.parts
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local table_ = require 'wane.report.table'
local upper = require 'wane.upper'

local C, check = binding.C, binding.check

local parts = {}

--- Tells whether a policy chooses anything in a part: updates and assignments keep nothing for later.
function parts.chooses(part)
    return part.request.mode == 'backward' or part.request.mode == 'step'
end

-- Returns the bytes that making the states of a part takes before its first run, with what is held beside it; 0: none
-- is missing.
local function first_reserved(part)
    local first = part.first
    return first and first.cells > 0 and first.reserved + part.beside.first_reserved or 0
end

-- Returns the bytes that a part needs when its plan reserves so many.
local function needed(part, reserved)
    local first = part.first
    return math.max(reserved + part.beside.reserved + (first and first.beside or 0), first_reserved(part))
end
parts.needed = needed

-- Tells the parts of a step what is held beside them, so that a budget counts it. A budget that the script itself gives
-- to a run point is not touched by this: it holds for that program alone, here as when it runs.
local function ready(list)
    for _, part in ipairs(list) do
        if parts.chooses(part) then
            check(C.wn_keep_apart(part.program.handle))
            part.program.part = part
        end
    end
end

--- Returns the bytes that the parts need about which nothing can be chosen.
function parts.floor(list)
    local floor = 0
    for _, part in ipairs(list) do
        if not parts.chooses(part) then
            floor = math.max(floor, needed(part, upper.plan_of(part.program:plan()).reserved))
        end
    end
    return floor
end

--- Returns the least bytes in which a step can run.
function parts.least(list)
    local least = parts.floor(list)
    for _, part in ipairs(list) do
        if parts.chooses(part) then
            least = math.max(least, needed(part, upper.least_of(part.program)))
        end
    end
    return least
end

--- Refuses a step whose programs ran, each within a budget, when they do not keep it together.
-- @param programs in the order they ran, not closed
-- @param limit bytes
-- @param what who asks
-- Errors: 'budget' with the bytes that the step takes
function parts.check_budget(programs, limit, what)
    local handles, needs = {}, 0
    for i, p in ipairs(programs) do handles[i] = p.handle end
    local list = binding.list('struct wn_beside', math.max(#programs, 1))
    check(C.wn_beside(#programs, binding.handles(#programs, handles), list))
    for i, p in ipairs(programs) do
        needs = math.max(needs, upper.plan_of(p).reserved + tonumber(list[i - 1].reserved))
    end
    if needs <= limit then return end
    error(errors.new('budget', ('%s: a budget of %s bytes holds for each of the %d programs of the step, but what they '
        .. 'hold beside each other makes it %s bytes (%s); use opt:step(loss), or the policy of wane.plan(step, '
        .. '{budget = %.0f})'):format(what, bytes.exact(limit), #programs, bytes.exact(needs), bytes.text(needs),
        limit), { budget = limit, needs = needs }), 0)
end

-- Makes the error of a budget that the step cannot keep.
local function over(list, limit)
    local least, holders = parts.least(list), {}
    for _, part in ipairs(list) do
        if parts.chooses(part) and #holders == 0 then holders = upper.holders(part.program) end
    end
    return upper.refusal(limit, least, holders, (', with what the %d programs of the step (%s) hold beside each '
        .. 'other'):format(#list, require('wane.program.rehearse').modes(list)))
end

-- ---- joining ------------------------------------------------------------------------------------------------------
local Parts = {} -- a list of what each program takes, that prints as a table
function Parts.__tostring(list)
    local rows = {}
    for i, p in ipairs(list) do
        rows[i] = { i, p.mode, bytes.exact(p.peak), bytes.exact(p.reserved), bytes.exact(p.beside),
            bytes.exact(p.reserved + p.beside), ('%.6f'):format(p.seconds) }
    end
    return table_.text({ '#', 'program', 'peak', 'reserved', 'beside it', 'reserved in all', 'seconds' }, rows)
end

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
        all.reserved = math.max(all.reserved, first_reserved(part),
            plans[i].reserved + first.beside + beside.first_reserved)
    end
    if all.cells == 0 then all.peak, all.reserved = 0, 0 end
    return all
end

-- The largest program, one about which something can be chosen where there is one.
local function largest(list, plans)
    local best
    for i, part in ipairs(list) do
        local better = not best or parts.chooses(part) and not parts.chooses(list[best])
            or parts.chooses(part) == parts.chooses(list[best])
            and plans[i].reserved + part.beside.reserved > plans[best].reserved + list[best].beside.reserved
        if better then best = i end
    end
    return best
end

local states = { 'parameter', 'buffer', 'optimizer' }
local sums = { 'seconds', 'base_seconds', 'nodes', 'instructions', 'recomputed', 'packed', 'lossy', 'moved',
    'move_seconds', 'stall_seconds' }

-- The numbers of the whole step.
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

-- The Plan of the largest program, with the numbers of the whole step.
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

--- The plan of what rehearse.open found.
-- @param list parts
-- @param limit bytes that none of them may pass, or nil
-- @return Plan; of several programs that of the largest, with the numbers of the whole step and `parts`
-- Errors: 'budget' with the least for the whole step, when it cannot be kept
function parts.plan(list, limit)
    if #list == 1 then return upper.plan_of(list[1].program:plan()) end
    if limit then
        ready(list)
        if parts.floor(list) > limit then error(over(list, limit), 0) end
    end
    local plans = {}
    for i, part in ipairs(list) do
        local ok, why = pcall(part.program.plan, part.program)
        if not ok then
            if limit and errors.is(why) and why.code == 'budget' then error(over(list, limit), 0) end
            error(why, 0)
        end
        plans[i] = upper.plan_of(part.program)
    end
    return join(list, plans)
end

return parts
