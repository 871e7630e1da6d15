-- Checks kernels of a GPU that memory bounds where the records of spec/cases do not reach: random shapes, rows that end
-- anywhere, and numbers among which are NaN, infinities, -0 and tiny ones. The bits are the CPU's, in several orders of
-- threads on the simulated device; and where that watches memory, no two threads race and few calls of shared memory
-- meet in a bank.
require 'spec.helper'
local array = require 'spec.cases.array'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local sim = require 'spec.support.cudasim'
local scoped = require 'wane.scoped'
local op, create = require 'wane.tensor.op', require 'wane.tensor.create'

local CPU = op.device('cpu', 'spec')
local has_cuda, CUDA = pcall(op.device, 'cuda', 'spec')
local is_simulated = has_cuda and not sim.missing()
local record, unpack = array.record, unpack

local ORDERS = { { 'eager', 1, 'forward' }, { 'random', 3, 'shuffled' }, { 'eager', 1, 'ahead' },
    { 'lazy', 1, 'reverse' } }
local ODD = { 0 / 0, 1 / 0, -1 / 0, -0.0, 0, 1e-40, -1e-40, 3e38, -3e38 }

-- Returns an array of normal numbers times 4, of which one in `every` is one of ODD; nil: none is.
local function numbers(shape, dtype, u, every)
    local out = case_inputs.array(shape, dtype, u)
    for k = 1, #out do
        out[k] = out[k] * 4
        if every and u() * every < 1 then out[k] = ODD[1 + math.floor(u() * #ODD)] end
    end
    return out
end

-- Returns a whole number of [least, most].
local function draw(u, least, most) return least + math.floor(u() * (most - least + 1)) end

-- Fails unless call(tensors) has the CPU's bits on the GPU in every order, without races. least: conflicts of banks a
-- call of shared memory that are too many.
local function check(what, call, arrays, most)
    local want = case_inputs.run_on(CPU, call, arrays)
    for _, order in ipairs(is_simulated and ORDERS or { {} }) do
        if is_simulated then
            sim.schedule(unpack(order))
            sim.touched()
        end
        local have = case_inputs.run_on(CUDA, call, arrays)
        local wrong = case_inputs.other(have, want)
        assert(not wrong, ('%s, threads %s: %s'):format(what, order[3], tostring(wrong)))
        local t = is_simulated and sim.touched()
        if t then
            assert(t.races == 0, what .. ': ' .. sim.report())
            assert(t.conflicts <= (most or 0.01) * t.shared_calls, ('%s: %d conflicts in %d calls'):format(what,
                t.conflicts, t.shared_calls))
        end
    end
    if is_simulated then sim.reset() end
end

local function shape_of(a) return table.concat(a.shape, ' x ') end

describe('a sum down columns on a GPU', function()
    if not has_cuda then
        pending('is simulated by what a C++ compiler makes of its kernels: make cudasim')
        return
    end

    -- Sums an array over a dim, counted from 0, or over two.
    local function sum(what, a, dim, kind, other)
        local attrs = { i = { dim, other or 0, 0, 0, 0, 0, 0, 0 }, n = other and 2 or 1 }
        check(what .. ', ' .. shape_of(a), function(x) return record(kind or 'sum', { x }, attrs) end, { a })
    end

    it('of bf16 adds tiles of rows in the order of one thread', function()
        local u = case_inputs.stream 'columns of bf16'
        for _, shape in ipairs { { 64, 32 }, { 65, 64 }, { 256, 72 }, { 257, 136 }, { 447, 40 }, { 2050, 64 } } do
            sum('tiles', numbers(shape, 'bf16', u), 0)
        end
        for _ = 1, 6 do
            local shape = { draw(u, 64, 700), 8 * draw(u, 4, 20) }
            sum('tiles', numbers(shape, 'bf16', u, 400), 0)
            sum('slabs', numbers({ 2, shape[1], 8 * draw(u, 4, 9) }, 'bf16', u, 400), 1, 'mean')
        end
    end)

    it('of bf16 adds rows that lie on no 16 bytes', function()
        local u = case_inputs.stream 'odd columns of bf16'
        for _, shape in ipairs { { 130, 33 }, { 64, 34 }, { 200, 44 }, { 65, 70 } } do
            sum('odd', numbers(shape, 'bf16', u, 300), 0)
        end
        sum('slabs', numbers({ 3, 70, 20 }, 'bf16', u), 1)
    end)

    it('of few rows loads many at once, in any form', function()
        local u = case_inputs.stream 'few rows'
        for _, rows in ipairs { 1, 2, 15, 16, 17, 31, 32, 33, 48, 63 } do
            for _, kind in ipairs { 'sum', 'mean', 'max', 'min' } do
                local dtype = ({ 'f32', 'bf16', 'f64' })[draw(u, 1, 3)]
                sum(kind .. ' of ' .. dtype, numbers({ rows, draw(u, 1, 150) }, dtype, u, 60), 0, kind)
                sum(kind .. ' of ' .. dtype, numbers({ draw(u, 1, 4), draw(u, 1, 40), draw(u, 1, 5), draw(u, 2, 9) },
                    dtype, u, 60), 0, kind, 2)
            end
            sum('i32', case_inputs.array({ rows, 70, gen = 'int:1000' }, 'i32', u), 0)
        end
    end)

    it('of few outputs joins its chunks in order', function()
        local u = case_inputs.stream 'chunks'
        for _, kind in ipairs { 'sum', 'max' } do
            sum(kind, numbers({ 5003, 9 }, 'f32', u, 9000), 0, kind)
            sum(kind, numbers({ 3, 33000 }, 'bf16', u, 90000), 1, kind)
            sum(kind, numbers({ 4099, 40 }, 'bf16', u, 9000), 0, kind)
            sum(kind, numbers({ 2, 4097, 35 }, 'f32', u, 9000), 1, kind)
            sum(kind, numbers({ 65, 2, 33, 17 }, 'f32', u, 9000), 0, kind, 2) -- a piece begins within a run
        end
    end)
end)

describe('a softmax on a GPU', function()
    if not has_cuda then return end

    local function softmax(a, dim)
        check(a.dtype .. ' ' .. shape_of(a), function(x)
            return record('softmax', { x }, { i = { dim or 1 } })
        end, { a })
    end

    it('reads rows on 16 bytes once, to the same bits', function()
        local u = case_inputs.stream 'softmax'
        for dtype, wide in pairs { bf16 = 8, f32 = 4 } do
            for _, chunks in ipairs { 1, 2, 3, 15, 16, 17, 33, 127, 128, 129, 130, 511, 512, 513 } do
                softmax(numbers({ draw(u, 1, chunks > 200 and 3 or 9), chunks * wide }, dtype, u))
            end
            for _ = 1, 4 do softmax(numbers({ draw(u, 1, 12), wide * draw(u, 1, 60) }, dtype, u, 400)) end
        end
    end)

    it('treats rows that end elsewhere, and columns', function()
        local u = case_inputs.stream 'odd softmax'
        for _, dtype in ipairs { 'bf16', 'f32' } do
            for _, n in ipairs { 1, 2, 13, 67, 1025 } do softmax(numbers({ 5, n }, dtype, u, 200), 1) end
            softmax(numbers({ 3, 14, 5 }, dtype, u, 100))
        end
    end)

    it('treats rows of infinities, zeros and NaN', function()
        local inf, lists = math.huge, {}
        for k, v in ipairs { { -inf, -inf }, { inf, 1 }, { inf, inf }, { 0 / 0, 1 }, { -0.0, 0 }, { -inf, 0 },
            { 3e38, -3e38 }, { 1e-40, -1e-40 }, { 200, 0 }, { 104, 0 }, { 87.5, 0 } } do
            for i = 1, 16 do lists[(k - 1) * 16 + i] = v[i % 3 == 0 and 2 or 1] end
        end
        for _, dtype in ipairs { 'bf16', 'f32' } do
            softmax(case_inputs.array({ 11, 16, values = lists }, dtype))
        end
    end)
end)

describe('rows and dims that a GPU moves', function()
    if not has_cuda then return end

    it('are read by index, whatever the bytes of a row', function()
        local u = case_inputs.stream 'embedding'
        local widths = { bf16 = { 8, 24, 248, 256, 264, 1032, 2600, 2, 6, 70, 130, 1, 35 },
            f32 = { 1, 4, 12, 33, 512, 700 }, f64 = { 2, 5, 300 } }
        for dtype, list in pairs(widths) do
            for _, width in ipairs(list) do
                local rows, n = draw(u, 1, 9), draw(u, 1, 40)
                local ids = case_inputs.array({ n, gen = 'int:' .. rows }, 'i32', u)
                check(('%s, %d of %d rows of %d'):format(dtype, n, rows, width), function(x, i)
                    return record('embedding', { x, i })
                end, { numbers({ rows, width }, dtype, u, 50), ids })
            end
        end
    end)

    it('are turned by tiles', function()
        local u = case_inputs.stream 'tiles'
        local function turned(dtype, shape, order)
            local a = numbers(shape, dtype, u, 100)
            check(dtype .. ' ' .. shape_of(a), function(x)
                return record('permute', { x }, { i = order })
            end, { a })
        end
        for _, dtype in ipairs { 'bf16', 'f32', 'f64' } do
            for _, shape in ipairs { { 64, 64 }, { 66, 130 }, { 128, 62 }, { 8, 200 }, { 65, 66 }, { 34, 67 } } do
                turned(dtype, shape, { 1, 0 })
            end
            for _ = 1, 4 do
                local even = 2 * draw(u, 0, 1) + 1
                local a, b = even * draw(u, 8, 40), 2 * draw(u, 8, 40)
                turned(dtype, { draw(u, 1, 4), a, b }, { 0, 2, 1 })
                turned(dtype, { a, draw(u, 1, 4), b }, { 2, 1, 0 })
                turned(dtype, { draw(u, 1, 3), 8, 10, 12 }, { 3, 0, 2, 1 })
            end
        end
    end)
end)

describe('a function of many bf16 on a GPU', function()
    if not has_cuda then return end

    local ROWS, ALL = 64, 65536 + 8 -- all bf16, and a few again: the last block has some packs
    local ffi = require 'ffi'

    -- Returns the bits of call(x, dy) on a device. x: (ROWS, ALL) of all bf16; dy: another number a row.
    local function bits(call, device)
        return scoped('device', device, function()
            local all, each = ffi.new('uint16_t[?]', ALL), ffi.new('uint16_t[?]', ROWS)
            for k = 0, ALL - 1 do all[k] = k % 65536 end
            for k = 0, ROWS - 1 do each[k] = 0x3f80 + 37 * k + k % 2 * 0x8000 end
            each[1], each[2], each[3] = 0x7fc0, 0x7f80, 0x8000
            local x, dy = create.data({ 1, ALL }, 'bf16', device, all), create.data({ ROWS, 1 }, 'bf16', device, each)
            local function wide(t) return record('expand', { t }, { i = { ROWS, ALL } }) end
            return gradcheck.bytes(call(wide(x), wide(dy)))
        end)
    end

    local function is_nan(half) return half % 0x8000 > 0x7f80 end

    for _, name in ipairs { 'gelu', 'silu', 'tanh', 'sigmoid', 'gelu_grad', 'silu_grad' } do
        it('has the bits of the formula for every input: ' .. name, function()
            local function call(x, dy) return record(name, name:find 'grad' and { dy, x } or { x }) end
            if is_simulated then sim.touched() end
            local have, want = bits(call, CUDA), bits(call, CPU)
            assert(#have == 2 * ROWS * ALL and #have == #want)
            local a, b = ffi.cast('const uint16_t *', have), ffi.cast('const uint16_t *', want)
            for k = 0, ROWS * ALL - 1 do
                if a[k] ~= b[k] and not (is_nan(a[k]) and is_nan(b[k])) then
                    error(('%s of 0x%04x is 0x%04x, not 0x%04x'):format(name, k % ALL % 65536, a[k], b[k]))
                end
            end
            local t = is_simulated and sim.touched()
            assert(not t or t.races == 0, t and sim.report())
        end)
    end
end)

describe('a sort of long lines on a GPU', function()
    if not has_cuda then return end

    local function sort(a, dim, turned)
        check(a.dtype .. ' ' .. shape_of(a), function(x)
            return record('argsort', { x }, { i = { dim, turned and 1 or 0 } })
        end, { a }, 32)
    end

    it('keeps the order of equals, and has NaN last, up and down', function()
        local u = case_inputs.stream 'sort'
        for _, dtype in ipairs { 'f32', 'bf16', 'f64' } do
            sort(numbers({ draw(u, 2049, 4095) }, dtype, u, 5), 0, false)
            sort(numbers({ draw(u, 4097, 13000) }, dtype, u, 5), 0, true)
            sort(numbers({ 2, 4096 }, dtype, u, 50), 1, true)
            sort(numbers({ 2, 2100, 3 }, dtype, u, 5), 1, false)
        end
        for _, most in ipairs { 1, 3, 300, 70000, 2 ^ 31 - 1 } do
            local a = case_inputs.array({ 5000, gen = 'int:' .. most }, 'i32', u)
            for k = 2, #a, 3 do a[k] = -1 - a[k] end
            sort(a, 0, most % 2 == 0)
        end
    end)
end)
