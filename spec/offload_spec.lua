-- Checks values that wait in an offload buffer, on disk or in host memory, between forward and backward: the bits must
-- be the same and the bytes the predicted ones. Makes transfers fail: every kind of program, every kind of fault, at
-- every index. The error must be in words, the bytes held must be what they were or be released, and the next step must
-- give the bits of a run that never failed.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local files = require 'spec.support.files'
local offloading = require 'spec.support.offloading'
local programs = require 'spec.support.programs'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local C = binding.C
local ffi = require 'ffi'
pcall(ffi.cdef, [[int getpid(void);
    struct rlimit { unsigned long now, most; };
    int getrlimit(int what, struct rlimit *out);
    int setrlimit(int what, const struct rlimit *limit);]])

local function debug(option, value) binding.check(C.wn_debug(option, value)) end

local everything, make = offloading.everything, offloading.make
local all = everything 'offload'

local function gradients(p)
    local params, loss = make()
    loss():backward { policy = p }
    local list = {}
    for i, q in ipairs(params) do list[i] = q.grad end
    return programs.bits(list)
end

setup(function() wane.set_device 'cpu' end) -- its offload buffer is a disk
teardown(function() wane.set_device(helper.device) end)
after_each(function()
    for _, option in ipairs { 'fail_offload', 'fail_fetch', 'disk_full', 'move_delay', 'check', 'poison', 'fail_alloc' }
    do
        debug(option, 0)
    end
    wane.memory.limit_disk(nil)
    wane.memory.limit(nil)
end)

describe('offloading', function()
    it('gives the bits of saving, also when every move is slow and freed bytes are poison', function()
        local saved = gradients 'save_all'
        assert.equal(saved, gradients(all))
        assert.equal(saved, gradients(everything 'offload:host'))
        debug('poison', 1)
        debug('move_delay', 700)
        assert.equal(saved, gradients(all))
        assert.equal(saved, gradients(everything 'offload:host'))
    end)

    it('takes fewer bytes on disk, and says what it moves; host memory counts where it is the device', function()
        local _, loss = make(512)
        local saved, disk = wane.plan(loss, { policy = 'save_all' }), wane.plan(loss, { policy = all })
        local host = wane.plan(loss, { policy = everything 'offload:host' })
        assert.is_true(disk.reserved < saved.reserved)
        assert.is_true(disk.disk > 0 and disk.host == 0)
        assert.is_true(host.host > 0 and host.disk == 0)
        assert.is_true(host.reserved >= disk.reserved + host.host)
        assert.equal(2 * disk.disk, disk.moved)
        assert.is_true(disk.move_seconds > 0 and disk.stall_seconds >= 0)
        assert.is_true(disk.hidden >= 0 and disk.hidden <= 1)
        assert.is_true(disk.seconds >= saved.seconds)
        assert.equal(0, disk.lossy)
        assert.is_truthy(tostring(disk):find('offload:disk %d+ values'))
        assert.is_truthy(tostring(disk):find('on disk', 1, true))
        local gpu = wane.plan(loss, { policy = all, target = 'h200' })
        assert.is_true(gpu.host > 0 and gpu.disk == 0)
        assert.is_true(gpu.reserved < wane.plan(loss, { policy = 'save_all', target = 'h200' }).reserved)
    end)

    it('leaves nothing behind', function()
        collectgarbage()
        collectgarbage()
        wane.memory.trim()
        local before = wane.memory()
        gradients(all)
        assert.is_true(wane.memory().disk > 0)
        jit.flush()
        collectgarbage()
        collectgarbage()
        wane.memory.trim()
        local after = wane.memory()
        assert.equal(0, after.disk)
        assert.equal(before.reserved, after.reserved)
        assert.equal(before.allocated, after.allocated)
    end)
end)

describe('a budget that allows offloading', function()
    -- Returns a loss of wide layers over many rows. On an h200 moving a byte is dear there, computing again is not.
    local function wide(n)
        wane.manual_seed(3)
        local layers = {}
        for _ = 1, 6 do layers[#layers + 1] = nn.Linear(n, n) end
        local model, x = nn.Sequential(layers), wane.eval(wane.randn(4 * n, n))
        return function() return (model(x) ^ 2):mean() end
    end

    it('offers plans below those of recomputing, never slower ones, and keeps the bits', function()
        local loss = wide(96)
        local least = wane.plan(loss, { policy = policy.least() })
        local saved = wane.plan(loss, { policy = 'save_all' })
        local middle = math.floor((least.reserved + saved.reserved) / 2)
        local before, faster = nil, 0
        for _, size in ipairs { least.reserved, middle, saved.reserved } do
            local plain = assert(wane.plan(loss, { policy = policy.budget(size) }))
            local either = policy.budget(size, { allow = { 'recompute', 'offload' } })
            local both = assert(wane.plan(loss, { policy = either }))
            assert.equal(0, plain.moved)
            assert.is_true(both.reserved <= size)
            assert.is_true(both.seconds <= plain.seconds + 1e-12)
            assert.is_true(before == nil or both.seconds <= before + 1e-12)
            if both.seconds < plain.seconds then faster = faster + 1 end
            before = both.seconds
        end
        assert.is_true(faster >= 2)
        local function bits(p)
            local fn = wide(96)
            local run = programs.run { mode = 'backward', roots = { fn() }, policy = p }
            offloading.same(run, tostring(p))
            return require 'wane.plan.measure'.gradients(fn, p)
        end
        local allowed = policy.budget(least.reserved, { allow = { 'offload' } })
        assert.equal(bits 'save_all', bits(allowed))
    end)

    it('chooses it where it pays, and declines it where saving fits or computing again is faster', function()
        local loss = wide(128)
        local saved = wane.plan(loss, { policy = 'save_all' })
        local roomy = assert(wane.plan(loss, { policy = policy.budget(saved.reserved, { allow = { 'offload' } }) }))
        assert.equal(0, roomy.moved) -- saving everything fits
        -- Returns, for a machine that transfers `rate` bytes a second, the bytes moved and the nodes recomputed under a
        -- budget of the least bytes that allows offloading, then the nodes recomputed by the plan of least bytes. Where
        -- the link is free, offloading wins; where it is very slow, nothing moves.
        local function moved(rate)
            offloading.machine(rate)
            local least = wane.plan(loss, { policy = policy.least() })
            local plan = assert(wane.plan(loss, { policy = policy.budget(least.reserved, { allow = { 'offload' } }) }))
            return plan.moved, plan.recomputed, least.recomputed
        end
        local slow = moved(1e5)
        local fast, again, least_again = moved(1e13)
        offloading.machine()
        assert.equal(0, slow)
        assert.is_true(fast > 0)
        assert.is_true(again < least_again)
    end)

    it('takes a list of words', function()
        helper.refused(nil, function() policy.budget('1 GiB', { allow = 'offload' }) end, 'allow: expected a list')
        helper.refused(nil, function() policy.budget('1 GiB', { allow = { 'ofload' } }) end, "'offload'")
        local p = policy.budget('1 GiB', { allow = { 'offload' } })
        assert.equal(p, policy.budget(2 ^ 30, { allow = { 'recompute', 'offload' } }))
        assert.are_not.equal(p, policy.budget('1 GiB'))
    end)
end)

describe('when a disk', function()
    local function fresh()
        wane.memory.trim()
        local params, loss = make()
        return params, loss, optim.SGD(params, { lr = 0.1 })
    end

    it('is full, the step is refused before it changes anything', function()
        local params, loss, opt = fresh()
        opt:step(loss())
        local before = programs.bits(params)
        debug('disk_full', 1)
        helper.refused('io', function() opt:step(loss(), { policy = all }) end, 'No space left', 'WANE_OFFLOAD_DIR')
        assert.equal(before, programs.bits(params))
        debug('disk_full', 0)
        opt:step(loss(), { policy = all })
        assert.are_not.equal(before, programs.bits(params))
    end)

    it('is capped, so is the step', function()
        local _, loss, opt = fresh()
        local plan = wane.plan(loss, { policy = all })
        wane.memory.limit_disk(plan.disk - 1)
        helper.refused('oom', function() loss():backward { policy = all } end, 'limit_disk')
        wane.memory.limit_disk(plan.disk)
        loss():backward { policy = all }
        opt:zero_grad()
    end)

    it('is slow, ^C ends the wait for it, nothing has changed and the next step works', function()
        local interrupt = require 'wane.repl.interrupt'
        local params, loss = fresh()
        for _, q in ipairs(params) do wane.eval(q) end
        local before = programs.bits(params)
        local wanted = gradients 'save_all'
        debug('move_delay', 60000) -- a step takes seconds
        interrupt.listen(true)
        os.execute(('{ sleep 0.3; kill -INT %d; } &'):format(ffi.C.getpid()))
        helper.refused('interrupt', function() loss():backward { policy = all } end)
        local late = C.wn_interrupted()
        C.wn_interrupt(0)
        interrupt.listen(false)
        debug('move_delay', 0)
        assert.equal(1, late)
        assert.equal(before, programs.bits(params))
        for _, q in ipairs(params) do assert.is_nil(q.grad) end
        assert.equal(wanted, gradients(all))
    end)
end)

describe('a folder', function()
    it('is where WANE_OFFLOAD_DIR says; one that is not there is an error, one without O_DIRECT is said', function()
        local script = files.write(os.tmpname(), [[
            local wane = require 'wane'
            local m = wane.nn.Linear(64, 64)
            local x = wane.randn(64, 64)
            local ok, why = pcall(function()
                (m(x):relu() ^ 2):sum():backward { policy = function() return 'offload' end }
            end)
            print(ok, ok and wane.memory().disk > 0 or tostring(why))
        ]])
        local function run(folder)
            return (helper.shell(("WANE_OFFLOAD_DIR='%s' build/wane run %s 2>&1"):format(folder, script)))
        end
        assert.is_truthy(run('/var/tmp'):find('true%s+true'))
        local missing = run('/no/such/folder')
        assert.is_truthy(missing:find('/no/such/folder', 1, true), missing)
        assert.is_truthy(run('/dev/shm'):find('true%s+true'))
        os.remove(script)
    end)
end)

-- ---- faults at every index ------------------------------------------------------------------------------------------

local LONG = helper.is_long
local WIDTH, ROWS = 64, 32
local FAULTS = { 'fail_offload', 'fail_fetch', 'disk_full', 'fail_alloc' }
local policies = { disk = all, host = everything 'offload:host' }

local function disarm()
    for _, option in ipairs(FAULTS) do debug(option, 0) end
end

-- A model and the ways to run it.

local function world(make_optimizer)
    wane.manual_seed(11)
    local w = { model = programs.mlp(WIDTH, 2, 0.2), head = nn.Linear(WIDTH, 3) }
    w.params = w.model:parameters()
    for _, q in ipairs(w.head:parameters()) do w.params[#w.params + 1] = q end
    w.opt = (make_optimizer or function(p) return optim.Adam(p, { lr = 0.01 }) end)(w.params)
    local x, labels = wane.eval(wane.randn(ROWS, WIDTH)), {}
    for i = 1, ROWS do labels[i] = i % 3 end
    labels = wane.tensor(labels, { dtype = 'i32' })
    function w.loss() return nn.cross_entropy(w.head(w.model(x)), labels) end
    w.cells = programs.cells(w.params, { w.opt })
    return w
end

local function clipped(params) return optim.AdamW(params, { lr = 0.01, clip_norm = 0.01 }) end

-- Each kind is a row of `kinds`. before: what runs without faults. run: what meets a fault, given a world and a policy.
-- still: nothing moves. saved: all state has a value first, and a file holds it. several: more than one program runs,
-- so gradients may be those of the first ones. retried: the same call once more is how a script goes on. keeps_first: a
-- fault may come after the run has ended, and parameters keep their first values then.
local kinds = {
    { name = 'eval', still = true, run = function(w) return { w.loss():item() } end },
    { name = 'backward', run = function(w, p) w.loss():backward { policy = p } end },
    { name = 'backward that adds', before = function(w, p) w.loss():backward { policy = p } end,
        run = function(w, p) w.loss():backward { policy = p } end },
    { name = 'backward of two', run = function(w, p) wane.backward({ w.loss(), w.loss() }, { policy = p }) end },
    { name = 'micro-batches', saved = true, several = true, run = function(w, p)
        return { wane.accumulate(w.loss, { micro = 2, policy = p }):item() }
    end },
    { name = 'undone', keeps_first = true, run = function(w, p)
        return require 'wane.plan.measure'.gradients(w.loss, p)
    end },
    { name = 'first step', run = function(w, p) w.opt:step(w.loss(), { policy = p }) end },
    { name = 'step', saved = true, run = function(w, p) w.opt:step(w.loss(), { policy = p }) end },
    { name = 'step of two', saved = true, run = function(w, p)
        w.opt:step({ w.loss(), w.loss() }, { policy = p })
    end },
    { name = 'clipped step', saved = true, make = clipped, run = function(w, p)
        w.opt:step(w.loss(), { policy = p })
    end },
    { name = 'clipped update', still = true, saved = true, several = true, retried = true, make = clipped,
        before = function(w, p) w.loss():backward { policy = p } end, run = function(w) w.opt:step() end },
    { name = 'update', still = true, saved = true, before = function(w, p) w.loss():backward { policy = p } end,
        run = function(w) w.opt:step() end },
    { name = 'assign', still = true, saved = true, run = function(w) w.params[1]:assign(w.params[1] * 0.5) end },
}

local function gradient_bits(w)
    local list = {}
    for k, q in ipairs(w.params) do list[k] = q.grad and programs.bytes({ q.grad })[1] or 'none' end
    return table.concat(list, '|')
end

-- Returns the bits of the state, or nil and the words of the error when a part of the state was left half updated.
local function state(w)
    local ok, list = pcall(programs.bytes, w.cells)
    if ok then return table.concat(list, '|') end
    return nil, tostring(list)
end

local function live(device)
    collectgarbage()
    collectgarbage()
    local m = wane.memory(device)
    return m.allocated
end

local function text_of(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for k, v in pairs(value) do parts[#parts + 1] = tostring(k) .. '=' .. text_of(v) end
    table.sort(parts)
    return table.concat(parts, ' ')
end

local function prepare(kind, p)
    local w = world(kind.make)
    if kind.saved then
        wane.eval(unpack(w.cells))
        w.path = os.tmpname()
        w.holder = nn.module('Holder', function(m) for i, q in ipairs(w.params) do m['c' .. i] = q end end)()
        wane.save(w.path, w.holder, { optimizer = w.opt })
    end
    w.counter = C.wn_here().counter
    if kind.before then kind.before(w, p) end
    w.began = C.wn_here().counter
    return w
end

-- Returns what a clean run leaves, and the state after one more step.
local function finish(kind, w, p)
    C.wn_counter_set(w.began)
    local first = text_of(kind.run(w, p)) .. gradient_bits(w)
    w.opt:zero_grad()
    w.opt:step(w.loss(), { policy = p })
    return first, assert(state(w))
end

local function padded(list)
    local bytes = 0
    for _, q in pairs(list) do bytes = bytes + math.ceil(q:numel() * 4 / 256) * 256 end
    return bytes
end

local function padded_gradients(w)
    local list = {}
    for k, q in ipairs(w.params) do list[k] = q.grad end
    return padded(list)
end

local function check_gradients(w, kind, before, why, what)
    local after = gradient_bits(w)
    if kind.several or after == before then return after == before end
    assert.is_nil(after:find('[^none|]'), what .. ': some gradients are neither gone nor as they were')
    assert.is_truthy(why:find('were dropped: run each backward', 1, true), what .. ': ' .. why)
    return false
end

-- Runs `kind` once with the fault armed at an index, and checks what the fault leaves. Returns whether the fault came;
-- where it did not, no larger index meets one either.
local function meet(kind, p, fault, index, device, wanted)
    local what = ('%s, %s %d on %s'):format(kind.name, fault, index, device)
    if fault == 'disk_full' then wane.memory.trim(device) end
    local w = prepare(kind, p)
    local before, held, grads = state(w), live(device) - padded_gradients(w), gradient_bits(w)
    if fault == 'fail_alloc' then debug('forget_plans', 1) end
    debug(fault, index)
    local ok, why = pcall(kind.run, w, p)
    local left = fault == 'fail_alloc' and tonumber(C.wn_debug_get 'fail_alloc') or 0
    disarm()
    local came = not ok or fault == 'fail_alloc' and left == 0
    if not ok then
        assert.is_true(why.code == 'io' or why.code == 'oom', what .. ': ' .. tostring(why))
        local is_kept = check_gradients(w, kind, grads, tostring(why), what)
        local now, words = state(w)
        if before and not now then
            assert.is_truthy(words:find('half updated', 1, true), what .. ': ' .. words)
            wane.load(w.path, w.holder, { optimizer = w.opt })
        else
            assert.is_true(before == now, what .. ': the state is another')
        end
        why = nil -- luacheck: ignore
        local now_held = live(device) - padded_gradients(w)
        if kind.keeps_first and now_held == held + padded(w.params) then held = now_held end
        assert.equal(held, now_held, what .. ': bytes held')
        if not is_kept and not kind.retried then
            w.opt:zero_grad()
            C.wn_counter_set(w.counter)
            if kind.before then kind.before(w, p) end
            C.wn_counter_set(w.began)
        end
        local first, second = finish(kind, w, p)
        assert.is_true(first == wanted[1], what .. ': the next run gives other bits')
        assert.is_true(second == wanted[2], what .. ': the next step gives other bits')
    end
    if w.path then os.remove(w.path) end
    return came
end

local function every_index(kind, p, fault, device, wanted)
    local n, step = 1, fault == 'fail_alloc' and (LONG and 11 or 301) or 1
    while meet(kind, p, fault, n, device, wanted) do
        n = n + step
        if fault == 'disk_full' then break end
        assert.is_true(n < 20000)
    end
    return n > 1
end

describe('a fault of a move', function()
    after_each(function()
        disarm()
        wane.set_device 'cpu'
    end)

    for _, device in ipairs { 'cpu', 'mirror' } do
        for _, kind in ipairs(kinds) do
            it(('leaves a %s on %s as it was, and the next one works'):format(kind.name, device), function()
                wane.set_device(device)
                for _, place in ipairs(LONG and { 'disk', 'host' } or { device == 'cpu' and 'disk' or 'host' }) do
                    local p = policies[place]
                    local wanted = { finish(kind, prepare(kind, p), p) }
                    for _, fault in ipairs(FAULTS) do
                        local came = every_index(kind, p, fault, device, wanted)
                        if fault ~= 'disk_full' then
                            assert.equal(fault == 'fail_alloc' or not kind.still, came, fault)
                        end
                    end
                end
                wane.memory.trim(device)
            end)
        end
    end

    it('that leaves a state half updated is mended by assigning to it', function()
        local p = policies.disk
        local w = prepare({ saved = true })
        local values = {}
        for k, q in ipairs(w.cells) do values[k] = wane.eval(q * 1) end
        local before, n = state(w), 0
        repeat
            n = n + 1
            debug('fail_fetch', n)
            local ok = pcall(function() w.opt:step(w.loss(), { policy = p }) end)
            disarm()
        until ok or not state(w)
        assert.is_nil(state(w))
        assert.has_error(function() wane.eval(w.cells[1] * 2) end)
        for k, q in ipairs(w.cells) do q:assign(values[k]) end
        assert.equal(before, state(w))
        w.opt:step(w.loss(), { policy = p })
        os.remove(w.path)
    end)

    -- The system itself writes a part of a value here, then refuses the rest.
    it('that stops half way in a value leaves everything as it was', function()
        local FILE_SIZE, p = 1, policies.disk
        local kind = { name = 'step', saved = true, run = function(w) w.opt:step(w.loss(), { policy = p }) end }
        local wanted = { finish(kind, prepare(kind, p), p) }
        local limit = ffi.new('struct rlimit')
        assert.equal(0, ffi.C.getrlimit(FILE_SIZE, limit))
        local before = limit.now
        for _, bytes in ipairs { 0, 100, 4096, 6000, 12289 } do
            local w = prepare(kind, p)
            limit.now = bytes
            assert.equal(0, ffi.C.setrlimit(FILE_SIZE, limit))
            local ok, why = pcall(kind.run, w)
            limit.now = before
            assert.equal(0, ffi.C.setrlimit(FILE_SIZE, limit))
            assert.is_false(ok)
            assert.equal('io', why.code)
            local first, second = finish(kind, w, p)
            assert.is_true(first == wanted[1] and second == wanted[2])
            os.remove(w.path)
        end
    end)
end)
