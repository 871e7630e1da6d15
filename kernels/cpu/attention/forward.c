/* Tiled attention, forward: a task has up to QUERIES queries of one head, in panels of at most QUERY_PANEL queries.
 *
 *     for each tile of keys and values
 *         for each panel:  s = K Q' (keys, panel)         scores, times scale and log2 e
 *                          online softmax of s            best, sum, s = 2^(s - best)
 *                          result = result back + V' s    (hd, panel)
 *     result = result / sum, transposed into rows
 *
 * Each panel keeps its running maximum, sum and result (Milakov and Gimelshein, "Online normalizer calculation for
 * softmax", 2018; Dao and others, "FlashAttention", 2022). Queries are multiplied by the scale and by log2 e first, so
 * that weights are powers of two. What is beyond the diagonal is skipped by vectors of 16 queries. */
#include <math.h>
#include "attention.h"
#include "../gemm/gemm.h"
#include "../../../runtime/base/number.h"

/* Words of keys and of values, 32 KiB each, unused where they are read in place; words of queries and of results, 48
 * KiB each; weights of a query panel take 24 KiB. Heads of 64 get 128 keys and 192 queries. All together takes 186 KiB
 * of the stack of a thread. */
#define KEY_FLOATS 8192
#define QUERY_FLOATS 12288
#define QUERIES 192
#define QUERY_PANEL 48 /* queries of a query panel: three vectors, the widest micro-tile */

struct forward {
    const struct wn__attention *k;
    const struct wn__attention_kernel *kernel;
    int64_t wide;          /* hd, rounded up to a multiple of 16 */
    int64_t queries, keys; /* of a tile */
    int64_t tiles;         /* of queries of a head */
    struct wn__tasks tasks;
};

/* Queries [first, first + n) of head h of batch entry b, padded to `all`, a multiple of 16. */
struct query_span {
    int64_t b, h, first, n, all;
};

/* The buffers of one thread. The query panel that begins at query c is at c * wide of query and of result. */
struct work {
    float key[KEY_FLOATS], value[KEY_FLOATS];       /* (keys, wide), converted from bf16 */
    float query[QUERY_FLOATS];                      /* query panels (hd, query panel), times scale and log2 e */
    float result[QUERY_FLOATS];                     /* query panels (hd, query panel) */
    float weight[WN_ATTENTION_DRAWN * QUERY_PANEL]; /* (keys, query panel) */
    float best[QUERIES], sum[QUERIES];              /* of each query so far */
    uint16_t kept[QUERY_PANEL / 16 * WN_ATTENTION_KEPT];
    struct query_span at;
} __attribute__((aligned(64)));

/* A tile of keys and values: n rows from key0 on, `step` words apart, in place or converted. */
struct keys {
    const float *key, *value;
    int64_t step, key0, n;
    struct wn__attention_prefetch prefetch; /* rows that are needed after this tile */
};

/* Returns the number of queries of the query panel that begins at query c of `all`. */
static int64_t strip_width(int64_t all, int64_t c)
{
    return all - c == 64 ? 32 : wn_min(all - c, QUERY_PANEL); /* 32 + 32 is faster than 48 + 16 */
}

static void load_queries(const struct forward *f, struct work *w)
{
    const struct wn__attention *k = f->k;
    float factor = (float)(k->scale * WN_ATTENTION_LOG2E);
    struct wn__attention_rows rows = {.from = k->qkv,
                                      .at = wn__attention_query(k, w->at.b, w->at.first, w->at.h),
                                      .from_row = k->row,
                                      .n = w->at.n,
                                      .rows = w->at.all,
                                      .ldt = f->wide,
                                      .factor = factor};
    wn__attention_load(k, &rows, w->result);
    for (int64_t c = 0, width; c < w->at.all; c += width) {
        width = strip_width(w->at.all, c);
        wn__micro.gemm->transpose(w->result + c * f->wide, f->wide, width, k->size, w->query + c * f->wide, width);
    }
    for (int64_t c = 0; c < w->at.all; c++) w->best[c] = -INFINITY, w->sum[c] = 0;
}

/* Adds a tile of keys to the query panel of `width` queries that begins at query c. */
static void run_strip(const struct forward *f, struct work *w, int64_t c, int64_t width, struct keys *keys)
{
    const struct wn__attention *k = f->k;
    const int64_t at = c * f->wide, query0 = w->at.first + c;
    struct wn__attention_tile t = {.s = w->weight,
                                   .kept = k->p > 0 ? w->kept : NULL,
                                   .ld = width,
                                   .keys = keys->n,
                                   .width = width,
                                   .diagonal = WN_ATTENTION_EVERY};
    if (k->causal) {
        t.keys = wn_min(keys->n, w->at.first + wn_min(c + width, w->at.n) - keys->key0);
        t.diagonal = keys->key0 - query0;
    }
    if (t.keys <= 0) return;
    struct wn__attention_product scores = {.m = t.keys,
                                           .n = width,
                                           .k = k->size,
                                           .a = keys->key,
                                           .ai = keys->step,
                                           .ak = 1,
                                           .b = w->query + at,
                                           .bk = width,
                                           .c = w->weight,
                                           .ldc = width,
                                           .prefetch = &keys->prefetch,
                                           .first = 1};
    float back[QUERY_PANEL];
    wn__attention_scores(f->kernel, &scores, &t);
    if (k->causal) wn__attention_mask(&t);
    if (k->p > 0) f->kernel->draw(k, &t, wn__attention_weight(k, w->at.b, w->at.h, query0, keys->key0));
    f->kernel->softmax(&t, w->best + c, w->sum + c, back);
    struct wn__attention_product product = {.m = k->size,
                                            .n = width,
                                            .k = t.keys,
                                            .a = keys->value,
                                            .ai = 1,
                                            .ak = keys->step,
                                            .b = w->weight,
                                            .bk = width,
                                            .c = w->result + at,
                                            .ldc = width,
                                            .back = back,
                                            .prefetch = &keys->prefetch,
                                            .first = keys->key0 == 0,
                                            .seen = &t};
    f->kernel->multiply(&product);
}

/* Divides the results by their sums, and stores them as rows. */
static void finish(const struct forward *f, struct work *w)
{
    const struct wn__attention *k = f->k;
    float factor = wn__attention_kept_factor(k);
    for (int64_t c = 0; c < w->at.all; c++) w->sum[c] = factor / w->sum[c];
    int64_t to = wn__attention_result(k, w->at.b, w->at.first, w->at.h);
    for (int64_t c = 0, width; c < w->at.n; c += width, to += width * k->out_row) {
        int64_t at = c * f->wide;
        width = strip_width(w->at.all, c);
        wn__attention_scale(w->result + at, k->size, width, width, w->sum + c);
        struct wn__attention_columns columns = {
            .from = w->result + at, .ld = width, .n = wn_min(width, w->at.n - c), .at = to, .to_row = k->out_row};
        wn__attention_store_transposed(k, &columns, w->query);
    }
}

static struct query_span stretch_of(const struct forward *f, int64_t task)
{
    const struct wn__attention *k = f->k;
    /* Under a causal mask late queries see more keys: the order last, first, last but one, second gives equal
     * halves. */
    int64_t tile = task % f->tiles, turn = tile % 2 ? tile / 2 : f->tiles - 1 - tile / 2;
    struct query_span s = {
        .b = task / f->tiles / k->heads, .h = task / f->tiles % k->heads, .first = turn * f->queries};
    s.n = wn_min(k->time - s.first, f->queries);
    s.all = (s.n + 15) / 16 * 16;
    return s;
}

static int64_t keys_seen(const struct wn__attention *k, const struct query_span *s)
{
    return k->causal ? s->first + s->n : k->time;
}

static void expect_keys(const struct forward *f, struct wn__attention_prefetch *a, const struct query_span *s,
                        int64_t key0)
{
    const struct wn__attention *k = f->k;
    int64_t at = wn__attention_key(k, s->b, key0, s->h / (k->heads / k->kv_heads));
    int64_t n = wn_min(keys_seen(k, s) - key0, f->keys);
    wn__attention_prefetch_add(a, k->qkv, at, k->row, n, k->dtype);
    wn__attention_prefetch_add(a, k->qkv, at + k->kv_heads * k->size, k->row, n, k->dtype);
}

/* Lists what is needed after the keys from key0 on: the next keys; after the last tile but one also the rows of the
 * result, and the queries and first keys of the next task.
 * Measured: heads of 256 positions 10 % faster, of 1024 3 %. */
static void add_prefetches(const struct forward *f, struct wn__attention_prefetch *a, const struct query_span *s,
                           int64_t key0, int64_t next)
{
    const struct wn__attention *k = f->k;
    int64_t left = keys_seen(k, s) - key0;
    if (key0 > 0 && left <= f->keys) return;
    *a = (struct wn__attention_prefetch){.bytes = k->size * (k->dtype == WN_BF16 ? 2 : 4)};
    if (left > f->keys) expect_keys(f, a, s, key0 + f->keys);
    if (left > 2 * f->keys) return;
    wn__attention_prefetch_add(a, k->out, wn__attention_result(k, s->b, s->first, s->h), k->out_row, s->n, k->dtype);
    if (next < f->tasks.n) {
        struct query_span to = stretch_of(f, next);
        wn__attention_prefetch_add(a, k->qkv, wn__attention_query(k, to.b, to.first, to.h), k->row, to.n, k->dtype);
        expect_keys(f, a, &to, 0);
    }
}

static void run_task(const struct forward *f, struct work *w, int64_t task)
{
    const struct wn__attention *k = f->k;
    const int64_t values = k->kv_heads * k->size, group = k->heads / k->kv_heads;
    struct keys keys;
    w->at = stretch_of(f, task);
    load_queries(f, w);
    for (keys.key0 = 0; keys.key0 < keys_seen(k, &w->at); keys.key0 += f->keys) {
        int64_t at = wn__attention_key(k, w->at.b, keys.key0, w->at.h / group);
        keys.n = wn_min(keys_seen(k, &w->at) - keys.key0, f->keys);
        keys.key = wn__attention_see(k, at, keys.n, f->wide, w->key, &keys.step);
        keys.value = wn__attention_see(k, at + values, keys.n, f->wide, w->value, &keys.step);
        add_prefetches(f, &keys.prefetch, &w->at, keys.key0, task + 1);
        for (int64_t c = 0, width; c < w->at.all; c += width) {
            width = strip_width(w->at.all, c);
            run_strip(f, w, c, width, &keys);
        }
    }
    finish(f, w);
}

/* Worker entry: claims tasks until none are left. */
static void run_tasks(int64_t thread, int64_t end, void *ctx)
{
    struct forward *f = ctx;
    struct work w;
    (void)end;
    for (int64_t task, stop; wn__tasks_take(&f->tasks, thread, &task, &stop);)
        for (; task < stop; task++) run_task(f, &w, task);
}

void wn__attention_forward(const struct wn__attention *k)
{
    struct forward f = {.k = k, .kernel = wn__attention_here(), .wide = (k->size + 15) / 16 * 16};
    int64_t most = wn_min(QUERY_FLOATS / f.wide / 16 * 16, QUERIES);
    f.tiles = (k->time + most - 1) / most;
    f.queries = ((k->time + f.tiles - 1) / f.tiles + 15) / 16 * 16; /* equal tiles leave no narrow query panel */
    f.keys = wn__attention_keys(k, KEY_FLOATS, WN_ATTENTION_DRAWN);
    wn__tasks_share(&f.tasks, k->batch * k->heads * f.tiles, WN_CPU_GRAIN_MATH / (f.queries * k->time) + 1);
    wn__parallel_for(f.tasks.threads, 1, run_tasks, &f);
}
