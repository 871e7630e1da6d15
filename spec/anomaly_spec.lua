-- Checks wane.anomaly: a run stops at the first value that is not finite and names it. A run that is not stopped must
-- give the bits it gives without wane.anomaly, and a run that is stopped must leave every state as it was.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'

local nn, optim, policy = wane.nn, wane.optim, wane.policy

local Bad = nn.module('Bad', function(self, how) self.lin, self.how = nn.Linear(8, 8), how end)
function Bad:forward(x) return self.how(self.lin(x)) end

local hows = {
    forward = function(x) return (x - 100):log() end,
    backward = function(x) return (x * 0):sqrt() end,
    fine = function(x) return x:tanh() end,
}

local function world(how)
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

local function stopped(fn, ...)
    local ok, e = pcall(fn, ...)
    assert.is_false(ok)
    assert.equal('anomaly', e.code, tostring(e))
    return e
end

local ways = {
    backward = function(w, p) w.loss():backward { policy = p } end,
    step = function(w, p) w.opt:step(w.loss(), { policy = p }) end,
    ['step of two'] = function(w, p) w.opt:step({ w.loss(), w.loss() }, { policy = p }) end,
}

local function each(fn)
    for _, device in ipairs { 'cpu', 'mirror' } do
        wane.set_device(device)
        for name, way in pairs(ways) do
            for _, p in ipairs { 'save_all', 'recompute_all', policy.by_op { gelu = 'recompute' } }
            do
                fn(way, p, ('%s on %s under %s'):format(name, device, tostring(p)), name)
            end
        end
    end
    wane.set_device(helper.device)
end

describe('wane.anomaly', function()
    after_each(function()
        wane.anomaly(false)
        wane.set_device(helper.device)
    end)

    it('names op, module, line and phase, in every kind of run, and leaves the state as it was', function()
        each(function(way, p, what)
            for _, how in ipairs { 'forward', 'backward' } do
                local w = world(how)
                local before = programs.bits(w.params)
                local e = stopped(wane.anomaly, true, way, w, p)
                assert.is_truthy(tostring(e):find(how == 'forward' and 'log' or 'sqrt_grad', 1, true), tostring(e))
                assert.equal('3', e.path, what)
                assert.equal('Bad', e.module, what)
                assert.equal(how, e.phase, what)
                assert.is_truthy(e.line and e.line:find('anomaly_spec.lua', 1, true), what)
                assert.is_true(e.count > 0 and e.count <= e.elements and e.first >= 1 and e.value - e.value ~= 0, what)
                assert.equal(before, programs.bits(w.params), what)
                for _, q in ipairs(w.params) do assert.is_nil(q.grad, what) end
            end
        end)
    end)

    it('changes no bit of a run that is not stopped', function()
        each(function(way, p, what)
            local plain, watched = world 'fine', world 'fine'
            for _ = 1, 2 do
                way(plain, p)
                wane.anomaly(true, way, watched, p)
            end
            assert.equal(programs.bits(plain.params), programs.bits(watched.params), what)
        end)
    end)

    it('drops gradients that a backward had begun to add to, and says so', function()
        local w = world 'fine'
        w.loss():backward()
        w.bad.how = hows.backward
        local e = stopped(wane.anomaly, true, function() w.loss():backward() end)
        assert.is_truthy(tostring(e):find('run each backward since zero_grad again', 1, true), tostring(e))
        w.bad.how = hows.fine
        w.opt:zero_grad()
        w.loss():backward()
        w.opt:step()
    end)

    it('looks at what effects read before they change anything, and at what they write', function()
        local w = world 'fine'
        w.loss():backward()
        binding.check(binding.C.wn_write(w.params[3].grad.id, binding.new('float[64]', 0 / 0), 256))
        local before = programs.bits(w.params)
        local e = stopped(wane.anomaly, true, function() w.opt:step() end)
        assert.equal('update', e.phase)
        assert.equal(before, programs.bits(w.params))
        e = stopped(wane.anomaly, true, function() w.params[1]:assign(wane.eval(w.params[1] * (1 / 0))) end)
        assert.is_truthy(e)
        assert.equal(before, programs.bits(w.params))
    end)

    it('lets infinities pass where NaN alone is looked for, and everything when it is off', function()
        local mask = wane.tensor({ 1, 0, 1 }, { dtype = 'u8' })
        local function masked() return wane.where(mask, wane.tensor { 1, 2, 3 }, -1 / 0):softmax(1):sum():item() end
        assert.equal(1, masked())
        assert.equal(1, wane.anomaly('nan', masked))
        assert.equal('where', stopped(wane.anomaly, true, masked).op)
        local e = stopped(wane.anomaly, 'nan', function() return (wane.tensor { -1, 4 }:sqrt() + 1):sum():item() end)
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
