-- Checks the table of commands and what reads it: the pages of help, the refusals, the completions and the manual page;
-- and that what a command writes arrives, or that its exit status says so.
local files = require 'spec.support.files'
local helper = require 'spec.helper'

local native = require 'spec.support.native'
local script = files.script

teardown(files.forget)

describe('the table of commands', function()
    local arguments = require 'wane.cli.arguments'
    local commands = require 'wane.cli.commands'

    -- Returns the refusal of a command line, or nil.
    local function refused(name, ...)
        local fine, why = pcall(arguments.parse, arguments.command(name), { ... })
        if not fine then assert.is_true(require('wane.cli.refusal').is(why), tostring(why)) end
        return not fine and why.message or nil
    end

    it('has a page, an example and a function for every command', function()
        for _, command in ipairs(commands) do
            local text, code = helper.shell(('build/wane %s --help'):format(command.name))
            assert.equal(0, code, text)
            assert.truthy(text:find('usage: wane ' .. command.name, 1, true), text)
            assert.truthy(text:find('  ' .. command.examples[1][1] .. '\n', 1, true), text)
            for _, row in ipairs(command.options) do
                assert.truthy(text:find('\n  ' .. arguments.shown(row.name), 1, true), row.name)
            end
            for line in text:gmatch '[^\n]+' do assert.is_true(#line <= 80, line) end
        end
        assert.equal((helper.shell 'build/wane sweep --help'), (helper.shell 'build/wane help sweep'))
        local text, code = helper.shell 'build/wane help swep'
        assert.matches("unknown command 'swep'; did you mean 'sweep'", text)
        assert.equal(2, code)
    end)

    it('names the option in every refusal of a value, whatever its kind', function()
        local wrong = { count = { '0.5', '-1', 'x', 'nan', '1e9' }, seconds = { '0', '-1', 'x', 'nan', 'inf' },
            size = { 'much', '-1', '3 apples' }, policy = { 'sqr', 'segments(' },
            file = { '/', '/dev/full', '/dev/null/x' },
            name = { 'folder/' }, text = {} }
        for _, command in ipairs(commands) do
            for _, row in ipairs(command.options) do
                local shown, file = arguments.shown(row.name), command.least == 1 and 'x.lua' or nil
                local values = row.is_closed and { 'nothing' } or row.value and wrong[row.kind] or {}
                for _, value in ipairs(values) do
                    assert.truthy((refused(command.name, shown, value, file) or ''):find(shown, 1, true),
                        command.name .. shown .. value)
                end
                assert.truthy((refused(command.name, file or shown, shown .. '=') or 'unknown'):find(
                    #row.name == 1 and 'unknown' or row.value and 'is missing' or 'takes no value', 1, true), shown)
                if row.value then
                    assert.matches('a value is missing', refused(command.name, shown))
                    assert.matches('a value is missing', refused(command.name, shown, '--help'))
                end
            end
            assert.matches("unknown option '%-z'", refused(command.name, '-z'))
        end
    end)

    it('refuses what would be lost: an option given twice, one file for two outputs, words too many', function()
        assert.matches('%-%-steps is given twice', refused('measure', 'x', '--steps', '1', '--steps=2'))
        assert.matches('%-%-depth is given twice', refused('sweep', 'x', '--depth', '1', '--depth', '2'))
        assert.matches("measure takes one script, got 'y' too", refused('measure', 'x', 'y'))
        assert.matches("version takes nothing, got 'x'", refused('version', 'x'))
        assert.matches("unknown option '%-%-lr'", refused('run', '--lr', 'x'))
        assert.is_nil(refused('run', 'x', '--lr', '1', '--lr', '2', '-z', '--help'))
        local text, code = helper.shell 'build/wane sweep x.lua --csv a --svg a'
        assert.matches('%-%-csv and %-%-svg name the same file', text)
        assert.equal(2, code)
        text, code = helper.shell 'build/wane profile --policy sqrt'
        assert.matches('%-%-policy: give the script', text)
        assert.equal(2, code)
    end)

    it('gives an option of the script the type of its default, and lists it', function()
        local name = script [[return { defaults = { on = false, n = 2 }, grid = { k = { 1, 2 } }, build = function(p)
            io.stderr:write(type(p.on), ' ', tostring(p.on), ' ', type(p.n), '\n')
            return function() return require('wane').ones(2, { requires_grad = true }):sum() end
        end }]]
        for words, said in pairs { [''] = 'boolean false number', ['--on'] = 'boolean true number',
            ['--on false --n 3'] = 'boolean false number', ['--on=true'] = 'boolean true number',
            ['--on maybe'] = "--on takes true or false, as the script's false, got 'maybe'",
            ['--n x'] = "--n takes a number, as the script's 2, got 'x'", ['--n'] = '--n: a value is missing' } do
            local text = helper.shell(('build/wane plan %s %s'):format(name, words))
            assert.truthy(text:find(said, 1, true), text)
        end
        local text, code = helper.shell('build/wane sweep --help ' .. name)
        assert.matches('options of [^\n]*:\n  %-%-k +%(swept: 1,2%)\n  %-%-n +2\n  %-%-on +false\n', text)
        assert.equal(0, code)
    end)

    it('makes a completion of bash that offers commands, options, values and files', function()
        for line, want in pairs { ['wane sw'] = 'sweep', ['wane sweep --ret'] = '--retry-failed',
            ['wane plan --target h'] = 'h100 h200', ['wane sweep --policy save_all,sq'] = 'save_all,sqrt',
            ['wane sweep --policy = sq'] = 'sqrt', ['wane sweep --merge a.jsonl,fir'] = 'a.jsonl,first.lua',
            ['wane sweep --resume = f'] = 'force', ['wane sweep --resume = '] = 'force',
            ['wane sweep --resume --ret'] = '--retry-failed', ['wane plan fir'] = 'first.lua',
            ['wane completion b'] = 'bash' } do
            local text = helper.shell(('bash -c \'. <(build/wane completion bash); cd examples; COMP_WORDS=(%s); '
                .. 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _wane; echo "${COMPREPLY[*]}"\''):format(line))
            assert.equal(want .. '\n', text)
        end
        local text = helper.shell 'build/wane completion zsh'
        for _, command in ipairs(commands) do
            assert.truthy(text:find(('\n        (%s) _arguments'):format(command.name), 1, true))
        end
        text = helper.shell 'if command -v zsh; then build/wane completion zsh | zsh -n; fi'
        assert.not_matches('parse error', text)
    end)

    it('makes a manual page in which man finds no fault', function()
        local text, code = helper.shell 'build/wane man'
        assert.equal(0, code)
        for _, command in ipairs(commands) do
            assert.truthy(text:find('.SS "wane ' .. command.name, 1, true))
            for _, row in ipairs(command.options) do
                assert.truthy(text:find('\n.B ' .. arguments.shown(row.name):gsub('%-', '\\-'), 1, true), row.name)
            end
        end
        text = helper.shell 'if command -v groff >/dev/null; then build/wane man | groff -man -Tutf8 -ww -z; fi'
        assert.equal('', text)
    end)
end)

describe('the output of wane', function()
    it('is an error with exit status 1 where it cannot be written, in every command that prints', function()
        local prints = script 'for i = 1, 3 do print(i) end'
        local leaves = script 'print(1) os.exit(0)'
        local plans = script [[return { build = function()
            return function() return require('wane').ones(2, { requires_grad = true }):sum() end
        end }]]
        for _, words in ipairs { 'help', 'help sweep', 'version', 'man', 'completion zsh', 'plan ' .. plans,
            'measure ' .. plans .. ' --steps 1', 'run ' .. prints, 'run ' .. leaves } do
            local text, code = helper.shell(('build/wane %s > /dev/full'):format(words))
            assert.equal(1, code, words)
            assert.matches('^wane: the standard output cannot be written[^\n]*\n$', text, words)
            assert.truthy(words:match '^run' or text:find('No space left', 1, true), text)
        end
    end)

    it('ends without a word where its reader went away', function()
        local text = helper.shell [[(trap '' PIPE; sleep 0.1; build/wane man; echo "code $?" >&2) | true]]
        assert.equal('code 1\n', text)
        local prints = script 'for i = 1, 3 do print(i) end'
        text = helper.shell(([[(trap '' PIPE; sleep 0.1; build/wane run %s; echo "code $?" >&2) | true]])
            :format(prints))
        assert.equal('code 1\n', text)
    end)

    it('leaves a script line by line, into pipes too', function()
        local flag = os.tmpname()
        os.remove(flag)
        -- The script waits until the reader has its first line, which never comes where lines wait in a buffer.
        local name = script(([[
            print 'one'
            for _ = 1, 50 do
                if io.open('%s') then return print 'the reader had it' end
                os.execute 'sleep 0.1'
            end
            print 'the reader did not have it']]):format(flag))
        finally(function() os.remove(flag) end)
        local text = helper.shell(('build/wane run %s | { read line; touch %s; cat; }'):format(name, flag))
        assert.equal('the reader had it\n', text)
    end)

    it('is an error where a file cannot be written whole', function()
        local dir = helper.lines('mktemp -d')[1]
        finally(function() helper.shell('rm -r ' .. dir) end)
        local text, code = helper.shell(("trap '' XFSZ; ulimit -f 0; build/wane new %s/x.lua"):format(dir))
        assert.matches('^wane: [^\n]*x.lua: cannot be written %([^\n]*File too large[^\n]*%)', text)
        assert.equal(1, code)
        assert.equal(0, select(2, helper.shell(('build/wane new %s/x.lua'):format(dir)))) -- no stub is in the way
    end)

    it('has lines of tensors as wide as it is', function()
        local code = "package.path='lua/?.lua;lua/?/init.lua;'..package.path; print(require'wane'.arange(0, 30))"
        for columns, lines in pairs { [40] = 5, [80] = 3, [400] = 1 } do
            local text = helper.shell(('COLUMNS=%d ${LUAJIT:-luajit} -e "%s"'):format(columns, code))
            assert.are.equal(lines, select(2, text:gsub('\n', '')))
            for line in text:gmatch '[^\n]+' do assert.is_true(#line <= columns, line) end
            assert.matches('29%.%]\n$', text)
        end
    end)

    it('has plots as wide as it is, and the corners of a tensor whose rows would fill it', function()
        local code = [[
            package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
            local wane = require 'wane'
            local model, x = wane.nn.MLP(64, 256), wane.randn(512, 64)
            local function loss() return model(x):sum() end
            print(wane.plan(loss):plot())
            print(wane.frontier(loss):plot():match '\n.*') -- below its title
            print(wane.plot { 3, 2, 1 }, '\n', wane.arange(0, 960):reshape(2, 480))
            print(wane.memory():plot())]]
        for _, columns in ipairs { 60, 80, 100 } do
            local text, code_ = helper.shell(('COLUMNS=%d ${LUAJIT:-luajit} -'):format(columns), code)
            assert.equal(0, code_, text)
            local widest = 0
            for line in text:gmatch '[^\n]+' do
                if not line:find(', instruction ', 1, true) then -- the name of the peak is as long as it is
                    widest = math.max(widest, #line)
                    assert.is_true(#line <= columns + 1, line)
                end
            end
            assert.is_true(widest >= math.min(columns, 82) - 1, text)
            assert.matches('tensor %(2, 480%) f32:.mean [^\n]*\n%[%[[^%]]*%.%.%.[^%]]*%],\n %[[^%]]*%.%.%.', text)
        end
    end)

    it('has the columns of a table that do not fit a terminal below the others', function()
        local code = "package.path='lua/?.lua;'..package.path; print(require'wane.report.table'.text("
            .. "{'name','a','b','c'},{{'first',11111111,22222222,33333333},{'second',1,2,3}}))"
        local function shown(columns, terminal)
            local text = helper.shell(('COLUMNS=%d %s ${LUAJIT:-luajit} -e "%s"'):format(columns, terminal, code))
            return text:gsub('\r', ''):match '^(name.-)\n+p?t?y?:?[^\n]*\n*$' or text
        end
        local whole = 'name           a         b         c\n------  --------  --------  --------\n'
            .. 'first   11111111  22222222  33333333\nsecond         1         2         3'
        assert.equal(whole .. '\n', (helper.shell(('COLUMNS=30 ${LUAJIT:-luajit} -e "%s"'):format(code))))
        assert.equal(whole, shown(36, native.terminal()))
        assert.equal('name           a         b\n------  --------  --------\nfirst   11111111  22222222\n'
            .. 'second         1         2\nname           c\n------  --------\nfirst   33333333\nsecond         3',
            shown(35, native.terminal()))
    end)

    it('is asked about as often as need be, though LuaJIT takes the declaration of a struct once', function()
        local system = require 'wane.system'
        for _ = 1, 2 do assert.is_number(system.poll(1, 4, 0)) end
    end)

    it('names ^C by exit status 130', function()
        local text, code = helper.shell('build/wane run ' .. script "error 'interrupted!'") -- as luajit raises it
        assert.matches('^wane: [^\n]*interrupted!', text)
        assert.equal(130, code)
    end)
end)

-- ---- the completion of zsh -----------------------------------------------------------------------------------------
-- Checks the completion of zsh in a zsh, where one is installed: what TAB makes of a line at an interactive prompt, and
-- what it lists. The shell runs in a terminal of zsh's own module zpty.
-- Reads lines, types each with a TAB behind it into an interactive zsh, and prints what that shows and runs. $1: the
-- folder of the completion, which compinit finds, or a file that is sourced.
local DRIVER = [[
zmodload zsh/zpty
zpty z env TERM=dumb zsh -f -i
load="fpath=($1 \$fpath); compinit -D -u"
[ -d "$1" ] || load="compinit -D -u; source $1"
zpty -w z "PROMPT= PS2= RPROMPT=; unsetopt zle_bracketed_paste prompt_cr prompt_sp; stty -echo; LISTMAX=0
autoload -Uz compinit; $load
wane() { print -r -- \"<\${(j:|:)@}>\" }; print -r -- READY-\$((1 + 1))"
zpty -r z out '*READY-2*'
while IFS= read -r line; do
    zpty -w -n z "$line"$'\t\n'
    zpty -r z out '*<*>*'
    print -r -- "${out//$'\r'/}"
    print -r -- "end of $line"
done]]

-- Line that is typed -> the words that run, in which `|` stands between two.
local LINES = {
    ['wane sw'] = 'sweep', ['wane help sw'] = 'help|sweep', ['wane completion b'] = 'completion|bash',
    ['wane sweep --ret'] = 'sweep|--retry-failed', ['wane plan fi'] = 'plan|first.lua',
    ['wane repl -i fi'] = 'repl|-i|first.lua', ['wane run first.lua se'] = 'run|first.lua|second.txt',
    ['wane plan --target h2'] = 'plan|--target|h200',
    ['wane plan first.lua --policy=sq'] = 'plan|first.lua|--policy=sqrt',
    ['wane sweep --policy save_all,sq'] = 'sweep|--policy|save_all,sqrt',
    ['wane sweep first.lua --out se'] = 'sweep|first.lua|--out|second.txt',
    ['wane sweep first.lua --merge a.jsonl,b.j'] = 'sweep|first.lua|--merge|a.jsonl,b.jsonl',
    ['wane sweep first.lua --resume=f'] = 'sweep|first.lua|--resume=force',
    ['wane sweep first.lua --resume --ret'] = 'sweep|first.lua|--resume|--retry-failed',
    ['wane nothing of ours'] = 'nothing|of|ours',
}

-- Line that is typed -> texts that TAB lists.
local LISTS = {
    ['wane '] = { 'sweep +%-%- measures', 'completion +%-%- prints', 'version +%-%- says' },
    ['wane sweep --'] = { '%-%-policy +%-%- policies', '%-%-resume +%-%- goes on', '%-%-help +%-%- says' },
    ['wane sweep --policy '] = { 'recompute_all', 'save_all', 'sqrt' },
    ['wane notebook '] = { 'install +run' },
    ['wane plan '] = { 'first.lua +sub/' },
}

describe('the completion of zsh', function()
    local has_zsh = select(2, helper.shell 'command -v zsh') == 0
    local folder, typed

    -- Returns what the shell shows of each line, by line.
    local function type_in(lines, place)
        files.write(folder .. '/lines', table.concat(lines, '\n') .. '\n')
        local line = ('cd %s/typed && timeout 60 zsh -f ../driver %s < ../lines'):format(folder, place)
        local text, code = helper.shell(line)
        assert.equal(0, code, text)
        local shown = {}
        for block, of in text:gmatch '(.-)\nend of ([^\n]*)\n' do shown[of] = block end
        return shown
    end

    setup(function()
        if not has_zsh then return end
        folder = helper.lines('mktemp -d')[1]
        helper.shell(('mkdir -p %s/functions %s/typed/sub && build/wane completion zsh > %s/functions/_wane'):format(
            folder, folder, folder))
        files.write(folder .. '/driver', DRIVER)
        for _, name in ipairs { 'first.lua', 'second.txt', 'a.jsonl', 'b.jsonl' } do
            files.write(folder .. '/typed/' .. name, '')
        end
        local lines = {}
        for line in pairs(LINES) do lines[#lines + 1] = line end
        for line in pairs(LISTS) do lines[#lines + 1] = line end
        typed = type_in(lines, folder .. '/functions')
    end)
    teardown(function() if folder then os.execute('rm -rf ' .. folder) end end)

    it('finishes commands, options, values and files', function()
        if not has_zsh then return pending 'is not tried: no zsh' end
        for line, want in pairs(LINES) do
            assert.equal(want, typed[line]:match '<(.-)>', line .. ': ' .. typed[line])
        end
    end)

    it('lists what may follow, with a word about each', function()
        if not has_zsh then return pending 'is not tried: no zsh' end
        for line, texts in pairs(LISTS) do
            for _, text in ipairs(texts) do assert.matches(text, typed[line]) end
        end
    end)

    it('may be sourced too, after compinit, and says so before it', function()
        if not has_zsh then return pending 'is not tried: no zsh' end
        local shown = type_in({ 'wane sw' }, folder .. '/functions/_wane')
        assert.equal('sweep', shown['wane sw']:match '<(.-)>')
        local text = helper.shell(('zsh -f -c "source %s/functions/_wane" 2>&1'):format(folder))
        assert.matches('^wane: completion is not loaded; [^\n]*: autoload %-Uz compinit && compinit\n$', text)
    end)
end)

-- ---- what is installed ---------------------------------------------------------------------------------------------
-- Checks that what `make install` puts under DESTDIR works from there with nothing beside it: the command, the
-- examples, the completions, the manual page, and a program in C made with the headers; and that `make uninstall`
-- leaves nothing.
local PROGRAM = [[
#include <stdio.h>
#include "wane_inspect.h"
#include "wane_process.h"
#include "wane_test.h"
int main(void)
{
    if (wn_start() != 0) return 1;
    puts(wn_version());
    return 0;
}
]]

describe('make install', function()
    local folder = os.tmpname()
    os.remove(folder)
    teardown(function() helper.shell("rm -rf '" .. folder .. "'") end)

    local function run(command, input)
        local text, code = helper.shell(command:gsub('@', folder), input)
        assert.equal(0, code, text)
        return text
    end

    it('installs headers and a library that a program in C needs nothing beside', function()
        local said = run "MAKEFLAGS= make --no-print-directory install PREFIX=/wane DESTDIR='@'"
        assert.matches('installed wane in ' .. folder .. '/wane %(V=1 shows each step%)\n*$', said)
        assert.is_nil(said:find 'install %-D') -- what it runs is shown with V=1
        run("gcc -std=c11 -Wall -Wextra -Werror -I'@/wane/include/wane' -o '@/try' -x c - -x none "
            .. "-L'@/wane/lib' -lwane -Wl,-rpath,'@/wane/lib'", PROGRAM)
        assert.equal('0.1.0', run("'@/try'"):match '%S+')
    end)

    it('installs the library of CUDA beside it, where it was built', function()
        local built = io.open 'build/libwane_cuda.so'
        local kept = io.open(folder .. '/wane/share/lua/5.1/wane/libwane_cuda.so')
        assert.equal(built ~= nil, kept ~= nil)
        for _, file in pairs { built, kept } do file:close() end
    end)

    it('installs a command and examples that need nothing of the checkout', function()
        local text = run "cd / && env -u WANE_LIB '@/wane/bin/wane' version"
        assert.truthy(text:find('libraries  ' .. folder .. '/wane/share/lua/5.1/wane/libwane.so', 1, true), text)
        text = run "cd / && env -u WANE_LIB '@/wane/bin/wane' run '@/wane/share/wane/examples/first.lua'"
        assert.matches('\n5\t2%.%d+\n$', text)
        assert.equal(text, run "cd / && env -u WANE_LIB ${LUAJIT:-luajit} '@/wane/share/wane/examples/first.lua'")
        assert.equal('', run "find '@' -xtype l") -- no link that leads nowhere
        assert.equal('774030080\n', run("cd / && env -u WANE_LIB '@/wane/bin/wane' run /dev/stdin",
            "print(require('wane.zoo.gpt2').parameters['774M'])"))
    end)

    it('installs completions, the manual page and the flags of compilers', function()
        local function installed(name) return run("cat '@/wane/" .. name .. "'") end
        assert.equal(run 'build/wane man', installed 'share/man/man1/wane.1')
        assert.equal(run 'build/wane completion bash', installed 'share/bash-completion/completions/wane')
        assert.equal(run 'build/wane completion zsh', installed 'share/zsh/site-functions/_wane')
        assert.equal('libdir=/wane/lib\nName: wane\nDescription: a training runtime that obeys a memory plan to '
            .. 'the byte\nVersion: 0.1.0\nCflags: -I/wane/include/wane\nLibs: -L${libdir} -lwane\n',
            installed 'lib/pkgconfig/wane.pc')
    end)

    it('installs an example in C, which compiles as its head says, there and in the checkout', function()
        run "mkdir '@/c' && sed 's|/wane|@/wane|' '@/wane/lib/pkgconfig/wane.pc' > '@/c/wane.pc'" -- without DESTDIR
        local ways = { checkout = ('cd %s && '):format(helper.root) }
        if select(2, helper.shell 'pkg-config --version') == 0 then
            ways.there = "cd '@/wane/share/wane/examples/c' && export PKG_CONFIG_PATH='@/c' && "
        end
        local there, checkout = helper.read('examples/c/step.c')
            :match '\n %*   (cc [^\n]*)\n %*   (cc .-) +# in a checkout'
        local page = helper.read 'examples/tasks/embed.md'
        for _, command in ipairs { there, checkout } do assert.truthy(page:find('\n' .. command .. '\n', 1, true)) end
        for way, before in pairs(ways) do
            local command = way == 'there' and there or checkout
            run(before .. command:gsub('%-o step', "-std=c99 -pedantic -Wall -Wextra -Werror -o '@/c/step'"))
            assert.equal(page:match '\n```text step%.c\n(.-)```', run "WANE_DEVICE=cpu '@/c/step'")
        end
        run "rm -r '@/c'"
    end)

    it('takes the places that it is told, and uninstalls all that it installed', function()
        run "MAKEFLAGS= make --no-print-directory uninstall PREFIX=/wane DESTDIR='@'"
        assert.equal('', run "find '@' -mindepth 1 ! -name try")
        local places = "PREFIX='@/a b' LUADIR='@/lua' LIBDIR='@/a b/lib64'"
        run "mkdir -p '@/a b/bin' '@/a b/share/man' '@/a b/lib64' && touch '@/a b/lib64/other'"
        for _ = 1, 2 do run('MAKEFLAGS= make --no-print-directory install ' .. places) end
        local text = run "cd / && env -u WANE_LIB '@/a b/bin/wane' version"
        assert.truthy(text:find('libraries  ' .. folder .. '/lua/wane/libwane.so', 1, true), text)
        run('MAKEFLAGS= make --no-print-directory uninstall ' .. places)
        -- Folders that were there before stay, empty ones too.
        assert.equal('a b a b/bin a b/lib64 a b/lib64/other a b/share a b/share/man',
            run "cd '@' && find . -mindepth 1 ! -name try | sort":gsub('\n$', ''):gsub('%./', ''):gsub('\n', ' '))
    end)
end)
