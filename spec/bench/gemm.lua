-- Matrix products against the machine's own peak, probed in the same run, alternating with it.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local C = require('wane.ffi').C
local probe = common.probe()
local threads = C.wn_threads()

local skinny, square = 2 * 32 * 4096 ^ 2, 2 * 1024 ^ 3
local function nn(a, b) return a:matmul(b) end
local function nt(a, b) return a:matmul(b, { transpose_b = true }) end
local function tn(a, b) return a:matmul(b, { transpose_a = true }) end

local shapes = { -- name, a, b, product, FLOPs
    { 'y = x W^T, 32 x 4096 x 4096', { 32, 4096 }, { 4096, 4096 }, nt, skinny },
    { 'dX = dY W, 32 x 4096 x 4096', { 32, 4096 }, { 4096, 4096 }, nn, skinny },
    { 'dW = dY^T X, 4096 x 32 x 4096', { 32, 4096 }, { 32, 4096 }, tn, skinny },
    { '1024 x 1024 x 1024', { 1024, 1024 }, { 1024, 1024 }, nn, square },
}

local programs = require 'spec.support.programs'
local rows = {}
for _, shape in ipairs(shapes) do
    local a, b = wane.randn(unpack(shape[2])):retain(), wane.randn(unpack(shape[3])):retain()
    wane.eval(a, b)
    local best, peaks = {}, {}
    for i = 1, 12 do
        peaks[i] = probe.gflops(threads)
        -- One row is the result, so that the product itself lies in the arena: its pages were touched before.
        local p = programs.run { mode = 'eval', roots = { shape[4](a, b):narrow(1, 1, 1) } }
        best[i] = shape[5] / p.measured.seconds * 1e-9
    end
    local rate, peak = common.median(best), common.median(peaks)
    rows[#rows + 1] = { shape[1], ('%.0f'):format(rate), ('%.0f'):format(peak), ('%.0f %%'):format(100 * rate / peak) }
end
common.table({ 'product, ' .. threads .. ' threads', 'GFLOP/s', 'peak, GFLOP/s', 'share' }, rows)
print(('memory: %.1f GB/s read'):format(probe.read(threads, 2 ^ 30)))
