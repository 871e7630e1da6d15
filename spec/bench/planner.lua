-- Measures the time of planning, and the quality of plans. Whole graphs first: the zoo's models with their AdamW step,
-- on meta; one run each, and the process's memory. Then chains: the least budget alone, the whole frontier, and one
-- plan with its schedule and replay (medians; also how long the frontier is and how far a thinned one may be off; what
-- a chain is: spec/support/chains.lua). Then six small models under 50 budgets, each beside the best policy by hand
-- that fits.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local chains = require 'spec.support.chains'
local shapes = require 'spec.support.shapes'
local now = require('wane.ffi').C.wn_now

local function seconds(fn, repeats)
    local times = {}
    for k = 1, repeats do
        local from = now()
        fn()
        times[k] = now() - from
    end
    return common.median(times)
end

-- ---- whole graphs: the zoo's models with their AdamW step, on meta ----------------------------------------------
local function high_water()
    local file = assert(io.open '/proc/self/status')
    local kB = tonumber(file:read('*a'):match 'VmHWM:%s+(%d+)')
    file:close()
    return kB / 1024
end

local device = wane.set_device 'meta'
local rows = {}
for _, case in ipairs { { 'gpt2', '774M' }, { 'gpt2', '1558M' }, { 'llama', '7B' } } do
    common.progress(table.concat(case, ' '))
    local model = require('wane.zoo.' .. case[1]).new(case[2])
    local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
    local x, y = wane.randint(100, { 1, 1024 }), wane.randint(100, { 1, 1024 })
    local function step() opt:step(wane.nn.cross_entropy(model(x), y)) end
    local plan
    local planning = seconds(function() plan = wane.plan(step) end, 1)
    local frontier = seconds(function() wane.min_budget(step) end, 1)
    rows[#rows + 1] = { table.concat(case, ' '), plan.nodes, ('%.3f'):format(planning), ('%.2f'):format(frontier),
        ('%.0f'):format(high_water()) }
end
wane.set_device(device)
common.progress()
common.table({ 'model, batch 1, T = 1024', 'nodes', 'plan, s', 'frontier, s', 'most memory of the process, MB' }, rows)

-- ---- planning at size -------------------------------------------------------------------------------------------
-- Nodes are counted as plan.nodes does: forward, backward and effects. The smallest models stand first, so the most
-- memory of the process is each row's own.
-- Built when it is its turn, and forgotten after it, so that the memory of one row is not that of all.
device = wane.set_device 'meta'
rows = {}
for _, case in ipairs { { 'even MLP', shapes.even, 100 }, { 'uneven residual', shapes.uneven, 90 },
    { 'even MLP', shapes.even, 1000 },
    { 'skips over 3 and 9 layers', shapes.skips, 720 }, { 'unrolled RNN', shapes.rnn, 700 },
    { 'one value, 5,000 readers', shapes.readers, 5000 }, { '7,150 parameters', shapes.parameters, 7150 },
    { 'even MLP', shapes.even, 5000 }, { 'uneven residual', shapes.uneven, 1530 } } do
    common.progress(case[1])
    local plan
    local fn = case[2](case[3])
    local planning = seconds(function() plan = wane.plan(fn) end, 1)
    local frontier = seconds(function() wane.min_budget(fn) end, 1)
    require('wane.ffi').C.wn_debug('forget_plans', 1)
    fn, case[2] = nil, nil
    collectgarbage()
    collectgarbage()
    rows[#rows + 1] = { case[1], plan.nodes, ('%.3f'):format(planning), ('%.2f'):format(frontier),
        ('%.0f'):format(high_water()) }
end
wane.set_device(device)
common.progress()
common.table({ 'planning at size', 'nodes', 'plan, s', 'frontier, s', 'most memory of the process, MB' }, rows)

-- ---- chains: tables of stages ---------------------------------------------------------------------------------
local CORNERS = 128 -- of a table, as many as the planner asks for
local cases = {
    { 'GPT-2 774M, 36 blocks and head, 8 options', chains.gpt(36, 1024, 1280, 20, 50257, 1) },
    { 'GPT-2 wide, 96 blocks and head, 8 options', chains.gpt(96, 2048, 12288, 96, 50257, 1) },
    { '24 stages, none equal, 6 options', chains.varied(24, 6, 3) },
    { '52 stages, none equal, 1 option', chains.varied(52, 1, 3) },
    { '52 stages, none equal, 6 options', chains.varied(52, 6, 3) },
}

rows = {}
for _, case in ipairs(cases) do
    local name, chain = case[1], case[2]
    common.progress(name)
    local frontier = chains.frontier(chain, CORNERS)
    local repeats = 5
    local middle = frontier[math.ceil(#frontier / 2)].bytes
    rows[#rows + 1] = { name, #frontier, ('%.2f'):format(frontier[1].time / frontier[#frontier].time),
        ('%.4f'):format(seconds(function() chains.plan(chain, 0, CORNERS) end, repeats)),
        ('%.4f'):format(seconds(function() chains.frontier(chain, CORNERS) end, repeats)),
        ('%.4f'):format(seconds(function() chains.plan(chain, middle, CORNERS) end, repeats)) }
end
common.progress()
common.table({ 'chain', 'corners', 'slowest / fastest', 'least budget, s', 'frontier, s',
    'one plan, s' }, rows)

-- ---- budgets against policies by hand, predicted ------------------------------------------------------------------
local models = require 'spec.support.budget_models'
rows = {}
local compared_in_all, faster_in_all = 0, 0
for i, model in ipairs(models) do
    common.progress(model.name)
    local compared, faster, slower = 0, 0, 0
    local points, least, most = models.compare(model.build(), 50)
    for _, p in ipairs(points) do
        if p.best then
            compared, faster = compared + 1, faster + (p.seconds < p.best_seconds and 1 or 0)
            slower = slower + p.best_seconds / p.seconds - 1
        end
    end
    compared_in_all, faster_in_all = compared_in_all + compared, faster_in_all + faster
    rows[i] = { model.name, wane.bytes.exact(least), wane.bytes.exact(most), compared, faster,
        ('%.1f %%'):format(100 * slower / compared) }
end
common.progress()
rows[#rows + 1] = { 'all', '', '', compared_in_all, faster_in_all, '' }
common.table({ 'model, 50 budgets', 'least, bytes', 'save_all, bytes', 'budgets that a policy by hand keeps',
    'the budget is strictly faster', 'by hand slower by, mean' }, rows)
