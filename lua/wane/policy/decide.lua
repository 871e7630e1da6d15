--- From policies to the decisions and marks of one open program: precedence, units, ownership of residuals.
--
-- For each forward node the layers of opinion are, in order: the policy of the call, the policies of the modules that
-- it belongs to from the innermost out, and policy.default. A policy that cuts (every, segments, sqrt) covers the nodes
-- of its units: those of a region get a mark, the others 'save'. A policy that answers is asked once for each residual.
-- A parameter that is gathered from ranks is a residual of which a function decides, or policy.by_op { all_gather = };
-- no other policy speaks of it, and it is gathered again where none does.
-- A node that no layer covers or answers stays as it was marked. This file never plans or runs.
-- @internal wane.policy.decide
local policy_query = require 'wane.policy.query'
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local policy = require 'wane.policy'
local recipe = require 'wane.policy.recipe'
local scoped = require 'wane.scoped'
local silent = require 'wane.policy.silent'

local C, check, iterate, raise = binding.C, binding.check, errors.iterate, errors.raise

-- ---- the forward, and the owners of values --------------------------------------------------------------------------
-- Returns the chain of scopes from `scope` out: a list of { scope =, info = (module.of_scope) }, with the set is_in.
local function chain_of(scopes, scope)
    local chain = { is_in = {} } -- innermost first; is_in: set of its scopes
    while scope ~= 0 do
        local info = scopes[scope]
        if not info then break end
        chain[#chain + 1] = { scope = scope, info = info }
        chain.is_in[scope] = true
        scope = info.parent_scope
    end
    return chain
end

-- Returns whether a reader, given by its chain of scopes, is outside of a scope. A value without readers is read by the
-- caller, who is outside.
local function is_read_outside(readers, scope)
    for i = 1, #readers do
        if not readers[i].is_in[scope] then return true end
    end
    return #readers == 0
end

-- Lists the forward nodes in order, and fills their fields: chain (scopes from the innermost out), position,
-- readers_of, and owners, the index in the chain from which scopes own the value; a module's returned value is its
-- caller's.
local function forward_of(graph)
    local list, chains = {}, {}
    for _, node in ipairs(graph) do
        if node.phase == 'forward' and node.leaf == 0 then
            list[#list + 1] = node
            chains[node.scope] = chains[node.scope] or chain_of(graph.scopes, node.scope)
            node.chain, node.readers_of = chains[node.scope], {}
            node.position = #list
        end
    end
    for _, node in ipairs(list) do
        for _, input in ipairs(node.inputs) do
            local readers = input.readers_of
            if readers and readers[#readers] ~= node.chain then readers[#readers + 1] = node.chain end
        end
    end
    for _, node in ipairs(list) do
        local first, chain = 1, node.chain
        while chain[first] and is_read_outside(node.readers_of, chain[first].scope) do first = first + 1 end
        node.owners = first
    end
    return list
end

-- ---- units ---------------------------------------------------------------------------------------------------
-- Returns the longest list among the children of a scope, { size =, numbers = { scope of child -> number in the list }
-- }, or nil.
local function lists_under(forward, scope)
    local groups, order = {}, {}
    for _, node in ipairs(forward) do
        for i, link in ipairs(node.chain) do
            if link.info.parent_scope == scope and (link.info.step or not link.info.is_function) then
                local name = link.info.path:match('([^.]*%.?%d+)$') and link.info.path or nil
                local number = link.info.step or name and tonumber(name:match('(%d+)$'))
                local prefix = link.info.step and '' or number and name:sub(1, -1 - #tostring(number)) or nil
                if prefix then
                    if not groups[prefix] then
                        groups[prefix] = { size = 0, numbers = {}, is_time = link.info.step ~= nil }
                        order[#order + 1] = prefix
                    end
                    local group = groups[prefix]
                    if not group.numbers[link.scope] then
                        group.numbers[link.scope], group.size = number, group.size + 1
                    end
                end
                break
            elseif i == #node.chain then
                break
            end
        end
    end
    local best
    for _, prefix in ipairs(order) do
        if groups[prefix].size > 1 and (not best or groups[prefix].size > best.size) then best = groups[prefix] end
    end
    return best
end

local function children_scopes(forward, scope)
    local list, seen = {}, {}
    for _, node in ipairs(forward) do
        for _, link in ipairs(node.chain) do
            if link.info.parent_scope == scope and not seen[link.scope] then
                seen[link.scope] = true
                list[#list + 1] = link.scope
            end
        end
    end
    return list
end

-- Returns the nearest list of modules in or under a scope, breadth first, and the scope that has it.
local function find_list(forward, scope)
    local queue, at = { scope }, 1
    while queue[at] do
        local group = lists_under(forward, queue[at])
        if group then return group, queue[at] end
        for _, child in ipairs(children_scopes(forward, queue[at])) do queue[#queue + 1] = child end
        at = at + 1
    end
end

-- Describes a scope around some node of the forward, as module.of_scope does; returns nil where there is none.
local function info_of(forward, scope)
    for _, node in ipairs(forward) do
        for _, link in ipairs(node.chain) do
            if link.scope == scope then return link.info end
        end
    end
end

-- Returns the number of modules of a list, with those that record nothing (an Identity is a unit too).
local function list_length(forward, group, scope)
    local info = info_of(forward, scope)
    local last, prefix = 0, nil
    for child, number in iterate(group.numbers) do
        last = math.max(last, number)
        local path = info_of(forward, child).path
        prefix = path:sub(1, -1 - #tostring(number))
    end
    if not info or group.is_time then return last end
    local above = info.path ~= '' and info.path .. '.' or ''
    local own = prefix:sub(#above + 1)
    for _, name in ipairs(info.numbers) do
        local number = name:match('(%d+)$')
        if name == own .. number then last = math.max(last, tonumber(number)) end
    end
    return last
end

local function is_under(node, scope)
    return scope == 0 or node.chain.is_in[scope] == true
end

-- Returns the units under a scope, position -> number of the unit in the order of the forward, and their number.
local function units_under(forward, scope)
    local group, container = find_list(forward, scope)
    local units, count, current, is_ordered = {}, 0, 0, true
    local last_key
    for position, node in ipairs(forward) do
        if is_under(node, scope) then
            local key
            if group then
                for _, link in ipairs(node.chain) do key = key or group.numbers[link.scope] end
            elseif node.block > 0 then -- data is in no block
                key = node.block
            end
            if key and key ~= last_key then
                if last_key and key < last_key then is_ordered = false end
                count = count + 1
                current = count
            end
            if key then units[position] = { seen = current, key = key } end
            last_key = key or last_key
        end
    end
    local numbered = group and is_ordered
    for position, unit in iterate(units) do units[position] = numbered and unit.key or unit.seen end
    return units, numbered and list_length(forward, group, container) or count
end

-- ---- cuts: the regions of policies -------------------------------------------------------------------------------
local next_unit

-- Covers the nodes of a cut's regions, and the others under the scope as kept. Nodes that a layer above covers stay as
-- they are.
local function cover_regions(forward, scope, p, layer, covers)
    local units, count = units_under(forward, scope)
    local regions = count > 0 and p:cut(count) or {}
    local mark_of = {} -- a region inside another comes after it, and takes over its nodes
    for number, region in ipairs(regions) do
        local first, last
        for position = 1, #forward do
            local unit = units[position]
            if unit and unit >= region.first and unit <= region.last then first, last = first or position, position end
        end
        for position = first or 1, last or 0 do mark_of[position] = number end
    end
    local base = next_unit
    next_unit = next_unit + #regions
    for number, region in ipairs(regions) do
        if region.parent then covers.parents[base + number] = base + region.parent end
    end
    for position, node in ipairs(forward) do
        if not covers[node.index] and is_under(node, scope) then
            local region = mark_of[position]
            covers[node.index] = { layer = layer, unit = region and base + region or nil }
        end
    end
end

-- Groups the forward by root: passes for several roots repeat the model, and each is cut by itself.
local function by_root(forward)
    local groups, order = {}, {}
    for _, node in ipairs(forward) do
        if not groups[node.root] then
            groups[node.root] = {}
            order[#order + 1] = groups[node.root]
        end
        table.insert(groups[node.root], node)
    end
    return order
end

-- ---- layers ----------------------------------------------------------------------------------------------------
-- Adds the layers of a policy that was given to the scope `scope`, whose module has this path; scope 0: the whole step.
local function add_layer(layers, p, scope, path, rank)
    for _, part in ipairs(p.parts or { p }) do
        if part.parts then
            add_layer(layers, part, scope, path, rank)
        else
            layers[#layers + 1] = { policy = part, scope = scope, path = path, rank = rank }
        end
    end
end

-- Lists the layers in order of precedence; rank grows outwards.
local function layers_of(forward, explicit, default)
    local layers, attached, seen = {}, {}, {}
    if explicit then add_layer(layers, explicit, 0, '', 0) end
    for _, node in ipairs(forward) do
        for i, link in ipairs(node.chain) do
            local p = link.info.policy
            if p and not seen[link.scope] then
                seen[link.scope] = true
                attached[#attached + 1] = { policy = p, scope = link.scope, path = link.info.path,
                    depth = #node.chain - i }
            end
        end
    end
    table.sort(attached, function(a, b)
        if a.depth ~= b.depth then return a.depth > b.depth end
        return a.scope < b.scope
    end)
    for i, each in ipairs(attached) do add_layer(layers, each.policy, each.scope, each.path, i) end
    if default then add_layer(layers, default, 0, '', #attached + 1) end
    for i, layer in ipairs(layers) do layer.order = i end
    return layers
end

-- ---- keys that must match ----------------------------------------------------------------------------------------
-- Returns the set of ops, names, paths or types that occur in the forward.
local function words_of(forward, kind)
    local set = {}
    for _, node in ipairs(forward) do
        if kind == 'ops' then
            set[node.op] = true
        elseif kind == 'names' then
            if node.name and node.name ~= '' then set[node.name] = true end
        elseif kind == 'paths' then
            set[node.path or ''] = true
        else
            for _, link in ipairs(node.chain) do set[link.info.type] = true end
        end
    end
    return set
end

-- Raises 'value' for a key of a policy that matches nothing in the forward. One rank gathers nothing, and runs the
-- script of many.
local function check_keys(forward, p)
    if not p.keys or p.optional then return end
    local set = words_of(forward, p.keys_of)
    for _, key in ipairs(p.keys) do
        local found = set[key] or p.gathers and key == 'all_gather'
        if p.is_pattern then
            for path in iterate(set) do found = found or path:find(key) ~= nil end
        end
        if not found then
            raise(nil, 'value', "policy.by_%s: '%s' matches nothing in this graph; %s (optional = true allows it)",
                p.keys_of:sub(1, -2), key, errors.near(key, set))
        end
    end
end

-- Asks the layers about every residual, and gives the library the first answer.
local function decide_residuals(program, graph, layers, covers)
    local said, asked = {}, {}
    for i = 0, C.wn_count(program.handle, C.WN_COUNT_RESIDUALS) - 1 do
        local node = graph.by_index[policy_query.node_of(program, i)]
        local cover, r, is_gathered = covers[node.index], nil, node.op == 'all_gather'
        for _, layer in ipairs(layers) do
            if layer.policy.budget then break end
            if cover and cover.layer == layer.order and not is_gathered then
                if not cover.unit then check(C.wn_decide(program.handle, i, policy.decisions.save)) end
                break
            end
            local speaks = layer.policy.ask and (layer.policy.gathers or not is_gathered)
            if speaks and policy_query.owned_by(node, layer.scope) then
                r = r or policy_query.describe(program, node, i)
                local decision = policy_query.decision(layer.policy, r)
                silent.note(asked, layer.policy, r, decision)
                if decision then
                    check(C.wn_decide(program.handle, i, decision))
                    policy_query.note(said, program, i, decision, r)
                    break
                end
            end
        end
    end
    policy_query.check(said)
    silent.tell(asked)
end

-- ---- budgets ---------------------------------------------------------------------------------------------------
local function has_budget(layers)
    for _, layer in ipairs(layers) do
        if layer.policy.budget then return true end
    end
    return false
end

-- Raises 'value' for a budget or a recipe that is given to a part of the model.
local function check_whole(layer, what)
    if layer.path ~= '' then
        raise(nil, 'value', "policy.%s: a %s covers the whole step, and this one is given to '%s'; give it to "
            .. 'the model, to the call ({%s =}) or to policy.default', what, what, layer.path, what == 'budget'
            and 'budget' or 'policy')
    end
end

-- Returns the recipe that decides, or nil; raises 'value' when a policy has an opinion before it.
local function recipe_of(layers)
    for i, layer in ipairs(layers) do
        if layer.policy.recipe then
            check_whole(layer, 'recipe')
            if i == 1 then return layer.policy.recipe end
            local path = layers[1].path
            raise(nil, 'value', 'policy.recipe: %s%s has an opinion before %s, which decides everything; take one of '
                .. 'them away', layers[1].policy.name, path ~= '' and (" of '%s'"):format(path) or '',
                layer.policy.name)
        end
        -- A policy that covers everything leaves no node to the layers after it.
        if layer.policy.budget or layer.policy.cut and layer.path == '' then return nil end
    end
end

local function refuse_regions(p)
    raise(nil, 'value', 'policy.compose: %s makes regions, and a budget chooses them; compose a budget with policies '
        .. 'of decisions (by_type, by_op, by_name, by_path, a function)', p.name)
end

local decide = { forward = forward_of, by_root = by_root, units_under = units_under, is_under = is_under,
    find_list = find_list, lists_under = lists_under }

--- Returns the layers of opinion that reach a program, and the nodes that cutting policies cover.
-- Nodes of the forward get `position`, their place in it.
-- @param graph Program:graph()
-- @param explicit policy of the call, or nil
-- @param default policy.default, or nil
-- @return layers (list of { policy =, scope =, order = }), covers (node number -> { layer =, unit = or nil }, parents:
-- unit -> unit around it)
function decide.covers(graph, explicit, default)
    local forward = forward_of(graph)
    local layers, covers = layers_of(forward, explicit, default), { parents = {} }
    next_unit = 0
    if recipe_of(layers) then return layers, covers end
    local bounded = has_budget(layers)
    for _, layer in ipairs(layers) do
        if layer.policy.budget then
            check_whole(layer, 'budget')
            break
        end
        check_keys(forward, layer.policy)
        if layer.policy.cut then
            for _, group in ipairs(by_root(forward)) do
                cover_regions(group, layer.scope, layer.policy, layer.order, covers)
            end
            if bounded and next_unit > 0 then refuse_regions(layer.policy) end
        end
    end
    return layers, covers
end

-- Returns the innermost budget, or nil, and gives the program the actions that it allows.
local function budget_of(program, layers)
    for _, layer in ipairs(layers) do
        if layer.policy.budget then
            for _, name in ipairs(layer.policy.allow) do check(C.wn_allow(program.handle, policy.decisions[name])) end
            return layer.policy.budget
        end
    end
end

--- Gives an open program the decisions and marks of all policies that reach it.
-- @param program a Program that is not planned yet
-- @param explicit the policy given to the call, or nil
-- @param default policy.default, or nil
-- @return the budget that decides the others: bytes, 'least', or nil
function decide.apply(program, explicit, default)
    if C.wn_count(program.handle, C.WN_COUNT_RESIDUALS) == 0 then
        local layers = {}
        if explicit then add_layer(layers, explicit, 0, '', 0) end
        return budget_of(program, layers)
    end
    local graph, budget = program:graph(), nil
    scoped('policy_query', true, function()
        local layers, covers = decide.covers(graph, explicit, default)
        if #layers == 0 then return end
        local given = recipe_of(layers)
        if given then return recipe.give(program, given, graph) end
        for _, node in ipairs(graph) do
            local cover = covers[node.index]
            if cover and cover.unit then check(C.wn_mark(program.handle, node.index, cover.unit)) end
        end
        for unit, parent in iterate(covers.parents) do check(C.wn_mark_parent(program.handle, unit, parent)) end
        decide_residuals(program, graph, layers, covers)
        budget = budget_of(program, layers)
    end)
    return budget
end

return decide
