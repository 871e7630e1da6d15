-- Checks actions: values that are packed, or moved to disk or host memory, between forward and backward. What holds of
-- every plan must hold of plans with actions: predicted bytes are measured bytes, however a step is run and on every
-- device (spec/verify_spec.lua breaks their schedules). Only the bits may differ, where the packed form is lossy:
-- wane.gradient_error says by how much. Checks which packed forms a budget may choose.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local measure = require 'wane.plan.measure'
local offloading = require 'spec.support.offloading'
local programs = require 'spec.support.programs'
local split = require('spec.support.rewrites').split

local nn, optim, policy = wane.nn, wane.optim, wane.policy

-- ---- every action ------------------------------------------------------------------------------------------------

describe('an action', function()
    local function backward(list, p)
        return programs.run { mode = 'backward', roots = list, policy = p }
    end

    for _, word in ipairs { 'offload', 'offload:host', 'compress:bf16', 'compress:int8', 'compress:bits' } do
        local p = word == 'compress:bits' and policy.by_op { relu = word } or offloading.everything(word)

        it('is predicted to the byte, however a step is run: ' .. word, function()
            -- values of two pages and a piece, which neighbours may not share
            local params, loss = offloading.make(offloading.rows + 1)
            local opt = optim.AdamW(params, { lr = 1e-3 })
            offloading.check(backward({ loss() }, p), 'backward')
            offloading.check(backward({ loss() }, p), 'added to')
            opt:zero_grad()
            offloading.check(backward({ loss() }, p), 'after zero_grad')
            offloading.check(backward({ loss(), loss() }, p), 'micro-batches')
            local seen = 0
            require 'wane.scoped'('listen', function(q)
                offloading.check(programs.read(q), q.request.mode)
                seen = seen + 1
            end, function()
                opt:step(loss(), { policy = p })
                opt:step({ loss(), loss() }, { policy = p })
            end)
            assert.equal(2, seen)
        end)

        it('works in regions, beside recomputing, and under a budget: ' .. word, function()
            local _, loss = offloading.make()
            local by = policy.by_op { relu = word, optional = true }
            for _, outer in ipairs { 'segments(2)', 'every(2)', 'sqrt', 'recompute_all' } do
                offloading.same(backward({ loss() }, policy.compose(by, outer)), outer)
            end
            local mixed = backward({ loss() }, policy.by_op { relu = word, linear = 'recompute' })
            offloading.check(mixed, 'mixed')
            assert.is_true(mixed.predicted.recomputed > 0)
            local least = wane.plan(loss, { policy = policy.compose(by, policy.least()) })
            local q = backward({ loss() }, policy.compose(by, policy.budget(least.reserved)))
            offloading.same(q, 'least budget')
            assert.is_true(q.measured.reserved <= least.reserved)
        end)

        it('runs checked, on another device, and on meta: ' .. word, function()
            programs.debugged(function()
                local _, loss = offloading.make()
                local q = backward({ loss() }, p)
                offloading.check(q, 'checked')
                assert.is_true(q.measured.high_water <= q.predicted.arena)
            end)
            for _, device in ipairs { 'mirror', 'meta' } do
                helper.on(device, function()
                    local params, loss = offloading.make()
                    optim.SGD(params, { lr = 0.1 }):step(loss(), { policy = p })
                    offloading.check(backward({ loss() }, p), device)
                end)
                wane.memory.trim(device)
            end
        end)

        local is_lossless = word == 'compress:bits' or not word:find 'compress'
        if is_lossless then
            it('changes no bit of what is trained: ' .. word, function()
                local function train(q)
                    local params, loss = offloading.make()
                    local opt = optim.AdamW(params, { lr = 1e-3 })
                    for _ = 1, 2 do opt:step(loss(), { policy = q }) end
                    opt:step({ loss(), loss() }, { policy = q, scale = 0.5 })
                    return programs.bits(params)
                end
                local saved = train 'save_all'
                programs.debugged(function() assert.equal(saved, train(p)) end)
            end)
        end
    end
end)

-- ---- packed forms -----------------------------------------------------------------------------------------------

-- Returns a loss whose layers are ReLU, dropout and linear, its model and its input. The next product reads what
-- dropout gives; of ReLU's output only the sign is read.
local function make(depth, drop, dtype, width)
    wane.manual_seed(5)
    width = width or 48
    local model = programs.mlp(width, depth or 5, drop or 0.2)
    if dtype then model:to(dtype) end
    local x = wane.eval(wane.randn(width > 48 and width or 64, width):to(dtype or 'f32'))
    return function() return model(x):to('f32'):sum() end, model, x
end

local function words_of(plan)
    local count = {}
    for _, r in ipairs(plan:residuals()) do count[r.word] = (count[r.word] or 0) + 1 end
    return count
end

local function exact(fn, p, options)
    local m = wane.measure(fn, { policy = p, steps = 1, warmup = 0, optimizer = options and options.optimizer })
    assert.is_true(m.exact, tostring(p) .. ': ' .. tostring(m))
    return m
end

describe('a lossy form', function()
    it('takes fewer bytes in f32, bf16 and f64, exactly, and says what it is', function()
        for _, case in ipairs { { 'f32', 'compress:int8' }, { 'bf16', 'compress:int8' }, { 'f64', 'compress:int8' },
            { 'f32', 'compress:bf16' }, { 'f64', 'compress:bf16' } } do
            local dtype, word = unpack(case)
            local loss, model = make(5, 0.2, dtype)
            local p = policy.by_op { relu = word, gelu = word, linear = word, dropout = word }
            local before = exact(loss, 'save_all')
            local after = exact(loss, p)
            assert.is_true(after.peak < before.peak, dtype)
            local opt = optim.SGD(model:parameters(), { lr = 1e-6 })
            if dtype ~= 'bf16' then exact(loss, p, { optimizer = opt }) end
            local plan, saved = wane.plan(loss, { policy = p }), wane.plan(loss, { policy = 'save_all' })
            assert.is_true(plan.seconds > saved.seconds and saved.lossy == 0)
            assert.is_true(math.abs(plan.base_seconds - saved.base_seconds) < 1e-12)
            assert.is_true(words_of(plan)[word] > 8)
            assert.same({ plan.lossy, plan.packed }, { words_of(plan)[word], words_of(plan)[word] })
            assert.is_truthy(tostring(plan):find(word .. ' %d+ values of .* %(lossy%)'))
            assert.is_truthy(tostring(plan:explain()):find(word .. ' %d+ values of .* %(lossy%)'))
            plan:verify()
        end
    end)

    it('says where it cannot be done, and is an error where it does nothing at all', function()
        wane.manual_seed(1)
        local model = programs.mlp(32, 2, 0):to 'bf16'
        local x = wane.randn(4, 32):to 'bf16'
        local function loss() return model(x):to('f32'):sum() end
        helper.refused('value', function() wane.plan(loss, { policy = policy.by_op { relu = 'compress:bf16' } }) end,
            "'compress:bf16' does nothing here", 'is not made of f32 or f64')
        local _, mixed = offloading.make()
        local plan = wane.plan(mixed, { policy = policy.compose(function() return 'compress:bf16' end) })
        local kept = 0
        for _, r in ipairs(plan:residuals()) do kept = kept + (r.said and 1 or 0) end
        assert.is_true(kept > 0) -- small ones take as many bytes packed
        assert.is_truthy(tostring(plan:residuals()):find('save (no compress:bf16)', 1, true))
        plan:verify()
    end)

    it('keeps a byte an element and a scale for every 256', function()
        local loss = make(3, 0)
        local plan = wane.plan(loss, { policy = policy.by_op { relu = 'compress:int8', optional = true } })
        local bytes
        for _, s in ipairs(plan:schedule()) do
            if s.what == 'pack' then bytes = s.bytes end
        end
        assert.equal(math.ceil((64 * 48 + 4 * 12) / 256) * 256, bytes)
    end)

    it('gives the same bits again, on the mirror and with other threads', function()
        local seen
        for _, device in ipairs { 'cpu', 'mirror' } do
            helper.on(device, function()
                local loss = make()
                local text = measure.gradients(loss, 'compress:int8')
                seen = seen or text
                assert.equal(seen, text)
                assert.are_not.equal(seen, measure.gradients(loss, 'save_all'))
            end)
        end
    end)

    it('shows a value that is no number', function()
        local numbers = {}
        for k = 1, 512 do numbers[k] = k == 300 and 1 / 0 or k end
        local x, w = wane.tensor(numbers), nn.Parameter(wane.ones(512))
        local function loss() return (w + x):log():sum() end -- its gradient, 1 / (w + x), is finite
        assert.is_true(wane.gradient_error(loss, { policy = 'recompute_all' }).exact)
        helper.refused(nil, function()
            wane.gradient_error(loss, { policy = policy.by_op { add = 'compress:int8' } })
        end, 'element 257 of the gradient', -- the first of the group it is in
            'nan under by_op{add=compress:int8}')
    end)
end)

describe('compress:bits', function()
    it('takes fewer bytes and changes no bit of a gradient', function()
        for _, dtype in ipairs { 'f32', 'bf16', 'f64' } do
            local function check()
                local loss = make(5, 0.2, dtype)
                local p = policy.by_op { relu = 'compress:bits' }
                local before, after = exact(loss, 'save_all'), exact(loss, p)
                assert.is_true(after.peak < before.peak, dtype)
                assert.equal(measure.gradients(loss, 'save_all'), measure.gradients(loss, p))
                local plan = wane.plan(loss, { policy = p })
                assert.equal(3, words_of(plan)['compress:bits'])
                assert.equal(0, plan.lossy)
                assert.is_nil(tostring(plan):find('lossy', 1, true))
            end
            check()
            split(check)
        end
    end)

    it('is refused where the value is saved anyway, and residuals say so', function()
        local loss = make(4, 0) -- without dropout the next product reads what ReLU gives
        helper.refused('value', function() wane.plan(loss, { policy = policy.by_op { relu = 'compress:bits' } }) end,
            'for more than its sign, and signs would come on top')
        local mixed = make(4, 0.2)
        local plan = wane.plan(mixed, { policy = 'compress:bits' })
        assert.is_true(words_of(plan)['compress:bits'] == 2 and words_of(plan).save > 2)
        assert.is_truthy(tostring(plan:residuals()):find('save (no compress:bits)', 1, true))
        assert.equal(measure.gradients(mixed), measure.gradients(mixed, 'compress:bits'))
    end)

    it('of the input of a ReLU recorded by hand', function()
        local record = require('wane.tensor.op').record
        local w = nn.Parameter(wane.randn(64, 64))
        local relu = wane.custom(function(ctx, v)
            ctx.saved[1] = v
            return v:relu()
        end, function(ctx, dy) return record('relu_grad', { dy, ctx.saved[1] }) end)
        local x = wane.eval(wane.randn(64, 64))
        local function loss() return nn.Dropout(0.5)(relu(x:matmul(w) * 0.5)):sum() end
        local p = policy.by_op { mul = 'compress:bits', matmul = 'compress:bits', optional = true }
        assert.is_true(exact(loss, p).at.after_forward < exact(loss, 'save_all').at.after_forward)
        assert.equal(1, words_of(wane.plan(loss, { policy = p }))['compress:bits'])
        assert.equal(measure.gradients(loss, 'save_all'), measure.gradients(loss, p))
    end)

    it('serves readers of signs alone: other readers compute the value again', function()
        local loss = make(5, 0.2)
        -- Dropout is computed again from ReLU's output, which signs cannot replace.
        local p = policy.by_op { relu = 'compress:bits', dropout = 'recompute' }
        exact(loss, p)
        assert.equal(measure.gradients(loss, 'save_all'), measure.gradients(loss, p))
        for _, outer in ipairs { 'recompute_all', 'every(2)', 'segments(3)', 'binomial(1)', 'every(4)' } do
            local q = policy.compose(policy.by_op { relu = 'compress:bits', optional = true }, outer)
            exact(loss, q)
            assert.equal(measure.gradients(loss, 'save_all'), measure.gradients(loss, q), outer)
        end
    end)
end)

describe('words of packing', function()
    it('are accepted wherever a word is', function()
        local _, model, x = make(4, 0.2)
        local function loss() return (model(x):named 'hidden':gelu() * 2):sum() end
        for _, p in ipairs {
            policy.by_type { ReLU = 'compress:int8', GELU = 'compress:bf16', default = 'save', optional = true },
            policy.by_name { hidden = 'compress:int8' },
            policy.by_path { { '^2$', 'compress:int8' }, { '^%d+$', 'compress:bf16' } },
            policy.compose(policy.by_op { relu = 'compress:bits' }, 'compress:int8'),
            function(r) return r.bytes > 4096 and 'compress:int8' or nil end,
            'compress:int8', 'compress:bf16', 'compress:bits',
        } do
            exact(loss, p)
        end
        local plan = wane.plan(loss, { policy = policy.compose(policy.by_op { relu = 'compress:bits' },
            'compress:int8') })
        assert.equal(2, words_of(plan)['compress:bits'])
        assert.is_true(words_of(plan)['compress:int8'] > 2)
        assert.equal(plan:recipe(), wane.plan(loss, { policy = plan }):recipe())
        local by_sign = wane.plan(loss, { policy = function(r) return r.sign_only and 'compress:bits' or nil end })
        assert.same({ ['compress:bits'] = 2, save = by_sign.residual_count - 2 }, words_of(by_sign))
    end)

    it('are errors with near names when mistyped', function()
        local loss = make(2, 0.2)
        for _, fn in ipairs {
            function() wane.plan(loss, { policy = policy.by_op { relu = 'compress:fp8' } }) end,
            function() wane.plan(loss, { policy = 'compress:fp8' }) end,
            function() wane.plan(loss, { policy = function() return 'compress:fp8' end }) end,
            function() policy.budget('1 MiB', { allow = { 'compress:fp8' } }) end,
            function() wane.plan(loss, { policy = 'budget(1 MiB, compress:fp8)' }) end,
        } do
            helper.refused('value', fn, 'compress:bf16', 'compress:int8')
        end
        helper.refused(nil, function() policy.budget('1 MiB', { allow = 'compress:bf16' }) end,
            'expected a list of decisions')
    end)
end)

-- Estimates of the CPU decide here: on a GPU such small layers are computed again in less time than a packing starts.
describe('a budget', function()
    before_each(function() wane.set_device 'cpu' end)
    after_each(function() wane.set_device(helper.device) end)

    it('keeps signs as bits by itself, to the bit, where that is fastest', function()
        local loss = make(6, 0.2, nil, 256) -- of narrow layers computing again is faster
        local chosen
        for _, point in ipairs(wane.frontier(loss).all) do
            local plan = wane.plan(loss, { policy = point.policy })
            if words_of(plan)['compress:bits'] then chosen = chosen or point end
        end
        assert.is_truthy(chosen)
        local plan = wane.plan(loss, { budget = chosen.reserved })
        assert.equal(chosen.reserved, plan.reserved)
        assert.equal(0, plan.lossy)
        assert.is_true(words_of(plan)['compress:bits'] > 0)
        assert.is_true(exact(loss, policy.budget(chosen.reserved)).reserved <= chosen.reserved)
        assert.equal(measure.gradients(loss, 'save_all'), measure.gradients(loss, policy.budget(chosen.reserved)))
    end)

    it('loses bits only where that is allowed by name, and is then never slower', function()
        local loss = make(12, 0.2)
        local most, least = wane.plan(loss).reserved, wane.min_budget(loss)
        local lossy, size_of_lossy = 0, nil
        for k = 1, 7 do
            local size = math.ceil(least + (most - least) * k / 8)
            local plain = wane.plan(loss, { budget = size })
            assert.equal(0, plain.lossy)
            local chosen = policy.budget(size, { allow = { 'compress:int8', 'recompute' } })
            local plan = wane.plan(loss, { policy = chosen })
            assert.is_true(plan.reserved <= size and plan.seconds <= plain.seconds)
            lossy = lossy + plan.lossy
            if plan.lossy > 0 then size_of_lossy = size end
            local words = words_of(plan)
            assert.equal(plan.lossy, words['compress:int8'] or 0)
            assert.is_nil(words['compress:bf16'])
            exact(loss, chosen)
        end
        assert.is_true(lossy > 0)
        local text = ('budget(%d B, compress:int8)'):format(size_of_lossy)
        local plan = wane.plan(loss, { policy = text })
        assert.is_truthy(plan:lua():find(' compress:int8', 1, true))
        assert.equal(plan:recipe(), wane.plan(loss, { policy = plan }):recipe())
    end)
end)

describe('wane.gradient_error', function()
    it('says 0 of what loses nothing, and how much of what does', function()
        local loss, model = make(5, 0.2)
        for _, p in ipairs { 'recompute_all', 'compress:bits', 'save_all' } do
            local e = wane.gradient_error(loss, { policy = p })
            assert.is_true(e.exact and e.total.relative == 0 and e.total.cosine == 1 and e.total.max_abs == 0)
            assert.is_truthy(tostring(e):find('the same bits', 1, true))
        end
        local bf16 = wane.gradient_error(loss, { policy = 'compress:bf16', reference = 'recompute_all' })
        local int8 = wane.gradient_error(loss, { policy = 'compress:int8' })
        assert.is_true(bf16.total.relative > 0 and bf16.total.relative < 0.01, bf16.total.relative)
        assert.is_true(int8.total.relative > bf16.total.relative and int8.total.relative < 0.2, int8.total.relative)
        assert.is_true(int8.total.cosine < bf16.total.cosine and int8.total.cosine > 0.98)
        assert.equal(#model:parameters(), #int8)
        assert.equal('1.weight', int8[1].name)
        assert.is_true(int8.lossy > 0 and int8.peak < int8.reference_peak)
        assert.is_truthy(tostring(int8):find('lossy, %d+ values lost bits'))
        for _, q in ipairs(model:parameters()) do assert.is_nil(q.grad) end
    end)

    -- The gradient of w is 4 m, where m = 2 w; m is kept in bf16, and products by powers of 2 round nothing.
    it('is what the definitions say', function()
        local numbers = {}
        for k = 1, 512 do numbers[k] = math.sin(k) end
        local w = nn.Parameter(wane.tensor(numbers))
        local function loss()
            local m = w * 2
            return (m * m):sum()
        end
        local e = wane.gradient_error(loss, { policy = policy.by_op { mul = 'compress:bf16' } })
        local d2, r2, o2, dot, most = 0, 0, 0, 0, 0
        for k, v in ipairs(w:totable()) do
            local one = binding.array('f32', 1)
            one[0] = v * 2
            local r, g = v * 8, binding.widen(binding.round(one, 1), 1)[0] * 4
            d2, r2, o2, dot = d2 + (g - r) ^ 2, r2 + r * r, o2 + g * g, dot + g * r
            most = math.max(most, math.abs(g - r))
            assert.is_true(k <= 512)
        end
        assert.is_true(math.abs(e.total.relative / math.sqrt(d2 / r2) - 1) < 1e-9 and d2 > 0)
        assert.is_true(math.abs(e.total.cosine - dot / math.sqrt(r2 * o2)) < 1e-12)
        assert.equal(most, e.total.max_abs)
        assert.is_true(math.abs(e.total.norm / math.sqrt(r2) - 1) < 1e-12)
        assert.equal(512, e.total.elements)
    end)

    it('refuses what would make the numbers mean nothing', function()
        local loss = make(3, 0.2)
        local function refused(pattern, fn, opts)
            helper.refused(nil, function() wane.gradient_error(fn, opts) end, pattern)
        end
        refused('which policy?', loss, {})
        refused('is lossy itself', loss, { policy = 'recompute_all', reference = 'compress:bf16' })
        refused('a loss that needs a gradient', function() return wane.ones(2):sum() end, { policy = 'save_all' })
        refused('unknown option', loss, { polcy = 'save_all' })
        local w = nn.Parameter(wane.tensor { 1, 2 })
        refused('is nan', function() return (w * (0 / 0)):sum() end, { policy = 'recompute_all' })
    end)
end)

describe('the replay check of a plan that compresses', function()
    it('compares what is computed again but for what comes of a compressed value', function()
        wane.manual_seed(3)
        local w, v = nn.Parameter(wane.randn(16, 16)), nn.Parameter(wane.randn(16, 16))
        local function loss() -- the products are computed again: one from what tanh was kept as, one from the sigmoid
            local a, b = wane.randn(8, 16):tanh(), wane.ones(8, 16) * w:sum(1):sigmoid()
            return (a:matmul(w):gelu() * b:matmul(v):silu()):sum()
        end
        for _, word in ipairs { 'compress:int8', 'compress:bf16' } do
            local checked = wane.check(loss, { policy = policy.by_op { tanh = word, matmul = 'recompute',
                gelu = 'recompute', silu = 'recompute', sigmoid = 'save', mul = 'save' } })
            assert.is_true(checked.compared >= 1, word)
        end
    end)
end)
