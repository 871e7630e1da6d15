-- Compares the accounting of PyTorch's bytes for Sequentials of every layer with live PyTorch
-- (spec/fixtures/torch_layers.lua, written by torch_layers.py beside it): what each layer saves, in f32 and bf16, and
-- the bytes at five instants of a step.
local helper = require 'spec.helper'
local wane = helper.wane

local nn = wane.nn
local fixture = dofile(helper.root .. '/spec/fixtures/torch_layers.lua')
local B, T, D, HEADS, VOCAB = 4, 48, 64, 4, 96
local stages = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after_backward',
    'taken_forward' }
-- SMALL bounds the blocks of 512 bytes that the CPU takes in the backward and CUDA does not: numbers, and layer norm's
-- sums for each thread.
local SMALL = 16 * 512

local function on_meta(fn)
    local before = wane.set_device 'meta'
    local fine, why = pcall(fn)
    wane.set_device(before)
    if not fine then error(why, 0) end
end

local LogSoftmax = nn.module 'LogSoftmax'
function LogSoftmax:forward(x) return x:log_softmax(-1) end -- luacheck: no self

local SwiGLU = nn.module('SwiGLU', function(self, d, hidden)
    local o = { bias = false }
    self.gate, self.up, self.down = nn.Linear(d, hidden, o), nn.Linear(d, hidden, o), nn.Linear(hidden, d, o)
end)
function SwiGLU:forward(x) return self.down(self.gate(x):silu() * self.up(x)) end

-- Makes nn.Attention, composed unless `o` says otherwise, as in the fixture.
local function attention(o)
    o.tiled = o.tiled or false
    if o.causal == nil then o.causal = true end
    return nn.Attention(D, HEADS, o)
end

local Block = nn.module('Block', function(self, norm, o, mlp)
    self.norm1, self.attn, self.norm2, self.mlp = norm(D), attention(o), norm(D), mlp or nn.MLP(D, 4 * D)
end)
function Block:forward(x)
    x = x + self.attn(self.norm1(x))
    return x + self.mlp(self.norm2(x))
end

local no_bias = { bias = false }
local function gpt_block(o) return Block(nn.LayerNorm, o or {}) end
local function llama_block() return Block(nn.RMSNorm, { kv_heads = 2, rope = true, bias = false }, SwiGLU(D, 176)) end
local function head() return nn.Linear(D, VOCAB, no_bias) end

local models = {
    linear = function()
        return { nn.Linear(D, 128), nn.ReLU(), nn.Linear(128, D, no_bias), nn.Tanh(), nn.Sigmoid() }
    end,
    embedding = function() return { nn.Embedding(VOCAB, D), nn.LayerNorm(D), nn.Linear(D, VOCAB), nn.GELU() } end,
    softmax = function() return { nn.Linear(D, VOCAB), nn.SiLU(), nn.Softmax(-1), nn.Identity() } end,
    log = function() return { nn.Linear(D, VOCAB), LogSoftmax() } end,
    flatten = function() return { nn.Linear(D, 16), nn.GELU(), nn.Flatten(), nn.Linear(16 * T, 32) } end,
    mlp = function()
        return { nn.Residual(nn.MLP(D, 256)), nn.MLP(D, 128, { act = 'silu' }), nn.Residual(nn.Linear(D, D)) }
    end,
    rmsnorm = function() return { nn.RMSNorm(D), nn.Residual(SwiGLU(D, 176)), nn.RMSNorm(D) } end,
    dropout = function() return { nn.Linear(D, D), nn.Dropout(0.1), nn.MLP(D, 128, { dropout = 0.1 }) } end,
    attention = function() return { nn.LayerNorm(D), attention {}, nn.LayerNorm(D) } end,
    attention_dropout = function() return { attention { dropout = 0.1 } } end,
    attention_grouped = function() return { attention { kv_heads = 2 } } end,
    attention_rope = function() return { attention { rope = true, bias = false } } end,
    attention_tiled = function() return { nn.LayerNorm(D), attention { tiled = true }, nn.LayerNorm(D) } end,
    attention_tiled_grouped = function() return { attention { tiled = true, kv_heads = 2 } } end,
    gpt = function() return { nn.Embedding(VOCAB, D), gpt_block(), gpt_block(), nn.LayerNorm(D), head() } end,
    llama = function() return { nn.Embedding(VOCAB, D), llama_block(), llama_block(), nn.RMSNorm(D), head() } end,
    images = function()
        return { nn.Conv2d(3, 16, 3, { padding = 1 }), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.ConvTranspose2d(16, 8, 2, { stride = 2 }), nn.Upsample { scale = 2 }, nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10) }
    end,
    images_global = function()
        return { nn.Conv2d(3, 8, 3, { stride = 2, padding = 1, bias = false }), nn.BatchNorm2d(8), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10) }
    end,
    images_evaluated = function()
        local norm = nn.BatchNorm2d(8)
        return { nn.Conv2d(3, 8, 3, { stride = 2, padding = 1 }), norm:eval() or norm, nn.ReLU(), nn.Flatten() }
    end,
    images_pooled = function()
        return { nn.GroupNorm(1, 3), nn.MaxPool2d(2), nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten() }
    end,
    gpt_tiled = function() return { nn.Embedding(VOCAB, D), gpt_block { tiled = true }, nn.LayerNorm(D), head() } end,
}

local function loss_of(out, target, loss)
    if loss == 'sum' then return out:sum() end
    if loss == 'mse' then return nn.mse_loss(out, target) end
    if out.dtype ~= 'f32' then out = out:to 'f32' end
    return (loss == 'ce' and nn.cross_entropy or nn.nll_loss)(out, target)
end

local function account(row, dtype, regions)
    local at, net
    on_meta(function()
        net = nn.Sequential(models[row.name]())
        if dtype == 'bf16' then net:to 'bf16' end
        local float = { dtype = dtype == 'bf16' and 'bf16' or 'f32' }
        local x = net[1].v and wane.randint(VOCAB, { B, T })
            or row.name:find '^images' and wane.randn(4, 3, 16, 16, float) or wane.randn(B, T, D, float)
        local target = row.loss == 'mse' and wane.randn(B, T, D, float) or wane.randint(VOCAB, { B, T })
        at = wane.plan(function()
            if dtype ~= 'autocast' then return loss_of(net(x), target, row.loss) end
            local out = wane.autocast('bf16', net, x)
            return loss_of(out.dtype == 'f32' and out or out:to 'f32', target, row.loss)
        end, { policy = regions and 'every(1)' or nil }):pytorch { torch = '1.10', reentrant = false }
    end)
    return at
end

local function saved_of(at)
    local out = {}
    for _, part in ipairs(at.parts) do
        if part.saved > 0 then
            local path = part.path == '' and 'loss' or part.path
            out[path] = (out[path] or 0) + part.saved
        end
    end
    return out
end

describe('the models of the fixture', function()
    it('have every layer of wane.nn', function()
        local module = require 'wane.module'
        local met = { LSTM = true, GRU = true } -- one op in PyTorch, composed here: no fixture can match
        local function look(m)
            met[module.type(m)] = true
            for _, child in ipairs(module.children(m)) do look(child.module) end
        end
        on_meta(function()
            for _, row in ipairs(fixture) do look(nn.Sequential(models[row.name]())) end
        end)
        local places = helper.read('lua/wane/nn/init.lua'):match 'local PLACES = (%b{})'
        for name in places:gmatch '(%u%w+) = {' do assert.is_true(met[name], name) end
    end)
end)

describe('what a layer in a Sequential saves', function()
    for _, row in ipairs(fixture) do
        for _, dtype in ipairs { 'f32', 'bf16', row.autocast and 'autocast' } do
            it(('is what PyTorch %s saves: %s, %s'):format(fixture.torch, row.name, dtype), function()
                assert.same(row[dtype], saved_of(account(row, dtype)))
            end)
        end
    end
end)

local function assert_stages(want, at)
    for i, stage in ipairs(stages) do assert.equal(want[i], at[stage], stage) end
    local more = want[#stages + 1] - at.taken_backward
    assert.is_true(more >= 0 and more <= SMALL, ('taken_backward: %d less than %d'):format(more, want[#stages + 1]))
end

describe('the bytes of a step of a Sequential', function()
    for _, row in ipairs(fixture) do
        if row.stages then
            it(('are those of PyTorch %s: %s'):format(fixture.torch, row.name), function()
                assert_stages(row.stages, account(row, 'f32'))
            end)
        end
        if row.regions then
            it(('are those of PyTorch %s, each layer a region: %s'):format(fixture.torch, row.name), function()
                assert_stages(row.regions, account(row, 'f32', true))
            end)
        end
    end
end)
