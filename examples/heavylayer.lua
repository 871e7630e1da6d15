-- HeavyLayer: Linear(4096, 4096) + ReLU x20, batch 32, input with gradient, loss = sum, regions of 4 layers; and x40,
-- batch 64. The public notebook that measures gradient checkpointing on it prints 26 numbers: here they are computed by
-- PyTorch's accounting, then the same network runs in Wane, and the bytes are printed side by side.
--
--   luajit examples/heavylayer.lua [--width W] [--depth N] [--batch B] [--meta-only] [--x40]
--
-- It printed (2 cores of a shared machine, the CPU device):
--
--   HeavyLayer 20 x 4096, batch 32, 2 threads, 23.19 GiB free
--   row                                    text, MB  PyTorch accounting          bytes
--   -----------------------------  ----------------  ------------------  -------------  -----
--   x20 before forward, off                 1299.06             1299.06  1,362,165,760  equal
--   x20 before forward, on                  1299.06             1299.06  1,362,165,760  equal
--   x20 after forward, off         1309.06298828125    1309.06298828125  1,372,652,032  equal
--   x20 peak of the forward, off            1309.56             1309.56  1,373,175,808  equal
--   x20 after forward, on          1301.56298828125    1301.56298828125  1,364,787,712  equal
--   x20 peak of the forward, on             1302.56             1302.56  1,365,835,776  equal
--   x20 after backward, off                 2580.38             2580.38  2,705,719,808  equal
--   x20 after backward, on                  2580.38             2580.38  2,705,719,808  equal
--   x20 peak of the backward, off   2580.8759765625     2580.8759765625  2,706,244,608  equal
--   x20 peak of the backward, on    2580.8759765625     2580.8759765625  2,706,244,608  equal
--   x20 activations, off *                    10.00               10.00     10,486,272  equal
--   x20 activations, on *                      2.50                2.50      2,621,952  equal
--   x20 saved *                                7.50                7.50      7,864,320  equal
--   x20 saved, % *                             75.0                75.0                 equal
--   x20 saved in the peak *                    0.00                0.00              0  equal
--   x40 before forward, off                 2579.88             2579.88  2,705,195,008  equal
--   x40 before forward, on                  2579.88             2579.88  2,705,195,008  equal
--   x40 after forward, off                  2619.88             2619.88  2,747,138,560  equal
--   x40 activations, off                      40.00               40.00     41,943,552  equal
--   x40 after forward, on                   2589.88             2589.88  2,715,681,280  equal
--   x40 activations, on                       10.00               10.00     10,486,272  equal
--   x40 peak, off                           5143.50             5143.50  5,393,351,680  equal
--   x40 peak, on                            5143.50             5143.50  5,393,351,680  equal
--   x40 saved                                 30.00               30.00     31,457,280  equal
--   x40 saved, %                               75.0                75.0                 equal
--   x40 saved in the peak *                    0.00                0.00              0  equal
--   26 of 26 numbers equal. * a difference of two numbers the text prints.
--
--   Where the text is wrong:
--   - It reports "memory saved" after the forward and calls the feature a saving; both arms print the same peak. The
--     peak of the step is in the backward, where all gradients are alive and the activations are nearly gone.
--   - 18.25 MB of every number are workspaces of cuBLAS and cublasLt, made by a run before the first number.
--   - "Go deeper or wider to see more": the share does not change with depth, and wider makes it smaller: activations
--     over parameters is batch over width.
--   - What helps is not to keep gradients: opt:step(loss) uses and frees each as it appears. Then regions show in the
--     peak.
--
--   arm, peak in bytes                PyTorch (accounting)  Wane predicted  Wane measured  differs     s  gradients
--   --------------------------------  --------------------  --------------  -------------  -------  ----  -----------
--   off: backward                            2,706,244,608   2,686,582,784  2,686,582,784        0  0.25  (reference)
--   on: backward, regions of 4               2,706,244,608   2,686,582,784  2,686,582,784        0  0.32  equal
--   off: opt:step(loss)                      2,706,244,608   1,354,563,840  1,354,563,840        0  0.37  equal
--   on: opt:step(loss), regions of 4         2,706,244,608   1,348,272,384  1,348,272,384        0  0.31  equal
--
--   gradients: bits of all gradients (where kept) and of all parameters after two SGD steps.
--   Loss of the second step 537.409424
--   bars: examples/out/heavylayer.svg
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local measure, text, plot = require 'wane.plan.measure', require 'wane.report.table', require 'wane.report.plot'
local exact, short = wane.bytes.exact, wane.bytes.text
local MiB = wane.MiB

-- ---- the network --------------------------------------------------------------------------------------------------
local HeavyLayer = nn.module('HeavyLayer', function(self, width)
    self.linear = nn.Linear(width, width)
    self.relu = nn.ReLU()
end)
function HeavyLayer:forward(x) return self.relu(self.linear(x)) end

local function build(size)
    wane.manual_seed(1)
    local layers = {}
    for i = 1, size.depth do layers[i] = HeavyLayer(size.width) end
    local model = nn.Sequential(layers)
    local x = wane.randn(size.batch, size.width, { requires_grad = true })
    return model, function() return model(x):sum() end, x
end

-- ---- the text's numbers -----------------------------------------------------------------------------------
-- The numbers that the notebook prints, in MB of 1024^2 bytes. difference: of two numbers that it prints.
local printed = {
    { 'x20 before forward, off', '1299.06', 'off', 'before' },
    { 'x20 before forward, on', '1299.06', 'on', 'before' },
    { 'x20 after forward, off', '1309.06298828125', 'off', 'after_forward' },
    { 'x20 peak of the forward, off', '1309.56', 'off', 'peak_forward' },
    { 'x20 after forward, on', '1301.56298828125', 'on', 'after_forward' },
    { 'x20 peak of the forward, on', '1302.56', 'on', 'peak_forward' },
    { 'x20 after backward, off', '2580.38', 'off', 'after_backward' },
    { 'x20 after backward, on', '2580.38', 'on', 'after_backward' },
    { 'x20 peak of the backward, off', '2580.8759765625', 'off', 'peak_backward' },
    { 'x20 peak of the backward, on', '2580.8759765625', 'on', 'peak_backward' },
    { 'x20 activations, off *', '10.00', 'off', 'activations' },
    { 'x20 activations, on *', '2.50', 'on', 'activations' },
    { 'x20 saved *', '7.50', 'saved' },
    { 'x20 saved, % *', '75.0', 'share' },
    { 'x20 saved in the peak *', '0.00', 'peak saved' },
    { 'x40 before forward, off', '2579.88', 'off', 'before' },
    { 'x40 before forward, on', '2579.88', 'on', 'before' },
    { 'x40 after forward, off', '2619.88', 'off', 'after_forward' },
    { 'x40 activations, off', '40.00', 'off', 'activations' },
    { 'x40 after forward, on', '2589.88', 'on', 'after_forward' },
    { 'x40 activations, on', '10.00', 'on', 'activations' },
    { 'x40 peak, off', '5143.50', 'off', 'peak_backward' },
    { 'x40 peak, on', '5143.50', 'on', 'peak_backward' },
    { 'x40 saved', '30.00', 'saved' },
    { 'x40 saved, %', '75.0', 'share' },
    { 'x40 saved in the peak *', '0.00', 'peak saved' },
}

local function account(size)
    local before = wane.set_device 'meta'
    local _, fn = build(size)
    local off = wane.plan(fn):pytorch { warm = true }
    local on = wane.plan(fn, { policy = policy.every(4) }):pytorch { warm = true }
    wane.set_device(before)
    off.activations, on.activations = off.after_forward - off.before, on.after_forward - on.before
    return { off = off, on = on }
end

-- Returns our number for a row, and its bytes.
local function value_of(row, both)
    local off, on = both.off, both.on
    local kind = row[3]
    if kind == 'saved' then return (off.activations - on.activations) / MiB, off.activations - on.activations end
    if kind == 'share' then return 100 * (1 - on.activations / off.activations) end
    if kind == 'peak saved' then
        local bytes = off.peak_backward - on.peak_backward
        return bytes / MiB, bytes
    end
    return both[kind][row[4]] / MiB, both[kind][row[4]]
end

local function check_text()
    local sizes = { x20 = account { depth = 20, width = 4096, batch = 32 }, x40 = account { depth = 40, width = 4096,
        batch = 64 } }
    local rows, equal = {}, 0
    for _, row in ipairs(printed) do
        local ours, bytes = value_of(row, sizes[row[1]:match('^%S+')])
        local digits = #row[2]:match('%.(%d+)$')
        local same = ('%.' .. digits .. 'f'):format(ours) == row[2]
        equal = equal + (same and 1 or 0)
        rows[#rows + 1] = { row[1], row[2], ('%.' .. digits .. 'f'):format(ours), bytes and exact(bytes) or '', same
            and 'equal' or 'NOT EQUAL' }
    end
    print(text.text({ 'row', 'text, MB', 'PyTorch accounting', 'bytes', '' }, rows))
    print(('%d of %d numbers equal. * a difference of two numbers the text prints.\n'):format(equal, #printed))
    return equal == #printed
end

-- ---- sizes that fit ---------------------------------------------------------------------------------------
local function read(path)
    local file = io.open(path)
    if not file then return '' end
    local all = file:read('*a') or ''
    file:close()
    return all
end

-- Returns the bytes that this process may still take: the least of the system's and of its control group's.
local function free_bytes()
    local free = (tonumber(read('/proc/meminfo'):match('MemAvailable:%s*(%d+)')) or 0) * 1024
    local group = read('/proc/self/cgroup'):match('0::([^\n]*)') or ''
    for _, folder in ipairs { '/sys/fs/cgroup' .. group, '/sys/fs/cgroup', '/sys/fs/cgroup/memory' } do
        local limit = tonumber(read(folder .. '/memory.max')) or tonumber(read(folder .. '/memory.limit_in_bytes'))
        local used = tonumber(read(folder .. '/memory.current')) or tonumber(read(folder .. '/memory.usage_in_bytes'))
        if limit and used then free = math.min(free, limit - used) end
    end
    return free
end

local function fitting_width(depth, batch, free)
    if free >= 4 * wane.GiB and depth <= 20 then return 4096 end
    for width = 4096, 64, -64 do
        if 4 * depth * (2 * width * (width + 1) + 2 * batch * width) * 1.3 < free then return width end
    end
    return 64
end

-- ---- running ----------------------------------------------------------------------------------------------
local is_terminal = os.execute('test -t 2') == 0

local function progress(words)
    if is_terminal then io.stderr:write('\r\27[K' .. words) end
end

local function gradients(model, x)
    local list = { x.grad }
    for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad end
    return list
end

-- Runs one arm from a fresh state: a step to warm up and a measured one. fused: opt:step(loss), else backward, then
-- step.
local function arm(size, name, chosen, fused)
    progress(name)
    wane.memory.trim()
    local model, fn, x = build(size)
    local opt = optim.SGD(model:parameters(), { lr = 1e-6 }) -- small: the loss is a sum over all outputs
    wane.eval(x)
    for _, p in ipairs(model:parameters()) do wane.eval(p) end
    wane.memory.trim() -- frees the arena in which the first values were made
    local m = wane.measure(fn, { optimizer = opt, lines = not fused, policy = chosen, warmup = 1, steps = 1 })
    local out = { name = name, predicted = m.predicted_peak, measured = m.peak, seconds = m.seconds, loss = m.loss }
    if not fused then out.gradients = measure.fingerprint(gradients(model, x)) end
    out.parameters = measure.fingerprint(model:parameters())
    progress('')
    return out
end

local function run_arms(size)
    local torch = account(size)
    local arms = {
        arm(size, 'off: backward', nil, false),
        arm(size, 'on: backward, regions of 4', policy.every(4), false),
        arm(size, 'off: opt:step(loss)', nil, true),
        arm(size, 'on: opt:step(loss), regions of 4', policy.every(4), true),
    }
    wane.memory.trim()
    local rows = {}
    for i, a in ipairs(arms) do
        local same = a.parameters == arms[1].parameters and (not a.gradients or a.gradients == arms[1].gradients)
        local theirs = (i % 2 == 1 and torch.off or torch.on).peak_backward
        a.torch = theirs
        rows[i] = { a.name, exact(theirs), exact(a.predicted), exact(a.measured), exact(a.measured - a.predicted),
            ('%.2f'):format(a.seconds), i == 1 and '(reference)' or same and 'equal' or 'DIFFERENT' }
    end
    print(text.text({ 'arm, peak in bytes', 'PyTorch (accounting)', 'Wane predicted', 'Wane measured', 'differs',
        's',
        'gradients' }, rows))
    print('\ngradients: bits of all gradients (where kept) and of all parameters after two SGD steps.')
    print(('Loss of the second step %.9g'):format(arms[1].loss))
    return arms
end

local function draw(arms, size)
    local names, torch, ours = {}, {}, {}
    for i, a in ipairs(arms) do names[i], torch[i], ours[i] = a.name:gsub(', regions of 4', ''), a.torch / MiB,
        a.measured / MiB end
    os.execute('mkdir -p "' .. root .. '/examples/out"')
    local path = root .. '/examples/out/heavylayer.svg'
    plot.write(path, plot.bars { title = ('peak of one step, %d x %d, batch %d'):format(size.depth, size.width,
        size.batch),
        unit = 'MiB', groups = names, series = { { name = 'PyTorch (accounting)', values = torch },
            { name = 'Wane, measured', values = ours } } })
    print('bars: examples/out/heavylayer.svg')
end

local function main()
    local chosen = dofile(root .. '/examples/options.lua')({ ['meta-only'] = false, x40 = false },
        { width = 1, depth = 1, batch = 1 })
    local free = free_bytes()
    local size = { depth = chosen.depth or (chosen.x40 and 40 or 20), batch = chosen.batch or (chosen.x40 and 64
        or 32) }
    size.width = chosen.width or fitting_width(size.depth, size.batch, free)
    print(('HeavyLayer %d x %d, batch %d, %d threads, %s free'):format(size.depth, size.width, size.batch,
        measure.threads(), short(free)))
    local equal = check_text()
    print([[
Where the text is wrong:
- It reports "memory saved" after the forward and calls the feature a saving; both arms print the same peak. The
  peak of the step is in the backward, where all gradients are alive and the activations are nearly gone.
- 18.25 MB of every number are workspaces of cuBLAS and cublasLt, made by a run before the first number.
- "Go deeper or wider to see more": the share does not change with depth, and wider makes it smaller: activations
  over parameters is batch over width.
- What helps is not to keep gradients: opt:step(loss) uses and frees each as it appears. Then regions show in the
  peak.
]])
    if not chosen['meta-only'] then draw(run_arms(size), size) end
    if not equal then os.exit(1, true) end
end

main()
