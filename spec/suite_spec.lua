-- Checks the run of all specs (spec/support/suite.sh): files run in processes of their own, one closing line counts all
-- of them, and no file can end without being counted.
local helper = require 'spec.helper'

local folder = helper.lines 'mktemp -d'[1]

-- Writes a spec file; its name ends in _spec.lua, wherever it lies.
local function write(name, text)
    local path = ('%s/%s_spec.lua'):format(folder, name)
    local file = assert(io.open(path, 'wb'))
    file:write(text)
    file:close()
    return path
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
            assert.matches(way[3], out)
        end)
    end

    it('fail when nothing ran', function()
        local _, closing, code = suite(write('empty', ''))
        assert.same({ '0 passed, 0 failed', 1 }, { closing, code })
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
