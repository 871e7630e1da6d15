--- JSON: writes a Lua value as one line of text, and reads it back with every bit of its numbers.
--
-- Writing: a table with entries 1 to n is a list, any other table an object with its names sorted, so that equal values
-- give equal text. A number has the fewest digits that give it back, at most 17. An infinity is 1e999, which readers
-- take for one; nan is written as null, because JSON has no form for it. Reading is as strict as the standard (RFC
-- 8259); an error names its byte.
-- @internal wane.report.json
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local utf8 = require 'wane.utf8'

local byte = string.byte

local json = {}

--- Represents null for readers that ask for it: decode(text, json.null).
json.null = setmetatable({}, { __tostring = function() return 'null' end })

-- Class of lists without entries, which tells them from objects.
local EMPTY = { __tostring = function() return '[]' end }

--- Represents a list without entries for writers; an empty table is an object.
json.empty_list = setmetatable({}, EMPTY)

--- Returns whether a value is a list: entries 1 to n, or an empty list that was read.
function json.is_list(value)
    return type(value) == 'table' and (#value > 0 or getmetatable(value) == EMPTY)
end

-- ---- writing ------------------------------------------------------------------------------------------------------

--- Returns a finite number in the fewest digits that give it back.
-- @param x number
-- @return text
function json.number(x)
    if x == math.floor(x) and math.abs(x) < 2 ^ 53 then return ('%.0f'):format(x) end
    for digits = 15, 17 do
        local text = ('%.' .. digits .. 'g'):format(x)
        -- An integer above 2^53 has an exponent: readers refuse one without, because a double may have rounded it.
        if text:find '^-?%d+$' then text = ('%.' .. digits - 1 .. 'e'):format(x) end
        if tonumber(text) == x or digits == 17 then return text end
    end
end

local short = { ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }

--- Returns a string in JSON's quotes; bytes that are not UTF-8 become U+FFFD.
-- @param text string
function json.quote(text)
    local valid = utf8.repaired(text, '\239\191\189')
    return '"' .. valid:gsub('[%c"\\]', function(c) return short[c] or ('\\u%04x'):format(c:byte()) end) .. '"'
end

local write

-- Writes a table as a list or an object.
local function write_table(value, out)
    if json.is_list(value) then
        out[#out + 1] = '['
        for i = 1, #value do
            if i > 1 then out[#out + 1] = ',' end
            write(value[i], out)
        end
        out[#out + 1] = ']'
        return
    end
    out[#out + 1] = '{'
    for i, name in ipairs(errors.names(value)) do
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
        local is_infinite = math.abs(value) == math.huge
        out[#out + 1] = value ~= value and 'null' or is_infinite and json.number(value):gsub('inf', '1e999')
            or json.number(value)
    elseif kind == 'boolean' or kind == 'nil' then
        out[#out + 1] = kind == 'nil' and 'null' or tostring(value)
    else
        errors.raise(nil, 'value', 'json: %s has no form in JSON', errors.describe(value))
    end
end

--- Returns the JSON of a value.
-- @param value nil, boolean, number, string, or a table of these
-- @return text of one line
-- @raise 'value' for a value of another type
function json.encode(value)
    local out = {}
    write(value, out)
    return table.concat(out)
end

-- ---- reading ------------------------------------------------------------------------------------------------------
-- A place in the text is the number of a byte, from 1. Each function takes the text and a place, and returns the place
-- after what it read.
local DEEPEST = 32
local LONGEST_NUMBER = 400

local QUOTE, COMMA, COLON, ESCAPE, OBJECT, LIST = 34, 44, 58, 92, 123, 91

-- Raises the table that json.decode catches: the message, and the byte that it is about.
local function wrong(at, fmt, ...)
    error({ json_at = at, message = fmt:format(...) }, 0)
end

-- Returns the byte at a place as it is shown in a message.
local function shown(text, at)
    local c = text:sub(at, at)
    if c == '' then return 'the end' end
    if c:find '[%c\128-\255]' then return ('byte 0x%02x'):format(c:byte()) end
    return "'" .. c .. "'"
end

-- Returns the first place from `at` on that is not white space.
local function skip(text, at)
    return (byte(text, at) or 0) > 32 and at or text:find('[^ \n\r\t]', at) or #text + 1
end

-- Returns the code of the \u escape whose backslash is at `at`.
local function hex(text, at)
    local digits = text:match('^u(%x%x%x%x)', at + 1)
    return tonumber(digits or wrong(at, 'a \\u needs four hexadecimal digits'), 16)
end

local ESCAPES = { [98] = 8, [102] = 12, [110] = 10, [114] = 13, [116] = 9, [QUOTE] = QUOTE, [ESCAPE] = ESCAPE,
    [47] = 47 } -- keys in ASCII: b f n r t " \ /

-- Returns the code point of the escape whose backslash is at `at`, and the place after it.
local function escape(text, at)
    local b = byte(text, at + 1)
    if ESCAPES[b or 0] then return ESCAPES[b], at + 2 end
    if b ~= 117 then wrong(at, 'there is no escape \\%s', text:sub(at + 1, at + 1)) end
    local code = hex(text, at)
    if code < 0xD800 or code > 0xDFFF then return code, at + 6 end
    local has_low = code < 0xDC00 and byte(text, at + 6) == ESCAPE and byte(text, at + 7) == 117
    local low = has_low and hex(text, at + 6) or 0
    if low < 0xDC00 or low > 0xDFFF then wrong(at, 'half of a pair of surrogates') end
    return 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00), at + 12
end

-- Returns the string that begins at `at`, and the place after it. One without escapes is one piece of the text.
local function read_string(text, at)
    local pieces, n, i = nil, 0, at + 1
    while true do
        local stop, b = i, byte(text, i)
        while b and b > 31 and b ~= QUOTE and b ~= ESCAPE do
            stop = stop + 1
            b = byte(text, stop)
        end
        if not b then wrong(at, 'a string does not end') end
        local piece = text:sub(i, stop - 1)
        if b == QUOTE then return pieces and table.concat(pieces) .. piece or piece, stop + 1 end
        if b ~= ESCAPE then wrong(stop, 'a string holds %s as it is', shown(text, stop)) end
        b, i = escape(text, stop)
        pieces, n = pieces or {}, n + 1
        pieces[n] = piece .. utf8.char(b)
    end
end

-- Returns the number that begins at `at`, and the place after it.
local function read_number(text, at)
    -- Most numbers are a few digits in a list; a trace runs through them, which patterns would end.
    local value, i, b = 0, at, byte(text, at)
    while b and b >= 48 and b <= 57 and i < at + 15 do
        value, i = value * 10 + b - 48, i + 1
        b = byte(text, i)
    end
    if i > at and (b == COMMA or b == LIST + 2) and (i == at + 1 or byte(text, at) ~= 48) then return value, i end
    local whole, fraction, power, after = text:match('^(-?%d+)(%.?%d*)([eE]?[+-]?%d*)()', at)
    if whole and after - at > LONGEST_NUMBER then wrong(at, 'a number has more than %d letters', LONGEST_NUMBER) end
    if not whole or whole:find '^-?0%d' or fraction == '.' or power ~= '' and not power:find '^[eE][+-]?%d' then
        wrong(at, '%s begins no number', shown(text, at))
    end
    value = tonumber(text:sub(at, after - 1))
    local is_too_large = fraction .. power == '' and math.abs(value) > 2 ^ 53
    if is_too_large then wrong(at, 'the number %s is too large', whole:sub(1, 40)) end
    return value, after
end

local WORDS = { ['true'] = true, ['false'] = false }

-- Returns the value of null, true, false or a number at `at`, and the place after it.
local function read_word_or_number(text, at, null)
    local b = byte(text, at)
    if b == 110 or b == 116 or b == 102 then -- n, t, f: null, true, false
        local word = text:sub(at, at + 4):match '^%l+'
        if word == 'null' then return null, at + 4 end
        if WORDS[word] ~= nil then return WORDS[word], at + #word end
    end
    return read_number(text, at)
end

-- Returns the place of the entry after the comma at `at`; or nil and the place after `close` at the end of the entries.
local function next_entry(text, at, close)
    at = skip(text, at)
    local b = byte(text, at)
    if b == close then return nil, at + 1 end
    if b ~= COMMA then wrong(at, "',' or '%s' expected, not %s", string.char(close), shown(text, at)) end
    return skip(text, at + 1)
end

-- Returns the place of the first entry of the list or object at `at`; or nil and the place after an empty one.
local function first_entry(text, at)
    local close = byte(text, at) + 2 -- ']' is '[' + 2, and '}' is '{' + 2
    at = skip(text, at + 1)
    if byte(text, at) == close then return nil, at + 1 end
    return at
end

local read_value

-- Returns the list at `at`, and the place after it.
local function read_list(text, at, depth, null)
    local list, n = {}, 0
    local entry, after = first_entry(text, at)
    while entry do
        n = n + 1
        list[n], entry = read_value(text, entry, depth, null)
        entry, after = next_entry(text, entry, LIST + 2)
    end
    if n == 0 then setmetatable(list, EMPTY) end
    return list, after
end

-- Returns the object at `at`, and the place after it. Fills `places`, where given: name -> byte at which it stands.
local function read_object(text, at, depth, null, places)
    local object, seen = {}, places or {}
    local entry, after = first_entry(text, at)
    while entry do
        if byte(text, entry) ~= QUOTE then wrong(entry, 'a name in quotes expected, not %s', shown(text, entry)) end
        local key, stop = read_string(text, entry)
        if seen[key] then wrong(entry, "the name '%s' stands there twice", key:sub(1, 200)) end
        seen[key] = entry
        stop = skip(text, stop)
        if byte(text, stop) ~= COLON then wrong(stop, "':' expected, not %s", shown(text, stop)) end
        object[key], stop = read_value(text, skip(text, stop + 1), depth, null)
        entry, after = next_entry(text, stop, OBJECT + 2)
    end
    return object, after
end

-- Returns the value at `at`, and the place after it.
read_value = function(text, at, depth, null, places)
    if depth > DEEPEST then wrong(at, 'nested deeper than %d', DEEPEST) end
    local b = byte(text, at)
    if b == OBJECT then return read_object(text, at, depth + 1, null, places) end
    if b == LIST then return read_list(text, at, depth + 1, null) end
    if b == QUOTE then return read_string(text, at) end
    return read_word_or_number(text, at, null)
end

--- Bytes of memory that a value read from a file may take beside a multiple of its text, however short that text is.
json.FLOOR = 2 ^ 26

--- Reads a text as a value. A text whose value would take much more memory than the text is refused before it is read.
-- @param text JSON in UTF-8; an integer above 2^53 is refused, because a double would round it
-- @param null value that null becomes, json.null for example; nil by default
-- @return value, and for an object at the top a table: name -> byte at which it stands (from 1); or nil, the message,
-- and the byte that it is about (from 1)
function json.decode(text, null)
    local cost = binding.C.wn_json_cost(text, #text)
    if cost > json.FLOOR + 6 * #text then
        return nil, ('its lists, names and values would take %.0f MiB; it is no text that was meant to be read whole')
            :format(cost / 2 ^ 20), 1
    end
    local bad = utf8.wrong(text)
    if bad then return nil, 'this is no UTF-8', bad end
    local places = {}
    local ok, value = errors.pcall(function()
        local read, after = read_value(text, skip(text, 1), 0, null, places)
        after = skip(text, after)
        if after <= #text then wrong(after, 'nothing more expected, not %s', shown(text, after)) end
        return read
    end)
    if ok then return value, places end
    if type(value) == 'table' and value.json_at then return nil, value.message, value.json_at end
    errors.again(value)
end

return json
