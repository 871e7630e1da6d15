-- Checks bytes: what a plan predicts is what its run measures, under every policy; and what the ledger says is taken
-- from the device is what the driver says, but for the rounding of allocations.
local gpu = require 'spec.gpu.gpu'
local driver = require 'spec.gpu.driver'
local ledger = require 'spec.gpu.ledger'
local networks = require 'spec.gpu.networks'
local system = require 'wane.system'
local wane = require 'wane'

local MiB = 2 ^ 20
local ROUNDING = 2 * MiB -- of an allocation or a segment

-- ---- the ledger beside the driver: first, while nothing is idle ----------------------------------------------------
local function train(depth, steps)
    local net = networks.heavy(depth, gpu.size(4096, 64), gpu.size(32, 8))
    for _ = 1, steps do wane.measure(net.loss, { optimizer = net.optimizer, steps = 1, warmup = 0 }) end
    return net
end

train(1, 1) -- makes the driver's context, and has libraries take what they keep
local depth = gpu.size(20, 4)
local most = ROUNDING * (2 * 2 * depth + 8) -- a weight and a bias a layer, each with a gradient
local seen = ledger.compare { taken = driver.taken, reserved = function() return wane.memory('cuda').reserved end,
    use = function() return train(depth, 2) end, free = wane.memory.trim, most = most,
    rest = function() if not gpu.is_simulated then system.sleep(0.02) end end }
gpu.number('heavy layers: bytes that the ledger has reserved', seen.reserved, 'B')
if seen.is_alone then
    gpu.number('heavy layers: bytes that the driver has given', seen.taken, 'B')
    gpu.fact('the driver has given what the ledger says, and at most 2 MiB more for each allocation', seen.fits,
        ('%d more than %d'):format(seen.taken - seen.reserved, seen.reserved))
    gpu.number('more than the ledger says', math.max(0, seen.taken - seen.reserved) / MiB, 'MiB',
        { most = most / MiB })
    gpu.number('kept when all is freed', math.max(0, seen.kept) / MiB, 'MiB', { most = 64 })
else
    gpu.note('the driver has given what the ledger says', 'left out: others use this GPU, whose free bytes changed at '
        .. 'rest')
end

-- ---- the plan beside the ledger -----------------------------------------------------------------------------------
local gpt = networks.gpt(gpu.size('124M', 'tiny'), gpu.size(2, 2))
for _, policy in ipairs(networks.policies) do
    for _, is_joint in ipairs { false, true } do
        local m = wane.measure(gpt.loss, { optimizer = gpt.optimizer, policy = policy, lines = not is_joint, steps = 1,
            warmup = 0 })
        gpu.fact(('GPT, %s, %s: predicted bytes are measured bytes'):format(policy, is_joint and 'one program'
            or 'backward, then the step'), m.exact, ('peak %d, measured %d; reserved %d, measured %d'):format(
            m.predicted_peak, m.peak, m.predicted_reserved, m.reserved))
    end
end
gpu.finish()
