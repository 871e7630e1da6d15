-- Tiled attention, forward and backward, against the machine's own peak, probed in the same run, and against the same
-- attention composed of products, softmax and dropout: the least times of rounds taken in turns. FLOPs are those of the
-- products a user would count: 4 T T hd a head forward, 10 backward, half of both under a causal mask. (Of keys
-- beyond the first 1024 the backward computes 12: it makes their scores twice.) `backward` is its op alone; `forward
-- and backward` is a program as one would write it, so with a product and a sum over the result.
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

local function tiled(qkv, s) return op.record('attention', { qkv }, attrs_of(s)) end

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

-- Seconds of one run of a program whose roots fn makes.
local function seconds(mode, root)
    return programs.run({ mode = mode, roots = { root } }).measured.seconds
end

-- The least seconds of forward, and of forward and backward, tiled and composed, and of the op of the backward alone,
-- taken in turns; and the best peak.
local function measure(s, qkv, dy, rounds)
    local least, peak = {}, 0
    local y = tiled(qkv, s):retain()
    wane.eval(y)
    for _ = 1, rounds do
        peak = math.max(peak, probe.gflops(threads))
        local alone = seconds('eval', op.record('attention_grad', { dy, qkv, y }, attrs_of(s)):narrow(1, 1, 1))
        least[5] = math.min(least[5] or math.huge, alone)
        for k, fn in ipairs { tiled, composed } do
            -- One row is the result, so that the whole lies in the arena: its pages were touched before.
            local forward = seconds('eval', fn(qkv, s):narrow(1, 1, 1))
            local both = seconds('backward', (fn(qkv, s) * dy):sum())
            qkv.grad = nil
            least[k] = math.min(least[k] or math.huge, forward)
            least[k + 2] = math.min(least[k + 2] or math.huge, both)
        end
    end
    return least, peak
end

local rows = {}
for _, s in ipairs(shapes) do
    local b, t, heads, size = s[2], s[3], s[4], s[5]
    local qkv = wane.nn.Parameter(wane.randn(b, t, 3 * heads * size))
    local dy = wane.randn(b, t, heads * size):retain()
    wane.eval(qkv, dy)
    local least, peak = measure(s, qkv, dy, tonumber(arg[1]) or 20)
    local flops = 4 * b * heads * t * t * size * (s[6] and 0.5 or 1)
    local function row(what, work, time, other)
        local rate = work / time * 1e-9
        rows[#rows + 1] = { s[1] .. ', ' .. what, ('%.2f'):format(1e3 * time), ('%.0f'):format(rate),
            ('%.0f %%'):format(100 * rate / peak), other and ('%.2f'):format(1e3 * other) or '' }
    end
    row('forward', flops, least[1], least[2])
    row('backward', 2.5 * flops, least[5])
    row('forward and backward', 3.5 * flops, least[3], least[4])
end
common.table({ 'attention, ' .. threads .. ' threads', 'ms', 'GFLOP/s', 'share of the peak', 'composed, ms' }, rows)
