--- Values of the prompt as text: plain tables show their entries, nested ones too.
--
-- A table that fits the width is one line, else each of its entries begins a line. Depth and number of entries are
-- bounded, and a table inside itself is named by its path from `_`, the value that is shown. What has a metatable is as
-- tostring says.
-- @internal wane.repl.show

local iterate = require 'wane.iterate'

local show = {}

local DEEPEST, MOST = 4, 20 -- levels of tables that are opened; entries shown of each
local SHORT = 16 -- longest entry that shares a line with others, in characters

local RESERVED = {}
for word in ('and break do else elseif end false for function goto if in local nil not or repeat return then true '
    .. 'until while'):gmatch '%a+' do RESERVED[word] = true end

local function is_identifier(k)
    return type(k) == 'string' and k:match('^[%a_][%w_]*$') ~= nil and not RESERVED[k]
end

-- Returns a key or a value inside a table as text of one line, unless it is a plain table.
local function leaf(value)
    if type(value) == 'string' then return (('%q'):format(value):gsub('\\\n', '\\n')) end
    return tostring(value)
end

-- Lists the keys outside the list part: numbers by size, then texts, then all else.
local function other_keys(t, n)
    local keys = {}
    for k in iterate(t) do
        if not (type(k) == 'number' and k >= 1 and k <= n and k % 1 == 0) then keys[#keys + 1] = k end
    end
    local rank = { number = 1, string = 2 }
    table.sort(keys, function(a, b)
        local ra, rb = rank[type(a)] or 3, rank[type(b)] or 3
        if ra ~= rb then return ra < rb end
        if ra == 1 then return a < b end
        return tostring(a) < tostring(b)
    end)
    return keys
end

local text_of

-- Lists the entries of a table as texts. `place`: { columns = left for an entry, path = of the table, open = table ->
-- path of the tables around it, depth = of the table }.
local function entries(t, place)
    local parts, n = {}, #t
    local keys = other_keys(t, n)
    local function add(head, step, value)
        parts[#parts + 1] = head .. text_of(value, { columns = place.columns - #head - 2, path = place.path .. step,
            open = place.open, depth = place.depth + 1 })
    end
    for i = 1, math.min(n, MOST) do add('', ('[%d]'):format(i), rawget(t, i)) end
    for i = 1, math.min(#keys, MOST - #parts) do
        local k = keys[i]
        local key = is_identifier(k) and k or ('[%s]'):format(leaf(k))
        add(key .. ' = ', is_identifier(k) and '.' .. k or key, rawget(t, k))
    end
    local rest = n + #keys - #parts
    if rest > 0 then parts[#parts + 1] = ('... %d more'):format(rest) end
    return parts
end

-- Joins entries into indented lines: as many a line as fit where all are short, else each a line of its own.
local function joined(parts, columns)
    local lines, is_short = {}, true
    for _, part in ipairs(parts) do is_short = is_short and #part <= SHORT and not part:find('\n', 1, true) end
    for _, part in ipairs(parts) do
        local line = lines[#lines]
        if is_short and line and #line + #part + 3 <= columns then
            lines[#lines] = line .. ', ' .. part
        else
            lines[#lines + 1] = '  ' .. part:gsub('\n', '\n  ')
        end
    end
    return '{\n' .. table.concat(lines, ',\n') .. '\n}'
end

-- Returns any value as text; lines after the first are indented by two columns a level.
function text_of(value, place)
    if type(value) ~= 'table' or getmetatable(value) ~= nil then return (leaf(value):gsub('\n', '\n  ')) end
    if next(value) == nil then return '{}' end
    if place.open[value] then return ('<%s again>'):format(place.open[value]) end
    if place.depth > DEEPEST then return '{ ... }' end
    place.open[value] = place.path
    local inner = { columns = place.columns - 2, path = place.path, open = place.open, depth = place.depth }
    local parts = entries(value, inner)
    place.open[value] = nil
    local line = '{ ' .. table.concat(parts, ', ') .. ' }'
    if #line <= place.columns and not line:find('\n', 1, true) then return line end
    return joined(parts, place.columns)
end

--- Returns a value as the prompt shows it.
-- @param value any value
-- @param columns width of the output
-- @return text without a newline at its end
function show.text(value, columns)
    if type(value) ~= 'table' or getmetatable(value) ~= nil then return tostring(value) end
    return text_of(value, { columns = columns, path = '_', open = {}, depth = 1 })
end

return show
