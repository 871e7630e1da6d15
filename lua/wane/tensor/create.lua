--- Creation: new tensors from nothing, from Lua tables, and from memory of the caller.
--
-- A creation op is a node: nothing is allocated until a program needs the value. With `requires_grad = true` the result
-- is a state cell whose first value is that node's. Numbers from Lua tables and from memory are copied at once. The
-- dtype is f32 unless given (randint: i32); the device is the current one unless given.
-- @module wane.tensor.create

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local gc = require 'wane.gc'

local C = binding.C
local id, raise = op.id, errors.raise
local getmetatable, ipairs, tostring, type = getmetatable, ipairs, tostring, type

local create = {}

local OPTIONS = { 'dtype', 'device', 'requires_grad', 'name' }
local KIND_INPUT = 4
local MOST_DIMS = binding.most_dims

create.KIND_PARAMETER, create.KIND_OPTIMIZER, create.KIND_BUFFER, create.KIND_INPUT = 0, 2, 3, KIND_INPUT

local function is_options(x)
    return type(x) == 'table' and getmetatable(x) == nil and x[1] == nil and next(x) ~= nil
end

-- Returns a copy of the first n entries of a list of dims, or of all.
local function shape_of(what, list, n)
    local dims = {}
    n = n or errors.list(list, what, 'dims', 0, OPTIONS)
    if n > MOST_DIMS then
        raise(nil, 'shape', '%s: %d dims given, a value has at most %d', what, n, MOST_DIMS)
    end
    for k = 1, n do dims[k] = op.size(list[k], what .. ': dim') end
    return dims
end

-- Returns the list of dims and the options of the arguments (2, 3, opts) or ({2, 3}, opts). Arguments are counted by
-- hand: `select(n, ...)` with an n found in a loop gave wrong answers in compiled code (LuaJIT 2.1 of 2022).
local function shape_and_options(what, ...)
    local a, b, c, d, e, f, g, h, i, j = ...
    local given = { a, b, c, d, e, f, g, h, i, j }
    local n = 10
    while n > 0 and given[n] == nil do n = n - 1 end
    local opts
    if n > 0 and is_options(given[n]) then
        opts = given[n]
        n = n - 1
    end
    if n >= 1 and type(a) == 'table' and not tensor.is(a) then
        if n > 1 then
            raise(nil, 'value', '%s: options must be a table with names, got %s', what, errors.describe(b))
        end
        return shape_of(what, a), opts
    end
    return shape_of(what, given, n), opts
end

local function finish(made, opts)
    if opts and type(opts.name) ~= 'nil' and type(opts.name) ~= 'string' then
        raise(nil, 'value', 'name: expected a string, got %s', errors.describe(opts.name))
    end
    if opts and opts.requires_grad then
        if not tensor.is_float[tensor.typed(made)._dtype] then
            raise(nil, 'dtype', 'requires_grad: only floats can have gradients, got %s', tensor.describe(made))
        end
        local cell = binding.id(C.wn_cell(KIND_INPUT, made.id, opts.name or 'input'))
        binding.check(C.wn_cell_need_grad(cell, 1))
        return tensor.wrap(cell)
    end
    if opts and opts.name then binding.check(C.wn_rename(made.id, opts.name)) end
    return made
end

--- Records the creation op o with attributes on a device, all by number. line: that of op.line(true).
-- @within Internal
function create.on(device, o, at, line)
    local before = C.wn_device_set(device)
    local handle = C.wn_record(o, 0, nil, at, line)
    C.wn_device_set(before)
    return (tensor.wrap(binding.id(handle)))
end

--- Records a creation op.
-- @within Internal
-- @param what opens messages
-- @param o number of the op
-- @param dims list of dims
-- @param opts {dtype =, device =, requires_grad =, name =} or nil
-- @param attributes {first number, second number of the op, dtype = where opts has none (f32), layout = number of
-- runtime/base/layout.h (0: plain)}
local function make(what, o, dims, opts, attributes)
    opts = errors.check_options(opts, OPTIONS, what)
    local at = op.attrs()
    at.dtype = op.dtype(opts.dtype or attributes.dtype or 'f32', what)
    local device = opts.device ~= nil and op.device(opts.device, what) or nil
    at.n = binding.fill_dims(at.i, dims, what)
    at.f[0], at.f[1] = attributes[1], attributes[2]
    at.layout = attributes.layout or 0
    return finish(device and create.on(device, o, at, op.line(true)) or op.nullary(o, at), opts)
end
create.make = make

--- Returns the layout of a tensor: a number of runtime/base/layout.h; 0 is row-major.
-- @within Internal
function create.layout(t)
    return tensor.info(t).type.layout
end

--- Returns the layout of the weight of an nn.Linear or an nn.Conv2d.
-- @within Internal
-- @param dims {outputs, inputs} or {outputs, inputs / groups, rows, columns}
-- @param device number of the device; nil: the current one
function create.weight_layout(dims, device)
    return C.wn_weight_layout(device or C.wn_here().device, binding.type_of(dims, 0, 'weight'))
end

--- Returns t, or a copy of it in another layout.
-- @within Internal
function create.laid(t, layout)
    if create.layout(t) == layout then return t end
    local at = op.attrs()
    at.layout = layout
    return (op.unary(id.relayout, t, at))
end

-- Creates a tensor by op `o`, of dims and options that are given as numbers or lists.
local function filled(what, o, attributes, ...)
    local dims, opts = shape_and_options(what, ...)
    return make(what, o, dims, opts, attributes)
end

--- Creates a tensor of zeros: `wane.zeros(2, 3, opts)` or `wane.zeros({ 2, 3 }, opts)`.
-- @function wane.zeros
-- @param ... dims, as numbers or as one list
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @usage print(wane.zeros(2, { dtype = 'i32' })) --> tensor (2) i32 [0, 0]
function create.zeros(...) return filled('wane.zeros', id.full, { 0, 0 }, ...) end

--- Creates a tensor of ones, with arguments as in wane.zeros.
-- @function wane.ones
-- @param ... dims, as numbers or as one list
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @usage print(wane.ones(3)) --> tensor (3) f32 [1., 1., 1.]
function create.ones(...) return filled('wane.ones', id.full, { 1, 0 }, ...) end

--- Creates a tensor whose elements are all the same number.
-- @param dims list of dims, or the one dim
-- @param value number
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @usage print(wane.full({ 2 }, 0.5)) --> tensor (2) f32 [0.5000, 0.5000]
function create.full(dims, value, opts)
    if type(dims) == 'number' then dims = { dims } end
    if type(value) ~= 'number' then
        raise(nil, 'value', 'wane.full: expected a number to fill with, got %s', errors.describe(value))
    end
    return make('wane.full', id.full, shape_of('wane.full', dims), opts, { value, 0 })
end

--- Creates a tensor of random numbers that are uniform in [0, 1).
-- @function wane.rand
-- @param ... dims, as numbers or as one list
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @usage
-- local u = wane.rand(2, 3)
-- print(u.shape, u:min():item() >= 0, u:max():item() < 1) --> (2, 3)	true	true
function create.rand(...) return filled('wane.rand', id.uniform, { 0, 1 }, ...) end

--- Creates a tensor of normal random numbers, of mean 0 and deviation 1.
-- @function wane.randn
-- @param ... dims, as numbers or as one list
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @usage print(wane.randn(2, 3).shape) --> (2, 3)
function create.randn(...) return filled('wane.randn', id.normal, { 0, 1 }, ...) end

--- Creates a tensor of random integers, low <= v < high.
-- @param low integer of 32 bits; may be left out, then it is 0
-- @param high integer of 32 bits
-- @param dims list of dims
-- @param opts {dtype = 'i32', device =, name =}
-- @usage
-- local ids = wane.randint(10, { 4 })
-- print(ids.shape, ids.dtype, wane.randint(5, 6, { 2 })) --> (4)	i32	tensor (2) i32 [5, 5]
function create.randint(low, high, dims, opts)
    local function refuse(v)
        raise(nil, 'value', 'wane.randint: limits must be integers of 32 bits, got %s', errors.describe(v))
    end
    if type(high) ~= 'number' then low, high, dims, opts = 0, low, high, dims end
    for _, v in ipairs { low, high } do
        if type(v) ~= 'number' or v % 1 ~= 0 or v < -2 ^ 31 or v > 2 ^ 31 then refuse(v) end
    end
    if low == nil or high == nil then refuse(nil) end
    if low >= high then
        raise(nil, 'value', 'wane.randint: no integer lies in %d <= v < %d', low, high)
    end
    return make('wane.randint', id.randint, shape_of('wane.randint', dims), opts,
        { low, high, dtype = 'i32' })
end

--- Creates the numbers start, start + step, start + 2 step and so on, up to but without stop.
-- @param start number; may be left out together with step, then it is 0
-- @param stop number
-- @param step number, 1 unless given; a negative step counts down
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @return tensor of one dim
-- @usage print(wane.arange(3), wane.arange(1, 2, 0.5)) --> tensor (3) f32 [0., 1., 2.]	tensor (2) f32 [1.0000, 1.5000]
function create.arange(start, stop, step, opts)
    if type(step) == 'table' then step, opts = nil, step end
    if type(stop) == 'table' then stop, opts = nil, stop end
    if stop == nil then start, stop = 0, start end
    step = step or 1
    op.finite(start, 'wane.arange: start')
    op.finite(stop, 'wane.arange: stop')
    op.finite(step, 'wane.arange: step')
    if step == 0 then raise(nil, 'value', 'wane.arange: the step is 0') end
    local n = math.max(0, math.ceil((stop - start) / step))
    return make('wane.arange', id.arange, { op.size(n, 'wane.arange: count') }, opts, { start, step })
end

--- Creates the unit matrix (n, n).
-- @param n number of rows
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @usage print(wane.eye(2):totable()[2][2]) --> 1
function create.eye(n, opts)
    op.size(n, 'wane.eye')
    return make('wane.eye', id.eye, { n, n }, opts, { 0, 0 })
end

-- Returns the shape of a nested table, read along its first entries; `flatten` checks the others.
local function measure(value, what)
    local dims = {}
    local level = value
    while type(level) == 'table' and not tensor.is(level) do
        dims[#dims + 1] = #level
        if #dims > MOST_DIMS then
            raise(nil, 'shape', '%s: the table is nested deeper than %d', what, MOST_DIMS)
        end
        level = level[1]
    end
    return dims
end

local function flatten(value, dims, depth, out, n, what)
    if depth > #dims then
        if type(value) ~= 'number' then
            raise(nil, 'value', '%s: expected numbers in a table nested %d deep, got %s', what, #dims,
                errors.describe(value))
        end
        out[n] = value
        return n + 1
    end
    if type(value) ~= 'table' or errors.list(value, what, 'numbers', 0, OPTIONS) ~= dims[depth] then
        raise(nil, 'shape', '%s: the table is ragged: expected %d entries at depth %d, got %s', what, dims[depth],
            depth, type(value) == 'table' and #value or errors.describe(value))
    end
    for k = 1, dims[depth] do n = flatten(value[k], dims, depth + 1, out, n, what) end
    return n
end

local RANGE = { i32 = { -2 ^ 31, 2 ^ 31 - 1 }, u8 = { 0, 255 }, i8 = { -128, 127 } }

local function check_range(out, n, dtype, what)
    local range = RANGE[dtype]
    if not range then return end
    for k = 0, n - 1 do
        local v = out[k]
        if v % 1 ~= 0 or v < range[1] or v > range[2] then
            raise(nil, 'value', '%s: %s does not fit %s', what, tostring(v), dtype)
        end
    end
end

--- Makes a held value of bytes of the caller, which are copied.
-- @within Internal
-- @param dims list of dims
-- @param dtype name
-- @param device number; nil: the current one
-- @param bytes cdata, row-major; nil on meta
function create.data(dims, dtype, device, bytes)
    local number = device or C.wn_here().device
    local type_ = binding.type_of(dims, tensor.dtype_id[dtype], 'data')
    local made = tensor.wrap(binding.id(C.wn_data(type_, number, bytes)))
    gc.count()
    return made
end

--- Creates a tensor of given numbers, which are copied now.
-- @param value number, or nested table of numbers
-- @param opts {dtype = 'f32', device = the current one, requires_grad = false, name =}
-- @raise 'shape' for a ragged table; 'value' for a number that the dtype cannot hold
-- @usage print(wane.tensor({ { 1, 2 }, { 3, 4 } }).shape, wane.tensor(3)) --> (2, 2)	tensor () f32 3.
function create.tensor(value, opts)
    local what = 'wane.tensor'
    opts = errors.check_options(opts, OPTIONS, what)
    local dtype = opts.dtype or 'f32'
    op.dtype(dtype, what)
    if type(value) ~= 'number' and (type(value) ~= 'table' or tensor.is(value)) then
        raise(nil, 'value', '%s: expected a number or a nested table of numbers, got %s', what,
            errors.describe(value))
    end
    local dims = measure(value, what)
    local stored = (dtype == 'bf16' or dtype == 'f16') and 'f32' or dtype
    local wide = binding.array('f64', math.max(1, tensor.count(dims)))
    local n = flatten(value, dims, 1, wide, 0, what)
    check_range(wide, n, dtype, what)
    local bytes = binding.array(stored, math.max(1, n))
    for k = 0, n - 1 do bytes[k] = wide[k] end
    local device = opts.device ~= nil and op.device(opts.device, what) or nil
    if dtype == 'bf16' then stored, bytes = dtype, binding.round(bytes, n) end
    local made = create.data(dims, stored, device, bytes)
    if stored ~= dtype then made = made:to(dtype) end -- f16: raises that it is not in this version
    return finish(made, opts)
end

--- Creates a tensor with a copy of the caller's row-major bytes.
-- @param bytes cdata of at least as many elements as the shape has; its size is checked when it is an array
-- @param dims list of dims
-- @param dtype 'f32' unless given
-- @param opts {device =, requires_grad =, name =}
-- @usage
-- local numbers = ffi.new('float[2]', 1, 2)
-- print(wane.from(numbers, { 2 })) --> tensor (2) f32 [1., 2.]
function create.from(bytes, dims, dtype, opts)
    local what = 'wane.from'
    if type(bytes) ~= 'cdata' then
        raise(nil, 'value', '%s: expected cdata (an array or a pointer), got %s', what, errors.describe(bytes))
    end
    dtype = dtype or 'f32'
    op.dtype(dtype, what)
    opts = errors.check_options(opts, { 'device', 'requires_grad', 'name' }, what)
    local list = shape_of(what, dims)
    local need = tensor.count(list) * binding.element_bytes[dtype]
    if not binding.is_memory(bytes) then
        raise(nil, 'value', '%s: expected an array or a pointer that is not null, got %s', what, tostring(bytes))
    end
    local have = binding.array_bytes(bytes)
    if have and have < need then
        raise(nil, 'value', '%s: %s %s needs %d bytes, the array has %d', what, tensor.shape_text(list), dtype,
            need, have)
    end
    local device = opts.device ~= nil and op.device(opts.device, what) or nil
    return finish(create.data(list, dtype, device, bytes), opts)
end

--- Makes a state cell; the tensor that is returned names it.
-- @within Internal
-- @param kind create.KIND_PARAMETER, ...
-- @param init tensor of its first value, usually a creation node
-- @param name text for reports
function create.cell(kind, init, name)
    if type(name) ~= 'nil' and type(name) ~= 'string' then
        raise(nil, 'value', 'name: expected a string, got %s', errors.describe(name))
    end
    return tensor.wrap(binding.id(C.wn_cell(kind, init.id, name or '')))
end

return create
