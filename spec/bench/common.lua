--- What the benches share: the tree on the path, the machine probe, medians, tables.
local root = arg[0]:match('^(.*)/spec/bench/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local ffi = require 'ffi'
local common = { root = root }

ffi.cdef [[
double probe_gflops(int threads);
double probe_gflops_bf16(int threads);
double probe_read(int threads, int64_t bytes);
double probe_mix(int threads, int reads, int writes, int in_place, int past_caches, int64_t bytes);
]]

--- The machine probe, built where it runs. Returns a table of functions gflops(threads), gflops_bf16(threads) (0 where
-- there is no instruction for it), read(threads, bytes) and mix(threads, reads, writes, in_place, past_caches, bytes).
function common.probe()
    local path = os.tmpname()
    local flags = '-O3 -march=native -ffast-math -fopenmp -shared -fPIC'
    local command = ('cc %s -o %s %s/spec/bench/probe.c'):format(flags, path, root)
    assert(os.execute(command) == 0, 'the probe could not be built')
    local library = ffi.load(path)
    os.remove(path)
    return { gflops = library.probe_gflops, gflops_bf16 = library.probe_gflops_bf16, read = library.probe_read,
        mix = library.probe_mix, library = library }
end

--- Median of a list of numbers.
function common.median(list)
    table.sort(list)
    local n = #list
    return n % 2 == 1 and list[(n + 1) / 2] or (list[n / 2] + list[n / 2 + 1]) / 2
end

--- Bytes this process has in memory now.
function common.resident()
    local file = assert(io.open '/proc/self/statm')
    local pages = tonumber(file:read('*a'):match('^%d+ (%d+)'))
    file:close()
    return pages * 4096
end

--- Prints a Markdown table.
function common.table(head, rows)
    io.write('| ', table.concat(head, ' | '), ' |\n|', ('---|'):rep(#head), '\n')
    for _, row in ipairs(rows) do
        local cells = {}
        for i = 1, #head do cells[i] = tostring(row[i]) end
        io.write('| ', table.concat(cells, ' | '), ' |\n')
    end
    io.write('\n')
end

return common
