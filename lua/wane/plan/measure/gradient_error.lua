--- The change that a lossy policy makes to the gradients of a step, in numbers.
--
-- The step runs once under the policy and once under a reference that keeps every bit; nothing is trained and nothing
-- is left behind. Both record the same graph with the same random numbers, so they differ by the policy's treatment of
-- kept values alone. Sums are in double. A gradient with NaN or an infinity is an error: it must not pass for a small
-- one.
-- @module wane.plan.measure.gradient_error
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local parts = require 'wane.plan.parts'
local plan = require 'wane.plan'
local policy = require 'wane.policy'
local read = require 'wane.tensor.read'
local sequence = require 'wane.program.sequence'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'

local C, raise = binding.C, errors.raise
local abs, max, sqrt, tonumber = math.abs, math.max, math.sqrt, tonumber

local gradient_error = {}

local what = 'wane.gradient_error'

-- ---- gradients as numbers -----------------------------------------------------------------------------------------
-- Returns the gradients that the cells of a program hold.
local function gradients_of(p)
    local list = {}
    for i, cell in ipairs(p:cells()) do
        if tensor.info(cell).cell_kind == C.WN_KIND_GRADIENT then
            local name, shape = binding.text(C.wn_program_cell_name(p.handle, i - 1)), tensor.typed(cell)._dims
            list[#list + 1] = { name = name ~= '' and name or ('gradient %d'):format(i), shape = shape,
                n = tensor.count(shape), values = read.numbers(cell) }
        end
    end
    return list
end

-- Runs a step under a policy. Returns its gradients and the numbers of its plan: peak, reserved, lossy, seconds.
local function run(fn, chosen)
    local found = sequence.backward(fn, what, chosen, function(p)
        local made = parts.numbers(p)
        return { gradients = gradients_of(p), peak = made.peak, reserved = made.reserved, lossy = made.lossy,
            seconds = made.seconds }
    end)
    if found then return found end
    raise(nil, 'value', '%s: the function must return a loss that needs a gradient and run nothing, so that there are '
        .. 'gradients and nothing is trained', what)
end

-- ---- comparing ----------------------------------------------------------------------------------------------------
-- Refuses element k of a gradient that is not finite.
local function refuse(g, k, v, under)
    raise(nil, 'value', "%s: element %d of the gradient of '%s' is %g under %s; an error measure of it would say "
        .. 'nothing', what, k + 1, g.name, v, under)
end

-- Returns the sums of one parameter: of the squares of the difference (d2), of the reference (r2) and of ours (o2), and
-- of the products (dot).
local function sums_of(ours, reference, names)
    local a, b, most, differ = ours.values, reference.values, 0, 0
    local d2, r2, o2, dot = 0, 0, 0, 0
    for k = 0, ours.n - 1 do
        local x, y = tonumber(a[k]), tonumber(b[k])
        if x - x ~= 0 then refuse(ours, k, x, names.policy) end
        if y - y ~= 0 then refuse(reference, k, y, names.reference) end
        local d = x - y
        most = max(most, abs(d))
        if d ~= 0 then differ = differ + 1 end
        d2, r2, o2, dot = d2 + d * d, r2 + y * y, o2 + x * x, dot + x * y
    end
    return { max_abs = most, differ = differ, n = ours.n, d2 = d2, r2 = r2, o2 = o2, dot = dot }
end

-- Returns the measures of sums. Equal bits give relative = 0 and cosine = 1 exactly, for gradients that are all zero
-- too.
local function measures(s)
    local out = { max_abs = s.max_abs, differ = s.differ, elements = s.n, norm = sqrt(s.r2) }
    if s.d2 == 0 then
        out.relative, out.cosine = 0, 1
    else
        out.relative = s.r2 > 0 and sqrt(s.d2 / s.r2) or math.huge
        out.cosine = s.r2 > 0 and s.o2 > 0 and s.dot / sqrt(s.r2) / sqrt(s.o2) or 0
    end
    return out
end

-- Adds the sums of one parameter to those of all.
local function add(total, s)
    for _, name in ipairs { 'differ', 'n', 'd2', 'r2', 'o2', 'dot' } do total[name] = total[name] + s[name] end
    total.max_abs = max(total.max_abs, s.max_abs)
end

-- Class of reports: a printable list with an entry for each parameter, in the order of the graph: { name =, shape =,
-- max_abs =, relative =, cosine =, norm =, elements =, differ = }. Fields: total (the entry of all parameters as one
-- vector), policy and reference (texts), lossy (values that lost bits), peak and reference_peak (bytes), exact (no bit
-- differs).
local Report = {}
Report.__index = Report

local MOST = 24 -- rows that are printed

local function row_of(name, shape, e)
    return { name, shape, ('%.3e'):format(e.max_abs), ('%.3e'):format(e.relative), ('%.9f'):format(e.cosine) }
end

function Report.__tostring(r)
    local order, rows = {}, {}
    for i, e in ipairs(r) do order[i] = e end
    if #order > MOST then
        table.sort(order, function(a, b)
            if a.relative ~= b.relative then return a.relative > b.relative end
            return a.name < b.name
        end)
    end
    for i = 1, math.min(#order, MOST) do
        rows[i] = row_of(order[i].name, tensor.shape_text(order[i].shape), order[i])
    end
    if #order > MOST then rows[#rows + 1] = { ('and %d with less'):format(#order - MOST) } end
    rows[#rows + 1] = row_of('all', '', r.total)
    return ('gradients under %s against %s: %s\n'):format(r.policy, r.reference, r.exact and 'the same bits'
        or ('%d of %d elements differ; lossy, %d values lost bits'):format(r.total.differ, r.total.elements, r.lossy))
        .. ('peak %s against %s\n'):format(bytes.text(r.peak), bytes.text(r.reference_peak))
        .. table_.text({ 'gradient of', 'shape', 'max abs error', 'relative error', 'cosine' }, rows)
end

--- Runs a step under a policy and under one that loses nothing, and compares the gradients.
-- @param fn function() that records and returns the loss
-- @param opts {policy =, budget =, reference = 'save_all'}: the reference must keep every bit
-- @return a report, which prints as a table: total.relative = |g - r| / |r|, total.cosine, total.max_abs, and an entry
-- for each parameter
-- @raise 'value' when a gradient holds NaN or an infinity, when the reference is lossy, or when fn returns no loss that
-- needs a gradient
-- @usage
-- local function step() return nn.cross_entropy(model(x), y) end
-- print(wane.gradient_error(step, { policy = 'recompute_all' }).exact) --> true
function gradient_error.gradient_error(fn, opts)
    opts = plan.check_options(opts, { 'policy', 'budget', 'reference' }, what)
    local chosen = require('wane.program.grad').policy(opts)
    if chosen == nil then
        raise(nil, 'value', "%s: which policy? e.g. {policy = 'compress:bf16'}", what)
    end
    local against = policy.of(opts.reference or 'save_all')
    local reference = run(fn, against)
    if reference.lossy > 0 then
        raise(nil, 'value', "%s: the reference %s is lossy itself (%d values); give one that keeps every bit, such as "
            .. "'save_all'", what, tostring(against), reference.lossy)
    end
    local ours = run(fn, chosen)
    local names = { policy = tostring(chosen), reference = tostring(against) }
    local total = { max_abs = 0, differ = 0, n = 0, d2 = 0, r2 = 0, o2 = 0, dot = 0 }
    local report = setmetatable({ policy = names.policy, reference = names.reference, lossy = ours.lossy,
        peak = ours.peak, reference_peak = reference.peak }, Report)
    for i, g in ipairs(ours.gradients) do
        local s = sums_of(g, reference.gradients[i], names)
        add(total, s)
        report[i] = measures(s)
        report[i].name, report[i].shape = g.name, g.shape
    end
    report.total = measures(total)
    report.exact = total.differ == 0
    return report
end

return gradient_error
