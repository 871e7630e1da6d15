-- Checks every op of the table on a GPU, through the records of spec/cases: its result and its gradients against the
-- CPU's, bit for bit or within the tolerance of spec/support/cuda_bits.lua; the same bits twice, in a checked run over
-- poisoned memory too; and the CPU's refusals, wrong data among them.
local helper = require 'spec.helper'
local cases = require 'spec.cases'
local case_inputs = require 'spec.support.case_inputs'
local cuda_bits = require 'spec.support.cuda_bits'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local sim = require 'spec.support.cudasim'
local wane = helper.wane
local scoped = require 'wane.scoped'
local op = require 'wane.tensor.op'

local CPU = op.device('cpu', 'spec')
local has_cuda, CUDA = pcall(op.device, 'cuda', 'spec')

local names = programs.ops()
local results, each_case = case_inputs.run, case_inputs.each

-- Returns what differs between the bits of two results, or nil. NaN equals NaN alone, whatever its bits.
local function other(have, want)
    if have.bytes == want.bytes then return end
    for i = 1, #want.values do
        local a, b = have.values[i], want.values[i]
        local is_same = a == b and 1 / a == 1 / b or (a ~= a and b ~= b)
        if not is_same then return ('element %d is %.17g, the CPU has %.17g'):format(i, a, b) end
    end
end

describe('a GPU', function()
    if not has_cuda then
        pending('is simulated by what a C++ compiler makes of its kernels: make cudasim')
        return
    end

    for _, name in ipairs(names) do
        it('computes ' .. name .. ' as the CPU does, and again to the same bits, within its bytes', function()
            each_case(name, function(case, float)
                local want, have = results(case, float, name, CPU), results(case, float, name, CUDA)
                local again = programs.debugged(results, case, float, name, CUDA)
                local tolerance = cuda_bits.of(name, float)
                for i, w in ipairs(want) do
                    local wrong
                    if tolerance then wrong = sim.far(have[i].values, w.values, tolerance, 'the CPU has')
                    else wrong = other(have[i], w) end
                    if wrong then return w.what .. ': ' .. wrong end
                    if have[i].bytes ~= again[i].bytes then return w.what .. ': other bits in a checked run' end
                end
            end)
        end)
    end

    for _, name in ipairs(names) do
        local refused = cases.records[name] and cases.records[name].bad or {}
        if #refused > 0 then
            it('refuses what the CPU refuses of ' .. name, function()
                scoped('device', CUDA, function()
                    for _, bad in ipairs(refused) do
                        local fn = bad.call or cases.records[name].cases[1].call
                        local arrays = case_inputs.arrays({ name = 'bad', inputs = bad.inputs }, 'f32', name)
                        local fine, why = pcall(function()
                            return gradcheck.bytes(fn(wane, unpack(case_inputs.tensors(arrays, CUDA))))
                        end)
                        assert(not fine, name .. ': accepted, expected ' .. bad.error)
                        assert(tostring(why):find(bad.error), ('%s: raised "%s", expected %s'):format(name,
                            tostring(why), bad.error))
                    end
                end)
            end)
        end
    end
end)
