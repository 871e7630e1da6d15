-- Checks that habits which mean another thing here are told, with what to write instead: a retain that came too late,
-- lists as indices, `==` between tensors, and lengths and walks where Lua asks.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane
local errors = require 'wane.errors'
local nn = wane.nn

local function refused(fn, ...)
    local fine, why = pcall(fn, ...)
    assert.is_false(fine)
    assert.matches('^spec/traps_spec.lua:%d+$', why.where)
    for _, want in ipairs { ... } do
        if type(want) == 'string' then assert.is_truthy(why.message:find(want, 1, true), why.message) end
    end
    return why
end

describe(':retain() on what no program computed before a step', function()
    local model, x, opt

    before_each(function()
        wane.lines(true)
        wane.manual_seed(1)
        model, x = nn.Linear(4, 4), wane.eval(wane.randn(2, 4))
        opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
    end)
    after_each(function() wane.lines(false) end)

    it('is named, with the value and its line, whatever is asked of it', function()
        local line = debug.getinfo(1, 'l').currentline + 1
        local hidden = model(x):named 'hidden':retain()
        local named = ("'hidden' (linear, spec/traps_spec.lua:%d)"):format(line)
        opt:step(model(x):sum())
        for _, ask in ipairs { function() return hidden:totable() end, function() return hidden:sum():item() end,
            function() return wane.eval((hidden * 2):relu()) end } do
            local why = refused(ask, ' has changed since ' .. named .. ' was recorded',
                ':retain() on ' .. named .. ' kept nothing', 'wane.eval computes it at once')
            assert.equal('stale', why.code)
        end
        assert.equal(2, model(x):retain():size(1)) -- and everything works afterwards
        opt:step(model(x):sum())
    end)

    it('is told apart from values that were not retained, and from those that were computed', function()
        local plain, kept, computed = model(x), model(x):retain(), model(x):retain()
        wane.eval(computed)
        opt:step((model(x) + kept):sum())
        local why = refused(function() return plain:sum():item() end, 'weight has changed since linear (',
            'call :retain() on the value before the step')
        assert.is_nil(why.message:find 'kept nothing')
        assert.equal('number', type(kept:sum():item()))
        assert.equal('number', type(computed:sum():item()))
    end)
end)

describe('an index', function()
    local t = wane.ones(3, 2)

    it('that is a mask, a text or a boolean is refused, with what to write; so is an assignment to a list', function()
        refused(function() return t[t:gt(0)] end, 't[mask]', 'wane.where', 'masked_fill')
        refused(function() return t['1'] end, "t['1']: an index is a number", 'write t[1]')
        refused(function() return t[true] end, 't[true]: an index is a number from 1 to 3')
        refused(function() t[{ 1, 2 }] = 3 end, 't[{...}] = ...: a list is no index')
        refused(function() t[t] = 3 end, 'is no index')
        assert.same({ 1, 1 }, t[1]:totable())
    end)
end)

describe('a name of PyTorch that is written in another way', function()
    it('is answered by a line that runs', function()
        local ways = require 'wane.tensor.torch_names'
        local t, count = wane.tensor { { 0.5, 0.25 }, { 0.75, 1 } }, 0
        for name, way in pairs(ways) do
            refused(function() return t[name] end, "'" .. name .. "'; write " .. way)
            local run = assert(loadstring('local wane, t, u, a, b = ... return ' .. way), way)
            if name ~= 'cuda' then assert.is_true(run(wane, t, t * 2, t, t) ~= nil, way) end
            count = count + 1
        end
        assert.is_true(count > 30)
    end)
end)

describe('a length and a walk of a tensor', function()
    it('are refused where Lua asks the tensor', function()
        local mt = getmetatable(wane.ones(2))
        refused(function() return mt.__len(wane.ones(2, 3)) end, 't:size(1)', 't:numel()', '(2, 3) f32')
        refused(function() return mt.__ipairs(wane.ones(2)) end, 'for i = 1, t:size(1) do')
        refused(function() return mt.__pairs(wane.ones(2)) end, 't:totable()')
        local asks = pcall(function() return #setmetatable({}, { __len = error }) end) == false
        if asks then refused(function() return #wane.ones(2) end, 't:size(1)') end
    end)
end)

describe('a == b', function()
    it('stays identity', function()
        local a, b = wane.ones(2), wane.ones(2)
        assert.is_false(a == b)
        assert.is_true(a == a and a ~= b) -- luacheck: ignore
        assert.is_false(a == nil or a == 3)
    end)

    it('is named where a step is planned again', function()
        local function said(word)
            return (files.lua(("local ARG = '%s'\n"):format(word) .. [[local wane = require 'wane'
local w, a, b = wane.ones(2, { requires_grad = true }), wane.ones(2), wane.ones(2)
for i = 1, 6 do
    local loss = (w * 1):sum()
    if ARG == 'compare' and a == b then loss = loss * 2 end
    for _ = 1, i do loss = loss + w:sum() end
    loss:backward()
end
]]))
        end
        local with, without = said 'compare', said 'no'
        assert.matches('What differs from the time before: .-%. Tensors were compared by == %([^)]*:6%)', with)
        assert.matches('use a:eq%(b%)', with)
        assert.matches('What differs from the time before', without)
        assert.is_nil(without:find 'compared by')
    end)
end)

describe('a policy by type, op, name or path', function()
    it('is told once when it decides nothing, with what there is, and not when it decides or is optional', function()
        local function said(policy)
            return (files.lua(([[
                local wane = require 'wane'; local nn, policy = wane.nn, wane.policy
                local model, x = nn.Sequential { nn.MLP(8, 16), nn.ReLU(), nn.Linear(8, 2) }, wane.ones(4, 8)
                for _ = 1, 2 do wane.plan(function() return model(x):sum() end, { policy = %s }) end]]):format(policy)))
        end
        local out = said "policy.by_type { Linear = 'recompute' }"
        assert.matches('^wane: the policy by_type{Linear=recompute} decides about none of the %d+ values', out)
        assert.matches('their types are [^\n]*MLP', out)
        assert.matches('what a module returns belongs to its caller', out)
        assert.equal(1, select(2, out:gsub('wane: ', '')))
        assert.matches('their paths are [^\n]*1%.up', said "policy.by_path { { '^3', 'recompute' } }")
        for _, policy in ipairs { "policy.by_type { MLP = 'recompute' }",
            "policy.by_type { Linear = 'recompute', default = 'save' }",
            "policy.by_type { Linear = 'recompute', optional = true }", "function() end" } do
            assert.equal('', said(policy))
        end
    end)
end)

describe('a slip at the commonest places', function()
    local model, x = nn.MLP(4), wane.eval(wane.ones(2, 4))
    local Net = nn.module('Net', function(self) self.up = nn.Linear(4, 4) end)
    function Net:forward(v, scale) return self.up(v) * (scale or 1) end

    it('is told where a module is called with nil', function()
        refused(function() return model(nil) end, 'MLP got nil, expected a tensor')
        refused(function() return Net()(undefined_name) end, 'Net got nil, expected a tensor') -- luacheck: ignore
        refused(function() return x:relu():add(1), wane.relu end, 'a method; write t:relu(...)')
    end)

    it('is told with what to write: methods of other libraries, copies, ranges', function()
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
        refused(function() model:cuda() end, "MLP has no method 'cuda'; write m:to 'cuda'")
        refused(function() model:parameter() end, "MLP has no method 'parameter'; write m:parameters()")
        refused(function() return model:zeroGradParameters(1) end, 'write m:zero_grad()')
        refused(function() Net():paramters() end, "Net has no method 'paramters'; did you mean 'parameters'?")
        refused(function() opt:zerograd() end, "optim.SGD has no method 'zerograd'; did you mean 'zero_grad'?")
        local plan = wane.plan(function() return model(x):sum() end)
        refused(function() print(plan:explian()) end, "a plan has no method 'explian'; did you mean 'explain'?")
        refused(function() opt.zero_grad() end, 'opt:zero_grad(...)')
        -- A name that is read and not called is a field, which an object may lack.
        assert.same({}, { model.bias, model.cuda, model.paramters, opt.zerograd, plan.explian })
        if model.cuda then model:cuda() end -- luacheck: ignore
        refused(function() return x:clone() end, 'values never change', 'wane.eval(t + 0)')
        refused(function() return x[{ { 1, 2 } }] end, 't:narrow(1, 1, 2)')
        refused(function() return x[{ 1, { 2, 4 } }] end, 't:narrow(2, 2, 3)')
        for _, name in ipairs { 'relu', 'matmul', 'exp' } do
            refused(function() return wane[name] end, ('a method; write t:%s(...)'):format(name))
        end
        refused(function() return wane.main { build = function() end, gird = {} } end, "'gird'", "did you mean 'grid'")
    end)

    it('is told with the name that scripts have for an op', function()
        local ids = wane.tensor({ 0, 9 }, { dtype = 'i32' })
        local function value_of(fn) return refused(function() wane.eval(fn()) end) end
        for words, fn in pairs {
            ['cross_entropy: label 9'] = function() return nn.cross_entropy(wane.randn(2, 3), ids) end,
            ['scatter_add: index 9'] = function() return wane.zeros(3):scatter_add(1, ids, wane.ones(2)) end,
            ['embedding or index_select: index 9'] = function() return wane.ones(3, 2):index_select(1, ids) end,
            ['gather: index 9'] = function() return wane.ones(3):gather(1, ids) end,
        } do
            assert.is_truthy(value_of(fn).message:find(words, 1, true), words .. ': ' .. value_of(fn).message)
        end
        local a, before = wane.randn(3), #helper.notices
        for _ = 1, 3 do wane.eval(a * 2) end
        assert.matches('randn was computed by three programs', helper.notices[before + 1])
        refused(function() wane.randn(1):backward() end, 'randn (1) f32 depends on nothing that needs a gradient')
    end)

    it('is none where modules, many tensors and states of before are meant', function()
        assert.is_false(wane.no_grad(model, x).requires_grad)
        assert.equal(tostring(model(x)), tostring(wane.no_grad(model, x)))
        local many = {}
        for k = 1, 2500 do many[k] = wane.full({ 2 }, k) end
        local stacked = wane.stack(many)
        assert.equal('(2500, 2)', tostring(stacked.shape))
        assert.same({ 1, 1001, 2500 }, { stacked[1][2]:item(), stacked[1001][1]:item(), stacked[2500][1]:item() })
        assert.equal(2500 * 2501 / 2, wane.cat(many):reshape(2500, 2):sum(1)[1]:item())
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.5 })
        local best, before = model:state_dict { copy = true }, model(x):totable()
        opt:step(model(x):pow(2):sum())
        assert.are_not.same(before, model(x):totable())
        refused(function() model:load_state_dict(model:state_dict()) end, "the model's own tensors", 'copy = true')
        model:load_state_dict(best)
        assert.same(before, model(x):totable())
        opt:step(model(x):pow(2):sum())
        model:load_state_dict(best)
        assert.same(before, model(x):totable())
    end)
end)

describe('wane.on_interrupt', function()
    local binding = require 'wane.ffi'
    local kill = [[int kill(int, int); int getpid(void);]]
    require('ffi').cdef(kill)
    local function interrupt() require('ffi').C.kill(require('ffi').C.getpid(), 2) end

    it('ends a loop before a run changes anything, and lets the handler save', function()
        local model, x = nn.Linear(4, 2), wane.eval(wane.ones(3, 4))
        local opt, seen, steps = wane.optim.SGD(model:parameters(), { lr = 0.1 }), {}, 0
        local stopped = wane.on_interrupt(function(why)
            seen[1] = why.code
            interrupt() -- a second ^C while the handler works
            seen[2] = model.weight:sum():item() == seen.weight
            return 'saved'
        end, function(n)
            for k = 1, n do
                if k == 3 then
                    seen.weight = model.weight:sum():item()
                    interrupt()
                end
                opt:step(model(x):pow(2):sum())
                steps = k
            end
        end, 10)
        assert.equal('saved', stopped)
        assert.same({ 'interrupt', true, 2 }, { seen[1], seen[2], steps })
        assert.equal(0, binding.C.wn_interrupted())
        opt:step(model(x):pow(2):sum())
    end)

    -- Trains for 6 steps of two micro-batches with dropout; calls meet(step, place) at each place of a step. A step
    -- that ^C ended is made again, from the file, as a script does that is started anew. Returns the parameters' bits.
    local function train(meet, path)
        wane.manual_seed(4)
        local function begin() return nn.Sequential { nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2) } end
        local model, x = begin(), wane.eval(wane.randn(6, 4))
        local opt, step = wane.optim.Adam(model:parameters(), { lr = 0.1 }), 0
        local function steps()
            while step < 6 do
                opt:zero_grad()
                for k = 1, 2 do
                    meet(step + 1, 'recording ' .. k)
                    local loss = model(x:narrow(1, 3 * k - 2, 3)):pow(2):sum()
                    meet(step + 1, 'backward ' .. k)
                    loss:backward()
                end
                meet(step + 1, 'update')
                opt:step()
                step = step + 1
            end
        end
        while step < 6 do
            wane.on_interrupt(function() wane.save(path, model, { optimizer = opt, step = step }) end, steps)
            if step < 6 then
                model = begin()
                opt = wane.optim.Adam(model:parameters(), { lr = 0.1 })
                step = wane.load(path, model, { optimizer = opt }).step
            end
        end
        return require('wane.plan.measure').fingerprint(model:parameters())
    end

    it('leaves random numbers where the last whole step left them, at whatever place of a step ^C comes', function()
        local path = os.tmpname()
        finally(function() os.remove(path) end)
        local whole = train(function() end, path)
        for _, place in ipairs { 'recording 1', 'backward 1', 'recording 2', 'backward 2', 'update' } do
            local met = 0
            assert.equal(whole, train(function(step, at)
                if step ~= 3 or at ~= place or met > 0 then return end
                met = met + 1
                interrupt()
            end, path), place)
            assert.equal(1, met)
        end
    end)

    it('returns what the function returns, and raises what it raises', function()
        assert.same({ 1, 2 }, { wane.on_interrupt(error, function(...) return ... end, 1, 2) })
        local fine, why = pcall(wane.on_interrupt, print, function() error('mine', 0) end)
        assert.same({ false, 'mine' }, { fine, why })
        refused(function() wane.on_interrupt(nil, print) end, 'handler must be a function')
    end)
end)

-- ---- where an error began ------------------------------------------------------------------------------------------
-- Checks that an error keeps the frames of the place where it began, whatever it passes through: a user's function that
-- Wane calls fails with a text, an error of Wane, an error of Lua or an object, and the traceback begins in that
-- function.
local optim, policy = wane.optim, wane.policy

local fails -- function() that raises an error
local place -- line of `bad` at which it is called

local function bad()
    place = debug.getinfo(1, 'l').currentline + 1
    fails()
end

local KINDS = {
    text = function() error 'mine' end,
    ['an error of Wane'] = function() wane.ones(2):matmul(wane.ones(3)) end,
    ['an error of Lua'] = function() local _ = nil + 1 end,
    object = function() error {} end,
}

local x = wane.eval(wane.ones(2, 4))
local model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
local opt = optim.SGD(model:parameters(), { lr = 0.1 })
local budget = { budget = '1 MiB' }
local failing = { policy = function() bad() end }
local Net = nn.module('Net', function(self) self.up = nn.Linear(4, 4) end)
function Net:forward(v) bad() return self.up(v) end

local function loss() return model(x):sum() end
local function sum() return wane.ones(2, 4, { requires_grad = true }) end
local function twice(_, v) return v * 2 end

-- Calls fn, undoes what it needed, and lets its error pass.
local function then_undo(fn, undo)
    local ok, e = errors.pcall(fn)
    undo()
    if not ok then errors.again(e) end
end

-- Every public function that calls one of the user's.
local CALLS = {
    ['wane.measure of training'] = function() wane.measure(bad, { optimizer = opt }) end,
    ['wane.gradient_error'] = function() wane.gradient_error(bad, { policy = 'sqrt' }) end,
    ['wane.fit'] = function() wane.fit(bad, budget) end,
    ['the function of wane.fit'] = function() wane.fit(function() return bad end, budget) end,
    ['wane.accumulate'] = function() wane.accumulate(bad, { micro = 2 }) end,
    ['wane.chunked'] = function() wane.chunked(bad, x, { dim = 1, size = 1 }) end,
    ['wane.checkpoint'] = function() wane.checkpoint(bad, x) end,
    ['wane.checkpoint_with'] = function() wane.checkpoint_with({}, bad, x) end,
    ['wane.checkpoint_fn'] = function() wane.checkpoint_fn {}(bad, x) end,
    ['wane.checkpoint_sequential'] = function()
        wane.checkpoint_sequential(nn.Sequential(nn.Linear(4, 4), bad), 1, x)
    end,
    ['wane.custom forward'] = function() wane.custom(bad, twice)(x) end,
    ['wane.custom backward'] = function() wane.custom(twice, bad)(sum()):sum():backward() end,
    ['wane.custom backward, planned'] = function()
        local double = wane.custom(twice, bad)
        wane.plan(function() return double(sum()):sum() end)
    end,
    ['wane.no_grad'] = function() wane.no_grad(bad) end,
    ['wane.autocast'] = function() wane.autocast('bf16', bad) end,
    ['wane.anomaly'] = function() wane.anomaly(true, bad) end,
    ['wane.main'] = function() wane.main { build = bad } end,
    ['the step of wane.main'] = function() wane.main { build = function() return bad end } end,
    ['a policy of backward'] = function() loss():backward(failing) end,
    ['a policy of a step'] = function() opt:step(loss(), failing) end,
    ['a policy in policy.compose'] = function()
        wane.plan(loss, { policy = policy.compose(policy.by_op { tanh = 'save', optional = true }, failing.policy) })
    end,
    ['policy.default'] = function()
        policy.default = failing.policy
        then_undo(function() loss():backward() end, function() policy.default = nil end)
    end,
    ['a policy of a module'] = function()
        model:checkpoint(failing.policy)
        then_undo(function() loss():backward() end, function() model:checkpoint(false) end)
    end,
    ['a forward'] = function() Net()(x) end,
    ['a forward in a plan'] = function() wane.plan(function() return Net()(x):sum() end) end,
    ['a function in nn.Sequential'] = function() nn.Sequential(bad)(x) end,
    ['a function in nn.Residual'] = function() nn.Residual(bad)(x) end,
    ['nn.module'] = function() nn.module('Made', bad)() end,
    ['model:apply'] = function() model:apply(bad) end,
    ['ema:apply'] = function() optim.EMA(model):apply(bad) end,
    ['optim.schedule.lambda'] = function() optim.schedule.lambda(0.1, bad)(1) end,
    ['optim.schedule.lambda of groups'] = function() optim.schedule.lambda(opt, { bad })(1) end,
    ['names of wane.load'] = function()
        local path = os.tmpname()
        wane.save(path, model)
        then_undo(function() wane.load(path, model, { names = bad }) end, function() os.remove(path) end)
    end,
}
for _, name in ipairs { 'plan', 'frontier', 'min_budget', 'measure', 'profile', 'check' } do
    CALLS['wane.' .. name] = function() wane[name](bad) end
    CALLS['a policy of wane.' .. name] = function() wane[name](loss, failing) end
end

describe('the traceback of an error that a user\'s function raises', function()
    for name, call in pairs(CALLS) do
        it('begins in the function, under ' .. name, function()
            for kind, raise in pairs(KINDS) do
                fails, place = raise, nil
                local ok, e = xpcall(call, errors.handler) -- as `wane run` calls a script
                assert.is_false(ok, kind)
                local trace = errors.traceback_of(e)
                local file, line, caller_file, caller = trace:match
                    '^stack traceback:\n\t([^\n]-):(%d+): in[^\n]*\n\t([^\n]-):(%d+): in'
                local why = ('%s: %s\n%s'):format(kind, tostring(e), trace)
                assert.matches('traps_spec%.lua$', file, why)
                assert.matches('traps_spec%.lua$', caller_file, why)
                assert.equal(debug.getinfo(raise, 'S').linedefined, tonumber(line), why)
                assert.equal(place, tonumber(caller), why)
                assert(not trace:find('lua/wane/', 1, true), why)
            end
        end)
    end
end)
