--- nn.ConvTranspose2d(i, o, kernel, {stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1, bias =
-- true, dtype =, device =, layout =}): the transposed convolution of images, x (N, i, H, W) -> (N, o, oh, ow), as
-- tensor:conv_transpose2d.
--
-- A size is a number or {rows, columns}. Its parameters are weight (i, o / groups, rows, columns) and bias (o), at
-- first uniform in +-1/sqrt(o / groups rows columns), as PyTorch's are. layout is as nn.Conv2d's.
-- @module wane.nn.convtranspose2d
-- @usage
-- local up = nn.ConvTranspose2d(16, 8, 2, { stride = 2 })
-- print(up(wane.randn(2, 16, 4, 4)).shape, up.weight.shape) --> (2, 8, 8, 8)	(16, 8, 2, 2)

local convolution = require 'wane.nn.convolution'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local ConvTranspose2d = module.new('ConvTranspose2d', function(self, n_in, n_out, kernel, opts)
    convolution.fill(self, 'nn.ConvTranspose2d', { n_in, n_out, is_transposed = true }, kernel, opts)
end)

function ConvTranspose2d:forward(x)
    tensor.need_self(x, 'conv_transpose2d')
    return image.conv_transpose2d(x, self.weight, self.bias, self._window)
end

ConvTranspose2d.extra = convolution.text

return ConvTranspose2d
