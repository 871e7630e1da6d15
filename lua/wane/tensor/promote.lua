--- The dtype in which an op is computed where an operand, or both, are integers.
--
-- Floats of two dtypes are never mixed: a script says which it means. Otherwise the rules are PyTorch's, with f32 as
-- the default float, but for u8, which is what comparisons give, and which counts as i32 in arithmetic:
--
--     integers and a float tensor          the float's dtype
--     integers and a number like 1.5       f32; of a whole number, i32
--     integers over integers               f32
--     u8 and i32, or u8 and u8             i32
--     functions to real numbers of integers  f32: sqrt, exp, sin, mean and their kin
--
-- Activations that PyTorch refuses for integers, such as gelu and softmax, are refused.
--
-- @internal wane.tensor.promote

local tensor = require 'wane.tensor'

local typed, is_float, dtype_id = tensor.typed, tensor.is_float, tensor.dtype_id
local F32, I32, U8 = dtype_id.f32, dtype_id.i32, dtype_id.u8

local promote = {}

local ARITHMETIC = { 'add', 'sub', 'mul', 'maximum', 'minimum' }
local COMPARISONS = { 'eq', 'ne', 'lt', 'gt', 'le', 'ge' }

local kinds = {} -- number of an op -> 'arithmetic', 'comparison', 'div', 'pow' or 'real'

--- Takes the numbers of ops, by name, and a list of those that are functions to real numbers.
function promote.start(ids, real)
    for _, name in ipairs(ARITHMETIC) do kinds[ids[name]] = 'arithmetic' end
    for _, number in ipairs(real) do kinds[number] = 'real' end
    for _, name in ipairs(COMPARISONS) do kinds[ids[name]] = 'comparison' end
    kinds[ids.div], kinds[ids.pow] = 'div', 'pow'
end

local function cast(t, dtype)
    return tensor.methods.to(t, tensor.dtype_name[dtype])
end

--- Returns a tensor in the dtype of an op of it that refused it, or nil where no dtype would do.
function promote.one(o, t)
    if kinds[o] ~= 'real' or is_float[typed(t)._dtype] then return nil end
    return cast(t, F32)
end

--- Returns a tensor of integers in f32, one of floats as it is.
function promote.real(t)
    if is_float[typed(t)._dtype] then return t end
    return cast(t, F32)
end

--- Returns a tensor of integers as an op of it and a number v reads it.
function promote.with_number(o, t, v)
    local kind, own = kinds[o], typed(t)._dtype
    local is_whole = v % 1 == 0 and v >= -2 ^ 31 and v < 2 ^ 31
    if kind == nil or own ~= I32 and own ~= U8 or kind == 'pow' and is_whole then return t end
    if kind == 'div' or not is_whole then return cast(t, F32) end
    if own == U8 and (kind == 'arithmetic' or v < 0 or v > 255) then return cast(t, I32) end
    return t
end

--- Returns two tensors in the dtype of an op of them, or nil where the op takes them as they are, or not at all.
function promote.pair(o, a, b)
    local kind, one, two = kinds[o], typed(a)._dtype, typed(b)._dtype
    if kind == nil or is_float[one] and is_float[two] then return nil end
    local to = is_float[one] and one or is_float[two] and two
    if not to then
        if kind == 'pow' then return nil end
        to = kind == 'div' and F32 or I32
    end
    if one == to and two == to then return nil end
    return cast(a, to), cast(b, to)
end

return promote
