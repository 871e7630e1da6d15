-- Compares gelu in the form with tanh with plain Lua arithmetic in double precision, values and slopes.
require 'spec.helper'
local wane = require 'wane'
local nn = wane.nn

local NUMBERS = { -30, -3, -1, -0.25, 0, 1e-3, 0.5, 2, 4, 30 }
local K = math.sqrt(2 / math.pi)

local function gelu(x)
    return 0.5 * x * (1 + math.tanh(K * (x + 0.044715 * x ^ 3)))
end

local function slope(x)
    local t = math.tanh(K * (x + 0.044715 * x ^ 3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * K * (1 + 3 * 0.044715 * x * x)
end

describe('gelu with tanh', function()
    it('has the values and slopes of its formula in every dtype', function()
        for dtype, tolerance in pairs { f64 = 1e-13, f32 = 2e-6, bf16 = 0.01 } do
            local x = nn.Parameter(wane.tensor(NUMBERS, { dtype = dtype }))
            local y = nn.GELU({ approximate = 'tanh' })(x)
            assert.equal(dtype, y.dtype)
            local got = y:totable()
            y:sum():backward()
            local slopes = x.grad:totable()
            for k, v in ipairs(NUMBERS) do
                assert.is_true(math.abs(gelu(v) - got[k]) <= tolerance * math.max(1, math.abs(v)), dtype .. ' ' .. v)
                assert.is_true(math.abs(slope(v) - slopes[k]) <= tolerance * 2, dtype .. ' slope ' .. v)
            end
        end
    end)

    it('is a form of nn.GELU, of nn.MLP and of the method, and nothing else is', function()
        wane.manual_seed(2)
        local m = nn.MLP(4, 8, { act = 'gelu_tanh' })
        local x = wane.randn(3, 4):retain()
        assert.equal(0, (m(x) - m.down(m.up(x):gelu 'tanh')):abs():max():item())
        assert.equal(0, (x:gelu 'none' - x:gelu()):abs():max():item())
        assert.is_true((x:gelu 'tanh' - x:gelu()):abs():max():item() > 0)
        for _, form in ipairs { 'tan', true } do
            local ok, e = pcall(form == true and nn.GELU or x.gelu, form == true and { approximate = form } or x, form)
            assert.is_false(ok)
            assert.is_truthy(e.message:find("'none' or 'tanh'", 1, true), e.message)
        end
    end)
end)
