-- One training on many ranks, each with a GPU: bits, bytes and failures are those of ranks on CPUs. The GPUs are
-- simulated, and what they exchange goes through pinned memory of the host.
local files = require 'spec.support.files'
local helper = require 'spec.helper'
local mpi = require 'spec.support.mpi'
local sim = require 'spec.support.cudasim'

local TRAIN = 'spec/support/ranks_cuda.lua . '
local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

local HEAD = ([[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;' .. package.path
local sim = require 'spec.support.cudasim'
local wane = require 'wane'
]]):format(helper.root, helper.root, helper.root)

-- A step of one rank of 1,024, measured: host memory that it takes, as planned, and whether all bytes are.
local GHOST = [[
wane.dist.ghost { ranks = 1024, rank = 700, link = { { 8, 370e9 }, { 1024, 50e9 } } }
wane.set_device 'cuda'
local model, x = wane.nn.MLP(64, 256), wane.eval(wane.randn(16, 64))
local opt = wane.optim.AdamW(model:parameters())
local function step() opt:step(function() return model(x):pow(2):mean() end, { micro = 1024 }) end
step()
local m = wane.measure(step, { steps = 2, optimizer = opt })

print(m.exact, wane.plan(step).parts[1].host > 0)
]]

-- A step in which the nth call of a kind fails on rank 1, or a label in its data is none.
local FAULT = [[
local dist = wane.dist
dist.start { timeout = 20 }
wane.set_device 'cuda'
local kind, n = arg[1], tonumber(arg[2])
local nn = wane.nn
local net = nn.Sequential { nn.Linear(64, 200), nn.GELU(), nn.Linear(200, 10) }
local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01, clip_norm = 1 })
local x, y = wane.eval(wane.randn(48, 64), wane.randint(10, { 48 }))
local wrong = wane.eval(y + 70)
local is_wrong
local function step()
    opt:step(function(i)
        local labels = is_wrong and i == 5 and wrong or y
        return nn.cross_entropy(net(x:narrow(1, 8 * i - 7, 8)), labels:narrow(1, 8 * i - 7, 8))
    end, { micro = 6 })
end
step()
local function bits() return require('wane.plan.measure').fingerprint(net:parameters()) end
local before = bits()
if dist.rank == 1 and kind ~= 'label' then sim.fail(kind, n) end
is_wrong = kind == 'label'
local fine, e = pcall(step)
if kind ~= 'label' then sim.fail(kind, 0) end
local is_well, after = pcall(bits)
io.write(('%d> %s\n%d> %s\n'):format(dist.rank, fine and 'fine' or (tostring(e):gsub('\n', ' ')), dist.rank,
    not is_well and 'lost' or after == before and 'same' or 'changed'))
]]

local function write(text) files.write(SCRIPT, HEAD .. text) end

describe('ranks on GPUs', function()
    local why = sim.missing()
    if why then return pending(why) end
    local environment = 'WANE_CUDA_LIB=' .. sim.path()

    it('hold the bytes that they predict, as any of 1,024', function()
        write(GHOST)
        assert.equal('true\ttrue\n', (helper.shell(('%s luajit %s'):format(environment, SCRIPT))))
    end)

    mpi.describe(describe, pending, function(kind)
        it('train to the bits of one, in every order of streams, with the bytes that they predict', function()
            local want = helper.shell(('WANE_THREADS=1 %s luajit %seager'):format(environment, TRAIN))
            local small, line = want:match '^0> (%x+)\n0> (%x+ [%d.e+-]+ exact)\n'
            assert.equal(('0> %s\n'):format(small) .. ('0> %s\n'):format(line):rep(3), want)
            local jobs = kind == 'mpich' and { { 3, 'random' } } or { { 4, 'lazy', 2 } }
            if helper.is_long then jobs = { { 3, 'eager' }, { 5, 'lazy' }, { 4, 'random', 2 }, { 4, 'lazy', 2 } } end
            for _, job in ipairs(jobs) do
                local n, order, on_machine = unpack(job)
                local lines, code, _, text = mpi.command(kind, n, ('%s%s %s'):format(TRAIN, order, on_machine or ''),
                    environment)
                assert.equal(0, code, text)
                for r = 0, n - 1 do assert.same({ small, line, line, line }, lines[r]) end
            end
        end)

        it('use the GPUs of their machine in turn, of one kind alone', function()
            write [[
                wane.dist.start {}
                wane.eval(wane.ones(3, { device = 'cuda' }))
                print(('%d> %d'):format(wane.dist.rank, sim.counters().device))]]
            local lines, code, _, text = mpi.command(kind, 3, SCRIPT, environment .. ' WANE_SIM_GPUS=2')
            assert.equal(0, code, text)
            assert.same({ [0] = { '0' }, { '1' }, { '0' } }, lines)
            _, code, _, text = mpi.command(kind, 2, SCRIPT, environment .. ' WANE_SIM_GPUS=2 WANE_SIM_ARCH_1=80')
            assert.is_true(code ~= 0, text)
            assert.matches('GPU 1 of this machine is sm_80, GPU 0 sm_90: ranks use GPUs of one kind', text)
        end)

        it('all raise what a GPU of one meets, nobody waits, and nothing has changed', function()
            write(FAULT)
            local met = { copy = { 3, 14, 20 }, event = { 2, 14, 31 }, launch = { 2, 20 }, async = { 3, 25 },
                host_alloc = { 1 } }
            if not helper.is_long then met = { copy = { 3 }, event = { 14 }, async = { 25 } } end
            met.label = { 5 } -- the fifth micro-batch is that of rank 1
            for call, places in pairs(met) do
                for _, n in ipairs(places) do
                    local lines, _, seconds, text = mpi.command(kind, 3, ('%s %s %d'):format(SCRIPT, call, n),
                        environment)
                    assert.is_true(seconds < 15, text)
                    for r = 0, 2 do -- a graph that cannot be made, say, leaves a step that all make
                        local is_fine = lines[0][1] == 'fine'
                        assert.matches(is_fine and '^fine$' or call == 'label' and 'rank 1: cross_entropy: label 7'
                            or r == 1 and 'cuda: ' or 'rank 1: cuda: ',
                            lines[r][1], text)
                        assert.equal(is_fine and 'changed' or call == 'async' and r == 1 and 'lost' or 'same',
                            lines[r][2], text)
                    end
                end
            end
        end)
    end)
end)
