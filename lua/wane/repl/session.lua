--- A session of the prompt, without input or output of its own.
--
-- A session takes lines, runs chunks, and shows values through the function that it was given. All lines are numbered
-- as if they were one file named `prompt`, so that an error at 'prompt:3:' is in the third line typed. Nothing typed
-- becomes a global of the process: names live in a table of the session. A session does not hold the last value (`_` is
-- weak), and each line ends with a collection, so `a = nil` frees the bytes of a.
-- @internal wane.repl.session

local cell = require 'wane.repl.cell'
local errors = require 'wane.errors'
local show = require 'wane.repl.show'

local session = {}

local C = require('wane.ffi').C

local function now()
    return C.wn_now()
end

-- Returns a name of the prompt that says what it does when it is shown, and does it when it is called.
local function command(text, fn)
    return setmetatable({}, { __tostring = function() return text end, __call = function(_, x) return fn(x) end })
end

local Session = {}
Session.__index = Session

--- Makes a session.
-- @param write function(text) that shows a text
-- @param options { protect = function(fn, handler) called in place of xpcall (optional), ran = function(seconds) called
-- after a line that ran a chunk (optional), columns = function that returns the width of the output (optional) }
-- @return session with the methods `feed`, `finish`, `forget`, `number`, `script`, `welcome`
function session.new(write, options)
    options = options or {}
    local self = setmetatable({
        write = write, pending = nil, protect = options.protect or xpcall, ran = options.ran,
        columns = options.columns or function() return 80 end, lines = 0, first = 1,
        last = setmetatable({}, { __mode = 'v' }),
    }, Session)
    local last = self.last
    self.env = setmetatable({}, {
        __index = function(_, name)
            if name == '_' then return last[1] end
            return _G[name]
        end,
    })
    self.env._G = self.env
    self.env.exit = command('^D or quit() leaves', function(code) os.exit(code or 0, true) end)
    self.env.quit = self.env.exit
    self.env.help = command('?name describes a name, such as ?nn.Linear; TAB completes; who() lists what holds '
        .. 'bytes; ^C stops a line; ^D leaves', function(name) self:help(tostring(name or '')) end)
    self.env.who = function() return require('wane.repl.who').of(self.env) end
    return self
end

--- Returns the number of the next line.
function Session:number()
    return self.lines + 1
end

--- Makes wane, nn, optim and policy names of the prompt.
function Session:welcome()
    local wane = require 'wane'
    local env = self.env
    env.wane, env.nn, env.optim, env.policy = wane, wane.nn, wane.optim, wane.policy
end

-- Copies the local variables of the function at `level` into the names of the prompt. The chunk itself calls it as its
-- last statement, where its locals are alive and all assigned; the handler of its error calls it where it stopped.
function Session:capture(level)
    local i = 1
    while true do
        local name, value = debug.getlocal(level, i)
        if name == nil then return end
        if name:match('^[%a_]') then rawset(self.env, name, value) end
        i = i + 1
    end
end

--- Makes `__capture`, which a chunk calls at its end to keep its locals.
function Session:keep_locals()
    rawset(self.env, '__capture', function() self:capture(3) end)
end

--- Compiles statements, with a call of `capture` at the end unless the chunk ends in a return. They are compiled alone
-- first: the call would complete a statement that is not, and `model =` would run.
-- @param source text
-- @param name of the chunk
-- @return chunk; or nil, the message, and whether further lines may complete the source
function Session:statement(source, name)
    local alone, message = loadstring(source, name)
    if alone == nil then return nil, message, message:match "'<eof>'$" ~= nil end
    local chunk = loadstring(source .. '\n__capture()', name)
    if chunk == nil then return alone end
    self:keep_locals()
    return chunk
end

local function pack(...)
    return select('#', ...), { ... }
end

-- Returns the text about an error of `chunk`: its message, and the frames from where it began up to the chunk, unless
-- these are the one line that the message names.
local function failure_text(e, chunk)
    local lines, found = {}, nil
    local root = debug.getinfo(chunk, 'S').short_src
    for line in ((errors.traceback_of(e) or '') .. '\n'):gmatch '\t([^\n]*)\n' do
        lines[#lines + 1] = '  ' .. line
        if line:sub(1, #root + 1) == root .. ':' and line:match ': in main chunk$' then found = #lines end
    end
    local text = 'error: ' .. tostring(e)
    if found == nil or found == 1 then return text end
    if lines[found + 1] and lines[found + 1]:match 'of Wane left out%)$' then found = found + 1 end
    return text .. '\n' .. table.concat(lines, '\n', 1, found)
end

--- Returns the text about an error of a chunk, as the prompt shows it.
session.failure_text = failure_text

-- Runs a compiled chunk, and shows its values or its error.
function Session:call(chunk, quiet)
    local n, results = self:run(chunk)
    if not results[1] then
        self.write(failure_text(results[2], chunk) .. '\n')
        return
    end
    if quiet or n == 1 then return end
    -- Showing a tensor runs a program, which may fail as the chunk may.
    local ok, text = self.protect(function()
        local parts = {}
        for i = 2, n do parts[#parts + 1] = show.text(results[i], self.columns()) end
        return table.concat(parts, '\t')
    end, errors.handler)
    self.write((ok and text or 'error: ' .. tostring(text)) .. '\n')
end

-- Shows the help for `?query`.
function Session:help(query)
    local ok, text = pcall(function() return require('wane.repl.help').text(self.env, query) end)
    self.write((ok and text or 'error: ' .. tostring(text)) .. '\n')
end

--- Takes one line of input.
-- @param line text without its newline
-- @return true when the chunk continues in the next line
function Session:feed(line)
    self.lines = self.lines + 1
    if self.pending == nil then self.first = self.lines end
    local query = self.pending == nil and line:match '^%s*%?(.*)$'
    if query then
        self:help(query)
        return false
    end
    local source = self.pending and self.pending .. '\n' .. line or line
    self.pending = nil
    if source:match('^%s*$') then return false end
    source = source:gsub('^%s*=', '')
    local chunk, second, more = cell.compile(self, source, 'prompt', self.first)
    if chunk == nil and more then
        self.pending = source
        return true
    end
    if chunk == nil then
        self.write('error: ' .. second .. '\n')
        return false
    end
    local start = now()
    self:call(chunk, second)
    local seconds = now() - start
    -- The first collection runs finalizers, the second one frees the bytes that these released.
    collectgarbage()
    collectgarbage()
    if self.ran then self.ran(seconds) end
    return false
end

--- Drops a chunk that is not complete, after ^C.
function Session:forget()
    self.pending = nil
end

--- Shows the error of a chunk that is not complete when input ends.
function Session:finish()
    if self.pending == nil then return end
    local _, message = loadstring(('\n'):rep(self.first - 1) .. self.pending, '=prompt')
    self.pending = nil
    self.write('error: ' .. tostring(message) .. '\n')
end

-- Calls protect(chunk) for a script; an error first leaves the locals that the script had made.
function Session:protected(chunk)
    return self.protect(chunk, function(e)
        for level = 2, math.huge do
            local info = debug.getinfo(level, 'f')
            if info == nil then break end
            if info.func == chunk then
                self:capture(level + 1)
                break
            end
        end
        return errors.handler(e)
    end)
end

--- Runs a compiled chunk, whose locals become names also where it fails.
-- @param chunk function that loadstring made
-- @param is_hot whether LuaJIT may compile it; else ^C, whose hook no compiled code calls, stops a hot loop in it
-- @return number of results and one; the list of true and the results, or of false and the error
function Session:run(chunk, is_hot)
    setfenv(chunk, self.env)
    if jit and not is_hot then jit.off(chunk, true) end
    local n, results = pack(self:protected(chunk))
    if results[1] and n > 1 then self.last[1] = results[2] end
    return n, results
end

--- Runs a script and makes its top-level locals names of the prompt. An error of the script is shown, and the locals
-- that it had made until then are names.
-- @param path file
-- @return whether the script ran to its end
-- @raise a text where the script cannot be read or compiled
function Session:script(path)
    local file, why = require('wane.system').open(path, 'rb')
    if not file then error(('%s: cannot be read (%s)'):format(path, why), 0) end
    local source = file:read('*a'):gsub('^#[^\n]*', '')
    file:close()
    local chunk, message = self:statement(source, '@' .. path)
    if chunk == nil then error(message, 0) end
    local _, results = self:run(chunk, self.protect == xpcall)
    if not results[1] then self.write(failure_text(results[2], chunk) .. '\n') end
    return results[1]
end

return session
