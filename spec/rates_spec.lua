-- Checks the seconds that plans have by rates of classes of applications (runtime/plan/ir/rates.h), on targets that
-- need not be there: how a class is named, what its rate gives, and that the rates which Wane ships for an H100 say
-- what was measured of GPT-2 (spec/bench/results_gpu.lua), of one size by the other. Then the ladder of make
-- gpu-whatif.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local files = require 'spec.support.files'
local rates = require 'wane.plan.costs.rates'
local sim = require 'spec.support.cudasim'
local steps = require 'spec.gpu.whatif_steps'
local known = require 'wane.plan.costs.target'
local markdown = require('spec.bench.report').markdown
local predict = require 'spec.gpu.predict'
local targets = require 'wane.plan.costs.targets'
local wane = helper.wane or require 'wane'
local C, check = binding.C, binding.check
local LUAJIT = os.getenv 'LUAJIT' or 'luajit'

describe('a rate of a class', function()
    -- Returns { class, bytes, FLOP, seconds } of the instruction with op `op` in the plan of fn for a target.
    local function applied(fn, op, target)
        local plan, step = wane.plan(fn, { target = target }), binding.new('struct wn_step')
        local handle = plan.parts[1].program.handle
        for i = 0, C.wn_count(handle, C.WN_COUNT_INSTRUCTIONS) - 1 do
            check(C.wn_step(handle, i, step))
            if binding.text(step.what) == 'run' and binding.text(step.op) == op then
                return { binding.text(C.wn_rate_class_step(handle, i)), step.traffic, step.flops, step.seconds }
            end
        end
    end
    local function value(...) return (wane.randn(...):to 'bf16') end

    it('is named after the op, its dtypes, and what its rate depends on', function()
        local held = wane.eval(value(128, 8))
        for _, row in ipairs {
            { 'matmul bf16', function() return value(64, 96):matmul(value(96, 128)) end, 'matmul' },
            { 'matmul bf16 unaligned', function() return value(64, 96):matmul(value(96, 127)) end, 'matmul' },
            { 'matmul bf16 unaligned', function() return value(64, 100):matmul(value(100, 128)) end, 'matmul' },
            { 'matmul f32', function() return wane.randn(65, 96):matmul(wane.randn(96, 128)) end, 'matmul' },
            { 'matmul f32 few rows', function() return wane.randn(64, 96):matmul(wane.randn(96, 128)) end, 'matmul' },
            { 'matmul f32 few rows', function() return wane.randn(512, 96):matmul(wane.randn(96, 8)) end, 'matmul' },
            { 'matmul f32 few terms', function() return wane.randn(512, 32):matmul(wane.randn(32, 512)) end, 'matmul' },
            { 'sum bf16 columns', function() return value(128, 8):sum(1) end, 'sum' },
            { 'sum f32 columns few', function() return wane.randn(64, 8):sum(1) end, 'sum' },
            { 'sum f32 rows', function() return wane.randn(128, 8):sum(2) end, 'sum' },
            { 'sum f32 all', function() return wane.randn(128, 8):sum() end, 'sum' },
            { 'cast f32 to bf16', function() return wane.randn(128, 8):to 'bf16' end, 'cast' },
            { 'cast bf16 to f32', function() return held:to 'f32' end, 'cast' },
            { 'softmax f32', function() return wane.randn(4, 2048):softmax(2) end, 'softmax' },
            { 'softmax f32 long', function() return wane.randn(4, 2049):softmax(2) end, 'softmax' },
            { 'gelu bf16', function() return value(4, 8):gelu() end, 'gelu' },
            { 'arange f32', function() return wane.arange(7) end, 'arange' },
        } do
            assert.equal(row[1], (applied(row[2], row[3], 'h100') or {})[1])
        end
    end)

    it('gives launch + the longer of bytes and FLOP, products by their least side', function()
        local rate = rates.h100.predicted['gelu bf16']
        local got = applied(function() return value(512, 512):gelu() end, 'gelu', 'h100')
        assert.is_near(rate.launch + got[2] / rate.bytes, got[4], 1e-12)
        got = applied(function() return value(512, 512):gelu() end, 'gelu', 'h200')
        assert.is_near(rate.launch + got[2] / rate.bytes * 3350 / 4800, got[4], 1e-12)
        rate = rates.h100.classes['matmul bf16']
        got = applied(function() return value(1024, 64):matmul(value(64, 256)) end, 'matmul', 'h100')
        assert.is_near(rate.launch + got[3] * (1 + rate.half / 64) / rate.flops, got[4], 1e-12)
        local h100 = targets.h100
        got = applied(function() return wane.randn(512, 512):cos() end, 'cos', 'h100') -- a class without a rate
        assert.is_near(h100.launch + math.max(got[2] / h100.bytes, got[3] / h100.f32), got[4], 1e-12)
    end)

    it('is either measured or predicted', function()
        for class in pairs(rates.h100.classes) do assert.is_nil(rates.h100.predicted[class], class) end
    end)

    it('is of one target and one kind of device, and changes plans that were made before', function()
        local G = 1e9
        for name, cuda in pairs { ['rates of a gpu'] = true, ['rates of a cpu'] = false } do
            targets[name] = { cuda = cuda, f64 = G, f32 = G, bf16 = G, bytes = G, launch = 1e-6, source = 'a spec' }
        end
        finally(function() targets['rates of a gpu'], targets['rates of a cpu'] = nil, nil end)
        local function seconds(name)
            return applied(function() return value(512, 512):gelu() end, 'gelu', name)[4]
        end
        local of_cpu, of_gpu = seconds 'rates of a cpu', seconds 'rates of a gpu'
        local id, rate = known.of('rates of a gpu', 'x'), binding.new('struct wn_rate', { 1, 0.5, 1e12, 0, 0 })
        check(C.wn_target_rate(id, 'gelu bf16', rate))
        check(C.wn_target_rate(known.of('rates of a cpu', 'x'), 'gelu bf16', rate)) -- of its GPU, which none plans for
        assert.is_true(seconds 'rates of a gpu' > 0.5 and of_gpu < 0.5)
        assert.equal(of_cpu, seconds 'rates of a cpu')
        for _, bad in ipairs { { 1, -1, 1e9, 0, 0 }, { 1, 0, 0 / 0, 0, 0 }, { 1, 0, 0, 0, 0 }, { 1, 0, 1e9, 1 / 0, 0 },
            { 1, 0, 1e9, 0, -3 }, { 1, 0, 1e-320, 0, 0 }, { 1, 0, 0, 5e-324, 0 } } do
            helper.refused(nil, function() check(C.wn_target_rate(id, 'x', binding.new('struct wn_rate', bad))) end,
                'rate of x: ')
        end
        helper.refused(nil, function() check(C.wn_target_rate(77, 'x', rate)) end, 'there is no target 77')
    end)
end)

describe('the GPU that is here', function()
    if sim.missing() then
        pending 'needs the simulated GPU'
        return
    end

    -- Runs a script on a simulated GPU of a name; returns what it prints, on both streams.
    local function on_gpu(name, costs, script)
        local text, code = helper.shell(("WANE_SIM_NAME='%s' WANE_COSTS='%s' WANE_CUDA_LIB=%s %s -"):format(name, costs,
            sim.path(), LUAJIT), ([[package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
            local wane = require 'wane'
            wane.set_device 'cuda'
            local function step() return (wane.randn(64, 64):to 'bf16'):gelu():sum() end
            %s]]):format(helper.root, helper.root, script))
        assert.equal(0, code, text)
        return text
    end

    it('has the rates that are shipped for its kind, until they are measured', function()
        local say = 'local p = wane.plan(step) print(p.costs, p.seconds)'
        assert.matches('rates of h100, measured on one, .*; else its roofline: wane.profile%(fn%) measures',
            on_gpu('NVIDIA H100 80GB HBM3', 'off', say))
        assert.matches("rates of h200, predicted from an H100's", on_gpu('NVIDIA H200', 'off', say))
        for _, name in ipairs { 'NVIDIA H100 PCIe', 'NVIDIA H100 80GB HBM3 MIG 1g.10gb', 'NVIDIA GH200 480GB' } do
            assert.matches('roofline of this machine', on_gpu(name, 'off', say), name)
        end
        local other = on_gpu('some GPU', 'off', say)
        assert.matches('roofline of this machine, nothing measured', other)
        assert.not_equal(other:match '(%S+)%s*$', on_gpu('NVIDIA H200', 'off', say):match '(%S+)%s*$')
        assert.matches('measured on this machine',
            on_gpu('NVIDIA H100 80GB HBM3', 'off',
                'wane.profile(step, { steps = 1, anyway = true, keep = false }) ' .. say))
    end)

    it('has its own rates where they were measured, and no others', function()
        local file, costs_file = os.tmpname(), require 'wane.plan.costs.file'
        finally(function() os.remove(file) end)
        local function seconds(name)
            files.write(file, 'processor\t', costs_file.processor(), '\ngpu\tsimulated, for specs: ', name,
                '\nmachine:cuda\t1e9 1e9 1e9 1e9 1e-3\n')
            return on_gpu(name, file, 'print(wane.plan(step).seconds)'):match '(%S+)%s*$'
        end
        assert.equal(seconds 'some GPU', seconds 'NVIDIA H100 80GB HBM3')
    end)

    it('does not take what was measured of another one, and says so', function()
        local file = os.tmpname()
        os.remove(file)
        finally(function() os.remove(file) end)
        local profile, plan = 'print(wane.profile(step, { steps = 1, anyway = true }))', 'print(wane.plan(step).costs)'
        on_gpu('NVIDIA H100 80GB HBM3', file, profile)
        assert.matches('measured on this machine', on_gpu('NVIDIA H100 80GB HBM3', file, plan))
        local text = on_gpu('NVIDIA H200', file, plan)
        assert.matches('another GPU %(.*H100 80GB HBM3; this is .*H200%), which plans leave out', text)
        assert.matches('rates of h200', text)
        on_gpu('NVIDIA H200', file, "wane.set_device 'cpu' " .. profile) -- leaves the other GPU's numbers there
        assert.matches('measured on this machine', on_gpu('NVIDIA H100 80GB HBM3', file, plan))
        on_gpu('NVIDIA H200', file, profile)
        text = on_gpu('NVIDIA H200', file, plan)
        assert.matches('measured on this machine', text)
        assert.is_nil(text:find 'another GPU')
    end)
end)

-- ---- predictions ----------------------------------------------------------------------------------------------------

-- Returns measured milliseconds of ops above 2 % of a step of GPT-2, by op, and of the whole; { op = { ms =, calls = }
-- }.
local function measured(size)
    local ops, all = {}, nil
    for _, row in ipairs(dofile(helper.root .. '/spec/bench/results_gpu.lua').gpu.checks.profile) do
        local op = row.name:match('^GPT%-2 ' .. size .. ': (%S+)$')
        local calls, share = (row.detail or ''):match '^(%d+) calls?, ([%d.]+) %%'
        if op == 'all' then all = row.value end
        if op and op ~= 'all' and tonumber(share) > 2 then ops[op] = { ms = row.value, calls = tonumber(calls) } end
    end
    return ops, all
end

-- Returns milliseconds by events that the rates give the ops of a measured step, { op = ms }, and of the whole.
local function predicted(size)
    local ops, all = {}, 0
    for _, row in ipairs(steps[size]) do
        local op, ms = row[1]:match '^%S+', (row[5] + row[2] * rates.EVENT) * 1e3
        op = ({ matmul_map = 'matmul+gelu_grad' })[op] or op
        ops[op], all = (ops[op] or 0) + ms, all + ms
    end
    return ops, all
end

describe('a prediction of a step', function()
    local RENAMED = { cross_entropy_grad = 'row_nll_grad' }

    it('has the seconds that were measured: each op within 15 %, the sum within 5 %', function()
        for _, size in ipairs { '124M', '774M' } do
            local found, all = measured(size)
            local said, sum = predicted(size)
            local n = 0
            for op, row in pairs(found) do
                assert.is_near(row.ms, said[RENAMED[op] or op], 0.15 * row.ms, size .. ' ' .. op)
                n = n + 1
            end
            assert.is_true(n >= 8)
            assert.is_near(all, sum, 0.05 * all, size)
        end
    end)

    it('of one size holds for the other: one factor an op, made of one step, gives the other', function()
        for own, other in pairs { ['124M'] = '774M', ['774M'] = '124M' } do
            local found, left_out = measured(own), measured(other)
            local said, wanted = predicted(own), predicted(other)
            local sum, all = 0, 0
            for op, row in pairs(left_out) do
                local name = RENAMED[op] or op
                local factor = found[op] and found[op].ms / said[name] or 1
                assert.is_near(row.ms, factor * wanted[name], 0.15 * row.ms, op .. ' of ' .. other)
                sum, all = sum + factor * wanted[name], all + row.ms
            end
            assert.is_near(all, sum, 0.05 * all, other)
        end
    end)

    it('prints the ladder, and the step as it is planned now at its end', function()
        local text, code = helper.shell(LUAJIT .. ' spec/gpu/whatif.lua')
        assert.equal(0, code, text)
        for _, size in ipairs { '124M', '774M' } do
            local part = text:match('GPT%-2 ' .. size .. '.-\n\n.-\n\n')
            local _, was = measured(size)
            local before = part:match 'as it was measured%s+([%d.]+)'
            local last = part:match 'as it is planned now%s+([%d.]+)'
            assert.is_true(tonumber(before) < was and tonumber(last) <= tonumber(before), part)
            local ms = tonumber(before)
            for less, left in part:gmatch '\n%S[^\n]-%s%s+(%-?[%d.]+)%s+([%d.]+)%s+%d+%s+%d+ %%' do
                assert.is_near(ms - tonumber(less), tonumber(left), 0.11, part)
                ms = tonumber(left)
            end
            assert.is_true(ms < 0.65 * tonumber(before), part)
        end
    end)

    it('stands on the page as it is planned', function()
        local page = helper.read 'spec/bench/RESULTS.md'
        local rows = helper.on('meta', predict.steps)
        assert.truthy(page:find(markdown(predict.HEAD, rows), 1, true), markdown(predict.HEAD, rows))
    end)
end)
