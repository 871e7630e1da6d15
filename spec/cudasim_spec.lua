-- Checks the simulated CUDA device by its self-test (spec/cudasim/selftest.cu): bugs that are planted in kernels must
-- be found, and right kernels must compute what they should. Then its control from Lua, where it is built; and on it
-- every op in several orders of streams, blocks and threads: the bits must be equal, no two threads may race, and warps
-- must ask for few more sectors of memory than their bytes need. Races and sectors need the device that watches memory
-- (make cudasim-hooks); without it the orders alone are checked.
local helper = require 'spec.helper'

local COMPILER = os.getenv 'CXX' or 'g++'

-- Returns what a build of the self-test says: a list of the checks that went well, of failures, and of those left out.
local function run_selftest(folder)
    local built, code = helper.shell(('env -u MAKEFLAGS -u MAKELEVEL make -j2 --no-print-directory %s/selftest'):format(
        folder))
    assert(code == 0, built)
    local text, status = helper.shell(folder .. '/selftest')
    local good, bad, left = {}, {}, {}
    for line in text:gmatch('[^\n]+') do
        local list = line:find '^ok ' and good or line:find '^skip ' and left or bad
        list[#list + 1] = line
    end
    assert(#bad == 0 and status == 0, table.concat(bad, '\n') .. '\nexit code ' .. status)
    return good, left
end

-- Returns whether a compiler of C++ is here; else the spec that asks is pending.
local function has_compiler()
    local _, code = helper.shell(('command -v %s'):format(COMPILER))
    if code ~= 0 then pending('is not tried: there is no ' .. COMPILER) end
    return code == 0
end

describe('the simulated CUDA device', function()
    it('finds planted bugs and runs what is right in every order', function()
        if not has_compiler() then return end
        local good, left = run_selftest 'build/cudasim'
        assert.is_true(#good >= 45, #good .. ' checks')
        for _, line in ipairs(left) do -- the watch is another build, and the header of cuRAND may be absent
            assert.is_truthy(line:find 'watch over memory' or line:find 'header is not here', line)
        end
    end)

    it('finds races, sectors and bank conflicts where it watches memory', function()
        if not has_compiler() then return end
        local _, left = run_selftest 'build/cudasim-hooks'
        for _, line in ipairs(left) do assert.not_matches('watch', line) end
    end)

    it('has no errors of its own under the sanitizers', function()
        if not has_compiler() then return end
        if not helper.is_long then return pending 'is not tried: WANE_SPEC_LONG=1 does' end
        assert.is_true(#run_selftest 'build/cudasim-asan' >= 40)
    end)

    it('is refused with words where it is not built', function()
        local text = helper.shell([[WANE_CUDA_LIB=/nowhere ${LUAJIT:-luajit} -e "
            local sim = require 'spec.support.cudasim'
            print(sim.missing())
            print(pcall(sim.counters))"]])
        assert.matches('there is no /nowhere/libwane_cuda.so; make cudasim builds it', text, 1, true)
        assert.matches('false.*the simulated CUDA device: there is no /nowhere', text)
    end)
end)

-- The script runs in a process of its own, since the device may be lost afterwards.
local SCRIPT = [[
    local wane = require 'wane'
    local sim = require 'spec.support.cudasim'
    wane.set_device 'cuda'
    local function value(streams, seed, threads)
        sim.schedule(streams, seed, threads)
        wane.manual_seed(3)
        return (wane.randn(40, 30):relu() + 1):sum():item()
    end
    local first = value('eager')
    print('same', first == value('random', 5, 'shuffled') and first == value('lazy', 1, 'reverse'))
    print('counted', sim.counters().launches > 0, sim.overrun(), sim.touched() == nil)
    sim.reset()
    print('reset', sim.counters().launches == 0)
    sim.fail('async', 1)
    print('armed', sim.fails_in 'async')
    print('lost', pcall(value, 'lazy'))
    print('report', sim.report())
    print('wrong', pcall(sim.fail, 'nothing'))
]]

describe('control of the simulated device', function()
    it('orders, counts and makes fail from Lua', function()
        local file = io.open(helper.root .. '/build/cudasim/libwane_cuda.so', 'rb')
        if not file then return pending 'is not tried: make cudasim builds the device' end
        file:close()
        local text = require('spec.support.cudasim').script('WANE_CUDA_LIB=build/cudasim', SCRIPT)
        assert.matches('same\ttrue', text)
        assert.matches('counted\ttrue\tfalse\ttrue', text)
        assert.matches('reset\ttrue', text)
        assert.matches('armed\t1', text)
        assert.matches('lost\tfalse\t.*the GPU was lost', text)
        assert.matches('report\t.*made to fail', text)
        assert.matches('wrong\tfalse\t.*there is no "nothing"', text)
    end)
end)

-- ---- products of few rows -------------------------------------------------------------------------------------------

-- Prints of each way in which operands lie, in several orders of threads: how far the product is off, races, sectors,
-- the least for their bytes, shared calls, conflicts.
local FEW_ROWS = [[
    local wane, sim = require 'wane', require 'spec.support.cudasim'
    wane.set_device 'cuda'
    for flags = 0, 3 do
        local ta, tb = flags % 2 == 1, flags > 1
        for _, m in ipairs { 8, 16, 32, 64 } do
            local a = wane.eval(ta and wane.ones(256, m) or wane.ones(m, 256))
            local b = wane.eval(tb and wane.ones(96, 256) or wane.ones(256, 96))
            for _, threads in ipairs { 'forward', 'shuffled', 'ahead' } do
                sim.schedule('eager', 1, threads)
                sim.touched()
                local y = wane.eval(a:matmul(b, { transpose_a = ta, transpose_b = tb }))
                local t = sim.touched()
                print('product', m, flags, (y - 256):abs():max():item(), t.races, t.sectors, t.least_sectors,
                    t.shared_calls, t.conflicts)
            end
        end
    end
]]

describe('a product of few rows on the simulated device', function()
    it('reads no sector beside its operands, and banks hardly conflict', function()
        local file = io.open(helper.root .. '/build/cudasim-hooks/libwane_cuda.so', 'rb')
        if not file then return pending 'is not tried: make cudasim-hooks builds the device' end
        file:close()
        local text, n = require('spec.support.cudasim').script('WANE_CUDA_LIB=build/cudasim-hooks', FEW_ROWS), 0
        for line in text:gmatch 'product[^\n]+' do
            local off, races, sectors, least, shared, conflicts =
                line:match '([^\t]+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)$'
            assert(off == '0' and races == '0' and sectors == least and tonumber(conflicts) < 0.1 * shared, line)
            n = n + 1
        end
        assert.equal(48, n, text)
    end)
end)

-- ---- every op in several orders -------------------------------------------------------------------------------------

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
