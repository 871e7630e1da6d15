/* DROPOUT, which is its own gradient: y[e] = word(seed, counter, e) < floor((1 - p) 2^32) ? x[e] / (1 - p) : 0, with
 * threshold and scale of kernels/scalar.h.
 *
 * The word is a function of the element, so the counter of the node draws the same mask again. A Philox call gives the
 * words of four elements, and WN_QUADS calls are computed at once. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "elementwise.h"
#include "philox_bulk.h"

/* Defines the loop of a dtype over n elements, at most a block: out[i] = x[i] scale where word[i] <= last, else 0. */
#define DROPOUT(S, T)                                                                                                  \
    static void drop_##S(const uint32_t *word, uint32_t last, double p, int64_t n, void *out_, const void *x_)         \
    {                                                                                                                  \
        const T *x = x_, scale = wn_dropout_scale_##S(p);                                                              \
        T *out = out_;                                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
        {                                                                                                              \
            T kept = x[i] * scale;                                                                                     \
            out[i] = word[i] <= last ? kept : (T)0;                                                                    \
        }                                                                                                              \
    }

DROPOUT(f32, float)
DROPOUT(f64, double)

/* Computes elements [at, at + n), of `size` bytes. Nothing is drawn where p <= 0, which keeps all, and where nothing is
 * kept; else the largest word that keeps an element fits 32 bits. */
static void drop(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at, int64_t size)
{
    const double p = e->f[0];
    const char *x = o->in[0];
    char *out = o->out;
    uint64_t threshold = wn_dropout_threshold(p);
    if (p <= 0 || threshold == 0) {
        if (p > 0) memset(out, 0, (size_t)(n * size));
        else if (out != x) memcpy(out, x, (size_t)(n * size));
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        uint32_t words[4 * WN_QUADS];
        int64_t skipped = (at + i) & 3;
        m = n - i < 4 * WN_QUADS - skipped ? n - i : 4 * WN_QUADS - skipped;
        wn__draw(e->seed, e->counter, (uint64_t)(at + i) >> 2, words);
        (size == 8 ? drop_f64 : drop_f32)(words + skipped, (uint32_t)(threshold - 1), p, m, out + i * size,
                                          x + i * size);
    }
}

static void dropout_f32(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)
{
    drop(e, o, n, at, sizeof(float));
}

static void dropout_f64(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)
{
    drop(e, o, n, at, sizeof(double));
}

wn__row_loop wn__cpu_dropout_loop(int32_t dtype)
{
    return dtype == WN_F32 ? dropout_f32 : dtype == WN_F64 ? dropout_f64 : NULL;
}

static int32_t dropout(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__elementwise e;
    wn__elementwise_of(d->op, d->out.dtype, d->attrs.f, b, &e);
    wn__elementwise_whole(d, b, &e, WN_CPU_GRAIN_MATH);
    return WN_OK;
}

wn_kernel_fn wn__cpu_dropout_kernel(const struct wn_desc *d)
{
    return wn__dtype_is_float(d->out.dtype) && d->in[0].dtype == d->out.dtype ? dropout : NULL;
}
