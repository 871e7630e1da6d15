--- Class Plan: the bytes and seconds of a step before it runs, its decisions, and its schedule.
--
-- wane.plan (plan/step.lua) makes plans. The numbers are the simulator's for the schedule that a run would execute;
-- the field `costs` says where the seconds come from. A plan is a policy too: model:checkpoint(plan) repeats its
-- decisions. It is of a whole step: `parts` lists its programs, one for each run point, or for several that are alike,
-- such as micro-batches. Bytes are maxima over them, each with what the others hold beside it; seconds are sums.
--
-- Fields of a plan, in bytes unless said otherwise:
--
-- * `peak`: the most alive at once; `reserved`: the most taken from the device; `arena`: height of the arena; `state`:
-- parameters, gradients and other states that exist before the step; `activation_bytes`: of all residuals; `lent`: of
-- gradient slabs that activations use;
-- * `kinds`, `kinds_before`: by kind at the peak, and before the first instruction; `at`: before, after_forward,
-- peak_forward, peak_backward and after, the most of any part with a backward;
-- * `seconds`, `base_seconds`: of the step, and of the step without recomputation; `overhead`: their ratio minus 1;
-- `costs`: text that says where the seconds come from;
-- * `nodes`, `instructions`, `recomputed`, `blocks`, `residual_count`: counts, like activation_bytes of each part once;
-- `device`: name;
-- * `packed`, `lossy`: counts of values kept in another form, and of those that lose bits;
-- * `host`, `disk`: of the offload buffers; `moved`: offloaded and fetched; `move_seconds`, `stall_seconds`: seconds of
-- transfers, and of them waited for; `hidden`: share of move_seconds that no instruction waits for;
-- * `wire`: { sent, got = bytes among ranks (wane.dist) that this one sends and gets, sent_outside, got_outside = of
-- those, to and from other machines }; `wire_seconds`, `wait`: seconds of exchanges, and of them waited for;
-- * `first`: { cells = states and retained data that the first step makes, peak =, reserved = (of the whole first
-- step), beside = of the data that states begin as }.
-- @module wane.plan
local moves = require 'wane.plan.moves'
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local display = require 'wane.plan.display'
local errors = require 'wane.errors'
local misspelt = require 'wane.module.misspelt'
local parts = require 'wane.plan.parts'
local plot = require 'wane.report.plot'
local policy = require 'wane.policy'
local program = require 'wane.program'
local sequence = require 'wane.program.sequence'
local tensor = require 'wane.tensor'
local torchgraph = require 'wane.pytorch.graph'
local scoped = require 'wane.scoped'
local target_of = require 'wane.plan.costs.target'
local targets = require 'wane.plan.costs.targets'

local C, check, iterate, raise = binding.C, binding.check, errors.iterate, errors.raise

local plan = {}

--- Class of plans; the head of this file lists its fields.
local Plan = {}
plan.Plan = Plan

-- Returns the text that says where the seconds of a plan come from.
local function costs_text(s, target, is_gpu)
    if target and target ~= 0 then
        local name = binding.text(C.wn_target_name(target))
        local classes = targets[name] and targets[name].classes
        if classes then return ('rates of %s, %s; else its roofline'):format(name, classes.source) end
        return ("roofline of %s, rates of its data sheet, nothing measured"):format(name)
    end
    local share = s.seconds > 0 and s.measured_seconds / s.seconds or 0
    if share == 0 then
        local name, classes = nil, nil
        if is_gpu then name, classes = target_of.shipped() end
        if not name then return "roofline of this machine, nothing measured: wane.profile(fn) does" end
        return ('rates of %s, %s; else its roofline: wane.profile(fn) measures this machine'):format(name,
            classes.source)
    end
    return ('%.0f %% of it measured on this machine, else a roofline'):format(100 * share)
end

Plan.__index = Plan
setmetatable(Plan, { __index = misspelt.index(Plan, function() return 'a plan' end, 2) })

local states = { 'parameter', 'buffer', 'optimizer', 'gradient' }

--- Makes the Plan of a step.
-- @param list planned or run parts of program/sequence.lua; their numbers are put into them
-- @return Plan
-- @within Internal
function plan.of(list)
    for _, part in ipairs(list) do
        for name, value in iterate(parts.numbers(part.program)) do part[name] = value end
        part.mode, part.times, part.policy = part.request.mode, #part.points, part.program.policy
    end
    local self, start = parts.totals(list), list[1]
    self.parts, self.first, self.device = setmetatable(list, parts.List), parts.first(list), start.device
    self.kinds_before, self.state = parts.plus(start.kinds_before, start.kinds_beside), start.state
    for _, name in ipairs(states) do self.state = self.state + start.kinds_beside[name] end
    self.overhead = self.base_seconds > 0 and self.seconds / self.base_seconds - 1 or 0
    self.hidden = self.move_seconds > 0 and math.max(0, 1 - self.stall_seconds / self.move_seconds) or 0
    self.wire = parts.wire(self)
    self.costs, self.measured_seconds = costs_text(self, start.request.target, start.device == 'cuda'), nil
    return setmetatable(self, Plan)
end

local none = setmetatable({}, { __index = function() return 0 end })

--- Makes the Plan of a planned program alone, beside which nothing is.
-- @within Internal
function plan.alone(p)
    return plan.of { { program = p, request = p.request, points = { 1 }, beside = 0, live_beside = 0, first_beside = 0,
        first_live_beside = 0, kinds_beside = none, first = none } }
end

-- ---- looking ------------------------------------------------------------------------------------------------------

-- Returns the parts of a plan, each with the nodes of its program in `graph`.
local function read(self)
    for _, part in ipairs(self.parts) do part.graph = part.graph or part.program:graph() end
    return self.parts
end

-- Returns the regions that policies made in a part, by the index of a node, and the policies. They are computed again,
-- because a plan that comes from the cache was made without asking the policies.
local function covers_of(part, graph)
    local layers, covers
    scoped('policy_query', true, function()
        layers, covers = require('wane.policy.decide').covers(graph, part.program.policy, part.program.fallback)
    end)
    return covers, layers
end

local List = {} -- class of lists whose rows print as a table
List.__index = List
function List.__tostring(list)
    local rows = {}
    for i, item in ipairs(list) do rows[i] = list.row(item, i) end
    return parts.text(list.head, rows, list)
end

local function listed(head, row, items)
    items.head, items.row = head, row
    return setmetatable(items, List)
end

-- Returns who decided about a forward node: the text of a policy, 'the script' for a marked region, or ''.
local function decider_of(node, covers, layers)
    local cover, asked, is_gathered = covers[node.index], {}, node.op == 'all_gather'
    if cover and not is_gathered then return tostring(layers[cover.layer].policy) end
    for _, layer in ipairs(layers) do
        if layer.policy.recipe or layer.policy.budget and node.decision == 0 then return tostring(layer.policy) end
        local speaks = layer.policy.ask and (layer.policy.gathers or not is_gathered)
        if speaks and node.decision > 0 then asked[#asked + 1] = tostring(layer.policy) end
    end
    if #asked > 0 then return table.concat(asked, ' or ') end
    return node.region > 0 and 'the script' or ''
end

--- Lists the residuals: the forward values that the backward reads.
-- @return printable list of { index =, op =, path =, name =, bytes =, shape =, dtype =, block =, copies = (count of its
-- computations), word = (what the plan does: 'save', 'recompute', or an action such as 'compress:bf16'), said = (the
-- action that a policy gave and that cannot be done, or nil), by = (who decided; '' where nobody did and it is saved),
-- module = (type of the module), line = (where it was recorded, with wane.lines(true)), part = (number among
-- plan.parts) }
-- @usage
-- print(wane.plan(function() return model(x):sum() end):residuals())
function Plan:residuals()
    local items = {}
    for number, part in ipairs(read(self)) do
        local covers, layers = covers_of(part, part.graph)
        for _, node in ipairs(part.graph) do
            if node.is_residual then
                local is_said = node.decision > C.WN_DECISION_RECOMPUTE and node.action == 0
                items[#items + 1] = {
                    index = #items + 1, op = node.op, path = node.path or '', name = node.name, bytes = node.bytes,
                    shape = node.shape, dtype = node.dtype, block = node.block, copies = node.copies,
                    word = moves.decision(node), said = is_said and policy.decision_name(node.decision) or nil,
                    by = decider_of(node, covers, layers),
                    module = node.module, line = binding.text(C.wn_line_text(node.line)), part = number,
                }
            end
        end
    end
    return listed({ '#', 'op', 'path', 'module', 'shape', 'bytes', 'block', 'what', 'by', 'line' }, function(r)
        return { r.index, r.op, r.path, r.module, tensor.shape_text(r.shape), bytes.exact(r.bytes), r.block,
            r.said and ('%s (no %s)'):format(r.word, r.said) or r.word, r.by, r.line }
    end, items)
end

--- Adds up the residuals by type, path, op, name or block: bytes that are saved, dropped (and recomputed), moved
-- (offloaded) and compressed. The sums are those of the plan, to the byte, over all its parts. Types and paths are
-- those that policy.by_type and policy.by_path decide by; a block is of one part.
-- @param what 'type', 'path', 'op', 'name' or 'block'
-- @param opts { depth = names of a path that tell groups apart, from 1 } of 'path' (optional)
-- @return printable { what =, rows = list of { name =, values = (count), bytes =, saved =, dropped =, moved =,
-- compressed = (bytes), recomputed = (count of nodes), part = (of a block) }, total = such a row }; paths and blocks
-- are in the order of the forward, others by bytes
-- @raise 'value' for another word or wrong options
-- @usage
-- local plan = wane.plan(function() return model(x):sum() end, { policy = 'every(1)' })
-- print(plan:by('path', { depth = 1 }).total.bytes == plan.activation_bytes) --> true
-- print(plan:by('type').rows[1].name) --> Sequential
function Plan:by(what, opts)
    return require('wane.plan.by').of(read(self), what, opts)
end

--- Lists the instructions in order.
-- @return printable list of { what =, op =, path =, node =, phase =, kind =, bytes =, offset =, workspace = (bytes),
-- live = (bytes), seconds =, store = (number of the allocation that the instruction makes or frees), copy = (number of
-- the value), is_free =, counts = (whether its bytes are live bytes), inplace = (input that it overwrites) }. A
-- transfer also has link = ('to disk', 'from disk', 'to host' or 'from host') and takes = (its seconds on that link).
-- The instructions of one part follow those of the one before, once. Fields `part`, `program` and `at`: the number of
-- the part, its Program, and the number of the instruction in that program, from 0.
-- @usage
-- print(wane.plan(function() return model(x):sum() end):schedule())
function Plan:schedule()
    local items, first_store = {}, 0
    for number, part in ipairs(self.parts) do
        local step, most, phase_of = binding.new('struct wn_step'), -1, part.program:phases()
        for i = 0, C.wn_count(part.program.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
            check(C.wn_step(part.program.handle, i, step))
            most = math.max(most, step.store)
            items[#items + 1] = {
                what = binding.text(step.what), op = binding.text(step.op) or '', path = binding.text(step.path) or '',
                node = step.node, copy = step.value, phase = phase_of(step.phase), bytes = tonumber(step.bytes),
                offset = tonumber(step.offset), workspace = tonumber(step.workspace),
                live = tonumber(step.live) + part.live_beside, is_free = step.is_free ~= 0, counts = step.counts ~= 0,
                inplace = step.inplace, store = step.store < 0 and step.store or first_store + step.store,
                seconds = step.seconds, kind = program.kinds[step.kind],
                link = step.link ~= nil and binding.text(step.link) or nil, takes = step.takes,
                sent = tonumber(step.sent), sent_outside = tonumber(step.sent_outside),
                program = part.program, at = i, part = number,
            }
        end
        first_store = first_store + most + 1
    end
    return listed({ 'what', 'op', 'path', 'phase', 'bytes', 'offset', 'live' }, function(s)
        return { s.what, s.op, s.path, s.phase, bytes.exact(s.bytes), s.offset, bytes.exact(s.live) }
    end, items)
end

--- Lists the live bytes by kind over the step.
--
-- Row 1 describes the moment before the first instruction. Row i + 1 describes the moment while instruction i runs, its
-- workspace included, or the moment after instruction i where that frees bytes.
-- @return list of { live = bytes, [name of a kind] = bytes }
-- @usage
-- for i, row in ipairs(wane.plan(function() return model(x):sum() end):kinds_over_time()) do print(i, row.live) end
function Plan:kinds_over_time()
    local out, count = {}, #program.kinds + 1
    for _, part in ipairs(self.parts) do
        local n = C.wn_count(part.program.handle, C.WN_COUNT_INSTRUCTIONS)
        local rows = binding.list('int64_t', (n + 1) * count)
        check(C.wn_step_kinds(part.program.handle, rows))
        for i = #out == 0 and 0 or 1, n do -- what is there before a later part is what the one before it left
            local row, live = {}, 0
            for kind = 0, count - 1 do
                local name = program.kinds[kind]
                row[name] = tonumber(rows[i * count + kind]) + part.kinds_beside[name]
                live = live + row[name]
            end
            row.live = live
            out[#out + 1] = row
        end
    end
    return out
end

--- Explains the plan: what holds its peak, what its regions save and cost, and lines of the script without effect.
-- @param path file that the text is written to (optional)
-- @return printable list of findings (the head of plan/explain.lua says more)
-- @raise 'io' where the file cannot be written
-- @usage
-- print(wane.plan(function() return model(x):sum() end, { policy = 'every(1)' }):explain())
function Plan:explain(path)
    local layers, covers = {}, {}
    for i, part in ipairs(read(self)) do covers[i], layers[i] = covers_of(part, part.graph) end
    local report = require('wane.plan.explain').of(self, covers, layers)
    if path then plot.write(path, tostring(report) .. '\n') end
    return report
end

--- Runs the verifier again on the schedule.
-- @return true
-- @raise 'illegal', with the rule and the instruction; 'value' for an argument: a schedule is no longer edited here
-- @usage print(wane.plan(function() return model(x):sum() end):verify()) --> true
function Plan:verify(edit)
    if edit ~= nil then
        raise(nil, 'value', 'plan:verify: takes nothing, schedules are no longer edited; edit the recipe of the plan, '
            .. 'p = policy.recipe(text), whose rules wane.plan(fn, { policy = p }) checks')
    end
    for _, part in ipairs(self.parts) do check(C.wn_verify(part.program.handle)) end
    return true
end

-- Returns the parts with a backward, or the one of this number; all where there is none.
local function deciding(self, number, what)
    local list = {}
    for i, part in ipairs(read(self)) do
        if i == number or number == nil and sequence.chooses(part.request) then list[#list + 1] = part end
    end
    if number ~= nil and #list == 0 then
        raise(nil, 'value', '%s: expected the number of a part, from 1 to %d, got %s', what, #self.parts,
            errors.describe(number))
    end
    return #list > 0 and list or self.parts
end

--- Returns the recipe that the plan was lowered from: block operations, with values named by their place in the
-- forward.
--
-- A recipe prints, may be edited, and is a policy by policy.recipe, as an object or as its text (policy/recipe.lua).
-- @param number of a part, where several have recipes that differ (optional)
-- @return Recipe { blocks =, steps = }
-- @raise 'value' without a number for a step with recipes that differ
-- @usage
-- print(wane.plan(function() return model(x):sum() end, { policy = 'every(1)' }):recipe())
function Plan:recipe(number)
    local found
    for _, part in ipairs(deciding(self, number, 'plan:recipe')) do
        local own = require('wane.policy.recipe').from(part.program, part.graph)
        if found and own ~= found then
            raise(nil, 'value', 'plan:recipe: the step has several backwards, whose recipes differ; say which, by its '
                .. 'number in plan.parts:\n%s', tostring(self.parts))
        end
        found = own
    end
    return found
end

--- Returns the plan's decisions as the Lua source of a policy, for a script that records the same graph.
-- @param number as of plan:recipe (optional)
-- @return text of an expression that reads the variable `wane`; a name of the model stands in a comment of it alone
-- @usage
-- print(wane.plan(function() return model(x):sum() end):lua())
function Plan:lua(number)
    local text, level = tostring(self:recipe(number)), ''
    while text:find(']' .. level .. ']', 1, true) do level = level .. '=' end -- no name may end the brackets
    return ('wane.policy.recipe [%s[ -- %d residuals, %d nodes recomputed, peak %s, reserved %s\n%s\n]%s]\n'):format(
        level, self.residual_count, self.recomputed, bytes.text(self.peak), bytes.text(self.reserved), text, level)
end

--- Returns the plan as a policy object: the same recipe for every recording of the same forward.
-- @param number as of plan:recipe (optional)
-- @return policy, the same object every time
-- @usage
-- local plan = wane.plan(function() return model(x):sum() end, { policy = 'recompute_all' })
-- model(x):sum():backward { policy = plan:as_policy() }
function Plan:as_policy(number)
    local part = deciding(self, number, 'plan:as_policy')[1]
    part.as_policy = part.as_policy or policy.recipe(self:recipe(number))
    return part.as_policy
end

--- Lists how the plan differs from another one in bytes, seconds and counts.
-- @param other Plan
-- @return printable list of { what =, ours =, theirs =, difference = ours - theirs }; its field `changed` counts the
-- residuals that the two plans treat differently
-- @raise 'value' for an argument that is not a plan
-- @usage
-- local function loss() return model(x):sum() end
-- print(wane.plan(loss, { policy = 'every(1)' }):diff(wane.plan(loss)))
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
    for _, name in ipairs(program.kind_names) do
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

--- Draws live bytes by kind over the instructions, and the lifetimes of the values alive at the peak, as SVG.
-- @param path file to write (optional)
-- @return the name of the file; without a path, the SVG
-- @raise 'io' where the file cannot be written
-- @usage
-- print(#wane.plan(function() return model(x):sum() end):timeline())
function Plan:timeline(path)
    local svg = require('wane.plan.timeline').svg(self)
    return path and plot.write(path, svg) or svg
end

--- Draws live bytes over the instructions for a terminal.
-- @param opts { columns = 72 or what a narrower terminal has room for, rows = 16, braille = (finer dots; without it, at
-- a terminal that takes UTF-8) }
-- @return an object that prints as lines of characters
-- @raise 'value' for wrong options
-- @usage
-- print(wane.plan(function() return model(x):sum() end):plot { columns = 40, rows = 6 })
function Plan:plot(opts)
    return require('wane.plan.timeline').terminal(self, opts)
end

--- Writes the step as a Chrome trace, for Perfetto and chrome://tracing: instructions on one track a phase, transfers
-- on one track a link, and bytes by kind over time. Seconds are predicted, or measured where the program ran with
-- timing.
-- @param path file to write (optional)
-- @return the name of the file; without a path, the JSON
-- @raise 'io' where the file cannot be written
-- @usage
-- print(wane.plan(function() return model(x):sum() end):trace():sub(1, 40))
function Plan:trace(path)
    local text = require('wane.plan.timeline').trace(self)
    return path and plot.write(path, text) or text
end

-- ---- PyTorch ----------------------------------------------------------------------------------------------

--- Returns the bytes that PyTorch would allocate for the same step. The head of pytorch/init.lua states the rules and
-- the options. Of several backwards, those of the one with the highest peak.
-- @param opts { sm = 80, warm = false, hold = {'inputs', 'loss', 'output', 'retained'}, torch = '2',
-- reentrant = false }
-- @return { before =, after_forward =, peak_forward =, peak_backward =, after_backward = } in bytes, and `workspaces` =
-- { peak_forward =, peak_backward = }, how much of the peaks are workspaces of libraries and not values, and `unknown`,
-- list of { op =, count = } of ops whose bytes are left out because the accounting does not know them
-- @raise 'value' for a plan without a backward or wrong options; 'unsupported' for several losses, backwards of several
-- models, policies that decide value by value, and regions inside regions
-- @usage
-- print(wane.plan(function() return model(x):sum() end):pytorch().peak_backward)
function Plan:pytorch(opts)
    local most, size = nil, -1
    for _, graph in ipairs(torchgraph.of(deciding(self), self.parts, covers_of)) do
        local at = require('wane.pytorch').account(graph, opts)
        local peak = math.max(at.peak_forward, at.peak_backward)
        if peak > size then most, size = at, peak end
    end
    return most
end

-- ---- printing ---------------------------------------------------------------------------------------------
function Plan.__tostring(self)
    return display.text(self, read(self))
end

-- ---- making one -------------------------------------------------------------------------------------------
local gone = { fused = 'opt:step(loss) is how an optimizer steps, so leave it out; lines = true is for zero_grad, '
    .. 'backward and step' }

--- Checks options as errors.check_options does, and refuses options of former versions by name.
-- @param opts table of options, or nil
-- @param allowed list of names
-- @param what opens the message of an error
-- @return opts, or an empty table for nil
-- @raise 'value' for an option of a former version, and an unknown one
-- @within Internal
function plan.check_options(opts, allowed, what)
    for name in iterate(type(opts) == 'table' and opts or {}) do
        if gone[name] then raise(nil, 'value', "%s: the option '%s' is gone: %s", what, name, gone[name]) end
    end
    return errors.check_options(opts, allowed, what)
end

return plan
