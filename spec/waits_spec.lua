-- Checks waits of transfers that run beside kernels: the verifier derives from the schedule what each wait protects,
-- and refuses a schedule without it.
require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local offloading = require 'spec.support.offloading'
local program = require 'wane.program'

local optim, policy = wane.optim, wane.policy
local C = binding.C
local everything, make, schedule_of = offloading.everything, offloading.make, offloading.schedule
local all = everything 'offload'

describe('waits', function()
    after_each(function() C.wn_debug('forget_plans', 1) end)

    local function open(p, mode)
        local params, loss = make()
        local got
        if mode == 'step' then
            local opt = optim.SGD(params, { lr = 0.1 })
            program.planning(function() opt:step(loss(), { policy = p }) end, function(request)
                got = program.open(request):plan()
                return got
            end)
        else
            got = program.open({ mode = 'backward', roots = { loss() }, policy = p }):plan()
        end
        return got, schedule_of(got)
    end
    local function refused(p, rule, what)
        local code = C.wn_verify(p.handle)
        local words = binding.text(C.wn_message())
        assert.equal('illegal', binding.text(C.wn_status_word(code)), what)
        if rule then assert.is_truthy(words:find("rule '" .. rule .. "'", 1, true), what .. ': ' .. words) end
        return words
    end
    local function find(list, what, from)
        for i = from or 1, #list do
            if list[i].what == what then return i - 1, list[i] end
        end
    end

    it('are needed, each one of them', function()
        local policies = { all, everything 'offload:host', policy.by_op { relu = 'offload', dropout = 'recompute' },
            policy.compose(policy.by_op { linear = 'offload' }, 'segments(2)') }
        local dropped = 0
        for _, p in ipairs(policies) do
            for _, mode in ipairs { 'backward', 'step' } do
                local _, list = open(p, mode)
                C.wn_debug('forget_plans', 1)
                for i, step in ipairs(list) do
                    if step.what == 'wait' then
                        local fresh = open(p, mode)
                        assert.equal(0, C.wn_verify(fresh.handle))
                        binding.check(C.wn_test_mutate(fresh.handle, i - 1, 'drop', 0))
                        refused(fresh, 'wait', ('wait %d of move %d'):format(i, step.move))
                        dropped = dropped + 1
                        C.wn_debug('forget_plans', 1)
                    end
                end
            end
        end
        assert.is_true(dropped > 60, dropped)
    end)

    it('may not be for another move, nor twice', function()
        local p, list = open(all)
        local wait, step = find(list, 'wait')
        binding.check(C.wn_test_mutate(p.handle, wait, 'move', step.move + 1))
        refused(p, 'wait', 'another move')
        C.wn_debug('forget_plans', 1)
        p, list = open(all)
        wait = find(list, 'wait')
        binding.check(C.wn_test_mutate(p.handle, wait + 1, 'repeat', wait))
        refused(p, 'wait', 'twice')
    end)

    it('cannot be moved behind what they protect', function()
        local _, list = open(all)
        C.wn_debug('forget_plans', 1)
        for i, step in ipairs(list) do
            if step.what == 'wait' and list[i + 1].what == 'free' then
                local p = open(all)
                binding.check(C.wn_test_mutate(p.handle, i - 1, 'swap', i))
                refused(p, 'wait', 'freed early')
                C.wn_debug('forget_plans', 1)
            end
        end
    end)

    it('come before a fetch of what is still being written', function()
        local _, list = open(all)
        C.wn_debug('forget_plans', 1)
        local _, offload = find(list, 'offload')
        local wait, early = find(list, 'wait'), 0
        while list[wait + 1].move ~= offload.move do wait = find(list, 'wait', wait + 2) end
        for i = wait + 2, #list do
            if list[i].what == 'fetch' then
                local p = open(all)
                binding.check(C.wn_test_mutate(p.handle, i - 1, 'swap', wait))
                if refused(p, nil, 'a fetch too early'):find('a value is moved before it has arrived', 1, true) then
                    early = early + 1
                end
                C.wn_debug('forget_plans', 1)
            end
        end
        assert.is_true(early > 0)
    end)

    it('do not help two values in one place, or a value that starts off a page', function()
        local p, list = open(all)
        local first, one = find(list, 'offload')
        local second, two = find(list, 'offload', first + 2)
        assert.is_true(two.offset ~= one.offset)
        binding.check(C.wn_test_mutate(p.handle, second, 'offset', one.offset))
        refused(p, 'overlap', 'one place in the offload buffer')
        C.wn_debug('forget_plans', 1)
        p, list = open(all)
        local fetch, step = find(list, 'fetch')
        binding.check(C.wn_test_mutate(p.handle, fetch, 'offset', step.offset + 256))
        refused(p, nil, 'off a page')
        C.wn_debug('forget_plans', 1)
        p, list = open(all)
        first, one = find(list, 'offload')
        binding.check(C.wn_test_mutate(p.handle, first, 'offset', one.offset + 2 ^ 40))
        refused(p, 'bounds', 'outside the offload buffer')
    end)

    it('are for one start each', function()
        local p, list = open(all)
        local fetch = find(list, 'fetch')
        binding.check(C.wn_test_mutate(p.handle, fetch, 'move', list[find(list, 'offload') + 1].move))
        refused(p, 'wait', 'a number taken')
    end)
end)
