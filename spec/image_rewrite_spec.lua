-- Checks rewrites over images (runtime/plan/ir/image_patterns.c), as spec/rewrite_spec.lua does the others: each
-- pattern must be found, give the bits of the separate nodes, and move or hold fewer bytes than they do.
require 'spec.helper'
local wane = require 'wane'
local array = require 'spec.cases.array'
local rewrites = require 'spec.support.rewrites'

local nn = wane.nn
local run, better, backward = rewrites.run, rewrites.better, rewrites.backward

describe('a convolution', function()
    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('takes the elementwise op over it: ' .. dtype, function()
            better(function()
                local o = { dtype = dtype }
                local a, b = nn.Conv2d(3, 32, 3, { padding = 1, dtype = dtype }), nn.Conv2d(32, 20, 1, o)
                local c = nn.Conv2d(20, 20, 3, { groups = 20, dtype = dtype })
                local y = c(b(a(wane.randn(2, 3, 9, 7, o)):relu()):gelu())
                return backward((y ^ 2):mean(), { a.weight, a.bias, b.weight, b.bias, c.weight })
            end, 'conv2d+relu')
        end)
    end
end)

describe('a convolution under a norm in evaluation', function()
    -- Returns the bytes of the buffer of a norm's rstd, which is computed before the convolution instead of behind it.
    local function rstd_bytes(dtype, c)
        return math.ceil(c * ({ f32 = 4, f64 = 8, bf16 = 2 })[dtype] / 256) * 256
    end

    -- Returns a function that records a residual block in evaluation, over images of a width and c channels.
    local function block(dtype, width, groups, c)
        return function()
            local o = { padding = 1, bias = false, dtype = dtype }
            local a, n = nn.Conv2d(4, c, 3, o), nn.BatchNorm2d(c, { dtype = dtype })
            local g = nn.Conv2d(c, c, 3, { groups = groups, dtype = dtype })
            local m, b = nn.BatchNorm2d(c, { dtype = dtype }), nn.Conv2d(c, c, 1, { dtype = dtype })
            local l = nn.BatchNorm2d(c, { dtype = dtype })
            for _, norm in ipairs { n, m, l } do
                norm.running_mean:assign(wane.randn(c, { dtype = dtype }))
                norm.running_var:assign(wane.rand(c, { dtype = dtype }) + 0.5)
                norm.weight:assign(wane.randn(c, { dtype = dtype }))
                norm:eval()
            end
            local x = n(a(wane.randn(3, 4, width, width, { dtype = dtype }))):relu()
            local z = m(g(x)):clamp(0, 1)
            local y = ((l(b(z)) + z):relu()):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end
    end

    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('takes the norm and what follows into one pass: ' .. dtype, function()
            local rows = { { 9, 1, 32 }, { 27, 1, 32 }, { 9, 32, 32 }, { 12, 4, 32 }, { 17, 1, 176 }, { 7, 272, 272 } }
            for _, row in ipairs(rows) do
                local fused = better(block(dtype, unpack(row)), 'conv2d+batch_norm+relu',
                    rstd_bytes(dtype, row[3]))
                local list = ' ' .. table.concat(fused.ops, ' ') .. ' '
                assert.is_truthy(list:find(' conv2d+batch_norm+clamp ', 1, true), row[1] .. ' ' .. row[2] .. list)
                assert.is_truthy(list:find(' conv2d+batch_norm+add+relu ', 1, true), list)
                assert.is_nil(fused.count.batch_norm)
            end
        end)
    end

    it('takes a norm that nothing follows', function()
        better(function()
            local a, n, b = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3)
            n:eval()
            local y = b(n(a(wane.randn(2, 3, 9, 7)))):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end, 'conv2d+batch_norm', rstd_bytes('f32', 16))
    end)

    it('takes one more image and the numbers of one step', function()
        local a, n, x = nn.Conv2d(16, 16, 3, { padding = 1 }), nn.BatchNorm2d(16), wane.randn(2, 16, 9, 7):retain()
        n:eval()
        local z, u = wane.eval(a(x * 3)), wane.eval(a(x * 4))
        local function of(make, word)
            return better(function()
                local y = (make(n(a(x * 2))) * 2):retain()
                return { mode = 'eval', roots = { y } }, { y }
            end, word, rstd_bytes('f32', 16))
        end
        of(function(y) return y:clamp(-1, 0.5):clamp(0, 1) end, 'conv2d+batch_norm+clamp')
        of(function(y) return y + z - u end, 'conv2d+batch_norm+add')
        of(function(y) return u - z * y end, 'conv2d+batch_norm+mul')
    end)

    it('is left alone where its sum is read elsewhere, has its own statistics, or is differentiated', function()
        local function count(build)
            local r = run(build)
            return r.count['conv2d+batch_norm+relu'] or r.count['conv2d+batch_norm'] or 0
        end
        local a, n = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
        n:eval()
        local x = wane.randn(2, 3, 9, 7)
        local function of(make)
            return function()
                local y = make():retain()
                return { mode = 'eval', roots = { y } }, { y }
            end
        end
        assert.equal(1, count(of(function() return n(a(x)):relu() end)))
        assert.equal(0, count(of(function()
            local y = a(x)
            return n(y):relu() + y
        end)))
        assert.equal(0, count(of(function() return nn.GroupNorm(4, 16)(a(x)):relu() end)))
        assert.equal(0, count(of(function()
            local given = { wane.randn(2, 4):retain(), wane.rand(2, 4):retain(), n.weight, n.bias }
            return array.record('batch_norm', { a(x), unpack(given) }, { i = { 4 } }):relu()
        end)))
        assert.equal(0, count(function() return backward((n(a(x)):relu() ^ 2):mean(), { a.weight, n.weight }) end))
        n:train()
        assert.equal(0, count(of(function() return n(a(x)):relu() end)))
    end)
end)

describe('a norm over channels', function()
    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('takes relu and the residual into its pass, and relu\'s gradient into its own: ' .. dtype, function()
            local fused = better(function()
                local o = { padding = 1, bias = false, dtype = dtype }
                local a, b = nn.Conv2d(3, 16, 3, o), nn.Conv2d(16, 16, 3, o)
                local n, m = nn.BatchNorm2d(16, { dtype = dtype }), nn.BatchNorm2d(16, { dtype = dtype })
                local x = n(a(wane.randn(2, 3, 9, 7, { dtype = dtype }))):relu()
                local loss = ((m(b(x)) + x):relu() ^ 2):mean()
                return backward(loss, { a.weight, b.weight, n.weight, n.bias, m.weight, m.bias })
            end, 'batch_norm+relu')
            local list = ' ' .. table.concat(fused.ops, ' ') .. ' '
            assert.is_truthy(list:find(' batch_norm+add+relu ', 1, true), list)
            assert.is_truthy(list:find(' relu_norm_sums .*relu_norm_dx '), list)
        end)
    end

    it('of groups, and in evaluation, does so too', function()
        better(function()
            local a, n = nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16)
            local loss = (n(a(wane.randn(2, 3, 19, 17))):relu() ^ 2):mean()
            return backward(loss, { a.weight, n.weight, n.bias })
        end, 'relu_norm_dx')
        better(function()
            local n = nn.BatchNorm2d(16)
            n:eval()
            local y = nn.Conv2d(16, 32, 3)(n(wane.randn(2, 16, 9, 7) * 2):clamp(0, 6)):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end, 'batch_norm+clamp')
    end)

    it('is left alone where something else reads the value between', function()
        local r = run(function()
            local a, n = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
            local y = n(a(wane.randn(2, 3, 9, 7)))
            local loss = (y:relu() * y):mean()
            return backward(loss, { a.weight, n.weight })
        end)
        assert.equal(1, r.count.batch_norm)
        assert.equal(1, r.count.batch_norm_dx)
        r = run(function()
            local a, n = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
            local y = n(a(wane.randn(2, 3, 9, 7))):relu():retain()
            local loss = (y ^ 2):mean()
            local z = n.weight * 1
            return { mode = 'backward', roots = { loss + z:sum() } }, function() return { y, a.weight.grad } end
        end)
        assert.equal(1, r.count['batch_norm+relu'])
    end)
end)
