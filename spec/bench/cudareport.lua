--- The tables of make cuda-report from the data it wrote: text in, text out. What is measured comes from the data of
-- make gpu-check (spec/bench/gpu.lua).
local gpureport = require 'spec.bench.gpureport'
local report = require 'spec.bench.report'
local cudareport = {}

local function percent(x) return x and ('%.0f %%'):format(100 * x) or '' end

--- Returns the table of what the compiler made of the kernels that matter.
-- @param list rows of spec/gpu/report/model.lua
function cudareport.compiled(list)
    local rows = {}
    for i, r in ipairs(list) do
        local c = r.counts
        rows[i] = { r.name, '`' .. r.symbol .. '`', r.registers, r.spills, r.shared,
            ('%d x %d'):format(r.blocks, r.threads), percent(r.occupancy), r.limit,
            c and ('%d of %d'):format(c.wide_loads, c.loads) or '',
            c and ('%d of %d'):format(c.wide_stores, c.stores) or '', c and c.mma or '' }
    end
    return report.markdown({ 'what', 'kernel', 'registers', 'spilled bytes', 'shared bytes', 'blocks x threads',
        'occupancy', 'limited by', '16-byte loads', '16-byte stores', 'tensor instructions' }, rows)
end

local models = { tensor = 'arithmetic, of 989 TF/s', f32 = 'arithmetic, of 67 TF/s',
    bytes = 'memory, of the copy rate' }

-- Returns the table of predicted shares, and of measured ones where there are any.
local function shares(data, measured)
    local rows = {}
    for _, r in ipairs(data.rows) do
        if r.share then rows[#rows + 1] = { r.name, models[r.class], r.bound, percent(r.share),
            percent(measured and gpureport.share(measured, r.name)) } end
    end
    return report.markdown({ 'kernel', 'model', 'bound by', 'predicted share', 'measured' }, rows)
end

-- Returns the table of predicted steps, and of measured ones where there are any.
local function steps(data, measured)
    local rows = {}
    for i, s in ipairs(data.steps) do
        local ms = measured and gpureport.step(measured, s.name)
        rows[i] = { s.name, ('%.2f'):format(s.peak / 1e9), ('%.1f'):format(s.roofline_ms), ('%.1f'):format(s.ms),
            ('%.1f'):format(s.library_ms), ms and ('%.1f'):format(ms) or '' }
    end
    return report.markdown({ 'a step', 'peak, GB', "data sheet's roofline, ms", 'own kernels, ms',
        'products by cuBLASLt, ms', 'measured, ms' }, rows)
end

-- Returns what the measured columns are, or that there is nothing in them.
local function about(measured)
    if not measured then return 'Nothing of it is measured yet.' end
    return ([[
The measured columns are of one %s, %s.
An H100 has the multiprocessors of an H200 and less bandwidth (3.35 TB/s by its data sheet). Shares of arithmetic are of
the same rates, shares of memory of the copies that the same run measured, and products are own kernels'; steps had
cuBLASLt. An empty cell is a kernel that no check measures alone.]]):format(
        measured.card, measured.date)
end

local MODEL = [[
From sm_%d code of %d kernels, %d bytes spilled. The model, for an H200 (132 multiprocessors at 1.83 GHz; 989 TF/s
dense bf16, 67 TF/s f32 and 4.8 TB/s by its data sheet; copies at 4.3 TB/s, measured by PyTorch on such a GPU): a turn
of a kernel's hottest loop takes the cycles of its busiest resource - issue, 4 instructions a cycle; f32, 128 fma;
tensor cores, 0.63 of the data sheet's rate for mma.sync; shared memory, 128 bytes. A kernel of the memory class reaches
the copy rate, or what its bytes under way give at 600 ns from load to use, or what issue allows, whichever is least. A
kernel reaches 0.85 of that. 0.63, 600 ns and 0.85 are assumptions; caches, the end of a grid, divergence and waits at
barriers are not in the model.]]

local STEPS = [[
Steps: Wane's plan for the target h200, made on meta, gives each instruction the seconds of a roofline with the data
sheet's rates and 3 us a launch; each is divided by the share of its kernel. The last column but one takes bf16 products
at 788 TF/s, what cuBLAS reached on such a GPU for 8192 x 8192 x 8192, and f32 ones that are no update at 0.85 of the
roofline. GPT-2 under autocast to bf16 with AdamW, B = 8,
T = 1024, `opt:step(loss)`; heavy layers in f32 with SGD. Peaks are of the plans, exact.]]

--- Returns the section of spec/bench/RESULTS.md.
-- @param data of make cuda-report
-- @param measured of spec/bench/gpu.lua, or nil
function cudareport.results(data, measured)
    return table.concat({ MODEL:format(data.arch, data.count, data.spilled), about(measured), shares(data, measured),
        STEPS, steps(data, measured) }, '\n\n')
end

--- Returns why these results may not be published, or nil where they may.
function cudareport.refusal(data)
    if not data.steps then return 'they hold no predictions' end
end

return cudareport
