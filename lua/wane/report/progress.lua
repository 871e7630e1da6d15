--- Progress lines: shows on the error stream how many pieces of a long task are done.
--
-- A terminal gets one line that is rewritten, a dumb terminal one line a piece. Any other stream gets nothing, or one
-- line a piece where the caller wants them. No line is longer than 79 columns.
-- @internal wane.report.progress
local binding = require 'wane.ffi'
local system = require 'wane.system'

local C = binding.C

local progress = {}

local COLUMNS = 79 -- of a terminal of 80, whose last column would wrap
local PAUSE = 0.1 -- least seconds between two versions of a line; pieces may be short

local Progress = {}
Progress.__index = Progress

local Late = {}
Late.__index = Late

local function duration(seconds)
    if seconds < 100 then return ('%.0f s'):format(seconds) end
    if seconds < 6000 then return ('%.0f min'):format(seconds / 60) end
    return ('%.1f h'):format(seconds / 3600)
end

--- Begins a task of a known number of pieces.
-- @param total number of pieces
-- @param is_verbose whether pieces get lines where there is no terminal, too
-- @param first number of pieces that were done before, by another process (default 0)
-- @return an object with the methods `at`, `done`, `say`, `seconds` and `finish`
function progress.new(total, is_verbose, first)
    local is_rich = system.is_rich(2)
    local is_plain = not is_rich and (is_verbose or system.is_terminal(2))
    return setmetatable({ total = total, count = first or 0, first = first or 0, start = C.wn_now(), shown = 0,
        is_rich = is_rich, is_plain = is_plain }, Progress)
end

--- Begins a task that is often over at once: its line appears when it has lasted for a while.
-- @param silent seconds without a line
-- @param what what is counted, for the line
-- @return an object with the methods `look(done, expected)`, where `expected` may change, and `finish`
function progress.late(silent, what)
    return setmetatable({ silent = silent, what = what, start = C.wn_now() }, Late)
end

--- Updates the line when the silent seconds are over.
-- @param done number of pieces done
-- @param expected about how many there will be
function Late:look(done, expected)
    if C.wn_now() - self.start < self.silent then return end
    if not self.bar then
        self.bar = progress.new(expected)
        self.bar.start = self.start
    end
    self.bar.total = expected
    self.bar:at(self.what, done)
end

--- Ends the task and clears its line.
function Late:finish()
    if self.bar then self.bar:finish() end
end

-- Returns the text about the rate of pieces and the time that is left.
local function rate_of(self)
    if self.count == self.first then return '' end
    local each = (C.wn_now() - self.start) / (self.count - self.first)
    local rate = each < 1 and ('%.1f a second'):format(1 / each) or ('%.1f s each'):format(each)
    return ('  %s, %s left'):format(rate, duration(each * (self.total - self.count)))
end

--- Says that a piece is under way.
-- @param what its name
-- @param count number of pieces done (optional, for pieces too short to be reported one by one)
function Progress:at(what, count)
    self.count = count or self.count
    if not self.is_rich or count and C.wn_now() - self.shown < PAUSE then return end
    self.shown = C.wn_now()
    local head = ('%d/%d%s  '):format(self.count, self.total, rate_of(self))
    io.stderr:write('\r\27[K', head, what:sub(1, math.max(0, COLUMNS - #head)))
    io.stderr:flush()
end

--- Says that a piece is done.
-- @param words its result, in one line
function Progress:done(words)
    self.count = self.count + 1
    if self.is_plain then io.stderr:write(('%d/%d  %s\n'):format(self.count, self.total, words)) end
end

--- Writes a line that stays, above the progress line.
-- @param words text
function Progress:say(words)
    if self.is_rich then io.stderr:write '\r\27[K' end
    io.stderr:write(words, '\n')
end

--- Returns the seconds since the task began.
function Progress:seconds()
    return C.wn_now() - self.start
end

--- Ends the task, finished or stopped, and clears its line.
function Progress:finish()
    if self.is_rich then io.stderr:write '\r\27[K' end
end

return progress
