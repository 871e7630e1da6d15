/* Rows and elements picked by index, and the sums that are their gradients. Indices are checked before they are
 * used: one outside its table is WN_VALUE, with the value and the range. Gradients add in index order
 * and threads share out columns, so the sums do not depend on threads; those of bf16 are f32 sums, rounded. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "bf16.h"
#include "cpu.h"

/* Whether all of n indices lie in 0 .. size - 1. */
WN_CLONES static int32_t ids_fit(const int32_t *ids, int64_t n, int64_t size)
{
    uint32_t limit = size > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)size, outside = 0;
    _Pragma("omp simd reduction(| : outside)") for (int64_t i = 0; i < n; i++) outside |= (uint32_t)ids[i] >= limit;
    return !outside;
}

static int32_t check_ids(const char *op, const int32_t *ids, int64_t n, int64_t size)
{
    if (ids_fit(ids, n, size)) return WN_OK;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= size)
            return wn__fail(WN_VALUE,
                            "%s: index %" PRId32 " at element %" PRId64 " is outside 0..%" PRId64
                            "; indices are 0-based, clamp them or enlarge the table",
                            op, ids[i], i, size - 1);
    return WN_OK;
}

/* ---- embedding ----------------------------------------------------------------------------------- */

struct embedding {
    const char *table;    /* (V, D) */
    const int32_t *ids;   /* (n) */
    char *out;            /* (n, D); the gradient: (V, D) */
    int64_t n, rows, row; /* row: bytes, or D in the gradient */
    int32_t streams;
};

static void embed(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    for (int64_t i = begin; i < end; i++) {
        if (e->streams && i + 1 < end) wn__fetch(e->table + e->ids[i + 1] * e->row, e->row < 8192 ? e->row : 8192);
        wn__stream_or_copy(e->streams, e->out + i * e->row, e->table + e->ids[i] * e->row, e->row);
    }
    if (e->streams) wn__stream_end();
}

static int32_t embedding(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct embedding e = {b->in[0], b->in[1], b->out, wn__numel(&d->in[1]), d->in[0].dim[0], 0, 0};
    e.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    e.row = d->in[0].dim[1] * wn__dtype_size(d->out.dtype);
    WN_TRY(check_ids("embedding", e.ids, e.n, e.rows));
    wn__parallel_for(e.row ? e.n : 0, WN_CPU_GRAIN * 4 / (e.row + 1) + 1, embed, &e);
    return WN_OK;
}

/* Columns [begin, end) of every row of the table. */
#define EMBED_GRAD(S, T)                                                                                               \
    WN_CLONES static void embed_grad_##S(int64_t begin, int64_t end, void *ctx)                                        \
    {                                                                                                                  \
        const struct embedding *e = ctx;                                                                               \
        const T *dy = (const T *)e->table;                                                                             \
        T *out = (T *)e->out;                                                                                          \
        for (int64_t v = 0; v < e->rows; v++) {                                                                        \
            T *to = out + v * e->row + begin;                                                                          \
            if (e->streams) wn__stream_fill(to, 0, (end - begin) * (int64_t)sizeof(T));                                \
            else memset(to, 0, (size_t)(end - begin) * sizeof(T));                                                     \
        }                                                                                                              \
        if (e->streams) wn__stream_end();                                                                              \
        for (int64_t i = 0; i < e->n; i++) {                                                                           \
            const T *from = dy + i * e->row;                                                                           \
            T *to = out + e->ids[i] * e->row;                                                                          \
            if (i + 1 < e->n) wn__fetch(out + e->ids[i + 1] * e->row + begin, (end - begin) * (int64_t)sizeof(T));     \
            for (int64_t j = begin; j < end; j++) to[j] += from[j];                                                    \
        }                                                                                                              \
    }

EMBED_GRAD(f32, float)
EMBED_GRAD(f64, double)

static int32_t embedding_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct embedding e = {b->in[0], b->in[1], b->out, wn__numel(&d->in[1]), d->out.dim[0], d->out.dim[1], 0};
    e.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    WN_TRY(check_ids("embedding_grad", e.ids, e.n, e.rows));
    int64_t work = WN_CPU_GRAIN / (e.n + e.rows + 1);
    wn__parallel_for(e.row, work > 16 ? work : 16, d->out.dtype == WN_F32 ? embed_grad_f32 : embed_grad_f64, &e);
    return WN_OK;
}

/* ---- gather -------------------------------------------------------------------------------------- */

/* Two forms. ids shaped like x but along dim: out[o, j, i] = x[o, ids[o, j, i], i]. ids of one dim for an x of
 * several: out[o, j, i] = x[o, ids[j], i]. */
struct gather {
    const void *x;
    const int32_t *ids;
    void *out;
    struct wn__axis full; /* of x, or of the gradient */
    int64_t n;            /* picked along dim */
    int32_t whole;        /* the second form */
    int32_t streams;
    _Atomic int32_t outside; /* an index that does not fit was met */
};

static struct gather gather_of(const struct wn_desc *d, const struct wn_buffers *b, const struct wn_type *full,
                               const struct wn_type *picked)
{
    struct gather g = {b->in[0], b->in[1], b->out, wn__axis_of(full, d->attrs.i[0]), 0, 0, 0, 0};
    g.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    g.n = picked->dim[d->attrs.i[0]];
    g.whole = d->in[1].ndim != full->ndim;
    return g;
}

static inline int64_t picked_at(const struct gather *g, int64_t o, int64_t j, int64_t i)
{
    int64_t id = g->whole ? g->ids[j] : g->ids[(o * g->n + j) * g->full.inner + i];
    return (o * g->full.n + id) * g->full.inner + i;
}

/* Along the last dim each element has an index of its own: indices are checked block by block, as they are read; one
 * that does not fit is found again for the message when all is over. */
#define GATHER(S, T)                                                                                                   \
    static void gather_last_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        struct gather *g = ctx;                                                                                        \
        T *out = g->out, block[WN_STREAM_BLOCK];                                                                       \
        for (int64_t at = begin, stop; at < end; at = stop) {                                                          \
            int64_t row = at / g->n;                                                                                   \
            stop = wn__stream_stop(at, end < (row + 1) * g->n ? end : (row + 1) * g->n);                               \
            const T *x = (const T *)g->x + row * g->full.n;                                                            \
            const int32_t *ids = g->ids + at;                                                                          \
            T *to = g->streams ? block : out + at;                                                                     \
            if (!ids_fit(ids, stop - at, g->full.n)) {                                                                 \
                atomic_store(&g->outside, 1);                                                                          \
                return;                                                                                                \
            }                                                                                                          \
            wn__stream_ahead(ids, (stop - at) * 4);                                                                    \
            wn__fetch(x + (at - row * g->n) + g->full.n, (stop - at) * (int64_t)sizeof(T));                            \
            for (int64_t i = 0; i < stop - at; i++) to[i] = x[ids[i]];                                                 \
            if (g->streams) wn__stream(out + at, block, (stop - at) * (int64_t)sizeof(T));                             \
        }                                                                                                              \
        if (g->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void gather_##S(int64_t begin, int64_t end, void *ctx)                                                      \
    {                                                                                                                  \
        const struct gather *g = ctx;                                                                                  \
        const T *x = g->x;                                                                                             \
        T *out = g->out;                                                                                               \
        int64_t inner = g->full.inner;                                                                                 \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            int64_t o = r / g->n, j = r % g->n;                                                                        \
            if (g->whole)                                                                                              \
                wn__stream_or_copy(g->streams, out + r * inner, x + picked_at(g, o, j, 0),                             \
                                   inner * (int64_t)sizeof(T));                                                        \
            else                                                                                                       \
                for (int64_t i = 0; i < inner; i++) out[r * inner + i] = x[picked_at(g, o, j, i)];                     \
        }                                                                                                              \
        if (g->streams) wn__stream_end();                                                                              \
    }

/* Outer slabs [begin, end) belong to one thread. A row that streams is added up in a place of its own. */
#define ROW_MOST 4096
#define GATHER_GRAD(S, T)                                                                                              \
    static void gather_grad_last_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        struct gather *g = ctx;                                                                                        \
        T own[ROW_MOST];                                                                                               \
        int32_t streams = g->streams && g->full.n <= ROW_MOST;                                                         \
        for (int64_t row = begin; row < end; row++) {                                                                  \
            const int32_t *ids = g->ids + row * g->n;                                                                  \
            const T *dy = (const T *)g->x + row * g->n;                                                                \
            T *out = (T *)g->out + row * g->full.n, *to = streams ? own : out;                                         \
            if (!ids_fit(ids, g->n, g->full.n)) {                                                                      \
                atomic_store(&g->outside, 1);                                                                          \
                return;                                                                                                \
            }                                                                                                          \
            memset(to, 0, (size_t)g->full.n * sizeof(T));                                                              \
            for (int64_t at = 0, stop; at < g->n; at = stop) {                                                         \
                stop = wn__stream_stop(at, g->n);                                                                      \
                wn__fetch(dy + g->n + at, (stop - at) * (int64_t)sizeof(T));                                           \
                wn__fetch(ids + g->n + at, (stop - at) * 4);                                                           \
                for (int64_t i = at; i < stop; i++) to[ids[i]] += dy[i];                                               \
            }                                                                                                          \
            if (streams) wn__stream(out, own, g->full.n *(int64_t)sizeof(T));                                          \
        }                                                                                                              \
        if (streams) wn__stream_end();                                                                                 \
    }                                                                                                                  \
    static void gather_grad_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        const struct gather *g = ctx;                                                                                  \
        const T *dy = g->x;                                                                                            \
        T *out = g->out;                                                                                               \
        int64_t slab = g->full.n * g->full.inner;                                                                      \
        memset(out + begin * slab, 0, (size_t)((end - begin) * slab) * sizeof(T));                                     \
        for (int64_t o = begin; o < end; o++)                                                                          \
            for (int64_t j = 0; j < g->n; j++)                                                                         \
                for (int64_t i = 0; i < g->full.inner; i++)                                                            \
                    out[picked_at(g, o, j, i)] += dy[(o * g->n + j) * g->full.inner + i];                              \
    }

GATHER(f32, float)
GATHER(f64, double)
GATHER(bf16, uint16_t)
GATHER(i32, int32_t)
GATHER(u8, uint8_t)
GATHER_GRAD(f32, float)
GATHER_GRAD(f64, double)

static const wn__parallel_body gathers[WN_DTYPE_COUNT][2] = {[WN_F32] = {gather_f32, gather_last_f32},
                                                             [WN_F64] = {gather_f64, gather_last_f64},
                                                             [WN_BF16] = {gather_bf16, gather_last_bf16},
                                                             [WN_I32] = {gather_i32, gather_last_i32},
                                                             [WN_U8] = {gather_u8, gather_last_u8}};
static const wn__parallel_body gather_grads[2][2] = {{gather_grad_f32, gather_grad_last_f32},
                                                     {gather_grad_f64, gather_grad_last_f64}};

static int32_t gather(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct gather g = gather_of(d, b, &d->in[0], &d->out);
    int32_t last = !g.whole && g.full.inner == 1;
    int64_t n = wn__numel(&d->in[1]), grain = WN_CPU_GRAIN_MATH / (g.full.inner + 1) + 1;
    if (!last) WN_TRY(check_ids("gather", g.ids, n, g.full.n));
    wn__parallel_for(g.full.outer * g.n, grain, gathers[d->out.dtype][last], &g);
    return g.outside ? check_ids("gather", g.ids, n, g.full.n) : WN_OK;
}

static int32_t gather_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct gather g = gather_of(d, b, &d->out, &d->in[0]);
    int32_t last = !g.whole && g.full.inner == 1;
    int64_t n = wn__numel(&d->in[1]), grain = WN_CPU_GRAIN_MATH / ((g.full.n + g.n) * g.full.inner + 1) + 1;
    if (!last) WN_TRY(check_ids("gather_grad", g.ids, n, g.full.n));
    wn__parallel_for(g.full.outer, grain, gather_grads[d->out.dtype == WN_F64][last], &g);
    return g.outside ? check_ids("gather_grad", g.ids, n, g.full.n) : WN_OK;
}

wn_kernel_fn wn__cpu_table_kernel(const struct wn_desc *d)
{
    if (d->in[1].dtype != WN_I32 || d->in[0].dtype != d->out.dtype) return NULL;
    int32_t is_float = d->out.dtype == WN_F32 || d->out.dtype == WN_F64;
    switch (d->op) {
    case WN_OP_EMBEDDING: return embedding;
    case WN_OP_EMBEDDING_GRAD: return is_float ? embedding_grad : wn__cpu_copies_kernel(d);
    case WN_OP_GATHER: return gathers[d->out.dtype][0] ? gather : NULL;
    case WN_OP_GATHER_GRAD: return is_float ? gather_grad : wn__cpu_copies_kernel(d);
    default: return NULL;
    }
}
