-- Checks the checks of a real GPU (spec/gpu): the bundle that goes to a machine with one is made, and all that is in it
-- passes on the simulated device, from its own folder with its own LuaJIT and runner; and each way to fail is told of.
local helper = require 'spec.helper'
local json = require 'wane.report.json'
local sim = require 'spec.support.cudasim'

local NAMES = { 'versions', 'probes', 'probes of cuBLASLt', 'records', 'exact', 'policies', 'faults', 'offload',
    'memcheck', 'racecheck', 'bandwidth', 'products', 'own products', 'convolutions',
    'convolutions by cuDNN', 'attention', 'heavy', 'gpt', 'profile', 'recurrent' }

describe('the bundle for a machine with a GPU', function()
    -- The checks start processes of their own, so other ways of running the specs would only repeat them.
    if sim.missing() or os.getenv 'LD_PRELOAD' or not os.getenv 'WANE_CUDA_LIB' then
        pending(sim.missing() or 'is checked in the plain way alone')
        return
    end

    local folder, out
    setup(function()
        folder = helper.lines('mktemp -d')[1]
        out = folder .. '/wane-gpu'
        local text, code = helper.shell(('sh spec/gpu/bundle.sh build/cudasim %s'):format(folder))
        assert(code == 0, text)
    end)
    teardown(function() helper.lines('rm -r ' .. folder) end)

    -- Runs check.sh of the bundle from another folder; returns what it prints and its exit code.
    local function check(options, before)
        return helper.shell(('cd / && env -u LUAJIT -u WANE_CUDA_LIB %s sh %s/check.sh %s'):format(before or '', out,
            options))
    end

    it('is one file that holds its own LuaJIT and says which glibc it needs', function()
        local listed = table.concat(helper.lines(('tar -tf %s/wane-gpu.tar'):format(folder)), '\n')
        for _, name in ipairs { 'check.sh', 'luajit/luajit', 'build/libwane.so', 'build/libwane_cuda.so',
            'lua/wane/init.lua', 'share/lua/luassert/init.lua', 'spec/gpu/run.lua', 'examples/zoo/gpt2.lua' } do
            assert.truthy(listed:find('wane-gpu/' .. name, 1, true), name)
        end
    end)

    it('passes every check on the simulated device, where numbers are not judged', function()
        -- The specs in the bundle run beside it too; one of them tells that the bundle can run them.
        local text, code = check(helper.is_long and '--small'
            or ("--small --only '%s,spec exact'"):format(table.concat(NAMES, ',')))
        assert.equal(0, code, text)
        assert.truthy(text:find('\n%d+ passed, 0 failed, 0 aims reached, 0 missed, %d+ not judged\n'), text)
        local file = assert(io.open(out .. '/report/report.json'))
        local report = json.decode(file:read '*a')
        file:close()
        assert.is_true(report.simulated and report.small)
        local seen = {}
        for i, entry in ipairs(report.checks) do
            seen[entry.name] = true
            assert.equal(NAMES[i] or entry.name, entry.name)
            assert.is_true(#entry.rows > 0, entry.name)
            for _, row in ipairs(entry.rows) do
                assert.is_true(row.verdict == 'pass' or row.verdict == '' or row.verdict == 'simulated: not judged')
                if row.verdict == 'simulated: not judged' then assert.is_true(row.value >= 0, row.what) end
            end
        end
        for _, name in ipairs(NAMES) do assert.is_true(seen[name], name) end
        assert.is_true(seen['spec exact'])
    end)

    it('fails where a check runs into its cap, and goes on', function()
        local text, code = check '--small --only gpt,faults --caps 0.0005'
        assert.equal(1, code)
        assert.truthy(text:find('gpt: it ran into its cap of 0.15 s', 1, true)
            or text:find('gpt: ended with 124', 1, true), text)
        assert.truthy(text:find('faults', 1, true), text)
    end)

    it('fails where a spec fails, and has its luassert found by processes that a spec starts', function()
        local file = assert(io.open(out .. '/spec/slopes_spec.lua', 'wb'))
        local test = ([[
            describe('a', function()
                before_each(function() end)
                it('b', function() assert.equal(1, 2) end)
                it('c', function() pending 'later' end)
                it('starts a process', function()
                    local child = io.popen "luajit -e \"print(package.searchpath('luassert', package.path))\""
                    assert.equal(FOLDER .. '/share/lua/luassert/init.lua', child:read '*l')
                    child:close()
                end)
            end)]]):gsub('FOLDER', function() return ('%q'):format(out) end)
        file:write(test)
        file:close()
        local text, code = check "--small --only 'spec slopes'"
        assert.equal(1, code)
        assert.truthy(text:find('1 passed, 1 failed, 1 pending', 1, true), text)
    end)

    it('refuses names that no check has', function()
        local text, code = check "--small --only 'faults,spec nonsense'"
        assert.equal(1, code)
        assert.truthy(text:find("there is no check 'spec nonsense'; known: versions, probes,", 1, true), text)
        assert.truthy(check '--only':find('--only takes names of checks', 1, true))
    end)

    it('says in one line why there is nothing to check', function()
        local text, code = check('--small', 'WANE_CUDA_LIB=off')
        assert.equal(1, code)
        assert.equal('check.sh: no GPU to check: off (WANE_CUDA_LIB=off)\n', text)
        local made, failed = helper.shell('sh spec/gpu/make_check.sh')
        local has_gpu = helper.shell('ls /dev/nvidia0 /dev/dxg 2>/dev/null') ~= ''
        if not has_gpu then
            assert.equal(1, failed)
            assert.truthy(made:find('^gpu%-check: no GPU here [^\n]*\n$'), made)
        end
    end)
end)
