/* The variant small k: products of few steps of k and many outputs (dW of a layer at a small batch). What counts is
 * that outputs are written in long runs, and that starting and ending a micro-tile costs little. All of k is one
 * k-block.
 *
 *     c plain:      mr rows go over all packed columns before the next mr rows do: the lines of a row of c are written
 *                   one after the other
 *     c in panels:  one micro-panel of b goes down all rows of a, which is one run of memory
 *
 * Either is one call of the macro-kernel where there is one. The chain over k of an output is that of gemm.h. Nothing
 * here allocates. */
#include <stddef.h>
#include "gemm.h"
#include "../../../runtime/base/number.h"

#define A_WORDS 49152 /* words of packed a; b is packed again for each of them */
#define B_WORDS 4608  /* words of packed b: a third of the first-level cache; a half, or 4096: the same to 2 % slower */

/* Packs columns [column, column + n) of b: to (micro-panels, steps, nr). */
static void pack_micropanels(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, int64_t column,
                             int64_t n, int64_t steps, float *to)
{
    const struct wn__gemm *p = w->p;
    for (int64_t j = 0, ld; j < n; j += w->nr, to += steps * w->nr) {
        const char *b = (const char *)p->b + wn__gemm_b_at(p, part->offset[1], 0, column + j, &ld) * w->size;
        w->pack_b(w, (const float *)(const void *)b, ld, wn_min(n - j, w->nr), steps, to);
    }
}

/* Computes columns [column, column + n), packed in b, of all rows of a part, packed in a; c is plain. */
static void run_columns(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, const float *a,
                        const float *b, int64_t column, int64_t n, struct wn__gemm_microtile *t)
{
    const struct wn__gemm *p = w->p;
    const int64_t rows = part->row1 - part->row0, micropanel = t->kc * w->nr;
    const char *bias = p->bias;
    char *c = (char *)p->c + ((part->batch * p->m + part->row0) * p->n + column) * w->size;
    for (int64_t i = 0; i < rows; i += w->mr, a += w->mr * t->kc, c += w->mr * p->n * w->size) {
        int64_t j = 0;
        if (w->macrokernel && rows - i >= w->mr && !bias) {
            /* `then` is below the first micro-tile: beyond the last one another thread writes. */
            const struct wn__gemm_macrotile s = {.kc = t->kc,
                                                 .n = w->nr,
                                                 .tiles = n / w->nr,
                                                 .a = a,
                                                 .b = b,
                                                 .c = c,
                                                 .b_step = micropanel,
                                                 .c_step = w->nr,
                                                 .ldc = p->n,
                                                 .then = c + w->mr * p->n * w->size,
                                                 .stream = t->stream};
            w->macrokernel(&s);
            j = s.tiles * w->nr;
        }
        t->a = a;
        t->m = wn_min(rows - i, w->mr);
        for (; j < n; j += w->nr) {
            t->n = wn_min(n - j, w->nr);
            t->b = b + j / w->nr * micropanel;
            t->prefetch = (const char *)(t->b + micropanel);
            w->set_output(t, c + j * w->size, bias ? bias + (column + j) * w->size : NULL);
            w->microkernel(t);
        }
    }
}

/* Computes columns [column, column + n) of one panel of c, packed in b, down all rows of a part, packed in a. */
static void run_down(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, const float *a, const float *b,
                     int64_t column, int64_t n, const struct wn__gemm_microtile *like)
{
    int64_t rows = part->row1 - part->row0, i = 0, ld;
    char *c = (char *)w->p->c + wn__gemm_c_at(w->p, 0, part->row0, column, &ld) * w->size;
    struct wn__gemm_microtile t = *like;
    if (w->macrokernel && n == w->nr) {
        const struct wn__gemm_macrotile s = {.kc = t.kc,
                                             .n = n,
                                             .tiles = rows / w->mr,
                                             .a = a,
                                             .b = b,
                                             .c = c,
                                             .a_step = w->mr * t.kc,
                                             .c_step = w->mr * ld,
                                             .ldc = ld,
                                             .then = c,
                                             .stream = t.stream};
        w->macrokernel(&s);
        i = s.tiles * w->mr;
    }
    t.b = b;
    t.n = n;
    t.ldc = t.half_ld = ld;
    t.stream = 0; /* edges, and narrow panels of bf16, which need not begin on a line, are stored through the caches */
    for (; i < rows; i += w->mr) {
        t.a = a + i * t.kc;
        t.m = wn_min(rows - i, w->mr);
        t.prefetch = (const char *)(t.a + w->mr * t.kc);
        w->set_output(&t, c + i * ld * w->size, NULL);
        w->microkernel(&t);
    }
}

void wn__gemm_small_k(const struct wn__gemm_variant *w, const struct wn__gemm_part *part, int32_t stream)
{
    float a[A_WORDS] __attribute__((aligned(64)));
    float b[B_WORDS] __attribute__((aligned(64)));
    const int64_t steps = (w->p->k + w->per - 1) / w->per;
    const int64_t tall = A_WORDS / steps / w->mr * w->mr;
    const int64_t wide = w->p->c_panels ? w->nr : B_WORDS / steps / w->nr * w->nr;
    struct wn__gemm_microtile t = {.kc = steps, .ai = 1, .ak = w->mr, .bk = w->nr, .first = 1, .stream = stream};
    t.ldc = t.half_ld = w->p->n;
    t.prefetch_near = 1;
    t.prefetch_step = 64;
    for (int64_t row = part->row0; row < part->row1; row += tall) {
        struct wn__gemm_part block = *part;
        block.row0 = row;
        block.row1 = wn_min(row + tall, part->row1);
        w->pack_a(w, &block, 0, steps, a);
        for (int64_t column = part->column0; column < part->column1; column += wide) {
            int64_t n = wn_min(part->column1 - column, wide);
            pack_micropanels(w, part, column, n, steps, b);
            if (w->p->c_panels) run_down(w, &block, a, b, column, n, &t);
            else run_columns(w, &block, a, b, column, n, &t);
        }
    }
}
