-- Predicted seconds against measured ones: each model is profiled once (wane.profile), then plans of its frontier and
-- by hand run in turns. A turn runs a plan twice and counts the second step, as a training loop would; a plan's seconds
-- are the lower quartile of its turns. "others" are plans that the profile did not run. Order: of pairs of plans whose
-- measured seconds are 3 % apart or more, those that the prediction puts in the right order.
-- luajit spec/bench/seconds.lua [seconds a model] [models]
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local measure, plan, program = require 'wane.measure', require 'wane.plan', require 'wane.program'
local module = require 'wane.module'
local nn, C = wane.nn, binding.C

local Block = nn.module('Block', function(self, d, heads)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { causal = true })
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d)
end)
function Block:forward(x)
    x = x + self.attn(self.ln1(x))
    return x + self.mlp(self.ln2(x))
end

local function stack(widths, act)
    local layers = {}
    for i = 1, #widths - 1 do
        layers[2 * i - 1] = nn.Linear(widths[i], widths[i + 1])
        layers[2 * i] = act(i)
    end
    return nn.Sequential(layers)
end

local function equal(n, width)
    local widths = {}
    for i = 1, n + 1 do widths[i] = width end
    return stack(widths, function() return nn.GELU() end)
end

local function gpt(dtype, with_regions)
    local blocks = {}
    for i = 1, 6 do blocks[i] = Block(192, 6) end
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
        return summed(stack({ 128, 512, 256, 1024, 128, 768, 256, 512, 128 }, function(i)
            return i % 2 == 0 and nn.GELU() or nn.Tanh()
        end), 512, 128)
    end },
}

-- The plans: { name, predicted seconds, policy that gives the same schedule again, whether the profile ran it }.
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
    local p = program.open(measure.quietly(plan.request_of(fn, 'bench'), q.policy)):plan()
    p:run()
    module.new_epoch()
    binding.check(C.wn_measured(p.handle, measured))
    p:close()
    return measured.seconds
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

local function order(plans)
    local right, all = 0, 0
    for i, p in ipairs(plans) do
        for k = i + 1, #plans do
            local q = plans[k]
            if math.abs(p.seconds / q.seconds - 1) >= 0.03 then
                all = all + 1
                if (p.seconds - q.seconds) * (p.predicted - q.predicted) > 0 then right = right + 1 end
            end
        end
    end
    return right, all
end

local function percent(x)
    return ('%.1f %%'):format(100 * x)
end

local seconds, wanted = tonumber(arg[1]) or 15, {}
for i = 2, #arg do wanted[arg[i]] = true end
local rows, right_all, pairs_all = {}, 0, 0
for _, model in ipairs(models) do
    if next(wanted) == nil or wanted[model[1]] then
        common.progress(model[1])
        local fn = model[3]()
        local made = wane.profile(fn, { keep = false, anyway = true })
        local plans = plans_of(fn)
        local turns = run(fn, plans, seconds)
        local errors, others, worst = {}, {}, 0
        for i, q in ipairs(plans) do
            errors[i] = math.abs(q.predicted / q.seconds - 1)
            worst = math.max(worst, errors[i])
            if not q.is_known then others[#others + 1] = errors[i] end
            if os.getenv 'WANE_BENCH_PLANS' then
                print(('%-14s predicted %.3f ms, measured %.3f, median %.3f'):format(q.name, q.predicted * 1e3,
                    q.seconds * 1e3, common.median(q.times) * 1e3))
            end
        end
        local right, all = order(plans)
        right_all, pairs_all = right_all + right, pairs_all + all
        rows[#rows + 1] = { model[1] .. ': ' .. model[2], #plans, turns, ('%.3g ms'):format(plans[1].seconds * 1e3),
            percent(common.median(errors)), #others > 0 and percent(common.median(others)) or '', percent(worst),
            ('%d of %d'):format(right, all), ('%.2f'):format(made.unrest), made.disturbed and 'yes' or 'no' }
    end
end
common.table({ 'model', 'plans', 'turns', 'a step', 'median error', 'of others', 'worst', 'order', 'unrest',
    'disturbed' }, rows)
if pairs_all > 0 then print(('pairs in order: %s'):format(percent(right_all / pairs_all))) end
