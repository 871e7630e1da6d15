--- Cases of convolutions and batch norms with the elementwise ops around them, which rewrites make
-- (runtime/plan/ir/image_patterns.c), recorded directly. spec/rewrite_spec.lua checks that their bits are those
-- of the separate ops.
local array = require 'spec.cases.array'
local calls = array.calls
local id = require('wane.tensor.op').id
local norm, norms = array.norms.norm, array.norms

local tol = { f32 = 2e-5, f64 = 1e-12 }
local GROUPS = 7 -- place of the groups in the attributes of batch_norm_map, 0-based

local function relu(v) return v > 0 and v or 0 end

-- Returns relu's gradient: dy where the norm o of { x, mean, rstd, w, b } is above 0.
local function masked(dy, o, groups)
    local y = norm(o[1], o[2], o[3], o[4], o[5], groups)
    return array.build(dy.shape, function(_, k) return y[k] > 0 and dy[k] or 0 end)
end

-- The images: { name, groups, shape }.
local images = {
    { 'batch', 0, { 2, 3, 2, 3 } }, { 'batch, past a vector', 0, { 2, 19, 3, 2 } }, { 'groups', 2, { 2, 4, 1, 3 } },
}

-- Returns the cases of an op over all images: make(groups, x, stat) returns { inputs, call, ref }; x and stat are
-- shapes.
local function over(make, what)
    local out = {}
    for k, row in ipairs(images) do
        local stat = row[2] == 0 and { row[3][2] } or { row[3][1], row[2] }
        out[k] = make(row[2], row[3], stat)
        out[k].name, out[k].tol = (what and what .. ', ' or '') .. row[1], tol
    end
    return out
end

-- Returns the attributes of steps { op, operand, operand } over the norm.
local function steps(list, groups, f)
    local i = { 0, 0, 0, 0, 0, 0, 0, groups }
    for k, s in ipairs(list) do i[k] = id[s[1]] * 256 + (s[3] or 0) * 16 + s[2] end
    assert(#i == GROUPS + 1)
    return { i = i, n = #list, f = f }
end

local function map(what, list, extra, apply, f)
    return over(function(groups, x, stat)
        local c = { x[2] }
        local inputs = { x, stat, { gen = 'positive', unpack(stat) }, c, c }
        for _ = 1, extra do inputs[#inputs + 1] = x end
        return { inputs = inputs, call = calls('batch_norm_map', steps(list, groups, f)),
            ref = function(a, mean, rstd, w, b, ...) return apply(norm(a, mean, rstd, w, b, groups), ...) end }
    end, what)
end

local function plus(a, b) return array.map(function(p, q) return p + q end, a, b) end

local PAIR = array.pair(1)

-- Options are steps (as of a norm; operand 1 is the image), conv (inputs of the convolution), norm (true: a batch norm
-- over it), padding, f (numbers of a step).
local function conv_map(name, inputs, o, apply)
    local i = { PAIR, o.padding * PAIR, PAIR, 1, 0, o.conv + (o.norm and 4 or 0) }
    for _, s in ipairs(o.steps) do i[#i + 1] = id[s[1]] * 256 + (s[3] or 0) * 16 + s[2] end
    return { name = name, inputs = inputs, tol = tol, call = calls('conv2d_map', { i = i, n = #i, f = o.f }),
        ref = function(x, w, ...)
            local rest = { ... }
            local s = array.window(x.shape, { w.shape[1], w.shape[3], w.shape[4] }, { pad = o.padding })
            local y = array.conv2d(s, x, w, o.conv == 3 and table.remove(rest, 1) or nil)
            if o.norm then
                y = norm(y, rest[1], rest[2], rest[3], rest[4], 0)
                rest = { rest[5] }
            end
            return array.map(apply, y, rest[1])
        end }
end

local cases = array.joined(map('relu', { { 'relu', 0 } }, 0, function(y) return array.map(relu, y) end),
    map('add and relu', { { 'add', 0, 1 }, { 'relu', 0 } }, 1, function(y, z) return array.map(relu, plus(y, z)) end),
    map('four steps', { { 'mul', 1, 0 }, { 'sub', 2, 0 }, { 'neg', 0 }, { 'clamp', 0 } }, 2, function(y, z, u)
        return array.map(function(p, q, r) return math.max(-0.5, math.min(0.5, p * q - r)) end, y, z, u)
    end, { -0.5, 0.5 }))

local image, one, RELU = { 2, 3, 2, 2 }, { 3 }, { { 'relu', 0 } }
local function positive(n) return { gen = 'positive', n } end

return {
    conv2d_map = {
        cases = {
            conv_map('bias and relu', { { 2, 3, 4, 5 }, { 5, 3, 3, 3 }, { 5 } },
                { steps = RELU, conv = 3, padding = 1 }, relu),
            conv_map('one pixel and tanh', { { 2, 5, 3, 2 }, { 16, 5, 1, 1 } },
                { steps = { { 'tanh', 0 } }, conv = 2, padding = 0 }, function(v)
                    local e = math.exp(2 * v)
                    return (e - 1) / (e + 1)
                end),
            conv_map('added to an image', { { 1, 2, 4, 3 }, { 3, 2, 2, 2 }, { 1, 3, 3, 2 } },
                { steps = { { 'add', 0, 1 } }, conv = 2, padding = 0 }, function(y, z) return y + z end),
            conv_map('clamped, with a bias, under an image',
                { { 1, 2, 3, 3 }, { 16, 2, 3, 3 }, { 16 }, { 1, 16, 3, 3 } },
                { steps = { { 'clamp', 0 }, { 'sub', 1, 0 } }, conv = 3, padding = 1, f = { -0.5, 0.5 } },
                function(v, z) return z - math.max(-0.5, math.min(0.5, v)) end),
            conv_map('a norm', { { 2, 3, 4, 3 }, { 5, 3, 3, 3 }, { 5 }, { 5 }, positive(5), { 5 }, { 5 } },
                { steps = {}, conv = 3, norm = true, padding = 1 }, function(y) return y end),
            conv_map('a norm, an image and relu',
                { { 2, 5, 3, 2 }, { 19, 5, 1, 1 }, { 19 }, positive(19), { 19 }, { 19 }, { 2, 19, 3, 2 } },
                { steps = { { 'add', 1, 0 }, { 'relu', 0 } }, conv = 2, norm = true, padding = 0 },
                function(y, z) return relu(y + z) end),
        },
        bad = {
            { inputs = { { 1, 2, 3, 3 }, { 3, 2, 2, 2 } },
                error = 'conv2d_map: step 1 is sum, expected an elementwise op',
                call = conv_map('', {}, { steps = { { 'sum', 0 } }, conv = 2, padding = 0 }).call },
            { inputs = { { 1, 2, 3, 3 }, { 3, 2, 2, 2 } }, error = 'conv2d_map: step 1 reads operand 1, which',
                call = conv_map('', {}, { steps = { { 'add', 0, 1 } }, conv = 2, padding = 0 }).call },
            { inputs = { { 1, 2, 3, 3 }, { 3, 2, 2, 2 } }, error = 'conv2d_map: 0 steps given, expected 1 to 2',
                call = conv_map('', {}, { steps = {}, conv = 2, padding = 0 }).call },
            { inputs = { { 1, 2, 3, 3 }, { 3, 2, 2, 2 } }, error = 'conv2d_map: 2 inputs given, expected 6 and',
                call = conv_map('', {}, { steps = RELU, conv = 2, norm = true, padding = 0 }).call },
            { inputs = { { 1, 2, 3, 3 }, { 3, 2, 2, 2 }, { 3 }, { 4 }, { 3 }, { 3 } },
                error = 'conv2d_map: the rstd is %(4%), expected %(3%)',
                call = conv_map('', {}, { steps = RELU, conv = 2, norm = true, padding = 0 }).call },
            { inputs = { { 1, 2, 3, 3 }, { 3, 2, 2, 2 }, { 1, 3, 3, 3 } },
                error = 'conv2d_map: input 3 is %(1, 3, 3, 3%) .*, expected %(1, 3, 2, 2%)',
                call = conv_map('', {}, { steps = { { 'add', 0, 1 } }, conv = 2, padding = 0 }).call },
        },
    },
    batch_norm_map = {
        cases = cases,
        bad = {
            { inputs = { image, one, one, one, one }, error = 'batch_norm_map: 0 steps given',
                call = calls('batch_norm_map', steps({}, 0)) },
            { inputs = { image, one, one, one, one }, error = 'batch_norm_map: step 1 is sum',
                call = calls('batch_norm_map', steps({ { 'sum', 0 } }, 0)) },
            { inputs = { image, one, one, one, one }, error = 'batch_norm_map: step 1 reads operand 1, which',
                call = calls('batch_norm_map', steps({ { 'add', 0, 1 } }, 0)) },
            { inputs = { image, one, one, one, one, { 2, 3, 2, 1 } },
                error = 'batch_norm_map: input 6 is %(2, 3, 2, 1%)',
                    call = calls('batch_norm_map', steps({ { 'add', 0, 1 } }, 0)) },
        },
    },
    relu_norm_sums = {
        cases = over(function(groups, x, stat)
            local c = { x[2] }
            return { inputs = { x, x, stat, { gen = 'positive', unpack(stat) }, c, c },
                call = calls('relu_norm_sums', { i = { groups } }),
                ref = function(dy, ...)
                    local v, m, r = ...
                    return norms.sums_of(masked(dy, { ... }, groups), v, m, r, groups)
                end }
        end),
        bad = { { inputs = { image, image, one, one, one, { 4 } }, error = 'relu_norm_sums: the bias is %(4%)',
            call = calls('relu_norm_sums', { i = { 0 } }) } },
    },
    relu_norm_dx = {
        cases = over(function(groups, x, stat)
            local c = { x[2] }
            local sum = groups == 0 and { 2, x[2] } or { 2, x[1], x[2] }
            return { inputs = { x, x, stat, { gen = 'positive', unpack(stat) }, c, sum, c },
                call = calls('relu_norm_dx', { i = { groups } }),
                ref = function(dy, ...)
                    local v, m, r, w, s, b = ...
                    return norms.dx_of({ masked(dy, { v, m, r, w, b }, groups), v, m, r, w, s }, groups)
                end }
        end),
        bad = { { inputs = { image, image, one, one, { 2 }, { 2, 3 }, one }, error = 'the weight is %(2%)',
            call = calls('relu_norm_dx', { i = { 0 } }) } },
    },
}
