-- The command line: build/wane as a shell sees it. What it prints, its exit codes, and that it works from any
-- folder, through links, with nothing exported.
local helper = require 'spec.helper'

local scripts = {}

local function script(text)
    local name = os.tmpname() .. '.lua'
    local file = assert(io.open(name, 'w'))
    file:write(text)
    file:close()
    scripts[#scripts + 1] = name
    return name
end

-- The absolute folder of the checkout, whatever the specs were started as.
local function root()
    return helper.lines('pwd -P')[1]
end

describe('wane', function()
    teardown(function()
        for _, name in ipairs(scripts) do os.remove(name) end
    end)

    it('shows how it is used', function()
        local text, code = helper.shell('build/wane')
        assert.matches('^usage: wane run', text)
        assert.equal(0, code)
    end)

    it('refuses an unknown command with code 2', function()
        local text, code = helper.shell('build/wane rnu x.lua')
        assert.matches("^wane: unknown command 'rnu'\nusage:", text)
        assert.equal(2, code)
    end)

    it('says what the machine has', function()
        local text, code = helper.shell('build/wane version')
        assert.matches('^wane %d+%.%d+', text)
        assert.matches('\ndevices    [^\n]*cpu', text)
        assert.matches('\ndevices    [^\n]*meta', text)
        assert.matches('\nthreads    %d+\n', text)
        assert.matches('\nlibraries  [^\n]*libwane%.so', text)
        assert.equal(0, code)
    end)

    it('heeds WANE_THREADS', function()
        local text = helper.shell('WANE_THREADS=1 build/wane version')
        assert.matches('\nthreads    1\n', text)
        assert.not_matches('notice', text)
    end)

    it('says what is used instead of a WANE_THREADS that makes no sense', function()
        local usual = helper.shell('unset WANE_THREADS; build/wane version'):match '\nthreads    (%d+)\n'
        for _, given in ipairs { 'many', '0', '-2', '65', '2x', '1.5' } do
            local text, code = helper.shell('WANE_THREADS=' .. given .. ' build/wane version')
            assert.equal(usual, text:match '\nthreads    (%d+)\n', given)
            assert.equal(('WANE_THREADS=%s makes no sense (1 to 64); what this process may use is used: %s')
                :format(given, usual), text:match '\nnotice     ([^\n]*)\n')
            assert.equal(0, code)
        end
    end)

    it('says which kernels the processor gets', function()
        local text, cpu = helper.shell('build/wane version'), table.concat(helper.lines 'cat /proc/cpuinfo')
        local want = cpu:find 'avx512_bf16' and 'AVX-512, bf16 too' or cpu:find 'avx512vl' and 'AVX-512'
            or cpu:find 'avx2' and 'AVX2' or 'plain C: this processor has neither AVX2 with FMA nor AVX-512'
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

    it('has wane on its path from any folder', function()
        local name = script 'local wane = require "wane"; print(wane.ones(2, 3):sum():item())'
        local text = helper.shell('top=$PWD; cd / && "$top"/build/wane run ' .. name)
        assert.equal('6\n', text)
    end)

    it('works through symbolic links, relative and absolute, with nothing exported', function()
        local dir = helper.lines('mktemp -d')[1]
        finally(function() helper.shell('rm -r ' .. dir) end)
        local name = script 'print(require("wane").zeros(2):sum():item())'
        helper.shell(('ln -s %s/build/wane %s/one && ln -s one %s/two'):format(root(), dir, dir))
        local text = helper.shell(('cd %s && env -i PATH="$PATH" ./two run %s'):format(dir, name))
        assert.equal('0\n', text)
    end)

    it('works from a folder with a space in its name', function()
        local dir = helper.lines('mktemp -d')[1]
        finally(function() helper.shell('rm -r ' .. dir) end)
        local name = script 'print(require("wane").zeros(2):sum():item())'
        local text = helper.shell(('mkdir "%s/a b" && ln -s "%s" "%s/a b/w" && cd "%s/a b" && w/build/wane run %s')
            :format(dir, root(), dir, dir, name))
        assert.equal('0\n', text)
    end)

    it('shows an error with its line and fails with code 1', function()
        local name = script 'local x = 1\nerror("stop here")'
        local text, code = helper.shell('build/wane run ' .. name)
        assert.matches('^wane: [^\n]*:2: stop here\nstack traceback:', text)
        assert.equal(1, code)
    end)

    it('shows a failing operation at the line of the script', function()
        local name = script 'local wane = require "wane"\nlocal a = wane.ones(2)\nreturn a + wane.ones(3)'
        local text, code = helper.shell('build/wane run ' .. name)
        assert.matches('^wane: [^\n]*:3: [^\n]*%(2%)', text)
        assert.equal(1, code)
    end)

    it('says what is wrong with a script that does not compile or is not there', function()
        local text, code = helper.shell('build/wane run ' .. script 'x = = 1')
        assert.matches('^wane: [^\n]*:1: unexpected symbol', text)
        assert.equal(1, code)
        text, code = helper.shell('build/wane run no/such/script.lua')
        assert.equal('wane: no/such/script.lua: cannot be read\n', text)
        assert.equal(2, code)
        text, code = helper.shell('build/wane run')
        assert.matches('^wane: a script is missing\nusage:', text)
        assert.equal(2, code)
    end)
end)

describe('wane plan', function()
    local source = [[
        local wane = require 'wane'
        return {
            defaults = { width = 32 },
            build = function(p)
                assert(type(p.width) == 'number')
                local model = wane.nn.Sequential{ wane.nn.Linear(p.width, 64), wane.nn.ReLU(), wane.nn.Linear(64, 4) }
                return function()
                    print 'recorded'
                    return wane.nn.mse_loss(model(wane.randn(8, p.width)), wane.zeros(8, 4))
                end, model
            end,
        }]]

    it('prints the plan of the step a script describes', function()
        local text, code = helper.shell('build/wane plan ' .. script(source) .. ' --policy recompute_all --width 16')
        assert.equal(0, code, text)
        assert.matches('recorded', text)
        assert.matches('peak', text)
    end)

    it('refuses a policy that does not exist, naming those near it', function()
        local text, code = helper.shell('build/wane plan ' .. script(source) .. ' --policy recompute_al')
        assert.equal(1, code, text)
        assert.matches('recompute_all', text)
        assert.not_matches('stack traceback', text)
    end)

    it('refuses a script that describes nothing', function()
        local text, code = helper.shell('build/wane plan ' .. script 'return 1')
        assert.matches('expected it to return { build = function', text)
        assert.equal(2, code)
    end)

    it('refuses an option without its value', function()
        local text, code = helper.shell('build/wane plan ' .. script(source) .. ' --budget')
        assert.equal('wane: --budget: a value is missing\n', text)
        assert.equal(2, code)
    end)
end)
