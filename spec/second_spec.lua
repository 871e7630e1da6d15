-- Checks second derivatives: each is right, and an op without a gradient rule is refused. Then gradients of gradients
-- at work: gradient penalties and an inner step of MAML, against PyTorch's numbers (spec/fixtures/torch_gradients.py).
-- spec/ways_spec.lua trains them in every way.
local helper = require 'spec.helper'
local wane = helper.wane
local binding, tensor = require 'wane.ffi', require 'wane.tensor'
local cases = require 'spec.cases'
local case_inputs = require 'spec.support.case_inputs'
local fixture = require 'spec.fixtures.torch_gradients'
local gradcheck = require 'spec.support.gradcheck'
local record = require('wane.tensor.op').record

local C = binding.C
local nn, optim = wane.nn, wane.optim
local LONG = helper.is_long

local function is_float(t) return tensor.is_float[tensor.dtype_id[t.dtype]] end

-- Returns struct wn_op_info of an op.
local function info_of(name)
    local info = binding.new('struct wn_op_info')
    binding.check(C.wn_op_get(C.wn_op_id(name), info))
    return info
end

local LEAF, EFFECT, INDEX, LINK = 1, 4, 32, 2048
local function has(flags, flag) return flags % (2 * flag) >= flag end

-- READS_BYTES lists ops that read bytes, which are whole numbers: no gradient flows through them.
local READS_BYTES = { unpack_int8 = true, unpack_sign = true }

-- Returns the names of all ops that make a float of other values: those into which a gradient can flow.
local function float_ops()
    local info, names = binding.new('struct wn_op_info'), {}
    for id = 0, C.wn_op_count() - 1 do
        binding.check(C.wn_op_get(id, info))
        local never = has(info.flags, LEAF) or has(info.flags, EFFECT) or has(info.flags, INDEX)
            or has(info.flags, LINK) or info.most == 0
        local name = binding.string(info.name)
        if not never and not READS_BYTES[name] then names[#names + 1] = name end
    end
    return names
end

-- Returns the case's inputs, those of a float type as states that need a gradient: all, or those that `which` lists.
local function states_of(case, float, name, which)
    local out = {}
    for i, a in ipairs(case_inputs.arrays(case, float, name)) do
        out[i] = case_inputs.tensor(a, 0, is_float(a) and (which == true or which[i]))
    end
    return out
end

describe('an op without a gradient rule', function()
    local before
    before_each(function() before = wane.lines(true) end)
    after_each(function() wane.lines(before) end)

    it('is refused by name and line where a gradient flows into it, and never counts as a constant', function()
        local refused, given = 0, 0
        for _, name in ipairs(float_ops()) do
            local case = cases.records[name].cases[1]
            local states = states_of(case, case.only or 'f32', name, true)
            local x
            for _, t in ipairs(states) do
                if x == nil and is_float(t) then x = t end
            end
            local y = case.call(wane, unpack(states))
            if x and is_float(y) then
                assert(y.requires_grad, name .. ': its result needs no gradient, though its input does')
                local loss = x:sum():to('f64') + y:sum():to('f64')
                local fine, why = pcall(loss.backward, loss)
                if fine then
                    assert(info_of(name).differentiable ~= 0, name .. ' has no rule, and passed for a constant')
                    given = given + 1
                else
                    assert(why.code == 'unsupported', ('%s: %s'):format(name, tostring(why)))
                    assert(tostring(why):find(name .. ' (recorded at ', 1, true), tostring(why))
                    assert(tostring(why):find(':%d+%) has no gradient rule'), tostring(why))
                    refused = refused + 1
                end
            end
        end
        assert(refused >= 5 and given > 30, ('%d ops refused, %d differentiated'):format(refused, given))
    end)

    it('is refused again and again, and what does not flow through it is differentiated', function()
        local w = nn.Parameter(wane.tensor { 0.5, -0.25 })
        local function chain()
            return record('elementwise', { w }, { n = 1, i = { C.wn_op_id('exp') * 256 } })
        end
        for _ = 1, 2 do
            local fine, why = pcall(function() (w * chain()):sum():backward() end)
            assert(not fine and why.code == 'unsupported', tostring(why))
            assert.is_nil(w.grad)
        end
        (w * chain():detach() * 0 + w):sum():backward()
        assert.same({ 1, 1 }, w.grad:totable())
    end)
end)

describe('the ops that make a float', function()
    local function text(path)
        return assert(require('spec.support.files').read(path))
    end

    -- Ops of the family `fused` are made by rewrites of a differentiated graph, so no gradient flows into them.
    -- The gradient of row_nll contains that of the statistics, and the weights that labels are counted with get none.
    -- Gradients themselves are what ranks add.
    local without = { row_stats = true, row_count = true, partial_sum = true, squares = true }
    it('have a gradient rule, all but those that no layer and no rule records', function()
        local missing, fused = {}, {}
        for name, family in text('runtime/op.def'):gmatch('OP%([%u%d_]+, +([%l%d_]+), +%d+, +%d+, +(%l+),') do
            fused[name] = family == 'fused' or nil
        end
        for _, name in ipairs(float_ops()) do
            local is_told = fused[name] or without[name]
            if info_of(name).differentiable == 0 and not is_told then missing[#missing + 1] = name end
        end
        assert(#missing == 0, 'float ops without a gradient rule: ' .. table.concat(missing, ', '))
        local names, files = {}, io.popen('ls runtime/ops/*.c runtime/graph/*.c lua/wane/*.lua lua/wane/*/*.lua')
        for name in pairs(fused) do names[#names + 1] = name end
        for path in files:lines() do
            local source = path:find('ops/fused.c', 1, true) and '' or text(path)
            for _, name in ipairs(names) do
                local emitted = source:find('wn__emit[%w_]*%([^;]-WN_OP_' .. name:upper() .. '[,)]')
                assert(not emitted and not source:find('op%.id%.' .. name .. '%f[^%w_]'), path .. ' records ' .. name)
            end
        end
        files:close()
        assert(#names >= 6, 'op.def could not be read')
    end)
end)

describe('what has whole numbers as its result', function()
    it('is a constant, and needs no gradient', function()
        local w = nn.Parameter(wane.tensor { 0.5, -0.25 })
        for _, y in ipairs { w:gt(0), w:eq(w), w:argmax(1), w:to 'i32', w:to 'u8' } do
            assert.is_false(y.requires_grad)
        end
        (w * w:gt(0):to 'f32' + w:to('i32'):to 'f32'):sum():backward()
        assert.same({ 1, 0 }, w.grad:totable())
    end)
end)

-- ---- second derivatives of the case records -----------------------------------------------------------------------

-- Returns the sum of all gradients of `loss` with respect to `cells`, each element with a weight of its own.
local function sum_of_gradients(loss, cells, weights)
    local total
    for i, g in ipairs(wane.grad(loss, cells, { allow_unused = true })) do
        local part = (g * weights[i]):sum()
        total = total and total + part or part
    end
    return total
end

local function numbers_like(t, name)
    return case_inputs.tensor(case_inputs.array(t.shape, 'f64', case_inputs.stream(name)), 0)
end

-- Returns nil, or how the gradients of the gradients differ from the slopes of the gradients. The gradient that arrives
-- at the op is a state too, so that the derivative op is differentiated by each of its inputs.
local function wrong_second(case, name)
    local states, cells, weights = states_of(case, 'f64', name, case.grad), {}, {}
    for _, t in ipairs(states) do
        if t.requires_grad then cells[#cells + 1] = t end
    end
    local function call()
        if case.seeded then wane.manual_seed(1) end
        return case.call(wane, unpack(states))
    end
    local y = call()
    local dy = case_inputs.array(y.shape, 'f64', case_inputs.stream(name .. ' dy'))
    cells[#cells + 1] = case_inputs.tensor(dy, 0, true)
    for i, t in ipairs(cells) do weights[i] = numbers_like(t, name .. i) end
    return gradcheck.wrong(cells, function()
        return sum_of_gradients((call() * cells[#cells]):sum(), cells, weights)
    end, { most = LONG and 12 or 2, tol = 1e-6 })
end

describe('the second derivative of', function()
    for _, name in ipairs(float_ops()) do
        if info_of(name).differentiable ~= 0 and not cases.records[name].is_flat then
            it(name .. ' has the slope of the first', function()
                local compared, ran = 0, 0
                for k, case in ipairs(cases.records[name].cases) do
                    if case.grad and not case.kink and case.only ~= 'f32' and (LONG or k <= 24) then
                        local wrong, n = wrong_second(case, name)
                        assert(not wrong, ('%s, %s: %s'):format(name, case.name, tostring(wrong)))
                        compared, ran = compared + n, ran + 1
                    end
                end
                assert(ran > 0 and compared > 0, name .. ': no case of a second derivative ran')
            end)
        end
    end
end)

-- ---- gradients of gradients at work ---------------------------------------------------------------------------------

local F64 = { dtype = 'f64' }

-- Returns sin(k + shift) / 2 for k = 1, 2 and so on, in the given shape, as the fixture makes them.
local function waves(shift, ...)
    local n, list = 1, {}
    for _, d in ipairs { ... } do n = n * d end
    for k = 1, n do list[k] = math.sin(k + shift) / 2 end
    return wane.tensor(list, F64):reshape(...)
end

local function learnt(shift, ...) return nn.Parameter(waves(shift, ...)) end

local function assert_near(have, want, what, tol)
    want.shape = { #want }
    assert(#have == #want and #want > 0, what)
    local wrong = gradcheck.differ(have, want, tol or 1e-12)
    assert(not wrong, ('%s: %s'):format(what, tostring(wrong)))
end

local function linear(x, w, b) return record('linear', { x, w, b }) end

describe('the second derivative', function()
    it('of p tanh(p) at 0.3 is 1.6703', function()
        for _, dtype in ipairs { 'f64', 'f32', 'bf16' } do
            local p = nn.Parameter(wane.tensor(0.3, { dtype = dtype }))
            local first = wane.grad(p * p:tanh(), p)
            local second = wane.grad(first, p)
            local tol = dtype == 'bf16' and 2e-2 or 2e-7
            assert(math.abs(second:to('f64'):item() - 1.6703193601928) <= tol, dtype .. ': ' .. tostring(second))
            first:backward()
            assert.equal(second:item(), p.grad:item())
        end
    end)

    it('of relu, abs and clamp is zero, and is given as zeros', function()
        local p = nn.Parameter(wane.tensor({ -1, 0.25, 2 }, F64))
        for _, f in ipairs { p.relu, p.abs, function(x) return x:clamp(-0.5, 0.5) end } do
            assert.same({ 0, 0, 0 }, wane.grad(wane.grad(f(p):sum(), p):sum(), p):totable())
        end
    end)

    it('of tanh, the third, the fourth and the fifth are their formulas', function()
        local x = nn.Parameter(wane.tensor(0.2, F64))
        local g, y = x:tanh(), math.tanh(0.2)
        local t = 1 - y * y
        local want = { t, -2 * y * t, (6 * y * y - 2) * t, (16 * y - 24 * y ^ 3) * t,
            (16 - 120 * y ^ 2 + 120 * y ^ 4) * t }
        for k = 1, 5 do
            g = wane.grad(g, x)
            assert(math.abs(g:retain():item() - want[k]) <= 1e-12 * (1 + math.abs(want[k])), 'order ' .. k)
        end
    end)
end)

describe('a gradient penalty', function()
    it('has PyTorch\'s loss and gradients', function()
        local w1, b1, w2 = learnt(0, 7, 3), learnt(1, 7), learnt(2, 1, 7)
        local x = learnt(3, 5, 3)
        local y = linear(linear(x, w1, b1):tanh(), w2, wane.zeros(1, F64))
        local g = wane.grad(y:sum(), x)
        local off = (g * g):sum(2):sqrt() - 1
        local loss = (off * off):mean()
        loss:backward()
        assert_near({ loss:item() }, { fixture.penalty.loss }, 'loss')
        for name, p in pairs { w1 = w1, b1 = b1, w2 = w2 } do
            assert_near(gradcheck.values(p.grad), fixture.penalty[name], name)
        end
    end)

    it('trains weights in panels as it does those in rows', function()
        for dtype, tolerance in pairs { f32 = 1e-4, bf16 = 5e-2, f64 = 1e-12 } do
            local numbers = {}
            for k, layout in ipairs { false, 'plain' } do
                wane.manual_seed(9)
                local o = { dtype = dtype, layout = layout or nil }
                local critic = nn.Sequential { nn.Linear(8, 48, o), nn.GELU(), nn.LayerNorm(48, { dtype = dtype }),
                    nn.Linear(48, 48, o), nn.SiLU(), nn.Linear(48, 1, o) }
                local opt = optim.AdamW(critic:parameters(), { lr = 1e-2 })
                for _ = 1, 3 do
                    local x = nn.Parameter(wane.randn(6, 8, { dtype = dtype }))
                    local y = critic(x)
                    local g = wane.grad(y:sum(), x)
                    opt:step((((g * g):sum(2):sqrt() - 1) ^ 2):mean() * 10 - y:mean())
                end
                numbers[k] = gradcheck.values(critic[1].weight:to 'f64')
            end
            assert_near(numbers[1], numbers[2], dtype, tolerance)
        end
    end)
end)

describe('an inner step of MAML', function()
    local function loss_of(x, labels, w, b, v, norm)
        local h = norm(linear(x, w, b):gelu())
        return nn.cross_entropy(linear(h, v, wane.zeros(v.shape[1], { dtype = v.dtype })), labels)
    end

    it('has PyTorch\'s loss and outer gradients', function()
        local w, b, v = learnt(0, 6, 4), learnt(1, 6), learnt(2, 3, 6)
        local labels = wane.tensor({ 0, 1, 2, 0, 1, 2, 0, 1 }, { dtype = 'i32' })
        local norm = nn.LayerNorm(6, F64)
        for _, p in ipairs(norm:parameters()) do p.requires_grad = false end
        local inner = wane.grad(loss_of(waves(3, 8, 4), labels, w, b, v, norm), { w, b, v })
        local fast = {}
        for k, p in ipairs { w, b, v } do fast[k] = p - inner[k] * 0.5 end
        local loss = loss_of(waves(4, 8, 4), labels, fast[1], fast[2], fast[3], norm)
        loss:backward()
        assert_near({ loss:item() }, { fixture.maml.loss }, 'loss')
        for name, p in pairs { w = w, b = b, v = v } do
            assert_near(gradcheck.values(p.grad), fixture.maml[name], name, 1e-11)
        end
    end)
end)
