-- Probes each wrapper of PTX in the GPU's own words: products of bf16 by tensor cores (mma, ldmatrix, cp.async) against
-- the kernels without them. Matrices hold small whole numbers, so that every sum is exact in any order and is rounded
-- once: a wrong place of one element in a fragment is another number, and there is no tolerance. Attention by
-- tensor cores is compared with that of f32, which takes another kernel.
local gpu = require 'spec.gpu.gpu'
local wane = require 'wane'
local array = require 'spec.cases.array'
local gradcheck = require 'spec.support.gradcheck'

-- Returns a tensor of whole numbers from -8 to 8 in bf16, and the same numbers in f32.
local function whole(...)
    local x = wane.randint(17, { ... }):to 'f32' - 8
    local wide = wane.eval(x)
    local narrow = wane.eval(wide:to 'bf16')
    return narrow, wide
end

-- Compares a product of bf16 with the f32 product of the same numbers, rounded once.
local function compare(what, narrow, wide)
    local have, want = gradcheck.bytes(narrow), gradcheck.bytes(wide:to 'bf16')
    local detail
    if have ~= want then
        local a, b = gradcheck.values(narrow), gradcheck.values(wide:to 'bf16')
        for i = 1, #b do
            if a[i] ~= b[i] then
                detail = ('element %d is %g, without tensor cores %g'):format(i, a[i], b[i])
                break
            end
        end
    end
    gpu.fact(what, have == want, detail)
end

-- m, n, k of products: a fragment, tiles of 64 and of 128 with rests, rows that are on no 16 bytes, more than one step.
local shapes = gpu.size({ { 16, 16, 16 }, { 64, 64, 32 }, { 128, 128, 128 }, { 130, 72, 48 }, { 200, 136, 104 },
    { 37, 51, 23 }, { 1536, 2048, 256 }, { 1500, 2056, 1000 }, { 2048, 1792, 4096 } },
    { { 16, 16, 16 }, { 72, 40, 48 }, { 37, 51, 23 } })
for _, s in ipairs(shapes) do
    local m, n, k = unpack(s)
    for flags = 0, 3 do
        local ta, tb = flags % 2 == 1, flags >= 2
        local a, wide_a = whole(ta and k or m, ta and m or k)
        local b, wide_b = whole(tb and n or k, tb and k or n)
        local how = { transpose_a = ta, transpose_b = tb }
        compare(('product %d x %d x %d%s%s by tensor cores'):format(m, n, k, ta and ', a^T' or '',
            tb and ', b^T' or ''), a:matmul(b, how), wide_a:matmul(wide_b, how))
    end
end
local a, wide_a = whole(3, 2, 40, 32)
local b, wide_b = whole(2, 32, 24)
compare('batch of products, broadcast', a:matmul(b), wide_a:matmul(wide_b))

-- ---- attention ----------------------------------------------------------------------------------------------------
-- Returns the largest difference of two lists of numbers over the largest magnitude; infinite where one is NaN.
local function distance(have, want)
    local top, far = 0, 0
    for i = 1, #want do
        top = math.max(top, math.abs(want[i]))
        local d = math.abs(have[i] - want[i])
        far = d == d and math.max(far, d) or math.huge
    end
    return far / top
end

local function attention(o)
    local heads, kv, size, t, batch = o[1], o[2], o[3], o[4], 2
    local attrs = { i = { heads, kv, 1 }, f = { 0, size ^ -0.5 } }
    local wide = wane.eval(wane.randn(batch, t, (heads + 2 * kv) * size):to 'bf16':to 'f32')
    local dy = wane.eval(wane.randn(batch, t, heads * size):to 'bf16':to 'f32')
    local function run(x, d)
        local y = wane.eval(array.record('attention', { x }, attrs))
        return gradcheck.values(y), gradcheck.values(array.record('attention_grad', { d, x, y }, attrs))
    end
    local y, grad = run(wide:to 'bf16', dy:to 'bf16')
    local want_y, want_grad = run(wide, dy)
    local what = ('attention, %d heads of %d, %d of keys, T = %d: '):format(heads, size, kv, t)
    local far_y, far_grad = distance(y, want_y), distance(grad, want_grad)
    gpu.fact(what .. 'bf16 is within 2 % of f32', far_y < 0.02, far_y)
    gpu.fact(what .. 'its gradient is within 4 %', far_grad < 0.04, far_grad)
end
for _, o in ipairs(gpu.size({ { 2, 2, 64, 128 }, { 4, 2, 64, 200 }, { 2, 2, 128, 256 }, { 4, 1, 128, 333 },
    { 2, 2, 96, 100 }, { 3, 3, 32, 65 } }, { { 2, 2, 64, 40 }, { 2, 1, 128, 20 } })) do attention(o) end
gpu.finish()
