-- Computes products, large and small, and a training under several plans, and prints what came of them, a fact a line.
-- onednn_spec runs it in processes of their own with WANE_ONEDNN set. `luajit spec/support/onednn.lua [what]`, `what`
-- being all (the default), product (one product, its error if it is refused) or plan (a peak).
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local gradcheck = require 'spec.support.gradcheck'
local fingerprint = require('wane.plan.measure').fingerprint
local C, nn = binding.C, wane.nn
local WORKSPACE = C.WN_KIND_WORKSPACE + 1

local function fact(name, ...) print(table.concat({ name, ... }, '\t')) end

local function ready() return tonumber(C.wn_debug_get 'onednn') end

-- Forgets plans, so that nothing made before is ready any more, unless a program that is still in use needs it.
local function forget()
    collectgarbage()
    binding.check(C.wn_debug('forget_plans', 1))
    wane.memory.trim() -- lets go of what was collected
end

local function apart(fn)
    binding.check(C.wn_debug('rewrite', 0))
    local out = fn()
    binding.check(C.wn_debug('rewrite', 1))
    return out
end

-- Runs y's program; returns the bytes of y, how many products the library made for it, bytes of scratch at the peak.
local function made(y)
    forget()
    local before = ready()
    local p = programs.run { mode = 'eval', roots = { y } }
    assert(p.predicted.peak == p.measured.peak, 'peak')
    assert(p.predicted.reserved == p.measured.reserved, 'reserved')
    assert(p.predicted.kinds[WORKSPACE] == p.measured.kinds[WORKSPACE], 'workspace')
    return gradcheck.bytes(y), ready() - before, p.measured.kinds[WORKSPACE]
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

local ACTIVATIONS = { 'relu', 'gelu' }

-- Checks one product: against f64, and with an op over it as one node and as two.
local function check(name, dtype, build, operands, k)
    local wide, sizes = {}, {}
    for i, t in ipairs(operands) do
        wide[i] = wane.eval(t:to 'f64')
        sizes[i] = wane.eval(wide[i]:abs())
    end
    local y = build(operands):retain()
    local bytes, n, scratch = made(y)
    fact('product', name, dtype, n, scratch, wrong(y, build(wide), build(sizes), k))
    local same = 0
    for _, act in ipairs(ACTIVATIONS) do
        local function over()
            local z = build(operands)
            z = z[act](z):retain()
            return (made(z))
        end
        local two = wane.eval(y[act](y))
        if over() == gradcheck.bytes(two) and apart(over) == gradcheck.bytes(two) then same = same + 1 end
    end
    local again = build(operands):retain()
    if made(again) == bytes then same = same + 1 end
    fact('same', name, dtype, same)
    fact('bits', name, dtype, fingerprint { wane.eval(y:to 'f32') })
end

local function matmul(flip_a, flip_b)
    return function(t) return t[1]:matmul(t[2], { transpose_a = flip_a, transpose_b = flip_b }) end
end

local function linear(t)
    return require('wane.tensor.op').record('linear', t)
end

local function products(dtype)
    local m, n, k = 131, 197, 203 -- multiples of nothing
    local function pair(a, b) return { operand(dtype, unpack(a)), operand(dtype, unpack(b)) } end
    check('a b', dtype, matmul(false, false), pair({ m, k }, { k, n }), k)
    check("a b'", dtype, matmul(false, true), pair({ m, k }, { n, k }), k)
    check("a' b", dtype, matmul(true, false), pair({ k, m }, { k, n }), k)
    check("a' b'", dtype, matmul(true, true), pair({ k, m }, { n, k }), k)
    check('a batch', dtype, matmul(false, true), pair({ 3, 2, 67, 130 }, { 3, 2, 101, 130 }), 130)
    check('one b for all', dtype, matmul(false, false), pair({ 3, 67, 150 }, { 150, 170 }), 150)
    check('linear', dtype, linear, { operand(dtype, 3, m, k), operand(dtype, n, k), operand(dtype, n) }, k + 1)
    check('small', dtype, matmul(false, false), pair({ 100, 90 }, { 90, 80 }), 90)
    check('thin', dtype, matmul(false, false), pair({ 15, 1000 }, { 1000, 1000 }), 1000)
    check('b again and again', dtype, matmul(true, false), pair({ 3, 150, 67 }, { 150, 170 }), 150)
    check('what an update takes', dtype, matmul(true, false), pair({ 128, 200 }, { 128, 200 }), 128)
    -- Sums of 257 and 1: rounded once that is 258, rounded before the bias 257 would become 256.
    local function ones(...) return wane.eval((wane.zeros(...) + 1):to(dtype)) end
    local once = wane.eval(linear { ones(131, 257), ones(197, 257), ones(197) }:to 'f32')
    fact('rounded once', dtype, (once - 258):abs():max():item())
end

-- Trains a network whose weights' gradients are summed over `rows`, in one program a step or with `lines` in three
-- lines; returns the fingerprint of its parameters.
local function train(policy, rows, low, lines)
    wane.manual_seed(4)
    local model = programs.mlp(256, 4, 0.2)
    local opt = wane.optim.Adam(model:parameters(), { lr = 0.01 })
    local x = wane.eval(wane.randn(rows, 256))
    local function loss()
        if low then return wane.autocast('bf16', function() return (model(x) ^ 2):mean() end) end
        return (model(x) ^ 2):mean()
    end
    for _ = 1, 3 do
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
    for _, rows in ipairs { 96, 192 } do
        for _, low in ipairs { false, true } do
            local name = ('%d rows in %s'):format(rows, low and 'bf16' or 'f32')
            local want = train('save_all', rows, low)
            fact('trained', name, want)
            local same = apart(function() return train('save_all', rows, low, true) end) == want and 1 or 0
            for _, policy in ipairs { 'recompute_all', 'every(2)' } do
                for _, lines in ipairs { false, true } do
                    if train(policy, rows, low, lines) == want then same = same + 1 end
                end
            end
            fact('plans agree', name, same)
        end
    end
    binding.check(C.wn_debug('check', 1)) -- over poisoned memory, with an eye on every byte
    binding.check(C.wn_debug('poison', 1))
    fact('checked', train('every(2)', 192, false), train('every(2)', 192, true))
    binding.check(C.wn_debug('check', 0))
    binding.check(C.wn_debug('poison', 0))
end

local function plan()
    local model, x = nn.MLP(256, 512), wane.randn(192, 256)
    local p = wane.plan(function() return model(x):sum():backward() end)
    fact('plan', p.peak, ready())
end

local what = arg[1] or 'all'
fact('state', binding.text(C.wn_onednn()))
wane.manual_seed(1)
if what == 'product' then
    for _ = 1, 2 do -- the second time after a failure, if there was one
        local operands = { operand('f32', 200, 200), operand('f32', 200, 200) }
        local fine, e = pcall(check, 'one', 'f32', matmul(false, true), operands, 200)
        if not fine then fact('refused', tostring(e)) end
    end
elseif what == 'plan' then
    plan()
else
    products 'f32'
    products 'bf16'
    trainings()
end
collectgarbage()
forget()
fact('left', ready())
