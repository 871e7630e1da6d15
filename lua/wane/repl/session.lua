--- A session of the prompt, without input or output of its own.
--
-- A session takes lines, runs chunks, and shows values through the function that it was given. Nothing typed becomes a
-- global of the process: names live in a table of the session. A session does not hold the last value (`_` is weak),
-- and each line ends with a collection, so `a = nil` frees the bytes of a.
-- @internal wane.repl.session

local session = {}

local C = require('wane.ffi').C

local function now()
    return C.wn_now()
end

local Session = {}
Session.__index = Session

--- Makes a session.
-- @param write function(text) that shows a text
-- @param options { protect = function called in place of pcall (optional), ran = function(seconds) called after a line
-- that ran a chunk (optional) }
-- @return session with the methods `feed`, `finish`, `forget`, `script`, `welcome`
function session.new(write, options)
    options = options or {}
    local self = setmetatable({
        write = write, pending = nil, protect = options.protect or pcall, ran = options.ran,
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
    self.env.__values = function(...) return ... end
    self.env.exit = function(code) os.exit(code or 0, true) end
    self.env.quit = self.env.exit
    self.env.who = function() return require('wane.repl.who').of(self.env) end
    return self
end

--- Makes wane, nn, optim and policy names of the prompt.
function Session:welcome()
    local wane = require 'wane'
    local env = self.env
    env.wane, env.nn, env.optim, env.policy = wane, wane.nn, wane.optim, wane.policy
end

-- Copies the local variables of the function at `level` into the names of the prompt. The chunk itself calls it as its
-- last statement: only there its locals are alive and all assigned.
function Session:capture(level)
    local i = 1
    while true do
        local name, value = debug.getlocal(level, i)
        if name == nil then return end
        if name:match('^[%a_]') then rawset(self.env, name, value) end
        i = i + 1
    end
end

-- Compiles statements, with a call of `capture` at the end unless the chunk ends in a return.
function Session:statement(source, name)
    local chunk = loadstring(source .. '\n__capture()', name)
    if chunk == nil then return loadstring(source, name) end
    local env = self.env
    rawset(env, '__capture', function() self:capture(3) end)
    return chunk
end

local function is_incomplete(message)
    return message:match("'<eof>'$") ~= nil
end

-- Compiles a source. Returns the chunk; or nil, the message, and whether further lines may complete the source.
function Session:compile(source)
    local name = '=prompt'
    local bare = source:gsub(';%s*$', '')
    local chunk, expression_error = loadstring('return ' .. bare, name)
    -- The chunk is no plain `return`, because a tail call would take the line out of error messages. The bracket closes
    -- on the line of the expression, which errors of indexing name; only after a comment it moves to the next line.
    if chunk then
        return loadstring('return __values(' .. bare .. ')', name)
            or loadstring('return __values(' .. bare .. '\n)', name)
    end
    local message
    chunk, message = self:statement(source, name)
    if chunk then return chunk end
    return nil, message, is_incomplete(message) or is_incomplete(expression_error)
end

local function is_identifier(k)
    return type(k) == 'string' and k:match('^[%a_][%w_]*$') ~= nil
end

-- Returns a value as text. A plain table shows its entries, one level deep and at most 20; all else is as tostring
-- says.
local function show(value, deep)
    if type(value) == 'string' and deep then return ('%q'):format(value) end
    if type(value) ~= 'table' or getmetatable(value) ~= nil or deep then return tostring(value) end
    local parts, n = {}, #value
    for i = 1, math.min(n, 20) do parts[#parts + 1] = show(value[i], true) end
    local names = {}
    for k in pairs(value) do
        if not (type(k) == 'number' and k >= 1 and k <= n and k % 1 == 0) then names[#names + 1] = k end
    end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for _, k in ipairs(names) do
        if #parts >= 20 then break end
        local key = is_identifier(k) and k or '[' .. show(k, true) .. ']'
        parts[#parts + 1] = key .. ' = ' .. show(value[k], true)
    end
    local rest = n + #names - #parts
    if rest > 0 then parts[#parts + 1] = ('... %d more'):format(rest) end
    return '{ ' .. table.concat(parts, ', ') .. ' }'
end

local function pack(...)
    return select('#', ...), { ... }
end

-- Runs a compiled chunk. The chunk stays interpreted, so that ^C stops a hot loop typed here.
function Session:call(chunk, quiet)
    setfenv(chunk, self.env)
    if jit then jit.off(chunk, true) end
    local n, results = pack(self.protect(chunk))
    if not results[1] then
        self.write('error: ' .. tostring(results[2]) .. '\n')
        return
    end
    if n > 1 then self.last[1] = results[2] end
    if quiet or n == 1 then return end
    -- Showing a tensor runs a program, which may fail as the chunk may.
    local ok, text = self.protect(function()
        local parts = {}
        for i = 2, n do parts[#parts + 1] = show(results[i], false) end
        return table.concat(parts, '\t')
    end)
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
    local query = self.pending == nil and line:match '^%s*%?(.*)$'
    if query then
        self:help(query)
        return false
    end
    local source = self.pending and self.pending .. '\n' .. line or line
    self.pending = nil
    if source:match('^%s*$') then return false end
    source = source:gsub('^%s*=', '')
    local chunk, second, more = self:compile(source)
    if chunk == nil and more then
        self.pending = source
        return true
    end
    if chunk == nil then
        self.write('error: ' .. second .. '\n')
        return false
    end
    local start = now()
    self:call(chunk, source:match(';%s*$') ~= nil)
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
    local _, message = loadstring(self.pending, '=prompt')
    self.pending = nil
    self.write('error: ' .. tostring(message) .. '\n')
end

--- Runs a script and makes its top-level locals names of the prompt.
-- @param path file
-- @raise a text where the script cannot be read or compiled, else the script's own error
function Session:script(path)
    local file, why = require('wane.system').open(path, 'rb')
    if not file then error(('%s: cannot be read (%s)'):format(path, why), 0) end
    local source = file:read('*a'):gsub('^#[^\n]*', '')
    file:close()
    local chunk, message = self:statement(source, '@' .. path)
    if chunk == nil then error(message, 0) end
    setfenv(chunk, self.env)
    if jit and self.protect ~= pcall then jit.off(chunk, true) end -- the hook of ^C is not called in compiled traces
    local ok, failure = self.protect(chunk)
    if not ok then error(failure, 0) end
end

return session
