-- Checks that a step has one meaning: what wane.plan predicts, what wane.measure predicts and measures, and what the
-- ledger counts over the script's own loop, from its first step on, are the same bytes, for random networks, optimizers
-- and ways to write a step, with gradients that one step leaves for the next; and that measuring without an optimizer
-- leaves everything as it was.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local dice = require('spec.helper').dice
local networks = require 'spec.support.networks'

local nn, optim = wane.nn, wane.optim
local SEEDS = { 4, 7, 12 }
if helper.is_long then
    for seed = 1, 25 do SEEDS[seed] = seed end
end

-- FORMS holds ways to train: function(net, optimizers) -> fn to measure, options of wane.measure, and the step itself,
-- a function of its policy.
local FORMS = {
    ['one plan'] = function(net, opts)
        return net.loss, { optimizer = opts[1] }, function(policy) opts[1]:step(net.loss(), { policy = policy }) end
    end,
    ['three lines'] = function(net, opts)
        return net.loss, { optimizer = opts[1], lines = true }, networks.steps['the three lines'](net, { opts[1] })
    end,
    ['its own micro-batches'] = function(net, opts)
        local function steps(policy)
            return opts[1]:step({ net.loss() * 0.5, net.loss() * 0.5 }, { policy = policy })
        end
        return steps, { optimizer = opts[1] }, steps
    end,
}
for name, make in pairs(networks.steps) do
    FORMS[name] = function(net, opts)
        local step = make(net, opts)
        return function() return (step()) end, { optimizer = opts[1] }, step
    end
end

-- Compares what a plan shows with its numbers: its instructions and tables are those of the whole step.
local function check_views(p, what)
    local most, steps, rows = 0, p:schedule(), p:kinds_over_time()
    for _, row in ipairs(rows) do most = math.max(most, row.live) end
    assert.equal(p.peak, most, what)
    assert.equal(#steps + 1, #rows)
    assert.equal(p.instructions, #steps)
    local total = p:by('op').total
    assert.equal(p.activation_bytes, total.bytes, what)
    assert.equal(p.residual_count, total.values)
    assert.is_true(p:verify())
    assert.equal(p.peak, require('wane.plan.explain').peak(p).bytes)
end

-- Compares the numbers of a network that trains in one of these ways, from the first step on, which makes the states.
local function check(seed, form, more, policy)
    local before, net = networks.clean(), networks.make(seed)
    local fn, opts, own = form(net, networks.optimizers(net, more))
    local what = ('network %d (%s)'):format(seed, table.concat(net.kinds, ', '))
    for k = 1, 3 do
        networks.as_planned(function() return own(policy) end, before, ('%s, step %d'):format(what, k),
            k == 1 and form == FORMS['three lines'])
    end
    opts.policy, opts.steps = policy, 2
    local m = wane.measure(fn, opts)
    assert.is_true(m.exact, what .. '\n' .. tostring(m))
    assert.same(m.predicted_kinds, m.kinds, what)
    local p = wane.plan(fn, { optimizer = opts.optimizer, lines = opts.lines, policy = policy })
    assert.equal(p.peak, m.peak, what)
    assert.equal(p.reserved, m.reserved, what)
    check_views(p, what)
end

describe('the bytes of a step', function()
    for name, form in pairs(FORMS) do
        for _, more in ipairs { {}, { clip_norm = 0.5 } } do
            it(('are the same in plan, measure and loop: %s%s'):format(name, more.clip_norm and ', clipped' or ''),
                function()
                    for _, seed in ipairs(SEEDS) do
                        check(seed, form, more)
                        check(seed, form, more, 'recompute_all')
                    end
                end)
        end
    end

    it('hold a batch that the step makes, and a value that it reads in between', function()
        local model = nn.Sequential { nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5) }
        local opt = optim.AdamW(model:parameters())
        local hits = 0
        local function step()
            local x, y = wane.eval(wane.randn(64, 20), wane.randint(5, { 64 }))
            local scores = model(x):retain()
            local loss = nn.cross_entropy(scores, y)
            opt:step(loss)
            hits = hits + wane.no_grad(function() return model(x):argmax(2):eq(y):sum():item() end)
            return loss
        end
        step()
        local m = wane.measure(step, { optimizer = opt, steps = 3 })
        assert.is_true(m.exact, tostring(m))
        assert.is_true(m.kinds.input + m.kinds.result >= 64 * 20 * 4)
    end)

    it('count running statistics, data beside the step and leaves that the loss makes', function()
        local model = nn.Sequential { nn.Conv2d(2, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten(),
            nn.Linear(12 * 16, 3) }
        local images, beside = wane.eval(wane.randn(4, 2, 6, 6), wane.randn(1000))
        local function loss()
            local gain = nn.Parameter(wane.ones(3))
            return (model(images) * gain):sum()
        end
        local least = wane.min_budget(loss)
        for _, opts in ipairs { {}, { policy = 'recompute_all' }, { budget = least } } do
            local p = assert(wane.plan(loss, opts))
            local m = wane.measure(loss, { policy = opts.policy, budget = opts.budget, steps = 2 })
            assert.is_true(m.exact, tostring(m))
            assert.equal(p.peak, m.peak)
            assert.equal(p.reserved, m.reserved)
        end
        local why = helper.refused(nil, function() wane.measure(loss, { budget = least - 1 }) end)
        assert.equal(least, why.min_budget)
        assert.equal(1000, beside:numel())
    end)

    it('are those of wane.fit, the frontier and the least budget, with an optimizer too', function()
        local model, x = nn.Sequential { nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 4) },
            wane.eval(wane.randn(50, 24))
        local opt = optim.Adam(model:parameters())
        local function loss() return model(x):sum() end
        for _, lines in ipairs { false, true } do
            local how = { optimizer = opt, lines = lines }
            local points = wane.frontier(loss, how)
            local least = wane.min_budget(loss, how)
            assert.equal(least, points.all[#points.all].reserved)
            for _, q in ipairs { points[1], points[#points] } do
                local m = wane.measure(loss, { optimizer = opt, lines = lines, budget = q.reserved, steps = 1 })
                assert.is_true(m.exact and m.reserved <= q.reserved, tostring(m))
            end
            local none, why = wane.plan(loss, { optimizer = opt, lines = lines, budget = least - 256 })
            assert.is_nil(none)
            assert.equal(least, why.min_budget)
            local _, fitted = wane.fit(function(n)
                local rows = wane.zeros(n, 24)
                return function() return model(rows):sum() end
            end, { budget = '1 MiB', optimizer = opt, lines = lines })
            assert.is_true(fitted.reserved <= 2 ^ 20 and fitted.kinds.optimizer > 0)
        end
    end)
end)

describe('the bytes of a step with gradients that last', function()
    -- Returns a step of random run points of two models and two optimizers: zero_grad, backward, step, opt:step(loss).
    local function random_step(roll, models, opts, x)
        local list = {}
        local function loss(order, in_bf16)
            local function value()
                local y = x
                for _, i in ipairs(order) do y = models[i](y) end
                return y:to('f32'):pow(2):mean()
            end
            return in_bf16 and wane.autocast('bf16', value) or value()
        end
        for i = 1, 2 + roll(5) do
            local opt, order, in_bf16 = opts[roll(2)], { roll(2), roll(2) }, roll(4) == 1
            list[i] = ({ function() opt:zero_grad() end, function() opt:step() end,
                function() opt:step(loss(order, in_bf16)) end,
                function() loss(order, in_bf16):backward { policy = 'recompute_all' } end,
                function() loss(order, in_bf16):backward() end })[roll(5)]
        end
        return function()
            for _, run in ipairs(list) do run() end
            opts[1]:step()
        end
    end

    -- Returns what each part of a plan takes and has beside it.
    local function accounts(plan)
        local list = {}
        for i, part in ipairs(plan.parts) do
            list[i] = ('%s %d %d %d %d'):format(part.mode, part.peak, part.reserved, part.beside, part.live_beside)
        end
        return list
    end

    it('are those of every later step before the first one, of run points in any order', function()
        local n = 0
        for seed = helper.is_long and 1 or 81, helper.is_long and 400 or 160 do
            wane.memory.trim()
            local foreign, roll = wane.memory().allocated, dice(seed)
            local models = { nn.MLP(16, 8 * roll(5)), nn.Sequential { nn.Linear(16, 16), nn.Dropout(0.2), nn.Tanh() } }
            local opts = { optim.AdamW(models[1]:parameters()), optim.SGD(models[2]:parameters(), { lr = 1e-4 }) }
            local own = random_step(roll, models, opts, wane.eval(wane.randn(32, 16)))
            if pcall(own) and pcall(own) then -- a step of parameters without a gradient is refused
                for _, opt in ipairs(opts) do opt:zero_grad() end
                local plan, least = wane.plan(own), wane.min_budget(own)
                own()
                local later, m = wane.plan(own), wane.measure(own, { optimizer = opts[1], steps = 2 })
                assert.same(accounts(later), accounts(plan), 'seed ' .. seed)
                assert.equal(least, wane.min_budget(own), 'seed ' .. seed)
                assert.same({ m.peak, m.reserved, true }, { plan.peak, plan.reserved, m.exact }, 'seed ' .. seed)
                assert.equal(plan.peak, helper.held_by(own, foreign), 'seed ' .. seed)
                n = n + 1
            end
        end
        assert.is_true(n >= 20, n)
    end)
end)

describe('a measurement without an optimizer', function()
    local function network()
        wane.manual_seed(3)
        local model = nn.Sequential { nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3),
            nn.Linear(6 * 16, 3) }
        local images = wane.eval(wane.randn(4, 2, 6, 6))
        return model, function() return model(images):sum() end
    end

    -- Returns the bits of all states and gradients, and the place among random numbers.
    local function state_of(model)
        local list, names, dict = {}, {}, model:state_dict()
        for name in pairs(dict) do names[#names + 1] = name end
        table.sort(names)
        for i, name in ipairs(names) do list[i] = dict[name] end
        for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad or 'none' end
        local C = require('wane.ffi').C
        return require('wane.plan.measure').fingerprint(list) .. ' ' .. tostring(C.wn_here().counter)
    end

    local CALLS = {
        measure = function(loss) return wane.measure(loss, { steps = 2 }) end,
        ['measure under a budget'] = function(loss)
            return wane.measure(loss, { steps = 1, budget = wane.min_budget(loss) })
        end,
        ['a profile of it'] = function(loss) return wane.measure(loss, { steps = 1, profile = true }) end,
        check = function(loss) return wane.check(loss, { policy = 'recompute_all' }) end,
        frontier = function(loss) return wane.frontier(function() return loss():backward() end) end,
        gradient_error = function(loss) return wane.gradient_error(loss, { policy = 'recompute_all' }) end,
        gradients = function(loss) return require('wane.plan.measure').gradients(loss) end,
        plan = function(loss) return wane.plan(function() return loss() + wane.randn(4):sum() end) end,
        profile = function(loss) return wane.profile(loss, { steps = 1, keep = false, anyway = true }) end,
        ['a loss that fails'] = function(loss)
            assert.is_false(pcall(wane.measure, function()
                loss():backward()
                error 'of the script'
            end))
        end,
        ['a training that is refused'] = function(loss, model)
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            assert.is_false(pcall(wane.measure, function() return opt:step(loss()) end))
            helper.refused('value', function()
                wane.measure(function()
                    loss():backward()
                    opt:step()
                end)
            end, 'the function runs an update; return the loss')
        end,
        ['its own backward'] = function(loss)
            return wane.measure(function()
                local l = loss()
                l:backward()
                return l
            end, { steps = 1 })
        end,
    }

    for name, call in pairs(CALLS) do
        it('changes nothing: ' .. name, function()
            local model, loss = network()
            for round = 1, 3 do -- before anything ran, with gradients, and after they were cleared
                wane.eval(model(wane.zeros(1, 2, 6, 6)))
                local waiting, kept = loss(), model:parameters()[1].grad
                local before, live = state_of(model), wane.memory().gradient
                call(loss, model)
                assert.equal(before, state_of(model), 'round ' .. round)
                assert.equal(live, wane.memory().gradient)
                if kept then assert.equal(kept:sum():item(), model:parameters()[1].grad:sum():item()) end
                local statistics = model[2].running_mean:totable()
                waiting:backward() -- recorded before: it carries its own effects out
                assert.is_true(statistics[1] ~= model[2].running_mean:totable()[1])
                if round == 2 then model:zero_grad() end
            end
        end)
    end

    it('leaves no value behind that a later version could be taken for', function()
        local model, loss = network()
        loss():backward()
        local during
        wane.measure(function()
            local l = loss()
            l:backward()
            during = model:parameters()[1].grad + 0
            return l
        end, { steps = 1, warmup = 0 })
        loss():backward()
        helper.refused(nil, function() return during:sum():item() end, 'has changed')
    end)

    it('of a loss that was recorded before lets it run once more, with its effects', function()
        local model, loss = network()
        wane.eval(model(wane.zeros(1, 2, 6, 6)))
        local waiting, before = loss(), model[2].running_mean:totable()
        wane.measure(function() return waiting end, { steps = 2 })
        assert.same(before, model[2].running_mean:totable())
        waiting:backward()
        assert.is_true(before[1] ~= model[2].running_mean:totable()[1])
    end)
end)

describe('a measurement inside of a function', function()
    local model, x = nn.Sequential { nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 4) }, wane.eval(wane.randn(50, 24))
    local function inner() return (model(x) ^ 2):sum() end
    -- Ways to measure that leave nothing behind. The result is compared with that of outside.
    local QUIET = {
        measure = function() return wane.measure(inner, { steps = 1, warmup = 0 }).peak end,
        ['under a budget'] = function()
            return wane.measure(inner, { steps = 1, budget = wane.min_budget(inner) }).exact
        end,
        check = function() return wane.check(inner, { policy = 'recompute_all' }).compared end,
        ['gradient error'] = function() return tostring(wane.gradient_error(inner, { policy = 'recompute_all' })) end,
        twice = function()
            return wane.measure(function()
                wane.check(inner, { policy = 'recompute_all' })
                return inner()
            end, { steps = 1 }).exact
        end,
        plan = function() return wane.plan(inner, { policy = 'sqrt' }).peak end,
    }
    local function optimizer() return optim.Adam(model:parameters(), { lr = 0.01, clip_norm = 1 }) end

    for name, quiet in pairs(QUIET) do
        it('that is measured is no part of it: ' .. name, function()
            local opt = optimizer()
            opt:step(inner())
            model:zero_grad() -- here and below: a measurement counts gradients that exist
            local expected = quiet()
            for _, opts in ipairs { {}, { optimizer = opt }, { optimizer = opt, lines = true } } do
                opts.steps = 1
                local peak, got = wane.measure(inner, opts).peak, nil
                local m = wane.measure(function()
                    model:zero_grad()
                    got = quiet()
                    return inner()
                end, opts)
                assert.equal(expected, got)
                assert.is_true(m.exact, tostring(m))
                assert.equal(peak, m.peak)
            end
        end)
    end

    it('that tries its gradients first is exact', function()
        local opt = optimizer()
        for _, lines in ipairs { false, true } do
            wane.anomaly(true)
            local ok, m = pcall(wane.measure, inner, { optimizer = opt, lines = lines, steps = 2 })
            wane.anomaly(false)
            assert.is_true(ok and m.exact, tostring(m))
            assert.equal(wane.plan(inner, { optimizer = opt, lines = lines }).peak, m.peak)
        end
    end)

    it('that trains, or in a function that is planned, is refused, and the next call works', function()
        local opt = optimizer()
        local function train() return wane.measure(inner, { optimizer = opt, steps = 1 }) end
        for _, outer in ipairs { wane.plan, wane.measure, wane.min_budget, wane.check } do
            helper.refused(nil, function()
                outer(function()
                    train()
                    return inner()
                end)
            end, 'wane.measure: it ', 'call it outside of that function')
        end
        for name, quiet in pairs(QUIET) do
            local ok, why = pcall(wane.plan, function()
                quiet()
                return inner()
            end)
            assert.equal(name == 'plan', ok, name)
            if not ok then assert.matches('planned, where nothing runs; call it outside', tostring(why)) end
        end
        assert.is_true(train().exact)
    end)
end)

describe('the form of a step', function()
    it('is that under which rows of a sweep resume', function()
        local out = os.tmpname()
        os.remove(out)
        finally(function() os.remove(out) end)
        local function build()
            local model, x = nn.Linear(8, 2), wane.eval(wane.randn(4, 8))
            return function() return model(x):sum() end, model, optim.Adam(model:parameters())
        end
        local function run(policies, lines)
            return wane.sweep { build = build, grid = { policy = policies }, isolate = false, out = out, repeats = 1,
                resume = true, lines = lines }:run()
        end
        for _, lines in ipairs { true, false } do
            run({ 'save_all' }, lines)
            local resumed = run({ 'save_all', 'recompute_all' }, lines)
            assert.equal(lines, resumed.settings.lines)
            assert.equal(resumed:rows()[1].script, resumed:rows()[2].script)
            assert.is_false((pcall(run, { 'save_all' }, not lines)))
            os.remove(out)
        end
    end)

    it('of former versions says what to write', function()
        local model = nn.Linear(2, 2)
        local opt = optim.SGD(model:parameters(), { lr = 0.1 })
        local function loss() return model(wane.ones(1, 2)):sum() end
        for _, fused in ipairs { true, false } do
            local why = helper.refused(nil, function() wane.measure(loss, { optimizer = opt, fused = fused }) end)
            assert.matches('opt:step%(loss%) is how an optimizer steps.*lines = true', tostring(why))
            helper.refused(nil, function()
                wane.sweep { build = function() return loss, model, opt end, grid = { a = { 1 } }, fused = fused }
            end, 'lines = true')
        end
        for _, call in ipairs { wane.measure, wane.plan, wane.frontier, wane.min_budget } do
            helper.refused(nil, function() call(loss, { optimizer = opt, fused = true }) end, 'lines = true')
            helper.refused(nil, function() call(loss, { lines = true }) end, 'give optimizer =')
            helper.refused(nil, function() call(loss, { optimizer = model }) end, 'optimizer must be an optimizer')
            helper.refused(nil, function() call(function() return 3 end, { optimizer = opt }) end,
                'must return the loss')
        end
    end)
end)
