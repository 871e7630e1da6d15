-- wane.custom: the gradients are what the backward records for the dy that arrives, under every policy to the bit.
require 'spec.helper'
local wane = require 'wane'
local programs = require 'spec.support.programs'
local nn = wane.nn

local function bits(list) return table.concat(programs.bytes(list), '|') end

-- x^3 k, with x^2 saved; the gradient is exact.
local cube = wane.custom(function(ctx, x, k)
    ctx.saved[1] = x * x
    return ctx.saved[1] * x * k
end, function(ctx, dy, x, k)
    return dy * ctx.saved[1] * 3 * k, (dy * ctx.saved[1] * x):sum()
end)

describe('wane.custom', function()
    it('agrees with finite differences and with built-in gradients, used twice', function()
        wane.manual_seed(2)
        local x = nn.Parameter(wane.randn(3, 4):to 'f64')
        local k = nn.Parameter(wane.tensor(1.5, { dtype = 'f64' }))
        local function loss(f) return (f(f(x * 0.5, k):tanh(), k) * x):sum() end
        local function plain(v, s) return v * v * v * s end
        loss(cube):backward()
        local gx, gk = x.grad:totable(), k.grad:item()
        x.grad, k.grad = nil, nil
        loss(plain):backward()
        assert.is_true(math.abs(gk - k.grad:item()) <= 1e-12 * math.abs(gk) and gk ~= 0)
        local px = x.grad:totable()
        for i = 1, 3 do for j = 1, 4 do
            assert.is_true(math.abs(gx[i][j] - px[i][j]) <= 1e-12 * (1 + math.abs(px[i][j])))
        end end
        local e = 1e-6
        k:assign(wane.tensor(1.5 + e, { dtype = 'f64' }))
        local up = loss(cube):item()
        k:assign(wane.tensor(1.5 - e, { dtype = 'f64' }))
        assert.is_true(math.abs((up - loss(cube):item()) / (2 * e) - gk) <= 1e-7 * (1 + math.abs(gk)))
    end)

    it('uses the gradient given, not the true one, and keys plans by it', function()
        local x = nn.Parameter(wane.tensor { 2, 3 })
        for _ = 1, 2 do
            for factor, shape in pairs { [5] = false, [7] = true } do
                local f = wane.custom(function(_, v) return v * v end, function(_, dy)
                    return shape and (dy * factor):neg() or dy * factor
                end)
                f(x):sum():backward()
                local want = shape and -factor or factor
                assert.same({ want, want }, x.grad:totable())
                x.grad = nil
            end
        end
    end)

    it('has the same bits under every policy, in regions, and in opt:step', function()
        local seen
        for _, policy in ipairs { 'save_all', 'recompute_all', 'every(1)', 'region' } do
            wane.manual_seed(6)
            local model = programs.mlp(8, 3, 0.25)
            local x = nn.Parameter(wane.randn(4, 8))
            local k = nn.Parameter(wane.tensor(0.5))
            local function block(v) return cube(model(v), k):tanh() end
            local y = policy == 'region' and wane.checkpoint(block, x) or block(x)
            y:pow(2):mean():backward { policy = policy ~= 'region' and policy or nil }
            local list = { x.grad, k.grad }
            for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad end
            seen = seen or bits(list)
            assert.equal(seen, bits(list))
        end
    end)

    it('refuses at the line of the caller', function()
        local x = nn.Parameter(wane.ones(2, 3))
        local function refused(word, forward, backward)
            local ok, e = pcall(function() return wane.custom(forward, backward)(x) end)
            assert.is_false(ok)
            assert.is_truthy(e.message:find(word, 1, true), e.message)
        end
        local function twice(_, v) return v * 2 end
        refused('expected two functions', twice)
        refused('forward must return', function() end, twice)
        refused('gradient of tensor 1', twice, function(_, dy) return dy:sum() end)
        refused('2 gradients', twice, function(_, dy) return dy, dy end)
        refused('recorded once', twice, function(_, dy) return dy * dy:sum():item() end)
        refused('random', twice, function(_, dy) return nn.Dropout(0.5)(dy) end)
    end)
end)
