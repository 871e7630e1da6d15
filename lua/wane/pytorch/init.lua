--- PyTorch's accounting: the bytes that `torch.cuda.memory_allocated` would print for the same script.
--
-- `plan:pytorch{...}` accounts for one forward and backward, `wane.pytorch(fn, opts)` for a whole script with names
-- that are bound, rebound and deleted. Both execute the script in byte counts (pytorch/machine.lua) by these rules,
-- which were found by matching numbers printed in public texts:
--
-- * R1: blocks are rounded up to 512 bytes.
-- * R2: workspaces of cuBLAS and cublasLt, one a thread, are kept once they were used.
-- * R3: each op saves what its row of pytorch/saves.lua says; what is saved of an op unknown to pytorch/ops.lua is left
-- out, and the op is named.
-- * R4: a tensor stays alive as long as the user's code names it.
-- * R5: checkpoint_sequential saves everything in its last segment.
-- * R6: a reentrant checkpoint without inputs that need a gradient trains nothing.
-- * R7: PyTorch 1.10 has no workspaces in its allocator.
--
-- A Python variable is modelled by calls: the caller names what it gave to a module (or a checkpoint) until the call
-- returns; other values are named until their last reader. Integer tensors are int64 in PyTorch. The accounting follows
-- copies that strides force (pytorch/layout.lua, pytorch/product.lua) and the casts of autocast. Dtypes are those of
-- the recorded nodes.
-- @module wane.pytorch
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local ops = require 'wane.pytorch.ops'
local torchgraph = require 'wane.pytorch.graph'
local torchmachine = require 'wane.pytorch.machine'

local torchmem = {}

-- Returns the value that the loss was computed from, as user code names it: going back from the loss, the first value
-- that a module call returned, or what the loss op read where there are no modules.
local function output_of(loss)
    local node = loss
    repeat
        local input = node.inputs[1]
        if not input or input.is_leaf then break end
        node = input
    until node.scope ~= loss.scope
    if node == loss or node.scope == loss.scope then node = loss.inputs[1] end
    return node
end

-- Refuses functions of wane.custom: their results need a gradient although none of their inputs does.
local function refuse_custom(order)
    for _, node in ipairs(order) do
        local is_made = not node.needs_grad
        for _, input in ipairs(node.inputs) do is_made = is_made or input.needs_grad end
        if not is_made then
            errors.raise(nil, 'unsupported', 'pytorch: the accounting of wane.custom is not in this version: what its '
                .. 'functions keep is their own; account for the same step written in ops')
        end
    end
end

-- ---- one forward and backward ---------------------------------------------------------------------------------
local hold_words = { inputs = true, loss = true, output = true, retained = true }

-- Returns the option `hold` as a set of words.
local function hold_set(hold)
    if hold == nil then return hold_words end
    local set = {}
    for k = 1, errors.list(hold, 'pytorch: hold', 'words') do
        local word = hold[k]
        if not hold_words[word] then
            errors.raise(nil, 'value', "pytorch: hold knows 'inputs', 'loss', 'output' and 'retained', not '%s'; %s",
                tostring(word), errors.near(word, { 'inputs', 'loss', 'output', 'retained' }))
        end
        set[word] = true
    end
    return set
end

local options = { 'sm', 'warm', 'hold', 'torch', 'reentrant', 'state', 'gradients' }
local script_options = { 'sm', 'warm', 'torch', 'reentrant' }

-- Allocates what exists before the forward: parameters, inputs, optimizer state (`extra`, in bytes) and gradients.
local function start(machine, graph, env, opts)
    for _, node in ipairs(graph) do
        if node.phase == 'forward' and node.is_leaf and node.op ~= 'const' then
            local t = machine:leaf(node)
            if node.op ~= 'cell' then env[node] = t end
        end
    end
    local gradients = opts.gradients or graph.gradients
    if not opts.state then
        for _, bytes in ipairs(graph.extra or {}) do machine:alloc(bytes) end
    end
    for _, node in ipairs(graph) do
        if node.phase == 'forward' and node.cell_kind == 'parameter' and node.needs_grad then
            if opts.state then machine:alloc(opts.state * node.numel) end
            if gradients == 'kept' then machine:leaf(node).grad = machine:alloc(node.bytes) end
        end
    end
end

-- Checks the options `state` and `gradients`.
local function check_state(opts)
    local state, gradients = opts.state, opts.gradients
    if state ~= nil and (type(state) ~= 'number' or not (state >= 0 and state < 1024)) then
        errors.raise(nil, 'value', 'pytorch: state must be bytes of optimizer state an element of a parameter '
            .. '(AdamW over bf16 with an f32 copy: 12), got %s', errors.describe(state))
    end
    if gradients ~= nil and gradients ~= 'kept' and gradients ~= 'none' then
        errors.raise(nil, 'value', "pytorch: gradients must be 'none' or 'kept', got %s", errors.describe(gradients))
    end
end

-- Returns the set of nodes that names of the script hold to the end.
local function kept_of(graph, hold)
    local kept, output = { [graph.loss] = true }, output_of(graph.loss)
    if hold.output and not output.is_leaf then kept[output] = true end
    for _, node in ipairs(graph) do
        local word = node.is_leaf and 'inputs' or (node.is_held or node.is_result) and 'retained'
        if node.phase == 'forward' and word and hold[word] then kept[node] = true end
    end
    return kept
end

--- Returns the bytes that PyTorch would have allocated on CUDA for the forward and backward of a graph.
-- @param graph program.graph(...), with `loss` (its node), `extra` (list of bytes of optimizer states), and
-- `gradients`: that option where it is not given
-- @param opts { sm = 80, warm = false, hold = {'inputs', 'loss', 'output', 'retained'}, torch = '2', reentrant = false,
-- state = (bytes of optimizer state an element of a parameter; without it, what the plan's optimizer holds), gradients
-- = ('none' or 'kept': whether they exist before the forward, as with zero_grad(set_to_none = False)) }
-- @return bytes by name: before, after_forward, peak_forward, peak_backward, after_backward; taken_forward and
-- taken_backward: sums of all allocations; `workspaces`: { peak_forward =, peak_backward = }, how much of the peaks are
-- workspaces of cuBLAS and not values; `parts`: list of { path =, module =, saved =, peak_forward =, peak_backward
-- = } by module in forward order, where `saved` counts what was saved there first and the peaks hold while its ops ran;
-- `unknown`: list of { op =, count = } of the ops that the accounting does not know; what PyTorch would save of them
-- and allocate beside their results and gradients is left out
-- @raise 'unsupported' for a nesting that the accounting does not know; 'value' for wrong options
-- @within Internal
function torchmem.account(graph, opts)
    opts = errors.check_options(opts, options, 'plan:pytorch')
    check_state(opts)
    local hold, order = hold_set(opts.hold), torchgraph.prepare(graph)
    refuse_custom(order)
    local loss = graph.loss
    local before, step = torchgraph.part(torchgraph.stretches(graph, order, kept_of(graph, hold)))
    local machine, env, at = torchmachine.new(opts), {}, {}
    start(machine, graph, env, opts)
    machine:forward(before, env)
    at.before = machine.live
    machine:mark()
    local taken = machine.taken.peak_forward
    machine:forward(step, env)
    at.after_forward, at.peak_forward = machine.live, machine.peak
    at.workspaces = { peak_forward = machine.workspaces_at_peak }
    machine:restart_peak()
    machine:backward(env[loss])
    at.peak_backward, at.workspaces.peak_backward = machine.peak, machine.workspaces_at_peak
    if not hold.loss then machine:release(env[loss]) end
    at.after_backward, at.parts, at.unknown = machine.live, machine.parts, ops.unknown(order)
    at.taken_forward, at.taken_backward = machine.taken.peak_forward - taken, machine.taken.peak_backward
    return at
end

-- ---- whole scripts -----------------------------------------------------------------------------------------------
local Script = {}
Script.__index = Script

--- Notes the allocated bytes at this place of the script.
-- @function py:at
-- @param label text
-- @usage
-- print(wane.pytorch(function(py)
--     py.let.a = wane.zeros(1024)
--     py:at 'a exists'
-- end)[1].bytes) --> 4096
function Script:at(label)
    self.events[#self.events + 1] = { what = 'at', label = label }
end

--- Runs the backward of the tensor that a name is bound to.
-- @function py:backward
-- @param name text
-- @raise 'value' for a name that nothing is bound to
-- @usage
-- print(#wane.pytorch(function(py)
--     py.let.model = model
--     py.let.loss = model(x):sum()
--     py:backward 'loss'
--     py:at 'gradients exist'
-- end)) --> 1
function Script:backward(name)
    if self.bound[name] == nil then
        errors.raise(nil, 'value', "py:backward: nothing is bound to '%s'; %s", tostring(name), errors.near(name,
            self.bound))
    end
    self.events[#self.events + 1] = { what = 'backward', name = name }
end

-- Makes the object that a script is recorded with: `let`, `at`, `backward`.
local function recorder()
    local script = setmetatable({ events = {}, bound = {} }, Script)
    script.let = setmetatable({}, {
        __index = function(_, name) return script.bound[name] end,
        __newindex = function(_, name, value)
            script.events[#script.events + 1] = { what = 'let', name = name, value = value }
            script.bound[name] = value
        end,
    })
    return script
end

-- Returns the tensors of an event's value: the tensor itself, or the parameters of a module.
local function tensors_of(value)
    if require('wane.tensor').is(value) then return { value } end
    if type(value) == 'table' and type(value.parameters) == 'function' then return value:parameters() end
    errors.raise(nil, 'value', 'py.let: bind a tensor, a module or nil, not %s', errors.describe(value))
end

-- Returns the tensors of all events, each once.
local function roots_of(events)
    local roots, seen = {}, {}
    for _, event in ipairs(events) do
        if event.what == 'let' and event.value ~= nil then
            event.tensors = tensors_of(event.value)
            for _, tensor in ipairs(event.tensors) do torchgraph.add_once(roots, seen, tensor) end
        end
    end
    return roots
end

-- Returns the graph of everything that is bound to a name; its field node_of gives the node of each tensor. A state
-- cell has only bytes: they are allocated when it is bound, so its nodes in the graph allocate none.
local function look(roots)
    local program = require 'wane.program'
    local values, cells = {}, {}
    for _, t in ipairs(roots) do
        local list = require('wane.tensor').typed(t)._cell and cells or values
        list[#list + 1] = t
    end
    local names = {}
    for i, t in ipairs(values) do
        names['py ' .. i] = t
        binding.check(binding.C.wn_rename(t.id, 'py ' .. i))
    end
    local graph = #values > 0 and program.open({ mode = 'eval', roots = values }):graph() or { parents = {} }
    graph.node_of = {}
    for _, node in ipairs(graph) do
        if names[node.name] then graph.node_of[names[node.name]] = node end
        node.is_bound_cell = node.op == 'cell'
    end
    for _, t in ipairs(cells) do
        graph.node_of[t] = { op = 'cell', is_leaf = true, bytes = tonumber(require('wane.tensor').info(t).bytes),
            inputs = {} }
    end
    return graph
end

local Replay = {}
Replay.__index = Replay

--- Runs the stretches that `node` depends on and that have not run; values that end in one of them are released.
-- @param node of the graph
-- @within Internal
function Replay:reach(node)
    local need, stack = {}, { node }
    while #stack > 0 do
        local n = table.remove(stack)
        if n.stretch and not self.done[n.stretch] and not need[n.stretch] then
            need[n.stretch] = true
            for _, inner in ipairs(n.stretch.nodes or { n }) do
                for _, input in ipairs(inner.inputs) do stack[#stack + 1] = input end
            end
        end
    end
    local todo = {}
    while self.cursor <= #self.stretches and next(need) do
        local stretch = self.stretches[self.cursor]
        if need[stretch] then
            todo[#todo + 1] = stretch
            need[stretch], self.done[stretch] = nil, true
        end
        self.cursor = self.cursor + 1
    end
    self.machine:forward(todo, self.env)
end

--- Binds a name: makes or finds the tensors, then releases what the name held before.
-- @param event { name =, tensors = list or nil }
-- @within Internal
function Replay:let(event)
    local held = {}
    for i, tensor in ipairs(event.tensors or {}) do
        local node = self.node_of[tensor]
        if node.is_leaf then
            held[i] = self.machine:leaf(node)
        else
            self:reach(node)
            held[i] = self.env[node]
            self.env[node] = nil -- the name holds it from now on; readers find it in `values`
            self.values[node] = held[i]
        end
    end
    local before = self.names[event.name]
    self.names[event.name] = held
    for _, t in ipairs(before or {}) do self.machine:release(t) end
end

-- Executes the events of a script in order and returns the noted points.
local function replay(script, graph, opts)
    local kept = {}
    for _, node in errors.iterate(graph.node_of) do kept[node] = true end
    graph.since = -1 -- a value that no name holds is made where it is read
    local order = torchgraph.prepare(graph)
    local stretches = torchgraph.stretches(graph, order, kept)
    local values = setmetatable({}, { __mode = 'k' })
    local state = setmetatable({ machine = torchmachine.new(opts), stretches = stretches, done = {}, cursor = 1,
        names = {}, values = values, env = setmetatable({}, { __index = values }), node_of = graph.node_of }, Replay)
    local points, before = { unknown = ops.unknown(order) }, 0
    for _, event in ipairs(script.events) do
        if event.what == 'let' then
            state:let(event)
        elseif event.what == 'backward' then
            state.machine:backward(state.names[event.name][1])
        else
            local live = state.machine.live
            points[#points + 1] = { label = event.label, bytes = live, difference = live - before }
            before = live
        end
    end
    return points
end

--- Executes a PyTorch script, given to wane.pytorch as a function, with its names, in byte counts. Nothing runs.
--
-- Assigning to `py.let.o` binds the name o after the value exists and frees what the name held before; nil deletes it.
-- `py:at 'label'` notes the allocated bytes; `py:backward 'loss'` runs a backward.
-- @function wane.pytorch
-- @param fn function(py)
-- @param opts { sm = 80, warm = false, torch = '2', reentrant = }: compute capability; whether workspaces exist
-- already; version of PyTorch; which form of checkpoint regions stand for (by default the reentrant one in version 1)
-- @return list of { label =, bytes =, difference = (bytes since the point before) }; its field `unknown` lists the ops
-- whose bytes are left out, as { op =, count = }
-- @raise 'unsupported' for a nesting that the accounting does not know; 'value' for wrong options or names
-- @usage
-- local points = wane.pytorch(function(py)
--     py.let.a = wane.zeros(1024)
--     py:at 'one tensor'
--     py.let.a = wane.zeros(2048)
--     py:at 'another under the same name'
-- end)
-- for _, point in ipairs(points) do print(point.label, point.bytes) end
function torchmem.script(fn, opts)
    opts = errors.check_options(opts, script_options, 'wane.pytorch')
    local program = require 'wane.program'
    local script = recorder()
    return program.planning(function()
        fn(script)
        local roots = roots_of(script.events)
        return replay(script, look(roots), opts)
    end)
end

return torchmem
