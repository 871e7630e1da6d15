--- plan:by(what): the bytes of a plan's residuals, added up by type, path, op, name or block.
--
-- Every residual is in exactly one group, so the sums are those of the plan: saved + dropped + moved + compressed bytes
-- are `activation_bytes`, and the counts of recomputed nodes add up to `recomputed`. Groups are what policies see: a
-- group of types has the residuals of which policy.by_type asks that type first - what a module returns belongs to its
-- caller, so the queries of an attention are the attention's, although a Linear computes them - and paths are those
-- that the patterns of policy.by_path are compared with.
-- @internal wane.plan.by
local bytes = require 'wane.report.bytes'
local decide = require 'wane.policy.decide'
local errors = require 'wane.errors'
local moves = require 'wane.plan.moves'
local parts = require 'wane.plan.parts'

local by = {}

local NOBODY = '(no module)' -- the group of values that are recorded outside of every module
local UNNAMED = '(no name)'
local NO_BLOCK = '(no block)' -- data that is computed beside the modules

-- Functions that return the group of a forward node.
local group_of = {
    type = function(node)
        local owner = node.chain[node.owners]
        return owner and owner.info.type or NOBODY
    end,
    path = function(node, depth)
        local path = node.path or ''
        local names = {}
        for name in path:gmatch '[^.]+' do
            if #names == (depth or math.huge) then break end
            names[#names + 1] = name
        end
        return #names > 0 and table.concat(names, '.') or NOBODY
    end,
    op = function(node) return node.op end,
    name = function(node) return node.name ~= '' and node.name or UNNAMED end,
    block = function(node) return node.block > 0 and node.block or NO_BLOCK end,
}
local words = { 'type', 'path', 'op', 'name', 'block' }
local is_ordered = { path = true, block = true } -- in the order of the forward; the others by bytes

-- Returns the column that counts the bytes of a residual.
local function column_of(node)
    local word = moves.decision(node)
    if word == 'save' then return 'saved' end
    if word == 'recompute' then return 'dropped' end
    return word:find '^compress' and 'compressed' or 'moved'
end

local columns = { 'saved', 'dropped', 'moved', 'compressed' } -- of bytes, in the order in which they print

local function new_row(name)
    return { name = name, nodes = 0, values = 0, bytes = 0, saved = 0, dropped = 0, moved = 0, compressed = 0,
        recomputed = 0 }
end

-- Adds a forward node to the row of its group.
local function count(row, node)
    row.recomputed = row.recomputed + math.max(0, node.copies - 1)
    if #node.inputs > 0 then row.nodes = row.nodes + 1 end
    if not node.is_residual then return end
    local column = column_of(node)
    row[column], row.bytes, row.values = row[column] + node.bytes, row.bytes + node.bytes, row.values + 1
end

--- Class of the tables of plan:by; prints. `rows` is a list of { name =, nodes = count of those with inputs, values =
-- count, bytes =, saved =, dropped =, moved =, compressed = (bytes), recomputed = count of nodes, part = number of the
-- part that a block is of, path = of a block's first module }; `total` is a row of their sums, `what` the word.
local Groups = {}
Groups.__index = Groups

local MOST, FIRST, LAST = 40, 28, 8 -- rows that print; of more, the first ones and the last ones

-- Returns the cells of a row; columns in which nothing is are left out.
local function cells_of(row, used)
    local cells = { row.name, row.values }
    if used.block then
        cells = { type(row.name) == 'number' and row.name or '', row.path or row.name, row.nodes, row.values }
    end
    for _, column in ipairs(columns) do
        if used[column] then cells[#cells + 1] = row[column] == 0 and '' or bytes.text(row[column]) end
    end
    cells[#cells + 1] = row.recomputed > 0 and row.recomputed or ''
    return cells
end

function Groups.__tostring(groups)
    local used, lines, items = { saved = true, dropped = true, block = groups.what == 'block' }, {}, {}
    local head = used.block and { 'block', 'path', 'nodes', 'values' } or { groups.what, 'values' }
    for _, column in ipairs(columns) do
        used[column] = used[column] or groups.total[column] > 0
        if used[column] then head[#head + 1] = column end
    end
    head[#head + 1] = 'recomputed'
    local count_ = #groups.rows
    for i, row in ipairs(groups.rows) do
        if count_ <= MOST or i <= FIRST or i > count_ - LAST then
            lines[#lines + 1], items[#items + 1] = cells_of(row, used), row
        elseif i == FIRST + 1 then
            local more = ('... %d more'):format(count_ - FIRST - LAST)
            lines[#lines + 1], items[#items + 1] = used.block and { '', more } or { more }, { part = row.part }
        end
    end
    lines[#lines + 1] = cells_of(groups.total, used)
    return parts.text(head, lines, items)
end

-- Returns the rows of the groups, of blocks or of those that have a residual or a recomputed node, and that of their
-- sums.
local function rows_of(list_of_parts, what, depth)
    local list, rows, total = {}, {}, new_row 'all'
    local function add(node, number)
        local name = group_of[what](node, depth)
        local row = rows[name]
        local is_block = what == 'block' and (node.block == 0 or #node.inputs > 0)
        if not row and (node.is_residual or node.copies > 1 or is_block) then
            row = new_row(name)
            if what == 'block' then row.part, row.path = number, node.block > 0 and node.path or nil end
            rows[name], list[#list + 1] = row, row
        end
        if row then
            count(row, node)
            count(total, node)
        end
    end
    for number, part in ipairs(list_of_parts) do
        if what == 'block' then rows = {} end
        for _, node in ipairs(decide.forward(part.graph)) do add(node, number) end
    end
    return list, total
end

--- Raises 'value' for a word that is none to group by.
-- @param what word
-- @param known list of words
-- @param name opens the message
function by.check(what, known, name)
    for _, word in ipairs(known) do
        if word == what then return end
    end
    errors.raise(nil, 'value', '%s: expected a word to group by, got %s; %s', name, errors.describe(what),
        errors.near(type(what) == 'string' and what or '', known))
end

--- Adds up the residuals of a plan by group.
-- @param list_of_parts parts of a plan, each with its graph
-- @param what 'type', 'path', 'op', 'name' or 'block'
-- @param opts { depth = most names of a path } of 'path', or nil
-- @return Groups
-- @raise 'value' for another word and wrong options
function by.of(list_of_parts, what, opts)
    by.check(what, words, 'plan:by')
    opts = errors.check_options(opts, { 'depth' }, 'plan:by')
    local depth = opts.depth and errors.count(opts.depth, 'plan:by: depth', 1, 1e6)
    if depth and what ~= 'path' then
        errors.raise(nil, 'value', "plan:by: depth shortens paths; plan:by('%s') has none", what)
    end
    local list, total = rows_of(list_of_parts, what, depth)
    if not is_ordered[what] then
        for i, row in ipairs(list) do row.order = i end
        table.sort(list, function(a, b)
            if a.bytes ~= b.bytes then return a.bytes > b.bytes end
            return a.order < b.order
        end)
        for _, row in ipairs(list) do row.order = nil end
    end
    return setmetatable({ what = what, rows = list, total = total }, Groups)
end

return by
