/* Attention on the CPU: what its files share. attention.c reads the description and picks a way; attention_plain.c is
 * the readable one, for f64 and heads of any size; attention_tile.c holds the pieces of the tiled one, which
 * attention_forward.c and attention_grad.c are made of.
 *
 * No way keeps more than a tile of the (T, T) weights, and that on the thread's stack. A result is one chain of steps
 * in an order that the shapes fix: forward tasks own queries, backward tasks own a key head, inside they go in order. */
#ifndef WN_CPU_ATTENTION_H
#define WN_CPU_ATTENTION_H
#include <stdint.h>
#include "cpu.h"
#include "gemm.h"

struct wn__attention {
    int64_t batch, time, heads, kv_heads, size; /* size: of a head */
    int64_t row, out_row;                       /* elements of a position in qkv, and in the result */
    int32_t causal, dtype;
    double scale, p;
    uint64_t seed, counter;
    const void *qkv, *dy, *y; /* dy, y: (B, T, H size), of the gradient only */
    void *out;
    /* Where gradients of keys and values are summed: out itself, or f32 beside it when out is bf16. Key head g of
     * position t of batch entry b is at sums[(b T + t) sums_row + sums_first + g size]; values: kv_heads size later. */
    void *sums;
    int64_t sums_row, sums_first;
};

/* f64, and what the tiles are too small for. */
void wn__attention_plain(const struct wn__attention *k);
void wn__attention_plain_grad(const struct wn__attention *k);
/* f32 and bf16, heads up to WN_ATTENTION_SIZE. */
void wn__attention_forward(const struct wn__attention *k);
void wn__attention_grad(const struct wn__attention *k);
#define WN_ATTENTION_SIZE 256

/* First element of query head h; of key head g (values: kv_heads size later). */
static inline int64_t wn__attention_query(const struct wn__attention *k, int64_t b, int64_t t, int64_t h)
{
    return (b * k->time + t) * k->row + h * k->size;
}

static inline int64_t wn__attention_key(const struct wn__attention *k, int64_t b, int64_t t, int64_t g)
{
    return (b * k->time + t) * k->row + (k->heads + g) * k->size;
}

static inline int64_t wn__attention_result(const struct wn__attention *k, int64_t b, int64_t t, int64_t h)
{
    return (b * k->time + t) * k->out_row + h * k->size;
}

static inline int64_t wn__attention_sum(const struct wn__attention *k, int64_t b, int64_t t, int64_t g)
{
    return (b * k->time + t) * k->sums_row + k->sums_first + g * k->size;
}

/* bf16 only: the sums of one key head, rounded into out. */
void wn__attention_round_sums(const struct wn__attention *k, int64_t b, int64_t g);

/* ---- tiles (attention_tile.c) -------------------------------------------------------------------------- */
/* A tile of weights is kept with keys down and queries across, so that the softmax of many queries is computed side
 * by side, and the products take it as it lies: see gemm.h for a and b. */

/* c (m, n) = a b, or += when not first. b is 64-byte aligned, bk a multiple of 16, rows readable to one too. */
struct wn__attention_product {
    int64_t m, n, k;
    const float *a;
    int64_t ai, ak;
    const float *b;
    int64_t bk;
    float *c;
    int64_t ldc;
    int32_t first;
};
void wn__attention_multiply(const struct wn__gemm_kernel *g, const struct wn__attention_product *p);

/* Rows [0, n) of `size` elements from element `at`, rows `from_row` apart, times factor: into to (rows, ldt), f32.
 * Zeros right of them and below. */
struct wn__attention_rows {
    const void *from;
    int64_t at, from_row, n, rows, ldt;
    float factor;
};
void wn__attention_load(const struct wn__attention *k, const struct wn__attention_rows *r, float *to);
/* Back: from (n, ld) into out from element `at`, rows `to_row` apart. */
void wn__attention_store(const struct wn__attention *k, const float *from, int64_t ld, int64_t n, int64_t at,
                         int64_t to_row);

/* A tile of scores: s (keys, width), rows ld apart, width a multiple of 16. Row j is key0 + j, column c query0 + c. */
struct wn__attention_tile {
    float *s;
    int64_t ld, keys, width, key0, query0;
};
/* -inf where the key comes after the query. */
void wn__attention_mask(const struct wn__attention_tile *t);
/* s = exp(s - best), best and sum brought up to date; back = exp(best before - best now). All (width). */
void wn__attention_softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back);
/* 0 or 1 / (1 - p) for each weight of the tile of (b, h), into factor (keys, ld). */
void wn__attention_draw(const struct wn__attention *k, const struct wn__gemm_kernel *g,
                        const struct wn__attention_tile *t, int64_t b, int64_t h, float *factor);

#define WN_ATTENTION_DRAWN 128 /* keys of a tile at most: words drawn at once */
/* Keys a tile holds: most, and fewer where a row of weights does not begin with a whole draw of four words. */
static inline int64_t wn__attention_keys(const struct wn__attention *k, int64_t floats, int64_t most)
{
    int64_t wide = (k->size + 15) / 16 * 16, keys = floats / wide / 8 * 8;
    return (keys < most ? keys : most) - (k->time % 4 ? 8 : 0);
}
#endif
