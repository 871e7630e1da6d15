-- Checks wane.checkpoint and wane.checkpoint_sequential: what a region marks is recomputed, no bit changes, and regions
-- begin and end where PyTorch's do. Checks plans of loops over time: a weight that every step reads is no crossing, a
-- budget is no slower than a policy by hand of the same bytes, and a step of a recurrent layer is a unit of policies.
local helper = require 'spec.helper'
local wane = helper.wane
local measure = require 'wane.plan.measure'
local programs = require 'spec.support.programs'
local nn, optim = wane.nn, wane.optim

local function net(depth, width)
    wane.manual_seed(7)
    local list = {}
    for i = 1, depth do list[i] = i % 2 == 1 and nn.Linear(width, width) or nn.GELU() end
    return nn.Sequential(list)
end

-- Returns the gradients of a loss as plain numbers, the input's last.
local function gradients(model, x, forward)
    model:zero_grad()
    x.grad = nil
    local loss = forward(x):sum()
    loss:backward()
    local out = { loss = loss:item() }
    for _, p in ipairs(model:parameters()) do out[#out + 1] = p.grad:totable() end
    out[#out + 1] = x.grad:totable()
    return out
end

local function plan_of(forward, x)
    return wane.plan(function() return forward(x):sum() end)
end

-- Returns the paths of the ops of the forward that the plan runs again.
local function again(plan)
    local paths = {}
    for _, r in ipairs(plan:residuals()) do
        if r.word == 'recompute' then paths[#paths + 1] = r.path end
    end
    return paths
end

describe('wane.checkpoint', function()
    local model, x
    before_each(function()
        model = net(6, 16)
        x = wane.randn(4, 16, { requires_grad = true })
    end)

    it('recomputes inside, saves outside, and changes no bit', function()
        local function plain(v) return model(v) end
        local function marked(v) return wane.checkpoint(model, v) end
        local direct, region = plan_of(plain, x), plan_of(marked, x)
        assert.equal(0, direct.recomputed)
        assert.is_true(region.recomputed > 0)
        assert.same(gradients(model, x, plain), gradients(model, x, marked))
    end)

    it('takes PyTorch\'s options, both values exact', function()
        local plain = gradients(model, x, function(v) return model(v) end)
        for _, reentrant in ipairs { true, false } do
            local opts = { use_reentrant = reentrant, preserve_rng_state = not reentrant, name = 'part' }
            assert.same(plain, gradients(model, x, function(v) return wane.checkpoint_with(opts, model, v) end))
        end
        local ck = wane.checkpoint_fn { name = 'part' }
        assert.same(plain, gradients(model, x, function(v) return ck(model, v) end))
        assert.has_error(function() wane.checkpoint_with({ use_reentrent = true }, model, x) end)
    end)

    it('passes all arguments and returns all results', function()
        local a, b, c = wane.checkpoint(function(p, q, n) return q, p, n + 1 end, x, model, 4)
        assert.equal(model, a)
        assert.equal(x, b)
        assert.equal(5, c)
        assert.has_error(function() wane.checkpoint(x, model) end)
    end)
end)

describe('wane.checkpoint_sequential of parts with several results', function()
    -- Returns four parts that take and return one, two and three values; nil is a value too.
    local function parts(w)
        return {
            function(x, y) return x:matmul(w):tanh(), x + y end,
            function(a, b) return a * b, nil, b:gelu() end,
            function(a, none, c)
                assert(none == nil)
                return a + c, a:sigmoid()
            end,
            function(a, b) return (a * b):sum(), b end,
        }
    end

    local function run(way)
        wane.manual_seed(3)
        local w, x, y = nn.Parameter(wane.randn(4, 4)), nn.Parameter(wane.randn(3, 4)), nn.Parameter(wane.randn(3, 4))
        local loss, second, third = way(parts(w), x, y)
        assert(third == nil and second.shape[2] == 4)
        loss:backward()
        return table.concat(programs.bytes { loss, w.grad, x.grad, y.grad }, '|')
    end

    it('passes all of them on, and returns all of the last part', function()
        local direct = run(function(list, ...) return list[4](list[3](list[2](list[1](...)))) end)
        for segments = 1, 4 do
            assert.equal(direct, run(function(list, ...) return wane.checkpoint_sequential(list, segments, ...) end))
            assert.equal(direct, run(function(list, ...)
                return wane.checkpoint_sequential(nn.Sequential(list), segments, ...)
            end))
        end
        assert.equal(direct, run(function(list, ...) return nn.Sequential(list)(...) end))
    end)
end)

describe('wane.checkpoint_sequential', function()
    local model, x
    before_each(function()
        model = net(7, 16)
        x = wane.randn(4, 16, { requires_grad = true })
    end)

    it('decides as policy.segments does', function()
        for n = 1, 7 do
            local marked = plan_of(function(v) return wane.checkpoint_sequential(model, n, v) end, x)
            local policed = wane.plan(function() return model(x):sum() end, { policy = wane.policy.segments(n) })
            assert.same(again(marked), again(policed))
            assert.equal(marked.peak, policed.peak)
        end
    end)

    it('refuses segments that do not fit', function()
        for _, n in ipairs { 0, 8, 1.5, '2' } do
            helper.refused('value', function() wane.checkpoint_sequential(model, n, x) end)
        end
    end)
end)

describe('nn.Sequential', function()
    it('hands on as many values as there are, nil too', function()
        local seen = {}
        local function note(...)
            seen[#seen + 1] = select('#', ...)
            return ...
        end
        local m = nn.Sequential { note, function(a, b) return a, b, nil end, note, function() end, note,
            function() return 7 end, note, function(a) return a, nil, 2, 3, 4, 5, 6, 7, 8, nil end }
        assert.are.equal(10, select('#', m(1, 2)))
        assert.are.same({ 2, 3, 0, 1 }, seen)
        assert.are.equal(8, (select(9, m(0))))
        assert.are.equal(0, select('#', nn.Sequential {}()))
    end)
end)

-- ---- loops over time --------------------------------------------------------------------------------------------

describe('a weight made of parameters, which every step reads', function()
    local makes = {
        ['of low rank'] = function(w, a, b) return w + a:matmul(b) end,
        ['of a spectral norm'] = function(w) return w / w:norm() * 3 end,
        ['of a norm and a gain'] = function(w, a) return w / w:norm(2, 1, { keepdim = true }) * a:sum() end,
    }

    -- Returns the loss of n steps, in regions of k where k is given, and the parameters.
    local function chain(make, n)
        wane.manual_seed(5)
        local w, a, b = nn.Parameter(wane.randn(20, 20) / 5), nn.Parameter(wane.randn(20, 3) / 9),
            nn.Parameter(wane.randn(3, 20) / 9)
        local x = wane.eval(wane.randn(30, 20))
        return function(k)
            local made, h = make(w, a, b), x
            local function steps(v, count)
                for _ = 1, count do v = v:matmul(made):tanh() end
                return v
            end
            for i = 1, n, k or n do
                local count = math.min(k or n, n - i + 1)
                h = k and wane.checkpoint(steps, h, count) or steps(h, count)
            end
            return (h ^ 2):mean()
        end, { w, a, b }
    end

    for name, make in pairs(makes) do
        it(name .. ' is planned in no more bytes than regions by hand, with the same gradients', function()
            for _, n in ipairs { 30, 110 } do
                local loss, list = chain(make, n)
                local least, all = wane.min_budget(loss), wane.plan(loss).reserved
                for _, k in ipairs { 2, 4, 6, 9, 15 } do
                    local by_hand = wane.plan(function() return loss(k) end)
                    assert.is_true(least <= by_hand.reserved, k .. ': ' .. least .. ' of ' .. by_hand.reserved)
                    local p = wane.plan(loss, { budget = by_hand.reserved })
                    assert.is_true(p.seconds <= by_hand.seconds, k .. ': slower')
                end
                assert.is_true(wane.plan(loss, { policy = 'sqrt' }).reserved < all)
                local bits = {}
                for i, opts in ipairs { { policy = 'save_all' }, { budget = least }, { policy = 'every(4)' } } do
                    local g = {}
                    loss():backward(opts)
                    for j, p in ipairs(list) do g[j] = p.grad end
                    bits[i] = measure.fingerprint(g)
                    for _, p in ipairs(list) do p.grad = nil end
                end
                assert.equal(bits[1], bits[2])
                assert.equal(bits[1], bits[3])
            end
        end)
    end
end)

describe('a loop over time, written out', function()
    local by_hand = { 'sqrt', 'recompute_all' }
    for _, k in ipairs { 1, 2, 3, 5, 8 } do
        for _, name in ipairs { 'every', 'binomial', 'keep_last' } do
            by_hand[#by_hand + 1] = ('%s(%d)'):format(name, k)
        end
        by_hand[#by_hand + 1] = ('segments(%d)'):format(k + 1)
    end

    -- Returns the loss of n steps over (rows, width); with a head at each step, or at the last one.
    local function loop(n, rows, width, has_heads)
        wane.manual_seed(2)
        local into, on, head = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 4)
        local x = {}
        for t = 1, n do x[t] = wane.eval(wane.randn(rows, width)) end
        return function()
            local h, sum = wane.zeros(rows, width), 0
            for t = 1, n do
                h = (into(x[t]) + on(h)):tanh()
                if has_heads or t == n then sum = sum + (head(h) ^ 2):mean() end
            end
            return sum
        end
    end

    for _, row in ipairs { { 40, 32, 64, true }, { 24, 8, 16, true }, { 13, 32, 64, false } } do
        it('is planned no slower than a policy by hand of the same bytes: ' .. row[1] .. ' steps', function()
            local loss, compared = loop(unpack(row)), 0
            for _, name in ipairs(by_hand) do
                local ok, p = pcall(wane.plan, loss, { policy = name })
                if ok then
                    local q = wane.plan(loss, { budget = p.reserved })
                    assert.is_true(q.seconds <= p.seconds, ('%s: %g s, by hand %g'):format(name, q.seconds, p.seconds))
                    compared = compared + 1
                end
            end
            assert.is_true(compared > 4)
        end)
    end
end)

describe('a step of time of a recurrent layer', function()
    local function world(kind, opts)
        wane.manual_seed(6)
        local m, head, x = nn[kind](6, 16, opts), nn.Linear(16 * (opts.bidirectional and 2 or 1), 3),
            wane.eval(wane.randn(24, 4, 6))
        return m, function() return (head((m(x))) ^ 2):mean() end, head
    end

    for _, kind in ipairs { 'LSTM', 'GRU' } do
        it('is a unit of policies that cut, of a model and of the layer: ' .. kind, function()
            for units, opts in pairs { [24] = {}, [8] = { chunk = 3 } } do
                local m, loss = world(kind, opts)
                local all = wane.plan(loss).reserved
                for _, name in ipairs { 'sqrt', 'every(1)', 'every(2)', ('segments(%d)'):format(units) } do
                    local p = wane.plan(loss, { policy = name })
                    assert.is_true(p.recomputed > units, name)
                    assert.is_true(units == 24 or p.reserved < all, name .. ': ' .. p.reserved .. ' of ' .. all)
                    m:checkpoint(name)
                    assert.equal(p.reserved, wane.plan(loss).reserved)
                    m:checkpoint(false)
                end
                local e = helper.refused(nil, function()
                    wane.plan(loss, { policy = ('segments(%d)'):format(units + 1) })
                end)
                assert.matches('segments of ' .. units .. ' units', tostring(e))
            end
        end)

        it('projects its inputs with chunk, in no more bytes than regions by hand: ' .. kind, function()
            for _, opts in ipairs { {}, { bidirectional = true }, { batch_first = true, num_layers = 2 } } do
                local before = world(kind, opts)
                opts.chunk = 5
                local m, loss, head = world(kind, opts)
                local x = wane.eval(wane.randn(4, 24, 6))
                assert.is_true((before(x) - m(x)):abs():max():item() < 1e-6)
                local opt = optim.SGD({ head.weight, m.weight_ih_l0 }, { lr = 0.1 })
                local bits = {}
                for i, policy in ipairs { 'save_all', 'every(1)', 'sqrt', 'recompute_all' } do
                    opt:zero_grad()
                    loss():backward { policy = policy }
                    bits[i] = measure.fingerprint { head.weight.grad, m.weight_ih_l0.grad }
                    assert.equal(bits[1], bits[i])
                end
            end
            local m, whole, head = world(kind, {})
            local _, loss = world(kind, { chunk = 6 })
            local x = wane.eval(wane.randn(24, 4, 6))
            local function by_hand()
                local list, h, c = {}, nil, nil
                for i = 1, 24, 6 do
                    list[#list + 1], h, c = wane.checkpoint(function(part, ...)
                        local h0, c0 = ...
                        return m(part, h0 and { h = h0, c = c0 })
                    end, x:narrow(1, i, 6), h, c)
                end
                return (head(wane.cat(list, 1)) ^ 2):mean()
            end
            local least = wane.min_budget(loss)
            assert.is_true(least <= wane.plan(by_hand).reserved)
            assert.is_true(least < wane.min_budget(whole))
        end)
    end

    it('refuses a chunk of no steps by name', function()
        helper.refused(nil, function() nn.LSTM(3, 4, { chunk = 0 }) end, 'nn.LSTM: chunk')
    end)
end)
