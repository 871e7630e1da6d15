--- Tells where the numbers of a sweep come from: dates, load and spread of its rows, its settings, and the command
-- that repeats it.
--
-- Rows may come from a file that somebody edited, so each field is looked at before it is used.
-- @internal wane.sweep.provenance
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

-- Returns "1 to 3" for the least and greatest of some values, "1" where they are equal, nil for none.
local function range(values)
    table.sort(values)
    if #values == 0 then return nil end
    return values[1] == values[#values] and values[1] or ('%s to %s'):format(values[1], values[#values])
end

-- Returns the texts that a function gives for rows, each once.
local function each_once(rows, fn)
    local seen, out = {}, {}
    for _, row in ipairs(rows) do
        local text = fn(row)
        if text and text ~= '' and not seen[text] then
            seen[text] = true
            out[#out + 1] = text
        end
    end
    return out
end

-- Returns the least and greatest load of rows as text; nil where no row says.
local function loads_of(rows)
    local low, high = math.huge, -math.huge
    for _, row in ipairs(rows) do
        if type(row.load) == 'number' then low, high = math.min(low, row.load), math.max(high, row.load) end
    end
    if low > high then return nil end
    return low == high and ('%.2f'):format(low) or ('%.2f to %.2f'):format(low, high)
end

--- Returns what a reader must know of the measurement, as a list of { name, text }.
-- @param self Sweep
function provenance.facts(self)
    local rows, settings = self:measured(), self.settings or {}
    local facts = {}
    local function add(name, text)
        if text ~= nil and text ~= '' then facts[#facts + 1] = { name, tostring(text) } end
    end
    add('measured', range(each_once(self:rows(), function(row)
        return type(row.date) == 'string' and row.date:match '^%d+%-%d+%-%d+T[%d:]+Z$' and row.date
    end)))
    add('report made', os.date '!%Y-%m-%dT%H:%M:%SZ')
    add('seed', settings.seed and ('%.0f'):format(settings.seed))
    add('steps a point', settings.repeats and ('%d measured, %d before them'):format(settings.repeats,
        settings.warmup))
    add('step', settings.lines and 'zero_grad, backward and step, in three lines' or nil)
    add('device', table.concat(each_once(rows, function(row)
        return type(row.device) == 'string' and row.device or nil
    end), ', '))
    add('threads', range(each_once(rows, function(row)
        return type(row.threads) == 'number' and ('%g'):format(row.threads) or nil
    end)))
    add('cores', range(each_once(rows, function(row)
        return type(row.cores) == 'number' and ('%g'):format(row.cores) or nil
    end)))
    add('load', loads_of(rows))
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

return provenance
