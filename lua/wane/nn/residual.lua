--- nn.Residual(m): x + m(x).
-- @module wane.nn.residual

local errors = require 'wane.errors'
local module = require 'wane.module'

local Residual = module.new('Residual', function(self, body)
    if not module.is(body) and type(body) ~= 'function' then
        errors.raise(nil, 'value', 'nn.Residual: expected a module or a function, got %s', errors.describe(body))
    end
    self.body = body
end)

function Residual:forward(x, ...)
    return x + self.body(x, ...)
end

return Residual
