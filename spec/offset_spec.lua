-- Checks what is bound at a run. Offsets of narrow (x[i], select, split, chunk): a loop over slices plans once, every
-- step has the numbers of its own slice, and no decision depends on where a slice begins. Then policies, masks and
-- lines, each of which is that of its own recording.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local wane = helper.wane
local dice = helper.dice
local programs = require 'spec.support.programs'
local nn = wane.nn
local C = binding.C

local LONG = helper.is_long

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

-- ---- slices that tile a value --------------------------------------------------------------------------------------
-- Checks gradients of values that are read in slices: whatever dims they cut, whatever order they are recorded in, and
-- whatever was planned before, the gradient is that of reading the same positions by indices; slices that tile a value
-- cost no more than it.
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
        local function twice(cut, first)
            local v = w * w
            local y = (cut(v, 1, first, 2) ^ 2):sum() + (cut(v, 1, 1, 2) ^ 3):sum()
            local g = wane.grad(y, { w })
            g = type(g) == 'table' and g[1] or g
            return (g * g):sum()
        end
        local found = {}
        for k, cut in ipairs { picked, narrowed } do
            w.grad = nil
            wane.backward { losses(cut) }
            found[k] = { copy(w.grad) }
            for first = 1, 3 do
                w.grad = nil
                twice(cut, first):backward()
                table.insert(found[k], copy(w.grad))
            end
        end
        for k = 1, 4 do close(found[1][k], found[2][k]) end
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

-- ---- what else is bound at a run ------------------------------------------------------------------------------------
describe('what is bound at run', function()
    it('is the policy of the model that was recorded, though another of the same path came later', function()
        local function build() return nn.Sequential { nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.GELU() } end
        local a, b, x = build():checkpoint('every(2)'), build(), wane.eval(wane.randn(4, 8))
        local loss_a = a(x):sum()
        wane.eval(wane.ones(2)) -- another program: paths are free again
        local loss_b = b(x):sum()
        local seen = {}
        wane.scoped('listen', function(p) seen[#seen + 1] = require('wane.plan').alone(p).recomputed end, function()
            loss_a:backward()
            loss_b:backward()
            a(x):sum():backward { policy = wane.policy.by_op { gelu = 'save' } }
        end)
        assert(seen[1] > 0, seen[1])
        assert.equal(0, seen[2])
    end)

    it('is what a function of a residual says now, in every question before a run', function()
        local model, x, word = nn.MLP(8, 16), wane.eval(wane.randn(4, 8)), 'save'
        local function loss() return model(x):sum() end
        local opts = { policy = function() return word end }
        local saved = { wane.plan(loss, opts).recomputed, wane.min_budget(loss, opts), #wane.frontier(loss, opts).all }
        word = 'recompute'
        local dropped = { wane.plan(loss, opts).recomputed, wane.min_budget(loss, opts) }
        assert.equal(0, saved[1])
        assert(dropped[1] > 0)
        word = 'save'
        assert.same(saved, { wane.plan(loss, opts).recomputed, wane.min_budget(loss, opts),
            #wane.frontier(loss, opts).all })
    end)

    it('counts the modules of a list that record nothing, of the model that was recorded', function()
        local function build(n)
            local list = { nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU() }
            for k = 1, n do list[4 + k] = nn.Identity() end
            return nn.Sequential(list)
        end
        local x = wane.eval(wane.randn(4, 8))
        local function recipe(model)
            return tostring(wane.plan(function() return model(x):sum() end, { policy = 'segments(2)' }):recipe())
        end
        local short, long = build(0), build(4)
        local of_short, of_long = recipe(short), recipe(long)
        assert.not_equal(of_short, of_long)
        assert.equal(of_short, recipe(short))
        assert.equal(of_long, recipe(build(4)))
    end)

    it('is the mask of each dropout, also where the plan was made while two of them drew the same numbers', function()
        local x, w, drop = wane.eval(wane.ones(64)), nn.Parameter(wane.ones(64)), nn.Dropout(0.5)
        local function step(again)
            wane.manual_seed(3)
            local a = drop(x * w)
            if again then wane.manual_seed(3) end
            local b = drop(x * w * 100)
            binding.check(binding.C.wn_cell_drop_grad(w.id))
            local y = a + b
            y:sum():backward { again = true }
            return y:totable(), w.grad:totable()
        end
        step(true)
        local forward, backward = step(false)
        for k = 1, 64 do assert.equal(forward[k], backward[k]) end
    end)

    it('is the line of each recording', function()
        local x, m = wane.eval(wane.randn(4, 8)), nn.Linear(8, 8)
        wane.lines(true)
        local function here() return wane.plan(function() return m(x):gelu():sum() end) end
        local function there()
            return wane.plan(function() return m(x):gelu():sum() end)
        end
        local first, second = here():residuals()[1].line, there():residuals()[1].line
        wane.lines(false)
        local n = tonumber(first:match ':(%d+)')
        assert.equal(n + 2, tonumber(second:match ':(%d+)'))
    end)
end)
