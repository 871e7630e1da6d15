-- What a budget costs: the GPT stack at three quarters, half and a quarter of save_all's activation bytes, planned with
-- measured seconds, against every policy by hand that fits; predicted beside measured, arms in turns.
--   luajit spec/bench/budget.lua [turns]
-- Seconds of ops are measured in this process first (wane.profile) and kept nowhere.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local measure = require 'wane.measure'
local nn = wane.nn

local TURNS = tonumber(arg[1]) or 9
local BLOCKS, D, HEADS, T, BATCH, P = 6, 384, 6, 256, 8, 0.1

local Block = nn.module('Block', function(self)
    self.ln1, self.attn = nn.LayerNorm(D), nn.Attention(D, HEADS, { dropout = P, causal = true })
    self.drop = nn.Dropout(P)
    self.ln2, self.mlp = nn.LayerNorm(D), nn.MLP(D, 4 * D, { dropout = P })
end)
function Block:forward(x)
    x = x + self.drop(self.attn(self.ln1(x)))
    return x + self.mlp(self.ln2(x))
end

wane.manual_seed(1)
local blocks = {}
for i = 1, BLOCKS do blocks[i] = Block() end
local model = nn.Sequential(blocks)
local x = wane.eval(wane.randn(BATCH, T, D))
local function fn() return (model(x) ^ 2):mean() end

common.progress 'measuring the ops'
wane.profile(fn, { steps = 5, keep = false })
for _, name in ipairs { 'recompute_all', 'sqrt' } do wane.profile(fn, { steps = 3, policy = name, keep = false }) end

local HAND = require('spec.support.budget_models').by_hand

local whole = wane.plan(fn, { policy = 'save_all' })
local arms = { { name = 'save_all', policy = 'save_all', plan = whole } }
for _, part in ipairs { 0.75, 0.5, 0.25 } do
    local budget = math.floor(whole.reserved - (1 - part) * whole.kinds.activation)
    local p, why = wane.plan(fn, { budget = budget })
    if p then
        arms[#arms + 1] = { name = ('budget: %d %% of the activations'):format(100 * part),
            policy = wane.policy.budget(budget), plan = p }
        local best
        for _, name in ipairs(HAND) do
            local ok, hand = pcall(wane.plan, fn, { policy = name })
            if ok and hand.reserved <= budget and (not best or hand.seconds < best.plan.seconds) then
                best = { name = '  best by hand within it: ' .. name, policy = name, plan = hand }
            end
        end
        arms[#arms + 1] = best
    else
        print(tostring(why))
    end
end

for _, arm in ipairs(arms) do arm.times = {} end
for turn = 1, TURNS do
    common.progress(('turn %d of %d'):format(turn, TURNS))
    for _, arm in ipairs(arms) do
        wane.manual_seed(turn)
        local r = wane.measure(fn, { policy = arm.policy, steps = 1, warmup = turn == 1 and 1 or 0 })
        assert(r.exact and r.reserved == arm.plan.reserved)
        arm.times[turn] = r.seconds
    end
end
common.progress()
for _, arm in ipairs(arms) do
    arm.digest = measure.gradients(fn, arm.policy)
    arm.seconds = common.median(arm.times)
end

local rows = {}
for i, arm in ipairs(arms) do
    local p = arm.plan
    rows[i] = { arm.name, wane.bytes.exact(p.reserved), ('%.4f'):format(p.seconds), ('%.4f'):format(arm.seconds),
        ('%+.1f %%'):format(100 * (p.seconds / whole.seconds - 1)),
        ('%+.1f %%'):format(100 * (arm.seconds / arms[1].seconds - 1)), p.recomputed,
        arm.digest == arms[1].digest and 'equal' or 'DIFFER' }
end
common.table({ 'plan', 'reserved', 's predicted', 's measured', 'overhead predicted', 'measured', 'nodes again',
    'gradients' }, rows)
print(('costs: %s; medians of %d turns; others at work: load %s'):format(whole.costs, TURNS, common.load_average()))
