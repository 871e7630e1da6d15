-- Runs ranks that have a simulated GPU each: scripts, the training of spec/support/ranks_cuda.lua, and a step
-- that fails.
local files = require 'spec.support.files'
local helper = require 'spec.helper'
local luassert = require 'luassert'
local mpi = require 'spec.support.mpi'

local ranks_on_gpus = {}

local TRAIN = 'spec/support/ranks_cuda.lua . '

--- The head of each script.
ranks_on_gpus.HEAD = ([[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;' .. package.path
local sim = require 'spec.support.cudasim'
local wane = require 'wane'
local dist, nn = wane.dist, wane.nn
]]):format(helper.root, helper.root, helper.root)

--- A step in which the nth call of a kind fails on rank 1, or a label in its data is none ('label'), or which rank 1
-- never makes ('leave'). A step before it starts NCCL, unless the kind is of that start. Arguments: the kind, n, the
-- timeout and the order of streams.
ranks_on_gpus.FAULT = [[
dist.start { timeout = tonumber(arg[3]) }
wane.set_device 'cuda'
sim.schedule(arg[4])
local kind, n = arg[1], tonumber(arg[2])
local net = nn.Sequential { nn.Linear(64, 200), nn.GELU(), nn.Linear(200, 10) }
local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01, clip_norm = 1 })
local x, y = wane.eval(wane.randn(48, 64), wane.randint(10, { 48 }))
local wrong = wane.eval(y + 70)
local is_wrong, calls
local function step()
    calls = 0
    opt:step(function(i)
        calls = calls + 1
        local labels = is_wrong and i == n and wrong or y
        return nn.cross_entropy(net(x:narrow(1, 8 * i - 7, 8)), labels:narrow(1, 8 * i - 7, 8))
    end, { micro = 6 })
end
local function bits() return require('wane.plan.measure').fingerprint(net:parameters()) end
local is_start = kind == 'nccl_init' or kind == 'nccl_endless'
if not is_start then step() end
local before = bits()
if dist.rank == 1 then
    if kind == 'leave' then os.exit(0) end
    if kind ~= 'label' then sim.fail(kind, n) end
end
is_wrong = kind == 'label'
local fine, e = pcall(step)
if kind ~= 'label' and kind ~= 'leave' then sim.fail(kind, 0) end
local is_well, after = pcall(bits)
io.write(('%d> %s\n%d> %s\n%d> %d\n'):format(dist.rank, fine and 'fine' or (tostring(e):gsub('\n', ' ')), dist.rank,
    not is_well and 'lost' or after == before and 'same' or 'changed', dist.rank, calls))
io.flush()
]]

--- Trains on jobs of a kind of MPI, and asserts the bits of one process, and the bytes that it predicts.
-- @param last order of streams of the last of the long jobs
-- @param line nil, or one that each rank says behind those of the training
-- @param environment words of each process
-- @param more nil, or words of the jobs alone, with two '%d' for the number of ranks on a machine
function ranks_on_gpus.check_training(kind, last, line, environment, more)
    local want = helper.shell(('WANE_THREADS=1 %s luajit %seager'):format(environment, TRAIN))
    local small, all = want:match '^0> (%x+)\n0> (%x+ [%d.e+-]+ exact)\n'
    luassert.equal(('0> %s\n'):format(small) .. ('0> %s\n'):format(all):rep(3), want)
    local jobs = kind == 'mpich' and { { 3, 'random' } } or { { 4, 'lazy', 2 } }
    if helper.is_long then jobs = { { 3, 'eager' }, { 5, 'lazy' }, { 4, 'random', 2 }, { 4, last, 2 } } end
    for _, job in ipairs(jobs) do
        local n, order, on_machine = unpack(job)
        local lines, code, _, text = mpi.command(kind, n, ('%s%s %s'):format(TRAIN, order, on_machine or ''),
            environment .. (more or ''):format(on_machine or n, on_machine or n))
        luassert.equal(0, code, text)
        for r = 0, n - 1 do luassert.same({ small, all, all, all, line }, lines[r]) end
    end
end

--- Writes a script, behind the head, to a file.
function ranks_on_gpus.write(name, text) files.write(name, ranks_on_gpus.HEAD .. text) end

return ranks_on_gpus
