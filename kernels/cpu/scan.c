/* CUMSUM and ARGSORT: x: (outer, n, inner), along n.
 *
 * A sum is added in double, in the order of positions, and rounded to the dtype at each of them; i32 wraps. The
 * positions are sorted in the place of the result, by a heap, which needs no scratch: the order is complete, so which
 * algorithm sorts does not show. Lines are independent; threads share them. */
#include <stddef.h>
#include "../scalar.h"
#include "cpu.h"

enum { COLUMNS = 32 }; /* neighbouring sums that a thread adds at once */

struct scan {
    const void *x;
    void *out;
    struct wn__axis axis;
    int32_t turned;
    int64_t groups; /* of COLUMNS columns in a slab (n, inner) */
};

/* ---- cumsum -------------------------------------------------------------------------------------- */

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
                const T *x = (const T *)k->x + at + (k->turned ? n - 1 - r : r) * inner;                               \
                T *out = (T *)k->out + (x - (const T *)k->x);                                                          \
                for (int64_t j = 0; j < width; j++) out[j] = STORE(sum[j] += (SUM)LOAD(x[j]));                         \
            }                                                                                                          \
        }                                                                                                              \
    }

CUMSUM(f32, float, double, WN_SAME, (float))
CUMSUM(f64, double, double, WN_SAME, WN_SAME)
CUMSUM(bf16, uint16_t, double, wn_from_bf16, TO_BF16)
CUMSUM(i32, int32_t, uint32_t, WN_SAME, (int32_t))

/* ---- argsort ------------------------------------------------------------------------------------- */

/* Returns whether position a of a line comes before position b. */
#define BEFORE(S, T, LOAD)                                                                                             \
    static inline int32_t before_##S(const T *x, const struct scan *k, int32_t a, int32_t b)                           \
    {                                                                                                                  \
        T first = x[a * k->axis.inner], second = x[b * k->axis.inner];                                                 \
        __typeof__(LOAD(first)) u = LOAD(first), v = LOAD(second);                                                     \
        int32_t odd_u = u != u, odd_v = v != v;                                                                        \
        if (odd_u != odd_v) return k->turned ? odd_u : odd_v;                                                          \
        if (odd_u || u == v) return a < b;                                                                             \
        return k->turned ? u > v : u < v;                                                                              \
    }

/* Puts position `hole` of a heap of n, whose root is the position that comes last, into its place. */
#define SIFT(S, T)                                                                                                     \
    static void sift_##S(const T *x, const struct scan *k, int32_t *at, int64_t hole, int64_t n)                       \
    {                                                                                                                  \
        const int64_t step = k->axis.inner;                                                                            \
        const int32_t own = at[hole * step];                                                                           \
        for (int64_t child; (child = 2 * hole + 1) < n; hole = child) {                                                \
            if (child + 1 < n && before_##S(x, k, at[child * step], at[(child + 1) * step])) child++;                  \
            if (!before_##S(x, k, own, at[child * step])) break;                                                       \
            at[hole * step] = at[child * step];                                                                        \
        }                                                                                                              \
        at[hole * step] = own;                                                                                         \
    }

/* Sorts the positions of lines [begin, end). */
#define LINES(S, T)                                                                                                    \
    static void argsort_##S(int64_t begin, int64_t end, void *ctx)                                                     \
    {                                                                                                                  \
        const struct scan *k = ctx;                                                                                    \
        const int64_t n = k->axis.n, step = k->axis.inner;                                                             \
        for (int64_t line = begin; line < end; line++) {                                                               \
            const T *x = (const T *)k->x + line / step * n * step + line % step;                                       \
            int32_t *at = (int32_t *)k->out + (x - (const T *)k->x);                                                   \
            for (int64_t j = 0; j < n; j++) at[j * step] = (int32_t)j;                                                 \
            for (int64_t j = n / 2 - 1; j >= 0; j--) sift_##S(x, k, at, j, n);                                         \
            for (int64_t left = n - 1; left > 0; left--) {                                                             \
                int32_t last = at[0];                                                                                  \
                at[0] = at[left * step];                                                                               \
                at[left * step] = last;                                                                                \
                sift_##S(x, k, at, 0, left);                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }

#define ARGSORT(S, T, LOAD)                                                                                            \
    BEFORE(S, T, LOAD)                                                                                                 \
    SIFT(S, T)                                                                                                         \
    LINES(S, T)

ARGSORT(f32, float, WN_SAME)
ARGSORT(f64, double, WN_SAME)
ARGSORT(bf16, uint16_t, wn_from_bf16)
ARGSORT(i32, int32_t, WN_SAME)

/* ---- which kernel -------------------------------------------------------------------------------- */

static const wn__parallel_body sums[WN_DTYPE_COUNT] = {
    [WN_F32] = cumsum_f32, [WN_F64] = cumsum_f64, [WN_BF16] = cumsum_bf16, [WN_I32] = cumsum_i32};
static const wn__parallel_body sorts[WN_DTYPE_COUNT] = {
    [WN_F32] = argsort_f32, [WN_F64] = argsort_f64, [WN_BF16] = argsort_bf16, [WN_I32] = argsort_i32};

static struct scan scan_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    struct scan k = {b->in[0], b->out, wn__axis_of(&d->in[0], d->attrs.i[0]), d->attrs.i[1] != 0, 0};
    k.groups = (k.axis.inner + COLUMNS - 1) / COLUMNS;
    return k;
}

static int32_t cumsum(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct scan k = scan_of(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__parallel_for(k.axis.outer * k.groups, WN_CPU_GRAIN / (k.axis.n + 1) + 1, sums[d->in[0].dtype], &k);
    return WN_OK;
}

static int32_t argsort(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct scan k = scan_of(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__parallel_for(k.axis.outer * k.axis.inner, WN_CPU_GRAIN_MATH / (k.axis.n + 1) + 1, sorts[d->in[0].dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_scan_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_CUMSUM) return sums[d->in[0].dtype] ? cumsum : NULL;
    return d->op == WN_OP_ARGSORT && sorts[d->in[0].dtype] ? argsort : NULL;
}
