--- Collects garbage in time where it holds bytes of the library, and shows warnings.
--
-- Lua's collector sees a tensor as a table of a hundred bytes, whatever bytes its value has. Therefore every run point,
-- and all that makes data, asks the library how many bytes values and states hold. Where these have grown by more than
-- `gc.floor` since the last collection, a full one runs: in a loop the bytes of one round at most are dead, of which no
-- plan knows. Where nothing grows, the question is all that it costs. This changes no result and no program's bytes.
-- @internal wane.gc

local binding = require 'wane.ffi'

local C = binding.C
local collectgarbage, io, math = collectgarbage, io, math

local gc = {}

--- Bytes that may be dead at any time: a collection takes as long as some hundreds of KiB take to compute.
gc.floor = 1024 ^ 2

local PATIENT = 3 -- collections in a row that found little; after more, run points pass between them, 8 at most

local base = 0 -- bytes that were held after the last collection, or fewer since
local barren, rest = 0, 0 -- collections in a row that found less than half of the growth dead; run points to pass

--- Collects garbage where values and states have grown; called after a run point and after data was made.
function gc.count()
    local now = C.wn_memory_held()
    base = math.min(base, now)
    if now - base <= gc.floor then return end
    if rest > 0 then
        rest = rest - 1
        return
    end
    collectgarbage()
    local left = C.wn_memory_held()
    barren = now - left < (now - base) / 2 and barren + 1 or 0
    rest = barren > PATIENT and math.min(2 ^ (barren - PATIENT), 8) - 1 or 0
    base = left
end

--- Writes warnings of the library to the error stream, one a line.
function gc.warn()
    local text = binding.text(C.wn_warning())
    if text ~= nil and text ~= '' then io.stderr:write('wane: ', text, '\n') end
end

return gc
