-- Shared by the specs of offloading: a small network, and policies that offload all it keeps.
local luassert = require 'luassert'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'

local nn, policy = wane.nn, wane.policy
local WIDTH = 64

local offloading = { rows = 32 }

--- Makes a policy that offloads every value, to disk or ('offload:host') to host memory.
function offloading.everything(word)
    return policy.of(word == 'offload:host' and function() return 'offload:host' end or function() return 'offload' end)
end
--- Makes a network with dropout and a loss over n rows, the same each time.
-- @return its parameters; function() that returns the loss; the network under its head
function offloading.make(n)
    n = n or offloading.rows
    wane.manual_seed(7)
    local model = programs.mlp(WIDTH, 5, 0.2)
    local head = nn.Linear(WIDTH, 6)
    local params = model:parameters()
    for _, q in ipairs(head:parameters()) do params[#params + 1] = q end
    local x = wane.eval(wane.randn(n, WIDTH))
    local labels = {}
    for i = 1, n do labels[i] = i % 6 end
    labels = wane.tensor(labels, { dtype = 'i32' })
    return params, function() return nn.cross_entropy(head(model(x)), labels) end, model
end

--- Fails unless what was predicted of a program was measured, to the byte, moves too; returns the bytes moved out.
function offloading.same(p, what)
    programs.same(p, what)
    for _, name in ipairs { 'host', 'disk', 'out', 'in' } do
        luassert.equal(p.predicted[name], p.measured[name], what .. name)
    end
    return p.predicted.out
end

--- Fails unless a program moves values or packs them, brings each packed one back once, and was predicted to the byte.
function offloading.check(p, what)
    local count = { pack = 0, unpack = 0 }
    for _, step in ipairs(programs.schedule(p)) do
        if count[step.what] then count[step.what] = count[step.what] + 1 end
    end
    luassert.is_true(offloading.same(p, what) > 0 or count.pack > 0, what .. ' keeps all values as they are')
    luassert.equal(count.pack, count.unpack, what)
end

--- Gives this machine the seconds of a roofline whose links move `rate` bytes a second, or those that it usually has.
-- @param rate number; false and nil: as usual
function offloading.machine(rate)
    local p = binding.new 'struct wn_profile'
    p.f64, p.f32, p.bf16, p.bytes, p.launch = 25e9, 50e9, 50e9, 20e9, 1e-6
    for place = 0, 1 do
        local moved = rate or place == 0 and 8e9 or 1.5e9
        p.out[place], p['in'][place] = moved, moved
    end
    binding.id(binding.C.wn_target_set('this machine', p))
end

return offloading
