--- The walk over the modules, parameters and buffers of a module: its fields in order of assignment, and plain tables
-- in them. What stands where the walk does not look is refused by its place: it would be trained by nobody.
-- @internal wane.module.walk

local errors = require 'wane.errors'
local tensor = require 'wane.tensor'

local iterate, raise = errors.iterate, errors.raise
local getmetatable, ipairs, rawget, tostring, type = getmetatable, ipairs, rawget, tostring, type

local walk = {}

--- Tells whether x is a module.
function walk.is(x)
    local mt = getmetatable(x)
    return type(mt) == 'table' and rawget(mt, '__module') == true
end
local is = walk.is

--- Holds the parameters and buffers: tensor -> 'parameter' or 'buffer'.
local kinds = setmetatable({}, { __mode = 'k' })
walk.kinds = kinds

--- Returns the type name of a module or of a class.
function walk.type(m)
    return getmetatable(m).__name
end
local type_of = walk.type

local function join(prefix, key)
    key = tostring(key)
    if prefix == '' then return key end
    return prefix .. '.' .. key
end

--- Raises 'value' for a leaf that a backward gives a gradient but that no optimizer would see, in the field `path`.
function walk.check_constant(m, path, value)
    if getmetatable(value) ~= tensor.Tensor or kinds[value] or value.id < 0 then return end
    if not tensor.typed(value)._cell or not value.requires_grad then return end
    raise(nil, 'value', '%s.%s: %s has requires_grad and is no parameter, so no optimizer and no file would see it; '
        .. 'write nn.Parameter(t) to train it, t:detach() for a constant', type_of(m), tostring(path),
        tensor.describe(value))
end

--- Raises 'value' for a tensor that took the place of a parameter or a buffer, in the field `path` of m.
function walk.check_place(m, path, value)
    if getmetatable(value) ~= tensor.Tensor or kinds[value] then return end
    local kind = rawget(m, '_states')[path]
    raise(nil, 'value', '%s.%s: a plain tensor took the place of the %s, which no optimizer and no file would see any '
        .. 'more; write m.%s:assign(t) to change its value, m.%s = nn.%s(t) for a new one', type_of(m), path, kind,
        path, path, kind == 'buffer' and 'Buffer' or 'Parameter')
end

-- Appends to `lost` the modules and states in a table that is not walked, as far as a few levels and entries go.
local function find_lost(value, path, lost, seen, level)
    if kinds[value] or is(value) then
        lost[#lost + 1] = { value = value, path = path }
    elseif type(value) == 'table' and level <= 3 and not seen[value] and getmetatable(value) ~= tensor.Tensor then
        local mt, n = getmetatable(value), 0
        if type(mt) == 'table' and (mt.__mode or mt.__describe) then return end
        seen[value] = true
        for k, v in iterate(value) do
            n = n + 1
            if n > 1000 then return end
            if type(v) == 'table' then find_lost(v, ('%s[%s]'):format(path, tostring(k)), lost, seen, level + 1) end
        end
    end
end

-- Calls on_module(path, m) and on_state(path, p) for the modules, and the parameters and buffers, in `value`, a field
-- of the module m, and appends to `lost` those that stand where none is looked for.
local function visit(m, value, path, on_module, on_state, walked)
    local lost, seen = walked.lost, walked.seen
    if kinds[value] then
        local states = rawget(m, '_states') -- their paths as a list, and the kind of each by its path
        if not states[path] then states[#states + 1] = path end
        states[path] = kinds[value]
        if on_state then on_state(path, value) end
    elseif is(value) then
        on_module(path, value)
    elseif type(value) == 'table' and getmetatable(value) == nil then
        if seen[value] then return end
        seen[value] = true
        local n = 0
        while value[n + 1] ~= nil do n = n + 1 end
        for k = 1, n do visit(m, value[k], join(path, k), on_module, on_state, walked) end
        for _, k in ipairs(errors.names(value)) do
            visit(m, value[k], join(path, k), on_module, on_state, walked)
        end
        for k, v in iterate(value) do
            local is_walked = type(k) == 'string' or type(k) == 'number' and k >= 1 and k <= n and k % 1 == 0
            if not is_walked then find_lost(v, ('%s[%s]'):format(path, tostring(k)), lost, seen, 1) end
        end
    elseif rawget(m, '_states')[path] then
        walk.check_place(m, path, value)
    elseif type(value) == 'table' and getmetatable(value) ~= tensor.Tensor then
        find_lost(value, path, lost, seen, 1)
    elseif on_state then
        walk.check_constant(m, path, value)
    end
end

-- Visits all fields. lost: a list that gets { owner =, value =, path = } for each module and state that stands where
-- none is looked for.
local function each_field(m, on_module, on_state, lost)
    local walked = { seen = {}, lost = lost or {} }
    for _, key in ipairs(rawget(m, '_order')) do
        local n = #walked.lost
        visit(m, rawget(m, key), tostring(key), on_module, on_state, walked)
        for k = n + 1, #walked.lost do walked.lost[k].owner = m end
    end
end

-- Raises 'value' for a module or a state that no walk reaches: under [0], behind a hole, in an object.
local function refuse_lost(entry)
    local what = is(entry.value) and 'the module' or 'the parameter or buffer'
    raise(nil, 'value', '%s.%s: %s there would not be trained, saved or moved; a module looks into its fields and '
        .. 'into plain tables in them, at names and at 1 to n: fill lists from 1 without holes, in tables that have no '
        .. 'metatable',
        type_of(entry.owner), entry.path, what)
end

--- Lists the direct children of a module, in order of assignment: { { name =, module = }, ... }.
-- Modules in plain tables are children too, with names such as 'blocks.1'.
-- @within Internal
function walk.children(m)
    local list = {}
    each_field(m, function(path, child) list[#list + 1] = { name = path, module = child } end)
    return list
end

local function descend(m, prefix, on_module, on_state, seen, lost)
    if seen[m] then return end
    seen[m] = true
    if on_module then on_module(prefix, m) end
    each_field(m, function(path, child)
        descend(child, join(prefix, path), on_module, on_state, seen, lost)
    end, function(path, p)
        if seen[p] then return end
        seen[p] = true
        if on_state then on_state(join(prefix, path), p, m) end
    end, lost)
end

--- Calls on_module(path, m) and on_state(path, p, owner) for a module and all inside, each once.
-- @param m module
-- @param prefix path of the module
-- @param on_module function, or nil
-- @param on_state function, or nil
-- @param seen set of what was met, which is filled
-- @raise 'value' for a module or a state that stands where the walk does not look
function walk.walk(m, prefix, on_module, on_state, seen)
    local lost = {}
    descend(m, prefix, on_module, on_state, seen, lost)
    for _, entry in ipairs(lost) do
        if not seen[entry.value] then refuse_lost(entry) end
    end
end

return walk
