-- Measures convolutions, and their two gradients, against the machine's own peak, probed in the same run: f32, then
-- bf16. usage: luajit spec/bench/conv.lua [f32|bf16] [part of a shape's name] [y|dx|dw] [--class NAME]
-- shares.lua says what the shares are.
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
local PLAIN, NHWC, PANELS = 0, 2, 3 -- runtime/base/layout.h

local function pair(a, b)
    return a * 2 ^ 32 + (b or a)
end

-- The shapes: { name, batch, inputs, outputs, kernel, size of the image, stride, groups }.
local SHAPES = {
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
}
local OPS = { { 'y', 'conv2d' }, { 'dx', 'conv2d_dx' }, { 'dw', 'conv2d_dw' } }

local function image(n, c, size, dtype)
    return create.laid(wane.randn(n, c, size, size):to(dtype), NHWC):retain()
end

-- Returns the operands, attributes and multiply-adds of a shape.
local function prepare(s, dtype)
    local _, n, c, o, k, size, stride, groups = unpack(s)
    local pad = math.floor(k / 2)
    local out = math.floor((size + 2 * pad - k) / stride) + 1
    local w = wane.randn(o, c / groups, k, k):to(dtype)
    if o % 16 == 0 then w = create.laid(w, PANELS) end
    local at = { pair(stride), pair(pad), pair(1), groups }
    local made = { x = image(n, c, size, dtype), w = w:retain(), dy = image(n, o, out, dtype), at = at,
        size = pair(size), kernel = pair(k), layout = o % 16 == 0 and PANELS or PLAIN }
    made.flops = 2 * n * o * out * out * k * k * c / groups
    wane.eval(made.x, made.w, made.dy)
    return made
end

local function record(name, m)
    local a = { i = { unpack(m.at) } }
    if name == 'conv2d' then return op.record(name, { m.x, m.w }, a) end
    a.i[5] = name == 'conv2d_dx' and m.size or m.kernel
    if name == 'conv2d_dx' then return op.record(name, { m.dy, m.w }, a) end
    a.layout = m.layout
    return op.record(name, { m.dy, m.x }, a)
end

-- Returns the seconds of the op alone: the median of those after the first of several in a row, which finds the other
-- threads asleep and waits for them, for milliseconds on a virtual machine. Training runs kernel after kernel. Each
-- leaves one number, so that its result lies in the arena, whose pages were touched before.
local function seconds_of(name, m)
    local sum = record(name, m):sum()
    for _ = 1, IN_A_ROW do sum = sum + record(name, m):sum() end
    local p, seconds = programs.run { mode = 'eval', roots = { sum } }, {}
    for i, step in ipairs(programs.schedule(p)) do
        if step.op == name then seconds[#seconds + 1] = C.wn_step_seconds(p.handle, i - 1) end
    end
    assert(#seconds == IN_A_ROW + 1, 'convolutions are missing')
    table.remove(seconds, 1)
    return common.median(seconds)
end

local function row_of(s, made, which, watch)
    seconds_of(which[2], made)
    local repetitions = {}
    for i = 1, REPETITIONS do
        repetitions[i] = watch:repetition(made.flops, function() return seconds_of(which[2], made) end)
    end
    local m = watch:summary(repetitions)
    return { s[1] .. ', ' .. which[1], ('%.2f'):format(1e3 * m.seconds), ('%.0f'):format(m.rate),
        ('%.0f'):format(m.peak), m.share, m.own, m.best }
end

local wanted = {}
for _, a in ipairs(arg) do
    if a == 'f32' or a == 'bf16' then wanted.dtype = a
    elseif a == 'y' or a == 'dx' or a == 'dw' then wanted.op = a
    else wanted.shape = a end
end

local function table_of(dtype, peak_of)
    local rows, watch = {}, shares.new(common, probe, threads, peak_of)
    for _, s in ipairs(SHAPES) do
        if not wanted.shape or s[1]:find(wanted.shape, 1, true) then
            local made = prepare(s, dtype)
            for _, which in ipairs(OPS) do
                if not wanted.op or wanted.op == which[1] then rows[#rows + 1] = row_of(s, made, which, watch) end
            end
        end
    end
    common.table({ dtype .. ' convolution, ' .. threads .. ' threads', 'ms', 'GFLOP/s', 'peak, GFLOP/s', 'share',
        'share, cores ours alone', 'best over best' }, rows)
end

C.wn_timing(1)
for _, dtype in ipairs { 'f32', 'bf16' } do
    if (wanted.dtype or dtype) == dtype then
        local has = dtype == 'f32' or probe.gflops_bf16(1) > 0
        if has then table_of(dtype, dtype == 'f32' and probe.gflops_of or probe.gflops_bf16_of)
        else print 'bf16: this processor has no instruction for it' end
    end
end
