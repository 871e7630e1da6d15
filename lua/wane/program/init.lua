--- Run points: the one way from Lua to an execution.
--
-- `program.run(request)` opens a program, asks policies for decisions when the program is new, plans and runs it. Every
-- execution (item, backward, step, assign, eval) comes through here. So this is also the place where planning captures
-- requests instead of running them, where measuring listens, and where an OOM is retried once after all
-- idle memory was given back. It decides nothing itself; policy/init.lua does.
-- @internal wane.program
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local gc = require 'wane.gc'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local planner = require 'wane.program.planner'
local policy = require 'wane.policy'
local ranks = require 'wane.program.ranks'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C, check = binding.C, binding.check
local iterate, raise = errors.iterate, errors.raise

local program = {}

local modes = { eval = 0, backward = 1, step = 2, update = 3, assign = 4 }
local phases = { [0] = 'forward', 'recompute', 'backward', 'update' }
local kinds, kind_names = {}, {} -- by number, from 0; as a list
for kind = 0, C.WN_KIND_COUNT - 1 do
    kinds[kind] = binding.text(C.wn_kind_name(kind))
    kind_names[kind + 1] = kinds[kind]
end
program.kinds, program.kind_names = kinds, kind_names

--- Returns bytes by kind as a table: { [name of the kind] = bytes }.
-- @param array int64_t[9] by WN_KIND
function program.by_kind(array)
    local out = {}
    for kind = 0, #kinds do out[kinds[kind]] = tonumber(array[kind]) end
    return out
end

-- A program, which a run point executes. Fields: handle (number), request, policy (of the call, or nil) and fallback
-- (policy.default when it was opened, or nil).
local Program = {}
Program.__index = Program

-- ---- surroundings ------------------------------------------------------------------------------------------
local capture -- function(request) while planning, else nil
local listeners = {} -- called with each program that ran

scoped.register('capture', function(fn)
    local before = capture
    capture = fn or nil
    return before
end)

-- Puts the random counter back after nodes that are recorded and never run.
scoped.register('counter', function(value)
    local before = C.wn_here().counter
    if type(value) == 'cdata' then C.wn_counter_set(value) end
    return before
end)

local sequence_now = -1 -- handle of the sequence under way; -1: none

scoped.register('sequence', function(handle)
    local before = sequence_now
    check(C.wn_sequence_enter(handle))
    sequence_now = handle
    return before
end)

--- Returns the handle of the sequence under way, the innermost one, or -1.
function program.sequence()
    scoped.sync()
    return sequence_now
end

local prepare -- function(request) -> the request that runs in its place, while a step is measured; nil: none is

scoped.register('prepare', function(fn)
    local before = prepare
    prepare = fn
    return before
end)

scoped.register('listen', function(fn)
    if fn then
        listeners[#listeners + 1] = fn
        return false
    end
    listeners[#listeners] = nil
end)

--- Returns whether a function is being planned; nothing runs then.
function program.is_planning()
    scoped.sync()
    return capture ~= nil
end

-- ---- opening ---------------------------------------------------------------------------------------------------
local asked = binding.new('struct wn_request') -- as the next open fills it; the library keeps nothing of it
local rooms, sizes = {}, {} -- field of the request -> its array, which grows; elements of the array

-- Points a field of the request to an array of n elements of a C type. Returns the array.
local function room(field, name, n)
    if n > (sizes[field] or -1) then
        sizes[field] = 2 * n
        rooms[field] = binding.list(name, math.max(2 * n, 1))
        asked[field] = rooms[field]
    end
    asked['n_' .. field] = n
    return rooms[field]
end

-- Fills a list of handles of tensors or handles: those of a list, then those of another; both may be nil.
local function fill_handles(field, list, more)
    local n, m = list and #list or 0, more and #more or 0
    local to = room(field, 'int32_t', n + m)
    for i = 1, n + m do
        local x = i <= n and list[i] or more[i - n]
        to[i - 1] = type(x) == 'number' and x or tensor.id(x, 'run')
    end
end

local op_ids = setmetatable({}, { __index = function(ids, name)
    ids[name] = C.wn_op_id(name)
    return ids[name]
end })

-- Fills the list of updates: { op = name, cells = { handles }, hyper = handle } each; updates may be nil. It runs for
-- each parameter at each step, so it makes no tables.
local function fill_updates(updates)
    local n = updates and #updates or 0
    local list = room('updates', 'struct wn_update', n)
    for i = 1, n do
        local update, u = updates[i], list[i - 1]
        local cells = update.cells
        u.op, u.hyper = op_ids[update.op], update.hyper
        u.cell[0], u.cell[1], u.cell[2] = cells[1], cells[2] or -1, cells[3] or -1
    end
end

-- Opens a program that has no finalizer yet: who opens it closes it, or calls `own`.
local function open(request)
    scoped.sync()
    local mode = modes[request.mode]
    if not mode then
        raise(nil, 'value', "run: unknown mode '%s'; %s", tostring(request.mode), errors.near(request.mode, modes))
    end
    planner.load_costs()
    local r = asked
    fill_handles('roots', request.roots, request.also)
    r.n_also = request.also and #request.also or 0
    fill_handles('cells', request.cells)
    fill_updates(request.updates)
    r.mode = mode
    r.joint, r.again = request.joint and 1 or 0, request.again and 1 or 0
    r.scale, r.clip = op.finite(request.scale or 1, 'run: the scale'), request.clip or 0
    r.target = request.target or 0
    r.is_fresh, r.given = request.is_fresh and 1 or 0, request.given or 0
    r.is_shared, r.is_idle = request.is_shared and 1 or 0, request.is_idle and 1 or 0
    r.is_last = request.is_last and 1 or 0
    local explicit = request.policy ~= nil and policy.of(request.policy) or nil
    local fallback = policy.default
    r.policy = policy.key(explicit, fallback)
    local handle = binding.id(C.wn_open(r))
    return setmetatable({ handle = handle, request = request, policy = explicit, fallback = fallback }, Program)
end

-- Gives a program a finalizer. Returns it.
local function own(p)
    p.ref = binding.Ref(p.handle)
    return p
end

--- Opens a program without planning or running it.
-- @param request { mode =, roots =, also = values to compute beside the losses, cells =, updates =, policy =, joint =,
-- again =, scale =, clip =, is_fresh =, given =, is_shared =, is_idle =, is_last =, as of struct wn_request; look =
-- function(program) that is called once it has run, or is planned; is_part = true: an evaluation that a step makes by
-- itself, and no read of the script's }
-- @return Program
-- @raise the library's codes ('stale', 'spent', 'twice', 'device'), at the script's line
function program.open(request)
    return own(open(request))
end

-- Has the policies of an open program that is not planned decide, and chooses a plan where they give a budget. Returns
-- whether that is the plan of the fewest bytes. most: as of planner.choose.
local function decide(self, most)
    local budget = require('wane.policy.decide').apply(self, self.policy, self.fallback)
    if type(budget) == 'number' then return planner.choose(self, budget, most) end
    if budget == 'least' then planner.choose_least(self) end
    return true
end

--- Tells whether all ranks have one plan for a program: where it gathers states from them, and bytes decide.
function Program:is_planned_by_all()
    return ranks.size > 1 and not ranks.is_ghost and policy.limit_of(self.policy or self.fallback, true)
        and C.wn_count(self.handle, C.WN_COUNT_GATHERS) > 0
end

--- Plans an open program; policies are asked unless its plan is known. Returns the program.
function Program:plan()
    local planned = C.wn_is_planned(self.handle)
    if planned < 0 then binding.id(planned) end
    if self:is_planned_by_all() then
        planner.share(self, decide)
    elseif planned == 0 then
        decide(self)
        check(C.wn_plan(self.handle))
    end
    return self
end

-- Gives back all memory that no value of the script holds.
local function give_back()
    if jit then jit.flush() end -- a compiled trace may hold a model it was recorded with
    collectgarbage()
    collectgarbage() -- the first call runs finalizers, the second frees what they released
    for device = 0, C.wn_device_count() - 1 do C.wn_memory_trim(device) end
end

local oom_code
for code = 0, 31 do
    local word = binding.text(C.wn_status_name(code))
    if word == 'oom' then oom_code = code end
end

--- Returns a function that is given the phases of the program's instructions as numbers, in their order, and returns
-- their names. Without an optimizer there is no update: what writes a gradient or a running statistic belongs to the
-- phase around it.
function Program:phases()
    local around, has_optimizer = 'forward', #(self.request.updates or {}) > 0
    return function(number)
        local name = phases[number]
        if name ~= 'update' or has_optimizer then
            around = name
        elseif around == 'recompute' then
            around = 'backward'
        end
        return around
    end
end

--- Returns the bytes that the plan of a planned program reserves.
function Program:reserved()
    local summary = binding.new('struct wn_summary')
    check(C.wn_summary(self.handle, summary))
    return tonumber(summary.reserved)
end

local account = { live_beside = 'live', beside = 'reserved', first_live_beside = 'first_live',
    first_beside = 'first_reserved', same = 'same', held = 'held' } -- field of a part -> field of struct wn_part

--- Notes what the programs of one step hold beside each other, in the sequence under way (struct wn_part).
-- @param parts list of { program = Program }; each gets live_beside, beside (reserved bytes), kinds_beside,
-- first_live_beside, first_beside (of the first run), first = { cells = number of missing states and data, peak =,
-- reserved = bytes of the program that makes them before the first step, beside = bytes of the data that are first
-- values of states, held until that program is over }, same = number of the first program, from 0, that all of this is
-- equal of, and held = bytes that are its own now
-- @return parts
function program.account(parts)
    local handles, list = {}, binding.list('struct wn_part', math.max(#parts, 1))
    for i, part in ipairs(parts) do handles[i] = part.program.handle end
    check(C.wn_parts(#parts, binding.handles(#parts, handles), list))
    for i, part in ipairs(parts) do
        local from = list[i - 1]
        for name, field in iterate(account) do part[name] = tonumber(from[field]) end
        part.kinds_beside, part.first = program.by_kind(from.kinds), {}
        for _, name in ipairs { 'cells', 'peak', 'reserved', 'beside' } do
            part.first[name] = tonumber(from.first[name])
        end
    end
    return parts
end

--- Returns the cost of making the missing states and data of an open program, as the field `first` of a part.
function Program:first()
    return program.account({ { program = self } })[1].first
end

--- Returns a request that is another one under a policy; nil: its own.
function program.under(request, policy_)
    return setmetatable({ policy = policy_ }, { __index = request })
end

--- Calls a C function of the program. On OOM it collects, trims, and calls once more, unless all ranks have heard of
-- it.
function Program:call(fn)
    local calls = ranks.size > 1 and ranks.who().calls
    local code = fn(self.handle)
    if code == oom_code or code == -oom_code then
        if calls and ranks.who().calls ~= calls then check(code) end
        give_back()
        code = fn(self.handle)
        if code == oom_code then
            error(planner.too_large(self, binding.failure(oom_code)), 0)
        end
    end
    check(code)
    return self
end

--- Runs a planned program. Returns the program.
-- @raise 'oom' before anything ran, with bytes, live, peak, reserved, limit, needs (bytes of this plan and of all that
-- is held beside it), least (fewest bytes that any plan needs), policy ('least') and, if one fits, budget
function Program:run()
    return self:call(C.wn_run)
end

local runs = 0 -- run points so far
local stepped = {} -- handle of a sequence, or -1 -> how many of its run points differentiate or update

--- Returns how many run points there were so far.
function program.runs()
    return runs
end

--- Returns how many run points of the sequence under way have differentiated or updated so far, while planning too.
function program.stepped()
    return stepped[program.sequence()] or 0
end

--- Plans and runs the program. A plan that had to be made is counted (program/replan.lua).
function Program:go()
    runs = runs + 1
    if runs == 1 then planner.look_for_launcher() end
    local is_known = C.wn_is_planned(self.handle) == 1
    if not is_known or self:is_planned_by_all() then
        self:plan()
        local is_of_script = not is_known and not prepare -- no loop of the script is measured
        if is_of_script then require('wane.program.replan').note(self, runs) end
    end
    return self:run()
end

--- Releases the program now, so that the values it was bound to do not live until the next collection. Returns it.
function Program:close()
    C.wn_release(self.ref.id)
    self.ref.id = -1
    return self
end

--- Returns the states that the program reads or writes, in the order of the graph, as tensors.
function Program:cells()
    local list = {}
    for i = 1, C.wn_count(self.handle, C.WN_COUNT_CELLS) do
        list[i] = tensor.wrap(binding.id(C.wn_program_cell(self.handle, i - 1)))
    end
    return list
end

--- Makes a tensor of the result of root i, from 1.
function Program:result(i)
    return tensor.wrap(binding.id(C.wn_result(self.handle, i - 1)))
end

--- Runs a request. While planning, the request is captured and nothing runs.
-- @param request as of program.open
-- @return Program; while planning, the result of the capture
function program.run(request)
    scoped.sync()
    if ranks.size > 1 and modes[request.mode] < 3 and request.mode ~= 'eval' and not request.given then
        raise(nil, 'value', '%s on %d ranks: it is not known whose part of the batch this is; write opt:step(fn, '
            .. '{micro = n}) or wane.accumulate(fn, {micro = n}), where fn(i) returns the loss of micro-batch i',
            request.mode, ranks.size)
    end
    if request.mode ~= 'eval' and request.mode ~= 'assign' then stepped[sequence_now] = program.stepped() + 1 end
    if capture then return capture(request) end
    local p = open(prepare and prepare(request) or request)
    local ok, why = errors.pcall(p.go, p)
    if ok and request.clip then request.norm = p:result(C.wn_count(p.handle, C.WN_COUNT_RESULTS)) end -- the last one
    if ok and request.look then request.look(p) end
    if not ok or #listeners == 0 then C.wn_release(p.handle) else own(p) end -- its values wait for no collector
    if not ok then errors.again(why) end
    op.new_epoch()
    for i = 1, #listeners do listeners[i](p) end
    gc.warn()
    gc.count()
    return p
end

local notes = {} -- of the last planning

--- Notes a call that does nothing, which no graph shows, while a function is planned.
-- @param place line of the script
-- @param message for plan:explain()
function program.note(place, message)
    for _, note in ipairs(notes) do
        if note.place == place and note.message == message then return end -- the function is recorded once more
    end
    if capture then notes[#notes + 1] = { place = place, message = message } end
end

--- Lists the notes of the last function that was planned: { place =, message = }.
function program.notes()
    return notes
end

--- Calls fn with run points captured instead of run; then puts back the random counter and the gradients.
-- @param ref Ref of a planned sequence, in which they are noted
-- @param fn function(...)
-- @param on_request function(request) that gets every request but reads, which are refused; may be nil
-- @param ... arguments of fn
-- @return the results of fn
function program.capture(ref, fn, on_request, ...)
    local function refuse(request)
        if request.mode == 'eval' and not request.is_part then
            raise(nil, 'value', 'wane.plan: the function reads a value (item, totable, print, eval) while it is '
                .. 'planned; nothing runs then, so record and return the loss only')
        end
        local taken = on_request and on_request(request) or nil
        return taken or setmetatable({ request = request, handle = -1 }, { __index = { result = function(_, i)
            return request.roots[i]
        end } })
    end
    op.new_epoch()
    notes = {}
    return scoped.always(op.new_epoch, scoped, 'sequence', ref.id, scoped, 'counter', true, scoped, 'capture', refuse,
        fn, ...)
end

--- Calls program.capture in a sequence of its own.
function program.planning(fn, on_request, ...)
    local ref = binding.Ref(binding.id(C.wn_sequence(C.WN_SEQUENCE_PLANNED)))
    return scoped.always(function()
        C.wn_release(ref.id)
        ref.id = -1
    end, program.capture, ref, fn, on_request, ...)
end

-- ---- looking at the nodes --------------------------------------------------------------------------------------
local info = binding.new('struct wn_node_info')

-- Returns the first n of the integers of a node.
local function ints_of(values, n)
    local ints = {}
    for i = 1, n do ints[i] = tonumber(values[i - 1]) end
    return ints
end

local function read_node(handle, i)
    check(C.wn_node(handle, i, info))
    local type_, attrs = info.type, info.attrs
    return {
        op = binding.text(info.op), path = binding.text(info.path), module = binding.text(info.module),
        name = binding.text(info.name), shape = ints_of(type_.dim, type_.ndim), dtype = tensor.dtype_name[type_.dtype],
        index = info.node, phase = phases[info.phase], scope = info.scope, region = info.region, line = info.line,
        block = info.block, forward_of = info.forward_of, decision = info.decision, action = info.action,
        is_residual = info.is_residual ~= 0,
        needs_grad = info.needs_grad ~= 0, leaf = info.leaf, root = info.root, copies = info.issues,
        bytes = tonumber(info.bytes), flops = info.flops, cell_kind = kinds[info.cell_kind], n_in = info.n_in,
        ints = ints_of(attrs.i, attrs.n), inputs = {}, is_held = info.is_held ~= 0, is_result = info.is_result ~= 0,
        serial = info.serial, computed = binding.text(info.computed),
    }
end

--- Lists the nodes of a program in the order of recording.
-- @return list of { op, path, module, name, shape, dtype, bytes, phase, scope, region, block, inputs, is_held (computed
-- by an earlier program), is_result (stays after this program ran), serial (place in the order of recording) } and the
-- other fields of `read_node`; with by_index (node number -> node), parents (scope -> scope around it) and scopes
-- (scope -> module.of_scope)
function Program:graph()
    local graph = { by_index = {}, parents = {}, scopes = {} }
    for i = 0, C.wn_count(self.handle, C.WN_COUNT_NODES) - 1 do
        local node = read_node(self.handle, i)
        graph[#graph + 1] = node
        graph.by_index[node.index] = node
        local scope = node.scope
        while scope ~= 0 and graph.parents[scope] == nil do
            local above = module.of_scope(scope)
            graph.scopes[scope], graph.parents[scope] = above, above and above.parent_scope or 0
            scope = graph.parents[scope]
        end
    end
    for _, node in ipairs(graph) do
        for k = 1, node.n_in do
            node.inputs[k] = graph.by_index[C.wn_node_input(self.handle, node.index, k - 1)]
        end
    end
    return graph
end

return program
