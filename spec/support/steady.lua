-- Checks that doing a thing again and again leaves nothing behind in the library's own memory.
local wane = require 'wane'
local C = require('wane.ffi').C

local ROUNDS = 5

-- Collects all garbage; one turn runs finalizers, the next one frees what they let go. Returns the allocations of the
-- library that are not freed, and their bytes.
local function left()
    for _ = 1, 4 do collectgarbage() end
    wane.memory.trim()
    return tonumber(C.wn_debug_get 'host_allocations'), wane.memory().host
end

--- Fails unless one round of five ends with no more than the round before, in allocations and in bytes.
-- A dead slot of a Lua frame or compiled code may hold objects of one round now and then, malloc may give the same
-- allocations other sizes, and a table may double; what leaks is more after every round.
-- round: a function that is called six times, first to fill what is kept on purpose.
return function(round)
    round()
    local count, bytes = left()
    local seen = {}
    for k = 1, ROUNDS do
        round()
        local count_after, bytes_after = left()
        seen[k] = count_after .. ' of ' .. bytes_after .. ' bytes'
        if count_after <= count and bytes_after <= bytes then return end
        count, bytes = count_after, bytes_after
    end
    error('allocations grow with every round: ' .. table.concat(seen, ', '), 2)
end
