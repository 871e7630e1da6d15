-- Checks the heap of a GPU on the simulated device, which knows each part of a segment: two that overlap, a write
-- between them or to idle memory, and a segment that is freed with a part in it are errors of the device that stay. So
-- every spec that runs on it checks that; this one checks what the driver has given against the ledger, by what
-- cudaMemGetInfo says, in random orders, for models, and where memory is short. Then seconds by the GPU's clock: those
-- of each instruction, those of `wane profile`, and the rates that wane.targets() shows. Then what a GPU can do wrong:
-- every nth allocation, copy, launch and event made to fail once; an error that stays, which loses the device while the
-- CPU goes on; and wrong data, which changes nothing. Each is an error with words, and the next call works.
local helper = require 'spec.helper'
local everything = require('spec.support.offloading').everything
local files = require 'spec.support.files'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local sim = require 'spec.support.cudasim'
local wane = helper.wane

local nn, optim, C = wane.nn, wane.optim, require('wane.ffi').C
local MIB = 1048576
local GAP = 256 -- bytes of the red zone that the simulated device has between parts
local ORDERS, MOVES = helper.is_long and 12 or 3, 120

describe('the heap of a GPU', function()
    if not sim.given(setup, teardown, pending) then return end

    setup(function()
        wane.eval(wane.ones(1))
        wane.memory.trim()
    end)
    after_each(function()
        sim.reset()
        wane.memory.trim()
        assert.is_false(sim.overrun(), sim.report())
        assert.equal('', sim.report())
    end)

    -- Checks that the driver gave at least what the ledger counts, and at most 2 MiB a segment more. Returns the
    -- report.
    local function check_bytes(what)
        local m = wane.memory()
        local given = m.total - m.free
        local beyond = given - m.reserved
        assert.is_true(m.taken >= m.reserved and given >= m.taken, what)
        assert.is_true(beyond <= 2 * MIB * m.segments + GAP * sim.counters().parts,
            ('%s: %d bytes beyond %d reserved in %d segments'):format(what, beyond, m.reserved, m.segments))
        return m
    end

    -- Returns a held tensor of n elements of a value.
    local function filled(n, value)
        local t = wane.full({ n }, value)
        wane.eval(t)
        return t
    end

    local function network(width, depth)
        local layers = {}
        for i = 1, depth do layers[i] = nn.Linear(width, width) end
        return nn.Sequential(layers)
    end

    local function step(model, opt, width)
        opt:step((model(wane.ones(4, width)) ^ 2):mean())
    end

    it('gives back in any order what it gave out, and nothing overlaps', function()
        local random = 12345
        local function draw(n)
            random = (random * 1103515245 + 12345) % 2147483648
            return math.floor(random / 65536) % n
        end
        local start = wane.memory()
        for order = 1, ORDERS do
            local held = {}
            for move = 1, MOVES do
                if #held == 0 or draw(100) < (move < 0.6 * MOVES and 70 or 30) then
                    local n = math.floor(2 ^ (draw(1950) / 100)) -- to 2.9 MiB
                    held[#held + 1] = { t = filled(n, order * 1000 + move), n = n, value = order * 1000 + move }
                else
                    table.remove(held, 1 + draw(#held)).t:free()
                end
                check_bytes(('order %d, move %d'):format(order, move))
            end
            for _, h in ipairs(held) do
                local bytes = programs.bytes { h.t }[1]
                local one = bytes:sub(1, 4)
                assert.is_true(bytes == one:rep(h.n))
                local first = h.t:narrow(1, 1, 1)
                assert.equal(h.value, first:item())
                first:free() -- garbage would keep its bytes until it is collected
                h.t:free()
            end
            local left = wane.memory() -- the arena, and one segment for small ones to come
            assert.is_true(left.segments <= (left.reserved > 0 and 2 or 1), left.segments .. ' segments are kept')
        end
        wane.memory.trim()
        assert.equal(start.segments, wane.memory().segments)
        assert.equal(start.free, wane.memory().free)
    end)

    it('holds what a model is made of in one segment, its states in another, and lets go of either alone', function()
        local width = 300
        for _, how in ipairs { 'Adam', 'SGD' } do
            local start = wane.memory().segments
            local model = network(width, 8)
            local opt = optim[how](model:parameters(), { lr = 0.01, momentum = how == 'SGD' and 0.9 or nil })
            for _, policy in ipairs { 'save_all', 'sqrt', 'recompute_all' } do
                opt:step((model(wane.ones(4, width)) ^ 2):mean(), { policy = policy })
                check_bytes(how .. ', ' .. policy)
            end
            wane.memory.trim()
            assert.equal(start + 2, check_bytes(how .. ', trimmed').segments)
            opt = nil -- luacheck: ignore 311
            wane.memory.trim()
            assert.equal(start + 1, check_bytes(how .. ', without states').segments)
            step(model, optim.Adam(model:parameters()), width)
            wane.memory.trim()
            assert.equal(start + 1, check_bytes(how .. ', other states').segments)
            model = nil -- luacheck: ignore 311
            wane.memory.trim()
            assert.equal(start, check_bytes(how .. ', nothing').segments)
        end
    end)

    it('stays within its bound while models of all sizes come and go', function()
        local held = {}
        for i, width in ipairs { 8, 600, 130, 520, 40, 700, 257 } do
            held[i] = network(width, 1 + i % 3)
            step(held[i], optim.Adam(held[i]:parameters()), width)
            check_bytes('model ' .. i)
            if i % 2 == 0 then held[i - 1] = nil end
            wane.memory.trim()
            check_bytes('trimmed after model ' .. i)
        end
        held = nil -- luacheck: ignore 311
        wane.memory.trim()
        assert.equal(0, wane.memory().segments)
    end)

    it('gives back graphs of steps, which are captured anew', function()
        local model, x = network(64, 4), wane.eval(wane.ones(4, 64))
        local opt = optim.Adam(model:parameters(), { lr = 0.01 })
        local function steps()
            for _ = 1, 4 do opt:step((model(x) ^ 2):mean()) end
        end
        steps()
        local made = sim.counters().graphs
        assert.is_true(made > 0)
        wane.memory.trim()
        assert.equal(0, sim.counters().graphs)
        steps()
        assert.equal(made, sim.counters().graphs)
    end)

    it('holds what a file fills in one segment', function()
        local path = os.tmpname()
        wane.save(path, network(400, 6))
        wane.memory.trim()
        local start = wane.memory().segments
        local model = network(400, 6)
        wane.load(path, model)
        os.remove(path)
        assert.equal(start + 1, check_bytes('loaded').segments)
        assert.equal(400, model[1].weight:size(1))
    end)

    it('gives empty segments back before it refuses, and then uses idle ranges of any kind', function()
        local small = filled(10, 1)
        small:free()
        assert.equal(1, wane.memory().segments) -- kept for the next small one
        sim.limit(4 * MIB)
        local elements = {}
        for i = 1, 3 * MIB / 4 do elements[i] = i end
        local large = wane.tensor(elements)
        assert.equal(1, check_bytes('a large one in place of a spare').segments)
        large:free()
        wane.memory.trim()
        sim.limit(1024 * MIB)

        local kept, dropped = nn.Linear(512, 512), nn.Linear(512, 512)
        local pair = nn.Sequential { kept, dropped }
        wane.eval(pair(wane.ones(1, 512)))
        pair, dropped = nil, nil -- luacheck: ignore 311
        wane.memory.trim()
        local m = wane.memory()
        assert.is_true(m.taken - m.reserved >= MIB) -- idle, as the other half lives
        sim.limit(m.total - m.free)
        local inside = filled(MIB / 4 - 64, 3)
        assert.equal(m.taken, wane.memory().taken)
        assert.equal(3, inside:narrow(1, 5, 1):item())
        helper.refused('oom', function() filled(MIB / 2, 4) end, 'wanted on cuda', 'other processes and the driver')
        assert.is_true(kept.weight:numel() > 0)
        inside:free()
    end)

    it('is as it was after any allocation that failed', function()
        local width = 300
        local function train()
            wane.manual_seed(4)
            local model = network(width, 4)
            local opt = optim.Adam(model:parameters(), { lr = 0.01 })
            for _ = 1, 2 do step(model, opt, width) end
            return table.concat(programs.bytes(model:parameters()))
        end
        local want = train()
        for nth = 1, 12 do
            wane.memory.trim()
            assert.equal(0, wane.memory().segments)
            sim.fail('malloc', nth)
            local fine, have = pcall(train)
            sim.fail('malloc', 0)
            check_bytes('after failure ' .. nth)
            assert.is_true(fine and have == want, ('%d: %s'):format(nth, fine and 'other bits' or tostring(have)))
        end
    end)
end)

-- ---- its clock ------------------------------------------------------------------------------------------------------

describe('seconds of a GPU', function()
    if not sim.given(setup, teardown, pending) then return end

    local model, x
    setup(function()
        wane.manual_seed(2)
        model = nn.Sequential { nn.Linear(64, 192), nn.Tanh(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 64) }
        x = wane.randn(64, 64):retain()
    end)

    -- Runs a backward; returns the program, and { seconds =, what =, op = } of each instruction.
    local function run(policy)
        local p = programs.run { mode = 'backward', roots = { (model(x) ^ 2):sum() }, policy = policy }
        local list = programs.schedule(p)
        for i, step in ipairs(list) do step.seconds = C.wn_step_seconds(p.handle, i - 1) end
        for _, q in ipairs(model:parameters()) do q.grad = nil end
        return p, list
    end

    for _, streams in ipairs { 'eager', 'lazy', 'random' } do
        it('are those of every instruction, and less than the run\'s, where streams are ' .. streams, function()
            sim.schedule(streams, 3)
            local p, list = scoped('timing', 1, run, 'save_all')
            local sum, products, others, n = 0, 0, 0, 0
            for _, step in ipairs(list) do
                assert.is_true(step.seconds >= 0, step.what)
                sum = sum + step.seconds
                if step.what == 'run' and (step.op:find '^linear' or step.op:find '^matmul') then
                    products, n = products + step.seconds, n + 1
                    assert.is_true(step.seconds > 0, step.op)
                else
                    others = others + step.seconds
                end
            end
            sim.schedule 'eager'
            assert.is_true(n >= 6)
            assert.is_true(products > others, ('%g of products, %g of others'):format(products, others))
            assert.is_true(sum <= p.measured.seconds, ('%g of %g'):format(sum, p.measured.seconds))
        end)
    end

    it('are noted of moves too, and the bits stay', function()
        local function gradients(how)
            programs.run { mode = 'backward', roots = { (model(x) ^ 2):sum() }, policy = how }
            local grads = {}
            for i, q in ipairs(model:parameters()) do grads[i] = q.grad end
            local bits = programs.bits(grads)
            for _, q in ipairs(model:parameters()) do q.grad = nil end
            return bits
        end
        local all = everything 'offload'
        local want = gradients 'save_all'
        sim.schedule('random', 5)
        assert.is_true(want == scoped('timing', 1, gradients, all))
        local _, list = scoped('timing', 1, run, all)
        sim.schedule 'eager'
        local moves = 0
        for _, step in ipairs(list) do
            if step.what == 'wait' or step.what == 'fetch' or step.what == 'offload' then
                moves = moves + 1
                assert.is_true(step.seconds >= 0)
            end
        end
        assert.is_true(moves > 0)
    end)

    -- An event that cannot be made is for want of memory: the run gives back what is idle, and is tried once more.
    it('leave no event behind, also where one cannot be made or recorded', function()
        run 'save_all'
        wane.memory.trim() -- a failure for want of memory trims too
        local events, failed, healed = sim.counters().events, 0, 0
        for nth = 1, 400 do
            sim.fail('event', nth)
            local fine, why = pcall(scoped, 'timing', 1, run, 'save_all')
            local is_met = sim.fails_in 'event' == 0
            sim.fail('event', 0)
            if fine and is_met then healed = healed + 1 end
            if not fine then
                failed = failed + 1
                local text, is_named = tostring(why), false
                for _, what in ipairs { 'timing an instruction', 'making events', 'copying' } do
                    is_named = is_named or text:find(what, 1, true) ~= nil
                end
                assert.is_true(is_named, text)
            end
            assert.equal(events, sim.counters().events, nth)
            if not is_met then break end
        end
        assert.is_true(failed > 30 and healed > 30, ('%d failures, %d healed'):format(failed, healed))
        assert.equal(0, C.wn_timing(0))
    end)

    it('make the profile and the targets of a machine', function()
        local file = os.tmpname()
        os.remove(file)
        local text = sim.script(("WANE_DEVICE=cuda WANE_COSTS='%s'"):format(file), [[
            local wane = require 'wane'
            require('wane.plan.costs').machine { side = 64, elements = 4096, bytes = 1048576 }
            local m, x = wane.nn.Linear(8, 8), wane.eval(wane.randn(4, 8))
            local function fn() return m(x):sum() end
            print(wane.profile(fn, { steps = 5, anyway = true }))
            wane.nn.Linear(8, 8)
            print(wane.plan(fn).costs)
            print(wane.targets())
        ]])
        local lines = files.read(file)
        os.remove(file)
        assert.matches('cuda 90: linear f32 4x8 <%- f32 4x8, f32 8x8, f32 8\n', text)
        assert.matches('100 %% of it measured', text)
        assert.matches('\ncuda [^\n]*measured on this machine\n', text)
        assert.matches('\ncpu [^\n]*assumed', text)
        assert.matches('\nmachine:cuda\t%d', lines)
        assert.matches('\nlink:cuda\t%d', lines)
        assert.not_matches('inf', lines)
    end)
end)

-- ---- faults ---------------------------------------------------------------------------------------------------------

local MOST = helper.is_long and 400 or 60
local CALLS = { 'malloc', 'host_alloc', 'copy', 'launch', 'load', 'event' }

describe('a fault of a GPU', function()
    if not sim.given(setup, teardown, pending) then return end

    local function network()
        wane.manual_seed(11)
        local model = nn.Sequential { nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16) }
        local x = wane.randn(64, 16)
        return model, x, optim.Adam(model:parameters(), { lr = 0.01 })
    end

    -- Trains three steps from nothing; returns the bytes of all parameters.
    local function train()
        local model, x, opt = network()
        for _ = 1, 3 do opt:step((model(x) ^ 2):sum(), { policy = everything 'offload' }) end
        return table.concat(programs.bytes(model:parameters()))
    end

    -- A failed call says what it wanted, by kind. A failure that stays ends this process's use of the device.
    for _, call in ipairs(CALLS) do
        it('in a call of ' .. call .. ' is told of, wherever it is, and the next training is whole', function()
            local want, failed = train(), 0
            for nth = 1, MOST do
                wane.memory.trim()
                sim.fail(call, nth)
                local fine, why = pcall(train)
                local is_met = sim.fails_in(call) == 0
                sim.fail(call, 0)
                assert.is_true(fine or is_met, ('%s %d: %s'):format(call, nth, tostring(why)))
                if not fine then
                    failed = failed + 1
                    assert.truthy(why.code == 'oom' or why.code == 'device', ('%s %d: %s'):format(call, nth,
                        tostring(why)))
                end
                if not is_met then break end
                assert.is_true(want == train(), ('after %s %d'):format(call, nth))
            end
            -- A run out of memory gives back what is idle and tries once more, so one refusal of memory is healed.
            assert.is_true(failed > 0 or call == 'host_alloc' or call == 'malloc', 'nothing failed')
            assert.is_false(sim.overrun())
        end)
    end

    it('in the data is the CPU\'s refusal, and nothing has changed', function()
        wane.manual_seed(1)
        local table_ = nn.Embedding(5, 4)
        local opt = optim.SGD(table_:parameters(), { lr = 0.1 })
        local function step(ids) opt:step((table_(wane.tensor(ids, { dtype = 'i32' })) ^ 2):sum()) end
        step { 1, 2 }
        local kept = programs.bytes(table_:parameters())[1]
        helper.refused('value', function() step { 0, 3, 9, 7 } end, 'index 9 at element 2 is outside 0..4')
        assert.is_true(kept == programs.bytes(table_:parameters())[1])
        step { 1, 2 }
        assert.is_false(kept == programs.bytes(table_:parameters())[1])
    end)

    -- The last one: the device is lost to this process afterwards.
    it('that stays loses the device by name, and the CPU goes on', function()
        local model, x, opt = network()
        opt:step(model(x):sum())
        sim.fail('async', 4)
        helper.refused('device', function() opt:step(model(x):sum()) end, 'the GPU was lost', 'it ran')
        helper.refused(nil, function() return wane.ones(2):totable() end, 'the GPU was lost')
        wane.set_device 'cpu'
        assert.same({ 2, 2 }, (wane.ones(2) * 2):totable())
        model, x, opt = nil, nil, nil
        collectgarbage()
        collectgarbage()
    end)
end)
