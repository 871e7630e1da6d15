-- Compares the ops that scripts use beside those of op.def with plain Lua, with PyTorch 2.15 where it decides (ties,
-- kinks, nothing at all), and their gradients with finite differences; in every dtype, on meta, and where they refuse.
local helper = require 'spec.helper'
local gradcheck = require 'spec.support.gradcheck'
local wane = helper.wane

local INF, NAN = 1 / 0, 0 / 0
local I32, U8 = { dtype = 'i32' }, { dtype = 'u8' }

local function list(t) return t:reshape(-1):totable() end

local function near(want, t, tolerance) gradcheck.near(want, t, tolerance or 1e-6) end

-- Returns the gradient of the sum of f(values).
local function slope(f, values)
    local x = wane.tensor(values, { requires_grad = true })
    f(x):sum():backward()
    return x.grad
end

-- Lists functions of a float tensor (3, 4), without kinks at random numbers, by name.
local functions = {
    var = function(x) return x:var(2) end,
    ['var of all'] = function(x) return x:var { correction = 0, keepdim = true } end,
    std = function(x) return x:std({ 1, 2 }) end,
    norm = function(x) return x:norm(2, 1) end,
    ['norm of order 1'] = function(x) return x:norm(1, -1, { keepdim = true }) end,
    ['norm of order 3'] = function(x) return x:norm(3) end,
    ['norm of order inf'] = function(x) return x:norm('inf', 2) end,
    ['norm of order -2'] = function(x) return x:norm(-2, 2) end,
    logsumexp = function(x) return x:logsumexp(2) end,
    ['logsumexp of all'] = function(x) return x:logsumexp { keepdim = true } end,
    softplus = function(x) return x:softplus(2) end,
    leaky_relu = function(x) return x:leaky_relu(0.2) end,
    elu = function(x) return x:elu(1.5) end,
    tril = function(x) return x:tril(-1) * x end,
    triu = function(x) return x:triu(1) * x end,
    flip = function(x) return x:flip(1, 2) * wane.arange(12, { dtype = x.dtype }):reshape(3, 4) end,
    tile = function(x) return x:tile(2, 1, 3) * wane.arange(72, { dtype = x.dtype }):reshape(2, 3, 12) end,
    ['a list'] = function(x) return x[{ 3, 1, -1 }]:index_select(2, { 2, 2 }) * x[{ 1, 2, 3 }]:narrow(2, 1, 2) end,
    masked_fill = function(x) return x:masked_fill(x:gt(0), 2) * x end,
    ['max at a position'] = function(x) return (x:max(2, { indices = true })) end,
    ['min at a position'] = function(x) return (x:min(1, { indices = true, keepdim = true })) end,
    scatter_add = function(x)
        return x:scatter_add(1, wane.tensor({ { 0, 1, 2, 0 }, { 0, 0, 2, 2 } }, I32), x:narrow(1, 2, 2) * 3) * x
    end,
}

describe('an op that is made of others', function()
    for name, f in pairs(functions) do
        it('has the slope of its finite differences, a type in bf16 and a shape on meta: ' .. name, function()
            wane.manual_seed(5)
            local x = wane.randn(3, 4, { dtype = 'f64', requires_grad = true })
            assert.is_nil((gradcheck.wrong({ x }, function() return (f(x) * f(x)):sum() end)))
            local want = f(x)
            for _, dtype in ipairs { 'f32', 'bf16' } do
                local y = f(wane.eval(x:detach():to(dtype)))
                assert.equal(dtype, y.dtype)
                near(list(want), y, dtype == 'f32' and 1e-5 or 0.05)
            end
            local y = helper.on('meta', function() return f(wane.zeros(3, 4)) end)
            assert.equal(tostring(want.shape), tostring(y.shape))
            assert.equal('meta', y.device)
        end)
    end

    it('has the values and the gradients of PyTorch where a function has no slope', function()
        near({ 0, 0, 0 }, slope(function(x) return x:std() end, { 1, 1, 1 }))
        near({ NAN }, slope(function(x) return x:var() end, { 1 }))
        for _, p in ipairs { 2, 3, INF } do
            near({ 0, 0 }, slope(function(x) return x:norm(p) end, { 0, 0 }))
        end
        near({ 0.5, -0.5, 0 }, slope(function(x) return x:norm(INF) end, { 2, -2, 1 }))
        near({ 1.707107, 0, 2.414214 }, slope(function(x) return x:norm(0.5) end, { 2, 0, 1 }))
        near({ 0, 1, 0 }, slope(function(x) return (x:max(1, { indices = true })) end, { 1, 3, 3 }))
        near({ 0, 0.5, 0.5 }, slope(function(x) return x:max(1) end, { 1, 3, 3 }))
        near({ 1, 1, 0.367879, 1 }, slope(function(x) return x:elu() end, { 0, 1, -1, 200 }))
        near({ 0.01, 1, 0.01 }, slope(function(x) return x:leaky_relu() end, { 0, 1, -1 }))
        near({ 0.5, 1, 0 }, slope(function(x) return x:softplus() end, { 0, 1000, -1000 }))
        near({ 0, 0 }, slope(function(x) return x:logsumexp() end, { -INF, -INF })) -- PyTorch has NaN
        near({ -INF, INF, 1000.693147 }, wane.tensor({ { -INF, -INF }, { INF, 0 }, { 1000, 1000 } }):logsumexp(2))
        for _, name in ipairs { 'floor', 'round', 'sign' } do
            near({ 0, 0 }, slope(function(x) return x[name](x) + x * 0 end, { 0.3, -1.7 }))
        end
    end)

    it('counts, finds and compares', function()
        near({ 2 }, wane.tensor({ 0, 3, NAN }):norm(0))
        near({ 1, 0 }, wane.tensor({ { 0, NAN }, { 0, 0 } }):any(2))
        near({ 1, 0, 1 }, wane.tensor({ { 1, 2 }, { 1, 0 }, { 7, 255 } }, U8):all(-1))
        near({ 1, 0 }, wane.stack { wane.zeros(0, 2):all(), wane.zeros(0, 2):any() })
        near({ 0 }, wane.tensor({ -2 ^ 31, 5, -2 ^ 31 }, I32):argmin())
        near({ 1 }, wane.tensor({ 2, NAN, 1 }):argmin())
        local values, ids = wane.tensor({ { 4, 9 }, { 7, 7 } }, I32):max(2, { indices = true })
        assert.same({ 9, 7 }, values:totable())
        assert.same({ 1, 0 }, ids:totable())
        assert.is_true(wane.allclose(wane.tensor { INF, 1 }, wane.tensor { INF, 1 + 1e-6 }))
        assert.is_false(wane.tensor({ INF }):allclose(-INF))
        assert.is_false(wane.tensor({ INF }):allclose(3))
        assert.is_false(wane.tensor({ NAN }):allclose(NAN))
        assert.is_true(wane.tensor({ NAN }):allclose(NAN, { equal_nan = true }))
    end)

    it('takes rows by lists and by tensors of positions, of integers too', function()
        local t = wane.tensor({ 10, 20, 30 }, I32)
        near({ 30, 10, 30 }, t[{ 3, 1, -1 }])
        near({ 10, 30 }, t[wane.tensor({ 0, 2 }, I32)])
        near({ 3, 2, 1 }, wane.tensor({ 1, 2, 3 }, U8):flip())
        near({ 0, 2, 4 }, wane.arange(6):reshape(3, 2):index_select(1, wane.arange(3)):narrow(2, 1, 1))
        assert.equal('(2, 2, 2)', tostring(wane.zeros(5, 2)[wane.tensor({ { 0, 4 }, { 1, 1 } }, I32)].shape))
        near({ 1, 1, 2, 2 }, wane.tensor({ 1, 2 }):reshape(2, 1):tile(1, 2))
    end)

    it('makes kin of a tensor, even steps and choices', function()
        local t = wane.zeros(2, 3, { dtype = 'f64' })
        for _, name in ipairs { 'zeros_like', 'ones_like', 'rand_like', 'randn_like' } do
            local y = wane[name](t)
            assert.equal('(2, 3) f64', tostring(y.shape) .. ' ' .. y.dtype)
            assert.equal('meta', wane[name](t:to 'meta').device)
            assert.equal('f32', wane[name](t, { dtype = 'f32' }).dtype)
        end
        near({ 7, 7 }, wane.full_like(wane.zeros(2, I32), 7))
        for _, n in ipairs { 2, 7, 50 } do
            local y = wane.linspace(-1, 0.3, n, { dtype = 'f64' }):totable()
            assert.equal(n, #y)
            assert.equal(-1, y[1])
            assert.equal(0.3, y[n])
        end
        near({ 5 }, wane.linspace(5, 9, 1))
        wane.manual_seed(3)
        local drawn = wane.bernoulli(wane.full({ 4000 }, 0.25))
        assert.is_true(math.abs(drawn:mean():item() - 0.25) < 0.03)
        near({ 0, 1 }, wane.bernoulli(wane.tensor({ 0, 1 }, { dtype = 'bf16' })))
    end)

    it('refuses by name what it cannot take, and works after it', function()
        local x, whole = wane.ones(2, 3), wane.ones(2, 3, I32)
        for _, case in ipairs {
            { 'var: expected f32, bf16 or f64, got %(2, 3%) i32', function() return whole:var() end },
            { 'std: dim 3 is out of range', function() return x:std(3) end },
            { "'ddof'", function() return x:var(1, { ddof = 1 }) end },
            { "norm: p must be a number or 'inf', got 'fro'", function() return x:norm 'fro' end },
            { 'softplus: beta must be above 0', function() return x:softplus(0) end },
            { 'elu: alpha: expected a finite number', function() return x:elu 'a' end },
            { 'masked_fill: the mask must be a u8 tensor', function() return x:masked_fill(true, 0) end },
            { 'masked_fill: the mask %(4, 2, 3%) u8 does not broadcast', function()
                return x:masked_fill(wane.zeros(4, 2, 3, U8), 0)
            end },
            { 'masked_fill: the value must be', function() return x:masked_fill(x:gt(0), x) end },
            { 'tril: expected 2 dims or more, got %(3%)', function() return x[1]:tril() end },
            { 'triu: diagonal: expected an integer', function() return x:triu(0.5) end },
            { 'flip: dim 1 is listed twice', function() return x:flip(1, 1) end },
            { 'tile: times: expected an integer', function() return x:tile(-1) end },
            { 'index 3, entry 2 of the list, is out of range for dim 1', function() return x[{ 1, 3 }] end },
            { 't%[mask%]: .* wane.where', function() return x[x:gt(0)] end },
            { 'scatter_add: ids %(3%) i32 and source', function()
                return x:scatter_add(1, wane.zeros(3, I32), x)
            end },
            { 'max: positions are those along one dim, got nil', function()
                return x:max(nil, { indices = true })
            end },
            { 'min: positions are those along one dim, got nil', function() return x:min { indices = true } end },
            { 'wane.zeros_like: expected a tensor', function() return wane.zeros_like { 2, 3 } end },
            { 'wane.linspace: the numbers are floats, got the dtype i32', function()
                return wane.linspace(0, 1, 3, I32)
            end },
            { 'wane.bernoulli: expected a float tensor', function() return wane.bernoulli(0.5) end },
            { 'allclose: rtol', function() return x:allclose(x, { rtol = NAN }) end },
        } do
            local why = helper.refused(nil, function() case[2]() end)
            assert.matches(case[1], tostring(why))
            assert.matches('tensor_ops_spec', tostring(why))
        end
        assert.equal(1, x:var(2, { correction = 0 }):eq(0):all():item())
    end)
end)

describe('order', function()
    it('sums, sorts and takes the largest, with gradients that go to their positions', function()
        near({ 1, 3, 6, 4, 9, 15 }, wane.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }):cumsum())
        near({ 1, 2, 5, 7 }, wane.tensor({ { 1, 2 }, { 4, 5 } }, I32):cumsum(1))
        near({ 1, 1, 2 }, wane.tensor({ 5, 0, 7 }):gt(1):cumsum())
        near({ 9, 5, 0 }, (wane.tensor({ 5, 0, 9 }, U8):sort { descending = true }))
        near({ 3, 2, 1 }, slope(function(x) return x:cumsum() end, { 5, 5, 5 }))
        local values, ids = wane.tensor({ 2, NAN, -1, 2, INF }):sort { descending = true }
        near({ NAN, INF, 2, 2, -1 }, values)
        near({ 1, 4, 0, 3, 2 }, ids)
        near({ 2, 0, 1 }, wane.tensor({ { 2 }, { 3 }, { 1 } }):argsort(1))
        near({ 7, 10, 0, 0 }, slope(function(x)
            return (x:topk(2)) * wane.tensor { 10, 7 }
        end, { 3, 4, 1, 2 }))
        near({ 0, 0, 10, 7 }, slope(function(x)
            return (x:topk(2, { largest = false })) * wane.tensor { 10, 7 }
        end, { 3, 4, 1, 2 }))
        assert.equal('(2, 0)', tostring((wane.zeros(2, 3):topk(0)).shape))
        assert.equal('(2, 3)', tostring(wane.zeros(2, 3, { device = 'meta' }):argsort().shape))
    end)

    it('draws what weights and chance ask for', function()
        wane.manual_seed(11)
        local weights = wane.tensor { { 0, 1, 3, 0 }, { 2, 0, 0, 2 } }
        local drawn = wane.eval(wane.multinomial(weights, 4000, { replacement = true }))
        assert.equal('(2, 4000) i32', tostring(drawn.shape) .. ' ' .. drawn.dtype)
        for _, want in ipairs { { 1, 0, 0 }, { 1, 1, 0.25 }, { 1, 2, 0.75 }, { 2, 0, 0.5 }, { 2, 3, 0.5 } } do
            local share = drawn[want[1]]:eq(want[2]):sum():item() / 4000
            assert.is_true(math.abs(share - want[3]) < (want[3] == 0 and 1e-9 or 0.03), share)
        end
        local pair = wane.multinomial(weights:expand(500, 2, 4), 2):sort()
        assert.is_true(pair:select(2, 1):eq(wane.tensor({ 1, 2 }, I32)):all():item() == 1)
        local first = wane.multinomial(weights:select(1, 1):expand(4000, 4))
        assert.is_true(math.abs(first:eq(2):sum():item() / 4000 - 0.75) < 0.03)
        local mixed = wane.randperm(100)
        near(list(wane.arange(100)), (mixed:sort()))
        assert.is_true(mixed:ne(wane.arange(100)):any():item() == 1)
    end)

    it('refuses weights and probabilities that are none, with their place', function()
        local function says(want, t)
            local why = helper.refused('value', function() wane.eval(t) end)
            assert.matches(want, why.message)
        end
        for _, replacement in ipairs { false, true } do
            for _, count in ipairs { 1, 2 } do
                local function draw(values) return wane.multinomial(wane.tensor(values), count,
                    { replacement = replacement }) end
                says('weight %-1 at element 4', draw { { 1, 2, 3 }, { 4, -1, 5 } })
                says('weight %-?nan at element 1', draw { { 1, NAN, 3 }, { 4, 1, 5 } })
                says('weight inf at element 0', draw { { INF, 1, 3 }, { 4, 1, 5 } })
                says('row 1 has 0 weights above 0', draw { { 1, 2, 3 }, { 0, 0, 0 } })
                assert.same({ 2, count }, { unpack(draw({ { 0, 2, 3 }, { 1, 0, 1 } }):retain().shape) })
            end
        end
        says('row 0 has 1 weights above 0, expected 2', wane.multinomial(wane.tensor { 0, 1, 0 }, 2))
        for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
            for _, p in ipairs { 2, -0.5, NAN } do
                says('probability .* at element 2 is outside 0 to 1',
                    wane.bernoulli(wane.tensor({ 0, 1, p }, { dtype = dtype })))
            end
            near({ 0, 1 }, wane.bernoulli(wane.tensor({ 0, 1 }, { dtype = dtype })))
        end
    end)

    it('refuses by name', function()
        for _, case in ipairs {
            { 'cumsum: dim 2 is out of range', function() return wane.zeros(3):cumsum(2) end },
            { 'topk: 4 elements asked for, dim %-1 of %(3%) f32 has 3', function() return wane.zeros(3):topk(4) end },
            { 'wane.multinomial: 3 positions asked for without replacement, %(2%) f32 has 2', function()
                return wane.multinomial(wane.ones(2), 3)
            end },
            { 'wane.multinomial: expected a float tensor', function() return wane.multinomial(3) end },
            { 'sort: .*descending', function() return wane.zeros(3):sort { descending = 1 } end },
            { 'wane.randperm', function() return wane.randperm(-1) end },
        } do
            local why = helper.refused(nil, function() case[2]() end)
            assert.matches(case[1], tostring(why))
        end
    end)
end)

describe('integers beside floats', function()
    it('are computed in the dtype that PyTorch has', function()
        local i, u, h = wane.tensor({ 1, 2 }, I32), wane.tensor({ 1, 0 }, U8), wane.ones(2, { dtype = 'bf16' })
        for _, case in ipairs {
            { i + 1.5, 'f32', 2.5, 3.5 }, { 1.5 - i, 'f32', 0.5, -0.5 }, { i + 1, 'i32', 2, 3 },
            { i / 2, 'f32', 0.5, 1 }, { 3 / i, 'f32', 3, 1.5 }, { i / i, 'f32', 1, 1 },
            { i * h, 'bf16', 1, 2 }, { h - u, 'bf16', 0, 1 },
            { u + i, 'i32', 2, 2 }, { u + u, 'i32', 2, 0 }, { 1 - u, 'i32', 0, 1 }, { u:eq(1), 'u8', 1, 0 },
            { u:lt(0.5), 'u8', 0, 1 }, { i:gt(h), 'u8', 0, 1 },
            { u:eq(-1), 'u8', 0, 0 }, { i ^ 0.5, 'f32', 1, 2 ^ 0.5 },
            { h ^ i, 'bf16', 1, 1 }, { i:maximum(1.5), 'f32', 1.5, 2 }, { i + 3e9, 'f32', 3e9, 3e9 },
        } do
            assert.equal(case[2], case[1].dtype)
            near({ case[3], case[4] }, case[1])
        end
        assert.equal(300, wane.tensor({ 200, 100 }, U8):sum():item())
        assert.matches('pow: .*i32', tostring(select(2, pcall(function() return i ^ 2 end))))
        assert.matches('f64', tostring(select(2, pcall(function() return h + wane.ones(2, { dtype = 'f64' }) end))))
        assert.matches('%(2%).*%(3%)', tostring(select(2, pcall(function() return i + wane.ones(3) end))))
    end)

    it('are taken in f32 by functions to real numbers, and refused by name where only floats have a meaning', function()
        for _, dtype in ipairs { 'i32', 'u8' } do
            local i = wane.tensor({ 1, 4 }, { dtype = dtype })
            for _, name in ipairs { 'sqrt', 'exp', 'log', 'sin', 'cos', 'tanh' } do
                assert.equal('f32', i[name](i).dtype)
                near({ math[name](1), math[name](4) }, i[name](i))
            end
            local one, e = math.exp(-1), math.exp(1)
            for _, case in ipairs {
                { i:rsqrt(), 1, 0.5 }, { i:sigmoid(), 1 / (1 + one), 1 / (1 + one ^ 4) },
                { i:log1p(), math.log(2), math.log(5) }, { i:expm1(), e - 1, e ^ 4 - 1 },
                { i:reshape(1, 2):mean { keepdim = true }, 2.5 }, { i:reshape(2, 1):mean(-1), 1, 4 },
                { i:logsumexp(), math.log(e + e ^ 4) },
            } do
                assert.equal('f32', case[1].dtype)
                near({ case[2], case[3] }, case[1])
            end
            assert.same({ 0, 0 }, i:isnan():totable())
            assert.same({ 1, 1 }, i:isfinite():totable())
            assert.equal('f32', wane.autocast('bf16', function() return i:sqrt() end).dtype)
            local want = dtype == 'i32' and 'i32' or nil
            for _, name in ipairs { 'neg', 'abs', 'sign' } do -- stay in integers
                local fine, y = pcall(i[name], i)
                assert.equal(want, fine and y.dtype or nil)
            end
            for _, name in ipairs { 'relu', 'gelu', 'silu', 'softplus', 'elu', 'leaky_relu', 'softmax', 'std', 'var',
                'norm' } do
                local why = helper.refused('dtype', function() i[name](i, name == 'softmax' and 1 or nil) end)
                assert.matches(name .. ': .*%(2%) ' .. dtype, why.message)
            end
            local why = helper.refused(nil, function() wane.nn.RMSNorm(2)(i) end)
            assert.matches('rmsnorm: expected f32, bf16 or f64, got %(2%) ' .. dtype, why.message)
        end
        near({ 0.25 }, wane.tensor({ 1, 2, 3, 4 }, I32):eq(2):mean()) -- the share of hits
    end)

    -- Sums are compared with those of doubles, which are exact here: a stretch on the way may leave 32 bits, a result
    -- may not, and then the first one is named. Shapes take every way that sums have: rows, columns, parts and pieces.
    it('have results that 32 bits hold, or the first that they do not is named', function()
        local left, stayed = 0, 0
        local function check(name, t, want)
            local first
            for k, v in ipairs(want) do first = first or (v < -2 ^ 31 or v > 2 ^ 31 - 1) and k or nil end
            local fine, why = pcall(wane.eval, t)
            assert.equal(not first, fine, name)
            left, stayed = left + (first and 1 or 0), stayed + (first and 0 or 1)
            if fine then return near(want, t, 0) end
            assert.equal('value', why.code)
            assert.matches(("%s: %.0f at element %d is outside the numbers of i32.*:to 'f64'"):format(name, want[first],
                first - 1):gsub('%-', '%%-'):gsub('%(', '%%('), why.message)
        end
        wane.manual_seed(9)
        for _, dims in ipairs { { 7 }, { 5, 3 }, { 2, 9, 40 }, { 40000 }, { 3000, 35 }, { 20000, 4 }, { 2, 2500, 33 } }
        do
            for _, most in ipairs { 1000, 2 ^ 31 - 1 } do
                local t = wane.randint(-most, most, dims)
                local all, v, last = list(t), 0, dims[#dims]
                for k = 1, #all do v = v + all[k] end
                check('sum', t:sum(), { v })
                local rows, columns, scan = {}, {}, {}
                for k = 1, #all do
                    local r, c = math.floor((k - 1) / last) + 1, (k - 1) % last + 1
                    rows[r], columns[c] = (rows[r] or 0) + all[k], (columns[c] or 0) + all[k]
                    scan[k] = rows[r]
                end
                check('sum', t:sum(-1), rows)
                check('cumsum', t:cumsum(-1), scan)
                check('sum', t:reshape(-1, last):sum(1), columns)
                for _, op in ipairs { 'add', 'sub', 'mul' } do
                    local other, want = wane.randint(-most, most, { last }), {}
                    local by = list(other)
                    for k = 1, #all do
                        local x, y = all[k], by[(k - 1) % last + 1]
                        want[k] = op == 'add' and x + y or op == 'sub' and x - y or x * y
                    end
                    check(op, t[op](t, other), want)
                end
            end
        end
        assert(left > 40 and stayed > 40, left .. ' of ' .. stayed)
        assert.same({ 4 }, { wane.full({ 4 }, 1, I32):sum():item() }) -- the next one works
        assert.equal(4294967296, wane.full({ 4 }, 2 ^ 30, I32):to('f64'):sum():item())
    end)

    it('get no gradient, and let that of the float pass', function()
        near({ 3, 4 }, slope(function(x) return x * wane.tensor({ 3, 4 }, I32) end, { 1, 1 }))
    end)
end)

describe('a backward with a gradient', function()
    it('is that of the weighed sum, under every policy, and adds up', function()
        wane.manual_seed(2)
        local model, x = wane.nn.MLP(4, 8), wane.eval(wane.randn(3, 4))
        local g, frozen = wane.eval(wane.randn(3, 4)), model:parameters()[1]
        local function grads(run)
            model:zero_grad()
            run()
            local out = {}
            for k, p in ipairs(model:parameters()) do out[k] = p.grad:totable() end
            return out
        end
        local want = grads(function() (model(x) * g):sum():backward() end)
        for _, policy in ipairs { 'save_all', 'recompute_all', 'least' } do
            assert.same(want, grads(function() model(x):backward { gradient = g, policy = policy } end))
        end
        local twice = grads(function()
            for _ = 1, 2 do model(x):backward { gradient = g } end
        end)
        assert.equal(2 * want[1][1][1], twice[1][1][1])
        frozen.requires_grad = false
        model:zero_grad()
        model(x):backward { gradient = g }
        assert.is_nil(frozen.grad)
        local w = wane.tensor({ 1, 2 }, { requires_grad = true })
        w:backward { gradient = wane.tensor { 3, 4 } }
        near({ 3, 4 }, w.grad)
    end)

    it('refuses what is not like the root', function()
        local y = wane.tensor({ 1, 2 }, { requires_grad = true }) * 2
        for _, case in ipairs {
            { 'the gradient is %(3%) f32, the root is %(2%) f32', wane.ones(3) },
            { 'the gradient is %(2%) f64, the root is', wane.ones(2, { dtype = 'f64' }) },
            { 'gradient must be a tensor %(2%) f32, got 1', 1 },
        } do
            local why = helper.refused(nil, function() y:backward({ gradient = case[2] }) end)
            assert.matches(case[1], tostring(why))
        end
        assert.matches('give loss:backward{gradient = g}', tostring(select(2, pcall(y.backward, y))))
    end)
end)

describe('an elementwise function in f32', function()
    it('is as exact as f64 says, for large angles and small numbers too', function()
        local angles = { 0.5, -3, 1e4, 355, 1e15, 2 ^ 50, 3e18, 2 ^ 76, 1e25, 2 ^ 102, 3e38, -2 ^ 127 }
        local small = { 1e-30, -1e-12, 3e-8, -1e-5, 1e-3, 0.4, -0.4, 2, 80 }
        for name, values in pairs { sin = angles, cos = angles, log1p = small, expm1 = small, softplus = small } do
            local x = wane.tensor(values)
            local have, want = x[name](x):totable(), x:to 'f64'[name](x:to 'f64'):totable()
            for k = 1, #values do
                local off = math.abs(have[k] - want[k]) / math.abs(want[k])
                assert(off < 3 * 2 ^ -24, ('%s of %g is off by %g'):format(name, values[k], off))
            end
        end
    end)
end)
