-- Compares predicted with measured seconds: each model is profiled once (wane.profile), then plans of its frontier and
-- by hand run in turns. A turn runs a plan twice and counts the second step, as a training loop would; the seconds of a
-- plan are the lower quartile of its turns. "others" are plans that the profile did not run. Order: of pairs of plans
-- whose measured seconds are 3 % apart or more, those that the prediction puts in the right order. With --add, models
-- that are not named keep the rows they have in build/bench/seconds.lua, from which publish.lua makes the tables.
-- luajit spec/bench/seconds.lua [seconds a model] [--add] [models]
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local sequence = require 'wane.program.sequence'
local report = require('spec.bench.report').seconds
local stacks = require 'spec.support.stacks'
local nn, C = wane.nn, binding.C

local function equal(n, width)
    return stacks.linear(stacks.equal(n, width), function() return nn.GELU() end)
end

local function gpt(dtype, with_regions)
    local blocks = stacks.blocks(6, 192, 6)
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(4, 128, 192))
    local function loss()
        local y = x
        for _, block in ipairs(blocks) do y = with_regions and wane.checkpoint(block.mlp, y) or block(y) end
        return with_regions and y:sum() or model(x):sum()
    end
    return function() return wane.autocast(dtype, loss) end
end

local function summed(model, rows, width)
    local x = wane.eval(wane.randn(rows, width))
    return function() return model(x):sum() end
end

local models = {
    { 'GPT', '6 blocks, d 192, 4 x 128', function() return gpt 'f32' end },
    { 'GPT bf16', 'the same under autocast', function() return gpt 'bf16' end },
    { 'regions', '6 MLPs of 192-768-192, each a region', function() return gpt('f32', true) end },
    { 'wide', '8 x (Linear 768, GELU), 256 rows', function() return summed(equal(8, 768), 256, 768) end },
    { 'narrow', '16 x (Linear 96, GELU), 2048 rows', function() return summed(equal(16, 96), 2048, 96) end },
    { 'uneven', '8 x (Linear 128 to 1024, GELU or Tanh), 512 rows', function()
        return summed(stacks.linear({ 128, 512, 256, 1024, 128, 768, 256, 512, 128 }, function(i)
            return i % 2 == 0 and nn.GELU() or nn.Tanh()
        end), 512, 128)
    end },
}

-- Returns the plans of a model: { name, predicted seconds, policy that gives the same schedule again, whether the
-- profile ran it }.
local function plans_of(fn)
    local list, seen = {}, {}
    local function add(policy, name, is_known)
        local p = wane.plan(fn, { policy = policy })
        local key = ('%d %d'):format(p.reserved, p.recomputed)
        if seen[key] then return end
        seen[key] = true
        list[#list + 1] = { name = name, predicted = p.seconds, policy = p:as_policy(), is_known = is_known,
            times = {} }
    end
    add(nil, 'as marked', true)
    add('recompute_all', 'recompute_all', true)
    add('sqrt', 'sqrt', true)
    for _, name in ipairs { 'save_all', 'every(2)', 'every(3)', 'segments(2)' } do add(name, name) end
    for i, q in ipairs(wane.frontier(fn, { points = 8 })) do add(q.policy, 'frontier ' .. i) end
    return list
end

local measured = binding.new('struct wn_measured')
local function step(fn, q)
    return sequence.backward(fn, 'bench', q.policy, function(p)
        binding.check(C.wn_measured(p.handle, measured))
        return measured.seconds
    end)
end

local function quartile(times)
    table.sort(times)
    return times[math.max(1, math.ceil(0.25 * #times))]
end

local function run(fn, plans, seconds)
    local from, turns = C.wn_now(), 0
    while turns < 3 or C.wn_now() - from < seconds do
        turns = turns + 1
        for _, q in ipairs(plans) do
            step(fn, q)
            table.insert(q.times, step(fn, q))
        end
    end
    for _, q in ipairs(plans) do q.seconds = quartile(q.times) end
    return turns
end

-- Returns a row of results, from which report.lua makes the table.
local function row_of(model, made, plans, turns)
    local row = { name = model[1], what = model[2], turns = turns, unrest = made.unrest, disturbed = made.disturbed,
        profiled = made.whole, plans = {} }
    for i, q in ipairs(plans) do
        row.plans[i] = { name = q.name, is_known = q.is_known or false, predicted = q.predicted, seconds = q.seconds }
    end
    return row
end

-- Returns the rows in the order of `models`, with those that an earlier run has of models not measured now. For --add.
local function with_earlier(rows)
    local kept = loadfile(common.out)
    local by_name, all = {}, {}
    for _, row in ipairs(kept and kept().rows or {}) do by_name[row.name] = row end
    for _, row in ipairs(rows) do by_name[row.name] = row end
    for _, model in ipairs(models) do all[#all + 1] = by_name[model[1]] end
    return all
end

local chosen, names = common.options({ add = true }, '--add', true)
local seconds, wanted, rows = tonumber(names[1]) or 15, {}, {}
for _, name in ipairs(names) do
    if not tonumber(name) then wanted[name] = true end
end
for _, model in ipairs(models) do
    if next(wanted) == nil or wanted[model[1]] then
        common.progress(model[1])
        local fn = model[3]()
        local made = wane.profile(fn, { keep = false, anyway = true })
        local plans = plans_of(fn)
        local turns = run(fn, plans, seconds)
        rows[#rows + 1] = row_of(model, made, plans, turns)
        for _, q in ipairs(os.getenv 'WANE_BENCH_PLANS' and plans or {}) do
            print(('%-14s predicted %.3f ms, measured %.3f, median %.3f'):format(q.name, q.predicted * 1e3,
                q.seconds * 1e3, common.median(q.times) * 1e3))
        end
    end
end
common.progress(nil)
common.data.rows, common.data.threads = chosen.add and with_earlier(rows) or rows, C.wn_threads()
common.save()
io.write(report.results(common.data))
