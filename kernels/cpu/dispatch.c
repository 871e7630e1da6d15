/* The backend of the CPU: the one symbol of this folder that the runtime links with (runtime/device/cpu.c, and the
 * registry for plans that are made for a CPU elsewhere).
 *
 * An application finds its kernel in two steps: the op table names the family, the family picks by dtype. A family that
 * is not built is a link error; an op that its family forgot gives NULL here and fails spec/op_spec.lua. */
#include <stddef.h>
#include "cpu.h"
#include "gemm/gemm.h"
#include "library.h"
#include "onednn.h"

static wn_kernel_fn wn__cpu_leaf_kernel(const struct wn_desc *d)
{
    (void)d;
    return NULL; /* the runtime makes leaves */
}

typedef wn_kernel_fn (*family_lookup)(const struct wn_desc *d);

static const family_lookup lookup[WN_OP_COUNT] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions, saves)                                    \
    [WN_OP_##NAME] = wn__cpu_##family##_kernel,
#include "../../runtime/op.def"
#undef OP
};

wn_kernel_fn wn_cpu_kernel(const struct wn_desc *d)
{
    if (d->op < 0 || d->op >= WN_OP_COUNT) return NULL;
    return lookup[d->op](d);
}

static void start(enum wn_library_use use, struct wn__target *t)
{
    t->threads = wn_cpu_threads();
    wn__cpu_library_start(use, t);
}

/* The rates are those of a generic core; `wane profile` measures this machine's. */
const struct wn__backend wn__backend_cpu = {
    .target = {.name = "cpu",
               .is_unified_memory = 1,
               .threads = 1,
               .weight_layout = WN_PANEL48,
               .rates = {.f64 = 25e9,
                         .f32 = 50e9,
                         .bf16 = 50e9,
                         .bytes = 20e9,
                         .launch = 1e-6,
                         .out = {8e9, 1.5e9},
                         .in = {8e9, 1.5e9}},
               .workspace = wn__cpu_workspace,
               .is_library_product = wn__cpu_is_library_product},
    .start = start,
    .find = wn_cpu_kernel,
    .prepare = wn__cpu_prepare_product,
    .name = wn__gemm_name,
    .library_name = wn__cpu_library_text,
    .n_prepared = wn__onednn_ready,
};
