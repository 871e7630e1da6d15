--- The run points of a step, in order, planned or run: one part each.
--
-- A step may be one run point (`opt:step(loss)`, a loss that is returned) or several (`opt:zero_grad()`,
-- `loss:backward()`, `opt:step()`). `sequence.plan` opens the program of each in the state that those before it leave:
-- gradients exist or were dropped, states have values; nothing runs, and afterwards everything is as it was before.
-- `sequence.run` runs them. Both note what the programs hold beside each other (runtime/program/sequence.h), so that
-- the bytes of a whole step are found in one way.
--
-- A part is { program = Program, request =, points = list of the numbers of its run points, and the fields of
-- program.account }. Run points that are planned and alike - their programs have the same key and cells, and the same
-- beside them - are one part, which is bound several times: a micro-batch is planned and listed once.
-- @internal wane.program.sequence
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local program = require 'wane.program'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise

local sequence = {}

--- Raises 'value' for what is no function.
function sequence.need_function(fn, what)
    if type(fn) ~= 'function' then raise(nil, 'value', '%s: expected a function, got %s', what, errors.describe(fn)) end
end

--- Closes the programs of parts, and the sequence that they were planned in.
function sequence.close(parts)
    for _, part in ipairs(parts) do part.program:close() end
    if parts.ref and parts.ref.id >= 0 then
        C.wn_release(parts.ref.id)
        parts.ref.id = -1
    end
end

-- ---- requests ---------------------------------------------------------------------------------------------------

-- Makes the request of a function without run points, from the loss that it returned.
local function request_for(result, what)
    if not tensor.is(result) then
        raise(nil, 'value', '%s: the function must return the loss, or call backward or step; it returned %s', what,
            errors.describe(result))
    end
    local needs = tensor.info(result).needs_grad ~= 0
    return { mode = needs and 'backward' or 'eval', roots = { result } }
end

--- Returns whether a policy chooses anything in a request: updates and assignments keep nothing for later.
function sequence.chooses(request)
    return request.mode == 'backward' or request.mode == 'step'
end

--- Returns a copy of a request under a policy and for a target. Updates and assignments keep their policy.
function sequence.with(request, policy, target)
    local copy = program.under(request, request.mode ~= 'update' and request.mode ~= 'assign' and policy or nil)
    copy.target = target
    return copy
end

--- Returns the modes of all parts as text: 'backward, 3 x backward, update', and the number of their run points.
function sequence.modes(parts)
    local words, n = {}, 0
    for i, part in ipairs(parts) do
        local times = #part.points
        words[i], n = (times > 1 and times .. ' x ' or '') .. part.request.mode, n + times
    end
    return table.concat(words, ', '), n
end

-- ---- planned -----------------------------------------------------------------------------------------------------

-- Returns the run points as parts: each is put to the first one that it is the same as.
local function fold(points, ref)
    local parts = { ref = ref }
    for i, point in ipairs(points) do
        if point.same == i - 1 then
            point.points, parts[#parts + 1] = { i }, point
        else
            table.insert(points[point.same + 1].points, i)
            point.program:close()
        end
    end
    return parts
end

--- Opens the programs that a function would run. Nothing runs; gradients and states are as before when it returns. A
-- step that trains, and leaves gradients which the next one neither drops nor began without, is recorded once more: the
-- parts are those of every later step.
-- @param fn function() that records a step
-- @param what opens messages
-- @param prepare function(request) -> the request to open, with a policy or a target
-- @return list of parts in the order in which they would first run
function sequence.plan(fn, what, prepare)
    sequence.need_function(fn, what)
    local points, since = { ref = binding.Ref(binding.id(C.wn_sequence(C.WN_SEQUENCE_PLANNED))) }, nil
    local trains = false
    local function add(request)
        request.since = since
        trains = trains or request.mode == 'step' or request.mode == 'update'
        local p = program.open(prepare(request))
        check(C.wn_sequence_add(p.handle))
        points[#points + 1] = { program = p, request = p.request }
        if request.look then request.look(p) end
    end
    local function record()
        since = C.wn_serial()
        local result = fn()
        if #points == 0 then add(request_for(result, what)) end
    end
    local ok, why = errors.pcall(program.capture, points.ref, function()
        record()
        if trains and binding.id(C.wn_sequence_repeat()) == 1 then
            for i = #points, 1, -1 do
                points[i].program:close()
                points[i] = nil
            end
            record()
        end
        program.account(points)
    end, add)
    if ok then return fold(points, points.ref) end
    sequence.close(points)
    errors.again(why)
end

--- Opens a part once more, under another policy, with gradients and states as they are when it runs.
-- @param parts of sequence.plan
-- @param part one of them
-- @param policy to open it under; nil: its own
-- @return Program, which the caller closes
function sequence.reopen(parts, part, policy)
    local id = parts.ref.id
    check(C.wn_sequence_seek(id, part.points[1] - 1))
    return scoped.always(function() check(C.wn_sequence_seek(id, -1)) end, scoped, 'sequence', id, program.open,
        sequence.with(part.request, policy, part.request.target))
end

--- Returns the request of a function with one run point, or nil for one with several.
function sequence.request(fn, what)
    local parts = sequence.plan(fn, what, function(request) return request end)
    sequence.close(parts)
    return #parts == 1 and #parts[1].points == 1 and parts[1].request or nil
end

-- ---- run ---------------------------------------------------------------------------------------------------------

-- Returns function(request) that gives the requests which choose their policies, in their order.
local function preparing(opts)
    local policies, i = opts.policies, 0
    return function(request)
        if opts.check then opts.check(request) end
        if policies == nil or not sequence.chooses(request) then return request end
        i = i + 1
        return sequence.with(request, policies[i] or policies[#policies], request.target)
    end
end

local summary, memory = binding.new 'struct wn_summary', binding.new 'struct wn_memory'

-- Returns the bytes that the device holds and no part of the step owns.
local function foreign_bytes(parts)
    check(C.wn_summary(parts[1].program.handle, summary))
    check(C.wn_memory_get(summary.device, memory))
    local bytes = tonumber(memory.live)
    for _, part in ipairs(parts) do bytes = bytes - part.held end
    return bytes
end

-- Runs a loss that a function returned without a run point: forward and backward, or the forward alone.
local function run_loss(result, what)
    local request = request_for(result, what)
    request.again = true
    program.run(request)
end

-- Refuses to run inside of another sequence, except what leaves nothing behind inside of one that runs.
local function refuse_inside(what, undone)
    if program.is_planning() then
        raise(nil, 'value', '%s: it is called by a function that is planned, where nothing runs; call it outside of '
            .. 'that function', what)
    end
    if program.sequence() ~= -1 and not undone then
        raise(nil, 'value', '%s: it trains, and is called by a function that is measured itself; call it outside of '
            .. 'that function, or leave out the optimizer here', what)
    end
end

--- Runs a function, and notes its run points. It may be called by a function that is run so, where it leaves nothing
-- behind: what runs in the inner one is no part of the outer one.
-- @param fn function() that runs a step; one without a run point returns the loss, whose backward runs
-- @param what opens messages
-- @param opts { policies = list of those of the run points that choose, in order; the last one is of all that follow;
-- undone = true: afterwards states, gradients and the random counter are what they were; check = function(request),
-- called before each runs, which may raise }
-- @param look function(parts, result of fn, bytes that the device holds beside the step), called when all ran, before
-- anything is undone; its programs are closed afterwards
-- @return the result of look
-- @raise 'value' where a function is planned, and, for one that is not undone, where another one is measured
function sequence.run(fn, what, opts, look)
    sequence.need_function(fn, what)
    refuse_inside(what, opts.undone)
    local id = binding.id(C.wn_sequence(opts.undone and C.WN_SEQUENCE_UNDONE or C.WN_SEQUENCE_RUN))
    local ref, parts, got = binding.Ref(id), {}, nil
    local function listen(p)
        if program.sequence() ~= id then return end
        parts[#parts + 1] = { program = p, request = p.request, points = { #parts + 1 } }
    end
    local counter = opts.undone and C.wn_here().counter
    local ok, why = errors.pcall(scoped, 'sequence', id, scoped, 'listen', listen, scoped, 'prepare',
        preparing(opts), function()
            local result = fn()
            if #parts == 0 then run_loss(result, what) end
            program.account(parts)
            got = look(parts, result, foreign_bytes(parts))
        end)
    sequence.close(parts) -- before places of gradients are given up, so that their slab stays at hand
    if opts.undone then
        C.wn_counter_set(counter)
        check(C.wn_sequence_undo(id))
    end
    C.wn_release(ref.id)
    ref.id = -1
    if not ok then errors.again(why) end
    return got
end
jit.off(sequence.run, true) -- compiled code would hold fn (program/accumulate.lua)

--- Runs forward and backward of a loss, with gradients from zero, and leaves nothing behind.
-- @param fn function() that returns the loss, or runs its backward
-- @param what opens messages
-- @param policy of the backward (optional)
-- @param look function(Program), called while its gradients are there
-- @return the result of look; nil, and nothing ran, for a function that is more or other than one backward
function sequence.backward(fn, what, policy, look)
    local parts = sequence.plan(fn, what, function(request) return request end)
    local is_one = #parts == 1 and #parts[1].points == 1 and parts[1].request.mode == 'backward'
    local cells = is_one and parts[1].program:cells()
    sequence.close(parts)
    if not is_one then return nil end
    return sequence.run(function()
        for _, cell in ipairs(cells) do check(C.wn_cell_drop_grad(cell.id)) end
        return fn()
    end, what, { policies = policy and { policy }, undone = true }, function(run) return look(run[1].program) end)
end

return sequence
