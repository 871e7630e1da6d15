-- Checks the run of all specs (spec/support/suite.sh): files run in processes of their own, one closing line counts all
-- of them, and no file can end without being counted.
local helper = require 'spec.helper'

local folder = helper.lines 'mktemp -d'[1]

-- Writes a spec file; its name ends in _spec.lua, wherever it lies.
local function write(name, text)
    return require('spec.support.files').write(('%s/%s_spec.lua'):format(folder, name), text)
end

-- Runs the files; everything printed, the last line, the exit status.
local function suite(...)
    local out, code = helper.shell(('WANE_SPEC_FOLDER=%s/out JOBS=2 sh spec/support/suite.sh plain %s'):format(folder,
        table.concat({ ... }, ' ')))
    return out, out:match '([^\n]*)\n*$', code
end

describe('the specs', function()
    teardown(function() helper.lines('rm -rf ' .. folder) end)
    local good = write('good', "describe('good', function() it('one', function() end) it('two', function() end) end)")

    it('are counted over all files, the slowest first', function()
        local sleep = "it('sleeps', function() os.execute 'sleep 0.2' end)"
        local slow = write('slow', ("describe('slow', function() %s end)"):format(sleep))
        local out, closing, code = suite(good, slow)
        assert.same({ '3 passed, 0 failed', 0 }, { closing, code })
        assert.matches('slowest 3 of 3 specs\n   0.2%d s  slow  slow sleeps\n', out)
        assert.is_true(out:find('2 +%d%.%d s +' .. good:gsub('%p', '%%%0')) ~= nil, out)
    end)

    it('start with the file that took longest the last time', function()
        local command = 'WANE_SPEC_FOLDER=%s/out luajit spec/support/tally.lua order plain %s %s/slow_spec.lua'
        local out = helper.shell(command:format(folder, good, folder))
        assert.matches('^[^\n]*slow_spec.lua\n[^\n]*good_spec.lua', out)
        local list = '{ echo spec/api_spec.lua; echo spec/op_spec.lua; }' -- where nothing was run yet, by tiers.sh
        local first = helper.lines(("sh -c '. spec/support/tiers.sh; %s | slowest_first'"):format(list))[1]
        assert.equal('spec/op_spec.lua', first)
    end)

    -- The faults of a spec file, each with what the report must contain.
    local bad = {
        { 'fails', "it('is wrong', function() assert.equal(1, 2) end)", 'failed [^\n]*  is wrong\n' },
        { 'raises', "error 'when loaded'", 'when loaded' },
        { 'leaves', "it('ends the process', function() os.exit(0) end)", 'did not come to its end: no count' },
        { 'dies', "it('is killed', function() os.execute 'kill -9 $PPID' end)", 'did not come to its end: no count' },
        { 'is_none', "it('is no Lua', ", "near '<eof>'" },
        { 'status', "it('is fine', function() end) local code = newproxy(true) getmetatable(code).__gc = function() "
            .. "require('ffi').cdef 'void _exit(int);' require('ffi').C._exit(3) end _G.code = code",
            'counted no failure, but ended badly, exit code 3' },
    }
    for _, way in ipairs(bad) do
        it(('fail when a file %s'):format(way[1]:gsub('_', ' ')), function()
            local out, closing, code = suite(good, write(way[1], way[2]))
            assert.matches('^%d passed, 1 failed$', closing)
            assert.equal(1, code)
            assert.matches('\nslowest .*' .. way[3], out)
        end)
    end

    it('fail when nothing ran', function()
        local _, closing, code = suite(write('empty', ''))
        assert.same({ '0 passed, 0 failed', 1 }, { closing, code })
    end)
end)

-- Returns what a function of tiers.sh prints, as lines.
local function tiers(command, environment)
    return helper.lines(("%s sh -c '. spec/support/tiers.sh; %s'"):format(environment or '', command))
end

describe('the tiers', function()
    local function exists(path) return io.open(helper.root .. '/' .. path) ~= nil end

    it('of make test are files that exist, of each kind, and none of CUDA', function()
        local files = tiers 'files_of $test_files'
        assert.is_true(#files > 20)
        for _, file in ipairs(files) do
            assert.is_true(exists(file), file)
            assert.is_nil(file:find 'cuda', file)
        end
    end)

    it('leave out of no way a name that is no spec', function()
        for _, name in ipairs(tiers 'printf "%s\n" $apart $apart_nojit $apart_stress $apart_asan') do
            local some = helper.lines(("ls spec | grep -E '^%s_spec.lua$'"):format(name))
            assert.is_true(#some > 0, name)
        end
    end)

    it('have every file of a way in one third of it', function()
        for _, way in ipairs { 'plain', 'asan', 'nojit' } do
            local all, seen, n = tiers(('files_of_way %s ""'):format(way)), {}, 0
            for third = 5, 7 do
                for _, file in ipairs(tiers(('files_of_way %s %d'):format(way, third))) do
                    assert.is_nil(seen[file], file)
                    seen[file], n = true, n + 1
                end
            end
            assert.equal(#all, n)
        end
        assert.is_nil(table.concat(tiers 'files_of_way asan', ' '):find('spec/zoo_spec', 1, true)) -- they leave it out
    end)

    it('come by turns that the commit tells, and that WANE_TURN asks for', function()
        assert.same(tiers 'say_turn', tiers 'say_turn')
        local ways = {}
        for turn = 0, 14 do
            local said = tiers('say_turn', 'WANE_TURN=' .. turn)
            assert.matches(('WANE_TURN=%d make check'):format(turn), said[1])
            ways[said[2]] = true
        end
        local n = 0
        for _ in pairs(ways) do n = n + 1 end
        assert.equal(15, n) -- each of five ways with each third
    end)

    it('run every file under sanitizers within five turns, and in its long form within fifteen', function()
        local seen, long, is_long = {}, {}, {}
        for turn = 0, 14 do
            local environment = 'WANE_TURN=' .. turn
            for _, file in ipairs(turn < 5 and tiers('asan_files', environment) or {}) do seen[file] = true end
            local runs = {}
            for _, file in ipairs(tiers('plain_files', environment)) do runs[file] = true end
            for _, file in ipairs(tiers('long_files', environment)) do
                is_long[file], long[file] = true, long[file] or runs[file]
            end
        end
        for _, file in ipairs(tiers 'files_of_way asan | grep -v ^spec/cuda') do assert.is_true(seen[file], file) end
        for _, file in ipairs(helper.lines 'grep -l is_long spec/*_spec.lua') do assert.is_true(is_long[file], file) end
        for file in pairs(is_long) do assert.is_true(long[file], file) end
    end)

    it('run every file in the plain way within three turns, and most in each', function()
        local all, seen, n = tiers 'files_of_way plain', {}, 0
        for turn = 0, 2 do
            local files = tiers('plain_files', 'WANE_TURN=' .. turn)
            assert.is_true(#files > 0.88 * #all)
            for _, file in ipairs(files) do
                n = n + (seen[file] and 0 or 1)
                seen[file] = true
            end
        end
        assert.equal(#all, n)
        for _, name in ipairs(tiers 'printf "%s\n" $rarely') do
            assert.is_true(exists('spec/' .. name .. '_spec.lua'), name)
        end
    end)

    it('find the specs of changed C files, and cope with a tree without history', function()
        local function touched(paths)
            return table.concat(helper.lines(("printf '%s' | ${LUAJIT:-luajit} spec/support/touched.lua"):format(
                paths)), ' ')
        end
        assert.matches('spec/device_spec.lua', touched 'runtime/device/registry.c\n')
        assert.is_true(#touched 'runtime/device/none.c\n' > 0) -- of its folder
        assert.matches('spec/cuda_attention_spec.lua.*spec/cuda_op_spec.lua', touched 'kernels/cuda/channel.cu\n')
        assert.equal('spec/op_spec.lua', touched 'README.md\nspec/op_spec.lua\nspec/gone_spec.lua\n')
        local clone = helper.lines 'mktemp -d'[1]
        finally(function() helper.lines('rm -rf ' .. clone) end)
        helper.lines(('cp -r spec %s/spec'):format(clone))
        local out, code = helper.shell(('cd %s && env -u WANE_TURN GIT_DIR=none sh -c '
            .. '". spec/support/tiers.sh; say_turn; asan_files"')
            :format(clone))
        assert.equal(0, code, out)
        assert.matches('^== turn 0 of', out)
        local fifth = tiers 'files_of_way asan | grep -v ^spec/cuda | part_of 5 0 | sort'
        assert.equal(table.concat(fifth, '\n'), out:match '\n(spec/.-)\n*$')
    end)

    it('build for one file what it needs', function()
        local function plan(arguments) return (helper.shell('make -n ' .. arguments)) end
        assert.is_nil(plan('test SPEC=spec/op_spec.lua'):find 'cudasim')
        assert.matches('cudasim', plan 'test SPEC=spec/cuda_op_spec.lua')
        assert.matches('deps.sh doc', plan 'doc')
        assert.is_nil(plan('doc'):find 'deps.sh check')
    end)
end)

describe('what the build says it found', function()
    it('takes a compiler of two words, as in make CC="ccache gcc"', function()
        local out, code = helper.shell "sh spec/support/found.sh 'env cc' \"${LUAJIT:-luajit}\""
        assert.equal(0, code, out)
        assert.matches('^wane: env cc %d', out)
    end)

    it('is an error where there is no compiler', function()
        local out, code = helper.shell "sh spec/support/found.sh 'no-such-cc' luajit"
        assert.equal(1, code)
        assert.matches('no compiler %(no%-such%-cc%)', out)
    end)
end)
