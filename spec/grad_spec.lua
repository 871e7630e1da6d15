-- Checks that wane.grad follows every path from the loss to each entry of wrt, whatever the entry is: data, a held
-- result, a recorded value, a frozen parameter, a view, a cast. Gradients are compared with those of a parameter of the
-- same value, to the bit, and with finite differences; where a path was forgotten, wane.grad refuses. Checks that the
-- gradient of a wane.custom is what its backward records for the dy that arrives.
local helper = require 'spec.helper'
local wane = helper.wane
local binding = require 'wane.ffi'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local nn = wane.nn

local F64 = { dtype = 'f64' }

-- Returns n numbers sin(k + shift) / 2, k = 1 .. n.
local function waves(shift, n)
    local list = {}
    for k = 1, n do list[k] = math.sin(k + shift) / 2 end
    return list
end

local function double(m) return m:to 'f64' end

-- ---- ways to have a value -----------------------------------------------------------------------------------------

-- Each returns a tensor of a shape that holds a flat list of numbers.
local WAYS = {
    data = function(list, shape) return wane.tensor(list, F64):reshape(unpack(shape)) end,
    evaluated = function(list, shape) return wane.eval(wane.tensor(list, F64):reshape(unpack(shape)) * 1) end,
    retained = function(list, shape)
        local t = (wane.tensor(list, F64):reshape(unpack(shape)) * 1):retain()
        wane.eval(t:sum())
        return t
    end,
    recorded = function(list, shape) return wane.tensor(list, F64):reshape(unpack(shape)) * 1 end,
    detached = function(list, shape)
        return nn.Parameter(wane.tensor(list, F64):reshape(unpack(shape))):detach()
    end,
    ['under no_grad'] = function(list, shape)
        return wane.no_grad(function() return wane.tensor(list, F64):reshape(unpack(shape)) * 1 end)
    end,
    frozen = function(list, shape)
        local p = nn.Parameter(wane.tensor(list, F64):reshape(unpack(shape)))
        p.requires_grad = false
        return p
    end,
    slice = function(list, shape)
        local rows = wane.eval(wane.tensor(list, F64):reshape(unpack(shape)))
        return wane.cat({ rows, rows }, 1):narrow(1, 1 + shape[1], shape[1])
    end,
    transposed = function(list, shape)
        local last = #shape
        return wane.eval(wane.tensor(list, F64):reshape(unpack(shape)):transpose(last - 1, last)):transpose(last - 1,
            last)
    end,
    cast = function(list, shape) return wane.tensor(list, { dtype = 'f64' }):reshape(unpack(shape)):to 'f64' end,
}

local function parameter(list, shape) return nn.Parameter(wane.tensor(list, F64):reshape(unpack(shape))) end

-- ---- functions of a value -----------------------------------------------------------------------------------------

-- Each entry is { shape, function(v) that returns a loss }: some paths have weights, some have none.
local LOSSES = {}

local mix = double(nn.Linear(4, 4))
LOSSES['a product and a square'] = { { 3, 4 }, function(v) return mix(v):sum() + (v * v):sum() end }
LOSSES['a boundary built in'] = { { 3, 4 }, function(v) return (v * (1 - v) * mix(v):tanh()):pow(2):mean() end }
LOSSES['no weight at all'] = { { 3, 4 }, function(v) return (v:exp() * v):sum() + v:tanh():pow(2):mean() end }
LOSSES['a normalisation before weights'] = { { 3, 4 }, function(v)
    return mix((v - v:mean(2, { keepdim = true })) / (v:pow(2):sum(2, { keepdim = true }) + 1):sqrt()):pow(2):sum()
end }
LOSSES['views that are joined again'] = { { 4, 4 }, function(v)
    local left, right = v:narrow(2, 1, 2), v:narrow(2, 3, 2)
    local joined = wane.cat({ right * 2, left }, 2):reshape(2, 8):reshape(4, 4)
    return (mix(joined) * v:transpose(1, 2)):sum() + wane.stack({ v, v * v }, 1):pow(3):mean()
end }
local images = double(nn.Sequential { nn.Conv2d(2, 4, 3, { padding = 1 }), nn.Tanh(), nn.Conv2d(4, 3, 3) })
LOSSES['convolutions of two channels'] = { { 2, 2, 5, 5 }, function(v)
    return images(v * 2):pow(2):mean() + v:max_pool2d(2):sum() + images(v):mean() * v:pow(2):mean()
end }
local norm = double(nn.GroupNorm(2, 4))
LOSSES['a norm over groups'] = { { 2, 4, 3, 3 }, function(v) return norm(v * v):pow(2):mean() + v:sum() * 0.1 end }
local attention = double(nn.Attention(4, 2, { causal = true }))
LOSSES['attention beside itself'] = { { 2, 3, 4 }, function(v) return (attention(v) * v):pow(2):mean() + v:sum() end }
local cube = wane.custom(function(_, x, w) return x * x * x * w end, function(_, dy, x, w)
    return dy * 3 * x * x * w, dy * x * x * x
end)
LOSSES['a function with a gradient of its own'] = { { 3, 4 }, function(v)
    return cube(v, v * 0.5):sum() + cube(mix(v), v):sum()
end }
LOSSES['checkpointed regions'] = { { 3, 4 }, function(v)
    local h = wane.checkpoint(function(x) return mix(x):tanh() * x end, v)
    return wane.checkpoint(function(x) return (x * v):sum() end, h) + h:mean()
end }
LOSSES['a gradient inside'] = { { 3, 4 }, function(v)
    local inner = wane.grad((mix(v):tanh() * v):sum(), v)
    return inner:pow(2):mean() + v:pow(2):mean()
end }

-- Returns the loss at a list of numbers where number k is `at`.
local function moved(case, list, k, at)
    local copy = {}
    for i, x in ipairs(list) do copy[i] = i == k and at or x end
    return case[2](wane.tensor(copy, F64):reshape(unpack(case[1]))):item()
end

-- Fails unless a gradient is the slope of the loss, by differences of four points.
local function assert_slopes(case, list, gradient, what)
    local have, h = gradcheck.values(gradient), 1e-3
    for k = 1, #list, math.max(1, math.floor(#list / 7)) do
        local function difference(step)
            return moved(case, list, k, list[k] + step) - moved(case, list, k, list[k] - step)
        end
        local slope = (8 * difference(h) - difference(2 * h)) / (12 * h)
        assert(math.abs(have[k] - slope) <= 1e-7 * (1 + math.abs(slope)),
            ('%s: element %d is %.12g, the slope is %.12g'):format(what, k, have[k], slope))
    end
end

local function size(shape)
    local n = 1
    for _, d in ipairs(shape) do n = n * d end
    return n
end

describe('a gradient of', function()
    for name, case in pairs(LOSSES) do
        it(name .. ' is the slope, and that of a parameter, whatever wrt is', function()
            local list = waves(#name, size(case[1]))
            local p = parameter(list, case[1])
            local want = wane.grad(case[2](p), p)
            assert_slopes(case, list, want, name)
            local bytes = gradcheck.bytes(want)
            for way, make in pairs(WAYS) do
                local v = make(list, case[1])
                local ran = programs.run { mode = 'eval', roots = { wane.grad(case[2](v), v) } }
                programs.same(ran, name .. ', ' .. way)
                assert(bytes == gradcheck.bytes(wane.grad(case[2](v), v)), name .. ', ' .. way)
            end
        end)

        it(name .. ' can be differentiated again', function()
            local list = waves(2 + #name, size(case[1]))
            local function penalty(v) return wane.grad(case[2](v), v):pow(2):mean() end
            local p = parameter(list, case[1])
            local want = wane.grad(penalty(p), p)
            if name ~= 'a gradient inside' then assert_slopes({ case[1], penalty }, list, want, name) end
            for way, make in pairs(WAYS) do
                local v = make(list, case[1])
                assert(gradcheck.bytes(want) == gradcheck.bytes(wane.grad(penalty(v), v)), name .. ', ' .. way)
            end
        end)
    end

    it('several values at once has the paths of each, and those from one to another', function()
        local list = waves(1, 12)
        local function both(a)
            local b = a * a
            return (mix(a) * b):sum() + b:tanh():sum() + a:sum(), b
        end
        local p = parameter(list, { 3, 4 })
        local loss, q = both(p)
        local want = wane.grad(loss, { p, q, mix.weight })
        for way, make in pairs(WAYS) do
            local v = make(list, { 3, 4 })
            local lost, w = both(v)
            local have = wane.grad(lost, { v, w, mix.weight })
            for k = 1, 3 do assert(gradcheck.bytes(want[k]) == gradcheck.bytes(have[k]), way .. ', entry ' .. k) end
        end
    end)

    it('a network under autocast is that of a parameter', function()
        local net = nn.Sequential { nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4) }
        local conv = nn.Conv2d(2, 2, 3, { padding = 1 })
        local function loss(v)
            return wane.autocast('bf16', function()
                local image = v:reshape(2, 2, 4, 4)
                return net(v):pow(2):sum():to 'f32' + (conv(image) * image):sum():to 'f32' + (v * v):mean()
            end)
        end
        local start = wane.eval(wane.tensor(waves(3, 64)):reshape(16, 4))
        local p = nn.Parameter(start * 1)
        local want = gradcheck.bytes(wane.grad(loss(p), p))
        local frozen = nn.Parameter(start * 1)
        frozen.requires_grad = false
        for _, v in ipairs { start, start * 1, frozen, wane.eval(start * 1) } do
            assert.equal(want, gradcheck.bytes(wane.grad(loss(v), v)))
        end
        -- A cast that was recorded where gradients are off serves no reader where they are on.
        local g = wane.autocast('bf16', function()
            local v = start * 1
            wane.no_grad(function() return net(v) end)
            return wane.grad(net(v):sum():to 'f32', v)
        end)
        assert(g:abs():sum():item() > 0)
    end)

    it('convolutions keeps no relayout that was recorded where gradients are off', function()
        local conv = nn.Conv2d(3, 4, 3)
        local v = wane.eval(wane.tensor(waves(3, 150)):reshape(2, 3, 5, 5))
        local function loss(x)
            local double_x = x * 2
            local seen = wane.no_grad(function() return conv(double_x) end)
            return (conv(double_x) - seen * 0.5):pow(2):mean()
        end
        local p = nn.Parameter(v * 1)
        assert.equal(gradcheck.bytes(wane.grad(loss(p), p)), gradcheck.bytes(wane.grad(loss(v), v)))
    end)

    it('a frozen parameter, or one that was frozen in between, is that of one that trains', function()
        local lin = double(nn.Linear(3, 3))
        local x = wane.tensor(waves(5, 6), F64):reshape(2, 3)
        local function loss() return (lin(x) * lin(x):tanh()):sum() + lin.weight:pow(2):sum() end
        local want = gradcheck.bytes(wane.grad(loss(), lin.weight))
        lin:requires_grad(false)
        assert.equal(want, gradcheck.bytes(wane.grad(loss(), lin.weight)))
        local recorded = loss()
        lin:requires_grad(true)
        assert.equal(want, gradcheck.bytes(wane.grad(recorded, lin.weight)))
        assert.equal(want, gradcheck.bytes(wane.grad(recorded * 0.5 + loss() * 0.5, lin.weight)))
    end)

    it('what was cut is what is left: detach, no_grad and whole numbers let nothing through', function()
        local v = wane.tensor({ 1, 2, 3 }, F64)
        local loss = (v * 5 + v:detach() * v + wane.no_grad(function() return v * v end) + v:to('i32'):to('f64')):sum()
        assert.same({ 6, 7, 8 }, wane.grad(loss, v):totable())
        assert.same({ 0, 0, 0 }, wane.grad(v:detach():sum(), v, { allow_unused = true }):totable())
        assert.has_error(function() wane.grad(v:detach():sum(), v) end)
    end)

    it('a program differs from the same one whose wrt follows less', function()
        local v = wane.eval(wane.tensor(waves(1, 12), F64):reshape(3, 4))
        local function loss(x) return mix(x):sum() + (x * v):sum() end
        local want = { gradcheck.values(wane.grad(loss(v), v)), gradcheck.values(wane.grad(loss(v * 1), mix.weight)) }
        for _ = 1, 2 do
            local x = v * 1
            local less, more = wane.grad(loss(x), x), wane.grad(loss(v), v)
            wane.eval(less, more)
            assert(gradcheck.bytes(less) ~= gradcheck.bytes(more))
            assert(not gradcheck.differ(gradcheck.values(more), want[1], 0))
            assert(not gradcheck.differ(gradcheck.values(wane.grad(loss(v * 1), mix.weight)), want[2], 0))
        end
    end)
end)

describe('a path that a run point forgot', function()
    local function assert_refused(why, ...)
        local arguments = { ... }
        helper.refused('value', function() wane.grad(unpack(arguments)) end, 'no longer known what')
    end

    it('is refused and never left out', function()
        local v = wane.tensor({ 1, 2, 3 }, F64)
        local lin = double(nn.Linear(3, 1))
        local h = v * v
        assert.equal('tensor', tostring(h):match '^%a+') -- a read, as print(h)
        assert_refused('a value that was read', (h * 3):sum() + v:sum(), v)
        assert_refused('it, before weights', lin(h * 3):sum() + v:sum(), v)
        assert_refused('it, with allow_unused', (h * 3):sum(), v, { allow_unused = true })
        local again = wane.eval(h * 2)
        assert_refused('one of a value that was read', again:sum() + v:sum(), v)
        assert_refused('one of two entries', again:sum() + v:sum(), { again, v })
        assert.same({ 1, 4, 9 }, wane.grad((h * v):sum() + again:detach():sum(), h):mul(v):totable())
        local frozen = nn.Parameter(wane.tensor({ 1, 2, 3 }, F64))
        frozen.requires_grad = false
        local k = wane.eval(frozen * 2)
        assert_refused('one of a frozen parameter', (k * frozen):sum(), frozen)
    end)

    it('holds up no gradient that it cannot be part of', function()
        local reference = wane.eval(wane.tensor({ 4, 5, 6 }, F64) * 1)
        local v = wane.tensor({ 1, 2, 3 }, F64)
        local mean = reference:mean()
        local scaled = wane.eval(reference * 2)
        assert.equal(5, mean:item())
        assert.same({ 13, 15, 17 }, wane.grad(((v + mean) * scaled):sum() + v:sum() * (mean), v):totable())
        local cut = wane.no_grad(function() return v * v end)
        local seen = wane.eval(cut)
        assert.same({ 2, 5, 10 }, wane.grad((v * seen + v):sum(), v):totable())
        local state = wane.eval(wane.zeros(3, F64))
        for _ = 1, 200 do state = wane.eval(state + reference) end -- longer than what is remembered
        local late = wane.tensor({ 1, 1, 1 }, F64)
        assert.same({ 800, 1000, 1200 }, wane.grad((state * late):sum(), late):totable())
    end)

    it('is refused where a backward used the graph up', function()
        local v, lin = wane.tensor({ 1, 2, 3 }, F64), double(nn.Linear(3, 1))
        local loss = lin(v):sum()
        loss:backward()
        helper.refused('spent', function() wane.grad(loss * v:sum(), v) end)
    end)
end)

describe('an op without a gradient rule', function()
    it('may make an entry of wrt, and is refused between it and the loss', function()
        local chain = require('wane.tensor.op').record('elementwise', { wane.tensor({ 0.5, -1 }, F64) }, { n = 1,
            i = { binding.C.wn_op_id('exp') * 256 } })
        assert.same({ 3, 3 }, wane.grad((chain * 3):sum(), chain):totable())
    end)
end)

-- ---- custom functions -----------------------------------------------------------------------------------------------

describe('the gradient of a custom function, differentiated again,', function()
    local function leaf() return nn.Parameter(wane.tensor({ 0.3, -0.7, 1.1 }, { dtype = 'f64' })) end

    -- Checks that sum(f(2 x) x) has the same second derivative with f = custom as with f = plain, which says the same
    -- in ordinary ops.
    local function both(custom, plain)
        local out = {}
        for k, f in ipairs { custom, plain } do
            local x = leaf()
            local g = wane.grad((f(x * 2) * x):sum(), x)
            out[k] = wane.grad((g * g):sum(), x):totable()
        end
        for k, v in ipairs(out[2]) do
            assert(math.abs(out[1][k] - v) <= 1e-12 * (1 + math.abs(v)), ('%g, expected %g'):format(out[1][k], v))
        end
    end

    it('is right where the backward reads arguments, the result, and what it makes of them', function()
        both(wane.custom(function(_, v) return v:tanh() end, function(_, dy, v)
            local y = v:tanh()
            return dy * (1 - y * y)
        end), function(v) return v:tanh() end)
        both(wane.custom(function(_, v) return v * v * v end, function(_, dy, v) return dy * 3 * v * v end),
            function(v) return v * v * v end)
        both(wane.custom(function(ctx, v)
            ctx.saved[1] = v:exp()
            return ctx.saved[1]
        end, function(ctx, dy) return dy * ctx.saved[1] end), function(v) return v:exp() end)
    end)

    it('is refused where it reads what the forward made of its arguments, also when that was evaluated', function()
        for _, keep in ipairs { function(v) return v end, wane.eval } do
            local f = wane.custom(function(ctx, v)
                ctx.saved[1] = keep(v * v)
                return ctx.saved[1] * v
            end, function(ctx, dy) return dy * ctx.saved[1] * 3 end)
            local x = leaf()
            local g = wane.grad(f(x):sum(), x)
            assert(math.abs(g:totable()[1] - 0.27) < 1e-12)
            local fine, why = pcall(wane.grad, (g * g):sum(), x)
            assert(not fine and why.code == 'unsupported', tostring(why))
            assert(tostring(why):find('ctx.saved', 1, true))
            f(x):sum():backward() -- the first derivative is what it was
            local have = x.grad:totable()
            for k, v in ipairs { 0.3, -0.7, 1.1 } do assert(math.abs(have[k] - 3 * v * v) < 1e-12) end
        end
    end)

    it('takes masks and values from elsewhere as the constants they are', function()
        local scale = wane.no_grad(function() return leaf():exp() end)
        local f = wane.custom(function(ctx, v)
            ctx.saved[1] = v:gt(0):to 'f64'
            return v * ctx.saved[1]
        end, function(ctx, dy) return dy * ctx.saved[1] * scale end)
        local x = leaf()
        assert.equal(3, #wane.grad(wane.grad((f(x) * x):sum(), x):sum(), x):totable())
    end)
end)

describe('wane.custom', function()
    it('uses the gradient given, not the true one, and keys plans by it', function()
        local x = nn.Parameter(wane.tensor { 2, 3 })
        for _ = 1, 2 do
            for factor, shape in pairs { [5] = false, [7] = true } do
                local f = wane.custom(function(_, v) return v * v end, function(_, dy)
                    return shape and (dy * factor):neg() or dy * factor
                end)
                f(x):sum():backward()
                local want = shape and -factor or factor
                assert.same({ want, want }, x.grad:totable())
                x.grad = nil
            end
        end
    end)

    it('refuses at the line of the caller', function()
        local x = nn.Parameter(wane.ones(2, 3))
        local function refused(word, forward, backward)
            helper.refused(nil, function() return wane.custom(forward, backward)(x) end, word)
        end
        local function twice(_, v) return v * 2 end
        refused('expected two functions', twice)
        refused('forward must return', function() end, twice)
        refused('gradient of tensor 1', twice, function(_, dy) return dy:sum() end)
        refused('2 gradients', twice, function(_, dy) return dy, dy end)
        refused('recorded once', twice, function(_, dy) return dy * dy:sum():item() end)
        refused('random', twice, function(_, dy) return nn.Dropout(0.5)(dy) end)
    end)
end)
