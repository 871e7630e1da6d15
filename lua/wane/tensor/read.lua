--- Reading and moving values: the methods that run recorded nodes, and `to`.
--
-- item, totable, copy_to and print are run points: they run the smallest program that makes the value, and keep that
-- value alone. `detach`, `retain`, `named` and a change of dtype only record.
-- @module wane.tensor.read

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C = binding.C
local methods, iterate, raise = tensor.methods, errors.iterate, errors.raise
local ipairs, tonumber, type = ipairs, tonumber, type

local read = {}

local MOST_BYTES = 2 ^ 31 -- of one array of LuaJIT's ffi

local function reshape_same(t)
    local at = op.attrs()
    at.n = binding.fill_dims(at.i, t._dims, 'reshape')
    return (op.unary(op.id.reshape, t, at))
end

--- Computes t unless it holds bytes already. Returns t; of a state that ranks have in ranges, a copy that is whole,
-- which all of them make.
-- @within Internal
function read.run(t)
    scoped.sync()
    if tensor.is_sharded(t) then t = reshape_same(t) end
    if not op.held(t) then op.eval { t } end
    return t
end

--- Reads what this rank has of a state, as it is stored.
-- @within Internal
-- @return array
function read.own(t)
    if not tensor.is_sharded(t) then return (read.raw(t)) end
    local _, n = tensor.range(t)
    local dtype = tensor.dtype_name[tensor.typed(t)._dtype]
    local elements = binding.array(dtype, math.max(1, n))
    if n > 0 then binding.check(C.wn_read_part(t.id, 0, elements, n * binding.element_bytes[dtype])) end
    return elements
end

--- Reads the elements of a tensor that has a value, as they are stored.
-- @within Internal
-- @return array, the number of its bytes
function read.raw(t)
    local dtype, n = tensor.dtype_name[tensor.typed(t)._dtype], tensor.count(t._dims)
    local elements, bytes = binding.array(dtype, math.max(1, n)), n * binding.element_bytes[dtype]
    if n > 0 then binding.check(C.wn_read(t.id, elements, bytes)) end
    return elements, bytes
end

--- Reads the elements of a tensor that has a value as numbers: those of bf16 are widened to f32, and a NaN is plain.
-- @within Internal
function read.numbers(t)
    local elements, dtype, n = read.raw(t), tensor.dtype_name[t._dtype], tensor.count(t._dims)
    if dtype == 'bf16' then elements, dtype = binding.widen(elements, n), 'f32' end
    binding.plain_nans(elements, dtype, n)
    return elements
end

local function need_bytes(t, what)
    if binding.string(C.wn_device_name(tensor.typed(t)._device)) == 'meta' then
        raise(nil, 'device', '%s: %s lies on meta, which has shapes and costs but no bytes', what,
            tensor.describe(t))
    end
end

--- Returns the elements of t, row-major, as a cdata array and its length; bf16 is widened to f32.
-- @within Internal
-- @param t tensor
-- @param what opens messages
-- @raise 'device' on meta; 'value' for 2 GiB or more, which one array of Lua cannot hold
function read.buffer(t, what)
    tensor.need_self(t, what)
    need_bytes(t, what)
    local n = tensor.count(t._dims)
    if n > 0 then t = read.run(t) end
    local bytes = n * binding.element_bytes[tensor.dtype_name[t._dtype]]
    if bytes >= MOST_BYTES then
        raise(nil, 'value', '%s: %s takes %.0f bytes, Lua can hold below 2 GiB of it; read parts with narrow', what,
            tensor.describe(t), bytes)
    end
    return read.numbers(t), n
end

--- Returns the number in a tensor of one element. A run point.
-- @param t tensor
-- @raise 'shape' for more elements; 'device' on meta
-- @usage print(wane.tensor({ 1, 2 }):sum():item()) --> 3
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

--- Returns the elements as nested tables, or a number for a 0-d tensor. A run point.
-- @param t tensor
-- @raise 'device' on meta; 'value' for 2 GiB or more
-- @usage print(wane.tensor({ { 1, 2 }, { 3, 4 } }):totable()[2][1]) --> 3
function methods.totable(t)
    local buffer = read.buffer(t, 'totable')
    return (nest(buffer, t._dims, 1, 0))
end

--- Copies the elements, row-major, in the tensor's own dtype, into the caller's memory. A run point.
-- @param t tensor
-- @param target cdata; its size is checked when it is an array
-- @return target
-- @raise 'device' on meta; 'value' for an array that is too small
-- @usage
-- local numbers = wane.tensor({ 1, 2 }):copy_to(ffi.new 'float[2]')
-- print(numbers[1]) --> 2
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
        t = read.run(t)
        binding.check(C.wn_read(t.id, target, bytes))
    end
    return target
end

--- Returns the same value as a leaf: no gradient flows through it to the values that it was computed from.
-- @usage print(loss:detach().requires_grad) --> false
function methods.detach(t)
    tensor.need_self(t, 'detach')
    tensor.typed(t)
    return scoped('grad', 0, reshape_same, t)
end

--- Keeps the value as a result of the next program that reaches it. Returns t. Data, in which no state is
-- and which no gradient reaches, is made before the backward or step that reads it.
-- A value that is not retained is gone after the run, and is computed again when it is read.
-- @usage
-- local hidden = model[1](x):retain()
-- hidden:sum():backward()
-- print(hidden:mean():item() == hidden:mean():item()) --> true
function methods.retain(t)
    tensor.need_self(t, 'retain')
    binding.check(C.wn_retain(t.id))
    return t
end

--- Names the value for policies (policy.by_name) and reports. Returns t.
-- @param t tensor
-- @param name text
-- @usage
-- local hidden = model[1](x):named 'hidden'
-- hidden:gelu():sum():backward { policy = policy.by_name { hidden = 'recompute' } }
function methods.named(t, name)
    tensor.need_self(t, 'named')
    if type(name) ~= 'string' or name == '' then
        raise(nil, 'value', 'named: expected a name, got %s', errors.describe(name))
    end
    binding.check(C.wn_rename(tensor.typed(t).id, name))
    return t
end

--- Gives the bytes of a held value back now; the tensor cannot be used any more.
-- @usage
-- local batch = wane.eval(wane.randn(32, 8))
-- print(model(batch):mean():item() ~= nil) --> true
-- batch:free()
function methods.free(t)
    tensor.need_self(t, 'free')
    tensor.typed(t)
    binding.check(C.wn_free(t.id))
    tensor.disown(t)
end

local CAST

--- Returns the tensor in another dtype, which records a node, or on another device, which is a run point.
-- @param t tensor
-- @param where name of a dtype or of a device
-- @raise 'value' for an unknown name; 'device' for a device that is not here
-- @usage print(x:to('bf16').dtype, x:to('meta').device) --> bf16	meta
function methods.to(t, where)
    tensor.need_self(t, 'to')
    if type(where) == 'string' and tensor.dtype_id[where] then
        if tensor.typed(t)._dtype == tensor.dtype_id[where] then return t end
        CAST = CAST or op.id.cast
        local at = op.attrs()
        at.dtype = tensor.dtype_id[where]
        return (op.unary(CAST, t, at))
    end
    if type(where) ~= 'string' then
        raise(nil, 'value', "to: expected a dtype or a device, 'bf16', 'cpu', got %s", errors.describe(where))
    end
    if not where:match('^cuda') and where ~= 'auto' then
        local known = op.device_names()
        local found = false
        for _, name in ipairs(known) do found = found or name == where end
        if not found then
            for name in iterate(tensor.dtype_id) do known[#known + 1] = name end
            table.sort(known)
            raise(nil, 'value', "to: unknown dtype or device '%s'; %s", where, errors.near(where, known))
        end
    end
    local device = op.device(where, 'to')
    if device == tensor.typed(t)._device then return t end
    if where == 'meta' then return create.data(t._dims, tensor.dtype_name[t._dtype], device, nil) end
    need_bytes(t, 'to')
    return tensor.wrap(binding.id(C.wn_move(read.run(t).id, device)))
end

--- Tells whether a and b are equal but for rounding: |a - b| <= atol + rtol |b| everywhere. A run point;
-- `wane.allclose(a, b)` is the same function.
-- @param a float tensor
-- @param b tensor of the same dtype that broadcasts with a, or number
-- @param opts {rtol = 1e-5, atol = 1e-8, equal_nan = false: whether NaN equals NaN}
-- @return true or false
-- @usage print(wane.tensor({ 1, 2 }):allclose(wane.tensor({ 1, 2.00001 }))) --> true
function methods.allclose(a, b, opts)
    tensor.need_self(a, 'allclose')
    opts = errors.check_options(opts, { 'rtol', 'atol', 'equal_nan' }, 'allclose')
    local rtol = opts.rtol == nil and 1e-5 or op.finite(opts.rtol, 'allclose: rtol')
    local atol = opts.atol == nil and 1e-8 or op.finite(opts.atol, 'allclose: atol')
    if type(b) == 'number' then b = create.full({}, b, { dtype = a.dtype, device = a.device }) end
    if not tensor.is(b) then op.bad_operand(op.id.eq, b, 2) end
    local far = (a - b):abs()
    local near = far:le(b:abs() * rtol + atol):to 'i32' * far:isfinite():to 'i32' + a:eq(b):to 'i32'
    if opts.equal_nan then near = near + a:isnan():to 'i32' * b:isnan():to 'i32' end
    return near:all():item() == 1
end

--- Assigns a value to a state: a parameter, a gradient, or a leaf with requires_grad. Returns t. A run point.
-- Optimizers written in Lua, averages of weights and loading are made of it.
-- @param t tensor that names a state
-- @param value tensor of its shape and dtype, or number for all elements
-- @raise 'value' for a tensor that is no state; 'shape' or 'dtype' for a value that does not fit
-- @usage
-- local w = wane.zeros(2, { requires_grad = true })
-- w:assign(w + 1)
-- print(w) --> tensor (2) f32 [1., 1.]
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
    op.run { mode = 'assign', roots = { value }, cells = { t } }
    return t
end

return read
