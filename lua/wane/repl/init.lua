--- The prompt: `wane repl`, `make repl`.
--
-- It joins a session (which runs lines) to a reader (which reads them) and to the terminal. On a pipe it writes values
-- and errors only: no prompts, no times, no history. With TERM=dumb it writes prompts, but no colours, and uses no line
-- editor; with NO_COLOR it writes no colours. A line editor is used where the system has one, and is never required.
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

--- Makes a session without input or output of its own: session.new.
repl.session = session.new

local function duration(seconds)
    if seconds < 1e-3 then return ('%.0f us'):format(seconds * 1e6) end
    if seconds < 1 then return ('%.1f ms'):format(seconds * 1e3) end
    return ('%.2f s'):format(seconds)
end

-- Writes one dim line after a line that ran: its seconds, the live bytes, and the peak.
local function show_cost(seconds)
    local wane = require 'wane'
    local m = wane.memory()
    local text = ('%s  live %s  peak %s'):format(duration(seconds), wane.bytes.text(m.allocated),
        wane.bytes.text(m.peak))
    io.stdout:write(system.has_color(1) and '\27[2m' .. text .. '\27[0m' or text, '\n')
end

-- Opens a line editor or the plain reader; also returns whether it is a line editor.
local function open_reader(env, kind, has_prompt, is_rich)
    local reader = is_rich and kind ~= 'plain' and readline.open(env, kind) or nil
    return reader or plain.open(has_prompt), reader ~= nil
end

-- Feeds the lines of a text, which are several for a pasted block. Returns whether the chunk continues.
local function feed(s, text)
    local more = false
    for line in (text:gsub('\n$', '') .. '\n'):gmatch '(.-)\n' do more = s:feed(line) end
    return more
end

-- Feeds lines until input ends. ^C drops a chunk that is not complete.
local function read_lines(s, reader, is_rich)
    local path = is_rich and history.path() or nil
    for _, line in ipairs(history.read(path)) do reader:remember(line) end
    local more, before = false, nil
    while true do
        local line, why = reader:read(('%d%s'):format(s:number(), more and '>> ' or '> '))
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
-- @param options { script = file to run first (optional), reader = 'readline', 'libedit' or 'plain' (optional; by
-- default the first that exists) }
function repl.run(options)
    local has_prompt = system.is_terminal(0)
    local is_rich = has_prompt and system.is_rich(1)
    repl.is_on = true
    io.stdout:setvbuf 'line'
    local s = session.new(function(text) io.stdout:write(text) end, {
        protect = has_prompt and interrupt.xpcall or nil, ran = is_rich and show_cost or nil,
        columns = system.columns,
    })
    s:welcome()
    if has_prompt then interrupt.listen(true) end
    if options.script then s:script(options.script) end
    if has_prompt then print('Wane. Values print themselves; end a line with ; to keep it quiet; ^D leaves.') end
    local reader, is_edited = open_reader(s.env, options.reader, has_prompt, is_rich)
    read_lines(s, reader, is_edited)
    s:finish()
    if has_prompt then
        print()
        interrupt.listen(false)
    end
end

return repl
