--- Recording: from Lua operands to one node of the graph.
--
-- One input buffer and one attribute block are reused, so recording allocates the result and nothing else. Numbers as
-- operands become 0-d constants of the tensor's dtype; they are bound at run time and are never part of a plan's key.
-- The library checks shapes and dtypes at once; a failure raises at the script's line. Lines of nodes are not recorded
-- unless `op.lines(true)`, because walking the stack costs more than recording. Inside wane.autocast the operands go
-- through its rules first; outside, that is one test of a local.
-- Functions that record a node return it in parentheses, since LuaJIT compiles at most 15 tail calls in a trace.
-- @internal wane.tensor.op

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local tensor = require 'wane.tensor'
local promote = require 'wane.tensor.promote'
local scoped = require 'wane.scoped'

local C = binding.C
local raise = errors.raise
local Tensor, wrap = tensor.Tensor, tensor.wrap
local getmetatable, ipairs, setmetatable, table, tostring, type =
    getmetatable, ipairs, setmetatable, table, tostring, type

local op = {}

local MOST = 1024
local inputs = binding.handles(MOST)
local attrs = binding.new('struct wn_attrs')
local zero = binding.new('struct wn_attrs')
local number = binding.new('double[8]')
local attrs_bytes = binding.sizeof('struct wn_attrs')

-- Numbers of ops by name: op.id.matmul.
op.id = setmetatable({}, {
    __index = function(ids, name)
        local id = C.wn_op_id(name)
        if id < 0 then raise(nil, 'internal', "op: the library has no op '%s'", tostring(name)) end
        ids[name] = id
        return id
    end,
})

local RANDOM, REAL = 2, 512 -- WN_RANDOM, WN_REAL in runtime/base/opcode.h

--- Rows of runtime/op.def by number and by name: { name =, most = inputs, is_random =, is_differentiable =, autocast =,
-- positions = words of the columns }.
op.rows = {}
do
    local info, real = binding.new('struct wn_op_info'), {}
    for id = 0, C.wn_op_count() - 1 do
        binding.check(C.wn_op_get(id, info))
        local row = { name = binding.string(info.name), most = info.most, autocast = binding.string(info.autocast),
            positions = binding.string(info.positions), is_random = info.flags % (2 * RANDOM) >= RANDOM,
            is_differentiable = info.differentiable ~= 0 }
        op.rows[id], op.rows[row.name] = row, row
        if info.flags % (2 * REAL) >= REAL then real[#real + 1] = id end
    end
    promote.start(op.id, real)
end

local epoch = 0

--- Begins another program: nodes that are recorded from now on belong to it.
function op.new_epoch()
    epoch = epoch + 1
end

--- Returns the number of the program that is being recorded.
function op.epoch()
    return epoch
end

local with_lines = false
local lines = {}

--- Sets whether nodes get the line of the script that recorded them; nil changes nothing. Returns the setting before.
-- It is off at first: recording with lines is not compiled.
-- Measured: lines take about 1 us for each node.
function op.lines(on)
    local before = with_lines
    if on ~= nil then with_lines = on and true or false end
    return before
end

-- Returns the library's number of the script's line, or 0. always: for creations, which always have their line: they
-- are few, and the library warns about those that are made outside a loop and used in it.
local function line(always)
    if not with_lines and not always then return 0 end
    local where = errors.where(2)
    if not where then return 0 end
    local id = lines[where]
    if id == nil then
        id = C.wn_line(where)
        lines[where] = id
    end
    return id
end
op.line = line

-- Makes a 0-d constant of a number, of the dtype of `like`. Returns its handle, to be released after recording. what:
-- opens the message, a text or the number of an op.
local function scalar(v, like, what)
    local dtype = tensor.typed(like)._dtype
    if not tensor.is_float[dtype] and v % 1 ~= 0 then
        raise(nil, 'dtype', "%s: %s cannot take the number %s, it is not an integer; write x:to 'f32' first",
            type(what) == 'number' and op.rows[what].name or what, tensor.describe(like), tostring(v))
    end
    number[0] = v
    local id = C.wn_const(number, 0, dtype)
    if id < 0 then binding.id(id) end
    return id
end

op.constant = scalar

local function bad_operand(o, x, position)
    local name = op.rows[o].name
    if x == nil and position == 1 then
        raise(nil, 'value', '%s: expected a tensor, got nil: a name is misspelt, or a colon is missing, t:%s(...)',
            name, name)
    end
    raise(nil, 'value', '%s: operand %d must be a tensor%s, got %s', name, position,
        position > 1 and ' or a number' or '', errors.describe(x))
end
op.bad_operand = bad_operand

local casting, casting_list -- functions that operands go through: rules of the innermost wane.autocast, or nil
local rules, rules_of_list, guard -- parts of casting and casting_list
local refusal -- raises, while nothing may be recorded; or nil

-- Applies the rules while a coroutine has scopes open: first sets the scopes that hold here (scoped.lua).
local function guarded(o, ...)
    guard()
    if refusal then refusal() end
    if rules then return rules(o, ...) end
    return ...
end

local function guarded_list(o, list)
    guard()
    if refusal then refusal() end
    return rules and rules_of_list(o, list) or list
end

local function refresh()
    if guard then
        casting, casting_list = guarded, guarded_list
    else
        casting, casting_list = rules, rules_of_list
    end
end

--- Sets the rules that operands go through (tensor/autocast.lua), or nil.
-- @param new function(o, a, b, ...) that returns the operands, 5 at most
-- @param of_list function(o, list) that returns a list
function op.set_casting(new, of_list)
    rules, rules_of_list = new, of_list
    refresh()
end

--- Sets the function that raises before an op where nothing may be recorded (policy/query.lua), or nil.
function op.set_refusal(new)
    refusal = new
end

scoped.guards(function(sync)
    guard = sync
    refresh()
end)

--- Returns whether gradients are on here: what is recorded is followed by backward and wane.grad.
function op.is_tracking()
    scoped.sync()
    return C.wn_here().grad ~= 0
end

--- Returns the operand of norms and losses that are made of several ops: t in f32 inside wane.autocast, t outside.
function op.wide(t)
    if casting then t = casting(op.id.mean, t) end
    return t
end

--- Returns the operand of a function to real numbers: integers in f32, floats as they are. name: of the function.
function op.real(t, name)
    tensor.need_self(t, name)
    return promote.real(t)
end

--- Returns an operand of an op made of products and others: t in bf16 inside wane.autocast, t outside.
function op.low(t)
    if casting then t = casting(op.id.linear, t) end
    return t
end

--- Returns the attribute block with the integers that are given, up to five, and else zeroed; the caller fills what is
-- left of n, i, f and dtype, and records at once.
function op.attrs(a, b, c, d, e)
    binding.fill(attrs, attrs_bytes)
    if a == nil then return attrs end
    attrs.n = e and 5 or d and 4 or c and 3 or b and 2 or 1
    local i = attrs.i
    i[0], i[1], i[2], i[3], i[4] = a, b or 0, c or 0, d or 0, e or 0
    return attrs
end

-- Records an op without attributes that refused its input in the dtype that it takes, or raises why it refused.
local function promoted_one(o, a, id)
    local x = promote.one(o, a)
    if not x then binding.id(id) end
    return op.unary(o, x)
end

--- Records an op of one input.
-- @param o op number
-- @param a tensor
-- @param at attribute block or nil
function op.unary(o, a, at)
    if getmetatable(a) ~= Tensor then bad_operand(o, a, 1) end
    if casting then a = casting(o, a) end
    inputs[0] = a.id
    local id = C.wn_record(o, 1, inputs, at or zero, with_lines and line() or 0)
    if id < 0 then return promoted_one(o, a, id) end
    return (wrap(id))
end

-- Records an op of a tensor and a number, in either order.
local function with_number(o, a, b, at)
    local made
    if guard then guard() end
    if getmetatable(a) == Tensor then
        if type(b) ~= 'number' then bad_operand(o, b, 2) end
        if not tensor.is_float[tensor.typed(a)._dtype] then a = promote.with_number(o, a, b) end
        made = scalar(b, a, o)
        inputs[0], inputs[1] = a.id, made
    else
        if getmetatable(b) ~= Tensor or type(a) ~= 'number' then bad_operand(o, a, 1) end
        if not tensor.is_float[tensor.typed(b)._dtype] then b = promote.with_number(o, b, a) end
        made = scalar(a, b, o)
        inputs[0], inputs[1] = made, b.id
    end
    local id = C.wn_record(o, 2, inputs, at or zero, with_lines and line() or 0)
    C.wn_release(made)
    return (wrap(binding.id(id)))
end

-- Records an op that refused two tensors in the dtype that they share, or raises why it refused.
local function promoted(o, a, b, id)
    local x, y = promote.pair(o, a, b)
    if not x then binding.id(id) end
    return op.binary(o, x, y)
end

--- Records an op of two inputs, one of which may be a number.
function op.binary(o, a, b, at)
    if getmetatable(a) ~= Tensor or getmetatable(b) ~= Tensor then return with_number(o, a, b, at) end
    if casting then a, b = casting(o, a, b) end
    inputs[0], inputs[1] = a.id, b.id
    local id = C.wn_record(o, 2, inputs, at or zero, with_lines and line() or 0)
    if id < 0 then return promoted(o, a, b, id) end
    return (wrap(id))
end

--- Records an op of three tensors.
function op.ternary(o, a, b, c, at)
    if getmetatable(a) ~= Tensor then bad_operand(o, a, 1) end
    if getmetatable(b) ~= Tensor then bad_operand(o, b, 2) end
    if getmetatable(c) ~= Tensor then bad_operand(o, c, 3) end
    if casting then a, b, c = casting(o, a, b, c) end
    inputs[0], inputs[1], inputs[2] = a.id, b.id, c.id
    local id = C.wn_record(o, 3, inputs, at or zero, with_lines and line() or 0)
    return (wrap(binding.id(id)))
end

--- Records an op of five tensors.
function op.quinary(o, a, b, c, d, e)
    if getmetatable(a) ~= Tensor then bad_operand(o, a, 1) end
    if getmetatable(d) ~= Tensor then bad_operand(o, d, 4) end
    if getmetatable(e) ~= Tensor then bad_operand(o, e, 5) end
    if casting then a, b, c, d, e = casting(o, a, b, c, d, e) end
    inputs[0], inputs[1], inputs[2], inputs[3], inputs[4] = a.id, b.id, c.id, d.id, e.id
    local id = C.wn_record(o, 5, inputs, zero, with_lines and line() or 0)
    return (wrap(binding.id(id)))
end

--- Records an op without inputs, which creates a tensor.
-- @param o op number
-- @param at attribute block
function op.nullary(o, at)
    if guard then guard() end
    local id = C.wn_record(o, 0, inputs, at, line(true))
    return (wrap(binding.id(id)))
end

local function set_attrs(t)
    local at = op.attrs()
    if t.i then
        local n = binding.fill_dims(at.i, t.i, 'op.record')
        at.n = t.n or n
    end
    if t.f then at.f[0], at.f[1] = t.f[1] or 0, t.f[2] or 0 end
    if t.dtype then at.dtype = type(t.dtype) == 'string' and tensor.dtype_id[t.dtype] or t.dtype end
    at.layout = t.layout or 0
    return at
end

--- Records any op.
-- @param name op name or number
-- @param list inputs: tensors, or numbers (constants of the dtype of the first tensor)
-- @param attributes nil, an attribute block, or a table {i = {...}, n =, f = {...}, dtype =, layout =}; dims 0-based
-- @return tensor
function op.record(name, list, attributes)
    local o = type(name) == 'string' and op.id[name] or name
    local n = #list
    if n > MOST then
        raise(nil, 'value', '%s: %d inputs, at most %d are possible; combine them in parts', op.rows[o].name, n, MOST)
    end
    local at = attributes or zero
    if type(at) == 'table' then at = set_attrs(at) end
    if casting then list = casting_list(o, list) end
    local like
    for k = 1, n do
        if getmetatable(list[k]) == Tensor then
            like = list[k]
            break
        end
    end
    local made
    for k = 1, n do
        local x = list[k]
        if getmetatable(x) == Tensor then
            inputs[k - 1] = x.id
        elseif type(x) == 'number' and like then
            made = made or {}
            made[#made + 1] = scalar(x, like, o)
            inputs[k - 1] = made[#made]
        else
            bad_operand(o, x, k)
        end
    end
    local id = C.wn_record(o, n, inputs, at, with_lines and line() or 0)
    if made then
        for _, h in ipairs(made) do C.wn_release(h) end
    end
    return (wrap(binding.id(id)))
end

local value_info = binding.new('struct wn_value_info')

--- Returns positions as i32 where they are a float tensor that wane.arange made; else what was given.
function op.indices(ids)
    if getmetatable(ids) ~= Tensor or not tensor.is_float[tensor.typed(ids)._dtype] or ids._cell then return ids end
    binding.check(C.wn_value_info(ids.id, value_info))
    return value_info.op == op.id.arange and ids:to 'i32' or ids
end

--- Returns the 0-based dim of a tensor for a 1-based one; negative dims count from the end.
-- @param t tensor
-- @param dim integer in 1..ndim or -ndim..-1
-- @param what opens the message
-- @param extra dims more than the tensor has (unsqueeze: 1)
function op.dim(t, dim, what, extra)
    local n = #tensor.typed(t)._dims + (extra or 0)
    if type(dim) ~= 'number' or dim % 1 ~= 0 or dim == 0 or dim > n or dim < -n then
        raise(nil, type(dim) == 'number' and 'shape' or 'value',
            '%s: dim %s is out of range for %s; expected an integer from 1 to %d, or -%d to -1', what,
            errors.describe(dim), tensor.describe(t), n, n)
    end
    return dim > 0 and dim - 1 or n + dim
end

--- Returns the first n dims of a list, counted from 0; each may stand there once.
-- @raise 'shape' for a dim that is listed twice, and what op.dim raises
function op.dims(t, list, n, what)
    local out, seen = {}, {}
    for k = 1, n do
        out[k] = op.dim(t, list[k], what)
        if seen[out[k]] then raise(nil, 'shape', '%s: dim %d is listed twice', what, list[k]) end
        seen[out[k]] = true
    end
    return out
end

local HUGE = 2 ^ 53

--- Returns v, which must be a size or count: an integer from `least` (0 unless given) to below 2^53. Raises otherwise.
function op.size(v, what, least)
    if type(v) ~= 'number' or v % 1 ~= 0 or v < (least or 0) or v >= HUGE then
        raise(nil, 'value', '%s: expected an integer from %d to below 2^53, got %s', what, least or 0,
            type(v) == 'number' and ('%.17g'):format(v) or errors.describe(v))
    end
    return v
end

--- Returns v, which must be a finite number; raises 'value' otherwise.
function op.finite(v, what)
    if type(v) ~= 'number' or v ~= v or v == 1 / 0 or v == -1 / 0 then
        raise(nil, 'value', '%s: expected a finite number, got %s', what, errors.describe(v))
    end
    return v
end

--- Returns the number of a dtype by its name.
function op.dtype(name, what)
    local id = type(name) == 'string' and tensor.dtype_id[name] or nil
    if id == nil then
        raise(nil, 'dtype', '%s: unknown dtype %s; %s', what, errors.describe(name),
            errors.near(name, { 'f32', 'bf16', 'f16', 'f64', 'i32', 'u8', 'i8' }))
    end
    return id
end

local device_ids

--- Returns a map of the devices that Wane knows, here or not, those for specs too: name -> number.
function op.device_ids()
    if device_ids then return device_ids end
    device_ids = {}
    local k = 0 -- names go on past the listed devices, with devices for specs
    while C.wn_device_name(k) ~= nil do
        device_ids[binding.text(C.wn_device_name(k))] = k
        k = k + 1
    end
    return device_ids
end

-- Raises that a device is not here, with the reason and the devices that are.
local function raise_absent(id, name, what)
    raise(nil, 'device', "%s: no device '%s' here: %s; devices found: %s", what, name,
        binding.text(C.wn_device_absent(id)), table.concat(op.device_names(), ', '))
end

--- Returns the number of a device by its name: 'cpu', 'meta', 'cuda', 'auto'.
function op.device(name, what)
    op.device_ids()
    if type(name) == 'string' then
        if name == 'auto' then return C.wn_device_auto() end
        local id = device_ids[name] or device_ids[name:match('^(.*):0$') or '']
        if id and C.wn_device_absent(id) == nil then return id end
        if id then raise_absent(id, name, what) end
        if name:match('^cuda:%d+$') and C.wn_device_absent(device_ids.cuda) == nil then
            raise(nil, 'device', "%s: no device '%s': this version uses the first GPU alone, 'cuda'; "
                .. 'CUDA_VISIBLE_DEVICES chooses which is the first; devices found: %s', what, name,
                table.concat(op.device_names(), ', '))
        end
        if name:match('^cuda:%d+$') then raise_absent(device_ids.cuda, name, what) end
    end
    raise(nil, 'device', '%s: unknown device %s; devices found: %s', what, errors.describe(name),
        table.concat(op.device_names(), ', '))
end

--- Lists the names of the devices that are here.
function op.device_names()
    local names = {}
    for k = 0, C.wn_device_count() - 1 do
        if C.wn_device_absent(k) == nil then names[#names + 1] = binding.text(C.wn_device_name(k)) end
    end
    return names
end

local run -- function(request) that runs a program

--- Sets the function by which tensors run programs: wane/init.lua sets program.run.
function op.set_run(new)
    run = new
end

local function_scope -- function(name) that returns a scope

--- Sets the function that returns the scope of a function that is one function in PyTorch: wane/init.lua sets
-- module.function_scope.
function op.set_function_scope(fn)
    function_scope = fn
end

--- Calls fn(...), whose nodes are recorded in the scope of the function `name`. Returns the results of fn.
function op.in_function(name, fn, ...)
    return scoped('scope', function_scope(name), fn, ...)
end

--- Runs a program; see program.run.
function op.run(request)
    return run(request)
end

--- Runs a program that computes a list of tensors. Returns the Program.
function op.eval(list)
    return run { mode = 'eval', roots = list }
end

--- Returns whether t holds bytes now.
function op.held(t)
    return tensor.info(t).held ~= 0
end

return op
