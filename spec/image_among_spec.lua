-- Checks that an image among others has the bits of a convolution that it has alone, whose blocks and micro-tiles are
-- other ones (kernels/cpu/conv/images.c).
require 'spec.helper'
local wane = require 'wane'
local create = require 'wane.tensor.create'
local record = require('wane.tensor.op').record

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
