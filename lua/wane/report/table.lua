--- Text tables: rows of cells to aligned columns, numbers to the right, words to the left.
-- Every report of Wane that is a table is printed by this file, so that they look alike. It never writes: it
-- returns text.
-- @internal wane.report.table
local table_ = {}

local function text_of(cell)
    if cell == nil then return '' end
    if type(cell) == 'number' and cell == math.floor(cell)
        and math.abs(cell) < 2 ^ 53 then return ('%d'):format(cell) end
    return tostring(cell)
end

local function width_of(text)
    local _, continuation = text:gsub('[\128-\191]', '') -- a UTF-8 continuation byte takes no column
    return #text - continuation
end

local function is_number(text)
    return text == '' or text:find('^[%+%-]?[%d][%d,%.]*[eE%d+%-]*%s?%%?$') ~= nil
        or text:find('^[%+%-]?[%d%.,]+ [KMGT]?i?B$')
        or text == '-' or text == 'n/a'
end

local function pad(text, width, right)
    local fill = (' '):rep(width - width_of(text))
    return right and fill .. text or text .. fill
end

local function measure(lines, count)
    local widths, right = {}, {}
    for column = 1, count do
        widths[column], right[column] = 0, true
        for i, line in ipairs(lines) do
            widths[column] = math.max(widths[column], width_of(line[column]))
            if i > 1 and not is_number(line[column]) then right[column] = false end
        end
    end
    return widths, right
end

--- Lays out a table.
-- @param head array of column titles
-- @param rows array of arrays of cells (text, numbers, nil for an empty cell)
-- @param indent text before every line, default none
-- @return text without a newline at the end
function table_.text(head, rows, indent)
    local lines = { head }
    for _, row in ipairs(rows) do
        local line = {}
        for column = 1, #head do line[column] = text_of(row[column]) end
        lines[#lines + 1] = line
    end
    local widths, right = measure(lines, #head)
    local out = {}
    for i, line in ipairs(lines) do
        local cells = {}
        for column = 1, #head do cells[column] = pad(line[column], widths[column], right[column]) end
        out[#out + 1] = ((indent or '') .. table.concat(cells, '  ')):gsub('%s+$', '')
        if i == 1 then
            local rule = {}
            for column = 1, #head do rule[column] = ('-'):rep(widths[column]) end
            out[#out + 1] = (indent or '') .. table.concat(rule, '  ')
        end
    end
    return table.concat(out, '\n')
end

--- Rows as comma separated values (RFC 4180 quoting).
-- @param head array of column titles
-- @param rows array of arrays
-- @return text with a newline after every row
function table_.csv(head, rows)
    local function quote(cell)
        local text = text_of(cell)
        return text:find('[",\n]') and '"' .. text:gsub('"', '""') .. '"' or text
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
