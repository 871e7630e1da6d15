-- Checks seconds by the GPU's clock on the simulated device, whose events have the host's time of when they happen:
-- those of each instruction, those of `wane profile`, and the rates that wane.targets() shows. An event that cannot be
-- made leaves nothing behind.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local files = require 'spec.support.files'
local sim = require 'spec.support.cudasim'
local wane = helper.wane

local nn = wane.nn
local C = binding.C
local everything = require('spec.support.offloading').everything

describe('seconds of a GPU', function()
    if not sim.given(setup, teardown, pending) then return end

    local model, x
    setup(function()
        wane.manual_seed(2)
        model = nn.Sequential { nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64) }
        x = wane.randn(64, 64):retain()
    end)

    -- Runs a backward; returns the program, and { seconds =, what =, op = } of each instruction.
    local function run(policy)
        local p = programs.run { mode = 'backward', roots = { (model(x) ^ 2):sum() }, policy = policy }
        local list = programs.schedule(p)
        for i, step in ipairs(list) do step.seconds = C.wn_step_seconds(p.handle, i - 1) end
        for _, q in ipairs(model:parameters()) do q.grad = nil end
        return p, list
    end

    for _, streams in ipairs { 'eager', 'lazy', 'random' } do
        it('are those of every instruction, and less than the run\'s, where streams are ' .. streams, function()
            sim.schedule(streams, 3)
            local p, list = scoped('timing', 1, run, 'save_all')
            local sum, products, others, n = 0, 0, 0, 0
            for _, step in ipairs(list) do
                assert.is_true(step.seconds >= 0, step.what)
                sum = sum + step.seconds
                if step.what == 'run' and (step.op:find '^linear' or step.op:find '^matmul') then
                    products, n = products + step.seconds, n + 1
                    assert.is_true(step.seconds > 0, step.op)
                else
                    others = others + step.seconds
                end
            end
            sim.schedule 'eager'
            assert.is_true(n >= 6)
            assert.is_true(products > others, ('%g of products, %g of others'):format(products, others))
            assert.is_true(sum <= p.measured.seconds, ('%g of %g'):format(sum, p.measured.seconds))
        end)
    end

    it('are noted of moves too, and the bits stay', function()
        local function gradients(how)
            programs.run { mode = 'backward', roots = { (model(x) ^ 2):sum() }, policy = how }
            local grads = {}
            for i, q in ipairs(model:parameters()) do grads[i] = q.grad end
            local bits = programs.bits(grads)
            for _, q in ipairs(model:parameters()) do q.grad = nil end
            return bits
        end
        local all = everything 'offload'
        local want = gradients 'save_all'
        sim.schedule('random', 5)
        assert.is_true(want == scoped('timing', 1, gradients, all))
        local _, list = scoped('timing', 1, run, all)
        sim.schedule 'eager'
        local moves = 0
        for _, step in ipairs(list) do
            if step.what == 'wait' or step.what == 'fetch' or step.what == 'offload' then
                moves = moves + 1
                assert.is_true(step.seconds >= 0)
            end
        end
        assert.is_true(moves > 0)
    end)

    -- An event that cannot be made is for want of memory: the run gives back what is idle, and is tried once more.
    it('leave no event behind, also where one cannot be made or recorded', function()
        run 'save_all'
        wane.memory.trim() -- a failure for want of memory trims too
        local events, failed, healed = sim.counters().events, 0, 0
        for nth = 1, 400 do
            sim.fail('event', nth)
            local fine, why = pcall(scoped, 'timing', 1, run, 'save_all')
            local is_met = sim.fails_in 'event' == 0
            sim.fail('event', 0)
            if fine and is_met then healed = healed + 1 end
            if not fine then
                failed = failed + 1
                local text, is_named = tostring(why), false
                for _, what in ipairs { 'timing an instruction', 'making events', 'copying' } do
                    is_named = is_named or text:find(what, 1, true) ~= nil
                end
                assert.is_true(is_named, text)
            end
            assert.equal(events, sim.counters().events, nth)
            if not is_met then break end
        end
        assert.is_true(failed > 30 and healed > 30, ('%d failures, %d healed'):format(failed, healed))
        assert.equal(0, C.wn_timing(0))
    end)

    it('make the profile and the targets of a machine', function()
        local file = os.tmpname()
        os.remove(file)
        local text = sim.script(("WANE_DEVICE=cuda WANE_COSTS='%s'"):format(file), [[
            local wane = require 'wane'
            require('wane.plan.costs').machine { side = 64, elements = 4096, bytes = 1048576 }
            local m, x = wane.nn.Linear(8, 8), wane.eval(wane.randn(4, 8))
            local function fn() return m(x):sum() end
            print(wane.profile(fn, { steps = 5, anyway = true }))
            wane.nn.Linear(8, 8)
            print(wane.plan(fn).costs)
            print(wane.targets())
        ]])
        local lines = files.read(file)
        os.remove(file)
        assert.matches('cuda 90: linear f32 4x8 <%- f32 4x8, f32 8x8, f32 8\n', text)
        assert.matches('100 %% of it measured', text)
        assert.matches('\ncuda [^\n]*measured on this machine\n', text)
        assert.matches('\ncpu [^\n]*assumed', text)
        assert.matches('\nmachine:cuda\t%d', lines)
        assert.matches('\nlink:cuda\t%d', lines)
        assert.not_matches('inf', lines)
    end)
end)
