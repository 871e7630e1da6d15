-- Activation checkpointing as topic pages explain it, computed: the search for a number of segments by bisection, which
-- fails because the peak falls and rises again with that number, beside a budget; mistakes of such pages, checked where
-- that is possible; and every way to keep fewer bytes (recomputed, in half, a quarter, a bit), measured beside each
-- other, with the errors of the gradients.
-- All but the last table is planned; only a layer of a few numbers is trained.
--
--   luajit examples/catalogue.lua
--
-- It printed (seconds are a roofline and not measured, except in the last table: medians of 7 steps of some 15 ms
-- on two cores with nothing else running; bytes and errors are the same everywhere):
--
--   20 x (Linear 256, GELU), batch 4096; MiB reserved with 1 to 20 segments
--     170 98 82 66 58 70 98 86 74 62 130 126 122 118 114 110 106 102 98 94
--     holds  it falls and rises again; the least is at 5 segments
--     holds  bisection for these 60,858,368 bytes tries 10, 15, 18, 19 and ends at 20: 98,607,104 bytes
--     holds  a budget of them gives 60,858,368 bytes, a step 2.5 % shorter than with 5 segments
--     holds  counting parameters (40) for layers (20), as a page does, bisects over segments that do not exist
--     holds  with 5 segments, a measure of the forward alone sees 59,789,568 of the 60,841,984 bytes of the step
--
--   Corrections
--     holds  use_reentrant does not change exactness: the same bits with true, with false, without a region
--     holds  every fourth single Linear as a region saves 0 of 271,616 bytes: its backward reads but its input
--     holds  what is computed under no_grad, as a page offloads, trains nothing: no gradient
--     holds  wane.create_checkpoint_fn is an error here, too
--     (said, not checked: PyTorch has no create_checkpoint_fn, its checkpoint_sequential takes segments, not
--     num_segments; JAX's policies are everything_saveable and nothing_saveable, there is no everyTHING; an
--     offload that leaves the module on the GPU moves none of its bytes)
--
--   6 GPT blocks, d = 384, T = 512, batch 4, attention composed; planned
--   recomputed              MiB saved  ms more  MiB a ms
--   ----------------------  ---------  -------  --------
--   attention, all of it        305.9    471.5      0.65
--   softmax, dropout, mask      246.0    142.0      1.73
--   MLP                         119.9    297.8      0.40
--     holds  attention is recomputed because its bytes are many and cheap to make, those of (T, T) most of all
--     (a tiled attention has no such bytes; both are measured in examples/selective.lua)
--
--   6 blocks of layer norm, Linear, ReLU, dropout, Linear, d = 128, 512 rows; measured
--   kept                               predicted peak    measured         time  gradient error
--   ---------------------------------  --------------  ----------  -----  ----  --------------  ----------------
--   save all                               20,493,568  20,493,568  100 %  1.00  none
--   recompute all                          10,005,248  10,005,248   49 %  1.20  none
--   recompute norm, ReLU, dropout          10,005,248  10,005,248   49 %  1.20  none
--   compress:bits                          14,399,232  14,399,232   70 %  1.03  none
--   compress:bf16                          13,534,464  13,534,464   66 %  1.09  6.2e-04         lossy, 36 values
--   compress:int8                           9,725,184   9,725,184   47 %  1.12  1.4e-02         lossy, 36 values
--   bits, the rest bf16                    10,585,344  10,585,344   52 %  1.09  6.2e-04         lossy, 30 values
--   bits, the rest int8                     8,795,392   8,795,392   43 %  1.09  2.5e-03         lossy, 30 values
--   recompute those, the rest bf16         10,005,248  10,005,248   49 %  1.20  4.8e-03         lossy, 18 values
--   offload                                 9,743,104   9,743,104   48 %  1.69  none
--   recompute those, the rest offload      10,005,248  10,005,248   49 %  1.36  none
--   bits, the rest offload                  8,727,296   8,727,296   43 %  1.54  none
--   budget of a third                      13,415,680  13,415,680   65 %  1.07  none
--   the same, offload allowed              12,891,392  12,891,392   63 %  1.28  none
--   the same, int8 allowed                 12,912,896  12,912,896   63 %  1.07  1.3e-02         lossy, 28 values
--     holds  the measured peak is the predicted one in every row
--     holds  gradients differ where a row says lossy, and nowhere else
--     holds  signs as bits take less, alone and beside int8, and lose nothing
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
dofile(root .. '/examples/options.lua') {}
local wane = require 'wane'

local nn, policy = wane.nn, wane.policy
local measure, text = require 'wane.plan.measure', require 'wane.report.table'
local exact = wane.bytes.exact
local LAYERS = 20
local is_right = true

-- Prints a line with whether it holds; the script fails at the end when a line does not.
local function claim(holds, form, ...)
    is_right = is_right and holds
    print(('  %s  %s'):format(holds and 'holds' or 'DOES NOT HOLD', form:format(...)))
end

-- ---- the search for a fitting number of segments ------------------------------------------------------------------
-- Searches the number of segments by bisection, as if more segments always took fewer bytes.
local function bisect(peak_of, most, target)
    local low, high, tried = 1, most, {}
    while low < high do
        local middle = math.floor((low + high) / 2)
        tried[#tried + 1] = middle
        if peak_of(middle) <= target then high = middle else low = middle + 1 end
    end
    return peak_of(low) <= target and low or nil, table.concat(tried, ', '), low
end

-- Searches on a network: 20 layers Linear(256, 256) and GELU, batch 4096, on the device meta.
local function search_in_bytes()
    local before = wane.set_device 'meta'
    local layers = {}
    for i = 1, LAYERS do layers[i] = nn.Sequential { nn.Linear(256, 256), nn.GELU() } end
    local model, x = nn.Sequential(layers), wane.zeros(4096, 256)
    local function fn() return model(x):sum() end
    local peaks, seconds, words = {}, {}, {}
    local lowest = 1
    for k = 1, LAYERS do
        local p = wane.plan(fn, { policy = policy.segments(k) })
        peaks[k], seconds[k] = p.reserved, p.seconds
        words[k] = ('%.0f'):format(p.reserved / wane.MiB)
        if p.reserved < peaks[lowest] then lowest = k end
    end
    local target = peaks[lowest]
    local found, tried, ended = bisect(function(k) return peaks[k] end, LAYERS, target)
    local best = wane.plan(fn, { budget = target })
    print('20 x (Linear 256, GELU), batch 4096; MiB reserved with 1 to 20 segments')
    print('  ' .. table.concat(words, ' '))
    claim(peaks[1] > target and peaks[LAYERS] > target, 'it falls and rises again; the least is at %d segments', lowest)
    claim(found == nil, 'bisection for these %s bytes tries %s and ends at %d: %s bytes', exact(target), tried, ended,
        exact(peaks[ended]))
    claim(best.reserved <= target and best.seconds <= seconds[lowest],
        'a budget of them gives %s bytes, a step %.1f %% shorter than with %d segments', exact(best.reserved),
        100 * (1 - best.seconds / seconds[lowest]), lowest)
    claim(#model:parameters() == 2 * LAYERS,
        'counting parameters (%d) for layers (%d), as a page does, bisects over segments that do not exist',
        #model:parameters(), LAYERS)
    local at = wane.plan(fn, { policy = policy.segments(lowest) }).at
    claim(at.peak_backward > at.peak_forward,
        'with %d segments, a measure of the forward alone sees %s of the %s bytes of the step', lowest,
        exact(at.peak_forward), exact(at.peak_backward))
    wane.set_device(before)
end

-- ---- mistakes of the pages ----------------------------------------------------------------------------------------
local function reentrant()
    local model, x = nn.MLP(16, 64, { dropout = 0.5 }), wane.eval(wane.randn(8, 16))
    local function digest(use_reentrant)
        wane.manual_seed(3)
        return measure.gradients(function()
            if use_reentrant == nil then return model(x):sum() end
            return wane.checkpoint_with({ use_reentrant = use_reentrant }, model, x):sum()
        end)
    end
    claim(digest(true) == digest(false) and digest(true) == digest(),
        'use_reentrant does not change exactness: the same bits with true, with false, without a region')
end

local function fourth_linear()
    local layers, x = {}, wane.eval(wane.randn(64, 32))
    for i = 1, LAYERS do layers[i] = nn.Linear(32, 32) end
    local function step(every)
        return function()
            local y = x
            for i, layer in ipairs(layers) do
                y = i % every == 0 and wane.checkpoint(layer, y) or layer(y)
                y = y:relu()
            end
            return y:sum()
        end
    end
    local with, without = wane.plan(step(4)), wane.plan(step(LAYERS + 1))
    claim(without.peak - with.peak == 0,
        'every fourth single Linear as a region saves %d of %s bytes: its backward reads but its input',
        without.peak - with.peak, exact(without.peak))
end

local function no_grad()
    local model, x = nn.Linear(8, 8), wane.eval(wane.randn(4, 8))
    local y = wane.no_grad(function() return model(x):sum() end)
    claim(not y.requires_grad, 'what is computed under no_grad, as a page offloads, trains nothing: no gradient')
end

local Block = nn.module('Block', function(self, d, heads)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { dropout = 0.1, causal = true, tiled = false })
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = 0.1 })
end)
function Block:forward(x)
    x = x + self.attn(self.ln1(x))
    return x + self.mlp(self.ln2(x))
end

-- Shows why attention is recomputed: not for its time, but because it gives many bytes for each second.
local function attention()
    local before = wane.set_device 'meta'
    local blocks = {}
    for i = 1, 6 do blocks[i] = Block(384, 6) end
    local model, x = nn.Sequential(blocks), wane.zeros(4, 512, 384)
    local function fn() return model(x):sum() end
    local base, rows, rate = wane.plan(fn), {}, {}
    for i, arm in ipairs {
        { 'attention, all of it', policy.by_type { Attention = 'recompute', default = 'save' } },
        { 'softmax, dropout, mask', policy.by_op { softmax = 'recompute', dropout = 'recompute', where = 'recompute',
            default = 'save', optional = true } },
        { 'MLP', policy.by_type { MLP = 'recompute', default = 'save' } },
    } do
        local p = wane.plan(fn, { policy = arm[2] })
        local saved, extra = (base.reserved - p.reserved) / wane.MiB, 1000 * (p.seconds - base.seconds)
        rate[i] = saved / extra
        rows[i] = { arm[1], ('%.1f'):format(saved), ('%.1f'):format(extra), ('%.2f'):format(rate[i]) }
    end
    print('\n6 GPT blocks, d = 384, T = 512, batch 4, attention composed; planned')
    print(text.text({ 'recomputed', 'MiB saved', 'ms more', 'MiB a ms' }, rows))
    claim(rate[1] > rate[3] and rate[2] > rate[1],
        'attention is recomputed because its bytes are many and cheap to make, those of (T, T) most of all')
    print('  (a tiled attention has no such bytes; both are measured in examples/selective.lua)')
    wane.set_device(before)
end

local function corrections()
    print('\nCorrections')
    reentrant()
    fourth_linear()
    no_grad()
    local ok, e = pcall(function() return wane.create_checkpoint_fn end)
    claim(not ok and e.code == 'value', 'wane.create_checkpoint_fn is an error here, too')
    print("  (said, not checked: PyTorch has no create_checkpoint_fn, its checkpoint_sequential takes segments, not\n"
        .. "  num_segments; JAX's policies are everything_saveable and nothing_saveable, there is no everyTHING; an\n"
        .. '  offload that leaves the module on the GPU moves none of its bytes)')
end

-- ---- every way to keep fewer bytes, measured --------------------------------------------------------------------
local Relu = nn.module('ReluBlock', function(self, d)
    self.norm, self.drop = nn.LayerNorm(d), nn.Dropout(0.1)
    self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
end)
function Relu:forward(x) return x + self.down(self.drop(self.up(self.norm(x)):relu())) end

local signs_and = function(word)
    return policy.compose(function(r) return r.sign_only and 'compress:bits' or nil end, word)
end
local dropped = { layernorm = 'recompute', dropout = 'recompute', relu = 'recompute' }

-- Prints, for each policy, the predicted and measured peak, the time against saving everything (in turns, medians), and
-- the error of the gradients.
local function kept_in_less()
    local BLOCKS, D, ROWS, TURNS = 6, 128, 512, 7
    wane.manual_seed(4)
    local blocks = {}
    for i = 1, BLOCKS do blocks[i] = Relu(D) end
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(ROWS, D))
    local function fn() return model(x):pow(2):mean() end
    local least, most = wane.min_budget(fn), wane.plan(fn).reserved
    local half = math.ceil(least + (most - least) / 3)
    local arms = {
        { 'save all', 'save_all' }, { 'recompute all', 'recompute_all' },
        { 'recompute norm, ReLU, dropout', policy.by_op(dropped) },
        { 'compress:bits', 'compress:bits' }, { 'compress:bf16', 'compress:bf16' },
        { 'compress:int8', 'compress:int8' },
        { 'bits, the rest bf16', signs_and 'compress:bf16' }, { 'bits, the rest int8', signs_and 'compress:int8' },
        { 'recompute those, the rest bf16', policy.compose(policy.by_op(dropped), 'compress:bf16') },
        { 'offload', 'offload' },
        { 'recompute those, the rest offload', policy.compose(policy.by_op(dropped), 'offload') },
        { 'bits, the rest offload', signs_and 'offload' },
        { 'budget of a third', policy.budget(half) },
        { 'the same, offload allowed', policy.budget(half, { allow = { 'recompute', 'offload' } }) },
        { 'the same, int8 allowed', policy.budget(half, { allow = { 'compress:int8' } }) },
    }
    local times, found = {}, {}
    for i = 1, #arms do times[i] = {} end
    for turn = 1, TURNS do
        for i, arm in ipairs(arms) do
            -- This is the second run, because the first one resizes the arena.
            found[i] = wane.measure(fn, { policy = arm[2], steps = 1 })
            times[i][turn] = found[i].seconds
        end
    end
    for i = 1, #arms do table.sort(times[i]) end
    local rows, exact_bytes, kept_bits, lossy = {}, true, true, 0
    local middle = math.ceil(TURNS / 2)
    for i, arm in ipairs(arms) do
        local e, m = wane.gradient_error(fn, { policy = arm[2] }), found[i]
        rows[i] = { arm[1], exact(m.predicted_peak), exact(m.peak), ('%.0f %%'):format(100 * m.peak / found[1].peak),
            ('%.2f'):format(times[i][middle] / times[1][middle]),
            e.exact and 'none' or ('%.1e'):format(e.total.relative),
            e.lossy > 0 and ('lossy, %d values'):format(e.lossy) or '' }
        exact_bytes = exact_bytes and m.exact and m.peak == m.predicted_peak
        kept_bits = kept_bits and (e.lossy > 0) ~= e.exact
        lossy = lossy + (e.lossy > 0 and 1 or 0)
    end
    print(('\n%d blocks of layer norm, Linear, ReLU, dropout, Linear, d = %d, %d rows; measured'):format(BLOCKS, D,
        ROWS))
    print(text.text({ 'kept', 'predicted peak', 'measured', '', 'time', 'gradient error', '' }, rows))
    claim(exact_bytes, 'the measured peak is the predicted one in every row')
    claim(kept_bits and lossy > 0, 'gradients differ where a row says lossy, and nowhere else')
    claim(found[4].peak < found[1].peak and found[8].peak < found[6].peak,
        'signs as bits take less, alone and beside int8, and lose nothing')
end

search_in_bytes()
corrections()
attention()
kept_in_less()
if not is_right then os.exit(1, true) end
