-- Compares opt:step(loss) with the three usual lines, and with these when every rewrite is off: every parameter and
-- every cell of an optimizer must have equal bits. The networks are random: parameters are inputs, products of
-- parameters are weights, weights are computed, frozen and shared, and two optimizers share a model. Cases that went
-- wrong follow.
local wane = require 'wane'
local networks = require 'spec.support.networks'
local ways = require 'spec.support.ways'

local nn, optim = wane.nn, wane.optim
local LONG = os.getenv('WANE_SPEC_LONG') == '1'

-- Fails unless a world of ways.train has the same states in one program, in three lines, and in these without rewrites.
-- Returns the last loss.
local function compare(what, make, steps)
    local want = ways.train(make, {}, steps)
    assert(#want.states > 0, what)
    for _, way in ipairs { { lines = true }, { lines = true, split = true }, LONG and { split = true } or nil } do
        local have = ways.train(make, way, steps).states
        for k, bytes in ipairs(want.states) do
            assert(bytes == have[k], ('%s, %s: state %d differs'):format(what, ways.text(way), k))
        end
    end
    return want.numbers[#want.numbers]
end

local function train(seed, dtype, more, cast)
    compare(('network %d (%s)'):format(seed, dtype or 'f32'), function()
        local net = networks.make(seed, dtype)
        local optimizers = networks.optimizers(net, more)
        return { loss = cast and function() return wane.autocast('bf16', net.loss) end or net.loss,
            optimizers = optimizers, states = networks.states(net, optimizers) }
    end)
end

describe('opt:step(loss) trains to the bits of the three lines', function()
    it('on random networks of f32', function()
        for seed = 1, LONG and 300 or 10 do train(seed) end
    end)

    it('on random networks of f64, and under autocast', function()
        for seed = 1001, LONG and 1100 or 1002 do train(seed, 'f64') end
        for seed = 2001, LONG and 2100 or 2002 do train(seed, nil, nil, true) end
    end)

    it('with clipped gradients', function()
        for seed = 3001, LONG and 3200 or 3004 do train(seed, nil, { clip_norm = 0.3 }) end
        for seed = 3201, LONG and 3230 or 3201 do train(seed, 'f64', { clip_norm = 0.3 }) end
        for seed = 3301, LONG and 3330 or 3301 do train(seed, 'bf16', { clip_norm = 0.3 }) end
        for seed = 3401, LONG and 3430 or 3401 do train(seed, nil, { clip_norm = 0.3 }, true) end
    end)

    it('with a prompt before a frozen network', function()
        assert.is_true(compare('a prompt', function()
            wane.manual_seed(1)
            local model = nn.Sequential { nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4) }
            for _, p in ipairs(model:parameters()) do p.requires_grad = false end
            local p, labels = nn.Parameter(wane.randn(8, 32) * 0.1), wane.randint(0, 4, { 8 }):retain()
            return { loss = function() return nn.cross_entropy(model(p), labels) end, states = { p },
                optimizers = { optim.Adam({ p }, { lr = 0.05 }) } }
        end, 60) < 0.5)
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
            for _, optimizer in ipairs { function(l) return optim.SGD(l, { lr = 0.1 }) end,
                function(l) return optim.Adam(l, { lr = 0.01 }) end } do
                compare(name, function()
                    wane.manual_seed(2)
                    local list = {}
                    for k, dims in ipairs { { 20, 8 }, { 8, 20 }, { 20, 20 }, { 20, 20 } } do
                        list[k] = nn.Parameter(wane.randn(dims[1], dims[2]) * 0.3)
                    end
                    local x = wane.randn(16, 20):retain()
                    return { loss = function() return loss(list[1], list[2], list[3], x, list[4]) end, states = list,
                        optimizers = { optimizer(list) } }
                end)
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

-- ---- random scripts ------------------------------------------------------------------------------------------------
-- Compares random scripts of run points with the same scripts in plain Lua numbers: backward, steps, assignment,
-- freezing, clearing and reading, in any order, over programs that share plans. Whatever is cached, held, stale or
-- spent, values and gradients must be the same doubles. All numbers are dyadic, so that every sum is exact in any
-- order.
describe('a random script', function()
    local WIDTH = 3
    local policies = { 'save_all', 'recompute_all', 'every(2)' } -- and none
    local state

    local function random(n)
        state = (state * 16807) % 2147483647
        return state % n + 1
    end

    local function map(f, ...)
        local lists, out = { ... }, {}
        for i = 1, WIDTH do out[i] = f(lists[1][i], lists[2] and lists[2][i], lists[3] and lists[3][i]) end
        return out
    end

    -- Each builder takes one or two expressions and returns the tensor of a new one, then the mirror: its value and
    -- back(gradient) -> gradients of the inputs.
    local builders = {
        function(a, b)
            return a.t + b.t, map(function(x, y) return x + y end, a.v, b.v), function(g) return g, g end
        end,
        function(a, b)
            return a.t - b.t, map(function(x, y) return x - y end, a.v, b.v),
                function(g) return g, map(function(x) return -x end, g) end
        end,
        function(a, b)
            return a.t * b.t * 0.125, map(function(x, y) return x * y * 0.125 end, a.v, b.v), function(g)
                return map(function(x, y) return x * y * 0.125 end, g, b.v),
                    map(function(x, y) return x * y * 0.125 end, g, a.v)
            end
        end,
        function(a)
            return a.t:relu(), map(function(x) return math.max(x, 0) end, a.v), function(g)
                return map(function(x, y) return y > 0 and x or 0 end, g, a.v)
            end
        end,
        function(a)
            local k = random(5) - 3
            return a.t * k, map(function(x) return x * k end, a.v), function(g)
                return map(function(x) return x * k end, g)
            end
        end,
        function(a)
            return a.t:detach(), a.v, function() end
        end,
    }

    local function build(pool)
        local a, b = pool[random(#pool)], pool[random(#pool)]
        local n = { inputs = { a, b }, order = #pool + 1 }
        local builder = builders[random(#builders)]
        if random(3) == 1 then
            n.t, n.v, n.back = wane.checkpoint(builder, a, b)
        else
            n.t, n.v, n.back = builder(a, b)
        end
        pool[#pool + 1] = n
        return n
    end

    -- Adds the gradients of root's sum to each cell's mirror.
    local function differentiate(root, scale)
        local seen, list = {}, {}
        local function visit(n)
            if seen[n] then return end
            seen[n] = true
            for _, i in ipairs(n.inputs or {}) do visit(i) end
            list[#list + 1] = n
        end
        visit(root)
        local grads = { [root] = map(function() return scale end, {}) }
        for k = #list, 1, -1 do
            local n = list[k]
            local g = grads[n]
            if g and n.cell and n.cell.trains then n.cell.found = n.cell.found and map(function(x, y) return x + y end,
                n.cell.found, g) or g end
            if g and n.back then
                local parts = { n.back(g) }
                for i, part in ipairs(parts) do -- none for detach
                    local into = n.inputs[i]
                    grads[into] = grads[into] and map(function(x, y) return x + y end, grads[into], part) or part
                end
            end
        end
    end

    -- Returns whether a gradient can flow from root to a cell that trains.
    local function reaches(root)
        if root.cell then return root.cell.trains end
        if not root.t.requires_grad then return false end
        return true
    end

    local function take(cells)
        for _, c in ipairs(cells) do
            if c.found then c.g = c.g and map(function(x, y) return x + y end, c.g, c.found) or c.found end
            c.found = nil
        end
    end

    local function check(cells)
        for k, c in ipairs(cells) do
            assert.same(c.v, c.p:totable(), 'state ' .. k)
            local grad = c.p.grad
            if c.g == nil then
                assert.is_nil(grad, 'gradient ' .. k)
            else
                assert.same(c.g, grad:totable(), 'gradient ' .. k)
            end
        end
    end

    local function script(seed, steps)
        state = seed
        for _ = 1, 10 do random(2) end
        local cells = {}
        for k = 1, 3 do
            local v = map(function() return random(9) - 5 end, {})
            cells[k] = { v = v, trains = true, p = nn.Parameter(wane.tensor(v, { dtype = 'f64' })) }
        end
        local params = {}
        for k, c in ipairs(cells) do params[k] = c.p end
        local opt = optim.SGD(params, { lr = 0.5 })
        local input = { v = { 1, -2, 3 }, t = wane.tensor({ 1, -2, 3 }, { dtype = 'f64' }) }
        local held
        for _ = 1, steps do
            local pool = { input }
            for k, c in ipairs(cells) do pool[k + 1] = { t = c.p, v = c.v, cell = c } end
            if held then pool[#pool + 1] = held end
            for _ = 1, 2 + random(5) do build(pool) end
            local root = pool[#pool]
            if random(3) == 1 then
                local middle = pool[#pool - 1]
                assert.same(middle.v, middle.t:totable())
            end
            local action = random(8)
            local scale = 2 ^ -random(3)
            local can = reaches(root)
            if action <= 2 and can then
                differentiate(root, scale)
                root.t:sum():backward { scale = scale, policy = policies[random(4)] }
                take(cells)
            elseif action == 3 and can then
                local other = build(pool)
                if reaches(other) then
                    differentiate(root, 1)
                    differentiate(other, 1)
                    if random(2) == 1 then
                        wane.backward { root.t:sum(), other.t:sum() }
                    else
                        root.t:sum():backward { again = true }
                        other.t:sum():backward()
                    end
                    take(cells)
                end
            elseif action == 4 and can then
                differentiate(root, 1)
                opt.lr = 2 ^ -(2 + random(3))
                local loss = opt:step(root.t:sum(), { policy = policies[random(4)] })
                for _, c in ipairs(cells) do
                    if c.found then c.v = map(function(x, g) return x - opt.lr * g end, c.v, c.found) end
                    c.found = nil
                end
                local sum = 0
                for _, v in ipairs(root.v) do sum = sum + v end
                assert.equal(sum, loss:item())
            elseif action == 5 then
                local any = false
                for _, c in ipairs(cells) do any = any or c.g ~= nil and c.trains end
                if any then
                    opt:step()
                    for _, c in ipairs(cells) do
                        if c.g and c.trains then c.v = map(function(x, g) return x - opt.lr * g end, c.v, c.g) end
                    end
                end
                opt:zero_grad()
                for _, c in ipairs(cells) do c.g = nil end
            elseif action == 6 then
                local c = cells[random(3)]
                c.p:assign(root.t)
                c.v = root.v
            elseif action == 7 then
                local c = cells[random(3)]
                c.trains = not c.trains
                c.p.requires_grad = c.trains
            else
                local c = cells[random(3)]
                c.p.grad, c.g = nil, nil
                held = { t = root.t:detach(), v = root.v }
                wane.eval(held.t)
            end
            -- Draws a cell's numbers anew once one of them is above 64 or has more than 20 binary places, so that sums
            -- stay exact.
            for _, c in ipairs(cells) do
                local most = 0
                for _, v in ipairs(c.v) do most = math.max(most, math.abs(v)) end
                for _, v in ipairs(c.v) do if v * 2 ^ 20 % 1 ~= 0 then most = 1e9 end end
                if most > 64 then
                    c.v = map(function() return random(9) - 5 end, {})
                    c.p:assign(wane.tensor(c.v, { dtype = 'f64' }))
                end
            end
            check(cells)
        end
    end

    for block = 1, 5 do
        it('gives the numbers of plain Lua, scripts ' .. 20 * block - 19 .. ' to ' .. 20 * block, function()
            for seed = 20 * block - 19, 20 * block do script(seed * 7919, 40) end
        end)
    end
end)
