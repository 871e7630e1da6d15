--- Reading and moving values: the methods that run what was recorded, and `to`.
--
-- item, totable, copy_to, print are run points: they run the least program that makes the value, and keep
-- only it. `detach`, `retain`, `named` and a change of dtype only record.
-- @module wane.tensor.read

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local upper = require 'wane.upper'
local within = require 'wane.scoped'

local C = binding.C
local methods, raise = tensor.methods, errors.raise
local ipairs, tonumber, type = ipairs, tonumber, type

local read = {}

local MOST_BYTES = 2 ^ 31 -- of one array of LuaJIT's ffi

--- Makes sure t holds bytes: runs it when it does not.
function read.run(t)
    within.sync()
    if not op.held(t) then op.eval { t } end
    return t
end

local function need_bytes(t, what)
    if binding.string(C.wn_device_name(tensor.typed(t)._device)) == 'meta' then
        raise(nil, 'device', '%s: %s lies on meta, which has shapes and costs but no bytes', what,
            tensor.describe(t))
    end
end

--- The elements of t, row-major, as a cdata array and its length; bf16 comes as f32.
function read.buffer(t, what)
    tensor.need_self(t, what)
    need_bytes(t, what)
    local dtype = tensor.dtype_name[t._dtype]
    local n = tensor.count(t._dims)
    if n > 0 then read.run(t) end
    local bytes = n * binding.element_bytes[dtype]
    if bytes >= MOST_BYTES then
        raise(nil, 'value', '%s: %s takes %.0f bytes, Lua can hold below 2 GiB of it; read parts with narrow', what,
            tensor.describe(t), bytes)
    end
    local buffer = binding.array(dtype, math.max(1, n))
    if n > 0 then binding.check(C.wn_read(t.id, buffer, bytes)) end
    if dtype == 'bf16' then buffer, dtype = binding.widen(buffer, n), 'f32' end
    binding.plain_nans(buffer, dtype, n)
    return buffer, n
end

--- The number in a tensor of one element. A run point.
function methods.item(t)
    tensor.need_self(t, 'item')
    if tensor.count(tensor.typed(t)._dims) ~= 1 then
        raise(nil, 'shape', 'item: expected one element, got %s; use totable()', tensor.describe(t))
    end
    return tonumber((read.buffer(t, 'item'))[0])
end

local function nest(buffer, dims, depth, at)
    if depth > #dims then return tonumber(buffer[at]), at + 1 end
    local list = {}
    for k = 1, dims[depth] do list[k], at = nest(buffer, dims, depth + 1, at) end
    return list, at
end

--- Nested tables of numbers; a number for a 0-d tensor. A run point.
function methods.totable(t)
    local buffer = read.buffer(t, 'totable')
    return (nest(buffer, t._dims, 1, 0))
end

--- Copies the elements, row-major, in the tensor's own dtype, into the caller's memory. A run point.
-- @param t tensor
-- @param target cdata; its size is checked when it is an array
-- @return target
function methods.copy_to(t, target)
    tensor.need_self(t, 'copy_to')
    need_bytes(t, 'copy_to')
    if type(target) ~= 'cdata' then
        raise(nil, 'value', 'copy_to: expected cdata (an array or a pointer), got %s', errors.describe(target))
    end
    local bytes = tensor.count(t._dims) * binding.element_bytes[tensor.dtype_name[t._dtype]]
    if not binding.is_memory(target) then
        raise(nil, 'value', 'copy_to: expected an array or a pointer that is not null, got %s', tostring(target))
    end
    local have = binding.array_bytes(target)
    if have and have < bytes then
        raise(nil, 'value', 'copy_to: %s needs %d bytes, the array has %d', tensor.describe(t), bytes, have)
    end
    if bytes > 0 then
        read.run(t)
        binding.check(C.wn_read(t.id, target, bytes))
    end
    return target
end

local function reshape_same(t)
    local at = op.attrs()
    at.n = binding.fill_dims(at.i, t._dims, 'reshape')
    return op.unary(op.id.reshape, t, at)
end

--- The same value, cut from what it was computed from: no gradient flows through it.
function methods.detach(t)
    tensor.need_self(t, 'detach')
    tensor.typed(t)
    return within('grad', 0, reshape_same, t)
end

--- Keeps the value as a result of the next program that reaches it. Returns t.
function methods.retain(t)
    tensor.need_self(t, 'retain')
    binding.check(C.wn_retain(t.id))
    return t
end

--- Names the value for policies (policy.by_name) and reports. Returns t.
function methods.named(t, name)
    tensor.need_self(t, 'named')
    if type(name) ~= 'string' or name == '' then
        raise(nil, 'value', 'named: expected a name, got %s', errors.describe(name))
    end
    if tensor.typed(t)._cell then
        binding.check(C.wn_cell_rename(t.id, name))
    else
        binding.check(C.wn_rename(t.id, name))
    end
    return t
end

--- Gives the bytes of a held value back now; the tensor cannot be used any more.
function methods.free(t)
    tensor.need_self(t, 'free')
    tensor.typed(t)
    binding.check(C.wn_free(t.id))
    tensor.disown(t)
end

local CAST

--- Another dtype (a node) or another device (a run point): t:to 'bf16', t:to 'meta'.
function methods.to(t, where)
    tensor.need_self(t, 'to')
    if type(where) == 'string' and tensor.dtype_id[where] then
        if tensor.typed(t)._dtype == tensor.dtype_id[where] then return t end
        CAST = CAST or op.id.cast
        local at = op.attrs()
        at.dtype = tensor.dtype_id[where]
        return op.unary(CAST, t, at)
    end
    if type(where) ~= 'string' then
        raise(nil, 'value', "to: expected a dtype or a device, 'bf16', 'cpu', got %s", errors.describe(where))
    end
    if not where:match('^cuda') and where ~= 'auto' then
        local known = op.device_names()
        local found = false
        for _, name in ipairs(known) do found = found or name == where end
        if not found then
            for name in pairs(tensor.dtype_id) do known[#known + 1] = name end
            table.sort(known)
            raise(nil, 'value', "to: unknown dtype or device '%s'; %s", where, errors.near(where, known))
        end
    end
    local device = op.device(where, 'to')
    if device == tensor.typed(t)._device then return t end
    if where == 'meta' then
        return create.data(t._dims, tensor.dtype_name[t._dtype], device, nil)
    end
    need_bytes(t, 'to')
    local bytes = binding.array(tensor.dtype_name[t._dtype], math.max(1, tensor.count(t._dims)))
    methods.copy_to(t, bytes)
    return create.data(t._dims, tensor.dtype_name[t._dtype], device, bytes)
end

--- The values of a state (a parameter, a gradient, a leaf with requires_grad) become those of `value`.
-- A run point, and the door for optimizers written in Lua, averages of weights, loading.
function methods.assign(t, value)
    tensor.need_self(t, 'assign')
    if not tensor.typed(t)._cell then
        raise(nil, 'value', 'assign: %s is a value, not a state; values are immutable', tensor.describe(t))
    end
    if type(value) == 'number' then value = create.full(t._dims, value, {
        dtype = tensor.dtype_name[t._dtype], device = tensor.fields.device(t) }) end
    if not tensor.is(value) then
        raise(nil, 'value', 'assign: expected a tensor or a number, got %s', errors.describe(value))
    end
    tensor.typed(value)
    if tensor.shape_text(value._dims) ~= tensor.shape_text(t._dims) or value._dtype ~= t._dtype then
        raise(nil, value._dtype ~= t._dtype and 'dtype' or 'shape', 'assign: the state is %s, the value is %s',
            tensor.describe(t), tensor.describe(value))
    end
    upper.run { mode = 'assign', roots = { value }, cells = { t } }
    return t
end

return read
