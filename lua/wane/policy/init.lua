--- Policies: which values of the forward are kept for the backward.
--
-- A policy answers a decision for a residual, or marks parts of the forward as regions (of "units"), or has no opinion.
-- It is asked when a plan is made, and never while a step runs. Precedence: the policy of the call > the innermost
-- module with an opinion > outer modules > policy.default > marked regions > save.
--
-- Decisions are 'save', 'recompute', 'offload', 'offload:disk', 'offload:host', 'compress:bf16',
-- 'compress:int8' and 'compress:bits'. Units are the modules of the nearest list in or under the module that has the
-- policy, or the blocks of its forward where there is no list.
--
-- Every policy has a serial number, from 1. Decisions are found again by the graph with its scopes and the serials of
-- the call's policy and of policy.default, so a policy object must always answer the same for the same residual. While
-- a policy is asked, nothing can be recorded or read. policy/decide.lua hands the decisions to the library.
-- @module wane.policy
local decisions = require 'wane.policy.decisions'
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local cuts = require 'wane.policy.cuts'
local errors = require 'wane.errors'
local recipe = require 'wane.policy.recipe'

local C = binding.C
local iterate, raise = errors.iterate, errors.raise

local policy = {}

local serial = 0

-- A policy. Fields: serial, name; ask(self, r) -> decision or nil; or cut(self, count) -> list of { first =, last = }
-- (units, from 1), which are recomputed as regions; or budget (bytes or 'least') and allow; or recipe; or parts (a
-- list of policies). gathers: whether it is asked about parameters that are gathered from ranks.
local Policy = {}
Policy.__index = Policy
policy.Policy = Policy

function Policy.__tostring(p)
    return p.name
end
Policy.__describe = function(p) return 'the policy ' .. p.name end

local SERIALS = 2 ^ 26 -- two of them make a key, which must stay below 2^53

-- Makes a policy; given: its serial number, nil for a new one.
local function new(name, fields, given)
    serial = given and serial or serial + 1
    if serial >= SERIALS then
        raise(nil, 'value', 'policy: %d policies were made in this process, one more than it can tell apart; make a '
            .. 'policy once, outside the loop', serial)
    end
    fields.serial, fields.name = given or serial, name
    return setmetatable(fields, Policy)
end

--- Returns whether x is a policy object.
-- @param x any value
-- @usage print(policy.is(policy.sqrt()), policy.is 'sqrt') --> true	false
function policy.is(x)
    return getmetatable(x) == Policy
end

policy.decisions = decisions.numbers

--- Returns the decision of a number of the library, or nil for 0.
-- @within Internal
policy.decision_name = decisions.name

--- Returns the number of a decision; raises 'value' for anything else.
-- @within Internal
policy.check_decision = decisions.check
local built = decisions.built

-- ---- the plain ones ----------------------------------------------------------------------------------------------
local save_all = new('save_all', { cut = function() return {} end })

--- Saves all residuals, those of marked regions too.
-- @return policy
-- @usage loss:backward { policy = policy.save_all() }
function policy.save_all()
    return save_all
end

-- Makes the policy `name` of n regions, units or slots, by the function of cuts that has its name.
local function of_cuts(name, what, n, least)
    if type(n) ~= 'number' or n ~= math.floor(n) or n < least then
        raise(nil, 'value', 'policy.%s: expected a whole number of %s from %d, got %s', name, what, least,
            errors.describe(n))
    end
    return new(('%s(%d)'):format(name, n), { cut = function(_, count) return cuts[name](count, n) end })
end

--- Makes a region of every k units; the last region may be shorter.
-- @param k units in a region, 1 or more
-- @return policy
-- @usage loss:backward { policy = policy.every(2) }
function policy.every(k)
    return of_cuts('every', 'units', k, 1)
end

--- Makes n segments of floor(N / n) of the N units, each a region, as PyTorch's checkpoint_sequential does.
-- The last segment takes the rest and is kept.
-- @param n segments, 1 or more; 1 is the direct run
-- @return policy
-- @raise 'value', when a plan is made, for more segments than units
-- @usage loss:backward { policy = policy.segments(2) }
function policy.segments(n)
    return of_cuts('segments', 'segments', n, 1)
end

--- Makes round(sqrt(N)) segments of the N units.
-- @return policy
-- @usage loss:backward { policy = policy.sqrt() }
function policy.sqrt()
    return new('sqrt', { cut = function(_, count) return cuts.sqrt(count) end })
end

--- Makes a region of every unit: only the inputs of units are kept.
-- @return policy
-- @usage loss:backward { policy = policy.recompute_all() }
function policy.recompute_all()
    return new('recompute_all', { cut = function(_, count) return cuts.every(count, 1) end })
end

--- Makes regions inside regions, so that at most `slots` outputs of units are kept at a time and the fewest units are
-- recomputed (Griewank and Walther, "Algorithm 799: revolve", 2000).
-- @param slots 0 or more; with 0 every unit is recomputed from the input
-- @return policy
-- @usage loss:backward { policy = policy.binomial(1) }
function policy.binomial(slots)
    return of_cuts('binomial', 'slots', slots, 0)
end

--- Makes a region of every unit but the last n.
-- @param n units, 1 or more
-- @return policy
-- @usage loss:backward { policy = policy.keep_last(1) }
function policy.keep_last(n)
    return of_cuts('keep_last', 'units', n, 1)
end

-- ---- by properties of residuals --------------------------------------------------------------------------------
local function copy_rules(rules, what)
    if type(rules) ~= 'table' then
        raise(nil, 'value', "policy.%s: expected a table such as {name = 'recompute', default = 'save'}, got %s", what,
            errors.describe(rules))
    end
    local copy, keys = {}, {}
    for key, decision in iterate(rules) do
        if key ~= 'optional' then
            policy.check_decision(decision, ("policy.%s: '%s'"):format(what, tostring(key)))
            copy[key] = decision
            if key ~= 'default' then keys[#keys + 1] = key end
        end
    end
    table.sort(keys)
    return copy, keys
end

local function describe_rules(what, rules, keys)
    local texts = {}
    for _, key in ipairs(keys) do texts[#texts + 1] = key .. '=' .. rules[key] end
    if rules.default then texts[#texts + 1] = 'default=' .. rules.default end
    return what .. '{' .. table.concat(texts, ', ') .. '}'
end

-- Makes the policy by_type, by_op or by_name: the first name of a residual that is listed decides.
local function by_names(what, rules)
    local copy, keys = copy_rules(rules, what)
    local keys_of = what:match '^by_(.*)' .. 's'
    return new(describe_rules(what, copy, keys), {
        keys = keys, keys_of = keys_of, decisions = copy, optional = rules.optional,
        gathers = keys_of == 'ops' and copy.all_gather ~= nil,
        ask = function(_, r)
            for _, name in ipairs(decisions.names_of[keys_of](r)) do
                if copy[name] then return copy[name] end
            end
            return copy.default
        end,
    })
end

--- Decides by the types of the modules that a residual belongs to: the innermost listed type decides.
-- A module's returned value belongs to its caller.
-- @param rules { TYPE = decision, default = decision for the others, optional = true: types that are not in the graph
-- are no error }
-- @return policy
-- @raise 'value' for what is no decision; when a plan is made, for a type that is not in the graph
-- @usage
-- local blocks = nn.Sequential(nn.Residual(nn.MLP(8)), nn.Residual(nn.MLP(8)))
-- blocks(x):sum():backward { policy = policy.by_type { MLP = 'recompute', default = 'save' } }
function policy.by_type(rules) return by_names('by_type', rules) end

--- Decides by the op of a residual. `all_gather` is that of parameters which are gathered from ranks.
-- @param rules { OP = decision, default =, optional = } as in policy.by_type
-- @return policy
-- @usage loss:backward { policy = policy.by_op { gelu = 'recompute', default = 'save' } }
function policy.by_op(rules) return by_names('by_op', rules) end

--- Decides by the name that t:named gave a residual.
-- @param rules { NAME = decision, default =, optional = } as in policy.by_type
-- @return policy
-- @usage
-- local hidden = model[1](x):named 'hidden'
-- hidden:gelu():sum():backward { policy = policy.by_name { hidden = 'recompute', default = 'save' } }
function policy.by_name(rules) return by_names('by_name', rules) end

--- Decides by the path of a residual's module: the first pattern that matches decides.
-- @param rules { { Lua pattern, decision }, ..., default =, optional = } as in policy.by_type
-- @return policy
-- @usage loss:backward { policy = policy.by_path { { '^1$', 'recompute' }, default = 'save', optional = true } }
function policy.by_path(rules)
    local list, keys, given = {}, {}, {}
    local options, pairs_of = { default = true, optional = true }, {}
    for key, value in iterate(type(rules) == 'table' and rules or {}) do
        if not options[key] then pairs_of[key] = value end
    end
    errors.list(pairs_of, 'policy.by_path', "pairs {'pattern', 'decision'}", 0, { 'default', 'optional' })
    for i, rule in ipairs(pairs_of) do
        if type(rule) ~= 'table' or type(rule[1]) ~= 'string' then
            raise(nil, 'value', "policy.by_path: entry %d must be {'pattern', 'decision'}, got %s", i,
                errors.describe(rule))
        end
        local fine, why = pcall(string.find, '', rule[1])
        if not fine then raise(nil, 'value', "policy.by_path: '%s' is no Lua pattern: %s", rule[1], why:gsub('^.*: ',
            '')) end
        policy.check_decision(rule[2], ("policy.by_path: '%s'"):format(rule[1]))
        list[i], keys[i], given[rule[1]] = { rule[1], rule[2] }, rule[1], rule[2]
    end
    if #list == 0 then raise(nil, 'value', "policy.by_path: expected a list such as { {'head', 'save'} }") end
    local default = rules.default
    if default then policy.check_decision(default, "policy.by_path: 'default'") end
    return new('by_path', {
        keys = keys, keys_of = 'paths', decisions = given, is_pattern = true, optional = rules.optional,
        ask = function(_, r)
            for _, rule in ipairs(list) do
                if r.path:find(rule[1]) then return rule[2] end
            end
            return default
        end,
    })
end

--- Combines policies: the first one with an opinion decides.
-- @param ... policies, or values that policy.of takes
-- @return policy
-- @raise 'value' for none, and for a recipe with others: it decides everything
-- @usage loss:backward { policy = policy.compose(policy.by_op { gelu = 'save', optional = true }, 'budget(1 MiB)') }
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

-- Returns the actions of a list of decisions, sorted, without 'save' and 'recompute', which are always allowed.
local function allowed_of(allow)
    local list, seen = {}, {}
    for k = 1, errors.list(allow, 'policy.budget: allow', "decisions such as {'compress:bf16'}") do
        local decision = allow[k]
        local number = policy.check_decision(decision, 'policy.budget: allow')
        if number > C.WN_DECISION_RECOMPUTE and not seen[decision] then
            seen[decision], list[#list + 1] = true, decision
        end
    end
    table.sort(list)
    return list
end

--- Chooses the fastest plan found that reserves at most so many bytes over the whole step: parameters, gradients,
-- optimizer state, activations and workspaces. Decisions of policies before it in a compose bind every plan. An action
-- that changes gradients is chosen only when it is allowed by name.
-- @param size bytes, or text such as '2 GiB'
-- @param opts {allow = {'offload', 'compress:bf16'}}: actions besides save and recompute that it may choose, where they
-- pay
-- @return policy
-- @raise 'budget', when a plan is made and none fits, with min_budget (bytes) and holders
-- @usage loss:backward { policy = policy.budget '1 MiB' }
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

--- Chooses the plan that reserves fewest bytes, whatever its time.
-- @return policy
-- @usage loss:backward { policy = policy.least() }
function policy.least()
    least = least or new('least', { budget = 'least', allow = {} })
    return least
end

--- Combines a policy with a budget: the same two give the same object, so that its decisions are found again.
-- @within Internal
function policy.within_budget(p, size)
    local budget = policy.budget(size)
    if p == nil then return budget end
    p = policy.of(p)
    local bounded = rawget(p, 'bounded') or {} -- kept in p: a table of policies by p would keep p alive
    p.bounded = bounded
    bounded[budget] = bounded[budget] or policy.compose(p, budget)
    return bounded[budget]
end

-- Returns the budget that decides among the parts of a policy, itself included, or nil.
local function budget_in(p)
    if p.budget then return p end
    for _, part in ipairs(p.parts or {}) do
        local found = budget_in(part)
        if found then return found end
    end
end

--- Returns the bytes of a policy's budget; nil for no budget, and for 'least' unless that is asked for.
-- @within Internal
function policy.limit_of(p, with_least)
    local found = p and budget_in(p)
    return found and (with_least or type(found.budget) == 'number') and found.budget or nil
end

--- Returns a policy that has a budget with other bytes in it: the same two give the same object.
-- @within Internal
function policy.within(p, size)
    if p.budget then return policy.budget(size, { allow = p.allow }) end
    local list, bounded = {}, rawget(p, 'bounded') or {}
    for i, part in ipairs(p.parts) do list[i] = budget_in(part) and policy.within(part, size) or part end
    p.bounded = bounded
    bounded[size] = bounded[size] or policy.compose(unpack(list))
    return bounded[size]
end

-- ---- recipes ------------------------------------------------------------------------------------------------
local recipes = setmetatable({}, { __mode = 'v' })

--- Takes all decisions of a step from a recipe: as plan:recipe() returns it, as it prints, or edited.
-- A recipe holds for every recording of the same forward (see policy/recipe.lua). The same text gives the same object.
-- @param x recipe, its text, a table of its fields, or a plan
-- @return policy
-- @raise 'value' where the text is no recipe; 'illegal', when a plan is made, for another graph or a step that breaks a
-- rule
-- @usage
-- local function step() return nn.cross_entropy(model(x), y) end
-- local text = tostring(wane.plan(step, { policy = 'recompute_all' }):recipe())
-- loss:backward { policy = policy.recipe(text) }
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

-- ---- from values of scripts --------------------------------------------------------------------------------
local known = { 'save_all', 'recompute_all', 'sqrt', 'segments(3)', 'every(4)', 'keep_last(2)', 'budget(2 GiB)',
    'budget(2 GiB, compress:bf16)', 'least' }
for _, decision in ipairs(built) do
    if policy.decisions[decision] > C.WN_DECISION_RECOMPUTE then known[#known + 1] = decision end
end
local plain = { save_all = true, recompute_all = true, sqrt = true, least = true }
local counted = { segments = true, every = true, keep_last = true, binomial = true }
local by_text = {}

-- Policies of functions, and their serials. A policy holds its function, so a table of both keeps neither alive only
-- where keys and values are weak. The serial stays with the function, so that decisions are found again after the
-- policy was collected.
local by_function, serial_of = setmetatable({}, { __mode = 'kv' }), setmetatable({}, { __mode = 'k' })

local function of_function(x)
    local p = by_function[x]
    if p == nil then
        local function ask(_, r) return x(r) end
        jit.off(ask) -- compiled code would hold x (program/accumulate.lua)
        p = new('function', { ask = ask, gathers = true }, serial_of[x])
        by_function[x], serial_of[x] = p, p.serial
    end
    return p
end

-- Returns the policy of the text between the parentheses of 'budget(2 GiB, compress:bf16)': bytes, then allowed
-- actions.
local function parse_budget(argument)
    local parts = {}
    for part in ((argument or '') .. ','):gmatch '%s*(.-)%s*,' do parts[#parts + 1] = part end
    local size = table.remove(parts, 1)
    return policy.budget(size ~= '' and bytes.parse(size, 'policy.budget') or nil, { allow = parts })
end

-- Makes the policy of an action alone, which it answers for every residual.
local function of_all(decision)
    policy.check_decision(decision, 'policy')
    return new(decision, { ask = function() return decision end })
end

-- Returns the policy of a text.
local function parse(text)
    if text:find '^%s*block%s' then return policy.recipe(text) end
    if (policy.decisions[text] or 0) > C.WN_DECISION_RECOMPUTE then return of_all(text) end
    local name, argument = text:match('^%s*([%a_]+)%s*%(%s*(.-)%s*%)%s*$')
    name = name or text:match('^%s*([%a_]+)%s*$')
    if name and plain[name] and (argument == nil or argument == '') then return policy[name]() end
    if name and counted[name] and tonumber(argument) then return policy[name](tonumber(argument)) end
    if name == 'budget' then return parse_budget(argument) end
    raise(nil, 'value', "policy: '%s' is not a policy; %s", text, errors.near(text, known))
end

--- Makes a policy of a text, a function, a policy, a plan or a recipe.
-- The same text or function gives the same object, so that its decisions are found again.
-- @param x text such as 'segments(3)'; function(r) that returns a decision or nil, where r describes a residual: op,
-- module, path, name, index, block, bytes, shape, dtype, flops, seconds, random, boundary, readers, types, sign_only;
-- policy; plan; or recipe
-- @return policy
-- @raise 'value' for anything else
-- @usage
-- local large = policy.of(function(r) return r.bytes > 2 ^ 20 and 'recompute' or 'save' end)
-- loss:backward { policy = large }
-- print(policy.of 'segments(3)') --> segments(3)
function policy.of(x)
    if policy.is(x) then return x end
    if type(x) == 'string' then
        by_text[x] = by_text[x] or parse(x)
        return by_text[x]
    end
    if type(x) == 'function' then return of_function(x) end
    if type(x) == 'table' and type(x.as_policy) == 'function' then return x:as_policy() end
    raise(nil, 'value', "policy: expected a string, a function, a policy or a plan, got %s; strings are %s",
        errors.describe(x), table.concat(known, ', '))
end

--- Returns the policy that planning without a run asks: a new one for a Lua function, because the values that it reads
-- may have changed since it was last asked, and x for anything else. Run points keep the answers of their plan.
-- @within Internal
function policy.anew(x)
    if type(x) ~= 'function' then return x end
    return new('function', { ask = function(_, r) return x(r) end, gathers = true })
end

--- Returns the number by which a program's decisions are found again. Policies of modules are part of the scopes of
-- their nodes.
-- @within Internal
-- @param explicit policy of the call, or nil
-- @param fallback policy.default, or nil
function policy.key(explicit, fallback)
    return (explicit and explicit.serial or 0) * SERIALS + (fallback and fallback.serial or 0)
end

local default

-- Makes policy.default a field that is checked when it is assigned: the policy that decides where no other has an
-- opinion, or nil. Nothing else can be assigned, because a misspelt default would decide nothing.
return setmetatable(policy, {
    __index = function(_, key)
        if key == 'default' then return default end
        raise(nil, 'value', "policy has no '%s'; %s", tostring(key), errors.near(key, policy))
    end,
    __newindex = function(_, key, value)
        if key ~= 'default' then
            raise(nil, 'value', 'policy.%s = ...: policy.default alone can be assigned', tostring(key))
        end
        default = value ~= nil and policy.of(value) or nil
    end,
})
