-- Checks what is around a process: environment variables that point nowhere, a second thread, other processes that are
-- started, and the lock of a file that one process at a time writes. Nothing may be waited for, and nothing may pass in
-- silence.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local native = require 'spec.support.native'
local sweeps = require 'spec.support.sweeps'
local ffi = require 'ffi'
local wane = require 'wane'
local binding = require 'wane.ffi'
local store = require 'wane.sweep.store'
local read, write = files.read, files.write

local C = binding.C
local FOLDER = helper.lines('mktemp -d')[1]
teardown(function() helper.lines("rm -rf '" .. FOLDER .. "'") end)

describe('WANE_LIB', function()
    it('without a library is an error that says what was looked for', function()
        for _, value in ipairs { FOLDER, FOLDER .. '/none.so', '/none' } do
            local out, code = files.lua("require 'wane'", ("WANE_LIB='%s' "):format(value))
            assert.is_true(code ~= 0)
            local file = value:find '%.so$' and value or value .. '/libwane.so'
            assert.is_truthy(out:find(('WANE_LIB=%s: there is no %s'):format(value, file), 1, true), out)
        end
    end)
end)

describe('a second thread', function()
    local library
    if #helper.lines 'command -v gcc; true' == 0 then
        pending 'is made with gcc, which is not here'
        return
    end
    setup(function()
        ffi.cdef [[struct elsewhere { int32_t (*fn)(int64_t, int64_t, int64_t, int64_t); const char *(*message)(void);
            int64_t a[4]; int32_t code; char text[1024]; };
            int32_t elsewhere(struct elsewhere *c);]]
        library = native.load('elsewhere.so', 'gcc -std=c11 -D_GNU_SOURCE -O1 -Wall -fPIC -shared -pthread -o %s '
            .. 'spec/support/elsewhere.c')
    end)

    local function call(fn, ...)
        local c = ffi.new 'struct elsewhere'
        c.fn = ffi.cast('int32_t (*)(int64_t, int64_t, int64_t, int64_t)', ffi.cast('void *', fn))
        c.message = C.wn_message
        for k, v in ipairs { ... } do
            c.a[k - 1] = type(v) == 'cdata' and ffi.cast('intptr_t', ffi.cast('void *', v)) or v
        end
        assert.equal(0, library.elsewhere(c))
        return c.code, ffi.string(c.text)
    end

    it('is refused in words, and changes nothing', function()
        local x, limit = wane.ones(2, { requires_grad = true }), wane.memory().limit
        local info, attrs, type_ = ffi.new 'struct wn_info', ffi.new 'struct wn_attrs', ffi.new 'struct wn_type'
        local request, number = ffi.new 'struct wn_request', ffi.new('double[8]')
        local seed, counter = C.wn_here().seed, C.wn_here().counter
        local calls = {
            { C.wn_info, x.id, info }, { C.wn_open, request },
            { C.wn_record, C.wn_op_id 'neg', 1, binding.handles(1), attrs }, { C.wn_const, number, 0, 0 },
            { C.wn_data, type_, 0, number }, { C.wn_cell, 0, x.id, ffi.new('char[2]') }, { C.wn_retain, x.id },
            { C.wn_free, x.id }, { C.wn_release, x.id, quiet = true }, { C.wn_hyper }, { C.wn_cell_need_grad, x.id, 0 },
            { C.wn_cell_drop_grad, x.id }, { C.wn_seed, 7 }, { C.wn_device_set, 1 },
            { C.wn_region_new, 0, ffi.new('char[2]') }, { C.wn_memory_limit, 0, 0, 100 },
            { C.wn_memory_trim, 0 }, { C.wn_file_open, ffi.new('char[2]') }, { C.wn_line, ffi.new('char[2]') },
            { C.wn_start },
        }
        for k, c in ipairs(calls) do
            local code, text = call(unpack(c))
            if not c.quiet then
                assert.equal('value', binding.string(C.wn_status_name(math.abs(code))), k)
                assert.is_truthy(text:find('comes from another', 1, true), k .. ': ' .. text)
            end
        end
        assert.equal(seed, C.wn_here().seed)
        assert.equal(counter, C.wn_here().counter)
        assert.equal(limit, wane.memory().limit)
        assert.equal(2, (x * 1):sum():item())
        assert.is_true(x.requires_grad)
    end)
end)

-- ---- processes -----------------------------------------------------------------------------------------------------
-- Checks other processes that wane.h starts: what they inherit of this one, how they are waited for, and how they end.
local function list_of(words)
    local list = binding.new('const char *[?]', #words + 1)
    for i, word in ipairs(words) do list[i - 1] = word end
    list[#words] = nil
    return list
end

local log

local function start(path, words, set)
    return C.wn_spawn(path, list_of(words), list_of(set or {}), log)
end

local function wait(pid, seconds)
    local ended = binding.new('struct wn_ended')
    assert.equal(0, C.wn_wait(pid, seconds, ended))
    return { ended = ended.ended, code = ended.code, signal = ended.signal }
end

-- Runs a shell; returns what it wrote and how it ended.
local function shell(text, set)
    local pid = start('/bin/sh', { 'sh', '-c', text }, set)
    local how = wait(pid, 30)
    local out = assert(read(log))
    return out, how, pid
end

describe('a process that was started', function()
    before_each(function() log = os.tmpname() end)
    after_each(function() os.remove(log) end)

    it('writes both streams to the file, and ends with its code', function()
        local out, how = shell 'echo out; echo err >&2; exit 7'
        assert.equal('out\nerr\n', out)
        assert.same({ ended = 1, code = 7, signal = 0 }, how)
    end)

    it('has the environment, with entries in place of those of the same name', function()
        local out = shell('echo $PATH; echo $WANE_SPEC_A; echo ${HOME}x', { 'WANE_SPEC_A=b c', 'HOME=/nowhere' })
        assert.equal(os.getenv 'PATH' .. '\nb c\n/nowherex\n', out)
        assert.equal('1\n', (shell('env | grep -c ^PATH=', { 'PATH=/usr/bin:/bin' }):match '[^\n]*\n$'))
    end)

    it('is in a group of its own and reads nothing', function()
        local out, _, pid = shell 'cat /proc/$$/stat; wc -c'
        local group, count = out:match '^%d+ %([^)]*%) %a %d+ (%d+) .-\n%s*(%d+)\n$'
        assert.equal(pid, tonumber(group))
        assert.equal('0', count)
    end)

    it('is waited for as long as was said, and ended with what it started', function()
        local pid = start('/bin/sh', { 'sh', '-c', 'sleep 30 & sleep 30' })
        local from = C.wn_now()
        assert.same({ ended = 0, code = 0, signal = 0 }, wait(pid, 0.2))
        local took = C.wn_now() - from
        assert.is_true(took >= 0.2 and took < 5)
        assert.equal(0, C.wn_kill(pid))
        assert.same({ ended = 1, code = 0, signal = 9 }, wait(pid, 30))
        assert.equal('KILL', binding.text(C.wn_signal_name(9)))
        -- Nothing of its group is left; one that ended just now may still wait to be collected.
        for _, line in ipairs(helper.lines 'sleep 0.2; cat /proc/[0-9]*/stat 2>/dev/null') do
            local state, group = line:match '%) (%a) %d+ (%d+) '
            assert.is_false(state ~= 'Z' and tonumber(group) == pid, line)
        end
    end)

    it('comes back at once when this process is interrupted', function()
        local pid = start('/bin/sleep', { 'sleep', '30' })
        C.wn_interrupt(1)
        local from = C.wn_now()
        local how = wait(pid, 20)
        C.wn_interrupt(0)
        assert.equal(0, how.ended)
        assert.is_true(C.wn_now() - from < 5)
        C.wn_kill(pid)
        wait(pid, 30)
    end)

    it('that is none is an error with the reason', function()
        local code = start('/no/such/program', { 'x' })
        assert.equal('io', binding.text(C.wn_status_name(-code)))
        assert.matches('/no/such/program could not be started', binding.text(C.wn_message()))
        assert.equal('io', binding.text(C.wn_status_name(C.wn_exit_with_parent(2 ^ 30))))
        assert.is_true(C.wn_kill(0) ~= 0 and C.wn_kill(1) ~= 0)
        assert.is_true(C.wn_wait(C.wn_process(), 0, binding.new('struct wn_ended')) ~= 0)
    end)
end)

-- ---- the lock of a sweep's file ------------------------------------------------------------------------------------
-- Checks that one process at a time writes the file of a sweep, whatever is started, killed or read beside it; and
-- points that failed: what the command line says of them, and how they run again.
local LONG = helper.is_long
local folder

-- Writes a script that sweeps `count` points; `body` runs first in each.
local function script(name, count, body)
    return write(('%s/%s.lua'):format(folder, name), ([[
local wane = require 'wane'
local depths = {}
for i = 1, %d do depths[i] = i end
local s = wane.sweep { repeats = 1, warmup = 0, grid = { depth = depths }, out = '%s/%s.jsonl',
    resume = arg[1] == 'resume', build = function(p)
        %s
        local x = wane.randn(4, 4 + p.depth):retain()
        local w = wane.randn(4, 4 + p.depth, { requires_grad = true })
        return function() return (x * w):sum() end
    end }
s:run()
]]):format(count, folder, name, body or ''))
end

local function assert_once(path, count) sweeps.assert_once(assert(store.read(path)), count) end

local function lock(path)
    local is_kept = binding.new('int32_t[1]', -1)
    local id = C.wn_lock(path, is_kept)
    return id, is_kept[0], id < 0 and binding.text(C.wn_message()) or nil
end

local function setup_folder() folder = files.folder() end

describe('the lock of a file', function()
    setup(setup_folder)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    it('is one of the file, by whatever name; it says who holds it and since when', function()
        local path = write(folder .. '/a', '')
        assert(os.execute(('ln -s a %s/b; mkdir %s/c; ln -s ../a %s/c/d'):format(folder, folder, folder)) == 0)
        local first, is_kept = lock(path)
        assert.is_true(first >= 0 and is_kept == 1)
        for _, name in ipairs { '/a', '/b', '/c/d', '/c/../a' } do
            local id, _, why = lock(folder .. name)
            assert.is_true(id < 0)
            assert.matches(('is in use: process %d %%(this one%%) on [^ ]+ has written it since %%d+%%-%%d+%%-%%d+ '
                .. '%%d+:%%d+:%%d+; wait for it, or end it'):format(C.wn_process()), why)
        end
        assert.equal(0, C.wn_free(first))
        assert.equal(0, C.wn_free(first)) -- harmless
        assert.is_nil(read(path .. '.lock'))
        local second = lock(folder .. '/c/d')
        assert.is_true(second >= 0)
        assert.equal(0, C.wn_free(second))
    end)

    it('is of a file that is not there yet, in any folder that is', function()
        for _, name in ipairs { folder .. '/new', '/dev/shm/wane-lock-spec-' .. C.wn_process() } do
            local id = lock(name)
            assert.is_true(id >= 0)
            assert.is_true(lock(name) < 0)
            C.wn_free(id)
        end
        local id, _, why = lock(folder .. '/nowhere/new')
        assert.is_true(id < 0)
        assert.matches('No such file', why)
        assert.is_true(lock(folder .. '/' .. ('x'):rep(5000)) < 0)
        assert.is_true(lock(folder .. '/' .. ('x'):rep(254)) < 0) -- the lock file's name would be too long
    end)

    it('means nothing when its file was left behind, whatever it holds', function()
        for _, text in ipairs { '', '999999999 1700000000 elsewhere\n', ('%d 1 here\n'):format(C.wn_process()) } do
            write(folder .. '/left.lock', text)
            local id = lock(folder .. '/left')
            assert.is_true(id >= 0, text)
            C.wn_free(id)
        end
    end)

    it('never takes, changes or removes a file that is none of a lock', function()
        local name = folder .. '/mine.lock'
        local function refused(what)
            local id, _, why = lock(folder .. '/mine')
            assert.is_true(id < 0, what)
            assert.matches("mine.lock' is no lock of Wane's, which is left as it is; move it away, or name", why, what)
        end
        for _, text in ipairs { '1', ('\0'):rep(4096), 'x y z\n', 'notes', '12 13 four five\n', '12 13 four\n\n',
            '12 13 four\nmore\n', '-3 1 here\n', ('9'):rep(200) .. '\n', '1 2 ' .. ('h'):rep(70) .. '\n' } do
            write(name, text)
            refused(text)
            assert.equal(text, read(name))
        end
        os.remove(name)
        for _, text in ipairs { 'chapter 1', '', '12 13 here\n' } do
            write(folder .. '/thesis', text)
            helper.shell(("ln -s '%s/thesis' '%s'"):format(folder, name))
            refused 'a link'
            assert.equal(text, read(folder .. '/thesis'))
            assert.equal('symbolic link\n', helper.shell(("stat -c %%F '%s'"):format(name)))
            os.remove(name)
        end
        for _, make in ipairs { "ln -s '%s/gone' '%s'", "mkdir '%s/x' '%s'", "true '%s'; mkfifo '%s'" } do
            helper.shell(make:format(folder, name))
            refused(make)
            helper.shell(("rm -r '%s'"):format(name))
        end
        assert.is_nil(read(folder .. '/gone'))
    end)

    it('is refused by name where its holder cannot be told', function()
        local id = lock(folder .. '/unnamed')
        write(folder .. '/unnamed.lock', '')
        local other, _, why = lock(folder .. '/unnamed')
        assert.is_true(other < 0)
        assert.matches('is in use: another process holds its lock', why)
        C.wn_free(id)
    end)

    it('is not there on a file system without locks, which is told', function()
        C.wn_debug('no_locks', 1)
        local id, is_kept = lock(folder .. '/without')
        local other = lock(folder .. '/without')
        C.wn_debug('no_locks', 0)
        assert.is_true(id >= 0 and other >= 0)
        assert.equal(0, is_kept)
        C.wn_free(id)
        C.wn_free(other)
        local path = script('nolocks', 1)
        write(path, "require('wane.ffi').C.wn_debug('no_locks', 1)\n" .. read(path))
        local text, code = helper.shell('build/wane run ' .. path)
        assert.equal(0, code, text)
        assert.matches('nolocks.jsonl has no locks: nothing keeps another process from writing the same rows', text)
        assert_once(folder .. '/nolocks.jsonl', 1)
    end)
end)

describe('a sweep that another process writes', function()
    setup(setup_folder)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    it('is refused with that process and its time, and goes on when it is done; readers see whole rows', function()
        local path, out = script('busy', 4, "os.execute 'sleep 0.15'"), folder .. '/busy.jsonl'
        os.execute(('build/wane run %s >%s.said 2>&1 & echo $! >%s.pid'):format(path, path, path))
        local pid
        for _ = 1, 500 do
            pid = (read(out .. '.lock') or ''):match '^(%d+) %d+ '
            if pid then break end
            os.execute 'sleep 0.01'
        end
        local text, code = helper.shell(('build/wane run %s resume'):format(path))
        assert.equal(1, code)
        assert.matches(('is in use: process %s on %%S+ has written it since %%d+%%-'):format(pid), text)
        local most = 0
        for _ = 1, 2000 do
            local rows = store.read(out) or {}
            assert.is_true(#rows >= most)
            most = #rows
            if most == 4 and not read(out .. '.lock') then break end
            os.execute 'sleep 0.005'
        end
        assert.equal('', read(path .. '.said'))
        assert_once(out, 4)
        assert.equal(0, select(2, helper.shell(('build/wane run %s resume'):format(path))))
        assert_once(out, 4)
    end)

    it('and was killed at any time: the next goes on at once, though its point\'s programs live on', function()
        for turn = 1, LONG and 20 or 3 do
            local name = 'killed' .. turn
            local path, out = script(name, 3, "os.execute 'sleep 0.05; sleep 3 >/dev/null 2>&1 &'"),
                ('%s/%s.jsonl'):format(folder, name)
            local text = helper.shell(([[
build/wane run %s >/dev/null 2>&1 & pid=$!; sleep 0.%02d; kill -9 $pid; wait $pid 2>/dev/null
build/wane run %s resume; echo "code $?"]]):format(path, (turn * 37) % 60, path))
            assert.matches('code 0\n$', text)
            assert_once(out, 3)
            assert.is_nil(read(out .. '.lock'))
        end
    end)

    it('started at the same instant: each point once, and whoever came second says so', function()
        for turn = 1, LONG and 40 or 4 do
            local name = 'race' .. turn
            local path, out = script(name, 2), ('%s/%s.jsonl'):format(folder, name)
            helper.shell(([[for k in 1 2 3; do build/wane run %s resume >%s.$k 2>&1 & done; wait]]):format(path, path))
            assert_once(out, 2)
            local won = 0
            for k = 1, 3 do
                local said = read(('%s.%d'):format(path, k))
                if said == '' then won = won + 1 else assert.matches('is in use: ', said) end
            end
            assert.is_true(won >= 1)
        end
    end)
end)

describe('points that failed', function()
    setup(setup_folder)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    local function described(name)
        return write(('%s/%s.lua'):format(folder, name), ([[
local wane = require 'wane'
return wane.main { grid = { depth = { 1, 2, 3, 4 } }, build = function(p)
    local log = io.open('%s/%s.log', 'a') log:write(p.depth, '\n') log:close()
    local wrong = io.open '%s/%s.wrong'
    if wrong and p.depth %% 2 == 0 then error 'an even depth' end
    local x = wane.randn(4, 4 + p.depth):retain()
    local w = wane.randn(4, 4 + p.depth, { requires_grad = true })
    return function() return (x * w):sum() end
end }
]]):format(folder, name, folder, name))
    end
    local function sweep(path, more)
        return helper.shell(('build/wane sweep %s --repeats 1 --warmup 0 %s'):format(path, more or ''))
    end

    it('make the exit code 1, with a report of them; --retry-failed runs those and no others', function()
        local path, out = described 'even', folder .. '/even.jsonl'
        write(folder .. '/even.wrong', '')
        local text, code = sweep(path, '--out ' .. out)
        assert.equal(1, code)
        assert.matches('4 points: 2 measured, 2 failed', text)
        assert.matches('failed: depth=2: [^\n]*an even depth', text)
        assert.matches('wane sweep: 2 of 4 points failed; %-%-retry%-failed runs them again', text)
        text, code = sweep(path, '--resume --out ' .. out) -- nothing left to run, and they did fail
        assert.equal(1, code, text)
        os.remove(folder .. '/even.wrong')
        os.remove(folder .. '/even.log')
        local before = read(out)
        text, code = sweep(path, '--retry-failed --out ' .. out)
        assert.equal(0, code, text)
        assert.equal('2\n4\n', read(folder .. '/even.log'))
        assert_once(out, 4)
        for line in before:gmatch '[^\n]+' do -- the rows of the others are what they were
            if not line:find('failed', 1, true) then assert.is_truthy(read(out):find(line, 1, true)) end
        end
        text, code = sweep(path, '--retry-failed --out ' .. out)
        assert.equal(0, code, text)
        assert.equal('2\n4\n', read(folder .. '/even.log'))
    end)

    it('and fail again stay rows; a kill in between loses none', function()
        local path, out = described 'still', folder .. '/still.jsonl'
        write(folder .. '/still.wrong', '')
        assert.equal(1, select(2, sweep(path, '--out ' .. out)))
        for turn = 1, LONG and 20 or 2 do
            helper.shell(([[
build/wane sweep %s --repeats 1 --warmup 0 --retry-failed --out %s >/dev/null 2>&1 & pid=$!
sleep 0.%02d; kill -9 $pid; wait $pid 2>/dev/null]]):format(path, out, (turn * 23) % 40))
            assert_once(out, 4)
        end
        local text, code = sweep(path, '--retry-failed --out ' .. out)
        assert.equal(1, code, text)
        assert_once(out, 4)
    end)

    it('need a file to run again', function()
        local path = described 'none'
        local text, code = sweep(path, '--retry-failed')
        assert.equal(2, code)
        assert.matches('%-%-retry%-failed: give the file', text)
        local function build() end
        for _, t in ipairs { { retry_failed = true }, { retry_failed = 'yes', out = 'x' } } do
            t.build, t.grid = build, { depth = { 1 } }
            helper.refused('value', function() wane.sweep(t) end, 'retry_failed')
        end
    end)
end)
