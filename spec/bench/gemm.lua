-- Measures matrix products against the machine's own peak, probed in the same run: f32, then bf16 against the peak of
-- bf16. `luajit spec/bench/gemm.lua bf16` (or f32) measures one of them. shares.lua says what the two shares are.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local op = require 'wane.tensor.op'
local programs = require 'spec.support.programs'
local shares = require 'spec.bench.shares'
local probe = common.probe()
local C = binding.C
local threads = C.wn_threads()

local REPETITIONS = 40

local PLAIN, PANELS = 0, 1

local function product(a, b, turn_a, turn_b, layout)
    return op.record('matmul', { a, b }, { i = { turn_a, turn_b }, layout = layout })
end

local shapes = {} -- { name, a =, b =, call =, flops =, layout = of b }
-- Adds a product to measure; size: { m, n, k } of it, layout: that of b, PLAIN unless given.
local function add(name, a, b, call, size, layout)
    local m, n, k = size[1], size[2], size[3]
    shapes[#shapes + 1] = { ('%s, %d x %d x %d'):format(name, m, n, k), a = a, b = b, call = call,
        flops = 2 * m * n * k, layout = layout or PLAIN }
end

-- Adds the products of a layer of `rows` rows, n outputs, k inputs: its forward and its two gradients; W and dW in
-- panels, as nn.Linear has them, or plain.
local function layer(rows, n, k, layout, mark)
    add('y = x W^T' .. mark, { rows, k }, { n, k }, function(a, b) return product(a, b, 0, 1) end,
        { rows, n, k }, layout)
    add('dX = dY W' .. mark, { rows, n }, { n, k }, function(a, b) return product(a, b, 0, 0) end,
        { rows, k, n }, layout)
    add('dW = dY^T X' .. mark, { rows, n }, { rows, k }, function(a, b) return product(a, b, 1, 0, layout) end,
        { n, k, rows })
end

local LAYERS = { { 32, 4096, 4096 }, { 32, 1024, 1024 }, { 1024, 2304, 768 }, { 2048, 1536, 384 },
    { 2048, 384, 1536 }, { 2048, 1152, 384 } }
for _, l in ipairs(LAYERS) do layer(l[1], l[2], l[3], PANELS, '') end
for i = 1, 3 do layer(LAYERS[i][1], LAYERS[i][2], LAYERS[i][3], PLAIN, ', plain') end
add('a b', { 1024, 1024 }, { 1024, 1024 }, function(a, b) return product(a, b, 0, 0) end, { 1024, 1024, 1024 })

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

-- Returns the seconds of the product alone. One row is the result, so that the product itself lies in the arena: its
-- pages were touched before.
local function seconds_of(call, a, b)
    local p = programs.run { mode = 'eval', roots = { call(a, b):narrow(1, 1, 1) } }
    for i, step in ipairs(programs.schedule(p)) do
        if step.op == 'matmul' then return C.wn_step_seconds(p.handle, i - 1) end
    end
    error 'no product was run'
end

local function row_of(shape, dtype, watch)
    local a, b = operand(dtype, shape.a), create.laid(operand(dtype, shape.b), shape.layout):retain()
    wane.eval(a, b)
    seconds_of(shape.call, a, b)
    local repetitions = {}
    for i = 1, REPETITIONS do
        repetitions[i] = watch:repetition(shape.flops, function() return seconds_of(shape.call, a, b) end)
    end
    local m = watch:summary(repetitions)
    return { shape[1], ('%.0f'):format(m.rate), ('%.0f'):format(m.peak), m.share, m.own, m.best }
end

local function table_of(dtype, peak_of)
    local rows, watch = {}, shares.new(common, probe, threads, peak_of)
    for i, shape in ipairs(shapes) do rows[i] = row_of(shape, dtype, watch) end
    common.table({ dtype .. ' product, ' .. threads .. ' threads', 'GFLOP/s', 'peak, GFLOP/s', 'share',
        'share, cores ours alone', 'best over best' }, rows)
end

local one = arg[1]
C.wn_timing(1)
if not one or one == 'f32' then table_of('f32', probe.gflops_of) end
if not one or one == 'bf16' then
    if probe.gflops_bf16(1) > 0 then table_of('bf16', probe.gflops_bf16_of)
    else print 'bf16: this processor has no instruction for it' end
end
print(('memory: %.1f GB/s read'):format(probe.read(threads, 2 ^ 30)))
