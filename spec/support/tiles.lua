--- The kernels of products built for a spec from their own files, so that every tile of this machine can be tried, also
-- those that a newer one hides: the files ask spec/support/products.c what the processor has.
local helper = require 'spec.helper'
local ffi = require 'ffi'

ffi.cdef 'int products_level(int wanted);'

local tiles = {}

--- What the levels of products_level are.
tiles.LEVEL = { [0] = 'plain C', 'AVX2', 'AVX-512', 'AVX-512 with bf16' }

--- Builds and loads the library.
-- @param more further files and flags, one string
-- @return the library; its functions are declared by the spec
function tiles.build(more)
    local path = os.tmpname()
    local text, code = helper.shell(('gcc -std=c11 -D_GNU_SOURCE -O2 -fopenmp -fPIC -shared -ffp-contract=off '
        .. "'-D__builtin_cpu_supports(x)=spec_supports(x)' -include spec/support/products.h -Wl,-z,defs -o %s %s "
        .. 'spec/support/products.c kernels/cpu/gemm*.c kernels/cpu/walk.c kernels/cpu/stream.c '
        .. 'kernels/cpu/parallel.c runtime/base/type.c runtime/base/status.c -lm'):format(path, more))
    assert(code == 0, text)
    local library = ffi.load(path)
    os.remove(path)
    return library
end

return tiles
