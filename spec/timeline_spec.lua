-- Checks a plan over time: bytes by kind must add up to what the plan says, the pictures and the trace must show all of
-- it, and the replay check must see a bit that differs.
local helper = require 'spec.helper'
local wane = helper.wane
local binding = require 'wane.ffi'
local json = require 'wane.report.json'
local palette = require 'wane.report.palette'
local nn, C = wane.nn, binding.C

local fn
before_each(function()
    wane.manual_seed(4)
    local list = {}
    for i = 1, 4 do list[i] = nn.MLP(16, 64, { dropout = 0.2 }) end
    local model, x = nn.Sequential(list), wane.randn(64, 16):retain()
    fn = function() return model(x):sum() end
end)

describe('plan:kinds_over_time', function()
    it('has the plan\'s peak, its kinds there, and the live bytes of the schedule', function()
        for _, p in ipairs { 'save_all', 'every(2)', 'recompute_all' } do
            local plan = wane.plan(fn, { policy = p })
            local rows, steps, most = plan:kinds_over_time(), plan:schedule(), nil
            assert.equal(#steps + 1, #rows)
            for i, row in ipairs(rows) do
                if not most or row.live > rows[most].live then most = i end
                local step = steps[i - 1]
                if step then assert.equal(step.live + (step.is_free and 0 or step.workspace), row.live) end
            end
            assert.equal(plan.peak, rows[most].live)
            for name, size in pairs(plan.kinds) do assert.equal(size, rows[most][name], name) end
            for name, size in pairs(plan.kinds_before) do assert.equal(size, rows[1][name], name) end
        end
    end)
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
        local x = tonumber(svg:match '<path d="M([%d.]+) [%d.]+ l%-5 %-9 h10 Z" class="ink peak"')
        assert.is_true(math.abs(70 + 800 * (peak.step + 0.5) / (plan.instructions + 1) - x) < 0.1)
        local text = tostring(plan:plot { columns = 60 })
        local at = #text:match '.*\n([^\n]*)%^' - 10 -- the caret of the peak is the last one
        assert.equal(math.floor(60 * (peak.step + 0.5) / (plan.instructions + 1)), at)
        assert.is_truthy(text:match((' 0  instruction +%d\n'):format(plan.instructions)))
    end)

    it('have a colour, a hatch and a letter for each kind, the same in every picture', function()
        local model = nn.Linear(16, 16)
        local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-3 })
        local plan = wane.plan(function() opt:step((model(wane.ones(4, 16)) ^ 2):mean()) end)
        local svg, text = plan:timeline(), tostring(plan:plot())
        local count = 0
        for kind, size in pairs(plan.kinds) do
            if size > 0 then
                count = count + 1
                local slot = palette.of_kind(kind)
                local fill = slot == 1 and 'class="f1" fill="' or ('fill="url(#wane-hatch-%d) '):format(slot)
                assert.is_truthy(svg:find(('Z" %s%s"><title>%s</title>'):format(fill, palette.light[slot], kind), 1,
                    true), kind)
                assert.is_truthy(svg:find(('height="12" %s%s"/>\n<text [^>]*>%s</text>'):format(fill:gsub('[%(%)-]',
                    '%%%0'), palette.light[slot], kind)), kind)
                assert.is_truthy(text:find(palette.letter(kind, 1) .. ' ' .. kind, 1, true), kind)
            end
        end
        assert.is_true(count >= 3)
    end)

    it('have an update where an optimizer is, and nowhere else', function()
        local model = nn.Sequential { nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2) }
        local opt, x = wane.optim.SGD(model:parameters(), { lr = 1 }), wane.randn(4, 2, 8, 8):retain()
        local function loss() return (model(x) ^ 2):mean() end
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

    it('have lines of characters for a terminal', function()
        local text = tostring(wane.plan(fn):plot { columns = 40, rows = 5 })
        local n = 0
        for line in text:gmatch '[^\n]+' do
            if line:find('|', 1, true) then
                n = n + 1
                assert.is_true(#line <= 50)
            end
        end
        assert.equal(5, n)
        assert.is_truthy(text:find('^forward', 1, true) and text:find('^backward', 1, true))
        assert.is_truthy(text:find('|PPPP') and text:find 'AAA' and text:find 'GGG')
        assert.is_nil(text:find '\27') -- no terminal here
    end)
end)

describe('a memory report', function()
    it('is drawn in the colours of the timeline, as long as its bytes say', function()
        local kept = nn.Linear(64, 64)
        wane.eval(kept(wane.ones(4, 64)):sum())
        local r = wane.memory()
        local text, svg = r:plot(), r:plot(os.tmpname())
        local now, peak = text:match '\n +now |(%u*) [^\n]*\nat the peak |(%u*) '
        local room = #text:match '\n(at the peak [^\n]*)'
        assert.is_true(room > 76 and room <= 80, text)
        assert.is_true(math.abs(#peak * r.allocated / r.peak - #now) <= 0.5)
        assert.is_true(math.abs(#peak * r.kinds.parameter / r.peak - #now:gsub('[^P]', '')) <= 1)
        local file = assert(io.open(svg))
        local picture = file:read '*a'
        file:close()
        os.remove(svg)
        for kind, size in pairs(r.peak_kinds) do
            if size > 0 then
                assert.is_truthy(picture:find(palette.light[palette.of_kind(kind)] .. '"><title>' .. kind .. ': ', 1,
                    true), kind)
            end
        end
        assert.is_truthy(picture:find('.wane text,.wane .ink{fill:' .. palette.ink.dark, 1, true))
        assert.is_true(kept ~= nil)
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
        local file = io.open(path)
        local text = file:read '*a'
        file:close()
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
