--- A canvas of characters: dots in braille or as full stops, and marks over them, with a scale beside it.
-- @internal wane.report.canvas
local palette = require 'wane.report.palette'
local scale = require 'wane.report.scale'
local system = require 'wane.system'

local canvas = {}

local MARGIN = 10 -- columns left of a canvas: the scale of y and its line

local WEIGHT = { [0] = { [0] = 1, 8 }, { [0] = 2, 16 }, { [0] = 4, 32 }, { [0] = 64, 128 } } -- of dots in braille

--- Makes a canvas of columns x rows characters; a character has 2 x 4 dots.
-- @param opts { columns = the usual ones, or fewer that fit the output, rows = 16, braille = (whether dots are drawn in
-- braille, by default at a terminal that takes UTF-8; else a character with a dot is a full stop) }
-- @param usual columns
-- @return { wide =, high = (dots), dot(x, y, slot), segment(from, to, slot) (dots from { x, y } to { x, y }), mark(x,
-- y, text, is_over, slot), line(row) }. `slot` is the colour of a character (optional). A mark replaces another one
-- where is_over is true; else both become '*'.
function canvas.new(opts, usual)
    local columns = opts.columns or math.min(usual, math.max(MARGIN, system.columns() - MARGIN))
    local rows, is_braille, dots, marks, slots = opts.rows or 16, opts.braille, {}, {}, {}
    if is_braille == nil then is_braille = system.is_rich(1) and system.is_utf8() end
    local made = { wide = columns * 2, high = rows * 4, columns = columns, rows = rows }
    function made.dot(x, y, slot)
        x, y = math.floor(x), math.floor(y)
        if x < 0 or y < 0 or x >= made.wide or y >= made.high then return end
        local at = math.floor(y / 4) * columns + math.floor(x / 2)
        dots[at] = bit.bor(dots[at] or 0, WEIGHT[y % 4][x % 2])
        slots[at] = slot or slots[at]
    end
    function made.segment(from, to, slot)
        local wide, high = to[1] - from[1], to[2] - from[2]
        local n = math.max(1, math.ceil(math.max(math.abs(wide), math.abs(high))))
        for k = 0, n do made.dot(from[1] + wide * k / n, from[2] + high * k / n, slot) end
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

-- Returns the line below a canvas that says where the axis of x begins and ends.
local function footer(made, low_x, high_x, title)
    local left, right = scale.text(low_x), scale.text(high_x)
    local between, behind = math.max(1, made.columns - #left - #right), '  ' .. (title or '')
    if MARGIN + made.columns + #behind > system.columns() and between > #behind then -- the title fits between them
        left, between, behind = left .. behind, between - #behind, ''
    end
    return (' '):rep(MARGIN) .. left .. (' '):rep(between) .. right .. behind
end

--- Returns a canvas with its titles, the scale of y at its left and that of x below it.
-- @param made a canvas
-- @param box { low_x =, high_x =, low_y =, high_y = numbers at its edges }
-- @param titles { title = of the chart, x =, y = of the axes }, all optional
-- @return list of lines
function canvas.page(made, box, titles)
    local out = { titles.title }
    out[#out + 1] = titles.y
    for row = 0, made.rows - 1 do
        local label = row == 0 and short(box.high_y) or row == made.rows - 1 and short(box.low_y) or ''
        out[#out + 1] = (('%8s |'):format(label) .. made.line(row)):gsub('%s+$', '')
    end
    out[#out + 1] = (' '):rep(MARGIN - 1) .. '+' .. ('-'):rep(made.columns)
    out[#out + 1] = footer(made, box.low_x, box.high_x, titles.x)
    return out
end

--- Returns the functions that turn numbers into dots of a canvas, of x and of y.
-- @param made a canvas
-- @param box as of canvas.page
function canvas.places(made, box)
    return function(v) return (made.wide - 1) * (v - box.low_x) / (box.high_x - box.low_x) end,
        function(v) return (made.high - 1) * (box.high_y - v) / (box.high_y - box.low_y) end
end

--- Appends the lines that explain the letters of series.
-- @param out list of lines
-- @param items as palette.items returns them
-- @param indent blanks before each line
function canvas.legend(out, items, indent)
    local used = math.huge
    for _, item in ipairs(items) do
        local is_new = used + 4 + #item.name > system.columns()
        out[is_new and #out + 1 or #out] = (is_new and (' '):rep(indent) or out[#out] .. '  ')
            .. palette.paint(item.letter, item.slot) .. ' ' .. item.name
        used = (is_new and indent or used + 2) + 2 + #item.name
    end
end

return canvas
