--- wane.sweep { build =, grid =, ... }: measures the same step under every combination of a grid's values.
--
-- Each point is measured in a process of its own, the script started again (sweep/process.lua), so a point that
-- crashes, runs out of memory or takes too long is a row like any other. At a prompt, and with isolate = false, points
-- are measured in this process. Several processes, on one machine or many, share a sweep by shards: each measures every
-- N-th point into a file of its own (sweep/shard.lua), and sweep:merge makes the files one (sweep/merge.lua).
--
-- Invariants: the row of a point is written as a whole when the point ends, and never twice, by the one process that
-- holds the file's lock. Points of one group (equal except for the policy) have the same bits of gradients and loss,
-- and measured bytes are predicted bytes; otherwise sweep:run() raises.
-- @module wane.sweep
local errors = require 'wane.errors'
local grid = require 'wane.sweep.grid'
local json = require 'wane.report.json'
local measure = require 'wane.plan.measure'
local merge = require 'wane.sweep.merge'
local plot = require 'wane.report.plot'
local problems = require 'wane.sweep.problems'
local process = require 'wane.sweep.process'
local report = require 'wane.sweep.report'
local run = require 'wane.sweep.run'
local settings_of = require 'wane.sweep.settings'
local scoped = require 'wane.scoped'
local shard = require 'wane.sweep.shard'
local store = require 'wane.sweep.store'
local system = require 'wane.system'
local utf8 = require 'wane.utf8'

local iterate, raise = errors.iterate, errors.raise

local sweep = {}

--- Class of sweeps. Fields: `points` (list of grid.points), `assigned` (those of the shard, or all), `axes` (keys of
-- the grid, in order), `settings`, `title`.
local Sweep = {}
Sweep.__index = Sweep

-- ---- a new sweep ----------------------------------------------------------------------------------------------------

--- Makes a sweep over a grid; nothing runs before sweep:run().
-- @function wane.sweep
-- @param t table of these fields:
--
-- * `build`: function(p) that returns fn, model, optimizer; fn as for wane.measure, and with an optimizer it trains;
-- * `grid`: { [key] = list of values, policy = list of policies, budget = list of sizes }; p has every key but these
-- two;
-- * `order`: list of keys, the last varies fastest (by default sorted); `defaults`: further fields of p;
-- * `repeats` = 3, `warmup` = 1: measured steps, and steps before them; `seed` = 0; `lines` = false:
-- whether zero_grad, backward and step are measured in three lines;
-- * `out`: file for rows, one JSON object a line; `resume` = false: true to run only points without a row in it,
-- 'force' to do so although its rows come from another text of the script; `retry_failed` = false: true to run only
-- points whose row says failed, and to replace that row (implies resume);
-- * `shard`: 'I/N' for every N-th point from the Ith on, in a file of its own, `a.I-of-N.jsonl` for out = 'a.jsonl';
-- 'auto' takes I and N from a Slurm array, and from the ranks of mpirun or srun;
-- * `limit`: seconds a point may take; `isolate`: whether points get processes of their own, by default where possible;
-- * `verbose` = false: a line a point where there is no terminal; `title`: of reports.
-- @return Sweep, with `points` (list of { number =, label =, description =, p =, policy = }), `assigned` (those of the
-- shard), `axes` (keys in order) and `out` (the file that it writes)
-- @raise 'value' for a field that is unknown or wrong, and for shard = 'auto' in a job whose numbers contradict each
-- other
-- @usage
-- local sweep = wane.sweep {
--     build = function(p)
--         local net = nn.MLP(8, p.width)
--         return function() return net(x):sum() end, net
--     end,
--     grid = { width = { 16, 32 }, policy = { 'save_all', 'recompute_all' } }, isolate = false,
-- }
-- print(#sweep.points, sweep.points[1].label) --> 4	policy=save_all width=16
-- print(#sweep:run():rows()) --> 4
function sweep.sweep(t)
    if type(t) ~= 'table' then
        raise(nil, 'value', 'wane.sweep: expected a table { build =, grid = }, got %s', errors.describe(t))
    end
    local settings, part = settings_of.of(t), shard.of(t.shard)
    local self = setmetatable({ settings = settings, shard = part, is_auto = t.shard == 'auto',
        out = t.out and shard.path(t.out, part), resume = t.resume or t.retry_failed, retry_failed = t.retry_failed,
        verbose = t.verbose, isolate = t.isolate, title = t.title or 'A sweep', found = {} }, Sweep)
    self.points, self.axes = grid.points(t.grid, t.order, t.defaults)
    self.assigned = shard.points(self.points, part)
    local keys = {}
    for i, q in ipairs(self.points) do keys[i] = q.key end
    self.fingerprint = measure.fingerprint { table.concat(keys, '\n') }
    return self
end

-- ---- rows of the file -------------------------------------------------------------------------------------------
-- Writes a line to the error stream.
local function say(words, ...)
    io.stderr:write('wane.sweep: ', utf8.shown(words:format(...), '\n'), '\n')
end

-- Takes the rows of the file that belong to points of this sweep.
local function take(self, rows)
    local by_key = {}
    for _, q in ipairs(self.points) do by_key[q.key] = q end
    for _, row in ipairs(rows) do
        local key = json.encode(row.point)
        if by_key[key] and self.found[key] == nil then
            row.n = by_key[key].number -- the grid may have grown since the row was written
            self.found[key] = row
        end
    end
end

-- Refuses rows of another text of the script, unless resume = 'force'.
local function refuse_changed(self, rows)
    for _, row in ipairs(rows) do
        if row.script ~= self.settings.script and self.resume ~= 'force' then
            raise(nil, 'value', "wane.sweep: %s has rows of another text of the script, or of other settings; resume = "
                .. "'force' (--resume=force) goes on with them all the same, else name another file", self.out)
        end
    end
end

-- Begins the file of a shard, so that one without points has a file too. Refuses to do so beside files of another
-- number of shards, whose points would be measured again.
local function begin(self)
    local other = self.resume ~= 'force' and shard.other(self.out, self.shard)
    if other then
        raise(nil, 'value', "wane.sweep: %s is of another number of shards than %d/%d, and its points would be "
            .. "measured again; give that number, or another file, or resume = 'force' (--resume=force) to do so",
            other, self.shard.index, self.shard.count)
    end
    store.write(self.out, {})
end

-- Reads the rows of the file, and drops a torn last line. Refuses a file that exists unless the sweep resumes.
local function open(self)
    local rows, torn = store.read(self.out)
    if rows == nil and self.shard then begin(self) end
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

-- Takes the lock of the file. The file changes only in this process while the lock is held.
local function lock(self)
    local made = system.make_folders(self.out)
    if made then say('made the folder %s', made) end
    local release, is_kept = system.lock(self.out)
    if not release then raise(nil, 'io', 'wane.sweep: %s', is_kept) end
    if not is_kept then
        say('the file system of %s has no locks: nothing keeps another process from writing the same rows', self.out)
    end
    return release
end

-- ---- running ------------------------------------------------------------------------------------------------------
local function none() end -- releases what was not locked

local calls = 0 -- number of calls of :run() in this process; a script that is started again makes the same calls

-- Says what a shard is of, where that is not plain from what was given or from what runs.
local function announce(self)
    if self.is_auto and not self.shard then
        say("shard = 'auto' found no Slurm array and no ranks; this process measures all %d points", #self.points)
    elseif self.shard and #self.assigned == 0 then
        say('shard %d/%d has none of the %d points', self.shard.index, self.shard.count, #self.points)
    end
end

-- Makes the error of a sweep that ^C stopped.
local function interrupted(self)
    local count = #self:rows()
    local words = self.out and ('the rows are in %s, and resume = true (--resume) goes on with them'):format(self.out)
        or 'without out = they are kept nowhere'
    return errors.new('interrupt', ('wane.sweep: interrupted after %d of %d points; %s'):format(count,
        #self.assigned, words))
end

-- Serves a process that was started for one point: never returns from the run of that point's sweep. Returns true for a
-- sweep before it, which takes its rows from its file, and false for one after it.
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

--- Runs every point that has no row yet, in order. A point that fails gets a row with status = 'failed'. While it runs,
-- no other process writes the file.
-- @return the sweep
-- @raise 'interrupt' after ^C, with the rows kept; 'io' when another process writes the file; 'value' for a file that
-- exists and is not resumed, and at the end for points of one group whose bits differ or whose bytes were not predicted
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'recompute_all' } }, isolate = false }
-- print(sweep:run())
function Sweep:run()
    calls = calls + 1
    local role = process.role()
    if role and serve(self, role) then return self end
    if self.shard and not self.out then
        raise(nil, 'value', 'wane.sweep: a shard writes its rows into a file, for a later merge; give out = (--out)')
    end
    local alone = run.is_isolated(self, role)
    if self.settings.limit and not alone then
        raise(nil, 'value', 'wane.sweep: limit = ends a point from outside, so points need processes of their own; '
            .. 'they have none at a prompt or with isolate = false')
    end
    local release = self.out and lock(self)
    local stopped = scoped.always(release or none, function()
        if self.out then open(self) end
        announce(self)
        return run.listening(function() return run.due(self, alone, calls) end)
    end)
    if stopped then error(interrupted(self), 0) end
    local broken = self:problems()
    if #broken > 0 then raise(nil, 'value', 'wane.sweep: %s', table.concat(broken, '\n')) end
    return self
end

--- Makes the files of a sweep's shards one: takes their rows, compares what is in several, and writes them to `out`
-- as one run would have, in the order of points. Rows that `out` has already are taken too, so a merge may be repeated,
-- and `out` may be resumed to measure here what the shards lack.
-- @param files list of names, or one; `'rows.*-of-8.jsonl'` names all that match
-- @return the sweep, with the rows
-- @raise 'value' for rows of another text of the script (unless resume = 'force') or of another grid, and for two rows
-- of a point with other bits or bytes; nothing is written then. 'value' too, after the rows were written, for points
-- that have no row and for bits and bytes as sweep:run(). 'io' for a file that holds no rows
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local function sweep(shard, out)
--     return wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false, resume = true,
--         shard = shard, out = out }
-- end
-- for k = 1, 2 do sweep(k .. '/2', 'rows.jsonl'):run() end
-- print(#sweep(nil, 'all.jsonl'):merge({ 'rows.1-of-2.jsonl', 'rows.2-of-2.jsonl' }):rows()) --> 2
function Sweep:merge(files)
    for _, name in ipairs { 'shard', 'retry_failed' } do
        if self[name] then
            raise(nil, 'value', 'sweep:merge: a merge takes the rows of all shards and runs nothing; leave out %s =',
                name)
        end
    end
    files = merge.files(files)
    local is_written = self.out and not process.role() -- in the process of a point, the merge was written before
    local release = is_written and lock(self)
    local gathered = scoped.always(release or none, function()
        local own = self.out and system.exists(self.out) and self.out or nil
        local got = merge.gather(files, own, self.points, self.settings)
        self.found, self.source = got.found, got.source
        if is_written then store.write(self.out, self:rows()) end
        return got
    end)
    for _, line in ipairs(gathered.notes) do say('%s', line) end
    local lines = merge.lacks(self.points, self:missing(), gathered, files)
    for _, line in ipairs(self:problems()) do lines[#lines + 1] = line end
    if #lines > 0 then raise(nil, 'value', 'sweep:merge: %s', table.concat(lines, '\n')) end
    return self
end

-- ---- results ------------------------------------------------------------------------------------------------------

--- Returns the rows that exist, in the order of the points.
--
-- A row has `n`, `point` (its values) and `status`. With status 'failed' it has `error`, `code` and `signal`. With
-- status 'ok' it has peak, predicted_peak, reserved, predicted_reserved, state, activations (bytes), kinds (bytes by
-- name), seconds (median of a step), times, low, high, spread, load, cores, noisy (as of wane.measure), recomputed
-- (nodes), loss, loss_bits, digest (of all gradients), lossless, exact.
-- @return list of rows
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'recompute_all' } }, isolate = false }
-- for _, row in ipairs(sweep:run():rows()) do print(row.point.policy, row.peak, row.digest) end
function Sweep:rows()
    local rows = {}
    for _, q in ipairs(self.points) do rows[#rows + 1] = self.found[q.key] end
    return rows
end

-- Returns the rows that are measured, or those that are not.
local function rows_that(self, is_measured)
    local rows = {}
    for _, row in ipairs(self:rows()) do
        if (row.status == 'ok') == is_measured then rows[#rows + 1] = row end
    end
    return rows
end

--- Returns the rows with status 'ok'.
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(#sweep:run():measured()) --> 2
function Sweep:measured()
    return rows_that(self, true)
end

-- Returns the name of a row's point, with the row's file where rows of several files were merged.
local function name_of(self, row)
    local q = self.points[row.n]
    local file = self.source and self.source[q.key]
    return file and ('%s in %s'):format(q.label, file) or q.label
end

--- Lists the promises of Wane that rows break, one sentence each.
-- @return list of texts, empty when every row keeps them
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(#sweep:run():problems()) --> 0
function Sweep:problems()
    return problems.of(self.points, self.found, function(row) return name_of(self, row) end)
end

--- Returns the points without a row: of a shard those of the shard, else all.
-- @return list of points, in order
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(#sweep:missing(), sweep:missing()[1].label) --> 2	policy=save_all
-- print(#sweep:run():missing()) --> 0
function Sweep:missing()
    local list = {}
    for _, q in ipairs(self.assigned) do
        if not self.found[q.key] then list[#list + 1] = q end
    end
    return list
end

--- Returns the rows with status 'failed'.
-- @usage
-- local function build() error 'no such model' end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(#sweep:run():failed()) --> 2
function Sweep:failed()
    return rows_that(self, false)
end

--- Returns a number of a row by name.
-- @param row of sweep:rows()
-- @param name a field, a key of the point, or a kind of bytes ('activation')
-- @raise 'value' for a name that is no number of the row, with names like it
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all' } }, isolate = false }
-- local row = sweep:run():rows()[1]
-- print(sweep.number(row, 'peak') == row.peak, sweep.number(row, 'parameter') == row.kinds.parameter) --> true	true
function Sweep.number(row, name)
    local value = row[name]
    if value == nil then value = row.point[name] end
    if value == nil and row.kinds then value = row.kinds[name] end
    if value == nil and name == 'wall' then value = row.seconds end -- of a row that says no more
    if type(value) ~= 'number' then
        local names = {}
        for _, part in ipairs { row, row.point, row.kinds or {} } do
            for key, v in iterate(part) do
                if type(v) == 'number' then names[#names + 1] = key end
            end
        end
        table.sort(names)
        raise(nil, 'value', "wane.sweep: a row has no number '%s'; %s", tostring(name), errors.near(name, names))
    end
    return value
end

-- Returns the rows of a list that no other of it beats in x and y, by x.
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

--- Returns the rows that no other row beats: no row is at most as large in both numbers and smaller in one.
-- @param x name of a number of a row, default 'peak'
-- @param y another name, default 'wall'
-- @return list of rows, by x
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(#sweep:run():pareto('peak', 'seconds') > 0) --> true
function Sweep:pareto(x, y)
    return front_of(self:measured(), x or 'peak', y or 'wall')
end

--- Returns sweep:pareto of each group, rows that differ in the policy alone. A grid without policies is one group.
-- @param x name of a number of a row, default 'peak'
-- @param y another name, default 'wall'
-- @return list of lists of rows
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { k = { 1, 2 }, policy = { 'save_all' } }, isolate = false }
-- print(#sweep:run():fronts()) --> 2
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
    for i, rows in ipairs(order) do out[i] = front_of(rows, x or 'peak', y or 'wall') end
    return out
end

function Sweep.__tostring(self)
    return report.text(self)
end

--- Writes the rows as comma separated values, with every bit of their numbers.
-- @param path file to write (optional)
-- @return the name of the file; without a path, the text
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(sweep:run():csv():match '^[%w,]+') --> policy,status,predicted
function Sweep:csv(path)
    return plot.write(path, report.csv(self))
end

--- Plots one number of the rows over another. The rows that no other beats are joined by a staircase. A picture of more
-- than 15 rows is a small one for each value of the first key, with a colour and a marker for each policy.
-- @param path SVG file to write (optional)
-- @param opts { x = 'peak', y = 'wall' }
-- @return the name of the file; without a path, the plot as text of characters
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(sweep:run():plot())
function Sweep:plot(path, opts)
    opts = errors.check_options(opts, { 'x', 'y' }, 'sweep:plot')
    if path == nil then return report.characters(self, opts) end
    return plot.write(path, report.picture(self, opts))
end

--- Writes one HTML file with the machine, the table, the pictures, and the command that repeats the sweep. The file
-- loads nothing.
-- @param path file to write (optional)
-- @return the name of the file; without a path, the HTML
-- @usage
-- local function build() return function() return model(x):sum() end, model end
-- local sweep = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } }, isolate = false }
-- print(sweep:run():report 'sweep.html') --> sweep.html
function Sweep:report(path)
    return plot.write(path, report.page(self))
end

return sweep
