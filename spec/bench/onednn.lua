-- Compares own products with oneDNN's, where there is a oneDNN: the measurement behind not using it without AMX.
-- `luajit spec/bench/onednn.lua [library [threads [small]]]`; small finds where a call begins to pay. Both take short
-- turns in one process and share libgomp. Rates are of the best turn, ratios the median of turns beside each other.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local ffi = require 'ffi'

ffi.cdef [[
const char *onednn_open(const char *name, int *usable);
int onednn_turns(int threads, int bf16, int64_t batch, int64_t m, int64_t n, int64_t k, int flip_a, int flip_b,
                 int turn, double out[][4]);
]]

-- Builds the bench with all objects of the library, those of its fastest class with their symbols.
local function build()
    local path, root = os.tmpname(), common.root
    local command = ('cd %s && make -s all && gcc -std=gnu11 -D_GNU_SOURCE -w -O2 -fopenmp -shared -fPIC '
        .. '-Wl,-z,defs,-z,nodelete '
        .. '-o %s spec/bench/onednn.c $(sh spec/support/open_class.sh %s) -lm -ldl')
        :format(root, path, common.class())
    assert(os.execute(command) == 0, 'the bench could not be built')
    local library = ffi.load(path)
    os.remove(path)
    return library
end

local C = build()
local usable = ffi.new 'int[1]'
local version = ffi.string(C.onednn_open(arg[1], usable))
if usable[0] == 0 then
    print('oneDNN: ' .. version)
    return
end

local shapes = {} -- name, batch, m, n, k, transpose a, transpose b
local function layer(rows, n, k)
    shapes[#shapes + 1] = { 'y = x W^T', 1, rows, n, k, 0, 1 }
    shapes[#shapes + 1] = { 'dX = dY W', 1, rows, k, n, 0, 0 }
    shapes[#shapes + 1] = { 'dW = dY^T X', 1, n, k, rows, 1, 0 }
end
local function attention(heads, length, depth)
    shapes[#shapes + 1] = { 'Q K^T', heads, length, length, depth, 0, 1 }
    shapes[#shapes + 1] = { 'P V', heads, length, depth, length, 0, 0 }
    shapes[#shapes + 1] = { 'P^T dY', heads, length, depth, length, 1, 0 }
end
if arg[3] == 'small' then
    for _, n in ipairs { 32, 64, 96, 128, 192, 256, 384, 512 } do layer(n, n, n) end
else
    layer(2048, 1536, 384)
    layer(2048, 384, 1536)
    layer(2048, 1152, 384)
    layer(1024, 1024, 1024)
    layer(1024, 2304, 768)
    layer(2048, 3072, 768)
    layer(32, 4096, 4096)
    attention(96, 256, 64)
    attention(12, 1024, 64)
end

local TURNS = 33
local out = ffi.new('double[?][4]', TURNS)
local function best(i)
    local most = 0
    for t = 0, TURNS - 1 do most = math.max(most, out[t][i]) end
    return most
end

local function ratio(i, j)
    local list = {}
    for t = 0, TURNS - 1 do list[t + 1] = out[t][i] / out[t][j] end
    return common.median(list)
end

for _, threads in ipairs(arg[2] and { tonumber(arg[2]) } or { 1, 2 }) do
    for bf16 = 0, 1 do
        local rows = {}
        for _, s in ipairs(shapes) do
            local size = s[2] > 1 and s[2] .. ' of ' or ''
            local row = { ('%s, %s%d x %d x %d'):format(s[1], size, s[3], s[4], s[5]) }
            if C.onednn_turns(threads, bf16, s[2], s[3], s[4], s[5], s[6], s[7], TURNS, out) == 1 then
                row[2], row[3] = ('%.0f'):format(best(0)), ('%.0f'):format(best(1))
                row[4], row[5] = ('%.2f'):format(ratio(1, 0)), ('%.0f %%'):format(100 * ratio(0, 2))
                row[6] = ('%.0f'):format(best(3) / 1024)
            else
                row[2], row[3], row[4], row[5], row[6] = '', 'refused', '', '', ''
            end
            rows[#rows + 1] = row
        end
        common.table({ ('%s, threads: %d'):format(bf16 == 1 and 'bf16' or 'f32', threads), 'own, GFLOP/s',
            'oneDNN ' .. version, 'oneDNN / own',
            'own, share of the peak', 'its scratch, KiB' }, rows)
        io.stdout:flush()
    end
end
