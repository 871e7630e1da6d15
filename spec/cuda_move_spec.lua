-- Checks what moves between the CPU and a GPU: tensors, models, the states of optimizers, batches of a data set, files,
-- and plans for a machine with a GPU that are made elsewhere. Training that moves in the middle must end with the bits
-- of training that stays, a move that fails must leave everything as it was, and a model that nothing ran yet must not
-- be computed where it was made. Then values that are offloaded: gradients have the bits of saving while copies run at
-- once, as late as CUDA allows, and in random orders, with freed bytes poisoned; bytes are predicted; what cannot be
-- done is refused by name.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local gradcheck = require 'spec.support.gradcheck'
local networks = require 'spec.support.networks'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local sim = require 'spec.support.cudasim'
local ways = require 'spec.support.ways'
local wane = helper.wane
local C, data, nn, optim = binding.C, wane.data, wane.nn, wane.optim
local everything = require('spec.support.offloading').everything

local has_cuda = pcall(op.device, 'cuda', 'spec')

-- Returns the bytes of a model's parameters, those that nothing ran yet too.
local function bytes_of(model)
    local list = model:parameters()
    wane.eval(unpack(list))
    return table.concat(programs.bytes(list))
end

local function allocated(device)
    collectgarbage()
    collectgarbage()
    return wane.memory(device).allocated
end

-- Checks that a call is refused at this file's line, by a code and with a text in its message.
local function refused(code, text, fn)
    local why = helper.refused(code, fn, text)
    assert.truthy(why.where:find('cuda_move_spec', 1, true), why.where)
end

-- Makes a network with dropout, a norm, a weight that is used twice, and one that is frozen.
local function make()
    wane.manual_seed(4)
    local shared = nn.Linear(32, 32)
    local model = nn.Sequential { nn.Linear(12, 32), nn.GELU(), shared, nn.Dropout(0.2), nn.LayerNorm(32), shared,
        nn.ReLU(), nn.Linear(32, 20), nn.Linear(20, 7, { bias = false }) }
    model[8].weight.requires_grad = false
    return model
end

local OPTIMIZERS = {
    SGD = function(list) return optim.SGD(list, { lr = 0.05, momentum = 0.9 }) end,
    AdamW = function(list) return optim.AdamW(list, { lr = 0.01, weight_decay = 0.1 }) end,
}

-- Trains five steps; before step k the model goes to the device route[k], if there is one. Returns the parameters' and
-- the states' bytes.
local function train(name, route)
    local model = make()
    local opt = OPTIMIZERS[name](model:parameters())
    local x = wane.eval(wane.randn(9, 12))
    for step = 1, 5 do
        if route[step] then
            model:to(route[step])
            x = x:to(route[step])
        end
        ways.step({ opt }, function() return (model(x) ^ 2):mean() end, { lines = step % 2 == 1 })
    end
    local list = programs.cells(model:parameters(), { opt })
    wane.eval(unpack(list))
    return table.concat(programs.bytes(list)), model
end

describe('moving to another dtype, or a new first value,', function()
    it('takes the optimizer along, which trains the parameter that the model has', function()
        for _, change in ipairs {
            function(m) m:to 'f64' end, function(m) m:to 'bf16' end, function(m) nn.init.uniform(m.weight, -1, 1) end,
        } do
            for _, is_fused in ipairs { false, true } do
                local model = nn.Linear(16, 16)
                local opt = optim.Adam(model:parameters(), { lr = 0.1 })
                opt:step(model(wane.randn(3, 16)):sum())
                change(model)
                local x = wane.randn(3, 16, { dtype = model.weight.dtype })
                local before = gradcheck.bytes(wane.eval(model.weight))
                if is_fused then
                    opt:step(model(x):sum())
                else
                    model(x):sum():backward()
                    opt:step()
                end
                assert.is_true(before ~= gradcheck.bytes(model.weight))
                assert.equal(model.weight.dtype, opt:state_dict().cells['m.1'].dtype)
            end
        end
    end)

    it('keeps the numbers of the states', function()
        local model = nn.Linear(16, 16)
        local opt = optim.Adam(model:parameters(), { lr = 0.1 })
        opt:step(model(wane.randn(3, 16)):sum())
        local want = opt:state_dict().cells['m.1']:totable()
        model:to 'f64'
        assert.same(want, wane.eval(opt:state_dict().cells['m.1']):totable())
    end)
end)

describe('moving to a GPU', function()
    if not has_cuda then
        pending('needs the simulated one: make cudasim')
        return
    end

    it('keeps the elements of tensors of every dtype and shape', function()
        for _, dtype in ipairs { 'f32', 'f64', 'bf16', 'i32', 'u8' } do
            for _, dims in ipairs { { 3, 5 }, { 0, 4 }, {}, { 300000 } } do
                local t = wane.eval((wane.rand(dims) * 100):to(dtype))
                local there = t:to 'cuda'
                assert.equal('cuda', there.device)
                assert.is_true(gradcheck.bytes(t) == gradcheck.bytes(there))
                assert.is_true(gradcheck.bytes(t) == gradcheck.bytes(there:to 'cpu'))
            end
        end
        local sum = (wane.randn(4, 4) + 1):to 'cuda' -- of what was not computed yet
        assert.is_true(sum:sum():item() == sum:to('cpu'):sum():item())
    end)

    it('begins parameters that nothing ran yet there, with the same bits, and computes none of them here', function()
        local want = bytes_of(make())
        local before = allocated 'cpu'
        local model = make():to 'cuda'
        assert.equal(before, allocated 'cpu')
        assert.is_true(want == bytes_of(model))
        local again = make():to('cuda'):to 'cpu'
        assert.is_true(want == bytes_of(again))
        assert.is_true(want == bytes_of(make():to('meta'):to 'cuda'))
    end)

    it('begins a model there that was made on meta', function()
        local want = bytes_of(make())
        assert.is_true(want == bytes_of(helper.on('meta', make):to 'cuda'))
    end)

    it('takes the bytes of a model once, and gives those here back', function()
        local model = nn.Linear(512, 512)
        local x = wane.eval(wane.randn(2, 512))
        wane.eval(model(x))
        local here, there = allocated 'cpu', allocated 'cuda'
        model:to 'cuda'
        local bytes = 512 * 512 * 4 + 512 * 4
        assert.equal(here - bytes, allocated 'cpu')
        assert.equal(there + bytes, allocated 'cuda')
        local given = x:to 'cuda'
        wane.eval(model(given):sum())
        assert.equal(there + bytes + 4096, allocated 'cuda')
    end)

    it('keeps what is shared shared, what is frozen frozen, and the names', function()
        local model = make()
        wane.eval(unpack(model:parameters()))
        model:to 'cuda'
        assert.is_true(rawequal(model[3].weight, model[6].weight))
        assert.is_false(model[8].weight.requires_grad)
        assert.is_true(model[1].weight.requires_grad)
        for _, p in ipairs(model:parameters()) do assert.equal('cuda', p.device) end
    end)

    for name in pairs(OPTIMIZERS) do
        it('in the middle of training by ' .. name .. ' ends with the bits of training that stays', function()
            local want = train(name, {})
            for _, route in ipairs { { 'cuda' }, { [2] = 'cuda' }, { [3] = 'cuda', [5] = 'cpu' },
                { 'cuda', 'cpu', 'cuda', 'cpu', 'cuda' } } do
                assert.is_true(want == (train(name, route)))
            end
        end)
    end

    it('lays weights out as the CPU likes them when they come back', function()
        local create = require 'wane.tensor.create'
        local here = nn.Linear(48, 96)
        local layout = create.layout(here.weight)
        here:to('cuda'):to 'cpu'
        assert.equal(layout, create.layout(here.weight))
        local there = helper.on('cuda', nn.Linear, 48, 96)
        wane.eval(there.weight)
        assert.equal(layout, create.layout(there:to('cpu').weight))
        assert.equal(0, create.layout(nn.Linear(48, 96, { layout = 'plain' }):to('cuda'):to('cpu').weight))
    end)

    it('leaves everything as it was when an allocation or a copy fails', function()
        for _, call in ipairs { 'malloc', 'copy' } do
            local moved = false
            for n = 1, 60 do
                local model = make()
                wane.eval(unpack(model:parameters()))
                local want, there = bytes_of(model), allocated 'cuda'
                sim.fail(call, n)
                local ok, why = pcall(model.to, model, 'cuda')
                sim.reset()
                moved = ok
                if ok then break end
                assert.truthy(why.message:find 'cuda' or why.message:find 'memory', why.message)
                for _, p in ipairs(model:parameters()) do assert.equal('cpu', p.device) end
                assert.is_true(want == bytes_of(model))
                assert.equal(there, allocated 'cuda')
                model:to 'cuda'
                assert.is_true(want == bytes_of(model))
            end
            assert.is_true(moved, call)
        end
    end)

    it('is refused by name for devices that are not here, and from meta once it ran', function()
        local model = nn.Linear(4, 4)
        refused('device', "no device 'cuda:7'", function() model:to 'cuda:7' end)
        refused('device', "unknown device 'tpu'", function() model:to 'tpu' end)
        local unreal = helper.on('meta', function()
            local layer = nn.Linear(4, 4)
            wane.eval(layer(wane.randn(2, 4)))
            return layer
        end)
        refused('device', 'meta', function() unreal:to 'cuda' end)
        assert.equal('meta', unreal.weight.device)
        wane.eval(model.weight)
        refused('device', 'meta', function() model:to('meta'):to 'cuda' end)
    end)

    it('draws batches there from a data set that stays here', function()
        local x, y = wane.eval(wane.randn(37, 5)), wane.eval(wane.randint(0, 9, { 37 }))
        local bytes = wane.eval(wane.randint(0, 255, { 37, 3, 2 }):to 'u8')
        local function draw(device)
            local out = {}
            local options = { batch = 8, shuffle = true, seed = 2, drop_last = false, device = device }
            for a, b, c in data.batches({ x, y, bytes }, options) do
                for _, t in ipairs { a, b, c } do
                    assert.equal(device or 'cpu', t.device)
                    out[#out + 1] = gradcheck.bytes(t)
                end
            end
            return table.concat(out)
        end
        assert.is_true(draw() == draw 'cuda')
        refused('device', "device = 'meta'", function() data.batches(x, { batch = 2, device = 'meta' }) end)
        refused('device', "unknown device 'xpu'", function() data.batches(x, { batch = 2, device = 'xpu' }) end)
    end)

    it('by a file goes on with the bits of training that was not interrupted', function()
        local path = os.tmpname()
        finally(function() os.remove(path) end)
        local x = wane.eval(wane.randn(9, 12))
        local function steps(model, opt, given, from, to)
            for step = from, to do
                wane.manual_seed(100 + step)
                opt:step((model(given) ^ 2):mean())
            end
        end
        for _, way in ipairs { { 'cpu', 'cuda' }, { 'cuda', 'cpu' } } do
            local function fresh(device)
                local model = make():to(device)
                return model, OPTIMIZERS.AdamW(model:parameters()), x:to(device)
            end
            local model, opt, given = fresh(way[1])
            steps(model, opt, given, 1, 2)
            wane.save(path, model, { optimizer = opt })
            steps(model, opt, given, 3, 4)
            local other, its, there = fresh(way[2])
            wane.load(path, other, { optimizer = its })
            assert.equal(way[2], other[1].weight.device)
            steps(other, its, there, 3, 4)
            assert.is_true(bytes_of(model) == bytes_of(other))
        end
    end)

    it('is planned elsewhere with the bytes that it takes there', function()
        for seed = 1, 12 do
            local function made(target)
                local net = networks.make(seed)
                local opts = networks.optimizers(net)
                local plan = opts[1] and wane.plan(function() opts[1]:step(net.loss()) end, { target = target })
                return plan and { plan.peak, plan.reserved }
            end
            local function plan(device, target) return helper.on(device, made, target) end
            local want = plan 'cuda'
            assert.same(want, plan('meta', 'h200'), 'meta, seed ' .. seed)
            assert.same(want, plan('cpu', 'h200'), 'cpu, seed ' .. seed)
        end
    end)
end)

-- ---- offloading -----------------------------------------------------------------------------------------------------

describe('offloading from a GPU', function()
    if not sim.given(setup, teardown, pending) then return end

    local model, x, all
    setup(function()
        wane.manual_seed(3)
        model = programs.mlp(64, 6, 0.2)
        x = wane.randn(24, 64):retain()
        all = everything 'offload'
    end)

    local function gradients(how)
        for _, p in ipairs(model:parameters()) do p.grad = nil end
        wane.manual_seed(5)
        local p = programs.run { mode = 'backward', roots = { (model(x) ^ 2):sum() }, policy = how }
        local grads = {}
        for i, q in ipairs(model:parameters()) do grads[i] = q.grad end
        return table.concat(programs.bytes(grads)), p
    end

    it('gives the bits of saving, however late copies run', function()
        local want = gradients 'save_all'
        binding.check(C.wn_debug('poison', 1))
        for _, streams in ipairs { 'eager', 'lazy', 'random' } do
            for seed = 1, streams == 'random' and (helper.is_long and 8 or 3) or 1 do
                sim.schedule(streams, seed)
                local have, p = gradients(all)
                assert.is_true(want == have, ('%s %d'):format(streams, seed))
                assert.is_true(p.request ~= nil)
                programs.same(p, streams)
            end
        end
        binding.check(C.wn_debug('poison', 0))
        assert.is_false(sim.overrun())
    end)

    it('moves the bytes that the plan says, and counts them as the host\'s', function()
        sim.schedule 'lazy'
        local counted = sim.counters()
        gradients(all)
        local moved = sim.counters()
        assert.is_true(moved.to_host - counted.to_host >= 6 * 24 * 64 * 4)
        assert.is_true(wane.memory('cuda').away > 0)
    end)

    it('to disk is refused, and the next step works', function()
        local to_disk = wane.policy.of(function() return 'offload:disk' end)
        helper.refused('unsupported', function() gradients(to_disk) end, 'cuda has no way to the disk')
        gradients(all)
    end)
end)
