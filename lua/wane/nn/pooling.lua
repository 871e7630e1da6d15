--- Layers that make images of another size: pools and upsampling. They have no parameters.
-- @module wane.nn.pooling

local image = require 'wane.tensor.image'
local module = require 'wane.module'
local resize = require 'wane.tensor.resize'
local tensor = require 'wane.tensor'

local pooling = {}

-- Adds the class `name`, as the tensor's method `method`: how_of reads what a layer is made with, record(x, how)
-- computes, and text(how) is what the layer shows behind its name.
local function layer(name, method, how_of, record, text)
    local class = module.new(name, function(self, ...)
        rawset(self, '_how', how_of('nn.' .. name, ...))
    end)
    function class:forward(x)
        tensor.need_self(x, method)
        return record(x, self._how)
    end
    function class:extra()
        return text(self._how)
    end
    pooling[name] = class
end

local function size_text(window) return image.text(window.kernel) end

--- nn.MaxPool2d(kernel, {stride = kernel, padding = 0, ceil_mode = false}): the largest element of each window of an
-- image, x (N, C, H, W) -> (N, C, oh, ow), as tensor:max_pool2d.
--
-- A size is a number or {rows, columns}. Where a gradient flows, a byte a window is kept for it.
-- @function nn.MaxPool2d
-- @usage print(nn.MaxPool2d(3, { stride = 2, padding = 1 })(wane.randn(2, 3, 8, 8)).shape) --> (2, 3, 4, 4)
layer('MaxPool2d', 'max_pool2d', image.max_pool_window, image.max_pool2d, image.pool_text)

--- nn.AvgPool2d(kernel, {stride = kernel, padding = 0, ceil_mode = false, count_include_pad = true}): the mean of each
-- window of an image, x (N, C, H, W) -> (N, C, oh, ow), as tensor:avg_pool2d.
--
-- A size is a number or {rows, columns}.
-- @function nn.AvgPool2d
-- @usage print(nn.AvgPool2d(2)(wane.randn(2, 3, 8, 8)).shape) --> (2, 3, 4, 4)
layer('AvgPool2d', 'avg_pool2d', image.avg_pool_window, image.avg_pool2d, image.pool_text)

--- nn.AdaptiveAvgPool2d(size): the means of windows that cut an image into `size` rows and columns, x (N, C, H, W) ->
-- (N, C, rows, columns), as tensor:adaptive_avg_pool2d.
--
-- The size is a number or {rows, columns}.
-- @function nn.AdaptiveAvgPool2d
-- @usage print(nn.AdaptiveAvgPool2d(1)(wane.randn(2, 3, 7, 7)).shape) --> (2, 3, 1, 1)
layer('AdaptiveAvgPool2d', 'adaptive_avg_pool2d', image.adaptive_window, image.avg_pool2d, size_text)

--- nn.Upsample {size =, scale =, mode = 'nearest', align_corners = false}: images in another size, x (N, C, H, W) ->
-- (N, C, oh, ow), as tensor:upsample.
--
-- Either a size or a scale is given, a number or {rows, columns}; mode is 'nearest' or 'bilinear'.
-- @function nn.Upsample
-- @usage print(nn.Upsample { scale = 2, mode = 'bilinear' }(wane.randn(2, 3, 4, 4)).shape) --> (2, 3, 8, 8)
layer('Upsample', 'upsample', resize.how, resize.upsample, resize.text)

return pooling
