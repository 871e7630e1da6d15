-- Checks how ranks have parameters, gradients and states: wane.dist.place, and what scripts do with them by hand.
local helper = require 'spec.helper'
local mpi = require 'spec.support.mpi'

local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

-- Prints which share of the states of AdamW for GPT-2 774M one rank of some has, times their number.
local STATES = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local n = tonumber(arg[1])
wane.dist.ghost { ranks = n, rank = tonumber(arg[2]), link = { { 8, 370e9 }, { n, 50e9 } } }
local list, d, own, all = {}, 1280, 0, 0
local function add(...)
    for _, dims in ipairs { ... } do list[#list + 1] = wane.nn.Parameter(wane.zeros(dims, { device = 'meta' })) end
end
add({ 50257, d }, { 1024, d }, { d }, { d })
for _ = 1, 36 do
    add({ d }, { d }, { 3 * d, d }, { 3 * d }, { d, d }, { d }, { d }, { d })
    add({ 4 * d, d }, { 4 * d }, { d, 4 * d }, { d })
end
for _, cell in pairs(wane.optim.AdamW(list):state_dict().cells) do own = own + cell:numel() end
for _, p in ipairs(list) do all = all + 2 * p:numel() end
io.write(own / all * n, '\n')
]]

-- Makes the frontier of a step of 1,024 ranks on meta, and takes some of its points.
local WORDS = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local binding, tensor = require 'wane.ffi', require 'wane.tensor'
wane.set_device 'meta'
wane.dist.ghost { ranks = 1024, rank = 700, link = { { 8, 370e9 }, { 1024, 50e9 } } }
local small = { vocab = 5000, context = 256, layers = 3, heads = 4, d = 256 }
local model = require('wane.zoo.' .. arg[1]).new(arg[2] or small)
local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
local x, y = wane.randint(100, { 1024, 64 }), wane.randint(100, { 1024, 64 })
local function step()
    return opt:step(function(i)
        return wane.nn.cross_entropy(model(x:narrow(1, i, 1)), y:narrow(1, i, 1))
    end, { micro = 1024 })
end
local function ranges()
    local list = {}
    for k, p in ipairs(opt:parameters()) do
        list[k] = table.concat({ tostring(tensor.range(p)), select(2, tensor.range(p)), tostring(tensor.is_sharded(p)),
            opt:state_dict().cells['m.' .. k]:numel() }, ' ')
    end
    return table.concat(list, ', ')
end
local began, before = os.clock(), ranges()
local all = wane.frontier(step, { points = 12, target = 'h200' })
local seconds = os.clock() - began
assert(before == ranges())
assert(tostring(all):find(all[1].word .. ': ', 1, true))
local words, last = {}, nil
for _, q in ipairs(all.all) do
    words[q.word] = (words[q.word] or 0) + 1
    assert(not last or q.seconds >= last.seconds and q.reserved < last.reserved)
    last = q
end
for _, q in ipairs(all) do
    if q == all[1] or q == all[#all] or q.word ~= 'slice' then
        wane.dist.place(model, opt, q.word)
        local plan = wane.plan(step, { budget = q.reserved, target = 'h200' })
        assert(plan.reserved == q.reserved and plan.seconds == q.seconds, q.name)
    end
end
-- A budget chooses the fastest point within it; one byte less than the least is refused, and nothing changes.
wane.dist.place(model, opt, 'slice')
for i, q in ipairs { all.here, all[#all] } do
    local target, want = i == 1 and 'h200' or nil, nil
    for _, each in ipairs(wane.frontier(step, { target = target }).all) do
        want = want or each.reserved <= q.reserved and each
    end
    local word, plan = wane.dist.place(model, opt, { budget = q.reserved, step = step, target = target })
    assert(word == want.word and plan.seconds == want.seconds and plan.reserved == want.reserved)
    assert(wane.plan(step, { budget = q.reserved, target = target }).seconds == want.seconds)
end
before = ranges()
local least = wane.frontier(step).all
local ok, why = pcall(wane.dist.place, model, opt, { budget = least[#least].reserved - 1, step = step })
assert(not ok and why.code == 'budget' and why.min_budget == least[#least].reserved and before == ranges(), why)
assert(tostring(why):find("under 'shard' rank 700 needs", 1, true), tostring(why))
local memory = tonumber(io.open('/proc/self/status'):read('*a'):match 'VmHWM:%%s+(%%d+)') / 1024
print(words.slice or 0, words.shard or 0, seconds, memory)
]]

describe('states in ranges', function()
    it('are 1 / n of those of one process, each', function()
        local file = assert(io.open(SCRIPT, 'w'))
        file:write(STATES:format(helper.root, helper.root))
        file:close()
        for n, most in pairs { [8] = 1.01, [1024] = 1.05 } do
            for _, rank in ipairs { 0, n / 2 + 1, n - 1 } do
                local share = tonumber((helper.shell(('luajit %s %d %d'):format(SCRIPT, n, rank))))
                assert.is_true(share > 0.98 and share <= most, share)
            end
        end
    end)

    it('are of the word that a point of the joined frontier names, or a budget chooses', function()
        local rows = helper.is_long and { { 'gpt2', '' }, { 'gpt2', '774M' }, { 'llama', '7B' } } or { { 'gpt2', '' } }
        for _, row in ipairs(rows) do
            local file = assert(io.open(SCRIPT, 'w'))
            file:write((WORDS:format(helper.root, helper.root)))
            file:close()
            local text, code = helper.shell(('luajit %s %s %s'):format(SCRIPT, row[1], row[2]))
            assert.equal(0, code, text)
            local slice, shard, seconds, memory = text:match '(%d+)%s+(%d+)%s+(%S+)%s+(%S+)%s*$'
            assert.is_true(tonumber(slice) > 0 and tonumber(shard) > 0, text)
            assert.is_true(tonumber(seconds) < 20 and tonumber(memory) < 300, text)
        end
    end)

    it('have squares that are added as the op sum adds them', function()
        local binding, squares = require 'wane.ffi', require 'wane.optim.squares'
        for _, n in ipairs { 1, 15, 16, 17, 1000, 16384, 40001, 200003 } do
            local x = helper.wane.eval(helper.wane.randn(n):to 'f64')
            local raw = require('wane.tensor.read').raw(x)
            assert.equal(x:sum():item(), squares.sum(binding.new('double *', raw), n))
        end
    end)
end)

mpi.describe(describe, pending, function(kind)
    it('train random networks as one process does', function()
        local script, n = 'spec/support/ranks_random.lua . ', helper.is_long and 60 or 12
        for k, job in ipairs(helper.is_long and { { 3, 1 }, { 4, 2 }, { 7, 1 }, { 6, 3 } } or { { 4, 2 } }) do
            local seeds, want = ('1 %d '):format(n), {}
            if helper.is_long then seeds = ('%d %d '):format(k * n - n + 1, k * n) end
            local text = helper.shell('WANE_THREADS=1 luajit ' .. script .. seeds)
            for line in text:gmatch '0> ([^\n]*)' do want[#want + 1] = line end
            assert.equal(n, #want, text)
            for _, line in ipairs(want) do assert.matches(' exact$', line) end
            local lines, code, _, printed = mpi.command(kind, job[1], script .. seeds .. job[2])
            assert.equal(0, code, printed)
            for r = 0, job[1] - 1 do assert.same(want, lines[r]) end
        end
    end)

    it('do what scripts do with optimizers by hand as one process does', function()
        local habits, want = 'spec/support/ranks_habits.lua . ', {}
        local text = helper.shell('WANE_THREADS=1 luajit ' .. habits)
        for line in text:gmatch '0> ([^\n]*)' do want[#want + 1] = line end
        assert.is_true(#want >= 9, text)
        for _, line in ipairs(want) do assert.matches('%x%x%x%x%x$', line) end
        for _, job in ipairs(helper.is_long and { { 2, 1, 'keep' }, { 3, 1, 'shard' }, { 7, 1, 'slice' },
            { 6, 3, 'shard' } } or { { 4, 2, 'shard' } }) do
            local lines, code, _, printed = mpi.command(kind, job[1], habits .. job[2] .. ' ' .. job[3])
            assert.equal(0, code, printed)
            for r = 0, job[1] - 1 do assert.same(want, lines[r]) end
        end
    end)

    it('say of a gradient in ranges what it is, and place the states of parameters as all of them say', function()
        local lines, code, _, text = mpi.run(kind, 2, [[
            local model = wane.nn.Sequential { wane.nn.Linear(64, 100), wane.nn.Linear(100, 8) }
            local opt = wane.optim.Adam(model:parameters(), { lr = 0.1 })
            local x = wane.eval(wane.randn(4, 64))
            local function accumulate()
                wane.accumulate(function(i) return model(x:narrow(1, i, 1)):sum() end, { micro = 4 })
            end
            say('%s', tostring(model[1].weight.grad))
            for _, word in ipairs { 'slices', 3, { ['3'] = 'keep' }, { ['1'] = 'whole' } } do
                try(dist.place, model, opt, word)
            end
            try(dist.place, model, opt, dist.rank == 0 and 'keep' or 'slice')
            dist.place(model, opt, { ['1.weight'] = 'keep', ['2'] = 'slice' })
            accumulate()
            try(function() return model[2].weight.grad end)
            say('%s', tostring(model[1].weight.grad.shape))
            try(dist.place, model, opt, 'keep')
            opt:step()
            opt:zero_grad()
            try(dist.place, model, opt, 'keep')
            local sizes = {}
            for k = 1, 4 do sizes[k] = opt:state_dict().cells['m.' .. k]:numel() end
            say('%s', table.concat(dist.gather(wane.tensor(sizes)):sum(1):totable(), ' '))
            accumulate()
            opt:step()
            opt:zero_grad()
            local norm = wane.nn.BatchNorm2d(2)
            local trained = wane.optim.SGD(norm:parameters(), { lr = 0.1 })
            try(function()
                trained:step(function(i) return norm(wane.ones(1, 2, i, 2)):sum() end, { micro = 4, partial = 2 })
            end)]])
        assert.equal(0, code, text)
        local words = { 'nil', "^value: .*'slice', 'keep', a table { %[path%] = word } or { budget =, step = }",
            '^value: .*expected',
            "^value: .*'3' names no parameter", "^value: .*expected 'shard', 'slice'",
            '^value: .*rank 1 is at another call than rank 0: wane.dist.place of 4 parameters: llll',
            '^value: .*each rank has the gradient of a range of %(8, 100%) f32 alone', '^%(100, 64%)$',
            '^value: .*has a gradient; call zero_grad%(%) before', '^value: .*has made 1 steps of parameter 1',
            '^12800 100 800 8$',
            '^unsupported: .*the micro%-batches of a partial sum change .*running_var in different ways' }
        for r = 0, 1 do
            for k, word in ipairs(words) do assert.matches(word, lines[r][k]) end
        end
    end)

    it('are checked byte by byte, where their exchanges start and are waited for at other places', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            require('wane.ffi').C.wn_debug('check', 1)
            local nn, policy = wane.nn, nil
            local net = nn.Sequential { nn.Linear(64, 128), nn.GELU(), nn.MLP(128, 512), nn.Linear(128, 64) }
            local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01 })
            dist.place(net, opt, { ['1'] = 'slice', ['3'] = 'keep', ['4'] = 'slice' })
            local x = wane.eval(wane.randn(12, 64))
            local function step()
                return opt:step(function(i) return net(x:narrow(1, i, 1)):pow(2):mean() end, { micro = 12,
                    partial = 6, policy = policy })
            end
            local text = tostring(wane.plan(step):recipe())
            policy = wane.policy.recipe(('%s\nahead %d\n'):format(text, dist.rank * 4 % 9))
            for _ = 1, 2 do say('%.9g', step():item()) end]])
        assert.equal(0, code, text)
        assert.is_true(#lines[0] == 2 and lines[0][1] ~= lines[0][2], text)
        for r = 1, 2 do assert.same(lines[0], lines[r]) end
    end)

    it('make first values of their ranges alone, with the bits of the whole', function()
        local script, want = 'spec/support/ranks_first.lua . ', {}
        local text = helper.shell('WANE_THREADS=1 luajit ' .. script .. '0')
        for line in text:gmatch '0> ([^\n]*)' do want[#want + 1] = line end
        assert.equal(8, #want, text)
        for _, job in ipairs(helper.is_long and { { 3, 1 }, { 4, 2 }, { 7, 1 } } or { { 4, 2 } }) do
            -- 6 matrices of 131,072 bytes are the model. A whole one of f32 beside the ranges would be too large.
            local lines, code, _, printed = mpi.command(kind, job[1], ('%s%d %d'):format(script,
                6 * 131072 / job[1] + 2 * 131072 + 65536, job[2]))
            assert.equal(0, code, printed)
            for r = 0, job[1] - 1 do assert.same(want, lines[r]) end
        end
    end)

    it('gather the parameters that they have in ranges wherever a script reads them', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            local net = wane.nn.Sequential { wane.nn.Linear(64, 300), wane.nn.GELU(), wane.nn.Linear(300, 100) }
            local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01 })
            local w, x = net[1].weight, wane.eval(wane.randn(8, 64))
            local before = wane.eval(w + 0)
            dist.place(net, opt, 'shard')
            local function step(budget)
                return opt:step(function(i) return net(x:narrow(1, i, 1)):pow(2):mean() end, { micro = 8,
                    budget = budget })
            end
            say('%g', (w - before):abs():sum():item())
            step()
            try(function() return wane.nn.Parameter(w * 2):sum():item() end)
            w:assign(w * 0 + 3)
            say('%g', w:sum():item() / (300 * 64))
            try(function() if dist.is_first then return w:totable() end dist.barrier() end)
            local m = wane.measure(step, { optimizer = opt, steps = 2 })
            say('%s', tostring(m.exact and m.kinds.parameter < 4 * (300 * 64 + 300 * 100) / 2))
            try(opt.step, opt, function(i) return net(x:narrow(1, i, 1)):mean() end, { micro = 8,
                policy = dist.rank == 1 and wane.policy.by_op { all_gather = 'save' } or nil })
            try(step, 10)
            try(step, dist.rank == 2 and 10 or '1 MiB')
            opt:zero_grad()
            step '1 MiB'
            try(dist.place, net, wane.optim.SGD(net:parameters(), { lr = 0.1 }), 'keep')
            try(function() return net[1].weight.grad end)]])
        assert.equal(0, code, text)
        local words = { '^0$', '^unsupported: .*compute it before, with wane.eval', '^3$',
            'rank 1 is at another call than rank 0: barrier .* against an evaluation', '^true$',
            'rank 1 runs another step than rank 0: .*states gathered in the order %x+, by its policy against the seed',
            'rank 0: .*a budget of 10 bytes cannot be kept',
            'rank 2: .*a budget of 10 bytes .*the least that would do is',
            '^value: .*has a range of parameter 1, .* alone',
            '^fine$' }
        for r = 0, 2 do
            for k, word in ipairs(words) do assert.matches(word, lines[r][k]) end
        end
    end)

    it('read their ranges of files that have matrices transposed, or in pieces', function()
        local file, wane = os.tmpname(), helper.wane
        local f64 = { dtype = 'f64' }
        wane.save(file, { w = wane.randn(64, 700), a = wane.randn(100, 64), b = wane.randn(64, 500),
            c = wane.randn(100, 64), d = wane.randn(64, 700, f64), long = wane.randn(70000, 2),
            bad = wane.full({ 64, 700 }, 1e300, f64) })
        local lines, code, _, text = mpi.run(kind, 4, ([[
            local file = wane.load 'FILE'
            local function check(dims, dtype, rule, want)
                local net = wane.nn.Linear(dims[2], dims[1], { bias = false, dtype = dtype })
                local opt = wane.optim.SGD(net:parameters(), { lr = 0.1 })
                dist.place(net, opt, 'shard')
                try(wane.load, 'FILE', net, { cast = true, ignore = { '.' },
                    names = function() return rule end })
                if want then say('%g', (net.weight - want:to(dtype)):abs():max():item()) end
            end
            local turned = { name = 'w', transpose = true }
            check({ 700, 64 }, 'f32', turned, file.w:transpose(1, 2))
            check({ 700, 64 }, 'bf16', turned, file.w:transpose(1, 2))
            check({ 700, 64 }, 'f32', { name = 'd', transpose = true }, file.d:transpose(1, 2))
            check({ 2, 70000 }, 'f32', { name = 'long', transpose = true }, file.long:transpose(1, 2))
            check({ 700, 64 }, 'f64', { 'a', { name = 'b', transpose = true, rows = 500 }, 'c' },
                wane.cat({ file.a, file.b:transpose(1, 2), file.c }, 1))
            check({ 700, 64 }, 'f32', { name = 'bad', transpose = true })]]):gsub('FILE', file))
        os.remove(file)
        assert.equal(0, code, text)
        for r = 0, 3 do
            for k = 1, 5 do assert.same({ 'fine', '0' }, { lines[r][2 * k - 1], lines[r][2 * k] }) end
            assert.matches("^value: .*'bad'.* F64 1.*e%+300, which f32 does not hold", lines[r][11])
        end
    end)

    it('keep a budget that all can keep, whichever rank needs most, and no smaller one', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            -- Stripes are dealt on behind one of rank 0, so that rank 1 has more of them than rank 0.
            local other = wane.optim.SGD({ wane.nn.Parameter(wane.zeros(4096)) }, { lr = 1 })
            local net = wane.nn.Sequential { wane.nn.Linear(64, 300), wane.nn.GELU(), wane.nn.Linear(300, 300),
                wane.nn.GELU(), wane.nn.Linear(300, 100) }
            local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01 })
            dist.place(net, opt, 'shard')
            local x = wane.eval(wane.randn(384, 64))
            local function step()
                return opt:step(function(i) return net(x:narrow(1, 64 * i - 63, 64)):pow(2):mean() end, { micro = 6 })
            end
            local function each(bytes)
                return dist.gather(wane.tensor({ bytes }, { dtype = 'i32' })):flatten():totable()
            end
            local function try_budget(bytes)
                local plan, why = wane.plan(step, { budget = bytes })
                if not plan then return say('%s %s', why.code, tostring(why)) end
                local most, all = 0, each(plan.reserved)
                for _, reserved in ipairs(all) do most = math.max(most, reserved) end
                say('%s', tostring(most <= bytes))
            end
            local least, all = 0, each(wane.min_budget(step))
            for _, bytes in ipairs(all) do least = math.max(least, bytes) end
            say('%s', tostring(all[2] == least and all[1] < least))
            for _, more in ipairs { -1, 0, 4096, 65536 } do try_budget(least + more) end
            local m = wane.measure(step, { optimizer = opt, budget = least, steps = 2 })
            say('%s', tostring(m.exact and m.reserved <= least))]])
        assert.equal(0, code, text)
        for r = 0, 2 do
            local words = { '^true$', 'budget .*a budget of .* bytes cannot be kept', '^true$', '^true$', '^true$',
                '^true$' }
            for k, word in ipairs(words) do assert.matches(word, lines[r][k]) end
            assert.equal(#words, #lines[r])
        end
        assert.matches('rank 1: .*the least that would do is', lines[0][2])
        assert.matches('the least that would do is', lines[1][2])
    end)

    it('are of the word that keeps a budget with the fewest seconds, on the rank that needs most', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            -- Stripes are dealt on behind one of rank 0, so that rank 1 has more of them than rank 0.
            local other = wane.optim.SGD({ wane.nn.Parameter(wane.zeros(4096)) }, { lr = 1 })
            local net = wane.nn.Sequential { wane.nn.Linear(64, 300), wane.nn.GELU(), wane.nn.Linear(300, 300) }
            local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01 })
            local x = wane.eval(wane.randn(12, 64))
            local function step(budget)
                return opt:step(function(i) return net(x:narrow(1, 2 * i - 1, 2)):pow(2):mean() end, { micro = 6,
                    budget = budget })
            end
            local least = {}
            for _, word in ipairs { 'keep', 'slice', 'shard' } do
                dist.place(net, opt, word)
                least[word] = 0
                for _, bytes in ipairs(dist.gather(wane.tensor({ wane.min_budget(step) }, { dtype = 'i32' }))
                    :flatten():totable()) do least[word] = math.max(least[word], bytes) end
            end
            local points = wane.frontier(step).all
            for _, q in ipairs { points[1], points[#points] } do
                dist.place(net, opt, q.word)
                local plan, why = wane.plan(step, { budget = q.reserved })
                say('%s', plan and tostring(plan.reserved <= q.reserved) or tostring(why))
            end
            dist.place(net, opt, { ['1'] = 'keep', ['3'] = 'shard' })
            local function sizes()
                local list, cells = {}, opt:state_dict().cells
                for k = 1, 4 do list[k] = cells['m.' .. k]:numel() end
                return table.concat(list, ' ')
            end
            local before = sizes()
            try(dist.place, net, opt, { budget = least.shard - 1, step = step })
            try(dist.place, net, opt, { budget = '1 MiB', step = function() error('no step on ' .. dist.rank) end })
            try(dist.place, net, opt, { budget = '1 MiB', step = function()
                if dist.rank == 1 then error 'rank 1 alone fails' end
                return step()
            end })
            try(dist.place, net, opt, { budget = '1 MiB' })
            say('%s', tostring(before == sizes()))
            say('%s', (dist.place(net, opt, { budget = dist.rank == 1 and least.shard or '1 GiB', step = step })))
            local word, plan = dist.place(net, opt, { budget = '1 GiB', step = step })
            say('%s', tostring(word ~= 'shard'))
            word, plan = dist.place(net, opt, { budget = least.slice - 1, step = step })
            say('%s %s', word, tostring(plan.reserved < least.slice))
            local budget = least.shard
            say('%s', (dist.place(net, opt, { budget = budget, step = step })))
            local m = wane.measure(step, { optimizer = opt, budget = budget, steps = 2 })
            say('%s', tostring(m.exact and m.reserved <= budget))
            try(dist.place, net, opt, { budget = '1 GiB', step = step })
            try(dist.place, net, opt, 'slice')
            -- Values that are there already are tried where they are.
            net = wane.nn.Sequential { wane.nn.Linear(64, 300), wane.nn.GELU(), wane.nn.Linear(300, 300) }
            opt = wane.optim.AdamW(net:parameters(), { lr = 0.01 })
            net[3].weight:assign(wane.randn(300, 300))
            local sum, kept = net[3].weight:sum():item(), wane.memory().kinds.parameter
            local all = wane.frontier(step).all
            say('%s %s', all[#all].word, tostring(sum == net[3].weight:sum():item()))
            word, plan = dist.place(net, opt, { budget = budget, step = step })
            m = wane.measure(step, { optimizer = opt, budget = budget, steps = 1 })
            say('%s %s', word, tostring(m.exact and m.reserved <= budget))
            net = wane.nn.Sequential { wane.nn.Linear(64, 300), wane.nn.GELU(), wane.nn.Linear(300, 300) }
            opt = wane.optim.AdamW(net:parameters(), { lr = 0.01 })
            net[3].weight:assign(net[3].weight * 0 + 2)
            dist.place(net, opt, { budget = budget, step = step })
            say('%g', net[3].weight:sum():item())
            try(dist.place, net, opt, { budget = budget, step = step })
            try(dist.place, net, opt, 'keep')]])
        assert.equal(0, code, text)
        local words = { '^true$', '^true$', "^budget: .*no word keeps .*'shard' rank %d needs .* at the least, 1 more",
            'no step on 0', 'rank 1 alone fails', '^value: .*expected { budget =', '^true$', '^shard$', '^true$',
            '^shard true$', '^shard$', '^true$', '^value: .*has made 3 steps', '^value: .*has made', '^shard true$',
            '^shard true$', '^180000$',
            '^value: .*a range of parameter 3, .* alone, and keeps it; place it before its first value',
            '^value: .*each rank has a range of' }
        for r = 0, 2 do
            for k, word in ipairs(words) do assert.matches(word, lines[r][k]) end
        end
    end)
end)
