-- Ranks (wane.dist): what launchers say, one order of sums, and each way in which a rank can fail, under every kind of
-- MPI that is here. A scenario is a script that all ranks run; what each of them prints is checked, and how the job
-- ends.
local helper = require 'spec.helper'
local launcher = require 'wane.dist.launcher'
local mpi = require 'spec.support.mpi'

local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

-- The seconds of the exchanges of a step of one rank of 16, planned by the rates in a file of costs or its own.
local RATES = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
wane.dist.ghost { ranks = 16, link = arg[1] and { { 16, tonumber(arg[1]) } } }
local model, x = wane.nn.Linear(64, 64, { bias = false }), wane.eval(wane.randn(8, 64))
local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
local plan = wane.plan(function() opt:step(function() return model(x):mean() end, { micro = 16 }) end)
io.write(('%%.4g %%d\n'):format(plan.wire_seconds, plan.wire.sent))
]]

describe('the rates of a link', function()
    it('are those of the file of costs, unless a ghost says others', function()
        local costs, file = os.tmpname(), assert(io.open(SCRIPT, 'w'))
        file:write(RATES:format(helper.root, helper.root))
        file:close()
        file = assert(io.open(costs, 'w'))
        file:write(('processor\t%s\nranks\t0 0 1e6 1e3\n'):format(require('wane.plan.costs.file').processor()))
        file:close()
        for rate, said in pairs { [1e6] = '', [1e5] = ' 1e5' } do
            local text = helper.shell(('WANE_COSTS=%s luajit %s%s'):format(costs, SCRIPT, said))
            local seconds, sent = text:match '^(%S+) (%d+)\n$'
            local moved = 2 * tonumber(sent) -- rank 0 owns the one stripe: it gets as much as it sends then
            assert.is_true(math.abs(tonumber(seconds) * rate / moved - 1) < 0.01, text)
        end
        os.remove(costs)
    end)
end)

-- ---- launchers ------------------------------------------------------------------------------------------------------
describe('a launcher', function()
    -- Variables of one environment a row, and the job that they tell of: 'kind rank/size', 'none', or what is said.
    local ROWS = {
        { {}, 'none' },
        { { OMPI_COMM_WORLD_RANK = 2, OMPI_COMM_WORLD_SIZE = 4, PMIX_RANK = 2 }, 'openmpi 2/4' },
        { { PMI_RANK = 0, PMI_SIZE = 4 }, 'mpich 0/4' },
        { { PMIX_RANK = 1, SLURM_NTASKS = 3, SLURM_PROCID = 1, SLURM_STEP_ID = 0 }, 'openmpi 1/3' },
        { { PMI_RANK = 1, PMI_SIZE = 3, SLURM_NTASKS = 3, SLURM_STEP_ID = 0 }, 'mpich 1/3' },
        { { SLURM_NTASKS = 3, SLURM_PROCID = 1, SLURM_STEP_ID = 0 }, 'srun --mpi=pmix' },
        { { SLURM_NTASKS = 1, SLURM_PROCID = 0, SLURM_STEP_ID = 0 }, 'none' },
        { { SLURM_NTASKS = 8, SLURM_JOB_ID = 5 }, 'none' }, -- the batch script itself
        { { WORLD_SIZE = 2, RANK = 0, TORCHELASTIC_RUN_ID = 'none' }, 'mpirun -n 2' },
        { { WORLD_SIZE = 2, RANK = 0 }, 'none' },
        { { PMIX_RANK = 0 }, 'PMIX_RANK=0 without SLURM_NTASKS' },
        { { PMI_RANK = 4, PMI_SIZE = 4 }, 'PMI_RANK=4 beside PMI_SIZE=4' },
        { { PMI_RANK = 'x', PMI_SIZE = 2 }, 'PMI_RANK=x, which is no whole number from 0' },
    }

    it('tells of the job by the kind of MPI that can join it', function()
        for _, row in ipairs(ROWS) do
            local function get(name) return row[1][name] and tostring(row[1][name]) end
            local fine, found = pcall(launcher.job, get, function(fmt, ...) error(fmt:format(...), 0) end)
            local said = 'none'
            if not fine then said = found
            elseif found then said = ('%s %d/%d'):format(found.kind, found.rank, found.size) end
            assert(said:find(row[2], 1, true), ('%s is said, not %s'):format(said, row[2]))
        end
    end)
end)

-- ---- without a launcher -----------------------------------------------------------------------------------------
describe('one process', function()
    -- Runs a script in a process that no launcher started, behind the usual head or another. Returns what it prints.
    local function alone(body, environment, head)
        local file = assert(io.open(SCRIPT, 'w'))
        head = head and "package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path local wane = require 'wane' "
            or mpi.HEAD
        file:write(head:format(helper.root, helper.root, 5), body)
        file:close()
        return (helper.shell((environment or '') .. ' luajit ' .. SCRIPT))
    end

    it('is rank 0 of 1', function()
        assert.equal('0> 0 1 true (1, 2) f32\n', alone [[
            local t = dist.gather(dist.sum(wane.ones(2)))
            dist.barrier()
            say('%d %d %s %s', dist.rank, dist.size, tostring(dist.is_first), tostring(t):match('%(.-%) f32'))]])
    end)

    it('is warned of, once and on the first rank, where a launcher started several and none of them joined', function()
        local function told(environment)
            return select(2, alone("io.stdout:write(wane.ones(1):sum():item(), '\\n') wane.ones(2):sum():item()",
                environment, ''):gsub('started 2 ranks, and each of them computes by itself', ''))
        end
        assert.equal(1, told 'PMI_RANK=0 PMI_SIZE=2')
        assert.equal(0, told 'PMI_RANK=1 PMI_SIZE=2')
        assert.equal(0, told 'PMI_RANK=0 PMI_SIZE=1')
        assert.equal(0, told 'WANE_SWEEP_POINT=1:1:x:1 PMI_RANK=0 PMI_SIZE=2')
    end)

    it('refuses what comes too late, is no job, or no setting', function()
        local words = alone [[
            for _, opts in ipairs { 5, { timeot = 5 }, { timeout = 0 }, { timeout = 'x' }, { timeout = 0 / 0 } } do
                try(dist.start, opts)
            end
            try(dist.gather, 3)
            try(dist.ghost, { ranks = 2, rank = 2 })
            try(dist.ghost, {})
            wane.ones(1):item()
            try(dist.start)
            try(dist.ghost, { ranks = 2 })]]
        local said = {}
        for line in words:gmatch '0> ([^\n]*)' do said[#said + 1] = line end
        for k, expected in ipairs { 'value: ', "value: .*timeot.*'timeout'", 'timeout must be seconds, above 0, got 0',
            "got 'x'", 'got .*nan', 'gather: expected a tensor, got 3', 'rank', 'ranks',
            'values have been computed already', 'values have been computed already' } do
            assert.matches(expected, said[k])
            assert.matches('^value: ', said[k])
        end
        assert.equal(10, #said)
    end)

    it('of a launcher without a library is told which one is missing', function()
        local words = alone('', 'WANE_MPI_LIB=/nowhere OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2')
        assert(words:find('mpirun of Open MPI started this process as rank 0 of 2', 1, true), words)
        assert(words:find('WANE_MPI_LIB=/nowhere: there is no file', 1, true), words)
        assert(words:find('make mpi builds it', 1, true), words)
        words = alone('try(dist.start)', 'WANE_SWEEP_POINT=1:1:x:1 PMI_RANK=0 PMI_SIZE=2')
        assert.equal('0> fine\n', words) -- the process of a point is part of no job
    end)

    it('stands for one rank of many as a ghost', function()
        assert.equal('0> 700 1024 1024\n700> same call\n', (alone [[
            local rank = dist.rank
            dist.ghost { ranks = 1024, rank = 700 }
            io.stdout:write(('%d> %d %d %d\n'):format(rank, dist.rank, dist.size, dist.sum(wane.ones(1)):item()))
            assert(not pcall(dist.ghost, { ranks = 2 }))
            dist.barrier()
            say 'same call']]))
    end)
end)

-- ---- ranks ---------------------------------------------------------------------------------------------------------
mpi.describe(describe, pending, function(kind, options)
    it('gather and sum in their order, whatever their number', function()
        for _, n in ipairs(helper.is_long and { 1, 2, 3, 4, 7, 16 } or { 1, 2, 5 }) do
            local lines, code, _, text = mpi.run(kind, n, [[
                local seed = dist.rank * 7919 + 1
                local function draw()
                    seed = (seed * 1103515245 + 12345) % 2147483648
                    return (seed / 2147483648 - 0.5) * 10 ^ (seed % 7)
                end
                for _, dtype in ipairs { 'f32', 'bf16', 'f64', 'i32' } do
                    local list = {}
                    for k = 1, 1000 do list[k] = dtype == 'i32' and math.floor(draw()) or draw() end
                    local t = wane.tensor(list):to(dtype)
                    local all, total = dist.gather(t), dist.sum(t)
                    local expected = all[1]
                    for r = 2, dist.size do expected = expected + all[r] end
                    assert(wane.eval(all[dist.rank + 1]:eq(t):to 'i32':sum()):item() == 1000)
                    assert(wane.eval(total:eq(expected):to 'i32':sum()):item() == 1000)
                    say('%s %.17g', dtype, total:to 'f64':sum():item())
                end]])
            assert.equal(0, code, text)
            for r = 1, n - 1 do assert.same(lines[0], lines[r]) end
            assert.equal(4, #lines[0], text)
        end
    end)

    it('that make different calls all raise the same words, and the next call works', function()
        local lines, code, seconds, text = mpi.run(kind, 3, [[
            local t = wane.ones(dist.rank == 1 and 3 or 2)
            try(dist.gather, t)
            if dist.rank == 2 then try(dist.barrier) else try(dist.sum, wane.ones(2)) end
            try(dist.barrier)
            try(dist.gather, dist.rank == 1 and wane.ones(2, 2) or wane.ones(4)) -- as many bytes
            try(dist.barrier)]])
        assert.equal(0, code, text)
        for r = 0, 2 do
            assert.matches('^value: .*rank 1 is at another call than rank 0: gather %(3%) f32 at .*%(call 2%) '
                .. 'against gather %(2%) f32', lines[r][1])
            assert.matches('rank 2 is at another call than rank 0: barrier at .*:%d+ %(call 3%) against gather',
                lines[r][2])
            assert.matches('rank 1 is at another call than rank 0: gather %(2, 2%) f32', lines[r][4])
            assert.equal('fine', lines[r][3])
            assert.equal('fine', lines[r][5])
            for _, k in ipairs { 1, 2, 4 } do
                assert.equal(lines[0][k]:match 'rank %d is.*', lines[r][k]:match 'rank %d is.*')
            end
        end
        assert.is_true(seconds < 10, seconds)
    end)

    it('of which one fails in a call all raise its words', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            for who = 0, 2 do
                local index = wane.tensor({ dist.rank == who and 9 or 1 }, { dtype = 'i32' })
                try(dist.gather, wane.ones(4):gather(1, index))
                try(dist.barrier)
            end]])
        assert.equal(0, code, text)
        for r = 0, 2 do
            for who = 0, 2 do
                assert.matches(('^value: %%S+ rank %d: .*gather: .*9'):format(who), lines[r][2 * who + 1])
                assert.equal('fine', lines[r][2 * who + 2])
            end
        end
    end)

    -- Runs a row that waits for seconds: in the long form under every MPI, else under one.
    local function slow_it(...)
        if helper.is_long or kind == 'mpich' or not mpi.is_here 'mpich' then it(...) end
    end

    -- A row: the code of rank 1 before a call of all, and the words of the others; none where the job ends them.
    local GONE = {
        { 'os.exit(0)', 'io: .*rank 1 has left after 2 calls, the last of them barrier at .*; rank %d is at ' },
        { "error 'no data'", 'io: .*rank 1 has left after 2 calls' },
        -- MPICH takes an exit with code 0 past all handlers for a good end, and ends the job so.
        kind == 'openmpi' and { 'ffi.C._exit(0)', '' } or nil,
        { 'ffi.C.kill(ffi.C.getpid(), 9)', '' },
        { 'ffi.C.kill(ffi.C.getpid(), 19)', 'io: .*rank 0 waited 3 s for rank 1' },
        { 'while true do end', 'io: .*rank 0 waited 3 s for rank 1, which is at barrier at .* %(call 2%)' },
    }
    for _, row in pairs(GONE) do
        local try_it = row[2]:find 'waited' and slow_it or it
        try_it(('of which one does %s end, with a word and a code'):format(row[1]), function()
            local lines, code, seconds, text = mpi.run(kind, 3, ([[
                dist.barrier()
                if dist.rank == 1 then io.stderr:write 'no data\n' %s end
                if not try(dist.gather, wane.ones(2)) then
                    for _ = 1, 3 do try(dist.barrier) end
                    io.stdout:setvbuf 'full'
                    io.stdout:write(dist.rank .. '> not flushed\n')
                    os.exit(1)
                end]]):format(row[1]), 3)
            assert.is_true(code ~= 0 and code ~= 124, text)
            assert.is_true(seconds < 30, seconds)
            for _, r in ipairs(row[2] ~= '' and { 0, 2 } or {}) do
                assert.matches('^' .. row[2], lines[r][1] or text)
                for k = 2, 4 do
                    assert.equal(lines[r][1]:match 'rank %d .*', (lines[r][k] or text):match 'rank %d .*')
                end
                assert.equal('not flushed', lines[r][5])
            end
        end)
    end

    it('of which one meets ^C, SIGTERM or SIGUSR1 all stop at the same call, and may save', function()
        local lines, code, seconds, text = mpi.run(kind, 3, [[
            for _, signal in ipairs { 2, 15, 10 } do
                say('%s', wane.on_interrupt(function(e) return e.code end, function()
                    for k = 1, 9 do
                        if k == 5 and dist.rank == 1 then ffi.C.kill(ffi.C.getpid(), signal) end
                        dist.gather(wane.ones(2) * k)
                        if k > 3 then say('%d', k) end
                    end
                end))
                dist.barrier()
            end]])
        assert.equal(0, code, text)
        assert.is_true(seconds < 20, seconds)
        for r = 0, 2 do assert.same({ '4', 'interrupt', '4', 'interrupt', '4', 'interrupt' }, lines[r]) end
    end)

    slow_it('of which one meets ^C while it waits for another leave it after some seconds', function()
        local lines, code, seconds, text = mpi.run(kind, 3, [[
            if dist.rank == 1 then while true do end end
            say('%s', wane.on_interrupt(function(e) return e.code end, function()
                ffi.C.kill(ffi.C.getpid(), 2)
                dist.barrier()
            end))]])
        assert.is_true(code ~= 0 and code ~= 124, text)
        assert.is_true(seconds < 30, seconds)
        for _, r in ipairs { 0, 2 } do assert.same({ 'interrupt' }, lines[r]) end
    end)

    slow_it('of which one ends long after the others are waited for, and named once it is silent', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            if dist.rank == 1 then ffi.C.poll(nil, 0, 2500) end
            say 'ended']], 1)
        assert.equal(0, code, text)
        for r = 0, 2 do assert.same({ 'ended' }, lines[r]) end
        _, code, _, text = mpi.run(kind, 3, [[
            dist.barrier()
            if dist.rank == 1 then ffi.C.poll(nil, 0, 1500) ffi.C.kill(ffi.C.getpid(), 19) end]], 1)
        assert.is_true(code ~= 0 and code ~= 124, text)
        assert.matches('rank 0 has ended, and waits for rank 1, which is silent for %d s; it was at barrier', text)
    end)

    it('whose kernels give other bits are told apart before the first value', function()
        local head, own = mpi.HEAD:format(helper.root, helper.root, 10), [[
            local ffi, rank = require 'ffi', os.getenv 'PMI_RANK' or os.getenv 'OMPI_COMM_WORLD_RANK'
            ffi.cdef 'int setenv(const char *, const char *, int);'
            if rank == '1' then ffi.C.setenv('%s', '%s', 1) end
        ]]
        local ROWS = { { 'WANE_THREADS', '2', '2 threads' }, { 'WANE_KERNELS', 'plain', 'kernels plain' } }
        for _, row in ipairs(ROWS) do
            local file = assert(io.open(SCRIPT, 'w'))
            file:write(own:format(row[1], row[2]), head)
            file:close()
            local _, code, _, text = mpi.command(kind, 2, SCRIPT)
            assert.is_true(code ~= 0 and code ~= 124, text)
            assert.matches('rank 1 is at another call than rank 0: wane.dist.start: [^\n]*' .. row[3], text)
        end
    end)

    it('leave how nice the process is as it was, for all of its threads', function()
        require('spec.support.files').write(SCRIPT, (mpi.HEAD:format(helper.root, helper.root, 20)) .. [[
            dist.barrier()
            local own = io.popen('nice'):read '*l' -- as a process of this thread has it
            local pipe, threads = io.popen(('cat /proc/%d/task/*/stat'):format(ffi.C.getpid())), 0
            for line in pipe:lines() do
                threads = threads + 1
                local fields = {}
                for word in line:match '%) (.*)$':gmatch '%S+' do fields[#fields + 1] = word end
                if fields[17] ~= own then say('%s', line) end -- field 19; two are before the name's end
            end
            say('%s', threads > 1 and tonumber(own) >= 5)]])
        local lines, code, _, text = mpi.command(kind, 2, SCRIPT, 'nice -n 5 env')
        assert.equal(0, code, text)
        for r = 0, 1 do assert.same({ 'true' }, lines[r], text) end
    end)

    it('have their link measured by wane profile, for the plans to come', function()
        local costs = os.tmpname()
        local text, code = helper.shell(('WANE_COSTS=%s WANE_THREADS=1 timeout 60 mpirun.%s %s -n 2 %s'):format(
            costs, kind, options, 'build/wane profile'))
        assert.equal(0, code, text)
        assert.matches('^a link of 2 ranks: [%d.e+]+ us to start, [%d.e+]+ GB/s on one machine', text)
        assert.matches('kept in ' .. costs:gsub('%p', '%%%0'), text)
        local line = require('spec.support.files').read(costs):match 'ranks\t([^\n]*)'
        local start, peer, inside, outside = line:match '^(%S+) (%S+) (%S+) (%S+)$'
        assert.is_true(tonumber(start) < 0.1 and tonumber(peer) == 2e-6, line)
        assert.is_true(tonumber(inside) > 1e7 and tonumber(inside) < 1e12 and inside == outside, line)
        os.remove(costs)
    end)

    it('measure it inside of a machine and between machines, though a rank has little of a small gradient', function()
        local name = os.tmpname()
        require('spec.support.files').write(name, (mpi.HEAD:format(helper.root, helper.root, 30):gsub('timeout = 30',
            'timeout = 30, per_node = 3')) .. [[
            local r = require('wane.plan.costs.ranks').measure()
            say('%s', r.start < 1 and r.inside > 1e6 and r.inside < 1e12 and r.outside > 1e6 and r.outside < 1e12)]])
        local lines, code, _, text = mpi.command(kind, 6, name)
        os.remove(name)
        assert.equal(0, code, text)
        for r = 0, 5 do assert.same({ 'true' }, lines[r]) end
    end)

    it('that a launcher of another kind started are refused by name', function()
        local other = kind == 'openmpi' and 'mpich' or 'openmpi'
        if not mpi.is_here(other) then return pending('is not tried: no ' .. other) end
        local file = assert(io.open(SCRIPT, 'w'))
        file:write(mpi.HEAD:format(helper.root, helper.root, 10))
        file:close()
        local text, code = helper.shell(('WANE_MPI_LIB=build/libwane_mpi-%s.so timeout 60 mpirun.%s %s -n 2 '
            .. 'luajit %s'):format(other, kind, options, SCRIPT))
        assert.is_true(code ~= 0 and code ~= 124, text)
        assert.matches('it is an MPI of another kind', text)
    end)
end)
