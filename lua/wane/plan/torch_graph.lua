--- The graph of a plan as PyTorch's accounting reads it: plan:pytorch.
--
-- PyTorch knows regions (torch.utils.checkpoint) and no decision about one value. Therefore plans of policies that
-- decide value by value, of budgets and of recipes are refused.
-- @internal wane.plan.torch_graph
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local sequence = require 'wane.program.sequence'

local C, check, raise = binding.C, binding.check, errors.raise

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

-- Returns whether all gradients of a part, among several with a backward, exist before it, as `gradients = 'kept'` has
-- it. Refuses what the accounting does not know: a part without one loss and its backward, or beside another model.
local function check_part(part, graph, is_alone)
    if not sequence.chooses(part.request) then
        raise(nil, 'value', 'plan:pytorch: the plan has no backward; plan a function that returns a loss')
    end
    if #part.request.roots ~= 1 then
        raise(nil, 'unsupported', 'plan:pytorch: %d losses; the accounting of several is not in this version',
            #part.request.roots)
    end
    local existing, all = part.kinds_before.gradient, 0
    for _, node in ipairs(graph) do
        local is_trained = node.phase == 'forward' and node.cell_kind == 'parameter' and node.needs_grad
        all = all + (is_trained and 256 * math.ceil(node.bytes / 256) or 0)
    end
    local is_mixed = existing > 0 and existing < all
    if not is_alone and (is_mixed or part.kinds_beside.parameter + part.kinds_beside.gradient > 0) then
        raise(nil, 'unsupported', 'plan:pytorch: the backwards of the step are of several models; the accounting of '
            .. 'what one holds beside the other is not in this version')
    end
    return not is_alone and existing > 0 and 'kept' or nil
end

-- Returns the graph of a part with the regions that torch.utils.checkpoint would be given.
local function graph_of(part, covers_of)
    local graph = part.program:graph()
    graph.since = part.request.since
    local covers, layers = covers_of(part, graph)
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
    return graph
end

--- Returns the graphs of parts with the regions that torch.utils.checkpoint would be given: those marked in the script
-- or made by a policy of units.
-- @param list parts with a backward
-- @param all parts of the step
-- @param covers_of function(part, graph) that returns the regions that policies made, and the policies
-- @return list of graphs, with `loss` (its last forward node), `extra` (bytes of each state of optimizers), `since`,
-- and `gradients` ('kept' where those of a backward before exist)
-- @raise 'value' for a plan without a backward; 'unsupported' for plans that regions alone do not describe
function torch_graph.of(list, all, covers_of)
    local graphs, extra = {}, {}
    for _, part in ipairs(all) do add_states(extra, part.request) end
    for i, part in ipairs(list) do
        local gradients = check_part(part, part.graph, #list == 1)
        graphs[i] = graph_of(part, covers_of)
        graphs[i].extra, graphs[i].gradients = extra, gradients
    end
    return graphs
end

return torch_graph
