-- Compares optimizers with PyTorch's formulas written in plain Lua: five steps on the loss sum(c * p^2 + p), whose
-- gradient is 2 c p + 1, so the expected gradients do not come from the library.
local helper = require 'spec.helper'
local wane = require 'wane'
local gradcheck = require 'spec.support.gradcheck'
local ways = require 'spec.support.ways'
local nn, optim = wane.nn, wane.optim

local START = { 0.5, -1.25, 2, 0.125 }
local COEFFICIENT = { 1, 0.5, -0.25, 3 }

local function near_table(want, got, tolerance) gradcheck.near(want, got, tolerance or 1e-5) end

local function loss_of(p)
    return (wane.tensor(COEFFICIENT) * p * p + p):sum()
end

local function gradient(values)
    local g = {}
    for k, v in ipairs(values) do g[k] = 2 * COEFFICIENT[k] * v + 1 end
    return g
end

local function copy(list)
    local c = {}
    for k, v in ipairs(list) do c[k] = v end
    return c
end

-- Returns one element of PyTorch's SGD after a step: parameter p, gradient g, options o; s is the state of the element.
local function sgd(p, g, s, o)
    g = g + o.weight_decay * p
    if o.momentum ~= 0 then
        if s.buf == nil then s.buf = g else s.buf = o.momentum * s.buf + (1 - o.dampening) * g end
        g = o.nesterov and g + o.momentum * s.buf or s.buf
    end
    return p - o.lr * g
end

local function adam(p, g, s, o)
    s.t = (s.t or 0) + 1
    if o.decoupled then p = p - o.lr * o.weight_decay * p else g = g + o.weight_decay * p end
    s.m = o.beta1 * (s.m or 0) + (1 - o.beta1) * g
    s.v = o.beta2 * (s.v or 0) + (1 - o.beta2) * g * g
    local m, v = s.m / (1 - o.beta1 ^ s.t), s.v / (1 - o.beta2 ^ s.t)
    return p - o.lr * m / (math.sqrt(v) + o.eps)
end

local function reference(rule, o, steps, change)
    local values, states = copy(START), { {}, {}, {}, {} }
    for step = 1, steps do
        if change then change(o, step) end
        local g = gradient(values)
        for k = 1, #values do values[k] = rule(values[k], g[k], states[k], o) end
    end
    return values
end

local function settings(given, defaults)
    local o = {}
    for k, v in pairs(defaults) do o[k] = v end
    for k, v in pairs(given) do o[k] = v end
    return o
end

local SGD = { lr = 1e-3, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0 }
local ADAM = { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0 }

local function parameter()
    return nn.Parameter(wane.tensor(START))
end

local function train(opt, p, is_lines)
    ways.step({ opt }, function() return loss_of(p) end, { lines = is_lines })
end

-- Checks that opt:step() and opt:step(loss) give the reference, and equal bits.
local function check(make, given, defaults, rule, change)
    local want = reference(rule, settings(given, defaults), 5, change)
    local results = {}
    for which, is_lines in ipairs { true, false } do
        local p = parameter()
        local opt = make({ p }, given)
        for k = 1, 5 do
            if change then change(opt, k) end
            train(opt, p, is_lines)
        end
        results[which] = p:totable()
        near_table(want, results[which])
    end
    assert.are.same(results[1], results[2])
end

describe('optim.SGD', function()
    local cases = {
        plain = { lr = 0.1 },
        ['with weight decay'] = { lr = 0.1, weight_decay = 0.05 },
        ['with momentum'] = { lr = 0.05, momentum = 0.9 },
        ['with momentum and dampening'] = { lr = 0.05, momentum = 0.9, dampening = 0.3 },
        ['with Nesterov momentum and weight decay'] = { lr = 0.05, momentum = 0.8, nesterov = true,
            weight_decay = 0.1 },
    }
    for name, given in pairs(cases) do
        it(name, function() check(optim.SGD, given, SGD, sgd) end)
    end
end)

describe('optim.Adam and optim.AdamW', function()
    it('follow their formulas', function()
        check(optim.Adam, { lr = 0.1 }, ADAM, adam)
        check(optim.Adam, { lr = 0.1, weight_decay = 0.2 }, ADAM, adam)
        check(optim.AdamW, { lr = 0.1, weight_decay = 0.2 }, settings({ decoupled = true }, ADAM), adam)
        check(optim.AdamW, { lr = 0.1 }, settings({ decoupled = true, weight_decay = 0.01 }, ADAM), adam)
    end)

    it('take betas and eps', function()
        local p = parameter()
        local opt = optim.AdamW({ p }, { lr = 0.1, betas = { 0.5, 0.75 }, eps = 1e-3 })
        for _ = 1, 5 do train(opt, p) end
        local o = { lr = 0.1, beta1 = 0.5, beta2 = 0.75, eps = 1e-3, weight_decay = 0.01, decoupled = true }
        near_table(reference(adam, o, 5), p:totable())
    end)
end)

describe('a step', function()
    it('leaves alone, and does not count, what the loss does not reach', function()
        local p, q = parameter(), parameter()
        local opt = optim.AdamW({ p, q }, { lr = 0.1, weight_decay = 0.5 })
        opt:step(loss_of(p))
        assert.are.same(START, q:totable())
        opt:step(loss_of(p) + loss_of(q))
        local o = settings({ lr = 0.1, weight_decay = 0.5, decoupled = true }, ADAM)
        near_table(reference(adam, o, 2), p:totable())
        near_table(reference(adam, o, 1), q:totable())
    end)

    it('is not counted when it failed', function()
        local p = parameter()
        local opt = optim.Adam({ p }, { lr = 0.1 })
        train(opt, p)
        wane.memory.limit(256)
        helper.refused('oom', function() train(opt, p) end)
        wane.memory.limit(0)
        train(opt, p)
        near_table(reference(adam, settings({ lr = 0.1 }, ADAM), 2), p:totable())
    end)

    it('needs a gradient', function()
        local opt = optim.SGD({ parameter() }, { lr = 0.1 })
        helper.refused(nil, function() opt:step() end, 'optim.SGD: step: no parameter has a gradient')
    end)
end)

-- ---- what PyTorch does ----------------------------------------------------------------------------------------------
local fixture = require 'spec.fixtures.torch_optim'

-- Runs the steps of the fixture; returns the norms, then both parameters.
local function clipped_run(make, step)
    local p, q = parameter(), nn.Parameter(wane.tensor { { 3, -1 } })
    local opt = make { p, q }
    local rate = optim.schedule.cosine(fixture.lr, { steps = fixture.steps, warmup = fixture.warmup,
        least = fixture.least })
    local norms = {}
    for k = 1, fixture.steps do
        opt.lr = rate(k)
        norms[k] = step(opt, { p, q }, loss_of(p) + (q * q + q):sum())
    end
    return norms, p:totable(), q:totable()[1]
end

local function by_hand(opt, params, loss)
    opt:zero_grad()
    loss:backward()
    local norm = optim.clip_grad_norm(params, 2):item()
    opt:step()
    return norm
end

local function by_option(opt, _, loss)
    opt:step(loss)
end

describe('optim.schedule', function()
    for _, kind in ipairs { 'constant', 'cosine', 'linear' } do
        it(kind .. ' gives the rates of PyTorch', function()
            local opts = { steps = fixture.steps, warmup = fixture.warmup, least = fixture.least }
            if kind == 'constant' then opts = { warmup = fixture.warmup } end
            local rate, got = optim.schedule[kind](fixture.lr, opts), {}
            for k = 1, fixture.steps do got[k] = rate(k) end
            near_table(fixture[kind], got, 1e-9)
        end)
    end

    it('needs no warmup, and stays at its end', function()
        local rate = optim.schedule.cosine(1, { steps = 4, least = 0.5 })
        near_table({ 1, 0.5 + 0.25 * (1 + math.cos(math.pi / 4)), 0.75 }, { rate(1), rate(2), rate(3) }, 1e-12)
        near_table({ 0.5, 0.5 }, { rate(5), rate(1000) }, 1e-12)
        assert.equal(3, optim.schedule.constant(3)(1))
        local line = optim.schedule.linear(1, { steps = 2 })
        near_table({ 1, 0.5, 0 }, { line(1), line(2), line(3) }, 1e-12)
    end)

    it('refuses what is none', function()
        for _, case in ipairs {
            { 'steps', function() optim.schedule.cosine(1) end },
            { 'all warmup', function() optim.schedule.linear(1, { steps = 3, warmup = 3 }) end },
            { "'steps'", function() optim.schedule.cosine(1, { step = 3 }) end },
            { "'steps'", function() optim.schedule.constant(1, { steps = 3 }) end },
            { 'lr', function() optim.schedule.constant(-1) end },
            { 'least = 2', function() optim.schedule.linear(1, { steps = 3, least = 2 }) end },
            { 'integer', function() optim.schedule.linear(1, { steps = 2.5 }) end },
            { 'the step', function() optim.schedule.constant(1)(0) end },
            { 'the step', function() optim.schedule.constant(1)(0 / 0) end },
            { "'cosine'", function() return optim.schedule.cosin end },
        } do
            local e = helper.refused('value', function() case[2]() end)
            -- The message may quote a name or not.
            assert.is_truthy(e.message:find(case[1], 1, true) or e.message:find(case[1]:gsub("'", ''), 1, true),
                e.message)
        end
    end)
end)

describe('optim.clip_grad_norm', function()
    it('scales all gradients together and returns the norm', function()
        local p, q = parameter(), parameter()
        ;(loss_of(p) + (q * 2):sum()):backward()
        local square = 0
        for _, v in ipairs(gradient(START)) do square = square + v * v end
        square = square + 4 * 4
        local norm = optim.clip_grad_norm({ p, q }, 0.5)
        assert.is_true(math.abs(norm:item() - math.sqrt(square)) < 1e-5)
        local want = {}
        for k, v in ipairs(gradient(START)) do want[k] = v * 0.5 / (math.sqrt(square) + 1e-6) end
        near_table(want, p.grad:totable())
        assert.is_true(math.abs(q.grad:totable()[1] - 1 / math.sqrt(square)) < 1e-5)
        local again = optim.clip_grad_norm({ p, q }, 10)
        assert.is_true(math.abs(again:item() - 0.5) < 1e-5)
        near_table(want, p.grad:totable())
    end)

    for name, make in pairs {
        adamw = function(p, clip) return optim.AdamW(p, { lr = 1, weight_decay = 0.05, clip_norm = clip }) end,
        sgd = function(p, clip) return optim.SGD(p, { lr = 1, momentum = 0.9, clip_norm = clip }) end,
    } do
        it('gives the norms and the steps of PyTorch under ' .. name .. ', by hand and as an option', function()
            local want = fixture[name]
            local norms, p, q = clipped_run(make, by_hand)
            near_table(want.norms, norms)
            near_table(want.p, p)
            near_table(want.q, q)
            local _, p2, q2 = clipped_run(function(params) return make(params, 2) end, by_option)
            assert.are.same({ p, q }, { p2, q2 })
        end)
    end

    it('leaves gradients within the limit as they are, to the bit', function()
        local p = parameter()
        loss_of(p):backward()
        local before = p.grad:totable()
        local norm = optim.clip_grad_norm({ p }, 1e6)
        assert.are.same(before, p.grad:totable())
        assert.is_true(norm:item() > 1)
    end)

    it('makes gradients no numbers when their norm is none, as PyTorch does', function()
        local p, q = parameter(), parameter()
        ;((p * wane.tensor { 1, 0 / 0, 1, 1 }):sum() + q:sum()):backward()
        local norm = optim.clip_grad_norm({ p, q }, 1):item()
        assert.is_true(norm ~= norm)
        for _, v in ipairs(q.grad:totable()) do assert.is_true(v ~= v) end
    end)

    it('takes the norm of half gradients in f32', function()
        local list = {}
        for k = 1, 300 do list[k] = 1 end
        local p = nn.Parameter(wane.tensor(list, { dtype = 'bf16' }))
        p:sum():backward()
        local norm = optim.clip_grad_norm({ p }, 1)
        assert.is_true(math.abs(norm:item() - math.sqrt(300)) < 1e-4) -- 17.32; in bf16 it would be 17.375
        assert.equal('bf16', p.grad.dtype)
        assert.is_true(math.abs(p.grad:totable()[1] - 1 / math.sqrt(300)) < 2e-4)
    end)

    it('can be planned as an option, and changed between steps', function()
        local c = wane.tensor(COEFFICIENT)
        local function run(changes)
            local p = parameter()
            local opt = optim.AdamW({ p }, { lr = 0.1, clip_norm = 0.5 })
            local function loss() return (c * p * p + p):sum() end
            local list = {}
            for k = 1, 9 do
                if changes and k == 6 then opt.clip_norm = 0.01 end
                list[k] = ('%.17g'):format(opt:step(loss()):item())
            end
            assert.is_true(wane.plan(function() opt:step(loss()) end).peak > 0)
            return { list, p:totable() }
        end
        assert.are.same({ unpack(run()[1], 1, 6) }, { unpack(run(true)[1], 1, 6) })
        assert.are_not.same(run()[2], run(true)[2])
    end)

    it('refuses a limit that is none', function()
        local p = parameter()
        for _, c in ipairs { 0, -1, 0 / 0, 'x', true } do
            helper.refused(nil, function() optim.SGD({ p }, { lr = 1, clip_norm = c }) end,
                'clip_norm must be a number above 0')
        end
        local opt = optim.SGD({ p }, { lr = 1, clip_norm = 2 })
        opt.clip_norm = false
        assert.is_false(opt.clip_norm)
        assert.is_nil(tostring(opt):find('clip', 1, true))
    end)
end)
