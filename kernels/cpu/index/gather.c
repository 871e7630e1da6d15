/* EMBEDDING, GATHER and their gradients: rows and elements read by index, and sums by index (runtime/ops/gather.c has
 * the shapes).
 *
 * Indices are checked before they are used: one outside its table is WN_VALUE, with the value and the range. Gradients
 * are added in the order of the indices, and threads share rows of the table or columns, so the sums do not depend on
 * threads; those of bf16 are f32 sums, rounded once. */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "../../../runtime/base/outside.h"
#include "../common/bf16.h"
#include "../common/cpu.h"
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
    int32_t dtype;
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

static int32_t embedding(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct embedding e = {.table = b->in[0], .ids = b->in[1], .out = b->out, .n = wn__numel(&d->in[1])};
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

/* Defines to[j] += from[j], j < m, where `to` is of the type of the sums; prefetches line by line. */
#define ADD_ROW(S, T, SUM, TAKE)                                                                                       \
    static void add_row_##S(void *to_, const void *from_, const void *prefetch_, int64_t m)                            \
    {                                                                                                                  \
        SUM *to = to_;                                                                                                 \
        const T *from = from_, *prefetch = prefetch_;                                                                  \
        int64_t j = 0;                                                                                                 \
        for (; j + 16 <= m; j += 16) {                                                                                 \
            wn__fetch(prefetch + j, 16 * (int64_t)sizeof(T));                                                          \
            _Pragma("omp simd") for (int i = 0; i < 16; i++) to[j + i] += TAKE(from[j + i]);                           \
        }                                                                                                              \
        for (; j < m; j++) to[j] += TAKE(from[j]);                                                                     \
    }

ADD_ROW(f32, float, float, WN_SAME)
ADD_ROW(f64, double, double, WN_SAME)
ADD_ROW(bf16, uint16_t, float, wn_from_bf16)

/* The loop of a dtype, and bytes of an element of its sums. */
static const struct {
    void (*add_row)(void *to, const void *from, const void *prefetch, int64_t m);
    int64_t sum;
} adds[WN_DTYPE_COUNT] = {[WN_F32] = {add_row_f32, sizeof(float)},
                          [WN_F64] = {add_row_f64, sizeof(double)},
                          [WN_BF16] = {add_row_bf16, sizeof(float)}};

/* Sums m columns of row v of the table, from column `at` on, into `to`. The row of dy after the next one is
 * prefetched. */
static void sum_row(const struct embedding *e, int64_t v, int64_t at, int64_t m, void *to)
{
    int64_t size = wn__dtype_size(e->dtype), row = e->row * size, last = e->n - 1;
    const char *dy = e->table + at * size;
    memset(to, 0, (size_t)(m * adds[e->dtype].sum));
    for (int64_t k = e->first[v]; k < e->first[v + 1]; k++) {
        int64_t prefetch = e->place[k + 2 < last ? k + 2 : last];
        adds[e->dtype].add_row(to, dy + e->place[k] * row, dy + prefetch * row, m);
    }
}

/* Computes units [begin, end) of work: each row of the table is written once; sums of bf16 are rounded once.
 * Measured: zeroing the table, then reading and writing the rows that are indexed: 1.4x time. */
static void embed_grad(int64_t begin, int64_t end, void *ctx)
{
    const struct embedding *e = ctx;
    int64_t size = wn__dtype_size(e->dtype), stop_row = row_at(e, end);
    struct wn__stream_block block;
    for (int64_t v = row_at(e, begin); v < stop_row; v++)
        for (int64_t at = 0, m; at < e->row; at += m) {
            m = e->row - at < WN_STREAM_BLOCK ? e->row - at : WN_STREAM_BLOCK;
            char *out = e->out + (v * e->row + at) * size;
            int32_t is_rounded = e->dtype == WN_BF16;
            sum_row(e, v, at, m, e->streams || is_rounded ? block.bytes : out);
            if (is_rounded) wn__round((uint16_t *)(void *)out, (const float *)(const void *)block.bytes, m);
            else if (e->streams) wn__stream(out, block.bytes, m * size);
        }
    if (e->streams) wn__stream_end();
}

#if defined(__AVX512F__)
/* Computes a line of row v of a table whose rows are whole cache lines and stream: sums it in a register and stores it,
 * so that reads and writes alternate line by line.
 * Measured: by way of a block: 1.2x time. Share of the limit: one row at a time 66 to 69 %, two 77 to 80 %. */
INLINE void embed_grad_line(const struct embedding *e, int64_t v, int64_t at)
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
static const wn__parallel_body embed_grad_lines = embed_grad;
#endif

static int32_t embedding_grad(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct embedding e = {.table = b->in[0], .ids = b->in[1], .out = b->out, .dtype = d->out.dtype};
    e.n = wn__numel(&d->in[1]);
    e.rows = d->out.dim[0];
    e.row = d->out.dim[1];
    e.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    e.first = b->workspace;
    e.place = e.first + e.rows + 1;
    WN_TRY(check_ids(d, b));
    list_places(&e);
    int64_t grain = WN_CPU_GRAIN / (e.row + 1) + 1;
    int32_t has_lines = e.dtype == WN_F32 && by_lines(&e, e.row * 4);
    wn__parallel_for(e.row ? e.n + e.rows : 0, grain, has_lines ? embed_grad_lines : embed_grad, &e);
    return WN_OK;
}

/* ---- gather -------------------------------------------------------------------------------------- */

/* One GATHER or GATHER_GRAD, in one of two forms. ids of the shape of x but along dim: out[o, j, i] = x[o, ids[o, j,
 * i], i]. ids of one dim for an x of several: out[o, j, i] = x[o, ids[j], i]. */
struct gather {
    const char *x;
    const int32_t *ids;
    char *out;
    struct wn__axis full; /* the shape of x, or of dx, seen from dim */
    int64_t n;            /* number of indices along dim */
    int32_t is_shared;    /* the indices are those of all outer and inner indices: the second form */
    int32_t streams;
    const struct gather_loops *loops;
    int64_t size;            /* bytes of an element */
    _Atomic int32_t outside; /* 1: an index does not fit */
};

/* The loops of an element's type; those of the gradient for floats alone. */
struct gather_loops {
    /* to[i] = x[ids[i]], i < n; next: the elements of the next row at the positions of ids, prefetched */
    void (*pick)(void *to, const void *x, const int32_t *ids, int64_t n, const void *next);
    /* Gathers row (o, j) of out where each element has an index of its own. */
    void (*pick_row)(const struct gather *g, int64_t o, int64_t j);
    /* to[ids[i]] += dy[i], i < n; prefetches what follows in ids and dy */
    void (*add_picked)(void *to, const void *dy, const int32_t *ids, int64_t n);
    /* Adds row (o, j) of dy to its places in dx. */
    void (*add_row)(const struct gather *g, int64_t o, int64_t j);
};

static inline int64_t picked_at(const struct gather *g, int64_t o, int64_t j, int64_t i)
{
    int64_t id = g->is_shared ? g->ids[j] : g->ids[(o * g->n + j) * g->full.inner + i];
    return (o * g->full.n + id) * g->full.inner + i;
}

#define PICK(S, T)                                                                                                     \
    static void pick_##S(void *to_, const void *x_, const int32_t *ids, int64_t n, const void *next_)                  \
    {                                                                                                                  \
        T *to = to_;                                                                                                   \
        const T *x = x_, *next = next_;                                                                                \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16) {                                                                                 \
            wn__fetch_behind(ids + i, wn__tuning.stream_ahead, 64);                                                    \
            wn__fetch(next + i, 16 * (int64_t)sizeof(T));                                                              \
            _Pragma("GCC unroll 16") for (int j = 0; j < 16; j++) to[i + j] = x[(uint32_t)ids[i + j]];                 \
        }                                                                                                              \
        for (; i < n; i++) to[i] = x[ids[i]];                                                                          \
    }                                                                                                                  \
    static void pick_row_##S(const struct gather *g, int64_t o, int64_t j)                                             \
    {                                                                                                                  \
        T *out = (T *)(void *)g->out + (o * g->n + j) * g->full.inner;                                                 \
        for (int64_t i = 0; i < g->full.inner; i++) out[i] = ((const T *)(const void *)g->x)[picked_at(g, o, j, i)];   \
    }

#define ADD_PICKED(S, T)                                                                                               \
    static void add_picked_##S(void *to_, const void *dy_, const int32_t *ids, int64_t n)                              \
    {                                                                                                                  \
        T *to = to_;                                                                                                   \
        const T *dy = dy_;                                                                                             \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16) {                                                                                 \
            wn__fetch(dy + n + i, 16 * (int64_t)sizeof(T));                                                            \
            wn__fetch(ids + n + i, 64);                                                                                \
            _Pragma("GCC unroll 16") for (int j = 0; j < 16; j++) to[(uint32_t)ids[i + j]] += dy[i + j];               \
        }                                                                                                              \
        for (; i < n; i++) to[ids[i]] += dy[i];                                                                        \
    }                                                                                                                  \
    static void add_row_of_##S(const struct gather *g, int64_t o, int64_t j)                                           \
    {                                                                                                                  \
        const T *dy = (const T *)(const void *)g->x + (o * g->n + j) * g->full.inner;                                  \
        for (int64_t i = 0; i < g->full.inner; i++) ((T *)(void *)g->out)[picked_at(g, o, j, i)] += dy[i];             \
    }

PICK(8, uint8_t)
PICK(16, uint16_t)
PICK(32, uint32_t)
PICK(64, uint64_t)
ADD_PICKED(f32, float)
ADD_PICKED(f64, double)

static const struct gather_loops gather_loops[WN_DTYPE_COUNT] = {
    [WN_F32] = {pick_32, pick_row_32, add_picked_f32, add_row_of_f32},
    [WN_F64] = {pick_64, pick_row_64, add_picked_f64, add_row_of_f64},
    [WN_BF16] = {pick_16, pick_row_16, NULL, NULL},
    [WN_I32] = {pick_32, pick_row_32, NULL, NULL},
    [WN_U8] = {pick_8, pick_row_8, NULL, NULL}};

static struct gather gather_of(const struct wn_desc *d, const struct wn_buffers *b, const struct wn_type *full,
                               const struct wn_type *picked)
{
    struct gather g = {.x = b->in[0], .ids = b->in[1], .out = b->out, .full = wn__axis_of(full, d->attrs.i[0])};
    g.size = wn__dtype_size(d->out.dtype);
    g.loops = &gather_loops[d->out.dtype];
    g.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    g.n = picked->dim[d->attrs.i[0]];
    g.is_shared = d->in[1].ndim != full->ndim;
    return g;
}

/* Gathers elements [begin, end) of out along the last dim, where each has an index of its own, and checks indices block
 * by block as it reads them; one that does not fit is looked for again, for the message, after all blocks. */
#define PICKED 256 /* elements of a block. Measured: 512: 1.03x time, 128: 1.05x */
static void gather_last(int64_t begin, int64_t end, void *ctx)
{
    struct gather *g = ctx;
    char block[PICKED * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t at = begin, stop; at < end; at = stop) {
        int64_t row = at / g->n;
        stop = (at / PICKED + 1) * PICKED;
        if (stop > end) stop = end;
        if (stop > (row + 1) * g->n) stop = (row + 1) * g->n;
        const char *x = g->x + row * g->full.n * g->size, *next = x + (at - row * g->n + g->full.n) * g->size;
        const int32_t *ids = g->ids + at;
        char *out = g->out + at * g->size;
        if (!ids_fit(ids, stop - at, g->full.n)) {
            atomic_store(&g->outside, 1);
            return;
        }
        g->loops->pick(g->streams ? block : out, x, ids, stop - at, next);
        if (g->streams) wn__stream(out, block, (stop - at) * g->size);
    }
    if (g->streams) wn__stream_end();
}

/* Gathers rows [begin, end) of out: (outer, n). */
static void gather_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct gather *g = ctx;
    int64_t row = g->full.inner * g->size;
    for (int64_t r = begin; r < end; r++) {
        int64_t o = r / g->n, j = r % g->n;
        if (!g->is_shared) g->loops->pick_row(g, o, j);
        else wn__stream_or_copy(g->streams, g->out + r * row, g->x + picked_at(g, o, j, 0) * g->size, row, NULL);
    }
    if (g->streams) wn__stream_end();
}

/* Computes outer indices [begin, end) of the gradient along the last dim. A row that streams is summed in a buffer. */
#define ROW_MOST 4096
static void gather_grad_last(int64_t begin, int64_t end, void *ctx)
{
    struct gather *g = ctx;
    char own[ROW_MOST * sizeof(double)] __attribute__((aligned(64)));
    int32_t streams = g->streams && g->full.n <= ROW_MOST;
    int64_t bytes = g->full.n * g->size;
    for (int64_t row = begin; row < end; row++) {
        const int32_t *ids = g->ids + row * g->n;
        char *out = g->out + row * bytes, *to = streams ? own : out;
        if (!ids_fit(ids, g->n, g->full.n)) {
            atomic_store(&g->outside, 1);
            return;
        }
        memset(to, 0, (size_t)bytes);
        g->loops->add_picked(to, g->x + row * g->n * g->size, ids, g->n);
        if (streams) wn__stream(out, own, bytes);
    }
    if (streams) wn__stream_end();
}

/* Computes outer indices [begin, end) of the gradient. */
static void gather_grad_slabs(int64_t begin, int64_t end, void *ctx)
{
    const struct gather *g = ctx;
    int64_t slab = g->full.n * g->full.inner * g->size;
    memset(g->out + begin * slab, 0, (size_t)((end - begin) * slab));
    for (int64_t o = begin; o < end; o++)
        for (int64_t j = 0; j < g->n; j++) g->loops->add_row(g, o, j);
}

static int32_t gather(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct gather g = gather_of(d, b, &d->in[0], &d->out);
    int32_t last = !g.is_shared && g.full.inner == 1;
    int64_t grain = WN_CPU_GRAIN_MATH / (g.full.inner + 1) + 1;
    if (!last) WN_TRY(check_ids(d, b));
    wn__parallel_for(g.full.outer * g.n, grain, last ? gather_last : gather_rows, &g);
    return g.outside ? check_ids(d, b) : WN_OK;
}

static int32_t gather_grad(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct gather g = gather_of(d, b, &d->out, &d->in[0]);
    int32_t last = !g.is_shared && g.full.inner == 1;
    int64_t grain = WN_CPU_GRAIN_MATH / ((g.full.n + g.n) * g.full.inner + 1) + 1;
    if (!last) WN_TRY(check_ids(d, b));
    wn__parallel_for(g.full.outer, grain, last ? gather_grad_last : gather_grad_slabs, &g);
    return g.outside ? check_ids(d, b) : WN_OK;
}

wn_kernel_fn wn__cpu_gather_kernel(const struct wn_desc *d)
{
    if (d->in[1].dtype != WN_I32 || d->in[0].dtype != d->out.dtype) return NULL;
    switch (d->op) {
    case WN_OP_EMBEDDING: return embedding;
    case WN_OP_EMBEDDING_GRAD: return adds[d->out.dtype].add_row ? embedding_grad : NULL;
    case WN_OP_GATHER: return gather_loops[d->out.dtype].pick ? gather : NULL;
    case WN_OP_GATHER_GRAD: return gather_loops[d->out.dtype].add_row ? gather_grad : wn__cpu_copies_kernel(d);
    default: return NULL;
    }
}
