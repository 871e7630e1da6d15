--- Policies by hand as proposals for a budget.
--
-- It proposes the marks that every, segments, sqrt, keep_last and binomial would make in the units that they would
-- meet, and decisions by op, name and type of module; in graphs of few residuals also those of functions by position
-- and path, and random ones. The library lowers and simulates each proposal as it would the policy itself, and a budget
-- picks among them too, so a budget is never worse than these policies. The number of proposals depends on the size of
-- the graph alone; the proposals depend on the graph's forward and its modules, and never on earlier plans.
-- @internal wane.policy.candidates
local binding = require 'wane.ffi'
local cuts = require 'wane.policy.cuts'
local decide = require 'wane.policy.decide'

local C, check = binding.C, binding.check

local candidates = {}

local WORK = 400000 -- proposals times nodes. Measured: judging a proposal takes about 0.5 us for each node.
-- Fewest proposals: a graph that would get fewer gets none.
-- Measured: judging one takes 0.4 s above 18,000 nodes.
local FEWEST = 22
-- Most residuals of a graph for which sets of them are proposed, the longest stride of a set, and how many are random.
-- Measured: of 19,383 policies by functions on 133 small networks, 13 took fewer bytes than the least budget and 9 were
-- faster than the budget of their bytes; with these sets none took fewer and 1 was faster, by 0.006 %. Planning such a
-- network takes 17 % longer; that of a graph with more residuals as long as before.
local FEW, EVERY, RANDOM = 100, 6, 24
local LISTS = 4 -- lists of modules whose members are taken as units, at most

-- ---- regions -------------------------------------------------------------------------------------------------------
-- Returns at most `most` numbers from `first` to `last`: half of them consecutive, the others in equal factors.
local function spread(first, last, most)
    local list, k = {}, first
    while k <= last and #list < most do
        list[#list + 1] = k
        local factor = (last / math.max(k, 1)) ^ (1 / (most - #list))
        k = #list < most / 2 and k + 1 or math.max(k + 1, math.floor(k * factor + 0.5))
    end
    return list
end

-- Returns, for each root, the forward's nodes with the units under a scope, { nodes, unit (position -> number), count,
-- first, last (unit -> position) }; and the least count.
local function groups_of(forward, scope)
    local groups, least = {}, math.huge
    for _, nodes in ipairs(decide.by_root(forward)) do
        local unit, count = decide.units_under(nodes, scope)
        local group = { nodes = nodes, count = count, first = {}, last = {} }
        for position = 1, #nodes do
            local number = unit[position]
            if number then
                group.first[number] = group.first[number] or position
                group.last[number] = position
            end
        end
        least = math.min(least, count)
        groups[#groups + 1] = group
    end
    return groups, least
end

-- Writes the regions of one group over its nodes. Returns the number of regions.
local function mark_group(group, scope, regions, base, unit, parent)
    local mark = {}
    for number, region in ipairs(regions) do
        local first, last
        for k = region.first, region.last do
            first = math.min(first or math.huge, group.first[k] or math.huge)
            last = math.max(last or 0, group.last[k] or 0)
        end
        for position = first, last do mark[position] = number end
        parent[base + number - 1] = region.parent and base + region.parent or 0
    end
    for position, node in ipairs(group.nodes) do
        if decide.is_under(node, scope) then unit[node.index] = mark[position] and base + mark[position] or -1 end
    end
    return #regions
end

local function propose_cut(self, groups, scope, name, cut, number)
    local base = 0
    local unit, parent = binding.array('i32', self.n), binding.array('i32', self.n)
    for _, group in ipairs(groups) do
        local regions = group.count > 0 and cut(group.count, number) or {}
        if base + #regions > self.n then return end
        base = base + mark_group(group, scope, regions, base, unit, parent)
    end
    name = number and ('%s(%d)'):format(name, number) or name
    check(C.wn_candidate(self.program.handle, name, self.n, unit, parent, nil))
end

local LONGEST = 1024 -- units that the library's table of binomial splits has
-- Most nodes of a forward and of the recomputation that binomial makes.
-- Measured: judging one takes about 1 us.
local LENGTH = 200000

-- Returns the number of units that binomial runs forward: r * count - C(slots + 1 + r, slots + 2) for the least r with
-- which C(slots + 1 + r, r) reaches `count` (Griewank and Walther, "Algorithm 799: revolve", 2000).
local function forwards(count, slots)
    local r, reach, less = 0, 1, 0
    while reach < count do
        less = less + reach
        r = r + 1
        reach = reach * (slots + 1 + r) / r
    end
    return r * count - less
end

-- Returns the fewest slots with which binomial is proposed: no schedule is longer than LENGTH then.
local function fewest_slots(count, nodes)
    local slots = 0
    while slots < count - 1 and (count + forwards(count, slots)) * nodes / count > LENGTH do slots = slots + 1 end
    return slots
end

local families = {
    { 'every', cuts.every, function(n) return 1, n end },
    { 'segments', cuts.segments, function(n) return 2, n end },
    { 'binomial', cuts.binomial, function(n, nodes) return fewest_slots(n, nodes), n <= LONGEST and n - 1 or -1 end },
    { 'keep_last', cuts.keep_last, function(n) return 1, n - 1 end },
}

local function propose_cuts(self, forward, scope, most)
    local groups, count = groups_of(forward, scope)
    if count < 2 or count == math.huge then return end
    propose_cut(self, groups, scope, 'sqrt', cuts.sqrt)
    for _, family in ipairs(families) do
        local first, last = family[3](count, #forward)
        for _, number in ipairs(spread(first, last, math.max(2, math.floor(most / #families)))) do
            propose_cut(self, groups, scope, family[1], family[2], number)
        end
    end
end

-- Lists the scopes whose own lists of modules are units: the whole model first, then the modules with lists inside.
local function scopes_of(forward)
    local list, seen = { 0 }, { [0] = true }
    local _, first = decide.find_list(forward, 0)
    seen[first or 0] = true
    for _, node in ipairs(forward) do
        for _, link in ipairs(node.chain) do
            if not seen[link.scope] and #list < LISTS then
                seen[link.scope] = true
                if decide.lists_under(forward, link.scope) then list[#list + 1] = link.scope end
            end
        end
    end
    return list
end

-- ---- decisions -----------------------------------------------------------------------------------------------------
local function add_feature(features, kind, key, node)
    if not key or key == '' then return end
    local name = kind .. key
    if not features[name] then
        features[name] = { name = name, nodes = {} }
        features[#features + 1] = features[name]
    end
    features[name].nodes[node.index] = true
end

-- Lists the residuals that proposals decide about. Gathers stay as they are: moves of the library keep those of every
-- plan.
local function residuals_of(forward)
    local residuals = {}
    for _, node in ipairs(forward) do
        if node.is_residual and node.op ~= 'all_gather' then residuals[#residuals + 1] = node end
    end
    return residuals
end

-- Lists the sets of residuals that a rule can name, by op, name and type of module: { name, nodes (set) }.
local function features_of(residuals)
    local features = {}
    for _, node in ipairs(residuals) do
        add_feature(features, '', node.op, node)
        add_feature(features, 'name ', node.name, node)
        for k = node.owners, #node.chain do add_feature(features, 'type ', node.chain[k].info.type, node) end
    end
    return features
end

-- Proposes the decision `inside` for the residuals of a set, and `outside` for the others. unit: of regions; nil: the
-- proposal is judged when the search is over.
local function propose_decisions(self, unit, name, is_in, inside, outside)
    local decision = binding.array('i32', self.n)
    for _, node in ipairs(self.residuals) do decision[node.index] = is_in(node.index) and inside or outside end
    check(C.wn_candidate(self.program.handle, name, self.n, unit, nil, decision))
end

-- Lists sets of residuals as a function may choose them: { name, has (position -> whether it is in the set) }. They are
-- every k-th residual, the first ones, those recorded in one module, each alone, and random ones. Where parameters
-- outweigh activations, bytes depend on how activations fit into the gradients that are lent to them: edits of good
-- plans seldom lead to the best one there.
local function sets_of(residuals)
    local sets, n, of, random = {}, #residuals, {}, 1
    local function add(name, has) sets[#sets + 1] = { name = name, has = has } end
    for k = 2, EVERY do
        for from = 1, k do add(('each %d from %d'):format(k, from), function(i) return i % k == from % k end) end
    end
    for part = 1, 3 do add(('first %d/4'):format(part), function(i) return i <= part * n / 4 end) end
    for i, node in ipairs(residuals) do
        local path = node.path or ''
        if not of[path] then
            of[path] = {}
            add('path ' .. path, function(k) return of[path][k] end)
        end
        of[path][i] = true
        add('residual ' .. i, function(k) return k == i end)
    end
    for k = 1, RANDOM do
        local bits = {}
        for i = 1, n do
            random = random * 48271 % 2147483647 -- Park and Miller's minimal standard generator
            bits[i] = random % (RANDOM + 1) < k
        end
        add('random ' .. k, function(i) return bits[i] end)
    end
    return sets
end

local function propose_sets(self, most)
    local save, drop, sets = C.WN_DECISION_SAVE, C.WN_DECISION_RECOMPUTE, sets_of(self.residuals)
    for k = 1, math.min(#sets, math.floor(most / 2)) do
        local is_in, set = {}, sets[k]
        for i, node in ipairs(self.residuals) do is_in[node.index] = set.has(i) end
        propose_decisions(self, nil, set.name, function(i) return is_in[i] end, drop, save)
        propose_decisions(self, nil, 'all but ' .. set.name, function(i) return is_in[i] end, save, drop)
    end
end

local function propose_features(self, most)
    local features = features_of(self.residuals)
    local save, drop, left = C.WN_DECISION_SAVE, C.WN_DECISION_RECOMPUTE, most
    local unit = binding.array('i32', self.n)
    local function propose(...)
        if left > 0 then propose_decisions(self, unit, ...) end
        left = left - 1
    end
    propose('recompute', function() return true end, drop, save)
    for _, f in ipairs(features) do
        propose(f.name, function(i) return f.nodes[i] end, drop, save)
        propose('all but ' .. f.name, function(i) return f.nodes[i] end, save, drop)
    end
    for a = 1, #features do
        for b = a + 1, #features do
            local x, y = features[a], features[b]
            propose(x.name .. ', ' .. y.name, function(i) return x.nodes[i] or y.nodes[i] end, drop, save)
        end
    end
end

--- Hands the proposals of an open or planned program to the library, once.
-- @param program Program
function candidates.propose(program)
    local function count(what) return C.wn_count(program.handle, what) end
    local n = count(C.WN_COUNT_NODES)
    local most = math.floor(WORK / math.max(n, 1))
    if most < FEWEST or count(C.WN_COUNT_RESIDUALS) == 0 or count(C.WN_COUNT_CANDIDATES) ~= 0 then return end
    local self, forward = { program = program, n = n }, decide.forward(program:graph())
    local scopes = scopes_of(forward)
    for i, scope in ipairs(scopes) do
        local part = i > 1 and 1 / 4 / (#scopes - 1) or #scopes > 1 and 1 / 2 or 3 / 4
        propose_cuts(self, forward, scope, math.floor(most * part))
    end
    self.residuals = residuals_of(forward)
    propose_features(self, math.floor(most / 4))
    if #self.residuals <= FEW then propose_sets(self, math.floor(most / 2)) end
end

return candidates
