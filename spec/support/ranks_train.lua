-- A training that is run as it stands by one process and by many: spec/ranks_spec.lua compares what they print. Each
-- row trains a network with a tied weight, dropout, a norm and a frozen parameter for three steps, and prints a digest
-- of its parameters with the loss. Rows meet every pair of the axes once.
--   luajit spec/support/ranks_train.lua ROOT [RANKS ON EACH MACHINE]
local root = arg[1]
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, optim, dist = wane.nn, wane.optim, wane.dist
local fingerprint = require('wane.plan.measure').fingerprint
dist.start { timeout = 30, per_node = tonumber(arg[2]) }

local MICRO, BATCH = 8, 10
local AXES = {
    partial = { 1, 2, 4 },
    dtype = { 'f32', 'bf16', 'autocast' },
    policy = { 'save_all', 'recompute_all', 'sqrt', 'offload_all', 'half', 'mixed' },
    optimizer = { 'SGD', 'AdamW', 'Lion', 'RMSprop' },
    clip = { false, 1 },
    weights = { false, true },
    place = { 'slice', 'keep', 'shard', 'mixed' },
    network = { 'linear', 'conv' }, -- with running statistics, of a norm that is used twice
}
local ORDER = { 'policy', 'optimizer', 'partial', 'dtype', 'clip', 'weights', 'place', 'network' }

-- Returns rows of settings that meet each pair of values of two axes, chosen one after the other, each the one of many
-- that meets most pairs that are not met yet.
local function rows()
    local met, left, list, seed = {}, 0, {}, 1
    local function draw(n)
        seed = seed * 16807 % 2147483647
        return seed % n + 1
    end
    local function pairs_of(row, fn)
        for a = 1, #ORDER do
            for b = a + 1, #ORDER do fn(('%d=%d %d=%d'):format(a, row[a], b, row[b])) end
        end
    end
    for a = 1, #ORDER do
        for b = a + 1, #ORDER do left = left + #AXES[ORDER[a]] * #AXES[ORDER[b]] end
    end
    while left > 0 do
        local best, most = nil, 0
        for _ = 1, 60 do
            local row, new = {}, 0
            for k, name in ipairs(ORDER) do row[k] = draw(#AXES[name]) end
            pairs_of(row, function(key) new = new + (met[key] and 0 or 1) end)
            if new > most then best, most = row, new end
        end
        if best then
            pairs_of(best, function(key)
                left = left - (met[key] and 0 or 1)
                met[key] = true
            end)
            local settings = {}
            for k, name in ipairs(ORDER) do settings[name] = AXES[name][best[k]] end
            list[#list + 1] = settings
        end
    end
    return list
end

local function convolutions()
    local norm = nn.BatchNorm2d(32) -- weights of 32 and 48 rows lie in panels, unless they are in ranges
    return nn.Sequential { nn.Conv2d(3, 32, 3), norm, nn.ReLU(), nn.Conv2d(32, 32, 3, { padding = 1 }),
        norm, nn.MLP(4, 300), nn.Flatten(), nn.Dropout(0.1), nn.Linear(512, 10) }
end

local function linears()
    local tied = nn.Linear(48, 48)
    local net = nn.Sequential { nn.Linear(24, 48), tied, nn.GELU(), nn.LayerNorm(48), nn.Dropout(0.2), tied,
        nn.MLP(48, 304), nn.Dropout(0.1), nn.Linear(48, 10) }
    net[1].bias.requires_grad = false
    return net
end

-- Returns the policy of this rank, or its budget. is_sharded: all ranks have one plan.
local function decided(policy, step, is_sharded)
    local mixed, saved = { 'save_all', 'recompute_all', 'sqrt' }, { all_gather = 'save' }
    if policy == 'mixed' and is_sharded then
        return { policy = wane.policy.compose('sqrt', wane.policy.by_op(saved)) }
    end
    if policy == 'mixed' then
        local own = wane.plan(function() step {} end, { policy = mixed[dist.rank % 3 + 1] }):recipe()
        return { policy = wane.policy.recipe(tostring(own) .. ('\nahead %d\ngroup %d\n'):format(dist.rank * 4 % 9,
            ({ 1e9, 0, 2000 })[dist.rank % 3 + 1])) }
    end
    if policy == 'offload_all' then
        return { policy = wane.policy.by_type { MLP = 'offload', Linear = 'recompute' } }
    end
    if policy ~= 'half' then return { policy = policy } end
    local bytes = 0
    for _, p in ipairs { 'save_all', 'least' } do
        local largest = 0
        for _, part in ipairs(wane.plan(function() step {} end, { policy = p }).parts) do
            largest = math.max(largest, part.request.mode == 'backward' and part.program:reserved() or 0)
        end
        bytes = bytes + largest / 2
    end
    if is_sharded then -- one plan for all, of which a rank with more stripes than rank 0 needs more bytes
        for _, other in ipairs(dist.gather(wane.tensor { bytes }):totable()) do
            bytes = math.max(bytes, 1.1 * other[1])
        end
    end
    return { budget = math.floor(bytes) }
end

local function train(row)
    wane.manual_seed(7)
    local is_conv = row.network == 'conv'
    local net = is_conv and convolutions() or linears()
    if row.dtype == 'bf16' then net:to 'bf16' end
    local opt = optim[row.optimizer](net:parameters(), { lr = 0.01, clip_norm = row.clip or nil })
    dist.place(net, opt, row.place == 'mixed' and { ['2'] = 'keep', [is_conv and '6' or '7'] = 'shard' } or row.place)
    local inputs = is_conv and wane.randn(MICRO * BATCH, 3, 6, 6) or wane.randn(MICRO * BATCH, 24)
    local x, y = wane.eval(row.dtype == 'bf16' and inputs:to 'bf16' or inputs, wane.randint(10, { MICRO * BATCH }))
    local function loss(i)
        local at = (i - 1) * BATCH + 1
        local l = nn.cross_entropy(net(x:narrow(1, at, BATCH)), y:narrow(1, at, BATCH))
        if row.weights then return l, i % 3 + 1 end
        return l
    end
    local fn = row.dtype == 'autocast' and function(i) return wane.autocast('bf16', loss, i) end or loss
    local function step(o)
        return opt:step(fn, { micro = MICRO, partial = row.partial, policy = o.policy, budget = o.budget })
    end
    step {} -- makes the states, which a budget of the steps behind it does not count
    local how = decided(row.policy, step, row.place == 'shard' or row.place == 'mixed')
    local last = step(how):item()
    local m = wane.measure(function() step(how) end, { steps = 1, warmup = 0, optimizer = opt })
    local states = net:parameters()
    for _, b in ipairs(net:buffers()) do states[#states + 1] = b end
    return fingerprint(states), last, m.exact
end

for k, row in ipairs(rows()) do
    local words = {}
    for i, name in ipairs(ORDER) do words[i] = tostring(row[name]) end
    local fine, digest, loss, is_exact = pcall(train, row)
    io.write(('%d> %d %s: %s\n'):format(dist.rank, k, table.concat(words, ' '),
        fine and ('%s %.9g %s'):format(digest, loss, is_exact and 'exact' or 'OTHER BYTES') or tostring(digest)))
    io.flush()
end
