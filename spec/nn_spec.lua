-- Compares layers and modules with plain Lua arithmetic in double precision, and nn.LSTM and nn.GRU with numbers that
-- PyTorch printed (spec/fixtures/torch_attention.lua); checks states, files and misuse of these. nn.Attention has
-- spec/attention_spec.lua.
local helper = require 'spec.helper'
local wane = require 'wane'
local module = require 'wane.module'
local gradcheck = require 'spec.support.gradcheck'
local waves = require 'spec.support.waves'
local fixture = require 'spec.fixtures.torch_attention'
local nn = wane.nn

local function near(expected, got, tolerance)
    local scale = math.max(1, math.abs(expected))
    assert.is_true(math.abs(expected - got) <= (tolerance or 2e-6) * scale,
        ('expected %.9g, got %.9g'):format(expected, got))
end

local function near_table(expected, got, tolerance)
    if type(expected) == 'number' then return near(expected, got, tolerance) end
    assert.are.equal(#expected, #got)
    for k = 1, #expected do near_table(expected[k], got[k], tolerance) end
end

local function names_of(m)
    local names = {}
    for name in m:named_parameters() do names[#names + 1] = name end
    return names
end

local function dims(t) return { unpack(t.shape) } end

-- Returns rows (n, i) times weight (o, i) transposed, plus bias (o), as rows (n, o).
local function linear(rows, weight, bias)
    local out = {}
    for r, row in ipairs(rows) do
        out[r] = {}
        for o, w in ipairs(weight) do
            local sum = bias and bias[o] or 0
            for k, v in ipairs(row) do sum = sum + v * w[k] end
            out[r][o] = sum
        end
    end
    return out
end

describe('nn.Linear', function()
    it('starts uniform in +-1/sqrt(in), weight (out, in)', function()
        wane.manual_seed(3)
        local m = nn.Linear(64, 100)
        assert.are.same({ 100, 64 }, dims(m.weight))
        assert.are.same({ 100 }, dims(m.bias))
        local low, high, sum = 0, 0, 0
        for _, row in ipairs(m.weight:totable()) do
            for _, v in ipairs(row) do low, high, sum = math.min(low, v), math.max(high, v), sum + v end
        end
        assert.is_true(low >= -0.125 and low < -0.124)
        assert.is_true(high < 0.125 and high > 0.124)
        assert.is_true(math.abs(sum / 6400) < 0.005)
    end)
end)

describe('nn.Dropout', function()
    it('scales what it keeps, in training only', function()
        wane.manual_seed(5)
        local m = nn.Dropout(0.25)
        local x = wane.ones(4000)
        local y, zeros = m(x):totable(), 0
        for _, v in ipairs(y) do
            if v == 0 then zeros = zeros + 1 else near(1 / 0.75, v) end
        end
        assert.is_true(zeros > 850 and zeros < 1150)
        m:eval()
        assert.are.equal(x, m(x))
        m:train()
        assert.are_not.equal(x, m(x))
        assert.are.equal(x, nn.Dropout(0)(x))
    end)
end)

describe('nn.Embedding', function()
    it('starts normal', function()
        wane.manual_seed(9)
        local sum, square = 0, 0
        for _, row in ipairs(nn.Embedding(100, 50).weight:totable()) do
            for _, v in ipairs(row) do sum, square = sum + v, square + v * v end
        end
        assert.is_true(math.abs(sum / 5000) < 0.06)
        assert.is_true(math.abs(square / 5000 - 1) < 0.1)
    end)
end)

describe('containers', function()
    it('Sequential runs in order and grows', function()
        local m = nn.Sequential { nn.Linear(2, 3), nn.ReLU() }:add(nn.Linear(3, 1))
        assert.are.same({ '1.weight', '1.bias', '3.weight', '3.bias' }, names_of(m))
        local x = wane.tensor { { 1, -1 } }
        local h = linear(x:totable(), m[1].weight:totable(), m[1].bias:totable())
        for k, v in ipairs(h[1]) do h[1][k] = math.max(v, 0) end
        near_table(linear(h, m[3].weight:totable(), m[3].bias:totable()), m(x):totable())
        assert.are.equal(3, #m:children())
    end)

    it('Residual, MLP and Flatten do what they say', function()
        local inner = nn.Linear(2, 2)
        local x = wane.tensor { { 1, -2 } }
        near_table((x + inner(x)):totable(), nn.Residual(inner)(x):totable())
        local mlp = nn.MLP(2, 5, { act = 'relu' })
        assert.are.same({ 'up.weight', 'up.bias', 'down.weight', 'down.bias' }, names_of(mlp))
        near_table(mlp.down(mlp.up(x):relu()):totable(), mlp(x):totable())
        assert.are.same({ 2, 12 }, dims(nn.Flatten()(wane.zeros(2, 3, 4))))
    end)
end)

local Block = nn.module('Block', function(self, d)
    self.attn = nn.Attention(d, 2, { causal = true })
    self.mlp = nn.MLP(d, 2 * d)
end)
function Block:forward(x)
    x = x + self.attn(x)
    return x + self.mlp(x)
end

local Tiny = nn.module('Tiny', function(self, v, d)
    self.embed = nn.Embedding(v, d)
    self.blocks = {}
    for i = 1, 2 do self.blocks[i] = Block(d) end
    self.scale = nn.Parameter(wane.ones(d))
    self.head = nn.Linear(d, v, { bias = false })
    self.head.weight = self.embed.weight
end)
function Tiny:forward(ids)
    local x = self.embed(ids)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.head(x * self.scale)
end

describe('modules', function()
    it('list parameters in order of assignment, tied ones once', function()
        local m = Tiny(7, 4)
        local names = names_of(m)
        assert.are.equal('embed.weight', names[1])
        assert.are.equal('blocks.1.attn.qkv.weight', names[2])
        assert.are.equal('blocks.2.mlp.down.bias', names[#names - 1])
        assert.are.equal('scale', names[#names])
        assert.are.equal(18, #names)
        assert.are.equal(18, #m:parameters())
        assert.are.equal(m.embed.weight, m.head.weight)
    end)

    it('have scopes with path and type', function()
        local m = Tiny(7, 4)
        local seen = {}
        local record = m.blocks[2].mlp.act.forward
        m.blocks[2].mlp.act.forward = function(self, x)
            seen.current = self
            return record(self, x)
        end
        local ids = wane.tensor({ { 1, 2 } }, { dtype = 'i32' })
        local y = m(ids)
        assert.are.equal(m.blocks[2].mlp.act, seen.current)
        local info = require('wane.tensor').info(y)
        local scope = module.of_scope(info.scope)
        assert.are.equal('head', scope.path)
        assert.are.equal('Linear', scope.type)
        assert.are.equal(m.head, scope.module)
        local above = module.of_scope(scope.parent_scope)
        assert.are.equal('', above.path)
        assert.are.equal('Tiny', above.type)
        assert.are.equal(m, above.module)
        assert.are.equal(0, above.parent_scope)
    end)

    it('keep their scopes apart and stable', function()
        local tensor = require 'wane.tensor'
        local a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        local x = wane.ones(1, 2)
        local y = a(x)
        local z = b(y)
        assert.are_not.equal(tensor.info(y).scope, tensor.info(z).scope)
        assert.are.equal(a, module.of_scope(tensor.info(y).scope).module)
        assert.are.equal(b, module.of_scope(tensor.info(z).scope).module)
        local first = tensor.info(y).scope
        z:totable()
        assert.are.equal(first, tensor.info(a(x)).scope)
    end)

    it('freeze', function()
        local m = nn.Sequential { nn.Linear(2, 2), nn.Linear(2, 1) }
        m[1]:requires_grad(false)
        m[2].bias.requires_grad = false
        m(wane.ones(3, 2)):sum():backward()
        assert.is_nil(m[1].weight.grad)
        assert.is_nil(m[2].bias.grad)
        assert.is_truthy(m[2].weight.grad)
        m:zero_grad()
        assert.is_nil(m[2].weight.grad)
    end)

    it('hand over their state', function()
        wane.manual_seed(1)
        local a, b = Tiny(7, 4), Tiny(7, 4)
        local ids = wane.tensor({ { 1, 2 } }, { dtype = 'i32' })
        assert.are_not.same(a(ids):totable(), b(ids):totable())
        b:load_state_dict(a:state_dict())
        assert.are.same(a(ids):totable(), b(ids):totable())
        b:load_state_dict({ scale = wane.zeros(4) }, { strict = false })
        assert.are.same({ 0, 0, 0, 0 }, b.scale:totable())
    end)

    it('switch to evaluation and visit all of themselves', function()
        local m = nn.Sequential { nn.Dropout(0.5), nn.Sequential { nn.Dropout(0.5) } }
        m:eval()
        assert.is_false(m[2][1].training)
        local types = {}
        m:apply(function(each) types[#types + 1] = module.type(each) end)
        assert.are.same({ 'Dropout', 'Sequential', 'Dropout', 'Sequential' }, types)
        local paths = {}
        for path in m:named_modules() do paths[#paths + 1] = path end
        assert.are.same({ '', '1', '2', '2.1' }, paths)
    end)

    it('move to meta and to another dtype, and print as a tree', function()
        local m = nn.Sequential { nn.Linear(2, 3), nn.ReLU() }
        assert.are.equal('Sequential(\n  1: Linear(2, 3)\n  2: ReLU()\n)', tostring(m))
        local before = m[1].weight:totable()
        m:to 'f64'
        assert.are.equal('f64', m[1].weight.dtype)
        near_table(before, m[1].weight:totable())
        m:to 'meta'
        assert.are.equal('meta', m[1].bias.device)
        assert.are.same({ 5, 3 }, dims(m(wane.ones(5, 2, { device = 'meta', dtype = 'f64' }))))
        assert.is_false(pcall(m.to, m, 'cpu'))
    end)

    it('begin otherwise with nn.init', function()
        wane.manual_seed(2)
        local m = nn.Linear(100, 50)
        nn.init.normal(m.weight, 0.02)
        nn.init.zeros(m.bias)
        local sum, square = 0, 0
        for _, row in ipairs(m.weight:totable()) do
            for _, v in ipairs(row) do sum, square = sum + v, square + v * v end
        end
        assert.is_true(math.abs(math.sqrt(square / 5000) - 0.02) < 0.002)
        assert.are.equal(0, m.bias:totable()[7])
        nn.init.constant(m.bias, 3)
        assert.are.equal(3, m.bias:totable()[50])
        nn.init.xavier_uniform(m.weight)
        local high = 0
        for _, row in ipairs(m.weight:totable()) do
            for _, v in ipairs(row) do high = math.max(high, math.abs(v)) end
        end
        assert.is_true(high <= math.sqrt(6 / 150) and high > 0.95 * math.sqrt(6 / 150))
    end)
end)

-- ---- recurrent layers -----------------------------------------------------------------------------------------------

local function fill(shape, k, dtype, factor) return waves.fill(shape, k, { dtype = dtype, factor = factor }) end

local function cell(kind, dtype, opts)
    opts.dtype = dtype
    local m = nn[kind](3, 4, opts)
    for k, p in ipairs(m:parameters()) do p:assign(fill(p.shape, 9 + k, dtype, 0.5)) end
    return m
end

for _, kind in ipairs { 'LSTM', 'GRU' } do
    describe('nn.' .. kind, function()
        for dtype, tolerance in pairs { f64 = 1e-11, f32 = 1e-4 } do
            it('is that of PyTorch, plain and with all options, ' .. dtype, function()
                for _, form in ipairs { 'plain', 'all' } do
                    local want, is_all = fixture[kind:lower() .. '_' .. form], form == 'all'
                    local m = cell(kind, dtype, { num_layers = is_all and 2 or 1, bidirectional = is_all,
                        batch_first = is_all })
                    local x = nn.Parameter(fill(is_all and { 2, 5, 3 } or { 5, 2, 3 }, 1, dtype))
                    local h0 = nn.Parameter(fill({ 4, 2, 4 }, 2, dtype))
                    local c0 = fill({ 4, 2, 4 }, 3, dtype)
                    local y, h, c = m(x, is_all and { h = h0, c = kind == 'LSTM' and c0 or nil } or nil)
                    local loss = (y * y):sum() + (h * 2):sum()
                    if c then loss = loss + c:sum() end
                    gradcheck.near(want.y, y:retain(), tolerance, 'y')
                    gradcheck.near(want.h, h:retain(), tolerance, 'h')
                    if want.c then gradcheck.near(want.c, c:retain(), tolerance, 'c') end
                    loss:backward()
                    gradcheck.near(want.dx, x.grad, tolerance, 'dx')
                    gradcheck.near(want.dw, m.weight_ih_l0.grad, tolerance, 'dw')
                    if want.dh then gradcheck.near(want.dh, h0.grad, tolerance, 'dh') end
                end
            end)
        end

        it('goes on from its state with the same numbers', function()
            local m, x = nn[kind](3, 4, { num_layers = 2 }), wane.randn(6, 2, 3):retain()
            local whole = m(x)
            local _, h, c = m(x:narrow(1, 1, 4))
            local rest = m(x:narrow(1, 5, 2), { h = h, c = c })
            assert.is_true((whole:narrow(1, 5, 2) - rest):abs():max():item() < 1e-6)
        end)

        it('takes bf16, autocast, no bias, dropout between layers and steps', function()
            local m = nn[kind](3, 4, { num_layers = 2, bias = false, dropout = 0.5 })
            assert.equal(4, #m:parameters())
            local x = wane.randn(5, 2, 3):retain()
            assert.is_true((m(x) - m(x)):abs():max():item() > 0)
            m:eval()
            local want = m(x):retain()
            local low = wane.autocast('bf16', m, x):to 'f32'
            assert.is_true((low - want):abs():max():item() < 0.02)
            local half = nn[kind](3, 4, { dtype = 'bf16' })
            assert.equal('bf16', half(x:to 'bf16').dtype)
            local opt = wane.optim.SGD(m:parameters(), { lr = 0.1 })
            for _ = 1, 3 do assert.equal(0, opt:step(m(x):sum()):dim()) end
        end)

        it('refuses what does not fit', function()
            local m, x = nn[kind](3, 4), wane.ones(5, 2, 3)
            for _, case in ipairs {
                { 'shape', '(time, batch, 3)', m, wane.ones(5, 3) },
                { 'shape', 'no steps', m, wane.ones(0, 2, 3) },
                { 'shape', '(1, 2, 4)', m, x, { h = wane.ones(2, 4) } },
                { 'value', 'the state', m, x, x },
                { 'value', 'between layers', nn[kind], 3, 4, { dropout = 0.5 } },
                { 'value', "'layers'", nn[kind], 3, 4, { layers = 2 } },
                { 'value', 'bidirectional', nn[kind], 3, 4, { bidirectional = 2 } },
            } do
                helper.refused(case[1], function() case[3](case[4], case[5], case[6]) end, case[2])
            end
        end)
    end)
end
