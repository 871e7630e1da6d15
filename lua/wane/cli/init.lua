--- The `wane` command: run, repl, new, plan, measure, sweep, profile, version.
--
-- Each command does what a script could do itself. The launcher runs this very file; a script that describes itself as
-- a table (`return wane.main { build = ... }`) calls cli.main. Exit codes: 0 done, 1 the script or the plan failed, 2
-- the command line is wrong.
-- @module wane.cli

local folder = debug.getinfo(1, 'S').source:match('^@(.*)[/\\]wane[/\\]cli[/\\]init%.lua$')
local is_command = arg ~= nil and folder ~= nil and arg[0] == folder .. '/wane/cli/init.lua'
if is_command then
    package.path = folder .. '/?.lua;' .. folder .. '/?/init.lua;' .. package.path
end

local cli = {} -- describing: the command that a script describes itself for, or nil
if is_command then package.loaded['wane.cli'] = cli end

local usage = [[
usage: wane run script.lua [arguments]      runs a script with Wane on its path
       wane repl [-i script.lua]            a prompt; the script's locals become names
       wane new script.lua                  writes a script to start from, for the next three
       wane plan script.lua [options]       what a script's step would need; nothing is computed
            --budget 2GiB  --policy 'segments(4)'  --target h200  --explain  --NAME VALUE (for the script)
       wane measure script.lua [options]    what it takes: bytes predicted and measured, seconds
            --policy sqrt  --budget 2GiB  --steps 5  --warmup 1  --fused  --NAME VALUE
       wane sweep script.lua [options]      that under every combination of values, a process each
            --policy save_all,sqrt,'segments(4)'  --budget 1GiB,2GiB  --NAME V1,V2  --order NAME,policy
            --out runs/a.jsonl  --resume  --retry-failed  --report a.html  --csv a.csv  --svg a.svg
            --repeats 3  --warmup 1  --limit SECONDS  --fused  --verbose  --title TEXT
       wane profile [script.lua]            measures this machine, or a script's ops, for plans to come
       wane version                         devices, threads, libraries]]

-- Class of errors of the command line, without a traceback: exit code 2, or e.code for a script that is no Lua.
local Misuse = {}
Misuse.__index = Misuse
Misuse.__tostring = function(e) return e.message end

-- Raises an error of the command line.
local function misuse(fmt, ...)
    error(setmetatable({ message = fmt:format(...) }, Misuse), 0)
end

-- Parses a command line into { positional = list, options = { name = value } }; options in `flags` take no value.
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

-- Refuses options that neither the command (`own`) nor the script (t) knows. A script without defaults and without a
-- grid takes any option.
local function check_names(options, own, t)
    local known, says = {}, next(t.defaults or {}) ~= nil or next(t.grid or {}) ~= nil
    for _, part in ipairs { own, t.defaults or {}, t.grid or {} } do
        for name in pairs(part) do known[name] = true end
    end
    for name in pairs(options) do
        if says and not known[name] then
            misuse("--%s: neither the command nor the script has such an option; %s", name,
                require('wane.errors').near(name, known))
        end
    end
end

-- Returns an option as a number, or nil where it is not given.
local function number_of(options, name)
    if options[name] == nil then return nil end
    return tonumber(options[name]) or misuse("--%s takes a number, got '%s'", name, tostring(options[name]))
end

-- Checks the name of a policy and returns it. A policy that this version lacks is refused later, as a failure.
local function check_policy(text)
    local errors = require 'wane.errors'
    local fine, why = pcall(require('wane.policy').of, text)
    if not fine and not (errors.is(why) and why.code == 'unsupported') then
        misuse('--policy: %s', errors.is(why) and why.message or tostring(why))
    end
    return text
end

-- Checks a size and returns it.
local function check_budget(text)
    local fine, why = pcall(require('wane.report.bytes').parse, text, '--budget')
    if not fine then misuse('%s', why.message) end
    return text
end

-- Splits a list at its commas, but not inside brackets: 'a,segments(4),b' -> { 'a', 'segments(4)', 'b' }.
local function split(text)
    local out, depth, from = {}, 0, 1
    for at, c in (text .. ','):gmatch '()([(){},])' do
        if c == ',' and depth == 0 then
            out[#out + 1] = text:sub(from, at - 1):match '^%s*(.-)%s*$'
            from = at + 1
        elseif c ~= ',' then
            depth = depth + ((c == '(' or c == '{') and 1 or -1)
        end
    end
    return out
end

-- Loads a script. Raises Misuse where it cannot be read or is not Lua.
local function load_script(path)
    if path == nil then misuse('a script is missing\n%s', usage) end
    local file, why, number = require('wane.system').open(path, 'rb')
    if not file then misuse('%s: cannot be read%s', path, number and '' or ' (' .. why .. ')') end
    file:close()
    local chunk, message = loadfile(path)
    if not chunk then error(setmetatable({ message = message, code = 1 }, Misuse), 0) end
    return chunk
end

-- Runs a script with an `arg` of its own, as if LuaJIT had been started on it.
local function call_script(path, args)
    local chunk = load_script(path)
    local own = { [-1] = 'luajit', [0] = path }
    for i, a in ipairs(args) do own[i] = a end
    rawset(_G, 'arg', own)
    return chunk(unpack(args))
end

--- Makes a script usable by the `wane` command and by itself.
--
-- Under `wane plan`, `measure`, `profile` and `sweep` it returns t, and nothing runs. When the script is run directly,
-- it builds the step with the defaults and runs it once.
-- @function wane.main
-- @param t { build = function(p) that returns fn, model, optimizer; defaults = table, of which p is a copy (optional);
-- grid =, order = for `wane sweep` (optional) }
-- @return t under a command, else what fn returns
-- @raise 'value' for a table without `build`
-- @usage
-- local loss = wane.main {
--     build = function(p)
--         local rows = wane.ones(p.batch, 8)
--         return function() return model(rows):sum() end, model, opt
--     end,
--     defaults = { batch = 4 },
--     grid = { batch = { 4, 8 }, policy = { 'save_all', 'recompute_all' } },
-- }
-- print(loss:numel()) --> 1
function cli.main(t)
    if type(t) ~= 'table' or type(t.build) ~= 'function' then
        require('wane.errors').raise(nil, 'value',
            'wane.main: expected a table with build = function(p) ... return fn, model, optimizer end')
    end
    if cli.describing then return t end
    local p = {}
    for k, v in pairs(t.defaults or {}) do p[k] = v end
    return (t.build(p))()
end

local commands = {}

--- Runs a script with the remaining arguments.
-- @param args list of words after the command
-- @within Internal
function commands.run(args)
    local rest = {}
    for i = 2, #args do rest[#rest + 1] = args[i] end
    call_script(args[1], rest)
    return 0
end

--- Opens the prompt.
-- @param args list of words after the command
-- @within Internal
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

-- Runs a script and returns the table by which it describes itself.
local function describe(given, command)
    if given.positional[2] then misuse("%s takes one script, got '%s' too", command, given.positional[2]) end
    cli.describing = command
    local t = call_script(given.positional[1], {})
    cli.describing = nil
    if type(t) ~= 'table' or type(t.build) ~= 'function' then
        misuse('%s: expected it to return { build = function(p) ... return fn, model, optimizer end }',
            given.positional[1])
    end
    return t
end

-- Returns p for the script's build function: its defaults, replaced by every option that is not the command's own.
local function script_options(t, options, own)
    check_names(options, own, t)
    local p = {}
    for k, v in pairs(t.defaults or {}) do p[k] = v end
    for k, v in pairs(options) do
        if not own[k] then p[k] = tonumber(v) or v end
    end
    return p
end

local plan_options = { budget = true, policy = true, target = true, explain = true }

--- Prints the plan of a script's step.
-- @param args list of words after the command
-- @within Internal
function commands.plan(args)
    local given = parse(args, { explain = true })
    local wane = require 'wane'
    local t = describe(given, 'plan')
    if given.options.policy then check_policy(given.options.policy) end
    local fn = t.build(script_options(t, given.options, plan_options))
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

local measure_options = { policy = true, budget = true, steps = true, warmup = true, fused = true }

--- Measures a script's step and prints the result.
-- @param args list of words after the command
-- @within Internal
function commands.measure(args)
    local given = parse(args, { fused = true })
    local options = given.options
    local t = describe(given, 'measure')
    if options.policy and options.budget then misuse '--policy and --budget: give one of them' end
    local policy = options.policy and check_policy(options.policy)
        or options.budget and ('budget(%s)'):format(check_budget(options.budget)) or nil
    local steps, warmup = number_of(options, 'steps'), number_of(options, 'warmup')
    local fn, _, optimizer = t.build(script_options(t, options, measure_options))
    if options.fused and not optimizer then misuse '--fused measures opt:step(loss): the script has no optimizer' end
    print(require('wane').measure(fn, { policy = policy, optimizer = optimizer, fused = options.fused, steps = steps,
        warmup = warmup }))
    return 0
end

local sweep_options = { policy = true, budget = true, out = true, resume = true, ['retry-failed'] = true,
    report = true, csv = true, svg = true, repeats = true, warmup = true, limit = true, fused = true, verbose = true,
    order = true, title = true }

-- Returns the script's grid, with axes of the command line in place of its own.
local function grid_of(t, options)
    local grid = {}
    for key, list in pairs(t.grid or {}) do grid[key] = list end
    for key, text in pairs(options) do
        if key == 'policy' or key == 'budget' or not sweep_options[key] then
            local list = split(tostring(text))
            for i, word in ipairs(list) do
                if word == '' then misuse('--%s: a value is missing in %q', key, text) end
                if key == 'policy' then check_policy(word) end
                if key == 'budget' then check_budget(word) end
                list[i] = key ~= 'policy' and key ~= 'budget' and tonumber(word) or word
            end
            grid[key] = list
        end
    end
    if next(grid) == nil then misuse 'sweep: there is no grid; the script names none, give --policy or --NAME' end
    return grid
end

-- Returns the exit code of a sweep; says on the error stream how many points failed, for scripts that read no file.
local function sweep_code(sweep, out)
    local failed = sweep:failed()
    if #failed > 0 then
        io.stderr:write(('wane sweep: %d of %d points failed%s\n'):format(#failed, #sweep.points,
            out and '; --retry-failed runs them again' or ''))
    end
    return #failed == 0 and #sweep:measured() > 0 and 0 or 1
end

--- Runs a sweep over a script's grid, prints it and writes its reports.
-- @param args list of words after the command
-- @within Internal
function commands.sweep(args)
    local given = parse(args, { resume = true, ['retry-failed'] = true, fused = true, verbose = true })
    local options = given.options
    local t = describe(given, 'sweep')
    check_names(options, sweep_options, t)
    for _, name in ipairs { 'resume', 'retry-failed' } do
        if options[name] and not options.out then misuse('--%s: give the file to go on with, --out', name) end
    end
    local is_made, sweep = pcall(require('wane').sweep, {
        build = t.build, defaults = t.defaults, grid = grid_of(t, options), out = options.out, resume = options.resume,
        retry_failed = options['retry-failed'],
        order = options.order and split(options.order) or t.order, repeats = number_of(options, 'repeats'),
        warmup = number_of(options, 'warmup'), limit = number_of(options, 'limit'), fused = options.fused,
        verbose = options.verbose, title = options.title or given.positional[1]:match '([^/]+)%.lua$',
    })
    if not is_made then misuse('%s', require('wane.errors').is(sweep) and sweep.message or tostring(sweep)) end
    local fine, why = pcall(sweep.run, sweep)
    if #sweep:rows() > 0 then print(sweep) end
    if #sweep:measured() > 0 and require('wane.system').is_terminal(1) then print('\n' .. sweep:plot()) end
    for _, output in ipairs { { 'report', options.report }, { 'csv', options.csv }, { 'plot', options.svg } } do
        if output[2] then print('wrote ' .. sweep[output[1]](sweep, output[2])) end
    end
    if not fine then error(why, 0) end
    return sweep_code(sweep, options.out)
end

--- Writes a script to start from.
-- @param args list of words after the command
-- @within Internal
function commands.new(args)
    local path = args[1]
    if path == nil then misuse('new: the name of the script is missing\n%s', usage) end
    if args[2] then misuse("new takes one name, got '%s' too", args[2]) end
    local there = io.open(path, 'rb')
    if there then
        there:close()
        misuse('%s: there is such a file already', path)
    end
    local file, why = require('wane.system').open(path, 'wb')
    if not file then error(('%s: cannot be written (%s)'):format(path, why), 0) end
    file:write((require('wane.cli.template'):gsub('FILE', (path:gsub('%%', '%%%%')))))
    file:close()
    return 0
end

--- Measures the machine's rates, or the applications of a script's step.
-- @param args list of words after the command
-- @within Internal
function commands.profile(args)
    local given = parse(args, {})
    local costs = require 'wane.plan.costs'
    if given.positional[1] == nil then
        require 'wane' -- adds the methods of tensors
        local m = costs.machine()
        print(('f64 %.4g, f32 %.4g, bf16 %.4g GFLOP/s, %.4g GB/s, %.3g us an application'):format(m.f64 / 1e9,
            m.f32 / 1e9, m.bf16 / 1e9, m.bytes / 1e9, m.launch * 1e6))
        print('tuning: ' .. require('wane.plan.tuning').text())
        print(costs.file() and 'kept in ' .. costs.file() or 'not kept: WANE_COSTS is off')
        return 0
    end
    local t = describe(given, 'profile')
    local policy = given.options.policy and check_policy(given.options.policy) or nil
    local made = costs.profile((t.build(script_options(t, given.options, { policy = true }))), { policy = policy })
    print(made)
    return made.disturbed and 1 or 0
end

--- Lists Wane's version, the devices, threads, kernels and libraries of this machine, as `wane version` prints them.
-- @return list of lines
-- @within Internal
function cli.machine()
    local binding = require 'wane.ffi'
    local C, text = binding.C, binding.text
    require('wane.plan.tuning').start()
    local devices = {}
    for d = 0, C.wn_device_count() - 1 do
        if C.wn_device_absent(d) == nil then devices[#devices + 1] = text(C.wn_device_name(d)) end
    end
    local lines = {
        ('wane %s'):format(text(C.wn_version())),
        ('devices    %s'):format(table.concat(devices, ', ')),
        ('processor  %s'):format(text(C.wn_processor())),
        ('threads    %d'):format(C.wn_threads()),
        ('kernels    %s'):format(text(C.wn_kernels())),
        ('tuning     %s'):format(require('wane.plan.tuning').text()),
        ('oneDNN     %s'):format(text(C.wn_onednn())),
        ('CUDA       %s'):format(text(C.wn_cuda())),
        ('libraries  %s (%s, %s %s)'):format(binding.path, jit.version, jit.os, jit.arch),
    }
    local notice = text(C.wn_notice())
    if notice ~= nil and notice ~= '' then lines[#lines + 1] = ('notice     %s'):format(notice) end
    return lines
end

--- Prints Wane's version and the devices and libraries of this machine.
-- @within Internal
function commands.version()
    for _, line in ipairs(cli.machine()) do print(line) end
    return 0
end

--- Prints the commands.
-- @within Internal
function commands.help()
    print(usage)
    return 0
end
commands['--help'], commands['-h'], commands['--version'] = commands.help, commands.help, commands.version

-- Adds a traceback to an error that is a string; an error object of Wane says itself where it was raised.
local function with_trace(e)
    if type(e) == 'string' then return debug.traceback(e, 2) end
    return e
end

--- Runs a command line.
-- @param args list of words after `wane`
-- @return exit code
-- @within Internal
function cli.command(args)
    local rest = {}
    for i = 2, #args do rest[#rest + 1] = args[i] end
    local command = commands[args[1] or 'help']
    if command == nil then
        local names = {}
        for name in pairs(commands) do
            if name:match '^%a' then names[#names + 1] = name end
        end
        table.sort(names)
        io.stderr:write(("wane: unknown command '%s'; %s\n%s\n"):format(args[1],
            require('wane.errors').near(args[1], names), usage))
        return 2
    end
    local ok, result = xpcall(command, with_trace, rest)
    cli.describing = nil
    if ok then return result end
    io.stderr:write((tostring(result):gsub('^wane: ', '', 1):gsub('^', 'wane: ', 1)), '\n')
    return getmetatable(result) == Misuse and (result.code or 2) or 1
end

if is_command then
    local code = cli.command({ ... })
    io.stdout:flush()
    -- Closing the state lets finalizers run; a bare os.exit would skip them.
    os.exit(code, true)
end
return cli
