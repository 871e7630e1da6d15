-- Checks gradients of gradients at work: gradient penalties, Hessian-vector products and an inner step of MAML, against
-- PyTorch's numbers (spec/fixtures/torch_gradients.py), a known Hessian and finite differences, and under every policy,
-- dtype, layout and optimizer.
local helper = require 'spec.helper'
local wane = helper.wane
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local fixture = require 'spec.fixtures.torch_gradients'
local record = require('wane.tensor.op').record
local nn, optim, policy = wane.nn, wane.optim, wane.policy

local LONG = os.getenv('WANE_SPEC_LONG') == '1'
local F64 = { dtype = 'f64' }

-- Returns sin(k + shift) / 2 for k = 1, 2 and so on, in the given shape, as the fixture makes them.
local function waves(shift, ...)
    local n, list = 1, {}
    for _, d in ipairs { ... } do n = n * d end
    for k = 1, n do list[k] = math.sin(k + shift) / 2 end
    return wane.tensor(list, F64):reshape(...)
end

local function learnt(shift, ...) return nn.Parameter(waves(shift, ...)) end

local function assert_near(have, want, what, tol)
    want.shape = { #want }
    assert(#have == #want and #want > 0, what)
    local wrong = gradcheck.differ(have, want, tol or 1e-12)
    assert(not wrong, ('%s: %s'):format(what, tostring(wrong)))
end

local function linear(x, w, b) return record('linear', { x, w, b }) end

describe('the second derivative', function()
    it('of p tanh(p) at 0.3 is 1.6703', function()
        for _, dtype in ipairs { 'f64', 'f32', 'bf16' } do
            local p = nn.Parameter(wane.tensor(0.3, { dtype = dtype }))
            local first = wane.grad(p * p:tanh(), p)
            local second = wane.grad(first, p)
            local tol = dtype == 'bf16' and 2e-2 or 2e-7
            assert(math.abs(second:to('f64'):item() - 1.6703193601928) <= tol, dtype .. ': ' .. tostring(second))
            first:backward()
            assert.equal(second:item(), p.grad:item())
        end
    end)

    it('of relu, abs and clamp is zero, and is given as zeros', function()
        local p = nn.Parameter(wane.tensor({ -1, 0.25, 2 }, F64))
        for _, f in ipairs { p.relu, p.abs, function(x) return x:clamp(-0.5, 0.5) end } do
            assert.same({ 0, 0, 0 }, wane.grad(wane.grad(f(p):sum(), p):sum(), p):totable())
        end
    end)

    it('of tanh, the third, the fourth and the fifth are their formulas', function()
        local x = nn.Parameter(wane.tensor(0.2, F64))
        local g, y = x:tanh(), math.tanh(0.2)
        local t = 1 - y * y
        local want = { t, -2 * y * t, (6 * y * y - 2) * t, (16 * y - 24 * y ^ 3) * t,
            (16 - 120 * y ^ 2 + 120 * y ^ 4) * t }
        for k = 1, 5 do
            g = wane.grad(g, x)
            assert(math.abs(g:retain():item() - want[k]) <= 1e-12 * (1 + math.abs(want[k])), 'order ' .. k)
        end
    end)
end)

describe('a gradient penalty', function()
    it('has PyTorch\'s loss and gradients', function()
        local w1, b1, w2 = learnt(0, 7, 3), learnt(1, 7), learnt(2, 1, 7)
        local x = learnt(3, 5, 3)
        local y = linear(linear(x, w1, b1):tanh(), w2, wane.zeros(1, F64))
        local g = wane.grad(y:sum(), x)
        local off = (g * g):sum(2):sqrt() - 1
        local loss = (off * off):mean()
        loss:backward()
        assert_near({ loss:item() }, { fixture.penalty.loss }, 'loss')
        for name, p in pairs { w1 = w1, b1 = b1, w2 = w2 } do
            assert_near(gradcheck.values(p.grad), fixture.penalty[name], name)
        end
    end)

    it('is trained by opt:step(loss) as by three lines, to the bit, of every type and layout', function()
        local function train(dtype, layout, fused)
            wane.manual_seed(9)
            local o = { dtype = dtype, layout = layout }
            local critic = nn.Sequential { nn.Linear(8, 48, o), nn.GELU(), nn.LayerNorm(48, { dtype = dtype }),
                nn.Linear(48, 48, o), nn.SiLU(), nn.Linear(48, 1, o) }
            local opt, out = optim.AdamW(critic:parameters(), { lr = 1e-2 }), {}
            for _ = 1, 3 do
                local x = nn.Parameter(wane.randn(6, 8, { dtype = dtype }))
                local y = critic(x)
                local g = wane.grad(y:sum(), x)
                local off = (g * g):sum(2):sqrt() - 1
                local loss = (off * off):mean() * 10 - y:mean()
                if fused then
                    opt:step(loss)
                else
                    opt:zero_grad()
                    loss:backward()
                    opt:step()
                end
                out[#out + 1] = gradcheck.bytes(loss)
            end
            for _, p in ipairs(critic:parameters()) do out[#out + 1] = gradcheck.bytes(p) end
            return table.concat(out, '|'), gradcheck.values(critic[1].weight:to 'f64')
        end
        for _, dtype in ipairs { 'f32', 'bf16', 'f64' } do
            local lines, numbers = train(dtype, nil, false)
            assert(lines == train(dtype, nil, true), dtype .. ': opt:step(loss) has other bits')
            local _, plain = train(dtype, 'plain', true)
            plain.shape = { #plain }
            local wrong = gradcheck.differ(numbers, plain, dtype == 'f64' and 1e-12 or dtype == 'f32' and 1e-4 or 5e-2)
            assert(not wrong, dtype .. ', weights in rows: ' .. tostring(wrong))
        end
    end)
end)

describe('a Hessian-vector product', function()
    it('is that of a known Hessian', function()
        local n = 6
        local a, c, v = waves(0, n, n), waves(1, n), waves(2, n)
        local x = learnt(3, n)
        -- The Hessian of f = x' A x / 2 + sum(c x^3) is (A + A') / 2 + 6 diag(c x).
        local f = (x:reshape(1, n):matmul(a) * x:reshape(1, n)):sum() * 0.5 + (c * x * x * x):sum()
        local have = gradcheck.values(wane.grad((wane.grad(f, x) * v):sum(), x))
        local A, C, V, X = gradcheck.values(a), gradcheck.values(c), gradcheck.values(v), gradcheck.values(x)
        local want = {}
        for i = 1, n do
            want[i] = 6 * C[i] * X[i] * V[i]
            for j = 1, n do want[i] = want[i] + (A[(i - 1) * n + j] + A[(j - 1) * n + i]) / 2 * V[j] end
        end
        assert_near(have, want, 'H v')
    end)

    -- Returns the loss of a network in which every layer has its own second derivative.
    local function network(x, w)
        local h = nn.GELU()(linear(x, w[1], w[2]))
        h = (h:reshape(2, 3, 12):softmax(-1) + h:reshape(2, 3, 12):sigmoid()):log_softmax(2)
        h = record('attention', { h }, { i = { 2, 1, 1 }, f = { 0, 0.7 } })
        h = h:narrow(3, 2, 4):silu() * w[3] + h:narrow(3, 1, 4):max(2, { keepdim = true })
        return ((h * h):mean(-1) + 1e-3):rsqrt():sum() + nn.cross_entropy(h:reshape(6, 4),
            wane.tensor({ 0, 3, 1, 2, 2, 0 }, { dtype = 'i32' }))
    end

    it('of a network is the slope of its gradient along the vector', function()
        for seed = 0, LONG and 20 or 1 do
            local x = learnt(seed, 6, 5)
            local w = { learnt(seed + 1, 12, 5), learnt(seed + 2, 12), learnt(seed + 3, 4) }
            local v = waves(seed + 0.5, 6, 5)
            local have = gradcheck.values(wane.grad((wane.grad(network(x, w), x) * v):sum(), x))
            local start, h = x:detach():retain(), 1e-4
            wane.eval(start)
            local function gradient_at(step)
                x:assign(start + v * step)
                return gradcheck.values(wane.grad(network(x, w), x))
            end
            local up, down, up2, down2 = gradient_at(h), gradient_at(-h), gradient_at(2 * h), gradient_at(-2 * h)
            local want = {}
            for k = 1, #up do want[k] = (8 * (up[k] - down[k]) - (up2[k] - down2[k])) / (12 * h) end
            assert_near(have, want, 'seed ' .. seed, 1e-7)
        end
    end)
end)

describe('an inner step of MAML', function()
    local function loss_of(x, labels, w, b, v, norm)
        local h = norm(linear(x, w, b):gelu())
        return nn.cross_entropy(linear(h, v, wane.zeros(v.shape[1], { dtype = v.dtype })), labels)
    end

    local function step(dtype)
        local w, b, v = nn.Parameter(waves(0, 6, 4):to(dtype)), nn.Parameter(waves(1, 6):to(dtype)),
            nn.Parameter(waves(2, 3, 6):to(dtype))
        local labels = wane.tensor({ 0, 1, 2, 0, 1, 2, 0, 1 }, { dtype = 'i32' })
        local norm = nn.LayerNorm(6, { dtype = dtype })
        for _, p in ipairs(norm:parameters()) do p.requires_grad = false end
        local inner = wane.grad(loss_of(waves(3, 8, 4):to(dtype), labels, w, b, v, norm), { w, b, v })
        local fast = {}
        for k, p in ipairs { w, b, v } do fast[k] = p - inner[k] * 0.5 end
        return loss_of(waves(4, 8, 4):to(dtype), labels, fast[1], fast[2], fast[3], norm), { w = w, b = b, v = v }
    end

    it('has PyTorch\'s loss and outer gradients', function()
        local loss, learnt_by = step 'f64'
        loss:backward()
        assert_near({ loss:item() }, { fixture.maml.loss }, 'loss')
        for name, p in pairs(learnt_by) do assert_near(gradcheck.values(p.grad), fixture.maml[name], name, 1e-11) end
    end)

    it('has the same bits under every policy, and predicted bytes are the measured ones', function()
        for _, dtype in ipairs { 'f64', 'f32', 'bf16' } do
            local function run(chosen)
                local loss, learnt_by = step(dtype)
                local p = programs.run { mode = 'backward', roots = { loss }, policy = chosen and policy.of(chosen) }
                assert.same(p.predicted.kinds, p.measured.kinds)
                assert.equal(p.predicted.reserved, p.measured.reserved)
                p:close()
                return table.concat({ gradcheck.bytes(loss), gradcheck.bytes(learnt_by.w.grad),
                    gradcheck.bytes(learnt_by.b.grad), gradcheck.bytes(learnt_by.v.grad) }, '|')
            end
            local want = run(nil)
            for _, name in ipairs { 'save_all', 'recompute_all', 'every(1)' } do
                assert(run(name) == want, dtype .. ', ' .. name .. ': other bits')
            end
        end
    end)
end)

describe('a second derivative', function()
    -- Returns a gradient penalty of a network with dropout and norms, and the network; `mark` runs the network in three
    -- regions.
    local function make(mark)
        wane.manual_seed(4)
        local body = nn.Sequential { nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.25), nn.LayerNorm(32), nn.Linear(32, 32),
            nn.Tanh(), nn.RMSNorm(32), nn.Linear(32, 1) }
        return function()
            wane.manual_seed(5)
            local x = nn.Parameter(wane.randn(16, 8))
            local y = mark and wane.checkpoint_sequential(body, 3, x) or body(x)
            local g = wane.grad(y:sum(), x)
            return ((g * g):sum(2):sqrt() - 1):abs():mean() + (y * y):mean()
        end, body
    end

    local function bits(fn, body, opts)
        body:zero_grad()
        local loss = fn()
        loss:backward(opts)
        local out = { gradcheck.bytes(loss) }
        for _, p in ipairs(body:parameters()) do out[#out + 1] = gradcheck.bytes(p.grad) end
        return table.concat(out, '|')
    end

    it('has the same bits in regions and within every budget, down to the least', function()
        local want = bits(make())
        assert.equal(want, bits(make(true)))
        local fn, body = make()
        for _, name in ipairs { 'save_all', 'recompute_all', 'every(2)', 'segments(3)', 'binomial(2)' } do
            assert(bits(fn, body, { policy = name }) == want, name .. ': other bits')
        end
        body:zero_grad()
        local most, least = wane.plan(fn).reserved, wane.min_budget(fn)
        assert(least < most)
        for k = 0, LONG and 10 or 3 do
            local budget = math.ceil(least + (most - least) * k / (LONG and 10 or 3))
            assert(bits(fn, body, { budget = budget }) == want, ('%d B: other bits'):format(budget))
        end
    end)

    it('runs again with other numbers', function()
        local w = nn.Parameter(wane.tensor({ 0.5, -0.25 }, F64))
        local function step(v) return (wane.grad((w:tanh() * v):sum(), w) * v):sum() end
        for k = 1, 4 do
            local v = wane.tensor({ k, -k / 2 }, F64)
            local t = { 1 - math.tanh(0.5) ^ 2, 1 - math.tanh(-0.25) ^ 2 }
            local want = t[1] * k * k + t[2] * k * k / 4
            assert(math.abs(step(v):item() - want) <= 1e-12 * want)
        end
    end)
end)
