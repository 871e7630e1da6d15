--- nn.Identity(): returns its input; it stands in for a layer that is taken out.
-- @module wane.nn.identity
-- @usage print(nn.Identity()(x) == x) --> true

local module = require 'wane.module'

local Identity = module.new('Identity')

function Identity:forward(x) -- luacheck: no self
    return x
end

return Identity
