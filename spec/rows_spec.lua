-- Checks that a row has the same bits however many rows are computed with it: a kernel may compute 16 short rows at
-- once (kernels/cpu/row/rows.h), and no result may show it. All rows together are compared with three of them at a
-- time, which are too few for that kernel.
local helper = require 'spec.helper'
local wane = helper.wane
local create = require 'wane.tensor.create'
local fingerprint = require('wane.plan.measure').fingerprint
local record = require('wane.tensor.op').record

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

-- ---- images ---------------------------------------------------------------------------------------------------------

local PLAIN, NHWC, PANELS = 0, 2, 3 -- runtime/base/layout.h

local function pair(a)
    return a * 2 ^ 32 + a
end

local function held(t, layout)
    return create.laid(t, layout):retain()
end

-- Shapes: images, inputs, outputs, kernel, size, stride.
local SHAPES = {
    { 5, 64, 64, 3, 12, 1 },
    { 5, 37, 53, 3, 12, 1 },
    { 9, 48, 144, 3, 19, 2 },
    { 4, 400, 80, 1, 29, 2 },
    { 5, 16, 608, 5, 11, 1 },
    { 5, 608, 16, 3, 11, 1 },
}

-- Records y or dx of images x.
local function images_of(name, x, w, s)
    local at = { pair(s[6]), pair(math.floor(s[4] / 2)), pair(1), 1 }
    if name == 'conv2d_dx' then at[5] = pair(s[5]) end
    return record(name, { x, w }, { i = at })
end

describe('an image among others', function()
    if helper.device ~= 'cpu' then return end -- spec/cuda_op_spec.lua tries a GPU

    for _, dtype in ipairs { 'f64', 'bf16' } do -- f32 may be by Winograd's method where images are many
        for _, name in ipairs { 'conv2d', 'conv2d_dx' } do
            it(('has the bits that it has alone: %s, %s'):format(name, dtype), function()
                for _, s in ipairs(SHAPES) do
                    local n, c, o, k, size, stride = unpack(s)
                    local w = held(wane.randn(o, c, k, k, { dtype = dtype }), o % 16 == 0 and PANELS or PLAIN)
                    local out = math.floor((size + 2 * math.floor(k / 2) - k) / stride) + 1
                    local side, channels = name == 'conv2d' and size or out, name == 'conv2d' and c or o
                    local x = wane.eval(wane.randn(n, channels, side, side, { dtype = dtype }):retain())
                    local all = wane.eval(images_of(name, held(x, NHWC), w, s):retain())
                    for i = 1, n do
                        local one = images_of(name, held(x:narrow(1, i, 1), NHWC), w, s)
                        assert.equal(0, (all:narrow(1, i, 1) - one):abs():max():item(), table.concat(s, ' '))
                    end
                    assert.is_true(all:abs():max():item() > 1)
                end
            end)
        end
    end
end)
