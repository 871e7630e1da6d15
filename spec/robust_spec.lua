-- Checks what is around a process: files left by a process that was killed, names of pipes and devices where a file was
-- meant, links to nothing, environment variables that point nowhere, a second thread. Nothing may be waited for, and
-- nothing may pass in silence.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local native = require 'spec.support.native'
local ffi = require 'ffi'
local wane = require 'wane'
local binding = require 'wane.ffi'
local write = files.write

local C = binding.C
local LUAJIT = "LUA_PATH='lua/?.lua;lua/?/init.lua;;' timeout 20 ${LUAJIT:-luajit} "
local FOLDER = helper.lines('mktemp -d')[1]
local PATH = FOLDER .. '/ck.safetensors'
teardown(function() helper.lines("rm -rf '" .. FOLDER .. "'") end)

local function listing()
    return table.concat(helper.lines("ls -A '" .. FOLDER .. "'"), ' ')
end

-- Runs a script in a process of its own, for at most 20 s; returns what it prints.
local function script(text, before)
    local path = os.tmpname()
    write(path, text)
    local out, code = helper.shell((before or '') .. LUAJIT .. path)
    os.remove(path)
    return out, code
end

describe('a temporary file', function()
    after_each(function()
        C.wn_debug('unnamed_files', 1)
        helper.lines(("rm -rf '%s'/* '%s'/.w*"):format(FOLDER, FOLDER))
    end)

    -- Begins a file with a name, says so, and does what `ending` says.
    local WRITER = [[
        local binding = require 'wane.ffi'
        binding.C.wn_debug('unnamed_files', 0)
        local ffi = require 'ffi'
        ffi.cdef 'int kill(int, int); int getpid(void); int usleep(unsigned);'
        local ok, e = pcall(require('wane.io.file').write, '%s', 'spec', function(f)
            f:write(('x'):rep(1000))
            %s
        end)
        print(ok, e)]]

    it('of a process that was killed is removed by the next save', function()
        for unnamed = 0, 1 do
            script(WRITER:format(PATH, 'ffi.C.kill(ffi.C.getpid(), 9)'))
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
        write(path, WRITER:format(FOLDER .. '/other', wait))
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

describe('a link', function()
    it('to nothing is followed: the file it names is written', function()
        helper.lines(("cd '%s' && mkdir deep && ln -s deep/real one && ln -s one two && ln -s '%s/far' three")
            :format(FOLDER, FOLDER))
        for link, real in pairs { two = 'deep/real', three = 'far' } do
            wane.save(FOLDER .. '/' .. link, { a = wane.ones(2) })
            local out = helper.lines(("cd '%s' && stat -c %%F %s %s"):format(FOLDER, link, real))
            assert.are.same({ 'symbolic link', 'regular file' }, out)
            assert.are.same({ 1, 1 }, wane.load(FOLDER .. '/' .. real).a:totable())
        end
    end)

    it('that leads to itself, or into a folder that is not there, is told', function()
        helper.lines(("cd '%s' && ln -s y x && ln -s x y && ln -s none/z w"):format(FOLDER))
        for name, word in pairs { x = 'oo many levels', w = 'No such file' } do
            local e = helper.refused('io', function() wane.save(FOLDER .. '/' .. name, { a = wane.ones(2) }) end)
            assert.is_truthy(e.message:find(word, 1, true), e.message)
        end
    end)
end)

describe('a pipe, a socket, a device or a folder', function()
    local names = { FOLDER .. '/pipe', '/dev/zero', FOLDER }
    setup(function() helper.lines(("mkfifo '%s/pipe'"):format(FOLDER)) end)

    local HEAD = "local wane = require 'wane' local path = '%s' local function refused(fn, ...) "
        .. 'local ok, e = pcall(fn, ...) print(ok, type(e) == "table" and e.code, tostring(e)) end '

    it('is refused by every reader and writer, and waited for by none', function()
        for _, path in ipairs(names) do
            local calls = {
                'wane.load, path', 'wane.load, path, wane.nn.Linear(1, 1)', 'wane.data.npy, path',
                'wane.data.idx, path', 'wane.data.tokens, path', 'wane.save, path, { a = wane.ones(1) }',
                "require('wane.report.plot').write, path, 'x'",
                "require('wane.sweep.store').append, path, { point = {}, status = 'failed', error = 'x', code = 'x' }",
                'function() local s = wane.sweep { build = function() end, grid = { a = { 1 } }, out = path, '
                    .. 'isolate = false } s:run() end',
            }
            local text = HEAD:format(path)
            for _, call in ipairs(calls) do text = text .. ('refused(%s) '):format(call) end
            local out, code = script(text)
            assert.equal(0, code, out)
            local lines = 0
            for line in out:gmatch '[^\n]+' do
                lines = lines + 1
                assert.is_truthy(line:find '^false\tio\t', calls[lines] .. ': ' .. line)
                assert.is_truthy(line:find('not a regular file', 1, true), line)
            end
            assert.equal(#calls, lines, out)
        end
    end)

    it('as the file of costs is a notice, and the step runs', function()
        local run = "local wane = require 'wane' print(wane.ones(2, { requires_grad = true }):sum():item())"
        for _, path in ipairs(names) do
            local out = script(run, ("WANE_COSTS='%s' "):format(path))
            assert.is_truthy(out:find('wane: the file of costs ' .. path .. ' cannot be read', 1, true), out)
            assert.is_truthy(out:find('\n2\n?$'), out)
        end
        local garbage = FOLDER .. '/garbage'
        write(garbage, 'hello\nworld\n')
        assert.is_truthy(script(run, ("WANE_COSTS='%s' "):format(garbage)):find('cannot be read', 1, true))
        assert.equal('2\n', script(run, ("WANE_COSTS='%s/none' "):format(FOLDER)))
        local processor = require('wane.plan.costs.file').processor()
        write(garbage, '# Seconds measured\nprocessor\t' .. processor .. '\n1e-6\tadd\n')
        assert.equal('2\n', script(run, ("WANE_COSTS='%s' "):format(garbage)))
    end)

    it('as a script is refused', function()
        local out, code = helper.shell(("timeout 20 build/wane run '%s/pipe'"):format(FOLDER))
        assert.is_true(code ~= 0 and code ~= 124, code)
        assert.is_truthy(out:find('it is a pipe', 1, true), out)
    end)
end)

describe('WANE_LIB', function()
    it('without a library is an error that says what was looked for', function()
        for _, value in ipairs { FOLDER, FOLDER .. '/none.so', '/none' } do
            local out, code = script("require 'wane'", ("WANE_LIB='%s' "):format(value))
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
        local seed, counter = C.wn_seed_get(), C.wn_counter()
        local calls = {
            { C.wn_info, x.id, info }, { C.wn_open, request },
            { C.wn_record, C.wn_op_id 'neg', 1, binding.handles(1), attrs }, { C.wn_const, number, 0, 0 },
            { C.wn_data, type_, 0, number }, { C.wn_cell, 0, x.id, ffi.new('char[2]') }, { C.wn_retain, x.id },
            { C.wn_free, x.id }, { C.wn_release, x.id, quiet = true }, { C.wn_hyper }, { C.wn_cell_need_grad, x.id, 0 },
            { C.wn_cell_drop_grad, x.id }, { C.wn_seed, 7 }, { C.wn_device_set, 1 }, { C.wn_grad_set, 0 },
            { C.wn_scope_set, 0 }, { C.wn_region_new, 0, ffi.new('char[2]') }, { C.wn_memory_limit, 0, 100 },
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
        assert.equal(seed, C.wn_seed_get())
        assert.equal(counter, C.wn_counter())
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
    local file = assert(io.open(log, 'rb'))
    local out = file:read '*a'
    file:close()
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
        local group, read = out:match '^%d+ %([^)]*%) %a %d+ (%d+) .-\n%s*(%d+)\n$'
        assert.equal(pid, tonumber(group))
        assert.equal('0', read)
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
