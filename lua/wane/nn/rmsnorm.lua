--- nn.RMSNorm(d, {eps = 1e-6, dtype =, device =}): x / sqrt(mean(x^2) + eps) * weight over the last dim.
--
-- x (..., d) -> (..., d). It is composed of elementwise nodes and one mean. Its parameter is weight (d), at first ones.
-- bf16 is computed in f32 and rounded once, as PyTorch's rms_norm does. (Zhang and Sennrich, "Root Mean Square Layer
-- Normalization", 2019.)
-- @module wane.nn.rmsnorm
-- @usage print(nn.RMSNorm(8)(x).shape) --> (2, 8)

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local KEEP = { keepdim = true }

local RMSNorm = module.new('RMSNorm', function(self, d, opts)
    opts = errors.check_options(opts, { 'eps', 'dtype', 'device' }, 'nn.RMSNorm')
    local place = { dtype = opts.dtype or 'f32', device = opts.device }
    self.d = op.size(d, 'nn.RMSNorm: size', 1)
    self.eps = op.finite(opts.eps or 1e-6, 'nn.RMSNorm: eps')
    self.weight = module.parameter(create.ones({ d }, place), 'weight')
end)

function RMSNorm:forward(x)
    tensor.need_float(x, 'rmsnorm')
    local dims = tensor.typed(x)._dims
    if dims[#dims] ~= self.d then
        errors.raise(nil, 'shape', 'rmsnorm: the last dim of %s must be %d', tensor.describe(x), self.d)
    end
    x = op.wide(x)
    local weight = self.weight
    local is_low = x.dtype == 'bf16' and weight.dtype == 'bf16'
    if is_low then x, weight = x:to 'f32', weight:to 'f32' end
    local scale = ((x * x):mean(-1, KEEP) + self.eps):rsqrt()
    local y = x * scale * weight
    return is_low and y:to 'bf16' or y
end

function RMSNorm:extra()
    return ('%d, eps = %g'):format(self.d, self.eps)
end

return RMSNorm
