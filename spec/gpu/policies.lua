-- Checks that gradients have the same bits under six policies, and that offloading gives them too.
local gpu = require 'spec.gpu.gpu'
local measure = require 'wane.plan.measure'
local networks = require 'spec.gpu.networks'
local wane = require 'wane'

local function compare(what, net)
    local want = measure.gradients(net.loss, 'save_all')
    gpu.fact(what .. ': gradients are the same bits twice', want == measure.gradients(net.loss, 'save_all'))
    for i = 2, #networks.policies do
        local have = measure.gradients(net.loss, networks.policies[i])
        gpu.fact(('%s, %s: the bits of saving'):format(what, networks.policies[i]), have == want,
            ('fingerprint %s, of save_all %s'):format(have, want))
    end
    local away = measure.gradients(net.loss, wane.policy.of(function() return 'offload' end))
    gpu.fact(what .. ', all offloaded: the bits of saving', away == want, away)
end

compare('heavy layers', networks.heavy(gpu.size(20, 4), gpu.size(1024, 64), gpu.size(64, 16)))
wane.memory.trim()
compare('GPT, autocast', networks.gpt(gpu.size('124M', 'tiny'), 2))
gpu.finish()
