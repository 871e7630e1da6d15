--- A canvas of characters: dots in braille or as full stops, and marks over them, with a scale beside it.
-- @internal wane.report.canvas
local palette = require 'wane.report.palette'
local scale = require 'wane.report.scale'

local canvas = {}

local WEIGHT = { [0] = { [0] = 1, 8 }, { [0] = 2, 16 }, { [0] = 4, 32 }, { [0] = 64, 128 } } -- of dots in braille

--- Makes a canvas of columns x rows characters; a character has 2 x 4 dots.
-- @param columns number
-- @param rows number
-- @param is_braille whether dots are drawn in braille; else a character with a dot is a full stop
-- @return { wide =, high = (dots), dot(x, y, slot), mark(x, y, text, is_over, slot), line(row) }. `slot` is the colour
-- of a character (optional). A mark replaces another one where is_over is true; else both become '*'.
function canvas.new(columns, rows, is_braille)
    local dots, marks, slots = {}, {}, {}
    local made = { wide = columns * 2, high = rows * 4, columns = columns, rows = rows }
    function made.dot(x, y, slot)
        x, y = math.floor(x), math.floor(y)
        if x < 0 or y < 0 or x >= made.wide or y >= made.high then return end
        local at = math.floor(y / 4) * columns + math.floor(x / 2)
        dots[at] = bit.bor(dots[at] or 0, WEIGHT[y % 4][x % 2])
        slots[at] = slot or slots[at]
    end
    function made.mark(x, y, text, is_over, slot)
        local column = math.min(columns - 1, math.max(0, math.floor(x / 2)))
        local at = math.min(rows - 1, math.max(0, math.floor(y / 4))) * columns + column
        marks[at] = marks[at] and not is_over and '*' or text
        slots[at] = slot or slots[at]
    end
    function made.line(row)
        local out = {}
        for column = 0, columns - 1 do
            local at = row * columns + column
            local n = dots[at]
            local drawn = n and (is_braille and '\226' .. string.char(160 + math.floor(n / 64), 128 + n % 64) or '.')
            out[#out + 1] = palette.paint(marks[at] or drawn or ' ', (marks[at] or drawn) and slots[at])
        end
        return table.concat(out)
    end
    return made
end

-- Returns a number beside an axis as short text.
local function short(value) return ('%.3g'):format(value) end

--- Returns the lines of a canvas with the scale of y at its left, and the line below it.
-- @param made a canvas
-- @param low_y number at its lower edge
-- @param high_y number at its upper edge
-- @return list of lines
function canvas.lines(made, low_y, high_y)
    local out = {}
    for row = 0, made.rows - 1 do
        local label = row == 0 and short(high_y) or row == made.rows - 1 and short(low_y) or ''
        out[row + 1] = (('%8s |'):format(label) .. made.line(row)):gsub('%s+$', '')
    end
    out[made.rows + 1] = (' '):rep(9) .. '+' .. ('-'):rep(made.columns)
    return out
end

--- Returns the line below a canvas that says where the axis of x begins and ends.
-- @param made a canvas
-- @param low_x number at its left edge
-- @param high_x number at its right edge
-- @param title of the axis
function canvas.footer(made, low_x, high_x, title)
    local left, right = scale.text(low_x), scale.text(high_x)
    return (' '):rep(10) .. left .. (' '):rep(math.max(1, made.columns - #left - #right)) .. right .. '  '
        .. (title or '')
end

return canvas
