--- Puts the parameters of optimizers under words, 'keep', 'slice' or 'shard', which say how ranks have them
-- (wane.dist.place). Before the first step every word can be tried, and taken back.
-- @internal wane.program.placing
local binding = require 'wane.ffi'
local ranks = require 'wane.program.ranks'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'
local op = require 'wane.tensor.op'

local C, check = binding.C, binding.check

--- Fields: `WORDS`, in the order in which those of equal seconds are preferred.
local placing = { WORDS = { 'slice', 'keep', 'shard' } }

-- Has ranks keep the states of a parameter in ranges of a cut that starts at part `start`; -1: whole.
local function cut(p, start)
    check(C.wn_dist_slice(p.id, start, binding.new 'int32_t[1]'))
end

--- Puts a parameter of an optimizer under a word, and makes its states anew where they change.
-- @param opt optimizer
-- @param k number of the parameter
-- @param p parameter
-- @param word 'slice', 'keep' or 'shard'
-- @param how WN_DIST_RANGE, or WN_DIST_TRIED where nothing runs before it is taken back
-- @raise 'value' for a word beside 'shard' where ranks have ranges of the value alone
function placing.put(opt, k, p, word, how)
    local _, _, start, is_sharded = tensor.range(p)
    local is_sliced = start ~= nil
    if is_sharded and word ~= 'shard' then check(C.wn_dist_shard(p.id, C.WN_DIST_WHOLE)) end
    if word == 'keep' and is_sliced then
        cut(p, -1)
        opt:remake(k)
    elseif word ~= 'keep' and not is_sliced then
        is_sliced = ranks.slice(p)
        opt:remake(k)
    end
    local is_cut = tensor.count(p._dims) >= ranks.STRIPE -- a smaller one belongs to one rank
    if word == 'shard' and is_sliced and is_cut then check(C.wn_dist_shard(p.id, how)) end
end

--- Returns why parameters of an optimizer cannot be put under words, as text; nil: they can.
-- @param opt optimizer
-- @param words { [number of a parameter] = word }; nil: any word, all parameters
function placing.why_not(opt, words)
    local count = opt:state_dict().count
    for k, p in ipairs(opt:parameters()) do
        local word, name = words and words[k], ('parameter %d, %s'):format(k, tensor.describe(p))
        if word or not words then
            if count[k] > 0 then
                return ('the optimizer has made %d steps of %s; place it before the first'):format(count[k], name)
            end
            if word ~= 'shard' and op.held(p) and tensor.is_sharded(p) then
                return ('each rank has a range of %s, alone, and keeps it; place it before its first value')
                    :format(name)
            end
            if tensor.own_grad(p) then return name .. ', has a gradient; call zero_grad() before' end
        end
    end
end

-- Returns how ranks have the parameters of optimizers.
local function noted_of(optimizers)
    local noted = { next_start = ranks.next_start }
    for i, opt in ipairs(optimizers) do
        noted[i] = {}
        for k, p in ipairs(opt:parameters()) do
            local _, _, start, is_sharded = tensor.range(p)
            noted[i][k] = { start = start, is_sharded = is_sharded }
        end
    end
    return noted
end

-- Puts them back to what was noted.
local function put_back(optimizers, noted)
    for i, opt in ipairs(optimizers) do
        for k, p in ipairs(opt:parameters()) do
            local to = noted[i][k]
            local _, _, start, is_sharded = tensor.range(p)
            if is_sharded and not to.is_sharded then check(C.wn_dist_shard(p.id, C.WN_DIST_WHOLE)) end
            if start ~= to.start then
                cut(p, to.start or -1)
                opt:remake(k)
            end
            if to.is_sharded then check(C.wn_dist_shard(p.id, C.WN_DIST_RANGE)) end
        end
    end
    ranks.next_start = noted.next_start
end

-- Puts all parameters of optimizers under a word.
local function put_all(optimizers, word)
    for _, opt in ipairs(optimizers) do
        for k, p in ipairs(opt:parameters()) do placing.put(opt, k, p, word, C.WN_DIST_TRIED) end
    end
end

--- Calls fn(word) for each of some words, with all parameters of optimizers under it, and puts them back.
-- @param optimizers list, of none of which placing.why_not says anything
-- @param fn function(word)
-- @param words list; nil: all of them
function placing.try(optimizers, fn, words)
    local noted = noted_of(optimizers)
    for _, word in ipairs(words or placing.WORDS) do
        scoped.always(function() put_back(optimizers, noted) end, function()
            put_all(optimizers, word)
            return fn(word)
        end)
    end
end

--- Returns the optimizers of the parts of a step, or nil and why their parameters can be put under no other word.
-- @param parts of sequence.plan
function placing.of(parts)
    local list, met = {}, {}
    for _, part in ipairs(parts) do
        local opt = part.request.optimizer
        if opt and not met[opt] then
            local why = placing.why_not(opt)
            if why then return nil, why end
            list[#list + 1], met[opt] = opt, true
        end
    end
    return list
end

--- Returns the optimizers of the parts of a step where ranks are several and any word can be tried; else nil.
-- @param parts of sequence.plan
function placing.optimizers(parts)
    local list = ranks.size > 1 and placing.of(parts) or {}
    return #list > 0 and list or nil
end

return placing
