-- Compares attention with masks and contexts with numbers that PyTorch printed (spec/fixtures/torch_attention.lua), and
-- checks shapes of masks, plans, autocast and misuse.
require 'spec.helper'
local wane = require 'wane'
local fixture = require 'spec.fixtures.torch_attention'
local waves = require 'spec.support.waves'
local nn, near = wane.nn, waves.near

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

    it('gives equal bits under every plan, as predicted to the byte, and is trained', function()
        local m = nn.Attention(8, 2, { dropout = 0.25 })
        local x, c = wane.randn(2, 3, 8):retain(), wane.randn(2, 5, 8):retain()
        local mask = wane.eval(wane.ones(2, 1, 1, 5, { dtype = 'u8' }))
        local function fn() return m(x, { context = c, mask = mask }):sum() end
        for _, p in ipairs { 'save_all', 'recompute_all', 'every(1)' } do
            assert(wane.check(fn, { policy = p }).ok ~= false)
            local r = wane.measure(fn, { steps = 1, warmup = 0, policy = p })
            assert.equal(r.predicted_peak, r.peak)
        end
        local opt = wane.optim.SGD(m:parameters(), { lr = 0.1 })
        for _ = 1, 3 do assert.equal(0, opt:step(m(x, { mask = SOME }):sum()):dim()) end
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
            local ok, e = pcall(case[3], case[3] == nn.Attention and case[4] or x, case[3] == nn.Attention and case[5]
                or case[4], case[6])
            assert.is_false(ok, case[2])
            assert.equal(case[1], e.code, tostring(e))
            assert.is_truthy(e.message:find(case[2], 1, true), e.message)
        end
    end)
end)
