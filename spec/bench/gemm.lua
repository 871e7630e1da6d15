-- Matrix products against the machine's own peak, probed in the same run, alternating with it
-- (a share is the median of a product over the probe beside it): f32, then bf16 against
-- the peak of bf16. `luajit spec/bench/gemm.lua bf16` (or f32) for one of them.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local probe = common.probe()
local threads = binding.C.wn_threads()

local function nn(a, b) return a:matmul(b) end
local function nt(a, b) return a:matmul(b, { transpose_b = true }) end
local function tn(a, b) return a:matmul(b, { transpose_a = true }) end

local shapes = {} -- name, a, b, product, FLOPs
local function add(name, a, b, product, m, n, k)
    shapes[#shapes + 1] = { ('%s, %d x %d x %d'):format(name, m, n, k), a, b, product, 2 * m * n * k }
end

-- A layer of `rows` rows, n outputs, k inputs: its forward and its two gradients.
local function layer(rows, n, k)
    add('y = x W^T', { rows, k }, { n, k }, nt, rows, n, k)
    add('dX = dY W', { rows, n }, { n, k }, nn, rows, k, n)
    add('dW = dY^T X', { rows, n }, { rows, k }, tn, n, k, rows)
end

layer(32, 4096, 4096)
add('a b', { 1024, 1024 }, { 1024, 1024 }, nn, 1024, 1024, 1024)
layer(2048, 1536, 384)
layer(2048, 384, 1536)
layer(2048, 1152, 384)

local function operand(dtype, shape)
    if dtype == 'f32' then return wane.randn(unpack(shape)):retain() end
    local n = shape[1] * shape[2]
    local halves, state = binding.array('bf16', n), 1
    for k = 0, n - 1 do
        state = (state * 1103515245 + 12345) % 2147483648
        halves[k] = 0x3d00 + math.floor(state / 65536) % 256 + (state % 8192 < 4096 and 0x8000 or 0)
    end
    return wane.from(halves, shape, 'bf16'):retain()
end

local function table_of(dtype, peak_of)
    local rows = {}
    for _, shape in ipairs(shapes) do
        local a, b = operand(dtype, shape[2]), operand(dtype, shape[3])
        wane.eval(a, b)
        local rates, peaks, shares = {}, {}, {}
        for i = 1, 16 do
            peaks[i] = peak_of(threads)
            -- One row is the result, so that the product itself lies in the arena: its pages were touched before.
            local p = programs.run { mode = 'eval', roots = { shape[4](a, b):narrow(1, 1, 1) } }
            rates[i] = shape[5] / p.measured.seconds * 1e-9
            shares[i] = rates[i] / peaks[i]
        end
        local rate, peak = common.median(rates), common.median(peaks)
        rows[#rows + 1] = { shape[1], ('%.0f'):format(rate), ('%.0f'):format(peak),
            ('%.0f %%'):format(100 * common.median(shares)), ('%.0f'):format(rates[#rates]) }
    end
    common.table({ dtype .. ' product, ' .. threads .. ' threads', 'GFLOP/s', 'peak, GFLOP/s', 'share', 'best' }, rows)
end

local one = arg[1]
if not one or one == 'f32' then table_of('f32', probe.gflops) end
if not one or one == 'bf16' then
    if probe.gflops_bf16(1) > 0 then table_of('bf16', probe.gflops_bf16)
    else print 'bf16: this processor has no instruction for it' end
end
print(('memory: %.1f GB/s read'):format(probe.read(threads, 2 ^ 30)))
