-- Headers that were made to cost: nested lists, long names, millions of entries, of escapes, of digits. A header of n
-- bytes costs at most 8 n bytes of memory and a second of processor time for 16 MiB, measured in a process of its own,
-- whether it is read or refused. What is just below the limit of what is read costs no more than 8 times 16 MiB.
local helper = require 'spec.helper'
local json = require 'wane.json'

local MiB = 2 ^ 20
local LONG = helper.is_long
local SIZE = (LONG and 16 or 4) * MiB
local PATH = os.tmpname()
local SCRIPT = os.tmpname()
teardown(function()
    os.remove(PATH)
    os.remove(SCRIPT)
end)

local function write(path, ...)
    local file = assert(io.open(path, 'wb'))
    file:write(...)
    file:close()
end

local function length_bytes(n, count)
    local bytes = {}
    for k = 1, count do
        bytes[k] = string.char(n % 256)
        n = math.floor(n / 256)
    end
    return table.concat(bytes)
end

local function filled(head, unit, tail, most)
    local parts, size, k = { head }, #head + #tail, 0
    while size < SIZE and k < (most or math.huge) do
        k = k + 1
        local text = type(unit) == 'function' and unit(k) or unit
        parts[#parts + 1], size = text, size + #text
    end
    return table.concat(parts) .. tail .. (' '):rep(SIZE - size)
end

local TENSOR = '"%x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
local LAST = TENSOR:format(0):gsub(',$', '}')
local META, NUMBERS = '{"__metadata__":{', '{"a":{"dtype":"F32","data_offsets":[0,0],"shape":['

local HEADERS = {
    lists = function() return filled('{"a":{"dtype":"F32","shape":[', '[],', '0],"data_offsets":[0,0]}}') end,
    deep = function() return ('['):rep(SIZE) end,
    objects = function() return filled('{', function(k) return ('"%x":{},'):format(k) end, '"z":{}}') end,
    ['a long name'] = function() return '{"' .. ('x'):rep(SIZE) .. '":{}}' end,
    ['a long dtype'] = function()
        return '{"a":{"shape":[],"data_offsets":[0,0],"dtype":"' .. ('x'):rep(SIZE) .. '"}}'
    end,
    escapes = function() return META .. '"a":"' .. ('\\n'):rep(SIZE / 2) .. '"}}' end,
    unicode = function() return META .. '"a":"' .. ('\\u00e9'):rep(SIZE / 6) .. '"}}' end,
    letters = function() return META .. '"a":"' .. ('é'):rep(SIZE / 2) .. '"}}' end,
    keys = function() return filled(META, function(k) return ('"%x":"",'):format(k) end, '"zz":""}}') end,
    ['one key'] = function() return filled(META, '"a":"",', '"a":""}}') end,
    tensors = function() return filled('{', function(k) return TENSOR:format(k) end, LAST) end,
    numbers = function() return filled(NUMBERS, '1,', '0]}}') end,
    digits = function() return NUMBERS .. ('1'):rep(SIZE) .. ']}}' end,
    spaces = function() return '{' .. (' '):rep(SIZE) .. '}' end,
    quotes = function() return ('"'):rep(SIZE) end,
    zeros = function() return ('\0'):rep(SIZE) end,
}

local USUAL = { lists = true, ['a long name'] = true, escapes = true, keys = true, tensors = true }

-- Seconds of processor time, bytes of memory and what came of reading PATH, in a process of its own.
local function cost_of(call)
    write(SCRIPT, ([[
        local wane = require 'wane'
        wane.ones(1):item()
        local function most()
            local text = io.open('/proc/self/status'):read '*a'
            return tonumber(text:match 'VmHWM:%%s*(%%d+)') * 1024
        end
        collectgarbage()
        local before, t = most(), os.clock()
        local ok, e = pcall(%s, '%s')
        local message = ok and 'read' or type(e) == 'table' and e.message or 'raw: ' .. tostring(e)
        print(os.clock() - t, most() - before, #message, message:sub(1, 300))]]):format(call, PATH))
    local out = helper.shell("LUA_PATH='lua/?.lua;lua/?/init.lua;;' WANE_COSTS=off ${LUAJIT:-luajit} " .. SCRIPT)
    local seconds, bytes, length, message = out:match '^(%S+)\t(%S+)\t(%d+)\t(.*)$'
    assert(seconds, out)
    return tonumber(seconds), tonumber(bytes), tonumber(length), message
end

describe('a header of ' .. SIZE / MiB .. ' MiB', function()
    for name, make in pairs(HEADERS) do -- the usual ones, and all of them in the long form
        local test = (LONG or USUAL[name]) and it or function() end
        test('of ' .. name .. ' costs little, in a safetensors file', function()
            local text = make()
            write(PATH, length_bytes(#text, 8), text)
            local seconds, bytes, length, message = cost_of "require('wane').load"
            assert.is_nil(message:find('raw: ', 1, true), message)
            assert.is_true(bytes <= 8 * SIZE, ('%.1f times: %s'):format(bytes / SIZE, message))
            assert.is_true(seconds <= math.max(0.5, SIZE / (16 * MiB)), ('%.2f s: %s'):format(seconds, message))
            assert.is_true(length < 1000, 'a message of ' .. length .. ' bytes')
        end)
    end

    it('is refused by its length in a .npy file', function()
        local text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" .. ('1, '):rep(SIZE / 3) .. '), }'
        write(PATH, '\147NUMPY\2\0', length_bytes(#text, 4), text)
        local seconds, bytes, _, message = cost_of "require('wane').data.npy"
        assert.is_truthy(message:find('is said to have', 1, true), message)
        assert.is_true(bytes <= SIZE and seconds < 0.5)
    end)
end)

describe('a header just below the limit', function()
    local function measured(text)
        write(PATH, length_bytes(#text, 8), text)
        local seconds, bytes, _, message = cost_of "require('wane').load"
        assert.equal('read\n', message)
        assert.is_true(bytes <= 8 * 16 * MiB, bytes / MiB)
        assert.is_true(seconds <= 2, seconds)
    end

    it('is read at its cost', function()
        measured(filled('{', function(k) return TENSOR:format(k) end, LAST, LONG and 56000 or 10000))
        if LONG then measured(filled(META, function(k) return ('"%x":"",'):format(k) end, '"zz":""}}', 300000)) end
    end)
end)

describe('JSON', function()
    it('that would take much more than its text is refused before it is made', function()
        local value, why, at = json.decode(('[],'):rep(2 ^ 20))
        assert.is_nil(value)
        assert.is_truthy(why:find('MiB', 1, true))
        assert.equal(1, at)
        assert.equal(10000, #json.decode('[' .. ('[1],'):rep(9999) .. '[1]]'))
    end)
end)
