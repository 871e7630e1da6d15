--- nn.MaxPool2d(kernel, {stride = kernel, padding = 0, ceil_mode = false}): the largest element of each window of an
-- image, x (N, C, H, W) -> (N, C, oh, ow), as tensor:max_pool2d.
--
-- A size is a number or {rows, columns}. Where a gradient flows, a byte a window is kept for it.
-- @module wane.nn.maxpool2d
-- @usage print(nn.MaxPool2d(3, { stride = 2, padding = 1 })(wane.randn(2, 3, 8, 8)).shape) --> (2, 3, 4, 4)

local image = require 'wane.tensor.image'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local MaxPool2d = module.new('MaxPool2d', function(self, kernel, opts)
    rawset(self, '_window', image.max_pool_window('nn.MaxPool2d', kernel, opts))
end)

function MaxPool2d:forward(x)
    tensor.need_self(x, 'max_pool2d')
    return image.max_pool2d(x, self._window)
end

function MaxPool2d:extra()
    return image.pool_text(self._window)
end

return MaxPool2d
