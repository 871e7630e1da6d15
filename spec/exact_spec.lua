-- Checks that predicted bytes are measured bytes, per kind and at every instant, and that what ran is the schedule. The
-- two sides share no code: plan/lower/simulate.c walks the finished schedule, run/watch/measure.c adds up what is
-- issued, and the checked run (wn_debug 'check') looks at the bytes themselves. Checks too what scripts see of it:
-- wane.measure, wane.memory and wane.bytes.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'

local nn, optim = wane.nn, wane.optim
local C = binding.C

local function batch()
    return wane.tensor({ 0, 3, 1, 2, 4, 5 }, { dtype = 'i32' })
end

-- Runs a step in every way there is, under one policy; calls check(program, name) after each run.
local function each_run(policy, check)
    wane.manual_seed(7)
    local model = programs.mlp(48, 6, 0.2)
    local head = nn.Linear(48, 6)
    local params = model:parameters()
    for _, q in ipairs(head:parameters()) do params[#params + 1] = q end
    local opt = optim.AdamW(params, { lr = 1e-3 })
    local x = wane.randn(6, 48, { requires_grad = true })
    local function loss() return nn.cross_entropy(head(model(x)), batch()) end
    policy = policy or nil
    for step = 1, 2 do
        check(programs.run { mode = 'backward', roots = { loss() }, policy = policy }, 'backward ' .. step)
    end
    opt:zero_grad()
    check(programs.run { mode = 'backward', roots = { loss() }, policy = policy }, 'backward after zero_grad')
    local l1, l2 = loss(), loss()
    check(programs.run { mode = 'backward', roots = { l1, l2 }, policy = policy }, 'micro-batches')
    check(programs.run { mode = 'eval', roots = { model(x) } }, 'eval')
end

describe('predicted and measured', function()
    it('are equal on meta, where nothing has bytes', function()
        local scoped = require 'wane.scoped'
        local ran = 0
        helper.on('meta', function()
            local model = programs.mlp(512, 4, 0.1)
            local opt = optim.Adam(model:parameters(), { lr = 0.1 })
            local x = wane.randn(64, 512)
            scoped('listen', function(p)
                ran = ran + 1
                programs.same(programs.read(p), 'meta')
            end, function() opt:step(model(x):sum()) end)
        end)
        assert.equal(1, ran)
    end)

    it('are what the device was asked for: the ledger grows by reserved, no more', function()
        wane.manual_seed(2)
        for _, fused in ipairs { true, false } do
            collectgarbage()
            collectgarbage()
            wane.memory.trim()
            local before = wane.memory().reserved
            local model = programs.mlp(64, 5, 0.1)
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local x = wane.randn(8, 64, { requires_grad = true })
            for step = 1, 3 do -- x keeps its gradient, so that from the second step on one slab is partly allocated
                local p
                wane.memory.trim()
                require('wane.scoped')('listen', function(q)
                    if q.request.mode ~= 'update' then p = programs.read(q) end
                end, function()
                    if fused then return opt:step(model(x):sum()) end
                    opt:zero_grad()
                    model(x):sum():backward()
                end)
                assert.equal(before + p.predicted.reserved, wane.memory().reserved, 'step ' .. step)
            end
        end
    end)

    it('leave little slack: reserved - peak <= 2 % of the activations', function()
        wane.manual_seed(1)
        for _, policy in ipairs { 'save_all', 'every(4)' } do
            local model = programs.mlp(256, 20, 0)
            local x = wane.randn(32, 256, { requires_grad = true })
            for _ = 1, 2 do
                model:zero_grad()
                local p = programs.run { mode = 'backward', roots = { model(x):sum() }, policy = policy }
                assert.is_true(p.predicted.activations > 0)
                assert.is_true(p.predicted.reserved - p.predicted.peak <= 0.02 * p.predicted.activations,
                    policy .. ': slack ' .. p.predicted.reserved - p.predicted.peak)
            end
        end
    end)

    it('reach the floor of a chain: parameters, gradients, input, its gradient and one activation', function()
        local width, batch_size, depth = 64, 32, 8
        local layers = {}
        for _ = 1, depth do
            layers[#layers + 1] = nn.Linear(width, width)
            layers[#layers + 1] = nn.ReLU()
        end
        local model = nn.Sequential(layers)
        local x = wane.randn(batch_size, width, { requires_grad = true })
        local p = programs.run { mode = 'backward', roots = { model(x):sum() } }
        local weight, bias, activation = width * width * 4, width * 4, batch_size * width * 4
        assert.equal(2 * depth * (weight + bias) + 3 * activation, p.measured.peak)
        assert.equal(p.measured.peak, p.measured.reserved)
        -- Activations take the places of later gradients: the arena holds one of them, not eight.
        assert.equal(activation, p.predicted.arena)
        assert.is_true(p.predicted.lent > 0)
    end)
end)

describe('the checked run of a step', function()
    before_each(function() for _, name in ipairs { 'check', 'poison', 'trace' } do C.wn_debug(name, 1) end end)
    after_each(function() for _, name in ipairs { 'check', 'poison', 'trace' } do C.wn_debug(name, 0) end end)

    for _, policy in ipairs { false, 'save_all', 'recompute_all', 'sqrt', 'segments(3)', 'every(2)' } do
        it('takes the predicted bytes per kind at every instant, and is the schedule, under ' .. tostring(policy),
            function()
                each_run(policy, function(p, what)
                    programs.same(p, what)
                    -- No byte is written outside its place, and nothing above reserved.
                    assert.is_true(p.measured.high_water <= p.predicted.arena, what)
                    assert.is_true(p.predicted.arena == 0 or p.measured.high_water > 0, what)
                    local n = C.wn_count(p.handle, C.WN_COUNT_INSTRUCTIONS)
                    assert.is_true(n > 0)
                    for i = 0, n - 1 do assert.equal(i, C.wn_trace(p.handle, i), what) end
                    assert.equal(-1, C.wn_trace(p.handle, n), what)
                end)
            end)
    end
end)

describe('a free', function()
    it('follows the last use at once', function()
        local p = programs.run { mode = 'backward', roots = { programs.mlp(24, 5, 0.1)(wane.randn(4, 24)):sum() },
            policy = 'save_all' }
        local steps, frees = programs.schedule(p), 0
        local info = binding.new 'struct wn_node_info'
        local function source(node) -- a reshape is its input's bytes
            repeat
                binding.check(C.wn_node(p.handle, node, info))
                node = info.alias_of >= 0 and info.alias_of or node
            until info.alias_of < 0
            return node
        end
        local place, used_at = {}, {} -- of a node's value; last step that touches a place
        for i, step in ipairs(steps) do
            local here = step.space .. '/' .. step.offset
            if step.what == 'run' then
                for k = 0, 2 do
                    local input = C.wn_node_input(p.handle, step.node, k)
                    input = input >= 0 and source(input)
                    if place[input] then used_at[place[input]] = i end
                end
                place[step.node] = here
                used_at[here] = i
            elseif step.what == 'read' then
                used_at[here] = i
            else
                frees = frees + 1
                for k = used_at[here] + 1, i - 1 do
                    assert.is_not.equal('run', steps[k].what, ('step %d is freed late, at %d'):format(used_at[here], i))
                end
            end
        end
        assert.is_true(frees > 5)
    end)

    it('is not needed where an op overwrites its dying input', function()
        local p = programs.run { mode = 'eval', roots = { wane.randn(4, 24):softmax(-1):log_softmax(-1):relu():sum() } }
        local over = 0
        for _, step in ipairs(programs.schedule(p)) do
            if step.what == 'run' and step.inplace >= 0 then over = over + 1 end
        end
        assert.equal(3, over)
    end)
end)

describe('recomputation', function()
    it('happens where the words say, once a value, right before its first reader', function()
        wane.manual_seed(3)
        local model = programs.mlp(16, 6, 0)
        local x = wane.randn(4, 16):retain()
        local p = programs.run { mode = 'backward', roots = { model(x):sum() }, policy = 'segments(3)' }
        -- 12 children in 3 segments are 4 each, and the last segment is not checkpointed. A segment's first Linear and
        -- activation feed its second Linear; the second activation is the boundary and stays, the second Linear's
        -- output is what GELU's backward reads. Linear and ReLU are one instruction: 2 of 3 are computed again, in each
        -- of two segments.
        assert.equal(4, p.predicted.recomputed)
        local again, first_backward = {}, nil
        for i, step in ipairs(programs.schedule(p)) do
            if step.what == 'run' and step.phase == 2 then first_backward = first_backward or i end
            if step.what == 'run' and step.phase == 1 then
                again[step.node] = (again[step.node] or 0) + 1
                assert.is_true(first_backward ~= nil and i > first_backward)
            end
        end
        local count = 0
        for _, times in pairs(again) do
            assert.equal(1, times)
            count = count + 1
        end
        assert.equal(4, count)
    end)
end)

-- Returns a model of six blocks, and its loss.
local function blocks()
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
    it('trains with one: steps + warmup steps, the same bits as by hand', function()
        local function trained(run)
            local model, fn = blocks()
            local m = run(fn, optim.SGD(model:parameters(), { lr = 0.01 }))
            return state(model), m
        end
        local want, peaks = trained(function(fn, opt) for _ = 1, 5 do opt:step(fn()) end end), {}
        for i, lines in ipairs { true, false } do
            local have, m = trained(function(fn, opt)
                return wane.measure(fn, { optimizer = opt, steps = 3, warmup = 2, lines = lines })
            end)
            assert.same(want, have)
            assert.is_true(m.trained and m.exact)
            peaks[i] = m.peak
        end
        assert.is_true(peaks[2] < peaks[1])
    end)

    it('prints, and refuses what makes no sense', function()
        local model, fn = blocks()
        local m = wane.measure(fn, { steps = 1, warmup = 0 })
        assert.is_truthy(tostring(m):find('peak backward', 1, true))
        assert.same(m.predicted_at, m.at)
        assert.is_true(#m.times == 1 and m.seconds > 0 and m.wall >= m.seconds)
        local opt = optim.SGD(model:parameters(), { lr = 0.01 })
        assert.has_error(function() wane.measure(function() return opt:step(fn()) end) end)
        assert.has_error(function() wane.measure(fn, { steps = 0 }) end)
        assert.has_error(function() wane.measure(fn, { step = 3 }) end)
        assert.has_error(function() wane.measure(fn, { restore = true }) end)
        assert.has_error(function() wane.measure(function() return 3 end) end)
        helper.refused('value', function() wane.plan(fn, { allow = { 'offload' } }) end, "unknown option 'allow'")
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
        local model, fn = blocks()
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
            helper.refused('oom', function() y:mean():backward() end)
            wane.memory.limit(nil)
        end)
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
end)

describe('sizes', function()
    it('are read with their units', function()
        assert.equal(1610612736, wane.bytes.parse '1.5 GiB')
        assert.equal(800000000, wane.bytes.parse '800 MB')
        assert.equal(4096, wane.bytes.parse '4096')
        assert.equal(4096, wane.bytes.parse '4KiB')
        assert.equal(7, wane.bytes.parse(7.9))
        for _, bad in ipairs { '', 'GiB', '3 GB/s', '-1', -1, '1.5.2 MB', 0 / 0, {}, '5 XB' } do
            assert.has_error(function() wane.bytes.parse(bad) end)
        end
    end)
    it('are written short and exact', function()
        assert.equal('512 B', wane.bytes.text(512))
        assert.equal('1.50 MiB', wane.bytes.text(1.5 * 2 ^ 20))
        assert.equal('-2.00 GiB', wane.bytes.text(-2 * 2 ^ 30))
        assert.equal('20,984,320', wane.bytes.exact(20984320))
        assert.equal('-512', wane.bytes.exact(-512))
        assert.equal('0', wane.bytes.exact(0))
    end)
end)
