--- Compares gradients with finite differences, and holds the comparisons that specs of numbers share.
--
-- The differences are central with four points, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, h = 1e-3: in f64 both
-- the formula's error and the rounding of the loss stay near 1e-12, so a wrong gradient cannot hide in them.
-- A comparison fails on anything that is not a number, and an empty one says so.
local binding = require 'wane.ffi'

local C, check = binding.C, binding.check

local gradcheck = {}

local function count(shape)
    local n = 1
    for _, d in ipairs(shape) do n = n * d end
    return n
end

--- Returns the raw bytes of a tensor, row-major, as a Lua string; the call is a run point.
function gradcheck.bytes(t)
    local n = count(t.shape) * binding.element_bytes[t.dtype]
    local buffer = binding.new('uint8_t[?]', math.max(n, 1))
    t:copy_to(buffer)
    return binding.string(buffer, n)
end

--- Returns the elements of a tensor as a flat list of numbers, with its shape; the call is a run point.
function gradcheck.values(t)
    local n = count(t.shape)
    local buffer = binding.array(t.dtype, math.max(n, 1))
    t:copy_to(buffer)
    local numbers = t.dtype == 'bf16' and binding.widen(buffer, n) or buffer
    local out = { shape = t.shape }
    for k = 1, n do out[k] = tonumber(numbers[k - 1]) end
    return out
end

--- Returns the bytes that a list of numbers has in a dtype.
function gradcheck.rounded(list, dtype)
    local n = count(list.shape)
    local buffer = binding.array(dtype, math.max(n, 1))
    for k = 1, n do buffer[k - 1] = list[k] end
    return binding.string(binding.cast('const char *', buffer), n * binding.element_bytes[dtype])
end

--- Returns nil when every element of two flat lists agrees to tol * (1 + |want|), else which one does not.
function gradcheck.differ(have, want, tol)
    for k = 1, count(want.shape) do
        local a, b = have[k], want[k]
        if a ~= b and not (math.abs(a - b) <= tol * (1 + math.abs(b))) then
            return ('element %d is %.17g, expected %.17g (tolerance %g)'):format(k, a, b, tol)
        end
    end
    return nil
end

--- Fails unless the numbers of two lists agree to tolerance * max(1, |want|); NaN agrees with NaN alone.
-- @param want flat list
-- @param have flat list, or a tensor
-- @param tolerance number
-- @param what opens the message
function gradcheck.near(want, have, tolerance, what)
    local got = have.dtype and gradcheck.values(have) or have
    what = what and what .. ': ' or ''
    assert(#want == #got, ('%s%d elements, expected %d'):format(what, #got, #want))
    for k, w in ipairs(want) do
        local g = got[k]
        local fine = w == g or w ~= w and g ~= g or math.abs(w - g) <= tolerance * math.max(1, math.abs(w))
        assert(fine, ('%selement %d is %.12g, expected %.12g'):format(what, k, g, w))
    end
end

-- Picks the elements to try: all, or `most` of them, spread, first and last among them.
local function sample(n, most)
    if n <= most then
        local all = {}
        for k = 1, n do all[k] = k end
        return all
    end
    local out = {}
    for k = 1, most do out[k] = 1 + math.floor((k - 1) * (n - 1) / (most - 1)) end
    return out
end

-- Returns the slope of the loss in element k of a cell, and writes the cell's value back.
local function slope(cell, buffer, bytes, k, loss, h)
    local start = buffer[k - 1]
    local function at(offset)
        buffer[k - 1] = start + offset
        check(C.wn_write_part(cell.id, 0, buffer, bytes))
        return loss():item()
    end
    local inner = at(h) - at(-h)
    local outer = at(2 * h) - at(-2 * h)
    at(0)
    return (8 * inner - outer) / (12 * h)
end

--- Checks the gradients of a loss. Leaves the cells' values as they were, their gradients in place.
-- @param cells list of f64 states the loss depends on (parameters, leaves with requires_grad)
-- @param loss function() that records the loss (0-d f64), the same one at every call
-- @param opts { most = elements tried a cell (12), tol = relative to the largest slope tried of the cell (1e-6),
-- step = h (1e-3) }
-- @return nil, or what is wrong; and how many elements were compared
function gradcheck.wrong(cells, loss, opts)
    opts = opts or {}
    local most, tol, step, compared = opts.most or 12, opts.tol or 1e-6, opts.step or 1e-3, 0
    for _, cell in ipairs(cells) do check(C.wn_cell_drop_grad(cell.id)) end
    loss():backward()
    for i, cell in ipairs(cells) do
        if cell.grad == nil then return ('input %d has no gradient'):format(i), compared end
        local have = gradcheck.values(cell.grad)
        local n = count(cell.shape)
        local buffer, bytes = binding.array('f64', math.max(n, 1)), n * 8
        cell:copy_to(buffer)
        local list, want, largest = sample(n, most), {}, 0
        for j, k in ipairs(list) do
            want[j] = slope(cell, buffer, bytes, k, loss, step)
            largest = math.max(largest, math.abs(want[j]))
        end
        for j, k in ipairs(list) do
            -- 1e-10: what rounding leaves of a slope that is 0.
            if not (math.abs(have[k] - want[j]) <= tol * largest + 1e-10) then
                return ('input %d, element %d: gradient %.12g, slope %.12g'):format(i, k, have[k], want[j]), compared
            end
            compared = compared + 1
        end
    end
    return nil, compared
end

return gradcheck
