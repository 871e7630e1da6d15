--- The text that print(plan) shows: bytes, counts, seconds, kinds at the peak, blocks, and PyTorch's bytes beside them.
-- @internal wane.plan.display
local by = require 'wane.plan.by'
local bytes = require 'wane.report.bytes'
local decide = require 'wane.policy.decide'
local moves = require 'wane.plan.moves'
local parts = require 'wane.plan.parts'
local table_ = require 'wane.report.table'

local display = {}

-- Adds the blocks of a part to a list: { path =, nodes = count, row = of plan:by 'block', which has the bytes, part =
-- number }; values that belong to no block come last.
local function add_blocks(list, number, part)
    local rows = {}
    for _, node in ipairs(decide.forward(part.graph)) do
        local name = by.block(node)
        if not rows[name] and (node.block == 0 or #node.inputs > 0) then
            rows[name] = { path = node.block > 0 and node.path or name, nodes = 0, block = node.block, part = number }
            if node.block > 0 then list[#list + 1] = rows[name] end
        end
        if #node.inputs > 0 then rows[name].nodes = rows[name].nodes + 1 end
    end
    for _, row in ipairs(by.of({ part }, 'block').rows) do
        rows[row.name].row = row
        if rows[row.name].block == 0 then list[#list + 1] = rows[row.name] end
    end
end

-- Returns the table of blocks; of more than 20 it shows the first 12 and the last 4. Columns of bytes in which nothing
-- is are left out, but for those of saved and dropped.
local function block_table(list)
    local all, total = {}, by.of(list, 'block').total
    local head, columns, lines, items = { 'block', 'path', 'nodes' }, {}, {}, {}
    for number, part in ipairs(list) do add_blocks(all, number, part) end
    for _, column in ipairs(by.columns) do
        if column == 'saved' or column == 'dropped' or total[column] > 0 then
            head[#head + 1], columns[#columns + 1] = column, column
        end
    end
    head[#head + 1] = 'recomputed'
    for i, block in ipairs(all) do
        if i <= 12 or i > #all - 4 or #all <= 20 then
            local line, row = { block.block > 0 and block.block or '', block.path, block.nodes }, block.row
            for _, column in ipairs(columns) do line[#line + 1] = bytes.text(row and row[column] or 0) end
            line[#line + 1] = row and row.recomputed or 0
            lines[#lines + 1], items[#items + 1] = line, block
        elseif i == 13 then
            lines[#lines + 1], items[#items + 1] = { '...' }, block
        end
    end
    return parts.text(head, lines, items)
end

-- Returns the line about the bytes that PyTorch would need: those of values, which compare with the plan's peak, and
-- those that its libraries take as workspaces, whatever the model.
local function torch_text(at)
    local is_backward = at.peak_backward >= at.peak_forward
    local peak = is_backward and at.peak_backward or at.peak_forward
    local workspaces = is_backward and at.workspaces.peak_backward or at.workspaces.peak_forward
    local text, unknown = ('PyTorch (accounting, sm_80) would need %s'):format(bytes.text(peak)), {}
    if workspaces > 0 then
        text = ('%s: %s of values and %s of workspaces of its libraries'):format(text, bytes.text(peak - workspaces),
            bytes.text(workspaces))
    end
    for i, row in ipairs(at.unknown) do unknown[i] = ('%s (%d)'):format(row.op, row.count) end
    if #unknown == 0 then return text end
    return ('%s; unknown ops, whose bytes are left out: %s'):format(text, table.concat(unknown, ', '))
end

--- Returns a plan as text.
-- @param self Plan
-- @param list its parts, each with its graph
-- @return several lines
function display.text(self, list)
    local lines = {
        ('plan on %s: peak %s, reserved %s, arena %s, state %s'):format(self.device, bytes.text(self.peak),
            bytes.text(self.reserved), bytes.text(self.arena), bytes.text(self.state)),
        ('%d nodes, %d instructions, %d recomputed; %.3g s (%s), %+.1f %% over saving everything'):format(self.nodes,
            self.instructions, self.recomputed, self.seconds, self.costs, 100 * self.overhead),
        table_.text({ 'kind', 'bytes at the peak', '' }, parts.kind_rows(self.kinds)),
        block_table(list),
        moves.text(self),
    }
    if #list > 1 or list[1].times > 1 then table.insert(lines, 4, tostring(self.parts)) end
    local fine, torch = pcall(self.pytorch, self)
    if fine then
        lines[#lines + 1] = torch_text(torch)
    end
    return table.concat(lines, '\n')
end

return display
