-- Techniques beside segments, each in a line of Wane and a row of numbers: ways to call a checkpoint; long sequences in
-- chunks, bf16, accumulation and their combinations, measured; a sweep of 1, 5, 10, 20 segments, measured; 10 B
-- parameters, planned; which layers to recompute, by three rules and by the planner; and the sizes that fit in a
-- budget. examples/catalogue.lua computes segments and the mistakes of pages about them.
--
--   luajit examples/techniques.lua [--small] [--steps N]
--
-- Bytes and bits are the same on every machine, seconds are not. The planned parts printed:
--
--   10.07 B parameters, f32, Adam, one sequence of 1024: GB = 1e9 bytes at the peak, planned
--   step                           parameters  gradients  m and v  activations    all
--   -----------------------------  ----------  ---------  -------  -----------  -----
--   three lines, save_all                40.3       40.3     80.5          0.2  161.3
--   three lines, recompute_all           40.3       40.3     80.5          0.2  161.3
--   opt:step(loss), save_all             40.3        0.0     80.5         10.0  130.9
--   opt:step(loss), recompute_all        40.3        0.0     80.5          1.6  122.4
--
--   Which 6 of 12 unequal layers to recompute: three rules, and the planner within the same bytes; planned
--   rule                      reserved  over the fastest      planner  over the fastest
--   ---------------------  -----------  ----------------  -----------  ----------------
--   compute-heavy first    132,182,016           +14.8 %  132,182,016            +1.2 %
--   largest first          127,987,712           +10.7 %  127,987,712            +1.5 %
--   uniform, every second  123,793,408           +12.8 %  123,793,408            +1.5 %
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, policy = wane.nn, wane.policy
local measure, text = require 'wane.plan.measure', require 'wane.report.table'
local exact = wane.bytes.exact
local is_right = true

-- Prints a line with whether it holds; the script fails at the end when a line does not.
local function claim(holds, form, ...)
    is_right = is_right and holds
    print(('  %s  %s'):format(holds and 'holds' or 'DOES NOT HOLD', form:format(...)))
end

local function percent(value, base) return ('%+.1f %%'):format(100 * (value / base - 1)) end

-- ---- ways to call it ----------------------------------------------------------------------------------------------
local Block = nn.module('Block', function(self, d)
    self.norm, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = 0.1 })
end)
function Block:forward(x) return x + self.mlp(self.norm(x)) end

-- Runs 50 residual blocks in each way: the bits are the same, dropout's too, and no state of a generator is kept.
local function calls()
    local blocks = {}
    for i = 1, 50 do blocks[i] = Block(32) end
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(64, 32))
    local function each(call)
        return function()
            local y = x
            for i = 1, #blocks do y = call(blocks[i], y) end
            return y:sum()
        end
    end
    local again = wane.checkpoint_fn { name = 'block' }
    local ways = {
        { 'model(x)', function() return model(x):sum() end },
        { 'checkpoint(block, x)', each(wane.checkpoint) },
        { 'checkpoint_with({use_reentrant = true}, block, x)', each(function(b, y)
            return wane.checkpoint_with({ use_reentrant = true }, b, y)
        end) },
        { 'checkpoint_with({preserve_rng_state = false}, block, x)', each(function(b, y)
            return wane.checkpoint_with({ preserve_rng_state = false }, b, y)
        end) },
        { "checkpoint_fn{name = 'block'}(block, x)", each(again) },
        { 'checkpoint_sequential(model, 10, x)', function() return wane.checkpoint_sequential(model, 10, x):sum() end },
    }
    local rows, same, digests = {}, true, {}
    for i, way in ipairs(ways) do
        local plan = wane.plan(way[2])
        wane.manual_seed(5)
        digests[i] = measure.gradients(way[2])
        same = same and digests[i] == digests[1]
        rows[i] = { way[1], exact(plan.peak), plan.recomputed, digests[i]:sub(1, 8) }
    end
    print('50 residual blocks of width 32 with dropout, 64 rows: ways to call it')
    print(text.text({ 'wane.', 'peak, bytes', 'nodes again', 'gradients' }, rows))
    claim(same, 'the gradients are the same bits in all of them')
end

-- ---- measured -----------------------------------------------------------------------------------------------------
-- Runs a long sequence through position-wise layers with every way to need fewer bytes, alone and together.
local function techniques(size)
    local layers = {}
    for i = 1, size.blocks do layers[i] = Block(size.d) end
    local model, x = nn.Sequential(layers), wane.eval(wane.randn(4, size.t, size.d))
    local function plain() return (model(x) ^ 2):mean() end
    local function low(fn) return function() return wane.autocast('bf16', fn) end end
    local function chunked() return (wane.chunked(model, x, { size = 32, dim = 2 }) ^ 2):mean() end
    local opt = wane.optim.SGD(model:parameters(), { lr = 0 }) -- used to clear the gradients alone
    local function parts(fn)
        return function()
            opt:zero_grad()
            wane.accumulate(function(i) return fn(x:narrow(1, i, 1)) end, { micro = 4 })
        end
    end
    local function part(v) return (model(v) ^ 2):mean() end
    local arms = {
        { 'everything saved', plain },
        { 'each block recomputed', plain, policy = 'recompute_all' },
        { 'chunks of 32 positions', chunked },
        { 'bf16 (autocast)', low(plain) },
        { 'bf16, each block recomputed', low(plain), policy = 'recompute_all' },
        { '4 micro-batches', parts(part), runs = opt },
        { '4 micro-batches, bf16', parts(function(v) return wane.autocast('bf16', part, v) end), runs = opt },
    }
    local rows, fits = {}, true
    for i, arm in ipairs(arms) do
        wane.manual_seed(2)
        local m = wane.measure(arm[2], { policy = arm.policy, optimizer = arm.runs, warmup = 1, steps = size.steps })
        fits = fits and m.exact
        arm.peak, arm.seconds = m.peak, m.seconds
        rows[i] = { arm[1], exact(m.predicted_peak), exact(m.peak), ('%.0f %%'):format(100 * m.peak / arms[1].peak),
            ('%.4f'):format(m.seconds), percent(m.seconds, arms[1].seconds) }
    end
    print(('\n%d blocks, d = %d, 4 sequences of %d: forward and backward, measured'):format(size.blocks, size.d,
        size.t))
    print(text.text({ 'what', 'predicted', 'measured', '', 's a step', '' }, rows))
    claim(fits, 'every peak is the predicted one')
    claim(arms[3].peak < arms[1].peak and arms[4].peak < arms[1].peak and arms[6].peak < arms[1].peak
        and arms[5].peak < math.min(arms[2].peak, arms[4].peak) and arms[7].peak < arms[6].peak,
        'each needs less than saving everything, and two together less than either')
    local attention = nn.Attention(size.d, 4, { causal = true })
    local ok, e = pcall(wane.chunked, attention, x, { size = 32, dim = 2 })
    claim(not ok and e.message:find('attention', 1, true), 'chunks of attention along the sequence are refused: %s',
        ok and '' or e.message:match '%) (reads [^;]*)')
end

local function sweep(size)
    local layers = {}
    for i = 1, 20 do layers[i] = nn.Residual(nn.MLP(size.d, 2 * size.d)) end
    local model, x = nn.Sequential(layers), wane.eval(wane.randn(4 * size.t, size.d))
    local function fn() return model(x):sum() end
    local rows, peaks, fits = {}, {}, true
    for i, k in ipairs { 1, 5, 10, 20 } do
        local m = wane.measure(fn, { policy = policy.segments(k), warmup = 1, steps = size.steps })
        peaks[i], fits = m.peak, fits and m.exact
        rows[i] = { k, exact(m.predicted_peak), exact(m.peak), ('%.4f'):format(m.seconds) }
    end
    print(('\nwane.measure of 20 blocks in 1, 5, 10, 20 segments: d = %d, %d rows'):format(size.d, 4 * size.t))
    print(text.text({ 'segments', 'predicted', 'measured', 's a step' }, rows))
    claim(fits and peaks[2] < peaks[1] and math.min(peaks[2], peaks[3]) < peaks[4],
        'the peak is the predicted one, falls, and rises again')
end

-- ---- planned ------------------------------------------------------------------------------------------------------
-- Plans 10 B f32 parameters in 32 blocks; each takes 4 bytes, its gradient 4 and Adam's two states 8.
local function ten_billion()
    local layers, d = {}, 5120
    for i = 1, 32 do layers[i] = nn.Residual(nn.Sequential { nn.LayerNorm(d), nn.MLP(d, 6 * d) }) end
    local model, ids = nn.Sequential(layers), wane.zeros(1, 1024, d)
    local opt = wane.optim.Adam(model:parameters(), { lr = 1e-4 })
    local n, rows, kinds = model:parameter_count(), {}, {}
    for i, arm in ipairs {
        { 'three lines', function() return (model(ids) ^ 2):mean():backward() end },
        { 'opt:step(loss)', function() return opt:step((model(ids) ^ 2):mean()) end },
    } do
        for k, p in ipairs { 'save_all', 'recompute_all' } do
            local plan = wane.plan(arm[2], { policy = p })
            local state = i == 1 and 8 * n or plan.kinds.optimizer
            kinds[2 * i + k - 2] = plan.kinds
            rows[#rows + 1] = { arm[1] .. ', ' .. p, ('%.1f'):format(plan.kinds.parameter / 1e9),
                ('%.1f'):format(plan.kinds.gradient / 1e9), ('%.1f'):format(state / 1e9),
                ('%.1f'):format(plan.kinds.activation / 1e9),
                ('%.1f'):format((plan.peak + (i == 1 and state or 0)) / 1e9) }
        end
    end
    print(('\n%.2f B parameters, f32, Adam, one sequence of 1024: GB = 1e9 bytes at the peak, planned'):format(n / 1e9))
    print(text.text({ 'step', 'parameters', 'gradients', 'm and v', 'activations', 'all' }, rows))
    claim(math.abs(n / 1e10 - 1) < 0.02 and kinds[1].parameter == 4 * n and kinds[1].gradient > 3.9 * n,
        '40 + 40 + 80 GB and activations on top is right for the three lines')
    claim(kinds[3].gradient < 0.1 * kinds[1].gradient,
        'with the update in the plan the 40 GB of gradients are not there')
    local llama = require('wane.zoo.llama').parameters['7B']
    claim(4 * llama > 24e9, 'LLaMA 7B in 24 GB is no full training: bf16 parameters and gradients alone take %.2f',
        4 * llama / 1e9)
end

-- Makes unequal layers: MLPs, whose values take long to compute, and cheap ones of as many bytes.
local Cheap = nn.module('Cheap', function(self, d) self.norm, self.act = nn.LayerNorm(d), nn.GELU() end)
function Cheap:forward(x) return x + self.act(self.norm(x)):tanh():sigmoid() end

local function placement()
    local layers, weight = {}, {}
    for i = 1, 12 do
        local width, is_cheap = i % 4 == 1 and 1024 or 256, i % 3 == 0
        layers[i] = is_cheap and Cheap(256) or nn.Residual(nn.MLP(256, width))
        weight[i] = { i = i, flops = is_cheap and 0 or width, bytes = is_cheap and 4 * 256 or 2 * width }
    end
    local x = wane.zeros(4096, 256)
    local function fn(chosen)
        return function()
            local y = x
            for i, layer in ipairs(layers) do y = chosen[i] and wane.checkpoint(layer, y) or layer(y) end
            return y:sum()
        end
    end
    local function first(count, before)
        local order, chosen = { unpack(weight) }, {}
        table.sort(order, function(a, b)
            if before(a) ~= before(b) then return before(a) > before(b) end
            return a.i < b.i
        end)
        for k = 1, count do chosen[order[k].i] = true end
        return chosen
    end
    local base, rows, slower = wane.plan(fn {}), {}, 0
    for _, rule in ipairs {
        { 'compute-heavy first', first(6, function(w) return w.flops end) },
        { 'largest first', first(6, function(w) return w.bytes end) },
        { 'uniform, every second', { true, false, true, false, true, false, true, false, true, false, true, false } },
    } do
        local p = wane.plan(fn(rule[2]))
        local best = assert(wane.plan(fn {}, { budget = p.reserved }))
        rows[#rows + 1] = { rule[1], exact(p.reserved), percent(p.seconds, base.seconds), exact(best.reserved),
            percent(best.seconds, base.seconds) }
        if best.seconds > p.seconds then slower = slower + 1 end
    end
    print('\nWhich 6 of 12 unequal layers to recompute: three rules, and the planner within the same bytes; planned')
    print(text.text({ 'rule', 'reserved', 'over the fastest', 'planner', 'over the fastest' }, rows))
    claim(slower == 0, 'the planner is never slower in the bytes of a rule')
end

local function budgets()
    local layers = {}
    for i = 1, 6 do layers[i] = Block(64) end
    local model = nn.Sequential(layers)
    local function batch(p)
        return wane.fit(function(n)
            local x = wane.zeros(n, 64)
            return function() return model(x):sum() end
        end, { budget = '4 MiB', policy = p })
    end
    local function depth()
        return wane.fit(function(n)
            local list, x = {}, wane.zeros(512, 64)
            for i = 1, n do list[i] = Block(64) end
            local m = nn.Sequential(list)
            return function() return m(x):sum() end
        end, { budget = '4 MiB' })
    end
    local saved = batch(function() return 'save' end)
    print('\nWhat 4 MiB hold, by wane.fit')
    print(('  a batch of %d where everything is saved, of %d where the planner chooses; %d blocks at batch 512')
        :format(saved, batch(), (depth())))
    claim((batch()) > saved, 'a budget holds a larger batch')
    local ok, e = pcall(function() return wane.zeros(2):add_(1) end)
    claim(not ok, 'an in-place op: %s', ok and '' or e.message)
end

-- ---- starting -----------------------------------------------------------------------------------------------------
local options = dofile(root .. '/examples/options.lua')

local function main()
    local size = options { blocks = 6, d = 256, t = 512, steps = 5,
        small = { blocks = 3, d = 32, t = 128, steps = 1 } }
    calls()
    techniques(size)
    sweep(size)
    wane.set_device 'meta'
    ten_billion()
    placement()
    budgets()
    if not is_right then os.exit(1, true) end
end

main()
