--- Pictures as SVG text, in plain Lua: bars, and a staircase of bytes over instructions.
-- A picture is one self-contained <svg> element; no fonts, scripts or files are loaded. Colours are those of
-- one palette, dark enough to read on white.
-- @module wane.plot
local errors = require 'wane.errors'

local plot = {}

local palette = { '#3366aa', '#cc6633', '#448844', '#884488', '#aa9922', '#336688', '#aa3344', '#666666' }

local function escape(text)
    return (tostring(text):gsub('[&<>"]', { ['&'] = '&amp;', ['<'] = '&lt;', ['>'] = '&gt;', ['"'] = '&quot;' }))
end

local function words(x, y, text, extra)
    return ('<text x="%.1f" y="%.1f" %s>%s</text>'):format(x, y, extra or '', escape(text))
end

local function open(width, height, title)
    return { ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        .. 'font-family="sans-serif" font-size="12">'):format(width, height, width, height),
        ('<rect width="%d" height="%d" fill="white"/>'):format(width, height),
        words(width / 2, 22, title or '', 'text-anchor="middle" font-size="15"') }
end

--- Step of a scale: 1, 2 or 5 times a power of ten, so that there are at most `count` steps up to `top`.
local function step_of(top, count)
    local raw = top / count
    local power = 10 ^ math.floor(math.log10(raw))
    for _, factor in ipairs { 1, 2, 5, 10 } do
        if power * factor >= raw then return power * factor end
    end
end

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

--- A bar chart with groups.
-- @param chart { title=, unit=, groups={names}, series={ {name=, values={one a group}, aims={...}}, ... },
-- format='%.0f' }; an aim is a black line across its bar, false where there is none
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

--- A staircase: a value after each instruction, filled to the axis.
-- @param chart { title=, unit=, series={ {name=, values={numbers}}, ... }, marks={ {at=index, name=}, ... } }
-- @return SVG text
function plot.steps(chart)
    local box = { left = 70, top = 60, right = 870, bottom = 320 }
    local top, count = 0, 1
    for _, series in ipairs(chart.series) do
        count = math.max(count, #series.values)
        for _, value in ipairs(series.values) do top = math.max(top, value) end
    end
    top = top > 0 and top * 1.05 or 1
    local out = open(box.right + 20, box.bottom + 50, chart.title)
    scale(out, top, box, chart.unit)
    local width = (box.right - box.left) / count
    for s, series in ipairs(chart.series) do
        local points = { ('M%.1f %.1f'):format(box.left, box.bottom) }
        for i, value in ipairs(series.values) do
            points[#points + 1] = ('L%.2f %.1f H%.2f'):format(box.left + (i - 1) * width,
                box.bottom - (box.bottom - box.top) * value / top, box.left + i * width)
        end
        points[#points + 1] = ('L%.2f %.1f Z'):format(box.left + #series.values * width, box.bottom)
        local colour = palette[(s - 1) % #palette + 1]
        out[#out + 1] = ('<path d="%s" fill="%s" fill-opacity="0.35" stroke="%s"/>')
            :format(table.concat(points, ' '), colour, colour)
        out[#out + 1] = words(box.left + (s - 1) * 160, 43, series.name, ('fill="%s"'):format(colour))
    end
    for _, mark in ipairs(chart.marks or {}) do
        local x = box.left + mark.at * width
        out[#out + 1] = ('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#444444" stroke-dasharray="4 3"/>')
            :format(x, box.top, x, box.bottom)
        out[#out + 1] = words(x + 3, box.bottom + 16, mark.name)
    end
    out[#out + 1] = '</svg>\n'
    return table.concat(out, '\n')
end

--- Writes text to a file and returns the file's name.
-- Errors: code 'io' when the file cannot be written.
function plot.write(path, text)
    local file, why = io.open(path, 'w')
    if not file then errors.raise(nil, 'io', "%s: cannot be written (%s)", path, why) end
    file:write(text)
    file:close()
    return path
end

return plot
