--- The standard output of the `wane` command: no write that fails passes unseen.
--
-- A command says its results by output.say, which raises where they cannot be written. What a script prints is looked
-- at when the process ends. A reader that went away (`wane plan x.lua | head -1`) ends the process without a message.
-- @internal wane.cli.output
local refusal = require 'wane.cli.refusal'

local output = {}

local EPIPE = 32 -- errno of a pipe that nobody reads

local was_told = false -- whether the failure of the output was raised

-- Returns the words about an output that fails.
local function words_of(why)
    return 'the standard output cannot be written' .. (why and (' (%s)'):format(why) or '')
end

-- Asks the stream whether a write failed. Returns nil or the words about it, and whether its reader went away. The
-- library may be what is missing; then a buffer that cannot be flushed is the one failure seen.
local function failure(is_written, why, number)
    if is_written then is_written, why, number = io.stdout:flush() end
    if not is_written then return words_of(why), number == EPIPE end
    local has_system, system = pcall(require, 'wane.system')
    if not has_system or not system.has_failed(io.stdout) then return nil end
    return words_of(), system.is_abandoned(1)
end

--- Writes a line, and sees to it that it is written.
-- @param x any value, as tostring shows it
-- @raise a refusal with exit status 1 where it cannot be written
function output.say(x)
    local why, is_quiet = failure(io.stdout:write(tostring(x), '\n'))
    if not why then return end
    was_told = true
    refusal.raise { message = why, code = 1, is_quiet = is_quiet }
end

--- Makes every line of the standard output leave as it is printed, into pipes and files too.
function output.by_lines()
    io.stdout:setvbuf 'line'
end

--- Looks back at all that was printed.
-- @param code exit status so far: a number, true or false
-- @return code; 1 where it was a success and something could not be written
function output.finish(code)
    local why, is_quiet = failure(true)
    if not why then return code end
    if not was_told and not is_quiet then io.stderr:write('wane: ', why, '\n') end
    was_told = true
    return (code == 0 or code == true) and 1 or code
end

--- Makes os.exit look back at what was printed, for scripts that end the process themselves.
function output.watch_exit()
    local exit = os.exit
    rawset(os, 'exit', function(code, is_closed) -- Lua counts no status as success
        exit(output.finish(code == nil and 0 or code), is_closed)
    end)
end

return output
