-- Checks wane.checkpoint and wane.checkpoint_sequential: what a region marks is recomputed, no bit changes, and regions
-- begin and end where PyTorch's do.
local helper = require 'spec.helper'
local wane = helper.wane
local programs = require 'spec.support.programs'
local nn = wane.nn

local function net(depth, width)
    wane.manual_seed(7)
    local list = {}
    for i = 1, depth do list[i] = i % 2 == 1 and nn.Linear(width, width) or nn.GELU() end
    return nn.Sequential(list)
end

-- Returns the gradients of a loss as plain numbers, the input's last.
local function gradients(model, x, forward)
    model:zero_grad()
    x.grad = nil
    local loss = forward(x):sum()
    loss:backward()
    local out = { loss = loss:item() }
    for _, p in ipairs(model:parameters()) do out[#out + 1] = p.grad:totable() end
    out[#out + 1] = x.grad:totable()
    return out
end

local function plan_of(forward, x)
    return wane.plan(function() return forward(x):sum() end)
end

-- Returns the paths of the ops of the forward that the plan runs again.
local function again(plan)
    local paths = {}
    for _, r in ipairs(plan:residuals()) do
        if r.word == 'recompute' then paths[#paths + 1] = r.path end
    end
    return paths
end

describe('wane.checkpoint', function()
    local model, x
    before_each(function()
        model = net(6, 16)
        x = wane.randn(4, 16, { requires_grad = true })
    end)

    it('recomputes inside, saves outside, and changes no bit', function()
        local function plain(v) return model(v) end
        local function marked(v) return wane.checkpoint(model, v) end
        local direct, region = plan_of(plain, x), plan_of(marked, x)
        assert.equal(0, direct.recomputed)
        assert.is_true(region.recomputed > 0)
        assert.same(gradients(model, x, plain), gradients(model, x, marked))
    end)

    it('takes PyTorch\'s options, both values exact', function()
        local plain = gradients(model, x, function(v) return model(v) end)
        for _, reentrant in ipairs { true, false } do
            local opts = { use_reentrant = reentrant, preserve_rng_state = not reentrant, name = 'part' }
            assert.same(plain, gradients(model, x, function(v) return wane.checkpoint_with(opts, model, v) end))
        end
        local ck = wane.checkpoint_fn { name = 'part' }
        assert.same(plain, gradients(model, x, function(v) return ck(model, v) end))
        assert.has_error(function() wane.checkpoint_with({ use_reentrent = true }, model, x) end)
    end)

    it('passes all arguments and returns all results', function()
        local a, b, c = wane.checkpoint(function(p, q, n) return q, p, n + 1 end, x, model, 4)
        assert.equal(model, a)
        assert.equal(x, b)
        assert.equal(5, c)
        assert.has_error(function() wane.checkpoint(x, model) end)
    end)

    it('draws the same dropout mask again', function()
        local drop = nn.Dropout(0.5)
        local function forward(region)
            wane.manual_seed(11)
            local w = wane.ones(64, 64, { requires_grad = true })
            local body = function(v) return drop(v:gelu()):gelu() end
            local y = region and wane.checkpoint(body, w) or body(w)
            y:sum():backward()
            return w.grad:totable()
        end
        local saved, recomputed = forward(false), forward(true)
        assert.same(saved, recomputed)
        local zeros = 0
        for _, row in ipairs(saved) do
            for _, v in ipairs(row) do zeros = zeros + (v == 0 and 1 or 0) end
        end
        assert.is_true(zeros > 0.3 * 4096 and zeros < 0.7 * 4096)
    end)

    it('nests', function()
        local function inner(v) return wane.checkpoint(function(u) return model[3](model[2](u)) end, model[1](v)) end
        local function nested(v) return model[5](model[4](wane.checkpoint(inner, v))) end
        local function plain(v) return model[5](model[4](model[3](model[2](model[1](v))))) end
        assert.same(gradients(model, x, plain), gradients(model, x, nested))
        assert.is_true(plan_of(nested, x).recomputed > 0)
    end)

    it('is left when the function fails, and the error is the same object', function()
        local thrown = { 'mine' }
        local why = helper.refused(nil, function() wane.checkpoint(function() error(thrown, 0) end) end)
        assert.equal(thrown, why)
        assert.equal(0, plan_of(function(v) return model(v) end, x).recomputed)
    end)
end)

describe('wane.checkpoint_sequential of parts with several results', function()
    -- Returns four parts that take and return one, two and three values; nil is a value too.
    local function parts(w)
        return {
            function(x, y) return x:matmul(w):tanh(), x + y end,
            function(a, b) return a * b, nil, b:gelu() end,
            function(a, none, c)
                assert(none == nil)
                return a + c, a:sigmoid()
            end,
            function(a, b) return (a * b):sum(), b end,
        }
    end

    local function run(way)
        wane.manual_seed(3)
        local w, x, y = nn.Parameter(wane.randn(4, 4)), nn.Parameter(wane.randn(3, 4)), nn.Parameter(wane.randn(3, 4))
        local loss, second, third = way(parts(w), x, y)
        assert(third == nil and second.shape[2] == 4)
        loss:backward()
        return table.concat(programs.bytes { loss, w.grad, x.grad, y.grad }, '|')
    end

    it('passes all of them on, and returns all of the last part', function()
        local direct = run(function(list, ...) return list[4](list[3](list[2](list[1](...)))) end)
        for segments = 1, 4 do
            assert.equal(direct, run(function(list, ...) return wane.checkpoint_sequential(list, segments, ...) end))
            assert.equal(direct, run(function(list, ...)
                return wane.checkpoint_sequential(nn.Sequential(list), segments, ...)
            end))
        end
        assert.equal(direct, run(function(list, ...) return nn.Sequential(list)(...) end))
    end)
end)

describe('wane.checkpoint_sequential', function()
    local model, x
    before_each(function()
        model = net(7, 16)
        x = wane.randn(4, 16, { requires_grad = true })
    end)

    it('keeps the last segment, which takes the rest', function()
        -- 7 parts in 3 segments are 2 + 2 + 3, and the last segment is kept.
        local paths = again(plan_of(function(v) return wane.checkpoint_sequential(model, 3, v) end, x))
        for _, path in ipairs(paths) do assert.is_true(tonumber(path:match('^(%d+)')) <= 4, path) end
        assert.is_true(#paths > 0)
    end)

    it('is the direct run with one segment', function()
        assert.equal(0, plan_of(function(v) return wane.checkpoint_sequential(model, 1, v) end, x).recomputed)
    end)

    it('decides as policy.segments does', function()
        for n = 1, 7 do
            local marked = plan_of(function(v) return wane.checkpoint_sequential(model, n, v) end, x)
            local policed = wane.plan(function() return model(x):sum() end, { policy = wane.policy.segments(n) })
            assert.same(again(marked), again(policed))
            assert.equal(marked.peak, policed.peak)
        end
    end)

    it('changes no bit', function()
        local plain = gradients(model, x, function(v) return model(v) end)
        for n = 1, 7 do
            assert.same(plain, gradients(model, x, function(v) return wane.checkpoint_sequential(model, n, v) end))
        end
    end)

    it('takes a list of functions', function()
        local list = { function(v) return v:gelu() end, function(v) return v:exp() end,
            function(v) return v:tanh() end }
        local y = wane.checkpoint_sequential(list, 3, x)
        assert.same(x:gelu():exp():tanh():totable(), y:totable())
    end)

    it('refuses segments that do not fit', function()
        for _, n in ipairs { 0, 8, 1.5, '2' } do
            helper.refused('value', function() wane.checkpoint_sequential(model, n, x) end)
        end
    end)
end)

describe('nn.Sequential', function()
    it('hands on as many values as there are, nil too', function()
        local seen = {}
        local function note(...)
            seen[#seen + 1] = select('#', ...)
            return ...
        end
        local m = nn.Sequential { note, function(a, b) return a, b, nil end, note, function() end, note,
            function() return 7 end, note, function(a) return a, nil, 2, 3, 4, 5, 6, 7, 8, nil end }
        assert.are.equal(10, select('#', m(1, 2)))
        assert.are.same({ 2, 3, 0, 1 }, seen)
        assert.are.equal(8, (select(9, m(0))))
        assert.are.equal(0, select('#', nn.Sequential {}()))
    end)
end)
