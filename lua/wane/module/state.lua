--- The methods of every module: they list, load, move, freeze and clear its parameters, and switch to evaluation.
--
-- Names are paths ('blocks.1.attn.weight'); a parameter under two names is listed once, under the first.
-- @module wane.module.state

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local read = require 'wane.tensor.read'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C = binding.C
local iterate, raise = errors.iterate, errors.raise
local walking = require 'wane.module.walk'
local kinds, walk = walking.kinds, walking.walk
local ipairs, rawset, tostring, type = ipairs, rawset, tostring, type

local Module = {}

-- Lists the parameters (kind 'parameter'), the buffers ('buffer'), or both (nil), in order of assignment:
-- { { name =, state = }, ... }.
local function named(m, kind)
    local list = {}
    walk(m, '', nil, function(path, p)
        if not kind or kinds[p] == kind then list[#list + 1] = { name = path, state = p } end
    end, {})
    return list
end

-- Returns the states of a list of `named`.
local function states_of(entries)
    local list = {}
    for k, entry in ipairs(entries) do list[k] = entry.state end
    return list
end

-- Iterates over the names and states of a list of `named`.
local function each_of(entries)
    local k = 0
    return function()
        k = k + 1
        if entries[k] then return entries[k].name, entries[k].state end
    end
end

-- Returns the layout of a state on a device: a weight lies there as the device likes its weights.
local function layout_on(p, device)
    if not rawget(p, '_is_weight') and create.layout(p) == 0 then return 0 end
    return create.weight_layout(p.shape, device)
end

-- Returns a new cell like that of a state with the first value `init`.
local function cell_of(p, init)
    init = create.laid(init, layout_on(p, tensor.typed(init)._device))
    if tensor.is_sharded(p) then read.run(init) end -- which all ranks make together, now
    local kind = kinds[p] == 'buffer' and create.KIND_BUFFER or create.KIND_PARAMETER
    local cell = tensor.wrap(binding.id(C.wn_cell(kind, init.id, rawget(p, '_path') or 'state')))
    binding.check(C.wn_cell_need_grad(cell.id, tensor.info(p).needs_grad ~= 0 and 1 or 0))
    return cell
end

-- Gives a state another cell with the first value `init`; every holder of the tensor sees the new cell.
local function renew(p, init)
    tensor.adopt(p, cell_of(p, init))
end

-- Returns a cell like that of a state, on another device or in another dtype, or nil when it is there already.
local function moved(p, where)
    if tensor.dtype_id[where] then
        if not tensor.is_float[tensor.typed(p)._dtype] then return nil end -- counters stay integers
        return tensor.dtype_id[where] ~= tensor.typed(p)._dtype and cell_of(p, p:to(where):detach()) or nil
    end
    local device = op.device(where, 'to')
    if device == tensor.typed(p)._device then return nil end
    local layout = layout_on(p, device)
    local cell = C.wn_cell_move(p.id, device, layout)
    if cell < 0 and tensor.info(p).held == 0 then
        read.run(p)
        cell = C.wn_cell_move(p.id, device, layout)
    end
    return tensor.wrap(binding.id(cell))
end

-- Returns what `moved` returns for each state, or false. A device takes those that have values as one piece.
local function moved_all(states, where)
    local cells, bytes, count = {}, 0, 0
    local device = not tensor.dtype_id[where] and op.device(where, 'to') or nil
    for _, p in ipairs(states) do
        local info = tensor.info(p)
        if info.held ~= 0 and info.device ~= device then bytes, count = bytes + tonumber(info.bytes), count + 1 end
    end
    if device then binding.check(C.wn_cells_coming(device, bytes, count)) end
    scoped.always(function()
        if device then C.wn_cells_coming(device, 0, 0) end
    end, function()
        for k, p in ipairs(states) do cells[k] = moved(p, where) or false end
    end)
    return cells
end

-- Returns whether a value is a float of another dtype than the state.
local function casts(state, value)
    return tensor.is(value) and tensor.typed(value)._dtype ~= tensor.typed(state)._dtype
        and tensor.is_float[value._dtype] and tensor.is_float[state._dtype]
end

-- ---- lists, and the mode ------------------------------------------------------------------------------------------

--- Lists all parameters, each once, in order of assignment.
-- @usage print(#model:parameters()) --> 4
function Module.parameters(m)
    return states_of(named(m, 'parameter'))
end

--- Lists all buffers, each once, in order of assignment: states that are not trained (nn.Buffer).
-- @usage print(#model:buffers()) --> 0
function Module.buffers(m)
    return states_of(named(m, 'buffer'))
end

--- Iterates over names and parameters, in order of assignment.
-- @usage for name, p in model:named_parameters() do print(name, p.shape) end
-- --> 1.weight	(16, 8)
-- --> 1.bias	(16)
-- --> 3.weight	(4, 16)
-- --> 3.bias	(4)
function Module.named_parameters(m)
    return each_of(named(m, 'parameter'))
end

--- Iterates over names and buffers, in order of assignment.
-- @usage for name, b in nn.BatchNorm2d(4):named_buffers() do print(name, b.shape) end
-- --> running_mean	(4)
-- --> running_var	(4)
function Module.named_buffers(m)
    return each_of(named(m, 'buffer'))
end

--- Lists the direct children, in order of assignment.
-- @usage print(#model:children()) --> 3
function Module.children(m)
    local list = {}
    for k, entry in ipairs(walking.children(m)) do list[k] = entry.module end
    return list
end

--- Lists all modules inside, and this one first.
-- @usage print(#model:modules()) --> 4
function Module.modules(m)
    local list = {}
    walk(m, '', function(_, each) list[#list + 1] = each end, nil, {})
    return list
end

--- Iterates over paths and modules; the module itself comes first, with the path ''.
-- @usage for path, m in nn.MLP(8):named_modules() do print(path, m) end
function Module.named_modules(m)
    local list = {}
    walk(m, '', function(path, each) list[#list + 1] = { name = path, state = each } end, nil, {})
    return each_of(list)
end

--- Calls fn(module) for every module, children before their owner. Returns the module.
-- @param m module
-- @param fn function
-- @usage
-- model:apply(function(m)
--     if m.weight then nn.init.normal(m.weight, 0.02) end
-- end)
function Module.apply(m, fn)
    if type(fn) ~= 'function' then
        raise(nil, 'value', 'apply: expected a function, got %s', errors.describe(fn))
    end
    local list = m:modules()
    for k = #list, 1, -1 do fn(list[k]) end
    return m
end
jit.off(Module.apply) -- compiled code would hold fn (program/accumulate.lua)

--- Switches this module and all inside to training mode, which Dropout reads as `self.training`. Returns the
-- module.
-- @param m module
-- @param on true unless given; false is evaluation
-- @usage print(model:train().training, model:train(false).training) --> true	false
function Module.train(m, on)
    if on == nil then on = true end
    for _, each in ipairs(m:modules()) do rawset(each, 'training', on and true or false) end
    return m
end

--- Switches this module and all inside to evaluation mode. Returns the module.
-- @usage print(model:eval().training) --> false
function Module.eval(m)
    return m:train(false)
end

-- ---- parameters and their gradients -------------------------------------------------------------------------------

--- Drops the gradients of all parameters; their bytes are given back at once.
-- @usage
-- loss:backward()
-- model:zero_grad()
-- print(model[1].weight.grad) --> nil
function Module.zero_grad(m)
    scoped.sync() -- not the gradients of a suspended planning
    for _, p in ipairs(m:parameters()) do binding.check(C.wn_cell_drop_grad(p.id)) end
end

--- Freezes or trains every parameter. Returns the module.
-- @param m module
-- @param on false freezes, true trains
-- @usage model[1]:requires_grad(false)
function Module.requires_grad(m, on)
    for _, p in ipairs(m:parameters()) do p.requires_grad = on and true or false end
    return m
end

--- Returns the parameters and buffers by name. The tensors are the model's own, which change with it, or copies.
-- @param m module
-- @param opts {copy = false}; true: values of now, as a run point, for m:load_state_dict later
-- @usage
-- print(model:state_dict()['1.weight'] == model[1].weight) --> true
-- local best = model:state_dict { copy = true }
-- opt:step(nn.cross_entropy(model(x), y))
-- model:load_state_dict(best)
function Module.state_dict(m, opts)
    opts = errors.check_options(opts, { 'copy' }, 'state_dict', { 'copy' })
    local dict, values = {}, {}
    for k, entry in ipairs(named(m)) do
        values[k] = opts.copy and entry.state:detach() or entry.state
        dict[entry.name] = values[k]
    end
    if opts.copy and #values > 0 then op.eval(values) end
    return dict
end

--- Assigns every parameter and buffer from a table of tensors by name. Returns the module. A run point.
-- @param m module
-- @param dict the state_dict of an equal model, or tensors read from a file
-- @param opts {strict = true: every name must be on both sides; cast = false: floats of another dtype are cast to
-- the parameter's}
-- @raise 'shape' or 'value' with the lists missing, unexpected and wrong; nothing is changed then
-- @usage
-- local other = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
-- other:load_state_dict(model:state_dict())
-- print((other(x) - model(x)):abs():max():item()) --> 0
function Module.load_state_dict(m, dict, opts)
    opts = errors.check_options(opts, { 'strict', 'cast' }, 'load_state_dict', { 'strict', 'cast' })
    if type(dict) ~= 'table' then
        raise(nil, 'value', 'load_state_dict: expected a table of names and tensors, got %s',
            errors.describe(dict))
    end
    local wanted, given, roots, cells, advice, own = {}, {}, {}, {}, nil, 0
    for name, value in iterate(dict) do
        given[tostring(name)] = tensor.is(value) and tensor.describe(value) or errors.describe(value)
    end
    for k, entry in ipairs(named(m)) do
        wanted[k] = { name = entry.name, text = tensor.describe(entry.state) }
        local value = dict[entry.name]
        if rawequal(value, entry.state) then own = own + 1 end
        if opts.cast and casts(entry.state, value) then
            value = value:to(entry.state.dtype):detach()
            given[entry.name] = tensor.describe(value)
        elseif casts(entry.state, value) then
            advice = "{cast = true} makes floats into the model's dtype"
        end
        if value ~= nil then roots[#roots + 1], cells[#cells + 1] = value, entry.state end
    end
    if own > 0 and own == #roots then
        raise(nil, 'value', "load_state_dict: the table holds the model's own tensors, as they are now, so nothing "
            .. 'would change; take a copy when it is to be kept, m:state_dict { copy = true }')
    end
    require('wane.module.state_match').check { what = 'load_state_dict', wanted = wanted, given = given,
        here = 'the model', there = 'the table', is_partial = opts.strict == false, advice = advice }
    if #roots > 0 then op.run { mode = 'assign', roots = roots, cells = cells } end
    return m
end

--- Moves all parameters and buffers to a dtype or a device; a dtype changes floats alone. Returns the module.
-- A state that nothing ran yet is begun on the new device, with the same bits; others pass through a block of
-- 1 MiB. Optimizers take their states along at the next step. Gradients are dropped. When it fails, no state
-- has moved.
-- @param m module
-- @param where name of a dtype or of a device
-- @raise 'value' for an unknown name; 'device' for a device that is not here, and from meta; 'oom'
-- @usage print(nn.Linear(8, 4):to('bf16').weight.dtype, nn.Linear(8, 4):to('meta').weight.device) --> bf16	meta
function Module.to(m, where)
    if type(where) ~= 'string' then
        raise(nil, 'value', "to: expected a dtype or a device, got %s", errors.describe(where))
    end
    local states = states_of(named(m))
    local cells = moved_all(states, where)
    for k, p in ipairs(states) do
        if cells[k] then tensor.adopt(p, cells[k]) end
    end
    return m
end

--- Returns the number of elements of all parameters.
-- @usage print(model:parameter_count()) --> 212
function Module.parameter_count(m)
    local n = 0
    for _, p in ipairs(m:parameters()) do n = n + p:numel() end
    return n
end

--- Gives everything that is recorded under this module from now on a policy. Returns the module.
-- @param m module
-- @param p text, function, policy or plan; 'recompute_all' unless given; false takes the policy off
-- @usage model[1]:checkpoint 'recompute_all'
function Module.checkpoint(m, p)
    if p == false then
        rawset(m, '_policy', nil)
    else
        if p == nil then p = 'recompute_all' end
        rawset(m, '_policy', require('wane.policy').of(p))
    end
    rawset(m, '_scopes', {}) -- nodes that are recorded from now on are of another scope
    return m
end

return { Module = Module, renew = renew }
