--- JSON: a Lua value to one line of text and back, numbers to the last bit.
--
-- Written: a table with entries 1 to n is a list, any other an object with its names in order, so equal values give
-- equal text. A number takes as many digits as it needs to be read back the same, 17 at most. What JSON has no word
-- for (nan and the infinities) is null. Read: strictly as the standard says; what is wrong is told with its byte.
-- @module wane.json
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local utf8 = require 'wane.utf8'

local json = {}

--- What null may become when it is read: decode(text, json.null).
json.null = setmetatable({}, { __tostring = function() return 'null' end })

-- ---- writing ------------------------------------------------------------------------------------------------------
--- A number in the fewest digits that give it back.
function json.number(x)
    if x == math.floor(x) and math.abs(x) < 2 ^ 53 then return ('%.0f'):format(x) end
    for digits = 15, 16 do
        local text = ('%.' .. digits .. 'g'):format(x)
        if tonumber(text) == x then return text end
    end
    return ('%.17g'):format(x)
end

local short = { ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }

-- Bytes that are not UTF-8 become U+FFFD: JSON cannot hold them.
local function valid(text)
    if not utf8.wrong(text) then return text end
    local out, at = {}, 1
    while at <= #text do
        local piece = text:match('^[%z\1-\127]+', at)
            or text:match('^[\194-\244][\128-\191][\128-\191]?[\128-\191]?', at)
        while piece and utf8.wrong(piece) do piece = #piece > 1 and piece:sub(1, -2) or nil end
        out[#out + 1] = piece or '\239\191\189'
        at = at + (piece and #piece or 1)
    end
    return table.concat(out)
end

--- A string as JSON, in quotes; bytes that are no UTF-8 become U+FFFD.
function json.quote(text)
    return '"' .. valid(text):gsub('[%c"\\]', function(c) return short[c] or ('\\u%04x'):format(c:byte()) end) .. '"'
end

local write

local function write_table(value, out)
    if #value > 0 then
        out[#out + 1] = '['
        for i = 1, #value do
            if i > 1 then out[#out + 1] = ',' end
            write(value[i], out)
        end
        out[#out + 1] = ']'
        return
    end
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names)
    out[#out + 1] = '{'
    for i, name in ipairs(names) do
        if i > 1 then out[#out + 1] = ',' end
        out[#out + 1] = json.quote(name) .. ':'
        write(value[name], out)
    end
    out[#out + 1] = '}'
end

write = function(value, out)
    local kind = type(value)
    if kind == 'table' then return write_table(value, out) end
    if kind == 'string' then
        out[#out + 1] = json.quote(value)
    elseif kind == 'number' then
        local is_finite = value - value == 0
        out[#out + 1] = is_finite and json.number(value) or 'null'
    elseif kind == 'boolean' or kind == 'nil' then
        out[#out + 1] = kind == 'nil' and 'null' or tostring(value)
    else
        errors.raise(nil, 'value', 'json: %s has no form in JSON', errors.describe(value))
    end
end

--- The text of a value: nil, booleans, numbers, strings, and tables of these.
function json.encode(value)
    local out = {}
    write(value, out)
    return table.concat(out)
end

-- ---- reading ------------------------------------------------------------------------------------------------------
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
    if plain:find '^-?%d+$' and math.abs(value) > 2 ^ 53 then
        wrong(at, 'the number %s is too large', plain:sub(1, 40))
    end
    return value, at + #plain
end

local read_value

local function read_list(text, at, depth, null)
    local list, n = {}, 0
    at = skip(text, at + 1)
    if text:sub(at, at) == ']' then return list, at + 1 end
    while true do
        n = n + 1
        list[n], at = read_value(text, at, depth, null)
        at = skip(text, at)
        local c = text:sub(at, at)
        if c == ']' then return list, at + 1 end
        if c ~= ',' then wrong(at, "',' or ']' expected, not %s", shown(text, at)) end
        at = skip(text, at + 1)
    end
end

-- Also `places`: a table's key -> byte where it stands (from 1).
local function read_object(text, at, depth, null, places)
    local object, seen = {}, places or {}
    at = skip(text, at + 1)
    if text:sub(at, at) == '}' then return object, at + 1 end
    while true do
        if text:sub(at, at) ~= '"' then wrong(at, 'a name in quotes expected, not %s', shown(text, at)) end
        local from = at
        local key
        key, at = read_string(text, at)
        if seen[key] then wrong(from, "the name '%s' stands there twice", key:sub(1, 200)) end
        at = skip(text, at)
        if text:sub(at, at) ~= ':' then wrong(at, "':' expected, not %s", shown(text, at)) end
        seen[key] = from
        object[key], at = read_value(text, skip(text, at + 1), depth, null)
        at = skip(text, at)
        local c = text:sub(at, at)
        if c == '}' then return object, at + 1 end
        if c ~= ',' then wrong(at, "',' or '}' expected, not %s", shown(text, at)) end
        at = skip(text, at + 1)
    end
end

local WORDS = { ['true'] = true, ['false'] = false }

read_value = function(text, at, depth, null, places)
    if depth > DEEPEST then wrong(at, 'nested deeper than %d', DEEPEST) end
    local c = text:sub(at, at)
    if c == '{' then return read_object(text, at, depth + 1, null, places) end
    if c == '[' then return read_list(text, at, depth + 1, null) end
    if c == '"' then return read_string(text, at) end
    local word = text:match('^%l+', at)
    if word == 'null' then return null, at + 4 end
    if word and WORDS[word] ~= nil then return WORDS[word], at + #word end
    return read_number(text, at)
end

local MOST_BYTES = 96 * 2 ^ 20 -- of a value in Lua, beside its letters; 5 times the text where that is more

--- Reads a text. What would take much more memory than the text itself is refused before it is made.
-- @param text JSON, UTF-8; an integer above 2^53 is refused, for it would be rounded
-- @param null what null becomes, nil when it is not given (json.null, for example)
-- @return the value, and for an object at the top a table: name -> byte where it stands (from 1);
-- or nil, what is wrong, and at which byte (from 1)
function json.decode(text, null)
    local cost = binding.C.wn_json_cost(text, #text)
    if cost > math.max(MOST_BYTES, 5 * #text) then
        return nil, ('its lists, names and values would take %.0f MiB; it is no text that was meant to be read whole')
            :format(cost / 2 ^ 20), 1
    end
    local bad = utf8.wrong(text)
    if bad then return nil, 'this is no UTF-8', bad end
    local places = {}
    local ok, value, at = pcall(read_value, text, skip(text, 1), 0, null, places)
    if ok then
        at = skip(text, at)
        if at > #text then return value, places end
        return nil, ('nothing more expected, not %s'):format(shown(text, at)), at
    end
    if type(value) == 'table' and value.json_at then return nil, value.message, value.json_at end
    error(value, 0)
end

return json
