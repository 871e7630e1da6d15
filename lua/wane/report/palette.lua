--- The colours of all reports: one slot a kind of bytes, the same in pictures, in the HTML report and at a terminal.
--
-- A slot is a number from 1 to palette.COUNT. It stands for a colour on white paper, a colour on dark paper, and cues
-- beside hue, so that no reader depends on colour alone: a hatch for areas, a marker for points, a dash for lines and
-- a letter for characters. Kinds have slots of their own, other series take the slots in their order.
--
-- The colours were searched for by number, in the spirit of the palette of Okabe and Ito: every two of them differ by
-- at least 0.09 in OKLab for full colour vision, protanopia, deuteranopia and tritanopia alike, and each has a contrast
-- of at least 3 to its paper (spec/curve_spec.lua computes both).
-- @internal wane.report.palette
local system = require 'wane.system'

local palette = {}

palette.COUNT = 9

palette.paper = { light = '#ffffff', dark = '#15181d' }
palette.ink = { light = '#222222', dark = '#e6e6e6' }
palette.rule = { light = '#dddddd', dark = '#3b414a' } -- lines of scales
palette.mark = { light = '#555555', dark = '#b8bcc2' } -- lines that mark a place

palette.light = { '#2c22b0', '#bc4807', '#12766d', '#4b4200', '#199ddd', '#6b0a4c', '#8444d8', '#d97e00', '#949494' }
palette.dark = { '#8c81ff', '#fc6a00', '#7fe8e4', '#f0ed4d', '#64bcfd', '#d996ae', '#8a3add', '#a35100', '#8a8378' }

-- Paths of hatches in a tile of 8 x 8 pixels; an empty one is a plain area.
palette.hatches = { '', 'M-1 9 L9 -1', 'M-1 -1 L9 9', 'M2 2 h2 M6 6 h2', 'M0 4 H8', 'M4 0 V8', 'M1 4 h2 M5 4 h2',
    'M0 4 H8 M4 0 V8', 'M-1 9 L9 -1 M-1 -1 L9 9' }

-- Dashes of lines (stroke-dasharray); an empty one is a solid line.
palette.dashes = { '', '7 3', '2 3', '10 3 2 3', '4 2', '10 3 2 3 2 3', '1 2', '12 4', '6 2 2 2' }

-- Names of markers, which svg.marker draws.
palette.markers = { 'circle', 'square', 'triangle', 'diamond', 'wedge', 'cross', 'plus', 'hexagon', 'bar' }

local kinds = { parameter = 1, gradient = 2, optimizer = 3, buffer = 4, input = 5, result = 6, activation = 7,
    workspace = 8, host = 9 }

-- Letters of kinds in charts of characters. No two kinds share one.
local letters = { parameter = 'P', gradient = 'G', optimizer = 'O', buffer = 'B', input = 'I', result = 'R',
    activation = 'A', workspace = 'W', host = 'H' }

-- Colours of slots at a terminal of 256 colours. They lie between black and white, because the paper is unknown.
local ansi = { 63, 166, 36, 100, 39, 132, 135, 172, 245 }

--- Returns the slot of a number, counted round.
-- @param k number from 1
function palette.slot(k)
    return (k - 1) % palette.COUNT + 1
end

--- Returns the slot of a kind of bytes, or nil for another name.
-- @param name of the kind, such as 'parameter'
function palette.of_kind(name)
    return kinds[name]
end

--- Returns the letter of a series: that of its kind, else one of the alphabet by its number.
-- @param name of the series
-- @param k its number
function palette.letter(name, k)
    return letters[name] or string.char(97 + (k - 1) % 26)
end

--- Returns what a legend lists of series: a list of { name =, slot = that of its kind, else of its number, letter = }.
-- @param series list of { name = }
function palette.items(series)
    local items = {}
    for k, each in ipairs(series) do
        items[k] = { name = each.name, slot = kinds[each.name] or palette.slot(k),
            letter = palette.letter(each.name, k) }
    end
    return items
end

--- Returns a text in the colour of a slot, where standard output takes colours.
-- @param text to colour
-- @param slot number, or nil for the text as it is
function palette.paint(text, slot)
    if slot == nil or text == '' or not system.has_color(1) then return text end
    return ('\27[38;5;%dm%s\27[39m'):format(ansi[palette.slot(slot)], text)
end

return palette
