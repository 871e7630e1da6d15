/* See library.h. Which products a library computes follows from the description and the target alone, so that a plan
 * made elsewhere has the same workspaces and the same bits. */
#include "library.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "../cpu.h"
#include "class.h"
#include "onednn.h"

/* ---- which processors ---------------------------------------------------------------------------------- */

/* Returns whether the processor has AMX, which oneDNN uses and Wane's own kernels do not; 0 where WANE_KERNELS names a
 * class below that of such a processor. */
static int32_t has_amx(void)
{
    if (strcmp(wn__cpu_class()->name, "avx512") != 0) return 0;
#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__clang__) /* the name is unknown to some of its versions */
    return 0;
#else
    return __builtin_cpu_supports("amx-bf16") != 0;
#endif
#else
    return 0;
#endif
}

/* Bytes of scratch that a product may take for each thread.
 * Measured: products up to 4096 x 4096 x 4096 take up to 1.7 MiB a thread; those that want more give each thread a
 * whole copy of the result (oneDNN 2.6.3 and 3.2, AVX-512: 600 MiB with 64 threads for 3072 x 768 x 2048). */
#define SCRATCH_A_THREAD (2 << 20)

static int32_t chosen_use, chosen_dtypes;

void wn__cpu_library_start(int32_t use, struct wn__target *t)
{
    chosen_use = use;
    chosen_dtypes = 0;
    t->library = 0;
    t->library_scratch = 0;
    t->weight_layout = WN_PANEL48;
    if (use == WN_LIBRARY_OFF || (use == WN_LIBRARY_AUTO && !has_amx()) || !wn__onednn_open(NULL)) return;
    if (wn__onednn_has(WN_BF16)) chosen_dtypes |= 1 << WN_BF16;
    if (use == WN_LIBRARY_ON && wn__onednn_has(WN_F32)) chosen_dtypes |= 1 << WN_F32;
    if (chosen_dtypes == 0) return;
    t->library = chosen_dtypes;
    t->library_scratch = (int64_t)SCRATCH_A_THREAD * wn_cpu_threads();
    t->weight_layout = WN_PLAIN;
}

int32_t wn__cpu_library_use(void)
{
    return chosen_use;
}

const char *wn__cpu_library_text(void)
{
    static char line[192];
    static const char *const makes[] = {"makes large products of f32", "makes large products of bf16",
                                        "makes large products of f32 and bf16"};
    int32_t f32 = chosen_dtypes >> WN_F32 & 1, bf16 = chosen_dtypes >> WN_BF16 & 1;
    const char *what = chosen_dtypes != 0 ? makes[f32 + 2 * bf16 - 1]
                       : chosen_use == WN_LIBRARY_ON || has_amx()
                           ? "has no products for this processor without memory of its own: own kernels are used"
                           : "is there and not used: without AMX own kernels are as fast";
    if (chosen_use == WN_LIBRARY_OFF) return "off: own kernels are used";
    if (wn__onednn_open(NULL))
        snprintf(line, sizeof line, "%s %s%s", wn__onednn_text(), what,
                 chosen_use == WN_LIBRARY_AUTO && bf16 ? ", with AMX" : "");
    else snprintf(line, sizeof line, "%s: own kernels are used", wn__onednn_text());
    return line;
}

/* ---- which products ------------------------------------------------------------------------------------ */

/* The library computes products of at least LIBRARY_LEAST multiply-adds whose M, N and K are each at least
 * LIBRARY_LEAST_DIM: smaller ones pay for the call, and scratch is to be small beside the operands.
 * Measured: own kernels / oneDNN 2.6: 0.44 to 0.88 at 32 x 32 x 32, 0.97 to 1.13 from 192 x 192 x 192 on (AVX-512, one
 * thread, spec/bench/onednn.lua). */
#define LIBRARY_LEAST 4194304.0
#define LIBRARY_LEAST_DIM 16

struct product {
    int64_t m, k, n; /* op(a) is (m, k), op(b) is (k, n) */
};

static struct product sizes(const struct wn_desc *d)
{
    const struct wn_type *a = &d->in[0], *b = &d->in[1];
    int32_t ta = d->attrs.i[0] != 0, tb = d->attrs.i[1] != 0;
    const int64_t *x = a->dim + a->ndim - 2, *y = b->dim + b->ndim - 2; /* the last two dims */
    return (struct product){.m = x[ta], .k = x[!ta], .n = y[!tb]};
}

/* Returns the product of all dims but the last two. */
static int64_t leading(const struct wn_type *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim - 2; i++) n *= t->dim[i];
    return n;
}

/* Returns whether a MATMUL is a batch that the library takes: every product has its own a and b, or all share b, which
 * makes them one product of more rows. Other broadcasts read one matrix many times. A product of f32 matrices with k <=
 * WN_PRODUCT_UPDATE_ROWS stays with the own kernels, because a rewrite may put it into an update (plan/ir/rewrite.c),
 * and its bits must be the same with the update and without. */
static int32_t is_library_batch(const struct wn_desc *d, const struct product *p)
{
    const struct wn_type *a = &d->in[0], *b = &d->in[1];
    int64_t na = leading(a), nb = leading(b);
    if (a->ndim == 2 && b->ndim == 2) return d->out.dtype != WN_F32 || p->k > WN_PRODUCT_UPDATE_ROWS;
    if (nb == 1 && a->ndim >= b->ndim) return d->attrs.i[0] == 0 || na == 1;
    if (a->ndim != b->ndim) return 0;
    for (int32_t i = 0; i < a->ndim - 2; i++)
        if (a->dim[i] != b->dim[i]) return 0;
    return 1;
}

int32_t wn__cpu_is_library_product(const struct wn__target *t, const struct wn_desc *d)
{
    struct product p;
    double batch = 1;
    if ((t->library >> d->out.dtype & 1) == 0 || d->in[0].dtype != d->out.dtype) return 0;
    if (d->in[1].layout != WN_PLAIN || d->out.layout != WN_PLAIN) return 0; /* the library reads no panels */
    switch (d->op) {
    case WN_OP_LINEAR:
    case WN_OP_LINEAR_MAP:
        p = (struct product){.k = d->in[1].dim[1], .n = d->in[1].dim[0]};
        p.m = p.k > 0 ? wn__numel(&d->in[0]) / p.k : 0;
        break;
    case WN_OP_MATMUL:
    case WN_OP_MATMUL_MAP:
        p = sizes(d);
        if (!is_library_batch(d, &p)) return 0;
        batch = (double)leading(&d->in[0]);
        break;
    default: return 0;
    }
    if (p.m < LIBRARY_LEAST_DIM || p.n < LIBRARY_LEAST_DIM || p.k < LIBRARY_LEAST_DIM) return 0;
    return batch * (double)p.m * (double)p.n * (double)p.k >= LIBRARY_LEAST;
}
