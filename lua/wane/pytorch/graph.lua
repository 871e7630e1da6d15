--- The graph as PyTorch sees it: what existed before the step, what the step makes, which regions it is cut into.
--
-- A value exists before the step when the step only reads it: a cell, a number, a result of an earlier program (of any
-- op), and a creation op that was recorded before the planned function was called. A result of an earlier program that
-- needs a gradient still has its inputs: PyTorch ran those ops before the step too, and holds what they saved.
-- Functions that PyTorch has as one op (`mse_loss`) are told by the scope they were recorded in, and become one node.
-- Part of pytorch/init.lua, which counts bytes; nothing here does.
-- @internal wane.pytorch.graph
local errors = require 'wane.errors'

local torchgraph = {}

local creation = { full = true, arange = true, eye = true, uniform = true, normal = true, randint = true }

-- layer norm keeps its statistics in f32 whatever the dtype of x
local is_statistic = { row_mean = true, row_rstd = true }

local element_bytes = { f32 = 4, f64 = 8, i32 = 8, u8 = 1, i8 = 1, bf16 = 2, f16 = 2 }

-- ---- one op of PyTorch, several of Wane ---------------------------------------------------------------------
-- name of a function's scope -> function(node): the inputs PyTorch's op has and the nodes that become part of it, or
-- nothing when `node` is not the last of them
local composites = {
    mse_loss = function(node) -- mean(d * d), d = a - b
        if node.op ~= 'mean' then return end
        local product = node.inputs[1]
        local difference = product.inputs[1]
        return difference.inputs, { product, difference }
    end,
}

local function fold(graph)
    local folded = {}
    for _, node in ipairs(graph) do
        local composite = node.phase == 'forward' and node.inputs[1] and composites[node.module]
        if composite then
            local inputs, parts = composite(node)
            if inputs then
                node.op, node.inputs = node.module, inputs
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

-- ---- what a node is -----------------------------------------------------------------------------------------
-- Whether the node is there before the step. since: what was recorded after that place in record order is the step's.
local function is_leaf(node, since)
    if node.leaf ~= 0 then return true end
    return creation[node.op] ~= nil and node.serial <= (since or math.huge)
end

--- Fills the fields the machine reads: is_leaf, ndim, numel, bytes (int64 for i32), position.
-- @param graph of program.graph, with `since` (place in record order where the planned function began; optional)
-- @return the nodes that are computed, in order
function torchgraph.prepare(graph)
    fold(graph)
    local order = {}
    for _, node in ipairs(graph) do
        if node.phase == 'forward' then
            node.is_leaf = is_leaf(node, graph.since)
            node.ndim, node.numel = #node.shape, 1
            for _, n in ipairs(node.shape) do node.numel = node.numel * n end
            local element = element_bytes[node.dtype]
            if is_statistic[node.op] then element = math.max(element, 4) end
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
local function has_scope(graph, node, scope)
    local s = node.scope
    while s and s ~= 0 do
        if s == scope then return true end
        s = graph.parents[s]
    end
    return false
end

-- The outermost module call that reads v from outside, seen from its reader: nil when there is none.
local function call_of(graph, value, reader)
    local found
    local s = reader.scope
    while s and s ~= 0 do
        if value.is_leaf or not has_scope(graph, value, s) then found = s end
        s = graph.parents[s]
    end
    return found
end

local function call_end(graph, order, reader, scope)
    local last = reader.position
    while order[last + 1] and has_scope(graph, order[last + 1], scope) do last = last + 1 end
    return last
end

-- The stretches to execute: single nodes, and regions (consecutive nodes of one region).
local function split(order)
    local stretches, seen = {}, {}
    for _, node in ipairs(order) do
        local last = stretches[#stretches]
        if node.region ~= 0 then
            if not (last and last.region == node.region) then
                if seen[node.region] then
                    errors.raise(nil, 'unsupported', 'pytorch: the accounting of a region inside a region is not '
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

--- Adds an item to a list unless the set has it.
function torchgraph.add_once(list, seen, item)
    if not seen[item] then
        seen[item] = true
        list[#list + 1] = item
    end
end

-- Who reads what; inputs and outputs of regions.
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
    for node in pairs(kept) do
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

--- Cuts a graph into what is executed, with the moments at which names let go.
-- @param graph of program.graph; graph.parents: scope -> scope it lies in
-- @param order of torchgraph.prepare
-- @param kept set of nodes that something else holds
-- @return list of stretches
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

--- Parts stretches into those PyTorch ran before the step, and the step's: a value that an earlier program computed and
-- that still needs a gradient was made before, with all that leads to it; a region is made at once.
-- @return list, list
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

return torchgraph
