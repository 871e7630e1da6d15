-- Checks wane.compile: the function is recorded twice and then run with other inputs, and every step has the bits of
-- the loop without compile.
local helper = require 'spec.helper'
local wane = helper.wane
local nn = wane.nn

local function make(seed)
    wane.manual_seed(seed or 5)
    return nn.Sequential { nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.25), nn.Linear(8, 3) }
end

local function batches(n)
    local list = {}
    for i = 1, n do
        list[i] = { wane.eval(wane.randn(4, 6)), wane.eval(wane.randint(3, { 4 })) }
    end
    return list
end

local function state(model)
    local out = {}
    for _, p in ipairs(model:parameters()) do out[#out + 1] = p:totable() end
    return out
end

local function plain(fn) return fn end

local function message(fn, ...)
    local fine, why = pcall(fn, ...)
    assert.is_false(fine)
    return tostring(why)
end

describe('a compiled step', function()
    -- Runs n steps on a fresh model; `wrap` makes the callable of the step. Returns the losses and the state of the
    -- model.
    local function train(n, optimizer, body, wrap)
        local model = make()
        local opt = optimizer(model)
        local data = batches(n)
        local step = wrap(function(x, y) return body(model, opt, x, y) end)
        local losses = {}
        for i = 1, n do losses[i] = step(data[i][1], data[i][2]):item() end
        return losses, state(model)
    end
    local optimizers = {
        SGD = function(m) return wane.optim.SGD(m:parameters(), { lr = 0.1, momentum = 0.9 }) end,
        Adam = function(m) return wane.optim.Adam(m:parameters(), { lr = 0.01 }) end,
    }
    local bodies = {
        ['opt:step(loss)'] = function(model, opt, x, y) return opt:step(nn.cross_entropy(model(x), y)) end,
        ['the three usual lines'] = function(model, opt, x, y)
            opt:zero_grad()
            local loss = nn.cross_entropy(model(x), y)
            loss:backward()
            opt:step()
            return loss
        end,
    }
    for name, optimizer in pairs(optimizers) do
        for line, body in pairs(bodies) do
            it('has the bits of the plain loop: ' .. name .. ', ' .. line, function()
                local losses, parameters = train(7, optimizer, body, plain)
                local again, compiled = train(7, optimizer, body, wane.compile)
                assert.same(losses, again)
                assert.same(parameters, compiled)
                assert.is_true(losses[1] ~= losses[7])
            end)
        end
    end

    it('calls the function twice a signature, then never', function()
        local model = make()
        local calls = 0
        local f = wane.compile(function(x)
            calls = calls + 1
            return model(x)
        end)
        model:eval()
        model(wane.eval(wane.randn(4, 6))):totable()
        for i = 1, 5 do
            local x = wane.eval(wane.randn(4, 6))
            assert.same(model(x):totable(), f(x):totable())
            assert.equal(math.min(i, 2), calls)
        end
        f(wane.eval(wane.randn(2, 6))) -- another shape records anew
        assert.equal(3, calls)
        model:train() -- and so does a changed mode
        f(wane.eval(wane.randn(4, 6)))
        assert.equal(4, calls)
        assert.is_truthy(tostring(f):find('recorded'))
    end)

    it('takes numbers as inputs', function()
        local f = wane.compile(function(x, k) return x * k end)
        local x = wane.tensor { 1, 2, 3 }
        for k = 1, 5 do assert.same({ k, 2 * k, 3 * k }, f(x, k):totable()) end
    end)

    it('computes arguments that were not computed yet', function()
        local f = wane.compile(function(x) return x * 2 end)
        for k = 1, 4 do assert.same({ 2 * k, 2 * k + 2 }, f(wane.full({ 2 }, k) + wane.arange(0, 2)):totable()) end
    end)

    it('returns several values, each its own', function()
        local f = wane.compile(function(x)
            local s = x:sum()
            return x * 2, s, 'word', x + s
        end)
        for k = 1, 4 do
            local a, b, c, d = f(wane.tensor { k, 1 })
            assert.same({ 2 * k, 2 }, a:totable())
            assert.equal(k + 1, b:item())
            assert.equal('word', c)
            assert.same({ 2 * k + 1, k + 2 }, d:totable())
        end
    end)

    it('keeps the tensors of a call when the next one runs', function()
        local f = wane.compile(function(x) return x + 1 end)
        local kept = {}
        for k = 1, 5 do kept[k] = f(wane.tensor { k, k }) end
        for k = 1, 5 do assert.same({ k + 1, k + 1 }, kept[k]:totable()) end
    end)

    it('keeps the random numbers of what was recorded before, computed or not, and draws its own anew', function()
        local function run(is_compiled, is_held)
            wane.manual_seed(3)
            local w, v, drop = nn.Parameter(wane.ones(12)), nn.Parameter(wane.ones(12)), nn.Dropout(0.5)
            local opt = wane.optim.SGD({ w, v }, { lr = 0 })
            local inner = drop(w * 2)
            local outer = drop(inner:tanh() + w)
            if is_held then wane.eval(outer) end
            local function fn()
                local loss = (drop(outer) * v):sum()
                wane.backward({ loss }, { again = true })
                return loss
            end
            local step, seen = is_compiled and wane.compile(fn) or fn, {}
            for _ = 1, 6 do
                opt:zero_grad()
                seen[#seen + 1] = { step():item(), w.grad:totable(), v.grad:totable() }
            end
            return seen
        end
        for _, is_held in ipairs { true, false } do
            local expected = run(false, is_held)
            assert.are_not.same(expected[1], expected[3])
            assert.are.same(expected, run(true, is_held))
        end
    end)

    it('refuses another argument whose gradient goes on to what it was computed from', function()
        local w, v, drop = nn.Parameter(wane.ones(12)), nn.Parameter(wane.ones(12)), nn.Dropout(0.5)
        local opt = wane.optim.SGD({ w, v }, { lr = 0 })
        local step = wane.compile(function(x)
            local loss = (x * v):sum()
            loss:backward()
            return loss
        end)
        local function call(x)
            opt:zero_grad()
            return step(x)
        end
        for _ = 1, 2 do
            local x = drop(w)
            call(x)
            for i, g in ipairs(w.grad:totable()) do assert.are.equal(x:totable()[i], g) end
        end
        assert.is_truthy(message(call, drop(w)):find(':detach()', 1, true))
        for _ = 1, 4 do
            local x = drop(w):detach()
            call(x)
            assert.is_nil(w.grad)
            assert.are.same(x:totable(), v.grad:totable())
        end
    end)

    it('follows a learning rate that changes', function()
        local function run(wrap)
            local w = wane.ones(2, { requires_grad = true })
            local opt = wane.optim.SGD({ w }, { lr = 1 })
            local step = wrap(function(x) return opt:step((w * x):sum()) end)
            local x = wane.eval(wane.tensor { 1, 2 })
            for i = 1, 5 do
                opt.lr = 1 / i
                step(x)
            end
            return w:totable()
        end
        assert.same(run(plain), run(wane.compile))
    end)

    it('changes nothing when it is stopped, and runs when it is called again', function()
        local C = require('wane.ffi').C
        local function run(stopped_at, opts)
            local model = make()
            model[3].p = 0 -- masks come from how much was drawn before, and a stopped step drew too
            local opt = wane.optim.AdamW(model:parameters(), opts)
            local step = wane.compile(function(x, y) return opt:step(nn.cross_entropy(model(x), y)) end)
            local data, counts = batches(6), {}
            wane.manual_seed(9)
            for i = 1, 6 do
                if i == stopped_at then
                    C.wn_interrupt(1)
                    local fine, why = pcall(step, data[i][1], data[i][2])
                    C.wn_interrupt(0)
                    assert.is_false(fine)
                    assert.equal('interrupt', why.code)
                end
                step(data[i][1], data[i][2])
                counts[i] = opt:state_dict().count[1]
            end
            return counts, state(model), opt:state_dict().cells['v.1']:totable()
        end
        for _, opts in ipairs { { lr = 0.01 }, { lr = 0.01, clip_norm = 0.5 } } do
            local want = { run(nil, opts) }
            assert.same({ 1, 2, 3, 4, 5, 6 }, want[1])
            for i = 2, 6 do assert.same(want, { run(i, opts) }) end
        end
    end)

    it('obeys a policy', function()
        local model = make()
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
        local asked = 0
        local f = wane.compile(function(x, y) return opt:step(nn.cross_entropy(model(x), y)) end,
            { policy = function() asked = asked + 1 end })
        local data = batches(1)[1]
        f(data[1], data[2])
        assert.is_true(asked > 0)
    end)

    it('refuses numbers and data that change', function()
        local n = 0
        local f = wane.compile(function(x)
            n = n + 1
            return x * n
        end)
        local x = wane.tensor { 1, 2 }
        f(x)
        assert.is_truthy(message(f, x):find('a number was 1 at the first call and 2 at the second', 1, true))
        local g = wane.compile(function(v) return v + wane.tensor { 1, 2 } end)
        g(x)
        assert.is_truthy(message(g, x):find('pass it as an argument', 1, true))
    end)

    it('refuses a function that records another program at every call', function()
        local n = 0
        local f = wane.compile(function(x)
            n = n + 1
            return n % 2 == 1 and x:gelu() or x:relu()
        end)
        local x = wane.tensor { 1, 2 }
        f(x)
        assert.is_truthy(message(f, x):find('another program', 1, true))
        assert.equal(2, n)
    end)

    it('runs the function twice, not more, though the gradients get their places in the first call', function()
        local model = wane.nn.Linear(3, 2)
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
        local n = 0
        local step = wane.compile(function(x)
            n = n + 1
            opt:zero_grad()
            local loss = model(x):sum()
            loss:backward()
            opt:step()
            return loss
        end)
        local x, losses = wane.tensor { { 1, 2, 3 } }, {}
        for i = 1, 5 do losses[i] = step(x):item() end
        assert.equal(2, n)
        for i = 2, 5 do assert.is_true(losses[i] < losses[i - 1]) end
    end)

    it('refuses reads, functions that run nothing, and what is no function', function()
        local f = wane.compile(function(x) return x * x:sum():item() end)
        assert.is_truthy(message(f, wane.tensor { 1, 2 }):find('reads a value', 1, true))
        assert.is_truthy(message(wane.compile(function() return 3 end)):find('ran nothing', 1, true))
        assert.has_error(function() wane.compile(7) end)
        assert.has_error(function() wane.compile(function() end, { polcy = 'sqrt' }) end)
    end)
end)

describe('a compiled step with other work between its calls', function()
    local optim = wane.optim

    -- Makes a model whose head is called on its own, too.
    local function world()
        wane.manual_seed(3)
        local head = nn.Linear(4, 3)
        local model = nn.Sequential { nn.Linear(4, 4), nn.ReLU(), head }
        local w = { model = model, head = head, opt = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.5 }) }
        function w.loss(m, x, y) return nn.cross_entropy((m or model)(x), y) end
        return w
    end

    local steps = {
        ['opt:step(loss)'] = function(w, x, y) w.opt:step(w.loss(nil, x, y)) end,
        ['the three usual lines'] = function(w, x, y)
            w.opt:zero_grad()
            w.loss(nil, x, y):backward()
            w.opt:step()
        end,
        ['three lines that clear last'] = function(w, x, y)
            w.loss(nil, x, y):backward()
            w.opt:step()
            w.opt:zero_grad()
        end,
    }
    -- Lists what runs between two calls and leaves no gradient behind.
    local works = {
        ['nothing'] = function() end,
        ['a backward'] = function(w, x, y) w.loss(nil, x, y):backward() end,
        ["the head's backward"] = function(w, x, y) w.loss(w.head, x, y):backward() end,
        ["the head's backward, then the model's"] = function(w, x, y)
            w.loss(w.head, x, y):backward()
            w.loss(nil, x, y):backward()
        end,
        ['gradients set to nil'] = function(w, x, y)
            w.loss(nil, x, y):backward()
            for _, p in ipairs(w.model:parameters()) do p.grad = nil end
        end,
        ['a step of its own'] = function(w, x, y) w.opt:step(w.loss(nil, x, y)) end,
        ["the head's value"] = function(w, x, y) w.loss(w.head, x, y):item() end,
        ['a measurement'] = function(w, x, y)
            wane.measure(function() return w.loss(nil, x, y) end, { steps = 1, warmup = 0 })
        end,
    }

    for step_name, step in pairs(steps) do
        for work_name, work in pairs(works) do
            it(('is recorded twice, not more, and has the bits of the loop: %s, %s'):format(step_name, work_name),
                function()
                    local function train(wrap)
                        local w, recorded = world(), 0
                        local call = wrap(function(x, y)
                            recorded = recorded + 1
                            step(w, x, y)
                        end)
                        for _, batch in ipairs(batches(5)) do
                            local x, y = batch[1]:narrow(2, 1, 4):detach(), batch[2]
                            call(x, y)
                            w.opt:zero_grad()
                            work(w, x, y)
                            w.opt:zero_grad()
                        end
                        return state(w.model), recorded
                    end
                    local expected = train(plain)
                    local got, recorded = train(wane.compile)
                    assert.same(expected, got)
                    assert.equal(2, recorded)
                end)
        end
    end

    it('names what another recording did otherwise', function()
        local w, n = world(), 0
        local x, y = wane.randn(2, 4), wane.randint(3, { 2 })
        local step = wane.compile(function(a, b)
            n = n + 1
            local h = w.model(a)
            w.opt:step(nn.cross_entropy(n % 2 == 1 and h or h:relu(), b))
        end)
        step(x, y)
        assert.is_truthy(message(step, x, y):find('relu was recorded where it was log_softmax before', 1, true))
        local left = wane.compile(function(a, b) w.loss(nil, a, b):backward() end)
        left(x, y)
        assert.is_truthy(message(left, x, y):find('gradients of the step before are still there', 1, true))
    end)
end)

describe('a compiled step whose optimizer holds parameters that the loss does not reach', function()
    local optim = wane.optim
    local x

    local ways = {
        ['opt:step(loss)'] = function(model, opt) return function(v) return opt:step(model(v):sum()) end end,
        ['three lines'] = function(model, opt)
            return function(v)
                opt:zero_grad()
                local loss = model(v):sum()
                loss:backward()
                opt:step()
                return loss
            end
        end,
        ['clipped gradients'] = function(model, opt)
            return function(v)
                opt:zero_grad()
                local loss = model(v):sum()
                loss:backward()
                optim.clip_grad_norm(model:parameters(), 1)
                opt:step()
                return loss
            end
        end,
        ['several losses'] = function(model, opt)
            return function(v) return opt:step { model(v):sum(), model(v * 2):sum() } end
        end,
    }

    -- Returns the values of all parameters after 5 steps, those of the part that no loss reaches first. `before` is
    -- called with that part and the optimizer before the first step.
    local function after(way, kind, before, is_compiled)
        wane.manual_seed(1)
        local model, other = nn.Linear(4, 4), nn.Linear(4, 4)
        local list = other:parameters()
        for _, p in ipairs(model:parameters()) do list[#list + 1] = p end
        local opt = optim[kind](list, { lr = 0.1, weight_decay = 0.1 })
        if before then before(other, opt) end
        local step = ways[way](model, opt)
        if is_compiled then step = wane.compile(step) end
        for _ = 1, 5 do step(x) end
        local values = {}
        for i, p in ipairs(list) do values[i] = p:totable() end
        return values
    end

    it('leaves them as they are, as the function does uncompiled and as PyTorch does', function()
        x = wane.eval(wane.ones(2, 4))
        for way in pairs(ways) do
            for _, kind in ipairs { 'SGD', 'AdamW' } do
                for _, before in pairs { false, function(other) other(x):sum():backward() end,
                    function(other, opt) opt:step(other(x):sum()) end, function(other) other(x):sum():item() end } do
                    assert.are.same(after(way, kind, before, false), after(way, kind, before, true), way .. kind)
                end
            end
        end
    end)
end)
