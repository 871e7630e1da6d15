-- Computes products, large and small, and a training under several plans, and prints what came of them, a fact a line.
-- onednn_spec runs it in processes of their own with WANE_ONEDNN set. `luajit spec/support/onednn.lua
-- [products|plan]`: products alone, the peak of a plan alone, or products and trainings.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local programs = require 'spec.support.programs'
local gradcheck = require 'spec.support.gradcheck'
local fingerprint = require('wane.plan.measure').fingerprint
local record = require('wane.tensor.op').record
local C, nn = binding.C, wane.nn
local WORKSPACE = C.WN_KIND_WORKSPACE + 1

local function fact(name, ...) print(table.concat({ name, ... }, '\t')) end

local function apart(fn)
    binding.check(C.wn_debug('rewrite', 0))
    local out = fn()
    binding.check(C.wn_debug('rewrite', 1))
    return out
end

-- Runs y's program; returns the bytes of y, and the bytes of scratch at the peak.
local function made(y)
    local p = programs.run { mode = 'eval', roots = { y } }
    assert(p.predicted.peak == p.measured.peak, 'peak')
    assert(p.predicted.reserved == p.measured.reserved, 'reserved')
    assert(p.predicted.kinds[WORKSPACE] == p.measured.kinds[WORKSPACE], 'workspace')
    return gradcheck.bytes(y), p.measured.kinds[WORKSPACE]
end

-- Counts the elements of y that are farther than they may be from the product in f64, whose terms have the absolute
-- values `most`; -1: there are no elements.
local function wrong(y, exact, most, k)
    local have, want = gradcheck.values(wane.eval(y:to 'f64')), gradcheck.values(wane.eval(exact))
    local terms, bad = gradcheck.values(wane.eval(most)), 0
    for i = 1, #want do
        local allowed = k * 2 ^ -24 * terms[i] + (y.dtype == 'bf16' and 2 ^ -8 * math.abs(want[i]) or 0)
        if not (math.abs(have[i] - want[i]) <= allowed) then bad = bad + 1 end
    end
    return #want > 0 and bad or -1
end

local function operand(dtype, ...)
    return wane.eval(wane.randn(...):to(dtype))
end

-- Checks one product: against f64, and with an op over it as one node and as two. layouts: of its operands and of the
-- result, default plain.
local function check(name, build, operands, k, layouts)
    layouts = layouts or {}
    local wide, sizes, laid = {}, {}, {}
    for i, t in ipairs(operands) do
        wide[i] = wane.eval(t:to 'f64')
        sizes[i] = wane.eval(wide[i]:abs())
        laid[i] = layouts[i] and wane.eval(create.laid(t, layouts[i])) or t
    end
    local y = build(laid, layouts.result):retain()
    local bytes, scratch = made(y)
    fact('product', name, scratch, wrong(y, build(wide), build(sizes), k))
    local same = 0
    for _, act in ipairs { 'relu', 'gelu' } do
        local function over()
            local z = build(laid, layouts.result)
            z = z[act](z):retain()
            return (made(z))
        end
        local two = wane.eval(y[act](y))
        if over() == gradcheck.bytes(two) and apart(over) == gradcheck.bytes(two) then same = same + 1 end
    end
    if made(build(laid, layouts.result):retain()) == bytes then same = same + 1 end
    fact('same', name, same)
    fact('bits', name, fingerprint { wane.eval(y:to 'f32') })
end

local function matmul(flip_a, flip_b)
    return function(t, layout)
        return record('matmul', t, { i = { flip_a and 1 or 0, flip_b and 1 or 0 }, layout = layout or 0 })
    end
end

local function linear(t)
    return record('linear', t)
end

local function products()
    local m, n, k = 700, 720, 500 -- three pieces each way, the last ones not whole
    local PANELS = C.wn_weight_layout(0, binding.type_of({ n, k }, 0, 'weight'))
    local function pair(a, b, dtype)
        return { operand(dtype or 'bf16', unpack(a)), operand(dtype or 'bf16', unpack(b)) }
    end
    check('a b', matmul(false, false), pair({ m, k }, { k, n }), k)
    check("a b'", matmul(false, true), pair({ m, k }, { n, k }), k)
    check("a' b", matmul(true, false), pair({ k, m }, { k, n }), k)
    check("a' b'", matmul(true, true), pair({ k, m }, { n, k }), k)
    check('one b for all', matmul(false, false), pair({ 3, 240, k }, { k, n }), k)
    check('y of panels', matmul(false, true), pair({ m, k }, { n, k }), k, { [2] = PANELS })
    check('dX of panels', matmul(false, false), pair({ m, n }, { n, n }), n, { [2] = PANELS })
    check('dW in panels', matmul(true, false), pair({ k, n }, { k, m }), k, { result = PANELS })
    check('linear', linear, { operand('bf16', 2, 350, k), operand('bf16', n, k), operand('bf16', n) }, k + 1,
        { [2] = PANELS })
    check('small', matmul(false, false), pair({ 256, k }, { k, n }), k)
    check('padded', matmul(false, false), pair({ 530, k }, { k, n }), k)
    check('a batch', matmul(false, false), pair({ 2, m, 250 }, { 2, 250, n }), 250)
    check('b again and again', matmul(true, false), pair({ 2, 250, m }, { 250, n }), 250)
    check('f32', matmul(false, false), pair({ m, k }, { k, n }, 'f32'), k)
    -- Sums of 257 and 1: rounded once that is 258, rounded before the bias 257 would become 256.
    local function ones(...) return wane.eval((wane.zeros(...) + 1):to 'bf16') end
    local once = wane.eval(linear { ones(m, 257), ones(n, 257), ones(n) }:to 'f32')
    fact('rounded once', (once - 258):abs():max():item())
end

-- Trains a network in one program a step or, with `lines`, in three lines; returns the fingerprint of its parameters.
local function train(policy, lines)
    wane.manual_seed(4)
    local model = programs.mlp(720, 3, 0.2)
    local opt = wane.optim.Adam(model:parameters(), { lr = 0.001 })
    local x = wane.eval(wane.randn(700, 720))
    local function loss()
        return wane.autocast('bf16', function() return (model(x) ^ 2):mean() end)
    end
    for _ = 1, 2 do
        if lines then
            opt:zero_grad()
            loss():backward { policy = policy }
            opt:step()
        else
            opt:step(loss(), { policy = policy })
        end
    end
    local last = loss():item()
    assert(last == last and math.abs(last) < 1e3, 'loss ' .. last)
    return fingerprint(model:parameters())
end

local function trainings()
    local want = train 'save_all'
    fact('trained', want)
    local same = apart(function() return train('save_all', true) end) == want and 1 or 0
    for _, policy in ipairs { 'recompute_all', 'every(2)' } do
        for _, lines in ipairs { false, true } do
            if train(policy, lines) == want then same = same + 1 end
        end
    end
    fact('plans agree', same)
    binding.check(C.wn_debug('check', 1)) -- over poisoned memory, with an eye on every byte
    binding.check(C.wn_debug('poison', 1))
    fact('checked', train 'every(2)')
end

wane.manual_seed(1)
if arg[1] == 'plan' then
    local model, x = nn.MLP(720, 1440), wane.randn(700, 720)
    local function loss() return wane.autocast('bf16', function() return model(x):sum() end) end
    fact('plan', wane.plan(function() return loss():backward() end).peak)
else
    products()
    if arg[1] ~= 'products' then trainings() end
end
