--- The binding of the library: the only file that requires LuaJIT's ffi.
--
-- Arrays of the ffi check no index, so every array of a length found at run time is made here, and every array inside a
-- struct is filled here (`fill_dims`), each after its length was compared; spec/api_spec.lua looks for others.
-- The library carries its own declarations (runtime/wane.h and the headers beside it), so that binding and library
-- cannot drift. It is loaded once and anchored in this table, because a finalizer must never run after it is gone.
-- Handles are int32 numbers; an object that keeps one keeps a `Ref`, whose finalizer only puts the handle into a queue
-- in C.
-- @internal wane.ffi

local ffi = require 'ffi'
local errors = require 'wane.errors'

local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift

local binding = {}

local function exists(path)
    local f = io.open(path, 'rb')
    if f then f:close() end
    return f ~= nil
end

-- Returns the paths where the library may be. Where WANE_LIB (a folder or a file) is set, that path alone, and
-- WANE_LIB; else the checkout that this file is in, the folder of this file, then the loader's own search.
local function candidates()
    local list = {}
    local env = os.getenv('WANE_LIB')
    if env and env ~= '' then return { env:match('%.so$') and env or env .. '/libwane.so' }, env end
    local folder = debug.getinfo(1, 'S').source:match('^@(.*[/\\])') or './'
    list[#list + 1] = folder .. '../../build/libwane.so'
    list[#list + 1] = folder .. '../../lib/libwane.so'
    list[#list + 1] = folder .. 'libwane.so'
    for template in package.cpath:gmatch('[^;]+') do
        if template:find('?', 1, true) then list[#list + 1] = (template:gsub('%?', 'libwane')) end
    end
    return list
end

local function load_library()
    local tried, named = candidates()
    for _, path in ipairs(tried) do
        if exists(path) then
            local ok, clib = pcall(ffi.load, path)
            if not ok then
                error(errors.new('io', 'wane: ' .. path .. ' does not load: ' .. tostring(clib)), 0)
            end
            return clib, path
        end
    end
    if named then
        error(errors.new('io', ('wane: WANE_LIB=%s: there is no %s; name the folder of libwane.so or the file, or '
            .. 'unset WANE_LIB'):format(named, tried[1])), 0)
    end
    local ok, clib = pcall(ffi.load, 'wane')
    if ok then return clib, 'libwane.so' end
    error(errors.new('io', 'wane: libwane.so was not found; run make, or set WANE_LIB to its folder (tried '
        .. table.concat(tried, ', ') .. ')'), 0)
end

local C, path = load_library()
ffi.cdef 'const char *wn_cdef(void);'
ffi.cdef(ffi.string(C.wn_cdef()))
ffi.cdef 'struct wane_ref { int32_t id; }; struct wane_sentinel { int32_t unused; };'

binding.C = C
binding.path = path
binding.string = ffi.string
binding.copy = ffi.copy
binding.fill = ffi.fill
binding.sizeof = ffi.sizeof
binding.new = ffi.new
binding.cast = ffi.cast
binding.null = nil

--- Returns whether x is a cdata of this ctype (text or ctype).
binding.istype = ffi.istype

local oom, anomaly = ffi.new('struct wn_oom'), ffi.new('struct wn_anomaly')
local PHASES = { [0] = 'forward', 'recompute', 'backward', 'update' }

-- Returns the error object of a status, with the message of the library's last failure.
local function failure(code)
    local word = ffi.string(C.wn_status_name(code))
    local message = ffi.string(C.wn_message())
    if message:find('^handle %-1 is nothing') then message = 'this tensor was freed (t:free()); record it again' end
    local extra
    if word == 'oom' then
        C.wn_oom_last(oom)
        extra = {
            bytes = tonumber(oom.bytes), live = tonumber(oom.live), peak = tonumber(oom.peak),
            reserved = tonumber(oom.reserved), limit = tonumber(oom.limit), needs = tonumber(oom.least),
            least = tonumber(oom.least),
        }
    end
    if word == 'anomaly' then
        C.wn_anomaly_last(anomaly)
        local line = ffi.string(C.wn_line_text(anomaly.line))
        extra = {
            op = ffi.string(anomaly.op), path = ffi.string(anomaly.path), module = ffi.string(anomaly.module),
            line = line ~= '' and line or nil, phase = PHASES[anomaly.phase], count = tonumber(anomaly.count),
            elements = tonumber(anomaly.elements), first = tonumber(anomaly.first) + 1, value = anomaly.value,
        }
    end
    return errors.new(word, message, extra)
end
binding.failure = failure

--- Raises at the user's line unless code is 0.
-- @param code a status that a C function returned, or its negative
-- @return 0
-- @usage local binding = require 'wane.ffi'
-- binding.check(binding.C.wn_memory_reset_peak(0))
function binding.check(code)
    if code ~= 0 then error(failure(code < 0 and -code or code), 0) end
    return code
end

--- Returns a handle or a count; raises at the user's line when it is the negative of a status.
-- @param id the number that a C function returned
-- @usage local binding = require 'wane.ffi'
-- local line = binding.id(binding.C.wn_line 'train.lua:12')
function binding.id(id)
    if id < 0 then error(failure(-id), 0) end
    return id
end

local declared = {} -- declarations that LuaJIT has: it refuses a struct for the second time

--- Loads another library: the first of `names` that is there.
-- @param names list of file names for the loader; an empty list is the process itself
-- @param cdef declarations of the functions that are called in it
-- @return the library and its name, or nil when none loads
function binding.open_library(names, cdef)
    if not declared[cdef] then
        if not pcall(ffi.cdef, cdef) then return nil end
        declared[cdef] = true
    end
    if #names == 0 then return ffi.C, 'the process' end
    for _, name in ipairs(names) do
        local ok, clib = pcall(ffi.load, name)
        if ok then return clib, name end
    end
    return nil
end

--- Returns the text of a `const char *`; nil for a null pointer.
function binding.text(p)
    if p == nil then return nil end
    return ffi.string(p)
end

--- A cdata that owns one handle, and releases it when it is collected. All share one finalizer, which calls into C once
-- and cannot fail.
binding.Ref = ffi.metatype('struct wane_ref', {
    __gc = function(ref) C.wn_release(ref.id) end,
})

local Sentinel
local at_collection = {}

--- Calls fn once in every full cycle of the collector, after weak tables were cleared.
-- @param fn a function that cannot fail
function binding.each_collection(fn)
    at_collection[#at_collection + 1] = fn
end

Sentinel = ffi.metatype('struct wane_sentinel', {
    __gc = function()
        for k = 1, #at_collection do at_collection[k]() end
        Sentinel()
    end,
})
Sentinel()

local element = {
    f32 = 'float[?]', f64 = 'double[?]', i32 = 'int32_t[?]', u8 = 'uint8_t[?]', i8 = 'int8_t[?]',
    bf16 = 'uint16_t[?]', f16 = 'uint16_t[?]',
}
local array = {}
for name, text in errors.iterate(element) do array[name] = ffi.typeof(text) end

local MOST_BYTES = 2 ^ 31 -- LuaJIT makes no array of this many bytes

-- Raises 'value' for a length that no array of the ffi can have.
local function check_length(n, size)
    if type(n) ~= 'number' or n % 1 ~= 0 or n < 0 or n * size >= MOST_BYTES then
        errors.raise(nil, 'value', 'an array of %s elements of %d bytes cannot be made; Lua holds below 2 GiB in one',
            errors.describe(n), size)
    end
end

--- The bytes of one element, by dtype.
binding.element_bytes = { f32 = 4, f64 = 8, i32 = 4, u8 = 1, i8 = 1, bf16 = 2, f16 = 2 }

--- Makes an array of n elements of a dtype, zeroed. Half types are raw 16-bit words.
-- @param dtype 'f32', 'f64', 'i32', 'u8', 'i8', 'bf16', 'f16'
-- @param n elements
-- @raise 'value' unless n is an integer from 0 on and the array takes less than 2 GiB.
function binding.array(dtype, n)
    check_length(n, binding.element_bytes[dtype])
    return array[dtype](n)
end

local lists, list_sizes = {}, {}

--- Makes an array of n elements of a C type, zeroed.
-- @param name a C type, 'struct wn_step' or 'int64_t'
-- @param n elements
-- @raise 'value' unless n is an integer from 0 on and the array takes less than 2 GiB.
function binding.list(name, n)
    if lists[name] == nil then lists[name], list_sizes[name] = ffi.typeof(name .. '[?]'), ffi.sizeof(name) end
    check_length(n, list_sizes[name])
    return lists[name](n)
end

local MOST_DIMS = 8 -- of `dim` in wn_type and `i` in wn_attrs
binding.most_dims = MOST_DIMS

--- Fills the dims of a wn_type or the integers of a wn_attrs. No other function writes either by a length that is found
-- at run time.
-- @param target the array of 8 integers
-- @param list at most 8 integers
-- @param what opens the message of an error
-- @return how many there are
-- @raise 'shape' for more than 8; 'value' for an entry that is no integer. Nothing is written then.
function binding.fill_dims(target, list, what)
    local n = #list
    if n > MOST_DIMS then
        errors.raise(nil, 'shape', '%s: %d dims given, a value has at most %d', what, n, MOST_DIMS)
    end
    for k = 1, n do
        local d = list[k]
        if type(d) ~= 'number' or d % 1 ~= 0 or d < -2 ^ 53 or d > 2 ^ 53 then
            errors.raise(nil, 'value', '%s: dim %d must be an integer, got %s', what, k, errors.describe(d))
        end
    end
    for k = 1, n do target[k - 1] = list[k] end
    return n
end

--- Makes a wn_type.
-- @param dims list of at most 8 sizes
-- @param dtype number of a dtype
-- @param what opens the message of an error
-- @return a new struct wn_type
-- @raise those of fill_dims.
function binding.type_of(dims, dtype, what)
    local made = ffi.new('struct wn_type')
    made.dtype, made.ndim = dtype, binding.fill_dims(made.dim, dims, what)
    return made
end

--- Widens n bf16 words to f32, which is exact.
-- @param halves uint16 array
-- @param n elements
-- @return a new array of f32
function binding.widen(halves, n)
    local wide = array.f32(math.max(1, n))
    local bits = ffi.cast('int32_t *', wide)
    for k = 0, n - 1 do bits[k] = lshift(halves[k], 16) end
    return wide
end

--- Replaces every NaN of an array by the plain one. Lua tells its types apart by the bits of NaNs, so no number may be
-- read from an array of foreign bits before: -NaN with all bits set would become a nil, or worse.
-- @param buffer array of dtype 'f32' or 'f64'; others are left alone
-- @param dtype its dtype
-- @param n elements
function binding.plain_nans(buffer, dtype, n)
    local bits = ffi.cast('int32_t *', buffer)
    if dtype == 'f32' then
        for k = 0, n - 1 do
            if band(bits[k], 0x7fffffff) > 0x7f800000 then bits[k] = 0x7fc00000 end
        end
    elseif dtype == 'f64' then
        for k = 1, 2 * n - 1, 2 do
            local upper = band(bits[k], 0x7fffffff)
            if upper > 0x7ff00000 or upper == 0x7ff00000 and bits[k - 1] ~= 0 then
                bits[k - 1], bits[k] = 0, 0x7ff80000
            end
        end
    end
end

--- Rounds n floats to bf16: to nearest, ties to even; a NaN stays a NaN.
-- @param wide float array
-- @param n elements
-- @return a new array of bf16 words
function binding.round(wide, n)
    local halves = array.bf16(math.max(1, n))
    local bits = ffi.cast('int32_t *', wide)
    for k = 0, n - 1 do
        local b = bits[k]
        local upper = rshift(b, 16)
        if band(b, 0x7fffffff) > 0x7f800000 then
            halves[k] = bor(upper, 0x40)
        else
            halves[k] = rshift(b + 0x7fff + band(upper, 1), 16)
        end
    end
    return halves
end

--- Returns whether a cdata names memory: an array, a struct, or a pointer that is not null.
function binding.is_memory(x)
    local text = tostring(x)
    if text:find '^ctype<' or x == nil then return false end
    return (pcall(ffi.new, 'const void *', x))
end

--- Returns the bytes of an array cdata; nil for a pointer, whose extent is not known.
function binding.array_bytes(x)
    local text = tostring(x):match '^cdata<(.*)>' or '' -- busted makes ffi.typeof remember whatever it is given
    if text:find('*', 1, true) or text:find('&', 1, true) then return nil end
    return ffi.sizeof(x)
end

--- Makes an int32 array for handles.
-- @param n elements
-- @param list numbers that fill it (optional)
-- @return a new array
-- @usage local binding = require 'wane.ffi'
-- local inputs = binding.handles(2, { 4, 5 })
function binding.handles(n, list)
    local a = binding.array('i32', math.max(n, 1))
    if list then
        for i = 1, n do a[i - 1] = list[i] end
    end
    return a
end

local status = C.wn_start()
if status ~= 0 then error(failure(status), 0) end

return binding
