--- Cases of products: every combination of transposes, leading dims that broadcast, sizes around the edges of
-- micro-tiles.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local tol = { f32 = 1e-5, f64 = 1e-12 }

local function flagged(name, a, b, ta, tb, options)
    options = options or {}
    return { name = name, inputs = { a, b }, tol = options.tol or tol, grad = options.grad ~= false,
        call = function(wane, x, y)
            if not ta and not tb then return x:matmul(y) end
            return record('matmul', { x, y }, { i = { ta and 1 or 0, tb and 1 or 0 } })
        end,
        ref = function(x, y) return array.matmul(x, y, ta, tb) end }
end

local cases = {}
for _, f in ipairs { { false, false, 'plain' }, { true, false, 'a transposed' }, { false, true, 'b transposed' },
    { true, true, 'both transposed' } } do
    local ta, tb, name = f[1], f[2], f[3]
    local function a(...)
        local t = { ... }
        if ta then t[#t - 1], t[#t] = t[#t], t[#t - 1] end
        return t
    end
    local function b(...)
        local t = { ... }
        if tb then t[#t - 1], t[#t] = t[#t], t[#t - 1] end
        return t
    end
    local function add(what, x, y, options)
        cases[#cases + 1] = flagged(name .. ': ' .. what, x, y, ta, tb, options)
    end
    add('2-d', a(3, 4), b(4, 5))
    add('a batched', a(2, 3, 4), b(4, 5))
    add('b batched', a(3, 4), b(2, 4, 5))
    add('both batched', a(2, 3, 4), b(2, 4, 5))
    add('leading dims stretch', a(2, 1, 3, 4), b(3, 4, 2))
    add('a row and a column', a(1, 6), b(6, 1))
    add('nothing inside', a(2, 0), b(0, 3))
    add('no rows', a(0, 4), b(4, 3))
    add('past the tiles', a(19, 133), b(133, 50), { grad = false })
    add('one row more', a(9, 17), b(17, 49), { grad = false })
    add('few rows, many steps', a(36, 260), b(260, 44), { grad = false, tol = { f32 = 1e-4, f64 = 1e-12 } })
end

local linear = calls('linear')
local linear_ref = function(x, w, b)
    local rows = { shape = { array.count(x.shape) / w.shape[2], w.shape[2] } }
    for k, v in ipairs(x) do rows[k] = v end
    local y = array.map(function(v, c) return v + c end, array.matmul(rows, w, false, true), b)
    local shape = {}
    for d = 1, #x.shape - 1 do shape[d] = x.shape[d] end
    shape[#shape + 1] = w.shape[1]
    return array.reshape(y, shape)
end

local function linear_case(name, x, n, options)
    local k = x[#x]
    return { name = name, inputs = { x, { n, k }, { n } }, call = linear, ref = linear_ref, tol = tol,
        grad = not options }
end

return {
    matmul = {
        cases = cases,
        bad = {
            { inputs = { { 32, 100 }, { 128, 64 } },
                error = "matmul: inner dimensions differ: %(32, 100%) x %(128, 64%); a's last must equal b's second "
                    .. "last %(100 against 128%)" },
            { inputs = { { 100 }, { 100, 4 } }, error = 'matmul: input 1 is %(100%), expected 2 dims' },
            { inputs = { { 2, 3, 4 }, { 3, 4, 5 } }, error = 'matmul: leading dims .* do not broadcast' },
            { inputs = { { 3, 4, dtype = 'f32' }, { 4, 5, dtype = 'f64' } }, error = 'matmul: .*:to' },
            { inputs = { { 3, 4, dtype = 'i32', gen = 'int:3' }, { 4, 5, dtype = 'i32', gen = 'int:3' } },
                error = 'matmul: .*i32' },
        },
    },
    linear = {
        cases = {
            linear_case('rows', { 3, 4 }, 5),
            linear_case('one row without a dim', { 4 }, 5),
            linear_case('more leading dims', { 2, 3, 4 }, 5),
            linear_case('no rows', { 0, 4 }, 3),
            linear_case('past the tiles', { 21, 131 }, 53, 'forward only'),
        },
        bad = {
            { inputs = { { 3, 4 }, { 5, 6 }, { 5 } }, error = 'linear: the input is %(3, 4%)' },
            { inputs = { { 3, 4 }, { 5, 4 }, { 4 } }, error = 'linear: the bias is %(4%)' },
            { inputs = { { 3, 4 }, { 4 }, { 4 } }, error = 'linear: the weight is %(4%)' },
        },
    },
}
