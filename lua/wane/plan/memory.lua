--- wane.memory(): what the ledger says, and the cap on it.
--
-- `allocated` counts live buffers rounded to 256 bytes, `reserved` adds what idle arenas and slabs hold. Both are
-- the ledger's, never an estimate. `peak` runs since the start or the last reset.
-- @module wane.plan.memory
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local op = require 'wane.tensor.op'
local text = require 'wane.report.table'

local C, check = binding.C, binding.check
local tonumber = tonumber

local memory = {}

local kinds = {}
for kind = 0, C.WN_KIND_COUNT - 1 do kinds[kind] = binding.text(C.wn_kind_name(kind)) end

local function current_device()
    local device = C.wn_device_set(0)
    C.wn_device_set(device)
    return device
end

local function device_of(name, what)
    return name == nil and current_device() or op.device(name, what)
end

--- A report: device, allocated, reserved, peak, peak_reserved, limit (bytes or nil), host, kinds, peak_kinds; of
-- offloaded values disk, disk_limit, away (host memory beside a device's own).
local Report = {}
Report.__index = Report

function Report.__tostring(r)
    local rows = {}
    for kind = 0, #kinds do
        local name = kinds[kind]
        if r.kinds[name] > 0 or r.peak_kinds[name] > 0 then
            rows[#rows + 1] = { name, bytes.exact(r.kinds[name]), bytes.exact(r.peak_kinds[name]) }
        end
    end
    rows[#rows + 1] = { 'allocated', bytes.exact(r.allocated), bytes.exact(r.peak) }
    rows[#rows + 1] = { 'reserved', bytes.exact(r.reserved), bytes.exact(r.peak_reserved) }
    if r.disk > 0 then rows[#rows + 1] = { 'on disk', bytes.exact(r.disk), '' } end
    local limit = r.limit and 'limit ' .. bytes.text(r.limit) or 'no limit'
    return ('memory of %s, bytes (%s)\n'):format(r.device, limit) .. text.text({ 'kind', 'now', 'at the peak' }, rows)
end

local function get(device)
    local m = binding.new('struct wn_memory')
    check(C.wn_memory_get(device, m))
    local report = {
        device = binding.text(C.wn_device_name(device)), allocated = tonumber(m.live), reserved = tonumber(m.reserved),
        peak = tonumber(m.peak), peak_reserved = tonumber(m.peak_reserved), host = tonumber(m.host),
        limit = m.limit > 0 and tonumber(m.limit) or nil, kinds = {}, peak_kinds = {}, disk = tonumber(m.disk),
        disk_limit = m.disk_limit > 0 and tonumber(m.disk_limit) or nil, away = tonumber(m.away),
    }
    for kind = 0, #kinds do
        report.kinds[kinds[kind]] = tonumber(m.kinds[kind])
        report.peak_kinds[kinds[kind]] = tonumber(m.peak_kinds[kind])
    end
    return setmetatable(report, Report)
end

--- Caps reserved bytes of a device; nil or 0 takes the cap off.
-- @param size number of bytes, or text such as '8 GiB'
-- @param device name, default the current one
function memory.limit(size, device)
    local n = size == nil and 0 or bytes.parse(size, 'memory.limit')
    check(C.wn_memory_limit(device_of(device, 'memory.limit'), n))
end

--- Caps the file space that offloaded values of one program may take; nil or 0 takes the cap off.
-- @param size number of bytes, or text such as '8 GiB'
-- @param device name, default the current one
function memory.limit_disk(size, device)
    local n = size == nil and 0 or bytes.parse(size, 'memory.limit_disk')
    check(C.wn_memory_limit_disk(device_of(device, 'memory.limit_disk'), n))
end

--- Starts the peak anew from what is allocated now.
function memory.reset_peak(device)
    check(C.wn_memory_reset_peak(device_of(device, 'memory.reset_peak')))
end

--- Collects what the script no longer names, then gives idle arenas and slabs back to the system.
-- Compiled traces go too: one may hold a model it was recorded with as a constant.
-- @param device name, default the current one
function memory.trim(device)
    if jit then jit.flush() end
    collectgarbage()
    collectgarbage() -- the first turn ran finalizers, the second frees what they let go
    check(C.wn_memory_trim(device_of(device, 'memory.trim')))
end

-- Called as wane.memory(device): a report of a device, default the current one.
return setmetatable(memory, { __call = function(_, device) return get(device_of(device, 'wane.memory')) end })
