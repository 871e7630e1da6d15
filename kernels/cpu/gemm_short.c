/* Products of few steps of k and many outputs (a layer's dW at a small batch): what counts is that outputs are written
 * in long runs, and that the start and the end of a tile cost little. All of k is one stretch. A group of mr rows goes
 * over all columns that are packed before the next group does, in one call where the kernel has one for it (sweep): so
 * the lines of a row are written one after the other, and a call makes more than a few steps.
 * An output's chain over k is the one of gemm.h. Nothing here allocates. */
#include <stddef.h>
#include "gemm.h"

#define A_WORDS 49152 /* packed rows of A: B is packed again for each of them */
#define B_WORDS 4608  /* packed columns of B: a third of the first cache; a half or 4096: the same to 2 % more time */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The packed strips of columns [column, column + n), one after the other. */
static void pack_strips(const struct wn__gemm_way *w, const struct wn__gemm_part *part, int64_t column, int64_t n,
                        int64_t steps, float *to)
{
    const struct wn__gemm *p = w->p;
    const char *b = (const char *)p->b + (part->offset[1] * p->n * p->k + column * p->bj) * w->size;
    for (int64_t j = 0; j < n; j += w->nr, b += w->nr * p->bj * w->size, to += steps * w->nr)
        w->pack_b(w, (const float *)(const void *)b, least(n - j, w->nr), steps, to);
}

/* Columns [column, column + n), packed in b, of the rows of a part, packed in a. */
static void run_columns(const struct wn__gemm_way *w, const struct wn__gemm_part *part, const float *a, const float *b,
                        int64_t column, int64_t n, struct wn__gemm_tile *t)
{
    const struct wn__gemm *p = w->p;
    const int64_t rows = part->row1 - part->row0, strip = t->kc * w->nr;
    const char *bias = p->bias;
    char *c = (char *)p->c + ((part->batch * p->m + part->row0) * p->n + column) * w->size;
    for (int64_t i = 0; i < rows; i += w->mr, a += w->mr * t->kc, c += w->mr * p->n * w->size) {
        int64_t j = 0;
        if (w->sweep && rows - i >= w->mr && !bias) {
            const struct wn__gemm_sweep s = {t->kc, n / w->nr, a, b, c, p->n, t->stream};
            w->sweep(&s);
            j = s.strips * w->nr;
        }
        t->a = a;
        t->m = least(rows - i, w->mr);
        for (; j < n; j += w->nr) {
            t->n = least(n - j, w->nr);
            t->b = b + j / w->nr * strip;
            t->ahead = (const char *)(t->b + strip);
            w->aim(t, c + j * w->size, bias ? bias + (column + j) * w->size : NULL);
            w->tile(t);
        }
    }
}

void wn__gemm_short(const struct wn__gemm_way *w, const struct wn__gemm_part *part, int32_t stream)
{
    float a[A_WORDS] __attribute__((aligned(64)));
    float b[B_WORDS] __attribute__((aligned(64)));
    const int64_t steps = (w->p->k + w->per - 1) / w->per;
    const int64_t tall = A_WORDS / steps / w->mr * w->mr, wide = B_WORDS / steps / w->nr * w->nr;
    struct wn__gemm_tile t = {.kc = steps, .ai = 1, .ak = w->mr, .bk = w->nr, .first = 1, .stream = stream};
    t.ldc = t.half_ld = w->p->n;
    t.ahead_near = 1;
    t.ahead_step = 64;
    for (int64_t row = part->row0; row < part->row1; row += tall) {
        struct wn__gemm_part block = *part;
        block.row0 = row;
        block.row1 = least(row + tall, part->row1);
        w->pack_a(w, &block, 0, steps, a);
        for (int64_t column = part->column0; column < part->column1; column += wide) {
            int64_t n = least(part->column1 - column, wide);
            pack_strips(w, part, column, n, steps, b);
            run_columns(w, &block, a, b, column, n, &t);
        }
    }
}
