--- wane.plot(losses): numbers over steps, as lines of characters at the prompt and as an SVG picture in a file.
--
-- The data is a list of numbers, or several lists under names, and is never changed. A value that is not finite (of a
-- training that diverged) is not drawn; the chart counts such values below it.
-- @module wane.report.line_plot
local canvas = require 'wane.report.canvas'
local errors = require 'wane.errors'
local palette = require 'wane.report.palette'
local plot = require 'wane.report.plot'
local scale = require 'wane.report.scale'
local svg = require 'wane.report.svg'
local tensor = require 'wane.tensor'

local iterate, raise = errors.iterate, errors.raise
local floor, huge, max, min = math.floor, math.huge, math.max, math.min

local line_plot = {}

local WHAT = 'wane.plot'

-- ---- data ---------------------------------------------------------------------------------------------------------
-- Returns an entry as a number; a 0-d tensor gives its item.
local function number_of(value, name, k)
    if tensor.is(value) and #tensor.typed(value)._dims == 0 then value = value:item() end
    if type(value) ~= 'number' then
        raise(nil, 'value', '%s: entry %d of %s must be a number, got %s', WHAT, k, name, errors.describe(value))
    end
    return value
end

-- Makes one line of a list: { name =, points = { {x =, y =}, ... }, missing = count of values that are not finite }.
local function series_of(name, list, words)
    if type(list) ~= 'table' or tensor.is(list) or getmetatable(list) ~= nil then
        raise(nil, 'value', '%s: %s must be a list of numbers, got %s', WHAT, words, errors.describe(list))
    end
    local xs, ys = list.x, list.y or list
    local n = errors.list(ys, WHAT .. ': ' .. words, 'numbers')
    if xs ~= nil and errors.list(xs, WHAT .. ': the x of ' .. words, 'numbers') ~= n then
        raise(nil, 'value', '%s: %s must have as many x as y', WHAT, words)
    end
    local out = { name = name, points = {}, missing = 0 }
    for k = 1, n do
        local y, x = number_of(ys[k], words, k), xs and number_of(xs[k], 'the x of ' .. words, k) or k
        if math.abs(y) <= scale.MOST and math.abs(x) <= scale.MOST then
            out.points[#out.points + 1] = { x = x, y = y }
        else
            out.missing = out.missing + 1
        end
    end
    return out
end

-- Makes the lines of the data: one of a list of numbers (or of { x =, y = }), one a name of a table of such lists, the
-- line with most points first.
local function lines_of(what)
    if type(what) ~= 'table' or tensor.is(what) or getmetatable(what) ~= nil then
        raise(nil, 'value', '%s: expected a list of numbers, or lists under names, got %s', WHAT,
            errors.describe(what))
    end
    if #what > 0 or what.y ~= nil then return { series_of(nil, what, 'the list') } end
    local names, out = {}, {}
    for name in iterate(what) do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for k, name in ipairs(names) do
        out[k] = series_of(tostring(name), what[name], "'" .. tostring(name) .. "'")
        out[k].rank = k
    end
    table.sort(out, function(a, b)
        if #a.points ~= #b.points then return #a.points > #b.points end
        return a.rank < b.rank
    end)
    return out
end

-- Returns all points and the levels, which the axes must show, and the least and largest x of the points.
local function shown(chart)
    local all, low, high = {}, huge, -huge
    for _, line in ipairs(chart.lines) do
        for _, p in ipairs(line.points) do
            all[#all + 1] = p
            low, high = min(low, p.x), max(high, p.x)
        end
    end
    for _, level in ipairs(chart.levels) do all[#all + 1] = { x = low < huge and low or 0, y = level.y } end
    return all, low, high
end

-- Returns the ranges of the axes. x fills the width; the range of y is that of scale.range.
local function axes_of(chart)
    local all, low, high = shown(chart)
    local box = {}
    box.low_x, box.high_x = low, high
    if low > high then box.low_x, box.high_x = 0, 1 end
    if box.low_x == box.high_x then box.low_x, box.high_x = low - 0.5, high + 0.5 end
    box.low_y, box.high_y = scale.range(all, 'y')
    return box
end

-- ---- as a picture -------------------------------------------------------------------------------------------------
-- Returns at most two points a column, the lowest and the highest one, in their order.
local function thinned(points, columns, column_of)
    if #points <= 2 * columns then return points end
    local out, at, least, most = {}, nil, nil, nil
    local function flush()
        if not least then return end
        local first, second = least, most
        if first > second then first, second = second, first end
        out[#out + 1] = points[first]
        if second ~= first then out[#out + 1] = points[second] end
    end
    for k, p in ipairs(points) do
        local column = column_of(p.x)
        if column ~= at then
            flush()
            at, least, most = column, k, k
        end
        if p.y < points[least].y then least = k end
        if p.y > points[most].y then most = k end
    end
    flush()
    return out
end

-- Draws a line for each level, with its name above it.
local function add_levels(picture, chart, box)
    for _, level in ipairs(chart.levels) do
        picture:line({ box.left, box.at_y(level.y) }, { box.right, box.at_y(level.y) }, 'mark',
            'stroke-dasharray="5 3"')
        picture:text(box.right - 4, box.at_y(level.y) - 5, level.name or '', 'text-anchor="end"')
    end
end

-- Draws the line through the points of a series; a single point is a marker.
local function add_line(picture, line, slot, box)
    local corners = {}
    for k, p in ipairs(thinned(line.points, 600, function(x) return floor(box.at_x(x)) end)) do
        corners[k] = ('%.1f %.1f'):format(box.at_x(p.x), box.at_y(p.y))
    end
    if #corners == 0 then return end
    picture:add('<path d="M%s" %s/>', table.concat(corners, ' L'), picture:stroke(slot, 1.8))
    if #corners == 1 then
        picture:marker(box.at_x(line.points[1].x), box.at_y(line.points[1].y), 4, slot, line.name)
    end
end

-- Draws the chart as SVG.
local function as_svg(chart)
    local picture, items, box = svg.new(), {}, axes_of(chart)
    for s, line in ipairs(chart.lines) do
        if line.name then items[#items + 1] = { name = line.name, slot = palette.slot(s), form = 'line' } end
    end
    box.left, box.right = 70, 670
    box.y = svg.title_height(chart.title, box.right + 30)
    box.top = box.y + svg.legend_height(items, box.left, box.right) + 10
    box.bottom = box.top + 290
    scale.place(box)
    scale.grid(picture, chart, box)
    add_levels(picture, chart, box)
    for s, line in ipairs(chart.lines) do add_line(picture, line, palette.slot(s), box) end
    picture:legend(items, box)
    return picture:done(box.right + 30, box.bottom + 54, chart.title)
end

-- ---- as characters ------------------------------------------------------------------------------------------------
local MARKS = '.ox+#%&'

local function mark_of(s)
    local k = (s - 1) % #MARKS + 1
    return MARKS:sub(k, k)
end

-- Draws the first line from point to point, and each further line as one mark a point, because a terminal may have no
-- colours.
local function draw(made, chart, at_x, at_y)
    for _, level in ipairs(chart.levels) do
        for x = 0, made.wide - 1, 2 do made.mark(x, at_y(level.y), '-', true) end
    end
    for s, line in ipairs(chart.lines) do
        local before
        local slot = palette.slot(s)
        for _, p in ipairs(line.points) do
            local x, y = at_x(p.x), at_y(p.y)
            if s > 1 then
                made.mark(x, y, mark_of(s), true, slot)
            else
                made.segment(before or { x, y }, { x, y }, slot)
                before = { x, y }
            end
        end
    end
end

-- Returns the lines below the chart: names of lines, counts of values that are not drawn, levels.
local function notes_of(chart)
    local out = {}
    for s, line in ipairs(chart.lines) do
        if line.name then
            out[#out + 1] = ('  %s  %s'):format(palette.paint(mark_of(s), palette.slot(s)), line.name)
        end
        if line.missing > 0 then
            out[#out + 1] = ('  %d of %d values%s are no numbers'):format(line.missing, line.missing + #line.points,
                line.name and ' of ' .. line.name or '')
        end
    end
    for _, level in ipairs(chart.levels) do
        out[#out + 1] = ('  -  %s%.4g'):format(level.name and level.name .. ': ' or '', level.y)
    end
    return out
end

-- Draws the chart with characters.
local function characters(chart)
    local box = axes_of(chart)
    local made = canvas.new(chart.opts, 64)
    draw(made, chart, canvas.places(made, box))
    local out = canvas.page(made, box, chart)
    for _, line in ipairs(notes_of(chart)) do out[#out + 1] = line end
    return table.concat(out, '\n')
end

-- ---- using it -----------------------------------------------------------------------------------------------------

--- Class of charts. A chart prints as characters; `:svg 'x.svg'` writes it as a picture.
local Curve = {}
Curve.__index = Curve

function Curve.__tostring(self)
    return characters(self)
end

--- Writes the chart as an SVG picture.
-- @param path file to write (optional); folders that are missing are made
-- @return the name of the file; without a path, the SVG
-- @raise 'io' where the file cannot be written
-- @usage
-- wane.plot({ 3, 2, 1.5 }, { title = 'loss' }):svg 'loss.svg'
function Curve:svg(path)
    if path == nil then return as_svg(self) end
    return plot.write(path, as_svg(self))
end

-- Returns the levels as a list of { y =, name = }.
local function levels_of(levels)
    local out = {}
    for k = 1, levels == nil and 0 or errors.list(levels, WHAT .. ': levels', 'numbers') do
        local level = levels[k]
        if type(level) == 'number' then level = { y = level } end
        if type(level) ~= 'table' or type(level.y) ~= 'number' then
            raise(nil, 'value', "%s: level %d must be a number or { y =, name = }, got %s", WHAT, k,
                errors.describe(level))
        end
        out[k] = level
    end
    return out
end

local OPTIONS = { 'title', 'x', 'y', 'levels', 'columns', 'rows', 'braille' }

--- Makes a chart of numbers over steps.
--
-- At the prompt the chart shows itself; in a script, print(wane.plot(losses)) shows it and
-- wane.plot(losses):svg 'loss.svg' writes it.
-- @param what list of numbers or 0-d tensors; { x = list, y = list } where they are not at steps 1, 2, 3; or a table of
-- such lists under names, one line each: { train = losses, ['held out'] = { x = {100, 200}, y = {2.3, 2.1} } }
-- @param opts { title =, x = 'step', y =, levels = (list of numbers or { y =, name = }, drawn across), columns = 64 or
-- what a narrower terminal has room for, rows = 16, braille = (finer dots; by default at a terminal that takes UTF-8) }
-- @return chart, which prints, with the method `svg`
-- @raise 'value' for entries that are no numbers, and where there is nothing to draw
-- @function wane.plot
-- @usage
-- local losses = {}
-- for i = 1, 20 do losses[i] = opt:step(nn.cross_entropy(model(x), y)):item() end
-- print(wane.plot(losses, { columns = 40, rows = 8, levels = { { y = 1.386, name = 'of chance' } } }))
function line_plot.plot(what, opts)
    opts = errors.check_options(opts, OPTIONS, WHAT)
    local lines, count = lines_of(what), 0
    for _, line in ipairs(lines) do count = count + #line.points end
    if count == 0 then raise(nil, 'value', '%s: there is no number to draw', WHAT) end
    return setmetatable({ lines = lines, levels = levels_of(opts.levels), title = opts.title, x = opts.x or 'step',
        y = opts.y, opts = opts }, Curve)
end

return line_plot
