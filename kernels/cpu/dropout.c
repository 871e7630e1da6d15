/* DROPOUT, which is its own gradient: the numbers are addressed by element, so the same node's counter draws
 * the same mask again. Element e stays when word(seed, counter, e) < floor((1 - p) 2^32) and is scaled by
 * 1 / (1 - p), both from scalar.h. Four elements a Philox call, WN_QUADS calls side by side. bf16 goes by tiles
 * through the f32 loop. */
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "bf16.h"
#include "cpu.h"
#include "draw.h"

struct dropout {
    const void *x; /* from element `first` on */
    void *out;
    uint64_t seed, counter, threshold;
    double p;
    int64_t n, first;
    int64_t size; /* bytes an element */
};

/* Blocks [begin, end) of 4 WN_QUADS elements. `last` is the greatest word that keeps; it fits 32 bits. */
#define DROPOUT(S, T)                                                                                                  \
    WN_CLONES static void dropout_##S(int64_t begin, int64_t end, void *ctx)                                           \
    {                                                                                                                  \
        const struct dropout *k = ctx;                                                                                 \
        T scale = wn_dropout_scale_##S(k->p);                                                                          \
        uint32_t last = (uint32_t)(k->threshold - 1);                                                                  \
        for (int64_t block = begin; block < end; block++) {                                                            \
            uint32_t word[4 * WN_QUADS];                                                                               \
            wn__draw(k->seed, k->counter, (uint64_t)block *WN_QUADS, word);                                            \
            int64_t at = block * 4 * WN_QUADS, n = k->n - at < 4 * WN_QUADS ? k->n - at : 4 * WN_QUADS;                \
            const T *x = (const T *)k->x + (at - k->first);                                                            \
            T *out = (T *)k->out + (at - k->first);                                                                    \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                T kept = x[i] * scale;                                                                                 \
                out[i] = word[i] <= last ? kept : (T)0;                                                                \
            }                                                                                                          \
        }                                                                                                              \
    }

DROPOUT(f32, float)
DROPOUT(f64, double)

static void dropout_bf16(int64_t begin, int64_t end, void *ctx)
{
    const struct dropout *k = ctx;
    enum { BLOCKS = WN_TILE / (4 * WN_QUADS) };
    float wide[WN_TILE];
    struct dropout tile = *k;
    tile.x = tile.out = wide;
    for (int64_t block = begin; block < end; block += BLOCKS) {
        int64_t stop = block + BLOCKS < end ? block + BLOCKS : end, limit = stop * 4 * WN_QUADS;
        tile.first = block * 4 * WN_QUADS;
        int64_t n = (limit < k->n ? limit : k->n) - tile.first;
        wn__widen(wide, (const uint16_t *)k->x + tile.first, n);
        dropout_f32(block, stop, &tile);
        wn__round((uint16_t *)k->out + tile.first, wide, n);
    }
}

/* All or nothing: bytes copied, or zeros. */
static void plain(int64_t begin, int64_t end, void *ctx)
{
    const struct dropout *k = ctx;
    char *out = (char *)k->out + begin * k->size;
    size_t n = (size_t)((end - begin) * k->size);
    if (k->threshold == 0) memset(out, 0, n);
    else if (k->out != k->x) memcpy(out, (const char *)k->x + begin * k->size, n);
}

static const wn__parallel_body loops[WN_DTYPE_COUNT] = {
    [WN_F32] = dropout_f32, [WN_F64] = dropout_f64, [WN_BF16] = dropout_bf16};

static int32_t dropout(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    double p = d->attrs.f[0];
    struct dropout k = {.x = b->in[0], .out = b->out, .seed = b->seed, .counter = b->counter, .p = p};
    k.threshold = wn_dropout_threshold(p);
    k.n = wn__numel(&d->out);
    k.size = wn__dtype_size(d->out.dtype);
    if (p <= 0 || k.threshold == 0) { /* all or nothing: no numbers drawn */
        k.threshold = p <= 0;
        wn__parallel_for(k.n, WN_CPU_GRAIN, plain, &k);
        return WN_OK;
    }
    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);
    wn__parallel_for(blocks, WN_CPU_GRAIN_MATH / (4 * WN_QUADS), loops[d->out.dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_dropout_kernel(const struct wn_desc *d)
{
    return loops[d->out.dtype] && d->in[0].dtype == d->out.dtype ? dropout : NULL;
}
