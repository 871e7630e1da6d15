/* The variant small k: products of few steps of k and many outputs (dW of a layer at a small batch). What counts is
 * that outputs are written in long runs, and that starting and ending a micro-tile costs little. All of k is one
 * k-block.
 *
 *     c plain:      mr rows go over all packed columns before the next mr rows do: the lines of a row of c are written
 *                   one after the other
 *     c in panels:  one micro-panel of b goes down all rows of a, which is one run of memory
 *
 * Either is one call of the macro-kernel where there is one. The sum over k of an output is that of gemm.h. Nothing
 * here allocates. */
#include <stddef.h>
#include "driver.h"
#include "../../../runtime/base/number.h"

#define A_WORDS 49152 /* words of packed a; b is packed again for each of them */
#define B_WORDS 4608  /* words of packed b: a third of the first-level cache; a half, or 4096: the same to 2 % slower */

/* One row of blocks: packed a, and columns [column, column + n) of b, packed. */
struct small_k {
    const struct wn__gemm_job *w;
    const struct wn__gemm_part *part; /* the rows of packed a, and all columns */
    int64_t steps, nr;                /* words of k; columns of a micro-panel */
    int64_t column, n;
    const float *a, *b; /* (groups of mr rows, steps, mr), (micro-panels, steps, nr) */
};

/* Packs the columns of f: to (micro-panels, steps, nr). */
static void pack_micropanels(const struct small_k *f, float *to)
{
    for (int64_t j = 0; j < f->n; j += f->nr, to += f->steps * f->nr) {
        const struct wn__gemm_micropanel m = {
            .kc = f->steps, .column = f->column + j, .n = wn_min(f->n - j, f->nr), .width = f->nr};
        wn__gemm_pack_b(f->w, f->part, &m, to);
    }
}

/* Returns whether a macro-kernel over f32 words stores bf16. */
static int32_t is_half(const struct small_k *f)
{
    return f->w->words.per == 1 && f->w->words.size == sizeof(uint16_t);
}

/* Runs one micro-tile into c, rows ld elements apart. t: its operands and its size. */
static void run_tile(const struct small_k *f, struct wn__gemm_microtile *t, char *c, int64_t ld, const void *bias)
{
    const struct wn__gemm_words *words = &f->w->words;
    float sums[WN_GEMM_MR_MAX * WN_GEMM_NR_MAX] __attribute__((aligned(64)));
    t->ldc = f->nr;
    t->c = sums;
    if (words->set_output) words->set_output(t, c, ld, bias);
    words->kernel->microkernel(t);
    for (int64_t i = 0; i < t->m && !words->set_output; i++)
        words->store(sums + i * f->nr, bias, t->n, c + i * ld * words->size);
}

/* Returns the macro-kernel where it can write c; else NULL, and micro-tiles are computed one by one. */
static void (*macrokernel_of(const struct small_k *f))(const struct wn__gemm_macrotile *)
{
    const struct wn__gemm_words *words = &f->w->words;
    return words->set_output && !f->w->p->bias ? words->kernel->macrokernel : NULL;
}

/* Computes the columns of f of all rows; c is plain. */
static void run_columns(const struct small_k *f)
{
    const struct wn__gemm_job *w = f->w;
    const int64_t mr = w->words.kernel->mr, size = w->words.size, micropanel = f->steps * f->nr;
    const int64_t rows = f->part->row1 - f->part->row0;
    void (*const macrokernel)(const struct wn__gemm_macrotile *) = macrokernel_of(f);
    struct wn__gemm_microtile t = {.kc = f->steps, .ai = 1, .ak = mr, .bk = f->nr, .first = 1};
    struct wn__gemm_macrotile s = {.kc = f->steps, .n = f->nr, .tiles = f->n / f->nr, .b = f->b, .stream = w->stream};
    s.half = is_half(f);
    s.b_step = micropanel;
    s.c_step = f->nr;
    t.aux = (struct wn__gemm_auxinfo){.step = 64, .is_near = 1, .stream = w->stream};
    int64_t ld;
    char *c = wn__gemm_c(w, f->part, f->part->row0, f->column, &ld);
    s.ldc = ld;
    for (int64_t i = 0; i < rows; i += mr, c += mr * ld * size) {
        int64_t j = 0;
        t.a = s.a = f->a + i * f->steps;
        t.m = wn_min(rows - i, mr);
        if (macrokernel && t.m == mr) {
            s.c = c;
            s.then = c + mr * ld * size; /* below the first micro-tile: beyond the last one another thread writes */
            macrokernel(&s);
            j = s.tiles * f->nr;
        }
        for (; j < f->n; j += f->nr) {
            t.n = wn_min(f->n - j, f->nr);
            t.b = f->b + j / f->nr * micropanel;
            t.aux.line = (const char *)(t.b + micropanel);
            run_tile(f, &t, c + j * size, ld, wn__gemm_bias(w, f->column + j));
        }
    }
}

/* Computes the columns of f, of one panel of c, down all rows. */
static void run_down(const struct small_k *f)
{
    const struct wn__gemm_job *w = f->w;
    const int64_t mr = w->words.kernel->mr, rows = f->part->row1 - f->part->row0;
    void (*const macrokernel)(const struct wn__gemm_macrotile *) = macrokernel_of(f);
    int64_t i = 0, ld;
    char *c = wn__gemm_c(w, f->part, f->part->row0, f->column, &ld);
    if (macrokernel && f->n == f->nr) {
        struct wn__gemm_macrotile s = {.kc = f->steps, .n = f->n, .tiles = rows / mr, .a = f->a, .b = f->b, .c = c};
        s.a_step = mr * f->steps;
        s.c_step = mr * ld;
        s.ldc = ld;
        s.then = c;
        s.stream = w->stream;
        s.half = is_half(f);
        macrokernel(&s);
        i = s.tiles * mr;
    }
    /* Edges, and narrow panels of bf16, which need not begin on a line, are stored through the caches. */
    struct wn__gemm_microtile t = {.kc = f->steps, .b = f->b, .ai = 1, .ak = mr, .bk = f->nr, .n = f->n, .first = 1};
    t.aux = (struct wn__gemm_auxinfo){.step = 64, .is_near = 1};
    for (; i < rows; i += mr) {
        t.a = f->a + i * f->steps;
        t.m = wn_min(rows - i, mr);
        t.aux.line = (const char *)(t.a + mr * f->steps);
        run_tile(f, &t, c + i * ld * w->words.size, ld, NULL);
    }
}

void wn__gemm_small_k(const struct wn__gemm_job *w, const struct wn__gemm_part *part)
{
    float a[A_WORDS] __attribute__((aligned(64)));
    float b[B_WORDS] __attribute__((aligned(64)));
    const int64_t mr = w->words.kernel->mr;
    struct wn__gemm_part rows = *part;
    struct small_k f = {.w = w, .part = &rows, .nr = wn__gemm_small_k_width(w), .a = a, .b = b};
    f.steps = (w->p->k + w->words.per - 1) / w->words.per;
    const int64_t tall = A_WORDS / f.steps / mr * mr, wide = w->p->c_panels ? f.nr : B_WORDS / f.steps / f.nr * f.nr;
    for (rows.row0 = part->row0; rows.row0 < part->row1; rows.row0 += tall) {
        rows.row1 = wn_min(rows.row0 + tall, part->row1);
        wn__gemm_pack_a(w, &rows, 0, f.steps, mr, a);
        for (f.column = part->column0; f.column < part->column1; f.column += wide) {
            f.n = wn_min(part->column1 - f.column, wide);
            pack_micropanels(&f, b);
            if (w->p->c_panels) run_down(&f);
            else run_columns(&f);
        }
    }
}
