--- Asking policies about residuals: the description that they get, the answers that they may give, and the guard under
-- which they record and read nothing.
--
-- policy/decide.lua chooses which policy is asked about which residual, and in which order.
-- @internal wane.policy.query
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local policy = require 'wane.policy'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C, check, iterate, raise = binding.C, binding.check, errors.iterate, errors.raise

local policy_query = {}

-- ---- the guard: no recording, no reading ----------------------------------------------------------------------
local guarded = { '__add', '__sub', '__mul', '__div', '__pow', '__unm', '__index' }

local before_guard

local function refuse()
    raise(nil, 'value', 'policy: a policy was asked for a decision and used a tensor; it must only look at the '
        .. 'residual it is given, not record or read')
end

-- Replaces a metamethod while a policy is asked; a coroutine that the policy yielded to keeps the usual one.
local function guard_of(name)
    return function(...)
        scoped.sync()
        if not before_guard then return tensor.Tensor[name](...) end
        refuse()
    end
end

scoped.register('policy_query', function(on)
    local Tensor = tensor.Tensor
    if on and not before_guard then
        before_guard = {}
        for _, name in ipairs(guarded) do
            before_guard[name] = Tensor[name]
            Tensor[name] = guard_of(name)
        end
        op.set_refusal(refuse)
        return false
    elseif not on and before_guard then
        for _, name in ipairs(guarded) do Tensor[name] = before_guard[name] end
        before_guard = nil
        op.set_refusal(nil)
    end
    return true
end)

-- ---- one residual -------------------------------------------------------------------------------------------------
local info = binding.new('struct wn_residual')

--- Returns the node of residual i, counted from 0.
function policy_query.node_of(program, i)
    check(C.wn_residual(program.handle, i, info))
    return info.node
end

--- Describes a residual to a policy.
-- @param program whose residual it is
-- @param node its node in the program's graph
-- @param i its number, counted from 0
function policy_query.describe(program, node, i)
    check(C.wn_residual(program.handle, i, info))
    local shape, types = {}, {}
    for k = 1, info.ndim do shape[k] = tonumber(info.dim[k - 1]) end
    for k = node.owners, #node.chain do types[#types + 1] = node.chain[k].info.type end
    return {
        op = binding.text(info.op), module = binding.text(info.module), path = binding.text(info.path) or '',
        name = binding.text(info.name), index = i + 1, block = info.block, bytes = tonumber(info.bytes), shape = shape,
        dtype = tensor.dtype_name[info.dtype], flops = info.flops, seconds = info.seconds, random = info.random ~= 0,
        boundary = info.boundary ~= 0, readers = info.readers, types = types, place = node.position,
        sign_only = C.wn_action_reason(program.handle, i, C.WN_DECISION_BITS)[0] == 0,
    }
end

local function where_of(r)
    return ("residual %d, %s '%s'"):format(r.index, r.op, r.path ~= '' and r.path or (r.name or ''))
end

--- Returns the number of a policy's decision about a residual, or nil.
-- @param p policy
-- @param r residual, as `describe` returns it
-- @raise 'value', naming the residual, for a policy that fails or whose answer is no decision
function policy_query.decision(p, r)
    local fine, decision = xpcall(p.ask, errors.handler, p, r)
    if not fine then
        if errors.is(decision) then errors.again(decision) end
        local e = errors.new('value', ('policy: the function failed when asked about %s: %s'):format(where_of(r),
            tostring(decision)))
        e.traceback = errors.traceback_of(decision)
        errors.again(e)
    end
    if decision == nil then return nil end
    return policy.check_decision(decision, 'policy: asked about ' .. where_of(r))
end
jit.off(policy_query.decision) -- compiled code would hold p.ask (program/accumulate.lua)

--- Returns whether a residual belongs to the module of a scope; all belong to scope 0.
function policy_query.owned_by(node, scope)
    if scope == 0 then return true end
    for k = node.owners, #node.chain do
        if node.chain[k].scope == scope then return true end
    end
    return false
end

--- Notes in `said` that an action was answered for residual i, and whether the action is possible.
function policy_query.note(said, program, i, decision, r)
    if decision <= C.WN_DECISION_RECOMPUTE then return end
    said[decision] = said[decision] or { count = 0 }
    local note, why = said[decision], binding.text(C.wn_action_reason(program.handle, i, decision))
    note.count, note.can = note.count + 1, note.can or why == ''
    if why ~= '' and not note.why then note.why = where_of(r) .. ' ' .. why end
end

--- Raises 'value' for an action that is possible for none of its residuals; plan:residuals() shows where one is not.
function policy_query.check(said)
    for decision, note in iterate(said) do
        if not note.can then
            raise(nil, 'value', "policy: '%s' does nothing here, none of the %d values it is said of can be treated "
                .. 'so: %s; answer save or recompute', policy.decision_name(decision), note.count, note.why)
        end
    end
end

--- Lists the residuals of a planned program: { node =, seen = the description that policies get }.
function policy_query.residuals(program, graph)
    local list = {}
    for i = 0, C.wn_count(program.handle, C.WN_COUNT_RESIDUALS) - 1 do
        local node = graph.by_index[policy_query.node_of(program, i)]
        list[i + 1] = { node = node, seen = policy_query.describe(program, node, i) }
    end
    return list
end

return policy_query
