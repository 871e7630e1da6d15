--- Cases of packed forms of a value: int8 with a scale for each group, and signs as bits. References compute with plain
-- numbers; a scale is bytes of an f32, which arrays of the binding give.
local array = require 'spec.cases.array'
local binding = require 'wane.ffi'
local record, calls = array.record, array.calls

local GROUP = 256

-- One cell for good: LuaJIT 2.1 may put off making an array that a compiled loop needs only for its number, and then
-- make it too small for its element (arrays of a length known at run time alone).
local cell = binding.array('f32', 1)
local bytes = binding.cast('const uint8_t *', cell)

local function single(v)
    cell[0] = v
    return tonumber(cell[0])
end

local function is_finite(v) return v - v == 0 end

-- Rounds to the nearest whole number, ties to even.
local function nearest(v)
    local low = math.floor(v)
    local rest = v - low
    if rest > 0.5 or (rest == 0.5 and low % 2 ~= 0) then low = low + 1 end
    return low
end

-- Returns the scale and the codes of elements [first, last] of an array; codes all 0 where the scale says enough.
local function encode(x, first, last)
    local top, codes = 0, {}
    for k = first, last do
        local v = single(x[k])
        top = is_finite(v) and is_finite(top) and math.max(top, math.abs(v)) or 0 / 0
    end
    local scale = single(top ~= top and top or top < 2 ^ -119 and 0 or top / 127)
    local inverse = single(1 / scale)
    for k = first, last do
        codes[#codes + 1] = scale > 0 and nearest(single(single(x[k]) * inverse)) or 0
    end
    return scale, codes
end

local function each_group(n, fn)
    for first = 1, n, GROUP do fn(first, math.min(first + GROUP - 1, n)) end
end

-- Returns the packed bytes as whole numbers; NaN scales are 7fc00000 or their negative, so those bytes are left to the
-- cases of values.
local function pack_int8(x)
    local n = array.count(x.shape)
    local out, codes = {}, {}
    each_group(n, function(first, last)
        local scale, list = encode(x, first, last)
        cell[0] = scale
        for j = 0, 3 do out[#out + 1] = bytes[j] end
        for _, c in ipairs(list) do codes[#codes + 1] = c % 256 end
    end)
    for _, c in ipairs(codes) do out[#out + 1] = c end
    out.shape = { #out }
    return out
end

local function through_int8(x)
    local out = { shape = x.shape }
    each_group(array.count(x.shape), function(first, last)
        local scale, codes = encode(x, first, last)
        for j, c in ipairs(codes) do out[first + j - 1] = single(c * scale) end
    end)
    return out
end

local function pack_sign(x)
    local out = { shape = { math.ceil(array.count(x.shape) / 8) } }
    for b = 1, out.shape[1] do
        out[b] = 0
        for j = 0, 7 do
            local v = x[8 * (b - 1) + j + 1]
            if v and not (v <= 0) then out[b] = out[b] + 2 ^ j end
        end
    end
    return out
end

local function shape_of(x, dtype)
    local attrs = { n = #x.shape, i = {}, dtype = dtype or x.dtype }
    for k, d in ipairs(x.shape) do attrs.i[k] = d end
    return attrs
end

local function through(form, x)
    return record('unpack_' .. form, { record('pack_' .. form, { x }) }, shape_of(x))
end

local shapes = { { 'a matrix', 3, 4 }, { '0-d' }, { 'no elements', 0, 3 }, { 'a whole group', 2, 128 },
    { 'past groups and bytes', 9, 67 } }

local function packed(form, ref)
    local list = {}
    for k, s in ipairs(shapes) do
        list[k] = { name = s[1], inputs = { { s[2], s[3] } }, dtype = 'u8', exact = true, ref = ref,
            call = calls('pack_' .. form) }
    end
    return list
end

local function unpacked(form, ref)
    local list = {}
    for k, s in ipairs(shapes) do
        list[k] = { name = s[1], inputs = { { s[2], s[3] } }, exact = true, ref = ref,
            call = function(_, x) return through(form, x) end }
    end
    return list
end

-- Makes a case of an input of given numbers out of its other fields.
local function given(name, values, fields)
    fields.name, fields.inputs = name, { { #values, values = values } }
    return fields
end

local function ramp(n, f)
    local list = {}
    for k = 1, n do list[k] = f(k) end
    return list
end

-- 600 elements: a group with a NaN, one with an infinity, one with neither.
local spoiled = ramp(600, function(k) return k == 5 and 0 / 0 or k == 300 and -1 / 0 or k / 7 end)

local function is_spoiled(y)
    for k = 1, 600 do
        if k <= 512 and y[k] == y[k] then return false, ('element %d is %g, expected NaN'):format(k, y[k]) end
        if k > 512 and not (math.abs(y[k] - k / 7) <= 600 / 7 / 127 * 0.501) then
            return false, ('element %d is %g, expected about %g'):format(k, y[k], k / 7)
        end
    end
    return true
end

-- Checks that no element is off by more than half a scale: by 0.5 and the roundings of scale, inverse and product.
local function is_near(y, x)
    local n = array.count(x.shape)
    for first = 1, n, GROUP do
        local top = 0
        for k = first, math.min(first + GROUP - 1, n) do top = math.max(top, math.abs(x[k])) end
        for k = first, math.min(first + GROUP - 1, n) do
            if not (math.abs(y[k] - x[k]) <= top / 127 * 0.50003) then
                return false, ('element %d is %.9g, expected %.9g within %g'):format(k, y[k], x[k], top / 254)
            end
        end
    end
    return true
end

local int8 = unpacked('int8', through_int8)
local function call_int8(_, x) return through('int8', x) end
for _, case in ipairs {
    given('within half a scale, an outlier in one group', ramp(2000, function(k)
        return k == 700 and 1e6 or math.sin(k * k) end), { only = 'f32', call = call_int8, check = is_near }),
    given('ties to even', ramp(256, function(k) return k == 1 and 127 or k == 256 and 0 or k - 128.5 end),
        { only = 'f32', call = call_int8, exact = true, ref = through_int8 }),
    given('too small to have a scale', { 1e-38, -1e-37, 1.5e-36, 0 }, { only = 'f32', call = call_int8, exact = true,
        ref = function() return { shape = { 4 }, 0, 0, 0, 0 } end }),
    given('the smallest and the largest scale', ramp(512, function(k)
        return (k <= 256 and 2 ^ -119 or 3.4e38) * (k % 3 - 1) end), { only = 'f32', call = call_int8,
        check = is_near }),
    given('no number spoils its group, and is seen', spoiled, { call = call_int8, check = is_spoiled }),
    given('past f32 in f64', { 1e300, 1 }, { only = 'f64', call = call_int8, check = function(y)
        return y[1] ~= y[1] and y[2] ~= y[2], 'expected NaN'
    end }),
} do int8[#int8 + 1] = case end

local sign = unpacked('sign', function(x)
    return array.map(function(v) return v <= 0 and 0 or 1 end, x)
end)
sign[#sign + 1] = given('NaN is not 0 or less', { 0 / 0, 1 / 0, -1 / 0, 0, -0.0, 1e-45, -1e-45, 2 ^ -126, 1 },
    { only = 'f32', call = function(_, x) return through('sign', x) end, exact = true,
        ref = function() return { shape = { 9 }, 1, 1, 0, 0, 0, 1, 0, 1, 1 } end })

local function refused(form, size)
    local function bad(input, error, dtype)
        return { inputs = { input }, error = 'unpack_' .. form .. ': ' .. error,
            call = calls('unpack_' .. form, { n = 2, i = { 3, 4 }, dtype = dtype or 'f32' }) }
    end
    return {
        bad({ size + 1, dtype = 'u8', gen = 'mask' }, 'input 1 is .*%(' .. size .. '%) u8.*%(3, 4%)'),
        bad({ size }, 'input 1 is .*f32'),
        bad({ size, dtype = 'u8', gen = 'mask' }, 'dtype i32', 'i32'),
    }
end

local function whole(form)
    return { { inputs = { { 3, dtype = 'i32', gen = 'int:2' } }, error = 'pack_' .. form .. ': .*f32',
        call = calls('pack_' .. form) } }
end

return {
    pack_int8 = { cases = packed('int8', pack_int8), bad = whole 'int8' },
    unpack_int8 = { cases = int8, bad = refused('int8', 16) },
    pack_sign = { cases = packed('sign', pack_sign), bad = whole 'sign' },
    unpack_sign = { cases = sign, bad = refused('sign', 2) },
}
