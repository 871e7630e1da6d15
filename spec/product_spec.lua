-- Checks products beyond their records in spec/cases: by the micro-kernels of every class that this processor runs,
-- and bf16 products through the library, against exact sums rounded once; and PRODUCT_UPDATE, with the cells plain and
-- in panels, against a product and an update one after the other, bit for bit.
local helper = require 'spec.helper'
local array = require 'spec.cases.array'
local tiles = require 'spec.support.tiles'
local ffi = require 'ffi'
local binding = require 'wane.ffi'
local id = require('wane.tensor.op').id
local wane = helper.wane or require 'wane'

ffi.cdef [[
int64_t products_wrong(int threads, int bf16, int64_t batch, int64_t m, int64_t n, int64_t k, int flip_a, int flip_b,
                       int with_bias);
int64_t products_panels_wrong(int threads, int bf16, int which, int64_t m, int64_t n, int64_t k, int turned,
                              int with_bias);
int64_t product_updates_wrong(int threads, int layout, int op, int n_cells, int64_t m, int64_t n, int64_t k, int flip_a,
                              int flip_b);
]]

local LEVEL = tiles.LEVEL

-- Makes a spec of each level up to a number: fn(level, library). It is pending where this machine has no such kernels.
local function each_level(name, most, fn)
    for level = 0, math.min(most, #LEVEL) do
        it(name .. LEVEL[level], function()
            local library = tiles.at(level)
            if not library then return pending(LEVEL[level] .. ' is not on this machine') end
            fn(level, library)
        end)
    end
end

describe('the micro-kernels of products', function()
    local C -- the library of the level that `try` and `try_panels` were given

    local function check(level, bf16, batch, m, n, k)
        for flags = 0, 3 do
            for threads = 1, 3, 2 do
                local ta, tb, bias = flags % 2, math.floor(flags / 2), (m + n + k + flags) % 2
                local wrong = tonumber(C.products_wrong(threads, bf16, batch, m, n, k, ta, tb, bias))
                assert(wrong == 0, ('%s, bf16 %d, %d x (%d, %d, %d), flags %d %d, bias %d, %d threads: %d wrong')
                    :format(LEVEL[level], bf16, batch, m, n, k, ta, tb, bias, threads, wrong))
            end
        end
    end

    -- Checks every product of the lists at one level, for every flag, with 1 and 3 threads.
    local function try(level, bf16, batches, ms, ns, ks)
        C = assert(tiles.at(level))
        for _, batch in ipairs(batches) do
            for _, m in ipairs(ms) do
                for _, n in ipairs(ns) do
                    for _, k in ipairs(ks) do check(level, bf16, batch, m, n, k) end
                end
            end
        end
    end

    each_level('are right: ', 3, function(level)
        for bf16 = level == 3 and 1 or 0, 1 do
            try(level, bf16, { 1, 3 }, { 1, 5, 8, 17, 65 }, { 1, 16, 31, 49, 100 }, { 0, 1, 2, 15, 130 })
            try(level, bf16, { 1 }, { 200, 530 }, { 64, 100 }, { 64, 257 })
            try(level, bf16, { 1 }, { 2, 33 }, { 40 }, { 1301, 4096 })
            try(level, bf16, { 1 }, { 64 }, { 1100 }, { 2, 100 }) -- more columns than a pass of few rows takes
        end
    end)

    -- Checks a layer whose weight is in panels: forward, dX and dW, with panels of 48, and last ones of 16 and 32.
    local function try_panels(level, bf16, rows, inputs, outputs)
        C = assert(tiles.at(level))
        for _, m in ipairs(rows) do
            for _, i in ipairs(inputs) do
                for _, o in ipairs(outputs) do
                    for case = 0, 11 do
                        local which, threads, turned = case % 3, case % 6 < 3 and 1 or 3, case < 6 and 0 or 1
                        local sizes = ({ [0] = { m, o, i }, { m, i, o }, { i, o, m } })[which]
                        local wrong = tonumber(C.products_panels_wrong(threads, bf16, which, sizes[1], sizes[2],
                            sizes[3], turned, (m + i + o) % 2))
                        assert(wrong == 0, ('%s, bf16 %d, %s of %d rows, %d inputs, %d outputs, turned %d, '
                            .. '%d threads: %d wrong'):format(LEVEL[level], bf16,
                            ({ [0] = 'forward', 'dX', 'dW' })[which], m, i, o, turned, threads, wrong))
                    end
                end
            end
        end
    end

    each_level('are right with a weight in panels: ', 3, function(level)
        for bf16 = level == 3 and 1 or 0, 1 do
            try_panels(level, bf16, { 1, 8, 17, 65 }, { 1, 5, 48, 131 }, { 16, 48, 80, 112 })
            try_panels(level, bf16, { 32, 202 }, { 260 }, { 144 })
            try_panels(level, bf16, { 120 }, { 264 }, { 576 }) -- all that is packed of A at a time
            try_panels(level, bf16, { 33 }, { 1301 }, { 48, 112 }) -- several stretches of inputs, of outputs
            try_panels(level, bf16, { 5 }, { 150 }, { 2080 })
            try_panels(level, bf16, { 520 }, { 515 }, { 64 }) -- dX of few steps that cross a panel
            try_panels(level, bf16, { 1, 70 }, { 0 }, { 16, 48 })
            local long = level == 3 and { 2059, 2080 } or { 1040, 1072 } -- dW past the caches
            try_panels(level, bf16, { 3 }, { long[1] }, { long[2] })
        end
    end)

    it('are right where a thread has several tasks', function()
        for level = 0, #LEVEL do
            if tiles.at(level) then
                local bf16 = level == 3 and 1 or 0
                try(level, bf16, { 1 }, { 3100 }, { 40, 90 }, { 12 })
                try(level, bf16, { 1 }, { 45 }, { 6200 }, { 12 })
            end
        end
    end)

    -- A short k takes rows of tiles in one go, whole and cut off on both sides; then come results past the size from
    -- which they go around the caches.
    it('are right where k is short', function()
        for level = 0, #LEVEL do
            if tiles.at(level) then
                try(level, 0, { 1 }, { 805 }, { 515 }, { 3, 64 }) -- more rows than are packed at once
                try(level, 0, { 1 }, { 1027 }, { 1040 }, { 5 })
                try(level, 1, { 1, 2 }, { 141 }, { 171 }, { 5, 32 })
                try(level, 1, { 1 }, { 2059 }, { 2080 }, { 5 })
            end
        end
    end)
end)

-- ---- products that go into updates ----------------------------------------------------------------------------------

local LAYOUT = { [0] = 'plain', 'panels' }
local UPDATES = { { 'accumulate', 1 }, { 'sgd', 1 }, { 'momentum', 2 }, { 'adam', 3 } }

describe('a product that goes straight into an update', function()
    local C -- the library of the level at hand

    local function check(level, layout, update, m, n, k)
        for case = 0, 7 do
            local threads, flip_a, flip_b = case < 4 and 1 or 3, case % 2, math.floor(case / 2) % 2
            local wrong = tonumber(C.product_updates_wrong(threads, layout, id[update[1]], update[2], m, n, k, flip_a,
                flip_b))
            assert(wrong == 0, ('%s, %s of (%d, %d) over %d rows, %s, flags %d %d, %d threads: %d wrong')
                :format(LEVEL[level], update[1], m, n, k, LAYOUT[layout], flip_a, flip_b, threads, wrong))
        end
    end

    each_level('has the bits of both: ', 2, function(level, library)
        C = library
        for layout = 0, 1 do
            for u, update in ipairs(UPDATES) do
                for _, m in ipairs { 16, 48, 80, 112 } do
                    for _, n in ipairs { 1, 7, 48, 131 } do
                        for _, k in ipairs { 1, 32, 128 } do
                            if (m / 16 + n + k) % 2 == u % 2 then check(level, layout, update, m, n, k) end
                        end
                    end
                end
                check(level, layout, update, 400, 531, 33)
            end
        end
    end)
end)

-- ---- through the library ----------------------------------------------------------------------------------------

local word = ffi.new 'union { float f; uint32_t u; }'

local function to_bf16(x)
    word.f = x
    local bits = tonumber(word.u)
    local low = bits % 65536
    local high = (bits - low) / 65536
    if low > 32768 or (low == 32768 and high % 2 == 1) then high = high + 1 end
    return high
end

local function from_bf16(half)
    word.u = half * 65536
    return tonumber(word.f)
end

local seed = 5
local function small_integer()
    seed = (seed * 16807 + 11) % 2147483647
    return seed % 17 - 8
end

local function operand(...)
    local a = array.build({ ... }, small_integer)
    local halves = binding.array('bf16', math.max(1, #a))
    for k = 1, #a do halves[k - 1] = to_bf16(a[k]) end
    return a, wane.from(halves, a.shape, 'bf16')
end

-- Returns the shape, then the 16-bit words of a bf16 tensor, as text.
local function words_of(t)
    local n = array.count(t.shape)
    local halves = binding.array('bf16', math.max(1, n))
    assert.equal('bf16', t.dtype)
    wane.eval(t)
    if n > 0 then binding.check(binding.C.wn_read(t.id, halves, 2 * n)) end
    local out = { table.concat(t.shape, 'x') }
    for k = 0, n - 1 do out[k + 2] = halves[k] end
    return table.concat(out, ' ')
end

local function words_wanted(a)
    local out = { table.concat(a.shape, 'x') }
    for k = 1, #a do out[k + 1] = to_bf16(a[k]) end
    return table.concat(out, ' ')
end

describe('products of bf16', function()
    it('are exact sums, rounded once, for every flag and leading dims that broadcast', function()
        local pairs_of_leads = { { {}, {} }, { { 2 }, {} }, { {}, { 3 } }, { { 2, 1 }, { 3 } }, { { 2, 3 }, { 2, 3 } } }
        for _, size in ipairs { { 3, 4, 5 }, { 7, 0, 2 }, { 0, 3, 2 }, { 19, 133, 50 }, { 2, 1001, 3 } } do
            for _, lead in ipairs(pairs_of_leads) do
                for flags = 0, 3 do
                    local ta, tb = flags % 2 == 1, flags > 1
                    local m, k, n = unpack(size)
                    local x, y = { unpack(lead[1]) }, { unpack(lead[2]) }
                    x[#x + 1], x[#x + 2] = ta and k or m, ta and m or k
                    y[#y + 1], y[#y + 2] = tb and n or k, tb and k or n
                    local a, ta_tensor = operand(unpack(x))
                    local b, tb_tensor = operand(unpack(y))
                    local have = words_of(array.record('matmul', { ta_tensor, tb_tensor },
                        { i = { ta and 1 or 0, tb and 1 or 0 } }))
                    assert.equal(words_wanted(array.matmul(a, b, ta, tb)), have)
                end
            end
        end
    end)

    it('add the bias before they are rounded', function()
        for _, size in ipairs { { 2, 3, 4 }, { 40, 258, 70 }, { 300, 64, 33 }, { 5, 77, 6 } } do
            local m, k, n = unpack(size)
            local x, x_tensor = operand(m, k)
            local w, w_tensor = operand(n, k)
            local b, b_tensor = operand(n)
            local want = array.map(function(v, c) return v + c end, array.matmul(x, w, false, true), b)
            assert.equal(words_wanted(want), words_of(array.record('linear', { x_tensor, w_tensor, b_tensor })))
        end
    end)

    it('keep sums in f32 where bf16 would have lost them', function()
        -- 256 + 1 is 256 in bf16: sums of ones stop there.
        local ones = binding.array('bf16', 1024)
        for k = 0, 1023 do ones[k] = to_bf16(1) end
        local row, column = wane.from(ones, { 1, 1024 }, 'bf16'), wane.from(ones, { 1024, 1 }, 'bf16')
        assert.equal(('1x1 %d'):format(to_bf16(1024)), words_of(row:matmul(column)))
        assert.equal(1024, from_bf16(to_bf16(1024)))
    end)

    it('let what is not a number through', function()
        local x, y = binding.array('bf16', 300), binding.array('bf16', 300)
        for k = 0, 299 do x[k], y[k] = to_bf16(1), to_bf16(1) end
        x[299] = 0x7fc0
        for _, m in ipairs { 1, 100 } do
            local t = wane.from(x, { m, 300 / m }, 'bf16'):matmul(wane.from(y, { 300 / m, m }, 'bf16'))
            local last = tonumber(words_of(t):match ' (%d+)$')
            local value = from_bf16(last)
            assert.is_true(value ~= value)
        end
    end)
end)
