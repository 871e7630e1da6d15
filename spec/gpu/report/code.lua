--- Looks at the instructions of a kernel: widths of its loads and stores, its loops, and the way that a warp takes
-- through a stretch of them.
local code = {}

--- Returns the bytes that a load or a store of this name moves a thread.
function code.bytes_of(op)
    return op:find '%.128' and 16 or op:find '%.64' and 8 or op:find '%.[US]?16' and 2 or op:find '%.[US]8' and 1 or 4
end
local bytes_of = code.bytes_of

--- Kinds of instructions that load from or store to device memory; LD and ST may be of shared memory too.
code.is_global = { LDG = true, STG = true, LD = true, ST = true, LDGSTS = true }

--- Counts of a list of instructions: loads, stores (of device memory), wide loads and stores (16 bytes), `mma` (HMMA),
-- fma (FFMA, FADD, FMUL of f32), and bytes a thread loads and stores; shared: cycles of shared memory a warp.
function code.counts(list)
    local c = { n = #list, loads = 0, stores = 0, wide_loads = 0, wide_stores = 0, mma = 0, fma = 0, loaded = 0,
        stored = 0, shared = 0, double = 0, special = 0 }
    for _, i in ipairs(list) do
        local op, kind = i.op, i.op:match '^[^.]*'
        if kind == 'LDG' or kind == 'LD' or kind == 'LDGSTS' then
            c.loads, c.loaded = c.loads + 1, c.loaded + bytes_of(op)
            if bytes_of(op) == 16 then c.wide_loads = c.wide_loads + 1 end
        elseif kind == 'STG' or kind == 'ST' then
            c.stores, c.stored = c.stores + 1, c.stored + bytes_of(op)
            if bytes_of(op) == 16 then c.wide_stores = c.wide_stores + 1 end
        end
        if kind == 'HMMA' then c.mma = c.mma + 1
        elseif kind == 'FFMA' or kind == 'FADD' or kind == 'FMUL' then c.fma = c.fma + 1
        elseif kind == 'DFMA' or kind == 'DADD' or kind == 'DMUL' then c.double = c.double + 1
        elseif kind == 'MUFU' then c.special = c.special + 1
        elseif kind == 'LDS' or kind == 'STS' or kind == 'LDGSTS' then
            c.shared = c.shared + math.max(1, bytes_of(op) / 4)
        elseif kind == 'LDSM' then
            c.shared = c.shared + (op:find '%.4' and 4 or op:find '%.2' and 2 or 1)
        end
    end
    return c
end

--- Returns the loops of a kernel as { first, last } indices: from the target of each branch back to the branch.
function code.loops(list)
    local index, out = {}, {}
    for i, instr in ipairs(list) do index[instr.at] = i end
    for i, instr in ipairs(list) do
        local first = instr.target and index[instr.target]
        -- The trap of a branch to itself ends every kernel.
        if first and first < i then out[#out + 1] = { first = first, last = i } end
    end
    table.sort(out, function(a, b) return a.last - a.first < b.last - b.first end)
    return out
end

-- Returns whether way a carries more of what is weighed than b, or as much with fewer instructions.
local function better(a, b)
    if not b then return true end
    if a.weight ~= b.weight then return a.weight > b.weight end
    return a.n < b.n
end

--- Returns the instructions of the way from index `first` to `last` on which most of what `weigh` counts lies, the
-- shortest of those; branches back are not taken. An indirect branch may go on anywhere behind it.
function code.way(list, first, last, weigh)
    local index, best = {}, {}
    for i = first, last do index[list[i].at] = i end
    local behind -- the best way from anywhere behind the current instruction
    for i = last, first, -1 do
        local instr = list[i]
        local choice
        local function offer(next_)
            local to = next_ and best[next_]
            if to and better(to, choice) then choice = to end
        end
        local is_end = instr.op:find '^EXIT' or i == last
        local jumps = instr.target and index[instr.target]
        if instr.op:find '^BRX' then choice = behind
        elseif instr.target and not instr.guard and not instr.rest:find '^U?!?U?P' then
            if jumps and jumps > i then offer(jumps) end
        else
            if jumps and jumps > i then offer(jumps) end
            if not (is_end and not instr.guard) then offer(i + 1) end
        end
        local rest = choice or { weight = 0, n = 0 }
        if choice or is_end then
            best[i] = { weight = rest.weight + weigh(instr), n = rest.n + 1, at = i, rest = rest }
            if better(best[i], behind) then behind = best[i] end
        end
    end
    local out, step = {}, best[first]
    while step and step.at do
        out[#out + 1] = list[step.at]
        step = step.rest
    end
    return out
end

--- Returns the most bytes that a thread has asked for before it needs the first of them.
function code.in_flight(list)
    local pending, bytes, most = {}, 0, 0
    for _, i in ipairs(list) do
        local kind = i.op:match '^[^.]*'
        if kind == 'LDGSTS' then
            bytes = bytes + bytes_of(i.op)
        else
            local is_load = kind == 'LDG' or kind == 'LD'
            local from = is_load and i.rest:match ',(.*)$' or i.rest
            for register in from:gmatch 'R(%d+)' do
                if pending[tonumber(register)] then pending, bytes = {}, 0 end
            end
            if is_load then
                local register = tonumber(i.rest:match '^R(%d+)')
                for r = 0, bytes_of(i.op) / 4 - 1 do if register then pending[register + r] = true end end
                if register then pending[register] = true end
                bytes = bytes + bytes_of(i.op)
            end
        end
        most = math.max(most, bytes)
    end
    return most
end

return code
