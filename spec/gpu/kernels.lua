-- Measures kernels: bytes a second as a share of the device's copies, products, convolutions and attention as a share
-- of the data sheet's rates, each by its name: `luajit spec/gpu/kernels.lua NAME` (gpu.lua beside it says how).
local gpu = require 'spec.gpu.gpu'
local array = require 'spec.cases.array'
local binding = require 'wane.ffi'
local driver = require 'spec.gpu.driver'
local wane = require 'wane'

local checks = {}

-- Measures the copy rate of the device, and each family of kernels that moves bytes as a share of it. Aim: 80 %.
function checks.bandwidth()
    local rows, columns = gpu.size(32768, 16), gpu.size(4096, 64)
    local wide = { a = gpu.normal(rows, columns), b = gpu.normal(rows, columns) }
    local half = { a = wane.eval(wide.a:to 'bf16'), b = wane.eval(wide.b:to 'bf16') }

    local copy
    do
        local timed = gpu.time(function() return wane.cat({ wide.a, wide.b }, 1) end, gpu.size(4, 2))
        copy = driver.copy_rate(gpu.now)
        if copy then gpu.number("copies, the driver's", copy / 1e9, 'GB/s') end
        gpu.number("copies, Wane's cat", timed.bytes / timed.seconds / 1e9, 'GB/s', { detail = timed.noise })
        copy = math.max(copy or 0, timed.bytes / timed.seconds)
    end

    -- Adds the row of a kernel: its share of the copy rate.
    local function add(name, make, count)
        local timed = gpu.time(make, count)
        local rate = timed.bytes / timed.seconds
        gpu.number(name, 100 * rate / copy, '% copy', { least = 80,
            detail = ('%.0f GB/s%s'):format(rate / 1e9, timed.noise and ', ' .. timed.noise or '') })
    end

    local few = gpu.size(4, 2)
    for _, kind in ipairs { { 'f32', wide }, { 'bf16', half } } do
        local dtype, x = kind[1], kind[2]
        local bias, norm = gpu.normal(columns, { dtype = dtype }), wane.nn.LayerNorm(columns, { dtype = dtype })
        wane.eval(norm(x.a))
        add('add, ' .. dtype, function() return x.a + x.b end, few)
        add('gelu, ' .. dtype, function() return x.a:gelu() end, few)
        add('add with a row, ' .. dtype, function() return x.a + bias end, few)
        add('softmax, ' .. dtype, function() return x.a:softmax(-1) end, few)
        add('layernorm, ' .. dtype, function() return norm(x.a) end, few)
        add('sum of rows, ' .. dtype, function() return x.a:sum(2) end, few)
        add('sum of columns, ' .. dtype, function() return x.a:sum(1) end, few)
        add('transpose, ' .. dtype, function() return x.a:transpose(1, 2) end, few)
    end
    add('cast to bf16', function() return wide.a:to 'bf16' end, few)
    add('cast to f32', function() return half.a:to 'f32' end, few)
    add('normal numbers', function() return wane.randn(rows, columns) end, few)

    local ids = wane.eval(wane.randint(rows, { rows }))
    add('embedding, f32', function() return wide.a:index_select(1, ids) end, few)
end

-- Measures products of the shapes of GPT-2 774M and of heavy layers. run.lua starts it twice, with and without
-- WANE_CUDA_LT=off, so that own kernels and the library are both in the report, the library beside PyTorch's cuBLAS
-- where it is.
function checks.products()
    -- dtype, m, n, k of y (m, n) = x (m, k) w (n, k)^T; of 8192 positions in the bf16 rows. `as`: 'dx' of x (m, k)
    -- w (k, n), 'dw' of x (k, m)^T w (k, n), as in the gradients of logits, whose rows of 50257 lie on no 16 bytes.
    local shapes = gpu.size({
        { 'bf16', 8192, 8192, 8192 }, { 'bf16', 8192, 3840, 1280 }, { 'bf16', 8192, 1280, 1280 },
        { 'bf16', 8192, 5120, 1280 }, { 'bf16', 8192, 1280, 5120 }, { 'bf16', 8192, 50257, 1280 },
        { 'bf16', 8192, 1280, 50257, as = 'dx' }, { 'bf16', 50257, 1280, 8192, as = 'dw' },
        { 'f32', 4096, 4096, 4096 }, { 'f32', 32, 4096, 4096 }, { 'f32', 64, 4096, 4096 }, { 'f32', 4096, 4096, 32 },
    }, {
        { 'bf16', 64, 48, 32 }, { 'bf16', 64, 48, 33, as = 'dx' }, { 'bf16', 33, 48, 64, as = 'dw' },
        { 'f32', 48, 32, 64 },
    })

    local lines = {}
    for _, s in ipairs(shapes) do
        if not s.as then lines[#lines + 1] = table.concat(s, ' ') end
    end
    local theirs = gpu.has_cublaslt() and gpu.torch_rates('products', table.concat(lines, '\n') .. '\n') or nil

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
end

-- ---- convolutions ---------------------------------------------------------------------------------------------------
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

-- Checks convolutions and their gradients against f64, which own kernels compute, and measures those of ResNet-50.
-- run.lua starts it twice, the second time with WANE_CUDA_DNN=auto, so that own kernels and cuDNN are both in the
-- report, whose first row says what was found.
function checks.convolutions()
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
                gpu.number(op .. ' of ' .. name_of(s, dtype), flop / timed.seconds / 1e12, 'TF/s',
                    { detail = timed.noise })
            end
        end
    end
end

-- Measures attention in bf16, forward and gradient, as a share of the tensor rate of the data sheet. FLOP: 4 T^2 hd a
-- head forward and 10 T^2 hd backward, half of them where it is causal. Aims at T = 2048 and heads of 128: 40 % and
-- 30 %. Beside PyTorch's scaled_dot_product_attention where it is.
function checks.attention()
    local shapes = gpu.size({ { 8, 20, 64, 1024 }, { 4, 16, 64, 2048 }, { 4, 16, 128, 2048 }, { 1, 32, 128, 8192 } },
        { { 1, 2, 64, 40 } })
    local lines = {}
    for i, s in ipairs(shapes) do lines[i] = table.concat(s, ' ') end
    local theirs = gpu.torch_rates('attention', table.concat(lines, '\n') .. '\n') or {}

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
            { least = is_aim and 0.4 * gpu.PEAK / 1e12, detail = forward.noise })
        gpu.number('    of the tensor rate', 400 * square / forward.seconds / gpu.PEAK, '%')
        local backward = gpu.time(function() return array.record('attention_grad', { dy, qkv, y }, attrs) end,
            gpu.size(4, 2))
        gpu.number('its gradient, ' .. name, 10 * square / backward.seconds / 1e12, 'TF/s',
            { least = is_aim and 0.3 * gpu.PEAK / 1e12, detail = backward.noise })
        gpu.number('    of the tensor rate', 1000 * square / backward.seconds / gpu.PEAK, '%')
    end
end

gpu.run(checks)
