-- A budget in bytes, on a stack of GPT blocks: the plans of its step that no other plan beats, the policies that people
-- write by hand beside them, and three budgets run. The bytes are the predicted ones, the gradients the same bits, the
-- seconds near the planned ones. Each op is measured first, once, so that plans weigh seconds of this machine
-- (wane.profile with keep = false: this process uses them, and no file is written).
--
--   luajit examples/budget.lua [--blocks N] [--d D] [--heads H] [--t T] [--batch B] [--dropout P] [--points N]
--                              [--rounds N] [--roofline] [--small] [--out FOLDER]
--
-- It printed (2 cores, the CPU device, nothing else running):
--
--   GPT stack: 6 blocks, d = 192, 6 heads, T = 128, batch 8, dropout 0.1, 2 threads; loss = mean of squares
--   seconds of a plan: 100 % of it measured on this machine, else a roofline
--
--   14 of 86 plans worth having, 248 looked at
--    #    reserved              seconds  over the fastest  recomputed  from
--   --  ----------  ---------  --------  ----------------  ----------  --------------------------
--    1  88,995,072  84.87 MiB  0.053822            +0.0 %           0  as marked  <- you are here
--    2  81,130,752  77.37 MiB  0.054016            +0.4 %          10  evicted+
--    3  77,985,024  74.37 MiB  0.054203            +0.7 %          11  evicted+
--    4  73,262,336  69.87 MiB  0.054478            +1.2 %          20  solved+
--    5  68,547,840  65.37 MiB  0.054764            +1.7 %          14  evicted
--    6  61,469,952  58.62 MiB  0.055540            +3.2 %          18  evicted+
--    7  59,102,464  56.36 MiB  0.056141            +4.3 %          25  solved+
--    8  55,178,496  52.62 MiB  0.057120            +6.1 %          24  evicted+
--    9  52,024,576  49.61 MiB  0.057793            +7.4 %          28  solved+
--   10  47,310,080  45.12 MiB  0.058940            +9.5 %          32  solved
--   11  44,160,256  42.11 MiB  0.059732           +11.0 %          35  solved+
--   12  39,441,664  37.61 MiB  0.060760           +12.9 %          32  solved+
--   13  35,509,504  33.86 MiB  0.061906           +15.0 %          44  solved
--   14  30,790,912  29.36 MiB  0.063422           +17.8 %          49  solved
--   by hand        reserved   seconds  best within that  slower by
--   -----------  ----------  --------  ----------------  ---------
--   save_all     88,995,072  0.053822          0.053822      0.0 %
--   sqrt         56,005,888  0.061906          0.056833      8.9 %
--   every(1)     34,731,264  0.066484          0.062017      7.2 %
--   every(2)     45,749,504  0.069114          0.059276     16.6 %
--   segments(2)  56,005,888  0.061906          0.056833      8.9 %
--   segments(3)  45,749,504  0.064016          0.059276      8.0 %
--   segments(4)  53,597,440  0.060153          0.057440      4.7 %
--
--   run: bytes reserved over the whole step, medians of 16 steps in turns, against save_all
--   budget       predicted    measured         recomputed  s planned  s measured  planned  measured  gradients
--   ----------  ----------  ----------  -----  ----------  ---------  ----------  -------  --------  -----------
--   save_all    88,995,072  88,995,072  100 %           0     0.0538      0.0529   +0.0 %    +0.0 %  (reference)
--   74,444,032  73,266,432  73,266,432   82 %          14     0.0544      0.0533   +1.1 %    +0.6 %  equal
--   59,892,992  59,110,656  59,110,656   66 %          19     0.0561      0.0543   +4.2 %    +2.5 %  equal
--   45,341,952  44,946,688  44,946,688   51 %          35     0.0595      0.0574  +10.6 %    +8.5 %  equal
--
--   one byte below the least:
--     a budget of 30,790,911 bytes cannot be kept: the least that would do is 30,790,912 bytes (29.36
--     MiB); at its peak that plan holds parameter 10.18 MiB, gradient 9.05 MiB, activation 9.01 MiB,
--     input 768.00 KiB, 1.mlp.act matmul+gelu_grad 3.00 MiB, 1.mlp.up linear 3.00 MiB, 1 dropout+add
--     768.00 KiB
--
--   picture: budget.svg in examples/out (or --out)
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn = wane.nn
local measure, text = require 'wane.plan.measure', require 'wane.report.table'
local exact = wane.bytes.exact

-- ---- the network --------------------------------------------------------------------------------------------------
local Block = nn.module('Block', function(self, d, heads, p)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { dropout = p, causal = true })
    self.drop = nn.Dropout(p)
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = p })
end)
function Block:forward(x)
    x = x + self.drop(self.attn(self.ln1(x)))
    return x + self.mlp(self.ln2(x))
end

local function build(size)
    wane.manual_seed(1)
    local blocks = {}
    for i = 1, size.blocks do blocks[i] = Block(size.d, size.heads, size.dropout) end
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(size.batch, size.t, size.d))
    return function() return (model(x) ^ 2):mean() end
end

-- ---- three budgets, run -------------------------------------------------------------------------------------------
local function median(list)
    table.sort(list)
    local n = #list
    return n % 2 == 1 and list[(n + 1) / 2] or (list[n / 2] + list[n / 2 + 1]) / 2
end

local function digest(fn, opts)
    wane.manual_seed(2) -- one set of dropout masks for all
    return measure.gradients(fn, opts.budget and wane.policy.budget(opts.budget) or opts.policy)
end

-- Runs all arms in turns, a warm-up and two measured steps each, so that other work on the machine slows all of them.
local function run(arms, fn, rounds)
    for _, arm in ipairs(arms) do
        arm.plan, arm.times, arm.is_exact = assert(wane.plan(fn, arm.opts)), {}, true
        arm.digest = digest(fn, arm.opts)
    end
    for _ = 1, rounds do
        for _, arm in ipairs(arms) do
            local m = wane.measure(fn, { policy = arm.opts.policy, budget = arm.opts.budget, warmup = 1, steps = 2 })
            for _, s in ipairs(m.times) do table.insert(arm.times, s) end
            arm.measured, arm.peak = m.reserved, m.peak
            arm.is_exact = arm.is_exact and m.exact
        end
    end
    for _, arm in ipairs(arms) do arm.seconds = median(arm.times) end
end

local function report(arms)
    local rows, is_right, base = {}, true, arms[1]
    for i, arm in ipairs(arms) do
        local p, same = arm.plan, arm.digest == base.digest
        is_right = is_right and same and arm.is_exact and p.reserved == arm.measured and p.peak == arm.peak
            and arm.measured <= (arm.opts.budget or math.huge)
        rows[i] = { arm.opts.budget and exact(arm.opts.budget) or arm.opts.policy, exact(p.reserved),
            exact(arm.measured), ('%.0f %%'):format(100 * arm.measured / base.measured), p.recomputed,
            ('%.4f'):format(p.seconds), ('%.4f'):format(arm.seconds),
            ('%+.1f %%'):format(100 * (p.seconds / base.plan.seconds - 1)),
            ('%+.1f %%'):format(100 * (arm.seconds / base.seconds - 1)),
            i == 1 and '(reference)' or same and 'equal' or 'DIFFERENT' }
    end
    print(text.text({ 'budget', 'predicted', 'measured', '', 'recomputed', 's planned', 's measured', 'planned',
        'measured', 'gradients' }, rows))
    return is_right
end

-- Breaks words into lines of at most so many columns.
local function wrapped(words, columns)
    local lines, line = {}, ''
    for word in words:gmatch '%S+' do
        if #line + #word + 1 > columns then
            lines[#lines + 1], line = line, ''
        end
        line = line .. (line == '' and '  ' or ' ') .. word
    end
    lines[#lines + 1] = line
    return table.concat(lines, '\n')
end

-- ---- starting -----------------------------------------------------------------------------------------------------
local options = dofile(root .. '/examples/options.lua')

local function main()
    local size = options { blocks = 6, d = 192, heads = 6, t = 128, batch = 8, dropout = 0.1, points = 14, rounds = 8,
        out = root .. '/examples/out', roofline = false,
        small = { blocks = 3, d = 32, heads = 4, t = 32, batch = 2, rounds = 1 } }
    local fn = build(size)
    print(('GPT stack: %d blocks, d = %d, %d heads, T = %d, batch %d, dropout %g, %d threads; loss = mean of squares')
        :format(size.blocks, size.d, size.heads, size.t, size.batch, size.dropout, measure.threads()))
    if not size.roofline then wane.profile(fn, { steps = 5, keep = false }) end
    print('seconds of a plan: ' .. wane.plan(fn).costs .. '\n')

    local frontier = wane.frontier(fn, { points = size.points })
    print(frontier)

    local most, least = frontier[1].reserved, frontier[#frontier].reserved
    local arms = { { opts = { policy = 'save_all' } } }
    for _, share in ipairs { 0.75, 0.5, 0.25 } do
        table.insert(arms, { opts = { budget = math.floor(least + share * (most - least)) } })
    end
    run(arms, fn, size.rounds)
    print(('\nrun: bytes reserved over the whole step, medians of %d steps in turns, against save_all')
        :format(#arms[1].times))
    local is_right = report(arms)

    local plan, why = wane.plan(fn, { budget = least - 1 })
    print('\none byte below the least:')
    print(plan and 'PLANNED' or wrapped(why.message, 100))
    frontier:plot(size.out .. '/budget.svg')
    print('\npicture: budget.svg in examples/out (or --out)')
    if plan or not is_right then os.exit(1, true) end
end

main()
