--- Builds the kernels of products for a spec from their own files, once for each class of processors, so that every
-- micro-kernel that this machine runs can be tried in one process.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local ffi = require 'ffi'

ffi.cdef [[
int products_here(void);
void products_bf16(int with);
]]

local tiles = {}

-- The compiler: aarch64.sh names another one, for libraries that the emulator loads.
local CC = os.getenv 'WANE_SPEC_CC' or 'gcc'

local IS_ARM = jit.arch == 'arm64'
--- The levels of micro-kernels: those of the classes, and those of bf16 beside avx512's.
tiles.LEVEL = IS_ARM and { [0] = 'plain', 'neon' } or { [0] = 'plain', 'avx2', 'avx512', 'avx512 with bf16' }
local CLASS = IS_ARM and tiles.LEVEL or { [0] = 'plain', 'avx2', 'avx512', 'avx512' }
local OWN_FLAGS = { avx512 = '-mavx512bf16', neon = '-DPRODUCTS_NEON' }

--- Returns the classes of build/libwane.so that this processor runs, slowest first; true under the name of each.
function tiles.here()
    local out, text = {}, helper.shell 'WANE_LIB= WANE_KERNELS=none build/wane version'
    for name in (text:match '%(auto, ([^)]*)%)' or ''):gmatch '%w+' do out[#out + 1], out[name] = name, true end
    return out
end

--- Returns the kernels' files of a class, and its flags, for a compiler command. `files`: those of kernels/cpu.
function tiles.sources(class, files)
    local flags = helper.lines(('make -s --no-print-directory CC=%s flags-%s'):format(CC, class))[1] or ''
    return ('%s -fno-math-errno -fno-trapping-math %s %s'):format(files, flags, OWN_FLAGS[class] or '')
end

--- Returns the files of kernels/cpu/gemm that compute a product, without those that find the kernel of an op.
function tiles.drivers()
    return helper.lines "ls kernels/cpu/gemm/*.c | grep -v '/matmul\\|/product_update'"
end

local function build(class)
    return native.load('tiles-' .. class .. '.so', CC .. ' -std=c11 -D_GNU_SOURCE -O2 -fopenmp-simd -pthread -fPIC '
        .. '-shared -ffp-contract=off -DWN_GEMM_TASK=65536 -Wl,-z,defs -o %s '
        .. tiles.sources(class, 'spec/support/products.c spec/support/product_updates.c '
            .. 'kernels/cpu/gemm/product_update.c kernels/cpu/element/update.c ' .. table.concat(tiles.drivers(), ' ')
            .. ' kernels/cpu/common/broadcast.c kernels/cpu/common/nontemporal.c kernels/cpu/backend/parallel.c '
            .. 'kernels/cpu/backend/team.c runtime/base/type.c runtime/base/status.c '
            .. 'kernels/cpu/' .. class .. '/gemm*.c')
        .. ' -lm')
end

local built = {}

--- Returns the library of products (products.c) and of products that go into updates (product_updates.c) at a level;
-- nil where this processor lacks the level. Tasks are small (WN_GEMM_TASK), so that small products have many. The
-- functions are declared by the specs.
function tiles.at(level)
    local class = CLASS[level]
    built[class] = built[class] or build(class)
    local library = built[class]
    if library.products_here() < (level == 3 and 2 or 1) then return nil end
    library.products_bf16(level == 3 and 1 or 0)
    return library
end

return tiles
