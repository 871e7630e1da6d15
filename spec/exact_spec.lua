-- Checks that predicted bytes are measured bytes, per kind and at every instant, and that what ran is the schedule. The
-- two sides share no code: plan/lower/simulate.c walks the finished schedule, run/watch/measure.c adds up what is
-- issued, and the checked run (wn_debug 'check') looks at the bytes themselves.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'

local nn, optim = wane.nn, wane.optim
local C = binding.C

local policies = { false, 'save_all', 'recompute_all', 'sqrt', 'segments(3)', 'every(2)' }

local function batch()
    return wane.tensor({ 0, 3, 1, 2, 4, 5 }, { dtype = 'i32' })
end

-- Runs a step in every way there is, under one policy; calls check(program, name) after each run.
local function each_run(policy, check)
    wane.manual_seed(7)
    local model = programs.mlp(48, 6, 0.2)
    local head = nn.Linear(48, 6)
    local params = model:parameters()
    for _, q in ipairs(head:parameters()) do params[#params + 1] = q end
    local opt = optim.AdamW(params, { lr = 1e-3 })
    local x = wane.randn(6, 48, { requires_grad = true })
    local function loss() return nn.cross_entropy(head(model(x)), batch()) end
    policy = policy or nil
    for step = 1, 2 do
        check(programs.run { mode = 'backward', roots = { loss() }, policy = policy }, 'backward ' .. step)
    end
    opt:zero_grad()
    check(programs.run { mode = 'backward', roots = { loss() }, policy = policy }, 'backward after zero_grad')
    local l1, l2 = loss(), loss()
    check(programs.run { mode = 'backward', roots = { l1, l2 }, policy = policy }, 'micro-batches')
    check(programs.run { mode = 'eval', roots = { model(x) } }, 'eval')
end

describe('predicted and measured', function()
    for _, policy in ipairs(policies) do
        it('are equal to the byte, per kind, at every instant, under ' .. tostring(policy), function()
            each_run(policy, programs.same)
        end)
    end

    it('are equal for opt:step(loss), opt:step() and micro-batches given to step', function()
        local seen = {}
        local scoped = require 'wane.scoped'
        local model = programs.mlp(32, 4, 0)
        local opt = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
        local x = wane.randn(5, 32):retain()
        scoped('listen', function(p) seen[#seen + 1] = programs.read(p) end, function()
            opt:step(model(x):sum())
            opt:step { model(x):sum(), model(x):mean() }
            opt:zero_grad()
            model(x):sum():backward()
            opt:step()
        end)
        assert.is_true(#seen >= 4)
        for i, p in ipairs(seen) do programs.same(p, p.request.mode .. ' ' .. i) end
    end)

    it('are equal on meta, where nothing has bytes', function()
        local scoped = require 'wane.scoped'
        local ran = 0
        wane.set_device 'meta'
        local ok, why = pcall(function()
            local model = programs.mlp(512, 4, 0.1)
            local opt = optim.Adam(model:parameters(), { lr = 0.1 })
            local x = wane.randn(64, 512)
            scoped('listen', function(p)
                ran = ran + 1
                programs.same(programs.read(p), 'meta')
            end, function() opt:step(model(x):sum()) end)
        end)
        wane.set_device(helper.device)
        assert(ok, why)
        assert.equal(1, ran)
    end)

    it('are what the device was asked for: the ledger grows by reserved, no more', function()
        wane.manual_seed(2)
        for _, fused in ipairs { true, false } do
            collectgarbage()
            collectgarbage()
            wane.memory.trim()
            local before = wane.memory().reserved
            local model = programs.mlp(64, 5, 0.1)
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local x = wane.randn(8, 64, { requires_grad = true })
            for step = 1, 3 do -- x keeps its gradient, so that from the second step on one slab is partly allocated
                local p
                wane.memory.trim()
                require('wane.scoped')('listen', function(q)
                    if q.request.mode ~= 'update' then p = programs.read(q) end
                end, function()
                    if fused then return opt:step(model(x):sum()) end
                    opt:zero_grad()
                    model(x):sum():backward()
                end)
                assert.equal(before + p.predicted.reserved, wane.memory().reserved, 'step ' .. step)
            end
        end
    end)

    it('leave little slack: reserved - peak <= 2 % of the activations', function()
        wane.manual_seed(1)
        for _, policy in ipairs { 'save_all', 'every(4)' } do
            local model = programs.mlp(256, 20, 0)
            local x = wane.randn(32, 256, { requires_grad = true })
            for _ = 1, 2 do
                model:zero_grad()
                local p = programs.run { mode = 'backward', roots = { model(x):sum() }, policy = policy }
                assert.is_true(p.predicted.activations > 0)
                assert.is_true(p.predicted.reserved - p.predicted.peak <= 0.02 * p.predicted.activations,
                    policy .. ': slack ' .. p.predicted.reserved - p.predicted.peak)
            end
        end
    end)

    it('reach the floor of a chain: parameters, gradients, input, its gradient and one activation', function()
        local width, batch_size, depth = 64, 32, 8
        local layers = {}
        for _ = 1, depth do
            layers[#layers + 1] = nn.Linear(width, width)
            layers[#layers + 1] = nn.ReLU()
        end
        local model = nn.Sequential(layers)
        local x = wane.randn(batch_size, width, { requires_grad = true })
        local p = programs.run { mode = 'backward', roots = { model(x):sum() } }
        local weight, bias, activation = width * width * 4, width * 4, batch_size * width * 4
        assert.equal(2 * depth * (weight + bias) + 3 * activation, p.measured.peak)
        assert.equal(p.measured.peak, p.measured.reserved)
        -- Activations take the places of later gradients: the arena holds one of them, not eight.
        assert.equal(activation, p.predicted.arena)
        assert.is_true(p.predicted.lent > 0)
    end)
end)

describe('the checked run', function()
    before_each(function() C.wn_debug('check', 1) C.wn_debug('poison', 1) end)
    after_each(function() C.wn_debug('check', 0) C.wn_debug('poison', 0) end)

    for _, policy in ipairs(policies) do
        it('finds no byte written outside its place, and nothing above reserved, under ' .. tostring(policy), function()
            each_run(policy, function(p, what)
                assert.is_true(p.measured.high_water <= p.predicted.arena, what)
                assert.is_true(p.predicted.arena == 0 or p.measured.high_water > 0, what)
            end)
        end)
    end
end)

describe('the executed trace', function()
    before_each(function() C.wn_debug('trace', 1) end)
    after_each(function() C.wn_debug('trace', 0) end)

    it('is the schedule, instruction by instruction', function()
        for _, policy in ipairs { 'save_all', 'recompute_all' } do
            each_run(policy, function(p, what)
                local n = C.wn_step_count(p.handle)
                assert.is_true(n > 0)
                for i = 0, n - 1 do assert.equal(i, C.wn_trace(p.handle, i), what) end
                assert.equal(-1, C.wn_trace(p.handle, n), what)
            end)
        end
    end)
end)

describe('a free', function()
    it('follows the last use at once', function()
        local p = programs.run { mode = 'backward', roots = { programs.mlp(24, 5, 0.1)(wane.randn(4, 24)):sum() },
            policy = 'save_all' }
        local steps, frees = programs.schedule(p), 0
        local info = binding.new 'struct wn_node_info'
        local function source(node) -- a reshape is its input's bytes
            repeat
                binding.check(C.wn_node(p.handle, node, info))
                node = info.alias_of >= 0 and info.alias_of or node
            until info.alias_of < 0
            return node
        end
        local place, used_at = {}, {} -- of a node's value; last step that touches a place
        for i, step in ipairs(steps) do
            local here = step.space .. '/' .. step.offset
            if step.what == 'run' then
                for k = 0, 2 do
                    local input = C.wn_node_input(p.handle, step.node, k)
                    input = input >= 0 and source(input)
                    if place[input] then used_at[place[input]] = i end
                end
                place[step.node] = here
                used_at[here] = i
            elseif step.what == 'read' then
                used_at[here] = i
            else
                frees = frees + 1
                for k = used_at[here] + 1, i - 1 do
                    assert.is_not.equal('run', steps[k].what, ('step %d is freed late, at %d'):format(used_at[here], i))
                end
            end
        end
        assert.is_true(frees > 5)
    end)

    it('is not needed where an op overwrites its dying input', function()
        local p = programs.run { mode = 'eval', roots = { wane.randn(4, 24):softmax(-1):log_softmax(-1):relu():sum() } }
        local over = 0
        for _, step in ipairs(programs.schedule(p)) do
            if step.what == 'run' and step.inplace >= 0 then over = over + 1 end
        end
        assert.equal(3, over)
    end)
end)

describe('recomputation', function()
    it('happens where the words say, once a value, right before its first reader', function()
        wane.manual_seed(3)
        local model = programs.mlp(16, 6, 0)
        local x = wane.randn(4, 16):retain()
        local p = programs.run { mode = 'backward', roots = { model(x):sum() }, policy = 'segments(3)' }
        -- 12 children in 3 segments are 4 each, and the last segment is not checkpointed. A segment's first Linear and
        -- activation feed its second Linear; the second activation is the boundary and stays, the second Linear's
        -- output is what GELU's backward reads. Linear and ReLU are one instruction: 2 of 3 are computed again, in each
        -- of two segments.
        assert.equal(4, p.predicted.recomputed)
        local again, first_backward = {}, nil
        for i, step in ipairs(programs.schedule(p)) do
            if step.what == 'run' and step.phase == 2 then first_backward = first_backward or i end
            if step.what == 'run' and step.phase == 1 then
                again[step.node] = (again[step.node] or 0) + 1
                assert.is_true(first_backward ~= nil and i > first_backward)
            end
        end
        local count = 0
        for _, times in pairs(again) do
            assert.equal(1, times)
            count = count + 1
        end
        assert.equal(4, count)
    end)

    it('lowers the peak of a deep narrow step, and save_all recomputes nothing', function()
        local peaks = {}
        for _, policy in ipairs { 'save_all', 'every(4)' } do
            wane.manual_seed(3)
            local model = programs.mlp(16, 16, 0)
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local x = wane.randn(512, 16):retain()
            local p
            require('wane.scoped')('listen', function(q) p = programs.read(q) end, function()
                opt:step(model(x):sum(), { policy = policy })
            end)
            peaks[policy] = p.measured.peak
            if policy == 'save_all' then assert.equal(0, p.predicted.recomputed) end
        end
        assert.is_true(peaks['every(4)'] < 0.6 * peaks.save_all,
            peaks['every(4)'] .. ' against ' .. peaks.save_all)
    end)
end)
