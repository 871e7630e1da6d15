/* PRODUCT_UPDATE: a weight's gradient, dy' x over the rows of a batch, made a few rows at a time and used up while it is
 * near: it never goes to memory. The factor with the columns is packed once for all threads, into the plan's
 * workspace; then every task goes block by block: a few rows of the other through the strips of WIDE columns, and the
 * optimizer's own loop (update.c) over each row of those sums. Meanwhile the cells of the block after are asked for, so
 * that memory works in both halves: 0.94 of the time of asking for the block at hand, 20 layers of 1024 with Adam.
 * A gradient is summed in the order of gemm.h, so the cells get the bits of product and update one after the other. */
#include <stddef.h>
#include <string.h>
#include "gemm.h"
#include "stream.h"
#include "update.h"

/* Columns of a block, at most. In turns, 20 layers of 4096 with SGD took 0.96 of the time they took with 4128 (medians of
 * eight processes), and 20 of 1024 with Adam, which have one block a group of rows either way, 1.00. */
#define WIDE 1056

struct job {
    const struct wn__gemm_kernel *kernel;
    const float *a, *b;
    float *packed; /* (strips, k, nr) of b */
    int64_t m, n, k, ai, ak, bj, bk;
    int64_t wide; /* columns of a block, and between rows of its sums */
    struct wn__update update;
    wn__parallel_body loop;
};

static void pack_strips(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    int64_t nr = w->kernel->nr;
    for (int64_t strip = begin; strip < end; strip++) {
        float *to = w->packed + strip * w->k * nr;
        const float *from = w->b + strip * nr * w->bj;
        int64_t n = w->n - strip * nr < nr ? w->n - strip * nr : nr;
        if (n < nr) memset(to, 0, (size_t)(w->k * nr) * sizeof *to);
        if (w->bk == 1) w->kernel->transpose(from, w->bj, n, w->k, to, nr);
        else
            for (int64_t k = 0; k < w->k; k++) memcpy(to + k * nr, from + k * w->bk, (size_t)n * sizeof *to);
    }
}

/* mr rows of the other factor, step by step. */
static void pack_rows(const struct job *w, int64_t row, int64_t m, float *rows)
{
    const float *a = w->a + row * w->ai;
    for (int64_t k = 0; k < w->k; k++)
        for (int64_t i = 0; i < m; i++) rows[k * w->kernel->mr + i] = a[i * w->ai + k * w->ak];
}

/* The optimizer over columns [column, column + n) of a row. */
static void use(const struct job *w, const float *sums, int64_t row, int64_t column, int64_t n)
{
    void *cell[3] = {NULL, NULL, NULL};
    struct wn__update u = w->update;
    for (int32_t c = 0; c < 3; c++)
        if (u.cell[c] != NULL) cell[c] = (float *)u.cell[c] + row * w->n + column;
    u.cell = cell;
    u.value = sums;
    w->loop(0, n, &u);
}

/* Rows [row, row + m), columns [column, column + n) of the cells, which are asked for a part at a time, in the order in
 * which they lie. */
struct block {
    int64_t row, m, column, n, done;
};

/* Until `part` of `parts` of the block are asked for. */
static void fetch(const struct job *w, struct block *next, int64_t part, int64_t parts)
{
    int64_t end = next->m * next->n * part / parts;
    while (next->done < end) {
        int64_t i = next->done / next->n, past = (i + 1) * next->n, stop = past < end ? past : end;
        int64_t at = (next->row + i) * w->n + next->column - i * next->n;
        for (; next->done < stop; next->done += 16)
            for (int32_t c = 0; c < 3 && w->update.cell[c] != NULL; c++)
                wn__fetch_far((const float *)w->update.cell[c] + at + next->done, 0);
    }
}

/* The one that begins there, of rows up to `end`; without rows where there is none. */
static struct block block_at(const struct job *w, int64_t row, int64_t column, int64_t end)
{
    int64_t m = end - row < w->kernel->mr ? end - row : w->kernel->mr;
    int64_t n = w->n - column < w->wide ? w->n - column : w->wide;
    return (struct block){row, m, column, n, 0};
}

static struct block block_after(const struct job *w, const struct block *b, int64_t end)
{
    int64_t column = b->column + b->n;
    return column < w->n ? block_at(w, b->row, column, end) : block_at(w, b->row + b->m, 0, end);
}

#define ROW_PARTS 2 /* a row of the optimizer's takes about as long as two tiles */

/* Sums of one strip of columns, at most nr. */
static void make_strip(const struct job *w, const struct block *b, int64_t j, const float *rows, float *sums)
{
    int64_t nr = w->kernel->nr, n = b->n - j < nr ? b->n - j : nr;
    const float *strip = w->packed + (b->column + j) * w->k;
    if (w->kernel->sweep && b->m == w->kernel->mr && n == nr) {
        const struct wn__gemm_sweep s = {w->k, 1, rows, strip, sums + j, w->wide, 0};
        w->kernel->sweep(&s);
        return;
    }
    struct wn__gemm_tile t = {.kc = w->k, .a = rows, .ai = 1, .ak = w->kernel->mr, .b = strip, .bk = nr, .first = 1};
    t.c = sums + j;
    t.ldc = w->wide;
    t.m = b->m;
    t.n = n;
    t.ahead = (const char *)(strip + w->k * nr); /* the next strip */
    t.ahead_step = 64;
    t.ahead_row = WN_GEMM_NEAR_STEPS * 64;
    t.ahead_near = 1;
    w->kernel->tile(&t);
}

static void run_block(const struct job *w, const struct block *b, struct block *next, const float *rows, float *sums)
{
    int64_t nr = w->kernel->nr, strips = (b->n + nr - 1) / nr, parts = strips + b->m * ROW_PARTS, part = 0;
    for (int64_t j = 0; j < b->n; j += nr) {
        fetch(w, next, ++part, parts);
        make_strip(w, b, j, rows, sums);
    }
    for (int64_t i = 0; i < b->m; i++) {
        fetch(w, next, part += ROW_PARTS, parts);
        use(w, sums + i * w->wide, b->row + i, b->column, b->n);
    }
}

/* Groups [begin, end) of mr rows. */
static void run_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    int64_t mr = w->kernel->mr, last = end * mr < w->m ? end * mr : w->m;
    float sums[WN_GEMM_MR_MAX * WIDE] __attribute__((aligned(64)));
    float rows[WN_GEMM_KC * WN_GEMM_MR_MAX] __attribute__((aligned(64)));
    struct block at = block_at(w, begin * mr, 0, last), next;
    fetch(w, &at, 1, 1);
    for (; at.m > 0; at = next) {
        if (at.column == 0) pack_rows(w, at.row, at.m, rows);
        next = block_after(w, &at, last);
        run_block(w, &at, &next, rows, sums);
    }
}

static int32_t product_update(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t flip_a = d->attrs.i[0] != 0, flip_b = d->attrs.i[1] != 0;
    struct job w = {.kernel = wn__gemm_best(), .a = b->in[0], .b = b->in[1], .packed = b->workspace};
    w.m = d->in[0].dim[flip_a];
    w.k = d->in[0].dim[!flip_a];
    w.n = d->in[1].dim[!flip_b];
    w.ai = flip_a ? 1 : w.k;
    w.ak = flip_a ? w.m : 1;
    w.bj = flip_b ? w.k : 1;
    w.bk = flip_b ? 1 : w.n;
    w.update = (struct wn__update){.cell = b->cell, .size = sizeof(float)};
    if (d->n_in > 2) wn__cpu_update_numbers(&d->in[2], b->in[2], &w.update);
    w.loop = wn__cpu_update_loop((int32_t)d->attrs.i[2], WN_F32);
    if (w.m == 0 || w.n == 0) return WN_OK;
    int64_t nr = w.kernel->nr, mr = w.kernel->mr, strips = (w.n + nr - 1) / nr;
    w.wide = strips * nr < WIDE ? strips * nr : WIDE;
    wn__parallel_for(strips, WN_CPU_GRAIN / (w.k * nr + 1) + 1, pack_strips, &w);
    wn__parallel_for((w.m + mr - 1) / mr, WN_CPU_GRAIN / (w.n * mr) + 1, run_rows, &w);
    return WN_OK;
}

_Static_assert(WIDE % WN_GEMM_NR_MAX == 0, "strips lie within the sums");
_Static_assert(WN_GEMM_NR_MAX == WN_PRODUCT_UPDATE_STRIP, "the workspace is sized by it");
_Static_assert(WN_GEMM_KC >= WN_PRODUCT_UPDATE_ROWS, "a tile takes all of k");

wn_kernel_fn wn__cpu_product_update_kernel(const struct wn_desc *d)
{
    if (d->out.dtype != WN_F32 || d->in[0].dtype != WN_F32 || d->in[1].dtype != WN_F32) return NULL;
    if (d->in[0].ndim != 2 || d->in[1].ndim != 2 || d->in[0].dim[d->attrs.i[0] == 0] > WN_GEMM_KC) return NULL;
    return wn__cpu_update_loop((int32_t)d->attrs.i[2], WN_F32) ? product_update : NULL;
}
