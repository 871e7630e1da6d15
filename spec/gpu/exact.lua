-- Checks bytes: what a plan predicts is what its run measures, under every policy; and what the ledger says is taken
-- from the device is what the driver says, but for the rounding of allocations.
local gpu = require 'spec.gpu.gpu'
local driver = require 'spec.gpu.driver'
local networks = require 'spec.gpu.networks'
local wane = require 'wane'

local MiB = 2 ^ 20
local ROUNDING = 2 * MiB -- of an allocation or a segment

-- ---- the ledger beside the driver: first, while nothing is idle ----------------------------------------------------
-- Makes the driver's context, and has libraries take what they keep.
do
    local warm = networks.heavy(1, gpu.size(4096, 64), gpu.size(32, 8))
    wane.measure(warm.loss, { optimizer = warm.optimizer, steps = 1, warmup = 0 })
end
wane.memory.trim()
local base, counted = driver.taken(), wane.memory('cuda').reserved
local model = networks.heavy(gpu.size(20, 4), gpu.size(4096, 64), gpu.size(32, 8))
for _ = 1, 2 do wane.measure(model.loss, { optimizer = model.optimizer, steps = 1, warmup = 0 }) end
local taken, reserved = driver.taken() - base, wane.memory('cuda').reserved - counted
gpu.number('heavy layers: bytes that the ledger has reserved', reserved, 'B')
gpu.number('heavy layers: bytes that the driver has given', taken, 'B')
local most = ROUNDING * (2 * #model.model:parameters() + 8)
gpu.fact('the driver has given what the ledger says, and at most 2 MiB more for each allocation',
    taken >= reserved and taken - reserved <= most, ('%d more than %d'):format(taken - reserved, reserved))
gpu.number('more than the ledger says', math.max(0, taken - reserved) / MiB, 'MiB', { most = most / MiB })
model = nil -- luacheck: ignore 311
wane.memory.trim()
gpu.number('kept when all is freed', math.max(0, driver.taken() - base) / MiB, 'MiB', { most = 64 })

-- ---- the plan beside the ledger -----------------------------------------------------------------------------------
local gpt = networks.gpt(gpu.size('124M', 'tiny'), gpu.size(2, 2))
for _, policy in ipairs(networks.policies) do
    for _, is_joint in ipairs { false, true } do
        local m = wane.measure(gpt.loss, { optimizer = gpt.optimizer, policy = policy, fused = is_joint, steps = 1,
            warmup = 0 })
        gpu.fact(('GPT, %s, %s: predicted bytes are measured bytes'):format(policy, is_joint and 'one program'
            or 'backward, then the step'), m.exact, ('peak %d, measured %d; reserved %d, measured %d'):format(
            m.predicted_peak, m.peak, m.predicted_reserved, m.reserved))
    end
end
gpu.finish()
