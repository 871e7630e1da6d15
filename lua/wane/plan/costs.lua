--- Seconds: what a plan takes them from, and how they get there.
--
-- A step's ops are measured with `wane.profile(fn)` (or `wane profile script.lua`), the machine's rates with
-- `wane profile`; both go to a file of this machine, and every later plan reads it. What was not measured is derived
-- from rates (a roofline). Planning never runs a kernel; `plan.costs` says what its seconds are made of.
-- The file: WANE_COSTS, or costs-N.txt of N threads under ~/.cache/wane; WANE_COSTS=off keeps away from any.
-- @module wane.plan.costs
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local profile = require 'wane.plan.profile'
local program = require 'wane.program'
local system = require 'wane.system'
local table_ = require 'wane.report.table'

local C, check, raise = binding.C, binding.check, errors.raise
local variable = os.getenv
local tonumber = tonumber

local costs = {}

-- ---- the file ----------------------------------------------------------------------------------------------
local function home()
    local set = variable 'XDG_CACHE_HOME'
    if set and set ~= '' then return set end
    set = variable 'HOME'
    return set and set ~= '' and set .. '/.cache' or nil
end

--- Name of the file of costs, or nil when there is none to be.
function costs.file()
    local given = variable 'WANE_COSTS'
    if given == 'off' then return nil end
    if given and given ~= '' then return given end
    return home() and ('%s/wane/costs-%d.txt'):format(home(), C.wn_threads()) or nil
end

local HEAD = '# Seconds measured by Wane on this machine; written by wane.profile. machine, link: rates a second.'
local rates = { 'f64', 'f32', 'bf16', 'bytes', 'launch' }
local links = { 'to_host', 'to_disk', 'from_host', 'from_disk' }
local assumed = { to_host = 8e9, to_disk = 1.5e9, from_host = 8e9, from_disk = 1.5e9 }

local NO_SUCH_FILE = 2 -- errno: nothing was measured here so far
local MOST_SHORT = 10000 -- applications of a file whose lines have fewer than 40 letters; more are none of wane.profile

-- Takes the words of a line as rates of these names. Returns false for a number that is no rate; a line of other than
-- as many words says nothing.
local function take_rates(found, field, key, names)
    local list, k = {}, 0
    for word in key:gmatch('%S+') do
        k = k + 1
        local rate, least = tonumber(word), names[k] == 'launch' and 0 or 5e-324
        if not (rate and rate >= least and rate < math.huge) then return false end
        if names[k] then list[names[k]] = rate end
    end
    if k == #names then found[field] = list end
    return true
end

-- Takes a line. Returns false for one with a number that cannot have been measured.
local function take_line(found, number, key)
    if number == 'machine' then return take_rates(found, 'machine', key, rates) end
    if number == 'link' then return take_rates(found, 'link', key, links) end
    local seconds = tonumber(number)
    if seconds and not (seconds >= 0 and seconds < 1e18) then return false end
    found.seconds[key] = seconds
    return true
end

-- { machine = {rates} or nil, seconds = { key = number } } of a file; empty when there is none. Also why it cannot be
-- read, if so.
local function read(name)
    local found = { seconds = {} }
    if not name then return found end
    local file, why, errno = system.open(name, 'r')
    if not file then return found, errno ~= NO_SUCH_FILE and why or nil end
    local size, count, lines = file:seek 'end', 0, 0
    local is_ours = size == 0
    file:seek 'set'
    for line in file:lines() do
        local number, key = line:match('^(%S+)\t(.+)$')
        is_ours = is_ours or number == 'machine' or number == 'link' or tonumber(number) ~= nil or line == HEAD
        lines = lines + 1
        if number and not take_line(found, number, key) then
            file:close()
            return { seconds = {} }, ('its line %d has a number that no machine measures'):format(lines)
        end
        if tonumber(number) then
            count = count + 1
            if count > math.max(MOST_SHORT, size / 40) then
                file:close()
                return { seconds = {} }, ('it has more than %d lines of few letters'):format(count - 1)
            end
        end
    end
    file:close()
    for _, link in ipairs(links) do
        if found.machine and found.link then found.machine[link] = found.link[link] end
    end
    return found, not is_ours and "no line of it is one that wane.profile writes" or nil
end

local function write(name, found)
    local keys, lines = {}, { HEAD }
    for key in pairs(found.seconds) do keys[#keys + 1] = key end
    table.sort(keys)
    if found.machine then
        local words = {}
        for i, rate in ipairs(rates) do words[i] = ('%.6g'):format(found.machine[rate]) end
        lines[2] = 'machine\t' .. table.concat(words, ' ')
    end
    if found.link then
        local words = {}
        for i, link in ipairs(links) do words[i] = ('%.6g'):format(found.link[link]) end
        lines[#lines + 1] = 'link\t' .. table.concat(words, ' ')
    end
    for _, key in ipairs(keys) do lines[#lines + 1] = ('%.6g\t%s'):format(found.seconds[key], key) end
    os.execute(("mkdir -p '%s'"):format((name:match('^(.*)/[^/]*$') or '.'):gsub("'", "'\\''")))
    local file, why = system.open(name .. '.new', 'w')
    if not file then raise(nil, 'io', 'wane.profile: %s', why) end
    file:write(table.concat(lines, '\n'), '\n')
    file:close()
    local ok, problem = os.rename(name .. '.new', name)
    if not ok then raise(nil, 'io', 'wane.profile: %s', problem) end
end

-- ---- targets -----------------------------------------------------------------------------------------------
local function put_target(name, t)
    local p = binding.new('struct wn_profile')
    p.cuda = t.cuda and 1 or 0
    for _, rate in ipairs(rates) do p[rate] = t[rate] end
    for i, place in ipairs { 'host', 'disk' } do
        p.out[i - 1] = t['to_' .. place] or assumed['to_' .. place]
        p['in'][i - 1] = t['from_' .. place] or assumed['from_' .. place]
    end
    return binding.id(C.wn_target_set(name, p))
end

local ids = { cpu = 0 }

--- The library's number of a target by name; nil is this machine.
-- Errors: 'value' with near names.
function costs.target(name, what)
    if name == nil then return 0 end
    if ids[name] then return ids[name] end
    local known = require 'wane.plan.targets'
    if type(name) ~= 'string' or rawget(known, name) == nil then
        local names = { 'cpu' }
        for k in pairs(known) do names[#names + 1] = k end
        table.sort(names)
        raise(nil, 'value', "%s: there is no target '%s'; %s", what, tostring(name), errors.near(name, names))
    end
    ids[name] = put_target(name, known[name])
    return ids[name]
end

local Targets = {}
Targets.__index = Targets
function Targets.__tostring(list)
    local rows = {}
    for i, t in ipairs(list) do
        rows[i] = { t.name, ('%.4g'):format(t.f32 / 1e12), ('%.4g'):format(t.bf16 / 1e12),
            ('%.4g'):format(t.bytes / 1e9), t.memory and ('%.4g'):format(t.memory / 1e9) or '', t.source }
    end
    return table_.text({ 'target', 'f32, TFLOP/s', 'bf16, TFLOP/s', 'GB/s', 'memory, GB', 'from' }, rows)
end

--- The machines a plan can be made for: a printable list of { name, f64, f32, bf16, bytes (a second), launch, source }.
function costs.targets()
    costs.load()
    local found = read(costs.file()).machine
    local list = { { name = 'cpu', f64 = 25e9, f32 = 50e9, bf16 = 50e9, bytes = 20e9, launch = 1e-6,
        source = "assumed: run 'wane profile'" } }
    if found then
        for k, v in pairs(found) do list[1][k] = v end
        list[1].source = 'measured on this machine'
    end
    local known, names = require 'wane.plan.targets', {}
    for name in pairs(known) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
        local copy = { name = name }
        for k, v in pairs(known[name]) do copy[k] = v end
        list[#list + 1] = copy
    end
    return setmetatable(list, Targets)
end

-- ---- loading -----------------------------------------------------------------------------------------------
local loaded = false

local function take(found)
    if found.machine then put_target('this machine', found.machine) end
    for key, seconds in pairs(found.seconds) do check(C.wn_cost(key, seconds)) end
end

--- Reads the file of costs, once a process. Called before the first plan.
function costs.load()
    if loaded then return end
    loaded = true
    local found, why = read(costs.file())
    if why then
        io.stderr:write(('wane: the file of costs %s cannot be read (%s); plans take assumed rates\n'):format(
            costs.file(), why))
    end
    take(found)
end

--- Forgets what was read and measured in this process; the file stays. The next plan reads it again.
function costs.forget()
    check(C.wn_cost(nil, 0))
    loaded = false
end

-- ---- measuring ---------------------------------------------------------------------------------------------
local DISTURBED = '\ndisturbed: %s, so something else ran on this machine; the numbers are %s used: profile again when '
    .. 'it is quiet ({ anyway = true } uses such numbers)'

local Profile = {}
Profile.__index = Profile
function Profile.__tostring(p)
    local rows = {}
    for i, r in ipairs(p) do
        if i <= 20 then rows[i] = { ('%.1f'):format(r.seconds * 1e6), r.key } end
    end
    local head = '%d kinds of application measured, %d in the table; the slowest:\n'
    local kept = p.file and '\nkept in ' .. p.file or '\nnot kept: ' .. (p.why or 'WANE_COSTS is off')
    return head:format(#p, p.known) .. table_.text({ 'us', 'what' }, rows) .. (p.disturbed and DISTURBED:format(
        p.disturbed, p.is_used and 'all the same' or 'not') or '') .. kept
end

-- Uses what was measured from now on, and writes it to the file of that name, if there is one.
local function keep(name, seconds, machine)
    local found = read(name)
    for key, s in pairs(seconds) do found.seconds[key] = s end
    found.machine = machine or found.machine
    if machine then
        found.link = {}
        for _, link in ipairs(links) do found.link[link] = machine[link] end
    end
    if name then write(name, found) end
    take { seconds = seconds, machine = machine }
    local known = 0
    for _ in pairs(found.seconds) do known = known + 1 end
    return name, known
end

-- Seconds that this machine's rates allow for the applications of fn's step; nil where its rates were not measured.
local function roofline_of(request, policy)
    if not read(costs.file()).machine then return nil end
    local copy = {}
    for key, value in pairs(request) do copy[key] = value end
    if policy ~= nil then copy.policy = policy end
    local p = program.open(copy):plan()
    local seconds = C.wn_roofline(p.handle)
    p:close()
    return seconds
end

--- Measures each application of what fn runs under several plans (see plan/profile.lua), keeps their seconds in the
-- file of costs, and uses them from now on.
-- @param fn function() that returns the loss (its backward is run and leaves nothing), or steps itself (it trains)
-- @param opts { steps =, policy =, keep = true, anyway = false }: steps, turns of three steps a plan (default: 5, and
-- where fn leaves nothing behind more of them until a second is over); policy, the only plan measured; keep = false
-- writes no file, and this process alone uses them; anyway = true uses and keeps what was measured beside other work
-- @return a printable list of { key, seconds }, slowest first; `disturbed`: how other work showed, or nil; `is_used`:
-- whether plans follow it; `file`: where it is kept, or nil; `unrest`, `stretch`, `sum`, `whole`: see profile.fit
function costs.profile(fn, opts)
    opts = errors.check_options(opts, { 'steps', 'policy', 'keep', 'anyway' }, 'wane.profile')
    for _, name in ipairs { 'keep', 'anyway' } do
        if opts[name] ~= nil and type(opts[name]) ~= 'boolean' then
            raise(nil, 'value', 'wane.profile: %s must be true or false, got %s', name, errors.describe(opts[name]))
        end
    end
    if type(fn) ~= 'function' then
        raise(nil, 'value', 'wane.profile: expected a function, got %s', errors.describe(fn))
    end
    costs.load()
    local steps = opts.steps and errors.count(opts.steps, 'wane.profile: steps', 1, errors.MOST_STEPS)
    local request = require('wane.program.rehearse').one_of(fn, 'wane.profile')
    local seconds, list, why = profile.take(fn, request and request.mode or 'several', steps, opts.policy, function()
        local again = require('wane.program.rehearse').one_of(fn, 'wane.profile')
        return again and roofline_of(again, opts.policy)
    end)
    setmetatable(list, Profile)
    for key, s in pairs(seconds) do list[#list + 1] = { key = key, seconds = s } end
    table.sort(list, function(a, b)
        if a.seconds ~= b.seconds then return a.seconds > b.seconds end
        return a.key < b.key
    end)
    list.disturbed, list.is_used, list.known = why, not why or opts.anyway == true, 0
    list.why = opts.keep == false and 'keep = false' or not list.is_used and 'disturbed' or nil
    if list.is_used then list.file, list.known = keep(not list.why and costs.file() or nil, seconds) end
    return list
end

-- Bytes a second out to host memory or disk and back, past any cache, into a table of rates.
local function probe_links(machine, size)
    local out, into = binding.new('double[1]'), binding.new('double[1]')
    for place, name in ipairs { 'host', 'disk' } do
        check(C.wn_probe(0, place - 1, size, out, into))
        machine['to_' .. name], machine['from_' .. name] = size / out[0], size / into[0]
    end
end

--- Measures what moving to host memory and disk and back takes, for the plans of this process; no file is written.
-- @param size bytes moved, default 256 MiB
-- @return { to_host, to_disk, from_host, from_disk } in bytes a second
function costs.links(size)
    costs.load()
    local machine = {}
    for k, v in pairs(costs.targets()[1]) do machine[k] = v end
    probe_links(machine, size or 256 * 2 ^ 20)
    put_target('this machine', machine)
    return machine
end

--- Measures this machine's rates: products of 1024 x 1024 x 1024 in f32 and bf16 and 512 x 512 x 512 in f64, a sum of
-- two values of 128 MiB, an add of 1 element, moves of 256 MiB to host memory and disk and back. Keeps them in the file
-- of costs.
-- @return { f64, f32, bf16 (FLOP/s), bytes (a second), launch (seconds), to_host, to_disk, from_host, from_disk (bytes
-- a second) }
function costs.machine()
    local create, eval = require 'wane.tensor.create', require('wane.program.grad').eval
    costs.load()
    local n, machine = 1024, {}
    for _, dtype in ipairs { 'f64', 'f32', 'bf16' } do
        local size = dtype == 'f64' and 512 or n
        local a, b = eval(create.randn(size, size):to(dtype)), eval(create.randn(size, size):to(dtype))
        machine[dtype] = 2 * size ^ 3 / profile.best(function() eval(a:matmul(b)) end, '^matmul')
    end
    local x, y = eval(create.ones(2 ^ 25)), eval(create.ones(2 ^ 25))
    machine.bytes = 3 * 4 * 2 ^ 25 / profile.best(function() eval(x + y) end, '^add')
    local u, v = eval(create.ones(1, 1)), eval(create.ones(1, 1))
    machine.launch = profile.best(function() eval(u + v) end, '^add')
    probe_links(machine, 256 * 2 ^ 20)
    keep(costs.file(), {}, machine)
    return machine
end

return costs
