--- A plan over time: plan:timeline (SVG), plan:plot (characters) and plan:trace (Chrome trace JSON).
--
-- All three show the simulator's bytes by kind, instruction by instruction, in the order of the schedule. The seconds
-- of a trace are predicted, or those that a run with timing noted. Nothing runs.
-- @internal wane.plan.timeline
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local explain = require 'wane.plan.explain'
local json = require 'wane.report.json'
local plot = require 'wane.report.plot'
local program = require 'wane.program'

local C = binding.C

local timeline = {}

-- ---- bytes by kind ----------------------------------------------------------------------------------------------
-- Returns a mark where each phase begins. Recomputing begins with the backward and has none of its own. Where a phase
-- begins in several parts, each mark has the number of its part.
local function marks_of(p)
    local marks, seen, count = {}, {}, {}
    for i, step in ipairs(p:schedule()) do
        local name = step.phase
        if name ~= 'recompute' and seen[name] ~= step.part then
            seen[name], count[name] = step.part, (count[name] or 0) + 1
            marks[#marks + 1] = { at = i, name = name, part = step.part }
        end
    end
    for _, mark in ipairs(marks) do
        if count[mark.name] > 1 then mark.name = mark.name .. ' ' .. mark.part end
    end
    return marks
end

-- Returns the mark of the peak: the middle of its instruction, the bytes and where they are.
local function mark_of(peak)
    local place = peak.step > 0 and (', instruction %d: %s%s'):format(peak.step, peak.op, peak.path ~= '' and ' of '
        .. peak.path or '') or ', before the first instruction'
    return { at = peak.step + 0.5, value = peak.bytes / 2 ^ 20, name = 'peak ' .. bytes.text(peak.bytes) .. place }
end

-- Returns the chart of live MiB by kind over the instructions, with marks of phases and of the peak.
local function chart_of(p, peak)
    local rows, series, number = p:kinds_over_time(), {}, {}
    for k, name in ipairs(program.kind_names) do
        local values, most = {}, 0
        for i, row in ipairs(rows) do
            values[i] = row[name] / 2 ^ 20
            most = math.max(most, row[name])
        end
        if most > 0 or k == #program.kind_names and #series == 0 then
            series[#series + 1] = { name = name, values = values }
            number[name] = #series
        end
    end
    return { title = ('live bytes over the instructions of a step, peak %s'):format(bytes.text(p.peak)), unit = 'MiB',
        x = 'instruction', marks = marks_of(p), peak = mark_of(peak), series = series, number = number }
end

local MOST = 24 -- lifetimes drawn below the areas, at most

--- Draws a plan as SVG: bytes by kind as areas, phases and the peak as marks, the lifetimes at the peak as bars.
-- @param p Plan
-- @return text
function timeline.svg(p)
    local peak = explain.peak(p)
    local chart, lives = chart_of(p, peak), peak.values
    table.sort(lives, function(a, b)
        if a.bytes ~= b.bytes then return a.bytes > b.bytes end
        return a.from < b.from
    end)
    chart.bars = {}
    for i = 1, math.min(MOST, #lives) do
        local life = lives[i]
        chart.bars[i] = { from = life.from, to = life.to + 1, group = chart.number[life.kind] or 1,
            name = ('%s%s, %s'):format(life.op, life.path ~= '' and ' ' .. life.path or '', bytes.text(life.bytes)) }
    end
    chart.bars_title = #lives > MOST and ('largest %d of %d values alive at the peak'):format(MOST, #lives)
        or 'values alive at the peak'
    return plot.areas(chart)
end

local Text = {}
Text.__index = Text
function Text.__tostring(t) return t.text end

--- Draws the live bytes of a plan with characters, one letter a kind.
-- @param p Plan
-- @param opts { columns = 72, rows = 16, braille = }, as those of canvas.new. At a terminal that takes colours the
-- letters have those of their kinds, unless NO_COLOR is set.
-- @return an object that prints
function timeline.terminal(p, opts)
    opts = errors.check_options(opts, { 'columns', 'rows', 'braille' }, 'plan:plot')
    for _, name in ipairs { 'columns', 'rows' } do errors.count(opts[name] or 2, 'plan:plot: ' .. name, 2, 1000) end
    return setmetatable({ text = plot.terminal_areas(chart_of(p, explain.peak(p)), opts) }, Text)
end

-- ---- a trace ----------------------------------------------------------------------------------------------------
local tracks = { forward = 1, recompute = 2, backward = 3, update = 4 }
local links = { ['to disk'] = 5, ['from disk'] = 6, ['to host'] = 7, ['from host'] = 8, ranks = 9 }

-- Returns the seconds of an instruction: measured in the last run if that was timed, else predicted.
local function seconds_of(step, is_timed)
    if step.what == 'free' or step.what == 'read' then return 0 end
    return is_timed and math.max(0, C.wn_step_seconds(step.program.handle, step.at)) or step.seconds
end

local function is_timed(steps)
    for _, step in ipairs(steps) do
        if step.what == 'run' and C.wn_step_seconds(step.program.handle, step.at) >= 0 then return true end
    end
    return false
end

-- Names the tracks that the trace uses.
local function name_tracks(events, timed, steps)
    events[1] = { ph = 'M', pid = 1, tid = 0, name = 'process_name', args = { name = timed and 'a step, measured'
        or 'a step, predicted' } }
    local function name_track(name, track)
        events[#events + 1] = { ph = 'M', pid = 1, tid = track, name = 'thread_name', args = { name = name } }
    end
    local used = {}
    for _, step in ipairs(steps) do used[step.phase], used[step.link or ''] = true, true end
    for _, list in ipairs { tracks, links } do
        for name, track in errors.iterate(list) do
            if used[name] then name_track(name, track) end
        end
    end
end

local function counters(row)
    local args = {}
    for _, name in ipairs(program.kind_names) do args[name] = row[name] end
    return args
end

-- Returns the trace event of a transfer beside the kernels. It begins at `at` microseconds, or when its link is free.
-- Its seconds are predicted in a measured trace too, because a run does not read the clock when a transfer ends.
local function move(step, at, free)
    local begins = math.max(at, free[step.link] or 0)
    free[step.link] = begins + 1e6 * step.takes
    return { ph = 'X', pid = 1, tid = links[step.link], ts = begins, dur = 1e6 * step.takes,
        name = step.what .. ' ' .. step.op, cat = 'move', args = { path = step.path, node = step.node,
            bytes = step.bytes } }
end

--- Returns the Chrome trace JSON of a plan: slices 'X' in microseconds, counters 'C' in bytes. Kernels have one track a
-- phase, transfers one track a link.
-- @param p Plan
-- @return text
function timeline.trace(p)
    local steps, rows, events, at, free = p:schedule(), p:kinds_over_time(), {}, 0, {}
    local timed = is_timed(steps)
    name_tracks(events, timed, steps)
    events[#events + 1] = { ph = 'C', pid = 1, tid = 0, ts = 0, name = 'bytes', args = counters(rows[1]) }
    for i, step in ipairs(steps) do
        local duration = 1e6 * seconds_of(step, timed)
        if step.what == 'run' or duration > 0 then
            events[#events + 1] = { ph = 'X', pid = 1, tid = tracks[step.phase], ts = at, dur = duration,
                name = step.what == 'run' and step.op or step.what .. ' ' .. step.op, cat = step.phase,
                args = { path = step.path, instruction = i, node = step.node,
                    bytes = step.bytes, workspace = step.workspace, kind = step.kind } }
        end
        if step.link then events[#events + 1] = move(step, at, free) end
        events[#events + 1] = { ph = 'C', pid = 1, tid = 0, ts = at, name = 'bytes', args = counters(rows[i + 1]) }
        at = at + duration
    end
    return json.encode { displayTimeUnit = 'ms', traceEvents = events } .. '\n'
end

return timeline
