--- optim.EMA(params, {decay = 0.999}): the exponential moving average of parameters, for evaluation.
--
-- `ema:update()` after a step sets average = decay average + (1 - decay) parameter; the average begins as the
-- parameters are when it is made, and is f32 for bf16 parameters, because one step of it is lost in bf16.
-- `ema:apply(fn)` calls a function with the averages in the place of the parameters. (Polyak and Juditsky,
-- "Acceleration of Stochastic Approximation by Averaging", 1992.)
-- @module wane.optim.ema
-- @usage
-- local ema = optim.EMA(model, { decay = 0.9 })
-- opt:step(loss)
-- ema:update()
-- print(ema:apply(model, x).shape) --> (2, 4)

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local groups = require 'wane.optim.groups'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local raise = errors.raise
local what = 'optim.EMA'

local EMA = {}
EMA.__index = EMA
EMA.__describe = function() return 'an optim.EMA' end

function EMA.__tostring(e)
    return ('optim.EMA(%d parameters, decay = %g)'):format(#e._params, e.decay)
end

local function check_decay(v)
    if type(v) ~= 'number' or not (v >= 0 and v <= 1) then
        raise(nil, 'value', '%s: decay must be a number from 0 to 1, got %s', what, errors.describe(v))
    end
    return v
end

-- Returns the parameters of a list, or of a model, and their names: paths, or numbers.
local function named(params)
    local list, names = {}, {}
    if module.is(params) then
        for name, p in params:named_parameters() do
            list[#list + 1], names[#names + 1] = p, name
        end
    elseif type(params) == 'table' and not tensor.is(params) then
        for k = 1, groups.count(params, what) do
            list[k], names[k] = groups.parameter(params, k, what), tostring(k)
        end
    else
        raise(nil, 'value', '%s: expected a model or a list of parameters (model:parameters()), got %s', what,
            errors.describe(params))
    end
    if #list == 0 then raise(nil, 'value', '%s: there are no parameters', what) end
    return list, names
end

-- Raises where a parameter is no more what it was: the model was moved, or cast.
local function check_same(e)
    for k, p in ipairs(e._params) do
        local average = e._averages[k]
        if tensor.typed(p)._device ~= average._device or tensor.widened(p).dtype ~= average.dtype then
            raise(nil, 'value', '%s: the parameter %s is %s on %s now, its average %s on %s; make the EMA after '
                .. 'model:to', what, e._names[k], tensor.describe(p), p.device, tensor.describe(average),
                average.device)
        end
    end
end

--- Takes the parameters into the averages. A run point; call it once a step, after the optimizer's.
-- @usage
-- local ema = optim.EMA(model:parameters(), { decay = 0.99 })
-- opt:step(loss)
-- ema:update()
function EMA:update()
    scoped.sync()
    if self._kept then
        raise(nil, 'value', '%s: update: the averages are in the place of the parameters; call swap_out first', what)
    end
    check_same(self)
    local roots, share = {}, 1 - check_decay(self.decay)
    for k, p in ipairs(self._params) do
        local average = self._averages[k]
        roots[k] = (average + (tensor.widened(p) - average) * share):detach()
    end
    op.run { mode = 'assign', roots = roots, cells = self._averages }
end

--- Puts the averages in the place of the parameters, which are kept until swap_out. A run point.
-- @usage
-- local ema = optim.EMA(model)
-- ema:swap_in()
-- print(model(x).shape) --> (2, 4)
-- ema:swap_out()
function EMA:swap_in()
    scoped.sync()
    if self._kept then raise(nil, 'value', '%s: swap_in: the averages are in place already', what) end
    check_same(self)
    local kept, roots = {}, {}
    for k, p in ipairs(self._params) do
        kept[k] = (p * 1):detach()
        roots[k] = self._averages[k]:to(p.dtype):detach()
    end
    op.run { mode = 'eval', roots = kept }
    op.run { mode = 'assign', roots = roots, cells = self._params }
    self._kept = kept
end

--- Puts the parameters back. A run point.
-- @usage
-- local ema = optim.EMA(model)
-- ema:swap_in()
-- ema:swap_out()
function EMA:swap_out()
    scoped.sync()
    if not self._kept then
        raise(nil, 'value', '%s: swap_out: the parameters are in place; call swap_in first', what)
    end
    op.run { mode = 'assign', roots = self._kept, cells = self._params }
    self._kept = nil
end

-- Runs what a function returned while the averages are in place, puts the parameters back, and passes the results on.
local function finish(e, ok, ...)
    local roots = {}
    for _, value in ipairs(ok and { ... } or {}) do
        if tensor.is(value) then roots[#roots + 1] = value end
    end
    local fine, why = true, nil
    if #roots > 0 then fine, why = errors.pcall(op.run, { mode = 'eval', roots = roots }) end
    e:swap_out()
    if not ok then errors.again((...)) end
    if not fine then errors.again(why) end
    return ...
end

--- Calls fn(...) with the averages in the place of the parameters, and computes the tensors that it returns. The
-- parameters are put back when it fails, too. Returns its results.
-- @param fn function or model
-- @param ... its arguments
-- @usage print(optim.EMA(model):apply(model, x).shape) --> (2, 4)
function EMA:apply(fn, ...)
    if not errors.is_callable(fn) then
        raise(nil, 'value', '%s: apply: expected a function, got %s', what, errors.describe(fn))
    end
    self:swap_in()
    return finish(self, xpcall(fn, errors.handler, ...))
end

--- Returns the averages by name: the paths of the model, or the numbers of the list. The tensors are its own, not
-- copies.
-- @usage
-- local ema = optim.EMA(model)
-- wane.save('ema.safetensors', ema:state_dict())
-- ema:load_state_dict(wane.load 'ema.safetensors')
function EMA:state_dict()
    local dict = {}
    for k, name in ipairs(self._names) do dict[name] = self._averages[k] end
    return dict
end

--- Takes averages back. A run point. Everything is checked before anything is changed.
-- @param dict the state_dict of an equal EMA, or tensors read from a file
-- @raise 'shape' for what does not fit
-- @usage
-- local ema, other = optim.EMA(model), optim.EMA(model)
-- other:load_state_dict(ema:state_dict())
function EMA:load_state_dict(dict)
    if type(dict) ~= 'table' or tensor.is(dict) then
        raise(nil, 'value', '%s: load_state_dict: expected a table of names and tensors, got %s', what,
            errors.describe(dict))
    end
    local roots = {}
    for k, name in ipairs(self._names) do
        local value, average = dict[name], self._averages[k]
        if not tensor.is(value) or tensor.describe(value) ~= tensor.describe(average) then
            raise(nil, 'shape', '%s: load_state_dict: %s must be %s, got %s', what, name, tensor.describe(average),
                errors.describe(value))
        end
        roots[k] = value
    end
    op.run { mode = 'assign', roots = roots, cells = self._averages }
end

--- Makes the average of parameters.
-- @function optim.EMA
-- @param params model, or list of parameters
-- @param opts {decay = 0.999}; `ema.decay` may change at every update
-- @usage print(optim.EMA(model:parameters(), { decay = 0.99 })) --> optim.EMA(4 parameters, decay = 0.99)
return function(params, opts)
    opts = errors.check_options(opts, { 'decay' }, what)
    local e = setmetatable({ decay = check_decay(opts.decay == nil and 0.999 or opts.decay), _averages = {} }, EMA)
    e._params, e._names = named(params)
    local roots = {}
    for k, p in ipairs(e._params) do roots[k] = (tensor.widened(p) * 1):detach() end
    op.run { mode = 'eval', roots = roots }
    for k, value in ipairs(roots) do
        e._averages[k] = create.cell(create.KIND_OPTIMIZER, value, 'ema.' .. e._names[k])
    end
    return e
end
