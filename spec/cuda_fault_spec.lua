-- Checks what a GPU can do wrong: every nth allocation, copy, launch and event made to fail once; an error that stays,
-- which loses the device while the CPU goes on; and wrong data, which changes nothing. Each is an error with words, and
-- the next call works.
local helper = require 'spec.helper'
local programs = require 'spec.support.programs'
local sim = require 'spec.support.cudasim'
local wane = helper.wane

local nn, optim = wane.nn, wane.optim
local MOST = helper.is_long and 400 or 60
local CALLS = { 'malloc', 'host_alloc', 'copy', 'launch', 'load', 'event' }
local everything = require('spec.support.offloading').everything

describe('a fault of a GPU', function()
    if sim.missing() then
        pending(sim.missing())
        return
    end

    local before
    setup(function() before = wane.set_device 'cuda' end)
    teardown(function()
        for _, call in ipairs(CALLS) do sim.fail(call, 0) end
        wane.set_device(before)
    end)

    local function network()
        wane.manual_seed(11)
        local model = nn.Sequential { nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16) }
        local x = wane.randn(64, 16)
        return model, x, optim.Adam(model:parameters(), { lr = 0.01 })
    end

    -- Trains three steps from nothing; returns the bytes of all parameters.
    local function train()
        local model, x, opt = network()
        for _ = 1, 3 do opt:step((model(x) ^ 2):sum(), { policy = everything 'offload' }) end
        return table.concat(programs.bytes(model:parameters()))
    end

    -- A failed call says what it wanted, by kind. A failure that stays ends this process's use of the device.
    for _, call in ipairs(CALLS) do
        it('in a call of ' .. call .. ' is told of, wherever it is, and the next training is whole', function()
            local want, failed = train(), 0
            for nth = 1, MOST do
                wane.memory.trim()
                sim.fail(call, nth)
                local fine, why = pcall(train)
                local is_met = sim.fails_in(call) == 0
                sim.fail(call, 0)
                assert.is_true(fine or is_met, ('%s %d: %s'):format(call, nth, tostring(why)))
                if not fine then
                    failed = failed + 1
                    assert.truthy(why.code == 'oom' or why.code == 'device', ('%s %d: %s'):format(call, nth,
                        tostring(why)))
                end
                if not is_met then break end
                assert.is_true(want == train(), ('after %s %d'):format(call, nth))
            end
            -- A run out of memory gives back what is idle and tries once more, so one refusal of memory is healed.
            assert.is_true(failed > 0 or call == 'host_alloc' or call == 'malloc', 'nothing failed')
            assert.is_false(sim.overrun())
        end)
    end

    it('in the data is the CPU\'s refusal, and nothing has changed', function()
        wane.manual_seed(1)
        local table_ = nn.Embedding(5, 4)
        local opt = optim.SGD(table_:parameters(), { lr = 0.1 })
        local function step(ids) opt:step((table_(wane.tensor(ids, { dtype = 'i32' })) ^ 2):sum()) end
        step { 1, 2 }
        local kept = programs.bytes(table_:parameters())[1]
        local fine, why = pcall(step, { 0, 3, 9, 7 })
        assert.is_false(fine)
        assert.equal('value', why.code)
        assert.truthy(tostring(why):find('index 9 at element 2 is outside 0..4', 1, true), tostring(why))
        assert.is_true(kept == programs.bytes(table_:parameters())[1])
        step { 1, 2 }
        assert.is_false(kept == programs.bytes(table_:parameters())[1])
    end)

    -- The last one: the device is lost to this process afterwards.
    it('that stays loses the device by name, and the CPU goes on', function()
        local model, x, opt = network()
        opt:step(model(x):sum())
        sim.fail('async', 4)
        local fine, why = pcall(function() opt:step(model(x):sum()) end)
        assert.is_false(fine)
        assert.equal('device', why.code)
        assert.truthy(tostring(why):find('the GPU was lost', 1, true), tostring(why))
        assert.truthy(tostring(why):find('it ran', 1, true), tostring(why))
        fine, why = pcall(function() return wane.ones(2):totable() end)
        assert.is_false(fine)
        assert.truthy(tostring(why):find('the GPU was lost', 1, true), tostring(why))
        wane.set_device 'cpu'
        assert.same({ 2, 2 }, (wane.ones(2) * 2):totable())
        model, x, opt = nil, nil, nil
        collectgarbage()
        collectgarbage()
    end)
end)
