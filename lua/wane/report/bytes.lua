--- wane.bytes: sizes that a user writes ('1.5 GiB', '800 MB', 4096) as numbers, and numbers as short text.
--
-- A byte count is a whole number of bytes, 0 or more, exact in a double. Binary units (KiB, MiB, GiB, TiB) are powers
-- of 1024; decimal units (kB, MB, GB, TB) are powers of 1000.
-- @module wane.report.bytes
local errors = require 'wane.errors'

local bytes = {}

local units = {
    [''] = 1, b = 1, byte = 1, bytes = 1,
    kib = 1024, mib = 1024 ^ 2, gib = 1024 ^ 3, tib = 1024 ^ 4,
    kb = 1000, mb = 1000 ^ 2, gb = 1000 ^ 3, tb = 1000 ^ 4,
}

bytes.KiB, bytes.MiB, bytes.GiB = 1024, 1024 ^ 2, 1024 ^ 3

--- Converts a size to bytes.
-- @param size number of bytes, or text such as '1.5 GiB', '800 MB', '4096'
-- @param what name of the option, for the message of an error
-- @return whole number of bytes, rounded down
-- @raise 'value' for a value that is not a size, is negative, or has an unknown unit
-- @usage
-- print(wane.bytes.parse '1.5 GiB', wane.bytes.parse '800 MB') --> 1610612736	800000000
function bytes.parse(size, what)
    what = what or 'size'
    local number, unit = size, ''
    if type(size) == 'string' then
        local digits, letters = size:match('^%s*([%d%.eE+]*%d[%d%.]*)%s*(%a*)%s*$')
        number, unit = tonumber(digits), (letters or ''):lower()
    end
    if type(number) ~= 'number' or not units[unit] then
        errors.raise(nil, 'value', "%s: '%s' is not a size; give a number of bytes, or text such as '1.5 GiB' or "
            .. "'800 MB'", what, tostring(size))
    end
    if number ~= number or number < 0 or number == math.huge then
        errors.raise(nil, 'value', '%s: %s is not a size; it must be 0 or more bytes', what, tostring(size))
    end
    return math.floor(number * units[unit])
end

--- Returns a byte count as short text, exact below 1 KiB and else to a hundredth of the unit.
-- @param n bytes, may be negative
-- @return text such as '0 B', '512 B', '1.50 MiB', '-3.25 GiB'
-- @usage
-- print(wane.bytes.text(1610612736)) --> 1.50 GiB
function bytes.text(n)
    local size, sign = math.abs(n), n < 0 and '-' or ''
    if size < 1024 then return ('%s%d B'):format(sign, size) end
    for _, unit in ipairs { 'KiB', 'MiB', 'GiB' } do
        size = size / 1024
        if size < 1024 then return ('%s%.2f %s'):format(sign, size, unit) end
    end
    return ('%s%.2f TiB'):format(sign, size / 1024)
end

--- Returns a byte count with its thousands separated.
-- @param n bytes
-- @return text such as '20,984,320'
-- @usage
-- print(wane.bytes.exact(20984320)) --> 20,984,320
function bytes.exact(n)
    local text = ('%.0f'):format(n)
    local sign, digits = text:match('^(%-?)(%d+)$')
    local out = digits:reverse():gsub('(%d%d%d)', '%1,'):reverse():gsub('^,', '')
    return sign .. out
end

return bytes
