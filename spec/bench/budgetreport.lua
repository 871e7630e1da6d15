--- Makes the tables of spec/bench/budget.lua of the data it wrote: text in, text out. It decides what is "within a
-- budget", by the bytes of the arms, for Wane's policies by hand and for PyTorch's arms alike.
local plot = require 'wane.report.plot'
local report = require 'spec.bench.report'
local budgetreport = {}

local function exact(n) return require('wane.report.bytes').exact(n) end

local function percent(value, base) return ('%+.1f %%'):format(100 * (value / base - 1)) end

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
function budgetreport.summary(data)
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
    for i, budget in ipairs(data.budgets) do
        local ours = row_of(data, 'budget', budget.part)
        rows[i] = { exact(budget.bytes), ('%d %%'):format(100 * budget.part), ours and ('%.4f'):format(ours.seconds)
            or 'cannot be kept', ours and percent(ours.predicted, all.predicted) or '',
            ours and percent(ours.seconds, all.seconds) or '', budget.part == 0.5 and '<= 8 %' or '' }
        for _, kind in ipairs(others) do
            table.insert(rows[i], ours and rival_cell(data, budget.bytes, ours.seconds, kind) or '')
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
            r.predicted and percent(r.predicted, base.predicted) or '',
            r.seconds and percent(r.seconds, base.seconds) or '', r.nodes or '',
            r.is_equal == nil and '' or r.is_equal and 'equal' or 'DIFFER' }
    end
    return report.markdown({ 'plan', 'bytes', 's predicted', 's measured', 'overhead predicted', 'measured',
        'nodes again', 'gradients' }, rows)
end

local function circumstances(data)
    local m, torch = data.machine, data.torch
    local beside = torch and (' PyTorch %s (%s), %d threads, in turns with Wane.'):format(torch.version,
        torch.libraries, torch.threads) or ' There was no PyTorch.'
    return ('%s; loss = mean of squares.\n%s, cores %s, %d GiB; Wane with %d threads.%s\n'
        .. 'Medians of %d turns; planned: %s. '
        .. 'Load average %s at the start, %s at the end.\n'):format(data.network, m.cpu, m.cores, m.GiB, data.threads,
        beside, data.turns, data.costs, data.load.start, data.load.finish)
end

local EXPLAINED = [[
Within a budget: an arm whose bytes are. Each cell says which is the fastest there, its seconds, and how often Wane's
fit in them. Wane's bytes are all that it reserves over the step, predicted and measured to be equal (or the run ends);
PyTorch's the most alive at once, by its allocator's events, which is less than what its allocator reserves. By hand:
the policies of `spec/support/budget_models.lua` that fit 75 %, a plan once. PyTorch is tuned as in rival, its selective
checkpointing saves the results of the ATen ops named, and `activation_memory_budget` is set for `torch.compile` of the
whole stack; what fits no budget takes no turns, but for the step that saves everything, over which its overheads
are, and the smallest of each kind.
]]

--- Returns the text of RESULTS.md, which budget.lua also prints.
function budgetreport.results(data)
    return table.concat({ circumstances(data), budgetreport.summary(data), EXPLAINED, everything(data) }, '\n')
end

--- Returns what spec/README.md says.
function budgetreport.readme(data)
    return circumstances(data) .. '\n' .. budgetreport.summary(data)
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
function budgetreport.picture(data)
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
function budgetreport.refusal(new, old)
    if new.turns < 9 then return 'they are of fewer than 9 turns' end
    return report.refusal(new, old)
end

return budgetreport
