-- Trains a small GPT (spec/support/gpt.lua) under many decisions. Every one must give the same bits, every program must
-- use exactly the predicted bytes, the three usual lines must equal opt:step(loss), a second device must equal the
-- first, and the gradients must be those of finite differences.
local helper = require 'spec.helper'
local gpt = require 'spec.support.gpt'
local gradcheck = require 'spec.support.gradcheck'
local wane = helper.wane
local policy = wane.policy

local STEPS, SOME, FEW = 50, 8, 4
local MIRROR = require('wane.tensor.op').device('mirror', 'spec')

local function by_bytes(r)
    return r.bytes >= 8192 and 'recompute' or 'save'
end

local function some_bytes(r) -- without an opinion of small ones
    if r.bytes >= 16384 then return 'recompute' end
end

local by_type = policy.by_type { Attention = 'recompute', Conv = 'save', default = 'save', optional = true }
local by_op = policy.by_op { gelu = 'recompute', dropout = 'recompute', softmax = 'recompute' }

-- name, and what gpt.train takes. `short`: these train for fewer steps.
local ways = {
    { 'recompute_all', { policy = 'recompute_all' } },
    { 'sqrt', { policy = 'sqrt' } },
    { 'segments(2)', { policy = 'segments(2)' } },
    { 'every(1)', { policy = 'every(1)' } },
    { 'by type', { policy = by_type } },
    { 'by op', { policy = by_op } },
    { 'a function of bytes', { policy = by_bytes } },
    { 'a region a block', { marks = 'regions' } },
    { 'nested regions', { marks = 'nested' } },
    { 'nested regions, a function on top', { short = true, marks = 'nested', policy = some_bytes } },
    { 'by op, on top of regions', { short = true, marks = 'regions', policy = by_op } },
    { 'a policy of the model', { short = true, attach = function(model) model:checkpoint('every(2)') end } },
    { 'a policy of a block', { short = true, attach = function(model) model.blocks[1]:checkpoint() end } },
    { 'a policy of the inside, another of the call', { short = true, policy = by_op,
        attach = function(model) model.blocks[1].attn:checkpoint() end } },
    { 'every number again', { short = true, policy = policy.by_op { default = 'recompute' } } },
}

local function with(o, more)
    local out = { steps = STEPS }
    for key, value in pairs(o) do out[key] = value end
    for key, value in pairs(more or {}) do out[key] = value end
    return out
end

local plain = gpt.train { steps = STEPS }
local some = gpt.train { steps = SOME }
local few = gpt.train { steps = FEW }

local function assert_same(run, other)
    for k, bytes in ipairs(other.losses) do
        assert(run.losses[k] == bytes, ('the loss of step %d differs'):format(k))
    end
    assert.equal(#other.losses, #run.losses)
    for k, bytes in ipairs(other.parameters) do
        assert(run.parameters[k] == bytes, other.names[k] .. ' differs after training')
    end
    assert.equal(#other.parameters, #run.parameters)
end

local function assert_exact(run, programs)
    assert.equal(programs, #run.programs)
    for k, numbers in ipairs(run.programs) do
        for name, pair in pairs(numbers) do
            if name ~= 'mode' then
                assert(pair[1] == pair[2], ('program %d (%s), %s: predicted %d, measured %d'):format(k, numbers.mode,
                    name, pair[1], pair[2]))
            end
        end
        assert(numbers.peak[2] > 0 and numbers.reserved[2] >= numbers.peak[2], 'nothing was measured')
    end
end

describe('a small GPT without a policy', function()
    it('learns, and leaves what is frozen', function()
        assert(plain.value < 0.7 * plain.start, ('loss from %g to %g'):format(plain.start, plain.value))
        assert.equal(plain.first, plain.last)
        local changed = {}
        for k, name in ipairs(plain.names) do changed[name] = plain.parameters[k] ~= few.parameters[k] end
        for name, is in pairs(changed) do assert.equal(not name:match('blocks%.2%.mlp%.up'), is, name) end
    end)

    it('counts the tied table once', function()
        local count = 0
        for _, name in ipairs(plain.names) do count = count + (name:match('^wte') and 1 or 0) end
        assert.equal(1, count)
        assert.equal(36, #plain.names)
    end)

    it('gives the same bits again', function()
        assert_same(gpt.train { steps = STEPS }, plain)
    end)

    it('uses the bytes that were predicted', function()
        assert.equal(0, plain.recomputed)
        assert_exact(plain, 2 * STEPS)
    end)

    it('steps in one program to the same bits, with the bytes predicted, and fewer gradients alive', function()
        local fused = gpt.train { steps = STEPS, fused = true }
        assert_same(fused, plain)
        assert_exact(fused, STEPS)
        local function most(run, name)
            local bytes = 0
            for _, numbers in ipairs(run.programs) do bytes = math.max(bytes, numbers[name][2]) end
            return bytes
        end
        -- A backward by itself does not hold the optimizer's numbers; a step does.
        local state = most(fused, 'peak of optimizer')
        assert(state > 0 and fused.peak <= plain.peak + state, ('%d against %d'):format(fused.peak, plain.peak + state))
        assert(most(fused, 'peak of gradient') < most(plain, 'peak of gradient'))
    end)
end)

for _, way in ipairs(ways) do
    describe('under ' .. way[1], function()
        it('the three lines give the same bits and use the bytes predicted', function()
            local steps = way[2].short and SOME or STEPS
            local run = gpt.train(with(way[2], { steps = steps }))
            assert(run.recomputed > 0, 'nothing was recomputed')
            assert_same(run, way[2].short and some or plain)
            assert_exact(run, 2 * steps)
        end)

        it('opt:step(loss) gives the same bits and uses the bytes predicted', function()
            local run = gpt.train(with(way[2], { steps = SOME, fused = true }))
            assert(run.recomputed > 0, 'nothing was recomputed')
            assert_same(run, some)
            assert_exact(run, SOME)
        end)
    end)
end

describe('the peak of a small GPT', function()
    it('falls where the policy drops enough', function()
        for _, name in ipairs { 'recompute_all', 'every(1)', 'by op, on top of regions', 'a region a block' } do
            for _, way in ipairs(ways) do
                if way[1] == name then
                    local run = gpt.train(with(way[2], { steps = 1 }))
                    assert(run.peak < 0.8 * plain.peak, ('%s: %d against %d'):format(name, run.peak, plain.peak))
                end
            end
        end
    end)
end)

describe('a small GPT on the mirror', function()
    it('trains to the bits of the cpu with the same bytes, whatever the policy', function()
        for _, o in ipairs { {}, { fused = true }, { policy = 'recompute_all' }, { marks = 'nested', fused = true },
            { policy = by_op } } do
            local here = gpt.train(with(o, { steps = FEW }))
            local there = gpt.train(with(o, { steps = FEW, device = MIRROR }))
            assert_same(there, few)
            assert_exact(there, o.fused and FEW or 2 * FEW)
            assert.same(here.programs, there.programs)
        end
    end)
end)

describe('a small GPT in checked runs over poison', function()
    local C = require('wane.ffi').C
    before_each(function()
        C.wn_debug('check', 1)
        C.wn_debug('poison', 1)
    end)
    after_each(function()
        C.wn_debug('check', 0)
        C.wn_debug('poison', 0)
    end)

    it('has the bits of the others', function()
        local two = gpt.train { steps = 2 }
        assert.equal(plain.losses[2], two.losses[2])
        for _, o in ipairs { { policy = 'recompute_all' }, { marks = 'nested', fused = true },
            { policy = by_bytes } } do
            assert_same(gpt.train(with(o, { steps = 2 })), two)
        end
    end)
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
        assert_same(gpt.train { steps = FEW, dtype = 'f64', policy = 'recompute_all' },
            gpt.train { steps = FEW, dtype = 'f64' })
    end)
end)
