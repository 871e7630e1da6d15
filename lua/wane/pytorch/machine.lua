--- PyTorch's eager execution, acted out on byte counts: a caching allocator's `allocated`, tensors with
-- reference counts, autograd nodes with their saved tensors, checkpoint in both forms (the engine: pytorch/engine.lua).
--
-- Input is a graph (program.graph): nodes in record order. The machine runs no kernel and knows no formula for
-- any model: peaks come out of what is alive when. Rules R1-R7 of pytorch/init.lua's head are applied here.
-- Reference counts: a storage lives while a tensor, an autograd node, a gradient buffer or a name holds it.
-- @internal wane.pytorch.machine
local layout = require 'wane.pytorch.layout'
local rows = require 'wane.pytorch.ops'

local Machine = {}
Machine.__index = Machine

local GRANULE = 512

local function round(bytes)
    return math.ceil(bytes / GRANULE) * GRANULE
end

-- ---- storages ---------------------------------------------------------------------------------------------
function Machine:alloc(bytes)
    local storage = { bytes = bytes, size = bytes > 0 and round(math.max(bytes, 1)) or 0, refs = 1 }
    self.live = self.live + storage.size
    self.taken[self.phase] = self.taken[self.phase] + storage.size
    if self.live > self.peak then self.peak = self.live end
    local part = self.part
    if part and self.live > part[self.phase] then part[self.phase] = self.live end
    return storage
end

--- From here on bytes are noted under the module this node belongs to: what it saves and the peaks while it runs.
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

--- From here on peaks are counted anew: what was alive until now is there before the step.
function Machine:mark()
    self.peak = self.live
    for _, part in ipairs(self.parts) do part.peak_forward = 0 end
end

-- A storage is kept for the backward: noted once, where it is kept first. What was there before the forward is not.
local function note(machine, storage)
    if storage.is_noted or storage.bound then return end
    storage.is_noted = true
    machine.part.saved = machine.part.saved + storage.bytes
end

local function keep(storage)
    storage.refs = storage.refs + 1
    return storage
end

function Machine:drop(storage)
    storage.refs = storage.refs - 1
    if storage.refs == 0 then self.live = self.live - storage.size end
end

--- A workspace of a library, allocated at its first use by a thread and kept.
function Machine:workspace(thread, library)
    local size = self.workspaces[library]
    local key = thread .. library
    if size == 0 or self.made[key] then return end
    self.made[key] = self:alloc(size)
end

-- ---- autograd nodes ---------------------------------------------------------------------------------------
-- Held by the tensor they made and by the nodes that read it; when nobody holds one, its saved tensors go.
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

function Machine:drop_grad_node(first)
    local stack = { first }
    while #stack > 0 do -- a chain of a thousand additions must not recurse
        local g = table.remove(stack)
        g.refs = g.refs - 1
        if g.refs == 0 and g.node then
            self:release_saved(g)
            for _, edge in pairs(g.next) do stack[#stack + 1] = edge end
            g.next = {}
        end
    end
end

-- ---- tensors ----------------------------------------------------------------------------------------------
function Machine:hold(t)
    t.refs = t.refs + 1
    return t
end

--- Gives up one reference to a tensor.
function Machine:release(t)
    t.refs = t.refs - 1
    if t.refs > 0 then return end
    self:drop(t.storage)
    if t.grad_node then self:drop_grad_node(t.grad_node) end
end

--- The tensor of a leaf (parameter, input, number): made once, held by the caller's names.
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
-- mode.save(g, tensor or storage): what the autograd node g keeps; mode.grad: whether nodes are made at all
function Machine:save(g, node, inputs, out, mode)
    local row = rows[node.op]
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

-- Behind a reentrant checkpoint that trains nothing, a value needs no gradient although its graph says so.
local function is_tracked(inputs)
    for _, t in ipairs(inputs) do
        if t.leaf or t.grad_node then return true end
    end
    return false
end

-- The layout of an elementwise result.
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

-- Returns what the kernel reads, the inputs or copies of them, and a list of copies to drop behind it.
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

function Machine:drop_list(storages)
    for _, storage in ipairs(storages or {}) do self:drop(storage) end
end

--- Runs one node; env: node -> tensor. Puts the result into env with one reference.
-- mode.casts: copies of leaves that need a gradient in another dtype, which torch.autocast makes once and keeps until
-- its extent ends: here the forward, or one second run of a region.
-- `skip_result`: early stop, nothing after the inputs are saved.
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
        if row.scratch then self:drop(self:alloc(row.scratch(node))) end
    end
    if g then
        out.grad_node = g
        self:save(g, node, operands, out, mode)
    end
    self:drop_list(copies)
    env[node] = out
    if casts then casts[leaf] = self:hold(out) end
end

local function normal_mode(machine, thread, casts)
    return { grad = true, thread = thread, casts = casts, save = function(g, storage)
        note(machine, storage)
        g.saved[#g.saved + 1] = { storage = keep(storage) }
    end }
end

local no_grad = function(thread) return { grad = false, thread = thread } end

-- Frees what the caller's variables no longer name after node number i of a stretch.
function Machine:forget(dying, env)
    for _, node in ipairs(dying or {}) do
        local t = env[node]
        if t then
            env[node] = nil
            self:release(t)
        end
    end
end

-- ---- checkpoint --------------------------------------------------------------------------------------------
-- A frame: what torch.utils.checkpoint keeps of one call. Inputs are held until every autograd node inside has
-- let go; `stored` holds recomputed tensors until they are taken, each once.
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

function release_frame(machine, saved)
    local frame = saved.frame
    local storage = frame.stored[saved.index]
    if storage then
        frame.stored[saved.index] = nil
        machine:drop(storage)
    end
    frame.open = frame.open - 1
    if frame.open == 0 then
        for _, t in pairs(frame.inputs) do machine:release(t) end
        frame.inputs = {}
    end
end

local function drop_all(machine, env)
    for node, t in pairs(env) do
        env[node] = nil
        machine:release(t)
    end
end

-- use_reentrant=False: nodes are made, saved tensors are not; a saved one asked for runs the region again.
function Machine:checkpoint(region, env)
    local frame = new_frame(self, region, env)
    local inner = setmetatable({}, { __index = env })
    local mode = { grad = true, thread = 'main', casts = self.casts, save = function(g)
        frame.count, frame.open = frame.count + 1, frame.open + 1
        g.saved[#g.saved + 1] = { frame = frame, index = frame.count }
    end }
    for _, node in ipairs(region.nodes) do
        self:step(node, inner, mode)
        self:forget(region.dying[node], inner)
    end
    for node, t in pairs(inner) do
        env[node] = t
        inner[node] = nil
    end
    if frame.open == 0 then
        frame.open = 1
        release_frame(self, { frame = frame, index = 0 })
    end
end

-- The last node that saves something is where the second run stops: its kernel runs only when what it saves
-- comes out of it.
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

function Machine:recompute(frame)
    local count, env = 0, {}
    for node, t in pairs(frame.inputs) do env[node] = self:hold(t) end
    local mode = { grad = true, thread = 'autograd', casts = {}, save = function(_, storage)
        count = count + 1
        frame.stored[count] = keep(storage)
    end }
    local last, made = last_saver(frame.region)
    for i = 1, last do
        local node = frame.region.nodes[i]
        self:step(node, env, mode, i == last and not made)
        if i < last then self:forget(frame.region.dying[node], env) end
    end
    drop_all(self, env)
    drop_all(self, mode.casts)
    frame.ready = true
end

-- use_reentrant=True: one autograd node; where no input needs a gradient the region is not trained (R6).
function Machine:checkpoint_reentrant(region, env)
    local inputs, needs = {}, false
    for k, node in ipairs(region.inputs) do
        inputs[k] = env[node] or self:leaf(node)
        if node.needs_grad and (inputs[k].grad_node or inputs[k].leaf) then needs = true end
    end
    local inner = setmetatable({}, { __index = env })
    for _, node in ipairs(region.nodes) do
        self:step(node, inner, no_grad('main'))
        self:forget(region.dying[node], inner)
    end
    local g = needs and self:grad_node({ op = 'checkpoint', inputs = region.inputs }, inputs) or nil
    if g then
        g.region = region
        self:enter(region.nodes[1])
        for _, t in ipairs(inputs) do
            g.saved[#g.saved + 1] = { storage = keep(t.storage) }
            note(self, t.storage)
        end
    end
    for node, t in pairs(inner) do
        env[node] = t
        inner[node] = nil
        if g and region.outputs[node] then
            t.grad_node, t.slot = g, region.outputs[node]
            g.refs = g.refs + 1
        end
    end
    if g then self:drop_grad_node(g) end
end

--- Runs the nodes of a graph in order. `stretches`: from torchmem.stretches.
-- `after(node)` is called when a node has run and what died with it is gone.
function Machine:forward(stretches, env, reentrant)
    local mode = normal_mode(self, 'main', self.casts)
    for _, stretch in ipairs(stretches) do
        if stretch.region then
            if reentrant then self:checkpoint_reentrant(stretch, env) else self:checkpoint(stretch, env) end
        else
            self:step(stretch.node, env, mode)
        end
        self:forget(stretch.after, env)
    end
    drop_all(self, self.casts)
end

Machine.keep, Machine.drop_all, Machine.normal_mode = keep, drop_all, normal_mode
for name, method in pairs(require 'wane.pytorch.engine') do Machine[name] = method end

local machine = {}

--- A machine with nothing allocated.
-- @param options { sm = 80, warm = false, torch = '2' }
function machine.new(options)
    local old = options.torch ~= nil and tostring(options.torch):match('^1%.') ~= nil -- R7
    local cublas = (options.sm or 80) >= 90 and 33554432 or 8519680
    local m = setmetatable({ live = 0, peak = 0, seq = 0, leaves = {}, made = {}, casts = {}, parts = {}, part_of = {},
        phase = 'peak_forward', taken = { peak_forward = 0, peak_backward = 0 },
        workspaces = { cublas = old and 0 or cublas, cublaslt = old and 0 or 1048576 } }, Machine)
    if options.warm then
        for _, thread in ipairs { 'main', 'autograd' } do
            m:workspace(thread, 'cublas')
            m:workspace(thread, 'cublaslt')
        end
    end
    return m
end

return machine
