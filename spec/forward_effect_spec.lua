-- Checks effects that hang on values of the forward (runtime/graph/forward_effect.c): a buffer that follows a statistic
-- changes once for each forward that a program computes, by the numbers of that forward, whatever is recomputed,
-- planned or measured; before the first update or not at all; and in the order of recording.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local op = require 'wane.tensor.op'
local programs = require 'spec.support.programs'
local gradcheck = require 'spec.support.gradcheck'

local C = binding.C
local nn, optim = wane.nn, wane.optim
local WIDTH, ROWS = 64, 32
local MOMENTUM = 0.25

-- Lets a buffer follow a value of its type.
local function follow(buffer, value)
    local at = op.attrs()
    at.f[0] = MOMENTUM
    binding.check(C.wn_effect(value.id, op.id.running_mean, buffer.id, at))
end

-- A layer whose buffer follows the mean of what it computes, which its result reads as well.
local Centre = nn.module('Centre', function(self)
    self.weight = nn.Parameter(wane.randn(WIDTH, WIDTH) * 0.3)
    self.running = nn.Buffer(wane.zeros(WIDTH))
end)

function Centre:forward(x)
    local h = x:matmul(self.weight):tanh()
    local mean = h:mean(1)
    if self.training then follow(self.running, mean) end
    return h - mean
end

local function world(layers)
    wane.manual_seed(3)
    local w = { layers = {} }
    for k = 1, layers or 3 do w.layers[k] = Centre() end
    w.model = nn.Sequential(w.layers)
    w.opt = optim.SGD(w.model:parameters(), { lr = 0.1 })
    w.x = wane.randn(ROWS, WIDTH):retain()
    wane.eval(w.x)
    function w.loss() return (w.model(w.x) ^ 2):mean() end
    function w.state()
        local out = {}
        for k, b in ipairs(w.model:buffers()) do out[k] = gradcheck.bytes(b) end
        return table.concat(out, '|')
    end
    function w.all()
        local out = { w.state() }
        for _, p in ipairs(w.model:parameters()) do out[#out + 1] = gradcheck.bytes(p) end
        return table.concat(out, '|')
    end
    return w
end

-- Returns the buffers that follow each layer's mean, and what they are after one forward, by separate programs.
local function after_one(w)
    local h, out = w.x, {}
    for k, layer in ipairs(w.layers) do
        local made = h:matmul(layer.weight):tanh()
        local mean = made:mean(1)
        local next = layer.running:to 'f64' * (1 - MOMENTUM) + mean:to 'f64' * MOMENTUM
        out[k] = gradcheck.bytes(wane.eval(next:to 'f32'))
        h = made - mean
    end
    return table.concat(out, '|')
end

local POLICIES = { 'save_all', 'recompute_all', 'sqrt', 'offload' }

describe('an effect of a forward value', function()
    it('is carried out once by a backward under every policy, with one set of bits', function()
        local plain
        for _, policy in ipairs(POLICIES) do
            local w = world()
            local want = after_one(w)
            w.loss():backward { policy = policy }
            assert(w.state() == want, policy .. ': other statistics than those of one forward')
            w.opt:step()
            plain = plain or w.all()
            assert(w.all() == plain, policy .. ': other bits than save_all')
        end
    end)

    it('is carried out once whoever computes the value first', function()
        local w = world()
        local want = after_one(w)
        local loss = w.loss()
        loss:item()
        assert(w.state() == want, 'reading the loss computes the forward')
        loss:backward()
        assert(w.state() == want, 'the backward computes it again')
        local y = w.model(w.x)
        local once = after_one(w)
        local first, second = y:sum(), (y * y):sum()
        first:backward { again = true }
        second:backward()
        assert(w.state() == once, 'two backward passes share a forward')
        local again = w.loss()
        local twice = after_one(w)
        again:backward { again = true }
        again:backward()
        assert(w.state() == twice, 'the second of two equal passes carries it out again')
    end)

    it('is carried out right before the first update, and at the end where there is none', function()
        local w = world()
        local function effects(p)
            local out, first_update = {}, nil
            for k, step in ipairs(programs.schedule(p)) do
                if step.what == 'run' and step.op == 'running_mean' then out[#out + 1] = k end
                if step.what == 'run' and step.op:find 'sgd' then first_update = first_update or k end
            end
            return out, first_update, #programs.schedule(p)
        end
        local seen = {}
        require 'wane.scoped' ('listen', function(p) seen[#seen + 1] = p end, function()
            w.opt:step(w.loss())
            w.loss():backward()
        end)
        local at, update = effects(seen[1])
        assert.equal(3, #at)
        for k = 1, 3 do assert(at[k] < update, 'an effect after an update') end
        assert(update - at[1] <= 3 + 3, 'effects wait for the first update')
        local alone, none, n = effects(seen[2])
        assert.equal(3, #alone)
        assert.is_nil(none)
        assert(alone[1] > n / 2, 'effects come at the end of a backward')
    end)

    it('is carried out by a measurement that trains', function()
        local w = world()
        w.loss():item()
        local want = after_one(w)
        assert(wane.measure(w.loss, { optimizer = w.opt, steps = 1, warmup = 0 }).exact)
        assert(w.state() == want, 'a training measurement is a forward')
    end)

    it('changes nothing when the run stops or fails before an update', function()
        local w = world()
        w.loss():item()
        w.model:zero_grad()
        local before = w.all()
        C.wn_interrupt(1)
        local function step() w.opt:step(w.loss()) end
        helper.refused('interrupt', step)
        C.wn_interrupt(0)
        assert(w.all() == before, 'an interrupted step changed a state')
        local k = 1
        while not programs.failing(k, step) do
            assert(w.all() == before, ('failure at allocation %d changed a state'):format(k))
            k = k + 1
        end
        assert(w.all() ~= before)
    end)

    it('of two calls of one layer follows both, in the order of recording', function()
        local w = world(1)
        local layer = w.layers[1]
        local function mean(x) return x:matmul(layer.weight):tanh():mean(1) end
        local a, b = wane.eval(mean(w.x)), wane.eval(mean(w.x * 3))
        local function once(c, m) return (c:to 'f64' * (1 - MOMENTUM) + m:to 'f64' * MOMENTUM):to 'f32' end
        local want = gradcheck.bytes(wane.eval(once(once(layer.running, a), b)))
        local both = (layer(w.x) ^ 2):sum() + (layer(w.x * 3) ^ 2):sum()
        both:backward { policy = 'recompute_all' }
        assert(gradcheck.bytes(layer.running) == want, 'the second call does not see what the first has written')
    end)

    it('is carried out by no call in evaluation', function()
        local a = world()
        a.opt:step(a.loss())
        a.model:eval()
        local before = a.state()
        a.opt:step(a.loss())
        assert(a.state() == before, 'evaluation changed a buffer')
    end)

    it('of a program that waited while another carried it out is refused', function()
        local w = world()
        local program = require 'wane.program'
        local y = w.model(w.x)
        local p = program.open { mode = 'eval', roots = { y:sum() } }:plan()
        local q = program.open { mode = 'eval', roots = { (y * 2):sum() } }:plan()
        p:run()
        helper.refused('stale', function() q:run() end)
        p:close()
        q:close()
    end)
end)

describe('a buffer', function()
    it('is listed, saved, loaded and moved with its module, and no optimizer trains it', function()
        local w = world()
        assert.equal(3, #w.model:buffers())
        assert.equal(3, #w.model:parameters())
        local names = {}
        for name in w.model:named_buffers() do names[#names + 1] = name end
        assert.are.same({ '1.running', '2.running', '3.running' }, names)
        w.opt:step(w.loss())
        local path = os.tmpname()
        wane.save(path, w.model, { optimizer = w.opt })
        local other = world()
        wane.load(path, other.model, { optimizer = other.opt })
        os.remove(path)
        assert(w.all() == other.all(), 'loading gives other states')
        w.opt:step(w.loss())
        other.opt:step(other.loss())
        assert(w.all() == other.all(), 'training goes on with other bits')
        assert.equal('f64', w.model:to 'f64':buffers()[1].dtype)
    end)

    it('skips the counters of batches that files of PyTorch have', function()
        local w = world(1)
        local dict = {}
        for name, t in pairs(w.model:state_dict { copy = true }) do dict[name] = t end
        dict['1.num_batches_tracked'] = wane.tensor({ 3 }, { dtype = 'i32' })
        w.model:load_state_dict(dict)
        dict['1.num_batches'] = dict['1.num_batches_tracked']
        helper.refused(nil, function() w.model:load_state_dict(dict) end, "'1.num_batches'")
    end)

    it('refuses what is no tensor', function()
        helper.refused(nil, function() nn.Buffer(3) end, 'nn.Buffer: expected a tensor, got 3')
    end)
end)

-- ---- values that are not finite ------------------------------------------------------------------------------------
-- Checks wane.anomaly: a run stops at the first value that is not finite and names it. A run that is not stopped must
-- give the bits it gives without wane.anomaly, and a run that is stopped must leave every state as it was.
local policy = wane.policy

local Bad = nn.module('Bad', function(self, how) self.lin, self.how = nn.Linear(8, 8), how end)
function Bad:forward(x) return self.how(self.lin(x)) end

local hows = {
    forward = function(x) return (x - 100):log() end,
    backward = function(x) return (x * 0):sqrt() end,
    fine = function(x) return x:tanh() end,
}

local function watched_world(how)
    wane.manual_seed(3)
    local w = { bad = Bad(hows[how]) }
    w.model = nn.Sequential { nn.Linear(8, 8), nn.GELU(), w.bad, nn.Linear(8, 8) }
    w.params = w.model:parameters()
    w.opt = optim.AdamW(w.params, { lr = 0.01 })
    local x = wane.eval(wane.randn(4, 8))
    function w.loss() return (w.model(x) ^ 2):mean() end
    wane.eval(unpack(w.params))
    return w
end

-- Returns the error of wane.anomaly that stops a call.
local function stopped(...)
    local arguments = { ... }
    return helper.refused('anomaly', function() wane.anomaly(unpack(arguments)) end)
end

local ways = {
    backward = function(w, p) w.loss():backward { policy = p } end,
    step = function(w, p) w.opt:step(w.loss(), { policy = p }) end,
    ['step of two'] = function(w, p) w.opt:step({ w.loss(), w.loss() }, { policy = p }) end,
}

local function each(fn)
    for _, device in ipairs { 'cpu', 'mirror' } do
        for name, way in pairs(ways) do
            for _, p in ipairs { 'save_all', 'recompute_all', policy.by_op { gelu = 'recompute' } } do
                helper.on(device, fn, way, p, ('%s on %s under %s'):format(name, device, tostring(p)), name)
            end
        end
    end
end

describe('wane.anomaly', function()
    after_each(function() wane.anomaly(false) end)

    it('names op, module, line and phase, in every kind of run, and leaves the state as it was', function()
        each(function(way, p, what)
            for _, how in ipairs { 'forward', 'backward' } do
                local w = watched_world(how)
                local before = programs.bits(w.params)
                local e = stopped(true, way, w, p)
                assert.is_truthy(tostring(e):find(how == 'forward' and 'log' or 'sqrt_grad', 1, true), tostring(e))
                assert.equal('3', e.path, what)
                assert.equal('Bad', e.module, what)
                assert.equal(how, e.phase, what)
                assert.is_truthy(e.line and e.line:find('forward_effect_spec.lua', 1, true), what)
                assert.is_true(e.count > 0 and e.count <= e.elements and e.first >= 1 and e.value - e.value ~= 0, what)
                assert.equal(before, programs.bits(w.params), what)
                for _, q in ipairs(w.params) do assert.is_nil(q.grad, what) end
            end
        end)
    end)

    it('changes no bit of a run that is not stopped', function()
        each(function(way, p, what)
            local plain, watched = watched_world 'fine', watched_world 'fine'
            for _ = 1, 2 do
                way(plain, p)
                wane.anomaly(true, way, watched, p)
            end
            assert.equal(programs.bits(plain.params), programs.bits(watched.params), what)
        end)
    end)

    it('drops gradients that a backward had begun to add to, and says so', function()
        local w = watched_world 'fine'
        w.loss():backward()
        w.bad.how = hows.backward
        local e = stopped(true, function() w.loss():backward() end)
        assert.is_truthy(tostring(e):find('run each backward since zero_grad again', 1, true), tostring(e))
        w.bad.how = hows.fine
        w.opt:zero_grad()
        w.loss():backward()
        w.opt:step()
    end)

    it('looks at what effects read before they change anything, and at what they write', function()
        local w = watched_world 'fine'
        w.loss():backward()
        binding.check(binding.C.wn_write_part(w.params[3].grad.id, 0, binding.new('float[64]', 0 / 0), 256))
        local before = programs.bits(w.params)
        local e = stopped(true, function() w.opt:step() end)
        assert.equal('update', e.phase)
        assert.equal(before, programs.bits(w.params))
        e = stopped(true, function() w.params[1]:assign(wane.eval(w.params[1] * (1 / 0))) end)
        assert.is_truthy(e)
        assert.equal(before, programs.bits(w.params))
    end)

    it('lets infinities pass where NaN alone is looked for, and everything when it is off', function()
        local mask = wane.tensor({ 1, 0, 1 }, { dtype = 'u8' })
        local function masked() return wane.where(mask, wane.tensor { 1, 2, 3 }, -1 / 0):softmax(1):sum():item() end
        assert.equal(1, masked())
        assert.equal(1, wane.anomaly('nan', masked))
        assert.equal('where', stopped(true, masked).op)
        local e = stopped('nan', function() return (wane.tensor { -1, 4 }:sqrt() + 1):sum():item() end)
        assert.is_truthy(e.value ~= e.value)
        assert.equal(2, wane.tensor { -1, 4 }:sqrt():isfinite():to('f32'):sum():item() + 1)
    end)

    it('is a switch, and a scope that puts back what was', function()
        assert.is_false(wane.anomaly(true))
        assert.is_true(wane.lines())
        assert.is_true(wane.anomaly('nan'))
        assert.equal('nan', wane.anomaly(false))
        assert.is_false(wane.lines())
        pcall(wane.anomaly, true, error, 'x')
        assert.is_false(wane.anomaly(false))
        for _, wrong in ipairs { 'yes', 1, {} } do
            assert.has_error(function() wane.anomaly(wrong) end)
        end
        assert.has_error(function() wane.anomaly(true, 3) end)
    end)
end)
