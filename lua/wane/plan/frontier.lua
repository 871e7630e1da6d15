--- wane.frontier(fn): the plans of a step that no other plan beats in both bytes and seconds; wane.min_budget(fn): the
-- least bytes of any of them.
--
-- plan/choose.lua says how the library makes the list. Nothing runs.
--
-- A frontier is a printable list of points, fastest first.
--
-- A point has `reserved` and `peak` (bytes), `seconds`, `overhead` (seconds over those of the first point, minus 1),
-- `recomputed` (count of nodes), `name` (which proposal it comes from) and `policy` (gives that plan).
--
-- Fields: `here` (the plan under the script's own policies: reserved, peak, seconds), `heuristics` (plans of
-- hand-written policies: name, reserved, peak, seconds, and best, the seconds of the fastest point within the same
-- bytes), `all` (every point, of which the list holds `points`), `tried` (number of plans simulated).
-- @module wane.plan.frontier
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local choose = require 'wane.plan.choose'
local plan = require 'wane.plan'
local planning = require 'wane.plan.planning'
local palette = require 'wane.report.palette'
local plot = require 'wane.report.plot'
local program = require 'wane.program'
local rehearse = require 'wane.program.rehearse'
local system = require 'wane.system'
local table_ = require 'wane.report.table'

local C, check, raise = binding.C, binding.check, errors.raise

local frontier = {}

-- ---- looking -----------------------------------------------------------------------------------------------

--- Class of frontiers; the head of this file lists its fields.
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
    local target = require('wane.plan.target').of(opts.target, what)
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
        if #list == 1 or rehearse.chooses(part) then
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
    local floor, peak, seconds = planning.floor(list), 0, 0
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

-- Fills the frontier: all points, the `count` that are listed, the script's own plan, and hand-written policies.
local function fill(self, list, count)
    local part = chosen_of(list)
    if C.wn_is_planned(part.program.handle) == 0 then
        require('wane.policy.decide').apply(part.program, part.program.policy, part.program.fallback)
    end
    local of_step = step_of(list, part)
    local points, tried = choose.points_of(part.program)
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
-- @param opts { points = 50 (most entries of the list), policy = (its decisions bind every plan), target = (name of a
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
    local ok, why = errors.pcall(fill, self, list, count)
    close(list)
    if not ok then errors.again(why) end
    return self
end

--- Returns the least bytes in which a step runs, the first time too: the bytes that the smallest plan reserves, and at
-- least those of making its states before the first run. For a step of several programs it is the maximum over them,
-- each with the bytes that the others hold beside it.
-- @param fn as for wane.frontier
-- @param opts { policy = (its decisions bind every plan), target = (name of a machine) }
-- @return bytes
-- @raise 'value' for wrong options
-- @usage
-- print(wane.min_budget(function() return model(x):sum() end))
function frontier.min_budget(fn, opts)
    opts = errors.check_options(opts, { 'policy', 'target' }, 'wane.min_budget')
    local list = open(fn, opts, 'wane.min_budget')
    local ok, least = errors.pcall(function()
        if #list > 1 then return planning.least(list) end
        local p = list[1].program
        local reserved = choose.least_of(p)
        return choose.with_first(p:first(), reserved)
    end)
    close(list)
    if not ok then errors.again(least) end
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
    add(self.here, 'here', 3)
    for _, h in ipairs(self.heuristics) do add(h, h.name, 2) end
    return { title = 'bytes against seconds: all plans worth having, and policies by hand', x = 'reserved, MiB',
        y = 's/step', points = points, fronts = { stairs }, groups = { 'plan worth having', 'policy by hand',
            "the script's own plan" }, front_name = 'least s/step within the bytes' }
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
    return plot.terminal_scatter(chart, { braille = system.is_rich(1) and system.is_utf8(), colour = palette.is_on() })
end

return frontier
