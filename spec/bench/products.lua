-- Measures products of matrices and convolutions, each with its gradients, against the machine's own peak, probed in
-- the same run: f32, then bf16 against the peak of bf16. shares.lua says what the shares are.
--
--   luajit spec/bench/products.lua [f32|bf16] [matrices|convolutions] [part of a row's name] [--class NAME]
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

local REPETITIONS = tonumber(os.getenv 'WANE_BENCH_REPETITIONS') or 20
local IN_A_ROW = 4 -- that are timed
local PLAIN, PANELS, NHWC, CONV_PANELS = 0, 1, 2, 3 -- runtime/base/layout.h

-- Makes a value of random numbers that is held, in a layout.
local function held(dtype, layout, ...)
    return wane.eval(create.laid(wane.randn(...):to(dtype), layout):retain())
end

-- Rows by kind: { name, op, flops, make = function(dtype) -> function that records the op }.
local rows = { matrices = {}, convolutions = {} }
local function add(kind, name, operation, flops, make)
    table.insert(rows[kind], { name = name, op = operation, flops = flops, make = make })
end

-- ---- matrices -------------------------------------------------------------------------------------------------------
-- Adds the product of m x k by k x n, whose operands have these shapes in memory.
-- @param turns of both operands: 1 where it is transposed
-- @param layouts of the second operand, and of the result
local function product(name, size, operands, turns, layouts)
    local m, n, k = unpack(size)
    add('matrices', ('%s, %d x %d x %d'):format(name, m, n, k), 'matmul', 2 * m * n * k, function(dtype)
        local a, b = held(dtype, PLAIN, unpack(operands[1])), held(dtype, layouts[1], unpack(operands[2]))
        return function() return op.record('matmul', { a, b }, { i = turns, layout = layouts[2] }) end
    end)
end

-- Adds the products of a layer of `rows` rows, n outputs, k inputs: its forward and its two gradients; W and dW in
-- panels, as nn.Linear has them, or plain.
local function layer(m, n, k, layout, mark)
    product('y = x W^T' .. mark, { m, n, k }, { { m, k }, { n, k } }, { 0, 1 }, { layout })
    product('dX = dY W' .. mark, { m, k, n }, { { m, n }, { n, k } }, { 0, 0 }, { layout })
    product('dW = dY^T X' .. mark, { n, k, m }, { { m, n }, { m, k } }, { 1, 0 }, { PLAIN, layout })
end

local LAYERS = { { 32, 4096, 4096 }, { 32, 1024, 1024 }, { 1024, 2304, 768 }, { 2048, 1536, 384 },
    { 2048, 384, 1536 }, { 2048, 1152, 384 } }
for _, l in ipairs(LAYERS) do layer(l[1], l[2], l[3], PANELS, '') end
for i = 1, 3 do layer(LAYERS[i][1], LAYERS[i][2], LAYERS[i][3], PLAIN, ', plain') end
product('a b', { 1024, 1024, 1024 }, { { 1024, 1024 }, { 1024, 1024 } }, { 0, 0 }, { PLAIN })

-- ---- convolutions ---------------------------------------------------------------------------------------------------
local function pair(n) return n * 2 ^ 32 + n end

-- Adds y, dx and dw of a convolution of square images: { name, batch, inputs, outputs, kernel, size of the image,
-- stride, groups }.
local function convolution(s)
    local name, n, c, o, k, size, stride, groups = unpack(s)
    local pad = math.floor(k / 2)
    local out = math.floor((size + 2 * pad - k) / stride) + 1
    local flops, layout = 2 * n * o * out * out * k * k * c / groups, o % 16 == 0 and CONV_PANELS or PLAIN
    local function add_op(what, operation, operands, more, of_result)
        add('convolutions', name .. ', ' .. what, operation, flops, function(dtype)
            local made = { x = { NHWC, n, c, size, size }, w = { layout, o, c / groups, k, k },
                dy = { NHWC, n, o, out, out } }
            local a, b = held(dtype, unpack(made[operands[1]])), held(dtype, unpack(made[operands[2]]))
            local attributes = { i = { pair(stride), pair(pad), pair(1), groups, more }, layout = of_result }
            return function() return op.record(operation, { a, b }, attributes) end
        end)
    end
    add_op('y', 'conv2d', { 'x', 'w' })
    add_op('dx', 'conv2d_dx', { 'dy', 'w' }, pair(size))
    add_op('dw', 'conv2d_dw', { 'dy', 'x' }, pair(k), layout)
end

for _, s in ipairs {
    { '3x3 64>64 @56 b8', 8, 64, 64, 3, 56, 1, 1 },
    { '3x3 64>64 @16 b16', 16, 64, 64, 3, 16, 1, 1 },
    { '3x3 128>128 @28 b8', 8, 128, 128, 3, 28, 1, 1 },
    { '3x3 256>256 @14 b8', 8, 256, 256, 3, 14, 1, 1 },
    { '3x3 512>512 @7 b8', 8, 512, 512, 3, 7, 1, 1 },
    { '3x3 512>512 @4 b16', 16, 512, 512, 3, 4, 1, 1 },
    { '1x1 1024>256 @14 b8', 8, 1024, 256, 1, 14, 1, 1 },
    { '1x1 64>256 @56 b8', 8, 64, 256, 1, 56, 1, 1 },
    { '3x3 s2 64>128 @56 b8', 8, 64, 128, 3, 56, 2, 1 },
    { '7x7 s2 3>64 @224 b4', 4, 3, 64, 7, 224, 2, 1 },
    { 'depthwise 3x3 256 @28 b8', 8, 256, 256, 3, 28, 1, 256 },
} do convolution(s) end

-- ---- measuring ------------------------------------------------------------------------------------------------------
-- Returns the seconds of the op alone: the median of those after the first of several in a row, which finds the other
-- threads asleep and waits for them, for milliseconds on a virtual machine. Training runs kernel after kernel. Each
-- leaves one number, so that its result lies in the arena, whose pages were touched before.
local function seconds_of(row, record)
    local sum = record():sum()
    for _ = 1, IN_A_ROW do sum = sum + record():sum() end
    local p, seconds = programs.run { mode = 'eval', roots = { sum } }, {}
    for i, step in ipairs(programs.schedule(p)) do
        if step.op == row.op then seconds[#seconds + 1] = C.wn_step_seconds(p.handle, i - 1) end
    end
    assert(#seconds == IN_A_ROW + 1, row.name .. ': ops are missing')
    table.remove(seconds, 1)
    return common.median(seconds)
end

local function measured(row, dtype, watch)
    local record, repetitions = row.make(dtype), {}
    seconds_of(row, record)
    for i = 1, REPETITIONS do
        repetitions[i] = watch:repetition(row.flops, function() return seconds_of(row, record) end)
    end
    local m = watch:summary(repetitions)
    return { row.name, ('%.2f'):format(1e3 * m.seconds), ('%.0f'):format(m.rate), ('%.0f'):format(m.peak), m.share,
        m.own, m.best }
end

local wanted = {}
for _, a in ipairs(arg) do
    wanted[(a == 'f32' or a == 'bf16') and 'dtype' or rows[a] and 'kind' or 'name'] = a
end

local function table_of(kind, dtype, peak_of)
    local lines, watch = {}, shares.new(common, probe, threads, peak_of)
    for _, row in ipairs(rows[kind]) do
        if not wanted.name or row.name:find(wanted.name, 1, true) then
            lines[#lines + 1] = measured(row, dtype, watch)
            collectgarbage()
        end
    end
    common.table({ ('%s of %s, %d threads'):format(kind, dtype, threads), 'ms', 'GFLOP/s', 'peak, GFLOP/s', 'share',
        'share, cores ours alone', 'best over best' }, lines)
end

C.wn_timing(1)
for _, dtype in ipairs { 'f32', 'bf16' } do
    local has = dtype == 'f32' or probe.gflops_bf16(1) > 0
    if not has then print 'bf16: this processor has no instruction for it' end
    for _, kind in ipairs { 'matrices', 'convolutions' } do
        if has and (wanted.dtype or dtype) == dtype and (wanted.kind or kind) == kind then
            table_of(kind, dtype, dtype == 'f32' and probe.gflops_of or probe.gflops_bf16_of)
        end
    end
end
print(('memory: %.1f GB/s read'):format(probe.read(threads, 2 ^ 30)))
