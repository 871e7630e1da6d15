--- Ops that rewrites make (runtime/plan/ir/rewrite.c), recorded directly. spec/rewrite_spec.lua checks that their bits
-- are those of the separate ops.
local array = require 'spec.cases.array'
local id = require('wane.tensor.op').id
local record, calls = array.record, array.calls

local tol = { f32 = 2e-5, f64 = 1e-12 }
local INPUTS = 4 -- operands from here on are steps

local function relu(v) return v > 0 and v or 0 end

-- Returns the attributes of an elementwise of steps { name, operand, operand }; f: its float attributes.
local function steps(list, f)
    local i = {}
    for k, s in ipairs(list) do i[k] = id[s[1]] * 256 + (s[3] or 0) * 16 + s[2] end
    return { i = i, f = f }
end

local function elementwise(name, inputs, list, ref, f)
    return { name = name, inputs = inputs, tol = tol, ref = ref, composed = true,
        call = calls('elementwise', steps(list, f)) }
end

local function map(op, name, act, inputs, ref, flags)
    return { name = name, inputs = inputs, tol = tol, ref = ref, call = function(_, ...)
        return record(op, { ... }, { i = { flags and flags[1] or 0, flags and flags[2] or 0, id[act] } })
    end }
end

local function plus(a, b) return array.map(function(x, y) return x + y end, a, b) end
local function slope(dy, y) return y > 0 and dy or 0 end

local function adam(wane, p, x, g)
    local w = wane.nn.Parameter(p)
    local opt = wane.optim.Adam({ w }, { lr = 0.1 })
    opt:step((x:matmul(w, { transpose_b = true }) * g):sum())
    return w
end

-- Returns w after Adam's first step: the gradient of w is g' x, and each element moves by about lr against its sign.
local function adam_ref(p, x, g)
    local grad = array.matmul(g, x, true, false)
    return array.map(function(v, d)
        local m, s = 0.1 * d, 0.001 * d * d
        return v - 0.1 * (m / 0.1) / (math.sqrt(s / 0.001) + 1e-8)
    end, p, grad)
end

return {
    elementwise = {
        cases = {
            elementwise('two', { { 3, 50 }, { 3, 50 } }, { { 'mul', 0, 1 }, { 'relu', INPUTS } }, function(a, b)
                return array.map(function(x, y) return relu(x * y) end, a, b)
            end),
            elementwise('a row and a column stretch', { { 5, 7 }, { 7 }, { 5, 1 } },
                { { 'mul', 0, 2 }, { 'add', INPUTS, 1 } }, function(a, b, c)
                    return array.map(function(x, y, z) return x * z + y end, a, b, c)
                end),
            elementwise('longer than a tile, six steps', { { 2300 }, { 2300 } },
                { { 'sub', 0, 1 }, { 'tanh', INPUTS }, { 'mul', INPUTS + 1, 1 }, { 'neg', INPUTS + 2 },
                    { 'add', INPUTS + 3, INPUTS }, { 'abs', INPUTS + 4 } }, function(a, b)
                    return array.map(function(x, y)
                        local d = x - y
                        local e = math.exp(2 * d)
                        return math.abs(d - (e - 1) / (e + 1) * y)
                    end, a, b)
                end),
            elementwise('clamp in between', { { 40 } }, { { 'neg', 0 }, { 'clamp', INPUTS }, { 'exp', INPUTS + 1 } },
                function(a)
                    return array.map(function(x) return math.exp(math.max(-0.5, math.min(0.5, -x))) end, a)
                end, { -0.5, 0.5 }),
            elementwise('a number', { { 4, 4 }, {} }, { { 'relu', 0 }, { 'div', INPUTS, 1 } }, function(a, b)
                return array.map(function(x, y) return relu(x) / y end, a, b)
            end),
            elementwise('nothing in it', { { 0, 3 } }, { { 'neg', 0 }, { 'relu', INPUTS } }, function()
                return { shape = { 0, 3 } }
            end),
        },
        bad = {
            { inputs = { { 3 } }, error = 'elementwise: step 1 is sum',
                call = calls('elementwise', steps { { 'sum', 0 } }) },
            { inputs = { { 3 } }, error = 'elementwise: step 1 reads operand 4',
                call = calls('elementwise', steps { { 'neg', INPUTS } }) },
            { inputs = { { 3 } }, error = 'elementwise: step 2 reads operand 1',
                call = calls('elementwise', steps { { 'neg', 0 }, { 'add', INPUTS, 1 } }) },
            { inputs = { { 3 } }, error = 'elementwise: 2 steps take numbers',
                call = calls('elementwise', steps({ { 'clamp', 0 }, { 'clamp', INPUTS } }, { 0, 1 })) },
        },
    },
    linear_map = {
        cases = {
            map('linear_map', 'relu', 'relu', { { 5, 9 }, { 70, 9 }, { 70 } }, function(x, w, b)
                return array.map(relu, plus(array.matmul(x, w, false, true), b))
            end),
            map('linear_map', 'many rows, more dims, k past a panel', 'tanh', { { 2, 90, 140 }, { 21, 140 }, { 21 } },
                function(x, w, b)
                    local flat = array.reshape(x, { 180, 140 })
                    local y = array.map(function(v)
                        local e = math.exp(-2 * math.abs(v))
                        return (v < 0 and -1 or 1) * (1 - e) / (1 + e)
                    end, plus(array.matmul(flat, w, false, true), b))
                    return array.reshape(y, { 2, 90, 21 })
                end),
            map('linear_map', 'a derivative', 'relu_grad', { { 33, 8 }, { 50, 8 }, { 50 }, { 33, 50 } },
                function(x, w, b, y)
                    return array.map(slope, plus(array.matmul(x, w, false, true), b), y)
                end),
        },
        bad = {
            { inputs = { { 3, 4 }, { 5, 4 }, { 5 } }, error = 'linear_map: sum given',
                call = calls('linear_map', { i = { 0, 0, id.sum } }) },
            { inputs = { { 3, 4 }, { 5, 4 }, { 5 }, { 3, 4 } }, error = 'linear_map: the last',
                call = calls('linear_map', { i = { 0, 0, id.relu_grad } }) },
        },
    },
    matmul_map = {
        cases = {
            map('matmul_map', 'a derivative', 'relu_grad', { { 40, 30 }, { 30, 64 }, { 40, 64 } }, function(a, b, y)
                return array.map(slope, array.matmul(a, b), y)
            end),
            map('matmul_map', 'transposed, batched', 'relu', { { 3, 20, 10 }, { 3, 17, 20 } }, function(a, b)
                return array.map(relu, array.matmul(a, b, true, true))
            end, { 1, 1 }),
            map('matmul_map', 'nothing inside', 'exp', { { 2, 0 }, { 0, 3 } }, function()
                return { shape = { 2, 3 }, 1, 1, 1, 1, 1, 1 }
            end),
        },
        bad = {
            { inputs = { { 3, 4 }, { 4, 5 } }, error = 'matmul_map: 2 inputs given, expected 3',
                call = calls('matmul_map', { i = { 0, 0, id.relu_grad } }) },
        },
    },
    product_update = {
        cases = {
            { name = 'a linear layer', inputs = { { 50, 20 }, { 7, 20 }, { 7, 50 } }, only = 'f32', call = adam,
                ref = adam_ref, tol = { f32 = 1e-4 } },
            { name = 'more columns than one block', inputs = { { 19, 4200 }, { 8, 4200 }, { 8, 19 } }, only = 'f32',
                call = adam, ref = adam_ref, tol = { f32 = 1e-4 } },
        },
        bad = {
            { inputs = { { 3, 4 }, { 5, 6 } }, error = 'inner dimensions',
                call = calls('product_update', { i = { 0, 0, id.sgd } }) },
            { inputs = { { 3, 4 }, { 4, 6 } }, error = 'product_update: relu given',
                call = calls('product_update', { i = { 0, 0, id.relu } }) },
        },
    },
    layernorm_dx_add = {
        cases = {
            -- Against the two ops it replaces: their own records have the formulas.
            { name = 'rows', inputs = { { 3, 40 }, { 3, 40 }, { 3 }, { 3, gen = 'positive' }, { 40 }, { 3, 40 } },
                tol = tol, call = calls('layernorm_dx_add'),
                ref = function(dy, x, mean, rstd, w, more)
                    local out, n = { shape = { 3, 40 } }, 40
                    for r = 1, 3 do
                        local c1, c2 = 0, 0
                        for i = 1, n do
                            local k = (r - 1) * n + i
                            c1 = c1 + dy[k] * w[i] / n
                            c2 = c2 + dy[k] * w[i] * (x[k] - mean[r]) * rstd[r] / n
                        end
                        for i = 1, n do
                            local k = (r - 1) * n + i
                            out[k] = rstd[r] * (dy[k] * w[i] - c1 - (x[k] - mean[r]) * rstd[r] * c2) + more[k]
                        end
                    end
                    return out
                end },
        },
        bad = {
            { inputs = { { 3, 4 }, { 3, 4 }, { 3 }, { 3 }, { 4 }, { 4 } }, error = 'what is added',
                call = calls('layernorm_dx_add') },
        },
    },
}
