--- Cases of attention over packed queries, keys and values, and of its gradient, against plain loops over scores. Where
-- dropout draws, the reference takes its mask from the dropout op: same seed, same number, same row-major (B, H, T, T)
-- index.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

-- Returns the attributes of an op of attention. o: batch, time, heads, kv, size, causal, p, scale (1 / sqrt(size)
-- unless given).
local function attrs_of(o)
    return { i = { o.heads, o.kv, o.causal and 1 or 0 }, f = { o.p or 0, o.scale or o.size ^ -0.5 } }
end

local function width_of(o) return (o.heads + 2 * o.kv) * o.size end

-- Returns dropout of ones: 0, or 1 / (1 - p), elementwise. After a seed the op under test takes random number 0, and so
-- does this one.
local function factors(o)
    local n = o.batch * o.heads * o.time * o.time
    local out = {}
    for k = 1, n do out[k] = 1 end
    if (o.p or 0) == 0 then return out end
    local wane, binding = require 'wane', require 'wane.ffi'
    wane.manual_seed(1)
    local kept = record('dropout', { wane.ones(n, { dtype = 'f64' }) }, { f = { o.p } })
    local buffer = binding.array('f64', n)
    kept:copy_to(buffer)
    for k = 1, n do out[k] = buffer[k - 1] end
    return out
end

-- Calls visit(b, h, i, seen, at) a query: weights seen[j] from 0, and at(kind, position) -> index before the first
-- feature in qkv: 'q', 'k' or 'v'.
local function each_query(o, qkv, visit)
    local width = width_of(o)
    for b = 0, o.batch - 1 do
        for h = 0, o.heads - 1 do
            local g = math.floor(h / (o.heads / o.kv))
            local column = { q = h, k = o.heads + g, v = o.heads + o.kv + g }
            local function at(kind, t) return (b * o.time + t) * width + column[kind] * o.size end
            for i = 0, o.time - 1 do
                local seen, top, sum = {}, -math.huge, 0
                for j = 0, o.causal and i or o.time - 1 do
                    local dot = 0
                    for f = 1, o.size do dot = dot + qkv[at('q', i) + f] * qkv[at('k', j) + f] end
                    seen[j] = dot * (o.scale or o.size ^ -0.5)
                    top = math.max(top, seen[j])
                end
                for j = 0, #seen do sum = sum + math.exp(seen[j] - top) end
                for j = 0, #seen do seen[j] = math.exp(seen[j] - top) / sum end
                visit(b, h, i, seen, at)
            end
        end
    end
end

local function attend(o, qkv)
    local out, keep = array.zeros { o.batch, o.time, o.heads * o.size }, factors(o)
    each_query(o, qkv, function(b, h, i, seen, at)
        for j = 0, #seen do
            local weight = seen[j] * keep[((b * o.heads + h) * o.time + i) * o.time + j + 1]
            for f = 1, o.size do
                local k = (b * o.time + i) * o.heads * o.size + h * o.size + f
                out[k] = out[k] + weight * qkv[at('v', j) + f]
            end
        end
    end)
    return out
end

local function attend_grad(o, dy, qkv, y)
    local out, keep = array.zeros(qkv.shape), factors(o)
    local scale = o.scale or o.size ^ -0.5
    each_query(o, qkv, function(b, h, i, seen, at)
        local first, shared = (b * o.time + i) * o.heads * o.size + h * o.size, 0
        for f = 1, o.size do shared = shared + dy[first + f] * y[first + f] end
        for j = 0, #seen do
            local kept, dp = keep[((b * o.heads + h) * o.time + i) * o.time + j + 1], 0
            local q, k, v = at('q', i), at('k', j), at('v', j)
            for f = 1, o.size do dp = dp + dy[first + f] * qkv[v + f] end
            local ds = seen[j] * (dp * kept - shared) * scale
            for f = 1, o.size do
                out[q + f] = out[q + f] + ds * qkv[k + f]
                out[k + f] = out[k + f] + ds * qkv[q + f]
                out[v + f] = out[v + f] + seen[j] * kept * dy[first + f]
            end
        end
    end)
    return out
end

-- Shapes; the last ones have several tiles of queries and keys, and heads of no vector's width or wider than the tiles
-- take.
local shapes = {
    { name = 'one position', batch = 2, time = 1, heads = 2, kv = 2, size = 3, causal = true },
    { name = 'every position', batch = 2, time = 5, heads = 2, kv = 2, size = 4 },
    { name = 'causal', batch = 1, time = 7, heads = 3, kv = 3, size = 2, causal = true },
    { name = 'groups, a scale', batch = 2, time = 6, heads = 4, kv = 2, size = 3, causal = true, scale = 0.7 },
    { name = 'one key head, no causal mask', batch = 1, time = 5, heads = 3, kv = 1, size = 2, scale = -0.5 },
    { name = 'dropout', batch = 1, time = 8, heads = 2, kv = 1, size = 3, causal = true, p = 0.4 },
    { name = 'dropout, rows that begin anywhere', batch = 2, time = 5, heads = 2, kv = 2, size = 2, p = 0.3 },
    { name = 'everything dropped', batch = 1, time = 4, heads = 1, kv = 1, size = 2, p = 1 },
    { name = 'nothing', batch = 0, time = 4, heads = 2, kv = 1, size = 2, causal = true },
    { name = 'tiles', batch = 1, time = 203, heads = 2, kv = 1, size = 20, causal = true, p = 0.1, large = true },
    { name = 'tiles, every position', batch = 1, time = 136, heads = 1, kv = 1, size = 72, p = 0.1, large = true },
    { name = 'wide heads', batch = 1, time = 40, heads = 1, kv = 1, size = 140, causal = true, large = true },
    { name = 'wider heads', batch = 1, time = 9, heads = 2, kv = 1, size = 260, causal = true, p = 0.2, large = true },
}

local function qkv_of(o) return { o.batch, o.time, width_of(o) } end
local function result_of(o) return { o.batch, o.time, o.heads * o.size } end

local forward, backward = {}, {}
for k, o in ipairs(shapes) do
    forward[k] = { name = o.name, inputs = { qkv_of(o) }, seeded = true, grad = not o.large or nil,
        call = calls('attention', attrs_of(o)),
        ref = function(qkv) return attend(o, qkv) end }
    backward[k] = { name = o.name, inputs = { result_of(o), qkv_of(o), result_of(o) }, seeded = true,
        tol = { f32 = 5e-5 }, call = calls('attention_grad', attrs_of(o)),
        ref = function(dy, qkv, y) return attend_grad(o, dy, qkv, y) end }
end

-- Cases in which y is the forward's result of the same qkv, so that the gradient flows through both ops. Nothing is
-- dropped: the two, each recorded by itself, would draw different numbers.
for k = 1, 5 do
    local o = shapes[k]
    backward[#backward + 1] = { name = 'of a forward, ' .. o.name, inputs = { result_of(o), qkv_of(o) }, grad = true,
        composed = true, tol = { f32 = 5e-5 },
        call = function(_, dy, qkv)
            return record('attention_grad', { dy, qkv, record('attention', { qkv }, attrs_of(o)) }, attrs_of(o))
        end,
        ref = function(dy, qkv) return attend_grad(o, dy, qkv, attend(o, qkv)) end }
end

local function with(heads, kv, p, scale)
    return function(_, ...)
        local name = select('#', ...) == 1 and 'attention' or 'attention_grad'
        return record(name, { ... }, { i = { heads, kv, 1 }, f = { p or 0, scale or 1 } })
    end
end

return {
    attention = {
        cases = forward,
        bad = {
            { inputs = { { 2, 3, 10 } }, call = with(2, 2), error = 'attention: qkv is %(2, 3, 10%).*multiple of 6' },
            { inputs = { { 3, 12 } }, call = with(2, 2), error = 'attention: qkv is %(3, 12%), expected %(batch' },
            { inputs = { { 2, 3, 0 } }, call = with(2, 2), error = 'attention: qkv is %(2, 3, 0%)' },
            { inputs = { { 2, 3, 14 } }, call = with(3, 2), error = 'attention: 3 query heads over 2 key heads' },
            { inputs = { { 2, 3, 14 } }, call = with(2, 0), error = 'attention: 2 query heads over 0 key heads' },
            { inputs = { { 2, 3, 12 } }, call = with(2, 2, 1.5), error = 'attention: p is 1.5' },
            { inputs = { { 2, 3, 12 } }, call = with(2, 2, 0 / 0), error = 'attention: p is' },
            { inputs = { { 2, 3, 12 } }, call = with(2, 2, 0, math.huge), error = 'attention: the scale is inf' },
            { inputs = { { 2, 3, 12, dtype = 'i32', gen = 'int:4' } }, call = with(2, 2), error = 'attention: .*f32' },
        },
    },
    attention_grad = {
        cases = backward,
        bad = {
            { inputs = { { 2, 3, 5 }, { 2, 3, 12 }, { 2, 3, 4 } }, call = with(2, 2),
                error = 'attention_grad: dy is %(2, 3, 5%), expected %(2, 3, 4%)' },
            { inputs = { { 2, 3, 4 }, { 2, 3, 12 }, { 2, 4, 4 } }, call = with(2, 2),
                error = "attention_grad: the forward's result is %(2, 4, 4%), expected %(2, 3, 4%)" },
            { inputs = { { 2, 3, 4 }, { 2, 3, 13 }, { 2, 3, 4 } }, call = with(2, 2),
                error = 'attention_grad: qkv is %(2, 3, 13%)' },
        },
    },
}
