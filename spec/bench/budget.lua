-- Measures what a budget costs: the GPT stack at three quarters, half and a quarter of save_all's activation bytes,
-- planned with measured seconds, beside every policy by hand that fits one of them and, where PyTorch is installed,
-- every way that PyTorch has to keep less (torch_budget.py), in turns in one run: one step of each arm a turn.
--
--   luajit spec/bench/budget.lua [--turns N] [--small] [--bytes FILE] [--out FILE]       PYTHON=python3 unless set
--
-- --bytes: results of an earlier run of the same network and PyTorch, from which PyTorch's bytes are taken, as they are
-- exact: the run is shorter by two watched steps an arm.
--
-- Seconds of ops are measured in this process first (wane.profile) and kept nowhere. The results go to
-- build/bench/budget.lua too (with --small only where --out says), and publish.lua makes the tables from that file.
--
-- "At the same bytes": an arm is within a budget when its bytes are. Wane's are what it reserves over the whole step,
-- predicted and measured, or the run ends; PyTorch's are the most that was alive at once (what its allocator holds
-- beside that is not counted against it). PyTorch runs with the settings that rival.lua calls tuned.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local common = dofile(here .. '/common.lua')
local wane = require 'wane'
local C = require('wane.ffi').C
local measure = require 'wane.plan.measure'
local pytorch = require 'spec.bench.pytorch'
local report = require('spec.bench.report').budget
local stacks = require 'spec.support.stacks'

local chosen = common.options({ turns = 9, bytes = 'text', out = 'text' },
    '--turns N, --small, --bytes FILE, --out FILE')
common.out = chosen.out or (not chosen.small and common.out)
local BLOCKS, D, HEADS, T, BATCH = 6, 384, 6, 256, 8
if chosen.small then BLOCKS, D, HEADS, T, BATCH = 4, 32, 4, 32, 2 end
local DROPOUT = 0.1

-- ---- the network ------------------------------------------------------------------------------------------------
local function network()
    wane.manual_seed(1)
    local blocks = stacks.blocks(BLOCKS, D, HEADS, { weights = DROPOUT, attention = DROPOUT, mlp = DROPOUT })
    local model, x = wane.nn.Sequential(blocks), wane.eval(wane.randn(BATCH, T, D))
    return model, function() return (model(x) ^ 2):mean() end
end

local function profile(fn)
    common.progress 'measuring the ops'
    wane.profile(fn, { steps = 5, keep = false })
    for _, name in ipairs { 'recompute_all', 'sqrt' } do
        wane.profile(fn, { steps = 3, policy = name, keep = false })
    end
end

-- ---- arms -----------------------------------------------------------------------------------------------------------
-- Returns an arm for each plan: everything saved, the budgets that can be kept, and the policies by hand that the
-- largest budget allows, each plan once; then the budgets and the plan that saves everything.
local function wane_arms(fn)
    local whole = wane.plan(fn, { policy = 'save_all' })
    local arms, budgets = { { name = 'save_all', kind = 'all', policy = 'save_all', plan = whole } }, {}
    for i, part in ipairs { 0.75, 0.5, 0.25 } do
        local bytes = math.floor(whole.reserved - (1 - part) * whole.kinds.activation)
        local p = wane.plan(fn, { budget = bytes })
        budgets[i] = { part = part, bytes = bytes, kept = p ~= nil }
        if p then
            arms[#arms + 1] = { name = ('budget: %d %% of the activations'):format(100 * part), kind = 'budget',
                part = part, policy = wane.policy.budget(bytes), plan = p }
        end
    end
    local met = {}
    for _, name in ipairs(require('spec.support.budget_models').by_hand) do
        local ok, p = pcall(wane.plan, fn, { policy = name })
        local key = ok and ('%.0f %.17g'):format(p.reserved, p.seconds)
        if ok and p.reserved <= budgets[1].bytes and not met[key] then
            met[key] = true
            arms[#arms + 1] = { name = 'by hand: ' .. name, kind = 'hand', policy = name, plan = p }
        end
    end
    return arms, budgets, whole
end

-- Returns PyTorch's arms; raises an error when the two networks differ, which shows in the number of parameters.
local function torch_arms(one, model)
    local numel, names = one:ask(('network %d %d %d %d %d'):format(BLOCKS, D, HEADS, T, BATCH)):match '^(%d+) (.*)$'
    local ours, arms = 0, {}
    for _, p in ipairs(model:parameters()) do ours = ours + p:numel() end
    if ours ~= tonumber(numel) then error(('Wane has %d parameters, PyTorch %s'):format(ours, numel), 0) end
    for name in names:gmatch '[^;]+' do arms[#arms + 1] = { name = name, kind = 'torch' } end
    return arms
end

-- Chooses which of PyTorch's arms take turns: those that some budget holds, the one that saves everything, and of each
-- family the smallest. Runs their first steps.
local function prepare(one, others, most)
    local smallest = {}
    for i, arm in ipairs(others) do
        local family = arm.name:match '^[^,]+'
        arm.turns = i == 1 or arm.bytes and arm.bytes <= most
        local least = smallest[family]
        if arm.bytes and (not least or arm.bytes < least.bytes) then smallest[family] = arm end
    end
    for _, arm in pairs(smallest) do arm.turns = true end
    for _, arm in ipairs(others) do
        if arm.turns then
            common.progress('PyTorch: the first steps, ' .. arm.name)
            local fine = one:ask('prepare ' .. arm.name)
            arm.why = fine ~= 'ok' and fine or nil
        elseif not arm.why then
            arm.why = 'fits no budget'
        end
    end
end

-- ---- turns ----------------------------------------------------------------------------------------------------------
-- Runs one step of an arm and returns its seconds. The pause before it lets threads that spin after a step go to sleep.
local function step_of(fn, arm, turn)
    common.rest()
    wane.manual_seed(turn)
    local r = wane.measure(fn, { policy = arm.policy, steps = 1, warmup = turn == 1 and 1 or 0 })
    if not (r.exact and r.reserved == arm.plan.reserved) then
        error(('%s: predicted %.0f bytes, measured %.0f'):format(arm.name, arm.plan.reserved, r.reserved), 0)
    end
    return r.seconds
end

local function take_turns(fn, arms, one, others)
    for _, list in ipairs { arms, others } do
        for _, arm in ipairs(list) do arm.times = {} end
    end
    for turn = 1, chosen.turns do
        common.progress(('turn %d of %d'):format(turn, chosen.turns))
        for _, arm in ipairs(arms) do arm.times[turn] = step_of(fn, arm, turn) end
        for _, arm in ipairs(others) do
            if not arm.why then
                common.rest()
                arm.times[turn] = one:ask('step ' .. arm.name)
            end
        end
    end
end

-- ---- results as data --------------------------------------------------------------------------------------------
local function results(fn, arms, others)
    local rows = {}
    for i, arm in ipairs(arms) do
        arm.digest = measure.gradients(fn, arm.policy)
        rows[i] = { name = arm.name, kind = arm.kind, part = arm.part, bytes = arm.plan.reserved,
            predicted = arm.plan.seconds, seconds = common.median(arm.times), nodes = arm.plan.recomputed,
            is_equal = arm.digest == arms[1].digest }
    end
    for _, arm in ipairs(others) do
        rows[#rows + 1] = { name = arm.name, kind = arm.kind, why = arm.why, bytes = arm.bytes,
            seconds = not arm.why and common.median(arm.times) or nil }
    end
    return rows
end

-- Fills in the bytes of PyTorch's arms, or why there are none: those of the earlier run where --bytes names one, else
-- measured ones.
local function live_bytes(one, others, network_name)
    local known = {}
    if chosen.bytes then
        local old = assert(loadfile(chosen.bytes))()
        if old.network ~= network_name or not old.torch or old.torch.version ~= one.version then
            error(('%s: another network or another PyTorch'):format(chosen.bytes), 0)
        end
        for _, r in ipairs(old.rows) do known[r.kind .. r.name] = r.bytes end
    end
    for _, arm in ipairs(others) do
        common.progress('live bytes: ' .. arm.name)
        local answer = known['torch' .. arm.name] or one:ask('live ' .. arm.name)
        if type(answer) == 'number' then arm.bytes = answer else arm.why = answer end
    end
end

local function main()
    local data, model, fn = common.data, network()
    data.network = ('%d GPT blocks, d = %d, T = %d, batch %d, dropout %g, tiled attention in Wane'):format(BLOCKS, D, T,
        BATCH, DROPOUT)
    profile(fn)
    local arms, budgets, whole = wane_arms(fn)
    local one = pytorch.is_installed() and pytorch.start(here .. '/torch_budget.py', pytorch.TUNED) or nil
    local others = one and torch_arms(one, model) or {}
    live_bytes(one, others, data.network)
    prepare(one, others, budgets[1].bytes)
    take_turns(fn, arms, one, others)
    common.progress()
    data.turns, data.threads, data.small, data.costs = chosen.turns, C.wn_threads(), chosen.small, whole.costs
    data.budgets, data.rows, data.torch = budgets, results(fn, arms, others), one and one:described() or nil
    if one then one:close() end
    common.save()
    io.write(report.results(data))
    if not one then print(pytorch.python .. ' has no PyTorch: its rows and columns are absent') end
end

main()
