--- Costs: the seconds of a plan, how they are measured and where they are stored.
--
-- `wane.profile(fn)` and `wane profile script.lua` measure the applications of a step's ops; `wane profile` measures
-- the rates of the machine. Both write the file of costs (plan/costs/file.lua), which every later process reads before
-- its first plan. An application that was not measured is priced by a roofline of the rates. Planning never runs a
-- kernel; the field `costs` of a plan says where its seconds come from.
-- @module wane.plan.costs
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local costs_file = require 'wane.plan.costs.file'
local op = require 'wane.tensor.op'
local program = require 'wane.program'
local link = require 'wane.plan.costs.ranks'
local progress = require 'wane.report.progress'
local ranks = require 'wane.program.ranks'
local scoped = require 'wane.scoped'
local sequence = require 'wane.program.sequence'
local system = require 'wane.system'
local table_ = require 'wane.report.table'
local target = require 'wane.plan.costs.target'
local tuning = require 'wane.plan.costs.tuning'
local utf8 = require 'wane.utf8'

local C, check, iterate, raise = binding.C, binding.check, errors.iterate, errors.raise
local DEVICES, word, links, read = costs_file.DEVICES, costs_file.word, costs_file.links, costs_file.read

local costs = { file = costs_file.name }

-- Returns the device of DEVICES that new tensors are on: the CPU where they are on meta.
local function measured_device()
    local name = binding.text(C.wn_device_name(C.wn_here().device))
    return name == 'cuda' and name or 'cpu'
end

-- ---- targets -----------------------------------------------------------------------------------------------
costs.target = target.of

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

--- Lists the machines that a plan can be made for.
-- @return printable list of { name =, f64 =, f32 =, bf16 = (FLOP/s), bytes = (bytes/s), launch = (seconds of each
-- application beside its roofline), source = text, memory = (bytes, of targets from data sheets) }; the CPU of this
-- machine first, then its GPU where there is one
-- @usage
-- for _, target in ipairs(wane.targets()) do print(target.name, target.f32, target.bytes) end
function costs.targets()
    costs.load()
    local found, list = read(costs.file()), {}
    for _, device in ipairs(DEVICES) do
        if C.wn_device_absent(op.device_ids()[device]) == nil then
            list[#list + 1] = target.here(op.device_ids()[device])
            list[#list].name, list[#list].source = device, found[word('machine', device)]
                and 'measured on this machine' or "assumed: run 'wane profile'"
        end
    end
    local known = require 'wane.plan.costs.targets'
    for _, name in ipairs(errors.names(known)) do
        local copy = { name = name }
        for k, v in iterate(known[name]) do copy[k] = v end
        list[#list + 1] = copy
    end
    return setmetatable(list, Targets)
end

-- ---- loading -----------------------------------------------------------------------------------------------
local loaded = false

-- Sets the rates of a device of this machine.
local function put_here(machine, device)
    machine.cuda = device == 'cuda'
    target.put('this machine', machine)
end

-- Gives the GPU that is here the rates that Wane ships for its kind, where there are some and its own were not
-- measured.
local function put_shipped(found)
    local name, gpu = target.shipped()
    if not name or found[word('machine', 'cuda')] then return end
    local rates = { launch = 0 }
    for key, value in iterate(require('wane.plan.costs.targets')[name]) do rates[key] = value end
    put_here(rates, 'cuda')
    target.put_classes(0, true, gpu)
end

local function take(found)
    for _, device in ipairs(DEVICES) do
        local machine = found[word('machine', device)]
        if machine then put_here(machine, device) end
    end
    if found.ranks and not ranks.has_link then link.put(found.ranks) end
    for key, seconds in iterate(found.seconds) do check(C.wn_cost(key, seconds)) end
end

--- Reads the file of costs, once in a process. A plan calls this before it asks for costs.
-- A file that cannot be read gives one warning on the error stream, and plans take assumed rates.
-- @within Internal
function costs.load()
    if loaded then return end
    loaded = true
    local found, why = read(costs.file())
    if why then
        local instead = 'plans take assumed rates, and kernels preset numbers'
        io.stderr:write(utf8.shown(('wane: the file of costs %s %s; %s\n'):format(costs.file(), why, instead), '\n'))
    end
    if found.other_gpu then
        io.stderr:write(utf8.shown(("wane: the file of costs %s has what was measured of another GPU (%s; this is %s), "
            .. "which plans leave out; 'wane profile' measures this one\n"):format(costs.file(), found.other_gpu,
            costs_file.gpu()), '\n'))
    end
    put_shipped(found)
    take(found)
end

--- Forgets the costs that this process read or measured; the file stays, and the next plan reads it again.
-- @within Internal
function costs.forget()
    check(C.wn_cost(nil, 0))
    loaded = false
end

-- ---- measuring ---------------------------------------------------------------------------------------------
local DISTURBED = '\ndisturbed: %s, so something else ran on this machine; the numbers are %s used: profile again when '
    .. 'it is quiet ({ anyway = true } uses such numbers)'

local Profile = {}
Profile.__index = Profile

--- Adds up the measured seconds of the script's own plan.
-- @param p Profile
-- @param what 'op', 'path', 'type' or 'phase'
-- @return printable { what =, rows = list of { name =, calls =, seconds =, share =, flops =, bytes =, gflops =, gbytes
-- =, bound = }, longest first, total = such a row }, as of a measurement with profile = true
-- @raise 'value' for another word
-- @within Internal
function Profile.by(p, what)
    return p.collector:by(what, 'profile:by')
end

function Profile.__tostring(p)
    local rows = {}
    for i, r in ipairs(p) do
        if i <= 20 then rows[i] = { ('%.1f'):format(r.seconds * 1e6), r.key } end
    end
    local head = '%d kinds of application measured, %d in the table; the slowest:\n'
    local kept = p.file and '\nkept in ' .. p.file or '\nnot kept: ' .. p.why
    local tables = ('%s\n%s\n'):format(p:by 'op', p:by 'path')
    local disturbed = p.disturbed and DISTURBED:format(p.disturbed, p.is_used and 'all the same' or 'not') or ''
    return tables .. head:format(#p, p.known) .. table_.text({ 'us', 'what' }, rows) .. disturbed .. kept
end

-- Applies measured seconds and rates to plans from now on, and adds them to the file `name` unless name is nil.
-- Returns the name and the number of applications that are known afterwards. machine: new rates of the measured device,
-- or nil. tuned: new numbers of kernels, or nil. link_rates: new ones of the link among ranks, or nil.
local function keep_alone(name, seconds, machine, tuned, link_rates)
    local device = measured_device()
    local found = read(name, false, device ~= 'cuda')
    if device == 'cuda' then found.gpu = costs_file.gpu() end
    found.tuning = tuned or found.tuning
    for key, s in iterate(seconds) do found.seconds[key] = s end
    if machine then
        local moved = {}
        for _, rate in ipairs(links) do moved[rate] = machine[rate] end
        found[word('machine', device)], found[word('link', device)] = machine, moved
    end
    found.ranks = link_rates or found.ranks
    -- refuses what no machine has
    take { seconds = seconds, [word('machine', device)] = machine, ranks = link_rates }
    if name then costs_file.write(name, found) end
    local known = 0
    for _ in iterate(found.seconds) do known = known + 1 end
    return name, known
end

local PATIENCE = 10 -- seconds that another process may take to add its own

-- Does so while no other process writes the file, so that both profiles are in it.
local function keep(name, ...)
    if not name then return keep_alone(name, ...) end
    system.make_folders(name)
    local release, why = system.lock(name, PATIENCE)
    if not release then raise(nil, 'io', 'wane.profile: %s', why) end
    return scoped.always(release, keep_alone, name, ...)
end

-- Returns the roofline of fn's step in seconds, or nil where the rates of its device were not measured.
local function roofline_of(request, policy)
    if not read(costs.file())[word('machine', measured_device())] then return nil end
    local p = program.open(program.under(request, policy)):plan()
    local seconds = C.wn_roofline(p.handle)
    p:close()
    return seconds
end

--- Measures each application of an op that fn runs, under several plans (see plan/costs/profile.lua), and uses the
-- seconds in every later plan. A step of all ranks of a job is measured by all of them, each under its own plan.
-- @param fn function() that returns the loss (its backward is run and leaves nothing), or steps itself (it trains)
-- @param opts { steps =, policy =, keep = true, anyway = false }. steps: turns of three steps a plan; without it 5
-- turns, and more until a second is over where fn leaves nothing behind. policy: the only plan that is measured.
-- keep: write the file of costs; with false the seconds hold in this process alone. anyway: use and keep seconds that
-- were measured beside other work.
-- @return printable list of { key =, seconds = }, slowest first. Fields: `disturbed` (how other work showed, or nil),
-- `is_used` (whether plans use the seconds), `file` (its name where it was written, or nil), `known` (number of
-- applications known afterwards), and `unrest`, `stretch`, `sum`, `whole` of profile.fit. `list:by 'op'`, 'path',
-- 'type' and 'phase' are printable tables of calls, seconds, shares, GFLOP/s or GB/s of the script's own plan.
-- @raise 'value' for an argument that is not a function and options of a wrong type; 'io' where the file cannot be
-- written
-- @usage
-- local made = wane.profile(function() return model(x):sum() end, { steps = 1, keep = false })
-- print(made:by('op').total.share) --> 1
function costs.profile(fn, opts)
    opts = errors.check_options(opts, { 'steps', 'policy', 'keep', 'anyway' }, 'wane.profile', { 'keep', 'anyway' })
    sequence.need_function(fn, 'wane.profile')
    costs.load()
    local steps = opts.steps and errors.count(opts.steps, 'wane.profile: steps', 1, errors.MOST_STEPS)
    local file, none = nil, 'keep = false'
    if opts.keep ~= false then file, none = costs_file.ready() end
    local request, profile = sequence.request(fn, 'wane.profile'), require 'wane.plan.costs.profile'
    local mode = request and request.mode or 'several'
    local seconds, list, why = profile.take(fn, mode, steps, opts.policy, function()
        local again = sequence.request(fn, 'wane.profile')
        return again and roofline_of(again, opts.policy)
    end)
    setmetatable(list, Profile)
    for key, s in iterate(seconds) do list[#list + 1] = { key = key, seconds = s } end
    table.sort(list, function(a, b)
        if a.seconds ~= b.seconds then return a.seconds > b.seconds end
        return a.key < b.key
    end)
    list.disturbed, list.is_used, list.known = why, not why or opts.anyway == true, 0
    list.why = opts.keep ~= false and not list.is_used and 'disturbed' or none
    if list.is_used then list.file, list.known = keep(file, seconds) end
    return list
end

-- Measures the bytes/s to host memory and to disk and back, past any cache, and puts them into a table of rates. A GPU
-- has no way to the disk, and plans for it none either: the rate of its host memory stands there.
local function probe_links(machine, size)
    local out, into, device = binding.new('double[1]'), binding.new('double[1]'), measured_device()
    for place, name in ipairs { 'host', 'disk' } do
        if device == 'cpu' or name == 'host' then
            check(C.wn_probe(op.device_ids()[device], place - 1, size, out, into))
        end
        machine['to_' .. name], machine['from_' .. name] = size / out[0], size / into[0]
    end
end

--- Measures the links to host memory and disk, for the plans of this process; writes no file.
-- @param size bytes moved in each direction, default 256 MiB
-- @return rates of this machine; to_host, to_disk, from_host and from_disk, in bytes/s, are measured anew
-- @within Internal
function costs.links(size)
    costs.load()
    local machine, device = {}, measured_device()
    for _, known in ipairs(costs.targets()) do
        for k, v in iterate(known.name == device and known or {}) do machine[k] = v end
    end
    probe_links(machine, size or 256 * 2 ^ 20)
    put_here(machine, device)
    return machine
end

--- Measures the link among the ranks of this job, for plans of all of them, and has rank 0 keep its rates in the file
-- of costs. Every rank calls it.
-- @return rates, as of plan/costs/ranks.lua; the name of the file, nil and why there is none
-- @within Internal
function costs.ranks()
    costs.load()
    local file, why = costs_file.ready()
    local rates = link.measure()
    keep(ranks.rank == 0 and file or nil, {}, nil, nil, rates)
    return rates, file, why
end

-- Returns the side of the matrices whose product is timed. A GPU takes a few microseconds for 1024.
local function side_of(device)
    local is_real = device == 'cuda' and not binding.text(C.wn_cuda()):find '^simulated'
    return is_real and 4096 or 1024
end

local PARTS = 6 -- of costs.machine, as its progress line counts them

--- Measures the rates of the current device and keeps them in the file of costs. On the CPU it first measures the
-- numbers of its kernels (plan/costs/tuning.lua), which the rates depend on.
--
-- FLOP/s come from products of square matrices in f32 and bf16 (1024 rows, on a GPU 4096), and in f64 (half of that);
-- bytes/s from the sum of two f32 values of 128 MiB each; launch from the sum of two values of one element; links from
-- 256 MiB moved to host memory and disk and back.
-- @param sizes { side = of the matrices, elements = of a value that is added, bytes = that are moved }, for specs
-- @return { f64 =, f32 =, bf16 = (FLOP/s), bytes = (bytes/s), launch = (seconds), to_host =, to_disk =, from_host =,
-- from_disk = (bytes/s) }, the name of the file; nil and why there is none
-- @raise 'io' where the file cannot be written
-- @within Internal
function costs.machine(sizes)
    local create, eval = require 'wane.tensor.create', require('wane.program.grad').eval
    local profile = require 'wane.plan.costs.profile'
    costs.load()
    local machine, device = {}, measured_device()
    local file, why = costs_file.ready()
    local bar = progress.new(PARTS)
    local function part(words, fn, ...)
        bar:at(words)
        local value = fn(...)
        bar:done(words)
        return value
    end
    local tuned = device == 'cpu' and part('numbers of the kernels', tuning.measure, read(file, true).tuning,
        sizes and sizes.bytes) or nil
    sizes = sizes or { side = side_of(device), elements = 2 ^ 25, bytes = 256 * 2 ^ 20 }
    local at = device == 'cpu' and '^' or '^' .. device .. '[^:]*: ' -- the beginning of the key of an application
    for _, dtype in ipairs { 'f64', 'f32', 'bf16' } do
        local size = dtype == 'f64' and sizes.side / 2 or sizes.side
        local a, b = eval(create.randn(size, size):to(dtype)), eval(create.randn(size, size):to(dtype))
        machine[dtype] = 2 * size ^ 3 / part('products in ' .. dtype, profile.best, function() eval(a:matmul(b)) end,
            at .. 'matmul')
    end
    local x, y = eval(create.ones(sizes.elements)), eval(create.ones(sizes.elements))
    machine.bytes = 3 * 4 * sizes.elements / part('bytes of memory', profile.best, function() eval(x + y) end,
        at .. 'add')
    local u, v = eval(create.ones(1, 1)), eval(create.ones(1, 1))
    machine.launch = profile.best(function() eval(u + v) end, at .. 'add')
    part('bytes to host memory and disk', probe_links, machine, sizes.bytes)
    bar:finish()
    keep(file, {}, machine, tuned)
    return machine, file, why
end

return costs
