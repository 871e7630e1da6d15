--- nn.Residual(m): returns x + m(x).
--
-- m is a module or a function whose result has the shape of x. Further arguments are passed on to m.
-- @module wane.nn.residual
-- @usage print(nn.Residual(nn.MLP(8))(x).shape) --> (2, 8)

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
