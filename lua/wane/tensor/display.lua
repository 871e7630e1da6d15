--- Printing of tensors: the text of `print(t)`.
--
-- A tensor of up to 1,000 elements is shown whole, a larger one by shape, mean, deviation, extremes and the count of
-- NaN. Printing is a run point. A tensor on meta shows its type only.
-- @internal wane.tensor.display

local binding = require 'wane.ffi'
local read = require 'wane.tensor.read'
local tensor = require 'wane.tensor'

local C = binding.C
local math, string, table, tonumber = math, string, table, tonumber

local display = {}

local MOST = 1000 -- elements shown one by one

-- Returns one format for all numbers of a tensor: integers, fixed or scientific.
local function choose_format(buffer, n, is_float)
    if not is_float then return '%d' end
    local largest, least, whole = 0, math.huge, true
    for k = 0, n - 1 do
        local v = tonumber(buffer[k])
        local a = math.abs(v)
        if v == v and a ~= math.huge then
            if a > largest then largest = a end
            if a > 0 and a < least then least = a end
            if v % 1 ~= 0 then whole = false end
        end
    end
    if whole and largest < 1e6 then return '%.0f.' end
    if largest >= 1e5 or least < 1e-4 then return '%.4e' end
    return '%.4f'
end

local function number_text(format, v)
    if v ~= v then return 'nan' end
    if v == math.huge then return 'inf' end
    if v == -math.huge then return '-inf' end
    return string.format(format, v)
end

-- Appends to grid.out the elements behind the first `at`, from dim `depth` on. grid: { texts = of all elements, width =
-- of the longest of them, dims =, out = list of pieces }. Returns the number of elements that are in grid.out then.
local function rows(grid, depth, at, indent)
    local dims, out = grid.dims, grid.out
    if depth == #dims then
        local cells = {}
        for k = 1, dims[depth] do
            local text = grid.texts[at + k]
            cells[k] = string.rep(' ', grid.width - #text) .. text
        end
        out[#out + 1] = '[' .. table.concat(cells, ', ') .. ']'
        return at + dims[depth]
    end
    out[#out + 1] = '['
    for k = 1, dims[depth] do
        if k > 1 then out[#out + 1] = ',' .. string.rep('\n', #dims - depth) .. string.rep(' ', indent + 1) end
        at = rows(grid, depth + 1, at, indent + 1)
    end
    out[#out + 1] = ']'
    return at
end

local function whole(buffer, n, dims, is_float)
    local format = choose_format(buffer, n, is_float)
    local texts, width = {}, 0
    for k = 1, n do
        texts[k] = number_text(format, tonumber(buffer[k - 1]))
        width = math.max(width, #texts[k])
    end
    if #dims == 0 then return texts[1] end
    local grid = { texts = texts, width = width, dims = dims, out = {} }
    rows(grid, 1, 0, 0)
    return table.concat(grid.out)
end

local function summary(buffer, n)
    local sum, low, high, bad, good = 0, math.huge, -math.huge, 0, 0
    for k = 0, n - 1 do
        local v = tonumber(buffer[k])
        if v ~= v then
            bad = bad + 1
        else
            good = good + 1
            sum = sum + v
            if v < low then low = v end
            if v > high then high = v end
        end
    end
    local mean = sum / math.max(1, good)
    local square = 0
    for k = 0, n - 1 do
        local v = tonumber(buffer[k])
        if v == v then square = square + (v - mean) ^ 2 end
    end
    local std = math.sqrt(square / math.max(1, good - 1))
    return string.format('mean %.6g, std %.6g, min %.6g, max %.6g, nan %d', mean, std, low, high, bad)
end

--- Returns the text of a tensor; computes it when it holds no bytes.
function display.text(t)
    tensor.typed(t)
    local device = binding.string(C.wn_device_name(t._device))
    local head = string.format('tensor %s', tensor.describe(t))
    if device ~= 'cpu' then head = head .. ' ' .. device end
    if device == 'meta' then return head end
    local dims = t._dims
    local n = tensor.count(dims)
    if n == 0 then return head .. ' []' end
    local is_float = tensor.is_float[t._dtype]
    local buffer = read.buffer(t, 'print')
    if n > MOST then return head .. ': ' .. summary(buffer, n) end
    local text = whole(buffer, n, dims, is_float)
    if #dims <= 1 then return head .. ' ' .. text end
    return head .. '\n' .. text
end

return display
