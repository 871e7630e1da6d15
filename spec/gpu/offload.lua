-- Measures offloading: bytes a second, and how long a step waits for transfers, beside what the plan says of the
-- machine's link.
local gpu = require 'spec.gpu.gpu'
local networks = require 'spec.gpu.networks'
local wane = require 'wane'
local binding = require 'wane.ffi'
local op = require 'wane.tensor.op'

local C = binding.C

local out, back = binding.new 'double[1]', binding.new 'double[1]'
local bytes = gpu.size(256 * 2 ^ 20, 2 ^ 20)
binding.check(C.wn_probe(op.device('cuda', 'offload'), 0, bytes, out, back))
gpu.number('to the host', bytes / out[0] / 1e9, 'GB/s')
gpu.number('from the host', bytes / back[0] / 1e9, 'GB/s')

local net = networks.gpt(gpu.size('124M', 'tiny'), gpu.size(8, 2))
local away = wane.policy.of(function() return 'offload' end)
local plan = wane.plan(function() net.optimizer:step(net.loss(), { policy = away }) end)
local saved = wane.measure(net.loss, { optimizer = net.optimizer, steps = gpu.size(5, 1) })
local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = away, steps = gpu.size(5, 1) })
gpu.fact('a step that offloads: predicted bytes are measured bytes', m.exact)
gpu.fact('it has moved bytes', m.moved > 0, m.moved)
gpu.number('bytes moved in a step', m.moved, 'B', { predicted = plan.moved })
gpu.number('seconds of a step without', saved.seconds * 1e3, 'ms')
gpu.number('seconds of a step with', m.seconds * 1e3, 'ms', { predicted = plan.seconds * 1e3 })
gpu.number('seconds of transfers', m.move_seconds / m.steps * 1e3, 'ms', { predicted = plan.move_seconds * 1e3 })
gpu.number('seconds waited for them', m.stall_seconds / m.steps * 1e3, 'ms', { predicted = plan.stall_seconds * 1e3,
    about = 0.2 })
gpu.number('share of transfers that nothing waits for', 100 * m.hidden, '%', { predicted = 100 * plan.hidden })
gpu.finish()
