--- Text tables: rows of cells as aligned columns, numbers to the right, words to the left.
--
-- Cells may hold texts of files; their control characters are shown as escapes (utf8.lua).
-- Every table that a report of Wane prints is made here, so that all look alike. The functions return text and write
-- nothing.
-- @internal wane.report.table
local system = require 'wane.system'
local utf8 = require 'wane.utf8'

local table_ = {}

-- Returns the text of a cell as it is.
local function raw_of(cell)
    if cell == nil then return '' end
    if type(cell) == 'number' and cell == math.floor(cell)
        and math.abs(cell) < 2 ^ 53 then return ('%d'):format(cell) end
    return tostring(cell)
end

local function text_of(cell)
    return utf8.shown(raw_of(cell))
end

-- Tells whether a cell is aligned to the right: a number, a size with its unit, or nothing.
local function is_number(text)
    return text == '' or text:find('^[%+%-]?[%d][%d,%.]*[eE%d+%-]*%s?%%?$') ~= nil
        or text:find('^[%+%-]?[%d%.,]+ [KMGT]?i?B$')
        or text == '-' or text == 'n/a'
end

local function pad(text, width, right)
    local fill = (' '):rep(width - utf8.length(text))
    return right and fill .. text or text .. fill
end

-- Returns the width of each column, and whether it is aligned to the right.
local function measure(lines, count)
    local widths, right = {}, {}
    for column = 1, count do
        widths[column], right[column] = 0, true
        for i, line in ipairs(lines) do
            widths[column] = math.max(widths[column], utf8.length(line[column]))
            if i > 1 and not is_number(line[column]) then right[column] = false end
        end
    end
    return widths, right
end

-- Returns lists of columns that fit beside each other in `room`; each begins with the first column.
local function parts_of(widths, room)
    local parts, used = { { 1 } }, widths[1]
    for column = 2, #widths do
        used = used + 2 + widths[column]
        if used > room and #parts[#parts] > 1 then
            parts[#parts + 1], used = { 1 }, widths[1] + 2 + widths[column]
        end
        table.insert(parts[#parts], column)
    end
    return parts
end

--- Returns a table as text. At a terminal, columns for which it is too narrow come in a further part below, behind the
-- first column again.
-- @param head list of column titles
-- @param rows list of lists of cells (text, numbers, or nil for an empty cell)
-- @param indent text before every line (optional)
-- @return lines without a newline at the end
function table_.text(head, rows, indent)
    local lines = { {} }
    for column = 1, #head do
        lines[1][column] = text_of(head[column])
        for i, row in ipairs(rows) do
            lines[i + 1] = lines[i + 1] or {}
            lines[i + 1][column] = text_of(row[column])
        end
    end
    local widths, right = measure(lines, #head)
    local out, room = {}, system.is_terminal(1) and system.columns() - #(indent or '') or math.huge
    for _, part in ipairs(parts_of(widths, room)) do
        for i, line in ipairs(lines) do
            local cells, rule = {}, {}
            for k, column in ipairs(part) do
                cells[k] = pad(line[column], widths[column], right[column])
                rule[k] = ('-'):rep(widths[column])
            end
            out[#out + 1] = ((indent or '') .. table.concat(cells, '  ')):match '^.*%S' or ''
            if i == 1 then out[#out + 1] = (indent or '') .. table.concat(rule, '  ') end
        end
    end
    return table.concat(out, '\n')
end

--- Returns rows as comma separated values, quoted as in RFC 4180.
-- @param head list of column titles
-- @param rows list of lists of cells
-- @return lines, each with a newline at its end
function table_.csv(head, rows)
    local function quote(cell)
        local text = raw_of(cell)
        return text:find('[",\r\n]') and '"' .. text:gsub('"', '""') .. '"' or text
    end
    local out = {}
    local function add(row)
        local cells = {}
        for column = 1, #head do cells[column] = quote(row[column]) end
        out[#out + 1] = table.concat(cells, ',') .. '\n'
    end
    add(head)
    for _, row in ipairs(rows) do add(row) end
    return table.concat(out)
end

return table_
