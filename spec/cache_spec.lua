-- Checks the plan cache: a program that was met before is found by its key before anything is differentiated. What is
-- bound at a run must be no part of the key, and everything else must be. What was used least recently leaves the cache
-- where bytes run out.
require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local program = require 'wane.program'
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local ways = require 'spec.support.ways'
local helper = require 'spec.helper'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local C = binding.C

local function count(what)
    return tonumber(C.wn_debug_get(what))
end

-- Returns how many plans were put into the cache while fn ran.
local function plans(fn, ...)
    local before = count 'plans_made'
    fn(...)
    return count 'plans_made' - before
end

-- Returns whether a program is planned as soon as it is open.
local function is_hit(request)
    local p = program.open(request)
    local hit = C.wn_is_planned(p.handle)
    p:close()
    return hit == 1
end

local function loss_of(model, rows, width)
    return model(wane.ones(rows, width)):pow(2):mean()
end

before_each(function() C.wn_debug('forget_plans', 1) end)

describe('the same program again', function()
    it('is planned when it is opened', function()
        local model = programs.mlp(8, 2, 0.1)
        for _, mode in ipairs { 'backward', 'eval' } do
            local request = function() return { mode = mode, roots = { loss_of(model, 3, 8) } } end
            assert.is_false(is_hit(request()))
            program.run(request())
            for _, p in ipairs(model:parameters()) do p.grad = nil end
            assert.is_true(is_hit(request()))
        end
        -- Cleared gradients keep their place and the plan; with their values there is a second encoding.
        assert.equal(0, plans(function() loss_of(model, 3, 8):backward() end))
        assert.is_false(is_hit { mode = 'backward', roots = { loss_of(model, 3, 8) } })
        assert.equal(1, plans(function() loss_of(model, 3, 8):backward() end))
        assert.equal(0, plans(function()
            for _ = 1, 3 do loss_of(model, 3, 8):backward() end
            model:zero_grad()
            loss_of(model, 3, 8):backward()
            loss_of(model, 3, 8):backward()
        end))
    end)

    it('plans a training loop in its first step and never again', function()
        for _, fused in ipairs { true, false } do
            wane.manual_seed(1)
            local model = programs.mlp(8, 3, 0.2)
            local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
            local function step()
                ways.step({ opt }, function() return loss_of(model, 4, 8) end, { lines = not fused }):item()
            end
            step()
            assert.equal(0, plans(function()
                for _ = 1, 20 do
                    opt.lr = opt.lr * 0.9
                    step()
                end
            end))
        end
    end)

    -- Lists what runs between two steps and leaves no gradient behind, given losses of a whole model and of its head.
    local works = {
        ['nothing'] = function() end,
        ['a backward'] = function(whole) whole():backward() end,
        ["the head's backward, then the model's"] = function(whole, head)
            head():backward()
            whole():backward()
        end,
        ["the head's value"] = function(_, head) head():item() end,
        ['a measurement'] = function(whole) wane.measure(whole, { steps = 1, warmup = 0 }) end,
    }
    local steps = {
        ['in one line'] = function(opt, whole) opt:step(whole()) end,
        ['in three lines'] = function(opt, whole)
            opt:zero_grad()
            whole():backward()
            opt:step()
        end,
        ['in three lines, the first one last'] = function(opt, whole)
            whole():backward()
            opt:step()
            opt:zero_grad()
        end,
    }
    for way, step in pairs(steps) do
        it('plans a step ' .. way .. ' once, and gives equal bits, whatever other work is between two', function()
            local bits = {}
            for name, work in pairs(works) do
                C.wn_debug('forget_plans', 1)
                wane.manual_seed(4)
                local head = nn.Linear(8, 8)
                local model = nn.Sequential { nn.Linear(8, 8), nn.ReLU(), head }
                local opt = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.5 })
                local function whole() return loss_of(model, 3, 8) end
                for k = 1, 5 do
                    local made = plans(step, opt, whole)
                    assert(k == 1 or made == 0, ('%s: step %d made %d plans'):format(name, k, made))
                    opt:zero_grad()
                    work(whole, function() return loss_of(head, 3, 8) end)
                    for _, p in ipairs(model:parameters()) do p.grad = nil end
                end
                bits[1] = bits[1] or programs.bytes(model:parameters())
                assert.same(bits[1], programs.bytes(model:parameters()), name)
            end
        end)
    end

    it('is found for another model of the same make, and gives that model\'s values', function()
        local function run(seed)
            wane.manual_seed(seed)
            local model = programs.mlp(8, 2, 0)
            loss_of(model, 3, 8):backward()
            return table.concat(programs.bytes { model:parameters()[1].grad })
        end
        local first = run(1)
        assert.equal(0, plans(function()
            assert.are_not.equal(first, run(2))
            assert.equal(first, run(1))
        end))
    end)
end)

describe('another program', function()
    local base = function() return { 3, 8, 'f32', 0.1, 'sum' } end

    local function make(s)
        local x = wane.ones(s[1], s[2], { dtype = s[3], requires_grad = true })
        local y = nn.Dropout(s[4])(x:relu())
        y = s[5] == 'sum' and y:sum() or y:mean()
        return y
    end

    it('is one with another shape, dtype, attribute or op', function()
        for place, other in pairs { 5, 9, 'f64', 0.2, 'mean' } do
            C.wn_debug('forget_plans', 1)
            local function run(s)
                local loss = make(s)
                program.run { mode = 'backward', roots = { loss } }
            end
            -- Each run makes a leaf of its own, so its first values are one more program: two plans.
            run(base())
            assert.equal(0, plans(run, base()))
            local s = base()
            s[place] = other
            assert.is_true(plans(run, s) > 0, 'place ' .. place)
            assert.equal(0, plans(run, s))
        end
    end)

    it('is one with a retained value, a name, a region, a scope, joint roots or a scale', function()
        local w = nn.Parameter(wane.ones(4))
        local Scope = nn.module 'Scoped'
        function Scope.forward(_, x) return (x * 2):relu():sum() end
        local module = Scope()
        local variants = {
            plain = function() return (w * 2):relu():sum() end,
            retained = function() return (w * 2):relu():retain():sum() end,
            named = function() return (w * 2):relu():named('r'):sum() end,
            region = function() return wane.checkpoint(function(x) return (x * 2):relu():sum() end, w) end,
            scope = function() return module(w) end,
        }
        wane.eval(w * 1)
        for name, build in pairs(variants) do
            C.wn_debug('forget_plans', 1)
            for other, build_other in pairs(variants) do
                w.grad = nil
                build():backward()
                w.grad = nil
                build():backward()
                w.grad = nil
                local hit = is_hit { mode = 'backward', roots = { build_other() } }
                assert.equal(name == other, hit, name .. ' and ' .. other)
                C.wn_debug('forget_plans', 1)
            end
        end
        local plain = variants.plain
        plain():backward()
        w.grad = nil
        plain():backward()
        w.grad = nil
        assert.is_true(is_hit { mode = 'backward', roots = { plain() } })
        assert.is_false(is_hit { mode = 'backward', roots = { plain() }, scale = 0.5 })
        assert.is_false(is_hit { mode = 'backward', roots = { plain() }, joint = true })
        assert.is_false(is_hit { mode = 'backward', roots = { plain(), plain() } })
        assert.is_false(is_hit { mode = 'eval', roots = { plain() } })
    end)

    it('is one that reads one leaf twice where the first reads two', function()
        local a, b = nn.Parameter(wane.ones(4)), nn.Parameter(wane.ones(4))
        wane.eval(a + b)
        local request = function(x, y) return { mode = 'eval', roots = { (x * y):sum() } } end
        program.run(request(a, b))
        assert.is_true(is_hit(request(b, a)))
        assert.is_false(is_hit(request(a, a)))
        program.run(request(a, a))
        assert.is_true(is_hit(request(b, b)))
    end)
end)

describe('variable lengths', function()
    it('take one plan each, whatever their order', function()
        local w = nn.Parameter(wane.ones(4, 4))
        wane.eval(w * 1)
        local function run(n) return wane.ones(n, 4):matmul(w):sum():item() end
        assert.equal(10, plans(function()
            for _ = 1, 3 do
                for n = 1, 10 do assert.equal(16 * n, run(n)) end
                for n = 10, 1, -1 do assert.equal(16 * n, run(n)) end
            end
        end))
    end)

    it('push the least recently used plan out where bytes run out, frontiers too', function()
        local x = wane.ones(1)
        wane.eval(x)
        local most = count 'cache_bytes'
        finally(function() C.wn_debug('cache_bytes', most) end)
        local function run(n)
            local y = x
            for _ = 1, n do y = y + x end
            return y:item()
        end
        local function all(first, last)
            for n = first, last do assert.equal(n + 1, run(n)) end
        end
        C.wn_debug('forget_plans', 1)
        assert.equal(70, plans(all, 1, 70))
        assert.equal(70, count 'plans')
        assert.equal(0, plans(all, 1, 70))
        local bytes = math.floor(count 'plan_bytes' / 2)
        C.wn_debug('cache_bytes', bytes)
        assert.equal(0, plans(run, 1)) -- 2 is the oldest now
        assert.equal(1, plans(run, 71))
        assert.is_true(count 'plans' < 70)
        assert.is_true(count 'plan_bytes' <= bytes)
        assert.equal(0, plans(run, 1))
        assert.equal(1, plans(run, 2))
        assert.is_true(count 'plan_bytes' <= bytes)
        local w = nn.Parameter(wane.ones(4))
        wane.min_budget(function() return (w * 2):tanh():exp():sum() end)
        assert.is_true(count 'plan_bytes' <= bytes)
        C.wn_debug('cache_bytes', 1) -- the newest plan is kept, whatever it takes
        assert.equal(1, plans(run, 72))
        assert.equal(0, plans(run, 72))
        C.wn_debug('forget_plans', 1)
        assert.equal(0, count 'plans')
        assert.equal(0, count 'plan_bytes')
    end)
end)

describe('policies and plans', function()
    local model, x
    local asked
    before_each(function()
        asked = 0
        wane.manual_seed(3)
        model = programs.mlp(8, 4, 0)
        x = wane.randn(3, 8):retain()
        wane.eval(x)
        model(x):sum():backward()
        model:zero_grad()
        C.wn_debug('forget_plans', 1)
    end)

    local function fresh(word)
        return function()
            asked = asked + 1
            return word
        end
    end

    -- Runs a backward under p; returns its schedule as text and the bits of its gradients.
    local function run(p)
        local q
        scoped('listen', function(each) q = each end, function() model(x):sum():backward { policy = p } end)
        local lines = {}
        for i, step in ipairs(programs.schedule(q)) do
            lines[i] = table.concat({ step.what, step.op, step.node, step.offset, step.phase }, ' ')
        end
        local grads = {}
        for i, p_ in ipairs(model:parameters()) do grads[i] = p_.grad end
        local bits = table.concat(programs.bytes(grads))
        model:zero_grad()
        return table.concat(lines, '\n'), bits
    end

    it('share one schedule between equal closures', function()
        local bits_of, text_of = {}, {}
        local before
        for k = 1, 6 do
            text_of[k], bits_of[k] = run(fresh 'recompute')
            -- The schedule is counted once a plan that holds it; what is shared must not grow the library's own memory.
            collectgarbage()
            collectgarbage()
            if k == 2 then before = wane.memory().host end
        end
        for k = 2, 6 do
            assert.equal(text_of[1], text_of[k])
            assert.equal(bits_of[1], bits_of[k])
        end
        local shared = (wane.memory().host - before) / 4
        C.wn_debug('forget_plans', 1)
        run(fresh 'recompute')
        C.wn_debug('forget_plans', 1)
        collectgarbage()
        collectgarbage()
        local empty = wane.memory().host
        run(fresh 'recompute')
        collectgarbage()
        collectgarbage()
        local whole = wane.memory().host - empty
        assert.is_true(shared < whole, shared .. ' against ' .. whole)
    end)
end)

-- ---- a step that is planned again ----------------------------------------------------------------------------------
-- Checks the warning about replanning: a step that is planned for the fifth time is warned about once, in words that
-- name what differs; a loop that plans once is never warned about, whatever is bound at a run.
-- Returns the lines that fn writes to the error stream.
local function heard(fn)
    local text, before = {}, io.stderr
    io.stderr = { write = function(_, ...) text[#text + 1] = table.concat { ... } end } -- luacheck: ignore 122
    local ok, why = pcall(fn)
    io.stderr = before -- luacheck: ignore 122
    assert(ok, why)
    return text
end

local x, w
before_each(function() x, w = wane.eval(wane.randn(16, 4)), nn.Parameter(wane.ones(4)) end)

local function times(n, step)
    return heard(function() for i = 1, n do step(i) end end)
end

local function warned(words, text)
    assert.equal(1, #text)
    assert(text[1]:find('cache_spec.lua:%d+: this step is planned for the 5th time'), text[1])
    assert(text[1]:find(words, 1, true), text[1])
end

describe('a step planned for the fifth time', function()
    it('names the shape of an input', function()
        warned('an input is f32 (5, 4), it was f32 (4, 4)', times(9, function(i)
            (wane.eval(wane.ones(i, 4)) * w):sum():backward()
            w.grad = nil
        end))
    end)

    it('names an attribute', function()
        warned('clamp has the attributes', times(9, function(i)
            (x * w):clamp(0, i / 10):sum():backward { again = true }
            w.grad = nil
        end))
    end)

    it('names an op, and its line', function()
        wane.lines(true)
        local text = times(9, function(i)
            local y = x * w
            for _ = 1, i do y = y:tanh() end
            y:sum():backward()
            w.grad = nil
        end)
        wane.lines(false)
        warned("was recorded where it was", text)
        assert(text[1]:find('%(.*cache_spec.lua:%d+%)'), text[1])
    end)

    it('names a policy that is made anew', function()
        warned("the policy 'function' is another object", times(9, function(i)
            (x * w):gelu():sum():backward { policy = function() return i > 0 and 'save' or nil end }
            w.grad = nil
        end))
    end)

    it('is told once, and for opt:step too', function()
        local o = optim.SGD({ w }, { lr = 0.1 })
        warned('an input is f32 (5, 4), it was f32 (4, 4)', times(20, function(i)
            o:step((wane.eval(wane.ones(i, 4)) * w):sum())
        end))
    end)

    it('is not told of models that are trained one after the other', function()
        assert.same({}, times(8, function(i)
            local m = nn.Linear(4, i)
            local o = optim.SGD(m:parameters(), { lr = 0.1 })
            local step = wane.eval(wane.ones(2, 4))
            for _ = 1, 20 do o:step(m(step):sum()) end
        end))
    end)

    it('is not told of loops that plan once: slices, numbers, hyperparameters, random numbers, policies by name',
        function()
            local m = nn.Sequential { nn.Linear(4, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 1) }
            local o = optim.Adam(m:parameters(), { lr = 0.1 })
            local words = policy.by_op { gelu = 'recompute' }
            assert.same({}, times(20, function(i)
                o.lr = 0.1 / i
                o:step((m(x:narrow(1, (i - 1) % 12 + 1, 4)) * i):mean(), { policy = words })
            end))
            assert.same({}, times(12, function(i)
                o:zero_grad()
                m(x[i]):sum():backward { policy = ({ 'save_all', 'sqrt', 'every(1)', 'segments(2)', 'every(2)',
                    'recompute_all' })[i % 6 + 1] }
                o:step()
            end))
        end)

    it('is kept from the output of specs, and not lost', function()
        local before = #helper.notices
        for i = 1, 9 do
            (wane.eval(wane.ones(20 + i, 4)) * w):sum():backward()
            w.grad = nil
        end
        assert.equal(before + 1, #helper.notices)
        assert.matches('for the 5th time', helper.notices[before + 1])
    end)
end)
