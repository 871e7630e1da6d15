-- Checks plans of a job by a process that is none of it: they are those of a ghost, and leave everything as it was.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane

local SCRIPT = os.tmpname()
teardown(function() os.remove(SCRIPT) end)

-- A model, its optimizer and a step of 16 micro-batches, of a process that is a ghost where arguments say so, and the
-- numbers of its plan, of a frontier and of the least budget.
local STEP = [[
local nn = wane.nn
wane.manual_seed(3)
local model = nn.Sequential { nn.MLP(64, 256), nn.LayerNorm(64), nn.Linear(64, 512), nn.MLP(512, 1024) }
model[3].bias.requires_grad = false
local x, opt = wane.eval(wane.randn(16, 64)), wane.optim.AdamW(model:parameters(), { clip_norm = 1 })
local function step()
    return opt:step(function(i) return model(x:narrow(1, i, 1)):pow(2):mean() end, { micro = 16, partial = 2 })
end
local LINK = { { 4, 370e9 }, { 8, 50e9 } }
local function numbers(opts)
    local words = {}
    local function put(...)
        for _, v in ipairs { ... } do words[#words + 1] = ('%.17g'):format(v) end
    end
    local p = wane.plan(step, opts)
    put(p.reserved, p.peak, p.seconds, p.wait, p.wire.sent, p.wire.sent_outside)
    for _, q in ipairs(p.kinds.optimizer < p.kinds.parameter and wane.frontier(step, opts).all or {}) do
        put(q.reserved, q.seconds) -- where all is kept, a ghost cuts anew, from where it ended
        words[#words + 1] = q.word
    end
    put(wane.min_budget(step, opts))
    return table.concat(words, ' ')
end
]]

local function load_step()
    return assert(loadstring('local wane = ... ' .. STEP .. ' return step, numbers, opt, model, LINK'))(wane)
end

describe('a plan of a job', function()
    local step, numbers, opt, model, LINK

    before_each(function() step, numbers, opt, model, LINK = load_step() end)

    it('has the same seconds late with and without recomputation, and in a frontier', function()
        for _, word in ipairs { 'slice', 'keep', 'shard' } do
            local p = wane.plan(step, { ranks = 8, link = { { 8, 1e6 } }, place = word })
            assert.is_true(p.wait > 0)
            assert.equal(0, p.overhead)
            assert.equal(p.seconds, p.base_seconds)
        end
        local seen = 0
        for _, q in ipairs(wane.frontier(step, { ranks = 8, link = { { 8, 1e6 } } }).all) do
            local p = wane.plan(step, { ranks = 8, link = { { 8, 1e6 } }, place = q.word, budget = q.reserved })
            assert.is_true(p.seconds <= q.seconds, ('%s: %.17g, %.17g'):format(q.word, p.seconds, q.seconds))
            if p.reserved == q.reserved then seen = seen + 1 end
        end
        assert.is_true(seen > 0)
    end)

    it('has the forward wait for each layer that comes late', function()
        local before = wane.set_device 'meta'
        finally(function() wane.set_device(before) end)
        local layers, n, seen = {}, 4, {}
        for k = 1, n do layers[k] = wane.nn.Linear(512, 512, { bias = false }) end
        local net, x = wane.nn.Sequential(layers), wane.zeros(64, 512)
        local own = wane.optim.SGD(net:parameters(), { lr = 0.1 })
        local function deep() return own:step(function() return net(x):mean() end, { micro = 2 }) end
        for _, rate in ipairs { 1e8, 2e8, 4e8, 8e8, 16e8 } do
            local p, waits = wane.plan(deep, { ranks = 2, link = { { 2, rate } }, place = 'slice' }), 0
            for _, part in ipairs(p.parts) do waits = waits + part.wait end
            local exchange, forward, late = p.wire_seconds / 2 / n, p.parts[1].forward, p.parts[2].late
            local want = 0
            for k = 1, n do want = math.max(want, late - (n - k) * exchange - (k - 1) * forward / n) end
            assert.is_true(math.abs(p.wait - waits - want) < 0.1 * want + 1e-9, ('%g: %g, %g'):format(rate, p.wait
                - waits, want))
            seen[late > forward] = seen[late > forward] or want > 0
        end
        assert.same({ [true] = true, [false] = true }, seen)
    end)

    it('waits as long for what two optimizers exchange late, whichever steps first', function()
        local before = wane.set_device 'meta'
        finally(function() wane.set_device(before) end)
        local wide, narrow, x = wane.nn.Linear(512, 512), wane.nn.Linear(512, 8), wane.zeros(64, 512)
        local one, two = wane.optim.SGD(wide:parameters(), { lr = 1 }), wane.optim.SGD(narrow:parameters(), { lr = 1 })
        local waits = {}
        for k, order in ipairs { { one, two }, { two, one } } do
            local function both()
                wane.accumulate(function() return narrow(wide(x)):mean() end, { micro = 2 })
                for _, o in ipairs(order) do o:step() end
            end
            waits[k] = wane.plan(both, { ranks = 2, link = { { 2, 1e8 } }, place = 'slice' }).wait
        end
        assert.is_true(math.abs(waits[1] - waits[2]) < 0.05 * waits[1], table.concat(waits, ', '))
    end)

    it('is that of a ghost, for each rank and word, and leaves a process as it was', function()
        local before, C = numbers {}, require('wane.ffi').C
        local function rates()
            local r = require('wane.ffi').new 'struct wn_link_rates'
            C.wn_link_get(r)
            return { r.start, r.peer, r.bytes[0], r.bytes[1] }
        end
        local assumed = rates()
        for _, row in ipairs { { 5, 'slice' }, { 0, 'keep' }, { 7, 'shard' } } do
            local rank, word = unpack(row)
            files.write(SCRIPT, ([[
                package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
                local wane = require 'wane'
                wane.dist.ghost { ranks = 8, rank = %d, link = { { 4, 370e9 }, { 8, 50e9 } } }
                %s
                wane.dist.place(model, opt, '%s')
                io.write(numbers {})]]):format(helper.root, helper.root, rank, STEP, word))
            local want = helper.shell('WANE_COSTS=off luajit ' .. SCRIPT)
            assert.equal(want, numbers { ranks = 8, rank = rank, link = LINK, place = word })
            assert.equal(before, numbers {})
            assert.same(assumed, rates())
        end
        assert.same({ 1, 0, 1 }, { wane.dist.size, wane.dist.rank, require('wane.program.ranks').size })
        step()
    end)

    it('is of the rank that needs most, where none is named', function()
        local later = 0
        for ranks = 5, 8 do
            local most, first = 0, wane.plan(step, { ranks = ranks, rank = 0, place = 'shard' }).reserved
            for rank = 0, ranks - 1 do
                most = math.max(most, wane.plan(step, { ranks = ranks, rank = rank, place = 'shard' }).reserved)
            end
            assert.equal(most, wane.plan(step, { ranks = ranks, place = 'shard' }).reserved)
            if most > first then later = later + 1 end
        end
        assert.is_true(later > 0)
    end)

    it('is refused by name where it cannot be', function()
        for _, row in ipairs {
            { { ranks = 1 }, 'ranks must be a whole number from 2' },
            { { ranks = 8, rank = 8 }, 'rank must be a whole number from 0 to 7, got 8' },
            { { rank = 3 }, 'rank is of a job; give ranks, their number, too' },
            { { link = LINK }, 'link is of a job' },
            { { ranks = 8, place = 'slize' }, "place must be 'slice', 'keep' or 'shard', got 'slize'" },
            { { ranks = 9, link = LINK }, 'the last pair is of all 9 ranks' },
        } do
            for _, fn in ipairs { wane.plan, wane.frontier, wane.min_budget } do
                local fine, e = pcall(fn, step, row[1])
                assert.is_true(not fine and e.code == 'value', tostring(e))
                assert.is_truthy(tostring(e):find(row[2], 1, true), tostring(e))
            end
        end
        local none, why = wane.plan(step, { ranks = 8, budget = '1 KiB' })
        assert.is_true(none == nil and why.code == 'budget', tostring(why))
        assert.has_error(function() wane.plan(function() error('my own', 0) end, { ranks = 8 }) end, 'my own')
        step()
        local fine, e = pcall(wane.plan, step, { ranks = 8 })
        assert.is_true(not fine, tostring(e))
        assert.matches('a job is planned before the first step: the optimizer has made 1 steps ', tostring(e))
        assert.is_truthy(model:state_dict() and opt:state_dict())
    end)
end)
