-- Checks the classes of kernels (kernels/cpu/backend/class.h): WANE_KERNELS forces one, and says so; bits are equal
-- among the classes wherever one sum of fused multiply-adds, or no product at all, makes a number; each class is one
-- object with one door.
local helper = require 'spec.helper'
local tiles = require 'spec.support.tiles'

local ORDER = { 'plain', 'avx2', 'avx512', 'neon' }

-- Returns the line of `wane version` that begins with a word, nil where there is none.
local function line(environment, word)
    local text, code = helper.shell(environment .. ' build/wane version')
    assert.equal(0, code, text)
    return text:match('\n' .. word .. ' +([^\n]*)\n')
end

local here = tiles.here()

describe('WANE_KERNELS', function()
    it('forces a class of this processor, which the version says', function()
        for _, name in ipairs(here) do
            assert.matches('^' .. name .. ' %([^)]+%), as WANE_KERNELS says$', line('WANE_KERNELS=' .. name, 'kernels'))
            assert.is_nil(line('WANE_KERNELS=' .. name, 'notice'))
        end
    end)

    it('is the fastest class unless set', function()
        local fastest = '^' .. here[#here] .. ' %([^)]+%)$'
        for _, environment in ipairs { 'env -u WANE_KERNELS', 'WANE_KERNELS=', 'WANE_KERNELS=auto' } do
            assert.matches(fastest, line(environment, 'kernels'))
            assert.is_nil(line(environment, 'notice'))
        end
    end)

    it('says what is used instead of a class that is not here, and of a word that makes no sense', function()
        local fastest = here[#here]
        for _, name in ipairs(ORDER) do
            if not here[name] then
                assert.equal(('WANE_KERNELS=%s: this processor lacks that class (it has %s); %s is used'):format(name,
                    table.concat(here, ', '), fastest), line('WANE_KERNELS=' .. name, 'notice'))
                assert.matches('^' .. fastest .. ' %([^)]+%)$', line('WANE_KERNELS=' .. name, 'kernels'))
            end
        end
        assert.equal(('WANE_KERNELS=AVX2 makes no sense (auto, %s); %s is used'):format(table.concat(here, ', '),
            fastest), line('WANE_KERNELS=AVX2', 'notice'))
    end)

    it('says so in a script too, once, when it first runs something', function()
        local text = helper.shell(([[env WANE_KERNELS=AVX2 %s -e "
            package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
            local wane = require 'wane'
            io.stderr:write('before ')
            for i = 1, 2 do io.stderr:write(wane.ones(2):sum():item(), ' ') end" 2>&1]]):format(helper.luajit
            or 'luajit'))
        assert.matches('^before wane: WANE_KERNELS=AVX2 makes no sense %([^\n]*%); %w+ is used\n2 2 $', text)
    end)
end)

describe('measured seconds', function()
    -- Returns the name of the file of costs in a process with this environment.
    local function file(environment)
        local text, code = helper.shell(('env -u WANE_KERNELS -u WANE_COSTS XDG_CACHE_HOME=/nowhere WANE_THREADS=2 '
            .. [[%s %s -e 'package.path = "lua/?.lua;lua/?/init.lua;" .. package.path; ]]
            .. [[require "wane" print(require("wane.plan.costs").file())']]):format(environment,
            helper.luajit or 'luajit'))
        assert.equal(0, code, text)
        return text
    end

    it('of a class that is named do not mix with those of the fastest one', function()
        assert.equal('/nowhere/wane/costs-2.txt\n', file '')
        for _, name in ipairs(here) do
            assert.equal(('/nowhere/wane/costs-%s-2.txt\n'):format(name), file('WANE_KERNELS=' .. name))
        end
        assert.equal('/nowhere/wane/costs-2.txt\n', file 'WANE_KERNELS=nonsense')
    end)
end)

-- ---- bits ------------------------------------------------------------------------------------------------------
-- Ops whose numbers differ between plain and the other classes of x86-64, because plain rounds each product of a sum
-- before it is added: those of products and of attention.
local PRODUCTS = { matmul = true, matmul_map = true, linear = true, linear_map = true, product_update = true,
    attention = true, attention_grad = true, conv2d = true, conv2d_dx = true, conv2d_dw = true,
    conv2d_map = true, training = true }

-- Returns { 'op, case, float, what' = digest } of spec/support/class_bits.lua by a class.
local function bits_of(class)
    local text, code = helper.shell(('WANE_KERNELS=%s %s spec/support/class_bits.lua 2>&1'):format(class,
        helper.luajit or 'luajit'))
    assert.equal(0, code, text)
    local out, n = {}, 0
    for op, what, digest in text:gmatch '(%S+)\t([^\t\n]+)\t(%x+)\n' do
        out[op .. ', ' .. what] = digest
        n = n + 1
    end
    assert(n > 2500, 'few results: ' .. n)
    return out
end

-- Returns the names of results whose bits differ, but those for which is_free(name) is true.
local function differences(a, b, is_free)
    local out = {}
    for name, digest in pairs(a) do
        if b[name] ~= digest and not is_free(name) then out[#out + 1] = name end
    end
    table.sort(out)
    return out
end

describe('the classes', function()
    local bits = {}
    setup(function()
        for _, name in ipairs(here) do bits[name] = bits_of(name) end
    end)

    it('agree to the bit with the portable one wherever no product is summed', function()
        for k = 2, #here do
            assert.same({}, differences(bits[here[1]], bits[here[k]], function(name)
                return PRODUCTS[name:match '^[%w_]+']
            end))
        end
    end)

    -- AVX-512's instruction for pairs of bf16 rounds in an order of its own.
    it('agree to the bit with each other in every op of f32 and f64', function()
        for k = here[1] == 'plain' and here[2] ~= 'neon' and 3 or 2, #here do
            assert.same({}, differences(bits[here[k - 1]], bits[here[k]], function(name)
                return name:find ', bf16, ' and PRODUCTS[name:match '^[%w_]+']
            end))
        end
    end)

    it('see a difference where there is one', function()
        local a = { ['sum, f32, x'] = '1', ['matmul, f32, x'] = '1' }
        local b = { ['sum, f32, x'] = '2', ['matmul, f32, x'] = '2' }
        assert.same({ 'sum, f32, x' }, differences(a, b, function(name) return PRODUCTS[name:match '^[%w_]+'] end))
    end)
end)

describe('the object of a class', function()
    it('has one symbol, its door', function()
        local seen = 0
        for _, name in ipairs(ORDER) do
            local file = io.open(helper.root .. '/build/release/' .. name .. '/cpu.o')
            if file then
                file:close()
                seen = seen + 1
                local symbols = helper.lines(('nm -g --defined-only build/release/%s/cpu.o'):format(name))
                assert.equal(1, #symbols, table.concat(symbols, '\n'))
                assert.matches(' wn__cpu_class_' .. name .. '$', symbols[1])
            end
        end
        assert(seen >= 2, 'the objects of the classes are not where they were built')
    end)
end)
