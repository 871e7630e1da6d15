/* CUMSUM: x: (outer, n, inner), along n.
 *
 * A sum is added in double, of i32 in 64 bits, in the order of positions, and rounded to the dtype at each of them.
 * Lines are independent; threads share them. */
#include <stddef.h>
#include "../../scalar.h"
#include "../element/whole.h"

enum { COLUMNS = 32 }; /* neighbouring sums that a thread adds at once */

struct scan {
    const void *x;
    void *out;
    struct wn__axis axis;
    int32_t is_reversed;
    int64_t groups; /* of COLUMNS columns in a slab (n, inner) */
    struct wn__whole *whole;
};

#define TO_BF16(x) wn_to_bf16((float)(x))

/* Defines the loop over groups of columns [begin, end). */
#define CUMSUM(S, T, SUM, LOAD, STORE)                                                                                 \
    static void cumsum_##S(int64_t begin, int64_t end, void *ctx)                                                      \
    {                                                                                                                  \
        const struct scan *k = ctx;                                                                                    \
        const int64_t n = k->axis.n, inner = k->axis.inner;                                                            \
        for (int64_t u = begin; u < end; u++) {                                                                        \
            int64_t column = u % k->groups * COLUMNS, at = u / k->groups * n * inner + column;                         \
            int64_t width = inner - column < COLUMNS ? inner - column : COLUMNS;                                       \
            SUM sum[COLUMNS] = {0};                                                                                    \
            for (int64_t r = 0; r < n; r++) {                                                                          \
                const T *x = (const T *)k->x + at + (k->is_reversed ? n - 1 - r : r) * inner;                          \
                T *out = (T *)k->out + (x - (const T *)k->x);                                                          \
                for (int64_t j = 0; j < width; j++) out[j] = STORE(sum[j] += (SUM)LOAD(x[j]));                         \
            }                                                                                                          \
        }                                                                                                              \
    }

CUMSUM(f32, float, double, WN_SAME, (float))
CUMSUM(f64, double, double, WN_SAME, WN_SAME)
CUMSUM(bf16, uint16_t, double, wn_from_bf16, TO_BF16)
CUMSUM(wrapped_i32, int32_t, int64_t, WN_SAME, (int32_t))

/* Tells of the sums of a line that 32 bits do not hold. line: its first element. */
static void check_line(const struct scan *k, int64_t line)
{
    const int64_t inner = k->axis.inner;
    int64_t sum = 0;
    for (int64_t r = 0; r < k->axis.n; r++) {
        int64_t at = line + (k->is_reversed ? k->axis.n - 1 - r : r) * inner;
        sum += ((const int32_t *)k->x)[at];
        if (!wn__whole_fits(sum)) wn__whole_tell(k->whole, at, sum);
    }
}

static void cumsum_i32(int64_t begin, int64_t end, void *ctx)
{
    const struct scan *k = ctx;
    cumsum_wrapped_i32(begin, end, ctx);
    for (int64_t u = begin; u < end; u++)
        for (int64_t j = u % k->groups * COLUMNS; j < k->axis.inner && j < (u % k->groups + 1) * COLUMNS; j++)
            check_line(k, u / k->groups * k->axis.n * k->axis.inner + j);
}

/* ---- which kernel -------------------------------------------------------------------------------- */

static const wn__parallel_body sums[WN_DTYPE_COUNT] = {WN_FLOATS(cumsum), [WN_I32] = cumsum_i32};

static int32_t cumsum(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct scan k = {.x = b->in[0], .out = b->out, .is_reversed = d->attrs.i[1] != 0};
    struct wn__whole whole = WN_WHOLE_NONE;
    k.whole = &whole;
    k.axis = wn__axis_of(&d->in[0], d->attrs.i[0]);
    k.groups = (k.axis.inner + COLUMNS - 1) / COLUMNS;
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__parallel_for(k.axis.outer * k.groups, WN_CPU_GRAIN / (k.axis.n + 1) + 1, sums[d->in[0].dtype], &k);
    return wn__whole_check(&whole, d);
}

wn_kernel_fn wn__cpu_scan_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_ARGSORT) return wn__cpu_sort_kernel(d);
    return d->op == WN_OP_CUMSUM && sums[d->in[0].dtype] ? cumsum : NULL;
}
