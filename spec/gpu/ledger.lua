--- Compares the bytes that Wane's ledger has reserved with those that the driver has given. The driver counts the whole
-- device, so other processes that use it are told from a wrong ledger: bytes change while this process rests, or there
-- are fewer when all is freed than there were before.
local ledger = {}

local READINGS = 5      -- of the driver's bytes at rest
local TRIES = 3         -- comparisons, until one is undisturbed and fits
local ROUNDING = 2 ^ 21 -- bytes of an allocation or a segment

-- Returns the driver's bytes, and whether they stay what they are.
local function at_rest(t)
    local first, is_steady = t.taken(), true
    for _ = 2, READINGS do
        t.rest()
        is_steady = t.taken() == first and is_steady
    end
    return first, is_steady
end

local function compare_once(t)
    t.free()
    local before, is_steady_before = at_rest(t)
    local counted = t.reserved()
    local held = t.use() -- luacheck: ignore 231
    local between, is_steady_between = at_rest(t)
    local seen = { taken = between - before, reserved = t.reserved() - counted }
    held = nil -- luacheck: ignore 311
    t.free()
    local after, is_steady_after = at_rest(t)
    seen.kept = after - before
    seen.is_alone = is_steady_before and is_steady_between and is_steady_after and seen.kept >= -ROUNDING
    seen.fits = seen.taken >= seen.reserved and seen.taken - seen.reserved <= t.most
    return seen
end

--- Compares what a use of memory takes; up to TRIES times, until nobody else uses the device and the bytes fit.
-- @param t { taken = function: bytes that the driver has given to anybody, reserved = function: bytes of the ledger,
-- use = function that takes memory and returns what holds it, free = function that collects and gives back what nothing
-- holds, rest = function that waits a moment, most = bytes that the driver may give above those of the ledger }
-- @return { taken =, reserved = (bytes of the use), kept = bytes taken when all is freed, above those before (negative:
-- fewer), is_alone = whether nobody else was seen, fits = whether taken is reserved and at most t.most more }
function ledger.compare(t)
    local seen
    for _ = 1, TRIES do
        seen = compare_once(t)
        if seen.is_alone and seen.fits then return seen end
    end
    return seen
end

return ledger
