/* EMBEDDING, GATHER and their gradients: rows and elements read by index, and sums by index (runtime/ops/gather.c has
 * the shapes).
 *
 * Indices are checked before they are used: one outside its table is WN_VALUE, with the value and the range. Gradients
 * are added in the order of the indices, and threads share rows of the table or columns, so the sums do not depend on
 * threads; those of bf16 are f32 sums, rounded once. */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "../../runtime/base/outside.h"
#include "bf16.h"
#include "cpu.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Returns whether all of n indices are in [0, size). */
static int32_t ids_fit(const int32_t *ids, int64_t n, int64_t size)
{
    uint32_t limit = size > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)size, outside = 0;
    _Pragma("omp simd reduction(| : outside)") for (int64_t i = 0; i < n; i++) outside |= (uint32_t)ids[i] >= limit;
    return !outside;
}

/* Returns WN_VALUE where one of the indices, the second input, is outside its table. */
static int32_t check_ids(const struct wn_desc *d, const struct wn_buffers *b)
{
    const int32_t *ids = b->in[1];
    int64_t n = wn__numel(&d->in[1]), size = wn__table_size(d), i = 0;
    if (ids_fit(ids, n, size)) return WN_OK;
    while (ids[i] >= 0 && ids[i] < size) i++;
    return wn__fail_outside(d, i, ids[i]);
}

/* ---- embedding ----------------------------------------------------------------------------------- */

struct embedding {
    const char *table;    /* (V, D) */
    const int32_t *ids;   /* (n) */
    char *out;            /* (n, D); the gradient: (V, D) */
    int64_t n, rows, row; /* n: indices; rows: V; row: bytes of a row, in the gradient D */
    int32_t streams;
    /* Gradient: ids[place[k]] = v for first[v] <= k < first[v + 1], in ascending order of place[k]. */
    int32_t *first, *place; /* (V + 1), (n) */
};

static void embed(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    for (int64_t i = begin; i < end; i++) {
        const char *next = e->table + e->ids[i + 1 < end ? i + 1 : i] * e->row;
        wn__stream_or_copy(e->streams, e->out + i * e->row, e->table + e->ids[i] * e->row, e->row, next);
    }
    if (e->streams) wn__stream_end();
}

#if defined(__AVX512F__)
/* Copies rows of whole cache lines that stream: two rows at once, with prefetches two pairs ahead.
 * Measured, share of the limit, rows of a page: one by one 72 to 74 %, two at once 80 % (memory copies 75 to 98
 * GB/s). */
static void embed_lines(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    for (int64_t i = begin; i < end; i += 2) {
        const char *from[2], *prefetch[2];
        char *out = e->out + i * e->row;
        int64_t rows = end - i < 2 ? 1 : 2;
        for (int64_t k = 0; k < rows; k++) {
            from[k] = e->table + e->ids[i + k] * e->row;
            prefetch[k] = e->table + e->ids[i + k + 4 < end ? i + k + 4 : i + k] * e->row;
        }
        for (int64_t at = 0; at < e->row; at += 64)
            for (int64_t k = 0; k < rows; k++) {
                __builtin_prefetch(prefetch[k] + at);
                _mm512_stream_si512((void *)(out + k * e->row + at), _mm512_loadu_si512(from[k] + at));
            }
    }
    wn__stream_end();
}

static int32_t by_lines(const struct embedding *e, int64_t row_bytes)
{
    return e->streams && row_bytes % 64 == 0 && (uintptr_t)e->out % 64 == 0;
}
#else
static const wn__parallel_body embed_lines = embed;
static int32_t by_lines(const struct embedding *e, int64_t row_bytes)
{
    return (void)e, (void)row_bytes, 0;
}
#endif

static int32_t embedding(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct embedding e = {b->in[0], b->in[1], b->out, wn__numel(&d->in[1]), d->in[0].dim[0], 0, 0, NULL, NULL};
    e.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    e.row = d->in[0].dim[1] * wn__dtype_size(d->out.dtype);
    WN_TRY(check_ids(d, b));
    wn__parallel_for(e.row ? e.n : 0, WN_CPU_GRAIN * 4 / (e.row + 1) + 1, by_lines(&e, e.row) ? embed_lines : embed,
                     &e);
    return WN_OK;
}

/* Fills first and place: counts the indices of each row, then lists them row after row. */
static void list_places(struct embedding *e)
{
    memset(e->first, 0, (size_t)(e->rows + 1) * sizeof *e->first);
    for (int64_t i = 0; i < e->n; i++) e->first[e->ids[i] + 1]++;
    for (int64_t v = 0; v < e->rows; v++) e->first[v + 1] += e->first[v];
    for (int64_t i = 0; i < e->n; i++)
        e->place[e->first[e->ids[i]]++] = (int32_t)i; /* first[v] becomes the end of the list of v */
    memmove(e->first + 1, e->first, (size_t)e->rows * sizeof *e->first);
    e->first[0] = 0;
}

/* Returns the first row whose work begins at unit `at` or later; a row is one unit, and each addition to it is one. */
static int64_t row_at(const struct embedding *e, int64_t at)
{
    int64_t low = 0, high = e->rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (middle + e->first[middle] < at) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Defines the loop over units [begin, end) of work: each row of the table is written once. The row of dy after the next
 * one is prefetched line by line.
 * Measured: zeroing the table, then reading and writing the rows that are indexed: 1.4x time. */
#define EMBED_GRAD(S, T)                                                                                               \
    static inline __attribute__((always_inline)) void add_row_##S(T *to, const T *from, const T *prefetch, int64_t m)  \
    {                                                                                                                  \
        int64_t j = 0;                                                                                                 \
        for (; j + 16 <= m; j += 16) {                                                                                 \
            wn__fetch(prefetch + j, 16 * (int64_t)sizeof(T));                                                          \
            _Pragma("omp simd") for (int i = 0; i < 16; i++) to[j + i] += from[j + i];                                 \
        }                                                                                                              \
        for (; j < m; j++) to[j] += from[j];                                                                           \
    }                                                                                                                  \
    static void embed_grad_##S(int64_t begin, int64_t end, void *ctx)                                                  \
    {                                                                                                                  \
        const struct embedding *e = ctx;                                                                               \
        const T *dy = (const T *)e->table;                                                                             \
        int64_t width = e->row, last = e->n - 1, stop_row = row_at(e, end);                                            \
        T block[WN_STREAM_BLOCK];                                                                                      \
        for (int64_t v = row_at(e, begin); v < stop_row; v++)                                                          \
            for (int64_t at = 0, m; at < width; at += m) {                                                             \
                m = width - at < WN_STREAM_BLOCK ? width - at : WN_STREAM_BLOCK;                                       \
                T *out = (T *)e->out + v * width + at, *to = e->streams ? block : out;                                 \
                _Pragma("omp simd") for (int64_t j = 0; j < m; j++) to[j] = 0;                                         \
                for (int64_t k = e->first[v]; k < e->first[v + 1]; k++) {                                              \
                    int64_t prefetch = e->place[k + 2 < last ? k + 2 : last];                                          \
                    add_row_##S(to, dy + e->place[k] * width + at, dy + prefetch * width + at, m);                     \
                }                                                                                                      \
                if (e->streams) wn__stream(out, block, m *(int64_t)sizeof(T));                                         \
            }                                                                                                          \
        if (e->streams) wn__stream_end();                                                                              \
    }

EMBED_GRAD(f32, float)
EMBED_GRAD(f64, double)

/* Computes units [begin, end) of a bf16 table: f32 sums, rounded once. */
static void embed_grad_bf16(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    const uint16_t *dy = (const uint16_t *)(const void *)e->table;
    int64_t width = e->row, stop_row = row_at(e, end);
    for (int64_t v = row_at(e, begin); v < stop_row; v++)
        for (int64_t at = 0, m; at < width; at += m) {
            float sum[WN_STREAM_BLOCK] = {0};
            m = width - at < WN_STREAM_BLOCK ? width - at : WN_STREAM_BLOCK;
            for (int64_t k = e->first[v]; k < e->first[v + 1]; k++) {
                const uint16_t *from = dy + e->place[k] * width + at;
                _Pragma("omp simd") for (int64_t j = 0; j < m; j++) sum[j] += wn_from_bf16(from[j]);
            }
            wn__round((uint16_t *)(void *)e->out + v * width + at, sum, m);
        }
}

#if defined(__AVX512F__)
/* Computes a line of row v of a table whose rows are whole cache lines and stream: sums it in a register and stores it,
 * so that reads and writes alternate line by line.
 * Measured: by way of a block: 1.2x time. Share of the limit: one row at a time 66 to 69 %, two 77 to 80 %. */
static inline __attribute__((always_inline)) void embed_grad_line(const struct embedding *e, int64_t v, int64_t at)
{
    const float *dy = (const float *)(const void *)e->table + at;
    int64_t width = e->row, last = e->n - 1;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t k = e->first[v]; k < e->first[v + 1]; k++) {
        __builtin_prefetch(dy + e->place[k + 6 < last ? k + 6 : last] * width);
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(dy + e->place[k] * width));
    }
    _mm512_stream_ps((float *)(void *)e->out + v * width + at, sum);
}

static void embed_grad_lines(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    int64_t stop = row_at(e, end);
    for (int64_t v = row_at(e, begin); v < stop; v += 2)
        for (int64_t at = 0; at < e->row; at += 16) {
            embed_grad_line(e, v, at);
            if (v + 1 < stop) embed_grad_line(e, v + 1, at);
        }
    wn__stream_end();
}
#else
static const wn__parallel_body embed_grad_lines = embed_grad_f32;
#endif

static int32_t embedding_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct embedding e = {b->in[0], b->in[1], b->out, wn__numel(&d->in[1]), d->out.dim[0], d->out.dim[1],
                          0,        NULL,     NULL};
    e.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    e.first = b->workspace;
    e.place = e.first + e.rows + 1;
    WN_TRY(check_ids(d, b));
    list_places(&e);
    int64_t grain = WN_CPU_GRAIN / (e.row + 1) + 1;
    wn__parallel_body body = d->out.dtype == WN_F64    ? embed_grad_f64
                             : d->out.dtype == WN_BF16 ? embed_grad_bf16
                             : by_lines(&e, e.row * 4) ? embed_grad_lines
                                                       : embed_grad_f32;
    wn__parallel_for(e.row ? e.n + e.rows : 0, grain, body, &e);
    return WN_OK;
}

/* ---- gather -------------------------------------------------------------------------------------- */

/* One GATHER or GATHER_GRAD, in one of two forms. ids of the shape of x but along dim: out[o, j, i] = x[o, ids[o, j,
 * i], i]. ids of one dim for an x of several: out[o, j, i] = x[o, ids[j], i]. */
struct gather {
    const void *x;
    const int32_t *ids;
    void *out;
    struct wn__axis full; /* the shape of x, or of dx, seen from dim */
    int64_t n;            /* number of indices along dim */
    int32_t whole;        /* 1: the second form */
    int32_t streams;
    _Atomic int32_t outside; /* 1: an index does not fit */
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

/* Gathers along the last dim, where each element has an index of its own, check indices block by block as they read
 * them; one that does not fit is looked for again, for the message, after all blocks. */
#define PICKED 256 /* elements of a block. Measured: 512: 1.03x time, 128: 1.05x */
#define GATHER(S, T)                                                                                                   \
    /* to[i] = x[ids[i]]; next: the elements of the next row at the positions of ids, prefetched */                    \
    static inline void pick_##S(T *to, const T *x, const int32_t *ids, int64_t n, const T *next)                       \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16) {                                                                                 \
            wn__prefetch_stream(ids + i, 64);                                                                          \
            wn__fetch(next + i, 16 * (int64_t)sizeof(T));                                                              \
            _Pragma("GCC unroll 16") for (int j = 0; j < 16; j++) to[i + j] = x[(uint32_t)ids[i + j]];                 \
        }                                                                                                              \
        for (; i < n; i++) to[i] = x[ids[i]];                                                                          \
    }                                                                                                                  \
    static void gather_last_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        struct gather *g = ctx;                                                                                        \
        T *out = g->out, block[PICKED];                                                                                \
        for (int64_t at = begin, stop; at < end; at = stop) {                                                          \
            int64_t row = at / g->n;                                                                                   \
            stop = (at / PICKED + 1) * PICKED;                                                                         \
            if (stop > end) stop = end;                                                                                \
            if (stop > (row + 1) * g->n) stop = (row + 1) * g->n;                                                      \
            const T *x = (const T *)g->x + row * g->full.n;                                                            \
            const int32_t *ids = g->ids + at;                                                                          \
            T *to = g->streams ? block : out + at;                                                                     \
            if (!ids_fit(ids, stop - at, g->full.n)) {                                                                 \
                atomic_store(&g->outside, 1);                                                                          \
                return;                                                                                                \
            }                                                                                                          \
            pick_##S(to, x, ids, stop - at, x + (at - row * g->n) + g->full.n);                                        \
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
                wn__stream_or_copy(g->streams, out + r * inner, x + picked_at(g, o, j, 0), inner * (int64_t)sizeof(T), \
                                   NULL);                                                                              \
            else                                                                                                       \
                for (int64_t i = 0; i < inner; i++) out[r * inner + i] = x[picked_at(g, o, j, i)];                     \
        }                                                                                                              \
        if (g->streams) wn__stream_end();                                                                              \
    }

/* Defines the loops of the gradient: outer indices [begin, end) belong to one thread. A row that streams is summed in a
 * buffer. */
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
            int64_t i = 0;                                                                                             \
            for (; i + 16 <= g->n; i += 16) {                                                                          \
                wn__fetch(dy + g->n + i, 16 * (int64_t)sizeof(T));                                                     \
                wn__fetch(ids + g->n + i, 64);                                                                         \
                _Pragma("GCC unroll 16") for (int j = 0; j < 16; j++) to[(uint32_t)ids[i + j]] += dy[i + j];           \
            }                                                                                                          \
            for (; i < g->n; i++) to[ids[i]] += dy[i];                                                                 \
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
    int64_t grain = WN_CPU_GRAIN_MATH / (g.full.inner + 1) + 1;
    if (!last) WN_TRY(check_ids(d, b));
    wn__parallel_for(g.full.outer * g.n, grain, gathers[d->out.dtype][last], &g);
    return g.outside ? check_ids(d, b) : WN_OK;
}

static int32_t gather_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct gather g = gather_of(d, b, &d->out, &d->in[0]);
    int32_t last = !g.whole && g.full.inner == 1;
    int64_t grain = WN_CPU_GRAIN_MATH / ((g.full.n + g.n) * g.full.inner + 1) + 1;
    if (!last) WN_TRY(check_ids(d, b));
    wn__parallel_for(g.full.outer, grain, gather_grads[d->out.dtype == WN_F64][last], &g);
    return g.outside ? check_ids(d, b) : WN_OK;
}

wn_kernel_fn wn__cpu_gather_kernel(const struct wn_desc *d)
{
    if (d->in[1].dtype != WN_I32 || d->in[0].dtype != d->out.dtype) return NULL;
    int32_t is_float = d->out.dtype == WN_F32 || d->out.dtype == WN_F64;
    switch (d->op) {
    case WN_OP_EMBEDDING: return embedding;
    case WN_OP_EMBEDDING_GRAD: return is_float || d->out.dtype == WN_BF16 ? embedding_grad : NULL;
    case WN_OP_GATHER: return gathers[d->out.dtype][0] ? gather : NULL;
    case WN_OP_GATHER_GRAD: return is_float ? gather_grad : wn__cpu_copies_kernel(d);
    default: return NULL;
    }
}
