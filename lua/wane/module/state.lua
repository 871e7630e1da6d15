--- What every module can do with its parameters: list, load, move, freeze, clear, switch to evaluation.
--
-- The methods are added to the base of all modules by module/init.lua. Names are paths ('blocks.1.attn.weight'); the
-- same parameter under two names is listed once, under the first.
-- @module wane.module.state

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local upper = require 'wane.upper'
local within = require 'wane.scoped'

local C = binding.C
local raise = errors.raise
local ipairs, pairs, rawset, tostring, type = ipairs, pairs, rawset, tostring, type

--- Lists parameters: { {name =, parameter =}, ... }.
local function named(module, m)
    local list = {}
    module.walk(m, '', nil, function(path, p) list[#list + 1] = { name = path, parameter = p } end, {})
    return list
end

-- Another cell for a parameter: whoever holds the tensor sees the new one.
local function renew(p, init)
    if create.layout(p) ~= 0 then
        init = create.laid(init, create.weight_layout(p.shape, tensor.typed(init)._device))
    end
    local cell = binding.id(C.wn_cell(create.KIND_PARAMETER, init.id, 'parameter'))
    local trains = tensor.info(p).needs_grad ~= 0
    binding.check(C.wn_cell_need_grad(cell, trains and 1 or 0))
    tensor.rebind(p, cell)
end

local function moved(p, where)
    if tensor.dtype_id[where] then return p:to(where):detach() end
    if op.device(where, 'to') == tensor.typed(p)._device then return nil end
    if where == 'meta' then
        return create.zeros(p.shape, { dtype = p.dtype, device = 'meta' })
    end
    return p:to(where)
end

-- Returns whether a value is a float of another dtype than the parameter.
local function casts(parameter, value)
    return tensor.is(value) and tensor.typed(value)._dtype ~= tensor.typed(parameter)._dtype
        and tensor.is_float[value._dtype] and tensor.is_float[parameter._dtype]
end

local function load_state(module, m, dict, opts)
    opts = errors.check_options(opts, { 'strict', 'cast' }, 'load_state_dict')
    errors.check_flags(opts, { 'strict', 'cast' }, 'load_state_dict')
    if type(dict) ~= 'table' then
        raise(nil, 'value', 'load_state_dict: expected a table of names and tensors, got %s',
            errors.describe(dict))
    end
    local wanted, given, roots, cells, advice = {}, {}, {}, {}, nil
    for name, value in pairs(dict) do
        given[tostring(name)] = tensor.is(value) and tensor.describe(value) or errors.describe(value)
    end
    for k, entry in ipairs(named(module, m)) do
        wanted[k] = { name = entry.name, text = tensor.describe(entry.parameter) }
        local value = dict[entry.name]
        if opts.cast and casts(entry.parameter, value) then
            value = value:to(entry.parameter.dtype):detach()
            given[entry.name] = tensor.describe(value)
        elseif casts(entry.parameter, value) then
            advice = "{cast = true} makes floats into the model's dtype"
        end
        if value ~= nil then roots[#roots + 1], cells[#cells + 1] = value, entry.parameter end
    end
    require('wane.module.state_match').check { what = 'load_state_dict', wanted = wanted, given = given,
        here = 'the model',
        there = 'the table', is_partial = opts.strict == false,
        advice = advice }
    if #roots > 0 then upper.run { mode = 'assign', roots = roots, cells = cells } end
end

-- Walking, listing, changing mode.
local function add_lists(module, Module)
    --- All parameters, each once, in order of assignment: a list.
    function Module.parameters(m)
        local list = {}
        for k, entry in ipairs(named(module, m)) do list[k] = entry.parameter end
        return list
    end

    --- for name, p in model:named_parameters() do ... end
    function Module.named_parameters(m)
        local list, k = named(module, m), 0
        return function()
            k = k + 1
            if list[k] then return list[k].name, list[k].parameter end
        end
    end

    --- Direct children, in order of assignment: a list of modules.
    function Module.children(m)
        local list = {}
        for k, entry in ipairs(module.children(m)) do list[k] = entry.module end
        return list
    end

    --- All modules, this one first: a list.
    function Module.modules(m)
        local list = {}
        module.walk(m, '', function(_, each) list[#list + 1] = each end, nil, {})
        return list
    end

    --- for path, m in model:named_modules() do ... end; the model itself has the path ''.
    function Module.named_modules(m)
        local list, k = {}, 0
        module.walk(m, '', function(path, each) list[#list + 1] = { path, each } end, nil, {})
        return function()
            k = k + 1
            if list[k] then return list[k][1], list[k][2] end
        end
    end

    --- Calls fn(module) for every module, children before their owner. Returns the module.
    function Module.apply(m, fn)
        if type(fn) ~= 'function' then
            raise(nil, 'value', 'apply: expected a function, got %s', errors.describe(fn))
        end
        local list = m:modules()
        for k = #list, 1, -1 do fn(list[k]) end
        return m
    end

    --- Training mode (default true) for this module and all inside; changes Dropout. Returns the module.
    function Module.train(m, on)
        if on == nil then on = true end
        for _, each in ipairs(m:modules()) do rawset(each, 'training', on and true or false) end
        module.mode_changed()
        return m
    end

    --- Evaluation mode: the opposite of train.
    function Module.eval(m)
        return m:train(false)
    end
end

-- Parameters and their gradients.
local function add_state(module, Module)
    --- Drops all gradients; their bytes are given back at once.
    function Module.zero_grad(m)
        within.sync() -- not the gradients of a planning that waits
        for _, p in ipairs(m:parameters()) do binding.check(C.wn_cell_drop_grad(p.id)) end
    end

    --- Freezes (false) or trains (true) every parameter. Returns the module.
    function Module.requires_grad(m, on)
        for _, p in ipairs(m:parameters()) do p.requires_grad = on and true or false end
        return m
    end

    --- Parameters by name. The tensors are the model's own, not copies.
    function Module.state_dict(m)
        local dict = {}
        for _, entry in ipairs(named(module, m)) do dict[entry.name] = entry.parameter end
        return dict
    end

    --- Assigns every parameter from a table of names and tensors. A run point.
    -- @param m module
    -- @param dict what state_dict of an equal model returned, or tensors read from a file
    -- @param opts {strict = false}: names may be missing on either side; {cast = true}: floats of another dtype become
    -- the parameter's
    function Module.load_state_dict(m, dict, opts)
        load_state(module, m, dict, opts)
        return m
    end

    --- All parameters to a dtype or device ('bf16', 'meta'). Returns the module.
    function Module.to(m, where)
        if type(where) ~= 'string' then
            raise(nil, 'value', "to: expected a dtype or a device, got %s", errors.describe(where))
        end
        for _, p in ipairs(m:parameters()) do
            local value = moved(p, where)
            if value then renew(p, value) end
        end
        for _, each in ipairs(m:modules()) do rawset(each, '_named', nil) end
        module.mode_changed()
        return m
    end

    --- Number of elements of all parameters.
    function Module.parameter_count(m)
        local n = 0
        for _, p in ipairs(m:parameters()) do n = n + p:numel() end
        return n
    end

    --- model:checkpoint(p): the policy p for everything recorded under this module from now on.
    -- @param m module
    -- @param p string, function, policy, plan; nothing: 'recompute_all'; false takes it off
    function Module.checkpoint(m, p)
        if p == false then
            rawset(m, '_policy', nil)
        else
            if p == nil then p = 'recompute_all' end
            rawset(m, '_policy', require('wane.policy').of(p))
        end
        rawset(m, '_scopes', {}) -- what is recorded from now on is another scope's
        module.mode_changed()
        return m
    end
end

return function(module)
    module.renew = renew
    add_lists(module, module.Module)
    add_state(module, module.Module)
end
