-- Compares attention as one op (spec/cases/attention.lua has its values, in bf16 too) with the same attention composed
-- of products, softmax and dropout: values, gradients and masks of both forms of nn.Attention, and memory. Then
-- attention with masks and contexts with numbers that PyTorch printed (spec/fixtures/torch_attention.lua), shapes of
-- masks, autocast and misuse. Bits under policies and devices are checked by spec/ways_spec.lua, those of thread counts
-- by spec/threads_spec.lua.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local tiles = require 'spec.support.tiles'
local ffi = require 'ffi'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local waves = require 'spec.support.waves'
local wane = helper.wane
local op, binding = require 'wane.tensor.op', require 'wane.ffi'
local fixture = require 'spec.fixtures.torch_attention'
local nn, near = wane.nn, gradcheck.near
local C = binding.C

-- Returns one layer in both forms, with equal parameters.
local function both(d, heads, opts)
    local out = {}
    for i, tiled in ipairs { true, false } do
        wane.manual_seed(4)
        local o = { tiled = tiled, causal = true }
        for key, value in pairs(opts or {}) do o[key] = value end
        out[i] = nn.Attention(d, heads, o)
    end
    return out[1], out[2]
end

-- Returns the values of the result, of the gradient of x and of every parameter's gradient, then their names. The loss
-- weighs each element of the result with a fixed number.
local function results(m, size)
    wane.manual_seed(9)
    local dtype = m.out.weight.dtype
    local x = nn.Parameter(wane.randn(size[1], size[2], m.d, { dtype = dtype }))
    local weights = wane.randn(size[1], size[2], m.d, { dtype = dtype }):retain()
    C.wn_counter_set(100)
    local y = m(x):retain()
    local loss = (y * weights):sum()
    loss:backward()
    local out, names = { gradcheck.values(y), gradcheck.values(x.grad) }, { 'the result', 'the gradient of x' }
    for name, p in m:named_parameters() do
        out[#out + 1] = gradcheck.values(p.grad)
        names[#names + 1] = 'the gradient of ' .. name
    end
    return out, names
end

local function assert_agree(d, heads, opts, size, tol)
    local tiled, composed = both(d, heads, opts)
    local have, names = results(tiled, size)
    local want = results(composed, size)
    assert.equal(#want, #have)
    assert.is_true(#have >= 4)
    for k, list in ipairs(want) do
        assert.same(list.shape, have[k].shape)
        local wrong = gradcheck.differ(have[k], list, tol)
        assert(not wrong, names[k] .. ': ' .. tostring(wrong))
    end
end

describe('both forms of nn.Attention agree', function()
    for _, case in ipairs {
        { 'as they come', 32, 4, {}, { 2, 19 } },
        { 'looking everywhere', 32, 4, { causal = false, bias = false }, { 2, 24 } },
        { 'with dropout', 48, 2, { dropout = 0.3 }, { 2, 21 } },
        { 'with dropout over several tiles', 24, 2, { dropout = 0.2, kv_heads = 1 }, { 1, 230 } },
        { 'with rows longer than the backward holds', 8, 1, { dropout = 0.1 }, { 1, 1122 } },
        { 'with rotated positions', 32, 4, { rope = true, kv_heads = 2 }, { 2, 17 } },
        { 'with one position', 16, 2, { rope = 100, dropout = 0.5 }, { 3, 1 } },
        { 'all of it', 60, 6, { rope = true, kv_heads = 3, dropout = 0.1, causal = false }, { 2, 26 } },
    } do
        it(case[1], function()
            assert_agree(case[2], case[3], case[4], case[5], 3e-5)
            case[4].dtype = 'f64'
            assert_agree(case[2], case[3], case[4], case[5], 1e-12)
        end)
    end
end)

describe('tiled attention', function()
    it('makes no (T, T) value: a step of it peaks below one', function()
        local t, d, heads = 512, 32, 4
        local one = heads * t * t * 4
        local peaks = {}
        for i, m in ipairs { both(d, heads, { dropout = 0.1 }) } do
            local x = wane.randn(1, t, d):retain()
            wane.eval(x, unpack(m:parameters()))
            local p = programs.run { mode = 'backward', roots = { (m(x) ^ 2):mean() } }
            assert.equal(p.predicted.peak, p.measured.peak)
            assert(p.measured.peak > 0)
            peaks[i] = p.measured.peak
            m:zero_grad()
        end
        assert(peaks[1] < t * t * 4, ('%d bytes, one head of a (T, T) value has %d'):format(peaks[1], t * t * 4))
        assert(peaks[2] > one, 'the composed form has shrunk: ' .. peaks[2])
    end)

    it('costs the work that is done: half of it under a causal mask', function()
        -- Returns the FLOPs of the forward and of the backward node.
        local function flops(time, causal, p)
            local qkv = nn.Parameter(wane.randn(1, time, 3 * 16))
            local y = op.record('attention', { qkv }, { i = { 1, 1, causal and 1 or 0 }, f = { p, 1 } })
            local out = {}
            for _, node in ipairs(programs.run({ mode = 'backward', roots = { y:sum() } }):graph()) do
                if node.op:find '^attention' then out[#out + 1] = node.flops end
            end
            assert.equal(2, #out)
            return out
        end
        local all, half, drawn = flops(200, false, 0), flops(200, true, 0), flops(200, false, 0.1)
        for k, products in ipairs { 2, 6 } do
            local least = 2 * products * 200 * 200 * 16
            assert(all[k] > least and all[k] < 1.8 * least, ('%g, its products %g'):format(all[k], least))
            assert(half[k] / all[k] > 0.5 and half[k] / all[k] < 0.505, ('%g of %g'):format(half[k], all[k]))
            assert(drawn[k] > all[k])
        end
    end)

    it('takes a number once a call, none for its gradient, and none where nothing is drawn', function()
        local m, without = nn.Attention(8, 2, { dropout = 0.5 }), nn.Attention(8, 2)
        local x = wane.eval(wane.randn(1, 4, 8))
        wane.eval(m(x), without(x))
        local before = tonumber(C.wn_here().counter)
        m(x):sum():backward()
        assert.equal(before + 1, tonumber(C.wn_here().counter))
        m:eval()
        wane.eval(m(x), without(x))
        assert.equal(before + 1, tonumber(C.wn_here().counter))
    end)

    it('drops nothing in evaluation', function()
        local m = both(16, 2, { dropout = 0.5 })
        m:eval()
        local x = wane.randn(1, 9, 16):retain()
        assert.equal(gradcheck.bytes(m(x)), gradcheck.bytes(m(x)))
        m:train()
        assert.are_not.equal(gradcheck.bytes(m(x)), gradcheck.bytes(m(x)))
    end)

    it('hands a NaN on to the rows that see it, and to no other', function()
        local buffer = binding.array('f32', 300 * 12)
        for k = 0, 300 * 12 - 1 do buffer[k] = math.sin(k) end
        buffer[200 * 12 + 5] = 0 / 0 -- a key of position 200
        local qkv = wane.from(buffer, { 1, 300, 12 })
        local y = gradcheck.values(op.record('attention', { qkv }, { i = { 1, 1, 1 }, f = { 0, 1 } }))
        for i = 0, 299 do
            for f = 1, 4 do assert.equal(i >= 200, y[i * 4 + f] ~= y[i * 4 + f], 'position ' .. i) end
        end
    end)

    it('is flash attention in the accounting of PyTorch: q, k, v, the result and a number a row and head', function()
        local b, t, d, heads = 2, 256, 32, 2
        local function saved(tiled)
            return helper.on('meta', function()
                local m, bytes = nn.Attention(d, heads, { tiled = tiled, causal = true }), 0
                local x = wane.randn(b, t, d)
                local parts = wane.plan(function() return m(x):sum() end):pytorch().parts
                for _, part in ipairs(parts) do bytes = bytes + part.saved end
                return bytes
            end)
        end
        local x, rows = 4 * b * t * d, 4 * b * heads * t
        assert.equal(3 * x + x + rows, saved(true))
        assert.equal(3 * x + rows * t + x, saved(false)) -- copies of q, k, v; the weights; what the projection reads
    end)
end)

ffi.cdef [[int64_t attention_differ(int64_t time, int64_t keys, int64_t width, int64_t diagonal, double p, double size);
           int64_t attention_draws_differ(int64_t time, double element);]]

local here = tiles.here()

for _, class in ipairs { 'avx2', 'avx512' } do
    describe('the kernels of tiles of ' .. class, function()
        local library
        if not here[class] then
            pending 'were not built here, or this processor lacks them'
            return
        end
        setup(function()
            local objects = {} -- as the library has them: compiling the tiles again takes 10 s
            for _, source in ipairs(helper.lines(('ls kernels/cpu/%s/*.c %s kernels/cpu/common/broadcast.c '
                .. 'kernels/cpu/common/nontemporal.c kernels/cpu/attention/tile.c')
                :format(class, table.concat(tiles.drivers(), ' ')))) do
                objects[#objects + 1] = ('build/release/%s/%s.o'):format(class, (source:gsub('%.c$', '')))
            end
            for _, name in ipairs { 'parallel', 'team' } do
                objects[#objects + 1] = 'build/release/kernels/cpu/backend/' .. name .. '.o'
            end
            library = native.load('attention-' .. class .. '.so', 'gcc -std=c11 -D_GNU_SOURCE -O3 -fopenmp-simd '
                .. '-pthread -fPIC -shared -ffp-contract=off -Wl,-z,defs -o %s '
                .. tiles.sources(class, 'spec/support/attention.c ' .. table.concat(objects, ' '))
                .. ' build/release/runtime/base/type.o '
                .. 'build/release/runtime/base/status.o -lm')
        end)

        it('give the bits of those in portable C', function()
            for _, keys in ipairs { 1, 3, 8, 23, 64, 120 } do
                for _, width in ipairs { 16, 48, 64, 96 } do
                    for _, diagonal in ipairs { -1000, -40, -8, 0, 24 } do
                        for k, p in ipairs { 0, 0.3, 1 } do
                            local time = 200 + (keys + k) % 4
                            for _, size in ipairs { 4, 0.1 } do
                                assert.equal(0, tonumber(library.attention_differ(time, keys, width, diagonal, p,
                                    size)), ('keys %d, width %d, diagonal %d, p %g, time %d, size %g'):format(keys,
                                    width, diagonal, p, time, size))
                            end
                        end
                    end
                end
            end
        end)

        it('draw the same masks wherever a tile is among all weights', function()
            for _, time in ipairs { 120, 121, 122, 4096 } do
                for _, element in ipairs { 0, 8, 2 ^ 34 - 400000, 2 ^ 34 - 5000, 2 ^ 34 - 4, 2 ^ 34, 7 * 2 ^ 34 + 8 } do
                    assert.equal(0, tonumber(library.attention_draws_differ(time, element)),
                        ('time %d, element %g'):format(time, element))
                end
            end
        end)
    end)
end

-- ---- masks and contexts ---------------------------------------------------------------------------------------------

local B, T, S, D, HEADS = 2, 3, 4, 4, 2

-- Returns a tensor of waves, or a parameter of it where opts.leaf says so.
local function fill(shape, k, opts)
    local t = waves.fill(shape, k, opts)
    return opts and opts.leaf and nn.Parameter(t) or t
end

local function layer(dtype, opts)
    opts = opts or {}
    opts.dtype = dtype
    local m = nn.Attention(D, HEADS, opts)
    m.qkv.weight:assign(fill({ 3 * D, D }, 3, { dtype = dtype }))
    m.qkv.bias:assign(fill({ 3 * D }, 4, { dtype = dtype }))
    m.out.weight:assign(fill({ D, D }, 5, { dtype = dtype }))
    m.out.bias:assign(fill({ D }, 6, { dtype = dtype }))
    return m
end

local SOME = wane.tensor({ { 1, 1, 0 }, { 0, 1, 1 }, { 0, 0, 0 } }, { dtype = 'u8' })

local CASES = {
    plain = {}, causal = { opts = { causal = true } },
    boolean = { mask = function() return SOME end },
    additive = { mask = function(dtype) return fill({ B, HEADS, T, T }, 7, { dtype = dtype }) end },
    cross = { is_cross = true },
    padded = { is_cross = true, mask = function()
        return wane.tensor({ { 1, 1, 0, 0 }, { 1, 1, 1, 0 } }, { dtype = 'u8' }):reshape(B, 1, 1, S)
    end },
    cross_additive = { is_cross = true,
        mask = function(dtype) return fill({ HEADS, 1, S }, 8, { dtype = dtype }) end },
}

describe('nn.Attention', function()
    for name, case in pairs(CASES) do
        it('is that of PyTorch: ' .. name, function()
            for dtype, tolerance in pairs { f64 = 1e-11, f32 = 1e-4 } do
                local m = layer(dtype, case.opts and { causal = true })
                local leaf = { dtype = dtype, leaf = true }
                local x, c = fill({ B, T, D }, 1, leaf), fill({ B, S, D }, 2, leaf)
                local y = m(x, { mask = case.mask and case.mask(dtype), context = case.is_cross and c or nil }):retain()
                ;(y * y):sum():backward()
                local want = fixture[name]
                near(want.y, y, tolerance, name)
                near(want.dx, x.grad, tolerance, name .. ', gradient of x')
                if want.dc then near(want.dc, c.grad, tolerance, name .. ', gradient of the context') end
            end
        end)
    end

    it('lets a NaN of an added mask through, forward and backward, and hides -inf alone', function()
        for _, dtype in ipairs { 'f32', 'f64' } do
            for name, bad in pairs { NaN = 0 / 0, ['-inf'] = -1 / 0 } do
                local m = layer(dtype)
                local x = fill({ B, T, D }, 1, { dtype = dtype, leaf = true })
                local values, plain = {}, m(x, { mask = wane.zeros(1, 1, T, T, { dtype = dtype }) }):retain()
                for k = 1, T * T do values[k] = k == T + 2 and bad or 0 end -- query 2, key 2
                local y = m(x, { mask = wane.tensor(values, { dtype = dtype }):reshape(1, 1, T, T) }):retain()
                local loss = (y * y):sum()
                loss:backward()
                local have, want = y:totable(), plain:totable()
                for b = 1, B do
                    for t = 1, T do
                        for d = 1, D do
                            local v = have[b][t][d]
                            assert.equal(t == 2 and bad ~= bad, v ~= v, name)
                            if t ~= 2 then assert.equal(want[b][t][d], v) end
                        end
                    end
                end
                local g = x.grad:sum():item()
                assert.equal(bad ~= bad, g ~= g, name)
            end
        end
    end)

    it('takes a mask of every shape that broadcasts, with shared heads, causal, rope and autocast', function()
        local x = wane.randn(2, 3, 8):retain()
        for _, opts in ipairs { {}, { kv_heads = 2 }, { causal = true, rope = true, kv_heads = 1 },
            { dropout = 0.5 } } do
            local m = nn.Attention(8, 4, opts)
            if opts.dropout then m:eval() end
            local want = m(x)
            for _, shape in ipairs { {}, { 3 }, { 3, 3 }, { 4, 3, 3 }, { 4, 1, 1 }, { 2, 1, 1, 3 }, { 2, 4, 3, 3 } } do
                local ones = wane.ones(shape, { dtype = 'u8' })
                assert.is_true((m(x, { mask = ones }) - want):abs():max():item() < 1e-5)
                assert.is_true((m(x, { mask = wane.zeros(shape) }) - want):abs():max():item() < 1e-5)
            end
            local low = wane.autocast('bf16', m, x, { mask = wane.ones(2, 1, 1, 3, { dtype = 'u8' }) })
            assert.is_true((low:to 'f32' - want):abs():max():item() < 0.05)
        end
    end)

    it('with rope depends on the distance of positions, not on where they are', function()
        local m, t = nn.Attention(16, 2, { rope = 100 }), 6
        local two = wane.randn(1, 2, 16):retain()
        -- Returns what two rows give each other at positions i and j, where they see nobody else.
        local function at(i, j)
            local rows, seen = {}, {}
            for k = 1, t do
                rows[k] = k == i and two:narrow(2, 1, 1) or k == j and two:narrow(2, 2, 1) or wane.ones(1, 1, 16)
                for l = 1, t do seen[(k - 1) * t + l] = (k == i or k == j) == (l == i or l == j) and 1 or 0 end
            end
            local y = m(wane.cat(rows, 2), { mask = wane.tensor(seen, { dtype = 'u8' }):reshape(t, t) })
            return wane.cat({ y:narrow(2, i, 1), y:narrow(2, j, 1) }, 2)
        end
        assert.is_true((at(1, 3) - at(3, 5)):abs():max():item() < 1e-5)
        assert.is_true((at(1, 3) - at(2, 3)):abs():max():item() > 1e-3)
    end)

    it('refuses what does not fit', function()
        local m, x = nn.Attention(8, 2), wane.ones(2, 3, 8)
        for _, case in ipairs {
            { 'shape', '(2, 2, 3, 3)', m, { mask = wane.ones(4, 3) } },
            { 'shape', 'does not broadcast', m, { mask = wane.ones(1, 2, 2, 3, 3) } },
            { 'value', 'mask must be a tensor', m, { mask = true } },
            { 'dtype', 'mask:ne(0)', m, { mask = wane.ones(3, 3, { dtype = 'i32' }) } },
            { 'shape', 'another batch', m, { context = wane.ones(1, 3, 8) } },
            { 'shape', 'attention: context: expected (batch, time, 8)', m, { context = wane.ones(2, 3, 4) } },
            { 'unsupported', 'without causal', nn.Attention(8, 2, { causal = true }), { context = x } },
            { 'unsupported', 'without rope', nn.Attention(8, 2, { rope = true }), { context = x } },
            { 'value', "'maks'", m, { maks = x } },
            { 'value', 'causal must be true or false', nn.Attention, 8, 2, { causal = 1 } },
        } do
            helper.refused(case[1], function()
                if case[3] == nn.Attention then return nn.Attention(case[4], case[5], case[6]) end
                return case[3](x, case[4])
            end, case[2])
        end
    end)
end)
