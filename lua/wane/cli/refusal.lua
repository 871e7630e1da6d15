--- The class of errors of the command line: they print without a traceback and carry the exit status of the process.
-- @internal wane.cli.refusal
local refusal = {}

-- Fields: message; code (exit status); has_usage (whether the command's usage line follows); is_quiet (nothing prints).
local Refusal = {}
Refusal.__index = Refusal
Refusal.__tostring = function(e) return e.message end

--- Tells whether x is an error of the command line.
-- @param x any value
function refusal.is(x)
    return getmetatable(x) == Refusal
end

--- Raises an error of the command line.
-- @param fields { message =, code =, has_usage = (optional), is_quiet = (optional) }
function refusal.raise(fields)
    error(setmetatable(fields, Refusal), 0)
end

--- Refuses a command line: exit status 2, and the usage line of the command follows the message.
-- @param fmt format of the message
-- @param ... its arguments
function refusal.misuse(fmt, ...)
    refusal.raise { message = fmt:format(...), code = 2, has_usage = true }
end

--- Returns "; did you mean '--steps'?" where one of the names is near, else "; `wane help sweep` lists them".
-- @param name what was written, with its dashes
-- @param known list of names, written alike
-- @param command name of the command, or nil for the list of commands
-- @return text
function refusal.near(name, known, command)
    local hint = require('wane.errors').near(name, known) or ''
    if hint:match '^did you mean' then return '; ' .. hint end
    return ('; `wane help%s` lists them'):format(command and ' ' .. command or '')
end

return refusal
