-- Compares gradients that a definition leaves open (kinks, bounds, ties, NaN), and RMSNorm in bf16, with PyTorch's
-- numbers (spec/fixtures/torch_gradients.py); gelu in the form with tanh, and variance and deviation of numbers that
-- are far from 0, with plain arithmetic in f64; and dims without elements with what PyTorch gives.
local helper = require 'spec.helper'
local wane = helper.wane
local gradcheck = require 'spec.support.gradcheck'
local fixture = require 'spec.fixtures.torch_gradients'
local nn, record = wane.nn, require('wane.tensor.op').record

local nan, inf = 0 / 0, 1 / 0
local SCALARS = { -inf, -1, -0.5, -0.0, 0, 0.5, 1, inf, nan }
local FIRST = { 1, 2, 2, nan, 1, nan, inf, -0.0, -inf }
local SECOND = { 2, 1, 2, 1, nan, nan, inf, 0, -inf }
local ROWS = { { 1, 2, 2 }, { nan, 1, 2 }, { nan, nan, 3 }, { inf, inf, 1 } }

local function state(list, dtype) return wane.nn.Parameter(wane.tensor(list, { dtype = dtype })) end

-- Returns nil, or which element differs; NaN equals NaN here and nothing else.
local function differ(have, want)
    assert(#have == #want and #want > 0, ('%d numbers, expected %d'):format(#have, #want))
    for k = 1, #want do
        local same = have[k] == want[k] or (have[k] ~= have[k] and want[k] ~= want[k])
        if not same then return ('element %d is %g, expected %g'):format(k, have[k], want[k]) end
    end
end

-- Returns the gradients of sum(f(x, y and so on)), as flat lists.
local function slopes(f, dtype, ...)
    local states = {}
    for k, list in ipairs { ... } do states[k] = state(list, dtype) end
    f(unpack(states)):sum():backward()
    local out = {}
    for k, t in ipairs(states) do out[k] = gradcheck.values(t.grad:to 'f64') end
    return out
end

local function assert_slopes(name, f, dtype, ...)
    for k, have in ipairs(slopes(f, dtype, ...)) do
        local want = fixture.slopes[select('#', ...) > 1 and name .. '_' .. k or name]
        if dtype ~= 'f64' and name:find '_all$' then -- a third, rounded
            for j, v in ipairs(want) do
                if math.abs(have[j] - v) < 2e-3 then have[j] = v end
            end
        end
        local wrong = differ(have, want)
        assert(not wrong, ('%s, %s, input %d: %s'):format(name, dtype, k, tostring(wrong)))
    end
end

-- Returns the list 99 times over: past every vector, so that no tail's formula differs from the others.
local function many(list)
    local out = {}
    for k = 1, 99 * #list do out[k] = list[(k - 1) % #list + 1] end
    return out
end

local UNARY = {
    relu = function(x) return x:relu() end,
    abs = function(x) return x:abs() end,
    clamp = function(x) return x:clamp(-0.5, 0.5) end,
    clamp_low = function(x) return x:clamp(-0.5, nil) end,
    clamp_high = function(x) return x:clamp(nil, 0.5) end,
    clamp_point = function(x) return x:clamp(0.5, 0.5) end,
}

describe('the gradient at kinks, bounds, infinities and NaN is PyTorch\'s:', function()
    for name, f in pairs(UNARY) do
        it(name, function()
            for _, dtype in ipairs { 'f32', 'bf16', 'f64' } do
                assert_slopes(name, f, dtype, SCALARS)
                local wrong = differ(slopes(f, dtype, many(SCALARS))[1], many(fixture.slopes[name]))
                assert(not wrong, ('%s, %s, many: %s'):format(name, dtype, tostring(wrong)))
            end
        end)
    end

    it('of maximum and minimum of two values', function()
        for _, dtype in ipairs { 'f32', 'bf16', 'f64' } do
            for _, name in ipairs { 'maximum', 'minimum' } do
                assert_slopes(name, function(a, b) return record(name, { a, b }) end, dtype, FIRST, SECOND)
            end
        end
    end)

    it('of max and min of everything, of rows and of columns', function()
        for _, dtype in ipairs { 'f32', 'bf16', 'f64' } do
            for _, name in ipairs { 'max', 'min' } do
                assert_slopes(name .. '_all', function(x) return x[name](x) end, dtype, ROWS)
                assert_slopes(name .. '_rows', function(x) return x[name](x, 2) end, dtype, ROWS)
                assert_slopes(name .. '_columns', function(x) return x[name](x, 1) end, dtype, ROWS)
                assert_slopes(name .. '_ties', function(x) return x[name](x) end, dtype, { { 1, 3 }, { 3, 1 } })
            end
        end
    end)

    it('of relu, kept as its signs or recomputed, with NaN in it', function()
        local want
        for _, policy in ipairs { 'save_all', 'recompute_all', 'compress:bits' } do
            local x = state(many(SCALARS), 'f32')
            local loss = ((x * 1):relu() * 3):sum()
            loss:backward { policy = policy }
            local bytes = gradcheck.bytes(x.grad)
            want = want or bytes
            assert(bytes == want, policy .. ': other bits')
        end
    end)
end)

-- Returns from + scale sin(k + shift) / 2 for k from 1 to n; `from` is 0 and `scale` is 1 unless given.
local function waves(shift, n, scale, from)
    local out = {}
    for k = 1, n do out[k] = (from or 0) + (scale or 1) * math.sin(k + shift) / 2 end
    return out
end

local function error_of(have, want)
    local d2, r2 = 0, 0
    have, want = gradcheck.values(have:to 'f64'), gradcheck.values(want)
    for k = 1, #want do d2, r2 = d2 + (have[k] - want[k]) ^ 2, r2 + want[k] ^ 2 end
    assert(r2 > 0 and d2 == d2)
    return math.sqrt(d2 / r2)
end

describe('nn.RMSNorm of bf16', function()
    local function make(dtype)
        local norm = wane.nn.RMSNorm(96, { dtype = dtype })
        local function low(list, ...) return wane.tensor(list, { dtype = 'f32' }):reshape(...):to('bf16'):to(dtype) end
        norm.weight:assign(low(waves(0.5, 96, 1, 1), 96))
        local x = wane.nn.Parameter(low(waves(0, 32 * 96, 6), 32, 96))
        local y = norm(x):retain()
        assert.equal(dtype, y.dtype);
        (y * low(waves(0.25, 32 * 96), 32, 96)):sum():backward()
        return y, x.grad, norm.weight.grad
    end

    it('is as near to the exact result and gradients as PyTorch\'s', function()
        local low, exact = { make 'bf16' }, { make 'f64' }
        for k, name in ipairs { 'y', 'dx', 'dw' } do
            local e = error_of(low[k], exact[k])
            -- Measured: equal to 11 digits; the two sums of squares are taken in different orders.
            assert(e <= fixture.rms_norm[name] * (1 + 1e-9),
                ('%s: relative error %.9g, PyTorch has %.9g'):format(name, e, fixture.rms_norm[name]))
        end
    end)
end)

-- ---- gelu with tanh ------------------------------------------------------------------------------------------------

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
            local got_slopes = x.grad:totable()
            for k, v in ipairs(NUMBERS) do
                assert.is_true(math.abs(gelu(v) - got[k]) <= tolerance * math.max(1, math.abs(v)), dtype .. ' ' .. v)
                assert.is_true(math.abs(slope(v) - got_slopes[k]) <= tolerance * 2, dtype .. ' slope ' .. v)
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

-- ---- spreads, and dims without elements ----------------------------------------------------------------------------

local function near(want, t, tolerance) gradcheck.near(want, t, tolerance or 1e-6) end

describe('a spread', function()
    it('is that of the numbers, however far from 0 they are', function()
        assert.equal(2, wane.tensor({ 2 ^ 24, 2 ^ 24 + 2 }):var():item())
        assert.equal(1, wane.tensor({ 2 ^ 24, 2 ^ 24 + 2 }):std({ correction = 0 }):item())
        wane.manual_seed(3)
        for _, row in ipairs { { 1e4, 1e-4 }, { -1e4, 1e-3 }, { 1e6, 0.1 }, { 3, 1e-5 }, { 0, 1 }, { 1e15, 1e10 } } do
            local x = (wane.randn(7, 513) * row[2] + row[1]):retain()
            for _, correction in ipairs { 0, 1 } do
                local want, values = {}, x:totable()
                for r = 1, 7 do
                    local mean, sum = 0, 0
                    for k = 1, 513 do mean = mean + values[r][k] end
                    mean = mean / 513
                    for k = 1, 513 do sum = sum + (values[r][k] - mean) ^ 2 end
                    want[r] = sum / (513 - correction)
                end
                for name, t in pairs { var = x:var(2, { correction = correction }),
                    std = x:std(2, { correction = correction }) ^ 2 } do
                    local have = t:totable()
                    for r = 1, 7 do
                        assert(math.abs(have[r] - want[r]) <= 1e-6 * want[r], ('%s of %g, %g: %.9g, expected %.9g')
                            :format(name, row[1], row[2], have[r], want[r]))
                    end
                end
            end
        end
    end)

    it('has the gradients of its formula, first and second', function()
        local x = wane.tensor({ 1e3, 1e3 + 1, 1e3 + 5 }, { dtype = 'f64', requires_grad = true })
        local g = wane.grad(x:var(), x)
        near({ -2, -1, 3 }, g, 1e-12)
        near({ 2 / 3, -1 / 3, -1 / 3 }, wane.grad((g * wane.tensor({ 1, 0, 0 }, { dtype = 'f64' })):sum(), x), 1e-12)
    end)
end)

describe('a dim without elements', function()
    it('gives what PyTorch gives', function()
        for _, dims in ipairs { { 0 }, { 2, 0 }, { 0, 3 }, { 2, 0, 3 } } do
            for dim = 1, #dims do
                for _, name in ipairs { 'softmax', 'log_softmax' } do
                    local x = wane.zeros(dims, { requires_grad = true })
                    local y = x[name](x, dim)
                    assert.same(dims, { unpack(y.shape) })
                    y:sum():backward()
                    assert.same(dims, { unpack(x.grad.shape) })
                    assert.equal(0, y:sum():item())
                end
                local y = wane.zeros(dims):logsumexp(dim)
                local want = {}
                for k = 1, y:numel() do want[k] = dims[dim] == 0 and -inf or 0 end
                if y:numel() > 0 then near(want, y:reshape(-1)) end
            end
        end
        assert.equal(-inf, wane.zeros(0):logsumexp():item())
        local norm = wane.nn.GroupNorm(2, 4)
        local x = wane.zeros(0, 4, 3, 3, { requires_grad = true })
        local y = norm(x)
        assert.same({ 0, 4, 3, 3 }, { unpack(y.shape) })
        y:sum():backward()
        near({ 0, 0, 0, 0 }, norm.weight.grad)
        near({ 0, 0, 0, 0 }, norm.bias.grad)
    end)
end)
