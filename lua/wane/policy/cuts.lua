--- Cuts: the regions that policies make of a list of units.
--
-- A cut is a list of { first =, last =, parent = number of the region around it, or nil }, with units counted from 1; a
-- region comes after the region around it.
-- @internal wane.policy.cuts
local errors = require 'wane.errors'

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

--- Returns n - 1 regions of floor(count / n) units; the rest, the last segment, is no region. Raises 'value' where n is
-- above count.
function cuts.segments(count, n)
    if n > count then
        errors.raise(nil, 'value', 'policy.segments: %d segments of %d units; give at most %d', n, count, count)
    end
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

--- Returns how many of l units, 2 or more, come before the next checkpoint in the binomial schedule with `slots`
-- checkpoints beside the input, 1 or more (Griewank and Walther: "Algorithm 799: revolve", ACM TOMS 2000). With s
-- checkpoints and r forward runs of each unit, binomial(s + r, s) units can be reversed, and no schedule that holds
-- only outputs runs fewer.
--
--     l = 6, slots = 2; [i]: output of unit i held as a checkpoint, 0: the input
--     0 1 2 [3] 4 [5] 6    run to 5, keeping 3 and 5; unit 6 backward
--     0 1 2 [3] 4 5        from 3: run 4, unit 5 backward; unit 4 backward
--     0 [1] [2] 3          from 0, both slots free again: run 1 and 2, units 3, 2 and 1 backward
function cuts.split(l, slots)
    -- Returns binomial(s + r, s), or some number above l where that is larger.
    local function reach(s, r)
        local value = 1
        for i = 1, s do
            if value > l then break end
            value = value * (r + i) / i
        end
        return value
    end
    slots = math.min(slots, l) -- l slots hold every output
    local r = 1
    while reach(slots, r) < l do r = r + 1 end
    return math.min(math.max(l - reach(slots - 1, r), reach(slots, math.max(r - 2, 0)), 1), l - 1)
end

--- Returns regions inside regions, with which at most `slots` outputs of units are kept at a time.
function cuts.binomial(count, slots)
    local list = {}
    local function add(first, last, left, parent)
        local n = last - first + 1
        if n < 2 then return end
        local k = cuts.split(n, math.min(left, n) + 1) -- the input of a unit takes a slot too
        list[#list + 1] = { first = first, last = first + k - 1, parent = parent }
        add(first, first + k - 1, left, #list)
        add(first + k, last, math.max(left - 1, 0), parent)
    end
    add(1, count, slots, nil)
    return list
end

return cuts
