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

-- The step of a scenario; kind: what goes wrong, in micro-batch k.
local STEP = [[
local nn, optim = wane.nn, wane.optim
wane.manual_seed(7)
local net = nn.Sequential { nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 10) }
local opt = optim.AdamW(net:parameters(), { lr = 0.01 })
local x, y = wane.eval(wane.randn(48, 24), wane.randint(10, { 48 }))
local function bits() return require('wane.plan.measure').fingerprint(net:parameters()) end
local function step(kind, k)
    return opt:step(function(i)
        local labels = wane.eval(y:narrow(1, 8 * i - 7, 8) + 0)
        if kind == 'label' and i == k then labels = wane.tensor({ 1, 2, 3, 4, 5, 6, 7, 77 }, { dtype = 'i32' }) end
        if kind == 'raise' and i == k then error('no data for ' .. i) end
        local h = net(x:narrow(1, 8 * i - 7, 8))
        if kind == 'graph' and i == k then h = h * 2 end
        if kind == 'draws' and i == k then h = h + wane.randn(1) end
        return nn.cross_entropy(h, labels)
    end, { micro = 6, budget = kind == 'budget' and dist.rank == 1 and 100 or nil })
end
]]

for kind in pairs(mpi.KINDS) do
    describe('ranks of ' .. kind, function()
        if not mpi.is_here(kind) then
            pending(('are not tried: no mpirun.%s, or no library of make mpi'):format(kind))
            return
        end

        it('train to the bits of one, each with the bytes that it predicts', function()
            for _, n in ipairs(helper.is_long and { 2, 3, 4, 7, 16 } or { 3 }) do
                local lines, code, _, text = mpi.command(kind, n, TRAIN)
                assert.equal(0, code, text)
                for r = 0, n - 1 do assert.same(reference(), lines[r]) end
            end
        end)

        it('all raise what one of them raises in a step, nothing has changed, and the next step works', function()
            local lines, code, _, text = mpi.run(kind, 4, STEP .. [[
                for _, kind in ipairs { 'label', 'raise', 'graph', 'draws', 'budget' } do
                    for _, k in ipairs { 2, 6 } do
                        local before = bits()
                        try(step, kind, k)
                        opt:zero_grad()
                        if bits() ~= before then say 'CHANGED' end
                        step()
                    end
                end
                say('%s', bits())
                try(function() opt:step(nn.cross_entropy(net(x), y)) end)
                try(function() nn.cross_entropy(net(x), y):backward() end)]])
            assert.equal(0, code, text)
            local other = 'rank 1 runs another step than rank 0: %d+ nodes against %d+; first difference: '
            local words = { 'rank 1: cross_entropy: label 77', 'rank 1: .*no data for %d',
                other .. 'const %(%) f32 against', other .. 'normal %(1%) f32 at .* against',
                'rank 1: .*a budget of 100 bytes cannot be kept' }
            for r = 0, 3 do
                for k = 1, 10 do assert.matches(words[math.ceil(k / 2)], lines[r][k]) end
                assert.matches('^%x+$', lines[r][11])
                assert.equal(lines[0][11], lines[r][11])
                assert.matches('step on 4 ranks: .*write opt:step%(fn, ', lines[r][12])
                assert.matches('backward on 4 ranks', lines[r][13])
            end
        end)
    end)
end
