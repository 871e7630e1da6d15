--- The safetensors format: 8 bytes of length (little-endian), a JSON header of that length, the tensors' bytes one
-- after the other. Written so that every tensor starts at a multiple of its element; read with every claim of the
-- header checked against the file before a tensor is touched: a hole, an overlap, a byte too few or too many is an
-- error that says where. https://github.com/huggingface/safetensors (the format is described in its README).
-- @module wane.io.safetensors

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local file = require 'wane.io.file'
local json = require 'wane.json'
local tensor = require 'wane.tensor'
local utf8 = require 'wane.utf8'

local safetensors = {}

local LONGEST_HEADER = 100e6 -- that of the format's own library
local LARGE_HEADER = 2 ^ 20
local LONGEST_NAME = 4096

local NAMES = { f32 = 'F32', f64 = 'F64', bf16 = 'BF16', i32 = 'I32', u8 = 'U8', i8 = 'I8' }
-- Names of the format that are no kind of wane.io.file: bytes of an element.
local OTHERS = { F8_E8M0 = 1, C64 = 8 }
local MOST_DIMS = binding.most_dims

-- ---- writing ------------------------------------------------------------------------------------------------------
local function quoted(text, what)
    if utf8.wrong(text) then
        errors.raise(nil, 'value', '%s: %q is no UTF-8, which the header of the file must be', what, text)
    end
    return json.quote(text)
end

local function metadata(strings, what)
    local keys, parts = {}, {}
    for key in pairs(strings) do keys[#keys + 1] = key end
    table.sort(keys)
    for k, key in ipairs(keys) do parts[k] = quoted(key, what) .. ':' .. quoted(strings[key], what) end
    return '"__metadata__":{' .. table.concat(parts, ',') .. '}'
end

local function length_bytes(n)
    local bytes = {}
    for k = 1, 8 do
        bytes[k] = string.char(n % 256)
        n = math.floor(n / 256)
    end
    return table.concat(bytes)
end

--- The header of a file, and its tensors in the order of their bytes.
-- @param list of { name =, dtype =, dims =, bytes =, ... }
-- @param strings table of strings, the metadata
-- @param what opens the message of an error
-- @return header with its length before it, list in the file's order
function safetensors.header(list, strings, what)
    local order, seen = {}, { __metadata__ = true }
    for k, entry in ipairs(list) do
        if seen[entry.name] then
            errors.raise(nil, 'value', "%s: the name '%s' %s", what, entry.name,
                entry.name == '__metadata__' and 'belongs to the format' or 'is given to two tensors')
        end
        if not NAMES[entry.dtype] then
            errors.raise(nil, 'dtype', "%s: '%s' is %s, which is not in this version", what, entry.name, entry.dtype)
        end
        seen[entry.name] = true
        order[k] = { entry = entry, size = binding.element_bytes[entry.dtype], k = k }
    end
    table.sort(order, function(a, b)
        if a.size ~= b.size then return a.size > b.size end
        return a.k < b.k
    end)
    local parts, sorted, at = { metadata(strings, what) }, {}, 0
    for k, item in ipairs(order) do
        local e = item.entry
        parts[k + 1] = ('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%.0f,%.0f]}'):format(quoted(e.name, what),
            NAMES[e.dtype], table.concat(e.dims, ','), at, at + e.bytes)
        sorted[k], at = e, at + e.bytes
    end
    local text = '{' .. table.concat(parts, ',') .. '}'
    text = text .. (' '):rep(-#text % 8)
    return length_bytes(#text) .. text, sorted
end

-- ---- reading ------------------------------------------------------------------------------------------------------
local function fail(f, fmt, ...)
    errors.raise(nil, 'io', "reading '%s': %s", f.path, fmt:format(...))
end

local function is_count(x)
    return type(x) == 'number' and x >= 0 and x % 1 == 0
end

-- Whether x is a list of counts (of n, when given).
local function is_counts(x, n)
    if type(x) ~= 'table' or n and #x ~= n then return false end
    for key, value in pairs(x) do
        if type(key) ~= 'number' or not is_count(value) then return false end
    end
    return true
end

local function header_text(f)
    if f.size < 8 then fail(f, 'it has %d bytes; the first 8 of a safetensors file are a length', f.size) end
    local length, bytes = 0, f:read(0, 8)
    for k = 8, 1, -1 do length = length * 256 + bytes:byte(k) end
    if length > LONGEST_HEADER or length > f.size - 8 then
        fail(f, 'at byte 0 the header is said to have %.0f bytes, and the file has %.0f after that%s', length,
            f.size - 8, length > LONGEST_HEADER and '; is it a safetensors file?' or '; it was cut short')
    end
    local text = f:read(8, length)
    if length > LARGE_HEADER then collectgarbage() end -- what it was read into
    return text, 8 + length
end

local function read_entry(f, name, entry, place)
    if #name > LONGEST_NAME then
        fail(f, "at byte %.0f: the name '%s...' has %d bytes; at most %d are read", place, name:sub(1, 60), #name,
            LONGEST_NAME)
    end
    local function refuse(fmt, ...)
        fail(f, "at byte %.0f, tensor '%s': %s", place, name, fmt:format(...))
    end
    if type(entry) ~= 'table' then refuse('an object expected') end
    local given = entry.dtype
    if type(given) ~= 'string' or #given > 32 then
        refuse('its dtype is %s', type(given) == 'string' and 'a long text' or errors.describe(given))
    end
    if not is_counts(entry.shape) then refuse('its shape is no list of sizes') end
    if not is_counts(entry.data_offsets, 2) then refuse('its data_offsets are no two numbers of bytes') end
    local size, dtype = file.element(given)
    local first, last, bytes = entry.data_offsets[1], entry.data_offsets[2], size or OTHERS[given]
    local why
    if not dtype then why = ('%s, which is not in this version'):format(given) end
    if #entry.shape > MOST_DIMS then why = ('of %d dims; a tensor has at most %d'):format(#entry.shape, MOST_DIMS) end
    for _, d in ipairs(bytes and entry.shape or {}) do bytes = bytes * d end
    if first > last or bytes and last - first ~= bytes then
        bytes = bytes or 0
        refuse('%s of shape %s takes %.0f bytes, its data_offsets %.0f to %.0f say %.0f', entry.dtype,
            tensor.shape_text(entry.shape), bytes, first, last, last - first)
    end
    return { name = name, dtype = dtype, kind = given, dims = entry.shape, first = first, last = last, why = why }
end

local function read_metadata(f, strings, place)
    if type(strings) ~= 'table' then fail(f, 'at byte %.0f, __metadata__: an object expected', place) end
    for key, value in pairs(strings) do
        if type(value) ~= 'string' then
            fail(f, "at byte %.0f, __metadata__: '%s' is not a string", place, tostring(key):sub(1, 200))
        end
    end
    return strings
end

-- The tensors must follow each other without a hole from the header to the end of the file.
local function check_places(f, list, start)
    table.sort(list, function(a, b)
        if a.first ~= b.first then return a.first < b.first end
        if a.last ~= b.last then return a.last < b.last end
        return a.name < b.name
    end)
    local at, before = 0, nil
    for _, e in ipairs(list) do
        e.at = start + e.first
        if e.first < at then
            fail(f, "'%s' begins at byte %.0f, inside '%s', which ends at byte %.0f", e.name, e.at, before.name,
                start + at)
        elseif e.first > at then
            fail(f, "the bytes %.0f to %.0f, before '%s', belong to no tensor", start + at, e.at, e.name)
        end
        at, before = e.last, e
    end
    if start + at > f.size then
        for _, e in ipairs(list) do
            if start + e.last > f.size then
                fail(f, "it was cut short: it ends at byte %.0f, '%s' goes from byte %.0f to %.0f", f.size, e.name,
                    e.at, start + e.last)
            end
        end
    elseif start + at < f.size then
        fail(f, 'the %.0f bytes from byte %.0f to its end belong to no tensor', f.size - start - at, start + at)
    end
end

--- Reads and checks the header of an open file.
-- @param f of wane.io.file
-- @return list of { name =, kind = 'F32', dtype = what it becomes, dims =, at = byte, why = what keeps it from being
-- read, or nil } in the order of their bytes, and the metadata: a table of strings
function safetensors.read(f)
    local text, start = header_text(f)
    local head, places, at = json.decode(text, json.null)
    if head == nil then fail(f, 'at byte %.0f its header is no JSON: %s', 8 + at - 1, places) end
    if not text:find '^%s*{' then fail(f, 'at byte 8 its header is no JSON object') end
    local list, strings = {}, {}
    for name, entry in pairs(head) do
        local place = 8 + places[name] - 1
        if name == '__metadata__' then
            strings = read_metadata(f, entry, place)
        else
            list[#list + 1] = read_entry(f, name, entry, place)
        end
    end
    check_places(f, list, start)
    return list, strings
end

return safetensors
