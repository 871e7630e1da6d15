--- The clipping of gradients: optim.clip_grad_norm and optim.clip_grad_value.
-- @module wane.optim.clip

local errors = require 'wane.errors'
local groups = require 'wane.optim.groups'
local tensor = require 'wane.tensor'

local clip = {}

-- Lists the gradients that the parameters have.
local function gradients(params, what)
    if tensor.is(params) then params = { params } end
    local list = {}
    for k = 1, groups.count(params, what) do list[#list + 1] = groups.parameter(params, k, what).grad end
    if #list == 0 then
        errors.raise(nil, 'value', '%s: no parameter has a gradient; call loss:backward() first', what)
    end
    return list
end

local function check_limit(c, what)
    if type(c) ~= 'number' or c ~= c or c <= 0 then
        errors.raise(nil, 'value', '%s: the limit must be a number above 0, got %s', what, errors.describe(c))
    end
end

--- Scales all gradients so that their joint 2-norm is at most c. A run point.
-- It computes the norm and multiplies every gradient by min(1, c / (norm + 1e-6)). This is PyTorch's rule: within the
-- limit gradients are multiplied by exactly 1, and a norm that is NaN makes all of them NaN. bf16 gradients are squared
-- and scaled in f32.
-- @function optim.clip_grad_norm
-- @param params list of parameters
-- @param c number above 0
-- @return the norm before clipping, a 0-d tensor; reading it runs nothing
-- @raise 'value' where no parameter has a gradient
-- @usage
-- loss:backward()
-- local norm = optim.clip_grad_norm(model:parameters(), 1)
-- print(norm:item() > 0) --> true
function clip.norm(params, c)
    local what = 'optim.clip_grad_norm'
    check_limit(c, what)
    local grads = gradients(params, what)
    local total
    for _, g in ipairs(grads) do
        local x = tensor.widened(g)
        local square = (x * x):sum()
        total = total and total + square or square
    end
    local norm, roots = total:sqrt():retain(), {}
    local factor = (c / (norm + 1e-6)):clamp(0, 1)
    for k, g in ipairs(grads) do roots[k] = (tensor.widened(g) * factor):to(g.dtype) end
    require('wane.program').run { mode = 'assign', roots = roots, cells = grads }
    return norm
end

--- Limits every element of all gradients to -c <= g <= c. A run point. NaN stays NaN.
-- @function optim.clip_grad_value
-- @param params list of parameters
-- @param c number above 0
-- @raise 'value' where no parameter has a gradient
-- @usage
-- loss:backward()
-- optim.clip_grad_value(model:parameters(), 1e-3)
-- print(model[1].weight.grad:abs():max():item() <= 1.001e-3) --> true
function clip.value(params, c)
    local what = 'optim.clip_grad_value'
    check_limit(c, what)
    local grads, roots = gradients(params, what), {}
    for k, g in ipairs(grads) do roots[k] = g:clamp(-c, c) end
    require('wane.program').run { mode = 'assign', roots = roots, cells = grads }
end

return errors.strict(clip, 'optim.clip_grad_%s(...)')
