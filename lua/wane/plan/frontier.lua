--- wane.frontier(fn): the plans of a step that no other plan beats in both bytes and seconds, and the choice of a
-- budget among them.
--
-- The library proposes plans (the solver's, hand-written policies, small edits of good plans), lowers, places and
-- simulates each one, and keeps those that no other plan beats in both reserved bytes and seconds. A budget chooses the
-- fastest plan that fits. Nothing runs. The library remembers the list of each graph.
-- @module wane.plan.frontier
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local parts = require 'wane.program.parts'
local plan = require 'wane.plan'
local plot = require 'wane.report.plot'
local progress = require 'wane.report.progress'
local program = require 'wane.program'
local rehearse = require 'wane.program.rehearse'
local system = require 'wane.system'
local table_ = require 'wane.report.table'

local C, check, raise = binding.C, binding.check, errors.raise
local tonumber = tonumber

local SLICE = 0.1 -- seconds that one call of the library plans before ^C is checked
local SILENT = 2 -- seconds of planning before a progress line is shown

local frontier = {}

local point = binding.new('struct wn_point')

local function point_of(handle, i)
    check(C.wn_point(handle, i, point))
    return {
        reserved = tonumber(point.reserved), peak = tonumber(point.peak), seconds = point.seconds,
        recomputed = point.recomputed, name = binding.text(point.name),
    }
end

-- Plans the frontier of an open program in slices of SLICE seconds and returns the number of points. Between slices it
-- checks ^C and updates the progress line `bar`. A later call for the same graph continues where this one stopped.
local function count_points(handle, bar)
    local at, n = binding.new('int32_t[2]'), 0
    while n == 0 do
        if C.wn_interrupted() ~= 0 then error(errors.new('interrupt', 'interrupted while planning; nothing ran'), 0) end
        n = binding.id(C.wn_frontier(handle, SLICE, at))
        if n == 0 then bar:look(at[0], at[1]) end
    end
    return n
end

jit.off(count_points, true) -- a compiled loop would not hear ^C

-- Returns the points of an open or planned program, fastest first, and the number of plans that were simulated.
local function points_of(p)
    local handle, bar, list = p.handle, progress.late(SILENT, 'plans looked at'), {}
    require('wane.policy.candidates').propose(p)
    local ok, n = pcall(count_points, handle, bar)
    bar:finish()
    if not ok then error(n, 0) end
    for i = 1, n do list[i] = point_of(handle, i - 1) end
    return list, point.tried
end

-- ---- what holds the bytes ----------------------------------------------------------------------------------
-- Lists what is held at the peak of a plan: { what =, bytes = } of each kind, largest first, then of its three largest
-- values, which have value = true.
local function holders_of(p)
    local list = {}
    for kind = 0, #program.kinds do
        local name = program.kinds[kind]
        if p.kinds[name] > 0 then list[#list + 1] = { what = name, bytes = p.kinds[name] } end
    end
    table.sort(list, function(a, b) return a.bytes > b.bytes end)
    local values = require('wane.plan.explain').peak(p).values
    for i = 1, math.min(3, #values) do
        list[#list + 1] = { what = values[i].what, bytes = values[i].bytes, value = true }
    end
    return list
end

-- Plans a request as the point that reserves the fewest bytes.
local function smallest(request)
    local p = program.open(request)
    if C.wn_is_planned(p.handle) == 0 then
        local _, list = nil, points_of(p)
        check(C.wn_choose(p.handle, #list - 1))
        check(C.wn_plan(p.handle))
    end
    return plan.of(p)
end

-- ---- what the first step adds -------------------------------------------------------------------------------
-- Returns the bytes that a step needs in its first run too. The program that makes the missing states takes
-- first.reserved bytes and runs before the plan; the data that states begin as, first.beside bytes, is held until the
-- first step is over.
local function with_first(first, reserved)
    return math.max(reserved + first.beside, first.reserved)
end

-- ---- choosing ----------------------------------------------------------------------------------------------
local function infeasible(self, limit, least, first)
    if first.reserved == least then
        return errors.new('budget', ('a budget of %s bytes cannot be kept: making the %d states of the step, before '
            .. 'its first run, takes %s bytes (%s)'):format(bytes.exact(limit), first.cells, bytes.exact(least),
            bytes.text(least)), { min_budget = least, holders = {}, budget = limit,
            explain = require('wane.plan.explain').budget })
    end
    local copy = {}
    for key, value in pairs(self.request) do copy[key] = value end
    copy.policy = require('wane.policy').least()
    return frontier.refusal(limit, least, holders_of(smallest(copy)), '')
end

--- Makes the error of a budget that no plan fits.
-- @param limit budget in bytes
-- @param least bytes of the least budget that a plan fits
-- @param holders what the plan of the least bytes holds at its peak: list of { what =, bytes =, value = }
-- @param note text after the least bytes, or ''
-- @return error object with the code 'budget', min_budget, holders, budget and explain
-- @within Internal
function frontier.refusal(limit, least, holders, note)
    local words = {}
    for i, h in ipairs(holders) do
        if i <= 4 or h.value then words[#words + 1] = ('%s %s'):format(h.what, bytes.text(h.bytes)) end
    end
    return errors.new('budget', ('a budget of %s bytes cannot be kept: the least that would do is %s bytes (%s)%s; '
        .. 'at its peak that plan holds %s'):format(bytes.exact(limit), bytes.exact(least), bytes.text(least), note,
        table.concat(words, ', ')), { min_budget = least, holders = holders, budget = limit,
        explain = require('wane.plan.explain').budget })
end

--- Lists what the plan of the least bytes holds at its peak: `holders` of frontier.refusal. Afterwards the program can
-- only be closed.
-- @param p open program
-- @return list of { what =, bytes =, value = }
-- @within Internal
function frontier.holders(p)
    check(C.wn_keep_apart(p.handle))
    local list = points_of(p)
    check(C.wn_choose(p.handle, #list - 1))
    check(C.wn_plan(p.handle))
    return holders_of(plan.of(p))
end

--- Chooses for an open program the fastest plan that reserves at most `limit` bytes.
-- @param self open program whose policies have decided
-- @param limit bytes
-- @raise 'budget', with min_budget and holders (list of { what =, bytes = }), when no plan fits
-- @within Internal
function frontier.choose(self, limit)
    local list, beside = points_of(self), 0
    local first, least
    if self.part then -- self is one of several programs of a step
        first, beside = self.part.first, self.part.beside.reserved
        least = parts.needed(self.part, list[#list].reserved)
    else
        first = plan.first_of(self)
        least = with_first(first, list[#list].reserved)
    end
    beside = beside + first.beside -- the data that states begin as is held until the first step is over
    for i, p in ipairs(least <= limit and list or {}) do
        if p.reserved + beside <= limit then return check(C.wn_choose(self.handle, i - 1)) end
    end
    if self.part then error(errors.new('budget', 'of one program of a step', { budget = limit }), 0) end
    error(infeasible(self, limit, least, first), 0)
end

--- Returns the least bytes that any plan of an open program reserves, without what other programs of the step hold.
-- @param p open program
-- @within Internal
function frontier.least_of(p)
    if C.wn_is_planned(p.handle) == 0 then require('wane.policy.decide').apply(p, p.policy, p.fallback) end
    local list = points_of(p)
    return list[#list].reserved
end

--- Chooses for an open program the plan that reserves the fewest bytes.
-- @param self open program
-- @within Internal
function frontier.choose_least(self)
    local list = points_of(self)
    check(C.wn_choose(self.handle, #list - 1))
end

-- ---- looking -----------------------------------------------------------------------------------------------
--- Class of frontiers: a printable list of points, fastest first.
--
-- A point has `reserved` and `peak` (bytes), `seconds`, `overhead` (seconds over those of the first point, minus 1),
-- `recomputed` (count of nodes), `name` (which proposal it comes from) and `policy` (gives that plan).
--
-- Fields: `here` (the plan under the script's own policies: reserved, peak, seconds), `heuristics` (plans of
-- hand-written policies: name, reserved, peak, seconds, and best, the seconds of the fastest point within the same
-- bytes), `all` (every point, of which the list holds `points`), `tried` (number of plans simulated).
local Frontier = {}
Frontier.__index = Frontier

local by_hand = { 'save_all', 'sqrt', 'every(1)', 'every(2)', 'segments(2)', 'segments(3)', 'segments(4)',
    'segments(8)' }

local LARGE = 10000 -- nodes of a program above which its plans are not all open at a time

-- Closes a program. The collector does not see the library's bytes, so a collection runs after a program above LARGE.
local function let_go(p)
    local is_large = C.wn_node_count(p.handle) > LARGE
    p:close()
    if is_large then collectgarbage() end
end

-- Returns { name =, reserved =, peak = (bytes), seconds = } of a program's plan, or nil when it has none, and closes
-- the program. The plan is dropped from the cache, because nothing runs it.
-- Measured: ten plans of 50,000 nodes in the cache take 600 MiB.
local function summary_of(p, name)
    local ok, found = pcall(function() return plan.of(p:plan()) end)
    local out = ok and { name = name, reserved = found.reserved, peak = found.peak, seconds = found.seconds } or nil
    check(C.wn_plan_forget(p.handle))
    let_go(p)
    return out
end

-- Returns at most `count` points, evenly spaced in the list; the first and the last one are among them.
local function thinned(list, count)
    if #list <= count then return list end
    local out = {}
    for i = 1, count do out[i] = list[1 + math.floor((i - 1) * (#list - 1) / (count - 1) + 0.5)] end
    return out
end

-- Returns the seconds of the fastest point that reserves at most `reserved` bytes, or nil.
local function best_within(self, reserved)
    for _, q in ipairs(self.all) do
        if q.reserved <= reserved then return q.seconds end
    end
end

-- Opens the programs that fn runs. With `names`, each part has `also`: the same request under the script's own policies
-- (also[1]) and under each named policy. In a large program they are opened one at a time by also.later(i), unless the
-- request depends on gradients that fn clears or makes before it.
local function open(fn, opts, what, names)
    local policy = opts.policy ~= nil and require('wane.policy').anew(opts.policy) or nil
    local target = require('wane.plan.costs').target(opts.target, what)
    local function with(request, name) return rehearse.with(request, name or policy, target) end
    return rehearse.open(fn, what, with, names and function(request, p)
        local also = {}
        function also.later(i) return program.open(with(request, names[i - 1])) end
        local depends = request.mode ~= 'step' and program.is_planning()
        if C.wn_node_count(p.handle) > LARGE and not depends then return also end
        for i = 1, #names + 1 do also[i] = also.later(i) end
        return also
    end)
end

local function close(list)
    for _, part in ipairs(list) do
        part.program:close()
        for _, p in ipairs(part.also or {}) do p:close() end
    end
end

-- Returns the program of a step whose plan can be chosen. Raises 'unsupported' when there are several.
local function chosen_of(list)
    local found
    for _, part in ipairs(list) do
        if #list == 1 or parts.chooses(part) then
            if found then
                raise(nil, 'unsupported', 'wane.frontier: the function runs %d programs (%s), and plans of more than '
                    .. 'one of them can be chosen; wane.plan and wane.min_budget take such a step', #list,
                    rehearse.modes(list))
            end
            found = part
        end
    end
    return found or list[1]
end

-- Returns function(q) that turns the bytes and seconds of one program's plan q into those of the whole step. It adds
-- the bytes held beside the program and the seconds of the other programs, and raises the bytes to what those need.
local function step_of(list, part)
    if #list == 1 then return function(q) return q end end
    local floor, peak, seconds = parts.floor(list), 0, 0
    for _, other in ipairs(list) do
        if other ~= part then
            local p = plan.of(other.program:plan())
            peak, seconds = math.max(peak, p.peak + other.beside.live), seconds + p.seconds
        end
    end
    return function(q)
        if not q then return nil end
        q.own = q.reserved
        q.reserved = math.max(q.reserved + part.beside.reserved, floor)
        q.peak, q.seconds = math.max(q.peak + part.beside.live, peak), q.seconds + seconds
        return q
    end
end

-- Turns points of a program into points of its step. Of points that reserve equal bytes then, the fastest one stays.
local function points_of_step(points, of_step)
    local out = {}
    for _, q in ipairs(points) do
        of_step(q)
        if #out == 0 or q.reserved < out[#out].reserved then out[#out + 1] = q end
    end
    return out
end

local function fill(self, list, count)
    local part = chosen_of(list)
    if C.wn_is_planned(part.program.handle) == 0 then
        require('wane.policy.decide').apply(part.program, part.program.policy, part.program.fallback)
    end
    local of_step = step_of(list, part)
    local points, tried = points_of(part.program)
    self.all, self.tried = points_of_step(points, of_step), tried
    if #list == 1 then let_go(part.program) end -- its points are read, and the plans that follow need the memory
    self.here = of_step(summary_of(part.also[1] or part.also.later(1)))
    for _, q in ipairs(self.all) do
        q.overhead = q.seconds / self.all[1].seconds - 1
        q.policy = require('wane.policy').budget(q.own or q.reserved)
    end
    for i, q in ipairs(thinned(self.all, count)) do self[i] = q end
    for i, name in ipairs(by_hand) do
        local found = of_step(summary_of(part.also[i + 1] or part.also.later(i + 1), name))
        if found then
            found.best = best_within(self, found.reserved)
            table.insert(self.heuristics, found)
        end
    end
end

--- Returns the plans of what fn records that no other plan beats in both bytes and seconds.
-- @param fn function() that returns the loss, or runs a step: opt:step(loss), or zero_grad, backward and step();
-- nothing runs
-- @param opts { points = 50 (most entries of the list), policy = (words of it bind every plan), target = (name of a
-- machine) }
-- @return Frontier. The bytes of a step of several programs are those of the whole step, and `policy` of a point is for
-- its backward.
-- @raise 'unsupported' when plans of several programs of a step can be chosen; 'value' for wrong options
-- @usage
-- local function loss() return model(x):sum() end
-- local frontier = wane.frontier(loss, { points = 5 })
-- print(wane.plan(loss, { policy = frontier[#frontier].policy }).reserved == frontier[#frontier].reserved) --> true
function frontier.frontier(fn, opts)
    opts = errors.check_options(opts, { 'points', 'policy', 'target' }, 'wane.frontier')
    local count = errors.count(opts.points or 50, 'wane.frontier: points', 2, 10000)
    local list = open(fn, opts, 'wane.frontier', by_hand)
    local self = setmetatable({ heuristics = {} }, Frontier)
    local ok, why = pcall(fill, self, list, count)
    close(list)
    if not ok then error(why, 0) end
    return self
end

--- Returns the least bytes in which a step runs, the first time too: the bytes that the smallest plan reserves, and at
-- least those of making its states before the first run. For a step of several programs it is the maximum over them,
-- each with the bytes that the others hold beside it.
-- @param fn as for wane.frontier
-- @param opts { policy = (words of it bind every plan), target = (name of a machine) }
-- @return bytes
-- @raise 'value' for wrong options
-- @usage
-- print(wane.min_budget(function() return model(x):sum() end))
function frontier.min_budget(fn, opts)
    opts = errors.check_options(opts, { 'policy', 'target' }, 'wane.min_budget')
    local list = open(fn, opts, 'wane.min_budget')
    local ok, least = pcall(function()
        if #list > 1 then return parts.least(list) end
        local p = list[1].program
        local reserved = frontier.least_of(p)
        return with_first(plan.first_of(p), reserved)
    end)
    close(list)
    if not ok then error(least, 0) end
    return least
end

function Frontier.__tostring(self)
    local rows = {}
    for i, q in ipairs(self) do
        local before = self[i - 1]
        local is_here = self.here and q.reserved <= self.here.reserved
            and (not before or before.reserved > self.here.reserved)
        rows[i] = { i, bytes.exact(q.reserved), bytes.text(q.reserved), ('%.6f'):format(q.seconds),
            ('%+.1f %%'):format(100 * q.overhead), q.recomputed, q.name .. (is_here and '  <- you are here' or '') }
    end
    local hand = {}
    for i, h in ipairs(self.heuristics) do
        hand[i] = { h.name, bytes.exact(h.reserved), ('%.6f'):format(h.seconds),
            h.best and ('%.6f'):format(h.best) or '-',
            h.best and ('%.1f %%'):format(100 * (h.seconds / h.best - 1)) or '-' }
    end
    return ('%d of %d plans worth having, %d looked at\n'):format(#self, #self.all, self.tried)
        .. table_.text({ '#', 'reserved', '', 'seconds', 'over the fastest', 'recomputed', 'from' }, rows)
        .. '\n' .. table_.text({ 'by hand', 'reserved', 'seconds', 'best within that', 'slower by' }, hand)
end

-- Returns the data of a scatter plot of seconds over MiB: all points as a staircase, and as named points its two ends,
-- the script's own plan and those of hand-written policies. Points with equal bytes and seconds share one name.
local function chart_of(self)
    local points, stairs = {}, {}
    for i = #self.all, 1, -1 do
        local q = self.all[i]
        points[#points + 1] = { x = q.reserved / 2 ^ 20, y = q.seconds, group = 1 }
        stairs[#stairs + 1] = #points
    end
    local at = {}
    local function add(q, name, group)
        if not q then return end
        local key = ('%.0f %.17g'):format(q.reserved, q.seconds)
        if at[key] then
            at[key].name = at[key].name .. ', ' .. name
            return
        end
        at[key] = { x = q.reserved / 2 ^ 20, y = q.seconds, name = name, group = group }
        points[#points + 1] = at[key]
    end
    add(self.all[#self.all], 'least bytes', 1)
    add(self.all[1], 'fastest', 1)
    add(self.here, 'here', 7)
    for _, h in ipairs(self.heuristics) do add(h, h.name, 2) end
    return { title = 'bytes against seconds: all plans worth having, and policies by hand', x = 'reserved, MiB',
        y = 's a step', points = points, fronts = { stairs } }
end

--- Plots seconds over bytes: all points as a staircase, hand-written policies as named points.
-- @param path SVG file to write (optional)
-- @return the name of the file; without a path, the plot as text of characters
-- @raise 'io' where the file cannot be written
-- @usage
-- print(wane.frontier(function() return model(x):sum() end):plot())
function Frontier:plot(path)
    local chart = chart_of(self)
    if path ~= nil then
        system.make_folders(path)
        return plot.write(path, plot.scatter(chart))
    end
    return plot.terminal_scatter(chart, { braille = system.is_rich(1) and system.is_utf8() })
end

return frontier
