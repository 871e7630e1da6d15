--- Reads the predictions that were published before anything ran on a GPU (spec/bench/results_cuda.lua, which make
-- cuda-report makes), so that a check prints them beside what it measures. They are for an H200; a report that is not
-- there, and numbers that it lacks, give nil.
local gpu = require 'spec.gpu.gpu'

local predicted = {}

local loaded = loadfile(gpu.root .. '/spec/bench/results_cuda.lua')
local data = loaded and loaded() or { steps = {}, kernels = {} }

--- Returns the predicted milliseconds of a step, by its name in the report; nil at small sizes.
function predicted.step(name)
    if gpu.is_small then return nil end
    for _, row in ipairs(data.steps) do
        if row.name == name then return row.ms end
    end
end

--- Returns the predicted share of the roofline, in percent, of a row of kernels by its name in the report.
function predicted.share(name)
    if gpu.is_small then return nil end
    for _, row in ipairs(data.kernels) do
        if row.name == name then return row.share and 100 * row.share end
    end
end

return predicted
