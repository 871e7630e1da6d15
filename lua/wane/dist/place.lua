--- Places parameters and their states on ranks: wane.dist.place.
-- @internal wane.dist.place
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local module = require 'wane.module'
local ranks = require 'wane.program.ranks'
local tensor = require 'wane.tensor'

local C, iterate, raise = binding.C, errors.iterate, errors.raise
local what = 'wane.dist.place'
local WORDS = { keep = true, slice = true, shard = true }

local function check_word(word)
    if not WORDS[word] then
        raise(nil, 'value', "%s: expected 'shard', 'slice', 'keep' or a table { [path] = word }, got %s%s", what,
            errors.describe(word), type(word) == 'string' and '; ' .. errors.near(word, WORDS) or '')
    end
    return word
end

-- Returns the paths that are given, the longest first, and the word of each.
local function paths_of(words)
    local list = {}
    for path, word in iterate(words) do
        if type(path) ~= 'string' then
            raise(nil, 'value', '%s: expected paths of parameters, got %s', what, errors.describe(path))
        end
        check_word(word)
        list[#list + 1] = path
    end
    table.sort(list, function(a, b) return #a > #b or #a == #b and a < b end)
    return list
end

local function is_under(name, path)
    return name == path or name:sub(1, #path + 1) == path .. '.'
end

-- Returns the word of each parameter of the optimizer that gets one, by its number.
local function words_of(model, opt, words)
    local names, chosen, met = {}, {}, {}
    for name, p in model:named_parameters() do names[p.id] = name end
    local paths = type(words) == 'table' and paths_of(words) or {}
    for k, p in ipairs(opt:parameters()) do
        local name = names[p.id]
        if not name then
            raise(nil, 'value', '%s: parameter %d of the optimizer, %s, is none of the model', what, k,
                tensor.describe(p))
        end
        if type(words) ~= 'table' then chosen[k] = words end
        for _, path in ipairs(paths) do
            local fits = is_under(name, path)
            met[path] = met[path] or fits
            if fits and not chosen[k] then chosen[k] = words[path] end
        end
    end
    for _, path in ipairs(paths) do
        if not met[path] then
            raise(nil, 'value', "%s: '%s' names no parameter of the optimizer; model:named_parameters() lists them",
                what, path)
        end
    end
    return chosen
end

-- Raises unless the states of parameter k, which has made `count` steps, may be made anew.
local function check_new(p, k, count)
    if count > 0 then
        raise(nil, 'value', '%s: the optimizer has made %d steps of parameter %d, %s; place it before the first', what,
            count, k, tensor.describe(p))
    end
    if tensor.own_grad(p) then
        raise(nil, 'value', '%s: parameter %d, %s, has a gradient; call zero_grad() before', what, k,
            tensor.describe(p))
    end
end

-- Returns one text for what is chosen, which must be equal on all ranks.
local function text_of(chosen, n)
    local letters = {}
    for k = 1, n do letters[k] = (chosen[k] or '--'):sub(2, 2) end
    return table.concat(letters)
end

local function place(model, opt, word)
    if not module.is(model) then
        raise(nil, 'value', '%s: expected a model, got %s', what, errors.describe(model))
    end
    if type(opt) ~= 'table' or tensor.is(opt) or not opt.set_progress then
        raise(nil, 'value', '%s: expected the optimizer of the model, got %s', what, errors.describe(opt))
    end
    if type(word) ~= 'table' or tensor.is(word) then check_word(word) end
    local chosen, count, n = words_of(model, opt, word), opt:state_dict().count, #opt:parameters()
    for k, p in ipairs(opt:parameters()) do
        if chosen[k] then check_new(p, k, count[k]) end
    end
    if ranks.size == 1 then return end
    local said = ('%s of %d parameters: '):format(what, n)
    ranks.call(said .. text_of(chosen, n), function() return nil, 0 end)
    for k, p in ipairs(opt:parameters()) do
        local is_sliced = tensor.range(p) ~= nil
        if chosen[k] == 'keep' and is_sliced then
            binding.check(C.wn_dist_slice(p.id, -1, binding.new 'int32_t[1]'))
            opt:remake(k)
        elseif chosen[k] and chosen[k] ~= 'keep' and not is_sliced then
            is_sliced = ranks.slice(p)
            opt:remake(k)
        end
        local is_cut = tensor.count(p._dims) >= ranks.STRIPE -- a smaller one belongs to one rank
        if chosen[k] == 'shard' and is_sliced and is_cut then
            binding.check(C.wn_dist_shard(p.id))
        end
    end
end

return place
