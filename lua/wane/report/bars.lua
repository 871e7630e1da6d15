--- Bar charts as SVG: bars in groups, and horizontal bars of parts.
-- @internal wane.report.bars
local canvas = require 'wane.report.canvas'
local iterate = require 'wane.iterate'
local palette = require 'wane.report.palette'
local scale = require 'wane.report.scale'
local svg = require 'wane.report.svg'
local system = require 'wane.system'

local bars = {}

-- Returns the length of the longest text in pixels.
local function widest(names)
    local most = 0
    for _, name in ipairs(names) do most = math.max(most, svg.width_of(name)) end
    return most
end

-- Returns the greatest number of a chart, aims included, with room above it.
local function top_of(chart)
    local top = 0
    for _, series in ipairs(chart.series) do
        for g, value in ipairs(series.values) do
            top = math.max(top, value, series.aims and series.aims[g] or 0)
        end
    end
    return top > 0 and top * 1.1 or 1
end

-- Draws the bar of one value with its number, and the line of its aim. place: { x =, width =, box = }.
local function one_bar(picture, place, value, aim, look)
    local y_of, bottom = place.box.at_y, place.box.bottom
    picture:add('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>', place.x, y_of(value), place.width * 0.94,
        bottom - y_of(value), picture:area(look.slot))
    local y = y_of(value)
    if aim and y_of(aim) < y + 3 and y_of(aim) > y - 16 then y = y_of(aim) - 2 end -- else the line covers the number
    picture:text(place.x + place.width * 0.47, y - 4, look.format:format(value), 'text-anchor="middle" font-size="10"')
    if aim then
        picture:add('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="mark" stroke="%s" stroke-width="3"/>',
            place.x - place.width * 0.03, y_of(aim), place.x + place.width * 0.97, y_of(aim), palette.ink.light)
    end
end

-- Tells whether a series has an aim.
local function has_aims(chart)
    for _, series in ipairs(chart.series) do
        for _, aim in iterate(series.aims or {}) do
            if aim then return true end
        end
    end
    return false
end

--- Draws a bar chart with groups. Its scale begins at 0.
-- @param chart { title =, unit =, groups = list of names, series = list of { name =, values = list, one a group, aims =
-- list (optional) }, format = '%.0f', aim_name = 'aim' }; an aim is a thick line across its bar, false for none
-- @return SVG text
function bars.bars(chart)
    local picture, items = svg.new(), palette.items(chart.series)
    if has_aims(chart) then
        items[#items + 1] = { name = chart.aim_name or 'aim', form = 'mark', extra = 'stroke-width="3"' }
    end
    local each = math.max(widest(chart.groups) + 16, 34 * #chart.series + 16, 70)
    local box = { left = 70, right = math.max(430, 70 + each * #chart.groups) }
    local width = box.right + 20
    box.y = svg.title_height(chart.title, width)
    box.top = box.y + svg.legend_height(items, box.left, box.right) + 24
    box.bottom = box.top + 260
    box.low_x, box.high_x, box.low_y, box.high_y = 0, #chart.groups, 0, top_of(chart)
    scale.place(box)
    scale.grid_y(picture, box, chart.unit)
    local bar = (box.at_x(1) - box.left) * 0.8 / #chart.series
    for s, series in ipairs(chart.series) do
        local look = { slot = items[s].slot, format = chart.format or '%.0f' }
        for g, value in ipairs(series.values) do
            one_bar(picture, { x = box.at_x(g - 0.9) + (s - 1) * bar, width = bar, box = box }, value,
                series.aims and series.aims[g], look)
        end
    end
    for g, name in ipairs(chart.groups) do
        picture:text(box.at_x(g - 0.5), box.bottom + 18, name, 'text-anchor="middle"')
    end
    picture:legend(items, box)
    return picture:done(width, box.bottom + 34, chart.title)
end

-- ---- bars of parts -------------------------------------------------------------------------------------------------
-- Draws the parts of one bar after one another, and returns its end.
local function one_stack(picture, chart, g, place, items)
    local x, format = place.x, chart.format or '%.1f'
    for s, series in ipairs(chart.series) do
        local width = place.scale * series.values[g]
        if width > 0 then
            picture:add('<rect x="%.1f" y="%.1f" width="%.1f" height="16" %s><title>%s</title></rect>', x, place.y,
                width, picture:area(items[s].slot), svg.escape(('%s: %s %s'):format(series.name, format:format(
                series.values[g]), chart.unit or '')))
        end
        x = x + width
    end
    return x
end

-- Returns the sum of the parts of each group, and the largest of these, 1 for none above 0.
local function sums_of(chart)
    local sums, top = {}, 0
    for g = 1, #chart.groups do
        sums[g] = 0
        for _, series in ipairs(chart.series) do sums[g] = sums[g] + series.values[g] end
        top = math.max(top, sums[g])
    end
    return sums, top > 0 and top or 1
end

--- Draws horizontal bars, one a group, each of parts one after the other. Its scale begins at 0.
-- @param chart { title =, unit =, groups = list of names, series = list of { name =, values = list, one a group },
-- format = '%.1f' }
-- @return SVG text
function bars.stacks(chart)
    local picture, items = svg.new(), palette.items(chart.series)
    local row, sums, top = 22, sums_of(chart)
    local box = { left = 20 + widest(chart.groups) }
    box.right = box.left + 560
    local width = box.right + 100
    box.y = svg.title_height(chart.title, width)
    box.top = box.y + svg.legend_height(items, 20, box.right) + 8
    for g, name in ipairs(chart.groups) do
        local y = box.top + (g - 1) * row
        picture:text(box.left - 8, y + 13, name, 'text-anchor="end"')
        local x = one_stack(picture, chart, g, { x = box.left, y = y, scale = (box.right - box.left) / top }, items)
        picture:text(x + 6, y + 13, (chart.format or '%.1f'):format(sums[g]) .. ' ' .. (chart.unit or ''))
    end
    picture:legend(items, { left = 20, right = box.right, y = box.y })
    return picture:done(width, box.top + row * #chart.groups + 14, chart.title)
end

-- ---- bars of parts, as characters ----------------------------------------------------------------------------------
-- Returns a bar of letters, one part after the other. The ends of parts are rounded, so that the bar is as long as the
-- sum of its parts says.
local function letters_of(chart, g, scale_, looks)
    local out, sum, column = {}, 0, 0
    for s, series in ipairs(chart.series) do
        sum = sum + series.values[g]
        local to = math.floor(sum * scale_ + 0.5)
        out[#out + 1] = palette.paint(looks[s].letter:rep(to - column), looks[s].slot)
        column = to
    end
    return table.concat(out)
end

--- Draws bars of parts with characters, a letter for each part.
-- @param chart as for bars.stacks
-- @return text
function bars.terminal(chart)
    local items, out, numbers, width, right = palette.items(chart.series), { chart.title }, {}, 0, 0
    local sums, top = sums_of(chart)
    for g, name in ipairs(chart.groups) do
        width = math.max(width, #name)
        numbers[g] = ('%s %s'):format((chart.format or '%.1f'):format(sums[g]), chart.unit or '')
        right = math.max(right, #numbers[g])
    end
    local columns = math.max(10, math.min(60, system.columns() - width - right - 3))
    for g, name in ipairs(chart.groups) do
        local bar = letters_of(chart, g, columns / top, items)
        out[#out + 1] = ('%s%s |%s %s'):format((' '):rep(width - #name), name, bar, numbers[g])
    end
    canvas.legend(out, items, width + 2)
    return table.concat(out, '\n')
end

return bars
