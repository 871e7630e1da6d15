--- Finds the programs that a function runs, without running them: one for each of its run points.
--
-- A step may be one run point (`opt:step(loss)`, a loss that is returned) or several (`opt:zero_grad()`,
-- `loss:backward()`, `opt:step()`). Each program is opened in the state that those before it leave: gradients exist or
-- were dropped, states have values (runtime/program/rehearse.h). Afterwards everything is as it was before. Such a step
-- takes the maximum over its programs, each with the bytes that the others hold beside it.
-- @internal wane.program.rehearse
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local plan_kinds = require('wane.program').kinds
local program = require 'wane.program'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise
local tonumber = tonumber

local rehearse = {}

-- Fills `beside` of the parts: the bytes that the other programs hold beside each.
local function beside_of(parts)
    local handles = {}
    for i, part in ipairs(parts) do handles[i] = part.program.handle end
    local list = binding.list('struct wn_beside', #parts)
    check(C.wn_beside(#parts, binding.handles(#parts, handles), list))
    for i, part in ipairs(parts) do
        local b, kinds = list[i - 1], {}
        for kind = 0, #plan_kinds do kinds[plan_kinds[kind]] = tonumber(b.kinds[kind]) end
        part.beside = { live = tonumber(b.live), reserved = tonumber(b.reserved),
            first_live = tonumber(b.first_live), first_reserved = tonumber(b.first_reserved), kinds = kinds }
    end
end

-- Makes the request of a function without run points, from the loss that it returned.
local function request_for(result, what, since)
    if not tensor.is(result) then
        raise(nil, 'value', '%s: the function must return the loss, or call backward or step; it returned %s', what,
            errors.describe(result))
    end
    local needs = tensor.info(result).needs_grad ~= 0
    return { mode = needs and 'backward' or 'eval', roots = { result }, since = since }
end

-- Calls fn with its run points captured. Returns the parts, the result of fn, and the place in the order of recording.
local function captured(fn, what, prepare, also, ...)
    if type(fn) ~= 'function' then raise(nil, 'value', '%s: expected a function, got %s', what, errors.describe(fn)) end
    local parts, since = {}, C.wn_serial()
    local function add(request)
        request.since = since
        local p = program.open(prepare(request))
        local part = { program = p, request = request, also = also and also(request, p) }
        if #parts == 1 then parts[1].first = parts[1].first or parts[1].program:first() end
        if #parts > 0 or request.mode ~= 'step' then part.first = p:first() end
        parts[#parts + 1] = part
        check(C.wn_rehearse_run(p.handle))
    end
    local ok, result = errors.pcall(program.planning, function(...)
        local result = fn(...)
        if #parts > 1 then beside_of(parts) end
        return result
    end, add, ...)
    if not ok then
        for _, part in ipairs(parts) do part.program:close() end
        errors.again(result)
    end
    return parts, result, since
end

--- Opens the programs that a function would run. Nothing runs; gradients and states are as before when it returns.
-- @param fn function(...)
-- @param what opens messages
-- @param prepare function(request) -> the request to open, with a policy or a target
-- @param also function(request, open Program) -> list of further programs, opened in the same state (optional)
-- @return list of parts in the order in which they would run: { program = open Program, request = as it was captured,
-- also = }; where there are several, also beside = { live, reserved, first_live, first_reserved = bytes that the other
-- programs hold beside it, now and the first time, kinds }, first = as of Program:first
function rehearse.open(fn, what, prepare, also, ...)
    local parts, result, since = captured(fn, what, prepare, also, ...)
    if #parts == 0 then
        local request = request_for(result, what, since)
        local p = program.open(prepare(request))
        parts[1] = { program = p, request = request, also = also and also(request, p) }
    end
    return parts
end

local function as_it_is(request)
    return request
end

-- Returns the request of a function that is one run point or returns a loss; for others nil and the parts.
local function single(fn, what, ...)
    local parts, result, since = captured(fn, what, as_it_is, nil, ...)
    for _, part in ipairs(parts) do part.program:close() end
    if #parts > 1 then return nil, parts end
    return #parts == 1 and parts[1].request or request_for(result, what, since)
end

--- Returns the request of a function that is one run point or returns a loss; nil for a function of several.
function rehearse.one_of(fn, what)
    return (single(fn, what))
end

--- Returns the request of a function that is one run point, or returns a loss.
-- @return request; request.since: the place in the order of recording where fn was called
-- @raise 'unsupported' with the modes of a function of several run points
function rehearse.only(fn, what, ...)
    local request, parts = single(fn, what, ...)
    if request then return request end
    raise(nil, 'unsupported', '%s: the function runs %d programs (%s); here it must be one: return the loss, or use '
        .. 'opt:step(loss), which has the same bits', what, #parts, rehearse.modes(parts))
end

--- Returns a copy of a request under a policy and for a target. Updates and assignments choose nothing, so they keep
-- their policy.
function rehearse.with(request, policy, target)
    local copy = {}
    for key, value in pairs(request) do copy[key] = value end
    local chooses = request.mode ~= 'update' and request.mode ~= 'assign'
    if policy ~= nil and chooses then copy.policy = policy end
    copy.target = target
    return copy
end

--- Returns the modes of all parts as text: 'backward, update'.
function rehearse.modes(parts)
    local words = {}
    for i, part in ipairs(parts) do words[i] = part.request.mode end
    return table.concat(words, ', ')
end

-- ---- bytes of parts -----------------------------------------------------------------------------------------

--- Returns whether a policy chooses anything in a part: updates and assignments keep nothing for later.
function rehearse.chooses(part)
    return part.request.mode == 'backward' or part.request.mode == 'step'
end

--- Returns the bytes that making the missing states of a part takes before its first run, with the bytes that are held
-- beside it; 0 where none is missing.
function rehearse.first_reserved(part)
    local first = part.first
    return first and first.cells > 0 and first.reserved + part.beside.first_reserved or 0
end

--- Returns the bytes that a part needs when its plan reserves `reserved` bytes.
function rehearse.needed(part, reserved)
    local first = part.first
    return math.max(reserved + part.beside.reserved + (first and first.beside or 0), rehearse.first_reserved(part))
end

--- Raises 'budget', with the bytes that the step takes, when programs that each keep a budget exceed it together.
-- @param programs Programs in the order in which they ran, not closed
-- @param limit bytes
-- @param what opens messages
function rehearse.check_budget(programs, limit, what)
    local handles, needs = {}, 0
    for i, p in ipairs(programs) do handles[i] = p.handle end
    local list = binding.list('struct wn_beside', math.max(#programs, 1))
    check(C.wn_beside(#programs, binding.handles(#programs, handles), list))
    for i, p in ipairs(programs) do
        needs = math.max(needs, p:reserved() + tonumber(list[i - 1].reserved))
    end
    if needs <= limit then return end
    error(errors.new('budget', ('%s: a budget of %s bytes holds for each of the %d programs of the step, but what they '
        .. 'hold beside each other makes it %s bytes (%s); use opt:step(loss), or the policy of wane.plan(step, '
        .. '{budget = %.0f})'):format(what, bytes.exact(limit), #programs, bytes.exact(needs), bytes.text(needs),
        limit), { budget = limit, needs = needs }), 0)
end

return rehearse
