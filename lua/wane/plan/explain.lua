--- plan:explain(): the reasons for a plan's bytes, and the lines of the script that have no effect.
--
-- The report lists the values alive at the peak, the bytes that each region (or the recomputed values of each block)
-- saves and the seconds that it costs, and mistakes, of all parts of the step. All numbers are the simulator's: the
-- bytes that a region saves are the peak of the same step planned without that region, minus the peak of the plan.
-- Nothing runs, and the plan does not change.
--
-- A report is a printable list of findings { kind = 'checkpoint' | 'policy' | 'detach' | 'gradient' | 'budget',
-- message = text, places = list of texts, bytes = number or nil }.
--
-- Fields: `peak` ({ bytes =, step = index of the instruction, op =, path =, phase =, kinds = bytes by kind, values =
-- list of { what =, op =, path =, kind =, bytes = }, largest first }), `groups` (list of { name =, ops = count of
-- nodes, dropped = bytes of residuals that are recomputed, seconds = of recomputing, saves = bytes at the peak (nil
-- where that was not computed), nodes = count of recomputed nodes, part = number among plan.parts }), `packed` (text
-- about values kept in other forms, or nil), `casts` (text about casts that are parts of other ops, or nil),
-- `exchanged` (text about what moves among ranks, or nil), `plan`.
-- @module wane.plan.explain
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local decisions = require 'wane.policy.decisions'
local iterate = require 'wane.iterate'
local moves = require 'wane.plan.moves'
local op = require 'wane.tensor.op'
local parts = require 'wane.plan.parts'
local policy_query = require 'wane.policy.query'
local scoped = require 'wane.scoped'
local sequence = require 'wane.program.sequence'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'
local utf8 = require 'wane.utf8'

local C = binding.C

local explain = {}

--- Class of reports; the head of this file lists its fields.
local Report = {}
Report.__index = Report

-- ---- the peak --------------------------------------------------------------------------------------------------

--- Finds the peak of a plan and the values that are alive there.
-- @param p Plan
-- @return { bytes =, step = index of the instruction, 0 before the first one, op =, path =, phase =, kinds = { name =
-- bytes }, values = list of { what =, op =, path =, kind =, bytes =, from =, to = instructions between which its
-- allocation lives } }; `values` are those that the step makes, largest first
-- @within Internal
function explain.peak(p)
    local steps, made, values, at, kinds, most = p:schedule(), {}, {}, 0, nil, -1
    for i, row in ipairs(p:kinds_over_time()) do
        if row.live > most then most, at, kinds = row.live, i - 1, row end
    end
    for i, s in ipairs(steps) do
        local v = made[s.store]
        if s.is_free then
            if v and i > at then v.to, values[#values + 1] = i, v end
            made[s.store] = nil
        elseif i <= at and s.copy >= 0 and s.bytes > 0 and s.counts then -- successive values may have one allocation
            made[s.store] = { what = s.path ~= '' and s.path .. ' ' .. s.op or s.op, op = s.op, path = s.path,
                kind = s.kind, bytes = s.bytes, from = v and v.from or i, to = #steps }
        end
    end
    for _, v in iterate(made) do values[#values + 1] = v end
    table.sort(values, function(a, b)
        if a.bytes ~= b.bytes then return a.bytes > b.bytes end
        return a.what < b.what
    end)
    local s = steps[at] or { op = 'nothing yet', path = '', phase = 'forward' }
    return { bytes = most, step = at, op = s.op, path = s.path, phase = s.phase, kinds = kinds, values = values }
end

-- ---- groups of recomputed values ---------------------------------------------------------------------------------
-- Returns the key of the group that a forward node belongs to - the region that a policy made, else the script's
-- region, else the block - and whether that group is a region. What is gathered from ranks and read by the backward is
-- a group of its own, since a policy of its own saves it.
local function group_key(node, covers)
    if node.op == 'all_gather' and node.is_residual then return 'gathers', false end
    local cover = covers[node.index]
    if cover and cover.unit then return 'u' .. cover.unit, true end
    if not cover and node.region > 0 then return 'r' .. node.region, true end
    return 'b' .. node.block, false
end

local function short(path)
    return path and path ~= '' and path or nil
end

-- Returns the name of a group: its kind, its number, and the paths of its modules.
local function name_of(group)
    local first, last
    for _, node in ipairs(group.members) do
        first, last = first or short(node.path), short(node.path) or last
    end
    local where = first and (first == last and first or first .. ' to ' .. last) or group.members[1].op
    if group.members[1].op == 'all_gather' then return 'gathers, ' .. where end
    if group.number == 0 then return 'data, ' .. where end -- it is in no block
    return ('%s %d, %s'):format(group.is_region and 'region' or 'block', group.number, where)
end

-- Adds the groups of a part to `kept` in forward order: every region, and the blocks of which some value is recomputed.
local function add_groups(kept, p, number, covers)
    local groups, of, graph = {}, {}, p.parts[number].graph
    local count = { [true] = 0, [false] = 0 }
    for _, node in ipairs(graph) do
        if node.position then
            local key, is_region = group_key(node, covers)
            local group = of[key]
            if not group then
                group = { is_region = is_region, members = {}, ops = 0, dropped = 0, seconds = 0, nodes = 0,
                    places = {}, part = number }
                of[key] = group
                groups[#groups + 1] = group
                count[is_region] = count[is_region] + 1
                group.number = is_region and count[true] or node.block
            end
            group.members[#group.members + 1], group.ops = node, group.ops + 1
            node.group = group
            if node.is_residual and node.copies > 1 then
                group.dropped = group.dropped + node.bytes
                group.places[#group.places + 1] = node.position
            end
        end
    end
    for _, s in ipairs(p:schedule()) do
        local node = s.part == number and graph.by_index[s.node]
        local takes = s.what == 'run' and s.seconds or s.what == 'exchange' and s.takes
        if s.phase == 'recompute' and takes and node and node.group then
            node.group.seconds, node.group.nodes = node.group.seconds + takes, node.group.nodes + 1
        end
    end
    for _, group in ipairs(groups) do
        if group.is_region or group.dropped > 0 then
            group.name = name_of(group)
            kept[#kept + 1] = group
        end
    end
end

-- Returns the numbers of a part alone, planned with the values at some places saved.
local function numbers_without(p, part, places)
    local policy, words = require 'wane.policy', {}
    for _, place in ipairs(places) do words[place] = 'save' end
    local saved, own = policy.of(function(r) return words[r.place] end), part.program.policy
    local opened = sequence.reopen(p.parts, part, own and policy.compose(saved, own) or saved)
    return scoped.always(function() opened:close() end, function() return parts.numbers(opened:plan()) end)
end

-- Plans the same step with the values of some groups saved. Returns its totals, or nil when planning fails.
local function without(p, groups)
    local places, plans = {}, {}
    for _, group in ipairs(groups) do
        places[group.part] = places[group.part] or {}
        for _, place in ipairs(group.places) do table.insert(places[group.part], place) end
    end
    local ok = pcall(function()
        for i, part in ipairs(p.parts) do plans[i] = places[i] and numbers_without(p, part, places[i]) or part end
    end)
    return ok and parts.totals(p.parts, plans) or nil
end

local MOST = 32 -- groups that are planned without, at most: each of them takes as long as the plan itself

-- Calls look(layer, number of the part) for every policy that decides about a part.
local function each_layer(layers, look)
    for number, list in ipairs(layers) do
        for _, layer in ipairs(list) do look(layer, number) end
    end
end

local function is_bounded(layers)
    local found = false
    each_layer(layers, function(layer) found = found or layer.policy.budget or layer.policy.recipe end)
    return found
end

-- Sets `saves` of each group. Returns the groups that could all be saved at no higher peak. The search goes from the
-- last group back, because the backward reads the values of the last group first.
local function weigh(p, groups, layers)
    if is_bounded(layers) or #groups > MOST then return {} end
    local candidates, useless = {}, {}
    for _, group in ipairs(groups) do
        local other = group.dropped > 0 and without(p, { group })
        group.saves = group.dropped == 0 and 0 or other and other.peak - p.peak or nil
        if other and other.peak <= p.peak and other.reserved <= p.reserved then candidates[#candidates + 1] = group end
    end
    for i = #candidates, 1, -1 do
        useless[#useless + 1] = candidates[i]
        local other = #useless > 1 and without(p, useless)
        if #useless > 1 and not (other and other.peak <= p.peak and other.reserved <= p.reserved) then
            useless[#useless] = nil
        end
    end
    return useless
end

-- ---- mistakes ----------------------------------------------------------------------------------------------------
-- Returns the text of a node for a message: its op or name, the module's path, and the line that recorded it.
local function place_of(node)
    local words = node.op
    if node.op == 'cell' then words = node.name ~= '' and node.name or 'a parameter'
    elseif short(node.path) then words = ("%s of '%s'"):format(words, node.path) end
    local line = binding.text(C.wn_line_text(node.line))
    return line ~= '' and words .. ' at ' .. line or words
end

local function listed(places)
    if #places <= 4 then return table.concat(places, ', ') end
    return table.concat(places, ', ', 1, 3) .. (' and %d more'):format(#places - 3)
end

local function add(report, kind, places, size, message)
    report[#report + 1] = { kind = kind, places = places, bytes = size, message = message }
end

-- Returns the reason why a region drops nothing.
local function why_nothing(group)
    if group.ops == 1 then
        return ('what the backward of %s reads lies outside of it'):format(group.members[1].op)
    end
    return 'what its backward reads is kept anyway, outside of it or as its output'
end

-- Adds findings about regions that drop nothing, groups that could be saved at no higher peak, policies that make no
-- region, and notes of the plan.
local function find_checkpoints(report, p, groups, useless, layers, covers)
    local places, first = {}, nil
    for _, group in ipairs(groups) do
        if group.is_region and group.dropped == 0 then
            places[#places + 1], first = group.name, first or group
        end
    end
    if first then
        add(report, 'checkpoint', places, 0, ('%s %s 0 bytes: %s'):format(listed(places), #places == 1 and 'saves'
            or 'save', why_nothing(first)))
    end
    local seconds, names = 0, {}
    for i, group in ipairs(useless) do seconds, names[#useless - i + 1] = seconds + group.seconds, group.name end
    if #names > 0 then
        add(report, 'checkpoint', names, 0, ('%s: recomputing takes %.3g s and saves 0 bytes, the peak is %s bytes '
            .. 'with these values kept too'):format(listed(names), seconds, bytes.exact(p.peak)))
    end
    local has = {}
    for number, list in ipairs(covers) do
        for node, cover in iterate(list) do
            local policy = node ~= 'parents' and layers[number][cover.layer].policy
            if policy then has[policy] = has[policy] or cover.unit end
        end
    end
    each_layer(layers, function(layer)
        local name = tostring(layer.policy)
        if layer.policy.cut and name ~= 'save_all' and not has[layer.policy] then
            has[layer.policy] = true
            add(report, 'checkpoint', { name }, 0, ('%s saves 0 bytes: it makes no region here, the last segment is '
                .. 'kept'):format(name))
        end
    end)
    for _, note in ipairs(p.notes or {}) do add(report, 'checkpoint', { note.place }, 0, note.message) end
end

-- Tells whether a key of a policy by type, op, name or path matches a residual.
local function fits(policy, r, key)
    local found = false
    for _, name in ipairs(decisions.names_of[policy.keys_of](r)) do
        if policy.is_pattern then found = name:find(key) ~= nil else found = found or name == key end
    end
    return found
end

-- Lists the policies that decide value by value and have no effect in any part, as { policy =, key = or nil }: a policy
-- without a decision for any residual of its module, and a key with the decision 'recompute' that matches no residual.
-- Policies with `optional` are skipped, and those by op that decide about gathers, of which one rank makes none.
local function silent_policies(p, layers)
    local list, residuals, looked = {}, {}, {}
    for i, part in ipairs(p.parts) do residuals[i] = policy_query.residuals(part.program, part.graph) end
    local function is_met(policy, test)
        local is = false
        each_layer(layers, function(layer, number)
            if is or layer.policy ~= policy then return end
            for _, each in ipairs(residuals[number]) do
                is = is or policy_query.owned_by(each.node, layer.scope) and test(each.seen)
            end
        end)
        return is
    end
    local function look(layer)
        local before, policy = #list, layer.policy
        if looked[policy] or not policy.ask or policy.optional or policy.gathers and policy.keys then return end
        looked[policy] = true
        for _, key in ipairs(policy.keys or {}) do
            local is_idle = policy.decisions[key] == 'recompute'
                and not is_met(policy, function(r) return fits(policy, r, key) end)
            if is_idle then list[#list + 1] = { policy = policy, key = key } end
        end
        if #list == before and not is_met(policy, function(r) return policy_query.decision(policy, r) end) then
            list[#list + 1] = { policy = policy }
        end
    end
    scoped('policy_query', true, each_layer, layers, look)
    return list
end

-- Adds findings about policies that decide value by value and match no residual.
local function find_policies(report, p, layers)
    for _, silent in ipairs(silent_policies(p, layers)) do
        local name = tostring(silent.policy)
        local who = silent.key and ("'%s' of %s"):format(silent.key, name) or name
        add(report, 'policy', { who }, 0, ('%s decides about none of the %d values that the backward reads '
            .. '(plan:residuals() lists them); what a module returns belongs to its caller'):format(who,
            p.residual_count))
    end
end

-- Follows gradients from the loss of a part to the parameters. Adds to three lists of nodes: those at which a gradient
-- stops because they are detached, those at which it stops because their op has no gradient, and the parameters that no
-- gradient reaches. trained[serial of the node]: parameters that one reaches, in any part.
local function flow(graph, cut, blocked, starved, trained)
    local at = { [cut] = #cut, [blocked] = #blocked, [starved] = #starved }
    local is_read, reached = {}, {}
    for _, node in ipairs(graph) do
        if node.phase == 'forward' then
            for _, input in ipairs(node.inputs) do is_read[input] = true end
        end
    end
    for i = #graph, 1, -1 do
        local node = graph[i]
        if node.phase == 'forward' then
            local is_on = node.needs_grad and (reached[node] or not is_read[node])
            local is_stop = false
            for _, input in ipairs(node.inputs) do
                if is_on then reached[input] = true end
                is_stop = is_stop or input.needs_grad and not node.needs_grad
            end
            if is_stop then
                local is_cut = op.rows[node.op].is_differentiable and tensor.is_float[tensor.dtype_id[node.dtype]]
                local list = is_cut and cut or blocked
                table.insert(list, at[list] + 1, node)
            end
            if node.op == 'cell' and node.needs_grad and reached[node] then
                trained[node.serial] = true
            elseif node.op == 'cell' and node.needs_grad and is_read[node] then
                table.insert(starved, at[starved] + 1, node)
            end
        end
    end
end

local function places_of(nodes)
    local list = {}
    for i, node in ipairs(nodes) do list[i] = place_of(node) end
    return list
end

-- Adds findings about values that are detached on the way to the loss, and about parameters without a gradient.
local function find_gradients(report, p)
    local cut, blocked, missing, trained, starved, size = {}, {}, {}, {}, {}, 0
    for _, part in ipairs(p.parts) do
        if sequence.chooses(part.request) then flow(part.graph, cut, blocked, missing, trained) end
    end
    for _, node in ipairs(missing) do
        if not trained[node.serial] then
            trained[node.serial], starved[#starved + 1], size = true, node, size + node.bytes
        end
    end
    if #cut > 0 then
        local places = places_of(cut)
        add(report, 'detach', places, nil, ('%s: computed from parameters, and detached (t:detach(), wane.no_grad) on '
            .. 'the way to the loss, so no gradient passes; %s'):format(listed(places), #starved == 0
            and 'every parameter gets one another way' or ('%d parameters get none'):format(#starved)))
    end
    if #starved > 0 then
        local places, stops = places_of(starved), places_of(#cut > 0 and cut or blocked)
        add(report, 'gradient', places, size, ('%s: %d %s of %s that a gradient is asked for, and none arrives%s; set '
            .. 'requires_grad = false if that is meant'):format(listed(places), #starved, #starved == 1 and 'parameter'
            or 'parameters', bytes.text(size), #stops > 0 and ' (it stops at ' .. listed(stops) .. ')' or ''))
    end
end

-- Returns a line about the casts that are taken into the ops beside them, or nil where there are none.
local function casts_text(p)
    local read, written, ops, names = 0, 0, {}, {}
    for _, part in ipairs(p.parts) do
        for _, node in ipairs(part.graph) do
            if node.op == 'cast' and node.computed == '' then read = read + 1 end
            if node.op == 'cast' and node.computed ~= '' and node.computed ~= 'cast' then
                if not ops[node.computed] then names[#names + 1] = node.computed end
                written, ops[node.computed] = written + 1, (ops[node.computed] or 0) + 1
            end
        end
    end
    if read + written == 0 then return nil end
    table.sort(names)
    for i, name in ipairs(names) do names[i] = ('%s %d'):format(name, ops[name]) end
    return ('casts that are never computed by themselves: %d are read as they were before, %d are what an op writes%s')
        :format(read, written, #names > 0 and ' (' .. table.concat(names, ', ') .. ')' or '')
end

-- ---- the report --------------------------------------------------------------------------------------------------

--- Makes the report of a plan.
-- @param p Plan, whose parts have their graphs
-- @param covers of each part: index of a node -> the region that a policy made around it
-- @param layers of each part: policies that decide about its graph
-- @return Report
-- @within Internal
function explain.of(p, covers, layers)
    local groups = {}
    for number in ipairs(p.parts) do add_groups(groups, p, number, covers[number]) end
    local useless = weigh(p, groups, layers)
    local report = setmetatable({ plan = p, peak = explain.peak(p), groups = groups, packed = moves.text(p),
        exchanged = moves.exchanges(p), casts = casts_text(p) }, Report)
    find_checkpoints(report, p, groups, useless, layers, covers)
    find_policies(report, p, layers)
    find_gradients(report, p)
    for _, group in ipairs(groups) do group.members, group.places = nil, nil end
    return report
end

--- Makes the report of a budget that no plan fits: one finding, with what holds the bytes of the smallest plan.
-- @param why error object of wane.plan, with min_budget, budget and holders
-- @return Report
-- @within Internal
function explain.budget(why)
    local places = {}
    for i, h in ipairs(why.holders) do places[i] = ('%s %s'):format(h.what, bytes.text(h.bytes)) end
    return setmetatable({ { kind = 'budget', places = places, bytes = why.min_budget, message = why.message } }, Report)
end

-- Returns the text about the peak: where it is, bytes by kind, and the six largest values.
local function peak_text(peak, plan_)
    local rows = {}
    for i = 1, math.min(6, #peak.values) do
        local v = peak.values[i]
        rows[i] = { v.op, v.path, v.kind, bytes.exact(v.bytes) }
    end
    return ('the peak, %s bytes (%s), is at instruction %d of %d: %s%s, %s\n'):format(bytes.exact(peak.bytes),
        bytes.text(peak.bytes), peak.step, plan_.instructions, peak.op, short(peak.path) and " of '" .. peak.path .. "'"
        or '', peak.phase) .. table_.text({ 'kind', 'bytes there', '' }, parts.kind_rows(peak.kinds)) .. '\n'
        .. table_.text({ 'largest values there', 'path', 'kind', 'bytes' }, rows)
end

-- Returns the table of the first 16 groups.
local function group_text(groups)
    if #groups == 0 then return 'nothing is recomputed' end
    local rows = {}
    for i, g in ipairs(groups) do
        if i <= 16 then
            rows[i] = { g.name, bytes.text(g.dropped), g.saves and bytes.exact(g.saves) or '', g.nodes, ('%.3g'):format(
                g.seconds) }
        end
    end
    if #groups > 16 then rows[17] = { ('and %d more'):format(#groups - 16) } end
    return parts.text({ 'recomputed', 'drops', 'saves at the peak', 'ops again', 'seconds' }, rows, groups)
end

function Report.__tostring(r)
    local out = {}
    if r.plan then
        out[1], out[2] = peak_text(r.peak, r.plan), group_text(r.groups)
        out[3] = r.packed -- nil where no value is kept in another form
        out[#out + 1] = r.casts
        out[#out + 1] = r.exchanged
        out[#out + 1] = #r == 0 and 'no mistakes found' or ('%d %s:'):format(#r, #r == 1 and 'mistake' or 'mistakes')
    end
    for _, finding in ipairs(r) do out[#out + 1] = '- ' .. finding.message end
    return utf8.shown(table.concat(out, '\n'), '\n')
end

return explain
