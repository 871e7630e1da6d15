-- Compares the accounting of PyTorch's bytes with what live PyTorch saves (committed fixtures), and what no fixture has
-- with numbers by hand. The numbers that public texts print are in examples/heavylayer.lua and mechanism.lua.
local helper = require 'spec.helper'
local wane = helper.wane
local script = require('wane.pytorch').script

local nn, policy = wane.nn, wane.policy
local stages = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after_backward' }

local HeavyLayer = nn.module('HeavyLayer', function(self, width, act)
    self.linear = nn.Linear(width, width)
    self.act = act or nn.ReLU()
end)
function HeavyLayer:forward(x) return self.act(self.linear(x)) end

local function stack(depth, width, batch, act)
    local layers = {}
    for i = 1, depth do layers[i] = HeavyLayer(width, act and act()) end
    local model = nn.Sequential(layers)
    local x = wane.randn(batch, width, { requires_grad = true })
    return function() return model(x):sum() end, model, x
end

local function on_meta(fn)
    local before = wane.set_device 'meta'
    local fine, why = pcall(fn)
    wane.set_device(before)
    if not fine then error(why, 0) end
end

describe('whole steps of live PyTorch', function()
    local fixture = dofile(helper.root .. '/spec/fixtures/torch_saved.lua')
    local D = 128
    local Block = nn.module('Block', function(self, act, norm)
        self.norm = norm and nn.LayerNorm(D) or nn.Identity()
        self.a, self.act, self.b = nn.Linear(D, 4 * D), act(), nn.Linear(4 * D, D)
    end)
    function Block:forward(x) return x + self.b(self.act(self.a(self.norm(x)))) end
    local Net = nn.module('Net', function(self, row)
        self.blocks = {}
        for i = 1, 3 do self.blocks[i] = Block(nn[row.act], row.norm) end
        self.head, self.region = nn.Linear(D, D), row.region
    end)
    function Net:forward(x)
        for _, block in ipairs(self.blocks) do x = self.region and wane.checkpoint(block, x) or block(x) end
        return self.head(x)
    end
    for _, row in ipairs(fixture.steps) do
        local name = ('%s%s, %s%s'):format(row.act, row.norm and ' and LayerNorm' or '', row.loss,
            row.region and ', regions' or '')
        it('are met to the byte: ' .. name, function()
            on_meta(function()
                local net, x, y = Net(row), wane.randn(D, D), wane.randint(D, { D })
                local at = wane.plan(function()
                    local out = net(x)
                    return row.loss == 'ce' and nn.cross_entropy(out, y) or out:sum()
                end):pytorch { torch = '1.10', reentrant = false } -- 1.10: no workspaces
                for i, stage in ipairs(stages) do assert.equal(row[i], at[stage], stage) end
            end)
        end)
    end
end)

describe('plan:pytorch', function()
    it('has 66 MiB of workspaces on sm_90 and none before they are needed', function()
        on_meta(function()
            local fn = stack(3, 256, 4)
            local cold, warm = wane.plan(fn):pytorch(), wane.plan(fn):pytorch { warm = true, sm = 90 }
            assert.equal(66 * 2 ^ 20, warm.before - cold.before)
            -- The main thread takes cuBLAS and Lt in the forward; autograd's thread takes cuBLAS in the backward.
            assert.equal(8519680 + 1048576, cold.after_forward - cold.before - 3 * 4 * 256 * 4 - 512)
            local on = wane.plan(fn, { policy = 'every(1)' }):pytorch()
            assert.equal(1048576, on.after_backward - cold.after_backward) -- the recomputed bias needs Lt there
        end)
    end)
    it('tells workspaces of libraries from values', function()
        local plan = wane.plan((stack(3, 64, 8)))
        local at, old = plan:pytorch {}, plan:pytorch { torch = '1.10' }
        for _, name in ipairs { 'peak_forward', 'peak_backward' } do
            assert.equal(old[name], at[name] - at.workspaces[name]) -- version 1.10 has none in its allocator
            assert.equal(0, old.workspaces[name])
            assert.equal(2 * (8519680 + 1048576), plan:pytorch { warm = true }.workspaces[name])
        end
        assert.equal(8519680 + 1048576, at.workspaces.peak_forward) -- of the main thread alone
        assert.matches('would need [%d.]+ MiB: [%d.]+ %wiB of values and [%d.]+ MiB of workspaces of its libraries$',
            tostring(plan))
    end)

    it('frees at the end what nothing holds', function()
        on_meta(function()
            local fn = stack(3, 256, 4)
            local all, none = wane.plan(fn):pytorch(), wane.plan(fn):pytorch { hold = {} }
            local A = 4 * 256 * 4
            assert.equal(A + 512, all.after_backward - none.after_backward) -- output and loss; the input is a cell
            assert.has_error(function() wane.plan(fn):pytorch { hold = { 'inptus' } } end)
        end)
    end)
    it('keeps what a step makes for a convolution, and the labels that it makes for a loss', function()
        on_meta(function()
            local image, x = wane.randn(2, 3, 8, 8), wane.randn(6, 40, { requires_grad = true })
            local conv, labels = nn.Conv2d(3, 4, 3), wane.randint(40, { 6 })
            for bytes, fn in pairs {
                [image:numel() * 4] = function(make) return conv(make and image * 2 or image):sum() end,
                [512] = function(make) return nn.nll_loss(x, make and labels + 0 or labels) end,
            } do
                local there = wane.plan(function() return fn(false) end):pytorch { torch = '1.10' }
                local made = wane.plan(function() return fn(true) end):pytorch { torch = '1.10' }
                assert.equal(bytes, made.after_forward - there.after_forward)
            end
        end)
    end)
    it('counts Adam\'s state before the forward', function()
        on_meta(function()
            local fn, model = stack(2, 256, 4)
            local plain = wane.plan(fn):pytorch()
            local opt = wane.optim.Adam(model:parameters(), { lr = 1e-3 })
            local adam = wane.plan(function() return opt:step(fn()) end):pytorch()
            assert.equal(2 * 2 * (256 * 256 + 256) * 4, adam.before - plain.before)
        end)
    end)
    it('takes another optimizer\'s bytes and gradients that are there before', function()
        on_meta(function()
            local fn, model = stack(2, 256, 4)
            local n, plan = model:parameter_count(), wane.plan(fn)
            local plain, kept = plan:pytorch(), plan:pytorch { state = 12, gradients = 'kept' }
            assert.equal(12 * n + 4 * n, kept.before - plain.before)
            -- what is kept is added to, so nothing of the parameters is allocated
            assert.equal(12 * n, kept.after_backward - plain.after_backward)
            for _, bad in ipairs { { state = 'adam' }, { state = -1 }, { gradients = 'some' } } do
                assert.has_error(function() plan:pytorch(bad) end)
            end
        end)
    end)
    it('makes the bf16 copy of a leaf once under autocast', function()
        on_meta(function()
            local layer, x = nn.Linear(256, 256, { bias = false }), wane.randn(4, 256, { requires_grad = true })
            local function held(times)
                local at = wane.plan(function()
                    return wane.autocast('bf16', function()
                        local y = layer(x)
                        for _ = 2, times do y = y + layer(x) end
                        return y
                    end):sum()
                end):pytorch { torch = '1.10' }
                return at.after_forward - at.before
            end
            -- a copy of the weight and of x; what the layer gave, which is held; the loss
            local copies = 2 * 256 * 256 + 2 * 4 * 256
            assert.equal(copies + 2 * 4 * 256 + 512, held(1))
            assert.equal(held(1), held(2))
            assert.equal(held(1), held(3))
        end)
    end)
    it('goes back through the newest branch first', function()
        on_meta(function()
            local x, n = wane.randn(1024, { requires_grad = true }), 4096
            local at = wane.plan(function() return (x:exp():exp():exp() + x:abs()):sum() end):pytorch()
            -- x, three results, the sum of the branches; then abs makes a sign and a product while all exp wait
            assert.equal(5 * n + 512, at.after_forward)
            assert.equal(7 * n + 1024, at.peak_backward)
        end)
    end)
    it('recomputes with more alive when reentrant', function()
        on_meta(function()
            local fn = stack(4, 256, 64)
            local A = 64 * 256 * 4
            local plan = wane.plan(fn, { policy = 'every(2)' })
            local new, old = plan:pytorch { warm = true }, plan:pytorch { warm = true, reentrant = true }
            assert.equal(new.after_forward, old.after_forward)
            -- its frame holds the region's recomputed result and the gradient that came in, to the end
            assert.equal(2 * A, old.peak_backward - new.peak_backward)
        end)
    end)
    it('says what it cannot tell', function()
        on_meta(function()
            local fn = stack(2, 64, 4)
            local by_value = wane.plan(fn, { policy = policy.by_op { linear = 'recompute' } })
            assert.has_error(function() by_value:pytorch() end)
            local x = wane.randn(4, 64, { requires_grad = true })
            local nested = wane.plan(function()
                return wane.checkpoint(function(v)
                    v = v:gelu()
                    v = wane.checkpoint(function(u) return u:gelu():gelu() end, v)
                    return v:gelu()
                end, x):sum()
            end)
            local square = wane.custom(function(ctx, v)
                ctx.saved[1] = v
                return v * v
            end, function(ctx, dy) return 2 * dy * ctx.saved[1] end)
            local custom = wane.plan(function() return square(x:gelu()):sum() end)
            for word, plan in pairs { ['regions? inside'] = nested, ['wane.custom'] = custom } do
                local why = helper.refused('unsupported', function() plan:pytorch() end)
                assert.is_truthy(why.message:find(word), why.message)
            end
        end)
    end)
end)

describe('wane.pytorch', function()
    it('trains nothing behind a reentrant checkpoint whose input needs no gradient (R6)', function()
        on_meta(function()
            local fn = function(py)
                local layer = nn.Linear(64, 64)
                py.let.layer = layer
                local x = wane.rand(8, 64)
                py.let.x = x
                py.let.loss = wane.checkpoint(layer, x):sum()
                py:backward 'loss'
            end
            assert.has_error(function() script(fn, { reentrant = true }) end)
            script(fn, { reentrant = false })
        end)
    end)
end)

-- ---- layers one by one ---------------------------------------------------------------------------------------------
-- Compares the accounting of PyTorch's bytes for Sequentials of every layer with live PyTorch
-- (spec/fixtures/torch_layers.lua, written by torch_layers.py beside it): what each layer saves, in f32 and bf16, and
-- the bytes at five instants of a step.
local fixture = dofile(helper.root .. '/spec/fixtures/torch_layers.lua')
local B, T, D, HEADS, VOCAB = 4, 48, 64, 4, 96
local instants = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after_backward',
    'taken_forward' }
-- SMALL bounds the blocks of 512 bytes that the CPU takes in the backward and CUDA does not: numbers, and layer norm's
-- sums for each thread.
local SMALL = 16 * 512

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
    local out, forward, backward = {}, 0, 0
    for _, part in ipairs(at.parts) do
        forward, backward = math.max(forward, part.peak_forward), math.max(backward, part.peak_backward)
        if part.saved > 0 then
            local path = part.path == '' and 'loss' or part.path
            out[path] = (out[path] or 0) + part.saved
        end
    end
    assert.same({ at.peak_forward, at.peak_backward }, { forward, backward })
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
    for i, stage in ipairs(instants) do assert.equal(want[i], at[stage], stage) end
    local more = want[#instants + 1] - at.taken_backward
    assert.is_true(more >= 0 and more <= SMALL, ('taken_backward: %d less than %d'):format(more, want[#instants + 1]))
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
