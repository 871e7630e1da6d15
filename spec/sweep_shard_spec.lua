-- Checks the shards of a sweep that several processes share: that they divide the points, what schedulers and launchers
-- are understood to say, and that no row is lost or taken twice when a shard is killed and requeued.
local helper = require 'spec.helper'
local json = require 'wane.report.json'
local shard = require 'wane.sweep.shard'
local sweeps = require 'spec.support.sweeps'
local system = require 'wane.system'

local read, refusal, rows, sweep, write = sweeps.read, sweeps.refusal, sweeps.rows, sweeps.sweep, sweeps.write
local folder

describe('a shard', function()
    setup(function() folder = sweeps.folder() end)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    it('has every N-th point, and every point is in one', function()
        local points = sweep().points
        for count = 1, 23 do
            local seen, total = {}, 0
            for index = 1, count do
                local s = sweep { shard = ('%d/%d'):format(index, count), out = 'never' }
                for k, q in ipairs(s.assigned) do
                    assert.equal(index + (k - 1) * count, q.number)
                    assert.is_nil(seen[q.key])
                    seen[q.key], total = true, total + 1
                end
                assert.equal(#points, #s.points)
                assert.is_true(math.abs(#s.assigned - #points / count) < 1)
                assert.equal(#s.assigned, #s:missing())
            end
            assert.equal(#points, total)
        end
    end)

    it('has a file of its own beside the one that was named', function()
        for out, path in pairs { ['a.jsonl'] = 'a.3-of-8.jsonl', ['r.d/a'] = 'r.d/a.3-of-8',
            ['a.v2.x'] = 'a.v2.3-of-8.x', ['r/.x'] = 'r/.x.3-of-8', ['a.1-of-2.jsonl'] = 'a.1-of-2.3-of-8.jsonl' } do
            assert.equal(path, sweep { shard = '3/8', out = out }.out)
            assert.same({ index = 3, count = 8 }, shard.named(path))
        end
        for _, path in ipairs { 'a.jsonl', 'a.0-of-8.jsonl', 'a.9-of-8.jsonl', '3-of-8.jsonl', 'a.3-of-8/b.jsonl' } do
            assert.is_nil(shard.named(path), path)
        end
    end)

    it('is refused where it names none, with what it should be', function()
        for _, bad in ipairs { '0/8', '9/8', '1', '1/', '/8', '1/0', '-1/8', '1.5/8', '1/8 ', 'all', '', 3, true, {},
            '1/99999999999' } do
            local words, code = refusal(sweep, { shard = bad, out = 'never' })
            assert.equal('value', code)
            assert.matches("shard must be 'I/N', I from 1 to N", words)
        end
        assert.matches('give out =', (refusal(function() sweep({ shard = '1/2' }):run() end)))
        assert.matches('leave out shard', (refusal(function() sweep({ shard = '1/2', out = 'x' }):merge 'y' end)))
    end)

    it('of no point writes an empty file and is done', function()
        local s = sweep { shard = '21/21', out = folder .. '/none.jsonl' }
        local words = sweeps.said(function() s:run() end)
        assert.equal('wane.sweep: shard 21/21 has none of the 20 points\n', words)
        assert.equal('', read(s.out))
        assert.matches('not run yet', tostring(s))
    end)

    it('is not begun beside files of another number of shards, whose points it would measure again', function()
        local out = folder .. '/[division] *.jsonl'
        sweep({ shard = '1/4', out = out }):run()
        local words = refusal(function() sweep({ shard = '1/2', out = out, resume = true }):run() end)
        assert.matches('%[division%] %*%.1%-of%-4%.jsonl is of another number of shards than 1/2', words)
        assert.is_false(system.exists(folder .. '/[division] *.1-of-2.jsonl'))
        assert.is_false(system.exists(folder .. '/[division] *.1-of-2.jsonl.lock'))
        sweep({ shard = '1/2', out = out, resume = 'force' }):run()
        sweep({ shard = '1/2', out = out, resume = true }):run() -- it was begun
        sweep({ shard = '2/4', out = out, resume = true }):run() -- and files beside 2/4 do exist, of both
    end)
end)

-- Variables of one environment a row, and the shard that 'auto' makes of them: 'I/N', 'none', or what is said.
local ENVIRONMENTS = {
    { {}, 'none' },
    { { SLURM_JOB_ID = 7, SLURM_PROCID = 0 }, 'none' }, -- a batch script of one task
    { { SLURM_JOB_ID = 7, SLURM_PROCID = 0, SLURM_NTASKS = 1 }, '1/1' },
    { { SLURM_ARRAY_TASK_ID = 3, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 8, SLURM_ARRAY_TASK_STEP = 1,
        SLURM_ARRAY_TASK_COUNT = 8, SLURM_PROCID = 0, SLURM_JOB_ID = 7 }, '3/8' },
    { { SLURM_ARRAY_TASK_ID = 0, SLURM_ARRAY_TASK_MIN = 0, SLURM_ARRAY_TASK_MAX = 7 }, '1/8' },
    { { SLURM_ARRAY_TASK_ID = 14, SLURM_ARRAY_TASK_MIN = 10, SLURM_ARRAY_TASK_MAX = 19 }, '5/10' },
    { { SLURM_ARRAY_TASK_ID = 6, SLURM_ARRAY_TASK_MIN = 0, SLURM_ARRAY_TASK_MAX = 9, SLURM_ARRAY_TASK_STEP = 3 },
        '3/4' },
    { { SLURM_ARRAY_TASK_ID = 6, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 8, SLURM_ARRAY_TASK_STEP = 5,
        SLURM_ARRAY_TASK_COUNT = 2 }, '2/2' },
    { { SLURM_ARRAY_TASK_ID = 3, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 7, SLURM_ARRAY_TASK_STEP = 1,
        SLURM_ARRAY_TASK_COUNT = 3 }, 'an array of 3 tasks with gaps .* %-%-array=1%-3; give %-%-shard I/N' },
    { { SLURM_ARRAY_TASK_ID = 3 }, 'SLURM_ARRAY_TASK_ID=3 without SLURM_ARRAY_TASK_MIN' },
    { { SLURM_ARRAY_TASK_ID = 3, SLURM_ARRAY_TASK_MIN = 1 }, 'without SLURM_ARRAY_TASK_MAX' },
    { { SLURM_ARRAY_TASK_ID = 9, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 8 }, 'no task of an array' },
    { { SLURM_ARRAY_TASK_ID = 2, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 9, SLURM_ARRAY_TASK_STEP = 4 },
        'SLURM_ARRAY_TASK_ID=2, which is no task of an array from 1 to 9 by 4' },
    { { SLURM_ARRAY_TASK_ID = 1, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 9, SLURM_ARRAY_TASK_STEP = 0 },
        'no task of an array' },
    { { SLURM_ARRAY_TASK_ID = 'x' }, 'SLURM_ARRAY_TASK_ID=x, which is no whole number' },
    { { OMPI_COMM_WORLD_RANK = 2, OMPI_COMM_WORLD_SIZE = 4 }, '3/4' },
    { { PMI_RANK = 0, PMI_SIZE = 4 }, '1/4' },
    { { SLURM_PROCID = 3, SLURM_NTASKS = 4 }, '4/4' },
    { { SLURM_PROCID = 1, SLURM_STEP_NUM_TASKS = 2, SLURM_NTASKS = 8, SLURM_JOB_ID = 7, SLURM_STEP_ID = 0 }, '2/2' },
    -- srun --mpi=pmi2 says the same twice; mpirun within a job of Slurm has ranks of its own
    { { PMI_RANK = 1, PMI_SIZE = 2, SLURM_PROCID = 1, SLURM_NTASKS = 2, SLURM_JOB_ID = 7, SLURM_STEP_ID = 0 }, '2/2' },
    { { OMPI_COMM_WORLD_RANK = 2, OMPI_COMM_WORLD_SIZE = 4, SLURM_PROCID = 0, SLURM_NTASKS = 4, SLURM_JOB_ID = 7 },
        '3/4' },
    { { OMPI_COMM_WORLD_RANK = 2, OMPI_COMM_WORLD_SIZE = 4, PMI_RANK = 0, PMI_SIZE = 1 }, '3/4' },
    { { OMPI_COMM_WORLD_RANK = 0, OMPI_COMM_WORLD_SIZE = 1, PMI_RANK = 5, PMI_SIZE = 6 }, '6/6' },
    { { OMPI_COMM_WORLD_RANK = 2, OMPI_COMM_WORLD_SIZE = 4, PMI_RANK = 1, PMI_SIZE = 4 },
        'two ranks: OMPI_COMM_WORLD_RANK=2 of 4 and PMI_RANK=1 of 4' },
    { { OMPI_COMM_WORLD_RANK = 4, OMPI_COMM_WORLD_SIZE = 4 }, 'OMPI_COMM_WORLD_RANK=4 beside OMPI_COMM_WORLD_SIZE=4' },
    { { PMI_RANK = 1 }, 'PMI_RANK=1 without PMI_SIZE' },
    { { PMI_SIZE = 2 }, 'PMI_SIZE=2 without PMI_RANK' },
    { { PMI_RANK = -1, PMI_SIZE = 2 }, 'PMI_RANK=%-1, which is no whole number from 0' },
    { { SLURM_PROCID = 2 }, 'SLURM_PROCID=2 without SLURM_NTASKS' },
    { { SLURM_PROCID = 0, SLURM_NTASKS = 4, SLURM_JOB_ID = 7 }, 'runs once, in the batch script itself.* srun' },
    -- ranks within the tasks of an array
    { { SLURM_ARRAY_TASK_ID = 2, SLURM_ARRAY_TASK_MIN = 1, SLURM_ARRAY_TASK_MAX = 3, SLURM_PROCID = 1,
        SLURM_STEP_NUM_TASKS = 4, SLURM_STEP_ID = 0, SLURM_JOB_ID = 7 }, '6/12' },
    { { PBS_ARRAY_INDEX = 3 }, 'PBS_ARRAY_INDEX=3; give %-%-shard "$PBS_ARRAY_INDEX/N"' },
    { { SGE_TASK_ID = 'undefined', LSB_JOBINDEX = 0, PBS_ARRAYID = '' }, 'none' },
    { { SGE_TASK_ID = 1 }, 'SGE_TASK_ID=1' }, { { LSB_JOBINDEX = 1 }, 'LSB_JOBINDEX=1' },
}

describe("shard = 'auto'", function()
    setup(function() folder = sweeps.folder() end)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    it('is the place in an array or among ranks, and contradictions are refused by name', function()
        for _, row in ipairs(ENVIRONMENTS) do
            local function get(name) return row[1][name] ~= nil and tostring(row[1][name]) or nil end
            local fine, found = pcall(shard.auto, get)
            local text = not fine and found.message or found and ('%d/%d'):format(found.index, found.count) or 'none'
            local is_there = text == row[2] or not fine and text:find(row[2]) ~= nil
            assert.is_true(is_there, json.encode(row[1]) .. ': ' .. text)
        end
    end)

    it('of every task of a product of arrays and ranks is another shard', function()
        local seen = {}
        for task = 5, 9, 2 do
            for rank = 0, 3 do
                local set = { SLURM_ARRAY_TASK_ID = task, SLURM_ARRAY_TASK_MIN = 5, SLURM_ARRAY_TASK_MAX = 9,
                    SLURM_ARRAY_TASK_STEP = 2, OMPI_COMM_WORLD_RANK = rank, OMPI_COMM_WORLD_SIZE = 4 }
                local one = shard.auto(function(name) return set[name] and tostring(set[name]) end)
                assert.equal(12, one.count)
                seen[#seen + 1] = one.index
            end
        end
        assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, seen)
    end)

    it('in a process of neither measures all points, and says so', function()
        local lone = 'env -u SLURM_ARRAY_TASK_ID -u SLURM_PROCID -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE '
        local script = write(folder .. '/one.lua', [[
return { grid = { k = { 1, 2, 3 } }, build = function(p)
    local w = require('wane').ones(p.k, { requires_grad = true })
    return function() return (w * w):sum() end
end }]])
        local words, code = helper.shell(('%s build/wane sweep %s --shard auto --out %s/one.jsonl'):format(lone, script,
            folder))
        assert.equal(0, code, words)
        assert.matches("shard = 'auto' found no Slurm array and no ranks; this process measures all 3 points", words)
        assert.equal(3, #rows(folder .. '/one.jsonl'))
        words, code = helper.shell(('OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 build/wane sweep %s --shard auto '
            .. '--out %s/two.jsonl'):format(script, folder))
        assert.equal(0, code, words)
        assert.matches('shard 2/2, 1 points: 1 measured', words)
        assert.equal(1, #rows(folder .. '/two.2-of-2.jsonl'))
        words, code = helper.shell(('PMI_RANK=2 PMI_SIZE=2 build/wane sweep %s --shard auto --out x'):format(script))
        assert.equal(2, code)
        assert.matches('PMI_RANK=2 beside PMI_SIZE=2', words)
        assert.not_matches('traceback', words)
    end)
end)

describe('a shard that was killed', function()
    setup(function() folder = sweeps.folder() end)
    teardown(function() os.execute('rm -rf ' .. folder) end)
    local COUNT = helper.is_long and 1000 or 60

    -- Returns a script that runs a shard of COUNT points, all of them, or a merge. A shard dies in its third point if
    -- there is a file `deadly`: it leaves half a line and its lock.
    local function script()
        return write(folder .. '/many.lua', ([[
local wane = require 'wane'
local what, folder, widths = arg[1], '%s', {}
for k = 1, %d do widths[k] = k end
local s
local function die()
    local file = io.open(s.out, 'ab')
    file:write '{"n":1,"point'
    file:close()
    os.execute('kill -9 ' .. require('wane.ffi').C.wn_process())
end
s = wane.sweep { grid = { width = widths, policy = { 'save_all', 'recompute_all' } }, order = { 'width', 'policy' },
    isolate = false, repeats = 1, warmup = 0, resume = true, shard = what:match '/' and what or nil,
    out = ('%%s/%%s.jsonl'):format(folder, what:match '/' and 'rows' or what), build = function(p)
        local log = io.open(('%%s/%%s.log'):format(folder, (what:gsub('/', '-of-'))), 'a')
        log:write(p.width, '\n')
        log:close()
        if #s:rows() == 2 and os.remove(folder .. '/deadly') then die() end
        local w = wane.randn(p.width %% 50 + 1, 4, { requires_grad = true })
        local x = wane.randn(2, p.width %% 50 + 1):retain()
        return function() return x:matmul(w):gelu():sum() end
    end }
if what == 'merged' then s:merge(folder .. '/rows.*-of-8.jsonl') else s:run() end
]]):format(folder, COUNT / 2))
    end
    local WANE = 'WANE_THREADS=1 build/wane' -- more processes than cores
    local function run(path, what) return helper.shell(('%s run %s %s'):format(WANE, path, what)) end

    it('and requeued goes on where its file ends: all shards, merged, are what one run gives', function()
        local path, third = script(), folder .. '/rows.3-of-8.jsonl'
        write(folder .. '/deadly', '')
        local text, code = run(path, '3/8')
        assert.equal(137, code, text)
        local torn = read(third)
        assert.equal(2, #rows(third))
        assert.matches('\n{"n":1,"point$', torn)
        assert.is_true(system.exists(third .. '.lock'))
        text, code = run(path, 'merged')
        assert.equal(1, code)
        assert.matches('is torn %(13 bytes without an end%); it is left out', text)
        assert.matches(('%d of %d points have no row\nshard 1/8 '):format(COUNT - 2, COUNT), text)
        if helper.is_long then -- at any time
            for k = 1, 20 do
                helper.shell(('WANE_THREADS=1 timeout -s KILL 0.%02d build/wane run %s 3/8'):format(4 * k, path))
            end
        end
        text = helper.shell(('for k in 1 2 3 4 5 6 7 8; do %s run %s $k/8 & done; wait; echo done')
            :format(WANE, path))
        assert.matches(helper.is_long and 'done' or '^wane.sweep: the last line of [^\n]*rows.3%-of%-8.jsonl was torn '
            .. '%(13 bytes without an end%); it is dropped\ndone', text)
        assert.is_false(system.exists(third .. '.lock'))
        local kept = torn:match '^(.*\n)'
        assert.equal(kept, read(third):sub(1, #kept))
        for _, what in ipairs { 'whole', 'merged' } do
            text, code = run(path, what)
            assert.equal(0, code, text)
        end
        local whole = rows(folder .. '/whole.jsonl')
        assert.equal(COUNT, #whole)
        assert.equal(sweeps.timeless(whole), sweeps.timeless(rows(folder .. '/merged.jsonl')))
        for k = 1, 8 do -- each point was measured once, but for those under way when their process was killed
            local _, points = read(('%s/%d-of-8.log'):format(folder, k)):gsub('\n', '\n')
            local had = #rows(('%s/rows.%d-of-8.jsonl'):format(folder, k))
            assert.is_true(points == had or k == 3 and points > had and points <= had + (helper.is_long and 21 or 1))
        end
    end)

    it('together with its point has no row of that point, which did not fail', function()
        local path, out = folder .. '/together.lua', folder .. '/together.jsonl'
        write(path, ([[
local C = require('wane.ffi').C
local parent = (os.getenv 'WANE_SWEEP_POINT' or ''):match ':(%%d+)$'
local s = require('wane').sweep { grid = { k = { 1, 2, 3 } }, repeats = 1, warmup = 0, resume = true, out = '%s',
    build = function(p)
        if p.k == 2 and arg[1] then -- as a scheduler does: a signal for every process of a job
            local words = '{ kill -%%s %%s; sleep 0.1; kill -%%s %%s; } & sleep 0.3'
            os.execute(words:format(arg[1], C.wn_process(), arg[1], parent))
        end
        local w = require('wane').ones(p.k, { requires_grad = true })
        return function() return (w * w):sum() end
    end }
s:run()]]):format(out))
        for _, signal in ipairs { 'TERM', 'KILL', 'INT' } do
            os.remove(out)
            local text, code = helper.shell(('build/wane run %s %s'):format(path, signal))
            assert.equal(({ TERM = 143, KILL = 137, INT = 130 })[signal], code, text)
            assert.equal(1, #rows(out))
            text, code = helper.shell(('build/wane run %s'):format(path))
            assert.equal(0, code, text)
            for k, row in ipairs(rows(out)) do assert.same({ k, 'ok' }, { row.point.k, row.status }) end
            assert.equal(3, #rows(out))
        end
    end)
end)

-- ---- programs that start shards ------------------------------------------------------------------------------------
-- Checks sweeps that schedulers and launchers start, with the real ones: GNU parallel, mpirun, and Slurm's daemons,
-- where they are installed. Each starts the shards of one sweep; their merged files must be what one run gives. The
-- commands are those of lua/README.md and examples/sweep.sbatch.
local timeless = sweeps.timeless
local root = helper.lines('pwd')[1]
local slurm = 'sh ' .. root .. '/spec/support/slurm.sh '
local whole

-- Runs a command in the folder of the sweep, started by nothing that numbers processes.
local function shell(command, environment)
    return helper.shell(('cd %s && unset SLURM_ARRAY_TASK_ID SLURM_PROCID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE '
        .. 'PMI_RANK PMI_SIZE; export WANE=%s/build/wane %s; %s'):format(folder, root, environment or '', command))
end

-- Checks a command that is to succeed; returns what it prints.
local function done(command, environment)
    local text, code = shell(command, environment)
    assert.equal(0, code, text)
    return text
end

-- Checks that the files of a name, merged, are what one run gives.
local function assert_whole(name, count)
    for k = 1, count do assert.is_true(#rows(('%s/%s.%d-of-%d.jsonl'):format(folder, name, k, count)) > 0) end
    local files = ('%s.*-of-%d.jsonl'):format(name, count)
    local text = done(('$WANE sweep x.lua --repeats 1 --merge %s --out %s.jsonl'):format(files, name))
    assert.matches('24 points: 24 measured', text)
    assert.equal(timeless(whole), timeless(rows(('%s/%s.jsonl'):format(folder, name))))
end

local function has(command, words)
    local text, code = helper.shell(command)
    return code == 0 and text:find(words, 1, true) ~= nil
end

describe('a sweep that', function()
    setup(function()
        folder = sweeps.folder()
        -- `hold` is a file; while it is there, the last points of shard 3 wait.
        sweeps.write(folder .. '/x.lua', [[
local wane = require 'wane'
return wane.main { grid = { k = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, policy = { 'save_all', 'recompute_all' } },
    build = function(p)
        while p.k > 2 and os.getenv 'SLURM_ARRAY_TASK_ID' == '3' and io.open 'hold' do os.execute 'sleep 0.05' end
        local w = wane.randn(3, p.k, { requires_grad = true })
        local x = wane.randn(2, 3):retain()
        return function() return x:matmul(w):gelu():sum() end
    end }]])
        done '$WANE sweep x.lua --repeats 1 --out whole.jsonl'
        whole = rows(folder .. '/whole.jsonl')
    end)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    it('GNU parallel starts is the same sweep', function()
        if not has('parallel --version', 'GNU parallel') then return pending 'is not tried: no GNU parallel' end
        done 'parallel $WANE sweep x.lua --repeats 1 --shard {}/4 --out by_parallel.jsonl ::: 1 2 3 4'
        assert_whole('by_parallel', 4)
        -- parallel tries a failing job again: here one that an earlier process, since killed, left half done
        sweeps.write(folder .. '/by_retries.2-of-4.jsonl', (read(folder .. '/by_parallel.2-of-4.jsonl'):sub(1, -30)))
        sweeps.write(folder .. '/by_retries.2-of-4.jsonl.lock', '1 1 elsewhere\n')
        done('parallel --retries 2 $WANE sweep x.lua --repeats 1 --shard {#}/4 --out by_retries.jsonl --resume '
            .. '::: a b c d')
        assert_whole('by_retries', 4)
    end)

    it('mpirun starts is the same sweep', function()
        local version, code = helper.shell 'mpirun --version'
        if code ~= 0 then return pending 'is not tried: no mpirun' end
        local options = version:find('Open MPI', 1, true) and '--allow-run-as-root --oversubscribe' or ''
        done(('mpirun %s -n 3 $WANE sweep x.lua --repeats 1 --shard auto --out by_mpi.jsonl'):format(options))
        assert_whole('by_mpi', 3)
    end)

    describe('Slurm starts', function()
        local missing = helper.shell(slurm .. 'missing')
        if missing ~= '' then
            pending('is not tried: ' .. missing)
            return
        end
        local there, environment
        setup(function()
            there = sweeps.folder()
            environment = ('SLURM_CONF=%s/slurm.conf'):format(there)
            local text, code = helper.shell(slurm .. 'start ' .. there)
            assert(code == 0, text)
        end)
        teardown(function()
            helper.shell(slurm .. 'stop ' .. there)
            os.execute('rm -rf ' .. there)
        end)

        -- Waits until a command prints what `is_it` takes; returns it.
        local function wait_for(command, is_it)
            local text
            for _ = 1, 300 do
                text = shell(command, environment)
                if is_it(text) then return text end
                os.execute 'sleep 0.1'
            end
            error(('%s: %s\n%s'):format(command, text, shell('cat slurm-*', environment)))
        end

        it('as an array, one task killed and requeued, is the same sweep', function()
            sweeps.write(folder .. '/hold', '')
            local send = 'OUT=array.jsonl sbatch --parsable %s/examples/sweep.sbatch x.lua --repeats 1'
            local job = done(send:format(root), environment):match '%d+'
            wait_for('squeue -h -r -o %i', function(text) return text == job .. '_3\n' end)
            assert.equal(1, #rows(folder .. '/array.3-of-8.jsonl'))
            local before = read(folder .. '/array.3-of-8.jsonl')
            local text, code = shell('$WANE sweep x.lua --repeats 1 --merge array.*-of-8.jsonl', environment)
            assert.equal(1, code)
            assert.matches('2 of 24 points have no row\nshard 3/8 %(array.3%-of%-8.jsonl%) lacks 2: k=6 ', text)
            done(('scontrol requeue %s_3'):format(job), environment)
            local state = ('scontrol show job %s_3'):format(job)
            wait_for(state, function(shown) return shown:find('JobState=PENDING', 1, true) end)
            os.execute 'sleep 2' -- a start within the second of the kill is refused: "credential revoked"
            os.remove(folder .. '/hold')
            done(('scontrol update JobId=%s_3 StartTime=now'):format(job), environment) -- else two minutes later
            wait_for('squeue -h', function(shown) return shown == '' end)
            assert.matches('Restarts=1', (shell(state, environment)))
            assert.equal(before, read(folder .. '/array.3-of-8.jsonl'):sub(1, #before))
            assert_whole('array', 8)
        end)

        it('as an array that is sent again in part needs the number of all tasks', function()
            local send = 'sbatch -W --array=3 %s/examples/sweep.sbatch x.lua --repeats 1'
            local _, code = shell('OUT=array.jsonl ' .. send:format(root), environment)
            assert.equal(1, code)
            assert.matches('is of another number of shards than 1/1', done 'cat slurm-*_3.log')
            done('SHARD=3/8 OUT=array.jsonl ' .. send:format(root), environment)
        end)

        it('as the tasks of srun is the same sweep, and as a batch script alone is refused', function()
            done('srun -n 3 $WANE sweep x.lua --repeats 1 --shard auto --out steps.jsonl', environment)
            assert_whole('steps', 3)
            sweeps.write(folder .. '/alone.sh', '#!/bin/sh\n$WANE sweep x.lua --shard auto --out alone.jsonl\n')
            local _, code = shell('sbatch -W -n 3 -o alone.log alone.sh', environment)
            assert.equal(2, code)
            assert.matches('runs once, in the batch script itself, though the job has SLURM_NTASKS=3 tasks; start it '
                .. 'with srun', read(folder .. '/alone.log'))
        end)
    end)
end)
