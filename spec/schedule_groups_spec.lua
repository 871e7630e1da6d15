-- Checks schedules of optimizers: every group is scaled from its own base rate, by PyTorch's numbers
-- (spec/fixtures/torch_optim.lua), in every way to step, after a file, with groups that come later, and beside another
-- optimizer and an average.
require 'spec.helper'
local wane = require 'wane'
local programs = require 'spec.support.programs'
local fixture = require 'spec.fixtures.torch_optim'
local nn, optim = wane.nn, wane.optim

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

local WAYS = {
    ['three lines'] = function(run)
        return function()
            run.opt:zero_grad()
            run.loss():backward()
            run.opt:step()
        end
    end,
    ['one line'] = function(run)
        return function() run.opt:step(run.loss()) end
    end,
}

local function rates(opt)
    return { opt.param_groups[1].lr, opt.param_groups[2].lr }
end

local function near(want, got, limit)
    assert.equal(#want, #got)
    for k, v in ipairs(want) do
        assert(math.abs(v - got[k]) <= limit * math.max(1, math.abs(v)), ('%d: %.9g, not %.9g'):format(k, got[k], v))
    end
end

local function refused(text, fn, ...)
    local ok, e = pcall(fn, ...)
    assert.is_false(ok, text)
    assert.equal('value', e.code, tostring(e))
    assert.is_truthy(e.message:find(text, 1, true), e.message)
    assert.matches('schedule_groups_spec', e.where)
end

describe('a schedule of an optimizer', function()
    for name in pairs(MAKE) do
        it('scales each group as PyTorch does, with equal bits in every way to step: ' .. name, function()
            local bits = {}
            for way, make in pairs(WAYS) do
                local run, first, second = fresh(name), {}, {}
                local step = make(run)
                for k = 1, STEPS do
                    run.schedule(k)
                    first[k], second[k] = unpack(rates(run.opt))
                    step()
                end
                near(fixture[name].first, first, 1e-8)
                near(fixture[name].second, second, 1e-8)
                near(fixture[name].p, run.p:totable(), 2e-5)
                near(fixture[name].q, run.q:totable()[1], 2e-5)
                bits[#bits + 1] = table.concat(programs.bytes { run.p, run.q }, '|')
                assert.equal(bits[1], bits[#bits], way)
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
        refused('the list has 2 entries, the optimizer 3 groups', run.schedule, 2)
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
        refused('the factor of group 2 must be a number from 0', half, 2)
        assert.same({ fixture.lr / 2, 0.02 }, rates(run.opt))
        refused('the step', half, 0)
        local _, e = pcall(optim.schedule.lambda(run.opt, function() error('mine', 0) end), 1)
        assert.equal('mine', e)
    end)

    it('prints, and says how it is stepped', function()
        local run = fresh 'scheduled_cosine'
        assert.matches('^optim%.schedule%.cosine of optim%.SGD%(2 parameters, 2 groups, ', tostring(run.schedule))
        refused("optim.schedule.cosine: a schedule has no 'step'; call it with the number of the step", function()
            run.schedule:step()
        end)
        refused('got a schedule optim.schedule.cosine', optim.schedule.constant, run.schedule)
    end)

    it('refuses what is none', function()
        local run = fresh()
        local schedule = optim.schedule
        refused('expected lr, a number, or an optimizer', schedule.cosine, { run.p }, { steps = 3 })
        refused('least = 0.05 lies above lr = 0.02 of group 2', schedule.cosine, run.opt, { steps = 3, least = 0.05 })
        refused('expected a function of the step', schedule.lambda, run.opt, 3)
        refused('the list has 1 entries, the optimizer 2 groups', schedule.lambda, run.opt, { 1 })
        refused('entry 2 must be a function of the step or a number', schedule.lambda, run.opt, { 1, 'x' })
        refused('a list is for the groups', schedule.lambda, 0.1, { math.sqrt })
        refused('lr must be a finite number', function() run.opt.lr = schedule.constant(run.opt)(1) end)
        refused('initial_lr must be a finite number', function() run.opt.initial_lr = true end)
        refused("unknown option 'initial_lr'", optim.SGD, { run.p }, { initial_lr = 1 })
    end)
end)
