-- Checks the numbers of kernels that depend on the machine (kernels/cpu/backend/tuning.h): presets come from the
-- caches, and no value changes a bit unless it says so. What wane profile measures of them (plan/costs/tuning.lua) is
-- kept and set by the next process, and a file of another processor, of an earlier version, or with nonsense is named
-- and left aside.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local op = require 'wane.tensor.op'
local programs = require 'spec.support.programs'
local costs_file = require 'wane.plan.costs.file'
local files = require 'spec.support.files'
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

describe('what is measured', function()
    local file
    before_each(function() file = os.tmpname() end)
    after_each(function() os.remove(file) end)

    local function write(text) files.write(file, text) end
    local PATH = [[package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path ]]
    -- Runs Lua code in a process whose file of costs is `file`; returns what it prints, errors too.
    local function run(code, environment)
        return (helper.shell(([[env %s WANE_COSTS='%s' %s -e "%s" 2>&1]]):format(environment or '', file,
            helper.luajit or 'luajit', PATH .. code)))
    end
    local MEASURE = [[require 'wane' require('wane.plan.costs').machine { side = 64, elements = 4096, bytes = 2^22 } ]]
    local SHOW = [[require 'wane' print(require('wane.plan.costs.tuning').text())]]
    local PLAN = [[local w = require 'wane' w.eval(w.ones(3):exp()) ]]
    local HEAD = 'processor\t' .. costs_file.processor() .. '\n'

    it('is kept, and set when the next process starts', function()
        os.remove(file)
        run([[require 'wane' local t = require 'wane.plan.costs.tuning' ]]
            .. [[t.measure = function() return { stream_least = 8 * 2^20 } end ]] .. MEASURE)
        assert.is_truthy(files.read(file):find(HEAD .. 'tuning\tstream_least 8388608\n', 1, true))
        assert.matches('^stream_least 8.00 MiB, .*%(measured%)', run(SHOW))
        assert.matches('kept in', run [[local w = require 'wane' print(w.profile(function() return w.ones(2):sum() end,
            { steps = 1, anyway = true }))]])
        assert.matches('stream_least 8.00 MiB', run(SHOW)) -- seconds are added, and the rest stays
    end)

    it('is a value of each number that is measured, or nothing on a busy machine', function()
        local shown = run(MEASURE .. SHOW)
        assert.is_true(shown:find '%(measured%)' ~= nil or shown:find 'something else ran' ~= nil, shown)
        if shown:find '%(measured%)' then assert.matches('\ntuning\t[%w_]+ %d+', files.read(file)) end
    end)

    it('stays as it is where bits depend on it', function()
        write(HEAD .. 'tuning\tbf16_widened 1\n')
        assert.equal('1\n', run [[require 'wane' local t = require 'wane.plan.costs.tuning'
            print((t.measure({ bf16_widened = 1 }, 2^22) or {}).bf16_widened)]])
        run(MEASURE)
        assert.matches('\ntuning\t[^\n]*bf16_widened 1', files.read(file))
        local has_pairs = require('wane.plan.costs.tuning').rows().bf16_widened.most == 1
        assert.matches('bf16_widened ' .. (has_pairs and 'on' or 'off'), run(SHOW))
    end)

    it('is not used when it is of another processor, of an earlier version, or nonsense', function()
        local preset = run(SHOW, 'WANE_NOTHING=1'):match '^(.-) %('
        local tuned = 'tuning\tstream_least 8388608\n'
        local number = 'cannot be read %(its line 2 has a number that no machine measures%)'
        for _, case in ipairs {
            { 'processor\tAnother 9000; avx512\n' .. tuned, 'was measured on another processor %(Another 9000; avx512; '
                .. 'this is [^\n]+; \'wane profile\' measures it%)' },
            { tuned, 'is of an earlier version, which did not note the processor %(.*%)' },
            { HEAD .. 'tuning\tstream_least -1\n', number },
            { HEAD .. 'tuning\tstream_least nan\n', number },
            { HEAD .. 'tuning\tstream_least 1e300\n', number },
            { 'nonsense\n', 'cannot be read %(no line of it is one that wane.profile writes%)' },
        } do
            write(case[1])
            assert.matches('^' .. preset:gsub('%p', '%%%0') .. ' %(preset: .* ' .. case[2], run(SHOW))
            local said = run(PLAN)
            assert.matches('^wane: the file of costs [^\n]+ ' .. case[2] .. '; plans take assumed rates, and kernels '
                .. 'preset numbers\n$', said)
        end
    end)

    it('is not used where reading fails', function()
        os.remove(file)
        file = '/proc/self/mem'
        local said = run(PLAN)
        assert.matches('^wane: the file of costs /proc/self/mem cannot be read %([^\n]+%); plans take', said)
    end)

    it('is read from a file whose lines an editor ended its own way, and from one without numbers', function()
        write((HEAD .. 'tuning\tstream_least 8388608\n'):gsub('\n', '\r\n'))
        assert.matches('^stream_least 8.00 MiB, .*%(measured%)', run(SHOW))
        assert.equal('', run(PLAN))
        write(HEAD)
        assert.equal('', run(PLAN))
    end)

    it('is left out where another version knew more numbers, or had other limits', function()
        write(HEAD .. 'tuning\tstream_least 8388608 unheard_of 7 stream_ahead 1125899906842624\n')
        assert.matches('^stream_least 8.00 MiB, stream_least_math %S+ MiB, stream_ahead 4.00 KiB, .*%(measured%)',
            run(SHOW))
        assert.equal('', run(PLAN))
    end)
end)
