-- Compares tensors with values worked out by hand or by plain Lua: creation, arithmetic, shapes, reductions and
-- lookups. Nothing here looks at plans or gradients.
local wane = require 'wane'

local function shape(t) return { unpack(t.shape) } end

describe('creation', function()
    it('copies nested tables', function()
        local t = wane.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
        assert.are.same({ 2, 3 }, shape(t))
        assert.are.equal('f32', t.dtype)
        assert.are.equal('cpu', t.device)
        assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t:totable())
    end)

    it('takes a number as a 0-d tensor', function()
        local t = wane.tensor(2.5)
        assert.are.equal(0, t:dim())
        assert.are.equal(1, t:numel())
        assert.are.equal(2.5, t:item())
        assert.are.equal(2.5, t:totable())
    end)

    it('keeps every dtype it can read back', function()
        for _, dtype in ipairs { 'f32', 'f64', 'i32', 'u8', 'i8' } do
            local t = wane.tensor({ 1, 0, 7 }, { dtype = dtype })
            assert.are.equal(dtype, t.dtype)
            assert.are.same({ 1, 0, 7 }, t:totable())
        end
        assert.are.equal(0.1, wane.tensor({ 0.1 }, { dtype = 'f64' }):totable()[1])
    end)

    it('fills, counts and makes unit matrices', function()
        assert.are.same({ { 0, 0, 0 }, { 0, 0, 0 } }, wane.zeros(2, 3):totable())
        assert.are.same({ 1, 1 }, wane.ones({ 2 }):totable())
        assert.are.same({ { 0.5, 0.5 } }, wane.full({ 1, 2 }, 0.5):totable())
        assert.are.same({ 0, 1, 2, 3 }, wane.arange(4):totable())
        assert.are.same({ 2, 4, 6 }, wane.arange(2, 8, 2):totable())
        assert.are.same({ 3, 2, 1 }, wane.arange(3, 0, -1):totable())
        assert.are.same({ { 1, 0 }, { 0, 1 } }, wane.eye(2):totable())
        assert.are.same({ 0 }, shape(wane.zeros(0)))
    end)
end)

describe('arithmetic', function()
    it('takes tensors and numbers on either side', function()
        local a, b = wane.tensor { 1, 2, 4 }, wane.tensor { 2, 2, 2 }
        assert.are.same({ 3, 4, 6 }, (a + b):totable())
        assert.are.same({ 0, 1, 3 }, (a - 1):totable())
        assert.are.same({ 9, 8, 6 }, (10 - a):totable())
        assert.are.same({ 2, 4, 8 }, (2 * a):totable())
        assert.are.same({ 0.5, 1, 2 }, (a / b):totable())
        assert.are.same({ 4, 2, 1 }, (4 / a):totable())
        assert.are.same({ 1, 4, 16 }, (a ^ 2):totable())
        assert.are.same({ -1, -2, -4 }, (-a):totable())
        assert.are.same({ 2, 2, 4 }, a:maximum(b):totable())
        assert.are.same({ 1, 2, 2 }, a:minimum(b):totable())
    end)

    it('compares into u8', function()
        local a, b = wane.tensor { 1, 2, 3 }, wane.tensor { 3, 2, 1 }
        assert.are.equal('u8', a:lt(b).dtype)
        assert.are.same({ 1, 0, 0 }, a:lt(b):totable())
        assert.are.same({ 0, 0, 1 }, a:gt(b):totable())
        assert.are.same({ 0, 1, 0 }, a:eq(b):totable())
        assert.are.same({ 1, 0, 1 }, a:ne(b):totable())
        assert.are.same({ 1, 1, 0 }, a:le(2):totable())
        assert.are.same({ 0, 1, 1 }, a:ge(2):totable())
    end)

    it('chooses with where and limits with clamp', function()
        local a = wane.tensor { -2, 0.5, 3 }
        assert.are.same({ 0, 0.5, 3 }, wane.where(a:gt(0), a, 0):totable())
        assert.are.same({ -2, 9, 9 }, wane.where(a:lt(0), a, 9):totable())
        assert.are.same({ -1, 0.5, 1 }, a:clamp(-1, 1):totable())
        assert.are.same({ -2, 0.5, 1 }, a:clamp(nil, 1):totable())
        assert.are.same({ 0, 0.5, 3 }, a:clamp(0):totable())
    end)
end)

describe('reductions and rows', function()
    local a
    before_each(function() a = wane.tensor { { 1, 5, 3 }, { 4, 2, 6 } } end)

    it('finds extremes and where they are, counting data from 0', function()
        assert.are.equal(6, a:max():item())
        assert.are.equal(1, a:min():item())
        assert.are.same({ 4, 5, 6 }, a:max(1):totable())
        assert.are.same({ 1, 2 }, a:min(2):totable())
        assert.are.equal('i32', a:argmax(-1).dtype)
        assert.are.same({ 1, 2 }, a:argmax(-1):totable())
        assert.are.equal(5, a:argmax():item())
        assert.are.same({ 0 }, wane.tensor({ { 7, 7, 7 } }):argmax(2):totable())
    end)
end)

describe('shapes', function()
    local a
    before_each(function() a = wane.arange(24):reshape(2, 3, 4) end)

    it('reshapes, with one dim left to find', function()
        assert.are.same({ 4, 6 }, shape(a:reshape(4, -1)))
        assert.are.same({ 24 }, shape(a:reshape(-1)))
        assert.are.same({ 2, 12 }, shape(a:flatten(2)))
        assert.are.equal(23, a:reshape(4, 6):totable()[4][6])
    end)

    it('permutes and transposes', function()
        local t = a:transpose(1, -1)
        assert.are.same({ 4, 3, 2 }, shape(t))
        assert.are.equal(a:totable()[2][3][1], t:totable()[1][3][2])
        local p = a:permute(2, 3, 1)
        assert.are.same({ 3, 4, 2 }, shape(p))
        assert.are.equal(a:totable()[2][3][1], p:totable()[3][1][2])
        assert.are.same({ { 1, 3 }, { 2, 4 } }, wane.tensor({ { 1, 2 }, { 3, 4 } }):t():totable())
    end)

    it('takes stretches and positions, counted from 1', function()
        assert.are.same({ { 1, 2 }, { 5, 6 } }, a[1]:narrow(2, 2, 2):narrow(1, 1, 2):totable())
        assert.are.same({ 12, 13, 14, 15 }, a[2][1]:totable())
        assert.are.equal(23, a[-1][-1][-1]:item())
        assert.are.same({ 2, 4 }, shape(a:select(2, 3)))
    end)

    it('cuts into pieces and puts them together again', function()
        local x, y, z = a:chunk(3, 2)
        assert.are.same({ 2, 1, 4 }, shape(x))
        assert.are.same(a:totable(), wane.cat({ x, y, z }, 2):totable())
        local p, q = a:split({ 1, 3 }, -1)
        assert.are.same({ 2, 3, 1 }, shape(p))
        assert.are.same(a:totable(), wane.cat({ p, q }, -1):totable())
        local s = wane.stack({ wane.tensor { 1, 2 }, wane.tensor { 3, 4 } }, 2)
        assert.are.same({ { 1, 3 }, { 2, 4 } }, s:totable())
    end)

    it('adds, drops and repeats dims of size 1', function()
        assert.are.same({ 2, 1, 3, 4 }, shape(a:unsqueeze(2)))
        assert.are.same({ 2, 3, 4, 1 }, shape(a:unsqueeze(-1)))
        assert.are.same({ 2, 3, 4 }, shape(a:unsqueeze(2):squeeze()))
        assert.are.same({ 2, 3, 4 }, shape(a:unsqueeze(1):squeeze(1)))
        assert.are.same({ { 1, 2 }, { 1, 2 }, { 1, 2 } }, wane.tensor({ 1, 2 }):expand(3, 2):totable())
    end)

    it('looks up by index', function()
        local x = wane.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
        local ids = wane.tensor({ { 2, 0 }, { 1, 1 } }, { dtype = 'i32' })
        assert.are.same({ { 3, 1 }, { 5, 5 } }, x:gather(2, ids):totable())
        local rows = wane.tensor({ 1, 0, 1 }, { dtype = 'i32' })
        assert.are.same({ { 4, 5, 6 }, { 1, 2, 3 }, { 4, 5, 6 } }, x:index_select(1, rows):totable())
        assert.are.same({ { 2, 1, 2 }, { 5, 4, 5 } }, x:index_select(2, rows):totable())
    end)

    it('answers dim, numel and size', function()
        assert.are.equal(3, a:dim())
        assert.are.equal(24, a:numel())
        assert.are.equal(4, a:size(-1))
        assert.are.equal('(2, 3, 4)', tostring(a.shape))
    end)
end)

describe('values', function()
    -- Lua tells its own types apart by the bits of NaNs.
    it('are numbers in Lua, whatever NaN the bytes hold', function()
        local binding = require 'wane.ffi'
        for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
            local width = binding.element_bytes[dtype]
            for byte = 0xf0, 0xff do
                local raw = binding.array(dtype, 3)
                binding.fill(raw, 2 * width, 0xff)
                binding.cast('uint8_t *', raw)[2 * width - 2] = byte
                local list = wane.from(raw, { 3 }, dtype):totable()
                for k = 1, 2 do
                    assert.are.equal('number', type(list[k]))
                    assert.is_true(list[k] ~= list[k])
                end
                assert.are.equal(0, list[3])
            end
        end
        local raw = binding.array('f64', 2)
        local words = binding.cast('uint32_t *', raw)
        words[0], words[1], words[3] = 1, 0xfff00000, 0xfff00000 -- a NaN in its lowest bit, and -infinity
        local list = wane.from(raw, { 2 }, 'f64'):totable()
        assert.is_true(list[1] ~= list[1])
        assert.are.equal(-math.huge, list[2])
    end)

    it('hand out their shape as a copy', function()
        local a = wane.zeros(2, 3)
        a.shape[1] = 99
        assert.are.same({ 2, 3 }, shape(a))
    end)

    it('change dtype by a node', function()
        local a = wane.tensor { 1.75, -1.75 }
        assert.are.equal('i32', a:to('i32').dtype)
        assert.are.same({ 1, -1 }, a:to('i32'):totable())
        assert.are.equal(a, a:to 'f32')
        assert.are.same({ 1.75, -1.75 }, a:to('f64'):to('f32'):totable())
    end)

    it('have no bytes on meta', function()
        local a = wane.randn(4, 4, { device = 'meta' })
        assert.are.equal('meta', a.device)
        local b = a:matmul(a)
        assert.are.equal('meta', b.device)
        assert.are.equal('tensor (4, 4) f32 meta', tostring(b))
        local moved = wane.zeros(3):to 'meta'
        assert.are.equal('meta', moved.device)
        assert.are.same({ 3 }, shape(moved))
        assert.is_false(pcall(b.totable, b))
    end)

    it('copy from and to memory of the caller', function()
        local ffi = require 'ffi'
        local source = ffi.new('float[6]', { 1, 2, 3, 4, 5, 6 })
        local a = wane.from(source, { 2, 3 }, 'f32')
        source[0] = 99
        assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, a:totable())
        local target = ffi.new('float[6]')
        ;(a * 10):copy_to(target)
        assert.are.equal(60, target[5])
    end)

    it('print whole when small, in numbers when large', function()
        assert.are.equal('tensor (2, 2) f32\n[[1., 2.],\n [3., 4.]]', tostring(wane.tensor { { 1, 2 }, { 3, 4 } }))
        assert.are.equal('tensor (2) f32 [0.5000, 1.2500]', tostring(wane.tensor { 0.5, 1.25 }))
        assert.are.equal('tensor (3) i32 [ 1, 20,  3]', tostring(wane.tensor({ 1, 20, 3 }, { dtype = 'i32' })))
        local row = '[2., 2., 2., ..., 2., 2., 2.]'
        assert.are.equal('tensor (40, 40) f32: mean 2, std 0, min 2, max 2, nan 0\n['
            .. (row .. ',\n '):rep(3) .. '...,\n ' .. (row .. ',\n '):rep(2) .. row .. ']',
            tostring(wane.full({ 40, 40 }, 2)))
    end)

    it('print the corners of a large one: of long dims both ends, of short dims all', function()
        assert.are.equal('\n[   0.,    1.,    2., ..., 1998., 1999., 2000.]',
            tostring(wane.arange(0, 2001)):match '\n.*')
        assert.are.equal('\n[[   0.,    1.,    2., ...,  998.,  999., 1000.],\n '
            .. '[1001., 1002., 1003., ..., 1999., 2000., 2001.]]',
            tostring(wane.arange(0, 2002):reshape(2, 1001)):match '\n.*')
        local text = tostring(wane.zeros(3, 3, 3, 3, 3, 3, 3, 3))
        assert.is_true(select(2, text:gsub('0%.', '')) <= 256, #text)
    end)
end)
