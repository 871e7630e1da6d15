/* Attention on the CPU: what its files share (runtime/ops/attention.c has the shapes and the formulas).
 *
 *   attention.c  reads the description of a node and chooses tiled or plain
 *   plain.c      one query at a time, in double: readable; for f64 and for heads longer than WN_ATTENTION_SIZE
 *   forward.c    tiled, forward                  grad.c    tiled, backward
 *   tile.c       the pieces of both, portable
 *   microtile.h  the pieces that take most time, for all vector instructions: <class>/attention.c includes it
 *
 * No more than a tile of the (T, T) weights exists at a time, on the stack of a thread. A tile has keys down and
 * queries across, so that the softmax of 16 queries is computed in one vector:
 *
 *                 queries (width)                 columns of 16 queries each
 *              +-----+-----+-----+
 *              |\    |     |     |                causal: row j counts for columns from j + diagonal on;
 *       keys   |  \  |     |     |                what is below the diagonal is neither computed nor read
 *              |    \|     |     |
 *              +-----+-----+-----+
 *
 * Every output is one sum of steps in an order that the shapes fix: a task of the forward has queries of its own, a
 * task of the backward has a key head of its own, or tasks take turns at one. */
#ifndef WN_CPU_ATTENTION_H
#define WN_CPU_ATTENTION_H
#include <stdint.h>
#include "../common/cpu.h"
#include "../common/micro.h"

/* One ATTENTION or ATTENTION_GRAD, for all threads. */
struct wn__attention {
    int64_t batch, time, heads, kv_heads, size; /* B, T, H, K, hd */
    int64_t row, out_row;                       /* elements of a position: (H + 2 K) hd in qkv, H hd in the result */
    int32_t causal, dtype;
    double scale, p; /* of the scores; probability of dropout */
    uint64_t seed, counter;
    const void *qkv, *dy, *y; /* qkv: (B, T, row); dy, y: (B, T, out_row), of the gradient alone */
    void *out;                /* forward: (B, T, out_row); gradient: (B, T, row) */
    /* Where gradients of keys and values are summed: out, or f32 in the workspace where out is bf16. The gradient of
     * key head g of position t of batch entry b is at sums[(b T + t) sums_row + sums_first + g hd], that of value head
     * g K hd after it. */
    void *sums;
    int64_t sums_row, sums_first;
};

/* Compute attention and its gradient one query at a time: f64, and heads longer than WN_ATTENTION_SIZE. */
void wn__attention_plain(const struct wn__attention *k);
void wn__attention_plain_grad(const struct wn__attention *k);
/* Compute attention and its gradient in tiles: f32 and bf16, heads of at most WN_ATTENTION_SIZE numbers. */
void wn__attention_forward(const struct wn__attention *k);
void wn__attention_grad(const struct wn__attention *k);
#define WN_ATTENTION_SIZE 256
#define WN_ATTENTION_LOG2E 1.4426950408889634

/* Return the index of the first element of query head h, and of key head g, in qkv; of head h in the result; and of the
 * gradient of key head g in sums. That of a value head is kv_heads * size after that of its key head. */
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

/* Returns the index of the weight of query i and key j of head h in (B, H, T, T), which is the index that dropout
 * draws. */
static inline uint64_t wn__attention_weight(const struct wn__attention *k, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return (uint64_t)(((b * k->heads + h) * k->time + i) * k->time + j);
}

/* Rounds the sums of one key head to out where out is bf16; else does nothing. */
void wn__attention_round_sums(const struct wn__attention *k, int64_t b, int64_t g);

/* ---- tiles --------------------------------------------------------------------------------------- */
/* Memory that is needed soon, prefetched a few rows at a time while products run: n lists of rows, `bytes` each. */
struct wn__attention_prefetch {
    struct {
        const char *at;     /* the next row */
        int64_t step, rows; /* bytes from row to row; rows left */
    } list[8];
    int64_t bytes, credit; /* credit: steps of products that have not been spent on a prefetch yet */
    int32_t n, i;          /* number of lists; the first with rows left */
};
/* Adds `rows` rows, `step` elements apart, from element `at` of base. */
static inline void wn__attention_prefetch_add(struct wn__attention_prefetch *a, const void *base, int64_t at,
                                              int64_t step, int64_t rows, int32_t dtype)
{
    const int64_t bytes = dtype == WN_BF16 ? 2 : 4;
    a->list[a->n].at = (const char *)base + at * bytes;
    a->list[a->n].step = step * bytes;
    a->list[a->n++].rows = rows;
}

/* A tile of scores or weights, s: (keys, width), rows ld words apart; width and ld are multiples of 16. Row j counts
 * for the columns from j + diagonal on: the queries that see key j. */
struct wn__attention_tile {
    float *s;
    uint16_t *kept; /* NULL, or (width / 16, WN_ATTENTION_KEPT): bit i of (c, j) is set: dropout keeps s(j, 16 c + i) */
    int64_t ld, keys, width, diagonal;
    int64_t fresh; /* of a product that is `late` alone: rows of c from this one on, a multiple of 8, start at zero */
};

/* The step between two products of the backward. Before: s(j, i) factor(i) is the weight p(j, i), c the gradient of the
 * weights after dropout. After: s = p and c = ds, each with the weights that dropout zeroes:
 * ds = p (kept ? c : 0, - shared(i)), s = kept ? p : 0. */
struct wn__attention_weighing {
    float *s;                     /* (m, n), rows as far apart as those of c */
    const float *factor, *shared; /* (n) */
    const uint16_t *kept;         /* as in a tile, or NULL */
};

/* A product c: (m, n) = a b, or += where not first; a(i, k) = a[i * ai + k * ak], one of ai and ak is 1. b: (k, n),
 * rows bk words apart, bk a multiple of 16, 64-byte aligned, readable to the next multiple of 16 columns. Every output
 * is one sum, acc = a(i, k) b(k, j) + acc in ascending k. */
struct wn__attention_product {
    int64_t m, n, k;
    const float *a;
    int64_t ai, ak;
    const float *b;
    int64_t bk;
    float *c;
    int64_t ldc;
    const float *back;                       /* NULL, or (n): factors of the columns of c before the product is added */
    struct wn__attention_prefetch *prefetch; /* NULL, or rows to prefetch meanwhile */
    int32_t first;                           /* sums start at zero instead of c */
    int32_t far; /* ak is 1, and rows of a, c and weighing are not in the first-level cache */
    const struct wn__attention_weighing *weighing; /* NULL, or what is applied to c at the end; n is a multiple of 16 */
    /* NULL, or the tile that b is: the 16 columns from c take wn__attention_seen(seen, c) steps of k. */
    const struct wn__attention_tile *seen;
    /* NULL, or the tile that a is: the 8 rows from i skip wn__attention_unseen(late, i) steps of k, and start at zero
     * from row `fresh` on. */
    const struct wn__attention_tile *late;
};

#define WN_ATTENTION_DRAWN 128 /* most keys of a tile: random words drawn at once */
#define WN_ATTENTION_KEPT WN_ATTENTION_DRAWN
#define WN_ATTENTION_EVERY (-((int64_t)1 << 40)) /* a diagonal that hides nothing */

/* Returns how many rows, from row 0 on, count for any of the 16 columns from c. */
static inline int64_t wn__attention_seen(const struct wn__attention_tile *t, int64_t c)
{
    int64_t rows = c + 16 - t->diagonal;
    return rows < 0 ? 0 : rows < t->keys ? rows : t->keys;
}

/* Returns how many columns, from column 0 on, none of the 8 rows from i counts for. */
static inline int64_t wn__attention_unseen(const struct wn__attention_tile *t, int64_t i)
{
    return i + t->diagonal < 0 ? 0 : i + t->diagonal;
}

/* The kernels of a tile: of the class, or tile.c, with the same bits. softmax and draw leave rows alone
 * that wn__attention_seen does not count. */
struct wn__attention_kernel {
    void (*multiply)(const struct wn__attention_product *p);
    /* One step of the online softmax; best, sum, back: (width). best' = max(best, maximum of s over keys); s = kept ?
     * 2^(s - best') : 0; back = 2^(best - best'); sum = sum back + (sum of 2^(s - best') over keys, kept or not); best
     * = best'. */
    void (*softmax)(const struct wn__attention_tile *t, float *best, float *sum, float *back);
    /* Draws t->kept. element: the index in (B, H, T, T) of row 0 of column 0. */
    void (*draw)(const struct wn__attention *k, const struct wn__attention_tile *t, uint64_t element);
    /* 1: keys and values of f32 are copied to dense rows before products. In qkv their rows lie a power of two, or
     * nearly, apart, share few sets of the first-level cache, and are read once for every micro-tile.
     * Measured, causal, forward: AVX2 heads of 64, 256 positions: 62 -> 65 % of the peak, heads of 128: 65 -> 71 %,
     * backward the same; AVX-512, whose micro-tiles read them half as often: 65 -> 64 % and 79 -> 78 % (Zen 4). */
    int32_t is_dense;
};
extern const struct wn__attention_kernel wn__attention_portable, wn__attention_avx2, wn__attention_avx512;
/* Returns the kernels of the class. */
static inline const struct wn__attention_kernel *wn__attention_here(void)
{
    return wn__micro.attention != NULL ? wn__micro.attention : &wn__attention_portable;
}

/* Computes a product that makes a tile of weights, without the weights beyond the diagonal. */
void wn__attention_scores(const struct wn__attention_kernel *g, const struct wn__attention_product *p,
                          const struct wn__attention_tile *t);

/* Multiplies the columns of x: (m, n), rows ld words apart, by factor: (n). */
void wn__attention_scale(float *x, int64_t m, int64_t n, int64_t ld, const float *factor);

/* Writes minus infinity where a row does not count for a column, in the rows that wn__attention_seen counts. */
void wn__attention_mask(const struct wn__attention_tile *t);

/* Loads n rows of `size` elements, `from_row` elements apart, from element `at` of `from`, times factor, as f32: to
 * (rows, ldt), zeros right of them and below. */
struct wn__attention_rows {
    const void *from;
    int64_t at, from_row, n, rows, ldt;
    float factor;
};
void wn__attention_load(const struct wn__attention *k, const struct wn__attention_rows *r, float *to);
/* Returns n rows of qkv from element `at` as f32, rows *step words apart: in place, or copied into buffer: (n,
 * wide). */
const float *wn__attention_see(const struct wn__attention *k, int64_t at, int64_t n, int64_t wide, float *buffer,
                               int64_t *step);
/* Stores the transpose of from: (size, n), rows ld words apart, as n rows of out, `to_row` elements apart, from element
 * `at`. buffer: (n, size). */
struct wn__attention_columns {
    const float *from;
    int64_t ld, n, at, to_row;
};
void wn__attention_store_transposed(const struct wn__attention *k, const struct wn__attention_columns *c,
                                    float *buffer);

/* Returns the factor of the weights that dropout keeps: 1 / (1 - p). */
static inline float wn__attention_kept_factor(const struct wn__attention *k)
{
    return k->p > 0 && wn_dropout_threshold(k->p) > 0 ? (float)wn_dropout_scale_f64(k->p) : 1.0f;
}

/* Returns the number of keys of a tile of `floats` words, at most `most`; 8 less where rows of the (T, T) weights do
 * not begin with a whole draw of four words. */
static inline int64_t wn__attention_keys(const struct wn__attention *k, int64_t floats, int64_t most)
{
    int64_t wide = (k->size + 15) / 16 * 16, keys = floats / wide / 8 * 8;
    return (keys < most ? keys : most) - (k->time % 4 ? 8 : 0);
}
#endif
