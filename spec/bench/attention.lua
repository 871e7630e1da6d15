-- Tiled attention, forward and backward, against the machine's own peak, probed in the same run, and against the same
-- attention composed of products, softmax and dropout. FLOPs are those of the products a user would count: 4 T T hd a
-- head forward, 10 backward, half of both under a causal mask. (The backward computes 12: it makes the scores again.)
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local op = require 'wane.op'
local arith = require 'wane.arith'
local programs = require 'spec.support.programs'
local C = require('wane.ffi').C
local probe = common.probe()
local threads = C.wn_threads()

local shapes = { -- name, batch, time, heads, size, causal, dropout
    { '12 heads x 1024 x 64', 1, 1024, 12, 64, false, 0 },
    { '12 heads x 1024 x 64, causal', 1, 1024, 12, 64, true, 0 },
    { '12 heads x 1024 x 64, causal, dropout 0.1', 1, 1024, 12, 64, true, 0.1 },
    { '8 x 6 heads x 256 x 64, causal, dropout 0.1', 8, 256, 6, 64, true, 0.1 },
    { '8 heads x 1024 x 128, causal', 1, 1024, 8, 128, true, 0 },
}

local function tiled(qkv, s)
    return op.record('attention', { qkv }, { i = { s[4], s[4], s[6] and 1 or 0 }, f = { s[7], s[5] ^ -0.5 } })
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

-- Seconds of one run: the forward, or forward and backward.
local function seconds(fn, s, qkv, dy, mode)
    local y = fn(qkv, s)
    local root = mode == 'eval' and y:narrow(1, 1, 1) or (y * dy):sum()
    local p = programs.run { mode = mode, roots = { root } }
    return p.measured.seconds
end

local rows = {}
for _, s in ipairs(shapes) do
    local b, t, heads, size = s[2], s[3], s[4], s[5]
    local qkv = wane.nn.Parameter(wane.randn(b, t, 3 * heads * size))
    local dy = wane.randn(b, t, heads * size):retain()
    wane.eval(qkv, dy)
    local times, peaks = { {}, {}, {}, {} }, {}
    for i = 1, tonumber(arg[1]) or 9 do
        peaks[i] = probe.gflops(threads)
        times[1][i], times[2][i] = seconds(tiled, s, qkv, dy, 'eval'), seconds(tiled, s, qkv, dy, 'backward')
        times[3][i], times[4][i] = seconds(composed, s, qkv, dy, 'eval'), seconds(composed, s, qkv, dy, 'backward')
        qkv.grad = nil
    end
    local peak = common.median(peaks)
    local all, half = common.median(times[2]), common.median(times[1])
    local forward = 4 * b * heads * t * t * size * (s[6] and 0.5 or 1)
    local function row(what, flops, time, other)
        local rate = flops / time * 1e-9
        rows[#rows + 1] = { s[1] .. ', ' .. what, ('%.2f'):format(1e3 * time), ('%.0f'):format(rate),
            ('%.0f %%'):format(100 * rate / peak), ('%.2f'):format(1e3 * other) }
    end
    row('forward', forward, half, common.median(times[3]))
    row('backward', 2.5 * forward, all - half, common.median(times[4]) - common.median(times[3]))
end
common.table({ 'attention, ' .. threads .. ' threads', 'ms', 'GFLOP/s', 'share of the peak', 'composed, ms' }, rows)
