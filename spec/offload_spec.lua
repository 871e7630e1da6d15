-- Checks values that wait in an offload buffer, on disk or in host memory, between forward and backward: the bits must
-- be the same, the bytes the predicted ones, and every wait must be needed. A disk that is full or fails must end the
-- step with an error and change nothing.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local files = require 'spec.support.files'
local offloading = require 'spec.support.offloading'
local programs = require 'spec.support.programs'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local C = binding.C
local ffi = require 'ffi'
pcall(ffi.cdef, 'int getpid(void);')

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
            local p = binding.new('struct wn_profile')
            p.f64, p.f32, p.bf16, p.bytes, p.launch = 25e9, 50e9, 50e9, 20e9, 1e-6
            for k = 0, 1 do p.out[k], p['in'][k] = rate, rate end
            binding.id(C.wn_target_set('this machine', p))
            local least = wane.plan(loss, { policy = policy.least() })
            local plan = assert(wane.plan(loss, { policy = policy.budget(least.reserved, { allow = { 'offload' } }) }))
            return plan.moved, plan.recomputed, least.recomputed
        end
        local slow = moved(1e5)
        local fast, again, least_again = moved(1e13)
        local default = binding.new('struct wn_profile')
        default.f64, default.f32, default.bf16, default.bytes, default.launch = 25e9, 50e9, 50e9, 20e9, 1e-6
        for k = 0, 1 do default.out[k], default['in'][k] = k == 0 and 8e9 or 1.5e9, k == 0 and 8e9 or 1.5e9 end
        binding.id(C.wn_target_set('this machine', default))
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
