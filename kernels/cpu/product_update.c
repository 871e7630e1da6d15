/* PRODUCT_UPDATE: a weight's gradient, dy' x over the rows of a batch, made a few rows at a time and used up while it is
 * near: it never goes to memory. The factor with the columns is packed once for all threads, into the plan's
 * workspace; then every task takes a few rows of the other through all strips, WIDE columns of sums, and the
 * optimizer's own loop (update.c) over each row of them.
 * A gradient is summed in the order of gemm.h, so the cells get the bits of product and update one after the other. */
#include <stddef.h>
#include <string.h>
#include "gemm.h"
#include "stream.h"
#include "update.h"

/* Columns the optimizer's loop gets at once, at most: whole rows of most layers, because memory likes long stretches. In
 * turns with product and update apart, 20 layers: 0.92 of the time with SGD at 4096, 0.93 with Adam at 1024; with 384
 * columns it was 1.05 and 1.4. */
#define WIDE 4128

struct job {
    const struct wn__gemm_kernel *kernel;
    const float *a, *b;
    float *packed; /* (strips, k, nr) of b */
    int64_t m, n, k, ai, ak, bj, bk;
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

/* The optimizer over rows [row, row + m), columns [column, column + n). */
static void use(const struct job *w, const float *sums, int64_t wide, int64_t row, int64_t m, int64_t column, int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        void *cell[3] = {NULL, NULL, NULL};
        struct wn__update u = w->update;
        for (int32_t c = 0; c < 3; c++)
            if (u.cell[c] != NULL) cell[c] = (float *)u.cell[c] + (row + i) * w->n + column;
        u.cell = cell;
        u.value = sums + i * wide;
        w->loop(0, n, &u);
    }
}

/* Asks for one part of what `use` will need: rows one after the other, as memory likes it. */
static void fetch(const struct job *w, int64_t row, int64_t m, int64_t column, int64_t n, int64_t part, int64_t parts)
{
    for (int64_t at = m * n * part / parts / 16 * 16, end = m * n * (part + 1) / parts; at < end; at += 16)
        for (int32_t c = 0; c < 3 && w->update.cell[c] != NULL; c++)
            wn__fetch_far((const float *)w->update.cell[c] + (row + at / n) * w->n + column + at % n, 0);
}

/* Groups [begin, end) of mr rows. */
static void run_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    int64_t mr = w->kernel->mr, nr = w->kernel->nr, wide = (w->n + nr - 1) / nr * nr;
    if (wide > WIDE) wide = WIDE;
    float sums[WN_GEMM_MR_MAX * WIDE] __attribute__((aligned(64)));
    float rows[WN_GEMM_KC * WN_GEMM_MR_MAX] __attribute__((aligned(64)));
    for (int64_t group = begin; group < end; group++) {
        int64_t row = group * mr, m = w->m - row < mr ? w->m - row : mr;
        const float *a = w->a + row * w->ai;
        for (int64_t k = 0; k < w->k; k++)
            for (int64_t i = 0; i < m; i++) rows[k * mr + i] = a[i * w->ai + k * w->ak];
        for (int64_t column = 0; column < w->n; column += wide) {
            int64_t n = w->n - column < wide ? w->n - column : wide;
            for (int64_t j = 0; j < n; j += nr) {
                struct wn__gemm_tile t = {.kc = w->k, .a = rows, .ai = 1, .ak = mr, .bk = nr, .ldc = wide, .first = 1};
                t.b = w->packed + (column + j) * w->k;
                t.c = sums + j;
                t.m = m;
                t.n = n - j < nr ? n - j : nr;
                t.ahead = (const char *)(t.b + w->k * nr); /* the next strip */
                t.ahead_step = 64;
                t.ahead_row = WN_GEMM_NEAR_STEPS * 64;
                t.ahead_near = 1;
                fetch(w, row, m, column, n, j / nr, (n + nr - 1) / nr);
                w->kernel->tile(&t);
            }
            use(w, sums, wide, row, m, column, n);
        }
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
