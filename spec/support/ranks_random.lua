-- Random trainings, as one process and as many: spec/ranks_place_spec.lua compares what they print. A seed chooses a
-- network of the zoo or a random one, micro-batches and partial sums, weights, autocast, frozen parameters, the
-- optimizer, how ranks have its parameters, the policy, and what the script does between its steps.
--   luajit spec/support/ranks_random.lua ROOT FIRST LAST [RANKS ON EACH MACHINE]
local root, first, last = arg[1], tonumber(arg[2]), tonumber(arg[3])
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/examples/?.lua;' .. package.path
local wane = require 'wane'
local nn, optim, dist = wane.nn, wane.optim, wane.dist
local fingerprint = require('wane.plan.measure').fingerprint
dist.start { timeout = 40, per_node = tonumber(arg[4]) }

local SAVED = wane.policy.by_op { all_gather = 'save' } -- parameters are gathered once a step
local state -- of the numbers that choose, which are the same on every rank

local function draw(n)
    state = state * 16807 % 2147483647
    return state % n + 1
end
local function pick(list) return list[draw(#list)] end
local function chance(percent) return draw(100) <= percent end

-- Returns a network of the zoo, and the loss of micro-batch i of n.
local function known(n)
    local name = pick { 'gpt2', 'llama', 'vit', 'resnet', 'cnn100' }
    local zoo = require('wane.zoo.' .. name)
    local model = zoo.new 'small'
    if name == 'gpt2' or name == 'llama' then
        local x, y = wane.eval(wane.randint(96, { n, 16 }), wane.randint(96, { n, 16 }))
        return model, function(i) return zoo.loss(model, x:narrow(1, i, 1), y:narrow(1, i, 1)) end
    end
    local x, y = wane.eval(wane.randn(2 * n, name == 'cnn100' and 1 or 3, 32, 32), wane.randint(10, { 2 * n }))
    return model, function(i) return zoo.loss(model, x:narrow(1, 2 * i - 1, 2), y:narrow(1, 2 * i - 1, 2)) end
end

local Random = nn.module('Random', function(self, width, layers)
    self.table = nn.Embedding(pick { 50, 300 }, width)
    self.net, self.matrix = nn.Sequential(layers), nn.Parameter(wane.randn(width, width))
end)
function Random:forward(ids) return self.net(self.table(ids):matmul(self.matrix)) end

-- Returns a network of random layers, one of which may stand in it several times, and its loss.
local function random(n)
    local width, layers = pick { 16, 24, 48, 80 }, {}
    local shared = nn.Linear(width, width)
    local makers = { function() return shared end, function() return nn.Linear(width, width, { bias = chance(50) }) end,
        nn.GELU, function() return nn.LayerNorm(width) end, function() return nn.RMSNorm(width) end,
        function() return nn.Dropout(0.3) end, function() return nn.MLP(width, pick { 100, 160, 320 }) end }
    for k = 1, draw(4) do layers[k] = pick(makers)() end
    layers[#layers + 1] = nn.Linear(width, 12)
    local model = Random(width, layers)
    local x, y = wane.eval(wane.randint(50, { n, 6 }), wane.randint(12, { 6 * n }))
    return model, function(i)
        return nn.cross_entropy(model(x:narrow(1, i, 1)):reshape(6, 12), y:narrow(1, 6 * i - 5, 6))
    end
end

-- Returns the loss with autocast or a weight, or as it is.
local function dressed(fn)
    local loss = chance(30) and function(i) return wane.autocast('bf16', fn, i) end or fn
    return chance(25) and function(i) return loss(i), i % 3 + 1 end or loss
end

-- Returns an optimizer of all parameters, or of two in three; the others are frozen, and perhaps one more.
local function optimizer_of(model)
    local list, all = {}, model:parameters()
    if chance(30) then pick(all).requires_grad = false end
    local takes_all = chance(80)
    for k, p in ipairs(all) do
        if takes_all or k % 3 ~= 0 then list[#list + 1] = p else p.requires_grad = false end
    end
    local opt = optim[pick { 'SGD', 'AdamW', 'Adam', 'Lion', 'RMSprop' }](list, { lr = 0.01,
        clip_norm = chance(40) and 0.5 or nil })
    local word = pick { 'slice', 'keep', 'shard', 'mixed' }
    if takes_all and word == 'mixed' then
        local words = {}
        for path in model:named_parameters() do words[path] = pick { 'keep', 'slice', 'shard' } end
        dist.place(model, opt, words)
    elseif takes_all then
        dist.place(model, opt, word)
    end
    return opt
end

local function train()
    local micro, divisors = pick { 2, 4, 6, 8, 12 }, {}
    for m = 1, micro do divisors[#divisors + 1] = micro % m == 0 and m or nil end
    local partial, model, fn = pick(divisors), (chance(35) and known or random)(micro)
    local loss, opt = dressed(fn), optimizer_of(model)
    local policy = pick { 'save_all', 'recompute_all', 'sqrt', false } or nil
    if micro % 4 == 0 then policy = wane.policy.compose(SAVED, policy or 'save_all') end
    local function step() return opt:step(loss, { micro = micro, partial = partial, policy = policy }) end
    step()
    local measured = wane.measure(step, { steps = 1, warmup = 0, optimizer = opt })
    if chance(30) then
        wane.accumulate(loss, { micro = micro })
        opt:step()
        opt:zero_grad()
    end
    if chance(30) then
        model:to 'f64'
        model:to 'f32'
    end
    local value, states = step():item(), model:parameters()
    for _, b in ipairs(model:buffers()) do states[#states + 1] = b end
    return ('%s %.9g %s'):format(fingerprint(states), value, measured.exact and 'exact' or 'OTHER BYTES')
end

for seed = first, last do
    state = seed * 7919 + 13
    for _ = 1, 5 do draw(10) end
    wane.manual_seed(seed)
    local fine, said = pcall(train)
    io.write(('%d> %d %s\n'):format(dist.rank, seed, fine and said or tostring(said)))
    io.flush()
end
