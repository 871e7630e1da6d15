--- What a prompt keeps and does, without input or output of its own.
--
-- Takes lines, runs chunks, shows values through the function it was given. Nothing typed becomes a global of the
-- process: names live in a table of the session. A session never holds the last value (`_` is weak), and each line
-- ends with a collection, so `a = nil` frees.
-- @internal wane.repl.session

local session = {}

local C = require('wane.ffi').C

local function now()
    return C.wn_now()
end

local Session = {}
Session.__index = Session

--- A prompt's state.
-- @param write function(text) that shows something
-- @param options table (optional): `protect`, called in place of pcall; `ran` function(seconds), called after a
-- line that ran a chunk
-- @return a session with the methods `feed`, `finish`, `forget`, `script`, `welcome`
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

--- Makes wane, nn, optim and policy names at the prompt.
function Session:welcome()
    local wane = require 'wane'
    local env = self.env
    env.wane, env.nn, env.optim, env.policy = wane, wane.nn, wane.optim, wane.policy
end

-- Copies what is local to the function at `level` into the prompt's names. Called by the chunk itself, as its
-- last statement: only there are its locals still alive and all assigned.
function Session:capture(level)
    local i = 1
    while true do
        local name, value = debug.getlocal(level, i)
        if name == nil then return end
        if name:match('^[%a_]') then rawset(self.env, name, value) end
        i = i + 1
    end
end

-- The statement form of a chunk, with the capture at its end unless the chunk ends in a return.
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

-- A chunk for the source; or nil, the message, whether more lines may mend it.
function Session:compile(source)
    local name = '=prompt'
    local bare = source:gsub(';%s*$', '')
    local chunk, expression_error = loadstring('return ' .. bare, name)
    -- Not run as `return`: a tail call would take the line out of its error messages. The bracket stands on the
    -- same line, whose number an index takes; only a comment at the end pushes it down.
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

-- A plain table shows its content, one level deep and at most 20 entries; all else shows as print would.
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

-- Runs a compiled chunk. It stays interpreted, so that a hot loop typed here still hears an interrupt.
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
    -- Showing a tensor runs a program, which may fail like anything else typed here.
    local ok, text = self.protect(function()
        local parts = {}
        for i = 2, n do parts[#parts + 1] = show(results[i], false) end
        return table.concat(parts, '\t')
    end)
    self.write((ok and text or 'error: ' .. tostring(text)) .. '\n')
end

-- Help is asked for with `?name` where a chunk would begin.
function Session:help(query)
    local ok, text = pcall(function() return require('wane.repl.help').text(self.env, query) end)
    self.write((ok and text or 'error: ' .. tostring(text)) .. '\n')
end

--- Takes one line of input.
-- @param line text without its newline
-- @return true when the chunk goes on in the next line
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
    -- Twice: the first pass runs finalizers, the second frees what they held.
    collectgarbage()
    collectgarbage()
    if self.ran then self.ran(seconds) end
    return false
end

--- Lets go of a chunk that is not finished (^C).
function Session:forget()
    self.pending = nil
end

--- Shows what is wrong with a chunk that input ended in the middle of.
function Session:finish()
    if self.pending == nil then return end
    local _, message = loadstring(self.pending, '=prompt')
    self.pending = nil
    self.write('error: ' .. tostring(message) .. '\n')
end

--- Runs a script and makes its top-level locals names at the prompt.
-- @param path file
function Session:script(path)
    local file, why = require('wane.system').open(path, 'rb')
    if not file then error(('%s: cannot be read (%s)'):format(path, why), 0) end
    local source = file:read('*a'):gsub('^#[^\n]*', '')
    file:close()
    local chunk, message = self:statement(source, '@' .. path)
    if chunk == nil then error(message, 0) end
    setfenv(chunk, self.env)
    if jit and self.protect ~= pcall then jit.off(chunk, true) end -- the hook of ^C does not reach into traces
    local ok, failure = self.protect(chunk)
    if not ok then error(failure, 0) end
end

return session
