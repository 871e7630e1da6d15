-- Checks non-temporal stores (kernels/cpu/common/nontemporal.h), which kernels use for outputs larger than the caches:
-- what an op gives for a large value must have the bits of what it gives for parts of that value small enough for
-- ordinary stores. Rows of 1031 elements end inside cache lines; 8400 of them are past the limit of 32 MiB, 4000 are
-- not. A processor whose last cache is larger has a higher limit, and the sanitizers a lower one.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local wane = helper.wane
local fingerprint, record = require('wane.plan.measure').fingerprint, require('wane.tensor.op').record

local ROWS, WIDTH, FIRST, LIMIT = 8400, 1031, 4000, 32 * 2 ^ 20

-- Sets the limits of this process, at most to those that the processor has; nil: to those.
local function limit(bytes)
    for _, row in ipairs(require('wane.plan.costs.tuning').rows()) do
        local value = row.name:find '^stream_least' and math.min(bytes or row.preset, row.preset)
        if value then binding.check(binding.C.wn_tune(row.number, value)) end
    end
end

describe('outputs past the caches have the bits of ordinary ones:', function()
    local x, y, mask, row, column, ids, mean, rstd, table_, places

    setup(function()
        limit(LIMIT)
        wane.manual_seed(11)
        x, y = (wane.rand(ROWS, WIDTH) * 2 - 1):retain(), (wane.rand(ROWS, WIDTH) * 2 - 1):retain()
        mask, row, column = x:gt(y):retain(), wane.rand(WIDTH):retain(), wane.rand(ROWS, 1):retain()
        ids = wane.randint(0, WIDTH, { ROWS, WIDTH }):retain()
        mean, rstd = wane.rand(ROWS):retain(), (wane.rand(ROWS) + 0.5):retain()
        table_, places = wane.rand(900, WIDTH):retain(), wane.randint(0, 900, { ROWS }):retain()
        wane.eval(x, y, mask, row, column, ids, mean, rstd, table_, places)
    end)
    teardown(function() limit(nil) end)

    -- Returns the rows [from, from + n) of a value that has rows, any other value whole.
    local function part(v, from, n)
        if type(v) ~= 'table' or v.shape[1] ~= ROWS then return v end
        return v:narrow(1, from, n)
    end

    -- Checks that fn of all rows has the bits of fn of the first and of the last ones, which are computed apart.
    local function same(fn, ...)
        local inputs = { ... }
        local whole = fn(unpack(inputs)):retain()
        wane.eval(whole)
        for _, from in ipairs { 1, ROWS - FIRST + 1 } do
            local parts = {}
            for i, v in ipairs(inputs) do parts[i] = part(v, from, FIRST):retain() end
            wane.eval(unpack(parts))
            local small = fn(unpack(parts)):retain()
            local cut = whole:narrow(1, from, FIRST):retain()
            wane.eval(small, cut)
            assert.equal(fingerprint { small }, fingerprint { cut })
        end
    end

    local function op(name, attrs)
        return function(...) return record(name, { ... }, attrs) end
    end
    local along = { i = { 1 }, n = 1 }

    it('of elementwise ops', function()
        for _, name in ipairs { 'relu', 'gelu', 'exp', 'neg' } do same(op(name), x) end
        for _, name in ipairs { 'add', 'mul', 'div', 'relu_grad', 'gelu_grad' } do same(op(name), x, y) end
        for _, other in ipairs { row, column } do
            same(op 'sub', x, other)
            same(op 'sub', other, x)
        end
        for _, dtype in ipairs { 'f64', 'i32', 'bf16', 'u8' } do
            same(function(v) return (v * 1000):to(dtype):to 'f32' end, x)
        end
    end)

    it('of where', function()
        same(op 'where', mask, x, y)
        same(op 'where', mask, x, column)
        same(op 'where', mask, row, y)
        same(function(m, v) return record('where', { m, wane.full({}, 0.5), v }) end, mask, x)
    end)

    it('of rows', function()
        for _, name in ipairs { 'softmax', 'log_softmax' } do
            same(op(name, along), x)
            same(op(name .. '_grad', along), x, y)
        end
        same(op 'layernorm', x, mean, rstd, row, row)
        same(op 'layernorm_dx', y, x, mean, rstd, row)
        same(function(v, w) return record('extreme_grad', { w:sum(2), v, v:max(2) }, along) end, x, y)
    end)

    it('of images', function()
        local twice = { i = { 2 * 2 ^ 32 + 1, 0, 0, 2 ^ 32 + 1 } }
        same(function(v)
            return record('upsample2d', { v:narrow(2, 1, 528):reshape(v.shape[1], 528, 1, 1) }, twice)
        end, x)
        same(function(v, w)
            local function image(t) return t:reshape(t.shape[1], WIDTH, 1, 1) end
            return record('batch_norm_dx', { image(v), image(w), row, row, row, wane.full({ 2, WIDTH }, 0) })
        end, x, y)
    end)

    it('of picked and moved elements', function()
        same(op('gather', along), x, ids)
        same(op('gather_grad', { i = { 1, WIDTH } }), x, ids)
        same(function(v) return record('embedding', { table_, v }) end, places)
        local lines = wane.rand(900, 1040):retain()
        wane.eval(lines)
        same(function(v) return record('embedding', { lines, v }) end, places)
        same(function(v, w) return wane.cat({ v, w }, 2) end, x, y)
        same(op('narrow', { i = { 1, 3, WIDTH - 4 } }), x)
        same(op('narrow_grad', { i = { 1, 3, WIDTH + 20 } }), x)
        same(function(v) return v:permute(2, 1):permute(2, 1) end, x)
        same(function(v) return record('expand', { v }, { i = { v.shape[1], WIDTH } }) end, column)
    end)

    it('of rows that change places', function()
        for _, width in ipairs { 80, 75 } do
            local v = wane.rand(600, 64, 4, width):retain()
            local moved, last = v:permute(1, 3, 2, 4):retain(), v:narrow(1, 501, 100):retain()
            wane.eval(v, moved, last)
            local large, small = moved:narrow(1, 501, 100):retain(), last:permute(1, 3, 2, 4):retain()
            wane.eval(large, small)
            assert.equal(fingerprint { small }, fingerprint { large })
        end
    end)

    it('of a transpose, with parts of lines and of whole ones', function()
        for _, v in ipairs { x, wane.rand(8416, 1040):retain() } do
            local turned = v:permute(2, 1):retain()
            wane.eval(v, turned)
            for _, at in ipairs { 1, 17, WIDTH - 99 } do
                local a, b = turned:narrow(1, at, 100):retain(), v:narrow(2, at, 100):permute(2, 1):retain()
                wane.eval(a, b)
                assert.equal(fingerprint { a }, fingerprint { b })
            end
        end
    end)

    -- The table's size alone says whether it streams: rows that nobody reads change nothing in the others.
    it('of the gradient of a table, with parts of lines and of whole ones', function()
        for _, width in ipairs { WIDTH, 1024 } do
            local dy, at = wane.rand(12000, width):retain(), wane.randint(0, 900, { 12000 }):retain()
            wane.eval(dy, at)
            local large = record('embedding_grad', { dy, at }, { i = { 8400 } }):retain()
            local small = record('embedding_grad', { dy, at }, { i = { 900 } }):retain()
            local head, rest = large:narrow(1, 1, 900):retain(), large:narrow(1, 901, 7500):abs():max()
            wane.eval(large, small, head)
            assert.equal(fingerprint { small }, fingerprint { head })
            assert.equal(0, rest:item())
        end
    end)

    it('of numbers drawn and made', function()
        local function drawn(rows, fn)
            wane.manual_seed(5)
            local v = fn(rows):narrow(1, 1, FIRST):retain()
            wane.eval(v)
            return fingerprint { v }
        end
        for _, fn in ipairs {
            function(n) return wane.rand(n, WIDTH) end,
            function(n) return wane.full({ n, WIDTH }, 0.25) end,
            function(n) return wane.arange(n * WIDTH):reshape(n, WIDTH) end,
            function(n) return record('dropout', { x:narrow(1, 1, n) }, { f = { 0.3 } }) end,
        } do
            assert.equal(drawn(FIRST, fn), drawn(ROWS, fn))
        end
    end)
end)
