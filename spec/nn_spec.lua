-- Compares layers, losses and modules with plain Lua arithmetic in double precision. Other specs check what a policy
-- sees of them.
local wane = require 'wane'
local module = require 'wane.module'
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

local function dims(t)
    local list = {}
    for k, v in ipairs(t.shape) do list[k] = v end
    return list
end

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

local function softmax(row, n)
    local out, total, top = {}, 0, -math.huge
    for k = 1, n do top = math.max(top, row[k]) end
    for k = 1, n do
        out[k] = math.exp(row[k] - top)
        total = total + out[k]
    end
    for k = 1, n do out[k] = out[k] / total end
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

describe('nn.Attention', function()
    -- Returns plain attention of one batch entry, from the projected rows y (T, columns).
    local function attend(y, heads, kv, hd, causal)
        local t, out = #y, {}
        for i = 1, t do
            out[i] = {}
            for h = 1, heads do
                local g = math.floor((h - 1) / (heads / kv))
                local seen = causal and i or t
                local scores = {}
                for j = 1, seen do
                    local dot = 0
                    for c = 1, hd do
                        dot = dot + y[i][(h - 1) * hd + c] * y[j][heads * hd + g * hd + c]
                    end
                    scores[j] = dot / math.sqrt(hd)
                end
                local p = softmax(scores, seen)
                for c = 1, hd do
                    local sum = 0
                    for j = 1, seen do sum = sum + p[j] * y[j][(heads + kv) * hd + g * hd + c] end
                    out[i][(h - 1) * hd + c] = sum
                end
            end
        end
        return out
    end

    local function check(opts, causal, kv)
        local d, heads = 8, 4
        local m = nn.Attention(d, heads, opts)
        local x = wane.randn(2, 5, d)
        local got, rows = m(x):totable(), x:totable()
        for b = 1, 2 do
            local y = linear(rows[b], m.qkv.weight:totable(), m.qkv.bias:totable())
            local o = attend(y, heads, kv, d / heads, causal)
            near_table(linear(o, m.out.weight:totable(), m.out.bias:totable()), got[b], 1e-5)
        end
    end

    before_each(function() wane.manual_seed(11) end)

    it('looks back only where it is causal', function() check({ causal = true }, true, 4) end)
    it('looks everywhere without causal', function() check({}, false, 4) end)
    it('shares key and value heads', function() check({ kv_heads = 2, causal = true }, true, 2) end)
    it('shares one key and value head', function() check({ kv_heads = 1 }, false, 1) end)

    it('never reads the future', function()
        local m = nn.Attention(8, 2, { rope = true, causal = true })
        local x = wane.randn(1, 6, 8)
        local changed = wane.cat({ x:narrow(2, 1, 4), x:narrow(2, 5, 2) + 1 }, 2)
        local a, b = m(x):totable(), m(changed):totable()
        for i = 1, 4 do assert.are.same(a[1][i], b[1][i]) end
        assert.are_not.same(a[1][5], b[1][5])
    end)

    it('with rope depends on distance, not on position', function()
        local m = nn.Attention(4, 1, { rope = 100 })
        -- The rows are equal, and every score depends on distance only, so all weights of a row of equal values give
        -- that value.
        local x = wane.ones(1, 3, 4)
        local y = m(x):totable()
        near_table(y[1][1], y[1][3], 1e-5)
    end)

    it('gives gradients to all of its parameters', function()
        local m = nn.Attention(8, 4, { causal = true, kv_heads = 2, dropout = 0.1, rope = true })
        m(wane.randn(2, 3, 8)):sum():backward()
        for name, p in m:named_parameters() do
            assert.is_truthy(p.grad, name)
            assert.are.same(dims(p), dims(p.grad))
        end
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

    it('sum the gradients of tied uses', function()
        local m = Tiny(7, 4)
        local ids = wane.tensor({ { 1, 2, 3 } }, { dtype = 'i32' })
        nn.cross_entropy(m(ids), wane.tensor({ { 2, 3, 4 } }, { dtype = 'i32' })):backward()
        local g = m.embed.weight.grad:totable()
        -- The id 6 is never looked up, so its gradient comes through the head alone.
        local sum = 0
        for _, v in ipairs(g[7]) do sum = sum + math.abs(v) end
        assert.is_true(sum > 0)
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
