--- nn.Linear(i, o, {bias = true, dtype =, device =}): y = x W^T + b, x (..., i) -> (..., o).
--
-- With bias it is one node and one rounding; without, a product with the transpose flag. weight (o, i) and bias
-- (o) start uniform in +-1/sqrt(i), as PyTorch's do.
-- @module wane.nn.linear

local arith = require 'wane.arith'
local create = require 'wane.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.op'

local linear, matmul_nt = arith.linear, arith.matmul_nt
local Linear

local function uniform(dims, bound, opts)
    return create.make('nn.Linear', op.id.uniform, dims, -bound, bound, { dtype = opts.dtype, device = opts.device })
end

Linear = module.new('Linear', function(self, n_in, n_out, opts)
    opts = errors.check_options(opts, { 'bias', 'dtype', 'device' }, 'nn.Linear')
    self.n_in = op.size(n_in, 'nn.Linear: inputs', 1)
    self.n_out = op.size(n_out, 'nn.Linear: outputs', 1)
    local bound = 1 / math.sqrt(n_in)
    self.weight = module.parameter(uniform({ n_out, n_in }, bound, opts), 'weight')
    if opts.bias ~= false then
        self.bias = module.parameter(uniform({ n_out }, bound, opts), 'bias')
    end
end)

function Linear:forward(x)
    local bias = self.bias
    if bias then return linear(x, self.weight, bias) end
    return matmul_nt(x, self.weight)
end

function Linear:extra()
    return ('%d, %d%s'):format(self.n_in, self.n_out, self.bias and '' or ', bias = false')
end

return Linear
