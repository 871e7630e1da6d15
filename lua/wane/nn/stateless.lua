--- Layers without parameters: activations, and nn.Dropout, nn.Flatten and nn.Identity.
--
-- An activation is one node; it takes x of any shape and returns a tensor of the same shape and dtype.
-- @module wane.nn.stateless

local arith = require 'wane.tensor.arith'
local checkpoint = require 'wane.program.checkpoint'
local errors = require 'wane.errors'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local stateless = {}

-- Adds the class `name`, whose forward is the tensor's method `method`.
local function activation(name, method)
    local fn = tensor.methods[method]
    local class = module.new(name, function(_, opts)
        if opts ~= nil then errors.check_options(opts, {}, 'nn.' .. name) end
    end)
    function class:forward(x) -- luacheck: no self
        return fn(x)
    end
    stateless[name] = class
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
stateless.GELU = GELU

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

local dropout, softmax = arith.dropout, tensor.methods.softmax

--- Makes a module that returns softmax(x) along a dim.
-- @function nn.Softmax
-- @param dim number, -1 unless given
-- @usage print(nn.Softmax()(wane.zeros(1, 2)):totable()[1][1]) --> 0.5
local Softmax = module.new('Softmax', function(self, dim) self.dim = dim or -1 end)
function Softmax:forward(x) return softmax(x, self.dim) end
function Softmax:extra() return tostring(self.dim) end
stateless.Softmax = Softmax

--- nn.Dropout(p = 0.5): in training, zeroes each element with probability p and scales the others by 1 / (1 - p).
--
-- In evaluation, and for p = 0, it records nothing and returns its input. The mask is never stored: the backward draws
-- the same numbers again.
-- @function nn.Dropout
-- @usage
-- local dropout = nn.Dropout(0.1)
-- print(dropout(x).shape) --> (2, 8)
-- dropout:eval()
-- print(dropout(x) == x) --> true
local Dropout = module.new('Dropout', function(self, p)
    if p == nil then p = 0.5 end
    if type(p) ~= 'number' or not (p >= 0 and p < 1) then
        errors.raise(nil, 'value', 'nn.Dropout: p must be a number from 0 to below 1, got %s', errors.describe(p))
    end
    self.p = p
end)
function Dropout:forward(x)
    if not self.training or self.p == 0 then return x end
    return dropout(x, self.p)
end
function Dropout:extra() return tostring(self.p) end
stateless.Dropout = Dropout

--- nn.Flatten(from = 2, to = -1): merges the dims from `from` to `to` into one; the first dim, the batch, stays.
-- @function nn.Flatten
-- @usage print(nn.Flatten()(wane.randn(2, 3, 4)).shape) --> (2, 12)
local Flatten = module.new('Flatten', function(self, from, to) self.first, self.last = from or 2, to or -1 end)
function Flatten:forward(x)
    tensor.need_self(x, 'flatten')
    if self.first == 2 and self.last == -1 and #tensor.typed(x)._dims == 1 then return x:unsqueeze(2) end
    return x:flatten(self.first, self.last)
end
stateless.Flatten = Flatten

--- nn.Identity(): returns its input; it stands in for a layer that is taken out.
-- @function nn.Identity
-- @usage print(nn.Identity()(x) == x) --> true
stateless.Identity = module.new('Identity')
function stateless.Identity:forward(x) return x end -- luacheck: no self

return stateless
