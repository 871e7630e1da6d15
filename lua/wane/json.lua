--- JSON: a Lua value to one line of text and back, numbers to the last bit.
--
-- A table with entries 1 to n is a list, any other an object with its names in order, so equal values give equal
-- text. A number takes as many digits as it needs to be read back the same, 17 at most. What JSON has no word for
-- (nan and the infinities) is null, and null is read as nil.
-- @module wane.json
local errors = require 'wane.errors'

local json = {}

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
    if not text:find '[\128-\255]' then return text end
    local out, at = {}, 1
    while at <= #text do
        local piece = text:match('^[%z\1-\127]+', at) or text:match('^[\194-\223][\128-\191]', at)
            or text:match('^[\224-\239][\128-\191][\128-\191]', at)
            or text:match('^[\240-\244][\128-\191][\128-\191][\128-\191]', at)
        out[#out + 1] = piece or '\239\191\189'
        at = at + (piece and #piece or 1)
    end
    return table.concat(out)
end

local function quoted(text)
    return '"' .. valid(text):gsub('[%z\1-\31"\\\127]', function(c)
        return short[c] or ('\\u%04x'):format(c:byte())
    end) .. '"'
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
        out[#out + 1] = quoted(name) .. ':'
        write(value[name], out)
    end
    out[#out + 1] = '}'
end

write = function(value, out)
    local kind = type(value)
    if kind == 'table' then return write_table(value, out) end
    if kind == 'string' then
        out[#out + 1] = quoted(value)
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
local function fail(text, at, what)
    error({ at = at, what = what, found = text:sub(at, at + 11) }, 0)
end

local function skip(text, at)
    return text:find('[^ \t\r\n]', at) or #text + 1
end

local function utf8_of(code)
    if code < 0x80 then return string.char(code) end
    if code < 0x800 then return string.char(0xc0 + math.floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then
        return string.char(0xe0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
    end
    return string.char(0xf0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
        0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

local unescaped = { b = '\b', f = '\f', n = '\n', r = '\r', t = '\t', ['"'] = '"', ['\\'] = '\\', ['/'] = '/' }

local function read_escape(text, at)
    local c = text:sub(at + 1, at + 1)
    if unescaped[c] then return unescaped[c], at + 2 end
    local high = text:match('^\\u(%x%x%x%x)', at)
    if not high then fail(text, at, 'an escape') end
    local code = tonumber(high, 16)
    local low = code >= 0xd800 and code < 0xdc00 and text:match('^\\u([dD][c-fC-F]%x%x)', at + 6)
    if not low then return utf8_of(code), at + 6 end
    return utf8_of(0x10000 + (code - 0xd800) * 1024 + tonumber(low, 16) - 0xdc00), at + 12
end

local function read_string(text, at)
    local out, start = {}, at
    at = at + 1
    while true do
        local stop = text:find('["\\%z\1-\31]', at)
        if not stop then fail(text, start, 'the end of a string') end
        out[#out + 1] = text:sub(at, stop - 1)
        local c = text:sub(stop, stop)
        if c == '"' then return table.concat(out), stop + 1 end
        if c ~= '\\' then fail(text, stop, 'a string without control characters') end
        out[#out + 1], at = read_escape(text, stop)
    end
end

local read

local function read_list(text, at)
    local list, n = {}, 0
    at = skip(text, at + 1)
    if text:sub(at, at) == ']' then return list, at + 1 end
    while true do
        n = n + 1
        list[n], at = read(text, at)
        at = skip(text, at)
        local c = text:sub(at, at)
        if c == ']' then return list, at + 1 end
        if c ~= ',' then fail(text, at, "',' or ']'") end
        at = at + 1
    end
end

local function read_object(text, at)
    local object = {}
    at = skip(text, at + 1)
    if text:sub(at, at) == '}' then return object, at + 1 end
    while true do
        at = skip(text, at)
        if text:sub(at, at) ~= '"' then fail(text, at, 'a name') end
        local name
        name, at = read_string(text, at)
        at = skip(text, at)
        if text:sub(at, at) ~= ':' then fail(text, at, "':'") end
        object[name], at = read(text, at + 1)
        at = skip(text, at)
        local c = text:sub(at, at)
        if c == '}' then return object, at + 1 end
        if c ~= ',' then fail(text, at, "',' or '}'") end
        at = at + 1
    end
end

local words = { ['true'] = true, ['false'] = false }

read = function(text, at)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == '{' then return read_object(text, at) end
    if c == '[' then return read_list(text, at) end
    if c == '"' then return read_string(text, at) end
    local digits = text:match('^%-?%d+%.?%d*[eE]?[+-]?%d*', at)
    local number = digits and tonumber(digits)
    if number then return number, at + #digits end
    local word = text:match('^%a+', at)
    if word == 'null' then return nil, at + 4 end
    if word == nil or words[word] == nil then fail(text, at, 'a value') end
    return words[word], at + #word
end

--- The value of a text, whole; null is nil.
-- @return the value; or nil and what is wrong with the text
function json.decode(text)
    local fine, value, at = pcall(read, text, 1)
    if fine then
        at = skip(text, at)
        if at > #text then return value end
        value = { at = at, what = 'the end', found = text:sub(at, at + 11) }
    end
    if type(value) ~= 'table' then error(value, 0) end
    return nil, ("at byte %d: %s was expected, not '%s'"):format(value.at, value.what, value.found)
end

return json
