--- Points of a chart with two axes, and staircases through the points that no other beats, as SVG and as characters.
--
-- Points with a name carry it, or a number that a list beside the picture explains; others are small. The group of a
-- point decides its colour and its marker. A point whose place is no number is left out, and the chart says how many
-- there are.
-- @internal wane.report.scatter
local canvas = require 'wane.report.canvas'
local labels = require 'wane.report.labels'
local palette = require 'wane.report.palette'
local scale = require 'wane.report.scale'
local svg = require 'wane.report.svg'

local scatter = {}

local MOST_LISTED = 60 -- names in a list, at most; a page has a table of all of them

-- Tells whether a number has a place on an axis.
local function is_finite(v) return math.abs(v) <= scale.MOST end

-- Returns the points that have a place, those of them with a name, and how many have no place.
local function sorted_out(chart)
    local drawn, named, missing = {}, {}, 0
    for _, p in ipairs(chart.points) do
        if not (is_finite(p.x) and is_finite(p.y)) then
            missing = missing + 1
        else
            drawn[#drawn + 1] = p
            if p.name then named[#named + 1] = p end
        end
    end
    return drawn, named, missing
end

-- Returns the corners of the staircase through a front: from the top over each of its points to the right end.
local function stairs_of(chart, front, top, right)
    local list, y = {}, top
    for _, i in ipairs(front) do
        local p = chart.points[i]
        if is_finite(p.x) and is_finite(p.y) then
            list[#list + 1] = { p.x, y }
            list[#list + 1] = { p.x, p.y }
            y = p.y
        end
    end
    if #list > 0 then list[#list + 1] = { right, y } end
    return list
end

local function slot_of(p)
    return palette.slot(p.group or 1)
end

-- Returns the number of a point in lists: its own, else its place among the points with a name.
local function number_of(p, i)
    return tostring(p.number or i)
end

-- ---- as a picture --------------------------------------------------------------------------------------------------
-- Returns the entries of the legend: the groups that have points, and the staircase.
local function legend_of(chart)
    local items, used = {}, {}
    for _, p in ipairs(chart.points) do used[p.group or 1] = true end
    for g, name in ipairs(chart.groups or {}) do
        if used[g] then items[#items + 1] = { name = name, slot = palette.slot(g), form = 'marker' } end
    end
    if chart.fronts and chart.fronts[1] and chart.front_name then
        items[#items + 1] = { name = chart.front_name, form = 'mark', extra = 'stroke-dasharray="5 3"' }
    end
    return items
end

-- Draws the staircases, and adds their stretches to what names must not cover.
local function add_stairs(picture, chart, box, taken)
    for _, front in ipairs(chart.fronts or {}) do
        local out, before = {}, nil
        for i, corner in ipairs(stairs_of(chart, front, box.high_y, box.high_x)) do
            local x, y = box.at_x(corner[1]), box.at_y(corner[2])
            out[i] = ('%s%.1f %.1f'):format(i == 1 and 'M' or 'L', x, y)
            if before then
                taken[#taken + 1] = { math.min(x, before[1]) - 1, math.min(y, before[2]) - 1, math.max(x, before[1])
                    + 1, math.max(y, before[2]) + 1 }
            end
            before = { x, y }
        end
        if #out > 0 then
            local slot = slot_of(chart.points[front[1]])
            picture:add('<path d="%s" class="s%d" fill="none" stroke="%s" stroke-dasharray="5 3"/>',
                table.concat(out, ' '), slot, palette.light[slot])
        end
    end
end

-- Draws the markers, those with a name over the small ones, as links to rows of a table where the chart has them.
local function add_markers(picture, chart, drawn, box, taken)
    local function draw(p)
        local x, y, radius = box.at_x(p.x), box.at_y(p.y), p.name and 5 or 2.5
        taken[#taken + 1] = { x - radius, y - radius, x + radius, y + radius }
        local title = ('%s%s, %s'):format(p.name and p.name .. ': ' or '', scale.text(p.x), scale.text(p.y))
        if p.link then picture:add('<a href="#%s">', svg.escape(p.link)) end
        picture:marker(x, y, radius, slot_of(p), title)
        if p.link then picture:add '</a>' end
    end
    for _, p in ipairs(drawn) do
        if not p.name then draw(p) end
    end
    for _, p in ipairs(drawn) do
        if p.name then draw(p) end
    end
end

-- Writes the names at their points, in a chart of numbers their numbers. Returns the points that need an entry in the
-- list: { point, number }.
local function add_names(picture, chart, named, box, taken)
    local listed = {}
    for i, p in ipairs(named) do
        local x, y, number = box.at_x(p.x), box.at_y(p.y), number_of(p, i)
        local place = not chart.numbered and labels.place(taken, box, x, y, p.name)
        if place then
            labels.draw(picture, place, x, y, p.name)
        else
            listed[#listed + 1] = { p, number }
            place = labels.place_number(taken, box, x, y, number)
            if place then labels.draw(picture, place, x, y, number) end
        end
    end
    return listed
end

-- Writes the list of numbers and names beside the chart.
local function add_list(picture, listed, box)
    for i, entry in ipairs(listed) do
        if i > MOST_LISTED then
            picture:text(box.right + 20, box.y + 18 * i, ('and %d more'):format(#listed - MOST_LISTED))
            return
        end
        picture:text(box.right + 20, box.y + 18 * i, ('%s  %s'):format(entry[2], entry[1].name))
    end
end

-- Returns the pixels that the list takes to the right.
local function list_width(listed)
    local most = 0
    for _, entry in ipairs(listed) do most = math.max(most, svg.width_of(entry[2] .. '  ' .. entry[1].name)) end
    return #listed > 0 and most + 20 or 0
end

-- Returns the box of the chart with the functions at_x and at_y from numbers to pixels.
local function box_of(chart, drawn, items, count)
    local box = { left = 76, right = 676, y = svg.title_height(chart.title, 700) }
    box.top = box.y + svg.legend_height(items, box.left, box.right) + 10
    box.bottom = math.max(box.top + 320, box.y + 18 * math.min(count, MOST_LISTED + 1))
    box.low_x, box.high_x = scale.range(drawn, 'x')
    box.low_y, box.high_y = scale.range(drawn, 'y')
    scale.place(box)
    return box
end

--- Draws points. The points of a front are joined by a staircase.
-- @param chart { title =, x =, y = (titles of axes), points = list of { x =, y =, name = (optional), group = (number of
-- a colour and marker, default 1), number = (in lists, optional), link = (id of an element of the page, optional) },
-- groups = list of names of groups, fronts = list of lists of indices of points, by x (optional), front_name = (what
-- the staircase means), numbered = (true: numbers at the points and all names in a list) }
-- @return SVG text
function scatter.svg(chart)
    local picture, items = svg.new(), legend_of(chart)
    local drawn, named, missing = sorted_out(chart)
    local box, taken = box_of(chart, drawn, items, chart.numbered and #named or 0), {}
    scale.grid(picture, chart, box)
    add_stairs(picture, chart, box, taken)
    add_markers(picture, chart, drawn, box, taken)
    local listed = add_names(picture, chart, named, box, taken)
    add_list(picture, listed, box)
    picture:legend(items, box)
    local bottom = box.bottom + 54
    if missing > 0 then
        picture:text(box.left, bottom, ('%d of %d points are no numbers'):format(missing, #chart.points))
        bottom = bottom + 18
    end
    return picture:done(box.right + 24 + list_width(listed), bottom, chart.title)
end

-- ---- as characters -------------------------------------------------------------------------------------------------
local MARKS = '123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'

-- Draws dots from corner to corner; each stretch is parallel to one axis.
local function draw_stairs(made, corners, at_x, at_y)
    for i = 2, #corners do
        local x0, y0 = at_x(corners[i - 1][1]), at_y(corners[i - 1][2])
        local x1, y1 = at_x(corners[i][1]), at_y(corners[i][2])
        local n = math.max(1, math.ceil(math.max(math.abs(x1 - x0), math.abs(y1 - y0))))
        for k = 0, n do made.dot(x0 + (x1 - x0) * k / n, y0 + (y1 - y0) * k / n) end
    end
end

--- Draws points as scatter.svg does, with characters: named points are marks that a list below explains, * where
-- several coincide.
-- @param chart as for scatter.svg
-- @param opts { braille = false (true: a finer staircase, for terminals that take UTF-8), colour = false (true: for a
-- terminal that takes colours), columns = 60, rows = 16 }
-- @return text
function scatter.terminal(chart, opts)
    opts = opts or {}
    local drawn, named, missing = sorted_out(chart)
    local made = canvas.new(opts.columns or 60, opts.rows or 16, opts.braille)
    local low_x, high_x = scale.range(drawn, 'x')
    local low_y, high_y = scale.range(drawn, 'y')
    local function at_x(v) return (made.wide - 1) * (v - low_x) / (high_x - low_x) end
    local function at_y(v) return (made.high - 1) * (high_y - v) / (high_y - low_y) end
    for _, front in ipairs(chart.fronts or {}) do
        draw_stairs(made, stairs_of(chart, front, high_y, high_x), at_x, at_y)
    end
    local names = {}
    for i, p in ipairs(named) do
        local n = p.number or i
        local mark, slot = n <= #MARKS and MARKS:sub(n, n) or '*', opts.colour and slot_of(p) or nil
        made.mark(at_x(p.x), at_y(p.y), mark, false, slot)
        names[i] = ('  %s  %s'):format(palette.paint(mark, slot), p.name)
    end
    local out = { chart.title or '', chart.y }
    for _, line in ipairs(canvas.lines(made, low_y, high_y)) do out[#out + 1] = line end
    out[#out + 1] = canvas.footer(made, low_x, high_x, chart.x)
    for _, name in ipairs(names) do out[#out + 1] = name end
    if missing > 0 then out[#out + 1] = ('  %d of %d points are no numbers'):format(missing, #chart.points) end
    return table.concat(out, '\n')
end

return scatter
