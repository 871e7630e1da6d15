--- Activations as modules: one node each, no parameters.
--
-- Each takes x of any shape and returns a tensor of the same shape and dtype.
-- @module wane.nn.activations

local checkpoint = require 'wane.program.checkpoint'
local errors = require 'wane.errors'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local activations = {}

-- Adds the class `name`, whose forward is the tensor's method `method`.
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

--- Makes a module that returns max(x, 0).
-- @function nn.ReLU
-- @usage print(nn.ReLU()(x).shape) --> (2, 8)
activation('ReLU', 'relu')

local function gelu_tanh(x) return tensor.methods.gelu(x, 'tanh') end

--- Makes a module that returns x Phi(x), the exact form, with erf, or the form of GPT-2, with tanh. The latter is a
-- region that is computed again from x, so either form saves x alone.
-- @function nn.GELU
-- @param opts {approximate = 'none' or 'tanh'}
-- @usage print(nn.GELU()(x).shape, nn.GELU { approximate = 'tanh' }) --> (2, 8)	GELU(tanh)
local GELU = module.new('GELU', function(self, opts)
    local form = errors.check_options(opts, { 'approximate' }, 'nn.GELU').approximate
    if type(form) ~= 'nil' and form ~= 'none' and form ~= 'tanh' then
        errors.raise(nil, 'value', "nn.GELU: approximate must be 'none' or 'tanh', got %s", errors.describe(form))
    end
    self.approximate = form or 'none'
end)
function GELU:forward(x)
    if self.approximate == 'tanh' then return checkpoint.checkpoint(gelu_tanh, x) end
    return (tensor.methods.gelu(x))
end
function GELU:extra() return self.approximate == 'tanh' and 'tanh' or '' end
activations.GELU = GELU

--- Makes a module that returns x sigmoid(x).
-- @function nn.SiLU
-- @usage print(nn.SiLU()(x).shape) --> (2, 8)
activation('SiLU', 'silu')

--- Makes a module that returns the hyperbolic tangent of x.
-- @function nn.Tanh
-- @usage print(nn.Tanh()(x).shape) --> (2, 8)
activation('Tanh', 'tanh')

--- Makes a module that returns 1 / (1 + exp(-x)).
-- @function nn.Sigmoid
-- @usage print(nn.Sigmoid()(x).shape) --> (2, 8)
activation('Sigmoid', 'sigmoid')

local softmax = tensor.methods.softmax

--- Makes a module that returns softmax(x) along a dim.
-- @function nn.Softmax
-- @param dim number, -1 unless given
-- @usage print(nn.Softmax()(wane.zeros(1, 2)):totable()[1][1]) --> 0.5
local Softmax = module.new('Softmax', function(self, dim) self.dim = dim or -1 end)
function Softmax:forward(x) return softmax(x, self.dim) end
function Softmax:extra() return tostring(self.dim) end
activations.Softmax = Softmax

return activations
