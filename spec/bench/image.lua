-- Measures poolings, norms over channels and resizing of two sizes of images against the machine's bandwidth for the
-- same mix of reads and writes, in turns. Bytes are those of the definition: each input once, the output once. The
-- limit is the faster of ordinary and non-temporal stores.
--
--   luajit spec/bench/image.lua [--rows pattern] [--turns N] [--images N]
--
-- Numbers are of the best turn of both sides. With WANE_THREADS=1 seconds are those of the processor, which on a
-- machine that others are using tell more; they contain the making of the plan, about 0.1 ms. --images: how many of the
-- larger ones there are, and of the smaller ones there are four times as many; with 16, what an op reads is in the
-- third cache of many machines, and shares may be above 100 %.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local C = require('wane.ffi').C
local programs = require 'spec.support.programs'
local record = require('wane.tensor.op').record
local probe = common.probe()
local threads = C.wn_threads()
local options = common.options({ rows = function(text) return text end, turns = 20, images = 64 },
    '--rows pattern, --turns N, --images N')

local SIZES = { f32 = 4, u8 = 1 }
local SHAPES = { { options.images, 64, 56, 56 }, { options.images * 4, 256, 14, 14 } }
local PROBED = 2 ^ 28 -- bytes a turn of the probe goes over
local NHWC = 2 -- base/layout.h
local IN_A_ROW = 4 -- kernels that are timed

local function pair(n) return n * 2 ^ 32 + n end

-- Returns a value that is held, with its channels last where it is an image.
local function held(t)
    if #t.shape == 4 and t.dtype == 'f32' then t = record('relayout', { t }, { layout = NHWC }) end
    t:retain()
    wane.eval(t)
    return t
end

local function noise(...)
    return held(wane.rand { ... } * 2 - 1)
end

local function window(kernel, stride, pad, size)
    return { i = { pair(kernel), pair(stride), pair(pad), 0, size and pair(size) or 0 } }
end

-- ---- rows -------------------------------------------------------------------------------------------------------
-- Rows are { name, inputs, attributes, reads, writes }: the last two are the streams of the probe.
local rows = {}
local function add(name, shape, inputs, attributes, mix)
    local what = ('%s (%s)'):format(name, table.concat(shape, ', '))
    if options.rows and not what:find(options.rows) then return end
    rows[#rows + 1] = { name = what, op = name:match '^[%w_]+', inputs = inputs, attributes = attributes,
        reads = mix[1], writes = mix[2] }
end

local function add_norms(shape, x, dy)
    local n, c = shape[1], shape[2]
    local mean, rstd, w, b = noise(c), held(wane.rand { c } + 0.5), noise(c), noise(c)
    local batch = { i = { 0 }, f = { 1e-5 } }
    add('channel_mean', shape, { x }, batch, { 1, 0 })
    add('channel_rstd', shape, { x, mean }, batch, { 1, 0 })
    add('batch_norm', shape, { x, mean, rstd, w, b }, batch, { 1, 1 })
    add('batch_norm_sums', shape, { dy, x, mean, rstd }, batch, { 2, 0 })
    add('batch_norm_dx', shape, { dy, x, mean, rstd, w, noise(2, c) }, batch, { 2, 1 })
    local groups = { i = { 32 }, f = { 1e-5 } }
    local stat = noise(n, 32)
    add('channel_mean, 32 groups', shape, { x }, groups, { 1, 0 })
    add('batch_norm, 32 groups', shape, { x, stat, stat, w, b }, groups, { 1, 1 })
end

local function add_pools(shape, x)
    local n, c, size = shape[1], shape[2], shape[3]
    local half = noise(n, c, size / 2, size / 2)
    for _, kernel in ipairs { 2, 3 } do
        local pad, what = kernel - 2, (', %d x %d'):format(kernel, kernel)
        local forward, backward = window(kernel, 2, pad), window(kernel, 2, pad, size)
        local index = held(record('max_pool2d_index', { x }, forward))
        add('max_pool2d_index' .. what, shape, { x }, forward, { 1, 0 })
        add('max_pool2d' .. what, shape, { x }, forward, { 4, 1 })
        add('max_pool2d' .. what .. ', by the index', shape, { x, index }, forward, { 4, 1 })
        add('max_pool2d_dx' .. what, shape, { half, index }, backward, { 1, 4 })
        add('avg_pool2d' .. what, shape, { x }, forward, { 4, 1 })
        add('avg_pool2d_dx' .. what, shape, { half }, backward, { 1, 4 })
    end
    local whole = { i = { pair(1), pair(1), 0, 4 } }
    add('avg_pool2d, all', shape, { x }, whole, { 1, 0 })
end

local function add_resizes(shape, x)
    local twice = noise(shape[1], shape[2], shape[3] * 2, shape[4] * 2)
    for mode, name in ipairs { 'nearest', 'bilinear' } do
        local attributes = { i = { pair(shape[3] * 2), mode - 1, 0, pair(shape[3]) }, f = { 0, 0 } }
        add('upsample2d, ' .. name, shape, { x }, attributes, { 1, 4 })
        add('upsample2d_dx, ' .. name, shape, { twice }, attributes, { 4, 1 })
    end
end

for _, shape in ipairs(SHAPES) do
    local x = noise(unpack(shape))
    add_norms(shape, x, noise(unpack(shape)))
    add_pools(shape, x)
    add_resizes(shape, x)
end

-- ---- measuring --------------------------------------------------------------------------------------------------
local function bytes_of(t)
    return t:numel() * SIZES[t.dtype]
end

-- Records a row. Of an image only the first pixels of each column are the result, so that the others lie in the arena,
-- whose pages were touched before.
local function result_of(r)
    local out = record(r.op, r.inputs, r.attributes)
    return #out.shape == 4 and out.shape[3] > 1 and out:narrow(3, 1, 1) or out
end

-- Returns the seconds of a row: of one thread those of the processor, of several the least of some in a row, but those
-- of the first, which finds the other threads asleep.
local function seconds_of(r)
    if threads == 1 then
        local from = os.clock()
        programs.run { mode = 'eval', roots = { result_of(r) } }
        return os.clock() - from
    end
    local sum, best, n = result_of(r):to('f32'):sum(), math.huge, 0
    for _ = 1, IN_A_ROW do sum = sum + result_of(r):to('f32'):sum() end
    local p = programs.run { mode = 'eval', roots = { sum } }
    for i, step in ipairs(programs.schedule(p)) do
        if step.op == r.op then
            n = n + 1
            if n > 1 then best = math.min(best, C.wn_step_seconds(p.handle, i - 1)) end
        end
    end
    assert(n == IN_A_ROW + 1, r.name .. ': kernels are missing')
    return best
end

-- Returns the GB/s of the probe for the streams of a row.
local function probed(r, past_caches)
    local from = os.clock()
    local rate = probe.mix(threads, r.reads, r.writes, 0, past_caches, PROBED)
    return threads == 1 and PROBED / (os.clock() - from) * 1e-9 or rate
end

local function measured(r)
    local bytes = bytes_of(record(r.op, r.inputs, r.attributes))
    for _, input in ipairs(r.inputs) do bytes = bytes + bytes_of(input) end
    local best, limit = math.huge, 0
    for _ = 1, options.turns do
        best = math.min(best, seconds_of(r))
        for past_caches = 0, r.writes > 0 and 1 or 0 do
            limit = math.max(limit, probed(r, past_caches))
        end
    end
    local rate = bytes / best * 1e-9
    return { r.name, ('%.0f'):format(best * 1e6), ('%.1f'):format(bytes * 1e-6), ('%.1f'):format(rate),
        ('%.1f'):format(limit), ('%.0f %%'):format(100 * rate / limit) }
end

C.wn_timing(1)
local lines = {}
for i, r in ipairs(rows) do
    common.progress(('image: %d of %d, %s'):format(i, #rows, r.name))
    lines[i] = measured(r)
    collectgarbage()
end
common.progress()
common.table({ 'kernel, ' .. threads .. ' threads', 'us', 'MB moved', 'GB/s', 'limit, GB/s', 'share' }, lines)
