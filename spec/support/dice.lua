--- Returns a generator of whole numbers with a state of its own, for specs whose networks follow from a seed: Lua's
-- differs between machines.
-- @param seed whole number
-- @return function(n) -> a number from 1 to n
return function(seed)
    local state = (seed * 2654435 + 12345) % 2147483647
    return function(n)
        state = (state * 16807) % 2147483647
        return state % n + 1
    end
end
