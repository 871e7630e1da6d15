-- Checks micro-batches and what may change between steps. opt:step{l1, l2, ...} and wane.accumulate must equal the
-- accumulation that a script would write, to the bit and in the order of the list, and hold one micro-batch at a time.
-- Lua numbers are bound when a program runs, so they must change its values and never its plan.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'

local nn, optim = wane.nn, wane.optim
local C = binding.C

local function made()
    return tonumber(C.wn_debug_get('plans_made'))
end

local function weight(values)
    return nn.Parameter(wane.tensor(values))
end

describe('micro-batches', function()
    -- Each way takes a gradient of four losses and steps: function(optimizer, loss(k), options) -> what it says of the
    -- losses.
    local WAYS = {
        ['backward calls'] = function(opt, loss, opts)
            local list = {}
            for k = 1, 4 do
                list[k] = loss(k)
                list[k]:backward { scale = opts.scale }
            end
            opt:step()
            return list[1] + list[2] + list[3] + list[4]
        end,
        ['opt:step of a list'] = function(opt, loss, opts)
            local list = {}
            for k = 1, 4 do list[k] = loss(k) end
            opt:step(list, opts)
            for _, p in ipairs(opt:parameters()) do assert.is_nil(p.grad) end
            return list[1] + list[2] + list[3] + list[4]
        end,
        ['wane.accumulate'] = function(opt, loss, opts)
            local said = wane.accumulate(loss, { micro = 4, mean = opts.scale == 0.25, policy = opts.policy,
                budget = opts.budget })
            opt:step()
            assert.is_false(said.requires_grad)
            return opts.scale and said / opts.scale or said
        end,
        ['opt:step of a function'] = function(opt, loss, opts)
            local said = opt:step(loss, { micro = 4, mean = opts.scale == 0.25, policy = opts.policy,
                budget = opts.budget })
            for _, p in ipairs(opt:parameters()) do assert.is_nil(p.grad) end
            return opts.scale and said / opts.scale or said
        end,
    }

    -- Runs three steps of a model with dropout; returns losses and parameters as text.
    local function train(way, opts)
        wane.manual_seed(13)
        local model = programs.mlp(20, 3, 0.25)
        local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
        local x, said = {}, {}
        for k = 1, 4 do x[k] = wane.randn(5, 20):retain() end
        wane.eval(unpack(x))
        for _ = 1, 3 do
            opt:zero_grad()
            local sum = WAYS[way](opt, function(k) return model(x[k]):pow(2):mean() end, opts)
            said[#said + 1] = ('%.17g'):format(sum:item())
        end
        return table.concat(said, ' ') .. programs.bits(model:parameters())
    end

    for _, way in ipairs { 'opt:step of a list', 'wane.accumulate', 'opt:step of a function' } do
        it('equal backward calls one after the other, to the bit, under every policy and budget: ' .. way, function()
            for _, scale in ipairs { false, 0.25, way == 'opt:step of a list' and 1 / 3 or nil } do
                local expected = train('backward calls', { scale = scale or nil })
                for _, how in ipairs { {}, { policy = 'recompute_all' }, { policy = 'sqrt' }, { budget = '1 MiB' } } do
                    how.scale = scale or nil
                    assert.equal(expected, train(way, how))
                end
            end
            assert.are_not.equal(train(way, { scale = 0.25 }), train(way, {}))
        end)
    end

    it('add their gradients in the order of the list', function()
        -- In f32: (1e8 + 1) - 1e8 = 0, (1e8 - 1e8) + 1 = 1.
        for _, case in ipairs { { { 1e8, 1, -1e8 }, 0 }, { { 1e8, -1e8, 1 }, -1 }, { { 1, 1e8, -1e8 }, 0 } } do
            local w = weight { 0 }
            local list = {}
            for k, c in ipairs(case[1]) do list[k] = (w * wane.tensor { c }):sum() end
            optim.SGD({ w }, { lr = 1 }):step(list)
            assert.equal(case[2], w:totable()[1])
            local v = weight { 0 }
            for _, c in ipairs(case[1]) do (v * wane.tensor { c }):sum():backward() end
            assert.equal(-case[2], v.grad:totable()[1])
            v.grad = nil
            local sum = wane.accumulate(function(i) return (v * wane.tensor { case[1][i] }):sum() end,
                { micro = 3, mean = false })
            assert.same({ -case[2], 0 }, { v.grad:totable()[1], sum:item() })
        end
    end)

    it('have the order of sums that partial says, to the bit, under every policy', function()
        local model, n = programs.mlp(12, 2, 0), 8
        local x = {}
        for k = 1, n do x[k] = (wane.randn(3, 12) * 10 ^ (k % 3)):retain() end
        wane.eval(unpack(x))
        local function loss(k) return model(x[k]):pow(2):mean() end
        local p, seen = model:parameters()[1], {}
        for _, m in ipairs { 1, 2, 4, 8 } do
            local total
            for b = 1, n, m do
                local sum
                for k = b, b + m - 1 do
                    local g = wane.grad(loss(k) * (1 / n), p)
                    sum = wane.eval(sum and sum + g or g)
                end
                total = wane.eval(total and total + sum or sum)
            end
            seen[programs.bits { total }] = true
            for _, policy in ipairs { 'save_all', 'recompute_all', 'sqrt' } do
                local said = wane.accumulate(loss, { micro = n, partial = m, policy = policy })
                assert.equal(programs.bits { total }, programs.bits { p.grad })
                assert.equal(wane.accumulate(loss, { micro = n }):item(), said:item())
                for _, q in ipairs(model:parameters()) do q.grad = nil end
            end
        end
        local different = 0
        for _ in pairs(seen) do different = different + 1 end
        assert.equal(3, different) -- m = 1 and m = n are one order, the others differ from it in their last bits
        for _, bad in ipairs { 3, 0, 16, 1.5, 'x' } do
            helper.refused('value', function() wane.accumulate(loss, { micro = n, partial = bad }) end, 'partial')
        end
    end)

    it('with weights have the mean of all that they weigh, under one plan', function()
        local w = nn.Linear(4, 1)
        local x, y = wane.eval(wane.randn(12, 4), wane.randn(12, 1))
        local function squares(a, n) return ((w(x:narrow(1, a, n)) - y:narrow(1, a, n)) ^ 2):sum() end
        local function accumulate(counts)
            return wane.accumulate(function(i) return squares(4 * i - 3, 4), counts[i] end, { micro = 3 })
        end
        local mean = accumulate { 4, 4, 4 }
        local by_weights = w.weight.grad:totable()[1]
        assert.near((squares(1, 12) / 12):item(), mean:item(), 1e-5)
        w:zero_grad()
        local whole = squares(1, 12) / 12
        whole:backward()
        for k, g in ipairs(w.weight.grad:totable()[1]) do assert.near(g, by_weights[k], 1e-5) end
        w:zero_grad()
        local plans = made()
        assert.near(squares(1, 12):item() / 7, accumulate({ 1, 2, 4 }):item(), 1e-5)
        w:zero_grad()
        assert.equal(plans + 1, made()) -- of the value that was read
        for words, counts in pairs { ['micro-batch 2 has no weight'] = { 1 }, ['micro-batches are 0'] = { 0, 0, 0 },
            ['weight of micro-batch 1 must be a number'] = { 'x' }, ['0 or more, got -1'] = { -1 } } do
            helper.refused('value', function() accumulate(counts) end, words)
            assert.is_nil(w.weight.grad)
        end
        squares(1, 4):backward()
        helper.refused('value', function() accumulate { 1, 1, 1 } end, 'has a gradient already')
    end)

    it('issue one forward right before its own backward', function()
        local model = programs.mlp(16, 2, 0)
        local opt = optim.SGD(model:parameters(), { lr = 0.1 })
        local p
        scoped('listen', function(q) p = q end, function()
            local list = {}
            for k = 1, 3 do list[k] = model(wane.ones(4, 16) * k):sum() end
            opt:step(list)
        end)
        local order, last = {}, nil
        for _, step in ipairs(programs.schedule(p)) do
            local phase = step.what == 'run' and step.phase
            if phase and phase ~= 3 and phase ~= last then order[#order + 1], last = phase, phase end
        end
        assert.same({ 0, 2, 0, 2, 0, 2 }, order)
    end)

    it('need little more than one of them, and far less than the batch', function()
        local function peak(parts, rows)
            local model = programs.mlp(32, 6, 0)
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local p
            scoped('listen', function(q) p = p or programs.read(q) end, function()
                local list = {}
                for k = 1, parts do list[k] = model(wane.ones(rows, 32)):sum() end
                opt:step(list)
            end)
            assert.equal(p.predicted.peak, p.measured.peak)
            return p.measured.kinds[C.WN_KIND_ACTIVATION + 1]
        end
        local one, four, whole = peak(1, 64), peak(4, 64), peak(1, 256)
        assert.is_true(four < whole / 2, four .. ' against ' .. whole)
        assert.is_true(four >= one)
    end)

    it('refuse what is no loss, and then work', function()
        local w = weight { 1 }
        local opt = optim.SGD({ w }, { lr = 1 })
        helper.refused(nil, function() opt:step({ (w * 2):sum(), 3 }) end, 'loss 2')
        helper.refused('shape', function() opt:step({ (w * 2):sum(), wane.ones(2) * w }) end)
        assert.same({ 1 }, w:totable())
        opt:step { (w * 2):sum(), (w * 3):sum() }
        assert.same({ -4 }, w:totable())
    end)
end)

describe('wane.accumulate', function()
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

    it('refuses at the line of the caller, and then works', function()
        local w = nn.Parameter(wane.ones(2))
        local function refused(words, fn, opts)
            local e = helper.refused(nil, function() local _ = wane.accumulate(fn, opts) end, words)
            assert.matches('microbatch_spec', e.where)
        end
        refused('expected a function(i)', 3, { micro = 2 })
        refused('micro', function() end)
        refused('micro', function() end, { micro = 0 })
        refused("unknown option 'means'", function() end, { micro = 2, means = true })
        refused('mean must be', function() end, { micro = 2, mean = 1 })
        refused('loss of micro-batch 1', function() end, { micro = 2 })
        refused('one element', function() return w * 2 end, { micro = 2 })
        refused('micro-batch 2', function(i) return i == 1 and (w * 2):sum() or nil end, { micro = 2 })
        assert.same({ 1, 1 }, w.grad:totable()) -- micro-batch 1 stays
        wane.accumulate(function() return (w * 2):sum() end, { micro = 2 })
        assert.same({ 3, 3 }, w.grad:totable()) -- added to what is there
    end)
end)

describe('a Lua number as operand', function()
    it('is bound when the program runs: new numbers, no new plans', function()
        local x = wane.tensor { 1, 2, 3 }
        local w = weight { 1, 2, 3 }
        local plans
        for k = 1, 10 do
            assert.same({ k + 1, 2 * k + 1, 3 * k + 1 }, (x * k + 1):totable())
            assert.same({ k - 1, k - 2, k - 3 }, (k - x):totable())
            local loss = (w * k):sum()
            loss:backward()
            assert.same({ k, k, k }, w.grad:totable())
            w.grad = nil
            if k == 2 then plans = made() end
        end
        assert.equal(plans, made())
    end)

    it('is rounded to the dtype of the tensor, and refused where it does not fit', function()
        local f = wane.tensor { 0 } + 0.1
        assert.is_true(f:item() ~= 0.1 and math.abs(f:item() - 0.1) < 1e-8)
        assert.equal(0.1, (wane.tensor({ 0 }, { dtype = 'f64' }) + 0.1):item())
        assert.equal(7, (wane.tensor({ 4 }, { dtype = 'i32' }) + 3):item())
        local wide = wane.tensor({ 4 }, { dtype = 'i32' }) + 0.5
        assert.equal('f32', wide.dtype)
        assert.equal(4.5, wide:item())
    end)
end)
