--- The one dynamic extent: set something, call, put it back, whatever happened.
--
-- `scoped(kind, value, fn, ...)` returns what fn returns. When fn fails, the setting is restored and the very
-- same error object goes on; the traceback of where it was raised is kept beside it (`scoped.traceback_of`).
-- Nothing else in Wane saves and restores ambient state.
--
-- A scope belongs to the coroutine that entered it. While that coroutine is suspended the setting does not hold, and it
-- holds again when the coroutine is resumed; one that is dropped leaves nothing behind. Nobody is told of a yield, so
-- the settings are brought in order by whoever comes next: `scoped.sync` before every run point and scope, and before
-- every op while a scope of a coroutine is open. Scopes of the main thread need none of this, for it cannot yield.
-- @internal wane.scoped

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C
local error, ipairs, next, pairs, table, type, xpcall = error, ipairs, next, pairs, table, type, xpcall
local running, status = coroutine.running, coroutine.status

local scoped = {}

local tracebacks = setmetatable({}, { __mode = 'k' })

local function remember(e)
    if type(e) ~= 'table' then
        scoped.traceback = debug.traceback(tostring(e), 2)
    elseif tracebacks[e] == nil then
        tracebacks[e] = e.traceback or debug.traceback('', 2)
    end
    return e
end

--- The handler of errors for who protects a call by itself; keeps the traceback and passes the object on.
scoped.handler = remember

--- Where an error that passed through here was raised, or nil.
-- @param e the error caught: an object, or a string
function scoped.traceback_of(e)
    if type(e) == 'table' then return tracebacks[e] end
    return scoped.traceback
end
-- kind -> function(value) that sets it and returns what was set before
local setters = {
    grad = function(on) return C.wn_grad_set(on) end,
    scope = function(id) return C.wn_scope_set(id) end,
    region = function(id) return C.wn_region_set(id) end,
    device = function(id) return C.wn_device_set(id) end,
    timing = function(on) return C.wn_timing(on) end,
    replay = function(on)
        local before = C.wn_debug_get 'replay'
        binding.check(C.wn_debug('replay', on))
        return before
    end,
}

--- Adds a kind. `set(value)` sets and returns the value before, which it must accept back.
function scoped.register(kind, set)
    setters[kind] = set
end

local policy_now
scoped.register('policy', function(p)
    local before = policy_now
    policy_now = p
    return before
end)

--- The policy of the innermost `scoped('policy', ...)`, or nil.
function scoped.policy()
    return policy_now
end

-- ---- scopes of coroutines --------------------------------------------------------------------------------------

local MAIN = {} -- stands for the main thread

local owners, kinds, values, befores, top = {}, {}, {}, {}, 0 -- scopes that hold, the innermost last; none of MAIN's
local parked = setmetatable({}, { __mode = 'k' }) -- coroutine -> its scopes that wait, outermost first: { kind, value }
local settled -- whom the scopes that hold were last brought in order for
local is_mixed = false -- whether they depend on more than who runs

--- Whether a coroutine has scopes that are open: who records, runs or enters a scope then calls `scoped.sync` before.
scoped.watch = { on = false }
local watch = scoped.watch
local set_guard = function() end -- tensor/op.lua's

--- Gives the function that sets what is called before every op, nil for none.
function scoped.guards(set)
    set_guard = set
end

local function running_now()
    local co, is_main = running()
    return co ~= nil and not is_main and co or MAIN
end

-- Whether a scope of `owner` holds while `co` runs: it is its own, or its owner waits for co to come back to it.
local function holds(owner, co)
    return owner == co or status(owner) == 'normal'
end

local function enter(owner, kind, value)
    top = top + 1
    owners[top], kinds[top], values[top], befores[top] = owner, kind, value, setters[kind](value)
end

local function exit()
    local k = top
    top = k - 1
    local kind, before = kinds[k], befores[k]
    owners[k], kinds[k], values[k], befores[k] = nil, nil, nil, nil
    setters[kind](before)
end

-- Notes what follows from the scopes that are open now.
local function changed(co)
    settled, is_mixed = co, next(parked) ~= nil
    for k = 1, top do is_mixed = is_mixed or owners[k] ~= co end
    local on = top > 0 or is_mixed
    if on ~= watch.on then
        watch.on = on
        set_guard(on and scoped.sync or nil)
    end
end

-- Leaves all scopes from number `first` on; those that hold are entered again, the others wait for their coroutine.
local function park(first, co)
    local open = {}
    for k = first, top do open[#open + 1] = { owner = owners[k], kind = kinds[k], value = values[k] } end
    for _ = 1, #open do exit() end
    for _, scope in ipairs(open) do
        local owner = scope.owner
        if holds(owner, co) then
            enter(owner, scope.kind, scope.value)
        elseif status(owner) ~= 'dead' then
            parked[owner] = parked[owner] or {}
            table.insert(parked[owner], { kind = scope.kind, value = scope.value })
        end
    end
end

local function resume(owner)
    local list = parked[owner]
    parked[owner] = nil
    for _, scope in ipairs(list) do enter(owner, scope.kind, scope.value) end
end

local function settle(co)
    for k = 1, top do
        if not holds(owners[k], co) then
            park(k, co)
            break
        end
    end
    local back = {}
    for owner in pairs(parked) do
        if status(owner) == 'dead' then parked[owner] = nil
        elseif owner ~= co and holds(owner, co) then back[#back + 1] = owner end
    end
    for _, owner in ipairs(back) do resume(owner) end
    if parked[co] then resume(co) end
    changed(co)
end

--- Makes the scopes hold that belong to the coroutine that runs and to those that wait for it, and no others.
function scoped.sync()
    if not watch.on then return end
    local co = running_now()
    if co ~= settled or is_mixed then settle(co) end
end
local sync = scoped.sync

-- ---- the extent ---------------------------------------------------------------------------------------------------

local function leave(set, before, ok, ...)
    sync()
    set(before)
    if not ok then error((...), 0) end
    return ...
end

local function leave_owned(co, ok, ...)
    sync()
    exit()
    changed(co)
    if not ok then error((...), 0) end
    return ...
end

local function run(_, kind, value, fn, ...)
    local set = setters[kind]
    if set == nil then
        errors.raise(nil, 'internal', "scoped: unknown kind '%s'; %s", tostring(kind), errors.near(kind, setters))
    end
    sync()
    local co = running_now()
    if co == MAIN then return leave(set, set(value), xpcall(fn, remember, ...)) end
    enter(co, kind, value)
    changed(co)
    return leave_owned(co, xpcall(fn, remember, ...))
end

return setmetatable(scoped, { __call = run })
