-- Checks policies: precedence, units, ownership of values, decisions, and errors for what matches nothing.
local helper = require 'spec.helper'
local wane = helper.wane
local nn, policy = wane.nn, wane.policy

local Block = nn.module('Block', function(self, d)
    self.a = nn.Linear(d, d)
    self.act = nn.GELU()
    self.b = nn.Linear(d, d)
end)
function Block:forward(x) return x + self.b(self.act(self.a(x))) end

local Net = nn.module('Net', function(self, d, n)
    self.blocks = {}
    for i = 1, n do self.blocks[i] = Block(d) end
    self.head = nn.Linear(d, 1)
end)
function Net:forward(x)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.head(x)
end

local function make(n)
    wane.manual_seed(3)
    local model = Net(8, n or 4)
    local x = wane.randn(5, 8)
    return model, function() return model(x):sum() end
end

-- Returns the decision of every residual of a plan, by 'path op'.
local function words(fn, opts)
    local out = {}
    for _, r in ipairs(wane.plan(fn, opts):residuals()) do out[r.path .. ' ' .. r.op] = r.word end
    return out
end

local function count(map, word)
    local n = 0
    for _, w in pairs(map) do n = n + (w == word and 1 or 0) end
    return n
end

describe('a policy function', function()
    it('is asked once per residual, with a description, and its words are obeyed', function()
        local model, fn = make(2)
        local asked = {}
        local p = function(r)
            asked[#asked + 1] = r
            return r.op == 'gelu' and 'recompute' or nil
        end
        local got = words(fn, { policy = p })
        assert.equal('recompute', got['blocks.1.act gelu'])
        assert.equal('recompute', got['blocks.2.act gelu'])
        assert.equal(2, count(got, 'recompute'))
        local seen = {}
        for i, r in ipairs(asked) do
            assert.equal(i, r.index)
            assert.is_nil(seen[r.path .. r.op])
            seen[r.path .. r.op] = true
            assert.is_true(r.bytes > 0 and r.readers >= 1 and r.block >= (r.path == '' and 0 or 1))
            assert.equal('f32', r.dtype)
            assert.equal('table', type(r.shape))
        end
        assert.equal(#asked, wane.plan(fn):residuals()[#asked].index)
        assert.is_not_nil(model)
    end)

    it('is found again without being asked again', function()
        local _, fn = make(2)
        local calls = 0
        local p = policy.of(function() calls = calls + 1 end)
        wane.plan(fn) -- gradients get their places in a slab: part of what a plan is found by
        wane.plan(fn, { policy = p })
        local first = calls
        wane.plan(fn, { policy = p })
        assert.is_true(first > 0)
        assert.equal(first, calls)
    end)

    it('must answer a word; the error names the residual and near words', function()
        local _, fn = make(1)
        helper.refused(nil, function() wane.plan(fn, { policy = function() return 'recompue' end }) end,
            "'recompue'", "did you mean 'recompute'", 'residual 1')
    end)

    it('that fails is an error naming the residual it was asked about', function()
        local _, fn = make(1)
        helper.refused(nil, function() wane.plan(fn, { policy = function(r) return r.nothing.more end }) end,
            'asked about residual 1')
    end)

    it('must not record or read', function()
        local _, fn = make(1)
        local t = wane.ones(2)
        helper.refused(nil, function() wane.plan(fn, { policy = function() return (t + t) and 'save' end }) end,
            'not record or read')
        helper.refused(nil, function()
            wane.plan(fn, { policy = function() return t:sum():item() > 0 and 'save' end })
        end, 'not record or read')
        assert.equal(4, (t + t):sum():item()) -- and afterwards everything works
    end)
end)

describe('by_type, by_op, by_name, by_path', function()
    it('give a returned value to the caller', function()
        local _, fn = make(2)
        local got = words(fn, { policy = policy.by_type { Block = 'recompute' } })
        assert.equal('recompute', got['blocks.1.act gelu'])
        assert.equal('recompute', got['blocks.1.a linear'])
        assert.equal('save', got['blocks.1 add']) -- what Block returns belongs to Net
    end)

    it('let the innermost listed type decide', function()
        local _, fn = make(2)
        -- gelu's result is returned by GELU to Block, so Linear's word does not reach it
        local got = words(fn, { policy = policy.by_type { Net = 'recompute', Block = 'save' } })
        assert.equal('save', got['blocks.1.act gelu'])
        assert.equal('recompute', got['blocks.1 add'])
    end)

    it('follow default and no default', function()
        local model, fn = make(2)
        local some = words(fn, { policy = policy.by_op { gelu = 'recompute' } })
        assert.equal(2, count(some, 'recompute'))
        local all = words(fn, { policy = policy.by_op { gelu = 'save', default = 'recompute' } })
        assert.equal('save', all['blocks.1.act gelu'])
        assert.equal('recompute', all['blocks.2.a linear'])
        assert.is_not_nil(model)
    end)

    it('match names and paths', function()
        local x = wane.randn(4, 4, { requires_grad = true })
        local function fn() return x:gelu():named('mid'):gelu():sum() end
        local plan = wane.plan(fn, { policy = policy.by_name { mid = 'recompute' } })
        assert.equal(1, plan.recomputed)
        local _, net = make(3)
        local got = words(net, { policy = policy.by_path { { 'blocks%.2%.', 'recompute' } } })
        assert.equal('recompute', got['blocks.2.act gelu'])
        assert.equal('save', got['blocks.1.act gelu'])
        assert.equal('save', got['blocks.3.act gelu'])
    end)

    it('refuse keys that match nothing, unless optional', function()
        local _, fn = make(1)
        helper.refused(nil, function() wane.plan(fn, { policy = policy.by_type { Blok = 'recompute' } }) end,
            "'Blok' matches nothing", "did you mean 'Block'")
        helper.refused(nil, function() wane.plan(fn, { policy = policy.by_op { glu = 'save' } }) end, "'gelu'")
        assert.has_error(function() wane.plan(fn, { policy = policy.by_name { nobody = 'save' } }) end)
        assert.has_error(function() wane.plan(fn, { policy = policy.by_path { { 'attn', 'save' } } }) end)
        wane.plan(fn, { policy = policy.by_type { Blok = 'recompute', optional = true } })
        wane.plan(fn, { policy = policy.by_op { all_gather = 'save' } }) -- of a script that runs on many ranks, too
    end)

    it('refuse unknown words when made', function()
        helper.refused(nil, function() policy.by_op { gelu = 'sav' } end, "did you mean 'save'")
    end)
end)

describe('units', function()
    local function sequential(n)
        wane.manual_seed(5)
        local list = {}
        for i = 1, n do list[i] = Block(8) end
        local model = nn.Sequential(list)
        local x = wane.randn(4, 8, { requires_grad = true })
        return model, function() return model(x):sum() end
    end
    -- Returns the units (first part of the path) in which the gelu is recomputed.
    local function dropped(fn, opts)
        local list = {}
        for _, r in ipairs(wane.plan(fn, opts):residuals()) do
            if r.op == 'gelu' and r.word == 'recompute' then list[#list + 1] = tonumber(r.path:match('(%d+)')) end
        end
        return list
    end

    it('are the children of a Sequential', function()
        local model, fn = sequential(7)
        assert.same({ 1, 2, 3, 4, 5, 6, 7 }, dropped(fn, { policy = 'every(3)' }))
        assert.same({ 1, 2, 3, 4 }, dropped(fn, { policy = 'segments(3)' })) -- 2 + 2, 3 kept
        assert.same({}, dropped(fn, { policy = 'segments(1)' }))
        assert.same({ 1, 2, 3, 4 }, dropped(fn, { policy = 'sqrt' })) -- round(sqrt 7) = 3
        assert.same({ 1, 2, 3, 4, 5 }, dropped(fn, { policy = 'keep_last(2)' }))
        assert.same({ 1, 2, 3, 4, 5, 6, 7 }, dropped(fn, { policy = 'recompute_all' }))
        assert.is_not_nil(model)
    end)

    it('are the members of a list of modules', function()
        local _, fn = make(5)
        assert.same({ 1, 2 }, dropped(fn, { policy = 'segments(2)' }))
    end)

    it('keep the edges of regions only', function()
        local _, fn = sequential(6)
        local got = words(fn, { policy = 'every(2)' })
        assert.equal('save', got['2 add'])
        assert.equal('save', got['4 add'])
        assert.equal('recompute', got['1 add'])
        assert.equal('recompute', got['3 add'])
    end)

    it('refuse more segments than units', function()
        local _, fn = sequential(3)
        helper.refused(nil, function() wane.plan(fn, { policy = 'segments(4)' }) end, '4 segments of 3 units')
    end)

    it('are blocks where there is no list', function()
        local a, b = nn.Linear(8, 8), nn.Linear(8, 8)
        local x = wane.randn(4, 8, { requires_grad = true })
        local function fn() return b(a(x):gelu():tanh()):gelu():tanh():sum() end
        assert.is_true(wane.plan(fn, { policy = 'recompute_all' }).recomputed > 0)
        assert.equal(0, wane.plan(fn, { policy = 'save_all' }).recomputed)
    end)
end)

describe('precedence', function()
    it('is: the call, inner module, outer module, default, marks', function()
        local model, fn = make(3)
        model:checkpoint('recompute_all')
        local got = words(fn)
        assert.equal('recompute', got['blocks.1.act gelu'])
        model.blocks[2]:checkpoint(policy.by_op { gelu = 'save', optional = true })
        got = words(fn)
        assert.equal('save', got['blocks.2.act gelu'])
        assert.equal('recompute', got['blocks.1.act gelu'])
        assert.equal(0, count(words(fn, { policy = 'save_all' }), 'recompute'))
        model:checkpoint(false)
        model.blocks[2]:checkpoint(false)
        assert.equal(0, count(words(fn), 'recompute'))
    end)

    it('lets inner units replace outer ones', function()
        local model, fn = make(3)
        model:checkpoint('every(1)')
        model.blocks[2]:checkpoint('save_all')
        local got = words(fn)
        assert.equal('recompute', got['blocks.1.act gelu'])
        assert.equal('save', got['blocks.2.act gelu'])
        assert.equal('recompute', got['blocks.3.act gelu'])
    end)

    it('asks the default last', function()
        local _, fn = make(2)
        policy.default = 'recompute_all'
        local fine, why = pcall(function()
            assert.is_true(count(words(fn), 'recompute') > 0)
            local got = words(fn, { policy = function(r) return r.op == 'gelu' and 'save' or nil end })
            assert.equal('save', got['blocks.1.act gelu'])
            assert.equal('recompute', got['blocks.1.a linear'])
        end)
        policy.default = nil
        assert.is_true(fine, tostring(why))
        assert.equal(0, count(words(fn), 'recompute'))
    end)

    it('lets save_all win over marked regions, and no opinion leave them', function()
        local x = wane.randn(4, 4, { requires_grad = true })
        local function fn() return wane.checkpoint(function(v) return v:gelu():gelu():gelu() end, x):sum() end
        assert.is_true(wane.plan(fn).recomputed > 0)
        assert.is_true(wane.plan(fn, { policy = function() end }).recomputed > 0)
        assert.equal(0, wane.plan(fn, { policy = 'save_all' }).recomputed)
    end)

    it('composes: the first with an opinion', function()
        local _, fn = make(2)
        local p = policy.compose(policy.by_op { gelu = 'save' }, 'recompute_all')
        local got = words(fn, { policy = p })
        assert.equal('save', got['blocks.1.act gelu'])
        assert.equal('recompute', got['blocks.1.a linear'])
    end)
end)

describe('what is decided', function()
    it('is compared with that of another plan', function()
        local _, fn = make(4)
        local plan = wane.plan(fn, { policy = 'segments(2)' })
        assert.equal(0, plan:diff(wane.plan(fn, { policy = plan })).changed)
        assert.is_true(plan:diff(wane.plan(fn, { policy = 'save_all' })).changed > 0)
    end)

    it('is what strings say; the same string is the same policy', function()
        assert.equal(policy.of('every(4)'), policy.of('every(4)'))
        helper.refused(nil, function() policy.of 'evry(4)' end, "'every(4)'")
        assert.has_error(function() policy.of('every(0)') end)
        assert.has_error(function() policy.of(7) end)
    end)
end)

describe('binomial', function()
    local measure = require 'wane.plan.measure'

    local function chain(units)
        local layers = {}
        for i = 1, units do layers[i] = nn.MLP(8, 8) end
        local m, x = nn.Sequential(layers), wane.eval(wane.randn(64, 8))
        return function() return m(x):sum() end
    end

    local function choose(n, k)
        local c = 1
        for i = 1, k do c = c * (n - k + i) / i end
        return math.floor(c + 0.5)
    end

    -- Returns the forward steps that l steps take with c checkpoints, the input's among them, by Griewank and Walther:
    -- r l - C(c + r, c + 1), r being the least number of runs with C(c + r, c) >= l.
    local function revolve(l, c)
        local r = 0
        while choose(c + r, c) < l do r = r + 1 end
        return r * l - choose(c + r, c + 1)
    end

    it('runs as many units forward as revolve does, with equal gradients', function()
        for _, l in ipairs { 2, 5, 12 } do
            local fn = chain(l)
            local want = measure.gradients(fn, 'save_all')
            for slots = 0, 4 do
                local name = ('binomial(%d)'):format(slots)
                local p = wane.plan(fn, { policy = name })
                local _, forwards = tostring(p:recipe()):gsub('F %d+', '')
                assert.equal(revolve(l, math.min(slots, l - 1) + 1), forwards, ('%d units, %s'):format(l, name))
                assert.equal(want, measure.gradients(fn, name))
            end
        end
    end)

    it('takes fewer bytes and more time the fewer slots there are', function()
        local fn, before = chain(12), nil
        for slots = 0, 11 do
            local p = wane.plan(fn, { policy = policy.binomial(slots) })
            if before then assert(p.peak >= before.peak and p.recomputed <= before.recomputed) end
            assert.is_true(wane.measure(fn, { policy = p, steps = 1, warmup = 0 }).exact)
            before = p
        end
        -- A value is freed once: regions as deep as their units are many take no more steps than they run units.
        local _, forwards = tostring(wane.plan(chain(60), { policy = 'binomial(0)' }):recipe()):gsub('F %d+', '')
        local _, frees = tostring(wane.plan(chain(60), { policy = 'binomial(0)' }):recipe()):gsub('Free %d+', '')
        assert(forwards >= 60 * 59 / 2 and frees < 2 * forwards, forwards .. ' forwards, ' .. frees .. ' frees')
        assert.has_error(function() policy.binomial(-1) end)
        assert.has_error(function() policy.binomial(1.5) end)
        assert.has_error(function() wane.plan(fn, { policy = 'binomial(2)' }):pytorch() end)
    end)
end)

describe('a policy made anew at every step', function()
    -- Returns how many closures are alive after a collection, of 20 that `use` was given one after the other.
    local function alive_after(use)
        local seen, list = setmetatable({}, { __mode = 'k' }), 0
        for i = 1, 20 do
            local fn = function() return i % 2 == 0 and 'save' or 'recompute' end
            seen[fn] = true
            use(fn)
        end
        jit.flush() -- a compiled trace holds the closures that it was recorded with
        for _ = 1, 4 do collectgarbage() end
        for _ in pairs(seen) do list = list + 1 end
        return list
    end

    it('is freed with the closure it was made of, wherever one can be given', function()
        local _, fn = make(1)
        for name, use in pairs {
            backward = function(p) fn():backward { policy = p } end,
            budget = function(p) fn():backward { policy = p, budget = 1e9 } end,
            plan = function(p) wane.plan(fn, { policy = p }) end,
            compose = function(p) policy.compose(p, 'save_all') end,
            default = function(p)
                policy.default = p
                fn():backward()
                policy.default = nil
            end,
        } do
            assert.equal(0, alive_after(use), name)
        end
    end)

    it('takes fewer than 200 bytes that stay', function()
        for _ = 1, 4 do collectgarbage() end
        local before = collectgarbage 'count'
        for i = 1, 10000 do policy.of(function() return i end) end
        for _ = 1, 4 do collectgarbage() end
        assert.is_true((collectgarbage 'count' - before) * 1024 / 10000 < 200)
    end)

    it('is the same object while it lives, and has the same number when it is made again', function()
        local fn = function() return 'save' end
        local first = policy.of(fn)
        assert.equal(first, policy.of(fn))
        local serial = first.serial
        first = nil -- luacheck: ignore
        for _ = 1, 4 do collectgarbage() end
        policy.of(function() return 'recompute' end)
        assert.equal(serial, policy.of(fn).serial)
        assert.is_true(policy.of(function() end).serial > serial)
    end)
end)
