-- Checks every op on the simulated GPU in several orders of streams, blocks and threads: the bits must be equal, no two
-- threads may race, and warps must ask for few more sectors of memory than their bytes need. Races and sectors need the
-- device that watches memory (make cudasim-hooks); without it the orders alone are checked.
local helper = require 'spec.helper'

-- The most sectors of device memory over the least for the bytes, of all cases of an op: 2 for most, more where lanes
-- read by columns, by positions, or a byte each.
local MOST = {
    argsort = 3, conv2d = 3, conv2d_dx = 3, conv2d_map = 3, gather = 3, linear = 3, linear_map = 3, matmul = 3,
    pack_sign = 7, relayout = 4, unpack_sign = 4,
}
local FEW = 200 -- sectors that are too few to say anything

local function library()
    for _, folder in ipairs { 'build/cudasim-hooks', 'build/cudasim' } do
        local file = io.open(helper.root .. '/' .. folder .. '/libwane_cuda.so', 'rb')
        if file then
            file:close()
            return folder
        end
    end
end

local COLUMNS = { 'op', 'runs', 'other', 'races', 'sectors', 'least', 'shared', 'conflicts', 'report' }

-- Returns the lines of spec/support/cuda_orders.lua, each as a table by the names of COLUMNS.
local function rows_of(text)
    local rows = {}
    for line in text:gmatch '[^\n]+' do
        local row, i = {}, 0
        for word in (line .. '\t'):gmatch '(.-)\t' do
            i = i + 1
            row[COLUMNS[i] or 'rest'] = tonumber(word) or word
        end
        if i == #COLUMNS then rows[#rows + 1] = row end
    end
    return rows
end

local function fault_of(row)
    if row.other > 0 then return ('%d of %d runs in other orders have other bits'):format(row.other, row.runs) end
    if row.races > 0 or row.report ~= '' then return ('%d races; %s'):format(row.races, row.report) end
    if row.sectors > FEW and row.sectors > (MOST[row.op] or 2) * row.least then
        return ('warps ask for %d sectors of memory where %d hold their bytes'):format(row.sectors, row.least)
    end
end

describe('a simulated GPU', function()
    local folder = library()
    if not folder then
        pending('is not here: make cudasim, or make cudasim-hooks')
        return
    end

    it('gives the same bits in every order of streams and threads, without races', function()
        local text, code = helper.shell(('WANE_CUDA_LIB=%s ${LUAJIT:-luajit} spec/support/cuda_orders.lua 2>&1')
            :format(folder))
        local bad, runs, rows = {}, 0, rows_of(text)
        for _, row in ipairs(rows) do
            local fault = fault_of(row)
            runs = runs + row.runs
            if fault then bad[#bad + 1] = row.op .. ': ' .. fault end
        end
        assert(code == 0, text:sub(-2000))
        assert(#bad == 0, table.concat(bad, '\n'))
        assert.is_true(#rows > 80 and runs > (helper.is_long and 2000 or 1000), ('%d ops, %d runs'):format(#rows, runs))
    end)
end)
