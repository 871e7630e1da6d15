/* The variant small m: products of few rows whose b has its columns along memory (dX of a layer at a small batch). b is
 * most of what memory has to deliver, and is read once, in place, one k-block of KC steps over all columns at a time.
 *
 *     b                        while micro-panel 1 is multiplied,
 *     +-----+-----+-----+      micro-panel 2 is packed by the same micro-kernels (packing_kernel),
 *     |  1  |  2  |  3  |      and lines of micro-panel 3 are prefetched
 *     +-----+-----+-----+ KC
 *     |  4  | ...              the sums of all columns wait in a dense buffer, (micro-panels, rows, nr)
 *     +-----+
 *
 * So memory and arithmetic run side by side, and rows of b that are a power of two apart share a set of the cache only
 * until they are packed.
 * Measured, share of the peak: this variant 66-79 %, b read in place by the first micro-tile as in general 66-73 % (32
 * x 4096 x 4096, 1.04-1.11x as fast in turns); 77-86 % and 70-82 % (32 x 1024 x 1024); 82-89 % of both on cores that
 * nobody shares.
 * Measured: memory prefetched in wider pieces of rows, two or four micro-panels packed side by side: 0.87-0.97x,
 * because micro-panels then come from the second-level cache.
 *
 * Panels that micro-kernels read in place (f32, the forward of a layer) are packed micro-panels already: nothing is
 * packed, all rows go over a piece of a panel that stays in the first-level cache, and memory is read in runs as long
 * as the packed rows of a allow.
 * Measured (32 x 4096 x 4096): next panel not prefetched at the end of one: 1.2x time; packed: 1.35x time.
 *
 * The sum over k of an output is that of gemm.h. Nothing here allocates. */
#include <string.h>
#include "driver.h"
#include "../../../runtime/base/number.h"

#define KC 96      /* steps of a k-block, in words. Measured: 64: up to 4 % slower; 128: the same to 4 % slower */
#define SUMS 65536 /* words of sums */
/* Steps of a piece of a panel: two pieces fit the first-level cache.
 * Measured: 128, prefetched into the second-level cache: 1 to 5 % slower. */
#define PANEL_KC 96
#define PANEL_A 15360 /* words of packed a */

/* One pass over columns [column0, column1) of a part. */
struct small_m {
    const struct wn__gemm_job *w;
    const struct wn__gemm_part *part;
    int64_t groups; /* of mr rows */
    int64_t steps;  /* of k, in words */
    int64_t column0, column1;
};

/* A micro-panel of b: its first step of k, its first column. */
struct place {
    int64_t k, column;
};

static int64_t steps_at(const struct small_m *f, struct place at)
{
    return wn_min(f->steps - at.k, KC);
}

static int64_t columns_at(const struct small_m *f, struct place at)
{
    return wn_min(f->column1 - at.column, f->w->words.kernel->nr);
}

/* Returns row `step` of a micro-panel in b; *ld becomes the stride of b, as wn__gemm_b_at has it. */
static const float *row_at(const struct small_m *f, struct place at, int64_t step, int64_t *ld)
{
    return (const float *)(const void *)wn__gemm_b(f->w, f->part, (at.k + step) * f->w->words.per, at.column, ld);
}

/* Returns the micro-panel after this one; its k is f->steps where there is none. */
static struct place after(const struct small_m *f, struct place at)
{
    at.column += f->w->words.kernel->nr;
    if (at.column < f->column1) return at;
    return (struct place){at.k + steps_at(f, at), f->column0};
}

/* Multiplies one micro-panel by all rows while the next one is packed. Prefetches run half a micro-panel ahead of
 * packing. A last micro-panel of up to two vectors is multiplied as such. b: this micro-panel, and where the next one
 * goes.
 * Measured: a third ahead: 6 to 12 % slower, three quarters: 0 to 7 % slower (32 x 4096 x 4096). */
static void run_micropanel(const struct small_m *f, struct place at, const float *a, float *const b[2], float *sums)
{
    float *packed = b[1];
    int64_t mr = f->w->words.kernel->mr, nr = f->w->words.kernel->nr, kc = steps_at(f, at), done = 0, ld;
    struct place next = after(f, at), later = after(f, next);
    int64_t rows = next.k < f->steps ? steps_at(f, next) : 0;
    struct wn__gemm_packing t = {.kc = kc, .b = b[0], .first = at.k == 0, .next_n = columns_at(f, next)};
    t.n = columns_at(f, at);
    t.every = f->groups >= 4 ? 4 : f->groups >= 2 ? 2 : 1;
    for (int64_t g = 0; g < f->groups; g++) {
        int64_t prefetch = done + kc / 2;
        t.a = a + g * mr * kc;
        t.sums = sums + g * mr * nr;
        t.rows = wn_min(rows - done, kc / t.every);
        t.prefetch = prefetch < rows ? row_at(f, next, prefetch, &ld) : row_at(f, later, prefetch - rows, &ld);
        t.from = row_at(f, next, done, &t.bk);
        t.next = packed + done * nr;
        f->w->words.kernel->packing_kernel(&t);
        done += t.rows;
    }
    const struct wn__gemm_micropanel rest = {
        .k = next.k + done, .kc = rows - done, .column = next.column, .n = t.next_n, .width = nr};
    if (done < rows) wn__gemm_pack_b(f->w, f->part, &rest, packed + done * nr);
}

/* Writes the sums of the pass to c, and applies the epilogue. */
static void store(const struct small_m *f, const float *sums)
{
    const struct wn__gemm_part *q = f->part;
    const int64_t nr = f->w->words.kernel->nr, micropanel = f->groups * f->w->words.kernel->mr * nr;
    for (int64_t i = 0; i < q->row1 - q->row0; i++) {
        const float *from = sums + i * nr;
        for (struct place at = {0, f->column0}; at.column < f->column1; at.column += nr, from += micropanel) {
            int64_t ld;
            char *c = wn__gemm_c(f->w, q, q->row0 + i, at.column, &ld);
            f->w->words.store(from, wn__gemm_bias(f->w, at.column), columns_at(f, at), c);
        }
    }
    wn__gemm_epilogue(f->w->p, q->batch, q->row0, q->row1, f->column0, f->column1 - f->column0);
}

static void run_columns(const struct small_m *f, float *sums)
{
    float b[2][KC * WN_GEMM_NR_MAX] __attribute__((aligned(64)));
    float a[KC * WN_GEMM_SMALL_M] __attribute__((aligned(64)));
    const struct wn__gemm_job *w = f->w;
    const int64_t rows = f->groups * w->words.kernel->mr;
    struct place at = {0, f->column0};
    float *turn[2] = {b[0], b[1]};
    const struct wn__gemm_micropanel first = {
        .kc = steps_at(f, at), .column = at.column, .n = columns_at(f, at), .width = w->words.kernel->nr};
    wn__gemm_pack_b(w, f->part, &first, b[0]);
    for (; at.k < f->steps; at = after(f, at)) {
        if (at.column == f->column0) wn__gemm_pack_a(w, f->part, at.k, steps_at(f, at), w->words.kernel->mr, a);
        run_micropanel(f, at, a, turn, sums + (at.column - f->column0) * rows);
        float *packed = turn[1];
        turn[1] = turn[0];
        turn[0] = packed;
    }
    store(f, sums);
}

/* ---- b in panels, read in place ------------------------------------------------------------------ */

/* Multiplies steps [at.k, at.k + steps) of one panel by all rows of a: (groups, steps, mr). Prefetches the rest of the
 * panel, then the next panel. */
static void run_panel(const struct small_m *f, struct place at, int64_t steps, const float *a, float *sums)
{
    const int64_t mr = f->w->words.kernel->mr, nr = f->w->words.kernel->nr, end = at.k + steps;
    const struct place beside = {at.k, at.column + nr};
    int64_t ld;
    struct wn__gemm_microtile t = {.ai = 1, .ak = mr, .ldc = nr, .m = mr, .n = columns_at(f, at)};
    t.aux = (struct wn__gemm_auxinfo){.step = 64, .row = WN_GEMM_NEAR_STEPS * 64, .is_near = 1};
    for (; at.k < end; at.k += t.kc, a += t.kc * mr) {
        t.kc = wn_min(end - at.k, PANEL_KC);
        t.b = row_at(f, at, 0, &t.bk);
        t.first = at.k == 0;
        const float *next = t.b + t.kc * t.bk;
        if (at.k + t.kc == end && beside.column < f->column1) next = row_at(f, beside, 0, &ld);
        for (int64_t g = 0; g < f->groups; g++) {
            t.a = a + g * mr * steps;
            t.c = sums + g * mr * nr;
            t.aux.line = (const char *)(next + t.kc * 16 * g);
            f->w->words.kernel->microkernel(&t);
        }
    }
}

/* Computes the pass in k-blocks of as many steps as fit PANEL_A, so that each panel is read in long runs. */
static void run_panels(const struct small_m *f, float *sums)
{
    float a[PANEL_A] __attribute__((aligned(64)));
    const int64_t mr = f->w->words.kernel->mr, rows = f->groups * mr, most = PANEL_A / rows / 16 * 16;
    struct place at = {0, 0};
    for (int64_t steps; at.k < f->steps; at.k += steps) {
        steps = wn_min(f->steps - at.k, most);
        wn__gemm_pack_a(f->w, f->part, at.k, steps, mr, a);
        for (at.column = f->column0; at.column < f->column1; at.column += f->w->words.kernel->nr)
            run_panel(f, at, steps, a, sums + (at.column - f->column0) * rows);
    }
    store(f, sums);
}

void wn__gemm_small_m(const struct wn__gemm_job *w, const struct wn__gemm_part *part)
{
    float sums[SUMS] __attribute__((aligned(64)));
    const int64_t mr = w->words.kernel->mr, nr = w->words.kernel->nr;
    struct small_m f = {.w = w, .part = part, .groups = (part->row1 - part->row0 + mr - 1) / mr};
    const int64_t wide = SUMS / (f.groups * mr * nr) * nr;
    f.steps = w->p->k / w->words.per;
    for (int64_t column = part->column0; column < part->column1; column += wide) {
        f.column0 = column;
        f.column1 = wn_min(column + wide, part->column1);
        if (w->p->b_panels) run_panels(&f, sums);
        else run_columns(&f, sums);
    }
}
