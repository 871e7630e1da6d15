--- Collects garbage that holds bytes in time, and shows warnings.
--
-- The collector of Lua sees a tensor as a table of a hundred bytes, whatever its value takes. So whoever just made
-- values that hold bytes (inputs, results) calls `gc.made`: when they have grown past a soft limit, a full
-- collection runs and the limit becomes 1.4 times what is left. It changes no result and no program's bytes.
-- @internal wane.gc

local binding = require 'wane.ffi'

local C = binding.C
local collectgarbage, io, math, tonumber = collectgarbage, io, math, tonumber

local gc = {}

--- Bytes of inputs and results that may be held before the first collection.
gc.floor = 64 * 1024 ^ 2

local soft = {} -- by device
local memory = binding.new('struct wn_memory')

local function held(device)
    if C.wn_memory_get(device, memory) ~= 0 then return 0 end
    return tonumber(memory.kinds[C.WN_KIND_INPUT] + memory.kinds[C.WN_KIND_RESULT])
end

--- Values that hold bytes were made on a device; collects when they became too many.
-- @param device number
function gc.made(device)
    local now, limit = held(device), soft[device] or gc.floor
    if now < limit / 4 then soft[device] = math.max(gc.floor, 2 * now) end -- what was large is gone
    if now <= limit then return end
    collectgarbage()
    soft[device] = math.max(gc.floor, 1.4 * held(device))
end

--- Writes warnings of the library to the error stream, one a line.
function gc.warn()
    local text = binding.text(C.wn_warning())
    if text ~= nil and text ~= '' then io.stderr:write('wane: ', text, '\n') end
end

--- Writes pending warnings and lets the collector run where results took much memory: the end of a run point.
-- @param device number
function gc.ran(device)
    gc.warn()
    gc.made(device)
end

return gc
