-- Checks attention of bf16 by tensor cores, heads of 64 and 128, on a GPU: results and gradients against f64 within the
-- tolerance of bf16, NaN refused, for sizes around the tiles, grouped key heads, causal and not; the CPU's dropout
-- masks to the element; the same bits every time; and that these kernels are the ones that ran.
local helper = require 'spec.helper'
local gradcheck = require 'spec.support.gradcheck'
local op = require 'wane.tensor.op'
local sim = require 'spec.support.cudasim'
local wane = helper.wane
local nn, on = wane.nn, helper.on

local has_cuda = pcall(op.device, 'cuda', 'spec')
local TOLERANCE = 0.02 -- of the largest element: weights and gradients of weights are rounded to bf16

-- Returns qkv and dy of a case, (B, T, (H + 2 K) hd) and (B, T, H hd), of bf16, on the default device.
local function inputs(case)
    wane.manual_seed(7)
    local width = (case.heads + 2 * case.kv_heads) * case.size
    local qkv = wane.eval(wane.randn(case.batch, case.time, width):to 'bf16')
    return qkv, wane.eval(wane.randn(case.batch, case.time, case.heads * case.size):to 'bf16')
end

-- Returns the result and the gradient of a case in a dtype.
local function run(case, dtype)
    local qkv, dy = inputs(case)
    local x = nn.Parameter(wane.eval(qkv:to(dtype)))
    wane.manual_seed(9)
    local y = op.record('attention', { x }, { i = { case.heads, case.kv_heads, case.causal and 1 or 0 },
        f = { case.dropout, case.size ^ -0.5 } }):retain()
    local loss = (y * dy:to(dtype)):sum()
    loss:backward()
    return y, x.grad
end

-- Returns the largest difference of two tensors over the largest element; infinite where one is not finite.
local function off(have, want)
    local a, b = gradcheck.values(have), gradcheck.values(want)
    local most, worst = 0, 0
    assert.equal(#b, #a)
    for i = 1, #a do
        if a[i] ~= a[i] or b[i] ~= b[i] then return math.huge end
        most, worst = math.max(most, math.abs(b[i])), math.max(worst, math.abs(a[i] - b[i]))
    end
    return worst / most
end

local CASES = {}
for _, size in ipairs { 64, 128 } do
    for _, time in ipairs { 1, 5, 17, 63, 64, 65, 130, 200 } do
        for _, causal in ipairs { true, false } do
            for _, dropout in ipairs { 0, 0.3 } do
                local heads = time % 2 == 1 and 2 or 4
                CASES[#CASES + 1] = { batch = time < 64 and 2 or 1, time = time, heads = heads, size = size,
                    kv_heads = time == 64 and 1 or 2, causal = causal, dropout = dropout }
            end
        end
    end
end
CASES[#CASES + 1] = { batch = 1, time = 132, heads = 2, kv_heads = 1, size = 64, causal = true, dropout = 0.2 }

describe('attention by tensor cores', function()
    if not has_cuda then
        pending('needs the simulated GPU: make cudasim')
        return
    end

    for _, case in ipairs(CASES) do
        local name = ('%d of %d, heads of %d%s%s'):format(case.heads, case.time, case.size,
            case.causal and ', causal' or '', case.dropout > 0 and ', dropout' or '')
        it('agrees with f64 and repeats its bits: ' .. name, function()
            local want, want_grad = on('cpu', run, case, 'f64')
            local have, grad = on('cuda', run, case, 'bf16')
            local result, gradient = off(have, want), off(grad, want_grad)
            assert(result <= TOLERANCE, ('the result is off by %g'):format(result))
            assert(gradient <= TOLERANCE, ('the gradient is off by %g'):format(gradient))
            local again, grad_again = on('cuda', run, case, 'bf16')
            assert.is_true(gradcheck.bytes(have) == gradcheck.bytes(again))
            assert.is_true(gradcheck.bytes(grad) == gradcheck.bytes(grad_again))
        end)
    end

    it('is computed by them: 128 threads a block, where the others have 256', function()
        if sim.missing() then return pending 'only the simulated GPU counts threads' end
        for _, case in ipairs { { 'bf16', 64, 128 }, { 'bf16', 128, 128 }, { 'bf16', 96, 256 }, { 'f32', 64, 256 } } do
            on('cuda', function()
                local x = wane.eval(wane.randn(1, 70, 3 * case[2], { dtype = case[1] }))
                local before = sim.counters()
                wane.eval(op.record('attention', { x }, { i = { 1, 1, 1 }, f = { 0, 1 } }))
                local after = sim.counters()
                assert.equal(case[3], (after.threads - before.threads) / (after.blocks - before.blocks))
            end)
        end
    end)

    it('is NaN in the rows whose query or keys are, as on the CPU', function()
        local TIME, SIZE = 150, 64
        -- Returns which rows of a result have a NaN; bad: the element of qkv that is one.
        local function rows(device, dtype, bad)
            return on(device, function()
                wane.manual_seed(3)
                local qkv = wane.randn(1, TIME, 3 * SIZE):totable()
                qkv[1][bad[1]][bad[2]] = 0 / 0
                local x = wane.eval(wane.tensor(qkv):to(dtype))
                local y = wane.eval(op.record('attention', { x }, { i = { 1, 1, 1 }, f = { 0, 0.125 } }))
                return gradcheck.bytes(wane.eval(wane.isnan(y:to 'f32'):to 'f32':sum(-1):gt(0)))
            end)
        end
        for _, bad in ipairs { { 1, 3 }, { 70, SIZE }, { 150, 1 }, { 1, SIZE + 5 }, { 66, SIZE + 1 }, { 149, 128 } } do
            local want = rows('cpu', 'f32', bad)
            assert.truthy(want:find '\1')
            assert.is_true(want == rows('cuda', 'bf16', bad), ('element %d of row %d'):format(bad[2], bad[1]))
        end
    end)

    it('drops the very weights that the CPU drops', function()
        -- With equal scores and values that tell one key, a result says which weights were kept.
        for _, time in ipairs { 64, 62 } do
            local function masks(device, dtype)
                return on(device, function()
                    local qkv = {}
                    for t = 1, time do
                        qkv[t] = {}
                        for f = 1, 192 do qkv[t][f] = f == 128 + t and 1 or 0 end
                    end
                    local x = wane.eval(wane.tensor({ qkv }):to(dtype))
                    wane.manual_seed(5)
                    local y = wane.eval(op.record('attention', { x }, { i = { 1, 1, 0 }, f = { 0.4, 0.125 } }):gt(0))
                    return gradcheck.bytes(y)
                end)
            end
            assert.is_true(masks('cpu', 'f32') == masks('cuda', 'bf16'), 'T = ' .. time)
        end
    end)
end)
