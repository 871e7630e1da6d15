-- Guards against writes beyond an array: arrays of LuaJIT's ffi check no index, so no array may be written by a length
-- from a file, a string or a caller before that length was compared. The first part reads the text of lua/: only
-- ffi.lua makes and fills such arrays. The second part gives lengths of every kind to every reader of files, tables and
-- dims, and expects a value or an error of Wane's, and an intact process (`make asan SPEC=spec/door_spec.lua` ends the
-- process at a stray write).
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local data = wane.data
local LONG = os.getenv 'WANE_SPEC_LONG' == '1'

-- ---- the text ------------------------------------------------------------------------------------------------------
-- WRITERS maps a file that writes elements of arrays one by one, each array's length being what bounds the loop, to the
-- number of calls of binding.array and binding.list in it. A new file is looked at before it is listed here.
local WRITERS = {
    ['data/batches.lua'] = 1, ['data/order.lua'] = 1, ['data/tokens.lua'] = 4, ['io/file.lua'] = 2,
    ['nn/attention.lua'] = 3, ['plan/init.lua'] = 1,
    ['plan/measure/init.lua'] = 1, ['policy/candidates.lua'] = 4, ['policy/recipe.lua'] = 4, ['program/init.lua'] = 2,
    ['repl/readline.lua'] = 1, ['sweep/process.lua'] = 1, ['system.lua'] = 1,
    ['tensor/create.lua'] = 2, ['tensor/read.lua'] = 1,
}

local function count_of(text, pattern)
    local n = 0
    for _ in text:gmatch(pattern) do n = n + 1 end
    return n
end

describe('the text of lua/', function()
    local texts = {}
    for _, path in ipairs(helper.lines "find lua/wane -name '*.lua'") do
        local name = path:gsub('^lua/wane/', '')
        if name ~= 'ffi.lua' then texts[name] = helper.read(path):gsub('%-%-[^\n]*', '') end
    end

    it('makes no array of a length found at run time outside ffi.lua', function()
        for name, text in pairs(texts) do assert.is_nil(text:find('[?]', 1, true), name) end
    end)

    it('writes dims and attributes outside ffi.lua at places that are numbers of the text alone', function()
        for name, text in pairs(texts) do
            for of, field, place in text:gmatch '(%w+)%.(%a+)%[([^%]]*)%][^=~<>\n]*=%f[^=]' do
                local is_attribute = of ~= 'node' and (field == 'dim' or field == 'i' or field == 'f') -- node: a table
                local is_fixed = place:find '^%d$' or place == 'KEEPDIM'
                if is_attribute then assert.is_truthy(is_fixed, ('%s: %s.%s[%s]'):format(name, of, field, place)) end
            end
        end
    end)

    it('makes arrays that are filled element by element in the files listed here', function()
        local found = {}
        for name, text in pairs(texts) do
            local n = count_of(text, 'binding%.array%(') + count_of(text, 'binding%.list%(')
            if n > 0 then found[name] = n end
        end
        assert.are.same(WRITERS, found)
    end)
end)

-- ---- lengths of every kind -----------------------------------------------------------------------------------------
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

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

local function write(text) return files.write(PATH, text) end

local function u32(n)
    n = n % 2 ^ 32
    return string.char(math.floor(n / 2 ^ 24), math.floor(n / 2 ^ 16) % 256, math.floor(n / 256) % 256, n % 256)
end

local function length_bytes(n)
    return u32(n):reverse() .. '\0\0\0\0'
end

local COUNTS = { 0, 1, 7, 8, 9, 10, 15, 16, 17, 64, 100 }
local ENTRIES = { '1', '-1', '0', '0.5', '1e300', '9007199254740993', '4294967297', '"3"', 'null', '{}', '[1]', '-0' }
local NUMBERS = { 1, -1, 0, 0.5, 1e300, 2 ^ 53, 2 ^ 32 + 1, 0 / 0, 1 / 0, '3', {}, false }

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
                write(length_bytes(#head) .. head .. '\0\0\0\0')
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
                write('\147NUMPY\2\0' .. u32(#head):reverse() .. head .. '\0\0\0\0')
                survives(('%d dims of %s'):format(n, entry), data.npy, PATH)
            end
        end
    end)

    it('is read or refused in an IDX file', function()
        for n = 0, 255, LONG and 1 or 15 do
            for _, d in ipairs { 0, 1, 2 ^ 31, 2 ^ 32 - 1 } do
                write('\0\0\8' .. string.char(n) .. u32(d):rep(n) .. 'x')
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
            { wane.load, length_bytes(#head) .. head .. '\0\0\0\0' },
            { data.npy, helper.read 'spec/fixtures/numpy_f4.npy' },
            { data.idx, '\0\0\13\2' .. u32(1) .. u32(1) .. '\0\0\0\0' },
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
            write(text)
            survives(('round %d'):format(round), row[1], PATH)
        end
    end)
end)

describe('dims of every count and kind', function()
    after_each(intact)

    it('are taken or refused by what makes tensors', function()
        local bytes = binding.array('f32', 4)
        for _, n in ipairs(COUNTS) do
            for _, d in ipairs(NUMBERS) do
                local dims = repeated(d, n)
                local what = ('%d dims of %s'):format(n, tostring(d))
                for _, name in ipairs { 'zeros', 'ones', 'rand', 'randn' } do
                    survives(what .. ' to ' .. name, function() return wane[name](dims) end)
                    survives(what .. ' to ' .. name, function() return wane[name](unpack(dims)) end)
                end
                survives(what .. ' to full', function() return wane.full(dims, 1) end)
                survives(what .. ' to randint', function() return wane.randint(3, dims) end)
                survives(what .. ' to from', function() return wane.from(bytes, dims) end)
            end
        end
    end)

    it('are taken or refused by what changes shapes', function()
        local x = wane.ones(1)
        for _, n in ipairs(COUNTS) do
            for _, d in ipairs(NUMBERS) do
                local dims = repeated(d, n)
                local what = ('%d dims of %s'):format(n, tostring(d))
                for _, name in ipairs { 'reshape', 'view', 'expand', 'permute', 'sum', 'mean', 'max' } do
                    survives(what .. ' to ' .. name, function() return x[name](x, dims) end)
                    survives(what .. ' to ' .. name, function() return x[name](x, unpack(dims)) end)
                end
            end
        end
    end)

    it('are taken or refused as they grow one by one', function()
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
        end
        survives('many', given, function(r) r.steps[1].keep = repeated(1, 100000) end)
    end)

    it('as operands and data sets are refused by words', function()
        survives('cat', wane.cat, repeated(wane.ones(1), 2000))
        for _, n in ipairs(NUMBERS) do
            survives('batch', data.batches, wane.ones(3), { batch = n })
            survives('buffers', data.batches, wane.ones(3), { batch = 1, buffers = n })
            survives('seed', data.batches, wane.ones(3), { batch = 1, seed = n, shuffle = true })
        end
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
