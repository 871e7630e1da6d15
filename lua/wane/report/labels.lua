--- Places names beside the dots of a chart so that none covers a dot, another name or a line.
--
-- A name takes the first free place around its dot, near ones first. A place that is not near gets a thin line to the
-- dot. A name without a free place is not placed; its caller numbers it.
-- @internal wane.report.labels
local svg = require 'wane.report.svg'

local labels = {}

local NEAR = 9 -- pixels from a dot to its name where no line is needed
local DISTANCES = { NEAR, 22, 36, 54, 76, 100, 130 }

-- Directions from a dot, and where the text is anchored there.
local DIRECTIONS = { { 1, -0.5, 'start' }, { 1, 0, 'start' }, { 1, 0.5, 'start' }, { 0, -1, 'middle' },
    { 0, 1, 'middle' }, { -1, -0.5, 'end' }, { -1, 0, 'end' }, { -1, 0.5, 'end' }, { 1, -1, 'start' },
    { 1, 1, 'start' }, { -1, -1, 'end' }, { -1, 1, 'end' }, { 0.5, -1, 'start' }, { 0.5, 1, 'start' },
    { -0.5, -1, 'end' }, { -0.5, 1, 'end' } }

local HEIGHT = 12 -- pixels of a line of text

-- Returns the rectangle of a text at a place: { left, top, right, bottom }.
local function rectangle(x, y, width, anchor)
    local left = anchor == 'start' and x or anchor == 'end' and x - width or x - width / 2
    return { left, y - HEIGHT + 2, left + width, y + 3 }
end

local function meets(a, b)
    return a[1] < b[3] and a[3] > b[1] and a[2] < b[4] and a[4] > b[2]
end

-- Tells whether a rectangle lies inside the box and meets nothing that is taken.
local function is_free(rect, box, taken)
    if rect[1] < box.left or rect[3] > box.right or rect[2] < box.top or rect[4] > box.bottom then return false end
    for _, other in ipairs(taken) do
        if meets(rect, other) then return false end
    end
    return true
end

-- Returns where the line from a dot to the rectangle of its name ends.
local function line_end(x, y, rect)
    return math.max(rect[1], math.min(x, rect[3])), y < rect[2] and rect[2] or y > rect[4] and rect[4]
        or (rect[2] + rect[4]) / 2
end

-- Returns small rectangles along the line from a dot to its name, without its first pixels.
local function line_of(x, y, rect)
    local to_x, to_y = line_end(x, y, rect)
    local length, list = math.sqrt((to_x - x) ^ 2 + (to_y - y) ^ 2), {}
    for at = 8, length - 2, 4 do
        local px, py = x + (to_x - x) * at / length, y + (to_y - y) * at / length
        list[#list + 1] = { px - 1, py - 1, px + 1, py + 1 }
    end
    return list
end

-- Tells whether a line crosses a name.
local function crosses(line, taken)
    for _, rect in ipairs(line) do
        for _, other in ipairs(taken) do
            if other.is_name and meets(rect, other) then return true end
        end
    end
    return false
end

-- Takes a place for a name, and the line to its dot where it is far. Returns false where the line crosses a name.
local function take(taken, rect, x, y, is_far)
    local line = is_far and line_of(x, y, rect) or {}
    if crosses(line, taken) then return false end
    rect.is_name = true
    taken[#taken + 1] = rect
    for _, each in ipairs(line) do taken[#taken + 1] = each end
    return true
end

--- Finds a place for a number: a free one as for a name, else one that may cover dots and lines, but no name; a crowd
-- of numbers has no place for all of them.
-- @param taken as for labels.place
-- @param box as for labels.place
-- @param x pixels of the dot
-- @param y pixels of the dot
-- @param number text
-- @return as labels.place
function labels.place_number(taken, box, x, y, number)
    local place = labels.place(taken, box, x, y, number)
    if place then return place end
    local names = {}
    for _, rect in ipairs(taken) do
        if rect.is_name then names[#names + 1] = rect end
    end
    place = labels.place(names, box, x, y, number)
    if place then taken[#taken + 1] = place.rect end
    return place
end

--- Finds a place for a name, and takes it.
-- @param taken list of rectangles { left, top, right, bottom }; the new ones are added
-- @param box { left =, right =, top =, bottom = } that the name must lie in
-- @param x pixels of the dot
-- @param y pixels of the dot
-- @param text name
-- @return { x =, y = (base line), anchor =, is_far = (whether it needs a line to its dot), rect = }, or nil
function labels.place(taken, box, x, y, text)
    local width = svg.width_of(text) + 2
    for _, distance in ipairs(DISTANCES) do
        for _, to in ipairs(DIRECTIONS) do
            local at_x, at_y = x + to[1] * distance, y + to[2] * distance + 4
            if to[1] == 0 then at_y = at_y + (to[2] > 0 and 5 or -2) end
            local rect = rectangle(at_x, at_y, width, to[3])
            if is_free(rect, box, taken) and take(taken, rect, x, y, distance > NEAR) then
                return { x = at_x, y = at_y, anchor = to[3], is_far = distance > NEAR, rect = rect }
            end
        end
    end
end

--- Draws a name at its place, with a line to its dot where it is far.
-- @param picture of svg.new
-- @param place of labels.place
-- @param x pixels of the dot
-- @param y pixels of the dot
-- @param text name
function labels.draw(picture, place, x, y, text)
    if place.is_far then
        local to_x, to_y = line_end(x, y, place.rect)
        picture:line({ x, y }, { to_x, to_y }, 'mark', 'stroke-width="0.7"')
    end
    picture:text(place.x, place.y, text, ('text-anchor="%s" %s'):format(place.anchor, svg.HALO))
end

return labels
