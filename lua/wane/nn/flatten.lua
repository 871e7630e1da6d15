--- nn.Flatten(from = 2, to = -1): dims from..to merged into one; the batch dim stays.
-- @module wane.nn.flatten

local module = require 'wane.module'
local tensor = require 'wane.tensor'

local Flatten = module.new('Flatten', function(self, from, to)
    self.first, self.last = from or 2, to or -1
end)

function Flatten:forward(x)
    tensor.need_self(x, 'flatten')
    if self.first == 2 and self.last == -1 and tensor.typed(x)._ndim == 1 then return x:unsqueeze(2) end
    return x:flatten(self.first, self.last)
end

return Flatten
