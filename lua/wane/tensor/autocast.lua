--- wane.autocast(dtype, fn, ...): products in bf16, parameters in f32.
--
-- Calls fn(...). The nodes that fn records get their dtypes by these rules, when they are recorded:
--
-- * linear, matmul, attention: f32 operands are cast to bf16, the result is bf16;
-- * norms, softmax, log_softmax, losses, sum and mean: bf16 operands are cast to f32, the result is f32;
-- * `+ - * / ^`, maximum, minimum, comparisons, where, cat, of bf16 and f32 operands: the bf16 ones are cast to f32;
-- * every other op: in the dtype of its input.
--
-- Parameters and optimizer state stay f32, and so do the gradients of parameters: the gradient of a cast is a cast. A
-- value used by several products of a program is cast once. A parameter is cast anew for every use: such a cast is
-- never a residual, the backward issues it again, and no policy keeps it. 'f32' switches the rules off inside fn.
-- Extents nest; backward and step may be called inside or outside, since they run nodes that are recorded already.
-- (Micikevicius et al., "Mixed Precision Training", 2018; the rules are close to torch.autocast's.)
-- @module wane.tensor.autocast

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C = binding.C
local Tensor, typed, wrap = tensor.Tensor, tensor.typed, tensor.wrap
local F32, BF16 = tensor.dtype_id.f32, tensor.dtype_id.bf16
local getmetatable, setmetatable = getmetatable, setmetatable

local autocast = {}

-- Returns the set of ops whose column `autocast` in runtime/op.def has a word.
local function ops_of(word)
    local set = {}
    for id, row in errors.iterate(op.rows) do set[id] = row.autocast == word or nil end
    return set
end

local LOW, HIGH, PROMOTES = ops_of 'low', ops_of 'high', ops_of 'promote'

-- This file has attributes and inputs of its own: the caller has filled those of tensor/op.lua for its node.
local attrs, input = binding.new('struct wn_attrs'), binding.handles(1)
local CAST = op.id.cast

local function record_cast(t, dtype)
    attrs.dtype = dtype
    input[0] = t.id
    return wrap(binding.id(C.wn_record(CAST, 1, input, attrs, op.line())))
end

-- The innermost extent: { [dtype] = its casts by tensor, for one program and region }; nil outside.
local extent
local weak = { __mode = 'k' }

local function start(new)
    new[F32], new[BF16] = setmetatable({}, weak), setmetatable({}, weak)
    return new
end

-- Returns the casts to a dtype that serve again: those of this program and checkpoint region, so that a region hands
-- out nothing that it need not.
local function casts_to(dtype)
    local region, epoch = C.wn_here().region, op.epoch()
    if extent.region ~= region or extent.epoch ~= epoch then
        extent.region, extent.epoch = region, epoch
        start(extent)
    end
    return extent[dtype]
end

-- Returns t as dtype. Values are immutable, so a cast serves again, unless it was recorded where gradients are off and
-- is now read where they are on. A state is cast for every use.
local function cast(t, dtype)
    if t._cell then return record_cast(t, dtype) end
    local made = casts_to(dtype)
    local known = made[t]
    if known and (tensor.info(known).is_cut == 0 or not op.is_tracking()) then return known end
    known = record_cast(t, dtype)
    made[t] = known
    return known
end

local function is(t, dtype)
    return getmetatable(t) == Tensor and typed(t)._dtype == dtype
end

local function low(t)
    if is(t, F32) then return cast(t, BF16) end
    return t
end

local function high(t)
    if is(t, BF16) then return cast(t, F32) end
    return t
end

local function rules(o, a, b, c, d, e)
    if LOW[o] then return low(a), low(b), low(c), low(d), low(e) end
    if HIGH[o] then return high(a), high(b), high(c), high(d), high(e) end
    if PROMOTES[o] and (is(a, F32) or is(b, F32) or is(c, F32)) then return high(a), high(b), high(c) end
    return a, b, c, d, e
end

local function rules_of_list(o, list)
    local to = LOW[o] and low or HIGH[o] and high or nil
    for k = 1, PROMOTES[o] and #list or 0 do
        if is(list[k], F32) then to = high end
    end
    if to == nil then return list end
    local out = {}
    for k = 1, #list do out[k] = to(list[k]) end
    return out
end

scoped.register('autocast', function(new)
    local before = extent
    extent = new
    op.set_casting(new and rules or nil, rules_of_list)
    return before
end)

--- Calls fn(...) under the rules above. Returns the results of fn.
-- @param dtype 'bf16', or 'f32': the rules are off inside fn
-- @param fn function or module
-- @param ... its arguments
-- @raise 'dtype' for any other dtype; 'value' when fn cannot be called
-- @usage
-- local scores = wane.autocast('bf16', model, x)
-- print(scores.dtype, model[1].weight.dtype) --> bf16	f32
-- nn.cross_entropy(scores, y):backward()
function autocast.autocast(dtype, fn, ...)
    if dtype ~= 'bf16' and dtype ~= 'f32' then
        errors.raise(nil, 'dtype', "wane.autocast: expected 'bf16', or 'f32' for none, got %s; write "
            .. "wane.autocast('bf16', fn, ...)", errors.describe(dtype))
    end
    if not errors.is_callable(fn) then
        errors.raise(nil, 'value', 'wane.autocast: expected a function, got %s', errors.describe(fn))
    end
    return scoped('autocast', dtype == 'bf16' and start {} or nil, fn, ...)
end

return autocast
