--- The IDX format, in which MNIST and data sets like it come.
--
-- A file is four bytes (0, 0, type, number of dims), the dims as 32-bit numbers, then the elements, most significant
-- byte first. Types: unsigned and signed byte, short, int, float, double; signed bytes and shorts become i32.
-- @module wane.data.idx

local file = require 'wane.io.file'

local fail = file.fail

-- Types of the format -> kinds of elements (wane.io.file).
local KINDS = { [0x08] = 'U8', [0x09] = 'I8', [0x0B] = 'I16', [0x0C] = 'I32', [0x0D] = 'F32', [0x0E] = 'F64' }

local function read(f)
    if f.size < 4 then fail(f, 'it has %d bytes; an IDX file begins with 4', f.size) end
    local a, b, kind, ndim = f:read(0, 4):byte(1, 4)
    if a == 0x1F and b == 0x8B then fail(f, "it is compressed (gzip); unpack it first: gunzip -k '%s'", f.path) end
    if a ~= 0 or b ~= 0 then fail(f, 'at byte 0: 0, 0 expected, not %d, %d; it is no IDX file', a, b) end
    local element = KINDS[kind]
    if not element then fail(f, 'at byte 2: type 0x%02X is none of IDX', kind) end
    if ndim > 8 then fail(f, 'at byte 3: %d dims; a tensor has at most 8', ndim) end
    if f.size < 4 + 4 * ndim then fail(f, 'it ends at byte %d, within the %d dims', f.size, ndim) end
    local dims, text = {}, f:read(4, 4 * ndim)
    for k = 1, ndim do
        local p, q, r, s = text:byte(4 * k - 3, 4 * k)
        dims[k] = ((p * 256 + q) * 256 + r) * 256 + s
    end
    local entry = { at = 4 + 4 * ndim, kind = element, dims = dims, name = 'the array', is_turned = true }
    f:need_whole(entry)
    return f:data(entry)
end

--- Reads an IDX file into a tensor on the current device.
-- @function data.idx
-- @param path name of the file, unpacked
-- @return tensor, such as (60000, 28, 28) u8
-- @raise 'io' with the byte at which it is no whole IDX file
-- @usage
-- local file = io.open('two.idx', 'wb')
-- file:write '\0\0\8\1\0\0\0\2\5\6'
-- file:close()
-- print(data.idx 'two.idx') --> tensor (2) u8 [5, 6]
return function(path)
    return file.read(path, 'wane.data.idx', read)
end
