--- Scoped settings: sets a setting, calls a function, and restores the setting whatever happens.
--
-- `scoped(kind, value, fn, ...)` returns what fn returns. When fn fails, the setting is restored and the same error
-- object is raised again; the traceback of its origin is kept beside it (`errors.traceback_of`). Nothing else in Wane
-- saves and restores ambient state.
--
-- A scope belongs to the coroutine that entered it. While that coroutine is suspended the setting does not hold, and it
-- holds again when the coroutine is resumed; a coroutine that is dropped leaves nothing behind. No yield is reported,
-- so the settings are brought in order afterwards: `scoped.sync` is called before every run point and every scope, and
-- before every op while a scope of a coroutine is open. Scopes of the main thread need none of this, because it cannot
-- yield.
-- @internal wane.scoped

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C
local ipairs, next, table, xpcall = ipairs, next, table, xpcall
local again, handler = errors.again, errors.handler
local running, status = coroutine.running, coroutine.status

local scoped = {}

--- Returns the traceback of the origin of an error that passed through here, or nil.
-- @param e error that was caught: an object, or a string
scoped.traceback_of = errors.traceback_of

local here = C.wn_here()

-- Returns the setter of a field of the place where recording stands.
local function place(field)
    return function(value)
        local before = here[field]
        here[field] = value
        return before
    end
end

-- Kind -> function(value) that sets the setting and returns its value before.
local setters = {
    grad = place 'grad', scope = place 'scope', region = place 'region',
    device = function(id) return C.wn_device_set(id) end,
    timing = function(on) return C.wn_timing(on) end,
    replay = function(on)
        local before = C.wn_debug_get 'replay'
        binding.check(C.wn_debug('replay', on))
        return before
    end,
}

--- Adds a kind of setting.
-- @param kind name
-- @param set function(value) that sets the value and returns the one before, which it accepts back
function scoped.register(kind, set)
    setters[kind] = set
end

-- Adds a kind whose value is held here. Returns a function that returns it, nil outside of all scopes.
local function held(kind)
    local now
    scoped.register(kind, function(value)
        local before = now
        now = value
        return before
    end)
    return function() return now end
end

--- Returns the policy of the innermost `scoped('policy', ...)`, or nil.
-- @function scoped.policy
scoped.policy = held 'policy'

--- Returns on how many ranks a step calls its function for micro-batches, while it does and there are several; or nil.
-- @function scoped.micro
scoped.micro = held 'micro'

-- ---- scopes of coroutines --------------------------------------------------------------------------------------

local MAIN = {} -- stands for the main thread

-- Scopes that hold, the innermost last; scopes of the main thread are not among them.
local owners, kinds, values, befores, top = {}, {}, {}, {}, 0
-- Coroutine -> its scopes that wait, outermost first: list of { kind =, value = }.
local parked = setmetatable({}, { __mode = 'k' })
local settled -- coroutine for which the scopes that hold were brought in order last
local is_mixed = false -- whether the scopes that hold depend on more than the running coroutine

--- Holds whether coroutines have open scopes (`on`). If so, `scoped.sync` runs before an op is recorded, a program runs
-- or a scope is entered.
scoped.watch = { on = false }
local watch = scoped.watch
local set_guard = function() end -- set by scoped.guards

--- Sets how `scoped.sync` is made the guard of ops.
-- @param set function(guard) that makes a function run before every op, or none for nil
function scoped.guards(set)
    set_guard = set
end

-- Returns the running coroutine, MAIN for the main thread.
local function running_now()
    local co, is_main = running()
    return co ~= nil and not is_main and co or MAIN
end

-- Tells whether a scope of `owner` holds while `co` runs: the scope is its own, or its owner waits for co to return.
local function holds(owner, co)
    return owner == co or status(owner) == 'normal'
end

-- Enters a scope.
local function enter(owner, kind, value)
    top = top + 1
    owners[top], kinds[top], values[top], befores[top] = owner, kind, value, setters[kind](value)
end

-- Leaves the innermost scope.
local function exit()
    local k = top
    top = k - 1
    local kind, before = kinds[k], befores[k]
    owners[k], kinds[k], values[k], befores[k] = nil, nil, nil, nil
    setters[kind](before)
end

-- Notes for which coroutine the scopes hold, and turns the guard of ops on or off.
local function changed(co)
    settled, is_mixed = co, next(parked) ~= nil
    for k = 1, top do is_mixed = is_mixed or owners[k] ~= co end
    local on = top > 0 or is_mixed
    if on ~= watch.on then
        watch.on = on
        set_guard(on and scoped.sync or nil)
    end
end

-- Leaves all scopes from number `first` on. Those that hold for `co` are entered again, the others wait for their
-- coroutine.
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

-- Enters the waiting scopes of a coroutine again.
local function resume(owner)
    local list = parked[owner]
    parked[owner] = nil
    for _, scope in ipairs(list) do enter(owner, scope.kind, scope.value) end
end

-- Brings the scopes in order for the coroutine that runs, `co`.
local function settle(co)
    for k = 1, top do
        if not holds(owners[k], co) then
            park(k, co)
            break
        end
    end
    local back = {}
    for owner in errors.iterate(parked) do
        if status(owner) == 'dead' then parked[owner] = nil
        elseif owner ~= co and holds(owner, co) then back[#back + 1] = owner end
    end
    for _, owner in ipairs(back) do resume(owner) end
    if parked[co] then resume(co) end
    changed(co)
end

--- Makes the scopes hold that belong to the running coroutine and to coroutines that wait for it, and no others.
function scoped.sync()
    if not watch.on then return end
    local co = running_now()
    if co ~= settled or is_mixed then settle(co) end
end
local sync = scoped.sync

-- ---- the extent ---------------------------------------------------------------------------------------------------

-- Restores a setting of the main thread after fn, and returns or raises what fn did.
local function leave(set, before, ok, ...)
    sync()
    set(before)
    if not ok then again((...)) end
    return ...
end

-- Leaves the scope of a coroutine after fn, and returns or raises what fn did.
local function leave_owned(co, ok, ...)
    sync()
    exit()
    changed(co)
    if not ok then again((...)) end
    return ...
end

-- Implements scoped(kind, value, fn, ...).
local function run(_, kind, value, fn, ...)
    local set = setters[kind]
    if set == nil then
        errors.raise(nil, 'internal', "scoped: unknown kind '%s'; %s", tostring(kind), errors.near(kind, setters))
    end
    sync()
    local co = running_now()
    if co == MAIN then return leave(set, set(value), xpcall(fn, handler, ...)) end
    enter(co, kind, value)
    changed(co)
    return leave_owned(co, xpcall(fn, handler, ...))
end

-- Calls after(), and returns or raises what fn did.
local function leave_always(after, ok, ...)
    after()
    if not ok then again((...)) end
    return ...
end

--- Calls fn(...), then after(), whether fn raised or not.
-- @return what fn returns
function scoped.always(after, fn, ...)
    return leave_always(after, errors.pcall(fn, ...))
end

return setmetatable(scoped, { __call = run })
