--- Controls the simulated CUDA device: makes calls fail, orders streams and threads, counts what was done.
--
--     local sim = require 'spec.support.cudasim'
--     sim.schedule('random', 7)     streams run in a random order of seed 7 from here on
--     sim.fail('launch', 3)         the third next launch fails
--     sim.counters().launches
--     sim.reset()                   puts everything back
--
-- The device is the library that WANE_CUDA_LIB names, or build/cudasim. Functions raise where it is not built; a spec
-- asks sim.missing() first and is pending then. The types are those of spec/cudasim/control.h, which is read as it is.
local ffi = require 'ffi'
local files = require 'spec.support.files'

local sim = {}
local FILE = '/libwane_cuda.so'

local ROOT = debug.getinfo(1, 'S').source:match('^@(.*)/spec/support/cudasim%.lua$') or '.'

--- Returns the path of the library, whether there is one or not.
function sim.path()
    local named = os.getenv 'WANE_CUDA_LIB' or ''
    if named == '' or named == 'off' then return ROOT .. '/build/cudasim' .. FILE end
    return named:find '%.so$' and named or named .. FILE
end

-- Declares the types and functions of control.h, once in a process.
local function declare()
    if pcall(ffi.typeof, 'struct wn_sim_counters') then return end
    local lines = {}
    for line in io.lines(ROOT .. '/spec/cudasim/control.h') do
        lines[#lines + 1] = line:find '^#' and '' or line:gsub('^WN_SIM_API ', '')
    end
    ffi.cdef(table.concat(lines, '\n'))
end

local library

local function load_library()
    declare()
    local file = io.open(sim.path(), 'rb')
    if not file then return nil, ('there is no %s; make cudasim builds it'):format(sim.path()) end
    file:close()
    local ok, opened = pcall(ffi.load, sim.path())
    if not ok then return nil, ('%s cannot be opened: %s'):format(sim.path(), opened) end
    if not pcall(function() return opened.wn_sim_reset end) then
        return nil, ('%s is no simulated device: it has no wn_sim_reset; make cudasim builds one'):format(sim.path())
    end
    return opened
end

-- Returns the library; raises where there is none.
local function lib()
    if not library then
        local why
        library, why = load_library()
        if not library then error('the simulated CUDA device: ' .. why, 3) end
    end
    return library
end

-- Returns the number of a name in an enum of control.h.
local function number_of(what, name)
    declare()
    local ok, number = pcall(function() return ffi.C['WN_SIM_' .. name:upper()] end)
    if not ok then error(('%s: there is no %q'):format(what, name), 3) end
    return number
end

-- Returns a struct of 64-bit counters as a table.
local function numbers(struct, names)
    local out = {}
    for _, name in ipairs(names) do out[name] = tonumber(struct[name]) end
    return out
end

--- Returns nil where the device is built, else one line that says why there is none.
function sim.missing()
    if library then return nil end
    local _, why = load_library()
    return why
end

--- Makes the nth next call fail, 0: none. call: malloc, host_alloc, copy, launch, load, async, event, graph, nccl_init,
-- nccl_endless, nccl_async or nccl_silent.
-- An `async` kernel starts and runs; the next wait finds the error, which stays until sim.mend().
function sim.fail(call, nth) lib().wn_sim_fail(number_of('a call that can fail', call), nth or 1) end

--- Returns how many more calls there must be until one fails; 0: none will.
function sim.fails_in(call) return tonumber(lib().wn_sim_fails_in(number_of('a call that can fail', call))) end

--- Sets the order of streams (eager, lazy, random), and of the threads of a kernel (forward, reverse, shuffled, ahead).
-- Streams run all of their work first.
function sim.schedule(streams, seed, threads)
    lib().wn_sim_order(number_of('an order of streams', streams), number_of('an order of threads',
        threads or 'forward'), seed or 1)
end

--- Sets the bytes of device memory.
function sim.limit(bytes) lib().wn_sim_limit(bytes) end

--- Sets the bytes of device memory up to which the host's code crashes when it touches them.
function sim.guard(bytes) lib().wn_sim_guard(bytes) end

--- Brings a lost device back. A process that has met the loss still thinks that its device is gone.
function sim.mend() lib().wn_sim_mend() end

--- Puts back all of the above, and counts from 0.
function sim.reset() lib().wn_sim_reset() end

--- Returns what was done: launches, blocks, threads, switches, copies, to_device, to_host, allocations, live, peak,
-- taken, parts, events, graphs (alive), graph_launches, device (its number), exchanges, exchanged (by NCCL),
-- prefetches.
function sim.counters()
    local C = lib()
    local out = ffi.new('struct wn_sim_counters')
    C.wn_sim_counters(out)
    return numbers(out, { 'launches', 'blocks', 'threads', 'switches', 'copies', 'to_device', 'to_host', 'allocations',
        'live', 'peak', 'taken', 'parts', 'events', 'graphs', 'graph_launches', 'device', 'exchanges',
        'exchanged', 'prefetches' })
end

--- Returns what kernels have touched since the last call: races, read, written, sectors, least_sectors, shared_calls,
-- conflicts; nil where the device was built without a watch (make cudasim-hooks has one).
function sim.touched()
    local C = lib()
    local out = ffi.new('struct wn_sim_touched')
    if C.wn_sim_touched(out) == 0 then return nil end
    return numbers(out, { 'races', 'read', 'written', 'sectors', 'least_sectors', 'shared_calls', 'conflicts' })
end

--- Returns whether something was written outside of an allocation that is alive.
function sim.overrun() return lib().wn_sim_overrun() ~= 0 end

--- Returns the last error in words, with the kernel's name; '' when there was none.
function sim.report() return ffi.string(lib().wn_sim_report()) end

-- ---- for specs ------------------------------------------------------------------------------------------------------

--- Makes the simulated GPU the default device of the specs of a describe, and puts everything back behind them. Returns
-- whether it is built; where it is not, the specs are pending.
-- @param setup, teardown, pending those of the describe
function sim.given(setup, teardown, pending)
    local why, before = sim.missing(), nil
    if why then
        pending(why)
        return false
    end
    local wane = require 'wane'
    setup(function() before = wane.set_device 'cuda' end)
    teardown(function()
        sim.reset()
        wane.set_device(before)
    end)
    return true
end

local MANY = 1000000

--- Calls fn(...) on the GPU; returns its result, and how often a library of NVIDIA's was called meanwhile.
function sim.on_gpu(fn, ...)
    sim.fail('library', MANY)
    local fine, out = pcall(require('spec.helper').on, 'cuda', fn, ...)
    local calls = MANY - sim.fails_in 'library'
    sim.fail('library', 0)
    if not fine then error(out, 0) end
    return out, calls
end

--- Runs the text of a script in a process of its own; returns what it prints on both streams.
-- @param environment words such as 'WANE_CUDA_DNN=off'
function sim.script(environment, text)
    local name = os.tmpname()
    files.write(name, text)
    local out = require('spec.helper').shell(('env %s build/wane run %s'):format(environment, name))
    os.remove(name)
    return out
end

--- Returns what differs between two lists of numbers by more than a tolerance of the largest magnitude, or nil. NaN
-- equals NaN alone.
-- @param what 'the CPU has', say
function sim.far(have, want, tolerance, what)
    local top = 0
    for i = 1, #want do
        if want[i] == want[i] and math.abs(want[i]) < math.huge then top = math.max(top, math.abs(want[i])) end
    end
    for i = 1, #want do
        local a, b = have[i], want[i]
        local is_close = a == b or (a ~= a and b ~= b) or math.abs(a - b) <= tolerance * top
        if not is_close then return ('element %d is %.9g, %s %.9g'):format(i, a, what or 'not', b) end
    end
end

return sim
