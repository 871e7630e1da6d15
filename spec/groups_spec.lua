-- Checks the blocks of a graph whose data is computed beside the model, and plan:by: every residual is in one group,
-- with the bytes that the plan does with it, so that the sums of every grouping are the plan's own numbers to the byte,
-- on random networks under every kind of policy.
local helper = require 'spec.helper'
local networks = require 'spec.support.networks'
local wane = helper.wane
local nn, policy = wane.nn, wane.policy

local WORDS = { 'type', 'path', 'op', 'name', 'block' }
local columns = { 'saved', 'dropped', 'moved', 'compressed' }
local column_of = { save = 'saved', recompute = 'dropped' }

-- Returns the bytes by column that plan:residuals() has, of the residuals for which test(r) holds.
local function bytes_of(plan, test)
    local sums = { saved = 0, dropped = 0, moved = 0, compressed = 0 }
    for _, r in ipairs(plan:residuals()) do
        local column = column_of[r.word] or r.word:find '^compress' and 'compressed' or 'moved'
        if test(r) then sums[column] = sums[column] + r.bytes end
    end
    return sums
end

local function check_sums(plan)
    assert.truthy(tostring(plan):find(tostring(plan:by 'block'), 1, true))
    local all = bytes_of(plan, function() return true end)
    for _, word in ipairs(WORDS) do
        local by = plan:by(word)
        local bytes, again, seen = 0, 0, {}
        for _, column in ipairs(columns) do
            local sum = 0
            for _, row in ipairs(by.rows) do sum = sum + row[column] end
            assert.equal(all[column], sum, word .. ' ' .. column)
            assert.equal(sum, by.total[column])
        end
        for _, row in ipairs(by.rows) do
            assert.is_nil(seen[row.name], row.name)
            seen[row.name] = true
            bytes, again = bytes + row.bytes, again + row.recomputed
            assert.equal(row.bytes, row.saved + row.dropped + row.moved + row.compressed)
        end
        assert.equal(plan.activation_bytes, bytes)
        assert.equal(plan.residual_count, by.total.values)
        assert.equal(plan.recomputed, again)
        assert.equal(again, by.total.recomputed)
    end
end

-- Returns a model of two blocks with an attention and an MLP each, and its input.
local function transformer()
    local Block = nn.module('Block', function(self, d)
        self.norm, self.attn, self.mlp = nn.LayerNorm(d), nn.Attention(d, 2), nn.MLP(d, 4 * d)
    end)
    function Block:forward(x)
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)
    end
    local model, x = nn.Sequential { Block(16), Block(16) }, wane.eval(wane.randn(2, 8, 16))
    return function() return model(x):named 'out':sum() end
end

-- Returns the step of a model; its data is held before it, or computed by the step itself: before the model, among its
-- layers (a mask) and behind it (labels).
local function step_of(is_held)
    wane.manual_seed(11)
    local layers, mask = {}, nil
    local Masked = nn.module('Masked', function(self) self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16) end)
    function Masked:forward(x) return x + self.down((self.up(x) * mask):relu()) end
    for i = 1, 6 do layers[i] = Masked() end
    local model = nn.Sequential(layers)
    local ready = is_held and wane.eval or function(...) return ... end
    local function data()
        return ready(wane.randn(64, 16) * 2), ready(wane.rand(64, 32):lt(0.5):to 'f32'), ready(wane.randint(16, { 64 }))
    end
    local x, labels
    if is_held then x, mask, labels = data() end
    return function()
        wane.manual_seed(5)
        if not is_held then x, mask, labels = data() end
        return nn.cross_entropy(model(x), labels)
    end
end

describe('the blocks of a model', function()
    local function paths_of(plan)
        local list = {}
        for _, row in ipairs(plan:by('block').rows) do
            if row.name ~= '(no block)' then list[#list + 1] = row.values .. ' ' .. row.saved .. ' ' .. row.dropped end
        end
        return list
    end

    it('are the same whether its data is held or computed by the step', function()
        for _, p in ipairs { 'save_all', 'sqrt', 'every(1)' } do
            local held, made = wane.plan(step_of(true), { policy = p }), wane.plan(step_of(false), { policy = p })
            assert.equal(7, #paths_of(held)) -- the first layer reads no computed value, so a cut is in it
            assert.same(paths_of(held), paths_of(made))
            assert.equal('(no block)', made:by('block').rows[1].name)
            assert.equal(0, made:by('block').rows[1].dropped)
            assert.is_true(made:verify())
        end
    end)

    it('never hold data, and gradients keep their bits', function()
        local measure = require 'wane.plan.measure'
        local fn = step_of(false)
        for _, node in ipairs(wane.plan(fn).parts[1].program:graph()) do
            local is_data = node.op == 'normal' or node.op == 'uniform' or node.op == 'lt' or node.op == 'randint'
            if is_data then assert.equal(0, node.block, node.op) end
            if node.phase == 'forward' and node.path ~= '' and node.leaf == 0 then assert.is_true(node.block > 0) end
        end
        local want = measure.gradients(fn)
        for _, p in ipairs { 'recompute_all', 'sqrt', 'every(2)', 'binomial(1)', 'least',
            function(r) return r.block == 0 and 'recompute' or r.index % 2 == 0 and 'recompute' or 'save' end } do
            assert.equal(want, measure.gradients(fn, p), tostring(p))
            assert.is_true(wane.measure(fn, { policy = p, steps = 1, warmup = 0 }).exact)
        end
    end)

    it('are those of the script that wane new writes', function()
        local path = os.tmpname()
        os.remove(path)
        assert.equal(0, select(2, helper.shell('build/wane new ' .. path)))
        local out, code = helper.shell(('WANE_COSTS=off build/wane plan %s --depth 3'):format(path))
        os.remove(path)
        assert.equal(0, code)
        local seen = {}
        for name in out:gmatch '\n +%d+  (%d)[%w.]* ' do seen[name] = true end
        assert.same({ ['1'] = true, ['2'] = true, ['3'] = true, ['4'] = true }, seen, out)
    end)
end)

describe('plan:by', function()
    it('adds up to the plan, on random networks', function()
        local answers, met = { 'save', 'recompute', 'compress:bf16', 'offload' }, {}
        for seed = 1, 12 do
            local net = networks.make(seed)
            check_sums(wane.plan(net.loss, { policy = seed == 1 and 'least' or 'recompute_all' }))
            local plan = wane.plan(net.loss, { policy = function(r)
                local word = answers[(r.index * 7 + seed) % 5 + 1]
                local is_free = r.dtype == 'f32' and r.bytes >= 16384 or word == 'recompute'
                return is_free and word or 'save'
            end })
            check_sums(plan)
            for _, column in ipairs(columns) do met[column] = met[column] or plan:by('op').total[column] > 0 end
        end
        assert.same({ saved = true, dropped = true, moved = true, compressed = true }, met)
    end)

    it('adds up of a step of several programs, a compiled region and values of no module', function()
        local net = networks.make(3)
        local opt = wane.optim.AdamW(net.parameters, { lr = 0.01, clip_norm = 1 })
        check_sums(wane.plan(function() return opt:step(net.loss()) end, { policy = 'every(1)' }))
        local w = wane.ones(4, 4, { requires_grad = true })
        local plan = wane.plan(function()
            return wane.checkpoint(function(h) return h:matmul(w):tanh():exp() end, w):sum()
        end)
        check_sums(plan)
        assert.equal('(no module)', plan:by('type').rows[1].name)
        assert.is_true(plan:by('op').total.dropped > 0)
    end)

    it('groups by what policies decide', function()
        local loss = transformer()
        local plan = wane.plan(loss, { policy = policy.by_type { Attention = 'recompute', MLP = 'compress:bf16' } })
        check_sums(plan)
        local rows = {}
        for _, row in ipairs(plan:by('type').rows) do rows[row.name] = row end
        assert.equal(rows.Attention.bytes, rows.Attention.dropped)
        assert.is_true(rows.Attention.dropped > 0 and rows.MLP.compressed > 0)
        assert.equal(rows.MLP.bytes, rows.MLP.compressed)
        assert.equal(0, rows.Block.dropped + rows.Block.compressed)
        local plan_by_path = wane.plan(loss, { policy = policy.by_path { { '^2%.mlp', 'recompute' } } })
        for _, row in ipairs(plan_by_path:by('path').rows) do
            assert.equal(row.name:find '^2%.mlp' and row.bytes or 0, row.dropped, row.name)
        end
        for _, row in ipairs(plan:by('name').rows) do
            if row.name ~= '(no name)' then
                assert.equal('out', row.name)
                assert.same(row.saved, bytes_of(plan, function(r) return r.name == 'out' end).saved)
            end
        end
    end)

    it('shortens paths, in the order of the forward', function()
        local plan = wane.plan(transformer(), { policy = 'every(1)' })
        local names = {}
        for i, row in ipairs(plan:by('path', { depth = 1 }).rows) do names[i] = row.name end
        assert.same({ '1', '2' }, names)
        assert.equal(plan.activation_bytes, plan:by('path', { depth = 2 }).total.bytes)
        assert.matches('1%.attn', tostring(plan:by('path', { depth = 2 })))
    end)

    it('prints sums, and columns for what is there', function()
        local text = tostring(wane.plan(transformer()):by 'type')
        assert.matches('^type +values +saved +dropped +recomputed\n', text)
        assert.matches('\nAttention +%d+ +[%d.]+ KiB', text)
        assert.matches('\nall +%d+ +[%d.]+ KiB', text)
        local layers, x = {}, wane.eval(wane.randn(2, 4))
        for i = 1, 60 do layers[i] = nn.Linear(4, 4) end
        local model = nn.Sequential(layers)
        text = tostring(wane.plan(function() return model(x):sum() end):by 'path')
        assert.matches('\n%.%.%. %d+ more\n', text)
        assert.matches('\n59 ', text)
    end)

    it('refuses other words and options, at the line that gave them', function()
        local plan = wane.plan(transformer())
        for want, call in pairs {
            ["did you mean 'type'"] = function() plan:by 'types' end,
            ['got nil; known: type, path, op, name, block'] = function() plan:by() end,
            ['got a table'] = function() plan:by {} end,
            ['depth shortens paths'] = function() plan:by('op', { depth = 1 }) end,
            ['depth must be a whole number'] = function() plan:by('path', { depth = 0 }) end,
            ["unknown option 'dept'"] = function() plan:by('path', { dept = 1 }) end,
        } do
            local why = helper.refused('value', function() call() end)
            assert.is_truthy(why.message:find(want, 1, true), why.message)
            assert.matches('^spec/groups_spec.lua:%d+$', why.where)
        end
    end)
end)
