--- The reader without a line editor: for pipes, for TERM=dumb, and where no library is installed.
--
-- On a terminal it shows the prompt and hears ^C, which the terminal itself turns into an empty line. On a pipe it
-- shows nothing at all.
-- @internal wane.repl.plain

local binding = require 'wane.ffi'

local plain = {}

local C = binding.C
local POLL = [[
struct wane_poll { int fd; short events, seen; };
int poll(struct wane_poll *list, unsigned long n, int milliseconds);
]]
local READABLE, STEP = 1, 100 -- POLLIN; milliseconds between two looks at the flag

local Reader = {}
Reader.__index = Reader

--- A reader of lines from standard input.
-- @param has_prompt whether prompts are shown
-- @return a reader with `read` and `remember`
function plain.open(has_prompt)
    local self = setmetatable({ has_prompt = has_prompt }, Reader)
    self.process = has_prompt and binding.open_library({}, POLL) or nil
    if self.process then self.poll = binding.new('struct wane_poll', 0, READABLE, 0) end
    return self
end

-- Waits for input; true when ^C came first. A signal may fall between the look at its flag and the wait, so the wait
-- is cut into steps.
local function is_interrupted(self)
    if self.process == nil then return false end
    repeat
        if C.wn_interrupted() ~= 0 then
            C.wn_interrupt(0)
            return true
        end
    until self.process.poll(self.poll, 1, STEP) == 1
    return false
end

--- Reads one line.
-- @param prompt text
-- @return the line; or nil and 'interrupt' after ^C, 'end' at the end of input
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

--- Nothing to do: there are no arrow keys here.
function Reader:remember() -- luacheck: no self
end

return plain
