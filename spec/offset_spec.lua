-- Checks that offsets of narrow (x[i], select, split, chunk) are bound at a run: a loop over slices plans once, every
-- step has the numbers of its own slice, and no decision depends on where a slice begins.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local wane = helper.wane
local nn, optim = wane.nn, wane.optim
local C = binding.C

local LONG = os.getenv 'WANE_SPEC_LONG' == '1'

local function plans()
    return tonumber(C.wn_debug_get('plans_made'))
end

-- Checks that nested lists hold equal numbers, and none that is not a number.
local function same(wanted, got)
    assert.equal(#wanted, #got)
    for k, v in ipairs(wanted) do
        if type(v) == 'table' then same(v, got[k]) else assert(v == got[k], ('%s, not %s'):format(got[k], v)) end
    end
end

-- Returns positions first to first + length - 1 of a dim by indices, which are data.
local function picked(x, dim, first, length)
    local ids = {}
    for k = 1, length do ids[k] = first + k - 2 end
    return x:index_select(dim, wane.tensor(ids, { dtype = 'i32' }))
end

-- `ways` holds how a slice of `length` positions is written: function(x, dim, first, length).
local ways = {
    narrow = function(x, dim, first, length) return x:narrow(dim, first, length) end,
    ['narrow from the end'] = function(x, dim, first, length) return x:narrow(dim, first - x:size(dim) - 1, length) end,
    select = function(x, dim, first, length)
        local list = {}
        for k = 1, length do list[k] = x:select(dim, first + k - 1) end
        return wane.stack(list, dim)
    end,
    ['narrow of a narrow'] = function(x, dim, first, length)
        return x:narrow(dim, first, x:size(dim) - first + 1):narrow(dim, 1, length)
    end,
    split = function(x, dim, first, length)
        local rest = x:size(dim) - first - length + 1
        local _, middle = x:split({ first - 1, length, rest }, dim)
        return middle
    end,
}
local plans_of = { ['narrow of a narrow'] = 'a length of its own at each step', split = 'lengths of its own' }

-- `sources` holds the values that are cut: function(held, parameter) -> a value of shape (6, 5, 4) whose gradient
-- reaches the parameter.
local sources = {
    ['an input'] = function(x) return x end,
    ['a parameter'] = function(_, w) return w end,
    ['a computed value'] = function(x, w) return (x * w):tanh() end,
}

describe('a slice', function()
    -- Runs a step that reads two positions of s.dim, from `first` on, twice; returns its loss and gradient. The fields
    -- of s are source, x, w and dim.
    local function step(s, cut, first, how)
        local w = s.w
        local function loss()
            local part = cut(s.source(s.x, w), s.dim, first, 2)
            local beside = cut(w, s.dim, first, 2)
            return (part * beside):gelu():mean() + part:sum() * 0.1
        end
        binding.check(C.wn_cell_drop_grad(w.id))
        local y = how == 'region' and wane.checkpoint(loss) or loss()
        y:backward { policy = how ~= 'region' and how or nil, again = true }
        local out = { y:item(), w.grad:totable() }
        return out
    end

    for way, cut in pairs(ways) do
        it(('by %s has the numbers of its own position, whatever was planned before'):format(way), function()
            wane.manual_seed(5)
            local x = wane.eval(wane.randn(6, 5, 4))
            local w = nn.Parameter(wane.randn(6, 5, 4))
            for name, source in pairs(sources) do
                for dim = 1, LONG and 3 or 2 do
                    for _, how in ipairs { 'save_all', 'recompute_all', 'region' } do
                        local before
                        local s = { source = source, x = x, w = w, dim = dim }
                        for first = 1, x:size(dim) - 1 do
                            local wanted = step(s, picked, first, 'save_all')
                            local start = plans()
                            same(wanted, step(s, cut, first, how))
                            if before and not plans_of[way] then
                                assert(plans() == start, ('%s of dim %d under %s plans again'):format(name, dim, how))
                            end
                            before = true
                        end
                    end
                end
            end
        end)
    end

    it('of data and labels in a loop of an optimizer plans no step again, and trains as tensors made for it do',
        function()
            local data, labels = wane.eval(wane.randn(40, 8)), wane.eval(wane.randn(40, 3))
            local function train(batch)
                wane.manual_seed(9)
                local m = nn.Sequential { nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3) }
                local o, made = optim.Adam(m:parameters(), { lr = 1e-2 }), nil
                for i = 0, 9 do
                    local x, y = batch(data, i), batch(labels, i)
                    o:step(nn.mse_loss(m(x), y))
                    if i == 1 then made = plans() end
                end
                return { m[1].weight:totable(), m[4].bias:totable() }, plans() - made
            end
            local wanted = train(function(t, i) return wane.eval(picked(t, 1, 4 * i + 1, 4)) end)
            local got, again = train(function(t, i) return t:narrow(1, 4 * i + 1, 4) end)
            same(wanted, got)
            assert.equal(0, again)
            assert.equal(0, select(2, train(function(t, i) return t[i + 1]:reshape(1, -1) end)))
        end)

    it('stays apart from another of the same value, however their offsets agree in a step', function()
        local x, w = wane.eval(wane.arange(0, 8)), nn.Parameter(wane.ones(8))
        for _, at in ipairs { { 1, 1 }, { 1, 5 }, { 5, 1 }, { 3, 4 } } do
            binding.check(C.wn_cell_drop_grad(w.id))
            local a, b = (x * w):narrow(1, at[1], 4), (x * w):narrow(1, at[2], 4)
            ;(a * 1 + b * 10):sum():backward()
            local g = w.grad:totable()
            for k = 1, 8 do
                local wanted = (k >= at[1] and k < at[1] + 4 and 1 or 0) + (k >= at[2] and k < at[2] + 4 and 10 or 0)
                assert.equal((k - 1) * wanted, g[k])
            end
        end
    end)

    it('is differentiated twice at its own position', function()
        local w = nn.Parameter(wane.tensor { 1, 2, 3, 4, 5, 6 })
        for first = 1, 4 do
            local y = (w:narrow(1, first, 3) ^ 3):sum()
            local g = wane.grad(y, { w })[1]
            local second = wane.grad((g * g):sum(), { w })[1]:totable() -- of (3 w^2)^2 = 9 w^4: 36 w^3
            for k = 1, 6 do
                assert.equal(k >= first and k < first + 3 and 36 * k ^ 3 or 0, second[k])
            end
        end
    end)

    it('takes the bytes it was planned to take, wherever it begins', function()
        local m, x = nn.Linear(8, 8), wane.eval(wane.randn(32, 8))
        local reserved
        for _, first in ipairs { 1, 3, 17, 25 } do
            local r = wane.measure(function() return (m(x:narrow(1, first, 8)):gelu() ^ 2):sum() end, { steps = 1 })
            assert(r.exact)
            assert.equal(reserved or r.reserved, r.reserved)
            reserved = r.reserved
        end
    end)

    it('is refused where it leaves the dim, at every step anew', function()
        local x = wane.eval(wane.randn(8, 2))
        for first = 1, 6 do wane.eval(x:narrow(1, first, 3):sum()) end
        for _, first in ipairs { 0, 7, 9, -2, 1.5, 0 / 0 } do
            assert.has_error(function() return x:narrow(1, first, 3) end)
        end
        assert.has_error(function() return x[9] end)
    end)

    it('says its own position to those who look at a plan', function()
        local x, w = wane.eval(wane.randn(8, 2)), nn.Parameter(wane.ones(3, 2))
        for first = 1, 6 do
            local p = wane.plan(function() return (x:narrow(1, first, 3) * w):sum() end)
            local found
            for _, node in ipairs(p.parts[1].program:graph()) do
                found = found or node.op == 'narrow' and node.ints[2]
            end
            assert.equal(first - 1, found)
        end
    end)
end)
