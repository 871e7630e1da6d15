--- Makes text of the data of benches, tables and a picture of those that spec/bench/rival.lua wrote, and puts them into
-- the text of a page. Text in, text out: it reads and writes no file, so that the specs can hold pages to their data.
local json = require 'wane.report.json'
local plot = require 'wane.report.plot'
local report = {}

local MiB = 2 ^ 20

-- ---- data as text ---------------------------------------------------------------------------------------------------

-- Returns parts, separated by commas, in lines of at most 118 columns.
local function filled(parts, indent)
    local lines, line = {}, indent .. '{ '
    for i, part in ipairs(parts) do
        local word = part .. (i < #parts and ', ' or ' }')
        if #line + #word > 118 then
            lines[#lines + 1] = line:gsub(' +$', '')
            line = indent .. '  '
        end
        line = line .. word
    end
    lines[#lines + 1] = line
    return (table.concat(lines, '\n'):gsub('^ +', ''))
end

-- Returns the keys of a table in order, numbers first, and whether no value is a table itself.
local function keys_of(value)
    local keys, is_flat = {}, true
    for key, item in pairs(value) do
        keys[#keys + 1], is_flat = key, is_flat and type(item) ~= 'table'
    end
    table.sort(keys, function(a, b)
        if type(a) ~= type(b) then return type(a) == 'number' end
        return a < b
    end)
    return keys, is_flat
end

--- Returns a value of numbers, strings, booleans and tables as text that Lua reads, with keys in order, so that equal
-- values are equal text. A table without tables is not broken where it fits a line.
function report.as_text(value, indent)
    if type(value) == 'string' then return ('%q'):format(value) end
    if type(value) ~= 'table' then return type(value) == 'number' and json.number(value) or tostring(value) end
    indent = indent or ''
    local keys, is_flat = keys_of(value)
    if #keys == 0 then return '{}' end
    local parts, deeper = {}, indent .. '    '
    for i, key in ipairs(keys) do
        local name = type(key) == 'number' and '' or (key:find '^[%a_]+$' and key or ('[%q]'):format(key)) .. ' = '
        parts[i] = name .. report.as_text(value[key], deeper)
    end
    if is_flat then return filled(parts, indent) end
    return '{\n' .. deeper .. table.concat(parts, ',\n' .. deeper) .. ',\n' .. indent .. '}'
end

-- ---- tables ---------------------------------------------------------------------------------------------------------

local function number(format, value) return value and format:format(value) or '' end

local function ratio(a, b) return a and b and a / b or nil end

local function percent(share) return share and 100 * share end

-- Columns: { head, cell(row), needs PyTorch }.
local columns = {
    step = { 'a step', function(r) return r.name end },
    wane = { 'Wane, s', function(r) return number('%.4f', r.wane) end },
    tuned = { 'PyTorch tuned, s', function(r) return number('%.4f', r.tuned) end, true },
    time = { 'Wane / tuned', function(r) return number('%.2f', ratio(r.wane, r.tuned)) end, true },
    time_aim = { 'aim', function(r) return number('<= %.2f', r.aims.time) end, true },
    shipped = { 'as shipped, s', function(r) return number('%.4f', r.shipped) end, true },
    floor = { 'floor, s', function(r) return number('%.4f', r.floor) end },
    share = { 'floor / Wane', function(r) return number('%.0f %%', percent(ratio(r.floor, r.wane))) end },
    least_share = { 'floor / best turn', function(r) return number('%.0f %%', percent(ratio(r.floor, r.least))) end },
    share_aim = { 'aim', function(r) return number('>= %.0f %%', percent(r.aims.floor)) end },
    peak = { "Wane's peak, MiB", function(r) return number('%.1f', r.peak / MiB) end },
    live = { "PyTorch's, MiB", function(r) return number('%.1f', r.live and r.live / MiB) end, true },
    bytes = { 'Wane / PyTorch', function(r) return number('%.3f', ratio(r.peak, r.live)) end, true },
    bytes_aim = { 'aim', function(r) return number('<= %.2f', r.aims.bytes) end, true },
    gflops = { 'probe, GFLOP/s', function(r) return number('%.0f', r.gflops) end },
    bandwidth = { 'probe, GB/s', function(r) return number('%.1f', r.bandwidth) end },
}

--- Returns a Markdown table.
function report.markdown(head, rows)
    local out = { '| ' .. table.concat(head, ' | ') .. ' |', '|' .. ('---|'):rep(#head) }
    for _, row in ipairs(rows) do
        local cells = {}
        for i = 1, #head do cells[i] = tostring(row[i]) end
        out[#out + 1] = '| ' .. table.concat(cells, ' | ') .. ' |'
    end
    return table.concat(out, '\n') .. '\n'
end

-- Returns a table of the columns of these names; those that need PyTorch only where there was one.
local function select_columns(data, names)
    local head, rows, kept = {}, {}, {}
    for _, name in ipairs(names) do
        if data.torch or not columns[name][3] then kept[#kept + 1] = columns[name] end
    end
    for i, column in ipairs(kept) do head[i] = column[1] end
    for i, row in ipairs(data.rows) do
        rows[i] = {}
        for j, column in ipairs(kept) do rows[i][j] = column[2](row) end
    end
    return report.markdown(head, rows)
end

-- Returns what the numbers were measured on, in one paragraph.
local function circumstances(data)
    local m, torch = data.machine, data.torch
    local beside = ('Wane with %d threads; there was no PyTorch'):format(data.threads)
    local kernels = data.kernels and (' Kernels: %s.'):format(data.kernels) or ''
    if torch then
        beside = ('PyTorch %s (%s) with %d threads and Wane with %d, in turns'):format(torch.version,
            torch.libraries, torch.threads, data.threads)
    end
    return ('%s, cores %s, %d GiB.%s\n%s;\nmedians of %d turns, of as many steps each as 0.2 s take.\n'
        .. 'Load average %s at the start, %s at the end.\n'):format(m.cpu, m.cores, m.GiB, kernels, beside, data.turns,
        data.load.start, data.load.finish)
end

local EXPLAINED = [[
Tuned: huge pages, malloc that keeps what is freed, fused optimizers. PyTorch updates in three lines in every row. Its
attention is `scaled_dot_product_attention`, which computes with dropout on a CPU by stored T x T scores.

Wane's peak is the predicted and the measured one (the run ends if they differ by a byte). PyTorch's is the most that
was alive at once, by its allocator's events, from the first parameter through three steps; what is alive after
them must be, to the byte, the tensors that stand.

Floor: the sum over passes of the greater of FLOPs / peak and bytes / bandwidth, at the best rates probed between the
turns of that row: the peak of bf16 in its rows, and the bandwidth of each pass's own mix of streams read and written
(the last column is that of all its bytes). A linear layer's forward: 2 B n k FLOPs, W read. Backward: twice that, W
read and dW written (with `opt:step(loss)`: W and the optimizer's state read and written). A separate update: W, dW and
state read, W and state written. A region runs its forward again but for the last layer. GPT blocks: 3 x 24 N d d FLOPs
of products (N tokens) and 3.5 x 2 T T d of causal attention a sequence; a recomputed block its forward again but for
the last product. Norms, GELU, dropout and memory are not counted there. Since the rates are the best probed, the floor
is also held against Wane's best turn: on a machine that others use too the median turn gets less than those rates.
]]

--- Returns the text of RESULTS.md, which rival.lua also prints.
function report.rival(data)
    local starts = { { 'luajit, Wane and a first tensor', ('%.3f'):format(data.starts.wane) } }
    if data.torch then
        starts[2] = { 'python and PyTorch, tuned', ('%.3f'):format(data.starts.tuned) }
        starts[3] = { 'python and PyTorch, as shipped', ('%.3f'):format(data.starts.shipped) }
    end
    local time = select_columns(data, { 'step', 'wane', 'tuned', 'time', 'time_aim', 'shipped', 'floor', 'share',
        'least_share', 'share_aim', 'peak', 'live', 'bytes', 'bytes_aim', 'gflops', 'bandwidth' })
    return table.concat({ circumstances(data), time, EXPLAINED,
        report.markdown({ 'start of a process', 's' }, starts) }, '\n')
end

--- Returns what README.md says.
function report.readme(data)
    return circumstances(data) .. '\n' .. select_columns(data, { 'step', 'wane', 'tuned', 'time', 'shipped', 'share',
        'peak', 'live', 'bytes' })
end

--- Returns the picture (SVG text): Wane over PyTorch tuned, seconds and bytes, with the aims.
function report.picture(data)
    local time, bytes, groups = { aims = {}, values = {} }, { aims = {}, values = {} }, {}
    time.name, bytes.name = 'time', 'peak bytes'
    for i, r in ipairs(data.rows) do
        groups[i] = r.short
        time.values[i], bytes.values[i] = r.wane / r.tuned, r.peak / r.live
        time.aims[i], bytes.aims[i] = r.aims.time or false, r.aims.bytes or false
    end
    return plot.bars { title = 'Wane / PyTorch tuned, a step: less is better',
        unit = 'Wane / PyTorch', groups = groups, series = { time, bytes }, format = '%.2f' }
end

--- Returns the text between the two marker comments of a page and the numbers of the characters around it, or nil.
function report.marked(page, name)
    local first, last = ('<!-- %s: from here on written by spec/bench/publish.lua -->\n'):format(name),
        ('<!-- %s: up to here -->'):format(name)
    local _, from = page:find(first, 1, true)
    local to = from and page:find(last, from, true)
    if to then return page:sub(from + 1, to - 1), from, to end
end

--- Returns the page with this text between its two marker comments.
function report.replace(page, name, text)
    local _, from, to = report.marked(page, name)
    if not from then error(("the page has no markers for '%s'"):format(name), 0) end
    return page:sub(1, from) .. '\n' .. text .. '\n' .. page:sub(to)
end

--- Returns why these results may not replace the published ones, or nil when they may.
function report.refusal(new, old)
    if new.small then return 'they are of --small' end
    if new.partial then return 'some rows were left out' end
    if old and old.torch and not new.torch then
        return 'they have no PyTorch columns and the published ones have; set PYTHON to a python with PyTorch'
    end
end

return report
