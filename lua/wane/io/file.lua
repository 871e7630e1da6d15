--- Files of the library as Lua sees them: written whole or not at all (runtime/io), and closed whatever happens.
-- @internal wane.io.file

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise

local file = {}

local File = {}
File.__index = File

local function open(fn, path, what)
    if type(path) ~= 'string' or path == '' or path:find('\0', 1, true) then
        raise(nil, 'value', '%s: expected the name of a file, got %s', what, errors.describe(path))
    end
    local handle = binding.id(fn(path))
    return setmetatable({ handle = handle, ref = binding.Ref(handle), path = path, size = C.wn_file_size(handle) },
        File)
end

local function close(f)
    C.wn_free(f.handle)
    f.ref.id = -1 -- the number may be another handle's soon
end

--- Writes a file: calls fn(f), which uses f:write and f:save, then puts the file in its place at once.
-- @param path the file's name
-- @param what opens the message of an error
-- @param fn function(f); an error in it leaves the old file as it was
-- @return the result of fn
function file.write(path, what, fn)
    local f = open(C.wn_file_create, path, what)
    return scoped.always(function() close(f) end, function()
        local result = fn(f)
        check(C.wn_file_commit(f.handle))
        return result
    end)
end

--- Reads a file: calls fn(f), which uses f:read, f:data and f:load; f.size is the length in bytes.
-- @return the results of fn
function file.read(path, what, fn)
    local f = open(C.wn_file_open, path, what)
    return scoped.always(function() close(f) end, fn, f)
end

--- Raises 'io' for what is read in a file.
-- @param f the file, or a table with its path
-- @param fmt what is wrong, with the values after it
function file.fail(f, fmt, ...)
    raise(nil, 'io', "reading '%s': %s", f.path, fmt:format(...))
end

--- Appends a string.
function File:write(text)
    check(C.wn_file_write(self.handle, text, #text))
end

--- Appends n bytes of an array.
function File:write_from(bytes, n)
    check(C.wn_file_write(self.handle, bytes, n))
end

--- Appends the bytes of a tensor, which must hold them.
function File:save(t)
    check(C.wn_file_save(self.handle, t.id))
end

--- Returns n bytes from byte `at` (from 0) as a string.
function File:read(at, n)
    local bytes = binding.array('u8', math.max(1, n))
    check(C.wn_file_read(self.handle, at, bytes, n))
    return binding.string(bytes, n)
end

--- Reads n bytes from byte `at` (from 0) into an array of the caller.
function File:read_into(at, bytes, n)
    check(C.wn_file_read(self.handle, at, bytes, n))
end

--- Returns the bytes of an element of a kind, named as in safetensors files ('F16', 'I64'), and the dtype that such
-- elements become; nil for a kind that is not in this version.
function file.element(kind)
    local bytes = C.wn_element_bytes(kind)
    if bytes > 0 then return bytes, tensor.dtype_name[C.wn_element_dtype(kind)] end
end

-- Fills what a wn_file_piece says of the file; the strings live as long as `entry` does.
local function fill(piece, f, entry)
    piece.at, piece.kind, piece.name, piece.file = entry.at, entry.kind, entry.name, f.handle
    piece.swap = entry.is_turned and 1 or 0
end

--- Makes a tensor from a part of the file, on the current device, in the dtype that its kind becomes.
-- @param entry { at = byte (from 0), kind = 'F32', dims = list, name = text for messages, is_turned = whether the bytes
-- of an element are in the other order }
-- @raise 'value' with the first element that the dtype does not hold; 'shape' for more dims than a tensor has
function File:data(entry)
    local type_ = binding.type_of(entry.dims, C.wn_element_dtype(entry.kind), ("reading '%s'"):format(self.path))
    local piece = binding.new('struct wn_file_piece')
    fill(piece, self, entry)
    local made = tensor.wrap(binding.id(C.wn_file_data(piece, type_, C.wn_here().device)))
    require('wane.gc').count()
    return made
end

--- Raises 'io' unless an array takes all of the file behind its header.
-- @param entry of File:data
function File:need_whole(entry)
    local bytes, rest = tensor.count(entry.dims) * file.element(entry.kind), self.size - entry.at
    if rest == bytes then return end
    file.fail(self, '%s %s takes %.0f bytes after byte %d, the file has %.0f', tensor.shape_text(entry.dims),
        entry.kind:lower(), bytes, entry.at, rest)
end

--- Reads states in their own dtypes, all or none.
-- @param list of { entry = as for File:data, with file = the open file, cell = state, first = element of the state that
-- its first becomes, count = elements, columns = of a matrix that the file has transposed, else 0; rows = of that, and
-- from = element of it, where the piece is `count` elements of the matrix }, those of a state one after the other
function file.load(list)
    local n = #list
    local pieces = binding.list('struct wn_file_piece', math.max(1, n))
    for k, item in ipairs(list) do
        local piece = pieces[k - 1]
        fill(piece, item.entry.file, item.entry)
        piece.cell, piece.first, piece.count, piece.columns = item.cell.id, item.first, item.count, item.columns
        piece.rows, piece.from = item.rows or 0, item.from or 0
    end
    check(C.wn_file_load(n, pieces))
end

return file
