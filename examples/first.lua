-- The first script: a small network whose activations outweigh its parameters is planned under four policies, then
-- trained for five steps under one of them. It prints the same text at every run.
--   luajit examples/first.lua
if arg[1] then return print 'usage: luajit examples/first.lua' end
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, optim, policy = wane.nn, wane.optim, wane.policy

local Block = nn.module('Block', function(self, d)
    self.norm = nn.LayerNorm(d)
    self.mlp = nn.MLP(d, 4 * d)
end)
function Block:forward(x) return x + self.mlp(self.norm(x)) end

wane.manual_seed(42)
local layers = {}
for i = 1, 8 do layers[i] = Block(64) end
layers[9] = nn.Linear(64, 10)
local model = nn.Sequential(layers)
local opt = optim.SGD(model:parameters(), { lr = 0.1 })
local x = wane.randn(512, 64):retain()               -- retain: keep the value, several programs read it
local labels = wane.randint(10, { 512 }):retain()    -- class labels are data: 0 to 9

local function loss() return nn.cross_entropy(model(x), labels) end

-- Ask before running: nothing is computed here.
for _, p in ipairs { 'save_all', 'sqrt', 'recompute_all', policy.by_type { MLP = 'recompute' } } do
    local plan = wane.plan(loss, { policy = p })
    print(('%-24s peak %10d bytes, %2d nodes recomputed'):format(tostring(p), plan.peak, plan.recomputed))
end

-- Train: forward, backward and update in one plan; item() reads the loss.
for step = 1, 5 do
    print(step, ('%.4f'):format(opt:step(loss(), { policy = 'sqrt' }):item()))
end
