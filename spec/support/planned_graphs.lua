--- Makes small random graphs of several kinds for the specs of the planner, and answers what can be asked of their
-- plans. graphs.make(kind, seed) returns fn, which records and returns the loss, and the model. The same seed gives the
-- same graph.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local chains = require 'spec.support.chains'
local nn = wane.nn

local graphs = {}

--- Makes a target of deterministic costs without a launch time, so that seconds differ with the bytes and the products.
-- @return its name
function graphs.target()
    local targets = require 'wane.plan.costs.targets'
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

-- Makes linear layers and activations in turn, each layer of a width of its own.
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

-- Makes a graph in which any op may read any of the last six values.
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

-- Makes one cell that is used again and again.
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

-- Makes layers down, then as many up, each of which also reads the value of its layer down: there are no cuts.
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

-- Makes blocks that add to a stream.
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

-- Makes branches of one input, merged two by two.
function kinds.tree(m, random, width, size)
    local leaves, acts = {}, {}
    for i = 1, math.max(2, math.floor(size / 3)) do
        leaves[i] = { linear(m, width, width), random(1, 2) == 1 and activations[random(1, #activations)] or nil }
        acts[i] = random(1, 3) > 1 and activations[random(1, #activations)] or nil
    end
    local is_product = random(0, 1) == 1
    return function(x)
        local level, merges = {}, 0
        for i, leaf in ipairs(leaves) do
            local y = leaf[1](x)
            level[i] = leaf[2] and y[leaf[2]](y) or y
        end
        while #level > 1 do
            local a, b = table.remove(level, 1), table.remove(level, 1)
            merges = merges + 1
            local y = is_product and merges % 2 == 1 and a * b or a + b
            level[#level + 1] = acts[merges] and y[acts[merges]](y) or y
        end
        return (level[1] * level[1]):mean()
    end
end

-- Makes a stream whose every step reads one value or the input again.
function kinds.shared(m, random, width, size)
    local first, steps = linear(m, width, width), {}
    for i = 1, math.max(1, math.floor((size - 4) / 2)) do
        steps[i] = { random(1, 4), activations[random(1, #activations)], linear(m, width, width) }
    end
    return function(x)
        local read = first(x):tanh()
        local y = read
        for _, s in ipairs(steps) do
            if s[1] == 1 then y = y[s[2]](y) * read
            elseif s[1] == 2 then y = s[3](y) + read
            elseif s[1] == 3 then y = s[3](y) * x
            else y = y + read[s[2]](read) end
        end
        return (y * read):sum()
    end
end

graphs.kinds = { 'chain', 'dag', 'rnn', 'skips', 'residual', 'tree', 'shared' }

--- Returns fn, which records and returns the loss of a graph, and the model of that graph.
-- @param kind one of graphs.kinds
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

local function count_forward(record)
    local n = 0
    for _, node in ipairs(wane.plan(record, { policy = 'save_all' }).parts[1].program:graph()) do
        if node.phase == 'forward' and node.leaf == 0 then n = n + 1 end
    end
    return n
end

--- Makes the largest graph of a kind and a seed whose forward has at most `most` nodes.
function graphs.make_within(kind, seed, most)
    for size = most + 4, 1, -1 do
        local record, m = graphs.make(kind, seed, size)
        if count_forward(record) <= most then return record, m end
    end
end

--- Plans each assignment of 'save' and 'recompute' to the residuals of `record`, as policies that answer so would.
-- @param record function that records the loss
-- @param opts { target = }
-- @param most residuals; of more nothing is planned
-- @return list of { reserved =, seconds =, bits = which residuals are recomputed }, or nil; and the number of residuals
function graphs.all_words(record, opts, most)
    local binding, program, policy = require 'wane.ffi', require 'wane.program', wane.policy
    local C, check, summary = binding.C, binding.check, binding.new('struct wn_summary')
    local request = require('wane.program.sequence').request(record, 'all_words')
    request.target = require('wane.plan.costs').target(opts.target, 'all_words')
    local points, bits, n = {}, 0
    repeat
        request.policy = policy.of(function() end) -- a key of its own: what is planned anew is asked for words
        local p = program.open(request)
        n = C.wn_count(p.handle, C.WN_COUNT_RESIDUALS)
        if n > most then
            p:close()
            return nil, n
        end
        for i = 0, n - 1 do
            local is_gone = math.floor(bits / 2 ^ i) % 2 == 1
            check(C.wn_decide(p.handle, i, policy.decisions[is_gone and 'recompute' or 'save']))
        end
        check(C.wn_plan(p.handle))
        check(C.wn_summary(p.handle, summary))
        points[#points + 1] = { reserved = tonumber(summary.reserved), seconds = summary.seconds, bits = bits }
        p:close()
        bits = bits + 1
    until bits == 2 ^ n
    return points, n
end

--- Returns the points that no other beats in both seconds and bytes, fastest first.
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
