-- Checks the colours of reports: whoever sees colours as most people do, or lacks one of the three kinds of cones, must
-- tell every two of them apart, on white and on dark paper; and each has a cue beside hue that no other has.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local palette = require 'wane.report.palette'

-- SEEN holds matrices that turn linear RGB into what is seen with full colour vision, and without one kind of cones:
-- those of Machado, Oliveira and Fernandes (2009) for a severity of 1.
local SEEN = {
    full = { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
    protanopia = { { 0.152286, 1.052583, -0.204868 }, { 0.114503, 0.786281, 0.099216 },
        { -0.003882, -0.048116, 1.051998 } },
    deuteranopia = { { 0.367322, 0.860646, -0.227968 }, { 0.280085, 0.672501, 0.047413 },
        { -0.011820, 0.042940, 0.968881 } },
    tritanopia = { { 1.255528, -0.076749, -0.178779 }, { -0.078411, 0.930809, 0.147602 },
        { 0.004733, 0.691367, 0.303900 } },
}

-- Returns the linear RGB of a colour such as '#2c22b0'.
local function linear(text)
    local out = {}
    for hex in text:sub(2):gmatch '%x%x' do
        local c = tonumber(hex, 16) / 255
        out[#out + 1] = c <= 0.04045 and c / 12.92 or ((c + 0.055) / 1.055) ^ 2.4
    end
    return out
end

local function times(matrix, v)
    local out = {}
    for i, row in ipairs(matrix) do out[i] = row[1] * v[1] + row[2] * v[2] + row[3] * v[3] end
    return out
end

-- Returns a linear RGB in OKLab.
local function oklab(rgb)
    local cones = times({ { 0.4122214708, 0.5363325363, 0.0514459929 }, { 0.2119034982, 0.6806995451, 0.1073969566 },
        { 0.0883024619, 0.2817188376, 0.6299787005 } }, rgb)
    for i = 1, 3 do cones[i] = cones[i] ^ (1 / 3) end
    return times({ { 0.2104542553, 0.7936177850, -0.0040720468 }, { 1.9779984951, -2.4285922050, 0.4505937099 },
        { 0.0259040371, 0.7827717662, -0.8086757660 } }, cones)
end

local function seen_as(matrix, text)
    local rgb = times(matrix, linear(text))
    for i = 1, 3 do rgb[i] = math.min(1, math.max(0, rgb[i])) end
    return oklab(rgb)
end

local function distance(a, b)
    return math.sqrt((a[1] - b[1]) ^ 2 + (a[2] - b[2]) ^ 2 + (a[3] - b[3]) ^ 2)
end

-- Returns the contrast of two colours by the rule of WCAG 2.
local function contrast(a, b)
    local function light(text)
        local rgb = linear(text)
        return 0.2126 * rgb[1] + 0.7152 * rgb[2] + 0.0722 * rgb[3] + 0.05
    end
    local x, y = light(a), light(b)
    return math.max(x, y) / math.min(x, y)
end

describe('the colours of reports', function()
    it('are measured rightly', function()
        assert.is_true(math.abs(contrast('#ffffff', '#000000') - 21) < 1e-9)
        assert.is_true(math.abs(distance(oklab { 1, 1, 1 }, oklab { 0, 0, 0 }) - 1) < 1e-3)
        local red, green = seen_as(SEEN.deuteranopia, '#c06000'), seen_as(SEEN.deuteranopia, '#808000')
        assert.is_true(distance(red, green) < 0.09) -- two that look alike without the middle cones
    end)

    for _, theme in ipairs { 'light', 'dark' } do
        it(('on %s paper can be told apart by every reader'):format(theme), function()
            local colours = palette[theme]
            assert.equal(palette.COUNT, #colours)
            for name, matrix in pairs(SEEN) do
                for i = 1, #colours do
                    for k = i + 1, #colours do
                        local d = distance(seen_as(matrix, colours[i]), seen_as(matrix, colours[k]))
                        assert.is_true(d >= 0.09, ('%s: %s and %s, %.3f'):format(name, colours[i], colours[k], d))
                    end
                end
            end
        end)

        it(('on %s paper stand out from it, as words and marks do'):format(theme), function()
            for _, colour in ipairs(palette[theme]) do
                assert.is_true(contrast(colour, palette.paper[theme]) >= 3, colour)
            end
            assert.is_true(contrast(palette.ink[theme], palette.paper[theme]) >= 7)
            assert.is_true(contrast(palette.mark[theme], palette.paper[theme]) >= 4.5)
        end)
    end

    it('come with cues beside hue: a hatch, a marker, a dash and a letter', function()
        for _, list in ipairs { palette.hatches, palette.markers, palette.dashes } do
            local seen = {}
            assert.equal(palette.COUNT, #list)
            for _, cue in ipairs(list) do
                assert.is_nil(seen[cue], cue)
                seen[cue] = true
            end
        end
    end)

    it('belong to kinds: every kind of bytes has a colour and a letter of its own', function()
        local slots, letters, program = {}, {}, require 'wane.program'
        for kind = 0, #program.kinds do
            local name = program.kinds[kind]
            local slot, letter = palette.of_kind(name), palette.letter(name, 1)
            assert.is_truthy(slot and not slots[slot], name)
            assert.is_truthy(letter:match '^%u$' and not letters[letter], name)
            slots[slot], letters[letter] = true, true
        end
    end)

    it('stay out of what is no terminal', function()
        assert.equal('x', palette.paint('x', 1))
        local code = "package.path='lua/?.lua;'..package.path local p = require'wane.report.palette' "
            .. "io.write(p.paint('x', 1), p.paint('y'), '.')"
        for variables, text in pairs { ['TERM=xterm'] = '\27[38;5;63mx\27[39my.', ['TERM=dumb'] = 'xy.',
            ['TERM=xterm NO_COLOR=1'] = 'xy.' } do
            local shown = helper.shell(('%s %s ${LUAJIT:-luajit} -e "%s"'):format(variables, native.terminal(), code))
            assert.equal(text, shown:match '^[^\n]*%.', variables)
        end
    end)
end)
