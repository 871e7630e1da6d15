-- Checks wane.measure, wane.memory and wane.bytes: measured bytes equal predicted bytes, and measuring changes nothing.
local helper = require 'spec.helper'
local wane = helper.wane
local nn, optim, bytes = wane.nn, wane.optim, wane.bytes

local function make()
    wane.manual_seed(9)
    local list = {}
    for i = 1, 6 do list[i] = nn.Sequential { nn.Linear(32, 32), nn.GELU() } end
    local model = nn.Sequential(list)
    local x = wane.eval(wane.randn(16, 32))
    return model, function() return model(x):sum() end
end

local function state(model)
    local out = {}
    for _, p in ipairs(model:parameters()) do out[#out + 1] = p:totable() end
    return out
end

describe('wane.measure', function()
    it('finds the predicted bytes, for every policy', function()
        local _, fn = make()
        for _, p in ipairs { 'save_all', 'recompute_all', 'sqrt', 'segments(2)', 'every(4)' } do
            local m = wane.measure(fn, { policy = p, steps = 2 })
            assert.equal(m.predicted_peak, m.peak)
            assert.equal(m.predicted_reserved, m.reserved)
            assert.same(m.predicted_at, m.at)
            assert.same(m.predicted_kinds, m.kinds)
            assert.is_true(m.exact)
            assert.equal(2, #m.times)
            assert.is_true(m.seconds > 0 and m.wall >= m.seconds)
        end
    end)

    it('sees what a policy saves', function()
        local _, fn = make()
        local all, none = wane.measure(fn, { policy = 'save_all' }), wane.measure(fn, { policy = 'recompute_all' })
        assert.is_true(none.at.after_forward < all.at.after_forward)
        assert.equal(all.loss, none.loss)
    end)

    it('changes nothing without an optimizer', function()
        local model, fn = make()
        local before, number = state(model), wane.randn(3):totable()
        local counter = require('wane.ffi').C.wn_counter()
        wane.measure(fn)
        assert.same(before, state(model))
        for _, p in ipairs(model:parameters()) do assert.is_nil(p.grad) end
        assert.is_true(counter == require('wane.ffi').C.wn_counter())
        assert.equal(3, #number)
    end)

    it('leaves gradients that are there alone', function()
        local model, fn = make()
        fn():backward()
        local before = model:parameters()[1].grad:totable()
        wane.measure(fn, { steps = 2 })
        assert.same(before, model:parameters()[1].grad:totable())
    end)

    it('trains with one: steps + warmup steps, the same bits as by hand', function()
        local model, fn = make()
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        local m = wane.measure(fn, { optimizer = opt, steps = 3, warmup = 2, lines = true })
        assert.is_true(m.trained and m.exact)
        local trained = state(model)
        model, fn = make()
        opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        for _ = 1, 5 do opt:step(fn()) end
        assert.same(trained, state(model))
        model, fn = make()
        opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        local fused = wane.measure(fn, { optimizer = opt, steps = 3, warmup = 2 })
        assert.same(trained, state(model))
        assert.is_true(fused.exact)
        assert.is_true(fused.peak < m.peak)
    end)

    it('prints, and refuses what makes no sense', function()
        local model, fn = make()
        local m = wane.measure(fn, { steps = 1, warmup = 0 })
        assert.is_truthy(tostring(m):find('peak backward', 1, true))
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        assert.has_error(function() wane.measure(function() return opt:step(fn()) end) end)
        assert.has_error(function() wane.measure(fn, { steps = 0 }) end)
        assert.has_error(function() wane.measure(fn, { step = 3 }) end)
        assert.has_error(function() wane.measure(fn, { restore = true }) end)
        assert.has_error(function() wane.measure(function() return 3 end) end)
    end)

    it('tells tensors apart by one bit', function()
        local print_of = require('wane.plan.measure').fingerprint
        local a = wane.eval(wane.arange(0, 1000))
        assert.equal(print_of { a, a }, print_of { a, wane.eval(wane.arange(0, 1000)) })
        assert.is_true(print_of { a } ~= print_of { wane.eval(a * (1 + 2 ^ -23)) })
        assert.is_true(print_of { wane.eval(wane.zeros(2)) } ~= print_of { wane.eval(wane.zeros(2) * -1) })
        assert.is_true(require('wane.plan.measure').threads() >= 1)
        assert.equal(print_of { wane.tensor({ 0, 1, 2 }, { dtype = 'i32' }) }, print_of {
            wane.tensor({ 0 }, { dtype = 'i32' }), wane.tensor({ 1, 2 }, { dtype = 'i32' }) })
        assert.is_true(print_of { wane.tensor({ 0, 1 }, { dtype = 'i32' }) }
            ~= print_of { wane.tensor({ 1, 0 }, { dtype = 'i32' }) })
        -- FNV-1a as published
        assert.equal('cbf29ce484222325', print_of {})
        assert.equal('af63dc4c8601ec8c', print_of { 'a' })
        assert.equal('85944171f73967e8', print_of { 'foo', 'bar' })
    end)

    it('tells gradients apart by one bit, and leaves none behind', function()
        local gradients = require('wane.plan.measure').gradients
        local model, fn = make()
        local all = gradients(fn, 'save_all')
        for _, p in ipairs { 'recompute_all', 'sqrt', 'every(4)' } do assert.equal(all, gradients(fn, p)) end
        for _, p in ipairs(model:parameters()) do assert.is_nil(p.grad) end
        fn():backward()
        assert.equal(all, gradients(fn)) -- those that are there have no part in it
        local list = {}
        for i, p in ipairs(model:parameters()) do list[i] = p.grad end
        assert.equal(#all, #require('wane.plan.measure').fingerprint(list))
        assert.is_true(all ~= gradients(function() return fn() * (1 + 2 ^ -23) end))
        assert.is_nil(gradients(function() return wane.ones(2):sum() end))
    end)

    it('runs a step that trains by itself', function()
        local model, fn = make()
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        local m = wane.measure(function() return opt:step(fn()) end, { optimizer = opt, steps = 2 })
        assert.is_true(m.exact)
    end)
end)

describe('a run point that fails, in a function that catches it,', function()
    -- Measures a step of two models whose first run point fails in a function.
    local function check(fail)
        local a, b, x = nn.MLP(32, 256), nn.MLP(32, 64), wane.eval(wane.randn(64, 32))
        local first, second = optim.AdamW(a:parameters()), optim.SGD(b:parameters(), { lr = 1e-3 })
        local m = wane.measure(function()
            first:zero_grad()
            second:zero_grad()
            fail(first, a(x))
            b(x):mean():backward()
            second:step()
            second:zero_grad()
            a(x):mean():backward()
            first:step()
        end, { optimizer = first, steps = 2 })
        assert.is_true(m.exact, tostring(m))
    end

    it('is no part of what is measured', function()
        local labels = wane.eval(wane.full({ 64 }, 99):to 'i32')
        check(function(opt, y)
            helper.refused('value', function() opt:step(nn.cross_entropy(y, labels)) end)
        end)
        check(function(_, y)
            wane.memory.limit(1)
            local ok, why = pcall(y.backward, y:mean())
            wane.memory.limit(nil)
            assert.same({ false, 'oom' }, { ok, why.code })
        end)
    end)
end)

describe('wane.plan', function()
    it('predicts what backward and step then take', function()
        local model, fn = make()
        local opt = wane.optim.Adam(model:parameters(), { lr = 0.01 })
        wane.eval(model:parameters()[1])
        local planned = wane.plan(function() opt:step(fn()) end)
        local seen
        wane.scoped('listen', function(p) seen = require('wane.plan').alone(p) end, function() opt:step(fn()) end)
        assert.equal(planned.peak, seen.peak)
        assert.equal(planned.reserved, seen.reserved)
        assert.is_true(planned.kinds.optimizer > 0)
    end)

    it('runs nothing and puts the random counter back', function()
        local model, fn = make()
        local C = require('wane.ffi').C
        local opt = wane.optim.SGD(model:parameters(), { lr = 1 })
        local before, counter = state(model), C.wn_counter()
        wane.plan(function()
            return opt:step(fn() + wane.randn(4):sum())
        end)
        wane.plan(function() fn():backward() end)
        assert.is_true(counter == C.wn_counter())
        assert.same(before, state(model))
        assert.is_nil(model:parameters()[1].grad)
        assert.has_error(function() wane.plan(function() return fn():item() end) end)
        fn():backward() -- and everything works afterwards
        assert.is_not_nil(model:parameters()[1].grad)
    end)

    it('verifies, lists, prints, draws', function()
        local _, fn = make()
        local plan = wane.plan(fn, { policy = 'every(2)' })
        assert.is_true(plan:verify())
        assert.equal(plan.instructions, #plan:schedule())
        assert.equal(plan.residual_count, #plan:residuals())
        local most = 0
        for _, step in ipairs(plan:schedule()) do most = math.max(most, step.live) end
        assert.equal(plan.peak, most)
        assert.is_truthy(tostring(plan):find('recomputed', 1, true))
        assert.is_truthy(plan:timeline():find('^<svg') and plan:timeline():find('</svg>'))
        assert.is_true(plan.overhead > 0 and plan.seconds > plan.base_seconds)
    end)

    it('names what later versions bring', function()
        local _, fn = make()
        for _, call in ipairs {
            function() wane.plan(fn, { allow = { 'offload' } }) end,
        } do
            helper.refused('unsupported', function() call() end, 'not in this version')
        end
    end)
end)

describe('wane.memory', function()
    it('counts what is held, by kind', function()
        local t = wane.eval(wane.zeros(1000))
        wane.memory.trim()
        local now = wane.memory()
        t:free()
        local after = wane.memory()
        assert.equal(4096, now.kinds.result - after.kinds.result)
        assert.equal(4096, now.allocated - after.allocated)
        for name, n in pairs(now.kinds) do
            if name ~= 'result' then assert.equal(n, after.kinds[name], name) end
        end
        assert.is_truthy(tostring(now):find('allocated', 1, true))
    end)

    it('refuses a step over the limit before it starts, with the numbers; afterwards everything works', function()
        local model, fn = make()
        wane.measure(fn, { steps = 1 })
        wane.memory.trim()
        local before = state(model)
        local need = wane.plan(fn).reserved
        wane.memory.limit(wane.memory().reserved + 256)
        local fine, why = pcall(function() fn():backward() end)
        wane.memory.limit(nil)
        assert.is_false(fine)
        assert.equal('oom', why.code)
        assert.is_true(why.least > 0 and why.limit > 0)
        assert.is_true(need > 0)
        assert.same(before, state(model))
        fn():backward()
        assert.is_not_nil(model:parameters()[1].grad)
    end)
end)

describe('sizes', function()
    it('are read with their units', function()
        assert.equal(1610612736, bytes.parse '1.5 GiB')
        assert.equal(800000000, bytes.parse '800 MB')
        assert.equal(4096, bytes.parse '4096')
        assert.equal(4096, bytes.parse '4KiB')
        assert.equal(7, bytes.parse(7.9))
        for _, bad in ipairs { '', 'GiB', '3 GB/s', '-1', -1, '1.5.2 MB', 0 / 0, {}, '5 XB' } do
            assert.has_error(function() bytes.parse(bad) end)
        end
    end)
    it('are written short and exact', function()
        assert.equal('512 B', bytes.text(512))
        assert.equal('1.50 MiB', bytes.text(1.5 * 2 ^ 20))
        assert.equal('-2.00 GiB', bytes.text(-2 * 2 ^ 30))
        assert.equal('20,984,320', bytes.exact(20984320))
        assert.equal('-512', bytes.exact(-512))
        assert.equal('0', bytes.exact(0))
    end)
end)
