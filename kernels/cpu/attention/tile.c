/* The pieces of tiled attention: rows to and from f32 tiles, products up to the diagonal, and in portable C the steps
 * between products, softmax and dropout. Queries are across, so every loop runs over queries in one vector: no sum or
 * maximum crosses the lanes of a vector, and the order over keys is that of the keys, four at a time. */
#include "attention.h"
#include <math.h>
#include <string.h>
#include "../element/philox_bulk.h"
#include "../gemm/gemm.h"
#include "../../../runtime/base/number.h"

#define LANES 16
#define EACH_LANE _Pragma("omp simd") for (int32_t i = 0; i < LANES; i++)

/* ---- rows ---------------------------------------------------------------------------------------- */

void wn__attention_load(const struct wn__attention *k, const struct wn__attention_rows *r, float *to)
{
    for (int64_t i = 0; i < r->n; i++) {
        int64_t at = r->at + i * r->from_row;
        float *restrict row = to + i * r->ldt, factor = r->factor;
        if (k->dtype == WN_BF16) {
            const uint16_t *restrict x = (const uint16_t *)r->from + at;
            _Pragma("omp simd") for (int64_t f = 0; f < k->size; f++) row[f] = wn_from_bf16(x[f]) * factor;
        } else {
            const float *restrict x = (const float *)r->from + at;
            _Pragma("omp simd") for (int64_t f = 0; f < k->size; f++) row[f] = x[f] * factor;
        }
        for (int64_t f = k->size; f < r->ldt; f++) row[f] = 0;
    }
    if (r->rows > r->n) memset(to + r->n * r->ldt, 0, (size_t)((r->rows - r->n) * r->ldt) * sizeof *to);
}

const float *wn__attention_see(const struct wn__attention *k, int64_t at, int64_t n, int64_t wide, float *buffer,
                               int64_t *step)
{
    *step = k->row;
    if (k->dtype == WN_F32 && !wn__attention_here()->is_dense) return (const float *)k->qkv + at;
    struct wn__attention_rows rows = {
        .from = k->qkv, .at = at, .from_row = k->row, .n = n, .rows = n, .ldt = wide, .factor = 1};
    wn__attention_load(k, &rows, buffer);
    *step = wide;
    return buffer;
}

static void store(const struct wn__attention *k, const float *from, int64_t ld, int64_t n, int64_t at, int64_t to_row)
{
    for (int64_t i = 0; i < n; i++, from += ld, at += to_row) {
        uint16_t *out = (uint16_t *)k->out + at;
        for (int64_t f = 0; f < k->size; f++) out[f] = wn_to_bf16(from[f]);
    }
}

void wn__attention_store_transposed(const struct wn__attention *k, const struct wn__attention_columns *c, float *buffer)
{
    const struct wn__gemm_kernel *g = wn__micro.gemm;
    if (k->dtype == WN_F32) {
        g->transpose(c->from, c->ld, k->size, c->n, (float *)k->out + c->at, c->to_row);
        return;
    }
    g->transpose(c->from, c->ld, k->size, c->n, buffer, k->size);
    store(k, buffer, k->size, c->n, c->at, c->to_row);
}

void wn__attention_round_sums(const struct wn__attention *k, int64_t b, int64_t g)
{
    if (k->dtype != WN_BF16) return;
    for (int64_t t = 0; t < k->time; t++) {
        const float *sum = (const float *)k->sums + wn__attention_sum(k, b, t, g);
        int64_t values = k->kv_heads * k->size, at = wn__attention_key(k, b, t, g);
        store(k, sum, 0, 1, at, 0);
        store(k, sum + values, 0, 1, at + values, 0);
    }
}

/* ---- up to the diagonal -------------------------------------------------------------------------- */

/* Rows [row, row + rows) of a tile, which count for the same vectors of 16 columns, from `column` on; rows = 0: none
 * left. */
struct piece {
    int64_t row, rows, column;
};

static struct piece piece_from(const struct wn__attention_tile *t, int64_t row)
{
    int64_t past = row + t->diagonal;
    struct piece s = {row, past < 0 ? 16 - past : 16 - past % 16, past < 0 ? 0 : past / 16 * 16};
    s.rows = s.column < t->width ? wn_min(s.rows, t->keys - row) : 0;
    return s;
}

void wn__attention_scores(const struct wn__attention_kernel *g, const struct wn__attention_product *p,
                          const struct wn__attention_tile *t)
{
    struct wn__attention_product part = *p;
    struct wn__attention_weighing weighing;
    for (struct piece s = piece_from(t, 0); s.rows > 0; s = piece_from(t, s.row + s.rows)) {
        const int64_t at = s.row * p->ldc + s.column;
        part.m = s.rows;
        part.n = p->n - s.column;
        part.a = p->a + s.row * p->ai;
        part.b = p->b + s.column;
        part.c = p->c + at;
        if (p->weighing) {
            weighing = *p->weighing;
            weighing.s += at;
            weighing.factor += s.column;
            weighing.shared += s.column;
            if (weighing.kept) weighing.kept += s.column / 16 * WN_ATTENTION_KEPT + s.row;
            part.weighing = &weighing;
        }
        g->multiply(&part);
    }
}

static void mask(const struct wn__attention_tile *t, int64_t row, int64_t rows, int64_t column)
{
    for (int64_t j = row; j < row + rows; j++) {
        int32_t hidden = (int32_t)(j + t->diagonal - column);
        float *s = t->s + j * t->ld + column;
        EACH_LANE s[i] = i < hidden ? -INFINITY : s[i];
    }
}

void wn__attention_mask(const struct wn__attention_tile *t)
{
    int64_t first = t->diagonal < 0 ? wn_min(-t->diagonal, t->keys) : 0; /* rows before hide nothing */
    for (struct piece s = piece_from(t, first); s.rows > 0; s = piece_from(t, s.row + s.rows))
        mask(t, s.row, s.rows, s.column);
}

/* ---- products, portable -------------------------------------------------------------------------- */

void wn__attention_scale(float *x, int64_t m, int64_t n, int64_t ld, const float *factor)
{
    for (int64_t r = 0; r < m; r++) _Pragma("omp simd") for (int64_t c = 0; c < n; c++) x[r * ld + c] *= factor[c];
}

/* Computes a product by the micro-kernel of large products (gemm.h); every column takes every step of k. */
static void multiply_all(const struct wn__attention_product *p)
{
    const struct wn__gemm_kernel *g = wn__micro.gemm;
    struct wn__gemm_microtile t = {.ai = p->ai, .ak = p->ak, .bk = p->bk, .ldc = p->ldc, .aux.is_near = 1};
    for (int64_t column = 0; column < p->n; column += g->nr) {
        t.n = wn_min(p->n - column, g->nr);
        for (int64_t k = 0; k < p->k; k += WN_GEMM_KC) {
            t.kc = wn_min(p->k - k, WN_GEMM_KC);
            t.b = p->b + k * p->bk + column;
            t.first = p->first && k == 0;
            for (int64_t i = 0; i < p->m; i += g->mr) {
                t.m = wn_min(p->m - i, g->mr);
                t.a = p->a + i * p->ai + k * p->ak;
                t.c = p->c + i * p->ldc + column;
                t.aux.line = (const char *)t.a;
                g->microkernel(&t);
            }
        }
    }
}

/* Zeroes what is not kept of `keys` rows of 16 columns. */
INLINE void drop(float *x, int64_t ld, int64_t keys, const uint16_t *kept)
{
    for (int64_t j = 0; j < keys; j++, x += ld) {
        uint32_t bits = kept[j];
        EACH_LANE x[i] = bits >> i & 1 ? x[i] : 0.0f;
    }
}

static void weigh(const struct wn__attention_product *p)
{
    const struct wn__attention_weighing *w = p->weighing;
    for (int64_t c = 0; c < p->n; c += LANES) {
        const uint16_t *kept = w->kept ? w->kept + c / LANES * WN_ATTENTION_KEPT : NULL;
        if (kept) drop(p->c + c, p->ldc, p->m, kept);
        for (int64_t j = 0; j < p->m; j++) {
            float *restrict s = w->s + j * p->ldc + c, *restrict d = p->c + j * p->ldc + c;
            EACH_LANE
            {
                s[i] *= w->factor[c + i];
                d[i] = s[i] * (d[i] - w->shared[c + i]);
            }
        }
        if (kept) drop(w->s + c, p->ldc, p->m, kept);
    }
}

/* Computes a product whose a is a tile: 8 rows at a time, and all rows that skip no step together. */
static void multiply_late(const struct wn__attention_product *p)
{
    struct wn__attention_product part = *p;
    for (int64_t i = 0; i < p->m; i += part.m) {
        int64_t skip = wn__attention_unseen(p->late, i);
        part.first = i >= p->late->fresh;
        part.m = wn_min(i + p->late->diagonal + 8 <= 0 ? -p->late->diagonal - i : 8, p->m - i);
        if (!part.first) part.m = wn_min(part.m, p->late->fresh - i);
        part.k = p->k - skip;
        part.a = p->a + i * p->ai + skip * p->ak;
        part.b = p->b + skip * p->bk;
        part.c = p->c + i * p->ldc;
        if (part.k > 0) multiply_all(&part);
    }
}

/* Computes a product. Where b is a tile, the steps of k that count for the same columns are computed together. */
static void multiply(const struct wn__attention_product *p)
{
    struct wn__attention_product part = *p;
    if (p->back) wn__attention_scale(p->c, p->m, p->n, p->ldc, p->back);
    if (p->late) multiply_late(p);
    else if (!p->seen) multiply_all(p);
    else
        for (struct piece s = piece_from(p->seen, 0); s.rows > 0; s = piece_from(p->seen, s.row + s.rows)) {
            part.k = s.rows;
            part.n = p->n - s.column;
            part.a = p->a + s.row * p->ak;
            part.b = p->b + s.row * p->bk + s.column;
            part.c = p->c + s.column;
            part.first = s.row == 0 && p->first;
            multiply_all(&part);
        }
    if (p->weighing) weigh(p);
}

/* ---- softmax, portable --------------------------------------------------------------------------- */

INLINE float greater(float a, float b)
{
    return a > b ? a : b; /* a NaN need not win: 2^(NaN - best) is NaN in any case */
}

/* 16 columns of a tile, (keys, 16), rows ld words apart, and the running numbers of their online softmax. */
struct group {
    float *s;
    int64_t ld, keys;
    float *best, *sum, *back;
};

/* Computes one step of the online softmax of 16 queries. */
INLINE void softmax_lanes(const struct group *g)
{
    const int64_t ld = g->ld, keys = g->keys;
    float top[LANES], part[LANES] = {0}, *s = g->s;
    int64_t j = 0;
    memcpy(top, g->best, sizeof top);
    for (; j + 4 <= keys; j += 4) {
        const float *a = s + j * ld, *b = a + ld, *c = b + ld, *d = c + ld;
        EACH_LANE top[i] = greater(top[i], greater(greater(a[i], b[i]), greater(c[i], d[i])));
    }
    for (; j < keys; j++) EACH_LANE top[i] = greater(top[i], s[j * ld + i]);
    for (j = 0; j + 4 <= keys; j += 4) {
        float *restrict a = s + j * ld, *restrict b = a + ld, *restrict c = b + ld, *restrict d = c + ld;
        EACH_LANE
        {
            float p = wn_exp2_below_f32(a[i] - top[i]), q = wn_exp2_below_f32(b[i] - top[i]);
            float r = wn_exp2_below_f32(c[i] - top[i]), t = wn_exp2_below_f32(d[i] - top[i]);
            a[i] = p, b[i] = q, c[i] = r, d[i] = t;
            part[i] += (p + q) + (r + t);
        }
    }
    for (; j < keys; j++) {
        float *a = s + j * ld;
        EACH_LANE
        {
            a[i] = wn_exp2_below_f32(a[i] - top[i]);
            part[i] += a[i];
        }
    }
    EACH_LANE
    {
        g->back[i] = wn_exp2_below_f32(g->best[i] - top[i]);
        g->sum[i] = fmaf(g->sum[i], g->back[i], part[i]);
        g->best[i] = top[i];
    }
}

static void softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back)
{
    for (int64_t c = 0; c < t->width; c += LANES) {
        const struct group g = {.s = t->s + c,
                                .ld = t->ld,
                                .keys = wn__attention_seen(t, c),
                                .best = best + c,
                                .sum = sum + c,
                                .back = back + c};
        softmax_lanes(&g);
        if (t->kept) drop(g.s, g.ld, g.keys, t->kept + c / 16 * WN_ATTENTION_KEPT);
    }
}

/* ---- dropout, portable --------------------------------------------------------------------------- */

/* Sets bit i of kept[j] for the keys of one query, whose first weight has the index `element`. Where element is no
 * multiple of four, the first words of the draw belong to weights before it. */
static void draw_query(const struct wn__attention *k, uint64_t element, int64_t keys, int32_t i, uint16_t *kept)
{
    uint32_t word[4 * WN_QUADS];
    const uint32_t *from = word + (element & 3);
    uint64_t threshold = wn_dropout_threshold(k->p);
    wn__draw(k->seed, k->counter, element >> 2, word);
    for (int64_t j = 0; j < keys; j++) kept[j] |= (uint16_t)((from[j] < threshold) << i);
}

static void draw(const struct wn__attention *k, const struct wn__attention_tile *t, uint64_t element)
{
    for (int64_t c = 0; c < t->width; c += 16) {
        uint16_t *kept = t->kept + c / 16 * WN_ATTENTION_KEPT;
        int64_t keys = wn__attention_seen(t, c);
        for (int64_t j = 0; j < keys; j++) kept[j] = 0;
        for (int32_t i = 0; i < 16; i++) draw_query(k, element + (uint64_t)((c + i) * k->time), keys, i, kept);
    }
}

const struct wn__attention_kernel wn__attention_portable = {multiply, softmax, draw, 0};
