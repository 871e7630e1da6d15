--- The options of a command line that belong to the script: `--depth 16` is p.depth = 16.
--
-- A script says which options it has by its defaults and its grid. One that says nothing takes any option whose name is
-- not near one of the command's own.
-- @internal wane.cli.script
local arguments = require 'wane.cli.arguments'
local iterate = require 'wane.iterate'
local refusal = require 'wane.cli.refusal'

local misuse = refusal.misuse

local script = {}

-- Returns the value that an option of the script has by default: that of `defaults`, else the first of its grid.
local function default_of(t, name)
    local default = (t.defaults or {})[name]
    if default ~= nil then return default end
    local axis = (t.grid or {})[name]
    return type(axis) == 'table' and axis[1] or nil
end

-- Returns a word of the command line as a value of the type of the script's default.
local function value_of(t, name, word)
    local default = default_of(t, name)
    if type(default) == 'boolean' then
        if word == 'true' or word == 'false' then return word == 'true' end
        misuse("--%s takes true or false, as the script's %s, got '%s'", name, tostring(default), word)
    end
    local number = tonumber(word)
    if type(default) == 'number' and not number then
        misuse("--%s takes a number, as the script's %s, got '%s'", name, default, word)
    end
    return number or word
end

-- Returns the words of an option; one without a value is true where the script's default is true or false.
local function words_of(t, name, text)
    if text then return text end
    if text == false and type(default_of(t, name)) == 'boolean' then return 'true' end
    return misuse('--%s: a value is missing', name)
end

--- Refuses options that the script does not have.
-- @param t table by which the script describes itself
-- @param found parsed command line
-- @param command row of the table of commands
function script.check(t, found, command)
    local known, names = {}, arguments.names(command)
    for _, part in ipairs { t.defaults or {}, t.grid or {} } do
        for name in iterate(part) do
            if not known[name] then names[#names + 1] = '--' .. tostring(name) end
            known[name] = true
        end
    end
    local says = next(known) ~= nil
    if found.own.fused ~= nil and not known.fused then
        misuse '--fused is gone: opt:step(loss) is how an optimizer steps; --lines is for zero_grad, backward and step'
    end
    for name in iterate(found.own) do
        local hint = not known[name] and refusal.near('--' .. name, names, command.name) or ''
        if says and not known[name] then
            misuse('--%s: neither the command nor the script has such an option%s', name, hint)
        elseif hint:match '^; did you mean' then
            misuse('--%s: the command has no such option%s (a script names its own in defaults = { %s = ... })', name,
                hint, name)
        end
    end
end

--- Returns p for the script's build function: its defaults, replaced by the options of the command line.
-- @param t table by which the script describes itself
-- @param found parsed command line
-- @param command row of the table of commands
function script.parameters(t, found, command)
    script.check(t, found, command)
    local p = {}
    for k, v in iterate(t.defaults or {}) do p[k] = v end
    for name, text in iterate(found.own) do p[name] = value_of(t, name, words_of(t, name, text)) end
    return p
end

--- Returns the script's grid, with axes of the command line in place of its own.
-- @param t table by which the script describes itself
-- @param found parsed command line
-- @param command row of the table of commands
function script.grid(t, found, command)
    script.check(t, found, command)
    local grid = {}
    for key, list in iterate(t.grid or {}) do grid[key] = list end
    grid.policy, grid.budget = found.options.policy or grid.policy, found.options.budget or grid.budget
    for name, text in iterate(found.own) do
        local list = arguments.list(words_of(t, name, text), '--' .. name)
        for i, word in ipairs(list) do list[i] = value_of(t, name, word) end
        grid[name] = list
    end
    if next(grid) == nil then misuse 'there is no grid: the script names none, give --policy or --NAME' end
    return grid
end

return script
