--- ^C in a script: asks the run under way to stop before it changes anything, instead of ending the process.
-- @module wane.program.on_interrupt

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C

local on_interrupt = {}

local listeners = 0 -- who wants SIGINT to set the flag: prompts, and calls of wane.on_interrupt

--- Makes SIGINT set the flag of the library until as many calls took it back.
-- @within Internal
-- @param on true, or false: takes one such call back
function on_interrupt.listen(on)
    listeners = listeners + (on and 1 or -1)
    binding.check(C.wn_signal_on(listeners > 0 and 1 or 0))
end

-- Ends a call: the handler answers for an error that ^C raised, and a second ^C does nothing meanwhile.
local function leave(handler, fine, ...)
    C.wn_interrupt(0)
    local why = ...
    if fine or not (errors.is(why) and why.code == 'interrupt') then
        on_interrupt.listen(false)
        if not fine then errors.again(why) end
        return ...
    end
    binding.check(C.wn_signal_on(2))
    C.wn_counter_back()
    local saved, failure = errors.pcall(handler, why)
    on_interrupt.listen(false)
    C.wn_interrupt(0)
    if not saved then errors.again(failure) end
    return failure
end

--- Calls fn(...) and, where ^C ends it, handler(error), which saves, for instance. A run that ^C meets stops before it
-- changes a parameter, so that the model is as the last whole step left it, and so are the random numbers; Lua code
-- between two runs goes on to the next one.
-- @function wane.on_interrupt
-- @param handler function(error); its result is that of the call then
-- @param fn function, usually with the loop over steps
-- @param ... arguments of fn
-- @return the results of fn, or that of handler
-- @raise 'value' unless both can be called; what fn raises besides
-- @usage
-- local function save() print 'saving' return 'stopped' end
-- print(wane.on_interrupt(save, function(steps)
--     for _ = 1, steps do opt:step(nn.cross_entropy(model(x), y)) end
--     return 'done'
-- end, 3)) --> done
function on_interrupt.call(handler, fn, ...)
    for name, f in pairs { handler = handler or false, fn = fn or false } do
        if not errors.is_callable(f) then
            errors.raise(nil, 'value', 'wane.on_interrupt: %s must be a function, got %s; write '
                .. 'wane.on_interrupt(save, train)', name, errors.describe(f or nil))
        end
    end
    C.wn_interrupt(0)
    on_interrupt.listen(true)
    return leave(handler, errors.pcall(fn, ...))
end

return on_interrupt
