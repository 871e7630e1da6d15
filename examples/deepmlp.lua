-- DeepMLP: 20 layers, Linear(1024, 1024) + ReLU x19 and Linear(1024, 10), batch 32, cross-entropy, Adam. A public
-- lesson compares a standard step with a checkpointed one on it; here the same network runs in every arm, from a fresh
-- state, with all layers trained, and the mistakes of the lesson are listed with the right formulas.
--
--   luajit examples/deepmlp.lua [--width W] [--depth N] [--batch B] [--steps N] [--small] [--meta-only] [--out FOLDER]
--
-- It printed (2 cores of a shared machine, the CPU device, OMP_WAIT_POLICY=passive):
--
--   DeepMLP 20 x 1024, batch 32, Adam, 2 threads; 5 timed iterations
--
--   First iteration, MB of 1024^2 bytes: allocated (a), reserved (r)
--   arm                 start a      r  after forward a       r  after step a       r
--   ------------------  -------  -----  ---------------  ------  ------------  ------
--   standard              76.24  76.24            78.61  304.45        304.58  304.70
--   3 segments            76.24  76.24            77.36  304.45        304.58  304.70
--   5 segments            76.24  76.24            77.11  304.45        304.58  304.70
--   sqrt                  76.24  76.24            77.11  304.45        304.58  304.70
--   by hand               76.24  76.24            76.61  304.45        304.58  304.70
--   step(loss)            76.24  76.24           230.84  231.10        228.47  231.10
--   step(loss), 5 seg.    76.24  76.24           229.34  229.60        228.47  229.60
--
--   What the forward adds, what of it is saved (MB), peaks (bytes), what they are lower by (MB), seconds of
--   the timed iterations, and MB saved for each extra second: of what the forward adds / of the peak
--   arm                 adds  saved          peak predicted     measured  lower by        seconds  MB a second
--   ------------------  ----  -------------  --------------  -----------  --------------  -------  -----------
--   standard            2.38                    319,243,520  319,243,520                    0.116
--   3 segments          1.13  1.25 (52.6 %)     319,243,520  319,243,520  0.00 (0.0 %)      0.126  125.0 / 0.0
--   5 segments          0.88  1.50 (63.1 %)     319,243,520  319,243,520  0.00 (0.0 %)      0.127  135.6 / 0.0
--   sqrt                0.88  1.50 (63.1 %)     319,243,520  319,243,520  0.00 (0.0 %)      0.156  38.0 / 0.0
--   by hand             0.38  2.00 (84.2 %)     319,243,520  319,243,520  0.00 (0.0 %)      0.130  144.3 / 0.0
--   step(loss)          2.38  0.00 (0.0 %)      242,321,920  242,321,920  73.36 (24.1 %)    0.105  no extra s
--   step(loss), 5 seg.  0.88  1.50 (63.1 %)     240,749,056  240,749,056  74.86 (24.6 %)    0.117  no extra s
--
--   bits of gradients (where kept), loss and updated parameters: equal in 7 arms
--   bytes measured and predicted: equal in 7 arms
--
--   PyTorch's accounting (workspaces of cuBLAS made before; without the optimizer), MB
--   arm         before  after forward  peak of the backward  after backward
--   ----------  ------  -------------  --------------------  --------------
--   standard     94.49          96.87                170.73          170.60
--   3 segments   94.49          95.62                170.73          170.60
--   5 segments   94.49          95.37                170.73          170.60
--   sqrt         94.49          95.37                170.73          170.60
--
--   Where the text is wrong:
--   - Saving "1 - sqrt(L)/L": the inputs of sqrt(L) segments are kept and, in the backward, the sqrt(L) values
--     of the segment being recomputed: 1 - 2/sqrt(L). L = 20: 55.3 %, not 77.6 %.
--   - "Compute + 2 sqrt(L)/L, about doubles": with k segments, the last one kept, 1 - 1/k of one forward is
--     run again. A forward is a third of a step: at most + 33.3 %; k = 3: + 22.2 %, k = 5: + 26.7 %.
--   - Its two arms are different networks: the checkpointed one has no ReLU. Here both are one class.
--   - A reentrant checkpoint whose inputs need no gradient trains nothing: 12 of 20 layers get no
--     gradient, by accounting (48.05 of 170.60 MB after the backward are missing). Here all layers are trained.
--   - Its second arm starts with gradients and the state of Adam alive. By accounting its script
--     compares 87.74 MB with 322.83 MB after the forward: a "saving" of -235.09 MB.
--   - Its manual_checkpoint_forward detaches, so the graph is cut and nothing is recomputed. The arm
--     "by hand" is the same idea with a region around a plain function: recomputed, and trained.
--   - Bytes after the forward are called a peak. The peak is later: in the backward, or in the update, where
--     parameters, gradients and two states of Adam are alive (the first table's last columns).
--   - Its times have no zero_grad, no warm-up and no synchronisation; ours are of whole steps after a
--     warm-up. Its code does not run as printed.
--
--   pictures: deepmlp_memory.svg, deepmlp_time.svg, deepmlp_tradeoff.svg in examples/out (or --out)
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, optim = wane.nn, wane.optim
local measure, text, plot = require 'wane.plan.measure', require 'wane.report.table', require 'wane.report.plot'
local exact, MiB = wane.bytes.exact, wane.MiB

local CLASSES = 10

-- ---- the network --------------------------------------------------------------------------------------------------
-- One layer: a Linear and, in all but the last, a ReLU. Every arm uses it.
local Layer = nn.module('Layer', function(self, inputs, outputs, is_last)
    self.linear = nn.Linear(inputs, outputs)
    if not is_last then self.relu = nn.ReLU() end
end)
function Layer:forward(x)
    x = self.linear(x)
    return self.relu and self.relu(x) or x
end

local function build(size)
    wane.manual_seed(1)
    local layers = {}
    for i = 1, size.depth do
        layers[i] = Layer(size.width, i == size.depth and CLASSES or size.width, i == size.depth)
    end
    local model = nn.Sequential(layers)
    local x = wane.randn(size.batch, size.width):retain()
    local labels = wane.randint(CLASSES, { size.batch }):retain()
    return model, x, labels
end

-- Corrects the lesson's manual_checkpoint_forward, which detaches the input of each chunk and runs it without
-- gradients: nothing before the last chunk is trained then, and nothing is recomputed. A region around a plain Lua
-- function is enough.
local function manual_checkpoint_forward(model, size, x)
    local chunk = math.max(1, math.floor(size.depth / 4))
    for first = 1, size.depth, chunk do
        x = wane.checkpoint(function(v)
            for i = first, math.min(first + chunk - 1, size.depth) do v = model[i](v) end
            return v
        end, x)
    end
    return x
end

local function loss_of(size, by_hand)
    local model, x, labels = build(size)
    return function()
        local y = by_hand and manual_checkpoint_forward(model, size, x) or model(x)
        return nn.cross_entropy(y, labels)
    end, model, x, labels
end

-- ---- arms -----------------------------------------------------------------------------------------------
local arms = {
    { name = 'standard' },
    { name = '3 segments', policy = 'segments(3)' },
    { name = '5 segments', policy = 'segments(5)' },
    { name = 'sqrt', policy = 'sqrt' },
    { name = 'by hand', by_hand = true },
    { name = 'step(loss)', fused = true },
    { name = 'step(loss), 5 seg.', policy = 'segments(5)', fused = true },
}

local is_terminal = os.execute('test -t 2') == 0
local has_bars = os.execute('test -t 1') == 0

local function progress(words)
    if is_terminal then io.stderr:write('\r\27[K' .. words) end
end

local function now()
    local m = wane.memory()
    return { allocated = m.allocated, reserved = m.reserved }
end

-- Runs one arm from a fresh state: the first iteration, whose bytes are read as in the lesson, then a warm-up and timed
-- iterations.
local function run(arm, size)
    progress(arm.name)
    local fn, model, x, labels = loss_of(size, arm.by_hand)
    local opt = optim.Adam(model:parameters(), { lr = 1e-3 })
    wane.eval(x, labels)
    for _, p in ipairs(model:parameters()) do wane.eval(p) end
    wane.memory.trim() -- frees the arena in which the first values were made
    local out = { start = now() }
    local opts = { optimizer = opt, lines = not arm.fused, policy = arm.policy, warmup = 0, steps = 1 }
    local first = wane.measure(fn, opts)
    out.forward = { allocated = first.at.after_forward, reserved = first.reserved }
    out.finish = now()
    out.before = first.at.before
    out.peak, out.predicted, out.loss, out.is_exact = first.peak, first.predicted_peak, first.loss, first.exact
    if not arm.fused then
        local gradients = {}
        for i, p in ipairs(model:parameters()) do gradients[i] = p.grad end
        out.gradients = measure.fingerprint(gradients)
    end
    out.parameters = measure.fingerprint(model:parameters())
    opts.warmup, opts.steps = 1, size.steps
    local rest = wane.measure(fn, opts)
    out.is_exact = out.is_exact and rest.exact
    out.peak, out.predicted = math.max(out.peak, rest.peak), math.max(out.predicted, rest.predicted_peak)
    out.seconds = 0
    for _, s in ipairs(rest.walls) do out.seconds = out.seconds + s end
    opt:zero_grad()
    progress('')
    return out
end

local function run_all(size)
    local results = {}
    for i, arm in ipairs(arms) do
        results[i] = run(arm, size)
        collectgarbage()
        collectgarbage()
        wane.memory.trim() -- so that the next arm begins without bytes of this one
    end
    return results
end

-- ---- tables ---------------------------------------------------------------------------------------------
local function mb(bytes) return ('%.2f'):format(bytes / MiB) end

local function print_bytes(results)
    local rows = {}
    for i, r in ipairs(results) do
        rows[i] = { arms[i].name, mb(r.start.allocated), mb(r.start.reserved), mb(r.forward.allocated),
            mb(r.forward.reserved), mb(r.finish.allocated), mb(r.finish.reserved) }
    end
    print('First iteration, MB of 1024^2 bytes: allocated (a), reserved (r)')
    print(text.text({ 'arm', 'start a', 'r', 'after forward a', 'r', 'after step a', 'r' }, rows) .. '\n')
end

-- Prints the saving by the lesson's formula, and the real one.
local function print_savings(results)
    local base, rows = results[1], {}
    for i, r in ipairs(results) do
        local saved, lower = base.forward.allocated - r.forward.allocated, base.peak - r.peak
        -- The optimizer's state exists before the first opt:step(loss), so only the bytes that the forward added
        -- compare.
        if arms[i].fused then saved = (base.forward.allocated - base.before) - (r.forward.allocated - r.before) end
        local activations = base.forward.allocated - base.before
        local extra = r.seconds - base.seconds
        rows[i] = { arms[i].name, mb(r.forward.allocated - r.before),
            i == 1 and '' or ('%s (%.1f %%)'):format(mb(saved), 100 * saved / activations), exact(r.predicted),
            exact(r.peak), i == 1 and '' or ('%s (%.1f %%)'):format(mb(lower), 100 * lower / base.peak),
            ('%.3f'):format(r.seconds),
            i == 1 and '' or extra > 0.01 * base.seconds
                and ('%.1f / %.1f'):format(saved / MiB / extra, lower / MiB / extra) or 'no extra s' }
    end
    print('What the forward adds, what of it is saved (MB), peaks (bytes), what they are lower by (MB), seconds of')
    print('the timed iterations, and MB saved for each extra second: of what the forward adds / of the peak')
    print(text.text({ 'arm', 'adds', 'saved', 'peak predicted', 'measured', 'lower by', 'seconds',
        'MB a second' }, rows) .. '\n')
end

-- Checks the claims: the same bits in every arm, and measured peaks equal to predicted ones.
local function check(results)
    local same, is_exact = true, true
    for _, r in ipairs(results) do
        same = same and r.parameters == results[1].parameters and r.loss == results[1].loss
        if r.gradients then same = same and r.gradients == results[1].gradients end
        is_exact = is_exact and r.is_exact and r.peak == r.predicted
    end
    print(('bits of gradients (where kept), loss and updated parameters: %s in %d arms'):format(same and 'equal'
        or 'DIFFERENT', #results))
    print(('bytes measured and predicted: %s in %d arms\n'):format(is_exact and 'equal' or 'DIFFERENT', #results))
    return same and is_exact
end

-- ---- PyTorch's accounting --------------------------------------------------------------------------------
local function account(size)
    local before = wane.set_device 'meta'
    local fn = loss_of(size)
    local function of(p, opts)
        return wane.plan(fn, { policy = p }):pytorch(opts)
    end
    local rows = {}
    for _, arm in ipairs(arms) do
        if not arm.fused and not arm.by_hand then
            local a = of(arm.policy or 'save_all', { warm = true })
            rows[#rows + 1] = { arm.name, mb(a.before), mb(a.after_forward), mb(a.peak_backward), mb(a.after_backward) }
        end
    end
    local cold = of('save_all', {})
    local all_trained = of('segments(3)', { warm = true, reentrant = false })
    local some_trained = of('segments(3)', { warm = true, reentrant = true })
    wane.set_device(before)
    print("PyTorch's accounting (workspaces of cuBLAS made before; without the optimizer), MB")
    print(text.text({ 'arm', 'before', 'after forward', 'peak of the backward', 'after backward' }, rows) .. '\n')
    return { cold = cold, all_trained = all_trained, some_trained = some_trained }
end

-- ---- mistakes of the lesson ------------------------------------------------------------------------------
local function print_corrections(size, torch)
    local parameters = 4 * ((size.depth - 1) * size.width * (size.width + 1) + CLASSES * (size.width + 1))
    local layer = 4 * size.width * (size.width + 1)
    local without = (torch.all_trained.after_backward - torch.some_trained.after_backward) / layer
    -- In the second arm gradients and Adam's two states are alive; the autograd thread has no cublasLt workspace (1
    -- MiB) yet.
    local second = 3 * parameters + torch.some_trained.after_forward - MiB
    local l = size.depth
    local root_l = math.sqrt(l)
    print('Where the text is wrong:')
    for _, line in ipairs {
        ('- Saving "1 - sqrt(L)/L": the inputs of sqrt(L) segments are kept and, in the backward, the sqrt(L) values\n'
            .. '  of the segment being recomputed: 1 - 2/sqrt(L). L = %d: %.1f %%, not %.1f %%.'):format(l,
            100 * (1 - 2 / root_l), 100 * (1 - root_l / l)),
        '- "Compute + 2 sqrt(L)/L, about doubles": with k segments, the last one kept, 1 - 1/k of one forward is\n'
            .. ('  run again. A forward is a third of a step: at most + 33.3 %%; k = 3: + %.1f %%, k = 5: + %.1f %%.')
            :format(100 / 3 * (1 - 1 / 3), 100 / 3 * (1 - 1 / 5)),
        '- Its two arms are different networks: the checkpointed one has no ReLU. Here both are one class.',
        ('- A reentrant checkpoint whose inputs need no gradient trains nothing: %.0f of %d layers get no\n'
            .. '  gradient, by accounting (%s of %s MB after the backward are missing). Here all layers are trained.')
            :format(without, l, mb(torch.all_trained.after_backward - torch.some_trained.after_backward),
                mb(torch.all_trained.after_backward)),
        ('- Its second arm starts with gradients and the state of Adam alive. By accounting its script\n'
            .. '  compares %s MB with %s MB after the forward: a "saving" of %s MB.')
            :format(mb(torch.cold.after_forward), mb(second), mb(torch.cold.after_forward - second)),
        '- Its manual_checkpoint_forward detaches, so the graph is cut and nothing is recomputed. The arm\n'
            .. '  "by hand" is the same idea with a region around a plain function: recomputed, and trained.',
        '- Bytes after the forward are called a peak. The peak is later: in the backward, or in the update, where\n'
            .. '  parameters, gradients and two states of Adam are alive (the first table\'s last columns).',
        '- Its times have no zero_grad, no warm-up and no synchronisation; ours are of whole steps after a\n'
            .. '  warm-up. Its code does not run as printed.',
    } do
        print(line)
    end
    print('')
end

-- ---- pictures -------------------------------------------------------------------------------------------
local function terminal_bars(title, unit, values)
    if not has_bars then return end
    local top = 0
    for _, v in ipairs(values) do top = math.max(top, v) end
    print(title)
    for i, v in ipairs(values) do
        print(('%-20s %s %.4g %s'):format(arms[i].name, ('#'):rep(math.floor(50 * v / top + 0.5)), v, unit))
    end
    print('')
end

local function draw(results, size, folder)
    local names, forward, peak, seconds, points = {}, {}, {}, {}, {}
    for i, r in ipairs(results) do
        names[i], forward[i], peak[i] = arms[i].name, (r.forward.allocated - r.before) / MiB, r.peak / MiB
        seconds[i] = r.seconds
        points[i] = { x = peak[i], y = seconds[i], name = arms[i].name }
    end
    local shape = ('%d x %d, batch %d'):format(size.depth, size.width, size.batch)
    terminal_bars('peak of a step', 'MB', peak)
    terminal_bars('what the forward adds', 'MB', forward)
    terminal_bars(('seconds of %d iterations'):format(size.steps), 's', seconds)
    os.execute('mkdir -p "' .. folder .. '"')
    plot.write(folder .. '/deepmlp_memory.svg', plot.bars { title = 'bytes of a step, ' .. shape, unit = 'MB',
        format = '%.1f', groups = names, series = { { name = 'peak', values = peak }, { name = 'the forward adds',
            values = forward } } })
    plot.write(folder .. '/deepmlp_time.svg', plot.bars { title = ('%d iterations, '):format(size.steps) .. shape,
        unit = 'seconds', format = '%.3g', groups = names, series = { { name = 'seconds', values = seconds } } })
    plot.write(folder .. '/deepmlp_tradeoff.svg', plot.scatter { title = 'peak against time, ' .. shape,
        points = points, x = 'peak, MB', y = ('seconds of %d iterations'):format(size.steps) })
end

-- ---- starting -------------------------------------------------------------------------------------------
local options = dofile(root .. '/examples/options.lua')

local function main()
    local size = options { depth = 20, width = 1024, batch = 32, steps = 5, out = root .. '/examples/out',
        ['meta-only'] = false, small = { width = 64, batch = 16 } }
    print(('DeepMLP %d x %d, batch %d, Adam, %d threads; %d timed iterations\n'):format(size.depth, size.width,
        size.batch, measure.threads(), size.steps))
    if size['meta-only'] then return print_corrections(size, account(size)) end
    local results = run_all(size)
    print_bytes(results)
    print_savings(results)
    local is_right = check(results)
    print_corrections(size, account(size))
    draw(results, size, size.out)
    print('pictures: deepmlp_memory.svg, deepmlp_time.svg, deepmlp_tradeoff.svg in examples/out (or --out)')
    if not is_right then os.exit(1, true) end
end

main()
