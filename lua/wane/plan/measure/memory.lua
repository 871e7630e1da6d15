--- wane.memory(): the bytes that the ledger of a device counts, and limits on them.
--
-- `allocated` counts live buffers, each rounded up to 256 bytes; `reserved` adds the idle bytes of arenas and slabs.
-- Both are counted, never estimated. `peak` is the largest `allocated` since the start or the last reset.
--
-- `wane.memory(device)` returns the report of a device, by default of the current one.
--
-- A report prints as a table, and report:plot() draws it. Its fields, in bytes: `allocated`, `reserved`, `peak`,
-- `peak_reserved`, `limit` (or nil), `host`; `kinds` and `peak_kinds` (bytes by kind, now and at the peak); of
-- offloaded values `disk`, `disk_limit` (or nil) and `away` (host memory beside a device's own); `device` is its name.
-- A GPU that was used adds `taken`, the bytes of `segments` pieces of memory that its driver gave to this process
-- (`reserved` lies in them), and `free` and `total`, which count every process.
-- @module wane.plan.measure.memory
-- @usage
-- local big = wane.eval(wane.ones(1024))
-- print(wane.memory().kinds.result >= 4 * big:numel()) --> true
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local plot = require 'wane.report.plot'
local program = require 'wane.program'
local text = require 'wane.report.table'

local C, check = binding.C, binding.check

local memory = {}

local function device_of(name, what)
    return name == nil and C.wn_here().device or op.device(name, what)
end

--- Class of reports; the head of this file lists its fields.
local Report = {}
Report.__index = Report

function Report.__tostring(r)
    local rows = {}
    for _, name in ipairs(program.kind_names) do
        if r.kinds[name] > 0 or r.peak_kinds[name] > 0 then
            rows[#rows + 1] = { name, bytes.exact(r.kinds[name]), bytes.exact(r.peak_kinds[name]) }
        end
    end
    rows[#rows + 1] = { 'allocated', bytes.exact(r.allocated), bytes.exact(r.peak) }
    rows[#rows + 1] = { 'reserved', bytes.exact(r.reserved), bytes.exact(r.peak_reserved) }
    if r.taken then rows[#rows + 1] = { ('segments (%d)'):format(r.segments), bytes.exact(r.taken), '' } end
    if r.disk > 0 then rows[#rows + 1] = { 'on disk', bytes.exact(r.disk), '' } end
    local limit = r.limit and 'limit ' .. bytes.text(r.limit) or 'no limit'
    return ('memory of %s, bytes (%s)\n'):format(r.device, limit) .. text.text({ 'kind', 'now', 'at the peak' }, rows)
end

-- Returns the data of a chart: MiB by kind, now and at the peak.
local function chart_of(r)
    local chart = { title = ('memory of %s: allocated, by kind'):format(r.device), unit = 'MiB', format = '%.4g',
        groups = { 'now', 'at the peak' }, series = {} }
    for _, name in ipairs(program.kind_names) do
        if r.kinds[name] > 0 or r.peak_kinds[name] > 0 then
            table.insert(chart.series, { name = name, values = { r.kinds[name] / bytes.MiB,
                r.peak_kinds[name] / bytes.MiB } })
        end
    end
    return chart
end

--- Draws the bytes by kind, now and at the peak, in the colours of plan:timeline.
-- @function memory:plot
-- @param path SVG file to write (optional)
-- @return the name of the file; without a path, the bars as text of characters, a letter for each kind
-- @raise 'io' where the file cannot be written
-- @usage
-- local big = wane.eval(wane.ones(1024))
-- print(wane.memory():plot())
function Report:plot(path)
    if path == nil then return plot.terminal_stacks(chart_of(self)) end
    return plot.write(path, plot.stacks(chart_of(self)))
end

-- Makes the report of a device.
local function get(device)
    local m = binding.new('struct wn_memory')
    check(C.wn_memory_get(device, m))
    local report = {
        device = binding.text(C.wn_device_name(device)), allocated = tonumber(m.live), reserved = tonumber(m.reserved),
        peak = tonumber(m.peak), peak_reserved = tonumber(m.peak_reserved), host = tonumber(m.host),
        limit = m.limit > 0 and tonumber(m.limit) or nil, disk = tonumber(m.disk), away = tonumber(m.away),
        disk_limit = m.disk_limit > 0 and tonumber(m.disk_limit) or nil,
        kinds = program.by_kind(m.kinds), peak_kinds = program.by_kind(m.peak_kinds),
    }
    if m.total > 0 then
        for _, name in ipairs { 'total', 'free', 'taken', 'segments' } do report[name] = tonumber(m[name]) end
    end
    return setmetatable(report, Report)
end

--- Limits the reserved bytes of a device.
-- @param size bytes, as a number or text such as '8 GiB'; nil or 0 removes the limit
-- @param device name, by default the current one
-- @raise 'value' for a malformed size and an unknown device
-- @usage
-- wane.memory.limit '8 GiB'
-- print(wane.memory().limit) --> 8589934592
-- wane.memory.limit(nil)
function memory.limit(size, device)
    local n = size == nil and 0 or bytes.parse(size, 'memory.limit')
    check(C.wn_memory_limit(device_of(device, 'memory.limit'), 0, n))
end

--- Limits the bytes of disk that the offloaded values of one program may take.
-- @param size bytes, as a number or text such as '8 GiB'; nil or 0 removes the limit
-- @param device name, by default the current one
-- @raise 'value' for a malformed size and an unknown device
-- @usage
-- wane.memory.limit_disk '8 GiB'
-- print(wane.memory().disk_limit) --> 8589934592
-- wane.memory.limit_disk(nil)
function memory.limit_disk(size, device)
    local n = size == nil and 0 or bytes.parse(size, 'memory.limit_disk')
    check(C.wn_memory_limit(device_of(device, 'memory.limit_disk'), 1, n))
end

--- Resets the peaks of a device to the bytes allocated and reserved now.
-- @param device name, by default the current one
-- @usage
-- wane.memory.reset_peak()
-- local before = wane.memory().peak
-- local big = wane.eval(wane.ones(1024))
-- print(wane.memory().peak >= before + big:numel() * 4) --> true
function memory.reset_peak(device)
    check(C.wn_memory_reset_peak(device_of(device, 'memory.reset_peak')))
end

--- Collects tensors that the script no longer refers to, then returns idle arenas, slabs and graphs to the system.
--
-- Compiled traces are flushed first, because a trace may hold a model as a constant.
-- @param device name, by default the current one
-- @usage
-- wane.memory.trim()
-- print(wane.memory().allocated)
function memory.trim(device)
    if jit then jit.flush() end
    collectgarbage()
    collectgarbage() -- the first collection ran finalizers, the second one frees what they released
    check(C.wn_memory_trim(device_of(device, 'memory.trim')))
end

-- Makes the table callable: wane.memory(device) returns the report of a device, by default of the current one. Nothing
-- can be assigned, because `wane.memory.limit = '8 GiB'` would replace a function and limit nothing.
return setmetatable({}, {
    __index = memory,
    __call = function(_, device) return get(device_of(device, 'wane.memory')) end,
    __newindex = function(_, name, value)
        local given = type(value) == 'string' and "'" .. value .. "'" or tostring(value)
        local instead = memory[name] and ('call wane.memory.%s(%s)'):format(name, given) or 'there is nothing to assign'
        errors.raise(nil, 'value', 'wane.memory.%s = %s: %s', tostring(name), given, instead)
    end,
})
