-- Checks where the seconds of a plan come from: the table of measured seconds where it knows an application, else a
-- roofline of the machine or of a target. A broken table must be named and left aside.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local costs = require 'wane.plan.costs'
local profile = require 'wane.plan.costs.profile'
local models = require 'spec.support.budget_models'
local native = require 'spec.support.native'
local nn = wane.nn
local C = binding.C

describe('seconds of a plan', function()
    local fn, m
    setup(function()
        wane.manual_seed(2)
        fn, m = models[2].build()
    end)
    after_each(function() costs.forget() end)

    it('are a roofline as long as nothing was measured, and say so', function()
        assert.matches('nothing measured', wane.plan(fn).costs)
    end)

    it('are those of the table where it knows an application, to the last bit', function()
        local request = require('wane.program.sequence').request(fn, 'x')
        local before, p = wane.plan(fn).seconds, require('wane.program').open(request):plan()
        local key, count = nil, 0
        for i = 0, C.wn_count(p.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
            local text = binding.text(C.wn_cost_key_step(p.handle, i))
            if text:match '^gelu ' then key, count = text, count + 1 end
        end
        assert.equal(5, count)
        C.wn_cost(key, 7)
        local after = wane.plan(fn)
        assert(after.seconds > 35 and after.seconds < 35 + before)
        assert.matches('100 %% of it measured', after.costs)
        C.wn_cost(key, 0.5)
        assert(wane.plan(fn).seconds < 2.5 + before)
    end)

    it('are those of an application that reads what was computed again, and stand in where it has no others', function()
        local request = require('wane.program.sequence').request(fn, 'x')
        local function keys_of(policy)
            local copy, keys = { policy = policy }, {}
            for key, value in pairs(request) do copy[key] = value end
            local p = require('wane.program').open(copy):plan()
            local count = C.wn_count(p.handle, C.WN_COUNT_INSTRUCTIONS)
            for i = 0, count - 1 do keys[i] = binding.text(C.wn_cost_key_step(p.handle, i)) end
            p:close()
            return keys
        end
        for _, key in pairs(keys_of 'save_all') do assert.is_nil(key:find ' again$') end
        local again, count = nil, 0
        local keys = keys_of 'recompute_all'
        for _, key in pairs(keys) do
            if key:match '^gelu.* again$' then again = key end
        end
        for _, key in pairs(keys) do count = count + (key == again and 1 or 0) end
        assert.is_true(count > 0)
        local saved, plain = wane.plan(fn, { policy = 'save_all' }).seconds, again:gsub(' again$', '')
        C.wn_cost(again, 7) -- nothing else is known: it stands for all of them
        assert.is_true(wane.plan(fn, { policy = 'save_all' }).seconds > 35)
        C.wn_cost(plain, 0)
        assert.is_true(wane.plan(fn, { policy = 'save_all' }).seconds < saved)
        local seconds = wane.plan(fn, { policy = 'recompute_all' }).seconds
        assert.is_true(seconds > 7 * count and seconds < 7 * count + 1)
    end)

    it('of a profile made beside other work are neither used nor kept', function()
        local function places(...)
            local list = {}
            for i, times in ipairs { ... } do list[i] = { key = 'k' .. (i - i % 2), times = times } end
            return list
        end
        -- Lower quartiles 1, 2 and 4; k2 applies twice, at 2 and 4; whole steps take 1.1 times the sum of 7.
        local quiet = { { whole = { 7.7, 8, 7.7, 9 }, places = places({ 1, 1, 1.1, 1.2 }, { 2, 2, 2, 2.2 },
            { 4, 5, 4, 4 }) } }
        local seconds, signs = profile.fit(quiet)
        assert(math.abs(seconds.k0 - 1.1) < 1e-12 and math.abs(seconds.k2 - 3.3) < 1e-12)
        assert.equal(3, signs.count)
        assert.is_nil(profile.judge(signs))
        -- A burst in most repetitions, in whole steps only, in applications only; one that lasted from end to end.
        local burst = { { whole = { 7.7 }, places = places({ 1, 8, 8 }, { 2, 2, 9 }, { 4, 9, 9 }) } }
        assert.matches('medians are 2.7 times the least', profile.judge(select(2, profile.fit(burst))))
        local slow = { { whole = { 11 }, places = places({ 1 }, { 2 }, { 4 }) } }
        assert.matches('a whole step takes 11 s', profile.judge(select(2, profile.fit(slow))))
        local late = { { whole = { 5 }, places = places({ 1 }, { 2 }, { 4 }) } }
        assert.matches('sum of its applications is 7 s', profile.judge(select(2, profile.fit(late))))
        signs.roofline = 0.5
        assert.matches('14.0 times what the rates', profile.judge(signs))
        signs.roofline = 1
        assert.is_nil(profile.judge(signs))

        local judge, tries = profile.judge, 0
        profile.judge = function()
            tries = tries + 1
            return 'a burst'
        end
        local ok, why = pcall(function()
            local list = wane.profile(fn, { steps = 1 })
            assert.equal(3, tries)
            assert.is_false(list.is_used)
            assert.matches('disturbed: a burst, so .* are not used.*not kept: disturbed', tostring(list))
            assert.matches('nothing measured', wane.plan(fn).costs)
            list = wane.profile(fn, { steps = 1, anyway = true })
            assert.matches('are all the same used', tostring(list))
            assert.matches('100 %% of it measured', wane.plan(fn).costs)
        end)
        profile.judge = judge
        assert(ok, why)
    end)

    -- Runs wane.profile of a small step in a process of its own, with an environment. WHERE is a folder that can be
    -- written. Returns what it prints, its exit code, and how often the step was recorded.
    local function profiled(environment, before)
        local where = files.folder()
        finally(function() helper.lines('rm -rf ' .. where) end)
        local text = [[local wane, n = require 'wane', 0
            local m = wane.nn.Linear(64, 64)
            local function forward() return m(wane.ones(256, 64)):sum() end
            local function loss() n = n + 1 return forward() end
            local steps, before = 600, os.clock()
            if SECONDS > 0 then -- as many turns, of eight forwards each, as take about so long in this way of running
                for _ = 1, 50 do forward():item() end
                steps = math.max(50, math.floor(SECONDS / ((os.clock() - before) / 50 * 8)))
            end
            local ok, e = pcall(wane.profile, loss, { steps = steps, anyway = true })
            print(tostring(e), n > 0 and 'recorded' or 'nothing was recorded')
            os.exit(ok and 0 or 1)]]
        files.write(where .. '/x.lua', (text:gsub('SECONDS', before and 4 or 0)))
        local command = ('env -u XDG_CACHE_HOME -u WANE_COSTS %s %s build/wane run %s/x.lua'):format(environment,
            before or '', where)
        return helper.shell(command:gsub('WHERE', where), before and 'expect recorded\n' or nil)
    end

    it('are not measured where they could not be kept', function()
        for _, environment in ipairs { 'HOME=/proc/none', 'WANE_COSTS=/proc/none/x.txt' } do
            local text, code = profiled(environment)
            assert.equal(1, code, text)
            assert.matches('wane.profile: [^\n]*/proc/none[^\n]*WANE_COSTS=off keeps none\tnothing was recorded\n$',
                text)
        end
        local text = helper.shell 'env -u WANE_COSTS HOME=/proc/none XDG_CACHE_HOME= build/wane profile'
        assert.matches('^wane: [^\n]*wane.profile: [^\n]*/proc/none', text)
    end)

    it('say why they are not kept', function()
        assert.matches('not kept: HOME is not set', (profiled '-u HOME'))
        assert.matches('not kept: WANE_COSTS is off', (profiled 'WANE_COSTS=off'))
        assert.matches('kept in /[^\n]*costs%-', (profiled 'HOME=WHERE'))
    end)

    it('are counted at a terminal while they are measured', function()
        local text = profiled('HOME=WHERE TERM=xterm', native.terminal())
        assert.matches('\r\27%[K%d+/%d+  [^\r]*turns of the plans', text)
        assert.matches('\r\27%[K[^\r]*op ', text) -- the line is cleared before the table
    end)

    it('come from wane.profile, and leave the model as it was', function()
        local list = wane.profile(fn, { steps = 2, anyway = true })
        assert(#list > 20)
        for i = 2, #list do assert(list[i].seconds <= list[i - 1].seconds) end
        for _, p in ipairs(m:parameters()) do assert.is_nil(p.grad) end
        assert.matches('WANE_COSTS is off', tostring(list))
        local p = wane.plan(fn)
        assert.matches('100 %% of it measured', p.costs)
        local sum = 0
        for i, s in ipairs(p:schedule()) do
            if s.what == 'run' then
                local key = binding.text(C.wn_cost_key_step(p.parts[1].program.handle, i - 1))
                for _, row in ipairs(list) do
                    if row.key == key then sum = sum + row.seconds end
                end
            end
        end
        -- Gradients made in their place take no time, and are in the list.
        assert(sum >= p.seconds * 0.999 and sum <= p.seconds * 1.05, sum .. ' ' .. p.seconds)
    end)

    it('are not kept with a word that is none', function()
        helper.refused(nil, function() wane.profile(fn, { keep = 'no' }) end, 'keep must be true or false')
        helper.refused(nil, function() wane.profile(fn, { anyway = 1 }) end, 'anyway must be true or false')
    end)

    it('change what a budget chooses', function()
        local least, most = wane.min_budget(fn), wane.plan(fn).reserved
        local budget = math.floor((least + most) / 2)
        local before = wane.plan(fn, { budget = budget }):recipe()
        local p = wane.plan(fn)
        for i = 0, C.wn_count(p.parts[1].program.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
            local key = C.wn_cost_key_step(p.parts[1].program.handle, i)
            if binding.text(key):match '^gelu' then C.wn_cost(key, 1) end
        end
        local after = wane.plan(fn, { budget = budget })
        assert.not_equal(before, after:recipe())
        assert(after.reserved <= budget)
        for _, r in ipairs(after:residuals()) do
            if r.op == 'gelu' then assert.equal('save', r.word) end
        end
    end)

    it('are kept in the file that WANE_COSTS names, and read by the next process', function()
        local file = os.tmpname()
        local function run(word)
            return (files.lua(("local word = '%s' "):format(word) .. [[
                local wane = require 'wane'
                local m, x = wane.nn.Linear(8, 8), wane.eval(wane.randn(4, 8))
                local function fn() return m(x):sum() end
                if word == 'profile' then print(wane.profile(fn, { steps = 5, anyway = true })) end
                if word == 'once' then print(wane.profile(fn, { steps = 5, keep = false, anyway = true })) end
                print(wane.plan(fn).costs)]], ("WANE_COSTS='%s'"):format(file)))
        end
        os.remove(file)
        assert.matches('nothing measured', run 'plan')
        local once = run 'once'
        assert.matches('not kept: keep = false', once)
        assert.matches('100 %% of it measured', once)
        assert.is_nil(io.open(file))
        assert.matches('nothing measured', run 'plan')
        assert.matches('kept in ' .. file:gsub('%p', '%%%0'), run 'profile')
        assert.matches('100 %% of it measured', run 'plan')
        assert.matches('\tlinear f32 4x8 <%- f32 4x8, f32 8x8, f32 8\n', files.read(file))
        files.write(file, 'nonsense\n\tlinear\nabc\tlinear\n')
        assert.matches('nothing measured', run 'plan')
        os.remove(file)
    end)
end)

describe('a file of costs with a number that no machine measures', function()
    it('is said and left aside, whatever the number is', function()
        local file = os.tmpname()
        local said = files.lua(("local path = '%s' "):format(file) .. [[
            local wane, costs = require 'wane', require 'wane.plan.costs'
            local m = wane.nn.Linear(8, 8)
            local rates = { '1e+10', '2e+10', '4e+10', '8e+09', '1e-06' }
            for _, field in ipairs { 'machine', 'link', 'seconds' } do
                for _, number in ipairs { '-1', 'nan', 'inf', '1e999', '-inf', 'x', '0' } do
                    local f = assert(io.open(path, 'w'))
                    local words = { unpack(rates, 1, field == 'link' and 4 or 5) }
                    words[2] = number
                    f:write('machine\t', table.concat(field == 'machine' and words or rates, ' '), '\n')
                    if field == 'link' then f:write('link\t', table.concat(words, ' '), '\n') end
                    if field == 'seconds' then f:write(number, '\tadd\n') end
                    f:close()
                    costs.forget()
                    local seconds = wane.plan(function() return m(wane.ones(4, 8)):sum() end).seconds
                    assert(seconds > 0 and seconds < 1, field .. ' ' .. number)
                end
            end
            print 'planned']], ("WANE_COSTS='%s'"):format(file))
        assert.matches('planned', said)
        local words = 'the file of costs ' .. file:gsub('%p', '%%%0') .. ' cannot be read %(its line %d'
        local _, told = said:gsub(words, '')
        assert.equal(7 + 7 + 5, told, said) -- seconds may be 0, and a word in their place is a remark
        os.remove(file)
    end)
end)

describe('a target', function()
    local fn
    setup(function() fn = models[3].build() end)

    it('is a machine one need not own', function()
        local here, there = wane.plan(fn), wane.plan(fn, { target = 'h200' })
        assert.matches("^rates of h200, predicted from an H100's", there.costs)
        assert(there.seconds < here.seconds)
        assert.matches('^rates of h100, measured', wane.plan(fn, { target = 'h100' }).costs)
        local slower = wane.plan(fn, { target = 'a100' })
        assert.matches('^roofline of a100', slower.costs)
        assert(slower.seconds >= there.seconds)
        local fr = wane.frontier(fn, { target = 'h200', points = 5 })
        assert.equal(5, #fr)
        assert(fr[1].seconds < here.seconds)
        assert(wane.min_budget(fn, { target = 'h200' }) > 0)
        assert.matches('data sheet', tostring(wane.targets()))
    end)

    it('that nobody knows is refused with near names; a plan for one does not run here', function()
        helper.refused(nil, function() wane.plan(fn, { target = 'h20' }) end, "did you mean 'h200'")
        local p = wane.plan(fn, { target = 'h200' })
        helper.refused(nil, function() p.parts[1].program:run() end, 'planned for another machine, h200')
        local bad = binding.new('struct wn_profile')
        helper.refused(nil, function() binding.id(C.wn_target_set('x', bad)) end, 'rates must be above 0')
    end)
end)

describe('wane.fit', function()
    local m = nn.Sequential { nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16) }
    local function step_of(n)
        local x = wane.zeros(n, 16)
        return function() return m(x):sum() end
    end

    it('finds the largest batch whose step a budget holds', function()
        local budget = 200000
        local n, p = wane.fit(step_of, { budget = budget })
        assert(n > 16 and p.reserved <= budget)
        assert.is_nil((wane.plan(step_of(n + 1), { budget = budget })))
    end)

    it('says why not even one fits, and what it wants', function()
        local n, why = wane.fit(step_of, { budget = 1000 })
        assert.is_nil(n)
        assert.equal('budget', why.code)
        assert.equal(7, (wane.fit(step_of, { budget = '1 GiB', most = 7 })))
        helper.refused(nil, function() wane.fit(step_of, {}) end, 'say {budget')
        helper.refused(nil, function() wane.fit(3, { budget = 1 }) end, 'expected a function')
        helper.refused(nil, function() wane.fit(step_of, { budget = 1, from = 0 }) end, 'from must be a whole number')
    end)
end)

-- ---- tables of a profile -------------------------------------------------------------------------------------------
-- Checks the tables of measured seconds by op, path, type and phase: every instruction of the plan is in one row, FLOP
-- and bytes are those of formulas by hand, sums are sums, and timing changes neither bytes nor the model.
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

    it('trains twice the steps with an optimizer', function()
        local model, fn = make()
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
            assert.matches('^spec/costs_spec.lua:%d+$', why.where)
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

describe('the work of an instruction', function()
    it('is 0 for what computes nothing, and is refused of what there is not', function()
        local step = binding.new 'struct wn_step'
        local _, fn = make()
        local plan = wane.plan(fn)
        local handle, steps = plan.parts[1].program.handle, plan:schedule()
        for i, s in ipairs(steps) do
            assert.equal(0, C.wn_step(handle, i - 1, step))
            if s.what == 'free' then assert.same({ 0, 0 }, { step.flops, step.traffic }) end
            if s.op == 'linear' and s.what == 'run' then assert.is_true(step.flops > 0 and step.traffic > 0) end
        end
        for _, bad in ipairs { -1, #steps } do assert.is_true(C.wn_step(handle, bad, step) ~= 0) end
    end)
end)
