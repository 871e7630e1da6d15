--- UTF-8: decodes and encodes one character at a time. Overlong forms, surrogates and code points above 10FFFF are
-- refused, as RFC 3629 says.
-- @internal wane.utf8

local utf8 = {}

local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift
local char = string.char

-- Returns of the first byte of a character its number of bytes (0: none begins so), the least code point that needs so
-- many, and the byte's own bits of the code point.
local function head(b)
    if b < 0x80 then return 1, 0, b end
    if b >= 0xC2 and b < 0xE0 then return 2, 0x80, band(b, 0x1F) end
    if b >= 0xE0 and b < 0xF0 then return 3, 0x800, band(b, 0x0F) end
    if b >= 0xF0 and b < 0xF5 then return 4, 0x10000, band(b, 0x07) end
    return 0
end

--- Decodes the character that begins at bytes[i].
-- @param bytes uint8 array
-- @param i index, from 0
-- @param n bytes in the array
-- @return code point and number of bytes; -1 and 0 when no character begins there; -1 and k when k bytes are needed and
-- the array ends before
function utf8.next(bytes, i, n)
    local length, least, code = head(bytes[i])
    if length == 0 then return -1, 0 end
    if i + length > n then return -1, length end
    for k = 1, length - 1 do
        local b = bytes[i + k]
        if band(b, 0xC0) ~= 0x80 then return -1, 0 end
        code = bor(lshift(code, 6), band(b, 0x3F))
    end
    if code < least or code > 0x10FFFF or (code >= 0xD800 and code < 0xE000) then return -1, 0 end
    return code, length
end

--- Returns the bytes of a character as a string.
-- @param code code point
function utf8.char(code)
    if code < 0x80 then return char(code) end
    local letters, rest = code < 0x800 and 2 or code < 0x10000 and 3 or 4, ''
    for _ = 2, letters do
        rest, code = char(bor(0x80, band(code, 0x3F))) .. rest, rshift(code, 6)
    end
    return char(bor(band(0xFF, rshift(0xF00, letters)), code)) .. rest
end

-- Returns a table that reads the bytes of a string as an array from 0.
local function array_of(s)
    return setmetatable({}, { __index = function(_, k) return s:byte(k + 1) end })
end

--- Returns the first byte (from 1) at which a string is not UTF-8, or nil.
-- @param s string
function utf8.wrong(s)
    local i, n, bytes = 0, #s, array_of(s)
    while i < n do
        local code, length = 0, 1
        if s:byte(i + 1) > 127 then code, length = utf8.next(bytes, i, n) end
        if code < 0 then return i + 1 end
        i = i + length
    end
end

--- Returns a string in which each byte that is not UTF-8 is replaced.
-- @param s string
-- @param mark what stands for it, default a question mark
function utf8.repaired(s, mark)
    if not utf8.wrong(s) then return s end
    local out, i, n, bytes = {}, 0, #s, array_of(s)
    while i < n do
        local code, length = utf8.next(bytes, i, n)
        if code < 0 then length = 1 end
        out[#out + 1] = code < 0 and (mark or '?') or s:sub(i + 1, i + length)
        i = i + length
    end
    return table.concat(out)
end

--- Returns the number of characters of a string, of which the bytes 80 to BF continue one.
function utf8.length(s)
    return #s - select(2, s:gsub('[\128-\191]', ''))
end

local ESCAPES = { ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }

-- Returns a character as an escape of Lua.
local function escaped(c)
    if #c == 1 then return ESCAPES[c] or ('\\%03d'):format(c:byte()) end
    return ('\\u{%x}'):format((utf8.next(array_of(c), 0, #c)))
end

--- Returns a text of a file or a script in a form that any terminal and page can show: bytes that are not UTF-8 become
-- question marks; control characters, and those that turn the direction of a line, become escapes such as \n and \027.
-- @param s string
-- @param kept control characters that stay, such as '\n\t' in a text of several lines (optional)
function utf8.shown(s, kept)
    if not s:find '[%c\128-\255]' then return s end
    s = utf8.repaired(s):gsub('%c', function(c) return not (kept and kept:find(c, 1, true)) and escaped(c) or nil end)
    return (s:gsub('\194[\128-\159]', escaped):gsub('\226\128[\168-\174]', escaped)
        :gsub('\226\129[\166-\169]', escaped))
end

return utf8
