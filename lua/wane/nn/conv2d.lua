--- nn.Conv2d(i, o, kernel, {stride = 1, padding = 0, dilation = 1, groups = 1, bias = true, dtype =, device =,
-- layout =}): the convolution of images, x (N, i, H, W) -> (N, o, oh, ow), as tensor:conv2d.
--
-- A size is a number or {rows, columns}; padding = 'same' keeps rows and columns, for stride 1 and an odd kernel,
-- 'valid' pads nothing. It is one node with one rounding. Its parameters are weight (o, i / groups, rows, columns) and
-- bias (o), at first uniform in +-1/sqrt(i / groups rows columns), as PyTorch's are. The weight has the layout that
-- convolutions on its device read fastest, as nn.Linear's has; layout = 'plain' is for a weight that other ops read at
-- every step.
-- @module wane.nn.conv2d
-- @usage
-- local conv = nn.Conv2d(3, 16, 3, { padding = 1 })
-- print(conv(wane.randn(2, 3, 8, 8)).shape, conv.weight.shape) --> (2, 16, 8, 8)	(16, 3, 3, 3)

local convolution = require 'wane.nn.convolution'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local Conv2d = module.new('Conv2d', function(self, n_in, n_out, kernel, opts)
    convolution.fill(self, 'nn.Conv2d', { n_in, n_out }, kernel, opts)
end)

function Conv2d:forward(x)
    tensor.need_self(x, 'conv2d')
    return image.conv2d(x, self.weight, self.bias, self._window)
end

Conv2d.extra = convolution.text

return Conv2d
