-- Offloading to disk: a stack of GPT blocks whose activations are kept in a file between forward and backward. Threads
-- of their own write and read the file past the page cache (O_DIRECT) while kernels run, and the plan says where to
-- wait. The bytes are the predicted ones, the gradients the same bits, and the plan predicts which part of the
-- transfers is hidden. Ops and the disk are measured first, so that plans weigh this machine (no file of costs is
-- written).
--
--   luajit examples/offload.lua [--blocks N] [--d D] [--heads H] [--t T] [--batch B] [--steps N] [--small]
--
-- It prints planned beside measured numbers (bytes, seconds, seconds of transfers and the part of them that is hidden),
-- and budgets under which the planner declines to offload.
--
-- It printed (2 cores, the CPU device, nothing else running):
--
--   GPT stack: 6 blocks, d = 384, 6 heads, T = 256, batch 8, 2 threads; loss = mean of squares
--   disk, O_DIRECT: 7.22 GB/s out, 3.28 GB/s back
--   seconds of a plan: 100 % of it measured on this machine, else a roofline
--
--   plan                               MiB predicted  measured  on disk  of activations  recomputed  gradients
--   ---------------------------------  -------------  --------  -------  --------------  ----------  -----------
--   save_all                                   336.3     336.3      0.0             0 %           0  (reference)
--   MLP offloaded                              216.3     216.3    144.0            50 %           0  equal
--   all offloaded                              111.2     111.2    288.2           100 %           0  equal
--   recompute_all                              132.2     132.2      0.0             0 %          72  equal
--   blocks offloaded, rest recomputed          117.2     117.2     39.0            14 %          60  equal
--
--   plan                               s planned  measured          s moving  measured  hidden  measured
--   ---------------------------------  ---------  --------  ------  --------  --------  ------  --------
--   save_all                               0.411     0.375  -8.8 %
--   MLP offloaded                          0.429     0.408  -5.0 %      0.07      0.10    95 %      79 %
--   all offloaded                          0.446     0.426  -4.4 %      0.14      0.20    97 %      88 %
--   recompute_all                          0.498     0.462  -7.1 %
--   blocks offloaded, rest recomputed      0.503     0.469  -6.7 %      0.02      0.03    96 %      65 %
--
--   budget that allows both                          MiB  offloaded  recomputed  s planned
--   ---------------------------------------------  -----  ---------  ----------  ---------
--   this machine, room for everything              336.3        0.0           0     0.4110
--   this machine, half way down                    226.8       27.0          29     0.4190
--   this machine, what recomputing needs at least  117.2      147.0          29     0.4316
--   h200 (data sheet), half way down               226.8       21.0          15     0.0030
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, policy = wane.nn, wane.policy
local measure, text = require 'wane.plan.measure', require 'wane.report.table'
local MiB = 2 ^ 20

-- ---- the network --------------------------------------------------------------------------------------------------
local Block = nn.module('Block', function(self, d, heads)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { causal = true })
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d)
end)
function Block:forward(x)
    x = x + self.attn(self.ln1(x))
    return x + self.mlp(self.ln2(x))
end

local function build(size)
    wane.manual_seed(1)
    local blocks = {}
    for i = 1, size.blocks do blocks[i] = Block(size.d, size.heads) end
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(size.batch, size.t, size.d))
    return function() return (model(x) ^ 2):mean() end
end

-- ---- plans, run -----------------------------------------------------------------------------------------------------
local function median(list)
    table.sort(list)
    local n = #list
    return n % 2 == 1 and list[(n + 1) / 2] or (list[n / 2] + list[n / 2 + 1]) / 2
end

local function offloaded(plan)
    local away, all = 0, 0
    for _, r in ipairs(plan:residuals()) do
        all = all + r.bytes
        if r.word == 'offload:disk' then away = away + r.bytes end
    end
    return away / all
end

-- Runs all arms in turns, so that other work on the machine slows all of them.
local function run(arms, fn, steps)
    for _, arm in ipairs(arms) do
        arm.plan = assert(wane.plan(fn, { policy = arm.policy }))
        arm.digest, arm.times, arm.move, arm.stall, arm.exact = measure.gradients(fn, arm.policy), {}, 0, 0, true
    end
    for _ = 1, steps do
        for _, arm in ipairs(arms) do
            local m = wane.measure(fn, { policy = arm.policy, warmup = 1, steps = 1 })
            table.insert(arm.times, m.times[1])
            arm.move, arm.stall = arm.move + m.move_seconds, arm.stall + m.stall_seconds
            arm.exact = arm.exact and m.exact
            arm.reserved, arm.disk = m.reserved, m.disk
        end
    end
end

local function percent(x) return ('%.0f %%'):format(100 * x) end

local function report(arms)
    local bytes, times, is_right, base = {}, {}, true, arms[1]
    for i, arm in ipairs(arms) do
        local p, same = arm.plan, arm.digest == base.digest
        arm.seconds = median(arm.times)
        is_right = is_right and same and arm.exact
        bytes[i] = { arm.name, ('%.1f'):format(p.reserved / MiB), ('%.1f'):format(arm.reserved / MiB),
            ('%.1f'):format(arm.disk / MiB), percent(offloaded(p)), p.recomputed,
            i == 1 and '(reference)' or same and 'equal' or 'DIFFERENT' }
        local moves = p.moved > 0
        times[i] = { arm.name, ('%.3f'):format(p.seconds), ('%.3f'):format(arm.seconds),
            ('%+.1f %%'):format(100 * (arm.seconds / p.seconds - 1)),
            moves and ('%.2f'):format(p.move_seconds) or '', moves and ('%.2f'):format(arm.move / #arm.times) or '',
            moves and percent(p.hidden) or '', moves and percent(math.max(0, 1 - arm.stall / arm.move)) or '' }
    end
    print(text.text({ 'plan', 'MiB predicted', 'measured', 'on disk', 'of activations', 'recomputed', 'gradients' },
        bytes))
    print()
    print(text.text({ 'plan', 's planned', 'measured', '', 's moving', 'measured', 'hidden', 'measured' }, times))
    return is_right
end

-- ---- budgets without it --------------------------------------------------------------------------------------------
local function declined(fn, arms)
    local saved, least = arms[1].plan.reserved, assert(wane.plan(fn, { policy = policy.least() })).reserved
    local allow, rows = { allow = { 'recompute', 'offload' } }, {}
    for _, case in ipairs {
        { 'this machine, room for everything', saved },
        { 'this machine, half way down', math.floor((saved + least) / 2) },
        { 'this machine, what recomputing needs at least', least },
        { 'h200 (data sheet), half way down', math.floor((saved + least) / 2), 'h200' },
    } do
        local plan = wane.plan(fn, { policy = policy.budget(case[2], allow), target = case[3] })
        local moved = plan and ('%.1f'):format(plan.moved / 2 / MiB) or ''
        rows[#rows + 1] = { case[1], ('%.1f'):format(case[2] / MiB), moved,
            plan and plan.recomputed or '', plan and ('%.4f'):format(plan.seconds) or 'no plan' }
    end
    print(text.text({ 'budget that allows both', 'MiB', 'offloaded', 'recomputed', 's planned' }, rows))
end

local options = dofile(root .. '/examples/options.lua')

local function main()
    local size = options { blocks = 6, d = 384, heads = 6, t = 256, batch = 8, steps = 3,
        small = { blocks = 3, d = 64, heads = 4, t = 32, batch = 4, steps = 1 } }
    local fn = build(size)
    print(('GPT stack: %d blocks, d = %d, %d heads, T = %d, batch %d, %d threads; loss = mean of squares'):format(
        size.blocks, size.d, size.heads, size.t, size.batch, measure.threads()))
    local rates = require('wane.plan.costs').links(size.batch * size.t >= 1024 and 256 * MiB or 16 * MiB)
    print(('disk, O_DIRECT: %.2f GB/s out, %.2f GB/s back'):format(rates.to_disk / 1e9, rates.from_disk / 1e9))
    wane.profile(fn, { steps = 5, keep = false })
    local arms = {
        { name = 'save_all', policy = policy.save_all() },
        { name = 'MLP offloaded', policy = policy.by_type { MLP = 'offload' } },
        { name = 'all offloaded', policy = policy.of(function() return 'offload' end) },
        { name = 'recompute_all', policy = policy.recompute_all() },
        { name = 'blocks offloaded, rest recomputed', policy = policy.of(function(r)
            return r.boundary and 'offload' or 'recompute'
        end) },
    }
    print('seconds of a plan: ' .. wane.plan(fn).costs .. '\n')
    run(arms, fn, size.steps)
    local is_right = report(arms)
    print()
    declined(fn, arms)
    if not is_right then os.exit(1, true) end
end

main()
