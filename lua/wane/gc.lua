--- Collects garbage in time where it holds bytes of the library, and shows warnings.
--
-- Lua's collector sees a tensor as a table of a hundred bytes, whatever bytes its value has. Therefore a caller that
-- made values with bytes (inputs, results) calls `gc.made`. When such values exceed a soft limit, a full collection
-- runs, and the limit becomes 1.4 times the bytes that are left. This changes no result and no program's bytes.
-- @internal wane.gc

local binding = require 'wane.ffi'

local C = binding.C
local collectgarbage, io, math, tonumber = collectgarbage, io, math, tonumber

local gc = {}

--- Bytes of inputs and results of a device below which no collection runs.
gc.floor = 64 * 1024 ^ 2

local soft = {} -- device -> bytes at which the next collection runs
local memory = binding.new('struct wn_memory')

-- Returns the bytes of inputs and results that a device holds.
local function held(device)
    if C.wn_memory_get(device, memory) ~= 0 then return 0 end
    return tonumber(memory.kinds[C.WN_KIND_INPUT] + memory.kinds[C.WN_KIND_RESULT])
end

--- Collects garbage when inputs and results of a device exceed the soft limit; called after values were made.
-- @param device number of the device
function gc.made(device)
    local now, limit = held(device), soft[device] or gc.floor
    if now < limit / 4 then soft[device] = math.max(gc.floor, 2 * now) end -- a large value was freed
    if now <= limit then return end
    collectgarbage()
    soft[device] = math.max(gc.floor, 1.4 * held(device))
end

--- Writes warnings of the library to the error stream, one a line.
function gc.warn()
    local text = binding.text(C.wn_warning())
    if text ~= nil and text ~= '' then io.stderr:write('wane: ', text, '\n') end
end

--- Writes warnings, and collects garbage when results exceed the soft limit; called at the end of a run point.
-- @param device number of the device
function gc.ran(device)
    gc.warn()
    gc.made(device)
end

return gc
