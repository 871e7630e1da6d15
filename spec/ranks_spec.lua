-- One training on many ranks: its bits are those of one process, whatever their number, policies and budgets; predicted
-- bytes are measured bytes on each of them; and a failure of one rank is that of all, with nothing changed.
local helper = require 'spec.helper'
local mpi = require 'spec.support.mpi'

local TRAIN = 'spec/support/ranks_train.lua .'
local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

-- A step of one rank of 1,024, measured; how many micro-batches.
local GHOST = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
wane.dist.ghost { ranks = 1024, rank = 700 }
require('wane.ffi').C.wn_debug('check', 1) -- that effects write their own ranges, and exchanges those of all
local model, x = wane.nn.MLP(64, 256), wane.eval(wane.randn(16, 64))
local opt = wane.optim.AdamW(model:parameters())
local function step() opt:step(function() return model(x):pow(2):mean() end, { micro = %d }) end
step()
local m = wane.measure(step, { steps = 2, optimizer = opt })
io.write(tostring(m.exact), ' ', wane.dist.rank, '\n')
]]

-- Returns the lines that the training prints in one process.
local alone
local function reference()
    if not alone then
        alone = {}
        local text, code = helper.shell('WANE_THREADS=1 luajit ' .. TRAIN)
        assert.equal(0, code, text)
        for line in text:gmatch '0> ([^\n]*)' do alone[#alone + 1] = line end
    end
    return alone
end

describe('one process', function()
    it('trains by micro-batches, with the bytes that it predicts', function()
        assert.is_true(#reference() >= 20)
        for _, line in ipairs(reference()) do assert.matches(' exact$', line) end
    end)
end)

describe('a ghost', function()
    it('holds the bytes that it predicts, as any rank of 1,024, idle or not', function()
        for _, micro in ipairs { 1024, 512 } do
            local file = assert(io.open(SCRIPT, 'w'))
            file:write(GHOST:format(helper.root, helper.root, micro))
            file:close()
            assert.equal('true 700\n', (helper.shell('luajit ' .. SCRIPT)))
        end
    end)
end)

-- Bytes among ranks of steps of one rank of 16 on 4 machines, in f32 and in bf16, planned and measured.
local WIRE = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
wane.dist.ghost { ranks = 16, rank = 5, link = { { 4, 10e9 }, { 16, 1e9 } } }
local model, x = wane.nn.Linear(256, 256, { bias = false }), wane.eval(wane.randn(16, 256))
local opt = wane.optim.AdamW(model:parameters())
local function forward() return model(x):pow(2):mean() end
for partial = 1, 4, 3 do
    for _, is_wide in ipairs { true, false } do
        local function fn() return is_wide and forward() or wane.autocast('bf16', forward) end
        local function step() opt:step(fn, { micro = 48, partial = partial }) end
        step()
        local plan, m = wane.plan(step), wane.measure(step, { steps = 2, optimizer = opt })
        io.write(('%%d %%d %%d %%d %%s\n'):format(plan.wire.sent, plan.wire.got, plan.wire.sent_outside,
            plan.wire.got_outside, m.exact))
    end
end
]]

-- Counts the gradients of one rank of 16 that are under way at once, at most, over a slow link and over a fast one, by
-- the line `ahead` of the recipe, and the kernels that run while one is.
local UNDER_WAY = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local slow, fast = { { 16, 1e6 } }, { { 16, 1e12 } }
wane.dist.ghost { ranks = 16, link = arg[1] == 'slow' and slow or fast }
local layers = {}
for k = 1, 8 do layers[k] = wane.nn.Linear(256, 256, { bias = false }) end
local model, x = wane.nn.Sequential(layers), wane.eval(wane.randn(16, 256))
local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
local policy
local function step() opt:step(function() return model(x):mean() end, { micro = 16, policy = policy }) end
local text = tostring(wane.plan(step):recipe())
for _, ahead in ipairs { 0, 2, 8 } do
    policy = wane.policy.recipe(('%%s\nahead %%d\n'):format(text, ahead))
    local now, most, kernels, longest = 0, 0, 0, 0
    for _, step in ipairs(wane.plan(step):schedule()) do
        kernels = now > 0 and kernels + (step.what == 'run' and 1 or 0) or 0
        longest = math.max(longest, kernels)
        if step.op == 'all_to_all' then
            now = now + (step.what == 'exchange' and 1 or step.what == 'wait' and -1 or 0)
            most = math.max(most, now)
        end
    end
    io.write(most, ' ')
    if arg[1] == 'fast' then io.write(longest, ' ') end
end
]]

-- Counts the starts of the link of one rank of 4, by the line `group` of the recipe, on one machine and on two, whose
-- link starts at once. Prints how many are saved over one start each, as instructions are and as seconds say, and
-- whether bytes are as predicted.
local GROUPS = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
wane.dist.ghost { ranks = 4, link = arg[1] and { { 2, 4e9 }, { 4, 1e9 } } }
local START = 50e-6
for _, word in ipairs { 'slice', 'keep' } do
    local layers = {}
    for k = 1, 8 do layers[k] = wane.nn.Linear(64, 64) end
    local model, x = wane.nn.Sequential(layers), wane.eval(wane.randn(16, 64))
    local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
    wane.dist.place(model, opt, word)
    local policy
    local function step()
        opt:step(function() return model(x):mean() end, { micro = 4, partial = arg[1] and 2, policy = policy })
    end
    step()
    local text, alone = tostring(wane.plan(step):recipe()), nil
    for _, group in ipairs { 0, 16640, 1e9 } do
        policy = wane.policy.recipe(('%%s\ngroup %%d\n'):format(text, group))
        local plan, m, starts, before = wane.plan(step), wane.measure(step, { steps = 2, optimizer = opt }), 0, nil
        for _, step in ipairs(plan:schedule()) do
            if step.what == 'exchange' and before ~= 'exchange' then starts = starts + 1 end
            if step.what ~= 'free' then before = step.what end
        end
        alone = alone or { starts, plan.wire_seconds }
        io.write(('%%d %%d %%.3g %%s, '):format(starts, alone[1] - starts, (alone[2] - plan.wire_seconds) / START,
            m.exact))
    end
end
]]

describe('exchanges', function()
    it('start together until they are as many bytes as a recipe says', function()
        local file = assert(io.open(SCRIPT, 'w'))
        file:write(GROUPS:format(helper.root, helper.root))
        file:close()
        assert.equal('22 0 0 true, 16 6 6 true, 9 13 13 true, 18 0 0 true, 10 8 8 true, 2 16 16 true, ',
            (helper.shell('luajit ' .. SCRIPT)))
        assert.equal('31 0 0 true, 31 0 0 true, 22 9 0 true, 40 0 0 true, 33 7 0 true, 19 21 0 true, ',
            (helper.shell('luajit ' .. SCRIPT .. ' teams')))
    end)

    it('are waited for once they have ended, and before as far as a recipe says', function()
        local file = assert(io.open(SCRIPT, 'w'))
        file:write(UNDER_WAY:format(helper.root, helper.root))
        file:close()
        assert.equal('1 2 8 ', (helper.shell('luajit ' .. SCRIPT .. ' slow')))
        assert.equal('1 0 1 1 1 1 ', (helper.shell('luajit ' .. SCRIPT .. ' fast')))
    end)
end)

describe('bytes among ranks', function()
    it('are those of 3 rounds of sums and one of states, by machine', function()
        local file = assert(io.open(SCRIPT, 'w'))
        file:write(WIRE:format(helper.root, helper.root))
        file:close()
        local text, want = helper.shell('luajit ' .. SCRIPT), {}
        local each = 256 * 256 / 16 -- elements of a range
        for partial = 1, 4, 3 do
            for _, size in ipairs { 4, 2 } do
                -- By 16 ranks, each its own partial sums; by 4 machines, whose ranks add 4 gradients, then send shares
                -- of the sum, of f32. The states go to other machines once.
                local inside, outside = 3 * each * 3 * size, 12 * each * 3 * size
                if partial == 4 then inside, outside = 12 * each * 3 * size, 3 * each * 3 * 4 end
                inside, outside = inside + 12 * each * 4, outside + 3 * each * 4
                want[#want + 1] = ('%d %d %d %d true\n'):format(inside + outside, inside + outside, outside, outside)
            end
        end
        assert.equal(table.concat(want), text)
    end)
end)

-- The step of a scenario; kind: what goes wrong, in micro-batch k. Each rank has another number of exchanges under way.
local STEP = [[
local nn, optim = wane.nn, wane.optim
wane.manual_seed(7)
local Normed = nn.module('Normed', function(self) self.norm = nn.BatchNorm2d(48) end)
function Normed:forward(h) return self.norm(h:reshape(h:size(1), 48, 1, 1)):reshape(h:size(1), 48) end
local net = nn.Sequential { nn.Linear(24, 48), Normed(), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 10) }
local opt = optim.AdamW(net:parameters(), { lr = 0.01 })
local x, y = wane.eval(wane.randn(48, 24), wane.randint(10, { 48 }))
local function bits(is_first) -- in the first round, running statistics have not changed either
    local states = net:parameters()
    for _, b in ipairs(is_first and net:buffers() or {}) do states[#states + 1] = b end
    return require('wane.plan.measure').fingerprint(states)
end
local parts, ahead = {}, nil
for i = 1, 6 do parts[i] = wane.eval(y:narrow(1, 8 * i - 7, 8) + 0) end
local function step(kind, k)
    local is_graph = kind == 'graph' or kind == 'draws'
    opt.lr = kind == 'lr' and dist.rank == 1 and 0.1 or 0.01
    return opt:step(function(i)
        local labels = parts[i]
        if kind == 'label' and i == k then labels = wane.tensor({ 1, 2, 3, 4, 5, 6, 7, 77 }, { dtype = 'i32' }) end
        if kind == 'raise' and i == k then error('no data for ' .. i) end
        local h = net(x:narrow(1, 8 * i - 7, 8))
        if kind == 'graph' and i == k then h = h * 2 end
        if kind == 'draws' and i == k then h = h + wane.randn(1) end
        return nn.cross_entropy(h, labels)
    end, { micro = 6, budget = kind == 'budget' and dist.rank == 1 and 100 or nil,
        policy = not is_graph and kind ~= 'budget' and ahead or nil })
end
ahead = wane.policy.recipe(tostring(wane.plan(step):recipe()) .. ('\nahead %d\n'):format(dist.rank * 4 % 9))
]]

mpi.describe(describe, pending, function(kind)
    it('train to the bits of one, each with the bytes that it predicts', function()
        -- ranks, and how many of them are taken to share a machine
        for _, job in ipairs(helper.is_long and { { 2 }, { 3 }, { 4 }, { 7 }, { 16 }, { 4, 2 }, { 6, 2 }, { 6, 3 },
            { 8, 4 }, { 16, 2 }, { 16, 4 } } or { { 3 }, { 4, 2 } }) do
            local n, on_machine = job[1], job[2]
            local lines, code, _, text = mpi.command(kind, n, ('%s %s'):format(TRAIN, on_machine or ''))
            assert.equal(0, code, text)
            for r = 0, n - 1 do assert.same(reference(), lines[r]) end
        end
    end)

    it('go on from the files of other numbers of ranks, which are those of one', function()
        local own, many = os.tmpname(), os.tmpname()
        local script = 'spec/support/ranks_resume.lua . '
        local function one(from, to)
            return (helper.shell(('WANE_THREADS=1 luajit %s%s %d %d'):format(script, own, from, to)))
        end
        for k, n in ipairs { 4, 3, 1 } do
            local word = ({ 'slice', 'shard', 'keep' })[k]
            local lines, code, _, text = mpi.command(kind, n, ('%s%s %d %d %s'):format(script, many, 2 * k - 2,
                2 * k, word))
            assert.equal(0, code, text)
            local digest = one(2 * k - 2, 2 * k):match '0> (%x+)\n'
            for r = 0, n - 1 do assert.same({ digest }, lines[r]) end
            assert.equal(0, select(2, helper.shell(('cmp %s %s'):format(own, many))))
        end
        local lines, code, _, text = mpi.run(kind, 3, [[
            local net = wane.nn.Linear(2, 2)
            try(wane.save, '/proc/none/file', net)
            say('%d', dist.sum(wane.ones(1)):item())]])
        assert.equal(0, code, text)
        for r = 0, 2 do
            assert.matches("^io: .*rank 0: .*writing '/proc/none/file'", lines[r][1])
            assert.equal('3', lines[r][2])
        end
        os.remove(own)
        os.remove(many)
    end)

    it('use what an update has exchanged once it has come, and may end while it is under way', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            local nn, n = wane.nn, 2 ^ 23
            local Large = nn.module('Large', function(self) self.w = nn.Parameter(wane.zeros(n)) end)
            local net = Large()
            local opt = wane.optim.SGD(net:parameters(), { lr = n })
            local last, copy = {}, Large()
            local function pause() -- rank 2 stands still for a moment, its thread too
                local pid = ffi.C.getpid()
                if dist.rank == 2 then os.execute(('(sleep 0.3; kill -CONT %d) & kill -STOP %d'):format(pid, pid)) end
            end
            for k = 1, 4 do
                opt:step(function() return net.w:sum() / n end, { micro = 3 })
                pause()
                if k == 1 then last[k] = wane.eval(net.w:narrow(1, n - 2, 3):sum()):item() end
                if k == 2 then last[k] = wane.eval(net.w:narrow(1, n, 1) * 3):item() end
                if k == 4 then last[k] = require('wane.tensor.read').own(net.w)[n - 1] * 3 end
                if k == 3 then
                    copy:load_state_dict(net:state_dict())
                    last[k] = copy.w:max():item() * 3
                end
            end
            say('%g %g %g %g', unpack(last))]])
        assert.equal(0, code, text)
        for r = 0, 2 do assert.same({ '-3 -6 -9 -12' }, lines[r]) end
    end)

    it('change nothing, and all raise, where one allocation of one rank fails', function()
        local lines, _, _, text = mpi.run(kind, 3, STEP .. ([[
            package.path = '%s/?.lua;' .. package.path
            local failing = require('spec.support.programs').failing
            for n = 1, 400, %d do
                local before, fine, e = bits(), nil, nil
                require('wane.ffi').C.wn_debug('forget_plans', 1)
                if dist.rank == 1 then fine, e = failing(n, step) else fine, e = pcall(step) end
                say('%%s%%s', fine and 'fine' or tostring(e), not fine and bits() ~= before and ' CHANGED' or '')
                opt:zero_grad()
            end]]):format(helper.root, helper.is_long and 1 or 13), 10)
        assert.is_true(#lines[0] >= 30 and #lines[1] == #lines[0], text)
        assert.same(lines[0], lines[2]) -- where the link itself has no memory, rank 1 alone says so
        assert.is_nil(text:find('CHANGED', 1, true), text)
    end)

    it('profile a step in as many turns, whoever is disturbed, and count no wait for another as a kernel', function()
        local lines, code, _, text = mpi.run(kind, 3, [[
            local profile, tries = require 'wane.plan.costs.profile', 0
            local judge = profile.judge
            function profile.judge(signs)
                tries = tries + 1
                say('%s', signs.whole < 0.02)
                return dist.rank == 2 and tries == 1 and 'a burst' or nil
            end
            local model = wane.nn.Linear(64, 64)
            local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
            dist.place(model, opt, 'shard')
            local x = wane.eval(wane.randn(8, 64))
            local function step()
                if dist.rank == 1 then ffi.C.poll(nil, 0, 30) end -- others wait for it
                return opt:step(function() return model(x):sum() end, { micro = 3 })
            end
            local function apart()
                wane.accumulate(function() return model(x):sum() end, { micro = 3 })
                opt:step()
                opt:zero_grad()
            end
            local function evaluation() return wane.no_grad(function() return model(x):sum() end) end
            for _, fn in ipairs { step, apart, evaluation } do
                tries = 0
                local made = wane.profile(fn, { keep = false })
                say('%d %s', tries, made.is_used)
            end
            say('%s', wane.measure(step, { steps = 3, optimizer = opt }).wait > (dist.rank == 1 and 0 or 0.08))]])
        assert.equal(0, code, text)
        local two = { 'true', 'true', '2 true' }
        local want = { two[1], two[2], two[3], two[1], two[2], two[3], two[1], two[2], two[3], 'true' }
        for r = 0, 2 do assert.same(want, lines[r], text) end
    end)

    it('run examples/ranks.lua as one process does', function()
        local want, code = helper.shell 'WANE_THREADS=1 luajit examples/ranks.lua'
        assert.equal(0, code, want)
        for _, n in ipairs(helper.is_long and { 1, 2, 5, 12, 13 } or { 3 }) do
            for _, word in ipairs { 'slice', 'shard' } do
                local _, status, _, text = mpi.command(kind, n, 'examples/ranks.lua --policy sqrt --place ' .. word)
                assert.equal(0, status, text)
                assert.equal(want, (text:gsub('wane: [^\n]*have nothing to compute\n', '')))
            end
        end
    end)

    it('all raise what one of them raises in a step, nothing has changed, and the next step works', function()
        local lines, code, _, text = mpi.run(kind, 4, STEP .. [[
            for _, kind in ipairs { 'label', 'raise', 'graph', 'draws', 'budget', 'memory', 'lr' } do
                for _, k in ipairs { 2, 6 } do
                    local before = bits(k == 2)
                    if kind == 'memory' and dist.rank == 1 then wane.memory.limit(5e3 * k) end
                    try(step, kind, k)
                    wane.memory.limit(0)
                    opt:zero_grad()
                    if bits(k == 2) ~= before and kind ~= 'lr' then say 'CHANGED' end
                    step()
                end
            end
            say('%s', bits(true))
            local bias = wane.eval(net[1].bias + 0)
            if dist.rank == 2 then net[1].bias:assign(bias + 1) end
            try(step)
            if dist.rank == 2 then net[1].bias:assign(bias) end
            opt:zero_grad()
            step()
            say('%s', bits(true))
            try(function() opt:step(nn.cross_entropy(net(x), y)) end)
            try(function() nn.cross_entropy(net(x), y):backward() end)
            local batches = wane.data.batches({ x, y }, { batch = 8 })
            for _, inside in ipairs { dist.barrier, function() return batches:next() end } do
                try(function() opt:step(function() inside() return net(x):sum() end, { micro = 4 }) end)
            end
            for seed = 7, 8 do
                local own = wane.data.batches({ x, y }, { batch = 8, seed = dist.rank == 3 and seed or 7 })
                local part = own:parts(6)
                try(function()
                    opt:step(function(i)
                        local a, b = part(i)
                        return nn.cross_entropy(net(a), b)
                    end, { micro = 6 })
                end)
                opt:zero_grad()
            end]])
        assert.equal(0, code, text)
        local other = 'rank 1 runs another step than rank 0: %d+ nodes against %d+; first difference: '
        local words = { 'rank 1: cross_entropy: label 77', 'rank 1: .*no data for %d',
            other .. 'const %(%) f32 against', other .. 'normal %(1%) f32 at .* against',
            'rank 1: .*a budget of 100 bytes cannot be kept', '^oom: .*rank 1: .*out of memory',
            'rank 1 is at another call than rank 0: an update of %d+ nodes, its numbers %x+, its states %x+' }
        for r = 0, 3 do
            local list = lines[r]
            for k = 1, 14 do assert.matches(words[math.ceil(k / 2)], list[k]) end
            assert.matches('^%x+$', list[15])
            assert.matches('rank 2 is at another call than rank 0: an update ', list[16])
            assert.same({ lines[0][15], lines[0][17] }, { list[15], list[17] })
            assert.matches('step on 4 ranks: .*write opt:step%(fn, ', list[18])
            assert.matches('backward on 4 ranks', list[19])
            assert.matches('barrier inside of the function of a step', list[20])
            assert.matches('a batch is drawn inside of the function of a step on 4 ranks', list[21])
            assert.equal('fine', list[22])
            assert.matches('rank 3 is at another call than rank 0: the losses', list[23])
        end
    end)
end)

-- ---- two nodes ------------------------------------------------------------------------------------------------------
describe('two nodes', function()
    local nodes = 'sh spec/support/nodes.sh '
    local missing = helper.shell(nodes .. 'missing'):gsub('%s+$', '')
    if missing ~= '' or not mpi.is_here 'openmpi' then
        pending('are not tried: ' .. (missing ~= '' and missing or 'no openmpi'))
        return
    end

    setup(function()
        local text, code = helper.shell(nodes .. 'start 400')
        assert.equal(0, code, text)
    end)
    teardown(function() helper.shell(nodes .. 'stop') end)

    it('send both ways at once', function() -- each of two phases sends 4 MiB each way, 84 ms at this rate
        local text = helper.shell(nodes .. 'mpirun 1 luajit spec/bench/reach_rows.lua exchange 8388608 7')
        assert.is_true(tonumber(text) > 0.1 and tonumber(text) < 0.26, text)
    end)

    it('train to the bits of one process, over a link of 400 Mbit/s, with the bytes on it that they predict', function()
        local text, code = helper.shell(('timeout 90 %s mpirun 2 luajit %s'):format(nodes, TRAIN))
        assert.equal(0, code, text)
        local lines = mpi.lines(text, 4)
        for r = 0, 3 do assert.same(reference(), lines[r]) end
    end)
end)

-- ---- Slurm ----------------------------------------------------------------------------------------------------------
-- A Slurm of one node, whose srun starts ranks by its two plugins.
describe('srun', function()
    local slurm, folder = 'sh spec/support/slurm.sh ', os.tmpname() .. '.slurm'
    local missing = helper.shell(slurm .. 'missing'):gsub('%s+$', '')
    local PLUGINS = { pmix = 'openmpi', pmi2 = 'mpich' }
    if missing ~= '' then
        pending('is not tried: ' .. missing)
        return
    end

    setup(function()
        local text, code = helper.shell(slurm .. 'start ' .. folder)
        assert.equal(0, code, text)
    end)
    teardown(function() helper.shell(('%s stop %s; rm -rf %s'):format(slurm, folder, folder)) end)

    local function shell(command)
        return helper.shell(('export SLURM_CONF=%s/slurm.conf WANE_THREADS=1; %s'):format(folder, command))
    end

    for plugin, kind in pairs(PLUGINS) do
        if not mpi.is_here(kind) then
            pending(('--mpi=%s is not tried: no %s'):format(plugin, kind))
        else
            it(('--mpi=%s trains as one process does'):format(plugin), function()
                local text, code = shell(('timeout 60 srun --mpi=%s -n 3 luajit examples/ranks.lua'):format(plugin))
                assert.equal(0, code, text)
                assert.equal((helper.shell 'WANE_THREADS=1 luajit examples/ranks.lua'), text)
            end)

            it(('--mpi=%s hands on the signal before a time limit: all ranks save and leave'):format(plugin), function()
                local file, own = os.tmpname(), os.tmpname()
                local script = 'luajit spec/support/ranks_resume.lua . '
                local text, code = shell(([[
                    SIGNALLED=1 timeout 60 srun --mpi=%s -n 3 %s %s 0 100000 > %s/said 2>&1 &
                    for k in $(seq 300); do grep -q begun %s/said && break; sleep 0.1; done
                    scancel --signal=USR1 $(squeue -h -o %%A) && wait $! ; code=$?; cat %s/said; exit $code]]):format(
                    plugin, script, file, folder, folder, folder))
                assert.equal(0, code, text)
                local step = tonumber(text:match '0> stopped (%d+)')
                assert.is_true(step >= 2, text)
                for r = 1, 2 do assert.matches(('%d> stopped %d\n'):format(r, step), text) end
                local function digest(command) return helper.shell('WANE_THREADS=1 ' .. command):match '0> (%x+)\n' end
                local went_on = digest(('%s %s %d %d'):format(script, file, step, step + 2))
                assert.is_truthy(went_on)
                assert.equal(digest(('%s %s 0 %d'):format(script, own, step + 2)), went_on)
                os.remove(file)
                os.remove(own)
            end)
        end
    end

    it('without a plugin is refused, with the line to write', function()
        local text, code = shell 'srun -n 2 luajit examples/ranks.lua'
        assert.is_true(code ~= 0, text)
        assert.matches('SLURM_NTASKS=2 and no plugin of srun: .*srun %-%-mpi=pmix .* or srun %-%-mpi=pmi2', text)
    end)

    it('of a batch job trains as one process does', function()
        if not mpi.is_here 'openmpi' then return pending 'is not tried: no openmpi' end
        local command = 'sbatch --wait --ntasks=2 --output=%s/log examples/ranks.sbatch examples/ranks.lua'
        local text, code = shell(command:format(folder))
        assert.equal(0, code, text)
        local want = helper.shell 'WANE_THREADS=1 luajit examples/ranks.lua'
        assert.equal(want, (helper.shell(('cat %s/log'):format(folder))))
    end)
end)
