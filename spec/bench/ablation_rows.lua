--- Graphs whose plans show what each kind of proposal earns: small random ones, and larger ones of the zoo on meta.
-- spec/bench/ablation.lua runs them. As a script, `luajit spec/bench/ablation_rows.lua LEFT_OUT EVERY`, it prints a
-- line for each graph (EVERY: 1; 5: every fifth small one) and each list of allowed actions: the points of its
-- frontier, of the Wane on the path.
local wane = require 'wane'
local C = require('wane.ffi').C
local graphs = require 'spec.support.planned_graphs'
local networks = require 'spec.support.networks'
local shapes = require 'spec.support.shapes'
local targets = require 'wane.plan.costs.targets'
local nn = wane.nn

local rows = {}

--- Actions that budgets may choose, each list by itself.
rows.allowed = { {}, { 'offload' }, { 'compress:bf16', 'compress:int8' },
    { 'offload', 'compress:bf16', 'compress:int8' } }

-- A machine whose links carry half as many bytes as its memory, so that some plans offload and others do not.
targets.ablation = { f64 = 1e11, f32 = 4e11, bf16 = 4e11, bytes = 4e10, launch = 0, to_host = 2e10, from_host = 2e10,
    to_disk = 2e10, from_disk = 2e10, source = 'made up for the bench' }

--- Graphs: { name, size = 'small' or 'larger', make = function() -> fn that records a loss or trains a step }.
rows.graphs = {}

local function add(size, name, make)
    rows.graphs[#rows.graphs + 1] = { name = name, size = size, make = make }
end

for _, kind in ipairs(graphs.kinds) do
    for seed = 1, 2 do
        for _, size in ipairs { 6, 12, 20 } do
            add('small', ('%s, seed %d, size %d'):format(kind, seed, size),
                function() return (graphs.make(kind, seed, size)) end)
        end
    end
end
for seed = 1, 10 do
    add('small', ('network, seed %d'):format(seed), function() return networks.make(seed).loss end)
end
for _, case in ipairs { { 'even', 8 }, { 'uneven', 4 }, { 'skips', 12 }, { 'rnn', 8 }, { 'fan', 6 }, { 'two', 4 },
    { 'readers', 12 }, { 'parameters', 12 } } do
    add('small', ('%s(%d)'):format(case[1], case[2]), function() return shapes[case[1]](case[2]) end)
end

-- Adds a step of a model of the zoo with AdamW. batch() returns inputs and labels.
local function add_step(name, loss_of, model, batch)
    add('larger', name, function()
        local m = model()
        local opt, x, y = wane.optim.AdamW(m:parameters(), { lr = 1e-4 }), batch()
        return function() return opt:step(loss_of(m, x, y)) end
    end)
end

local function loss_of(m, x, y) return nn.cross_entropy(m(x), y) end
local function ids() return wane.randint(90, { 4, 512 }), wane.randint(90, { 4, 512 }) end

add_step('GPT-2, 6 blocks', loss_of, function()
    return require('wane.zoo.gpt2').new({ vocab = 5000, context = 512, layers = 6, heads = 12, d = 768 },
        { dropout = 0.1 })
end, ids)
add_step('LLaMA, 6 blocks', loss_of, function()
    return require('wane.zoo.llama').new { vocab = 5000, layers = 6, heads = 8, kv_heads = 2, d = 1024, hidden = 2752,
        base = 10000 }
end, ids)
add_step('ResNet-18', loss_of, function() return require('wane.zoo.resnet').new('18', { classes = 10 }) end,
    function() return wane.randn(16, 3, 128, 128), wane.randint(10, { 16 }) end)
add_step('U-Net', function(m, x, y) return require('wane.zoo.unet').loss(m, x, y) end,
    function() return require('wane.zoo.unet').new { width = 32, stages = 4 } end,
    function() return wane.randn(4, 3, 128, 128), wane.randint(2, { 4, 128, 128 }) end)
add('larger', 'skips over 3 and 9 layers', function()
    local list, x = {}, wane.randn(2048, 512)
    for i = 1, 60 do list[i] = nn.Linear(512, 512) end
    return function()
        local h, was = x, {}
        for i, layer in ipairs(list) do
            h = layer(h):gelu()
            for _, back in ipairs { 3, 9 } do h = was[i - back] and h + was[i - back] or h end
            was[i] = h
        end
        return h:sum()
    end
end)

--- Returns the points of a graph's frontier, fastest first, and the seconds of processor time that making it took.
-- @param fn records a loss, or trains a step
-- @param allow list of actions
function rows.frontier(fn, allow)
    local opts = { target = 'ablation', policy = wane.policy.budget(2 ^ 50, { allow = allow }) }
    C.wn_debug('forget_plans', 1)
    local from = os.clock()
    wane.min_budget(fn, opts)
    local seconds = os.clock() - from
    opts.points = 2
    return wane.frontier(fn, opts).all, seconds
end

local function print_graph(graph)
    local fn = graph.make()
    for k, allow in ipairs(rows.allowed) do
        local points, seconds = rows.frontier(fn, allow)
        local text = {}
        for i, p in ipairs(points) do text[i] = ('%.0f:%.17g'):format(p.reserved, p.seconds) end
        print(table.concat({ graph.size, k, graph.name, ('%.4f'):format(seconds), table.concat(text, ' ') }, '\t'))
        io.flush()
    end
end

-- Prints the frontiers of every graph (5: of every fifth small one), made without the proposals of the mask `left_out`.
local function print_all(left_out, every)
    if left_out ~= 0 then assert(C.wn_debug('left_out', left_out) == 0, 'nothing can be left out') end
    local device = wane.set_device 'meta'
    for i, graph in ipairs(rows.graphs) do
        wane.set_device(graph.size == 'larger' and 'meta' or device)
        if every == 1 or graph.size == 'small' and i % every == 0 then print_graph(graph) end
        collectgarbage()
    end
end

if arg and arg[0] and arg[0]:match 'ablation_rows%.lua$' then print_all(tonumber(arg[1]), tonumber(arg[2])) end

return rows
