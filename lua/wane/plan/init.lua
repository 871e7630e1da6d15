--- Class Plan: the bytes and seconds of a step before it runs, its decisions, and its schedule.
--
-- wane.plan (plan/step.lua) makes plans. The numbers are the simulator's for the schedule that a run would execute;
-- the field `costs` says where the seconds come from. A plan is a policy too: model:checkpoint(plan) repeats its
-- decisions.
--
-- Fields of a plan, in bytes unless said otherwise:
--
-- * `peak`: the most alive at once; `reserved`: the most taken from the device; `arena`: height of the arena; `state`:
-- parameters, gradients and other states that exist before the step; `activation_bytes`: of all residuals; `lent`: of
-- gradient slabs that activations use;
-- * `kinds`, `kinds_before`: by kind at the peak, and before the first instruction; `at`: before the step,
-- after_forward, peak_forward, peak_backward and after the step;
-- * `seconds`, `base_seconds`: of the step, and of the step without recomputation; `overhead`: their ratio minus 1;
-- `costs`: text that says where the seconds come from;
-- * `nodes`, `instructions`, `recomputed`, `blocks`, `residual_count`: counts; `device`: name;
-- * `packed`, `lossy`: counts of values kept in another form, and of those that lose bits;
-- * `host`, `disk`: of the offload buffers; `moved`: offloaded and fetched; `move_seconds`, `stall_seconds`: seconds of
-- transfers, and of them waited for; `hidden`: share of move_seconds that no instruction waits for;
-- * `first`: making the states before the first step, as of the first read of this field (Program:first).
-- @module wane.plan
local moves = require 'wane.plan.moves'
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local display = require 'wane.plan.display'
local errors = require 'wane.errors'
local plot = require 'wane.report.plot'
local phase = require 'wane.plan.phase'
local program = require 'wane.program'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'
local torch_graph = require 'wane.plan.torch_graph'
local scoped = require 'wane.scoped'

local C, check, raise = binding.C, binding.check, errors.raise
local tonumber = tonumber

local plan = {}

local instants = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after' }

--- Class of plans; the head of this file lists its fields.
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

-- Returns the text that says where the seconds of a plan come from.
local function costs_text(s, target)
    if target and target ~= 0 then
        local name = binding.text(C.wn_target_name(target))
        return ("roofline of %s, rates of its data sheet, nothing measured"):format(name)
    end
    local share = s.seconds > 0 and s.measured_seconds / s.seconds or 0
    if share == 0 then return "roofline of this machine, nothing measured: wane.profile(fn) does" end
    return ('%.0f %% of it measured on this machine, else a roofline'):format(100 * share)
end


-- Computes `first` when it is read for the first time, because it plans another program; all else is found in Plan.
function Plan.__index(self, key)
    if key ~= 'first' then return Plan[key] end
    local found = self.program:first()
    rawset(self, 'first', found)
    return found
end

--- Makes the Plan of a planned program.
-- @param p planned Program
-- @return Plan
-- @within Internal
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
    self.kinds, self.kinds_before, self.at = by_kind(s.peak_kinds), by_kind(s.kinds), by_instant(s.at)
    self.device = binding.text(C.wn_device_name(s.device))
    self.costs = costs_text(s, p.request.target)
    moves.fields(self, s)
    return setmetatable(self, Plan)
end

--- Returns the Plan of another planned program, as plan.of does.
-- @within Internal
function Plan.another(_, p)
    return plan.of(p)
end

-- ---- looking ------------------------------------------------------------------------------------------------------
local none = setmetatable({}, { __index = function() return 0 end })
local alone = { live = 0, kinds = none } -- what is held beside the only program of a step

-- Lists the programs of a plan's step with what is held beside each: { program =, beside = { live =, kinds = } }.
local function parts_of(self)
    return rawget(self, 'parts') and self.sequence or { { program = self.program, beside = alone } }
end

local function graph_of(self)
    if not rawget(self, '_graph') then rawset(self, '_graph', self.program:graph()) end
    return self._graph
end

-- Returns the regions that policies made, by the index of a node, and the policies. They are computed again, because a
-- plan that comes from the cache was made without asking the policies.
local function covers_of(self, graph)
    local layers, covers
    scoped('policy_query', true, function()
        layers, covers = require('wane.policy.decide').covers(graph, self.program.policy, self.program.fallback)
    end)
    return covers, layers
end

local List = {} -- class of lists whose rows print as a table
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

-- Returns who decided about a forward node: the text of a policy, 'the script' for a marked region, or ''.
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

--- Lists the residuals: the forward values that the backward reads.
-- @return printable list of { index =, op =, path =, name =, bytes =, shape =, dtype =, block =, copies = (count of its
-- computations), word = (what the plan does: 'save', 'recompute', or an action such as 'compress:bf16'), said = (the
-- action that a policy gave and that cannot be done, or nil), by = (who decided; '' where nobody did and it is saved),
-- module = (type of the module), line = (where it was recorded, with wane.lines(true)) }
-- @usage
-- print(wane.plan(function() return model(x):sum() end):residuals())
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

--- Adds up the residuals by type, path, op, name or block: bytes that are saved, dropped (and recomputed), moved
-- (offloaded) and compressed. The sums are those of the plan, to the byte; of a step of several run points, those of
-- all of them. Types and paths are those that policy.by_type and policy.by_path decide by.
-- @param what 'type', 'path', 'op', 'name' or 'block'
-- @param opts { depth = names of a path that tell groups apart, from 1 } of 'path' (optional)
-- @return printable { what =, rows = list of { name =, values = (count), bytes =, saved =, dropped =, moved =,
-- compressed = (bytes), recomputed = (count of nodes) }, total = such a row }; paths and blocks are in the order of the
-- forward, others by bytes
-- @raise 'value' for another word or wrong options
-- @usage
-- local plan = wane.plan(function() return model(x):sum() end, { policy = 'every(1)' })
-- print(plan:by('path', { depth = 1 }).total.bytes == plan.activation_bytes) --> true
-- print(plan:by('type').rows[1].name) --> Sequential
function Plan:by(what, opts)
    local graphs = { graph_of(self) }
    for _, part in ipairs(rawget(self, 'others') or {}) do graphs[#graphs + 1] = part.program:graph() end
    return require('wane.plan.by').of(graphs, what, opts)
end

--- Lists the instructions in order.
-- @return printable list of { what =, op =, path =, node =, phase =, kind =, bytes =, offset =, workspace = (bytes),
-- live = (bytes), seconds =, store = (number of the allocation that the instruction makes or frees), copy = (number of
-- the value), is_free =, counts = (whether its bytes are live bytes), inplace = (input that it overwrites) }. A
-- transfer also has link = ('to disk', 'from disk', 'to host' or 'from host') and takes = (its seconds on that link).
-- A step of several run points lists the instructions of all, one run point after the other. Fields `program` and `at`:
-- the Program of an instruction, and its number in that program, from 0.
-- @usage
-- print(wane.plan(function() return model(x):sum() end):schedule())
function Plan:schedule()
    local items, first_store = {}, 0
    for _, part in ipairs(parts_of(self)) do
        local step, most, phase_of = binding.new('struct wn_step'), -1, phase.reader(part.program)
        for i = 0, C.wn_step_count(part.program.handle) - 1 do
            check(C.wn_step(part.program.handle, i, step))
            most = math.max(most, step.store)
            items[#items + 1] = {
                what = binding.text(step.what), op = binding.text(step.op) or '', path = binding.text(step.path) or '',
                node = step.node, copy = step.value, phase = phase_of(step.phase), bytes = tonumber(step.bytes),
                offset = tonumber(step.offset), workspace = tonumber(step.workspace),
                live = tonumber(step.live) + part.beside.live, is_free = step.is_free ~= 0, counts = step.counts ~= 0,
                inplace = step.inplace, store = step.store < 0 and step.store or first_store + step.store,
                seconds = step.seconds, kind = program.kinds[step.kind],
                link = step.link ~= nil and binding.text(step.link) or nil, takes = step.takes,
                program = part.program, at = i,
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
    for _, part in ipairs(parts_of(self)) do
        local n = C.wn_step_count(part.program.handle)
        local rows = binding.list('int64_t', (n + 1) * count)
        check(C.wn_step_kinds(part.program.handle, rows))
        for i = #out == 0 and 0 or 1, n do -- what is there before a later part is what the one before it left
            local row, live = {}, 0
            for kind = 0, count - 1 do
                local name = program.kinds[kind]
                row[name] = tonumber(rows[i * count + kind]) + part.beside.kinds[name]
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
    local graph = graph_of(self)
    local report = require('wane.plan.explain').of(self, graph, covers_of(self, graph))
    if path then plot.write(path, tostring(report) .. '\n') end
    return report
end

local edits = { 'swap', 'repeat', 'inplace', 'input', 'offset', 'cell' }

--- Runs the verifier again on the schedule, or on the schedule with one edit, which is reverted afterwards.
-- @param edit nil, or { step = index in plan:schedule(), and one of: swap = index of another step; ['repeat'] = index
-- of the step to do in its place; inplace = number of the input to overwrite, from 0, or -1 for none; input = number of
-- the value to read first; offset = bytes; cell = number of the allocation to write }
-- @return true
-- @raise 'illegal', with the rule and the instruction; 'value' for a malformed edit
-- @usage
-- local plan = wane.plan(function() return model(x):sum() end)
-- print(plan:verify())
-- print(pcall(plan.verify, plan, { step = 1, swap = #plan:schedule() }))
function Plan:verify(edit)
    if edit == nil then
        for _, part in ipairs(parts_of(self)) do check(C.wn_verify(part.program.handle)) end
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
    local steps = self:schedule()
    local step = steps[edit.step] or { program = self.program, at = edit.step - 1 }
    if field == 'swap' or field == 'repeat' then
        local other = steps[value]
        if other and other.program ~= step.program then
            raise(nil, 'value', 'plan:verify: steps %d and %d are of two run points; edit one of them', edit.step,
                value)
        end
        value = other and other.at or value - 1
    end
    check(C.wn_verify_edited(step.program.handle, step.at, field, value))
    return true
end

--- Returns the recipe that the plan was lowered from: block operations, with values named by their place in the
-- forward.
--
-- A recipe prints, may be edited, and is a policy by policy.recipe, as an object or as its text (policy/recipe.lua).
-- @return Recipe { blocks =, steps = }
-- @usage
-- print(wane.plan(function() return model(x):sum() end, { policy = 'every(1)' }):recipe())
function Plan:recipe()
    return require('wane.policy.recipe').from(self.program, graph_of(self))
end

--- Returns the plan's decisions as the Lua source of a policy, for a script that records the same graph.
-- @return text of an expression that reads the variable `wane`; a name of the model stands in a comment of it alone
-- @usage
-- print(wane.plan(function() return model(x):sum() end):lua())
function Plan:lua()
    local text, level = tostring(self:recipe()), ''
    while text:find(']' .. level .. ']', 1, true) do level = level .. '=' end -- no name may end the brackets
    return ('wane.policy.recipe [%s[ -- %d residuals, %d nodes recomputed, peak %s, reserved %s\n%s\n]%s]\n'):format(
        level, self.residual_count, self.recomputed, bytes.text(self.peak), bytes.text(self.reserved), text, level)
end

--- Returns the plan as a policy object: the same recipe for every recording of the same forward.
-- @return policy
-- @usage
-- local plan = wane.plan(function() return model(x):sum() end, { policy = 'recompute_all' })
-- model(x):sum():backward { policy = plan:as_policy() }
function Plan:as_policy()
    if not rawget(self, '_policy_object') then
        rawset(self, '_policy_object', require('wane.policy').recipe(self:recipe()))
    end
    return self._policy_object
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
-- the options.
-- @param opts { sm = 80, warm = false, hold = {'inputs', 'loss', 'output', 'retained'}, torch = '2',
-- reentrant = false }
-- @return { before =, after_forward =, peak_forward =, peak_backward =, after_backward = } in bytes, and `workspaces` =
-- { peak_forward =, peak_backward = }, how much of the peaks are workspaces of libraries and not values
-- @raise 'value' for a plan without a backward or wrong options; 'unsupported' for several losses, policies that decide
-- value by value, and regions inside regions
-- @usage
-- print(wane.plan(function() return model(x):sum() end):pytorch().peak_backward)
function Plan:pytorch(opts)
    return require('wane.pytorch').account(torch_graph.of(self, covers_of), opts)
end

-- ---- printing ---------------------------------------------------------------------------------------------
function Plan.__tostring(self)
    return display.text(self, graph_of(self))
end

-- ---- making one -------------------------------------------------------------------------------------------
local later = { allow = true }
local gone = { fused = 'opt:step(loss) is how an optimizer steps, so leave it out; lines = true is for zero_grad, '
    .. 'backward and step' }

--- Checks options as errors.check_options does, and refuses options of later and of former versions by name.
-- @param opts table of options, or nil
-- @param allowed list of names
-- @param what opens the message of an error
-- @return opts, or an empty table for nil
-- @raise 'unsupported' for an option of a later version, 'value' for one of a former version and an unknown one
-- @within Internal
function plan.check_options(opts, allowed, what)
    for name in pairs(type(opts) == 'table' and opts or {}) do
        if gone[name] then raise(nil, 'value', "%s: the option '%s' is gone: %s", what, name, gone[name]) end
        if later[name] then raise(nil, 'unsupported', "%s: the option '%s' is not in this version", what, name) end
    end
    return errors.check_options(opts, allowed, what)
end

return plan
