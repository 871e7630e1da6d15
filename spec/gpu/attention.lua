-- Measures attention in bf16, forward and gradient, as a share of the tensor rate of the data sheet. FLOP: 4 T^2 hd a
-- head forward and 10 T^2 hd backward, half of them where it is causal. Aims at T = 2048 and heads of 128: 40 % and
-- 30 %. Beside PyTorch's scaled_dot_product_attention where it is.
local gpu = require 'spec.gpu.gpu'
local array = require 'spec.cases.array'
local torch = require 'spec.gpu.torch'
local wane = require 'wane'

local PEAK = 989e12 -- of an H200's data sheet, dense bf16

local shapes = gpu.size({ { 8, 20, 64, 1024 }, { 4, 16, 64, 2048 }, { 4, 16, 128, 2048 }, { 1, 32, 128, 8192 } },
    { { 1, 2, 64, 40 } })
local lines = {}
for i, s in ipairs(shapes) do lines[i] = table.concat(s, ' ') end
local theirs = torch.rates('attention', table.concat(lines, '\n') .. '\n') or {}

for _, s in ipairs(shapes) do
    local batch, heads, size, t = unpack(s)
    local attrs = { i = { heads, heads, 1 }, f = { 0, size ^ -0.5 } }
    local qkv = gpu.normal(batch, t, 3 * heads * size, { dtype = 'bf16' })
    local dy = gpu.normal(batch, t, heads * size, { dtype = 'bf16' })
    local y = wane.eval(array.record('attention', { qkv }, attrs))
    local square = batch * heads * t * t * size / 2
    local is_aim = t == 2048 and size == 128
    local name = ('B %d, %d heads of %d, T = %d, causal'):format(batch, heads, size, t)
    local key = table.concat(s, '_')
    if theirs[key] then gpu.number('attention, ' .. name .. ', PyTorch', theirs[key], 'TF/s') end
    local grad = theirs['grad_' .. key]
    if grad then gpu.number('its gradient, ' .. name .. ', PyTorch', grad, 'TF/s') end
    local forward = gpu.time(function() return array.record('attention', { qkv }, attrs) end, gpu.size(4, 2))
    gpu.number('attention, ' .. name, 4 * square / forward.seconds / 1e12, 'TF/s',
        { least = is_aim and 0.4 * PEAK / 1e12, detail = forward.noise })
    gpu.number('    of the tensor rate', 400 * square / forward.seconds / PEAK, '%')
    local backward = gpu.time(function() return array.record('attention_grad', { dy, qkv, y }, attrs) end,
        gpu.size(4, 2))
    gpu.number('its gradient, ' .. name, 10 * square / backward.seconds / 1e12, 'TF/s',
        { least = is_aim and 0.3 * PEAK / 1e12, detail = backward.noise })
    gpu.number('    of the tensor rate', 1000 * square / backward.seconds / PEAK, '%')
end
gpu.finish()
