--- ^C in a script: asks the run under way to stop before it changes anything, instead of ending the process. SIGTERM
-- and SIGUSR1 do so too inside of wane.on_interrupt: schedulers send them before the time of a job is over.
-- @module wane.program.on_interrupt

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C

local on_interrupt = {}

local prompts, calls = 0, 0 -- who wants signals to set the flag: prompts, and calls of wane.on_interrupt

local function hear()
    binding.check(C.wn_signal_on(calls > 0 and C.WN_SIGNAL_ALL or prompts > 0 and C.WN_SIGNAL_INT or C.WN_SIGNAL_NONE))
end

-- Begins a call (1) or ends one (-1).
local function count(by)
    calls = calls + by
    hear()
end

--- Makes SIGINT set the flag of the library until as many calls took it back.
-- @within Internal
-- @param on true, or false: takes one such call back
function on_interrupt.listen(on)
    prompts = prompts + (on and 1 or -1)
    hear()
end

-- Ends a call: the handler answers for an error that a signal raised, and a further one does nothing meanwhile. On
-- several ranks it may come after that of another rank has stopped all of them.
local function leave(handler, fine, ...)
    local why = ...
    if fine or not (errors.is(why) and why.code == 'interrupt') then
        C.wn_interrupt(0)
        count(-1)
        if not fine then errors.again(why) end
        return ...
    end
    binding.check(C.wn_signal_on(C.WN_SIGNAL_IGNORED))
    C.wn_interrupt(0) -- behind the line before, or a signal between the two would stop the handler
    C.wn_counter_back()
    local saved, failure = errors.pcall(handler, why)
    count(-1)
    C.wn_interrupt(0)
    if not saved then errors.again(failure) end
    return failure
end

--- Calls fn(...) and, where ^C, SIGTERM or SIGUSR1 ends it, handler(error), which saves, for instance. A run that the
-- signal meets stops before it changes a parameter, so that the model is as the last whole step left it, and so are the
-- random numbers; Lua code between two runs goes on to the next one. On several ranks a signal to one of them stops all
-- in the same step.
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
    count(1)
    return leave(handler, errors.pcall(fn, ...))
end

return on_interrupt
