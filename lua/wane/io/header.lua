--- Reads the header of a safetensors file at a cost that the header's size bounds, whatever its text is.
--
-- wane.report.json reads the text, and refuses before it reads what would take much more memory than the text. Every
-- claim is checked against the file before a tensor is touched: a hole, an overlap, a byte too few or too many is an
-- error with its place.
-- @internal wane.io.header

local errors = require 'wane.errors'
local binding = require 'wane.ffi'
local file = require 'wane.io.file'
local json = require 'wane.report.json'
local tensor = require 'wane.tensor'

local fail = file.fail

local LONGEST_HEADER = 100e6 -- bytes; the limit of the format's own library
local LARGE_HEADER = 2 ^ 18
local LONGEST_NAME = 4096
local LONGEST_DTYPE = 32
local MOST_DIMS = binding.most_dims
local MOST_SIZES = 64 -- sizes of a shape that are read, if only for a message

-- Bytes of an element, by the names of the format that are no kind of wane.io.file.
local OTHERS = { F8_E8M0 = 1, C64 = 8 }

local Header = {}
Header.__index = Header

-- Raises 'io' for a length that no header has here.
local function check_length(f, length)
    if length <= LONGEST_HEADER and length <= f.size - 8 then return end
    fail(f, 'at byte 0 the header is said to have %.0f bytes, and the file has %.0f after that%s', length, f.size - 8,
        length > LONGEST_HEADER and '; is it a safetensors file?' or '; it was cut short')
end

local function text_of(f)
    if f.size < 8 then fail(f, 'it has %d bytes; the first 8 of a safetensors file are a length', f.size) end
    local length, bytes = 0, f:read(0, 8)
    for k = 8, 1, -1 do length = length * 256 + bytes:byte(k) end
    check_length(f, length)
    local text = f:read(8, length)
    if length > LARGE_HEADER then collectgarbage() end -- frees the array that the text was read into
    return text
end

-- ---- what the text says ---------------------------------------------------------------------------------------------
local function is_object(value)
    return type(value) == 'table' and value ~= json.null and not json.is_list(value)
end

local function is_counts(value)
    if not json.is_list(value) then return false end
    for _, n in ipairs(value) do
        if type(n) ~= 'number' or n < 0 or n % 1 ~= 0 then return false end
    end
    return true
end

-- Returns the fault of a tensor's fields, or nil and the reason why it cannot be read here, if there is one.
local function check_fields(fields)
    if not is_object(fields) then return 'an object expected' end
    local kind, dims, offsets = fields.dtype, fields.shape, fields.data_offsets
    if type(kind) ~= 'string' then return 'its dtype is ' .. (kind == nil and 'not given' or 'no text') end
    if #kind > LONGEST_DTYPE then return 'its dtype is a long text' end
    if not is_counts(dims) then return 'its shape is no list of sizes' end
    if #dims > MOST_SIZES then return ('its shape has %d sizes'):format(#dims) end
    if not is_counts(offsets) or #offsets ~= 2 then return 'its data_offsets are no two numbers of bytes' end
    local size, dtype = file.element(kind)
    local first, last, bytes = offsets[1], offsets[2], size or OTHERS[kind]
    for k = 1, bytes and #dims or 0 do bytes = bytes * dims[k] end
    if first > last or bytes and last - first ~= bytes then
        return ('%s of shape %s takes %.0f bytes, its data_offsets %.0f to %.0f say %.0f'):format(kind,
            tensor.shape_text(dims), bytes or 0, first, last, last - first)
    end
    if #dims > MOST_DIMS then return nil, ('of %d dims; a tensor has at most %d'):format(#dims, MOST_DIMS) end
    if not dtype then return nil, ('%s, which is not in this version'):format(kind) end
end

local function check_name(name)
    if #name <= LONGEST_NAME then return end
    return ("the name '%s...' has %d bytes; at most %d are read"):format(name:sub(1, 60), #name, LONGEST_NAME)
end

-- Returns the fault of the metadata that comes first by name, or nil.
local function check_strings(strings)
    if not is_object(strings) then return 'an object expected' end
    local least, message
    for name, value in errors.iterate(strings) do
        local fault = check_name(name) or type(value) ~= 'string' and ("'%s' is not a string"):format(name:sub(1, 200))
        if fault and (not least or name < least) then least, message = name, fault end
    end
    return message
end

-- Returns the fault of an entry of the header as a message, or nil.
local function check_entry(name, value)
    local fault = check_name(name)
    if fault then return ': ' .. fault end
    if name == '__metadata__' then
        fault = check_strings(value)
        return fault and ', __metadata__: ' .. fault
    end
    fault = check_fields(value)
    return fault and (", tensor '%s': %s"):format(name, fault)
end

-- Raises 'io' for the first entry with a fault.
local function check_entries(f, value, places)
    local first, message = math.huge, nil
    for name, at in errors.iterate(places) do
        local fault = at < first and check_entry(name, value[name])
        if fault then first, message = at, fault end
    end
    if message then fail(f, 'at byte %.0f%s', 7 + first, message) end
end

-- Returns the names of the tensors in the order of their bytes; tensors of equal places keep the header's order.
local function sorted(value, places)
    local names = {}
    for name in errors.iterate(value) do names[#names + 1] = name end
    table.sort(names, function(a, b)
        local x, y = value[a].data_offsets, value[b].data_offsets
        if x[1] ~= y[1] then return x[1] < y[1] end
        if x[2] ~= y[2] then return x[2] < y[2] end
        return places[a] < places[b]
    end)
    return names
end

-- Raises 'io' unless the tensors follow each other without a hole from the header to the end of the file.
local function check_places(header)
    local f, start, at, before = header.file, header.start, 0, nil
    for _, name in ipairs(header.names) do
        local first, last = unpack(header.fields[name].data_offsets)
        if first < at then
            fail(f, "'%s' begins at byte %.0f, inside '%s', which ends at byte %.0f", name, start + first, before,
                start + at)
        elseif first > at then
            fail(f, "the bytes %.0f to %.0f, before '%s', belong to no tensor", start + at, start + first, name)
        end
        at, before = last, name
        if start + at > f.size then
            fail(f, "it was cut short: it ends at byte %.0f, '%s' goes from byte %.0f to %.0f", f.size, name,
                start + first, start + at)
        end
    end
    if start + at < f.size then
        fail(f, 'the %.0f bytes from byte %.0f to its end belong to no tensor', f.size - start - at, start + at)
    end
end

-- ---- the whole ------------------------------------------------------------------------------------------------------

--- Describes tensor k, from 1, in the order of the tensors' bytes.
-- @return { file =, name =, kind = 'F32', dtype = that it becomes, dims =, at = byte, bytes =, why = the reason why it
-- cannot be read, or nil }
function Header:entry(k)
    return self:find(self.names[k])
end

--- Returns the tensor of a name in the form of header:entry, or nil.
function Header:find(name)
    local fields = self.fields[name]
    if not fields then return nil end
    local first, last = unpack(fields.data_offsets)
    local _, dtype = file.element(fields.dtype)
    return { file = self.file, name = name, kind = fields.dtype, dtype = dtype, dims = { unpack(fields.shape) },
        at = self.start + first, bytes = last - first, why = select(2, check_fields(fields)) }
end

--- Checks the header of a file.
-- @param f of wane.io.file, or { path =, size = } of a file that is not written yet
-- @param text the header
-- @return as for `read`
-- @raise as `read`
local function check(f, text)
    check_length(f, #text)
    local first = text:match '^[ \n\r\t]*(.?)'
    if first == '' then fail(f, 'at byte %.0f its header is no JSON: an object expected, not the end', 8 + #text) end
    if first ~= '{' then fail(f, 'at byte 8 its header is no JSON object') end
    local value, places, at = json.decode(text, json.null)
    if not value then fail(f, 'at byte %.0f its header is no JSON: %s', 7 + at, places) end
    check_entries(f, value, places)
    local strings = value.__metadata__ or {}
    value.__metadata__ = nil
    local header = setmetatable({ file = f, start = 8 + #text, fields = value, names = sorted(value, places) }, Header)
    header.n = #header.names
    check_places(header)
    return header, strings
end

--- Reads and checks the header of an open file.
-- @param f of wane.io.file
-- @return header: n tensors, their names, header:entry(k), header:find(name); and the metadata: a table of strings
-- @raise 'io' with the byte at which the header is no JSON or cannot be true
local function read(f)
    return check(f, text_of(f))
end

return { check = check, read = read }
