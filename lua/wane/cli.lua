--- The `wane` command: run, repl, plan, version.
--
-- A thin layer: every command is what a script could do itself. The launcher runs this very file; a script that
-- describes itself as a table (`return wane.main{ build = ... }`) comes back through `cli.main`.
-- Exit codes: 0 done, 1 the script or the plan failed, 2 the command line made no sense.
-- @module wane.cli

local folder = debug.getinfo(1, 'S').source:match('^@(.*)[/\\]wane[/\\]cli%.lua$')
local is_command = arg ~= nil and folder ~= nil and arg[0] == folder .. '/wane/cli.lua'
if is_command then
    package.path = folder .. '/?.lua;' .. folder .. '/?/init.lua;' .. package.path
end

local cli = {}
if is_command then package.loaded['wane.cli'] = cli end

local usage = [[
usage: wane run script.lua [arguments]      runs a script with Wane on its path
       wane repl [-i script.lua]            a prompt; the script's locals become names
       wane plan script.lua [options]       what a script's step would need; nothing is computed
            --budget 2GiB  --policy 'segments(4)'  --target h200  --explain  --NAME VALUE (for the script)
       wane version                         devices, threads, libraries]]

-- An error of the command line itself: told apart from failures of scripts by its exit code.
local Misuse = {}
Misuse.__index = Misuse
Misuse.__tostring = function(e) return e.message end

local function misuse(fmt, ...)
    error(setmetatable({ message = fmt:format(...) }, Misuse), 0)
end

-- { positional = {...}, options = { name = value } }; `flags` take no value.
local function parse(args, flags)
    local out = { positional = {}, options = {} }
    local i = 1
    while i <= #args do
        local name, value = args[i]:match('^%-%-([%w_%-]+)=(.*)$')
        name = name or args[i]:match('^%-%-([%w_%-]+)$')
        if not name then
            out.positional[#out.positional + 1] = args[i]
        elseif value then
            out.options[name] = value
        elseif flags[name] then
            out.options[name] = true
        else
            i = i + 1
            if args[i] == nil then misuse('--%s: a value is missing', name) end
            out.options[name] = args[i]
        end
        i = i + 1
    end
    return out
end

local function load_script(path)
    if path == nil then misuse('a script is missing\n%s', usage) end
    local file = io.open(path, 'rb')
    if not file then misuse('%s: cannot be read', path) end
    file:close()
    local chunk, message = loadfile(path)
    if not chunk then error(message, 0) end
    return chunk
end

-- Gives the script its own `arg`, as if LuaJIT had been started on it.
local function call_script(path, args)
    local chunk = load_script(path)
    local own = { [-1] = 'luajit', [0] = path }
    for i, a in ipairs(args) do own[i] = a end
    rawset(_G, 'arg', own)
    return chunk(unpack(args))
end

--- What a script's description (`wane.main{ build = function(p) ... end }`) comes to.
-- Under `wane plan` the table itself, and nothing runs. Run directly: built with its defaults, then run once.
-- @param t table: `build` function(p) -> fn, model, optimizer; `defaults` table for p (optional)
-- @return t under `wane plan`, else what fn returned
function cli.main(t)
    if type(t) ~= 'table' or type(t.build) ~= 'function' then
        require('wane.errors').raise(nil, 'value',
            'wane.main: expected a table with build = function(p) ... return fn, model, optimizer end')
    end
    if cli.asking then return t end
    local p = {}
    for k, v in pairs(t.defaults or {}) do p[k] = v end
    return (t.build(p))()
end

local commands = {}

function commands.run(args)
    local rest = {}
    for i = 2, #args do rest[#rest + 1] = args[i] end
    call_script(args[1], rest)
    return 0
end

function commands.repl(args)
    local script
    if args[1] == '-i' then
        script = args[2]
        if script == nil then misuse('repl -i: a script is missing') end
        load_script(script)
    elseif args[1] ~= nil then
        misuse("repl: unknown argument '%s'\n%s", args[1], usage)
    end
    require('wane.repl').run({ script = script })
    return 0
end

-- Options the script's build function gets: everything that is not the command's own, defaults first.
local function script_options(t, options)
    local p = {}
    for k, v in pairs(t.defaults or {}) do p[k] = v end
    for k, v in pairs(options) do
        if k ~= 'budget' and k ~= 'target' and k ~= 'explain' then p[k] = tonumber(v) or v end
    end
    return p
end

function commands.plan(args)
    local given = parse(args, { explain = true })
    local wane = require 'wane'
    cli.asking = 'plan'
    local t = call_script(given.positional[1], {})
    cli.asking = nil
    if type(t) ~= 'table' or type(t.build) ~= 'function' then
        misuse('%s: expected it to return { build = function(p) ... return fn, model, optimizer end }',
            given.positional[1])
    end
    local fn = t.build(script_options(t, given.options))
    local plan, why = wane.plan(fn, {
        policy = given.options.policy,
        budget = given.options.budget,
        target = given.options.target,
    })
    if plan == nil then
        io.stdout:write(tostring(why), '\n')
        return 1
    end
    io.stdout:write(tostring(plan), '\n')
    if given.options.explain then io.stdout:write(tostring(plan:explain()), '\n') end
    return 0
end

function commands.version()
    local binding = require 'wane.ffi'
    local C, text = binding.C, binding.text
    local devices = {}
    for d = 0, C.wn_device_count() - 1 do devices[#devices + 1] = text(C.wn_device_name(d)) end
    print(('wane %s'):format(text(C.wn_version())))
    print(('devices    %s'):format(table.concat(devices, ', ')))
    print(('threads    %d'):format(C.wn_threads()))
    print(('kernels    %s'):format(text(C.wn_kernels())))
    print(('oneDNN     %s'):format(text(C.wn_onednn())))
    print(('libraries  %s (%s, %s %s)'):format(binding.path, jit.version, jit.os, jit.arch))
    local notice = text(C.wn_notice())
    if notice ~= nil and notice ~= '' then print(('notice     %s'):format(notice)) end
    return 0
end

function commands.help()
    print(usage)
    return 0
end
commands['--help'], commands['-h'], commands['--version'] = commands.help, commands.help, commands.version

-- A Wane error says where it happened in its own words; anything else needs the stack.
local function with_trace(e)
    if type(e) == 'string' then return debug.traceback(e, 2) end
    return e
end

--- Does what a command line asks.
-- @param args list of words after `wane`
-- @return the exit code
function cli.command(args)
    local rest = {}
    for i = 2, #args do rest[#rest + 1] = args[i] end
    local command = commands[args[1] or 'help']
    if command == nil then
        io.stderr:write(("wane: unknown command '%s'\n%s\n"):format(args[1], usage))
        return 2
    end
    local ok, result = xpcall(command, with_trace, rest)
    cli.asking = nil
    if ok then return result end
    io.stderr:write((tostring(result):gsub('^wane: ', '', 1):gsub('^', 'wane: ', 1)), '\n')
    return getmetatable(result) == Misuse and 2 or 1
end

if is_command then
    local code = cli.command({ ... })
    io.stdout:flush()
    -- Closing the state lets finalizers run; a bare os.exit would skip them.
    os.exit(code, true)
end
return cli
