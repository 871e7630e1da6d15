-- Measures products of the shapes of GPT-2 774M and of heavy layers. run.lua starts it twice, with and without
-- WANE_CUDA_LT=off, so that own kernels and the library are both in the report, the library beside PyTorch's cuBLAS
-- where it is.
local gpu = require 'spec.gpu.gpu'
local torch = require 'spec.gpu.torch'

-- dtype, m, n, k of y (m, n) = x (m, k) w (n, k)^T; of 8192 positions in the bf16 rows. `as`: 'dx' of x (m, k)
-- w (k, n), 'dw' of x (k, m)^T w (k, n), as in the gradients of logits, whose rows of 50257 lie on no 16 bytes.
local shapes = gpu.size({
    { 'bf16', 8192, 8192, 8192 }, { 'bf16', 8192, 3840, 1280 }, { 'bf16', 8192, 1280, 1280 },
    { 'bf16', 8192, 5120, 1280 }, { 'bf16', 8192, 1280, 5120 }, { 'bf16', 8192, 50257, 1280 },
    { 'bf16', 8192, 1280, 50257, as = 'dx' }, { 'bf16', 50257, 1280, 8192, as = 'dw' },
    { 'f32', 4096, 4096, 4096 }, { 'f32', 32, 4096, 4096 }, { 'f32', 64, 4096, 4096 }, { 'f32', 4096, 4096, 32 },
}, {
    { 'bf16', 64, 48, 32 }, { 'bf16', 64, 48, 33, as = 'dx' }, { 'bf16', 33, 48, 64, as = 'dw' }, { 'f32', 48, 32, 64 },
})

local lines = {}
for _, s in ipairs(shapes) do
    if not s.as then lines[#lines + 1] = table.concat(s, ' ') end
end
local theirs = gpu.has_cublaslt() and torch.rates('products', table.concat(lines, '\n') .. '\n') or nil

for _, s in ipairs(shapes) do
    local dtype, m, n, k = unpack(s)
    local transposes = { transpose_a = s.as == 'dw', transpose_b = not s.as }
    local x = gpu.normal(s.as == 'dw' and k or m, s.as == 'dw' and m or k, { dtype = dtype })
    local w = gpu.normal(s.as and k or n, s.as and n or k, { dtype = dtype })
    local timed = gpu.time(function() return x:matmul(w, transposes) end, gpu.size(m * n * k > 4e11 and 4 or 16, 2))
    local name = ('%s %d x %d x %d%s'):format(dtype, m, n, k, s.as and ', as ' .. s.as or '')
    local best = theirs and not s.as and theirs[('%s_%d_%d_%d'):format(dtype, m, n, k)]
    if best then gpu.number(name .. ', PyTorch', best, 'TF/s') end
    gpu.number(name, 2 * m * n * k / timed.seconds / 1e12, 'TF/s', { detail = timed.noise,
        least = best and 0.95 * best, aim = best and ('95 %% of PyTorch\'s %.1f'):format(best) })
end
gpu.finish()
