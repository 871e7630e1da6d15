--- The numbers of a GPU that the model counts with, and how many blocks fit on a multiprocessor.
local machine = {}

-- By architecture: threads, blocks, and KiB of shared memory of a multiprocessor.
local limits = {
    [75] = { 1024, 16, 64 }, [80] = { 2048, 32, 164 }, [86] = { 1536, 16, 100 }, [89] = { 1536, 24, 100 },
    [90] = { 2048, 32, 228 }, [100] = { 2048, 32, 228 }, [120] = { 1536, 24, 100 },
}

--- An H200. clock: Hz at which the data sheet's tensor rate holds, 989.4e12 / (132 x 4096); copy: bytes a second read
-- and written by a copy within the device (4.3 TB/s, measured on such a GPU by PyTorch; the data sheet has 4.8).
machine.h200 = {
    name = 'H200', multiprocessors = 132, clock = 1.83e9, copy = 4.3e12, sheet_bytes = 4.8e12, tensor = 989e12,
    f32 = 67e12, library_bf16 = 788e12,
}

--- Assumptions of the model that nobody has measured here; the report states each.
machine.assumed = {
    latency = 600e-9,   -- seconds from a load of device memory to its use, under load
    warp_mma = 0.63,    -- share of the tensor rate that mma.sync reaches on Hopper, whose full rate takes wgmma
    overlap = 0.85,     -- share of what its busiest resource allows that a kernel reaches
    launch = 3e-6,      -- seconds of a launch, as the planner's target has it
}

--- Returns how many blocks fit on a multiprocessor, and by what they are limited.
-- @param arch 90
-- @param kernel { registers, shared = static bytes }
-- @param threads of a block
-- @param dynamic bytes of dynamic shared memory
function machine.blocks(arch, kernel, threads, dynamic)
    local limit = limits[arch] or limits[90]
    local warps = math.ceil(threads / 32)
    local by_registers = math.floor(65536 / (math.ceil(kernel.registers * 32 / 256) * 256) / 4) * 4
    local shared = kernel.shared + dynamic
    local list = { { math.floor(limit[1] / threads), 'threads' }, { limit[2], 'blocks' },
        { math.floor(by_registers / warps), 'registers' } }
    if shared > 0 then
        -- Each block takes 1 KiB for the system beside its own.
        list[4] = { math.floor(limit[3] * 1024 / (math.ceil(shared / 128) * 128 + 1024)), 'shared memory' }
    end
    local best = list[1]
    for _, item in ipairs(list) do if item[1] < best[1] then best = item end end
    return best[1], best[2], best[1] * threads / limit[1]
end

return machine
