--- optim.clip_grad_norm(params, c): scales all gradients so that their joint 2-norm is at most c.
--
-- Two run points: the norm, and, when it is above c, one program that assigns every gradient. Returns the norm before
-- clipping, a 0-d tensor. As PyTorch: the factor is c / (norm + 1e-6), limited to 1.
-- @module wane.optim.clip

local errors = require 'wane.errors'
local op = require 'wane.op'
local tensor = require 'wane.tensor'

local function gradients(params)
    if tensor.is(params) then params = { params } end
    if type(params) ~= 'table' then
        errors.raise(nil, 'value', 'optim.clip_grad_norm: expected a list of parameters, got %s',
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
        local square = (g * g):sum()
        total = total and total + square or square
    end
    local norm = total:sqrt()
    op.eval { norm }
    if norm:item() + 1e-6 > c then
        local factor = (norm + 1e-6):pow(-1) * c
        local roots = {}
        for k, g in ipairs(grads) do roots[k] = g * factor end
        require('wane.program').run { mode = 'assign', roots = roots, cells = grads }
    end
    return norm
end
