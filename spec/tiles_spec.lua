-- Checks gradients of values that are read in slices: whatever dims they cut, whatever order they are recorded in, and
-- whatever was planned before, the gradient is that of reading the same positions by indices; slices that tile a value
-- cost no more than it.
require 'spec.helper'
local wane = require 'wane'
local dice = require 'spec.support.dice'
local programs = require 'spec.support.programs'
local C, nn = require 'wane.ffi'.C, wane.nn

local LONG = os.getenv 'WANE_SPEC_LONG' == '1'

-- Returns positions first to first + length - 1 of a dim by indices, which no slice is part of.
local function picked(x, dim, first, length)
    local ids = {}
    for k = 1, length do ids[k] = first + k - 2 end
    return x:index_select(dim, wane.tensor(ids, { dtype = 'i32' }))
end

local function narrowed(x, dim, first, length) return x:narrow(dim, first, length) end

-- Returns cuts of a dim of `size`: { dim, first, length } side by side, shuffled.
local function tiling(d, dim, size)
    local cuts, at = {}, 1
    while at <= size do
        local length = math.min(d(3), size - at + 1)
        cuts[#cuts + 1] = { dim, at, length }
        at = at + length
    end
    for i = #cuts, 2, -1 do
        local k = d(i)
        cuts[i], cuts[k] = cuts[k], cuts[i]
    end
    return cuts
end

-- Returns a loss that reads the cuts of v, each in a way of its own, by the function `cut`.
local function loss_of(v, cuts, cut)
    local loss = 0
    for i, c in ipairs(cuts) do
        local s = cut(v, c[1], c[2], c[3])
        if c.inner then s = cut(s, c.inner, 1, 1) end
        if c.is_dead then s = s:detach() end
        loss = loss + ((i % 3 == 0 and s or i % 3 == 1 and s * s or s:tanh()) * (i + 1)):sum()
    end
    return loss
end

-- Returns the bytes of the gradient of w by a loss.
local function gradient(w, make, opts)
    w.grad = nil
    make():backward(opts)
    return programs.bytes { w.grad }
end

-- Returns the value that a gradient has now.
local function copy(g)
    local t = (g * 1):retain()
    wane.eval(t)
    return t
end

local function close(a, b)
    assert.is_true((a - b):abs():max():item() < 1e-12)
end

describe('slices of a value', function()
    it('give it the gradient of reading it by indices, in random cuts, orders and mixtures', function()
        local d = dice(41)
        for _ = 1, LONG and 200 or 25 do
            local shape = { d(5), d(6), d(4) }
            local w = nn.Parameter(wane.randn(shape, { dtype = 'f64' }))
            local dim = d(3)
            local cuts = tiling(d, dim, shape[dim])
            local kind = d(5)
            if kind == 2 then cuts[#cuts] = { dim, 1, shape[dim] }                 -- overlaps, or leaves a hole
            elseif kind == 3 then cuts[1].is_dead = true                          -- one without a gradient
            elseif kind == 4 then cuts[1].inner = dim % 3 + 1                      -- a slice of a slice
            elseif kind == 5 then cuts[#cuts + 1] = { dim % 3 + 1, 1, 1 } end      -- another dim too
            local is_computed, has_more = d(2) == 1, d(2) == 1
            local function make(cut)
                local v = is_computed and (w * 2):tanh() or w
                local loss = loss_of(v, cuts, cut)
                if has_more then loss = loss + (v * v * v):sum() end
                return loss + (w * 0):sum()
            end
            w.grad = nil
            make(picked):backward()
            local want = copy(w.grad)
            local bits = gradient(w, function() return make(narrowed) end)
            close(want, w.grad)
            for _, policy in ipairs { 'recompute_all', 'sqrt' } do
                assert.same(bits, gradient(w, function() return make(narrowed) end, { policy = policy }))
            end
            local m = wane.measure(function() return make(narrowed) end, { steps = 1, warmup = 0 })
            assert.equal(m.predicted_peak, m.peak)
        end
    end)

    it('are told apart from slices of the same sizes in another order, whatever was planned before', function()
        local w = nn.Parameter(wane.randn(6, 2, { dtype = 'f64' }))
        local orders = { { { 1, 1, 2 }, { 1, 3, 4 } }, { { 1, 5, 2 }, { 1, 1, 4 } }, { { 1, 2, 2 }, { 1, 3, 4 } },
            { { 1, 1, 2 }, { 1, 2, 4 } } }
        for _ = 1, 2 do
            for _, cuts in ipairs(orders) do
                local function make(cut) return loss_of(w, cuts, cut) end
                w.grad = nil
                make(picked):backward()
                local want = copy(w.grad)
                gradient(w, function() return make(narrowed) end)
                close(want, w.grad)
            end
        end
    end)

    it('that leave something out are planned once, wherever they begin, though they are read again', function()
        local w, before = nn.Parameter(wane.randn(4, 3, { dtype = 'f64' })), nil
        for first = 1, 3 do
            local cuts = { { 1, first, 2 }, { 1, first, 2 }, { 1, first, 1 } }
            w.grad = nil
            loss_of(w, cuts, picked):backward()
            local want = copy(w.grad)
            before = first > 1 and tonumber(C.wn_debug_get 'plans_made') or before
            gradient(w, function() return loss_of(w, cuts, narrowed) end)
            assert(first == 1 or tonumber(C.wn_debug_get 'plans_made') == before, first)
            close(want, w.grad)
        end
    end)

    it('of two losses in one pass, and gradients of gradients, are those by indices', function()
        local w = nn.Parameter(wane.randn(4, 6, { dtype = 'f64' }))
        local function losses(cut)
            return (cut(w, 2, 1, 3) ^ 3):sum() + (cut(w, 2, 2, 2) ^ 2):sum(), (cut(w, 2, 4, 3) ^ 3):sum()
        end
        local function twice(cut)
            local v = w * w
            local y = (cut(v, 1, 3, 2) ^ 2):sum() + (cut(v, 1, 1, 2) ^ 3):sum()
            local g = wane.grad(y, { w })
            g = type(g) == 'table' and g[1] or g
            return (g * g):sum()
        end
        local found = {}
        for _, cut in ipairs { picked, narrowed } do
            w.grad = nil
            wane.backward { losses(cut) }
            local joint = copy(w.grad)
            w.grad = nil
            twice(cut):backward()
            found[#found + 1] = { joint, copy(w.grad) }
        end
        close(found[1][1], found[2][1])
        close(found[1][2], found[2][2])
    end)

    it('that tile a value by the thousand take the bytes of the value twice, and time in proportion', function()
        local w = nn.Parameter(wane.randn(2100, 64))
        local function step()
            local v, loss = w * 2, 0
            local list = {}
            for k = 1, 2100 do list[k] = v:narrow(1, k, 1) end
            for first = 1, 2100, 700 do
                local part = {}
                for k = first, first + 699 do part[#part + 1] = list[k] end
                loss = loss + (wane.cat(part, 1) ^ 2):sum()
            end
            return loss
        end
        local m = wane.measure(step, { steps = 1, warmup = 0 })
        assert.is_true(m.exact)
        local bytes = 2100 * 64 * 4
        assert.is_true(m.peak < 8 * bytes, ('%d bytes, of a value of %d'):format(m.peak, bytes))
        w.grad = nil
        step():backward()
        assert.is_true((w.grad - w * 8):abs():max():item() < 1e-5)
    end)
end)
