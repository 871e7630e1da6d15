/* MATMUL and LINEAR. f32: packed strips through the best tile of this machine (gemm.h). f64: plain loops, the
 * reference. Work is cut over outputs, never over k; so the thread count cannot change a bit. */
#include <stddef.h>
#include <string.h>
#include "cpu.h"
#include "gemm.h"

/* One batch of products c = op(a) op(b) (+ bias), as strides: a(i, k) = a[i * ai + k * ak]. */
struct product {
    int64_t m, n, k, batch;
    int64_t ai, ak, bj, bk;
    const void *a, *b, *bias;
    void *c;
    struct wn__walk walk; /* over the leading dims: offsets of a (0) and b (1), in matrices */
    /* the cut */
    const struct wn__gemm_kernel *kernel;
    int64_t row_parts, column_parts;
    int32_t stream;
};

static void walk_one(struct wn__walk *w)
{
    memset(w, 0, sizeof *w);
    w->n_operands = 2;
    w->ndim = 1;
    w->dim[0] = 1;
    w->numel = 1;
}

static void product_of_linear(struct product *p, const struct wn_desc *d, const struct wn_buffers *b)
{
    const struct wn_type *w = &d->in[1];
    p->k = w->dim[1];
    p->n = w->dim[0];
    p->m = p->n ? wn__numel(&d->out) / p->n : 0;
    p->batch = 1;
    p->ai = p->bj = p->k;
    p->ak = p->bk = 1;
    p->a = b->in[0];
    p->b = b->in[1];
    p->bias = b->in[2];
    p->c = b->out;
    walk_one(&p->walk);
}

static void product_of_matmul(struct product *p, const struct wn_desc *d, const struct wn_buffers *b)
{
    struct wn_type ta = d->in[0], tb = d->in[1], out = d->out;
    int32_t flip_a = d->attrs.i[0] != 0, flip_b = d->attrs.i[1] != 0;
    p->m = out.dim[out.ndim - 2];
    p->n = out.dim[out.ndim - 1];
    p->k = ta.dim[ta.ndim - (flip_a ? 2 : 1)];
    p->ai = flip_a ? 1 : p->k;
    p->ak = flip_a ? p->m : 1;
    p->bj = flip_b ? p->k : 1;
    p->bk = flip_b ? 1 : p->n;
    p->a = b->in[0];
    p->b = b->in[1];
    p->bias = NULL;
    p->c = b->out;
    ta.ndim -= 2;
    tb.ndim -= 2;
    out.ndim -= 2;
    p->batch = wn__numel(&out);
    if (p->batch > 1 && !flip_a && wn__numel(&tb) == 1 && wn__numel(&ta) == p->batch) {
        p->m *= p->batch; /* one matrix b for all: the batch is more rows */
        p->batch = 1;
    }
    const struct wn_type *lead[2] = {&ta, &tb};
    if (p->batch == 1) walk_one(&p->walk);
    else wn__walk_broadcast(&p->walk, &out, 2, lead);
}

static void batch_offsets(const struct product *p, int64_t batch, int64_t offset[2])
{
    offset[0] = offset[1] = 0;
    for (int32_t i = p->walk.ndim - 1; i >= 0; i--) {
        int64_t at = batch % p->walk.dim[i];
        batch /= p->walk.dim[i];
        offset[0] += at * p->walk.step[0][i];
        offset[1] += at * p->walk.step[1][i];
    }
}

/* ---- f32 ----------------------------------------------------------------------------------------- */

static const struct wn__gemm_kernel *best_kernel(void)
{
    const struct wn__gemm_kernel *kernel = wn__gemm_avx512();
    if (!kernel) kernel = wn__gemm_avx2();
    return kernel ? kernel : wn__gemm_plain();
}

/* A strip whose columns are contiguous: x(k, j) = x[k * ld + j]. */
static void pack_columns(const float *x, int64_t ld, int64_t n, int64_t kc, int64_t width, float *out)
{
    for (int64_t k = 0; k < kc; k++, out += width) {
        if (n == width) memcpy(out, x + k * ld, (size_t)width * sizeof *out);
        else
            for (int64_t j = 0; j < width; j++) out[j] = j < n ? x[k * ld + j] : 0;
    }
}

/* The block of outputs one task makes, of one matrix of the batch. */
struct block {
    const float *a, *b;
    float *c;
    int64_t row0, row1, column0, column1;
};

static void pack_a(const struct product *p, const float *a, int64_t row, int64_t rows, int64_t k, int64_t kc,
                   float *out)
{
    int64_t mr = p->kernel->mr;
    for (int64_t i = 0; i < rows; i += mr, out += mr * kc) {
        int64_t m = rows - i < mr ? rows - i : mr;
        const float *from = a + (row + i) * p->ai + k * p->ak;
        if (p->ak == 1) p->kernel->pack_a_rows(from, p->ai, m, kc, out);
        else pack_columns(from, p->ak, m, kc, mr, out);
    }
}

static void pack_b(const struct product *p, const float *b, int64_t column, int64_t n, int64_t k, int64_t kc,
                   float *out)
{
    const float *from = b + column * p->bj + k * p->bk;
    if (p->bk == 1) p->kernel->pack_b_rows(from, p->bj, n, kc, out);
    else pack_columns(from, p->bk, n, kc, p->kernel->nr, out);
}

/* Where the next strip of B starts, so that tile number i can touch its share: a line of every row. */
static void look_ahead(const struct product *p, const float *next, int64_t i, struct wn__gemm_tile *t)
{
    const char *from = (const char *)next;
    if (p->bk == 1) { /* rows along k: up to 64 of them, two lines a tile */
        t->ahead[0] = from + i * 128;
        t->ahead[1] = from + i * 128 + 64;
        t->ahead_step = p->bj * (int64_t)sizeof(float);
    } else { /* rows along the columns: kc of them, one line a tile */
        t->ahead_step = p->bk * (int64_t)sizeof(float);
        t->ahead[0] = from + i * 64;
        t->ahead[1] = t->ahead[0] + (t->kc + 1) / 2 * t->ahead_step;
    }
}

/* Rows [row, row + rows) of the block, for one stretch of k: every strip of B in turn. */
static void run_strips(const struct product *p, const struct block *q, int64_t row, int64_t rows, int64_t k, int64_t kc,
                       const float *packed_a)
{
    float packed_b[WN_GEMM_KC * WN_GEMM_NR_MAX] __attribute__((aligned(64)));
    int64_t mr = p->kernel->mr, nr = p->kernel->nr;
    struct wn__gemm_tile t = {.kc = kc, .b = packed_b, .ldc = p->n, .first = k == 0, .stream = p->stream};
    for (int64_t column = q->column0; column < q->column1; column += nr) {
        t.n = q->column1 - column < nr ? q->column1 - column : nr;
        pack_b(p, q->b, column, t.n, k, kc, packed_b);
        t.bias = p->bias && k + kc == p->k ? (const float *)p->bias + column : NULL;
        const float *next = q->b + (column + nr) * p->bj + k * p->bk;
        if (column + nr >= q->column1) next = q->b + q->column0 * p->bj + (k + kc) * p->bk;
        for (int64_t i = 0; i < rows; i += mr) {
            t.a = packed_a + i * kc;
            t.c = q->c + (row + i) * p->n + column;
            t.m = rows - i < mr ? rows - i : mr;
            look_ahead(p, next, i / mr, &t);
            p->kernel->tile(&t);
        }
    }
}

static void run_block(const struct product *p, const struct block *q)
{
    float packed_a[WN_GEMM_MC * WN_GEMM_KC] __attribute__((aligned(64)));
    int64_t step = WN_GEMM_MC / p->kernel->mr * p->kernel->mr;
    int64_t k = 0;
    do { /* once even when k is 0: then the result is the bias, or zeros */
        int64_t kc = p->k - k < WN_GEMM_KC ? p->k - k : WN_GEMM_KC;
        for (int64_t row = q->row0; row < q->row1; row += step) {
            int64_t rows = q->row1 - row < step ? q->row1 - row : step;
            pack_a(p, q->a, row, rows, k, kc, packed_a);
            run_strips(p, q, row, rows, k, kc, packed_a);
        }
        k += kc;
    } while (k < p->k);
}

/* Part `part` of `parts` of n outputs, cut at multiples of `unit`. */
static void part_of(int64_t n, int64_t unit, int64_t part, int64_t parts, int64_t *begin, int64_t *end)
{
    int64_t units = (n + unit - 1) / unit;
    *begin = units * part / parts * unit;
    *end = units * (part + 1) / parts * unit;
    if (*end > n) *end = n;
}

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct product *p = ctx;
    for (int64_t task = begin; task < end; task++) {
        int64_t parts = p->row_parts * p->column_parts, batch = task / parts, offset[2];
        int64_t row_part = task % parts / p->column_parts, column_part = task % p->column_parts;
        batch_offsets(p, batch, offset);
        struct block q = {(const float *)p->a + offset[0] * p->m * p->k,
                          (const float *)p->b + offset[1] * p->n * p->k,
                          (float *)p->c + batch * p->m * p->n,
                          0,
                          0,
                          0,
                          0};
        part_of(p->m, p->kernel->mr, row_part, p->row_parts, &q.row0, &q.row1);
        part_of(p->n, p->kernel->nr, column_part, p->column_parts, &q.column0, &q.column1);
        if (q.row0 < q.row1 && q.column0 < q.column1) run_block(p, &q);
    }
#if defined(__x86_64__)
    if (p->stream) __builtin_ia32_sfence();
#endif
}

/* As many parts as threads ask for: first along the longer side, whose strips are packed once a part. */
static void cut(struct product *p)
{
    int64_t threads = wn_cpu_threads();
    int64_t rows = (p->m + p->kernel->mr - 1) / p->kernel->mr, columns = (p->n + p->kernel->nr - 1) / p->kernel->nr;
    p->row_parts = p->column_parts = 1;
    if (p->batch % threads == 0 || p->m * p->n * p->k < 16384) return;
    int64_t want = p->batch >= threads ? threads : (threads + p->batch - 1) / p->batch;
    int64_t *first = p->m > p->n ? &p->row_parts : &p->column_parts;
    int64_t *second = p->m > p->n ? &p->column_parts : &p->row_parts;
    int64_t most = p->m > p->n ? rows : columns, rest = p->m > p->n ? columns : rows;
    *first = want < most ? want : most;
    want = (want + *first - 1) / *first;
    *second = want < rest ? want : rest;
}

static int32_t run_f32(struct product *p)
{
    p->kernel = best_kernel();
    cut(p);
    int64_t numel = p->batch * p->m * p->n;
    if (numel == 0) return WN_OK;
    /* Written once and larger than the caches: do not read it in first. Lines are whole when n is. */
    p->stream = p->k <= WN_GEMM_KC && p->n % 16 == 0 && numel >= (int64_t)4 << 20;
    int64_t tasks = p->batch * p->row_parts * p->column_parts;
    int64_t flops = p->m * p->n * (p->k + 1) / (p->row_parts * p->column_parts);
    wn__parallel_for(tasks, 16384 / (flops + 1) + 1, run_tasks, p);
    return WN_OK;
}

/* ---- f64 ----------------------------------------------------------------------------------------- */

static void rows_f64(int64_t begin, int64_t end, void *ctx)
{
    const struct product *p = ctx;
    const double *bias = p->bias;
    for (int64_t r = begin; r < end; r++) {
        int64_t batch = r / p->m, i = r % p->m, offset[2];
        batch_offsets(p, batch, offset);
        const double *a = (const double *)p->a + offset[0] * p->m * p->k + i * p->ai;
        const double *b = (const double *)p->b + offset[1] * p->n * p->k;
        double *c = (double *)p->c + r * p->n;
        if (p->bk == 1) {
            for (int64_t j = 0; j < p->n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < p->k; k++) sum += a[k * p->ak] * b[j * p->bj + k];
                c[j] = sum;
            }
        } else {
            for (int64_t j = 0; j < p->n; j++) c[j] = 0;
            for (int64_t k = 0; k < p->k; k++)
                for (int64_t j = 0; j < p->n; j++) c[j] += a[k * p->ak] * b[k * p->bk + j];
        }
        for (int64_t j = 0; bias && j < p->n; j++) c[j] += bias[j];
    }
}

static int32_t run_f64(struct product *p)
{
    wn__parallel_for(p->batch * p->m, 16384 / (p->n * p->k + 1) + 1, rows_f64, p);
    return WN_OK;
}

/* ---- the two ops --------------------------------------------------------------------------------- */

static int32_t matmul(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct product p;
    product_of_matmul(&p, d, b);
    return d->out.dtype == WN_F32 ? run_f32(&p) : run_f64(&p);
}

static int32_t linear(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct product p;
    product_of_linear(&p, d, b);
    return d->out.dtype == WN_F32 ? run_f32(&p) : run_f64(&p);
}

wn_kernel_fn wn__cpu_matmul_kernel(const struct wn_desc *d)
{
    if (d->out.dtype != WN_F32 && d->out.dtype != WN_F64) return NULL;
    switch (d->op) {
    case WN_OP_MATMUL: return matmul;
    case WN_OP_LINEAR: return linear;
    default: return NULL;
    }
}
