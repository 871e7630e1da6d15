-- Measures fused ops (runtime/plan/ir/rewrite.c) against the machine, and against the separate ops that they stand
-- for, in turns in one run with the probe. A row's program runs with and without rewriting; of the one only the fused
-- op is timed, of the other the ops that it stands for. What the two shares are: shares.lua.
--
--   luajit spec/bench/fused.lua [--rows pattern]... [--seconds a_row]
--
-- The limit is the greater of FLOPs / peak and bytes / bandwidth, with the bandwidth of the row's own mix of reads and
-- writes; bytes are each input once, the result once. Rows marked * are bound by other arithmetic than products.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local scoped = require 'wane.scoped'
local programs = require 'spec.support.programs'
local record = require('wane.tensor.op').record
local shares = require 'spec.bench.shares'
local C, probe = binding.C, common.probe()
local nn, optim = wane.nn, wane.optim
local threads = C.wn_threads()

local chosen = common.options({ seconds = 3, rows = tostring }, '--rows PATTERN, --seconds N')
local PROBED, ROUNDS = 2 ^ 28, 2e5

local function noise(...) return wane.eval((wane.rand(...) - 0.5):retain()) end
-- Makes a weight (n, k) in the layout that nn.Linear gives it.
local function weight(n, k) return wane.eval(create.laid(noise(n, k), create.weight_layout { n, k }):retain()) end

-- ---- programs: function(fused) -> seconds of the ops in question ---------------------------------------------------
local function seconds_of(p, ops)
    local seconds, found = 0, 0
    for i, step in ipairs(programs.schedule(p)) do
        if step.what == 'run' and ops[step.op] then
            seconds, found = seconds + C.wn_step_seconds(p.handle, i - 1), found + 1
        end
    end
    if found == 0 then error('no ' .. next(ops) .. ' was run', 0) end
    return seconds
end

local function set(names)
    local out = {}
    for name in names:gmatch '%S+' do out[name] = true end
    return out
end

-- Returns a function that runs step() with or without rewriting and returns the seconds of the ops: those that `fused`
-- names with it, those that `apart` names without it. step() runs one program.
local function timer(step, fused, apart)
    fused, apart = set(fused), set(apart)
    return function(rewritten)
        local seconds
        binding.check(C.wn_debug('rewrite', rewritten and 1 or 0))
        local ok, why = pcall(scoped, 'listen', function(p)
            seconds = (seconds or 0) + seconds_of(p, rewritten and fused or apart)
        end, step)
        binding.check(C.wn_debug('rewrite', 1))
        return ok and seconds or error(why, 0)
    end
end

-- Returns a step that evaluates one row of the value of fn(), so that what the op writes lies in the arena, whose pages
-- were touched before.
local function value(fn)
    return function() wane.eval(fn():narrow(1, 1, 1)) end
end

-- ---- rows ----------------------------------------------------------------------------------------------------------
local rows = {}
-- Adds a row. make() returns its step; what: fused, apart (ops), flops, bytes, mix { streams read, written, in place },
-- bound.
local function add(name, make, what)
    if chosen.rows and not name:find(chosen.rows) then return end
    what.name, what.make = name, make
    rows[#rows + 1] = what
end

local function layer(act, m, n, k)
    add(('%s(x W^T + b), %d x %d x %d'):format(act, m, n, k), function()
        local x, w, b = noise(m, k), weight(n, k), noise(n)
        return value(function() return record(act, { record('linear', { x, w, b }) }) end)
    end, { fused = 'linear+' .. act, apart = 'linear ' .. act, flops = 2 * m * n * k, mix = { 1, 0, 0 },
        bytes = 4 * (m * k + n * k + m * n), bound = act == 'gelu' })
    add(('(dY W) %s, %d x %d x %d'):format(act .. "'", m, k, n), function()
        local dy, w, y = noise(m, n), weight(n, k), noise(m, k)
        return value(function() return record(act .. '_grad', { dy:matmul(w), y }) end)
    end, { fused = 'matmul+' .. act .. '_grad', apart = 'matmul ' .. act .. '_grad', flops = 2 * m * n * k,
        mix = { 1, 0, 0 }, bytes = 4 * (m * n + n * k + 2 * m * k), bound = act == 'gelu' })
end
layer('relu', 32, 4096, 4096)
layer('relu', 32, 1024, 1024)
layer('gelu', 2048, 1536, 384)

-- Adds the row of an optimizer's update: the gradient of w (n, k) is g' x over 32 rows, and the update consumes it in
-- the product that computes it.
local function update(name, op, cells, n, k, make)
    add(('%s of dY^T X, %d x %d x 32'):format(name, n, k), function()
        local x, g, w = noise(32, k), noise(32, n), nn.Parameter(weight(n, k))
        local opt = make { w }
        return function() opt:step((x:matmul(w, { transpose_b = true }) * g):sum()) end
    end, { fused = 'matmul+' .. op, apart = 'matmul ' .. op, flops = 2 * n * k * 32, mix = { cells, cells, 1 },
        bytes = 8 * cells * n * k })
end
update('SGD', 'sgd', 1, 8192, 4096, function(w) return optim.SGD(w, { lr = 1e-3 }) end)
update('Adam', 'adam', 3, 8192, 4096, function(w) return optim.Adam(w, { lr = 1e-3 }) end)
update('Adam', 'adam', 3, 16384, 1024, function(w) return optim.Adam(w, { lr = 1e-3 }) end)

local N, D = 8192, 4096
add('relu(x y + b)', function()
    local x, y, b = noise(N, D), noise(N, D), noise(D)
    return value(function() return (x * y + b):relu() end)
end, { fused = 'mul+add+relu', apart = 'mul add relu', flops = 0, mix = { 2, 1, 0 }, bytes = 12 * N * D })
add('silu(x) y', function()
    local x, y = noise(N, D), noise(N, D)
    return value(function() return x:silu() * y end)
end, { fused = 'silu+mul', apart = 'silu mul', flops = 0, mix = { 2, 1, 0 }, bytes = 12 * N * D, bound = true })
add('layer norm\'s gradient + a residual', function()
    local dy, x, mean, rstd, w, z = noise(N, D), noise(N, D), noise(N), noise(N), noise(D), noise(N, D)
    return value(function() return record('layernorm_dx', { dy, x, mean, rstd, w }) + z end)
end, { fused = 'layernorm_dx_add', apart = 'layernorm_dx add', flops = 0, mix = { 3, 1, 0 }, bytes = 16 * N * D })

-- ---- measuring -----------------------------------------------------------------------------------------------------
-- Returns the seconds that the machine's rates allow a row, probed now.
local function limit(r)
    local mix, rate = r.mix, 0
    for past_caches = 0, mix[2] > 0 and 1 or 0 do
        rate = math.max(rate, probe.mix(threads, mix[1], mix[2], mix[3], past_caches, PROBED))
    end
    return math.max(r.flops / (probe.gflops_of(threads, ROUNDS) * 1e9), r.bytes / (rate * 1e9))
end

-- Measures a row and returns its cells. Shares and ratios are medians of those of the repetitions, so that both sides
-- met the same machine. Before either side the probe goes over more memory than the caches have, so neither finds there
-- what the other read.
local watch = shares.new(common, probe, threads)
local function measured(r)
    local seconds = timer(r.make(), r.fused, r.apart)
    local times, limits, all, alone, ratios, from = {}, {}, {}, {}, {}, C.wn_now()
    seconds(true)
    seconds(false)
    while #times < 3 or (#times < 60 and C.wn_now() - from < chosen.seconds) do
        local i, least, before, fused = #times + 1, limit(r), watch:look(), seconds(true)
        local near = math.max(before, watch:look())
        limit(r)
        local apart = seconds(false)
        times[i], limits[i], all[i], ratios[i] = fused, least, least / fused, apart / fused
        if watch:is_alone(near) then alone[#alone + 1] = all[i] end
    end
    local median = common.median
    return { r.name .. (r.bound and ' *' or ''), ('%.3f'):format(median(times) * 1e3),
        ('%.3f'):format(median(limits) * 1e3), ('%.0f %%'):format(100 * median(all)), watch:text(alone, #all),
        ('%.2f'):format(median(ratios)) }
end

local lines = {}
C.wn_timing(1)
for i, r in ipairs(rows) do
    common.progress(('fused: %d of %d, %s'):format(i, #rows, r.name))
    lines[i] = measured(r)
    collectgarbage()
    collectgarbage()
    wane.memory.trim()
end
common.progress()
common.table({ 'fused, ' .. threads .. ' threads', 'ms', 'limit, ms', 'share', 'share, cores ours alone',
    'apart / fused' }, lines)
