--- Policies: who says what is kept. A policy answers a word for a residual, or marks stretches of the forward as
-- regions ("units"), or has no opinion. It is asked when a plan is made, never while a step runs.
--
-- Precedence (semantics.md section 7): the policy of the call > the innermost module with an opinion > outer
-- modules > policy.default > marked regions > save. Every policy has a serial number, from 1; a decision is found again
-- by the graph with its scopes and the serials of the call's policy and of policy.default, so a policy object must
-- always answer the same for the same residual.
-- While a policy is asked, nothing can be recorded or read. How words reach the library: policy/decide.lua's job.
-- @module wane.policy
local answers = require 'wane.policy.words'
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local cuts = require 'wane.policy.cuts'
local errors = require 'wane.errors'
local recipe = require 'wane.policy.recipe'
local tensor = require 'wane.tensor'

local C = binding.C
local raise = errors.raise

local policy = {}

local serial = 0

--- The class of policies. Fields: `serial`, `name`; `ask(self, r)` -> word or nil; or `cut(self, count)` ->
-- list of { first =, last = } (units, 1-based): stretches that are recomputed as regions.
local Policy = {}
Policy.__index = Policy
policy.Policy = Policy

function Policy.__tostring(p)
    return p.name
end
Policy.__describe = function(p) return 'the policy ' .. p.name end

local SERIALS = 2 ^ 26 -- two of them make a key, which must stay below 2^53

local function new(name, fields, given)
    serial = given and serial or serial + 1
    if serial >= SERIALS then
        raise(nil, 'value', 'policy: %d policies were made in this process, one more than it can tell apart; make a '
            .. 'policy once, outside the loop', serial)
    end
    fields.serial, fields.name = given or serial, name
    return setmetatable(fields, Policy)
end

--- Whether x is a policy object.
function policy.is(x)
    return getmetatable(x) == Policy
end

-- What a policy may answer: see policy/words.lua.
policy.words, policy.word, policy.check_word = answers.words, answers.word, answers.check_word
local built = answers.built

-- ---- the plain ones ----------------------------------------------------------------------------------------------
local save_all = new('save_all', { cut = function() return {} end })

--- Everything is saved, marked regions too.
function policy.save_all()
    return save_all
end

local function whole(name, what, n)
    if type(n) ~= 'number' or n ~= math.floor(n) or n < 1 then
        raise(nil, 'value', 'policy.%s: expected a whole number of %s from 1, got %s', name, what, errors.describe(n))
    end
    return n
end

--- Regions of k units, the last one too.
-- @param k units in a region, 1 or more
function policy.every(k)
    whole('every', 'units', k)
    return new(('every(%d)'):format(k), { cut = function(_, count) return cuts.every(count, k) end })
end

--- PyTorch's checkpoint_sequential: n segments of floor(N/n) units; the last takes the rest and is kept.
-- @param n segments, 1 or more; 1 is the direct run
function policy.segments(n)
    whole('segments', 'segments', n)
    return new(('segments(%d)'):format(n), { cut = function(_, count)
        if n > count then
            raise(nil, 'value', 'policy.segments: %d segments of %d units; give at most %d', n, count, count)
        end
        return cuts.segments(count, n)
    end })
end

--- segments(round(sqrt N)) of the N units it meets.
function policy.sqrt()
    return new('sqrt', { cut = function(_, count) return cuts.sqrt(count) end })
end

--- Every unit is a region: only the inputs of units are kept.
function policy.recompute_all()
    return new('recompute_all', { cut = function(_, count) return cuts.every(count, 1) end })
end

--- Binomial checkpointing: the units' outputs take at most so many slots at a time, and the fewest units run again for
-- it. Regions inside regions (Griewank and Walther, "Algorithm 799: revolve", 2000).
-- @param slots 0 or more; 0 starts from the input for every unit
function policy.binomial(slots)
    if type(slots) ~= 'number' or slots ~= math.floor(slots) or slots < 0 then
        raise(nil, 'value', 'policy.binomial: expected a whole number of slots from 0, got %s', errors.describe(slots))
    end
    return new(('binomial(%d)'):format(slots), { cut = function(_, count) return cuts.binomial(count, slots) end })
end

--- Like recompute_all, but the last n units are kept.
-- @param n units
function policy.keep_last(n)
    whole('keep_last', 'units', n)
    return new(('keep_last(%d)'):format(n), { cut = function(_, count) return cuts.keep_last(count, n) end })
end

-- ---- by what a residual is --------------------------------------------------------------------------------
local function copy_rules(rules, what)
    if type(rules) ~= 'table' then
        raise(nil, 'value', "policy.%s: expected a table such as {name = 'recompute', default = 'save'}, got %s", what,
            errors.describe(rules))
    end
    local copy, keys = {}, {}
    for key, word in pairs(rules) do
        if key ~= 'optional' then
            policy.check_word(word, ("policy.%s: '%s'"):format(what, tostring(key)))
            copy[key] = word
            if key ~= 'default' then keys[#keys + 1] = key end
        end
    end
    table.sort(keys)
    return copy, keys
end

local function describe_rules(what, rules, keys)
    local words = {}
    for _, key in ipairs(keys) do words[#words + 1] = key .. '=' .. rules[key] end
    if rules.default then words[#words + 1] = 'default=' .. rules.default end
    return what .. '{' .. table.concat(words, ', ') .. '}'
end

--- By the type of the modules a residual belongs to; the innermost listed type decides, `default` for the rest.
-- A module's returned value belongs to its caller. A key that names no type in the graph is an error unless
-- the table says `optional = true`.
-- @param rules { Attention = 'recompute', MLP = 'save', default = 'save' }
function policy.by_type(rules)
    local copy, keys = copy_rules(rules, 'by_type')
    return new(describe_rules('by_type', copy, keys), {
        keys = keys, keys_of = 'types', words = copy, optional = rules.optional,
        ask = function(_, r)
            for _, name in ipairs(r.types) do
                if copy[name] then return copy[name] end
            end
            return copy.default
        end,
    })
end

--- By op: policy.by_op{ gelu = 'recompute', matmul = 'save' }.
function policy.by_op(rules)
    local copy, keys = copy_rules(rules, 'by_op')
    return new(describe_rules('by_op', copy, keys), {
        keys = keys, keys_of = 'ops', words = copy, optional = rules.optional,
        ask = function(_, r) return copy[r.op] or copy.default end,
    })
end

--- By the name given with t:named: policy.by_name{ attn_out = 'save', default = 'recompute' }.
function policy.by_name(rules)
    local copy, keys = copy_rules(rules, 'by_name')
    return new(describe_rules('by_name', copy, keys), {
        keys = keys, keys_of = 'names', words = copy, optional = rules.optional,
        ask = function(_, r) return r.name and copy[r.name] or copy.default end,
    })
end

--- By path: an ordered list of { Lua pattern, word }, the first match decides.
-- @param rules { {'blocks%.1%d%.', 'recompute'}, {'head', 'save'}, default =, optional = }
function policy.by_path(rules)
    local list, keys, given = {}, {}, {}
    for i, rule in ipairs(type(rules) == 'table' and rules or {}) do
        if type(rule) ~= 'table' or type(rule[1]) ~= 'string' then
            raise(nil, 'value', "policy.by_path: entry %d must be {'pattern', 'word'}, got %s", i,
                errors.describe(rule))
        end
        local fine, why = pcall(string.find, '', rule[1])
        if not fine then raise(nil, 'value', "policy.by_path: '%s' is no Lua pattern: %s", rule[1], why:gsub('^.*: ',
            '')) end
        policy.check_word(rule[2], ("policy.by_path: '%s'"):format(rule[1]))
        list[i], keys[i], given[rule[1]] = { rule[1], rule[2] }, rule[1], rule[2]
    end
    if #list == 0 then raise(nil, 'value', "policy.by_path: expected a list such as { {'head', 'save'} }") end
    local default = rules.default
    if default then policy.check_word(default, "policy.by_path: 'default'") end
    return new('by_path', {
        keys = keys, keys_of = 'paths', words = given, is_pattern = true, optional = rules.optional,
        ask = function(_, r)
            for _, rule in ipairs(list) do
                if r.path:find(rule[1]) then return rule[2] end
            end
            return default
        end,
    })
end

--- The first policy with an opinion decides.
function policy.compose(...)
    local list, names, given = {}, {}, { ... }
    for i = 1, select('#', ...) do
        list[i] = policy.of(given[i])
        names[i] = list[i].name
    end
    if #list == 0 then raise(nil, 'value', 'policy.compose: give at least one policy') end
    for i, p in ipairs(list) do
        if p.recipe and #list > 1 then
            raise(nil, 'value', 'policy.compose: %s has decided everything already, so nothing else binds it; give it '
                .. 'alone, not with the %d others', names[i], #list - 1)
        end
    end
    return new('compose(' .. table.concat(names, ', ') .. ')', { parts = list })
end

-- ---- budgets ------------------------------------------------------------------------------------------------
local budgets = {}

-- The actions of a list of words, sorted: 'save' and 'recompute' are always allowed, and so is what loses nothing.
local function allowed_of(allow)
    local list, seen = {}, {}
    if type(allow) ~= 'table' then
        raise(nil, 'value', "policy.budget: allow must be a list of words such as {'compress:bf16'}, got %s",
            errors.describe(allow))
    end
    for _, word in ipairs(allow) do
        if policy.check_word(word, 'policy.budget: allow') > C.WN_DECISION_RECOMPUTE and not seen[word] then
            seen[word], list[#list + 1] = true, word
        end
    end
    table.sort(list)
    return list
end

--- A budget: of all plans found, the fastest that reserves at most so many bytes over the whole step - parameters,
-- gradients, optimizer state, activations, workspaces. Words of policies before it in a compose bind every plan. What
-- changes gradients is chosen only when it is allowed by name.
-- @param size bytes, or text such as '2 GiB'
-- @param opts { allow = {'offload', 'compress:bf16'} }: actions it may choose besides those that keep every bit in
-- memory; they are used only where they pay
-- Errors, when a plan is made: 'budget', with min_budget (bytes) and holders, when nothing fits.
function policy.budget(size, opts)
    if size == nil then raise(nil, 'value', "policy.budget: how many bytes? e.g. policy.budget('2 GiB')") end
    local limit = bytes.parse(size, 'policy.budget')
    opts = errors.check_options(opts, { 'allow' }, 'policy.budget')
    local allow = allowed_of(opts.allow or {})
    local name = ('budget(%s)'):format(table.concat({ ('%.0f'):format(limit), unpack(allow) }, ', '))
    budgets[name] = budgets[name] or new(name, { budget = limit, allow = allow })
    return budgets[name]
end

local least

--- The plan that reserves least, whatever its time.
function policy.least()
    least = least or new('least', { budget = 'least', allow = {} })
    return least
end

--- A policy's words under a budget: the same two give the same object, so that its decisions are found again.
function policy.within_budget(p, size)
    local budget = policy.budget(size)
    if p == nil then return budget end
    p = policy.of(p)
    local bounded = rawget(p, 'bounded') or {} -- in p: a table of policies keyed by p would keep p alive
    p.bounded = bounded
    bounded[budget] = bounded[budget] or policy.compose(p, budget)
    return bounded[budget]
end

-- ---- recipes ------------------------------------------------------------------------------------------------
local recipes = setmetatable({}, { __mode = 'v' })

--- Decisions given whole: a recipe, as plan:recipe() gives it, prints it, or edited since (see policy/recipe.lua). It
-- decides the step alone, for every recording of the same forward. The same text gives the same object.
-- @param x recipe, its text, a table of its fields, or a plan
-- Errors: 'value' where the text is none; 'illegal', when a plan is made, for another graph or a step that breaks a
-- rule.
function policy.recipe(x)
    local of = recipe.of(x)
    local text = of:key()
    local p = recipes[text]
    if not p then
        p = new(('recipe(%d blocks, %d steps)'):format(#of.blocks, #of.steps), { recipe = of })
        recipes[text] = p
    end
    return p
end
recipe.set_policy(policy.recipe)

-- ---- from what users write --------------------------------------------------------------------------------
local words = { 'save_all', 'recompute_all', 'sqrt', 'segments(3)', 'every(4)', 'keep_last(2)', 'budget(2 GiB)',
    'budget(2 GiB, compress:bf16)', 'least' }
for _, word in ipairs(built) do
    if policy.words[word] > C.WN_DECISION_RECOMPUTE then words[#words + 1] = word end
end
local plain = { save_all = true, recompute_all = true, sqrt = true, least = true }
local counted = { segments = true, every = true, keep_last = true, binomial = true }
local by_text = {}

-- A policy of a function holds the function, so a table of such policies keeps neither only where both are weak. Its
-- number stays with the function, so that decisions are found again when the object was collected.
local by_function, serial_of = setmetatable({}, { __mode = 'kv' }), setmetatable({}, { __mode = 'k' })

local function of_function(x)
    local p = by_function[x]
    if p == nil then
        p = new('function', { ask = function(_, r) return x(r) end }, serial_of[x])
        by_function[x], serial_of[x] = p, p.serial
    end
    return p
end

-- 'budget(2 GiB, compress:bf16)': the bytes, then what is allowed.
local function parse_budget(argument)
    local parts = {}
    for part in ((argument or '') .. ','):gmatch '%s*(.-)%s*,' do parts[#parts + 1] = part end
    local size = table.remove(parts, 1)
    return policy.budget(size ~= '' and bytes.parse(size, 'policy.budget') or nil, { allow = parts })
end

-- An action alone: of every value it can be done with.
local function of_all(word)
    policy.check_word(word, 'policy')
    return new(word, { ask = function() return word end })
end

local function parse(text)
    if text:find '^%s*block%s' then return policy.recipe(text) end
    if (policy.words[text] or 0) > C.WN_DECISION_RECOMPUTE then return of_all(text) end
    local name, argument = text:match('^%s*([%a_]+)%s*%(%s*(.-)%s*%)%s*$')
    name = name or text:match('^%s*([%a_]+)%s*$')
    if name and plain[name] and (argument == nil or argument == '') then return policy[name]() end
    if name and counted[name] and tonumber(argument) then return policy[name](tonumber(argument)) end
    if name == 'budget' then return parse_budget(argument) end
    raise(nil, 'value', "policy: '%s' is not a policy; %s", text, errors.near(text, words))
end

--- Turns a string, a function, a policy, a plan or a recipe into a policy object.
-- The same string or function gives the same object, so its decisions are found again.
function policy.of(x)
    if policy.is(x) then return x end
    if type(x) == 'string' then
        by_text[x] = by_text[x] or parse(x)
        return by_text[x]
    end
    if type(x) == 'function' then return of_function(x) end
    if type(x) == 'table' and type(x.as_policy) == 'function' then return x:as_policy() end
    raise(nil, 'value', "policy: expected a string, a function, a policy or a plan, got %s; strings are %s",
        errors.describe(x), table.concat(words, ', '))
end

--- Returns the policy that a question before a run asks: a Lua function is asked anew, for what it reads may have
-- changed since it was last asked; anything else is itself. Run points keep the answers that their plan was made by.
function policy.anew(x)
    if type(x) ~= 'function' then return x end
    return new('function', { ask = function(_, r) return x(r) end })
end

local default

-- Makes policy.default a field that is checked when it is written: the policy that decides where no other has an
-- opinion, nil for none.
setmetatable(policy, {
    __index = function(_, key)
        if key == 'default' then return default end
        raise(nil, 'value', "policy has no '%s'; %s", tostring(key), errors.near(key, policy))
    end,
    __newindex = function(t, key, value)
        if key ~= 'default' then return rawset(t, key, value) end
        default = value ~= nil and policy.of(value) or nil
        tensor.mode_changed()
    end,
})

--- The number by which a program's decisions are found again: of the policy of the call and of policy.default, nil
-- for none. The policies of modules are part of the scopes their nodes carry.
function policy.key(explicit, fallback)
    return (explicit and explicit.serial or 0) * SERIALS + (fallback and fallback.serial or 0)
end

return policy
