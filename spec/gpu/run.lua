-- Runs the checks of a GPU in order, each as a process with a time cap, and puts their rows into one table and one
-- JSON: `luajit spec/gpu/run.lua FOLDER [--small] [--only NAME,NAME] [--caps FACTOR] [--minutes N]`; check.sh does.
--
-- FOLDER gets report.json, report.txt (the table) and report.log (what the checks printed), written anew after every
-- check. A check that fails, crashes or runs into its cap does not stop the others; after --minutes none is started.
-- The last line counts; the exit code is 1 where a fact failed or a check did not end by itself. Numbers that miss
-- their aim are counted and do not fail.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local root = here:match '^(.*)/spec/gpu$' or here .. '/../..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local json = require 'wane.report.json'
local files = require 'spec.support.files'
local sim = require 'spec.support.cudasim'
local text = require 'wane.report.table'

local is_simulated = sim.missing() == nil
local options, given = require 'spec.support.options'({ caps = 1, minutes = math.huge, only = function(names)
    local only = {}
    for name in names:gmatch '[^,]+' do only[name] = true end
    return next(only) and only or error('--only takes names of checks, with commas between', 0)
end }, '--small, --only NAME,NAME, --caps FACTOR, --minutes N', true)
options.small = options.small or is_simulated
local folder = given[1] or error('run.lua: give the folder of the report', 0)

-- ---- the checks ---------------------------------------------------------------------------------------------------
local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end
local LUAJIT = quoted(os.getenv 'LUAJIT' or 'luajit')

-- name; cap: seconds; script: a file of this folder and the check in it; or spec: files for runner.lua; before: words
-- before the command; needs: a command that must be there.
local every = options.small and '--every 12 ' or ''
-- Sums of cuBLASLt have orders of their own, so what promises bits is checked without it.
local OWN = 'env WANE_CUDA_LT=off'
-- The sanitizer watches every kernel that is loaded, so only those that run are.
local sanitizer = OWN .. ' CUDA_MODULE_LOADING=LAZY compute-sanitizer --error-exitcode 9 --tool '
local checks = {
    { name = 'versions', cap = 60, script = 'facts versions' },
    { name = 'probes', cap = 120, script = 'facts probes', before = OWN },
    { name = 'probes of cuBLASLt', cap = 120, script = 'facts probes',
        before = is_simulated and 'env WANE_CUDA_LT=simulated' or nil },
    { name = 'records', cap = 300, spec = every .. 'spec/cuda_op_spec.lua', before = OWN },
    { name = 'bound by memory', cap = 180, spec = every .. 'spec/cuda_memory_spec.lua', before = OWN },
    { name = 'exact', cap = 120, script = 'facts exact' },
    { name = 'policies', cap = 120, script = 'facts policies' },
    { name = 'faults', cap = 60, script = 'facts faults' },
    { name = 'offload', cap = 120, script = 'facts offload' },
    { name = 'memcheck', cap = 240, script = 'facts sanitized', before = sanitizer .. 'memcheck',
        needs = 'compute-sanitizer' },
    { name = 'racecheck', cap = 240, script = 'facts sanitized', before = sanitizer .. 'racecheck',
        needs = 'compute-sanitizer' },
    { name = 'bandwidth', cap = 120, script = 'kernels bandwidth' },
    { name = 'products', cap = 120, script = 'kernels products' },
    { name = 'own products', cap = 120, script = 'kernels products', before = OWN },
    { name = 'convolutions', cap = 120, script = 'kernels convolutions' },
    { name = 'convolutions by cuDNN', cap = 120, script = 'kernels convolutions',
        before = 'env WANE_CUDA_DNN=' .. (is_simulated and 'simulated' or 'auto') },
    { name = 'attention', cap = 120, script = 'kernels attention' },
    { name = 'rows', cap = 90, script = 'steps rows' },
    { name = 'heavy', cap = 180, script = 'steps heavy' },
    { name = 'gpt', cap = 300, script = 'steps gpt' },
    { name = 'profile', cap = 180, script = 'steps profile' },
    { name = 'recurrent', cap = 120, script = 'steps recurrent' },
}

-- Adds the specs that hold on any device, as spec/support/cuda.sh lists them, each in a process of its own; of small
-- checks the quickest few.
do
    local file = assert(io.open(root .. '/spec/support/cuda.sh'))
    local names = options.small and 'exact verify slopes' or file:read '*a':match "\nspecs='([^']*)'"
    file:close()
    for name in (names .. ' cuda_attention'):gmatch '%S+' do
        table.insert(checks, { name = 'spec ' .. name, cap = 120, spec = 'spec/' .. name .. '_spec.lua',
            before = OWN .. ' CUDA_MODULE_LOADING=LAZY WANE_DEVICE=cuda' })
    end
end

-- Refuses names of --only that no check has.
do
    local known, names = {}, {}
    for i, check in ipairs(checks) do known[check.name], names[i] = true, check.name end
    for name in pairs(options.only or {}) do
        if not known[name] then
            error(("run.lua: --only: there is no check '%s'; known: %s"):format(name, table.concat(names, ', ')), 0)
        end
    end
end

-- Returns the exit code of a shell command.
local function shell(command)
    local code = os.execute(command)
    return code % 256 == 0 and code / 256 or code % 256
end

-- Adds the rows of a run of spec files: the closing line, and each test that failed.
local function spec_rows(log)
    local passed, failed, pending = log:match '(%d+) passed, (%d+) failed, (%d+) pending\n$'
    local rows = {}
    if not passed then return { { what = 'the specs', verdict = 'FAIL', detail = 'they gave no count' } } end
    for name in log:gmatch 'failed: ([^\n]*)' do rows[#rows + 1] = { what = name, verdict = 'FAIL' } end
    rows[#rows + 1] = { what = ('specs: %s passed, %s failed, %s pending'):format(passed, failed, pending),
        verdict = failed == '0' and 'pass' or 'FAIL' }
    return rows
end

local base = os.tmpname() -- of the rows and of the log of the running check

-- Runs a check; returns its rows, with one more where it did not end well, and its log.
local function run(check)
    if check.needs and (is_simulated or shell('command -v ' .. check.needs .. ' >/dev/null 2>&1') ~= 0) then
        return { { what = check.name, verdict = '', detail = is_simulated and 'left out: the device is simulated'
            or 'left out: no ' .. check.needs } }, ''
    end
    os.remove(base .. '.lua')
    local command = check.script and ('%s/spec/gpu/%s --out %s'):format(quoted(root), check.script:gsub(' ', '.lua '),
        quoted(base .. '.lua')) .. (options.small and ' --small' or '')
        or ('%s/spec/gpu/runner.lua %s'):format(quoted(root), check.spec)
    local cap = check.cap * options.caps
    local code = shell(('cd %s && timeout -k 5 %g %s %s %s >%s 2>&1'):format(quoted(root), cap, check.before or '',
        LUAJIT, command, quoted(base .. '.log')))
    local log = files.read(base .. '.log') or ''
    if check.needs and log:find 'Device not supported' then
        local why = 'left out: ' .. check.needs .. ' does not know this GPU'
        return { { what = check.name, verdict = '', detail = why } }, log
    end
    local is_loaded, loaded = pcall(function() return assert(loadfile(base .. '.lua'))() end)
    local rows = check.script and (is_loaded and loaded or {}) or spec_rows(log)
    if code ~= 0 then
        rows[#rows + 1] = { what = check.name .. ': ended with ' .. code, verdict = 'FAIL', detail = code == 124
            and ('it ran into its cap of %g s'):format(cap) or log:sub(-600) }
    end
    return rows, log
end

-- ---- the report ---------------------------------------------------------------------------------------------------
local function number(x) return x and (x >= 1e6 and ('%.4g'):format(x) or ('%.5g'):format(x)) or '' end

-- Returns the last cell of a row: its verdict, and of a number or a note the first line of what it says besides.
local function remark(row)
    local said = (row.verdict == '' or row.value) and row.detail and row.detail:match '^[^\n]*' or nil
    if row.verdict == '' or not said then return said or row.verdict end
    return row.verdict .. '; ' .. said
end

local function cells(check, row)
    return { check.name, row.what, number(row.value), row.unit or '', number(row.predicted), row.aim or '',
        remark(row) }
end

local counts = { pass = 0, FAIL = 0, reached = 0, missed = 0, ['simulated: not judged'] = 0, [''] = 0 }
local head = { 'check', 'what', 'value', 'unit', 'predicted', 'aim', 'verdict' }
local report = { simulated = is_simulated, small = options.small, date = os.date '!%Y-%m-%d', checks = {} }
local table_rows, logs = {}, {}

local function write(name, words)
    files.write(folder .. '/' .. name, words)
end

-- Runs a check and adds it to the report; says in a line how it went.
local function add(check)
    local start = os.time()
    local rows, log = run(check)
    local entry = { name = check.name, seconds = os.time() - start, rows = rows }
    report.checks[#report.checks + 1] = entry
    logs[#logs + 1] = ('== %s\n%s'):format(check.name, log)
    local failed = 0
    for _, row in ipairs(rows) do
        counts[row.verdict] = counts[row.verdict] + 1
        table_rows[#table_rows + 1] = cells(check, row)
        if row.verdict == 'FAIL' then
            failed = failed + 1
            print(('   %s: %s'):format(row.what, (row.detail or ''):gsub('\n', '\n      ')))
        end
    end
    print(('%-16s %3d rows, %d failed, %d s'):format(check.name, #rows, failed, entry.seconds))
    io.flush()
    write('report.json', json.encode(report) .. '\n')
    write('report.txt', text.text(head, table_rows) .. '\n')
    write('report.log', table.concat(logs, '\n'))
end

os.execute('mkdir -p ' .. quoted(folder))
local began = os.time()
for _, check in ipairs(checks) do
    if not options.only or options.only[check.name] then
        if os.time() - began < options.minutes * 60 then add(check)
        else print(('%-16s not started: --minutes %g'):format(check.name, options.minutes)) end
    end
end
os.remove(base)
os.remove(base .. '.lua')
os.remove(base .. '.log')
print(text.text(head, table_rows))
print(('%d passed, %d failed, %d aims reached, %d missed, %d not judged'):format(counts.pass, counts.FAIL,
    counts.reached, counts.missed, counts['simulated: not judged'] + counts['']))
os.exit(counts.FAIL == 0 and counts.pass > 0 and 0 or 1, true)
