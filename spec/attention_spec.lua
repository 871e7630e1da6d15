-- Compares attention as one op (spec/cases/attention.lua has its values) with the same attention composed of products,
-- softmax and dropout: values, gradients and masks of both forms of nn.Attention, memory, and bits under policies,
-- thread counts and devices. Requests that need the other form must be refused, and the message must say so.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local tiles = require 'spec.support.tiles'
local ffi = require 'ffi'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local wane = helper.wane
local scoped, op, binding = require 'wane.scoped', require 'wane.tensor.op', require 'wane.ffi'
local create = require 'wane.tensor.create'
local nn = wane.nn
local C = binding.C
local MIRROR = require('wane.tensor.op').device('mirror', 'spec')

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

    it('in what they keep, weight by weight', function()
        -- Values are the identity, so the result is the weights: row i of head 1, column j.
        local t, seed = 50, 12
        local values = wane.eye(t):reshape(1, t, t)
        local q = wane.zeros(1, t, t)
        wane.manual_seed(seed)
        local weights = op.record('attention', { wane.cat({ q, q, values }, 3) }, { i = { 1, 1, 0 }, f = { 0.4, 1 } })
        wane.manual_seed(seed)
        local mask = op.record('dropout', { wane.ones(1, 1, t, t) }, { f = { 0.4 } })
        local have, want, zeros = gradcheck.values(weights), gradcheck.values(mask), 0
        for k = 1, t * t do
            assert.equal(want[k] == 0, have[k] == 0, 'element ' .. k)
            if have[k] == 0 then zeros = zeros + 1 end
        end
        assert(math.abs(zeros / (t * t) - 0.4) < 0.05, zeros .. ' zeros')
    end)
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

    -- Trains a block of two attention layers for three steps. Returns the bits of the losses and of the parameters, and
    -- how many nodes were recomputed at most.
    local function train(o)
        return scoped('device', o.device or 0, function()
            wane.manual_seed(3)
            local layers = {}
            for i = 1, 2 do
                layers[i] = nn.Residual(nn.Sequential(nn.LayerNorm(24),
                    nn.Attention(24, 4, { causal = true, dropout = 0.2, kv_heads = i, rope = i == 2 })))
            end
            local model = nn.Sequential(layers)
            local opt = wane.optim.AdamW(model:parameters(), { lr = 0.01 })
            local x, out, again = wane.randn(2, 37, 24):retain(), {}, 0
            scoped('listen', function(p)
                local summary = binding.new('struct wn_summary')
                binding.check(C.wn_summary(p.handle, summary))
                again = math.max(again, summary.recomputed)
            end, function()
                for k = 1, 3 do
                    local loss = (model(x) ^ 2):mean()
                    if o.fused then
                        opt:step(loss, { policy = o.policy })
                    else
                        opt:zero_grad()
                        loss:backward { policy = o.policy }
                        opt:step()
                    end
                    out[k] = gradcheck.bytes(loss)
                end
            end)
            for _, p in ipairs(model:parameters()) do out[#out + 1] = gradcheck.bytes(p) end
            return table.concat(out, '|'), again
        end)
    end

    it('has the same bits under every policy, fused or not, and on the mirror', function()
        local plain = train {}
        assert.equal(plain, (train { fused = true }))
        assert.equal(plain, (train { device = MIRROR }))
        for _, policy in ipairs { 'recompute_all', 'every(1)',
            wane.policy.by_op { attention = 'recompute', default = 'save' },
            wane.policy.by_op { linear = 'recompute', default = 'save', optional = true },
            wane.policy.by_type { Attention = 'recompute', default = 'save' } } do
            for _, fused in ipairs { false, true } do
                local bits, again = train { policy = policy, fused = fused }
                assert(again > 0, tostring(policy) .. ': nothing was recomputed')
                assert.equal(plain, bits)
            end
        end
    end)

    it('has the same bits for each number of threads', function()
        local run = function(n)
            local out, code = helper.shell(('WANE_THREADS=%d luajit spec/support/threads.lua'):format(n))
            assert.equal(0, code, out)
            return out:match 'attention%s+(%x+)'
        end
        local one = run(1)
        assert.is_truthy(one)
        assert.equal(one, run(2))
        assert.equal(one, run(3))
    end)

    it('takes a number once a call, and none for its gradient', function()
        wane.manual_seed(1)
        local m = nn.Attention(8, 2, { causal = true, dropout = 0.5 })
        local before = tonumber(C.wn_counter())
        local loss = m(wane.ones(1, 4, 8)):sum()
        loss:backward()
        assert.equal(before + 1, tonumber(C.wn_counter()))
    end)

    it('takes no number where nothing is drawn', function()
        local m = nn.Attention(8, 2, { causal = true, dropout = 0.2 })
        local x = wane.randn(1, 4, 8):retain()
        wane.eval(x)
        m:eval()
        local without = nn.Attention(8, 2, { causal = true })
        local before = C.wn_counter()
        m(x):sum():item()
        without(x):sum():item()
        assert.equal(before, C.wn_counter())
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
            local before, bytes = wane.set_device 'meta', 0
            local fine, why = pcall(function()
                local m = nn.Attention(d, heads, { tiled = tiled, causal = true })
                local x = wane.randn(b, t, d)
                local parts = wane.plan(function() return m(x):sum() end):pytorch().parts
                for _, part in ipairs(parts) do bytes = bytes + part.saved end
            end)
            wane.set_device(before)
            assert(fine, why)
            return bytes
        end
        local x, rows = 4 * b * t * d, 4 * b * heads * t
        assert.equal(3 * x + x + rows, saved(true))
        assert.equal(3 * x + rows * t + x, saved(false)) -- copies of q, k, v; the weights; what the projection reads
    end)
end)

ffi.cdef [[int64_t attention_differ(int64_t time, int64_t keys, int64_t width, int64_t diagonal, double p, double size);
           int64_t attention_draws_differ(int64_t time, double element);]]

for _, class in ipairs { 'avx2', 'avx512' } do
    describe('the kernels of tiles of ' .. class, function()
        local library
        local object = io.open(('%s/build/release/%s/kernels/cpu/attention/tile.o'):format(helper.root, class))
        if not object then
            pending 'were not built here'
            return
        end
        object:close()
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

describe('attention in bf16', function()
    -- Returns a bf16 tensor of numbers, and the f32 tensor of the same numbers after they were rounded to bf16 (here:
    -- cut off).
    local function pair(shape, seed)
        local n = shape[1] * shape[2] * shape[3]
        local wide, half = binding.array('f32', n), binding.array('bf16', n)
        local bits = binding.cast('uint32_t *', wide)
        for k = 0, n - 1 do
            wide[k] = 2 * math.sin(seed + k * k)
            half[k] = math.floor(bits[k] / 65536)
            bits[k] = half[k] * 65536
        end
        return create.data(shape, 'bf16', nil, half), create.data(shape, 'f32', nil, wide)
    end

    local function read(t, n, dtype)
        local out = binding.array(dtype, n)
        binding.check(C.wn_read(t.id, out, n * binding.element_bytes[dtype]))
        return out
    end

    -- Checks that every element of the bf16 result is the element of the f32 result, rounded to nearest, ties to even.
    local function assert_rounded(have, want, n)
        wane.eval(have, want)
        local half, wide = read(have, n, 'bf16'), read(want, n, 'f32')
        local bits, nonzero = binding.cast('uint32_t *', wide), 0
        for k = 0, n - 1 do
            local high, low = math.floor(bits[k] / 65536), bits[k] % 65536
            if low > 32768 or low == 32768 and high % 2 == 1 then high = high + 1 end
            assert.equal(high, tonumber(half[k]), 'element ' .. k)
            if high % 32768 ~= 0 then nonzero = nonzero + 1 end
        end
        assert(nonzero > n / 2, 'mostly zeros')
    end

    -- On a GPU tensor cores compute heads of 64 and of 128, within a tolerance: spec/cuda_attention_spec.lua.
    local cases = { { 2, 75, 4, 2, 24, 0.2 }, { 1, 200, 1, 1, 72, 0 }, { 1, 6, 2, 1, 264, 0.1 } }
    if wane.zeros(1).device ~= 'cuda' then cases[4] = { 1, 200, 1, 1, 64, 0 } end

    for _, s in ipairs(cases) do
        it(('is that of f32, rounded: %d x %d, %d heads over %d of %d, p %g'):format(unpack(s)), function()
            local batch, time, heads, kv, size = unpack(s)
            local attrs = { i = { heads, kv, 1 }, f = { s[6], size ^ -0.5 } }
            local width, out = (heads + 2 * kv) * size, heads * size
            local qkv, qkv_wide = pair({ batch, time, width }, 1)
            local dy, dy_wide = pair({ batch, time, out }, 2)
            local y, y_wide = pair({ batch, time, out }, 3)
            local function run(name, list)
                wane.manual_seed(2)
                return op.record(name, list, attrs)
            end
            assert_rounded(run('attention', { qkv }), run('attention', { qkv_wide }), batch * time * out)
            assert_rounded(run('attention_grad', { dy, qkv, y }), run('attention_grad', { dy_wide, qkv_wide, y_wide }),
                batch * time * width)
        end)
    end
end)
