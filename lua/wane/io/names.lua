--- Names of tensors in a file beside their names in a model.
--
-- A rule says from which tensors of a file a state of the model is made: from one, from several that follow each other
-- along their first dim, and from a matrix as it is or transposed. `names = 'wane'` and 'torch' are rules in both
-- directions; a function of the script is one from the model to the file.
-- @internal wane.io.names

local errors = require 'wane.errors'

local iterate, raise = errors.iterate, errors.raise

local names = {}

-- Returns the function that renumbers one part of a name. Lists count from 0 in PyTorch's files: blocks.1.weight here
-- is blocks.0.weight there.
local function shift_by(by)
    return function(part)
        local n = (part == '0' or part:find '^[1-9]%d*$' and #part < 16) and tonumber(part) + by
        return n and n >= 0 and ('%.0f'):format(n) or nil
    end
end
local shifts = { [-1] = shift_by(-1), [1] = shift_by(1) }

--- Returns a name whose numbers are raised by 1, lowered by 1, or left.
-- @param name text
-- @param by 1, -1 or 0
function names.shifted(name, by)
    if by == 0 then return name end
    return (name:gsub('[^.]+', shifts[by]))
end
local shifted = names.shifted

--- Returns the name in a file that `shifted` by -by turns into `name`, or nil where there is none.
function names.in_file(name, by)
    local there = shifted(name, by)
    return shifted(there, -by) == name and there or nil
end

local SHIFT = { wane = 0, torch = -1 }

--- Returns by how much numbers change on the way to the file.
-- @param word 'wane', 'torch', or nil for 'wane'
-- @param what opens the message of an error
-- @raise 'value' for another word
function names.shift_of(word, what)
    local by = SHIFT[word or 'wane']
    if by == nil then
        raise(nil, 'value', "%s: names = %s; there are 'wane' (lists count from 1) and 'torch' (from 0)%s", what,
            errors.describe(word), what == 'wane.load' and ', and a function that names the tensors of a file' or '')
    end
    return by
end

local FIELDS = { name = 'string', transpose = 'boolean', rows = 'number' }

-- Checks one tensor of a rule's answer; returns it as { name =, transpose =, rows = }.
local function part_of(value, state, what)
    if type(value) == 'string' then return { name = value } end
    local fault = type(value) ~= 'table' and errors.describe(value)
    for key, field in iterate(fault and {} or value) do
        if type(field) ~= FIELDS[key] then fault = ('%s = %s'):format(tostring(key), errors.describe(field)) end
    end
    if not fault and not value.name then fault = 'a table without name' end
    if not fault and value.rows and not (value.rows >= 0 and value.rows % 1 == 0) then
        fault = 'rows = ' .. tostring(value.rows)
    end
    if fault then
        raise(nil, 'value', "%s: names('%s') returned %s; expected the name of a tensor in the file, { name =, "
            .. 'transpose = true, rows = }, a list of these, or nil', what, state, fault)
    end
    return { name = value.name, transpose = value.transpose, rows = value.rows } -- the script may give its own again
end

--- Returns the tensors of a file of which a rule makes a state: a list of { name =, transpose =, rows = }, or nil for a
-- state that the file need not have.
-- @param rule function(name) of the script
-- @param state name in the model
-- @param what opens the message of an error
-- @raise 'value' for an answer that is none
function names.parts(rule, state, what)
    local value = rule(state)
    if value == nil then return nil end
    if type(value) ~= 'table' or getmetatable(value) ~= nil or #value == 0 then
        return { part_of(value, state, what) }
    end
    local list = {}
    for k = 1, errors.list(value, what .. ': names', 'parts') do list[k] = part_of(value[k], state, what) end
    return list
end

--- Returns a function that tells whether a tensor of a file may be left out.
-- @param given list of Lua patterns, or nil
-- @param what opens the message of an error
-- @raise 'value' for what is no list of patterns
function names.ignorer(given, what)
    if given == nil then return function() return false end end
    for k = 1, errors.list(given, what .. ': ignore', "Lua patterns, { '%.attn%.bias$' }") do
        if type(given[k]) ~= 'string' or not pcall(string.find, '', given[k]) then
            raise(nil, 'value', "%s: ignore: entry %d must be a Lua pattern, got %s", what, k,
                errors.describe(given[k]))
        end
    end
    return function(name)
        for _, pattern in ipairs(given) do
            if name:find(pattern) then return true end
        end
        return false
    end
end

return names
