--- ^C while a line runs.
--
-- SIGINT sets a flag in C. A running program polls it before its first effect; Lua code is stopped by a hook that
-- looks at the flag now and then. The hook raises only in the user's own code, so that what the library sets and
-- restores stays in step. The flag stays set until the prompt is back: a pcall in a loop cannot swallow it.
-- A trace ignores hooks (LuaJIT never looks at them there), so chunks of the prompt stay interpreted.
-- @internal wane.repl.interrupt

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C

local interrupt = {}

local EVERY = 1000 -- instructions between two looks at the flag
local here = debug.getinfo(1, 'S').source:match '^(.*[/\\])repl[/\\]' or '@'

local function is_ours(level)
    local info = debug.getinfo(level, 'S')
    return info == nil or info.source:sub(1, #here) == here
end

local function look()
    if C.wn_interrupted() == 0 then return end
    debug.sethook(look, '', 1) -- from here on at every instruction, or a loop around a pcall would go on
    if is_ours(3) then return end -- 3: past is_ours and this hook stands what was running
    error(errors.new('interrupt', 'interrupted'), 0)
end

-- Ends the watch, and passes on what the watched function returned or raised.
local function leave(hook, mask, count, ...)
    debug.sethook(hook, mask, count)
    C.wn_interrupt(0)
    return ...
end

--- Calls pcall(fn) so that ^C ends it with an error object of code 'interrupt'.
-- @param fn function without arguments, interpreted (jit.off)
-- @return what pcall returns
function interrupt.pcall(fn)
    local hook, mask, count = debug.gethook()
    C.wn_interrupt(0)
    debug.sethook(look, '', EVERY)
    return leave(hook, mask, count, pcall(fn))
end

--- From now on SIGINT sets the flag instead of ending the process.
function interrupt.listen()
    binding.check(C.wn_signal_on(1))
end

--- SIGINT does again what it did before `listen`.
function interrupt.unlisten()
    binding.check(C.wn_signal_on(0))
end

--- Takes ^C as heard: what runs next is not stopped by it.
function interrupt.forget()
    C.wn_interrupt(0)
end

return interrupt
