-- First values of parameters that each rank has a range of, as one process and as many: prints numbers that depend on
-- their bits, and how far predicted bytes are from measured ones. spec/ranks_place_spec.lua compares what they print.
--
--   luajit spec/support/ranks_first.lua ROOT LIMIT OF BYTES [RANKS ON EACH MACHINE]
package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;'):format(arg[1], arg[1]) .. package.path
local wane = require 'wane'
local dist, nn = wane.dist, wane.nn
dist.start { timeout = 60, per_node = tonumber(arg[3]) }
wane.manual_seed(5)

local function say(fmt, ...) io.stdout:write(('%d> ' .. fmt .. '\n'):format(dist.rank, ...)) end

local D = 256

-- Returns a model of the first values that scripts give.
local function model()
    local list = {}
    for k = 1, 6 do list[k] = nn.Linear(D, D, { bias = false, dtype = 'bf16' }) end
    nn.init.constant(list[3].weight, 0.01)
    nn.init.normal(list[2].weight, 0.04)
    list[4].weight = nn.Parameter((wane.randn(D, D) * 0.04):to 'bf16')
    list[5].weight = nn.Parameter((1 - wane.rand(D / 2, 2 * D):reshape(D, D) / 20):to 'bf16')
    list[6].weight = nn.Parameter((0.5 + wane.zeros(D, D)):to 'bf16')
    return nn.Sequential(list)
end

local function number_of(t)
    t = t:to 'f32'
    return t:sum():item() + (t * t):sum():item()
end

local net = model()
dist.place(net, wane.optim.SGD(net:parameters(), { lr = 0.1 }), 'shard')
local x = wane.eval(wane.ones(4, D, { dtype = 'bf16' }))
if dist.size > 1 then wane.memory.limit(tonumber(arg[2])) end
say('%.17g', net(x):to('f32'):sum():item())
wane.memory.limit(nil)
for k = 1, 5 do say('%.17g', number_of(net[k].weight)) end
net[1].weight:assign((wane.randn(D, D) * 0.04):to 'bf16')
say('%.17g', number_of(net[1].weight))

local trained = nn.Sequential { nn.Linear(64, 300), nn.Linear(300, 300) }
local opt = wane.optim.AdamW(trained:parameters(), { lr = 0.1 })
dist.place(trained, opt, 'shard')
local y = wane.eval(wane.ones(4, 64))
local function step()
    return opt:step(function(i) return trained(y:narrow(1, i, 1)):pow(2):mean() end, { micro = 4 })
end
local first, others = wane.plan(step).first, wane.memory().allocated - 4 * 4 * 64
wane.memory.reset_peak()
step()
say('%d bytes more than predicted', wane.memory().peak - others - first.peak)
