--- nn.GroupNorm(groups, channels, {eps = 1e-5, affine = true, dtype =, device =}): (x - mean) / sqrt(var + eps) *
-- weight + bias, mean and variance over the elements of a group of channels of one sample.
--
-- x (N, channels, ...) -> (N, channels, ...), of 2 dims or more. It records three nodes, channel_mean, channel_rstd and
-- batch_norm, so that a policy sees the two small values (N, groups) apart. Its parameters are weight (channels), at
-- first ones, and bias (channels), at first zeros; affine = false: none. The variance is the mean of squares, without a
-- correction (Wu and He, "Group Normalization", 2018).
-- @module wane.nn.groupnorm
-- @usage print(nn.GroupNorm(2, 8)(wane.randn(3, 8, 4, 4)).shape) --> (3, 8, 4, 4)

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'

local GroupNorm = module.new('GroupNorm', function(self, groups, channels, opts)
    local what = 'nn.GroupNorm'
    opts = errors.check_options(opts, { 'eps', 'affine', 'dtype', 'device' }, what)
    errors.check_flags(opts, { 'affine' }, what)
    self.groups, self.channels = op.size(groups, what .. ': groups', 1), op.size(channels, what .. ': channels', 1)
    self.eps = op.finite(opts.eps or 1e-5, what .. ': eps')
    if channels % groups ~= 0 then
        errors.raise(nil, 'value', '%s: %d channels do not divide into %d groups; expected a multiple of the groups',
            what, channels, groups)
    end
    if opts.affine == false then return end
    local place = { dtype = opts.dtype or 'f32', device = opts.device }
    self.weight = module.parameter(create.ones({ channels }, place), 'weight')
    self.bias = module.parameter(create.zeros({ channels }, place), 'bias')
end)

-- Returns x: (N, C, ...) as an image (N, C, L, 1).
local function image_of(x, dims)
    if #dims == 4 then return x end
    return shape.to(x, dims[1], dims[2], tensor.count(dims) / math.max(1, dims[1] * dims[2]), 1)
end

-- Returns weight and bias; without parameters, ones and zeros like x.
local function factors(self, x)
    if self.weight then return self.weight, self.bias end
    local place = { dtype = x.dtype, device = x.device }
    return create.ones({ self.channels }, place), create.zeros({ self.channels }, place)
end

function GroupNorm:forward(x)
    tensor.need_self(x, 'group_norm')
    local dims = tensor.typed(x)._dims
    if #dims < 2 or dims[2] ~= self.channels then
        errors.raise(nil, 'shape', 'group_norm: expected (batch, %d, ...), got %s', self.channels, tensor.describe(x))
    end
    x = image.channels_last(image_of(op.wide(x), dims))
    local groups = { n = 1, i = { self.groups } }
    local mean = op.record('channel_mean', { x }, groups)
    local rstd = op.record('channel_rstd', { x, mean }, { n = 1, i = { self.groups }, f = { self.eps } })
    local w, b = factors(self, x)
    local y = op.record('batch_norm', { x, mean, rstd, w, b }, groups)
    return #dims == 4 and y or y:reshape(dims)
end

function GroupNorm:extra()
    return ('%d, %d, eps = %g%s'):format(self.groups, self.channels, self.eps, self.weight and '' or ', affine = false')
end

return GroupNorm
