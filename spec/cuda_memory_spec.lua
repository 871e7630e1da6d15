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
local op = require 'wane.tensor.op'

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

-- Returns what differs between two lists of numbers, or nil. NaN equals NaN alone, whatever its bits.
local function difference(have, want)
    for i = 1, #want do
        local a, b = have[i], want[i]
        if not (a == b and 1 / a == 1 / b or (a ~= a and b ~= b)) then
            return ('element %d is %s, the CPU has %s'):format(i, tostring(a), tostring(b))
        end
    end
end

-- Returns the result of call(tensors) on a device, as { bytes =, values = }.
local function result(call, arrays, device)
    return scoped('device', device, function()
        local y = call(unpack(case_inputs.tensors(arrays, device)))
        return { bytes = gradcheck.bytes(y), values = gradcheck.values(y) }
    end)
end

-- Fails unless call(tensors) has the CPU's bits on the GPU in every order, without races. least: conflicts of banks a
-- call of shared memory that are too many.
local function check(what, call, arrays, most)
    local want = result(call, arrays, CPU)
    for _, order in ipairs(is_simulated and ORDERS or { {} }) do
        if is_simulated then
            sim.schedule(unpack(order))
            sim.touched()
        end
        local have = result(call, arrays, CUDA)
        local wrong = have.bytes ~= want.bytes and difference(have.values, want.values)
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
