-- Checks recipes: a recipe says in text what a plan does, and gives the same plan again, to the byte, for every policy,
-- for every plan that a budget may choose, and for other recordings of the same forward. A recipe that breaks a rule,
-- or belongs to another graph, must be refused by step and rule.
local helper = require 'spec.helper'
local wane = helper.wane
local binding = require 'wane.ffi'
local measure = require 'wane.plan.measure'
local models = require 'spec.support.budget_models'
local offloading = require 'spec.support.offloading'
local programs = require 'spec.support.programs'
local nn, optim, policy = wane.nn, wane.optim, wane.policy

local C = binding.C

local function forget()
    C.wn_debug('forget_plans', 1)
end

-- Returns everything a run does: each instruction with its places in memory.
local function schedule_of(plan) return programs.schedule(plan.parts[1].program) end

-- Checks that the text of fn's plan under p gives the same plan with nothing remembered; returns the plan and its text.
local function check_round_trip(fn, p)
    forget()
    local plan = wane.plan(fn, { policy = p })
    local text = tostring(plan:recipe())
    forget()
    local again = wane.plan(fn, { policy = policy.recipe(text) })
    assert.equal(text, tostring(again:recipe()))
    assert.same(schedule_of(plan), schedule_of(again))
    assert.equal(plan.seconds, again.seconds)
    assert.same(plan.kinds, again.kinds)
    return plan, text
end

local Block = nn.module('RecipeBlock', function(self, d, p)
    self.a, self.act, self.b = nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)
    self.drop = nn.Dropout(p or 0)
end)
function Block:forward(x) return x + self.drop(self.b(self.act(self.a(x)))) end

local function make(n, batch, p)
    wane.manual_seed(3)
    local list = {}
    for i = 1, n do list[i] = Block(16, p) end
    local m, x = nn.Sequential(list), wane.eval(wane.randn(batch or 8, 16))
    return function() return m(x):sum() end, m, x
end

describe('a recipe gives the plan it was taken from', function()
    for i, model in ipairs(models) do
        local maybe_it = (helper.is_long or not model.is_slow) and it or function() end
        maybe_it('of ' .. model.name, function()
            wane.manual_seed(i)
            local fn, tried = model.build(), 0
            for _, name in ipairs(models.by_hand) do
                if pcall(wane.plan, fn, { policy = name }) then
                    check_round_trip(fn, name)
                    tried = tried + 1
                end
            end
            assert(tried >= 8, tried)
            check_round_trip(fn, policy.by_op { gelu = 'recompute', tanh = 'recompute', optional = true })
            local all = wane.frontier(fn).all
            assert(#all > 4, #all)
            for k = 1, #all, 1 + math.floor(#all / (helper.is_long and 12 or 4)) do
                local plan = check_round_trip(fn, all[k].policy)
                assert.equal(all[k].reserved, plan.reserved)
            end
            check_round_trip(fn, 'least')
        end)
    end

    it('with binomial regions, regions of the script in regions, and words in them', function()
        local fn, m, x = make(9)
        for slots = 0, 5 do check_round_trip(fn, policy.binomial(slots)) end
        local function marked()
            local function two(v) return wane.checkpoint(m[2], wane.checkpoint(m[1], v)) end
            return m[4](wane.checkpoint(function(v) return m[3](two(v)) end, x)):sum()
        end
        check_round_trip(marked)
        check_round_trip(marked, function(r) return r.index % 3 == 0 and 'save' or nil end)
        check_round_trip(fn, function(r) return r.index % 3 == 0 and 'recompute' or 'save' end)
    end)

    it('with micro-batches, losses that share a trunk, and integers', function()
        local fn, m, x = make(4, 8, 0.3)
        local opt = optim.Adam(m:parameters(), { lr = 1e-3 })
        for _, p in ipairs { 'save_all', 'every(2)', 'segments(2)', 'least' } do
            check_round_trip(function() opt:step { fn(), fn(), fn() } end, p)
        end
        for _, p in ipairs { 'save_all', 'recompute_all', 'every(2)', 'least' } do
            local _, text = check_round_trip(function()
                local y = m(x)
                opt:step { y:sum(), (y * y):mean() }
            end, p)
            assert.truthy(text:find('\nB 1/2', 1, true), text)
        end
        local embedding, head = nn.Embedding(20, 16), nn.Linear(16, 20)
        local tokens, labels = wane.eval(wane.randint(20, { 8 }), wane.randint(20, { 8 }))
        for _, p in ipairs { 'save_all', 'recompute_all', 'least' } do
            check_round_trip(function() return nn.cross_entropy(head(m(embedding(tokens))), labels) end, p)
        end
    end)

    it('under autocast', function()
        local fn = make(4)
        local function cast() return wane.autocast('bf16', fn) end
        for _, p in ipairs { 'save_all', 'every(2)', 'least' } do check_round_trip(cast, p) end
    end)
end)

describe('an action', function()
    local fn, _, x = make(5, 64)
    local words = policy.by_op { gelu = 'compress:bf16', add = 'compress:bf16', linear = 'recompute' }

    it('goes into the text and comes back from it, in regions and micro-batches too', function()
        local plan, text = check_round_trip(fn, words)
        assert(plan.packed >= 5, plan.packed)
        assert.truthy(text:find('%f[%a]Fe %d+:[^\n]* h%d+ compress:bf16'), text)
        check_round_trip(fn, policy.compose(words, policy.budget(plan.reserved)))
        check_round_trip(function() return wane.backward { fn(), fn() } end, words)
        local function marked() return wane.checkpoint(fn) end
        check_round_trip(marked, words)
    end)

    -- Returns a loss whose layers have ReLU before dropout: of ReLU's output only the sign is read by the backward.
    local function signed(depth)
        wane.manual_seed(5)
        local list = {}
        for i = 1, depth do
            list[i] = nn.Sequential { nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 96) }
        end
        local model, data = nn.Sequential(list), wane.eval(wane.randn(128, 96))
        return function() return model(data):sum() end
    end

    it('comes back whichever it is: moved to disk or to host memory, packed, signs as bits', function()
        local of_signs = signed(4)
        for _, word in ipairs { 'offload', 'offload:disk', 'offload:host', 'compress:bf16', 'compress:int8' } do
            local plan, text = check_round_trip(of_signs, word)
            local written = word == 'offload' and 'offload:disk' or word
            assert.truthy(text:find('%f[%a]Fe %d+:[^\n]* h%d+ ' .. written:gsub('%p', '%%%0') .. '%f[^%w]'), text)
            assert.equal(word:find 'compress' == nil, plan.moved > 0)
            assert.is_true(wane.measure(of_signs, { policy = policy.recipe(text), steps = 1, warmup = 0 }).exact)
            check_round_trip(function() return wane.backward { of_signs(), of_signs() } end, word)
        end
        local plan, text = check_round_trip(of_signs, 'compress:bits')
        assert.equal(4, plan.packed)
        assert.truthy(text:find(' h2 compress:bits', 1, true), text)
        check_round_trip(of_signs, policy.by_op { relu = 'compress:bits', dropout = 'offload', linear = 'recompute' })
        assert.equal(measure.gradients(of_signs, 'save_all'), measure.gradients(of_signs, policy.recipe(text)))
        local d = wane.eval(wane.randn(64, 64)) -- integers go unsaid, unless they are away
        local w = wane.randn(64, 64, { requires_grad = true })
        local function masked()
            local y = d:matmul(w)
            return wane.where(y:gt(0), y:gelu(), y * 2):sum()
        end
        local last = select(2, check_round_trip(masked, policy.by_op { gt = 'offload' }))
        assert.truthy(last:find(' h2 offload:disk', 1, true), last)
        assert.is_nil(select(2, check_round_trip(masked, 'save_all')):find(' h2', 1, true))
        local parts = text:gsub('%f[%a]compress:bits', 'offload') -- what is offloaded comes back whole
        local moved = wane.plan(of_signs, { policy = policy.recipe(parts) })
        assert(moved.moved > 0 and moved.packed == 0, moved.moved)
    end)

    it('that a budget chose comes back too, with the bytes its moves may take', function()
        local tuned, moved, packed, of_signs = 0, 0, 0, signed(8)
        local most, least = wane.plan(of_signs).reserved, wane.min_budget(of_signs)
        for _, rate in ipairs { false, 1e11 } do -- as it is, and a machine on which moving is nearly free
            offloading.machine(rate)
            for _, allow in ipairs { { 'offload:disk' }, { 'offload:host', 'compress:bf16' }, { 'compress:int8' } } do
                for k = 0, 8, helper.is_long and 1 or 4 do
                    local size = math.floor(least + (most - least) * k / 8)
                    local plan, text = check_round_trip(of_signs, policy.budget(size, { allow = allow }))
                    if text:find '\nahead %d\n' then tuned = tuned + 1 end
                    if plan.moved > 0 then moved = moved + 1 end
                    packed = packed + plan.packed
                end
            end
        end
        offloading.machine()
        assert(tuned > 0 and moved >= tuned and packed > 0, ('%d, %d, %d'):format(tuned, moved, packed))
    end)

    it('leaves the room of moves and what starts together to the text, and that is read strictly', function()
        local of_signs = signed(8)
        local text = tostring(wane.plan(of_signs, { policy = 'offload' }):recipe())
        assert.is_nil(text:find('ahead', 1, true))
        local function peak(eighths)
            local r = policy.recipe((text:gsub('\nFe 1', '\nahead ' .. eighths .. '\nFe 1', 1)))
            local plan = wane.plan(of_signs, { policy = r })
            return plan.peak, plan:recipe(), plan.moved
        end
        local none, at_none = peak(0)
        local all, at_all = peak(8)
        assert(none < all, none)
        assert.equal(0, at_none.ahead)
        assert.equal(8, at_all.ahead)
        assert.not_equal(at_none, at_all)
        assert.equal(text, tostring(select(2, peak(2)))) -- what is so unless said goes unsaid
        for _, bad in ipairs { '9', '-1', 'x', '', '1.5' } do
            helper.refused('value', function() policy.recipe('block 1: h1-h2\nahead ' .. bad .. '\nF 1') end,
                "line 2: expected eighths from 0 to 8, got 'ahead " .. bad .. "'")
        end
        for _, bad in ipairs { '-1', 'x', '', '1.5', '99999999999999999999' } do
            helper.refused('value', function() policy.recipe('block 1: h1-h2\ngroup ' .. bad .. '\nF 1') end,
                "line 2: expected bytes, 0 or more, got 'group " .. bad .. "'")
        end
        local grouped = policy.recipe((text:gsub('\nFe 1', '\ngroup 123456789012\nFe 1', 1)))
        assert.equal(123456789012, wane.plan(of_signs, { policy = grouped }):recipe().group)
        local given = binding.new('struct wn_recipe_given')
        given.prefetch, given.group = -1, -2
        local one = require('wane.program').open { mode = 'backward', roots = { of_signs() } }
        assert.not_equal(0, C.wn_give_recipe(one.handle, given))
        assert.equal("recipe: rule 'group': it says -2; expected bytes, 0 or more", binding.text(C.wn_message()))
        given.prefetch = 9
        local p = require('wane.program').open { mode = 'backward', roots = { of_signs() } }
        assert.not_equal(0, C.wn_give_recipe(p.handle, given))
        assert.equal("recipe: rule 'ahead': it says 9; eighths are 0 to 8", binding.text(C.wn_message()))
    end)

    it('may be written by hand, and is refused by step where it cannot be', function()
        local text = tostring(wane.plan(fn, { policy = 'recompute_all' }):recipe())
        local one = wane.plan(fn, { policy = policy.recipe((text:gsub('F 1\n', 'Fe 1: h2 compress:bf16\n'))) })
        assert.equal(1, one.packed)
        for _, r in ipairs(one:residuals()) do
            assert.equal(r.op == 'gelu' and r.path:find '^1%.' and 'compress:bf16' or nil,
                r.word:find 'compress' and r.word or nil)
        end
        local unread = policy.recipe((text:gsub('F 1\n', 'Fe 1: h3 compress:bf16\n')))
        helper.refused('illegal', function() wane.plan(fn, { policy = unread }) end,
            "step 1 (Fe 1): rule 'action': h3 compress:bf16: no backward reads it")
        helper.refused(nil, function() policy.recipe 'block 1: h1-h2\nFe 1: h1 compres:bf16' end, "'compress:bf16'")
        local double = wane.eval(x:to 'bf16')
        local w = wane.randn(16, 16, { dtype = 'bf16', requires_grad = true })
        local function low() return double:matmul(w):gelu():sum() end
        local r = wane.plan(low, { policy = 'save_all' }):recipe()
        r.steps[1].keep, r.steps[1].action = { 1 }, { 'compress:bf16' }
        helper.refused(nil, function() wane.plan(low, { policy = policy.recipe(r) }) end,
            "rule 'action': h1 compress:bf16: it is not made of f32 or f64")
    end)
end)

describe('a recipe holds', function()
    local fn, m, x = make(5, 64, 0.2)
    local plan = wane.plan(fn, { budget = wane.min_budget(fn) + 1024 })
    local text = tostring(plan:recipe())
    assert(plan.recomputed > 0)

    local function recomputed(f, opts)
        forget()
        local p = wane.plan(f, opts)
        assert.equal(text, tostring(p:recipe()))
        return p.recomputed
    end

    it('for another model of the same forward, for other shapes, and for a step of an optimizer', function()
        local p = policy.recipe(text)
        assert.equal(plan.recomputed, recomputed(make(5, 64, 0.2), { policy = p }))
        assert.equal(plan.recomputed, recomputed(make(5, 24, 0.2), { policy = p }))
        local opt = optim.SGD(m:parameters(), { lr = 0.1 })
        assert.equal(plan.recomputed, recomputed(function() opt:step(fn()) end, { policy = p }))
    end)

    it('whatever was read, allocated and held before', function()
        local other, model = make(5, 64, 0.2)
        assert(model[3].a.weight:sum():item() ~= nil) -- states get their numbers in another order
        other():backward()
        assert.equal(plan.recomputed, recomputed(other, { policy = plan }))
        local late = wane.randn(64, 16) -- not held yet: a value more of the forward, so another graph
        helper.refused(nil, function() wane.plan(function() return m(late):sum() end, { policy = plan }) end,
            'h1 of block 1, which step 1 (', 'linear there, and here normal, a value made in the step')
        local function again() return m(late):sum() end
        local unheld = wane.plan(again, { policy = 'every(2)' })
        assert.equal('normal', unheld:recipe().blocks[1].ops[1])
        wane.eval(late)
        assert.equal(wane.plan(again, { policy = 'every(2)' }):recipe(), wane.plan(again, { policy = unheld }):recipe())
    end)

    it('for backward, measure, a model and policy.default, with equal gradients', function()
        local function recomputed_by(run)
            local got = -1
            wane.scoped('listen', function(p) got = math.max(got, require('wane.plan').alone(p).recomputed) end, run)
            m:zero_grad()
            return got
        end
        local want = plan.recomputed
        assert.equal(want, recomputed_by(function() fn():backward { policy = plan } end))
        assert.is_true(wane.measure(fn, { policy = plan, steps = 1, warmup = 0 }).exact)
        m:checkpoint(plan)
        assert.equal(want, recomputed_by(function() fn():backward() end))
        assert.is_number(m(x):mean():item()) -- another graph, and nothing to decide about: not refused
        assert.equal(0, recomputed_by(function() fn():backward { policy = 'save_all' } end)) -- the call goes first
        m:checkpoint(policy.recipe(text))
        assert.equal(want, recomputed_by(function() fn():backward() end))
        m:checkpoint(false)
        policy.default = plan
        assert.equal(want, recomputed_by(function() fn():backward() end))
        policy.default = nil
        assert.equal(measure.gradients(fn, 'save_all'), measure.gradients(fn, plan))
    end)

    it('as text, table, plan and source, and is then the same policy', function()
        local p = policy.recipe(text)
        assert.equal(p, policy.recipe(plan))
        assert.equal(p, policy.recipe(plan:recipe()))
        assert.equal(p, policy.of(plan))
        assert.equal(p, policy.of(text)) -- on a command line, say
        assert.equal(p, policy.recipe { blocks = plan:recipe().blocks, steps = plan:recipe().steps })
        local pasted = assert(loadstring('local wane = ...; return ' .. plan:lua()))(wane)
        assert.equal(p, pasted)
        assert.equal(p, policy.recipe('-- a note\r\n' .. text:gsub('\n', '   -- another\r\n\r\n')))
        assert.equal(plan:recipe(), plan:recipe())
        assert.not_equal(plan:recipe(), wane.plan(fn, { policy = 'save_all' }):recipe())
        for _, r in ipairs(wane.plan(fn, { policy = p }):residuals()) do assert.equal(tostring(p), r.by) end
    end)

    it('after an edit, to do what it then says', function()
        local all = wane.plan(fn, { policy = 'recompute_all' })
        local r = all:recipe()
        local first = r.steps[1]
        assert.same({ 'F', 1 }, { first.what, first.block })
        first.what, first.keep = 'Fe', { 2 } -- h2 is block 1's gelu
        assert.equal('gelu', r.blocks[1].ops[2])
        local edited = wane.plan(fn, { policy = policy.recipe(r) })
        local before, after = all:residuals(), edited:residuals()
        for i, row in ipairs(before) do
            local is_it = row.op == 'gelu' and row.path:find '^1%.'
            assert.equal(is_it and 'save' or row.word, after[i].word)
            if is_it then assert.equal('recompute', row.word) end
        end
        assert.is_true(edited:verify())
        assert.equal(measure.gradients(fn, 'save_all'), measure.gradients(fn, policy.recipe(r)))
        assert.is_true(wane.measure(fn, { policy = policy.recipe(r), steps = 1, warmup = 0 }).exact)
    end)
end)

describe('a recipe is refused', function()
    local fn, m = make(4)
    local text = tostring(wane.plan(fn, { policy = 'every(2)' }):recipe())

    -- Checks that the recipe is refused once `old` in its text is `new`, in a message that has the other arguments.
    local function refused(old, new, ...)
        local from, to = text:find(old, 1, true)
        assert(from, old)
        local edited = policy.recipe(text:sub(1, from - 1) .. new .. text:sub(to + 1))
        helper.refused('illegal', function() wane.plan(fn, { policy = edited }) end, ...)
    end

    it('where a step breaks a rule, by step and rule', function()
        assert.equal('F 1\nF 2\nFe 3\nB 3\nB 2\nB 1', text:match '\n(F 1.*)$')
        refused('B 2\nB 1', 'B 1\nB 2', "step 5 (B 1): rule 'order': B 2 is next")
        refused('B 1', 'B 1\nB 1', "step 7 (B 1): rule 'order': every block of its root went backward already")
        refused('F 1\nF 2\n', 'F 1\n', "step 3 (B 3): rule 'order': block 2 was not run forward yet")
        refused('\nB 1', '', "rule 'end': after step 5 root 1 ends, before B 1")
        refused('F 1\n', 'F 1: h2 h40\n', "step 1 (F 1): rule 'keep': it names h40; the block has h1 to h8")
        refused('F 1\n', 'F 1: h2 h2\n', "step 1 (F 1): rule 'keep': it names h2 twice")
        refused('F 2\n', 'F 2\nFree 1: h3\n', "step 3 (Free 1): rule 'held': h3 is not there")
        refused('F 1\n', 'Free 1\n', "step 1 (Free 1): rule 'held': the block was not run yet")
        refused('F 1\n', 'Shrink 1\n', "step 1 (Shrink 1): rule 'held'")
        refused('F 1\n', 'F 9\n', "step 1 (F 9): rule 'block': there is no block 9; there are 3")
        refused('B 3', 'B 3/2', "step 4 (B 3): rule 'root'")
    end)

    it('where a view is named, and where blocks are not those of the forward', function()
        local w = wane.randn(16, 16, { requires_grad = true })
        local x = wane.eval(wane.randn(4, 16))
        local function viewed() return x:matmul(w):gelu():reshape(16, 4):gelu():sum() end
        local all = wane.plan(viewed, { policy = 'save_all' }):recipe()
        all.steps[1].keep = { 3 }
        helper.refused(nil, function() wane.plan(viewed, { policy = policy.recipe(all) }) end,
            "rule 'keep': h3 is a view of h2; name that")
        local opt = optim.SGD({ w }, { lr = 0.1 })
        local joined = wane.plan(function() opt:step { viewed(), viewed() } end, { policy = 'save_all' }):recipe()
        joined.blocks[1].last, joined.blocks[1].ops = joined.blocks[2].last, nil
        table.remove(joined.blocks, 2)
        helper.refused(nil, function()
            wane.plan(function() opt:step { viewed(), viewed() } end, { policy = policy.recipe(joined) })
        end, "rule 'block': h6 of block 1 is of another root than h1")
    end)

    it('where it is of another graph, by value and step', function()
        helper.refused('illegal', function() wane.plan(make(5), { policy = policy.recipe(text) }) end,
            'h17 of block 3, which step 3 (Fe 3) is first about, is sum there', "there, and here linear of '5.a'")
        helper.refused(nil, function() wane.plan(make(3), { policy = policy.recipe(text) }) end,
            'h13 of block 2, which step 2 (F 2) is first about')
        local bare = policy.recipe(text:gsub('(block %d: h%d+%-h%d+)[^\n]*', '%1')) -- without ops, blocks alone say it
        assert.equal(text:match '\n(F 1.*)$', tostring(wane.plan(fn, { policy = bare }):recipe()):match '\n(F 1.*)$')
        helper.refused(nil, function() wane.plan(make(5), { policy = bare }) end,
            'of 17 values, and the forward here computes 21: h18 is gelu')
    end)

    it('where the text is none, by line', function()
        local function malformed(bad, ...)
            helper.refused('value', function() policy.recipe(bad) end, ...)
        end
        malformed('block 1: h1-h4\nFee 1', 'line 2', "'Fee' is no step", "'Fe'")
        malformed('block 2: h1-h4\nF 1', 'line 1', 'block 1 is next')
        malformed('block 1: h2-h4\nF 1', 'line 1', 'it must begin at h1')
        malformed('block 1: h1-h2 linear\nF 1', 'line 1', 'block 1 has 2 values and 1 ops')
        malformed('block 1: h1-h2 as 1\nF 1', 'line 1', "'as 1'")
        malformed('block 1: h1-h2\n\nFe 1: g1', 'line 3', "'g1' is no value")
        malformed('block 1: h1-h2\nFe one', 'line 2', "expected a step such as 'F 3'")
        malformed('block 1: h1-h2\nB 1: h2', 'line 2', 'B takes no values')
        malformed('block one', 'line 1', "expected a block such as")
        malformed('block 1: h1-h2\nFe 1: h1 shave', 'line 2', "'shave'", "'save'")
        malformed('', 'expected lines of blocks and of steps')
        malformed(7, 'got 7')
        malformed({ blocks = {}, steps = 3 }, 'expected a recipe')
        malformed({ blocks = { { first = 1, last = 2 } }, steps = { { what = 'Fe', block = 'x' } } }, 'line 2')
    end)

    it('beside another opinion, and on a part of a model', function()
        local p = policy.recipe(text)
        helper.refused(nil, function() policy.compose(policy.by_op { gelu = 'save' }, p) end, 'alone, not with')
        helper.refused(nil, function() wane.plan(fn, { policy = p, budget = '1 GiB' }) end, 'alone, not with')
        m[2]:checkpoint(p)
        helper.refused(nil, function() wane.plan(fn) end,
            "a recipe covers the whole step, and this one is given to '2'")
        m[2]:checkpoint('save_all')
        m:checkpoint(p)
        helper.refused(nil, function() wane.plan(fn) end, "save_all of '2' has an opinion before recipe")
        m[2]:checkpoint(false)
        assert.equal(text, tostring(wane.plan(fn):recipe()))
        m:checkpoint(false)
    end)
end)

describe('an allocation that fails while a recipe is planned', function()
    it('is an error, and the next try gives the plan', function()
        local fn = make(3)
        local p = policy.recipe(wane.plan(fn, { policy = 'every(2)' }))
        local want, n = wane.plan(fn, { policy = p }).peak, 0
        while true do
            n = n + 1
            forget()
            local ok, e, fired = programs.failing(n, wane.plan, fn, { policy = p })
            assert.equal(ok, not fired, 'allocation ' .. n)
            if ok then break end
            assert.equal('oom', e.code)
        end
        assert(n > 10, n)
        assert.equal(want, wane.plan(fn, { policy = p }).peak)
    end)
end)
