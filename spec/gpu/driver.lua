--- Asks the driver of a real GPU what Wane's ledger cannot know: free bytes of device memory, and the rate at which the
-- driver itself copies. On the simulated device its counters stand in. Compares those bytes with the ledger's, too.
local ffi = require 'ffi'
local sim = require 'spec.support.cudasim'

local driver = {}
local GiB = 2 ^ 30

local library
if sim.missing() then
    ffi.cdef [[
    int cuMemGetInfo_v2(size_t *free, size_t *total);
    int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
    int cuMemFree_v2(uint64_t pointer);
    int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count);
    int cuCtxSynchronize(void);
    ]]
    local is_there, found = pcall(ffi.load, 'libcuda.so.1')
    library = is_there and found or nil
end

local function call(name, ...)
    local code = library[name](...)
    if code ~= 0 then error(('%s gave the error %d'):format(name, code), 0) end
end

--- Returns the bytes of device memory that are taken, by anybody on this device. The device must have been used before,
-- so that this thread has its context.
function driver.taken()
    if not library then return sim.counters().live end
    local free, total = ffi.new 'size_t[1]', ffi.new 'size_t[1]'
    call('cuMemGetInfo_v2', free, total)
    return tonumber(total[0] - free[0])
end

--- Returns bytes read and written a second by the driver's copies within the device; nil on the simulated one.
-- @param now function that returns seconds
function driver.copy_rate(now)
    if not library then return nil end
    local bytes, turns = GiB, 20
    local a, b = ffi.new 'uint64_t[1]', ffi.new 'uint64_t[1]'
    call('cuMemAlloc_v2', a, bytes)
    call('cuMemAlloc_v2', b, bytes)
    call('cuMemsetD32_v2', a[0], 0x3f8ccccd, bytes / 4)
    local best = math.huge
    for _ = 1, 3 do
        call('cuCtxSynchronize')
        local start = now()
        for _ = 1, turns do call('cuMemcpyDtoDAsync_v2', b[0], a[0], bytes, nil) end
        call('cuCtxSynchronize')
        best = math.min(best, (now() - start) / turns)
    end
    call('cuMemFree_v2', a[0])
    call('cuMemFree_v2', b[0])
    return 2 * bytes / best
end

-- ---- the ledger beside the driver -----------------------------------------------------------------------------------
-- The driver counts the whole device, so other processes that use it are told from a wrong ledger: bytes change while
-- this process rests, or there are fewer when all is freed than there were before.
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
function driver.compare(t)
    local seen
    for _ = 1, TRIES do
        seen = compare_once(t)
        if seen.is_alone and seen.fits then return seen end
    end
    return seen
end

return driver
