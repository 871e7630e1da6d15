/* Attention one query at a time, in double: the reference, and what computes f64 and heads that tiles are too small
 * for. A score is computed again whenever it is needed, so no row of scores is stored. */
#include <math.h>
#include <string.h>
#include "../../../runtime/base/number.h"
#include "../../../runtime/base/random.h"
#include "../../scalar.h"
#include "attention.h"

#define FEATURES 64 /* elements of a row of the result that are summed at a time */

/* ---- rows of each type --------------------------------------------------------------------------- */

/* Loops over elements of one type, from index `at` on: f64 and f32 as they are, bf16 widened. */
struct rows {
    double (*dot)(const void *a, int64_t at, const void *b, int64_t bt, int64_t n); /* sum of a(at + f) b(bt + f) */
    void (*add)(const void *x, int64_t at, int64_t n, double factor, double *acc);  /* acc(f) += factor x(at + f) */
    void (*store)(const double *acc, int64_t n, void *out, int64_t at);             /* rounds acc to the type */
};

#define ROWS(S)                                                                                                        \
    static double dot_##S(const void *a, int64_t at, const void *b, int64_t bt, int64_t n)                             \
    {                                                                                                                  \
        const wn__element_##S *x = (const wn__element_##S *)a + at, *y = (const wn__element_##S *)b + bt;              \
        double sum = 0;                                                                                                \
        for (int64_t f = 0; f < n; f++) sum += (double)WN_LOAD_##S(x[f]) * (double)WN_LOAD_##S(y[f]);                  \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void add_##S(const void *x, int64_t at, int64_t n, double factor, double *acc)                              \
    {                                                                                                                  \
        for (int64_t f = 0; f < n; f++) acc[f] += factor * (double)WN_LOAD_##S(((const wn__element_##S *)x)[at + f]);  \
    }                                                                                                                  \
    static void store_##S(const double *acc, int64_t n, void *out, int64_t at)                                         \
    {                                                                                                                  \
        for (int64_t f = 0; f < n; f++) ((wn__element_##S *)out)[at + f] = WN_ROUND_##S(acc[f]);                       \
    }                                                                                                                  \
    static const struct rows rows_##S = {dot_##S, add_##S, store_##S};
ROWS(f64)
ROWS(f32)
ROWS(bf16)

static const struct rows *rows_of(const struct wn__attention *k)
{
    return k->dtype == WN_F64 ? &rows_f64 : k->dtype == WN_F32 ? &rows_f32 : &rows_bf16;
}

/* Adds acc, rounded to the type of the sums, to the sums from element `at` on. */
static void add_to_sums(const struct wn__attention *k, const double *acc, int64_t n, int64_t at)
{
    for (int64_t f = 0; f < n; f++)
        if (k->dtype == WN_F64) ((double *)k->sums)[at + f] += acc[f];
        else ((float *)k->sums)[at + f] += (float)acc[f];
}

/* ---- one query ----------------------------------------------------------------------------------- */

/* Returns the factor that dropout gives a weight: 0, or 1 / (1 - p). */
static double kept(const struct wn__attention *k, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (k->p <= 0) return 1;
    uint32_t word = wn_philox_word(k->seed, k->counter, wn__attention_weight(k, b, h, i, j));
    return word < wn_dropout_threshold(k->p) ? wn_dropout_scale_f64(k->p) : 0;
}

/* Query i of head h of batch entry b. */
struct query {
    int64_t b, h, i, keys;      /* keys: number of keys that it sees */
    int64_t at, key_at, out_at; /* indices of the query, of key 0 in qkv, and of the row of the result */
    double best, sum;           /* the maximum score, and the sum of exp(score - best) */
};

static struct query query_of(const struct wn__attention *k, int64_t b, int64_t h, int64_t i)
{
    struct query q = {.b = b,
                      .h = h,
                      .i = i,
                      .keys = k->causal ? i + 1 : k->time,
                      .at = wn__attention_query(k, b, i, h),
                      .best = -INFINITY};
    q.key_at = wn__attention_key(k, b, 0, h / (k->heads / k->kv_heads));
    q.out_at = wn__attention_result(k, b, i, h);
    return q;
}

static double score(const struct wn__attention *k, const struct query *q, int64_t j)
{
    return k->scale * rows_of(k)->dot(k->qkv, q->at, k->qkv, q->key_at + j * k->row, k->size);
}

static void find_statistics(const struct wn__attention *k, struct query *q)
{
    for (int64_t j = 0; j < q->keys; j++) q->best = wn_maximum_f64(score(k, q, j), q->best);
    for (int64_t j = 0; j < q->keys; j++) q->sum += exp(score(k, q, j) - q->best);
}

/* Computes elements [f0, f0 + n) of the result of one query. */
static void query_features(const struct wn__attention *k, const struct query *q, int64_t f0, int64_t n)
{
    const int64_t value = q->key_at + k->kv_heads * k->size + f0;
    double acc[FEATURES] = {0};
    for (int64_t j = 0; j < q->keys; j++) {
        double w = exp(score(k, q, j) - q->best) / q->sum * kept(k, q->b, q->h, q->i, j);
        rows_of(k)->add(k->qkv, value + j * k->row, n, w, acc);
    }
    rows_of(k)->store(acc, n, k->out, q->out_at + f0);
}

static void queries(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__attention *k = ctx;
    for (int64_t r = begin; r < end; r++) {
        struct query q = query_of(k, r / k->time / k->heads, r / k->time % k->heads, r % k->time);
        find_statistics(k, &q);
        for (int64_t f0 = 0; f0 < k->size; f0 += FEATURES) query_features(k, &q, f0, wn_min(k->size - f0, FEATURES));
    }
}

/* Adds the part of one query to elements [f0, f0 + n) of every gradient; shared: sum of dy y. */
static void query_grad_features(const struct wn__attention *k, const struct query *q, double shared, int64_t f0,
                                int64_t n)
{
    const struct rows *rows = rows_of(k);
    const int64_t values = k->kv_heads * k->size, g = q->h / (k->heads / k->kv_heads);
    double acc[FEATURES] = {0};
    for (int64_t j = 0; j < q->keys; j++) {
        const int64_t key = q->key_at + j * k->row, sum = wn__attention_sum(k, q->b, j, g) + f0;
        double dk[FEATURES] = {0}, dv[FEATURES] = {0}, keep = kept(k, q->b, q->h, q->i, j);
        double w = exp(score(k, q, j) - q->best) / q->sum;
        double ds = w * (rows->dot(k->dy, q->out_at, k->qkv, key + values, k->size) * keep - shared) * k->scale;
        rows->add(k->qkv, key + f0, n, ds, acc);
        rows->add(k->qkv, q->at + f0, n, ds, dk);
        rows->add(k->dy, q->out_at + f0, n, w * keep, dv);
        add_to_sums(k, dk, n, sum);
        add_to_sums(k, dv, n, sum + values);
    }
    rows->store(acc, n, k->out, q->at + f0);
}

/* Adds the part of one query to every gradient. */
static void query_grad(const struct wn__attention *k, struct query *q)
{
    find_statistics(k, q);
    const double shared = rows_of(k)->dot(k->dy, q->out_at, k->y, q->out_at, k->size);
    for (int64_t f0 = 0; f0 < k->size; f0 += FEATURES)
        query_grad_features(k, q, shared, f0, wn_min(k->size - f0, FEATURES));
}

/* Sets n sums from element `at` on to zero. */
static void zero_sums(const struct wn__attention *k, int64_t at, int64_t n)
{
    const size_t bytes = k->dtype == WN_F64 ? sizeof(double) : sizeof(float);
    memset((char *)k->sums + at * (int64_t)bytes, 0, (size_t)n * bytes);
}

static void key_heads(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__attention *k = ctx;
    const int64_t group = k->heads / k->kv_heads;
    for (int64_t r = begin; r < end; r++) {
        const int64_t b = r / k->kv_heads, g = r % k->kv_heads;
        for (int64_t t = 0; t < k->time; t++) {
            const int64_t at = wn__attention_sum(k, b, t, g);
            zero_sums(k, at, k->size);
            zero_sums(k, at + k->kv_heads * k->size, k->size);
        }
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            for (int64_t i = 0; i < k->time; i++) {
                struct query q = query_of(k, b, h, i);
                query_grad(k, &q);
            }
        wn__attention_round_sums(k, b, g);
    }
}

void wn__attention_plain(const struct wn__attention *k)
{
    wn__parallel_for(k->batch * k->heads * k->time, WN_CPU_GRAIN_MATH / (k->time * k->size) + 1, queries, (void *)k);
}

void wn__attention_plain_grad(const struct wn__attention *k)
{
    wn__parallel_for(k->batch * k->kv_heads, 1, key_heads, (void *)k);
}
