-- Prints the bits of a few long sums and of a training; threads_spec runs it in a process of its own.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local fingerprint = require('wane.plan.measure').fingerprint
local programs = require 'spec.support.programs'

wane.manual_seed(3)
local x = wane.randn(300000):retain()
print('sum', ('%.17g'):format(x:sum():item()), ('%.17g'):format((x * x):mean():item()))
local double = wane.randn(400000, { dtype = 'f64' }):retain() -- whose order of addition shows in the last bits
print('sum f64', ('%.17g'):format(double:sum():item()), ('%.17g'):format((double * double):mean():item()))
local wide = wane.randn(257, 1031):retain()
print('rows', fingerprint { wane.eval(wide:sum(2)) }, fingerprint { wane.eval(wide:sum(1)) })
print('softmax', fingerprint { wane.eval(wide:softmax(-1)) })

local spots = wane.randint(0, 40, { 257 }):retain()
local into = require('wane.tensor.op').record('embedding_grad', { wide, spots }, { i = { 60 } })
print('table', fingerprint { wane.eval(into) })

local record = require('wane.tensor.op').record
local image, channels = wane.randn(3, 20, 40, 41):to('f64'):retain(), wane.randn(20):to('f64'):retain()
local list = { wane.eval(record('batch_norm_sums', { image, image, channels, channels })) }
for _, groups in ipairs { 0, 4 } do
    local mean = record('channel_mean', { image }, { i = { groups } })
    list[#list + 1] = wane.eval(record('channel_rstd', { image, mean }, { i = { groups }, f = { 1e-5 } }))
end
print('channels', fingerprint(list))

local half = wide:to 'bf16'
local mixed = half:gelu() * half + half:softmax(-1) + half:matmul(half, { transpose_a = true }):sum()
print('bf16', fingerprint { wane.eval(mixed:to 'f32') }, fingerprint { wane.eval(half:sum(1):to 'f32') })

local model = programs.mlp(96, 4, 0.2)
local opt = wane.optim.Adam(model:parameters(), { lr = 1e-3 })
local batch = wane.randn(64, 96):retain()
for _ = 1, 5 do opt:step(model(batch):sum(), { policy = 'every(2)' }) end
print('trained', fingerprint(model:parameters()))

-- Threads take one key head each where there are many; they share the queries of a single one.
local attended = {}
for _, case in ipairs { { 3, 2, 'f32' }, { 1, 1, 'f32' }, { 1, 1, 'bf16' } } do
    local layer = wane.nn.Attention(40, 4, { causal = true, dropout = 0.1, kv_heads = case[2], dtype = case[3] })
    local long = wane.nn.Parameter(wane.randn(case[1], 411, 40, { dtype = case[3] }))
    local y = layer(long):retain()
    local squares = (y ^ 2):sum()
    squares:backward()
    for _, t in ipairs { y, long.grad } do attended[#attended + 1] = wane.eval(t:to 'f32') end
end
print('attention', fingerprint(attended))
for _ = 1, 3 do opt:step(wane.autocast('bf16', function() return model(batch):sum() end)) end
print('trained in bf16', fingerprint(model:parameters()))
print('threads', require('wane.plan.measure').threads())
