-- Measures forward and backward of nn.LSTM and nn.GRU in f32, one layer and the sum of the squares of its results,
-- beside PyTorch's, which cuDNN computes. A step of time is a product with the state and elementwise ops, so the count
-- of launches, not the FLOP, is what takes time.
local gpu = require 'spec.gpu.gpu'
local torch = require 'spec.gpu.torch'
local wane = require 'wane'

local steps, batch, inputs, hidden = unpack(gpu.size({ 64, 64, 512, 512 }, { 3, 2, 8, 8 }))
local rates, why = torch.rates(('recurrent %d %d %d %d'):format(steps, batch, inputs, hidden))

for _, kind in ipairs { 'LSTM', 'GRU' } do
    local name = ('%s, T = %d, B = %d, %d -> %d, f32'):format(kind, steps, batch, inputs, hidden)
    local theirs = torch.rows(name .. ', PyTorch', rates, kind:lower() .. '_', why)
    wane.manual_seed(1)
    local layer, x = wane.nn[kind](inputs, hidden), gpu.normal(steps, batch, inputs)
    local function loss() return (layer(x) ^ 2):sum() end
    local m = wane.measure(loss, { steps = gpu.size(10, 1), warmup = gpu.size(3, 0) })
    gpu.fact(name .. ': predicted bytes are measured bytes', m.exact)
    gpu.number(name .. ': peak', m.peak, 'B', { predicted = m.predicted_peak, most = theirs and theirs.peak })
    gpu.number(name, m.seconds * 1e3, 'ms', { most = theirs and theirs.ms, detail = ('%d captured graphs'):format(
        m.graphs) })
    gpu.number(name .. ': with recording and planning', m.wall * 1e3, 'ms')
end
gpu.finish()
