/* DROPOUT, which is its own gradient: the numbers are addressed by element, so the same node's counter draws
 * the same mask again. Element e stays when word(seed, counter, e) < floor((1 - p) 2^32) and is scaled by
 * 1 / (1 - p), both from scalar.h. Four elements a Philox call, WN_QUADS calls side by side. */
#include <stddef.h>
#include "../scalar.h"
#include "cpu.h"
#include "draw.h"

struct dropout {
    const void *x;
    void *out;
    uint64_t seed, counter, threshold;
    double p;
    int64_t n;
    int32_t streams;
};

/* Blocks [begin, end) of 4 WN_QUADS elements. `last` is the greatest word that keeps; it fits 32 bits. */
#define DROPOUT(S, T)                                                                                                  \
    WN_CLONES static void dropout_##S(int64_t begin, int64_t end, void *ctx)                                           \
    {                                                                                                                  \
        const struct dropout *k = ctx;                                                                                 \
        const T *x = k->x;                                                                                             \
        T *out = k->out, scale = wn_dropout_scale_##S(k->p);                                                           \
        uint32_t last = (uint32_t)(k->threshold - 1);                                                                  \
        for (int64_t block = begin; block < end; block++) {                                                            \
            uint32_t word[4 * WN_QUADS];                                                                               \
            wn__draw(k->seed, k->counter, (uint64_t)block *WN_QUADS, word);                                            \
            int64_t at = block * 4 * WN_QUADS, n = k->n - at < 4 * WN_QUADS ? k->n - at : 4 * WN_QUADS;                \
            T own[4 * WN_QUADS], *to = k->streams ? own : out + at;                                                    \
            wn__fetch(x + at + 4 * 4 * WN_QUADS, n * (int64_t)sizeof(T));                                              \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                T kept = x[at + i] * scale;                                                                            \
                to[i] = word[i] <= last ? kept : (T)0;                                                                 \
            }                                                                                                          \
            if (k->streams) wn__stream(out + at, own, n * (int64_t)sizeof(T));                                         \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void plain_##S(int64_t begin, int64_t end, void *ctx)                                                       \
    {                                                                                                                  \
        const struct dropout *k = ctx;                                                                                 \
        const T *x = k->x;                                                                                             \
        T *out = k->out;                                                                                               \
        for (int64_t i = begin; i < end; i++) out[i] = k->threshold ? x[i] : (T)0;                                     \
    }

DROPOUT(f32, float)
DROPOUT(f64, double)

static int32_t dropout(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    double p = d->attrs.f[0];
    int32_t is_f32 = d->out.dtype == WN_F32;
    struct dropout k = {b->in[0], b->out, b->seed, b->counter, wn_dropout_threshold(p), p, wn__numel(&d->out), 0};
    k.streams = wn__streams(wn__bytes(&d->out), k.out, k.x, NULL);
    if (p <= 0 || k.threshold == 0) { /* all or nothing: no numbers drawn */
        k.threshold = p <= 0;
        wn__parallel_for(k.n, WN_CPU_GRAIN, is_f32 ? plain_f32 : plain_f64, &k);
        return WN_OK;
    }
    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);
    wn__parallel_for(blocks, WN_CPU_GRAIN_MATH / (4 * WN_QUADS), is_f32 ? dropout_f32 : dropout_f64, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_dropout_kernel(const struct wn_desc *d)
{
    int32_t known = d->out.dtype == WN_F32 || d->out.dtype == WN_F64;
    return d->op == WN_OP_DROPOUT && known && d->in[0].dtype == d->out.dtype ? dropout : NULL;
}
