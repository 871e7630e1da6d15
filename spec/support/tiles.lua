--- Builds the kernels of products for a spec from their own files, so that every micro-kernel of this machine can be
-- tried, also those that a newer one hides: the files ask spec/support/products.c what the processor has.
local native = require 'spec.support.native'
local ffi = require 'ffi'

ffi.cdef 'int products_level(int wanted);'

local tiles = {}

--- The names of the levels of products_level.
tiles.LEVEL = { [0] = 'plain C', 'AVX2', 'AVX-512', 'AVX-512 with bf16' }

--- Returns the library of products (products.c) and of products that go into updates (product_updates.c). Tasks are
-- small (WN_GEMM_TASK), so that small products have many. The functions are declared by the specs.
function tiles.build()
    return native.load('tiles.so', 'gcc -std=c11 -D_GNU_SOURCE -O2 -fopenmp -fPIC -shared -ffp-contract=off '
        .. "'-D__builtin_cpu_supports(x)=spec_supports(x)' -include spec/support/products.h -DWN_GEMM_TASK=65536 "
        .. '-Wl,-z,defs -o %s spec/support/products.c spec/support/product_updates.c kernels/cpu/product_update.c '
        .. 'kernels/cpu/update.c kernels/cpu/gemm/*.c kernels/cpu/broadcast.c kernels/cpu/nontemporal.c '
        .. 'kernels/cpu/parallel.c '
        .. 'runtime/base/type.c runtime/base/status.c -lm')
end

return tiles
