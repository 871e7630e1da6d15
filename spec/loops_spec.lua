-- Checks plans of loops over time: a weight that every step reads is no crossing, and a budget is no slower than a
-- policy by hand of the same bytes.
require 'spec.helper'
local wane = require 'wane'
local measure = require 'wane.plan.measure'
local nn = wane.nn

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
