-- Measures tiled attention, forward and backward, against the machine's own peak, probed in the same run (the two
-- shares: shares.lua), and against the same attention composed of products, softmax and dropout: medians of rounds
-- taken in turns. FLOPs are those of the products that a user would count: 4 T T hd a head forward, 10 backward, half
-- of both under a causal mask. (Of keys beyond the first 1024 the backward computes 12: it computes their scores
-- twice.) `forward` and `backward` are the ops alone; `a step` is a program as one would write it, with a product and a
-- sum over the result; composed attention is measured as programs.
--
--   luajit spec/bench/attention.lua [rounds]
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local op = require 'wane.tensor.op'
local arith = require 'wane.tensor.arith'
local programs = require 'spec.support.programs'
local C = require('wane.ffi').C
local shares = require 'spec.bench.shares'
local probe = common.probe()
local threads = C.wn_threads()

local shapes = { -- name, batch, time, heads, size, causal, dropout
    { '1 head x 1024 x 64', 1, 1024, 1, 64, false, 0 },
    { '12 heads x 1024 x 64', 1, 1024, 12, 64, false, 0 },
    { '12 heads x 1024 x 64, causal', 1, 1024, 12, 64, true, 0 },
    { '12 heads x 1024 x 64, causal, dropout 0.1', 1, 1024, 12, 64, true, 0.1 },
    { '8 x 6 heads x 256 x 64', 8, 256, 6, 64, false, 0 },
    { '8 x 6 heads x 256 x 64, causal', 8, 256, 6, 64, true, 0 },
    { '8 x 6 heads x 256 x 64, causal, dropout 0.1', 8, 256, 6, 64, true, 0.1 },
    { '8 heads x 1024 x 128, causal', 1, 1024, 8, 128, true, 0 },
}

local function attrs_of(s)
    return { i = { s[4], s[4], s[6] and 1 or 0 }, f = { s[7], s[5] ^ -0.5 } }
end

local function tiled(qkv, s)
    return op.record('attention', { qkv }, attrs_of(s))
end

local function gradient(dy, qkv, y, s)
    return op.record('attention_grad', { dy, qkv, y }, attrs_of(s))
end

local function composed(qkv, s)
    local b, t, heads, size = s[2], s[3], s[4], s[5]
    local x = qkv:reshape(b, t, 3, heads, size):permute(3, 1, 4, 2, 5)
    local weights = (x[1] * size ^ -0.5):matmul(x[2], { transpose_b = true })
    if s[6] then
        local row, column = wane.arange(t):reshape(t, 1), wane.arange(t):reshape(1, t)
        weights = wane.where(column:le(row), weights, -math.huge)
    end
    weights = weights:softmax(-1)
    if s[7] > 0 then weights = arith.dropout(weights, s[7]) end
    return weights:matmul(x[3]):permute(1, 3, 2, 4):reshape(b, t, heads * size)
end

-- Returns the seconds of one run of a program with these roots.
local function seconds(mode, roots)
    return programs.run({ mode = mode, roots = roots }).measured.seconds
end

local MANY = 5
-- Returns the seconds of an op by itself: of MANY ops in a program, so that the fixed cost of a run, threads that wake
-- up above all, hardly counts. The result is the sum of one position, so that the whole value lies in the arena, whose
-- pages were touched before.
local function alone(fn)
    local roots = {}
    for k = 1, MANY do roots[k] = fn():narrow(2, 1, 1):sum() end
    return seconds('eval', roots) / MANY
end

local function print_rate(name, m, other)
    return { name, ('%.2f'):format(1e3 * m.seconds), ('%.0f'):format(m.rate), m.share, m.own, m.best,
        other and ('%.2f'):format(1e3 * other) or '' }
end

-- Measures the arms of a shape in turns and returns a row for each of the first three.
local function measure(s, qkv, dy, rounds, watch)
    local y = tiled(qkv, s):retain()
    wane.eval(y)
    local function step(fn)
        local took = seconds('backward', { (fn(qkv, s) * dy):sum() })
        qkv.grad = nil
        return took
    end
    local arms = {
        { 'forward', 4, function() return alone(function() return tiled(qkv, s) end) end },
        { 'backward', 10, function() return alone(function() return gradient(dy, qkv, y, s) end) end },
        { 'a step', 14, function() return step(tiled) end },
        { 'composed', 4, function() return seconds('eval', { composed(qkv, s):narrow(2, 1, 1):sum() }) end },
        { 'a composed step', 14, function() return step(composed) end },
    }
    local work, took = s[2] * s[4] * s[3] * s[3] * s[5] * (s[6] and 0.5 or 1), {}
    for round = 0, rounds do
        for i, arm in ipairs(arms) do
            local r = watch:repetition(arm[2] * work, arm[3])
            took[i] = took[i] or {}
            if round > 0 then took[i][round] = r end -- the first one touches the pages
        end
    end
    local m, rows = {}, {}
    for i in ipairs(arms) do m[i] = watch:summary(took[i]) end
    for i = 1, 3 do
        rows[i] = print_rate(s[1] .. ', ' .. arms[i][1], m[i], i ~= 2 and m[i == 1 and 4 or 5].seconds)
    end
    return rows
end

local rows, watch = {}, shares.new(common, probe, threads, probe.gflops_of)
for _, s in ipairs(shapes) do
    local qkv = wane.nn.Parameter(wane.randn(s[2], s[3], 3 * s[4] * s[5]))
    local dy = wane.randn(s[2], s[3], s[4] * s[5]):retain()
    wane.eval(qkv, dy)
    for _, row in ipairs(measure(s, qkv, dy, tonumber(arg[1]) or 20, watch)) do rows[#rows + 1] = row end
end
common.table({ 'attention, ' .. threads .. ' threads', 'ms', 'GFLOP/s', 'share of the peak', 'share, cores ours alone',
    'best over best', 'composed, ms' }, rows)
