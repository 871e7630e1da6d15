--- Regions of units: where policies that cut a list of units put their regions. A cut is a list of { first =, last =,
-- parent = number of the region it lies in, or nil }, units counted from 1; a region comes after the one it lies in.
-- @internal wane.policy.cuts
local binding = require 'wane.ffi'

local C = binding.C

local cuts = {}

local function runs(count, size, last)
    local list = {}
    for first = 1, last, size do list[#list + 1] = { first = first, last = math.min(first + size - 1, count) } end
    return list
end

--- Regions of k units, the last one too.
function cuts.every(count, k)
    return runs(count, k, count)
end

--- n segments of floor(count / n) units; the last takes the rest and is no region. Requires n <= count.
function cuts.segments(count, n)
    local size = math.floor(count / n)
    return runs(count, size, size * (n - 1))
end

--- segments(round(sqrt count)).
function cuts.sqrt(count)
    return cuts.segments(count, math.max(1, math.floor(math.sqrt(count) + 0.5)))
end

--- Each unit alone, but for the last n.
function cuts.keep_last(count, n)
    return runs(count, 1, math.max(0, count - n))
end

--- Regions inside regions, so that at most `slots` outputs of units are held at a time (see policy.binomial).
function cuts.binomial(count, slots)
    local list = {}
    local function add(first, last, left, parent)
        local n = last - first + 1
        if n < 2 then return end
        local k = binding.id(C.wn_chain_split(n, math.min(left, n) + 1)) -- what a unit starts from takes one too
        list[#list + 1] = { first = first, last = first + k - 1, parent = parent }
        add(first, first + k - 1, left, #list)
        add(first + k, last, math.max(left - 1, 0), parent)
    end
    add(1, count, slots, nil)
    return list
end

return cuts
