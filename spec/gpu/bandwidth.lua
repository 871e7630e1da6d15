-- Measures the copy rate of the device, and each family of kernels that moves bytes as a share of it. Aim: 80 %.
local gpu = require 'spec.gpu.gpu'
local driver = require 'spec.gpu.driver'
local wane = require 'wane'

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
gpu.finish()
