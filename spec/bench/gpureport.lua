--- Makes the tables of what a GPU measured (make gpu-check) from the data that spec/bench/gpu.lua wrote: text in, text
-- out.
local report = require 'spec.bench.report'

local gpureport = {}

-- Rates of the data sheets in TF/s; an H100 (SXM) and an H200 have the same.
local SHEET = { bf16 = 989, f32 = 67 }
local GB = 1e9
local MOST_OPS = 8 -- of a profile, below their sum

-- Returns the row of a check by its name, or nil.
local function row_of(data, check, name)
    for _, row in ipairs(data.checks[check] or {}) do
        if row.name == name then return row end
    end
end

local function value_of(data, check, name)
    local row = row_of(data, check, name)
    return row and row.value
end

-- Returns TF/s or milliseconds in three digits.
local function three(x) return x and (x >= 100 and '%.0f' or x >= 10 and '%.1f' or '%.2f'):format(x) or '' end

local function percent(x) return x and ('%.0f %%'):format(x) or '' end

--- Returns what a table shows of a row beside its number: that its turns differed, and of an op its calls, share and
-- rate; else nil.
function gpureport.detail(row)
    local detail = row.detail or ''
    return (detail:find 'noisy' or detail:find '^%d+ calls?, ') and detail or nil
end

-- Returns the number of a row as `format` makes text of it, with a mark where its turns differed; '' without a row.
local function cell(row, format)
    return row and format(row.value) .. ((row.detail or ''):find 'noisy' and ' (noisy)' or '') or ''
end

local function copy_rate(data) return value_of(data, 'bandwidth', "copies, the driver's") end

-- ---- tables ---------------------------------------------------------------------------------------------------------

-- Returns what `take` makes of the rows of checks (nil: nothing), in order, without repeats.
local function names(data, checks, take)
    local list, seen = {}, {}
    for _, check in ipairs(checks) do
        for _, row in ipairs(data.checks[check] or {}) do
            local name = take(row)
            if name and not seen[name] then seen[name], list[#list + 1] = true, name end
        end
    end
    return list
end

local function bandwidth(data)
    local function take(row)
        if row.unit ~= '% copy' then return nil end
        return row.name:match '^(.*), f32$' or row.name:match '^(.*), bf16$' or row.name
    end
    local function row(name) return row_of(data, 'bandwidth', name) end
    local rows = {}
    for i, name in ipairs(names(data, { 'bandwidth' }, take)) do
        rows[i] = { name, cell(row(name .. ', f32') or row(name), percent), cell(row(name .. ', bf16'), percent) }
    end
    return report.markdown({ 'of the copy rate', 'f32', 'bf16' }, rows)
end

local function products(data)
    local function take(row) return row.name:match '^%w+ %d+ x %d+ x %d+$' end
    local rows = {}
    for i, name in ipairs(names(data, { 'own products', 'products' }, take)) do
        local own, library = row_of(data, 'own products', name), row_of(data, 'products', name)
        local rival = value_of(data, 'products', name .. ', PyTorch')
        rows[i] = { name, cell(own, three), cell(library, three), three(rival),
            percent(own and rival and 100 * own.value / rival) }
    end
    return report.markdown({ 'product, m x n x k', 'own kernels, TF/s', 'by cuBLASLt, TF/s', "PyTorch's cuBLAS, TF/s",
        'own / PyTorch' }, rows)
end

local function convolutions(data)
    local checks, rows = { 'convolutions', 'convolutions by cuDNN' }, {}
    local function take(row) return row.unit == 'TF/s' and row.name:match '^conv2d of (.*)$' or nil end
    for i, name in ipairs(names(data, checks, take)) do
        rows[i] = { (name:gsub(', 1 groups', '')) }
        for _, check in ipairs(checks) do
            for _, op in ipairs { 'conv2d', 'conv2d_dx', 'conv2d_dw' } do
                table.insert(rows[i], cell(row_of(data, check, op .. ' of ' .. name), three))
            end
        end
    end
    return report.markdown({ 'convolution, TF/s', 'own y', 'own dx', 'own dw', 'cuDNN y', 'cuDNN dx', 'cuDNN dw' },
        rows)
end

local function attention(data)
    local rows = {}
    local function take(row) return row.name:match '^attention, (.*, causal)$' end
    for i, name in ipairs(names(data, { 'attention' }, take)) do
        rows[i] = { name }
        for _, what in ipairs { 'attention, ', 'its gradient, ' } do
            local row = row_of(data, 'attention', what .. name)
            table.insert(rows[i], cell(row, three))
            table.insert(rows[i], percent(row and 100 * row.value / SHEET.bf16))
            table.insert(rows[i], three(value_of(data, 'attention', what .. name .. ', PyTorch')))
        end
    end
    return report.markdown({ 'attention of bf16', 'forward, TF/s', 'of 989', "PyTorch's", 'gradient, TF/s', 'of 989',
        "PyTorch's" }, rows)
end

local STEP_CHECKS = { 'heavy', 'gpt', 'recurrent' }

-- Returns the table of steps that have milliseconds and a peak; those of PyTorch say so in their names.
local function steps(data)
    local rows = {}
    for _, check in ipairs(STEP_CHECKS) do
        for _, row in ipairs(data.checks[check] or {}) do
            local peak = value_of(data, check, row.name .. ': peak')
            if row.unit == 'ms' and peak then
                rows[#rows + 1] = { row.name, three(row.value), ('%.2f'):format(peak / GB) }
            end
        end
    end
    return report.markdown({ 'a step', 'ms', 'peak, GB' }, rows)
end

-- Returns the network, the op, and what else is told of a row of a profile: calls, share, rate; nil of other rows.
local function op_of(row)
    local net, op = row.name:match '^(.*): ([^:]+)$'
    local calls, share, rate = (row.detail or ''):match '^(%d+) calls?, ([%d.]+ %%), (.*)$'
    if calls and not op:find ' of ' and not op:find '%d+ others$' then return net, op, calls, share, rate end
end

-- Returns the rows of a profile that its table shows: the ops that take most of each step, below their sum.
local function longest_ops(rows)
    local kept, seen = {}, {}
    for _, row in ipairs(rows) do
        local net = op_of(row)
        if net and (seen[net] or 0) <= MOST_OPS then seen[net], kept[#kept + 1] = (seen[net] or 0) + 1, row end
    end
    return kept
end

--- Returns the rows of a check that a table shows.
-- @param check name of it
-- @param rows list of what spec/bench/gpu.lua keeps of each
function gpureport.shown(check, rows)
    if check == 'profile' then return longest_ops(rows) end
    local is_step, has_peak, kept = false, {}, {}
    for _, name in ipairs(STEP_CHECKS) do is_step = is_step or name == check end
    for _, row in ipairs(rows) do has_peak[row.name:match '^(.*): peak$' or ''] = true end
    for _, row in ipairs(rows) do
        local is_shown = has_peak[row.name] or row.name:find ': peak$'
        if is_shown or not is_step then kept[#kept + 1] = row end
    end
    return kept
end

-- Returns the table of the ops that take most of each profiled step, or nil where none was profiled.
local function profile(data)
    local rows, head, is_predicted = {}, { 'a step', 'op', 'calls', 'ms', 'share', 'rate' }, false
    for i, row in ipairs(longest_ops(data.checks.profile or {})) do
        local net, op, calls, share, rate = op_of(row)
        rows[i] = { net, op, calls, three(row.value), share, rate, row.predicted and three(row.predicted) or '' }
        is_predicted = is_predicted or row.predicted ~= nil
    end
    if is_predicted then head[#head + 1] = 'predicted, ms'
    else for _, row in ipairs(rows) do row[#head + 1] = nil end end
    return #rows > 0 and report.markdown(head, rows) or nil
end

-- ---- sentences ------------------------------------------------------------------------------------------------------

-- Returns the words with the numbers put in, or nothing where one is missing.
local function say(list, words, ...)
    for i = 1, select('#', ...) do
        if (select(i, ...)) == nil then return end
    end
    list[#list + 1] = words:format(...)
end

local AIM = 80 -- percent of the copy rate

-- Returns what is far from the libraries, as one sentence.
local function behind(data)
    local list = {}
    local few = row_of(data, 'own products', 'f32 32 x 4096 x 4096')
    local rival = value_of(data, 'products', 'f32 32 x 4096 x 4096, PyTorch')
    say(list, 'own products of f32 with 32 rows reach %.1f TF/s where cuBLAS gives %.1f', few and few.value, rival)
    for _, name in ipairs { 'GPT-2 124M', 'GPT-2 774M' } do
        local own, theirs = value_of(data, 'gpt', name .. ', save_all'), value_of(data, 'gpt', name .. ', PyTorch')
        if own and theirs and own > theirs then
            say(list, '%s, save_all takes %.1f ms where PyTorch takes %.1f', name, own, theirs)
        end
    end
    for _, what in ipairs { 'softmax of f32', 'softmax of bf16', 'sum of columns of f32', 'sum of columns of bf16' } do
        local share = value_of(data, 'bandwidth', (what:gsub(' of (%w+)$', ', %1')))
        if share and share < AIM then say(list, '%s runs at %.0f %% of the copy rate', what, share) end
    end
    local least, most
    for _, row in ipairs(data.checks.attention or {}) do
        if row.name:find '^attention, .*causal$' then
            least, most = math.min(least or row.value, row.value), math.max(most or row.value, row.value)
        end
    end
    say(list, 'attention at %.0f to %.0f %% of the tensor rate', least and 100 * least / SHEET.bf16, most and 100 * most
        / SHEET.bf16)
    return #list > 0 and ('What is behind:\n%s.'):format(table.concat(list, ';\n')) or ''
end

-- Returns what the numbers were measured on, what held, and what is left out.
local function circumstances(data)
    local facts, with = data.facts, { 'driver for ' .. data.driver }
    for _, name in ipairs { 'cuBLASLt', 'cuDNN' } do
        if data[name] then with[#with + 1] = name .. ' ' .. data[name] end
    end
    local lines = { ('One %s (%s), %s.'):format(data.card, table.concat(with, ', '), data.date),
        ('Of what must hold on any device %d facts held and %d tests of specs passed; %s.'):format(facts.passed,
            facts.tests, #facts.failed == 0 and 'none failed' or ('%d failed:\n%s'):format(#facts.failed,
                table.concat(facts.failed, ';\n'))) }
    if #data.left_out > 0 then
        lines[3] = ('Left out, because they were not run to their end: %s.'):format(table.concat(data.left_out, ', '))
    end
    lines[#lines + 1] = data.note
    return table.concat(lines, '\n')
end

local KERNELS = [[
The driver's copies within the device reach %.0f GB/s, bytes read and written. A kernel's time is that of a program of
many applications less that of one, over their number: launches are in it where they take longer than the kernel. Noisy
is a number whose turns differed by more than a tenth.]]

local STEPS = [[
Steps are the medians of ten, after two or three to warm up. Heavy layers are in f32 with SGD. GPT-2 is B = 8, T = 1024
under autocast to bf16 with AdamW, one program a step; PyTorch's has fused AdamW. Wane's peaks are exact: predicted
bytes were measured bytes. PyTorch's are `max_memory_allocated`.]]

--- Returns the section of spec/bench/RESULTS.md.
-- @param data of spec/bench/gpu.lua
function gpureport.results(data)
    local parts = { circumstances(data), behind(data), KERNELS:format(copy_rate(data) or 0),
        bandwidth(data), products(data), convolutions(data), attention(data), STEPS, steps(data) }
    local ops = profile(data)
    if ops then
        parts[#parts + 1] = ('Where a step goes, one program under save_all: its %d longest ops, by events of the GPU '
            .. 'around each.\nShort ones are counted with the gap before them.'):format(MOST_OPS)
        parts[#parts + 1] = ops
    end
    return table.concat(parts, '\n\n')
end

--- Returns why these results may not be published, or nil where they may.
-- @param new of spec/bench/gpu.lua
-- @param old the published ones, or nil
function gpureport.refusal(new, old)
    if not new.card or not new.date then return 'they name no card or no date (gpu.lua --date YYYY-MM-DD)' end
    for check in pairs(old and old.checks or {}) do
        if not new.checks[check] then
            return ("they lack the check '%s' and the published ones have it"):format(check)
        end
    end
end

return gpureport
