--- Shared by the benches: the tree on the path, the machine probe, medians, tables, and results as data.
-- Whatever a bench prints as a table is also written to build/bench/NAME.lua, a file that returns a table: from such
-- files, never from text, spec/bench/publish.lua makes the tables and pictures of the documents.
local root = arg[0]:match('^(.*)/spec/bench/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local ffi = require 'ffi'
local files = require 'spec.support.files'
local common = { root = root }

ffi.cdef [[
int setenv(const char *name, const char *value, int replace);
double probe_gflops(int threads);
double probe_gflops_bf16(int threads);
double probe_gflops_of(int threads, int64_t rounds);
double probe_gflops_bf16_of(int threads, int64_t rounds);
double probe_near(int threads);
double probe_read(int threads, int64_t bytes);
double probe_mix(int threads, int reads, int writes, int in_place, int past_caches, int64_t bytes);
double probe_lines(int threads, int64_t n, int64_t apart);
int isatty(int file);
int usleep(unsigned microseconds);
]]

--- Returns the class of kernels that WANE_KERNELS names and this processor has, or nil.
function common.named_class()
    local text = ffi.string(require('wane.ffi').C.wn_kernels())
    return text:find 'WANE_KERNELS' and text:match '^%w+' or nil
end

--- Returns the class of kernels that this process gets (kernels/cpu/backend/class.h), 'avx2' say.
function common.class()
    local C = require('wane.ffi').C
    return ffi.string(C.wn_kernels()):match '^%w+'
end

-- Returns the compiler's flags for the instructions of that class: those of a class that WANE_KERNELS names, all that
-- this processor has where it is the fastest one.
function common.class_flags()
    local C = require('wane.ffi').C
    if not common.named_class() then return '-march=native' end
    local pipe = assert(io.popen(('make -s --no-print-directory -C %s flags-%s'):format(root, common.class())))
    local flags = pipe:read '*a':gsub('%s+$', '')
    pipe:close()
    return flags .. (ffi.string(C.wn_kernels()):find 'bf16' and ' -mavx512bf16' or '')
end

-- The option --class NAME of every bench is WANE_KERNELS=NAME; it is taken from the arguments before Wane starts.
for i = 1, #arg do
    if arg[i] == '--class' then
        ffi.C.setenv('WANE_KERNELS', arg[i + 1] or error('--class takes avx512, avx2 or plain', 0), 1)
        table.remove(arg, i)
        table.remove(arg, i)
        break
    end
end

--- Builds the machine probe where it runs, with the instructions of the class of kernels. Returns a table of functions
-- gflops(threads), gflops_bf16(threads) (0 where there is no instruction for it), gflops_of and gflops_bf16_of(threads,
-- rounds), near(threads), read(threads, bytes), mix(threads, reads, writes, in_place, past_caches, bytes) and
-- lines(threads, n, bytes apart).
function common.probe()
    local path = os.tmpname()
    -- LuaJIT closes libraries when it ends: OpenMP's threads may still run then.
    local flags = '-O3 -Wno-psabi -ffast-math -fopenmp -shared -fPIC -Wl,-z,nodelete ' .. common.class_flags()
    local command = ('cc %s -o %s %s/spec/bench/probe.c'):format(flags, path, root)
    assert(os.execute(command) == 0, 'the probe could not be built')
    local library = ffi.load(path)
    os.remove(path)
    return { gflops = library.probe_gflops, gflops_bf16 = library.probe_gflops_bf16,
        gflops_of = library.probe_gflops_of, gflops_bf16_of = library.probe_gflops_bf16_of, near = library.probe_near,
        read = library.probe_read, mix = library.probe_mix, lines = library.probe_lines, library = library }
end

common.options = require 'spec.support.options'

--- Lets threads that spin after a kernel fall asleep, so that the other process of a turn finds the machine free.
function common.rest()
    ffi.C.usleep(30000)
end

--- Returns the median of a list of numbers.
function common.median(list) return require('wane.report.spread').of(list).median end

--- Returns the bytes that this process has in memory now.
function common.resident()
    local file = assert(io.open '/proc/self/statm')
    local pages = tonumber(file:read('*a'):match('^%d+ (%d+)'))
    file:close()
    return pages * 4096
end

-- ---- results as data ------------------------------------------------------------------------------------------
local function first_match(path, pattern)
    return (files.read(path) or ''):match(pattern)
end

--- Returns the load averages of 1, 5 and 15 minutes, as text.
function common.load_average()
    return first_match('/proc/loadavg', '^%S+ %S+ %S+') or 'unknown'
end

-- Returns the name of the processor, with its family and model where there are such numbers: one name may be given to
-- cores of several generations.
local function processor()
    local name = first_match('/proc/cpuinfo', 'model name%s*:%s*([^\n]+)') or 'unknown'
    local family = first_match('/proc/cpuinfo', 'cpu family%s*:%s*(%d+)')
    local model = first_match('/proc/cpuinfo', '\nmodel%s*:%s*(%d+)')
    return family and model and ('%s (family %s, model %s)'):format(name, family, model) or name
end

--- Describes the machine in words: processor, cores, memory in GiB.
function common.machine()
    local cores = first_match('/proc/self/status', 'Cpus_allowed_list:%s*(%S+)') or '?'
    return { cpu = processor(), cores = cores,
        GiB = math.floor((first_match('/proc/meminfo', 'MemTotal:%s*(%d+)') or 0) / 2 ^ 20 + 0.5) }
end

local name = arg[0]:match '([^/]*)%.lua$' or 'bench'
local began = common.load_average()
common.data = { bench = name, arguments = table.concat(arg, ' '), tables = {} }
--- Names the file that the results go to; false: none.
common.out = root .. '/build/bench/' .. name .. '.lua'

--- Gives the results of this run another name, and a file of their own.
function common.rename(other)
    common.data.bench, common.out = other, root .. '/build/bench/' .. other .. '.lua'
end

--- Writes common.data, with the machine and its load, to common.out.
function common.save()
    common.data.machine, common.data.load = common.machine(), { start = began, finish = common.load_average() }
    if not common.out then return end
    assert(os.execute(('mkdir -p "%s"'):format(common.out:match '^(.*)/' or '.')) == 0)
    files.write(common.out, '-- Results of spec/bench/', name, '.lua, as data; written by it.\nreturn ',
        require('spec.bench.report').as_text(common.data), '\n')
end

--- Prints a Markdown table and adds it to the results.
function common.table(head, rows)
    table.insert(common.data.tables, { head = head, rows = rows })
    common.save()
    io.write(require('spec.bench.report').markdown(head, rows), '\n')
    io.flush()
end

--- Shows on a terminal what is being done, in place of the text before; nil clears it.
function common.progress(text)
    if ffi.C.isatty(2) == 1 then io.stderr:write('\r\27[K', text or '') end
end

return common
