-- Checks actions: values that are packed by one op between forward and backward, and unpacked by another. What holds of
-- every plan must hold of plans with actions: predicted bytes are measured bytes, the trace is the schedule, and the
-- verifier refuses a broken schedule. Only the bits may differ, where the packed form is lossy.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local program = require 'wane.program'
local programs = require 'spec.support.programs'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local C = binding.C

local function batch() return wane.tensor({ 0, 3, 1, 2, 4, 5 }, { dtype = 'i32' }) end

local function packed()
    return policy.by_op { relu = 'compress:bf16', linear = 'compress:bf16', gelu = 'compress:bf16' }
end

local function make()
    wane.manual_seed(7)
    local model = programs.mlp(48, 6, 0.2)
    local head = nn.Linear(48, 6)
    local params = model:parameters()
    for _, q in ipairs(head:parameters()) do params[#params + 1] = q end
    local x = wane.randn(6, 48, { requires_grad = true })
    return params, function() return nn.cross_entropy(head(model(x)), batch()) end, model
end

local function count(p, what)
    local n = 0
    for _, step in ipairs(programs.schedule(p)) do n = n + (step.what == what and 1 or 0) end
    return n
end

describe('compress:bf16', function()
    it('is predicted to the byte, however a step is run', function()
        local params, loss = make()
        local opt = optim.AdamW(params, { lr = 1e-3 })
        local p = programs.run { mode = 'backward', roots = { loss() }, policy = packed() }
        programs.same(p, 'backward')
        assert.is_true(count(p, 'pack') >= 4)
        assert.equal(count(p, 'pack'), count(p, 'unpack'))
        programs.same(programs.run { mode = 'backward', roots = { loss() }, policy = packed() }, 'added to')
        opt:zero_grad()
        local function backward(request)
            request.mode, request.policy = 'backward', packed()
            return programs.run(request)
        end
        programs.same(backward { roots = { loss() } }, 'after zero_grad')
        programs.same(backward { roots = { loss(), loss() } }, 'micro-batches')
        local seen = 0
        require 'wane.scoped'('listen', function(q)
            programs.same(programs.read(q), q.request.mode)
            seen = seen + 1
        end, function()
            opt:step(loss(), { policy = packed() })
            opt:step({ loss(), loss() }, { policy = packed() })
        end)
        assert.is_true(seen >= 2)
    end)

    it('takes fewer bytes than saving, and says what it is', function()
        local _, loss = make()
        local saved = wane.plan(loss, { policy = 'save_all' })
        local plan = wane.plan(loss, { policy = packed() })
        assert.is_true(plan.at.after_forward < saved.at.after_forward)
        assert.equal(0, saved.lossy)
        assert.is_true(plan.lossy >= 4)
        assert.is_true(plan.seconds > saved.seconds)
        assert.is_true(math.abs(plan.base_seconds - saved.base_seconds) < 1e-12)
        assert.is_truthy(tostring(plan):find('compress:bf16 %d+ values of .* %(lossy%)'))
        local words = {}
        for _, r in ipairs(plan:residuals()) do words[r.word] = (words[r.word] or 0) + 1 end
        assert.equal(plan.packed, words['compress:bf16'])
        assert.is_truthy(tostring(plan:recipe()):find('compress:bf16', 1, true))
    end)

    it('changes gradients a little, and lossless policies leave them alone', function()
        local function grads(p)
            local params, loss = make()
            loss():backward { policy = p }
            local out = {}
            for i, q in ipairs(params) do out[i] = wane.eval(q.grad:reshape(-1)):totable() end
            return out
        end
        local exact, again, lossy = grads 'save_all', grads 'recompute_all', grads(packed())
        local most, differ = 0, 0
        for i, g in ipairs(exact) do
            local err, size = 0, 0
            for k, v in ipairs(g) do
                assert.equal(v, again[i][k])
                err, size = err + (v - lossy[i][k]) ^ 2, size + v ^ 2
                differ = differ + (v ~= lossy[i][k] and 1 or 0)
            end
            assert.is_true(err == err)
            most = math.max(most, math.sqrt(err / size))
        end
        assert.is_true(differ > 0)
        assert.is_true(most < 0.02, most)
    end)

    it('brings a value back once for all its readers, and once for what is computed again from it', function()
        local params, _, model = make()
        assert.is_true(#params > 0)
        local function loss() return model(wane.randn(6, 48):retain()):sum() end
        local p = programs.run { mode = 'backward', roots = { loss() },
            policy = policy.by_op { relu = 'compress:bf16', dropout = 'recompute' } }
        programs.same(p, 'recomputed from packed values')
        assert.is_true(p.predicted.recomputed > 0)
        assert.equal(count(p, 'pack'), count(p, 'unpack'))
    end)

    it('works inside regions, units and under a budget', function()
        local _, loss = make()
        for _, outer in ipairs { 'segments(2)', 'every(2)', 'sqrt', 'recompute_all' } do
            local p = policy.compose(policy.by_op { relu = 'compress:bf16' }, outer)
            programs.same(programs.run { mode = 'backward', roots = { loss() }, policy = p }, outer)
        end
        local least = wane.plan(loss, { policy = policy.compose(packed(), policy.least()) })
        local bounded = policy.compose(packed(), policy.budget(least.reserved))
        local p = programs.run { mode = 'backward', roots = { loss() }, policy = bounded }
        programs.same(p, 'least budget')
        assert.is_true(p.measured.reserved <= least.reserved)
        assert.is_true(least.lossy > 0)
    end)

    it('runs checked, on another device, and on meta', function()
        binding.check(C.wn_debug('check', 1))
        local ok, why = pcall(function()
            local _, loss = make()
            local p = programs.run { mode = 'backward', roots = { loss() }, policy = packed() }
            programs.same(p, 'checked')
            assert.is_true(p.measured.high_water <= p.predicted.arena)
        end)
        C.wn_debug('check', 0)
        assert(ok, why)
        for _, device in ipairs { 'mirror', 'meta' } do
            wane.set_device(device)
            ok, why = pcall(function()
                local params, loss = make()
                local opt = optim.SGD(params, { lr = 0.1 })
                opt:step(loss(), { policy = packed() })
                programs.same(programs.run { mode = 'backward', roots = { loss() }, policy = packed() }, device)
            end)
            wane.set_device(helper.device)
            assert(ok, why)
        end
    end)

    it('says where it cannot be done, and is an error where it does nothing at all', function()
        wane.manual_seed(1)
        local model = programs.mlp(32, 2, 0):to 'bf16'
        local x = wane.randn(4, 32):to 'bf16'
        local function loss() return model(x):to('f32'):sum() end
        helper.refused('value', function() wane.plan(loss, { policy = policy.by_op { relu = 'compress:bf16' } }) end,
            "'compress:bf16' does nothing here", 'is not made of f32 or f64')
        local _, mixed = make()
        local plan = wane.plan(mixed, { policy = policy.compose(function() return 'compress:bf16' end) })
        local kept = 0
        for _, r in ipairs(plan:residuals()) do kept = kept + (r.said and 1 or 0) end
        assert.is_true(kept > 0) -- small ones take as many bytes packed
        assert.is_truthy(tostring(plan:residuals()):find('save (no compress:bf16)', 1, true))
        plan:verify()
    end)

    it('is replayed by a plan used as a policy', function()
        local _, loss = make()
        local plan = wane.plan(loss, { policy = packed() })
        local again = wane.plan(loss, { policy = plan:as_policy() })
        assert.equal(plan.peak, again.peak)
        assert.equal(plan:recipe(), again:recipe())
        assert.is_truthy(plan:lua():find(' compress:bf16', 1, true))
    end)
end)

describe('the verifier, of packed values', function()
    after_each(function() C.wn_debug('forget_plans', 1) end)

    local function open()
        local _, loss = make()
        local p = program.open({ mode = 'backward', roots = { loss() }, policy = packed() }):plan()
        return p, programs.schedule(p)
    end
    local function find(schedule, what)
        for i, step in ipairs(schedule) do
            if step.what == what then return i - 1, step end
        end
    end
    local function refused(p, rule)
        local code = C.wn_verify(p.handle)
        assert.equal('illegal', binding.text(C.wn_status_word(code)))
        local words = binding.text(C.wn_message())
        assert.is_truthy(words:find("rule '" .. rule .. "'", 1, true), words)
    end

    it('refuses a packed form read as a value, and a value unpacked', function()
        local p, s = open()
        assert.equal(0, C.wn_verify(p.handle))
        local _, pack = find(s, 'pack')
        local i
        for k, step in ipairs(s) do
            if step.what == 'run' and step.op:find('relu_grad', 1, true) then i = k - 1 end
        end
        binding.check(C.wn_test_mutate(p.handle, i, 'input', pack.copy))
        refused(p, 'action')
        p, s = open()
        local _, run = find(s, 'run')
        binding.check(C.wn_test_mutate(p.handle, (find(s, 'unpack')), 'input', run.copy))
        refused(p, 'action')
    end)

    it('refuses an unpack before its pack, and a pack after its value is gone', function()
        local p, s = open()
        binding.check(C.wn_test_mutate(p.handle, (find(s, 'pack')), 'swap', (find(s, 'unpack'))))
        refused(p, 'action')
        p, s = open()
        local pack = find(s, 'pack')
        assert.equal('free', s[pack + 2].what)
        binding.check(C.wn_test_mutate(p.handle, pack, 'swap', pack + 1))
        refused(p, 'action')
    end)

    it('refuses an unpack over a value', function()
        local p, s = open()
        binding.check(C.wn_test_mutate(p.handle, (find(s, 'unpack')), 'inplace', 0))
        refused(p, 'inplace')
    end)
end)
