-- Compares variance and deviation of numbers that are far from 0 with sums in f64, with their gradients, and dims
-- without elements with what PyTorch gives.
local helper = require 'spec.helper'
local wane = helper.wane

local INF = 1 / 0

local function near(want, t, tolerance)
    local have = t:reshape(-1):totable()
    assert.equal(#want, #have)
    for k, w in ipairs(want) do
        local fine = w == have[k] or math.abs(w - have[k]) <= (tolerance or 1e-6) * math.max(1, math.abs(w))
        assert(fine, ('element %d: expected %.9g, got %.9g'):format(k, w, have[k]))
    end
end

describe('a spread', function()
    it('is that of the numbers, however far from 0 they are', function()
        assert.equal(2, wane.tensor({ 2 ^ 24, 2 ^ 24 + 2 }):var():item())
        assert.equal(1, wane.tensor({ 2 ^ 24, 2 ^ 24 + 2 }):std({ correction = 0 }):item())
        wane.manual_seed(3)
        for _, row in ipairs { { 1e4, 1e-4 }, { -1e4, 1e-3 }, { 1e6, 0.1 }, { 3, 1e-5 }, { 0, 1 }, { 1e15, 1e10 } } do
            local x = (wane.randn(7, 513) * row[2] + row[1]):retain()
            for _, correction in ipairs { 0, 1 } do
                local want, values = {}, x:totable()
                for r = 1, 7 do
                    local mean, sum = 0, 0
                    for k = 1, 513 do mean = mean + values[r][k] end
                    mean = mean / 513
                    for k = 1, 513 do sum = sum + (values[r][k] - mean) ^ 2 end
                    want[r] = sum / (513 - correction)
                end
                for name, t in pairs { var = x:var(2, { correction = correction }),
                    std = x:std(2, { correction = correction }) ^ 2 } do
                    local have = t:totable()
                    for r = 1, 7 do
                        assert(math.abs(have[r] - want[r]) <= 1e-6 * want[r], ('%s of %g, %g: %.9g, expected %.9g')
                            :format(name, row[1], row[2], have[r], want[r]))
                    end
                end
            end
        end
    end)

    it('has the gradients of its formula, first and second', function()
        local x = wane.tensor({ 1e3, 1e3 + 1, 1e3 + 5 }, { dtype = 'f64', requires_grad = true })
        local g = wane.grad(x:var(), x)
        near({ -2, -1, 3 }, g, 1e-12)
        near({ 2 / 3, -1 / 3, -1 / 3 }, wane.grad((g * wane.tensor({ 1, 0, 0 }, { dtype = 'f64' })):sum(), x), 1e-12)
    end)
end)

describe('a dim without elements', function()
    it('gives what PyTorch gives', function()
        for _, dims in ipairs { { 0 }, { 2, 0 }, { 0, 3 }, { 2, 0, 3 } } do
            for dim = 1, #dims do
                for _, name in ipairs { 'softmax', 'log_softmax' } do
                    local x = wane.zeros(dims, { requires_grad = true })
                    local y = x[name](x, dim)
                    assert.same(dims, { unpack(y.shape) })
                    y:sum():backward()
                    assert.same(dims, { unpack(x.grad.shape) })
                    assert.equal(0, y:sum():item())
                end
                local y = wane.zeros(dims):logsumexp(dim)
                local want = {}
                for k = 1, y:numel() do want[k] = dims[dim] == 0 and -INF or 0 end
                if y:numel() > 0 then near(want, y:reshape(-1)) end
            end
        end
        assert.equal(-INF, wane.zeros(0):logsumexp():item())
        local norm = wane.nn.GroupNorm(2, 4)
        local x = wane.zeros(0, 4, 3, 3, { requires_grad = true })
        local y = norm(x)
        assert.same({ 0, 4, 3, 3 }, { unpack(y.shape) })
        y:sum():backward()
        near({ 0, 0, 0, 0 }, norm.weight.grad)
        near({ 0, 0, 0, 0 }, norm.bias.grad)
    end)
end)
