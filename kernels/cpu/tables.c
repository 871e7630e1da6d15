/* Rows and elements picked by index, and the sums that are their gradients. Indices are checked before a byte
 * is written: one outside its table is WN_VALUE, with the value and the range. Gradients add in index order
 * and threads share out columns, so the sums do not depend on threads; those of bf16 are f32 sums, rounded. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "bf16.h"
#include "cpu.h"

static int32_t check_ids(const char *op, const int32_t *ids, int64_t n, int64_t size)
{
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
};

static void embed(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    for (int64_t i = begin; i < end; i++) memcpy(e->out + i * e->row, e->table + e->ids[i] * e->row, (size_t)e->row);
}

static int32_t embedding(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct embedding e = {b->in[0], b->in[1], b->out, wn__numel(&d->in[1]), d->in[0].dim[0], 0};
    e.row = d->in[0].dim[1] * wn__dtype_size(d->out.dtype);
    WN_TRY(check_ids("embedding", e.ids, e.n, e.rows));
    wn__parallel_for(e.row ? e.n : 0, WN_CPU_GRAIN * 4 / (e.row + 1) + 1, embed, &e);
    return WN_OK;
}

/* Columns [begin, end) of every row of the table. */
#define EMBED_GRAD(S, T)                                                                                               \
    static void embed_grad_##S(int64_t begin, int64_t end, void *ctx)                                                  \
    {                                                                                                                  \
        const struct embedding *e = ctx;                                                                               \
        const T *dy = (const T *)e->table;                                                                             \
        T *out = (T *)e->out;                                                                                          \
        for (int64_t v = 0; v < e->rows; v++) memset(out + v * e->row + begin, 0, (size_t)(end - begin) * sizeof(T));  \
        for (int64_t i = 0; i < e->n; i++) {                                                                           \
            const T *from = dy + i * e->row;                                                                           \
            T *to = out + e->ids[i] * e->row;                                                                          \
            for (int64_t j = begin; j < end; j++) to[j] += from[j];                                                    \
        }                                                                                                              \
    }

EMBED_GRAD(f32, float)
EMBED_GRAD(f64, double)

static int32_t embedding_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct embedding e = {b->in[0], b->in[1], b->out, wn__numel(&d->in[1]), d->out.dim[0], d->out.dim[1]};
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
};

static struct gather gather_of(const struct wn_desc *d, const struct wn_buffers *b, const struct wn_type *full,
                               const struct wn_type *picked)
{
    struct gather g = {b->in[0], b->in[1], b->out, wn__axis_of(full, d->attrs.i[0]), 0, 0};
    g.n = picked->dim[d->attrs.i[0]];
    g.whole = d->in[1].ndim != full->ndim;
    return g;
}

static inline int64_t picked_at(const struct gather *g, int64_t o, int64_t j, int64_t i)
{
    int64_t id = g->whole ? g->ids[j] : g->ids[(o * g->n + j) * g->full.inner + i];
    return (o * g->full.n + id) * g->full.inner + i;
}

#define GATHER(S, T)                                                                                                   \
    static void gather_##S(int64_t begin, int64_t end, void *ctx)                                                      \
    {                                                                                                                  \
        const struct gather *g = ctx;                                                                                  \
        const T *x = g->x;                                                                                             \
        T *out = g->out;                                                                                               \
        for (int64_t r = begin; r < end; r++)                                                                          \
            for (int64_t i = 0; i < g->full.inner; i++)                                                                \
                out[r * g->full.inner + i] = x[picked_at(g, r / g->n, r % g->n, i)];                                   \
    }

/* Outer slabs [begin, end) belong to one thread. */
#define GATHER_GRAD(S, T)                                                                                              \
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

static const wn__parallel_body gathers[WN_DTYPE_COUNT] = {
    [WN_F32] = gather_f32, [WN_F64] = gather_f64, [WN_BF16] = gather_bf16, [WN_I32] = gather_i32, [WN_U8] = gather_u8};

static int32_t gather(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct gather g = gather_of(d, b, &d->in[0], &d->out);
    WN_TRY(check_ids("gather", g.ids, wn__numel(&d->in[1]), g.full.n));
    wn__parallel_for(g.full.outer * g.n, WN_CPU_GRAIN_MATH / (g.full.inner + 1) + 1, gathers[d->out.dtype], &g);
    return WN_OK;
}

static int32_t gather_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct gather g = gather_of(d, b, &d->out, &d->in[0]);
    WN_TRY(check_ids("gather_grad", g.ids, wn__numel(&d->in[1]), g.full.n));
    int64_t slab = (g.full.n + g.n) * g.full.inner;
    wn__parallel_for(g.full.outer, WN_CPU_GRAIN_MATH / (slab + 1) + 1,
                     d->out.dtype == WN_F32 ? gather_grad_f32 : gather_grad_f64, &g);
    return WN_OK;
}

wn_kernel_fn wn__cpu_table_kernel(const struct wn_desc *d)
{
    if (d->in[1].dtype != WN_I32 || d->in[0].dtype != d->out.dtype) return NULL;
    int32_t is_float = d->out.dtype == WN_F32 || d->out.dtype == WN_F64;
    switch (d->op) {
    case WN_OP_EMBEDDING: return embedding;
    case WN_OP_EMBEDDING_GRAD: return is_float ? embedding_grad : wn__cpu_copies_kernel(d);
    case WN_OP_GATHER: return gathers[d->out.dtype] ? gather : NULL;
    case WN_OP_GATHER_GRAD: return is_float ? gather_grad : wn__cpu_copies_kernel(d);
    default: return NULL;
    }
}
