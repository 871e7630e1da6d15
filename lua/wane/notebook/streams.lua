--- The streams of a cell: `print`, `io.write`, `io.stdout` and `io.stderr` become messages while a kernel runs.
--
-- A write leaves at once, unless very many come: then they are gathered for a moment. What other processes and C code
-- write to the real standard output goes where the kernel's own goes.
-- @internal wane.notebook.streams

local C = require('wane.ffi').C

local streams = {}

local MANY, WAIT = 100, 0.05 -- messages in a second before writes are gathered; seconds between two messages then

local Streams = {}
Streams.__index = Streams

-- Class of what stands in for a file; a script that asks for another method is told by name.
local Stream = {}

function Stream.__index(_, method)
    return Stream[method] or error(("a notebook's stream has no %s; it has read, lines, write, flush, setvbuf, close")
        :format(tostring(method)), 2)
end

function Stream.__tostring(stream)
    return ('file (%s of a notebook)'):format(rawget(stream, 'name'))
end

--- Writes texts and numbers.
function Stream:write(...)
    if self.name == 'stdin' then error("a notebook's stdin cannot be written", 2) end
    local parts = { ... }
    for i = 1, #parts do
        local kind = type(parts[i])
        if kind ~= 'string' and kind ~= 'number' then
            error(("bad argument #%d to 'write' (string expected, got %s)"):format(i, kind), 2)
        end
    end
    self.owner:write(self.name, table.concat(parts))
    return self
end

--- Asks for a line; the input has this method and `lines`, the outputs have the others.
-- @param format as for io.read; a whole line for all but a number
-- @return line or number
function Stream:read(format)
    if self.name ~= 'stdin' then error(("a notebook's %s cannot be read"):format(self.name), 2) end
    local line = self.ask()
    return tostring(format or ''):match '^%*?n' and tonumber(line) or line
end

--- Returns an iterator over lines that are asked for; ^C ends it.
function Stream:lines()
    return function() return self:read() end
end

--- Sends what was gathered.
function Stream:flush()
    self.owner:flush()
    return true
end

--- Does nothing: a notebook decides when texts leave.
function Stream:setvbuf() -- luacheck: no self
    return true
end

--- Does nothing: the streams of a notebook stay open.
function Stream:close() -- luacheck: no self
    return true
end

--- Makes the streams of a kernel.
-- @param publish function(name, text) that sends a text of 'stdout' or 'stderr'
-- @return streams with the methods `write`, `flush`, `start`, `stop`
function streams.new(publish)
    return setmetatable({ publish = publish, parts = {}, second = 0, count = 0, sent = 0 }, Streams)
end

--- Sends what was gathered.
function Streams:flush()
    if #self.parts == 0 then return end
    local text = table.concat(self.parts)
    self.parts, self.sent = {}, C.wn_now()
    self.publish(self.name, text)
end

--- Sends what was gathered a while ago.
function Streams:tick()
    if #self.parts > 0 and C.wn_now() - self.sent >= WAIT then self:flush() end
end

--- Sends a text, at once or with those that follow.
-- @param name 'stdout' or 'stderr'
-- @param text bytes
function Streams:write(name, text)
    if text == '' then return end
    if name ~= self.name then self:flush() end
    self.name = name
    self.parts[#self.parts + 1] = text
    local second = math.floor(C.wn_now())
    if second ~= self.second then self.second, self.count = second, 0 end
    self.count = self.count + 1
    if self.count <= MANY then self:flush() else self:tick() end
end

local function print_to(out)
    return function(...)
        local parts = { ... }
        for i = 1, select('#', ...) do parts[i] = tostring(parts[i]) end
        out:write(table.concat(parts, '\t') .. '\n')
    end
end

--- Takes over what scripts print, and what they read by io.read.
-- @param ask function that returns a line of input
function Streams:start(ask)
    local real, write = io.stdout, io.write
    local out = setmetatable({ name = 'stdout', owner = self }, Stream)
    local err = setmetatable({ name = 'stderr', owner = self }, Stream)
    self.before = { { _G, 'print', print }, { io, 'write', write }, { io, 'stdout', real }, { io, 'stderr', io.stderr },
        { io, 'read', io.read }, { io, 'stdin', io.stdin } }
    local input, read = io.input(), io.read
    local asks = setmetatable({ name = 'stdin', ask = ask }, Stream)
    rawset(_G, 'print', print_to(out))
    rawset(io, 'write', function(...)
        if io.output() ~= real then return write(...) end -- io.output 'file' was called
        return out:write(...)
    end)
    rawset(io, 'read', function(format, ...)
        if io.input() ~= input then return read(format, ...) end -- io.input 'file' was called
        return asks:read(format)
    end)
    rawset(io, 'stdin', asks)
    rawset(io, 'stdout', out)
    rawset(io, 'stderr', err)
end

--- Gives back what `start` took.
function Streams:stop()
    self:flush()
    for _, entry in ipairs(self.before or {}) do rawset(entry[1], entry[2], entry[3]) end
    self.before = nil
end

return streams
