-- Checks that wane.accumulate over n micro-batches gives the bits of opt:step{l1, ..., ln}, and that memory holds one
-- micro-batch at a time whatever n is.
require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'

local nn, optim = wane.nn, wane.optim
local C = binding.C

local function fails(fn, ...)
    local ok, e = pcall(fn, ...)
    assert.is_false(ok, 'it did not fail')
    assert.is_true(wane.errors.is(e), tostring(e))
    assert.is_truthy(e.where:find('accumulate_spec', 1, true), e.where)
    return e.message
end

describe('wane.accumulate', function()
    -- Runs three steps of a model with dropout; returns losses and parameters as text. Under way 'accumulate' the
    -- gradients of the four losses come from wane.accumulate; otherwise opt:step takes the four losses as a list,
    -- scaled by `way`.
    local function train(way, opts)
        wane.manual_seed(17)
        local model = programs.mlp(20, 3, 0.25)
        local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
        local x = {}
        for k = 1, 4 do x[k] = wane.randn(5, 20):retain() end
        wane.eval(unpack(x))
        local function loss(k) return model(x[k]):pow(2):mean() end
        local said = {}
        for _ = 1, 3 do
            local mean
            if way == 'accumulate' then
                opt:zero_grad()
                mean = wane.accumulate(loss, opts)
                opt:step()
            else
                local list = {}
                for k = 1, 4 do list[k] = loss(k) end
                opt:step(list, { scale = way })
                mean = list[1] + list[2] + list[3] + list[4]
                if way then mean = mean * way end
            end
            assert.is_false(mean.requires_grad and way == 'accumulate')
            said[#said + 1] = ('%.17g'):format(mean:item())
        end
        return table.concat(said, ' ') .. programs.bits(model:parameters())
    end

    it('equals opt:step{l1, ...} with scale = 1/n, to the bit, under every policy and budget', function()
        local expected = train(0.25)
        assert.equal(expected, train('accumulate', { micro = 4 }))
        assert.equal(expected, train('accumulate', { micro = 4, mean = true, policy = 'recompute_all' }))
        assert.equal(expected, train('accumulate', { micro = 4, policy = 'sqrt' }))
        assert.equal(expected, train('accumulate', { micro = 4, budget = '1 MiB' }))
        local sum = train(nil)
        assert.equal(sum, train('accumulate', { micro = 4, mean = false }))
        assert.are_not.equal(expected, sum)
    end)

    it('adds to what is there, in order', function()
        -- In f32: (1e8 + 1) - 1e8 = 0, (1e8 - 1e8) + 1 = 1.
        for _, case in ipairs { { { 1e8, 1, -1e8 }, 0 }, { { 1e8, -1e8, 1 }, 1 } } do
            local w = nn.Parameter(wane.tensor { 0 })
            local sum = wane.accumulate(function(i) return (w * wane.tensor { case[1][i] }):sum() end,
                { micro = 3, mean = false })
            assert.equal(case[2], w.grad:totable()[1])
            assert.equal(0, sum:item())
        end
        local w = nn.Parameter(wane.tensor { 3 })
        local function loss(i) return (w * i):sum() end
        assert.equal(7.5, wane.accumulate(loss, { micro = 4 }):item())
        assert.equal(2.5, w.grad:totable()[1])
        wane.accumulate(loss, { micro = 4 })
        assert.equal(5, w.grad:totable()[1])
    end)

    it('holds one micro-batch at a time: the peak is that of two, whatever their number', function()
        local function peak(n)
            collectgarbage()
            collectgarbage()
            local model = programs.mlp(32, 6, 0)
            local most, runs = 0, 0
            wane.memory.reset_peak()
            local before = wane.memory().allocated
            scoped('listen', function(p)
                p = programs.read(p)
                assert.equal(p.predicted.peak, p.measured.peak)
                most, runs = math.max(most, p.measured.peak), runs + 1
            end, function()
                wane.accumulate(function(i) return model(wane.full({ 64, 32 }, i)):sum() end, { micro = n })
            end)
            assert.equal(n, runs)
            return most, wane.memory().peak - before
        end
        local two, all_two = peak(2)
        local many, all_many = peak(12)
        assert.equal(two, many)
        assert.equal(all_two, all_many)
    end)

    it('may be planned: micro-batches that are alike are one part of the step, and nothing runs', function()
        local w = nn.Parameter(wane.ones(4, 4))
        local counter = tonumber(C.wn_debug_get('plans_made'))
        local plan = wane.plan(function()
            return wane.accumulate(function(i) return (w * i):exp():sum() end, { micro = 3 })
        end)
        assert.is_true(plan.peak > 0)
        assert.is_nil(w.grad)
        assert.equal(2, #plan.parts)
        assert.equal(2, plan.parts[2].times)
        -- The first micro-batch makes the gradients, the others add to them: two plans. One more program makes the
        -- parameter.
        assert.equal(counter + 3, tonumber(C.wn_debug_get('plans_made')))
    end)

    it('refuses at the line of the caller, and then works', function()
        local w = nn.Parameter(wane.ones(2))
        local function has(message, word) assert.is_truthy(message:find(word, 1, true), message) end
        has(fails(wane.accumulate, 3, { micro = 2 }), 'expected a function(i)')
        has(fails(wane.accumulate, function() end), 'micro')
        has(fails(wane.accumulate, function() end, { micro = 0 }), 'micro')
        has(fails(wane.accumulate, function() end, { micro = 2, means = true }), "unknown option 'means'")
        has(fails(wane.accumulate, function() end, { micro = 2, mean = 1 }), 'mean must be')
        has(fails(wane.accumulate, function() end, { micro = 2 }), 'loss of micro-batch 1')
        has(fails(wane.accumulate, function() return w * 2 end, { micro = 2 }), 'one element')
        has(fails(wane.accumulate, function(i) return i == 1 and (w * 2):sum() or nil end, { micro = 2 }),
            'micro-batch 2')
        assert.same({ 1, 1 }, w.grad:totable()) -- micro-batch 1 stays
        w.grad = nil
        wane.accumulate(function() return (w * 2):sum() end, { micro = 2 })
        assert.same({ 2, 2 }, w.grad:totable())
    end)
end)
