-- Selective recomputation by layer type on a stack of GPT blocks: attention recomputed and the MLP stored, the
-- reverse, each block recomputed, everything stored; and beside each the plan of a budget of the very same bytes. Once
-- with attention composed of products, softmax and dropout, whose (T, T) values are there to be let go of, and once
-- with tiled attention, which never has them. Ops are measured first (wane.profile, kept in this process alone).
--
--   luajit examples/selective.lua [--blocks N] [--d D] [--heads H] [--t T] [--batch B] [--dropout P] [--rounds N]
--                                 [--roofline] [--small]
--
-- What it printed (2 cores, the CPU device, nothing else running):
--
--   OUTPUT
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, policy = wane.nn, wane.policy
local measure, text = require 'wane.measure', require 'wane.table'
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

-- Each policy by hand, and after it (but for save_all) the planner within its bytes.
local function arms_of(fn)
    local arms = {}
    for i, hand in ipairs(by_hand) do
        local plan = wane.plan(fn, { policy = hand.policy })
        arms[#arms + 1] = { name = hand.name, policy = hand.policy, plan = plan }
        if i > 1 then
            local within = policy.budget(plan.reserved)
            arms[#arms + 1] = { name = '  the planner within that', policy = within, hand = arms[#arms],
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

-- All arms in turns, a warm-up and two measured steps each, so that what slows the machine meets all of them.
local function run(arms, fn, rounds)
    for _, arm in ipairs(arms) do
        wane.manual_seed(2) -- the same masks of dropout for all
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

-- What the rows say, worked out from them.
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
local function options()
    local out = { blocks = 6, d = 192, heads = 6, t = 256, batch = 4, dropout = 0.1, rounds = 4 }
    local i = 1
    while arg[i] do
        local name = arg[i]:match('^%-%-(.+)$')
        if name == 'small' then
            out.blocks, out.d, out.heads, out.t, out.batch, out.rounds = 3, 32, 4, 32, 2, 1
        elseif name == 'roofline' then
            out.roofline = true
        elseif name and type(out[name]) == 'number' then
            i = i + 1
            out[name] = tonumber(arg[i]) or error('--' .. name .. ' takes a number', 0)
        else
            error("unknown option '" .. arg[i] .. "'; known: --blocks N, --d D, --heads H, --t T, --batch B, "
                .. '--dropout P, --rounds N, --roofline, --small', 0)
        end
        i = i + 1
    end
    return out
end

local function main()
    local size, is_right = options(), true
    print(('GPT stack: %d blocks, d = %d, %d heads, T = %d, batch %d, dropout %g, %d threads; loss = mean of squares')
        :format(size.blocks, size.d, size.heads, size.t, size.batch, size.dropout, measure.threads()))
    for _, is_tiled in ipairs { false, true } do
        local fn = build(size, is_tiled)
        if not size.roofline then wane.profile(fn, { steps = 5, keep = false }) end
        local arms = arms_of(fn)
        run(arms, fn, size.rounds)
        print(('\n%s attention: bytes reserved, seconds a step (medians of %d in turns; planned: %s)'):format(
            is_tiled and 'tiled' or 'composed', #arms[1].times, arms[1].plan.costs))
        is_right = report(arms) and is_right
        conclude(arms)
        wane.memory.trim()
    end
    if not is_right then os.exit(1, true) end
end

main()
