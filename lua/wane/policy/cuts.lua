--- Cuts: the regions that policies make of a list of units.
--
-- A cut is a list of { first =, last =, parent = number of the region around it, or nil }, with units counted from 1; a
-- region comes after the region around it.
-- @internal wane.policy.cuts
local binding = require 'wane.ffi'

local C = binding.C

local cuts = {}

-- Returns regions of `size` units from the first to unit `last`; the last region ends at `count` at most.
local function runs(count, size, last)
    local list = {}
    for first = 1, last, size do list[#list + 1] = { first = first, last = math.min(first + size - 1, count) } end
    return list
end

--- Returns regions of k units; the last one may be shorter.
function cuts.every(count, k)
    return runs(count, k, count)
end

--- Returns n - 1 regions of floor(count / n) units; the rest, the last segment, is no region. Requires n <= count.
function cuts.segments(count, n)
    local size = math.floor(count / n)
    return runs(count, size, size * (n - 1))
end

--- Returns the regions of round(sqrt(count)) segments.
function cuts.sqrt(count)
    return cuts.segments(count, math.max(1, math.floor(math.sqrt(count) + 0.5)))
end

--- Returns a region for each unit but the last n.
function cuts.keep_last(count, n)
    return runs(count, 1, math.max(0, count - n))
end

--- Returns regions inside regions, with which at most `slots` outputs of units are kept at a time.
function cuts.binomial(count, slots)
    local list = {}
    local function add(first, last, left, parent)
        local n = last - first + 1
        if n < 2 then return end
        local k = binding.id(C.wn_chain_split(n, math.min(left, n) + 1)) -- the input of a unit takes a slot too
        list[#list + 1] = { first = first, last = first + k - 1, parent = parent }
        add(first, first + k - 1, left, #list)
        add(first + k, last, math.max(left - 1, 0), parent)
    end
    add(1, count, slots, nil)
    return list
end

return cuts
