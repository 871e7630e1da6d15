--- Layers that normalize: by the mean and the variance of rows, of groups of channels, of channels over the batch.
-- @module wane.nn.norms

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'

local C, id = binding.C, op.id
local ROW_MEAN, ROW_RSTD, LAYERNORM = id.row_mean, id.row_rstd, id.layernorm
local KEEP = { keepdim = true }

local norms = {}

-- Returns the parameters at the beginning, ones and zeros for n channels.
local function ones_and_zeros(n, dtype, device)
    local place = { dtype = dtype, device = device }
    return create.ones({ n }, place), create.zeros({ n }, place)
end

-- Gives a layer its weight, n ones, and then its bias, n zeros.
local function add_parameters(self, n, opts)
    local weight, bias = ones_and_zeros(n, opts.dtype or 'f32', opts.device)
    self.weight = module.parameter(weight, 'weight')
    self.bias = module.parameter(bias, 'bias')
end

-- Returns weight and bias; without parameters, ones and zeros like x.
local function factors(self, n, x)
    if self.weight then return self.weight, self.bias end
    return ones_and_zeros(n, x.dtype, x.device)
end

-- Checks that x has d elements in its last dim.
local function check_last(x, d, name)
    local dims = tensor.typed(x)._dims
    if dims[#dims] ~= d then
        errors.raise(nil, 'shape', '%s: the last dim of %s must be %d', name, tensor.describe(x), d)
    end
end

-- Returns 1 / sqrt(var + eps) of x, whose mean is given, by op `o` with integer attribute i or none.
local function rstd_of(o, x, mean, eps, i)
    local at = op.attrs(i)
    at.f[0] = eps
    return op.binary(o, x, mean, at)
end

local function text_of_rows(self)
    return ('%d, eps = %g'):format(self.d, self.eps)
end

--- nn.LayerNorm(d, {eps = 1e-5, dtype =, device =}): (x - mean) / sqrt(var + eps) * weight + bias over the last dim.
--
-- x (..., d) -> (..., d). It records three nodes, row_mean, row_rstd and layernorm, so that a policy sees the two small
-- values, one number a row, apart. Its parameters are weight (d), at first ones, and bias (d), at first zeros. The
-- variance is the mean of squares, without a correction (Ba et al., "Layer Normalization", 2016).
-- @function nn.LayerNorm
-- @usage print(nn.LayerNorm(8)(x).shape) --> (2, 8)
norms.LayerNorm = module.new('LayerNorm', function(self, d, opts)
    opts = errors.check_options(opts, { 'eps', 'dtype', 'device' }, 'nn.LayerNorm')
    self.d = op.size(d, 'nn.LayerNorm: size', 1)
    self.eps = op.finite(opts.eps or 1e-5, 'nn.LayerNorm: eps')
    add_parameters(self, d, opts)
end)
norms.LayerNorm.extra = text_of_rows

function norms.LayerNorm:forward(x)
    tensor.need_self(x, 'layernorm')
    check_last(x, self.d, 'layernorm')
    local mean = op.unary(ROW_MEAN, x)
    local rstd = rstd_of(ROW_RSTD, x, mean, self.eps)
    return (op.quinary(LAYERNORM, x, mean, rstd, self.weight, self.bias))
end

--- nn.RMSNorm(d, {eps = 1e-6, dtype =, device =}): x / sqrt(mean(x^2) + eps) * weight over the last dim.
--
-- x (..., d) -> (..., d). It is composed of elementwise nodes and one mean. Its parameter is weight (d), at first ones.
-- bf16 is computed in f32 and rounded once, as PyTorch's rms_norm does. (Zhang and Sennrich, "Root Mean Square Layer
-- Normalization", 2019.)
-- @function nn.RMSNorm
-- @usage print(nn.RMSNorm(8)(x).shape) --> (2, 8)
norms.RMSNorm = module.new('RMSNorm', function(self, d, opts)
    opts = errors.check_options(opts, { 'eps', 'dtype', 'device' }, 'nn.RMSNorm')
    self.d = op.size(d, 'nn.RMSNorm: size', 1)
    self.eps = op.finite(opts.eps or 1e-6, 'nn.RMSNorm: eps')
    self.weight = module.parameter(create.ones({ d }, { dtype = opts.dtype or 'f32', device = opts.device }), 'weight')
end)
norms.RMSNorm.extra = text_of_rows

function norms.RMSNorm:forward(x)
    tensor.need_float(x, 'rmsnorm')
    check_last(x, self.d, 'rmsnorm')
    x = op.wide(x)
    local weight = self.weight
    local is_low = x.dtype == 'bf16' and weight.dtype == 'bf16'
    if is_low then x, weight = x:to 'f32', weight:to 'f32' end
    local scale = ((x * x):mean(-1, KEEP) + self.eps):rsqrt()
    local y = x * scale * weight
    return is_low and y:to 'bf16' or y
end

--- nn.GroupNorm(groups, channels, {eps = 1e-5, affine = true, dtype =, device =}): (x - mean) / sqrt(var + eps) *
-- weight + bias, mean and variance over the elements of a group of channels of one sample.
--
-- x (N, channels, ...) -> (N, channels, ...), of 2 dims or more. It records three nodes, channel_mean, channel_rstd and
-- batch_norm, so that a policy sees the two small values (N, groups) apart. Its parameters are weight (channels), at
-- first ones, and bias (channels), at first zeros; affine = false: none. The variance is the mean of squares, without a
-- correction (Wu and He, "Group Normalization", 2018).
-- @function nn.GroupNorm
-- @usage print(nn.GroupNorm(2, 8)(wane.randn(3, 8, 4, 4)).shape) --> (3, 8, 4, 4)
norms.GroupNorm = module.new('GroupNorm', function(self, groups, channels, opts)
    local what = 'nn.GroupNorm'
    opts = errors.check_options(opts, { 'eps', 'affine', 'dtype', 'device' }, what, { 'affine' })
    self.groups, self.channels = op.size(groups, what .. ': groups', 1), op.size(channels, what .. ': channels', 1)
    self.eps = op.finite(opts.eps or 1e-5, what .. ': eps')
    if channels % groups ~= 0 then
        errors.raise(nil, 'value', '%s: %d channels do not divide into %d groups; expected a multiple of the groups',
            what, channels, groups)
    end
    if opts.affine ~= false then add_parameters(self, channels, opts) end
end)

-- Returns x: (N, C, ...) as an image (N, C, L, 1).
local function image_of(x, dims)
    if #dims == 4 then return x end
    return shape.to(x, dims[1], dims[2], tensor.count(dims) / math.max(1, dims[1] * dims[2]), 1)
end

function norms.GroupNorm:forward(x)
    tensor.need_self(x, 'group_norm')
    local dims = tensor.typed(x)._dims
    if #dims < 2 or dims[2] ~= self.channels then
        errors.raise(nil, 'shape', 'group_norm: expected (batch, %d, ...), got %s', self.channels, tensor.describe(x))
    end
    x = image.channels_last(image_of(op.wide(x), dims))
    local mean = op.unary(id.channel_mean, x, op.attrs(self.groups))
    local rstd = rstd_of(id.channel_rstd, x, mean, self.eps, self.groups)
    local w, b = factors(self, self.channels, x)
    local y = op.record('batch_norm', { x, mean, rstd, w, b }, { n = 1, i = { self.groups } })
    return #dims == 4 and y or y:reshape(dims)
end

function norms.GroupNorm:extra()
    return ('%d, %d, eps = %g%s'):format(self.groups, self.channels, self.eps, self.weight and '' or ', affine = false')
end

--- nn.BatchNorm2d(c, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, dtype =, device =}):
-- (x - mean) / sqrt(var + eps) * weight + bias for each channel of images.
--
-- x (N, c, H, W) -> (N, c, H, W). In training mean and variance are those of the batch, over N, H and W, and the
-- running statistics follow them: running = (1 - momentum) running + momentum statistic, the variance unbiased (Ioffe
-- and Szegedy, 2015). They change once for each forward, when a program first computes the batch's mean, whatever is
-- recomputed later; a plan and wane.measure without an optimizer leave them as they are. In evaluation the running
-- statistics are used. It records channel_mean, channel_rstd and batch_norm, so that a policy sees the two small values
-- apart. Its parameters are weight (c), at first ones, and bias (c), at first zeros; its buffers are running_mean (c),
-- at first zeros, and running_var (c), at first ones. PyTorch's num_batches_tracked is not there, and skipped in its
-- files.
-- @function nn.BatchNorm2d
-- @usage
-- local norm = nn.BatchNorm2d(3)
-- local images = wane.randn(4, 3, 5, 5)
-- print(norm(images).shape, #norm:parameters(), #norm:buffers()) --> (4, 3, 5, 5)	2	2
norms.BatchNorm2d = module.new('BatchNorm2d', function(self, c, opts)
    opts = errors.check_options(opts, { 'eps', 'momentum', 'affine', 'track_running_stats', 'dtype', 'device' },
        'nn.BatchNorm2d')
    errors.check_flags(opts, { 'affine', 'track_running_stats' }, 'nn.BatchNorm2d')
    self.c = op.size(c, 'nn.BatchNorm2d: channels', 1)
    self.eps = op.finite(opts.eps or 1e-5, 'nn.BatchNorm2d: eps')
    self.momentum = op.finite(opts.momentum or 0.1, 'nn.BatchNorm2d: momentum')
    if self.momentum < 0 or self.momentum > 1 then
        errors.raise(nil, 'value', 'nn.BatchNorm2d: momentum must be from 0 to 1, got %g', self.momentum)
    end
    if opts.affine ~= false then add_parameters(self, c, opts) end
    if opts.track_running_stats ~= false then
        local ones, zeros = ones_and_zeros(c, opts.dtype or 'f32', opts.device)
        self.running_mean = module.buffer(zeros, 'running_mean')
        self.running_var = module.buffer(ones, 'running_var')
    end
end)

-- Checks the input, and returns the number of elements of a channel.
local function check(self, x)
    tensor.need_self(x, 'batch_norm')
    local dims = tensor.typed(x)._dims
    if #dims ~= 4 or dims[2] ~= self.c then
        errors.raise(nil, 'shape', 'nn.BatchNorm2d: %s given, expected (batch, %d, rows, columns)%s',
            tensor.describe(x), self.c, #dims == 3 and '; add the batch with :unsqueeze(1)' or '')
    end
    return dims[1] * dims[3] * dims[4]
end

-- Lets the running statistics follow those of a batch of n elements a channel.
local function follow(self, mean, rstd, n)
    local at = op.attrs()
    at.f[0] = self.momentum
    binding.check(C.wn_effect(mean.id, id.running_mean, self.running_mean.id, at))
    at.f[1], at.i[0] = self.eps, n
    binding.check(C.wn_effect(rstd.id, id.running_var, self.running_var.id, at))
end

-- Returns mean and rstd of the batch.
local function of_batch(self, x, n)
    if n < 2 then
        errors.raise(nil, 'shape', 'nn.BatchNorm2d: %s has one value a channel, and a variance needs 2 or more; train '
            .. 'on larger batches, or call model:eval()', tensor.describe(x))
    end
    local mean = op.unary(id.channel_mean, x)
    local rstd = rstd_of(id.channel_rstd, x, mean, self.eps)
    if self.running_mean then follow(self, mean, rstd, n) end
    return mean, rstd
end

function norms.BatchNorm2d:forward(x)
    local n = check(self, x)
    x = image.channels_last(op.wide(x))
    local weight, bias = factors(self, self.c, x)
    local mean, rstd = self.running_mean
    if self.training or not mean then
        mean, rstd = of_batch(self, x, n)
    else
        rstd = (self.running_var + self.eps):rsqrt()
    end
    return (op.quinary(id.batch_norm, x, mean, rstd, weight, bias))
end

function norms.BatchNorm2d:extra()
    return ('%d, eps = %g, momentum = %g%s'):format(self.c, self.eps, self.momentum,
        self.running_mean and '' or ', track_running_stats = false')
end

return norms
