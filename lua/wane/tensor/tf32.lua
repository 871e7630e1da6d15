--- wane.tf32(on): products of f32 on a GPU by tensor cores, with operands rounded to tf32.
--
-- tf32 has the exponent of f32 and 10 bits of fraction; sums stay f32. It is off unless asked for, since it changes
-- bits: products of f32 lose about 3 digits and are several times as fast. It counts for products that cuBLASLt
-- computes (kernels/cuda/cublaslt.h), and for convolutions that cuDNN computes (kernels/cuda/cudnn.h): products of at
-- most 128 terms between matrices, and those of at most 64 rows or columns, stay f32.
-- @module wane.tensor.tf32

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local C = binding.C

--- Lets products of f32 on a GPU use tf32, or not. Plans that were made before are not used again while it differs.
-- @function wane.tf32
-- @param on true or false; nil asks
-- @return whether it was on
-- @raise 'unsupported' where there is no GPU of sm_80 or later with cuBLASLt or cuDNN
-- @usage print(wane.tf32()) --> false
return function(on)
    if on ~= nil and type(on) ~= 'boolean' then
        errors.raise(nil, 'value', 'wane.tf32: expected true, false or nil, got %s', errors.describe(on))
    end
    local before = C.wn_tf32(on == nil and -1 or on and 1 or 0)
    if before < 0 then binding.check(-before) end
    return before == 1
end
