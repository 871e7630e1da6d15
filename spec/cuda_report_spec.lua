-- Checks make cuda-report: what is read of the compiler's words and of a disassembly, how many blocks fit, what the
-- model predicts of kernels whose bottleneck is known, and that the page shows the data beside it. A made-up cuobjdump
-- prints the instructions, so nothing of CUDA is needed.
local helper = require 'spec.helper'
local code = require 'spec.gpu.report.code'
local compiled = require 'spec.gpu.report.compiled'
local cudareport = require 'spec.bench.cudareport'
local machine = require 'spec.gpu.report.machine'
local model = require 'spec.gpu.report.model'
local report = require 'spec.bench.report'

local LUAJIT = os.getenv 'LUAJIT' or 'luajit'

-- Makes instructions of lines `LDG.E.128 R4, [R2]`, 16 bytes each; a line `BRA 3` branches to line 3.
local function listing(lines)
    local out = {}
    for i, line in ipairs(lines) do
        local guard, rest = line:match '^(@%S+) (.*)$'
        local op, operands = (rest or line):match '^(%S+)%s*(.*)$'
        local target = op == 'BRA' and 16 * (tonumber(operands) - 1) or nil
        out[i] = { at = 16 * (i - 1), op = op, rest = operands, guard = guard, target = target }
    end
    return out
end

local function kernel(name, lines, registers)
    return { name = name, symbol = name, file = 'x.cu', registers = registers or 32, shared = 0, spills = 0,
        code = listing(lines) }
end

local function row_of(rows, name)
    for _, row in ipairs(rows) do if row.name == name then return row end end
end

describe('the report of what nvcc made', function()
    local folder
    before_each(function()
        folder = helper.lines('mktemp -d')[1]
        helper.lines(('mkdir -p %s/kernels/cuda'):format(folder))
    end)
    after_each(function() helper.lines('rm -r ' .. folder) end)

    local function write(name, text)
        local file = assert(io.open(folder .. '/' .. name, 'wb'))
        file:write(text)
        file:close()
    end

    local PTXAS = [[
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 99 registers, used 1 barriers
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_90'
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 17 registers, used 1 barriers, 512 bytes smem, 368 bytes cmem[0]
]]

    it('reads registers, spills and shared memory of one architecture', function()
        write('kernels/cuda/add.cu.ptxas', PTXAS)
        local kernels = compiled.kernels(folder, 'sm_90')
        assert.equal(1, #kernels)
        local k = kernels[1]
        assert.same({ 17, 4, 512, 8, 'add.cu' }, { k.registers, k.spills, k.shared, k.stack, k.file })
        assert.truthy(k.name == 'add' or k.name == '_Z3addPf') -- without c++filt as it is
    end)

    it('reads instructions, and says why where there are none', function()
        write('kernels/cuda/add.cu.ptxas', PTXAS)
        write('cuobjdump', [[#!/bin/sh
echo "	Function : _Z3addPf"
echo "        /*0000*/                   LDG.E.128 R4, [R2.64] ;       /* 0x00 */"
echo "                                                                 /* 0x00 */"
echo "        /*0010*/               @!P0 BRA 0x0 ;                    /* 0x00 */"
]])
        helper.lines(('chmod 755 %s/cuobjdump'):format(folder))
        local text = helper.shell(([[CUOBJDUMP=%s/cuobjdump %s -e "
            package.path = './?.lua;lua/?.lua;lua/?/init.lua;' .. package.path
            local compiled = require 'spec.gpu.report.compiled'
            local kernels = compiled.kernels('%s', 'sm_90')
            print(compiled.disassemble(kernels, '%s', 'sm_90'))
            local code = kernels[1].code
            print(#code, code[1].op, code[2].op, code[2].guard, code[2].target)"]]):format(folder, LUAJIT, folder,
            folder))
        assert.equal('true\n2\tLDG.E.128\tBRA\t@!P0\t0\n', text)
        text = helper.shell(([[CUOBJDUMP=/none %s -e "
            package.path = './?.lua;lua/?.lua;lua/?/init.lua;' .. package.path
            local compiled = require 'spec.gpu.report.compiled'
            print(select(2, compiled.disassemble({}, '%s', 'sm_90')))"]]):format(LUAJIT, folder))
        assert.truthy(text:find('no cuobjdump', 1, true) or text:find('shows no kernel', 1, true), text)
    end)

    it('counts the blocks that fit on a multiprocessor', function()
        local function blocks(arch, registers, threads, dynamic, static)
            local made = { registers = registers, shared = static or 0 }
            local n, why = machine.blocks(arch, made, threads, dynamic or 0)
            return { n, why }
        end
        assert.same({ 8, 'threads' }, blocks(90, 32, 256))
        assert.same({ 2, 'registers' }, blocks(90, 128, 256))
        assert.same({ 4, 'shared memory' }, blocks(90, 32, 128, 48 * 1024))
        assert.same({ 32, 'blocks' }, blocks(90, 16, 32))
        assert.same({ 4, 'threads' }, blocks(75, 32, 256))
        assert.same({ 1, 'registers' }, blocks(90, 255, 256))
    end)

    it('takes the way with wide loads, and counts what is under way before the first use', function()
        local list = listing { 'ISETP P0, R1', '@P0 BRA 6', 'LDG.E R4, [R2]', 'STG.E [R8], R4', 'EXIT',
            'LDG.E.128 R4, [R2]', 'LDG.E.128 R12, [R2+0x10]', 'FADD R4, R4, R12', 'STG.E.128 [R8], R4', 'EXIT' }
        local way = code.way(list, 1, #list, function(i) return code.is_global[i.op:match '^[^.]*']
            and code.bytes_of(i.op) ^ 4 or 0 end)
        local c = code.counts(way)
        assert.same({ 7, 2, 2, 1 }, { #way, c.loads, c.wide_loads, c.wide_stores })
        assert.equal(32, code.in_flight(way))
        assert.equal(4, code.in_flight(listing { 'LDG.E R4, [R2]', 'FADD R5, R4, R4', 'LDG.E R4, [R2]', 'EXIT' }))
    end)

    it('predicts less of narrow loads, of few threads and of many instructions', function()
        local wide = { 'LDG.E.128 R4, [R2]', 'FADD R4, R4, R5', 'STG.E.128 [R8], R4', 'EXIT' }
        local narrow = { 'LDG.E.U8 R4, [R2]', 'FADD R4, R4, R5', 'STG.E.U8 [R8], R4', 'EXIT' }
        local name = 'wn__map<unary_floats<float> >'
        local function share(lines, registers)
            local row = row_of(model.rows({ kernel(name, lines, registers) }, 90, machine.h200), 'gelu, f32')
            return row.share, row.bound
        end
        local most, bound = share(wide)
        assert.equal('copy rate', bound)
        assert.equal(machine.assumed.overlap, most)
        local less, why = share(narrow)
        assert.is_true(less < most)
        assert.equal('bytes under way', why)
        assert.is_true(share({ 'LDG.E R4, [R2]', 'FADD R4, R4, R5', 'STG.E [R8], R4', 'EXIT' }, 255) < most)
        local busy = { 'LDG.E.128 R4, [R2]' }
        for i = 2, 400 do busy[i] = 'FADD R4, R4, R5' end
        busy[401], busy[402] = 'STG.E.128 [R8], R4', 'EXIT'
        less, why = share(busy)
        assert.is_true(less < most)
        assert.equal('issue', why)
    end)

    it('predicts of a product what its busiest resource allows', function()
        local function share(lines)
            local row = row_of(model.rows({ kernel('multiply_mma<128, 1, 1>', lines, 128) }, 90, machine.h200),
                'product of bf16')
            return row.share, row.bound
        end
        local lines = { 'MOV R1, R2' }
        for _ = 1, 32 do lines[#lines + 1] = 'HMMA.16816.F32.BF16 R4, R8, R12, R4' end
        lines[#lines + 1] = '@P0 BRA 2'
        local most, bound = share(lines)
        assert.equal('tensor', bound)
        assert.is_true(math.abs(most - machine.assumed.warp_mma * machine.assumed.overlap) < 1e-3)
        for _ = 1, 32 do table.insert(lines, 2, 'LDSM.16.M88.4 R8, [R2]') end
        local less, why = share(lines)
        assert.equal('shared', why)
        assert.is_true(less < most)
    end)

    it('stands on its page as it was predicted', function()
        local data = assert(loadfile(helper.root .. '/spec/bench/results_cuda.lua'))()
        assert.is_nil(cudareport.refusal(data))
        local page = helper.read 'spec/bench/RESULTS.md'
        local measured = loadfile(helper.root .. '/spec/bench/results_gpu.lua')
        assert.equal('\n' .. cudareport.results(data, measured and measured()) .. '\n', report.marked(page, 'cuda'))
        for _, r in ipairs(data.rows) do assert.is_true(r.share > 0 and r.share <= 1, r.name) end
        for _, s in ipairs(data.steps) do
            assert.is_true(s.ms >= s.roofline_ms and s.library_ms >= s.roofline_ms and s.unknown < 0.05, s.name)
        end
        assert.is_not_nil(cudareport.refusal { rows = {} })
    end)
end)
