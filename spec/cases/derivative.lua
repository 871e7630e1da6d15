--- Cases of derivatives of elementwise ops, (dy, x) or (dy, y), each against its formula. The gradient checks of
-- unary.lua show that a formula is the slope of its op. Kinks are here: zeros and bounds exactly.
local array = require 'spec.cases.array'
local calls = array.calls

local function derivative(name, f, options)
    options = options or {}
    local call = calls(name, options.attrs)
    local slope = options.choose and function(a, b) return f(b) == 0 and 0 or a * f(b) end -- +0, whatever a's sign
        or function(a, b) return a * f(b) end
    local ref = function(dy, v) return array.map(slope, dy, v) end
    local cases = {}
    for k, s in ipairs { { 'a matrix', 3, 4 }, { '0-d' }, { 'no elements', 0, 3 }, { 'past a vector', 7, 67 } } do
        cases[k] = { name = s[1], call = call, ref = ref, exact = options.exact, grad = true,
            inputs = { { s[2], s[3] }, { s[2], s[3], gen = options.gen } } }
    end
    if options.kinks then -- and at NaN
        options.kinks[#options.kinks + 1] = 0 / 0
        cases[#cases + 1] = { name = 'at its kinks', call = call, ref = ref, exact = true,
            inputs = { { #options.kinks }, { #options.kinks, values = options.kinks } } }
    end
    return {
        cases = cases,
        bad = {
            { inputs = { { 3 }, { 4 } }, error = name .. ': input 2 is %(4%), expected %(3%)' },
            { inputs = { { 3, dtype = 'f32' }, { 3, dtype = 'f64' } }, error = name .. ': .*:to' },
        },
    }
end

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

return {
    abs_grad = derivative('abs_grad', function(x) return x > 0 and 1 or x < 0 and -1 or 0 end,
        { exact = true, kinks = { 0, 1, -1 } }),
    relu_grad = derivative('relu_grad', function(y) return y <= 0 and 0 or 1 end,
        { exact = true, choose = true, kinks = { 0, 1 } }),
    gelu_grad = derivative('gelu_grad', function(x)
        return 0.5 * (1 + array.erf(x / math.sqrt(2))) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    end),
    silu_grad = derivative('silu_grad', function(x)
        local s = sigmoid(x)
        return s * (1 + x * (1 - s))
    end),
    tanh_grad = derivative('tanh_grad', function(y) return 1 - y * y end),
    sigmoid_grad = derivative('sigmoid_grad', function(y) return y * (1 - y) end),
    sqrt_grad = derivative('sqrt_grad', function(y) return 0.5 / y end, { gen = 'positive' }),
    clamp_grad = derivative('clamp_grad', function(x) return x > -0.5 and x < 0.75 and 1 or 0 end,
        { exact = true, choose = true, attrs = { f = { -0.5, 0.75 } }, kinks = { -0.5, 0.75, -0.51, 0.76, 0 } }),
}
