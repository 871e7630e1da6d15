--- Makes text of the data of benches, tables and pictures of those that spec/bench/rival.lua, budget.lua and
-- seconds.lua wrote (`report.budget` and `report.seconds` have those of the latter), and puts them into the text of a
-- page. Text in, text out: it reads and writes no file, so that the specs can hold pages to their data.
local json = require 'wane.report.json'
local plot = require 'wane.report.plot'
local spread = require 'wane.report.spread'
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

-- Returns whether a table is one row: it is flat, or has names for values of which none is deeper than flat.
local function is_row(value)
    for _, item in pairs(value) do
        local is_deep = type(item) == 'table' and (value[1] ~= nil or item[1] ~= nil or not select(2, keys_of(item)))
        if is_deep then return false end
    end
    return true
end

-- Returns a number as text: of what is no whole number nine digits, which are more than a clock gives.
local function number_text(x) return x == math.floor(x) and json.number(x) or ('%.9g'):format(x) end

--- Returns a value of numbers, strings, booleans and tables as text that Lua reads, with keys in order, so that equal
-- values are equal text. A row is not broken where it fits a line.
function report.as_text(value, indent)
    if type(value) == 'string' then return ('%q'):format(value) end
    if type(value) ~= 'table' then return type(value) == 'number' and number_text(value) or tostring(value) end
    indent = indent or ''
    local keys, is_one = keys_of(value), is_row(value)
    if #keys == 0 then return '{}' end
    local parts, deeper = {}, indent .. '    '
    for i, key in ipairs(keys) do
        local name = type(key) == 'number' and '' or (key:find '^[%a_]+$' and key or ('[%q]'):format(key)) .. ' = '
        parts[i] = name .. report.as_text(value[key], is_one and '' or deeper)
    end
    if is_one then return filled(parts, indent) end
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

-- ---- budgets --------------------------------------------------------------------------------------------------------

--- The tables of spec/bench/budget.lua. It decides what is "within a budget", by the bytes of the arms, for Wane's
-- policies by hand and for PyTorch's arms alike.
report.budget = {}
local budget = report.budget

local function exact(n) return require('wane.report.bytes').exact(n) end

local function overhead(value, base) return ('%+.1f %%'):format(100 * (value / base - 1)) end

-- Returns the fastest measured row that `is_one` takes and that keeps the bytes, or nil; then the least bytes of all
-- rows that `is_one` takes.
local function fastest(rows, bytes, is_one)
    local best, least
    for _, r in ipairs(rows) do
        if r.bytes and is_one(r) then
            if r.seconds and r.bytes <= bytes and (not best or r.seconds < best.seconds) then best = r end
            if not least or r.bytes < least then least = r.bytes end
        end
    end
    return best, least
end

local kinds = {
    hand = function(r) return r.kind == 'hand' or r.kind == 'all' end,
    torch = function(r) return r.kind == 'torch' end,
    sequential = function(r) return r.kind == 'torch' and r.name:match '^checkpoint_sequential' end,
    memory = function(r) return r.kind == 'torch' and r.name:match '^compiled, memory budget' end,
}

local function row_of(data, kind, part)
    for _, r in ipairs(data.rows) do
        if r.kind == kind and (not part or r.part == part) then return r end
    end
end

-- Returns a cell: which row of a kind is fastest within the bytes, its seconds, and their ratio to Wane's.
local function rival_cell(data, bytes, ours, kind)
    local best, least = fastest(data.rows, bytes, kinds[kind])
    if not best then return least and ('none fits, the least is %s'):format(exact(least)) or 'none runs here' end
    local name = best.name:gsub('^by hand: ', '')
    if kind == 'sequential' or kind == 'memory' then name = name:match '(%S+ segments)$' or name:match '(%S+)$' end
    return ('%s: %.4f s, %.2f x'):format(name, best.seconds, best.seconds / ours)
end

--- Returns a table with a row a budget: the bytes and seconds of Wane's plan, and the best of the others at the same
-- bytes.
function budget.summary(data)
    local head = { 'budget, bytes', 'of the activations', 'Wane, s', 'overhead predicted', 'measured', 'aim',
        'by hand' }
    local others = { 'hand' }
    if data.torch then
        for i, name in ipairs { "PyTorch's best", 'its checkpoint_sequential', 'its memory budget' } do
            head[#head + 1] = name
            others[1 + i] = ({ 'torch', 'sequential', 'memory' })[i]
        end
    end
    local rows, all = {}, row_of(data, 'all')
    for i, given in ipairs(data.budgets) do
        local ours = row_of(data, 'budget', given.part)
        rows[i] = { exact(given.bytes), ('%d %%'):format(100 * given.part), ours and ('%.4f'):format(ours.seconds)
            or 'cannot be kept', ours and overhead(ours.predicted, all.predicted) or '',
            ours and overhead(ours.seconds, all.seconds) or '', given.part == 0.5 and '<= 8 %' or '' }
        for _, kind in ipairs(others) do
            table.insert(rows[i], ours and rival_cell(data, given.bytes, ours.seconds, kind) or '')
        end
    end
    return report.markdown(head, rows)
end

-- Returns a table with a row for every arm, measured or not.
local function everything(data)
    local rows, all, plain = {}, row_of(data, 'all'), row_of(data, 'torch')
    for i, r in ipairs(data.rows) do
        local base = r.kind == 'torch' and plain or all
        local name = r.kind == 'torch' and 'PyTorch, ' .. r.name or r.name
        rows[i] = { name, r.bytes and exact(r.bytes) or '', r.predicted and ('%.4f'):format(r.predicted) or '',
            r.seconds and ('%.4f'):format(r.seconds) or r.why,
            r.predicted and overhead(r.predicted, base.predicted) or '',
            r.seconds and overhead(r.seconds, base.seconds) or '', r.nodes or '',
            r.is_equal == nil and '' or r.is_equal and 'equal' or 'DIFFER' }
    end
    return report.markdown({ 'plan', 'bytes', 's predicted', 's measured', 'overhead predicted', 'measured',
        'nodes again', 'gradients' }, rows)
end

local function budget_circumstances(data)
    local m, torch = data.machine, data.torch
    local beside = torch and (' PyTorch %s (%s), %d threads, in turns with Wane.'):format(torch.version,
        torch.libraries, torch.threads) or ' There was no PyTorch.'
    return ('%s; loss = mean of squares.\n%s, cores %s, %d GiB; Wane with %d threads.%s\n'
        .. 'Medians of %d turns; planned: %s. '
        .. 'Load average %s at the start, %s at the end.\n'):format(data.network, m.cpu, m.cores, m.GiB, data.threads,
        beside, data.turns, data.costs, data.load.start, data.load.finish)
end

local BUDGET_EXPLAINED = [[
Within a budget: an arm whose bytes are. Each cell says which is the fastest there, its seconds, and how often Wane's
fit in them. Wane's bytes are all that it reserves over the step, predicted and measured to be equal (or the run ends);
PyTorch's the most alive at once, by its allocator's events, which is less than what its allocator reserves. By hand:
the policies of `spec/support/budget_models.lua` that fit 75 %, a plan once. PyTorch is tuned as in rival, its selective
checkpointing saves the results of the ATen ops named, and `activation_memory_budget` is set for `torch.compile` of the
whole stack; what fits no budget takes no turns, but for the step that saves everything, over which its overheads
are, and the smallest of each kind.
]]

--- Returns the text of RESULTS.md, which budget.lua also prints.
function budget.results(data)
    return table.concat({ budget_circumstances(data), budget.summary(data), BUDGET_EXPLAINED, everything(data) }, '\n')
end

--- Returns what spec/README.md says.
function budget.readme(data)
    return budget_circumstances(data) .. '\n' .. budget.summary(data)
end

-- Adds the point of a measured arm: MiB over seconds. Arms that took no turns have no point.
local function add_point(points, r, name, group)
    if not (r.bytes and r.seconds) then return end
    points[#points + 1] = { x = r.bytes / 2 ^ 20, y = r.seconds, name = name, group = group }
    return #points
end

--- Returns the picture (SVG text): bytes against seconds of every arm that was measured. A staircase joins the plans
-- that Wane finds for the budgets and the one that saves everything; Wane's policies by hand and PyTorch's arms are
-- points.
-- @param data what spec/bench/budget.lua measured
function budget.picture(data)
    local points, front = {}, {}
    for i = #data.budgets, 1, -1 do
        local part = data.budgets[i].part
        local ours = row_of(data, 'budget', part)
        if ours then front[#front + 1] = add_point(points, ours, ('budget of %d %%'):format(100 * part), 1) end
    end
    front[#front + 1] = add_point(points, row_of(data, 'all'), 'everything saved', 1)
    for _, r in ipairs(data.rows) do
        if r.kind == 'hand' then add_point(points, r, nil, 2) end
        if r.kind == 'torch' then add_point(points, r, r.name, 3) end
    end
    return plot.scatter { title = 'one step, bytes against seconds: Wane under budgets, its policies by hand, PyTorch',
        x = 'peak, MiB', y = 's/step', points = points, fronts = { front }, groups = { 'Wane', 'Wane, policy by hand',
            'PyTorch' }, front_name = "Wane's plans within a budget" }
end

--- Returns why these results may not replace the published ones, or nil when they may.
function budget.refusal(new, old)
    if new.turns < 9 then return 'they are of fewer than 9 turns' end
    return report.refusal(new, old)
end

-- ---- seconds --------------------------------------------------------------------------------------------------------

--- The table of spec/bench/seconds.lua.
--
-- A plan's error is its predicted seconds over its measured ones, less 1. The drift of a model is how long the plan
-- that the profile ran took during the turns, over what it took in the profile: where it is not 1, the machine changed
-- its speed in between, and the errors "without drift" are those of predictions multiplied by it.
report.seconds = {}
local seconds = report.seconds

local function share(x) return ('%.1f %%'):format(100 * x) end

--- Returns the seconds of the profiled plan during the turns over its seconds in the profile.
function seconds.drift(row)
    return row.plans[1].seconds / row.profiled
end

--- Returns the median and the worst error of a model's plans.
-- @param row of the data
-- @param factor of the predictions: 1, or the drift
-- @param is_other true: only of plans that the profile did not run
-- @return median, worst
function seconds.errors(row, factor, is_other)
    local errors, worst = {}, 0
    for _, q in ipairs(row.plans) do
        if not (is_other and q.is_known) then
            local e = math.abs(factor * q.predicted / q.seconds - 1)
            errors[#errors + 1], worst = e, math.max(worst, e)
        end
    end
    return errors[1] and spread.of(errors).median or 0, worst
end

--- Counts the pairs of plans 3 % apart or more that the prediction puts in the right order, and all such pairs.
function seconds.order(row)
    local right, all = 0, 0
    for i, p in ipairs(row.plans) do
        for k = i + 1, #row.plans do
            local q = row.plans[k]
            if math.abs(p.seconds / q.seconds - 1) >= 0.03 then
                all = all + 1
                if (p.seconds - q.seconds) * (p.predicted - q.predicted) > 0 then right = right + 1 end
            end
        end
    end
    return right, all
end

--- Returns the table, a row a model.
function seconds.table(data)
    local rows = {}
    for i, r in ipairs(data.rows) do
        local drift, right, all = seconds.drift(r), seconds.order(r)
        local middle, worst = seconds.errors(r, 1)
        local still, most = seconds.errors(r, drift)
        rows[i] = { r.name .. ': ' .. r.what, #r.plans, r.turns, ('%.3g ms'):format(r.plans[1].seconds * 1e3),
            share(middle), share((seconds.errors(r, 1, true))), share(worst), ('%.3f'):format(drift),
            share(still), share(most), ('%d of %d'):format(right, all), ('%.2f'):format(r.unrest),
            r.disturbed and 'yes' or 'no' }
    end
    return report.markdown({ 'model', 'plans', 'turns', 'a step', 'median error', 'of others', 'worst', 'drift',
        'median without drift', 'worst without drift', 'order', 'unrest', 'disturbed' }, rows)
end

--- Returns one sentence for all models.
function seconds.sentence(data)
    local right, all, plans, raw, still = 0, 0, 0, 0, 0
    local worst, most = 0, 0
    for _, r in ipairs(data.rows) do
        local a, b = seconds.order(r)
        local drift = seconds.drift(r)
        local e, w = seconds.errors(r, 1)
        local s, v = seconds.errors(r, drift)
        right, all, plans = right + a, all + b, plans + #r.plans
        raw, worst, still, most = math.max(raw, e), math.max(worst, w), math.max(still, s), math.max(most, v)
    end
    return ('Predicted and measured seconds of %d plans of %d models: of %d pairs 3 %% apart or more, %s are in the '
        .. 'right order; the median error of a model is at most %s and the worst of a plan %s, or %s and %s without '
        .. "the machine's drift between the profile and the turns.\n"):format(plans, #data.rows, all,
        all > 0 and share(right / all) or 'none', share(raw), share(worst), share(still), share(most))
end

local function seconds_circumstances(data)
    local m = data.machine
    return ('%s, cores %s, %d GiB; %d threads. Load average %s when the last model was measured.\n'):format(m.cpu,
        m.cores, m.GiB, data.threads, data.load.finish)
end

local SECONDS_EXPLAINED = [[
A plan's seconds are the lower quartile of its turns. "Others" are the plans that the profile did not run. Drift:
seconds of the plan that the profile ran, during the turns over in the profile; "without drift": of predictions times
it.
]]

--- Returns the text of RESULTS.md, which seconds.lua also prints.
function seconds.results(data)
    return table.concat({ seconds_circumstances(data), SECONDS_EXPLAINED, seconds.table(data), seconds.sentence(data) },
        '\n')
end

--- Returns what spec/README.md says.
function seconds.readme(data)
    return seconds.sentence(data)
end

--- Returns why these results may not replace the published ones, or nil when they may.
function seconds.refusal(new, old)
    local has = {}
    for _, r in ipairs(new.rows) do
        has[r.name] = true
        if r.turns < 9 then return ("'%s' has fewer than 9 turns"):format(r.name) end
        if r.disturbed then return ("the profile of '%s' was disturbed: %s"):format(r.name, r.disturbed) end
    end
    for _, r in ipairs(old and old.rows or {}) do
        if not has[r.name] then return ("they lack the model '%s'"):format(r.name) end
    end
end

return report
