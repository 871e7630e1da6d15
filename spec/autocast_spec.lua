-- Checks wane.autocast: the dtype that each op gets, the bytes of a step, and that casts of parameters are never kept.
-- Training under autocast must stay within a stated distance of f32, give the same bits under every policy, and agree
-- with PyTorch.
local helper = require 'spec.helper'
local gpt = require 'spec.support.gpt'
local gradcheck = require 'spec.support.gradcheck'
local op = require 'wane.tensor.op'
local torch = require 'spec.fixtures.torch_autocast'
local ways = require 'spec.support.ways'
local wane = helper.wane
local nn, policy = wane.nn, wane.policy

local bytes, record = gradcheck.bytes, op.record
local EPSILON = 2 ^ -8 -- half the step of a bf16 near 1

-- ---- the rules of autocast --------------------------------------------------------------------------------------

describe('wane.autocast', function()
    local x, half = wane.randn(4, 6):retain(), wane.randn(4, 6):to 'bf16':retain()
    local w, bias = wane.randn(5, 6, { requires_grad = true }), wane.randn(5, { requires_grad = true })

    local function dtype_of(fn, ...)
        return wane.autocast('bf16', fn, ...).dtype
    end

    it('multiplies in bf16', function()
        assert.equal('bf16', dtype_of(nn.Linear(6, 5), x))
        assert.equal('bf16', dtype_of(nn.Linear(6, 5, { bias = false }), half))
        assert.equal('bf16', dtype_of(x.matmul, x, x, { transpose_b = true }))
        assert.equal('bf16', dtype_of(x.matmul, half, x, { transpose_b = true }))
        assert.equal('bf16', dtype_of(record, 'linear', { x, w, bias }))
        local y = wane.autocast('bf16', record, 'linear', { x, w, bias })
        assert.equal(bytes(record('linear', { x:to 'bf16', w:to 'bf16', bias:to 'bf16' })), bytes(y))
    end)

    it('sums, norms and loses in f32', function()
        for _, name in ipairs { 'sum', 'mean' } do
            assert.equal('f32', dtype_of(half[name], half, 2), name)
            assert.equal('f32', dtype_of(half[name], half), name)
        end
        for _, name in ipairs { 'softmax', 'log_softmax' } do
            local y = wane.autocast('bf16', half[name], half, -1)
            assert.equal('f32', y.dtype, name)
            assert.equal(bytes(half:to('f32')[name](half:to 'f32', -1)), bytes(y))
        end
        local labels = wane.tensor({ 0, 1, 2, 3 }, { dtype = 'i32' })
        assert.equal('f32', dtype_of(nn.LayerNorm(6), half))
        assert.equal('f32', dtype_of(nn.RMSNorm(6), half))
        assert.equal('f32', dtype_of(nn.cross_entropy, half, labels))
        assert.equal('f32', dtype_of(nn.nll_loss, half, labels))
        assert.equal('f32', dtype_of(nn.mse_loss, half, x))
        assert.equal(nn.mse_loss(half:to 'f32', x):item(), wane.autocast('bf16', nn.mse_loss, half, x):item())
        local norm = nn.RMSNorm(6)
        assert.equal(bytes(norm(half:to 'f32')), bytes(wane.autocast('bf16', norm, half)))
    end)

    it('promotes bf16 where it meets f32', function()
        for _, name in ipairs { 'add', 'sub', 'mul', 'div', 'pow', 'maximum', 'minimum' } do
            assert.equal('f32', dtype_of(x[name], x, half), name)
            assert.equal('f32', dtype_of(x[name], half, x), name)
            assert.equal('bf16', dtype_of(x[name], half, half), name)
            assert.equal('bf16', dtype_of(x[name], half, 2), name)
            assert.equal(bytes(x[name](half:to 'f32', x)), bytes(wane.autocast('bf16', x[name], half, x)))
        end
        assert.equal('u8', dtype_of(x.lt, x, half))
        assert.equal('f32', dtype_of(wane.where, x:gt(0), x, half))
        assert.equal('f32', dtype_of(function() return half + x end))
        assert.equal('f32', dtype_of(wane.cat, { half, half, half, half, half, x }))
        assert.equal('bf16', dtype_of(wane.stack, { half, half }))
        helper.refused(nil, function() wane.autocast('bf16', function() return half + x:to 'f64' end) end, ':to')
    end)

    it('leaves the rest in the dtype of its input', function()
        for _, name in ipairs { 'gelu', 'relu', 'exp', 'neg', 't', 'max' } do
            assert.equal('bf16', dtype_of(half[name], half), name)
            assert.equal('f32', dtype_of(x[name], x), name)
        end
        assert.equal('bf16', dtype_of(nn.Dropout(0.5), half))
        assert.equal('f32', dtype_of(nn.Embedding(7, 3), wane.tensor({ 1, 2 }, { dtype = 'i32' })))
        assert.equal('f64', dtype_of(function() return x:to('f64'):matmul(x:to('f64'):t()) end))
        assert.equal('bf16', dtype_of(nn.Attention(8, 2, { rope = true, kv_heads = 1 }), wane.randn(2, 5, 8)))
    end)

    it('is off outside, under f32 inside, and after an error', function()
        local layer = nn.Linear(6, 5)
        local inside, off
        wane.autocast('bf16', function()
            off = wane.autocast('f32', layer, x)
            inside = wane.autocast('bf16', layer, x)
            assert.equal('bf16', layer(x).dtype)
        end)
        assert.equal('f32', off.dtype)
        assert.equal('bf16', inside.dtype)
        assert.equal('f32', layer(x).dtype)
        helper.refused(nil, function() wane.autocast('bf16', function() error 'stop' end) end, 'stop')
        assert.equal('f32', layer(x).dtype)
        assert.same({ 1, nil, 3 }, { wane.autocast('bf16', function(...) return ... end, 1, nil, 3) })
    end)

    it('says what it accepts', function()
        local words = "expected 'bf16', or 'f32' for none, got "
        helper.refused(nil, function() wane.autocast('f16', print) end, words .. "'f16'")
        helper.refused(nil, function() wane.autocast() end, words .. 'nil')
        helper.refused(nil, function() wane.autocast('bf16', 3) end, 'expected a function, got 3')
    end)

    it('has a plan of its own, and the same numbers in turns with none', function()
        local layer = nn.Linear(6, 5)
        local plain, low = bytes(layer(x)), bytes(wane.autocast('bf16', layer, x))
        for _ = 1, 4 do
            assert.equal(plain, bytes(layer(x)))
            assert.equal(low, bytes(wane.autocast('bf16', layer, x)))
        end
    end)

    it('casts a value once a program, but not across no_grad', function()
        local leaf = wane.randn(4, 6, { requires_grad = true })
        local a, b = nn.Linear(6, 5), nn.Linear(6, 5)
        local loss = wane.autocast('bf16', function()
            local v = leaf * 2
            wane.no_grad(function() return a(v) end)
            return (a(v) + b(v)):sum()
        end)
        local plan = wane.plan(function() return loss end)
        local casts = 0
        for _, r in ipairs(plan:residuals()) do casts = casts + (r.op == 'cast' and 1 or 0) end
        assert.equal(1, casts)
        loss:backward()
        assert.is_truthy(leaf.grad)
        assert(leaf.grad:abs():sum():item() > 0)
    end)
end)

-- ---- what autocast costs, and what it may not change --------------------------------------------------------------

-- Returns a network without norms, its loss under autocast, and the set of the shapes of its parameters as text.
local function network()
    wane.manual_seed(21)
    local model = nn.Sequential { nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 80), nn.ReLU(), nn.Linear(80, 80),
        nn.Tanh(), nn.Linear(80, 10) }
    local x, labels = wane.eval(wane.randn(40, 24), wane.randint(10, { 40 }))
    local shapes = {}
    for _, p in ipairs(model:parameters()) do shapes[tostring(p.shape)] = true end
    return model, function()
        return wane.autocast('bf16', function() return nn.cross_entropy(model(x), labels) end)
    end, shapes
end

describe('a parameter cast by autocast', function()
    it('is no residual, and save_all keeps nothing of it', function()
        local model, loss, shapes = network()
        local kept, half = 0, 0
        local asked = {}
        local function ask(r)
            asked[#asked + 1] = r.op .. ' ' .. r.dtype .. ' (' .. table.concat(r.shape, ', ') .. ')'
            return 'save'
        end
        local plan = wane.plan(loss, { policy = ask })
        for _, r in ipairs(plan:residuals()) do
            local shape = '(' .. table.concat(r.shape, ', ') .. ')'
            assert(not shapes[shape], 'a residual has the shape of a parameter: ' .. r.op .. ' ' .. shape)
            kept, half = kept + r.bytes, half + (r.dtype == 'bf16' and 1 or 0)
        end
        for _, name in ipairs(asked) do assert(not shapes[name:match '%(.*%)'], 'a policy was asked about ' .. name) end
        -- Five residuals are bf16: x as the first product reads it, what gelu reads, and what gelu, relu and tanh make.
        assert.equal(5, half)
        -- After the forward there are the states, the inputs and the residuals, and no byte more; the loss is a number.
        plan = wane.plan(loss, { policy = 'save_all' })
        assert.equal(plan.activation_bytes, kept)
        assert.equal(plan.at.before + kept, plan.at.after_forward)
        -- The backward issues again just the casts of weights that a gradient of an input reads.
        assert.equal(3, plan.recomputed)
        assert(#model:parameters() == 8)
    end)

    it('is issued again for each part of the forward that a script shares it with', function()
        local w = wane.randn(64, 64, { requires_grad = true })
        local x = wane.eval(wane.randn(8, 64, { dtype = 'bf16' }))
        local function loss()
            local low = w:to 'bf16'
            local y = x
            for _ = 1, 4 do y = wane.checkpoint(function(v) return v:matmul(low):tanh() end, y) end
            return y:sum()
        end
        local first
        for _, way in ipairs { 'save_all', 'recompute_all' } do
            local plan = wane.plan(loss, { policy = way })
            local kept = 0
            for _, r in ipairs(plan:residuals()) do
                assert.is_not.equal('cast', r.op)
                kept = kept + r.bytes
            end
            if way == 'save_all' then assert.equal(plan.at.before + kept, plan.at.after_forward) end
            w.grad = nil
            loss():backward { policy = way }
            first = first or bytes(w.grad)
            assert(first == bytes(w.grad))
            local m = wane.measure(loss, { steps = 2, policy = way })
            assert.equal(m.predicted_peak, m.peak)
        end
        -- A cast that a script asks for is a value like any other.
        local low = w:to 'bf16'
        wane.eval(low, low:sum())
        assert.equal('bf16', low.dtype)
        assert.equal(bytes(w:to 'bf16'), bytes(low))
    end)

    it('serves an update that reads it', function()
        local p = nn.Parameter(wane.randn(16))
        local q = nn.Parameter(wane.zeros(16, { dtype = 'bf16' }))
        q:assign(p:to 'bf16')
        assert.equal(bytes(p:to 'bf16'), bytes(q))
    end)
end)

-- ---- training -----------------------------------------------------------------------------------------------------

describe('training under autocast', function()
    local STEPS = 30
    local plain = ways.train(gpt.world, {}, STEPS)
    local low = ways.train(gpt.world, { autocast = true }, STEPS)

    it('of a small GPT follows f32 within 3 in 1,000, in fewer bytes', function()
        local first, last = low.numbers[1], low.numbers[STEPS]
        assert(last < 0.8 * first, ('the loss went from %g to %g'):format(first, last))
        for _, k in ipairs { 1, STEPS } do
            local have, want = low.numbers[k], plain.numbers[k]
            assert(math.abs(have - want) < 0.003 * want, ('%g, in f32 %g'):format(have, want))
        end
        assert(low.losses[1] ~= plain.losses[1], 'autocast did nothing')
        for k, state in ipairs(low.states) do assert.equal(#plain.states[k], #state) end -- f32 too
        assert(low.peak < plain.peak, ('%d, in f32 %d'):format(low.peak, plain.peak))
    end)

    it('gives the same bits in every way', function()
        local function make(way)
            way.autocast = true
            return gpt.world(way)
        end
        ways.same(make, { { marks = 'regions' }, { marks = 'nested', policy = 'recompute_all' },
            { policy = policy.by_type { Attention = 'recompute', default = 'save' }, lines = true } })
    end)

    it('agrees with PyTorch within what bf16 can tell apart', function()
        local model = nn.Sequential { nn.Linear(torch.inputs, torch.hidden), nn.GELU(), nn.LayerNorm(torch.hidden),
            nn.Linear(torch.hidden, torch.hidden), nn.ReLU(), nn.Linear(torch.hidden, torch.outputs) }
        local list = model:parameters()
        assert.equal(#torch.parameters, #list)
        for k, p in ipairs(list) do p:assign(wane.tensor(torch.parameters[k].value):reshape(p.shape)) end
        local x = wane.tensor(torch.x):reshape(torch.batch, torch.inputs)
        local labels = wane.tensor(torch.labels, { dtype = 'i32' })
        local hidden, logits, loss = wane.autocast('bf16', function()
            local hidden = model[1](x)
            local logits = model(x)
            return hidden, logits, nn.cross_entropy(logits, labels)
        end)
        loss:backward()
        assert.same(torch.dtypes, { linear = hidden.dtype, logits = logits.dtype, loss = loss.dtype,
            grad = list[1].grad.dtype })
        local function near(have, want, what)
            local scale = 0
            for _, v in ipairs(want) do scale = math.max(scale, math.abs(v)) end
            have = gradcheck.values(have:reshape(-1):to 'f32')
            for k, v in ipairs(want) do
                assert(math.abs(have[k] - v) <= 2 * EPSILON * scale,
                    ('%s, element %d: %.9g, PyTorch %.9g'):format(what, k, have[k], v))
            end
        end
        near(logits, torch.logits, 'logits')
        assert(math.abs(loss:item() - torch.loss) < 1e-3 * torch.loss, ('%.9g, PyTorch %.9g'):format(loss:item(),
            torch.loss))
        for k, p in ipairs(list) do near(p.grad, torch.parameters[k].grad, 'gradient ' .. k) end
        assert(math.abs(torch.loss - torch.loss_f32) > 1e-6, 'the fixture was not made under autocast')
    end)
end)
