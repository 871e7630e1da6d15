-- Makes allocations fail, each in turn. The live bytes must be what they were, nothing may have changed, and the next
-- try must give the bits of a run that never failed. A memory limit is exact: a program runs within its reserved bytes,
-- and not within one granule less.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local program = require 'wane.program'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local steady = require 'spec.support.steady'

local nn, optim = wane.nn, wane.optim
local C = binding.C
local GRANULE = 256

local function collect()
    collectgarbage()
    collectgarbage()
end

local function memory()
    collect()
    wane.memory.trim()
    return wane.memory()
end

-- Computes x^3 and saves x^2.
local cube = wane.custom(function(ctx, x)
    ctx.saved[1] = x * x
    return ctx.saved[1] * x
end, function(ctx, dy) return dy * ctx.saved[1] * 3 end)

-- Returns a small model with everything that must survive: dropout, a region, a skip, a custom function, state of an
-- optimizer. fused: a step is one run point, otherwise two.
local function world(fused)
    wane.manual_seed(5)
    local w = {}
    w.first, w.second, w.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
    w.drop = nn.Dropout(0.3)
    w.params = {}
    for _, m in ipairs { w.first, w.second, w.last } do
        for _, p in ipairs(m:parameters()) do w.params[#w.params + 1] = p end
    end
    w.opt = optim.AdamW(w.params, { lr = 0.01 })
    w.x = wane.randn(4, 8)
    w.y = wane.tensor({ 0, 2, 1, 1 }, { dtype = 'i32' })
    wane.eval(w.x)
    function w.loss()
        local h = wane.checkpoint(function(x) return w.drop(w.second(w.first(x):gelu())) end, w.x)
        return nn.cross_entropy(w.last(cube(h + w.x)), w.y)
    end
    -- w.phases holds the run points of a step.
    local root
    w.phases = fused and { function() return w.opt:step(w.loss()) end } or {
        function()
            root = w.loss()
            root:backward()
        end,
        function()
            w.opt:step()
            return root
        end,
    }
    function w.step()
        w.opt:zero_grad()
        local loss
        for _, phase in ipairs(w.phases) do loss = phase() end
        root = nil
        return loss
    end
    function w.state() return programs.bits(programs.cells(w.params, { w.opt })) end
    return w
end

-- Returns the loss and the state after each of n steps of a run that never fails.
local function reference(fused, n)
    local w, out = world(fused), {}
    for k = 1, n do
        local loss = w.step():item()
        out[k] = ('%.17g %s'):format(loss, w.state())
    end
    return out
end

local function wanted(request)
    local s = binding.new('struct wn_summary')
    local p = program.open(request):plan()
    binding.check(C.wn_summary(p.handle, s))
    p:close()
    local held = 0 -- state and inputs, which are alive before it too
    for _, kind in ipairs { C.WN_KIND_PARAMETER, C.WN_KIND_OPTIMIZER, C.WN_KIND_BUFFER, C.WN_KIND_INPUT } do
        held = held + tonumber(s.peak_kinds[kind])
    end
    return tonumber(s.reserved), held, tonumber(s.peak_kinds[C.WN_KIND_INPUT])
end

-- ---- limits -----------------------------------------------------------------------------------------------------

describe('wane.memory.limit', function()
    after_each(function() wane.memory.limit(nil) end)

    -- Runs `warm` steps, then one at the limit minus a granule, then one at the limit, then the rest without.
    local function at_the_limit(fused, warm)
        local expected = reference(fused, warm + 2)
        local w = world(fused)
        for _ = 1, warm do w.step() end
        w.opt:zero_grad()
        local counter = C.wn_here().counter
        local asked
        scoped('capture', function(request)
            asked = asked or request
            return { result = function() end }
        end, function()
            if fused then w.opt:step(w.loss()) else w.loss():backward() end
        end)
        local reserved, held, inputs = wanted(asked)
        asked = nil -- luacheck: ignore 311
        C.wn_counter_set(counter)
        local before = memory()
        -- At the first step no state is there yet; the program's own bytes count it all the same.
        local beside = before.allocated - (warm == 0 and inputs or held)
        assert.equal(before.allocated, before.reserved)

        wane.memory.limit(reserved + beside - GRANULE)
        local loss = w.loss()
        local e = helper.refused('oom', function()
            if fused then w.opt:step(loss) else loss:backward() end
        end)
        assert.equal(reserved, e.bytes)
        assert.equal(reserved + beside, e.needs)
        assert.equal(reserved + beside - GRANULE, e.limit)
        assert.equal(before.allocated, e.live)
        assert.is_true(e.peak >= e.live)
        assert.is_truthy(tostring(e):find(('%d bytes'):format(reserved + beside), 1, true), tostring(e))
        for _, p in ipairs(w.params) do assert.is_nil(p.grad) end
        loss = nil -- luacheck: ignore 311
        local after = memory()
        assert.same(before.kinds, after.kinds)
        assert.equal(before.allocated, after.allocated)
        assert.equal(before.reserved, after.reserved)

        C.wn_counter_set(counter)
        wane.memory.limit(reserved + beside)
        wane.memory.reset_peak()
        loss = w.loss()
        if fused then
            w.opt:step(loss)
        else
            loss:backward()
        end
        assert.equal(reserved + beside, wane.memory().peak_reserved)
        wane.memory.limit(nil)
        if not fused then w.opt:step() end
        assert.equal(expected[warm + 1], ('%.17g %s'):format(loss:item(), w.state()))
        local value = w.step():item()
        assert.equal(expected[warm + 2], ('%.17g %s'):format(value, w.state()))
    end

    for _, fused in ipairs { false, true } do
        local name = fused and 'opt:step(loss)' or 'loss:backward()'
        it('is exact to the granule, and a refusal changes nothing: ' .. name, function() at_the_limit(fused, 2) end)
        it('is exact for the very first step: ' .. name, function() at_the_limit(fused, 0) end)
    end

    it('refuses a tensor of the user, and the tensor fits when the limit is lifted', function()
        local before = memory()
        wane.memory.limit(before.reserved + 1023)
        local ok, e = pcall(wane.tensor, { { 1, 2, 3, 4 }, { 1, 2, 3, 4 } })
        assert.is_true(ok, tostring(e))
        local big = {}
        for k = 1, 256 do big[k] = k end
        assert.equal(1024, helper.refused('oom', function() wane.tensor(big) end).bytes)
        wane.memory.limit(nil)
        assert.equal(256, wane.tensor(big):numel())
    end)

    it('gives garbage and idle memory back before it refuses', function()
        local x = wane.ones(64, 64)
        wane.eval(x)
        -- The limit has room for x, a result, the result before it, and the numbers of a program.
        local limit = memory().allocated + 2 * 64 * 64 * 4 + GRANULE
        for _ = 1, 10 do wane.eval(x * 2) end
        assert.is_true(wane.memory().reserved > limit)
        wane.memory.limit(limit)
        for k = 1, 20 do
            local y = x * k
            wane.eval(y)
        end
        assert.is_true(wane.memory().reserved <= limit)
    end)
end)

-- ---- networks that rewrites fuse ------------------------------------------------------------------------------------

-- Returns images (2, 3, 6, 6) that `before` fused chains have made of data.
local function images(before)
    local x = wane.eval(wane.randn(2, 3, 6, 6))
    return function()
        local y = x
        for _ = 1, before do y = y:tanh():exp():reshape(216):reshape(2, 3, 6, 6) end
        return y
    end
end

-- Returns a row of `rewritten`: words are the fused ops of a step over the images, make() returns the modules and
-- forward(x, module, module, ...), a loss.
local function network(name, words, make)
    local row = { name = name, words = words }
    function row.world(before)
        wane.manual_seed(9)
        local w, x, modules, forward = { params = {} }, images(before), make()
        for _, m in ipairs(modules) do
            for _, p in ipairs(m:parameters()) do w.params[#w.params + 1] = p end
        end
        local opt = optim.SGD(w.params, { lr = 0.01 })
        function w.step() return opt:step(forward(x(), unpack(modules))) end
        return w
    end
    return row
end

local labels = wane.tensor({ 2, 0 }, { dtype = 'i32' })
local rewritten = {
    network('convolutions and norms', { 'batch_norm+relu', 'relu_norm_sums', 'relu_norm_dx', 'batch_norm+add+relu' },
        function()
            return { nn.Conv2d(3, 8, 3, { padding = 1 }), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, { padding = 1 }),
                nn.BatchNorm2d(8) }, function(x, a, m, b, n)
                local h = m(a(x)):relu()
                return ((n(b(h)) + h):relu() ^ 2):mean()
            end
        end),
    network('convolutions and norms in evaluation', { 'conv2d+relu', 'conv2d+batch_norm+relu' }, function()
        local frozen, norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8):eval()
        return { nn.Conv2d(8, 4, 3) }, function(x, last)
            local h = wane.no_grad(function() return norm(frozen(x)):relu() end)
            return last(h):relu():mean()
        end
    end),
    network('products and the loss', { 'linear+relu', 'matmul+gelu_grad', 'row_nll_grad', 'matmul+sgd' }, function()
        return { nn.Linear(108, 24), nn.Linear(24, 24), nn.Linear(24, 3) }, function(x, a, b, c)
            return nn.nll_loss(c(b(a(x:reshape(2, 108)):relu()):gelu()):log_softmax(-1), labels)
        end
    end),
    network('chains and residual norms', { 'layernorm_dx_add', 'sigmoid_grad+mul+tanh_grad' }, function()
        return { nn.LayerNorm(16), nn.Linear(16, 16) }, function(x, norm, up)
            local h = x:reshape(216, 1) * up.bias
            return ((h + up(norm(h)):tanh():exp():sigmoid()) ^ 2):mean()
        end
    end),
}

-- ---- every allocation fails once ------------------------------------------------------------------------------------

describe('every allocation made to fail once', function()
    local Program
    local call
    before_each(function()
        local p = program.open { mode = 'eval', roots = { wane.ones(1) } }
        Program = getmetatable(p).__index
        call = Program.call
        p:close()
    end)
    after_each(function()
        C.wn_debug('fail_alloc', 0)
        Program.call = call
    end)

    -- Replaces Program.call by a call without a second try, so that every failure comes through.
    local function no_second_try()
        Program.call = function(self, fn)
            binding.check(fn(self.handle))
            return self
        end
    end

    -- Runs one run point with its nth allocation made to fail, for n = 1, 2 and so on, until a run meets no failure.
    -- Calls check(error, n) after each failure. Returns what the run point returns, and how many failures there were.
    local function sweep(phase, forget, check)
        local n = 0
        local counter = C.wn_here().counter
        while true do
            n = n + 1
            C.wn_counter_set(counter)
            if forget then C.wn_debug('forget_plans', 1) end
            local ok, result, fired = programs.failing(n, phase)
            assert.equal(ok, not fired, 'a failure was swallowed: ' .. n .. ' ' .. tostring(result))
            if ok then return result, n - 1 end
            check(result, n)
        end
    end

    for _, fused in ipairs { true, false } do
        for _, forget in ipairs { true, false } do
            local name = ('a step %s, plans %s: nothing changes, and the next one gives the right bits'):format(
                fused and 'in one program' or 'in two programs', forget and 'made anew' or 'found again')
            it(name, function()
                no_second_try()
                local expected = reference(fused, 3)
                local w = world(fused)
                local failures = 0
                for step = 1, 3 do
                    local loss, count, before
                    w.opt:zero_grad()
                    for k, phase in ipairs(w.phases) do
                        before = memory()
                        loss, count = sweep(phase, forget, function(e, n)
                            assert.equal('oom', e.code, tostring(e))
                            local after, what = memory(), ('step %d.%d, failure %d: '):format(step, k, n)
                            for kind, size in pairs(after.kinds) do
                                assert.equal(before.kinds[kind], size, what .. kind)
                            end
                            assert.equal(before.reserved, after.reserved, what)
                        end)
                        failures = failures + count
                    end
                    assert.equal(expected[step], ('%.17g %s'):format(loss:item(), w.state()))
                end
                assert.is_true(failures > (forget and 300 or 60), tostring(failures))
            end)
        end
    end

    -- A rewrite keeps its windows in an array that grows at the 1st, the 9th and the 17th: `before` fused chains put
    -- each fusion of a network at such a place.
    for _, row in ipairs(rewritten) do
        it('in a rewrite is an oom, and the next step has the right bits: ' .. row.name, function()
            no_second_try()
            local failures, words = 0, {}
            for before = 0, 8 do
                local function steps(step)
                    local w = row.world(before)
                    local first = step(w)
                    local second = w.step()
                    return ('%.17g %.17g %s'):format(first:item(), second:item(), programs.bits(w.params))
                end
                local expected = steps(function(w)
                    for _, i in ipairs(wane.plan(w.step):schedule()) do words[i.op or ''] = true end
                    return w.step()
                end)
                assert.equal(expected, steps(function(w)
                    local loss, count = sweep(w.step, true, function(e, n)
                        assert.equal('oom', e.code, before .. ', ' .. n .. ': ' .. tostring(e))
                    end)
                    failures = failures + count
                    return loss
                end))
            end
            for _, word in ipairs(row.words) do
                assert.is_truthy(words[word], word .. ' was not fused')
            end
            assert.is_true(failures > 900, tostring(failures))
        end)
    end

    it('leaves nothing behind in the library itself', function()
        no_second_try()
        local w = world(false)
        steady(function()
            for _, phase in ipairs(w.phases) do sweep(phase, true, function() end) end
            w.opt:zero_grad()
            C.wn_debug('forget_plans', 1)
            require('jit').flush()
        end)
    end)

    for _, fused in ipairs { true, false } do
        it('is made good where a full collection and a second try help: '
            .. (fused and 'one program' or 'two programs'), function()
            local expected = reference(fused, 60)
            local w = world(fused)
            local step, helped, n = 1, 0, 0
            local counter = C.wn_here().counter
            repeat
                n = n + 1
                local ok, loss, fired = programs.failing(n, w.step)
                if ok then
                    assert.equal(expected[step], ('%.17g %s'):format(loss:item(), w.state()))
                    counter = C.wn_here().counter
                    step = step + 1
                    if fired then helped = helped + 1 end
                else
                    C.wn_counter_set(counter)
                end
            until ok and not fired or step > 60
            assert.is_true(step <= 60)
            assert.is_true(helped > 0)
        end)
    end
end)

describe('a refusal', function()
    after_each(function() wane.memory.limit(nil) end)

    it('names the policy that needs least: at those bytes it runs, one granule below it does not', function()
        local model = require('spec.support.programs').mlp(16, 12, 0.1)
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
        local x = wane.randn(512, 16)
        wane.eval(x:retain())
        for _, p in ipairs(model:parameters()) do p:totable() end
        collectgarbage()
        collectgarbage()
        wane.memory.trim()

        wane.memory.limit(wane.memory().reserved + GRANULE)
        local e = helper.refused('oom', function() opt:step(model(x):sum()) end)
        assert.is_true(e.least < e.needs, e.least .. ' of ' .. e.needs)
        local advice = ('policy = "%s" would do with %d bytes'):format(e.policy, e.least)
        assert.is_truthy(e.message:find(advice, 1, true), e.message)

        wane.memory.limit(e.least - GRANULE)
        local why = helper.refused(nil, function() opt:step(model(x):sum(), { policy = e.policy }) end)
        assert.equal(e.least, why.needs)
        wane.memory.limit(e.least)
        local loss = opt:step(model(x):sum(), { policy = e.policy })
        assert.is_true(loss:item() == loss:item())
        assert.is_true(wane.memory().reserved <= e.least)
    end)
end)
