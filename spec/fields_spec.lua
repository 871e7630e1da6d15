-- Checks what a field of a module may hold: parameters and buffers are found wherever they lie and whenever they came,
-- a leaf that no optimizer would see is refused; and what fields and types may be called.
require 'spec.helper'
local wane = require 'wane'
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
