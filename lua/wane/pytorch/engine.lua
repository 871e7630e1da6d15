--- PyTorch's autograd engine in byte counts: the backward half of pytorch/machine.lua.
--
-- The order is PyTorch's: of the nodes that are ready, AccumulateGrad runs first, then the newest one. The gradient
-- that a node receives is held until its kernels are done; then its saved tensors are freed, then its results are
-- delivered. AccumulateGrad takes over a gradient that it alone holds and copies another one; a second gradient is
-- added in place where nothing else sees the first.
--
-- A gradient is { storage =, dense = (false after an expand), layout = (strides, nil for row-major), is_view =,
-- is_part = (part of a larger tensor), reduce = (to be summed to the input's shape) }.
-- @internal wane.pytorch.engine
local errors = require 'wane.errors'
local iterate = require 'wane.iterate'
local layout = require 'wane.pytorch.layout'
local rows = require 'wane.pytorch.ops'

local engine = {} -- functions that become methods of the machine
local Context = {} -- class of the first argument of gradient functions in pytorch/ops.lua: { machine =, node =, dy = }
Context.__index = Context

-- Returns a new gradient of the size of input k.
function Context:new(k, strides)
    return { storage = self.machine:alloc(self.node.inputs[k].bytes), dense = true, layout = strides }
end
-- Returns the incoming gradient under other strides, as the same tensor.
function Context:same(strides)
    local dy = self.dy
    return { storage = self.machine.keep(dy.storage), dense = dy.dense, layout = strides, is_view = dy.is_view }
end
-- Returns a view of the incoming gradient. PyTorch's view holds its base, so no gradient is added to it in place.
function Context:view(strides)
    local grad = self:same(strides)
    grad.is_view = true
    return grad
end
-- Returns the incoming gradient as a part of its tensor.
function Context:part(strides)
    local dy = self.dy
    return { storage = self.machine.keep(dy.storage), dense = dy.dense, is_part = true, layout = strides }
end
-- Returns the incoming gradient expanded: its storage has fewer elements than its shape.
function Context:expanded()
    return { storage = self.machine.keep(self.dy.storage), dense = false }
end
-- Returns the strides of the incoming gradient.
function Context:strides()
    return self.dy.layout or layout.dense(self.node.shape)
end
-- Returns the layout of a new tensor made element by element of the incoming gradient, nil for row-major.
function Context:like()
    local dy, shape = self.dy, self.node.shape
    return dy.dense and dy.layout and layout.elementwise(shape, { { shape = shape, layout = dy.layout } }) or nil
end
-- Replaces the incoming gradient by a row-major copy.
function Context:flatten()
    local dy = { storage = self:temp(self.node.bytes), dense = true }
    self:drop(self.dy.storage)
    self.dy = dy
end
-- Allocates a temporary.
function Context:temp(bytes)
    return self.machine:alloc(bytes)
end
-- Releases one reference to a storage.
function Context:drop(storage)
    self.machine:drop(storage)
end

-- Delivers a gradient to a slot of an autograd node. A second gradient of the same slot is added in place where nothing
-- else sees the first one, and into a new tensor elsewhere.
function engine:deliver(target, slot, grad, node_bytes)
    local old = target.buffers[slot]
    if not old then
        target.buffers[slot] = grad
        return
    end
    if not (old.dense and not old.is_part and not old.is_view and old.storage.refs == 1) then
        target.buffers[slot] = { storage = self:alloc(node_bytes), dense = true, layout = not old.is_part and old.layout
            or nil }
        self:drop(old.storage)
    end
    self:drop(grad.storage)
end

-- Runs AccumulateGrad. A row-major gradient that it alone holds, or a part of another tensor, becomes the leaf's
-- gradient with all bytes of its storage. Otherwise the leaf's gradient is a tensor of its own, allocated when the
-- first gradient arrives.
function engine:accumulate(g)
    local grad, t = g.buffers[1], g.leaf
    g.buffers[1] = nil
    if not t.grad and grad.dense and not grad.layout and (grad.is_part or grad.storage.refs == 1) then
        t.grad = grad.storage
        return
    end
    if not t.grad then t.grad = self:alloc(t.node.bytes) end
    self:drop(grad.storage)
end

-- Takes the recomputed tensors that a node saved in a checkpoint, running the region again when it has not been, and
-- adds their storages to `taken`.
function engine:unpack(g, taken)
    for _, saved in ipairs(g.saved) do
        local frame = saved.frame
        if frame then
            if not frame.ready then self:recompute(frame) end
            local storage = frame.stored[saved.index]
            frame.stored[saved.index] = nil
            taken[#taken + 1] = storage
        end
    end
end

-- Runs one autograd node and returns the gradients of its inputs by number.
function engine:apply(g)
    local node, dy, taken = g.node, g.buffers[1], {}
    g.buffers[1] = nil
    self:unpack(g, taken)
    self:enter(node)
    local row, context, grads = rows.of(node.op), setmetatable({ machine = self, node = node, dy = dy }, Context), {}
    if row.gemm then self:workspace('autograd', 'cublas') end
    if (row.flat or row.flat_back) and (dy.layout or not dy.dense) then context:flatten() end
    for i = 1, #node.inputs do
        local k = row.reversed and #node.inputs + 1 - i or i
        if g.next[k] then grads[k] = row.back(context, node, k) end
    end
    for _, storage in ipairs(taken) do self:drop(storage) end
    for k, grad in iterate(grads) do
        if grad.reduce then
            grads[k] = context:new(k, grad.layout)
            self:drop(grad.storage)
        end
    end
    self:drop(context.dy.storage)
    self:release_saved(g)
    return grads
end

-- Runs the node of a reentrant checkpoint: the region again with gradients on, then an engine pass of its own.
function engine:apply_region(g)
    local region, env, detached, grads = g.region, {}, {}, {}
    for k, node in ipairs(region.inputs) do
        local t = { refs = 1, storage = self.keep(g.saved[k].storage), node = node }
        if node.needs_grad then t.leaf = { refs = 1, leaf = t, seq = math.huge, buffers = {}, next = {} } end
        detached[k], env[node] = t, t
    end
    local inner, mode = setmetatable({}, { __index = env }), self:normal_mode('autograd', {})
    self:steps(region, inner, mode)
    self:drop_all(mode.casts)
    local roots = {}
    for node, slot in iterate(region.outputs) do
        local dy = g.buffers[slot]
        if dy and inner[node].grad_node then
            roots[#roots + 1] = { node = inner[node].grad_node, grad = { storage = self.keep(dy.storage),
                dense = dy.dense, layout = dy.layout } }
        end
    end
    self:engine(roots)
    for k in iterate(g.next) do
        local storage = detached[k].grad
        if storage then grads[k] = { storage = storage, dense = true } end
    end
    self:drop_all(inner)
    for _, t in ipairs(detached) do self:release(t) end
    for slot, dy in iterate(g.buffers) do
        self:drop(dy.storage)
        g.buffers[slot] = nil
    end
    self:release_saved(g)
    return grads
end

-- Counts the edges into each autograd node that is reached from the roots.
local function count_edges(roots)
    local waiting, seen, stack = {}, {}, {}
    for _, root in ipairs(roots) do stack[#stack + 1] = root.node end
    while #stack > 0 do
        local g = table.remove(stack)
        if not seen[g] then
            seen[g] = true
            for _, edge in iterate(g.next) do
                waiting[edge] = (waiting[edge] or 0) + 1
                stack[#stack + 1] = edge
            end
        end
    end
    return waiting
end

-- Removes the newest node from the list and returns it; AccumulateGrad counts as newer than any other.
local function take_newest(ready)
    local best = 1
    for i = 2, #ready do
        if ready[i].seq > ready[best].seq then best = i end
    end
    return table.remove(ready, best)
end

--- Runs one pass of the engine.
-- @param roots list of { node = autograd node, slot = number or nil, grad = gradient, of which one reference is taken }
function engine:engine(roots)
    local waiting, ready = count_edges(roots), {}
    for _, root in ipairs(roots) do
        self:deliver(root.node, root.slot or 1, root.grad, 0)
        if not waiting[root.node] then ready[#ready + 1] = root.node end
    end
    while #ready > 0 do
        local g = take_newest(ready)
        if g.leaf then
            if g.buffers[1] then self:accumulate(g) end
        else
            local grads = {}
            if next(g.buffers) then grads = g.region and self:apply_region(g) or self:apply(g) end
            for k, edge in iterate(g.next) do
                local grad = grads[k]
                if grad then self:deliver(edge, g['slot' .. k] or 1, grad, g.node.inputs[k].bytes) end
                waiting[edge] = waiting[edge] - 1
                if waiting[edge] == 0 then ready[#ready + 1] = edge end
            end
        end
    end
end

--- Runs loss.backward(). The root gradient is a tensor of its own, held until the call returns.
-- @param loss tensor
-- @raise 'value' for a loss that needs no gradient
function engine:backward(loss)
    if not (loss.grad_node or loss.leaf) then
        errors.raise(nil, 'value', 'pytorch: the loss needs no gradient (in PyTorch a reentrant checkpoint whose '
            .. 'inputs need none trains nothing)')
    end
    self.phase = 'peak_backward'
    self:enter(loss.node)
    local root = self:alloc(loss.node.bytes)
    self:engine { { node = loss.grad_node or loss.leaf, slot = loss.slot, grad = { storage = self.keep(root),
        dense = true } } }
    self:drop(root)
end
return engine
