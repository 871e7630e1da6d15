-- Checks the tables of measured seconds by op, path, type and phase: every instruction of the plan is in one row, FLOP
-- and bytes are those of formulas by hand, sums are sums, and timing changes neither bytes nor the model.
local helper = require 'spec.helper'
local wane = helper.wane
local nn = wane.nn

local WORDS = { 'op', 'path', 'type', 'phase' }

local function make()
    wane.manual_seed(4)
    local model = nn.Sequential { nn.MLP(8, 16), nn.MLP(8, 32) }
    local x = wane.eval(wane.randn(32, 8))
    return model, function() return model(x):sum() end
end

local function check_sums(by_of, calls)
    local first
    for _, word in ipairs(WORDS) do
        local by = by_of(word)
        local sums = { calls = 0, seconds = 0, flops = 0, bytes = 0, share = 0 }
        local before = math.huge
        for _, row in ipairs(by.rows) do
            for name in pairs(sums) do sums[name] = sums[name] + row[name] end
            assert.is_true(row.seconds <= before and row.calls >= 1, row.name)
            before = row.seconds
            assert.is_true(row.seconds == 0 or math.abs(row.gflops - row.flops / row.seconds / 1e9) < 1e-9 * row.gflops
                + 1e-12)
        end
        for name, sum in pairs(sums) do
            assert.is_true(math.abs(sum - by.total[name]) <= 1e-9 * math.abs(sum), word .. ' ' .. name)
        end
        assert.is_true(math.abs(by.total.share - 1) < 1e-9)
        assert.equal(calls or by.total.calls, by.total.calls)
        first = first or by.total
        assert.equal(first.flops, by.total.flops)
        assert.matches('^' .. word .. ' +calls +ms +share +rate\n', tostring(by))
        assert.matches('\nall +%d+ +[%d.e-]+ +100.0 %%', tostring(by))
    end
end

describe('a measurement with profile = true', function()
    it('has every instruction in one row, whatever they are grouped by', function()
        local _, fn = make()
        for _, p in ipairs { 'save_all', 'recompute_all' } do
            local calls, updates = 0, 0
            for _, s in ipairs(wane.plan(fn, { policy = p }):schedule()) do
                if s.what ~= 'free' and s.what ~= 'read' then calls = calls + 1 end
                updates = updates + (s.phase == 'update' and s.what == 'run' and 1 or 0)
            end
            local m = wane.measure(fn, { steps = 2, policy = p, profile = true })
            assert.is_true(m.exact)
            assert.equal(2, #m.times)
            check_sums(function(word) return m:by(word) end, calls)
            local seen = {}
            for _, row in ipairs(m:by('phase').rows) do seen[row.name] = row.calls end
            assert.equal(p == 'recompute_all', seen.recompute ~= nil)
            assert.equal(updates > 0 and updates or nil, seen.update)
            assert.matches('\nop +calls', tostring(m))
            assert.matches('\npath +calls', tostring(m))
        end
    end)

    it('counts the FLOP and bytes of formulas by hand', function()
        local a, b = wane.eval(wane.randn(32, 8)), wane.eval(wane.randn(8, 16))
        local w = wane.eval(wane.randn(16, 4))
        local m = wane.measure(function() return a:matmul(b):matmul(w) end, { steps = 1, profile = true })
        local rows = m:by('op').rows
        assert.equal(1, #rows)
        assert.equal('matmul', rows[1].name)
        assert.equal(2, rows[1].calls)
        assert.equal(2 * 32 * 8 * 16 + 2 * 32 * 16 * 4, rows[1].flops)
        assert.equal(4 * (32 * 8 + 8 * 16 + 32 * 16 + 32 * 16 + 16 * 4 + 32 * 4), rows[1].bytes)
    end)

    it('leaves the model as it was, and with an optimizer trains twice the steps', function()
        local model, fn = make()
        local before = model:parameters()[1]:totable()
        wane.measure(fn, { steps = 2, profile = true })
        assert.same(before, model:parameters()[1]:totable())
        assert.is_nil(model:parameters()[1].grad)
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        local m = wane.measure(fn, { steps = 2, warmup = 1, optimizer = opt, profile = true })
        check_sums(function(word) return m:by(word) end)
        local trained = model:parameters()[1]:totable()
        model, fn = make()
        opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
        for _ = 1, 5 do opt:step(fn()) end
        assert.same(trained, model:parameters()[1]:totable())
        m = wane.measure(fn, { steps = 1, optimizer = opt, profile = true })
        assert.is_true(m.exact)
        local updates = 0
        for _, row in ipairs(m:by('phase').rows) do updates = updates + (row.name == 'update' and row.calls or 0) end
        assert.is_true(updates > 0)
    end)

    it('shows the twenty longest rows, and sums the others up', function()
        local layers, x = {}, wane.eval(wane.randn(2, 4))
        for i = 1, 40 do layers[i] = nn.Linear(4, 4) end
        local model = nn.Sequential(layers)
        local m = wane.measure(function() return model(x):sum() end, { steps = 1, profile = true })
        local by = m:by 'path'
        local text = tostring(by)
        assert.equal(41, #by.rows) -- the layers, and the sum of no module
        assert.matches('\n21 more +%d+ ', text)
        assert.equal(24, select(2, text:gsub('\n', '\n')) + 1)
    end)

    it('is refused other words, and tables that were not asked for', function()
        local _, fn = make()
        local m = wane.measure(fn, { steps = 1, profile = true })
        for want, call in pairs {
            ["did you mean 'path'"] = function() m:by 'paht' end,
            ['got nil; known: op, path, type, phase'] = function() m:by() end,
            ['measure with { profile = true }'] = function() wane.measure(fn, { steps = 1 }):by 'op' end,
            ['profile must be true or false'] = function() wane.measure(fn, { profile = 'op' }) end,
        } do
            local why = helper.refused(nil, function() call() end)
            assert.is_truthy(why.message:find(want, 1, true), why.message)
            assert.matches('^spec/applications_spec.lua:%d+$', why.where)
        end
    end)
end)

describe('a profile', function()
    it('has the tables of the script\'s own plan, and prints two', function()
        local _, fn = make()
        local made = wane.profile(fn, { steps = 1, keep = false, anyway = true })
        local calls = 0
        for _, s in ipairs(wane.plan(fn):schedule()) do
            if s.what ~= 'free' and s.what ~= 'read' then calls = calls + 1 end
        end
        check_sums(function(word) return made:by(word) end, calls)
        local text = tostring(made)
        assert.matches('^op +calls.*\npath +calls.*%d+ kinds of application measured', text)
        assert.matches('expected a word to group by', tostring(select(2, pcall(made.by, made, 3))))
    end)
end)

describe('wn_step_work', function()
    it('is 0 for what computes nothing, and refuses what there is not', function()
        local binding = require 'wane.ffi'
        local C, work = binding.C, binding.new 'double[2]'
        local _, fn = make()
        local plan = wane.plan(fn)
        local handle, steps = plan.parts[1].program.handle, plan:schedule()
        for i, s in ipairs(steps) do
            assert.equal(0, C.wn_step_work(handle, i - 1, work, work + 1))
            if s.what == 'free' then assert.same({ 0, 0 }, { work[0], work[1] }) end
            if s.op == 'linear' and s.what == 'run' then assert.is_true(work[0] > 0 and work[1] > 0) end
        end
        for _, bad in ipairs { -1, #steps } do
            assert.is_true(C.wn_step_work(handle, bad, work, work + 1) ~= 0)
        end
        assert.is_true(C.wn_step_work(handle, 0, nil, work) ~= 0 and C.wn_step_work(handle, 0, work, nil) ~= 0)
    end)
end)
