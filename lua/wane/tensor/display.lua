--- Printing of tensors: the text of `print(t)`.
--
-- A tensor of up to 1,000 elements is shown whole where that takes at most 40 lines, another one by shape, mean,
-- deviation, extremes, the count of NaN, and its corners: of every dim the first 3 and the last 3, fewer where there
-- are many dims. Rows wider than the output go on in the next line. Printing is a run point. A tensor on meta shows its
-- type only.
-- @internal wane.tensor.display

local binding = require 'wane.ffi'
local read = require 'wane.tensor.read'
local system = require 'wane.system'
local tensor = require 'wane.tensor'

local C = binding.C
local ipairs, math, string, table, tonumber = ipairs, math, string, table, tonumber

local display = {}

local MOST, LINES = 1000, 40 -- elements shown one by one, and the lines that they may take
local EDGE = 3 -- elements and rows shown at either end of a dim of a larger tensor

-- Returns one format for all numbers that are shown: integers, fixed or scientific.
local function choose_format(values, is_float)
    if not is_float then return '%d' end
    local largest, least, whole = 0, math.huge, true
    for _, v in ipairs(values) do
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

local GAP = -1 -- stands for the positions of a dim that are left out

-- Lists the positions of a dim that are shown, from 0: all, or `edge` at either end.
local function positions(size, edge)
    local list = {}
    for k = 0, size <= 2 * edge and size - 1 or edge - 1 do list[#list + 1] = k end
    if size <= 2 * edge then return list end
    list[#list + 1] = GAP
    for k = size - edge, size - 1 do list[#list + 1] = k end
    return list
end

-- Returns how many elements are shown at either end of a dim: fewer than EDGE where many dims would make them MOST.
local function edge_of(dims)
    for edge = EDGE, 2, -1 do
        local n = 1
        for _, size in ipairs(dims) do n = n * math.min(size, 2 * edge) end
        if n <= MOST then return edge end
    end
    return 1
end

-- Appends to `values` the elements that are shown behind the first `at`, from dim `depth` on, in their order.
local function gather(grid, values, buffer, depth, at)
    for _, k in ipairs(grid.positions[depth]) do
        local start = at * grid.dims[depth] + k
        if k ~= GAP and depth == #grid.dims then values[#values + 1] = tonumber(buffer[start]) end
        if k ~= GAP and depth < #grid.dims then gather(grid, values, buffer, depth + 1, start) end
    end
end

-- Appends one row of numbers to grid.out, in lines that fit.
local function row(grid, indent)
    local list, out, column = grid.positions[#grid.dims], grid.out, indent + 1
    out[#out + 1] = '['
    for i, k in ipairs(list) do
        local text = '...'
        if k ~= GAP then
            grid.shown = grid.shown + 1
            text = grid.texts[grid.shown]
            text = string.rep(' ', grid.width - #text) .. text
        end
        if i > 1 and column + #text + 3 > grid.columns then
            out[#out + 1] = ',\n' .. string.rep(' ', indent + 1)
            column = indent + 1
        elseif i > 1 then
            out[#out + 1] = ', '
            column = column + 2
        end
        out[#out + 1] = text
        column = column + #text
    end
    out[#out + 1] = ']'
end

-- Appends the numbers from dim `depth` on to grid.out. grid: { texts = of the numbers shown, shown = number of them
-- that are in grid.out, width = of the longest, columns = of the output, dims =, positions = of each dim, out = list of
-- pieces }.
local function rows(grid, depth, indent)
    local dims, out = grid.dims, grid.out
    if depth == #dims then return row(grid, indent) end
    out[#out + 1] = '['
    for i, k in ipairs(grid.positions[depth]) do
        if i > 1 then out[#out + 1] = ',' .. string.rep('\n', #dims - depth) .. string.rep(' ', indent + 1) end
        if k == GAP then out[#out + 1] = '...' else rows(grid, depth + 1, indent + 1) end
    end
    out[#out + 1] = ']'
end

-- Returns the numbers of a tensor as text, its corners alone where `is_cut`.
local function numbers(buffer, dims, is_float, is_cut)
    local grid, values = { dims = dims, positions = {}, out = {}, texts = {}, shown = 0, width = 0 }, {}
    if #dims == 0 then
        values[1] = tonumber(buffer[0])
        return number_text(choose_format(values, is_float), values[1])
    end
    local edge = is_cut and edge_of(dims) or math.huge
    for d = 1, #dims do grid.positions[d] = positions(dims[d], edge) end
    gather(grid, values, buffer, 1, 0)
    local format = choose_format(values, is_float)
    for k, v in ipairs(values) do
        grid.texts[k] = number_text(format, v)
        grid.width = math.max(grid.width, #grid.texts[k])
    end
    grid.columns = system.columns()
    rows(grid, 1, 0)
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
    local text = n <= MOST and numbers(buffer, dims, is_float, false)
    if not text or select(2, text:gsub('\n', '')) >= LINES then
        local sums = summary(buffer, n)
        return ('%s:%s%s\n%s'):format(head, #head + 2 + #sums > system.columns() and '\n' or ' ', sums,
            numbers(buffer, dims, is_float, true))
    end
    local is_short = #dims <= 1 and #head + 1 + #text <= system.columns()
    return head .. (is_short and ' ' or '\n') .. text
end

return display
