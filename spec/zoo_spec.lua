-- Checks the models of examples/zoo: the published numbers of parameters, plans on meta that add up and allocate
-- nothing, and small models that train as predicted.
local helper = require 'spec.helper'
local wane = helper.wane
local gradcheck = require 'spec.support.gradcheck'
local gpt = require 'spec.support.gpt'
local programs = require 'spec.support.programs'
local ways = require 'spec.support.ways'

local gpt2, llama = require 'wane.zoo.gpt2', require 'wane.zoo.llama'

local LUAJIT = os.getenv 'LUAJIT' or 'luajit'

local function batch_of(model, b, t)
    local vocab = model.config.vocab
    return wane.randint(vocab, { b, t }), wane.randint(vocab, { b, t })
end

-- Returns the account of the device, without what other specs left to the collector.
local function held()
    collectgarbage()
    collectgarbage()
    return wane.memory()
end

local function sum(kinds)
    local n = 0
    for _, bytes in pairs(kinds) do n = n + bytes end
    return n
end

describe('the zoo', function()
    for _, zoo in ipairs { gpt2, llama } do
        for name, count in pairs(zoo.parameters) do
            it(('has %.0f parameters in %s'):format(count, name), function()
                helper.on('meta', function()
                    local before = held()
                    local model = zoo.new(name)
                    assert.equal(count, model:parameter_count())
                    assert.equal(before.allocated, wane.memory().allocated)
                    assert.equal(count, zoo.new(name, { tiled = false, dtype = 'bf16' }):parameter_count())
                end)
            end)
        end
    end

    it('refuses what it does not know', function()
        for _, zoo in ipairs { gpt2, llama } do
            assert.has_error(function() zoo.new '9B' end)
            assert.has_error(function() zoo.new('small', { droput = 0.1 }) end)
        end
        local model = gpt2.new 'small'
        assert.has_error(function() gpt2.loss(model, wane.randint(96, { 1, 65 }), wane.randint(96, { 1, 65 })) end)
    end)

    it('takes a table for a size', function()
        local model = gpt2.new { vocab = 10, context = 8, layers = 1, heads = 2, d = 8 }
        assert.equal(10 * 8 + 8 * 8 + 12 * 64 + 13 * 8 + 2 * 8, model:parameter_count())
    end)
end)

-- Checks plans of a step on meta: everything saved, each unit recomputed (said in two ways) and sqrt; then a plan of
-- the backward alone. Returns the plans of the step by policy.
local function check_plans(zoo, name, b, t, opts)
    local before = held()
    local model = zoo.new(name, opts)
    local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
    local ids, labels = batch_of(model, b, t)
    local function step() opt:step(zoo.loss(model, ids, labels)) end
    local state = 3 * 4 * zoo.parameters[name]
    local plans = {}
    for _, policy in ipairs { 'save_all', 'recompute_all', 'every(1)', 'sqrt' } do
        local plan = wane.plan(step, { policy = policy })
        plans[policy] = plan
        assert.equal(plan.peak, sum(plan.kinds), policy)
        assert.equal(state, plan.kinds.parameter + plan.kinds.optimizer)
        assert.is_true(plan.reserved >= plan.peak and plan.reserved < 1.02 * plan.peak)
        assert.is_true(plan:verify())
    end
    assert.equal(0, plans.save_all.recomputed)
    assert.equal(plans.recompute_all.peak, plans['every(1)'].peak)
    assert.is_true(plans.recompute_all.peak < plans.sqrt.peak and plans.sqrt.peak < plans.save_all.peak)
    -- The backward alone has the parameters, all their gradients at its end, and no optimizer.
    local back = wane.plan(function() zoo.loss(model, ids, labels):backward() end, { policy = 'recompute_all' })
    assert.equal(0, back.kinds.optimizer)
    assert.equal(2 * 4 * zoo.parameters[name], back.at.after - back.kinds.input)
    -- On meta's account there are the mask and the rotation tables, inputs that layers share, and nothing else.
    local after = wane.memory()
    assert.equal(after.kinds.input - before.kinds.input, after.allocated - before.allocated)
    assert.is_true(after.allocated - before.allocated < 8 * wane.MiB)
    return plans
end

describe('plans of the zoo on meta', function()
    it('add up: GPT-2 774M, composed', function()
        helper.on('meta', function()
            local plans = check_plans(gpt2, '774M', 8, 1024, { tiled = false })
            -- 36 blocks keep 64 sbh and two softmax weights of T x T at least (f32)
            local sbh, weights = 1024 * 8 * 1280, 4 * 20 * 1024 ^ 2 * 8
            assert.is_true(plans.save_all.activation_bytes > 36 * (60 * sbh + weights))
            -- a block boundary each, and what one block takes
            assert.is_true(plans.recompute_all.kinds.activation < 36 * 4 * sbh + 72 * sbh + 4 * weights
                + 2 * 4 * 8192 * 50257)
        end)
    end)

    it('add up: LLaMA 7B', function()
        helper.on('meta', function() check_plans(llama, '7B', 1, 2048) end)
    end)

    it('have the peak of recomputed blocks where each block is a region', function()
        helper.on('meta', function()
            local peaks = {}
            for i, region in ipairs { false, true } do
                local model = gpt2.new('124M', { region = region })
                local ids, labels = batch_of(model, 2, 512)
                local by_path = wane.policy.by_path { { '^blocks', 'recompute' }, default = 'save' }
                peaks[i] = wane.plan(function() return gpt2.loss(model, ids, labels) end,
                    { policy = not region and by_path or nil }).peak
            end
            assert.is_true(peaks[2] <= peaks[1])
        end)
    end)

    it('take no memory and little time: LLaMA 7B with AdamW', function()
        local out, code = helper.shell(LUAJIT .. [[ -e '
            package.path = "lua/?.lua;lua/?/init.lua;" .. package.path
            local wane = require "wane"
            wane.set_device "meta"
            local llama = require "wane.zoo.llama"
            local function most()
                return tonumber(io.open("/proc/self/status"):read("*a"):match("VmHWM:%s*(%d+)")) / 1024
            end
            local before, start = most(), os.clock()
            local model = llama.new "7B"
            local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
            local ids, labels = wane.randint(32000, { 1, 2048 }), wane.randint(32000, { 1, 2048 })
            local function step() opt:step(llama.loss(model, ids, labels)) end
            local plan = wane.plan(step, { policy = "recompute_all" })
            print(plan.peak > 80e9, os.clock() - start, most() - before)
        ']])
        assert.equal(0, code, out)
        local fits, seconds, mebibytes = out:match '^(%S+)\t(%S+)\t(%S+)'
        assert.equal('true', fits)
        -- 0.08 to 0.11 s and 14 MiB were measured
        assert.is_true(tonumber(seconds) < 2, seconds)
        assert.is_true(tonumber(mebibytes) < 100, mebibytes)
    end)
end)

describe('a small model of the zoo', function()
    -- Trains a small model for 20 steps.
    local function train(zoo, opts, way)
        return ways.train(function()
            wane.manual_seed(3)
            local model = zoo.new('small', opts)
            local ids, labels = wane.eval(batch_of(model, 4, 32))
            return { loss = function() return zoo.loss(model, ids, labels) end, states = model:parameters(),
                optimizers = { wane.optim.AdamW(model:parameters(), { lr = 3e-3 }) } }
        end, way or {}, 20)
    end

    before_each(function() jit.flush() end) -- compiled code may keep a function of an earlier test, and so its model
    for name, zoo in pairs { gpt2 = gpt2, llama = llama } do
        it(name .. ' learns a batch with the same bits under a policy, and composed with near numbers', function()
            local run, low = train(zoo), train(zoo, nil, { policy = 'recompute_all' })
            local first, last = run.numbers[1], run.numbers[20]
            assert.is_true(last < first - 0.5, ('%g to %g'):format(first, last))
            assert.is_true(low.peak < run.peak)
            assert.is_true(run.bits == low.bits, 'other bits')
            assert.is_true(math.abs(train(zoo, { tiled = false }).numbers[20] - last) < 1e-3 * last)
        end)
    end
end)

-- ---- GPT -----------------------------------------------------------------------------------------------------------
-- Trains a small GPT (spec/support/gpt.lua) under many decisions. Every one must give the same bits, every program must
-- use exactly the predicted bytes, the three usual lines must equal opt:step(loss), and the gradients must be those of
-- finite differences.
local policy = wane.policy

local STEPS, SOME = 50, 8

local by_op = policy.by_op { gelu = 'recompute', dropout = 'recompute', softmax = 'recompute' }

-- Decisions that recompute, by name.
local DECISIONS = {
    ['by type'] = { policy = policy.by_type { Attention = 'recompute', Conv = 'save', default = 'save',
        optional = true } },
    ['by op'] = { policy = by_op },
    ['a function of bytes'] = { policy = function(r) return r.bytes >= 8192 and 'recompute' or 'save' end },
    ['a region a block'] = { marks = 'regions' },
    ['nested regions'] = { marks = 'nested' },
    ['nested regions, a function without an opinion of small ones on top'] = { marks = 'nested',
        policy = function(r) return r.bytes >= 16384 and 'recompute' or nil end },
    ['by op, on top of regions'] = { marks = 'regions', policy = by_op },
    ['a policy of the model'] = { attach = function(model) model:checkpoint('every(2)') end },
    ['a policy of a block'] = { attach = function(model) model.blocks[1]:checkpoint() end },
    ['a policy of the inside, another of the call'] = { policy = by_op,
        attach = function(model) model.blocks[1].attn:checkpoint() end },
    ['every number again'] = { policy = policy.by_op { default = 'recompute' } },
}
for _, name in ipairs { 'recompute_all', 'sqrt', 'segments(2)', 'every(1)' } do DECISIONS[name] = { policy = name } end

local plain, some = ways.train(gpt.world, { lines = true }, STEPS), ways.train(gpt.world, {}, SOME)

-- Returns the most bytes of a kind that were alive in a program of a training.
local function most_of(run, kind)
    local bytes = 0
    for i = 1, 9 do
        for _, measured in ipairs(programs.kind(i) == kind and run.programs or {}) do
            bytes = math.max(bytes, measured.kinds[i])
        end
    end
    return bytes
end

describe('a small GPT without a policy', function()
    it('learns, and leaves what is frozen', function()
        local first, last = plain.numbers[1], plain.numbers[STEPS]
        assert(last < 0.7 * first, ('loss from %g to %g'):format(first, last))
        local world, tables = gpt.world {}, 0
        for k, name in ipairs(world.names) do
            local is_changed = plain.states[k] ~= gradcheck.bytes(world.states[k])
            assert.equal(not name:match 'blocks%.2%.mlp%.up', is_changed, name)
            tables = tables + (name:match '^wte' and 1 or 0)
        end
        assert.same({ 1, 36 }, { tables, #world.names }) -- the tied table counts once
    end)

    it('steps in one program and in three lines to the same bits, with fewer gradients alive in one', function()
        local fused = ways.train(gpt.world, {}, STEPS)
        assert.equal(0, plain.recomputed)
        assert.is_true(plain.bits == fused.bits)
        assert.same({ 2 * STEPS, STEPS }, { #plain.programs, #fused.programs })
        -- A backward by itself does not hold the optimizer's numbers; a step does.
        local state = most_of(fused, 'optimizer')
        assert(state > 0 and fused.peak <= plain.peak + state, ('%d against %d'):format(fused.peak, plain.peak + state))
        assert(most_of(fused, 'gradient') < most_of(plain, 'gradient'))
    end)
end)

describe('a small GPT has the same bits', function()
    for name, how in pairs(DECISIONS) do
        it('in three lines and in one program, and recomputes: ' .. name, function()
            for _, lines in ipairs { true, false } do
                local way = { lines = lines, policy = how.policy, marks = how.marks, attach = how.attach }
                local run = ways.train(gpt.world, way, SOME)
                assert(run.recomputed > 0, 'nothing was recomputed')
                assert.is_true(some.bits == run.bits)
                if lines and (how.policy == 'recompute_all' or how.policy == 'every(1)' or how.marks == 'regions') then
                    assert(run.peak < 0.8 * plain.peak, ('%d against %d'):format(run.peak, plain.peak))
                end
            end
        end)
    end
end)

describe('the gradients of a small GPT in f64', function()
    local function check(marks, seed, most)
        wane.manual_seed(seed)
        local model = gpt.model 'f64'
        local cells = {}
        for _, p in model:named_parameters() do
            if p.requires_grad then cells[#cells + 1] = p end
        end
        assert.equal(34, #cells)
        local ids, labels = gpt.batch_of(1, 2)
        local wrong, compared = gradcheck.wrong(cells, function()
            wane.manual_seed(seed + 1) -- the same masks every time
            return gpt.loss(model, ids, labels, marks)
        end, { most = most, step = 2e-4 })
        assert(not wrong, wrong)
        assert.equal(most * #cells, compared)
    end

    it('are the slopes of finite differences', function() check(nil, 21, 6) end)
    it('are so with nested regions', function() check('nested', 22, 3) end)

    it('are the same bits under a policy', function()
        local few = ways.train(gpt.world, { dtype = 'f64' })
        local again = ways.train(gpt.world, { dtype = 'f64', policy = 'recompute_all', lines = true })
        assert.is_true(few.bits == again.bits)
    end)
end)
