-- Checks convolutions and their gradients against f64, which own kernels compute, and measures those of ResNet-50.
-- run.lua starts it twice, the second time with WANE_CUDA_DNN=auto, so that own kernels and cuDNN are both in the
-- report, whose first row says what was found.
local gpu = require 'spec.gpu.gpu'
local array = require 'spec.cases.array'
local binding = require 'wane.ffi'
local wane = require 'wane'

local TOLERANCE = { f32 = 1e-5, bf16 = 2e-2 }

-- images n, inputs ci, outputs co, groups, side of the image, kernel, stride, pad
local small = gpu.size({ { 4, 64, 64, 1, 28, 3, 1, 1 }, { 4, 64, 128, 1, 28, 3, 2, 1 }, { 4, 256, 64, 1, 14, 1, 1, 0 },
    { 4, 3, 64, 1, 32, 7, 2, 3 }, { 4, 64, 64, 64, 14, 3, 1, 1 }, { 4, 64, 64, 4, 14, 3, 1, 1 } },
    { { 2, 8, 16, 1, 6, 3, 1, 1 }, { 2, 9, 8, 1, 5, 1, 1, 0 } })
local large = gpu.size({ { 32, 64, 64, 1, 56, 3, 1, 1 }, { 32, 256, 256, 1, 14, 3, 1, 1 },
    { 32, 1024, 256, 1, 14, 1, 1, 0 }, { 32, 3, 64, 1, 224, 7, 2, 3 } }, { { 2, 8, 16, 1, 6, 3, 1, 1 } })

local function pair(v) return v * 2 ^ 32 + v end

-- Returns op -> function that records it in a dtype, its FLOP, and x, w and dy, which may be given.
local function calls(s, dtype, given)
    local n, ci, co, groups, side, k, stride, pad = unpack(s)
    local out = math.floor((side + 2 * pad - k) / stride) + 1
    local x, w, dy = unpack(given or { gpu.normal(n, ci, side, side, { dtype = dtype }),
        gpu.normal(co, ci / groups, k, k, { dtype = dtype }), gpu.normal(n, co, out, out, { dtype = dtype }) })
    local function attrs(size)
        return { i = { pair(stride), pair(pad), pair(1), groups, size and pair(size) or 0 }, n = 5 }
    end
    return {
        conv2d = function() return array.record('conv2d', { x, w }, attrs()) end,
        conv2d_dx = function() return array.record('conv2d_dx', { dy, w }, attrs(side)) end,
        conv2d_dw = function() return array.record('conv2d_dw', { dy, x }, attrs(k)) end,
    }, 2 * n * out * out * co * ci / groups * k * k, { x, w, dy }
end

local function name_of(s, dtype)
    return ('%s, %d x %d x %d x %d, %d outputs, %d groups, kernel %d, stride %d'):format(dtype, s[1], s[2], s[5], s[5],
        s[3], s[4], s[6], s[7])
end

local OPS = { 'conv2d', 'conv2d_dx', 'conv2d_dw' }
gpu.note('the libraries', binding.text(binding.C.wn_cuda()))
for _, dtype in ipairs { 'f32', 'bf16' } do
    for _, s in ipairs(small) do
        local have, _, given = calls(s, dtype)
        for i, t in ipairs(given) do given[i] = wane.eval(t:to 'f64') end
        local want = calls(s, 'f64', given)
        for _, op in ipairs(OPS) do
            local fine, off = pcall(function()
                local a, b = have[op]():to 'f64', want[op]()
                return ((a - b):abs():max() / b:abs():max()):item()
            end)
            gpu.fact(op .. ' of ' .. name_of(s, dtype), fine and off <= TOLERANCE[dtype], off)
        end
    end
    for _, s in ipairs(large) do
        local make, flop = calls(s, dtype)
        for _, op in ipairs(OPS) do
            local timed = gpu.time(make[op], gpu.size(8, 2))
            gpu.number(op .. ' of ' .. name_of(s, dtype), flop / timed.seconds / 1e12, 'TF/s', { detail = timed.noise })
        end
    end
end
gpu.finish()
