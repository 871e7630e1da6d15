--- Asking policies about residuals: what they are given, what they may answer, and that they only look.
-- Who is asked about which residual, and in what order, is policy/decide.lua's to know.
-- @internal wane.policy.query
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local policy = require 'wane.policy'
local tensor = require 'wane.tensor'
local within = require 'wane.scoped'

local C, check, raise = binding.C, binding.check, errors.raise

local asking = {}

-- ---- nothing is recorded or read while a policy is asked ------------------------------------------------------
local guarded = { '__add', '__sub', '__mul', '__div', '__pow', '__unm', '__index' }

local before_guard

local function refuse()
    raise(nil, 'value', 'policy: a policy was asked for a word and used a tensor; it must only look at the '
        .. 'residual it is given, not record or read')
end

-- Replaces a metamethod while a policy is asked; a coroutine that the policy yielded to keeps the usual one.
local function guard_of(name)
    return function(...)
        within.sync()
        if not before_guard then return tensor.Tensor[name](...) end
        refuse()
    end
end

within.register('policy_query', function(on)
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

--- The node of a residual, its number counted from 0.
function asking.node_of(program, i)
    check(C.wn_residual(program.handle, i, info))
    return info.node
end

--- Describes a residual to a policy.
-- @param program whose residual it is
-- @param node its node in the program's graph
-- @param i its number, counted from 0
function asking.describe(program, node, i)
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

--- A policy's word about a residual, or nil.
-- Errors: 'value' for a policy that fails or answers what is no word; both name the residual.
function asking.word(p, r)
    local fine, word = pcall(p.ask, p, r)
    if not fine then
        if errors.is(word) then error(word, 0) end
        raise(nil, 'value', 'policy: the function failed when asked about %s: %s', where_of(r), tostring(word))
    end
    if word == nil then return nil end
    return policy.check_word(word, 'policy: asked about ' .. where_of(r))
end

--- Whether a residual belongs to the module of a scope (0: to all).
function asking.owned_by(node, scope)
    if scope == 0 then return true end
    for k = node.owners, #node.chain do
        if node.chain[k].scope == scope then return true end
    end
    return false
end

--- Notes in `said` that an action was asked for, and whether it can be done.
function asking.note(said, program, i, word, r)
    if word <= C.WN_DECISION_RECOMPUTE then return end
    said[word] = said[word] or { count = 0 }
    local note, why = said[word], binding.text(C.wn_action_reason(program.handle, i, word))
    note.count, note.can = note.count + 1, note.can or why == ''
    if why ~= '' and not note.why then note.why = where_of(r) .. ' ' .. why end
end

--- A word that does nothing at all is a mistake; where it does nothing here and there, plan:residuals() says so.
function asking.check(said)
    for word, note in pairs(said) do
        if not note.can then
            raise(nil, 'value', "policy: '%s' does nothing here, none of the %d values it is said of can be treated "
                .. 'so: %s; answer save or recompute', policy.word(word), note.count, note.why)
        end
    end
end

--- Lists what policies are asked about in a planned program: { node =, seen = what a policy is given }.
function asking.residuals(program, graph)
    local list = {}
    for i = 0, C.wn_residual_count(program.handle) - 1 do
        local node = graph.by_index[asking.node_of(program, i)]
        list[i + 1] = { node = node, seen = asking.describe(program, node, i) }
    end
    return list
end

return asking
