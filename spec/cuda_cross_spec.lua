-- Checks that what each other spec of CUDA checks alone holds together: a network with an embedding, dropout, a norm
-- and clipped gradients, fed by batches of a data set that stays on the CPU, trains on a GPU to the CPU's bits while
-- streams run late, steps are captured as graphs, policies and budgets change what is kept, and the model goes to the
-- CPU and back.
local helper = require 'spec.helper'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local sim = require 'spec.support.cudasim'
local wane = helper.wane
local data, nn, optim = wane.data, wane.nn, wane.optim

local has_cuda = pcall(op.device, 'cuda', 'spec')
local STEPS, TOKENS = 12, 40

-- Moves the modules of a list.
local function move(modules, device)
    for _, m in ipairs(modules) do m:to(device) end
end

-- Trains on a device; returns the bytes of all parameters. how: { streams, policy, budget, lines = a step of three
-- lines, leaves = the model goes to the CPU and back in the middle, late = its parameters are computed on the CPU }.
local function train(device, how)
    wane.manual_seed(3)
    local ids = wane.eval(wane.randint(0, TOKENS, { 64, 16 }))
    local embedding = nn.Embedding(TOKENS, 64)
    local model = nn.Sequential { nn.Linear(64, 160), nn.GELU(), nn.Dropout(0.1), nn.Linear(160, 64), nn.LayerNorm(64),
        nn.Linear(64, TOKENS) }
    if how.late then wane.eval(embedding.weight, unpack(model:parameters())) end
    move({ embedding, model }, device)
    local list = model:parameters()
    list[#list + 1] = embedding.weight
    local opt = optim.AdamW(list, { lr = 0.01, clip_norm = 1 })
    local batches = data.batches(ids, { batch = 8, shuffle = true, seed = 1, device = device })
    for step = 1, STEPS do
        local x = batches:next()
        local loss = nn.cross_entropy(model(embedding(x)):reshape(8 * 16, TOKENS), x:reshape(8 * 16))
        if how.lines then
            opt:zero_grad()
            loss:backward { policy = how.policy }
            opt:step()
        else
            opt:step(loss, { policy = how.policy, budget = how.budget })
        end
        if step == 6 and how.leaves then
            move({ embedding, model }, 'cpu')
            move({ embedding, model }, device)
        end
        if step == 8 then opt.lr = 0.003 end
    end
    wane.eval(unpack(list))
    return table.concat(programs.bytes(list))
end

describe('a GPU', function()
    if not has_cuda then
        pending('is simulated by what a C++ compiler makes of its kernels: make cudasim')
        return
    end

    local want

    setup(function() want = train('cpu', {}) end)

    for _, how in ipairs {
        {}, { streams = 'lazy' }, { streams = 'random', policy = 'sqrt' }, { policy = 'recompute_all' },
        { streams = 'lazy', policy = 'offload:host' }, { streams = 'random', policy = 'offload:host', lines = true },
        { leaves = true }, { streams = 'lazy', leaves = true, lines = true }, { policy = 'least', lines = true },
        { budget = '600 KiB', leaves = true }, { late = true, streams = 'random', budget = '600 KiB' },
    } do
        local words = {}
        for _, key in ipairs { 'streams', 'policy', 'budget', 'lines', 'leaves', 'late' } do
            if how[key] then words[#words + 1] = ('%s %s'):format(key, tostring(how[key])) end
        end
        it('trains to the bits of the CPU, ' .. (#words > 0 and table.concat(words, ', ') or 'plainly'), function()
            local before = sim.counters().graph_launches
            sim.schedule(how.streams or 'eager', 5)
            local fine, have = pcall(train, 'cuda', how)
            sim.schedule 'eager'
            assert(fine, have)
            assert.is_true(want == have)
            assert.is_true(sim.counters().graph_launches > before)
        end)
    end
end)
