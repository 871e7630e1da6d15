--- The text that print(plan) shows: bytes, counts, seconds, kinds at the peak, blocks, and PyTorch's bytes beside them.
-- @internal wane.plan.display
local bytes = require 'wane.report.bytes'
local moves = require 'wane.plan.moves'
local program = require 'wane.program'
local table_ = require 'wane.report.table'

local display = {}

-- Adds up the residuals of each block: list of { path =, nodes =, saved = bytes, dropped = bytes, again = count of
-- recomputed nodes }.
local function block_rows(graph)
    local rows, order = {}, {}
    for _, node in ipairs(graph) do
        if node.phase == 'forward' and #node.inputs > 0 and node.block > 0 then
            local row = rows[node.block]
            if not row then
                row = { path = node.path or '', nodes = 0, saved = 0, dropped = 0, again = 0 }
                rows[node.block] = row
                order[#order + 1] = row
            end
            row.nodes, row.again = row.nodes + 1, row.again + math.max(0, node.copies - 1)
            if node.is_residual then
                local key = node.copies > 1 and 'dropped' or 'saved'
                row[key] = row[key] + node.bytes
            end
        end
    end
    return order
end

-- Returns the table of blocks; of more than 20 it shows the first 12 and the last 4.
local function block_table(graph)
    local all, rows = block_rows(graph), {}
    for i, row in ipairs(all) do
        if i <= 12 or i > #all - 4 or #all <= 20 then
            rows[#rows + 1] = { i, row.path, row.nodes, bytes.text(row.saved), bytes.text(row.dropped), row.again }
        elseif i == 13 then
            rows[#rows + 1] = { '...' }
        end
    end
    return table_.text({ 'block', 'path', 'nodes', 'saved', 'dropped', 'recomputed' }, rows)
end

-- Returns the line about the bytes that PyTorch would need: those of values, which compare with the plan's peak, and
-- those that its libraries take as workspaces, whatever the model.
local function torch_text(at)
    local is_backward = at.peak_backward >= at.peak_forward
    local peak = is_backward and at.peak_backward or at.peak_forward
    local workspaces = is_backward and at.workspaces.peak_backward or at.workspaces.peak_forward
    local text = ('PyTorch (accounting, sm_80) would need %s'):format(bytes.text(peak))
    if workspaces == 0 then return text end
    return ('%s: %s of values and %s of workspaces of its libraries'):format(text, bytes.text(peak - workspaces),
        bytes.text(workspaces))
end

--- Returns a plan as text.
-- @param self Plan
-- @param graph its graph
-- @return several lines
function display.text(self, graph)
    local kinds = {}
    for kind = 0, #program.kinds do
        local name = program.kinds[kind]
        if self.kinds[name] > 0 then kinds[#kinds + 1] = { name, bytes.exact(self.kinds[name]),
            bytes.text(self.kinds[name]) } end
    end
    local lines = {
        ('plan on %s: peak %s, reserved %s, arena %s, state %s'):format(self.device, bytes.text(self.peak),
            bytes.text(self.reserved), bytes.text(self.arena), bytes.text(self.state)),
        ('%d nodes, %d instructions, %d recomputed; %.3g s (%s), %+.1f %% over saving everything'):format(self.nodes,
            self.instructions, self.recomputed, self.seconds, self.costs, 100 * self.overhead),
        table_.text({ 'kind', 'bytes at the peak', '' }, kinds),
        block_table(graph),
        moves.text(self, graph),
    }
    if rawget(self, 'parts') then table.insert(lines, 4, tostring(self.parts)) end
    local fine, torch = pcall(self.pytorch, self)
    if fine then
        lines[#lines + 1] = torch_text(torch)
    end
    return table.concat(lines, '\n')
end

return display
