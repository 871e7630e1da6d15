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
-- @module wane.nn.batchnorm2d
-- @usage
-- local norm = nn.BatchNorm2d(3)
-- local images = wane.randn(4, 3, 5, 5)
-- print(norm(images).shape, #norm:parameters(), #norm:buffers()) --> (4, 3, 5, 5)	2	2

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local C, id = binding.C, op.id
local OPTIONS = { 'eps', 'momentum', 'affine', 'track_running_stats', 'dtype', 'device' }

local BatchNorm2d = module.new('BatchNorm2d', function(self, c, opts)
    opts = errors.check_options(opts, OPTIONS, 'nn.BatchNorm2d')
    errors.check_flags(opts, { 'affine', 'track_running_stats' }, 'nn.BatchNorm2d')
    self.c = op.size(c, 'nn.BatchNorm2d: channels', 1)
    self.eps = op.finite(opts.eps or 1e-5, 'nn.BatchNorm2d: eps')
    self.momentum = op.finite(opts.momentum or 0.1, 'nn.BatchNorm2d: momentum')
    if self.momentum < 0 or self.momentum > 1 then
        errors.raise(nil, 'value', 'nn.BatchNorm2d: momentum must be from 0 to 1, got %g', self.momentum)
    end
    local place = { dtype = opts.dtype or 'f32', device = opts.device }
    if opts.affine ~= false then
        self.weight = module.parameter(create.ones({ c }, place), 'weight')
        self.bias = module.parameter(create.zeros({ c }, place), 'bias')
    end
    if opts.track_running_stats ~= false then
        self.running_mean = module.buffer(create.zeros({ c }, place), 'running_mean')
        self.running_var = module.buffer(create.ones({ c }, place), 'running_var')
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
    local at = op.attrs()
    at.f[0] = self.eps
    local rstd = op.binary(id.channel_rstd, x, mean, at)
    if self.running_mean then follow(self, mean, rstd, n) end
    return mean, rstd
end

function BatchNorm2d:forward(x)
    local n = check(self, x)
    x = image.channels_last(op.wide(x))
    local weight, bias = self.weight, self.bias
    if not weight then
        local place = { dtype = x.dtype, device = x.device }
        weight, bias = create.ones({ self.c }, place), create.zeros({ self.c }, place)
    end
    local mean, rstd = self.running_mean
    if self.training or not mean then
        mean, rstd = of_batch(self, x, n)
    else
        rstd = (self.running_var + self.eps):rsqrt()
    end
    return (op.quinary(id.batch_norm, x, mean, rstd, weight, bias))
end

function BatchNorm2d:extra()
    return ('%d, eps = %g, momentum = %g%s'):format(self.c, self.eps, self.momentum,
        self.running_mean and '' or ', track_running_stats = false')
end

return BatchNorm2d
