--- Reads the header of a safetensors file at a cost that the header's size bounds, whatever its text is.
--
-- A cursor walks the JSON (wane.report.json, cursor). For each tensor it keeps four numbers in an array and its name as
-- a key; dtype and shape are read again from the text when they are asked for. Every claim is checked against the file
-- before a tensor is touched: a hole, an overlap, a byte too few or too many is an error with its place.
--
--     text     {"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":...
--     records   ^name ^value                    first and last: 0, 8      (4 doubles a tensor)
--
-- Measured: 1.8 to 5 times the header's size beside 64 MiB for metadata, and 0.15 to 1.1 seconds for 16 MiB (headers of
-- 64 KiB to 16 MiB of 26 hostile kinds, spec/hostile_spec.lua).
-- @internal wane.io.header

local binding = require 'wane.ffi'
local file = require 'wane.io.file'
local json = require 'wane.report.json'
local tensor = require 'wane.tensor'
local utf8 = require 'wane.utf8'

local cursor, fail, band, rshift = json.cursor, file.fail, bit.band, bit.rshift

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

-- ---- records --------------------------------------------------------------------------------------------------------
-- Fields of a record: the places of name and value in the text, and the two data_offsets.
local NAME, VALUE, FIRST, LAST = 0, 1, 2, 3

-- Returns a field of record i. Records are in blocks of 1,024 with four doubles each, so that growing copies nothing.
local function get(records, i, field)
    return records[rshift(i, 10)][4 * band(i, 1023) + field]
end

local function put(records, i, name, value, first, last)
    local block = records[rshift(i, 10)]
    if block == nil then
        block = binding.array('f64', 4096)
        records[rshift(i, 10)] = block
    end
    local at = 4 * band(i, 1023)
    block[at + NAME], block[at + VALUE], block[at + FIRST], block[at + LAST] = name, value, first, last
end

local function is_before(records, a, b)
    local x, y = get(records, a, FIRST), get(records, b, FIRST)
    if x ~= y then return x < y end
    return get(records, a, LAST) < get(records, b, LAST)
end

-- Merges order[from, middle) and order[middle, to) into out[from, to).
local function merge(records, order, out, from, middle, to)
    local a, b = from, middle
    for k = from, to - 1 do
        if a < middle and (b >= to or not is_before(records, order[b], order[a])) then
            out[k], a = order[a], a + 1
        else
            out[k], b = order[b], b + 1
        end
    end
end

-- Returns the numbers of n records in the order of their bytes; records of equal places keep the header's order.
local function sorted(records, n)
    local order, is_sorted = binding.array('i32', math.max(1, n)), true
    for i = 0, n - 1 do
        order[i] = i
        is_sorted = is_sorted and (i == 0 or not is_before(records, i, i - 1))
    end
    if is_sorted then return order end
    local other, width = binding.array('i32', n), 1
    while width < n do
        for from = 0, n - 1, 2 * width do
            merge(records, order, other, from, math.min(from + width, n), math.min(from + 2 * width, n))
        end
        order, other, width = other, order, 2 * width
    end
    return order
end

-- ---- one tensor -----------------------------------------------------------------------------------------------------
-- Fills `into` with the counts of a list, MOST_SIZES at most. Returns the number of counts, nil where the value is no
-- list of counts, and the place behind the value.
local function read_counts(text, at, into)
    if text:byte(at) ~= 91 then return nil, cursor.skip_value(text, at) end
    local n, is_right = 0, true
    local entry, after = cursor.first_entry(text, at)
    while entry do
        local b, value = text:byte(entry), nil
        if b and (b == 45 or b >= 48 and b <= 57) then
            value, entry = cursor.number(text, entry)
        else
            entry = cursor.skip_value(text, entry)
        end
        if value and value >= 0 and value % 1 == 0 then
            n = n + 1
            if n <= MOST_SIZES then into[n] = value end
        else
            is_right = false
        end
        entry, after = cursor.next_entry(text, entry, 93)
    end
    return is_right and n or nil, after
end

-- Returns the dtype that is read at a place, or nil, the place behind it, and the fault, or nil.
local function read_dtype(text, at)
    if text:byte(at) ~= 34 then return nil, cursor.skip_value(text, at), 'no text' end
    local stop = cursor.skip_string(text, at)
    if stop - at > LONGEST_DTYPE + 2 then return nil, stop, 'a long text' end
    return cursor.string(text, at)
end

local FIELDS = { dtype = true, shape = true, data_offsets = true }

-- Reads the object that describes a tensor.
-- `into` gets dtype (or nil and fault), ndim (nil: no list of counts), dims, n_offsets, offsets.
-- Returns the place behind it; nil where there is no object.
local function read_fields(text, at, into)
    if text:byte(at) ~= 123 then return nil end
    into.dtype, into.fault, into.ndim, into.n_offsets = nil, 'not given', nil, nil
    into.has_dtype, into.has_shape, into.has_data_offsets = false, false, false
    local entry, after = cursor.first_entry(text, at)
    while entry do
        cursor.need_name(text, entry)
        local stop, key = cursor.skip_string(text, entry), nil
        if stop - entry <= LONGEST_NAME then key = cursor.string(text, entry) end
        local value = cursor.skip_colon(text, stop)
        if key and FIELDS[key] then
            if into['has_' .. key] then cursor.wrong(entry, "the name '%s' stands there twice", key) end
            into['has_' .. key] = true
        end
        if key == 'dtype' then
            into.dtype, stop, into.fault = read_dtype(text, value)
        elseif key == 'shape' then
            into.ndim, stop = read_counts(text, value, into.dims)
        elseif key == 'data_offsets' then
            into.n_offsets, stop = read_counts(text, value, into.offsets)
        else
            stop = cursor.skip_value(text, value, 2)
        end
        entry, after = cursor.next_entry(text, stop, 125)
    end
    return after
end

local function dims_of(fields)
    local dims = {}
    for k = 1, fields.ndim do dims[k] = fields.dims[k] end
    return dims
end

-- Returns the reason why a tensor cannot be read here, or nil, and the fault of its fields, or nil.
local function check_fields(fields)
    if not fields.dtype then return nil, 'its dtype is ' .. fields.fault end
    if not fields.ndim then return nil, 'its shape is no list of sizes' end
    if fields.ndim > MOST_SIZES then return nil, ('its shape has %d sizes'):format(fields.ndim) end
    if fields.n_offsets ~= 2 then return nil, 'its data_offsets are no two numbers of bytes' end
    local size, dtype = file.element(fields.dtype)
    local first, last, bytes = fields.offsets[1], fields.offsets[2], size or OTHERS[fields.dtype]
    for k = 1, bytes and fields.ndim or 0 do bytes = bytes * fields.dims[k] end
    if first > last or bytes and last - first ~= bytes then
        return nil, ('%s of shape %s takes %.0f bytes, its data_offsets %.0f to %.0f say %.0f'):format(fields.dtype,
            tensor.shape_text(dims_of(fields)), bytes or 0, first, last, last - first)
    end
    if fields.ndim > MOST_DIMS then return ('of %d dims; a tensor has at most %d'):format(fields.ndim, MOST_DIMS) end
    if not dtype then return ('%s, which is not in this version'):format(fields.dtype) end
end

-- ---- the whole ------------------------------------------------------------------------------------------------------
local function read_name(f, text, at)
    cursor.need_name(text, at)
    local stop = cursor.skip_string(text, at)
    if stop - at - 2 > 6 * LONGEST_NAME then -- 6 bytes: an escape of one
        fail(f, "at byte %.0f: the name '%s...' has %.0f bytes; at most %d are read", 7 + at,
            text:sub(at + 1, at + 60), stop - at - 2, LONGEST_NAME)
    end
    local name = cursor.string(text, at)
    if #name > LONGEST_NAME then
        fail(f, "at byte %.0f: the name '%s...' has %d bytes; at most %d are read", 7 + at, name:sub(1, 60), #name,
            LONGEST_NAME)
    end
    return name, stop
end

-- Bytes that a name and a text of metadata take in Lua beside their letters.
-- Measured: 100 to 170.
local BYTES_OF_PAIR = 170

-- Returns the strings of the metadata, the place behind them, and their fault, or nil.
local function read_metadata(f, text, at)
    if text:byte(at) ~= 123 then return {}, cursor.skip_value(text, at), 'an object expected' end
    local strings, cost, fault = {}, 0, nil
    local entry, after = cursor.first_entry(text, at)
    while entry do
        local key, stop = read_name(f, text, entry)
        if strings[key] then cursor.wrong(entry, "the name '%s' stands there twice", key:sub(1, 200)) end
        local value = cursor.skip_colon(text, stop)
        if text:byte(value) == 34 then
            strings[key], stop = cursor.string(text, value)
        else
            fault, stop = fault or ("'%s' is not a string"):format(key:sub(1, 200)), cursor.skip_value(text, value)
        end
        cost = cost + BYTES_OF_PAIR
        if cost > json.FLOOR + 3 * #text then
            fail(f, 'at byte %.0f, __metadata__: it has more than %.0f names of few letters, which would take more '
                .. 'than %.1f MiB', 7 + entry, cost / BYTES_OF_PAIR, cost / 2 ^ 20)
        end
        entry, after = cursor.next_entry(text, stop, 125)
    end
    return strings, after, fault
end

-- Returns the place behind the tensor, and its fault, or nil.
local function read_tensor(header, name, name_at, value_at)
    local fields = header.fields
    local after = read_fields(header.text, value_at, fields)
    if not after then return cursor.skip_value(header.text, value_at), 'an object expected' end
    local _, fault = check_fields(fields)
    if fault then return after, fault end
    put(header.records, header.n, name_at, value_at, fields.offsets[1], fields.offsets[2])
    header.n = header.n + 1
    return after
end

-- Fills the header and returns the metadata. A text that is no JSON is raised before a fault in what the JSON says.
local function read_all(header)
    local text, strings, message = header.text, nil, nil
    local entry, after = cursor.first_entry(text, cursor.skip(text, 1))
    while entry do
        local name, stop = read_name(header.file, text, entry)
        local value = cursor.skip_colon(text, stop)
        if header.index[name] then cursor.wrong(entry, "the name '%s' stands there twice", name:sub(1, 200)) end
        local is_metadata = name == '__metadata__'
        if not message then header.index[name] = is_metadata and 0 or header.n + 1 end
        local fault
        if is_metadata then
            strings, stop, fault = read_metadata(header.file, text, value)
        else
            stop, fault = read_tensor(header, name, entry, value)
        end
        if fault and not message then
            local form = is_metadata and '%s' or "tensor '%s'"
            message = ('at byte %.0f, ' .. form .. ': %s'):format(7 + entry, name, fault)
        end
        entry, after = cursor.next_entry(text, stop, 125)
    end
    json.need_end(text, after)
    if message then fail(header.file, '%s', message) end
    header.index.__metadata__ = nil
    return strings or {}
end

-- Raises 'io' unless the tensors follow each other without a hole from the header to the end of the file.
local function check_places(header)
    local f, start, records = header.file, header.start, header.records
    local at, before = 0, nil
    for k = 0, header.n - 1 do
        local i = header.order[k]
        local first = get(records, i, FIRST)
        if first < at then
            fail(f, "'%s' begins at byte %.0f, inside '%s', which ends at byte %.0f", header:name(k + 1),
                start + first, header:name(before), start + at)
        elseif first > at then
            fail(f, "the bytes %.0f to %.0f, before '%s', belong to no tensor", start + at, start + first,
                header:name(k + 1))
        end
        at, before = get(records, i, LAST), k + 1
        if start + at > f.size then
            fail(f, "it was cut short: it ends at byte %.0f, '%s' goes from byte %.0f to %.0f", f.size,
                header:name(k + 1), start + first, start + at)
        end
    end
    if start + at < f.size then
        fail(f, 'the %.0f bytes from byte %.0f to its end belong to no tensor', f.size - start - at, start + at)
    end
end

--- Returns the name of tensor k, from 1, in the order of the tensors' bytes.
function Header:name(k)
    return (cursor.string(self.text, get(self.records, self.order[k - 1], NAME)))
end

-- Returns record i, from 0, in the form of Header:entry.
local function entry_of(self, i, name)
    local fields = self.fields
    read_fields(self.text, get(self.records, i, VALUE), fields)
    local _, dtype = file.element(fields.dtype)
    return { file = self.file, name = name, kind = fields.dtype, dtype = dtype, dims = dims_of(fields),
        at = self.start + fields.offsets[1], why = (check_fields(fields)) }
end

--- Describes tensor k, from 1, in the order of the tensors' bytes.
-- @return { file =, name =, kind = 'F32', dtype = that it becomes, dims =, at = byte, why = the reason why it cannot be
-- read, or nil }
function Header:entry(k)
    return entry_of(self, self.order[k - 1], self:name(k))
end

--- Frees the index of header:find, which takes as much as the names; header:find must not be called again.
function Header:forget()
    self.index = nil
end

--- Returns the bytes of tensor k, from 1, in the file.
function Header:bytes(k)
    local i = self.order[k - 1]
    return get(self.records, i, LAST) - get(self.records, i, FIRST)
end

--- Returns the tensor of a name in the form of header:entry, or nil.
function Header:find(name)
    local number = self.index[name]
    if number then return entry_of(self, number - 1, name) end
end

--- Checks the header of a file.
-- @param f of wane.io.file, or { path =, size = } of a file that is not written yet
-- @param text the header
-- @return as for `read`
-- @raise as `read`
local function check(f, text)
    local start = 8 + #text
    check_length(f, #text)
    local bad = utf8.wrong(text)
    if bad then fail(f, 'at byte %.0f its header is no JSON: this is no UTF-8', 7 + bad) end
    local first = text:byte(cursor.skip(text, 1))
    if first == nil then fail(f, 'at byte %.0f its header is no JSON: an object expected, not the end', 8 + #text) end
    if first ~= 123 then fail(f, 'at byte 8 its header is no JSON object') end
    local header = setmetatable({ file = f, text = text, start = start, n = 0, records = {}, index = {},
        fields = { dims = {}, offsets = {} } }, Header)
    local strings, why, at = json.try(read_all, header)
    if not strings then fail(f, 'at byte %.0f its header is no JSON: %s', 7 + at, why) end
    header.order = sorted(header.records, header.n)
    check_places(header)
    return header, strings
end

--- Reads and checks the header of an open file.
-- @param f of wane.io.file
-- @return header: n tensors, header:entry(k), header:name(k), header:find(name); and the metadata: a table of strings
-- @raise 'io' with the byte at which the header is no JSON or cannot be true
local function read(f)
    return check(f, text_of(f))
end

return { check = check, read = read }
