--- The one dynamic extent: set something, call, put it back, whatever happened.
--
-- `within(kind, value, fn, ...)` returns what fn returns. When fn fails, the setting is restored and the very
-- same error object goes on; the traceback of where it was raised is kept beside it (`within.traceback_of`).
-- Nothing else in Wane saves and restores ambient state.
-- @module wane.within

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C
local error, type, xpcall = error, type, xpcall

local within = {}

local tracebacks = setmetatable({}, { __mode = 'k' })

local function remember(e)
    if type(e) ~= 'table' then
        within.traceback = debug.traceback(tostring(e), 2)
    elseif tracebacks[e] == nil then
        tracebacks[e] = e.traceback or debug.traceback('', 2)
    end
    return e
end

--- The handler of errors for who protects a call by itself; keeps the traceback and passes the object on.
within.handler = remember

--- Where an error that passed through here was raised, or nil.
-- @param e the error caught: an object, or a string
function within.traceback_of(e)
    if type(e) == 'table' then return tracebacks[e] end
    return within.traceback
end
-- kind -> function(value) that sets it and returns what was set before
local setters = {
    grad = function(on) return C.wn_grad_set(on) end,
    scope = function(id) return C.wn_scope_set(id) end,
    region = function(id) return C.wn_region_set(id) end,
    device = function(id) return C.wn_device_set(id) end,
}

--- Adds a kind. `set(value)` sets and returns the value before, which it must accept back.
function within.register(kind, set)
    setters[kind] = set
end

local policy_now
within.register('policy', function(p)
    local before = policy_now
    policy_now = p
    return before
end)

--- The policy of the innermost `within('policy', ...)`, or nil.
function within.policy()
    return policy_now
end

local function leave(set, before, ok, ...)
    set(before)
    if not ok then error((...), 0) end
    return ...
end

local function run(_, kind, value, fn, ...)
    local set = setters[kind]
    if set == nil then
        errors.raise(nil, 'internal', "within: unknown kind '%s'; %s", tostring(kind), errors.near(kind, setters))
    end
    local before = set(value)
    return leave(set, before, xpcall(fn, remember, ...))
end

return setmetatable(within, { __call = run })
