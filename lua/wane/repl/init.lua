--- The prompt: `wane repl`, `make repl`.
--
-- Joins a session (what lines do) to a reader (where lines come from) and to the terminal. On a pipe there are
-- values and errors and nothing else: no prompts, no times, no history. With TERM=dumb there are prompts, and
-- neither colours nor a line editor. A line editor is used where the system has one and never needed.
-- @internal wane.repl

local history = require 'wane.repl.history'
local interrupt = require 'wane.repl.interrupt'
local plain = require 'wane.repl.plain'
local readline = require 'wane.repl.readline'
local session = require 'wane.repl.session'
local system = require 'wane.system'

local repl = {
    is_on = false, -- whether this process is a prompt
}

--- A prompt's state, without input or output: session.new.
-- @param write function(text) that shows something
-- @param options see session.new
-- @return a session with the method `feed`
repl.session = session.new

local function duration(seconds)
    if seconds < 1e-3 then return ('%.0f us'):format(seconds * 1e6) end
    if seconds < 1 then return ('%.1f ms'):format(seconds * 1e3) end
    return ('%.2f s'):format(seconds)
end

-- One dim line after each line that ran: how long it took, the bytes that live now, the most that ever did.
local function show_cost(seconds)
    local wane = require 'wane'
    local m = wane.memory()
    io.stdout:write(('\27[2m%s  live %s  peak %s\27[0m\n'):format(duration(seconds), wane.bytes.text(m.allocated),
        wane.bytes.text(m.peak)))
end

local function open_reader(env, kind, has_prompt, is_rich)
    local reader = is_rich and kind ~= 'plain' and readline.open(env, kind) or nil
    return reader or plain.open(has_prompt), reader ~= nil
end

-- A pasted block is several lines; each is fed as if it had been typed, until one asks to stop.
local function feed(s, text)
    local more = false
    for line in (text:gsub('\n$', '') .. '\n'):gmatch '(.-)\n' do more = s:feed(line) end
    return more
end

local function read_lines(s, reader, is_rich)
    local path = is_rich and history.path() or nil
    for _, line in ipairs(history.read(path)) do reader:remember(line) end
    local more, before = false, nil
    while true do
        local line, why = reader:read(more and '>> ' or '> ')
        if why == 'end' then break end
        if line == nil then
            s:forget()
            more = false
        else
            if is_rich and line:match '%S' and line ~= before then
                reader:remember(line)
                history.append(path, line)
                before = line
            end
            more = feed(s, line)
        end
    end
end

--- Reads lines from standard input until it ends.
-- @param options table: `script` file to run first (optional); `reader` 'readline', 'libedit' or 'plain': which
-- line editor (default: the first that is there)
function repl.run(options)
    local has_prompt = system.is_terminal(0)
    local is_rich = has_prompt and system.is_rich(1)
    repl.is_on = true
    io.stdout:setvbuf 'line'
    local s = session.new(function(text) io.stdout:write(text) end, {
        protect = has_prompt and interrupt.pcall or nil, ran = is_rich and show_cost or nil,
    })
    s:welcome()
    if has_prompt then interrupt.listen() end
    if options.script then s:script(options.script) end
    if has_prompt then print('Wane. Values print themselves; end a line with ; to keep it quiet; ^D leaves.') end
    local reader, is_edited = open_reader(s.env, options.reader, has_prompt, is_rich)
    read_lines(s, reader, is_edited)
    s:finish()
    if has_prompt then
        print()
        interrupt.unlisten()
    end
end

return repl
