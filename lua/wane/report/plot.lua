--- Pictures as SVG text, in plain Lua: bars, stacked bars, areas of bytes over instructions, points. Areas and points
-- also as lines of characters, for a terminal.
--
-- A picture is one self-contained <svg> element and loads no fonts, scripts or files. Its colours are one palette, dark
-- enough to read on white.
-- @internal wane.report.plot
local errors = require 'wane.errors'

local plot = {}

local palette = { '#3366aa', '#cc6633', '#448844', '#884488', '#aa9922', '#336688', '#aa3344', '#666666' }

--- Escapes a text for XML and HTML.
-- @param text any value, converted by tostring
function plot.escape(text)
    return (tostring(text):gsub('[&<>"]', { ['&'] = '&amp;', ['<'] = '&lt;', ['>'] = '&gt;', ['"'] = '&quot;' }))
end

-- Returns a text element; `extra` holds further attributes.
local function words(x, y, text, extra)
    return ('<text x="%.1f" y="%.1f" %s>%s</text>'):format(x, y, extra or '', plot.escape(text))
end

-- Begins a picture: the list of its lines.
local function open(width, height, title)
    return { ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        .. 'font-family="sans-serif" font-size="12">'):format(width, height, width, height),
        ('<rect width="%d" height="%d" fill="white"/>'):format(width, height),
        words(width / 2, 22, title or '', 'text-anchor="middle" font-size="15"') }
end

-- Returns the step of a scale, 1, 2 or 5 times a power of ten, with which at most `count` steps reach `top`.
local function step_of(top, count)
    local raw = top / count
    local power = 10 ^ math.floor(math.log10(raw))
    for _, factor in ipairs { 1, 2, 5, 10 } do
        if power * factor >= raw then return power * factor end
    end
end

-- Draws the horizontal lines and numbers of a scale from 0 to `top`.
local function scale(out, top, box, unit)
    local step = step_of(top, 5)
    local value = 0
    while value <= top * 1.0001 do
        local y = box.bottom - (box.bottom - box.top) * value / top
        out[#out + 1] = ('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>'):format(box.left, y,
            box.right, y)
        out[#out + 1] = words(box.left - 6, y + 4, ('%g'):format(value), 'text-anchor="end"')
        value = value + step
    end
    out[#out + 1] = words(14, (box.top + box.bottom) / 2, unit or '',
        ('text-anchor="middle" transform="rotate(-90 14 %.1f)"'):format((box.top + box.bottom) / 2))
end

--- Draws a bar chart with groups.
-- @param chart { title =, unit =, groups = list of names, series = list of { name =, values = list, one a group, aims =
-- list (optional) }, format = '%.0f' }; an aim is a black line across its bar, false for none
-- @return SVG text
function plot.bars(chart)
    local box = { left = 70, top = 60, right = math.max(360, 70 + 130 * #chart.groups * math.max(1,
        #chart.series / 4)), bottom = 320 }
    local top = 0
    for _, series in ipairs(chart.series) do
        for g, value in ipairs(series.values) do
            top = math.max(top, value, series.aims and series.aims[g] or 0)
        end
    end
    top = top > 0 and top * 1.1 or 1
    local out = open(box.right + 20, box.bottom + 50, chart.title)
    scale(out, top, box, chart.unit)
    local group_width = (box.right - box.left) / #chart.groups
    local bar = group_width * 0.8 / #chart.series
    for s, series in ipairs(chart.series) do
        local colour = palette[(s - 1) % #palette + 1]
        for g, value in ipairs(series.values) do
            local x = box.left + (g - 1) * group_width + group_width * 0.1 + (s - 1) * bar
            local height = (box.bottom - box.top) * value / top
            out[#out + 1] = ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>')
                :format(x, box.bottom - height, bar * 0.94, height, colour)
            out[#out + 1] = words(x + bar * 0.47, box.bottom - height - 4, (chart.format or '%.0f'):format(value),
                'text-anchor="middle" font-size="10"')
            local aim = series.aims and series.aims[g]
            if aim then
                local y = box.bottom - (box.bottom - box.top) * aim / top
                out[#out + 1] = ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="black" stroke-width="2"/>')
                    :format(x - bar * 0.03, y, x + bar * 0.97, y)
            end
        end
        local legend = box.left + (s - 1) * (box.right - box.left) / #chart.series
        out[#out + 1] = ('<rect x="%.1f" y="34" width="10" height="10" fill="%s"/>'):format(legend, colour)
        out[#out + 1] = words(legend + 14, 43, series.name)
    end
    for g, name in ipairs(chart.groups) do
        out[#out + 1] = words(box.left + (g - 0.5) * group_width, box.bottom + 18, name, 'text-anchor="middle"')
    end
    out[#out + 1] = '</svg>\n'
    return table.concat(out, '\n')
end

-- Returns at most `most` columns { at = index, sum = }, and the number of values in each of them. Of the values in one
-- column it takes the index at which the sum over all series is largest.
local function columns_of(chart, most)
    local n, out = #chart.series[1].values, {}
    local count = math.min(n, most)
    for column = 1, count do
        local from, to = math.floor((column - 1) * n / count) + 1, math.floor(column * n / count)
        local best, top = from, -1
        for i = from, to do
            local sum = 0
            for _, series in ipairs(chart.series) do sum = sum + series.values[i] end
            if sum > top then best, top = i, sum end
        end
        out[column] = { at = best, sum = top }
    end
    return out, n / count
end

-- Draws one square and name a series, from left to right.
local function legend_of(out, series, y)
    local x = 70
    for s, each in ipairs(series) do
        out[#out + 1] = ('<rect x="%.1f" y="%d" width="10" height="10" fill="%s"/>'):format(x, y,
            palette[(s - 1) % #palette + 1])
        out[#out + 1] = words(x + 14, y + 9, each.name)
        x = x + 30 + 7 * #each.name
    end
end

-- Draws each series stacked on those before it. Returns the width of one value.
local function add_areas(out, chart, box, top)
    local columns, wide = columns_of(chart, 1600)
    local width, base = (box.right - box.left) / #chart.series[1].values, {}
    local function y_of(value) return box.bottom - (box.bottom - box.top) * value / top end
    for s, series in ipairs(chart.series) do
        local up, down = {}, {}
        for c, column in ipairs(columns) do
            local left, low = box.left + (c - 1) * wide * width, base[c] or 0
            base[c] = low + series.values[column.at]
            up[c] = ('L%.2f %.1f H%.2f'):format(left, y_of(base[c]), left + wide * width)
            down[#columns + 1 - c] = ('L%.2f %.1f H%.2f'):format(left + wide * width, y_of(low), left)
        end
        out[#out + 1] = ('<path d="M%s %s Z" fill="%s"><title>%s</title></path>'):format(table.concat(up, ' '):sub(2),
            table.concat(down, ' '), palette[(s - 1) % #palette + 1], plot.escape(series.name))
    end
    return width
end

--- Draws areas, stacked, over instructions; below them bars from one instruction to another.
-- @param chart { title =, unit =, series = list of { name =, values = list }, marks = list of { at = index, name = },
-- bars = list of { from = index, to = index, name =, group = number of a series }, bars_title = }
-- @return SVG text
function plot.areas(chart)
    local box = { left = 70, top = 60, right = 870, bottom = 320 }
    local bars, row, top = chart.bars or {}, 16, 0
    for _, column in ipairs((columns_of(chart, math.huge))) do top = math.max(top, column.sum) end
    top = top > 0 and top * 1.05 or 1
    local out = open(box.right + 330, box.bottom + 60 + row * (#bars + 1), chart.title)
    scale(out, top, box, chart.unit)
    local width = add_areas(out, chart, box, top)
    legend_of(out, chart.series, 34)
    local bottom, before = box.bottom + 40 + row * #bars, nil
    for _, mark in ipairs(chart.marks or {}) do
        local x = box.left + mark.at * width
        out[#out + 1] = ('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#444444" stroke-dasharray="4 3"/>')
            :format(x, box.top, x, bottom)
        local is_near = x < ((before or -math.huge) + 60) -- then the name goes above the areas
        out[#out + 1] = words(x + 3, is_near and box.top - 4 or box.bottom + 16, mark.name)
        before = x
    end
    if #bars > 0 then out[#out + 1] = words(box.right + 10, box.bottom + 16, chart.bars_title) end
    for i, bar in ipairs(bars) do
        local y = box.bottom + 24 + row * (i - 1)
        out[#out + 1] = ('<rect x="%.1f" y="%d" width="%.1f" height="12" fill="%s"/>'):format(
            box.left + bar.from * width, y, math.max(1, (bar.to - bar.from) * width),
            palette[(bar.group - 1) % #palette + 1])
        out[#out + 1] = words(box.right + 10, y + 10, bar.name)
    end
    out[#out + 1] = '</svg>\n'
    return table.concat(out, '\n')
end

-- ---- stacked bars -----------------------------------------------------------------------------------------------
-- Returns the length of the longest name.
local function widest(names)
    local most = 0
    for _, name in ipairs(names) do most = math.max(most, #tostring(name)) end
    return most
end

--- Draws horizontal bars, one a group, each of parts one after the other.
-- @param chart { title =, unit =, groups = list of names, series = list of { name =, values = list, one a group },
-- format = '%.1f' }
-- @return SVG text
function plot.stacks(chart)
    local row, top = 22, 0
    local box = { left = 20 + 6.5 * widest(chart.groups), top = 60, bottom = 60 + row * #chart.groups }
    box.right = box.left + 560
    local sums = {}
    for g = 1, #chart.groups do
        sums[g] = 0
        for _, series in ipairs(chart.series) do sums[g] = sums[g] + series.values[g] end
        top = math.max(top, sums[g])
    end
    top = top > 0 and top or 1
    local out = open(box.right + 90, box.bottom + 20, chart.title)
    for g, name in ipairs(chart.groups) do
        local y, x = box.top + (g - 1) * row, box.left
        out[#out + 1] = words(box.left - 8, y + 13, name, 'text-anchor="end"')
        for s, series in ipairs(chart.series) do
            local width = (box.right - box.left) * series.values[g] / top
            if width > 0 then
                local value = (chart.format or '%.1f'):format(series.values[g])
                out[#out + 1] = ('<rect x="%.1f" y="%.1f" width="%.1f" height="16" fill="%s"><title>%s</title></rect>')
                    :format(x, y, width, palette[(s - 1) % #palette + 1], plot.escape(('%s: %s %s'):format(series.name,
                        value, chart.unit or '')))
            end
            x = x + width
        end
        out[#out + 1] = words(x + 6, y + 13, (chart.format or '%.1f'):format(sums[g]) .. ' ' .. (chart.unit or ''))
    end
    local x = 20
    for s, series in ipairs(chart.series) do
        out[#out + 1] = ('<rect x="%.1f" y="34" width="10" height="10" fill="%s"/>'):format(x,
            palette[(s - 1) % #palette + 1])
        out[#out + 1] = words(x + 14, 43, series.name)
        x = x + 30 + 7 * #series.name
    end
    out[#out + 1] = '</svg>\n'
    return table.concat(out, '\n')
end

-- ---- points -----------------------------------------------------------------------------------------------------
-- Returns the range of a scale: from 0 where the smallest number is below 0.6 times the largest one, else with a
-- margin.
local function range_of(points, axis)
    local low, high = math.huge, -math.huge
    for _, p in ipairs(points) do low, high = math.min(low, p[axis]), math.max(high, p[axis]) end
    if low > high then low, high = 0, 1 end
    if low > 0 and low < 0.6 * high then return 0, 1.08 * high end
    local margin = high > low and 0.08 * (high - low) or math.max(math.abs(high), 1) * 0.1
    return low - margin, high + margin
end

-- Returns the numbers at which a scale from low to high is marked.
local function ticks_of(low, high)
    local step, list = step_of(high - low, 5), {}
    for k = math.ceil(low / step), math.floor(high / step) do list[#list + 1] = k * step end
    return list
end

-- Returns the corners of the staircase through a front: from the top over each of its points to the right end.
local function stairs_of(chart, front, top, right)
    local list, y = {}, top
    for _, i in ipairs(front) do
        local p = chart.points[i]
        list[#list + 1] = { p.x, y }
        list[#list + 1] = { p.x, p.y }
        y = p.y
    end
    if #list > 0 then list[#list + 1] = { right, y } end
    return list
end

-- Returns a place beside a point for a number of that width, which covers no point and no number placed before.
local function place_of(taken, x, y, width)
    local tries = { { 7, -5 }, { 7, 14 }, { -7 - width, -5 }, { -7 - width, 14 }, { -width / 2, -9 },
        { -width / 2, 19 } }
    for _, try in ipairs(tries) do
        local left, base, is_free = x + try[1], y + try[2], true
        for _, t in ipairs(taken) do
            if left < t[3] and left + width > t[1] and base - 10 < t[4] and base > t[2] then is_free = false end
        end
        if is_free then
            taken[#taken + 1] = { left, base - 10, left + width, base }
            return left, base
        end
    end
    return x + 7, y - 5
end

-- Draws the lines and numbers of both scales.
local function grid_lines(out, chart, box, at_x, at_y)
    for _, v in ipairs(ticks_of(box.low_x, box.high_x)) do
        out[#out + 1] = ('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#dddddd"/>'):format(at_x(v), box.top,
            at_x(v), box.bottom)
        out[#out + 1] = words(at_x(v), box.bottom + 18, ('%g'):format(v), 'text-anchor="middle"')
    end
    for _, v in ipairs(ticks_of(box.low_y, box.high_y)) do
        out[#out + 1] = ('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>'):format(box.left, at_y(v),
            box.right, at_y(v))
        out[#out + 1] = words(box.left - 6, at_y(v) + 4, ('%g'):format(v), 'text-anchor="end"')
    end
    out[#out + 1] = words((box.left + box.right) / 2, box.bottom + 40, chart.x, 'text-anchor="middle"')
    out[#out + 1] = words(14, (box.top + box.bottom) / 2, chart.y,
        ('text-anchor="middle" transform="rotate(-90 14 %.1f)"'):format((box.top + box.bottom) / 2))
end

local function colour_of(p)
    return palette[((p.group or 1) - 1) % #palette + 1]
end

-- Returns the points that have a name, in their order, and their names.
local function named_of(chart)
    local points, names = {}, {}
    for _, p in ipairs(chart.points) do
        if p.name then
            points[#points + 1] = p
            names[#points] = p.name
        end
    end
    return points, names
end

local function dot(p, x, y)
    local radius = p.name and 5 or 2.5
    return ('<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"><title>%s</title></circle>'):format(x, y, radius,
        colour_of(p), plot.escape(('%s%g, %g'):format(p.name and p.name .. ': ' or '', p.x, p.y)))
end

--- Draws points. Points with a name are numbered and listed beside the picture, others are small. The points of a front
-- are joined by a staircase.
-- @param chart { title =, x =, y = (titles of axes), points = list of { x =, y =, name = (optional), group = (number of
-- a colour) }, fronts = list of lists of indices of points, by x (optional) }
-- @return SVG text
function plot.scatter(chart)
    local named, names = named_of(chart)
    local box = { left = 70, top = 50, right = 620 }
    box.bottom = math.max(320, box.top + 18 * #named)
    box.low_x, box.high_x = range_of(chart.points, 'x')
    box.low_y, box.high_y = range_of(chart.points, 'y')
    local function at_x(v) return box.left + (box.right - box.left) * (v - box.low_x) / (box.high_x - box.low_x) end
    local function at_y(v) return box.bottom - (box.bottom - box.top) * (v - box.low_y) / (box.high_y - box.low_y) end
    local out = open(box.right + 60 + 6.5 * widest(names), box.bottom + 60, chart.title)
    grid_lines(out, chart, box, at_x, at_y)
    for _, front in ipairs(chart.fronts or {}) do
        local stairs = {}
        for i, corner in ipairs(stairs_of(chart, front, box.high_y, box.high_x)) do
            stairs[i] = ('%s%.1f %.1f'):format(i == 1 and 'M' or 'L', at_x(corner[1]), at_y(corner[2]))
        end
        out[#out + 1] = ('<path d="%s" fill="none" stroke="%s" stroke-dasharray="5 3"/>')
            :format(table.concat(stairs, ' '), colour_of(chart.points[front[1]]))
    end
    local taken = {}
    for i, p in ipairs(chart.points) do
        local x, y = at_x(p.x), at_y(p.y)
        taken[i] = { x - 5, y - 5, x + 5, y + 5 }
        out[#out + 1] = dot(p, x, y)
    end
    for i, p in ipairs(named) do
        local left, base = place_of(taken, at_x(p.x), at_y(p.y), 7 * #tostring(i))
        out[#out + 1] = words(left, base, i)
        out[#out + 1] = words(box.right + 20, box.top + 18 * i - 6, ('%d  %s'):format(i, p.name))
    end
    out[#out + 1] = '</svg>\n'
    return table.concat(out, '\n')
end

-- ---- points made of characters -------------------------------------------------------------------------------------
local MARKS = '123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'

-- Makes a canvas of columns x rows characters. A character has 2 x 4 dots, in braille or shown as one full stop.
local function new_canvas(columns, rows, is_braille)
    local dots, marks = {}, {}
    local weight = { [0] = { [0] = 1, 8 }, { [0] = 2, 16 }, { [0] = 4, 32 }, { [0] = 64, 128 } }
    local canvas = { wide = columns * 2, high = rows * 4 }
    function canvas.dot(x, y)
        x, y = math.floor(x), math.floor(y)
        if x < 0 or y < 0 or x >= canvas.wide or y >= canvas.high then return end
        local at = math.floor(y / 4) * columns + math.floor(x / 2)
        dots[at] = bit.bor(dots[at] or 0, weight[y % 4][x % 2])
    end
    function canvas.mark(x, y, c, is_over)
        local column = math.min(columns - 1, math.max(0, math.floor(x / 2)))
        local at = math.min(rows - 1, math.max(0, math.floor(y / 4))) * columns + column
        marks[at] = marks[at] and not is_over and '*' or c
    end
    function canvas.line(row)
        local out = {}
        for column = 0, columns - 1 do
            local at = row * columns + column
            local n = dots[at]
            local drawn = n and (is_braille and '\226' .. string.char(160 + math.floor(n / 64), 128 + n % 64) or '.')
            out[#out + 1] = marks[at] or drawn or ' '
        end
        return table.concat(out)
    end
    return canvas
end

-- Draws dots from corner to corner; each stretch is parallel to one axis.
local function draw_stairs(canvas, corners, at_x, at_y)
    for i = 2, #corners do
        local x0, y0 = at_x(corners[i - 1][1]), at_y(corners[i - 1][2])
        local x1, y1 = at_x(corners[i][1]), at_y(corners[i][2])
        local n = math.max(1, math.ceil(math.max(math.abs(x1 - x0), math.abs(y1 - y0))))
        for k = 0, n do canvas.dot(x0 + (x1 - x0) * k / n, y0 + (y1 - y0) * k / n) end
    end
end

--- Draws points as plot.scatter does, with characters: named points are marks that a list below explains, * where
-- several coincide.
-- @param chart as for plot.scatter
-- @param opts { braille = false (true: a finer staircase, for terminals that take UTF-8), columns = 60, rows = 16 }
-- @return text
function plot.terminal_scatter(chart, opts)
    opts = opts or {}
    local columns, rows = opts.columns or 60, opts.rows or 16
    local canvas = new_canvas(columns, rows, opts.braille)
    local low_x, high_x = range_of(chart.points, 'x')
    local low_y, high_y = range_of(chart.points, 'y')
    local function at_x(v) return (canvas.wide - 1) * (v - low_x) / (high_x - low_x) end
    local function at_y(v) return (canvas.high - 1) * (high_y - v) / (high_y - low_y) end
    for _, front in ipairs(chart.fronts or {}) do
        draw_stairs(canvas, stairs_of(chart, front, high_y, high_x), at_x, at_y)
    end
    local names = {}
    for i, p in ipairs((named_of(chart))) do
        local c = i <= #MARKS and MARKS:sub(i, i) or '*'
        canvas.mark(at_x(p.x), at_y(p.y), c)
        names[i] = ('  %s  %s'):format(c, p.name)
    end
    local out = { chart.title or '', chart.y }
    for row = 0, rows - 1 do
        local label = row == 0 and ('%.3g'):format(high_y) or row == rows - 1 and ('%.3g'):format(low_y) or ''
        out[#out + 1] = (('%8s |'):format(label) .. canvas.line(row)):gsub('%s+$', '')
    end
    out[#out + 1] = (' '):rep(9) .. '+' .. ('-'):rep(columns)
    local left, right = ('%.3g'):format(low_x), ('%.3g'):format(high_x)
    out[#out + 1] = (' '):rep(10) .. left .. (' '):rep(columns - #left - #right) .. right .. '  ' .. chart.x
    for _, name in ipairs(names) do out[#out + 1] = name end
    return table.concat(out, '\n')
end

--- Draws the sum of all series of a chart for plot.areas with characters: a filled staircase, with marks below it.
-- @param chart as for plot.areas
-- @param opts { braille = false, columns = 72, rows = 16 }
-- @return text
function plot.terminal_areas(chart, opts)
    opts = opts or {}
    local columns, rows = opts.columns or 72, opts.rows or 16
    local canvas, top = new_canvas(columns, rows, opts.braille), 0
    local list = columns_of(chart, canvas.wide)
    for _, column in ipairs(list) do top = math.max(top, column.sum) end
    for x = 0, canvas.wide - 1 do
        local column = list[math.floor(x * #list / canvas.wide) + 1]
        local high = math.floor(canvas.high * column.sum / (top > 0 and top or 1) + 0.5)
        for y = 1, high do canvas.dot(x, canvas.high - y) end
    end
    local out = { chart.title or '', chart.unit }
    for row = 0, rows - 1 do
        local label = row == 0 and ('%.3g'):format(top) or row == rows - 1 and '0' or ''
        out[#out + 1] = (('%8s |'):format(label) .. canvas.line(row)):gsub('%s+$', '')
    end
    out[#out + 1] = (' '):rep(9) .. '+' .. ('-'):rep(columns)
    local line = ''
    for _, mark in ipairs(chart.marks or {}) do
        local at = math.floor(mark.at * columns / #chart.series[1].values)
        line = line .. (' '):rep(at - #line) .. '^' .. mark.name
    end
    out[#out + 1] = (' '):rep(10) .. line
    return table.concat(out, '\n')
end

-- Parts that charts in files of their own (report/line_plot.lua) are drawn with.
plot.parts = { palette = palette, words = words, open = open, range_of = range_of, grid_lines = grid_lines,
    new_canvas = new_canvas, legend_of = legend_of }

--- Writes a text to a file.
-- @param path name of the file
-- @param text its contents
-- @return path
-- @raise 'io' where the file cannot be written, 'value' for a path that is not a text
function plot.write(path, text)
    local file, why = require('wane.system').open(path, 'w')
    if not file then
        local code = type(path) == 'string' and 'io' or 'value'
        errors.raise(nil, code, '%s cannot be written (%s)', errors.describe(path), why)
    end
    file:write(text)
    file:close()
    return path
end

return plot
