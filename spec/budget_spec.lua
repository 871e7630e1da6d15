-- Checks budgets in bytes. Every model must keep every budget to the byte, more bytes must never give a slower plan,
-- the gradients must have the same bits, and plans must be faster than the policies that people write by hand.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane or require 'wane'
local models = require 'spec.support.budget_models'
local measure = require 'wane.plan.measure'
local nn, optim, policy = wane.nn, wane.optim, wane.policy
local compared_in_all, faster_in_all = 0, 0

local BUDGETS = helper.is_long and 50 or 10
local function budgets_between(least, most)
    return models.budgets(least, most, BUDGETS)
end

local function none() end

for _, model in ipairs(models) do
    local describe_it = (helper.is_long or not model.is_slow) and describe or none
    describe_it('budgets on ' .. model.name, function()
        local fn, least, most
        setup(function()
            wane.manual_seed(3)
            fn = model.build()
            least = wane.min_budget(fn)
            most = wane.plan(fn, { policy = 'save_all' }).reserved
        end)

        it('are kept to the byte, with the same gradients', function()
            local want, met = measure.gradients(fn, 'save_all'), {}
            for _, b in ipairs(budgets_between(least, most)) do
                local p = wane.plan(fn, { budget = b })
                assert(p.reserved <= b, ('reserved %d of %d'):format(p.reserved, b))
                if not met[p.reserved] then
                    met[p.reserved] = true
                    local r = wane.measure(fn, { budget = b, steps = 1, warmup = 0 })
                    assert.is_true(r.exact)
                    assert.equal(p.reserved, r.reserved)
                    assert.equal(p.peak, r.peak)
                    assert.equal(want, measure.gradients(fn, policy.budget(b)))
                end
            end
        end)

        it('never give a slower plan for more bytes', function()
            local before = math.huge
            for _, b in ipairs(budgets_between(least, most)) do
                local seconds = wane.plan(fn, { budget = b }).seconds
                assert(seconds <= before, ('%.9f after %.9f at %d'):format(seconds, before, b))
                before = seconds
            end
        end)

        it('end at the least budget: one byte less is refused, with what holds it', function()
            assert.equal(least, wane.plan(fn, { budget = least }).reserved)
            local p, why = wane.plan(fn, { budget = least - 1 })
            assert.is_nil(p)
            assert.equal('budget', why.code)
            assert.equal(least, why.min_budget)
            assert.matches('least that would do is', tostring(why))
            local held = 0
            for _, h in ipairs(why.holders) do held = held + (h.value and 0 or h.bytes) end
            assert(held > 0 and held <= least)
        end)

        it('are spent better than by hand', function()
            local compared, faster = 0, 0
            for _, row in ipairs((models.compare(fn, 50))) do
                if row.best then
                    assert(row.seconds <= row.best_seconds, ('%s takes %.9f, the budget %.9f at %d'):format(row.best,
                        row.best_seconds, row.seconds, row.budget))
                    compared, faster = compared + 1, faster + (row.seconds < row.best_seconds and 1 or 0)
                end
            end
            compared_in_all, faster_in_all = compared_in_all + compared, faster_in_all + faster
            -- Equal layers leave a whole number of them to recompute: there some policy by hand is optimal too.
            assert(compared > 0 and faster >= 0.6 * compared, ('faster at %d of %d'):format(faster, compared))
        end)
    end)
end

describe('all six models together', function()
    it('are strictly faster than the best policy by hand at four of five budgets', function()
        assert(faster_in_all >= 0.8 * compared_in_all, ('%d of %d'):format(faster_in_all, compared_in_all))
    end)
end)

-- Long skips cross every cut, so a chain of blocks keeps them all; letting go value by value does not.
describe('a graph without cuts', function()
    local Skips = nn.module('BudgetSkips', function(self)
        for i = 1, 20 do self[i] = nn.Linear(64, 64) end
    end)
    function Skips:forward(x)
        local s = { x }
        for i = 1, 20 do
            local y = s[i]
            if i > 4 then y = y + s[i - 3] end
            if i > 10 then y = y * s[i - 9] end
            s[i + 1] = self[i](y):gelu()
        end
        return s[21]
    end

    it('is planned faster than by hand at every budget that a policy by hand keeps', function()
        local m, x = Skips(), wane.eval(wane.randn(256, 64))
        local function skips() return m(x):sum() end
        for _, case in ipairs { { models[5].build(), 0.02 }, { skips, 0.08 } } do
            local fn, by = case[1], case[2]
            local sum, n = 0, 0
            for _, row in ipairs((models.compare(fn, 50))) do
                if row.best then
                    assert(row.seconds < row.best_seconds, row.best)
                    sum, n = sum + row.best_seconds / row.seconds - 1, n + 1
                end
            end
            assert(n >= 10 and sum / n >= by, ('%g over %d'):format(sum / n, n))
            local evicted = 0
            for _, q in ipairs(wane.frontier(fn).all) do evicted = evicted + (q.name:find '^evicted' and 1 or 0) end
            assert(evicted >= 5, evicted)
        end
    end)
end)

describe('a budget', function()
    local fn, m, opt, least, most
    setup(function()
        wane.manual_seed(5)
        fn, m = models[2].build()
        opt = optim.Adam(m:parameters(), { lr = 1e-3 })
        least = wane.min_budget(fn)
        most = wane.plan(fn, { policy = 'save_all' }).reserved
    end)

    it('is taken by backward, step, measure, a model and policy.default', function()
        local b = math.floor((least + most) / 2)
        local want = wane.plan(fn, { budget = b }).reserved
        assert(want < most)
        local function reserved_of(run)
            local got = -1
            wane.scoped('listen', function(p) got = math.max(got, require('wane.plan').alone(p).reserved) end, run)
            m:zero_grad()
            return got
        end
        assert.equal(want, reserved_of(function() fn():backward { budget = b } end))
        assert.equal(want, reserved_of(function() fn():backward { policy = policy.budget(b) } end))
        assert.equal(want, reserved_of(function() fn():backward { policy = ('budget(%d)'):format(b) } end))
        assert.equal(want, wane.measure(fn, { budget = b, steps = 1 }).reserved)
        m:checkpoint(policy.budget(b))
        assert.equal(want, reserved_of(function() fn():backward() end))
        m:checkpoint(false)
        policy.default = policy.budget(b)
        assert.equal(want, reserved_of(function() fn():backward() end))
        policy.default = nil
        local step = wane.plan(function() opt:step(fn()) end, { budget = b })
        assert(step and step.reserved <= b)
    end)

    it('is bound by words composed before it', function()
        local b = math.floor(least + 0.5 * (most - least))
        local words = policy.by_op { gelu = 'recompute', attention = 'save', linear_map = 'recompute', optional = true }
        local p = wane.plan(fn, { policy = words, budget = b })
        assert(p and p.reserved <= b)
        local seen = 0
        for _, r in ipairs(p:residuals()) do
            if r.op == 'gelu' then assert.equal('recompute', r.word) end
            if r.op == 'attention' then assert.equal('save', r.word) end
            seen = seen + ((r.op == 'gelu' or r.op == 'attention') and 1 or 0)
        end
        assert(seen > 0)
    end)

    it('lets micro-batches share their plan', function()
        local function losses() return fn(), fn(), fn() end
        local one = wane.plan(function() opt:step { losses() } end, { policy = 'save_all' })
        local p = wane.plan(function() opt:step { losses() } end, { budget = one.reserved - 64 * 1024 })
        assert(p and p.reserved <= one.reserved - 64 * 1024 and p.recomputed > 0)
    end)

    it('plans micro-batches of different forwards, each by its own chain', function()
        local deep, small = {}, {}
        for i = 1, 8 do deep[i] = nn.Residual(nn.MLP(32, 128)) end
        for i = 1, 3 do small[i] = nn.Residual(nn.MLP(16, 48)) end
        local a, b = nn.Sequential(deep), nn.Sequential(small)
        local x, y = wane.eval(wane.randn(192, 32)), wane.eval(wane.randn(128, 16))
        local parameters = a:parameters()
        for _, w in ipairs(b:parameters()) do parameters[#parameters + 1] = w end
        local sgd = optim.SGD(parameters, { lr = 0.1 })
        local function step() sgd:step { a(x):sum(), b(y):mean(), a(x):mean() } end
        local rows = models.compare(step, 20)
        local faster = 0
        for _, row in ipairs(rows) do
            if row.best then
                assert(row.seconds <= row.best_seconds)
                faster = faster + (row.seconds < row.best_seconds and 1 or 0)
            end
        end
        assert(faster >= 14, faster)
        local solved = 0
        for _, q in ipairs(wane.frontier(step).all) do solved = solved + (q.name:find '^solved' and 1 or 0) end
        assert(solved >= 5, solved)
    end)

    it('is refused on a part of a model, with regions by hand, and as nonsense', function()
        m[2]:checkpoint(policy.budget(most))
        helper.refused(nil, function() wane.plan(fn) end, 'a budget covers the whole step')
        m[2]:checkpoint(false)
        helper.refused(nil, function()
            wane.plan(fn, { policy = 'every(2)', budget = most })
        end, 'makes regions, and a budget chooses them')
        helper.refused(nil, function() wane.plan(fn, { budget = 'lots' }) end, 'is not a size')
        helper.refused(nil, function() wane.frontier(fn, { points = 1 }) end, 'points must be a whole number')
    end)

    it('too small for a run raises at the line, and the next call works', function()
        local e = helper.refused('budget', function() fn():backward { budget = 1000 } end)
        assert.matches('budget_spec', e.where)
        fn():backward { budget = most }
        m:zero_grad()
    end)
end)

describe('the frontier', function()
    it('falls in bytes as it rises in time, and each entry gives its plan', function()
        local fn = models[3].build()
        local fr = wane.frontier(fn, { points = 20 })
        assert(#fr > 10)
        for i = 2, #fr do assert(fr[i].reserved < fr[i - 1].reserved and fr[i].seconds > fr[i - 1].seconds) end
        for i = 1, #fr, 5 do
            local p = wane.plan(fn, { policy = fr[i].policy })
            assert.equal(fr[i].reserved, p.reserved)
            assert.equal(fr[i].peak, p.peak)
            assert.equal(fr[i].recomputed, p.recomputed)
        end
        assert.equal(wane.min_budget(fn), fr[#fr].reserved)
        assert.matches('you are here', tostring(fr))
        assert.matches('segments%(2%)', tostring(fr))
    end)

    it('compares policies by hand with all plans, also those that are not shown', function()
        local fn = models[3].build()
        local few, many = wane.frontier(fn, { points = 3 }), wane.frontier(fn, { points = 1000 })
        assert.equal(3, #few)
        assert.equal(#many, #few.all)
        assert.equal(#many, #many.all)
        assert(#many > 10)
        for i, h in ipairs(few.heuristics) do
            local best
            for _, q in ipairs(many) do
                if not best and q.reserved <= h.reserved then best = q.seconds end
            end
            assert.equal(best, h.best)
            assert.equal(best, many.heuristics[i].best)
        end
        assert.matches('3 of ' .. #many .. ' plans worth having, ' .. few.tried .. ' looked at', tostring(few))
    end)

    it('is a picture: a staircase through every plan, and what people do as named points', function()
        local fn = models[3].build()
        local fr = wane.frontier(fn, { points = 5 })
        local name = os.tmpname()
        finally(function() os.remove(name) end)
        assert.equal(name, fr:plot(name))
        local svg = assert(files.read(name))
        assert.truthy(svg:match '^<svg ' and svg:match '</svg>%s*$')
        assert.is_nil(svg:match 'nan' or svg:match 'inf')
        -- The first corner lies above the plan of least bytes; each plan then adds two.
        local path = svg:match '<path d="([^"]+)" class="s1"'
        assert.equal(2 * #fr.all, select(2, path:gsub('L', '')))
        assert.equal(#fr.all, select(2, svg:gsub(' r="2.5"', '')))
        local names = {}
        for text in svg:gmatch 'paint%-order="stroke">([^<]+)</text>' do names[#names + 1] = text end
        for text in svg:gmatch '>%d+  ([^<]+)</text>' do names[#names + 1] = text end
        for _, words in ipairs { 'plan worth having', 'policy by hand', 'least s/step within the bytes', 's/step' } do
            assert.truthy(svg:find('>' .. words, 1, true), words)
        end
        local listed = table.concat(names, ', ')
        for _, word in ipairs { 'least bytes', 'fastest, here, save_all', 'every(1)', 'segments(4)' } do
            assert.truthy(listed:find(word, 1, true), word)
        end
        local text = fr:plot()
        assert.matches('reserved, MiB', text)
        assert.matches('\n  1  least bytes', text)
        assert.is_nil(text:match 'nan')
        local ok, e = pcall(fr.plot, fr, name .. '/x.svg') -- in a folder that is a file
        assert.is_false(ok)
        assert.equal('io', e.code)
    end)
end)

-- A module may keep values of its first call, and its next calls must record the same nodes all the same.
describe('a step that is asked for again', function()
    local function layer(make, ...)
        local dims = { ... }
        return function(dtype) return make { dtype = dtype }, wane.eval(wane.randn(dims, { dtype = dtype })) end
    end
    local function attention(opts)
        return layer(function(o)
            for name, value in pairs(opts) do o[name] = value end
            return nn.Attention(16, 4, o)
        end, 2, 6, 16)
    end
    local layers = {
        attention = attention { rope = true },
        ['composed attention'] = attention { rope = true, causal = true, tiled = false, kv_heads = 2 },
        lstm = layer(function(o) return nn.LSTM(16, 8, o) end, 4, 3, 16),
        gru = layer(function(o) return nn.GRU(16, 8, o) end, 4, 3, 16),
        ['batch norm'] = layer(function(o) return nn.BatchNorm2d(3, o) end, 2, 3, 5, 5),
        ['layer norm'] = layer(function(o) return nn.LayerNorm(16, o) end, 6, 16),
        convolution = layer(function(o) return nn.Conv2d(3, 4, 3, o) end, 2, 3, 5, 5),
        embedding = function(dtype)
            return nn.Embedding(9, 4, { dtype = dtype }), wane.tensor({ 1, 8, 1 }, { dtype = 'i32' })
        end,
    }
    local ways = { f32 = 'f32', bf16 = 'bf16', ['autocast'] = 'f32' }

    for name, make in pairs(layers) do
        it('has the same plan and the same least bytes: ' .. name, function()
            for way, dtype in pairs(ways) do
                local m, x = make(dtype)
                local function loss()
                    local y = way == 'autocast' and wane.autocast('bf16', m, x) or m(x)
                    return (y:to 'f32' ^ 2):mean()
                end
                local first, least = nil, nil
                for _ = 1, 3 do
                    local list = {}
                    for i, line in ipairs(wane.plan(loss):schedule()) do
                        list[i] = table.concat({ line.what, line.op, line.node, line.bytes }, ' ')
                    end
                    local text, bytes = table.concat(list, '\n'), wane.min_budget(loss)
                    first, least = first or text, least or bytes
                    assert.equal(first, text, way)
                    assert.equal(least, bytes, way)
                    collectgarbage()
                end
            end
        end)
    end
end)
