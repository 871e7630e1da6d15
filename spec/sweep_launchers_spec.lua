-- Checks sweeps that schedulers and launchers start, with the real ones: GNU parallel, mpirun, and Slurm's daemons,
-- where they are installed. Each starts the shards of one sweep; their merged files must be what one run gives. The
-- commands are those of lua/README.md and examples/sweep.sbatch.
local helper = require 'spec.helper'
local sweeps = require 'spec.support.sweeps'

local read, rows, timeless = sweeps.read, sweeps.rows, sweeps.timeless
local root = helper.lines('pwd')[1]
local slurm = 'sh ' .. root .. '/spec/support/slurm.sh '
local folder, whole

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
