-- Guards against a runtime that knows its devices by name. Builds the library with one more device, which has kernels
-- of its own: spec/fixtures/device holds a folder for kernels/ and a file for runtime/device/, and two rows are put
-- into runtime/device/device.def. Nothing else is touched. runtime/README.md says how to add a device.
local helper = require 'spec.helper'

local FIXTURE, ROWS = 'spec/fixtures/device', 'runtime/device/device.def'
local folder

-- Copies what the library is made of, puts the device in, and builds it by its own Makefile. Returns what make printed.
local function build()
    local name = os.tmpname()
    os.remove(name)
    folder = name .. '-wane'
    local text, code = helper.shell(([[
        set -e
        mkdir -p '%s/build'
        cp -a Makefile runtime kernels lua '%s/'
        cp -a build/release '%s/build/'
        cp -R %s/. '%s/'
        sed -i -e 's/^DEVICE(meta)$/&\nDEVICE(tiny)/' -e 's/^TARGET(cuda)$/&\nTARGET(tiny)/' '%s/%s'
        make -C '%s' --no-print-directory MODE=release library]]):format(folder, folder, folder, FIXTURE, folder,
            folder, ROWS, folder))
    assert(code == 0, text)
    return text
end

-- Facts that spec/support/second_device.lua prints: name -> list of words.
local function facts()
    local text, code = helper.shell(("WANE_LIB='%s/build/libwane.so' luajit spec/support/second_device.lua")
        :format(folder))
    assert.equal(0, code, text)
    local out = {}
    for line in text:gmatch '[^\n]+' do
        local words = {}
        for word in line:gmatch '[^\t]+' do words[#words + 1] = word end
        out[table.remove(words, 1)] = words
    end
    return out
end

describe('a second device', function()
    local log, fact

    setup(function()
        log = build()
        fact = facts()
    end)

    teardown(function() helper.shell("rm -rf '" .. folder .. "'") end)

    it('is a folder of kernels, a file and two rows', function()
        local changed = helper.lines(("diff -rq runtime '%s/runtime'; diff -rq kernels '%s/kernels'")
            :format(folder, folder))
        for i, line in ipairs(changed) do changed[i] = line:gsub(folder:gsub('%p', '%%%0'), 'COPY') end
        assert.same({ 'Files ' .. ROWS .. ' and COPY/' .. ROWS .. ' differ', 'Only in COPY/runtime/device: tiny.c',
            'Only in COPY/kernels: tiny' }, changed)
    end)

    it('makes nothing compile again but the files of runtime/device/', function()
        local compiled = {}
        for path in log:gmatch 'CC%s+(%S+)' do compiled[#compiled + 1] = path end
        assert.is_true(#compiled >= 2)
        for _, path in ipairs(compiled) do
            assert.is_truthy(path:match '^runtime/device/' or path:match '^kernels/tiny/', path)
        end
    end)

    it('links as the others do: its kernels with base alone, and it is seen by one symbol', function()
        local objects = ("'%s/build/release/'"):format(folder)
        local in_base, seen = {}, {}
        for _, line in ipairs(helper.lines('nm -P ' .. objects .. 'runtime/base/*.o')) do
            local symbol, kind = line:match '^(%S+) (%a)'
            if kind and kind ~= 'U' then in_base[symbol] = true end
        end
        for _, line in ipairs(helper.lines('nm -P ' .. objects .. 'kernels/tiny/kernels.o')) do
            local symbol, kind = line:match '^(%S+) (%a)'
            if kind == 'U' and symbol:match '^wn_' then assert.is_true(in_base[symbol], symbol) end
            if kind ~= 'U' and kind == kind:upper() then seen[#seen + 1] = symbol end
        end
        assert.same({ 'wn__backend_tiny' }, seen)
    end)

    it('is listed beside the others', function()
        assert.same({ 'cpu', 'meta', 'tiny' }, fact.devices)
    end)

    it('trains to the bits of the CPU, and takes the bytes that were predicted', function()
        for _, policy in ipairs { 'save_all', 'every(1)' } do
            local here, there = fact['cpu ' .. policy], fact['tiny ' .. policy]
            assert.same({ 'true', 'true' }, { here[1], there[1] }, policy)
            assert.equal(here[3], there[3], policy)
        end
    end)

    it('has a workspace rule of its own', function()
        assert.equal('0', fact['cpu save_all'][2])
        assert.is_true(tonumber(fact['tiny save_all'][2]) >= 256)
    end)

    it('refuses in words what it has no kernel for, and moves that it has no way to make', function()
        assert.equal('false', fact['no kernel'][1])
        assert.matches('tanh of %(4%) f32 is not in this version on tiny', fact['no kernel'][2])
        assert.equal('false', fact.offload[1])
        assert.matches('offload: tiny has no way to move values out of its memory', fact.offload[2])
    end)
end)
