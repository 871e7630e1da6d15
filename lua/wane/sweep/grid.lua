--- The points of a sweep: every combination of a grid's values, in an order that depends on the grid alone.
--
-- Axes are in the order of `order`, by default by name; the last axis varies fastest. `policy` and `budget` are one
-- axis: the policies, then a policy `budget(...)` for each budget. Every other key is an axis whose value `build` is
-- given. A point is identified by its description, a table of plain values that survives being written and read.
-- @internal wane.sweep.grid
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local policy = require 'wane.policy'
local utf8 = require 'wane.utf8'

local iterate, raise = errors.iterate, errors.raise

local grid = {}

local MOST_POINTS = 100000

local plain = { number = true, string = true, boolean = true }

-- Raises 'value' for a number or a text that a file of rows cannot hold.
local function check_written(key, value)
    local is_text = type(value) == 'string'
    if value == value and not (is_text and utf8.wrong(value)) then return end
    raise(nil, 'value', 'wane.sweep: grid.%s holds %s, %s', key, errors.describe(value), is_text
        and 'which is no UTF-8' or 'which equals nothing, so its row could not be found again')
end

-- Returns a value of the grid twice: as it is written (text, number or boolean), and as `build` gets it.
local function value_of(key, entry)
    if plain[type(entry)] then return entry, entry end
    if type(entry) == 'table' and getmetatable(entry) == nil and type(entry.name) == 'string' then
        return entry.name, entry.value
    end
    raise(nil, 'value', "wane.sweep: grid.%s holds %s; values are numbers, strings, booleans, or { name = 'text', "
        .. 'value = anything }', key, errors.describe(entry))
end

-- Checks the name of a policy, so that a misspelt one stops the sweep before it starts, and returns it. A policy that
-- this version lacks fails at its points.
local function check_policy(text)
    local fine, why = errors.pcall(policy.of, text)
    if fine or errors.is(why) and why.code == 'unsupported' then return text end
    errors.again(why)
end

-- Returns the text of a policy, and the policy.
local function policy_of(entry)
    if type(entry) == 'string' then return check_policy(entry), entry end
    if policy.is(entry) then return tostring(entry), entry end
    local text, value = value_of('policy', entry)
    return text, policy.of(value)
end

-- Returns the policy of a budget, as text.
local function budget_of(entry)
    local text = type(entry) == 'number' and json.number(entry) or entry
    if type(text) ~= 'string' then
        raise(nil, 'value', "wane.sweep: grid.budget holds %s; budgets are bytes, or text such as '2 GiB'",
            errors.describe(entry))
    end
    require('wane.report.bytes').parse(text, 'wane.sweep: grid.budget')
    return ('budget(%s)'):format(text)
end

-- Checks that an axis has a list of values, and returns the list.
local function list_of(key, list)
    errors.list(list, 'wane.sweep: grid.' .. key, 'values', 1)
    return list
end

-- Makes an axis: { key =, values = list of { text =, value = } }.
local function axis_of(key, list, convert)
    local axis, seen = { key = key, values = {} }, {}
    for i, entry in ipairs(list) do
        local text, value = convert(entry)
        check_written(key, text)
        if seen[text] then
            raise(nil, 'value', "wane.sweep: grid.%s holds '%s' twice; tell them apart by { name = 'text', "
                .. 'value = ... }', key, tostring(text))
        end
        seen[text] = true
        axis.values[i] = { text = text, value = value }
    end
    return axis
end

-- Makes the axis of policies, then budgets; nil where the grid has neither.
local function deciding(given)
    if given.policy == nil and given.budget == nil then return nil end
    local list = {}
    for _, entry in ipairs(given.policy ~= nil and list_of('policy', given.policy) or {}) do list[#list + 1] = entry end
    for _, entry in ipairs(given.budget ~= nil and list_of('budget', given.budget) or {}) do
        list[#list + 1] = budget_of(entry)
    end
    return axis_of('policy', list, policy_of)
end

-- Makes all axes of a grid, by key.
local function axes_by_name(given)
    if type(given) ~= 'table' or getmetatable(given) ~= nil or next(given) == nil then
        raise(nil, 'value', "wane.sweep: expected grid = { name = { values }, policy = { 'save_all', 'sqrt' } }, "
            .. 'got %s', type(given) == 'table' and 'an empty table' or errors.describe(given))
    end
    local axes = { policy = deciding(given) }
    for key, list in iterate(given) do
        if type(key) ~= 'string' then
            raise(nil, 'value', 'wane.sweep: grid has an entry without a name (%s)', errors.describe(list))
        end
        check_written('NAME', key)
        if key ~= 'policy' and key ~= 'budget' then
            axes[key] = axis_of(key, list_of(key, list), function(entry) return value_of(key, entry) end)
        end
    end
    return axes
end

-- Returns the axes in order, which must name each of them once.
local function ordered(axes, order)
    local names, out = errors.names(axes), {}
    if order == nil then order = names end
    errors.list(order, 'wane.sweep: order', 'keys')
    local seen = {}
    for i, name in ipairs(order) do
        if axes[name] == nil or seen[name] then
            raise(nil, 'value', "wane.sweep: order names '%s', which %s", tostring(name), seen[name]
                and 'it names before' or 'is no key of the grid; ' .. errors.near(name, names))
        end
        seen[name] = true
        out[i] = axes[name]
    end
    if #out ~= #names then
        raise(nil, 'value', 'wane.sweep: order must name every key of the grid: %s', table.concat(names, ', '))
    end
    return out
end

-- Makes the point at the indices `at`, one an axis.
local function new_point(axes, at, defaults)
    local point, words, group = { description = {}, p = {} }, {}, {}
    for key, value in iterate(defaults or {}) do point.p[key] = value end
    for i, axis in ipairs(axes) do
        local value = axis.values[at[i]]
        words[i] = ('%s=%s'):format(axis.key, type(value.text) == 'number' and json.number(value.text)
            or tostring(value.text))
        point.description[axis.key] = value.text
        if axis.key == 'policy' then
            point.policy = value.value
        else
            point.p[axis.key] = value.value
            group[axis.key] = value.text
        end
    end
    point.label = utf8.shown(table.concat(words, ' '))
    point.key, point.group = json.encode(point.description), json.encode(group)
    return point
end

--- Returns the points of a grid.
-- @param given { [key] = list of values, policy = list of policies, budget = list of bytes or texts }
-- @param order list of keys, of which the last varies fastest (optional; by default sorted)
-- @param defaults fields of p beside the grid's (optional)
-- @return list of { number =, description =, p = table for build, policy = for measure, label =, key =, group = text
-- that is equal for points that differ in the policy alone }, and the list of keys in order
-- @raise 'value' for a malformed grid or order, and for more than MOST_POINTS points
function grid.points(given, order, defaults)
    local axes = ordered(axes_by_name(given), order)
    local points, at, names = {}, {}, {}
    local all = 1
    for i, axis in ipairs(axes) do
        at[i], names[i] = 1, axis.key
        all = all * #axis.values
    end
    if all > MOST_POINTS then
        raise(nil, 'value', 'wane.sweep: the grid has %.0f points, at most %d are possible; give fewer values', all,
            MOST_POINTS)
    end
    local i
    repeat
        points[#points + 1] = new_point(axes, at, defaults)
        points[#points].number = #points
        i = #axes
        while i > 0 and at[i] == #axes[i].values do
            at[i] = 1
            i = i - 1
        end
        if i > 0 then at[i] = at[i] + 1 end
    until i == 0
    return points, names
end

return grid
