--- Makes the tensors that spec/fixtures/torch_attention.py makes too, and compares results with what PyTorch printed.
local gradcheck = require 'spec.support.gradcheck'
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

--- Fails unless the elements of t are those wanted, to tolerance * max(1, |want|).
-- @param want flat list of numbers
-- @param t tensor
-- @param tolerance number
-- @param what opens the message
function waves.near(want, t, tolerance, what)
    local got = gradcheck.values(t)
    assert(#want == #got, ('%s: %d elements, expected %d'):format(what, #got, #want))
    for k, v in ipairs(want) do
        assert(math.abs(v - got[k]) <= tolerance * math.max(1, math.abs(v)),
            ('%s: element %d is %.12g, expected %.12g'):format(what, k, got[k], v))
    end
end

return waves
