--- Points of a chart with two axes, and staircases through the points that no other beats, as SVG and as characters.
--
-- Points with a name carry it, or a number that a list beside the picture explains; others are small. The group of a
-- point decides its colour and its marker. A point whose place is no number is left out, and the chart says how many
-- there are. A chart with facets is a small picture for each of them, with one scale of y for all.
-- @internal wane.report.scatter
local canvas = require 'wane.report.canvas'
local labels = require 'wane.report.labels'
local palette = require 'wane.report.palette'
local scale = require 'wane.report.scale'
local svg = require 'wane.report.svg'

local scatter = {}

local MOST_LISTED = 60 -- names in a list, at most; a page has a table of all of them
local MOST_GROUPS = 15 -- groups in a legend, and numbered points in a list, at most

-- Tells whether a number has a place on an axis.
local function is_finite(v) return math.abs(v) <= scale.MOST end

-- Tells whether a point has a place in a chart.
local function has_place(chart, p)
    return is_finite(p.x) and is_finite(p.y) and (not chart.log_y or p.y > 0)
end

-- Returns the points that have a place, those of them with a name, and how many have no place.
local function sorted_out(chart)
    local drawn, named, missing = {}, {}, 0
    for _, p in ipairs(chart.points) do
        if not has_place(chart, p) then
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
        if has_place(chart, p) then
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
        if used[g] then items[#items + 1] = { name = name, slot = g, form = 'marker' } end
    end
    if #items > MOST_GROUPS then items = {} end -- each point says under the pointer what it is
    if chart.fronts and chart.fronts[1] and chart.front_name then
        items[#items + 1] = { name = chart.front_name, form = 'mark', extra = 'stroke-dasharray="5 3"' }
    end
    return items
end

-- Draws the staircases, and adds their stretches to what names must not cover.
local function add_stairs(picture, chart, box, taken)
    local top = box.is_log and 10 ^ box.high_y or box.high_y
    for _, front in ipairs(chart.fronts or {}) do
        local out, before = {}, nil
        for i, corner in ipairs(stairs_of(chart, front, top, box.high_x)) do
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
            local class = chart.is_facet and 'mark' or 's' .. slot
            picture:add('<path d="%s" class="%s" fill="none" stroke="%s" stroke-dasharray="5 3"/>',
                table.concat(out, ' '), class, chart.is_facet and palette.mark.light or palette.light[slot])
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
        picture:marker(x, y, radius, p.group or 1, title)
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
            place = (chart.is_facet and labels.place or labels.place_number)(taken, box, x, y, number)
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

-- Gives a box its scales and draws a chart in it. Returns the points that need an entry in the list.
local function add_chart(picture, chart, box, drawn, named)
    local taken = {}
    box.low_x, box.high_x = scale.range(drawn, 'x')
    scale.place(box)
    scale.grid(picture, chart, box)
    add_stairs(picture, chart, box, taken)
    add_markers(picture, chart, drawn, box, taken)
    return add_names(picture, chart, named, box, taken)
end

-- Says under a chart how many of its points have no place. Returns where the picture ends.
local function add_missing(picture, chart, missing, left, bottom)
    if missing == 0 then return bottom end
    picture:text(left, bottom, ('%d of %d points are no numbers'):format(missing, #chart.points)
        .. (chart.log_y and ' above 0' or ''))
    return bottom + 18
end

-- ---- small pictures ------------------------------------------------------------------------------------------------
local COLUMNS, WIDE, HIGH, BESIDE, BELOW = 3, 250, 180, 56, 84 -- small pictures in a row; pixels of each, and between
local MOST_FACETS = 24

-- Returns the chart of each facet, with the points and the stretches of staircases that are in it.
local function charts_of(chart)
    local list, place = {}, {}
    for f = 1, math.min(#chart.facets, MOST_FACETS) do
        list[f] = { title = chart.facets[f], x = chart.x, y = f % COLUMNS == 1 and chart.y or nil, points = {},
            fronts = {}, log_y = chart.log_y, numbered = true, is_facet = true }
    end
    for i, p in ipairs(chart.points) do
        local own = list[p.facet]
        if own then
            own.points[#own.points + 1] = p
            place[i] = #own.points
        end
    end
    for _, front in ipairs(chart.fronts or {}) do
        local parts = {}
        for _, i in ipairs(front) do
            local f = chart.points[i].facet
            if list[f] and not parts[f] then
                parts[f] = {}
                table.insert(list[f].fronts, parts[f])
            end
            if parts[f] then table.insert(parts[f], place[i]) end
        end
    end
    return list
end

-- Draws a chart as small pictures.
local function facets(chart)
    local picture, items, list = svg.new(), legend_of(chart), charts_of(chart)
    local drawn, _, missing = sorted_out(chart)
    local low, high = (chart.log_y and scale.log_range or scale.range)(drawn, 'y')
    local frame = { left = 76, right = 76 + COLUMNS * (WIDE + BESIDE) - BESIDE, y = svg.title_height(chart.title, 900) }
    local top = frame.y + picture:legend(items, frame) + 40
    for f, own in ipairs(list) do
        local column, row = (f - 1) % COLUMNS, math.floor((f - 1) / COLUMNS)
        local left, y = frame.left + column * (WIDE + BESIDE), top + row * (HIGH + BELOW)
        picture:text(left, y - 10, own.title, 'font-weight="bold"')
        local points, named = sorted_out(own)
        add_chart(picture, own, { left = left, right = left + WIDE, top = y, bottom = y + HIGH, low_y = low,
            high_y = high, is_log = chart.log_y }, points, named)
    end
    local bottom = top + math.ceil(#list / COLUMNS) * (HIGH + BELOW) - 20
    if #chart.facets > #list then
        picture:text(frame.left, bottom, ('and %d more like these'):format(#chart.facets - #list))
        bottom = bottom + 18
    end
    return picture:done(frame.right + 24, add_missing(picture, chart, missing, frame.left, bottom), chart.title)
end

--- Draws points. The points of a front are joined by a staircase.
-- @param chart { title =, x =, y = (titles of axes), points = list of { x =, y =, name = (optional), group = (number of
-- a colour and marker, default 1), number = (in lists, optional), link = (id of an element of the page, optional),
-- facet = (number of its facet) }, groups = list of names of groups, fronts = list of lists of indices of points, by x
-- (optional), front_name = (what the staircase means), numbered = (true: numbers at the points and all names in a list,
-- where they are at most 15), log_y = (true: a logarithmic scale), facets = names of small pictures (optional) }
-- @return SVG text
function scatter.svg(chart)
    if chart.facets then return facets(chart) end
    local picture, items = svg.new(), legend_of(chart)
    local drawn, named, missing = sorted_out(chart)
    local has_list = not chart.numbered or #named <= MOST_GROUPS
    local count = chart.numbered and has_list and #named or 0
    local box = { left = 76, right = 676, y = svg.title_height(chart.title, 700), is_log = chart.log_y }
    box.top = box.y + svg.legend_height(items, box.left, box.right) + 10
    box.bottom = math.max(box.top + 320, box.y + 18 * math.min(count, MOST_LISTED + 1))
    box.low_y, box.high_y = (chart.log_y and scale.log_range or scale.range)(drawn, 'y')
    local listed = add_chart(picture, chart, box, drawn, named)
    if not has_list then listed = {} end
    add_list(picture, listed, box)
    picture:legend(items, box)
    local bottom = add_missing(picture, chart, missing, box.left, box.bottom + 54)
    return picture:done(box.right + 24 + list_width(listed), bottom, chart.title)
end

-- ---- as characters -------------------------------------------------------------------------------------------------
local MARKS = '123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'

--- Draws points as scatter.svg does, with characters: named points are marks that a list below explains, * where
-- several coincide.
-- @param chart as for scatter.svg
-- @param opts of canvas.new (optional), whose braille is a finer staircase; 60 columns
-- @return text
function scatter.terminal(chart, opts)
    local drawn, named, missing = sorted_out(chart)
    local made = canvas.new(opts or {}, 60)
    local box = {}
    box.low_x, box.high_x = scale.range(drawn, 'x')
    box.low_y, box.high_y = scale.range(drawn, 'y')
    local at_x, at_y = canvas.places(made, box)
    for _, front in ipairs(chart.fronts or {}) do
        local before
        for _, corner in ipairs(stairs_of(chart, front, box.high_y, box.high_x)) do
            local at = { at_x(corner[1]), at_y(corner[2]) }
            if before then made.segment(before, at) end
            before = at
        end
    end
    local names = {}
    for i, p in ipairs(named) do
        local n = p.number or i
        local mark, slot = n <= #MARKS and MARKS:sub(n, n) or '*', slot_of(p)
        made.mark(at_x(p.x), at_y(p.y), mark, false, slot)
        names[i] = ('  %s  %s'):format(palette.paint(mark, slot), p.name)
    end
    local out = canvas.page(made, box, chart)
    for _, name in ipairs(names) do out[#out + 1] = name end
    if missing > 0 then out[#out + 1] = ('  %d of %d points are no numbers'):format(missing, #chart.points) end
    return table.concat(out, '\n')
end

return scatter
