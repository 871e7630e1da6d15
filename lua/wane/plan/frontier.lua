--- wane.frontier(fn): the plans of a step that no other plan beats in both bytes and seconds; wane.min_budget(fn): the
-- least bytes of any of them.
--
-- plan/choose.lua says how the library makes the list. Nothing runs.
--
-- A frontier is a printable list of points, fastest first.
--
-- A point has `reserved` and `peak` (bytes), `seconds`, `overhead` (seconds over those of the first point, minus 1),
-- `recomputed` (count of nodes), `name` (which proposal it comes from), `policies` (give that plan to the run points
-- that choose, in order) and, where one chooses, `policy`.
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
local plot = require 'wane.report.plot'
local program = require 'wane.program'
local sequence = require 'wane.program.sequence'
local step = require 'wane.plan.step'
local table_ = require 'wane.report.table'

local C, check = binding.C, binding.check

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

-- Opens the parts of fn's step. With `names`, each part that chooses has `also`: the same request under the script's
-- own policies (also[1]) and under each named policy. In a large program they are opened one at a time by
-- also.later(i), unless the request depends on gradients that fn clears or makes before it.
local function open(fn, opts, what, names)
    return (step.open(fn, opts, what, names and function(request, p, with)
        local also = {}
        if not sequence.chooses(request) and request.mode ~= 'eval' then return also end
        function also.later(i) return program.open(with(request, names[i - 1])) end
        local is_free = request.mode == 'step' or request.is_alone
        if C.wn_node_count(p.handle) > LARGE and is_free then return also end
        for i = 1, #names + 1 do also[i] = also.later(i) end
        return also
    end))
end

-- Splits the parts of a step into those whose plans can be chosen and the others; a step of one part chooses it.
local function split(list)
    local chosen, fixed = {}, {}
    for _, part in ipairs(list) do
        table.insert((#list == 1 or sequence.chooses(part.request)) and chosen or fixed, part)
    end
    return chosen, fixed
end

-- Returns { reserved =, peak =, seconds =, recomputed =, own = list of bytes reserved by each } of a whole step, of one
-- plan for each chosen part; `fixed` holds these of the others.
local function sum_of(chosen, plans, fixed)
    local all = { reserved = fixed.reserved, peak = fixed.peak, seconds = fixed.seconds, recomputed = 0, own = {} }
    for i, q in ipairs(plans) do
        local beside = chosen[i].beside
        all.reserved = math.max(all.reserved, q.reserved + beside.reserved)
        all.peak = math.max(all.peak, q.peak + beside.live)
        all.seconds, all.recomputed = all.seconds + q.seconds, all.recomputed + (q.recomputed or 0)
        all.own[i] = q.reserved
    end
    all.name = plans[1].name
    return all
end

-- Returns the bytes and seconds of the parts that nothing chooses.
local function fixed_of(list)
    local fixed = { reserved = 0, peak = 0, seconds = 0 }
    for _, part in ipairs(list) do
        local p = plan.of(part.program:plan())
        fixed.reserved = math.max(fixed.reserved, p.reserved + part.beside.reserved)
        fixed.peak, fixed.seconds = math.max(fixed.peak, p.peak + part.beside.live), fixed.seconds + p.seconds
    end
    return fixed
end

-- Returns the plans of a step that no other beats: within each limit of bytes, every part has its fastest plan.
-- lists: the points of each chosen part, fastest first.
local function points_of_step(chosen, lists, fixed)
    local out, at, plans = {}, {}, {}
    for i, list in ipairs(lists) do at[i], plans[i] = 1, list[1] end
    while true do
        local point, largest = sum_of(chosen, plans, fixed), nil
        if #out == 0 or point.reserved < out[#out].reserved then out[#out + 1] = point end
        for i, q in ipairs(plans) do
            if q.reserved + chosen[i].beside.reserved == point.reserved then largest = largest or i end
        end
        if not largest or not lists[largest][at[largest] + 1] then return out end
        at[largest] = at[largest] + 1
        plans[largest] = lists[largest][at[largest]]
    end
end

-- Returns the numbers of the step whose chosen parts have the plans of their i-th further program, or nil.
local function step_under(chosen, i, fixed, name)
    local plans = {}
    for k, part in ipairs(chosen) do
        plans[k] = summary_of(part.also[i] or part.also.later(i), name)
        if not plans[k] then return nil end
    end
    return sum_of(chosen, plans, fixed)
end

-- Fills the frontier: all points, the `count` that are listed, the script's own plan, and hand-written policies.
local function fill(self, list, count)
    local chosen, fixed = split(list)
    local lists, tried = {}, 0
    fixed = fixed_of(fixed)
    for i, part in ipairs(chosen) do
        local p = part.program
        if C.wn_is_planned(p.handle) == 0 then require('wane.policy.decide').apply(p, p.policy, p.fallback) end
        local points, count_tried = choose.points_of(p)
        lists[i], tried = points, tried + count_tried
    end
    self.all, self.tried = points_of_step(chosen, lists, fixed), tried
    if #list == 1 then let_go(list[1].program) end -- its points are read, and the plans that follow need the memory
    self.here = step_under(chosen, 1, fixed)
    for _, q in ipairs(self.all) do
        q.overhead = q.seconds / self.all[1].seconds - 1
        q.policies = {}
        for i, own in ipairs(q.own) do q.policies[i] = require('wane.policy').budget(own) end
        q.policy = #q.policies == 1 and q.policies[1] or nil
    end
    for i, q in ipairs(thinned(self.all, count)) do self[i] = q end
    for i, name in ipairs(by_hand) do
        local found = step_under(chosen, i + 1, fixed, name)
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
-- machine), optimizer =, lines = (the training step of the loss, as of wane.plan) }
-- @return Frontier. Bytes and seconds are those of the whole step; `policies` of a point are for its backwards.
-- @raise 'value' for wrong options
-- @usage
-- local function loss() return model(x):sum() end
-- local frontier = wane.frontier(loss, { points = 5 })
-- print(wane.plan(loss, { policy = frontier[#frontier].policy }).reserved == frontier[#frontier].reserved) --> true
function frontier.frontier(fn, opts)
    opts = plan.check_options(opts, { 'points', 'policy', 'target', unpack(step.options) }, 'wane.frontier')
    local count = errors.count(opts.points or 50, 'wane.frontier: points', 2, 10000)
    local list = open(fn, opts, 'wane.frontier', by_hand)
    local self = setmetatable({ heuristics = {} }, Frontier)
    local ok, why = errors.pcall(fill, self, list, count)
    sequence.close(list)
    if not ok then errors.again(why) end
    return self
end

--- Returns the least bytes in which a step runs, the first time too: the bytes that the smallest plan reserves, and at
-- least those of making its states before the first run. For a step of several programs it is the maximum over them,
-- each with the bytes that the others hold beside it.
-- @param fn as for wane.frontier
-- @param opts { policy = (its decisions bind every plan), target = (name of a machine), optimizer =, lines = }
-- @return bytes
-- @raise 'value' for wrong options
-- @usage
-- print(wane.min_budget(function() return model(x):sum() end))
function frontier.min_budget(fn, opts)
    opts = plan.check_options(opts, { 'policy', 'target', unpack(step.options) }, 'wane.min_budget')
    local list = open(fn, opts, 'wane.min_budget')
    local ok, least = errors.pcall(step.least, list)
    sequence.close(list)
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
    if path ~= nil then return plot.write(path, plot.scatter(chart)) end
    return plot.terminal_scatter(chart)
end

return frontier
