--- wane.data.npy(path): a tensor from a file of numpy.save, row-major, versions 1 to 3 of the format.
--
-- A magic word, a version, the length of a header, the header (a Python dict), then the elements, in either order of
-- their bytes.
-- @module wane.data.npy

local errors = require 'wane.errors'
local file = require 'wane.io.file'
local tensor = require 'wane.tensor'

local DTYPES = { f4 = 'f32', f8 = 'f64', i4 = 'i32', u1 = 'u8', i1 = 'i8', b1 = 'u8' }
local BYTES = { f32 = 4, f64 = 8, i32 = 4, u8 = 1, i8 = 1 }

local function fail(f, fmt, ...)
    errors.raise(nil, 'io', "reading '%s': %s", f.path, fmt:format(...))
end

local function header_of(f)
    if f.size < 12 or f:read(0, 6) ~= '\147NUMPY' then fail(f, 'at byte 0: it is no file of numpy.save') end
    local version, _, a, b, c, d = f:read(6, 6):byte(1, 6)
    if version < 1 or version > 3 then fail(f, 'at byte 6: version %d of the format is not known', version) end
    local length, start = a + 256 * b, 10
    if version > 1 then length, start = length + 65536 * (c + 256 * d), 12 end
    if start + length > f.size then
        fail(f, 'at byte 8 the header is said to have %d bytes, the file ends at byte %d', length, f.size)
    end
    return f:read(start, length), start + length
end

local function read(f)
    local text, start = header_of(f)
    local order, code = text:match "'descr':%s*'([<>|=]?)(%a%d+)'"
    local dtype = code and DTYPES[code]
    if not dtype then
        fail(f, "its elements are %s; there are f4, f8, i4, i1, u1, b1: save a.astype('float32') or such",
            text:match "'descr':%s*(.-),%s*'" or 'not named')
    end
    if not text:find "'fortran_order':%s*False" then
        fail(f, 'it is not row-major; save numpy.ascontiguousarray(a)')
    end
    local shape = text:match "'shape':%s*%(([%d,%s]*)%)"
    if not shape then fail(f, 'its header has no shape') end
    local dims = {}
    for d in shape:gmatch '%d+' do dims[#dims + 1] = tonumber(d) end
    if #dims > 8 then fail(f, '%d dims; a tensor has at most 8', #dims) end
    local bytes = tensor.count(dims) * BYTES[dtype]
    if f.size - start ~= bytes then
        fail(f, '%s %s takes %.0f bytes after byte %d, the file has %.0f', tensor.shape_text(dims), dtype, bytes, start,
            f.size - start)
    end
    return f:data(start, dtype, dims, order == '>' and BYTES[dtype] > 1)
end

--- wane.data.npy(path): the tensor of a .npy file, on the current device.
-- @param path name of the file
-- @return tensor; f4, f8, i4, i1, u1 as they are, bool as u8
-- Errors: 'io' when it is no whole file of numpy.save, or its elements have no dtype here.
return function(path)
    return file.read(path, 'wane.data.npy', read)
end
