--- Makes the header of a safetensors file, which wane.io.header reads.
--
-- A file is 8 bytes of length (little-endian), JSON of that length, and the tensors' bytes one after the other. Tensors
-- of larger elements come first, so that every tensor begins at a multiple of its element.
-- https://github.com/huggingface/safetensors (its README describes the format).
-- @internal wane.io.safetensors

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local utf8 = require 'wane.utf8'

local safetensors = {}

local NAMES = { f32 = 'F32', f64 = 'F64', bf16 = 'BF16', i32 = 'I32', u8 = 'U8', i8 = 'I8' }

local function quoted(text, what)
    if utf8.wrong(text) then
        errors.raise(nil, 'value', '%s: %q is no UTF-8, which the header of the file must be', what, text)
    end
    return json.quote(text)
end

local function metadata(strings, what)
    local parts = {}
    for k, key in ipairs(errors.names(strings)) do parts[k] = quoted(key, what) .. ':' .. quoted(strings[key], what) end
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

--- Returns the header of a file, and the tensors in the order of their bytes.
-- @param list list of { name =, dtype =, dims =, bytes =, ... }
-- @param strings table of strings, the metadata
-- @param what opens the message of an error
-- @return header with its length before it; list in the file's order; bytes of all tensors
-- @raise 'value' for a name that is given twice or no UTF-8; 'dtype' for one that the format does not have here
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
    return length_bytes(#text) .. text, sorted, at
end

return safetensors
