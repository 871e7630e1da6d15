-- Checks files with dtypes that Wane does not have: every number must come out as numpy and PyTorch hold it, a number
-- that the dtype here does not hold must be named with its place, and a tensor that cannot be read must keep no other
-- from being read.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local programs = require 'spec.support.programs'
local fixture = require 'spec.fixtures.foreign_dtypes'

local nn = wane.nn
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

local function write(text) return files.write(PATH, text) end
local refused = helper.refused

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
        for _, row in ipairs(fixture.npy) do
            if row.values then
                local t = wane.data.npy(write(row.bytes))
                assert.equal(HERE[row.code:sub(2)] or 'i32', t.dtype, row.code)
                same(row.values, t:totable(), row.code)
                assert.equal('f32', (t:to 'f32' + 1):reshape(-1).dtype) -- every dtype has a way on
            end
        end
    end)

    it('names the integer that i32 does not hold', function()
        for _, row in ipairs(fixture.npy) do
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
        local dict, info = wane.load(write(fixture.file))
        for name, want in pairs(fixture.tensors) do
            local t = assert(dict[name], name)
            assert.equal(HERE_TOO[name] or 'i32', t.dtype, name)
            same(want, t:reshape(-1):totable(), name)
        end
        local listed = {}
        for _, item in ipairs(info.unreadable) do listed[item.name] = item.dtype end
        assert.are.same({ c64 = 'C64', wide = 'I64' }, listed)
        local n = 0
        for name in pairs(dict) do
            assert.is_truthy(fixture.tensors[name])
            n = n + 1
        end
        assert.equal(12, n)
        refused('dtype', function() return dict.c64 end, "'c64'", 'C64', 'not in this version')
        refused('value', function() return dict.wide end, "'wide'", 'element 4 of 4', '1099511627776', 'i32')
        assert.is_nil(dict.none)
    end)

    it('is not saved again without the tensors that could not be read', function()
        local dict = wane.load(write(fixture.file))
        refused('value', function() wane.save(PATH .. '.x', dict) end, 'could not be read')
    end)

    it('with a tensor that no version reads is readable beside it', function()
        local function header(text)
            return string.char(#text % 256, math.floor(#text / 256), 0, 0, 0, 0, 0, 0) .. text
        end
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

    it('of 16 bits, as PyTorch saves half models, load into f32 as they are', function()
        local head = '{"weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}}'
        write(string.char(#head, 0, 0, 0, 0, 0, 0, 0) .. head .. '\0\62\0\192')
        local m = nn.Linear(2, 1, { bias = false })
        wane.load(PATH, m)
        assert.are.same({ { 1.5, -2 } }, m.weight:totable())
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

describe('an IDX file', function()
    it('of 16-bit integers becomes i32', function()
        local t = wane.data.idx(write '\0\0\11\1\0\0\0\3\128\0\255\255\127\255')
        assert.are.same({ { -32768, -1, 32767 }, 'i32' }, { t:totable(), t.dtype })
    end)
end)

