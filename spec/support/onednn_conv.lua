-- Computes convolutions and their gradients, large and small, and a training of a small network under several plans,
-- and prints what came of them, a fact a line. onednn_conv_spec runs it in processes of their own with WANE_ONEDNN set.
-- `luajit spec/support/onednn_conv.lua [what]`, `what` being all (the default), shapes (without the training), conv
-- (one convolution, its error if it is refused), failing (allocations) or plan (a peak). With spec/support/foreign.c
-- preloaded it says how many bytes the library asked for.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local ffi = require 'ffi'
local wane = require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local op = require 'wane.tensor.op'
local program = require 'wane.program'
local programs = require 'spec.support.programs'
local gradcheck = require 'spec.support.gradcheck'
local fingerprint = require('wane.plan.measure').fingerprint
local C, nn = binding.C, wane.nn
local WORKSPACE = C.WN_KIND_WORKSPACE + 1
local PLAIN, NHWC, PANELS = 0, 2, 3 -- runtime/base/layout.h

ffi.cdef 'void foreign_arm(int on); double foreign_bytes(void);'
local has_foreign = pcall(function() return ffi.C.foreign_arm end)

local function fact(name, ...) print(table.concat({ name, ... }, '\t')) end

local function ready() return tonumber(C.wn_debug_get 'onednn') end

-- Forgets plans, so that nothing made before is ready any more, unless a program that is still in use needs it.
local function forget()
    collectgarbage()
    binding.check(C.wn_debug('forget_plans', 1))
    wane.memory.trim() -- lets go of what was collected
end

-- Runs p; returns the bytes that anyone asked for meanwhile, 0 where nobody counts.
local function watched(p)
    if not has_foreign then
        p:run()
        return 0
    end
    collectgarbage()
    collectgarbage 'stop' -- the collector's own memory is not the run's
    ffi.C.foreign_arm(1)
    p:run()
    ffi.C.foreign_arm(0)
    collectgarbage 'restart'
    return ffi.C.foreign_bytes()
end

-- Runs the program of y; returns the elements of y, its bytes, how many applications the library has ready for it, the
-- bytes of scratch at the peak, and what was asked for beside the plan.
local function run(y, before)
    local p = program.open { mode = 'eval', roots = { y } }:plan()
    local n, foreign = ready() - before, watched(p)
    programs.read(p)
    assert(p.predicted.peak == p.measured.peak, 'peak')
    assert(p.predicted.reserved == p.measured.reserved, 'reserved')
    assert(p.predicted.kinds[WORKSPACE] == p.measured.kinds[WORKSPACE], 'workspace')
    return { values = gradcheck.values(y), bytes = gradcheck.bytes(y), n = n, scratch = p.measured.kinds[WORKSPACE],
        foreign = foreign, bits = fingerprint { y } }
end

-- Runs what `build` returns twice; returns what came of that, whether both had the same bits, and what was asked for
-- beside the plan where the result lies in an arena that was there before.
local function twice(build)
    forget()
    local before = ready()
    local first, second = run(build():retain(), before), run(build():retain(), before)
    if not has_foreign then return second, first.bytes == second.bytes, 0 end
    run(build():sum(), before)
    return second, first.bytes == second.bytes, run(build():sum(), before).foreign
end

-- Counts the elements that are farther than they may be from the convolution in f64, whose terms have the absolute
-- values `most`; -1: there are no elements.
local function wrong(have, dtype, exact, most, k)
    local want, terms, bad = gradcheck.values(wane.eval(exact)), gradcheck.values(wane.eval(most)), 0
    for i = 1, #want do
        local allowed = k * 2 ^ -24 * terms[i] + (dtype == 'bf16' and 2 ^ -8 * math.abs(want[i]) or 0)
        if not (math.abs(have[i] - want[i]) <= allowed) then bad = bad + 1 end
    end
    return #want > 0 and bad or -1
end

local function pair(a) return type(a) == 'table' and a[1] * 2 ^ 32 + a[2] or a * 2 ^ 32 + a end

local function part(a, i) return type(a) == 'table' and a[i] or a end

-- Returns the size of the result along dim i.
local function size_of(s, i)
    local reach = part(s.dilation or 1, i) * (part(s.kernel, i) - 1) + 1
    return math.floor((part(s.size, i) + 2 * part(s.pad or 0, i) - reach) / part(s.stride or 1, i)) + 1
end

-- Records one of the three ops over the operands t = { x, w, y, b }.
local function record(which, s, t, layout)
    local a = { i = { pair(s.stride or 1), pair(s.pad or 0), pair(s.dilation or 1), s.groups or 1 } }
    if which == 'conv2d' then return op.record(which, t[4] and { t[1], t[2], t[4] } or { t[1], t[2] }, a) end
    a.i[5] = pair(which == 'conv2d_dx' and s.size or s.kernel)
    if which == 'conv2d_dx' then return op.record(which, { t[3], t[2] }, a) end
    a.layout = layout
    return op.record(which, { t[3], t[1] }, a)
end

-- Returns the operands of a shape in a dtype, each in its layout: { x, w, y, b }.
local function operands(s, dtype)
    local function image(c, h, w) return create.laid(wane.randn(s.n, c, h, w):to(dtype), NHWC) end
    local w = wane.randn(s.o, s.c / (s.groups or 1), part(s.kernel, 1), part(s.kernel, 2)):to(dtype)
    local t = { image(s.c, part(s.size, 1), part(s.size, 2)), s.panels and create.laid(w, PANELS) or w,
        image(s.o, size_of(s, 1), size_of(s, 2)), s.bias and wane.randn(s.o):to(dtype) or nil }
    for i = 1, 4 do
        if t[i] then t[i] = wane.eval(t[i]:retain()) end
    end
    return t
end

local function terms_of(which, s)
    local taps = part(s.kernel, 1) * part(s.kernel, 2)
    if which == 'conv2d' then return taps * s.c / (s.groups or 1) + 1 end
    return which == 'conv2d_dx' and taps * s.o / (s.groups or 1) or s.n * size_of(s, 1) * size_of(s, 2)
end

-- Checks one op of a shape: against f64, and twice.
local function check(s, dtype, which, t)
    local wide, sizes = {}, {}
    for i = 1, 4 do
        if t[i] then
            wide[i] = wane.eval(t[i]:to 'f64')
            sizes[i] = wane.eval(wide[i]:abs())
        end
    end
    local layout = s.panels and PANELS or PLAIN
    local y, same, foreign = twice(function() return record(which, s, t, layout) end)
    local far = wrong(y.values, dtype, record(which, s, wide, layout), record(which, s, sizes, layout),
        terms_of(which, s))
    fact('conv', s[1], which, dtype, y.n, y.scratch, far, same and 1 or 0, foreign)
    fact('bits', s[1], which, dtype, y.bits)
end

local SHAPES = {
    { '3x3', n = 2, c = 48, o = 64, kernel = 3, size = 21, pad = 1, bias = true },
    { '3x3 in panels', n = 2, c = 48, o = 112, kernel = 3, size = 21, pad = 1, panels = true, bias = true },
    { '1x1', n = 2, c = 64, o = 96, kernel = 1, size = 30, bias = true },
    { '1x1 in panels, stride', n = 2, c = 64, o = 96, kernel = 1, size = 58, stride = 2, panels = true },
    { 'stride', n = 2, c = 32, o = 64, kernel = 3, size = { 44, 39 }, stride = 2, pad = 1 },
    { 'odd', n = 2, c = 30, o = 50, kernel = { 3, 5 }, size = { 33, 27 }, stride = { 2, 1 }, pad = { 0, 2 },
        bias = true },
    { 'dilation', n = 2, c = 48, o = 48, kernel = 3, size = 25, pad = 2, dilation = 2 },
    { 'stem', n = 2, c = 3, o = 32, kernel = 7, size = 64, stride = 2, pad = 3, bias = true },
    { 'groups', n = 2, c = 64, o = 96, kernel = 3, size = 30, pad = 1, groups = 2, bias = true },
    { 'groups in panels', n = 2, c = 64, o = 96, kernel = 3, size = 30, pad = 1, groups = 2, panels = true },
    { 'depthwise', n = 4, c = 64, o = 64, kernel = 3, size = 48, pad = 1, groups = 64, bias = true },
    { 'small', n = 1, c = 16, o = 16, kernel = 3, size = 8, pad = 1, bias = true },
}
local OPS = { 'conv2d', 'conv2d_dx', 'conv2d_dw' }

local function convolutions(dtype)
    for _, s in ipairs(SHAPES) do
        local t = operands(s, dtype)
        for _, which in ipairs(OPS) do check(s, dtype, which, t) end
    end
end

-- Makes a network of three convolutions, which takes images of 24 x 24.
local function network()
    return nn.Sequential {
        nn.Conv2d(3, 32, 3, { padding = 1 }), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 48, 3, { padding = 1, stride = 2 }), nn.BatchNorm2d(48), nn.ReLU(),
        nn.Conv2d(48, 64, 3, { padding = 1, bias = false }), nn.BatchNorm2d(64), nn.ReLU(),
    }
end

-- Trains it; returns the fingerprint of its parameters, and how many applications the library had ready at the end.
local function train(policy, low)
    wane.manual_seed(4)
    local model = network()
    local opt = wane.optim.Adam(model:parameters(), { lr = 0.01 })
    local x = wane.eval(wane.randn(8, 3, 24, 24))
    local function loss()
        if low then return wane.autocast('bf16', function() return (model(x) ^ 2):mean() end) end
        return ((model(x) - 1) ^ 2):mean()
    end
    forget()
    local before, most = ready(), 0
    for _ = 1, 3 do
        local p
        require('wane.scoped')('listen', function(q) p = programs.read(q) end, function()
            opt:step(loss(), { policy = policy })
        end)
        assert(p.predicted.peak == p.measured.peak, 'peak')
        assert(p.predicted.reserved == p.measured.reserved, 'reserved')
        most = math.max(most, ready() - before)
    end
    local last = loss():item()
    assert(last == last and math.abs(last) < 1e3, 'loss ' .. last)
    return fingerprint(model:parameters()), most
end

local function trainings()
    for _, low in ipairs { false, true } do
        local name = low and 'bf16' or 'f32'
        local want, n = train('save_all', low)
        fact('trained', name, want, n)
        local same = 0
        for _, policy in ipairs { 'recompute_all', 'every(2)' } do
            if train(policy, low) == want then same = same + 1 end
        end
        fact('plans agree', name, same)
    end
    binding.check(C.wn_debug('check', 1)) -- over poisoned memory, with an eye on every byte
    binding.check(C.wn_debug('poison', 1))
    fact('checked', (train('recompute_all', false)))
    binding.check(C.wn_debug('check', 0))
    binding.check(C.wn_debug('poison', 0))
end

local function plan()
    local model, x = network(), wane.randn(8, 3, 24, 24)
    local p = wane.plan(function() return model(x):sum():backward() end)
    fact('plan', p.peak, ready())
end

-- Runs a convolution whose n-th allocation fails, for n from 1 on until none does; says how many runs failed, and how
-- many there were. What only wants room is tried once more, and comes through.
local function failing()
    local s = { 'one', n = 2, c = 48, o = 64, kernel = 3, size = 21, pad = 1, panels = true }
    local t, n, failures = operands(s, 'f32'), 0, 0
    local function once() return gradcheck.bytes(wane.eval(record('conv2d', s, t):retain())) end
    local want = once()
    repeat
        n = n + 1
        forget()
        binding.check(C.wn_debug('fail_alloc', n))
        local fine, result = pcall(once)
        local fired = C.wn_debug_get 'fail_alloc' == 0
        binding.check(C.wn_debug('fail_alloc', 0))
        assert(fine and result == want or not fine and result.code == 'oom', 'allocation ' .. n)
        if not fine then failures = failures + 1 end
    until not fired
    fact('failed', failures, n)
end

local what = arg[1] or 'all'
fact('state', binding.text(C.wn_onednn()))
wane.manual_seed(1)
if what == 'conv' then
    for _, which in ipairs(OPS) do
        for _ = 1, 2 do -- the second time after a failure, if there was one
            local s = { 'one', n = 2, c = 48, o = 64, kernel = 3, size = 21, pad = 1, panels = true }
            local fine, e = pcall(check, s, 'f32', which, operands(s, 'f32'))
            if not fine then fact('refused', which, tostring(e)) end
        end
    end
elseif what == 'plan' then
    plan()
elseif what == 'failing' then
    failing()
else
    convolutions 'f32'
    convolutions 'bf16'
    if what == 'all' then trainings() end
end
collectgarbage()
forget()
fact('left', ready())
