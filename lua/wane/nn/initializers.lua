--- nn.init: first values of parameters.
--
-- A parameter that no program has run gets another initializer and still takes no storage; one that has a value gets it
-- assigned, which is a run point. Fan-in and fan-out are those of a weight (out, in), or (out, in, rows, columns),
-- where each counts for every place of the kernel. Every function returns its parameter, and raises 'value' for a
-- tensor that is no parameter.
-- @module wane.nn.initializers

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local lazy = require 'wane.lazy'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local initializers = {}

-- Gives p the first value that the creation op `name` with numbers f0 and f1 makes. Returns p.
local function set(p, what, name, f0, f1)
    if module.kinds[p] ~= 'parameter' then
        errors.raise(nil, 'value', '%s: expected a parameter, got %s', what, errors.describe(p))
    end
    op.finite(f0, what)
    op.finite(f1, what)
    local init = create.make(what, op.id[name], tensor.typed(p)._dims,
        { dtype = p.dtype, device = p.device }, { f0, f1, layout = create.layout(p) })
    if op.held(p) then
        p:assign(init)
    else
        module.renew(p, init)
    end
    return p
end

-- Returns fan-in and fan-out of a weight (out, in, ...).
local function fans(p, what)
    local dims = tensor.is(p) and tensor.typed(p)._dims or {}
    if #dims < 2 then
        errors.raise(nil, 'shape', '%s: expected a weight (out, in), got %s', what, errors.describe(p))
    end
    local rest = 1
    for k = 3, #dims do rest = rest * dims[k] end
    return dims[2] * rest, dims[1] * rest
end

--- Draws normal numbers.
-- @param p parameter
-- @param std deviation, 1 unless given
-- @param mean 0 unless given
-- @usage nn.init.normal(model[1].weight, 0.02)
function initializers.normal(p, std, mean) return set(p, 'nn.init.normal', 'normal', mean or 0, std or 1) end

--- Draws numbers that are uniform in [low, high).
-- @param p parameter
-- @param low 0 unless given
-- @param high 1 unless given
-- @usage nn.init.uniform(model[1].weight, -0.1, 0.1)
function initializers.uniform(p, low, high) return set(p, 'nn.init.uniform', 'uniform', low or 0, high or 1) end

--- Sets all elements to a number.
-- @param p parameter
-- @param v number
-- @usage print(nn.init.constant(nn.Parameter(wane.zeros(2)), 3)) --> tensor (2) f32 [3., 3.]
function initializers.constant(p, v) return set(p, 'nn.init.constant', 'full', v, 0) end

--- Sets all elements to 0.
-- @param p parameter
-- @usage nn.init.zeros(model[1].bias)
function initializers.zeros(p) return set(p, 'nn.init.zeros', 'full', 0, 0) end

--- Sets all elements to 1.
-- @param p parameter
-- @usage print(nn.init.ones(nn.Parameter(wane.zeros(2)))) --> tensor (2) f32 [1., 1.]
function initializers.ones(p) return set(p, 'nn.init.ones', 'full', 1, 0) end

--- Draws numbers that are uniform in +-sqrt(6 / ((1 + a^2) fan_in)) (He et al., 2015).
-- @param p parameter of 2 dims at least
-- @param a slope below 0 of the leaky ReLU that follows, 0 unless given; sqrt(5) is nn.Linear's own
-- @raise 'shape' for fewer dims
-- @usage nn.init.kaiming_uniform(model[1].weight)
function initializers.kaiming_uniform(p, a)
    if type(a) ~= 'nil' then op.finite(a, 'nn.init.kaiming_uniform: a') end
    local bound = math.sqrt(6 / ((1 + (a or 0) ^ 2) * fans(p, 'nn.init.kaiming_uniform')))
    return set(p, 'nn.init.kaiming_uniform', 'uniform', -bound, bound)
end

--- Draws normal numbers of deviation sqrt(2 / ((1 + a^2) fan)) (He et al., 2015).
-- @param p parameter of 2 dims at least
-- @param opts {a = 0, mode = 'fan_in'}: slope below 0 of the leaky ReLU that follows; 'fan_out' keeps the size of
-- gradients instead of that of values
-- @raise 'shape' for fewer dims
-- @usage nn.init.kaiming_normal(nn.Conv2d(3, 8, 3).weight, { mode = 'fan_out' })
function initializers.kaiming_normal(p, opts)
    local what = 'nn.init.kaiming_normal'
    opts = errors.check_options(opts, { 'a', 'mode' }, what)
    local mode = opts.mode or 'fan_in'
    if mode ~= 'fan_in' and mode ~= 'fan_out' then
        errors.raise(nil, 'value', "%s: mode must be 'fan_in' or 'fan_out', got %s", what, errors.describe(mode))
    end
    local a = op.finite(opts.a or 0, what .. ': a')
    local fan_in, fan_out = fans(p, what)
    return set(p, what, 'normal', 0, math.sqrt(2 / ((1 + a ^ 2) * (mode == 'fan_in' and fan_in or fan_out))))
end

--- Draws numbers that are uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
-- @param p parameter of 2 dims at least
-- @param gain 1 unless given
-- @raise 'shape' for fewer dims
-- @usage nn.init.xavier_uniform(model[3].weight)
function initializers.xavier_uniform(p, gain)
    if type(gain) ~= 'nil' then op.finite(gain, 'nn.init.xavier_uniform: gain') end
    local fan_in, fan_out = fans(p, 'nn.init.xavier_uniform')
    local bound = (gain or 1) * math.sqrt(6 / (fan_in + fan_out))
    return set(p, 'nn.init.xavier_uniform', 'uniform', -bound, bound)
end

errors.strict(initializers, 'nn.init.%s(...)')

return lazy('nn.init', {}, initializers)
