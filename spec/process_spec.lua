-- Checks other processes that wane.h starts: what they inherit of this one, how they are waited for, and how they end.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'

local C = helper.wane and binding.C

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
        assert.equal('io', binding.text(C.wn_status_word(-code)))
        assert.matches('/no/such/program could not be started', binding.text(C.wn_message()))
        assert.equal('io', binding.text(C.wn_status_word(C.wn_exit_with_parent(2 ^ 30))))
        assert.is_true(C.wn_kill(0) ~= 0 and C.wn_kill(1) ~= 0)
        assert.is_true(C.wn_wait(C.wn_process(), 0, binding.new('struct wn_ended')) ~= 0)
    end)
end)
