-- Checks that a row has the same bits however many rows are computed with it: a kernel may compute 16 short rows at
-- once (kernels/cpu/row/rows.h), and no result may show it. All rows together are compared with three of them at a
-- time, which are too few for that kernel.
local helper = require 'spec.helper'
local wane = helper.wane
local fingerprint = require('wane.plan.measure').fingerprint

local ROWS, FEW = 45, 3

describe('short rows', function()
    -- Returns ROWS rows of random numbers that show the order of a reduction. In the first 16 rows zeros of both signs
    -- are above all else, so that it shows which was met first. In the other rows two numbers, of equal size and unlike
    -- sign, take the smaller ones of some lanes with them and cancel, so that the order of a sum shows. With `odd` one
    -- element is NaN.
    local function rows(width, odd)
        wane.manual_seed(width)
        local at, column = wane.arange(ROWS * width):reshape(ROWS, width), wane.arange(width)
        local noise = wane.rand(ROWS, width) - 0.5
        local values = wane.where(column:eq(11), wane.full({}, -1e30), noise)
        values = wane.where(column:eq(2), wane.full({}, 1e30), values)
        local below = wane.full({}, -1)
        local zeros = wane.where(column:gt(0), wane.where(noise:lt(0.2), noise * 0, below), below)
        values = wane.where(at:lt(16 * width), zeros, values)
        if odd then values = wane.where(at:eq(20 * width + width - 1), noise / 0 * 0, values) end
        values:retain()
        wane.eval(values)
        return values
    end

    local function same(name, values)
        local all = values[name](values, 2):retain()
        wane.eval(all)
        for from = 1, ROWS, FEW do
            local part = values:narrow(1, from, FEW):retain()
            wane.eval(part)
            local few, cut = part[name](part, 2):retain(), all:narrow(1, from, FEW):retain()
            wane.eval(few, cut)
            assert.equal(fingerprint { few }, fingerprint { cut }, ('%d wide, from %d'):format(values.shape[2], from))
        end
    end

    for _, name in ipairs { 'sum', 'mean', 'max', 'min' } do
        it('have the same ' .. name .. ' alone and among others', function()
            for _, width in ipairs { 1, 5, 16, 37, 64, 255, 256, 300, 511, 512, 530 } do
                same(name, rows(width))
                same(name, rows(width, true))
            end
        end)
    end
end)
