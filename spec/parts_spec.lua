-- Plans steps of several run points (zero_grad, backward, clip, update, assign) before anything ran and between steps,
-- and runs them under a memory limit of the predicted bytes, or of the least bytes of all. The ledger must count what
-- was predicted, from the first step on, which makes parameters and states of optimizers. Planning must leave states,
-- gradients and bytes as they were. Nothing may ask the system for memory while a program runs, and the process may
-- grow by no more than the planned bytes and 32 MB.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local native = require 'spec.support.native'
local networks = require 'spec.support.networks'
local programs = require 'spec.support.programs'

local C, nn, optim = binding.C, wane.nn, wane.optim
local clean, limited = networks.clean, networks.limited
local SEEDS = { 2, 3, 9 }
if helper.is_long then
    for seed = 1, 60 do SEEDS[seed] = seed end
end

local function fingerprint(net)
    local list = {}
    for _, p in ipairs(net.parameters) do
        local g = p.grad
        list[#list + 1] = g and require('wane.plan.measure').fingerprint { g } or 'none'
    end
    return table.concat(list, ' ')
end

-- Returns a step of three lines: a function of its policy.
local function three_lines(loss, opt) return networks.steps['the three lines']({ loss = loss }, { opt }) end

describe('a step of several run points', function()
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
        return { before = before, model = model, opt = opt, loss = loss, lines = three_lines(loss, opt),
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
        local lines = three_lines(e.loss, optim.SGD(e.parameters, { lr = 0 }))
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
        assert.equal(3 * #e.parameters, p.first.cells) -- each once, with its two states of AdamW
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

    -- One of EACH allocations fails; later on, where a search does the same thing again and again, one of so many more.
    local EACH = helper.is_long and 1 or 29
    local AGAIN = helper.is_long and 500 or 50
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
                local ok, got, fired = programs.failing(at, found)
                assert.equal(not fired, ok, tostring(got))
                if fired then
                    failures, at = failures + 1, at + math.max(EACH, math.floor(at / AGAIN))
                    assert.equal('oom', got.code)
                    if EACH > 1 or failures % 16 == 0 then assert.equal(gradients, fingerprint(e)) end
                else
                    assert.equal(want, got)
                end
            until not fired
            assert.is_true(at > 100, tostring(at))
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
        networks.as_planned(fn, a.before, 'two networks')
        local reserved, live = limited(wane.plan(fn).reserved, a.before, fn)
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
end)

-- Seeds of networks for the least bytes: of 2 the making of states takes more than a step; 9 and 28 have parameters
-- that no loss reaches.
local SEEDS_OF_LEAST = helper.is_long and SEEDS or { 2, 3, 9, 28 }

-- Ways to keep within the least bytes: function(optimizer, loss(), bytes) -> step.
local WITHIN = {
    budget = function(opt, loss, bytes)
        return function() return opt:step(loss(), { budget = bytes }) end
    end,
    ['the least policy'] = function(opt, loss)
        return function() return opt:step(loss(), { policy = 'least' }) end
    end,
}

local function check_least(seed, way, more)
    local before = clean()
    local net = networks.make(seed)
    local opt = networks.optimizers(net, more)[1]
    local what = ('network %d, %s (%s)'):format(seed, way, table.concat(net.kinds, ', '))
    local function planned() return opt:step(net.loss()) end
    local least = wane.min_budget(planned)
    local p = assert(wane.plan(planned, { budget = least }))
    assert(wane.plan(planned, { budget = least - 1 }) == nil, what .. ': a byte less is enough')
    assert(p.reserved <= least and p.first.reserved <= least, what)
    local step = WITHIN[way](opt, net.loss, least)
    for k = 1, 3 do
        local reserved, live = limited(least, before, step)
        assert(reserved <= least, ('%s: step %d reserved %d of %d bytes'):format(what, k, reserved, least))
        local want = math.max(k == 1 and p.first.peak or 0, p.peak)
        if way ~= 'the least policy' then
            assert(live == want, ('%s: step %d held %d bytes, predicted %d'):format(what, k, live, want))
        end
        assert.equal(0, wane.plan(planned).first.cells)
    end
    local later = wane.min_budget(planned)
    assert(later <= least, ('%s: %d bytes after three steps, %d before'):format(what, later, least))
    wane.memory.trim() -- the arena of the making of states may be larger
    local reserved = limited(later, before, function() opt:step(net.loss(), { budget = later }) end)
    assert(reserved <= later, ('%s: reserved %d of %d bytes'):format(what, reserved, later))
end

describe('the least bytes of a step', function()
    for _, clip in ipairs { false, 0.5 } do
        for way in pairs(WITHIN) do
            it(('hold from the first step on: %s, %s'):format(way, clip and 'clipped' or 'as it is'), function()
                for _, seed in ipairs(SEEDS_OF_LEAST) do check_least(seed, way, { clip_norm = clip }) end
            end)
        end
    end

    it('count what states are made of', function()
        local before = clean()
        -- The parameter is a product of two values made on the way: 64 KiB each, where the step itself needs next to
        -- nothing.
        local p = nn.Parameter(wane.randn(128, 128):matmul(wane.randn(128, 128)))
        local opt = optim.SGD({ p }, { lr = 0.1 })
        local function fn() return opt:step(p:narrow(1, 1, 1):sum()) end
        local plan, least = wane.plan(fn, { policy = 'least' }), wane.min_budget(fn)
        assert.equal(plan.first.reserved, least)
        assert.is_true(least >= 3 * 65536, tostring(least))
        local none, why = wane.plan(fn, { budget = least - 1 })
        assert.is_nil(none)
        assert.equal(least, why.min_budget)
        assert.is_truthy(tostring(why):find('making the 1 states and data of the step', 1, true), tostring(why))
        local refused = helper.refused('oom', function() limited(least - 1, before, fn) end)
        assert.equal(before + least, refused.least)
        assert.is_truthy(tostring(refused):find('it makes the states and data of the step', 1, true), tostring(refused))
        assert.equal(least, (limited(least, before, fn)))
        assert.is_true(wane.min_budget(fn) < least)
    end)

    -- Returns the bytes there were before, the loss of a network, and its optimizer. Its weights begin as data, which
    -- is there until the first step is over; or it reads data that is retained: a draw, and late a product.
    local function of_data(is_retained)
        local before = clean()
        wane.manual_seed(1)
        local layers, width = {}, is_retained and 32 or 64
        for i = 1, 6 do
            layers[2 * i - 1], layers[2 * i] = nn.Linear(width, width), nn.GELU()
            if not is_retained then layers[2 * i - 1].weight = nn.Parameter(wane.eval(wane.randn(64, 64) * 0.1)) end
        end
        local model, x = nn.Sequential(layers), wane.randn(512, width)
        local late = wane.randn(512, 8):matmul(wane.randn(8, width))
        if is_retained then x, late = x:retain(), late:retain() else x, late = wane.eval(x), 1 end
        local opt = optim.Adam(model:parameters())
        return before, function() return (model(x) * late):sum() end, opt
    end

    local DATA = {
        ['one program'] = function(loss, opt)
            return function(policy) return opt:step(loss(), { policy = policy }) end
        end,
        ['three lines'] = three_lines,
    }

    for name, make in pairs(DATA) do
        for is_retained, what in pairs { [false] = 'parameters begin as', [true] = 'is retained' } do
            it(('hold with every budget for data that %s: %s'):format(what, name), function()
                local _, loss, opt = of_data(is_retained)
                local least, most = wane.min_budget(make(loss, opt)), wane.plan(make(loss, opt)).reserved
                assert.is_true(most - least > 300000)
                loss, opt = nil, nil -- luacheck: ignore 311
                for k = 0, 4 do
                    collectgarbage()
                    collectgarbage()
                    local before, again, optimizer = of_data(is_retained)
                    local step = make(again, optimizer)
                    local budget = math.floor(least + (most - least) * k / 4)
                    local p = assert(wane.plan(step, { budget = budget }))
                    local policy, peak = p:as_policy(), p.first.peak
                    if #p.parts == 1 then peak = math.max(peak, p.peak) end
                    for _ = 1, 2 do
                        local reserved, live = limited(budget, before, function() step(policy) end)
                        assert.is_true(reserved <= budget)
                        assert.is_true(live == peak or not is_retained)
                        peak = p.peak
                    end
                    assert.is_true(wane.min_budget(step) <= least)
                end
            end)
        end
    end

    it('are named by the error of a limit, with a budget that fits beside data that parameters begin as', function()
        local before, loss, opt = of_data()
        local function step(budget) return opt:step(loss(), { budget = budget }) end
        local least = wane.min_budget(step)
        local why = helper.refused('oom', function() limited(least + 100000, before, step) end)
        assert.equal(before + least, why.least)
        assert.equal(least + 100000, why.budget)
        assert.is_true((limited(least + 100000, before, function() step(why.budget) end)) <= least + 100000)
    end)
end)

describe('a run of a program', function()
    local library, out
    setup(function()
        library = native.foreign()
        out = helper.shell(('LD_PRELOAD=%s luajit spec/support/foreign.lua 512'):format(library))
    end)

    it('asks nobody for memory', function()
        assert.equal('0', out:match 'foreign (%d+)', out)
    end)

    it('makes the process grow by the planned bytes and less than 32 MB', function()
        local beyond = tonumber(out:match 'grown beyond plan (%-?%d+)')
        assert.is_truthy(beyond, out)
        assert.is_true(beyond < 32 * 2 ^ 20, out)
    end)

    it('would be caught: the counter sees a megabyte asked for while it is armed', function()
        local script = "local f=require'ffi' "
            .. "f.cdef'void foreign_arm(int); double foreign_bytes(void); void *malloc(size_t);' "
            .. 'f.C.foreign_arm(1) f.C.malloc(2^20) f.C.foreign_arm(0) print(f.C.foreign_bytes())'
        local seen = helper.shell(('LD_PRELOAD=%s luajit -e "%s"'):format(library, script))
        assert.is_true((tonumber(seen) or 0) >= 2 ^ 20, seen)
    end)
end)
