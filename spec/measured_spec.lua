-- Checks what wane profile measures of the machine's kernels (plan/costs/tuning.lua): it is kept and set by the next
-- process, and a file of another processor, of an earlier version, or with nonsense is named and left aside.
local helper = require 'spec.helper'
local costs_file = require 'wane.plan.costs.file'

describe('what is measured', function()
    local file
    before_each(function() file = os.tmpname() end)
    after_each(function() os.remove(file) end)

    local function write(text)
        local out = assert(io.open(file, 'w'))
        out:write(text)
        out:close()
    end
    local function read()
        local f = assert(io.open(file))
        local text = f:read '*a'
        f:close()
        return text
    end
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
        assert.is_truthy(read():find(HEAD .. 'tuning\tstream_least 8388608\n', 1, true))
        assert.matches('^stream_least 8.00 MiB, .*%(measured%)', run(SHOW))
        assert.matches('kept in', run [[local w = require 'wane' print(w.profile(function() return w.ones(2):sum() end,
            { steps = 1, anyway = true }))]])
        assert.matches('stream_least 8.00 MiB', run(SHOW)) -- seconds are added, and the rest stays
    end)

    it('is a value of each number that is measured, or nothing on a busy machine', function()
        local shown = run(MEASURE .. SHOW)
        assert.is_true(shown:find '%(measured%)' ~= nil or shown:find 'something else ran' ~= nil, shown)
        if shown:find '%(measured%)' then assert.matches('\ntuning\t[%w_]+ %d+', read()) end
    end)

    it('stays as it is where bits depend on it', function()
        write(HEAD .. 'tuning\tbf16_widened 1\n')
        assert.equal('1\n', run [[require 'wane' local t = require 'wane.plan.costs.tuning'
            print((t.measure({ bf16_widened = 1 }, 2^22) or {}).bf16_widened)]])
        run(MEASURE)
        assert.matches('\ntuning\t[^\n]*bf16_widened 1', read())
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
