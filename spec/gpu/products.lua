-- Measures products of the shapes of GPT-2 774M and of heavy layers. run.lua starts it twice, with and without
-- WANE_CUDA_LT=off, so that own kernels and the library are both in the report, the library beside PyTorch's cuBLAS
-- where it is.
local gpu = require 'spec.gpu.gpu'
local predicted = require 'spec.gpu.predicted'
local torch = require 'spec.gpu.torch'

-- dtype, m, n, k of y (m, n) = x (m, k) w (n, k)^T; of 8192 positions in the bf16 rows.
local shapes = gpu.size({
    { 'bf16', 8192, 8192, 8192 }, { 'bf16', 8192, 3840, 1280 }, { 'bf16', 8192, 1280, 1280 },
    { 'bf16', 8192, 5120, 1280 }, { 'bf16', 8192, 1280, 5120 }, { 'bf16', 8192, 50257, 1280 },
    { 'f32', 4096, 4096, 4096 }, { 'f32', 32, 4096, 4096 }, { 'f32', 64, 4096, 4096 }, { 'f32', 4096, 4096, 32 },
}, { { 'bf16', 64, 48, 32 }, { 'f32', 48, 32, 64 } })

local lines = {}
for i, s in ipairs(shapes) do lines[i] = table.concat(s, ' ') end
local theirs = predicted.has_library and torch.rates('products', table.concat(lines, '\n') .. '\n')
    or nil

for _, s in ipairs(shapes) do
    local dtype, m, n, k = unpack(s)
    local x, w = gpu.normal(m, k, { dtype = dtype }), gpu.normal(n, k, { dtype = dtype })
    local timed = gpu.time(function() return x:matmul(w, { transpose_b = true }) end, gpu.size(m * n > 2e8 and 4
        or 16, 2))
    local name = ('%s %d x %d x %d'):format(dtype, m, n, k)
    local best = theirs and theirs[('%s_%d_%d_%d'):format(dtype, m, n, k)]
    local peak = dtype == 'bf16' and 989 or 67
    if best then gpu.number(name .. ', PyTorch', best, 'TF/s') end
    local share = predicted.share(('product of %s'):format(dtype))
    gpu.number(name, 2 * m * n * k / timed.seconds / 1e12, 'TF/s', { predicted = share and share / 100 * peak,
        detail = timed.noise, least = best and 0.95 * best, aim = best and ('95 %% of PyTorch\'s %.1f'):format(best) })
end
gpu.finish()
