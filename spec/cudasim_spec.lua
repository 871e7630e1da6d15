-- Checks the simulated CUDA device by its self-test (spec/cudasim/selftest.cu): bugs that are planted in kernels must
-- be found, and right kernels must compute what they should. Then its control from Lua, where it is built.
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
    package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
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
        local name = os.tmpname()
        local script = assert(io.open(name, 'w'))
        script:write(SCRIPT)
        script:close()
        local text, code = helper.shell(('WANE_CUDA_LIB=build/cudasim ${LUAJIT:-luajit} %s'):format(name))
        os.remove(name)
        assert(code == 0, text)
        assert.matches('same\ttrue', text)
        assert.matches('counted\ttrue\tfalse\ttrue', text)
        assert.matches('reset\ttrue', text)
        assert.matches('armed\t1', text)
        assert.matches('lost\tfalse\t.*the GPU was lost', text)
        assert.matches('report\t.*made to fail', text)
        assert.matches('wrong\tfalse\t.*there is no "nothing"', text)
    end)
end)
