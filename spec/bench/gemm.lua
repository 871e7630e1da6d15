-- Matrix products against the machine's own peak, probed in the same run: f32, then bf16 against the peak of bf16.
-- `luajit spec/bench/gemm.lua bf16` (or f32) for one of them. What the two shares are: shares.lua.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local shares = require 'spec.bench.shares'
local probe = common.probe()
local C = binding.C
local threads = C.wn_threads()

local REPETITIONS = 40

local function nn(a, b) return a:matmul(b) end
local function nt(a, b) return a:matmul(b, { transpose_b = true }) end
local function tn(a, b) return a:matmul(b, { transpose_a = true }) end

local shapes = {} -- name, a, b, product, FLOPs
local function add(name, a, b, product, m, n, k)
    shapes[#shapes + 1] = { ('%s, %d x %d x %d'):format(name, m, n, k), a, b, product, 2 * m * n * k }
end

-- A layer of `rows` rows, n outputs, k inputs: its forward and its two gradients.
local function layer(rows, n, k)
    add('y = x W^T', { rows, k }, { n, k }, nt, rows, n, k)
    add('dX = dY W', { rows, n }, { n, k }, nn, rows, k, n)
    add('dW = dY^T X', { rows, n }, { rows, k }, tn, n, k, rows)
end

layer(32, 4096, 4096)
layer(32, 1024, 1024)
add('a b', { 1024, 1024 }, { 1024, 1024 }, nn, 1024, 1024, 1024)
layer(1024, 2304, 768)
layer(2048, 1536, 384)
layer(2048, 384, 1536)
layer(2048, 1152, 384)

local function operand(dtype, shape)
    if dtype == 'f32' then return wane.randn(unpack(shape)):retain() end
    local n = shape[1] * shape[2]
    local halves, state = binding.array('bf16', n), 1
    for k = 0, n - 1 do
        state = (state * 1103515245 + 12345) % 2147483648
        halves[k] = 0x3d00 + math.floor(state / 65536) % 256 + (state % 8192 < 4096 and 0x8000 or 0)
    end
    return wane.from(halves, shape, 'bf16'):retain()
end

-- Seconds of the product alone. One row is the result, so that the product itself lies in the arena: its pages were
-- touched before.
local function seconds_of(product, a, b)
    local p = programs.run { mode = 'eval', roots = { product(a, b):narrow(1, 1, 1) } }
    for i, step in ipairs(programs.schedule(p)) do
        if step.op == 'matmul' then return C.wn_step_seconds(p.handle, i - 1) end
    end
    error 'no product was run'
end

local function row_of(shape, dtype, watch)
    local a, b = operand(dtype, shape[2]), operand(dtype, shape[3])
    wane.eval(a, b)
    seconds_of(shape[4], a, b)
    local repetitions = {}
    for i = 1, REPETITIONS do
        repetitions[i] = watch:repetition(shape[5], function() return seconds_of(shape[4], a, b) end)
    end
    local m = watch:summary(repetitions)
    return { shape[1], ('%.0f'):format(m.rate), ('%.0f'):format(m.peak), m.share, m.own }
end

local function table_of(dtype, peak_of)
    local rows, watch = {}, shares.new(common, probe, threads, peak_of)
    for i, shape in ipairs(shapes) do rows[i] = row_of(shape, dtype, watch) end
    common.table({ dtype .. ' product, ' .. threads .. ' threads', 'GFLOP/s', 'peak, GFLOP/s', 'share',
        'share, cores ours alone' }, rows)
end

local one = arg[1]
C.wn_timing(1)
if not one or one == 'f32' then table_of('f32', probe.gflops_of) end
if not one or one == 'bf16' then
    if probe.gflops_bf16(1) > 0 then table_of('bf16', probe.gflops_bf16_of)
    else print 'bf16: this processor has no instruction for it' end
end
print(('memory: %.1f GB/s read'):format(probe.read(threads, 2 ^ 30)))
