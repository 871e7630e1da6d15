--- nn.Flatten(from = 2, to = -1): merges the dims from `from` to `to` into one; the first dim, the batch, stays.
-- @module wane.nn.flatten
-- @usage print(nn.Flatten()(wane.randn(2, 3, 4)).shape) --> (2, 12)

local module = require 'wane.module'
local tensor = require 'wane.tensor'

local Flatten = module.new('Flatten', function(self, from, to)
    self.first, self.last = from or 2, to or -1
end)

function Flatten:forward(x)
    tensor.need_self(x, 'flatten')
    if self.first == 2 and self.last == -1 and #tensor.typed(x)._dims == 1 then return x:unsqueeze(2) end
    return x:flatten(self.first, self.last)
end

return Flatten
