--- ^C while a line runs.
--
-- SIGINT sets a flag in C. A running program polls the flag before its first effect; Lua code is stopped by a hook that
-- reads the flag every 1,000 instructions. The hook raises only in the user's own code, so that what the library sets
-- and restores stays consistent. The flag stays set until the prompt is back, so a pcall in a loop cannot swallow it.
-- LuaJIT does not call hooks in compiled traces, so chunks of the prompt stay interpreted.
-- @internal wane.repl.interrupt

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local on_interrupt = require 'wane.program.on_interrupt'

local C = binding.C

local interrupt = {}

local EVERY = 1000 -- instructions between two reads of the flag
local here = debug.getinfo(1, 'S').source:match '^(.*[/\\])repl[/\\]' or '@'

-- Tells whether the function at a level of the stack is the library's.
local function is_ours(level)
    local info = debug.getinfo(level, 'S')
    return info == nil or info.source:sub(1, #here) == here
end

local also -- function that the hook calls too, or nil

--- Makes the hook call a function too while a chunk runs, every 1,000 instructions of it. A notebook answers then.
-- @param fn function that cannot fail, or nil for none
function interrupt.each(fn)
    also = fn
end

-- Raises in the user's code once the flag is set; LuaJIT calls it as the hook.
local function look()
    if also then also() end
    if C.wn_interrupted() == 0 then return end
    debug.sethook(look, '', 1) -- at every instruction from here on, else a loop around a pcall would continue
    if is_ours(3) then return end -- level 3 is the function that was running; 1 and 2 are is_ours and this hook
    error(errors.new('interrupt', 'interrupted'), 0)
end

-- Restores the hook from before, clears the flag, and returns the results of the xpcall.
local function leave(hook, mask, count, ...)
    debug.sethook(hook, mask, count)
    C.wn_interrupt(0)
    return ...
end

--- Calls xpcall(fn, handler) so that ^C ends it with an error object of code 'interrupt', also one that came before.
-- @param fn function without arguments, not compiled (jit.off)
-- @param handler function(e) that returns the error
-- @return results of xpcall
function interrupt.guarded(fn, handler)
    local hook, mask, count = debug.gethook()
    debug.sethook(look, '', EVERY)
    return leave(hook, mask, count, xpcall(fn, handler))
end

--- Does what `guarded` does, and forgets a ^C that came before.
-- @param fn function without arguments, not compiled (jit.off)
-- @param handler function(e) that returns the error
-- @return results of xpcall
function interrupt.xpcall(fn, handler)
    C.wn_interrupt(0)
    return interrupt.guarded(fn, handler)
end

--- Makes SIGINT set the flag instead of ending the process, or gives it the effect that it had before.
interrupt.listen = on_interrupt.listen

return interrupt
