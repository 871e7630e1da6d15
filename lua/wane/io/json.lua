--- JSON as the headers of safetensors files need it: a strict reader that says at which byte a text is wrong, and
-- the quoting of strings. Numbers are doubles; an integer above 2^53 is refused, for it would be rounded.
-- @module wane.io.json

local utf8 = require 'wane.utf8'

local json = {}

--- What null becomes.
json.null = setmetatable({}, { __tostring = function() return 'null' end })

local DEEPEST = 32

-- A mistake at byte `at` (from 1) leaves as a table, which decode catches.
local function wrong(at, fmt, ...)
    error({ json_at = at, message = fmt:format(...) }, 0)
end

local function shown(text, at)
    local c = text:sub(at, at)
    if c == '' then return 'the end' end
    if c:find '[%c\128-\255]' then return ('byte 0x%02x'):format(c:byte()) end
    return "'" .. c .. "'"
end

local function skip(text, at)
    return text:find('[^ \t\r\n]', at) or #text + 1
end

local ESCAPES = { b = '\b', f = '\f', n = '\n', r = '\r', t = '\t', ['"'] = '"', ['\\'] = '\\', ['/'] = '/' }

local function hex(text, at)
    local digits = text:match('^\\u(%x%x%x%x)', at)
    if not digits then wrong(at, 'a \\u needs four hexadecimal digits') end
    return tonumber(digits, 16)
end

-- The character of an escape at `at` (a backslash), and where the text goes on.
local function escape(text, at)
    local c = text:sub(at + 1, at + 1)
    if ESCAPES[c] then return ESCAPES[c], at + 2 end
    if c ~= 'u' then wrong(at, 'there is no escape \\%s', c) end
    local code = hex(text, at)
    if code < 0xD800 or code > 0xDFFF then return utf8.char(code), at + 6 end
    local low = code < 0xDC00 and text:sub(at + 6, at + 7) == '\\u' and hex(text, at + 6) or 0
    if low < 0xDC00 or low > 0xDFFF then wrong(at, 'half of a pair of surrogates') end
    return utf8.char(0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00)), at + 12
end

local function read_string(text, at)
    local parts, from = {}, at + 1
    while true do
        local stop = text:find('["\\%c]', from)
        if not stop then wrong(at, 'a string does not end') end
        parts[#parts + 1] = text:sub(from, stop - 1)
        local c = text:sub(stop, stop)
        if c == '"' then return table.concat(parts), stop + 1 end
        if c == '\\' then
            parts[#parts + 1], from = escape(text, stop)
        elseif c == '\127' then
            parts[#parts + 1], from = c, stop + 1
        else
            wrong(stop, 'a string holds %s as it is', shown(text, stop))
        end
    end
end

local function read_number(text, at)
    local digits = text:match('^-?%d+%.?%d*[eE]?[+-]?%d*', at)
    local plain = digits and (digits:match '^-?%d+$' or digits:match '^-?%d+%.%d+$'
        or digits:match '^-?%d+[eE][+-]?%d+$' or digits:match '^-?%d+%.%d+[eE][+-]?%d+$')
    if not plain or plain:find '^-?0%d' then wrong(at, '%s begins no number', shown(text, at)) end
    local value = tonumber(plain)
    if value % 1 == 0 and math.abs(value) > 2 ^ 53 then wrong(at, 'the number %s is too large', plain) end
    return value, at + #plain
end

local read_value

local function read_list(text, at, depth)
    local list = {}
    at = skip(text, at + 1)
    if text:sub(at, at) == ']' then return list, at + 1 end
    while true do
        list[#list + 1], at = read_value(text, at, depth)
        at = skip(text, at)
        local c = text:sub(at, at)
        if c == ']' then return list, at + 1 end
        if c ~= ',' then wrong(at, "',' or ']' expected, not %s", shown(text, at)) end
        at = skip(text, at + 1)
    end
end

-- Also `places`: a table's key -> byte where it stands (from 1).
local function read_object(text, at, depth, places)
    local object = {}
    at = skip(text, at + 1)
    if text:sub(at, at) == '}' then return object, at + 1 end
    while true do
        if text:sub(at, at) ~= '"' then wrong(at, 'a name in quotes expected, not %s', shown(text, at)) end
        local from = at
        local key
        key, at = read_string(text, at)
        if object[key] ~= nil then wrong(from, "the name '%s' stands there twice", key) end
        at = skip(text, at)
        if text:sub(at, at) ~= ':' then wrong(at, "':' expected, not %s", shown(text, at)) end
        object[key], at = read_value(text, skip(text, at + 1), depth)
        if places then places[key] = from end
        at = skip(text, at)
        local c = text:sub(at, at)
        if c == '}' then return object, at + 1 end
        if c ~= ',' then wrong(at, "',' or '}' expected, not %s", shown(text, at)) end
        at = skip(text, at + 1)
    end
end

local WORDS = { { 'true', true }, { 'false', false }, { 'null', json.null } }

read_value = function(text, at, depth, places)
    if depth > DEEPEST then wrong(at, 'nested deeper than %d', DEEPEST) end
    local c = text:sub(at, at)
    if c == '{' then return read_object(text, at, depth + 1, places) end
    if c == '[' then return read_list(text, at, depth + 1) end
    if c == '"' then return read_string(text, at) end
    for _, word in ipairs(WORDS) do
        if text:sub(at, at + #word[1] - 1) == word[1] then return word[2], at + #word[1] end
    end
    return read_number(text, at)
end

--- Reads a text.
-- @param text JSON, UTF-8
-- @return the value, and for an object at the top a table: name -> byte where it stands (from 1);
-- or nil, what is wrong, and at which byte (from 1)
function json.decode(text)
    local bad = utf8.wrong(text)
    if bad then return nil, 'this is no UTF-8', bad end
    local places = {}
    local ok, value, at = pcall(read_value, text, skip(text, 1), 0, places)
    if ok then
        at = skip(text, at)
        if at > #text then return value, places end
        return nil, ('nothing more expected, not %s'):format(shown(text, at)), at
    end
    if type(value) == 'table' and value.json_at then return nil, value.message, value.json_at end
    error(value, 0)
end

local SHORT = { ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }

--- A string as JSON, in quotes. The string must be UTF-8.
function json.quote(s)
    return '"' .. s:gsub('[%c"\\]', function(c)
        return SHORT[c] or ('\\u%04x'):format(c:byte())
    end) .. '"'
end

return json
