-- A stack of GPT blocks under eight policies: everything saved; each block recomputed, written in two ways; attention
-- recomputed and the rest saved, by type and as a region; the reverse choices; cheap ops only. Activations outweigh
-- parameters here, so recomputation shows in the peak. Gradients are the same bits in every arm, dropout included. "All
-- but attention" drops the values between blocks too, so the first backward node needs a forward again: this choice
-- costs time and saves next to nothing.
--
--   luajit examples/gptstack.lua [--blocks N] [--d D] [--heads H] [--t T] [--batch B] [--dropout P] [--steps N]
--                                [--small] [--out FOLDER]
--
-- It printed (2 cores, the CPU device, nothing else running):
--
--   GPT stack: 6 blocks, d = 384, 6 heads, T = 256, batch 8, dropout 0.1, 2 threads; loss = mean of squares
--
--   Peak of forward and backward in bytes, nodes recomputed, seconds
--   what is recomputed               predicted     measured  differs         nodes  s a step           gradients
--   -----------------------------  -----------  -----------  -------  -----  -----  --------  -------  -----------
--   nothing (save_all)             504,487,424  504,487,424        0  100 %      0    0.4346   +0.0 %  (reference)
--   each block: wane.checkpoint    162,325,504  162,325,504        0   32 %    144    0.6390  +47.0 %  equal
--   each block: every(1)           162,325,504  162,325,504        0   32 %    144    0.6273  +44.4 %  equal
--   attention: by type             296,667,136  296,667,136        0   59 %     84    0.5968  +37.3 %  equal
--   attention: wane.checkpoint     296,667,136  296,667,136        0   59 %     84    0.5645  +29.9 %  equal
--   MLP: by type                   378,658,304  378,658,304        0   75 %     12    0.4894  +12.6 %  equal
--   all but attention: by type     485,514,752  485,514,752        0   96 %     72    0.5455  +25.5 %  equal
--   softmax, dropout, gelu: by op  296,667,136  296,667,136        0   59 %     30    0.4685   +7.8 %  equal
--
--   saved for each extra millisecond of a step:
--     each block: wane.checkpoint    1.60 MiB
--     each block: every(1)           1.69 MiB
--     attention: by type             1.22 MiB
--     attention: wane.checkpoint     1.52 MiB
--     MLP: by type                   2.19 MiB
--     all but attention: by type     0.16 MiB
--     softmax, dropout, gelu: by op  5.84 MiB
--
--   The same with tiled attention, against the first row above
--   what is recomputed             predicted     measured  differs        nodes  s a step
--   ---------------------------  -----------  -----------  -------  ----  -----  --------  -------
--   nothing (save_all)           353,426,176  353,426,176        0  70 %      0    0.4650   +7.0 %
--   each block: wane.checkpoint  137,093,376  137,093,376        0  27 %     72    0.5192  +19.5 %
--
--   pictures: gptstack_memory.svg, gptstack_time.svg in examples/out (or --out)
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, policy = wane.nn, wane.policy
local measure, text, plot = require 'wane.plan.measure', require 'wane.report.table', require 'wane.report.plot'
local exact, MiB = wane.bytes.exact, wane.MiB

-- ---- the network --------------------------------------------------------------------------------------------------
local Block = nn.module('Block', function(self, d, heads, p, with_region, is_tiled)
    self.with_region = with_region -- around the attention
    -- not tiled: the (T, T) scores, weights and masks are values, which the arms below decide about
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads,
        { dropout = p, causal = true, tiled = is_tiled or false })
    self.drop = nn.Dropout(p)
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = p })
end)
function Block:forward(x)
    local y = self.ln1(x)
    y = self.with_region and wane.checkpoint(self.attn, y) or self.attn(y)
    x = x + self.drop(y)
    return x + self.mlp(self.ln2(x))
end

local function build(size, regions, is_tiled)
    wane.manual_seed(1)
    local blocks = {}
    for i = 1, size.blocks do blocks[i] = Block(size.d, size.heads, size.dropout,
        regions == 'attention', is_tiled) end
    local model = nn.Sequential(blocks)
    local x = wane.randn(size.batch, size.t, size.d):retain()
    return model, x, function()
        if regions ~= 'blocks' then return (model(x) ^ 2):mean() end
        local y = x
        for i = 1, size.blocks do y = wane.checkpoint(model[i], y) end
        return (y ^ 2):mean()
    end
end

-- ---- arms -----------------------------------------------------------------------------------------------
local arms = {
    { name = 'nothing (save_all)', short = 'save all', policy = 'save_all' },
    { name = 'each block: wane.checkpoint', short = 'checkpoint', regions = 'blocks' },
    { name = 'each block: every(1)', short = 'every(1)', policy = policy.every(1) },
    { name = 'attention: by type', short = 'attention',
        policy = policy.by_type { Attention = 'recompute', default = 'save' } },
    { name = 'attention: wane.checkpoint', short = 'region', regions = 'attention' },
    { name = 'MLP: by type', short = 'MLP',
        policy = policy.by_type { MLP = 'recompute', default = 'save' } },
    { name = 'all but attention: by type', short = 'all but attention',
        policy = policy.by_type { Attention = 'save', default = 'recompute' } },
    { name = 'softmax, dropout, gelu: by op', short = 'by op',
        policy = policy.by_op { where = 'recompute', softmax = 'recompute', dropout = 'recompute', gelu = 'recompute',
            default = 'save', optional = true } },
}

local is_terminal = os.execute('test -t 2') == 0
local has_bars = os.execute('test -t 1') == 0

local function progress(words)
    if is_terminal then io.stderr:write('\r\27[K' .. words) end
end

-- Runs one arm from a fresh state: a warm-up, measured steps that change nothing, and a backward whose gradients are
-- compared.
local function run(arm, size)
    progress(arm.name)
    wane.memory.trim()
    local model, x, fn = build(size, arm.regions, arm.is_tiled)
    wane.eval(x)
    for _, p in ipairs(model:parameters()) do wane.eval(p) end
    wane.memory.trim() -- frees the arena in which the first values were made
    local plan = wane.plan(fn, { policy = arm.policy })
    local m = wane.measure(fn, { policy = arm.policy, warmup = 1, steps = size.steps })
    wane.manual_seed(2) -- one set of dropout masks for the backward of every arm
    local loss = fn()
    loss:backward { policy = arm.policy }
    local gradients = {}
    for i, p in ipairs(model:parameters()) do gradients[i] = p.grad end
    local out = { predicted = plan.peak, measured = m.peak, is_exact = m.exact, seconds = m.seconds,
        recomputed = plan.recomputed, activations = m.kinds.activation, loss = loss:item(),
        gradients = measure.fingerprint(gradients) }
    model:zero_grad()
    progress('')
    return out
end

-- ---- reports --------------------------------------------------------------------------------------------
local function report(results)
    local rows, is_right = {}, true
    for i, r in ipairs(results) do
        local same = r.gradients == results[1].gradients and r.loss == results[1].loss
        is_right = is_right and same and r.is_exact and r.predicted == r.measured
        rows[i] = { arms[i].name, exact(r.predicted), exact(r.measured), exact(r.measured - r.predicted),
            ('%.0f %%'):format(100 * r.measured / results[1].measured), r.recomputed, ('%.4f'):format(r.seconds),
            ('%+.1f %%'):format(100 * (r.seconds / results[1].seconds - 1)), i == 1 and '(reference)' or same
                and 'equal' or 'DIFFERENT' }
    end
    print('Peak of forward and backward in bytes, nodes recomputed, seconds')
    print(text.text({ 'what is recomputed', 'predicted', 'measured', 'differs', '', 'nodes', 's a step', '',
        'gradients' }, rows))
    print('')
    return is_right
end

-- Compares attention with the reverse choice: bytes saved for each millisecond.
local function compare(results)
    local base = results[1]
    print('saved for each extra millisecond of a step:')
    for i = 2, #results do
        local saved, extra = base.measured - results[i].measured, 1000 * (results[i].seconds - base.seconds)
        print(('  %-30s %s'):format(arms[i].name, extra > 10 * base.seconds and ('%.2f MiB'):format(saved / MiB / extra)
            or ('%.1f MiB saved, no extra time measured'):format(saved / MiB)))
    end
end

local function terminal_bars(results)
    if not has_bars then return end
    print('\npeak, MiB')
    for i, r in ipairs(results) do
        local length = math.floor(50 * r.measured / results[1].measured + 0.5)
        print(('%-20s %s %.1f'):format(arms[i].short, ('#'):rep(length), r.measured / MiB))
    end
end

local function draw(results, size)
    local names, peak, milliseconds = {}, {}, {}
    for i, r in ipairs(results) do
        names[i], peak[i], milliseconds[i] = arms[i].short, r.measured / MiB, 1000 * r.seconds
    end
    os.execute('mkdir -p "' .. size.out .. '"')
    local shape = ('%d blocks, d = %d, T = %d, batch %d'):format(size.blocks, size.d, size.t, size.batch)
    plot.write(size.out .. '/gptstack_memory.svg', plot.bars { title = 'peak of a step: ' .. shape, unit = 'MiB',
        format = '%.1f', groups = names, series = { { name = 'measured = predicted', values = peak } } })
    plot.write(size.out .. '/gptstack_time.svg', plot.bars { title = 'time of a step: ' .. shape, unit = 'ms',
        groups = names, series = { { name = 'median', values = milliseconds } } })
    print('\npictures: gptstack_memory.svg, gptstack_time.svg in examples/out (or --out)')
end

-- Runs the attention that makes no (T, T) value, nn.Attention's default: other kernels, so its numbers are equal up to
-- rounding.
local function compare_tiled(results, size)
    local rows, is_right = {}, true
    for i, arm in ipairs { { name = 'nothing (save_all)', policy = 'save_all', is_tiled = true },
        { name = 'each block: wane.checkpoint', regions = 'blocks', is_tiled = true } } do
        local r = run(arm, size)
        is_right = is_right and r.is_exact and math.abs(r.loss - results[1].loss) < 1e-5 * math.abs(r.loss)
        rows[i] = { arm.name, exact(r.predicted), exact(r.measured), exact(r.measured - r.predicted),
            ('%.0f %%'):format(100 * r.measured / results[1].measured), r.recomputed, ('%.4f'):format(r.seconds),
            ('%+.1f %%'):format(100 * (r.seconds / results[1].seconds - 1)) }
    end
    print('\nThe same with tiled attention, against the first row above')
    print(text.text({ 'what is recomputed', 'predicted', 'measured', 'differs', '', 'nodes', 's a step', '' }, rows))
    return is_right
end

-- ---- starting -------------------------------------------------------------------------------------------
local options = dofile(root .. '/examples/options.lua')

local function main()
    local size = options { blocks = 6, d = 384, heads = 6, t = 256, batch = 8, dropout = 0.1, steps = 3,
        out = root .. '/examples/out', small = { blocks = 3, d = 32, heads = 4, t = 32, batch = 2 } }
    print(('GPT stack: %d blocks, d = %d, %d heads, T = %d, batch %d, dropout %g, %d threads; loss = mean of squares\n')
        :format(size.blocks, size.d, size.heads, size.t, size.batch, size.dropout, measure.threads()))
    local results = {}
    for i, arm in ipairs(arms) do
        results[i] = run(arm, size)
        collectgarbage()
        collectgarbage()
    end
    wane.memory.trim()
    local is_right = report(results)
    compare(results)
    is_right = compare_tiled(results, size) and is_right
    terminal_bars(results)
    draw(results, size)
    if not is_right then os.exit(1, true) end
end

main()
