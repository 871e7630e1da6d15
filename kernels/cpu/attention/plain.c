/* Attention one query at a time, in double: the reference, and what computes f64 and heads that tiles are too small
 * for. A score is computed again whenever it is needed, so no row of scores is stored. */
#include <math.h>
#include "../../../runtime/base/random.h"
#include "../../scalar.h"
#include "attention.h"

#define FEATURES 64 /* elements of a row of the result that are summed at a time */
#define SAME(x) ((double)(x))
#define WIDEN(x) ((double)wn_from_bf16(x))
#define TO_F64(x) (x)
#define TO_F32(x) ((float)(x))
#define TO_BF16(x) wn_to_bf16((float)(x))

/* Returns the factor that dropout gives a weight: 0, or 1 / (1 - p). */
static double kept(const struct wn__attention *k, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (k->p <= 0) return 1;
    uint64_t element = (uint64_t)(((b * k->heads + h) * k->time + i) * k->time + j);
    uint32_t word = wn_philox_word(k->seed, k->counter, element);
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
    struct query q = {b, h, i, k->causal ? i + 1 : k->time, wn__attention_query(k, b, i, h), 0, 0, -INFINITY, 0};
    q.key_at = wn__attention_key(k, b, 0, h / (k->heads / k->kv_heads));
    q.out_at = wn__attention_result(k, b, i, h);
    return q;
}

#define PLAIN(S, E, LOAD, STORE, A)                                                                                    \
    static double dot_##S(const E *a, const E *b, int64_t n)                                                           \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        for (int64_t f = 0; f < n; f++) sum += LOAD(a[f]) * LOAD(b[f]);                                                \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static double score_##S(const struct wn__attention *k, const struct query *q, int64_t j)                           \
    {                                                                                                                  \
        const E *x = k->qkv;                                                                                           \
        return k->scale * dot_##S(x + q->at, x + q->key_at + j * k->row, k->size);                                     \
    }                                                                                                                  \
    static void statistics_##S(const struct wn__attention *k, struct query *q)                                         \
    {                                                                                                                  \
        for (int64_t j = 0; j < q->keys; j++) q->best = wn_maximum_f64(score_##S(k, q, j), q->best);                   \
        for (int64_t j = 0; j < q->keys; j++) q->sum += exp(score_##S(k, q, j) - q->best);                             \
    }                                                                                                                  \
    static void queries_##S(int64_t begin, int64_t end, void *ctx)                                                     \
    {                                                                                                                  \
        const struct wn__attention *k = ctx;                                                                           \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            struct query q = query_of(k, r / k->time / k->heads, r / k->time % k->heads, r % k->time);                 \
            const E *value = (const E *)k->qkv + q.key_at + k->kv_heads * k->size;                                     \
            statistics_##S(k, &q);                                                                                     \
            for (int64_t f0 = 0; f0 < k->size; f0 += FEATURES) {                                                       \
                double acc[FEATURES] = {0};                                                                            \
                int64_t n = k->size - f0 < FEATURES ? k->size - f0 : FEATURES;                                         \
                for (int64_t j = 0; j < q.keys; j++) {                                                                 \
                    double w = exp(score_##S(k, &q, j) - q.best) / q.sum * kept(k, q.b, q.h, q.i, j);                  \
                    for (int64_t f = 0; f < n; f++) acc[f] += w * LOAD(value[j * k->row + f0 + f]);                    \
                }                                                                                                      \
                for (int64_t f = 0; f < n; f++) ((E *)k->out)[q.out_at + f0 + f] = STORE(acc[f]);                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* Adds the part of one query to every gradient. */                                                                \
    static void query_grad_##S(const struct wn__attention *k, struct query *q)                                         \
    {                                                                                                                  \
        int64_t values = k->kv_heads * k->size;                                                                        \
        const E *x = (const E *)k->qkv + q->at, *key = (const E *)k->qkv + q->key_at;                                  \
        const E *dy = (const E *)k->dy + q->out_at;                                                                    \
        statistics_##S(k, q);                                                                                          \
        double shared = dot_##S(dy, (const E *)k->y + q->out_at, k->size);                                             \
        for (int64_t f0 = 0; f0 < k->size; f0 += FEATURES) {                                                           \
            double acc[FEATURES] = {0};                                                                                \
            int64_t n = k->size - f0 < FEATURES ? k->size - f0 : FEATURES;                                             \
            for (int64_t j = 0; j < q->keys; j++) {                                                                    \
                const E *key_j = key + j * k->row;                                                                     \
                A *dk = (A *)k->sums + wn__attention_sum(k, q->b, j, q->h / (k->heads / k->kv_heads)) + f0;            \
                double keep = kept(k, q->b, q->h, q->i, j);                                                            \
                double w = exp(score_##S(k, q, j) - q->best) / q->sum;                                                 \
                double ds = w * (dot_##S(dy, key_j + values, k->size) * keep - shared) * k->scale;                     \
                for (int64_t f = 0; f < n; f++) acc[f] += ds * LOAD(key_j[f0 + f]);                                    \
                for (int64_t f = 0; f < n; f++) dk[f] += (A)(ds * LOAD(x[f0 + f]));                                    \
                for (int64_t f = 0; f < n; f++) dk[values + f] += (A)(w * keep * LOAD(dy[f0 + f]));                    \
            }                                                                                                          \
            for (int64_t f = 0; f < n; f++) ((E *)k->out)[q->at + f0 + f] = STORE(acc[f]);                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void key_heads_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct wn__attention *k = ctx;                                                                           \
        int64_t group = k->heads / k->kv_heads;                                                                        \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            int64_t b = r / k->kv_heads, g = r % k->kv_heads;                                                          \
            for (int64_t t = 0; t < k->time; t++) {                                                                    \
                A *dk = (A *)k->sums + wn__attention_sum(k, b, t, g);                                                  \
                for (int64_t f = 0; f < k->size; f++) dk[f] = dk[k->kv_heads * k->size + f] = 0;                       \
            }                                                                                                          \
            for (int64_t h = g * group; h < (g + 1) * group; h++)                                                      \
                for (int64_t i = 0; i < k->time; i++) {                                                                \
                    struct query q = query_of(k, b, h, i);                                                             \
                    query_grad_##S(k, &q);                                                                             \
                }                                                                                                      \
            wn__attention_round_sums(k, b, g);                                                                         \
        }                                                                                                              \
    }

PLAIN(f64, double, SAME, TO_F64, double)
PLAIN(f32, float, SAME, TO_F32, float)
PLAIN(bf16, uint16_t, WIDEN, TO_BF16, float)

void wn__attention_plain(const struct wn__attention *k)
{
    wn__parallel_body body = k->dtype == WN_F64 ? queries_f64 : k->dtype == WN_F32 ? queries_f32 : queries_bf16;
    wn__parallel_for(k->batch * k->heads * k->time, WN_CPU_GRAIN_MATH / (k->time * k->size) + 1, body, (void *)k);
}

void wn__attention_plain_grad(const struct wn__attention *k)
{
    wn__parallel_body body = k->dtype == WN_F64 ? key_heads_f64 : k->dtype == WN_F32 ? key_heads_f32 : key_heads_bf16;
    wn__parallel_for(k->batch * k->kv_heads, 1, body, (void *)k);
}
