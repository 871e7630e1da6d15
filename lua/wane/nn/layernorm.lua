--- nn.LayerNorm(d, {eps = 1e-5, dtype =, device =}): (x - mean) / sqrt(var + eps) * weight + bias over the last dim.
--
-- x (..., d) -> (..., d). It records three nodes, row_mean, row_rstd and layernorm, so that a policy sees the two small
-- values, one number a row, apart. Its parameters are weight (d), at first ones, and bias (d), at first zeros. The
-- variance is the mean of squares, without a correction (Ba et al., "Layer Normalization", 2016).
-- @module wane.nn.layernorm
-- @usage print(nn.LayerNorm(8)(x).shape) --> (2, 8)

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local id = op.id
local ROW_MEAN, ROW_RSTD, LAYERNORM = id.row_mean, id.row_rstd, id.layernorm

local LayerNorm = module.new('LayerNorm', function(self, d, opts)
    opts = errors.check_options(opts, { 'eps', 'dtype', 'device' }, 'nn.LayerNorm')
    local place = { dtype = opts.dtype or 'f32', device = opts.device }
    self.d = op.size(d, 'nn.LayerNorm: size', 1)
    self.eps = op.finite(opts.eps or 1e-5, 'nn.LayerNorm: eps')
    self.weight = module.parameter(create.ones({ d }, place), 'weight')
    self.bias = module.parameter(create.zeros({ d }, place), 'bias')
end)

function LayerNorm:forward(x)
    tensor.need_self(x, 'layernorm')
    local dims = tensor.typed(x)._dims
    if dims[#dims] ~= self.d then
        errors.raise(nil, 'shape', 'layernorm: the last dim of %s must be %d', tensor.describe(x), self.d)
    end
    local mean = op.unary(ROW_MEAN, x)
    local at = op.attrs()
    at.f[0] = self.eps
    local rstd = op.binary(ROW_RSTD, x, mean, at)
    return (op.quinary(LAYERNORM, x, mean, rstd, self.weight, self.bias))
end

function LayerNorm:extra()
    return ('%d, eps = %g'):format(self.d, self.eps)
end

return LayerNorm
