--- Runs steps under memory limits, and says what they reserved and held.
local wane = require 'wane'

local limits = {}

--- Gives back idle memory and takes the limit away. Returns the bytes reserved since, by nobody's fault: what other
-- specs left.
function limits.clean()
    wane.memory.limit(nil)
    wane.memory.trim()
    return wane.memory().reserved
end

--- Calls fn under a limit of so many bytes above those there were before.
-- @return the most bytes that were reserved meanwhile, and that were alive, above those of before
function limits.limited(bytes, before, fn)
    wane.memory.limit(before + bytes)
    wane.memory.reset_peak()
    local ok, why = pcall(fn)
    local memory = wane.memory()
    wane.memory.limit(nil)
    if not ok then error(why, 0) end
    return memory.peak_reserved - before, memory.peak - before
end

return limits
