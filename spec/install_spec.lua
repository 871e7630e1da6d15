-- Guards against a public header that `make install` forgets, or that includes one which stays in the checkout:
-- compiles and runs a program in C with the installed files alone.
local helper = require 'spec.helper'

local PROGRAM = [[
#include <stdio.h>
#include "wane_chain.h"
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
        run "MAKEFLAGS= make --no-print-directory install PREFIX=/wane DESTDIR='@'"
        run("gcc -std=c11 -Wall -Wextra -Werror -I'@/wane/include/wane' -o '@/try' -x c - -x none "
            .. "'@/wane/share/lua/5.1/wane/libwane.so' -Wl,-rpath,'@/wane/share/lua/5.1/wane'", PROGRAM)
        assert.equal('0.1.0', run("'@/try'"):match '%S+')
    end)

    it('installs the library of CUDA beside it, where it was built', function()
        local built = io.open 'build/libwane_cuda.so'
        local kept = io.open(folder .. '/wane/share/lua/5.1/wane/libwane_cuda.so')
        assert.equal(built ~= nil, kept ~= nil)
        for _, file in pairs { built, kept } do file:close() end
    end)
end)
