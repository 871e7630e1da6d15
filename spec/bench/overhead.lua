-- Measures what Wane itself costs: start-up, and recording plus running a cached plan, per node. The step runs on meta,
-- whose kernels do nothing, so all that is timed is ours; beside it the same step on the CPU, kernels included.
--
--   luajit spec/bench/overhead.lua [--against FOLDER] [--turns N]
--
-- FOLDER: a checkout of another commit, built, whose steps (overhead_rows.lua) take turns with those of this one.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local options = common.options({ against = 'text', turns = 3 }, '--against, --turns')
local clock = os.clock
local started = clock()
local wane = require 'wane'
wane.tensor { 1, 2, 3 }
local start_ms = 1e3 * (clock() - started)
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local stacks = require 'spec.support.stacks'
local C = require('wane.ffi').C

local function step_of(device)
    wane.set_device(device)
    local model = stacks.linear(stacks.equal(100, 4), function() return wane.nn.ReLU() end)
    local opt = wane.optim.SGD(model:parameters(), { lr = 1e-3 })
    local x = wane.zeros(1, 4):retain()
    wane.set_device 'cpu'
    return function() return opt:step(model(x):sum()) end
end

local function per_node(device)
    local step, nodes = step_of(device), 0
    for _ = 1, 30 do step() end
    scoped('listen', function(p)
        for _, s in ipairs(programs.schedule(p)) do -- what runs as one was recorded as several: 'linear+relu'
            if s.what == 'run' then nodes = nodes + 1 + select(2, s.op:gsub('%+', '')) end
        end
    end, step)
    local times = {}
    for _ = 1, 15 do
        local from = C.wn_now()
        for _ = 1, 40 do step() end
        times[#times + 1] = (C.wn_now() - from) / 40
    end
    local median = common.median(times)
    return nodes, 1e6 * median, 1e6 * median / nodes
end

local rows = { { 'require + first tensor', '', ('%.1f ms'):format(start_ms), '' } }
for _, device in ipairs { 'meta', 'cpu' } do
    local nodes, step, node = per_node(device)
    rows[#rows + 1] = { 'record + run a cached plan, ' .. device, nodes, ('%.0f us'):format(step),
        ('%.3f us'):format(node) }
end
common.table({ 'what', 'nodes', 'a step', 'a node' }, rows)

-- Steps of small layers, each in a process of its own with one thread: the least processor time of all turns.
local function step_us(folder, name, device)
    local pipe = assert(io.popen(("LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;;' WANE_LIB= WANE_THREADS=1 "
        .. "WANE_COSTS=off ${LUAJIT:-luajit} %s/spec/bench/overhead_rows.lua '%s' %s 0.3"):format(folder, folder,
        common.root, common.root, name, device)))
    local us = tonumber(pipe:read '*a')
    pipe:close()
    return us or error(folder .. ' has no Wane that runs', 0)
end

local steps = {}
for _, device in ipairs { 'meta', 'cpu' } do
    for _, name in ipairs(require('spec.bench.overhead_rows').NAMES) do
        local now, before = math.huge, math.huge
        for _ = 1, options.turns do
            now = math.min(now, step_us(common.root, name, device))
            if options.against then before = math.min(before, step_us(options.against, name, device)) end
        end
        local is_finite = before < math.huge
        steps[#steps + 1] = { name, device, ('%.1f us'):format(now), is_finite and ('%.1f us'):format(before) or '',
            is_finite and ('%.2f'):format(now / before) or '' }
    end
end
common.table({ 'a step, one thread', 'device', 'processor time', 'before', 'ratio' }, steps)

-- Planning a step that was never met: recipe, lowering, placement, verifier, simulator; and the slack it leaves.
local program = require 'wane.program'
local plans = {}
wane.set_device 'meta'
for _, depth in ipairs { 12, 36 } do
    local model = wane.nn.Sequential(stacks.blocks(depth, 768, 8, { weights = 0.1 }))
    local x = wane.randn(4, 256, 768)
    for _, policy in ipairs { 'save_all', 'recompute_all', 'sqrt' } do
        local p = program.open { mode = 'backward', roots = { model(x):sum() }, policy = policy }
        local nodes, from = C.wn_count(p.handle, C.WN_COUNT_NODES), C.wn_now()
        p:plan()
        local s = require('wane.ffi').new 'struct wn_summary'
        local us = 1e6 * (C.wn_now() - from) / nodes
        C.wn_summary(p.handle, s)
        plans[#plans + 1] = { depth, policy, nodes, ('%.1f us'):format(us),
            ('%.2f %%'):format(100 * tonumber(s.reserved - s.peak) / tonumber(s.activation_bytes)) }
    end
end
common.table({ 'GPT blocks, d = 768', 'policy', 'nodes', 'planning, a node', 'slack, share of activations' }, plans)
