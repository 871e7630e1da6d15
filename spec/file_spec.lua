-- Checks writing and reading of files. Whatever fails during a write must leave the old file whole and nothing beside
-- it, by every writer. Whatever is wrong with a file that is read must be named with its byte, and must change nothing.
-- See also spec/save_spec.lua.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local programs = require 'spec.support.programs'
local read, write = files.read, files.write

local nn = wane.nn
local C = binding.C

local LUAJIT = "LUA_PATH='lua/?.lua;lua/?/init.lua;;' timeout 20 ${LUAJIT:-luajit} "
local FOLDER = helper.lines('mktemp -d')[1]
local PATH = FOLDER .. '/ck.safetensors'
teardown(function() helper.lines("rm -rf '" .. FOLDER .. "'") end)

local function listing()
    return table.concat(helper.lines("ls -A '" .. FOLDER .. "'"), ' ')
end

-- Runs a script, which is to say half of what it has to, in a process of its own.
local function script(text) assert.equal('half\n', (files.lua(text):match '^half\n')) end

local function model()
    return nn.Sequential { nn.Linear(3, 40), nn.Linear(40, 2) }
end

-- Returns the pieces of a saved model in its file of n bytes, for a model like it.
local function places(f, n, m)
    local list, parameters = {}, m:parameters()
    for k, at in ipairs { n - 808, n - 488, n - 328, n - 8 } do
        list[k] = { entry = { file = f, at = at, kind = 'F32', name = 'p' .. k }, cell = parameters[k], first = 0,
            count = parameters[k]:numel(), columns = 0 }
    end
    return list
end

local function bits(m)
    return table.concat(programs.bytes(m:parameters()), '|')
end

describe('a write that fails', function()
    after_each(function()
        C.wn_debug('fail_write', 0)
        C.wn_debug('unnamed_files', 1)
    end)

    -- Returns the writers of files by name, each a function of a path, and what the number of calls that may fail is.
    local function writers()
        local new, s = model(), wane.sweep { grid = { x = { 1 } }, isolate = false, title = 'one', build = function()
            return function() return wane.ones(3, { requires_grad = true }):sum() end
        end }
        s:run()
        return { model = function(p) wane.save(p, new) end, svg = function(p) s:plot(p) end,
            csv = function(p) s:csv(p) end, html = function(p) s:report(p) end,
            memory = function(p) wane.memory():plot(p) end,
            rows = function(p) require('wane.sweep.store').write(p, s:rows()) end,
            kernel = function(p) require('wane.notebook').install(p:match '^(.*)/share/') end }
    end

    for unnamed = 0, 1 do
        it('at any call of the system leaves the old file and nothing beside it, whoever writes'
            .. (unnamed == 0 and ', where files have names at once' or ''), function()
            C.wn_debug('unnamed_files', unnamed)
            local folder = FOLDER .. '/share/jupyter/kernels/wane'
            helper.lines(("mkdir -p '%s'"):format(folder))
            for name, make in pairs(writers()) do
                local path, failures, fired = folder .. '/kernel.json', 0
                repeat
                    write(path, 'old')
                    C.wn_debug('fail_write', failures + 1)
                    local ok, e = pcall(make, path)
                    fired = C.wn_debug_get('fail_write') == 0
                    C.wn_debug('fail_write', 0)
                    assert.equal(not fired, ok, name .. ': ' .. tostring(e))
                    assert.equal('kernel.json', table.concat(helper.lines(("ls -A '%s'"):format(folder)), ' '))
                    local words = tostring(e)
                    if fired then
                        failures = failures + 1
                        assert(words:find('No space left on device', 1, true) and words:find(path, 1, true), words)
                    end
                    assert.equal(not fired or words:find 'written, but' ~= nil, read(path) ~= 'old', name)
                until not fired
                -- Header, 4 tensors, sync, a name (at once or late), rename, sync of the folder.
                assert(name == 'model' and failures == 9 or name ~= 'model' and failures > 3, name .. failures)
            end
            helper.lines(("rm -r '%s/share'"):format(FOLDER))
        end)
    end

    it('because the file may not be so long says at which byte', function()
        local before = model()
        wane.save(PATH, before)
        local text = read(PATH)
        local out = files.lua(([[
            local wane = require 'wane'
            local ok, e = pcall(wane.save, '%s', wane.nn.Linear(300, 300))
            print(ok, e.code, e.message)]]):format(PATH), "ulimit -f 64; trap '' XFSZ; ")
        assert.is_truthy(out:find('false\tio\twriting \'.*: File too large at byte %d+'), out)
        assert.is_true(text == read(PATH))
        assert.equal('ck.safetensors', listing())
    end)

    it('because of the place says what the system says', function()
        local m = model()
        for path, word in pairs {
            [FOLDER .. '/none/x'] = 'No such file or directory', [FOLDER] = 'not a regular file',
            ['/dev/full'] = 'not a regular file', ['/sys/x'] = 'ermi', [FOLDER .. '/'] = 'regular file',
            [FOLDER .. '/' .. ('x'):rep(300)] = 'too long', ['/' .. ('x/'):rep(3000)] = 'too long',
        } do
            local e = helper.refused('io', function() wane.save(path, m) end)
            assert.is_truthy(e.message:find(word, 1, true), e.message)
        end
    end)

    it('in the script itself leaves the old file too', function()
        local File = require 'wane.io.file'
        wane.save(PATH, model())
        local before = read(PATH)
        local ok, e = pcall(File.write, PATH, 'spec', function(f)
            f:write 'half'
            error('mine', 0)
        end)
        assert.are.same({ false, 'mine' }, { ok, e })
        assert.is_true(before == read(PATH))
        assert.equal('ck.safetensors', listing())
    end)
end)

describe('a file that is replaced', function()
    it('is read into a model, and what read its old values and was not run is stale', function()
        local m = model()
        wane.save(PATH, m)
        local old = m(wane.eval(wane.randn(2, 3)))
        wane.load(PATH, m)
        helper.refused('stale', function() old:totable() end, 'has changed')
    end)

    it('keeps its mode, and a link to it stays a link', function()
        helper.lines(("cd '%s' && touch real && chmod 640 real && ln -s real link"):format(FOLDER))
        wane.save(FOLDER .. '/link', model())
        local out = helper.lines(("cd '%s' && stat -c '%%a %%F' real link && rm real link"):format(FOLDER))
        assert.are.same({ '640 regular file', '777 symbolic link' }, out)
    end)

    it('stays where it may only be read, though its folder may be written', function()
        -- The superuser may write every file, so the process becomes another user where it is one.
        local other = helper.lines('id -u')[1] == '0' and 'setpriv --reuid=65534 --regid=65534 --clear-groups ' or ''
        helper.lines(("cd '%s' && mkdir open && chmod 755 . && chmod 777 open && echo old >open/a && chmod 444 open/a")
            :format(FOLDER))
        write(FOLDER .. '/open/x.lua', ([[
            local wane = require 'wane'
            for _, fn in ipairs { function(p) wane.save(p, { a = wane.ones(3) }) end,
                function(p) wane.memory():plot(p) end } do print(pcall(fn, '%s/open/a')) end]]):format(FOLDER))
        local out = helper.lines(("%s env WANE_COSTS=off LUA_PATH='lua/?.lua;lua/?/init.lua;;' ${LUAJIT:-luajit} "
            .. "'%s/open/x.lua'"):format(other, FOLDER))
        assert.equal(2, #out, table.concat(out, '\n'))
        for _, line in ipairs(out) do assert.matches('^false.*Permission denied', line) end
        assert.equal('old\n', read(FOLDER .. '/open/a'))
        helper.lines(("rm -rf '%s/open'"):format(FOLDER))
    end)
end)

describe('a temporary file', function()
    after_each(function()
        C.wn_debug('unnamed_files', 1)
        helper.lines(("rm -rf '%s'/* '%s'/.w*"):format(FOLDER, FOLDER))
    end)

    -- Begins a file, with a name at once or without one, and does what its last words say.
    local WRITER = [[
        local binding = require 'wane.ffi'
        %s
        local ffi = require 'ffi'
        ffi.cdef 'int kill(int, int); int getpid(void); int usleep(unsigned);'
        local ok, e = pcall(require('wane.io.file').write, '%s', 'spec', function(f)
            f:write(('x'):rep(1000))
            %s
        end)
        print(ok, e)]]

    local NAMED = "binding.C.wn_debug('unnamed_files', 0)"
    local KILL = "print 'half' io.stdout:flush() ffi.C.kill(ffi.C.getpid(), 9)"

    it('of a process that was killed leaves the old file, and is removed by the next save, if there is one', function()
        for unnamed = 0, 1 do
            wane.save(PATH, { a = wane.ones(2) })
            local before = read(PATH)
            script(WRITER:format('', PATH, KILL))
            assert.equal('ck.safetensors', listing())
            script(WRITER:format(NAMED, PATH, KILL))
            assert.is_true(before == read(PATH))
            os.remove(PATH)
            assert.is_truthy(listing():find '^%.wane%-%d+%-%d+%.tmp$', listing())
            C.wn_debug('unnamed_files', unnamed)
            wane.save(PATH, { a = wane.ones(2) })
            assert.equal('ck.safetensors', listing())
            os.remove(PATH)
        end
    end)

    it('of a process that still writes stays, and becomes its file', function()
        local started = FOLDER .. '/started'
        local wait = ("io.open('%s', 'w'):close() for _ = 1, 500 do if io.open('%s/go') then break end "
            .. 'ffi.C.usleep(20000) end'):format(started, FOLDER)
        local path, out = os.tmpname(), os.tmpname()
        write(path, WRITER:format(NAMED, FOLDER .. '/other', wait))
        helper.shell(('%s %s > %s 2>&1 &'):format(LUAJIT, path, out))
        helper.shell(('n=0; while [ ! -e %s ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done'):format(started))
        for unnamed = 0, 1 do
            C.wn_debug('unnamed_files', unnamed)
            wane.save(PATH, { a = wane.ones(2) })
            assert.is_truthy(listing():find('%.wane%-%d+%-%d+%.tmp'), listing())
        end
        write(FOLDER .. '/go', '')
        helper.shell(('n=0; while ! grep -q . %s && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done'):format(out))
        assert.equal('true\tnil\n', io.open(out):read '*a')
        assert.equal('ck.safetensors go other started', listing())
        assert.equal(('x'):rep(1000), io.open(FOLDER .. '/other'):read '*a')
        os.remove(path)
        os.remove(out)
    end)

    it('is told from files of others', function()
        local mine = { '.wane-1-x.tmp', '.wane-1-1.tmp.bak', 'wane-1-1.tmp', '.wane-1-1.tmpx' }
        for _, name in ipairs(mine) do write(FOLDER .. '/' .. name, 'mine') end
        helper.lines(("mkdir '%s/.wane-7-7.tmp'"):format(FOLDER))
        write(FOLDER .. '/.wane-999999-3.tmp', 'left')
        wane.save(PATH, { a = wane.ones(2) })
        assert.is_nil(listing():find('.wane-999999-3.tmp', 1, true))
        for _, name in ipairs(mine) do assert.is_truthy(io.open(FOLDER .. '/' .. name), name) end
        assert.is_truthy(listing():find('.wane-7-7.tmp', 1, true))
    end)
end)

describe('an allocation that fails', function()
    after_each(function() C.wn_debug('fail_alloc', 0) end)

    -- Calls call() with its nth allocation made to fail, for n = 1, 2 and so on, until a call meets no failure. Calls
    -- check(n) after each call that met one; returns how many there were.
    local function sweep(call, check)
        local n = 0
        while true do
            n = n + 1
            C.wn_debug('fail_alloc', n)
            local ok, e = pcall(call)
            local fired = C.wn_debug_get('fail_alloc') == 0
            C.wn_debug('fail_alloc', 0)
            if ok and not fired then return n - 1 end
            if not ok then assert.equal('oom', e.code, tostring(e)) end
            check(n)
        end
    end

    it('while a model is saved leaves the old file and nothing beside it', function()
        wane.save(PATH, model())
        local before, new = read(PATH), model()
        local failures = sweep(function()
            wane.save(PATH, new)
            write(PATH, before)
        end, function() assert.is_true(before == read(PATH)) end)
        assert.is_true(failures >= 2, failures)
        assert.equal('ck.safetensors', listing())
    end)

    -- Computes the values of a model by saving it; returns their bits.
    local function computed(m)
        wane.save(FOLDER .. '/x', m)
        os.remove(FOLDER .. '/x')
        return bits(m)
    end

    it('while a file is loaded into a model leaves all of its old values, or gives all new ones', function()
        local given, old = model(), model()
        wane.save(PATH, given)
        local before = computed(old)
        local failures = sweep(function() wane.load(PATH, old) end, function()
            local now = bits(old)
            assert.is_true(now == before or now == bits(given))
        end)
        assert.is_true(failures >= 1, failures)
        assert.equal(bits(given), bits(old))
    end)

    it('while a model gets its first storage gives it back, and the model begins as ever', function()
        local File = require 'wane.io.file'
        local given = model()
        wane.save(PATH, given)
        wane.manual_seed(9)
        local want, failures = computed(model()), 0
        for n = 1, 100 do
            wane.manual_seed(9)
            local fresh = model()
            for _ = 1, 4 do collectgarbage() end
            local before = wane.memory()
            C.wn_debug('fail_alloc', n)
            local ok, e = pcall(File.read, PATH, 'spec', function(f)
                File.load(places(f, f.size, fresh))
            end)
            local fired = C.wn_debug_get('fail_alloc') == 0
            C.wn_debug('fail_alloc', 0)
            assert.equal(not fired, ok)
            if ok then break end
            failures = failures + 1
            assert.equal('oom', e.code)
            local after = wane.memory()
            assert.equal(before.kinds.parameter, after.kinds.parameter)
            assert.equal(before.reserved, after.reserved)
            assert.is_true(want == computed(fresh))
        end
        assert.equal(9, failures) -- the file, and two for each of four parameters
    end)
end)

-- ---- files that are wrong -------------------------------------------------------------------------------------------

local function length_bytes(n) return files.little(n, 8) end

local function file_of(header, data)
    return length_bytes(#header) .. header .. data
end

local function tensor_text(name, dtype, shape, first, last)
    return ('"%s":{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}'):format(name, dtype, shape, first, last)
end

describe('a broken file', function()
    local good = '{' .. tensor_text('a', 'F32', '[2]', 0, 8) .. ',' .. tensor_text('b', 'U8', '[3]', 8, 11) .. '}'
    local data = ('\0'):rep(11)

    local function refused(text, ...)
        write(PATH, text)
        local e = helper.refused('io', function() local dict = wane.load(PATH) return dict end, PATH, ...)
        assert.is_true(errors.is(e), tostring(e))
    end

    it('is told from a good one', function()
        write(PATH, file_of(good, data))
        assert.are.same({ 0, 0, 0 }, wane.load(PATH).b:totable())
        write(PATH, file_of('{}', ''))
        assert.is_nil(next((wane.load(PATH))))
        write(PATH, file_of(' { "__metadata__" : { } }  ', ''))
        assert.is_nil(next((wane.load(PATH))))
    end)

    it('is named by its length, at the byte', function()
        refused('', 'it has 0 bytes')
        refused('abc', 'it has 3 bytes')
        refused(length_bytes(100) .. '{}', 'at byte 0', '100 bytes', 'has 2 after')
        refused(length_bytes(2 ^ 40) .. good .. data, 'at byte 0', '1099511627776', 'is it a safetensors file?')
        refused(('\255'):rep(8) .. good, 'at byte 0')
        refused(file_of(good, data:sub(1, 10)), 'cut short', ("ends at byte %d"):format(8 + #good + 10), "'b'",
            ('from byte %d to %d'):format(8 + #good + 8, 8 + #good + 11))
        refused(file_of(good, data .. 'x'), ('1 bytes from byte %d'):format(8 + #good + 11), 'no tensor')
    end)

    it('is named by its header, at the byte', function()
        refused(file_of('', ''), 'at byte 8', 'the end')
        refused(file_of('[1]', ''), 'at byte 8', 'no JSON object')
        refused(file_of('{} x', ''), 'at byte 11', "'x'")
        refused(file_of('{"a" 1}', ''), 'at byte 13', "':' expected")
        refused(file_of('{"a":1,"a":2}', ''), 'at byte 15', "'a'", 'twice')
        refused(file_of('{"a\255":1}', ''), 'at byte 11', 'UTF-8')
        refused(file_of('{"a":"b', ''), 'at byte 13', 'does not end')
        refused(file_of('{"a":"\\x"}', ''), 'at byte 14', '\\x')
        refused(file_of('{"a":"\\ud800"}', ''), 'at byte 14', 'surrogates')
        refused(file_of('{"a":[01]}', ''), 'at byte 14')
        refused(file_of('{"a":nul}', ''), 'at byte 13')
        refused(file_of('{"a":99999999999999999999}', ''), 'at byte 13', 'too large')
        refused(file_of('{"a":' .. ('['):rep(100) .. '}', ''), 'nested deeper')
        refused(file_of('{"a":3}', ''), 'at byte 9', "'a'", 'object')
        refused(file_of('{"__metadata__":{"x":3}}', ''), 'at byte 9', '__metadata__', "'x'")
    end)

    it('is named by its tensor', function()
        local function one(dtype, shape, first, last, ...)
            refused(file_of('{' .. tensor_text('some', dtype, shape, first, last) .. '}', data),
                "at byte 9, tensor 'some'", ...)
        end
        one('F32', '[2]', 3, 2, 'say -1')
        one('F32', '[2.5]', 0, 8, 'shape')
        one('F32', '[-1]', 0, 8, 'shape')
        one('F32', '"x"', 0, 8, 'shape')
        one('F32', '{"x":1}', 0, 8, 'shape')
        one('F32', '[2]', 0, 9, 'F32', '(2)', '8 bytes', '0 to 9 say 9')
        one('F32', '[2]', 8, 0, 'say -8')
        one('F32', '[2]', '"0"', 8, 'data_offsets')
        one('F32', '[1000000000000,1000000000000]', 0, 8, 'say 8')
        local start = 8 + #good
        refused(file_of(good:gsub('8,11', '7,10'), data), ('begins at byte %d'):format(start - 0 + 7), "inside 'a'",
            ('byte %d'):format(start + 8))
        local hole = good:gsub('8,11', '9,12')
        refused(file_of(hole, data .. 'x'), ('the bytes %d to %d'):format(8 + #hole + 8, 8 + #hole + 9), "'b'")
    end)

    it('never gets through as something else, wherever it is cut or changed', function()
        local text = file_of(good, data)
        for n = 0, #text - 1 do refused(text:sub(1, n)) end
        local survived = 0
        for n = 1, #text - #data do
            for _, c in ipairs { '\0', '"', '9', '}', '\255' } do
                write(PATH, text:sub(1, n - 1) .. c .. text:sub(n + 1))
                local ok, e = pcall(function()
                    local dict = wane.load(PATH)
                    return dict.a, dict.b
                end)
                assert.is_true(ok or errors.is(e), tostring(e))
                if ok then survived = survived + 1 end
            end
        end
        assert.is_true(survived > 0 and survived < 40, survived) -- another name is a good file
    end)

    it('of a dtype that is not here is refused where it is asked for, and fits no model', function()
        local header = '{' .. tensor_text('weight', 'C64', '[2,2]', 0, 32) .. '}'
        write(PATH, file_of(header, ('\0'):rep(32)))
        local e = helper.refused('dtype', function() return wane.load(PATH).weight end)
        assert.is_truthy(e.message:find("'weight'", 1, true) and e.message:find('C64', 1, true))
        helper.refused(nil, function() wane.load(PATH, nn.Linear(2, 2, { bias = false })) end,
            "'weight' is (2, 2) f32 in the model, (2, 2) C64 in the file")
    end)

    it('that shrinks while it is read leaves states that say so, until they are loaded', function()
        local m = model()
        wane.save(PATH, m)
        local text = read(PATH)
        wane.manual_seed(3)
        local fresh = model()
        wane.manual_seed(3)
        local twin = bits((function() local t = model(); wane.save(FOLDER .. '/x', t); return t end)())
        os.remove(FOLDER .. '/x')
        for _, each in ipairs { m, fresh } do
            local File = require 'wane.io.file'
            local ok, e = pcall(File.read, PATH, 'spec', function(f)
                write(PATH, text:sub(1, -20))
                File.load(places(f, #text, each))
            end)
            write(PATH, text)
            assert.is_false(ok)
            assert.equal('io', e.code)
            assert.is_truthy(e.message:find('it ends at byte', 1, true), e.message)
        end
        local ok, e = pcall(bits, m)
        assert.is_false(ok)
        assert.is_truthy(e.message:find('load it again', 1, true), e.message)
        ok = pcall(function() return m(wane.ones(1, 3)):sum():item() end)
        assert.is_false(ok)
        wane.save(FOLDER .. '/x', fresh)
        os.remove(FOLDER .. '/x')
        assert.is_true(twin == bits(fresh)) -- it had nothing to lose
        wane.load(PATH, m)
        wane.load(PATH, fresh)
        assert.equal(bits(m), bits(fresh))
        assert.is_true(m(wane.ones(1, 3)):sum():item() ~= 0)
    end)

    it('that is not there is told', function()
        helper.refused('io', function() wane.load(FOLDER .. '/none') end, 'No such file')
        helper.refused('value', function() wane.load('a\0b') end)
    end)
end)
