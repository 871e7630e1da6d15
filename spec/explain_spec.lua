-- Checks plan:explain(): what holds the peak, what recomputing saves and costs, and every mistake that it knows. Each
-- mistake must be found in a script that makes it, and in no script that does not.
local helper = require 'spec.helper'
local wane = helper.wane
local nn = wane.nn

local x
before_each(function()
    require('wane.ffi').C.wn_debug('forget_plans', 1) -- a plan met before has the lines of its first recording
    wane.manual_seed(3)
    x = wane.randn(64, 16):retain()
end)

local function blocks(n)
    local list = {}
    for i = 1, n do list[i] = nn.MLP(16, 64) end
    return nn.Sequential(list)
end

local function explain(fn, opts)
    return wane.plan(fn, opts):explain()
end

-- Returns the findings of one kind.
local function of(report, kind)
    local list = {}
    for _, finding in ipairs(report) do
        if finding.kind == kind then list[#list + 1] = finding end
    end
    return list
end

local function sum(kinds)
    local n = 0
    for name, size in pairs(kinds) do n = n + (name == 'live' and 0 or size) end
    return n
end

describe('plan:explain', function()
    it('finds the peak, and what is alive there, to the byte', function()
        local model = blocks(4)
        for _, p in ipairs { 'save_all', 'sqrt', 'recompute_all', 'budget(300 KiB)' } do
            local plan = wane.plan(function() return model(x):sum() end, { policy = p })
            local peak = plan:explain().peak
            assert.equal(plan.peak, peak.bytes)
            assert.equal(plan.peak, sum(peak.kinds))
            for name, size in pairs(plan.kinds) do assert.equal(size, peak.kinds[name], name) end
            local step = plan:schedule()[peak.step]
            assert.equal(plan.peak, step.live + step.workspace)
            assert.equal(step.op, peak.op)
            local activations, before = 0, math.huge
            for _, v in ipairs(peak.values) do
                assert.is_true(v.bytes <= before)
                before = v.bytes
                activations = activations + (v.kind == 'activation' and v.bytes or 0)
            end
            assert.equal(plan.kinds.activation, activations)
        end
    end)

    it('says what a region saves and costs: the peak without it, planned', function()
        local model = blocks(4)
        local function fn() return model(x):sum() end
        local plan, all = wane.plan(fn, { policy = 'segments(2)' }), wane.plan(fn)
        local groups = plan:explain().groups
        assert.equal(1, #groups)
        assert.equal(all.peak - plan.peak, groups[1].saves)
        assert.is_true(groups[1].saves > 0 and groups[1].dropped >= groups[1].saves)
        assert.equal(plan.recomputed, groups[1].nodes)
        local close = math.abs(groups[1].seconds - (plan.seconds - plan.base_seconds))
        assert.is_true(close <= 1e-9 * plan.seconds)
        assert.equal(0, #plan:explain())
    end)

    it('groups by block what words recompute', function()
        local model = blocks(3)
        local p = wane.policy.by_op { gelu = 'recompute' }
        local groups = explain(function() return model(x):sum() end, { policy = p }).groups
        assert.equal(3, #groups)
        for i, g in ipairs(groups) do
            assert.equal(64 * 64 * 4, g.dropped)
            assert.is_truthy(g.name:find(i .. '.up', 1, true), g.name)
        end
    end)

    it('prints, and writes a file', function()
        local model, path = blocks(4), os.tmpname()
        local plan = wane.plan(function() return model(x):sum() end, { policy = 'sqrt' })
        local text = tostring(plan:explain(path))
        local file = io.open(path)
        assert.equal(text .. '\n', file:read '*a')
        file:close()
        os.remove(path)
        assert.is_truthy(text:find('no mistakes found', 1, true))
        assert.is_truthy(text:find('the peak, ' .. wane.bytes.exact(plan.peak) .. ' bytes', 1, true), text)
    end)
end)

describe('a checkpoint that saves 0 bytes', function()
    local model
    before_each(function() model = blocks(4) end)

    local function only(report, words)
        assert.equal(1, #report, tostring(report))
        assert.equal('checkpoint', report[1].kind)
        assert.equal(0, report[1].bytes)
        assert.is_truthy(report[1].message:find(words, 1, true), report[1].message)
    end

    it('is found around a single Linear', function()
        local a, b = nn.Linear(16, 16), nn.Linear(16, 16)
        only(explain(function() return b(wane.checkpoint(a, x):relu()):sum() end), 'what the backward of linear reads')
        only(explain(function() return nn.Sequential { blocks(2), a }(x):sum() end, { policy = 'every(1)' }), 'saves 0')
    end)

    it('is found around what is kept anyway: its output', function()
        local a, b = nn.Linear(16, 16), nn.Linear(16, 16)
        only(explain(function() return b(wane.checkpoint(function(v) return v:relu() end, a(x))):sum() end), 'saves 0')
    end)

    it('is found around the last segment', function()
        local function forward(last)
            local y = model[3](model[2](wane.checkpoint(model[1], x)))
            return (last and wane.checkpoint(model[4], y) or model[4](y)):sum()
        end
        assert.equal(0, #explain(function() return forward(false) end))
        local report = explain(function() return forward(true) end)
        only(report, 'saves 0 bytes')
        assert.is_truthy(report[1].places[1]:find('region 2', 1, true))
    end)

    it('is found with one segment, by policy and by call', function()
        only(explain(function() return model(x):sum() end, { policy = 'segments(1)' }), 'segments(1)')
        only(explain(function() return wane.checkpoint_sequential(model, 1, x):sum() end), 'with 1 segment')
        assert.equal(0, #explain(function() return wane.checkpoint_sequential(model, 2, x):sum() end))
        assert.equal(0, #explain(function() return model(x):sum() end))
    end)

    it('is not claimed of regions that only together cost bytes', function()
        for _, p in ipairs { 'recompute_all', 'every(2)' } do
            local plan = wane.plan(function() return model(x):sum() end, { policy = p })
            local report = plan:explain()
            for _, finding in ipairs(report) do
                local words = {}
                for _, place in ipairs(finding.places) do words[tonumber(place:match 'region (%d+)')] = true end
                local kept = {}
                for i, g in ipairs(report.groups) do kept[i] = not words[tonumber(g.name:match 'region (%d+)')] end
                local function forward()
                    local y, per = x, p == 'every(2)' and 2 or 1
                    for r = 1, 4 / per do
                        local function part(v)
                            for k = (r - 1) * per + 1, r * per do v = model[k](v) end
                            return v
                        end
                        y = kept[r] and wane.checkpoint(part, y) or part(y)
                    end
                    return y:sum()
                end
                assert.is_true(wane.plan(forward).peak <= plan.peak)
            end
        end
    end)
end)

describe('gradients that do not arrive', function()
    local a, b
    before_each(function() a, b = nn.Linear(16, 16), nn.Linear(16, 16) end)

    it('are found where a detach cuts them off, with the parameters that get none', function()
        local report = explain(function() return b(a(x):detach()):sum() end)
        local cut, starved = of(report, 'detach'), of(report, 'gradient')
        assert.equal(1, #cut)
        assert.is_truthy(cut[1].message:find('2 parameters get none', 1, true), cut[1].message)
        assert.equal(1, #starved)
        assert.equal(2, #starved[1].places)
        assert.equal((16 * 16 + 64) * 4, starved[1].bytes)
        assert.equal(2, #report)
    end)

    it('are found where no_grad cuts them off', function()
        local report = explain(function() return b(wane.no_grad(function() return a(x) end)):sum() end)
        assert.equal(1, #of(report, 'detach'))
        assert.equal(1, #of(report, 'gradient'))
    end)

    it('are found behind an op without a gradient', function()
        local report = explain(function() return (b(x) * a(x):gt(wane.zeros(64, 16)):to 'f32'):sum() end)
        assert.equal(0, #of(report, 'detach'))
        local starved = of(report, 'gradient')
        assert.equal(1, #starved)
        assert.is_truthy(starved[1].message:find('stops at gt', 1, true), starved[1].message)
    end)

    it('names the line with wane.lines(true)', function()
        wane.lines(true)
        local report = explain(function() return b(a(x):detach()):sum() end)
        wane.lines(false)
        assert.is_truthy(of(report, 'detach')[1].message:find('explain_spec.lua:%d+'), report[1].message)
    end)

    it('are no mistake when the parameters are frozen', function()
        for _, p in ipairs(a:parameters()) do p.requires_grad = false end
        assert.equal(0, #explain(function() return b(a(x):detach()):sum() end))
        assert.equal(0, #explain(function() return b(a(x)):sum() end))
    end)

    it('says that a detached value still trains what has another way to the loss', function()
        local report = explain(function()
            local y = a(x)
            return b(y + y:detach()):sum()
        end)
        assert.equal(1, #report)
        assert.equal('detach', report[1].kind)
        assert.is_truthy(report[1].message:find('another way', 1, true))
    end)

    it('are not looked for where nothing is trained, and detached data is none', function()
        assert.equal(0, #explain(function() return b((x * 2):detach()):sum() end))
        assert.equal(0, #explain(function() return wane.no_grad(function() return b(a(x)):sum() end) end))
    end)

    it('are found in a fused step too', function()
        local opt = wane.optim.SGD(b:parameters(), { lr = 0.1 })
        assert.equal(1, #of(explain(function() opt:step(b(a(x):detach()):sum()) end), 'gradient'))
        assert.equal(0, #explain(function() opt:step(b(a(x)):sum()) end))
    end)
end)

describe('a policy that matches nothing', function()
    local policy = wane.policy
    local model
    before_each(function()
        local layers = {}
        for i = 1, 4 do layers[i] = nn.Sequential { nn.Linear(16, 16), nn.ReLU() } end
        model = nn.Sequential(layers)
    end)
    local function fn() return model(x):sum() end

    local function silent(p, who)
        local found = of(explain(fn, { policy = p }), 'policy')
        assert.equal(1, #found)
        assert.equal(who, found[1].places[1])
        assert.is_truthy(found[1].message:find('decides about none of the 5 values', 1, true), found[1].message)
    end

    it('in the graph is refused, with the nearest name', function()
        helper.refused(nil, function() explain(fn, { policy = policy.by_type { Relu = 'recompute' } }) end,
            "'Relu' matches nothing in this graph; did you mean 'ReLU'?")
    end)

    it('of what the backward reads is found: a type that owns no value, an op whose result nobody reads', function()
        silent(policy.by_type { ReLU = 'recompute' }, "'ReLU' of by_type{ReLU=recompute}")
        silent(policy.by_type { ReLU = 'recompute', default = 'save' },
            "'ReLU' of by_type{ReLU=recompute, default=save}")
        silent(policy.by_op { sum = 'recompute', relu = 'recompute' }, "'sum' of by_op{relu=recompute, sum=recompute}")
        silent(policy.by_path { { '^4%.1$', 'recompute' }, { '', 'save' } }, "'^4%.1$' of by_path")
    end)

    it('because its function never answers is found', function()
        silent(function(r) return r.type == 'ReLU' and 'recompute' or nil end, 'function')
        silent(policy.compose(function() end, policy.by_op { relu = 'recompute' }), 'function')
    end)

    it('is found where a module was given it', function()
        model[2]:checkpoint(policy.by_op { sum = 'recompute' })
        silent(nil, "'sum' of by_op{sum=recompute}")
    end)

    it('is none when it does decide, only saves, or is said to be optional', function()
        for _, p in ipairs { policy.by_op { relu = 'recompute' }, policy.by_op { sum = 'save', default = 'recompute' },
            policy.by_type { ReLU = 'recompute', optional = true }, 'every(2)', policy.budget '10 MiB',
            wane.plan(fn, { policy = 'sqrt' }), policy.by_type { Sequential = 'recompute' } } do
            assert.equal(0, #of(explain(fn, { policy = p }), 'policy'))
        end
    end)
end)

describe('a budget below the floor', function()
    it('is explained by what holds the bytes', function()
        local model = blocks(3)
        local function fn() return model(x):sum() end
        local plan, why = wane.plan(fn, { budget = 1000 })
        assert.is_nil(plan)
        local report = why:explain()
        assert.equal('budget', report[1].kind)
        assert.equal(why.min_budget, report[1].bytes)
        assert.is_true(#report[1].places > 2)
        assert.is_truthy(tostring(report):find('the least that would do', 1, true))
        assert.equal(0, #explain(fn, { budget = why.min_budget }))
    end)
end)

describe('plan:residuals', function()
    it('says who decided, in which module, at which line', function()
        local model = blocks(2)
        wane.lines(true)
        local function fn() return model(x):sum() end
        local plan = wane.plan(fn, { policy = wane.policy.by_op { gelu = 'recompute' } })
        local plain, marked = wane.plan(fn), wane.plan(function() return wane.checkpoint(model, x):sum() end)
        wane.lines(false)
        local seen = 0
        for _, r in ipairs(plan:residuals()) do
            if r.op == 'gelu' then
                seen = seen + 1
                assert.equal('by_op{gelu=recompute}', r.by)
                assert.equal('GELU', r.module)
                assert.is_truthy(r.line:find('explain_spec.lua:%d+'), r.line)
            else
                assert.equal('', r.by)
            end
        end
        assert.equal(2, seen)
        for _, r in ipairs(plain:residuals()) do assert.equal('', r.by) end
        local by = {}
        for _, r in ipairs(marked:residuals()) do by[r.by] = true end
        assert.is_true(by['the script'])
        local bounded = wane.plan(fn, { budget = '10 MiB' })
        for _, r in ipairs(bounded:residuals()) do assert.equal('budget(10485760)', r.by) end
    end)
end)
