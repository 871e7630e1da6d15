--- nn.init: what parameters start as. nn.init.normal(p, std), nn.init.uniform(p, low, high), zeros, ones, constant,
-- kaiming_uniform(p, a), xavier_uniform(p, gain).
--
-- A parameter that nothing has run yet gets another beginning and still takes no storage; one that has a value
-- gets it assigned, which is a run point. Fan-in and fan-out are those of a weight (out, in).
-- @module wane.nn.start

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local start = {}

local function set(p, what, name, f0, f1)
    if not tensor.is(p) or not rawget(p, '_parameter') then
        errors.raise(nil, 'value', '%s: expected a parameter, got %s', what, errors.describe(p))
    end
    op.finite(f0, what)
    op.finite(f1, what)
    local init = create.make(what, op.id[name], tensor.typed(p)._dims, f0, f1,
        { dtype = p.dtype, device = p.device }, nil, create.layout(p))
    if op.held(p) then
        p:assign(init)
    else
        module.renew(p, init)
    end
    return p
end

local function fans(p, what)
    local dims = tensor.is(p) and tensor.typed(p)._dims or {}
    if #dims < 2 then
        errors.raise(nil, 'shape', '%s: expected a weight (out, in), got %s', what, errors.describe(p))
    end
    local rest = 1
    for k = 3, #dims do rest = rest * dims[k] end
    return dims[2] * rest, dims[1] * rest
end

--- Normal with deviation std and mean 0 (or mean). Returns p.
function start.normal(p, std, mean) return set(p, 'nn.init.normal', 'normal', mean or 0, std or 1) end

--- Uniform in [low, high). Returns p.
function start.uniform(p, low, high) return set(p, 'nn.init.uniform', 'uniform', low or 0, high or 1) end

--- All elements v; zeros; ones. Returns p.
function start.constant(p, v) return set(p, 'nn.init.constant', 'full', v, 0) end
function start.zeros(p) return set(p, 'nn.init.zeros', 'full', 0, 0) end
function start.ones(p) return set(p, 'nn.init.ones', 'full', 1, 0) end

--- Uniform in +-sqrt(6 / ((1 + a^2) fan_in)). He et al., 2015. a = sqrt(5) is nn.Linear's own.
function start.kaiming_uniform(p, a)
    if type(a) ~= 'nil' then op.finite(a, 'nn.init.kaiming_uniform: a') end
    local bound = math.sqrt(6 / ((1 + (a or 0) ^ 2) * fans(p, 'nn.init.kaiming_uniform')))
    return set(p, 'nn.init.kaiming_uniform', 'uniform', -bound, bound)
end

--- Uniform in +-gain sqrt(6 / (fan_in + fan_out)). Glorot and Bengio, 2010.
function start.xavier_uniform(p, gain)
    if type(gain) ~= 'nil' then op.finite(gain, 'nn.init.xavier_uniform: gain') end
    local fan_in, fan_out = fans(p, 'nn.init.xavier_uniform')
    local bound = (gain or 1) * math.sqrt(6 / (fan_in + fan_out))
    return set(p, 'nn.init.xavier_uniform', 'uniform', -bound, bound)
end

return setmetatable(start, {
    __index = function(_, name)
        errors.raise(nil, 'value', "nn.init has no '%s'; %s", tostring(name), errors.near(name, start))
    end,
})
