--- The rates of the link among the ranks of a job, measured by exchanges of gradients.
--
-- A backward whose one gradient is exchanged is run for several sizes. An exchange takes start + peer (other ranks) +
-- bytes / rate: the rate follows from the two largest sizes, the start from the smallest. Ranks of one machine exchange
-- inside of it, machines of several ranks by a partial sum that they make together, whose second exchange goes to
-- others. Of what the ranks measure each takes the slowest.
-- @internal wane.plan.costs.ranks
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local iterate = require 'wane.iterate'
local op = require 'wane.tensor.op'
local program = require 'wane.program'
local ranks = require 'wane.program.ranks'
local scoped = require 'wane.scoped'

local C, check = binding.C, binding.check

local TIMES = 7 -- how often a gradient of each size is exchanged
local PEER = 2e-6 -- seconds a message, which one number of ranks does not tell from the start

local link = {}

-- Returns how many elements gradients have: in the smallest each rank owns a stripe, so that it sends to all others.
local function sizes()
    local small = math.max(2 ^ 14, ranks.size * ranks.STRIPE)
    local middle = math.max(2 ^ 19, 4 * small)
    return { small, middle, math.max(2 ^ 21, 4 * middle) }
end

-- Runs a backward that exchanges a gradient of n elements. Adds the bytes and the seconds of each exchange to those of
-- its level, 1 inside of a machine and 2 to others.
local function exchange(p, c, levels)
    local is_shared = ranks.per_node > 1 and ranks.per_node < ranks.size
    local request = { mode = 'backward', roots = { (p * c):sum() }, is_shared = is_shared,
        given = is_shared and ranks.size / ranks.per_node or ranks.size }
    local step, made = binding.new 'struct wn_step', {}
    local opened = program.open(request)
    scoped.always(function() C.wn_timing(0) end, function()
        C.wn_timing(1)
        opened:go()
    end)
    for i = 0, C.wn_count(opened.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
        check(C.wn_step(opened.handle, i, step))
        local what = binding.text(step.what)
        if binding.text(step.op) == 'all_to_all' and what == 'exchange' then
            made[step.node] = { bytes = tonumber(step.sent), seconds = 0, level = step.sent_outside > 0 and 2 or 1 }
        end
        if made[step.node] then
            made[step.node].seconds = made[step.node].seconds + math.max(0, C.wn_step_seconds(opened.handle, i))
        end
    end
    opened:close()
    check(C.wn_cell_drop_grad(p.id))
    for _, one in iterate(made) do table.insert(levels[one.level], one) end
end

-- Returns the bytes and the least seconds of the exchanges of each size, one size behind the other: what disturbs an
-- exchange makes it longer.
local function least(list)
    local out = {}
    for k = 1, #list / TIMES do
        local seconds = math.huge
        for i = 1, TIMES do seconds = math.min(seconds, list[(k - 1) * TIMES + i].seconds) end
        out[k] = { bytes = list[k * TIMES].bytes, seconds = seconds }
    end
    return out
end

-- Returns the seconds of a byte and of a start, by the times of the smallest size and the two largest. Where the larger
-- one took no longer, something else ran: all of it counts for the bytes then.
local function fit(times)
    local a, b = times[2], times[3]
    local byte = (b.seconds - a.seconds) / (b.bytes - a.bytes)
    if byte <= 0 then byte = b.seconds / b.bytes end
    return byte, math.max(0, times[1].seconds - byte * times[1].bytes)
end

--- Measures the link. Every rank calls it.
-- @return { start =, peer = seconds, inside =, outside = bytes a second }, the same on all ranks
function link.measure()
    local levels, mine, n = { {}, {} }, binding.array('f64', 3), ranks.size - 1
    for _, size in ipairs(sizes()) do
        local p = create.cell(create.KIND_PARAMETER, create.zeros(size), 'a gradient')
        check(C.wn_cell_need_grad(p.id, 1))
        local c = create.ones(size)
        op.eval { c }
        for _ = 1, TIMES do exchange(p, c, levels) end
    end
    for k = 1, 2 do
        local times = least(levels[k])
        if #times > 0 then
            local byte, start = fit(times)
            mine[k], mine[0] = byte, math.max(mine[0], start - PEER * n)
        end
    end
    local all, worst = binding.array('f64', 3 * ranks.size), { [0] = 0, 0, 0 }
    ranks.gather('the rates of the link', function() return mine, 24 end, all, 24 * ranks.size)
    for r = 0, n do
        for k = 0, 2 do worst[k] = math.max(worst[k], all[3 * r + k]) end
    end
    local inside, outside = worst[1], worst[2]
    return { start = worst[0], peer = PEER, inside = 1 / (inside > 0 and inside or outside),
        outside = 1 / (outside > 0 and outside or inside) }
end

--- Has plans take the rates of a link from now on.
-- @param rates as link.measure returns them
function link.put(rates)
    local r = binding.new 'struct wn_link_rates'
    r.start, r.peer, r.bytes[0], r.bytes[1] = rates.start, rates.peer, rates.inside, rates.outside
    check(C.wn_link(r))
end

return link
