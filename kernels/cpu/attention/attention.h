/* Attention on the CPU: what its files share. attention.c reads the description and picks a way; attention/plain.c is
 * the readable one, for f64 and heads of any size; attention/tile.c and, for AVX-512, attention/avx512.c hold the
 * pieces of the tiled one, which attention/forward.c and attention/grad.c are made of.
 *
 * No way keeps more than a tile of the (T, T) weights, and that on the thread's stack. A result is one chain of steps
 * in an order that the shapes fix: forward tasks own queries, backward tasks own a key head or take turns on it. */
#ifndef WN_CPU_ATTENTION_H
#define WN_CPU_ATTENTION_H
#include <stdint.h>
#include "../cpu.h"

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
#define WN_ATTENTION_LOG2E 1.4426950408889634

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

/* The weight of query i, key j of head h: an element of (B, H, T, T). */
static inline uint64_t wn__attention_weight(const struct wn__attention *k, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return (uint64_t)(((b * k->heads + h) * k->time + i) * k->time + j);
}

/* bf16 only: the sums of one key head, rounded into out. */
void wn__attention_round_sums(const struct wn__attention *k, int64_t b, int64_t g);

/* ---- tiles --------------------------------------------------------------------------------------- */
/* A tile of weights is kept with keys down and queries across, so that the softmax of many queries is computed side
 * by side, and the products take it as it lies. */

/* Memory that is needed soon, touched a few rows at a time while products run: up to eight stretches of rows, each of
 * `bytes`. */
struct wn__attention_prefetch {
    struct {
        const char *at;
        int64_t step, rows;
    } list[8];
    int64_t bytes, credit; /* credit: work that no row was touched for */
    int32_t n, i;          /* how many; the first with rows left */
};
static inline void wn__attention_prefetch_add(struct wn__attention_prefetch *a, const void *base, int64_t at,
                                              int64_t step, int64_t rows, int32_t dtype)
{
    const int64_t bytes = dtype == WN_BF16 ? 2 : 4;
    a->list[a->n].at = (const char *)base + at * bytes;
    a->list[a->n].step = step * bytes;
    a->list[a->n++].rows = rows;
}

/* s (keys, width), rows ld apart, all multiples of 16 but keys. Row j is for the columns from j + diagonal on: those of
 * queries that see its key. */
struct wn__attention_tile {
    float *s;
    uint16_t *kept; /* NULL, or (width / 16, WN_ATTENTION_KEPT): bit i of (c, j): the weight of column 16 c + i stays */
    int64_t ld, keys, width, diagonal;
    int64_t fresh; /* over queries only: rows of the result from this one on, a multiple of 8, hold nothing yet */
};

/* s (m, n), rows as far apart as those of c, times factor (n) is the weights p, c the gradient of those that are kept.
 * After: c = p (c, 0 where not kept, - shared), s = p, 0 where not kept. */
struct wn__attention_weighing {
    float *s;
    const float *factor, *shared;
    const uint16_t *kept; /* as of a tile */
};

/* c (m, n) = a b, or += when not first; a(i, k) = a[i * ai + k * ak], one of ai, ak is 1. b is 64-byte aligned, bk a
 * multiple of 16, rows readable to one too. Every output is one chain of k steps, acc = a b + acc. */
struct wn__attention_product {
    int64_t m, n, k;
    const float *a;
    int64_t ai, ak;
    const float *b;
    int64_t bk;
    float *c;
    int64_t ldc;
    const float *back;                       /* NULL, or (n): what the columns of c are multiplied with first */
    struct wn__attention_prefetch *prefetch; /* or NULL */
    int32_t first, far; /* far: ak is 1, and rows of a, c and weighing are not in the first cache */
    const struct wn__attention_weighing *weighing; /* NULL, or what is done with c at the end; n is a multiple of 16 */
    const struct wn__attention_tile *seen; /* NULL, or b: the 16 columns from c take wn__attention_seen(c) steps */
    /* NULL, or a: the 8 rows from i leave out wn__attention_unseen(i) steps, and are the first from `fresh` on. */
    const struct wn__attention_tile *late;
};

#define WN_ATTENTION_DRAWN 128 /* keys of a tile at most: words drawn at once */
#define WN_ATTENTION_KEPT WN_ATTENTION_DRAWN
#define WN_ATTENTION_EVERY (-((int64_t)1 << 40)) /* a diagonal that hides nothing */

/* How many rows the 16 columns from c see between them. */
static inline int64_t wn__attention_seen(const struct wn__attention_tile *t, int64_t c)
{
    int64_t rows = c + 16 - t->diagonal;
    return rows < 0 ? 0 : rows < t->keys ? rows : t->keys;
}

/* How many columns the 8 rows from i leave out. */
static inline int64_t wn__attention_unseen(const struct wn__attention_tile *t, int64_t i)
{
    return i + t->diagonal < 0 ? 0 : i + t->diagonal;
}

/* What the tiles are worked with: attention/avx512.c, or attention/tile.c on any machine, with the same bits. All but
 * the product leave alone what wn__attention_seen does not count. */
struct wn__attention_kernel {
    void (*multiply)(const struct wn__attention_product *p);
    /* s = 2^(s - best), 0 where not kept; best and sum (of all, kept or not) brought up to date; back =
     * 2^(best before - best now). All (width). */
    void (*softmax)(const struct wn__attention_tile *t, float *best, float *sum, float *back);
    /* kept, for row 0 of column 0 being this element of the (B, H, T, T) weights. */
    void (*draw)(const struct wn__attention *k, const struct wn__attention_tile *t, uint64_t element);
};
const struct wn__attention_kernel *wn__attention_best(void);
const struct wn__attention_kernel *wn__attention_portable(void);
const struct wn__attention_kernel *wn__attention_avx512(void); /* NULL when this machine has none */

/* The products of a tile of weights, less what lies beyond the diagonal. */
void wn__attention_scores(const struct wn__attention_kernel *g, const struct wn__attention_product *p,
                          const struct wn__attention_tile *t); /* c is the tile */
void wn__attention_over_keys(const struct wn__attention_kernel *g, const struct wn__attention_product *p,
                             const struct wn__attention_tile *t); /* b is the tile */
void wn__attention_over_queries(const struct wn__attention_kernel *g, const struct wn__attention_product *p,
                                const struct wn__attention_tile *t); /* a is the tile */

/* -inf where a row is not for a column, as far as wn__attention_seen counts. */
void wn__attention_mask(const struct wn__attention_tile *t);

/* Rows [0, n) of `size` elements from element `at`, rows `from_row` apart, times factor: into to (rows, ldt), f32.
 * Zeros right of them and below. */
struct wn__attention_rows {
    const void *from;
    int64_t at, from_row, n, rows, ldt;
    float factor;
};
void wn__attention_load(const struct wn__attention *k, const struct wn__attention_rows *r, float *to);
/* n rows of qkv from element `at` as f32, rows *step apart: where they lie, or widened into buffer (n, wide). */
const float *wn__attention_see(const struct wn__attention *k, int64_t at, int64_t n, int64_t wide, float *buffer,
                               int64_t *step);
/* Back: from (size, n), rows ld apart, into n rows of out from element `at`, `to_row` apart; buffer: n times size. */
void wn__attention_store_transposed(const struct wn__attention *k, const float *from, int64_t ld, int64_t n, int64_t at,
                                    int64_t to_row, float *buffer);

/* What the weights that dropout leaves are multiplied with. */
static inline float wn__attention_kept_factor(const struct wn__attention *k)
{
    return k->p > 0 && wn_dropout_threshold(k->p) > 0 ? (float)wn_dropout_scale_f64(k->p) : 1.0f;
}

/* Keys a tile holds: most, and fewer where a row of weights does not begin with a whole draw of four words. */
static inline int64_t wn__attention_keys(const struct wn__attention *k, int64_t floats, int64_t most)
{
    int64_t wide = (k->size + 15) / 16 * 16, keys = floats / wide / 8 * 8;
    return (keys < most ? keys : most) - (k->time % 4 ? 8 : 0);
}
#endif
