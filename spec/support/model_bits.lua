-- Prints digests of the parameters' gradients of nine models under eight policies, with the bytes that each plan
-- predicts: the six of budget_models.lua, a GPT, a ResNet and an LSTM. Two builds are compared by the diff of what they
-- print; spec/support/class_bits.lua does the same for each op.
-- usage: luajit spec/support/model_bits.lua     a line each: model<tab>policy<tab>reserved, peak<tab>digest
-- A budget may be kept by another plan after the planner has changed, so its line has a digest alone.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local models = require 'spec.support.budget_models'
local measure = require 'wane.plan.measure'
local nn, policy = wane.nn, wane.policy

local function add(name, build) models[#models + 1] = { name = name, build = build } end

add('GPT-2 of the zoo', function()
    local gpt2 = require 'wane.zoo.gpt2'
    local m = gpt2.new 'small'
    local x, y = wane.eval(wane.randint(50, { 2, 32 }), wane.randint(50, { 2, 32 }))
    return function() return nn.cross_entropy(m(x), y) end, m
end)

add('ResNet of the zoo', function()
    local resnet = require 'wane.zoo.resnet'
    local m = resnet.new('small', { classes = 10 })
    local x, y = wane.eval(wane.randn(4, 3, 32, 32), wane.randint(10, { 4 }))
    return function() return resnet.loss(m, x, y) end, m
end)

add('LSTM', function()
    local m, head, x = nn.LSTM(24, 40), nn.Linear(40, 5), wane.eval(wane.randn(12, 6, 24))
    local both = nn.Sequential { m, head }
    return function()
        local y = m(x)
        return head(y):tanh():mean()
    end, both
end)

local ways = {
    { 'save_all' }, { 'recompute_all' }, { 'sqrt' }, { 'segments(2)' },
    { 'by op', policy.by_op { gelu = 'recompute', layernorm = 'recompute', relu = 'recompute', tanh = 'recompute',
        optional = true } },
    { 'offload', policy.by_op { linear = 'offload', matmul = 'offload', conv2d = 'offload', optional = true } },
    { 'least', budget = 0 }, { 'half', budget = 0.5 },
}

for _, model in ipairs(models) do
    wane.manual_seed(3)
    local fn, m = model.build()
    local least, most = wane.min_budget(fn), wane.plan(fn, { policy = 'save_all' }).reserved
    for _, way in ipairs(ways) do
        local given = way.budget and { budget = math.floor(least + way.budget * (most - least)) } or
            { policy = way[2] or way[1] }
        local plan, grads = wane.plan(fn, given), {}
        m:zero_grad()
        wane.manual_seed(7)
        local loss = fn()
        loss:backward(given)
        for _, p in ipairs(m:parameters()) do grads[#grads + 1] = p.grad end
        print(('%s\t%s\t%s\t%s %.9g'):format(model.name, way[1], way.budget and '' or
            ('%d, %d'):format(plan.reserved, plan.peak), measure.fingerprint(grads), loss:item()))
        m:zero_grad()
    end
end
