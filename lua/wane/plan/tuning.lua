--- Tuning: the numbers of the CPU's kernels that depend on the machine, and how `wane profile` measures them.
--
-- Each has a preset, from the caches and instruction sets of the processor. `wane profile` runs kernels with other
-- values in turns, keeps the fastest in the file of costs (plan/costs_file.lua), and every later process sets them when
-- it starts. A value must beat the preset by a margin, so that noise does not move it. A number on which bits of results
-- depend needs a wider margin, and stays as it is once it is in the file: the same machine gives the same bits.
-- @internal wane.plan.tuning
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local costs_file = require 'wane.plan.costs_file'

local C, check = binding.C, binding.check

local tuning = {}

local MIB = 2 ^ 20
local RESTLESS = 1.5         -- most ratio of a median to the least seconds on a quiet machine
local ROUNDS = 7             -- turns of each value; the least seconds count
local MARGIN, WIDE = 0.95, 0.9 -- most seconds, of those of the preset, of a value that is taken; where bits depend on it
-- Names of values that are no number of bytes.
local WORDS = { onednn = { [0] = 'auto', 'off', 'on' } }

-- ---- values ------------------------------------------------------------------------------------------------

--- Lists the tunables.
-- @return list of { number =, name =, value =, preset =, least =, most =, is_bits = }, and by name
function tuning.rows()
    local row, rows = binding.new 'struct wn_tunable', {}
    for i = 0, 99 do
        if C.wn_tunable(i, row) ~= 0 then break end
        rows[i + 1] = { number = i, name = binding.text(row.name), value = tonumber(row.value),
            preset = tonumber(row.preset), least = tonumber(row.least), most = tonumber(row.most),
            is_bits = row.is_bits ~= 0 }
        rows[rows[i + 1].name] = rows[i + 1]
    end
    return rows
end

-- Sets a tunable by its row of tuning.rows().
local function set(row, value)
    check(C.wn_tune(row.number, value))
end

-- Returns a value in words: '32 MiB', 'auto'.
local function word(name, value)
    if WORDS[name] then return WORDS[name][value] or ('%.0f'):format(value) end
    return value >= 2 ^ 40 and 'never' or bytes.text(value)
end

--- Returns all tunables in one line, for `wane version`.
function tuning.text()
    local words = {}
    for _, row in ipairs(tuning.rows()) do
        words[#words + 1] = ('%s %s'):format(row.name, word(row.name, row.value))
    end
    local from = tuning.found and 'measured' or tuning.why or "preset, until 'wane profile' measures them"
    return ('%s (%s)'):format(table.concat(words, ', '), from)
end

-- Sets what was found, and leaves out names of another version and values outside their limits. WANE_ONEDNN of the user
-- wins.
local function take(found)
    for name, value in pairs(found) do
        local row = tuning.rows()[name]
        local is_named = name == 'onednn' and (os.getenv 'WANE_ONEDNN' or '') ~= ''
        if row and value >= row.least and value <= row.most and not is_named then set(row, value) end
    end
end

--- Sets the tunables that the file of costs has, once in a process. A file that cannot be used is left aside without a
-- word here: the first plan names it, and so does tuning.text.
function tuning.start()
    if tuning.is_started then return end
    tuning.is_started = true
    local name = costs_file.name()
    local found, why = costs_file.read(name, true)
    tuning.found, tuning.why = found.tuning, why and ('preset: %s %s'):format(name, why)
    if found.tuning then take(found.tuning) end
end

-- ---- measuring ---------------------------------------------------------------------------------------------
-- Runs fn with each value of a tunable in turns. Returns the least seconds of each, in the order of `values`, and the
-- greatest ratio of a median to its least.
local function compare(row, values, fn)
    local times, least, unrest = {}, {}, 1
    for i in ipairs(values) do times[i] = {} end
    for round = 0, ROUNDS do
        for i, value in ipairs(values) do
            set(row, value)
            local start = C.wn_now()
            fn()
            times[i][round] = C.wn_now() - start -- round 0 touches memory, and does not count
        end
    end
    set(row, row.value)
    for i, list in ipairs(times) do
        table.sort(list)
        least[i], unrest = list[1], math.max(unrest, list[math.ceil(ROUNDS / 2)] / list[1])
    end
    return least, unrest
end

-- Returns functions that each run one kernel over x: (rows, 1024), and one that reads its result. The result lies in
-- the arena of a plan, whose pages were touched before.
local function streaming_ops(x)
    local eval = require('wane.program.grad').eval
    return {
        function() eval(x:relu():sum(2)) end,
        function() eval((x + x):sum(2)) end,
        function() eval(x:softmax(2):sum(2)) end,
    }
end

-- Returns the sums, over several ops, of the seconds with each value as a share of those with the first one; nil where
-- something else ran on this machine.
local function compare_ops(row, values, size)
    local eval = require('wane.program.grad').eval
    local x, sums = eval(require('wane.tensor.create').ones(size / 4096, 1024)), {}
    for _, fn in ipairs(streaming_ops(x)) do
        local seconds, unrest = compare(row, values, fn)
        if unrest > RESTLESS then return nil end
        for i, s in ipairs(seconds) do sums[i] = (sums[i] or 0) + s / seconds[1] end
    end
    return sums
end

-- Measures from which size on outputs are to be streamed: the least of SIZES from which on all are written and read
-- again faster. Within the margin the preset decides.
local SIZES = { 4, 8, 16, 32, 64 } -- MiB
local measures = {}
function measures.stream_least(row, most, margin)
    local least = row.most
    for i = #SIZES, 1, -1 do
        local size = SIZES[i] * MIB
        if size <= most then
            local sums = compare_ops(row, { row.most, 1 }, size)
            if not sums then return nil end
            if sums[2] / sums[1] > (size < row.preset and margin or 1 / margin) then break end
            least = size
        end
    end
    return least
end

-- Measures how far ahead of its use a stream is prefetched: the distance whose ops take least in all.
local DISTANCES = { 0, 1024, 2048, 4096, 8192, 16384 }
function measures.stream_ahead(row, most, margin)
    local values = { row.preset }
    for _, distance in ipairs(DISTANCES) do
        if distance ~= row.preset then values[#values + 1] = distance end
    end
    local sums, best = compare_ops(row, values, most), 1
    for i, sum in ipairs(sums or {}) do
        if sum < sums[best] then best = i end
    end
    return sums and (sums[best] <= sums[1] * margin and values[best] or row.preset)
end

--- Measures the tunables of this machine and sets them; takes about two seconds.
-- @param kept { name = value } that were measured before: numbers on which bits depend stay as they are there
-- @param most bytes of the largest value that is used, default 64 MiB
-- @return { name = value } of all that were measured; nil where something else ran on this machine all the time
function tuning.measure(kept, most)
    local found = {}
    for _, row in ipairs(tuning.rows()) do
        if row.is_bits and kept and kept[row.name] then
            found[row.name] = kept[row.name]
        elseif measures[row.name] then
            found[row.name] = measures[row.name](row, most or SIZES[#SIZES] * MIB, row.is_bits and WIDE or MARGIN)
        end
    end
    tuning.found = next(found) and found or nil
    tuning.why = not next(found) and 'preset: something else ran on this machine; profile again when it is quiet' or nil
    take(found)
    return tuning.found
end

return tuning
