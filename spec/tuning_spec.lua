-- Checks the numbers of kernels that depend on the machine (kernels/cpu/backend/tuning.h): presets come from the
-- caches, and no value changes a bit unless it says so.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local op = require 'wane.tensor.op'
local programs = require 'spec.support.programs'
local tuning = require 'wane.plan.costs.tuning'
local C = binding.C

local CPU = op.device('cpu', 'tuning_spec')

-- Adds the bytes of products that take several blocks, or few steps of k and many outputs.
local function add_products(found)
    for _, dtype in ipairs { 'f32', 'bf16' } do
        for _, size in ipairs { { 530, 410, 300 }, { 30, 700, 520 }, { 600, 600, 24 } } do
            local m, n, k = unpack(size)
            wane.manual_seed(m)
            local model = wane.nn.Linear(k, n, { dtype = dtype })
            local x = wane.randn(m, k, { dtype = dtype, requires_grad = true })
            local y = model(x)
            y:sum():backward()
            local name = ('linear of %d x %d x %d, %s'):format(m, n, k, dtype)
            found[name], found[name .. ', dX'] = gradcheck.bytes(y), gradcheck.bytes(x.grad)
            found[name .. ', dW'] = gradcheck.bytes(model.weight.grad)
        end
    end
    return found
end

-- Returns the bytes of all results of all records, by name.
local function results()
    local found, count = {}, 0
    for _, name in ipairs(programs.ops()) do
        case_inputs.each(name, function(case, float)
            if float ~= 'f32' and not helper.is_long then return end
            for _, entry in ipairs(case_inputs.run(case, float, name, CPU)) do
                found[('%s, %s, %s, %s'):format(name, case.name, float, entry.what)] = entry.bytes
                count = count + 1
            end
        end)
    end
    return add_products(found), count
end

local LOOP = [[env WANE_THREADS=2 %s -e "
    package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
    local wane, C = require 'wane', require('wane.ffi').C
    local grain, number = %.0f, %d
    C.wn_tune(number, 2^40)
    local x = wane.eval(wane.ones(65536))
    C.wn_tune(number, grain)
    wane.eval(x + x)
    local threads = 0
    for _ in io.popen('ls /proc/' .. io.open('/proc/self/stat'):read '*n' .. '/task'):lines() do
        threads = threads + 1
    end
    print(threads)"]]

describe('a number of kernels', function()
    local rows = tuning.rows()
    after_each(function()
        for _, row in ipairs(rows) do C.wn_tune(row.number, row.value) end
    end)

    it('is preset within its limits, from the caches of the processor', function()
        assert.is_true(#rows >= 3)
        for i, row in ipairs(rows) do
            assert.equal(i - 1, row.number)
            assert.equal(row.preset, row.value, row.name) -- specs read no file of costs
            assert.is_true(row.least <= row.preset and row.preset <= row.most, row.name)
        end
        local third = tonumber(binding.text(C.wn_processor()):match '(%d+) MiB$')
        local least = rows.stream_least.preset
        if least == 256 then return end -- the build with sanitizers
        assert.is_true(least >= 4 * 2 ^ 20 and least <= 64 * 2 ^ 20)
        if third and third >= 4 and third <= 64 then assert.equal(third * 2 ^ 20, least) end
    end)

    it('changes no bit, unless it says that it does', function()
        local expected, count = results()
        assert.is_true(count > 700)
        for _, value_of in ipairs { function(row) return row.least end, function(row) return row.most end } do
            for _, row in ipairs(rows) do
                if not row.is_bits then assert.equal(0, C.wn_tune(row.number, value_of(row))) end
            end
            for name, bytes in pairs(results()) do
                if bytes ~= expected[name] then error('other bits in ' .. name) end
            end
        end
    end)

    it('changes the bits that it says', function()
        local row, before = rows.bf16_widened, add_products {}
        if row.most == 0 then return end -- this processor multiplies no pairs of bf16
        assert.equal(0, C.wn_tune(row.number, 1))
        local changed = 0
        for name, bytes in pairs(add_products {}) do
            if bytes ~= before[name] then
                assert.is_truthy(name:find 'bf16', name)
                changed = changed + 1
            end
        end
        assert.is_true(changed > 0)
    end)

    it('lets later plans have other keys', function()
        local x = wane.eval(wane.ones(7))
        local function made()
            local before = C.wn_debug_get 'plans_made'
            wane.eval(x:exp())
            return tonumber(C.wn_debug_get 'plans_made' - before)
        end
        made()
        assert.equal(0, made())
        C.wn_tune(0, rows[1].value)
        assert.equal(1, made())
    end)

    -- Returns the threads that a process of two has after a loop of 65536 elements of memory-bound work.
    local function threads_with(grain)
        return tonumber((helper.shell((LOOP):format(helper.luajit or 'luajit', grain, rows.thread_grain.number))))
    end

    it('decides with how many elements a loop runs on one more thread', function()
        assert.equal(2, threads_with(rows.thread_grain.preset))
        assert.equal(1, threads_with(rows.thread_grain.preset + 1))
        assert.equal(1, threads_with(2 ^ 40))
    end)

    it('is refused outside its limits, and where there is none', function()
        for _, row in ipairs(rows) do
            for _, value in ipairs { row.least - 1, row.most + 1 } do
                assert.not_equal(0, C.wn_tune(row.number, value))
                assert.matches(('%s must be from %%d+ to %%d+, got %%-?%%d+'):format(row.name),
                    binding.text(C.wn_message()))
            end
            assert.equal(row.value, tuning.rows()[row.name].value)
        end
        for _, number in ipairs { -1, #rows, 2 ^ 31 - 1 } do
            assert.not_equal(0, C.wn_tune(number, 1))
            assert.matches('there is no tunable', binding.text(C.wn_message()))
        end
    end)
end)
