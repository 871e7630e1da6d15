-- Checks that scopes belong to the coroutine that entered them. Whatever callback yields, what is recorded and run
-- meanwhile must be as if the callback had not been called; a coroutine that is resumed must go on as if it had not
-- yielded; one that is dropped must leave nothing behind.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local tensor = require 'wane.tensor'
local wane = helper.wane
local nn, optim = wane.nn, wane.optim
local C = binding.C
local yield, create, resume, status = coroutine.yield, coroutine.create, coroutine.resume, coroutine.status

local x, w, model, block, optimizer

before_each(function()
    wane.manual_seed(4)
    x, w = wane.eval(wane.randn(4, 4)), nn.Parameter(wane.randn(4, 4))
    model = nn.Sequential { nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.GELU() }
    wane.eval(unpack(model:parameters()))
    optimizer = optim.SGD({ w }, { lr = 0 })
    block = nn.module('Waits', function() end)
end)

local function loss_of(at)
    at()
    return (model(x:matmul(w)) ^ 2):mean()
end

-- `kinds` is a list of { name, function(at) }: each function calls something of Wane with a callback that calls at().
local kinds = {
    { 'a module', function(at)
        function block.forward(_, v) at() return model(v) end
        return block()(x):sum():item()
    end },
    { 'a module in a module', function(at)
        function block.forward(_, v) at() return v * 2 end
        return nn.Sequential { nn.GELU(), nn.Sequential { block() } }(x):sum():item()
    end },
    { 'no_grad', function(at) return wane.no_grad(loss_of, at):item() end },
    { 'autocast', function(at) return wane.autocast('bf16', loss_of, at):item() end },
    { 'autocast f32', function(at)
        return wane.autocast('bf16', wane.autocast, 'f32', loss_of, at):item()
    end },
    { 'checkpoint', function(at) return wane.checkpoint(loss_of, at):item() end },
    { 'checkpoint_with', function(at) return wane.checkpoint_with({ name = 'a' }, loss_of, at):item() end },
    { 'checkpoint_fn', function(at) return wane.checkpoint_fn {}(loss_of, at):item() end },
    { 'checkpoint_sequential', function(at)
        local function waits(v) at() return v * 2 end
        return wane.checkpoint_sequential({ waits, nn.GELU(), waits, nn.GELU() }, 2, x):sum():item()
    end },
    { 'plan', function(at) return wane.plan(function() return loss_of(at) end).reserved end },
    { 'frontier', function(at) return #wane.frontier(function() return loss_of(at) end).all end },
    { 'min_budget', function(at) return wane.min_budget(function() return loss_of(at) end) end },
    { 'measure', function(at)
        return wane.measure(function() return loss_of(at) end, { steps = 2, warmup = 0 }).loss
    end },
    { 'measure with an optimizer', function(at)
        return wane.measure(function() return loss_of(at) end, { steps = 1, optimizer = optimizer }).loss
    end },
    { 'check', function(at)
        return wane.check(function() return loss_of(at) end, { policy = 'recompute_all' }).compared
    end },
    { 'profile', function(at)
        return wane.profile(function() return loss_of(at) end, { steps = 1, keep = false }) and 1
    end },
    { 'a policy of backward', function(at)
        loss_of(function() end):backward { policy = function() at() return 'recompute' end }
        local g = w.grad:sum():item()
        model:zero_grad()
        w.grad = nil
        return g
    end },
    { 'a policy of a plan', function(at)
        return wane.plan(function() return loss_of(function() end) end,
            { policy = function() at() return 'recompute' end }).recomputed
    end },
    { 'custom forward', function(at)
        return wane.custom(function(_, v) at() return v * 2 end, function(_, dy) return dy * 2 end)(w):sum():item()
    end },
    { 'custom backward', function(at)
        local y = wane.custom(function(_, v) return v * 2 end, function(_, dy) at() return dy * 2 end)(w)
        y:sum():backward()
        local g = w.grad:sum():item()
        w.grad = nil
        return g
    end },
    { 'chunked', function(at)
        return wane.chunked(function(v) at() return v:gelu() end, x, { dim = 1, size = 2 }):sum():item()
    end },
    { 'accumulate', function(at)
        local l = wane.accumulate(function(i) at() return (w * i):sum() end, { micro = 2 }):item()
        w.grad = nil
        return l
    end },
    { 'within', function(at)
        return wane.scoped('region', binding.id(C.wn_region_new(0, 'r')), wane.scoped, 'grad', 0, loss_of, at):item()
    end },
}

-- Returns as text the scopes under which an op is recorded here.
local function modes()
    local ok, y = pcall(function() return x:matmul(w) end)
    if not ok then return 'nothing may be recorded' end
    local info = tensor.info(y)
    local region = C.wn_here().region
    local timing = C.wn_timing(0)
    C.wn_timing(timing)
    return ('%s gradient %d scope %d region %s timing %d replay %d planning %s'):format(y.dtype,
        info.needs_grad, info.scope, region > 0 and 'in one' or 'none', timing, tonumber(C.wn_debug_get 'replay'),
        tostring(require('wane.program').is_planning()))
end

-- Does what a script may do beside a coroutine: all of it must work, and give the numbers that it always gives.
local function beside()
    w.grad = nil
    wane.manual_seed(11)
    local y = (x:matmul(w)):gelu()
    local random = wane.rand(3):totable()
    y:sum():backward { again = true }
    local text = { modes(), y:sum():item(), w.grad:sum():item(), unpack(random) }
    text[#text + 1] = wane.plan(function() return (model(x) ^ 2):mean() end).recomputed
    w.grad = nil
    for k, v in ipairs(text) do text[k] = tostring(v) end
    return table.concat(text, ' ')
end

local function start(kind, at)
    local co = create(function() return kind[2](at) end)
    return co, resume(co)
end

for _, kind in ipairs(kinds) do
    describe('a coroutine in ' .. kind[1], function()
        local usual, wanted
        local profile = require 'wane.plan.costs.profile'
        local judge = profile.judge

        before_each(function()
            profile.judge = function() end -- other work on the machine would let it call the function more often
            usual = beside()
            wane.manual_seed(1)
            wanted = kind[2](function() end)
        end)
        after_each(function() profile.judge = judge end)

        it('that yields and is dropped leaves nothing behind', function()
            local outside = modes()
            local co, ok, why = start(kind, function() yield 'here' end)
            assert(ok, why)
            assert.equal('here', why)
            assert.equal(outside, modes()) -- the first op after it
            assert.equal(usual, beside())
            assert.equal('suspended', status(co))
            co = nil -- luacheck: ignore 311
            collectgarbage()
            assert.equal(usual, beside())
        end)

        it('that yields at every call goes on as if it had not, whatever ran beside it', function()
            local inside, seen = {}, {}
            wane.manual_seed(1)
            local counter = C.wn_here().counter
            kind[2](function() inside[#inside + 1] = modes() end)
            wane.manual_seed(1)
            C.wn_counter_set(counter)
            local co, ok, result = start(kind, function()
                seen[#seen + 1] = modes()
                yield()
                assert.equal(seen[#seen], modes())
            end)
            while ok and status(co) == 'suspended' do
                assert.equal(usual, beside())
                wane.manual_seed(1)
                ok, result = resume(co)
            end
            assert(ok, tostring(result) .. tostring(wane.scoped.traceback_of(result)))
            assert.equal(#inside, #seen)
            assert.equal(tostring(wanted), tostring(result))
            assert.equal(usual, beside())
        end)

        it('that fails after it was resumed hands on its error, and leaves nothing behind', function()
            local mark = setmetatable({}, { __tostring = function() return 'mark' end })
            local co, ok, why = start(kind, function()
                yield()
                error(mark, 0)
            end)
            assert(ok, why)
            assert.equal(usual, beside())
            ok, why = resume(co)
            assert(not ok)
            assert(why == mark or tostring(why):find 'mark', tostring(why))
            assert.equal(usual, beside())
        end)

        it('and another in another scope do not meet, in whatever order they end', function()
            local outside = modes()
            local first = start(kind, function() yield() end)
            local second = create(function()
                wane.no_grad(function()
                    wane.autocast('bf16', function()
                        local before = modes()
                        yield()
                        assert.equal(before, modes())
                    end)
                    local before = modes()
                    yield()
                    assert.equal(before, modes())
                end)
            end)
            assert(resume(second))
            repeat
                assert(resume(first))
                assert.equal(outside, modes())
                if status(second) == 'suspended' then assert(resume(second)) end
            until status(first) == 'dead'
            while status(second) == 'suspended' do assert(resume(second)) end
            assert.equal(usual, beside())
        end)
    end)
end

describe('scopes and coroutines', function()
    it('what is recorded between a yield in no_grad and its end needs gradients, if nothing else was done', function()
        local co = create(function() wane.no_grad(function() yield() end) end)
        assert(resume(co))
        local y = x:matmul(w)
        assert(resume(co))
        assert.equal(1, tensor.info(y).needs_grad)
        y:sum():backward()
        assert(w.grad)
    end)

    it('a generator in no_grad gives results without gradients, and the loop around it trains', function()
        local results = coroutine.wrap(function()
            wane.no_grad(function() for i = 1, 3 do yield(model(x) * i) end end)
        end)
        for y in results do
            assert.equal(0, tensor.info(y).needs_grad)
            optimizer:step((x:matmul(w)):sum() + y:sum())
        end
    end)

    it('a coroutine started in a scope records in it, and not when it is resumed outside', function()
        local seen = {}
        local co = create(function()
            for k = 1, 3 do
                seen[k] = tensor.info(x * w).needs_grad
                yield()
            end
        end)
        wane.no_grad(function() assert(resume(co)) end)
        assert(resume(co))
        wane.no_grad(function() assert(resume(co)) end)
        assert.same({ 0, 1, 0 }, seen)
    end)

    it('a scope entered in a scope of the coroutine that resumed it holds within both', function()
        local inner, outer
        local function both() return modes():match '^%S+ gradient %d' end
        outer = create(function()
            wane.no_grad(function()
                inner = create(function()
                    wane.autocast('bf16', function()
                        assert.equal('bf16 gradient 0', both())
                        yield()
                        assert.equal('bf16 gradient 1', both()) -- resumed by the script, outside no_grad
                        yield()
                        assert.equal('bf16 gradient 0', both())
                    end)
                end)
                assert(resume(inner))
                assert.equal('f32 gradient 0', both())
                yield()
                assert(resume(inner))
                assert.equal('f32 gradient 0', both())
            end)
        end)
        assert(resume(outer))
        assert.equal('f32 gradient 1', both())
        assert(resume(inner))
        assert.equal('f32 gradient 1', both())
        assert(resume(outer))
        assert.equal('dead', status(inner))
        assert.equal('f32 gradient 1', both())
    end)

    it('a coroutine that a forward started and left in a module is out of it when the forward ends', function()
        local outside, outer, inner = modes(), nn.module('Outer', function() end), nn.module('Inner', function() end)
        local co
        function inner.forward(_, v)
            yield()
            return v * 3
        end
        function outer.forward(_, v)
            co = create(function() return inner()(v) end)
            assert(resume(co))
            return v * 2
        end
        outer()(x)
        assert.equal(outside, modes())
        local ok, y = resume(co)
        assert(ok, y)
        assert.equal(outside, modes())
        assert.equal((x * 3):sum():item(), y:sum():item())
    end)

    it('a generator of batches outside of scopes costs an op nothing', function()
        local batches = coroutine.wrap(function() for i = 1, 3 do yield(wane.eval(x * i)) end end)
        for batch in batches do
            assert.equal(false, wane.scoped.watch.on)
            optimizer:step(batch:matmul(w):sum())
        end
        assert.equal(false, wane.scoped.watch.on)
    end)

    it('a program that another one overtook is refused where a state it reads has changed', function()
        local co = create(function()
            (x:matmul(w)):gelu():sum():backward { policy = function() yield() return 'save' end }
        end)
        assert(resume(co))
        w:assign(w * 2)
        local ok, why = resume(co)
        assert(not ok)
        assert(tostring(why):find 'has changed since', tostring(why))
        assert.equal(1, tensor.info(x:matmul(w)).needs_grad)
    end)
end)
