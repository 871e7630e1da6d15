--- Cases of ops along one dim that keep its positions. Dims in `record` are 0-based.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local shapes = {
    { 'rows', { 3, 5 }, 1 }, { 'columns', { 5, 3 }, 0 }, { 'a middle dim, turned', { 2, 4, 3 }, 1, true },
    { 'one position', { 4, 1 }, 1 }, { 'no positions', { 2, 0 }, 1 }, { 'no lines', { 0, 3 }, 1, true },
    { 'long rows', { 2, 1031 }, 1, false, 'long' }, { 'wide columns, turned', { 7, 1100 }, 0, true, 'long' },
}

-- CUDA gives a line of more than one tile of 1,024 positions, and columns of 64 on, a block of its own.
shapes[#shapes + 1] = { 'long rows, turned', { 2, 2100 }, 1, true, 'long' }
shapes[#shapes + 1] = { 'long columns', { 2, 70, 3 }, 1, false, 'long' }

local function attrs(dim, turned) return { n = 2, i = { dim, turned and 1 or 0 } } end

local function sums(turned)
    return function(list)
        local out, sum = {}, 0
        for k = 1, #list do
            local at = turned and #list + 1 - k or k
            sum = sum + list[at]
            out[at] = sum
        end
        return out
    end
end

local function order(turned)
    return function(list)
        local at = {}
        for k = 1, #list do at[k] = k - 1 end
        table.sort(at, function(a, b)
            local u, v = list[a + 1], list[b + 1]
            if (u ~= u) ~= (v ~= v) then return (turned and u ~= u or not turned and v ~= v) or false end
            if u ~= u or u == v then return a < b end
            if turned then return u > v end
            return u < v
        end)
        return at
    end
end

local function bad(name)
    return {
        { inputs = { { 3 } }, error = name .. ': dim 2 is out of range', call = calls(name, attrs(1)) },
        { inputs = { { 3 } }, error = name .. ': the direction is 2, expected 0 or 1',
            call = calls(name, { n = 2, i = { 0, 2 } }) },
        { inputs = { { 3, dtype = 'u8', gen = 'mask' } }, error = name .. ': .*u8', call = calls(name, attrs(0)) },
        name == 'cumsum' and { inputs = { { 2, 3, dtype = 'i32', values = { 1, 2, 3, 2000000000, 1000000000, -5 } } },
            error = 'cumsum: 3000000000 at element 4 is outside the numbers of i32', call = function(wane, x)
                return wane.eval(record(name, { x }, attrs(1)))
            end } or nil,
    }
end

local function case(name, s, make, options)
    return { name = s[1] .. (options.title or ''), inputs = { array.input(s[2], options.input) },
        grad = options.grad and not s[5], exact = options.exact, dtype = options.dtype, only = options.only,
        call = calls(name, attrs(s[3], s[4])), ref = function(x) return array.along(s[3], make(s[4]), x) end }
end

local cumsum, argsort = { cases = {}, bad = bad 'cumsum' }, { cases = {}, bad = bad 'argsort' }
for k, s in ipairs(shapes) do
    cumsum.cases[k] = case('cumsum', s, sums, { grad = true })
    argsort.cases[2 * k - 1] = case('argsort', s, order, { exact = true, dtype = 'i32' })
    argsort.cases[2 * k] = case('argsort', s, order, { title = ', equals', exact = true, dtype = 'i32', only = 'f32',
        input = { dtype = 'i32', gen = 'int:3' } })
end
cumsum.cases[#cumsum.cases + 1] = case('cumsum', shapes[3], sums, { title = ', i32', only = 'f32', dtype = 'i32',
    exact = true, input = { dtype = 'i32', gen = 'int:90' } })
-- Short lines are sorted in one way, long ones in another, with as many passes as digits differ.
local kinds, whole = { 0 / 0, 1, -1 / 0, 0, -0.0, 0 / 0, 1 / 0, -2 }, { 7, -1, 65536, 2 ^ 31 - 1, -2 ^ 31, 0, -1, 300 }
local many, many_whole = {}, {}
for k = 1, 128 do many[k], many_whole[k] = kinds[k % 8 + 1] * (k % 3 + 1), whole[k % 8 + 1] end
for _, turned in ipairs { false, true } do
    local function add(name, dims, options)
        options.exact, options.dtype = true, 'i32'
        local shape = { name .. ', ' .. tostring(turned), dims, 0, turned }
        argsort.cases[#argsort.cases + 1] = case('argsort', shape, order, options)
    end
    add('every kind', { 8 }, { input = { values = kinds } })
    add('every kind, many', { 128 }, { input = { values = many } })
    add('whole numbers', { 8 }, { only = 'f32', input = { dtype = 'i32', values = whole } })
    add('whole numbers, many', { 128 }, { only = 'f32', input = { dtype = 'i32', values = many_whole } })
    add('long columns', { 70, 9 }, { input = {} })
    for _, most in ipairs { 1, 200, 60000 } do -- no pass, one, and two
        add('long columns of numbers below ' .. most, { 70, 9 },
            { only = 'f32', input = { dtype = 'i32', gen = 'int:' .. most } })
    end
end

return { cumsum = cumsum, argsort = argsort }
