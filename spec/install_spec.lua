-- Checks that what `make install` puts under DESTDIR works from there with nothing beside it: the command, the
-- examples, the completions, the manual page, and a program in C made with the headers; and that `make uninstall`
-- leaves nothing.
local helper = require 'spec.helper'

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
