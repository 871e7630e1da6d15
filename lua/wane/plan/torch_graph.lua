--- The graph of a plan as PyTorch's accounting reads it: plan:pytorch.
--
-- PyTorch knows regions (torch.utils.checkpoint) and no decision about one value. Therefore plans of policies that
-- decide value by value, of budgets and of recipes are refused.
-- @internal wane.plan.torch_graph
local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C, check, raise = binding.C, binding.check, errors.raise
local tonumber = tonumber

local torch_graph = {}

-- Appends the bytes of each optimizer state that a request updates to `list`.
local function add_states(list, request)
    for _, update in ipairs(request.updates or {}) do
        for k = 2, 3 do
            local cell = update.cells[k]
            if cell then
                local info = binding.new('struct wn_info')
                check(C.wn_info(type(cell) == 'number' and cell or cell.id, info))
                table.insert(list, tonumber(info.bytes))
            end
        end
    end
end

--- Returns the graph of a plan with the regions that torch.utils.checkpoint would be given: those marked in the script
-- or made by a policy of units.
-- @param self Plan
-- @param covers_of function(plan, graph) that returns the regions that policies made, and the policies
-- @return graph, with `loss` (its last forward node), `extra` (bytes of each state of optimizers) and `since`
-- @raise 'value' for a plan without a backward; 'unsupported' for plans that regions alone do not describe
function torch_graph.of(self, covers_of)
    local p = self.program
    if p.request.mode ~= 'backward' and p.request.mode ~= 'step' then
        raise(nil, 'value', 'plan:pytorch: the plan has no backward; plan a function that returns a loss')
    end
    if #p.request.roots ~= 1 then
        raise(nil, 'unsupported', 'plan:pytorch: %d losses; the accounting of several is not in this version',
            #p.request.roots)
    end
    local graph = p:graph()
    graph.since = p.request.since
    local covers, layers = covers_of(self, graph)
    for _, layer in ipairs(layers) do
        if layer.policy.budget or layer.policy.recipe then
            raise(nil, 'unsupported', 'plan:pytorch: %s chose value by value, torch.utils.checkpoint knows regions '
                .. 'only', tostring(layer.policy))
        end
        if layer.policy.ask then
            raise(nil, 'unsupported', 'plan:pytorch: %s decides value by value, torch.utils.checkpoint knows '
                .. 'regions only; use '
                .. 'every, segments, sqrt, recompute_all or wane.checkpoint', tostring(layer.policy))
        end
    end
    for _, node in ipairs(graph) do
        local cover = covers[node.index]
        if cover then node.region = cover.unit and -cover.unit or 0 end
        if node.phase == 'forward' and #node.inputs > 0 then graph.loss = node end
    end
    if next(covers.parents) then
        raise(nil, 'unsupported', 'plan:pytorch: regions inside regions are not in this version')
    end
    graph.extra = {}
    add_states(graph.extra, p.request)
    for _, part in ipairs(rawget(self, 'others') or {}) do add_states(graph.extra, part.request) end
    return graph
end

return torch_graph
