--- Cases of the cells of recurrent layers and of their gradients, each against its formula. Inputs in `record` count
-- from 0.
local array = require 'spec.cases.array'
local calls = array.calls

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

local function tanh(x)
    local e = math.exp(-2 * math.abs(x))
    return (x < 0 and -1 or 1) * (1 - e) / (1 + e)
end

-- Returns the gates, or states, of element k of a state of width n: those of an array with `parts` of them in a row.
local function gates(a, parts, n, k)
    local row, j, out = math.floor((k - 1) / n), (k - 1) % n, {}
    for p = 1, parts do out[p] = a[(row * parts + p - 1) * n + j + 1] end
    return unpack(out)
end

-- Returns the array with `parts` gates in a row whose element k has f(k), as many values.
local function rows_of(state, parts, f)
    local n, shape = state.shape[#state.shape], {}
    for d, size in ipairs(state.shape) do shape[d] = size end
    shape[#shape] = parts * n
    local out = { shape = shape }
    for k = 1, array.count(state.shape) do
        local row, j = math.floor((k - 1) / n), (k - 1) % n
        for p, v in ipairs { f(k) } do out[(row * parts + p - 1) * n + j + 1] = v end
    end
    return out
end

-- ---- lstm ---------------------------------------------------------------------------------------------------------

local function lstm(x, c)
    return rows_of(c, 2, function(k)
        local i, f, g, o = gates(x, 4, c.shape[#c.shape], k)
        local next = sigmoid(f) * c[k] + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(next), next
    end)
end

local function lstm_grad(of)
    return function(dy, x, c)
        local n = c.shape[#c.shape]
        return rows_of(c, of == 0 and 4 or 1, function(k)
            local dh, dc = gates(dy, 2, n, k)
            local i, f, g, o = gates(x, 4, n, k)
            i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
            local t = tanh(f * c[k] + i * g)
            local d = dc + dh * o * (1 - t * t)
            if of == 1 then return d * f end
            return d * g * i * (1 - i), d * c[k] * f * (1 - f), d * i * (1 - g * g), dh * t * o * (1 - o)
        end)
    end
end

-- ---- gru ----------------------------------------------------------------------------------------------------------

local function gru_gates(x, y)
    local n, third = x.shape[#x.shape] / 3, { shape = {} }
    for d, size in ipairs(x.shape) do third.shape[d] = size end
    third.shape[#x.shape] = n
    return rows_of(third, 4, function(k)
        local x0, x1, x2 = gates(x, 3, n, k)
        local y0, y1, y2 = gates(y, 3, n, k)
        return x0 + y0, x1 + y1, x2, y2
    end)
end

local function gru(x, h)
    return rows_of(h, 1, function(k)
        local r, z, a, b = gates(x, 4, h.shape[#h.shape], k)
        local n = tanh(a + sigmoid(r) * b)
        return n + sigmoid(z) * (h[k] - n)
    end)
end

local function gru_grad(of)
    return function(dy, x, h)
        return rows_of(h, of == 0 and 4 or 1, function(k)
            local r, z, a, b = gates(x, 4, h.shape[#h.shape], k)
            r, z = sigmoid(r), sigmoid(z)
            if of == 1 then return dy[k] * z end
            local n = tanh(a + r * b)
            local d = dy[k] * (1 - z) * (1 - n * n)
            return d * b * r * (1 - r), dy[k] * (h[k] - n) * z * (1 - z), d, d * r
        end)
    end
end

-- ---- cases --------------------------------------------------------------------------------------------------------

-- Leading dims and widths H: short and long rows, several dims, none, no rows, past a vector.
local sizes = { { { 3 }, 4 }, { { 2, 2 }, 3 }, { {}, 5 }, { { 0 }, 4 }, { { 2 }, 37 }, { { 65 }, 1, 'many rows' },
    { { 3 }, 1031, 'long rows' } }

local function input(size, parts)
    local dims = {}
    for d, n in ipairs(size[1]) do dims[d] = n end
    dims[#dims + 1] = parts * size[2]
    return dims
end

local function of_input(k) return { n = 1, i = { k } } end

-- Returns cases of an op at all sizes; parts: of each input in gates of H.
local function cases_of(name, parts, ref, of)
    local cases = {}
    for k, size in ipairs(sizes) do
        local inputs = {}
        for i, n in ipairs(parts) do inputs[i] = input(size, n) end
        cases[k] = { name = (size[3] or table.concat(inputs[1], ' x ')) .. (of and (', of input %d'):format(of) or ''),
            inputs = inputs, grad = not size[3], ref = ref, call = calls(name, of and of_input(of)) }
    end
    return cases
end

return {
    lstm_cell = { cases = cases_of('lstm_cell', { 4, 1 }, lstm), bad = {
        { inputs = { { 2, 12 }, { 2, 4 } }, error = 'the gates.*%(2, 12%).*%(2, 16%)' },
        { inputs = { { 3, 16 }, { 2, 4 } }, error = 'the gates.*%(3, 16%).*%(2, 16%)' },
        { inputs = { { 2, 0 }, { 2, 0 } }, error = 'a last dim of 1 or more' },
        { inputs = { {}, {} }, error = 'a last dim of 1 or more' },
        { inputs = { { 2, 16, dtype = 'i32', gen = 'int:4' }, { 2, 4 } }, error = 'i32' },
    } },
    lstm_cell_grad = {
        cases = array.joined(cases_of('lstm_cell_grad', { 2, 4, 1 }, lstm_grad(0), 0),
            cases_of('lstm_cell_grad', { 2, 4, 1 }, lstm_grad(1), 1)),
        bad = {
            { inputs = { { 2, 4 }, { 2, 16 }, { 2, 4 } }, call = calls('lstm_cell_grad', of_input(0)),
                error = 'the gates' },
            { inputs = { { 2, 8 }, { 2, 16 }, { 2, 4 } }, call = calls('lstm_cell_grad', of_input(2)),
                error = 'input 3 asked for' },
        },
    },
    gru_gates = { cases = cases_of('gru_gates', { 3, 3 }, gru_gates), bad = {
        { inputs = { { 2, 8 }, { 2, 8 } }, error = 'three times the state' },
        { inputs = { { 2, 6 }, { 2, 9 } }, error = 'the gates of the state.*%(2, 9%).*%(2, 6%)' },
        { inputs = { {}, {} }, error = 'three times the state' },
    } },
    gru_cell = { cases = cases_of('gru_cell', { 4, 1 }, gru), bad = {
        { inputs = { { 2, 12 }, { 2, 4 } }, error = 'the gates.*%(2, 12%).*%(2, 16%)' },
        { inputs = { { 2, 16 }, { 4 } }, error = 'the gates' },
    } },
    gru_cell_grad = {
        cases = array.joined(cases_of('gru_cell_grad', { 1, 4, 1 }, gru_grad(0), 0),
            cases_of('gru_cell_grad', { 1, 4, 1 }, gru_grad(1), 1)),
        bad = {
            { inputs = { { 2, 8 }, { 2, 16 }, { 2, 4 } }, error = 'the gates' },
            { inputs = { { 2, 4 }, { 2, 16 }, { 2, 4 } }, call = calls('gru_cell_grad', of_input(2)),
                error = 'input 3 asked for' },
        },
    },
}
