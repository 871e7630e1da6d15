--- Tells where the numbers of a sweep come from: dates, load and spread of its rows, its settings, the command that
-- repeats it, and which differences of seconds are more than noise.
--
-- Rows may come from a file that somebody edited, so each field is looked at before it is used; a row without quartiles
-- counts as measured exactly.
-- @internal wane.sweep.provenance
local errors = require 'wane.errors'
local spread = require 'wane.report.spread'
local system = require 'wane.system'

local provenance = {}

-- Variables of the environment that change seconds or the device, in the order in which a command names them.
local VARIABLES = { 'WANE_DEVICE', 'WANE_THREADS', 'OMP_NUM_THREADS', 'WANE_KERNELS', 'WANE_ONEDNN' }

-- Options that go on with a file, and do not repeat a sweep.
local RESUMES = { ['--resume'] = true, ['--resume=force'] = true, ['--retry-failed'] = true }

-- Returns the words of a command as a user types them: the launcher's name in place of the interpreter and the file
-- that the launcher runs.
local function typed(words)
    local out, from = {}, 1
    for i, word in ipairs(words) do
        if word:match 'wane[/\\]cli[/\\]init%.lua$' then out[1], from = 'wane', i + 1 end
    end
    for i = from, #words do
        if not RESUMES[words[i]] then out[#out + 1] = words[i] end
    end
    return out
end

--- Returns the line that repeats the sweep, such as "wane sweep x.lua --policy save_all,sqrt", with the variables of
-- the environment that matter; nil at a prompt, or where the system does not say.
function provenance.command()
    local repl, words = package.loaded['wane.repl'], system.command_line()
    if words == nil or repl ~= nil and repl.is_on then return nil end
    local line = system.quoted(typed(words))
    for i = #VARIABLES, 1, -1 do
        local value = os.getenv(VARIABLES[i])
        if value and value ~= '' then line = ('%s=%s %s'):format(VARIABLES[i], system.quoted { value }, line) end
    end
    return line
end

--- Returns the spread of a row's seconds, the distance of their quartiles over the median, as text; '' where the
-- row does not say.
-- @param row of a sweep
function provenance.spread(row)
    return type(row.spread) == 'number' and ('%.0f %%'):format(100 * row.spread) or ''
end

--- Returns the load of the machine when a row was measured, as text; '' where the row does not say.
-- @param row of a sweep
function provenance.load(row)
    return type(row.load) == 'number' and ('%.2f'):format(row.load) or ''
end

local DATE = '^%d+%-%d+%-%d+T[%d:]+Z$'

-- Returns "1 to 3" for the least and the greatest number of a field of rows, "1" where they are equal, nil for none.
-- form: of the numbers; without one the field holds dates.
local function range(rows, name, form)
    local low, high
    for _, row in ipairs(rows) do
        local value = row[name]
        if form and type(value) == 'number' or not form and type(value) == 'string' and value:find(DATE) then
            low, high = low and low < value and low or value, high and high > value and high or value
        end
    end
    if low == nil then return nil end
    low, high = (form or '%s'):format(low), (form or '%s'):format(high)
    return low == high and low or low .. ' to ' .. high
end

--- Returns what a reader must know of the measurement, as a list of { name, text }.
-- @param self Sweep
function provenance.facts(self)
    local rows, settings = self:measured(), self.settings or {}
    local facts, devices = {}, {}
    for _, row in ipairs(rows) do devices[row.device or 1] = true end
    local function add(name, text)
        if text ~= nil and text ~= '' then facts[#facts + 1] = { name, tostring(text) } end
    end
    add('measured', range(self:rows(), 'date'))
    add('report made', os.date '!%Y-%m-%dT%H:%M:%SZ')
    add('seed', settings.seed and ('%.0f'):format(settings.seed))
    add('steps a point', settings.repeats and ('%d measured, %d before them'):format(settings.repeats,
        settings.warmup))
    add('step', settings.lines and 'zero_grad, backward and step, in three lines' or nil)
    add('device', table.concat(errors.names(devices), ', '))
    add('threads', range(rows, 'threads', '%g'))
    add('cores', range(rows, 'cores', '%g'))
    add('load', range(rows, 'load', '%.2f'))
    return facts
end

--- Tells whether a row comes from another text of the script than this one.
-- @param self Sweep
function provenance.is_mixed(self)
    for _, row in ipairs(self:rows()) do
        if row.script ~= nil and row.script ~= self.settings.script then return true end
    end
    return false
end

-- ---- noise ----------------------------------------------------------------------------------------------------------

--- Returns the seconds of a row's step, recording included; those of its programs where the row says no more.
function provenance.step(row)
    return row.wall or row.seconds
end

-- Returns the seconds of a row as spread.of returns them.
local function seconds_of(row)
    local median = provenance.step(row)
    return { median = median, low = math.min(row.low or median, median), high = math.max(row.high or median, median) }
end

--- Returns the rows of a front that are faster, by more than noise, than every row before them that is returned.
-- @param front rows that no other beats, by ascending peak
-- @return list of rows: the first one, and those that buy seconds for their bytes
function provenance.distinct(front)
    local out = {}
    for _, row in ipairs(front) do
        local is_faster = true
        for _, before in ipairs(out) do
            is_faster = is_faster and (row.peak == before.peak or spread.is_less(seconds_of(row), seconds_of(before)))
        end
        if is_faster then out[#out + 1] = row end
    end
    return out
end

--- Returns ' noisy' for a row that was measured amid other work, else ''.
-- @param row of a sweep
function provenance.word(row)
    return row.noisy and ' noisy' or ''
end

--- Returns words for the summary of a sweep: how many rows are noisy, and the worst of them; '' when none is.
-- @param rows measured rows of a sweep
function provenance.summary(rows)
    local count, worst = 0, nil
    for _, row in ipairs(rows) do
        if row.noisy then
            count = count + 1
            if not worst or (row.spread or 0) > (worst.spread or 0) then worst = row end
        end
    end
    if count == 0 then return '' end
    return ('; %d of %d noisy (%s): measure again on a quiet machine, or with more repeats'):format(count, #rows,
        count == 1 and worst.noisy:gsub('^noisy: ', '') or 'the worst: ' .. worst.noisy:gsub('^noisy: ', ''))
end

return provenance
