-- Makes transfers fail: every kind of program, every kind of fault, at every index. The error must be in words, the
-- bytes held must be what they were or be released, and the next step must give the bits of a run that never failed.
require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local offloading = require 'spec.support.offloading'
local programs = require 'spec.support.programs'
local ffi = require 'ffi'

local nn, optim = wane.nn, wane.optim
local C = binding.C
local LONG = os.getenv('WANE_SPEC_LONG') == '1'
local WIDTH, ROWS = 64, 32
local FAULTS = { 'fail_offload', 'fail_fetch', 'disk_full', 'fail_alloc' }
local policies = { disk = offloading.everything 'offload', host = offloading.everything 'offload:host' }

pcall(ffi.cdef, [[struct rlimit { unsigned long now, most; };
    int getrlimit(int what, struct rlimit *out);
    int setrlimit(int what, const struct rlimit *limit);]])

local function debug(option, value) binding.check(C.wn_debug(option, value)) end

local function disarm()
    for _, option in ipairs(FAULTS) do debug(option, 0) end
end

-- ---- a model and the ways to run it ------------------------------------------------------------------------------

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

-- ---- what can be seen of it --------------------------------------------------------------------------------------

local function gradients(w)
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
    w.counter = C.wn_counter()
    if kind.before then kind.before(w, p) end
    w.began = C.wn_counter()
    return w
end

-- Returns what a clean run leaves, and the state after one more step.
local function finish(kind, w, p)
    C.wn_counter_set(w.began)
    local first = text_of(kind.run(w, p)) .. gradients(w)
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
    local after = gradients(w)
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
    local before, held, grads = state(w), live(device) - padded_gradients(w), gradients(w)
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
