--- Decisions: what a policy may answer, and the numbers of them in the library.
-- @internal wane.policy.decisions
local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C, iterate, raise = binding.C, errors.iterate, errors.raise

local decisions = {}

--- Numbers of decisions by name.
decisions.numbers = {
    save = C.WN_DECISION_SAVE, recompute = C.WN_DECISION_RECOMPUTE,
    offload = C.WN_DECISION_OFFLOAD,
    ['offload:disk'] = C.WN_DECISION_OFFLOAD_DISK, ['offload:host'] = C.WN_DECISION_OFFLOAD_HOST,
    ['compress:bf16'] = C.WN_DECISION_BF16, ['compress:int8'] = C.WN_DECISION_INT8,
    ['compress:bits'] = C.WN_DECISION_BITS,
}

local name_of, built = {}, {}
for decision, number in iterate(decisions.numbers) do
    name_of[number] = decision
    built[#built + 1] = decision
end
table.sort(built)

--- All names, in alphabetical order.
decisions.built = built

--- Returns the name of a number, or nil for 0.
function decisions.name(number)
    return name_of[number]
end

--- Returns the number of a name; raises 'value' for anything else. `where` opens the message.
function decisions.check(decision, where)
    local number = decisions.numbers[decision]
    if number == nil then
        raise(nil, 'value', "%s: the answer %s is not a decision; %s", where, errors.describe(decision),
            errors.near(decision, built))
    end
    return number
end

--- Functions that return the list of names by which the policies by type, op, name or path know a residual.
decisions.names_of = {
    types = function(r) return r.types end, ops = function(r) return { r.op } end,
    names = function(r) return { r.name } end, paths = function(r) return { r.path } end,
}

return decisions
