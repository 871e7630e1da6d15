-- Checks that the verifier refuses what is illegal: for each rule of plan/lower/verify.c a schedule is broken through
-- the one function that can (wn_test_mutate), and the message must name the rule. A broken plan must be forgotten
-- afterwards.
local wane = require 'wane'
local binding = require 'wane.ffi'
local program = require 'wane.program'
local programs = require 'spec.support.programs'
local offloading = require 'spec.support.offloading'

local C = binding.C
local nn, optim = wane.nn, wane.optim

local function open(mode, policy)
    wane.manual_seed(5)
    local model = programs.mlp(24, 4, 0.1)
    local opt = optim.SGD(model:parameters(), { lr = 0.1 })
    local x = wane.randn(6, 24, { requires_grad = true })
    local loss = model(x):sum()
    local p
    if mode == 'step' then
        local function on_request(request)
            p = program.open(request):plan()
            return p
        end
        program.planning(function() opt:step(loss, { policy = policy }) end, on_request)
    else
        p = program.open({ mode = mode, roots = { loss }, policy = policy }):plan()
    end
    return p, programs.schedule(p)
end

local function find(schedule, wanted)
    for i, step in ipairs(schedule) do
        if wanted(step, i) then return i - 1, step end
    end
    error('the schedule has no such step')
end

local function tamper(p, step, field, value)
    binding.check(C.wn_test_mutate(p.handle, step, field, value))
end

-- Checks that a plan is refused, by a rule where one is given; returns the words.
local function refused(p, rule, what)
    local code = C.wn_verify(p.handle)
    local words = binding.text(C.wn_message())
    assert.equal('illegal', binding.text(C.wn_status_name(code)), what)
    if rule then assert.is_truthy(words:find("rule '" .. rule .. "'", 1, true), (what or '') .. words) end
    assert.is_truthy(words:find('instruction %d+'), words)
    return words
end

local function runs(op)
    return function(step) return step.what == 'run' and step.op:find(op, 1, true) end
end

-- Edits of a schedule: { what is refused, the rule, mode of the plan, function(schedule) -> step, field, value }.
local EDITS = {
    { 'a value that is used before it is computed', 'read', 'backward', function(s)
        local i = find(s, function(step, k)
            return step.what == 'run' and step.inplace < 0 and k > 3 and s[k + 1].what == 'run'
        end)
        return i, 'swap', i + 1
    end },
    { 'a value that is used after it is freed', 'read', 'backward', function(s)
        local free = find(s, function(step, k) return step.what == 'free' and s[k - 1].what == 'run' end)
        return free, 'swap', free - 1
    end },
    { 'another value than the graph names', 'read', 'backward', function(s)
        return find(s, runs 'relu_grad'), 'input', select(2, find(s, runs 'linear')).copy
    end },
    { 'two live allocations on the same bytes', nil, 'eval', function(s)
        local i = find(s, function(step)
            return step.what == 'run' and step.bytes > 0 and step.offset > 0 and step.space == 0
        end)
        local j, at = find(s, function(step) return step.what == 'run' and step.space == 0 end)
        assert.is_true(j < i)
        return i, 'offset', at.offset
    end },
    { 'an op that may not overwrite its input', 'inplace', 'backward', function(s)
        return find(s, runs 'linear'), 'inplace', 0
    end },
    { 'an effect that is issued twice', 'effect', 'step', function(s)
        local first = find(s, runs 'sgd')
        return first + 1, 'repeat', first -- before its gradient is freed
    end },
    { 'an effect that writes another cell', 'effect', 'step', function(s) return find(s, runs 'sgd'), 'cell', 0 end },
    -- The first layer reads the input, which lives for ever, and its weight: issued once more at the very end, after
    -- the weight was updated, only the weight is wrong.
    { 'a parameter that is updated before its last reader', 'stale', 'step', function(s)
        local last
        for k, step in ipairs(s) do last = runs 'sgd'(step) and k or last end
        assert.is_true(last < #s)
        return last, 'repeat', find(s, runs 'linear')
    end },
    { 'what is freed twice', nil, 'backward', function(s)
        local first = find(s, function(step) return step.what == 'free' end)
        return find(s, function(step, k) return step.what == 'free' and k - 1 > first end), 'repeat', first
    end },
    -- A second read of the loss in the place of the last free: legal but for what stays behind.
    { 'what is never freed', nil, 'backward', function(s)
        local last
        for i, step in ipairs(s) do last = step.what == 'free' and i - 1 or last end
        return last, 'repeat', find(s, function(step) return step.what == 'read' end)
    end },
}

describe('the verifier', function()
    after_each(function() C.wn_debug('forget_plans', 1) end)

    it('passes what lowering makes', function()
        for _, mode in ipairs { 'backward', 'step' } do
            for _, policy in ipairs { 'save_all', 'recompute_all' } do
                local p = open(mode, policy)
                assert.equal(0, C.wn_verify(p.handle))
            end
        end
    end)

    for _, edit in ipairs(EDITS) do
        local what, rule, mode, make = unpack(edit, 1, 4)
        it(('refuses%s %s'):format(rule and ' by ' .. rule or '', what), function()
            local p, s = open(mode)
            tamper(p, make(s))
            refused(p, rule)
        end)
    end

    it('refuses by bounds an allocation outside its space, or off the granule', function()
        for _, shift in ipairs { 2 ^ 40, 128, -2 ^ 20 } do
            local p, s = open 'eval'
            local top = 0
            for _, step in ipairs(s) do
                if step.space == 0 then top = math.max(top, step.offset + step.bytes) end
            end
            local i, at = find(s, function(step)
                return step.what == 'run' and step.bytes > 0 and step.space == 0
                    and step.offset + step.bytes + 128 <= top
            end)
            tamper(p, i, 'offset', at.offset + shift)
            refused(p, 'bounds')
            C.wn_debug('forget_plans', 1)
        end
    end)

    it('passes a recomputation that issues an integer result once', function()
        wane.manual_seed(5)
        local x = wane.randn(4, 8, { requires_grad = true })
        local y = wane.checkpoint(function(v)
            local mask = v:gt(wane.zeros(4, 8))
            return wane.where(mask, v * v, v):exp():tanh()
        end, x)
        local p = program.open({ mode = 'backward', roots = { (y * y):sum() } }):plan()
        local issued, again = 0, 0
        for _, step in ipairs(programs.schedule(p)) do
            if step.what == 'run' and step.op == 'gt' then issued = issued + 1 end
            if step.what == 'run' and step.phase == 1 then again = again + 1 end
        end
        assert.equal(1, issued)
        assert.is_true(again > 0)
        assert.equal(0, C.wn_verify(p.handle))
    end)

    it('refuses by bounds a number that points outside its table, at every instruction', function()
        local p, s = open('step', 'recompute_all')
        local outside = { 1000000, 2147483647, -2147483648, 0x7fffffffffffff00LL, -0x7fffffffffffff00LL }
        for step = 0, #s - 1 do
            for _, value in ipairs(outside) do
                for _, field in ipairs { 'inplace', 'input', 'offset', 'cell' } do
                    if not (tonumber(value) > 2 ^ 32 or tonumber(value) < -2 ^ 32) or field == 'offset' then
                        local code = C.wn_verify_edited(p.handle, step, field, value)
                        assert.is_true(code ~= 0, ('%s of step %d: %s'):format(field, step, tostring(value)))
                    end
                end
            end
        end
        assert.equal(0, C.wn_verify(p.handle))
    end)

    it('refuses a request for a field it does not know, and says so', function()
        local p = open 'backward'
        assert.is_true(C.wn_test_mutate(p.handle, 0, 'colour', 1) ~= 0)
        assert.is_truthy(binding.text(C.wn_message()):find('colour', 1, true))
    end)
end)

describe('an update in the same plan', function()
    it('waits for the last reader of the value it replaces', function()
        -- d(w) is known before d(v) is computed, which reads w.
        local w, v = nn.Parameter(wane.tensor { 2, 3 }), nn.Parameter(wane.tensor { 5, 7 })
        local opt = optim.SGD({ w, v }, { lr = 1 })
        opt:step((w * (v * wane.tensor { 1, 10 })):sum())
        assert.same({ 2 - 5, 3 - 70 }, w:totable())
        assert.same({ 5 - 2, 7 - 30 }, v:totable())
    end)
end)

-- ---- waits ---------------------------------------------------------------------------------------------------------
-- Checks waits of transfers that run beside kernels: the verifier derives from the schedule what each wait protects,
-- and refuses a schedule without it.
local policy = wane.policy
local everything, make, schedule_of = offloading.everything, offloading.make, programs.schedule
local all = everything 'offload'

describe('waits', function()
    after_each(function() C.wn_debug('forget_plans', 1) end)

    local function open_moves(p, mode)
        local params, loss = make()
        local got
        if mode == 'step' then
            local opt = optim.SGD(params, { lr = 0.1 })
            program.planning(function() opt:step(loss(), { policy = p }) end, function(request)
                got = program.open(request):plan()
                return got
            end)
        else
            got = program.open({ mode = 'backward', roots = { loss() }, policy = p }):plan()
        end
        return got, schedule_of(got)
    end
    local function find_move(list, what, from)
        for i = from or 1, #list do
            if list[i].what == what then return i - 1, list[i] end
        end
    end

    it('are needed, each one of them', function()
        local policies = { all, everything 'offload:host', policy.by_op { relu = 'offload', dropout = 'recompute' },
            policy.compose(policy.by_op { linear = 'offload' }, 'segments(2)') }
        local dropped = 0
        for _, p in ipairs(policies) do
            for _, mode in ipairs { 'backward', 'step' } do
                local _, list = open_moves(p, mode)
                C.wn_debug('forget_plans', 1)
                for i, step in ipairs(list) do
                    if step.what == 'wait' then
                        local fresh = open_moves(p, mode)
                        assert.equal(0, C.wn_verify(fresh.handle))
                        binding.check(C.wn_test_mutate(fresh.handle, i - 1, 'drop', 0))
                        refused(fresh, 'wait', ('wait %d of move %d'):format(i, step.move))
                        dropped = dropped + 1
                        C.wn_debug('forget_plans', 1)
                    end
                end
            end
        end
        assert.is_true(dropped > 60, dropped)
    end)

    it('may not be for another move, nor twice', function()
        local p, list = open_moves(all)
        local wait, step = find_move(list, 'wait')
        binding.check(C.wn_test_mutate(p.handle, wait, 'move', step.move + 1))
        refused(p, 'wait', 'another move')
        C.wn_debug('forget_plans', 1)
        p, list = open_moves(all)
        wait = find_move(list, 'wait')
        binding.check(C.wn_test_mutate(p.handle, wait + 1, 'repeat', wait))
        refused(p, 'wait', 'twice')
    end)

    it('cannot be moved behind what they protect', function()
        local _, list = open_moves(all)
        C.wn_debug('forget_plans', 1)
        for i, step in ipairs(list) do
            if step.what == 'wait' and list[i + 1].what == 'free' then
                local p = open_moves(all)
                binding.check(C.wn_test_mutate(p.handle, i - 1, 'swap', i))
                refused(p, 'wait', 'freed early')
                C.wn_debug('forget_plans', 1)
            end
        end
    end)

    it('come before a fetch of what is still being written', function()
        local _, list = open_moves(all)
        C.wn_debug('forget_plans', 1)
        local _, offload = find_move(list, 'offload')
        local wait, early = find_move(list, 'wait'), 0
        while list[wait + 1].move ~= offload.move do wait = find_move(list, 'wait', wait + 2) end
        for i = wait + 2, #list do
            if list[i].what == 'fetch' then
                local p = open_moves(all)
                binding.check(C.wn_test_mutate(p.handle, i - 1, 'swap', wait))
                if refused(p, nil, 'a fetch too early'):find('is moved before it has arrived', 1, true) then
                    early = early + 1
                end
                C.wn_debug('forget_plans', 1)
            end
        end
        assert.is_true(early > 0)
    end)

    it('do not help two values in one place, or a value that starts off a page', function()
        local p, list = open_moves(all)
        local first, one = find_move(list, 'offload')
        local second, two = find_move(list, 'offload', first + 2)
        assert.is_true(two.offset ~= one.offset)
        binding.check(C.wn_test_mutate(p.handle, second, 'offset', one.offset))
        refused(p, 'overlap', 'one place in the offload buffer')
        C.wn_debug('forget_plans', 1)
        p, list = open_moves(all)
        local fetch, step = find_move(list, 'fetch')
        binding.check(C.wn_test_mutate(p.handle, fetch, 'offset', step.offset + 256))
        refused(p, nil, 'off a page')
        C.wn_debug('forget_plans', 1)
        p, list = open_moves(all)
        first, one = find_move(list, 'offload')
        binding.check(C.wn_test_mutate(p.handle, first, 'offset', one.offset + 2 ^ 40))
        refused(p, 'bounds', 'outside the offload buffer')
    end)

    it('are for one start each', function()
        local p, list = open_moves(all)
        local fetch = find_move(list, 'fetch')
        binding.check(C.wn_test_mutate(p.handle, fetch, 'move', list[find_move(list, 'offload') + 1].move))
        refused(p, 'wait', 'a number taken')
    end)
end)

-- ---- exchanges -----------------------------------------------------------------------------------------------------

describe('exchanges among ranks', function()
    after_each(function() C.wn_debug('forget_plans', 1) end)

    -- Returns the planned last backward of one rank of one, and its schedule.
    local function open_exchanges()
        wane.manual_seed(5)
        local loss = programs.mlp(24, 4, 0.1)(wane.randn(6, 24)):sum()
        local p = program.open({ mode = 'backward', roots = { loss }, given = 1, is_last = true })
        p:plan()
        assert.equal(0, C.wn_verify(p.handle))
        return p, schedule_of(p)
    end
    local function all_of(list, what, op)
        local found = {}
        for i, step in ipairs(list) do
            if step.what == what and step.op == op then found[#found + 1] = i - 1 end
        end
        return found
    end

    -- Opens the schedule anew and edits it, which the rule must refuse.
    local function refuse(rule, what, step, field, value)
        local p = open_exchanges()
        tamper(p, step, field, value)
        local words = refused(p, rule, what)
        C.wn_debug('forget_plans', 1)
        return words:find("rule 'ranks'", 1, true) and 1 or 0
    end

    it('are each waited for, and start and are summed in their places', function()
        local p, list = open_exchanges()
        C.wn_debug('forget_plans', 1)
        assert.is_truthy(p)
        local started, states = all_of(list, 'exchange', 'all_to_all'), all_of(list, 'exchange', 'refresh')
        local waits = all_of(list, 'wait', 'all_to_all')
        assert.is_true(#started == 8 and #states == 8 and #waits == 8)
        local swapped = 0 -- into another order, where nothing else is wrong
        for k, wait in ipairs(waits) do
            refuse('wait', 'dropped', wait, 'drop', 0)
            refuse(nil, 'a sum before its wait', wait, 'swap', all_of(list, 'run', 'ordered_sum')[k])
            if k > 1 then swapped = swapped + refuse(nil, 'another order', started[k], 'swap', started[k - 1]) end
        end
        for _, wait in ipairs(all_of(list, 'wait', 'refresh')) do refuse('wait', 'dropped', wait, 'drop', 0) end
        for k, state in ipairs(states) do
            refuse('ranks', 'refreshed before it is summed', state, 'swap', all_of(list, 'run', 'ordered_sum')[k])
            refuse('wait', 'not refreshed', state, 'drop', 0)
            if k > 1 then swapped = swapped + refuse(nil, 'states in another order', state, 'swap', states[k - 1]) end
        end
        assert.is_true(swapped >= 2, swapped)
    end)

    it('of states that are gathered from ranks are each waited for, before what reads them', function()
        local function open_gathers(given)
            wane.manual_seed(5)
            local net, out = programs.mlp(24, 4, 0.1), binding.new 'int32_t[1]'
            for _, p in ipairs(net:parameters()) do
                binding.check(C.wn_dist_slice(p.id, 0, out))
                binding.check(C.wn_dist_shard(p.id, C.WN_DIST_RANGE))
            end
            local p = program.open({ mode = 'backward', roots = { net(wane.randn(6, 24)):sum() }, given = 1,
                is_last = true, policy = given }):plan()
            assert.equal(0, C.wn_verify(p.handle))
            return p, schedule_of(p)
        end
        for _, saved in ipairs { false, policy.by_op { all_gather = 'save' } } do
            local _, list = open_gathers(saved or nil)
            C.wn_debug('forget_plans', 1)
            local starts, waits = all_of(list, 'exchange', 'all_gather'), all_of(list, 'wait', 'all_gather')
            assert.is_true(#waits == #starts and (#starts > 8) == not saved and #starts >= 8, #starts)
            for k, wait in ipairs(waits) do
                for what, edit in pairs { ['dropped'] = { wait, 'drop', 0 }, ['before its start'] = { wait, 'swap',
                    starts[k] } } do
                    local p = open_gathers(saved or nil)
                    tamper(p, unpack(edit))
                    refused(p, nil, what)
                    C.wn_debug('forget_plans', 1)
                end
            end
        end
    end)
end)

-- ---- packed values -------------------------------------------------------------------------------------------------

describe('packed values', function()
    after_each(function() C.wn_debug('forget_plans', 1) end)

    local packed = policy.by_op { relu = 'compress:bf16', linear = 'compress:bf16', gelu = 'compress:bf16' }

    -- Returns a planned backward of values that are packed, and its schedule.
    local function open_packed()
        local p = program.open({ mode = 'backward', roots = { select(2, make())() }, policy = packed }):plan()
        assert.equal(0, C.wn_verify(p.handle))
        return p, programs.schedule(p)
    end
    local function at(s, what) return find(s, function(step) return step.what == what end) end

    -- Edits as above, of a schedule that packs.
    for what, edit in pairs {
        ['are not read as values'] = { 'action', function(s)
            return find(s, runs 'relu_grad'), 'input', select(2, at(s, 'pack')).copy
        end },
        ['alone are unpacked'] = { 'action', function(s)
            return at(s, 'unpack'), 'input', select(2, at(s, 'run')).copy
        end },
        ['are packed before they are unpacked'] = { 'action', function(s)
            return at(s, 'pack'), 'swap', (at(s, 'unpack'))
        end },
        ['are packed before their value is gone'] = { 'action', function(s)
            local pack = at(s, 'pack')
            assert.equal('free', s[pack + 2].what)
            return pack, 'swap', pack + 1
        end },
        ['are not unpacked over a value'] = { 'inplace', function(s) return at(s, 'unpack'), 'inplace', 0 end },
    } do
        it(what, function()
            local p, s = open_packed()
            tamper(p, edit[2](s))
            refused(p, edit[1])
        end)
    end

    it('are not read as values where they are signs', function()
        wane.manual_seed(5)
        local model, x = programs.mlp(48, 5, 0.2), wane.eval(wane.randn(64, 48))
        local p = program.open({ mode = 'backward', roots = { model(x):sum() },
            policy = policy.by_op { relu = 'compress:bits' } }):plan()
        local s = programs.schedule(p)
        assert.equal(0, C.wn_verify(p.handle))
        local first, unpacked = at(s, 'unpack')
        local product = find(s, function(step, k) return k > first and step.what == 'run' and step.op == 'matmul' end)
        tamper(p, product, 'input', unpacked.copy)
        refused(p, 'action')
    end)
end)
