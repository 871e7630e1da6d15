/* The pieces of tiled attention: rows in and out of f32 tiles, a product of tiles, and what stands between the
 * products - mask, softmax, dropout. Queries lie across, so every loop here runs over queries side by side: no sum or
 * maximum ever crosses a vector's lanes, and their order over keys is the order of the keys, four at a time. */
#include "attention.h"
#include <math.h>
#include <string.h>
#include "../scalar.h"
#include "draw.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

WN_CLONES static void load(const struct wn__attention *k, const struct wn__attention_rows *r, float *to)
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

void wn__attention_load(const struct wn__attention *k, const struct wn__attention_rows *r, float *to)
{
    load(k, r, to);
}

void wn__attention_store(const struct wn__attention *k, const float *from, int64_t ld, int64_t n, int64_t at,
                         int64_t to_row)
{
    for (int64_t i = 0; i < n; i++, from += ld, at += to_row) {
        if (k->dtype == WN_BF16) {
            uint16_t *out = (uint16_t *)k->out + at;
            for (int64_t f = 0; f < k->size; f++) out[f] = wn_to_bf16(from[f]);
        } else {
            memcpy((float *)k->out + at, from, (size_t)k->size * sizeof *from);
        }
    }
}

void wn__attention_round_sums(const struct wn__attention *k, int64_t b, int64_t g)
{
    if (k->dtype != WN_BF16) return;
    for (int64_t t = 0; t < k->time; t++) {
        const float *sum = (const float *)k->sums + wn__attention_sum(k, b, t, g);
        int64_t values = k->kv_heads * k->size, at = wn__attention_key(k, b, t, g);
        wn__attention_store(k, sum, 0, 1, at, 0);
        wn__attention_store(k, sum + values, 0, 1, at + values, 0);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------- */

/* Columns in strips as equal as vectors allow: 64 as 32 + 32 keeps more sums in flight than 48 + 16. */
void wn__attention_multiply(const struct wn__gemm_kernel *g, const struct wn__attention_product *p)
{
    int64_t strips = (p->n + g->nr - 1) / g->nr, width = ((p->n + strips - 1) / strips + 15) / 16 * 16;
    struct wn__gemm_tile t = {.ai = p->ai, .ak = p->ak, .bk = p->bk, .ldc = p->ldc, .ahead_near = 1};
    for (int64_t column = 0; column < p->n; column += width) {
        t.n = least(p->n - column, width);
        for (int64_t k = 0; k < p->k; k += WN_GEMM_KC) {
            t.kc = least(p->k - k, WN_GEMM_KC);
            t.b = p->b + k * p->bk + column;
            t.first = p->first && k == 0;
            for (int64_t i = 0; i < p->m; i += g->mr) {
                t.m = least(p->m - i, g->mr);
                t.a = p->a + i * p->ai + k * p->ak;
                t.c = p->c + i * p->ldc + column;
                t.ahead = (const char *)t.a; /* all is near: touching the next rows costs 3 % */
                g->tile(&t);
            }
        }
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------- */

void wn__attention_mask(const struct wn__attention_tile *t)
{
    for (int64_t j = 0; j < t->keys; j++) {
        int64_t hidden = least(t->key0 + j - t->query0, t->width);
        for (int64_t c = 0; c < hidden; c++) t->s[j * t->ld + c] = -INFINITY;
    }
}

#define LANES 16
#define EACH_LANE _Pragma("omp simd") for (int64_t i = 0; i < LANES; i++)

static inline __attribute__((always_inline)) float greater(float a, float b)
{
    return a > b ? a : b; /* a NaN need not win here: exp(NaN - best) is one */
}

/* 16 queries: s (keys, ld) from their first column on. */
static inline __attribute__((always_inline)) void softmax_lanes(float *s, int64_t ld, int64_t keys, float *best,
                                                                float *sum, float *back)
{
    float top[LANES], part[LANES] = {0};
    int64_t j = 0;
    memcpy(top, best, sizeof top);
    for (; j + 4 <= keys; j += 4) {
        const float *a = s + j * ld, *b = a + ld, *c = b + ld, *d = c + ld;
        EACH_LANE top[i] = greater(top[i], greater(greater(a[i], b[i]), greater(c[i], d[i])));
    }
    for (; j < keys; j++) EACH_LANE top[i] = greater(top[i], s[j * ld + i]);
    for (j = 0; j + 4 <= keys; j += 4) {
        float *restrict a = s + j * ld, *restrict b = a + ld, *restrict c = b + ld, *restrict d = c + ld;
        EACH_LANE
        {
            float p = wn_exp_below_f32(a[i] - top[i]), q = wn_exp_below_f32(b[i] - top[i]);
            float r = wn_exp_below_f32(c[i] - top[i]), t = wn_exp_below_f32(d[i] - top[i]);
            a[i] = p, b[i] = q, c[i] = r, d[i] = t;
            part[i] += (p + q) + (r + t);
        }
    }
    for (; j < keys; j++) {
        float *a = s + j * ld;
        EACH_LANE
        {
            a[i] = wn_exp_below_f32(a[i] - top[i]);
            part[i] += a[i];
        }
    }
    EACH_LANE
    {
        back[i] = wn_exp_below_f32(best[i] - top[i]);
        sum[i] = fmaf(sum[i], back[i], part[i]);
        best[i] = top[i];
    }
}

WN_CLONES static void softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back)
{
    for (int64_t c = 0; c < t->width; c += LANES) softmax_lanes(t->s + c, t->ld, t->keys, best + c, sum + c, back + c);
}

void wn__attention_softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back)
{
    softmax(t, best, sum, back);
}

/* ---- dropout ----------------------------------------------------------------------------------------------- */

/* Weights of query i, keys key0 ..: one draw of 64 or 128 words, some before the first weight when its row of the
 * mask does not begin at a multiple of four. */
WN_CLONES static void draw_query(const struct wn__attention *k, uint64_t element, int64_t keys, float *factor)
{
    uint32_t word[4 * WN_QUADS], last = (uint32_t)(wn_dropout_threshold(k->p) - 1);
    const uint32_t *from = word + (element & 3);
    float scale = wn_dropout_scale_f32(k->p);
    if ((int64_t)(element & 3) + keys <= 2 * WN_QUADS)
        wn__draw_quads(k->seed, k->counter, element >> 2, WN_QUADS / 2, word);
    else wn__draw(k->seed, k->counter, element >> 2, word);
    _Pragma("omp simd") for (int64_t j = 0; j < keys; j++) factor[j] = from[j] <= last ? scale : 0.0f;
}

void wn__attention_draw(const struct wn__attention *k, const struct wn__gemm_kernel *g,
                        const struct wn__attention_tile *t, int64_t b, int64_t h, float *factor)
{
    float rows[16 * WN_ATTENTION_DRAWN] = {0};
    int64_t none = wn_dropout_threshold(k->p) == 0; /* p is 1: nothing stays */
    for (int64_t c = 0; c < t->width; c += 16) {
        int64_t n = least(16, k->time - t->query0 - c); /* columns beyond are no queries: any factor does */
        for (int64_t i = 0; i < n && !none; i++) {
            int64_t query = (b * k->heads + h) * k->time + t->query0 + c + i;
            draw_query(k, (uint64_t)(query * k->time + t->key0), t->keys, rows + i * WN_ATTENTION_DRAWN);
        }
        g->transpose(rows, WN_ATTENTION_DRAWN, 16, t->keys, factor + c, t->ld);
    }
}
