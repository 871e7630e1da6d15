--- The words of a command line, taken apart by the table of commands (cli/commands.lua).
--
-- Options of a command are checked before its script is loaded; a name that the table lacks is kept for the script
-- where the command hands options on, and refused where it does not. A word that begins with two dashes is never the
-- value of the word before it: `--title=--x` says so where it is meant.
-- @internal wane.cli.arguments
local commands = require 'wane.cli.commands'
local refusal = require 'wane.cli.refusal'

local misuse = refusal.misuse

local arguments = {}


-- Checks of values: kind -> function(text, row, shown) that returns the value; shown is the option as it is typed.
local checks = {}

function checks.text(text)
    return text
end

function checks.count(text, row, shown)
    local n, most = tonumber(text), require('wane.errors').MOST_STEPS
    if not (n and n % 1 == 0 and n >= row.least and n <= most) then
        misuse("%s takes a whole number from %d to %d, got '%s'", shown, row.least, most, text)
    end
    return n
end

function checks.seconds(text, _, shown)
    local n = tonumber(text)
    if not (n and n > 0 and n < math.huge) then misuse("%s takes seconds, more than 0, got '%s'", shown, text) end
    return n
end

function checks.size(text, _, shown)
    local fine, why = pcall(require('wane.report.bytes').parse, text, shown)
    if not fine then misuse('%s', why.message) end
    return text
end

-- Leaves a policy that this version lacks to fail later, when a plan is made.
function checks.policy(text, _, shown)
    local errors = require 'wane.errors'
    local fine, why = pcall(require('wane.policy').of, text)
    if not fine and not (errors.is(why) and why.code == 'unsupported') then
        misuse('%s: %s', shown, errors.is(why) and why.message or tostring(why))
    end
    return text
end

-- Looks at the name alone: what opens the file checks the rest.
function checks.name(text, _, shown)
    if text:match '/$' then misuse("%s takes the name of a file, got the folder '%s'", shown, text) end
    return text
end

-- Sees whether the file can be written, so that hours of work do not end at a folder that cannot.
function checks.file(text, row, shown)
    local system = require 'wane.system'
    checks.name(text, row, shown)
    if os.getenv 'WANE_SWEEP_POINT' then return text end -- the process of a point writes none of them
    local made = system.make_folders(text)
    if made then io.stderr:write(('wane: made the folder %s\n'):format(made)) end
    local fine, why = system.can_write(text)
    if not fine then misuse('%s: %s cannot be written (%s)', shown, text, why) end
    return text
end

--- Splits a list at its commas, but not inside brackets: 'a,segments(4),b' -> { 'a', 'segments(4)', 'b' }.
-- @param text list
-- @return list of texts
function arguments.split(text)
    local out, depth, from = {}, 0, 1
    for at, c in (text .. ','):gmatch '()([(){},])' do
        if c == ',' and depth <= 0 then
            out[#out + 1] = text:sub(from, at - 1):match '^%s*(.-)%s*$'
            from = at + 1
        elseif c ~= ',' then
            depth = depth + ((c == '(' or c == '{') and 1 or -1)
        end
    end
    if depth > 0 then out[#out + 1] = text:sub(from):match '^%s*(.-)%s*$' end
    return out
end

--- Splits the list of an option, and refuses empty places.
-- @param text list
-- @param shown the option as it is typed
-- @return list of texts
function arguments.list(text, shown)
    local list = arguments.split(text)
    for _, word in ipairs(list) do
        if word == '' then misuse("%s: a value is missing in '%s'", shown, text) end
    end
    return list
end

--- Returns an option as it is typed: '--steps', '-i'.
-- @param name of the option
function arguments.shown(name)
    return (#name == 1 and '-' or '--') .. name
end

-- Checks the text of an option by its row in the table, and returns its value.
local function value_of(row, text)
    local shown = arguments.shown(row.name)
    if text == '' then misuse('%s: a value is missing', shown) end
    if row.is_closed then
        for _, choice in ipairs(row.choices) do
            if choice == text then return text end
        end
        misuse("%s: there is no '%s'; there are %s", shown, text, table.concat(row.choices, ', '))
    end
    if not row.is_list then return checks[row.kind](text, row, shown) end
    local list = arguments.list(text, shown)
    for i, word in ipairs(list) do list[i] = checks[row.kind](word, row, shown) end
    return list
end

--- Returns the names of a command's options as they are typed, in order.
-- @param command row of the table
-- @return list of texts
function arguments.names(command)
    local names = {}
    for i, row in ipairs(command.options) do names[i] = arguments.shown(row.name) end
    return names
end

-- Returns the row of an option or of a command, or nil.
local function row_of(rows, name)
    for _, row in ipairs(rows) do
        if row.name == name then return row end
    end
    return nil
end

-- Keeps a value under a name that has none yet.
local function keep(into, name, value)
    if into[name] ~= nil then
        misuse('%s is given twice; values of a list are divided by commas', arguments.shown(name))
    end
    into[name] = value
end

-- Takes a flag.
local function take_flag(found, row, text)
    if text ~= nil and text ~= row.may then
        local may = row.may and (' but =%s'):format(row.may) or ''
        misuse("%s takes no value%s, got '%s'", arguments.shown(row.name), may, text)
    end
    keep(found.options, row.name, text or true)
end

-- Takes words[i], an option. Returns the number of the last word that it took.
local function take(command, found, words, i)
    local name, text = words[i]:match '^%-%-([%w_][%w_%-]*)=(.*)$'
    name = name or words[i]:match '^%-%-([%w_][%w_%-]*)$' or words[i]:match '^%-(%a)$'
    local row = name and row_of(command.options, name)
    if not name or not row and (#name == 1 and words[i]:sub(1, 2) ~= '--' or not command.own_value) then
        misuse("unknown option '%s'%s", words[i], refusal.near(words[i], arguments.names(command), command.name))
    end
    if row and not row.value then
        take_flag(found, row, text)
        return i
    end
    if text == nil and words[i + 1] and not words[i + 1]:match '^%-%-' then
        i, text = i + 1, words[i + 1]
    end
    if not row then
        keep(found.own, name, text or false)
    elseif text == nil then
        misuse('%s: a value is missing', arguments.shown(name))
    else
        keep(found.options, name, value_of(row, text))
    end
    return i
end

-- Refuses operands that are too few, too many or unknown.
local function check_operands(command, found)
    local n, words = #found.operands, found.operands
    if n < command.least then
        misuse('%s is missing', command.files and (command.name == 'new' and 'the name of the script' or 'a script')
            or command.first .. ', ' .. command.operands .. ',')
    end
    if command.most and n > command.most then
        local most = { [0] = 'nothing', command.files and 'one script' or 'one word', 'a word and a file' }
        misuse("%s takes %s, got '%s'%s", command.name, most[command.most], words[command.most + 1],
            n > 1 and ' too' or '')
    end
end

--- Takes a command line apart.
-- @param command row of the table
-- @param words list of words after the command's name
-- @return { operands = list of texts, options = { [name] = checked value, list, or true for a flag }, own = { [name] =
-- text, or false for an option without a value }, is_help = whether help is asked for }
-- @raise a refusal for a command line that is wrong
function arguments.parse(command, words)
    local found = { operands = {}, options = {}, own = {}, is_help = false }
    local i, is_over = 1, false
    while i <= #words do
        local word = words[i]
        if is_over or word == '' or not word:match '^%-.' then
            found.operands[#found.operands + 1] = word
            is_over = is_over or command.is_open
        elseif word == '--' then
            is_over = true
        elseif word == '--help' or word == '-h' then
            found.is_help = true
        else
            i = take(command, found, words, i)
        end
        i = i + 1
    end
    if not found.is_help then check_operands(command, found) end
    return found
end

--- Returns the row of a command, or nil.
-- @param name of the command
function arguments.command(name)
    return row_of(commands, name)
end

--- Returns the row of a command that a user named.
-- @param name as it was written
-- @raise a refusal for a name that is none
function arguments.need_command(name)
    local row = arguments.command(name)
    if row then return row end
    local names = {}
    for i, command in ipairs(commands) do names[i] = command.name end
    return misuse("unknown command '%s'%s", name, refusal.near(name, names))
end

return arguments
