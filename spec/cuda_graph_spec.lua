-- Checks captured graphs of a step: training with them has the bits of training without, whatever is bound anew between
-- two steps - numbers, batches, offsets, addresses; a call of theirs that fails leaves a step of single launches; wrong
-- data changes nothing; and every graph is given back.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local sim = require 'spec.support.cudasim'
local ways = require 'spec.support.ways'
local wane = helper.wane

local C = binding.C
local nn, optim, data = wane.nn, wane.optim, wane.data
local everything = require('spec.support.offloading').everything
local STEPS, WIDTH, ROWS = 8, 16, 12
local LARGE = 64 -- the width from which on a page of values can be offloaded

local function graphs(on) binding.check(C.wn_debug('graphs', on)) end

local function forget()
    collectgarbage()
    collectgarbage()
    binding.check(C.wn_debug('forget_plans', 1))
end

-- Returns fn() and the launches of kernels and of graphs that it took.
local function counted(fn, ...)
    local before = sim.counters()
    local out = fn(...)
    local after = sim.counters()
    return out, after.launches - before.launches, after.graph_launches - before.graph_launches
end

local function network(seed, width)
    wane.manual_seed(seed or 1)
    width = width or WIDTH
    return nn.Sequential { nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.GELU(),
        nn.Dropout(0.1), nn.Linear(width, 4) }
end

local function bits(model) return table.concat(programs.bytes(model:parameters())) end

local function rows(n, width) return wane.eval(wane.randn(n or ROWS, width or WIDTH)) end

-- Trains a network; how: options of opt:step. Returns the losses and the bits of the parameters.
local function train(how, before_step, width)
    local model = network(1, width)
    local opt, out = optim.AdamW(model:parameters(), { lr = 0.01 }), {}
    local x, rate = rows(24, width), optim.schedule.cosine(0.02, { steps = STEPS, warmup = 2 })
    for k = 1, STEPS do
        opt.lr = rate(k)
        if before_step then before_step(k) end
        local loss = (model(x) ^ 2):sum()
        opt:step(loss, how)
        out[k] = ('%.17g'):format(loss:item())
    end
    out[#out + 1] = bits(model)
    return table.concat(out, ' ')
end

-- Trains two models in turns, the second by an optimizer of its own and another loss; returns their bits.
local function in_turns(other, loss)
    local a, b, x = network(1), network(2), rows()
    local first, second = optim.AdamW(a:parameters(), { lr = 0.01 }), other(b:parameters(), { lr = 0.1 })
    for _ = 1, STEPS do
        first:step((a(x) ^ 2):sum())
        local square = b(x) ^ 2
        second:step(square[loss](square))
    end
    return bits(a) .. bits(b)
end

-- Every training ends in a string that says all of what it computed.
local trainings = {
    ['of a network with dropout and a schedule of rates'] = function() return train() end,
    ['that offloads'] = function() return train({ policy = everything 'offload' }, nil, LARGE) end,
    ['that computes again'] = function() return train { policy = 'recompute_all' } end,
    ['within a budget'] = function()
        local _, why = pcall(train, { budget = 1 })
        return train { budget = why.min_budget }
    end,
    ['whose parameters leave the GPU and come back'] = function()
        local model = network()
        local x, out = rows(), {}
        for round = 1, 3 do
            local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
            for _ = 1, 4 do opt:step((model(x) ^ 2):sum()) end
            out[round] = bits(model)
            model:to 'cpu'
            model:to 'cuda'
        end
        return table.concat(out)
    end,
    ['in bf16'] = function()
        wane.manual_seed(1)
        local model = nn.Sequential { nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.2), nn.Linear(WIDTH, 4) }
        local opt, x, out = optim.SGD(model:to('bf16'):parameters(), { lr = 0.1 }), rows():to 'bf16', {}
        x:retain()
        for k = 1, STEPS do
            local loss = (model(x) ^ 2):sum()
            opt:step(loss)
            out[k] = ('%.17g'):format(loss:item())
        end
        return table.concat(out, ' ')
    end,
    ['in two run points'] = function()
        local model = network()
        local opt, x = optim.SGD(model:parameters(), { lr = 0.01, momentum = 0.9 }), rows()
        for _ = 1, STEPS do ways.step({ opt }, function() return (model(x) ^ 2):mean() end, { lines = true }) end
        return bits(model)
    end,
    ['that adds gradients up'] = function()
        local model = network()
        local opt, x, y = optim.Adam(model:parameters(), { lr = 0.01 }), rows(), rows()
        for _ = 1, STEPS do
            opt:zero_grad()
            for _, batch in ipairs { x, y } do (model(batch) ^ 2):mean():backward() end
            opt:step()
        end
        return bits(model)
    end,
    ['on batches whose buffers take turns'] = function()
        local model = network()
        local opt, out = optim.AdamW(model:parameters(), { lr = 0.01 }), {}
        local x, y = wane.eval(wane.randn(30, WIDTH)), wane.eval(wane.randint(4, { 30 }))
        local batches = data.batches({ x, y }, { batch = 6, shuffle = true, seed = 4 })
        for _ = 1, 3 do
            for a, b in batches do
                local loss = nn.cross_entropy(model(a), b)
                opt:step(loss)
                out[#out + 1] = ('%.17g'):format(loss:item())
            end
        end
        return table.concat(out, ' ') .. bits(model)
    end,
    ['of a step with another rate and other data each time'] = function()
        local model = network()
        local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
        local x, y = rows(), rows()
        for k = 1, 2 * STEPS do
            opt.lr = 0.01 / k
            opt:step((model(k % 2 == 0 and x or y) ^ 2):sum())
        end
        return bits(model)
    end,
    ['of a table'] = function()
        wane.manual_seed(2)
        local model = nn.Sequential { nn.Embedding(9, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3) }
        local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
        local ids = wane.eval(wane.randint(9, { 20 }))
        for _ = 1, STEPS do opt:step((model(ids) ^ 2):sum()) end
        return bits(model)
    end,
    ['of two models in turns'] = function() return in_turns(optim.SGD, 'mean') end,
    ['of two models of one shape in turns'] = function() return in_turns(optim.AdamW, 'sum') end,
    ['on slices whose offset moves'] = function()
        local model = network()
        local opt, x = optim.SGD(model:parameters(), { lr = 0.01 }), rows(4 * STEPS)
        for k = 1, STEPS do opt:step((model(x:narrow(1, 4 * k - 3, 4)) ^ 2):sum()) end
        return bits(model)
    end,
    ['whose arena moves, since a larger step runs in between'] = function()
        local wide, big
        return train(nil, function(k)
            wide = wide or network(3, 64)
            big = big or wane.eval(wane.randn(64, 64))
            if k == 4 then wane.eval((wide(big) ^ 2):sum()) end
            if k == 6 then wane.memory.trim() end
        end)
    end,
    ['with a limit, which makes idle memory go'] = function()
        local out = train(nil, function(k)
            if k ~= 5 then return end
            wane.memory.limit(nil)
            wane.eval(wane.randn(300, 300):sum())
            wane.memory.limit(wane.memory('cuda').reserved - 1)
        end)
        wane.memory.limit(nil)
        return out
    end,
    ['whose outputs are kept for a while'] = function()
        local model, x, kept, out = network(), rows(), {}, {}
        local opt = optim.SGD(model:parameters(), { lr = 0.01 })
        for k = 1, 3 * STEPS do
            local y = model(x):retain()
            opt:step((y ^ 2):sum())
            kept[k % 3] = y
            for i = 0, k % 5 == 0 and 2 or -1 do kept[i] = nil end
            collectgarbage()
            out[k] = programs.bytes { y }[1]
        end
        assert.is_true(#kept < 3)
        return table.concat(out) .. bits(model)
    end,
    -- The arena is larger than the steps need, and has its place again after the trim; the slab finds its own taken.
    ['whose slab of gradients moves'] = function()
        local model, wide, room = network(), network(3, 64), {}
        local opt, x, big = optim.SGD(model:parameters(), { lr = 0.01 }), rows(), wane.eval(wane.randn(64, 64))
        local function hold_arena() wane.eval((wide(big) ^ 2):sum()) end
        hold_arena()
        for k = 1, STEPS do
            opt:zero_grad()
            if k == 5 then
                wane.memory.trim()
                hold_arena()
                for i = 1, 8 do room[i] = wane.eval(wane.randn(model:parameter_count() + 64)) end
            end
            (model(x) ^ 2):sum():backward()
            opt:step()
        end
        return bits(model) .. table.concat(programs.bytes(room))
    end,
    ['whose garbage is collected at each step'] = function()
        return train(nil, function() collectgarbage() end)
    end,
}

describe('graphs of a step on a GPU', function()
    if not sim.given(setup, teardown, pending) then return end

    before_each(forget)
    teardown(function() graphs(1) end)

    for name, training in pairs(trainings) do
        it('give the bits of single launches to a training ' .. name, function()
            graphs(0)
            local want, _, none = counted(training)
            graphs(1)
            assert.equal(0, none)
            for _, streams in ipairs { 'eager', 'lazy', 'random' } do
                forget()
                sim.schedule(streams, 5)
                local have, _, launched = counted(training)
                assert.is_true(want == have, streams)
                assert.is_true(launched > 0, 'no graph was launched')
            end
            sim.schedule 'eager'
            assert.is_false(sim.overrun())
        end)
    end

    -- Returns what each of n equal steps took: { kernels = launches, graphs = launches, measured = what the run said }.
    local function steps(n, how)
        local width = how and LARGE
        local model = network(1, width)
        local opt, x, out = optim.AdamW(model:parameters(), { lr = 0.01 }), rows(24, width), {}
        for k = 1, n do
            local measured = binding.new 'struct wn_measured'
            local loss = (model(x) ^ 2):sum()
            local _, kernels, launched = counted(scoped, 'listen', function(p)
                binding.check(C.wn_measured(p.handle, measured))
                programs.same(programs.read(p), 'step ' .. k)
            end, function() opt:step(loss, how) end)
            out[k] = { kernels = kernels, graphs = launched, measured = tonumber(measured.graph_launches) }
        end
        return out
    end

    it('are captured at the second step of equal addresses, and leave few kernels to launch', function()
        local took = steps(5)
        assert.is_true(took[1].kernels > 20)
        assert.equal(0, took[1].graphs)
        for k = 2, 5 do
            assert.equal(3, took[k].graphs, 'step ' .. k) -- up to the loss, the backward, and the updates
            assert.equal(3, took[k].measured)
            assert.equal(0, took[k].kernels)
        end
    end)

    it('are counted by wane.measure', function()
        local model = network()
        local opt, x = optim.AdamW(model:parameters(), { lr = 0.01 }), rows()
        local function measured(n)
            return wane.measure(function() return (model(x) ^ 2):sum() end, { steps = n, optimizer = opt }).graphs
        end
        assert.equal(3, measured(2))
        graphs(0)
        assert.equal(0, measured(2))
        graphs(1)
    end)

    it('end where values are offloaded', function()
        local took = steps(4, { policy = everything 'offload' })
        assert.is_true(took[4].graphs >= 2)
        assert.is_true(took[4].kernels > 0 and took[4].kernels < took[1].kernels)
    end)

    it('are two where two buffers take turns, and four at most', function()
        local model = network()
        local opt, inputs = optim.SGD(model:parameters(), { lr = 0.01 }), {}
        for i = 1, 6 do inputs[i] = rows() end
        local function round(n)
            local _, _, launched = counted(function()
                for i = 1, n do opt:step((model(inputs[i]) ^ 2):sum()) end
            end)
            return launched
        end
        assert.equal(0, round(2))
        assert.equal(6, round(2))
        assert.equal(6, sim.counters().graphs)
        round(4)
        assert.equal(12, round(4))
        assert.equal(12, sim.counters().graphs)
        round(6)
        for _ = 1, 3 do assert.equal(0, round(6)) end -- each comes round after others have taken its place
    end)

    it('are given up where they do not pay', function()
        local model = network()
        local opt, inputs = optim.SGD(model:parameters(), { lr = 0.01 }), {}
        for i = 1, 40 do inputs[i] = rows() end
        local launched
        for i = 1, 40 do
            launched = select(3, counted(function()
                for _ = 1, 2 do opt:step((model(inputs[i]) ^ 2):sum()) end
            end))
            assert.equal(i <= 32 and 3 or 0, launched, i)
        end
        assert.equal(0, sim.counters().graphs)
    end)

    it('are closed with the plan, whose programs have ended', function()
        train()
        assert.is_true(sim.counters().graphs > 0)
        forget()
        assert.equal(0, sim.counters().graphs)
    end)

    it('leave single launches, with the same bits, where a call of theirs fails', function()
        graphs(0)
        local want = train()
        graphs(1)
        local met = 0
        for nth = 1, 40 do
            forget()
            sim.fail('graph', nth)
            local have = train()
            local is_met = sim.fails_in 'graph' == 0
            sim.fail('graph', 0)
            assert.is_true(want == have, nth)
            if not is_met then
                assert.is_true(nth > 3 * 3 + 3)
                break
            end
            met = met + 1
        end
        assert.is_true(met > 9)
        local told = 0
        for _, text in ipairs(helper.notices) do
            if text:find('no graph of this step, its kernels are started one by one: cuda: ', 1, true) then
                told = told + 1
            end
        end
        assert.equal(1, told)
        forget()
        assert.equal(0, sim.counters().graphs)
    end)

    for _, call in ipairs { 'launch', 'copy' } do
        it('leave single launches where a ' .. call .. ' is refused inside a capture', function()
            local want = train()
            local met = 0
            for nth = 1, 120, helper.is_long and 1 or 7 do
                forget()
                local model = network()
                local opt, x = optim.AdamW(model:parameters(), { lr = 0.01 }), rows()
                local function step() opt:step((model(x) ^ 2):sum()) end
                step()
                sim.fail(call, nth)
                local fine, why = pcall(step)
                met = met + (sim.fails_in(call) == 0 and 1 or 0)
                sim.fail(call, 0)
                assert.is_true(fine or why.code == 'device', tostring(why))
            end
            assert.is_true(met > 0)
            forget()
            assert.is_true(want == train())
        end)
    end

    it('change nothing where data is wrong, at the step that captures and at those that replay', function()
        for _, at in ipairs { 1, 2, 3, 5 } do
            forget()
            wane.manual_seed(2)
            local model = nn.Sequential { nn.Embedding(5, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3) }
            local opt, ids = optim.AdamW(model:parameters(), { lr = 0.01 }), {}
            wane.eval((model(wane.tensor({ 0 }, { dtype = 'i32' }))):sum())
            for i = 1, 24 do ids[i] = i == 4 * at - 1 and 9 or i % 5 end
            local launched = 0
            for batch in data.batches(wane.tensor(ids, { dtype = 'i32' }), { batch = 4, buffers = 1 }) do
                local k = launched + 1
                local kept = bits(model)
                local fine, why = pcall(function() opt:step((model(batch) ^ 2):sum()) end)
                assert.equal(k ~= at, fine)
                assert.equal(k == at, kept == bits(model))
                if k == at then
                    assert.equal('value', why.code)
                    assert.truthy(tostring(why):find('index 9 at element 2 is outside 0..4', 1, true), tostring(why))
                end
                launched = k
            end
            assert.equal(6, launched)
            assert.is_true(sim.counters().graphs > 0)
        end
    end)

    -- Runs a script in a process of its own; returns what it prints.
    local function script(environment, text)
        return sim.script(environment .. ' WANE_CUDA_LIB=build/cudasim', ([[
            local wane = require 'wane'
            local sim = require 'spec.support.cudasim'
            wane.set_device 'cuda'
            local model = wane.nn.Sequential { wane.nn.Linear(8, 8), wane.nn.ReLU(), wane.nn.Linear(8, 8) }
            local opt = wane.optim.AdamW(model:parameters(), { lr = 0.01 })
            local x = wane.eval(wane.randn(4, 8))
            local function step() opt:step((model(x) ^ 2):sum()) end
            for _ = 1, 4 do step() end
            %s]]):format(text))
    end

    it('are off where the environment says so, or asks to wait after every kernel', function()
        local say = "print('launched', sim.counters().graph_launches)"
        assert.truthy(script('', say):find('launched\t9', 1, true))
        assert.truthy(script('WANE_CUDA_GRAPHS=on', say):find('launched\t9', 1, true))
        assert.truthy(script('WANE_CUDA_GRAPHS=off', say):find('launched\t0', 1, true))
        assert.truthy(script('WANE_SYNC=1', say):find('launched\t0', 1, true))
        local text = script('WANE_CUDA_GRAPHS=maybe', [[
            local binding = require 'wane.ffi'
            print(binding.text(binding.C.wn_notice()))]])
        assert.truthy(text:find('WANE_CUDA_GRAPHS=maybe makes no sense (on or off)', 1, true), text)
    end)

    it('are off while a run is watched', function()
        for _, switch in ipairs { 'check', 'poison', 'replay' } do
            binding.check(C.wn_debug(switch, 1))
            local took = steps(3)
            binding.check(C.wn_debug(switch, 0))
            for k = 1, 3 do assert.equal(0, took[k].graphs, switch) end
        end
        local timed = C.wn_timing(1)
        local took = steps(3)
        C.wn_timing(timed)
        assert.equal(0, took[3].graphs)
    end)

    it('are given back where the device is lost by a kernel of theirs', function()
        local text = script('', [[
            sim.fail('async', 3)
            local fine, why = pcall(step)
            print('step', fine, why.code, (tostring(why):gsub('\n', ' ')))
            print('alive', sim.counters().graphs > 0, pcall(step))
            wane.set_device 'cpu'
            print('cpu', (wane.ones(2) * 2):sum():item())
            model, opt, x = nil, nil, nil
            collectgarbage()
            collectgarbage()
            require 'wane.ffi'.C.wn_debug('forget_plans', 1)
            print('left', sim.counters().graphs)]])
        assert.matches('step\tfalse\tdevice\t.*the GPU was lost.*it ran', text)
        assert.matches('alive\ttrue\tfalse', text)
        assert.matches('cpu\t4', text)
        assert.matches('left\t0', text)
    end)
end)
