-- Runs one small step of a GPT with everything in it, for compute-sanitizer, which watches the process. Its tools need
-- minutes for what takes milliseconds, so nothing here is large.
local gpu = require 'spec.gpu.gpu'
local networks = require 'spec.gpu.networks'
local wane = require 'wane'
local array = require 'spec.cases.array'

local net = networks.gpt('tiny', 2)
wane.measure(net.loss, { optimizer = net.optimizer, steps = 1, warmup = 0, policy = 'every(1)' })
local m = wane.measure(net.loss, { optimizer = net.optimizer, steps = 1, warmup = 0, policy = wane.policy.of(function()
    return 'offload'
end) })
gpu.fact('a small step has run', m.loss == m.loss and m.exact)
local a, b = gpu.normal(160, 96, { dtype = 'bf16' }), gpu.normal(96, 144, { dtype = 'bf16' })
wane.eval(a:matmul(b))
gpu.fact('a product by tensor cores has run', true)
-- T is no multiple of 4 or of a tile, so that masks of dropout begin inside a quad.
for _, how in ipairs { { 64, 1 }, { 128, 0 } } do
    local size, causal = unpack(how)
    local attrs = { i = { 2, 1, causal }, f = { 0.1, size ^ -0.5 } }
    local qkv, dy = gpu.normal(1, 131, 4 * size, { dtype = 'bf16' }), gpu.normal(1, 131, 2 * size, { dtype = 'bf16' })
    local y = wane.eval(array.record('attention', { qkv }, attrs))
    wane.eval(array.record('attention_grad', { dy, qkv, y }, attrs))
end
gpu.fact('attention by tensor cores with dropout has run', true)
gpu.finish()
