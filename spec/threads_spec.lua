-- Checks that bits do not depend on the number of threads: work is divided by outputs, and a sum is split by its
-- length, never by threads. Then the team of threads (kernels/cpu/backend/team.h) by a program in C,
-- spec/support/team.c: each part of a loop runs once, whoever calls, waits, forks or has no core, and no data race is
-- in it.
local helper = require 'spec.helper'
local native = require 'spec.support.native'

describe('threads', function()
    local function run(n)
        local out, code = helper.shell(('WANE_THREADS=%d luajit spec/support/threads.lua'):format(n))
        assert.equal(0, code, out)
        assert.equal(tostring(n), out:match 'threads%s+(%d+)')
        return (out:gsub('threads%s+%d+', ''))
    end

    it('change no bit of sums, softmax and a training with dropout', function()
        local one = run(1)
        assert.is_truthy(one:find 'trained%s+%x+')
        assert.is_nil(one:lower():find 'nan')
        assert.equal(one, run(2))
        assert.equal(one, run(3))
    end)

    it('are as many as OMP_NUM_THREADS says where WANE_THREADS says nothing', function()
        local function threads(environment)
            return helper.shell(('env -u WANE_THREADS -u OMP_NUM_THREADS %s build/wane version'):format(environment))
                :match '\nthreads    (%d+)\n'
        end
        assert.equal('3', threads 'OMP_NUM_THREADS=3')
        assert.equal('5', threads 'OMP_NUM_THREADS=5,2')
        assert.equal('4', threads 'OMP_NUM_THREADS=3 WANE_THREADS=4')
        for _, senseless in ipairs { '0', '-1', '65', 'x', '3x', "''" } do
            assert.equal(threads '', threads('OMP_NUM_THREADS=' .. senseless), senseless)
        end
    end)
end)

describe('the team of threads', function()
    local BUILD = 'gcc -std=c11 -D_GNU_SOURCE -Wall -Werror -pthread %s -o %%s spec/support/team.c '
        .. 'kernels/cpu/backend/team.c kernels/cpu/backend/parallel.c'

    -- Runs a check of the program, which prints what is wrong.
    local function check(name, environment, program)
        local text, code = helper.shell(("env -u LD_PRELOAD -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT %s %s '%s'"):format(
            environment or '', program or native.make('team', BUILD:format '-O2'), name))
        assert.equal(0, code, text)
        return text
    end

    -- Workers that spin for ever are never woken; workers that do not spin always are.
    for _, policy in ipairs { '', 'OMP_WAIT_POLICY=active', 'OMP_WAIT_POLICY=passive' } do
        describe(policy == '' and 'by default' or 'with ' .. policy, function()
            it('runs each part of a loop once', function() check('counts', policy) end)
            it('serves many callers while the number of threads changes', function() check('callers', policy) end)
            it('comes while the caller computes, from sleep too', function() check('meeting', policy) end)
            it('works in a child after fork, and in its parent', function() check('fork', policy) end)
            it('leaves signals to the other threads', function() check('signals', policy) end)
            it('delays no caller where a worker has no core', function() check('one core', policy) end)
        end)
    end

    it('sleeps soon after a loop, unless the environment says otherwise', function()
        for _, environment in ipairs { '', 'OMP_WAIT_POLICY=PASSIVE', 'OMP_WAIT_POLICY=active GOMP_SPINCOUNT=1000',
            'OMP_WAIT_POLICY=senseless' } do
            assert.equal('asleep\n', check('idle', environment), environment)
        end
        for _, environment in ipairs { 'OMP_WAIT_POLICY=active', 'GOMP_SPINCOUNT=infinity',
            'GOMP_SPINCOUNT=1000000000', 'GOMP_SPINCOUNT=1G' } do
            assert.equal('awake\n', check('idle', environment), environment)
        end
    end)

    it('has no data race', function()
        local sanitized = '-O1 -g -fsanitize=thread'
        local library = helper.lines('gcc -print-file-name=libtsan.so')[1] or ''
        if not library:find '^/' or select(2, helper.shell 'setarch -R true') ~= 0 then
            pending 'was not looked for: gcc has no thread sanitizer here'
            return
        end
        local program = native.make('team_tsan', BUILD:format(sanitized))
        for _, name in ipairs { 'counts', 'callers', 'meeting', 'signals' } do -- it cannot follow a fork
            check(name, 'TSAN_OPTIONS=halt_on_error=1 setarch -R', program)
        end
    end)
end)
