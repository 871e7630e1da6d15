--- The weights and biases of layers that are at first uniform.
-- @internal wane.nn.weights

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'

--- Returns a function(name, dims, is_weight) that gives a layer a parameter, uniform in +-bound.
--
-- A weight has the layout that products or convolutions on its device read fastest, a bias the plain one.
-- @param layer that gets the parameters
-- @param what opens messages
-- @param bound of the first values
-- @param opts { dtype =, device =, layout = 'plain', or nil for the device's own }
return function(layer, what, bound, opts)
    local is_plain, place = opts.layout == 'plain', { dtype = opts.dtype, device = opts.device }
    if opts.layout ~= nil and not is_plain then
        errors.raise(nil, 'value', "%s: layout must be 'plain' or nil (the device's own), got %s", what,
            errors.describe(opts.layout))
    end
    local device = opts.device ~= nil and op.device(opts.device, what) or nil
    return function(name, dims, is_weight)
        local layout = is_weight and not is_plain and create.weight_layout(dims, device) or 0
        local init = create.make(what, op.id.uniform, dims, place, { -bound, bound, layout = layout })
        local p = module.parameter(init, name)
        if is_weight then rawset(p, '_is_weight', not is_plain) end -- model:to lays it out as the device likes
        layer[name] = p
    end
end
