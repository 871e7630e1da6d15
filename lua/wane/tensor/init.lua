--- The class of tensors: a name for a value of the graph, and nothing more.
--
-- A tensor is a table around one handle. It owns no bytes: the graph and the C library do, and collecting a tensor only
-- enqueues its handle. Shape, dtype and device of a value never change, so they are read once and cached. `a == b` is
-- identity, and what scripts compare so is noted for program/replan.lua. Lua 5.1 asks no metamethod for `#t`, ipairs
-- and pairs; where LuaJIT was built with the rules of Lua 5.2, they raise. Methods are in the table `tensor.methods`,
-- which the files of operations fill; a name that is neither a method nor a field raises with near names.
-- @module wane.tensor

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local scoped = require 'wane.scoped'
local torch_names = require 'wane.tensor.torch_names'

local C = binding.C
local raise, near = errors.raise, errors.near
local getmetatable, ipairs, rawget, rawset, setmetatable, tonumber, tostring, type =
    getmetatable, ipairs, rawget, rawset, setmetatable, tonumber, tostring, type

local tensor = {}

--- Names of dtypes by number.
-- @within Internal
tensor.dtype_name = { [0] = 'f32', 'f64', 'i32', 'u8', 'i8', 'bf16', 'f16' }
-- Numbers of dtypes by name.
tensor.dtype_id = { f32 = 0, f64 = 1, i32 = 2, u8 = 3, i8 = 4, bf16 = 5, f16 = 6 }
-- Dtypes that are floats, by number.
tensor.is_float = { [0] = true, [1] = true, [5] = true, [6] = true }

local Tensor = {}
local methods = {}  -- name -> function(self, ...)
local fields = {}   -- name -> function(self) that computes a field
local setfields = {} -- name -> function(self, value)
tensor.Tensor, tensor.methods, tensor.fields, tensor.setfields = Tensor, methods, fields, setfields

-- Handles owned by tensors. `live` forgets a tensor when the collector does; once a collection, the finalizer of one
-- sentinel walks `owned` and enqueues the handles whose tensor is gone. The finalizer may run between any two
-- instructions of interpreted code, so the tables that it shares with `wrap` are written by single stores in this
-- order, never read and written back: first `live`, then `owned`.
-- Measured: recording a node 0.6 us, of it the handle's bookkeeping 0.35 -> 0.02 us (against a finalizer per tensor).
local live = setmetatable({}, { __mode = 'v' })
local owned, top = {}, 0 -- owned[id] is true; no owned id is above top

local function sweep()
    for id = 0, top do
        if owned[id] and live[id] == nil then
            owned[id] = false
            C.wn_release(id)
        end
    end
end
binding.each_collection(sweep)

local function own(t, id)
    live[id] = t
    if id > top then top = id end
    owned[id] = true
end

--- Makes a tensor that owns `id`, a handle just made.
-- @within Internal
local function wrap(id)
    local t = setmetatable({ id = id }, Tensor)
    own(t, id)
    return t
end
tensor.wrap = wrap

--- Gives up the handle of a tensor when the library took it back (t:free()).
-- @within Internal
function tensor.disown(t)
    local id = t.id
    owned[id] = false
    live[id] = nil
    rawset(t, 'id', -1)
end

--- Returns whether x is a tensor.
-- @function wane.is_tensor
-- @param x any value
-- @usage print(wane.is_tensor(x), wane.is_tensor(3)) --> true	false
local function is(x)
    return getmetatable(x) == Tensor
end
tensor.is = is

--- Returns the handle of a tensor; raises 'value' for anything else.
-- @within Internal
-- @param x tensor
-- @param what opens the message when x is none
function tensor.id(x, what)
    if getmetatable(x) ~= Tensor then
        raise(nil, 'value', '%s: expected a tensor, got %s', what or 'tensor', errors.describe(x))
    end
    return x.id
end

--- Raises 'value' unless x is a tensor; the usual cause is `t.sum()` for `t:sum()`.
-- @within Internal
function tensor.need_self(x, name)
    if getmetatable(x) == Tensor then return end
    if x == nil then
        raise(nil, 'value', '%s: expected a tensor, got nil: a name is misspelt, or a colon is missing, t:%s(...)',
            name, name)
    end
    raise(nil, 'value', '%s: expected a tensor, got %s; write t:%s(...), with a colon', name,
        errors.describe(x), name)
end

--- Raises 'value' unless x is a tensor, and 'dtype' unless it is one of floats.
-- @within Internal
function tensor.need_float(x, name)
    tensor.need_self(x, name)
    if not tensor.is_float[tensor.typed(x)._dtype] then
        raise(nil, 'dtype', "%s: expected f32, bf16 or f64, got %s; write x:to 'f32' first", name, tensor.describe(x))
    end
end

local info = binding.new('struct wn_info')
local info_type, info_dim = info.type, info.type.dim -- parts of `info`: to reach them from it takes as long as the call

--- Returns the library's description of a tensor, in a buffer that the next call overwrites.
-- @within Internal
function tensor.info(t)
    binding.check(C.wn_info(t.id, info))
    return info
end

-- Fills the cached fields: _dtype (number) and _dims (list). The first dims are written out, since a loop of a few
-- turns is compiled alone, and nothing around it.
local function load_type(t)
    tensor.info(t)
    local dims, n = {}, info_type.ndim
    if n > 0 then dims[1] = tonumber(info_dim[0]) end
    if n > 1 then dims[2] = tonumber(info_dim[1]) end
    if n > 2 then dims[3] = tonumber(info_dim[2]) end
    if n > 3 then dims[4] = tonumber(info_dim[3]) end
    for k = 5, n do dims[k] = tonumber(info_dim[k - 1]) end
    rawset(t, '_dims', dims)
    rawset(t, '_dtype', info_type.dtype)
    return t
end

--- Fills the cached fields of a type unless they are filled. Returns t.
-- @within Internal
local function typed(t)
    if rawget(t, '_dtype') == nil then load_type(t) end
    return t
end
tensor.typed = typed

local first, count, start = binding.new 'int64_t[1]', binding.new 'int64_t[1]', binding.new 'int32_t[1]'
local sharded = binding.new 'int32_t[1]'

--- Returns which elements of a parameter a rank has the gradient and the states of, where others have the rest.
-- @within Internal
-- @param t parameter
-- @param rank number; nil: this one
-- @return the first of them, from 0, how many, where the cut of the parameter starts (struct wn__cut), and whether the
-- value is in ranges too; nil: of all
function tensor.range(t, rank)
    binding.check(C.wn_dist_range(t.id, rank or -1, first, count, start, sharded))
    if start[0] < 0 then return nil end
    return tonumber(first[0]), tonumber(count[0]), start[0], sharded[0] ~= 0
end

--- Returns whether each rank has a range of a tensor's value alone.
-- @within Internal
function tensor.is_sharded(t)
    return typed(t)._cell and select(4, tensor.range(t)) or false
end

--- Gives a tensor another handle (nn.init, model:to): every holder of the tensor sees the new value.
-- @within Internal
function tensor.rebind(t, id)
    live[t.id] = nil
    rawset(t, 'id', id)
    own(t, id)
    for _, field in ipairs { '_dtype', '_dims' } do rawset(t, field, nil) end
end

--- Gives t the handle of another tensor, which cannot be used any more. Ranks have the same ranges of it.
-- @within Internal
function tensor.adopt(t, other)
    local id, _, _, at, is_sharded = other.id, tensor.range(t)
    if at then binding.check(C.wn_dist_slice(id, at, start)) end
    if is_sharded then binding.check(C.wn_dist_shard(id, C.WN_DIST_RANGE)) end
    tensor.disown(other)
    tensor.rebind(t, id)
end

local Shape = {}
Shape.__index = Shape
function Shape.__tostring(s)
    return '(' .. table.concat(s, ', ') .. ')'
end
Shape.__concat = function(a, b) return tostring(a) .. tostring(b) end

--- Returns the text of a list of dims: '(32, 1024)'. An entry that is no number is described, for messages about
-- arguments.
-- @within Internal
function tensor.shape_text(dims)
    local words, n = {}, #dims
    for k = 1, math.min(n, 16) do words[k] = type(dims[k]) == 'number' and dims[k] or errors.describe(dims[k]) end
    if n > 16 then words[17] = ('... %d in all'):format(n) end
    return '(' .. table.concat(words, ', ') .. ')'
end

--- Returns '(32, 1024) f32', for messages.
-- @within Internal
function tensor.describe(t)
    typed(t)
    return tensor.shape_text(t._dims) .. ' ' .. tensor.dtype_name[t._dtype]
end
Tensor.__describe = function(t) return 'a tensor ' .. tensor.describe(t) end

--- Returns t in f32 where it is bf16, else as it is.
-- @within Internal
function tensor.widened(t)
    return t.dtype == 'bf16' and t:to 'f32' or t
end

--- Returns the number of elements of a shape, given as a list of dims.
-- @within Internal
function tensor.count(dims)
    local n = 1
    for i = 1, #dims do n = n * dims[i] end
    return n
end

--- Holds the list of dims; `print` shows it as '(2, 3)'.
-- @usage print(wane.zeros(2, 3).shape, wane.zeros(2, 3).shape[1]) --> (2, 3)	2
function fields.shape(t)
    local dims, copy = typed(t)._dims, {}
    for i = 1, #dims do copy[i] = dims[i] end
    return setmetatable(copy, Shape)
end

--- Holds the name of the dtype: 'f32', 'bf16', 'f64', 'i32', 'u8' or 'i8'.
-- @usage print(wane.zeros(2):lt(1).dtype) --> u8
function fields.dtype(t)
    return tensor.dtype_name[typed(t)._dtype]
end

--- Holds the name of the device.
-- @usage print(wane.zeros(2, { device = 'meta' }).device) --> meta
function fields.device(t)
    return binding.string(C.wn_device_name(typed(t)._device))
end

--- Holds whether a backward gives the value a gradient. It can be assigned on leaves: false freezes, true trains.
-- @usage
-- model[1].weight.requires_grad = false
-- print(model[1].weight.requires_grad, loss.requires_grad) --> false	true
function fields.requires_grad(t)
    return tensor.info(t).needs_grad ~= 0
end

--- Returns the gradient that this rank has of a leaf, of its own range where others have the rest; nil: it has none.
-- @within Internal
function tensor.own_grad(t)
    scoped.sync() -- a suspended planning has gradients of its own
    local id = C.wn_cell_grad(t.id)
    if id < 0 then return nil end
    return wrap(id)
end

--- Holds the gradient of a leaf after a backward, else nil. Assigning nil drops the gradient.
-- @usage
-- loss:backward()
-- print(model[1].weight.grad.shape) --> (16, 8)
-- model[1].weight.grad = nil
function fields.grad(t)
    typed(t)
    if not t._cell then return nil end
    local grad = tensor.own_grad(t)
    if grad and tensor.range(t) then
        raise(nil, 'value', 'grad: each rank has the gradient of a range of %s alone, and updates that; write '
            .. "wane.dist.place(model, opt, 'keep') before the first step, and every rank has the whole",
            tensor.describe(t))
    end
    return grad
end

--- Freezes or trains a leaf: `t.requires_grad = on`.
-- @within Internal
function setfields.requires_grad(t, on)
    typed(t)
    if type(on) ~= 'boolean' then
        raise(nil, 'value', 'requires_grad: expected true or false, got %s', errors.describe(on))
    end
    if not t._cell then
        raise(nil, 'value', 'requires_grad: %s is a result, not a leaf; %s', tensor.describe(t), on
            and 'create the leaf with {requires_grad = true}, or make one of these values with wane.nn.Parameter(t)'
            or 'cut with t:detach()')
    end
    binding.check(C.wn_cell_need_grad(t.id, on and 1 or 0))
end

--- Drops the gradient: `t.grad = nil`.
-- @within Internal
function setfields.grad(t, value)
    typed(t)
    if value ~= nil then
        raise(nil, 'value', 'grad: only nil can be assigned (it drops the gradient); '
            .. 'write t.grad:assign(value) to change it')
    end
    scoped.sync()
    if t._cell then binding.check(C.wn_cell_drop_grad(t.id)) end
end

local select_row -- set by tensor.indexing

--- Sets the function that `t[i]` calls; tensor/shape.lua gives it.
-- @within Internal
function tensor.indexing(fn)
    select_row = fn
end

-- Raises 'value' for an index that is no number and no name.
local function refuse_index(t, key, what)
    if tensor.is(key) then
        raise(nil, 'value', 't[...]%s: %s is no index; t:index_select(dim, ids) takes rows by number (ids from 0), '
            .. 'wane.where(mask, t, 0) by a mask', what, errors.describe(key))
    elseif type(key) == 'table' then
        raise(nil, 'value', 't[{...}]%s: a list is no index; write t[i][j] for one element, t:narrow(dim, start, '
            .. 'length) for a range, t:index_select(dim, ids) for rows by number (ids: an i32 tensor, from 0)', what)
    end
    raise(nil, 'value', 't[%s]%s: an index is a number from 1 to %s', tostring(key), what,
        tostring(tensor.typed(t)._dims[1] or 0))
end

local function unknown(t, key)
    if type(key) ~= 'string' then refuse_index(t, key, '') end
    local name = tostring(key)
    if tonumber(name) then
        raise(nil, 'value', "t['%s']: an index is a number, got a string; write t[%s]", name, name)
    end
    if name:sub(-1) == '_' and methods[name:sub(1, -2)] then
        raise(nil, 'value', "%s: values are immutable, write x = x:%s(...)", name, name:sub(1, -2))
    end
    local way = torch_names[name]
    if way then
        raise(nil, 'value', "tensor %s has no field or method '%s'; write %s%s", tensor.describe(t), name, way,
            name == 'clone' and ': values never change (of a parameter or a buffer, which does, wane.eval(t + 0) is a '
            .. 'copy)' or '')
    end
    raise(nil, 'value', "tensor %s has no field or method '%s'; %s", tensor.describe(t), name,
        near(name, errors.names(methods, fields)))
end

-- In-place methods of PyTorch, and the operators that stand for them here.
local inplace = { add_ = '+', sub_ = '-', mul_ = '*', div_ = '/', pow_ = '^' }

function Tensor.__index(t, key)
    local method = methods[key]
    if method ~= nil then return method end
    local field = fields[key]
    if field ~= nil then return field(t) end
    if type(key) == 'number' or type(key) == 'table' then return select_row(t, key) end
    if key == '_dtype' or key == '_dims' then return rawget(load_type(t), key) end
    if key == '_device' then return tensor.info(t).device end
    if key == '_cell' then return tensor.info(t).is_cell ~= 0 end
    if inplace[key] then
        raise(nil, 'value', '%s: values are immutable, write x = x %s b', key, inplace[key])
    end
    return unknown(t, key)
end

function Tensor.__newindex(t, key, value)
    local set = setfields[key]
    if set then return set(t, value) end
    if type(key) == 'number' then
        raise(nil, 'value', 't[%s] = ...: values are immutable; build the new value with wane.where, cat or stack',
            tostring(key))
    end
    if type(key) ~= 'string' then refuse_index(t, key, ' = ...') end
    raise(nil, 'value', "tensor %s: field '%s' cannot be assigned; %s", tensor.describe(t), tostring(key),
        near(key, setfields))
end

local function no_order(a, b)
    raise(nil, 'value', 'a < b: Lua would turn the answer into one boolean; use a:lt(b), a:gt(b), a:le(b) or '
        .. 'a:ge(b) (got %s and %s)', errors.describe(a), errors.describe(b))
end
Tensor.__lt, Tensor.__le = no_order, no_order

-- Refuses `#t` where LuaJIT was built with LUAJIT_ENABLE_LUA52COMPAT; else Lua answers 0 without a call.
function Tensor.__len(t)
    raise(nil, 'value', '#t: a tensor has no length; use t:size(1) for its rows, t:numel() for its elements (got %s)',
        errors.describe(t))
end

local function no_walk(t)
    raise(nil, 'value', 'ipairs(t), pairs(t): a tensor is no list; write for i = 1, t:size(1) do ... t[i] ... end, or '
        .. 'walk t:totable() (got %s)', errors.describe(t))
end
Tensor.__ipairs, Tensor.__pairs = no_walk, no_walk

local MOST_LINES = 8 -- places of `==` that are looked for, at most: each takes a walk of the stack
local compared, lines_compared = {}, 0

-- Keeps the answer of `a == b` for tensors: whether they are the same name for a value. Notes where a script asks.
function Tensor.__eq(_, _)
    if lines_compared < MOST_LINES then
        local where = errors.where_if_direct(2)
        if where and not compared[where] then
            compared[where], lines_compared = true, lines_compared + 1
            compared[#compared + 1] = where
        end
    end
    return false -- Lua asks only about two tables that are not the same
end

--- Lists the lines of scripts, in order, that compared two tensors by `==`, which is true for the same tensor alone.
-- @within Internal
function tensor.compared()
    return compared
end

function Tensor.__concat(a, b)
    return tostring(a) .. tostring(b)
end

return tensor
