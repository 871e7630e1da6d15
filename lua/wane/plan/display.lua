--- The text that print(plan) shows: bytes, counts, seconds, kinds at the peak, blocks, and PyTorch's bytes beside them.
-- @internal wane.plan.display
local by = require 'wane.plan.by'
local bytes = require 'wane.report.bytes'
local moves = require 'wane.plan.moves'
local parts = require 'wane.plan.parts'
local table_ = require 'wane.report.table'

local display = {}

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
        tostring(by.of(list, 'block')),
    }
    lines[#lines + 1] = moves.text(self) -- nil where there is nothing to say
    lines[#lines + 1] = moves.exchanges(self)
    if #list > 1 or list[1].times > 1 then table.insert(lines, 4, tostring(self.parts)) end
    local fine, torch = pcall(self.pytorch, self)
    if fine then lines[#lines + 1] = torch_text(torch) end
    return table.concat(lines, '\n')
end

return display
