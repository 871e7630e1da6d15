-- Checks cells, which only effects write: tied and frozen parameters, gradients that are created, accumulated and
-- cleared, assignment as the way for a script to write a cell, and evaluation that leaves no trace.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local ways = require 'spec.support.ways'

local nn, optim = wane.nn, wane.optim
local C = binding.C

local function weight(values)
    return nn.Parameter(wane.tensor(values))
end

local function gradient_bytes()
    return wane.memory().kinds.gradient
end

local function collect()
    collectgarbage()
    collectgarbage()
end

describe('a tied weight', function()
    local function tied()
        local Tied = nn.module('Tied', function(self)
            self.w = weight { { 1, 2 }, { 3, 4 } }
            self.again = self.w
        end)
        function Tied:forward(x) return x:matmul(self.w):matmul(self.again) end
        return Tied()
    end

    it('is updated once a step, after every use of the old value', function()
        for _, lines in ipairs { true, false } do
            local model = tied()
            local opt = optim.SGD(model:parameters(), { lr = 1 })
            local loss = ways.step({ opt }, function() return model(wane.tensor { { 1, -1 } }):sum() end,
                { lines = lines })
            assert.same({ { 1 - 1, 2 - 5 }, { 3 + 5, 4 + 9 } }, model.w:totable())
            assert.equal(-20, loss:item()) -- (-2, -2) V 1 = -6 - 14
        end
    end)
end)

describe('evaluation in mid-training', function()
    -- Trains for five steps; returns the bits of the losses and of the parameters. `look` is called before and after
    -- each backward.
    local function train(look)
        wane.manual_seed(21)
        local model = programs.mlp(16, 3, 0.3)
        local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
        local x, test = wane.randn(6, 16):retain(), wane.randn(9, 16):retain()
        wane.eval(x, test)
        local losses = {}
        for _ = 1, 5 do
            opt:zero_grad()
            local loss = model(x):pow(2):mean()
            if look then look(model, test, loss) end
            loss:backward()
            if look then look(model, test, loss) end
            opt:step()
            losses[#losses + 1] = ('%.17g'):format(loss:item())
        end
        return table.concat(losses, ' ') .. programs.bits(model:parameters())
    end

    it('changes no bit of the training', function()
        local values = {}
        local looked = train(function(model, test, loss)
            model:eval()
            local y = wane.no_grad(function() return model(test):mean() end)
            assert.is_false(y.requires_grad)
            values[#values + 1] = y:item()
            loss:item()
            assert.is_true(#tostring(test) > 0)
            model:train()
        end)
        assert.equal(train(nil), looked)
        assert.equal(10, #values)
        for k = 1, 9, 2 do assert.equal(values[k], values[k + 1]) end -- nothing was updated between those two
        assert.is_true(values[1] ~= values[3])
    end)

    it('draws no random number in evaluation mode, and numbers of its own in training mode', function()
        local model = nn.Dropout(0.5)
        local x = wane.ones(64)
        local counter = tonumber(C.wn_here().counter)
        model:eval()
        assert.same(x:totable(), model(x):totable())
        assert.equal(counter, tonumber(C.wn_here().counter))
        model:train()
        local a, b = model(x), model(x)
        assert.equal(counter + 2, tonumber(C.wn_here().counter))
        assert.are_not.same(a:totable(), b:totable())
    end)
end)

describe('p:assign', function()
    it('writes, and what read the old value and was not run is stale', function()
        local p = weight { 1, 2 }
        local old, kept = p * 10, (p * 100):retain()
        wane.eval(kept)
        p:assign(wane.tensor { 5, 6 })
        assert.same({ 5, 6 }, p:totable())
        assert.same({ 50, 60 }, (p * 10):totable())
        assert.same({ 100, 200 }, kept:totable())
        helper.refused('stale', function() old:totable() end)
        p:assign(7)
        assert.same({ 7, 7 }, p:totable())
    end)

    it('reads the old value and writes the new one in one program', function()
        local p = weight { 1, 2, 4 }
        for k = 1, 5 do
            p:assign(p * 2 + 1)
            assert.equal(2 ^ (k + 1) - 1, p:totable()[1])
        end
    end)

    it('refuses another shape or dtype, and a value', function()
        local p = weight { 1, 2 }
        for _, case in ipairs {
            { 'shape', p, wane.ones(3) }, { 'dtype', p, wane.ones(2, { dtype = 'f64' }) },
            { 'value', wane.ones(2), wane.ones(2) }, { 'value', p, 'x' },
        } do
            local e = helper.refused(nil, function() case[2]:assign(case[3]) end)
            assert.equal(case[1], e.code, tostring(e))
        end
        assert.same({ 1, 2 }, p:totable())
    end)
end)

describe('a frozen parameter', function()
    it('gets no gradient and no update, and its bits stay', function()
        local a, b = weight { 1, 2 }, weight { 3, 4 }
        local opt = optim.AdamW({ a, b }, { lr = 0.5, weight_decay = 0.1 })
        b.requires_grad = false
        opt:step((a * b):sum())
        assert.is_nil(a.grad)
        assert.same({ 3, 4 }, b:totable())
        assert.are_not.same({ 1, 2 }, a:totable())
        local loss = (a * b):sum()
        loss:backward()
        assert.same({ 3, 4 }, a.grad:totable())
        assert.is_nil(b.grad)
        opt:step()
        assert.same({ 3, 4 }, b:totable())
        b.requires_grad = true
        opt:zero_grad()
        loss = (a * b):sum()
        loss:backward()
        assert.same(a:totable(), b.grad:totable())
    end)

    it('counts its own steps: Adam corrects one that starts late as such, also where a plan is found again', function()
        -- Checks that the numbers of a list are near the expected ones. Under a constant gradient every corrected step
        -- of Adam is lr * sign(g), if t is the parameter's own count.
        local function near(list, expected) gradcheck.near(expected, list, 1e-5) end
        local c = wane.tensor { 4, -2 }
        for round = 1, 2 do
            local a, b = weight { 0, 0 }, weight { 0, 0 }
            local opt = optim.Adam({ a, b }, { lr = 0.5 })
            local function loss() return ((a + b) * c):sum() end
            if round == 2 then opt:step(loss()) end -- the plan in which both share their numbers is known
            local done = round - 1
            b.requires_grad = false
            opt:step(loss())
            b.requires_grad = true
            opt:step(loss())
            near(a:totable(), { -0.5 * (done + 2), 0.5 * (done + 2) })
            near(b:totable(), { -0.5 * (done + 1), 0.5 * (done + 1) })
            loss():backward()
            opt:step()
            near(a:totable(), { -0.5 * (done + 3), 0.5 * (done + 3) })
            near(b:totable(), { -0.5 * (done + 2), 0.5 * (done + 2) })
        end
    end)

    it('makes a loss without gradient when all are', function()
        local a = weight { 1, 2 }
        a.requires_grad = false
        helper.refused(nil, function() (a * 2):sum():backward() end, 'gradient')
    end)
end)

describe('a gradient', function()
    before_each(collect)

    it('is nil, then assigned, then added to, then gone with its bytes at once', function()
        local base = gradient_bytes()
        local a, b = weight { 1, 2, 3 }, nn.Parameter(wane.ones(100, 7))
        local opt = optim.SGD({ a, b }, { lr = 1 })
        assert.is_nil(a.grad)
        local function loss() return (a * 2):sum() + (b * 3):sum() end
        loss():backward()
        local size = 256 + math.ceil(100 * 7 * 4 / 256) * 256
        assert.equal(base + size, gradient_bytes())
        assert.same({ 2, 2, 2 }, a.grad:totable())
        loss():backward()
        assert.same({ 4, 4, 4 }, a.grad:totable())
        assert.equal(6, b.grad:totable()[100][7])
        assert.equal(base + size, gradient_bytes())
        opt:zero_grad()
        assert.equal(base, gradient_bytes())
        assert.is_nil(a.grad)
        assert.is_nil(b.grad)
        loss():backward()
        assert.same({ 2, 2, 2 }, a.grad:totable())
        a.grad = nil
        assert.is_nil(a.grad)
        assert.equal(base + size - 256, gradient_bytes())
        loss():backward() -- a's is assigned anew, b's added to
        assert.same({ 2, 2, 2 }, a.grad:totable())
        assert.equal(6, b.grad:totable()[1][1])
        b.grad = nil
        a.grad = nil
        assert.equal(base, gradient_bytes())
    end)

    it('of a model goes with zero_grad of the model, and with the model', function()
        local base = gradient_bytes()
        local model = programs.mlp(16, 2, 0)
        model(wane.ones(2, 16)):sum():backward()
        local size = 2 * (16 * 16 * 4 + 256)
        assert.equal(base + size, gradient_bytes())
        model:zero_grad()
        assert.equal(base, gradient_bytes())
        model(wane.ones(2, 16)):sum():backward()
        assert.equal(base + size, gradient_bytes())
        local before = gradient_bytes()
        model = nil -- luacheck: ignore 311
        collect() -- with it may go a little that specs before this one left
        assert.is_true(before - gradient_bytes() >= size)
    end)

    it('held by a script is stale after the next backward, unless it was read', function()
        local a = weight { 1, 2 }
        ;(a * 3):sum():backward()
        local g = a.grad
        local twice, kept = g * 2, g * 2
        wane.eval(kept)
        ;(a * 3):sum():backward()
        assert.same({ 6, 6 }, g:totable()) -- the cell itself: its present value
        assert.same({ 6, 6 }, kept:totable())
        helper.refused('stale', function() twice:totable() end)
    end)

    it('allocated one by one, in a slab each, are all there when one program makes them again', function()
        local list, sum = {}, nil
        for k = 1, 80 do
            list[k] = weight { k, k }
            ;(list[k] * k):sum():backward()
            list[k].grad = nil
        end
        for k = 1, 80 do
            local part = (list[k] * k):sum()
            sum = sum and sum + part or part
        end
        sum:backward()
        for k = 1, 80 do assert.same({ k, k }, list[k].grad:totable()) end
    end)
end)

describe('storage', function()
    before_each(collect)

    it('is taken when a state is first needed, not when it is made', function()
        local before = wane.memory().allocated
        local model = programs.mlp(32, 4, 0)
        local opt = optim.AdamW(model:parameters(), { lr = 1 })
        assert.equal(before, wane.memory().allocated)
        model(wane.ones(2, 32))
        assert.equal(before, wane.memory().allocated)
        model(wane.ones(2, 32)):sum():item()
        local params = 4 * (32 * 32 * 4 + 256)
        assert.equal(before + params, wane.memory().allocated)
        opt:step(model(wane.ones(2, 32)):sum())
        assert.equal(before + 3 * params, wane.memory().allocated)
    end)

    it('of a beginning that the script still holds is not doubled, and both keep their value', function()
        wane.manual_seed(9)
        local init = wane.randn(64, 64)
        local expected = wane.randn(64, 64) -- another number, another value
        local before = wane.memory().allocated
        local p = nn.Parameter(init)
        wane.eval(p * 1)
        collect()
        assert.equal(before + 64 * 64 * 4, wane.memory().allocated)
        optim.SGD({ p }, { lr = 1 }):step((p * 0):sum())
        wane.eval(init, expected)
        assert.equal(programs.bits { p }, programs.bits { init })
        assert.are_not.equal(programs.bits { p }, programs.bits { expected })
        p:assign(0)
        assert.are_not.equal(programs.bits { p }, programs.bits { init })
    end)

    it('counts each byte once in the peak of the device', function()
        wane.memory.trim()
        wane.memory.reset_peak()
        local before = wane.memory()
        assert.equal(before.allocated, before.peak)
        local x = wane.full({ 64, 64 }, 3)
        wane.eval(x)
        assert.equal(before.allocated + 64 * 64 * 4, wane.memory().peak)
        assert.equal(before.reserved + 64 * 64 * 4, wane.memory().peak_reserved)
        wane.memory.reset_peak()
        local y = (x:exp():sqrt() + x):sum() -- one more value beside x and exp x: exp is overwritten by sqrt
        assert.is_true(y:item() > 0)
        local peak = wane.memory().peak - wane.memory().allocated
        assert.is_true(peak >= 64 * 64 * 4 and peak <= 64 * 64 * 4 + 512, tostring(peak))
    end)

    for name, device in pairs { cpu = 0, ['a second device'] = require('wane.tensor.op').device('mirror', 'spec') } do
        it('is each state\'s own when two begin as one value, or as each other, on ' .. name, function()
            scoped('device', device, function()
                local init = wane.tensor { 1, 2 } * 3
                local a, b = nn.Parameter(init), nn.Parameter(init)
                wane.eval(a + b)
                a:assign(9)
                assert.same({ 9, 9 }, a:totable())
                assert.same({ 3, 6 }, b:totable())
                assert.same({ 3, 6 }, init:totable())
                local read = wane.tensor { 4, 5 } + 0
                wane.eval(read)
                local c = nn.Parameter(read)
                local d = nn.Parameter(c)
                wane.eval(d * 1)
                c:assign(0)
                assert.same({ 4, 5 }, d:totable())
                assert.same({ 4, 5 }, read:totable())
                local s = nn.Parameter(wane.tensor(2.5))
                local t, u = nn.Parameter(s * 2), nn.Parameter(wane.full({}, 3))
                assert.equal(10.5, (s + t + u):item())
                assert.equal(5, t:item())
            end)
        end)
    end

    it('cannot begin as a value that was freed', function()
        local init = wane.tensor { 1, 2 }
        local p = nn.Parameter(init)
        init:free()
        helper.refused('stale', function() return (p * 2):totable() end, 'freed')
    end)
end)

describe('the name of a parameter', function()
    local x

    before_each(function() x = wane.eval(wane.ones(2, 3)) end)

    -- Returns the names of the states that a module reads, as its program has them.
    local function names(m)
        local list = {}
        scoped('listen', function(p)
            for _, node in ipairs(p:graph()) do
                if node.op == 'cell' then list[#list + 1] = node.name end
            end
        end, function() m(x):sum():item() end)
        return table.concat(list, ' ')
    end

    it('is its path in the model, which a part that is called on its own does not change', function()
        local head = nn.Linear(3, 3)
        local model = nn.Sequential { nn.Linear(3, 3), nn.Residual(head) }
        assert.equal('weight bias', names(head))
        assert.equal('1.weight 1.bias 2.body.weight 2.body.bias', names(model))
        assert.equal('2.body.weight 2.body.bias', names(head))
        assert.equal('2.body.weight 2.body.bias', names(model[2]))
        assert.equal('1.weight 1.bias 2.body.weight 2.body.bias', names(model))
    end)

    it('goes along to another dtype and into a model that grew', function()
        local model = nn.Sequential { nn.Linear(3, 3), nn.Linear(3, 3) }
        local before = names(model)
        assert.equal(before, names(model:to 'f64':to 'f32'))
        model[2]:to 'f64':to 'f32'
        assert.equal(before, names(model))
        model:add(nn.Linear(3, 3, { bias = false }))
        assert.equal(before .. ' 3.weight', names(model))
    end)

    it('is that of one of two models that share it, whichever is called', function()
        local shared = nn.Linear(3, 3)
        local a, b = nn.Sequential { nn.ReLU(), shared }, nn.Sequential { nn.ReLU(), nn.ReLU(), shared }
        assert.equal('2.weight 2.bias', names(a))
        assert.equal('2.weight 2.bias', names(b))
        assert.equal('2.weight 2.bias', names(a))
    end)
end)
