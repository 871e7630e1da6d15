-- Compares what PyTorch keeps of an op for its backward, the rows of lua/wane/pytorch/saves.lua, with Wane's own
-- gradients and with whole steps of one op in live PyTorch (committed fixtures). An op without a row must be named.
local helper = require 'spec.helper'
local wane = helper.wane
local binding = require 'wane.ffi'
local cases = require 'spec.cases'
local rows = require 'wane.pytorch.ops'
local saves = require 'wane.pytorch.saves'

describe('what an op saves (R3)', function()
    -- Returns what an elementwise op saves for an input that needs a gradient: '1' for the input, 'o' for the result.
    local function words(name)
        local out, inputs = {}, { { needs = true } }
        for _, save in ipairs(rows[name].saves) do
            if rows.is_saved(save, inputs, 'needs') then out[#out + 1] = save[1] == 'y' and 'o' or tostring(save[1]) end
        end
        return table.concat(out, ' ')
    end

    -- family and number of inputs of every op
    local ops, info = {}, binding.new 'struct wn_op_info'
    for name, more in helper.read('runtime/op.def'):gmatch '\nOP%([%u_%d]+, +([%l_%d]+),([^%)]+%))' do
        binding.check(binding.C.wn_op_get(binding.C.wn_op_id(name), info))
        ops[name] = { family = more:match '%d+, +%d+, +(%l+)', most = info.most }
    end
    -- A function that is one op in PyTorch is given its inputs by pytorch/graph.lua.
    local composites = { mse_loss = 2, nll = 4, scatter_add = 3, conv_transpose2d = 3 }
    it('is of an op that the accounting knows, and names no input that it does not have', function()
        local count = 0
        for name, row in pairs(saves) do
            assert(rows[name], name .. ' has a row in lua/wane/pytorch/saves.lua and none in ops.lua')
            local most = composites[name] or assert(ops[name], name .. ' is no op').most
            for _, save in ipairs(row) do
                for _, k in ipairs { save[1] ~= 'y' and save[1] or 1, save.when or 1, save.unless or 1 } do
                    assert(k <= math.max(most, 1), ('%s has %d inputs; input %d is saved'):format(name, most, k))
                end
            end
            count = count + 1
        end
        assert.is_true(count > 35)
    end)
    -- Tells a wrong row of an op that the fixture does not have.
    it('is what the gradient reads, for an elementwise op of one input', function()
        local bad, count = {}, 0
        for name, op in pairs(ops) do
            if op.family == 'unary' and op.most == 1 and rows[name] then
                local case, read = cases.records[name].cases[1], {}
                local p = wane.plan(function()
                    local v = wane.randn(3, 4, { requires_grad = true })
                    return (case.call(wane, v + 1):to 'f32' + 1):sum()
                end)
                for _, r in ipairs(p:residuals()) do
                    read[#read + 1] = r.op == name and 'o' or r.op == 'add' and '1' or nil
                end
                local want, got = table.concat(read, ' '), words(name)
                if got ~= want then
                    bad[#bad + 1] = ("%s: its gradient reads '%s', PyTorch saves '%s'"):format(name, want, got)
                end
                count = count + 1
            end
        end
        assert(#bad == 0, '\n' .. table.concat(bad, '\n'))
        assert.is_true(count > 20)
    end)
    it('is left out of an op that is unknown, which the plan names', function()
        local known = rows.gelu
        local function plan()
            return wane.plan(function()
                local v = wane.randn(1000, { requires_grad = true })
                return (v * 2):gelu():gelu():sum()
            end)
        end
        local at = plan():pytorch()
        assert.same({}, at.unknown)
        rows.gelu = nil
        local fine, less, text = pcall(function() return plan():pytorch(), tostring(plan()) end)
        rows.gelu = known
        assert(fine, less)
        assert.same({ { op = 'gelu', count = 2 } }, less.unknown)
        assert.equal(at.after_forward - 2 * 4096, less.after_forward) -- the two inputs that it saves
        assert.equal(at.before, less.before)
        assert.truthy(text:find('; unknown ops, whose bytes are left out: gelu (2)', 1, true), text)
    end)
end)

-- ---- operands of every kind ----------------------------------------------------------------------------------------
-- Compares the accounting of PyTorch's bytes for steps of one op with live PyTorch (spec/fixtures/torch_operands.lua,
-- written by torch_operands.py beside it), for every op that saves something and every kind of operand: data, a result
-- of ops that an earlier program computed, a parameter, a value of the step that needs a gradient or not, a value that
-- the script keeps.
local nn = wane.nn
local cells = dofile(helper.root .. '/spec/fixtures/torch_cells.lua')
local fixture = dofile(helper.root .. '/spec/fixtures/torch_operands.lua')
local B, I, O, V = fixture.B, fixture.I, fixture.O, fixture.V
local stages = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after_backward' }
local ids, tokens, labels

-- name -> shapes of its float operands, function that records it
local x = { B, I }
local function method(name, ...)
    local more = { ... }
    return { { x }, function(a) return a[name](a, unpack(more)) end }
end
local function layer_norm(a, w, b)
    local norm = nn.LayerNorm(I)
    norm.weight, norm.bias = w, b
    return norm(a)
end
local ops = {
    relu = method 'relu', gelu = method 'gelu', silu = method 'silu', tanh = method 'tanh', exp = method 'exp',
    sigmoid = method 'sigmoid', log = method 'log', sqrt = method 'sqrt', rsqrt = method 'rsqrt', abs = method 'abs',
    clamp = method('clamp', -1, 1), cast = method('to', 'bf16'), softmax = method('softmax', -1),
    log_softmax = method('log_softmax', -1), sum = method('sum', -1), mean = method('mean', -1),
    max = method('max', -1), min = method('min', -1), reshape = method('reshape', I, B),
    permute = method('permute', 2, 1), narrow = method('narrow', 2, 9, 16),
    neg = { { x }, function(a) return -a end },
    dropout = { { x }, function(a) return nn.Dropout(0.1)(a) end },
    more = { { x }, function(a) return a + 1 end },
    twice = { { x }, function(a) return a * 2 end },
    half = { { x }, function(a) return a / 2 end },
    cube = { { x }, function(a) return a ^ 3 end },
    square = { { x }, function(a) return a * a end },
    expand = { { { 1, I } }, function(a) return a:expand(B, I) end },
    gather = { { x }, function(a) return a:gather(2, ids) end },
    scatter_add = { { x, { B, 4 } }, function(a, b) return a:scatter_add(2, ids, b) end },
    embedding = { { { V, I } }, function(a)
        local layer = nn.Embedding(V, I)
        layer.weight = a
        return layer(tokens)
    end },
    nll_loss = { { x }, function(a) return nn.nll_loss(a, labels) end },
    cross_entropy = { { x }, function(a) return nn.cross_entropy(a, labels) end },
    add = { { x, x }, function(a, b) return a + b end },
    sub = { { x, x }, function(a, b) return a - b end },
    mul = { { x, x }, function(a, b) return a * b end },
    div = { { x, x }, function(a, b) return a / b end },
    pow = { { x, x }, function(a, b) return a ^ b end },
    maximum = { { x, x }, function(a, b) return a:maximum(b) end },
    minimum = { { x, x }, function(a, b) return a:minimum(b) end },
    mse_loss = { { x, x }, nn.mse_loss },
    cat = { { x, x }, function(a, b) return wane.cat({ a, b }, 1) end },
    shift = { { x, { I } }, function(a, b) return a + b end },
    scale = { { x, { I } }, function(a, b) return a * b end },
    divide = { { x, { I } }, function(a, b) return a / b end },
    matmul = { { x, { I, O } }, function(a, b) return a:matmul(b) end },
    bmm = { { { 3, B, I }, { 3, I, O } }, function(a, b) return a:matmul(b) end },
    linear = { { x, { O, I }, { O } }, function(a, w, b)
        local layer = nn.Linear(I, O)
        layer.weight, layer.bias = w, b
        return layer(a)
    end },
    layernorm = { { x, { I }, { I } }, layer_norm },
    where = { { x, x, x }, wane.where },
}

-- Bytes at a peak that PyTorch's kernels of the CPU take and those of CUDA do not, by op: at most, and at least.
local on_cpu = {
    gelu = { peak_backward = { 2048, 0 } }, -- oneDNN wants the gradient of sum written out
    max = { peak_backward = { 512, 512 } }, min = { peak_backward = { 512, 512 } }, -- the int64 count as f32
    layernorm = { peak_backward = { 1024, 0 } }, -- sums of the weight's and the bias's gradient for each thread
    dropout = { peak_forward = { 2048, 512 }, peak_backward = { 2048, 512 } }, -- the mask once more, as f32
    twice = { peak_backward = { 512, 0 } }, half = { peak_backward = { 512, 0 } }, -- the number, as f32
    bmm = { peak_backward = { 0, -2048 } }, -- cuBLAS wants the gradient of sum written out for all batches, not for one
    -- a cast of a parameter is taken for one of torch.autocast, which keeps its copy until the forward's end
    cast = { peak_forward = { 0, -512 } },
}

local function is_equal(name, stage, got, want)
    local more = (on_cpu[name] or {})[stage]
    if not more then return got == want end
    return want - got <= more[1] and want - got >= more[2]
end

-- Returns an operand that the script has before the step. is_held: its data was computed by an earlier program from
-- other values.
local function leaf(kind, shape, is_mask, is_held)
    local needs = kind:find '[PCR]' ~= nil
    local given = { unpack(shape) }
    given[#given + 1] = { requires_grad = needs }
    local t = wane.randn(unpack(given))
    if needs then return nn.Parameter(t) end -- layers take no other leaf
    if is_mask and kind == 'D' then t = t:gt(0) elseif is_held then t = t * 2 + 1 end
    return wane.eval(t)
end

local function operand(kind, t, is_mask)
    if is_mask then return kind == 'N' and t:gt(1) or t end
    if kind == 'D' or kind == 'P' then return t end
    return kind == 'R' and (-t):retain() or -t
end

local function account(name, kinds, in_region, is_held)
    local shapes, op = ops[name][1], ops[name][2]
    local leaves = {}
    for i = 1, #kinds do leaves[i] = leaf(kinds:sub(i, i), shapes[i], name == 'where' and i == 1, is_held) end
    return wane.plan(function()
        local args = {}
        for i, t in ipairs(leaves) do args[i] = operand(kinds:sub(i, i), t, name == 'where' and i == 1) end
        local out
        if in_region then
            out = wane.checkpoint(function(...) return -op(...) end, unpack(args))
        else
            out = op(unpack(args))
        end
        return out:sum()
    end):pytorch { torch = '1.10', reentrant = false, hold = { 'inputs', 'loss', 'retained' } }
end

describe('a step of one op has the bytes of PyTorch ' .. fixture.torch, function()
    setup(function()
        ids, tokens = wane.eval(wane.randint(I, { B, 4 })), wane.eval(wane.randint(V, { B, 4 }))
        labels = wane.eval(wane.randint(I, { B }))
    end)
    for name, wanted in pairs(fixture) do
        if type(wanted) == 'table' then
            it(name, function()
                local wrong = {}
                for key, want in pairs(wanted) do
                    local kinds, in_region = key:match '^%u+', key:match 'r$' ~= nil
                    for pass = 1, kinds:find 'D' and 2 or 1 do
                        local at = account(name, kinds, in_region, pass == 2)
                        for i, stage in ipairs(stages) do
                            if not is_equal(name, stage, at[stage], want[i]) then
                                wrong[#wrong + 1] = ('%s%s %s: %d, PyTorch %d'):format(key, pass == 2 and ' held' or '',
                                    stage, at[stage], want[i])
                            end
                        end
                    end
                end
                table.sort(wrong)
                assert.equal('', table.concat(wrong, '\n'))
            end)
        end
    end
end)

describe('what was there before a step', function()
    local n = 2048 -- bytes of x
    local function bytes_of(fn)
        return wane.plan(fn):pytorch { torch = '1.10', hold = { 'inputs', 'loss', 'retained' } }
    end

    it('counts before it, and for nothing in it: statistics and a mask of an earlier program', function()
        local data, p = wane.eval(wane.randn(B, I)), wane.randn(B, I, { requires_grad = true })
        local centred = wane.eval((data - data:mean()) / 3)
        local mask = wane.eval(data:gt(0))
        local at = bytes_of(function() return wane.where(mask, p * centred, centred):sum() end)
        assert.equal(n + n + 512, at.before) -- p, centred, the mask of a byte an element
        assert.equal(at.before + 512, at.after_forward)
        assert.equal(at.before + 2 * n, at.peak_forward)
    end)

    it('may come from regions: a step that reads it has none', function()
        local data = wane.eval(wane.randn(B, I))
        local outer, inner
        local top = wane.checkpoint(function(v)
            outer = v:exp():retain()
            local y = wane.checkpoint(function(u)
                inner = u:gt(0)
                return u:neg()
            end, outer)
            outer = (y * outer):retain()
            return outer
        end, data)
        wane.eval(top, inner)
        local p = wane.randn(B, I, { requires_grad = true })
        local at = bytes_of(function()
            return wane.checkpoint(function(v) return wane.where(inner, v:gelu(), outer) * 2 end, p):sum()
        end)
        assert.equal(n + n + 512, at.before)
        assert.equal(at.before + 512, at.after_forward)
    end)

    it('holds what its ops saved when it still needs a gradient', function()
        local p = wane.randn(B, I, { requires_grad = true })
        local whole = bytes_of(function() return (p:gelu() * 2):gelu():retain():exp():sum() end)
        local held = (p:gelu() * 2):gelu()
        wane.eval(held)
        local rest = bytes_of(function() return held:exp():sum() end)
        assert.equal(n + 2 * n, rest.before) -- p, what gelu saved, what is held
        for _, stage in ipairs { 'after_forward', 'peak_forward', 'peak_backward', 'after_backward' } do
            assert.equal(whole[stage], rest[stage], stage)
        end
    end)

    it('is a tensor the function did not create', function()
        local p, outside = wane.randn(B, I, { requires_grad = true }), wane.randn(B, I)
        local before = bytes_of(function() return (p + outside):exp():sum() end)
        local within_ = bytes_of(function() return (p + wane.randn(B, I)):exp():sum() end)
        assert.equal(before.before - n, within_.before)
        assert.equal(before.after_forward - n, within_.after_forward)
        assert.equal(before.peak_forward - n, within_.peak_forward) -- it goes when it is read
    end)
end)

describe('cells over six slices of one input', function()
    local height, steps, d = 32, 6, 64 -- torch_cells.py beside the fixture says what a step is
    local Cell = nn.module('Cell', function(self, kind)
        self.kind, self.wx, self.wh = kind, nn.Linear(d, d), nn.Linear(d, d)
        self.w, self.u = nn.Parameter(wane.randn(d)), nn.Parameter(wane.randn(d))
    end)
    function Cell:forward(slice, h)
        local a = slice
        if self.kind == 'numbers' then a = slice * self.w end
        if self.kind == 'linear' or self.kind == 'input' then a = self.wx(slice) end
        if h == nil then return a:tanh() end
        if self.kind == 'numbers' then h = h * self.u end
        if self.kind == 'linear' or self.kind == 'state' then h = self.wh(h) end
        return (a + h):tanh()
    end

    for _, row in ipairs(cells) do
        local kind, first, is_computed, is_region, after, peak = unpack(row)
        it(('take what PyTorch %s takes: %s, first h %s, x of %s%s'):format(cells.torch, kind, first, is_computed
            and 'a layer' or 'data', is_region and ', in regions' or ''), function()
            local cell, layer, there = Cell(kind), nn.Linear(d, d), wane.eval(wane.zeros(height, d))
            local data = wane.eval(wane.randn(height, steps, d))
            local at = wane.plan(function()
                local slices, h = is_computed and layer(data) or data, nil
                if first ~= 'none' then h = first == 'there' and there or wane.zeros(height, d) end
                for t = 1, steps do
                    local slice = slices:select(2, t)
                    h = is_region and wane.checkpoint(cell, slice, h) or not is_region and cell(slice, h)
                end
                return h:sum()
            end):pytorch { warm = true, reentrant = false }
            assert.equal(after, at.after_forward - at.before)
            assert.equal(peak, at.peak_forward - at.before)
        end)
    end
end)
