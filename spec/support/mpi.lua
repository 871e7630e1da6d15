-- Runs scripts on ranks: a scenario is a script that all ranks run, under an mpirun of one kind of MPI.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'

local mpi = {}

--- Options that let mpirun of a kind start more ranks than there are cores, as root too.
mpi.KINDS = { openmpi = '--allow-run-as-root --oversubscribe', mpich = '' }

--- The head of each scenario: `say` prints a line that names the rank, `try` says what a call raises.
mpi.HEAD = [[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local dist = wane.dist
dist.start { timeout = %s }
local ffi = require 'ffi'
ffi.cdef 'int getpid(void); int kill(int, int); void _exit(int); int poll(void *, unsigned long, int);'
local function say(fmt, ...) io.stdout:write(('%%d> ' .. fmt .. '\n'):format(dist.rank, ...)) io.stdout:flush() end
local function try(fn, ...)
    local ok, e = pcall(fn, ...)
    say('%%s', ok and 'fine' or e.code .. ': ' .. tostring(e):gsub('\n', ' '))
    return ok
end
]]

--- Runs a command line of a script on n ranks. Returns the lines of each rank, by its number, the exit code of the job,
-- its seconds, and all that was printed.
-- @param environment words such as 'WANE_SIM_GPUS=2', or nil
function mpi.command(kind, n, script, environment)
    local began = binding.C.wn_now()
    local text, code = helper.shell(('WANE_THREADS=1 %s timeout 300 mpirun.%s %s -n %d luajit %s'):format(
        environment or '', kind, mpi.KINDS[kind], n, script))
    return mpi.lines(text, n), code, binding.C.wn_now() - began, text
end

--- Returns the lines of each of n ranks, by its number.
function mpi.lines(text, n)
    local lines = {}
    for r = 0, n - 1 do lines[r] = {} end
    for rank, line in text:gmatch '(%d+)> ([^\n]*)' do table.insert(lines[tonumber(rank)], line) end
    return lines
end

--- Runs a scenario on n ranks, behind the head. Returns as mpi.command.
function mpi.run(kind, n, body, timeout)
    local name = os.tmpname()
    local file = assert(io.open(name, 'w'))
    file:write(mpi.HEAD:format(helper.root, helper.root, timeout or 20), body)
    file:close()
    local lines, code, seconds, text = mpi.command(kind, n, name)
    os.remove(name)
    return lines, code, seconds, text
end

--- Describes the ranks of each kind of MPI that is here, and names those that are not.
-- @param describe, pending those of the specs
-- @param body function(kind, options) with specs of a kind, whose mpirun takes these options
function mpi.describe(describe, pending, body)
    for kind, options in pairs(mpi.KINDS) do
        describe('ranks of ' .. kind, function()
            if mpi.is_here(kind) then return body(kind, options) end
            pending(('are not tried: no mpirun.%s, or no library of make mpi'):format(kind))
        end)
    end
end

--- Tells whether mpirun of a kind and the library of `make mpi` are here.
function mpi.is_here(kind)
    local _, code = helper.shell(('command -v mpirun.%s && test -e build/libwane_mpi-%s.so'):format(kind, kind))
    return code == 0
end

return mpi
