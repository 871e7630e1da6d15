--- Makes the tensors that spec/fixtures/torch_attention.py makes too.
local wane = require 'wane'

local waves = {}

--- Returns a tensor of the numbers sin(k), sin(k + 0.7), sin(k + 1.4) and so on, times a factor.
-- @param shape list of dims
-- @param k number
-- @param opts { dtype = 'f64', factor = 1 }
function waves.fill(shape, k, opts)
    local list, n = {}, 1
    opts = opts or {}
    for _, v in ipairs(shape) do n = n * v end
    for i = 1, n do list[i] = (opts.factor or 1) * math.sin(k + 0.7 * (i - 1)) end
    return wane.tensor(list, { dtype = opts.dtype or 'f64' }):reshape(shape)
end

return waves
