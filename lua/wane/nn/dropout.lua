--- nn.Dropout(p = 0.5): in training, zeroes each element with probability p and scales the others by 1 / (1 - p).
--
-- In evaluation, and for p = 0, it records nothing and returns its input. The mask is never stored: the backward draws
-- the same numbers again.
-- @module wane.nn.dropout
-- @usage
-- local dropout = nn.Dropout(0.1)
-- print(dropout(x).shape) --> (2, 8)
-- dropout:eval()
-- print(dropout(x) == x) --> true

local arith = require 'wane.tensor.arith'
local errors = require 'wane.errors'
local module = require 'wane.module'

local dropout = arith.dropout

local Dropout = module.new('Dropout', function(self, p)
    if p == nil then p = 0.5 end
    if type(p) ~= 'number' or not (p >= 0 and p < 1) then
        errors.raise(nil, 'value', 'nn.Dropout: p must be a number from 0 to below 1, got %s', errors.describe(p))
    end
    self.p = p
end)

function Dropout:forward(x)
    if not self.training or self.p == 0 then return x end
    return dropout(x, self.p)
end

function Dropout:extra()
    return tostring(self.p)
end

return Dropout
