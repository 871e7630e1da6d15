-- Checks rewrites (runtime/plan/ir/rewrite.c): each pattern, recorded by a script, must be found, give the bits of the
-- separate nodes, and move or hold fewer bytes than they do. Where absorbing a value would change what a user sees, or
-- cost memory, the pattern must be left alone. spec/ways_spec.lua has the bits of trainings with rewrites and without.
local helper = require 'spec.helper'
local wane = require 'wane'
local array = require 'spec.cases.array'
local program = require 'wane.program'
local programs = require 'spec.support.programs'
local rewrites = require 'spec.support.rewrites'

local nn, optim = wane.nn, wane.optim
local run, better, backward = rewrites.run, rewrites.better, rewrites.backward
local split = rewrites.split

-- Returns opt:step(loss) as a request, and what it trains.
local function step(make, opt, parameters)
    local request
    program.planning(function() opt:step(make()) end, function(r) request = r end)
    request.roots = { make() }
    return request, parameters
end

describe('bias + activation', function()
    for _, act in ipairs { 'relu', 'tanh', 'sigmoid' } do
        it('linear + ' .. act .. ', and the gradient through it', function()
            better(function()
                local a, b = nn.Linear(40, 130), nn.Linear(130, 9)
                local x = wane.randn(70, 40)
                local y = a(x)
                local loss = (b(y[act](y)) ^ 2):mean()
                return backward(loss, { a.weight, a.bias, b.weight, b.bias })
            end, 'linear+' .. act)
        end)
    end

    it('is one node with gelu: forward when nothing else reads the sum, and in the gradient of a product', function()
        better(function()
            local a = nn.Linear(24, 200)
            local y = a(wane.randn(2, 33, 24)):gelu():retain()
            return { mode = 'eval', roots = { y } }, { y }
        end, 'linear+gelu')
        better(function()
            local a, b = nn.Linear(24, 200), nn.Linear(200, 24)
            local loss = (b(a(wane.randn(2, 33, 24)):gelu()) ^ 2):mean()
            return backward(loss, { a.weight, a.bias, b.weight })
        end, 'matmul+gelu_grad')
    end)

    it('rounds each step in bf16', function()
        better(function()
            local a, b = nn.Linear(40, 130), nn.Linear(130, 36)
            local x = wane.randn(700, 40)
            local loss = wane.autocast('bf16', function() return (b(a(x):gelu()):tanh() ^ 2):mean() end)
            return backward(loss, { a.weight, a.bias, b.weight, b.bias })
        end, 'matmul+gelu_grad')
    end)

    it('is one node with a batched product too', function()
        better(function()
            local a, b = wane.randn(3, 20, 150), wane.randn(3, 150, 31)
            local y = a:matmul(b):relu():retain()
            return { mode = 'eval', roots = { y } }, { y }
        end, 'matmul+relu')
    end)

    it('leaves a sum alone that something else reads, or that was asked for', function()
        local r = run(function()
            local a = nn.Linear(8, 8)
            local y = a(wane.randn(4, 8))
            local z = y:relu() + y
            return { mode = 'eval', roots = { z } }, { z }
        end)
        assert.equal(1, r.count.linear)
        r = run(function()
            local a = nn.Linear(8, 8)
            local y = a(wane.randn(4, 8)):retain()
            local z = y:relu()
            return { mode = 'eval', roots = { z } }, { y, z }
        end)
        assert.equal(1, r.count.linear)
    end)
end)

describe('residual + norm', function()
    it('adds the residual to the gradient of the norm in one node', function()
        better(function()
            local norm, up = nn.LayerNorm(96), nn.Linear(96, 96)
            local x = nn.Parameter(wane.randn(5, 20, 96))
            local h = x * 2
            local y = h + up(norm(h)):relu()
            return backward((y ^ 2):mean(), { x, norm.weight, norm.bias, up.weight })
        end, 'layernorm_dx_add')
    end)
end)

describe('cross-entropy', function()
    it('never writes a probability, forward or backward', function()
        for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
            local r = run(function()
                local head = nn.Linear(20, 300, { dtype = dtype })
                local x, labels = wane.randn(1100, 20, { dtype = dtype }), wane.randint(300, { 1100 })
                return backward(nn.cross_entropy(head(x), labels, { ignore_index = 5 }), { head.weight, head.bias })
            end)
            assert.same({ 1, 1, 1, 1 }, { r.count.row_stats, r.count.row_nll, r.count.row_count, r.count.row_nll_grad })
            assert.is_nil(r.count.log_softmax or r.count.softmax)
            local bytes = dtype == 'f64' and 8 or dtype == 'f32' and 4 or 2
            assert(r.peak < 1.5 * 1100 * 300 * bytes, r.peak) -- the scores, which their gradient overwrites
        end
    end)

    it('never keeps a probability of a log_softmax that only a loss reads', function()
        for _, dtype in ipairs { 'f32', 'f64' } do
            for _, opts in ipairs { {}, { ignore_index = 5, weight = wane.rand(300, { dtype = dtype }):retain() },
                { reduction = 'sum' } } do
                local fused, apart = better(function()
                    local head = nn.Linear(20, 300, { dtype = dtype })
                    local x, labels = wane.randn(1100, 20, { dtype = dtype }), wane.randint(300, { 1100 })
                    local loss = nn.nll_loss(head(x):log_softmax(-1), labels, opts)
                    return backward(loss, { head.weight, head.bias })
                end, 'row_stats')
                assert.is_nil(fused.count.log_softmax)
                assert(fused.peak < 0.6 * apart.peak, fused.peak .. ' bytes, apart ' .. apart.peak)
            end
        end
    end)

    it('leaves probabilities alone that are read elsewhere, and names itself when a label is wrong', function()
        local r = run(function()
            local x = nn.Parameter(wane.randn(4, 6))
            local logp = (x * 1):log_softmax(-1)
            local loss = nn.nll_loss(logp, wane.tensor({ 0, 1, 2, 3 }, { dtype = 'i32' })) + logp:exp():sum()
            return backward(loss, { x })
        end)
        assert.equal(1, r.count.log_softmax)
        local x = nn.Parameter(wane.randn(2, 3))
        local loss = nn.cross_entropy(x, wane.tensor({ 0, 3 }, { dtype = 'i32' }))
        helper.refused(nil, function() loss:backward() end, 'cross_entropy: label 3')
    end)
end)

describe('a mask', function()
    it('is put over what it masks, in place', function()
        local p = programs.run((function()
            local x, w = wane.randn(8, 64), wane.randn(64, 64)
            local scores = x:matmul(w):matmul(w)
            return { mode = 'eval', roots = { wane.where(x:gt(x * 0), scores, -math.huge):softmax(-1):sum() } }
        end)())
        local over
        for _, made in ipairs(programs.schedule(p)) do
            if made.op == 'where' and made.what == 'run' then over = made.inplace end
        end
        assert.equal(1, over)
    end)
end)

describe('elementwise ops in a row', function()
    it('are one pass with residual and dropout, with the same mask', function()
        better(function()
            local a, b = nn.Linear(64, 64), nn.Linear(64, 64)
            local drop = nn.Dropout(0.3)
            local x = wane.randn(37, 64)
            local h = a(x)
            local loss = (b(h + drop(b(h))) ^ 2):mean()
            return backward(loss, { a.weight, b.weight, b.bias })
        end, 'dropout+add')
    end)

    it('stop at six steps and four inputs, and keep the bits', function()
        local fused = better(function()
            local x = wane.randn(3000):retain()
            local y = x
            for _ = 1, 7 do y = (y * 1.01):tanh() end
            local u, v, w = wane.randn(3000), wane.randn(3000), wane.randn(3000)
            local z = (((x + u) * v - w) / (x * x + 1)):retain()
            return { mode = 'eval', roots = { y, z } }, { y, z }
        end, 'mul+tanh+mul+tanh+mul+tanh')
        for _, op in ipairs(fused.ops) do
            local _, n = op:gsub('+', '')
            assert.is_true(n <= 5, op)
        end
    end)

    it('do not keep two operands alive in place of one value', function()
        -- Returns a request for p s with p = a b: s is known long after a and b. Fused, both a and b would wait for s
        -- in place of p.
        local function build()
            local x = wane.randn(4, 1000):retain()
            local a, b = x:exp(), x:tanh()
            local p = a * b
            local s = x:matmul(x, { transpose_b = true }):sum()
            local y = (p * s):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end
        local fused, apart = run(build), split(run, build)
        assert.equal(apart.bytes, fused.bytes)
        assert.is_nil(fused.count['mul+mul'], table.concat(fused.ops, ' '))
        assert.is_true(fused.peak <= apart.peak)
    end)

    it('do not reach beyond a region', function()
        local r = run(function()
            local x = wane.randn(50, { requires_grad = true })
            local y = wane.checkpoint(function(v) return (v * 2):neg() end, x)
            local loss = y:abs():sum()
            return { mode = 'eval', roots = { loss } }, { loss }
        end)
        assert.equal('mul+neg abs sum', table.concat(r.ops, ' '):match('mul.*'))
    end)
end)

describe('optimizer into gradient', function()
    for _, name in ipairs { 'SGD', 'Momentum', 'Adam', 'AdamW' } do
        it(name .. ': the gradient of a weight never exists', function()
            local fused, apart = better(function()
                local model = nn.Sequential { nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 10) }
                local list = model:parameters()
                local opt = name == 'Momentum' and optim.SGD(list, { lr = 0.1, momentum = 0.9 })
                    or optim[name](list, { lr = 0.01 })
                local x = wane.randn(32, 200):retain()
                wane.eval(x)
                for _ = 1, 2 do opt:step((model(x) ^ 2):mean()) end
                return step(function() return (model(x) ^ 2):mean() end, opt, list)
            end, 'matmul+' .. (name == 'SGD' and 'sgd' or name == 'Momentum' and 'momentum' or 'adam'))
            assert.is_true(fused.peak < apart.peak, fused.peak .. ' bytes held, apart ' .. apart.peak)
        end)
    end

    it('reads its operands when its gradient is due, not at the end', function()
        for _, policy in ipairs { 'save_all', 'every(3)', 'sqrt' } do
            local r = run(function()
                local layers = {}
                for k = 1, 6 do layers[2 * k - 1], layers[2 * k] = nn.Linear(64, 64), nn.GELU() end
                local model = nn.Sequential(layers)
                local opt = optim.SGD(model:parameters(), { lr = 0.01 })
                local x = wane.randn(32, 64):retain()
                wane.eval(x)
                local request, list = step(function() return (model(x) ^ 2):mean() end, opt, model:parameters())
                request.policy = policy
                return request, list
            end)
            local order = table.concat(r.ops, ' ')
            assert.equal(6, r.count['matmul+sgd'])
            -- Each layer's update follows the gradient that goes on to the layer before.
            local between = select(2, order:gsub('matmul%+gelu_grad matmul%+sgd', ''))
            assert.is_true(between >= 4, policy .. ': ' .. order)
            assert.is_true((r.last[1] or 0) < r.last[2], policy .. ' recomputes when all is over')
        end
    end)

    it('leaves a weight alone that is read elsewhere too', function()
        local r = run(function()
            local w = nn.Parameter(wane.randn(32, 32))
            local opt = optim.SGD({ w }, { lr = 0.1 })
            local x = wane.randn(8, 32):retain()
            wane.eval(x)
            return step(function() return (x:matmul(w) + x:matmul(w:detach())):sum() end, opt, { w })
        end)
        assert.is_nil(r.count['matmul+sgd'])
    end)

    it('adds a second backward without a second gradient', function()
        local fused, apart = better(function()
            local a, b = nn.Linear(128, 256), nn.Linear(256, 4)
            local x = wane.randn(8, 128):retain()
            wane.eval(x)
            b(a(x):relu()):sum():backward()
            return backward((b(a(x):relu()) ^ 2):sum(), { a.weight, a.bias, b.weight })
        end, 'matmul+accumulate')
        assert.is_true(fused.peak < apart.peak)
    end)

    it('leaves tied weights and deep sums to themselves', function()
        for _, rows in ipairs { 8, 129 } do
            local r = run(function()
                local a = nn.Linear(32, 32, { bias = false })
                local opt = optim.SGD({ a.weight }, { lr = 0.1 })
                local x = wane.randn(rows, 32):retain()
                wane.eval(x)
                return step(function()
                    local y = a(x)
                    if rows == 8 then y = a(y:relu()) end
                    return y:sum()
                end, opt, { a.weight })
            end)
            assert.is_nil(r.count['matmul+sgd'])
            assert.equal(1, r.count.sgd)
        end
    end)
end)

describe('a rewrite', function()
    it('keeps the op, scope and name its user recorded', function()
        wane.manual_seed(1)
        local model = nn.Sequential { nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8) }
        local x = wane.randn(4, 8)
        local loss = model(x):sum()
        local seen = {}
        loss:backward { policy = function(r) seen[r.op .. ' ' .. r.path] = true end }
        assert.is_true(seen['relu 2'])
        for what in pairs(seen) do assert.is_nil(what:find('map', 1, true), what) end
    end)

    it('leaves every residual to the policy: what a fused update reads is one', function()
        local function residuals()
            wane.manual_seed(1)
            local model = nn.Sequential { nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4) }
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local x = wane.randn(4, 16):retain()
            wane.eval(x)
            local seen = {}
            opt:step((model(x) * 2):sum(), { policy = function(r) seen[#seen + 1] = r.op .. ' ' .. r.path end })
            table.sort(seen)
            return table.concat(seen, ', ')
        end
        assert.equal('gelu 2, linear 1', residuals()) -- gelu's result is read by a product that is inside an update now
        assert.equal('gelu 2, linear 1', split(residuals))
    end)

    it('is part of the key', function()
        local model = nn.Sequential { nn.Linear(8, 8), nn.ReLU() }
        local x = wane.randn(4, 8):retain()
        local function ops()
            return run(function()
                local loss = model(x):sum()
                return { mode = 'backward', roots = { loss } }, { loss }
            end).count
        end
        assert.equal(1, ops()['linear+relu'])
        assert.equal(1, split(ops).linear)
        assert.equal(1, ops()['linear+relu'])
    end)
end)

-- ---- images (runtime/plan/ir/image_patterns.c) ------------------------------------------------------------------

describe('a convolution', function()
    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('takes the elementwise op over it: ' .. dtype, function()
            better(function()
                local o = { dtype = dtype }
                local a, b = nn.Conv2d(3, 32, 3, { padding = 1, dtype = dtype }), nn.Conv2d(32, 20, 1, o)
                local c = nn.Conv2d(20, 20, 3, { groups = 20, dtype = dtype })
                local y = c(b(a(wane.randn(2, 3, 9, 7, o)):relu()):gelu())
                return backward((y ^ 2):mean(), { a.weight, a.bias, b.weight, b.bias, c.weight })
            end, 'conv2d+relu')
        end)
    end
end)

describe('a convolution under a norm in evaluation', function()
    -- Returns the bytes of the buffer of a norm's rstd, which is computed before the convolution instead of behind it.
    local function rstd_bytes(dtype, c)
        return math.ceil(c * ({ f32 = 4, f64 = 8, bf16 = 2 })[dtype] / 256) * 256
    end

    -- Returns a function that records a residual block in evaluation, over images of a width and c channels.
    local function block(dtype, width, groups, c)
        return function()
            local o = { padding = 1, bias = false, dtype = dtype }
            local a, n = nn.Conv2d(4, c, 3, o), nn.BatchNorm2d(c, { dtype = dtype })
            local g = nn.Conv2d(c, c, 3, { groups = groups, dtype = dtype })
            local m, b = nn.BatchNorm2d(c, { dtype = dtype }), nn.Conv2d(c, c, 1, { dtype = dtype })
            local l = nn.BatchNorm2d(c, { dtype = dtype })
            for _, norm in ipairs { n, m, l } do
                norm.running_mean:assign(wane.randn(c, { dtype = dtype }))
                norm.running_var:assign(wane.rand(c, { dtype = dtype }) + 0.5)
                norm.weight:assign(wane.randn(c, { dtype = dtype }))
                norm:eval()
            end
            local x = n(a(wane.randn(3, 4, width, width, { dtype = dtype }))):relu()
            local z = m(g(x)):clamp(0, 1)
            local y = ((l(b(z)) + z):relu()):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end
    end

    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('takes the norm and what follows into one pass: ' .. dtype, function()
            local rows = { { 9, 1, 32 }, { 27, 1, 32 }, { 9, 32, 32 }, { 12, 4, 32 }, { 17, 1, 176 }, { 7, 272, 272 } }
            for _, row in ipairs(rows) do
                local fused = better(block(dtype, unpack(row)), 'conv2d+batch_norm+relu',
                    rstd_bytes(dtype, row[3]))
                local list = ' ' .. table.concat(fused.ops, ' ') .. ' '
                assert.is_truthy(list:find(' conv2d+batch_norm+clamp ', 1, true), row[1] .. ' ' .. row[2] .. list)
                assert.is_truthy(list:find(' conv2d+batch_norm+add+relu ', 1, true), list)
                assert.is_nil(fused.count.batch_norm)
            end
        end)
    end

    it('takes a norm that nothing follows', function()
        better(function()
            local a, n, b = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3)
            n:eval()
            local y = b(n(a(wane.randn(2, 3, 9, 7)))):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end, 'conv2d+batch_norm', rstd_bytes('f32', 16))
    end)

    it('takes one more image and the numbers of one step', function()
        -- Without a bias, so that there is room for a second image among the inputs of a node.
        local a, n = nn.Conv2d(16, 16, 3, { padding = 1, bias = false }), nn.BatchNorm2d(16)
        local x = wane.randn(2, 16, 9, 7):retain()
        n:eval()
        local z, u = wane.eval(a(x * 3)), wane.eval(a(x * 4))
        local function of(make, word)
            return better(function()
                local y = (make(n(a(x * 2))) * 2):retain()
                return { mode = 'eval', roots = { y } }, { y }
            end, word, rstd_bytes('f32', 16))
        end
        of(function(y) return y:clamp(-1, 0.5):clamp(0, 1) end, 'conv2d+batch_norm+clamp')
        of(function(y) return y + z - u end, 'conv2d+batch_norm+add')
        of(function(y) return u - z * y end, 'conv2d+batch_norm+mul')
    end)

    it('is left alone where its sum is read elsewhere, has its own statistics, or is differentiated', function()
        local function count(build)
            local r = run(build)
            return r.count['conv2d+batch_norm+relu'] or r.count['conv2d+batch_norm'] or 0
        end
        local a, n = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
        n:eval()
        local x = wane.randn(2, 3, 9, 7)
        local function of(make)
            return function()
                local y = make():retain()
                return { mode = 'eval', roots = { y } }, { y }
            end
        end
        assert.equal(1, count(of(function() return n(a(x)):relu() end)))
        assert.equal(0, count(of(function()
            local y = a(x)
            return n(y):relu() + y
        end)))
        assert.equal(0, count(of(function() return nn.GroupNorm(4, 16)(a(x)):relu() end)))
        assert.equal(0, count(of(function()
            local given = { wane.randn(2, 4):retain(), wane.rand(2, 4):retain(), n.weight, n.bias }
            return array.record('batch_norm', { a(x), unpack(given) }, { i = { 4 } }):relu()
        end)))
        assert.equal(0, count(function() return backward((n(a(x)):relu() ^ 2):mean(), { a.weight, n.weight }) end))
        n:train()
        assert.equal(0, count(of(function() return n(a(x)):relu() end)))
    end)
end)

describe('a norm over channels', function()
    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('takes relu and the residual into its pass, and relu\'s gradient into its own: ' .. dtype, function()
            local fused = better(function()
                local o = { padding = 1, bias = false, dtype = dtype }
                local a, b = nn.Conv2d(3, 16, 3, o), nn.Conv2d(16, 16, 3, o)
                local n, m = nn.BatchNorm2d(16, { dtype = dtype }), nn.BatchNorm2d(16, { dtype = dtype })
                local x = n(a(wane.randn(2, 3, 9, 7, { dtype = dtype }))):relu()
                local loss = ((m(b(x)) + x):relu() ^ 2):mean()
                return backward(loss, { a.weight, b.weight, n.weight, n.bias, m.weight, m.bias })
            end, 'batch_norm+relu')
            local list = ' ' .. table.concat(fused.ops, ' ') .. ' '
            assert.is_truthy(list:find(' batch_norm+add+relu ', 1, true), list)
            assert.is_truthy(list:find(' relu_norm_sums .*relu_norm_dx '), list)
        end)
    end

    it('of groups, and in evaluation, does so too', function()
        better(function()
            local a, n = nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16)
            local loss = (n(a(wane.randn(2, 3, 19, 17))):relu() ^ 2):mean()
            return backward(loss, { a.weight, n.weight, n.bias })
        end, 'relu_norm_dx')
        better(function()
            local n = nn.BatchNorm2d(16)
            n:eval()
            local y = nn.Conv2d(16, 32, 3)(n(wane.randn(2, 16, 9, 7) * 2):clamp(0, 6)):retain()
            return { mode = 'eval', roots = { y } }, { y }
        end, 'batch_norm+clamp')
    end)

    it('is left alone where something else reads the value between', function()
        local r = run(function()
            local a, n = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
            local y = n(a(wane.randn(2, 3, 9, 7)))
            local loss = (y:relu() * y):mean()
            return backward(loss, { a.weight, n.weight })
        end)
        assert.equal(1, r.count.batch_norm)
        assert.equal(1, r.count.batch_norm_dx)
        r = run(function()
            local a, n = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
            local y = n(a(wane.randn(2, 3, 9, 7))):relu():retain()
            local loss = (y ^ 2):mean()
            local z = n.weight * 1
            return { mode = 'backward', roots = { loss + z:sum() } }, function() return { y, a.weight.grad } end
        end)
        assert.equal(1, r.count['batch_norm+relu'])
    end)
end)
