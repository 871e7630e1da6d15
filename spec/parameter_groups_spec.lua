-- Checks groups of parameters, RMSprop, Lion, the clipping of values and averages of parameters against PyTorch's
-- numbers (spec/fixtures/torch_optim.lua) and plain Lua; the three usual lines and opt:step(loss) give equal bits.
local helper = require 'spec.helper'
local wane = require 'wane'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local ways = require 'spec.support.ways'
local fixture = require 'spec.fixtures.torch_optim'
local nn, optim = wane.nn, wane.optim

local START = { 0.5, -1.25, 2, 0.125 }

local function near(want, got, limit) gradcheck.near(want, got, limit or 2e-5) end

local function parameters(dtype)
    local o = { dtype = dtype }
    return nn.Parameter(wane.tensor(START, o)), nn.Parameter(wane.tensor({ { 3, -1 } }, o))
end

local coefficients = {}
for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
    coefficients[dtype] = wane.tensor({ 1, 0.5, -0.25, 3 }, { dtype = dtype })
end

local function loss_of(p, q)
    local c = coefficients[p.dtype]
    return (c * p * p + p):sum() + (q * q + q):sum()
end

local function refused(code, text, fn, ...)
    local arguments = { ... }
    local e = helper.refused(code, function() fn(unpack(arguments)) end, text)
    assert.matches('parameter_groups_spec', e.where)
end

local RULES = {
    rmsprop = function(p, q) return optim.RMSprop({ p, q }, { lr = 0.05, alpha = 0.9, weight_decay = 0.05 }) end,
    rmsprop_momentum = function(p, q) return optim.RMSprop({ p, q }, { lr = 0.02, momentum = 0.9 }) end,
    rmsprop_centered = function(p, q)
        return optim.RMSprop({ p, q }, { lr = 0.02, alpha = 0.9, weight_decay = 0.05, centered = true })
    end,
    lion = function(p, q) return optim.Lion({ p, q }, { lr = 0.05, weight_decay = 0.1 }) end,
    groups = function(p, q)
        local second = { params = { q }, weight_decay = 0.5, betas = { 0.5, 0.9 } }
        return optim.AdamW({ { params = { p }, lr = 0.3 }, second }, { lr = 0.1 })
    end,
}

-- Returns p and q after five steps of Lion in plain Lua.
local function lion()
    local out = {}
    for name, start in pairs { p = START, q = { 3, -1 } } do
        out[name] = {}
        for k, v in ipairs(start) do
            local m, c = 0, name == 'p' and ({ 1, 0.5, -0.25, 3 })[k] or 1
            for _ = 1, 5 do
                local g = 2 * c * v + 1
                local mix = 0.9 * m + (1 - 0.9) * g
                v = v * (1 - 0.05 * 0.1) - 0.05 * (mix > 0 and 1 or mix < 0 and -1 or 0)
                m = 0.99 * m + (1 - 0.99) * g
            end
            out[name][k] = v
        end
    end
    return out
end

describe('an optimizer', function()
    for name, make in pairs(RULES) do
        it('follows PyTorch, with equal bits in one program and in three lines, in every dtype: ' .. name, function()
            local want = fixture[name] or lion()
            for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
                local bits = {}
                for i, is_lines in ipairs { true, false } do
                    local p, q = parameters(dtype)
                    local opt = make(p, q)
                    local function loss() return loss_of(p, q) end
                    for _ = 1, 5 do ways.step({ opt }, loss, { lines = is_lines }) end
                    if dtype ~= 'bf16' then
                        near(want.p, p:totable())
                        near(want.q, q:totable()[1])
                    end
                    bits[i] = table.concat(programs.bytes { wane.eval(p:to 'f64', q:to 'f64') }, '|')
                end
                assert.equal(bits[1], bits[2], dtype)
            end
        end)
    end

    it('may change its settings and never what states they need', function()
        local p, q = parameters()
        for _, opt in ipairs { optim.SGD { p, q }, optim.RMSprop { p, q } } do
            refused('value', 'momentum = 0.9 needs other states', function() opt.momentum = 0.9 end)
            refused('value', 'needs other states', function() opt.param_groups[1].momentum = 0.9 end)
        end
        local opt = optim.RMSprop({ p, q }, { momentum = 0.9 })
        opt.momentum = 0.5
        assert.equal(0.5, opt.momentum)
        refused('unsupported', 'centered with momentum', optim.RMSprop, { p }, { centered = true, momentum = 0.9 })
        refused('unsupported', 'centered with momentum', function() opt.centered = true end)
        refused('value', 'centered must be true or false', optim.RMSprop, { p }, { centered = 1 })
        refused('unsupported', 'centered with momentum', optim.RMSprop,
            { { params = { p }, momentum = 0.9 }, { params = { q } } }, { centered = true })
        opt = optim.RMSprop({ q }, { centered = true })
        refused('value', 'needs other states', function() opt.centered = false end)
        refused('value', 'beta1', optim.Lion, { p }, { betas = { 1, 0.9 } })
        refused('value', 'betas', optim.Lion, { p }, { betas = 0.9 })
    end)
end)

describe('groups of parameters', function()
    it('have settings of their own and follow the optimizer in the others', function()
        local p, q = parameters()
        local opt = optim.SGD({ { params = { p }, lr = 1 }, { params = { q } } }, { lr = 0.1, weight_decay = 0.5 })
        local a, b = opt.param_groups[1], opt.param_groups[2]
        assert.same({ 1, 0.1, 0.5, 0.5 }, { a.lr, b.lr, a.weight_decay, b.weight_decay })
        opt.lr = 0.2
        assert.same({ 1, 0.2 }, { a.lr, b.lr })
        a.lr, b.weight_decay = nil, 0
        assert.same({ 0.2, 0.5, 0 }, { a.lr, opt.weight_decay, b.weight_decay })
        assert.equal(p, a.params[1])
        assert.equal('optim.SGD(2 parameters, 2 groups, dampening = 0, lr = 0.2, momentum = 0, weight_decay = 0.5)',
            tostring(opt))
        assert.equal('group(1 parameters, weight_decay = 0)', tostring(b))
        for step = 1, 3 do -- a schedule a group
            opt.param_groups[1].lr = optim.schedule.constant(1, { warmup = 3 })(step)
            opt.param_groups[2].lr = optim.schedule.linear(2, { steps = 4 })(step)
        end
        assert.same({ 1, 1 }, { a.lr, b.lr })
    end)

    it('with a rate of 0 stay as they are, and are changed between steps', function()
        local p, q = parameters()
        local opt = optim.SGD({ { params = { p }, lr = 0 }, { params = { q } } }, { lr = 0.1 })
        for k = 1, 4 do
            if k == 4 then opt.param_groups[1].lr = 0.01 end
            opt:step(loss_of(p, q))
            assert.equal(k < 4, START[1] == p:totable()[1])
            assert.are_not.equal(START[1], q:totable()[1])
        end
    end)

    it('come later, with counts of their own', function()
        local p, q = parameters()
        local opt = optim.Adam({ p }, { lr = 0.1 })
        opt:step(loss_of(p, q))
        opt:add_param_group { params = { q }, lr = 0.5 }
        opt:step(loss_of(p, q))
        near({ 2.5, -0.5 }, q:totable()[1]) -- the first step of Adam is lr against the sign
        assert.equal(2, #opt:parameters())
        refused('value', 'listed twice', function() opt:add_param_group { params = { q } } end)
    end)

    it('may differ in their states, which a file keeps', function()
        local model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        local path = os.tmpname()
        local function make()
            return optim.SGD { { params = model[1]:parameters(), momentum = 0.9 }, { params = model[2]:parameters() } }
        end
        local opt = make()
        opt:step(model(wane.ones(1, 2)):sum())
        wane.save(path, model, { optimizer = opt })
        local other = make()
        wane.load(path, model, { optimizer = other })
        assert.same(programs.bytes { opt:state_dict().cells['momentum.1'] },
            programs.bytes { other:state_dict().cells['momentum.1'] })
        refused('value', 'groups', wane.load, path, model, { optimizer = optim.SGD(model:parameters()) })
        os.remove(path)
    end)

    it('refuse what is none', function()
        local p, q = parameters()
        refused('value', 'listed twice', optim.SGD, { { params = { p } }, { params = { q, p } } })
        refused('value', "group 2: unknown option 'learning_rate'", optim.SGD,
            { { params = { p } }, { params = { q }, learning_rate = 1 } })
        refused('value', "'clip_norm'", optim.SGD, { { params = { p }, clip_norm = 1 } })
        refused('value', 'group 2: expected a table {params = list, ...}', optim.SGD, { { params = { p } }, q })
        refused('value', 'group 1: expected a list of parameters, got an empty one', optim.SGD, { { params = {} } })
        refused('value', 'lr must be', optim.SGD, { { params = { p }, lr = -1 } })
        local opt = optim.SGD { { params = { p } } }
        refused('value', "no setting 'lrr'", function() opt.param_groups[1].lrr = 1 end)
        refused('value', 'lr must be', function() opt.param_groups[1].lr = 0 / 0 end)
        refused('value', 'add_param_group', opt.add_param_group, opt, { q })
    end)
end)

describe('optim.clip_grad_value', function()
    it('limits every element, in one run point, and leaves NaN', function()
        local p = nn.Parameter(wane.zeros(4))
        ;(p * wane.tensor { 3, -2, 0.25, 0 / 0 }):sum():backward()
        optim.clip_grad_value({ p }, 0.5)
        local g = p.grad:totable()
        assert.same({ 0.5, -0.5, 0.25 }, { g[1], g[2], g[3] })
        assert(g[4] ~= g[4])
        refused('value', 'above 0', optim.clip_grad_value, { p }, 0)
        p.grad = nil
        refused('value', 'no parameter has a gradient', optim.clip_grad_value, { p }, 1)
    end)
end)

describe('optim.EMA', function()
    it('follows the parameters, in f32 over bf16, and evaluates with the averages', function()
        for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
            local model = nn.Linear(1, 1, { bias = false }):to(dtype)
            local w = model.weight
            w:assign(wane.full({ 1, 1 }, 1, { dtype = dtype }))
            local ema = optim.EMA(model, { decay = 0.75 })
            for k, v in ipairs { 3, 5 } do
                w:assign(wane.full({ 1, 1 }, v, { dtype = dtype }))
                ema:update()
                assert.equal(({ 1.5, 2.375 })[k], ema:state_dict().weight:item())
            end
            assert.equal(dtype == 'bf16' and 'f32' or dtype, ema:state_dict().weight.dtype)
            assert.equal(2.375, ema:apply(model, wane.ones(1, 1, { dtype = dtype })):item())
            assert.equal(5, w:item())
            local ok, e = pcall(ema.apply, ema, function() error('mine', 0) end)
            assert.same({ false, 'mine', 5 }, { ok, e, w:item() })
            ema:swap_in()
            assert.equal(2.375, w:item())
            refused('value', 'swap_out first', ema.update, ema)
            ema:swap_out()
            assert.equal(5, w:item())
        end
    end)

    it('is saved and taken back, and goes into a model', function()
        local path, model = os.tmpname(), nn.Linear(3, 2)
        local ema = optim.EMA(model, { decay = 0.5 })
        model.weight:assign(wane.ones(2, 3))
        ema:update()
        wane.save(path, ema:state_dict())
        local other, fresh = optim.EMA(model), nn.Linear(3, 2)
        other:load_state_dict(wane.load(path))
        fresh:load_state_dict((wane.load(path)))
        os.remove(path)
        for name, value in pairs(ema:state_dict()) do
            assert.same(value:totable(), other:state_dict()[name]:totable())
            assert.same(value:totable(), fresh[name]:totable())
        end
        refused('shape', 'weight must be', other.load_state_dict, other, {})
    end)

    it('refuses what is none', function()
        local model = nn.Linear(3, 2)
        refused('value', 'decay', optim.EMA, model, { decay = 2 })
        refused('value', 'model:parameters()', optim.EMA, 3)
        local ema = optim.EMA(model)
        refused('value', 'swap_in first', ema.swap_out, ema)
        refused('value', 'expected a function', ema.apply, ema, 3)
        model:to 'f64'
        refused('value', 'make the EMA after model:to', ema.update, ema)
    end)
end)

-- ---- schedules -----------------------------------------------------------------------------------------------------
-- Checks schedules of optimizers: every group is scaled from its own base rate, by PyTorch's numbers
-- (spec/fixtures/torch_optim.lua), in every way to step, after a file, with groups that come later, and beside another
-- optimizer and an average.
local STEPS = fixture.steps
local c = wane.tensor { 1, 0.5, -0.25, 3 }

local MAKE = {
    scheduled_cosine = function(opt)
        return optim.schedule.cosine(opt, { steps = STEPS, warmup = fixture.warmup, least = fixture.least })
    end,
    scheduled_lambda = function(opt)
        return optim.schedule.lambda(opt, { function(k) return 0.9 ^ (k - 1) end, function(k) return 1 / k end })
    end,
}

local Two = nn.module('Two', function(self)
    self.p, self.q = nn.Parameter(wane.tensor { 0.5, -1.25, 2, 0.125 }), nn.Parameter(wane.tensor { { 3, -1 } })
end)

-- Returns a run: a model of two parameters, which are the two groups of an SGD, its schedule, and the loss.
local function fresh(name)
    local model = Two()
    local run = { model = model, p = model.p, q = model.q }
    run.opt = optim.SGD({ { params = { run.p } }, { params = { run.q }, lr = 0.02 } },
        { lr = fixture.lr, momentum = 0.5 })
    run.schedule = name and MAKE[name](run.opt)
    function run.loss() return (c * run.p * run.p + run.p):sum() + (run.q * run.q + run.q):sum() end
    return run
end

local function rates(opt)
    return { opt.param_groups[1].lr, opt.param_groups[2].lr }
end

describe('a schedule of an optimizer', function()
    for name in pairs(MAKE) do
        it('scales each group as PyTorch does, with equal bits in every way to step: ' .. name, function()
            local bits = {}
            for _, is_lines in ipairs { true, false } do
                local run, first, second = fresh(name), {}, {}
                for k = 1, STEPS do
                    run.schedule(k)
                    first[k], second[k] = unpack(rates(run.opt))
                    ways.step({ run.opt }, run.loss, { lines = is_lines })
                end
                near(fixture[name].first, first, 1e-8)
                near(fixture[name].second, second, 1e-8)
                near(fixture[name].p, run.p:totable(), 2e-5)
                near(fixture[name].q, run.q:totable()[1], 2e-5)
                bits[#bits + 1] = table.concat(programs.bytes { run.p, run.q }, '|')
                assert.equal(bits[1], bits[#bits])
            end
        end)

        -- The schedule is made before the file is read, or after it, when the rates are those of step 5.
        it('goes on from a file: ' .. name, function()
            local whole, path = fresh(name), os.tmpname()
            for k = 1, 9 do
                whole.schedule(k)
                whole.opt:step(whole.loss())
                if k == 5 then wane.save(path, whole.model, { optimizer = whole.opt, step = k }) end
            end
            for _, is_late in ipairs { false, true } do
                local part = fresh(not is_late and name)
                local at = wane.load(path, part.model, { optimizer = part.opt })
                part.schedule = part.schedule or MAKE[name](part.opt)
                for k = at.step + 1, 9 do
                    part.schedule(k)
                    part.opt:step(part.loss())
                end
                assert.same(programs.bytes { whole.p, whole.q }, programs.bytes { part.p, part.q })
                assert.equal(tostring(whole.opt), tostring(part.opt))
                assert.equal(tostring(whole.opt.param_groups[2]), tostring(part.opt.param_groups[2]))
            end
            os.remove(path)
        end)
    end

    it('takes the rates of a file that knows no base rates, and keeps its own base', function()
        local plain, run = fresh(), fresh 'scheduled_cosine'
        plain.opt.lr = 0.5
        assert.is_nil(plain.opt:state_dict().settings.initial_lr)
        run.opt:load_state_dict(plain.opt:state_dict())
        assert.same({ 0.5, 0.02, fixture.lr }, { run.opt.lr, run.opt.param_groups[2].lr, run.opt.initial_lr })
        run.schedule(fixture.warmup)
        assert.same({ fixture.lr, 0.02 }, rates(run.opt))
    end)

    it('takes an lr that a script assigns as a new base rate', function()
        local run = fresh()
        local half = optim.schedule.lambda(run.opt, function() return 0.5 end)
        half(1)
        half(2)
        assert.same({ 0.05, 0.01 }, rates(run.opt))
        run.opt.lr, run.opt.param_groups[2].lr = 1, 3
        assert.same({ 1, 3, false, false }, { run.opt.lr, run.opt.param_groups[2].lr, run.opt.initial_lr,
            run.opt.param_groups[2].initial_lr })
        half(3)
        half(4)
        assert.same({ 0.5, 1.5, 1, 3 }, { run.opt.lr, run.opt.param_groups[2].lr, run.opt.initial_lr,
            run.opt.param_groups[2].initial_lr })
        run.opt.param_groups[2].lr = nil -- follows the optimizer again
        half(5)
        assert.same({ 0.5, 0.5 }, rates(run.opt))
        run.opt.initial_lr = 8
        half(6)
        assert.same({ 4, 4 }, rates(run.opt))
    end)

    it('scales groups that come later from the rate that they came with', function()
        local run, later = fresh(), { nn.Parameter(wane.ones(2)), nn.Parameter(wane.ones(2)) }
        local line = optim.schedule.linear(run.opt, { steps = 4 })
        line(2)
        run.opt:add_param_group { params = { later[1] }, lr = 8 }
        run.opt:add_param_group { params = { later[2] } }
        line(3)
        local groups = run.opt.param_groups
        assert.same({ 0.05, 0.01, 4, 0.05 }, { groups[1].lr, groups[2].lr, groups[3].lr, groups[4].lr })
        run = fresh 'scheduled_lambda'
        run.opt:add_param_group { params = { later[1] } }
        refused('value', 'the list has 2 entries, the optimizer 3 groups', run.schedule, 2)
    end)

    it('leaves other optimizers and averages alone', function()
        local run, other = fresh 'scheduled_cosine', fresh 'scheduled_cosine'
        local ema = optim.EMA({ run.p }, { decay = 0.5 })
        run.schedule(1)
        run.opt:step(run.loss())
        ema:update()
        assert.same({ fixture.lr, 0.02 }, rates(other.opt))
        near({ 0.5 - 0.025, -1.25 + 0.00625 / 2 }, { ema:state_dict()['1']:totable()[1],
            ema:state_dict()['1']:totable()[2] }, 1e-6)
        assert.same({ 0.025, 0.005 }, rates(run.opt))
    end)

    it('takes a schedule, a number or a callable as the factor of a group, and one function for all', function()
        local run = fresh()
        local callable = setmetatable({}, { __call = function(_, k) return 1 / k end })
        optim.schedule.lambda(run.opt, { optim.schedule.constant(1, { warmup = 2 }), 10 })(1)
        assert.same({ fixture.lr / 2, 0.2 }, rates(run.opt))
        optim.schedule.lambda(run.opt, callable)(4)
        assert.same({ fixture.lr / 4, 0.005 }, rates(run.opt))
        local calls = 0
        optim.schedule.lambda(run.opt, function() calls = calls + 1; return 1 end)(1)
        assert.equal(1, calls)
        assert.equal(0.25, optim.schedule.lambda(1, callable)(4))
    end)

    it('sets all rates or, when it fails, none', function()
        local run = fresh()
        local function bad(k) return k > 1 and 0 / 0 or 1 end
        local half = optim.schedule.lambda(run.opt, { function() return 0.5 end, bad })
        half(1)
        refused('value', 'the factor of group 2 must be a number from 0', half, 2)
        assert.same({ fixture.lr / 2, 0.02 }, rates(run.opt))
        refused('value', 'the step', half, 0)
        local _, e = pcall(optim.schedule.lambda(run.opt, function() error('mine', 0) end), 1)
        assert.equal('mine', e)
    end)

    it('prints, and says how it is stepped', function()
        local run = fresh 'scheduled_cosine'
        assert.matches('^optim%.schedule%.cosine of optim%.SGD%(2 parameters, 2 groups, ', tostring(run.schedule))
        refused('value', "cosine: a schedule has no 'step'; call it with the number of the step", function()
            run.schedule:step()
        end)
        refused('value', 'got a schedule optim.schedule.cosine', optim.schedule.constant, run.schedule)
    end)

    it('refuses what is none', function()
        local run = fresh()
        local schedule = optim.schedule
        refused('value', 'expected lr, a number, or an optimizer', schedule.cosine, { run.p }, { steps = 3 })
        refused('value', 'least = 0.05 lies above lr = 0.02 of group 2', schedule.cosine, run.opt,
            { steps = 3, least = 0.05 })
        refused('value', 'expected a function of the step', schedule.lambda, run.opt, 3)
        refused('value', 'the list has 1 entries, the optimizer 2 groups', schedule.lambda, run.opt, { 1 })
        refused('value', 'entry 2 must be a function of the step or a number', schedule.lambda, run.opt, { 1, 'x' })
        refused('value', 'a list is for the groups', schedule.lambda, 0.1, { math.sqrt })
        refused('value', 'lr must be a finite number', function() run.opt.lr = schedule.constant(run.opt)(1) end)
        refused('value', 'initial_lr must be a finite number', function() run.opt.initial_lr = true end)
        refused('value', "unknown option 'initial_lr'", optim.SGD, { run.p }, { initial_lr = 1 })
    end)
end)
