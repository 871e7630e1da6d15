--- nn.AdaptiveAvgPool2d(size): the means of windows that cut an image into `size` rows and columns, x (N, C, H, W) ->
-- (N, C, rows, columns), as tensor:adaptive_avg_pool2d.
--
-- The size is a number or {rows, columns}.
-- @module wane.nn.adaptiveavgpool2d
-- @usage print(nn.AdaptiveAvgPool2d(1)(wane.randn(2, 3, 7, 7)).shape) --> (2, 3, 1, 1)

local image = require 'wane.tensor.image'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local AdaptiveAvgPool2d = module.new('AdaptiveAvgPool2d', function(self, size)
    rawset(self, '_window', image.adaptive_window('nn.AdaptiveAvgPool2d', size))
end)

function AdaptiveAvgPool2d:forward(x)
    tensor.need_self(x, 'adaptive_avg_pool2d')
    return image.avg_pool2d(x, self._window)
end

function AdaptiveAvgPool2d:extra()
    return image.text(self._window.kernel)
end

return AdaptiveAvgPool2d
