-- Run by device_spec with a library that has the device of spec/fixtures/device: trains one small model on the CPU and
-- on that device, and prints a fact a line, with tabs between its words. All numbers of the step are sums of a few
-- powers of two, so f32 rounds nothing, and any order of a sum gives the same bits.
-- usage: WANE_LIB=libwane.so luajit spec/support/second_device.lua
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local binding = require 'wane.ffi'
local C = binding.C

local function fact(name, ...) print(table.concat({ name, ... }, '\t')) end

-- The device has no kernels of fused ops.
binding.check(C.wn_debug('rewrite', 0))

local X = { { 1, 2 }, { 3, 0.5 }, { 1, -1 }, { 2, 0 } }
local Y = { { 1, 0, 3 }, { 0, 4, 0 }, { 1, -1, 0 }, { 2, 0, 1 } }

local function model(device)
    local function put(rows, is_parameter)
        return wane.tensor(rows, { device = device, requires_grad = is_parameter })
    end
    local first = put({ { 1, 2, 0.5, -1 }, { 2, -2, 1, 0.25 } }, true)
    local last = put({ { 1, 0, 1 }, { 0.5, 1, 0 }, { -1, 0, 2 }, { 0, 1, -0.5 } }, true)
    local x, y = put(X), put(Y)
    local function loss()
        local e = x:matmul(first):relu():matmul(last) - y
        return (e * e):sum()
    end
    return loss, { first, last }
end

local function train(device, policy)
    local loss, parameters = model(device)
    local opt = wane.optim.SGD(parameters, { lr = 1 / 64 })
    local m = wane.measure(loss, { optimizer = opt, lines = true, steps = 1, warmup = 0,
        policy = policy })
    local words = { ('%.17g'):format(m.loss) }
    for _, p in ipairs(parameters) do
        for _, row in ipairs(p:totable()) do
            for _, v in ipairs(row) do words[#words + 1] = ('%.17g'):format(v) end
        end
    end
    fact(('%s %s'):format(device, policy), tostring(m.exact), tostring(m.kinds.workspace), table.concat(words, ' '))
end

fact('devices', unpack(wane.devices()))
for _, device in ipairs { 'cpu', 'tiny' } do
    train(device, 'save_all')
    train(device, 'every(1)')
end

local function refusal(name, fn)
    local ok, message = pcall(fn)
    fact(name, tostring(ok), tostring(message):match '^[^\n]*')
end
local tiny = { device = 'tiny' }
refusal('no kernel', function() return wane.full({ 4 }, 2, tiny):tanh():totable() end)
refusal('offload', function()
    local weight = wane.tensor(wane.full({ 64, 64 }, 0.5):totable(), { device = 'tiny', requires_grad = true })
    local h = wane.full({ 64, 64 }, 2, tiny):matmul(weight):relu()
    return wane.optim.SGD({ weight }, { lr = 0.5 }):step((h * h):sum(), { policy = 'offload' })
end)
