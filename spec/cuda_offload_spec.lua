-- Checks offloading from a GPU: gradients have the bits of saving while copies run at once, as late as CUDA allows, and
-- in random orders, with freed bytes poisoned; bytes are predicted; what cannot be done is refused by name.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local sim = require 'spec.support.cudasim'
local wane = helper.wane

local everything = require('spec.support.offloading').everything
local C = binding.C
local SEEDS = helper.is_long and 8 or 3

describe('offloading from a GPU', function()
    if sim.missing() then
        pending(sim.missing())
        return
    end

    local before, model, x, all
    setup(function()
        before = wane.set_device 'cuda'
        wane.manual_seed(3)
        model = programs.mlp(64, 6, 0.2)
        x = wane.randn(24, 64):retain()
        all = everything 'offload'
    end)
    teardown(function()
        sim.schedule 'eager'
        wane.set_device(before)
    end)

    local function gradients(how)
        for _, p in ipairs(model:parameters()) do p.grad = nil end
        wane.manual_seed(5)
        local p = programs.run { mode = 'backward', roots = { (model(x) ^ 2):sum() }, policy = how }
        local grads = {}
        for i, q in ipairs(model:parameters()) do grads[i] = q.grad end
        return table.concat(programs.bytes(grads)), p
    end

    it('gives the bits of saving, however late copies run', function()
        local want = gradients 'save_all'
        binding.check(C.wn_debug('poison', 1))
        for _, streams in ipairs { 'eager', 'lazy', 'random' } do
            for seed = 1, streams == 'random' and SEEDS or 1 do
                sim.schedule(streams, seed)
                local have, p = gradients(all)
                assert.is_true(want == have, ('%s %d'):format(streams, seed))
                assert.is_true(p.request ~= nil)
                programs.same(p, streams)
            end
        end
        binding.check(C.wn_debug('poison', 0))
        assert.is_false(sim.overrun())
    end)

    it('moves the bytes that the plan says, and counts them as the host\'s', function()
        sim.schedule 'lazy'
        local counted = sim.counters()
        gradients(all)
        local moved = sim.counters()
        assert.is_true(moved.to_host - counted.to_host >= 6 * 24 * 64 * 4)
        assert.is_true(wane.memory('cuda').away > 0)
    end)

    it('to disk is refused, and the next step works', function()
        local fine, why = pcall(gradients, wane.policy.of(function() return 'offload:disk' end))
        assert.is_false(fine)
        assert.equal('unsupported', why.code)
        assert.truthy(tostring(why):find('cuda has no way to the disk', 1, true))
        gradients(all)
    end)
end)
