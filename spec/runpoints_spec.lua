-- Checks run points: what a read keeps, what a backward leaves behind, which graphs are spent, and that an error during
-- recording changes nothing. Values are small integers or computed by hand, so equality is equality of bits.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'

local nn, optim = wane.nn, wane.optim
local C = binding.C

local function bits(...)
    return table.concat(programs.bytes { ... }, '|')
end

local function fails(code, fn, ...)
    local arguments = { ... }
    return helper.refused(code, function() fn(unpack(arguments)) end)
end

-- Returns the modes of the programs that run while fn does.
local function modes(fn)
    local list = {}
    scoped('listen', function(p) list[#list + 1] = p.request.mode end, fn)
    return list
end

-- Returns how often each op is issued in the programs that run while fn does.
local function issues(fn)
    local count = {}
    scoped('listen', function(p)
        for _, step in ipairs(programs.schedule(p)) do
            for op in (step.what == 'run' and step.op or ''):gmatch('[^+]+') do -- fused: 'linear+relu'
                count[op] = (count[op] or 0) + 1
            end
        end
    end, fn)
    return count
end

local function weight(values)
    return nn.Parameter(wane.tensor(values))
end

describe('a read', function()
    it('keeps only what was read', function()
        local x = wane.tensor { 1, -2, 3 }
        local h = x:relu()
        local y = h:exp()
        for _ = 1, 4 do collectgarbage() end -- or what earlier specs left goes in between
        local before = wane.memory().allocated
        y:totable()
        assert.equal(before + 256, wane.memory().allocated)
        local ran = modes(function() h:totable() end)
        assert.same({ 'eval' }, ran)
    end)

    it('of the loss after the step is free', function()
        local w = weight { 1, 2, 3 }
        local opt = optim.SGD({ w }, { lr = 0.5 })
        local loss = (w * wane.tensor { 1, 1, 2 }):sum()
        opt:step(loss)
        local value
        local ran = modes(function() value = loss:item() end)
        assert.same({}, ran)
        assert.equal(9, value)
        assert.same({ 0.5, 1.5, 2 }, w:totable())
    end)

    it('of a value that was no result, after its parameter changed, is the error that says what to do', function()
        local model = nn.Sequential { nn.Linear(3, 2), nn.ReLU() }
        local opt = optim.SGD(model:parameters(), { lr = 0.5 })
        local h = model(wane.ones(1, 3))
        opt:step(h:sum() + 1e3)
        local line = debug.getinfo(1, 'l').currentline + 1
        local e = fails('stale', function() h:totable() end)
        assert.is_truthy(e.message:find('weight', 1, true) or e.message:find('bias', 1, true), e.message)
        assert.is_truthy(e.message:find(':retain()', 1, true), e.message)
        assert.is_truthy(e.where:find('runpoints_spec.lua:' .. line, 1, true), e.where)
        -- Reading it stays an error, and everything else goes on.
        fails('stale', function() h:sum():item() end)
        opt:step(model(wane.ones(1, 3)):sum() + 1e3)
    end)

    it('of a stale value lets go of what it was made of', function()
        local w = weight { 1, 2, 3 }
        local opt = optim.SGD({ w }, { lr = 1 })
        local function inputs()
            for _ = 1, 4 do collectgarbage() end
            return wane.memory().kinds.input
        end
        w:totable()
        local before = inputs()
        local data = wane.tensor { 4, 5, 6 }
        local h = w * data
        opt:step(h:sum())
        data = nil
        assert.is_nil(data)
        assert.equal(before + 256, inputs()) -- h may still be asked for
        fails('stale', function() h:totable() end)
        assert.equal(before, inputs()) -- it can only raise
        fails('stale', function() h:totable() end)
    end)

    it('of a retained value works after the step, and is the value of before', function()
        local w = weight { 1, 2, 3 }
        local opt = optim.SGD({ w }, { lr = 1 })
        local h = (w * 2):retain()
        opt:step(h:sum())
        assert.same({}, modes(function() assert.same({ 2, 4, 6 }, h:totable()) end))
        assert.same({ -1, 0, 1 }, w:totable())
        assert.same({ -2, 0, 2 }, (w * 2):totable())
    end)

    it('of a gradient recorded with wane.grad changes no cell', function()
        local w = weight { 3, 4 }
        local g = wane.grad((w * w):sum(), w)
        assert.same({ 6, 8 }, g:totable())
        assert.is_nil(w.grad)
    end)
end)

describe('backward', function()
    it('with again = true accumulates', function()
        local w = weight { 2, 3 }
        local loss = (w * w):sum()
        loss:backward { again = true }
        assert.same({ 4, 6 }, w.grad:totable())
        loss:backward { again = true }
        assert.same({ 8, 12 }, w.grad:totable())
        loss:backward()
        assert.same({ 12, 18 }, w.grad:totable())
        fails('twice', function() loss:backward() end)
    end)

    it('of two roots on one trunk issues the trunk again, and adds', function()
        local w = weight { 1, -2, 3 }
        local trunk = (w * wane.tensor { 2, 2, 2 }):relu()
        local l1, l2 = trunk:sum(), (trunk * trunk):sum()
        local count = issues(function()
            l1:backward()
            assert.same({ 2, 0, 2 }, w.grad:totable())
            l2:backward()
        end)
        assert.equal(2, count.relu)
        assert.same({ 2 + 8, 0, 2 + 24 }, w.grad:totable())
        assert.equal(8, l1:item())
        assert.equal(40, l2:item())
    end)

    it('of a list is one pass, the trunk once, and the sum', function()
        local w = weight { 1, -2, 3 }
        local trunk = (w * wane.tensor { 2, 2, 2 }):relu()
        local l1, l2 = trunk:sum(), (trunk * trunk):sum()
        local count = issues(function() wane.backward { l1, l2 } end)
        assert.equal(1, count.relu)
        assert.same({ 2 + 8, 0, 2 + 24 }, w.grad:totable())
        assert.equal(8, l1:item())
        assert.equal(40, l2:item())
        fails('twice', function() l2:backward() end)
    end)

    it('through a root that was used up is the error that names the way out', function()
        local w = weight { 1, 2 }
        local loss = (w * w):sum()
        local more = loss * 2
        loss:backward()
        local e = fails('spent', function() more:backward() end)
        assert.is_truthy(e.message:find('again', 1, true), e.message)
        assert.equal(10, more:item())
        assert.same({ 2, 4 }, w.grad:totable())
    end)

    it('is refused for what is recorded on a used-up root later, but not for its number or under detach', function()
        local w, v = weight { 1, 2 }, weight { 3, 4 }
        local loss = (w * w):sum()
        loss:backward()
        local scaled = loss * 2
        fails('spent', function() scaled:backward() end)
        fails('spent', function() (scaled * v):sum():backward() end)
        assert.equal(10, scaled:item())
        local mean = loss:detach() * 0.5
        ;(mean * v):sum():backward()
        assert.same({ 2.5, 2.5 }, v.grad:totable())
    end)
end)

describe('a node issued by three programs', function()
    local warned, stderr
    before_each(function()
        wane.lines(true)
        warned, stderr = {}, io.stderr
        C.wn_warning()
        -- luacheck: push ignore 122
        io.stderr = { write = function(_, ...) warned[#warned + 1] = table.concat { ... } end }
        -- luacheck: pop
    end)
    after_each(function()
        io.stderr = stderr -- luacheck: ignore 122
        wane.lines(false)
    end)

    it('warns once, with its line and :retain()', function()
        local x = wane.tensor { 1, 2 }
        local line = debug.getinfo(1, 'l').currentline + 1
        local trunk = x:exp()
        for k = 1, 6 do
            local y = trunk * k
            y:totable()
            if k < 3 then assert.equal(0, #warned) end
        end
        assert.equal(1, #warned)
        assert.is_truthy(warned[1]:find('runpoints_spec.lua:' .. line, 1, true), warned[1])
        assert.is_truthy(warned[1]:find('exp', 1, true), warned[1])
        assert.is_truthy(warned[1]:find(':retain()', 1, true), warned[1])
    end)

    it('does not when it is a result or was retained', function()
        local x = wane.tensor { 1, 2 }
        local read, kept = x:exp(), x:sqrt():retain()
        for k = 1, 6 do
            read:totable()
            local y = kept * k
            y:totable()
        end
        assert.same({}, warned)
    end)
end)

describe('recording', function()
    it('refuses a chain of 100,000 applications nobody ran, at its line', function()
        local x = wane.ones(2)
        local y = x
        local line = debug.getinfo(1, 'l').currentline + 2
        local e = fails('value', function()
            for _ = 1, 100001 do y = y + x end
        end)
        assert.is_truthy(e.message:find('100000', 1, true), e.message)
        assert.is_truthy(e.where:find('runpoints_spec.lua:' .. line, 1, true), e.where)
        -- Everything recorded before it still runs: 99,999 or 100,000 additions of one.
        local value = y:totable()
        assert.is_true(value[1] >= 99999 and value[1] <= 100001, tostring(value[1]))
        assert.equal(value[1], value[2])
    end)

    local function standing()
        local here = C.wn_here()
        return { here.scope, here.region, here.grad }
    end

    it('goes on where it stood after an error inside module, region and no_grad', function()
        local Inner = nn.module 'Inner'
        local seen
        function Inner.forward(_, x)
            seen = standing()
            return x:matmul(wane.ones(5, 5))
        end
        local Outer = nn.module('Outer', function(self) self.inner = Inner() end)
        function Outer:forward(x)
            return wane.checkpoint(function() return wane.no_grad(function() return self.inner(x) end) end)
        end
        local model = Outer()
        local before = standing()
        local counter = tonumber(C.wn_here().counter)
        local e = fails('shape', function() model(wane.ones(2, 3)) end)
        assert.is_truthy(e.message:find('(2, 3)', 1, true) and e.message:find('(5, 5)', 1, true), e.message)
        assert.is_true(seen[1] ~= before[1] and seen[2] ~= before[2] and seen[3] == 0)
        assert.same(before, standing())
        assert.equal(counter, tonumber(C.wn_here().counter))
        assert.same({ { 5, 5, 5, 5, 5 } }, model(wane.ones(1, 5)):totable())
    end)

    it('computes in the order of recording, however far apart nodes were recorded', function()
        local function order(between)
            local ops, x = {}, wane.eval(wane.ones(2, 2))
            local a = x:exp()
            for _ = 1, between do x:neg() end
            local b, c = x:sin(), x:tanh()
            for _ = 1, between do x:neg() end
            local y = c:matmul(b) * a:matmul(x:sqrt())
            scoped('listen', function(p)
                for _, s in ipairs(programs.schedule(p)) do
                    if s.what == 'run' then ops[#ops + 1] = s.op end
                end
            end, wane.eval, y)
            return table.concat(ops, ' ')
        end
        assert.equal('exp sin tanh matmul sqrt matmul mul', order(0))
        assert.equal(order(0), order(3))
        assert.equal(order(0), order(500))
    end)

    it('rethrows the very same error object through module, region and no_grad', function()
        local mine = setmetatable({}, { __tostring = function() return 'mine' end })
        local Failing = nn.module 'Failing'
        function Failing.forward() error(mine) end
        local inner = Failing()
        local model = nn.Sequential { nn.Identity(), inner }
        local before = standing()
        local e = helper.refused(nil, function()
            return wane.checkpoint(function() return wane.no_grad(function() return model(wane.ones(2)) end) end)
        end)
        assert.is_true(rawequal(e, mine))
        assert.same(before, standing())
        assert.is_truthy(scoped.traceback_of(mine):find('runpoints_spec.lua', 1, true))
    end)

    it('leaves gradients, parameters and a half recorded loss usable after a bad op', function()
        local w = weight { 1, 2 }
        local loss = (w * 3):sum()
        fails('shape', function() return loss:reshape(7) end)
        fails('value', function() return w:sumn() end)
        fails('value', function() return w < loss end)
        loss:backward()
        assert.same({ 3, 3 }, w.grad:totable())
    end)
end)

describe('an interrupt', function()
    after_each(function() C.wn_interrupt(0) end)

    it('is honoured before the first effect: nothing was changed, and the same value goes on after it', function()
        wane.manual_seed(4)
        local w = weight { 1, 2 }
        local opt = optim.SGD({ w }, { lr = 1 })
        opt:step((w * 2):sum())
        assert.same({ -1, 0 }, w:totable())
        local loss = (w * w):sum()
        C.wn_interrupt(1)
        for _, run in ipairs {
            function() loss:item() end, function() loss:backward() end, function() opt:step(loss) end,
            function() w:assign(w * 5) end,
        } do
            fails('interrupt', run)
        end
        C.wn_interrupt(0)
        assert.is_nil(w.grad)
        assert.same({ -1, 0 }, w:totable())
        opt:step(loss)
        assert.same({ 1, 0 }, w:totable())
        assert.equal(1, loss:item())
    end)

    it('at the very first run gives the first values back, and they are the same later', function()
        local function make()
            wane.manual_seed(4)
            return nn.Linear(6, 6)
        end
        local expected = make()
        wane.eval(unpack(expected:parameters()))
        local model = make()
        for _ = 1, 4 do collectgarbage() end
        local before = wane.memory().allocated
        C.wn_interrupt(1)
        fails('interrupt', function() model(wane.ones(1, 6)):sum():backward() end)
        C.wn_interrupt(0)
        assert.equal(before, wane.memory().allocated)
        model(wane.ones(1, 6)):sum():backward()
        assert.equal(bits(unpack(expected:parameters())), bits(unpack(model:parameters())))
    end)
end)

describe('a program', function()
    it('has nothing of the request before, be it longer or shorter', function()
        local function train(other)
            wane.manual_seed(8)
            local models, opts = {}, {}
            for k = 1, 3 do
                models[k] = nn.Sequential {}
                for _ = 1, 4 ^ k do models[k]:add(nn.Linear(2, 2)) end
                opts[k] = optim.SGD(models[k]:parameters(), { lr = 0.1, clip_norm = k == 2 and 0.1 or nil })
            end
            local x, seen = wane.ones(1, 2):retain(), {}
            for _, k in ipairs { 1, 3, 1, 2, 3 } do
                if other then other(models[k], x) end
                local loss = models[k](x):sum()
                opts[k]:step(k == 1 and { loss, models[k](x * 2):sum() } or loss)
                seen[#seen + 1] = bits(unpack(models[k]:parameters()))
            end
            return seen
        end
        local want = train()
        assert.same(want, train(function(m, x)
            local w = m:parameters()[1]
            w:assign(w * 1)
            m(x):sum():backward { scale = 0.5, again = true }
            m:zero_grad()
            wane.eval(m(x), m(x * 3))
        end))
    end)

    it('has one device: values of two do not meet', function()
        local here, there = wane.ones(2), wane.ones(2, { device = 'meta' })
        local e = fails('device', function() return here + there end)
        assert.is_truthy(e.message:find('cpu', 1, true) and e.message:find('meta', 1, true), e.message)
        fails('device', wane.eval, here * 2, there * 2)
        assert.same({ 2, 2 }, (here * 2):totable())
    end)

    it('refuses a value that was freed, and does not read it', function()
        local x = wane.tensor { 1, 2, 3 }
        local w = weight { 1, 1, 1 }
        local y, loss = x * 2, (w * x):sum()
        x:free()
        fails('stale', function() y:totable() end)
        fails('stale', function() loss:backward() end)
        assert.is_nil(w.grad)
        assert.same({ 1, 1, 1 }, w:totable())
    end)
end)
