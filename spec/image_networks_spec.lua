-- Trains random networks over images (spec/support/image_networks.lua) under every kind of policy: parameters, running
-- statistics and the bytes of a step must be what they are when everything is saved, bit by bit, and what the plan
-- predicts, to the byte.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local image_networks = require 'spec.support.image_networks'
local programs = require 'spec.support.programs'
local limits = require 'spec.support.limits'
local measure = require 'wane.plan.measure'
local binding = require 'wane.ffi'

local C, policy = binding.C, wane.policy
local SEEDS = 10
if helper.is_long then SEEDS = 30 end

-- Ways to write a step: function(net, loss of the whole step) -> loss. A way that does not suit a network says so by
-- the error that is named here.
local WAYS = {
    ['recompute_all'] = function(net) return net.optimizer:step(net.loss(), { policy = 'recompute_all' }) end,
    ['the least bytes'] = function(net) return net.optimizer:step(net.loss(), { policy = 'least' }) end,
    ['norms and relu again'] = function(net)
        return net.optimizer:step(net.loss(), { policy = policy.compose(
            policy.by_type { BatchNorm2d = 'recompute', optional = true },
            policy.by_op { relu = 'recompute', optional = true }) })
    end,
    ['a third each'] = function(net)
        return net.optimizer:step(net.loss(), { policy = function(r)
            local word = ({ 'save', 'recompute', 'offload' })[r.index % 3 + 1]
            return word == 'offload' and r.bytes < 4096 and 'save' or word -- less than a page is not moved
        end })
    end,
    ['half the way to the least'] = function(net)
        return net.optimizer:step(net.loss(), { budget = net.middle })
    end,
    ['three lines'] = function(net)
        net.optimizer:zero_grad()
        local loss = net.loss()
        loss:backward { policy = 'recompute_all' }
        net.optimizer:step()
        return loss
    end,
}

local function fingerprint(model)
    local list = {}
    for _, p in model:named_parameters() do list[#list + 1] = measure.fingerprint { p } end
    for _, b in model:named_buffers() do list[#list + 1] = measure.fingerprint { b } end
    return table.concat(list, ' ')
end

-- Returns the fingerprint after two steps, each planned before and run under a limit of the bytes predicted.
local function trained(seed, way)
    collectgarbage()
    collectgarbage()
    local before = limits.clean()
    local net = image_networks.make(seed)
    local what = ('network %d: %s'):format(seed, table.concat(net.kinds, ', '))
    local function plain() return net.optimizer:step(net.loss()) end
    local function step() return way(net) end
    net.middle = math.floor((wane.min_budget(plain) + wane.plan(plain).reserved) / 2)
    for k = 1, 2 do
        collectgarbage()
        collectgarbage()
        local p = assert(wane.plan(step))
        local bytes = math.max(p.reserved, p.first.reserved)
        local want = math.max(k == 1 and p.first.peak or 0, p.peak)
        if way == WAYS['three lines'] and p.first.cells > 0 then want = p.first.peak end
        wane.memory.trim()
        local ok, reserved, live = pcall(limits.limited, bytes, before, step)
        assert(ok, ('%s: step %d: %s'):format(what, k, tostring(reserved)))
        assert(live == want, ('%s: step %d held %d bytes, predicted %d'):format(what, k, live, want))
    end
    return fingerprint(net.model), what
end

describe('random networks over images', function()
    local saved = {}
    lazy_setup(function()
        for seed = 1, SEEDS do
            saved[seed] = trained(seed, function(net) return net.optimizer:step(net.loss()) end)
        end
    end)

    for name, way in pairs(WAYS) do
        it('train to the same bits in the bytes predicted: ' .. name, function()
            for seed = 1, SEEDS do
                local bits, what = trained(seed, way)
                assert(bits == saved[seed], what .. ': other bits than with everything saved')
            end
        end)
    end

    it('give the bits of separate ops in evaluation, in the bytes predicted', function()
        local fused = 0
        for seed = 1, 3 * SEEDS do
            local net = image_networks.make(seed)
            local what = ('network %d: %s'):format(seed, table.concat(net.kinds, ', '))
            net.optimizer:step(net.loss())
            net.model:eval()
            local function run()
                wane.manual_seed(seed) -- some dropouts are no part of the model
                local out = wane.no_grad(net.logits)
                return programs.run { mode = 'eval', roots = { out } }, measure.fingerprint { out }
            end
            binding.check(C.wn_debug('rewrite', 0))
            local ok, _, apart = pcall(run)
            binding.check(C.wn_debug('rewrite', 1))
            assert(ok, what .. ': ' .. tostring(_))
            local p, bits = run()
            for _, made in ipairs(programs.schedule(p)) do
                if made.op and made.op:find('conv2d+batch_norm', 1, true) then fused = fused + 1 end
            end
            assert(bits == apart, what .. ': other bits')
            assert(p.predicted.peak == p.measured.peak and p.predicted.reserved == p.measured.reserved,
                ('%s: held %d bytes, predicted %d'):format(what, p.measured.peak, p.predicted.peak))
        end
        assert.is_true(fused > SEEDS / 2, fused .. ' norms over convolutions')
    end)

    it('of which several differ in every step', function()
        local distinct = {}
        for seed = 1, SEEDS do distinct[saved[seed]] = true end
        local n = 0
        for _ in pairs(distinct) do n = n + 1 end
        assert.equal(SEEDS, n)
    end)
end)
