-- Compares opt:step(loss) with the three usual lines, and with these when every rewrite is off: every parameter and
-- every cell of an optimizer must have equal bits. The networks are random: parameters are inputs, products of
-- parameters are weights, weights are computed, frozen and shared, and two optimizers share a model. Cases that went
-- wrong follow.
local wane = require 'wane'
local binding = require 'wane.ffi'
local networks = require 'spec.support.networks'
local gradcheck = require 'spec.support.gradcheck'

local C = binding.C
local nn, optim = wane.nn, wane.optim
local LONG = os.getenv('WANE_SPEC_LONG') == '1'

local function split(fn, ...)
    binding.check(C.wn_debug('rewrite', 0))
    local ok, out = pcall(fn, ...)
    binding.check(C.wn_debug('rewrite', 1))
    if not ok then error(out, 0) end
    return out
end

-- Runs one step of each optimizer, by one program or by three lines.
local function step(optimizers, loss, is_fused)
    for _, opt in ipairs(optimizers) do
        if is_fused then
            opt:step(loss())
        else
            for _, each in ipairs(optimizers) do each:zero_grad() end
            loss():backward()
            opt:step()
        end
    end
    if not is_fused then
        for _, each in ipairs(optimizers) do each:zero_grad() end
    end
end

local function bytes_of(list)
    local out = {}
    for k, t in ipairs(list) do out[k] = gradcheck.bytes(t) end
    return out
end

local function train(seed, dtype, is_fused, more, cast)
    local net = networks.make(seed, dtype)
    local optimizers = networks.optimizers(net, more)
    local loss = cast and function() return wane.autocast('bf16', net.loss) end or net.loss
    for _ = 1, 3 do step(optimizers, loss, is_fused) end
    return bytes_of(networks.states(net, optimizers)), table.concat(net.kinds, ', ')
end

local function same(a, b, what)
    assert(#a == #b and #a > 0, what)
    for k = 1, #a do
        assert(a[k] == b[k], ('%s: state %d of %d differs'):format(what, k, #a))
    end
end

local function compare(seed, dtype, more, cast)
    local fused, kinds = train(seed, dtype, true, more, cast)
    local what = ('network %d (%s; %s)'):format(seed, dtype or 'f32', kinds)
    same((train(seed, dtype, false, more, cast)), fused, what .. ', three lines')
    same(split(train, seed, dtype, false, more, cast), fused, what .. ', three lines without rewrites')
    if LONG then same(split(train, seed, dtype, true, more, cast), fused, what .. ', one program, no rewrites') end
end

describe('opt:step(loss) trains to the bits of the three lines', function()
    it('on random networks of f32', function()
        for seed = 1, LONG and 300 or 10 do compare(seed) end
    end)

    it('on random networks of f64, and under autocast', function()
        for seed = 1001, LONG and 1100 or 1002 do compare(seed, 'f64') end
        for seed = 2001, LONG and 2100 or 2002 do compare(seed, nil, nil, true) end
    end)

    it('with clipped gradients', function()
        for seed = 3001, LONG and 3200 or 3004 do compare(seed, nil, { clip_norm = 0.3 }) end
        for seed = 3201, LONG and 3230 or 3201 do compare(seed, 'f64', { clip_norm = 0.3 }) end
        for seed = 3301, LONG and 3330 or 3301 do compare(seed, 'bf16', { clip_norm = 0.3 }) end
        for seed = 3401, LONG and 3430 or 3401 do compare(seed, nil, { clip_norm = 0.3 }, true) end
    end)

    it('with a prompt before a frozen network', function()
        local function prompt(is_fused)
            wane.manual_seed(1)
            local model = nn.Sequential { nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4) }
            for _, p in ipairs(model:parameters()) do p.requires_grad = false end
            local p = nn.Parameter(wane.randn(8, 32) * 0.1)
            local labels = wane.randint(0, 4, { 8 }):retain()
            local opt = optim.Adam({ p }, { lr = 0.05 })
            local loss
            for _ = 1, 60 do
                loss = nn.cross_entropy(model(p), labels)
                if is_fused then
                    opt:step(loss)
                else
                    opt:zero_grad()
                    loss:backward()
                    opt:step()
                end
            end
            return loss:item(), gradcheck.bytes(p)
        end
        local loss, bytes = prompt(true)
        local want, wanted = prompt(false)
        assert.equal(want, loss)
        assert(wanted == bytes)
        assert.is_true(loss < 0.5)
    end)

    -- CIRCLES maps a name to a function(parameters) -> loss; the matrices are a (20, 8), b (8, 20), c (20, 20).
    local CIRCLES = {
        ['two that read each other'] = function(a, b) return (a:matmul(b) ^ 2):mean() end,
        ['three in a circle'] = function(a, b, c)
            return (a:matmul(b) ^ 2):mean() + (b:matmul(c) ^ 2):mean() + (c:matmul(a) ^ 2):mean()
        end,
        ['a product of three'] = function(a, b, c) return (a:matmul(b):matmul(c) ^ 2):mean() end,
        ['one that reads itself'] = function(_, _, c) return (c:detach():matmul(c) ^ 2):mean() end,
        ['itself from the right'] = function(_, _, c) return (c:matmul(c:detach()) ^ 2):mean() end,
        ['its own copy'] = function(_, _, c) return (c:matmul(c:detach():t():t()) ^ 2):mean() end,
        ['a weight of low rank'] = function(a, b, _, x) return (x:matmul(a:matmul(b)) ^ 2):mean() end,
        ['gradients that are parameters'] = function(_, _, c, _, d)
            local swap = wane.custom(function(_, u, v) return u * v end, function(_, _, u, v) return v, u end)
            return swap(c, d):sum()
        end,
    }
    for name, loss in pairs(CIRCLES) do
        it(name, function()
            local function run(is_fused, make)
                wane.manual_seed(2)
                local list = {}
                for k, dims in ipairs { { 20, 8 }, { 8, 20 }, { 20, 20 }, { 20, 20 } } do
                    list[k] = nn.Parameter(wane.randn(dims[1], dims[2]) * 0.3)
                end
                local x = wane.randn(16, 20):retain()
                local optimizers = { make(list) }
                for _ = 1, 3 do
                    step(optimizers, function() return loss(list[1], list[2], list[3], x, list[4]) end, is_fused)
                end
                return bytes_of(list)
            end
            for _, make in ipairs { function(l) return optim.SGD(l, { lr = 0.1 }) end,
                function(l) return optim.Adam(l, { lr = 0.01 }) end } do
                same(run(false, make), run(true, make), name)
                same(split(run, false, make), run(true, make), name)
            end
        end)
    end

    it('states that take each other\'s value', function()
        local Pair = nn.module('Pair', function(self)
            self.a, self.b = nn.Parameter(wane.ones(3)), nn.Parameter(wane.zeros(3))
            self.c = nn.Parameter(wane.full({ 3 }, 5))
        end)
        local pair = Pair()
        pair:load_state_dict { a = pair.b, b = pair.c, c = pair.a }
        assert.are.same({ 0, 0, 0 }, pair.a:totable())
        assert.are.same({ 5, 5, 5 }, pair.b:totable())
        assert.are.same({ 1, 1, 1 }, pair.c:totable())
    end)
end)
