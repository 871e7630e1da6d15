--- optim.clip_grad_norm(params, c): scales all gradients so that their joint 2-norm is at most c.
--
-- It is one run point, which computes the norm and multiplies every gradient by min(1, c / (norm + 1e-6)). This is
-- PyTorch's rule: within the limit gradients are multiplied by exactly 1, and a norm that is NaN makes all of them NaN.
-- bf16 gradients are squared and scaled in f32. It returns the norm before clipping, a 0-d tensor; reading it runs
-- nothing. A list without gradients raises 'value'.
-- @module wane.optim.clip
-- @usage
-- loss:backward()
-- local norm = optim.clip_grad_norm(model:parameters(), 1)
-- print(norm:item() > 0) --> true

local errors = require 'wane.errors'
local tensor = require 'wane.tensor'

-- Lists the gradients that the parameters have.
local function gradients(params)
    if tensor.is(params) then params = { params } end
    if type(params) ~= 'table' or params.parameters then -- a module is a table too
        errors.raise(nil, 'value', 'optim.clip_grad_norm: expected a list of parameters (model:parameters()), got %s',
            errors.describe(params))
    end
    local list = {}
    for k, p in ipairs(params) do
        if not tensor.is(p) then
            errors.raise(nil, 'value', 'optim.clip_grad_norm: entry %d must be a parameter, got %s', k,
                errors.describe(p))
        end
        list[#list + 1] = p.grad
    end
    return list
end

local function wide(g)
    return g.dtype == 'bf16' and g:to 'f32' or g
end

return function(params, c)
    if type(c) ~= 'number' or c ~= c or c <= 0 then
        errors.raise(nil, 'value', 'optim.clip_grad_norm: the limit must be a number above 0, got %s',
            errors.describe(c))
    end
    local grads = gradients(params)
    if #grads == 0 then
        errors.raise(nil, 'value', 'optim.clip_grad_norm: no parameter has a gradient; call loss:backward() first')
    end
    local total
    for _, g in ipairs(grads) do
        local x = wide(g)
        local square = (x * x):sum()
        total = total and total + square or square
    end
    local norm, roots = total:sqrt():retain(), {}
    local factor = (c / (norm + 1e-6)):clamp(0, 1)
    for k, g in ipairs(grads) do roots[k] = (wide(g) * factor):to(g.dtype) end
    require('wane.program').run { mode = 'assign', roots = roots, cells = grads }
    return norm
end
