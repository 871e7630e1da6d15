--- One point of a sweep: builds, plans and measures it, and returns the result as a row of plain values.
--
-- A point that fails gives a row too, with its reason. Every point draws the same random numbers: the seed is set
-- before `build` and restored afterwards. Gradients are compared by a digest of their bytes (measure.gradients), never
-- as numbers. A function that steps by itself leaves no gradients, so there the parameters after the measured steps are
-- digested.
-- @internal wane.sweep.point
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local measure = require 'wane.plan.measure'
local memory = require 'wane.plan.measure.memory'
local step = require 'wane.plan.step'

local C, iterate, raise = binding.C, errors.iterate, errors.raise

local point = {}

-- Returns the 64 bits of a number as hexadecimal digits.
local function bits_of(number)
    local words = binding.cast('uint32_t *', binding.new('double[1]', number))
    return bit.tohex(tonumber(words[1])) .. bit.tohex(tonumber(words[0]))
end

-- Calls `build` with the point's values. Returns the function of the step and the optimizer.
local function built(settings, q)
    binding.check(C.wn_seed(settings.seed))
    local p = {}
    for key, value in iterate(q.p) do p[key] = value end
    local fn, _, optimizer = settings.build(p)
    if type(fn) ~= 'function' then
        raise(nil, 'value', 'wane.sweep: build must return a function that returns the loss (then the model, then an '
            .. 'optimizer), it returned %s', errors.describe(fn))
    end
    if settings.lines and not optimizer then
        raise(nil, 'value', 'wane.sweep: lines = true is how an optimizer steps; build must return one third')
    end
    return fn, optimizer
end

-- Puts the numbers of the step's plan into the row. Raises 'infeasible' where no plan fits the budget.
local function look(row, fn, optimizer, settings, q)
    local planned, why = step.plan(fn, { policy = q.policy, optimizer = optimizer, lines = settings.lines })
    if planned == nil then error(errors.new('infeasible', tostring(why)), 0) end
    row.recomputed, row.state, row.activations = planned.recomputed, planned.state, planned.activation_bytes
    row.device, row.lossless = planned.device, planned.lossy == 0
end

-- Returns the kinds that have bytes.
local function kept(kinds)
    local out = {}
    for name, n in iterate(kinds) do
        if n > 0 then out[name] = n end
    end
    return out
end

-- Fills the row. Gradients are digested before the measurement, because they are those of the model before training.
local function fill(row, settings, q)
    local fn, optimizer = built(settings, q)
    look(row, fn, optimizer, settings, q)
    local digest = measure.gradients(fn, q.policy)
    memory.trim()
    local m = measure.measure(fn, { policy = q.policy, optimizer = optimizer, lines = settings.lines,
        steps = settings.repeats, warmup = settings.warmup })
    row.digest, row.digest_of = digest, digest and 'gradients' or nil
    if not digest and optimizer then
        row.digest, row.digest_of = measure.fingerprint(optimizer:parameters()), 'parameters'
    end
    for _, name in ipairs { 'peak', 'predicted_peak', 'reserved', 'predicted_reserved', 'seconds', 'wall', 'times',
        'low', 'high', 'spread', 'load', 'cores', 'noisy', 'exact', 'trained' } do row[name] = m[name] end
    row.kinds, row.predicted_kinds = kept(m.kinds), kept(m.predicted_kinds)
    if m.loss then row.loss, row.loss_bits = m.loss, bits_of(m.loss) end
end

local MOST_LETTERS = 2 ^ 16 -- of a reason that a row keeps

--- Makes the row of a point that failed.
-- @param settings of the sweep
-- @param q point
-- @param code a word: 'oom', 'value', 'signal', 'limit', 'exit' and other codes of errors
-- @param text reason
-- @param extra further fields (optional)
-- @return row
function point.failed(settings, q, code, text, extra)
    local row = { n = q.number, point = q.description, script = settings.script, status = 'failed', code = code,
        error = #text > MOST_LETTERS and text:sub(1, MOST_LETTERS) .. ' ...' or text }
    for key, value in iterate(extra or {}) do row[key] = value end
    return row
end

--- Runs a point in this process.
-- @param settings { build =, seed =, repeats =, warmup =, lines =, script = }
-- @param q point of grid.points
-- @return row; an error becomes its reason
-- @raise 'interrupt' after ^C
function point.run(settings, q)
    local seed, counter = C.wn_here().seed, C.wn_here().counter
    local row = { n = q.number, point = q.description, script = settings.script, status = 'ok',
        threads = C.wn_threads() }
    row.date = os.date '!%Y-%m-%dT%H:%M:%SZ'
    local fine, why = errors.pcall(fill, row, settings, q)
    C.wn_seed(seed)
    C.wn_counter_set(counter)
    if fine then return row end
    local is_ours = errors.is(why)
    if is_ours and why.code == 'interrupt' then errors.again(why) end
    return point.failed(settings, q, is_ours and why.code or 'error', tostring(why), is_ours and {
        needs = why.needs, limit = why.limit, least = why.least } or nil)
end

return point
