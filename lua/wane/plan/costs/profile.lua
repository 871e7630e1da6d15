--- wane.profile(fn): the seconds that each application of a step's ops takes on this machine.
--
-- A step runs under several plans in turns: the script's own, and those of recompute_all and sqrt where they reserve
-- no more. A turn of a plan is three steps: the first is not timed, the second is timed as a whole, the third
-- application by application. The seconds of an application are the lower quartile over the turns, then the mean over
-- all places in all plans with the same key. An application that reads a recomputed value has a key of its own ('
-- again'), because that value is still in a cache. All seconds are multiplied by one factor so that they add up to
-- whole steps, which also contain the time between applications. A profile taken beside other work is noticed
-- (profile.judge), taken again, and not kept.
--
-- A whole step is counted without what it waited for, moves to other memory and exchanges among ranks: plans count
-- those themselves. Ranks of a job that profile a step of all of them run the script's own plan alone, and as many
-- turns as all others: a rank that went on by its own clock, or for its own disturbances, would wait for others in
-- vain.
--
-- Measured: applications add up to 92 to 96 % of a step (stacks of GPT blocks and MLPs, 2 threads of a shared machine).
-- Measured: the gradient of a GELU that a product computes with it takes 1,033 us where the GELU's input was saved, 728
-- us where it was just recomputed (512 x 768, same machine).
-- @internal wane.plan.costs.profile
local binding = require 'wane.ffi'
local applications = require 'wane.plan.measure.applications'
local iterate = require 'wane.iterate'
local parts = require 'wane.plan.parts'
local progress = require 'wane.report.progress'
local ranks = require 'wane.program.ranks'
local steps_of = require 'wane.plan.step'
local sequence = require 'wane.program.sequence'
local scoped = require 'wane.scoped'

local C, check = binding.C, binding.check

local profile = {}

local TRIES = 3          -- profiles taken until one is undisturbed, at most
local RESTLESS = 1.5     -- most `unrest` of an undisturbed profile; a quiet machine shows 1.02 to 1.2
local LONGEST = 1.35     -- most ratio of a whole step to the sum of its applications; 1.04 to 1.1 on a quiet machine
local BETWEEN = 20e-6    -- seconds between two applications that are no sign of other work
local FURTHEST = 10      -- most ratio of the sum of applications to the machine's roofline
local FEWEST, MOST, SPREAD = 5, 100, 1 -- turns, turns, seconds, where nobody gives the number of turns
local SILENT = 0.5 -- seconds before a progress line is shown
local others = { 'recompute_all', 'sqrt' }

-- Sorts a list and returns its quantile: the least value that at least `share` of the list does not exceed.
local function quantile(list, share)
    table.sort(list)
    return list[math.max(1, math.ceil(share * #list))]
end

-- ---- running ------------------------------------------------------------------------------------------------------
local measured = binding.new('struct wn_measured')

-- Runs one step under a policy. Returns the list of look(p) for each of its programs p.
local function step(fn, mode, policy, look)
    local seen = {}
    local function listen(p) seen[#seen + 1] = look(p) end
    if mode == 'other' then
        scoped('listen', listen, fn)
        return seen
    end
    local undone = mode == 'backward' or mode == 'eval'
    local policies = policy ~= nil and { policy } or nil
    sequence.run(fn, 'wane.profile', { policies = policies, undone = undone }, function(list)
        for _, part in ipairs(list) do listen(part.program) end
    end)
    return seen
end

-- Returns the seconds of a program that has run, without those that it waited, and its bytes among ranks.
local function whole_of(p)
    check(C.wn_measured(p.handle, measured))
    local numbers = {}
    parts.take_wire(numbers, measured)
    return { seconds = measured.seconds - measured.stall_seconds - measured.wait_seconds,
        wire = numbers.sent + numbers.got }
end

-- Returns the applications of a program that ran with timing: list of { key =, seconds = }.
local function applications_of(p)
    local list = {}
    for i = 0, C.wn_count(p.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
        local seconds = C.wn_step_seconds(p.handle, i)
        local key = seconds >= 0 and binding.text(C.wn_cost_key_step(p.handle, i)) or ''
        if key ~= '' then list[#list + 1] = { key = key, seconds = seconds } end
    end
    return list
end

-- Runs a turn of one plan and adds it to record: { whole = list of seconds, places = list of { key =, times = list of
-- seconds }, collector = of plan/measure/applications.lua, or nil, wire = bytes among ranks, of a step }.
local function turn(fn, mode, policy, record)
    step(fn, mode, policy, function() end)
    local whole = 0
    record.wire = 0
    for _, p in ipairs(step(fn, mode, policy, whole_of)) do
        whole, record.wire = whole + p.seconds, record.wire + p.wire
    end
    if record.collector then record.collector:begin() end
    local programs = scoped('timing', 1, step, fn, mode, policy, function(p)
        if record.collector then record.collector:take(p) end
        return applications_of(p)
    end)
    table.insert(record.whole, whole)
    local at = 0
    for _, list in ipairs(programs) do
        for _, a in ipairs(list) do
            at = at + 1
            record.places[at] = record.places[at] or { key = a.key, times = {} }
            table.insert(record.places[at].times, a.seconds)
        end
    end
end

-- Returns the policies whose plans are measured. None of their plans reserves more than the script's own plan. Ranks
-- might find others than each other.
local function policies_of(fn, mode, policy)
    if policy ~= nil or mode == 'eval' or ranks.size > 1 then return { { policy = policy } } end
    local list, seen = { {} }, {}
    local own = steps_of.plan(fn)
    if own == nil then return list end
    seen[own.recomputed] = true
    for _, name in ipairs(others) do
        local ok, p = pcall(steps_of.plan, fn, { policy = name })
        if ok and p and p.reserved <= own.reserved and not seen[p.recomputed] then
            seen[p.recomputed] = true
            list[#list + 1] = { policy = name }
        end
    end
    return list
end

-- Tells whether records are of a step of all ranks of a job: bytes went among them.
local function is_joint(records)
    return records[1].wire > 0
end

--- Runs the turns of a profile.
--
-- Without a number of turns it runs FEWEST, and where a turn leaves nothing behind, more until SPREAD seconds are over
-- (at most MOST), so that a burst of other work reaches few turns of a short step; not in a step of all ranks.
-- @param fn as for wane.profile
-- @param mode of its request: 'backward', 'eval', 'step', 'update', or 'several' for several run points
-- @param steps number of turns, or nil
-- @param policy the only policy, or nil for several
-- @param bar progress line of wane.report.progress, or nil
-- @return list of records, one a plan: { whole = list of seconds, places = list of { key =, times = list of seconds },
-- policy = }
function profile.run(fn, mode, steps, policy, bar)
    local records, from, turns = {}, C.wn_now(), 0
    local most = steps or (mode == 'backward' or mode == 'eval') and MOST or FEWEST
    for i, each in ipairs(policies_of(fn, mode, policy)) do
        records[i] = { whole = {}, places = {}, policy = each.policy, collector = i == 1 and applications.new() or nil }
    end
    repeat
        for _, record in ipairs(records) do turn(fn, mode, record.policy, record) end
        turns = turns + 1
        if not steps and is_joint(records) then most = FEWEST end
        if bar then bar:look(turns, steps or math.max(FEWEST, math.ceil(turns * SPREAD / (C.wn_now() - from)))) end
    until turns >= most or not steps and turns >= FEWEST and C.wn_now() - from >= SPREAD
    return records
end

-- ---- seconds of applications ----------------------------------------------------------------------------------------

--- Returns the seconds of each key, and the signs of other work.
-- @param records of profile.run
-- @return { key = seconds }, { unrest = sum of medians over sum of least seconds, over all applications; stretch =
-- median over plans of a whole step over the sum of its applications; sum = seconds of applications, whole = seconds of
-- the step, count = number of applications, collector = of plan/measure/applications.lua, all four of the first plan }
function profile.fit(records)
    local sums, counts, medians, least, stretches, seconds, signs = {}, {}, 0, 0, {}, {}, nil
    for i, record in ipairs(records) do
        local sum = 0
        for _, place in ipairs(record.places) do
            local s = quantile(place.times, 0.25)
            sums[place.key], counts[place.key] = (sums[place.key] or 0) + s, (counts[place.key] or 0) + 1
            medians, least = medians + quantile(place.times, 0.5), least + place.times[1]
            sum = sum + s
        end
        local whole = quantile(record.whole, 0.25) or 0
        stretches[i] = sum > 0 and whole / sum or 1
        signs = signs or { sum = sum, whole = whole, count = #record.places, collector = record.collector }
    end
    local stretch = quantile(stretches, 0.5)
    for key, sum in iterate(sums) do seconds[key] = stretch * sum / counts[key] end
    signs.unrest, signs.stretch = least > 0 and medians / least or 1, stretch
    return seconds, signs
end

--- Tells whether a profile was taken beside other work.
-- @param signs of profile.fit; `roofline` may be added: seconds that the machine's measured rates allow for the
-- applications
-- @return a sentence that names the sign of other work, or nil for an undisturbed profile
function profile.judge(signs)
    if signs.unrest > RESTLESS then
        return ('medians are %.1f times the least seconds'):format(signs.unrest)
    end
    local slack = BETWEEN * signs.count
    if signs.whole > LONGEST * signs.sum + slack or signs.sum > LONGEST * signs.whole + slack then
        return ('a whole step takes %.3g s and the sum of its applications is %.3g s'):format(signs.whole, signs.sum)
    end
    if signs.roofline and signs.sum > FURTHEST * signs.roofline + slack then
        return ('applications take %.1f times what the rates measured on this machine allow'):format(signs.sum
            / signs.roofline)
    end
end

-- Returns a sentence where some rank was disturbed: that of this one, or who was. Every rank calls it.
local function why_of_all(why)
    for r, mine in iterate(ranks.numbers('wane.profile', 1, function() return why and 1 or 0 end)) do
        if mine[1] == 1 then why = why or ('rank %d was disturbed'):format(r) end
    end
    return why
end

--- Takes profiles until one is undisturbed, at most TRIES of them. Ranks of a step of all of them take as many.
-- @param fn as for profile.run
-- @param mode as for profile.run
-- @param steps as for profile.run
-- @param policy as for profile.run
-- @param roofline function() that returns the roofline of the first plan in seconds, or nil
-- @return { key = seconds }, signs of profile.fit, and the sentence of profile.judge
function profile.take(fn, mode, steps, policy, roofline)
    local seconds, signs, why
    for _ = 1, TRIES do
        local bar = progress.late(SILENT, 'turns of the plans that are measured')
        local records = scoped.always(function() bar:finish() end, profile.run, fn, mode, steps, policy, bar)
        seconds, signs = profile.fit(records)
        signs.roofline = roofline and roofline() or nil
        why = profile.judge(signs)
        if is_joint(records) then why = why_of_all(why) end
        if not why then return seconds, signs end
    end
    return seconds, signs, why
end

--- Returns the least seconds of an application that fn runs, each being the lower quartile of 7 turns.
-- @param fn function() that runs
-- @param pattern Lua pattern that the key of the application contains
-- @return seconds, math.huge when no key matches
function profile.best(fn, pattern)
    local least = math.huge
    local record = { whole = {}, places = {} }
    for _ = 1, 7 do turn(fn, 'other', nil, record) end
    for _, place in ipairs(record.places) do
        if place.key:find(pattern) then least = math.min(least, quantile(place.times, 0.25)) end
    end
    return least
end

return profile
