--- Asks the driver of a real GPU what Wane's ledger cannot know: free bytes of device memory, and the rate at which the
-- driver itself copies. On the simulated device its counters stand in.
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

return driver
