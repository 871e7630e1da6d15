--- wane.profile(fn): what each application of a step's ops takes on this machine.
--
-- A step runs under several plans in turns: the one asked for, and those that recompute all and by sqrt where they
-- reserve no more. In each turn the first step is passed over, one is timed as a whole and one application by
-- application. An application's seconds are the lower quartile of the turns, then the mean of all places of all plans
-- that apply the same; one that reads a value which was computed again is another application (' again'), for such a
-- value is still near. All are stretched alike so that they add up to whole steps, for what lies between applications
-- takes time too. What ran beside other work is noticed (judge), tried again, and not kept.
--
-- Measured, two threads of a shared machine, stacks of GPT blocks and MLPs: applications add up to 92 to 96 % of a
-- step.
-- The gradient of a GELU that a product computes with it takes 1,033 us where the GELU's input was kept and 728 where
-- it was just computed again (512 x 768).
-- @module wane.plan.profile
local binding = require 'wane.ffi'
local plan = require 'wane.plan'
local program = require 'wane.program'
local scoped = require 'wane.scoped'

local C, check = binding.C, binding.check

local profile = {}

local TRIES = 3          -- of a profile, until one is undisturbed
local RESTLESS = 1.5     -- of unrest: a quiet machine shows 1.02 to 1.2
local LONGEST = 1.35     -- a whole step over the sum of its applications: 1.04 to 1.1 on a quiet machine
local BETWEEN = 20e-6    -- seconds between two applications that are no sign of other work
local FURTHEST = 10      -- the sum over what the machine's measured rates allow
local FEWEST, MOST, SPREAD = 5, 100, 1 -- turns, turns, seconds; where nobody says how many turns
local others = { 'recompute_all', 'sqrt' }

-- The value below which a share of a list lies; sorts it.
local function quantile(list, share)
    table.sort(list)
    return list[math.max(1, math.ceil(share * #list))]
end

-- ---- running ------------------------------------------------------------------------------------------------------
local measured = binding.new('struct wn_measured')

-- One step under a policy. Returns a list of its programs' numbers as `look` gives them.
local function step(fn, mode, policy, look)
    local seen = {}
    local function listen(p) seen[#seen + 1] = look(p) end
    if mode == 'backward' or mode == 'eval' then
        local copy = { transient = mode == 'backward' }
        for key, value in pairs(plan.request_of(fn, 'wane.profile')) do copy[key] = value end
        if policy ~= nil then copy.policy = policy end
        local p = program.open(copy):plan()
        local ok, why = pcall(p.run, p)
        require('wane.module').new_epoch()
        if ok then listen(p) end
        p:close() -- a gradient that lives on makes the next step's lie in memory that nothing has touched
        if not ok then error(why, 0) end
    elseif policy ~= nil then
        scoped('listen', listen, scoped, 'call policy', policy, fn)
    else
        scoped('listen', listen, fn)
    end
    return seen
end

local function whole_of(p)
    check(C.wn_measured(p.handle, measured))
    return measured.seconds
end

local function applications_of(p)
    local list = {}
    for i = 0, C.wn_step_count(p.handle) - 1 do
        local seconds = C.wn_step_seconds(p.handle, i)
        local key = seconds >= 0 and binding.text(C.wn_cost_key_step(p.handle, i)) or ''
        if key ~= '' then list[#list + 1] = { key = key, seconds = seconds } end
    end
    return list
end

-- A turn of one plan; record: { whole = list of seconds, places = list of { key =, times = list of seconds } }.
local function turn(fn, mode, policy, record)
    step(fn, mode, policy, function() end)
    local whole = 0
    for _, seconds in ipairs(step(fn, mode, policy, whole_of)) do whole = whole + seconds end
    local programs = scoped('timing', 1, step, fn, mode, policy, applications_of)
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

-- The policies whose plans are measured: no more is reserved than by the plan that was asked for.
local function policies_of(fn, mode, policy)
    if policy ~= nil or mode == 'eval' then return { { policy = policy } } end
    local list, seen = { {} }, {}
    local own = plan.plan(fn)
    if own == nil then return list end
    seen[own.recomputed] = true
    for _, name in ipairs(others) do
        local ok, p = pcall(plan.plan, fn, { policy = name })
        if ok and p and p.reserved <= own.reserved and not seen[p.recomputed] then
            seen[p.recomputed] = true
            list[#list + 1] = { policy = name }
        end
    end
    return list
end

--- Runs the turns: as many as are asked for, or else FEWEST and, where a turn leaves nothing behind, as many more as
-- take SPREAD seconds, so that a burst of other work reaches few of a short step's turns.
-- @param fn as for wane.profile
-- @param mode of its request: 'backward', 'eval', 'step', 'update'
-- @param steps turns, or nil
-- @param policy the only one, or nil for several
-- @return list of records, one a plan: { whole = list of seconds, places = list of { key =, times = } }
function profile.run(fn, mode, steps, policy)
    local records, from, turns = {}, C.wn_now(), 0
    local most = steps or (mode == 'backward' or mode == 'eval') and MOST or FEWEST
    for i, each in ipairs(policies_of(fn, mode, policy)) do
        records[i] = { whole = {}, places = {}, policy = each.policy }
    end
    repeat
        for _, record in ipairs(records) do turn(fn, mode, record.policy, record) end
        turns = turns + 1
    until turns >= most or not steps and turns >= FEWEST and C.wn_now() - from >= SPREAD
    return records
end

-- ---- what the times come to -----------------------------------------------------------------------------------------
--- Seconds by key, and how far the machine was from quiet.
-- @param records of profile.run
-- @return { key = seconds }, { unrest = medians over least seconds of all applications, stretch = the median over plans
-- of a whole step over the sum of its applications, sum = seconds of applications, whole = of the step, count = of
-- applications; these three of the first plan }
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
        signs = signs or { sum = sum, whole = whole, count = #record.places }
    end
    local stretch = quantile(stretches, 0.5)
    for key, sum in pairs(sums) do seconds[key] = stretch * sum / counts[key] end
    signs.unrest, signs.stretch = least > 0 and medians / least or 1, stretch
    return seconds, signs
end

--- Whether a profile was taken beside other work.
-- @param signs of profile.fit, and `roofline`: seconds that the machine's measured rates allow for the applications
-- (nil: nothing measured them)
-- @return a sentence that says by what it shows; nil when it was undisturbed
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

--- Profiles until one is undisturbed, a few times at most.
-- @param fn as for profile.run
-- @param mode as for profile.run
-- @param steps as for profile.run
-- @param policy as for profile.run
-- @param roofline function() -> seconds for the first plan, or nil
-- @return { key = seconds }, signs (of profile.fit), why (of profile.judge)
function profile.take(fn, mode, steps, policy, roofline)
    local seconds, signs, why
    for _ = 1, TRIES do
        seconds, signs = profile.fit(profile.run(fn, mode, steps, policy))
        signs.roofline = roofline and roofline() or nil
        why = profile.judge(signs)
        if not why then return seconds, signs end
    end
    return seconds, signs, why
end

--- Best seconds of one application that fn runs and whose key holds a pattern.
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
