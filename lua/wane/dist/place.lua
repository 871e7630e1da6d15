--- Places parameters and their states on ranks: wane.dist.place.
-- @internal wane.dist.place
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local frontier = require 'wane.plan.budget.frontier'
local module = require 'wane.module'
local placing = require 'wane.program.placing'
local ranks = require 'wane.program.ranks'
local step = require 'wane.plan.step'
local tensor = require 'wane.tensor'

local C, iterate, raise = binding.C, errors.iterate, errors.raise
local what = 'wane.dist.place'
local IS_WORD = {}
for _, word in ipairs(placing.WORDS) do IS_WORD[word] = true end

local function check_word(word)
    if not IS_WORD[word] then
        raise(nil, 'value', "%s: expected 'shard', 'slice', 'keep', a table { [path] = word } or { budget =, step = }, "
            .. 'got %s%s', what, errors.describe(word),
            type(word) == 'string' and '; ' .. errors.near(word, IS_WORD) or '')
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

-- Raises unless parameters of an optimizer may be put under words, and their states be made anew. words: nil: any word.
local function check_new(opt, words)
    local why = placing.why_not(opt, words)
    if why then raise(nil, 'value', '%s: %s', what, why) end
end

-- Returns one text for what is chosen, which must be equal on all ranks.
local function text_of(chosen, n)
    local letters = {}
    for k = 1, n do letters[k] = (chosen[k] or '--'):sub(2, 2) end
    return table.concat(letters)
end

-- ---- choosing a word -----------------------------------------------------------------------------------------------

-- Plans the step under a word on all ranks. Returns this rank's plan, or nil, the seconds of the slowest rank, or nil
-- where some rank has no plan, and the least bytes of the rank that needs most, and which one that is.
local function plan_under(word, given, limit)
    local found, all = { word = word, seconds = 0, least = 0, rank = 0 }, nil
    ranks.attempt(('%s: the plan under %s'):format(what, word), function()
        local plan, why = step.plan(given.step, { budget = limit, target = given.target })
        local least = plan and 0 or why.min_budget or frontier.min_budget(given.step, { target = given.target })
        found.plan = plan
        all = ranks.numbers(('%s: seconds and bytes under %s'):format(what, word), 2, function()
            return plan and plan.seconds or math.huge, least
        end)
    end)
    for r = 0, ranks.size - 1 do
        found.seconds = math.max(found.seconds, all[r][1])
        if all[r][2] > found.least then
            found.least, found.rank = all[r][2], ranks.is_ghost and ranks.rank or r
        end
    end
    return found
end

-- Raises that no word keeps a budget. list: of plan_under.
local function refuse(limit, list)
    local words, least = {}, math.huge
    for i, found in ipairs(list) do
        words[i] = ("under '%s' rank %d needs %s bytes at the least, %s more"):format(found.word, found.rank,
            bytes.exact(found.least), bytes.exact(math.max(0, found.least - limit)))
        least = math.min(least, found.least)
    end
    error(errors.new('budget', ('%s: no word keeps a budget of %s bytes: %s'):format(what, bytes.exact(limit),
        table.concat(words, '; ')), { min_budget = least, holders = {}, budget = limit }), 0)
end

-- Returns the word of the fewest seconds under which the step keeps a budget on all ranks, and its plan here. Every
-- rank finds the same one, from what all of them say.
local function choose_word(opt, given)
    errors.check_options(given, { 'budget', 'step', 'target' }, what)
    if given.budget == nil or type(given.step) ~= 'function' then
        raise(nil, 'value', "%s: expected { budget = '8 GiB', step = function() that runs a step }, got budget = %s, "
            .. 'step = %s', what, errors.describe(given.budget), errors.describe(given.step))
    end
    local limit = bytes.parse(given.budget, what)
    check_new(opt)
    if ranks.size == 1 then
        local plan, why = step.plan(given.step, { budget = limit, target = given.target })
        if not plan then errors.again(why) end
        return 'keep', plan
    end
    local list, best = {}, nil
    placing.try({ opt }, function(word)
        local found = plan_under(word, given, limit)
        list[#list + 1] = found
        if found.seconds < math.huge and not (best and best.seconds <= found.seconds) then best = found end
    end)
    if not best then refuse(limit, list) end
    return best.word, best.plan
end

-- ---- placing -------------------------------------------------------------------------------------------------------

local function place(model, opt, word)
    if not module.is(model) then
        raise(nil, 'value', '%s: expected a model, got %s', what, errors.describe(model))
    end
    if type(opt) ~= 'table' or tensor.is(opt) or not opt.set_progress then
        raise(nil, 'value', '%s: expected the optimizer of the model, got %s', what, errors.describe(opt))
    end
    local plan
    if type(word) ~= 'table' or tensor.is(word) then
        check_word(word)
    elseif word.budget ~= nil or word.step ~= nil then
        words_of(model, opt, 'keep')
        word, plan = choose_word(opt, word)
    end
    local chosen, n = words_of(model, opt, word), #opt:parameters()
    check_new(opt, chosen)
    if ranks.size == 1 then return word, plan end
    local said = ('%s of %d parameters: '):format(what, n)
    ranks.call(said .. text_of(chosen, n), function() return nil, 0 end)
    for k, p in ipairs(opt:parameters()) do
        if chosen[k] then placing.put(opt, k, p, chosen[k], C.WN_DIST_RANGE) end
    end
    return word, plan
end

return place
