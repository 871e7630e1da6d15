-- Checks plans of loops over time: a weight that every step reads is no crossing, a budget is no slower than a policy
-- by hand of the same bytes, and a step of a recurrent layer is a unit of policies.
local helper = require 'spec.helper'
local wane = require 'wane'
local measure = require 'wane.plan.measure'
local nn, optim = wane.nn, wane.optim

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
