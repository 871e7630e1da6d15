--- The clipping of gradients: optim.clip_grad_norm and optim.clip_grad_value.
-- @module wane.optim.clip

local errors = require 'wane.errors'
local groups = require 'wane.optim.groups'
local op = require 'wane.tensor.op'
local program = require 'wane.program'
local ranks = require 'wane.program.ranks'
local squares_of = require 'wane.optim.squares'
local tensor = require 'wane.tensor'

local clip = {}

-- Lists the parameters that have gradients, and their gradients, of which this rank may have a range alone.
local function gradients(params, what)
    if tensor.is(params) then params = { params } end
    local list, of = {}, {}
    for k = 1, groups.count(params, what) do
        local p = groups.parameter(params, k, what)
        local g = tensor.own_grad(p)
        if g then list[#list + 1], of[#of + 1] = g, p end
    end
    if #list == 0 then
        errors.raise(nil, 'value', '%s: no parameter has a gradient; call loss:backward() first', what)
    end
    return list, of
end

local function check_limit(c, what)
    if type(c) ~= 'number' or c ~= c or c <= 0 then
        errors.raise(nil, 'value', '%s: the limit must be a number above 0, got %s', what, errors.describe(c))
    end
end

--- Scales all gradients so that their joint 2-norm is at most c. A run point.
-- It computes the norm and multiplies every gradient by min(1, c / (norm + 1e-6)). This is PyTorch's rule: within the
-- limit gradients are multiplied by exactly 1, and a norm that is NaN makes all of them NaN. Squares are summed in f64;
-- bf16 gradients are scaled in f32. On several ranks all call it, and each has the norm of all ranges.
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
    local grads, of = gradients(params, what)
    local squares, total = {}, nil
    for k, g in ipairs(grads) do squares[k] = op.record('squares', { g }) end
    if ranks.size > 1 then squares_of.gather(squares, of) end
    for _, square in ipairs(squares) do
        local one = square:sum()
        total = total and total + one or one
    end
    local norm, roots = total:sqrt():to(grads[1].dtype == 'f64' and 'f64' or 'f32'):retain(), {}
    local factor = (c / (norm + 1e-6)):clamp(0, 1)
    for k, g in ipairs(grads) do roots[k] = (tensor.widened(g) * factor):to(g.dtype) end
    program.run { mode = 'assign', roots = roots, cells = grads }
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
    program.run { mode = 'assign', roots = roots, cells = grads }
end

return errors.strict(clip, 'optim.clip_grad_%s(...)')
