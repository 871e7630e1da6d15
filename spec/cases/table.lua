--- Cases of reading by index and of adding gradients at indices: repeated indices, no indices, indices outside the
-- table.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local function embedding_ref(t, ids)
    local shape = { unpack(ids.shape) }
    shape[#shape + 1] = t.shape[2]
    return array.build(shape, function(_, k)
        local row, column = math.floor((k - 1) / t.shape[2]), (k - 1) % t.shape[2]
        return t[ids[row + 1] * t.shape[2] + column + 1]
    end)
end

local function embedding(name, t, ids)
    return { name = name, inputs = { t, ids }, grad = { true, false }, exact = true, ref = embedding_ref,
        call = calls('embedding') }
end

local function embedding_grad(name, dy, ids, rows)
    return { name = name, inputs = { dy, ids }, grad = { true, false },
        call = calls('embedding_grad', { i = { rows } }),
        ref = function(a, b)
            local width = a.shape[#a.shape]
            local out = array.zeros({ rows, width })
            for k = 1, array.count(b.shape) do
                for c = 1, width do
                    local at = b[k] * width + c
                    out[at] = out[at] + a[(k - 1) * width + c]
                end
            end
            return out
        end }
end

local function replaced(index, dim, v)
    local out = {}
    for d, i in ipairs(index) do out[d] = d == dim and v or i end
    return out
end

-- Makes a case of gather; dim is 1-based.
local function gather(name, x, ids, dim)
    return { name = name, inputs = { x, ids }, grad = { true, false }, exact = true,
        call = calls('gather', { i = { dim - 1 } }),
        ref = function(a, b)
            return array.build(b.shape, function(index, k) return array.at(a, replaced(index, dim, b[k])) end)
        end }
end

local function gather_grad(name, dy, ids, dim, full)
    return { name = name, inputs = { dy, ids }, grad = { true, false },
        call = calls('gather_grad', { i = { dim - 1, full } }),
        ref = function(a, b)
            local shape = { unpack(a.shape) }
            shape[dim] = full
            return array.build(shape, function(index)
                local sum = 0
                for j = 0, a.shape[dim] - 1 do
                    local from = replaced(index, dim, j)
                    if array.at(b, from) == index[dim] then sum = sum + array.at(a, from) end
                end
                return sum
            end)
        end }
end

-- Takes the gradient out of a case: finite differences of many elements take long.
local function long(case)
    case.grad = nil
    return case
end

local function ids(n, ...) return { dtype = 'i32', gen = 'int:' .. n, ... } end

return {
    embedding = {
        cases = {
            embedding('a list', { 7, 3 }, ids(7, 4)),
            embedding('batches, repeated', { 3, 5 }, ids(3, 2, 6)),
            embedding('one id', { 7, 3 }, ids(7)),
            embedding('no ids', { 7, 3 }, ids(7, 0)),
            long(embedding('rows of whole lines', { 7, 16 }, ids(7, 3, 7))),
        },
        bad = {
            { inputs = { { 7, 3 }, { 4 } }, error = 'embedding: input 2 .*i32' },
            { inputs = { { 7 }, ids(7, 4) }, error = 'embedding: the table is %(7%), expected 2 dims' },
        },
    },
    embedding_grad = {
        cases = {
            embedding_grad('a list', { 4, 3 }, ids(7, 4), 7),
            embedding_grad('repeated', { 2, 6, 5 }, ids(3, 2, 6), 3),
            embedding_grad('no ids', { 0, 3 }, ids(7, 0), 7),
            embedding_grad('rows of whole lines', { 40, 32 }, ids(6, 40), 9),
            embedding_grad('rows of more than a block', { 5, 520 }, ids(3, 5), 3),
            long(embedding_grad('more ids than threads of a block', { 700, 2 }, ids(3, 700), 3)),
        },
        bad = {
            { inputs = { { 4, 3 }, ids(7, 5) }, error = 'embedding_grad: dy is %(4, 3%) and the ids are %(5%)' },
        },
    },
    gather = {
        cases = {
            gather('columns', { 3, 5 }, ids(5, 3, 2), 2),
            gather('rows, more than there are', { 2, 4 }, ids(2, 6, 4), 1),
            gather('the middle', { 2, 3, 4 }, ids(3, 2, 2, 4), 2),
            long(gather('long rows', { 3, 700 }, ids(700, 3, 1100), 2)),
        },
        bad = {
            { inputs = { { 2, 5 }, { 2, 2, dtype = 'i32', values = { 0, 4, 1, 5 } } },
                error = 'gather: index 5 at element 3 is outside 0%.%.4', call = function(wane, a, b)
                    return wane.eval(record('gather', { a, b }, { i = { 1 } }))
                end },
            { inputs = { { 2, 5 }, ids(5, 3, 3) }, error = 'gather: the ids are %(3, 3%)',
                call = calls('gather', { i = { 1 } }) },
        },
    },
    gather_grad = {
        cases = {
            gather_grad('columns', { 3, 2 }, ids(5, 3, 2), 2, 5),
            gather_grad('rows, repeated', { 6, 4 }, ids(2, 6, 4), 1, 2),
            gather_grad('long rows, repeated', { 2, 900 }, ids(600, 2, 900), 2, 600),
        },
        bad = {
            { inputs = { { 3, 2 }, ids(5, 3, 3) }, error = 'gather_grad: input 2 is %(3, 3%), expected %(3, 2%)' },
        },
    },
}
