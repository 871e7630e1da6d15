/* Tiled attention, backward. For one tile of queries:
 *
 *     pass 1, for each tile of keys:  s = K Q', online softmax: best, sum             weights of `held` keys are kept
 *     pass 2, for each tile of keys:  p = s 2^(best then - best) / sum                other weights are computed again
 *                                     ds = p (dropout(V dO') - sum(dO O))
 *                                     dQ += K' ds   dK += ds Q   dV += dropout(p) dO
 *
 * Between the passes the weights of a tile of queries stay in the second-level cache; computing them again would be a
 * seventh of the work. Nothing of the forward is kept but its result.
 *
 * The gradients of the keys and values of a key head are summed in one order: query heads of its group, then tiles of
 * queries, then tiles of keys. Many heads: a task is a key head. Few heads: threads take the tiles of queries in that
 * order, and each adds to a tile of keys once the tile of queries before it is done with that tile. So the bits are the
 * same, and no product is computed twice:
 *
 *     thread 0, queries 0:  keys 0 | keys 1 | keys 2 | keys 3
 *     thread 1, queries 1:           keys 0 | keys 1 | keys 2 | keys 3        time -> */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include "attention.h"
#include "../gemm/gemm.h"
#include "../../../runtime/base/number.h"

/* Words of keys and of values, 32 KiB each, unused where they are read in place; of queries and of arrays of their
 * shape, 48 KiB each: 96 queries, and 96 keys for heads of 64, 64 keys for heads of 128. Weights of 1024 keys are held
 * for 96 queries, 420 KiB. All together takes 780 KiB of the stack of a thread.
 * Measured: half as many queries and keys: heads of 128 7 % slower; 64 keys: heads of 64 1 % slower. */
#define KEY_FLOATS 8192
#define KEYS 96
#define QUERY_FLOATS 12288
#define QUERIES 96
#define HELD_FLOATS (1024 * QUERIES)
#define BEST_FLOATS 4096
#define EXPECTED 256     /* rows of the next head's keys, values and sums that are prefetched */
#define PREFETCH_ROWS 8  /* distance of prefetches of y during dy y, in rows. Measured: heads of 256 0.7 % faster */
#define PREFETCH_TILES 4 /* during the products of so many last tiles of keys the next rows are prefetched */

struct grad {
    const struct wn__attention *k;
    const struct wn__attention_kernel *kernel;
    int64_t wide;          /* hd, rounded up to a multiple of 16 */
    int64_t queries, keys; /* of a tile */
};

/* Tiles of queries, claimed one by one; a turn is a tile's number. Turns rise in the order of the sums, and a turn
 * waits for lesser turns alone: so the least turn that is not done waits for none, and all get done with any number of
 * threads. */
#define SLOTS WN_CPU_THREADS_MAX
#define SLOT 8 /* words of 8 bytes in a cache line */
#define ALL_KEYS ((int64_t)1 << 32)
#define EVERY_KEY (ALL_KEYS - 1)
struct turns {
    const struct grad *r;
    struct wn__tasks heads; /* the first `whole` key heads, each of one thread */
    int64_t whole;
    int64_t tiles;        /* of queries of a query head */
    int64_t turns;        /* of a key head */
    _Atomic int64_t next; /* the next turn to claim */
    /* Entry turn % SLOTS, one cache line each: turn * ALL_KEYS + number of tiles of keys that the turn is done with. */
    _Atomic int64_t done[SLOTS * SLOT];
};

/* The buffers of one thread; `all` is the number of queries of the tile, padded to a multiple of 16. */
struct work {
    float key[KEY_FLOATS], value[KEY_FLOATS];
    float query[QUERY_FLOATS], dy[QUERY_FLOATS]; /* (all, wide), times the scale; (all, wide), times 1 / (1 - p) */
    float query_transposed[QUERY_FLOATS];        /* (hd, all), times scale and log2 e */
    float dy_transposed[QUERY_FLOATS];           /* (hd, all) */
    float dq[QUERY_FLOATS];                      /* (hd, all) */
    float weight[HELD_FLOATS + KEYS * QUERIES];  /* (keys, all): `held` keys, then one tile of the other keys */
    float ds[KEYS * QUERIES];                    /* (keys, all) */
    float then[BEST_FLOATS]; /* (held tiles, all): the best that the weights of a tile are relative to */
    float best[QUERIES], sum[QUERIES], shared[QUERIES];
    uint16_t kept[QUERIES / 16 * WN_ATTENTION_KEPT];
    int64_t b, g, h, first, n, all; /* key head g, query head h, queries [first, first + n) of batch entry b */
    int64_t held, stop;             /* number of keys whose weights are held; number of keys that are seen */
    struct wn__attention_prefetch prefetch;
    struct turns *turns; /* NULL: no other thread adds to the key head */
    int64_t turn;        /* of this tile of queries */
} __attribute__((aligned(64)));

/* Computes shared(c) = sum of dy(c, :) y(c, :); dy is in w->dy, rows of y are `step` words apart and prefetched. */
static void share(struct work *w, int64_t wide, int64_t size, const float *y, int64_t step)
{
    const int64_t prefetch = PREFETCH_ROWS * step * (int64_t)sizeof *y;
    for (int64_t c = 0; c < w->n; c++)
        w->shared[c] = (float)wn__lane_sum_f32(1, w->dy + c * wide, y + c * step, size, 0, prefetch);
    for (int64_t c = w->n; c < w->all; c++) w->shared[c] = 0;
}

/* Computes factor(c) = 2^(then(c) - best(c)) / sum(c); w->sum holds 1 / sum. */
static void find_factors(const struct work *w, const float *then, float *factor)
{
    _Pragma("omp simd") for (int64_t c = 0; c < w->all; c++) factor[c] =
        wn_exp2_below_f32(then[c] - w->best[c]) * w->sum[c];
}

static void multiply(float *x, int64_t n, float factor)
{
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Loads and computes what a tile of queries has that does not depend on keys. */
static void load_queries(const struct grad *r, struct work *w)
{
    const struct wn__attention *k = r->k;
    void (*transpose)(const float *, int64_t, int64_t, int64_t, float *, int64_t) = wn__micro.gemm->transpose;
    const int64_t at = wn__attention_result(k, w->b, w->first, w->h);
    const float factor = wn__attention_kept_factor(k);
    struct wn__attention_rows query = {.from = k->qkv,
                                       .at = wn__attention_query(k, w->b, w->first, w->h),
                                       .from_row = k->row,
                                       .n = w->n,
                                       .rows = w->all,
                                       .ldt = r->wide,
                                       .factor = (float)(k->scale * WN_ATTENTION_LOG2E)};
    struct wn__attention_rows dy = {
        .from = k->dy, .at = at, .from_row = k->out_row, .n = w->n, .rows = w->all, .ldt = r->wide, .factor = 1};
    struct wn__attention_rows y = dy;
    wn__attention_load(k, &query, w->query);
    transpose(w->query, r->wide, w->all, k->size, w->query_transposed, w->all);
    query.factor = (float)k->scale;
    wn__attention_load(k, &query, w->query);
    wn__attention_load(k, &dy, w->dy);
    y.from = k->y;
    if (k->dtype == WN_BF16) wn__attention_load(k, &y, w->dq);
    if (k->dtype == WN_BF16) share(w, r->wide, k->size, w->dq, r->wide);
    else share(w, r->wide, k->size, (const float *)k->y + at, k->out_row);
    for (int64_t c = 0; c < w->all; c++) w->best[c] = -INFINITY, w->sum[c] = 0;
    if (factor != 1) multiply(w->dy, w->all * r->wide, factor);
    transpose(w->dy, r->wide, w->all, k->size, w->dy_transposed, w->all);
    w->held = wn_min(HELD_FLOATS, BEST_FLOATS * r->keys) / w->all / r->keys * r->keys;
    w->stop = k->causal ? w->first + w->n : k->time;
}

/* Returns the first of the keys from key0 on whose sums these queries start, because no query before them sees it. */
static int64_t fresh_of(const struct grad *r, const struct work *w, int64_t key0)
{
    if (w->h % (r->k->heads / r->k->kv_heads) != 0) return r->keys;
    if (r->k->causal) return w->first > key0 ? w->first - key0 : 0;
    return w->first == 0 ? 0 : r->keys;
}

/* Returns the tile of weights of the keys from key0 on; *column: its first column, that of the first vector of queries
 * that sees any of them. */
static struct wn__attention_tile tile_of(const struct grad *r, struct work *w, int64_t key0, int64_t *column)
{
    int64_t prefetch = r->k->causal ? key0 - w->first : WN_ATTENTION_EVERY, c = prefetch > 0 ? prefetch / 16 * 16 : 0;
    *column = c;
    return (struct wn__attention_tile){.s = w->weight + wn_min(key0, w->held) * w->all + c,
                                       .ld = w->all,
                                       .keys = wn_min(w->stop - key0, r->keys),
                                       .width = w->all - c,
                                       .diagonal = r->k->causal ? prefetch - c : WN_ATTENTION_EVERY,
                                       .fresh = fresh_of(r, w, key0)};
}

/* Computes the weights of the keys from key0 on, relative to the maximum score so far. */
static void weights(const struct grad *r, struct work *w, int64_t key0, float *best, float *sum)
{
    const struct wn__attention *k = r->k;
    int64_t c, step;
    struct wn__attention_tile t = tile_of(r, w, key0, &c);
    float back[QUERIES];
    const float *key = wn__attention_see(k, wn__attention_key(k, w->b, key0, w->g), t.keys, r->wide, w->key, &step);
    struct wn__attention_product product = {.m = t.keys,
                                            .n = t.width,
                                            .k = k->size,
                                            .a = key,
                                            .ai = step,
                                            .ak = 1,
                                            .b = w->query_transposed + c,
                                            .bk = w->all,
                                            .c = t.s,
                                            .ldc = t.ld,
                                            .prefetch = &w->prefetch,
                                            .first = 1,
                                            .far = 1};
    wn__attention_scores(r->kernel, &product, &t);
    if (k->causal) wn__attention_mask(&t);
    r->kernel->softmax(&t, best + c, sum + c, back);
}

/* Lists what is needed after these keys: the rows of the gradient of these queries; then the next tile of queries of
 * the head, or the first of the next head with its keys, values and sums. */
static void add_prefetches(const struct grad *r, struct work *w)
{
    const struct wn__attention *k = r->k;
    const int64_t values = k->kv_heads * k->size, group = k->heads / k->kv_heads;
    int64_t first = w->first + r->queries, b = w->b, h = w->h;
    if (first >= k->time) first = 0, h++;
    if (h == k->heads) h = 0, b++;
    w->prefetch = (struct wn__attention_prefetch){.bytes = k->size * (k->dtype == WN_BF16 ? 2 : 4)};
    wn__attention_prefetch_add(&w->prefetch, k->out, wn__attention_query(k, w->b, w->first, w->h), k->row, w->n,
                               k->dtype);
    if (b == k->batch) return;
    int64_t n = wn_min(k->time - first, r->queries), at = wn__attention_result(k, b, first, h);
    wn__attention_prefetch_add(&w->prefetch, k->qkv, wn__attention_query(k, b, first, h), k->row, n, k->dtype);
    wn__attention_prefetch_add(&w->prefetch, k->dy, at, k->out_row, n, k->dtype);
    wn__attention_prefetch_add(&w->prefetch, k->y, at, k->out_row, n, k->dtype);
    if (h % group != 0 || (first > 0 && !k->causal)) return;
    int64_t key = wn__attention_key(k, b, first, h / group), sum = wn__attention_sum(k, b, first, h / group);
    if (!k->causal) n = wn_min(k->time, EXPECTED);
    wn__attention_prefetch_add(&w->prefetch, k->qkv, key, k->row, n, k->dtype);
    wn__attention_prefetch_add(&w->prefetch, k->qkv, key + values, k->row, n, k->dtype);
    if (k->dtype == WN_BF16) return;
    wn__attention_prefetch_add(&w->prefetch, k->sums, sum, k->sums_row, n, WN_F32);
    wn__attention_prefetch_add(&w->prefetch, k->sums, sum + values, k->sums_row, n, WN_F32);
}

/* Adds the tile of keys from key0 on to dq, dk and dv. */
static void gradients(const struct grad *r, struct work *w, int64_t key0)
{
    const struct wn__attention *k = r->k;
    int64_t values = k->kv_heads * k->size, c, step, all = w->all, at = wn__attention_key(k, w->b, key0, w->g);
    struct wn__attention_tile t = tile_of(r, w, key0, &c);
    const float *key = wn__attention_see(k, at, t.keys, r->wide, w->key, &step);
    const float *value = wn__attention_see(k, at + values, t.keys, r->wide, w->value, &step);
    float *ds = w->ds + c, *sums = (float *)k->sums + wn__attention_sum(k, w->b, key0, w->g), factor[QUERIES];
    if (k->p > 0) t.kept = w->kept;
    if (k->p > 0) r->kernel->draw(k, &t, wn__attention_weight(k, w->b, w->h, w->first + c, key0));
    const float *then = key0 < w->held ? w->then + key0 / r->keys * w->all : w->best;
    find_factors(w, then, factor);
    struct wn__attention_weighing weighing = {t.s, factor + c, w->shared + c, t.kept};
    struct wn__attention_product product = {.m = t.keys,
                                            .n = t.width,
                                            .k = k->size,
                                            .a = value,
                                            .ai = step,
                                            .ak = 1,
                                            .b = w->dy_transposed + c,
                                            .bk = all,
                                            .c = ds,
                                            .ldc = all,
                                            .prefetch = &w->prefetch,
                                            .first = 1,
                                            .far = 1,
                                            .weighing = &weighing};
    wn__attention_scores(r->kernel, &product, &t);
    product = (struct wn__attention_product){.m = k->size,
                                             .n = t.width,
                                             .k = t.keys,
                                             .a = key,
                                             .ai = 1,
                                             .ak = step,
                                             .b = ds,
                                             .bk = all,
                                             .c = w->dq + c,
                                             .ldc = all,
                                             .prefetch = &w->prefetch,
                                             .first = key0 == 0,
                                             .seen = &t};
    r->kernel->multiply(&product);
    product = (struct wn__attention_product){.m = t.keys,
                                             .n = k->size,
                                             .k = w->n - c,
                                             .a = ds,
                                             .ai = all,
                                             .ak = 1,
                                             .b = w->query + c * r->wide,
                                             .bk = r->wide,
                                             .c = sums,
                                             .ldc = k->sums_row,
                                             .prefetch = &w->prefetch,
                                             .far = 1,
                                             .late = &t};
    r->kernel->multiply(&product);
    product.a = t.s;
    product.b = w->dy + c * r->wide;
    product.c = sums + values;
    r->kernel->multiply(&product);
}

/* Waits until a turn is done with `keys` tiles of keys. */
static void wait_for(struct turns *t, int64_t turn, int64_t keys)
{
    _Atomic int64_t *done = &t->done[turn % SLOTS * SLOT];
    for (int32_t i = 1; atomic_load_explicit(done, memory_order_acquire) < turn * ALL_KEYS + keys; i++)
        if (i % 256 == 0) sched_yield();
}

/* Waits until the turn before this one, where it adds to the same key head, is done with `keys` tiles of keys. */
static void wait_before(const struct work *w, int64_t keys)
{
    if (w->turns && w->turn % w->turns->turns != 0) wait_for(w->turns, w->turn - 1, keys);
}

/* Says that this turn is done with `keys` tiles of keys. */
static void tell(const struct work *w, int64_t keys)
{
    if (!w->turns) return;
    _Atomic int64_t *done = &w->turns->done[w->turn % SLOTS * SLOT];
    atomic_store_explicit(done, w->turn * ALL_KEYS + keys, memory_order_release);
}

static void run_queries(const struct grad *r, struct work *w)
{
    const struct wn__attention *k = r->k;
    load_queries(r, w);
    w->prefetch.i = w->prefetch.n = 0;
    if (w->stop <= PREFETCH_TILES * r->keys) add_prefetches(r, w);
    for (int64_t key0 = 0; key0 < w->stop; key0 += r->keys) {
        weights(r, w, key0, w->best, w->sum);
        if (key0 < w->held) memcpy(w->then + key0 / r->keys * w->all, w->best, (size_t)w->all * sizeof *w->best);
    }
    for (int64_t c = 0; c < w->all; c++) w->sum[c] = 1.0f / w->sum[c];
    for (int64_t key0 = 0; key0 < w->stop; key0 += r->keys) {
        float best[QUERIES], sum[QUERIES] = {0};
        memcpy(best, w->best, sizeof best);
        if (key0 >= w->held) weights(r, w, key0, best, sum);
        if (w->prefetch.n == 0 && key0 + PREFETCH_TILES * r->keys >= w->stop) add_prefetches(r, w);
        wait_before(w, key0 / r->keys + 1);
        gradients(r, w, key0);
        tell(w, key0 / r->keys + 1);
    }
    wait_before(w, EVERY_KEY);
    tell(w, EVERY_KEY);
    multiply(w->dq, k->size * w->all, (float)k->scale);
    struct wn__attention_columns dq = {
        .from = w->dq, .ld = w->all, .n = w->n, .at = wn__attention_query(k, w->b, w->first, w->h), .to_row = k->row};
    wn__attention_store_transposed(k, &dq, w->query);
}

static void run_tile(const struct grad *r, struct work *w, int64_t first)
{
    w->first = first;
    w->n = wn_min(r->k->time - first, r->queries);
    w->all = (w->n + 15) / 16 * 16;
    run_queries(r, w);
}

static void run_head(const struct grad *r, struct work *w, int64_t head)
{
    const struct wn__attention *k = r->k;
    int64_t group = k->heads / k->kv_heads;
    w->b = head / k->kv_heads;
    w->g = head % k->kv_heads;
    w->turns = NULL;
    for (w->h = w->g * group; w->h < (w->g + 1) * group; w->h++)
        for (int64_t first = 0; first < k->time; first += r->queries) run_tile(r, w, first);
    wn__attention_round_sums(k, w->b, w->g);
}

static void run_turn(const struct turns *t, struct work *w)
{
    const struct grad *r = t->r;
    const int64_t heads = r->k->heads, group = heads / r->k->kv_heads;
    int64_t head = t->whole * group + w->turn / t->tiles;
    w->b = head / heads;
    w->h = head % heads;
    w->g = w->h / group;
    if (w->turn >= SLOTS) wait_for(w->turns, w->turn - SLOTS, EVERY_KEY); /* this turn takes over its slot */
    run_tile(r, w, w->turn % t->tiles * r->queries);
}

/* Worker entry: claims whole key heads; when none are left, claims turns of the remaining key heads. */
static void run_tasks(int64_t thread, int64_t end, void *ctx)
{
    struct turns *t = ctx;
    const struct wn__attention *k = t->r->k;
    struct work w;
    (void)end;
    for (int64_t head, stop; wn__tasks_take(&t->heads, thread, &head, &stop);)
        for (; head < stop; head++) run_head(t->r, &w, head);
    w.turns = t;
    while ((w.turn = atomic_fetch_add(&t->next, 1)) < (k->batch * k->kv_heads - t->whole) * t->turns) run_turn(t, &w);
}

static void round_heads(int64_t begin, int64_t end, void *ctx)
{
    const struct turns *t = ctx;
    const struct wn__attention *k = t->r->k;
    for (int64_t head = t->whole + begin; head < t->whole + end; head++)
        wn__attention_round_sums(k, head / k->kv_heads, head % k->kv_heads);
}

/* Returns how many key heads threads take turns at, so that none is without work for long: the remainder of equal
 * shares, and where a head is a large part of a share, one more for each thread. */
static int64_t heads_in_turns(const struct grad *r, int64_t heads, int64_t turns)
{
    int64_t threads = wn_cpu_threads(), work = heads * turns * r->queries * r->k->time;
    if (threads == 1 || r->k->time <= r->queries || work < 2 * WN_CPU_GRAIN_MATH || heads >= 8 * threads) return 0;
    return heads % threads + (heads >= 4 * threads ? threads : 0);
}

void wn__attention_grad(const struct wn__attention *k)
{
    struct grad r = {.k = k, .kernel = wn__attention_here(), .wide = (k->size + 15) / 16 * 16};
    struct turns t = {.r = &r};
    const int64_t heads = k->batch * k->kv_heads;
    r.queries = wn_min(QUERY_FLOATS / r.wide / 16 * 16, QUERIES);
    r.keys = wn__attention_keys(k, KEY_FLOATS, KEYS);
    t.tiles = (k->time + r.queries - 1) / r.queries;
    t.turns = t.tiles * (k->heads / k->kv_heads);
    t.whole = heads - heads_in_turns(&r, heads, t.turns);
    wn__tasks_share(&t.heads, t.whole, WN_CPU_GRAIN_MATH / (k->time * k->time) + 1);
    wn__parallel_for(t.whole < heads ? wn_cpu_threads() : t.heads.threads, 1, run_tasks, &t);
    if (k->dtype == WN_BF16 && t.whole < heads)
        wn__parallel_for(heads - t.whole, WN_CPU_GRAIN_MATH / k->time + 1, round_heads, &t);
}
