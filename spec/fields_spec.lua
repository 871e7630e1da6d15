-- Checks what a field of a module may hold: parameters and buffers are found wherever they lie and whenever they came,
-- a leaf that no optimizer would see is refused; and what fields and types may be called. Then what the call of a
-- module leaves: the scope of what is recorded after an error that a forward caught, and as many results as there are.
require 'spec.helper'
local wane = require 'wane'
local module = require 'wane.module'
local tensor = require 'wane.tensor'
local nn = wane.nn

describe('a tensor in a field of a module', function()
    local Holder = nn.module('Holder', function(self) self.bias = false end)

    local function refused(fn, ...)
        local ok, e = pcall(fn)
        assert.is_false(ok)
        assert.equal('value', e.code)
        for _, text in ipairs { ... } do assert.is_truthy(e.message:find(text, 1, true), e.message) end
    end

    it('is refused when it is a leaf with requires_grad, wherever it lies and whenever it became one', function()
        local m = Holder()
        refused(function() m.w = wane.zeros(2, { requires_grad = true }) end, 'Holder.w', 'nn.Parameter(t)')
        assert.is_nil(rawget(m, 'w'))
        m.list = { deep = { wane.zeros(2, { requires_grad = true }) } }
        for _, ask in ipairs { 'parameters', 'state_dict', 'buffers' } do
            refused(function() m[ask](m) end, 'Holder.list.deep.1')
        end
        m.list.deep[1].requires_grad = false
        assert.equal(0, #m:parameters())
        m.bias = wane.zeros(2, { requires_grad = true })
        refused(function() Holder.parameters(m) end, 'Holder.bias')
        m.bias = nn.Parameter(m.bias)
        assert.equal(1, #m:parameters())
    end)

    it('may be a constant, a result that needs a gradient, a gradient, or freed', function()
        local m, p = Holder(), nn.Parameter(wane.ones(2))
        local y = p * 2
        y:sum():backward()
        m.constant, m.result, m.gradient, m.gone = wane.ones(2), y, p.grad, wane.ones(2):retain()
        m.gone:free()
        assert.equal(0, #m:parameters())
        m.result = p
        assert.equal(p, m:parameters()[1])
    end)

    it('is a parameter also where the field first held something else', function()
        local m = Holder()
        m.gain = nn.Parameter(wane.ones(2))
        m.bias = nn.Parameter(wane.zeros(2))
        m.gain = nn.Linear(2, 3)
        local names = {}
        for name in m:named_parameters() do names[#names + 1] = name end
        assert.same({ 'bias', 'gain.weight', 'gain.bias' }, names)
    end)
end)

describe('a name of a module, whatever its length,', function()
    it('works, or is refused where it is given', function()
        for _, n in ipairs { 1, 300, 400, 401, 480, 481, 10000 } do
            local long = ('n'):rep(n)
            local made, Long = pcall(nn.module, long, function(self) self.inner = nn.Linear(2, 2) end)
            assert.equal(n <= 400, made)
            if made then
                function Long:forward(x) return self.inner(x) end
                local a, b, x = Long(), Long(), wane.ones(1, 2) -- the second is called NAME_2
                assert.equal(2, #(a(x) + b(x)):totable()[1])
            else
                assert.matches('nn.module: a type name of ' .. n .. ' letters %(nnn', Long.message)
            end
            local holder = nn.Sequential { nn.ReLU() }
            local kept, why = pcall(function() holder[long] = { nn.Linear(2, 2) } end)
            assert.equal(n <= 400, kept)
            if kept then assert.equal(2, #holder:parameters())
            else assert.matches('Sequential: a field of ' .. n .. ' letters', why.message) end
        end
    end)
end)

describe('a forward', function()
    -- Returns a chain of n modules, each in the one before as `inner`. at: depth -> function(module, x) in its forward.
    local function nested(n, at)
        local Level = nn.module('Level', function(self, k) self.k = k end)
        function Level:forward(x)
            if at[self.k] then return at[self.k](self, x) end
            return self.inner(x) + 1
        end
        local first = Level(1)
        local last = first
        for k = 2, n do
            last.inner = Level(k)
            last = last.inner
        end
        return first
    end

    local function scope_of(t)
        local info = module.of_scope(tensor.info(t).scope)
        return info and info.path
    end

    local CAUSES = {
        { 'an error of Wane', function(x) return x:matmul(wane.ones(5, 5)) end },
        { 'a text', function() error 'stop' end },
        { 'a text without a place', function() error('stop', 0) end },
        { 'an object', function() error { code = 'mine' } end },
        { 'a fault of Lua', function(x) return x + x.missing.field end },
    }
    local CATCHERS = {
        { 'pcall', function(m, x) return pcall(m, x) end },
        { 'xpcall', function(m, x) return xpcall(function() return m(x) end, function(e) return e end) end },
        { 'a coroutine', function(m, x) return coroutine.resume(coroutine.create(function() return m(x) end)) end },
    }

    for _, cause in ipairs(CAUSES) do
        for _, catcher in ipairs(CATCHERS) do
            it(('records in the module that caught %s by %s, at any depth'):format(cause[1], catcher[1]), function()
                local N, x, scopes = 4, wane.ones(2, 3), {}
                for depth = 1, N - 1 do
                    local at = { [N] = function(_, v) return cause[2](v) end }
                    at[depth] = function(self, v)
                        local ok, e = catcher[2](self.inner, v)
                        assert.is_false(ok)
                        scopes.message = tostring(e)
                        scopes.after = scope_of(v + 1)
                        at[N] = function(_, w) return w * 2 end
                        local y = self.inner(v)
                        scopes.inner = depth == N - 1 and scope_of(y) or nil
                        return y - 1
                    end
                    local model, path = nested(N, at), ('.inner'):rep(depth - 1):sub(2)
                    wane.eval(x + 0) -- the next model is the first of its program, whose path is ''
                    for _ = 1, 70 do -- so that LuaJIT compiles some of it
                        at[N] = function(_, v) return cause[2](v) end
                        local y = model(x)
                        assert.equal(path, scopes.after)
                        if depth == N - 1 then assert.equal('inner.inner.inner', scopes.inner) end
                        if cause[1] == 'a text' then
                            assert.is_truthy(scopes.message:find('[in inner.inner.inner (Level)]', 1, true),
                                scopes.message)
                        end
                        assert.is_nil(scope_of(x + 1))
                        assert.same({ 2, 3 }, { unpack(y.shape) })
                    end
                end
            end)
        end
    end

    it('returns what a forward returns, as many results as it does, compiled or not', function()
        local Gives = nn.module 'Gives'
        function Gives.forward(_, n, ...)
            if n == 0 then return end
            return select(-n, ...)
        end
        local Around = nn.module('Around', function(self) self.inner = Gives() end)
        function Around:forward(...) return self.inner(...) end
        local model = Around()
        for turn = 1, 300 do
            for n = 0, 6 do
                assert.equal(n, select('#', model(n, 1, nil, 3, turn, nil, nil)))
                local got = { model(n, 1, nil, 3, turn, nil, nil) }
                local want = { 1, nil, 3, turn, nil, nil }
                for k = 1, n do assert.equal(want[6 - n + k], got[k]) end
            end
        end
    end)
end)
