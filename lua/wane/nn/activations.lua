--- Activations as modules: one node each, no parameters.
--
-- nn.ReLU(), nn.GELU() (exact, with erf), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Softmax(dim = -1).
-- @module wane.nn.activations

local errors = require 'wane.errors'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local activations = {}

local function activation(name, method)
    local fn = tensor.methods[method]
    local class = module.new(name, function(_, opts)
        if opts ~= nil then errors.check_options(opts, {}, 'nn.' .. name) end
    end)
    function class:forward(x) -- luacheck: no self
        return fn(x)
    end
    activations[name] = class
end

activation('ReLU', 'relu')
activation('GELU', 'gelu')
activation('SiLU', 'silu')
activation('Tanh', 'tanh')
activation('Sigmoid', 'sigmoid')

local softmax = tensor.methods.softmax
local Softmax = module.new('Softmax', function(self, dim) self.dim = dim or -1 end)
function Softmax:forward(x) return softmax(x, self.dim) end
function Softmax:extra() return tostring(self.dim) end
activations.Softmax = Softmax

return activations
