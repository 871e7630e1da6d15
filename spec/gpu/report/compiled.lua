--- Reads what nvcc made: registers, spills and static shared memory of each kernel from the .ptxas files, and its
-- instructions from cuobjdump, where the toolkit has that. Everything is of one architecture.
local compiled = {}

-- Returns the lines that a shell command prints.
local function lines_of(command)
    local pipe, out = assert(io.popen(command)), {}
    for line in pipe:lines() do out[#out + 1] = line end
    pipe:close()
    return out
end
compiled.lines_of = lines_of

-- Gives kernels the names of their source: `multiply_mma<128, 1, 1>`, without parameters.
local function demangle(kernels)
    local name = os.tmpname()
    local file = assert(io.open(name, 'wb'))
    for _, kernel in ipairs(kernels) do file:write(kernel.symbol, '\n') end
    file:close()
    for i, line in ipairs(lines_of('c++filt <' .. name .. ' 2>/dev/null || cat ' .. name)) do
        kernels[i].name = line:gsub('^void ', ''):gsub('%(.*$', '')
    end
    os.remove(name)
end

--- Reads the .ptxas files of a folder of objects.
-- @param folder such as build/cuda90
-- @param arch 'sm_90'
-- @return list of { symbol, name, file, registers, shared, spills, stack }
function compiled.kernels(folder, arch)
    local out = {}
    for _, path in ipairs(lines_of('ls ' .. folder .. '/kernels/cuda/*.ptxas 2>/dev/null')) do
        local kernel
        for line in io.lines(path) do
            local symbol, of = line:match "Compiling entry function '([^']+)' for '([^']+)'"
            if symbol then
                kernel = of == arch and { symbol = symbol, file = path:match '([^/]+)%.ptxas$', shared = 0, spills = 0,
                    stack = 0 } or nil
                out[#out + 1] = kernel
            elseif kernel and line:find 'bytes spill stores' then
                kernel.stack = tonumber(line:match '(%d+) bytes stack frame')
                kernel.spills = tonumber(line:match '(%d+) bytes spill stores')
            elseif kernel and line:find 'Used %d+ registers' then
                kernel.registers = tonumber(line:match 'Used (%d+) registers')
                kernel.shared = tonumber(line:match '(%d+) bytes smem') or 0
            end
        end
    end
    demangle(out)
    return out
end

-- Returns the path of cuobjdump: $CUOBJDUMP, beside nvcc, on the path; nil where there is none.
local function find_cuobjdump()
    local nvcc = lines_of('sh kernels/cuda/nvcc.sh find 2>/dev/null')[1]
    local found = lines_of(('for p in "$CUOBJDUMP" "%s" "$(command -v cuobjdump)"; do '
        .. '[ -n "$p" ] && [ -x "$p" ] && echo "$p" && break; done'):format(nvcc and nvcc:gsub('nvcc$', 'cuobjdump')
        or ''))
    return found[1]
end

-- Returns the instruction of a line of a disassembly, or nil: { at, op, rest, target }.
local function instruction(line)
    local at, words = line:match '^%s+/%*(%x+)%*/%s+([^;]-)%s*;'
    if not at then return nil end
    local guard, rest = words:match '^(@!?U?P%w+)%s+(.*)$'
    local op, operands = (rest or words):match '^(%S+)%s*(.*)$'
    local target = op:find '^BRA' and operands:match '(0x%x+)[^x]*$'
    return { at = tonumber(at, 16), op = op, rest = operands, guard = guard, target = target and tonumber(target) }
end

--- Adds the list `code` of instructions to kernels.
-- @return true, or nil and why not
function compiled.disassemble(kernels, folder, arch)
    local tool = find_cuobjdump()
    if not tool then return nil, 'no cuobjdump: it is in the CUDA toolkit; set CUOBJDUMP' end
    local by_symbol, files = {}, {}
    for _, kernel in ipairs(kernels) do
        by_symbol[kernel.symbol .. '\n' .. kernel.file], files[kernel.file] = kernel, true
    end
    local count = 0
    for file in pairs(files) do
        local kernel
        local command = ('PATH="%s:$PATH" "%s" -arch %s -sass %s/kernels/cuda/%s.o 2>/dev/null'):format(
            tool:match '^(.*)/' or '.', tool, arch, folder, file)
        for _, line in ipairs(lines_of(command)) do
            local symbol = line:match '^%s*Function : (%S+)'
            if symbol then
                kernel = by_symbol[symbol .. '\n' .. file]
                if kernel then kernel.code, count = {}, count + 1 end
            elseif kernel then
                kernel.code[#kernel.code + 1] = instruction(line)
            end
        end
    end
    if count == 0 then return nil, ('%s shows no kernel of %s in %s'):format(tool, arch, folder) end
    return true
end

return compiled
