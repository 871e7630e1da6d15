--- The names that a value answers to, for completion and help.
--
-- Looking changes nothing. A table is read with rawget along its `__index` tables, and a lazily filled table (wane, nn,
-- optim) lists the names that it would load without loading them. Names that start with `_` are private.
-- @internal wane.repl.names

local errors = require 'wane.errors'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local names = {}

local function is_name(k)
    return type(k) == 'string' and k:match('^%a[%w_]*$') ~= nil
end

-- Adds the keys of a table that are names.
local function add_keys(found, t)
    for k in errors.iterate(t) do
        if is_name(k) then found[k] = true end
    end
end

-- Adds the names in the table PLACES that the `__index` function of a lazily filled table closes over.
local function add_places(found, fn)
    for i = 1, 20 do
        local name, value = debug.getupvalue(fn, i)
        if name == nil then return end
        if name == 'PLACES' and type(value) == 'table' then add_keys(found, value) end
    end
end

-- Adds the names of a table and of its `__index` tables.
local function add_table(found, t)
    for _ = 1, 8 do
        add_keys(found, t)
        local mt = debug.getmetatable(t)
        local index = type(mt) == 'table' and rawget(mt, '__index')
        if type(index) == 'function' then add_places(found, index) end
        if type(index) ~= 'table' then return end
        t = index
    end
end

--- Returns the names that a value answers to, sorted.
-- @param value any value
-- @param separator '.' for fields, ':' for methods, nil for both
-- @return list of names
function names.of(value, separator)
    local found = {}
    if tensor.is(value) then
        if separator ~= ':' then add_keys(found, tensor.fields) end
        if separator ~= '.' then add_keys(found, tensor.methods) end
    elseif module.is(value) then
        if separator ~= ':' then add_keys(found, value) end
        if separator ~= '.' then add_table(found, debug.getmetatable(value).__index) end
    elseif type(value) == 'table' then
        add_table(found, value)
    elseif type(value) == 'string' then
        add_keys(found, string)
    end
    return errors.names(found)
end

--- Returns the value of a path of names such as 'model.blocks', or nil. Never raises.
-- @param env table in which the first name is looked up
-- @param path names joined by '.' or ':'
function names.value(env, path)
    local value = env
    for name in path:gmatch '[^.:]+' do
        local ok, inner = pcall(function() return value[tonumber(name) or name] end)
        if not ok then return nil end
        value = inner
    end
    return value
end

return names
