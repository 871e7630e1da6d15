--- The format of numpy.save, versions 1 to 3.
--
-- A file is a magic word, a version, the length of a header, the header (a Python dict), then the elements, in either
-- order of their bytes, row by row or (Fortran order) column by column. Signed integers, and unsigned ones of 16 bits
-- or more, become i32; each is checked to fit.
-- @module wane.data.npy

local file = require 'wane.io.file'
local op = require 'wane.tensor.op'

local fail = file.fail

-- Codes of numpy -> kinds of elements (wane.io.file).
local KINDS = { f2 = 'F16', f4 = 'F32', f8 = 'F64', i1 = 'I8', i2 = 'I16', i4 = 'I32', i8 = 'I64', u1 = 'U8',
    u2 = 'U16', u4 = 'U32', u8 = 'U64', b1 = 'BOOL' }
local LONGEST_HEADER = 2 ^ 20 -- bytes; numpy writes 128, and reads 10,000 unless told otherwise

local function header_of(f)
    if f.size < 12 or f:read(0, 6) ~= '\147NUMPY' then fail(f, 'at byte 0: it is no file of numpy.save') end
    local version, _, a, b, c, d = f:read(6, 6):byte(1, 6)
    if version < 1 or version > 3 then fail(f, 'at byte 6: version %d of the format is not known', version) end
    local length, start = a + 256 * b, 10
    if version > 1 then length, start = length + 65536 * (c + 256 * d), 12 end
    if length > LONGEST_HEADER then
        fail(f, 'at byte 8 the header is said to have %.0f bytes; that of numbers has a few hundred', length)
    end
    if start + length > f.size then
        fail(f, 'at byte 8 the header is said to have %d bytes, the file ends at byte %d', length, f.size)
    end
    return f:read(start, length), start + length
end

-- Returns the tensor of an array in column-major order: it reads the array with its dims reversed, which is row-major,
-- and permutes them. It takes the tensor's bytes twice while it permutes.
local function transposed(f, entry)
    local back, axes, n = {}, {}, #entry.dims
    for k = 1, n do back[k], axes[k] = entry.dims[n + 1 - k], n + 1 - k end
    entry.dims = back
    local stored = f:data(entry)
    local turned = stored:permute(unpack(axes))
    op.eval { turned }
    stored:free()
    return turned
end

local function read(f)
    local text, start = header_of(f)
    local order, code = text:match "'descr':%s*'([<>|=]?)(%a%d+)'"
    local kind = code and KINDS[code]
    if not kind then
        fail(f, "its elements are %s; there are f2, f4, f8, i1 to i8, u1 to u8, b1: save a.astype('float32') or such",
            (text:match "'descr':%s*(.-),%s*'" or 'not named'):sub(1, 60))
    end
    local order_word = text:match "'fortran_order':%s*(%a+)"
    if order_word ~= 'False' and order_word ~= 'True' then
        fail(f, 'its header does not say whether it is in Fortran order')
    end
    local shape = text:match "'shape':%s*%(([%d,%s]*)%)"
    if not shape then fail(f, 'its header has no shape') end
    local dims = {}
    for d in shape:gmatch '%d+' do
        dims[#dims + 1] = tonumber(d)
        if #dims > 8 then fail(f, 'more than 8 dims; a tensor has at most 8') end
    end
    local entry = { at = start, kind = kind, dims = dims, name = 'the array', is_turned = order == '>' }
    f:need_whole(entry)
    return order_word == 'True' and #dims > 1 and transposed(f, entry) or f:data(entry)
end

--- Reads a .npy file into a tensor on the current device.
-- @function data.npy
-- @param path name of the file
-- @return tensor; float32, float64, int32, int8 and uint8 keep their dtypes; float16 becomes f32, which holds each of
-- its numbers; other integers become i32, and bool u8
-- @raise 'io' when it is no whole file of numpy.save, or its elements have no dtype here; 'value' with the first
-- integer that i32 does not hold
-- @usage
-- local header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }"
-- local file = io.open('two.npy', 'wb')
-- file:write('\147NUMPY\1\0', string.char(#header, 0), header, '\5\6')
-- file:close()
-- print(data.npy 'two.npy') --> tensor (2) u8 [5, 6]
return function(path)
    return file.read(path, 'wane.data.npy', read)
end
