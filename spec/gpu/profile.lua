-- Measures where a step goes: milliseconds of each op, of heavy layers and of GPT-2 in both sizes, one program under
-- save_all. The clock is the GPU's: a pair of events around each instruction, for which nothing waits, in steps of
-- their own. So an instruction that takes microseconds is counted with the gap before its kernel, up to a few
-- microseconds. A sum above the step's time is such gaps, which a captured step does not have; a sum below it is time
-- that belongs to no instruction.
--
-- Rows of ops come first, then the instructions by op, phase and place, where a number of a path is '*'. A rate is that
-- of the op's rules: of FLOP where the op has more than INTENSE a byte, else of bytes.
local gpu = require 'spec.gpu.gpu'
local networks = require 'spec.gpu.networks'
local spread = require 'wane.report.spread'
local wane = require 'wane'

local INTENSE = 16 -- FLOP a byte
local MOST = 24    -- rows of places; the others are one

local function new_row(name) return { name = name, calls = 0, seconds = 0, flops = 0, bytes = 0 } end

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

-- Adds the row of a group: milliseconds, and beside them calls, share of the sum and rate.
local function add(name, row, total)
    local rate = row.flops > INTENSE * row.bytes and ('%.1f TF/s'):format(row.flops / row.seconds / 1e12)
        or ('%.0f GB/s'):format(row.bytes / row.seconds / 1e9)
    gpu.number(('%s: %s'):format(name, row.name), row.seconds * 1e3, 'ms', { detail = ('%d call%s, %.1f %%, %s'):format(
        row.calls, row.calls == 1 and '' or 's', 100 * row.seconds / total, rate) })
end

local function profile(name, net)
    local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = 'save_all', profile = true,
        steps = gpu.size(5, 1), warmup = gpu.size(3, 1) })
    gpu.fact(name .. ': predicted bytes are measured bytes', m.exact)
    gpu.number(name .. ': the step, not timed inside', m.seconds * 1e3, 'ms', { detail = ('%d captured graphs'):format(
        m.graphs) })
    gpu.number(name .. ': the step with recording and planning', m.wall * 1e3, 'ms')
    local ops = m:by 'op'
    add(name, ops.total, ops.total.seconds)
    for _, row in ipairs(ops.rows) do add(name, row, ops.total.seconds) end
    for _, row in ipairs(by_place(m.collector.places)) do add(name, row, ops.total.seconds) end
end

local depth, width, batch = unpack(gpu.size({ 20, 4096, 32 }, { 4, 64, 8 }))
profile(('heavy layers %d x %d, batch %d'):format(depth, width, batch), networks.heavy(depth, width, batch))
for _, size in ipairs(gpu.size({ '124M', '774M' }, { 'tiny' })) do
    wane.memory.trim()
    profile('GPT-2 ' .. size, networks.gpt(size, gpu.size(8, 2)))
end
gpu.finish()
