/* Tiled attention, forward: a task is a stretch of queries of one head, cut into strips as wide as the product's tile.
 * Its keys and values come by in tiles; each strip keeps its running maximum, sum and result (Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). What lies beyond the
 * diagonal is skipped by tile and strip, so a strip computes less than its own width too much. */
#include <math.h>
#include "../scalar.h"
#include "attention.h"

/* Keys, values: 32 KiB each; queries, result: 48 KiB each; a strip's weights and their dropout: 24 KiB each. With heads
 * of 64 that is 128 keys and 192 queries; 210 KiB of the thread's stack in all. */
#define KEY_FLOATS 8192
#define QUERY_FLOATS 12288
#define QUERIES 192
#define STRIP_FLOATS (WN_ATTENTION_DRAWN * WN_GEMM_NR_MAX)

struct forward {
    const struct wn__attention *k;
    const struct wn__gemm_kernel *kernel;
    int64_t wide;                 /* floats of a row in a tile: the head's size up to a multiple of 16 */
    int64_t queries, keys, tiles; /* of a tile; tiles of queries a head */
};

/* One task's buffers; strip c of query and result at c * wide. */
struct work {
    float key[KEY_FLOATS], value[KEY_FLOATS];
    float query[QUERY_FLOATS];  /* strips (size, strip), times the scale */
    float result[QUERY_FLOATS]; /* strips (size, strip) */
    float weight[STRIP_FLOATS], factor[STRIP_FLOATS];
    float best[QUERIES], sum[QUERIES];
    int64_t b, h, first, n, all; /* queries first .. first + n - 1, padded to `all` */
} __attribute__((aligned(64)));

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

WN_CLONES static void scale_rows(float *x, int64_t rows, int64_t width, const float *factor)
{
    for (int64_t r = 0; r < rows; r++)
        _Pragma("omp simd") for (int64_t c = 0; c < width; c++) x[r * width + c] *= factor[c];
}

WN_CLONES static void multiply(float *restrict x, const float *restrict y, int64_t n)
{
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] *= y[i];
}

static void load_queries(const struct forward *f, struct work *w)
{
    const struct wn__attention *k = f->k;
    struct wn__attention_rows rows = {
        k->qkv, wn__attention_query(k, w->b, w->first, w->h), k->row, w->n, w->all, f->wide, (float)k->scale};
    wn__attention_load(k, &rows, w->result);
    for (int64_t c = 0; c < w->all; c += f->kernel->nr) {
        int64_t width = least(w->all - c, f->kernel->nr), at = c * f->wide;
        f->kernel->transpose(w->result + at, f->wide, width, k->size, w->query + at, width);
    }
    for (int64_t c = 0; c < w->all; c++) w->best[c] = -INFINITY, w->sum[c] = 0;
}

/* The strip from query c against the keys key0 .. key0 + keys - 1, which are loaded. */
static void run_strip(const struct forward *f, struct work *w, int64_t c, int64_t key0, int64_t keys)
{
    const struct wn__attention *k = f->k;
    int64_t width = least(w->all - c, f->kernel->nr), at = c * f->wide;
    if (k->causal) keys = least(keys, w->first + least(c + width, w->n) - key0);
    if (keys <= 0) return;
    struct wn__attention_tile t = {w->weight, width, keys, width, key0, w->first + c};
    struct wn__attention_product scores = {keys,          width, k->size,   w->key, f->wide, 1,
                                           w->query + at, width, w->weight, width,  1};
    float back[WN_GEMM_NR_MAX];
    wn__attention_multiply(f->kernel, &scores);
    if (k->causal && key0 + keys - 1 > w->first + c) wn__attention_mask(&t);
    wn__attention_softmax(&t, w->best + c, w->sum + c, back);
    if (k->p > 0) {
        wn__attention_draw(k, f->kernel, &t, w->b, w->h, w->factor);
        multiply(w->weight, w->factor, keys * width);
    }
    if (key0 > 0) scale_rows(w->result + at, k->size, width, back);
    struct wn__attention_product product = {k->size,   width, keys,           w->value, 1,        f->wide,
                                            w->weight, width, w->result + at, width,    key0 == 0};
    wn__attention_multiply(f->kernel, &product);
}

static void finish(const struct forward *f, struct work *w)
{
    const struct wn__attention *k = f->k;
    for (int64_t c = 0; c < w->all; c++) w->sum[c] = 1.0f / w->sum[c];
    for (int64_t c = 0; c < w->all; c += f->kernel->nr) {
        int64_t width = least(w->all - c, f->kernel->nr), at = c * f->wide;
        scale_rows(w->result + at, k->size, width, w->sum + c);
        f->kernel->transpose(w->result + at, width, k->size, width, w->query + at, f->wide);
    }
    wn__attention_store(k, w->query, f->wide, w->n, wn__attention_result(k, w->b, w->first, w->h), k->out_row);
}

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct forward *f = ctx;
    const struct wn__attention *k = f->k;
    struct work w;
    for (int64_t task = begin; task < end; task++) {
        w.b = task / f->tiles / k->heads;
        w.h = task / f->tiles % k->heads;
        w.first = task % f->tiles * f->queries;
        w.n = least(k->time - w.first, f->queries);
        w.all = (w.n + 15) / 16 * 16;
        load_queries(f, &w);
        int64_t stop = k->causal ? w.first + w.n : k->time, group = k->heads / k->kv_heads;
        for (int64_t key0 = 0; key0 < stop; key0 += f->keys) {
            int64_t keys = least(stop - key0, f->keys), at = wn__attention_key(k, w.b, key0, w.h / group);
            struct wn__attention_rows rows = {k->qkv, at, k->row, keys, keys, f->wide, 1};
            wn__attention_load(k, &rows, w.key);
            rows.at += k->kv_heads * k->size;
            wn__attention_load(k, &rows, w.value);
            for (int64_t c = 0; c < w.all; c += f->kernel->nr) run_strip(f, &w, c, key0, keys);
        }
        finish(f, &w);
    }
}

void wn__attention_forward(const struct wn__attention *k)
{
    struct forward f = {.k = k, .kernel = wn__gemm_best(), .wide = (k->size + 15) / 16 * 16};
    int64_t most = least(QUERY_FLOATS / f.wide / 16 * 16, QUERIES);
    f.tiles = (k->time + most - 1) / most;
    f.queries = ((k->time + f.tiles - 1) / f.tiles + 15) / 16 * 16; /* alike, so that no narrow strip is left over */
    f.keys = wn__attention_keys(k, KEY_FLOATS, WN_ATTENTION_DRAWN);
    wn__parallel_for(k->batch * k->heads * f.tiles, WN_CPU_GRAIN_MATH / (f.queries * k->time) + 1, run_tasks, &f);
}
