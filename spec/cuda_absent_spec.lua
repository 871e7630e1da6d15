-- Checks what is said where there is no GPU, or none that this library can use, on the simulated one: each reason has
-- words that say what was found and what to do, `wane version` prints them, a script that asks for the GPU gets them,
-- and the CPU goes on.
local helper = require 'spec.helper'
local sim = require 'spec.support.cudasim'

-- The environment of a case, and what must be said.
local CASES = {
    ['an old driver'] = { 'WANE_SIM_OPEN=35',
        'no GPU: the driver is older than this library needs; bring it up to date' },
    ['a fabric manager that does not run'] = { 'WANE_SIM_OPEN=802', 'nvidia-fabricmanager must run' },
    ['an error without words of its own'] = { 'WANE_SIM_OPEN=999', 'no GPU: the driver refuses it (CUDA error 999: ' },
    ["the toolkit's stub"] = { 'WANE_SIM_OPEN=34', "no GPU: the toolkit's stub of libcuda.so was loaded" },
    ['no device'] = { 'WANE_SIM_OPEN=100', 'no GPU: the driver finds no GPU; CUDA_VISIBLE_DEVICES may hide one' },
    ['an architecture that is too old'] = { 'WANE_SIM_ARCH=61', 'is sm_61, and Wane needs sm_75 or later' },
    ['an architecture that was not built'] = { 'WANE_SIM_ARCH=75',
        'the library was not built for the one that was found, sm_75; make cuda builds for all, WANE_CUDA_ARCH=75' },
    ['a library that is off'] = { 'WANE_CUDA_LIB=off', 'off (WANE_CUDA_LIB=off)' },
    ['a file that is not there'] = { 'WANE_CUDA_LIB=/no/such/folder', 'there is no file /no/such/folder' },
    ["a library that is not Wane's"] = { 'WANE_CUDA_LIB=build/libwane.so', "is not a library of Wane's" },
}

local function run(environment, command)
    return (helper.shell(('env %s %s'):format(environment, command)))
end

-- Returns the value of words of the Makefile.
local function of_make(words)
    return helper.lines(("make -s --no-print-directory --eval 'show: ; @echo %s' show"):format(words))[1]
end

describe('without a GPU', function()
    if sim.missing() then
        pending(sim.missing())
        return
    end

    for name, case in pairs(CASES) do
        it('says why: ' .. name, function()
            assert.truthy(run(case[1], 'build/wane version'):find(case[2], 1, true))
            local out = sim.script(case[1], "local wane = require 'wane'; print(pcall(wane.set_device, 'cuda'));"
                .. ' print(wane.ones(2, 2):sum():item())')
            assert.truthy(out:find(case[2], 1, true), out)
            assert.truthy(out:find '\n4\n?$', out)
        end)
    end

    -- Reads the lists of what each library was compiled of, which the compilers wrote.
    it('has a checksum of every file that both libraries are built of', function()
        local function files(folder)
            local found = {}
            for _, list in ipairs(helper.lines(("find %s -name '*.d'"):format(folder))) do
                for _, line in ipairs(helper.lines('cat ' .. list)) do
                    for name in line:gmatch '[%w_./-]+%.[%w]+' do
                        local short, n = name, 1
                        while n > 0 do short, n = short:gsub('[^/]+/%.%./', '') end
                        found[short] = not short:find '^build/' or nil
                    end
                end
            end
            return found
        end
        local checked, missing, count = {}, {}, 0
        for name in of_make('$(CUDA_TREE_FILES)'):gmatch '%S+' do checked[name] = true end
        local ours = files 'build/release'
        for name in pairs(files 'build/cudasim') do
            if ours[name] then
                count = count + 1
                if not checked[name] then missing[#missing + 1] = name end
            end
        end
        assert.is_true(count > 10, count .. ' shared files')
        assert.equal('', table.concat(missing, ' '))
    end)

    it('refuses a library that was built of other sources', function()
        local ffi = require 'ffi'
        ffi.cdef 'int32_t wn_cuda_open(const void *host, void *device, char *text, int64_t room);'
        local host, text = ffi.new 'int64_t[16]', ffi.new 'char[400]' -- of a tree with the checksum 0
        local library = ffi.load(sim.path())
        assert.equal(0, library.wn_cuda_open(host, nil, text, 400))
        assert.equal('the library was built of other sources than libwane.so; build both anew (make, make cuda)',
            ffi.string(text))
    end)

    it('refuses code that has no tensor cores on a GPU that has them', function()
        local folder = helper.lines('mktemp -d')[1]
        local text, code = helper.shell(([[g++ -std=c++17 %s -UWN_CUDA_ARCHES -DWN_CUDA_ARCHES=75 -x c++ -c \
            -o %s/open.o runtime/device/cuda/open.cu && g++ -shared -o %s/libwane_cuda.so %s/open.o -lm \
            $(find build/cudasim -name '*.o' ! -name open.cu.o ! -name 'selftest*')]]):format(
            of_make '$(SIM_FLAGS) $(CUDA_TREE)', folder, folder, folder))
        assert.equal(0, code, text)
        local library = 'WANE_CUDA_LIB=' .. folder
        local older = run(library .. ' WANE_SIM_ARCH=75', 'build/wane version')
        local newer = run(library .. ' WANE_SIM_ARCH=90', 'build/wane version')
        helper.lines('rm -r ' .. folder)
        assert.truthy(older:find('simulated, for specs', 1, true), older)
        assert.truthy(newer:find('the library was not built for the one that was found, sm_90', 1, true), newer)
    end)

    it('takes a GPU that newer code of its generation, or older PTX, runs on', function()
        for _, arch in ipairs { 80, 86, 89, 90, 100, 120 } do
            local text = run('WANE_SIM_ARCH=' .. arch, 'build/wane version')
            assert.truthy(text:find('simulated, for specs', 1, true), text)
        end
    end)
end)
