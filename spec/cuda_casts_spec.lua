-- Checks what a plan for a GPU does about types and rows (runtime/plan/ir/casts.c, rows.c), on the simulated device:
-- casts that are taken into the ops beside them, and logits in padded rows. Networks are trained under autocast with
-- and without each, in every way: losses, parameters and states of optimizers must have the same bits, and predicted
-- bytes be measured ones. Then the kernel of statistics that reads a row of bf16 once, against the CPU's.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local gradcheck = require 'spec.support.gradcheck'
local op = require 'wane.tensor.op'
local programs = require 'spec.support.programs'
local rewrites = require 'spec.support.rewrites'
local sim = require 'spec.support.cudasim'
local ways = require 'spec.support.ways'
local wane = helper.wane
local C, check, dice, on = binding.C, binding.check, helper.dice, helper.on
local nn, optim = wane.nn, wane.optim
local record = require('spec.cases.array').record

local has_cuda, CUDA = pcall(op.device, 'cuda', 'spec')

-- Calls fn(...) without padded rows.
local function without_rows(fn, ...)
    check(C.wn_debug('rows', 0))
    local function restore(ok, ...)
        check(C.wn_debug('rows', 1))
        if not ok then error((...), 0) end
        return ...
    end
    return restore(pcall(fn, ...))
end

-- Returns a function that makes a random model of tokens for ways.train: an embedding, blocks of a norm, a product, an
-- activation and the sum with the stream, attention now and then, and a head of `words` classes under a loss.
local function tokens(seed, words)
    return function()
        local roll = dice(seed)
        wane.manual_seed(seed)
        local d, rows = 8 * (roll(5) + 1), 3 + roll(6)
        local embedding, head = nn.Embedding(words, d), nn.Linear(d, words, { bias = roll(2) == 1 })
        local layers, list = {}, { embedding.weight }
        for k = 1, roll(3) do
            local act = ({ 'gelu', 'relu', 'silu', 'tanh' })[roll(4)]
            local norm = roll(2) == 1 and nn.LayerNorm(d) or nn.RMSNorm(d)
            local wide, narrow = nn.Linear(d, d + 8 * roll(4)), nil
            narrow = nn.Linear(wide.weight.shape[1], d)
            local is_after = roll(3) == 1 -- the norm is of a product's bf16
            layers[k] = function(h)
                local y = wide(is_after and h or norm(h))
                y = narrow(y[act](y))
                return h + (is_after and norm(y) or y)
            end
            for _, m in ipairs { norm, wide, narrow } do
                for _, p in ipairs(m:parameters()) do list[#list + 1] = p end
            end
        end
        local is_tied, smoothing = roll(3) == 1, roll(4) == 1 and 0.1 or 0
        if not is_tied then
            for _, p in ipairs(head:parameters()) do list[#list + 1] = p end
        end
        local final = nn.LayerNorm(d)
        for _, p in ipairs(final:parameters()) do list[#list + 1] = p end
        local ids = wane.eval(wane.randint(words, { 2, rows }))
        local labels = wane.eval(wane.randint(words, { 2 * rows }))
        local opt = ({ function() return optim.AdamW(list, { lr = 1e-2 }) end,
            function() return optim.SGD(list, { lr = 1e-1, momentum = 0.9 }) end,
            function() return optim.SGD(list, { lr = 1e-1 }) end,
            function() return optim.RMSprop(list, { lr = 1e-3, centered = true }) end,
            function() return optim.Lion(list, { lr = 1e-3 }) end })[roll(5)]()
        local function loss()
            return wane.autocast('bf16', function()
                local h = embedding(ids)
                for _, layer in ipairs(layers) do h = layer(h) end
                h = final(h)
                local y = is_tied and h:matmul(embedding.weight, { transpose_b = true }) or head(h)
                return nn.cross_entropy(y:reshape(2 * rows, words), labels, { label_smoothing = smoothing })
            end)
        end
        local states = { unpack(list) }
        return { loss = loss, optimizers = { opt }, states = states }
    end
end

-- Returns the ops of the plan of a step of a model that `make` makes, by their number, and the plan's peak.
local function planned(make)
    local world = make()
    local plan = wane.plan(function() world.optimizers[1]:step(world.loss(1)) end)
    local count, step = {}, binding.new 'struct wn_step'
    for _, part in ipairs(plan.parts) do
        for i = 0, C.wn_count(part.program.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
            check(C.wn_step(part.program.handle, i, step))
            if binding.text(step.what) == 'run' then
                local name = binding.text(C.wn_cost_key_step(part.program.handle, i))
                local word = binding.text(step.op)
                count[word] = (count[word] or 0) + 1
                if name:find 'padded rows' then count['in rows'] = (count['in rows'] or 0) + 1 end
            end
        end
    end
    return count, plan.peak
end

describe('casts that ops take in', function()
    if not has_cuda then
        pending 'needs the simulated GPU'
        return
    end

    it('go from a loss over bf16 logits and from its gradient, with their f32 copies', function()
        on('cuda', function()
            local make = tokens(3, 700)
            local apart, apart_peak = rewrites.split(planned, make)
            local taken, taken_peak = planned(make)
            assert.is_true(taken.cast <= apart.cast - 2, ('%d casts of %d'):format(taken.cast, apart.cast))
            assert.is_true(taken_peak <= apart_peak)
            assert.equal(apart.row_nll_grad, taken.row_nll_grad)
        end)
    end)

    it('are listed by plan:explain()', function()
        on('cuda', function()
            local world = tokens(3, 700)()
            local function step() world.optimizers[1]:step(world.loss(1)) end
            local text = tostring(wane.plan(step):explain())
            assert.matches('casts that are never computed by themselves: %d+ are read as they were before, %d+ are '
                .. 'what an op writes %(layernorm %d+, row_nll_grad 1%)', text)
            assert.is_nil(rewrites.split(function() return wane.plan(step):explain().casts end))
        end)
    end)

    it('stay where a reader needs f32, where their value is asked for, and on the CPU', function()
        local function request()
            local x, labels = wane.eval(wane.randn(4, 64):to 'bf16'), wane.eval(wane.randint(64, { 4 }))
            local wide = (x * 2):to 'f32'
            return wide, nn.cross_entropy(wide, labels)
        end
        local function casts(roots)
            local p = programs.run { mode = 'eval', roots = roots }
            local n = 0
            for _, step in ipairs(programs.schedule(p)) do
                n = n + (step.op == 'cast' and step.what == 'run' and 1 or 0)
            end
            p:close()
            return n
        end
        on('cuda', function()
            local _, loss = request()
            assert.equal(0, casts { loss })
            local wide, other = request()
            assert.equal(1, casts { other, wide:abs():sum() })
            wide, other = request()
            assert.equal(1, casts { other, wide })
            local weight = wane.eval(wane.rand(64):to 'bf16'):to 'f32' -- which losses read as f32 alone
            local x, labels = wane.randn(4, 64):log_softmax(2), wane.eval(wane.randint(64, { 4 }))
            assert.equal(1, casts { record('row_nll', { x, labels, weight }, { n = 2, i = { -100, 0 } }) })
            -- Checks that weights, which are where logits would be among the inputs, are not taken for them.
            assert.equal(1, casts { record('row_nll_grad', { wane.rand(4), labels, weight }, { n = 3,
                i = { -100, 0, 64 }, dtype = 0 }) })
        end)
        on('cpu', function()
            local _, loss = request()
            assert.equal(1, casts { loss })
        end)
    end)

    it('change no bit of a training, whatever is kept, compressed or moved', function()
        for seed = 1, helper.is_long and 24 or 6 do
            local words = ({ 40, 2, 999, 1003, 2500, 321 })[seed % 6 + 1]
            local make = tokens(seed, words)
            local want = ways.train(make, { split = true, device = CUDA }, 2)
            for _, way in ipairs { {}, { lines = true }, { policy = 'recompute_all' },
                { policy = 'sqrt', lines = true }, { budget = 'least' }, { budget = 'middle' }, { checked = true },
                { policy = wane.policy.of(function(r) return r.bytes >= 8192 and 'offload' or 'save' end) } } do
                way.device = CUDA
                local have = ways.train(make, way, 2)
                local what = ('seed %d, %s'):format(seed, ways.text(way))
                assert.is_true(want.bits == have.bits, what .. ': other bits')
                have = without_rows(ways.train, make, way, 2)
                assert.is_true(want.bits == have.bits, what .. ', without padded rows: other bits')
            end
        end
    end)

    it('change no bit of what a lossy policy makes of logits', function()
        local make = tokens(4, 999)
        local way = { device = CUDA, policy = wane.policy.of(function(r)
            return (r.op == 'matmul' or r.op == 'linear' or r.op == 'cast') and 'compress:int8' or 'save'
        end) }
        assert.is_true(without_rows(ways.train, make, way, 2).bits == ways.train(make, way, 2).bits)
    end)
end)

describe('a gradient of logits', function()
    if not has_cuda then return end

    -- The gradient of two classes has the type of the statistics of rows, over which it must not lie.
    it("of two classes has the CPU's numbers, whatever it overwrites", function()
        local function grads(device, make)
            return on(device, function()
                local w = nn.Parameter(wane.tensor { { 0.5, -1 }, { 2, 0.25 }, { -1, 3 } })
                local labels = wane.tensor({ 0, 1, 1 }, { dtype = 'i32' })
                make(w, labels):backward()
                return w.grad:totable()
            end)
        end
        for _, make in ipairs {
            function(w, labels)
                local f = (w * 1):to 'bf16':to 'f32'
                return nn.cross_entropy(f, labels) + f:sum()
            end,
            function(w, labels)
                local f = w * 1
                return nn.cross_entropy(f, labels) + nn.cross_entropy(f, labels, { label_smoothing = 0.5 })
            end,
        } do assert.same(grads('cpu', make), grads('cuda', make)) end
    end)

    it("that were packed with a loss has the CPU's numbers too, where a probability is above 1", function()
        local function grads(device)
            return on(device, function()
                local row = {}
                for c = 1, 256 do row[c] = -50 - c % 25 end
                row[3], row[40], row[99] = -40000, -140, -20000
                local w = nn.Parameter(wane.tensor { row })
                local loss = nn.cross_entropy(w * 1, wane.tensor({ 5 }, { dtype = 'i32' }))
                loss:backward { policy = wane.policy.of(function(r)
                    return r.op == 'row_stats' and 'save' or 'compress:int8'
                end) }
                return w.grad:totable()
            end)
        end
        assert.same(grads 'cpu', grads 'cuda')
    end)
end)

describe('padded rows', function()
    if not has_cuda then return end

    it('are those of logits and their gradient, where a row begins on no 16 bytes and a pitch adds little', function()
        on('cuda', function()
            for words, is_padded in pairs { [999] = true, [1000] = false, [2501] = true, [65] = false,
                [1001] = true } do
                local count = planned(tokens(3, words))
                assert.equal(is_padded, (count['in rows'] or 0) > 0, words)
                assert.is_nil(without_rows(planned, tokens(3, words))['in rows'])
            end
        end)
    end)

    it('are never seen: a value that is asked for, or read by another op, is plain', function()
        on('cuda', function()
            local x, w = wane.eval(wane.randn(5, 16):to 'bf16'), wane.eval(wane.randn(16, 999):to 'bf16')
            local labels = wane.eval(wane.randint(999, { 5 }))
            local y = x:matmul(w)
            local loss = nn.cross_entropy(y, labels)
            local p = programs.run { mode = 'eval', roots = { y:retain(), loss } }
            local first = gradcheck.bytes(y)
            p:close()
            assert.equal(gradcheck.bytes(wane.eval(x:matmul(w))), first)
            local both = x:matmul(w)
            assert.is_true((nn.cross_entropy(both, labels) + (both * 2):sum()):item() < 1 / 0)
        end)
    end)

    it('have nothing between them that a search for anomalies or a replay looks at', function()
        on('cuda', function()
            check(C.wn_debug('poison', 1)) -- what is between rows is NaN
            finally(function() check(C.wn_debug('poison', 0)) end)
            wane.manual_seed(1)
            local first, head = nn.Linear(16, 32), nn.Linear(32, 999)
            local x, labels = wane.eval(wane.randn(6, 16)), wane.eval(wane.randint(999, { 6 }))
            local opt = optim.SGD({ first.weight, head.weight, head.bias }, { lr = 1e-2 })
            local function loss()
                return wane.autocast('bf16', function() return nn.cross_entropy(head(first(x):gelu()), labels) end)
            end
            for _, policy in ipairs { 'save_all', 'recompute_all' } do
                wane.anomaly(true, function() opt:step(loss(), { policy = policy }) end)
            end
            local again = wane.policy.of(function() return 'recompute' end)
            assert.is_true(wane.check(loss, { policy = again }).compared > 0)
            local rows, large = head.weight:totable(), wane.zeros(6, 32):totable()
            for k = 1, 32 do rows[778][k], large[3][k] = 3e38, 1 end -- a number of bf16, whose sums are none
            large = wane.tensor(large)
            head:load_state_dict { weight = wane.tensor(rows), bias = head.bias }
            local fine, why = pcall(wane.anomaly, true, function()
                return wane.autocast('bf16', function() return nn.cross_entropy(head(large), labels) end):item()
            end)
            assert.is_false(fine)
            local element = 2 * 999 + 778
            assert.matches(('linear of .* made 1 of 5994 values that are not finite %%(element %d is inf%%)'):format(
                element), tostring(why))
            assert.equal(element, why.first)
        end)
    end)

    it('are in the bytes that a plan says, also of another machine', function()
        local function step(words)
            local world = tokens(5, words)()
            return wane.plan(function() world.optimizers[1]:step(world.loss(1)) end,
                { target = helper.device == 'cpu' and 'h100' or nil })
        end
        local here = on('cuda', function()
            local world = tokens(5, 999)()
            return wane.plan(function() world.optimizers[1]:step(world.loss(1)) end).peak
        end)
        assert.equal(here, on('meta', step, 999).peak)
    end)
end)

describe('statistics of long rows of bf16', function()
    if not has_cuda then return end

    -- Returns the bytes of row_stats of rows on a device; -0 counts as 0.
    local function stats(device, rows)
        return on(device, function()
            local x = wane.tensor(rows):to 'bf16'
            return wane.eval(record('row_stats', { x })):totable()
        end)
    end

    local function rows_of(seed, count, n, special)
        local roll, rows = dice(seed), {}
        for r = 1, count do
            rows[r] = {}
            for c = 1, n do rows[r][c] = (roll(4001) - 2001) / ({ 1, 100, 3000 })[roll(3)] end
            for _, value in ipairs(special or {}) do rows[r][roll(n)] = value end
        end
        return rows
    end

    local function same(rows, what)
        local want, have = stats('cpu', rows), stats('cuda', rows)
        for r, row in ipairs(want) do
            for k, x in ipairs(row) do
                local y = have[r][k]
                assert.is_true(x == y or x ~= x and y ~= y, ('%s, row %d: %.9g for %.9g'):format(what, r, y, x))
            end
        end
    end

    it('have the CPU\'s bits, whatever the length, infinities and NaN', function()
        local inf, nan = 1 / 0, 0 / 0
        for k, n in ipairs { 2056, 2048, 2304, 4096, 2312, 5128, 8200 } do
            same(rows_of(k, 2, n), n .. ' classes')
            for i, special in ipairs { { inf }, { -inf }, { nan }, { inf, -inf }, { nan, inf }, { -0 } } do
                same(rows_of(k + i, 1, n, special), ('%d classes, special %d'):format(n, i))
            end
        end
        local all = {}
        for c = 1, 2056 do all[c] = -inf end
        same({ all }, 'all -infinity')
    end)

    it('are those of two reads where a row does not fit, and of any order of threads and streams', function()
        if sim.missing() then return end
        local script = ([[package.path = '%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;' .. package.path
            local wane = require 'wane'
            wane.set_device 'cuda'
            wane.manual_seed(4)
            local x = wane.randn(2, 50264):to 'bf16'
            local y = wane.eval(require('spec.cases.array').record('row_stats', { x })):totable()
            print(('%%.9g %%.9g %%.9g %%.9g'):format(y[1][1], y[1][2], y[2][1], y[2][2]))]]):format(helper.root,
            helper.root, helper.root)
        local seen
        for _, arch in ipairs { 90, 86 } do
            local text, code = helper.shell(('WANE_SIM_ARCH=%d WANE_CUDA_LIB=%s %s -'):format(arch, sim.path(),
                os.getenv 'LUAJIT' or 'luajit'), script)
            assert.equal(0, code, text)
            seen = seen or text
            assert.equal(seen, text)
        end
    end)
end)
