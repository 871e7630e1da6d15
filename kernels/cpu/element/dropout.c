/* DROPOUT, which is its own gradient: y[e] = word(seed, counter, e) < floor((1 - p) 2^32) ? x[e] / (1 - p) : 0, with
 * threshold and scale of kernels/scalar.h.
 *
 * The word is a function of the element, so the counter of the node draws the same mask again. A Philox call gives the
 * words of four elements, and WN_QUADS calls are computed at once. bf16 is computed by tiles in the f32 loop. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/bf16.h"
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

/* Computes elements [at, at + n) of f32 or f64. Nothing is drawn where p <= 0, which keeps all, and where nothing is
 * kept; else the largest word that keeps an element fits 32 bits. */
static void drop_range(const struct wn__dropout *k, int32_t dtype, char *out, const char *x, int64_t at, int64_t n)
{
    uint64_t threshold = wn_dropout_threshold(k->p);
    int64_t size = wn__dtype_size(dtype);
    if (k->p <= 0 || threshold == 0) {
        if (k->p > 0) memset(out, 0, (size_t)(n * size));
        else if (out != x) memcpy(out, x, (size_t)(n * size));
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        uint32_t words[4 * WN_QUADS];
        int64_t skipped = (at + i) & 3;
        m = n - i < 4 * WN_QUADS - skipped ? n - i : 4 * WN_QUADS - skipped;
        wn__draw(k->seed, k->counter, (uint64_t)(at + i) >> 2, words);
        (dtype == WN_F64 ? drop_f64 : drop_f32)(words + skipped, (uint32_t)(threshold - 1), k->p, m, out + i * size,
                                                x + i * size);
    }
}

void wn__cpu_dropout_range(const struct wn__dropout *k, int32_t dtype, void *out, const void *x, int64_t at, int64_t n)
{
    float wide[WN_TILE];
    if (dtype != WN_BF16) drop_range(k, dtype, out, x, at, n);
    for (int64_t i = 0; dtype == WN_BF16 && i < n; i += WN_TILE) {
        int64_t m = n - i < WN_TILE ? n - i : WN_TILE;
        wn__widen(wide, (const uint16_t *)x + i, m);
        drop_range(k, WN_F32, (char *)wide, (const char *)wide, at + i, m);
        wn__round((uint16_t *)out + i, wide, m);
    }
}

/* One dropout of n elements. */
struct dropout {
    struct wn__dropout draw; /* seed, counter, p */
    const char *x;
    char *out;
    int32_t dtype, streams; /* streams: out is stored non-temporally */
    int64_t n;
};

/* Computes blocks [begin, end) of WN_STREAM_BLOCK elements. */
static void dropout_part(int64_t begin, int64_t end, void *ctx)
{
    const struct dropout *k = ctx;
    struct wn__stream_block block;
    int64_t at = begin * WN_STREAM_BLOCK, stop = end * WN_STREAM_BLOCK < k->n ? end * WN_STREAM_BLOCK : k->n;
    int64_t size = wn__dtype_size(k->dtype);
    for (int64_t m; at < stop; at += m) {
        m = stop - at < WN_STREAM_BLOCK ? stop - at : WN_STREAM_BLOCK;
        char *out = k->out + at * size;
        const char *x = k->x + at * size;
        if (k->streams) wn__prefetch_stream(x, m * size);
        wn__cpu_dropout_range(&k->draw, k->dtype, k->streams ? block.bytes : out, x, at, m);
        if (k->streams) wn__stream(out, block.bytes, m * size);
    }
    if (k->streams) wn__stream_end();
}

static int32_t dropout(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct dropout k = {.draw = {b->seed, b->counter, d->attrs.f[0]}, .x = b->in[0], .out = b->out};
    k.dtype = d->out.dtype;
    k.n = wn__numel(&d->out);
    k.streams = wn__streams_math(wn__bytes(&d->out), b->out, b->in[0], NULL);
    int64_t blocks = (k.n + WN_STREAM_BLOCK - 1) / WN_STREAM_BLOCK;
    wn__parallel_for(blocks, WN_CPU_GRAIN_MATH / WN_STREAM_BLOCK, dropout_part, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_dropout_kernel(const struct wn_desc *d)
{
    int32_t known = d->out.dtype == WN_F32 || d->out.dtype == WN_F64 || d->out.dtype == WN_BF16;
    return d->op == WN_OP_DROPOUT && known && d->in[0].dtype == d->out.dtype ? dropout : NULL;
}
