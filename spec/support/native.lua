--- Builds small C libraries and programs for specs, each once for all spec processes.
--
-- A build lies in build/spec/NAME-DIGEST. The digest is over the command and every C file of the project, so a build is
-- never older than what it was made of. Two processes that build the same thing at once each rename a whole file.
local helper = require 'spec.helper'
local ffi = require 'ffi'

local native = {}

local EVERY_C_FILE = "find runtime kernels spec -name '*.[ch]' -o -name '*.def' | LC_ALL=C sort | xargs cat"

local root = helper.lines('pwd -P')[1]

--- Returns the absolute path of what a compiler command makes; runs the command when it was not made before.
-- Raises with what the compiler printed when it fails.
-- @param name of the file, without the digest
-- @param command with %s where the path of the output goes, run in the root folder
-- @usage native.make('foreign.so', 'cc -shared -fPIC -O1 -o %s spec/support/foreign.c -ldl')
function native.make(name, command)
    local digest = helper.lines(("{ printf '%%s' %q; %s; } | cksum"):format(command, EVERY_C_FILE))[1]
    local path = ('%s/build/spec/%s-%s'):format(root, name, (digest:gsub(' ', '-')))
    local file = io.open(path, 'rb')
    if file then
        file:close()
        return path
    end
    local fresh = ("'%s'.$$"):format(path)
    local text, code = helper.shell(("mkdir -p build/spec && %s && mv -f %s '%s'"):format(command:format(fresh), fresh,
        path))
    assert(code == 0, text)
    return path
end

--- Builds a shared library as native.make builds a program, and loads it. It stays loaded: LuaJIT closes libraries when
-- it ends, and threads of theirs may still run then.
function native.load(name, command)
    return ffi.load(native.make(name, (command:gsub('%-shared', '%0 -Wl,-z,nodelete'))))
end

--- Returns the path of the driver of a terminal (spec/support/pty.c).
function native.terminal() return native.make('pty', 'cc -std=c11 -D_GNU_SOURCE -O1 -o %s spec/support/pty.c') end

--- Returns the path of the library that, preloaded, counts memory asked for (spec/support/foreign.c).
function native.foreign() return native.make('foreign.so', 'cc -shared -fPIC -O1 -o %s spec/support/foreign.c -ldl') end

return native
