-- Checks what must hold on any device: tensor cores, bytes, bits under policies, failures, offloading, each by its
-- name: `luajit spec/gpu/facts.lua NAME` (gpu.lua beside it says how).
local gpu = require 'spec.gpu.gpu'
local array = require 'spec.cases.array'
local binding = require 'wane.ffi'
local cli = require 'wane.cli'
local driver = require 'spec.gpu.driver'
local gradcheck = require 'spec.support.gradcheck'
local measure = require 'wane.plan.measure'
local networks = require 'spec.gpu.networks'
local op = require 'wane.tensor.op'
local system = require 'wane.system'
local wane = require 'wane'

local checks = {}

-- Returns what a command prints.
local function output(command)
    local pipe = io.popen(command .. ' 2>/dev/null')
    local text = pipe and pipe:read '*a' or ''
    if pipe then pipe:close() end
    return (text:gsub('%s+$', ''))
end

-- Says what is checked: Wane, its libraries, the GPU and its driver.
function checks.versions()
    for _, line in ipairs(cli.machine()) do gpu.note(line:match '^%S+', line:match '^%S+%s+(.*)$' or line) end
    local shown = output('nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem '
        .. '--format=csv,noheader')
    gpu.note('nvidia-smi', shown == '' and 'none' or shown)
    gpu.note('kernel', output 'uname -sr')
    gpu.fact('Wane has the device cuda', true)
end

-- ---- wrappers of PTX ------------------------------------------------------------------------------------------------

-- Returns a tensor of whole numbers from -8 to 8 in bf16, and the same numbers in f32.
local function whole(...)
    local x = wane.randint(17, { ... }):to 'f32' - 8
    local wide = wane.eval(x)
    local narrow = wane.eval(wide:to 'bf16')
    return narrow, wide
end

-- Compares a product of bf16 with the f32 product of the same numbers, rounded once.
local function compare(what, narrow, wide)
    local have, want = gradcheck.bytes(narrow), gradcheck.bytes(wide:to 'bf16')
    local detail
    if have ~= want then
        local a, b = gradcheck.values(narrow), gradcheck.values(wide:to 'bf16')
        for i = 1, #b do
            if a[i] ~= b[i] then
                detail = ('element %d is %g, without tensor cores %g'):format(i, a[i], b[i])
                break
            end
        end
    end
    gpu.fact(what, have == want, detail)
end

-- Returns the largest difference of two lists of numbers over the largest magnitude; infinite where one is NaN.
local function distance(have, want)
    local top, far = 0, 0
    for i = 1, #want do
        top = math.max(top, math.abs(want[i]))
        local d = math.abs(have[i] - want[i])
        far = d == d and math.max(far, d) or math.huge
    end
    return far / top
end

-- Compares attention of bf16 with that of f32. o: heads, heads of keys, their size, positions.
local function attention(o)
    local heads, kv, size, t, batch = o[1], o[2], o[3], o[4], 2
    local attrs = { i = { heads, kv, 1 }, f = { 0, size ^ -0.5 } }
    local wide = wane.eval(wane.randn(batch, t, (heads + 2 * kv) * size):to 'bf16':to 'f32')
    local dy = wane.eval(wane.randn(batch, t, heads * size):to 'bf16':to 'f32')
    local function run(x, d)
        local y = wane.eval(array.record('attention', { x }, attrs))
        return gradcheck.values(y), gradcheck.values(array.record('attention_grad', { d, x, y }, attrs))
    end
    local y, grad = run(wide:to 'bf16', dy:to 'bf16')
    local want_y, want_grad = run(wide, dy)
    local what = ('attention, %d heads of %d, %d of keys, T = %d: '):format(heads, size, kv, t)
    local far_y, far_grad = distance(y, want_y), distance(grad, want_grad)
    gpu.fact(what .. 'bf16 is within 2 % of f32', far_y < 0.02, far_y)
    gpu.fact(what .. 'its gradient is within 4 %', far_grad < 0.04, far_grad)
end

-- Probes each wrapper of PTX in the GPU's own words: products of bf16 by tensor cores (mma, ldmatrix, cp.async) against
-- the kernels without them. Matrices hold small whole numbers, so that every sum is exact in any order and is rounded
-- once: a wrong place of one element in a fragment is another number, and there is no tolerance. Attention by
-- tensor cores is compared with that of f32, which takes another kernel.
function checks.probes()
    -- m, n, k of products: a fragment, tiles of 64 and of 128 with rests, rows that are on no 16 bytes, more than one
    -- step.
    local shapes = gpu.size({ { 16, 16, 16 }, { 64, 64, 32 }, { 128, 128, 128 }, { 130, 72, 48 }, { 200, 136, 104 },
        { 37, 51, 23 }, { 1536, 2048, 256 }, { 1500, 2056, 1000 }, { 2048, 1792, 4096 } },
        { { 16, 16, 16 }, { 72, 40, 48 }, { 37, 51, 23 } })
    for _, s in ipairs(shapes) do
        local m, n, k = unpack(s)
        for flags = 0, 3 do
            local ta, tb = flags % 2 == 1, flags >= 2
            local a, wide_a = whole(ta and k or m, ta and m or k)
            local b, wide_b = whole(tb and n or k, tb and k or n)
            local how = { transpose_a = ta, transpose_b = tb }
            compare(('product %d x %d x %d%s%s by tensor cores'):format(m, n, k, ta and ', a^T' or '',
                tb and ', b^T' or ''), a:matmul(b, how), wide_a:matmul(wide_b, how))
        end
    end
    local a, wide_a = whole(3, 2, 40, 32)
    local b, wide_b = whole(2, 32, 24)
    compare('batch of products, broadcast', a:matmul(b), wide_a:matmul(wide_b))
    for _, o in ipairs(gpu.size({ { 2, 2, 64, 128 }, { 4, 2, 64, 200 }, { 2, 2, 128, 256 }, { 4, 1, 128, 333 },
        { 2, 2, 96, 100 }, { 3, 3, 32, 65 } }, { { 2, 2, 64, 40 }, { 2, 1, 128, 20 } })) do attention(o) end
end

-- ---- bytes and bits -------------------------------------------------------------------------------------------------
local MiB = 2 ^ 20
local ROUNDING = 2 * MiB -- of an allocation or a segment

-- Trains heavy layers; returns what holds their bytes.
local function train(depth, steps)
    local net = networks.heavy(depth, gpu.size(4096, 64), gpu.size(32, 8))
    for _ = 1, steps do wane.measure(net.loss, { optimizer = net.optimizer, steps = 1, warmup = 0 }) end
    return net
end

-- Compares what the ledger says is taken from the device with what the driver says, but for the rounding of
-- allocations.
local function compare_ledger()
    train(1, 1) -- makes the driver's context, and has libraries take what they keep
    local depth = gpu.size(20, 4)
    local most = ROUNDING * (2 * 2 * depth + 8) -- a weight and a bias a layer, each with a gradient
    local seen = driver.compare { taken = driver.taken, reserved = function() return wane.memory('cuda').reserved end,
        use = function() return train(depth, 2) end, free = wane.memory.trim, most = most,
        rest = function() if not gpu.is_simulated then system.sleep(0.02) end end }
    gpu.number('heavy layers: bytes that the ledger has reserved', seen.reserved, 'B')
    if seen.is_alone then
        gpu.number('heavy layers: bytes that the driver has given', seen.taken, 'B')
        gpu.fact('the driver has given what the ledger says, and at most 2 MiB more for each allocation', seen.fits,
            ('%d more than %d'):format(seen.taken - seen.reserved, seen.reserved))
        gpu.number('more than the ledger says', math.max(0, seen.taken - seen.reserved) / MiB, 'MiB',
            { most = most / MiB })
        gpu.number('kept when all is freed', math.max(0, seen.kept) / MiB, 'MiB', { most = 64 })
    else
        gpu.note('the driver has given what the ledger says', 'left out: others use this GPU, whose free bytes '
            .. 'changed at rest')
    end
end

-- Checks bytes: the ledger beside the driver, first, while nothing is idle; then under every policy, what a plan
-- predicts beside what its run measures.
function checks.exact()
    compare_ledger()
    local gpt = networks.gpt(gpu.size('124M', 'tiny'), gpu.size(2, 2))
    for _, policy in ipairs(networks.policies) do
        for _, is_joint in ipairs { false, true } do
            local m = wane.measure(gpt.loss, { optimizer = gpt.optimizer, policy = policy, lines = not is_joint,
                steps = 1, warmup = 0 })
            gpu.fact(('GPT, %s, %s: predicted bytes are measured bytes'):format(policy, is_joint and 'one program'
                or 'backward, then the step'), m.exact, ('peak %d, measured %d; reserved %d, measured %d'):format(
                m.predicted_peak, m.peak, m.predicted_reserved, m.reserved))
        end
    end
end

-- Compares the gradients of a network under each policy.
local function compare_policies(what, net)
    local want = measure.gradients(net.loss, 'save_all')
    gpu.fact(what .. ': gradients are the same bits twice', want == measure.gradients(net.loss, 'save_all'))
    for i = 2, #networks.policies do
        local have = measure.gradients(net.loss, networks.policies[i])
        gpu.fact(('%s, %s: the bits of saving'):format(what, networks.policies[i]), have == want,
            ('fingerprint %s, of save_all %s'):format(have, want))
    end
    local away = measure.gradients(net.loss, wane.policy.of(function() return 'offload' end))
    gpu.fact(what .. ', all offloaded: the bits of saving', away == want, away)
end

-- Checks that gradients have the same bits under six policies, and that offloading gives them too.
function checks.policies()
    compare_policies('heavy layers', networks.heavy(gpu.size(20, 4), gpu.size(1024, 64), gpu.size(64, 16)))
    wane.memory.trim()
    compare_policies('GPT, autocast', networks.gpt(gpu.size('124M', 'tiny'), 2))
end

-- ---- failures and transfers -----------------------------------------------------------------------------------------

-- Checks that an index outside its table is named, and changes nothing.
local function check_wrong_index()
    wane.manual_seed(1)
    local rows = wane.nn.Embedding(5, 4)
    local opt = wane.optim.SGD(rows:parameters(), { lr = 0.1 })
    local function step(ids) opt:step((rows(wane.tensor(ids, { dtype = 'i32' })) ^ 2):sum()) end
    step { 1, 2 }
    local kept = measure.fingerprint(rows:parameters())
    local fine, why = pcall(step, { 0, 3, 9, 7 })
    gpu.fact('an index outside its table is named, with its place', not fine and why.code == 'value'
        and tostring(why):find('index 9 at element 2 is outside 0..4', 1, true) ~= nil, why)
    gpu.fact('nothing has changed', measure.fingerprint(rows:parameters()) == kept)
    step { 1, 2 }
    gpu.fact('the next step changes it', measure.fingerprint(rows:parameters()) ~= kept)
end

-- Checks failures that a real GPU can have on demand: a limit that is too low, more bytes than the device has, and
-- wrong data. Each is an error with words, and the next call works and gives the bits of before.
function checks.faults()
    local net = networks.heavy(4, 64, 16)
    local want = measure.gradients(net.loss)

    local function again(what)
        gpu.fact(what .. ': the next step has the bits of before', measure.gradients(net.loss) == want)
    end

    wane.memory.trim()
    wane.memory.limit(wane.memory('cuda').reserved + 256, 'cuda')
    local fine, why = pcall(measure.gradients, net.loss, 'recompute_all')
    wane.memory.limit(nil, 'cuda')
    gpu.fact('a limit that is too low is out of memory', not fine and why.code == 'oom', why)
    gpu.fact('its message names the limit', not fine and tostring(why):find('limit', 1, true) ~= nil, why)
    again 'after a limit'

    fine, why = pcall(function() return wane.eval(wane.ones(2 ^ 22, 2 ^ 20)) end)
    gpu.fact('16 TiB are out of memory', not fine and why.code == 'oom', why)
    again 'after 16 TiB'
    check_wrong_index()
end

-- Measures offloading: bytes a second, and how long a step waits for transfers, beside what the plan says of the
-- machine's link.
function checks.offload()
    local out, back = binding.new 'double[1]', binding.new 'double[1]'
    local bytes = gpu.size(256 * 2 ^ 20, 2 ^ 20)
    binding.check(binding.C.wn_probe(op.device('cuda', 'offload'), 0, bytes, out, back))
    gpu.number('to the host', bytes / out[0] / 1e9, 'GB/s')
    gpu.number('from the host', bytes / back[0] / 1e9, 'GB/s')

    local net = networks.gpt(gpu.size('124M', 'tiny'), gpu.size(8, 2))
    local away = wane.policy.of(function() return 'offload' end)
    local plan = wane.plan(function() net.optimizer:step(net.loss(), { policy = away }) end)
    local saved = wane.measure(net.loss, { optimizer = net.optimizer, steps = gpu.size(5, 1) })
    local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = away, steps = gpu.size(5, 1) })
    gpu.fact('a step that offloads: predicted bytes are measured bytes', m.exact)
    gpu.fact('it has moved bytes', m.moved > 0, m.moved)
    gpu.number('bytes moved in a step', m.moved, 'B', { predicted = plan.moved })
    gpu.number('seconds of a step without', saved.seconds * 1e3, 'ms')
    gpu.number('seconds of a step with', m.seconds * 1e3, 'ms', { predicted = plan.seconds * 1e3 })
    gpu.number('seconds of transfers', m.move_seconds / m.steps * 1e3, 'ms', { predicted = plan.move_seconds * 1e3 })
    gpu.number('seconds waited for them', m.stall_seconds / m.steps * 1e3, 'ms', { predicted = plan.stall_seconds * 1e3,
        about = 0.2 })
    gpu.number('share of transfers that nothing waits for', 100 * m.hidden, '%', { predicted = 100 * plan.hidden })
end

-- Runs one small step of a GPT with everything in it, for compute-sanitizer, which watches the process. Its tools need
-- minutes for what takes milliseconds, so nothing here is large.
function checks.sanitized()
    local net = networks.gpt('tiny', 2)
    wane.measure(net.loss, { optimizer = net.optimizer, steps = 1, warmup = 0, policy = 'every(1)' })
    local away = wane.policy.of(function() return 'offload' end)
    local m = wane.measure(net.loss, { optimizer = net.optimizer, steps = 1, warmup = 0, policy = away })
    gpu.fact('a small step has run', m.loss == m.loss and m.exact)
    local a, b = gpu.normal(160, 96, { dtype = 'bf16' }), gpu.normal(96, 144, { dtype = 'bf16' })
    wane.eval(a:matmul(b))
    gpu.fact('a product by tensor cores has run', true)
    -- T is no multiple of 4 or of a tile, so that masks of dropout begin inside a quad.
    for _, how in ipairs { { 64, 1 }, { 128, 0 } } do
        local size, causal = unpack(how)
        local attrs = { i = { 2, 1, causal }, f = { 0.1, size ^ -0.5 } }
        local qkv = gpu.normal(1, 131, 4 * size, { dtype = 'bf16' })
        local dy = gpu.normal(1, 131, 2 * size, { dtype = 'bf16' })
        local y = wane.eval(array.record('attention', { qkv }, attrs))
        wane.eval(array.record('attention_grad', { dy, qkv, y }, attrs))
    end
    gpu.fact('attention by tensor cores with dropout has run', true)
end

gpu.run(checks)
