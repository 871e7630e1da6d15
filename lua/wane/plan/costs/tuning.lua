--- Tuning: the numbers of the CPU's kernels that depend on the machine, and how `wane profile` measures them.
--
-- Each has a preset, from the caches and instruction sets of the processor. `wane profile` runs kernels with other
-- values in turns, keeps the fastest in the file of costs (plan/costs/file.lua), and every later process sets them when
-- it starts. A value must beat the preset by a margin, so that noise does not move it. A number on which bits of
-- results depend needs a wider margin, and stays as it is once it is in the file: the same machine gives the same bits.
-- @internal wane.plan.costs.tuning
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local costs_file = require 'wane.plan.costs.file'
local iterate = require 'wane.iterate'
local utf8 = require 'wane.utf8'

local C, check = binding.C, binding.check

local tuning = {}

local MIB = 2 ^ 20
local RESTLESS = 1.5         -- most ratio of a median to the least seconds on a quiet machine
local ROUNDS = 7             -- turns of each value; the least seconds count
local MARGIN, WIDE = 0.95, 0.9 -- most seconds of a value that is taken, of the preset's; where bits depend
-- Names of values, and units, that are no number of bytes.
local COUNTS = { thread_grain = 'elements' }
local WORDS = { bf16_widened = { [0] = 'off', 'on' } }

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

-- Returns a value in words: '32 MiB', 'off'.
local function word(name, value)
    if WORDS[name] then return WORDS[name][value] or ('%.0f'):format(value) end
    if value >= 2 ^ 40 then return 'never' end
    return COUNTS[name] and ('%.0f %s'):format(value, COUNTS[name]) or bytes.text(value)
end

--- Returns the tunables on which bits of results depend, in one line.
function tuning.bits()
    local words = {}
    for _, row in ipairs(tuning.rows()) do
        if row.is_bits then words[#words + 1] = ('%s %s'):format(row.name, word(row.name, row.value)) end
    end
    return table.concat(words, ', ')
end

--- Returns all tunables in one line, for `wane version`.
function tuning.text()
    local words = {}
    for _, row in ipairs(tuning.rows()) do
        words[#words + 1] = ('%s %s'):format(row.name, word(row.name, row.value))
    end
    local from = tuning.found and 'measured' or tuning.why or "preset, until 'wane profile' measures them"
    return utf8.shown(('%s (%s)'):format(table.concat(words, ', '), from))
end

-- Sets what was found, and leaves out names of another version and values outside their limits.
local function take(found)
    for name, value in iterate(found) do
        local row = tuning.rows()[name]
        if row and value >= row.least and value <= row.most then set(row, value) end
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

-- Returns which of `values`, the first of which is the default, takes least over several ops, where it beats the
-- default by the margin; else the default. nil where something else ran on this machine.
local function fastest_once(row, values, ops, margin)
    local sums, best = {}, 1
    for _, fn in ipairs(ops) do
        local seconds, unrest = compare(row, values, fn)
        if unrest > RESTLESS then return nil end
        for i, s in ipairs(seconds) do sums[i] = (sums[i] or 0) + s / seconds[1] end
    end
    for i, sum in ipairs(sums) do
        if sum < sums[best] then best = i end
    end
    return sums[best] <= sums[1] * margin and values[best] or values[1]
end

-- Returns what fastest_once finds where it finds it twice, else the default: what others do on the same cores may
-- favour a value for a second.
local function fastest(row, values, ops, margin)
    local taken = fastest_once(row, values, ops, margin)
    if taken == nil or taken == values[1] or fastest_once(row, values, ops, margin) == taken then return taken end
    return values[1]
end

-- Returns the preset of a row and, behind it, the other values.
local function with_preset(row, values)
    local out = { row.preset }
    for _, value in ipairs(values) do
        if value ~= row.preset and value >= row.least and value <= row.most then out[#out + 1] = value end
    end
    return out
end

-- ---- ops that show a number --------------------------------------------------------------------------------
-- Each takes a size in bytes and returns functions that run kernels. Where results are large, a sum reads them, and
-- they are in the arena of a plan, whose pages were touched before.
local function eval(x) return require('wane.program.grad').eval(x) end
local function create() return require 'wane.tensor.create' end

-- Returns a function of a size whose ops are the given ones, over rows x.
local function over_rows(...)
    local list = { ... }
    return function(size)
        local x, ops = eval(create().ones(size / 4096, 1024)), {}
        for i, record in ipairs(list) do ops[i] = function() eval(record(x)) end end
        return ops
    end
end

local elementwise_ops = over_rows(function(x) return x:relu():sum(2) end, function(x) return (x + x):sum(2) end)
local row_ops = over_rows(function(x) return x:softmax(2) end, function(x) return x:sum(2) end)
-- Ops that arithmetic bounds.
local math_ops = over_rows(function(x) return x:gelu():sum(2) end, function(x) return x:softmax(2):sum(2) end)

-- Returns rows of softmax of some sizes, in elements, each many times in one plan: ops that are never joined.
local function small_ops(sizes)
    local ops = {}
    for i, size in ipairs(sizes) do
        local x = eval(create().ones(size / 128, 128))
        ops[i] = function()
            local y = x
            for _ = 1, 50 do y = y:softmax(2) end
            eval(y)
        end
    end
    return ops
end

-- Returns y = x W^T and dX = dY W over four weights of `size` bytes together, of so many rows, in a dtype.
local function layer_ops(size, rows, dtype)
    local record = require('wane.tensor.op').record
    local side = math.floor(math.sqrt(size / 16) / 48) * 48
    local x, weights = eval(create().ones(rows, side):to(dtype)), {}
    local layout = C.wn_weight_layout(0, binding.type_of({ side, side }, 0, 'weight'))
    for i = 1, 4 do weights[i] = eval(create().laid(eval(create().ones(side, side):to(dtype)), layout)) end
    local function through(is_transposed)
        for _, w in ipairs(weights) do eval(record('matmul', { x, w }, { i = { 0, is_transposed }, layout = 0 })) end
    end
    return { function() through(1) end, function() through(0) end }
end

-- Returns dW = dY^T X of 32 rows, whose result has `size` bytes.
local function few_step_ops(size)
    local side = math.floor(math.sqrt(size / 4) / 48) * 48
    local x = eval(create().ones(32, side))
    return { function() eval(x:t():matmul(x):sum(2)) end }
end

-- ---- one number after the other ----------------------------------------------------------------------------
-- Measures from which size on outputs are to be streamed: the least of SIZES from which on all are written and read
-- again faster. Within the margin the preset decides. ops_of: of a size.
local SIZES = { 4, 8, 16, 32, 64 } -- MiB
local LARGEST = 64 * MIB
local function least_streamed(row, most, margin, ops_of)
    local least = row.most
    for i = #SIZES, 1, -1 do
        local size = SIZES[i] * MIB
        if size <= most then
            local preset, other = size < row.preset and row.most or 1, size < row.preset and 1 or row.most
            local at_size = { preset = preset, number = row.number, value = row.value }
            local taken = fastest(at_size, { preset, other }, ops_of(size), margin)
            if not taken then return nil end
            if taken == row.most then break end
            least = size
        end
    end
    return least
end

local STREAMED = { stream_least = elementwise_ops, stream_least_math = math_ops, product_stream = few_step_ops }

-- Functions that return the values of a number that are tried beside the preset and the ops that show it, or nil where
-- the preset is to stay.
local TRIED = {
    stream_ahead = function(_, most) return { 1024, 2048, 4096, 8192, 16384 }, row_ops(most) end,
    block_ahead = function(_, most) return { 0, 4096, 16384 }, elementwise_ops(most) end,
    thread_grain = function() -- loops of softmax give a quarter of the grain of those that memory bounds
        if C.wn_threads() == 1 then return nil end
        return { 8192, 16384, 32768, 65536, 131072, 262144 }, small_ops { 4096, 8192, 16384, 32768, 65536 }
    end,
    product_ahead = function(_, most) return { 0, 256, 640, 1024, 2048 }, layer_ops(most, 32, 'f32') end,
    product_block = function(row, most)
        return { row.least, row.least * 2, row.most }, layer_ops(math.min(most, 16 * MIB), 256, 'f32')
    end,
    bf16_widened = function(row, most)
        if row.most == 0 then return nil end -- the processor multiplies no pairs
        local ops = layer_ops(most, 32, 'bf16')
        for _, fn in ipairs(layer_ops(math.min(most, 16 * MIB), 256, 'bf16')) do ops[#ops + 1] = fn end
        return { 0, 1 }, ops
    end,
}

-- Returns the fastest value of a number; nil where something else ran on the machine.
local function measured(row, most, margin)
    if STREAMED[row.name] then return least_streamed(row, most, margin, STREAMED[row.name]) end
    local values, ops = TRIED[row.name](row, most)
    if not values then return row.preset end
    return fastest(row, with_preset(row, values), ops, margin)
end

--- Measures the tunables of this machine and sets them; takes a few seconds.
-- @param kept { name = value } that were measured before: numbers on which bits depend stay as they are there
-- @param most bytes of the largest value that is used, default 64 MiB
-- @return { name = value } of all that were measured; nil where something else ran on this machine all the time
function tuning.measure(kept, most)
    local found = {}
    for _, row in ipairs(tuning.rows()) do
        if row.is_bits and kept and kept[row.name] then
            found[row.name] = kept[row.name]
        elseif STREAMED[row.name] or TRIED[row.name] then
            found[row.name] = measured(row, most or LARGEST, row.is_bits and WIDE or MARGIN)
        end
    end
    tuning.found = next(found) and found or nil
    tuning.why = not next(found) and 'preset: something else ran on this machine; profile again when it is quiet' or nil
    take(found)
    return tuning.found
end

return tuning
