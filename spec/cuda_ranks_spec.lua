-- One training on many ranks, each with a GPU: bits, bytes and failures are those of ranks on CPUs. The GPUs are
-- simulated, and what they exchange goes through pinned memory of the host.
local files = require 'spec.support.files'
local helper = require 'spec.helper'
local mpi = require 'spec.support.mpi'
local on_gpus = require 'spec.support.ranks_on_gpus'
local sim = require 'spec.support.cudasim'

local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

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

local function write(text) on_gpus.write(SCRIPT, text) end

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
            on_gpus.check_training(kind, 'lazy', nil, environment)
        end)

        it('use the GPUs of their machine in turn, of one kind alone', function()
            write [[
                wane.dist.start { per_node = tonumber(arg[1]) }
                wane.eval(wane.ones(3, { device = 'cuda' }))
                io.write(('%d> %d\n'):format(wane.dist.rank, sim.counters().device))]]
            for _, each in ipairs { '', ' 1' } do -- whatever machines the script takes them to be on
                local lines, code, _, text = mpi.command(kind, 3, SCRIPT .. each, environment .. ' WANE_SIM_GPUS=2')
                assert.equal(0, code, text)
                assert.same({ [0] = { '0' }, { '1' }, { '0' } }, lines)
            end
            local _, code, _, text = mpi.command(kind, 2, SCRIPT, environment .. ' WANE_SIM_GPUS=2 WANE_SIM_ARCH_1=80')
            assert.is_true(code ~= 0, text)
            assert.matches('GPU 1 of this machine is sm_80, GPU 0 sm_90: ranks use GPUs of one kind', text)
        end)

        it('are refused, by all, where one has a GPU of another kind than rank 0', function()
            files.write(SCRIPT, [[
                local ffi = require 'ffi'
                ffi.cdef 'int setenv(const char *name, const char *value, int replaces);'
                local rank = os.getenv 'OMPI_COMM_WORLD_RANK' or os.getenv 'PMI_RANK'
                if rank == arg[1] then ffi.C.setenv(arg[2], arg[3], 1) end]] .. '\n' .. on_gpus.HEAD .. [[
                local fine, e = pcall(wane.dist.start, { timeout = 20 })
                io.write(('%d> %s %s\n'):format(wane.dist.rank, tostring(fine), tostring(e)))]])
            local one_kind = ': give all ranks GPUs of one kind'
            for _, row in ipairs {
                { '0 none 0', '^true 0$' },
                { '2 WANE_CUDA_DNN /no/such.so', '^true 0$' }, -- neither has one, whyever
                { '1 WANE_CUDA_DNN simulated', 'rank 1 has .*; cuDNN 9%.19%.0, rank 0 has .*; no cuDNN' .. one_kind },
                { '1 WANE_SIM_ARCH 80', 'rank 1 has .*, sm_80, .*, rank 0 has .*, sm_90, .*' .. one_kind },
                { '2 WANE_CUDA_LIB off', 'rank 2 has no GPU, rank 0 has .*, sm_90, .*' .. one_kind },
                { '0 WANE_CUDA_LIB off', 'rank 1 has .*, sm_90, .*, rank 0 has no GPU' .. one_kind },
            } do
                local lines, _, _, text = mpi.command(kind, 3, SCRIPT .. ' ' .. row[1], environment)
                for r = 0, 2 do
                    assert.matches(row[2]:gsub('0%$$', r .. '$'), lines[r][1] or '', text)
                end
            end
        end)

        it('all raise what a GPU of one meets, nobody waits, and nothing has changed', function()
            write(on_gpus.FAULT)
            local met = { copy = { 3, 14, 20 }, event = { 2, 14, 31 }, launch = { 2, 20 }, async = { 3, 25 },
                host_alloc = { 1 } }
            if not helper.is_long then met = { copy = { 3 }, event = { 14 }, async = { 25 } } end
            met.label = { 2, 5 } -- these micro-batches are those of rank 1
            for call, places in pairs(met) do
                for _, n in ipairs(places) do
                    local lines, _, seconds, text = mpi.command(kind, 3, ('%s %s %d 20 eager'):format(SCRIPT, call, n),
                        environment)
                    assert.is_true(seconds < 15, text)
                    for r = 0, 2 do -- a graph that cannot be made, say, leaves a step that all make
                        local is_fine = lines[0][1] == 'fine'
                        assert.matches(is_fine and '^fine$' or call == 'label' and 'rank 1: cross_entropy: label 7'
                            or r == 1 and 'cuda: ' or 'rank 1: cuda: ',
                            lines[r][1], text)
                        assert.equal(is_fine and 'changed' or call == 'async' and r == 1 and 'lost' or 'same',
                            lines[r][2], text)
                        -- what a device tells behind a micro-batch is known to all before the next one
                        if call == 'label' then assert.equal(n == 2 and '1' or '2', lines[r][3], text) end
                    end
                end
            end
        end)
    end)
end)
