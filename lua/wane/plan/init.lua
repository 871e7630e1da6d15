--- wane.plan(fn, opts): what a step would take, before it runs; and the object that says so.
--
-- The function is called once with run points captured, so it records and nothing executes; the random counter is
-- put back. Numbers are the simulator's for the schedule that would run, in bytes and seconds; where they come
-- from is in `costs`. A plan is a policy: model:checkpoint(plan) decides what it decided.
-- @module wane.plan
local moves = require 'wane.plan.moves'
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local parts = require 'wane.program.parts'
local plot = require 'wane.report.plot'
local program = require 'wane.program'
local rehearse = require 'wane.program.rehearse'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'
local upper = require 'wane.upper'
local scoped = require 'wane.scoped'

local C, check, raise = binding.C, binding.check, errors.raise
local tonumber = tonumber

local plan = {}

local instants = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after' }

--- The class of plans. Fields: peak, reserved, arena, state (bytes), seconds, base_seconds, overhead (ratio),
-- recomputed, nodes, instructions (counts), costs (text), kinds and at (bytes by name), device; packed, lossy (counts);
-- host, disk (bytes of depots), moved (bytes out and back), move_seconds, stall_seconds, hidden (ratio); first (what
-- making the states takes before the first step, as of when it is first read: see plan.first_of).
local Plan = {}
plan.Plan = Plan

local function by_kind(array)
    local out = {}
    for kind = 0, #program.kinds do out[program.kinds[kind]] = tonumber(array[kind]) end
    return out
end

local function by_instant(array)
    local out = {}
    for i, name in ipairs(instants) do out[name] = tonumber(array[i - 1]) end
    out.after_backward = out.after
    return out
end
plan.by_kind, plan.by_instant = by_kind, by_instant

-- What the seconds are made of.
local function costs_text(s, target)
    if target and target ~= 0 then
        local name = binding.text(C.wn_target_name(target))
        return ("roofline of %s, rates of its data sheet, nothing measured"):format(name)
    end
    local share = s.seconds > 0 and s.measured_seconds / s.seconds or 0
    if share == 0 then return "roofline of this machine, nothing measured: wane.profile(fn) does" end
    return ('%.0f %% of it measured on this machine, else a roofline'):format(100 * share)
end

plan.first_of = rehearse.first_of

-- `first` is found when it is asked for: it plans another program.
function Plan.__index(self, key)
    if key ~= 'first' then return Plan[key] end
    local found = plan.first_of(self.program)
    rawset(self, 'first', found)
    return found
end

--- The Plan of a planned Program.
function plan.of(p)
    local s = binding.new('struct wn_summary')
    check(C.wn_summary(p.handle, s))
    local self = { program = p, request = p.request }
    for _, name in ipairs { 'peak', 'reserved', 'arena', 'state', 'activation_bytes', 'lent', 'host', 'disk' } do
        self[name] = tonumber(s[name])
    end
    for _, name in ipairs { 'seconds', 'base_seconds', 'nodes', 'instructions', 'recomputed', 'packed', 'lossy',
        'blocks' } do self[name] = s[name] end
    self.residual_count = s.residuals
    self.overhead = s.base_seconds > 0 and s.seconds / s.base_seconds - 1 or 0
    self.kinds, self.ends, self.at = by_kind(s.peak_kinds), by_kind(s.kinds), by_instant(s.at)
    self.device = binding.text(C.wn_device_name(s.device))
    self.costs = costs_text(s, p.request.target)
    moves.fields(self, s)
    return setmetatable(self, Plan)
end

-- ---- looking ------------------------------------------------------------------------------------------------------
local function graph_of(self)
    if not rawget(self, '_graph') then rawset(self, '_graph', self.program:graph()) end
    return self._graph
end

-- Which nodes the policies that cut made regions of (found again: a plan met before was not asked for).
local function covers_of(self, graph)
    local layers, covers
    scoped('policy_query', true, function()
        layers, covers = require('wane.policy.decide').covers(graph, self.program.policy, self.program.fallback)
    end)
    return covers, layers
end

local List = {} -- rows that print as a table
List.__index = List
function List.__tostring(list)
    local rows = {}
    for i, item in ipairs(list) do rows[i] = list.row(item, i) end
    return table_.text(list.head, rows)
end

local function listed(head, row, items)
    items.head, items.row = head, row
    return setmetatable(items, List)
end

-- Who decided about a forward node: a policy, the script's region, or nobody.
local function decider_of(node, covers, layers)
    local cover, asked = covers[node.index], {}
    if cover then return tostring(layers[cover.layer].policy) end
    for _, layer in ipairs(layers) do
        if layer.policy.recipe or layer.policy.budget and node.decision == 0 then return tostring(layer.policy) end
        if layer.policy.ask and node.decision > 0 then asked[#asked + 1] = tostring(layer.policy) end
    end
    if #asked > 0 then return table.concat(asked, ' or ') end
    return node.region > 0 and 'the script' or ''
end

--- What the backward reads of the forward: a printable list of { index, op, path, bytes, shape, block, word,
-- said, by, module, line }. `word` is what the plan does: 'save', 'recompute', or an action such as 'compress:bf16';
-- `said` what was asked for, where that is an action and cannot be done; `by` who decided it ('' is nobody: saved);
-- `module` the type of the module; `line` where it is recorded, with wane.lines(true).
function Plan:residuals()
    local items, graph = {}, graph_of(self)
    local covers, layers = covers_of(self, graph)
    for _, node in ipairs(graph) do
        if node.is_residual then
            items[#items + 1] = {
                index = #items + 1, op = node.op, path = node.path or '', name = node.name, bytes = node.bytes,
                shape = node.shape, dtype = node.dtype, block = node.block, copies = node.copies,
                word = moves.word(node), said = moves.said(node), by = decider_of(node, covers, layers),
                module = node.module, line = binding.text(C.wn_line_text(node.line)),
            }
        end
    end
    return listed({ '#', 'op', 'path', 'module', 'shape', 'bytes', 'block', 'what', 'by', 'line' }, function(r)
        return { r.index, r.op, r.path, r.module, tensor.shape_text(r.shape), bytes.exact(r.bytes), r.block,
            moves.cell(r), r.by, r.line }
    end, items)
end

local phases = { [0] = 'forward', 'recompute', 'backward', 'update' }

--- The instructions in order: a printable list of { what, op, path, phase, kind, bytes, offset, workspace, live,
-- seconds, store (number of the stretch of bytes that is made or freed) }; a move also has link ('to disk', 'from host'
-- and so on) and takes, the seconds it is on that way beside the kernels.
function Plan:schedule()
    local items, step = {}, binding.new('struct wn_step')
    for i = 0, C.wn_step_count(self.program.handle) - 1 do
        check(C.wn_step(self.program.handle, i, step))
        items[i + 1] = {
            what = binding.text(step.what), op = binding.text(step.op) or '', path = binding.text(step.path) or '',
            node = step.node, copy = step.value, phase = phases[step.phase], bytes = tonumber(step.bytes),
            offset = tonumber(step.offset), workspace = tonumber(step.workspace), live = tonumber(step.live),
            is_free = step.is_free ~= 0, counts = step.counts ~= 0, inplace = step.inplace, store = step.store,
            seconds = step.seconds, kind = program.kinds[step.kind],
            link = step.link ~= nil and binding.text(step.link) or nil, takes = step.takes,
        }
    end
    return listed({ 'what', 'op', 'path', 'phase', 'bytes', 'offset', 'live' }, function(s)
        return { s.what, s.op, s.path, s.phase, bytes.exact(s.bytes), s.offset, bytes.exact(s.live) }
    end, items)
end

--- Bytes by kind over the step: row 1 before the first instruction, row i + 1 while instruction i runs, its workspace
-- among them (what frees: after it).
-- @return list of { live = bytes, name of a kind = bytes, ... }
function Plan:kinds_over_time()
    local n, count = C.wn_step_count(self.program.handle), #program.kinds + 1
    local rows, out = binding.list('int64_t', (n + 1) * count), {}
    check(C.wn_step_kinds(self.program.handle, rows))
    for i = 0, n do
        local row, live = {}, 0
        for kind = 0, count - 1 do
            local size = tonumber(rows[i * count + kind])
            row[program.kinds[kind]], live = size, live + size
        end
        row.live = live
        out[i + 1] = row
    end
    return out
end

--- Why the plan is what it is, and mistakes: a printable list of findings (see plan/explain.lua).
-- @param path file the text is written to (optional)
function Plan:explain(path)
    local graph = graph_of(self)
    local report = require('wane.plan.explain').of(self, graph, covers_of(self, graph))
    if path then plot.write(path, tostring(report) .. '\n') end
    return report
end

local edits = { 'swap', 'repeat', 'inplace', 'input', 'offset', 'cell' }

--- Runs the verifier once more - or on the schedule with an edit, which is taken back: the plan stays what it is.
-- Returns true; raises 'illegal' with the rule and the instruction.
-- @param edit nil, or { step = number in plan:schedule(), and one of swap = another step, ['repeat'] = the step to do
-- in its place, inplace = number of the input to overwrite (from 0; -1: none), input = the copy to read first,
-- offset = bytes, cell = number of the store to write }
function Plan:verify(edit)
    if edit == nil then
        check(C.wn_verify(self.program.handle))
        return true
    end
    errors.check_options(edit, { 'step', unpack(edits) }, 'plan:verify')
    local field
    for _, name in ipairs(edits) do
        if edit[name] ~= nil then field = field and '' or name end
    end
    local value = field and edit[field]
    if type(edit.step) ~= 'number' or type(value) ~= 'number' then
        raise(nil, 'value', 'plan:verify: expected an edit such as { step = 3, swap = 4 }: a step of plan:schedule() '
            .. 'and one of %s', table.concat(edits, ', '))
    end
    if field == 'swap' or field == 'repeat' then value = value - 1 end
    check(C.wn_verify_edited(self.program.handle, edit.step - 1, field, value))
    return true
end

--- The recipe: the block operations the plan was lowered from, values by their place in the forward. It prints, may be
-- edited, and is a policy: policy.recipe(plan:recipe()), or of its text (see policy/recipe.lua).
-- @return Recipe { blocks =, steps = }
function Plan:recipe()
    return require('wane.policy.recipe').from(self.program, graph_of(self))
end

--- The plan's decisions as Lua source of a policy, to be pasted into a script that records the same graph.
-- @return text of an expression; it needs `wane` in scope
function Plan:lua()
    return ('wane.policy.recipe [[ -- %d residuals, %d nodes recomputed, peak %s, reserved %s\n%s\n]]\n'):format(
        self.residual_count, self.recomputed, bytes.text(self.peak), bytes.text(self.reserved), tostring(self:recipe()))
end

--- The plan as a policy object: the same recipe for every recording of the same forward.
function Plan:as_policy()
    if not rawget(self, '_policy_object') then
        rawset(self, '_policy_object', require('wane.policy').recipe(self:recipe()))
    end
    return self._policy_object
end

--- What differs from another plan: a printable list of { what, ours, theirs, difference } (bytes, seconds, counts).
function Plan:diff(other)
    if getmetatable(other) ~= Plan then
        raise(nil, 'value', 'plan:diff: expected another plan, got %s', errors.describe(other))
    end
    local items = {}
    local function add(what, ours, theirs)
        items[#items + 1] = { what = what, ours = ours, theirs = theirs, difference = ours - theirs }
    end
    for _, name in ipairs { 'peak', 'reserved', 'arena', 'recomputed', 'seconds' } do add(name, self[name],
        other[name]) end
    for kind = 0, #program.kinds do
        local name = program.kinds[kind]
        if self.kinds[name] ~= other.kinds[name] then add(name .. ' at the peak', self.kinds[name],
            other.kinds[name]) end
    end
    local theirs, changed = {}, 0
    for _, r in ipairs(other:residuals()) do theirs[r.index] = r.word end
    for _, r in ipairs(self:residuals()) do
        if theirs[r.index] ~= r.word then changed = changed + 1 end
    end
    items.changed = changed
    return listed({ 'what', 'this', 'other', 'difference' }, function(d)
        local form = d.what == 'seconds' and '%.6f' or nil
        local function text(v) return form and form:format(v) or bytes.exact(v) end
        return { d.what, text(d.ours), text(d.theirs), text(d.difference) }
    end, items)
end

--- Live bytes by kind over the step, and the lifetimes of what is alive at the peak, as an SVG file.
-- @param path file (optional)
-- @return the file's name, or the SVG without a name
function Plan:timeline(path)
    local svg = require('wane.plan.timeline').svg(self)
    return path and plot.write(path, svg) or svg
end

--- The same for a terminal: an object that prints as lines of characters.
-- @param opts { columns = 72, rows = 16, braille = finer dots: by itself at a terminal that takes UTF-8 }
function Plan:plot(opts)
    return require('wane.plan.timeline').terminal(self, opts)
end

--- The step as a Chrome trace (opens in Perfetto and chrome://tracing): instructions on tracks by phase, in predicted
-- seconds - measured ones where the plan's program ran with timing - and bytes by kind over time.
-- @param path file (optional)
-- @return the file's name, or the JSON without a name
function Plan:trace(path)
    local text = require('wane.plan.timeline').trace(self)
    return path and plot.write(path, text) or text
end

-- ---- PyTorch ----------------------------------------------------------------------------------------------
-- Adds the bytes of the optimizer's states that a request updates.
local function add_states(list, request)
    for _, update in ipairs(request.updates or {}) do
        for k = 2, 3 do
            local cell = update.cells[k]
            if cell then
                local info = binding.new('struct wn_info')
                check(C.wn_info(type(cell) == 'number' and cell or cell.id, info))
                table.insert(list, tonumber(info.bytes))
            end
        end
    end
end

-- The graph with the regions PyTorch would be told of: marks of the script, or those a policy of units made.
local function torch_graph(self)
    local p = self.program
    if p.request.mode ~= 'backward' and p.request.mode ~= 'step' then
        raise(nil, 'value', 'plan:pytorch: the plan has no backward; plan a function that returns a loss')
    end
    if #p.request.roots ~= 1 then
        raise(nil, 'unsupported', 'plan:pytorch: %d losses; the accounting of several is not in this version',
            #p.request.roots)
    end
    local graph = p:graph()
    graph.since = p.request.since
    local covers, layers = covers_of(self, graph)
    for _, layer in ipairs(layers) do
        if layer.policy.budget or layer.policy.recipe then
            raise(nil, 'unsupported', 'plan:pytorch: %s chose value by value, torch.utils.checkpoint knows regions '
                .. 'only', tostring(layer.policy))
        end
        if layer.policy.ask then
            raise(nil, 'unsupported', 'plan:pytorch: %s decides value by value, torch.utils.checkpoint knows '
                .. 'regions only; use '
                .. 'every, segments, sqrt, recompute_all or wane.checkpoint', tostring(layer.policy))
        end
    end
    for _, node in ipairs(graph) do
        local cover = covers[node.index]
        if cover then node.region = cover.unit and -cover.unit or 0 end
        if node.phase == 'forward' and #node.inputs > 0 then graph.loss = node end
    end
    if next(covers.parents) then
        raise(nil, 'unsupported', 'plan:pytorch: regions inside regions are not in this version')
    end
    graph.extra = {}
    add_states(graph.extra, p.request)
    for _, part in ipairs(rawget(self, 'others') or {}) do add_states(graph.extra, part.request) end
    return graph
end

--- What PyTorch would have allocated for the same step: { before, after_forward, peak_forward, peak_backward,
-- after_backward } in bytes. See pytorch/init.lua for the rules and the options.
-- @param opts { sm = 80, warm = false, hold = {'inputs', 'loss', 'output', 'retained'}, torch = '2',
-- reentrant = false }
function Plan:pytorch(opts)
    return require('wane.pytorch').account(torch_graph(self), opts)
end

-- ---- printing ---------------------------------------------------------------------------------------------
local function block_rows(self)
    local rows, order = {}, {}
    for _, node in ipairs(graph_of(self)) do
        if node.phase == 'forward' and #node.inputs > 0 and node.block > 0 then
            local row = rows[node.block]
            if not row then
                row = { path = node.path or '', nodes = 0, saved = 0, dropped = 0, again = 0 }
                rows[node.block] = row
                order[#order + 1] = row
            end
            row.nodes, row.again = row.nodes + 1, row.again + math.max(0, node.copies - 1)
            if node.is_residual then
                local key = node.copies > 1 and 'dropped' or 'saved'
                row[key] = row[key] + node.bytes
            end
        end
    end
    return order
end

local function block_table(self)
    local all, rows = block_rows(self), {}
    for i, row in ipairs(all) do
        if i <= 12 or i > #all - 4 or #all <= 20 then
            rows[#rows + 1] = { i, row.path, row.nodes, bytes.text(row.saved), bytes.text(row.dropped), row.again }
        elseif i == 13 then
            rows[#rows + 1] = { '...' }
        end
    end
    return table_.text({ 'block', 'path', 'nodes', 'saved', 'dropped', 'recomputed' }, rows)
end

function Plan.__tostring(self)
    local kinds = {}
    for kind = 0, #program.kinds do
        local name = program.kinds[kind]
        if self.kinds[name] > 0 then kinds[#kinds + 1] = { name, bytes.exact(self.kinds[name]),
            bytes.text(self.kinds[name]) } end
    end
    local lines = {
        ('plan on %s: peak %s, reserved %s, arena %s, state %s'):format(self.device, bytes.text(self.peak),
            bytes.text(self.reserved), bytes.text(self.arena), bytes.text(self.state)),
        ('%d nodes, %d instructions, %d recomputed; %.3g s (%s), %+.1f %% over saving everything'):format(self.nodes,
            self.instructions, self.recomputed, self.seconds, self.costs, 100 * self.overhead),
        table_.text({ 'kind', 'bytes at the peak', '' }, kinds),
        block_table(self),
        moves.text(self, graph_of(self)),
    }
    if rawget(self, 'parts') then table.insert(lines, 4, tostring(self.parts)) end
    local fine, torch = pcall(self.pytorch, self)
    if fine then
        lines[#lines + 1] = ('PyTorch (accounting, sm_80) would need %s'):format(bytes.text(math.max(torch.peak_forward,
            torch.peak_backward)))
    end
    return table.concat(lines, '\n')
end

-- ---- making one -------------------------------------------------------------------------------------------
local options = { 'policy', 'budget', 'target' }
local later = { allow = true }

--- Refuses options that belong to later versions, by name.
function plan.check_options(opts, allowed, what)
    for name in pairs(type(opts) == 'table' and opts or {}) do
        if later[name] then raise(nil, 'unsupported', "%s: the option '%s' is not in this version", what, name) end
    end
    return errors.check_options(opts, allowed, what)
end

plan.request_of = rehearse.only

--- Plans what fn records.
-- @param fn function() that returns the loss, or runs a step: opt:step(loss), or zero_grad, backward and step() in
-- several run points; nothing runs, and gradients stay as they are
-- @param opts { policy =, budget = bytes or text, target = 'h200' (see wane.targets()) }
-- @return Plan; of several run points that of the largest program, with the peak, bytes and seconds of the whole step,
-- and `parts`, a printable list of { mode, peak, reserved, beside, live_beside, seconds }; or nil and why (an error
-- object: min_budget, holders) when no plan keeps the budget
function plan.plan(fn, opts)
    opts = plan.check_options(opts, options, 'wane.plan')
    local chosen = require('wane.program.grad').policy { policy = require('wane.policy').anew(opts.policy),
        budget = opts.budget }
    local target = upper.target(opts.target, 'wane.plan')
    local opened = rehearse.open(fn, 'wane.plan', function(request) return rehearse.with(request, chosen, target) end)
    local notes = program.notes()
    local ok, made = pcall(parts.plan, opened, chosen and type(chosen.budget) == 'number' and chosen.budget or nil)
    if ok then
        made.notes = notes
        return made
    end
    for _, part in ipairs(opened) do part.program:close() end
    if errors.is(made) and made.code == 'budget' then return nil, made end
    error(made, 0)
end

return plan
