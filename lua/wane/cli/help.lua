--- Text that `wane help` prints, made from the table of commands: the list of commands, the page of one, its usage.
-- @internal wane.cli.help
local arguments = require 'wane.cli.arguments'
local commands = require 'wane.cli.commands'
local errors = require 'wane.errors'

local help = {}

local COLUMNS = 80

--- The exit statuses of the command, and what they say.
help.statuses = {
    { 0, 'done' }, { 1, 'the script, the plan, a point or a write failed' }, { 2, 'the command line is wrong' },
    { 130, 'interrupted by ^C' },
}

-- Breaks a text into lines of at most COLUMNS, indented by `indent` spaces; `head` stands before the first.
local function wrap(text, indent, head)
    local lines, line = {}, head or (' '):rep(indent)
    local is_empty = true
    if #line > indent then
        lines[1], line = line, (' '):rep(indent)
    else
        line = line .. (' '):rep(indent - #line)
    end
    for word in text:gmatch '%S+' do
        if not is_empty and #line + 1 + #word > COLUMNS then
            lines[#lines + 1], line, is_empty = line, (' '):rep(indent), true
        end
        line, is_empty = line .. (is_empty and '' or ' ') .. word, false
    end
    lines[#lines + 1] = line
    return table.concat(lines, '\n')
end

-- Returns the words after 'wane' that a command takes.
local function synopsis(command)
    local words = { 'wane ' .. command.name }
    if command.operands ~= '' then words[#words + 1] = command.operands end
    if #command.options > 0 then words[#words + 1] = '[options]' end
    if command.own_value then words[#words + 1] = ('[--NAME %s ...]'):format(command.own_value) end
    return table.concat(words, ' ')
end
help.synopsis = synopsis

--- Returns an option with its value, as it is typed: '--steps N', '--resume[=force]'.
-- @param row of the table
function help.option(row)
    return arguments.shown(row.name) .. (row.value and ' ' .. row.value or '')
        .. (row.may and ('[=%s]'):format(row.may) or '')
end

--- Returns the line of usage that follows an error.
-- @param command row of the table, or nil where none was named
function help.usage(command)
    if not command then return 'usage: wane COMMAND [arguments]    (`wane help` lists the commands)' end
    return ('usage: %s    (`wane help %s` says more)'):format(synopsis(command), command.name)
end

--- Returns the list of commands.
function help.overview()
    local lines = { 'usage: wane COMMAND [arguments]', '' }
    for _, command in ipairs(commands) do
        lines[#lines + 1] = wrap(command.brief, 14, '  ' .. command.name)
    end
    lines[#lines + 1] = ''
    lines[#lines + 1] = '`wane help COMMAND` says more, with examples. Exit status:'
    for _, row in ipairs(help.statuses) do lines[#lines + 1] = ('  %-3d  %s'):format(row[1], row[2]) end
    return table.concat(lines, '\n')
end

--- Returns the page of a command.
-- @param command row of the table
function help.page(command)
    local brief = command.brief:gsub('^.', string.upper)
    local lines = { 'usage: ' .. synopsis(command), '', wrap(brief .. '.', 0) }
    for _, paragraph in ipairs(command.text) do
        lines[#lines + 1] = ''
        lines[#lines + 1] = wrap(paragraph, 0)
    end
    if #command.options > 0 then lines[#lines + 1] = '\noptions:' end
    for _, row in ipairs(command.options) do lines[#lines + 1] = wrap(row.text, 26, '  ' .. help.option(row) .. ' ') end
    lines[#lines + 1] = #command.examples == 1 and '\nexample:' or '\nexamples:'
    for _, example in ipairs(command.examples) do
        lines[#lines + 1] = '  ' .. example[1]
        lines[#lines + 1] = wrap(example[2], 6)
    end
    return table.concat(lines, '\n')
end

-- Returns a value of a script's table in short.
local function short(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for i, v in ipairs(value) do parts[i] = tostring(v) end
    return table.concat(parts, ',')
end

--- Returns the options of a script, with their defaults and the values of its grid.
-- @param t table by which the script describes itself
-- @param path of the script
function help.script(t, path)
    local defaults, grid, lines = t.defaults or {}, t.grid or {}, { ('\noptions of %s:'):format(path) }
    for _, name in ipairs(errors.names(defaults, grid)) do
        local default, axis, words = defaults[name], grid[name], {}
        if default ~= nil then words[1] = short(default) end
        if axis ~= nil then words[#words + 1] = ('(swept: %s)'):format(short(axis)) end
        if default ~= nil or name ~= 'policy' and name ~= 'budget' then
            lines[#lines + 1] = wrap(table.concat(words, ' '), 26, ('  --%s '):format(name))
        end
    end
    return #lines > 1 and table.concat(lines, '\n') or ('\n%s names no options of its own.'):format(path)
end

return help
