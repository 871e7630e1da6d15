--- Cases of ops that move elements. Methods count dims from 1; `record` takes the library's dims, from 0. And of the op
-- that changes layouts: whatever the layout, the value read on the host is the same.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local function permute_ref(order)
    return function(x)
        local shape = {}
        for d, from in ipairs(order) do shape[d] = x.shape[from] end
        return array.build(shape, function(index)
            local source = {}
            for d, from in ipairs(order) do source[from] = index[d] end
            return array.at(x, source)
        end)
    end
end

local function permute(name, input, ...)
    local order = { ... }
    return { name = name, inputs = { input }, grad = input.dtype == nil, exact = true, dtype = input.dtype,
        call = function(_, x) return x:permute(unpack(order)) end, ref = permute_ref(order) }
end

local function reshape(name, from, to)
    return { name = name, inputs = { from }, grad = true, exact = true, call = calls('reshape', { i = to }),
        ref = function(x) return array.reshape(x, to) end }
end

local function shifted(index, dim, by)
    local out = {}
    for d, v in ipairs(index) do out[d] = d == dim and v + by or v end
    return out
end

local function resized(shape, dim, size)
    local out = {}
    for d, v in ipairs(shape) do out[d] = d == dim and size or v end
    return out
end

local function narrow(name, input, dim, start, length)
    return { name = name, inputs = { input }, grad = input.dtype == nil, exact = true, dtype = input.dtype,
        call = function(_, x) return x:narrow(dim, start, length) end,
        ref = function(x)
            return array.build(resized(x.shape, dim, length), function(index)
                return array.at(x, shifted(index, dim, start - 1))
            end)
        end }
end

-- Makes a case of narrow_grad; dim is 1-based, start 0-based.
local function narrow_grad(name, input, dim, start, full)
    return { name = name, inputs = { input }, exact = true, grad = true,
        call = calls('narrow_grad', { i = { dim - 1, start, full } }),
        ref = function(dy)
            return array.build(resized(dy.shape, dim, full), function(index)
                local at = index[dim] - start
                if at < 0 or at >= dy.shape[dim] then return 0 end
                return array.at(dy, shifted(index, dim, -start))
            end)
        end }
end

local function cat_ref(dim)
    return function(...)
        local list, total = { ... }, 0
        for _, a in ipairs(list) do total = total + a.shape[dim] end
        return array.build(resized(list[1].shape, dim, total), function(index)
            local at = index[dim]
            for _, a in ipairs(list) do
                if at < a.shape[dim] then return array.at(a, shifted(index, dim, at - index[dim])) end
                at = at - a.shape[dim]
            end
        end)
    end
end

local function cat(name, dim, ...)
    return { name = name, inputs = { ... }, grad = (...).dtype == nil, exact = true, dtype = (...).dtype,
        call = function(wane, ...) return wane.cat({ ... }, dim) end, ref = cat_ref(dim) }
end

-- ---- layouts -------------------------------------------------------------------------------------------------------

local PLAIN, PANELS = 0, 1
-- The stressed collector walks every element of a table again and again: there the first cache is enough.
local MANY = os.getenv 'WANE_SPEC_STRESS' and 262 or 1030

-- Makes a case that takes an input through each layout of `way` in turn; every element is doubled in each of them.
local function through(name, input, way)
    local function call(_, x)
        for _, layout in ipairs(way) do x = record('relayout', { x }, { layout = layout }) * 2 end
        return x
    end
    local function ref(x)
        return array.build(x.shape, function(_, k) return x[k] * 2 ^ #way end)
    end
    return { name = name, inputs = { input }, grad = true, exact = true, call = call, ref = ref }
end

return {
    reshape = {
        cases = {
            reshape('split', { 2, 6 }, { 2, 3, 2 }),
            reshape('merge', { 2, 3, 2 }, { 12 }),
            reshape('to 0-d', { 1, 1 }, {}),
            reshape('from 0-d', {}, { 1 }),
            reshape('no elements', { 0, 4 }, { 2, 0 }),
            { name = 'as a method', inputs = { { 3, 8 } }, grad = true, exact = true,
                call = function(_, x) return x:reshape(4, -1) end,
                ref = function(x) return array.reshape(x, { 4, 6 }) end },
        },
        bad = {
            { inputs = { { 3, 4 } }, error = 'reshape: .*12', call = calls('reshape', { i = { 5, 2 } }) },
        },
    },
    permute = {
        cases = {
            permute('past a tile', { 70, 133 }, 2, 1),
            permute('past a tile, i32', { 33, 2, 81, dtype = 'i32', gen = 'int:99' }, 3, 2, 1),
            permute('swap', { 3, 4 }, 2, 1),
            permute('turn', { 2, 3, 4 }, 3, 1, 2),
            permute('heads', { 2, 3, 2, 4 }, 1, 3, 2, 4),
            permute('heads, rows of whole lines', { 3, 5, 2, 16 }, 1, 3, 2, 4),
            permute('rows of whole lines, f64', { 5, 3, 8, dtype = 'f64' }, 2, 1, 3),
            permute('large', { 33, 65 }, 2, 1),
            permute('by whole lines', { 48, 288 }, 2, 1),
            permute('by whole lines, i32, among others', { 3, 32, 2, 16, dtype = 'i32', gen = 'int:99' }, 4, 3, 1, 2),
            permute('no elements', { 0, 4 }, 2, 1),
            permute('i32', { 3, 4, dtype = 'i32', gen = 'int:90' }, 2, 1),
            { name = 'transpose', inputs = { { 2, 3, 4 } }, grad = true, exact = true,
                call = function(_, x) return x:transpose(-2, -1) end, ref = permute_ref { 1, 3, 2 } },
        },
        bad = {
            { inputs = { { 3, 4 } }, error = 'permute: dim 1 is named twice',
                call = calls('permute', { i = { 0, 0 } }) },
            { inputs = { { 3, 4 } }, error = 'permute: an order of 1 dims', call = calls('permute', { i = { 0 } }) },
        },
    },
    narrow = {
        cases = {
            narrow('columns', { 3, 5 }, 2, 2, 3),
            narrow('rows', { 5, 3 }, 1, 3, 2),
            narrow('the middle', { 2, 5, 3 }, 2, 1, 4),
            narrow('nothing', { 3, 5 }, 2, 2, 0),
            narrow('u8', { 7, dtype = 'u8', gen = 'mask' }, 1, 3, 4),
        },
        bad = {
            { inputs = { { 5 } }, error = 'narrow: 3 elements from 4 of dim 1',
                call = calls('narrow', { i = { 0, 3, 3 } }) },
        },
    },
    narrow_grad = {
        cases = {
            narrow_grad('columns', { 3, 2 }, 2, 1, 5),
            narrow_grad('rows', { 2, 3 }, 1, 0, 4),
            narrow_grad('the middle', { 2, 2, 3 }, 2, 3, 5),
            narrow_grad('all', { 4 }, 1, 0, 4),
        },
        bad = {
            { inputs = { { 3 } }, error = 'narrow_grad: .*does not fit',
                call = calls('narrow_grad', { i = { 0, 3, 5 } }) },
        },
    },
    cat = {
        cases = {
            cat('rows', 1, { 2, 3 }, { 1, 3 }),
            cat('columns', 2, { 2, 3 }, { 2, 1 }, { 2, 2 }),
            cat('one', 1, { 4 }),
            cat('an empty one', 1, { 2, 3 }, { 0, 3 }),
            cat('the middle', 2, { 2, 1, 3 }, { 2, 2, 3 }),
            cat('i32', 1, { 4, dtype = 'i32', gen = 'int:9' }, { 2, dtype = 'i32', gen = 'int:9' }),
        },
        bad = {
            { inputs = { { 2, 3 }, { 3, 3 } }, error = 'cat: input 2 is %(3, 3%)', call = calls('cat', { i = { 1 } }) },
            { inputs = { { 3, dtype = 'f32' }, { 3, dtype = 'f64' } }, error = 'cat: .*:to' },
        },
    },
    relayout = {
        cases = {
            through('into panels', { 48, 5 }, { PANELS }),
            through('and back', { 96, 3 }, { PANELS, PLAIN }),
            through('a last panel of 16', { 112, 7 }, { PANELS, PLAIN, PANELS }),
            through('a last panel of 32', { 80, 33 }, { PANELS, PLAIN }),
            through('one narrow panel', { 16, 1 }, { PANELS, PANELS }),
            through('without columns', { 32, 0 }, { PANELS, PLAIN }),
            through('without rows', { 0, 3 }, { PANELS, PLAIN }),
            through('past the caches', { 496, MANY }, { PANELS, PLAIN }),
        },
        bad = {
            { inputs = { { 15, 4 } }, error = 'relayout: %(15, 4%) cannot lie in panels; .* multiple of 16 rows',
                call = calls('relayout', { layout = PANELS }) },
            { inputs = { { 16, 4, 2 } }, error = 'relayout: %(16, 4, 2%) cannot lie in panels',
                call = calls('relayout', { layout = PANELS }) },
            { inputs = { { 16, 4 } }, error = 'relayout: layout 7 is unknown',
                call = calls('relayout', { layout = 7 }) },
        },
    },
}
