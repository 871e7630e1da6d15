--- wane.sweep{ build =, grid =, ... }: the same step under every combination of a grid's values, measured.
--
-- Each point is measured in a process of its own (the script, started again: sweep/process.lua), so one that crashes,
-- runs out of memory or takes too long is a row like any other; at a prompt, and with isolate = false, in this one.
-- Invariants: a point's row is written whole when the point ends, and never twice, by the one process that holds the
-- file's lock; points of one group (equal but for
-- the policy) have the same bits of gradients and loss, and predicted bytes are measured bytes, or :run() raises.
-- @module wane.sweep
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local grid = require 'wane.sweep.grid'
local interrupt = require 'wane.repl.interrupt'
local json = require 'wane.report.json'
local measure = require 'wane.plan.measure'
local memory = require 'wane.plan.memory'
local point = require 'wane.sweep.point'
local process = require 'wane.sweep.process'
local progress = require 'wane.report.progress'
local report = require 'wane.sweep.report'
local store = require 'wane.sweep.store'
local system = require 'wane.system'

local C, raise = binding.C, errors.raise

local sweep = {}

local here = debug.getinfo(1, 'S').source:match '^(.*[/\\])sweep[/\\]' or '@'

--- A sweep. Fields: `points` (list of grid.points), `axes` (names of the grid's keys, in order), `settings`.
local Sweep = {}
Sweep.__index = Sweep

-- ---- making one -----------------------------------------------------------------------------------------------------
local options = { 'build', 'grid', 'order', 'defaults', 'repeats', 'warmup', 'fused', 'seed', 'out', 'resume', 'limit',
    'isolate', 'verbose', 'title', 'retry_failed' }

local function whole(t, name, default, least, most)
    return errors.count(t[name] == nil and default or t[name], 'wane.sweep: ' .. name, least, most)
end

local function check(t)
    errors.check_options(t, options, 'wane.sweep')
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
    if t.retry_failed ~= nil and type(t.retry_failed) ~= 'boolean' then
        raise(nil, 'value', 'wane.sweep: retry_failed must be true or false, got %s', errors.describe(t.retry_failed))
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

-- A number for the text of the script: the files that build and the call of wane.sweep stand in, and what is measured.
local function script_of(t, settings)
    local texts, seen = {}, {}
    local function add(source)
        if seen[source] then return end
        seen[source] = true
        texts[#texts + 1] = source:match '^@' and (system.read(source:sub(2)) or '') or source
    end
    add(debug.getinfo(t.build, 'S').source)
    local level = 3
    local info = debug.getinfo(level, 'S')
    while info and (info.what == 'C' or info.source:sub(1, #here) == here) do
        level = level + 1
        info = debug.getinfo(level, 'S')
    end
    if info then add(info.source) end
    local defaults = {}
    for key, value in pairs(t.defaults or {}) do defaults[tostring(key)] = tostring(value) end
    return measure.fingerprint { table.concat(texts, '\n'), json.encode { repeats = settings.repeats,
        warmup = settings.warmup, fused = settings.fused, seed = settings.seed, defaults = defaults } }
end

--- A sweep over a grid; nothing runs before :run().
-- @param t table: `build` function(p) that returns fn, model, optimizer (fn as for wane.measure; with an optimizer it
-- trains); `grid` { key = { values }, policy = { policies }, budget = { bytes } }, every key but these two in p;
-- `order` of the keys, the last fastest (by name); `defaults` for p; `repeats` = 3 measured steps after `warmup` = 1;
-- `fused` = false, whether opt:step(loss) is measured; `seed` = 0; `out` a file for rows (JSON lines), `resume` true or
-- 'force' (points that have a row there, failed ones too, are not run again), `retry_failed` = false (only points
-- whose row says failed run, and the new row takes its place; implies resume); `limit` seconds a point; `isolate` =
-- true, whether a point gets a process of its own; `verbose` = false; `title` of reports
-- @return Sweep
function sweep.sweep(t)
    if type(t) ~= 'table' then
        raise(nil, 'value', 'wane.sweep: expected a table { build =, grid = }, got %s', errors.describe(t))
    end
    check(t)
    local settings = { build = t.build, fused = t.fused == true, limit = t.limit,
        seed = whole(t, 'seed', 0, 0, 2 ^ 53 - 1),
        repeats = whole(t, 'repeats', 3, 1, errors.MOST_STEPS), warmup = whole(t, 'warmup', 1, 0, errors.MOST_STEPS) }
    settings.script = script_of(t, settings)
    local self = setmetatable({ settings = settings, out = t.out,
        resume = t.resume or t.retry_failed, retry_failed = t.retry_failed, verbose = t.verbose,
        isolate = t.isolate, title = t.title or 'A sweep', found = {} }, Sweep)
    self.points, self.axes = grid.points(t.grid, t.order, t.defaults)
    local keys = {}
    for i, q in ipairs(self.points) do keys[i] = q.key end
    self.fingerprint = measure.fingerprint { table.concat(keys, '\n') }
    return self
end

-- ---- what is there already --------------------------------------------------------------------------------------
local function say(words, ...)
    io.stderr:write('wane.sweep: ', words:format(...), '\n')
end

-- Takes the rows of the file that are points of this sweep.
local function take(self, rows)
    local by_key = {}
    for _, q in ipairs(self.points) do by_key[q.key] = q end
    for _, row in ipairs(rows) do
        local key = json.encode(row.point)
        if by_key[key] and self.found[key] == nil then
            row.n = by_key[key].number -- a grid that grew counts anew
            self.found[key] = row
        end
    end
end

local function refuse_changed(self, rows)
    for _, row in ipairs(rows) do
        if row.script ~= self.settings.script and self.resume ~= 'force' then
            raise(nil, 'value', "wane.sweep: %s has rows of another text of the script, or of other settings; resume = "
                .. "'force' (--resume=force) goes on with them all the same, else name another file", self.out)
        end
    end
end

local function open(self)
    local rows, torn = store.read(self.out)
    if rows == nil or (#rows == 0 and torn == 0) then return end
    if not self.resume then
        raise(nil, 'value', 'wane.sweep: %s is there already, with %d rows; resume = true (--resume) goes on with '
            .. 'it, else remove it or name another', self.out, #rows)
    end
    refuse_changed(self, rows)
    if torn > 0 then
        say('the last line of %s was torn (%d bytes without an end); it is dropped', self.out, torn)
        store.cut(self.out, torn)
    end
    take(self, rows)
end

-- The lock of the file; what the file says is true as long as it is held.
local function lock(self)
    system.make_folders(self.out)
    local held = store.lock(self.out)
    if not held then
        say('the file system of %s has no locks: nothing keeps another process from writing the same rows', self.out)
    end
    return held
end

-- ---- running ------------------------------------------------------------------------------------------------------
local calls = 0 -- of :run() in this process: a script, started again, comes to the same ones

local function at_prompt()
    local repl = package.loaded['wane.repl']
    return repl ~= nil and repl.is_on
end

local function is_isolated(self, role)
    if self.isolate == false or role or at_prompt() then return false end
    local can = process.can_restart()
    if self.isolate and not can then
        raise(nil, 'value', 'wane.sweep: isolate = true, but this script cannot be started again (it comes from '
            .. 'standard input); write it to a file')
    end
    return can
end

-- One row in this process; nil when an interrupt ended it.
local function run_here(self, q)
    local fine, row = pcall(point.run, self.settings, q)
    memory.trim()
    if fine then return row end
    if errors.is(row) and row.code == 'interrupt' then return nil end
    error(row, 0)
end

-- Keeps the row of a point that came to its end; one of an earlier try gives way to it.
local function keep(self, q, row)
    if self.out then
        if self.found[q.key] then store.supersede(self.out, row) else store.append(self.out, row) end
    end
    self.found[q.key] = row
end

local function is_due(self, q)
    local row = self.found[q.key]
    if self.retry_failed then return row ~= nil and row.status == 'failed' end
    return row == nil
end

local function words_of(q, row)
    if row.status ~= 'ok' then return ('%s: %s'):format(q.label, row.error:match '^[^\n]*') end
    return ('%s: peak %s, %.4g s'):format(q.label, require('wane.report.bytes').text(row.peak), row.seconds)
end

-- Runs what is due; returns whether an interrupt stopped it.
local function run_due(self, is_isolated_)
    local todo = {}
    for _, q in ipairs(self.points) do
        if is_due(self, q) then todo[#todo + 1] = q end
    end
    local bar = progress.new(#todo, self.verbose)
    for _, q in ipairs(todo) do
        bar:at(q.label)
        local row
        if is_isolated_ then
            row = process.run(self.settings, q, { call = calls, point = q.number, grid = self.fingerprint },
                function() bar:at(q.label) end)
        else
            row = run_here(self, q)
        end
        if row then keep(self, q, row) end
        if row == nil or C.wn_interrupted() ~= 0 then
            bar:finish()
            return true
        end
        bar:done(words_of(q, row))
    end
    bar:finish()
    return false
end

local function interrupted(self)
    local count = #self:rows()
    local words = self.out and ('the rows are in %s, and resume = true (--resume) goes on with them'):format(self.out)
        or 'without out = they are kept nowhere'
    return errors.new('interrupt', ('wane.sweep: interrupted after %d of %d points; %s'):format(count, #self.points,
        words))
end

-- SIGINT sets a flag while this runs, whatever it did before.
local function listening(fn)
    if at_prompt() then return fn() end
    C.wn_interrupt(0)
    interrupt.listen()
    local fine, result = pcall(fn)
    local was_stopped = C.wn_interrupted() ~= 0
    interrupt.unlisten()
    C.wn_interrupt(0)
    if not fine then error(result, 0) end
    return result or was_stopped
end

-- A process that was started for one point: the sweep it belongs to never returns, one before it shows its rows.
local function serve(self, role)
    if calls > role.call then return false end
    if calls == role.call then
        if role.grid ~= self.fingerprint then
            raise(nil, 'value', 'wane.sweep: the script, started again, made another grid; what it is made from must '
                .. 'not depend on time, input or chance')
        end
        process.serve(self.settings, self.points[role.point], role)
    end
    if not self.out then
        raise(nil, 'value', 'wane.sweep: a script with two sweeps names a file for each: out =')
    end
    take(self, store.read(self.out) or {})
    return true
end

--- Runs every point that has no row yet, in order. Points that fail are rows with status = 'failed'. Until it returns,
-- this process alone writes the file.
-- @return the sweep
-- Errors: 'interrupt' after ^C, with the rows kept; 'io' when another process writes the file; 'value' for a file that
-- is in the way, and at the end for points of one group whose bits differ, or whose bytes are not the predicted ones.
function Sweep:run()
    calls = calls + 1
    local role = process.role()
    if role and serve(self, role) then return self end
    local alone = is_isolated(self, role)
    if self.settings.limit and not alone then
        raise(nil, 'value', 'wane.sweep: limit = ends a point from outside, so points need processes of their own; '
            .. 'they have none at a prompt or with isolate = false')
    end
    local held = self.out and lock(self)
    local fine, stopped = pcall(function()
        if self.out then open(self) end
        return listening(function() return run_due(self, alone) end)
    end)
    store.unlock(held)
    if not fine then error(stopped, 0) end
    if stopped then error(interrupted(self), 0) end
    local problems = self:problems()
    if #problems > 0 then raise(nil, 'value', 'wane.sweep: %s', table.concat(problems, '\n')) end
    return self
end

-- ---- what came of it ----------------------------------------------------------------------------------------------
--- The rows there are, in the order of the points: `n`, `point` (its values), `status` 'ok' or 'failed' (then `error`,
-- `code`, `signal`), peak, predicted_peak, reserved, predicted_reserved, state, activations (bytes), kinds, seconds
-- (median), times, recomputed (nodes), loss, loss_bits, digest (of all gradients), lossless, exact.
function Sweep:rows()
    local rows = {}
    for _, q in ipairs(self.points) do rows[#rows + 1] = self.found[q.key] end
    return rows
end

--- Rows that came to their end.
function Sweep:measured()
    local rows = {}
    for _, row in ipairs(self:rows()) do
        if row.status == 'ok' then rows[#rows + 1] = row end
    end
    return rows
end

-- The row whose bits the others of its group must have: that of save_all, else the first.
local function reference_of(rows)
    for _, row in ipairs(rows) do
        if row.point.policy == 'save_all' then return row end
    end
    return rows[1]
end

local function name_of(self, row)
    return self.points[row.n].label
end

--- Lists promises of Wane that a row breaks, a sentence each; empty when every row holds them.
function Sweep:problems()
    local groups, order, out = {}, {}, {}
    for _, q in ipairs(self.points) do
        local row = self.found[q.key]
        if row and row.status == 'ok' then
            if not row.exact or row.peak ~= row.predicted_peak or row.reserved ~= row.predicted_reserved then
                out[#out + 1] = ('%s: predicted peak %.0f bytes (reserved %.0f), measured %.0f (%.0f); '
                    .. 'this is a defect of Wane'):format(q.label, row.predicted_peak, row.predicted_reserved, row.peak,
                    row.reserved)
            end
            if groups[q.group] == nil then
                groups[q.group] = {}
                order[#order + 1] = groups[q.group]
            end
            if row.lossless then table.insert(groups[q.group], row) end
        end
    end
    for _, rows in ipairs(order) do
        local first = reference_of(rows)
        for _, row in ipairs(rows) do
            local what = row.digest ~= first.digest and (row.digest_of or 'digests')
                or row.loss_bits ~= first.loss_bits and 'losses'
            if what then
                out[#out + 1] = ('the %s of (%s) and (%s) differ: %s and %s; build must make the same model from the '
                    .. 'same numbers for every policy'):format(what, name_of(self, first), name_of(self, row),
                    tostring(what == 'losses' and first.loss_bits or first.digest),
                    tostring(what == 'losses' and row.loss_bits or row.digest))
            end
        end
    end
    return out
end

--- Rows of points that failed.
function Sweep:failed()
    local rows = {}
    for _, row in ipairs(self:rows()) do
        if row.status ~= 'ok' then rows[#rows + 1] = row end
    end
    return rows
end

--- A number of a row by name: a field, a key of the point, or a kind of bytes ('activation').
function Sweep.number(row, name)
    local value = row[name]
    if value == nil then value = row.point[name] end
    if value == nil and row.kinds then value = row.kinds[name] end
    if type(value) ~= 'number' then
        local names = {}
        for _, part in ipairs { row, row.point, row.kinds or {} } do
            for key, v in pairs(part) do
                if type(v) == 'number' then names[#names + 1] = key end
            end
        end
        table.sort(names)
        raise(nil, 'value', "wane.sweep: a row has no number '%s'; %s", tostring(name), errors.near(name, names))
    end
    return value
end

-- Those of a list that no other of it beats, by x.
local function front_of(rows, x, y)
    local number, front = Sweep.number, {}
    for _, a in ipairs(rows) do
        local is_beaten = false
        for _, b in ipairs(rows) do
            local dx, dy = number(b, x) - number(a, x), number(b, y) - number(a, y)
            if dx <= 0 and dy <= 0 and (dx < 0 or dy < 0) then is_beaten = true end
        end
        if not is_beaten then front[#front + 1] = a end
    end
    table.sort(front, function(a, b)
        local dx = number(a, x) - number(b, x)
        if dx ~= 0 then return dx < 0 end
        return a.n < b.n
    end)
    return front
end

--- The rows that no other beats: none is as small in both and smaller in one.
-- @param x name of a number of a row, default 'peak'
-- @param y another, default 'seconds'
-- @return list of rows, by x
function Sweep:pareto(x, y)
    return front_of(self:measured(), x or 'peak', y or 'seconds')
end

--- The same among rows that differ in the policy alone: a list of such lists. A grid without policies is one list.
function Sweep:fronts(x, y)
    local groups, order = {}, {}
    for _, row in ipairs(self:measured()) do
        local key = row.point.policy and self.points[row.n].group or ''
        if not groups[key] then
            groups[key] = {}
            order[#order + 1] = groups[key]
        end
        table.insert(groups[key], row)
    end
    local out = {}
    for i, rows in ipairs(order) do out[i] = front_of(rows, x or 'peak', y or 'seconds') end
    return out
end

function Sweep.__tostring(self)
    return report.text(self)
end

--- Writes the rows as comma separated values, numbers to the last bit; without a name, returns the text.
function Sweep:csv(path)
    return report.write(path, report.csv(self))
end

--- Writes a picture (SVG) of the points: one number against another, those nothing beats joined by a staircase.
-- Without a name, returns one made of characters.
-- @param path file (optional)
-- @param opts { x = 'peak', y = 'seconds' }
function Sweep:plot(path, opts)
    opts = errors.check_options(opts, { 'x', 'y' }, 'sweep:plot')
    if path == nil then return report.characters(self, opts) end
    return report.write(path, report.picture(self, opts))
end

--- Writes one HTML file with everything: the machine, the table, the pictures, how to do it again. It loads nothing.
function Sweep:report(path)
    return report.write(path, report.page(self))
end

return sweep
