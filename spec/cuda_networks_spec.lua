-- Checks training on a GPU against the CPU over many networks, on the simulated device (spec/cudasim/), which runs the
-- very files that nvcc compiles: random ones, whose parameters are inputs, products, shared and frozen, and ones made
-- for ops, sizes and dtypes that those do not reach. After some steps every parameter and state of an optimizer must
-- have the CPU's bits, or be within the stated tolerance of bf16 and f64; predicted bytes must be measured bytes. So
-- must a network that has at once what other specs of CUDA check alone: an embedding, dropout, a norm and clipped
-- gradients, fed by batches of a data set that stays on the CPU, while streams run late, steps are captured as graphs,
-- policies and budgets change what is kept, and the model goes to the CPU and back. Examples must find their claims on
-- a GPU too.
local helper = require 'spec.helper'
local gradcheck = require 'spec.support.gradcheck'
local networks = require 'spec.support.networks'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local sim = require 'spec.support.cudasim'
local ways = require 'spec.support.ways'
local wane = helper.wane
local data, nn, optim, on = wane.data, wane.nn, wane.optim, helper.on

local record = require('spec.cases.array').record

local POLICIES = { 'save_all', 'recompute_all', 'least', 'segments(2)' }
local has_cuda = pcall(op.device, 'cuda', 'spec')

-- Returns a function that makes a random network for ways.train.
local function random_network(seed)
    return function()
        local net = networks.make(seed)
        local optimizers = networks.optimizers(net)
        return { loss = net.loss, optimizers = optimizers, kinds = net.kinds,
            states = networks.states(net, optimizers) }
    end
end

-- Networks by name: each is a function that returns a loss and parameters.
local made = {}

-- Returns the network of a module and its input.
local function of(model, x)
    return function() return model(x):sum() end, model:parameters()
end

made['a batch of 5000'] = function()
    return of(nn.Sequential { nn.Linear(20, 36), nn.GELU(), nn.Linear(36, 3) }, wane.rand(5000, 20):retain())
end
made['one row'] = function()
    return of(nn.Sequential { nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 7) }, wane.randn(1, 40):retain())
end
made['one column'] = function()
    return of(nn.Sequential { nn.Linear(1, 64), nn.Sigmoid(), nn.Linear(64, 1) }, wane.randn(77, 1):retain())
end
made['no bias, SiLU, dropout'] = function()
    return of(nn.Sequential { nn.Linear(64, 300, { bias = false }), nn.SiLU(), nn.Dropout(0.3),
        nn.Linear(300, 64, { bias = false }), nn.LayerNorm(64) }, wane.randn(33, 64):retain())
end
made['tied weights'] = function()
    local first, last = nn.Linear(48, 24), nn.Linear(24, 48)
    local x = wane.randn(9, 48):retain()
    return function() return (last(first(x)):matmul(first.weight, { transpose_b = true })):sum() end,
        { first.weight, first.bias, last.weight, last.bias }
end
made['embedding and cross-entropy'] = function()
    local table_, head = nn.Embedding(50, 32), nn.Linear(32, 50)
    local ids = wane.eval(wane.randint(0, 50, { 6, 11 }))
    return function() return nn.cross_entropy(head(table_(ids)):reshape(66, 50), ids:reshape(66)) end,
        { table_.weight, head.weight, head.bias }
end
-- Tiles of 64 x 64 outputs compute these products and updates, whose rows are no multiple of 4 and one.
for _, width in ipairs { 530, 532 } do
    made['weights of 515 x ' .. width] = function()
        return of(nn.Linear(width, 515), wane.randn(17, width):retain())
    end
    made['products of 520 x ' .. width] = function()
        local w, x = nn.Parameter(wane.randn(36, width)), wane.randn(520, 36):retain()
        return function() return (x:matmul(w):relu():matmul(w, { transpose_b = true })):mean() end, { w }
    end
end
made['ops without a module'] = function()
    local w, s = nn.Parameter(wane.randn(12, 30)), nn.Parameter(wane.randn())
    local x = wane.randn(5, 7, 12):retain()
    return function()
        local y = x:matmul(w) * s
        local z = (y * 0.1):exp() + (y * y + 1):log() + y:abs():sqrt()
        z = z:permute(2, 1, 3):reshape(7, 150):t()
        local parts = wane.cat({ z:narrow(1, 1, 50), z:narrow(1, 91, 30) }, 1)
        return parts:max(2, { keepdim = true }):sum() + parts:mean() + (parts / (parts:abs() + 1)):sum(1):sum()
    end, { w, s }
end

-- Returns the numbers of a convolution: stride, padding, dilation 1, groups.
local function window(stride, pad, groups)
    local function pair(v) return v * 2 ^ 32 + v end
    return { i = { pair(stride), pair(pad), pair(1), groups or 1 }, n = 5 }
end

-- Convolutions, a depthwise one among them, a norm of a batch and one of groups, poolings, cat, narrow and upsampling.
made['images'] = function()
    local shapes = { { 8, 3, 3, 3 }, { 8 }, { 8 }, { 16, 1, 3, 3 }, { 24, 16, 1, 1 }, { 24 }, { 24 }, { 24 } }
    local p = {}
    for i, shape in ipairs(shapes) do p[i] = nn.Parameter(wane.randn(shape) * 0.3) end
    local x = wane.randn(2, 3, 9, 8):retain()
    local two = { i = { 2 * 2 ^ 32 + 2, 2 * 2 ^ 32 + 2 }, n = 5 }
    local function norm(y, groups, weight, bias)
        local attrs = { i = { groups }, n = 1, f = { 1e-5 } }
        local mean = record('channel_mean', { y }, attrs)
        return record('batch_norm', { y, mean, record('channel_rstd', { y, mean }, attrs), weight, bias }, attrs)
    end
    return function()
        local y = norm(record('conv2d', { x, p[1] }, window(1, 1)), 0, p[2], p[3]):relu()
        local index = record('max_pool2d_index', { y }, two)
        local z = wane.cat({ record('max_pool2d', { y, index }, two), record('avg_pool2d', { y }, two) }, 2)
        z = (record('conv2d', { z, p[4] }, window(1, 1, 16)) + z):silu()
        z = norm(record('conv2d', { z, p[5], p[6] }, window(1, 0)), 4, p[7], p[8])
        local up = record('upsample2d', { z }, { i = { 9 * 2 ^ 32 + 8, 1 }, n = 4 })
        return (up:narrow(2, 1, 8) * y):relu():mean() + (up * up):mean()
    end, p
end

-- Returns blocks of convolutions and norms of a batch and of groups, with ReLUs and a residual, and their buffers.
local function blocks(dtype)
    local o = { padding = 1, bias = false, dtype = dtype }
    local a, b, c = nn.Conv2d(3, 8, 3, o), nn.Conv2d(8, 8, 3, o), nn.Conv2d(8, 12, 1, { dtype = dtype })
    local n, m, g = nn.BatchNorm2d(8, { dtype = dtype }), nn.BatchNorm2d(8, { dtype = dtype, momentum = 0.3 }),
        nn.GroupNorm(3, 12, { dtype = dtype })
    local x = wane.randn(2, 3, 7, 6, { dtype = dtype }):retain()
    local all = nn.Sequential { a, b, c, n, m, g }
    return function()
        local y = n(a(x)):relu()
        y = (m(b(y)) + y):relu()
        return (g(c(y):relu()):relu() ^ 2):mean()
    end, all:parameters(), all:buffers()
end

made['norms of batches'] = function() return blocks 'f32' end

local MAKERS = {
    function(list) return optim.SGD(list, { lr = 0.01, momentum = 0.9, weight_decay = 0.01 }) end,
    function(list) return optim.AdamW(list, { lr = 0.003 }) end,
}

-- Returns a function that makes a network for ways.train. build: one of `made`; maker: one of MAKERS.
local function made_network(build, maker)
    return function()
        wane.manual_seed(5)
        local loss, parameters, buffers = build()
        local states = { unpack(parameters) }
        for _, b in ipairs(buffers or {}) do states[#states + 1] = b end
        return { loss = loss, optimizers = { maker(parameters) }, states = states }
    end
end

local TOKENS = 40

-- Moves the modules of a list.
local function move(modules, device)
    for _, m in ipairs(modules) do m:to(device) end
end

-- Trains a network of tokens on a device; returns the bytes of all parameters. how: { streams, policy, budget, lines =
-- a step of three lines, leaves = the model goes to the CPU and back in the middle, late = its parameters are computed
-- on the CPU }.
local function train_tokens(device, how)
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
    for step = 1, 12 do
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
    return programs.bits(list)
end

-- Returns a function that makes a network of one dtype for ways.train.
local function typed_network(dtype)
    return function()
        wane.manual_seed(3)
        local o = { dtype = dtype }
        local model = nn.Sequential { nn.Linear(32, 48, o), nn.GELU(), nn.LayerNorm(48, o), nn.Linear(48, 16, o) }
        local x, states = wane.randn(20, 32, o):retain(), model:parameters()
        return { loss = function() return (model(x) ^ 2):mean() end, optimizers = { optim.SGD(states, { lr = 0.05 }) },
            states = states }
    end
end

-- Returns the rows of arms that examples/heavylayer.lua printed, without their seconds; checks that there are four.
local function arms(text)
    local out = {}
    for row in text:gmatch '\n(o[nf]+: [^\n]+%d[^\n]+)' do
        out[#out + 1] = row:gsub('%d+%.%d%d', ''):gsub('%s+', ' ')
    end
    assert.equal(4, #out)
    return out
end

-- Returns what an example prints on a device.
local function printed(device, example, options)
    local to = os.tmpname()
    os.remove(to)
    local out, code = helper.shell(('WANE_DEVICE=%s %s examples/%s.lua %s'):format(device,
        os.getenv 'LUAJIT' or 'luajit', example, options:gsub('OUT', to)))
    os.execute('rm -rf "' .. to .. '"')
    assert.equal(0, code, out)
    return out
end

describe('a GPU', function()
    if not has_cuda then
        pending('is simulated by what a C++ compiler makes of its kernels: make cudasim')
        return
    end

    it('is the simulated one, which auto never takes', function()
        assert.equal('cuda', wane.devices()[3])
        local before = wane.set_device 'auto'
        assert.equal('cpu', wane.set_device(before))
    end)

    for seed = 1, helper.is_long and 40 or 16 do
        it('trains random network ' .. seed .. ' to the bits of the CPU', function()
            local make = random_network(seed)
            if #make().optimizers == 0 then return end
            local way = { policy = POLICIES[seed % #POLICIES + 1], lines = seed % 2 == 0 }
            local want, have = on('cpu', ways.train, make, {}), on('cuda', ways.train, make, way)
            assert.is_true(want.bits == have.bits, ways.text(way) .. ': ' .. table.concat(make().kinds, ', '))
        end)
    end

    for name, build in pairs(made) do
        it('trains a network with ' .. name .. ' to the bits of the CPU', function()
            for k, maker in ipairs(MAKERS) do
                local make = made_network(build, maker)
                local way = { policy = POLICIES[(k + #name) % #POLICIES + 1], lines = k == 2 }
                local want, have = on('cpu', ways.train, make, {}), on('cuda', ways.train, make, way)
                for i = 1, #want.states do
                    assert.is_true(want.states[i] == have.states[i], ways.text(way) .. ', state ' .. i)
                end
            end
        end)
    end

    it('asks for the cells of an update once, while it computes the gradient', function()
        -- Sizes of a weight, and the elements in a row that a thread steps.
        for _, shape in ipairs { { 515, 530, 4 }, { 513, 532, 4 }, { 33, 41, 1 } } do
            local m, n, each = unpack(shape)
            local asked = on('cuda', function()
                local w, x = nn.Parameter(wane.randn(m, n)), wane.eval(wane.randn(5, n))
                local opt = optim.Adam({ w }, { lr = 0.1 })
                wane.eval(w)
                local before = sim.counters().prefetches
                opt:step(x:matmul(w, { transpose_b = true }):sum())
                return sim.counters().prefetches - before
            end)
            assert.equal(3 * m * math.ceil(n / each), asked)
        end
    end)

    for _, dtype in ipairs { 'f32', 'bf16' } do
        it('trains images to the same bits where ops are fused and where they are apart: ' .. dtype, function()
            local make, ops = made_network(function() return blocks(dtype) end, MAKERS[1]), {}
            local fused, apart = on('cuda', ways.train, make, {}), on('cuda', ways.train, make, { split = true })
            assert.is_true(fused.bits == apart.bits)
            local world = on('cuda', make)
            local plan = wane.plan(function() world.optimizers[1]:step(world.loss()) end)
            for _, step in ipairs(plan:schedule()) do ops[step.op or ''] = true end
            for _, name in ipairs { 'conv2d+relu', 'batch_norm+relu', 'batch_norm+add+relu', 'relu_norm_sums',
                'relu_norm_dx' } do
                assert.is_true(ops[name], name)
            end
        end)
    end

    for dtype, tolerance in pairs { f64 = 1e-12, bf16 = 3e-2 } do
        it('trains in ' .. dtype .. ' within the tolerance, to the same bits under every policy', function()
            -- Returns what the training gave, and the numbers of its states.
            local function train(device, way)
                local world, numbers = nil, {}
                local run = on(device, ways.train, function()
                    world = typed_network(dtype)()
                    return world
                end, way)
                for _, t in ipairs(world.states) do
                    for _, v in ipairs(gradcheck.values(t)) do numbers[#numbers + 1] = v end
                end
                return run, numbers
            end
            local _, want = train('cpu', {})
            local first
            for _, policy in ipairs(POLICIES) do
                local run, have = train('cuda', { policy = policy, lines = policy == 'least' })
                first = first or run.bits
                assert.is_true(first == run.bits, policy .. ': other bits')
                for i = 1, #want do
                    assert(math.abs(have[i] - want[i]) <= tolerance * (1 + math.abs(want[i])), policy .. ', ' .. i)
                end
            end
        end)
    end

    it('runs examples/heavylayer.lua with the peaks, gradients and loss of the CPU', function()
        local options = '--width 64 --depth 20 --batch 32'
        local want, have = printed('cpu', 'heavylayer', options), printed('cuda', 'heavylayer', options)
        assert.equal(want:match 'Loss of the second step [%d.]+', have:match 'Loss of the second step [%d.]+')
        -- In the arms of opt:step(loss) the products of the CPU take scratch of their own.
        for k, row in ipairs(arms(have)) do
            assert.truthy(row:match(k == 1 and ' 0 %(reference%)$' or ' 0 equal$'), row)
            if k <= 2 then assert.equal(arms(want)[k], row) end
        end
    end)

    it('runs examples/deepmlp.lua and examples/mechanism.lua to their claims', function()
        local out = printed('cuda', 'deepmlp', '--small --depth 20 --out OUT')
        assert.truthy(out:match 'bits of gradients %(where kept%), loss and updated parameters: equal in 7 arms')
        assert.truthy(out:match 'bytes measured and predicted: equal in 7 arms')
        assert.truthy(printed('cuda', 'mechanism', ''):match '16 of 16 points equal')
    end)
end)

describe('a GPU that gets batches of tokens', function()
    if not has_cuda then return end

    local want
    setup(function() want = train_tokens('cpu', {}) end)

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
            local fine, have = pcall(train_tokens, 'cuda', how)
            sim.schedule 'eager'
            assert(fine, have)
            assert.is_true(want == have)
            assert.is_true(sim.counters().graph_launches > before)
        end)
    end
end)
