-- Runs every op of spec/cases on the simulated GPU in several orders of streams and threads, whose bits must be equal,
-- and prints a line for each op with tabs between its words:
--
--     op  runs  runs with other bits  races  sectors of device memory  the least for its bytes  shared calls  conflicts
--
-- followed by the first report of the device, if there is any. Of a build that watches no memory, the last five are 0.
-- usage: WANE_CUDA_LIB=build/cudasim-hooks luajit spec/support/cuda_orders.lua [op ...]
-- WANE_SPEC_LONG=1 runs every case, else every second one runs.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local binding, scoped = require 'wane.ffi', require 'wane.scoped'
local op = require 'wane.tensor.op'
local cases = require 'spec.cases'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local sim = require 'spec.support.cudasim'

local CUDA = op.device('cuda', 'spec')
local FLOATS = { 'f32', 'bf16' }
local ORDERS = { { 'lazy', 1, 'reverse' }, { 'random', 1, 'shuffled' }, { 'random', 2, 'shuffled' },
    { 'eager', 1, 'ahead' } }
-- Ops whose runs are long. A case of theirs runs in every second order, and the next case and dtype in the others.
local LONG = { attention = true, attention_grad = true, conv2d = true, conv2d_dx = true, conv2d_dw = true,
    matmul = true }

-- Returns whether a case runs in a dtype. A size that is for the CPU's kernels alone runs in no other order.
local function is_for(case, float)
    if case.orders == false then return false end
    return case.only and case.only == float or not case.only and (#case.inputs > 0 or float == 'f32')
end

-- Returns the bytes of a case's result and gradients.
local function run(case, float, name)
    return scoped('device', CUDA, function()
        local tensors = {}
        for i, a in ipairs(case_inputs.arrays(case, float, name)) do
            local wanted = case.grad and (case.grad == true or case.grad[i] == true) and a.dtype == float
            tensors[i] = case_inputs.tensor(a, CUDA, wanted)
        end
        if case.seeded then wane.manual_seed(1) end
        local y = case.call(wane, unpack(tensors))
        local out = { gradcheck.bytes(y) }
        if not case.grad then return out[1] end
        y:sum():backward()
        for _, t in ipairs(tensors) do
            if t.grad then out[#out + 1] = gradcheck.bytes(t.grad) end
        end
        return table.concat(out)
    end)
end

local STEP = os.getenv 'WANE_SPEC_LONG' == '1' and 1 or 2

local function check(name)
    local runs, other = 0, 0
    sim.touched()
    local list = cases.records[name].cases
    for nth = 1, #list, STEP do
        local case = list[nth]
        for turn, float in ipairs(FLOATS) do
            local fine, want = false, nil
            if is_for(case, float) then
                sim.schedule('eager')
                fine, want = pcall(run, case, float, name)
            end
            local first = LONG[name] and (nth + turn) % 2 + 1 or 1
            for k = first, fine and #ORDERS or 0, LONG[name] and 2 or 1 do
                sim.schedule(unpack(ORDERS[k]))
                runs = runs + 1
                if run(case, float, name) ~= want then other = other + 1 end
            end
        end
    end
    local t = sim.touched() or { races = 0, sectors = 0, least_sectors = 0, shared_calls = 0, conflicts = 0 }
    local report = (sim.overrun() or t.races > 0) and sim.report() or ''
    print(table.concat({ name, runs, other, t.races, t.sectors, t.least_sectors, t.shared_calls, t.conflicts, report },
        '\t'))
    sim.reset()
end

local list = { unpack(arg) }
if #list == 0 then
    for name in pairs(cases.records) do list[#list + 1] = name end
    table.sort(list)
end
binding.check(binding.C.wn_debug('rewrite', 1))
for _, name in ipairs(list) do check(name) end
