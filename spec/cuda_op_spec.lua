-- Checks every op of the table on a GPU, through the records of spec/cases: its result and its gradients against the
-- CPU's, bit for bit or within the tolerance of spec/support/cuda_bits.lua; the same bits twice, in a checked run over
-- poisoned memory too; and the CPU's refusals, wrong data among them.
require 'spec.helper'
local cases = require 'spec.cases'
local case_inputs = require 'spec.support.case_inputs'
local cuda_bits = require 'spec.support.cuda_bits'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local sim = require 'spec.support.cudasim'
local scoped = require 'wane.scoped'
local op = require 'wane.tensor.op'

local CPU = op.device('cpu', 'spec')
local has_cuda, CUDA = pcall(op.device, 'cuda', 'spec')

local names = programs.ops()
local results, each_case = case_inputs.run, case_inputs.each
local run_on, other = case_inputs.run_on, case_inputs.other

describe('a GPU', function()
    if not has_cuda then
        pending('is simulated by what a C++ compiler makes of its kernels: make cudasim')
        return
    end

    for _, name in ipairs(names) do
        it('computes ' .. name .. ' as the CPU does, and again to the same bits, within its bytes', function()
            each_case(name, function(case, float)
                local want, have = results(case, float, name, CPU), results(case, float, name, CUDA)
                local again = programs.debugged(results, case, float, name, CUDA)
                local tolerance = cuda_bits.of(name, float)
                for i, w in ipairs(want) do
                    local wrong
                    if tolerance then wrong = sim.far(have[i].values, w.values, tolerance, 'the CPU has')
                    else wrong = other(have[i], w) end
                    if wrong then return w.what .. ': ' .. wrong end
                    if have[i].bytes ~= again[i].bytes then return w.what .. ': other bits in a checked run' end
                end
            end)
        end)
    end

    for _, name in ipairs(names) do
        local refused = cases.records[name] and cases.records[name].bad or {}
        if #refused > 0 then
            it('refuses what the CPU refuses of ' .. name, function()
                scoped('device', CUDA, function()
                    for _, bad in ipairs(refused) do case_inputs.check_refusal(name, bad, CUDA) end
                end)
            end)
        end
    end
end)

-- ---- convolutions ---------------------------------------------------------------------------------------------------
-- Checks convolutions where the records do not reach: tiles of 64 x 64 of numbers, tiles of tensor cores, parts of
-- pixels, phases of a stride, and weights in panels. Sums of f32 and f64 have the CPU's bits.

local record, split = require('spec.cases.array').record, require('spec.support.rewrites').split
local CONV48 = 3

local function pair(v) return v * 2 ^ 32 + v end

-- Returns the shapes of x, w and y, and the attributes of an op whose result has the size h x h. o: inputs `ci` and
-- outputs `co` of a group, groups, the image's side, kernel k, stride, pad, dilation, layout of the weight.
local function numbers(o, h)
    local g, s, p, d = o.groups or 1, o.stride or 1, o.pad or 0, o.dilation or 1
    local out = math.floor((o.side + 2 * p - d * (o.k - 1) - 1) / s) + 1
    local attrs = { i = { pair(s), pair(p), pair(d), g, h and pair(h) or 0 }, n = 5 }
    return { 1, g * o.ci, o.side, o.side }, { g * o.co, o.ci, o.k, o.k }, { 1, g * o.co, out, out }, attrs
end

local OPS = {
    conv2d = function(o)
        local x, w, _, attrs = numbers(o)
        return { x, w, { w[1] } }, function(a, b, c)
            if o.layout then b = record('relayout', { b }, { layout = o.layout }) end
            return record('conv2d', { a, b, c }, attrs)
        end
    end,
    conv2d_dx = function(o)
        local _, w, y, attrs = numbers(o, o.side)
        return { y, w }, function(a, b)
            if o.layout then b = record('relayout', { b }, { layout = o.layout }) end
            return record('conv2d_dx', { a, b }, attrs)
        end
    end,
    conv2d_dw = function(o)
        local x, _, y, attrs = numbers(o, o.k)
        attrs.layout = o.layout
        return { y, x }, function(a, b) return record('conv2d_dw', { a, b }, attrs) end
    end,
}

-- { what, op, dtypes, numbers, within a tolerance }, else the same bits.
local BITS, WITHIN = { 'f32', 'f64' }, { f32 = 1e-5, f64 = 1e-13, bf16 = 1e-2 }
local rows = {
    { 'tiles of 64, stores of 4', 'conv2d', { 'f32' }, { groups = 64, ci = 1, co = 36, side = 6, k = 3, pad = 1 } },
    { 'tiles of 64, stores of one', 'conv2d', BITS, { groups = 64, ci = 2, co = 33, side = 6, k = 2 } },
    { 'few columns', 'conv2d', BITS, { groups = 5, ci = 2, co = 1, side = 4, k = 3, pad = 1 } },
    { 'tiles of 64', 'conv2d_dx', { 'f32' }, { groups = 64, ci = 33, co = 1, side = 6, k = 3, pad = 1 } },
    { 'tiles of 64', 'conv2d_dw', { 'f32' }, { groups = 64, ci = 4, co = 33, side = 6, k = 3, pad = 1 } },
    { 'phases of a stride', 'conv2d_dx', BITS, { ci = 9, co = 5, side = 11, k = 4, stride = 3, pad = 2,
        dilation = 2 } },
    { 'a stride beyond the kernel', 'conv2d_dx', BITS, { ci = 9, co = 5, side = 9, k = 2, stride = 5 } },
    { 'a stride beyond the image', 'conv2d_dx', BITS, { ci = 8, co = 3, side = 3, k = 2, stride = 7 } },
    { 'panels', 'conv2d', BITS, { ci = 3, co = 112, side = 4, k = 3, pad = 1, layout = CONV48 } },
    { 'panels', 'conv2d_dx', BITS, { ci = 10, co = 64, side = 4, k = 2, layout = CONV48 } },
    { 'panels', 'conv2d_dw', BITS, { ci = 3, co = 80, side = 4, k = 2, layout = CONV48 } },
    { 'panels and few columns', 'conv2d_dx', BITS, { ci = 2, co = 48, side = 4, k = 2, layout = CONV48 } },
    { 'parts', 'conv2d_dw', { 'f32', 'bf16' }, { ci = 2, co = 8, side = 47, k = 3, pad = 1 }, true },
    { 'parts and panels', 'conv2d_dw', { 'f64' }, { ci = 1, co = 16, side = 33, k = 3, layout = CONV48 }, true },
    { 'parts of depthwise', 'conv2d_dw', { 'f64' }, { groups = 3, ci = 1, co = 1, side = 46, k = 3 }, true },
    { 'tensor cores', 'conv2d', { 'bf16' }, { ci = 24, co = 72, side = 6, k = 3, pad = 1 }, true },
    { 'tensor cores, stores of one', 'conv2d', { 'bf16' }, { ci = 8, co = 21, side = 5, k = 3, pad = 2 }, true },
    { 'tensor cores, groups', 'conv2d_dx', { 'bf16' }, { groups = 2, ci = 24, co = 16, side = 7, k = 3, stride = 2 },
        true },
    { 'tensor cores', 'conv2d_dw', { 'bf16' }, { ci = 16, co = 40, side = 7, k = 3, pad = 1 }, true },
    { 'tensor cores, tiles of 128', 'conv2d_dx', { 'bf16' }, { ci = 72, co = 16, side = 12, k = 12, stride = 12 },
        true },
    { 'tensor cores, tiles of 128', 'conv2d_dw', { 'bf16' }, { groups = 128, ci = 8, co = 72, side = 3, k = 3,
        pad = 1 }, true },
}

describe('a convolution on a GPU', function()
    if not has_cuda then return end

    for _, row in ipairs(rows) do
        local what, name, dtypes, o, is_within = unpack(row)
        it('computes ' .. name .. ' of ' .. what .. ' as the CPU does', function()
            local inputs, call = OPS[name](o)
            for _, dtype in ipairs(dtypes) do
                local arrays = case_inputs.arrays({ name = what, inputs = inputs }, dtype, name)
                local function on(device)
                    return scoped('device', device, function()
                        return call(unpack(case_inputs.tensors(arrays, device)))
                    end)
                end
                local have, want = on(CUDA), on(CPU)
                if is_within then
                    local wrong = sim.far(gradcheck.values(have), gradcheck.values(want), WITHIN[dtype], 'the CPU has')
                    assert(not wrong, dtype .. ': ' .. tostring(wrong))
                else assert(gradcheck.bytes(have) == gradcheck.bytes(want), dtype .. ': other bits') end
            end
        end)
    end

    it('applies what is over it in its stores, to the bits of separate nodes', function()
        for _, row in ipairs(rows) do
            local what, name, dtypes, o = unpack(row)
            for _, dtype in ipairs(name == 'conv2d' and dtypes or {}) do
                local shapes = OPS.conv2d(o)
                local _, _, y, attrs = numbers(o)
                local list = case_inputs.arrays({ name = what,
                    inputs = { shapes[1], shapes[2], shapes[3], y, shapes[3], shapes[3] } }, dtype, name)
                scoped('device', CUDA, function()
                    local a, b, c, z, v, u = unpack(case_inputs.tensors(list, CUDA))
                    if o.layout then b = record('relayout', { b }, { layout = o.layout }) end
                    local function fused(inputs, n, ...)
                        local i = { unpack(attrs.i) }
                        i[6] = n
                        for k, step in ipairs { ... } do i[6 + k] = op.id[step[1]] * 256 + step[3] * 16 + step[2] end
                        return gradcheck.bytes(record('conv2d_map', inputs, { i = i, n = 6 + select('#', ...) }))
                    end
                    local function conv(inputs) return record('conv2d', inputs, attrs) end
                    local want = split(function() return gradcheck.bytes(conv({ a, b, c }):silu()) end)
                    assert(fused({ a, b, c }, 3, { 'silu', 0, 0 }) == want, what .. ', silu: ' .. dtype)
                    want = split(function() return gradcheck.bytes(conv { a, b } - z) end)
                    assert(fused({ a, b, z }, 2, { 'sub', 0, 1 }) == want, what .. ', sub: ' .. dtype)
                    want = split(function()
                        local over = record('batch_norm', { conv { a, b, c }, c, v, u, v }, { i = { 0 } })
                        return gradcheck.bytes((z - over):relu())
                    end)
                    assert(fused({ a, b, c, c, v, u, v, z }, 7, { 'sub', 1, 0 }, { 'relu', 0, 0 }) == want,
                        what .. ', norm, sub and relu: ' .. dtype)
                end)
            end
        end
    end)

    it('gives an image the same bits among others', function()
        local x, w, _, attrs = numbers { ci = 8, co = 16, side = 6, k = 3, pad = 1 }
        x[1] = 3
        local arrays = case_inputs.arrays({ name = 'images', inputs = { x, w } }, 'bf16', 'conv2d')
        scoped('device', CUDA, function()
            local a, b = unpack(case_inputs.tensors(arrays, CUDA))
            local all = record('conv2d', { a, b }, attrs)
            for n = 1, 3 do
                local one = record('conv2d', { a:narrow(1, n, 1), b }, attrs)
                assert(gradcheck.bytes(one) == gradcheck.bytes(all:narrow(1, n, 1)), 'image ' .. n)
            end
        end)
    end)
end)

-- ---- products of few rows -------------------------------------------------------------------------------------------
-- Checks products of f32 of which one side is short, at random shapes: the CPU's bits, and those of tiles, which
-- compute the same product in a batch of two.

local id = op.id
local FEW = { 1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 40, 63, 64 }
local SPECIAL = { 0 / 0, 1 / 0, -1 / 0, -0.0, 1e-30, -1e-30, 3e38 }
local TERMS = { 0, 1, 3, 4, 31, 32, 33, 36, 96, 157, 191, 192, 193, 196, 224, 300 }
local UNARY = { 'neg', 'abs', 'exp', 'log', 'sqrt', 'rsqrt', 'relu', 'gelu', 'silu', 'tanh', 'sigmoid', 'clamp',
    'floor', 'round', 'sign' }
local BINARY = { 'add', 'sub', 'mul', 'maximum', 'minimum', 'div', 'pow', 'abs_grad', 'relu_grad', 'gelu_grad',
    'silu_grad', 'tanh_grad', 'sigmoid_grad', 'clamp_grad', 'sqrt_grad' }
local NUMBERS = { -0.5, 0.75 } -- bounds of a clamp

-- Returns a function that gives whole numbers in [1, n], and lists of f32 of which some are SPECIAL.
local function chance(name)
    local u = case_inputs.stream(name)
    local function upto(n) return 1 + math.floor(u() * n) end
    local function list(n, rate)
        local out = {}
        for i = 1, n do out[i] = u() < rate and SPECIAL[upto(#SPECIAL)] or 2 * u() - 1 end
        return out
    end
    return upto, list
end

-- Returns op(a) op(b) of (m, k) and (k, n), by an op over it where there is one, as a function of tensors, and the
-- arrays that it takes. o: op, m, n, k; ta, tb: transposed; act: the op over it; z: whether that has a second operand;
-- lead: a dim before the rows of a linear layer; rate: share of numbers that are SPECIAL.
local function few_product(o, list)
    local is_linear = o.op:find '^linear' ~= nil
    local shapes = { o.ta and { o.k, o.m } or { o.m, o.k }, (o.tb or is_linear) and { o.n, o.k } or { o.k, o.n } }
    if is_linear then shapes[3] = { o.n } end
    if o.z then shapes[#shapes + 1] = { o.m, o.n } end
    for _, s in ipairs(shapes) do s.values = list(s[1] * (s[2] or 1), o.rate or 0) end
    if o.lead then shapes[1] = { o.lead, o.m / o.lead, o.k, values = shapes[1].values } end
    local attrs = { i = { o.ta and 1 or 0, o.tb and 1 or 0, o.act and id[o.act] }, f = NUMBERS }
    local arrays = case_inputs.arrays({ name = 'few rows', inputs = shapes }, 'f32', o.op)
    return function(...) return record(o.op, { ... }, is_linear and not o.act and {} or attrs) end, arrays
end

-- Returns a batch of two of a matrix.
local function twice(t)
    local m, n = unpack(t.shape)
    return t:reshape(1, m, n):expand(2, m, n)
end

describe('a product of few rows on a GPU', function()
    if not has_cuda then return end

    for seed = 1, 8 do
        it('has the bits of the CPU and of tiles, of a random shape: ' .. seed, function()
            local upto, list = chance('few rows ' .. seed)
            for _ = 1, 12 do
                local few, wide, k = FEW[upto(#FEW)], upto(4) == 1 and 4 * upto(40) or upto(170), TERMS[upto(#TERMS)]
                local is_flipped = upto(2) == 1
                local o = { op = upto(2) == 1 and 'linear' or 'matmul', m = is_flipped and wide or few,
                    n = is_flipped and few or wide, k = k, rate = upto(3) == 1 and 0.02 or 0 }
                if o.op == 'matmul' then o.ta, o.tb = upto(2) == 1, upto(2) == 1 end
                if o.op == 'linear' and o.m % 3 == 0 then o.lead = 3 end
                local what = ('%s of (%d, %d, %d), transposed %s %s'):format(o.op, o.m, o.n, k, o.ta, o.tb)
                local call, arrays = few_product(o, list)
                local have = run_on(CUDA, call, arrays)
                local wrong = other(have, run_on(CPU, call, arrays))
                assert(not wrong, what .. ': ' .. tostring(wrong))
                local tiles = o.op == 'matmul' and run_on(CUDA, function(a, b)
                    return call(twice(a), twice(b)):narrow(1, 1, 1)
                end, arrays)
                wrong = tiles and other(have, tiles)
                assert(not wrong, what .. ', against tiles: ' .. tostring(wrong))
            end
        end)
    end

    it('applies every op over it as a node of its own would', function()
        local _, list = chance 'ops over few rows'
        for _, acts in ipairs { UNARY, BINARY } do
            for _, act in ipairs(acts) do
                for _, o in ipairs { { op = 'matmul_map', m = 13, n = 37, k = 50, ta = true },
                    { op = 'linear_map', m = 70, n = 9, k = 36 } } do
                    o.act, o.z = act, acts == BINARY
                    local call, arrays = few_product(o, list)
                    local have = run_on(CUDA, call, arrays)
                    local apart = split(run_on, CUDA, function(...)
                        local inputs = { ... }
                        local z = o.z and table.remove(inputs) or nil
                        local y = record((o.op:gsub('_map', '')), inputs, o.ta and { i = { 1, 0 } } or {})
                        return record(act, { y, z }, { f = NUMBERS })
                    end, arrays)
                    local wrong = other(have, apart) or act ~= 'pow' and other(have, run_on(CPU, call, arrays))
                    assert(not wrong, ('%s, %s: %s'):format(o.op, act, tostring(wrong)))
                end
            end
        end
    end)
end)
