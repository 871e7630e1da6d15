--- wane.measure(fn, opts): runs a step several times and puts measured bytes and seconds beside predicted ones.
--
-- The step is the one that wane.plan plans: all its run points, with what each holds beside the others. Without
-- `optimizer` nothing changes: gradients, running statistics and the random counter are put back, from copies that are
-- not among the measured bytes. With `optimizer` it trains for warmup + steps steps. Measured bytes are those of the
-- executor's ledger, less what the script holds beside the step; predicted bytes are the simulator's. `exact` says
-- whether they were equal in every step.
--
-- Fields of a measurement:
--
-- * `peak`, `predicted_peak`, `reserved`, `predicted_reserved`: bytes of the whole step;
-- * `kinds`, `predicted_kinds`: bytes by name at the peak; `at`, `predicted_at`: as of a plan, of the run points with a
-- backward;
-- * `exact`: whether measured and predicted bytes were equal; `loss`: of the last step, or nil;
-- * `seconds`: median run time of the programs of a step; `wall`: median of a whole step, recording included; `times`,
-- `walls`: lists of them;
-- * `low`, `high`: quartiles of `walls`, themselves measured; `spread`: their distance over the median; `load`: of the
-- machine when the measurement began (processes, over the last minute), `cores`: that it has; `noisy`: nil, or words
-- such as 'noisy: spread 31 %, load 2.1 on 2 cores', where the spread is above 10 % or the load above 1.25 a core;
-- * `steps`, `warmup`: counts; `trained`: whether an optimizer stepped;
-- * `disk`, `moved`: bytes offloaded in a step; `move_seconds`, `stall_seconds`: of transfers, and waited for, over all
-- measured steps; `hidden`: share of move_seconds that no instruction waited for;
-- * `wire`: as of a plan, in a step; `wait`: seconds that kernels waited for other ranks, for exchanges and for
-- those that came later, over all measured steps;
-- * `graphs`: launches of captured graphs (CUDA graphs) in the last step; 0: every kernel was launched by itself.
-- @module wane.plan.measure
local applications = require 'wane.plan.measure.applications'
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local parts = require 'wane.plan.parts'
local plan = require 'wane.plan'
local policies = require 'wane.policy'
local program = require 'wane.program'
local read = require 'wane.tensor.read'
local sequence = require 'wane.program.sequence'
local spread = require 'wane.report.spread'
local step = require 'wane.plan.step'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C, check, iterate, raise = binding.C, binding.check, errors.iterate, errors.raise

local measure = {}

--- Class of measurements; the head of this file lists its fields.
local Result = {}
Result.__index = Result

function Result.__tostring(r)
    local rows = {}
    local function add(name, predicted, got)
        rows[#rows + 1] = { name, bytes.exact(predicted), bytes.exact(got), bytes.exact(got - predicted) }
    end
    add('peak', r.predicted_peak, r.peak)
    add('reserved', r.predicted_reserved, r.reserved)
    for _, name in ipairs(parts.instants) do add((name:gsub('_', ' ')), r.predicted_at[name], r.at[name]) end
    for _, name in ipairs(program.kind_names) do
        if r.kinds[name] > 0 or r.predicted_kinds[name] > 0 then add(name, r.predicted_kinds[name], r.kinds[name]) end
    end
    local loss = r.loss and ('%.9g'):format(r.loss) or 'not a number of the step'
    return ('%d steps (%d warmup%s), median %.4g s a step, %.4g s in its programs, loss %s\n%s\n'):format(r.steps,
        r.warmup, r.trained and ', trained' or '', r.wall, r.seconds, loss,
        spread.text(spread.of(r.walls), r)) .. table_.text({ 'bytes', 'predicted', 'measured', 'difference' }, rows)
        .. (rawget(r, 'collector') and ('\n%s\n%s'):format(r:by 'op', r:by 'path') or '')
end

local measured = binding.new('struct wn_measured')

-- Returns the numbers of a part's run, by the names of those of its plan. foreign: bytes of the device that are not the
-- step's.
local function numbers_of(part, foreign)
    local m, out = measured, { moved = tonumber(measured.out) + tonumber(measured['in']) }
    for _, name in ipairs { 'peak', 'reserved', 'disk', 'host' } do out[name] = tonumber(m[name]) end
    for _, name in ipairs { 'seconds', 'move_seconds', 'stall_seconds' } do out[name] = m[name] end
    out.kinds, out.at = program.by_kind(m.peak_kinds), parts.by_instant(m.at)
    out.live_beside, out.wait = tonumber(m.beside) - foreign, m.wait_seconds
    parts.take_wire(out, m)
    out.exact = out.peak == part.peak and out.reserved == part.reserved and out.disk == part.disk
        and out.host == part.host and parts.is_same_wire(out, part)
    return out
end

-- Fills the row of a step with its measured numbers and its plan. foreign: bytes of the device that are not the step's.
local function fill(row, list, foreign)
    local got = {}
    row.plan = plan.of(list)
    for i, part in ipairs(list) do
        check(C.wn_measured(part.program.handle, measured))
        got[i] = numbers_of(part, foreign)
        row.exact, row.graphs = row.exact and got[i].exact, row.graphs + tonumber(measured.graph_launches)
        row.replayed = row.replayed + tonumber(measured.replayed)
        row.replayed_bytes = row.replayed_bytes + tonumber(measured.replayed_bytes)
        if row.collector then row.collector:take(part.program) end
    end
    for name, value in iterate(parts.totals(list, got)) do row[name] = value end
    row.exact = row.exact and row.peak == row.plan.peak and row.reserved == row.plan.reserved
    if row.trace then row.plan:trace(row.trace) end
end

local function number_of(loss)
    if not tensor.is(loss) or #tensor.typed(loss)._dims ~= 0 or loss.device == 'meta' then return nil end
    return loss:item()
end

-- Returns function(request) that refuses to train. message: what it says about the mode of the run point.
local function refusing(message)
    return function(request)
        if request.mode == 'backward' or request.mode == 'eval' then return end
        raise(nil, 'value', message, (request.mode:find '^[au]' and 'an ' or 'a ') .. request.mode)
    end
end

-- Runs one step and returns its row. opts: { policies =, optimizer =, refusal = } and what is to be taken. Without an
-- optimizer it leaves nothing behind. Garbage is collected first: its bytes must not vanish while those beside the step
-- are counted.
local function run(fn, opts)
    local row = { trace = opts.traced, collector = opts.collector, exact = true, graphs = 0, replayed = 0,
        replayed_bytes = 0 }
    collectgarbage()
    collectgarbage() -- the first one ran finalizers, the second one frees what they released
    local start, is_quiet = C.wn_now(), not opts.optimizer
    return sequence.run(fn, 'wane.measure', { policies = opts.policies, undone = is_quiet,
        check = is_quiet and refusing(opts.refusal) or nil }, function(list, loss, foreign)
        row.wall = C.wn_now() - start
        fill(row, list, foreign)
        row.loss = number_of(loss)
        return row
    end)
end

-- Adds the row of one step to the result; `times` says whether its seconds count.
local function add(result, row, times)
    if row.peak > result.peak then
        for _, name in ipairs { 'kinds', 'at' } do
            result[name], result['predicted_' .. name] = row[name], row.plan[name]
        end
    end
    for _, name in ipairs { 'peak', 'reserved' } do
        local predicted = 'predicted_' .. name
        result[name] = math.max(result[name], row[name])
        result[predicted] = math.max(result[predicted], row.plan[name])
    end
    result.exact = result.exact and row.exact
    result.loss, result.graphs = row.loss, row.graphs
    result.disk, result.moved, result.wire = row.disk, row.moved, parts.wire(row)
    if times then
        result.move_seconds = result.move_seconds + row.move_seconds
        result.stall_seconds = result.stall_seconds + row.stall_seconds
        result.wait = result.wait + row.wait
        result.hidden = result.move_seconds > 0 and math.max(0, 1 - result.stall_seconds / result.move_seconds) or 0
        table.insert(result.times, row.seconds)
        table.insert(result.walls, row.wall)
    end
end

-- Runs one more step in which the seconds of each instruction are noted; it is not one of the measured steps.
local function trace(fn, opts)
    scoped('timing', 1, run, fn, setmetatable({ traced = opts.trace }, { __index = opts }))
end

-- Runs as many more steps with timing as were measured. Returns the collector of their instructions.
local function collect(fn, opts, steps)
    local collector = applications.new()
    for _ = 1, steps do
        collector:begin()
        scoped('timing', 1, run, fn, setmetatable({ collector = collector }, { __index = opts }))
    end
    return collector
end

--- Adds up the seconds of a step's instructions, as medians over the steps that `profile = true` timed.
-- @param r Result
-- @param what 'op', 'path', 'type' or 'phase'
-- @return printable { what =, rows = list of { name =, calls =, seconds = (total), share =, flops =, bytes =, gflops =,
-- gbytes =, bound = 'compute' or 'memory' }, longest first, total = such a row }
-- @raise 'value' for another word, and for a measurement without `profile = true`
-- @within Internal
function Result.by(r, what)
    if not rawget(r, 'collector') then
        raise(nil, 'value', "measurement:by('op'): no instruction was timed; measure with { profile = true }, which "
            .. 'runs the step again for it')
    end
    return r.collector:by(what, 'measurement:by')
end

local options = { 'steps', 'warmup', 'policy', 'budget', 'trace', 'profile', unpack(step.options) }

-- Returns the policies of the run points of a step that choose: under a budget each has what the others leave it.
local function policies_of(fn, chosen)
    if not policies.limit_of(chosen) then return chosen and { chosen } or nil end
    local planned, why = step.plan(fn, { policy = chosen })
    if planned == nil then errors.again(why) end
    local list, of_point = {}, {}
    for _, part in ipairs(planned.parts) do
        for _, i in ipairs(part.points) do of_point[i] = sequence.chooses(part.request) and part.policy end
    end
    for _, policy in ipairs(of_point) do list[#list + 1] = policy or nil end
    sequence.close(planned.parts)
    return list[1] and list or { chosen }
end

--- Measures a step.
-- @param fn function() that records and returns the loss; with `optimizer` it may run the step itself
-- @param opts { steps = 5, warmup = 1, policy =, budget =, optimizer = (trains the loss by opt:step(loss)), lines =
-- false (true: by zero_grad, backward and step), trace = (name of a file: one more step runs, and plan:trace writes it
-- with measured seconds), profile = false (true: the step runs `steps` more times, in which each instruction is timed;
-- result:by 'op', 'path', 'type' and 'phase' are tables of calls, seconds, shares, GFLOP/s or GB/s, and the first two
-- print) }
-- @return Result, printable
-- @raise 'value' for wrong options, for a function that trains without `optimizer`, and inside of a function that is
-- planned, or, with `optimizer`, measured; 'budget' where no plan of the step fits; errors of the run
-- @usage
-- local m = wane.measure(function() return model(x):sum() end, { steps = 2, policy = 'recompute_all' })
-- print(m.exact, m.peak == m.predicted_peak) --> true	true
-- local timed = wane.measure(function() return model(x):sum() end, { steps = 2, profile = true })
-- print(timed:by('op').total.share) --> 1
function measure.measure(fn, opts)
    opts = plan.check_options(opts, options, 'wane.measure')
    local steps = errors.count(opts.steps or 5, 'wane.measure: steps', 1, errors.MOST_STEPS)
    local warmup = errors.count(opts.warmup or 1, 'wane.measure: warmup', 0, errors.MOST_STEPS)
    errors.check_flags(opts, { 'profile' }, 'wane.measure')
    fn = step.of(fn, opts, 'wane.measure')
    opts = setmetatable({ policies = policies_of(fn, require('wane.program.grad').policy(opts)),
        refusal = 'wane.measure: the function runs %s; return the loss and pass {optimizer = opt} to let it train' },
        { __index = opts })
    local result = setmetatable({ peak = -1, predicted_peak = -1, reserved = -1, predicted_reserved = -1, exact = true,
        move_seconds = 0, stall_seconds = 0, hidden = 0, wait = 0, times = {}, walls = {}, steps = steps,
        warmup = warmup, trained = opts.optimizer ~= nil }, Result)
    for name, value in iterate(spread.machine()) do result[name] = value end
    for i = 1, warmup + steps do add(result, run(fn, opts), i > warmup) end
    if opts.profile then result.collector = collect(fn, opts, steps) end
    if opts.trace then trace(fn, opts) end
    local walls = spread.of(result.walls)
    result.seconds, result.wall = spread.of(result.times).median, walls.median
    result.low, result.high, result.spread = walls.low, walls.high, walls.spread
    result.noisy = spread.noise(walls, result)
    return result
end

--- Returns the number of threads that the kernels use.
-- @within Internal
function measure.threads()
    return C.wn_threads()
end

-- Returns the first value of an FNV-1a digest of 64 bits; wn_digest continues it over bytes.
local function new_digest()
    return binding.new('uint64_t[1]', 0xcbf29ce484222325ULL)
end

local function text_of(digest)
    return bit.tohex(digest[0], 16)
end

--- Returns a fingerprint of the bits of tensors: equal bits give equal text. Reads one tensor at a time.
-- @param list tensors that hold values (parameters, gradients, results), or strings
-- @return 16 hexadecimal digits: FNV-1a of 64 bits
-- @within Internal
function measure.fingerprint(list)
    local digest = new_digest()
    for _, t in ipairs(list) do
        if type(t) == 'string' then
            C.wn_digest(digest, t, #t)
        else
            local n = t:numel()
            local elements = binding.array(t.dtype, n)
            t:copy_to(elements)
            C.wn_digest(digest, elements, n * binding.element_bytes[t.dtype])
        end
    end
    return text_of(digest)
end

--- Returns a fingerprint of all gradients of a step, the bits that no lossless policy may change. Leaves none behind.
-- @param fn function() that records and returns the loss
-- @param policy policy of the step (optional)
-- @return 16 hexadecimal digits; nil when fn is more or other than one backward
-- @within Internal
function measure.gradients(fn, policy)
    return sequence.backward(fn, 'measure.gradients', policy, function(p)
        local digest = new_digest()
        for _, cell in ipairs(p:cells()) do -- in the order of the graph, which no policy changes
            local is_gradient = tensor.info(cell).cell_kind == C.WN_KIND_GRADIENT
            if is_gradient then C.wn_digest(digest, read.raw(read.run(cell))) end
        end
        return text_of(digest)
    end)
end

--- Class of results of wane.check; prints. Fields: `compared` (count of values), `bytes` (of these values), `loss`.
local Checked = {}
Checked.__index = Checked

function Checked.__tostring(c)
    return ('%d values computed again, %s bytes: each has the bits of the value that was dropped'):format(c.compared,
        bytes.exact(c.bytes))
end

--- Checks recomputation: runs a step once under a policy and compares, bit for bit, each value that is recomputed for
-- the backward with the value that was dropped. Leaves nothing behind.
--
-- Values that depend on the result of a lossy action are not compared, because that action changes bits on purpose.
-- @param fn function() that records and returns the loss
-- @param opts { policy =, budget = }
-- @return printable { compared = (count of values), bytes =, loss = }
-- @raise 'illegal', with the op, its path and the value, at the first value that differs; 'value' for a function that
-- trains
-- @usage
-- print(wane.check(function() return model(x):sum() end, { policy = 'every(1)' }))
function measure.check(fn, opts)
    opts = plan.check_options(opts, { 'policy', 'budget' }, 'wane.check')
    local row = scoped('replay', 1, run, fn, { policies = policies_of(fn, require('wane.program.grad').policy(opts)),
        refusal = 'wane.check: the function runs %s; return the loss, so that nothing is trained' })
    return setmetatable({ compared = row.replayed, bytes = row.replayed_bytes, loss = row.loss }, Checked)
end

return measure
