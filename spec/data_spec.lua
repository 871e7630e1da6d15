-- Checks the readers of wane.data: they must give what the file holds, and name the place where it is broken.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local shuffled = require 'wane.data.order'
local programs = require 'spec.support.programs'
local foreign = require 'spec.fixtures.foreign_dtypes'

local data = wane.data
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

local function write(text) return files.write(PATH, text) end
local refused = helper.refused

local function u32(n) return files.little(n, 4):reverse() end

local function idx(kind, dims, bytes)
    local head = string.char(0, 0, kind, #dims)
    for _, d in ipairs(dims) do head = head .. u32(d) end
    return head .. bytes
end

describe('wane.data.idx', function()
    it('reads each type, most significant byte first', function()
        local t = data.idx(write(idx(0x08, { 2, 1, 3 }, '\0\1\2\128\254\255')))
        assert.are.same({ { 2, 1, 3 }, 'u8' }, { { unpack(t.shape) }, t.dtype })
        assert.are.same({ { { 0, 1, 2 } }, { { 128, 254, 255 } } }, t:totable())
        assert.are.same({ -127, 0, 128 }, (data.idx(write(idx(0x09, { 3 }, '\128\255\127'))) + 1):totable())
        local i = data.idx(write(idx(0x0C, { 2 }, '\0\1\2\3\255\255\255\254')))
        assert.are.same({ { 66051, -2 }, 'i32' }, { i:totable(), i.dtype })
        local s = data.idx(write(idx(0x0B, { 3 }, '\128\0\255\255\127\255')))
        assert.are.same({ { -32768, -1, 32767 }, 'i32' }, { s:totable(), s.dtype })
        local f = data.idx(write(idx(0x0D, { 2 }, '\63\192\0\0\192\0\0\0')))
        assert.are.same({ { 1.5, -2 }, 'f32' }, { f:totable(), f.dtype })
        local d = data.idx(write(idx(0x0E, { 1 }, '\64\9\33\251\84\68\45\24')))
        assert.are.same({ { math.pi }, 'f64' }, { d:totable(), d.dtype })
    end)

    it('reads what is longer than the block it goes through', function()
        local parts = {}
        for k = 1, 50000 do parts[k] = u32(k) end
        local t = data.idx(write(idx(0x0C, { 50000 }, table.concat(parts)))):totable()
        for k = 1, 50000 do assert(t[k] == k, k) end
    end)

    it('says what is wrong, and where', function()
        local good = idx(0x08, { 2, 3 }, '\0\1\2\3\4\5')
        refused('io', function() data.idx(write '\31\139\8\0abc') end, 'gzip', 'gunzip')
        refused('io', function() data.idx(write 'ab') end, '2 bytes')
        refused('io', function() data.idx(write('\1' .. good:sub(2))) end, 'at byte 0', 'no IDX file')
        refused('io', function() data.idx(write(idx(0x07, { 1 }, '\0'))) end, 'at byte 2', '0x07')
        refused('io', function() data.idx(write(idx(0x08, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 'x'))) end, '9 dims')
        for n = 4, #good - 1 do
            refused('io', function() data.idx(write(good:sub(1, n))) end, n < 12 and 'it ends at byte ' .. n
                or ('(2, 3) u8 takes 6 bytes after byte 12, the file has %d'):format(n - 12))
        end
        refused('io', function() data.idx(write(good .. 'x')) end, 'the file has 7')
        refused('io', function() data.idx '/none' end, 'No such file')
    end)
end)

describe('wane.data.npy', function()
    local fixture = helper.read 'spec/fixtures/numpy_f4.npy'
    local want = { { 1.5, -2 }, { 3, 4e-3 }, { 5, 6 } }

    local function close(got)
        for i, row in ipairs(want) do
            for k, v in ipairs(row) do assert.is_true(math.abs(v - got[i][k]) < 1e-9) end
        end
    end

    local function changed(from, to)
        local text, n = fixture:gsub(from:gsub('%p', '%%%0'), (to:gsub('%%', '%%%%')))
        assert.equal(1, n)
        return write(text)
    end

    it('reads a file of numpy.save', function()
        local t = data.npy(helper.root .. '/spec/fixtures/numpy_f4.npy')
        assert.are.same({ { 3, 2 }, 'f32' }, { { unpack(t.shape) }, t.dtype })
        close(t:totable())
    end)

    it('reads the other order of bytes and other versions', function()
        local head, bytes = fixture:sub(1, -25), fixture:sub(-24)
        local turned = (head:gsub("'<f4'", "'>f4'")) .. bytes:gsub('(.)(.)(.)(.)', '%4%3%2%1')
        close(data.npy(write(turned)):totable())
        close(data.npy(write(fixture:gsub('^(......)\1(.)(..)', '%1\2%2%3\0\0'))):totable())
    end)

    it('in Fortran order gives every element at its place, of every dtype, for 0 to 4 dims', function()
        for code, size in pairs { ['<f4'] = 4, ['>f8'] = 8, ['<i8'] = 8, ['>i2'] = 2, ['|u1'] = 1, ['|b1'] = 1,
            ['|i1'] = 1 } do
            for _, dims in ipairs { {}, { 5 }, { 2, 3 }, { 3, 1, 4 }, { 2, 3, 4, 5 }, { 0, 3 }, { 3, 0 } } do
                local n = 1
                for _, d in ipairs(dims) do n = n * d end
                local zeros = function(count) return ('\0'):rep(count) end
                local parts = {} -- element k, from 0, of what is stored is k % 2 in its last byte or its first
                for k = 0, n - 1 do
                    local bit_ = string.char((k * k + math.floor(k / 3)) % 2)
                    parts[k + 1] = code:sub(1, 1) == '>' and zeros(size - 1) .. bit_ or bit_ .. zeros(size - 1)
                end
                local text = ("{'descr': '%s', 'fortran_order': True, 'shape': (%s), }"):format(code,
                    table.concat(dims, ',') .. (#dims == 1 and ',' or ''))
                text = text .. (' '):rep(117 - #text) .. '\n'
                local t = data.npy(write('\147NUMPY\1\0\118\0' .. text .. table.concat(parts)))
                assert.are.same(dims, t.shape)
                local got = n > 0 and t:reshape(-1):totable() or {}
                local wanted, strides, step = {}, {}, 1
                for d = 1, #dims do strides[d], step = step, step * dims[d] end
                for at = 0, n - 1 do
                    local rest, k = at, 0
                    for d = #dims, 1, -1 do
                        k = k + rest % dims[d] * strides[d]
                        rest = math.floor(rest / dims[d])
                    end
                    local is_one = parts[k + 1]:find '\1' ~= nil
                    local small = code:find 'f' and 2 ^ (size == 4 and -149 or -1074) or 1 -- the last bit
                    wanted[at + 1] = is_one and small or 0
                end
                assert.are.same(wanted, got, code)
            end
        end
    end)

    it('says what is wrong, and what to do', function()
        refused('io', function() data.npy(changed("'<f4'", "'<c8'")) end, 'c8', 'astype')
        refused('io', function() data.npy(changed("'<f4'", "'|O '")) end, 'astype')
        refused('io', function() data.npy(changed("'fortran_order': False", "'fortran_order': maybe")) end,
            'Fortran order')
        refused('io', function() data.npy(changed('(3, 2)', '(3, 3)')) end, '(3, 3) f32 takes 36 bytes')
        refused('io', function() data.npy(changed('NUMPY', 'NUMPI')) end, 'at byte 0')
        for n = 0, #fixture - 1 do refused('io', function() data.npy(write(fixture:sub(1, n))) end) end
    end)
end)

describe('wane.data.tokens', function()
    it('makes one token a character, in the order of the characters', function()
        local t = data.tokens(write 'höh\240\159\140\153o')
        assert.are.same({ 'h', 'o', 'ö', '\240\159\140\153' }, t.vocab)
        assert.equal(5, t.length)
        assert.are.same({ 0, 2, 0, 3, 1 }, t:encode 'höh\240\159\140\153o')
        assert.equal('öo\240\159\140\153', t:decode { 2, 1, 3 })
        assert.equal('h', t:decode(0))
        assert.equal('hoö', t:decode(wane.tensor({ { 0, 1, 2 } }, { dtype = 'i32' })))
        assert.are.same({ 2, 1, 1, 1 }, t.counts)
        assert.is_true(math.abs(t.entropy - (0.4 * math.log(2.5) + 3 * 0.2 * math.log(5))) < 1e-12)
        assert.is_truthy(tostring(t):find('5, 4 different', 1, true))
    end)

    it('makes one token a byte', function()
        local t = data.tokens(write 'a\255\0a', { vocab = 'byte' })
        assert.are.same({ 256, 4 }, { #t.vocab, t.length })
        assert.are.same({ 97, 255, 0, 97 }, t:encode 'a\255\0a')
        assert.equal('\255a', t:decode { 255, 97 })
        assert.are.same({ 2, 1, 1 }, { t.counts[98], t.counts[256], t.counts[1] })
        assert.is_true(math.abs(t.entropy - 1.5 * math.log(2)) < 1e-12)
    end)

    it('reads a text longer than the block, whose characters lie across its edges', function()
        local words, n = {}, 0
        for k = 1, 80000 do
            words[k] = ({ 'a', 'é', '€', '\240\159\140\153' })[(k * 7 + math.floor(k / 5)) % 4 + 1]
            n = n + #words[k]
        end
        assert.is_true(n > 2 * 65536)
        while not table.concat(words):sub(65537, 65537):find '[\128-\191]' do table.insert(words, 1, 'a') end
        local text = table.concat(words)
        local t = data.tokens(write(text))
        assert.are.same({ #words, 4 }, { t.length, #t.vocab })
        local x = data.batches(t, { batch = 1, length = #words - 1 })()
        assert.is_true(t:decode(x) .. words[#words] == text)
        assert.are.same(t:encode(text:sub(1, #words[1])), { t:encode(text)[1] })
    end)

    it('keeps more than 256 characters too', function()
        local utf8 = require 'wane.utf8'
        local words = {}
        for k = 1, 400 do words[k] = utf8.char(0x4E00 + k * 7 % 400) end
        local text = table.concat(words)
        local t = data.tokens(write(text))
        assert.equal(400, #t.vocab)
        local x, y = data.batches(t, { batch = 3, length = 100 })()
        assert.equal(text:sub(1, 903), t:decode(x) .. t:decode(y):sub(-3))
    end)

    it('is split in two parts that share the vocabulary', function()
        local t = data.tokens(write 'aabbccddef')
        local a, b = t:split(0.75)
        assert.are.same({ 7, 3 }, { a.length, b.length })
        assert.are.same({ 2, 2, 2, 1, 0, 0 }, a.counts)
        assert.are.same({ 0, 0, 0, 1, 1, 1 }, b.counts)
        assert.equal(t.vocab, b.vocab)
        local x, y = data.batches(b, { batch = 1, length = 2 })()
        assert.are.same({ 'de', 'ef' }, { t:decode(x), t:decode(y) })
        local c = select(2, b:split(0.5))
        assert.equal('ef', t:decode((data.batches(c, { batch = 1, length = 1 })())) .. 'f')
        refused('value', function() t:split(1) end, '1')
    end)

    it('takes the vocabulary of other tokens', function()
        local t = data.tokens(write 'abc')
        local u = data.tokens(write 'cab', { vocab = t.vocab })
        assert.are.same({ 1, 1, 1 }, u.counts)
        assert.equal('cab', u:decode(u:encode 'cab'))
        refused('value', function() data.tokens(write 'abx', { vocab = t.vocab }) end, "'x'")
    end)

    it('says what is wrong, and where', function()
        local e = refused('io', function() data.tokens(write 'ab\255c') end, 'at byte 2', "vocab = 'byte'")
        assert.is_truthy(e.where:find 'data_spec')
        refused('io', function() data.tokens(write 'ab\195') end, 'at byte 2')
        refused('io', function() data.tokens(write(('x'):rep(70000) .. '\192\128')) end, 'at byte 70000')
        refused('io', function() data.tokens(write '') end, 'no text')
        local t = data.tokens(write 'abc')
        refused('value', function() t:encode 'abä' end, "'ä'", 'byte 3')
        refused('value', function() t:decode { 0, 3 } end, 'entry 2 is 3', '0 to 2')
        refused('value', function() t:decode { 0.5 } end, '0.5')
        refused('value', function() data.tokens(PATH, { vocab = 'word' }) end, "'word'", "'char'")
        refused('value', function() return t.vocabulary end, 'vocab')
        refused('value', function() return data.token end, "'tokens'")
    end)
end)

describe('an order', function()
    local function list_of(n, seed, epoch)
        local p, list = shuffled(n, seed, epoch), {}
        for k = 1, n do list[k] = p[k - 1] end
        return list
    end

    it('has every number once, and is another for each seed and epoch', function()
        local seen = {}
        for _, at in ipairs { { 0, 1 }, { 0, 2 }, { 1, 1 }, { 2 ^ 53 - 1, 1 }, { 2 ^ 32, 1 } } do
            local list = list_of(100, at[1], at[2])
            local text = table.concat(list, ' ')
            assert.is_nil(seen[text])
            seen[text] = true
            table.sort(list)
            for k = 1, 100 do assert.equal(k - 1, list[k]) end
        end
    end)

    it('is the same on every machine and in every version', function()
        assert.equal('0 10 2 9 6 7 3 5 8 4 1 11', table.concat(list_of(12, 42, 3), ' '))
    end)

    it('favours no place', function()
        local count = {}
        for seed = 1, 6000 do
            local at = table.concat(list_of(3, seed, 1), '')
            count[at] = (count[at] or 0) + 1
        end
        for _, each in ipairs { '012', '021', '102', '120', '201', '210' } do
            assert.is_true(math.abs(count[each] - 1000) < 150, each .. ' ' .. count[each]) -- five deviations
        end
    end)
end)

-- ---- dtypes that Wane does not have --------------------------------------------------------------------------------
-- Checks files with dtypes that Wane does not have: every number must come out as numpy and PyTorch hold it, a number
-- that the dtype here does not hold must be named with its place, and a tensor that cannot be read must keep no other
-- from being read.
local nn = wane.nn

local function same(want, got, what)
    assert.equal(#want, #got, what)
    for k, v in ipairs(want) do
        local is_nan = v ~= v
        assert.is_true(v == got[k] or is_nan and got[k] ~= got[k],
            ('%s, %d: %.17g, not %.17g'):format(what, k, got[k], v))
    end
end

local HERE = { u1 = 'u8', b1 = 'u8', f2 = 'f32', f4 = 'f32', f8 = 'f64' }

describe('a .npy file', function()
    it('of every dtype and order of bytes gives the numbers numpy had', function()
        for _, row in ipairs(foreign.npy) do
            if row.values then
                local t = wane.data.npy(write(row.bytes))
                assert.equal(HERE[row.code:sub(2)] or 'i32', t.dtype, row.code)
                same(row.values, t:totable(), row.code)
                assert.equal('f32', (t:to 'f32' + 1):reshape(-1).dtype) -- every dtype has a way on
            end
        end
    end)

    it('names the integer that i32 does not hold', function()
        for _, row in ipairs(foreign.npy) do
            if row.wrong then
                refused('value', function() wane.data.npy(write(row.bytes)) end,
                    ('element %d of'):format(row.wrong), 'i32 does not hold')
            end
        end
    end)

    it('longer than a block is made through blocks', function()
        local n, parts = 10000, {}
        for k = 1, n do parts[k] = string.char(k % 256, math.floor(k / 256), 0, 0, 0, 0, 0, 0) end
        local head = ("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }"):format(n)
        head = head .. (' '):rep(117 - #head) .. '\n'
        local bytes = '\147NUMPY\1\0\118\0' .. head .. table.concat(parts)
        local got = wane.data.npy(write(bytes)):totable()
        for k = 1, n do assert(got[k] == k, k) end
        local at = 128 + 8 * 9000
        bytes = bytes:sub(1, at - 1) .. '\127' .. bytes:sub(at + 1)
        refused('value', function() wane.data.npy(write(bytes)) end, 'element 9000 of 10000')
    end)
end)

describe('a safetensors file', function()
    local HERE_TOO = { f16 = 'f32', e4m3 = 'f32', e5m2 = 'f32', f64 = 'f64', bf16 = 'bf16', bool = 'u8' }

    it('gives every tensor that can be read, and lists the others', function()
        local dict, info = wane.load(write(foreign.file))
        for name, want in pairs(foreign.tensors) do
            local t = assert(dict[name], name)
            assert.equal(HERE_TOO[name] or 'i32', t.dtype, name)
            same(want, t:reshape(-1):totable(), name)
        end
        local listed = {}
        for _, item in ipairs(info.unreadable) do listed[item.name] = item.dtype end
        assert.are.same({ c64 = 'C64', wide = 'I64' }, listed)
        local n = 0
        for name in pairs(dict) do
            assert.is_truthy(foreign.tensors[name])
            n = n + 1
        end
        assert.equal(12, n)
        refused('dtype', function() return dict.c64 end, "'c64'", 'C64', 'not in this version')
        refused('value', function() return dict.wide end, "'wide'", 'element 4 of 4', '1099511627776', 'i32')
        assert.is_nil(dict.none)
    end)

    it('is not saved again without the tensors that could not be read', function()
        local dict = wane.load(write(foreign.file))
        refused('value', function() wane.save(PATH .. '.x', dict) end, 'could not be read')
    end)

    it('with a tensor that no version reads is readable beside it', function()
        local function header(text) return files.little(#text, 8) .. text end
        local head = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            .. '"b":{"dtype":"FUTURE","shape":[3],"data_offsets":[4,9]},'
            .. '"c":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[9,13]}}'
        local dict, info = wane.load(write(header(head) .. '\0\0\128\63' .. '12345' .. '\0\0\0\0'))
        assert.are.same({ 1 }, dict.a:totable())
        assert.equal(2, #info.unreadable)
        refused('dtype', function() return dict.b end, 'FUTURE')
        refused('dtype', function() return dict.c end, '9 dims')
        local m = nn.module('Two', function(self) self.b = nn.Parameter(wane.ones(3)) end)()
        refused('value', function() wane.load(PATH, m) end, "'b' is (3) f32 in the model, (3) FUTURE in the file")
    end)
end)

describe('floats of another dtype', function()
    local function linear(dtype) return nn.Linear(3, 2):to(dtype) end

    local function values(m)
        local list = {}
        for _, p in ipairs(m:parameters()) do list[#list + 1] = p:to('f64'):reshape(-1):totable() end
        return list
    end

    it('fit no model without { cast = true }, and the refusal says so', function()
        wane.save(PATH, linear 'f64')
        refused('shape', function() wane.load(PATH, linear 'f32') end, 'f64 in the file', '{cast = true}')
        refused('shape', function() linear('bf16'):load_state_dict(linear('f32'):state_dict()) end, '{cast = true}')
    end)

    it('are not cast by a word that is not true', function()
        wane.save(PATH, linear 'f32')
        refused('value', function() wane.load(PATH, linear 'f32', { cast = 'f32' }) end, 'cast must be true or false')
        refused('value', function() wane.load(PATH, linear 'f32', { strict = 'false' }) end, 'strict')
        refused('value', function() linear('f32'):load_state_dict({}, { cast = 1 }) end, 'cast must be true or false')
    end)

    it('become those of the model, rounded as :to rounds', function()
        for _, from in ipairs { 'f64', 'f32', 'bf16' } do
            for _, to in ipairs { 'f64', 'f32', 'bf16' } do
                local a, b, c = linear(from), linear(to), linear(to)
                wane.save(PATH, a)
                wane.load(PATH, b, { cast = true })
                local want = {}
                for k, p in ipairs(a:parameters()) do want[k] = p:to(to):to('f64'):reshape(-1):totable() end
                assert.are.same(want, values(b))
                c:load_state_dict(a:state_dict(), { cast = true })
                assert.are.same(want, values(c))
                assert.equal(to, b:parameters()[1].dtype)
            end
        end
    end)

    it('that the dtype does not hold are named, and nothing is changed', function()
        local m = linear 'f64'
        m.bias:assign(wane.tensor({ 1, 1e300 }, { dtype = 'f64' }))
        wane.save(PATH, m)
        local small = linear 'f32'
        wane.save(PATH .. '.x', small)
        os.remove(PATH .. '.x')
        local before = programs.bytes(small:parameters())
        refused('value', function() wane.load(PATH, small, { cast = true }) end, "'bias'", 'element 2 of 2', '1e+300',
            'f32 does not hold')
        assert.are.same(before, programs.bytes(small:parameters()))
        m.bias:assign(wane.tensor({ 1 / 0, -1 / 0 }, { dtype = 'f64' }))
        wane.save(PATH, m)
        wane.load(PATH, small, { cast = true })
        assert.are.same({ 1 / 0, -1 / 0 }, small.bias:totable())
    end)

    it('are cast in optimizers too', function()
        local a, b = linear 'f32', linear 'bf16'
        local opt_a = wane.optim.Adam(a:parameters(), { lr = 0.1 })
        local opt_b = wane.optim.Adam(b:parameters(), { lr = 0.1 })
        opt_a:step(a(wane.ones(1, 3)):sum())
        wane.save(PATH, a, { optimizer = opt_a })
        local ok, e = pcall(wane.load, PATH, b, { optimizer = opt_b, cast = true })
        assert.is_true(ok, tostring(e))
        opt_b:step(b(wane.ones(1, 3, { dtype = 'bf16' })):sum())
    end)

    it('are made through a block: loading takes no memory beside the model', function()
        local big = nn.Linear(1024, 1024)
        wane.save(PATH, big:to 'f64')
        local half = nn.Linear(1024, 1024):to 'bf16'
        wane.load(PATH, half, { cast = true })
        for _ = 1, 3 do collectgarbage() end
        wane.memory.reset_peak()
        local before = wane.memory().live or wane.memory().allocated
        wane.load(PATH, half, { cast = true })
        local after = wane.memory()
        assert.equal(before, after.live or after.allocated)
        assert.is_true(after.peak <= before, after.peak - before)
    end)
end)
