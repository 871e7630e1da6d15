--- Opens, plans and runs programs step by step for the specs of the core, and reads what was predicted and what was
-- measured straight from the library.
local luassert = require 'luassert'
local wane = require 'wane'
local binding = require 'wane.ffi'
local program = require 'wane.program'

local C = binding.C
local LEAF, LINK = 1, 2048 -- flags of ops that compute nothing
local programs = {}

local kinds = {}
for k = 0, C.WN_KIND_COUNT - 1 do kinds[k] = binding.text(C.wn_kind_name(k)) end

local function numbers(list, n)
    local out = {}
    for i = 0, n - 1 do out[i + 1] = tonumber(list[i]) end
    return out
end

--- Runs one request and returns the open program with .predicted and .measured:
-- { peak, reserved, kinds = {9 bytes}, at = {5 bytes}, host, disk, out, in = bytes that lie there or move }.
function programs.run(request)
    local p = program.open(request):plan()
    p:run()
    return programs.read(p)
end

--- Fills .predicted and .measured of a program that ran.
function programs.read(p)
    local s, m = binding.new('struct wn_summary'), binding.new('struct wn_measured')
    binding.check(C.wn_summary(p.handle, s))
    binding.check(C.wn_measured(p.handle, m))
    p.predicted = { peak = tonumber(s.peak), reserved = tonumber(s.reserved), arena = tonumber(s.arena),
        kinds = numbers(s.peak_kinds, 9), at = numbers(s.at, 5), recomputed = s.recomputed, lent = tonumber(s.lent),
        activations = tonumber(s.activation_bytes) }
    p.measured = { peak = tonumber(m.peak), reserved = tonumber(m.reserved), kinds = numbers(m.peak_kinds, 9),
        at = numbers(m.at, 5), high_water = tonumber(m.high_water), seconds = m.seconds }
    for _, name in ipairs { 'host', 'disk', 'out', 'in' } do
        p.predicted[name], p.measured[name] = tonumber(s[name]), tonumber(m[name])
    end
    return p
end

--- Returns the bytes read and written by all instructions, by the cost rules.
function programs.moved(p)
    local s = binding.new('struct wn_summary')
    binding.check(C.wn_summary(p.handle, s))
    return tonumber(s.moved)
end

--- Returns the name of kind i (from 1).
function programs.kind(i)
    return kinds[i - 1]
end

--- Returns the schedule as a list of { what, op, node, phase, inplace, bytes, offset, space, workspace, copy, live,
-- move, store, block }.
function programs.schedule(p)
    local step, out = binding.new('struct wn_step'), {}
    for i = 0, C.wn_count(p.handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
        binding.check(C.wn_step(p.handle, i, step))
        out[i + 1] = { what = binding.text(step.what), op = binding.text(step.op), node = step.node, phase = step.phase,
            inplace = step.inplace, bytes = tonumber(step.bytes), offset = tonumber(step.offset), space = step.space,
            workspace = tonumber(step.workspace), copy = step.value, live = tonumber(step.live), move = step.move,
            store = step.store, block = step.block }
    end
    return out
end

--- Makes a multi-layer perceptron of `depth` linear layers, each with a GELU or a ReLU and, where p is given, dropout.
function programs.mlp(width, depth, p)
    local nn = wane.nn
    local layers = {}
    for i = 1, depth do
        layers[#layers + 1] = nn.Linear(width, width)
        layers[#layers + 1] = i % 2 == 0 and nn.GELU() or nn.ReLU()
        if p and p > 0 then layers[#layers + 1] = nn.Dropout(p) end
    end
    return nn.Sequential(layers)
end

--- Fails unless what was predicted of a program was measured, to the byte.
function programs.same(p, what)
    luassert.equal(p.predicted.peak, p.measured.peak, what .. ': peak')
    luassert.equal(p.predicted.reserved, p.measured.reserved, what .. ': reserved')
    for k = 1, 9 do luassert.equal(p.predicted.kinds[k], p.measured.kinds[k], what .. ': ' .. programs.kind(k)) end
    for k = 1, 5 do luassert.equal(p.predicted.at[k], p.measured.at[k], what .. ': instant ' .. k) end
end

--- Returns fn(...), with every byte that a kernel writes checked, over poisoned memory.
function programs.debugged(fn, ...)
    binding.check(C.wn_debug('check', 1))
    binding.check(C.wn_debug('poison', 1))
    local function restore(ok, ...)
        C.wn_debug('check', 0)
        C.wn_debug('poison', 0)
        if not ok then error((...), 0) end
        return ...
    end
    return restore(pcall(fn, ...))
end

--- Calls fn(...) with its nth allocation made to fail. Returns whether it came through, its result or its error, and
-- whether an allocation failed.
function programs.failing(n, fn, ...)
    C.wn_debug('fail_alloc', n)
    local ok, result = pcall(fn, ...)
    local fired = C.wn_debug_get('fail_alloc') == 0
    C.wn_debug('fail_alloc', 0)
    return ok, result, fired
end

--- Returns parameters, then the cells of their optimizers in the order of their names: all that a step writes.
-- @param parameters list
-- @param optimizers list
function programs.cells(parameters, optimizers)
    local list = {}
    for _, p in ipairs(parameters) do list[#list + 1] = p end
    for _, opt in ipairs(optimizers) do
        local cells, names = opt:state_dict().cells, {}
        for name in pairs(cells) do names[#names + 1] = name end
        table.sort(names)
        for _, name in ipairs(names) do list[#list + 1] = cells[name] end
    end
    return list
end

--- Returns the names of all ops that compute: those of the table that are no leaves, and move nothing among ranks.
function programs.ops()
    local info, out = binding.new('struct wn_op_info'), {}
    for id = 0, C.wn_op_count() - 1 do
        binding.check(C.wn_op_get(id, info))
        local computes = info.flags % (2 * LEAF) < LEAF and info.flags % (2 * LINK) < LINK
        if computes then out[#out + 1] = binding.string(info.name) end
    end
    return out
end

--- Returns the raw bytes of tensors, as one Lua string a tensor.
function programs.bytes(list)
    local out = {}
    for i, t in ipairs(list) do
        local size = t:numel() * binding.element_bytes[t.dtype]
        local buffer = binding.new('uint8_t[?]', size)
        binding.check(C.wn_read(t.id, buffer, size))
        out[i] = binding.string(buffer, size)
    end
    return out
end

--- Returns the raw bytes of all tensors of a list as one text: equal texts are equal bits.
function programs.bits(list)
    return table.concat(programs.bytes(list), '|')
end

return programs
