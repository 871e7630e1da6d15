--- nn.Linear(i, o, {bias = true, dtype =, device =, layout =}): y = x weight^T + bias, x (..., i) -> (..., o).
--
-- With a bias it is one node with one rounding; without, a product with the transpose flag. Its parameters are weight
-- (o, i) and bias (o), at first uniform in +-1/sqrt(i), as PyTorch's are.
-- The layout of the weight is the one that products on its device read fastest: on the CPU panels of 48 outputs where o
-- is a multiple of 16 (runtime/base/layout.h), and so for its gradient and the states of the optimizer. No script sees
-- the layout: numbers are printed, read, saved and loaded row by row. layout = 'plain' is for a weight that other ops
-- read at every step, each of which would get a plain copy.
-- @module wane.nn.linear
-- @usage
-- local linear = nn.Linear(8, 4)
-- print(linear(x).shape, linear.weight.shape, linear.bias.shape) --> (2, 4)	(4, 8)	(4)

local arith = require 'wane.tensor.arith'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local uniform = require 'wane.nn.weights'

local linear = arith.linear

local Linear = module.new('Linear', function(self, n_in, n_out, opts)
    opts = errors.check_options(opts, { 'bias', 'dtype', 'device', 'layout' }, 'nn.Linear')
    self.n_in = op.size(n_in, 'nn.Linear: inputs', 1)
    self.n_out = op.size(n_out, 'nn.Linear: outputs', 1)
    local add = uniform(self, 'nn.Linear', 1 / math.sqrt(n_in), opts)
    add('weight', { n_out, n_in }, true)
    if opts.bias ~= false then add('bias', { n_out }) end
end)

function Linear:forward(x)
    return (linear(x, self.weight, self.bias))
end

function Linear:extra()
    return ('%d, %d%s'):format(self.n_in, self.n_out, self.bias and '' or ', bias = false')
end

return Linear
