-- Guards against memory that was not planned: nothing may ask the system for memory while a program runs, and the
-- process may grow by no more than the planned bytes and 32 MB.
local helper = require 'spec.helper'
local native = require 'spec.support.native'

describe('a run', function()
    local library, out
    setup(function()
        library = native.foreign()
        out = helper.shell(('LD_PRELOAD=%s luajit spec/support/foreign.lua 512'):format(library))
    end)

    it('asks nobody for memory', function()
        assert.equal('0', out:match 'foreign (%d+)', out)
    end)

    it('makes the process grow by the planned bytes and less than 32 MB', function()
        local beyond = tonumber(out:match 'grown beyond plan (%-?%d+)')
        assert.is_truthy(beyond, out)
        assert.is_true(beyond < 32 * 2 ^ 20, out)
    end)

    it('would be caught: the counter sees a megabyte asked for while it is armed', function()
        local script = "local f=require'ffi' "
            .. "f.cdef'void foreign_arm(int); double foreign_bytes(void); void *malloc(size_t);' "
            .. 'f.C.foreign_arm(1) f.C.malloc(2^20) f.C.foreign_arm(0) print(f.C.foreign_bytes())'
        local seen = helper.shell(('LD_PRELOAD=%s luajit -e "%s"'):format(library, script))
        assert.is_true((tonumber(seen) or 0) >= 2 ^ 20, seen)
    end)
end)
