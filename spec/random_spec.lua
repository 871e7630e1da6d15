-- Checks random numbers: each is addressed by (seed, number of the node, element) and never streamed. A second Philox,
-- written here in Lua and checked against the published answers, says what every element must be.
require 'spec.helper'
local bit = require 'bit'
local wane = require 'wane'
local binding = require 'wane.ffi'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'

local nn, optim = wane.nn, wane.optim
local C = binding.C

-- ---- Philox4x32-10 in doubles ----------------------------------------------------------------------------------

-- Returns a * b of two 32-bit words: high word, low word.
local function multiply(a, b)
    local a1, a0 = math.floor(a / 65536), a % 65536
    local b1, b0 = math.floor(b / 65536), b % 65536
    local low = a0 * b0
    local middle = a1 * b0 + math.floor(low / 65536)
    local high = a0 * b1 + middle % 65536
    return a1 * b1 + math.floor(middle / 65536) + math.floor(high / 65536), (high % 65536) * 65536 + low % 65536
end

local function xor(...)
    return bit.bxor(...) % 2 ^ 32
end

local function philox(key, counter)
    local k0, k1 = key[1], key[2]
    local c = { counter[1], counter[2], counter[3], counter[4] }
    for _ = 1, 10 do
        local h0, l0 = multiply(0xD2511F53, c[1])
        local h1, l1 = multiply(0xCD9E8D57, c[3])
        c = { xor(h1, c[2], k0), l1, xor(h0, c[4], k1), l0 }
        k0, k1 = (k0 + 0x9E3779B9) % 2 ^ 32, (k1 + 0xBB67AE85) % 2 ^ 32
    end
    return c
end

local function split(n)
    return n % 2 ^ 32, math.floor(n / 2 ^ 32)
end

-- Returns the word of element e (from 0) of the node that took number n under a seed.
local function word(seed, n, e)
    local s0, s1 = split(seed)
    local n0, n1 = split(n)
    local q0, q1 = split(math.floor(e / 4))
    return philox({ s0, s1 }, { q0, q1, n0, n1 })[e % 4 + 1]
end

local function bits(...)
    return table.concat(programs.bytes { ... }, '|')
end

local function next_number()
    return tonumber(C.wn_here().counter)
end

-- Returns the flat list of a tensor's values.
local function flat(t)
    return t:reshape(t:numel()):totable()
end

describe('Philox', function()
    it('gives the answers its authors published', function()
        local f = 0xFFFFFFFF
        for _, case in ipairs {
            { { 0, 0 }, { 0, 0, 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
            { { f, f }, { f, f, f, f }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
            { { 0xa4093822, 0x299f31d0 }, { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
                { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
        } do
            assert.same(case[3], philox(case[1], case[2]))
        end
    end)

    it('is what wane.rand draws from, element by element', function()
        wane.manual_seed(0)
        local first = wane.rand(4):totable()
        for k, w in ipairs { 0x6627e8, 0xe169c5, 0xbc57ac, 0x9b00db } do assert.equal(w / 2 ^ 24, first[k]) end
        for _, seed in ipairs { 0, 1, 42, 2 ^ 32 + 7, 2 ^ 53 - 1 } do
            for _, number in ipairs { 0, 3, 2 ^ 32 - 1, 2 ^ 40 + 5 } do
                wane.manual_seed(seed)
                C.wn_counter_set(number)
                local values = flat(wane.rand(3, 7))
                assert.equal(number + 1, next_number())
                for e = 0, 20 do
                    assert.equal(math.floor(word(seed, number, e) / 256) / 2 ^ 24, values[e + 1])
                end
            end
        end
    end)

    it('makes a range of a value by itself as of the whole, where it begins with a call', function()
        local tensor = require 'wane.tensor'
        local function make(name, dtype, count, first)
            local at = op.attrs()
            at.n, at.dtype, at.i[0], at.i[7], at.f[0], at.f[1] = 1, op.dtype(dtype, 'range'), count, first, -2, 3
            wane.manual_seed(9)
            return tensor.wrap(binding.id(C.wn_record(op.id[name], 0, nil, at, 0)))
        end
        for name, dtypes in pairs { uniform = { 'f32', 'bf16', 'f64' }, normal = { 'f32', 'bf16', 'f64' },
            full = { 'f32', 'i32' }, randint = { 'i32' } } do
            for _, dtype in ipairs(dtypes) do
                local whole = flat(make(name, dtype, 9001, 0):to 'f64')
                for _, range in ipairs { { 4, 1 }, { 4096, 4096 }, { 8192, 809 }, { 9000, 1 } } do
                    local values = flat(make(name, dtype, range[2], range[1]):to 'f64')
                    for k, v in ipairs(values) do assert.equal(whole[range[1] + k], v) end
                end
            end
        end
        for name, first in pairs { uniform = 2, normal = -4, arange = 4 } do
            local ok, e = pcall(make, name, 'f32', 5, first)
            assert.is_false(ok)
            assert.matches(name .. ': elements from ' .. first .. ' of a whole given', tostring(e), 1, true)
        end
    end)

    it('decides what dropout keeps', function()
        for _, p in ipairs { 0.1, 0.5, 0.75 } do
            wane.manual_seed(77)
            C.wn_counter_set(12)
            local layer = nn.Dropout(p)
            local values = flat(layer(wane.ones(1000)))
            local kept = 0
            for e = 0, 999 do
                local keep = word(77, 12, e) < math.floor((1 - p) * 2 ^ 32)
                assert.equal(keep, values[e + 1] ~= 0, 'element ' .. e)
                if keep then kept = kept + 1 end
            end
            assert.is_true(math.abs(kept / 1000 - (1 - p)) < 0.06)
        end
    end)

    it('stays in its limits as randint', function()
        wane.manual_seed(4)
        local seen = {}
        for _, v in ipairs(flat(wane.randint(-3, 4, { 50, 50 }))) do
            assert.is_true(v >= -3 and v < 4 and v % 1 == 0)
            seen[v] = (seen[v] or 0) + 1
        end
        for v = -3, 3 do assert.is_true(math.abs(seen[v] - 2500 / 7) < 100) end
    end)

    -- Returns normal number e of the node that took number n under a seed, and how far it is from 0 at most. The angle
    -- is reduced to an eighth of a turn, for which libm's errors are small.
    local function normal(seed, n, e)
        local first = e - e % 2
        local radius = math.sqrt(-2 * math.log((word(seed, n, first) + 1) / 2 ^ 32))
        local turn = word(seed, n, first + 1)
        local quarter = math.floor((turn + 2 ^ 29) / 2 ^ 30)
        local angle = (turn - quarter * 2 ^ 30) / 2 ^ 32 * 2 * math.pi
        local c, s = math.cos(angle), math.sin(angle)
        local cosines, sines = { c, -s, -c, s }, { s, c, -s, -c }
        return radius * (e % 2 == 0 and cosines or sines)[quarter % 4 + 1], radius
    end

    -- Under the seed 0 the first words of these numbers are 0, 1, 2^32 - 1, or edges of a quarter of a turn.
    it('is what wane.randn makes normal numbers of, in the tails too', function()
        for _, number in ipairs { 748582185, 84170650, 389732782, 3595840031, 2140324976, 4155162198, 7 } do
            wane.manual_seed(0)
            C.wn_counter_set(number)
            for e, value in ipairs(flat(wane.randn(39, { dtype = 'f64' }))) do
                local want, radius = normal(0, number, e - 1)
                assert.is_true(math.abs(value - want) <= 1e-15 * radius,
                    ('%d: %.17g, not %.17g'):format(e, value, want))
            end
        end
    end)

    it('gives in f32 and bf16 what it gives in f64, rounded', function()
        local function draw(name, dtype, n, limits)
            wane.manual_seed(6)
            return op.record(name, {}, { i = { n }, n = 1, f = limits, dtype = op.dtype(dtype, 'spec') })
        end
        for _, limits in ipairs { { 0, 1 }, { 0, 5 }, { 0, 0.3 }, { -0.25, 0.25 }, { 3, 3 }, { 0, 1e-40 },
            { -1e38, 3e38 } } do
            for _, n in ipairs { 1, 39, 640, 1500 } do
                for _, name in ipairs { 'uniform', 'normal' } do
                    local want = draw(name, 'f64', n, limits):to 'f32'
                    local f32, bf16 = draw(name, 'f32', n, limits), draw(name, 'bf16', n, limits)
                    assert.equal(gradcheck.bytes(want), gradcheck.bytes(f32))
                    assert.equal(gradcheck.bytes(want:to 'bf16'), gradcheck.bytes(bf16))
                end
            end
        end
    end)

end)

describe('the seed', function()
    it('gives the same values again, whatever ran in between', function()
        local function draw()
            wane.manual_seed(123)
            local a, b, c = wane.rand(5), wane.randn(3, 3), wane.randint(100, { 9 })
            wane.eval(a, b, c)
            return bits(a, b, c)
        end
        local first = draw()
        wane.rand(1000):sum():item()
        assert.equal(first, draw())
        wane.manual_seed(124)
        local other = wane.rand(5)
        wane.eval(other)
        assert.is_nil(first:find(bits(other), 1, true))
    end)

    it('and the next number are the whole state: both put back, all goes on as before', function()
        wane.manual_seed(8)
        local model, x = nn.Dropout(0.4), wane.ones(100)
        model(x):sum():item()
        local seed, number = C.wn_here().seed, C.wn_here().counter
        local function go_on()
            local a, b = model(x), wane.randn(10)
            local c = model(model(x))
            wane.eval(a, b, c)
            return bits(a, b, c)
        end
        local first = go_on()
        assert.are_not.equal(first, go_on())
        wane.manual_seed(99)
        go_on()
        C.wn_seed(seed)
        C.wn_counter_set(number)
        assert.equal(first, go_on())
    end)
end)

describe('a number', function()
    it('is taken when the node is recorded, not when it runs', function()
        wane.manual_seed(3)
        local a, b = wane.rand(8), wane.rand(8)
        assert.equal(2, next_number())
        wane.eval(b)
        wane.eval(a)
        assert.equal(2, next_number())
        for e = 0, 7 do
            assert.equal(math.floor(word(3, 0, e) / 256) / 2 ^ 24, a:totable()[e + 1])
            assert.equal(math.floor(word(3, 1, e) / 256) / 2 ^ 24, b:totable()[e + 1])
        end
    end)

    it('stays the node\'s own after the seed changed', function()
        wane.manual_seed(3)
        local a = wane.rand(4)
        wane.manual_seed(5)
        assert.equal(math.floor(word(3, 0, 2) / 256) / 2 ^ 24, a:totable()[3])
    end)

    it('is not taken by a node that failed, by a gradient, or by planning', function()
        wane.manual_seed(3)
        local layer = nn.Dropout(0.5)
        local w = nn.Parameter(wane.ones(10))
        assert.equal(0, next_number())
        assert.is_false(pcall(wane.rand, -1))
        assert.equal(0, next_number())
        local loss = layer(w):sum()
        assert.equal(1, next_number())
        loss:backward()
        assert.equal(1, next_number())
        local plan = wane.plan(function() return layer(layer(w)):sum() end)
        assert.is_true(plan.peak > 0)
        assert.equal(1, next_number())
    end)

end)

describe('a mask', function()
    local function gradient_of(policy)
        wane.manual_seed(31)
        local w = nn.Parameter(wane.ones(6, 40))
        local layer = nn.Dropout(0.5)
        local y
        local loss = wane.checkpoint(function(v)
            y = layer(v)
            return (y * y):sum()
        end, w)
        if policy == nil then y:retain() end
        loss:backward { policy = policy }
        return w.grad, y
    end

    it('drawn again in the backward is the one of the forward', function()
        local grad, y = gradient_of(nil)
        local values, mask = flat(grad), flat(y)
        local zeros = 0
        for k, v in ipairs(values) do
            assert.equal(mask[k] == 0 and 0 or 8, v) -- 2 y / (1 - p), y = 2
            if v == 0 then zeros = zeros + 1 end
        end
        assert.is_true(zeros > 80 and zeros < 160)
        for _, policy in ipairs { 'save_all', 'recompute_all' } do
            assert.equal(bits(grad), bits((gradient_of(policy))))
        end
    end)

    it('is another one in each micro-batch and each call', function()
        wane.manual_seed(6)
        local w = nn.Parameter(wane.zeros(64))
        local layer = nn.Dropout(0.5)
        local opt = optim.SGD({ w }, { lr = 1 })
        local parts = {}
        for k = 1, 4 do parts[k] = layer(w + 1):sum() end
        opt:step(parts)
        local expected = {}
        for e = 0, 63 do
            local sum = 0
            for n = 0, 3 do
                if word(6, n, e) < 2 ^ 31 then sum = sum + 2 end
            end
            expected[e + 1] = -sum
        end
        assert.same(expected, w:totable())
        local distinct = {}
        for k = 1, 4 do distinct[parts[k]:item()] = true end
        assert.is_truthy(next(distinct, (next(distinct))))
    end)

    it('is another one in each step, and takes its numbers once', function()
        wane.manual_seed(14)
        local w = nn.Parameter(wane.zeros(32))
        local layer = nn.Dropout(0.5)
        local opt = optim.SGD({ w }, { lr = 1 })
        local seen = {}
        for k = 1, 5 do
            opt:step(layer(layer(w + 1)):sum())
            seen[k] = bits(w)
            assert.are_not.equal(seen[k - 1], seen[k])
        end
        assert.equal(10, next_number())
    end)
end)
