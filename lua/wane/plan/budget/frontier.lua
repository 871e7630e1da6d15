--- wane.frontier(fn): the plans of a step that no other plan beats in both bytes and seconds; wane.min_budget(fn): the
-- least bytes of any of them.
--
-- plan/budget/choose.lua says how the library makes the list. Nothing runs.
--
-- A frontier is a printable list of points, fastest first.
--
-- A point has `reserved` and `peak` (bytes), `seconds`, `overhead` (seconds over those of the first point, minus 1),
-- `recomputed` (count of nodes), `name` (which proposal it comes from), `policies` (give that plan to the parts of the
-- step that have a backward, in order) and, where one has, `policy`.
--
-- On several ranks, before the first step, it joins the frontiers of the three words of wane.dist.place: a point has
-- its `word`, under which its bytes and seconds are those of this rank.
--
-- Fields: `here` (the plan under the script's own policies: reserved, peak, seconds), `heuristics` (plans of
-- hand-written policies: name, reserved, peak, seconds, and best, the seconds of the fastest point within the same
-- bytes), `all` (every point, of which the list holds `points`), `tried` (number of plans simulated).
-- @module wane.plan.budget.frontier
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local choose = require 'wane.plan.budget.choose'
local parts = require 'wane.plan.parts'
local placing = require 'wane.program.placing'
local plan = require 'wane.plan'
local plot = require 'wane.report.plot'
local scoped = require 'wane.scoped'
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

local LARGE = 10000 -- nodes of a program from which on memory is collected after it

-- Closes a program. The collector does not see the library's bytes, so a collection runs after a program above LARGE.
local function let_go(p)
    local is_large = C.wn_count(p.handle, C.WN_COUNT_NODES) > LARGE
    p:close()
    if is_large then collectgarbage() end
end

-- Returns { name =, reserved =, peak = (bytes), seconds =, forward = } of a program's plan, or nil when it has none,
-- and closes the program. The plan is dropped from the cache, because nothing runs it.
-- Measured: ten plans of 50,000 nodes in the cache take 600 MiB.
local function summary_of(p, name)
    local ok, found = pcall(function() return parts.numbers(p:plan()) end)
    local out = ok and { name = name, reserved = found.reserved, peak = found.peak, seconds = found.seconds,
        forward = found.forward } or nil
    check(C.wn_plan_forget(p.handle, 0))
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

-- Returns a point of a whole step, of the numbers of the plan of each part. chosen: numbers of the parts that choose.
local function point_of(list, plans, chosen)
    local all, own = parts.totals(list, plans), {}
    for i, k in ipairs(chosen) do own[i] = plans[k].reserved end
    return { reserved = all.reserved, peak = all.peak, seconds = all.seconds, recomputed = all.recomputed, own = own,
        name = plans[chosen[1] or 1].name }
end

-- Returns the plans of a step that no other beats: within each limit of bytes, every part has its fastest plan.
-- lists: [number of a part that chooses] = its points, fastest first; plans: numbers of the others.
local function points_of_step(list, lists, plans, chosen)
    local out, at = {}, {}
    for k, points in errors.iterate(lists) do at[k], plans[k] = 1, points[1] end
    while true do
        local point, largest = point_of(list, plans, chosen), nil
        if #out == 0 or point.reserved < out[#out].reserved then out[#out + 1] = point end
        for _, k in ipairs(chosen) do
            if plans[k].reserved + list[k].beside == point.reserved then largest = largest or k end
        end
        if not largest or not lists[largest][at[largest] + 1] then return out end
        at[largest] = at[largest] + 1
        plans[largest] = lists[largest][at[largest]]
    end
end

-- Returns the numbers of the step whose choosing parts are under the policy `name`, nil for the script's own, or nil.
local function step_under(list, plans, chosen, name)
    for _, k in ipairs(chosen) do
        plans[k] = summary_of(sequence.reopen(list, list[k], name), name)
        if not plans[k] then return nil end
    end
    return point_of(list, plans, chosen)
end

-- Returns the numbers of the parts of a step that choose, and the numbers of the plans of the others.
local function choosing(list)
    local chosen, plans = {}, {}
    for k, part in ipairs(list) do
        if #list == 1 or sequence.chooses(part.request) then
            chosen[#chosen + 1] = k
        else
            plans[k] = parts.numbers(part.program:plan())
        end
    end
    return chosen, plans
end

-- Returns the points of a step that is open, and how many plans were tried. word: of its parameters, or nil.
local function points_under(list, word)
    local chosen, plans = choosing(list)
    local lists, tried = {}, 0
    for _, k in ipairs(chosen) do
        local p = list[k].program
        if C.wn_is_planned(p.handle) == 0 then require('wane.policy.decide').apply(p, p.policy, p.fallback) end
        local points, count_tried = choose.points_of(p)
        lists[k], tried = points, tried + count_tried
    end
    local points = points_of_step(list, lists, plans, chosen)
    for _, q in ipairs(points) do q.word = word end
    if #list == 1 then let_go(list[1].program) end -- its points are read, and the plans that follow need the memory
    return points, tried
end

-- Returns those of the points of several words that no other beats, fastest first.
local function joined(points)
    local order, out = {}, {}
    for i, q in ipairs(points) do order[q] = i end
    table.sort(points, function(a, b)
        if a.seconds ~= b.seconds then return a.seconds < b.seconds end
        if a.reserved ~= b.reserved then return a.reserved < b.reserved end
        return order[a] < order[b]
    end)
    for _, q in ipairs(points) do
        if #out == 0 or q.reserved < out[#out].reserved then out[#out + 1] = q end
    end
    return out
end

-- Fills the points of a frontier: all, and the `count` that are listed.
local function put_points(self, points, count)
    self.all = points
    for _, q in ipairs(points) do
        q.overhead = q.seconds / points[1].seconds - 1
        q.policies = {}
        for i, own in ipairs(q.own) do q.policies[i] = require('wane.policy').budget(own) end
        q.policy = #q.policies == 1 and q.policies[1] or nil
    end
    for i, q in ipairs(thinned(points, count)) do self[i] = q end
end

-- Fills the script's own plan, and hand-written policies.
local function put_others(self, list)
    local chosen, plans = choosing(list)
    self.here = step_under(list, plans, chosen)
    for _, name in ipairs(by_hand) do
        local found = step_under(list, plans, chosen, name)
        if found then
            found.best = best_within(self, found.reserved)
            table.insert(self.heuristics, found)
        end
    end
end

-- Finds the frontier as whoever this process is. count: most entries of the list.
local function found(fn, opts, count)
    local list = step.open(fn, opts, 'wane.frontier')
    local self = setmetatable({ heuristics = {}, tried = 0 }, Frontier)
    local function closing(of, work, ...) return scoped.always(function() sequence.close(of) end, work, ...) end
    local optimizers, all = placing.optimizers(list), {}
    if optimizers then
        sequence.close(list)
        placing.try(optimizers, function(word)
            local under = step.open(fn, opts, 'wane.frontier')
            local points, tried = closing(under, points_under, under, word)
            for _, q in ipairs(points) do all[#all + 1] = q end
            self.tried = self.tried + tried
        end)
        list = step.open(fn, opts, 'wane.frontier')
    end
    closing(list, function()
        if not optimizers then all, self.tried = points_under(list) end
        put_points(self, optimizers and joined(all) or all, count)
        put_others(self, list)
    end)
    return self
end

--- Returns the plans of what fn records that no other plan beats in both bytes and seconds; on several ranks, of all
-- words of wane.dist.place that are still free.
-- @param fn function() that returns the loss, or runs a step: opt:step(loss), or zero_grad, backward and step();
-- nothing runs
-- @param opts { points = 50 (most entries of the list), policy = (its decisions bind every plan), target = (name of a
-- machine), optimizer =, lines = (the training step of the loss), ranks =, rank =, link = (one rank of a job), as of
-- wane.plan }
-- @return Frontier. Bytes and seconds are those of the whole step; `policies` of a point are for its backwards, once
-- wane.dist.place(model, opt, point.word) has put its parameters under its word, where it has one.
-- @raise 'value' for wrong options
-- @usage
-- local function loss() return model(x):sum() end
-- local frontier = wane.frontier(loss, { points = 5 })
-- print(wane.plan(loss, { policy = frontier[#frontier].policy }).reserved == frontier[#frontier].reserved) --> true
function frontier.frontier(fn, opts)
    opts = plan.check_options(opts, { 'points', 'policy', 'target', unpack(step.all_options) }, 'wane.frontier')
    local count = errors.count(opts.points or 50, 'wane.frontier: points', 2, 10000)
    return step.as_job(fn, opts, 'wane.frontier', function() return found(fn, opts, count) end)
end

--- Returns the least bytes in which a step runs, the first time too: the bytes that the smallest plan reserves, and at
-- least those of making its states before the first run. For a step of several programs it is the maximum over them,
-- each with the bytes that the others hold beside it.
-- @param fn as for wane.frontier
-- @param opts { policy = (its decisions bind every plan), target = (name of a machine), optimizer =, lines =, ranks =,
-- rank =, link =, place = }
-- @return bytes
-- @raise 'value' for wrong options
-- @usage
-- print(wane.min_budget(function() return model(x):sum() end))
function frontier.min_budget(fn, opts)
    opts = plan.check_options(opts, { 'policy', 'target', unpack(step.all_options) }, 'wane.min_budget')
    return step.as_job(fn, opts, 'wane.min_budget', function()
        local list = step.open(fn, opts, 'wane.min_budget')
        return scoped.always(function() sequence.close(list) end, step.least, list)
    end)
end

function Frontier.__tostring(self)
    local rows = {}
    for i, q in ipairs(self) do
        local before = self[i - 1]
        local is_here = self.here and q.reserved <= self.here.reserved
            and (not before or before.reserved > self.here.reserved)
        rows[i] = { i, bytes.exact(q.reserved), bytes.text(q.reserved), ('%.6f'):format(q.seconds),
            ('%+.1f %%'):format(100 * q.overhead), q.recomputed, (q.word and q.word .. ': ' or '') .. q.name
            .. (is_here and '  <- you are here' or '') }
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
