-- Checks that a Plan of several run points answers for the whole step in each of its views: residuals, groups, blocks,
-- findings, instructions, trace, recipes. What a view says of a part is what the part's program says when it is opened
-- and planned by itself where it runs; run points that are alike are one part. Networks and ways to train are random.
local helper = require 'spec.helper'
local wane = helper.wane
local binding = require 'wane.ffi'
local dice = require('spec.helper').dice
local networks = require 'spec.support.networks'
local plan = require 'wane.plan'
local program = require 'wane.program'

local C, nn, optim = binding.C, wane.nn, wane.optim
local POLICIES = { 'save_all', 'recompute_all', 'sqrt', 'every(1)', 'segments(2)' }
local SEEDS = { 2, 5, 11 }
if helper.is_long then
    for seed = 1, 20 do SEEDS[seed] = seed end
end

-- Opens every run point of fn by itself, in the state that those before it leave, in a step that begins with the
-- gradients which it leaves. Returns the planned programs.
local function alone(fn)
    local list = {}
    program.planning(function()
        fn()
        if C.wn_sequence_repeat() == 1 then
            list = {}
            fn()
        end
    end, function(request)
        local p = program.open(request)
        binding.check(C.wn_sequence_add(p.handle))
        list[#list + 1] = p
    end)
    for _, p in ipairs(list) do p:plan() end
    return list
end

-- FORMS holds ways to train with several run points: function(a, b = networks, optimizers, pick = policy at random) ->
-- function that steps.
local FORMS = {
    ['a loss of each of two networks, one after the other'] = function(a, b, opts, pick)
        local first, second = pick(), pick()
        return function()
            for _, opt in ipairs(opts) do opt:zero_grad() end
            a.loss():backward { policy = first }
            b.loss():backward { policy = second }
            for _, opt in ipairs(opts) do opt:step() end
        end
    end,
    ['two networks in turns'] = function(a, b, opts, pick)
        local first, second = pick(), pick()
        return function()
            opts[1]:zero_grad()
            a.loss():backward { policy = first }
            opts[1]:step()
            opts[#opts]:step(b.loss(), { policy = second })
        end
    end,
    ['micro-batches that keep a value each'] = function(a, _, opts, pick)
        local policy = pick()
        return function()
            opts[1]:zero_grad()
            local kept = {}
            for i = 1, 3 do
                kept[i] = (a.loss() + wane.zeros(512)):retain()
                kept[i]:sum():backward { policy = policy }
            end
            opts[1]:step()
            return kept[1]:sum()
        end
    end,
    ['micro-batches of two losses in turns'] = function(a, b, opts, pick)
        local policy = pick()
        return function()
            for _, opt in ipairs(opts) do opt:zero_grad() end
            for _ = 1, 4 do
                a.loss():backward { policy = policy }
                b.loss():backward()
            end
            for _, opt in ipairs(opts) do opt:step() end
        end
    end,
}

for name, make in pairs(networks.steps) do
    FORMS[name] = function(a, _, opts, pick)
        local step, policy = make(a, opts), pick()
        return function() return step(policy) end
    end
end

local function step_of(seed, form)
    local a, b = networks.make(seed), networks.make(seed + 100)
    local opts = networks.optimizers(a, {})
    -- The ways of networks.steps train the first network alone.
    for _, opt in ipairs(networks.steps[form] and {} or networks.optimizers(b, {})) do opts[#opts + 1] = opt end
    local roll = dice(seed)
    return FORMS[form](a, b, opts, function() return POLICIES[roll(#POLICIES)] end)
end

-- Returns the rows of a part as text, of these fields.
local function texts(rows, number, fields)
    local out = {}
    for _, row in ipairs(rows) do
        local words = {}
        for i, name in ipairs(fields) do words[i] = tostring(row[name]) end
        if row.part == number then out[#out + 1] = table.concat(words, ' ') end
    end
    return out
end

local VIEWS = {
    [function(p) return p:residuals() end] = { 'op', 'path', 'bytes', 'block', 'word', 'said', 'by', 'copies' },
    [function(p) return p:explain().groups end] = { 'name', 'ops', 'dropped', 'seconds', 'nodes' },
    [function(p) return p:by('block').rows end] = { 'name', 'bytes', 'saved', 'dropped', 'moved', 'compressed',
        'recomputed' },
    [function(p) return p:schedule() end] = { 'what', 'op', 'path', 'node', 'phase', 'bytes', 'offset', 'seconds' },
}

-- Compares the views of a plan with those of the programs that are planned by themselves.
local function compare(p, list, what)
    local seconds, points, count = 0, 0, { instructions = 0, residual_count = 0, activation_bytes = 0, recomputed = 0 }
    local rows = {}
    for view in pairs(VIEWS) do rows[view] = view(p) end
    for number, part in ipairs(p.parts) do
        local own
        for _, i in ipairs(part.points) do -- all of them are the same
            own = plan.alone(list[i])
            assert.equal(own.peak, part.peak, what)
            assert.equal(own.reserved, part.reserved, what)
            seconds, points = seconds + own.seconds, points + 1
        end
        assert.equal(#part.points, part.times)
        for view, fields in pairs(VIEWS) do
            assert.same(texts(view(own), 1, fields), texts(rows[view], number, fields), what)
        end
        for name, n in pairs(count) do count[name] = n + own[name] end
    end
    assert.equal(#list, points, what)
    assert.is_true(math.abs(seconds - p.seconds) <= 1e-9 * seconds, what)
    for name, n in pairs(count) do assert.equal(n, p[name], what) end
    for _, word in ipairs { 'type', 'path', 'op', 'name', 'block' } do
        local total = p:by(word).total
        assert.equal(p.activation_bytes, total.bytes, what)
        assert.equal(p.recomputed, total.recomputed, what)
    end
end

describe('the views of a step', function()
    for form in pairs(FORMS) do
        it('are those of all its parts: ' .. form, function()
            for _, seed in ipairs(SEEDS) do
                local step = step_of(seed, form)
                local what = ('%s, network %d'):format(form, seed)
                for round = 1, 2 do -- before its states are made, and after
                    local p = wane.plan(step)
                    compare(p, alone(step), what)
                    for _, name in ipairs { 'peak', 'reserved' } do
                        local most = 0
                        for _, part in ipairs(p.parts) do
                            most = math.max(most, part[name] + (name == 'peak' and part.live_beside or part.beside))
                        end
                        assert.equal(p[name], most, what)
                    end
                    local m = wane.measure(step, { optimizer = optim.SGD(nn.Linear(1, 1):parameters(), { lr = 0 }),
                        steps = 1, warmup = 0 })
                    assert.is_true(m.exact, what .. '\n' .. tostring(m))
                    if round == 2 then assert.equal(p.peak, m.peak, what) end
                end
            end
        end)
    end
end)

-- Makes two stacks of blocks, their losses, and a step of a backward of each.
local function two_stacks()
    wane.manual_seed(3)
    local x, models, losses = wane.eval(wane.randn(256, 16)), {}, {}
    for i = 1, 2 do
        local list = {}
        for k = 1, 3 + i do list[k] = nn.MLP(16, 64) end
        models[i] = nn.Sequential(list)
        losses[i] = function() return models[i](x):sum() end
    end
    return models, losses, function(first, second)
        return function()
            for _, model in ipairs(models) do model:zero_grad() end
            losses[1]():backward { policy = first }
            losses[2]():backward { policy = second }
        end
    end
end

describe('a region of a part', function()
    it('saves what the whole step takes more without it', function()
        local _, _, step = two_stacks()
        for _, case in ipairs { { 'save_all', 'segments(2)' }, { 'segments(2)', 'segments(2)' } } do
            local p = wane.plan(step(unpack(case)))
            local groups = p:explain().groups
            assert.equal(case[1] == case[2] and 2 or 1, #groups)
            for _, group in ipairs(groups) do
                local words = { case[1], case[2] }
                words[group.part] = 'save_all'
                assert.equal(wane.plan(step(unpack(words))).peak - p.peak, group.saves)
            end
            assert.is_true(groups[#groups].saves > 0)
        end
    end)

    it('is printed with the number of its part, and the parts with their times', function()
        local models, losses, step = two_stacks()
        local p = wane.plan(step('segments(2)', 'every(1)'))
        for _, text in ipairs { tostring(p), tostring(p:explain()), tostring(p:residuals()), tostring(p:schedule()),
            tostring(p:by 'block') } do
            assert.is_truthy(text:find('part +[%w#]'), text)
        end
        assert.is_nil(tostring(p.parts):find('times', 1, true))
        local micro = wane.plan(function()
            models[1]:zero_grad()
            wane.accumulate(losses[1], { micro = 64 })
        end)
        assert.equal(2, #micro.parts)
        assert.equal(63, micro.parts[2].times)
        assert.is_truthy(tostring(micro):find('2  backward     63', 1, true), tostring(micro))
        assert.is_true(math.abs(micro.seconds - micro.parts[1].seconds - 63 * micro.parts[2].seconds) < 1e-12)
        assert.is_nil(tostring(wane.plan(losses[1])):find('part ', 1, true))
    end)
end)

describe('a finding about a step', function()
    it('is none where another part trains the parameters, or has the values', function()
        wane.manual_seed(1)
        local made, judge = nn.Sequential { nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8) }, nn.Linear(8, 1)
        local z = wane.eval(wane.randn(4, 8))
        local function kinds(fn)
            local seen = {}
            for _, finding in ipairs(wane.plan(fn):explain()) do seen[finding.kind] = finding.message end
            return seen
        end
        local function judged() judge(made(z):detach()):sum():backward() end
        assert.is_truthy(kinds(judged).gradient)
        assert.is_nil(kinds(function()
            judged()
            judge(made(z)):sum():backward()
        end).gradient)
        local by = wane.policy.by_op { relu = 'recompute', optional = true }
        by.optional = nil
        made:checkpoint(by)
        assert.is_nil(kinds(function()
            judge(made(z)):sum():backward()
            local other = (made(z) ^ 2):sum()
            other:backward()
        end).policy)
    end)
end)

describe('a recipe of a step', function()
    it('is that of all its backwards, or of the part that is named', function()
        local _, losses, step = two_stacks()
        local p = wane.plan(step('every(1)', 'every(1)'))
        helper.refused(nil, function() p:recipe() end, 'several backwards, whose recipes differ; say which')
        assert.is_false((pcall(p.as_policy, p, 3)))
        for i, loss in ipairs(losses) do
            assert.equal(wane.plan(loss, { policy = 'every(1)' }):recipe(), p:recipe(i))
        end
        local again = wane.plan(step(p:as_policy(1), p:as_policy(2)))
        for _, name in ipairs { 'peak', 'reserved', 'recomputed', 'activation_bytes' } do
            assert.equal(p[name], again[name], name)
        end
        local same = wane.plan(function() wane.accumulate(losses[1], { micro = 3, policy = 'every(1)' }) end)
        assert.equal(p:recipe(1), same:recipe())
    end)

    it('is none of an update, which says so', function()
        local model = nn.Linear(4, 2)
        local opt = optim.SGD(model:parameters(), { lr = 0.1 })
        model(wane.ones(3, 4)):sum():backward()
        local p = wane.plan(function() opt:step() end)
        helper.refused('value', function() p:recipe() end, 'plan:recipe: the update has none, it keeps no values')
    end)
end)

describe('PyTorch beside a step', function()
    it('has the gradients of the micro-batches before, and is refused for several models', function()
        local models, losses, step = two_stacks()
        for _, model in ipairs(models) do wane.eval(unpack(model:parameters())) end
        local opt = optim.Adam(models[1]:parameters())
        local own = wane.plan(function() opt:step(losses[1]()) end):pytorch { gradients = 'kept' }
        local p = wane.plan(function()
            opt:zero_grad()
            wane.accumulate(losses[1], { micro = 4 })
            opt:step()
        end)
        assert.same(own, p:pytorch())
        helper.refused(nil, function() return wane.plan(step('save_all', 'save_all')):pytorch() end,
            'the backwards of the step are of several models')
    end)
end)

describe('planning micro-batches', function()
    it('takes run points that train other parameters for parts of their own', function()
        local x, list = wane.eval(wane.randn(8, 4)), {}
        for i = 1, 2 do list[i] = nn.Parameter(wane.eval(wane.randn(4, 4))) end
        wane.eval(unpack(list))
        local function step()
            for _, w in ipairs(list) do
                w.grad = nil
                x:matmul(w):sum():backward()
            end
        end
        step()
        local p = wane.plan(step)
        assert.equal(2, #p.parts)
        assert.equal(p.parts[1].beside, p.parts[2].beside)
        for _, part in ipairs(p.parts) do assert.equal(1, part.times) end
    end)

    it('makes as many plans for 64 as for 2, and asks a policy as often', function()
        local _, losses = two_stacks()
        local function made(n)
            C.wn_debug('forget_plans', 1)
            local before, asked = tonumber(C.wn_debug_get 'plans_made'), 0
            local p = wane.plan(function()
                wane.accumulate(losses[1], { micro = n, policy = function() asked = asked + 1 end })
            end)
            assert.equal(2, #p.parts)
            return ('%d plans, %d questions'):format(tonumber(C.wn_debug_get 'plans_made') - before, asked)
        end
        made(2) -- makes the states' plan
        assert.equal(made(2), made(64))
    end)
end)
