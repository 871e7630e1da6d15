-- Runs random networks under random decisions: any graph of the ops, cut into nested checkpoint regions at random, with
-- a random decision for every residual. Each must give the bits that saving everything gives, and take the predicted
-- bytes. Every third network is recorded under autocast; every network has a state that is cast once and read
-- everywhere. The message of a failure contains the seed of its network.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local programs = require 'spec.support.programs'

local nn = wane.nn
local C = binding.C
local N, D = 6, 16

-- Returns a small generator of our own, function(n) -> 1 to n, so that a network is the same whatever else draws
-- numbers.
local function dice(seed)
    local state = seed * 7919 + 17
    return function(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return math.floor(state / 65536) % n + 1
    end
end

local function new_parameters()
    local p = {}
    local weight = binding.type_of({ D, D }, 0, 'weight')
    local laid = C.wn_weight_layout(C.wn_here().device, weight) -- in panels on a CPU, plain on a GPU
    for i = 1, 4 do
        p[i] = nn.Parameter(create.laid(wane.randn(D, D) * 0.2, i < 3 and laid or 0), 'w' .. i)
    end
    for i = 5, 6 do p[i] = nn.Parameter(wane.randn(D) * 0.3, 'b' .. i) end
    p[7], p[8] = nn.Parameter(wane.ones(D), 'gain'), nn.Parameter(wane.zeros(D), 'shift')
    p[9] = nn.Parameter(wane.randn(D, { dtype = 'f64' }), 'wide')
    p.cast = p[9]:to 'f32'
    return p
end

local norm = function(x, p)
    local centred = x - x:mean(-1):unsqueeze(-1)
    return centred / ((centred * centred):mean(-1):unsqueeze(-1) + 1e-5):sqrt() * p[7] + p[8]
end

-- Each of `steps` takes two (N, D) values and gives one.
local steps = {
    function(a, b) return a + b end,
    function(a, b) return a * b end,
    function(a, b) return a - b end,
    function(a) return a:relu() end,
    function(a) return a:gelu() end,
    function(a) return a:tanh() end,
    function(a) return a:softmax(-1) end,
    function(a, _, p, roll) return a:matmul(p[roll(4)]) end,
    function(a, _, p, roll) return a:matmul(p[roll(4)], { transpose_b = true }) + p[4 + roll(2)] end,
    function(a, _, p) return norm(a, p) end,
    function(a, _, _, _, drop) return drop(a) end,
    function(a) return a:reshape(D, N):transpose(1, 2):reshape(N, D) end,
    function(a, b) return wane.cat({ a:narrow(2, 1, 3), b:narrow(2, 4, D - 3) }, 2) end,
    function(a, b) return wane.where(a:gt(b), a, b * 0.5) end,
    function(a) return a - a:max(1, { keepdim = true }) end,
    function(a) return a:sigmoid() * a end,
    function(a, _, p) return a * p.cast end,
    function(a, _, p, roll) return a * p[roll(2)]:sum(1) end, -- reads a plain copy
    function(a, _, p, roll) return a:matmul((p[roll(2)] * 0.5):tanh()) end,
}

-- Appends `n` steps to the pool of values; now and then a stretch of them becomes a region, with regions inside.
local function grow(pool, n, p, roll, drop, depth)
    while n > 0 do
        if depth < 3 and roll(4) == 1 then
            local inside = math.min(n, 1 + roll(5))
            local a, b = pool[roll(#pool)], pool[#pool]
            local x, y = wane.checkpoint(function(u, v)
                local inner = { u, v }
                grow(inner, inside, p, roll, drop, depth + 1)
                return inner[#inner], inner[roll(#inner)]
            end, a, b)
            pool[#pool + 1] = y
            pool[#pool + 1] = x
            n = n - inside
        else
            pool[#pool + 1] = steps[roll(#steps)](pool[#pool], pool[roll(#pool)], p, roll, drop)
            n = n - 1
        end
    end
end

local function network(seed, policy)
    local roll = dice(seed)
    wane.manual_seed(seed)
    local p = new_parameters()
    local drop = nn.Dropout(0.3)
    local x = wane.randn(N, D, { requires_grad = true })
    local pool = { x, x * 0.5 }
    local loss = wane.autocast(seed % 3 == 0 and 'bf16' or 'f32', function()
        grow(pool, 6 + roll(14), p, roll, drop, 0)
        return pool[#pool]:mean() + (pool[roll(#pool)] * 0.1):sum()
    end)
    local ran = programs.run { mode = 'backward', roots = { loss }, policy = policy }
    local bits, grads = { ('%.17g'):format(loss:item()) }, {}
    p[#p + 1] = x
    for _, q in ipairs(p) do
        if q.grad then grads[#grads + 1] = q.grad end
    end
    for _, text in ipairs(programs.bytes(grads)) do bits[#bits + 1] = text end
    return table.concat(bits, '/'), ran, #grads
end

local function words(seed)
    local roll = dice(seed)
    return function() return ({ 'save', 'recompute', nil })[roll(3)] end
end

-- Returns a policy of random words that keeps signs as bits wherever the backward reads no more.
local function signs(seed)
    local word = words(seed)
    return function(r) return r.sign_only and 'compress:bits' or word() end
end

describe('random networks', function()
    after_each(function()
        C.wn_debug('check', 0)
        C.wn_debug('poison', 0)
    end)

    for from = 1, helper.is_long and 240 or 20, 20 do
        it(('give one set of bits and the bytes predicted, networks %d to %d'):format(from, from + 19), function()
            local recomputed, finite = 0, 0
            for seed = from, from + 19 do
                C.wn_debug('check', 0)
                local expected, _, grads = network(seed, 'save_all')
                assert.is_true(grads > 0, 'network ' .. seed)
                finite = finite + (expected:match '^%-?%d' and 1 or 0)
                C.wn_debug('check', seed % 4 == 0 and 1 or 0)
                C.wn_debug('poison', seed % 2)
                local decisions = { 'recompute_all', words(seed), words(seed + 1000), 'every(2)', signs(seed) }
                decisions[6] = false -- the marks alone
                for k, policy in ipairs(decisions) do
                    local what = ('network %d, decision %d'):format(seed, k)
                    local bits, ran = network(seed, policy or nil)
                    assert.is_true(bits == expected, what .. ': other bits')
                    assert.equal(ran.predicted.peak, ran.measured.peak, what)
                    assert.equal(ran.predicted.reserved, ran.measured.reserved, what)
                    for i = 1, 9 do assert.equal(ran.predicted.kinds[i], ran.measured.kinds[i], what) end
                    recomputed = recomputed + ran.predicted.recomputed
                end
            end
            assert.is_true(recomputed > 100)
            assert.is_true(finite >= 18, finite .. ' of 20 losses are numbers')
        end)
    end
end)
