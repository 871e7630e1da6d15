--- Decisions: the words that a policy may answer, and the library's numbers of them.
-- @internal wane.policy.decisions
local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C, iterate, raise = binding.C, errors.iterate, errors.raise

local decisions = {}

--- Numbers of decisions by word.
decisions.words = {
    save = C.WN_DECISION_SAVE, recompute = C.WN_DECISION_RECOMPUTE,
    offload = C.WN_DECISION_OFFLOAD,
    ['offload:disk'] = C.WN_DECISION_OFFLOAD_DISK, ['offload:host'] = C.WN_DECISION_OFFLOAD_HOST,
    ['compress:bf16'] = C.WN_DECISION_BF16, ['compress:int8'] = C.WN_DECISION_INT8,
    ['compress:bits'] = C.WN_DECISION_BITS,
}

local word_of, built = {}, {}
for word, number in iterate(decisions.words) do
    word_of[number] = word
    built[#built + 1] = word
end
table.sort(built)

--- All words, in alphabetical order.
decisions.built = built

--- Returns the word of a number, or nil for 0.
function decisions.word(number)
    return word_of[number]
end

--- Returns the number of a word; raises 'value' for anything else. `where` opens the message.
function decisions.check_word(word, where)
    local number = decisions.words[word]
    if number == nil then
        raise(nil, 'value', "%s: the answer %s is not a word; %s", where, errors.describe(word),
            errors.near(word, built))
    end
    return number
end

--- Functions that return the list of names by which the policies by type, op, name or path know a residual.
decisions.names_of = {
    types = function(r) return r.types end, ops = function(r) return { r.op } end,
    names = function(r) return { r.name } end, paths = function(r) return { r.path } end,
}

return decisions
