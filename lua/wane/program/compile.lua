--- Compiled steps: planned once, then one call for each step.
--
-- The function runs at its first two calls for a signature, and the programs that it ran are kept, in their order. Both
-- recordings must be the same programs with the same captured numbers and data, else an error says which value to pass
-- as an argument. From then on nothing is recorded: arguments are bound, optimizers count a step and set their numbers,
-- and the programs run again. Plain Lua in fn does not run then; a setting of an optimizer that fn changes is an error.
--
-- Random values that fn records draw new numbers at every call; random values that it captured keep theirs, as in a
-- plain loop. An argument whose gradient goes on to the values it was computed from cannot be replaced by another:
-- compute it inside fn, or pass it with :detach().
-- @module wane.program.compile
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local program = require 'wane.program'
local replan = require 'wane.program.replan'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C, check, raise = binding.C, binding.check, errors.raise
local compile = {}

local number = binding.new('double[1]')

-- Makes a 0-d f32 value of a number, so that the number is bound and not part of the program.
local function as_value(x)
    number[0] = x
    return tensor.wrap(binding.id(C.wn_const(number, 0, tensor.dtype_id.f32)))
end

-- Numbers of tables and functions in signatures.
local names, named = setmetatable({}, { __mode = 'k' }), 0

local function identity(x)
    if type(x) ~= 'table' and type(x) ~= 'function' then return tostring(x) end
    if not names[x] then
        named = named + 1
        names[x] = named
    end
    return '@' .. names[x]
end

-- Returns the text of a call's arguments; calls of equal texts are one step.
local function signature(args, count)
    local parts = {}
    for i = 1, count do
        local x = args[i]
        if tensor.is(x) then
            tensor.typed(x)
            parts[i] = x._cell and identity(x) or tensor.describe(x) .. ' ' .. x.device
        else
            parts[i] = type(x) == 'number' and 'number' or type(x) .. identity(x)
        end
    end
    return table.concat(parts, '|')
end

-- Returns the arguments with numbers as 0-d values, and the list of those that are inputs of programs, which it makes
-- held.
local function prepare(args, count)
    local values, inputs, unheld = {}, {}, {}
    for i = 1, count do
        local x = args[i]
        if type(x) == 'number' then x = as_value(x) end
        values[i] = x
        if tensor.is(x) and not tensor.typed(x)._cell then
            inputs[#inputs + 1] = x
            if type(args[i]) ~= 'number' and tensor.info(x).held == 0 then unheld[#unheld + 1] = x end
        end
    end
    if #unheld > 0 then program.run { mode = 'eval', roots = unheld } end
    return values, inputs
end

-- ---- one recording -----------------------------------------------------------------------------------------------
-- Returns the number of the program that has a value among its roots, or nil.
local function root_of(programs, value)
    for p, each in ipairs(programs) do
        local mode = each.request.mode
        for _, root in ipairs(mode ~= 'update' and mode ~= 'assign' and each.request.roots or {}) do
            if root.id == value.id then return p end
        end
    end
end

-- Returns whether two handles name one value: a program that reads the first has the second among its leaves.
local function is_same(a, b)
    local probe = program.open { mode = 'eval', roots = { tensor.methods.reshape(a, a._dims) } }
    return C.wn_leaf_find(probe.handle, b.id) >= 0
end

-- Returns the number (from 1) of the result of a program that is `value`. Results are in the order of recording, not in
-- the order of the roots.
local function result_of(p, value)
    local count = C.wn_results(p.handle)
    for i = 1, count do
        if count == 1 or is_same(p:result(i), value) then return i end
    end
end

-- Computes the returned tensors that no program made, in one more program.
local function finish(programs, returned, count)
    local late = {}
    for i = 1, count do
        local value = returned[i]
        if tensor.is(value) and not tensor.typed(value)._cell and not root_of(programs,
            value) then late[#late + 1] = value end
    end
    if #late > 0 then program.run { mode = 'eval', roots = late } end
end

local function pack(...)
    return { n = select('#', ...), ... }
end

local function record(fn, values, count, inputs, opts)
    local programs, is_inside, began = {}, true, C.wn_serial()
    local returned
    scoped('listen', function(p)
        if is_inside and p.request.mode == 'eval' then
            raise(nil, 'value', 'wane.compile: the function reads a value (item, totable, print, eval) while it '
                .. 'is compiled; return it instead')
        end
        programs[#programs + 1] = p
    end, function()
        returned = pack(scoped('compiling', true, scoped, 'call policy', opts.policy, fn, unpack(values, 1, count)))
        is_inside = false
        finish(programs, returned, returned.n)
    end)
    if #programs == 0 then raise(nil, 'value', 'wane.compile: the function ran nothing and returned no tensor') end
    -- Keeps the numbers of random values that the function captured; those it records itself are drawn at every call.
    for _, each in ipairs(programs) do check(C.wn_keep_numbers(each.handle, began)) end
    return { programs = programs, returned = returned, inputs = inputs }
end

-- ---- two recordings must be one ------------------------------------------------------------------------------------
local leaf_a, leaf_b = binding.new('struct wn_leaf'), binding.new('struct wn_leaf')

local function input_leaves(p, inputs)
    local of = {}
    for i, value in ipairs(inputs) do
        local leaf = C.wn_leaf_find(p.handle, value.id)
        if leaf >= 0 then of[leaf] = i end
    end
    return of
end

-- Raises 'value' when numbers or data that fn captured differ: later calls would use those of the second recording.
local function compare_leaves(a, b, inputs_a)
    local bound = input_leaves(a, inputs_a)
    for i = 0, C.wn_leaf_count(a.handle) - 1 do
        check(C.wn_leaf(a.handle, i, leaf_a))
        check(C.wn_leaf(b.handle, i, leaf_b))
        -- an argument, numbers of an optimizer, or the very same value
        local is_same_leaf = bound[i] or leaf_a.is_hyper ~= 0 or leaf_a.handle == leaf_b.handle
        if not is_same_leaf and leaf_a.op ~= C.wn_op_id('const') then
            raise(nil, 'value', 'wane.compile: a tensor made from data differs between two calls; pass it as an '
                .. 'argument')
        elseif not is_same_leaf and leaf_a.number ~= leaf_b.number then
            raise(nil, 'value', 'wane.compile: a number was %s at the first call and %s at the second; pass it as an '
                .. 'argument', tostring(leaf_a.number), tostring(leaf_b.number))
        end
    end
end

-- Raises 'value' when the positions at which slices begin (narrow, select, x[i]) differ: they are bound like numbers.
local function compare_offsets(a, b)
    local first, second = a:graph(), b:graph()
    for i, node in ipairs(first) do
        local from, to = node.ints[2], second[i].ints[2]
        if (node.op == 'narrow' or node.op == 'narrow_grad') and from ~= to then
            local line = binding.text(C.wn_line_text(node.line))
            raise(nil, 'value', 'wane.compile: a slice (narrow, select, x[i])%s began at position %d at the first call '
                .. 'and at %d at the second; pass the slice itself as an argument', line ~= '' and ' at ' .. line or '',
                from + 1, to + 1)
        end
    end
end

-- Compares two recordings. Returns the reason why their programs differ, or nil; raises for captured values that
-- differ.
local function compare(first, second)
    if #first.programs ~= #second.programs then
        return ('the last call ran %d programs, this one %d; what runs must not depend on the call')
            :format(#first.programs, #second.programs)
    end
    for i, a in ipairs(first.programs) do
        local b = second.programs[i]
        if C.wn_same_encoding(a.handle, b.handle) ~= 1 then
            return ('run point %d (%s) recorded another program than at the last call, where all calls must record '
                .. 'the same: %s'):format(i, b.request.mode,
                    replan.difference(b, a) or 'what is retained, where slices begin, or where gradients lie, differs')
        end
    end
    for i, a in ipairs(first.programs) do
        compare_leaves(a, second.programs[i], first.inputs)
        compare_offsets(a, second.programs[i])
    end
end

-- ---- running again ----------------------------------------------------------------------------------------
local function bindings_of(recording)
    local list = {}
    for p, each in ipairs(recording.programs) do
        list[p] = {}
        for leaf, input in pairs(input_leaves(each, recording.inputs)) do table.insert(list[p], { leaf = leaf,
            input = input }) end
    end
    return list
end

local function sources_of(recording)
    local sources = {}
    for i = 1, recording.returned.n do
        local value = recording.returned[i]
        if tensor.is(value) and not tensor.typed(value)._cell then
            local p = root_of(recording.programs, value)
            sources[i] = { program = p, result = result_of(recording.programs[p], value) }
        end
    end
    return sources
end

-- Returns, by program, the optimizers that clear gradients before each run, as fn did: for programs that write
-- gradients where there were none.
local function clearing_of(recording)
    local clears, optimizers = {}, {}
    for _, each in ipairs(recording.programs) do optimizers[#optimizers + 1] = each.request.optimizer end
    for p, each in ipairs(recording.programs) do
        if each.request.mode == 'backward' then
            for _, node in ipairs(each:graph()) do
                if node.op == 'assign' and node.cell_kind == 'gradient' then clears[p] = optimizers end
            end
        end
    end
    return clears
end

-- Binds the arguments in every program, before any runs. For an argument that does not fit it raises and drops the
-- recording, so that the next calls make another.
local function bind(self, key, inputs)
    local step = self.steps[key]
    for p, each in ipairs(step.recording.programs) do
        for _, to in ipairs(step.bindings[p]) do
            local code = C.wn_rebind(each.handle, to.leaf, inputs[to.input].id)
            if code ~= 0 then self.steps[key] = nil end
            check(code)
        end
    end
end

local function run_again(step)
    local recording = step.recording
    for p, each in ipairs(recording.programs) do
        for _, optimizer in ipairs(step.clears[p] or {}) do optimizer:zero_grad() end
        local optimizer = each.request.optimizer
        if optimizer then optimizer:ready() end
        each:rerun()
        if optimizer then optimizer:advance() end
    end
    local out = {}
    for i = 1, recording.returned.n do
        local source = step.sources[i]
        if source then
            out[i] = recording.programs[source.program]:result(source.result)
        else
            out[i] = recording.returned[i]
        end
    end
    return unpack(out, 1, recording.returned.n)
end

local function call(self, ...)
    scoped.sync()
    local count, args = select('#', ...), { ... }
    local mode = module.mode()
    if self.mode ~= mode then self.mode, self.steps = mode, {} end
    local key = signature(args, count) .. (op.is_casting() and '|autocast' or '')
    local values, inputs = prepare(args, count)
    if C.wn_anomaly(-1) ~= 0 then return scoped('call policy', self.opts.policy, self.fn, unpack(values, 1, count)) end
    local step = self.steps[key] or {}
    self.steps[key] = step
    if step.recording then
        bind(self, key, inputs)
        return run_again(step)
    end
    local recording = record(self.fn, values, count, inputs, self.opts)
    local limit = self.opts.policy and self.opts.policy.budget
    if type(limit) == 'number' then
        require('wane.program.rehearse').check_budget(recording.programs, limit, 'wane.compile')
    end
    if not step.first then
        step.first = recording
    else
        local fine, why = errors.pcall(compare, step.first, recording)
        if not fine or why then
            self.steps[key] = nil
            if fine then raise(nil, 'value', 'wane.compile: %s', why) end
            errors.again(why)
        end
        step.recording, step.first, step.clears = recording, nil, clearing_of(recording)
        step.bindings, step.sources = bindings_of(recording), sources_of(recording)
    end
    return unpack(recording.returned, 1, recording.returned.n)
end

local Step = { __call = call, __tostring = function(self)
    local planned, met = 0, 0
    for _, step in pairs(self.steps) do
        met = met + 1
        if step.recording then planned = planned + 1 end
    end
    return ('compiled function: %d signatures met, %d recorded for good'):format(met, planned)
end }

--- Compiles a step.
-- @param fn function(...): tensors are inputs, numbers arrive as 0-d tensors, and each other value has a recording of
-- its own
-- @param opts {policy =, budget =, plan =}: for every run point inside that has none of its own
-- @return a callable with the arguments and the results of fn
-- @raise 'value' when two recordings differ, or when fn reads a value
-- @usage
-- local step = wane.compile(function(a, b) return opt:step(nn.cross_entropy(model(a), b)) end, { policy = 'sqrt' })
-- local first = step(x, y):item()
-- for _ = 1, 3 do step(x, y) end
-- print(step(x, y):item() < first) --> true
function compile.compile(fn, opts)
    if type(fn) ~= 'function' and not module.is(fn) then
        raise(nil, 'value', 'wane.compile: expected a function, got %s', errors.describe(fn))
    end
    opts = errors.check_options(opts, { 'policy', 'budget', 'plan' }, 'wane.compile')
    local chosen = opts.plan ~= nil and opts.plan or opts.policy
    if opts.plan ~= nil and (opts.policy ~= nil or opts.budget ~= nil) then
        raise(nil, 'value', 'wane.compile: a plan has decided already; give it without policy and budget')
    end
    chosen = require('wane.program.grad').policy { policy = chosen, budget = opts.budget }
    return setmetatable({ fn = fn, opts = { policy = chosen }, steps = {} }, Step)
end

return compile
