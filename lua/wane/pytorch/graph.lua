--- The graph as PyTorch sees it: what existed before the step, what the step computes, and its checkpointed regions.
--
-- A value exists before the step when the step only reads it: a cell, a number, a result of an earlier program (of any
-- op), or a creation op that was recorded before the planned function was called. A result of an earlier program that
-- needs a gradient keeps its inputs: PyTorch ran those ops before the step too, and holds what they saved. Functions
-- that are one op in PyTorch (`mse_loss`) are found by the scope in which they were recorded, and become one node;
-- scatter_add is found by its two nodes.
--
-- This file prepares the graph for pytorch/init.lua, of a plan with its regions too; it counts no bytes beyond those of
-- each value.
-- @internal wane.pytorch.graph
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local sequence = require 'wane.program.sequence'

local C, check, raise = binding.C, binding.check, errors.raise

local torchgraph = {}

-- Returns whether a result is at least f32: layer norm and batch norm keep their statistics in f32 for every dtype of
-- x, group norm keeps them in the dtype of x.
local function is_statistic(node)
    if node.op == 'channel_mean' or node.op == 'channel_rstd' then return node.ints[1] == 0 end
    return node.op == 'row_mean' or node.op == 'row_rstd'
end

local element_bytes = { f32 = 4, f64 = 8, i32 = 8, u8 = 1, i8 = 1, bf16 = 2, f16 = 2 }

-- ---- one op of PyTorch, several of Wane ---------------------------------------------------------------------
-- Turns the loss of each row into PyTorch's nll of log-probabilities, and the statistics of rows of logits into their
-- log_softmax, of which Wane makes no value. The sum, the quotient and the rounding behind it become part of it, one by
-- one.
local function loss(node)
    local first, labels, stats, weight = unpack(node.inputs)
    if first.op == 'nll' and first.scope == node.scope then
        return first.inputs, { first, node.op == 'div' and labels or nil }, 'nll'
    elseif node.op ~= 'row_nll' then
        return
    end
    if node.ints[2] == 0 then return { first, labels, stats }, {}, 'nll' end
    stats.op, stats.shape, stats.dtype = 'log_softmax', first.shape, first.dtype
    return { stats, labels, weight }, {}, 'nll'
end

-- Name of a function's scope -> function(node) that returns the inputs of PyTorch's op, the list of nodes that become
-- part of it and, where it is not the function's, its name; or nothing when `node` is not the last node of one.
local composites = {
    cross_entropy = loss, nll_loss = loss,
    mse_loss = function(node) -- mean(d * d) with d = a - b
        if node.op ~= 'mean' then return end
        local product = node.inputs[1]
        local difference = product.inputs[1]
        return difference.inputs, { product, difference }
    end,
    conv_transpose2d = function(node) -- conv2d_dx(x, w) + reshape(b)
        local product, bias = node.inputs[1], node.inputs[2]
        if node.op ~= 'add' then return end
        return { product.inputs[1], product.inputs[2], bias.inputs[1] }, { product, bias }
    end,
    -- Takes one narrow_grad a dim, from the last dim on. A pad of an earlier dim right after one of a later dim counts
    -- as part of it.
    pad = function(node)
        local inner = node.inputs[1]
        if inner.op ~= 'pad' or inner.scope ~= node.scope or inner.ints[1] <= node.ints[1] then
            return node.inputs, {}
        end
        return inner.inputs, { inner }
    end,
}

-- Returns the inputs of PyTorch's scatter_add(t, source, ids) and the node that becomes part of it, or nothing when
-- `node` is not the sum that t:scatter_add(dim, ids, source) ends with.
local function scatter_add(node)
    local added = node.op == 'add' and node.inputs[2]
    if not added or added.op ~= 'gather_grad' or added.line ~= node.line then return end
    return { node.inputs[1], added.inputs[1], added.inputs[2] }, { added }
end

-- Returns the inputs of PyTorch's batch norm in evaluation, whose kernel reads the running variance itself, and the
-- nodes that make rstd of it; nothing for another node.
local function evaluated_norm(node)
    local rstd = node.inputs[3]
    if rstd.op ~= 'rsqrt' then return end
    local inputs = { unpack(node.inputs) }
    inputs[3] = rstd.inputs[1].inputs[1]
    return inputs, { rstd, rstd.inputs[1] }
end

-- Returns whether a node averages whole images, which PyTorch computes as a mean over dims.
local function is_global_average(node)
    return node.op == 'avg_pool2d' and node.ints[4] == 4 and node.ints[1] == 2 ^ 32 + 1
end

-- Replaces the nodes of each composite by one node, in place.
local function fold(graph)
    local folded = {}
    for _, node in ipairs(graph) do
        local composite = node.phase == 'forward' and node.inputs[1] and composites[node.module]
        local name = composite and node.module or 'scatter_add'
        if node.op == 'batch_norm' then composite, name = evaluated_norm, node.op end
        if node.phase == 'forward' then
            local inputs, parts, own = (composite or scatter_add)(node)
            if inputs then
                node.op, node.inputs = own or name, inputs
                for _, part in ipairs(parts) do folded[part] = true end
            end
        end
    end
    if next(folded) == nil then return end
    local kept = 0
    for i = 1, #graph do
        local node = graph[i]
        graph[i] = nil
        if not folded[node] then
            kept = kept + 1
            graph[kept] = node
        end
    end
end

-- ---- fields of nodes ----------------------------------------------------------------------------------------
-- Tells whether a node exists before the step; nodes recorded after the place `since` belong to the step.
local function is_leaf(node, since)
    if node.leaf ~= 0 then return true end
    return node.n_in == 0 and node.serial <= (since or math.huge) -- a creation
end

--- Fills the fields that the machine reads: is_leaf, ndim, numel, bytes (PyTorch's i32 is int64), position.
-- @param graph of program.graph, with `since` (place in record order at which the planned function began; optional)
-- @return list of the nodes that are computed, in order
function torchgraph.prepare(graph)
    fold(graph)
    local order = {}
    for _, node in ipairs(graph) do
        if node.phase == 'forward' then
            node.is_leaf = is_leaf(node, graph.since)
            if is_global_average(node) then node.op = 'mean' end
            node.ndim, node.numel = #node.shape, 1
            for _, n in ipairs(node.shape) do node.numel = node.numel * n end
            local element = element_bytes[node.dtype]
            if is_statistic(node) then element = math.max(element, 4) end
            node.bytes = node.numel * element
            if not node.is_leaf then
                order[#order + 1] = node
                node.position = #order
            end
        end
    end
    return order
end

-- ---- how long names hold ------------------------------------------------------------------------------------
-- Tells whether a node was recorded in a scope, directly or in a scope inside it.
local function has_scope(graph, node, scope)
    local s = node.scope
    while s and s ~= 0 do
        if s == scope then return true end
        s = graph.parents[s]
    end
    return false
end

-- Returns the scope of the outermost module call around `reader` that takes `value` from outside, or nil.
local function call_of(graph, value, reader)
    local found
    local s = reader.scope
    while s and s ~= 0 do
        if value.is_leaf or not has_scope(graph, value, s) then found = s end
        s = graph.parents[s]
    end
    return found
end

-- Returns the position of the last consecutive node in the scope, from the reader on.
local function call_end(graph, order, reader, scope)
    local last = reader.position
    while order[last + 1] and has_scope(graph, order[last + 1], scope) do last = last + 1 end
    return last
end

-- Returns the stretches that are executed: single nodes { node =, after = }, and regions of consecutive nodes { region
-- =, nodes =, inputs =, outputs =, dying =, after = }.
local function split(order)
    local stretches, seen = {}, {}
    for _, node in ipairs(order) do
        local last = stretches[#stretches]
        if node.region ~= 0 then
            if not (last and last.region == node.region) then
                if seen[node.region] then
                    raise(nil, 'unsupported', 'pytorch: the accounting of a region inside a region is not '
                        .. 'in this version')
                end
                seen[node.region] = true
                last = { region = node.region, nodes = {}, inputs = {}, outputs = {}, dying = {}, after = {} }
                stretches[#stretches + 1] = last
            end
            last.nodes[#last.nodes + 1] = node
        else
            last = { node = node, after = {} }
            stretches[#stretches + 1] = last
        end
        node.stretch = last
    end
    return stretches
end

--- Appends an item to a list unless the set contains it.
-- @param list items so far
-- @param seen set of them
-- @param item any value
function torchgraph.add_once(list, seen, item)
    if not seen[item] then
        seen[item] = true
        list[#list + 1] = item
    end
end

-- Finds the inputs and outputs of regions, and numbers the outputs. Returns the readers of each node: list of nodes.
local function connect(order, kept)
    local readers = {}
    for _, node in ipairs(order) do
        local stretch = node.stretch
        for _, input in ipairs(node.inputs) do
            readers[input] = readers[input] or {}
            table.insert(readers[input], node)
            if input.stretch ~= stretch then
                local from = input.stretch
                if from and from.region then from.outputs[input] = true end
                local passed = not (input.op == 'const' or input.op == 'cell' and input.cell_kind ~= 'input')
                if stretch.region and passed then
                    stretch.seen = stretch.seen or {}
                    torchgraph.add_once(stretch.inputs, stretch.seen, input)
                end
            end
        end
    end
    for node in errors.iterate(kept) do
        if node.stretch and node.stretch.region then node.stretch.outputs[node] = true end
    end
    for _, node in ipairs(order) do
        local stretch = node.stretch
        if stretch.region and stretch.outputs[node] == true then
            stretch.slots = (stretch.slots or 0) + 1
            stretch.outputs[node] = stretch.slots
        end
    end
    return readers
end

--- Cuts a graph into stretches that are executed, and notes after which node each name of a value ends.
-- @param graph of program.graph; graph.parents: scope -> scope it lies in
-- @param order of torchgraph.prepare
-- @param kept set of nodes that something else holds to the end
-- @return list of stretches; `after` lists the values that end after the stretch, dying[node] those that end after a
-- node inside a region
function torchgraph.stretches(graph, order, kept)
    local stretches = split(order)
    local readers = connect(order, kept)
    local function ends(value)
        local last = value.position or 0
        for _, reader in ipairs(readers[value] or {}) do
            local scope = call_of(graph, value, reader)
            last = math.max(last, scope and call_end(graph, order, reader, scope) or reader.position)
        end
        return last
    end
    for _, value in ipairs(graph) do
        if value.phase == 'forward' and not kept[value] and value.op ~= 'const' and value.op ~= 'cell' then
            local last = order[ends(value)]
            if last then
                local stretch = last.stretch
                local inside = stretch.region and value.stretch == stretch and not stretch.outputs[value]
                if inside then
                    stretch.dying[last] = stretch.dying[last] or {}
                    table.insert(stretch.dying[last], value)
                else
                    table.insert(stretch.after, value)
                end
            end
        end
    end
    return stretches
end

--- Splits stretches into those that PyTorch ran before the step and those of the step. A value that an earlier program
-- computed and that needs a gradient was made before, with everything it depends on; a region is not split.
-- @param stretches of torchgraph.stretches
-- @return list before, list of the step
function torchgraph.part(stretches)
    local is_before, stack = {}, {}
    local function mark(stretch)
        if stretch and not is_before[stretch] then
            is_before[stretch] = true
            stack[#stack + 1] = stretch
        end
    end
    for _, stretch in ipairs(stretches) do
        for _, node in ipairs(stretch.nodes or { stretch.node }) do
            if node.is_held then mark(stretch) end
        end
    end
    while #stack > 0 do
        local stretch = table.remove(stack)
        for _, node in ipairs(stretch.nodes or { stretch.node }) do
            for _, input in ipairs(node.inputs) do mark(input.stretch) end
        end
    end
    local before, step = {}, {}
    for _, stretch in ipairs(stretches) do
        table.insert(is_before[stretch] and before or step, stretch)
    end
    return before, step
end

-- ---- the graph of a plan ------------------------------------------------------------------------------------
-- PyTorch knows regions (torch.utils.checkpoint) and no decision about one value. Therefore plans of policies that
-- decide value by value, of budgets and of recipes are refused.

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
function torchgraph.of(list, all, covers_of)
    local graphs, extra = {}, {}
    for _, part in ipairs(all) do add_states(extra, part.request) end
    for i, part in ipairs(list) do
        local gradients = check_part(part, part.graph, #list == 1)
        graphs[i] = graph_of(part, covers_of)
        graphs[i].extra, graphs[i].gradients = extra, gradients
    end
    return graphs
end

return torchgraph
