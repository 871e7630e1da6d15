-- Measures whole steps and where their seconds go, each by its name: `luajit spec/gpu/steps.lua NAME` (gpu.lua beside
-- it says how).
local gpu = require 'spec.gpu.gpu'
local networks = require 'spec.gpu.networks'
local predict = require 'spec.gpu.predict'
local spread = require 'wane.report.spread'
local wane = require 'wane'
local binding = require 'wane.ffi'

local C = binding.C
local checks = {}

-- Measures steps of a loss and adds their rows.
-- how: options of wane.measure; aims: { peak =, ms = most of both }, or nil where there are none.
local function add_step(name, loss, how, aims)
    how.steps, how.warmup = gpu.size(10, 1), how.warmup or gpu.size(3, 0)
    local m = wane.measure(loss, how)
    gpu.fact(name .. ': predicted bytes are measured bytes', m.exact)
    gpu.number(name .. ': peak', m.peak, 'B', { predicted = m.predicted_peak, most = aims and aims.peak })
    gpu.number(name, m.seconds * 1e3, 'ms', { most = aims and aims.ms, detail = ('%d captured graphs'):format(
        m.graphs) })
    gpu.number(name .. ': with recording and planning', m.wall * 1e3, 'ms')
    return m
end

-- Measures the network of heavy layers in both sizes, in f32 with SGD: seconds and bytes under two policies and in
-- both forms of a step, beside PyTorch where it is. Aims: every peak at or below PyTorch's, one program at its time or
-- less.
function checks.heavy()
    for _, size in ipairs(gpu.size({ { 20, 4096, 32 }, { 40, 4096, 64 } }, { { 4, 64, 8 }, { 6, 64, 16 } })) do
        local depth, width, batch = unpack(size)
        local name = ('heavy layers %d x %d, batch %d'):format(depth, width, batch)
        local theirs = gpu.add_torch_step(name .. ', PyTorch',
            gpu.torch_rates(('heavy %d %d %d'):format(depth, width, batch))) or {}
        local net = networks.heavy(depth, width, batch)
        for _, policy in ipairs { 'save_all', 'every(4)' } do
            for _, form in ipairs { 'backward, then the step', 'one program' } do
                local is_joint = form == 'one program'
                add_step(('%s, %s, %s'):format(name, policy, form), net.loss,
                    { optimizer = net.optimizer, policy = policy, lines = not is_joint },
                    { peak = theirs.peak, ms = is_joint and policy == 'save_all' and theirs.ms or nil })
            end
        end
        net = nil -- luacheck: ignore 311
        wane.memory.trim()
    end
end

-- ---- GPT-2 ----------------------------------------------------------------------------------------------------------

-- Returns the FLOP of a step: 6 a parameter and token, and 12 a layer, d and position of the context, of which a causal
-- mask needs half.
local function flops(net)
    local c = net.config
    return net.tokens * (6 * net.model:parameter_count() + 6 * c.layers * c.d * c.context)
end

-- Measures one policy; returns its seconds and its peak. aims: { peak =, ms = most of both, first = seconds of
-- save_all, more = percent that this policy may take on top of them }, each of which may be nil.
local function add_policy(name, net, policy, aims)
    local function step() net.optimizer:step(net.loss(), { policy = policy }) end
    local plan = wane.plan(step, { target = predict.target(gpu.card) })
    local m = add_step(name, net.loss, { optimizer = net.optimizer, policy = policy, warmup = gpu.size(3, 1) }, aims)
    gpu.number(name .. ': over the seconds of its plan', m.seconds / plan.seconds, 'x', { predicted = 1 })
    if aims.first then
        gpu.number(name .. ': more than save_all', 100 * math.max(0, m.seconds / aims.first - 1), '%',
            { most = aims.more })
    end
    return m.seconds, m.peak
end

-- Measures steps of GPT-2 124M and 774M, B = 8, T = 1024, under autocast to bf16: seconds, bytes and share of the data
-- sheet's rate under four policies, and PyTorch's where it is: eager, and with its blocks compiled.
function checks.gpt()
    for _, size in ipairs(gpu.size({ '124M', '774M' }, { 'tiny' })) do
        local name = 'GPT-2 ' .. size
        local batch = gpu.size(8, 2)
        local rates, why = gpu.torch_rates(('gpt %s %d'):format(size, batch))
        local theirs = gpu.add_torch_step(name .. ', PyTorch', rates, why)
        gpu.add_torch_step(name .. ', PyTorch, blocks compiled', rates, why, 'compiled_')
        local net = networks.gpt(size, batch)
        local all, most = add_policy(name .. ', save_all', net, 'save_all', theirs or {})
        gpu.number(name .. ", save_all: of the data sheet's rate", 100 * flops(net) / all / gpu.PEAK, '%',
            { least = 40 })
        add_policy(name .. ', elementwise recomputed', net, networks.elementwise, { first = all, more = 5 })
        local _, least = add_policy(name .. ', every block recomputed', net, 'every(1)', { first = all, more = 32 })
        local budget = wane.policy.budget(math.floor((most + least) / 2))
        add_policy(name .. ', a budget halfway', net, budget, { first = all })
        net = nil -- luacheck: ignore 311
        wane.memory.trim()
    end
end

-- Measures a step of GPT-2 124M with its logits in padded rows and without (runtime/plan/ir/rows.c), each beside its
-- prediction. Rule: rows stay padded where the step takes at most 0.95 of the other's time.
function checks.rows()
    local net, ms = networks.gpt(gpu.size('124M', 'tiny'), gpu.size(8, 2)), {}
    for _, is_padded in ipairs { true, false } do
        binding.check(C.wn_debug('rows', is_padded and 1 or 0))
        local name = ('GPT-2 %s, logits in %s rows'):format(gpu.size('124M', 'tiny'), is_padded and 'padded' or 'plain')
        local expected = predict.ops(function() net.optimizer:step(net.loss(), { policy = 'save_all' }) end,
            predict.target(gpu.card))
        local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = 'save_all', steps = gpu.size(10, 1),
            warmup = gpu.size(3, 1) })
        gpu.fact(name .. ': predicted bytes are measured bytes', m.exact)
        gpu.number(name, m.seconds * 1e3, 'ms', { predicted = expected.step * 1e3 })
        ms[#ms + 1] = m.seconds
    end
    binding.check(C.wn_debug('rows', 1))
    gpu.number('padded rows: of the time of plain ones', ms[1] / ms[2], 'x', { most = 0.95 })
end

-- Measures forward and backward of nn.LSTM and nn.GRU in f32, one layer and the sum of the squares of its results,
-- beside PyTorch's, which cuDNN computes. A step of time is a product with the state and elementwise ops, so the count
-- of launches, not the FLOP, is what takes time.
function checks.recurrent()
    local times, batch, inputs, hidden = unpack(gpu.size({ 64, 64, 512, 512 }, { 3, 2, 8, 8 }))
    local rates, why = gpu.torch_rates(('recurrent %d %d %d %d'):format(times, batch, inputs, hidden))
    for _, kind in ipairs { 'LSTM', 'GRU' } do
        local name = ('%s, T = %d, B = %d, %d -> %d, f32'):format(kind, times, batch, inputs, hidden)
        local theirs = gpu.add_torch_step(name .. ', PyTorch', rates, why, kind:lower() .. '_')
        wane.manual_seed(1)
        local layer, x = wane.nn[kind](inputs, hidden), gpu.normal(times, batch, inputs)
        add_step(name, function() return (layer(x) ^ 2):sum() end, {}, theirs)
    end
end

-- ---- where a step goes ----------------------------------------------------------------------------------------------
local INTENSE = 16 -- FLOP a byte
local MOST = 24    -- rows of places; the others are one

-- Returns a row that holds nothing yet.
local function new_row(name) return { name = name, calls = 0, seconds = 0, flops = 0, bytes = 0 } end

-- Adds calls and what they took to a row.
local function count(row, calls, more)
    row.calls, row.seconds = row.calls + calls, row.seconds + more.seconds
    row.flops, row.bytes = row.flops + more.flops, row.bytes + more.bytes
end

-- Returns rows of instructions with one op, phase and place, the longest first, at most MOST and one of the others.
local function by_place(places)
    local rows, list = {}, {}
    for _, place in ipairs(places) do
        local name = ('%s of %s, %s'):format(place.op, place.path:gsub('%f[%w]%d+%f[%W]', '*'), place.phase)
        if not rows[name] then
            rows[name] = new_row(name)
            list[#list + 1] = rows[name]
        end
        count(rows[name], 1, { seconds = spread.of(place.times).median, flops = place.flops, bytes = place.bytes })
    end
    table.sort(list, function(a, b) return a.seconds > b.seconds or a.seconds == b.seconds and a.name < b.name end)
    local rest = new_row(('%d others'):format(#list - MOST))
    while #list > MOST do count(rest, list[#list].calls, table.remove(list)) end
    if rest.calls > 0 then list[#list + 1] = rest end
    return list
end

-- Adds the row of a group: milliseconds, and beside them calls, share of the sum and rate. predicted: seconds, or nil.
local function add(name, row, total, predicted)
    local rate = row.flops > INTENSE * row.bytes and ('%.1f TF/s'):format(row.flops / row.seconds / 1e12)
        or ('%.0f GB/s'):format(row.bytes / row.seconds / 1e9)
    gpu.number(('%s: %s'):format(name, row.name), row.seconds * 1e3, 'ms', {
        predicted = predicted and predicted * 1e3, detail = ('%d call%s, %.1f %%, %s'):format(row.calls,
            row.calls == 1 and '' or 's', 100 * row.seconds / total, rate) })
end

-- Measures where a step of a network goes under save_all.
local function profile(name, net)
    local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = 'save_all', profile = true,
        steps = gpu.size(5, 1), warmup = gpu.size(3, 1) })
    gpu.fact(name .. ': predicted bytes are measured bytes', m.exact)
    local expected = predict.ops(function() net.optimizer:step(net.loss(), { policy = 'save_all' }) end,
        predict.target(gpu.card))
    gpu.number(name .. ': the step, not timed inside', m.seconds * 1e3, 'ms', { predicted = expected.step * 1e3,
        detail = ('%d captured graphs'):format(m.graphs) })
    gpu.number(name .. ': the step with recording and planning', m.wall * 1e3, 'ms')
    local ops = m:by 'op'
    add(name, ops.total, ops.total.seconds, expected.total)
    for _, row in ipairs(ops.rows) do
        add(name, row, ops.total.seconds, expected.by[row.name] and expected.by[row.name].seconds)
    end
    for _, row in ipairs(by_place(m.collector.places)) do add(name, row, ops.total.seconds) end
end

-- Measures where a step goes: milliseconds of each op, of heavy layers and of GPT-2 in both sizes, one program under
-- save_all. The clock is the GPU's: a pair of events around each instruction, for which nothing waits, in steps of
-- their own. So an instruction that takes microseconds is counted with the gap before its kernel, up to a few
-- microseconds. A sum above the step's time is such gaps, which a captured step does not have; a sum below it is time
-- that belongs to no instruction. Predictions are those of the rates of an H100 or H200 (predict.lua).
--
-- Rows of ops come first, then the instructions by op, phase and place, where a number of a path is '*'. A rate is that
-- of the op's rules: of FLOP where the op has more than INTENSE a byte, else of bytes.
function checks.profile()
    local depth, width, batch = unpack(gpu.size({ 20, 4096, 32 }, { 4, 64, 8 }))
    profile(('heavy layers %d x %d, batch %d'):format(depth, width, batch), networks.heavy(depth, width, batch))
    for _, size in ipairs(gpu.size({ '124M', '774M' }, { 'tiny' })) do
        wane.memory.trim()
        profile('GPT-2 ' .. size, networks.gpt(size, gpu.size(8, 2)))
    end
end

gpu.run(checks)
