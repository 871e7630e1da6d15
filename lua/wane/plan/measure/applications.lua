--- Adds up the measured seconds of a step's instructions by op, path, type or phase.
--
-- A collector is given every program of a step that ran with timing, several times; the seconds of an instruction are
-- the median over the times. FLOP and bytes are those of the rules of ops (wn_step), so a rate compares a kernel
-- with what its op needs at least, not with what it moves. A rate is in GFLOP/s where the machine's rates make the FLOP
-- of the group take longer than its bytes, else in GB/s.
-- @internal wane.plan.measure.applications
local binding = require 'wane.ffi'
local by = require 'wane.plan.by'
local spread = require 'wane.report.spread'
local table_ = require 'wane.report.table'

local C, check = binding.C, binding.check

local applications = {}

local words = { 'op', 'path', 'type', 'phase' }
local NOBODY = '(no module)'

--- Class of collectors. Fields: places (list of { op =, path =, type =, phase =, flops =, bytes =, times = list of
-- seconds }, one an instruction), device (number).
local Collector = {}
Collector.__index = Collector

--- Makes a collector.
function applications.new()
    return setmetatable({ places = {}, at = 0 }, Collector)
end

--- Says that a step begins: the next program is its first.
function Collector:begin()
    self.at = 0
end

local step, node = binding.new('struct wn_step'), binding.new('struct wn_node_info')
local summary = binding.new('struct wn_summary')
local rates = binding.new('struct wn_profile')

-- Describes an instruction of the phase `name`, whose wn_step was just read.
local function describe(handle, name)
    check(C.wn_node(handle, step.node, node))
    local what, op, path, type_ = binding.text(step.what), binding.text(step.op), binding.text(step.path),
        binding.text(node.module)
    return { op = what == 'run' and op or what, path = path ~= '' and path or NOBODY,
        type = type_ ~= '' and type_ or NOBODY, phase = name, flops = step.flops, bytes = step.traffic,
        times = {} }
end

--- Adds the instructions of a program that ran with timing.
-- @param p Program
function Collector:take(p)
    local handle, phase_of = p.handle, p:phases()
    for i = 0, C.wn_count(handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
        local seconds = C.wn_step_seconds(handle, i)
        check(C.wn_step(handle, i, step))
        local what, name = binding.text(step.what), phase_of(step.phase)
        if seconds >= 0 and what ~= 'free' and what ~= 'read' then
            self.at = self.at + 1
            local now, place = describe(handle, name), self.places[self.at]
            if not place or place.op ~= now.op or place.path ~= now.path then place = now end
            self.places[self.at] = place
            table.insert(place.times, seconds)
        end
    end
    check(C.wn_summary(handle, summary))
    self.device = summary.device
end

-- Adds a place to the row of its group.
local function count(row, place, seconds)
    row.calls, row.seconds = row.calls + 1, row.seconds + seconds
    row.flops, row.bytes = row.flops + place.flops, row.bytes + place.bytes
end

local function new_row(name)
    return { name = name, calls = 0, seconds = 0, flops = 0, bytes = 0 }
end

-- Sets share, gflops, gbytes and bound of a row.
local function finish(row, total)
    row.share = total > 0 and row.seconds / total or 0
    row.gflops, row.gbytes = 0, 0
    if row.seconds > 0 then
        row.gflops, row.gbytes = row.flops / row.seconds / 1e9, row.bytes / row.seconds / 1e9
    end
    row.fastest = rates.bytes
    row.bound = row.flops / rates.f32 > row.bytes / rates.bytes and 'compute' or 'memory'
    return row
end

--- Class of tables; prints. Fields: what (the word), rows (list of { name =, calls =, seconds = (total), share =, flops
-- =, bytes =, gflops =, gbytes =, bound = 'compute' or 'memory', fastest = bytes/s of the machine's memory }), total
-- (such a row).
local Table = {}
Table.__index = Table

local MOST = 20 -- rows that print

local IN_PLACE = 10 -- a rate of memory above so many times the machine's is that of bytes that stayed where they were

-- Returns the text of a row's rate; '' where nothing is computed or moved.
local function rate_of(row)
    local is_compute = row.bound == 'compute'
    local rate, unit = is_compute and row.gflops or row.gbytes, is_compute and ' GFLOP/s' or ' GB/s'
    if rate == 0 or not is_compute and 1e9 * rate > IN_PLACE * row.fastest then return '' end
    return (rate >= 100 and '%.0f' or '%.3g'):format(rate) .. unit
end

local function cells_of(row)
    return { row.name, row.calls, ('%.4g'):format(1e3 * row.seconds), ('%.1f %%'):format(100 * row.share),
        rate_of(row) }
end

function Table.__tostring(t)
    local lines, more = {}, new_row ''
    for i, row in ipairs(t.rows) do
        if i <= MOST or #t.rows == MOST + 1 then
            lines[#lines + 1] = cells_of(row)
        else
            count(more, row, row.seconds)
            more.calls = more.calls + row.calls - 1
        end
    end
    if more.calls > 0 then
        more.name = ('%d more'):format(#t.rows - MOST)
        lines[#lines + 1] = cells_of(finish(more, t.total.seconds))
    end
    lines[#lines + 1] = cells_of(t.total)
    return table_.text({ t.what, 'calls', 'ms', 'share', 'rate' }, lines)
end

--- Adds up the seconds of the collected instructions by group, the longest first.
-- @param what 'op', 'path', 'type' or 'phase'
-- @param name opens the message of an error
-- @return Table
-- @raise 'value' for another word
function Collector:by(what, name)
    by.check(what, words, name)
    local list, rows, total = {}, {}, new_row 'all'
    for i = 1, self.at do
        local place = self.places[i]
        local key, seconds = place[what], spread.of(place.times).median
        if not rows[key] then
            rows[key] = new_row(key)
            list[#list + 1] = rows[key]
        end
        count(rows[key], place, seconds)
        count(total, place, seconds)
    end
    table.sort(list, function(a, b)
        if a.seconds ~= b.seconds then return a.seconds > b.seconds end
        return a.name < b.name
    end)
    check(C.wn_profile_get(self.device or 0, rates))
    for _, row in ipairs(list) do finish(row, total.seconds) end
    return setmetatable({ what = what, rows = list, total = finish(total, total.seconds) }, Table)
end

return applications
