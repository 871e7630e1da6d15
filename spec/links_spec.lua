-- Checks the direction of rooms on what their objects link with: each symbol that an object takes from another room
-- must come from a room that `may_link` names. Includes alone do not show this: a declaration can be repeated anywhere.
-- Reads `nm` of the objects that build/release/objects lists.
local helper = require 'spec.helper'
local files = require 'spec.support.files'

-- `may_link` maps a room to the rooms whose symbols it may take, besides its own.
local may_link = {
    base = {},
    io = { 'base' },
    link = { 'base' },
    device = { 'base' },
    memory = { 'device', 'base' },
    ops = { 'base' },
    graph = { 'ops', 'memory', 'device', 'base' },
    ['plan/ir'] = { 'graph', 'ops', 'base' },
    ['plan/recipe'] = { 'plan/ir', 'ops', 'base' },
    ['plan/chain'] = { 'base' },
    ['plan/lower'] = { 'plan/recipe', 'plan/ir', 'ops', 'base' },
    ['plan/search'] = { 'plan/lower', 'plan/chain', 'plan/recipe', 'plan/ir', 'graph', 'ops', 'base' },
    program = { 'plan/search', 'plan/lower', 'plan/recipe', 'plan/ir', 'graph', 'ops', 'memory', 'device', 'base' },
    ['run/issue'] = { 'program', 'plan/lower', 'plan/recipe', 'plan/ir', 'graph', 'ops', 'memory', 'device', 'link',
        'base' },
    ['run/watch'] = { 'run/issue', 'program', 'plan/lower', 'plan/recipe', 'plan/ir', 'graph', 'ops', 'memory',
        'device', 'base' },
    run = { 'run/watch', 'run/issue', 'program', 'plan/lower', 'plan/ir', 'graph', 'ops', 'memory', 'device', 'base' },
    api = { 'run', 'run/watch', 'run/issue', 'program', 'plan/search', 'plan/lower', 'plan/recipe', 'plan/ir',
        'graph', 'ops', 'memory', 'device', 'io', 'link', 'base' },
    kernels = { 'base' }, -- each folder of kernels is a room of its own
}

-- `entries` maps a room to the pattern of the one symbol that it may take of each folder of kernels.
local entries = { device = '^wn__backend_(%w+)$' }

-- Returns the room of an object, nil for an object of no room: 'build/release/runtime/plan/ir/costs.o' -> 'plan/ir',
-- 'build/release/avx2/kernels/cpu/gemm/gemm.o' -> 'kernels/cpu'.
local function room_of(object)
    local folder = object:match('/kernels/(%w+)/')
    if folder then return 'kernels/' .. folder end
    return object:match('/runtime/(.*)/[^/]*%.o$')
end

-- Returns the object that defines each symbol, and a list of { object, symbol } of what objects take.
local function read_symbols(lines)
    local defined, taken = {}, {}
    for _, line in ipairs(lines) do
        local object, symbol, kind = line:match('^(%S+): (%S+) (%a)')
        if kind == 'U' then
            taken[#taken + 1] = { object = object, symbol = symbol }
        elseif kind and kind == kind:upper() then
            defined[symbol] = object
        end
    end
    return defined, taken
end

-- Returns the name of a room's row in `may_link`: 'kernels/cpu' -> 'kernels'.
local function row_of(room)
    return room:match('^kernels') or room
end

local function may_take(from, symbol, to)
    if from == to then return true end
    for _, room in ipairs(may_link[row_of(from)]) do
        if room == to then return true end
    end
    local folder = entries[from] and symbol:match(entries[from])
    return folder ~= nil and to == 'kernels/' .. folder
end

-- Returns one line for each symbol taken against the direction.
local function offences(lines)
    local defined, taken = read_symbols(lines)
    local bad = {}
    for _, t in ipairs(taken) do
        local from = room_of(t.object)
        local to = defined[t.symbol] and room_of(defined[t.symbol])
        if from and to and not may_take(from, t.symbol, to) then
            bad[#bad + 1] = ('%s (%s) may not link with %s of %s'):format(t.object, from, t.symbol, to)
        end
    end
    return bad
end

local function nm()
    return helper.lines('nm -A -P $(cat build/release/objects)')
end

local function show(list)
    return '\n    ' .. table.concat(list, '\n    ')
end

describe('the rules of links', function()
    it('see a symbol taken upwards, and let one taken downwards pass', function()
        local bad = offences {
            'build/release/runtime/run/run.o: wn__up T 0 1',
            'build/release/runtime/base/type.o: wn__down T 0 1',
            'build/release/runtime/base/type.o: wn__up U',
            'build/release/runtime/run/run.o: wn__down U',
        }
        assert.same({ 'build/release/runtime/base/type.o (base) may not link with wn__up of run' }, bad)
    end)

    it('let a device take the one entry of a folder of kernels, and nothing else of it', function()
        local bad = offences {
            'build/release/kernels/cpu/backend/backend.o: wn__backend_cpu R 0 1',
            'build/release/avx2/kernels/cpu/gemm/gemm.o: wn__backend_gemm T 0 1',
            'build/release/runtime/device/cpu.o: wn__backend_cpu U',
            'build/release/runtime/device/cpu.o: wn__backend_gemm U',
            'build/release/runtime/run/run.o: wn__backend_cpu U',
        }
        assert.same({ 'build/release/runtime/device/cpu.o (device) may not link with wn__backend_gemm of kernels/cpu',
            'build/release/runtime/run/run.o (run) may not link with wn__backend_cpu of kernels/cpu' }, bad)
    end)
end)

describe('links', function()
    it('follow the direction of rooms', function()
        local bad = offences(nm())
        assert(#bad == 0, show(bad))
    end)

    it('are read of rooms that the rules know, each of them', function()
        local seen = {}
        for _, line in ipairs(nm()) do
            local room = room_of(line:match('^(%S+):') or '')
            if room then seen[row_of(room)] = true end
        end
        for room in pairs(seen) do assert(may_link[room], 'no rule for ' .. room) end
        for room in pairs(may_link) do assert(seen[room], 'no object of ' .. room) end
    end)
end)

-- ---- C files of specs ----------------------------------------------------------------------------------------------
-- Guards against C files of spec/ that no other spec compiles: benches and fuzzers. A rename in the library broke them
-- without a word before, as they are built only where somebody asks for numbers, or where clang is installed.
local CC = os.getenv 'CC' or 'gcc'

-- Returns what the compiler says of a file, or '' when it takes the file.
local function complaint_of(path)
    local is_mpi = path:find '%.c$' and helper.read(path):find('<mpi.h>', 1, true)
    local text, code = helper.shell(('%s -std=gnu11 -D_GNU_SOURCE -fopenmp -fsyntax-only -w -I. -Iruntime %s')
        :format(is_mpi and 'mpicc' or CC, path))
    return code == 0 and '' or text
end

describe('C files of spec/', function()
    -- spec/device_spec.lua builds the fixtures.
    local command = "find spec -name '*.c' ! -path 'spec/fixtures/*' | LC_ALL=C sort"
    for _, path in ipairs(helper.lines(command)) do
        local is_left_out = path:find 'allreduce' and select(2, helper.shell 'command -v mpicc') ~= 0
        it('compile: ' .. path, is_left_out and function() pending 'is not tried: no mpicc' end or function()
            assert.equal('', complaint_of(path))
        end)
    end

    it('are refused where they name what is not there', function()
        local path = os.tmpname()
        files.write(path, '#include "kernels/cpu/gemm/gemm.h"\nint f(struct wn__gemm *p) { return p->walk; }\n')
        local text = complaint_of('-x c ' .. path)
        os.remove(path)
        assert.matches('walk', text)
    end)
end)
