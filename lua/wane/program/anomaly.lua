--- Stops a run at the first value that is not finite.
--
-- While it is on, every result of an application is checked before the next one starts, and the run ends with an error
-- that names the op, the module's path, the line of the script that recorded it and the phase (forward, recompute,
-- backward, update). Lines are recorded from then on (wane.lines). The bits of a run that is not stopped are the same.
-- After an anomaly in the forward or the backward the state is as before: opt:step(loss) computes all gradients once
-- before it begins, and then again; gradients that a backward had begun to add to are dropped, and the error says so.
-- (After torch.autograd.detect_anomaly, which looks for NaN in the backward alone.)
--
-- Measured: on / off, a step in three lines takes 2.2 and 2.5 times as long, opt:step(loss) 3.7 and 4.9 times (6 GPT
-- blocks of d 192, and 16 Linear 96 with GELU and 2048 rows; AdamW, 2 threads beside other work, in turns).
-- @module wane.program.anomaly

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'

local C = binding.C
local WHAT = { [false] = 0, [true] = 1, nan = 2 }
local lines_before -- whether wane.lines was on when anomaly was switched on

local function set(what)
    local before = C.wn_anomaly(what)
    if before == what then return before end
    if before == 0 then lines_before = op.lines(true) end
    if what == 0 then op.lines(lines_before) end
    return before
end

scoped.register('anomaly', set)

local words = { [0] = false, true, 'nan' }

--- Switches the check on or off, or on for one call.
-- @function wane.anomaly
-- @param on true: stops at NaN and infinities; 'nan': at NaN alone, where infinities are meant (masks of -inf); false:
-- off
-- @param fn function or nil; with it, the check is on while fn(...) and its run points run; without it, from now on
-- @param ... arguments of fn
-- @return the results of fn; without fn, the setting before
-- @raise 'anomaly' at a run point, with `op`, `path`, `module`, `line`, `phase`, `count`, `elements`, `first` (from 1)
-- and `value`; 'value' for anything else as `on`
-- @usage
-- wane.anomaly(true, function() loss:backward() end)
-- local ok, why = pcall(wane.anomaly, true, function() return (x - x):log():sum():item() end)
-- print(ok, why.code, why.phase) --> false	anomaly	forward
local function anomaly(on, fn, ...)
    local what = WHAT[on]
    if what == nil then
        errors.raise(nil, 'value', "wane.anomaly: expected true, false or 'nan', got %s", errors.describe(on))
    end
    if fn == nil then return words[set(what)] end
    if type(fn) ~= 'function' then
        errors.raise(nil, 'value', 'wane.anomaly: expected a function, got %s', errors.describe(fn))
    end
    return scoped('anomaly', what, fn, ...)
end

return anomaly
