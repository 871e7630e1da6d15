--- The table of spec/bench/seconds.lua from the data it wrote: text in, text out.
--
-- A plan's error is its predicted seconds over its measured ones, less 1. The drift of a model is how long the plan
-- that the profile ran took during the turns, over what it took in the profile: where it is not 1, the machine changed
-- its speed in between, and the errors "without drift" are those of predictions multiplied by it.
local report = require 'spec.bench.report'
local secondsreport = {}

local function percent(x) return ('%.1f %%'):format(100 * x) end

local function median(list)
    table.sort(list)
    local n = #list
    return n == 0 and 0 or n % 2 == 1 and list[(n + 1) / 2] or (list[n / 2] + list[n / 2 + 1]) / 2
end

--- Returns the seconds of the profiled plan during the turns over its seconds in the profile.
function secondsreport.drift(row)
    return row.plans[1].seconds / row.profiled
end

--- Returns the median and the worst error of a model's plans.
-- @param row of the data
-- @param factor of the predictions: 1, or the drift
-- @param is_other true: only of plans that the profile did not run
-- @return median, worst
function secondsreport.errors(row, factor, is_other)
    local errors, worst = {}, 0
    for _, q in ipairs(row.plans) do
        if not (is_other and q.is_known) then
            local e = math.abs(factor * q.predicted / q.seconds - 1)
            errors[#errors + 1], worst = e, math.max(worst, e)
        end
    end
    return median(errors), worst
end

--- Counts the pairs of plans 3 % apart or more that the prediction puts in the right order, and all such pairs.
function secondsreport.order(row)
    local right, all = 0, 0
    for i, p in ipairs(row.plans) do
        for k = i + 1, #row.plans do
            local q = row.plans[k]
            if math.abs(p.seconds / q.seconds - 1) >= 0.03 then
                all = all + 1
                if (p.seconds - q.seconds) * (p.predicted - q.predicted) > 0 then right = right + 1 end
            end
        end
    end
    return right, all
end

--- Returns the table, a row a model.
function secondsreport.table(data)
    local rows = {}
    for i, r in ipairs(data.rows) do
        local drift, right, all = secondsreport.drift(r), secondsreport.order(r)
        local middle, worst = secondsreport.errors(r, 1)
        local still, most = secondsreport.errors(r, drift)
        rows[i] = { r.name .. ': ' .. r.what, #r.plans, r.turns, ('%.3g ms'):format(r.plans[1].seconds * 1e3),
            percent(middle), percent((secondsreport.errors(r, 1, true))), percent(worst), ('%.3f'):format(drift),
            percent(still), percent(most), ('%d of %d'):format(right, all), ('%.2f'):format(r.unrest),
            r.disturbed and 'yes' or 'no' }
    end
    return report.markdown({ 'model', 'plans', 'turns', 'a step', 'median error', 'of others', 'worst', 'drift',
        'median without drift', 'worst without drift', 'order', 'unrest', 'disturbed' }, rows)
end

--- Returns one sentence for all models.
function secondsreport.sentence(data)
    local right, all, plans, raw, still = 0, 0, 0, 0, 0
    local worst, most = 0, 0
    for _, r in ipairs(data.rows) do
        local a, b = secondsreport.order(r)
        local drift = secondsreport.drift(r)
        local e, w = secondsreport.errors(r, 1)
        local s, v = secondsreport.errors(r, drift)
        right, all, plans = right + a, all + b, plans + #r.plans
        raw, worst, still, most = math.max(raw, e), math.max(worst, w), math.max(still, s), math.max(most, v)
    end
    return ('Predicted and measured seconds of %d plans of %d models: of %d pairs 3 %% apart or more, %s are in the '
        .. 'right order; the median error of a model is at most %s and the worst of a plan %s, or %s and %s without '
        .. "the machine's drift between the profile and the turns.\n"):format(plans, #data.rows, all,
        all > 0 and percent(right / all) or 'none', percent(raw), percent(worst), percent(still), percent(most))
end

local function circumstances(data)
    local m = data.machine
    return ('%s, cores %s, %d GiB; %d threads. Load average %s when the last model was measured.\n'):format(m.cpu,
        m.cores, m.GiB, data.threads, data.load.finish)
end

local EXPLAINED = [[
A plan's seconds are the lower quartile of its turns. "Others" are the plans that the profile did not run. Drift:
seconds of the plan that the profile ran, during the turns over in the profile; "without drift": of predictions times
it.
]]

--- Returns the text of RESULTS.md, which seconds.lua also prints.
function secondsreport.results(data)
    return table.concat({ circumstances(data), EXPLAINED, secondsreport.table(data), secondsreport.sentence(data) },
        '\n')
end

--- Returns what spec/README.md says.
function secondsreport.readme(data)
    return secondsreport.sentence(data)
end

--- Returns why these results may not replace the published ones, or nil when they may.
function secondsreport.refusal(new, old)
    local has = {}
    for _, r in ipairs(new.rows) do
        has[r.name] = true
        if r.turns < 9 then return ("'%s' has fewer than 9 turns"):format(r.name) end
        if r.disturbed then return ("the profile of '%s' was disturbed: %s"):format(r.name, r.disturbed) end
    end
    for _, r in ipairs(old and old.rows or {}) do
        if not has[r.name] then return ("they lack the model '%s'"):format(r.name) end
    end
end

return secondsreport
