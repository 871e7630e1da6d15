--- nn.Upsample {size =, scale =, mode = 'nearest', align_corners = false}: images in another size, x (N, C, H, W) -> (N,
-- C, oh, ow), as tensor:upsample.
--
-- Either a size or a scale is given, a number or {rows, columns}; mode is 'nearest' or 'bilinear'.
-- @module wane.nn.upsample
-- @usage print(nn.Upsample { scale = 2, mode = 'bilinear' }(wane.randn(2, 3, 4, 4)).shape) --> (2, 3, 8, 8)

local image = require 'wane.tensor.image'
local module = require 'wane.module'
local tensor = require 'wane.tensor'

local Upsample = module.new('Upsample', function(self, opts)
    rawset(self, '_how', image.resampling('nn.Upsample', opts))
end)

function Upsample:forward(x)
    tensor.need_self(x, 'upsample')
    return image.upsample(x, self._how)
end

function Upsample:extra()
    return image.resampling_text(self._how)
end

return Upsample
