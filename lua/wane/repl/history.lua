--- The history of the prompt: lines typed in earlier sessions, in $XDG_STATE_HOME/wane/history, else
-- ~/.local/state/wane/history.
--
-- Every failure of the file (no home, no folder, no space) is ignored, and the prompt works without a history. Only a
-- session at a terminal reads or writes it.
-- @internal wane.repl.history

local system = require 'wane.system'

local history = {}

local MOST = 1000 -- lines kept when a session starts
local variable = os.getenv

--- Returns the name of the file, or nil where there is no home.
function history.path()
    local state = variable 'XDG_STATE_HOME'
    if state and state:match '^/' then return state .. '/wane/history' end
    local home = variable 'HOME'
    if home and home:match '^/' then return home .. '/.local/state/wane/history' end
    return nil
end

--- Returns the last lines of earlier sessions, oldest first; shortens a file of more than 2 * MOST lines.
-- @param path file, or nil
-- @return list of lines, possibly empty
function history.read(path)
    local lines = {}
    local file = path and system.open(path, 'r')
    if not file then return lines end
    for line in file:lines() do lines[#lines + 1] = line end
    file:close()
    if #lines <= MOST then return lines end
    local last = {}
    for i = #lines - MOST + 1, #lines do last[#last + 1] = lines[i] end
    if #lines > 2 * MOST then system.write(path, table.concat(last, '\n') .. '\n') end
    return last
end

--- Appends a line to the file, and makes its folders where they are missing.
-- @param path file, or nil
-- @param line text; a pasted block becomes several lines
-- @return whether it was written
function history.append(path, line)
    if path == nil then return false end
    local file = system.open(path, 'a')
    if not file then
        system.make_folders(path, 448) -- 0700: only the user may read what was typed
        file = system.open(path, 'a')
    end
    if not file then return false end
    file:write(line, '\n')
    file:close()
    return true
end

return history
