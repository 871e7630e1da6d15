--- Small random graphs for the specs of the planner, of unlike kinds, and what can be asked of their plans.
-- graphs.make(kind, seed) -> fn (records and returns the loss), model. The same seed gives the same graph.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local chains = require 'spec.support.chains'
local nn = wane.nn

local graphs = {}

--- A target of deterministic costs without a launch time, so that seconds differ with the bytes and the products.
-- @return its name
function graphs.target()
    local targets = require 'wane.targets'
    targets.planned = targets.planned or { f64 = 1e11, f32 = 4e11, bf16 = 4e11, bytes = 4e10, launch = 0,
        source = 'made up for specs' }
    return 'planned'
end

local activations = { 'gelu', 'tanh', 'relu', 'sigmoid', 'silu' }

-- A module whose list `layers` grows while it is built.
local Graph = nn.module('PlannedGraph', function(self) self.layers = {} end)
function Graph:forward(x) return self.run(x) end

local function linear(m, from, to)
    local layer = nn.Linear(from, to)
    m.layers[#m.layers + 1] = layer
    return layer
end

local kinds = {}

-- Linear and activation after another, no width as the one before.
function kinds.chain(m, random, width, size)
    local steps = {}
    for _ = 1, size do
        local to = 8 * random(1, 12)
        steps[#steps + 1] = { linear(m, width, to), activations[random(1, #activations)] }
        width = to
    end
    return function(x)
        for _, s in ipairs(steps) do
            x = s[1](x)
            x = x[s[2]](x)
        end
        return (x:named 'last' * x):mean()
    end
end

-- Any op of any values made before.
function kinds.dag(m, random, width, size)
    local steps, widths = {}, { width }
    local function pick() return random(math.max(1, #widths - 5), #widths) end
    for i = 1, size do
        local what, a, b = i == 1 and 1 or random(1, 10), pick(), pick()
        local step = { a = a }
        if what <= 4 then
            local to = random(1, 3) == 1 and 8 * random(1, 10) or width
            step.layer = linear(m, widths[a], to)
            widths[#widths + 1] = to
        elseif what <= 7 or widths[a] ~= widths[b] or a == b then
            step.op = activations[random(1, #activations)]
            widths[#widths + 1] = widths[a]
        else
            step.op, step.b = what == 8 and 'add' or 'mul', b
            widths[#widths + 1] = widths[a]
        end
        steps[#steps + 1] = step
    end
    return function(x)
        local values, is_read = { x }, {}
        for _, s in ipairs(steps) do
            local a = values[s.a]
            is_read[s.a] = true
            if s.b then
                is_read[s.b] = true
                values[#values + 1] = (s.op == 'add' and a + values[s.b] or a * values[s.b]):named(s.op)
            else
                values[#values + 1] = s.layer and s.layer(a) or a[s.op](a)
            end
        end
        local loss
        for i = 2, #values do
            if not is_read[i] then
                local part = i % 2 == 0 and values[i]:sum() or (values[i] * values[i]):mean()
                loss = loss and loss + part or part
            end
        end
        return loss
    end
end

-- One cell used again and again.
function kinds.rnn(m, random, width, size)
    local a, b = linear(m, width, width), linear(m, width, width)
    local gated = random(0, 1) == 1
    return function(x)
        local h = a(x):tanh()
        for _ = 1, math.max(1, math.floor(size / 3)) do
            local z = a(x) + b(h)
            h = gated and z:tanh() * z:sigmoid() or z:tanh():named 'state'
        end
        return (h * h):mean()
    end
end

-- Down, then up again with what was met on the way: no cuts.
function kinds.skips(m, random, width, size)
    local depth, down, up, acts = math.max(1, math.floor(size / 5)), {}, {}, {}
    for i = 1, depth do
        down[i], up[i] = linear(m, width, width), linear(m, width, width)
        acts[i] = activations[random(1, #activations)]
    end
    return function(x)
        local met = {}
        for i = 1, depth do
            x = down[i](x)
            x = x[acts[i]](x)
            met[i] = x:named 'skip'
        end
        for i = depth, 1, -1 do x = up[i](x + met[i]):tanh() end
        return x:sum()
    end
end

-- Blocks that add to a stream.
function kinds.residual(m, random, width, size)
    local steps = {}
    for _ = 1, math.max(1, math.floor(size / 4)) do
        local wide = 8 * random(1, 16)
        steps[#steps + 1] = { linear(m, width, wide), linear(m, wide, width), activations[random(1, #activations)] }
    end
    return function(x)
        for _, s in ipairs(steps) do
            local y = s[1](x)
            x = x + s[2](y[s[3]](y):named 'inner')
        end
        return x:sum()
    end
end

graphs.kinds = { 'chain', 'dag', 'rnn', 'skips', 'residual' }

--- @param kind one of graphs.kinds
-- @param seed whole number
-- @param size about so many forward nodes
function graphs.make(kind, seed, size)
    local random = chains.random(seed * 7919 + #kind)
    local m, width, batch = Graph(), 8 * random(2, 8), 32 * random(4, 8)
    m.run = kinds[kind](m, random, width, size)
    wane.manual_seed(seed)
    local x = wane.eval(wane.randn(batch, width))
    return function() return m(x) end, m
end

--- Calls fn with each assignment of 'save' and 'recompute' to the residuals of `record`: { reserved, seconds, bits }.
-- @param record function that records the loss
function graphs.all_words(record, opts, most)
    local n = #wane.plan(record, { policy = 'save_all', target = opts.target }):residuals()
    if n > most then return nil, n end
    local points = {}
    for bits = 0, 2 ^ n - 1 do
        local bit = bits
        local word = {}
        for i = 1, n do
            word[i] = bit % 2 == 1 and 'recompute' or 'save'
            bit = math.floor(bit / 2)
        end
        local p = wane.plan(record, { policy = function(r) return word[r.index] end, target = opts.target })
        points[#points + 1] = { reserved = p.reserved, seconds = p.seconds, bits = bits }
        p.program:close()
    end
    return points, n
end

--- Those that no other beats, fastest first.
function graphs.front(points)
    table.sort(points, function(a, b)
        if a.seconds ~= b.seconds then return a.seconds < b.seconds end
        return a.reserved < b.reserved
    end)
    local out = {}
    for _, p in ipairs(points) do
        if #out == 0 or p.reserved < out[#out].reserved then out[#out + 1] = p end
    end
    return out
end

return graphs
