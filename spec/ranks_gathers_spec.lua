-- Checks how parameters that ranks have in ranges are gathered: saved or made again by policies, budgets and recipes.
local helper = require 'spec.helper'

local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

-- Prints by policy what one rank of 16 sends in a step of three matrices, as a multiple of what it sends of one: of
-- each a gradient, and the matrix as often as it is gathered, the first of which no backward reads; whether the bytes
-- are as planned; which gathers are saved or made again; and whether the text of the recipe says the same.
local GATHERS = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, policy = wane.nn, wane.policy
wane.dist.ghost { ranks = 16, rank = 5, link = { { 16, 1e8 } } }
local x, saved = wane.eval(wane.randn(64, 256)), policy.by_op { all_gather = 'save' }
local function of() return nn.Linear(256, 256, { bias = false }) end
local function run(name, layers, given, dress)
    local net = nn.Sequential(layers)
    local opt = wane.optim.SGD(net:parameters(), { lr = 0.1 })
    wane.dist.place(net, opt, 'shard')
    local function fn() return net(x):pow(2):mean() end
    local function step()
        opt:step(dress and function() return wane.autocast('bf16', fn) end or fn, { micro = 16,
            policy = given })
    end
    step()
    local m, plan = wane.measure(step, { steps = 1, optimizer = opt }), wane.plan(step)
    local again = wane.plan(step, { policy = policy.recipe(tostring(plan:recipe())) })
    local words = {}
    for _, r in ipairs(plan:residuals()) do words[#words + 1] = r.op == 'all_gather' and r.word:sub(1, 1) or nil end
    io.write(('%%s %%g %%s %%s %%s\n'):format(name, m.wire.sent / (15 * 4 * 4096), m.exact, table.concat(words),
        again.wire.sent == plan.wire.sent and again.peak == plan.peak))
end
local function three() return { of(), nn.GELU(), of(), nn.GELU(), of() } end
local function tied()
    local l = of()
    return { of(), l, nn.GELU(), l }
end
local function frozen(k)
    local list = three()
    list[k].weight.requires_grad = false
    return list
end
local function one(k)
    local list = three()
    list[k]:checkpoint(saved)
    return list
end
run('no policy', three())
run('save_all', three(), 'save_all')
run('saved', three(), saved)
run('regions', three(), policy.compose('recompute_all', saved))
run('regions first', three(), policy.compose('sqrt', policy.by_op { all_gather = 'save', gelu = 'save' }))
run('packed', three(), policy.compose(saved, policy.by_op { gelu = 'compress:bf16' }))
run('offloaded', three(), policy.compose(saved, policy.by_op { gelu = 'offload' }))
run('types', three(), policy.by_type { Sequential = 'save', Linear = 'save' })
run('a function', three(), function(r) return r.op == 'all_gather' and r.path == '5' and 'save' or nil end)
run('one module', one(3))
run('tied', tied(), 'save_all')
run('tied and saved', tied(), saved)
run('frozen', frozen(3), 'save_all')
run('frozen and saved', frozen(3), saved)
run('bf16', three(), 'save_all', true)
run('bf16 and saved', three(), saved, true)
run('bf16, tied', tied(), saved, true)
run('budget', three(), 'budget(1 GiB)')
local layers = {}
for k = 1, 8 do layers[2 * k - 1], layers[2 * k] = of(), nn.GELU() end
local net, few = nn.Sequential(layers), wane.eval(wane.randn(8, 256))
local opt = wane.optim.SGD(net:parameters(), { lr = 0.1 })
wane.dist.place(net, opt, 'shard')
local function step(p) opt:step(function() return net(few):pow(2):mean() end, { micro = 16, policy = p }) end
local function planned(p) return wane.plan(function() step(p) end) end
step()
local all, none = planned(saved), planned 'save_all'
for _, part in ipairs { 0, 1 / 2, 1 } do
    local within = policy.budget(math.floor(none.reserved + part * (all.reserved - none.reserved)))
    local m = wane.measure(function() step(within) end, { steps = 1, optimizer = opt })
    io.write(('%%g: %%g %%s %%s\n'):format(part, m.wire.sent / (15 * 4 * 4096), m.exact,
        planned(within).seconds <= (part < 1 and none or all).seconds))
end
-- A region of a script is one, though parameters are gathered inside of it: activations are treated as without ranges.
for _, word in ipairs { 'keep', 'shard' } do
    local list, words = three(), {}
    local region = nn.Sequential(list)
    local sgd = wane.optim.SGD(region:parameters(), { lr = 0.1 })
    wane.dist.place(region, sgd, word)
    local function fn() return wane.checkpoint(function(h) return region(h) end, x):pow(2):mean() end
    for _, r in ipairs(wane.plan(function() sgd:step(fn, { micro = 16 }) end):residuals()) do
        words[#words + 1] = r.op ~= 'all_gather' and r.word:sub(1, 1) or nil
    end
    io.write('region: ', table.concat(words), '\n')
end
-- A recipe names the gathers that stay, and lets go of them; a mistake is to gather again where bytes are left.
local short = nn.Sequential(three())
local sgd = wane.optim.SGD(short:parameters(), { lr = 0.1 })
wane.dist.place(short, sgd, 'shard')
local function plan_of(p)
    return wane.plan(function() sgd:step(function() return short(x):pow(2):mean() end, { micro = 16, policy = p }) end)
end
local text = tostring(plan_of(saved):recipe())
for _, edit in ipairs { { 'Fe 3: h4', 'Fe 3:' }, { 'B 4', 'Free 3: h5\nB 4' }, { 'Fe 3: h4', 'Fe 3: h4 offload' } } do
    local fine, p = pcall(plan_of, policy.recipe((text:gsub(edit[1], edit[2]))))
    io.write('recipe: ', fine and p.wire.sent / (15 * 4 * 4096) or tostring(p):match "'action': (.*)", '\n')
end
io.write(tostring(plan_of():explain()):match '%%- (gathers, 3 to 5: recomputing takes)', '\n')
run('composed budget', three(), policy.compose(policy.by_op { all_gather = 'recompute' }, 'budget(1 GiB)'))
]]

describe('gathers', function()
    it('are saved by a policy that says so, or made again, and are of the dtype that all readers cast to', function()
        local file = assert(io.open(SCRIPT, 'w'))
        file:write(GATHERS:format(helper.root, helper.root))
        file:close()
        assert.equal([[
no policy 8 true rr true
save_all 8 true rr true
saved 6 true ss true
regions 6 true ss true
regions first 7 true ss true
packed 6 true ss true
offloaded 6 true ss true
types 8 true rr true
a function 7 true rs true
one module 7 true sr true
tied 6 true r true
tied and saved 4 true s true
frozen 7 true rr true
frozen and saved 5 true ss true
bf16 4 true rr true
bf16 and saved 3 true ss true
bf16, tied 2.5 true s true
budget 6 true ss true
0: 18 true true
0.5: 17 true true
1: 16 true true
region: rrrrs
region: rrrrs
recipe: 7
recipe: 7
recipe: h4 offload: it is gathered from ranks, and is saved or gathered again
gathers, 3 to 5: recomputing takes
composed budget 8 true rr true
]], (helper.shell('luajit ' .. SCRIPT)))
    end)
end)
