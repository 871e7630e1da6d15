-- Tiled attention, forward and backward, against the machine's own peak, probed in the same run, and against the same
-- attention composed of products, softmax and dropout: medians of rounds taken in turns. FLOPs are those of the
-- products a user would count: 4 T T hd a head forward, 10 backward, half of both under a causal mask. (Of keys
-- beyond the first 1024 the backward computes 12: it makes their scores twice.) `forward` and `backward` are the ops
-- alone; `a step` is a program as one would write it, with a product and a sum over the result; what is composed is
-- measured as programs.
--
--   luajit spec/bench/attention.lua [rounds]
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local op = require 'wane.op'
local arith = require 'wane.arith'
local programs = require 'spec.support.programs'
local C = require('wane.ffi').C
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

-- Seconds of one run of a program with these roots.
local function seconds(mode, roots)
    return programs.run({ mode = mode, roots = roots }).measured.seconds
end

local MANY = 5
-- Seconds of an op by itself: of MANY in a program, so that what one begins with, threads that wake up above all,
-- hardly counts. The result is the sum of one position, so that the whole lies in the arena, whose pages were touched
-- before.
local function alone(fn)
    local roots = {}
    for k = 1, MANY do roots[k] = fn():narrow(2, 1, 1):sum() end
    return seconds('eval', roots) / MANY
end

-- Medians of what each takes, in seconds, and of the probed peak, in turns.
local function measure(s, qkv, dy, rounds)
    local y = tiled(qkv, s):retain()
    wane.eval(y)
    local function step(fn)
        local took = seconds('backward', { (fn(qkv, s) * dy):sum() })
        qkv.grad = nil
        return took
    end
    local arms = {
        forward = function() return alone(function() return tiled(qkv, s) end) end,
        backward = function() return alone(function() return gradient(dy, qkv, y, s) end) end,
        step = function() return step(tiled) end,
        composed = function() return seconds('eval', { composed(qkv, s):narrow(2, 1, 1):sum() }) end,
        composed_step = function() return step(composed) end,
        peak = function() return probe.gflops(threads) end,
    }
    local took = {}
    for name in pairs(arms) do took[name] = {} end
    for round = 0, rounds do
        for _, name in ipairs { 'peak', 'forward', 'backward', 'step', 'composed', 'composed_step' } do
            local value = arms[name]()
            if round > 0 then table.insert(took[name], value) end -- the first one touches the pages
        end
    end
    for name, list in pairs(took) do took[name] = common.median(list) end
    return took
end

local rows = {}
for _, s in ipairs(shapes) do
    local b, t, heads, size = s[2], s[3], s[4], s[5]
    local qkv = wane.nn.Parameter(wane.randn(b, t, 3 * heads * size))
    local dy = wane.randn(b, t, heads * size):retain()
    wane.eval(qkv, dy)
    local took = measure(s, qkv, dy, tonumber(arg[1]) or 15)
    local flops = 4 * b * heads * t * t * size * (s[6] and 0.5 or 1)
    local function row(what, work, time, other)
        local rate = work / time * 1e-9
        rows[#rows + 1] = { s[1] .. ', ' .. what, ('%.2f'):format(1e3 * time), ('%.0f'):format(rate),
            ('%.0f %%'):format(100 * rate / took.peak), other and ('%.2f'):format(1e3 * other) or '' }
    end
    row('forward', flops, took.forward, took.composed)
    row('backward', 2.5 * flops, took.backward)
    row('a step', 3.5 * flops, took.step, took.composed_step)
end
common.table({ 'attention, ' .. threads .. ' threads', 'ms', 'GFLOP/s', 'share of the peak', 'composed, ms' }, rows)
