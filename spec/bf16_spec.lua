-- Checks bf16: conversions bit by bit, kernels against their f32 forms, and what Lua does with bf16 tensors. op_spec
-- compares every op that is one node, product_spec has products and random_spec numbers that are drawn; this file has
-- broadcasting, stretches of rows and optimizers.
local helper = require 'spec.helper'
local gradcheck = require 'spec.support.gradcheck'
local op = require 'wane.tensor.op'
local wane = helper.wane
local nn, optim = wane.nn, wane.optim
local binding = require 'wane.ffi'

local bytes, record = gradcheck.bytes, op.record

local function words(list)
    local buffer = binding.array('bf16', math.max(#list, 1))
    for k, v in ipairs(list) do buffer[k - 1] = v end
    return wane.from(buffer, { #list }, 'bf16')
end

-- Returns a bf16 tensor of normal numbers, and the same numbers in f32.
local function both(...)
    local t = wane.randn(...):to 'bf16':retain()
    return t, t:to('f32'):retain()
end

local function assert_rounded(have, want, what)
    assert(have.dtype == 'bf16', what .. ' is ' .. have.dtype)
    assert(want.dtype == 'f32', what .. ': the reference is ' .. want.dtype)
    assert(bytes(have) == bytes(want:to 'bf16'), what .. ' is not the f32 value, rounded')
end

-- ---- conversion -------------------------------------------------------------------------------------------------

describe('a conversion', function()
    local ALL = 65536
    local every, wide = binding.array('bf16', ALL), binding.array('f32', ALL)
    for k = 0, ALL - 1 do every[k] = k end

    local function is_nan(k) return k % 0x8000 > 0x7f80 end

    -- Returns the bits of bf16 that the kernel makes of every f32 with high bits k and low bits `above`, for k from 0
    -- to ALL - 1; Lua's own rounding must give the same.
    local function rounded(above)
        local source = binding.cast('uint32_t *', wide)
        for k = 0, ALL - 1 do source[k] = k * 65536 + above end
        local out = wane.from(wide, { ALL }, 'f32'):to 'bf16'
        local kernel = binding.array('bf16', ALL)
        out:copy_to(kernel)
        local lua = binding.round(wide, ALL)
        for k = 0, ALL - 1 do assert(kernel[k] == lua[k], ('%x: %x and %x'):format(k, kernel[k], lua[k])) end
        return kernel
    end

    it('to f32 keeps all 65,536 patterns', function()
        wane.from(every, { ALL }, 'bf16'):to('f32'):copy_to(wide)
        local out = binding.cast('uint32_t *', wide)
        local widened = binding.widen(every, ALL) -- a pointer keeps nothing alive
        local lua = binding.cast('uint32_t *', widened)
        for k = 0, ALL - 1 do assert(out[k] == k * 65536 and lua[k] == k * 65536, ('%x gives %x'):format(k, out[k])) end
    end)

    it('to bf16 and back keeps all of them, and a NaN is a quiet one', function()
        local out = rounded(0)
        for k = 0, ALL - 1 do
            local want = is_nan(k) and bit.bor(k, 0x40) or k
            assert(out[k] == want, ('%x gives %x'):format(k, out[k]))
        end
    end)

    it('goes to the nearer neighbour, to the even one of two, to infinity past the greatest', function()
        for _, above in ipairs { 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff } do
            local out = rounded(above)
            for k = 0, ALL - 1 do
                local up = above > 0x8000 or above == 0x8000 and k % 2 == 1
                local infinite = k % 0x8000 == 0x7f80 -- with more bits a NaN too
                if is_nan(k) or infinite then
                    assert(is_nan(out[k]), ('%x + %x gives %x'):format(k, above, out[k]))
                else
                    assert(out[k] == k + (up and 1 or 0), ('%x + %x gives %x'):format(k, above, out[k]))
                end
            end
        end
    end)

    it('of other types passes through f32', function()
        local x = wane.tensor({ 1.00390625, 1 + 2 ^ -8 + 2 ^ -30, 1e300, -3.7, 0 / 0, 1e-45 }, { dtype = 'f64' })
        assert.equal(bytes(x:to('f32'):to 'bf16'), bytes(x:to 'bf16'))
        local i = wane.tensor({ 257, -300, 2 ^ 31 - 1, 16777217, 0 }, { dtype = 'i32' })
        assert.equal(bytes(i:to('f32'):to 'bf16'), bytes(i:to 'bf16'))
        local u = wane.tensor({ 0, 1, 255 }, { dtype = 'u8' })
        assert.same({ 0, 1, 255 }, u:to('bf16'):totable())
        local b = wane.tensor({ 1.5, -2.5, 300, 1e10 }, { dtype = 'bf16' })
        assert.same({ 1, -2, 300, 2 ^ 31 - 1 }, b:to('i32'):totable())
        assert.same({ 1, 0, 255, 255 }, b:to('u8'):totable())
        assert.equal(bytes(b:to('f32'):to 'f64'), bytes(b:to 'f64'))
    end)

    it('of a number is that of a tensor', function()
        for _, v in ipairs { 0.1, 1 + 2 ^ -8, -1e30, 2 ^ -133, 1e39, 0 } do
            local one = wane.tensor(v, { dtype = 'bf16' })
            assert.equal(0, one:dim())
            assert.equal(wane.tensor({ v }, { dtype = 'bf16' })[1]:item(), one:item())
            assert.equal(one:item(), (one * 1):item())
            assert.equal(one:item(), wane.full({}, v, { dtype = 'bf16' }):item())
        end
    end)
end)

-- ---- kernels ----------------------------------------------------------------------------------------------------

describe('a kernel of bf16', function()
    wane.manual_seed(11)
    local SIZES = { 1, 15, 1023, 1024, 1025, 5000, 70001 } -- around a tile, and past a thread's share

    it('gives the f32 value, rounded, at every length', function()
        for _, n in ipairs(SIZES) do
            local a, wide_a = both(n)
            local b, wide_b = both(n)
            assert_rounded(a:gelu(), wide_a:gelu(), 'gelu of ' .. n)
            assert_rounded(record('gelu_grad', { a, b }), record('gelu_grad', { wide_a, wide_b }), 'its slope of ' .. n)
            assert_rounded(a:clamp(-0.3, 0.3), wide_a:clamp(-0.3, 0.3), 'clamp of ' .. n)
            assert_rounded(a * b, wide_a * wide_b, 'the product of ' .. n)
            assert_rounded(a - 1.5, wide_a - 1.5, 'a number less of ' .. n)
            assert_rounded(2 / b, 2 / wide_b, 'the inverse of ' .. n)
            assert_rounded(a:sum(), wide_a:sum(), 'the sum of ' .. n)
            assert_rounded(a:mean(), wide_a:mean(), 'the mean of ' .. n)
            assert.equal(bytes(wide_a:lt(wide_b)), bytes(a:lt(b)))
            assert.equal(bytes(wide_a:argmax()), bytes(a:argmax()))
        end
    end)

    it('gives it under broadcasting and in rows', function()
        local a, wide_a = both(37, 1100)
        local row, wide_row = both(1100)
        local column, wide_column = both(37, 1)
        assert_rounded(a + row, wide_a + wide_row, 'a row more')
        assert_rounded(column * a, wide_column * wide_a, 'a column times')
        assert_rounded(a:max(1), wide_a:max(1), 'max of columns')
        assert_rounded(a:sum(1), wide_a:sum(1), 'sum of columns')
        assert_rounded(a:mean(2), wide_a:mean(2), 'mean of rows')
        assert_rounded(a:softmax(-1), wide_a:softmax(-1), 'softmax')
        assert_rounded(a:softmax(1), wide_a:softmax(1), 'softmax of columns')
        assert_rounded(wane.where(a:gt(0), row, a), wane.where(wide_a:gt(0), wide_row, wide_a), 'where')
        local mean, rstd = a:mean(2):retain(), (column * column + 0.5):reshape(37):retain()
        local norm = { a, mean, rstd, row, row }
        local wide = {}
        for k, t in ipairs(norm) do wide[k] = t:to 'f32' end
        assert_rounded(record('layernorm', norm), record('layernorm', wide), 'layernorm')
        assert_rounded(record('row_rstd', { a, mean }, { f = { 1e-5 } }),
            record('row_rstd', { wide[1], wide[2] }, { f = { 1e-5 } }), 'row_rstd')
    end)

    -- A row has 20,000 elements: 2 MiB of f32 copies are some 16 rows, so 40 rows are three stretches, the last one
    -- shorter; or 6544 columns of 40.
    it('goes by stretches of rows or columns, and its copies do not grow with the value', function()
        local ROWS, WIDE, MOST = 40, 20000, 4 * 2 ^ 20
        local x, wide_x = both(ROWS, WIDE)
        local y, wide_y = both(ROWS, WIDE)
        local w, wide_w = both(WIDE)
        local mean, wide_mean = both(ROWS)
        wane.eval(x, wide_x, y, wide_y, w, wide_w, mean, wide_mean)
        local cases = {
            { 'softmax', { x }, { wide_x }, { i = { 1 } } }, { 'log_softmax', { x }, { wide_x }, { i = { 1 } } },
            { 'softmax_grad', { x, y }, { wide_x, wide_y }, { i = { 1 } } },
            { 'log_softmax_grad', { x, y }, { wide_x, wide_y }, { i = { 1 } } },
            { 'row_mean', { x }, { wide_x } }, { 'row_rstd', { x, mean }, { wide_x, wide_mean }, { f = { 1e-5 } } },
            { 'layernorm', { x, mean, mean, w, w }, { wide_x, wide_mean, wide_mean, wide_w, wide_w } },
            { 'layernorm_dx', { x, y, mean, mean, w }, { wide_x, wide_y, wide_mean, wide_mean, wide_w } },
            { 'layernorm_dw', { x, y, mean, mean }, { wide_x, wide_y, wide_mean, wide_mean } },
        }
        for _, case in ipairs(cases) do
            local name, half, wide, attrs = unpack(case)
            local before = wane.memory().allocated
            wane.memory.reset_peak()
            local out = wane.eval(record(name, half, attrs))
            local copies = wane.memory().peak - before - 2 * out:numel()
            assert(copies <= MOST, ('%s: %d bytes beside its result'):format(name, copies))
            assert_rounded(out, record(name, wide, attrs), name)
        end
    end)

    it('steps a state as f32 does, rounded', function()
        local makers = {
            sgd = function(p) return optim.SGD(p, { lr = 0.1, weight_decay = 0.01 }) end,
            momentum = function(p) return optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end,
            adam = function(p) return optim.Adam(p, { lr = 0.1 }) end,
        }
        local start, wide = both(3001)
        local slope, wide_slope = both(3001)
        for name, make in pairs(makers) do
            local p, q = nn.Parameter(start), nn.Parameter(wide)
            make({ p }):step((p * slope):sum())
            make({ q }):step((q * wide_slope):sum())
            assert_rounded(p, q, name)
        end
        local p = nn.Parameter(start)
        local twice = start:to('f32') * 0 + wide_slope
        for _ = 1, 2 do (p * slope):sum():backward() end
        assert_rounded(p.grad, twice + twice, 'a gradient added to')
    end)
end)

-- ---- tensors ----------------------------------------------------------------------------------------------------

describe('a tensor of bf16', function()
    it('is made, read, printed and copied', function()
        local t = wane.tensor({ { 1.5, -2 }, { 0.1, 1 / 3 } }, { dtype = 'bf16' })
        assert.equal('bf16', t.dtype)
        assert.same({ { 1.5, -2 }, { 0.10009765625, 0.333984375 } }, t:totable())
        assert.equal(-2, t[1][2]:item())
        assert.equal('tensor (2, 2) bf16\n[[ 1.5000, -2.0000],\n [ 0.1001,  0.3340]]', tostring(t))
        local raw = t:copy_to(binding.array('bf16', 4))
        assert.equal(0x3fc0, raw[0])
        assert.equal(bytes(t), bytes(wane.from(raw, { 2, 2 }, 'bf16')))
        local wide = wane.rand(2000, { dtype = 'bf16' })
        assert.is_truthy(tostring(wide):find 'mean 0%.[45]')
        assert.same({ 1, -2, 0.5 }, words({ 0x3f80, 0xc000, 0x3f00 }):totable())
    end)

    it('takes two bytes an element, read without another program', function()
        collectgarbage()
        collectgarbage() -- what earlier specs left must not go in between
        local before = wane.memory().allocated
        local t = wane.eval(wane.zeros(1024, { dtype = 'bf16' }))
        assert.equal(before + 2048, wane.memory().allocated)
        t:totable()
        assert.equal(before + 2048, wane.memory().allocated)
    end)

    it('meets f32 nowhere but in autocast', function()
        local a, b = wane.randn(3):to 'bf16', wane.randn(3)
        helper.refused(nil, function() return a + b end, ":to 'f32'")
        helper.refused(nil, function() return a:reshape(1, 3):matmul(b:reshape(3, 1)) end, 'convert one with :to')
        helper.refused(nil, function() return wane.tensor({ 1 }, { dtype = 'f16' }) end, 'f16', 'not in this version')
    end)

    it('makes a whole model: model:to', function()
        wane.manual_seed(2)
        local model = nn.Sequential { nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.RMSNorm(32), nn.Linear(32, 4) }
        model:to 'bf16'
        for _, p in ipairs(model:parameters()) do assert.equal('bf16', p.dtype) end
        local x, labels = wane.randn(64, 8, { dtype = 'bf16' }):retain(), wane.randint(4, { 64 }):retain()
        helper.refused(nil, function() return model(x:to 'f32') end, 'f32 and ', 'bf16')
        local opt = optim.Adam(model:parameters(), { lr = 0.01 })
        local first, last
        for _ = 1, 20 do
            last = opt:step(nn.cross_entropy(model(x), labels)):item()
            first = first or last
        end
        assert(last < 0.6 * first, ('the loss went from %g to %g'):format(first, last))
        assert.equal('bf16', model:parameters()[1].dtype)
        model:to 'f32'
        assert.equal('f32', model(x:to 'f32').dtype)
    end)
end)
