-- Compares nn.LSTM and nn.GRU with numbers that PyTorch printed (spec/fixtures/torch_attention.lua), and checks states,
-- plans, files and misuse.
local helper = require 'spec.helper'
local wane = require 'wane'
local programs = require 'spec.support.programs'
local fixture = require 'spec.fixtures.torch_attention'
local waves = require 'spec.support.waves'
local nn, near = wane.nn, waves.near

local function fill(shape, k, dtype, factor) return waves.fill(shape, k, { dtype = dtype, factor = factor }) end

local function layer(kind, dtype, opts)
    opts.dtype = dtype
    local m = nn[kind](3, 4, opts)
    for k, p in ipairs(m:parameters()) do p:assign(fill(p.shape, 9 + k, dtype, 0.5)) end
    return m
end

for _, kind in ipairs { 'LSTM', 'GRU' } do
    describe('nn.' .. kind, function()
        for dtype, tolerance in pairs { f64 = 1e-11, f32 = 1e-4 } do
            it('is that of PyTorch, plain and with all options, ' .. dtype, function()
                for _, form in ipairs { 'plain', 'all' } do
                    local want, is_all = fixture[kind:lower() .. '_' .. form], form == 'all'
                    local m = layer(kind, dtype, { num_layers = is_all and 2 or 1, bidirectional = is_all,
                        batch_first = is_all })
                    local x = nn.Parameter(fill(is_all and { 2, 5, 3 } or { 5, 2, 3 }, 1, dtype))
                    local h0 = nn.Parameter(fill({ 4, 2, 4 }, 2, dtype))
                    local c0 = fill({ 4, 2, 4 }, 3, dtype)
                    local y, h, c = m(x, is_all and { h = h0, c = kind == 'LSTM' and c0 or nil } or nil)
                    local loss = (y * y):sum() + (h * 2):sum()
                    if c then loss = loss + c:sum() end
                    near(want.y, y:retain(), tolerance, 'y')
                    near(want.h, h:retain(), tolerance, 'h')
                    if want.c then near(want.c, c:retain(), tolerance, 'c') end
                    loss:backward()
                    near(want.dx, x.grad, tolerance, 'dx')
                    near(want.dw, m.weight_ih_l0.grad, tolerance, 'dw')
                    if want.dh then near(want.dh, h0.grad, tolerance, 'dh') end
                end
            end)
        end

        it('goes on from its state with the same numbers, trains, and is kept by a file', function()
            local m, x = nn[kind](3, 4, { num_layers = 2 }), wane.randn(6, 2, 3):retain()
            local whole = m(x)
            local _, h, c = m(x:narrow(1, 1, 4))
            local rest = m(x:narrow(1, 5, 2), { h = h, c = c })
            assert.is_true((whole:narrow(1, 5, 2) - rest):abs():max():item() < 1e-6)
            local opt = wane.optim.Adam(m:parameters(), { lr = 0.02 })
            local first, last
            for _ = 1, 20 do
                last = opt:step((m(x) ^ 2):sum()):item()
                first = first or last
            end
            assert.is_true(last < first)
            local path, other = os.tmpname(), nn[kind](3, 4, { num_layers = 2 })
            wane.save(path, m)
            wane.load(path, other)
            os.remove(path)
            assert.same(programs.bytes(m:parameters()), programs.bytes(other:parameters()))
        end)

        it('takes bf16, autocast, no bias, dropout between layers and steps', function()
            local m = nn[kind](3, 4, { num_layers = 2, bias = false, dropout = 0.5 })
            assert.equal(4, #m:parameters())
            local x = wane.randn(5, 2, 3):retain()
            assert.is_true((m(x) - m(x)):abs():max():item() > 0)
            m:eval()
            local want = m(x):retain()
            local low = wane.autocast('bf16', m, x):to 'f32'
            assert.is_true((low - want):abs():max():item() < 0.02)
            local half = nn[kind](3, 4, { dtype = 'bf16' })
            assert.equal('bf16', half(x:to 'bf16').dtype)
            local opt = wane.optim.SGD(m:parameters(), { lr = 0.1 })
            for _ = 1, 3 do assert.equal(0, opt:step(m(x):sum()):dim()) end
        end)

        it('refuses what does not fit', function()
            local m, x = nn[kind](3, 4), wane.ones(5, 2, 3)
            for _, case in ipairs {
                { 'shape', '(time, batch, 3)', m, wane.ones(5, 3) },
                { 'shape', 'no steps', m, wane.ones(0, 2, 3) },
                { 'shape', '(1, 2, 4)', m, x, { h = wane.ones(2, 4) } },
                { 'value', 'the state', m, x, x },
                { 'value', 'between layers', nn[kind], 3, 4, { dropout = 0.5 } },
                { 'value', "'layers'", nn[kind], 3, 4, { layers = 2 } },
                { 'value', 'bidirectional', nn[kind], 3, 4, { bidirectional = 2 } },
            } do
                helper.refused(case[1], function() case[3](case[4], case[5], case[6]) end, case[2])
            end
        end)
    end)
end
