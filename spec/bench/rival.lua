-- The same steps in Wane and in PyTorch, taking turns in one run, so that both meet the same machine. PyTorch runs
-- twice: tuned (huge pages, and freed memory is kept by malloc) and as shipped; all with the same number of threads.
-- Seconds are medians of whole steps, recording included. Without PyTorch it prints Wane's columns and says so.
--
--   luajit spec/bench/rival.lua [--small] [--steps N] [--rows N,N,...]       PYTHON=python3 unless set
--
-- Bytes. "Ledger" is what Wane allocated at the peak of a step. "Process" is for both what a process of its own grew
-- by: the most that was resident (VmHWM, started anew by clear_refs) less what was resident (VmRSS) before the model
-- was built, over three steps. What PyTorch imports late (checkpoint, Adam) is loaded before.
-- PyTorch cannot say what its CPU tensors take, so that process runs with MALLOC_MMAP_THRESHOLD_=65536: what is freed
-- leaves it at once. Thread stacks, code read on demand and the libraries' scratch are in both.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local common = dofile(here .. '/common.lua')
local ffi = require 'ffi'
local wane = require 'wane'
local C = require('wane.ffi').C
local programs = require 'spec.support.programs'
local within = require 'wane.within'

local nn, optim = wane.nn, wane.optim
local MiB = 2 ^ 20
local LUAJIT = arg[-1] or 'luajit'
local PYTHON = os.getenv 'PYTHON' or 'python3'
local TUNED = 'GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=17179869184:'
    .. 'glibc.malloc.trim_threshold=17179869184'
local LIVE = 'MALLOC_MMAP_THRESHOLD_=65536'

ffi.cdef 'int usleep(unsigned);'

-- ---- options ------------------------------------------------------------------------------------------------
local function options()
    local out, i = { steps = 7 }, 1
    while arg[i] do
        local name, value = arg[i]:match '^%-%-(%l+)$', arg[i + 1]
        if name == 'small' then
            out.small = true
        elseif name == 'steps' or name == 'process' then
            out[name] = tonumber(value) or error('--' .. name .. ' takes a number', 0)
            i = i + 1
        elseif name == 'rows' then
            out.rows = {}
            for n in (value or ''):gmatch '%d+' do out.rows[tonumber(n)] = true end
            i = i + 1
        else
            error("unknown option '" .. arg[i] .. "'; known: --small, --steps N, --rows N,N,...", 0)
        end
        i = i + 1
    end
    return out
end

local chosen = options()
local heavy = chosen.small and { 64, 4, 8 } or { 4096, 20, 32 } -- width, depth, batch
local mlp = chosen.small and { 64, 4, 8 } or { 1024, 20, 32 }
local gpt = chosen.small and { 2, 32, 4, 16, 2 } or { 6, 384, 6, 256, 8 } -- blocks, d, heads, T, batch

-- ---- Wane's steps ---------------------------------------------------------------------------------------------
local function chain(width, depth, outputs)
    local layers = {}
    for i = 1, depth do
        layers[#layers + 1] = nn.Linear(width, i == depth and outputs or width)
        if not (outputs and i == depth) then layers[#layers + 1] = nn.ReLU() end
    end
    return nn.Sequential(layers)
end

-- Every layer with its ReLU is a unit of the regions.
local function heavy_step(policy)
    return function()
        local layers = {}
        for i = 1, heavy[2] do layers[i] = nn.Sequential { nn.Linear(heavy[1], heavy[1]), nn.ReLU() } end
        local model, x = nn.Sequential(layers), wane.randn(heavy[3], heavy[1], { requires_grad = true })
        return function()
            model:zero_grad()
            x.grad = nil
            model(x):sum():backward { policy = policy }
        end
    end
end

local function mlp_step(fused)
    return function()
        local model = chain(mlp[1], mlp[2], 10)
        local x, labels = wane.randn(mlp[3], mlp[1]):retain(), wane.randint(10, { mlp[3] }):retain()
        local opt = optim.Adam(model:parameters(), { lr = 1e-3 })
        return function()
            local loss = nn.cross_entropy(model(x), labels)
            if fused then return opt:step(loss) end
            opt:zero_grad()
            loss:backward()
            opt:step()
        end
    end
end

local Block = nn.module('Block', function(self, d, heads)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { dropout = 0.1 })
    self.drop = nn.Dropout(0.1)
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = 0.1 })
end)
function Block:forward(x)
    x = x + self.drop(self.attn(self.ln1(x)))
    return x + self.mlp(self.ln2(x))
end

local function gpt_step(policy)
    return function()
        local blocks = {}
        for i = 1, gpt[1] do blocks[i] = Block(gpt[2], gpt[3]) end
        local model, x = nn.Sequential(blocks), wane.randn(gpt[5], gpt[4], gpt[2]):retain()
        return function()
            model:zero_grad()
            local loss = (model(x) ^ 2):mean()
            loss:backward { policy = policy }
        end
    end
end

local function words(name, ...)
    return name .. ' ' .. table.concat({ ... }, ' ')
end

local heavy_name = ('heavy %d x %d, batch %d'):format(heavy[2], heavy[1], heavy[3])
local mlp_name = ('%d x %d, batch %d, Adam'):format(mlp[2], mlp[1], mlp[3])
local gpt_name = ('GPT stack %d blocks, d %d, T %d, batch %d'):format(gpt[1], gpt[2], gpt[4], gpt[5])
local rows = { -- name, Wane's builder, PyTorch's
    { heavy_name, heavy_step(), words('heavy', heavy[1], heavy[2], heavy[3], 0) },
    { heavy_name .. ', regions of 4', heavy_step 'every(4)', words('heavy', heavy[1], heavy[2], heavy[3], 4) },
    { mlp_name, mlp_step(false), words('mlp', unpack(mlp)) },
    { mlp_name .. ', Wane: opt:step(loss)', mlp_step(true), words('mlp', unpack(mlp)) },
    { gpt_name, gpt_step(), words('gpt', gpt[1], gpt[2], gpt[3], gpt[4], gpt[5], 0) },
    { gpt_name .. ', each block recomputed', gpt_step 'every(1)', words('gpt', gpt[1], gpt[2], gpt[3], gpt[4],
        gpt[5], 1) },
}

-- ---- processes ------------------------------------------------------------------------------------------------
local function status(name)
    for line in io.lines '/proc/self/status' do
        local kb = line:match('^' .. name .. ':%s+(%d+)')
        if kb then return tonumber(kb) * 1024 end
    end
    error('/proc/self/status has no ' .. name)
end

local function first_line(command)
    local pipe = assert(io.popen(command, 'r'))
    local line = pipe:read '*l'
    pipe:close()
    return line
end

local function is_installed()
    local find = 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'
    return os.execute(("%s -c '%s' 2> /dev/null"):format(PYTHON, find)) == 0
end

local Rival = {} -- a PyTorch process that waits for commands
Rival.__index = Rival

local function rival(settings)
    local fifo = os.tmpname()
    os.remove(fifo)
    assert(os.execute('mkfifo ' .. fifo) == 0, 'mkfifo failed')
    local start = C.wn_now()
    -- A library setting meant for other programs would slow its products down.
    local command = ('exec env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE THREADS=%d %s %s "%s/torch_steps.py" > %s')
        :format(C.wn_threads(), settings, PYTHON, here, fifo)
    local self = setmetatable({ input = assert(io.popen(command, 'w')), output = assert(io.open(fifo, 'r')) }, Rival)
    os.remove(fifo)
    local ready = self.output:read '*l' -- written after the import
    self.started = C.wn_now() - start
    self.version, self.threads = (ready or ''):match '^ready (%S+) (%d+)'
    if not self.version then error('the PyTorch process did not start: ' .. command, 0) end
    return self
end

function Rival:ask(command)
    self.input:write(command, '\n')
    self.input:flush()
    local line = self.output:read '*l'
    if not line then error("the PyTorch process died at '" .. command .. "'", 0) end
    return tonumber(line) or line
end

function Rival:close()
    self.input:write 'quit\n'
    self.input:close()
    self.output:close()
end

local function live_bytes(row)
    local one = rival(LIVE)
    one:ask('build ' .. row[3])
    for _ = 1, 3 do one:ask 'step' end
    local bytes = one:ask 'peak'
    one:close()
    return bytes
end

-- The other side of --process: this script again, for one row.
local function process_bytes(number)
    local small = chosen.small and ' --small' or ''
    local line = first_line(('"%s" "%s" --process %d%s'):format(LUAJIT, arg[0], number, small))
    return assert(tonumber(line), 'the process of row ' .. number .. ' did not end')
end

if chosen.process then
    local refs = assert(io.open('/proc/self/clear_refs', 'w'))
    refs:write '5'
    refs:close()
    local base = status 'VmRSS'
    local step = rows[chosen.process][2]()
    for _ = 1, 3 do step() end
    print(('%.0f'):format(status 'VmHWM' - base))
    os.exit(0)
end

-- ---- taking turns ---------------------------------------------------------------------------------------------
-- A pause lets threads that spin after a step go to sleep before the other's turn.
local function timed_wane(step)
    ffi.C.usleep(30000)
    local start = C.wn_now()
    step()
    return C.wn_now() - start
end

local function timed_rival(one)
    ffi.C.usleep(30000)
    return one:ask 'step'
end

local function ledger_of(step)
    local peak = 0
    within('listen', function(p) peak = math.max(peak, programs.read(p).measured.peak) end, step)
    return peak
end

local function median(list) return #list > 0 and common.median(list) or nil end

local function run(row, rivals, probe)
    local step, times = row[2](), { {}, {}, {} }
    for _, one in ipairs(rivals) do one:ask('build ' .. row[3]) end
    local out = { gflops = probe.gflops(C.wn_threads()) }
    out.bandwidth = probe.read(C.wn_threads(), chosen.small and 2 ^ 26 or 2 ^ 29)
    for turn = 1, 2 + chosen.steps do -- two to warm up
        local wane_seconds = timed_wane(step)
        local theirs = {}
        for i, one in ipairs(rivals) do theirs[i] = timed_rival(one) end
        if turn > 2 then
            table.insert(times[1], wane_seconds)
            for i, s in ipairs(theirs) do table.insert(times[1 + i], s) end
        end
    end
    out.ledger = ledger_of(step)
    out.wane, out.tuned, out.shipped = median(times[1]), median(times[2]), median(times[3])
    return out
end

local function number(format, value) return value and format:format(value) or '' end

-- ---- report ---------------------------------------------------------------------------------------------------
local function load_average()
    local file = assert(io.open '/proc/loadavg')
    local text = file:read '*l':match '^%S+ %S+ %S+'
    file:close()
    return text
end

local function wane_start()
    local start = C.wn_now()
    local root = common.root
    assert(os.execute(([["%s" -e 'package.path = "%s/lua/?.lua;%s/lua/?/init.lua;" .. package.path; ]]
        .. [[require("wane").tensor { 1, 2, 3 }']]):format(LUAJIT, root, root)) == 0, 'Wane did not start')
    return C.wn_now() - start
end

local function main()
    local probe, has_torch = common.probe(), is_installed()
    local rivals = has_torch and { rival(TUNED), rival '' } or {}
    local head = { 'step', 'Wane, s', 'Wane ledger, MiB', 'Wane process, MiB', 'probe, GFLOP/s', 'probe, GB/s' }
    if has_torch then
        head = { 'step', 'Wane, s', 'PyTorch tuned, s', 'Wane / tuned', 'as shipped, s', 'Wane ledger, MiB',
            'Wane process, MiB', 'PyTorch process, MiB', 'probe, GFLOP/s', 'probe, GB/s' }
    end
    local beside = has_torch and (', taking turns; PyTorch %s with %s threads'):format(rivals[1].version,
        rivals[1].threads) or ''
    io.write(('%d threads; medians of %d steps%s; load average at the start %s\n\n'):format(C.wn_threads(),
        chosen.steps, beside, load_average()))
    local lines, done = {}, {}
    for i, row in ipairs(rows) do
        if not chosen.rows or chosen.rows[i] then
            local r = run(row, rivals, probe)
            collectgarbage()
            collectgarbage()
            wane.memory.trim()
            lines[#lines + 1] = r
            done[#done + 1] = i
        end
    end
    for _, one in ipairs(rivals) do one:close() end
    for k, r in ipairs(lines) do -- bytes last: these processes have the memory for themselves
        local row = rows[done[k]]
        local process, theirs = process_bytes(done[k]), has_torch and live_bytes(row) or nil
        local all = { row[1], number('%.4f', r.wane), number('%.4f', r.tuned), number('%.2f', r.tuned and r.wane
            / r.tuned), number('%.4f', r.shipped), number('%.1f', r.ledger / MiB), number('%.1f', process / MiB),
            number('%.1f', theirs and theirs / MiB), number('%.0f', r.gflops), number('%.1f', r.bandwidth) }
        lines[k] = has_torch and all or { all[1], all[2], all[6], all[7], all[9], all[10] }
    end
    common.table(head, lines)
    local starts = { { 'luajit, Wane and a first tensor', ('%.3f'):format(wane_start()) } }
    for i, name in ipairs { 'python and PyTorch, tuned', 'python and PyTorch, as shipped' } do
        if rivals[i] then starts[#starts + 1] = { name, ('%.3f'):format(rivals[i].started) } end
    end
    common.table({ 'start of a process', 's' }, starts)
    print('load average at the end ' .. load_average())
    if not has_torch then
        print(PYTHON .. ' has no PyTorch: the columns PyTorch tuned, Wane / tuned, as shipped and PyTorch process are '
            .. 'absent')
    end
end

main()
