-- Checks that no way to run a step changes a bit of a training, and that each takes the bytes that were predicted:
-- models with what a plan can stumble over, each under every kind of policy, within its least bytes and more, in one
-- program and in three lines, with rewrites and without, checked over poisoned memory, and on a second device
-- (spec/support/ways.lua).
local helper = require 'spec.helper'
local programs = require 'spec.support.programs'
local ways = require 'spec.support.ways'
local wane = helper.wane
local nn, optim, policy = wane.nn, wane.optim, wane.policy

-- Models by name: each is a function(way) -> loss(), modules, options of the optimizer or nil, further parameters or
-- nil.
local models = {}
-- Ways that suit one of them alone, beside those of ways.all.
local MORE = {}

local function data(...) return wane.eval((wane.randn(...))) end

local function labels(n, classes) return wane.eval(wane.randint(classes, { n })) end

models['dropout'] = function()
    local body, head = programs.mlp(48, 6, 0.25), nn.Linear(48, 4)
    local x, y = data(16, 48), labels(16, 4)
    return function() return nn.cross_entropy(head(body(x)), y) end, { body, head }
end

models['a tied table, clipped gradients'] = function()
    local embedding, body, head = nn.Embedding(11, 16), nn.MLP(16, 24), nn.Linear(16, 11, { bias = false })
    head.weight = embedding.weight
    local ids = wane.eval(wane.randint(11, { 3, 5 }))
    return function()
        return nn.cross_entropy(head(body(embedding(ids))):reshape(15, 11), ids:reshape(15))
    end, { embedding, body }, { clip_norm = 0.1 }
end

models['images, with running statistics'] = function()
    local body = nn.Sequential { nn.Conv2d(3, 16, 3, { padding = 1 }), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 12, 1), nn.GroupNorm(3, 12), nn.SiLU(), nn.Flatten(), nn.Linear(12 * 30, 3) }
    local x = data(2, 3, 6, 5)
    return function() return (body(x) ^ 2):mean() end, { body }
end

models['attention'] = function()
    local layers = {}
    for i = 1, 2 do
        layers[i] = nn.Residual(nn.Sequential(nn.LayerNorm(24),
            nn.Attention(24, 4, { causal = true, dropout = 0.2, kv_heads = i, rope = i == 2 })))
    end
    local body, x = nn.Sequential(layers), data(2, 37, 24)
    return function() return (body(x) ^ 2):mean() end, { body }
end
MORE['attention'] = { { policy = policy.by_op { attention = 'recompute', default = 'save' } },
    { policy = policy.by_op { linear = 'recompute', default = 'save', optional = true }, lines = true },
    { policy = policy.by_type { Attention = 'recompute', default = 'save' }, lines = true } }

models['attention to a context, with a mask'] = function()
    local m, x, c = nn.Attention(8, 2, { dropout = 0.25 }), data(2, 3, 8), data(2, 5, 8)
    local mask = wane.eval(wane.tensor({ { 1, 1, 0, 1, 0 }, { 0, 1, 1, 1, 1 } }, { dtype = 'u8' }):reshape(2, 1, 1, 5))
    return function() return (m(x, { context = c, mask = mask }) ^ 2):mean() end, { m }
end

for _, kind in ipairs { 'LSTM', 'GRU' } do
    models[kind] = function()
        local m, x = nn[kind](3, 4, { num_layers = 2, dropout = 0.2 }), data(6, 2, 3)
        return function() return (m(x) ^ 2):sum() end, { m }
    end
end

-- Losses by name: function(scores, classes, targets, weight of each class).
local LOSSES = {
    cross_entropy = function(z, y, _, w) return nn.cross_entropy(z, y, { weight = w, label_smoothing = 0.1 }) end,
    bce = function(z, _, t) return nn.bce(z:sigmoid(), t) end,
    bce_with_logits = function(z, _, t, w) return nn.bce_with_logits(z, t, { pos_weight = w }) end,
    kl_div = function(z, _, t) return nn.kl_div(z:log_softmax(-1), t, { reduction = 'batchmean' }) end,
    smooth_l1_loss = function(z, _, t) return nn.smooth_l1_loss(z, t, { beta = 0.5 }) end,
}
for name, loss in pairs(LOSSES) do
    models[name] = function()
        local body = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))
        local x, y, t, w = data(8, 6), labels(8, 4), wane.eval((wane.rand(8, 4))), wane.tensor { 1, 2, 0.5, 3 }
        return function() return loss(body(x), y, t, w) end, { body }
    end
end

-- Computes x^3 k and saves x^2.
local cube = wane.custom(function(ctx, x, k)
    ctx.saved[1] = x * x
    return ctx.saved[1] * x * k
end, function(ctx, dy, x, k)
    return dy * ctx.saved[1] * 3 * k, (dy * ctx.saved[1] * x):sum()
end)

models['a custom function'] = function()
    local body, k, x = programs.mlp(16, 4, 0.25), nn.Parameter(wane.tensor(0.5)), data(32, 16)
    return function() return body(cube(body(x) * 0.1, k):tanh()):pow(2):mean() end, { body }, nil, { k }
end
MORE['a custom function'] = {
    { policy = policy.by_op { mul = 'recompute', tanh = 'recompute', default = 'save', optional = true } } }

models['autocast'] = function()
    local body = nn.Sequential { nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 80), nn.ReLU(), nn.Linear(80, 80),
        nn.Tanh(), nn.Linear(80, 10) }
    local x, y = data(40, 24), labels(40, 10)
    return function() return wane.autocast('bf16', function() return nn.cross_entropy(body(x), y) end) end, { body }
end
MORE['autocast'] = { { policy = policy.by_type { Linear = 'recompute', default = 'save' } },
    { policy = policy.by_op { cast = 'recompute', gelu = 'recompute', default = 'save' }, lines = true } }

for _, dtype in ipairs { 'f64', 'f32', 'bf16' } do
    models['a gradient penalty in ' .. dtype] = function(way)
        local o = { dtype = dtype }
        local body = nn.Sequential { nn.Linear(8, 48, o), nn.GELU(), nn.Dropout(0.25), nn.LayerNorm(48, o),
            nn.Linear(48, 48, o), nn.Tanh(), nn.RMSNorm(48, o), nn.Linear(48, 1, o) }
        return function()
            local x = nn.Parameter(wane.randn(16, 8, o))
            local y = way.regions and wane.checkpoint_sequential(body, 3, x) or body(x)
            local g = wane.grad(y:sum(), x)
            return ((g * g):sum(2):sqrt() - 1):abs():mean() * 10 + (y * y):mean()
        end, { body }
    end
    MORE['a gradient penalty in ' .. dtype] = { { regions = true }, { regions = true, lines = true },
        { policy = 'segments(3)' }, { policy = 'binomial(2)', lines = true } }

    models['an inner step in ' .. dtype] = function()
        local o = { dtype = dtype }
        local w, b = nn.Parameter(wane.randn(6, 4, o)), nn.Parameter(wane.randn(6, o))
        local v = nn.Parameter(wane.randn(3, 6, o))
        local x, other, y, norm = data(8, 4, o), data(8, 4, o), labels(8, 3), nn.LayerNorm(6, o)
        local function loss(of, p)
            local h = norm((of:matmul(p[1], { transpose_b = true }) + p[2]):gelu())
            return nn.cross_entropy(h:matmul(p[3], { transpose_b = true }), y)
        end
        return function()
            local fast = {}
            for k, g in ipairs(wane.grad(loss(x, { w, b, v }), { w, b, v })) do fast[k] = ({ w, b, v })[k] - g * 0.5 end
            return loss(other, fast)
        end, { norm }, nil, { w, b, v }
    end
end

-- Returns the world of ways.train that a model makes.
local function world(make, way)
    wane.manual_seed(3)
    local loss, modules, more, parameters = make(way)
    local states, how = {}, { lr = 0.01, weight_decay = 0.01 }
    parameters = parameters or {}
    for _, m in ipairs(modules) do
        for _, p in ipairs(m:parameters()) do table.insert(parameters, p) end
        for _, b in ipairs(m:buffers()) do table.insert(states, b) end
    end
    for _, p in ipairs(parameters) do table.insert(states, p) end
    for key, value in pairs(more or {}) do how[key] = value end
    return { loss = loss, states = states, optimizers = { optim.AdamW(parameters, how) } }
end

describe('a training has the same bits and the predicted bytes in every way:', function()
    for name, make in pairs(models) do
        it(name, function()
            ways.same(function(way) return world(make, way) end, MORE[name])
        end)
    end
end)
