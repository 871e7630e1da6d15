-- Selective recomputation by layer type on a stack of GPT blocks: attention recomputed and the MLP stored, the reverse,
-- each block recomputed, everything stored; and beside each the plan of a budget of the very same bytes. It runs once
-- with attention composed of products, softmax and dropout, whose (T, T) values can be dropped, and once with tiled
-- attention, which never has them. Ops are measured first (wane.profile, kept in this process alone).
--
-- The numbers below show: composed, recomputing attention saves 76 of 157 MiB for 17 % of a step, the MLP 30 MiB for
-- 7 %, about the same bytes for the time. Tiled, attention is the wrong thing to recompute: 18 of 85 MiB for 9.5 %,
-- where the MLP saves 30 MiB for 8 %. Choosing by type of layer is never best: within the bytes of each choice the
-- planner's step is 5 to 9 % shorter, measured, with the same bits.
--
--   luajit examples/selective.lua [--blocks N] [--d D] [--heads H] [--t T] [--batch B] [--dropout P] [--rounds N]
--                                 [--roofline] [--small]
--
-- It printed (2 cores, the CPU device, nothing else running):
--
--   GPT stack: 6 blocks, d = 192, 6 heads, T = 256, batch 4, dropout 0.1, 2 threads; loss = mean of squares
--
--   composed attention: bytes reserved, seconds a step (medians of 8 in turns)
--   planned: 100 % of it measured on this machine, else a roofline
--   what is kept             predicted     measured         nodes  s planned           s measured           gradients
--   ---------------------  -----------  -----------  -----  -----  ---------  -------  ----------  -------  ---------
--   save_all               164,558,848  164,558,848  100 %      0     0.0722   +0.0 %      0.0753   +0.0 %  b1b280ad
--   attention recomputed    84,383,744   84,383,744   51 %     84     0.0877  +21.5 %      0.0881  +16.9 %  b1b280ad
--     planner within that   84,334,592   84,334,592   51 %     39     0.0798  +10.6 %      0.0811   +7.7 %  b1b280ad
--   MLP recomputed         133,101,568  133,101,568   81 %     12     0.0777   +7.6 %      0.0809   +7.4 %  b1b280ad
--     planner within that  132,315,136  132,315,136   80 %     14     0.0737   +2.2 %      0.0769   +2.0 %  b1b280ad
--   each block recomputed   47,380,480   47,380,480   29 %    144     0.0951  +31.7 %      0.0956  +26.9 %  b1b280ad
--     planner within that   46,602,240   46,602,240   28 %     94     0.0891  +23.5 %      0.0882  +17.0 %  b1b280ad
--     attention recomputed        gives  76.46 MiB; planned 4.92 MiB a ms, measured 5.99 MiB a ms
--       planner within that       -9.0 % of a step planned, -7.9 % measured, 0.05 MiB less
--     MLP recomputed              gives  30.00 MiB; planned 5.47 MiB a ms, measured 5.37 MiB a ms
--       planner within that       -5.0 % of a step planned, -5.0 % measured, 0.75 MiB less
--     each block recomputed       gives 111.75 MiB; planned 4.88 MiB a ms, measured 5.51 MiB a ms
--       planner within that       -6.3 % of a step planned, -7.8 % measured, 0.74 MiB less
--     by hand, MLP recomputed gives most bytes for its planned time
--
--   tiled attention: bytes reserved, seconds a step (medians of 8 in turns)
--   planned: 100 % of it measured on this machine, else a roofline
--   what is kept            predicted    measured         nodes  s planned           s measured           gradients
--   ---------------------  ----------  ----------  -----  -----  ---------  -------  ----------  -------  ---------
--   save_all               88,995,072  88,995,072  100 %      0     0.0561   +0.0 %      0.0555   +0.0 %  43adfaad
--   attention recomputed   70,120,704  70,120,704   79 %     12     0.0622  +11.0 %      0.0608   +9.5 %  43adfaad
--     planner within that  70,120,704  70,120,704   79 %     15     0.0568   +1.4 %      0.0560   +0.8 %  43adfaad
--   MLP recomputed         57,537,792  57,537,792   65 %     12     0.0616   +9.9 %      0.0600   +8.1 %  43adfaad
--     planner within that  57,529,600  57,529,600   65 %     30     0.0588   +4.8 %      0.0572   +3.1 %  43adfaad
--   each block recomputed  34,731,264  34,731,264   39 %     72     0.0696  +24.1 %      0.0679  +22.3 %  43adfaad
--     planner within that  33,174,784  33,174,784   37 %     41     0.0646  +15.2 %      0.0622  +12.0 %  43adfaad
--     attention recomputed        gives  18.00 MiB; planned 2.93 MiB a ms, measured 3.40 MiB a ms
--       planner within that       -8.6 % of a step planned, -8.0 % measured, 0.00 MiB less
--     MLP recomputed              gives  30.00 MiB; planned 5.40 MiB a ms, measured 6.65 MiB a ms
--       planner within that       -4.6 % of a step planned, -4.6 % measured, 0.01 MiB less
--     each block recomputed       gives  51.75 MiB; planned 3.82 MiB a ms, measured 4.17 MiB a ms
--       planner within that       -7.2 % of a step planned, -8.5 % measured, 1.48 MiB less
--     by hand, MLP recomputed gives most bytes for its planned time
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, policy = wane.nn, wane.policy
local measure, text = require 'wane.plan.measure', require 'wane.report.table'
local exact, MiB = wane.bytes.exact, wane.MiB

-- ---- the network --------------------------------------------------------------------------------------------------
local Block = nn.module('Block', function(self, d, heads, p, is_tiled)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { dropout = p, causal = true, tiled = is_tiled })
    self.drop = nn.Dropout(p)
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = p })
end)
function Block:forward(x)
    x = x + self.drop(self.attn(self.ln1(x)))
    return x + self.mlp(self.ln2(x))
end

local function build(size, is_tiled)
    wane.manual_seed(1)
    local blocks = {}
    for i = 1, size.blocks do blocks[i] = Block(size.d, size.heads, size.dropout, is_tiled) end
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(size.batch, size.t, size.d))
    return function() return (model(x) ^ 2):mean() end
end

-- ---- arms ---------------------------------------------------------------------------------------------------------
local by_hand = {
    { name = 'save_all', policy = 'save_all' },
    { name = 'attention recomputed', policy = policy.by_type { Attention = 'recompute', default = 'save' } },
    { name = 'MLP recomputed', policy = policy.by_type { MLP = 'recompute', default = 'save' } },
    { name = 'each block recomputed', policy = 'every(1)' },
}

-- Lists each policy by hand and, after all but save_all, the planner within its bytes.
local function arms_of(fn)
    local arms = {}
    for i, hand in ipairs(by_hand) do
        local plan = wane.plan(fn, { policy = hand.policy })
        arms[#arms + 1] = { name = hand.name, policy = hand.policy, plan = plan }
        if i > 1 then
            local within = policy.budget(plan.reserved)
            arms[#arms + 1] = { name = '  planner within that', policy = within, hand = arms[#arms],
                plan = assert(wane.plan(fn, { policy = within })) }
        end
    end
    return arms
end

local function median(list)
    table.sort(list)
    local n = #list
    return n % 2 == 1 and list[(n + 1) / 2] or (list[n / 2] + list[n / 2 + 1]) / 2
end

-- Runs all arms in turns, a warm-up and two measured steps each, so that other work on the machine slows all of them.
local function run(arms, fn, rounds)
    for _, arm in ipairs(arms) do
        wane.manual_seed(2) -- one set of dropout masks for all
        arm.digest, arm.times, arm.is_exact = measure.gradients(fn, arm.policy), {}, true
    end
    for _ = 1, rounds do
        for _, arm in ipairs(arms) do
            local m = wane.measure(fn, { policy = arm.policy, warmup = 1, steps = 2 })
            for _, s in ipairs(m.times) do table.insert(arm.times, s) end
            arm.measured, arm.is_exact = m.reserved, arm.is_exact and m.exact and m.reserved == arm.plan.reserved
        end
    end
    for _, arm in ipairs(arms) do arm.seconds = median(arm.times) end
end

-- ---- reports ------------------------------------------------------------------------------------------------------
local function report(arms)
    local rows, is_right, base = {}, true, arms[1]
    for i, arm in ipairs(arms) do
        local p, same = arm.plan, arm.digest == base.digest
        is_right = is_right and same and arm.is_exact and (not arm.hand or arm.measured <= arm.hand.measured)
        rows[i] = { arm.name, exact(p.reserved), exact(arm.measured),
            ('%.0f %%'):format(100 * arm.measured / base.measured), p.recomputed, ('%.4f'):format(p.seconds),
            ('%+.1f %%'):format(100 * (p.seconds / base.plan.seconds - 1)), ('%.4f'):format(arm.seconds),
            ('%+.1f %%'):format(100 * (arm.seconds / base.seconds - 1)), arm.digest:sub(1, 8) }
    end
    print(text.text({ 'what is kept', 'predicted', 'measured', '', 'nodes', 's planned', '', 's measured', '',
        'gradients' }, rows))
    return is_right
end

-- Prints the conclusions, computed from the rows.
local function conclude(arms)
    local base, best, most = arms[1], nil, 0
    local function rate(arm, field)
        local extra = field == 'planned' and arm.plan.seconds - base.plan.seconds or arm.seconds - base.seconds
        extra = 1000 * extra
        return extra > 0 and (base.measured - arm.measured) / MiB / extra or math.huge
    end
    local function shown(value) return value == math.huge and 'no time' or ('%.2f MiB a ms'):format(value) end
    for _, arm in ipairs(arms) do
        if not arm.hand and arm ~= base then
            print(('  %-27s gives %6.2f MiB; planned %s, measured %s'):format(arm.name,
                (base.measured - arm.measured) / MiB, shown(rate(arm, 'planned')), shown(rate(arm))))
            if rate(arm, 'planned') > most then best, most = arm, rate(arm, 'planned') end
        elseif arm.hand then
            local hand = arm.hand
            print(('  %-27s %+.1f %% of a step planned, %+.1f %% measured, %.2f MiB less'):format(arm.name,
                100 * (arm.plan.seconds / hand.plan.seconds - 1), 100 * (arm.seconds / hand.seconds - 1),
                (hand.measured - arm.measured) / MiB))
        end
    end
    print(('  by hand, %s gives most bytes for its planned time'):format(best.name))
end

-- ---- starting -----------------------------------------------------------------------------------------------------
local options = dofile(root .. '/examples/options.lua')

local function main()
    local size, is_right = options { blocks = 6, d = 192, heads = 6, t = 256, batch = 4, dropout = 0.1, rounds = 4,
        roofline = false, small = { blocks = 3, d = 32, heads = 4, t = 32, batch = 2, rounds = 1 } }, true
    print(('GPT stack: %d blocks, d = %d, %d heads, T = %d, batch %d, dropout %g, %d threads; loss = mean of squares')
        :format(size.blocks, size.d, size.heads, size.t, size.batch, size.dropout, measure.threads()))
    for _, is_tiled in ipairs { false, true } do
        local fn = build(size, is_tiled)
        if not size.roofline then wane.profile(fn, { steps = 5, keep = false }) end
        local arms = arms_of(fn)
        run(arms, fn, size.rounds)
        print(('\n%s attention: bytes reserved, seconds a step (medians of %d in turns)\nplanned: %s'):format(
            is_tiled and 'tiled' or 'composed', #arms[1].times, arms[1].plan.costs))
        is_right = report(arms) and is_right
        conclude(arms)
        wane.memory.trim()
    end
    if not is_right then os.exit(1, true) end
end

main()
