-- Reports what nvcc made of the kernels and what that predicts: `luajit spec/gpu/report/main.lua ARCH FOLDER`, for
-- make cuda-report. ARCH: 90; FOLDER: of the objects, build/cuda. Prints the table of the kernels that matter, writes
-- all of it to build/cuda-report.md, and the predictions, which are for an H200 and made of sm_90 alone, to
-- build/bench/cuda.lua, which `luajit spec/bench/publish.lua cuda` publishes.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local root = here:match '^(.*)/spec/gpu/report$' or here .. '/../../..'
package.path = table.concat({ root .. '/lua/?.lua', root .. '/lua/?/init.lua', root .. '/?.lua',
    package.path }, ';')
rawset(arg, 0, root .. '/spec/bench/cuda.lua') -- what follows belongs to the benches, by its name too
local common = require 'spec.bench.common'
local compiled = require 'spec.gpu.report.compiled'
local cudareport = require 'spec.bench.cudareport'
local machine = require 'spec.gpu.report.machine'
local model = require 'spec.gpu.report.model'
local report = require 'spec.bench.report'

local arch, folder = tonumber(arg[1]), arg[2]
if not arch or not folder then error('main.lua: give the architecture and the folder of the objects', 0) end

-- Returns the table of all kernels, a row each.
local function every_kernel(kernels)
    local rows = {}
    for i, k in ipairs(kernels) do
        local c = k.code and require('spec.gpu.report.code').counts(k.code)
        rows[i] = { k.file, '`' .. k.name .. '`', k.registers, k.spills, k.shared, c and c.n or '',
            c and ('%d of %d'):format(c.wide_loads, c.loads) or '', c and ('%d of %d'):format(c.wide_stores, c.stores)
            or '', c and c.mma or '' }
    end
    return report.markdown({ 'file', 'kernel', 'registers', 'spilled bytes', 'static shared bytes', 'instructions',
        '16-byte loads', '16-byte stores', 'tensor instructions' }, rows)
end

local function write(path, text)
    local file = assert(io.open(path, 'wb'))
    assert(file:write(text))
    file:close()
    print('wrote ' .. path)
end

local function main()
    local kernels = compiled.kernels(folder, 'sm_' .. arch)
    if #kernels == 0 then error(('there is no kernel of sm_%d in %s; make cuda builds it'):format(arch, folder), 0) end
    local is_read, why = compiled.disassemble(kernels, folder, 'sm_' .. arch)
    local spilled = 0
    for _, k in ipairs(kernels) do spilled = spilled + k.spills end
    local rows = model.rows(kernels, arch, machine.h200)
    local measured = loadfile(root .. '/spec/bench/results_gpu.lua')
    measured = measured and measured()
    local data = common.data
    data.bench, data.arch, data.count, data.spilled, data.rows = 'cuda', arch, #kernels, spilled, {}
    for i, row in ipairs(rows) do
        data.rows[i] = { name = row.name, class = row.class, share = row.share, bound = row.bound }
    end
    local is_predicted = is_read and arch == 90
    if is_predicted then data.steps = require('spec.gpu.report.steps').predict(rows) end
    print(cudareport.compiled(rows))
    if not is_read then print('without instructions nothing is predicted: ' .. why) end
    if is_read and arch ~= 90 then print('predictions are for an H200 and need sm_90') end
    if is_predicted then
        common.save()
        print(cudareport.results(data, measured))
    end
    write('build/cuda-report.md', ('# Kernels of sm_%d: %d, %d bytes spilled\n\n%s\n%s\n## Every kernel\n\n%s'):format(
        arch, #kernels, spilled, cudareport.compiled(rows), is_predicted and cudareport.results(data, measured) or '',
        every_kernel(kernels)))
end

main()
