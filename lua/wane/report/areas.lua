--- Stacked areas over instructions, as SVG and as characters; below the SVG's areas, bars from one instruction to
-- another.
-- @internal wane.report.areas
local canvas = require 'wane.report.canvas'
local palette = require 'wane.report.palette'
local scale = require 'wane.report.scale'
local svg = require 'wane.report.svg'

local areas = {}

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

-- ---- as a picture --------------------------------------------------------------------------------------------------
-- Draws each series stacked on those before it.
local function add_areas(picture, chart, box, items)
    local columns, wide = columns_of(chart, 1600)
    local base = {}
    for s, series in ipairs(chart.series) do
        local up, down = {}, {}
        for c, column in ipairs(columns) do
            local left, right, low = box.at_x((c - 1) * wide), box.at_x(c * wide), base[c] or 0
            base[c] = low + series.values[column.at]
            up[c] = ('L%.2f %.1f H%.2f'):format(left, box.at_y(base[c]), right)
            down[#columns + 1 - c] = ('L%.2f %.1f H%.2f'):format(right, box.at_y(low), left)
        end
        picture:add('<path d="M%s %s Z" %s><title>%s</title></path>', table.concat(up, ' '):sub(2),
            table.concat(down, ' '), picture:area(items[s].slot), svg.escape(series.name))
    end
end

-- Draws the scale of bytes, the scale of instructions and their names.
local function add_scales(picture, chart, box)
    scale.grid_y(picture, box, chart.unit)
    for _, i in ipairs(scale.ticks(0, box.high_x)) do
        if i % 1 == 0 then
            picture:line({ box.at_x(i), box.bottom }, { box.at_x(i), box.bottom + 4 }, 'mark')
            picture:text(box.at_x(i), box.bottom + 17, scale.text(i), 'text-anchor="middle"')
        end
    end
    picture:line({ box.left, box.bottom }, { box.right, box.bottom }, 'mark')
    picture:text((box.left + box.right) / 2, box.bottom + 34, chart.x or '', 'text-anchor="middle"')
end

-- Draws a dashed line down to `bottom` for each mark, with its name above the areas. A name that would cover the one
-- before it is written one row higher.
local function add_marks(picture, chart, box, bottom)
    local before, row = -math.huge, 0
    for _, mark in ipairs(chart.marks or {}) do
        local x = box.at_x(mark.at)
        row = x < before and 1 - row or 0
        picture:line({ x, box.top - 4 - 14 * row }, { x, bottom }, 'mark', 'stroke-dasharray="4 3"')
        picture:text(x + 3, box.top - 8 - 14 * row, mark.name)
        before = x + 8 + svg.width_of(mark.name)
    end
end

-- Draws the line and the words of the peak, beside it where there is room.
local function add_peak(picture, peak, box, bottom)
    if not peak then return end
    local x, y = box.at_x(peak.at), box.at_y(peak.value)
    picture:add('<path d="M%.1f %.1f V%.1f" class="mark" stroke="%s" stroke-width="1.5"/>', x, y, bottom,
        palette.mark.light)
    picture:add('<path d="M%.1f %.1f l-5 -9 h10 Z" class="ink peak" fill="%s"/>', x, y, palette.ink.light)
    local is_left = x + 12 + svg.width_of(peak.name) > box.right
    picture:text(x + (is_left and -9 or 9), y - 4, peak.name, ('text-anchor="%s" font-weight="bold" %s'):format(is_left
        and 'end' or 'start', svg.HALO))
end

-- Draws the bars, from one instruction to another each, with their names at the right.
local function add_bars(picture, chart, box, items)
    if #chart.bars == 0 then return end
    picture:text(box.right + 10, box.bottom + 46, chart.bars_title or '', 'font-weight="bold"')
    for i, bar in ipairs(chart.bars) do
        local y = box.bottom + 54 + 16 * (i - 1)
        picture:add('<rect x="%.1f" y="%d" width="%.1f" height="12" %s/>', box.at_x(bar.from), y,
            math.max(1, box.at_x(bar.to) - box.at_x(bar.from)), picture:area(items[bar.group].slot))
        picture:text(box.right + 10, y + 10, bar.name)
    end
end

--- Draws areas, stacked, over instructions; below them bars from one instruction to another.
-- @param chart { title =, unit =, x = (title of the axis), series = list of { name =, values = list }, marks = list of
-- { at = index, name = }, peak = { at = index, value =, name = } (optional), bars = list of { from = index, to = index,
-- name =, group = number of a series }, bars_title = }
-- @return SVG text
function areas.svg(chart)
    local picture, items = svg.new(), palette.items(chart.series)
    chart.bars = chart.bars or {}
    local names = svg.width_of(chart.bars_title or '')
    for _, bar in ipairs(chart.bars) do names = math.max(names, svg.width_of(bar.name)) end
    local box = { left = 70, right = 870, low_x = 0, high_x = #chart.series[1].values, low_y = 0, high_y = 0 }
    local width = box.right + 30 + names
    box.y = svg.title_height(chart.title, width)
    box.top = box.y + svg.legend_height(items, box.left, box.right) + 36
    box.bottom = box.top + 270
    for _, column in ipairs((columns_of(chart, math.huge))) do box.high_y = math.max(box.high_y, column.sum) end
    box.high_y = box.high_y > 0 and box.high_y * 1.12 or 1
    scale.place(box)
    local bottom = box.bottom + 50 + 16 * #chart.bars
    add_areas(picture, chart, box, items)
    add_scales(picture, chart, box)
    add_bars(picture, chart, box, items)
    add_marks(picture, chart, box, #chart.bars > 0 and bottom or box.bottom)
    add_peak(picture, chart.peak, box, #chart.bars > 0 and bottom or box.bottom)
    picture:legend(items, box)
    return picture:done(width, bottom + 16, chart.title)
end

-- ---- as characters -------------------------------------------------------------------------------------------------
-- Fills a column of characters: the letter of the series at the middle of each character, and at the top dots as high
-- as the sum.
local function fill(made, chart, x, column, top, looks)
    local height = math.floor(made.high * column.sum / (top > 0 and top or 1) + 0.5)
    local full = math.floor(height / 4)
    local low, s = 0, 0
    for row = 0, full - 1 do
        local middle = (row + 0.5) * 4
        while s < #chart.series and low <= middle do
            s = s + 1
            low = low + made.high * chart.series[s].values[column.at] / top
        end
        made.mark(2 * x, made.high - 1 - 4 * row, looks[s].letter, true, looks[s].slot)
    end
    local last = looks[math.min(#looks, math.max(s, 1))]
    for y = 4 * full + 1, height do
        made.dot(2 * x, made.high - y, last.slot)
        made.dot(2 * x + 1, made.high - y, last.slot)
    end
end

-- Appends lines with the name of each mark under its column: behind its caret, before it, or in the next line, where
-- there is room. A name that would cover the one before it begins a line.
local function add_mark_lines(out, marks, columns, count)
    local line = ''
    local function add(at, text)
        if #line > 0 and (at <= #line or text == '') then
            out[#out + 1] = (' '):rep(10) .. line
            line = ''
        end
        line = line .. (' '):rep(at - #line) .. text
    end
    for _, mark in ipairs(marks) do
        local at, n = math.min(columns - 1, math.floor(mark.at * columns / count)), #mark.name
        if at + n < columns then
            add(at, '^' .. mark.name)
        elseif at >= n then
            add(at - n, mark.name .. '^')
        else
            add(at, '^')
            add(0, (' '):rep(columns - n) .. mark.name)
        end
    end
    add(0, '')
end

--- Draws a chart with characters: each series is filled with its letter, and marks stand below.
-- @param chart as for areas.svg
-- @param opts of canvas.new, whose braille is a finer upper edge; 72 columns
-- @return text
function areas.terminal(chart, opts)
    local made, top, items = canvas.new(opts, 72), 0, palette.items(chart.series)
    local columns = made.columns
    local list = columns_of(chart, columns)
    for _, column in ipairs(list) do top = math.max(top, column.sum) end
    for x = 0, columns - 1 do
        fill(made, chart, x, list[math.floor(x * #list / columns) + 1], top, items)
    end
    local out = canvas.page(made, { low_x = 0, high_x = #chart.series[1].values - 1, low_y = 0, high_y = top },
        { title = chart.title, x = chart.x, y = chart.unit })
    local count = #chart.series[1].values
    add_mark_lines(out, chart.marks or {}, columns, count)
    add_mark_lines(out, { chart.peak }, columns, count)
    canvas.legend(out, items, 10)
    return table.concat(out, '\n')
end

return areas
