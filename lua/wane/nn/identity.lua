--- nn.Identity(): returns its input; a place holder for a layer taken out.
-- @module wane.nn.identity

local module = require 'wane.module'

local Identity = module.new('Identity')

function Identity:forward(x) -- luacheck: no self
    return x
end

return Identity
