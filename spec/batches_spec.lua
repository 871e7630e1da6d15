-- Checks wane.data.batches: batches come in the order that the seed says and go on from any position; their bytes are
-- used again, and a batch that was drawn over is refused, never read as a later one.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local binding = require 'wane.ffi'
local shuffled = require 'wane.data.order'

local nn, optim, data = wane.nn, wane.optim, wane.data
local C = binding.C
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

local function write(text) return files.write(PATH, text) end
local refused = helper.refused

describe('wane.data.batches', function()
    it('give the parts of a step, each when it is asked, in the order of next', function()
        local function new()
            return wane.data.batches(wane.arange(10), { batch = 2, shuffle = true, seed = 3, buffers = 8 })
        end
        local parts, all = new(), new()
        for _ = 1, 4 do
            local part, list = parts:parts(3), {}
            for i = 1, 3 do list[i] = tostring(all:next()) end
            for _, i in ipairs { 2, 3, 1 } do assert.equal(list[i], tostring(part(i))) end
        end
        assert.equal(all:state(), parts:state())
        local part = parts:parts(2)
        helper.refused('value', function() part(3) end, 'part must be a whole number from 1 to 2, got 3')
        helper.refused('value', function() parts:parts(0) end, 'parts must be')
    end)

    after_each(function() collectgarbage 'restart' end)

    local function numbers(n, ...)
        local list = {}
        for k = 1, n do list[k] = k - 1 end
        return wane.tensor(list, { dtype = 'i32' }):reshape(...)
    end

    local function drawn(it)
        local list = {}
        for x in it do list[#list + 1] = table.concat(x:reshape(-1):totable(), ' ') end
        return list
    end

    it('gives rows in order, of every tensor, and drops what makes no whole batch', function()
        local x, y = numbers(42, 7, 2, 3), numbers(7, 7):to 'f32'
        local it = data.batches({ x, y }, { batch = 3 })
        assert.equal(2, it.count)
        local n = 0
        for a, b in it do
            assert.are.same({ { 3, 2, 3 }, 'i32', { 3 }, 'f32' }, { { unpack(a.shape) }, a.dtype, { unpack(b.shape) },
                b.dtype })
            assert.are.same(x:narrow(1, 3 * n + 1, 3):totable(), a:totable())
            assert.are.same(y:narrow(1, 3 * n + 1, 3):totable(), b:totable())
            n = n + 1
        end
        assert.equal(2, n)
        local all = data.batches({ x, y }, { batch = 3, drop_last = false })
        assert.equal(3, all.count)
        local last
        for _, b in all do last = b:totable() end
        assert.are.same({ 6 }, last)
        assert.are.same({ '0 1', '2 3' }, drawn(data.batches(numbers(4, 4), { batch = 2 })))
    end)

    it('gives rows of every dtype, also longer than the block', function()
        for _, dtype in ipairs { 'f32', 'f64', 'bf16', 'i32', 'u8' } do
            local t = numbers(12, 4, 3):to(dtype)
            local x = data.batches(t, { batch = 2, shuffle = true, seed = 1 })()
            local list = shuffled(4, 1, 1)
            local all = t:totable()
            assert.equal(dtype, x.dtype)
            assert.are.same({ all[list[0] + 1], all[list[1] + 1] }, x:totable())
        end
        local long = wane.arange(120000):reshape(3, 40000)
        local x = data.batches(long, { batch = 2 })()
        assert.equal(0, (x - long:narrow(1, 1, 2)):abs():max():item())
    end)

    it('gives windows of tokens, and the same ones a token later, as i32', function()
        local t = data.tokens(write 'abcdefghijk')
        local seen = {}
        for x, y in data.batches(t, { batch = 2, length = 2 }) do
            assert.are.same({ { 2, 2 }, 'i32', 'i32' }, { { unpack(x.shape) }, x.dtype, y.dtype })
            seen[#seen + 1] = t:decode(x) .. '/' .. t:decode(y)
        end
        assert.are.same({ 'abcd/bcde', 'efgh/fghi' }, seen)
    end)

    it('shuffles anew each epoch, as the seed says, and draws none of the random numbers', function()
        wane.manual_seed(3)
        local function epochs(opts)
            local it, list = data.batches(numbers(9, 9), opts), {}
            for k = 1, 3 do
                list[k] = table.concat(drawn(it), ' ')
                assert.equal(k + 1, it.epoch)
            end
            return list
        end
        local a = epochs { batch = 3, shuffle = true, seed = 5 }
        assert.are.same(a, epochs { batch = 3, shuffle = true, seed = 5 })
        assert.are_not.equal(a[1], a[2])
        local sorted = {}
        for v in a[2]:gmatch '%d+' do sorted[#sorted + 1] = tonumber(v) end
        table.sort(sorted)
        assert.are.same({ 0, 1, 2, 3, 4, 5, 6, 7, 8 }, sorted)
        assert.are_not.same(a, epochs { batch = 3, shuffle = true, seed = 6 })
        assert.are.same(epochs { batch = 3, shuffle = true, seed = 3 }, epochs { batch = 3, shuffle = true })
        assert.equal(0, tonumber(C.wn_here().counter))
    end)

    it('goes on from a state, at any place', function()
        local opts = { batch = 2, shuffle = true, seed = 8 }
        local whole, places, list = data.batches(numbers(9, 9), opts), {}, {}
        for k = 1, 11 do
            places[k] = whole:state()
            list[k] = table.concat(whole:next():totable(), ' ')
        end
        for k = 1, 11 do
            local it = data.batches(numbers(9, 9), { batch = 2, shuffle = true, state = places[k] })
            for i = k, 11 do assert.equal(list[i], table.concat(it:next():totable(), ' ')) end
            assert.equal(whole:state(), it:state())
        end
        refused('value', function() data.batches(numbers(8, 8), { batch = 2, shuffle = true, state = places[3] }) end,
            'examples = 9, here it is 8')
        refused('value', function() data.batches(numbers(9, 9), { batch = 3, shuffle = true, state = places[3] }) end,
            'batch = 2, here it is 3')
        refused('value', function() data.batches(numbers(9, 9), { batch = 2, state = places[3] }) end, 'shuffle')
        refused('value', function()
            data.batches(numbers(9, 9), { batch = 2, shuffle = true, seed = 1, state = places[3] })
        end, 'seed = 8, here it is 1')
        refused('value', function() data.batches(numbers(9, 9), { batch = 2, state = 'x' }) end, "'x'", 'state()')
    end)

    it('keeps memory and plans steady over a hundred batches', function()
        wane.manual_seed(2)
        local t = data.tokens(write(('to be or not to be '):rep(350)))
        local model = nn.Sequential { nn.Embedding(#t.vocab, 8), nn.Linear(8, #t.vocab) }
        local opt = optim.AdamW(model:parameters(), { lr = 0.05 })
        local function step(x, y) return opt:step(nn.cross_entropy(model(x), y)) end
        local it, seen, made, first = data.batches(t, { batch = 4, length = 16, shuffle = true }), nil, nil, nil
        local loss
        for k = 1, 110 do
            loss = step(it:next()):item()
            first = first or loss
            if k == 10 then
                for _ = 1, 4 do collectgarbage() end
                collectgarbage 'stop' -- nobody else's garbage goes, and none of these batches'
                seen, made = wane.memory(), C.wn_debug_get 'plans_made'
                wane.memory.reset_peak()
            end
        end
        local after = wane.memory()
        collectgarbage 'restart'
        assert.equal(seen.allocated, after.allocated)
        assert.equal(seen.kinds.input, after.kinds.input)
        assert.equal(seen.reserved, after.peak_reserved)
        assert.is_true(made == C.wn_debug_get 'plans_made')
        assert.is_true(loss < 0.6 * first)
        assert.equal(2, it.epoch)
    end)

    it('refuses what was recorded on a batch that was drawn over, and keeps more buffers when told', function()
        local it = data.batches(numbers(40, 20, 2), { batch = 2 })
        local x = it:next()
        local late, kept = x:sum(), (x * 2):retain()
        wane.eval(kept)
        it:next()
        assert.equal(0 + 1 + 2 + 3, x:sum():item())
        it:next()
        refused('stale', function() late:item() end, 'a batch of wane.data.batches', 'buffers = 2')
        assert.are.same({ { 0, 2 }, { 4, 6 } }, kept:totable())
        local wide, sums = data.batches(numbers(40, 20, 2), { batch = 2, buffers = 4 }), {}
        for k = 1, 4 do sums[k] = wide:next():sum() end
        for k = 1, 4 do assert.equal(16 * k - 10, sums[k]:item()) end
    end)

    -- Holds the ways to use a batch that a loop kept: each gets the batch and returns its numbers in a row.
    local function flat(t) return table.concat(t:reshape(-1):totable(), ' ') end
    local uses = {
        totable = function(x) return table.concat(x:totable()[1], ' ') .. ' ' .. table.concat(x:totable()[2], ' ') end,
        item = function(x) return ('%d %d %d %d'):format(x[1][1]:item(), x[1][2]:item(), x[2][1]:item(),
            x[2][2]:item()) end,
        copy_to = function(x)
            local to = x:copy_to(binding.new 'int32_t[4]')
            return ('%d %d %d %d'):format(to[0], to[1], to[2], to[3])
        end,
        ['an op'] = function(x) return flat(x + 0) end,
        ['wane.eval'] = function(x) return flat(wane.eval(x * 1)) end,
        print = function(x)
            local words = {}
            for word in tostring(x):gsub('^.-i32', ''):gmatch '%d+' do words[#words + 1] = word end
            return table.concat(words, ' ')
        end,
        ['the first value of a state'] = function(x)
            local p = nn.Parameter(x:to 'f32')
            return flat(wane.eval(p + 0))
        end,
        ['a data set'] = function(x) return flat((data.batches(x, { batch = 2 })())) end,
        ['wane.save'] = function(x)
            wane.save(PATH, { x = x })
            return flat(wane.load(PATH).x)
        end,
        ['opt:step'] = function(x)
            local p = nn.Parameter(wane.zeros(2, 2))
            optim.SGD({ p }, { lr = 1 }):step((p * x:to 'f32'):sum())
            return flat(p * -1 + 0)
        end,
        ['loss:backward'] = function(x)
            local p = nn.Parameter(wane.zeros(2, 2))
            ;(p * x:to 'f32'):sum():backward()
            return flat(p.grad)
        end,
    }

    for use, fn in pairs(uses) do
        it('lends a batch until it is drawn over, and keeps a retained one, through ' .. use, function()
            for buffers = 1, 3 do
                local it, kept, expected = data.batches(numbers(24, 12, 2), { batch = 2, buffers = buffers }), {}, {}
                for k = 1, 6 do
                    kept[k] = it:next()
                    expected[k] = flat(kept[k])
                    if k % 3 == 1 then assert.equal(kept[k], kept[k]:retain()) end
                end
                for k = 1, 6 do
                    if k % 3 == 1 or k > 6 - buffers then assert.equal(expected[k], fn(kept[k]))
                    else refused('stale', function() fn(kept[k]) end, 'a batch of wane.data.batches',
                        ('buffers = %d'):format(buffers), 'buffers = N', ':retain()') end
                end
            end
        end)
    end

    it('refuses to retain what was drawn over, and goes on', function()
        local it = data.batches(numbers(8, 8), { batch = 2 })
        local first = it:next()
        for _ = 1, 2 do it:next() end
        refused('stale', function() first:retain() end, 'buffers = 2', ':retain()')
        assert.are.same({ 6, 7 }, it:next():totable())
    end)

    it('takes bytes for what is retained alone, and gives them back', function()
        local it = data.batches(wane.eval(wane.randn(64, 64)), { batch = 8 })
        for _ = 1, 3 do it:next() end
        for _ = 1, 4 do collectgarbage() end
        local before, kept = wane.memory().allocated, {} -- luacheck: ignore 241
        for k = 1, 4 do kept[k] = it:next():retain() end
        assert.equal(before + 4 * 8 * 64 * 4, wane.memory().allocated + 2 * 8 * 64 * 4) -- two wait for their turn
        for _ = 1, 2 do it:next() end
        assert.equal(before + 4 * 8 * 64 * 4, wane.memory().allocated)
        kept = nil -- luacheck: ignore 311
        for _ = 1, 4 do collectgarbage() end
        assert.equal(before, wane.memory().allocated)
    end)

    it('adds up micro-batches of an iterator, as many as it has buffers, or retained', function()
        local function train(opts, keep, ahead)
            wane.manual_seed(5)
            local model = nn.Linear(3, 1)
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local it = data.batches(wane.eval(wane.randn(16, 3)), opts)
            local nxt = ahead and it:next()
            for _ = 1, 2 do
                local micro = {}
                for k = 1, 4 do
                    local x = nxt or it:next()
                    if keep then x:retain() end
                    if ahead then nxt = it:next() end
                    micro[k] = model(x):pow(2):mean()
                end
                opt:step(micro, { scale = 1 / 4 })
            end
            return flat(model.weight)
        end
        local expected = train({ batch = 2, buffers = 4 })
        assert.equal(expected, train({ batch = 2 }, true))
        assert.equal(expected, train({ batch = 2, buffers = 1 }, true, true))
        assert.equal(expected, train({ batch = 2, buffers = 5 }, false, true))
        refused('stale', function() train { batch = 2 } end, 'buffers = 2', 'buffers = N', ':retain()')
        refused('stale', function() train({ batch = 2, buffers = 4 }, false, true) end, 'buffers = 4')
    end)

    it('works on a device whose bytes the host cannot see', function()
        wane.set_device 'mirror'
        local ok, e = pcall(function()
            local t = data.tokens(write 'abcdefghi')
            local x, y = data.batches(t, { batch = 2, length = 3 })()
            assert.are.same({ 'mirror', 'abcdef', 'bcdefg' }, { x.device, t:decode(x), t:decode(y) })
            assert.are.same({ 1, 1 }, { t.counts[1], t.counts[9] })
        end)
        wane.set_device 'cpu'
        assert.is_true(ok, tostring(e))
    end)

    it('refuses what makes no batches', function()
        local t = data.tokens(write 'abcdef')
        refused('value', function() data.batches(t, { batch = 2 }) end, 'length')
        refused('value', function() data.batches(t, { batch = 1, length = 6 }) end, '6 tokens', 'window of 6')
        refused('value', function() data.batches(t, { batch = 3, length = 2 }) end, '2 examples', 'batch of 3')
        refused('value', function() data.batches(numbers(4, 4), {}) end, 'batch')
        refused('value', function() data.batches(numbers(4, 4), { batch = 2, length = 2 }) end, 'for tokens')
        refused('value', function() data.batches(numbers(4, 4), { batch = 2, shufle = true }) end, "'shuffle'")
        refused('shape', function() data.batches({ numbers(4, 4), numbers(3, 3) }, { batch = 2 }) end, 'entry 2',
            '(3) i32', '4')
        refused('value', function() data.batches({ numbers(4, 4), 3 }, { batch = 2 }) end, 'entry 2', '3')
        refused('value', function() data.batches({}, { batch = 2 }) end, 'a list of tensors')
        refused('value', function() data.batches(7, { batch = 2 }) end, '7')
        refused('value', function() return data.batches(numbers(4, 4), { batch = 2 }).epochs end, "'epoch'")
    end)
end)

describe('wn_gather', function()
    it('refuses pieces that do not lie in the value, or do not fit the cell', function()
        local value = wane.eval(wane.arange(10))
        local create = require 'wane.tensor.create'
        local made, first = nil, create.data({ 2, 2 }, 'f32')
        local function gather(from, to, list, length)
            local starts = binding.new('int64_t[?]', 2, list)
            local id = C.wn_gather(to.id, from.id, starts, #list, length)
            if id < 0 then return binding.text(C.wn_status_name(-id)) end
            made = require('wane.tensor').wrap(id)
            return 'ok'
        end
        assert.equal('ok', gather(value, first, { 8, 0 }, 2))
        assert.are.same({ { 8, 9 }, { 0, 1 } }, made:totable())
        assert.equal('value', gather(value, made, { 9, 0 }, 2))
        assert.equal('value', gather(value, made, { 0, -1 }, 2))
        assert.equal('shape', gather(value, made, { 0 }, 2))
        assert.equal('shape', gather(value, made, { 0, 0 }, 3))
        assert.equal('dtype', gather(wane.eval(value:to 'i32'), made, { 0, 0 }, 2))
        assert.equal('value', gather(wane.arange(10), made, { 0, 0 }, 2)) -- not computed
        assert.equal('value', gather(value, wane.zeros(2, 2), { 0, 0 }, 2)) -- no bytes
        assert.equal('value', gather(value, nn.Parameter(wane.zeros(2, 2)), { 0, 0 }, 2)) -- a state
        assert.equal('value', gather(value, wane.tensor(1), { 0 }, 1)) -- a number of the host
        assert.equal('stale', gather(value, first, { 0, 0 }, 2)) -- drawn over
        assert.equal('stale', gather(first, made, { 0, 0 }, 2))
        assert.are.same({ { 8, 9 }, { 0, 1 } }, (made * 1):totable())
    end)
end)
