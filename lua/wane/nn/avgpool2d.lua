--- nn.AvgPool2d(kernel, {stride = kernel, padding = 0, ceil_mode = false, count_include_pad = true}): the mean of each
-- window of an image, x (N, C, H, W) -> (N, C, oh, ow), as tensor:avg_pool2d.
--
-- A size is a number or {rows, columns}.
-- @module wane.nn.avgpool2d
-- @usage print(nn.AvgPool2d(2)(wane.randn(2, 3, 8, 8)).shape) --> (2, 3, 4, 4)

local image = require 'wane.tensor.image'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local AvgPool2d = module.new('AvgPool2d', function(self, kernel, opts)
    rawset(self, '_window', image.avg_pool_window('nn.AvgPool2d', kernel, opts))
end)

function AvgPool2d:forward(x)
    tensor.need_self(x, 'avg_pool2d')
    return image.avg_pool2d(x, self._window)
end

function AvgPool2d:extra()
    return image.pool_text(self._window)
end

return AvgPool2d
