-- Checks the command line, build/wane, as a shell sees it: what it prints, its exit codes, and that it works from any
-- folder and through links, with nothing exported.
local files = require 'spec.support.files'
local helper = require 'spec.helper'

local script = files.script

-- Returns the absolute folder of the checkout, from whichever folder the specs were started.
local function root()
    return helper.lines('pwd -P')[1]
end

describe('wane', function()
    teardown(files.forget)

    it('shows how it is used', function()
        local text, code = helper.shell('build/wane')
        assert.matches('^usage: wane COMMAND', text)
        for _, command in ipairs(require 'wane.cli.commands') do
            assert.truthy(text:find('\n  ' .. command.name .. '  ', 1, true), command.name)
        end
        assert.equal(0, code)
        for _, words in ipairs { 'help', '--help', '-h' } do
            assert.equal(text, (helper.shell('build/wane ' .. words)), words)
        end
    end)

    it('refuses an unknown command with code 2', function()
        local text, code = helper.shell('build/wane rnu x.lua')
        assert.matches("^wane: unknown command 'rnu'; did you mean 'run'%?\nusage: wane COMMAND [^\n]*\n$", text)
        assert.equal(2, code)
    end)

    it('says what the machine has', function()
        local text, code = helper.shell('build/wane version')
        assert.equal(text, (helper.shell('build/wane -v')))
        assert.matches('^wane %d+%.%d+', text)
        assert.matches('\ndevices    [^\n]*cpu', text)
        assert.matches('\ndevices    [^\n]*meta', text)
        assert.matches('\nthreads    %d+\n', text)
        assert.matches('\nlibraries  [^\n]*libwane%.so', text)
        assert.equal(0, code)
    end)

    it('heeds WANE_THREADS, and says what is used instead of one that makes no sense', function()
        local one = helper.shell('WANE_THREADS=1 build/wane version')
        assert.matches('\nthreads    1\n', one)
        assert.not_matches('notice', one)
        local usual = helper.shell('unset WANE_THREADS; build/wane version'):match '\nthreads    (%d+)\n'
        for _, given in ipairs { 'many', '0', '-2', '65', '2x', '1.5' } do
            local text, code = helper.shell('WANE_THREADS=' .. given .. ' build/wane version')
            assert.equal(usual, text:match '\nthreads    (%d+)\n', given)
            assert.equal(('WANE_THREADS=%s makes no sense (1 to 64); what this process may use is used: %s')
                :format(given, usual), text:match '\nnotice     ([^\n]*)\n')
            assert.equal(0, code)
        end
    end)

    -- Measuring takes seconds, so a table stands in for what measures: it says whether tensors have their methods.
    it('measures the machine with tensors that are whole', function()
        local text, code = helper.shell([[${LUAJIT:-luajit} -e "
            package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
            package.loaded['wane.plan.costs'] = { machine = function()
                local t = require('wane.tensor.create').ones(2):to 'f64'
                local n = tostring(t.dtype) == 'f64' and 1e9 or 0
                return { f64 = n, f32 = n, bf16 = n, bytes = n, launch = 1 }, 'here'
            end }
            print(require('wane.cli').command { 'profile' })"]])
        assert.matches('f64 1, f32 1, bf16 1 GFLOP/s, 1 GB/s', text, 1, true)
        assert.matches('kept in here\n0', text, 1, true)
        assert.equal(0, code)
    end)

    it('says which kernels the processor gets', function()
        local text = helper.shell('env -u WANE_KERNELS build/wane version')
        local cpu = table.concat(helper.lines 'cat /proc/cpuinfo')
        local want = cpu:find 'avx512_bf16' and 'avx512 (AVX-512, bf16 too)'
            or cpu:find 'avx512vl' and 'avx512 (AVX-512)' or cpu:find 'avx2' and 'avx2 (AVX2)'
            or jit.arch == 'arm64' and 'neon (NEON)' or 'plain (plain C)'
        assert.equal(want, text:match '\nkernels    ([^\n]*)\n')
    end)
end)

describe('wane run', function()
    it('gives the script its arguments', function()
        local name = script 'print(arg[0], arg[1], select("#", ...), (...))'
        local text, code = helper.shell("build/wane run " .. name .. " 'a b' --c")
        assert.equal(name .. '\ta b\t2\ta b\n', text)
        assert.equal(0, code)
    end)

    it('works from any folder, through links and blanks in names, with nothing exported', function()
        local dir = helper.lines('mktemp -d')[1]
        finally(function() helper.shell('rm -r ' .. dir) end)
        local name = script 'print(require("wane").ones(2, 3):sum():item())'
        helper.shell(('cd %s && ln -s %s/build/wane one && ln -s one two && mkdir "a b" && ln -s "%s" "a b/w"'):format(
            dir, root(), root()))
        for _, command in ipairs { ('cd / && "%s"/build/wane'):format(root()),
            ('cd %s && env -i PATH="$PATH" ./two'):format(dir), ('cd "%s/a b" && w/build/wane'):format(dir) } do
            assert.equal('6\n', (helper.shell(('%s run %s'):format(command, name))), command)
        end
    end)

    it('says what is wrong with a script, with its line', function()
        for _, row in ipairs {
            { script 'local x = 1\nerror("stop here")', '^wane: [^\n]*:2: stop here\nstack traceback:', 1 },
            { script 'local wane = require "wane"\nlocal a = wane.ones(2)\nreturn a + wane.ones(3)',
                '^wane: [^\n]*:3: [^\n]*%(2%)', 1 },
            { script 'x = = 1', "^wane: [^\n]*:1: unexpected symbol near '='\n$", 1 },
            { 'no/such/script.lua', '^wane: no/such/script.lua: cannot be read\n$', 2 },
            { '', '^wane: a script is missing\nusage: wane run SCRIPT [^\n]*\n$', 2 },
        } do
            local text, code = helper.shell('build/wane run ' .. row[1])
            assert.matches(row[2], text)
            assert.equal(row[3], code)
        end
    end)

    it('shows the frames of the script below its error, also of functions that Wane calls', function()
        local source = [[
            local wane = require 'wane'
            local nn = wane.nn
            local Net = nn.module('Net', function(self) self.up = nn.Linear(7, 2) end)
            function Net:forward(x, fn) local y = fn and fn(x) or self.up(x) return y end
            local net, x, way = Net(), wane.zeros(2, 3), ...
            local custom = wane.custom(function() error 'in custom' end, function() end)
            local function step()
                local w = net(wane.zeros(2, 7))
                if way == 'policy' then (w * w):sum():backward { policy = function() error 'in policy' end } end
                local _ = way == 'custom' and net(x, custom) or way == 'table' and error {} or net(x)
            end
            step()]]
        local name = script(source)
        for way, line in pairs { op = 4, custom = 6, policy = 9, table = 10 } do
            local text, code = helper.shell('build/wane run ' .. name .. ' ' .. way)
            assert.equal(1, code)
            local first = text:match '\nstack traceback:\n\t[^\n]-:(%d+): in'
            assert.equal(line, tonumber(first), text)
            assert.matches(":12: in main chunk\n", text)
            assert.matches("in function 'step'", text)
            assert.is_nil(text:find('lua/wane/', 1, true), text)
        end
    end)
end)

describe('wane new, then plan, measure and sweep', function()
    local dir, name

    setup(function()
        dir = helper.lines('mktemp -d')[1]
        name = dir .. '/x.lua'
    end)
    teardown(function() helper.shell('rm -r ' .. dir) end)

    local function wane(words)
        return helper.shell('build/wane ' .. words:gsub('NAME', name):gsub('DIR', dir))
    end

    local function read(path) return assert(files.read((path:gsub('DIR', dir)))) end

    it('write a script that runs, and no other over it', function()
        local text, code = wane 'new NAME'
        assert.equal(('wrote %s; next:\n  wane run %s\n  wane plan %s --policy sqrt\n  wane measure %s\n'):format(name,
            name, name, name), text)
        assert.equal(0, code)
        assert.is_true(select(2, read(name):gsub('\n', '')) <= 32)
        assert.is_truthy(read(name):find('wane run ' .. name, 1, true))
        text, code = wane 'run NAME'
        assert.matches('^loss 2%.%d+\n$', text)
        assert.equal(0, code)
        text, code = wane 'new NAME'
        assert.matches('there is such a file already', text)
        assert.equal(2, code)
        assert.equal(2, select(2, wane 'new'))
        assert.equal(1, select(2, wane 'new DIR/no/such/x.lua'))
    end)

    it('plan it', function()
        local text, code = wane 'plan NAME --depth 3 --policy sqrt'
        assert.matches('^plan on cpu: peak', text)
        assert.equal(0, code)
    end)

    it('plan it for a program that reads JSON', function()
        local json = require 'wane.report.json'
        local text, code = wane 'plan NAME --depth 3 --json'
        assert.equal(0, code)
        local plan = json.decode(text:match '([^\n]*)\n$')
        assert.is_true(plan.peak > 0 and plan.reserved >= plan.peak and plan.seconds > 0)
        local sum = 0
        for _, bytes in pairs(plan.kinds) do sum = sum + bytes end
        assert.equal(plan.peak, sum)
        text, code = wane 'plan NAME --depth 3 --json --budget 1KiB'
        assert.equal(1, code)
        assert.matches('the least that would do is', json.decode(text:match '([^\n]*)\n$').refused)
    end)

    it('print the table of a sweep whose page cannot be written', function()
        local text, code = helper.shell(("trap '' XFSZ; ulimit -f 4; build/wane sweep %s --policy save_all --depth 2 "
            .. '--batch 8 --repeats 1 --report %s/full.html'):format(name, dir))
        assert.equal(1, code, text)
        assert.matches('^batch  depth  policy.-\n +8 +2 +save_all', text)
        assert.matches('wane: [^\n]*full.html', text)
    end)

    it('measure it', function()
        local text, code = wane 'measure NAME --depth 3 --policy sqrt --steps 2 --warmup 0'
        assert.matches('^2 steps %(0 warmup, trained%), median', text)
        assert.matches('\npeak +[%d,]+ +[%d,]+ +0\n', text)
        assert.equal(0, code)
        local lines = wane 'measure NAME --depth 3 --policy sqrt --steps 2 --lines'
        local function peak(t) return tonumber((t:match '\npeak +([%d,]+)':gsub(',', ''))) end
        assert.is_true(peak(text) < peak(lines))
        local old, refused = wane 'measure NAME --fused'
        assert.matches('%-%-fused is gone: .*%-%-lines', old)
        assert.equal(2, refused)
        text, code = wane 'measure NAME --budget 1GiB --policy sqrt'
        assert.matches('give one of them', text)
        assert.equal(2, code)
    end)

    it("sweep it: axes of the command line in place of the script's, and every kind of report", function()
        local text, code = wane("sweep NAME --policy save_all,'segments(2)' --depth 2,4 --batch 32 --repeats 1 "
            .. '--order policy,depth,batch --out DIR/a.jsonl --report DIR/a.html --csv DIR/a.csv --svg DIR/a.svg')
        assert.equal(0, code, text)
        assert.matches('^policy +depth  batch', text)
        assert.matches('\nsave_all +2     32.-\nsave_all +4     32.-\nsegments%(2%) +2     32', text)
        assert.matches('wrote [^\n]*a.html\nwrote [^\n]*a.csv\nwrote [^\n]*a.svg\n$', text)
        assert.equal(4, select(2, read 'DIR/a.jsonl':gsub('\n', '')))
        assert.equal(5, select(2, read 'DIR/a.csv':gsub('\n', '')))
        assert.matches('^<svg', read 'DIR/a.svg')
        assert.is_truthy(read 'DIR/a.html':find('--order policy,depth,batch', 1, true)) -- how to do it again
        text, code = wane "sweep NAME --policy save_all --depth 2,4,6 --batch 32 --repeats 1 --out DIR/a.jsonl"
        assert.matches('is there already, with 4 rows; resume = true %(%-%-resume%)', text)
        assert.equal(1, code)
        text, code = wane "sweep NAME --policy save_all --depth 2,4,6 --batch 32 --repeats 1 --out DIR/a.jsonl --resume"
        assert.equal(0, code, text)
        assert.equal(5, select(2, read 'DIR/a.jsonl':gsub('\n', ''))) -- two of the three were there
    end)

    it("sweep the script's own grid when none is given, failures and all", function()
        local text, code = wane 'sweep NAME --depth 2 --batch 8 --repeats 1 --budget 1KiB --policy save_all'
        assert.equal(1, code, text) -- a point failed
        assert.matches('2 points: 1 measured, 1 failed', text)
        assert.matches('\nfailed: batch=8 depth=2 policy=budget%(1KiB%): ', text)
        text, code = wane 'sweep NAME --batch 8 --repeats 1'
        assert.equal(0, code, text)
        assert.matches('\n6 points: 6 measured', text)
        text, code = wane 'sweep NAME --width -1 --repeats 1 --depth 2'
        assert.equal(1, code, text)
        assert.matches('0 measured, 3 failed', text)
    end)

    it('fails when gradients differ, and shows what was measured all the same', function()
        local bad = script [[
            local wane = require 'wane'
            return { grid = { policy = { 'save_all', 'sqrt' } }, build = function()
                local own, m = require('wane.ffi').C.wn_process(), wane.nn.Linear(4, 4)
                return function() return m(wane.ones(2, 4)):sum() * own end, m
            end }]]
        local text, code = helper.shell('build/wane sweep ' .. bad)
        assert.matches('2 points: 2 measured', text)
        assert.matches('wane: [^\n]*gradients of %(policy=save_all%) and %(policy=sqrt%) differ', text)
        assert.equal(1, code)
    end)

    it('refuse command lines that make no sense, naming what is near', function()
        for words, said in pairs {
            ['sweep NAME --polcy sqrt'] = "mean '%-%-policy'", ['sweep NAME --dept 2'] = "mean '%-%-depth'",
            ['sweep NAME --policy save_all,sqr'] = "did you mean 'sqrt'", ['sweep NAME --order depht'] = "'depth'",
            ['sweep NAME --policy save_all,'] = 'a value is missing', ['sweep NAME --budget much'] = 'not a size',
            ['sweep NAME --repeats many'] = '%-%-repeats takes a whole number from 1',
            ['sweep NAME --repeats 0'] = '%-%-repeats takes a whole number from 1',
            ['sweep NAME --resume'] = '%-%-out', ['sweep NAME --resume=no --out DIR/b'] = "but =force, got 'no'",
            ['sweep NAME other.lua'] = 'takes one script', ['sweep'] = 'a script is missing',
            ['measure NAME --stps 3'] = "mean '%-%-steps'", ['measure NAME --policy sqr'] = "did you mean 'sqrt'",
            ['measure'] = 'a script is missing', ['swep NAME'] = "did you mean 'sweep'",
            ['plan NAME --policy recompute_al'] = 'recompute_all', ['plan ' .. script 'return 1'] =
                'expected it to return { build = function',
            ['plan NAME --dephth 16'] = '^wane: %-%-dephth: neither the command nor the script has such an option; '
                .. "did you mean '%-%-depth'%?\nusage: wane plan SCRIPT %[options%] [^\n]*says more%)\n$",
            ['plan NAME --budget'] = '^wane: %-%-budget: a value is missing\nusage: wane plan [^\n]*\n$',
        } do
            local text, code = wane(words)
            assert.matches(said, text, words)
            assert.equal(2, code, words)
            assert.not_matches('stack traceback', text)
        end
    end)
end)
