-- Measures what training on several ranks costs, under every MPI that is here: an agreement, the price of one order of
-- sums over MPI_Allreduce, how much of an exchange the backward hides, and what many small gradients take by how many
-- start together. Wane and MPI_Allreduce take turns, each in a job of its own.
--
--   luajit spec/bench/reach.lua [--turns N]
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local options = common.options({ turns = 5 }, '--turns')
local mpi = require 'spec.support.mpi'

local SIZES = { 64 * 1024, 512 * 1024, 4 * 1024 ^ 2, 16 * 1024 ^ 2, 64 * 1024 ^ 2 }

-- Runs a command and returns the numbers that it prints.
local function numbers(command)
    local pipe = assert(io.popen(command))
    local text, list = pipe:read '*a', {}
    pipe:close()
    for number in text:gmatch '%S+' do list[#list + 1] = tonumber(number) end
    return list
end

-- Does so on n ranks.
local function run(kind, n, command)
    return numbers(('WANE_THREADS=1 WANE_COSTS=off mpirun.%s %s -n %d %s'):format(kind, mpi.KINDS[kind], n, command))
end

local function rival(kind)
    local path = os.tmpname()
    assert(os.execute(('mpicc.%s -O2 -o %s %s/spec/bench/allreduce.c'):format(kind, path, common.root)) == 0)
    return path
end

local rows, costs, hidden, grouped = {}, {}, {}, {}

-- Adds a row of the price of one order of sums of so many bytes. own, other: functions that return seconds.
local function price(kind, n, size, own, other)
    local ours, theirs = {}, {}
    for turn = 1, options.turns do ours[turn], theirs[turn] = own(), other() end
    local a, b = common.median(ours), common.median(theirs)
    rows[#rows + 1] = { kind, n, ('%.0f KiB'):format(size / 1024), ('%.3f ms'):format(1e3 * a),
        ('%.3f ms'):format(1e3 * b), ('%.2f'):format(a / b) }
end

-- Adds rows of a step on 2 ranks, by how much is under way at once. run: function(row) that returns its numbers.
local function steps(what, run_row, batch)
    for ahead = 0, 8, 4 do
        local s = run_row(('step %d 10 %d'):format(ahead, batch))
        hidden[#hidden + 1] = { what, ahead }
        for _, i in ipairs { 1, 4, 2, 3, 5 } do table.insert(hidden[#hidden], ('%.1f ms'):format(1e3 * s[i])) end
    end
end

-- Adds rows of a step with many small gradients on 2 ranks. run_row: as of steps.
local function groups(what, run_row)
    local s = run_row(('small %d'):format(options.turns))
    for k = 0, #s / 5 - 1 do
        local group = s[5 * k + 1]
        grouped[#grouped + 1] = { what, group < 0 and 'chosen' or ('%.0f KiB'):format(group / 1024) }
        for i = 2, 5 do table.insert(grouped[#grouped], ('%.2f ms'):format(1e3 * s[5 * k + i])) end
    end
end

for _, kind in ipairs { "mpich", "openmpi" } do
    if not mpi.is_here(kind) then
        print(('%s: left out, no mpirun.%s or no library of make mpi'):format(kind, kind))
    else
        local allreduce, script = rival(kind), ('luajit %s/spec/bench/reach_rows.lua '):format(common.root)
        for _, n in ipairs { 2, 4 } do
            costs[#costs + 1] = { kind, n, 'a barrier', ('%.0f us'):format(1e6 * run(kind, n, script .. 'barrier')[1]) }
            for _, size in ipairs(SIZES) do
                local times = size > 4e6 and 5 or 15
                price(kind, n, size,
                    function() return run(kind, n, ('%s exchange %d %d'):format(script, size, times))[1] end,
                    function() return run(kind, n, ('%s %d %d'):format(allreduce, size, times))[1] end)
            end
        end
        steps(kind .. ', shared memory', function(row) return run(kind, 2, script .. row) end, 256)
        groups(kind .. ', shared memory', function(row) return run(kind, 2, script .. row) end)
        os.remove(allreduce)
    end
end
local nodes = ('sh %s/spec/support/nodes.sh '):format(common.root)
local pipe = io.popen(nodes .. 'missing')
local missing = pipe:read '*l'
pipe:close()
if missing then
    print('a link of 400 Mbit/s: left out, ' .. missing)
else
    assert(os.execute(nodes .. 'start 400') == 0)
    local function on_nodes(each, command) return numbers(('%s mpirun %d %s'):format(nodes, each, command)) end
    local allreduce, script = rival 'openmpi', ('luajit %s/spec/bench/reach_rows.lua '):format(common.root)
    local jobs = { { 1, '2 nodes of 1', '' }, { 2, '2 nodes of 2', '' }, { 2, '2 nodes of 2, teams', '1' } }
    for _, job in ipairs(jobs) do
        for _, size in ipairs { 64 * 1024, 8 * 1024 ^ 2 } do
            price('openmpi, 400 Mbit/s', job[2], size,
                function() return on_nodes(job[1], ('%s exchange %d 5 %s'):format(script, size, job[3]))[1] end,
                function() return on_nodes(job[1], ('%s %d 5'):format(allreduce, size))[1] end)
        end
    end
    os.remove(allreduce)
    steps('openmpi, 400 Mbit/s', function(row) return on_nodes(1, script .. row) end, 2048)
    groups('openmpi, 400 Mbit/s', function(row) return on_nodes(1, script .. row) end)
    os.execute(nodes .. 'stop')
end
common.table({ 'link', 'ahead', 'a step, predicted', 'measured', 'its exchanges', 'waited for, predicted', 'measured' },
    hidden)
common.table({ 'link', 'group', 'its exchanges', 'waited for, predicted', 'a step', 'waited for' }, grouped)
common.table({ 'MPI', 'ranks', 'bytes', 'sum in order', 'MPI_Allreduce', 'ratio' }, rows)
common.table({ 'MPI', 'ranks', 'what', 'seconds' }, costs)
