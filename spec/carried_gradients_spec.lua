-- Checks that a step which leaves gradients for the next one, or clears them late, is planned before its first run as
-- it is in every later one: plan, measure, and the ledger over the script's own loop count the same bytes.
local helper = require 'spec.helper'
local wane = helper.wane
local dice = require 'spec.support.dice'

local nn, optim = wane.nn, wane.optim

describe('the bytes of a step with gradients that last', function()
    -- Steps of two models whose gradients one optimizer or the other leaves for the next step, and two that leave none.
    local CARRYING = {
        ['losses that cross'] = function(a, b, x, first, second)
            second:zero_grad()
            b(a(x)):mean():add(b(x):mean()):backward()
            second:step()
            first:zero_grad()
            b(a(x)):mean():backward()
            first:step()
        end,
        ['one is never cleared'] = function(a, b, x, first, second)
            first:zero_grad()
            b(a(x)):mean():backward()
            first:step()
            second:step()
        end,
        ['cleared late'] = function(a, b, x, first, second)
            b(a(x)):mean():backward()
            first:zero_grad()
            second:step()
            a(x):mean():backward()
            first:step()
        end,
        ['beside one plan, and cleared then'] = function(a, b, x, first, second)
            second:step(b(b(b(b(x)))):mean())
            first:zero_grad()
            second:zero_grad()
            b(a(x)):mean():backward()
            first:step()
            second:step()
        end,
        ['cleared at the end'] = function(a, b, x, first, second)
            b(a(x)):mean():backward()
            first:step()
            second:step()
            first:zero_grad()
            second:zero_grad()
        end,
        ['cleared before each backward'] = function(a, b, x, first, second)
            for _, opt in ipairs { first, second } do
                first:zero_grad()
                second:zero_grad()
                b(a(x)):mean():backward()
                opt:step()
            end
        end,
    }

    for name, run in pairs(CARRYING) do
        it('are those of every later step before the first one: ' .. name, function()
            for k, make in ipairs { optim.SGD, optim.AdamW } do
                wane.memory.trim()
                local foreign = wane.memory().allocated
                local a, b, x = nn.MLP(8 * k, 40), nn.MLP(8 * k, 24), wane.eval(wane.randn(64, 8 * k))
                local first, second = make(a:parameters(), { lr = 1e-3 }), optim.SGD(b:parameters(), { lr = 1e-3 })
                local function own() return run(a, b, x, first, second) end
                local before, least = wane.plan(own), wane.min_budget(own)
                for _, q in pairs(a:parameters()) do assert.is_nil(q.grad) end
                for _ = 1, 2 do own() end
                local m, after = wane.measure(own, { optimizer = first, steps = 2 }), wane.plan(own)
                assert.is_true(m.exact, tostring(m))
                assert.same({ after.peak, after.reserved, wane.min_budget(own) },
                    { before.peak, before.reserved, least })
                assert.same({ m.peak, m.reserved }, { before.peak, before.reserved })
                assert.equal(before.peak, helper.held_by(own, foreign), name)
            end
        end)
    end

    -- Returns a step of random run points of two models and two optimizers: zero_grad, backward, step, opt:step(loss).
    local function random_step(roll, models, opts, x)
        local list = {}
        local function loss(order, in_bf16)
            local function value()
                local y = x
                for _, i in ipairs(order) do y = models[i](y) end
                return y:to('f32'):pow(2):mean()
            end
            return in_bf16 and wane.autocast('bf16', value) or value()
        end
        for i = 1, 2 + roll(5) do
            local opt, order, in_bf16 = opts[roll(2)], { roll(2), roll(2) }, roll(4) == 1
            list[i] = ({ function() opt:zero_grad() end, function() opt:step() end,
                function() opt:step(loss(order, in_bf16)) end,
                function() loss(order, in_bf16):backward { policy = 'recompute_all' } end,
                function() loss(order, in_bf16):backward() end })[roll(5)]
        end
        return function()
            for _, run in ipairs(list) do run() end
            opts[1]:step()
        end
    end

    -- Returns what each part of a plan takes and has beside it.
    local function accounts(plan)
        local list = {}
        for i, part in ipairs(plan.parts) do
            list[i] = ('%s %d %d %d %d'):format(part.mode, part.peak, part.reserved, part.beside, part.live_beside)
        end
        return list
    end

    it('are those of every later step before the first one, of run points in any order', function()
        local n = 0
        for seed = helper.is_long and 1 or 81, helper.is_long and 400 or 160 do
            wane.memory.trim()
            local foreign, roll = wane.memory().allocated, dice(seed)
            local models = { nn.MLP(16, 8 * roll(5)), nn.Sequential { nn.Linear(16, 16), nn.Dropout(0.2), nn.Tanh() } }
            local opts = { optim.AdamW(models[1]:parameters()), optim.SGD(models[2]:parameters(), { lr = 1e-4 }) }
            local own = random_step(roll, models, opts, wane.eval(wane.randn(32, 16)))
            if pcall(own) and pcall(own) then -- a step of parameters without a gradient is refused
                for _, opt in ipairs(opts) do opt:zero_grad() end
                local plan = wane.plan(own)
                own()
                local later, m = wane.plan(own), wane.measure(own, { optimizer = opts[1], steps = 2 })
                assert.same(accounts(later), accounts(plan), 'seed ' .. seed)
                assert.same({ m.peak, m.reserved, true }, { plan.peak, plan.reserved, m.exact }, 'seed ' .. seed)
                assert.equal(plan.peak, helper.held_by(own, foreign), 'seed ' .. seed)
                n = n + 1
            end
        end
        assert.is_true(n >= 20, n)
    end)
end)
