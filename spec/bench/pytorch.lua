--- Runs a PyTorch process beside a bench: started with a script of this folder, asked line by line. Commands go in by a
-- pipe, answers come back by a named one; what it complains of is shown only when it dies (its profiler speaks there
-- whatever happens). The python is that of $PYTHON, python3 unless set.
local C = require('wane.ffi').C

local pytorch = {}

local PYTHON = os.getenv 'PYTHON' or 'python3'

--- The settings that make PyTorch fast here: huge pages, freed memory kept by malloc, fused optimizers.
pytorch.TUNED = 'FUSED=1 GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=17179869184:'
    .. 'glibc.malloc.trim_threshold=17179869184'

--- The settings that hold PyTorch to a class of processors: its own loops, oneDNN (two names, by version) and MKL.
pytorch.HELD = {
    plain = 'ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 DNNL_MAX_CPU_ISA=SSE41 '
        .. 'MKL_ENABLE_INSTRUCTIONS=SSE4_2',
    avx2 = 'ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2',
    avx512 = 'ATEN_CPU_CAPABILITY=avx512',
}

--- Names the python that is asked.
pytorch.python = PYTHON

--- Returns whether the python that is asked has PyTorch.
function pytorch.is_installed()
    local find = 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'
    return os.execute(("%s -c '%s' 2> /dev/null"):format(PYTHON, find)) == 0
end

local Process = {}
Process.__index = Process

--- Starts a PyTorch process and waits until it has imported PyTorch.
-- @param script file to run
-- @param settings environment, as the shell writes it
-- @return process: ask(command), close(); started (seconds), version, threads, libraries
function pytorch.start(script, settings)
    local fifo, complaints = os.tmpname(), os.tmpname()
    os.remove(fifo)
    assert(os.execute('mkfifo ' .. fifo) == 0, 'mkfifo failed')
    local start = C.wn_now()
    -- A library setting meant for other programs would slow its products down.
    local command = ('exec env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE THREADS=%d %s %s "%s" > %s 2> %s'):format(
        C.wn_threads(), settings, PYTHON, script, fifo, complaints)
    local self = setmetatable({ input = assert(io.popen(command, 'w')), output = assert(io.open(fifo, 'r')),
        complaints = complaints }, Process)
    os.remove(fifo)
    local ready = self.output:read '*l' -- written after the import
    self.started = C.wn_now() - start
    self.version, self.threads, self.libraries = (ready or ''):match '^ready (%S+) (%d+) (%S+)'
    if not self.version then self:died 'did not start' end
    return self
end

function Process:died(when)
    local file = io.open(self.complaints)
    error(('the PyTorch process %s:\n%s'):format(when, file and file:read '*a' or ''), 0)
end

--- Sends a command and returns the answer: a number where it is one, else the line.
function Process:ask(command)
    self.input:write(command, '\n')
    self.input:flush()
    local line = self.output:read '*l'
    if not line then self:died("died at '" .. command .. "'") end
    return tonumber(line) or line
end

--- Returns what PyTorch says of itself, for the results.
function Process:described()
    return { version = self.version, threads = tonumber(self.threads), libraries = self.libraries:gsub('-', ' ')
        :gsub(',', ', ') }
end

function Process:close()
    self.input:write 'quit\n'
    self.input:close()
    self.output:close()
    os.remove(self.complaints)
end

return pytorch
