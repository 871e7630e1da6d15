-- Trains a few steps, arms the counter of foreign.so around the last one, and prints what was asked for and how far the
-- process grew beyond the plan. parts_spec runs it in a process of its own with foreign.so preloaded.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local ffi = require 'ffi'
ffi.cdef 'void foreign_arm(int on); double foreign_bytes(void);'

local wane = require 'wane'
local programs = require 'spec.support.programs'

local function resident()
    local file = assert(io.open '/proc/self/statm')
    local pages = tonumber(file:read('*a'):match('^%d+ (%d+)'))
    file:close()
    return pages * 4096
end

local width, rows, is_bf16 = tonumber(arg[1]), tonumber(arg[2] or 64), arg[3] == 'bf16'
local model = programs.mlp(width, 6, 0.1)
local opt = wane.optim.Adam(model:parameters(), { lr = 1e-3 })
local x = wane.randn(rows, width):retain()
local before = resident()
local peak
for step = 1, 4 do
    local function sum() return model(x):sum() end
    local loss = is_bf16 and wane.autocast('bf16', sum) or sum()
    local p
    collectgarbage()
    collectgarbage 'stop' -- the collector's own memory is not the run's
    require('wane.scoped')('listen', function(q)
        ffi.C.foreign_arm(0)
        p = programs.read(q)
    end, function()
        if step == 4 then ffi.C.foreign_arm(1) end
        opt:step(loss, { policy = 'every(2)' })
    end)
    ffi.C.foreign_arm(0)
    collectgarbage 'restart'
    peak = p.measured.reserved
end
print(('foreign %d'):format(ffi.C.foreign_bytes()))
print(('grown beyond plan %d'):format(resident() - before - peak))
