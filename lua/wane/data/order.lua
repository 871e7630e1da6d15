--- The order of examples in an epoch: a permutation that follows from (seed, epoch) alone, so that a place in it is all
-- that a checkpoint saves.
--
-- It is Fisher and Yates's shuffle with SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
-- generators", 2014). These random numbers are apart from all others: drawing them moves no other, and the reverse.
-- @internal wane.data.order

local binding = require 'wane.ffi'

local bxor, rshift = bit.bxor, bit.rshift
local floor, tonumber = math.floor, tonumber

-- Returns the output function of SplitMix64 for the state z.
local function mix(z)
    z = bxor(z, rshift(z, 30)) * 0xBF58476D1CE4E5B9ULL
    z = bxor(z, rshift(z, 27)) * 0x94D049BB133111EBULL
    return bxor(z, rshift(z, 31))
end

--- Returns the permutation of an epoch.
-- @param n examples, below 2^31
-- @param seed integer from 0 to below 2^53
-- @param epoch integer from 1
-- @param list an int32 array of n to fill (optional)
-- @return int32 array: the numbers 0 to n - 1 in order
return function(n, seed, epoch, list)
    list = list or binding.array('i32', math.max(1, n))
    for k = 0, n - 1 do list[k] = k end
    local state = mix(mix(binding.cast('uint64_t', seed)) + binding.cast('uint64_t', epoch))
    for k = n - 1, 1, -1 do
        state = state + 0x9E3779B97F4A7C15ULL
        local j = floor(tonumber(rshift(mix(state), 11)) * 2 ^ -53 * (k + 1))
        list[k], list[j] = list[j], list[k]
    end
    return list
end
