-- Guards against headers that were made to cost: nested lists, long names, millions of entries, escapes and digits.
-- Reading or refusing a header of n bytes, as a table or into a model, must take at most 8 n bytes of memory beside 2
-- MiB for the reader, and a second of processor time for 16 MiB. Values that are made of a text (tensors of a table,
-- metadata, rows) may take 64 MiB more, so that whatever is written in earnest is read. It is measured in a process of
-- its own. Then JSON, and lengths that would write beyond an array.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local little, write, data = files.little, files.write, wane.data

local KiB, MiB = 2 ^ 10, 2 ^ 20
local LONG, FLOOR, VALUES = helper.is_long, 2 * MiB, json.FLOOR
local SLOWER = 4 -- times, of a machine that does other work as well
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

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
    local out = files.lua(([[
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
        print(os.clock() - t, most() - before, #message, message:sub(1, 300))]]):format(call, PATH), 'WANE_COSTS=off')
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
    assert.is_nil(message:find('raw: ', 1, true), what .. ': ' .. message)
    local floor = (call == COSTS or call == NPY) and FLOOR or FLOOR + VALUES
    assert.is_true(bytes <= 8 * size + floor, ('%s: %.1f times: %s'):format(what, bytes / size, message))
    assert.is_true(seconds <= 0.3 + SLOWER * size / (16 * MiB), ('%s: %.2f s: %s'):format(what, seconds, message))
    assert.is_true(length < 1000, what .. ': a message of ' .. length .. ' bytes')
    return message
end

local function put_header(make, size)
    local text, bytes = make(size)
    assert(#text == size, #text)
    write(PATH, little(#text, 8), text, ('\0'):rep(bytes or 0))
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
        write(PATH, '\147NUMPY\2\0', little(#text, 4), text)
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
        write(PATH, little(#text, 8), text, ('\0\0\128\63'):rep(64 * count))
        return #text
    end

    it('of 20,000 tensors is read', function()
        local size = write_tensors(20000)
        local message = check(TABLE, size + 256 * 20000, 'an honest one')
        assert.equal('read\n', message)
        local dict = wane.load(PATH)
        assert.equal(64, dict['blocks.20000.attention.weight']:sum():item())
        message = check(MODEL, size, 'an honest one, into a model')
        assert.is_truthy(message:find('no name of the model is in the file', 1, true), message)
    end)

    it('of 900 states of one element is read', function()
        put_header(backwards, 65536)
        assert.equal('read\n', check(TABLE, 65536, 'one element'))
    end)
end)

-- ---- JSON ----------------------------------------------------------------------------------------------------------
-- Checks that JSON is read back as it was written, and that text that is none is refused with its place. Numbers to the
-- bit are in spec/written_spec.lua.
describe('JSON', function()
    it('gives back what it was given', function()
        for _, value in ipairs { 0, -17, 1 / 3, true, false, '', 'a "b" \\ \n\1\31\127\r\t\b\f', 'grün é€😀',
            { 1, { 2, 'x' }, {} }, { a = 1, b = { c = { true } } } } do
            assert.same(value, (json.decode(json.encode(value))))
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
        local text = ' { "a" : [ 1 , -2.5e3,\n2e0,true,false,null,{}],"b\\u00e9\\n\\ud83c\\udf19\\/":"","c":{"d":[]}} '
        assert.same({ a = { 1, -2500, 2, true, false, json.null, {} }, ['bé\n\240\159\140\153/'] = '', c = { d = {} } },
            (json.decode(text, json.null)))
        assert.same({}, (json.decode '{"b":null}'))
    end)

    it('says where a text is none', function()
        for text, at in pairs { ['{"a":1,}'] = 8, ['[1 2]'] = 4, ['"abc'] = 1, ['1 2'] = 3, nul = 1, [''] = 1,
            ['{"a" 1}'] = 6, ['[1'] = 3, ['"\n"'] = 2, ['"\\x"'] = 2, ['{1:2}'] = 2, ['-'] = 1, [' '] = 2, ['{'] = 2,
            ["'a'"] = 1, ['1.'] = 1, ['.5'] = 1, ['+1'] = 1, ['1e'] = 1, ['0x1'] = 2, NaN = 1, tru = 1, ['"\t"'] = 2,
            ['"\\'] = 2,
            ['"\\u12"'] = 2, ['"\\udc00"'] = 2, ['"\\ud800\\u0041"'] = 2, ['{"a"}'] = 5, ['\239\187\191{}'] = 1,
            ['"\192\128"'] = 2, ['"\237\160\128"'] = 2, ['"\244\144\128\128"'] = 2 } do
            local value, why, place = json.decode(text)
            assert.is_nil(value, text)
            assert.matches('%a', why)
            assert.equal(at, place, text)
        end
    end)

    it('that would take much more than its text is refused before it is made', function()
        local value, why, at = json.decode(('[],'):rep(2 ^ 20))
        assert.is_nil(value)
        assert.is_truthy(why:find('MiB', 1, true))
        assert.equal(1, at)
        assert.equal(1000, #json.decode('[' .. ('[1],'):rep(999) .. '[1]]'))
    end)
end)

-- ---- lengths of every kind -----------------------------------------------------------------------------------------
-- Gives lengths of every kind to the readers of files, tables and dims, and expects a value or an error of Wane's, and
-- an intact process (`make asan SPEC=spec/hostile_spec.lua` ends the process at a stray write).

-- Returns a number as four bytes, the most significant one first.
local function big(n) return little(n, 4):reverse() end

-- Calls fn, which may return, or raise an error of Wane's. Returns whether it raised.
local function survives(what, fn, ...)
    local ok, e = pcall(fn, ...)
    if not ok then assert.is_true(errors.is(e), ('%s: %s'):format(what, tostring(e))) end
    return not ok
end

-- Checks that the process still computes, and that what lies beside the blocks that recording reuses was not written.
local function intact()
    assert.are.same({ { 4, 6 } }, (wane.ones(1, 2) * 2 + wane.tensor { { 2, 4 } }):totable())
end

local COUNTS = { 0, 1, 7, 8, 9, 10, 15, 16, 17, 64, 100 }
local ENTRIES = { '1', '-1', '0', '0.5', '1e300', '9007199254740993', '4294967297', '"3"', 'null', '{}', '[1]', '-0' }

local function repeated(x, n)
    local list = {}
    for k = 1, n do list[k] = x end
    return list
end

describe('a header with dims of every count and kind', function()
    after_each(intact)

    it('is read or refused in a safetensors file', function()
        local refused = 0
        for _, n in ipairs(COUNTS) do
            for _, entry in ipairs(ENTRIES) do
                local head = ('{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,4]}}'):format(
                    table.concat(repeated(entry, n), ','))
                write(PATH, little(#head, 8) .. head .. '\0\0\0\0')
                local what = ('%d dims of %s'):format(n, entry)
                if survives(what, function() return wane.load(PATH).a end) then refused = refused + 1 end
                survives(what, wane.load, PATH, wane.nn.Linear(1, 1))
            end
        end
        assert.is_true(refused > 100, refused)
    end)

    it('is read or refused in a .npy file', function()
        for _, n in ipairs(COUNTS) do
            for _, entry in ipairs(ENTRIES) do
                local head = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }\n"):format(
                    table.concat(repeated(entry, n), ', '))
                write(PATH, '\147NUMPY\2\0' .. little(#head, 4) .. head .. '\0\0\0\0')
                survives(('%d dims of %s'):format(n, entry), data.npy, PATH)
            end
        end
    end)

    it('is read or refused in an IDX file', function()
        for n = 0, 255, LONG and 1 or 15 do
            for _, d in ipairs { 0, 1, 2 ^ 31, 2 ^ 32 - 1 } do
                write(PATH, '\0\0\8', string.char(n) .. big(d):rep(n) .. 'x')
                survives(('%d dims of %.0f'):format(n, d), data.idx, PATH)
            end
        end
    end)

    it('is read or refused with bytes changed at random', function()
        local seed = 7
        local function roll(n)
            seed = (seed * 1103515245 + 12345) % 2147483648
            return math.floor(seed / 65536) % n + 1
        end
        local head = '{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}'
        local readers = {
            { wane.load, little(#head, 8) .. head .. '\0\0\0\0' },
            { data.npy, helper.read 'spec/fixtures/numpy_f4.npy' },
            { data.idx, '\0\0\13\2' .. big(1) .. big(1) .. '\0\0\0\0' },
            { data.tokens, 'h\195\182h\240\159\140\153o' },
        }
        for round = 1, LONG and 20000 or 400 do
            local row = readers[round % #readers + 1]
            local text = row[2]
            for _ = 1, roll(4) do
                local at, kind = roll(#text), roll(3)
                local piece = kind == 1 and string.char(roll(256) - 1) or kind == 2 and ''
                    or text:sub(at, at + roll(12))
                text = text:sub(1, at - 1) .. piece .. text:sub(at + (kind == 3 and 0 or 1))
                if #text == 0 then text = 'x' end
            end
            write(PATH, text)
            survives(('round %d'):format(round), row[1], PATH)
        end
    end)
end)

describe('dims', function()
    after_each(intact)

    it('that are more than eight are refused by what makes tensors and what changes shapes', function()
        for _, n in ipairs { 9, 10, 16, 17, 100 } do
            local dims = repeated(1, n)
            local function refused(name, fn, ...)
                assert.is_true(survives(name, fn, ...), ('%s of %d dims'):format(name, n))
            end
            for _, name in ipairs { 'zeros', 'ones', 'rand', 'randn' } do
                refused(name, wane[name], dims)
                refused(name, wane[name], unpack(dims))
            end
            refused('full', wane.full, dims, 1)
            refused('randint', wane.randint, 3, dims)
            refused('from', wane.from, binding.array('f32', 4), dims)
            for _, name in ipairs { 'reshape', 'view', 'expand', 'permute' } do
                refused(name, function() return wane.ones(1)[name](wane.ones(1), dims) end)
                refused(name, function() return wane.ones(1)[name](wane.ones(1), unpack(dims)) end)
            end
        end
    end)

    it('that grow one by one are refused at last', function()
        local function grown(step)
            local x = wane.ones(1)
            for _ = 1, 100 do x = step(x) end
            return x
        end
        assert.is_true(survives('unsqueeze', grown, function(x) return x:unsqueeze(1) end))
        assert.is_true(survives('stack', grown, function(x) return wane.stack { x, x } end))
        local deep = 1
        for _ = 1, 100 do deep = { deep } end
        assert.is_true(survives('tensor', wane.tensor, deep))
    end)
end)

describe('lists that callers give', function()
    after_each(intact)

    it('are refused by the arrays they would not fit', function()
        for _, n in ipairs { -1, 0.5, 0 / 0, 1 / 0, 2 ^ 31, 2 ^ 53, 'x' } do
            for _, make in ipairs { binding.array, binding.list } do
                local name = make == binding.array and 'f64' or 'struct wn_step'
                assert.is_true(survives('an array', make, name, n), tostring(n))
            end
        end
        local at = binding.new 'struct wn_attrs'
        for _, n in ipairs { 9, 100 } do
            assert.is_true(survives('dims', binding.fill_dims, at.i, repeated(1, n), 'x'))
        end
        for _, d in ipairs { 0.5, 0 / 0, 1 / 0, 'x', false } do
            assert.is_true(survives('dims', binding.fill_dims, at.i, { 1, d }, 'x'))
            assert.equal(0, tonumber(at.i[0]))
        end
    end)

    it('as recipes name blocks, values and steps that are there', function()
        local model = wane.nn.Sequential { wane.nn.Linear(4, 4), wane.nn.ReLU(), wane.nn.Linear(4, 4) }
        local function f() return model(wane.ones(2, 4)):sum() end
        local good = wane.plan(f):recipe()
        local function given(change)
            local recipe = { blocks = {}, steps = {} }
            for k, block in ipairs(good.blocks) do
                recipe.blocks[k] = { first = block.first, last = block.last, ops = block.ops }
            end
            for k, step in ipairs(good.steps) do
                recipe.steps[k] = { what = step.what, block = step.block, root = step.root,
                    keep = { unpack(step.keep) } }
            end
            change(recipe)
            return wane.plan(f, { policy = wane.policy.recipe(recipe) })
        end
        assert.is_false(survives('unchanged', given, function() end))
        for _, v in ipairs { 0, -1, 0.5, 100, 2 ^ 31, 2 ^ 32 + 1, 1e300, 0 / 0, 1 / 0, 'x', {}, false } do
            local what = tostring(v)
            survives(what, given, function(r) r.blocks[1].first = v end)
            survives(what, given, function(r) r.blocks[1].last = v end)
            survives(what, given, function(r) r.blocks[1] = v end)
            survives(what, given, function(r) r.blocks[1].ops = { v } end)
            survives(what, given, function(r) r.steps[1].block = v end)
            survives(what, given, function(r) r.steps[1].root = v end)
            survives(what, given, function(r) r.steps[1].keep = { v } end)
            survives(what, given, function(r) r.steps[1].keep = v end)
            survives(what, given, function(r) r.steps[1].action = v end)
            survives(what, given, function(r) r.steps[1] = v end)
            survives(what, given, function(r) r.ahead = v end)
            survives(what, given, function(r) r.group = v end)
        end
        survives('many', given, function(r) r.steps[1].keep = repeated(1, 100000) end)
    end)

    it('as the state of a data set are refused in words', function()
        local it_ = data.batches(wane.ones(3), { batch = 1, shuffle = true })
        for _, digits in ipairs { '9', '99999999999999999', ('9'):rep(400) } do
            local state = it_:state()
            for _, name in ipairs { 'seed', 'epoch', 'at' } do
                survives(name, data.batches, wane.ones(3), { batch = 1, shuffle = true,
                    state = (state:gsub(name .. '=%d+', name .. '=' .. digits)) })
            end
        end
    end)
end)
