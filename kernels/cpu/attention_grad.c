/* Tiled attention, backward: a task is one key head, so that the gradients of its keys and values are summed in order:
 * query heads of its group, then tiles of queries, then tiles of keys. For each tile of queries the keys come by
 * twice: once for the maximum and sum of each query, once for the weights p and their gradient
 *     ds = p (dropout(dy v) - dy y),   dq += ds k,   dk += ds q,   dv += dropout(p) dy.
 * Nothing of the forward is kept but its result. */
#include <math.h>
#include <string.h>
#include "../scalar.h"
#include "attention.h"

/* Keys, values: 16 KiB each; eight more tiles of 24 KiB. With heads of 64 that is 64 keys and 96 queries; 226 KiB of
 * the thread's stack in all. */
#define KEY_FLOATS 4096
#define KEYS 64
#define QUERY_FLOATS 6144
#define QUERIES 96

struct grad {
    const struct wn__attention *k;
    const struct wn__gemm_kernel *kernel;
    int64_t wide, queries, keys; /* floats of a row in a tile; queries and keys of a tile */
};

struct work {
    float key[KEY_FLOATS], value[KEY_FLOATS];              /* (keys, wide) */
    float query[QUERY_FLOATS], dy[QUERY_FLOATS];           /* (queries, wide); queries times the scale */
    float query_turned[QUERY_FLOATS];                      /* (size, all) */
    float dy_turned[QUERY_FLOATS];                         /* (size, all) */
    float dq[QUERY_FLOATS];                                /* (size, all) */
    float weight[KEYS * QUERIES], dweight[KEYS * QUERIES]; /* (keys, all) */
    float factor[KEYS * QUERIES];
    float best[QUERIES], sum[QUERIES], shared[QUERIES];
    int64_t b, g, h, first, n, all; /* key head g, query head h, queries first .. first + n - 1 padded to `all` */
} __attribute__((aligned(64)));

/* A tile of keys, and the first column of queries that sees any of them (a multiple of 16). */
struct stretch {
    int64_t key0, keys, column;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* weight: scores -> p with dropout; dweight: dy v -> ds. Sixteen queries at a time. */
WN_CLONES static void weigh(struct work *w, const struct stretch *s, int32_t drops)
{
    for (int64_t c = s->column; c < w->all; c += 16) {
        const float *best = w->best + c, *inverse = w->sum + c, *shared = w->shared + c;
        for (int64_t j = 0; j < s->keys; j++) {
            int64_t at = j * w->all + c;
            float *restrict weight = w->weight + at, *restrict dweight = w->dweight + at;
            const float *restrict factor = w->factor + at;
            if (drops) {
                _Pragma("omp simd") for (int64_t i = 0; i < 16; i++)
                {
                    float p = wn_exp_below_f32(weight[i] - best[i]) * inverse[i];
                    dweight[i] = p * (dweight[i] * factor[i] - shared[i]);
                    weight[i] = p * factor[i];
                }
            } else {
                _Pragma("omp simd") for (int64_t i = 0; i < 16; i++)
                {
                    float p = wn_exp_below_f32(weight[i] - best[i]) * inverse[i];
                    dweight[i] = p * (dweight[i] - shared[i]);
                    weight[i] = p;
                }
            }
        }
    }
}

/* Keys from key0 on: their number, and which queries of the tile see them. */
static struct stretch stretch_at(const struct grad *r, const struct work *w, int64_t key0, int64_t stop)
{
    struct stretch s = {key0, least(stop - key0, r->keys), 0};
    if (r->k->causal && key0 > w->first) s.column = (key0 - w->first) / 16 * 16;
    return s;
}

static void load_rows(const struct grad *r, const void *from, int64_t at, int64_t from_row, int64_t n, int64_t rows,
                      float factor, float *to)
{
    struct wn__attention_rows load = {from, at, from_row, n, rows, r->wide, factor};
    wn__attention_load(r->k, &load, to);
}

/* Everything of a tile of queries that does not depend on keys. */
static void load_queries(const struct grad *r, struct work *w)
{
    const struct wn__attention *k = r->k;
    int64_t at = wn__attention_result(k, w->b, w->first, w->h);
    load_rows(r, k->qkv, wn__attention_query(k, w->b, w->first, w->h), k->row, w->n, w->all, (float)k->scale, w->query);
    load_rows(r, k->dy, at, k->out_row, w->n, w->all, 1, w->dy);
    load_rows(r, k->y, at, k->out_row, w->n, w->all, 1, w->dq);
    for (int64_t c = 0; c < w->all; c++) {
        w->shared[c] = (float)wn__row_dot_f32(w->dy + c * r->wide, w->dq + c * r->wide, k->size);
        w->best[c] = -INFINITY;
        w->sum[c] = 0;
    }
    r->kernel->transpose(w->query, r->wide, w->all, k->size, w->query_turned, w->all);
    r->kernel->transpose(w->dy, r->wide, w->all, k->size, w->dy_turned, w->all);
    memset(w->dq, 0, sizeof w->dq);
}

/* The scores of a tile, into weight. */
static struct wn__attention_tile scores(const struct grad *r, struct work *w, const struct stretch *s)
{
    const struct wn__attention *k = r->k;
    struct wn__attention_tile t = {w->weight + s->column, w->all,  s->keys,
                                   w->all - s->column,    s->key0, w->first + s->column};
    load_rows(r, k->qkv, wn__attention_key(k, w->b, s->key0, w->g), k->row, s->keys, s->keys, 1, w->key);
    struct wn__attention_product product = {s->keys, t.width, k->size, w->key, r->wide, 1, w->query_turned + s->column,
                                            w->all,  t.s,     t.ld,    1};
    wn__attention_multiply(r->kernel, &product);
    if (k->causal && s->key0 + s->keys - 1 > t.query0) wn__attention_mask(&t);
    return t;
}

static void run_stretch(const struct grad *r, struct work *w, const struct stretch *s)
{
    const struct wn__attention *k = r->k;
    int64_t values = k->kv_heads * k->size, c = s->column, all = w->all;
    struct wn__attention_tile t = scores(r, w, s);
    load_rows(r, k->qkv, wn__attention_key(k, w->b, s->key0, w->g) + values, k->row, s->keys, s->keys, 1, w->value);
    struct wn__attention_product product = {s->keys,          t.width, k->size,        w->value, r->wide, 1,
                                            w->dy_turned + c, all,     w->dweight + c, all,      1};
    wn__attention_multiply(r->kernel, &product);
    if (k->p > 0) wn__attention_draw(k, r->kernel, &t, w->b, w->h, w->factor + c);
    weigh(w, s, k->p > 0);
    product = (struct wn__attention_product){k->size,        t.width, s->keys,   w->key, 1, r->wide,
                                             w->dweight + c, all,     w->dq + c, all,    0};
    wn__attention_multiply(r->kernel, &product);
    float *sums = (float *)k->sums + wn__attention_sum(k, w->b, s->key0, w->g);
    product = (struct wn__attention_product){
        s->keys, k->size, w->n - c, w->dweight + c, all, 1, w->query + c * r->wide, r->wide, sums, k->sums_row, 0};
    wn__attention_multiply(r->kernel, &product);
    product.a = w->weight + c;
    product.b = w->dy + c * r->wide;
    product.c = sums + values;
    wn__attention_multiply(r->kernel, &product);
}

static void run_queries(const struct grad *r, struct work *w)
{
    const struct wn__attention *k = r->k;
    int64_t stop = k->causal ? w->first + w->n : k->time;
    float back[QUERIES];
    load_queries(r, w);
    for (int64_t key0 = 0; key0 < stop; key0 += r->keys) {
        struct stretch s = stretch_at(r, w, key0, stop);
        struct wn__attention_tile t = scores(r, w, &s);
        wn__attention_softmax(&t, w->best + s.column, w->sum + s.column, back);
    }
    for (int64_t c = 0; c < w->all; c++) w->sum[c] = 1.0f / w->sum[c];
    for (int64_t key0 = 0; key0 < stop; key0 += r->keys) {
        struct stretch s = stretch_at(r, w, key0, stop);
        run_stretch(r, w, &s);
    }
    /* dq is turned where the queries were, which are done with. */
    for (int64_t i = 0; i < k->size * w->all; i++) w->dq[i] *= (float)k->scale;
    r->kernel->transpose(w->dq, w->all, k->size, w->all, w->query, r->wide);
    wn__attention_store(k, w->query, r->wide, w->n, wn__attention_query(k, w->b, w->first, w->h), k->row);
}

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct grad *r = ctx;
    const struct wn__attention *k = r->k;
    int64_t group = k->heads / k->kv_heads, values = k->kv_heads * k->size;
    struct work w;
    for (int64_t task = begin; task < end; task++) {
        w.b = task / k->kv_heads;
        w.g = task % k->kv_heads;
        for (int64_t t = 0; t < k->time; t++) {
            float *sums = (float *)k->sums + wn__attention_sum(k, w.b, t, w.g);
            memset(sums, 0, (size_t)k->size * sizeof *sums);
            memset(sums + values, 0, (size_t)k->size * sizeof *sums);
        }
        for (w.h = w.g * group; w.h < (w.g + 1) * group; w.h++)
            for (w.first = 0; w.first < k->time; w.first += r->queries) {
                w.n = least(k->time - w.first, r->queries);
                w.all = (w.n + 15) / 16 * 16;
                run_queries(r, &w);
            }
        wn__attention_round_sums(k, w.b, w.g);
    }
}

void wn__attention_grad(const struct wn__attention *k)
{
    struct grad r = {.k = k, .kernel = wn__gemm_best(), .wide = (k->size + 15) / 16 * 16};
    r.queries = least(QUERY_FLOATS / r.wide / 16 * 16, QUERIES);
    r.keys = wn__attention_keys(k, KEY_FLOATS, KEYS);
    wn__parallel_for(k->batch * k->kv_heads, WN_CPU_GRAIN_MATH / (k->time * k->time) + 1, run_tasks, &r);
}
