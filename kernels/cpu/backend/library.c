/* See library.h. Which applications a library computes follows from the description and the target alone, so that a
 * plan made elsewhere has the same workspaces and the same bits. */
#include "library.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "../../../runtime/base/window.h"
#include "../common/cpu.h"
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

static int32_t chosen_use, chosen; /* enum wn_library_use; bits as struct wn__target has them in `library` */

/* Returns the bits of the dtypes that `has` says yes to: of bf16, and of f32 where a user asks for the library. */
static int32_t dtypes(int32_t use, int32_t (*has)(int32_t dtype))
{
    int32_t bits = has(WN_BF16) ? 1 << WN_BF16 : 0;
    return use == WN_LIBRARY_ON && has(WN_F32) ? bits | 1 << WN_F32 : bits;
}

void wn__cpu_library_start(int32_t use, struct wn__target *t)
{
    chosen_use = use;
    chosen = 0;
    t->library = 0;
    t->library_scratch = 0;
    t->weight_layout = WN_PANEL48;
    if (use == WN_LIBRARY_OFF || (use == WN_LIBRARY_AUTO && !has_amx()) || !wn__onednn_open(NULL)) return;
    const int32_t products = dtypes(use, wn__onednn_has);
    chosen = products | WN_LIBRARY_CONV * dtypes(use, wn__onednn_has_conv);
    if (chosen == 0) return;
    t->library = chosen;
    t->library_scratch = (int64_t)SCRATCH_A_THREAD * wn_cpu_threads();
    if (products != 0) t->weight_layout = WN_PLAIN;
}

int32_t wn__cpu_library_use(void)
{
    return chosen_use;
}

/* Returns the names of dtypes, given bits 1 << dtype. */
static const char *names(int32_t bits)
{
    static const char *const words[] = {"", "f32", "bf16", "f32 and bf16"};
    return words[(bits >> WN_F32 & 1) + 2 * (bits >> WN_BF16 & 1)];
}

/* Writes what the library computes. */
static void write_makes(char *to, size_t size)
{
    const int32_t convs = chosen / WN_LIBRARY_CONV, products = chosen % WN_LIBRARY_CONV;
    if (products == convs) snprintf(to, size, "makes large products and convolutions of %s", names(products));
    else if (convs == 0) snprintf(to, size, "makes large products of %s", names(products));
    else if (products == 0) snprintf(to, size, "makes large convolutions of %s", names(convs));
    else snprintf(to, size, "makes large products of %s, convolutions of %s", names(products), names(convs));
}

const char *wn__cpu_library_text(void)
{
    static char line[256];
    char makes[96];
    if (chosen_use == WN_LIBRARY_OFF) return "off: own kernels are used";
    if (!wn__onednn_open(NULL)) {
        snprintf(line, sizeof line, "%s: own kernels are used", wn__onednn_text());
        return line;
    }
    if (chosen != 0) write_makes(makes, sizeof makes);
    const char *what = chosen != 0 ? makes
                       : chosen_use == WN_LIBRARY_ON || has_amx()
                           ? "has nothing for this processor without memory of its own: own kernels are used"
                           : "is there and not used: without AMX own kernels are as fast";
    snprintf(line, sizeof line, "%s %s%s", wn__onednn_text(), what,
             chosen_use == WN_LIBRARY_AUTO && chosen != 0 ? ", with AMX" : "");
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

/* ---- which convolutions -------------------------------------------------------------------------------- */

/* The library computes convolutions of at least LIBRARY_LEAST multiply-adds, and those under a CONV2D_MAP. */
int32_t wn__cpu_is_library_conv(const struct wn__target *t, const struct wn_desc *d)
{
    const int32_t is_y = d->op == WN_OP_CONV2D || d->op == WN_OP_CONV2D_MAP;
    if (!is_y && d->op != WN_OP_CONV2D_DX && d->op != WN_OP_CONV2D_DW) return 0;
    if ((t->library / WN_LIBRARY_CONV >> d->out.dtype & 1) == 0 || d->in[0].dtype != d->out.dtype) return 0;
    const struct wn_type *weight = d->op == WN_OP_CONV2D_DW ? &d->out : &d->in[1];
    const struct wn_type *y = is_y ? &d->out : &d->in[0];
    const double each = (double)weight->dim[1] * (double)weight->dim[2] * (double)weight->dim[3];
    return each * (double)wn__numel(y) >= LIBRARY_LEAST;
}

/* ---- which applications -------------------------------------------------------------------------------- */

int32_t wn__cpu_is_library_op(const struct wn__target *t, const struct wn_desc *d)
{
    return wn__cpu_is_library_product(t, d) || wn__cpu_is_library_conv(t, d);
}

/* Returns how many copies of its weight a convolution may have beside its scratch: one in the library's layout, one of
 * panels, and for dw of bf16 sums in f32.
 * Measured: these, and up to 2 MiB of scratch a thread (13 shapes of residual networks, 1 to 64 threads, oneDNN 2.6.3
 * and 3.2); but dx of an image of 3 channels takes 3.4 MiB a thread in 3.2, and is declined. */
static int64_t weight_copies(const struct wn_desc *d, const struct wn_type *weight)
{
    return 1 + (weight->layout != WN_PLAIN) + (d->op == WN_OP_CONV2D_DW && weight->dtype == WN_BF16 ? 2 : 0);
}

int64_t wn__cpu_library_bytes(const struct wn__target *t, const struct wn_desc *d)
{
    if (!wn__cpu_is_library_conv(t, d)) return t->library_scratch;
    const struct wn_type *weight = d->op == WN_OP_CONV2D_DW ? &d->out : &d->in[1];
    return t->library_scratch + weight_copies(d, weight) * wn__padded(wn__bytes(weight));
}
