-- Checks wane.custom: the gradient of a custom function is what its backward records for the dy that arrives
-- (spec/ways_spec.lua trains one in every way), and what an allocation that fails leaves.
local helper = require 'spec.helper'
local wane = require 'wane'
local programs = require 'spec.support.programs'
local nn, C = wane.nn, require('wane.ffi').C

-- `cube` computes x^3 k and saves x^2; its gradient is exact.
local cube = wane.custom(function(ctx, x, k)
    ctx.saved[1] = x * x
    return ctx.saved[1] * x * k
end, function(ctx, dy, x, k)
    return dy * ctx.saved[1] * 3 * k, (dy * ctx.saved[1] * x):sum()
end)

describe('the gradient of a custom function, differentiated again,', function()
    local function leaf() return nn.Parameter(wane.tensor({ 0.3, -0.7, 1.1 }, { dtype = 'f64' })) end

    -- Checks that sum(f(2 x) x) has the same second derivative with f = custom as with f = plain, which says the same
    -- in ordinary ops.
    local function both(custom, plain)
        local out = {}
        for k, f in ipairs { custom, plain } do
            local x = leaf()
            local g = wane.grad((f(x * 2) * x):sum(), x)
            out[k] = wane.grad((g * g):sum(), x):totable()
        end
        for k, v in ipairs(out[2]) do
            assert(math.abs(out[1][k] - v) <= 1e-12 * (1 + math.abs(v)), ('%g, expected %g'):format(out[1][k], v))
        end
    end

    it('is right where the backward reads arguments, the result, and what it makes of them', function()
        both(wane.custom(function(_, v) return v:tanh() end, function(_, dy, v)
            local y = v:tanh()
            return dy * (1 - y * y)
        end), function(v) return v:tanh() end)
        both(wane.custom(function(_, v) return v * v * v end, function(_, dy, v) return dy * 3 * v * v end),
            function(v) return v * v * v end)
        both(wane.custom(function(ctx, v)
            ctx.saved[1] = v:exp()
            return ctx.saved[1]
        end, function(ctx, dy) return dy * ctx.saved[1] end), function(v) return v:exp() end)
    end)

    it('is refused where it reads what the forward made of its arguments, also when that was evaluated', function()
        for _, keep in ipairs { function(v) return v end, wane.eval } do
            local f = wane.custom(function(ctx, v)
                ctx.saved[1] = keep(v * v)
                return ctx.saved[1] * v
            end, function(ctx, dy) return dy * ctx.saved[1] * 3 end)
            local x = leaf()
            local g = wane.grad(f(x):sum(), x)
            assert(math.abs(g:totable()[1] - 0.27) < 1e-12)
            local fine, why = pcall(wane.grad, (g * g):sum(), x)
            assert(not fine and why.code == 'unsupported', tostring(why))
            assert(tostring(why):find('ctx.saved', 1, true))
            f(x):sum():backward() -- the first derivative is what it was
            local have = x.grad:totable()
            for k, v in ipairs { 0.3, -0.7, 1.1 } do assert(math.abs(have[k] - 3 * v * v) < 1e-12) end
        end
    end)

    it('takes masks and values from elsewhere as the constants they are', function()
        local scale = wane.no_grad(function() return leaf():exp() end)
        local f = wane.custom(function(ctx, v)
            ctx.saved[1] = v:gt(0):to 'f64'
            return v * ctx.saved[1]
        end, function(ctx, dy) return dy * ctx.saved[1] * scale end)
        local x = leaf()
        assert.equal(3, #wane.grad(wane.grad((f(x) * x):sum(), x):sum(), x):totable())
    end)
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

    it('refuses at the line of the caller', function()
        local x = nn.Parameter(wane.ones(2, 3))
        local function refused(word, forward, backward)
            helper.refused(nil, function() return wane.custom(forward, backward)(x) end, word)
        end
        local function twice(_, v) return v * 2 end
        refused('expected two functions', twice)
        refused('forward must return', function() end, twice)
        refused('gradient of tensor 1', twice, function(_, dy) return dy:sum() end)
        refused('2 gradients', twice, function(_, dy) return dy, dy end)
        refused('recorded once', twice, function(_, dy) return dy * dy:sum():item() end)
        refused('random', twice, function(_, dy) return nn.Dropout(0.5)(dy) end)
    end)

    it('leaves nothing behind when an allocation fails, and gives the same bits after it', function()
        wane.manual_seed(8)
        local model = programs.mlp(16, 4, 0.25)
        local k, x = nn.Parameter(wane.tensor(0.5)), wane.eval(wane.randn(32, 16))
        local params = model:parameters()
        params[#params + 1] = k
        local function zero_grad()
            for _, p in ipairs(params) do p.grad = nil end
        end
        local function grads()
            zero_grad()
            model(cube(model(x) * 0.1, k):tanh()):pow(2):mean():backward()
            local list = {}
            for i, p in ipairs(params) do list[i] = p.grad end
            return programs.bits(list)
        end
        local function live()
            collectgarbage()
            collectgarbage()
            wane.memory.trim()
            return wane.memory().allocated
        end
        local counter = C.wn_counter()
        local expected = grads()
        zero_grad()
        local before, failures, n = live(), 0, 0
        repeat
            n = n + 1
            C.wn_counter_set(counter)
            C.wn_debug('forget_plans', 1)
            -- An allocation that only wants room is tried once more, and comes through.
            local ok, result, fired = programs.failing(n, grads)
            if ok then
                assert.equal(expected, result, 'failure ' .. n)
            else
                failures = failures + 1
                assert.equal('oom', type(result) == 'table' and result.code, tostring(result))
            end
            zero_grad()
            assert.equal(before, live(), 'failure ' .. n)
        until not fired
        assert.is_true(n > 50 and failures > 5, n .. ' tries, ' .. failures .. ' failures')
        C.wn_counter_set(counter)
        assert.equal(expected, grads())
    end)
end)
