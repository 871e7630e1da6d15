--- The `wane` command. cli/commands.lua lists the commands and their options; here they are carried out.
--
-- Each command does what a script could do itself. The launcher runs this very file; a script that describes itself as
-- a table (`return wane.main { build = ... }`) calls cli.main. Exit codes: 0 done; 1 the script, the plan or a write
-- failed; 2 the command line is wrong; 130 interrupted.
-- @module wane.cli

local folder = debug.getinfo(1, 'S').source:match('^@(.*)[/\\]wane[/\\]cli[/\\]init%.lua$')
local is_command = arg ~= nil and folder ~= nil and arg[0] == folder .. '/wane/cli/init.lua'
if is_command then
    package.path = folder .. '/?.lua;' .. folder .. '/?/init.lua;' .. package.path
end

local cli = {} -- describing: the command that a script describes itself for, or nil
if is_command then package.loaded['wane.cli'] = cli end

local arguments = require 'wane.cli.arguments'
local iterate = require 'wane.iterate'
local output = require 'wane.cli.output'
local refusal = require 'wane.cli.refusal'
local script = require 'wane.cli.script'

local misuse, say = refusal.misuse, output.say

-- Loads a script. Raises a refusal where it cannot be read or is not Lua.
local function load_script(path)
    local file, why, number = require('wane.system').open(path, 'rb')
    if not file then
        refusal.raise { message = ('%s: cannot be read%s'):format(path, number and '' or ' (' .. why .. ')'), code = 2 }
    end
    file:close()
    local chunk, message = loadfile(path)
    if not chunk then refusal.raise { message = message, code = 1 } end
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
    require('wane.errors').check_options(t, { 'build', 'defaults', 'grid', 'order' }, 'wane.main')
    if cli.describing then return t end
    local p = {}
    for k, v in iterate(t.defaults or {}) do p[k] = v end
    return (t.build(p))()
end

local commands = {}

--- Runs a script with the remaining arguments.
-- @param found parsed command line
-- @within Internal
function commands.run(found)
    output.by_lines()
    call_script(table.remove(found.operands, 1), found.operands)
    return 0
end

--- Opens the prompt.
-- @param found parsed command line
-- @within Internal
function commands.repl(found)
    if found.options.i then load_script(found.options.i) end
    require('wane.repl').run({ script = found.options.i })
    return 0
end

--- Adds Wane to the kernels of Jupyter, or runs as one.
-- @param found parsed command line
-- @within Internal
function commands.notebook(found)
    local what, file = unpack(found.operands)
    local user, prefix = found.options.user, found.options.prefix
    if what == 'run' then
        if not file then misuse 'notebook run: give the connection file, which Jupyter writes' end
        if user or prefix then misuse '--user and --prefix are for notebook install' end
        require('wane.notebook').run(file)
        return 0
    end
    if what ~= 'install' then misuse("notebook takes install or run, got '%s'", what) end
    if file then misuse("notebook install takes no file, got '%s'", file) end
    if user and prefix then misuse '--user and --prefix: give one of them' end
    local path, missing = require('wane.notebook').install(prefix)
    say('wrote ' .. path)
    if missing then say('note: ' .. missing) end
    return 0
end

-- Runs a script and returns the table by which it describes itself.
local function describe(found, command)
    cli.describing = command.name
    local t = call_script(found.operands[1], {})
    cli.describing = nil
    if type(t) ~= 'table' or type(t.build) ~= 'function' then
        refusal.raise { code = 2, message = ('%s: expected it to return { build = function(p) ... return fn, model, '
            .. 'optimizer end }'):format(found.operands[1]) }
    end
    return t
end

-- Returns the JSON of a plan: its fields that are numbers, texts or flags, and its bytes by kind.
local function plan_json(plan)
    local out = { kinds = plan.kinds }
    for key, value in iterate(plan) do
        if type(value) ~= 'table' and type(value) ~= 'cdata' then out[key] = value end
    end
    return require('wane.report.json').encode(out)
end

-- Returns whether the optimizer of a script steps in three lines.
local function lines_of(options, optimizer)
    if options.lines and not optimizer then
        refusal.raise { message = '--lines is how an optimizer steps: the script returns none', code = 2 }
    end
    return options.lines
end

--- Prints the plan of a script's step.
-- @param found parsed command line
-- @param command row of the table of commands
-- @within Internal
function commands.plan(found, command)
    local options = found.options
    local wane = require 'wane'
    local t = describe(found, command)
    local fn, _, optimizer = t.build(script.parameters(t, found, command))
    local plan, why = wane.plan(fn, { policy = options.policy, budget = options.budget, target = options.target,
        optimizer = optimizer, lines = lines_of(options, optimizer) })
    if plan == nil then
        say(options.json and require('wane.report.json').encode { refused = tostring(why) } or why)
        return 1
    end
    say(options.json and plan_json(plan) or plan)
    if options.explain then say(plan:explain()) end
    return 0
end

--- Measures a script's step and prints the result.
-- @param found parsed command line
-- @param command row of the table of commands
-- @within Internal
function commands.measure(found, command)
    local options = found.options
    if options.policy and options.budget then misuse '--policy and --budget: give one of them' end
    local t = describe(found, command)
    local policy = options.policy or options.budget and ('budget(%s)'):format(options.budget) or nil
    local fn, _, optimizer = t.build(script.parameters(t, found, command))
    say(require('wane').measure(fn, { policy = policy, optimizer = optimizer, lines = lines_of(options, optimizer),
        steps = options.steps, warmup = options.warmup, profile = options.profile }))
    return 0
end

-- Returns the exit code of a sweep; says on the error stream how many points failed, for scripts that read no file.
local function sweep_code(sweep, out)
    local failed = sweep:failed()
    if #failed > 0 then
        io.stderr:write(('wane sweep: %d of %d points failed%s\n'):format(#failed, #sweep.assigned,
            out and '; --retry-failed runs them again' or ''))
    end
    return #failed == 0 and (#sweep:measured() > 0 or #sweep.assigned == 0) and 0 or 1
end

-- Refuses options of a sweep that contradict each other.
local function check_sweep(options)
    for _, name in ipairs { 'resume', 'retry-failed' } do
        if options[name] and not options.out then misuse('--%s: give the file to go on with, --out', name) end
    end
    local by_path = {}
    for _, name in ipairs { 'out', 'report', 'csv', 'svg' } do
        local path = options[name]
        if path and by_path[path] then misuse('--%s and --%s name the same file, %s', by_path[path], name, path) end
        if path then by_path[path] = name end
    end
end

-- Makes the sweep of a command line.
local function sweep_of(t, found, command)
    local options = found.options
    local is_made, sweep = pcall(require('wane').sweep, {
        build = t.build, defaults = t.defaults, grid = script.grid(t, found, command), out = options.out,
        resume = options.resume, retry_failed = options['retry-failed'], order = options.order or t.order,
        repeats = options.repeats, warmup = options.warmup, limit = options.limit, lines = options.lines,
        verbose = options.verbose, shard = options.shard,
        title = options.title or found.operands[1]:match '([^/]+)%.lua$',
    })
    if not is_made then misuse('%s', require('wane.errors').is(sweep) and sweep.message or tostring(sweep)) end
    return sweep
end

-- Takes the files of --merge: its list, and words after the script, as a shell makes them of rows.*-of-8.jsonl. Returns
-- nil where the option is not given.
local function files_of(found)
    local files = found.options.merge
    local more = found.operands[2]
    if more and not files then misuse("sweep takes one script, got '%s' too", more) end
    while found.operands[2] do table.insert(files, table.remove(found.operands, 2)) end
    return files
end

--- Runs a sweep over a script's grid, or merges the files of its shards; writes its reports and prints it.
-- @param found parsed command line
-- @param command row of the table of commands
-- @within Internal
function commands.sweep(found, command)
    local options = found.options
    check_sweep(options)
    local files = files_of(found)
    local sweep = sweep_of(describe(found, command), found, command)
    if options.points then
        say(#sweep.assigned)
        return 0
    end
    local errors = require 'wane.errors'
    local fine, why = errors.pcall(files and sweep.merge or sweep.run, sweep, files)
    if #sweep:rows() > 0 then say(sweep) elseif not fine then errors.again(why) end -- a refusal replaces no report
    if #sweep:measured() > 0 and require('wane.system').is_terminal(1) then say('\n' .. sweep:plot()) end
    for _, made in ipairs { { 'report', options.report }, { 'csv', options.csv }, { 'plot', options.svg } } do
        if made[2] then say('wrote ' .. sweep[made[1]](sweep, made[2])) end
    end
    if not fine then errors.again(why) end
    return sweep_code(sweep, options.out)
end

--- Writes a script to start from.
-- @param found parsed command line
-- @within Internal
function commands.new(found)
    local path = found.operands[1]
    local system = require 'wane.system'
    if system.exists(path) then
        refusal.raise { message = ('%s: there is such a file already'):format(path), code = 2 }
    end
    local text = require('wane.cli.template'):gsub('FILE', (path:gsub('%%', '%%%%')))
    local fine, why = system.write(path, text)
    if not fine then error(('%s: cannot be written (%s)'):format(path, why), 0) end
    local quoted = system.quoted { path }
    say(('wrote %s; next:\n  wane run %s\n  wane plan %s --policy sqrt\n  wane measure %s'):format(path, quoted, quoted,
        quoted))
    return 0
end

-- Measures the link among the ranks of the job that this process is one of.
local function profile_link(dist, costs)
    local r, file, why = costs.ranks()
    if not dist.is_first then return 0 end
    say(('a link of %d ranks: %.3g us to start, %.4g GB/s on one machine, %.4g GB/s between machines'):format(dist.size,
        r.start * 1e6, r.inside / 1e9, r.outside / 1e9))
    say(file and 'kept in ' .. file or 'not kept: ' .. why)
    return 0
end

--- Measures the machine's rates, the link among ranks under mpirun, or the applications of a script's step.
-- @param found parsed command line
-- @param command row of the table of commands
-- @within Internal
function commands.profile(found, command)
    local costs = require 'wane.plan.costs'
    if found.operands[1] == nil then
        local option = next(found.options) or next(found.own)
        if option then misuse('--%s: give the script that it is for', option) end
        local dist = require('wane').dist
        dist.start {}
        if dist.size > 1 then return profile_link(dist, costs) end
        local m, file, why = costs.machine()
        say(('f64 %.4g, f32 %.4g, bf16 %.4g GFLOP/s, %.4g GB/s, %.3g us an application'):format(m.f64 / 1e9,
            m.f32 / 1e9, m.bf16 / 1e9, m.bytes / 1e9, m.launch * 1e6))
        say('tuning: ' .. require('wane.plan.costs.tuning').text())
        say(file and 'kept in ' .. file or 'not kept: ' .. why)
        return 0
    end
    local t = describe(found, command)
    local made = costs.profile((t.build(script.parameters(t, found, command))), { policy = found.options.policy })
    say(made)
    return made.disturbed and 1 or 0
end

--- Lists Wane's version, the devices, threads, kernels and libraries of this machine, as `wane version` prints them.
-- @return list of lines
-- @within Internal
function cli.machine()
    local binding = require 'wane.ffi'
    local C, text = binding.C, binding.text
    require('wane.plan.costs.tuning').start()
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
        ('tuning     %s'):format(require('wane.plan.costs.tuning').text()),
        ('CUDA       %s'):format(text(C.wn_cuda())),
        ('MPI        %s'):format(text(C.wn_mpi())),
        ('libraries  %s (%s, %s %s)'):format(binding.path, jit.version, jit.os, jit.arch),
    }
    local notice = text(C.wn_notice())
    if notice ~= nil and notice ~= '' then lines[#lines + 1] = ('notice     %s'):format(notice) end
    return lines
end

--- Prints Wane's version and the devices and libraries of this machine.
-- @within Internal
function commands.version()
    say(table.concat(cli.machine(), '\n'))
    return 0
end

--- Prints the completion of a shell.
-- @param found parsed command line
-- @within Internal
function commands.completion(found)
    local shell = found.operands[1]
    local text = require('wane.cli.completion')[shell]
    if not text then misuse("there is no completion for '%s'; there is one for bash and one for zsh", shell) end
    say(text())
    return 0
end

--- Prints the manual page.
-- @within Internal
function commands.man()
    say(require('wane.cli.manual').text())
    return 0
end

--- Prints the list of commands, or the page of one.
-- @param found parsed command line
-- @within Internal
function commands.help(found)
    local help = require 'wane.cli.help'
    local name = found.operands[1]
    say(name and help.page(arguments.need_command(name)) or help.overview())
    return 0
end

-- Prints the page of a command, and the options of the script where one is named.
local function show_help(found, command)
    local help = require 'wane.cli.help'
    say(help.page(command))
    if command.own_value and found.operands[1] then say(help.script(describe(found, command), found.operands[1])) end
    return 0
end

-- Keeps where an error of a script began; an error of the command line began nowhere in it.
local function with_trace(e)
    if refusal.is(e) then return e end
    return require('wane.errors').handler(e)
end

-- Returns the text about an error: its message, and the user's frames of its traceback.
local function failure_text(e)
    local text = tostring(e):gsub('^wane: ', '', 1)
    local trace = not refusal.is(e) and require('wane.errors').traceback_of(e) or ''
    return 'wane: ' .. text .. (trace ~= '' and '\n' .. trace or '')
end

local aliases = { ['--help'] = 'help', ['-h'] = 'help', ['--version'] = 'version', ['-v'] = 'version' }

-- Returns the exit code of a command that raised e.
local function code_of(e)
    if refusal.is(e) then return e.code end
    local is_interrupt = require('wane.errors').is(e) and e.code == 'interrupt'
        or type(e) == 'string' and e:match '^[^\n]*interrupted!' ~= nil
    return is_interrupt and 130 or 1
end

--- Runs a command line.
-- @param args list of words after `wane`
-- @return exit code
-- @within Internal
function cli.command(args)
    local rest, command = {}, nil
    for i = 2, #args do rest[#rest + 1] = args[i] end
    local ok, result = xpcall(function()
        command = arguments.need_command(aliases[args[1]] or args[1] or 'help')
        local found = arguments.parse(command, rest)
        if found.is_help then return show_help(found, command) end
        return commands[command.name](found, command)
    end, with_trace)
    cli.describing = nil
    if ok then return result end
    if not (refusal.is(result) and result.is_quiet) then io.stderr:write(failure_text(result), '\n') end
    if refusal.is(result) and result.has_usage then
        io.stderr:write(require('wane.cli.help').usage(command), '\n')
    end
    return code_of(result)
end

if is_command then
    output.watch_exit()
    -- Closing the state lets finalizers run; a bare os.exit would skip them.
    os.exit(cli.command({ ... }), true)
end
return cli
