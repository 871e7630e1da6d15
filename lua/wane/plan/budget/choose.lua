--- The choice of a plan for a budget, among the plans that no other plan beats in both bytes and seconds.
--
-- The library proposes plans (the solver's, hand-written policies, small edits of good plans), lowers, places and
-- simulates each one, and keeps those that no other plan beats in both reserved bytes and seconds. A budget chooses the
-- fastest plan that fits. Nothing runs. The library remembers the list of each graph.
-- @internal wane.plan.budget.choose
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local explain = require 'wane.plan.explain'
local plan = require 'wane.plan'
local progress = require 'wane.report.progress'
local program = require 'wane.program'
local scoped = require 'wane.scoped'

local C, check = binding.C, binding.check

local SILENT = 2 -- seconds of planning before a progress line is shown

local choose = {}

local point = binding.new('struct wn_point')

-- Returns point i of the list of plans, from 0.
local function point_of(handle, i)
    check(C.wn_point(handle, i, point))
    return {
        reserved = tonumber(point.reserved), peak = tonumber(point.peak), seconds = point.seconds,
        recomputed = point.recomputed, name = binding.text(point.name), forward = point.forward_seconds,
    }
end

local bar, failed -- the progress line while a frontier is made, and the error of drawing it

-- Updates the progress line. The library calls it, so it may not raise; it returns 1 to stop.
local look = binding.cast('wn_look', function(done, expected)
    local ok, e = pcall(bar.look, bar, done, expected)
    if not ok then failed = e end
    return ok and 0 or 1
end)

-- Plans the frontier of an open program and returns the number of points. The library hears ^C meanwhile.
local function count_points(handle)
    local n = C.wn_frontier(handle, look)
    if failed then errors.again(failed) end
    return binding.id(n)
end

jit.off(count_points) -- compiled code must not be called back

--- Returns the points of an open or planned program, fastest first, and the number of plans that were simulated.
-- @param p Program
-- @return list of { reserved =, peak =, seconds =, recomputed =, name = }, count
function choose.points_of(p)
    local handle, list = p.handle, {}
    require('wane.policy.candidates').propose(p)
    bar, failed = progress.late(SILENT, 'plans looked at'), nil
    local n = scoped.always(function() bar:finish() end, count_points, handle)
    for i = 1, n do list[i] = point_of(handle, i - 1) end
    return list, point.tried
end

-- ---- holders of bytes --------------------------------------------------------------------------------------
-- Lists the holders of the bytes at a plan's peak: { what =, bytes = } of each kind, largest first, then of its three
-- largest values, which have value = true.
local function holders_of(p)
    local list = {}
    for _, name in ipairs(program.kind_names) do
        if p.kinds[name] > 0 then list[#list + 1] = { what = name, bytes = p.kinds[name] } end
    end
    table.sort(list, function(a, b) return a.bytes > b.bytes end)
    local values = explain.peak(p).values
    for i = 1, math.min(3, #values) do
        list[#list + 1] = { what = values[i].what, bytes = values[i].bytes, value = true }
    end
    return list
end

-- ---- choosing ----------------------------------------------------------------------------------------------
-- Makes the error of a budget that no plan of a step of one program fits.
local function infeasible(self, limit, least, first)
    if first.reserved == least then return choose.refusal_of_first(limit, least, first.cells) end
    return choose.refusal(limit, least, choose.holders(self), '')
end

--- Makes the error of a budget that making the states of a step, and data that were retained, exceeds.
-- @param limit budget in bytes
-- @param least bytes that making them takes
-- @param cells how many are made
-- @return error object, as of choose.refusal
function choose.refusal_of_first(limit, least, cells)
    return errors.new('budget', ('a budget of %s bytes cannot be kept: making the %d states and data of the step, '
        .. 'before its first run, takes %s bytes (%s)'):format(bytes.exact(limit), cells, bytes.exact(least),
        bytes.text(least)), { min_budget = least, holders = {}, budget = limit, explain = explain.budget })
end

--- Makes the error of a budget that no plan fits.
-- @param limit budget in bytes
-- @param least bytes of the least budget that a plan fits
-- @param holders holders of the bytes at the peak of the plan of the least bytes: list of { what =, bytes =, value = }
-- @param note text after the least bytes, or ''
-- @return error object with the code 'budget', min_budget, holders, budget and explain
function choose.refusal(limit, least, holders, note)
    local words = {}
    for i, h in ipairs(holders) do
        if i <= 4 or h.value then words[#words + 1] = ('%s %s'):format(h.what, bytes.text(h.bytes)) end
    end
    return errors.new('budget', ('a budget of %s bytes cannot be kept: the least that would do is %s bytes (%s)%s; '
        .. 'at its peak that plan holds %s'):format(bytes.exact(limit), bytes.exact(least), bytes.text(least), note,
        table.concat(words, ', ')), { min_budget = least, holders = holders, budget = limit,
        explain = explain.budget })
end

--- Lists the holders of the bytes at the peak of the plan of the least bytes, for choose.refusal. Afterwards the
-- program can only be closed.
-- @param p open program
-- @return list of { what =, bytes =, value = }
function choose.holders(p)
    local policies = require 'wane.policy'
    check(C.wn_decide_by(p.handle, policies.key(policies.least(), p.fallback)))
    local list = choose.points_of(p)
    check(C.wn_choose(p.handle, #list - 1))
    check(C.wn_plan(p.handle))
    return holders_of(plan.alone(p))
end

--- Chooses for an open program the fastest plan that reserves at most `limit` bytes.
-- @param self open program whose policies have decided
-- @param limit bytes
-- @param most nil, or fewer bytes, which the plan is to reserve instead; where none does, the one of the fewest bytes
-- @return whether that one was chosen
-- @raise 'budget', with min_budget and holders (list of { what =, bytes = }), when no plan fits
function choose.within(self, limit, most)
    local list = choose.points_of(self)
    if most then
        local i = 1
        while i < #list and list[i].reserved > most do i = i + 1 end
        check(C.wn_choose(self.handle, i - 1))
        return i == #list
    end
    local first = self.first_run or self:first() -- of a part of a step as the parts before it leave the states
    local least = math.max(list[#list].reserved + first.beside, first.reserved)
    for i, p in ipairs(least <= limit and list or {}) do
        if p.reserved + first.beside <= limit then
            check(C.wn_choose(self.handle, i - 1))
            return i == #list
        end
    end
    error(infeasible(self, limit, least, first), 0)
end

--- Returns the least bytes that any plan of an open program reserves, without what other programs of the step hold.
-- @param p open program
function choose.least_of(p)
    if C.wn_is_planned(p.handle) == 0 then require('wane.policy.decide').apply(p, p.policy, p.fallback) end
    local list = choose.points_of(p)
    return list[#list].reserved
end

--- Chooses for an open program the plan that reserves the fewest bytes.
-- @param self open program
function choose.smallest(self)
    local list = choose.points_of(self)
    check(C.wn_choose(self.handle, #list - 1))
end

return choose
