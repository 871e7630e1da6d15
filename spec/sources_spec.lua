-- Guards against C files of spec/ that no other spec compiles: benches and fuzzers. A rename in the library broke them
-- without a word before, as they are built only where somebody asks for numbers, or where clang is installed.
local helper = require 'spec.helper'

local CC = os.getenv 'CC' or 'gcc'

-- Returns what the compiler says of a file, or '' when it takes the file.
local function complaint_of(path)
    local text, code = helper.shell(('%s -std=gnu11 -D_GNU_SOURCE -fopenmp -fsyntax-only -w -I. -Iruntime %s')
        :format(CC, path))
    return code == 0 and '' or text
end

describe('C files of spec/', function()
    -- spec/device_spec.lua builds the fixtures.
    local command = "find spec -name '*.c' ! -path 'spec/fixtures/*' | LC_ALL=C sort"
    for _, path in ipairs(helper.lines(command)) do
        it('compile: ' .. path, function()
            assert.equal('', complaint_of(path))
        end)
    end

    it('are refused where they name what is not there', function()
        local path = os.tmpname()
        local file = assert(io.open(path, 'w'))
        file:write('#include "kernels/cpu/gemm/gemm.h"\nint f(struct wn__gemm *p) { return p->walk; }\n')
        file:close()
        local text = complaint_of('-x c ' .. path)
        os.remove(path)
        assert.matches('walk', text)
    end)
end)
