-- Checks the team of threads (kernels/cpu/backend/team.h) by a program in C, spec/support/team.c: each part of a loop
-- runs once, whoever calls, waits, forks or has no core, and no data race is in it.
local helper = require 'spec.helper'
local native = require 'spec.support.native'

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
