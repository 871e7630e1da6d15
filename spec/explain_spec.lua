-- Checks what a plan says of itself. plan:explain(): what holds the peak, what recomputing saves and costs, and every
-- mistake that it knows; each must be found in a script that makes it, and in no script that does not. Pictures and
-- traces: bytes by kind must add up to what the plan says, and all of it must be shown. wane.check must see a bit that
-- differs.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane
local json = require 'wane.report.json'
local nn, C = wane.nn, require('wane.ffi').C

local x
before_each(function()
    C.wn_debug('forget_plans', 1) -- a plan met before has the lines of its first recording
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
    it('finds the peak, and what is alive there and over time, to the byte', function()
        local model = blocks(4)
        for _, p in ipairs { 'save_all', 'sqrt', 'recompute_all', 'budget(300 KiB)' } do
            local plan = wane.plan(function() return model(x):sum() end, { policy = p })
            local peak = plan:explain().peak
            assert.equal(plan.peak, peak.bytes)
            assert.equal(plan.peak, sum(peak.kinds))
            for name, size in pairs(plan.kinds) do assert.equal(size, peak.kinds[name], name) end
            local steps, rows, most = plan:schedule(), plan:kinds_over_time(), nil
            assert.equal(plan.peak, steps[peak.step].live + steps[peak.step].workspace)
            assert.equal(steps[peak.step].op, peak.op)
            assert.equal(#steps + 1, #rows)
            for i, row in ipairs(rows) do
                if not most or row.live > rows[most].live then most = i end
                local step = steps[i - 1]
                if step then assert.equal(step.live + (step.is_free and 0 or step.workspace), row.live) end
            end
            assert.equal(plan.peak, rows[most].live)
            for name, size in pairs(plan.kinds) do assert.equal(size, rows[most][name], name) end
            for name, size in pairs(plan.kinds_before) do assert.equal(size, rows[1][name], name) end
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
        assert.equal(text .. '\n', files.read(path))
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

    it('is found around a single Linear, around what is kept anyway, and with one segment', function()
        local a, b = nn.Linear(16, 16), nn.Linear(16, 16)
        for words, case in pairs {
            ['what the backward of linear reads'] = { function() return b(wane.checkpoint(a, x):relu()):sum() end },
            ['every(1)'] = { function() return nn.Sequential { blocks(2), a }(x):sum() end, 'every(1)' },
            ['saves 0'] = { function() return b(wane.checkpoint(function(v) return v:relu() end, a(x))):sum() end },
            ['segments(1)'] = { function() return model(x):sum() end, 'segments(1)' },
            ['with 1 segment'] = { function() return wane.checkpoint_sequential(model, 1, x):sum() end },
        } do only(explain(case[1], { policy = case[2] }), words == 'every(1)' and 'saves 0' or words) end
        assert.equal(0, #explain(function() return wane.checkpoint_sequential(model, 2, x):sum() end))
        assert.equal(0, #explain(function() return model(x):sum() end))
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

    -- A step, and how many findings there are: in all, cuts, parameters without a gradient.
    local STEPS = {
        ['where a detach cuts them off'] = { function() return b(a(x):detach()):sum() end, 2, 1, 1 },
        ['where no_grad cuts them off'] = { function()
            return b(wane.no_grad(function() return a(x) end)):sum()
        end, 2, 1, 1 },
        ['behind an op without a gradient'] = { function()
            return (b(x) * a(x):gt(wane.zeros(64, 16)):to 'f32'):sum()
        end, 1, 0, 1, 'stops at gt' },
        ['in a fused step'] = { function()
            wane.optim.SGD(b:parameters(), { lr = 0.1 }):step(b(a(x):detach()):sum())
        end, 2, 1, 1 },
        ['where another way goes to the loss'] = { function()
            local y = a(x)
            return b(y + y:detach()):sum()
        end, 1, 1, 0, 'another way' },
        ['nowhere in a step that is right'] = { function() return b(a(x)):sum() end, 0, 0, 0 },
        ['nowhere in a fused step that is right'] = { function()
            wane.optim.SGD(b:parameters(), { lr = 0.1 }):step(b(a(x)):sum())
        end, 0, 0, 0 },
        ['nowhere where data are detached'] = { function() return b((x * 2):detach()):sum() end, 0, 0, 0 },
        ['nowhere where nothing is trained'] = { function()
            return wane.no_grad(function() return b(a(x)):sum() end)
        end, 0, 0, 0 },
    }
    for name, step in pairs(STEPS) do
        it('are found ' .. name, function()
            local report = explain(step[1])
            assert.same({ step[2], step[3], step[4] }, { #report, #of(report, 'detach'), #of(report, 'gradient') })
            if step[5] then assert.is_truthy(report[1].message:find(step[5], 1, true), report[1].message) end
        end)
    end

    it('are named by the parameters that get none and by the line, and are none of frozen ones', function()
        wane.lines(true)
        local report = explain(STEPS['where a detach cuts them off'][1])
        wane.lines(false)
        local cut, starved = of(report, 'detach')[1], of(report, 'gradient')[1]
        assert.is_truthy(cut.message:find('2 parameters get none', 1, true), cut.message)
        assert.is_truthy(cut.message:find('explain_spec.lua:%d+'), cut.message)
        assert.equal(2, #starved.places)
        assert.equal((16 * 16 + 64) * 4, starved.bytes)
        for _, p in ipairs(a:parameters()) do p.requires_grad = false end
        for _, name in ipairs { 'where a detach cuts them off', 'nowhere in a step that is right' } do
            assert.equal(0, #explain(STEPS[name][1]))
        end
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
        assert.is_truthy(found[1].message:find('decides about none of the 4 values', 1, true), found[1].message)
    end

    it('in the graph is refused, with the nearest name', function()
        helper.refused(nil, function() explain(fn, { policy = policy.by_type { Relu = 'recompute' } }) end,
            "'Relu' matches nothing in this graph; did you mean 'ReLU'?")
    end)

    it('of what the backward reads is found: types, ops, paths and functions, of a step and of a module', function()
        silent(policy.by_type { ReLU = 'recompute' }, "'ReLU' of by_type{ReLU=recompute}")
        silent(policy.by_type { ReLU = 'recompute', default = 'save' },
            "'ReLU' of by_type{ReLU=recompute, default=save}")
        silent(policy.by_op { sum = 'recompute', relu = 'recompute' }, "'sum' of by_op{relu=recompute, sum=recompute}")
        silent(policy.by_path { { '^4%.1$', 'recompute' }, { '', 'save' } }, "'^4%.1$' of by_path")
        silent(function(r) return r.type == 'ReLU' and 'recompute' or nil end, 'function')
        silent(policy.compose(function() end, policy.by_op { relu = 'recompute' }), 'function')
        model[2]:checkpoint(policy.by_op { sum = 'recompute' })
        silent(nil, "'sum' of by_op{sum=recompute}")
    end)

    it('is none when it does decide, only saves, or is said to be optional', function()
        for _, p in ipairs { policy.by_op { relu = 'recompute' }, policy.by_op { sum = 'save', default = 'recompute' },
            policy.by_type { ReLU = 'recompute', optional = true }, policy.by_op { all_gather = 'save' },
            'every(2)', policy.budget '10 MiB',
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

-- ---- a plan over time ----------------------------------------------------------------------------------------------
local fn
before_each(function()
    wane.manual_seed(4)
    local list = {}
    for i = 1, 4 do list[i] = nn.MLP(16, 64, { dropout = 0.2 }) end
    local model = nn.Sequential(list)
    fn = function() return model(x):sum() end
end)

describe('plan:timeline and plan:plot', function()
    it('draw an area for each kind, the phases, and the values alive at the peak', function()
        local plan, path = wane.plan(fn, { policy = 'every(2)' }), os.tmpname()
        local svg = plan:timeline()
        assert.is_truthy(svg:find('^<svg') and svg:find('</svg>\n$'))
        for _, word in ipairs { '>activation<', '>gradient<', '>forward<', '>backward<', 'values alive at the peak' } do
            assert.is_truthy(svg:find(word, 1, true), word)
        end
        for _, v in ipairs(plan:explain().peak.values) do
            if v.kind == 'activation' then assert.is_truthy(svg:find('>' .. v.op .. ' ' .. v.path, 1, true), v.what) end
        end
        assert.is_nil(svg:find('nan', 1, true))
        assert.equal(path, plan:timeline(path))
        os.remove(path)
    end)

    it('have an axis of instructions and a mark at the peak', function()
        local plan = wane.plan(fn, { policy = 'every(2)' })
        local svg, peak = plan:timeline(), plan:explain().peak
        assert.is_truthy(svg:find('>instruction<', 1, true))
        assert.is_truthy(svg:find((', instruction %d: %s of %s<'):format(peak.step, peak.op, peak.path), 1, true))
        local middle = tonumber(svg:match '<path d="M([%d.]+) [%d.]+ l%-5 %-9 h10 Z" class="ink peak"')
        assert.is_true(math.abs(70 + 800 * (peak.step + 0.5) / (plan.instructions + 1) - middle) < 0.1)
        local text = tostring(plan:plot { columns = 60 })
        local at = #text:match '.*\n([^\n]*)%^' - 10 -- the caret of the peak is the last one
        assert.equal(math.floor(60 * (peak.step + 0.5) / (plan.instructions + 1)), at)
        assert.is_truthy(text:match((' 0  instruction +%d\n'):format(plan.instructions)))
        text = tostring(wane.plan(fn):plot { columns = 40, rows = 5 })
        assert.equal(5, select(2, ('\n' .. text):gsub('\n[^\n]*|', '')))
        assert.is_truthy(text:find('^forward', 1, true) and text:find('^backward', 1, true))
        assert.is_truthy(text:find('|PPPP') and text:find 'AAA' and text:find 'GGG')
        assert.is_nil(text:find '\27') -- no terminal here
    end)

    it('have an update where an optimizer is, and nowhere else', function()
        local model = nn.Sequential { nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2) }
        local opt, image = wane.optim.SGD(model:parameters(), { lr = 1 }), wane.randn(4, 2, 8, 8):retain()
        local function loss() return (model(image) ^ 2):mean() end
        local without = wane.plan(loss)
        local is_backward = false
        for _, step in ipairs(without:schedule()) do -- running statistics and gradients are written, too
            is_backward = is_backward or step.phase == 'backward'
            assert.equal(is_backward and 'backward' or 'forward', step.phase)
        end
        for _, text in ipairs { without:timeline(), without:trace(), tostring(without:plot()) } do
            assert.is_nil(text:find('update', 1, true))
            assert.is_truthy(text:find('backward', 1, true))
        end
        local with = wane.plan(function() opt:step(loss()) end)
        for _, text in ipairs { with:timeline(), with:trace(), tostring(with:plot()) } do
            assert.is_truthy(text:find('update', 1, true))
        end
    end)
end)

describe('plan:trace', function()
    local function read(text)
        local slices, counters = {}, {}
        for _, e in ipairs(assert(json.decode(text)).traceEvents) do
            if e.ph == 'X' then slices[#slices + 1] = e end
            if e.ph == 'C' then counters[#counters + 1] = e end
        end
        return slices, counters
    end

    it('holds every instruction that runs, its predicted time, and the bytes', function()
        local plan = wane.plan(fn, { policy = 'every(2)' })
        local slices, counters = read(plan:trace())
        local total, runs = 0, 0
        for _, s in ipairs(plan:schedule()) do runs = runs + (s.what == 'run' and 1 or 0) end
        assert.equal(runs, #slices)
        assert.equal(plan.instructions + 1, #counters)
        local at = 0
        for _, s in ipairs(slices) do
            assert.is_true(s.ts >= at - 1e-6)
            at, total = s.ts + s.dur, total + s.dur
        end
        assert.is_true(math.abs(total - plan.seconds * 1e6) <= 1e-6 * total)
        local most = 0
        for _, c in ipairs(counters) do
            local live = 0
            for _, size in pairs(c.args) do live = live + size end
            most = math.max(most, live)
        end
        assert.equal(plan.peak, most)
    end)

    it('shows moves on the links they take, one after the other, and the waits for them', function()
        local plan = wane.plan(fn, { policy = wane.policy.of(function() return 'offload' end) })
        local ends, moves, waited, arrives, total = {}, 0, 0, {}, 0
        for _, e in ipairs(read(plan:trace())) do
            if e.cat == 'move' then
                assert.is_true(e.ts >= (ends[e.tid] or 0) - 1e-6)
                ends[e.tid], moves = e.ts + e.dur, moves + 1
                arrives[#arrives + 1] = ends[e.tid]
            else
                total = total + e.dur
                if e.name:find '^wait' then
                    waited = waited + e.dur
                    local meets
                    for _, at in ipairs(arrives) do meets = meets or math.abs(at - e.ts - e.dur) < 1e-3 end
                    assert.is_true(meets, 'a wait ends when no move does')
                end
            end
        end
        local tracks = {}
        for id in pairs(ends) do tracks[#tracks + 1] = id end
        assert.equal(2, #tracks) -- to disk and back
        assert.equal(0, moves % 2)
        assert.is_true(moves > 4 and waited > 0)
        assert.is_true(math.abs(total - plan.seconds * 1e6) <= 1e-6 * total)
    end)

    it('is written with measured times by wane.measure', function()
        local path = os.tmpname()
        local m = wane.measure(fn, { steps = 2, trace = path })
        assert.is_true(m.exact)
        assert.equal(2, #m.times)
        local text = files.read(path)
        os.remove(path)
        assert.is_truthy(text:find('a step, measured', 1, true))
        local slices, total = read(text), 0
        for _, s in ipairs(slices) do total = total + s.dur end
        assert.is_true(total > 0 and total < 60e6)
        assert.is_truthy(wane.plan(fn):trace():find('a step, predicted', 1, true))
    end)
end)

describe('wane.check', function()
    after_each(function()
        C.wn_debug('replay_fault', 0)
        C.wn_debug('replay', 0)
    end)

    it('compares every value that is computed again, and finds the same bits', function()
        for _, p in ipairs { 'recompute_all', 'every(2)', 'sqrt' } do
            local found = wane.check(fn, { policy = p })
            assert.equal(wane.plan(fn, { policy = p }).recomputed, found.compared)
            assert.is_true(found.bytes > 0)
            assert.is_truthy(tostring(found):find('computed again', 1, true))
        end
        assert.equal(0, wane.check(fn).compared)
        assert.equal(0, tonumber(C.wn_debug_get 'replay'))
    end)

    it('names the op, its path and the copy when one bit differs, and goes on working', function()
        local count = wane.check(fn, { policy = 'recompute_all' }).compared
        local messages = {}
        for _, n in ipairs { 1, count } do
            C.wn_debug('replay_fault', n)
            local why = helper.refused('illegal', function() wane.check(fn, { policy = 'recompute_all' }) end)
            messages[#messages + 1] = why.message
            assert.is_truthy(why.message:find("of '%d%.%a+', computed again .*copy 2 of 2"), why.message)
            assert.equal(0, tonumber(C.wn_debug_get 'replay'))
        end
        assert.are_not.equal(messages[1], messages[2])
        assert.equal(count, wane.check(fn, { policy = 'recompute_all' }).compared)
        C.wn_debug('replay_fault', count + 1)
        wane.check(fn, { policy = 'recompute_all' })
    end)

    it('says nothing of a run that is not checked', function()
        C.wn_debug('replay_fault', 1)
        assert.is_true(wane.measure(fn, { steps = 1, policy = 'recompute_all' }).exact)
    end)

    it('refuses a function that trains', function()
        local w = nn.Parameter(wane.ones(2))
        local opt = wane.optim.SGD({ w }, { lr = 0.1 })
        helper.refused(nil, function() wane.check(function() opt:step((w * w):sum()) end) end,
            'wane.check: the function runs a step')
    end)
end)
