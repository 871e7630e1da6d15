--- PyTorch's eager execution in byte counts: the `allocated` bytes of its caching allocator, tensors with reference
-- counts, autograd nodes with their saved tensors, and torch.utils.checkpoint in both forms. The backward is in
-- pytorch/engine.lua.
--
-- The machine executes a graph (program.graph), whose nodes are in record order. It runs no kernel and knows no model:
-- peaks follow from which storages are alive at a time. It applies the rules R1-R7 at the head of pytorch/init.lua.
--
-- A storage { bytes =, size = (rounded), refs = } lives while a tensor, an autograd node, a gradient buffer or a name
-- holds a reference to it.
-- @internal wane.pytorch.machine
local errors = require 'wane.errors'
local iterate = require 'wane.iterate'
local layout = require 'wane.pytorch.layout'
local rows = require 'wane.pytorch.ops'

local Machine = {}
Machine.__index = Machine

local GRANULE = 512 -- bytes that the size of a storage is rounded up to (R1)

local function round(bytes)
    return math.ceil(bytes / GRANULE) * GRANULE
end

-- ---- storages ---------------------------------------------------------------------------------------------

--- Makes the live bytes the peak, with what libraries hold of them as workspaces.
function Machine:restart_peak()
    self.peak, self.workspaces_at_peak = self.live, self.workspace_bytes
end

-- Allocates a storage with one reference.
function Machine:alloc(bytes)
    local storage = { bytes = bytes, size = bytes > 0 and round(math.max(bytes, 1)) or 0, refs = 1 }
    self.live = self.live + storage.size
    self.taken[self.phase] = self.taken[self.phase] + storage.size
    if self.live > self.peak then self:restart_peak() end
    local part = self.part
    if part and self.live > part[self.phase] then part[self.phase] = self.live end
    return storage
end

--- Makes the module of a node the current part: saved bytes and peaks are noted under its path from now on.
-- @param node of the graph
function Machine:enter(node)
    local key = node.path or ''
    local part = self.part_of[key]
    if not part then
        part = { path = key, module = node.module, saved = 0, peak_forward = 0, peak_backward = 0 }
        self.part_of[key] = part
        self.parts[#self.parts + 1] = part
    end
    self.part = part
    if self.live > part[self.phase] then part[self.phase] = self.live end
end

--- Restarts the peaks: storages that are alive now exist before the step.
function Machine:mark()
    self:restart_peak()
    for _, part in ipairs(self.parts) do part.peak_forward = 0 end
end

-- Notes that a storage is kept for the backward, once, under the part where it is kept first. Storages that existed
-- before the forward are not noted.
local function note(machine, storage)
    if storage.is_noted or storage.bound then return end
    storage.is_noted = true
    machine.part.saved = machine.part.saved + storage.bytes
end

local function keep(storage)
    storage.refs = storage.refs + 1
    return storage
end

-- Releases one reference to a storage.
function Machine:drop(storage)
    storage.refs = storage.refs - 1
    if storage.refs == 0 then self.live = self.live - storage.size end
end

--- Allocates the workspace of a library at its first use by a thread; it stays (R2).
-- @param thread 'main' or 'autograd'
-- @param library 'cublas' or 'cublaslt'
function Machine:workspace(thread, library)
    local size = self.workspaces[library]
    local key = thread .. library
    if size == 0 or self.made[key] then return end
    self.workspace_bytes = self.workspace_bytes + round(size)
    self.made[key] = self:alloc(size)
end

-- ---- autograd nodes ---------------------------------------------------------------------------------------
-- Makes an autograd node. The tensor it made and the nodes that read that tensor hold references to it; its saved
-- tensors are freed with the last reference.
function Machine:grad_node(node, inputs)
    self.seq = self.seq + 1
    local g = { node = node, seq = self.seq, saved = {}, next = {}, refs = 1, buffers = {} }
    for k, t in ipairs(inputs) do
        local edge = t.leaf or t.grad_node
        if edge then
            g.next[k] = edge
            edge.refs = edge.refs + 1
            if not t.leaf then g['slot' .. k] = t.slot or 1 end
        end
    end
    return g
end

local release_frame

-- Frees the tensors that an autograd node saved: storages, and places in the frames of checkpoints.
function Machine:release_saved(g)
    for _, saved in ipairs(g.saved) do
        if saved.storage then
            self:drop(saved.storage)
        elseif saved.frame then
            release_frame(self, saved)
        end
    end
    g.saved = {}
end

-- Releases one reference to an autograd node, and to its inputs' nodes when it was the last one.
function Machine:drop_grad_node(first)
    local stack = { first }
    while #stack > 0 do -- a loop, because a chain of a thousand additions must not recurse
        local g = table.remove(stack)
        g.refs = g.refs - 1
        if g.refs == 0 and g.node then
            self:release_saved(g)
            for _, edge in iterate(g.next) do stack[#stack + 1] = edge end
            g.next = {}
        end
    end
end

-- ---- tensors ----------------------------------------------------------------------------------------------
-- Adds a reference to a tensor and returns it.
function Machine:hold(t)
    t.refs = t.refs + 1
    return t
end

--- Releases one reference to a tensor.
-- @param t tensor
function Machine:release(t)
    t.refs = t.refs - 1
    if t.refs > 0 then return end
    self:drop(t.storage)
    if t.grad_node then self:drop_grad_node(t.grad_node) end
end

--- Returns the tensor of a leaf (parameter, input, number), which is made once and held by names of the caller.
-- @param node of the graph
function Machine:leaf(node)
    local t = self.leaves[node]
    if t then return t end
    local taken = node.op == 'const' or node.is_bound_cell
    t = { refs = 1, storage = self:alloc(taken and 0 or node.bytes), node = node }
    t.storage.bound = true
    if node.needs_grad then t.leaf = { refs = 1, leaf = t, seq = math.huge, buffers = {}, next = {} } end
    self.leaves[node] = t
    return t
end

-- ---- forward ----------------------------------------------------------------------------------------------
-- Saves for the backward the tensors that the row of the op names. mode.save(g, storage) keeps a storage for the
-- autograd node g; mode.grad says whether autograd nodes are made.
function Machine:save(g, node, inputs, out, mode)
    local row = rows.of(node.op)
    for _, save in ipairs(row.saves) do
        local what = save[1]
        if rows.is_saved(save, node.inputs, 'needs_grad') then
            if what == 'y' then
                mode.save(g, out.storage)
            elseif node.inputs[what].op ~= 'const' then
                mode.save(g, inputs[what].storage)
            end
        end
    end
    if row.extra then
        local storage = self:alloc(row.extra(node))
        mode.save(g, storage)
        self:drop(storage)
    end
end

-- Tells whether an input needs a gradient in this run. Behind a reentrant checkpoint that trains nothing, a value needs
-- none although its graph says so.
local function is_tracked(inputs)
    for _, t in ipairs(inputs) do
        if t.leaf or t.grad_node then return true end
    end
    return false
end

-- Returns the layout of an elementwise result.
local function layout_like(node, inputs)
    local operands = {}
    for _, t in ipairs(inputs) do
        if t.layout and #t.node.shape > 0 then operands = nil end
    end
    if operands then return nil end
    operands = {}
    for _, t in ipairs(inputs) do
        if t.node.numel > 1 then operands[#operands + 1] = { shape = t.node.shape, layout = t.layout } end
    end
    return layout.elementwise(node.shape, operands)
end

-- Returns the list of tensors that the kernel reads, inputs or copies of them, and the list of copies to drop after it.
function Machine:operands(row, node, inputs)
    if row.operands then return row.operands(self, node, inputs) end
    if not row.flat then return inputs end
    local operands, copies = {}, {}
    for k, t in ipairs(inputs) do
        operands[k] = t
        if t.layout then
            operands[k] = { storage = self:alloc(t.node.bytes), node = t.node }
            copies[#copies + 1] = operands[k].storage
        end
    end
    return operands, copies
end

-- Releases one reference to each storage of a list, or of nil.
function Machine:drop_list(storages)
    for _, storage in ipairs(storages or {}) do self:drop(storage) end
end

--- Runs one node and puts its result into env with one reference.
-- @param node of the graph
-- @param env node -> tensor
-- @param mode { grad =, thread =, save =, casts = }. casts: leaves that need a gradient -> their copies in another
-- dtype, which torch.autocast makes once and keeps until its extent ends (the forward, or one recomputation of a
-- region).
-- @param skip_result true where a recomputation stops early: the inputs are saved and no result is made
function Machine:step(node, env, mode, skip_result)
    local row = rows.of(node.op)
    local inputs = {}
    self:enter(node)
    for k, input in ipairs(node.inputs) do inputs[k] = env[input] or self:leaf(input) end
    local leaf = node.op == 'cast' and node.inputs[1]
    local casts = leaf and leaf.op == 'cell' and leaf.needs_grad and mode.casts
    if casts and casts[leaf] then
        env[node] = self:hold(casts[leaf])
        return
    end
    local out = { refs = 1, node = node }
    local operands, copies = self:operands(row, node, inputs)
    local g = mode.grad and node.needs_grad and is_tracked(inputs) and self:grad_node(node, inputs) or nil
    if skip_result then
        self:save(g, node, operands, nil, mode)
        self:drop_grad_node(g)
        self:drop_list(copies)
        return
    end
    if row.gemm then self:workspace(mode.thread, row.bias and 'cublaslt' or 'cublas') end
    if row.bias then self:workspace(mode.thread, 'cublas') end
    local is_view, strides
    if row.view then is_view, strides = row.view(node, inputs[1]) end
    if is_view then
        out.storage, out.layout = keep(inputs[1].storage), strides
    else
        out.storage = self:alloc(row.result and row.result(node) or node.bytes)
        out.layout = row.like and layout_like(node, inputs) or nil
        if row.scratch then self:drop(self:alloc(row.scratch(node, inputs, g ~= nil))) end
    end
    if g then
        out.grad_node = g
        self:save(g, node, operands, out, mode)
    end
    self:drop_list(copies)
    env[node] = out
    if casts then casts[leaf] = self:hold(out) end
end

-- Returns the mode of a plain forward: autograd nodes are made, and their saved tensors are kept.
local function normal_mode(machine, thread, casts)
    return { grad = true, thread = thread, casts = casts, save = function(g, storage)
        note(machine, storage)
        g.saved[#g.saved + 1] = { storage = keep(storage) }
    end }
end

-- Releases the tensors that no variable of the caller names any longer.
function Machine:forget(dying, env)
    for _, node in ipairs(dying or {}) do
        local t = env[node]
        if t then
            env[node] = nil
            self:release(t)
        end
    end
end

-- Runs the nodes of a region, or those up to number `last`, of which the last one makes no result if skips_last.
function Machine:steps(region, env, mode, last, skips_last)
    for i = 1, last or #region.nodes do
        local node = region.nodes[i]
        self:step(node, env, mode, i == last and skips_last)
        if i ~= last then self:forget(region.dying[node], env) end
    end
end

-- ---- checkpoint --------------------------------------------------------------------------------------------
-- Makes the frame of one call of torch.utils.checkpoint. Its inputs are held until every autograd node inside has
-- released its saved tensors; `stored` holds recomputed tensors until each has been taken, which happens once.
local function new_frame(machine, region, env)
    local frame = { region = region, inputs = {}, count = 0, open = 0, stored = {} }
    machine:enter(region.nodes[1])
    for _, node in ipairs(region.inputs) do
        local t = machine:hold(env[node] or machine:leaf(node))
        frame.inputs[node] = t
        note(machine, t.storage)
    end
    return frame
end

-- Releases one saved place of a frame, and the frame's inputs with the last one.
function release_frame(machine, saved)
    local frame = saved.frame
    local storage = frame.stored[saved.index]
    if storage then
        frame.stored[saved.index] = nil
        machine:drop(storage)
    end
    frame.open = frame.open - 1
    if frame.open == 0 then
        for _, t in iterate(frame.inputs) do machine:release(t) end
        frame.inputs = {}
    end
end

-- Releases every tensor of an env, and empties it.
local function drop_all(machine, env)
    for node, t in iterate(env) do
        env[node] = nil
        machine:release(t)
    end
end

-- Runs a region under checkpoint(use_reentrant=False): autograd nodes are made without their saved tensors; the first
-- saved tensor that the backward asks for runs the region again.
function Machine:checkpoint(region, env)
    local frame = new_frame(self, region, env)
    local inner = setmetatable({}, { __index = env })
    local mode = { grad = true, thread = 'main', casts = self.casts, save = function(g)
        frame.count, frame.open = frame.count + 1, frame.open + 1
        g.saved[#g.saved + 1] = { frame = frame, index = frame.count }
    end }
    self:steps(region, inner, mode)
    for node, t in iterate(inner) do
        env[node] = t
        inner[node] = nil
    end
    if frame.open == 0 then
        frame.open = 1
        release_frame(self, { frame = frame, index = 0 })
    end
end

-- Returns the index of the last node that saves something, at which the recomputation stops, and whether its kernel
-- runs: it does only when the kernel makes one of the saved tensors.
local function last_saver(region)
    for i = #region.nodes, 1, -1 do
        local node = region.nodes[i]
        local row = rows.of(node.op)
        if node.needs_grad then
            local saves, made = false, row.extra ~= nil or row.makes or false
            for _, save in ipairs(row.saves) do
                if rows.is_saved(save, node.inputs, 'needs_grad') then
                    saves = saves or save[1] == 'y' or node.inputs[save[1]].op ~= 'const'
                    made = made or save[1] == 'y'
                end
            end
            if saves or made then return i, made end
        end
    end
end

-- Runs the region of a frame again and stores the tensors that its nodes save.
function Machine:recompute(frame)
    local count, env = 0, {}
    for node, t in iterate(frame.inputs) do env[node] = self:hold(t) end
    local mode = { grad = true, thread = 'autograd', casts = {}, save = function(_, storage)
        count = count + 1
        frame.stored[count] = keep(storage)
    end }
    local last, made = last_saver(frame.region)
    self:steps(frame.region, env, mode, last, not made)
    drop_all(self, env)
    drop_all(self, mode.casts)
    frame.ready = true
end

-- Runs a region under checkpoint(use_reentrant=True): it has one autograd node, or none where no input needs a
-- gradient, so that the region is not trained (R6).
function Machine:checkpoint_reentrant(region, env)
    local inputs, needs = {}, false
    for k, node in ipairs(region.inputs) do
        inputs[k] = env[node] or self:leaf(node)
        if node.needs_grad and (inputs[k].grad_node or inputs[k].leaf) then needs = true end
    end
    local inner = setmetatable({}, { __index = env })
    self:steps(region, inner, { grad = false, thread = 'main' })
    local g = needs and self:grad_node({ op = 'checkpoint', inputs = region.inputs }, inputs) or nil
    if g then
        g.region = region
        self:enter(region.nodes[1])
        for _, t in ipairs(inputs) do
            g.saved[#g.saved + 1] = { storage = keep(t.storage) }
            note(self, t.storage)
        end
    end
    for node, t in iterate(inner) do
        env[node] = t
        inner[node] = nil
        if g and region.outputs[node] then
            t.grad_node, t.slot = g, region.outputs[node]
            g.refs = g.refs + 1
        end
    end
    if g then self:drop_grad_node(g) end
end

--- Runs stretches in order.
-- @param stretches of torchgraph.stretches
-- @param env node -> tensor; results are put here
function Machine:forward(stretches, env)
    local mode = normal_mode(self, 'main', self.casts)
    for _, stretch in ipairs(stretches) do
        if stretch.region then
            if self.reentrant then self:checkpoint_reentrant(stretch, env) else self:checkpoint(stretch, env) end
        else
            self:step(stretch.node, env, mode)
        end
        self:forget(stretch.after, env)
    end
    drop_all(self, self.casts)
end

Machine.keep, Machine.drop_all, Machine.normal_mode = keep, drop_all, normal_mode
for name, method in iterate(require 'wane.pytorch.engine') do Machine[name] = method end

local machine = {}

--- Makes a machine with nothing allocated.
-- @param options { sm = 80, warm = false, torch = '2' }
-- @return machine: `live`, `peak`, `workspaces_at_peak` (bytes), `taken` (bytes allocated, by phase), `parts` (by
-- module), `reentrant` (whether regions are run as with use_reentrant=True, as by default in PyTorch 1.x)
function machine.new(options)
    errors.check_flags(options, { 'warm', 'reentrant' }, 'pytorch')
    local old = options.torch ~= nil and tostring(options.torch):match('^1%.') ~= nil -- rule R7: no workspaces
    local cublas = errors.count(options.sm or 80, 'pytorch: sm', 1, 999) >= 90 and 33554432 or 8519680
    local m = setmetatable({ live = 0, peak = 0, workspace_bytes = 0, workspaces_at_peak = 0, seq = 0,
        leaves = {}, made = {}, casts = {}, parts = {}, part_of = {},
        phase = 'peak_forward', taken = { peak_forward = 0, peak_backward = 0 },
        workspaces = { cublas = old and 0 or cublas, cublaslt = old and 0 or 1048576 } }, Machine)
    m.reentrant = options.reentrant == nil and old or options.reentrant or false
    if options.warm then
        for _, thread in ipairs { 'main', 'autograd' } do
            m:workspace(thread, 'cublas')
            m:workspace(thread, 'cublaslt')
        end
    end
    return m
end

return machine
