--- Scales of charts: which range an axis shows, at which numbers it is marked, and how it says where it begins.
-- @internal wane.report.scale
local scale = {}

scale.MOST = 1e300 -- greatest number that has a place on an axis; the width of an axis must be finite
local LEAST = 1e-290 -- least width of an axis
local ALIKE = 1e-9 -- width of an axis over its greatest number, below which the numbers count as equal

--- Returns the step of a scale, 1, 2 or 5 times a power of ten, with which at most `count` steps reach `top`.
-- @param top number above 0
-- @param count number of steps
function scale.step(top, count)
    local raw = top / count
    local power = 10 ^ math.floor(math.log10(raw))
    for _, factor in ipairs { 1, 2, 5, 10 } do
        if power * factor >= raw * (1 - 1e-12) then return power * factor end
    end
end

--- Returns the range of an axis: from 0 where the smallest number is below 0.6 times the largest one. Else it begins at
-- a round number below the smallest one, of which scale.title tells.
-- @param points list of tables
-- @param axis key of a number in each of them
-- @return least and greatest number
function scale.range(points, axis)
    local low, high = math.huge, -math.huge
    for _, p in ipairs(points) do low, high = math.min(low, p[axis]), math.max(high, p[axis]) end
    if low > high then low, high = 0, 1 end
    if low >= 0 and high > 0 and low < 0.6 * high then return 0, math.max(1.08 * high, LEAST) end
    local size = math.max(math.abs(low), math.abs(high))
    local span = high - low
    if span <= ALIKE * size or span < LEAST then span = math.max(size, size < LEAST and 1 or LEAST) * 0.2 end
    local step = scale.step(span, 10)
    local from = step * math.floor((low - 0.04 * span) / step)
    return (low >= 0 and math.max(from, 0) or from), high + 0.08 * span
end

--- Returns the range of a logarithmic axis, in powers of ten.
-- @param points list of tables
-- @param axis key of a number above 0 in each of them
function scale.log_range(points, axis)
    local low, high = math.huge, -math.huge
    for _, p in ipairs(points) do
        low, high = math.min(low, math.log10(p[axis])), math.max(high, math.log10(p[axis]))
    end
    if low > high then low, high = 0, 1 end
    local span = math.max(high - low, 0.1)
    return low - 0.06 * span, high + 0.08 * span
end

-- Numbers that mark a logarithmic scale within a power of ten, coarse ones first.
local FACTORS = { { 1 }, { 1, 3 }, { 1, 2, 5 }, { 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9 } }

-- Returns the numbers at which a logarithmic scale is marked: the coarsest of FACTORS that has three or more.
local function log_ticks(low, high)
    local list = {}
    for _, factors in ipairs(FACTORS) do
        list = {}
        for power = math.floor(low), math.floor(high) do
            for _, factor in ipairs(factors) do
                local at = power + math.log10(factor)
                if at >= low and at <= high then list[#list + 1] = 10 ^ power * factor end
            end
        end
        if #list >= 3 then return list end
    end
    return #list > 0 and list or scale.ticks(10 ^ low, 10 ^ high)
end

--- Returns the numbers at which a scale is marked, about five.
-- @param low least number
-- @param high greatest number
function scale.ticks(low, high)
    local step, list = scale.step(high - low, 5), {}
    if high / step - low / step > 100 or math.abs(high / step) > 2 ^ 50 then return list end -- no step reaches it
    for k = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do list[#list + 1] = k * step end
    return list
end

--- Returns a number of a scale as text.
-- @param value number
function scale.text(value)
    return (('%.6g'):format(value):gsub('^%-0$', '0'))
end

--- Returns the title of an axis, which says where the axis begins when that is not 0.
-- @param title text or nil
-- @param low where it begins
function scale.title(title, low)
    local from = low ~= 0 and ('begins at %s'):format(scale.text(low)) or nil
    if title == nil or title == '' then return from or '' end
    return from and ('%s (%s)'):format(title, from) or title
end

--- Adds the functions at_x and at_y, from numbers to pixels, to the box of a chart.
-- @param box { left =, right =, top =, bottom = (pixels), low_x =, high_x =, low_y =, high_y = (numbers there),
-- is_log = (whether low_y and high_y are powers of ten) }
function scale.place(box)
    local wide, high = box.right - box.left, box.bottom - box.top
    box.at_x = function(v) return box.left + wide * (v - box.low_x) / (box.high_x - box.low_x) end
    box.at_y = function(v)
        return box.bottom - high * ((box.is_log and math.log10(v) or v) - box.low_y) / (box.high_y - box.low_y)
    end
end

--- Draws the lines and numbers of the scale of y, and its title.
-- @param picture of svg.new
-- @param box of scale.place
-- @param title text or nil
function scale.grid_y(picture, box, title)
    for _, v in ipairs((box.is_log and log_ticks or scale.ticks)(box.low_y, box.high_y)) do
        picture:line({ box.left, box.at_y(v) }, { box.right, box.at_y(v) }, 'rule')
        picture:text(box.left - 6, box.at_y(v) + 4, scale.text(v), 'text-anchor="end"')
    end
    local middle = (box.top + box.bottom) / 2
    if not title then return end
    picture:text(14, middle, title, ('text-anchor="middle" transform="rotate(-90 14 %.1f)"'):format(middle))
end

--- Draws the lines and numbers of a chart with two scales, and the titles of its axes.
-- @param picture of svg.new
-- @param chart { x =, y = (titles; none for y: it is another chart's) }
-- @param box of scale.place
function scale.grid(picture, chart, box)
    local at_x = box.at_x
    for _, v in ipairs(scale.ticks(box.low_x, box.high_x)) do
        picture:line({ at_x(v), box.top }, { at_x(v), box.bottom }, 'rule')
        picture:text(at_x(v), box.bottom + 18, scale.text(v), 'text-anchor="middle"')
    end
    picture:text((box.left + box.right) / 2, box.bottom + 40, scale.title(chart.x, box.low_x),
        'text-anchor="middle"')
    scale.grid_y(picture, box, chart.y and (box.is_log and chart.y .. ', logarithmic'
        or scale.title(chart.y, box.low_y)))
end

return scale
