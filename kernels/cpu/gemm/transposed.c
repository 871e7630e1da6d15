/* The variant transposed: few rows, b has k along memory (the forward of a layer, dX of one in panels): c' = b' a', so
 * only a, the small operand, is packed, and b is read once, in whole rows, each of which is a column of c:
 *
 *     b, k along memory:          packed a': (k, rows)         sums: (n, rows), transposed into c at last
 *     +----------------------+    +----+
 *     | column 0: k ...      |    |    | k                     mr columns of b are the rows of a micro-tile
 *     | column 1: k ...      |    |    |
 *     +----------------------+    +----+
 *
 * Words that are elements in memory are read in place; elements that must be widened are, mr rows of b at a time, into
 * a buffer that stays in the first-level cache. b in panels (dX): a k-block has whole panels, and panels_kernel goes on
 * from one to the next; the columns and steps that are left take a panel at a time.
 * Measured: one panel after the other, 48 steps each, which loads and stores the sums more often: 1.3x time in f32,
 * 1.6x in pairs (32 x 4096 x 4096).
 *
 * The sum over k of an output is that of gemm.h. Nothing here allocates. */
#include <stddef.h>
#include <string.h>
#include "driver.h"
#include "../common/micro.h"
#include "../common/nontemporal.h"
#include "../../../runtime/base/number.h"

/* A k-block of columns [column, column + n), from word k on: sums: (n, ldc) += b' a'. */
struct transposed {
    const struct wn__gemm_job *w;
    const struct wn__gemm_part *part;
    int64_t column, n, k, kc;
    int64_t width; /* rows of a in a micro-panel of packed; one micro-panel is kc * width words */
    int64_t ldc;
    const float *packed; /* a' of the k-block: (micro-panels, kc, width) */
    float *sums;
    const char *next; /* where b is read after this k-block */
};

/* Returns the words of a row of b that are contiguous: all of them, or those of a panel. */
static int64_t contiguous_words(const struct transposed *o)
{
    return o->w->p->b_panels ? WN_PANEL / o->w->words.per : o->w->p->k;
}

/* Multiplies the columns of micro-tile t, from column i of the pass on, words [k, k + t->kc), by all rows. */
static void run_rows(const struct transposed *o, int64_t i, int64_t k, struct wn__gemm_microtile *t)
{
    for (int64_t row = 0; row < o->ldc; row += o->width) {
        t->b = o->packed + row * o->kc + (k - o->k) * o->width;
        t->c = o->sums + i * o->ldc + row;
        o->w->words.kernel->microkernel(t);
    }
}

/* ---- b in place ---------------------------------------------------------------------------------- */

/* Adds words [k, k + kc), within which rows of b are contiguous, to columns `from` of the pass and after. */
static void run_piece(const struct transposed *o, int64_t k, int64_t kc, int64_t from)
{
    const struct wn__gemm_words *words = &o->w->words;
    const int64_t mr = words->kernel->mr;
    int64_t ld;
    const float *b = (const float *)(const void *)wn__gemm_b(o->w, o->part, k * words->per, o->column, &ld);
    struct wn__gemm_microtile t = {.kc = kc, .ak = 1, .bk = o->width, .n = o->width, .ldc = o->ldc, .first = k == 0};
    t.ai = ld / words->per;
    for (int64_t i = from; i < o->n; i += mr) {
        t.m = wn_min(o->n - i, mr);
        t.a = b + i * t.ai;
        wn__gemm_prefetch_rows(&t, i + mr < o->n ? t.a + mr * t.ai : (const float *)(const void *)o->next);
        run_rows(o, i, k, &t);
    }
}

/* Adds `panels` whole panels, each micro-tile over all of them; returns the number of columns done: whole
 * micro-tiles. */
static int64_t run_panels_kernel(const struct transposed *o, int64_t panels)
{
    const struct wn__gemm_words *words = &o->w->words;
    const int64_t mr = words->kernel->mr, n = o->n / mr * mr;
    int64_t ld;
    const float *b = (const float *)(const void *)wn__gemm_b(o->w, o->part, o->k * words->per, o->column, &ld);
    struct wn__gemm_microtile t = {.m = mr, .n = o->width, .bk = o->width, .ldc = o->ldc, .first = o->k == 0};
    ld /= words->per;
    for (int64_t i = 0; i < n; i += mr) {
        t.a = b + i * ld;
        t.aux.line = i + mr < n ? (const char *)(t.a + mr * ld) : o->next;
        for (int64_t row = 0; row < o->ldc; row += o->width) {
            t.b = o->packed + row * o->kc;
            t.c = o->sums + i * o->ldc + row;
            words->kernel->panels_kernel(&t, panels, o->w->p->n * ld);
        }
    }
    return n;
}

/* Adds the k-block: whole panels together, then the columns and steps that are left. */
static void run_in_place(const struct transposed *o)
{
    const int64_t run = contiguous_words(o),
                  whole = o->w->p->b_panels && o->w->words.kernel->panels_kernel ? o->kc / run : 0;
    const int64_t done = whole ? run_panels_kernel(o, whole) : 0;
    for (int64_t at = 0; at < o->kc; at += run)
        run_piece(o, o->k + at, wn_min(o->kc - at, run), at < whole * run ? done : 0);
}

/* ---- b widened ----------------------------------------------------------------------------------- */

/* Widens columns [i, i + m) of the pass, words of the k-block: to (m, kc). Prefetches the columns after them where b is
 * in panels; run_widened does for rows. */
static void widen(const struct transposed *o, int64_t i, int64_t m, float *to)
{
    const int64_t run = contiguous_words(o);
    for (int64_t at = 0, n, ld; at < o->kc; at += n) {
        const uint16_t *b = (const uint16_t *)(const void *)wn__gemm_b(o->w, o->part, o->k + at, o->column + i, &ld);
        n = wn_min(o->kc - at, run);
        if (o->w->p->b_panels) wn__fetch(b + m * ld, m * ld * 2);
        for (int64_t j = 0; j < m; j++)
            if (n == WN_PANEL) wn__gemm_widen(to + j * o->kc + at, b + j * ld, WN_PANEL); /* a constant */
            else wn__gemm_widen(to + j * o->kc + at, b + j * ld, n);
    }
}

/* Adds the k-block, mr columns at a time. The micro-kernel prefetches the next columns, bytes that are half as many as
 * its own words have. */
static void run_widened(const struct transposed *o)
{
    float b[WN_GEMM_WIDENED_MAX] __attribute__((aligned(64)));
    const int64_t mr = o->w->words.kernel->mr;
    struct wn__gemm_microtile t = {.kc = o->kc, .a = b, .ai = o->kc, .ak = 1, .bk = o->width, .first = o->k == 0};
    t.n = o->width;
    t.ldc = o->ldc;
    t.aux.is_near = 1;
    for (int64_t i = 0, ld; i < o->n; i += mr) {
        t.m = wn_min(o->n - i, mr);
        widen(o, i, t.m, b);
        t.aux.line = i + mr < o->n ? wn__gemm_b(o->w, o->part, o->k, o->column + i + mr, &ld) : o->next;
        t.aux.row = o->w->p->bj * o->w->words.size;
        t.aux.then = o->w->p->b_panels ? NULL : t.aux.line;
        t.aux.turn = o->kc / 16 * 8;
        run_rows(o, i, o->k, &t);
    }
}

/* ---- the pass ------------------------------------------------------------------------------------ */

/* Writes the sums, (n, rows), transposed to the pass's columns of c. */
static void finish(const struct transposed *o)
{
    float rows[WN_GEMM_TRANSPOSED_SUMS] __attribute__((aligned(64)));
    const struct wn__gemm_job *w = o->w;
    const struct wn__gemm_part *part = o->part;
    const int64_t m = part->row1 - part->row0;
    int64_t ld;
    char *c = wn__gemm_c(w, part, part->row0, o->column, &ld);
    wn__micro.gemm->transpose(o->sums, o->ldc, o->n, m, rows, o->n);
    for (int64_t i = 0; i < m; i++, c += ld * w->words.size)
        w->words.store(rows + i * o->n, wn__gemm_bias(w, o->column), o->n, c);
    wn__gemm_epilogue(w->p, part->batch, part->row0, part->row1, o->column, o->n);
}

/* Returns the most words of k of a k-block, `wide` rows of a: whole panels. */
static int64_t most_steps(const struct wn__gemm_job *w, int64_t wide)
{
    const int64_t limit = w->words.kernel->panels_packed;
    const int64_t packed = w->p->b_panels && limit > 0 ? limit : w->transposed_packed;
    return wn_max(wn_min(packed / wide, w->words.blocks->transposed_kc) / WN_PANEL, 1) * WN_PANEL;
}

/* Computes columns [column, column + n) of all rows of a part. width: rows of a in a micro-panel. */
static void run_pass(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int64_t column, int64_t n,
                     int64_t width)
{
    float packed[WN_GEMM_TRANSPOSED_PACKED_MAX] __attribute__((aligned(64)));
    float sums[WN_GEMM_TRANSPOSED_SUMS] __attribute__((aligned(64)));
    const int64_t per = w->words.per, words = w->p->k / per, wide = wn_round_up(part->row1 - part->row0, width);
    const int64_t step = most_steps(w, wide);
    struct transposed o = {.w = w, .part = part, .column = column, .n = n, .width = width, .ldc = wide};
    o.packed = packed;
    o.sums = sums;
    for (int64_t ld; o.k < words; o.k += o.kc) {
        o.kc = wn_min(words - o.k, step);
        const int32_t is_last = o.k + o.kc == words;
        wn__gemm_pack_a(w, part, o.k, o.kc, width, packed);
        o.next = wn__gemm_b(w, part, is_last ? 0 : (o.k + o.kc) * per, is_last ? column + n : column, &ld);
        if (w->in_place) run_in_place(&o);
        else run_widened(&o);
    }
    finish(&o);
}

void wn__gemm_transposed(const struct wn__gemm_job *w, const struct wn__gemm_part *part)
{
    const int64_t rows = part->row1 - part->row0, mr = w->words.kernel->mr, nr = w->words.kernel->nr;
    const int64_t micropanels = (rows + nr - 1) / nr, width = wn_round_up((rows + micropanels - 1) / micropanels, 16);
    const int64_t step = WN_GEMM_TRANSPOSED_SUMS / (micropanels * width) / mr * mr;
    for (int64_t column = part->column0; column < part->column1; column += step)
        run_pass(w, part, column, wn_min(part->column1 - column, step), width);
}
