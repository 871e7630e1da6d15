--- Reads the predictions that were published before anything ran on a GPU (spec/bench/results_cuda.lua, which make
-- cuda-report makes), so that a check prints them beside what it measures. They are for an H200; a report that is not
-- there, and numbers that it lacks, give nil.
local binding = require 'wane.ffi'
local gpu = require 'spec.gpu.gpu'

local predicted = {}

local loaded = loadfile(gpu.root .. '/spec/bench/results_cuda.lua')
local data = loaded and loaded() or { steps = {}, rows = {} }

local found = binding.text(binding.C.wn_cuda())
--- True where the library was found, which then computes products.
predicted.has_library = found:find('cuBLASLt', 1, true) ~= nil and not found:find('no cuBLASLt', 1, true)

--- Returns the predicted milliseconds of a step, by its name in the report, with or without the library as this process
-- has it; nil at small sizes.
function predicted.step(name)
    if gpu.is_small then return nil end
    for _, row in ipairs(data.steps) do
        if row.name == name then return predicted.has_library and row.library_ms or row.ms end
    end
end

--- Returns the predicted share of the roofline, in percent, of a row of kernels by its name in the report: of own
-- kernels, so nil for products where the library computes them.
function predicted.share(name)
    if gpu.is_small or predicted.has_library and name:find '^product' then return nil end
    for _, row in ipairs(data.rows) do
        if row.name == name then return row.share and 100 * row.share end
    end
end

return predicted
