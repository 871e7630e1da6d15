/* DROPOUT, which is its own gradient: y[e] = word(seed, counter, e) < floor((1 - p) 2^32) ? x[e] / (1 - p) : 0, with
 * threshold and scale of kernels/scalar.h.
 *
 * The word is a function of the element, so the counter of the node draws the same mask again. A Philox call gives the
 * words of four elements, and WN_QUADS calls are computed at once. bf16 is computed by tiles in the f32 loop. */
#include <stddef.h>
#include "../scalar.h"
#include "bf16.h"
#include "elementwise.h"
#include "philox_bulk.h"

/* Defines the loop of a dtype. last: the largest word that keeps an element, which fits 32 bits. Nothing is drawn where
 * p <= 0, which keeps all, and where nothing is kept. */
#define DROPOUT(S, T)                                                                                                  \
    static void range_##S(const struct wn__dropout *k, T *out, const T *x, int64_t at, int64_t n)                      \
    {                                                                                                                  \
        uint64_t threshold = wn_dropout_threshold(k->p);                                                               \
        T scale = wn_dropout_scale_##S(k->p);                                                                          \
        uint32_t last = (uint32_t)(threshold - 1);                                                                     \
        if (k->p <= 0 || threshold == 0) {                                                                             \
            for (int64_t i = 0; i < n; i++) out[i] = k->p <= 0 ? x[i] : (T)0;                                          \
            return;                                                                                                    \
        }                                                                                                              \
        while (n > 0) {                                                                                                \
            uint32_t words[4 * WN_QUADS], *word = words + (at & 3);                                                    \
            wn__draw(k->seed, k->counter, (uint64_t)at >> 2, words);                                                   \
            int64_t m = 4 * WN_QUADS - (at & 3);                                                                       \
            m = n < m ? n : m;                                                                                         \
            _Pragma("omp simd") for (int64_t i = 0; i < m; i++)                                                        \
            {                                                                                                          \
                T kept = x[i] * scale;                                                                                 \
                out[i] = word[i] <= last ? kept : (T)0;                                                                \
            }                                                                                                          \
            at += m, n -= m, out += m, x += m;                                                                         \
        }                                                                                                              \
    }

DROPOUT(f32, float)
DROPOUT(f64, double)

void wn__cpu_dropout_range(const struct wn__dropout *k, int32_t dtype, void *out, const void *x, int64_t at, int64_t n)
{
    float wide[WN_TILE];
    if (dtype == WN_F32) range_f32(k, out, x, at, n);
    if (dtype == WN_F64) range_f64(k, out, x, at, n);
    for (int64_t i = 0; dtype == WN_BF16 && i < n; i += WN_TILE) {
        int64_t m = n - i < WN_TILE ? n - i : WN_TILE;
        wn__widen(wide, (const uint16_t *)x + i, m);
        range_f32(k, wide, wide, at + i, m);
        wn__round((uint16_t *)out + i, wide, m);
    }
}

/* One dropout of n elements. */
struct dropout {
    struct wn__dropout draw; /* seed, counter, p */
    const char *x;
    char *out;
    int32_t dtype;
    int64_t n;
};

/* Computes blocks [begin, end) of 4 WN_QUADS elements. */
static void dropout_part(int64_t begin, int64_t end, void *ctx)
{
    const struct dropout *k = ctx;
    int64_t at = begin * 4 * WN_QUADS, stop = end * 4 * WN_QUADS < k->n ? end * 4 * WN_QUADS : k->n;
    int64_t offset = at * wn__dtype_size(k->dtype);
    wn__cpu_dropout_range(&k->draw, k->dtype, k->out + offset, k->x + offset, at, stop - at);
}

static int32_t dropout(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct dropout k = {{b->seed, b->counter, d->attrs.f[0]}, b->in[0], b->out, d->out.dtype, wn__numel(&d->out)};
    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);
    wn__parallel_for(blocks, WN_CPU_GRAIN_MATH / (4 * WN_QUADS), dropout_part, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_dropout_kernel(const struct wn_desc *d)
{
    int32_t known = d->out.dtype == WN_F32 || d->out.dtype == WN_F64 || d->out.dtype == WN_BF16;
    return d->op == WN_OP_DROPOUT && known && d->in[0].dtype == d->out.dtype ? dropout : NULL;
}
