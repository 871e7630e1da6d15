-- Checks that an error keeps the frames of the place where it began, whatever it passes through: a user's function that
-- Wane calls fails with a text, an error of Wane, an error of Lua or an object, and the traceback that `wane run` shows
-- begins in that function. No file of the library raises an error again in another way.
local helper = require 'spec.helper'
local errors = require 'wane.errors'
local wane = helper.wane
local nn, optim, policy = wane.nn, wane.optim, wane.policy

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
    ['wane.plan'] = function() wane.plan(bad) end,
    ['wane.frontier'] = function() wane.frontier(bad) end,
    ['wane.min_budget'] = function() wane.min_budget(bad) end,
    ['wane.measure'] = function() wane.measure(bad) end,
    ['wane.measure of training'] = function() wane.measure(bad, { optimizer = opt }) end,
    ['wane.profile'] = function() wane.profile(bad) end,
    ['wane.check'] = function() wane.check(bad) end,
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
    ['a policy of wane.plan'] = function() wane.plan(loss, failing) end,
    ['a policy of wane.measure'] = function() wane.measure(loss, failing) end,
    ['a policy of wane.frontier'] = function() wane.frontier(loss, failing) end,
    ['a policy of wane.min_budget'] = function() wane.min_budget(loss, failing) end,
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
                assert.matches('origins_spec%.lua$', file, why)
                assert.matches('origins_spec%.lua$', caller_file, why)
                assert.equal(debug.getinfo(raise, 'S').linedefined, tonumber(line), why)
                assert.equal(place, tonumber(caller), why)
            end
        end)
    end

    it('is the one that `wane run` shows', function()
        local path = os.tmpname()
        local file = assert(io.open(path, 'w'))
        file:write [[
            local wane = require 'wane'
            local model = wane.nn.Linear(2, 2)
            local function evaluate()
                error 'mine'
            end
            wane.optim.EMA(model):apply(evaluate)]]
        file:close()
        local text, code = helper.shell('build/wane run ' .. path)
        os.remove(path)
        assert.equal(1, code)
        assert.matches(":4: mine\nstack traceback:\n\t[^\n]*:4: in function <[^\n]*:3>\n", text)
        assert.matches(':6: in main chunk', text)
    end)
end)

describe('the library', function()
    -- error(e, 0) of an error that was caught would show the frames of where it is raised again.
    it('raises errors again by errors.again alone', function()
        local found = {}
        local list = io.popen("find '" .. helper.root .. "/lua/wane' -name '*.lua'")
        for path in list:lines() do
            local number = 0
            for line in io.lines(path) do
                number = number + 1
                local name = line:match '[^%w_.:]error%(%(?([%w_.]+)%)?, 0%)'
                if name and name ~= 'message' and not path:find 'wane/errors%.lua$' then
                    found[#found + 1] = ('%s:%d: %s'):format(path, number, line)
                end
            end
        end
        list:close()
        assert.equal('', table.concat(found, '\n'))
    end)
end)
