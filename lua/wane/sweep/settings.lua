--- The settings of a sweep: checks the table that wane.sweep is given.
-- @internal wane.sweep.settings
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local measure = require 'wane.plan.measure'
local plan = require 'wane.plan'
local system = require 'wane.system'

local iterate, raise = errors.iterate, errors.raise

local settings = {}

local here = debug.getinfo(1, 'S').source:match '^(.*[/\\])sweep[/\\]' or '@'

local options = { 'build', 'grid', 'order', 'defaults', 'repeats', 'warmup', 'lines', 'seed', 'out', 'resume', 'limit',
    'isolate', 'verbose', 'title', 'retry_failed', 'shard' }

-- Returns a field as a whole number between two bounds.
local function whole(t, name, default, least, most)
    return errors.count(t[name] == nil and default or t[name], 'wane.sweep: ' .. name, least, most)
end

-- Checks all fields but counts.
local function check(t)
    plan.check_options(t, options, 'wane.sweep')
    errors.check_flags(t, { 'lines', 'retry_failed' }, 'wane.sweep')
    if type(t.build) ~= 'function' then
        raise(nil, 'value', 'wane.sweep: expected build = function(p) ... return fn, model, optimizer end, got %s',
            errors.describe(t.build))
    end
    if t.out ~= nil and type(t.out) ~= 'string' then
        raise(nil, 'value', "wane.sweep: out must be the name of a file such as 'runs/a.jsonl', got %s",
            errors.describe(t.out))
    end
    if t.resume and t.resume ~= true and t.resume ~= 'force' then
        raise(nil, 'value', "wane.sweep: resume must be true, false or 'force', got %s", errors.describe(t.resume))
    end
    if t.retry_failed and not t.out then
        raise(nil, 'value', 'wane.sweep: retry_failed needs the file whose failed points run again; give out =')
    end
    if t.resume and not t.out then
        raise(nil, 'value', 'wane.sweep: resume needs the file to go on with; give out =')
    end
    if t.limit ~= nil and not (type(t.limit) == 'number' and t.limit > 0) then
        raise(nil, 'value', 'wane.sweep: limit must be a number of seconds above 0, got %s', errors.describe(t.limit))
    end
end

-- Returns the texts of the script, { name =, text = }: the files in which `build` and the call of wane.sweep stand.
local function sources_of(t)
    local list, seen = {}, {}
    local function add(source)
        if seen[source] then return end
        seen[source] = true
        local name = source:match '^@(.*)'
        list[#list + 1] = { name = name or 'typed', text = name and (system.read(name) or '') or source }
    end
    add(debug.getinfo(t.build, 'S').source)
    local level = 4 -- frames of the library, from here up to wane.sweep, are skipped
    local info = debug.getinfo(level, 'S')
    while info and (info.what == 'C' or info.source:sub(1, #here) == here) do
        level = level + 1
        info = debug.getinfo(level, 'S')
    end
    if info then add(info.source) end
    return list
end

-- Returns a fingerprint of the script's texts and of the settings that change the rows.
local function script_of(t, made)
    local texts, defaults = {}, {}
    for i, source in ipairs(made.sources) do texts[i] = source.text end
    for key, value in iterate(t.defaults or {}) do defaults[tostring(key)] = tostring(value) end
    return measure.fingerprint { table.concat(texts, '\n'), json.encode { repeats = made.repeats,
        warmup = made.warmup, fused = not made.lines, seed = made.seed, defaults = defaults } }
end

--- Checks the table of a sweep.
-- @param t table of wane.sweep
-- @return { build =, lines =, limit = seconds or nil, seed =, repeats =, warmup =, script = fingerprint, sources = list
-- of { name =, text = } of the script }
-- @raise 'value' for a field that is unknown or wrong
function settings.of(t)
    check(t)
    local made = { build = t.build, lines = t.lines == true, limit = t.limit,
        is_forced = t.resume == 'force', seed = whole(t, 'seed', 0, 0, 2 ^ 53 - 1),
        repeats = whole(t, 'repeats', 3, 1, errors.MOST_STEPS), warmup = whole(t, 'warmup', 1, 0, errors.MOST_STEPS) }
    made.sources = sources_of(t)
    made.script = script_of(t, made)
    return made
end

return settings
