-- Checks that the collector decides nothing: with the collector stopped, under constant collection, and in compiled
-- code, a program has the same bytes, predicted and measured. Finalizers only enqueue; what they released must be free
-- at the next call.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local steady = require 'spec.support.steady'
local ways = require 'spec.support.ways'

local nn, optim = wane.nn, wane.optim
local C = binding.C

-- Collects all garbage, in four turns. One turn runs finalizers, the next one frees what they let go, programs that
-- held tensors included.
local function collect()
    for _ = 1, 4 do collectgarbage() end
    wane.memory()
end

-- Trains for a few steps, in one program each and in three lines, and calls `between` after each forward; returns the
-- bits, and the bytes of every program.
local function train(between)
    local function make()
        wane.manual_seed(17)
        local model, x = programs.mlp(24, 4, 0.2), wane.eval(wane.randn(10, 24))
        local function loss()
            local y = wane.checkpoint(model, x):pow(2):mean()
            if between then between() end
            return y
        end
        return { loss = loss, states = model:parameters(),
            optimizers = { optim.AdamW(model:parameters(), { lr = 0.01 }) } }
    end
    local lines = {}
    for _, is_lines in ipairs { true, false } do
        local run = ways.train(make, { lines = is_lines })
        lines[#lines + 1] = run.bits
        for _, m in ipairs(run.programs) do
            lines[#lines + 1] = table.concat({ m.peak, m.reserved, table.concat(m.kinds, ' '),
                table.concat(m.at, ' ') }, ' ')
        end
    end
    return table.concat(lines, '\n')
end

-- Sets how often the collector works, and returns what was set before.
local function tune(pause, multiplier)
    return collectgarbage('setpause', pause), collectgarbage('setstepmul', multiplier)
end

describe('the collector', function()
    local expected, pause, multiplier
    setup(function()
        pause, multiplier = tune(200, 200)
        tune(pause, multiplier)
        collect()
        expected = train()
    end)
    after_each(function()
        collectgarbage 'restart'
        tune(pause, multiplier)
        collect()
    end)

    it('stopped, changes no byte of a program', function()
        collectgarbage 'stop'
        assert.equal(expected, (train()))
    end)

    it('run in between, changes no byte of a program', function()
        assert.equal(expected, train(collectgarbage))
    end)

    it('with loops compiled at once, changes no byte of a program', function()
        if not jit.status() then return end
        require('jit.opt').start('hotloop=2')
        tune(0, 101)
        local ok, got = pcall(train)
        require('jit.opt').start('hotloop=56')
        assert.same({ true, expected }, { ok, got })
    end)
end)

describe('garbage', function()
    before_each(collect)

    it('of 100,000 tensors leaves the handles for reuse', function()
        local x = wane.ones(4)
        wane.eval(x)
        local highest = 0
        local function make(n)
            local top = 0
            for _ = 1, n do top = math.max(top, (x + x).id) end
            return top
        end
        make(1000)
        collect()
        local host
        for round = 1, 10 do
            highest = math.max(highest, make(10000))
            collect()
            x:numel()
            wane.memory()
            if round == 2 then host = wane.memory().host end
        end
        -- The next round gets the handles of this one, however the collector works.
        assert.is_true(highest < 10 * 10000 + 5000, tostring(highest))
        local y = x + x
        assert.is_true(y.id < 40000, tostring(y.id))
        assert.is_true(wane.memory().host <= host * 1.05 + 65536, wane.memory().host .. ' after ' .. host)
    end)

    it('that holds bytes gives all of them back', function()
        local function waste()
            for k = 1, 30 do
                wane.eval(wane.full({ 64, 64 }, k))
                wane.tensor { 1, 2, k }
                local p = nn.Parameter(wane.ones(32, 32))
                ;(p * k):sum():backward()
                local opt = optim.Adam({ p }, { lr = 1 })
                opt:step()
                if k % 3 == 0 then wane.plan(function() return (p * 2):sum() end) end
            end
            collect()
            wane.memory.trim()
            return wane.memory()
        end
        local first, again = waste(), waste()
        for kind, size in pairs(again.kinds) do assert.is_true(size <= first.kinds[kind], kind) end
        assert.equal(again.allocated, again.reserved)
    end)

    it('is released once, after t:free() and after the finalizer', function()
        local before = wane.memory().allocated
        local x = wane.full({ 64, 64 }, 1)
        wane.eval(x)
        assert.equal(before + 64 * 64 * 4, wane.memory().allocated)
        local y = x + 1
        x:free()
        assert.equal(before, wane.memory().allocated)
        helper.refused(nil, function() x:totable() end, 'freed')
        helper.refused('stale', function() y:totable() end)
        x, y = nil, nil -- luacheck: ignore 311
        collect()
        assert.equal(before, wane.memory().allocated)
    end)

    it('enqueued by a finalizer is released by the next call, not by the finalizer', function()
        local before = wane.memory().allocated
        local x = wane.full({ 64, 64 }, 1)
        wane.eval(x)
        local id = x.id
        C.wn_release(id) -- all that a finalizer does
        C.wn_release(id) -- twice is once
        assert.equal(before, wane.memory().allocated)
        require('wane.tensor').disown(x)
    end)

    it('does not include what a value that was read still needs: nothing', function()
        local before = wane.memory().allocated
        local x = wane.full({ 256, 64 }, 2)
        wane.eval(x)
        local y = (x * 3):sum()
        assert.equal(256 * 64 * 6, y:item())
        x = nil -- luacheck: ignore 311
        collect()
        assert.equal(before, wane.memory().allocated) -- y is a number, its inputs were dropped
        assert.equal(256 * 64 * 6, y:item())

        local w = nn.Parameter(wane.ones(1))
        local z = wane.full({ 256, 64 }, 2)
        wane.eval(z, w * 1)
        local with_w = wane.memory().allocated
        local loss = (z * w):sum()
        loss:backward()
        z = nil -- luacheck: ignore 311
        collect()
        w.grad = nil
        -- z is gone, and so is the result of w * 1, which was garbage.
        assert.equal(with_w - 256 * 64 * 4 - 256, wane.memory().allocated)
        assert.equal(2 * 256 * 64, loss:item())
    end)

    it('in a loop without any memory of its own does not grow the device or the host', function()
        wane.manual_seed(1)
        local model = programs.mlp(16, 2, 0.1)
        local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
        local x = wane.randn(4, 16):retain()
        wane.eval(x)
        local function steps(n)
            for k = 1, n do
                opt:zero_grad()
                local loss = model(x):pow(2):mean()
                loss:backward()
                opt:step()
                loss:item()
                if k % 25 == 0 then collect() end -- or the garbage of more steps would wait than of the first ones
            end
            return wane.memory()
        end
        steps(1)
        collect()
        wane.memory.trim()
        local first = steps(200)
        steady(function()
            wane.memory.trim()
            local later = steps(200)
            assert.equal(first.allocated, later.allocated)
            assert.equal(first.reserved, later.reserved)
        end)
    end)
end)

-- Loops that make a batch, use it and leave it: no plan knows of a batch that nobody can reach any more.
describe('a loop', function()
    local ROWS, COLUMNS = 1024, 512
    local BATCH = ROWS * COLUMNS * 4
    local source = binding.new('float[?]', ROWS * COLUMNS)
    local make = {
        retained = function() return wane.rand(ROWS, COLUMNS):retain() end,
        evaluated = function() return (wane.eval(wane.rand(ROWS, COLUMNS))) end,
        data = function() return wane.from(source, { ROWS, COLUMNS }) end,
        leaf = function() return wane.rand(ROWS, COLUMNS, { requires_grad = true }) end,
        parameter = function() return nn.Parameter(wane.rand(ROWS, COLUMNS)) end,
        moved = function() return wane.from(source, { ROWS, COLUMNS }):to 'f64':to('f32'):retain() end,
        drawn = function(net)
            net.batches = net.batches or wane.data.batches(wane.eval(wane.rand(4, 512)), { batch = 2, buffers = 1 })
            return (net.batches:next():retain():sum() + wane.zeros(ROWS, COLUMNS)):retain()
        end,
    }
    local use = {
        ['opt:step(loss)'] = function(net, b) net.opt:step(net.layer(b):sum()) end,
        ['three lines'] = function(net, b)
            net.opt:zero_grad()
            net.layer(b):sum():backward()
            net.opt:step()
        end,
        ['wane.eval'] = function(net, b) return wane.eval(net.layer(b):sum(), b:mean()) end,
        item = function(net, b) return net.layer(b):sum():item() end,
        totable = function(net, b) return net.layer(b):narrow(1, 1, 2):totable() end,
        assign = function(net, b) net.state:assign(b:narrow(1, 1, 3):narrow(2, 1, 3) + net.state) end,
        ['wane.accumulate'] = function(net, b)
            wane.accumulate(function(i) return net.layer(b:narrow(1, 4 * i, 4)):sum() end, { micro = 2 })
            net.opt:step()
            net.opt:zero_grad()
        end,
    }

    local function new_net()
        local layer = nn.Linear(COLUMNS, 3)
        return { layer = layer, opt = optim.SGD(layer:parameters(), { lr = 1e-4 }),
            state = wane.zeros(3, 3, { requires_grad = true }) }
    end

    -- Returns the peak of the ledger over n rounds.
    local function peak(net, n, made, used)
        collect()
        wane.memory.reset_peak()
        for _ = 1, n do
            local b = made(net)
            used(net, b)
        end
        return wane.memory().peak
    end

    -- Calls fn, which returns whether it holds, on a stack of its own: the collector keeps what dead places of other
    -- frames name. One that LuaJIT compiled may, by chance, name an older batch (1 of 500 times): fn is tried again,
    -- compiled anew.
    local function holds(fn) return coroutine.wrap(fn)() or jit.flush() or coroutine.wrap(fn)() end

    for what, made in pairs(make) do
        for point, used in pairs(use) do
            it('holds one dead batch at most: ' .. what .. ', ' .. point, function()
                wane.manual_seed(4)
                local with_gradient = point == 'three lines' and (what == 'leaf' or what == 'parameter')
                local dead = with_gradient and 2 * BATCH or BATCH
                assert.is_true(holds(function()
                    local net = new_net()
                    peak(net, 1, made, used)
                    local one, nine = peak(net, 1, made, used), peak(net, 9, made, used)
                    return nine <= one + dead + 65536
                end))
            end)
        end
    end

    -- Calls of functions of the library that call one of the script again and again, which names a batch.
    local repeats = {
        ['wane.accumulate'] = function(net, b)
            wane.accumulate(function(i) return net.layer(b:narrow(1, i, 1)):sum() end, { micro = 64 })
        end,
        ['wane.measure'] = function(net, b) wane.measure(function() return net.layer(b):sum() end, { steps = 100 }) end,
        ['model:apply'] = function(_, b) programs.mlp(4, 50, 0):apply(function() return b end) end,
        ['a policy'] = function(_, b)
            programs.mlp(4, 50, 0)(wane.rand(2, 4)):sum():backward { policy = function() return b and 'save' end }
        end,
    }
    for what, call in pairs(repeats) do
        it('holds no batch that code compiled for a function of ' .. what .. ' was made for', function()
            local net, held = new_net(), setmetatable({}, { __mode = 'k' })
            jit.flush() -- so that the first closure is the one that code is made for
            coroutine.wrap(function()
                local batch = wane.eval(wane.rand(64, COLUMNS))
                held[batch] = true
                call(net, batch)
            end)()
            collect()
            assert.is_nil(next(held))
        end)
    end

    it('holds the peak of the plan and a batch', function()
        for _, what in ipairs { 'retained', 'leaf' } do
            local got, plan
            assert.is_true(holds(function()
                local net = new_net()
                plan = wane.plan(function() return net.opt:step(net.layer(make[what]()):sum()) end).peak
                peak(net, 1, make[what], use['opt:step(loss)'])
                got = peak(net, 30, make[what], use['opt:step(loss)'])
                return got >= plan and got <= plan + BATCH + 65536
            end), ('%d, %d'):format(got, plan))
        end
    end)

    it('that leaves nothing collects nothing, and one that keeps all collects at one of eight run points', function()
        local net = new_net()
        local batch, collections = wane.eval(wane.rand(ROWS, COLUMNS)), 0
        local kept = {} -- luacheck: ignore 241
        binding.each_collection(function() collections = collections + 1 end)
        local function count(fn)
            collect()
            collectgarbage 'stop'
            local before = collections
            for k = 1, 64 do fn(k) end
            collectgarbage 'restart'
            return collections - before
        end
        assert.equal(0, count(function() net.opt:step(net.layer(batch):sum()) end))
        local n = count(function(k) kept[k] = wane.eval(batch + k) end)
        assert.is_true(n >= 1 and n <= 20, tostring(n))
    end)
end)
