-- Guards against headers that were made to cost: nested lists, long names, millions of entries, escapes and digits.
-- Reading or refusing a header of n bytes, as a table or into a model, must take at most 8 n bytes of memory beside 2
-- MiB for the reader, and a second of processor time for 16 MiB. Values that are made of a text (tensors of a table,
-- metadata, rows) may take 64 MiB more, so that whatever is written in earnest is read. It is measured in a process of
-- its own.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local json = require 'wane.report.json'
local write = files.write

local KiB, MiB = 2 ^ 10, 2 ^ 20
local LONG = helper.is_long
local FLOOR, VALUES = 2 * MiB, json.FLOOR
local SLOWER = 4 -- times, of a machine that does other work as well
local PATH = os.tmpname()
local SCRIPT = os.tmpname()
teardown(function()
    os.remove(PATH)
    os.remove(SCRIPT)
end)

local function length_bytes(n, count)
    local bytes = {}
    for k = 1, count do
        bytes[k] = string.char(n % 256)
        n = math.floor(n / 256)
    end
    return table.concat(bytes)
end

-- Returns head, as many units as fit, tail, and spaces: `size` bytes. A unit is a text or a function of its number.
local function filled(size, head, unit, tail)
    local parts, have, k = { head }, #head + #tail, 0
    while true do
        k = k + 1
        local text = type(unit) == 'function' and unit(k) or unit
        if have + #text > size then break end
        parts[#parts + 1], have = text, have + #text
    end
    return table.concat(parts) .. tail .. (' '):rep(size - have)
end

local TENSOR = '"%x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
local LAST = TENSOR:format(0):gsub(',$', '}')
local META, NUMBERS = '{"__metadata__":{', '{"a":{"dtype":"F32","data_offsets":[0,0],"shape":['
local UNKNOWN, END = '{"a":{"dtype":"F32","data_offsets":[0,0],"shape":[0],"more":', '}}'

local function tensor_of(k) return TENSOR:format(k) end

-- Returns a header of n bytes, and the bytes of its data: tensors of 4 bytes each, one for 72 bytes of header, placed
-- from the last to the first.
local function backwards(n)
    local count = math.floor((n - 2) / 72)
    return filled(n, '{', function(k)
        if k > count then return (' '):rep(n) end
        return ('"%06x":{"dtype":"F32","shape":[1],"data_offsets":[%08d,%08d]}%s'):format(k, 4 * (count - k),
            4 * (count - k + 1), k < count and ',' or ''):gsub('%[0+(%d)', '[%1'):gsub(',0+(%d)', ',%1')
    end, '}'), 4 * count
end

-- HEADERS holds the kinds of headers: each makes one of n bytes, and says how many bytes of data follow it.
local HEADERS = {
    lists = function(n) return filled(n, '{"a":{"dtype":"F32","shape":[', '[],', '0],"data_offsets":[0,0]}}') end,
    deep = function(n) return ('['):rep(n) end,
    ['deep and unknown'] = function(n) return filled(n, UNKNOWN .. '[', '[', ']' .. END) end,
    ['lists and unknown'] = function(n) return filled(n, UNKNOWN .. '[', '[[],{"a":"\\n"}],', '1]' .. END) end,
    objects = function(n) return filled(n, '{', function(k) return ('"%x":{},'):format(k) end, '"z":{}}') end,
    ['a long name'] = function(n) return '{"' .. ('x'):rep(n - 7) .. '":{}}' end,
    ['a long dtype'] = function(n)
        return filled(n, '{"a":{"shape":[],"data_offsets":[0,0],"dtype":"', 'x', '"}}')
    end,
    escapes = function(n) return filled(n, META .. '"a":"', '\\n', '"}}') end,
    unicode = function(n) return filled(n, META .. '"a":"', '\\u00e9', '"}}') end,
    ['an escaped name'] = function(n) return filled(n, '{"', '\\u0061', '":{}}') end,
    letters = function(n) return filled(n, META .. '"a":"', 'é', '"}}') end,
    keys = function(n) return filled(n, META, function(k) return ('"%x":"",'):format(k) end, '"zz":""}}') end,
    values = function(n)
        return filled(n, META, function(k) return ('"%x":"%x%x",'):format(k, k, k) end, '"zz":""}}')
    end,
    counts = function(n)
        return filled(n, META, function(k) return ('"wane.optimizer.count.%x":"%d",'):format(k, k) end, '"zz":""}}')
    end,
    ['one key'] = function(n) return filled(n, META, '"a":"",', '"a":""}}') end,
    ['one field'] = function(n) return filled(n, '{"a":{', '"shape":[0],', '"shape":[0]}}') end,
    tensors = function(n) return filled(n, '{', tensor_of, LAST) end,
    ['tensors of near names'] = function(n)
        return filled(n, '{', function(k) return (tensor_of(k):gsub('^"', '"1.2.weight')) end, LAST)
    end,
    ['one tensor'] = function(n) return filled(n, '{', TENSOR:format(0), LAST) end,
    ['tensors of other dtypes'] = function(n)
        return filled(n, '{', function(k) return (tensor_of(k):gsub('F32', 'Q%%d'):format(k % 1000)) end, LAST)
    end,
    ['tensors of one element, backwards'] = backwards,
    numbers = function(n) return filled(n, NUMBERS, '1,', '0]}}') end,
    digits = function(n) return filled(n, NUMBERS, '1', ']}}') end,
    fractions = function(n) return filled(n, NUMBERS .. '0.', '1', ']}}') end,
    spaces = function(n) return '{' .. (' '):rep(n - 2) .. '}' end,
    quotes = function(n) return ('"'):rep(n) end,
    zeros = function(n) return ('\0'):rep(n) end,
}

-- Makes a call in a process of its own; returns its seconds of processor time, its bytes of memory, the length of what
-- came of it as text, and the beginning of that text.
local function cost_of(call)
    write(SCRIPT, ([[
        local wane = require 'wane'
        wane.ones(1):item()
        local model = wane.nn.Linear(4, 4)
        wane.eval(model:parameters()[1], model:parameters()[2])
        local call, path = %s, '%s'
        local function most()
            local text = io.open('/proc/self/status'):read '*a'
            return tonumber(text:match 'VmHWM:%%s*(%%d+)') * 1024
        end
        collectgarbage()
        local before, t = most(), os.clock()
        local ok, e = pcall(call, path, model)
        local message = ok and 'read' or type(e) == 'table' and e.message or 'raw: ' .. tostring(e)
        print(os.clock() - t, most() - before, #message, message:sub(1, 300))]]):format(call, PATH))
    local out = helper.shell("LUA_PATH='lua/?.lua;lua/?/init.lua;;' WANE_COSTS=off ${LUAJIT:-luajit} " .. SCRIPT)
    local seconds, bytes, length, message = out:match '(%S+)\t(%S+)\t(%d+)\t(.*)$'
    assert(seconds, out)
    return tonumber(seconds), tonumber(bytes), tonumber(length), message
end

local TABLE = "function(path) require('wane').load(path) end"
local MODEL = "function(path, model) require('wane').load(path, model, { strict = false }) end"
local STRICT = "function(path, model) require('wane').load(path, model, { names = 'torch' }) end"
local ROWS = "function(path) require('wane.sweep.store').read(path) end"
local COSTS = "function(path) local ffi = require 'ffi' ffi.cdef 'int setenv(const char *, const char *, int);' "
    .. "ffi.C.setenv('WANE_COSTS', path, 1) require('wane.plan.costs').forget() require('wane').targets() end"
local NPY = "function(path) require('wane').data.npy(path) end"

-- Checks what `call` cost, which reads the file PATH with its `size` bytes of header; returns what came of it as text.
local function check(call, size, what)
    local seconds, bytes, length, message = cost_of(call)
    if os.getenv 'WANE_HOSTILE' then
        print(('%-50s %6.2f x %6.3f s/16MiB  %s'):format(what, (bytes - 0) / size, seconds * 16 * MiB / size,
            message:gsub('\n', ' '):sub(-70)))
    end
    assert.is_nil(message:find('raw: ', 1, true), what .. ': ' .. message)
    local floor = (call == COSTS or call == NPY) and FLOOR or FLOOR + VALUES
    assert.is_true(bytes <= 8 * size + floor, ('%s: %.1f times: %s'):format(what, bytes / size, message))
    assert.is_true(seconds <= 0.3 + SLOWER * size / (16 * MiB), ('%s: %.2f s: %s'):format(what, seconds, message))
    assert.is_true(length < 1000, what .. ': a message of ' .. length .. ' bytes')
    return message
end

local function put_header(make, size)
    local text, data = make(size)
    assert(#text == size, #text)
    write(PATH, length_bytes(#text, 8), text, ('\0'):rep(data or 0))
end

local LARGE = { tensors = true, keys = true, counts = true, escapes = true }

describe('a hostile header', function()
    for _, size in ipairs { 64 * KiB, MiB, 16 * MiB } do
        for name, make in pairs(HEADERS) do
            -- All headers of the small sizes are read, and a few of the large ones; in the long form all of them.
            local test = (LONG or size < MiB or LARGE[name] and size == MiB) and it or function() end
            test(('of %d KiB of %s costs little'):format(size / KiB, name), function()
                put_header(make, size)
                check(TABLE, size, name .. ', as a table')
                if size == MiB then check(MODEL, size, name .. ', into a model') end
                if LONG and size <= MiB then check(STRICT, size, name .. ', into a model, names counted from 0') end
            end)
        end
    end

    it('is refused by its length in a .npy file', function()
        local size = 4 * MiB
        local text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" .. ('1, '):rep(size / 3) .. '), }'
        write(PATH, '\147NUMPY\2\0', length_bytes(#text, 4), text)
        local message = check(NPY, size, 'npy')
        assert.is_truthy(message:find('is said to have', 1, true), message)
    end)

    it('costs little as a file of measured seconds', function()
        for _, size in ipairs(LONG and { MiB, 16 * MiB } or { MiB }) do
            write(PATH, filled(size, '', function(k) return ('1\tk%x\n'):format(k) end, ''))
            check(COSTS, size, 'costs of short keys')
            write(PATH, ('x'):rep(size))
            check(COSTS, size, 'costs of one line')
        end
    end)

    it('costs little as the row of a sweep', function()
        for _, size in ipairs(LONG and { 64 * KiB, MiB, 4 * MiB } or { MiB }) do
            for name, text in pairs {
                lists = filled(size - 1, '{"a":[', '[],', '1]}'), digits = ('1'):rep(size - 1),
                numbers = filled(size - 1, '[', '1,', '1]'), escapes = filled(size - 1, '"', '\\n', '"'),
                keys = filled(size - 1, '{', function(k) return ('"%x":1,'):format(k) end, '"z":1}'),
            } do
                write(PATH, text, '\n')
                check(ROWS, size, 'rows of ' .. name)
            end
        end
    end)
end)

describe('an honest header', function()
    -- Writes a file of `count` tensors of (8, 8) under names as long as those of a real model; returns the length of
    -- its header.
    local function write_tensors(count)
        local parts = {}
        for k = 1, count do
            parts[k] = ('"blocks.%d.attention.weight":{"dtype":"F32","shape":[8,8],"data_offsets":[%d,%d]}'):format(k,
                256 * k - 256, 256 * k)
        end
        local text = '{' .. table.concat(parts, ',') .. '}'
        write(PATH, length_bytes(#text, 8), text, ('\0\0\128\63'):rep(64 * count))
        return #text
    end

    it('of 20,000 tensors is read', function()
        local size = write_tensors(20000)
        local message = check(TABLE, size + 256 * 20000, 'an honest one')
        assert.equal('read\n', message)
        local dict = require('wane').load(PATH)
        assert.equal(64, dict['blocks.20000.attention.weight']:sum():item())
        message = check(MODEL, size, 'an honest one, into a model')
        assert.is_truthy(message:find('no name of the model is in the file', 1, true), message)
    end)

    it('of 900 states of one element is read', function()
        put_header(backwards, 65536)
        assert.equal('read\n', check(TABLE, 65536, 'one element'))
    end)
end)

describe('JSON', function()
    it('that would take much more than its text is refused before it is made', function()
        local value, why, at = json.decode(('[],'):rep(2 ^ 20))
        assert.is_nil(value)
        assert.is_truthy(why:find('MiB', 1, true))
        assert.equal(1, at)
        assert.equal(1000, #json.decode('[' .. ('[1],'):rep(999) .. '[1]]'))
    end)
end)

-- ---- JSON ----------------------------------------------------------------------------------------------------------
-- Checks wane.json: what is written is read back equal to the last bit, and text that is no JSON is refused with its
-- place.
describe('wane.json', function()
    it('gives back what it was given', function()
        for _, value in ipairs { 0, 1, -17, 0.1, 1 / 3, 2 ^ 53, 1e300, 5e-324, -2.5e-8, true, false, '',
            'a "b" \\ \n\1 \127', 'grün 😀', { 1, { 2, 'x' }, {} }, { a = 1, b = { c = { true } } } } do
            assert.same(value, (json.decode(json.encode(value))))
        end
        for _ = 1, 200 do
            local x = (math.random() - 0.5) * 10 ^ math.random(-300, 300)
            assert.equal(x, json.decode(json.encode(x)))
        end
    end)

    it('writes equal values as equal text, numbers in few digits, bad text as U+FFFD', function()
        assert.equal('{"a":1,"b":[1,2.5],"c":"x"}', json.encode { c = 'x', b = { 1, 2.5 }, a = 1 })
        assert.equal('0.1', json.encode(0.1))
        assert.equal('9007199254740991', json.encode(2 ^ 53 - 1))
        assert.equal('[null,1e999,1]', json.encode { 0 / 0, 1 / 0, 1 })
        assert.equal('"a\239\191\189b"', json.encode 'a\255b')
        assert.equal('"\\u0000\\n\\u007f"', json.encode '\0\n\127')
        assert.has_error(function() json.encode { print } end)
    end)

    it('reads what others write', function()
        assert.same({ a = { 1, 2 }, d = 'é😀/' },
            (json.decode ' { "a" : [ 1 , 2e0 ],\n"b":null, "d":"\\u00e9\\ud83d\\ude00\\/" } '))
        assert.same({}, (json.decode '[]'))
        assert.is_false(json.decode 'false')
    end)

    it('says where a text is none', function()
        for text, at in pairs { ['{"a":1,}'] = 8, ['[1 2]'] = 4, ['"abc'] = 1, ['1 2'] = 3, nul = 1, [''] = 1,
            ['{"a" 1}'] = 6, ['[1'] = 3, ['"\n"'] = 2, ['"\\x"'] = 2, ['{1:2}'] = 2, ['-'] = 1 } do
            local value, why, place = json.decode(text)
            assert.is_nil(value)
            assert.matches('%a', why)
            assert.equal(at, place, text)
        end
    end)
end)
