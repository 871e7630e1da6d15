-- A layer, an op, an optimizer and a data source of a script's own, written from the guide alone.
--
-- The layer gates one product by another. The op is a rounding whose gradient is that of the identity. The optimizer
-- keeps a buffer for each parameter. The data source makes its batches when they are asked for.
--
--   luajit examples/projects/custom.lua
--
-- It printed (2 cores, about a second; long lines are cut):
--
--   tensor (4) f32 [-0.2500,  0.0000,  0.1250,  1.2500]
--   its gradient tensor (2) f32 [1., 1.]
--   step 100  loss 0.0031
--   step 200  loss 0.0066
--   step 300  loss 0.0017
--   of 1 and 2 the larger is about 2.17
local root = (arg[0]:match('^(.*)/') or '.') .. '/../..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
dofile(root .. '/examples/options.lua') {}
local wane = require 'wane'
local nn = wane.nn

-- ---- an op --------------------------------------------------------------------------------------------------------

-- Rounds to eighths; the gradient passes as if nothing had been rounded.
local eighths = wane.custom(function(_, x)
    local shifted = x * 8 + 0.5
    local whole = shifted:to('i32'):to('f32')                    -- toward zero
    return (whole - whole:gt(shifted):to('f32')) / 8             -- down, below zero too
end, function(_, dy) return dy * 1 end)

-- ---- a layer ------------------------------------------------------------------------------------------------------

-- Computes (x w) * sigmoid(x v), its weights in eighths.
local Gated = nn.module('Gated', function(self, n_in, n_out)
    self.w = nn.Parameter(wane.randn(n_in, n_out) / math.sqrt(n_in))
    self.v = nn.Parameter(wane.randn(n_in, n_out) / math.sqrt(n_in))
end)
function Gated:forward(x) return x:matmul(eighths(self.w)) * x:matmul(eighths(self.v)):sigmoid() end

-- ---- an optimizer -------------------------------------------------------------------------------------------------

-- Steps along a running mean of gradients, each scaled to the length of its parameter.
local Scaled = {}
Scaled.__index = Scaled

local function new_scaled(parameters, lr)
    local means = {}
    for k, p in ipairs(parameters) do means[k] = nn.Buffer(wane.zeros(p.shape)) end
    return setmetatable({ parameters = parameters, means = means, lr = lr }, Scaled)
end

function Scaled:step()
    for k, p in ipairs(self.parameters) do
        self.means[k]:assign(self.means[k] * 0.9 + p.grad * 0.1)
        local mean = self.means[k]
        local length = ((p * p):sum() / ((mean * mean):sum() + 1e-12)):sqrt()
        p:assign(p - mean * length * self.lr)
        p.grad = nil
    end
end

-- ---- a data source ------------------------------------------------------------------------------------------------

-- Returns an iterator over `count` batches (x, y) of numbers and of the larger of each pair.
local function pairs_of_numbers(count, batch)
    local k = 0
    return function()
        if k == count then return nil end
        k = k + 1
        local x = wane.rand(batch, 2):retain()
        return x, x:max(2):reshape(batch, 1):retain()
    end
end

local function main()
    wane.manual_seed(5)
    print(eighths(wane.tensor { -0.3, 0.05, 0.07, 1.3 }))
    local x = wane.tensor({ 0.3, 0.7 }, { requires_grad = true })
    eighths(x):sum():backward()
    print('its gradient', x.grad)

    local model = nn.Sequential { Gated(2, 32), Gated(32, 32), nn.Linear(32, 1) }
    local policy = wane.policy.by_type { Gated = 'recompute', default = 'save' }
    local opt, step = new_scaled(model:parameters(), 0.02), 0
    for inputs, targets in pairs_of_numbers(300, 64) do
        local loss = nn.mse_loss(model(inputs), targets)
        loss:backward { policy = policy }
        opt:step()
        step = step + 1
        if step % 100 == 0 then print(('step %d  loss %.4f'):format(step, loss:item())) end
    end
    print(('of 1 and 2 the larger is about %.2f'):format(2 * model(wane.tensor { { 0.5, 1 } }):item()))
end

main()
