--- Predicts each kernel's share of the roofline from its instructions, by a simple model that is stated in the report.
local binding = require 'wane.ffi'
local code = require 'spec.gpu.report.code'
local families = require 'spec.gpu.report.families'
local machine = require 'spec.gpu.report.machine'

local model = {}
local assumed = machine.assumed
local MMA_FLOP, FMA_FLOP = 4096, 64 -- of one HMMA.16816 and of one FFMA of a warp

-- Returns the kernel of a row: the first whose name matches.
local function find(kernels, row)
    local pattern = row.kernel:gsub('OP:([%w_]+)', function(op) return binding.C.wn_op_id(op) end)
    for _, kernel in ipairs(kernels) do if kernel.name:find(pattern) then return kernel end end
end

-- Returns what an instruction counts for: tensor instructions where the kernel has any, else fma; of a kernel that is
-- bound by device memory a power of its bytes, so that a way takes wide loads and not the rest at the end.
-- Asynchronous copies count a little, for the same reason.
local function weight_of(kernel, class)
    local has_mma = class ~= 'bytes' and code.counts(kernel.code).mma > 0
    local wanted = has_mma and { HMMA = 1, LDGSTS = 0.01 } or { FFMA = 1 }
    return function(instr)
        local kind = instr.op:match '^[^.]*'
        if class ~= 'bytes' then return wanted[kind] or 0 end
        return code.is_global[kind] and code.bytes_of(instr.op) ^ 4 or 0
    end
end

-- Returns the instructions of the loop in which most of the arithmetic is, the smallest such.
local function hot_loop(kernel, class)
    local weigh, best, most = weight_of(kernel, class), nil, 0
    for _, loop in ipairs(code.loops(kernel.code)) do
        local sum = 0
        for i = loop.first, loop.last do sum = sum + weigh(kernel.code[i]) end
        if sum > most * 1.01 then best, most = loop, sum end
    end
    if not best then return kernel.code end
    return code.way(kernel.code, best.first, best.last, weigh)
end

-- Predicts a kernel that is bound by arithmetic. Cycles that a multiprocessor needs for one turn of the loop of a warp:
-- the largest of issue (4 a cycle), tensor cores, f32 units and shared memory (128 bytes a cycle).
local function arithmetic(row, kernel, gpu)
    local c = code.counts(hot_loop(kernel, row.class))
    local per_cycle = gpu.tensor / gpu.multiprocessors / gpu.clock
    local cycles = { issue = c.n / 4, f32 = c.fma / 4, f64 = c.double / 2, special = c.special * 2, shared = c.shared,
        tensor = c.mma * MMA_FLOP / per_cycle / assumed.warp_mma }
    local bound, most = nil, 0
    for name, value in pairs(cycles) do if value > most then bound, most = name, value end end
    local flop = c.mma > 0 and c.mma * MMA_FLOP or c.fma * FMA_FLOP
    local peak = row.class == 'f32' and gpu.f32 or gpu.tensor
    local rate = flop / most * gpu.clock * gpu.multiprocessors
    row.mma_in_loop, row.instructions = c.mma, c.n
    return rate / peak / (row.executed or 1) * assumed.overlap, bound
end

-- Returns the loops of device memory of a kernel: of those that hold no smaller one the `passes` that load most; the
-- way through the whole kernel where it has none, or where a thread computes one piece (row.straight).
local function memory_loops(row, kernel, passes)
    local weigh, found = weight_of(kernel, 'bytes'), {}
    for _, loop in ipairs(code.loops(kernel.code)) do
        local holds = false
        for _, inner in ipairs(found) do holds = holds or loop.first <= inner.first and inner.last <= loop.last end
        if not holds then
            local way = code.way(kernel.code, loop.first, loop.last, weigh)
            local c = code.counts(way)
            if c.loads > 0 then found[#found + 1] = { first = loop.first, last = loop.last, way = way, counts = c } end
        end
    end
    if #found == 0 or row.straight then
        local straight = code.way(kernel.code, 1, #kernel.code, weigh)
        return { { way = straight, counts = code.counts(straight) } }
    end
    table.sort(found, function(a, b) return a.counts.loaded > b.counts.loaded end)
    for i = #found, passes + 1, -1 do found[i] = nil end
    return found
end

-- Predicts a kernel that is bound by device memory, as a share of the copy rate: at most 1, what the bytes under way
-- over the latency give, and what issuing its instructions takes.
local function bytes(row, kernel, gpu)
    local loops = memory_loops(row, kernel, row.passes or 1)
    local per_byte, stored, flight, n = 0, 0, 0, 0
    for _, loop in ipairs(loops) do
        local c = loop.counts
        local moved = c.loaded > 0 and c.loaded or c.stored
        if moved > 0 then
            per_byte, n = per_byte + c.n / moved, n + 1
            stored = math.max(stored, c.loaded > 0 and c.stored / c.loaded or 0)
        end
        flight = math.max(flight, code.in_flight(loop.way))
    end
    if n == 0 then return nil end
    local threads = row.blocks * row.threads
    local under_way = flight > 0 and threads * flight / assumed.latency * gpu.multiprocessors * (1 + stored)
        or math.huge
    local issue = (1 + stored) / per_byte * 4 * 32 * gpu.clock * gpu.multiprocessors
    row.flight = flight
    local least = math.min(gpu.copy, under_way, issue)
    local bound = least == gpu.copy and 'copy rate' or least == issue and 'issue' or 'bytes under way'
    return least / gpu.copy * assumed.overlap, bound
end

--- Fills rows of families.lua for the kernels of an architecture.
-- @param kernels of compiled.lua
-- @param arch 90
-- @param gpu of machine.lua
-- @return list of rows with: registers, spills, shared, blocks, limit, occupancy, counts, share, bound; those without a
-- kernel are left out
function model.rows(kernels, arch, gpu)
    local out = {}
    for _, family in ipairs(families) do
        local kernel = find(kernels, family)
        if kernel then
            local row = setmetatable({ threads = family.threads or 256, dynamic = family.dynamic or 0 },
                { __index = family })
            row.symbol, row.registers, row.spills = kernel.name, kernel.registers, kernel.spills
            row.shared = kernel.shared + row.dynamic
            row.blocks, row.limit, row.occupancy = machine.blocks(arch, kernel, row.threads, row.dynamic)
            if kernel.code then
                row.counts = code.counts(kernel.code)
                row.share, row.bound = (family.class == 'bytes' and bytes or arithmetic)(row, kernel, gpu)
            end
            out[#out + 1] = row
        end
    end
    return out
end

return model
