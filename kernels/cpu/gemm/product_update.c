/* PRODUCT_UPDATE: the gradient of a weight, dy' x over the rows of a batch, computed a little at a time and given to
 * the update while it is in a cache: it never goes to memory. What all tasks share is packed once for all threads, into
 * the workspace.
 *
 *   plain:   x is packed into micro-panels of columns. A task takes mr rows of dy' through all micro-panels, WIDE
 *            columns of sums at a time, and runs the loop of the update (element/update.c) over each row of them.
 *   panels:  the product is transposed, and x is packed in groups of mr rows. A task takes a micro-panel of dy, which
 *            is a panel of the cells, through groups of x. GROUPS groups are one run of memory of each cell, over which
 *            the loop of the update goes once.
 *
 * A gradient is summed in the order of gemm.h, so the cells get the bits of a product and an update one after the
 * other. */
#include <stddef.h>
#include "driver.h"
#include "../common/nontemporal.h"
#include "../element/update.h"
#include "../../../runtime/base/number.h"

/* Most columns that the loop of the update gets at once: whole rows of most layers, because memory is fastest in long
 * runs.
 * Measured, against product and update apart, 20 layers: SGD, 4096 columns: 0.92x time, Adam, 1024: 0.93x; with 384
 * columns a run: 1.05x and 1.4x. */
#define WIDE 4128

/* Panels. GROUPS: groups of x that the loop of the update gets at once; AHEAD: distance of prefetches of cells, in rows
 * of x.
 * Measured, groups of 8 rows: three and 24 rows: SGD 0.98-0.99x time, momentum 1.07x, Adam 1.0-1.03x; four groups:
 * momentum 1.11x; one: SGD 1.03-1.05x; AHEAD up to 128: nothing faster. Groups of 4 rows, 8 rows ahead: Adam 1.1-1.25x
 * on one thread, the same on two. */
#define GROUPS 2
#define AHEAD 16
#define LINE 16 /* words of a cache line */
#define SIZE ((int64_t)sizeof(float))

/* One PRODUCT_UPDATE, for all tasks: op(a): (m, k), op(b): (k, n) as strides (gemm.h). */
struct job {
    struct wn__gemm_words words;
    const struct wn__gemm_kernel *kernel;
    struct wn__gemm_rows a, b; /* rows of op(a), columns of op(b) */
    float *packed; /* packed b: plain (micro-panels, k, nr); panels (groups, k, mr), the last group narrower */
    int64_t m, n, k;
    struct wn__update_numbers update;
    wn__parallel_body loop; /* of the update */
};

/* Packs rows [first, end) of an operand as micro-panels of `width`: to (micro-panels, k, width). */
static void pack(const struct job *w, struct wn__gemm_rows rows, int64_t first, int64_t end, int64_t width, float *to)
{
    rows.x = (const float *)rows.x + first * rows.xi;
    rows.rows = end - first;
    rows.width = width;
    w->words.pack(&w->words, &rows, to);
}

/* The arguments of the update's loop, made once for each task.
 * Measured: made for each run: SGD 2 % slower. */
struct hand {
    struct wn__update_numbers update;
    void *cell[3];
};

static void take_up(const struct job *w, struct hand *h)
{
    h->update = w->update;
    h->update.cell = h->cell;
    for (int32_t c = 0; c < 3; c++) h->cell[c] = NULL;
}

/* Runs the update over n elements of the cells from `at` on, with the gradient `sums`. */
static void use(const struct job *w, struct hand *h, const float *sums, int64_t at, int64_t n)
{
    for (int32_t c = 0; c < 3 && w->update.cell[c] != NULL; c++) h->cell[c] = (float *)w->update.cell[c] + at;
    h->update.value = sums;
    w->loop(0, n, &h->update);
}

/* ---- plain --------------------------------------------------------------------------------------- */

static void pack_micropanels(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    const int64_t nr = w->kernel->nr;
    pack(w, w->b, begin * nr, wn_min(end * nr, w->n), nr, w->packed + begin * nr * w->k);
}

/* Some outputs: m rows from `row` on, n columns from `column` on. */
struct outputs {
    int64_t row, m, column, n;
};

/* Prefetches part `part` of `parts` of the cells that `use` will read, row after row in the order of memory. */
static void fetch(const struct job *w, const struct outputs *o, int64_t part, int64_t parts)
{
    int64_t at = o->m * o->n * part / parts / LINE * LINE, left = o->m * o->n * (part + 1) / parts - at;
    for (int64_t i = at / o->n, j = at % o->n; left > 0; left -= LINE, j += LINE) {
        if (j >= o->n) i++, j -= o->n;
        for (int32_t c = 0; c < 3 && w->update.cell[c] != NULL; c++)
            wn__fetch_far(w->update.cell[c], ((o->row + i) * w->n + o->column + j) * SIZE);
    }
}

/* Computes groups [begin, end) of mr rows of dy'. */
static void run_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    int64_t mr = w->kernel->mr, nr = w->kernel->nr, wide = (w->n + nr - 1) / nr * nr;
    if (wide > WIDE) wide = WIDE;
    float sums[WN_GEMM_MR_MAX * WIDE] __attribute__((aligned(64)));
    float rows[WN_GEMM_KC * WN_GEMM_MR_MAX] __attribute__((aligned(64)));
    struct wn__gemm_microtile t = {.kc = w->k, .a = rows, .ai = 1, .ak = mr, .bk = nr, .ldc = wide, .first = 1};
    t.aux = (struct wn__gemm_auxinfo){.step = 64, .row = WN_GEMM_NEAR_STEPS * 64, .is_near = 1};
    struct hand hand;
    take_up(w, &hand);
    for (int64_t group = begin; group < end; group++) {
        int64_t row = group * mr, m = wn_min(w->m - row, mr);
        pack(w, w->a, row, row + m, mr, rows);
        for (int64_t column = 0; column < w->n; column += wide) {
            const int64_t n = wn_min(w->n - column, wide);
            const struct outputs cells = {row, m, column, n};
            for (int64_t j = 0; j < n; j += nr) {
                t.b = w->packed + (column + j) * w->k;
                t.c = sums + j;
                t.m = m;
                t.n = wn_min(n - j, nr);
                t.aux.line = (const char *)(t.b + w->k * nr); /* the next micro-panel */
                fetch(w, &cells, j / nr, (n + nr - 1) / nr);
                w->kernel->microkernel(&t);
            }
            for (int64_t i = 0; i < m; i++) use(w, &hand, sums + i * wide, (row + i) * w->n + column, n);
        }
    }
}

/* ---- panels -------------------------------------------------------------------------------------- */

static void pack_groups(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    const int64_t mr = w->kernel->mr, last = wn_min(end * mr, w->n), whole = last / mr * mr;
    pack(w, w->b, begin * mr, whole, mr, w->packed + begin * mr * w->k);
    if (whole < last) pack(w, w->b, whole, last, last - whole, w->packed + whole * w->k);
}

/* Prefetches n elements of each cell from `at` on; of the first cell without the first `own`, which the micro-kernel
 * prefetches. */
static void prefetch(const struct job *w, int64_t at, int64_t n, int64_t own)
{
    for (int32_t c = 0; c < 3 && w->update.cell[c] != NULL; c++)
        for (int64_t i = c == 0 ? own : 0; i < n; i += LINE) wn__fetch_far(w->update.cell[c], (at + i) * SIZE);
}

/* Computes groups [from, to) of x for the panel whose outputs begin with `first`. */
static void run_panel(const struct job *w, int64_t first, int64_t from, int64_t to)
{
    int64_t mr = w->kernel->mr, nr = w->kernel->nr, width = wn_min(w->m - first, WN_PANEL), end = wn_min(to * mr, w->n);
    float micropanel[WN_GEMM_KC * WN_PANEL] __attribute__((aligned(64)));
    float sums[GROUPS * WN_GEMM_MR_MAX * WN_PANEL] __attribute__((aligned(64)));
    /* Made once for all micro-tiles. A micro-tile prefetches the first cell, a line a step, evenly.
     * Measured: made for each micro-tile: SGD 8 % slower. */
    struct wn__gemm_microtile t = {.kc = w->k, .ai = 1, .bk = width, .ldc = width, .first = 1, .aux.is_near = 1};
    t.aux.step = w->k > 0 ? wn_min(LINE * SIZE, mr * wn_min(nr, width) * SIZE / w->k) : 0;
    t.aux.row = WN_GEMM_NEAR_STEPS * t.aux.step;
    struct hand hand;
    take_up(w, &hand);
    pack(w, w->a, first, first + width, width, micropanel);
    for (int64_t row = from * mr; row < end; row += GROUPS * mr) {
        int64_t rows = wn_min(end - row, GROUPS * mr), at = first * w->n + row * width;
        for (int64_t i = 0; i < rows; i += mr) {
            t.m = t.ak = wn_min(rows - i, mr);
            t.a = w->packed + (row + i) * w->k;
            for (int64_t j = 0; j < width; j += nr) {
                int64_t next = at + (i + AHEAD) * width + t.m * j;
                t.n = wn_min(width - j, nr);
                t.b = micropanel + j;
                t.c = sums + i * width + j;
                t.aux.line = (const char *)w->update.cell[0] + next * SIZE;
                prefetch(w, next, t.m * t.n, w->k * LINE);
                w->kernel->microkernel(&t);
            }
        }
        use(w, &hand, sums, at, rows * width);
    }
}

/* Computes the groups whose first piece is in [begin, end). A piece is mr rows of x and 16 outputs, counted in the
 * order of memory, so that threads get equal work from panels of unequal widths. */
static void run_panels(int64_t begin, int64_t end, void *ctx)
{
    const struct job *w = ctx;
    int64_t mr = w->kernel->mr, groups = (w->n + mr - 1) / mr, whole = WN_PANEL / WN_PANEL_UNIT * groups;
    for (int64_t panel = begin / whole; panel * whole < end; panel++) {
        int64_t first = panel * WN_PANEL, per = wn_min(w->m - first, WN_PANEL) / WN_PANEL_UNIT;
        int64_t from = begin > panel * whole ? (begin - panel * whole + per - 1) / per : 0;
        int64_t to = wn_min((end - panel * whole + per - 1) / per, groups);
        if (from < to) run_panel(w, first, from, to);
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

static int32_t product_update(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t flip_a = d->attrs.i[0] != 0, flip_b = d->attrs.i[1] != 0;
    struct job w = {.words = wn__gemm_words_f32(), .packed = b->workspace};
    w.kernel = w.words.kernel;
    w.m = d->in[0].dim[flip_a];
    w.k = d->in[0].dim[!flip_a];
    w.n = d->in[1].dim[!flip_b];
    w.a = (struct wn__gemm_rows){.x = b->in[0], .xi = flip_a ? 1 : w.k, .xk = flip_a ? w.m : 1, .k = w.k};
    w.b = (struct wn__gemm_rows){.x = b->in[1], .xi = flip_b ? w.k : 1, .xk = flip_b ? 1 : w.n, .k = w.k};
    const int32_t op = (int32_t)d->attrs.i[2];
    w.update = (struct wn__update_numbers){.cell = b->cell, .size = sizeof(float)};
    if (d->n_in > 2) wn__cpu_update_constants(&w.update, op, WN_F32, b->in[2]);
    w.loop = wn__cpu_update_loop(op, WN_F32);
    if (w.m == 0 || w.n == 0) return WN_OK;
    int64_t nr = w.kernel->nr, mr = w.kernel->mr, micropanels = (w.n + nr - 1) / nr, groups = (w.n + mr - 1) / mr;
    if (d->out.layout == WN_PANEL48) {
        wn__parallel_for(groups, WN_CPU_GRAIN / (w.k * mr + 1) + 1, pack_groups, &w);
        wn__parallel_for(w.m / WN_PANEL_UNIT * groups, WN_CPU_GRAIN / (WN_PANEL_UNIT * mr), run_panels, &w);
    } else {
        wn__parallel_for(micropanels, WN_CPU_GRAIN / (w.k * nr + 1) + 1, pack_micropanels, &w);
        wn__parallel_for((w.m + mr - 1) / mr, WN_CPU_GRAIN / (w.n * mr) + 1, run_rows, &w);
    }
    return WN_OK;
}

_Static_assert(WIDE % WN_GEMM_NR_MAX == 0, "micro-panels are within the sums");
_Static_assert(WN_GEMM_KC >= WN_PRODUCT_UPDATE_ROWS, "a tile takes all of k");

wn_kernel_fn wn__cpu_product_update_kernel(const struct wn_desc *d)
{
    if (d->out.dtype != WN_F32 || d->in[0].dtype != WN_F32 || d->in[1].dtype != WN_F32) return NULL;
    if (d->in[0].layout != WN_PLAIN || d->in[1].layout != WN_PLAIN) return NULL;
    if (d->in[0].ndim != 2 || d->in[1].ndim != 2 || d->in[0].dim[d->attrs.i[0] == 0] > WN_GEMM_KC) return NULL;
    return wn__cpu_update_loop((int32_t)d->attrs.i[2], WN_F32) ? product_update : NULL;
}
