--- Runs the points of a sweep that are due, each in a process of its own or in this one, and keeps their rows.
-- @internal wane.sweep.run
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local interrupt = require 'wane.repl.interrupt'
local memory = require 'wane.plan.measure.memory'
local point = require 'wane.sweep.point'
local process = require 'wane.sweep.process'
local progress = require 'wane.report.progress'
local store = require 'wane.sweep.store'
local utf8 = require 'wane.utf8'

local C, raise = binding.C, errors.raise

local run = {}

-- Tells whether this process is a prompt.
local function at_prompt()
    local repl = package.loaded['wane.repl']
    return repl ~= nil and repl.is_on
end

--- Tells whether the points of a sweep run in processes of their own.
-- @param self Sweep
-- @param role of process.role
-- @raise 'value' where isolate = true is impossible
function run.is_isolated(self, role)
    if self.isolate == false or role or at_prompt() then return false end
    local can = process.can_restart()
    if self.isolate and not can then
        raise(nil, 'value', 'wane.sweep: isolate = true, but this script cannot be started again (it comes from '
            .. 'standard input); write it to a file')
    end
    return can
end

-- Runs a point in this process. Returns its row, or nil when ^C ended it.
local function run_here(self, q)
    local fine, row = errors.pcall(point.run, self.settings, q)
    memory.trim()
    if fine then return row end
    if errors.is(row) and row.code == 'interrupt' then return nil end
    errors.again(row)
end

-- Keeps the row of a point that ended, in place of a row of an earlier try.
local function keep(self, q, row)
    if self.out then
        if self.found[q.key] then store.supersede(self.out, row) else store.append(self.out, row) end
    end
    self.found[q.key] = row
end

-- Tells whether a point is to run.
local function is_due(self, q)
    local row = self.found[q.key]
    if self.retry_failed then return row ~= nil and row.status == 'failed' end
    return row == nil
end

-- Returns the result of a point in one line.
local function words_of(q, row)
    if row.status ~= 'ok' then return ('%s: %s'):format(q.label, utf8.shown(row.error:match '^[^\n]*')) end
    return ('%s: peak %s, %.4g s'):format(q.label, require('wane.report.bytes').text(row.peak), row.wall or row.seconds)
end

--- Runs the points that are due, in order, and keeps their rows.
-- @param self Sweep
-- @param is_isolated whether each gets a process of its own
-- @param call number of the call of sweep:run() in this process
-- @return whether ^C stopped it
function run.due(self, is_isolated, call)
    local todo = {}
    for _, q in ipairs(self.assigned) do
        if is_due(self, q) then todo[#todo + 1] = q end
    end
    local bar = progress.new(#todo, self.verbose)
    for _, q in ipairs(todo) do
        bar:at(q.label)
        local row
        if is_isolated then
            row = process.run(self.settings, q, { call = call, point = q.number, grid = self.fingerprint },
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

--- Calls a function while SIGINT sets a flag, and restores the effect of SIGINT.
-- @param fn function()
-- @return what fn returns, or true after a ^C
function run.listening(fn)
    if at_prompt() then return fn() end
    C.wn_interrupt(0)
    interrupt.listen(true)
    local fine, result = errors.pcall(fn)
    local was_stopped = C.wn_interrupted() ~= 0
    interrupt.listen(false)
    C.wn_interrupt(0)
    if not fine then errors.again(result) end
    return result or was_stopped
end

return run
