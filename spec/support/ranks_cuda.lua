-- A training on GPUs that is run as it stands by one process and by many: spec/cuda_ranks_spec.lua compares what they
-- print. Each line is of one word of dist.place: a digest of the parameters, the loss, and whether all bytes were those
-- that were predicted, host memory and the wire among them; with WANE_CUDA_NCCL, a last line says how GPUs exchange.
--   luajit spec/support/ranks_cuda.lua ROOT ORDER [RANKS ON EACH MACHINE]    ORDER of the streams: eager, lazy, random
local root, order = arg[1], arg[2]
package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;'):format(root, root, root) .. package.path
local sim = require 'spec.support.cudasim'
local wane = require 'wane'
local nn, dist = wane.nn, wane.dist
dist.start { timeout = 30, per_node = tonumber(arg[3]) }
wane.set_device 'cuda'
sim.schedule(order, 7 + dist.rank)

local SAVED = wane.policy.by_op { all_gather = 'save' }
local POLICIES = { 'save_all', wane.policy.compose(SAVED, 'sqrt'),
    wane.policy.by_type { MLP = 'offload', Linear = 'recompute' } }

local function train(word)
    wane.manual_seed(3)
    local norm = nn.BatchNorm2d(8)
    local net = nn.Sequential { nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.MLP(128, 300), nn.Dropout(0.1),
        nn.LayerNorm(128), nn.Linear(128, 10) }
    local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01, clip_norm = 1 })
    dist.place(net, opt, word)
    local x, y = wane.eval(wane.randn(48, 3, 6, 6), wane.randint(10, { 48 }))
    local function loss(i)
        return nn.cross_entropy(net(x:narrow(1, 8 * i - 7, 8)), y:narrow(1, 8 * i - 7, 8)), i % 3 + 1
    end
    local function step(k)
        return opt:step(function(i) return wane.autocast('bf16', loss, i) end,
            -- ranks that gather their parameters run one plan; others each their own
            { micro = 6, partial = 2, policy = POLICIES[(k + (word == 'shard' and 0 or dist.rank)) % 3 + 1] })
    end
    local last
    for k = 1, 6 do last = step(k):item() end -- graphs are captured from the third on
    local m = wane.measure(function() step(1) end, { steps = 1, optimizer = opt })
    local states = net:parameters()
    for _, b in ipairs(net:buffers()) do states[#states + 1] = b end
    return require('wane.plan.measure').fingerprint(states), last, m.exact
end

-- This network is so small that a rank may own no element of a parameter, and give no gradient of its own.
local small = nn.Linear(4, 4)
local sgd = wane.optim.SGD(small:parameters(), { lr = 0.1 })
sgd:step(function(i) return small.weight:pow(2):sum() * i + small.bias:sum() end, { micro = 2 })
io.write(('%d> %s\n'):format(dist.rank, require('wane.plan.measure').fingerprint(small:parameters())))

for _, word in ipairs { 'slice', 'keep', 'shard' } do
    local digest, loss, is_exact = train(word)
    io.write(('%d> %s %.9g %s\n'):format(dist.rank, digest, loss, is_exact and 'exact' or 'OTHER BYTES'))
end
if os.getenv 'WANE_CUDA_NCCL' and dist.size > 1 then
    local c = sim.counters()
    io.write(('%d> %s: %s\n'):format(dist.rank, dist.gpus,
        c.exchanges > 0 and c.graph_launches > 0 and 'exchanges and graphs' or 'not so'))
end
