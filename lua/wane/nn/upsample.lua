--- nn.Upsample {size =, scale =, mode = 'nearest', align_corners = false}: images in another size, x (N, C, H, W) ->
-- (N, C, oh, ow), as tensor:upsample.
--
-- Either a size or a scale is given, a number or {rows, columns}; mode is 'nearest' or 'bilinear'.
-- @module wane.nn.upsample
-- @usage print(nn.Upsample { scale = 2, mode = 'bilinear' }(wane.randn(2, 3, 4, 4)).shape) --> (2, 3, 8, 8)

local module = require 'wane.module'
local resize = require 'wane.tensor.resize'
local tensor = require 'wane.tensor'

local Upsample = module.new('Upsample', function(self, opts)
    rawset(self, '_how', resize.how('nn.Upsample', opts))
end)

function Upsample:forward(x)
    tensor.need_self(x, 'upsample')
    return resize.upsample(x, self._how)
end

function Upsample:extra()
    return resize.text(self._how)
end

return Upsample
