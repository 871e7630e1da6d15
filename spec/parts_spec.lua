-- Plans steps of several run points (zero_grad, backward, clip, update, assign) before anything ran and between steps,
-- and runs them under a memory limit of the predicted bytes. The ledger must count what was predicted, from the first
-- step on. Planning must leave gradients, states and bytes as they were.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local limits = require 'spec.support.limits'
local networks = require 'spec.support.networks'

local C, nn, optim = binding.C, wane.nn, wane.optim
local clean, limited = limits.clean, limits.limited
local SEEDS = { 2, 3, 9 }
if os.getenv('WANE_SPEC_LONG') == '1' then
    for seed = 1, 30 do SEEDS[seed] = seed end
end

local function backward(loss, policy)
    loss:backward { policy = policy }
    return loss
end

-- STEPS holds ways to write a step: function(net, optimizers) -> function(policy).
local STEPS = {
    ['the three lines'] = function(net, opts)
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local loss = backward(net.loss(), policy)
            for _, opt in ipairs(opts) do opt:step() end
            return loss
        end
    end,
    ['gradients cleared at the end'] = function(net, opts)
        return function(policy)
            local loss = backward(net.loss(), policy)
            for _, opt in ipairs(opts) do opt:step() end
            for _, opt in ipairs(opts) do opt:zero_grad() end
            return loss
        end
    end,
    ['two backwards'] = function(net, opts)
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local a = backward(net.loss(), policy)
            local b = backward(net.loss() * 0.5, policy)
            for _, opt in ipairs(opts) do opt:step() end
            return a, b
        end
    end,
    ['micro-batches'] = function(net, opts)
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local loss = wane.accumulate(net.loss, { micro = 3, policy = policy })
            for _, opt in ipairs(opts) do opt:step() end
            return loss
        end
    end,
    ['an average beside'] = function(net, opts)
        local p = opts[1]:parameters()[1]
        local average = nn.Parameter(wane.zeros(p.shape))
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local loss = backward(net.loss(), policy)
            for _, opt in ipairs(opts) do opt:step() end
            wane.no_grad(function() average:assign(average * 0.9 + p * 0.1) end)
            return loss
        end
    end,
}

local function fingerprint(net)
    local list = {}
    for _, p in ipairs(net.parameters) do
        local g = p.grad
        list[#list + 1] = g and require('wane.plan.measure').fingerprint { g } or 'none'
    end
    return table.concat(list, ' ')
end

local function check(seed, way, more, policy)
    local before = clean()
    local net = networks.make(seed)
    local step = STEPS[way](net, networks.optimizers(net, more))
    local what = ('network %d, %s (%s)'):format(seed, way, table.concat(net.kinds, ', '))
    local function fn() return step(policy) end
    for k = 1, 3 do
        collectgarbage()
        collectgarbage()
        local p = wane.plan(fn)
        local memory = wane.memory().reserved
        assert(#p.parts > 1, what)
        local bytes = math.max(p.reserved, p.first.reserved)
        assert.equal(memory, wane.memory().reserved)
        wane.memory.trim()
        local ok, reserved, live = pcall(limited, bytes, before, fn)
        assert(ok, what .. ': step ' .. k .. ': ' .. tostring(reserved))
        local want = p.first.cells > 0 and p.first.peak or p.peak
        assert(reserved <= bytes, ('%s: step %d reserved %d of %d bytes'):format(what, k, reserved, bytes))
        assert(live == want, ('%s: step %d held %d bytes, predicted %d\n%s'):format(what, k, live, want,
            tostring(p.parts)))
    end
    return net, fn
end

describe('a step of several run points', function()
    for way in pairs(STEPS) do
        for _, clip in ipairs { false, 0.5 } do
            it(('takes what its plan says: %s%s'):format(way, clip and ', clipped' or ''), function()
                for _, seed in ipairs(SEEDS) do check(seed, way, { clip_norm = clip }) end
            end)
        end
        it('takes what its plan says, recomputing: ' .. way, function()
            for _, seed in ipairs(SEEDS) do check(seed, way, {}, 'recompute_all') end
        end)
    end

    -- Returns a network with every kind of state, its optimizer, its loss, its step in three lines, and the bytes there
    -- were before.
    local function example(more)
        local before = clean()
        wane.manual_seed(1)
        local model = nn.Sequential { nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(),
            nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10) }
        local x, y = wane.eval(wane.randn(512, 64), wane.randint(0, 10, { 512 }))
        local opt = optim.AdamW(model:parameters(), more or {})
        local function loss() return nn.cross_entropy(model(x), y) end
        local function lines(policy)
            opt:zero_grad()
            local l = loss()
            l:backward { policy = policy }
            opt:step()
            return l
        end
        return { before = before, model = model, opt = opt, loss = loss, lines = lines,
            parameters = model:parameters() }
    end

    it('keeps the budget of its plan, and the least is the least', function()
        local e = example()
        local least = wane.min_budget(e.lines)
        local p = assert(wane.plan(e.lines, { budget = least }))
        assert.equal(least, p.reserved)
        local none, why = wane.plan(e.lines, { budget = least - 1 })
        assert.is_nil(none)
        assert.equal(least, why.min_budget)
        assert.is_true(#why.holders > 0)
        assert.is_truthy(tostring(why):find('programs of the step (backward, update)', 1, true), tostring(why))
        local policy = p:as_policy()
        for k = 1, 3 do
            local reserved, live = limited(least, e.before, function() e.lines(policy) end)
            assert.is_true(reserved <= least)
            assert.equal(k == 1 and p.first.peak or p.peak, live)
        end
        assert.equal(least, wane.min_budget(e.lines))
        local all = wane.plan(e.lines)
        assert.is_true(least < all.reserved, least .. ' of ' .. all.reserved)
        assert.is_true(wane.plan(e.lines, { budget = all.reserved }).reserved <= all.reserved)
    end)

    it('has the data that states of a later part begin as beside the first step of those before it', function()
        local e = example()
        local average = optim.EMA(e.model)
        local function fn()
            e.opt:step(e.loss())
            average:update()
        end
        collectgarbage()
        collectgarbage()
        local p = wane.plan(fn)
        wane.memory.trim()
        local reserved, live = limited(math.max(p.reserved, p.first.reserved), e.before, fn)
        assert.same({ p.first.peak, p.first.reserved }, { live, reserved })
    end)

    it('finds no plan again that was made beside other states', function()
        local e = example()
        local plain = optim.SGD(e.parameters, { lr = 0 })
        local function lines()
            plain:zero_grad()
            local l = e.loss()
            l:backward()
            plain:step()
            return l
        end
        local budget = wane.min_budget(e.lines)
        assert.is_true(wane.min_budget(lines) < budget)
        for _, fn in ipairs { lines, e.lines, lines } do
            assert.is_true(wane.plan(fn, { budget = budget }).reserved <= budget)
        end
        -- The backward alone has more room under the same budget.
        local own = wane.plan(e.lines, { budget = budget }).parts[1].reserved
        assert.is_true(wane.plan(e.loss, { budget = budget }).reserved > own)
    end)

    it('has a frontier whose bytes are those of the step', function()
        local e = example()
        e.lines()
        local points = wane.frontier(e.lines, { points = 4 })
        assert.equal(wane.min_budget(e.lines), points.all[#points.all].reserved)
        assert.is_true(#points >= 3)
        for _, q in ipairs(points) do
            local function fn() return e.lines(q.policy) end
            local p = wane.plan(fn)
            assert.equal(q.reserved, p.reserved)
            assert.equal(q.peak, p.peak)
            assert(math.abs(q.seconds / p.seconds - 1) < 1e-9)
            wane.memory.trim()
            assert.equal(q.reserved, (limited(q.reserved, e.before, fn)))
        end
    end)

    it('is planned without a change to gradients, states and bytes', function()
        local e = example { clip_norm = 0.1 }
        local p = wane.plan(e.lines) -- nothing was ever made
        assert.is_true(p.first.cells > 0)
        for _, w in ipairs(e.parameters) do assert.is_nil(w.grad) end
        e.loss():backward()
        for _ = 1, 2 do
            local gradients, memory, kept = fingerprint(e), wane.memory(), e.parameters[1].grad
            wane.plan(e.lines)
            wane.min_budget(e.lines)
            wane.plan(function()
                e.lines()
                e.lines()
            end)
            local ok, why = pcall(wane.plan, function()
                e.lines()
                error { 'of the script' }
            end)
            assert.is_false(ok)
            assert.same({ 'of the script' }, why)
            assert.equal(gradients, fingerprint(e))
            assert.equal(memory.reserved, wane.memory().reserved)
            assert.equal(memory.gradient, wane.memory().gradient)
            assert.equal(kept:sum():item(), e.parameters[1].grad:sum():item())
            wane.plan(function()
                e.opt:zero_grad()
                wane.memory.trim() -- what exists keeps its memory
                return e.loss()
            end)
            assert.equal(gradients, fingerprint(e))
            e.lines()
        end
    end)

    it('is planned in a coroutine that is dropped, or goes on after steps of others', function()
        local e = example()
        e.lines()
        e.opt.lr = 0
        e.opt:zero_grad()
        e.loss():backward()
        local gradients_of_one_backward = fingerprint(e)
        local gradients = gradients_of_one_backward
        local function halting()
            e.opt:zero_grad()
            local l = e.loss()
            l:backward()
            coroutine.yield()
            e.opt:step()
            return l
        end
        local want = wane.plan(e.lines).reserved
        local dropped = coroutine.create(function() return wane.plan(halting) end)
        assert(coroutine.resume(dropped))
        assert.equal(gradients, fingerprint(e))
        local found
        local co = coroutine.create(function() found = wane.plan(halting) end)
        assert(coroutine.resume(co))
        assert.equal(gradients, fingerprint(e))
        e.lines()
        gradients = fingerprint(e)
        assert(coroutine.resume(co))
        assert.equal(want, found.reserved)
        co = coroutine.create(function() found = wane.plan(halting).reserved end)
        assert(coroutine.resume(co))
        e.opt:zero_grad() -- those of the script, while the planning waits
        assert.is_nil(e.parameters[1].grad)
        assert(coroutine.resume(co))
        assert.equal(want, found)
        assert.is_nil(e.parameters[1].grad)
        e.loss():backward()
        assert.equal(gradients_of_one_backward, fingerprint(e))
        assert.equal(gradients, fingerprint(e))
        e.lines()
    end)

    local EACH = helper.is_long and 1 or 7 -- in the short form each seventh allocation fails
    it('is planned with each allocation failing once: nothing has changed, and the next try is right', function()
        for _, ask in ipairs { wane.plan, wane.min_budget } do
            local e = example { clip_norm = 0.1 }
            e.loss():backward()
            local function found()
                local p = ask(e.lines)
                return type(p) == 'number' and p or p.reserved
            end
            local want, gradients, failures, at = found(), fingerprint(e), 0, 1
            repeat
                C.wn_debug('forget_plans', 0)
                C.wn_debug('fail_alloc', at)
                local ok, got = pcall(found)
                local fired = C.wn_debug_get('fail_alloc') == 0
                C.wn_debug('fail_alloc', 0)
                assert.equal(not fired, ok, tostring(got))
                if fired then
                    failures, at = failures + 1, at + EACH
                    assert.equal('oom', got.code)
                    if failures % 16 == 0 then assert.equal(gradients, fingerprint(e)) end
                else
                    assert.equal(want, got)
                end
            until not fired
            assert.is_true(failures * EACH > 100, tostring(failures))
            assert.equal(gradients, fingerprint(e))
            e.lines()
        end
    end)

    it('refuses a gradient that is read while nothing runs', function()
        local e = example()
        local ok, why = pcall(wane.plan, function()
            e.opt:zero_grad()
            e.loss():backward()
            e.parameters[1].grad:totable()
        end)
        assert.is_false(ok)
        assert.is_truthy(tostring(why):find('while', 1, true), tostring(why))
        e.lines()
    end)

    it('refuses a run point that reads what another computes', function()
        local e = example()
        local ok, why = pcall(wane.plan, function()
            local l = e.loss()
            l:backward()
            wane.backward({ l * l })
        end)
        assert.is_false(ok)
        assert.equal('unsupported', why.code)
        local p = wane.plan(function()
            local l = e.loss()
            l:backward()
            assert.is_false((pcall(wane.backward, { l * l })))
        end)
        assert.equal(1, #p.parts) -- what was refused is none of them
        e.lines()
    end)

    it('is planned as the maximum of two networks that train in turns', function()
        local a, b = example(), example()
        local function fn()
            a.opt:step(a.loss())
            b.opt:step(b.loss())
        end
        local p = wane.plan(fn)
        assert.equal(2, #p.parts)
        local reserved, live = limited(math.max(p.reserved, p.first.reserved), a.before, fn)
        assert.equal(p.first.peak, live)
        assert.is_true(reserved <= math.max(p.reserved, p.first.reserved))
        reserved, live = limited(wane.plan(fn).reserved, a.before, fn)
        assert.equal(p.reserved, reserved)
        assert.equal(p.peak, live)
        local points = wane.frontier(fn)
        assert.equal(wane.min_budget(fn), points.all[#points.all].reserved)
        assert.is_true(#points.all > 2 and points.all[#points.all].reserved < p.reserved)
        for _, q in ipairs(points) do
            assert.equal(2, #q.policies)
            local under = wane.plan(function()
                a.opt:step(a.loss(), { policy = q.policies[1] })
                b.opt:step(b.loss(), { policy = q.policies[2] })
            end)
            assert.equal(q.reserved, under.reserved)
            assert.equal(q.peak, under.peak)
            local within = wane.plan(fn, { budget = q.reserved })
            assert.is_true(within.reserved <= q.reserved and within.seconds <= q.seconds * (1 + 1e-9))
        end
    end)

    it('is refused where each program keeps a budget and the step does not', function()
        local e = example()
        e.lines()
        local backward_only = wane.min_budget(e.loss)
        assert.is_true(backward_only < wane.min_budget(e.lines))
        local why = helper.refused('budget', function()
            wane.measure(e.loss, { optimizer = e.opt, budget = backward_only })
        end)
        assert.equal(backward_only, why.budget)
        local enough = wane.plan(e.lines).reserved
        local m = wane.measure(e.loss, { optimizer = e.opt, lines = true, budget = enough, steps = 1 })
        assert.is_true(m.exact and m.reserved <= enough)
    end)

    it('is compared with PyTorch with all its states', function()
        local e = example()
        local fused = wane.plan(function() return e.opt:step(e.loss()) end):pytorch()
        local lines = wane.plan(e.lines):pytorch()
        assert.same(fused, lines)
    end)

    it('is profiled', function()
        local e = example()
        local list = wane.profile(e.lines, { keep = false, steps = 1, anyway = true })
        local has_update = false
        for _, row in ipairs(list) do has_update = has_update or row.key:find('adam', 1, true) ~= nil end
        assert.is_true(has_update)
        helper.refused('value', function() wane.measure(e.lines) end, 'the function runs an update; return the loss')
    end)
end)
