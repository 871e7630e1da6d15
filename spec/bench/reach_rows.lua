-- One row of spec/bench/reach.lua, run by every rank under mpirun; rank 0 prints a number.
--   reach_rows.lua barrier                    median seconds of a barrier
--   reach_rows.lua exchange BYTES TIMES [TEAMS] median seconds in which the gradients of one cell become their sum; by
--                                             partial sums of teams where a third number is given
--   reach_rows.lua step AHEAD TIMES BATCH     seconds of a step, its exchanges, and what kernels wait for them:
--                                             predicted by rates of the link and a profile of before, then measured
--   reach_rows.lua small TURNS                the same of a step with many small gradients, by turns of each of some
--                                             lines `group`, -1: none; five numbers for each, of seconds the median
local root = arg[0]:match('^(.*)/spec/bench/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local program = require 'wane.program'
local binding = require 'wane.ffi'
local C, nn, dist = binding.C, wane.nn, wane.dist
dist.start {}

local function median(list)
    table.sort(list)
    return list[math.ceil(#list / 2)]
end

local function say(...)
    if dist.is_first then print(...) end
end

local rows = {}

function rows.barrier()
    local list = {}
    for k = -200, 1000 do
        local began = C.wn_now()
        dist.barrier()
        if k > 0 then list[k] = C.wn_now() - began end
    end
    say(('%.9g'):format(median(list)))
end

local OF_RANKS = { all_to_all = true, ordered_sum = true, partial_sum = true, refresh = true }

-- Returns a planned backward whose one gradient is exchanged and waited for at once, and which makes it anew.
local function open_exchange(p, c, policy)
    return program.open { mode = 'backward', roots = { (p * c):sum() }, is_shared = rows.is_shared, is_last = true,
        given = rows.is_shared and dist.size / require('wane.program.ranks').per_node or dist.size, policy = policy }
end

-- Returns the median seconds in which the gradients of a cell of so many bytes become their sum, whole on every rank.
local function exchange_seconds(bytes, times)
    local p, c = nn.Parameter(wane.zeros(bytes / 4)), wane.eval(wane.randn(bytes / 4))
    local list = {} -- no optimizer has it, so that no rank keeps a range of it alone
    local recipe = binding.text(C.wn_recipe(open_exchange(p, c):plan().handle)) .. '\nahead 0\n'
    for k = -2, times do
        p.grad = nil
        local sum = 0
        local open = open_exchange(p, c, wane.policy.recipe(recipe))
        C.wn_timing(1)
        open:go()
        C.wn_timing(0)
        for i, step in ipairs(require('spec.support.programs').schedule(open)) do
            if OF_RANKS[step.op] then sum = sum + C.wn_step_seconds(open.handle, i - 1) end
        end
        if k > 0 then list[k] = sum end
    end
    return median(list)
end

function rows.exchange(bytes, times, teams)
    rows.is_shared = teams ~= nil
    say(('%.9g'):format(exchange_seconds(bytes, times)))
end

-- Measures the rates of the link, as `wane profile` does.
local function measure_link()
    local link = require 'wane.plan.costs.ranks'
    link.put(link.measure())
end

function rows.step(ahead, times, batch)
    measure_link()
    local layers = {}
    for k = 1, 12 do layers[k] = k % 2 == 1 and nn.Linear(768, 768) or nn.GELU() end
    local net = nn.Sequential(layers)
    local opt, x = wane.optim.SGD(net:parameters(), { lr = 1e-3 }), wane.eval(wane.randn(batch, 768))
    local function fn() return net(x):pow(2):mean() end
    local policy
    local function step() return opt:step(fn, { micro = dist.size, policy = policy }) end
    policy = wane.policy.recipe(tostring(wane.plan(step):recipe()) .. ('\nahead %d\n'):format(ahead))
    step()
    wane.profile(step, { steps = 5, policy = policy, keep = false, anyway = true })
    local plan, m = wane.plan(step), wane.measure(step, { steps = times, optimizer = opt })
    say(('%.6g %.6g %.6g %.6g %.6g'):format(plan.seconds, plan.wire_seconds, plan.wait, m.seconds, m.wait / times))
end

-- Returns a step of 192 parameters, of 1 KiB and of 256 KiB, and its optimizer. policy: function that returns one.
local function small_step(policy)
    local layers = {}
    for k = 1, 96 do layers[k] = k % 2 == 1 and nn.LayerNorm(256) or nn.Linear(256, 256) end
    local net = nn.Sequential(layers)
    local opt, x = wane.optim.AdamW(net:parameters(), { lr = 1e-3 }), wane.eval(wane.randn(64, 256))
    local function fn() return net(x):pow(2):mean() end
    return function() return opt:step(fn, { micro = dist.size, policy = policy() }) end, opt
end

function rows.small(turns)
    measure_link()
    local groups, seconds, policy = { -1, 0, 2 ^ 16, 2 ^ 19, 2 ^ 20, 2 ^ 21, 2 ^ 30 }, {}, nil
    local step, opt = small_step(function() return policy end)
    step()
    local text = tostring(wane.plan(step):recipe())
    local plans, waits = {}, {}
    for k = 1, #groups do seconds[k] = {} end
    for turn = 1, turns do
        for k, group in ipairs(groups) do
            policy = group >= 0 and wane.policy.recipe(('%s\ngroup %d\n'):format(text, group)) or nil
            step()
            local m = wane.measure(step, { steps = 8, optimizer = opt })
            plans[k], seconds[k][turn], waits[k] = wane.plan(step), m.seconds, m.wait / 8
        end
    end
    for k, group in ipairs(groups) do
        local plan = plans[k]
        say(('%d %.6g %.6g %.6g %.6g'):format(group, plan.wire_seconds, plan.wait, median(seconds[k]), waits[k]))
    end
end

rows[arg[1]](tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4]))
