--- The reader without a line editor: for pipes, for TERM=dumb, and where no library is installed.
--
-- On a terminal it shows the prompt and handles ^C, which the terminal itself turns into an empty line. On a pipe it
-- shows nothing.
-- @internal wane.repl.plain

local binding = require 'wane.ffi'
local system = require 'wane.system'

local plain = {}

local C = binding.C
local READABLE, STEP = 1, 100 -- POLLIN; milliseconds between two reads of the flag

local Reader = {}
Reader.__index = Reader

--- Opens a reader of lines from standard input.
-- @param has_prompt whether prompts are shown
-- @return reader with the methods `read` and `remember`
function plain.open(has_prompt)
    return setmetatable({ has_prompt = has_prompt }, Reader)
end

-- Waits for input. Returns true when ^C came first. A signal may arrive between the read of its flag and the wait, so
-- the wait ends every STEP milliseconds.
local function is_interrupted(self)
    if not self.has_prompt then return false end
    repeat
        if C.wn_interrupted() ~= 0 then
            C.wn_interrupt(0)
            return true
        end
    until system.poll(0, READABLE, STEP) ~= 0
    return false
end

--- Reads one line.
-- @param prompt text
-- @return line; or nil and 'interrupt' after ^C, nil and 'end' at the end of input
function Reader:read(prompt)
    if self.has_prompt then
        io.stdout:write(prompt)
        io.stdout:flush()
    end
    if is_interrupted(self) then
        io.stdout:write '\n'
        return nil, 'interrupt'
    end
    local line = io.read '*l'
    if line then return line end
    return nil, 'end'
end

--- Does nothing: this reader has no arrow keys. The line editors' readers have the same method.
function Reader:remember() -- luacheck: no self
end

return plain
