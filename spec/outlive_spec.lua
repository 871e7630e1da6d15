-- Checks values that outlive the step that computed them: kept values that enter the loss of a later step behind a cut.
local helper = require 'spec.helper'
local wane = require 'wane'
local programs = require 'spec.support.programs'
local binding = require 'wane.ffi'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'

local nn, optim = wane.nn, wane.optim

local function bits(t)
    return table.concat(t:reshape(-1):to('f64'):totable(), ' ')
end

-- Returns fn(...); fails where a program takes other bytes than were predicted.
local function as_planned(fn, ...)
    return scoped('listen', function(p) programs.same(programs.read(p), 'a step') end, fn, ...)
end

-- Returns a held copy of a value that nothing connects with what the value was made of.
local function copy(t)
    local buffer = require('wane.tensor.read').buffer(t, 'copy')
    return wane.from(buffer, { unpack(t.shape) }, t.dtype == 'bf16' and 'f32' or t.dtype)
end

local cuts = {
    detach = function(y) return y:detach() end,
    ['no_grad'] = function(y) return wane.no_grad(function() return (y * 2):tanh() end) end,
    ['a view of a cut'] = function(y) return y:detach():narrow(2, 1, 3):transpose(1, 2) end,
    argmax = function(y) return y:argmax(2) end,
    comparison = function(y) return y:gt(0):to 'f32' end,
    ['whole numbers'] = function(y) return (y * 3):to('i32'):to('f32') end,
    ['two cuts'] = function(y) return y:detach():exp() + y:detach():le(0.1):to 'f32' end,
}

-- The forms of a run point that ends in new weights or gradients.
local forms = {
    ['opt:step(loss)'] = function(net, loss) net.opt:step(loss) end,
    ['opt:step of a list'] = function(net, loss, other) net.opt:step { loss, other } end,
    ['opt:step of a list, last'] = function(net, loss, other) net.opt:step { other, loss } end,
    ['three lines'] = function(net, loss)
        net.opt:zero_grad()
        loss:backward()
        net.opt:step()
    end,
    ['wane.backward'] = function(net, loss, other)
        net.opt:zero_grad()
        wane.backward { other, loss }
        net.opt:step()
    end,
    ['wane.grad'] = function(net, loss)
        local list = net.model:parameters()
        local grads = wane.grad(loss, list)
        for k, g in ipairs(grads) do grads[k] = list[k] - g * 0.1 end
        wane.eval(loss, unpack(grads))
        for k, p in ipairs(list) do p:assign(grads[k]) end
    end,
}

local function new_net(seed)
    wane.manual_seed(seed)
    local model = nn.Sequential { nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4) }
    return { model = model, opt = optim.AdamW(model:parameters(), { lr = 0.05, clip_norm = 1 }),
        x = wane.eval(wane.randn(3, 6)) }
end

-- Trains; before each step after the first the kept value of the one before enters the loss through `cut`. is_copy: a
-- copy of the kept value is cut instead.
local function train(form, cut, is_copy)
    local net, kept, lines = new_net(8), nil, {}
    for step = 1, 4 do
        local hidden = net.model[2](net.model[1](net.x * step)):retain()
        local out = net.model[3](hidden)
        local loss = out:pow(2):mean()
        local other = net.model(net.x):mean()
        if kept then
            local term = cut(is_copy and copy(kept) or kept):to 'f32'
            loss = loss + (term * out:mean()):mean()
            other = other + (term:sum() * 0.25 * other)
        end
        form(net, loss, other)
        kept = hidden
        lines[#lines + 1] = bits(loss)
        for _, p in ipairs(net.model:parameters()) do lines[#lines + 1] = bits(p) end
    end
    return table.concat(lines, '\n')
end

describe('a kept value behind a cut', function()
    for form, run in pairs(forms) do
        for cut, fn in pairs(cuts) do
            it(('is a leaf of the next step: %s, %s'):format(form, cut), function()
                assert.equal(train(run, fn, true), train(run, fn, false))
            end)
        end
    end
end)

describe('a kept value without a cut', function()
    it('is refused in the next step, with the cut that is missing, and the step goes on with it', function()
        for form, run in pairs(forms) do
            local net = new_net(3)
            local y = net.model(net.x):retain()
            net.opt:step(y:pow(2):mean())
            local before = bits(net.model[1].weight)
            helper.refused('stale', function()
                run(net, (y + net.model(net.x)):pow(2):mean(), net.model(net.x):mean())
            end, ':detach()')
            assert.equal(before, bits(net.model[1].weight))
            run(net, (y:detach() + net.model(net.x)):pow(2):mean(), net.model(net.x):mean())
            assert.not_equal(before, bits(net.model[1].weight))
        end
    end)
end)

-- ---- values beside the loss ---------------------------------------------------------------------------------------

-- Networks whose step has values that the loss does not read. Each returns a loss, a list of values beside it, and the
-- values that the next step takes over.
local networks = {
    lstm = {
        new = function() return { cell = nn.LSTM(3, 8), head = nn.Linear(8, 2) } end,
        forward = function(net, x, state)
            local y, h, c = net.cell(x, state and { h = state[1], c = state[2] })
            local logits = net.head(y):reshape(-1, 2)
            local labels = x:narrow(3, 1, 1):gt(0):to('i32'):reshape(-1)
            return nn.cross_entropy(logits, labels), { h, c, logits:argmax(2):eq(labels):to('i32'):sum() }, { h, c }
        end,
        x = function() return wane.randn(2, 5, 3) end,
    },
    tower = {
        new = function()
            return nn.Sequential { nn.Linear(3, 16), nn.GELU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4) }
        end,
        forward = function(net, x, state)
            local hidden = net[4](net[3](net[2](net[1](x))))
            if state then hidden = hidden + state[1] end
            local out = net[5](hidden)
            return out:narrow(2, 1, 2):pow(2):mean(), { out:narrow(2, 3, 2):exp(), hidden:mean(1), out:abs():max() },
                { hidden:tanh() }
        end,
        x = function() return wane.randn(6, 3) end,
    },
    conv = {
        new = function()
            return nn.Sequential { nn.Conv2d(2, 6, 3, { padding = 1 }), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(),
                nn.Linear(96, 3), nn.Dropout(0.3) }
        end,
        forward = function(net, x, state)
            local feature = net[3](net[2](net[1](x)))
            local out = net[6](net[5](net[4](feature)))
            if state then out = out * state[1] end
            return out:pow(2):mean(), { feature:mean(), out:softmax(2) }, { out:sigmoid() }
        end,
        x = function() return wane.randn(2, 2, 4, 4) end,
    },
}

-- The ways to get the values: computed before the step by a program of their own, named in the step, retained.
local ways = {
    eval = function(opt, loss, also, opts)
        wane.eval(unpack(also))
        opt:step(loss, opts)
    end,
    also = function(opt, loss, also, opts)
        opts = opts or {}
        opts.also = also
        opt:step(loss, opts)
    end,
    retain = function(opt, loss, also, opts)
        for _, t in ipairs(also) do t:retain() end
        opt:step(loss, opts)
    end,
    lines = function(opt, loss, also, opts)
        for _, t in ipairs(also) do t:retain() end
        opt:zero_grad()
        loss:backward(opts)
        opt:step()
    end,
}

local function parameters_of(net)
    if net.parameters then return net:parameters() end
    local list = net.cell:parameters()
    for _, p in ipairs(net.head:parameters()) do list[#list + 1] = p end
    return list
end

-- Trains by a way for a few steps, each from the states of the one before; returns all numbers that it made.
local function unrolled(network, way, opts_of)
    wane.manual_seed(31)
    local net = network.new()
    local params = parameters_of(net)
    local opt = optim.AdamW(params, { lr = 0.02, clip_norm = 0.7 })
    local xs, state, lines = {}, nil, {}
    for k = 1, 4 do xs[k] = network.x() end
    wane.eval(unpack(xs))
    for k = 1, 4 do
        local loss, also, last = network.forward(net, xs[k], state)
        for _, t in ipairs(last) do
            local is_in = false
            for _, other in ipairs(also) do is_in = is_in or rawequal(other, t) end
            if not is_in then also[#also + 1] = t end
        end
        way(opt, loss, also, opts_of and opts_of(k))
        for _, t in ipairs(also) do assert.is_true(op.held(t)) end
        state = {}
        for i, t in ipairs(last) do state[i] = t:detach() end
        lines[#lines + 1] = bits(loss)
        for _, t in ipairs(also) do lines[#lines + 1] = bits(t:to 'f32') end
        for _, p in ipairs(params) do lines[#lines + 1] = bits(p) end
    end
    return table.concat(lines, '\n')
end

local policies = {
    [false] = function() return nil end,
    recompute_all = function() return { policy = 'recompute_all' } end,
    sqrt = function() return { policy = 'sqrt' } end,
    compress = function() return { policy = wane.policy.every(2) } end,
    least = function() return { policy = 'least' } end,
}

describe('a value beside the loss', function()
    for name, network in pairs(networks) do
        for way, fn in pairs(ways) do
            for policy, opts in pairs(policies) do
                it(('has the bits of a program of its own, and bytes as planned: %s, %s, %s'):format(name, way,
                    policy or 'save'), function()
                    local expected = unrolled(network, ways.eval)
                    assert.equal(expected, as_planned(unrolled, network, fn, opts))
                end)
            end
        end
    end

    -- Returns a network, an optimizer, an input and its graph with values beside the loss.
    local function small()
        wane.manual_seed(2)
        local net = nn.Sequential { nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4) }
        local opt = optim.Adam(net:parameters(), { lr = 0.01 })
        local x = wane.eval(wane.randn(64, 8))
        return opt, function()
            local out = net(x)
            return out:pow(2):mean(), out:argmax(2), (out * 2):tanh()
        end, net
    end

    it('is counted in the plan, by key, and planned once', function()
        local opt, graph = small()
        local function step()
            local loss, best, y = graph()
            return opt:step(loss, { also = { best, y } })
        end
        step()
        local plain, with = wane.plan(function() return opt:step((graph())) end), wane.plan(step)
        assert.is_true(with.kinds.result > plain.kinds.result)
        local made = binding.C.wn_debug_get 'plans_made'
        for _ = 1, 4 do step() end
        assert.is_true(made == binding.C.wn_debug_get 'plans_made')
        for _ = 1, 4 do collectgarbage() end
        wane.memory.reset_peak()
        step()
        assert.equal(with.peak, wane.memory().peak)
    end)

    it('keeps every budget, and a stop by a limit leaves all as it was', function()
        local opt, graph, net = small()
        local function step(opts)
            local loss, best, y = graph()
            opts = opts or {}
            opts.also = { best, y }
            return opt:step(loss, opts), best, y
        end
        step()
        local plan = wane.plan(step)
        local least = plan.min_budget or wane.plan(step, { policy = 'least' }).reserved
        for part = 0, 4 do
            local budget = math.floor(least + (plan.reserved - least) * part / 4)
            scoped('listen', function(p)
                programs.read(p)
                assert.equal(p.predicted.peak, p.measured.peak)
                assert.is_true(p.measured.reserved <= budget)
            end, function() step { budget = budget } end)
        end
        local before = bits(net[1].weight)
        local loss, best, y = graph()
        wane.memory.trim()
        wane.memory.limit(wane.memory().allocated + 64)
        local ok, e = pcall(opt.step, opt, loss, { also = { best, y } })
        wane.memory.limit(0)
        assert.is_false(ok)
        assert.equal('oom', e.code)
        assert.is_false(op.held(best) or op.held(y))
        assert.equal(before, bits(net[1].weight))
        opt:step(loss, { also = { best, y } })
        assert.is_true(op.held(best) and op.held(y))
        assert.not_equal(before, bits(net[1].weight))
    end)

    it('may be read by the loss, be there already, or hang off two losses of one pass', function()
        local opt, graph, net = small()
        local loss, best, y = graph()
        wane.eval(y)
        opt:step(loss + y:mean(), { also = { y, best } })
        assert.is_true(op.held(best))
        loss, best = graph()
        best:retain()
        wane.backward { loss, net(wane.ones(1, 8)):sum() }
        assert.is_true(op.held(best))
        wane.anomaly(true)
        loss, best, y = graph()
        y:retain()
        local ok, e = pcall(opt.step, opt, loss, { also = { best, y } })
        wane.anomaly(false)
        assert.is_true(ok, tostring(e))
        assert.is_true(op.held(best) and op.held(y))
    end)

    it('leaves out a retained value of another graph, or of states that have changed', function()
        local opt, graph, net = small()
        local far = net(wane.ones(2, 8)):retain()
        local loss, old = graph()
        opt:step((graph()))
        old:retain()
        local nxt, best = graph()
        best:retain()
        opt:step(nxt)
        assert.is_true(op.held(best))
        assert.is_false(op.held(far) or op.held(old) or op.held(loss))
    end)

    it('is forgotten with the function that was planned', function()
        wane.manual_seed(7)
        local net = nn.Sequential { nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3) }
        local opt, x = optim.SGD(net:parameters(), { lr = 0.1 }), wane.randn(5, 8):retain() -- not computed yet
        local all = {} -- kept from the collector
        local function loss()
            all[#all + 1] = net(x):tanh():retain()
            return (net(x) + all[#all]:detach() * 0):sum()
        end
        local function plain() return net(x):sum() end
        for _, fn in ipairs { plain, loss } do
            local first = wane.plan(fn)
            for _, other in ipairs { wane.plan, wane.min_budget, wane.frontier } do
                other(loss)
                assert.is_false(pcall(other, function() error(loss()) end))
                assert.equal(first.peak, wane.plan(fn).peak)
            end
            all.planning = coroutine.create(function() wane.plan(function() return coroutine.yield(loss()) end) end)
            coroutine.resume(all.planning) -- it waits
            assert.equal(first.peak, wane.plan(fn).peak)
        end
        opt:step(plain())
        for i, h in ipairs(all) do assert.is_false(op.held(h), i) end
        local l = loss()
        opt:step(l)
        assert.is_true(op.held(all[#all]))
    end)

    it('is refused by name where it cannot be one, and the step works without it', function()
        local opt, graph, net = small()
        local loss, best, y = graph()
        local before = bits(net[1].weight)
        local function refused(code, also, ...)
            local e = helper.refused(nil, function() opt:step(loss, { also = also }) end)
            assert.equal(code, e.code, tostring(e))
            for _, part in ipairs { ... } do assert.is_truthy(e.message:find(part, 1, true), e.message) end
        end
        refused('value', { best, y, best }, 'also', '1 and 3', 'same')
        refused('value', { best, loss }, 'entry 2 is the loss')
        refused('value', { y, net(wane.ones(1, 8)) }, 'entry 2', 'linear', 'wane.eval')
        refused('value', { wane.tensor { 1, 2 } }, 'entry 1')
        refused('value', { net[1].weight }, 'entry 1')
        refused('value', { 3 }, 'also', 'expected a tensor', '3')
        refused('value', { y, nil, best }, 'also')
        refused('value', { y, hits = best }, 'also', 'hits')
        refused('value', y, 'also')
        refused('device', { y, wane.zeros(2, { device = 'meta' }) }, 'entry 2', 'meta', 'cpu')
        helper.refused(nil, function() opt:step({ loss, (graph()) }, { also = { y } }) end, '2 losses')
        helper.refused(nil, function() opt:step(nil, { also = { y } }) end, 'without a loss')
        assert.equal(before, bits(net[1].weight))
        opt:step({ loss }, { also = { y, best } })
        assert.is_true(op.held(best) and op.held(y))
    end)
end)

describe('opt.last_norm', function()
    -- Trains under clip_norm = 0.5 by a way; returns the norms and the weights.
    local function clipped(way, opts)
        wane.manual_seed(6)
        local net = nn.Sequential { nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3) }
        local opt, lines = optim.AdamW(net:parameters(), { lr = 0.1, clip_norm = 0.5 }), {}
        local x = wane.eval(wane.randn(7, 5))
        assert.is_nil(opt.last_norm)
        for step = 1, 4 do
            local loss = (net(x) * step):pow(2):mean()
            local norm
            if way == 'step' then
                opt:step(loss, opts)
            elseif way == 'list' then
                opt:step({ loss * 0.5, loss * 0.5 }, opts)
            else
                opt:zero_grad()
                loss:backward(opts)
                local sum = 0
                for _, p in ipairs(net:parameters()) do sum = sum + p.grad:pow(2):sum():item() end
                norm = math.sqrt(sum)
                opt:step()
            end
            if norm then assert.is_true(math.abs(opt.last_norm:item() - norm) <= 1e-5 * norm) end
            assert.same({}, { unpack(opt.last_norm.shape) })
            assert.is_true(op.held(opt.last_norm))
            lines[#lines + 1] = bits(opt.last_norm)
            for _, p in ipairs(net:parameters()) do lines[#lines + 1] = bits(p) end
        end
        opt.clip_norm = false
        opt:step(net(x):mean())
        assert.is_nil(opt.last_norm)
        return table.concat(lines, '\n')
    end

    it('has the norm before clipping, in one program and in three lines, under every policy', function()
        local expected = clipped 'lines'
        for policy, opts in pairs(policies) do
            assert.equal(expected, as_planned(clipped, 'step', opts()), policy or 'save')
            assert.equal(expected, clipped('lines', opts()))
        end
        clipped 'list'
    end)

    it('stays as it is while a step is planned, and where one is stopped', function()
        local net = nn.Linear(3, 2)
        local opt, x = optim.SGD(net:parameters(), { lr = 0.1, clip_norm = 1 }), wane.eval(wane.randn(4, 3))
        local function step() return opt:step(net(x):pow(2):mean()) end
        wane.plan(step)
        assert.is_nil(opt.last_norm)
        step()
        local norm = opt.last_norm
        wane.plan(step)
        assert.is_true(rawequal(norm, opt.last_norm))
        assert.is_false((pcall(function() opt.last_norm = 3 end)))
    end)
end)
