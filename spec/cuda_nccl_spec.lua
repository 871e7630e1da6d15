-- GPUs of ranks exchange by NCCL, simulated among processes: the bits and bytes are those of pinned memory, without the
-- pinned bytes; ranks decide together whether they use it; and each of its faults is told by name, by all, in seconds.
local helper = require 'spec.helper'
local mpi = require 'spec.support.mpi'
local on_gpus = require 'spec.support.ranks_on_gpus'
local sim = require 'spec.support.cudasim'

local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

-- A start and a step, which say how GPUs exchange, and whether a plan asks for bytes of the host.
local CHOICE = [[
local fine, e = pcall(dist.start, { timeout = 20 })
if not fine then
    io.write(('%d> %s\n'):format(wane.dist.rank, tostring(e)))
    os.exit(1)
end
wane.set_device 'cuda'
local model, x = nn.Linear(64, 256), wane.eval(wane.randn(16, 64))
local opt = wane.optim.AdamW(model:parameters())
local function step() opt:step(function() return model(x):pow(2):mean() end, { micro = 6 }) end
step()
local p = wane.plan(step)
io.write(('%d> %s\n%d> %s %s\n'):format(dist.rank, tostring(dist.gpus), dist.rank,
    p.parts[1].host > 0 and 'host' or 'none', sim.counters().exchanges > 0 and 'exchanged' or 'none'))
]]

-- Faults, and what all ranks hear of them in how many seconds: kind, number, timeout, seconds, words.
local FAULTS = {
    { 'nccl_init', 1, 20, 5, 'NCCL 2.21.5 failed at its start: unhandled system error' },
    { 'nccl_endless', 1, 3, 12, 'rank 0 waited 3 s for rank 1, which is at the start of the GPUs' },
    { 'nccl_async', 4, 8, 5, 'NCCL 2.21.5 failed at an exchange among ranks: unhandled system error' },
    { 'nccl_silent', 3, 3, 12, 'rank 0 waited 3 s for rank [12], which is at a backward' },
    { 'label', 5, 20, 5, 'cross_entropy: label 7' },
    { 'copy', 3, 20, 5, 'cuda: copying failed' },
    { 'event', 14, 20, 5, 'cuda: ' },
    { 'launch', 20, 20, 5, 'cuda: a kernel did not start' },
    { 'leave', 0, 20, 8, 'rank 1 has left after' },
}

describe('NCCL', function()
    local why = sim.missing()
    if why then return pending(why) end
    local environment = 'WANE_CUDA_NCCL=simulated WANE_CUDA_LIB=' .. sim.path()

    it('is found, or its absence has words', function()
        for words, given in pairs {
            ['no NCCL (WANE_CUDA_NCCL=off)'] = 'WANE_CUDA_NCCL=off',
            ['=/no/such.so cannot be opened (off, auto or a path): ranks exchange through pinned memory'] =
                'WANE_CUDA_NCCL=/no/such.so',
            ['build/libwane.so is there and lacks ncclGetVersion: ranks exchange through pinned memory'] =
                'WANE_CUDA_NCCL=build/libwane.so',
            ['lacks ncclSend: ranks exchange through pinned memory'] = 'WANE_SIM_NCCL_LACKS=ncclSend',
            ['is too old (version 21304; 2.14 or later is known)'] = 'WANE_SIM_NCCL=21304',
            ['is too old (version 2804; 2.14 or later is known)'] = 'WANE_SIM_NCCL=2804',
            ['NCCL 2.14.3'] = 'WANE_SIM_NCCL=21403',
            ['NCCL 3.0.1'] = 'WANE_SIM_NCCL=30001',
        } do
            local text = helper.shell(('env %s %s build/wane version'):format(environment, given))
            assert.truthy(text:find(words, 1, true), text)
        end
    end)

    mpi.describe(describe, pending, function(kind)
        it('has the bits of one GPU in every order of streams, with the bytes that are predicted', function()
            on_gpus.check_training(kind, 'eager', 'NCCL 2.21.5: exchanges and graphs', environment,
                ' WANE_SIM_GPUS=%d WANE_SIM_PER_NODE=%d')
        end)

        it('is used where each rank has it and a GPU of its own, else pinned memory is, by name', function()
            on_gpus.write(SCRIPT, CHOICE)
            for words, given in pairs {
                ['NCCL 2.21.5'] = 'WANE_SIM_GPUS=2',
                ['pinned memory: ranks 0 and 1 use one GPU'] = 'WANE_SIM_GPUS=1',
                ['pinned memory: rank 1 has no NCCL'] = 'WANE_SIM_GPUS=2 WANE_SIM_NCCL_1=21304',
                ['pinned memory: rank 0 has no NCCL'] = 'WANE_SIM_GPUS=2 WANE_SIM_NCCL_LACKS=ncclRecv',
            } do
                local lines, code, _, text = mpi.command(kind, 2, SCRIPT, ('%s %s'):format(environment, given))
                local how = words:find '^NCCL' and 'none exchanged' or 'host none'
                assert.equal(0, code, text)
                assert.same({ [0] = { words, how }, { words, how } }, lines)
            end
            local _, code, _, text = mpi.command(kind, 2, SCRIPT, environment
                .. ' WANE_SIM_GPUS=2 WANE_SIM_NCCL_1=21805')
            assert.is_true(code ~= 0, text)
            assert.matches('rank 1 has NCCL 2.18.5, rank 0 NCCL 2.21.5: give all ranks one version by WANE_CUDA_', text)
        end)

        it('has faults that all ranks raise by name, in seconds, and nothing has changed', function()
            on_gpus.write(SCRIPT, on_gpus.FAULT)
            local each = (helper.is_long or kind == 'mpich') and 1 or 3 -- the other MPI takes turns
            for i = 1, #FAULTS, each do
                local call, n, timeout, most, words = unpack(FAULTS[i])
                local order = ({ 'eager', 'lazy', 'random' })[i % 3 + 1]
                local lines, _, seconds, text = mpi.command(kind, 3, ('%s %s %d %d %s'):format(SCRIPT, call, n, timeout,
                    order), environment .. ' WANE_SIM_GPUS=3')
                assert.is_true(seconds < most, text)
                for r = 0, 2 do
                    local has_left = call == 'leave' and r == 1
                    assert.matches(has_left and '' or words, lines[r][1] or '', text)
                    assert.equal(not has_left and 'same' or nil, lines[r][2], text)
                end
            end
        end)
    end)
end)
