--- Files of the library, as Lua sees them: written whole or not at all (runtime/io), closed whatever happens.
-- @module wane.io.file

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
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
    C.wn_file_close(f.handle)
    f.ref.id = -1 -- the number may be another handle's soon
end

local function leave(f, ok, ...)
    close(f)
    if not ok then error((...), 0) end
    return ...
end

--- Writes a file: fn(f) with f:write and f:save, then everything is put in place at once.
-- @param path the file's name
-- @param what opens the message of an error
-- @param fn function(f); an error in it leaves the old file as it was
-- @return what fn returns
function file.write(path, what, fn)
    local f = open(C.wn_file_create, path, what)
    return leave(f, pcall(function()
        local result = fn(f)
        check(C.wn_file_commit(f.handle))
        return result
    end))
end

--- Reads a file: fn(f) with f:read, f:data and f:load; f.size is its length in bytes.
-- @return what fn returns
function file.read(path, what, fn)
    local f = open(C.wn_file_open, path, what)
    return leave(f, pcall(fn, f))
end

--- Appends a string.
function File:write(text)
    check(C.wn_file_write(self.handle, text, #text))
end

--- Appends the bytes of a tensor that holds some.
function File:save(t)
    check(C.wn_file_save(self.handle, t.id))
end

--- n bytes from byte `at` (from 0), as a string.
function File:read(at, n)
    local bytes = binding.array('u8', math.max(1, n))
    check(C.wn_file_read(self.handle, at, bytes, n))
    return binding.string(bytes, n)
end

--- n bytes from byte `at` (from 0) into an array of the caller.
function File:read_into(at, bytes, n)
    check(C.wn_file_read(self.handle, at, bytes, n))
end

--- A new tensor from byte `at`, on the current device.
-- @param at byte, from 0
-- @param dtype
-- @param dims list
-- @param is_turned the elements' bytes stand there in the other order
function File:data(at, dtype, dims, is_turned)
    local type_ = binding.type_of(dims, tensor.dtype_id[dtype], self.path)
    local device = C.wn_device_set(0)
    C.wn_device_set(device)
    local swap = is_turned and binding.element_bytes[dtype] or 0
    local made = tensor.wrap(binding.id(C.wn_file_data(self.handle, at, type_, device, swap)))
    require('wane.upkeep').made(device)
    return made
end

--- Reads states, all or none.
-- @param cells list of states
-- @param places list of bytes, from 0
function File:load(cells, places)
    local n = #cells
    local ids, at = {}, binding.list('int64_t', math.max(1, n))
    for k = 1, n do ids[k], at[k - 1] = cells[k].id, places[k] end
    check(C.wn_file_load(self.handle, n, binding.handles(n, ids), at))
end

return file
