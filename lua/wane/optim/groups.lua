--- Groups of parameters: lists of parameters with settings of their own.
--
-- An optimizer has one group or several. A setting that a group does not have itself is the optimizer's:
-- `opt.lr = 0.1` changes every group that was given no lr, `opt.param_groups[2].lr = 0.01` the second alone, and
-- `opt.param_groups[2].lr = nil` makes it follow the optimizer again.
--
-- Base rate: the rate that a schedule scales. It is `initial_lr` beside the `lr` of an optimizer, or of a group with an
-- lr of its own, and false until a schedule takes it. An lr that a script assigns is a new base rate: it sets this to
-- false.
-- @internal wane.optim.groups

local errors = require 'wane.errors'
local tensor = require 'wane.tensor'

local iterate, raise = errors.iterate, errors.raise
local getmetatable, ipairs, rawget, rawset, setmetatable, tostring, type =
    getmetatable, ipairs, rawget, rawset, setmetatable, tostring, type

local groups = {}

--- Raises 'value' unless a setting is within the limits of its class.
function groups.check_setting(class, name, value)
    if name == 'clip_norm' then
        if value ~= false and not (type(value) == 'number' and value > 0) then
            raise(nil, 'value', '%s: clip_norm must be a number above 0, or false, got %s', class.name,
                errors.describe(value))
        end
        return
    end
    if name == 'initial_lr' and value == false then return end
    if name ~= 'initial_lr' and class.defaults[name] == false then
        return errors.check_flags({ [name] = value }, { name }, class.name)
    end
    local least, below = class.limits[name][1], class.limits[name][2]
    if type(value) ~= 'number' or value ~= value or value < least or value == 1 / 0 or below and value >= below then
        raise(nil, 'value', '%s: %s must be a finite number from %g%s, got %s', class.name, name, least,
            below and (' to below %g'):format(below) or '', errors.describe(value))
    end
end

-- Returns whether x is a table of options with a list of parameters, {params = list, lr = 0.1}.
local function is_group(x)
    return type(x) == 'table' and getmetatable(x) == nil and x.params ~= nil
end

--- Returns the number of parameters of a list.
-- @param params list of parameters
-- @param what opens the message
-- @param least number of them, default 0
-- @raise 'value'
function groups.count(params, what, least)
    if type(params) ~= 'table' or tensor.is(params) or params.parameters then -- a module is a table too
        raise(nil, 'value', '%s: expected a list of parameters (model:parameters()), got %s', what,
            errors.describe(params))
    end
    return errors.list(params, what, 'parameters', least)
end

--- Returns entry k of a list; raises 'value' unless it is a parameter.
function groups.parameter(params, k, what)
    local p = params[k]
    if tensor.is(p) and tensor.typed(p)._cell and tensor.is_float[p._dtype] then return p end
    raise(nil, 'value', '%s: entry %d must be a parameter, got %s', what, k, errors.describe(p))
end

-- Raises 'value' unless all are parameters that are listed once. seen: ids of those that are listed already.
local function check_params(params, what, seen)
    for k = 1, groups.count(params, what, 1) do
        local p = groups.parameter(params, k, what)
        if seen[p.id] then raise(nil, 'value', '%s: entry %d is listed twice', what, k) end
        seen[p.id] = true
    end
end

--- Returns the groups of an optimizer's first argument: { { params =, options =, what = }, ... }.
-- @param params list of parameters, or list of groups
-- @param what opens the message: 'optim.SGD'
-- @param seen ids of parameters that are listed already
-- @raise 'value'
function groups.split(params, what, seen)
    if type(params) ~= 'table' or tensor.is(params) or not is_group(params[1]) then
        if is_group(params) then params = { params } else
            check_params(params, what, seen)
            return { { params = params, options = {}, what = what } }
        end
    end
    local list = {}
    for k = 1, errors.list(params, what, 'groups') do
        local group, name = params[k], ('%s: group %d'):format(what, k)
        if not is_group(group) then
            raise(nil, 'value', '%s: expected a table {params = list, ...}, as group 1 is, got %s', name,
                errors.describe(group))
        end
        check_params(group.params, name, seen)
        local options = {}
        for key, value in iterate(group) do
            if key ~= 'params' then options[key] = value end
        end
        list[k] = { params = group.params, options = options, what = name }
    end
    return list
end

--- Returns options of a class, checked, with `betas` as beta1 and beta2.
-- @param class of the optimizer
-- @param opts as they are given
-- @param allowed names of options
-- @param what opens the message of an unknown one
function groups.options(class, opts, allowed, what)
    opts = errors.check_options(opts, allowed, what)
    if class.check then class.check(opts) end
    if opts.betas == nil then return opts end
    if type(opts.betas) ~= 'table' or errors.list(opts.betas, class.name .. ': betas', 'two numbers') ~= 2 then
        raise(nil, 'value', '%s: betas must be two numbers, {0.9, 0.999}, got %s', class.name,
            errors.describe(opts.betas))
    end
    local copy = {}
    for key, value in iterate(opts) do copy[key] = value end
    copy.beta1, copy.beta2 = opts.betas[1], opts.betas[2]
    return copy
end

--- Returns the settings that a group has itself.
-- @param class of the optimizer
-- @param options those of the group
-- @param what opens the message: 'optim.SGD: group 2'
-- @raise 'value'
function groups.settings(class, options, what)
    local allowed, own = {}, {}
    for _, name in ipairs(class.allowed) do
        if name ~= 'clip_norm' then allowed[#allowed + 1] = name end
    end
    options = groups.options(class, options, allowed, what)
    for key in iterate(class.defaults) do
        if options[key] ~= nil then
            groups.check_setting(class, key, options[key])
            own[key] = options[key]
        end
    end
    if own.lr ~= nil then own.initial_lr = false end
    return own
end

-- Raises unless a setting can be changed to a value: it is known, and it needs no other states.
function groups.check_change(class, settings, key, value)
    groups.check_setting(class, key, value)
    if class.prepare == nil then return end
    local changed = setmetatable({ [key] = value }, { __index = settings })
    if class.prepare(changed) ~= class.prepare(settings) then
        raise(nil, 'value', '%s: %s = %s needs other states than %s; that is settled when the optimizer is made',
            class.name, key, tostring(value), tostring(settings[key]))
    end
end

local meta = {}

function meta.__index(group, key)
    return rawget(group, '_settings')[key]
end

function meta.__newindex(group, key, value)
    local class, settings = rawget(group, '_class'), rawget(group, '_settings')
    if class.defaults[key] == nil or key == 'clip_norm' then
        local known = {}
        for name in iterate(class.defaults) do
            if name ~= 'clip_norm' then known[#known + 1] = name end
        end
        table.sort(known)
        raise(nil, 'value', "%s: a group has no setting '%s'; %s", class.name, tostring(key),
            errors.near(key, known))
    end
    local now = value
    if value == nil then now = getmetatable(settings).__index[key] end
    groups.check_change(class, settings, key, now)
    rawset(settings, key, value)
    if key == 'lr' then
        local base = false
        if value == nil then base = nil end
        rawset(settings, 'initial_lr', base)
    end
end

function meta.__tostring(group)
    local parts = {}
    for key, value in iterate(rawget(group, '_settings')) do
        if key ~= 'initial_lr' or value then parts[#parts + 1] = key .. ' = ' .. tostring(value) end
    end
    table.sort(parts)
    return ('group(%d parameters%s%s)'):format(#group.params, #parts > 0 and ', ' or '', table.concat(parts, ', '))
end

function meta.__describe()
    return 'a group of parameters'
end

--- Makes a group: its fields are the settings that hold for it.
-- @param class of the optimizer
-- @param params list of parameters
-- @param own settings of its own
-- @param settings of the optimizer
function groups.new(class, params, own, settings)
    local group = { params = params, _class = class, _settings = setmetatable(own, { __index = settings }) }
    group._kind = class.prepare and class.prepare(group._settings) or class
    return setmetatable(group, meta)
end

--- Tells whether x is an optimizer.
-- @param x any value
function groups.is_optimizer(x)
    return type(x) == 'table' and rawget(x, 'param_groups') ~= nil and rawget(x, '_settings') ~= nil
end

--- Lists the settings of an optimizer that have an lr of their own: { settings =, group = its number, 0 for those of
-- the optimizer }.
-- @param opt optimizer
function groups.with_lr(opt)
    local list = { { settings = opt._settings, group = 0 } }
    for g, group in ipairs(opt.param_groups) do
        local settings = rawget(group, '_settings')
        if rawget(settings, 'lr') ~= nil then
            list[#list + 1] = { settings = settings, group = g }
        end
    end
    return list
end

--- Gives what has an lr in a file and no base rate there the base rate that it has now. own is changed.
-- @param opt optimizer
-- @param all settings of the optimizer in the file
-- @param own list of the settings of each group in the file
-- @return the base rate of the optimizer, or false
function groups.keep_bases(opt, all, own)
    for g, group in ipairs(opt.param_groups) do
        if own[g].lr ~= nil and own[g].initial_lr == nil then
            own[g].initial_lr = rawget(rawget(group, '_settings'), 'initial_lr') or false
        end
    end
    return all.initial_lr or opt._settings.initial_lr
end

--- Returns the settings of an optimizer for a file: those of all, and, of several groups, what each has itself as
-- group_2_lr. An initial_lr that no schedule took is left out.
function groups.flatten(list, settings)
    local flat = {}
    for key, value in iterate(settings) do flat[key] = value end
    if #list > 1 then flat.groups = #list end
    for g, group in ipairs(list) do
        for key, value in iterate(rawget(group, '_settings')) do flat[('group_%d_%s'):format(g, key)] = value end
    end
    for key, value in iterate(flat) do
        if not value and key:find 'initial_lr$' then flat[key] = nil end
    end
    return flat
end

--- Returns flattened settings as those of all and a list of those of each group; raises 'value' for what the class does
-- not have, for values out of their limits, and for another number of groups.
function groups.unflatten(class, flat, n)
    local all, own = {}, {}
    for g = 1, n do own[g] = {} end
    if (flat.groups or 1) ~= n then
        raise(nil, 'value', '%s: the state is of %s groups of parameters, the optimizer has %d', class.name,
            tostring(flat.groups or 1), n)
    end
    for key, value in iterate(flat) do
        local g, name = tostring(key):match '^group_(%d+)_(.+)$'
        local target = g and own[tonumber(g)] or all
        if key ~= 'groups' then
            if class.defaults[name or key] == nil or g and not own[tonumber(g)] then
                raise(nil, 'value', "%s has no setting '%s'; %s", class.name, tostring(key),
                    errors.near(key, class.defaults))
            end
            groups.check_setting(class, name or key, value)
            target[name or key] = value
        end
    end
    return all, own
end

return groups
